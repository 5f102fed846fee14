"""The key/value store, for calls that wait."""
from __future__ import annotations

import ctypes
import errno
import itertools
import math
import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Sequence, Tuple, TypeVar

from . import _declarations as d
from ._device import Place, registered, require_cuda, unregistered, value_of
from ._library import Buffer, Key, Memory, address_of, bytes_address, encoded, library, new_bytes, number, raise_last, sentence
from ._requests import (AT_ONCE, CHECKSUM, KEEP, Decode, Meta, Pending, Queue, Requests, Ttl, check_sum, checksum_of, condition_of,
                        microseconds, packed, status_error, vector_of, writable)
from .errors import Conflict, Error, Gone, error_of
from .watch import Watch

T = TypeVar("T")
UnderWay = Tuple["Pending[Any]", Decode, Any]  # what its completion is for, and the objects whose memory it uses
SMALL = 4096  # a value that is longer comes to a buffer of its own
REMEMBERED = 1024  # keys whose long value's length is known



def _quick(name: str) -> Any:
    """A function that takes addresses in place of objects, whose conversion costs a tenth of a call."""
    function = library[name]
    result, arguments = d.FUNCTIONS[name]
    function.restype = result
    function.argtypes = [each if each is ctypes.c_size_t else ctypes.c_void_p for each in arguments]
    return function


_get_into = _quick("kv_get_into")
_put = _quick("kv_put")


@dataclass(frozen=True)
class Info:
    """The server's limits and what it holds; counts are since it started."""

    key_max: int
    eager_max: int
    value_max: int
    keys: int
    bytes_used: int
    bytes_total: int
    hits: int
    misses: int
    evictions: int
    expired: int


def options_of(*, key: str | os.PathLike[str] | None, require_rdma: bool, require_encryption: bool, timeout: float,
               connect_timeout: float, poll: float | None, progress_thread: bool) -> d.rdmad_options:
    """poll: seconds to poll before sleeping; None: as the library likes, 0: not at all, inf: never sleep."""
    options = d.rdmad_options(
        connect_timeout_us=microseconds(connect_timeout), timeout_us=microseconds(timeout) or 2**63, require_rdma=require_rdma,
        require_encryption=require_encryption, progress_thread=progress_thread, no_poll=poll == 0)
    if poll:
        options.poll_us = d.RDMAD_POLL_ALWAYS if math.isinf(poll) else microseconds(poll)
    if key is not None:
        options.key_file = os.fsencode(key)
    return options


#: Of a Store, beside the address.
OPTIONS = ("key", "require_rdma", "require_encryption", "timeout", "connect_timeout", "reconnect", "poll",
           "progress_thread", "miss")


