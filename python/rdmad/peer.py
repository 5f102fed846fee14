"""Programs that talk as equals: messages, and groups with collective operations on arrays. See rdma_lib(3).

    from rdmad import peer
    with peer.Context.server() as context:
        group = context.run()        # under rdmarun -n 4 python3 program.py
        total = group.allreduce(numpy.ones(1000), peer.SUM)

Arrays are objects with the buffer protocol in one piece: of numpy, array.array, memoryview.
"""
from __future__ import annotations

import array
import ctypes
import math
from typing import Any, NoReturn

from . import _declarations as d
from ._library import Buffer, Handle, Memory, address_of, bytes_address, new_bytes, rdma_library
from .errors import fail

library = rdma_library()

SUM, PRODUCT, MIN, MAX = d.RDMA_SUM, d.RDMA_PRODUCT, d.RDMA_MIN, d.RDMA_MAX
AND, OR, XOR = d.RDMA_AND, d.RDMA_OR, d.RDMA_XOR

_TYPES = {("i", 4): d.RDMA_INT32, ("l", 4): d.RDMA_INT32, ("i", 8): d.RDMA_INT64, ("l", 8): d.RDMA_INT64,
          ("q", 8): d.RDMA_INT64, ("L", 8): d.RDMA_UINT64, ("Q", 8): d.RDMA_UINT64, ("f", 4): d.RDMA_FLOAT,
          ("d", 8): d.RDMA_DOUBLE, ("B", 1): d.RDMA_BYTE, ("b", 1): d.RDMA_BYTE, ("c", 1): d.RDMA_BYTE}


def _raise() -> NoReturn:
    fail(-library.rdma_get_errno(), library.rdma_get_error().decode(errors="replace"))


def _checked(result: int) -> int:
    if result == -1:
        _raise()
    return result


def _type_of(data: Buffer) -> tuple[int, int]:
    """rdma_type, and how many elements."""
    view = memoryview(data)
    kind = _TYPES.get((view.format.lstrip("@=<"), view.itemsize))
    if kind is None:
        raise TypeError(f"elements of format {view.format!r}, {view.itemsize} bytes, are not reduced: use int32, int64, "
                        "uint64, float32, float64 or bytes")
    return kind, view.nbytes // view.itemsize


def _like(data: Buffer, times: int = 1) -> Any:
    """A new array of the same kind of elements, `times` as many: of numpy where that is one."""
    if hasattr(data, "__array_interface__"):
        import numpy  # pylint: disable=import-outside-toplevel
        shape = data.shape if times == 1 else (times, *data.shape)
        return numpy.empty(shape, dtype=data.dtype)
    view = memoryview(data)
    code = view.format.lstrip("@=<")
    return array.array("B" if code == "c" else code, bytes(view.nbytes * times))


