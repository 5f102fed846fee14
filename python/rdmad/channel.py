"""Two rings of bytes between two programs, one for each direction. See rdmad_channel(3)."""
from __future__ import annotations

import ctypes
import errno
import math
from dataclasses import dataclass
from typing import Any

from . import _declarations as d
from ._library import Buffer, Handle, Memory, address_of, bytes_address, library, new_bytes, raise_last
from .store import options_of


@dataclass(frozen=True)
class ChannelInfo:
    """What there is of a channel; counts are of this end."""

    capacity: int
    bytes_put: int
    bytes_got: int
    flushes: int
    sleeps: int
    transport: str
    peer: str
    relayed: bool
    memory: bool
    sockets: bool


@dataclass(frozen=True)
class ChannelName:
    """A name that a program listens on at an rdmad."""

    name: bytes
    capacity: int
    clients: int


def _wait_us(timeout: float | None) -> int:
    """Seconds that a call may wait; None: for ever, 0: not at all."""
    return d.RDMAD_CHANNEL_FOREVER if timeout is None or math.isinf(timeout) else max(0, round(timeout * 1e6))


def _options(connect_timeout: float, require_rdma: bool, poll: float | None, device: str | None) -> d.rdmad_channel_options:
    common = options_of(key=None, require_rdma=require_rdma, require_encryption=False, timeout=30.0,
                        connect_timeout=connect_timeout, poll=poll, progress_thread=False)
    return d.rdmad_channel_options(common=common, device=device.encode() if device else None)


def _checked(status: int) -> int:
    if status < 0:
        raise_last(status)
    return status


class Channel(Handle):
    """One end of a channel, by open() or Listener.accept(). One thread may put while another gets."""

    _what = "channel"

    def __init__(self, handle: int):
        self._handle = handle

    def _end(self, handle: int) -> int:
        return library.rdmad_channel_close(handle)

    def close(self) -> None:
        """Flush, tell the other end, and end this one. An error: what was put may not have arrived."""
        super().close()

    def put(self, data: Buffer, timeout: float | None = None) -> None:
        """Put all of it. TimeoutError: nothing was put, if it has up to half of the capacity."""
        address, length, _owner = address_of(data)
        _checked(library.rdmad_channel_put(self._open, address, length, _wait_us(timeout)))

    def try_put(self, data: Buffer) -> bool:
        """Put all of it without waiting, or nothing."""
        address, length, _owner = address_of(data)
        status = library.rdmad_channel_try_put(self._open, address, length)
        return status != -errno.ENOSPC and _checked(status) == 0

    def flush(self, timeout: float | None = None) -> None:
        """Send what was put."""
        _checked(library.rdmad_channel_flush(self._open, _wait_us(timeout)))

    def get(self, count: int, timeout: float | None = None) -> bytes:
        """Exactly ``count`` bytes."""
        data = new_bytes(count)
        _checked(library.rdmad_channel_get(self._open, bytes_address(data), count, _wait_us(timeout)))
        return data

    def get_into(self, buffer: Buffer, timeout: float | None = None) -> None:
        """Fill the buffer."""
        memory = Memory(buffer, writable=True)
        _checked(library.rdmad_channel_get(self._open, memory.address, memory.length, _wait_us(timeout)))

    def try_get(self, count: int) -> bytes:
        """What there is, up to ``count`` bytes, without waiting."""
        data = new_bytes(min(count, self.available()))
        got = _checked(library.rdmad_channel_try_get(self._open, bytes_address(data), len(data)))
        return data if got == len(data) else data[:got]

    def peek(self, count: int) -> bytes:
        """Likewise, and leave it in the ring."""
        data = new_bytes(min(count, self.available()))
        got = _checked(library.rdmad_channel_peek(self._open, bytes_address(data), len(data)))
        return data if got == len(data) else data[:got]

    def available(self) -> int:
        """Bytes that can be got without waiting."""
        return library.rdmad_channel_available(self._open)

    def room(self) -> int:
        """Bytes that can be put without waiting."""
        return library.rdmad_channel_room(self._open)

    def info(self) -> ChannelInfo:
        found = d.rdmad_channel_info()
        library.rdmad_channel_info(self._open, found)
        values: dict[str, Any] = {name: getattr(found, name) for name, _ in d.rdmad_channel_info._fields_}
        for name in ("transport", "peer"):
            values[name] = values[name].decode(errors="replace")
        return ChannelInfo(**values)

    def fileno(self) -> int:
        """A descriptor for a loop of the program's own; arm() before each sleep."""
        return _checked(library.rdmad_channel_fd(self._open))

    def arm(self) -> bool:
        """True: there is something now, do not sleep."""
        return _checked(library.rdmad_channel_arm(self._open)) > 0

    def progress(self) -> None:
        """Send and receive without waiting."""
        _checked(library.rdmad_channel_progress(self._open))


class Listener(Handle):
    """The server of a channel's name."""

    _what = "listener"

    def __init__(self, url: str, size: int, *, require_rdma: bool = False, poll: float | None = None,
                 device: str | None = None):
        handle = ctypes.c_void_p()
        _checked(library.rdmad_channel_listen(url.encode(), size, _options(5.0, require_rdma, poll, device), handle))
        self._handle = handle.value

    def _end(self, handle: int) -> int:
        library.rdmad_channel_listener_close(handle)
        return 0

    def accept(self, timeout: float | None = None) -> Channel:
        """Wait for the next client. TimeoutError: none came."""
        handle = ctypes.c_void_p()
        _checked(library.rdmad_channel_accept(self._open, _wait_us(timeout), handle))
        return Channel(handle.value or 0)

    @property
    def url(self) -> str:
        """With the port that was taken if 0 was asked for."""
        return library.rdmad_channel_listener_url(self._open).decode()

    def fileno(self) -> int:
        """A descriptor that is readable when accept(0) may have a client."""
        return _checked(library.rdmad_channel_listener_fd(self._open))


def open(url: str, size: int, *, connect_timeout: float = 5.0, require_rdma: bool = False,  # pylint: disable=redefined-builtin
         poll: float | None = None, device: str | None = None) -> Channel:
    """Be a client. ``size`` is the capacity of each ring, and the same at both ends."""
    handle = ctypes.c_void_p()
    _checked(library.rdmad_channel_open(url.encode(), size, _options(connect_timeout, require_rdma, poll, device), handle))
    return Channel(handle.value or 0)


def names(server: str = "127.0.0.1") -> list[ChannelName]:
    """What programs listen on at an rdmad."""
    found: list[ChannelName] = []

    def each(_: Any, entry: Any) -> int:
        found.append(ChannelName(entry.contents.name, entry.contents.capacity, entry.contents.clients))
        return 0

    _checked(library.rdmad_channel_list(server.encode(), None, d.rdmad_channel_each(each), None,
                                        ctypes.create_string_buffer(8)))
    return found


__all__ = ["Channel", "ChannelInfo", "ChannelName", "Listener", "names", "open"]