def options_among(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a Store among those of a cache's adapter, which connects again for ever unless it says otherwise."""
    return {"reconnect": math.inf, **{name: config[name] for name in OPTIONS if name in config}}


def open_handle(address: str, options: d.rdmad_options, reconnect: float | None, miss: bool = False) -> int:
    handle = ctypes.c_void_p()
    status = library.kv_open_options(address.encode(), options, None, handle)
    if status == -errno.ENOENT:
        gone = Gone(errno.ENOENT, sentence())
        gone.carried_out = False
        raise gone
    if status:
        raise_last(status)
    assert handle.value
    if reconnect is not None:
        library.kv_keep_connected(handle, 2**64 - 1 if math.isinf(reconnect) else microseconds(reconnect))
    library.kv_cluster_flags(handle, d.KV_CLUSTER_MISS if miss else 0)
    return handle.value


class Registration:
    """Memory that the RDMA device knows, until close() or the end of ``with``: ``length`` bytes at ``address``."""

    def __init__(self, store: "Store", memory: Memory, device: bool = False):
        self._store, self._device, self._ended = store, device, False
        self.address, self.length = memory.address, memory.length
        store._registered[memory.address] = memory  # also without this: the device would go on to use it
        if device:
            registered(self.address, self.length)
            store._of_devices.append((self.address, self.length))

    def __enter__(self) -> "Registration":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unregister. Error with EBUSY: requests use the memory."""
        store = self._store
        with store._lock:
            if store._handle and not self._ended:
                status = library.kv_buffer_unregister(store._handle, self.address)
                if status:
                    raise_last(status)
                self._ended = True
                del store._registered[self.address]
                if self._device:
                    unregistered(self.address, self.length)
                    store._of_devices.remove((self.address, self.length))


class Batch(Requests):
    """Requests that leave together when the ``with`` ends. Each returns a Pending, whose result() is there after it."""

    def __init__(self, store: "Store"):
        self._store = store
        self._requests: list[bytes] = []
        self._pending: dict[int, UnderWay] = {}  # by their tags

    def _request(self, decode: Decode, keep: Any, *fields: int) -> Pending[Any]:
        pending: Pending[Any] = Pending()
        tag = next(self._store._tags)
        self._requests.append(packed(tag, *fields))
        self._pending[tag] = pending, decode, keep
        return pending

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.run()

    def _take(self, queue: Queue, timeout_us: int) -> int:
        """A batch that ended by an exception may have left requests, whose completions come, too."""
        status, completions = queue.done(timeout_us)
        for completion in completions:
            pending, decode, _ = self._store._under_way.pop(completion[0])
            pending._complete(decode, completion)
        return status

    def run(self) -> None:
        """Carry out what was asked for. Only requests fail, and say so by result()."""
        requests, pending = self._requests, self._pending
        self._requests, self._pending = [], {}
        tags, at, first = list(pending), 0, 0  # that are to be submitted from `at` on, and have answers before `first`
        with self._store._lock:
            queue = self._store._queue_of()
            under_way = self._store._under_way
            under_way.update(pending)  # before they are: their memory stays, whatever interrupts this
            while first < len(tags):
                status = queue.submit(requests[at:at + AT_ONCE]) if at < len(requests) else 0
                if status > 0:
                    at += status
                elif status not in (0, -errno.EAGAIN):
                    under_way.pop(tags[at])[0]._fail(error_of(status, sentence()))
                    at += 1
                if status == -errno.EAGAIN or (first < at and not pending[tags[first]][0].done):
                    status = self._take(queue, self._store._timeout_us)
                    if status <= 0:
                        self._give_up(queue, status, tags, at)
                        break
                while first < at and pending[tags[first]][0].done:
                    first += 1

    def _give_up(self, queue: Queue, status: int, tags: Sequence[int], at: int) -> None:
        """No answer came for too long, or the connection has ended."""
        error = error_of(status or -errno.ETIMEDOUT, sentence() or "no answer came for too long")
        under_way = self._store._under_way
        for tag in tags[at:]:
            under_way.pop(tag)[0]._fail(error)
        cancelled = [under_way[tag][0] for tag in tags[:at]
                     if tag in under_way and library.kv_cancel_tag(self._store._handle, tag) > 0]
        while self._take(queue, 0) > 0:
            pass
        for each in cancelled:
            each._fail(error)
        for tag in tags[:at]:
            if tag in under_way:
                under_way[tag][0]._fail(error)


class Store:
    """One connection to an rdmad, or to all of a cluster. Any threads may use it; one at a time is served.

    ``address`` is HOST[:PORT], rdma://HOST[:PORT], tcp://HOST[:PORT] or unix:///PATH; or cluster:ADDRESS,... or
    cluster:/PATH, of a table. Times are in seconds. ``reconnect``: for how long to try to connect again when the connection
    has ended; None: not at all. ``miss``: what a server of a cluster has that cannot be reached is not there.
    """

    def __init__(self, address: str = "127.0.0.1", *, key: str | os.PathLike[str] | None = None, require_rdma: bool = False,
                 require_encryption: bool = False, timeout: float = 30.0, connect_timeout: float = 5.0,
                 reconnect: float | None = None, poll: float | None = None, progress_thread: bool = False, miss: bool = False):
        options = options_of(key=key, require_rdma=require_rdma, require_encryption=require_encryption, timeout=timeout,
                             connect_timeout=connect_timeout, poll=poll, progress_thread=progress_thread)
        self._handle: int | None = None
        self._lock = threading.RLock()
        self._queue: Queue | None = None
        self._tags = itertools.count()
        self._under_way: dict[int, UnderWay] = {}  # requests of batches
        self._registered: dict[int, Memory] = {}
        self._of_devices: list[tuple[int, int]] = []  # registrations among these
        self._timeout_us: int = options.timeout_us
        self._space = bytearray(SMALL)
        self._view = memoryview(self._space)
        self._space_at = ctypes.addressof((ctypes.c_char * SMALL).from_buffer(self._space))
        self._length = ctypes.c_size_t()
        self._length_at = ctypes.addressof(self._length)
        self._version = ctypes.c_uint64()
        self._version_at = ctypes.addressof(self._version)
        self._large: dict[bytes, int] = {}
        self._address, self._opening = address, (address, options, reconnect, miss)
        self._handle = open_handle(*self._opening)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def __repr__(self) -> str:
        return f"<rdmad.Store {self._address} {self.transport if self._handle else 'closed'}>"

    def close(self) -> None:
        """End the connection. It may be called again."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle:
                self._queue = None
                library.kv_close(handle)
                self._under_way.clear()
                self._registered.clear()
                while self._of_devices:
                    unregistered(*self._of_devices.pop())

    def _queue_of(self) -> Queue:
        if not self._handle:
            raise ValueError("the store is closed")
        if not self._queue:
            self._queue = Queue(self._handle)
        return self._queue

    # Reading

    def get(self, key: Key, default: Any = None) -> Any:
        """The value, as bytes; or ``default`` if the key is missing."""
        if type(key) is not bytes:
            key = encoded(key)
        with self._lock:
            if self._large and key in self._large:
                status, value = self._get_large(key, self._large[key])
                return default if status else value
            status = _get_into(self._handle, key, len(key), self._space_at, SMALL, self._length_at)
            if status == 0:
                return self._view[:self._length.value].tobytes()
            if status == -errno.EMSGSIZE:
                status, value = self._get_large(key, self._length.value)
                return default if status else value
            if status == -errno.ENOENT:
                return default
            raise_last(status)

    def _get_large(self, key: bytes, length: int) -> tuple[int, bytes]:
        """(0, the value), or (-ENOENT, nothing). `length` is how long it was just now."""
        while True:
            value = new_bytes(length)
            status = _get_into(self._handle, key, len(key), bytes_address(value), length, self._length_at)
            if status == -errno.EMSGSIZE and self._length.value > length:
                length = self._length.value
                continue
            if status == -errno.ENOENT:
                self._large.pop(key, None)
                return status, b""
            if status:
                raise_last(status)
            if self._length.value <= SMALL:
                self._large.pop(key, None)
            elif key in self._large or len(self._large) < REMEMBERED:
                self._large[key] = self._length.value
            else:
                self._large.clear()
            return 0, value if self._length.value == length else value[:self._length.value]

    def get_version(self, key: Key) -> tuple[bytes, int] | None:
        """(value, version), for set(if_version=...); None: no such key."""
        name = encoded(key)
        value = ctypes.c_void_p()
        with self._lock:
            status = library.kv_get_version(self._handle, name, len(name), value, self._length, self._version)
            return self._taken(status, value, self._version.value)

    def _taken(self, status: int, value: ctypes.c_void_p, *more: int) -> Any:
        """A value of the library's memory, which is given back, and what comes with it."""
        if status == -errno.ENOENT:
            return None
        if status:
            raise_last(status)
        copy = ctypes.string_at(value, self._length.value) if value else b""
        library.kv_release(value)
        return (copy, *more) if more else copy

    def stat(self, key: Key) -> Meta | None:
        """Length, version and seconds left, without the value."""
        name, meta = encoded(key), d.kv_meta()
        with self._lock:
            status = library.kv_stat(self._handle, name, len(name), meta)
            if status == -errno.ENOENT:
                return None
            if status:
                raise_last(status)
        return Meta(meta.length, meta.version, meta.ttl_us / 1e6 if meta.ttl_us else None)

    def get_into(self, key: Key, buffer: Buffer, *, offset: int = 0) -> int | None:
        """Put the value, from ``offset`` on, into the buffer. Returns how many bytes; None: no such key. NoSpace: it is longer
        than the buffer."""
        name, memory = encoded(key), Place(buffer, writable=True)
        what = d.kv_fetch(offset=number("an offset", offset), length=2**64 - 1)
        with self._lock:
            status = library.kv_fetch(self._handle, name, len(name), what, memory.address, memory.length, self._length, None)
            if status == -errno.ENOENT:
                return None
            if status:
                raise_last(status)
            return self._length.value

    def get_range(self, key: Key, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset`` on; None: no such key."""
        name = encoded(key)
        number("an offset", offset)
        number("a length", length, 0, 2**63 - 1)
        with self._lock:
            # The value may be much shorter than what is asked for.
            if length > SMALL:
                meta = self.stat(name)
                if meta is None:
                    return None
                length = min(length, max(0, meta.length - offset))
            part = new_bytes(length)
            status = library.kv_get_range(self._handle, name, len(name), offset, bytes_address(part), length, self._length)
            if status == -errno.ENOENT:
                return None
            if status:
                raise_last(status)
            return part if self._length.value == length else part[:self._length.value]

    def get_delete(self, key: Key) -> bytes | None:
        """The value of a key that is deleted in the same step; None: no such key."""
        name, value = encoded(key), ctypes.c_void_p()
        with self._lock:
            return self._taken(library.kv_get_delete(self._handle, name, len(name), value, self._length), value)

    def get_touch(self, key: Key, ttl: Ttl) -> bytes | None:
        """The value of a key that gets another time to live in the same step; None: no such key."""
        name, value = encoded(key), ctypes.c_void_p()
        with self._lock:
            return self._taken(
                library.kv_get_touch(self._handle, name, len(name), microseconds(ttl), value, self._length), value)

    def get_set(self, key: Key, value: Buffer) -> bytes | None:
        """Set, and return what was there before; None: nothing."""
        name, old = encoded(key), ctypes.c_void_p()
        address, length, _owner = value_of(value)
        with self._lock:
            status = library.kv_get_set(self._handle, name, len(name), address, length, old, self._length)
            if status == 0 and not old:
                return None
            return self._taken(status, old)

    # Writing

    def set(self, key: Key, value: Buffer, *, ttl: Ttl = None, keep_ttl: bool = False, durable: bool = False,
            if_absent: bool = False, if_present: bool = False, if_version: int | None = None) -> int:
        """Store, and return the version. Conflict: the condition did not hold. ``durable``: return when the value is on the
        server's disk."""
        if type(key) is not bytes:
            key = encoded(key)
        if type(value) is bytes:
            address: Any = value
            length = len(value)
        else:
            address, length, _owner = value_of(value)
        options = None
        if ttl is not None or keep_ttl or durable or if_absent or if_present or if_version is not None:
            options = d.kv_put_options(condition_of(if_absent, if_present, if_version, durable), if_version or 0,
                                       KEEP if keep_ttl else microseconds(ttl))
        with self._lock:
            status = _put(self._handle, key, len(key), address, length, options and ctypes.addressof(options),
                          self._version_at)
            if status == 0:
                return self._version.value
            if status == -errno.ENOENT:
                raise Conflict(errno.ENOENT, sentence())
            raise_last(status)

    def delete(self, key: Key, *, if_version: int | None = None) -> bool:
        """True: it was deleted; False: no such key. Conflict: it has another version."""
        name = encoded(key)
        with self._lock:
            if if_version is None:
                return self._count(library.kv_delete(self._handle, name, len(name))) > 0
            return self._count(library.kv_delete_if(self._handle, name, len(name), if_version)) > 0

    @staticmethod
    def _count(status: int) -> int:
        if status < 0:
            raise_last(status)
        return status

    def exists(self, key: Key) -> bool:
        name = encoded(key)
        with self._lock:
            return self._count(library.kv_exists(self._handle, name, len(name))) > 0

    def expire(self, key: Key, ttl: Ttl) -> bool:
        """Give a key another time to live, None for ever. False: no such key."""
        name = encoded(key)
        with self._lock:
            return self._count(library.kv_expire(self._handle, name, len(name), microseconds(ttl))) > 0

    def incr(self, key: Key, by: int = 1, *, ttl: Ttl = None) -> int:
        """Add to a value that is a decimal number, and return the sum. ``ttl`` is for a number that was missing."""
        name, total = encoded(key), ctypes.c_int64()
        number("what is added", by, -2**63, 2**63 - 1)
        with self._lock:
            self._count(library.kv_count(self._handle, name, len(name), by, microseconds(ttl), total, None))
        return total.value

    def append(self, key: Key, data: Buffer) -> int:
        """Write behind the value's end, and return how long it is then."""
        name = encoded(key)
        address, length, _owner = address_of(data)
        with self._lock:
            self._count(library.kv_append(self._handle, name, len(name), address, length, self._version))
            return self._version.value

    def set_range(self, key: Key, offset: int, data: Buffer) -> int:
        """Write into the value, and return how long it is then."""
        name = encoded(key)
        number("an offset", offset)
        address, length, _owner = address_of(data)
        with self._lock:
            self._count(library.kv_set_range(self._handle, name, len(name), offset, address, length, self._version))
            return self._version.value

    def __getitem__(self, key: Key) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Buffer) -> None:
        self.set(key, value)

    def __delitem__(self, key: Key) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: Key) -> bool:
        return self.exists(key)

    # Pieces

    def put_pieces(self, key: Key, pieces: Sequence[Buffer], *, ttl: Ttl = None, checksum: bool = False) -> int:
        """Store a value that lies in several pieces, and return its version. ``checksum``: with one behind it."""
        name = encoded(key)
        memories = [value_of(piece) for piece in pieces]
        if checksum:
            memories.append(address_of(checksum_of(memories)))
        vector = vector_of(memories)
        options = d.kv_put_options(d.KV_ALWAYS, 0, microseconds(ttl))
        with self._lock:
            self._count(library.kv_putv(self._handle, name, len(name), ctypes.addressof(vector), len(memories), options,
                                        self._version))
            return self._version.value

    def get_pieces(self, key: Key, pieces: Sequence[Buffer], *, checksum: bool = False) -> int | None:
        """Fill the pieces one after the other. Returns the value's length; None: no such key. ``checksum``: it was
        stored with one, which is compared; Corrupt: it is wrong, or the value is not as long as the pieces."""
        name = encoded(key)
        memories = [writable(piece) for piece in pieces]
        stored = bytearray(CHECKSUM if checksum else 0)
        ranges = [*memories, writable(stored)] if checksum else memories
        vector = vector_of(ranges)
        with self._lock:
            status = library.kv_fetchv(self._handle, name, len(name), None, ctypes.addressof(vector), len(ranges),
                                       self._length, None)
            if status == -errno.ENOENT:
                return None
            self._count(status)
            length = self._length.value
        return check_sum(length, memories, stored) if checksum else length

    # Many keys

    def batch(self) -> Batch:
        """``with store.batch() as b: f = b.get(key)`` sends all together; f.result() is there behind the ``with``."""
        return Batch(self)

    def get_many(self, keys: Sequence[Key]) -> list[bytes | None]:
        batch = self.batch()
        pending = [batch.get(key) for key in keys]
        batch.run()
        return [each.result() for each in pending]

    @staticmethod
    def _items(keys: Sequence[bytes]) -> Any:
        items = (d.kv_item * max(1, len(keys)))()
        for item, key in zip(items, keys):
            item.key, item.key_len = bytes_address(key), len(key)
        return items

    def set_many(self, items: Mapping[Key, Buffer] | Iterable[tuple[Key, Buffer]], *, ttl: Ttl = None) -> None:
        """Set all. Error of the first that failed; the others are set."""
        pairs = list(items.items() if isinstance(items, Mapping) else items)
        keys = [encoded(key) for key, _ in pairs]
        memories = [value_of(value) for _, value in pairs]
        array = self._items(keys)
        for item, (address, length, _) in zip(array, memories):
            item.value, item.value_len = address, length
        options = d.kv_put_options(d.KV_ALWAYS, 0, microseconds(ttl)) if ttl is not None else None
        with self._lock:
            self._count(library.kv_mset(self._handle, array, len(pairs), options))

    def get_many_into(self, keys: Sequence[Key], buffers: Sequence[Buffer]) -> list[int | None]:
        """Put the values into the buffers. Returns the length of each; None: no such key. NoSpace: one is longer than its
        buffer."""
        status, places = self._fill(keys, buffers)
        if status:
            raise_last(status)
        return [place.value_len if place.status == 0 else None for place in places[:len(keys)]]

    def get_exactly(self, keys: Sequence[Key], buffers: Sequence[Buffer]) -> list[bool]:
        """The same, for caches: whether each value is there and as long as its buffer."""
        status, places = self._fill(keys, buffers)
        if status and status != -errno.EMSGSIZE:
            raise_last(status)
        return [place.status == 0 and place.value_len == place.size for place in places[:len(keys)]]

    def _fill(self, keys: Sequence[Key], buffers: Sequence[Buffer]) -> tuple[int, Any]:
        if len(keys) != len(buffers):
            raise ValueError(f"{len(keys)} keys for {len(buffers)} buffers")
        names = [encoded(key) for key in keys]
        memories = [Place(buffer, writable=True) for buffer in buffers]
        places = (d.kv_place * max(1, len(names)))()
        for place, name, memory in zip(places, names, memories):
            place.key, place.key_len = bytes_address(name), len(name)
            place.buffer, place.size = memory.address, memory.length
        with self._lock:
            return library.kv_mget_into(self._handle, places, len(names)), places

    def _exists(self, keys: Sequence[Key], stop: bool) -> tuple[int, Any]:
        names = [encoded(key) for key in keys]
        items = self._items(names)
        with self._lock:
            return self._count(library.kv_mexists(self._handle, items, len(names), stop)), items

    def exists_many(self, keys: Sequence[Key]) -> list[bool]:
        _, items = self._exists(keys, False)
        return [item.status == 0 for item in items[:len(keys)]]

    def prefix_length(self, keys: Sequence[Key]) -> int:
        """How many of the keys come before the first missing one."""
        return self._exists(keys, True)[0]

    def lease(self, keys: Sequence[Key], seconds: float) -> list[bool]:
        """Which keys are there; their values are not evicted for that long, as far as the server's limits go."""
        names = [encoded(key) for key in keys]
        items = self._items(names)
        with self._lock:
            self._count(library.kv_mlease(self._handle, items, len(names), microseconds(seconds), self._length))
        return [item.status == 0 for item in items[:len(names)]]

    def release(self, keys: Sequence[Key]) -> None:
        """End the leases that the keys have."""
        names = [encoded(key) for key in keys]
        with self._lock:
            self._count(library.kv_mrelease(self._handle, self._items(names), len(names)))

    def delete_many(self, keys: Sequence[Key]) -> int:
        """Returns how many there were."""
        batch = self.batch()
        pending = [batch.delete(key) for key in keys]
        batch.run()
        return sum(each.result() for each in pending)

    def delete_prefix(self, prefix: Key) -> int:
        """Delete the keys that begin so, and return how many."""
        name, deleted = encoded(prefix), ctypes.c_uint64()
        with self._lock:
            self._count(library.kv_delete_prefix(self._handle, name, len(name), deleted))
        return deleted.value

    def scan(self, prefix: Key = b"") -> Iterator[tuple[bytes, Meta]]:
        """The keys that begin so. One that is there all the time comes at least once."""
        cursor = 0
        while True:
            cursor, page = self.scan_page(cursor, prefix)
            yield from page
            if not cursor:
                return

    def scan_page(self, cursor: int = 0, prefix: Key = b"", limit: int = 0) -> tuple[int, list[tuple[bytes, Meta]]]:
        """One page of a scan, of up to ``limit`` keys, and the cursor of the next; 0 begins, and is behind the last page."""
        name, at, page = encoded(prefix), ctypes.c_uint64(number("a cursor", cursor)), []
        number("a limit", limit, 0, 2**32 - 1)

        def each(_: Any, key: int, key_len: int, meta: Any) -> int:
            found = meta.contents
            page.append((ctypes.string_at(key, key_len),
                         Meta(found.length, found.version, found.ttl_us / 1e6 if found.ttl_us else None)))
            return 0

        with self._lock:
            self._count(library.kv_scan(self._handle, at, name, len(name), limit, d.kv_scan_callback(each), None))
        return at.value, page

    def keys(self, prefix: Key = b"") -> Iterator[bytes]:
        for key, _ in self.scan(prefix):
            yield key

    def watch(self, prefix: Key = b"", kinds: Iterable[str] | None = None) -> Watch:
        """Changes of the keys that begin so, by whatever client, as they come. kinds: some of "stored", "deleted",
        "expired", "evicted" and "ttl"; None: all."""
        return Watch(open_handle(*self._opening), prefix, kinds)

    # Memory

    def register(self, buffer: Buffer) -> Registration:
        """Let the RDMA device know memory that is used again and again, until the registration is closed. An array of CUDA, as
        a tensor of torch, may be used as a value then, and parts of it; Error with EOPNOTSUPP: it cannot be registered."""
        memory = Place(buffer, writable=True, register=True)
        if memory.device:
            require_cuda()
        with self._lock:
            self._count(library.kv_buffer_register(self._handle, memory.address, memory.length))
            return Registration(self, memory, memory.device is not None)

    def register_dmabuf(self, descriptor: int, length: int, *, offset: int = 0, address: int = 0) -> Registration:
        """The same of a device's memory that any driver gave out as a dmabuf; the descriptor stays the caller's. (address,
        length) are values then, from the registration's ``address`` on, which is ``address`` unless that is 0."""
        number("a descriptor", descriptor, 0, 2**31 - 1)
        at = ctypes.c_void_p(address or None)
        with self._lock:
            self._count(library.kv_buffer_register_dmabuf(self._handle, descriptor, number("an offset", offset),
                                                          number("a length", length), at))
            return Registration(self, Memory((at.value, length)), True)

    def lend(self, size: int) -> memoryview:
        """Registered memory of the library, which goes back when nothing refers to it any more."""
        buffer = ctypes.c_void_p()
        number("a size", size)
        with self._lock:
            self._count(library.kv_buffer_lend(self._handle, size, buffer))
        array = (ctypes.c_ubyte * size).from_address(buffer.value or 0)
        weakref.finalize(array, self._give_back, buffer.value or 0)
        return memoryview(array).cast("B")

    def _give_back(self, buffer: int) -> None:
        with self._lock:
            library.kv_release(buffer)

    # The connection

    @property
    def transport(self) -> str:
        """How bytes go: "rdma", "tcp", "tls", "unix" or "shm"."""
        return library.kv_transport(self._handle).decode()

    def info(self) -> Info:
        found = d.kv_info()
        with self._lock:
            self._count(library.kv_info(self._handle, found))
        return Info(**{name: getattr(found, name) for name, _ in d.kv_info._fields_})

    def fileno(self) -> int:
        """A descriptor that is readable when the library has something to do."""
        return self._count(library.kv_fd(self._handle))

    def reopen(self) -> None:
        """Connect again, to the same server."""
        with self._lock:
            self._count(library.kv_reopen(self._handle))


__all__ = ["Batch", "Error", "Info", "Meta", "Pending", "Registration", "Store", "status_error"]