class Group(Handle):
    """Members with ranks. All of them call the collective operations, in the same order."""

    _what = "group"

    def __init__(self, context: "Context", handle: int):
        self._context = context
        self._handle = handle

    def __del__(self) -> None:
        """To leave is the program's to say: the others' operations fail. The context frees it."""

    @property
    def _open(self) -> int:
        self._context._open  # pylint: disable=pointless-statement
        return super()._open

    def _end(self, handle: int) -> int:
        if self._context._handle:
            library.rdma_group_free(handle)
        return 0

    def free(self) -> None:
        """Leave it, as close() does."""
        self.close()

    @property
    def rank(self) -> int:
        return library.rdma_group_rank(self._open)

    @property
    def size(self) -> int:
        return library.rdma_group_size(self._open)

    def lost(self, rank: int) -> bool:
        """Whether that member was lost or has left."""
        return library.rdma_group_lost(self._open, rank) == 1

    def subset(self, ranks: list[int]) -> "Group":
        """A group of these members, in this order. All of them call it."""
        chosen = (ctypes.c_int * len(ranks))(*ranks)
        return self._context._group(library.rdma_group_subset(self._open, chosen, len(ranks)))

    def shrink(self) -> "Group":
        """A group of the survivors. All of them call it."""
        return self._context._group(library.rdma_group_shrink(self._open))

    def _peer(self, rank: int) -> int:
        peer = library.rdma_group_peer(self._open, rank)
        if peer < 0:
            raise ValueError(f"rank {rank} is this program, or is not in the group of {self.size}")
        return peer

    def send(self, rank: int, data: Buffer) -> None:
        self._context.send(self._peer(rank), data)

    def recv(self, rank: int) -> bytes:
        return self._context.recv(self._peer(rank))

    def recv_into(self, rank: int, buffer: Buffer) -> int:
        return self._context.recv_into(self._peer(rank), buffer)

    def barrier(self) -> None:
        _checked(library.rdma_barrier(self._open))

    def bcast(self, data: Buffer, root: int = 0) -> None:
        """Everyone's array becomes the root's."""
        memory = Memory(data, writable=True)
        _checked(library.rdma_bcast(self._open, memory.address, memory.length, root))

    def gather(self, data: Buffer, root: int = 0) -> Any:
        """At the root, all members' arrays in the order of ranks; None elsewhere."""
        address, length, _owner = address_of(data)
        out = _like(data, self.size) if self.rank == root else None
        memory = Memory(out, writable=True) if out is not None else None
        _checked(library.rdma_gather(self._open, address, memory.address if memory else None, length, root))
        return out

    def scatter(self, data: Buffer, part: Buffer, root: int = 0) -> None:
        """``part`` becomes this rank's part of the root's ``data``, which is None elsewhere."""
        memory = Memory(part, writable=True)
        address, length, _owner = address_of(data) if self.rank == root else (0, 0, None)
        if self.rank == root and length != memory.length * self.size:
            raise ValueError(f"{length} bytes are not {self.size} parts of {memory.length}")
        _checked(library.rdma_scatter(self._open, address or None, memory.address, memory.length, root))

    def allgather(self, data: Buffer) -> Any:
        """All members' arrays in the order of ranks."""
        address, length, _owner = address_of(data)
        out = _like(data, self.size)
        _checked(library.rdma_allgather(self._open, address, Memory(out, writable=True).address, length))
        return out

    def reduce(self, data: Buffer, op: int = SUM, root: int = 0) -> Any:
        """At the root, the reduction of all members' arrays, element by element; None elsewhere."""
        kind, count = _type_of(data)
        address, _, _owner = address_of(data)
        out = _like(data) if self.rank == root else None
        memory = Memory(out, writable=True) if out is not None else None
        _checked(library.rdma_reduce(self._open, address, memory.address if memory else None, count, kind, op, root))
        return out

    def allreduce(self, data: Buffer, op: int = SUM) -> Any:
        """The same, at all."""
        kind, count = _type_of(data)
        address, _, _owner = address_of(data)
        out = _like(data)
        _checked(library.rdma_allreduce(self._open, address, Memory(out, writable=True).address, count, kind, op))
        return out

    def allreduce_in_place(self, data: Buffer, op: int = SUM) -> None:
        """The same, to the array itself."""
        kind, count = _type_of(data)
        memory = Memory(data, writable=True)
        _checked(library.rdma_allreduce(self._open, ctypes.c_void_p(-1), memory.address, count, kind, op))

    def alltoall(self, data: Buffer) -> Any:
        """Part i of the array goes to rank i, and part i of the result came from there."""
        address, length, _owner = address_of(data)
        if length % self.size:
            raise ValueError(f"{length} bytes are not {self.size} parts")
        out = _like(data)
        _checked(library.rdma_alltoall(self._open, address, Memory(out, writable=True).address, length // self.size))
        return out


class Context(Handle):
    """A program's place among its peers. Used by one thread at a time."""

    _what = "context"

    def __init__(self, ip: str | None = None, port: int = 0, *, server: bool = False, timeout: float | None = None,
                 connect_timeout: float = 5.0, require_rdma: bool = False, progress_thread: bool = False,
                 max_peers: int = 0, buf_size: int = 0):
        options = d.rdma_options(
            max_peers=max_peers, buf_size=buf_size, require_rdma=require_rdma, progress_thread=progress_thread,
            connect_timeout_ms=math.ceil(connect_timeout * 1000), timeout_ms=0 if timeout is None else math.ceil(timeout * 1000))
        handle = library.rdma_init_options(ip.encode() if ip else None, port, server, options)
        if not handle:
            _raise()
        self._handle = handle

    @classmethod
    def server(cls, ip: str | None = None, port: int = 0, **options: Any) -> "Context":
        """A context that accepts peers, and may connect to others."""
        return cls(ip, port, server=True, **options)

    def _end(self, handle: int) -> int:
        library.rdma_cleanup(handle)
        return 0

    def close(self) -> None:
        """End all that belongs to it. What was sent is delivered first."""
        super().close()

    @property
    def port(self) -> int:
        """That a server listens on; 0: none."""
        return library.rdma_port(self._open)

    def connect(self, host: str, port: int = 0) -> int:
        """Connect to a server. Returns the peer's index."""
        return _checked(library.rdma_connect_peer(self._open, host.encode(), port))

    def accept(self) -> int:
        """Wait for the next client. Returns its index."""
        return _checked(library.rdma_accept_peer(self._open))

    def disconnect(self, peer: int) -> None:
        _checked(library.rdma_disconnect_peer(self._open, peer))

    def transport(self, peer: int) -> str:
        name = library.rdma_transport(self._open, peer)
        if not name:
            _raise()
        return name.decode()

    def send(self, peer: int, data: Buffer) -> None:
        """Returns when the memory may be used again."""
        address, length, _owner = address_of(data)
        if length < 2**31:
            _checked(library.rdma_send(self._open, peer, address, length))
            return
        request = library.rdma_isend(self._open, peer, address, length)
        if not request:
            _raise()
        _checked(library.rdma_wait(request, 2**64 - 1, None))

    def recv(self, peer: int) -> bytes:
        """The next message."""
        data = new_bytes(_checked(library.rdma_probe(self._open, peer, 2**64 - 1)))
        return data[:self.recv_into(peer, (bytes_address(data), len(data)))] if len(data) else self._recv_empty(peer)

    def _recv_empty(self, peer: int) -> bytes:
        _checked(library.rdma_recv(self._open, peer, ctypes.create_string_buffer(1), 1))
        return b""

    def recv_into(self, peer: int, buffer: Buffer) -> int:
        """Returns the message's length. If it is longer than the buffer, the call fails, and the message stays."""
        memory = Memory(buffer, writable=True)
        request = library.rdma_irecv(self._open, peer, memory.address, memory.length)
        if not request:
            _raise()
        result = ctypes.c_int64()
        _checked(library.rdma_wait(request, 2**64 - 1, result))
        return _checked(result.value)

    def probe(self, peer: int, timeout: float | None = 0) -> int | None:
        """How long the next message is; None: none has come."""
        wait = 2**64 - 1 if timeout is None else math.ceil(timeout * 1000)
        length = library.rdma_probe(self._open, peer, wait)
        if length == -1 and library.rdma_get_errno() != 11:
            _raise()
        return None if length == -1 else length

    def broadcast(self, data: Buffer) -> int:
        """Send to all peers at the same time. Returns to how many."""
        address, length, _owner = address_of(data)
        return _checked(library.rdma_broadcast(self._open, address, length))

    def _group(self, handle: int | None) -> Group:
        if not handle:
            _raise()
        return Group(self, handle)

    def group(self) -> Group:
        """Called by a server and all its clients: rank 0 is the server."""
        return self._group(library.rdma_group_create(self._open))

    def meet(self, name: str, size: int, *, rank: int = -1, meeting: str | None = None) -> Group:
        """The ``size`` programs that name the same group at the rdmad ``meeting``."""
        return self._group(library.rdma_group_meet(self._open, meeting.encode() if meeting else None, name.encode(), size, rank))

    def run(self) -> Group:
        """The group of all programs that rdmarun started together."""
        return self._group(library.rdma_group_run(self._open))


__all__ = ["AND", "Context", "Group", "MAX", "MIN", "OR", "PRODUCT", "SUM", "XOR"]
