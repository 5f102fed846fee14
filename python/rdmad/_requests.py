"""Requests and completions by the array: what Batch and AsyncStore have in common."""
from __future__ import annotations

import ctypes
import errno
import math
import struct
from datetime import timedelta
from typing import Any, Callable, Generic, NamedTuple, Sequence, TypeVar, Union

from . import _declarations as d
from ._device import Place, value_of
from ._library import Buffer, Key, address_of, encoded, library, raise_last, sentence
from .errors import Conflict, Corrupt, error_of

REQUEST = struct.Struct("QiiPNPNNQQQQqi4x")
COMPLETION = struct.Struct("QiIPQQQQqB7x")
if REQUEST.size != ctypes.sizeof(d.kv_request) or COMPLETION.size != ctypes.sizeof(d.kv_completion):
    raise ImportError("requests have another layout than _declarations.py says")

AT_ONCE = 256  # requests or completions of one call
KEEP = d.KV_TTL_KEEP
Ttl = Union[float, timedelta, None]
T = TypeVar("T")


class Meta(NamedTuple):
    """What a key has, without its value."""

    length: int
    version: int
    ttl: float | None  # seconds that are left; None: it does not expire


def microseconds(ttl: Ttl) -> int:
    """A time to live as the library takes it. None: for ever, which is 0 there."""
    if ttl is None:
        return 0
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if not seconds > 0:
        raise ValueError(f"a time to live is more than 0 seconds, not {seconds}")
    return 0 if math.isinf(seconds) else max(1, min(round(seconds * 1e6), KEEP - 1))


def condition_of(if_absent: bool, if_present: bool, if_version: int | None, durable: bool) -> int:
    if if_absent + if_present + (if_version is not None) > 1:
        raise ValueError("if_absent, if_present and if_version exclude one another")
    condition = (d.KV_IF_ABSENT if if_absent else d.KV_IF_PRESENT if if_present else
                 d.KV_ALWAYS if if_version is None else d.KV_IF_VERSION)
    return condition | (d.KV_DURABLE if durable else 0)


def status_error(status: int) -> Exception:
    return error_of(status, library.kv_status_text(status).decode())


# A completion: (tag, status, flags, value, length, whole length, version, ttl, number, type)
Completion = Sequence[Any]
Decode = Callable[[Completion], Any]


def _checked(c: Completion) -> Completion:
    if c[1]:
        raise status_error(c[1])
    return c


def _value(c: Completion) -> bytes | None:
    if c[1] == -errno.ENOENT:
        return None
    _checked(c)
    return ctypes.string_at(c[3], c[4]) if c[3] else b""


def _value_and_version(c: Completion) -> tuple[bytes, int] | None:
    value = _value(c)
    return None if value is None else (value, c[6])


def _length(c: Completion) -> int | None:
    return None if c[1] == -errno.ENOENT else _checked(c)[4]


def _found(c: Completion) -> bool:
    return c[1] != -errno.ENOENT and _checked(c) is c


def _meta(c: Completion) -> Meta | None:
    if c[1] == -errno.ENOENT:
        return None
    _checked(c)
    return Meta(c[5], c[6], c[7] / 1e6 if c[7] else None)


def _version(c: Completion) -> int:
    return _checked(c)[6]


def _stored(c: Completion) -> int:
    """The version of what was set under a condition. That a key is missing is its failure, too."""
    if c[1] == -errno.ENOENT:
        raise Conflict(errno.ENOENT, library.kv_status_text(c[1]).decode())
    return _checked(c)[6]


def _number(c: Completion) -> int:
    return _checked(c)[8]


def _whole(c: Completion) -> int:
    return _checked(c)[5]


def writable(buffer: Buffer) -> tuple[int, int, Any]:
    """As value_of(), of memory that is filled."""
    memory = Place(buffer, writable=True)
    return memory.address, memory.length, memory


def vector_of(memories: Sequence[tuple[int, int, Any]]) -> Any:
    """An array of struct iovec."""
    vector = (d.iovec * max(1, len(memories)))()
    for at, (address, length, _) in enumerate(memories):
        vector[at].iov_base, vector[at].iov_len = address, length
    return vector


def packed(tag: int, *fields: int) -> bytes:
    """A struct kv_request. ValueError: a number has no room there."""
    try:
        return REQUEST.pack(tag, *fields)
    except struct.error as error:
        raise ValueError(f"a number of a request: {error}") from None


CHECKSUM = 8  # bytes behind the others


def checksum_of(memories: Sequence[tuple[int, int, Any]]) -> bytes:
    """Of all their bytes, as it is stored behind them."""
    vector = vector_of(memories)
    checksum = int(library.kv_checksum(ctypes.addressof(vector), len(memories)))
    if checksum == 0 and sentence():
        raise_last(-errno.EFAULT)
    return checksum.to_bytes(CHECKSUM, "little")


def check_sum(length: int, memories: Sequence[tuple[int, int, Any]], checksum: bytes | bytearray) -> int:
    """How many bytes were read, without the checksum, which has to be right."""
    expected = sum(memory[1] for memory in memories)
    if length != expected + CHECKSUM:
        raise Corrupt(errno.EBADMSG, f"the value has {length} bytes in place of {expected} and a checksum")
    if checksum_of(memories) != checksum:
        raise Corrupt(errno.EBADMSG, "the value has another checksum than it was stored with")
    return expected


class Requests:
    """The operations, each of which is one request; _request() says what becomes of it."""

    def _request(self, decode: Decode, keep: Any, *fields: int) -> Any:
        """A request: what its completion means, the objects whose memory it uses, and its members behind the tag."""
        raise NotImplementedError

    def _of_key(self, decode: Decode, op: int, key: Key, value: Buffer = None, condition: int = 0, version: int = 0,
                ttl: int = 0, offset: int = 0, length: int = 0, delta: int = 0, then: int = 0) -> Any:
        name = encoded(key)
        address, size, owner = (0, 0, None) if value is None else value_of(value)
        return self._request(decode, (name, owner), op, condition, address_of(name)[0], len(name), address, size, 0,
                             version, ttl, offset, length, delta, then)

    def get(self, key: Key, default: Any = None) -> Any:
        if default is None:
            return self._of_key(_value, d.KV_OP_GET, key)
        return self._of_key(lambda c: default if c[1] == -errno.ENOENT else _value(c), d.KV_OP_GET, key)

    def get_version(self, key: Key) -> Any:
        return self._of_key(_value_and_version, d.KV_OP_GET, key)

    def get_into(self, key: Key, buffer: Buffer, *, offset: int = 0) -> Any:
        memory = Place(buffer, writable=True)
        name = encoded(key)
        return self._request(_length, (name, memory), d.KV_OP_GET, 0, address_of(name)[0], len(name), memory.address,
                             memory.length, 0, 0, 0, offset, 0, 0, 0)

    def set(self, key: Key, value: Buffer, *, ttl: Ttl = None, keep_ttl: bool = False, durable: bool = False,
            if_absent: bool = False, if_present: bool = False, if_version: int | None = None) -> Any:
        condition = condition_of(if_absent, if_present, if_version, durable)
        return self._of_key(_stored if condition & ~d.KV_DURABLE else _version, d.KV_OP_SET, key, value, condition,
                            if_version or 0, KEEP if keep_ttl else microseconds(ttl))

    def _of_pieces(self, decode: Decode, op: int, key: Key, memories: Sequence[tuple[int, int, Any]], ttl: int = 0) -> Any:
        name, vector = encoded(key), vector_of(memories)
        return self._request(decode, (name, vector, memories), op, 0, address_of(name)[0], len(name), ctypes.addressof(vector), 0,
                             len(memories), 0, ttl, 0, 0, 0, 0)

    def put_pieces(self, key: Key, pieces: Sequence[Buffer], *, ttl: Ttl = None, checksum: bool = False) -> Any:
        memories = [value_of(piece) for piece in pieces]
        if checksum:
            memories.append(address_of(checksum_of(memories)))
        if not memories:
            return self.set(key, b"", ttl=ttl)
        return self._of_pieces(_version, d.KV_OP_SET, key, memories, microseconds(ttl))

    def get_pieces(self, key: Key, pieces: Sequence[Buffer], *, checksum: bool = False) -> Any:
        memories = [writable(piece) for piece in pieces]
        if not memories:
            raise ValueError("there are no pieces to fill")
        if not checksum:
            return self._of_pieces(_length, d.KV_OP_GET, key, memories)
        stored = bytearray(CHECKSUM)

        def decode(c: Completion) -> int | None:
            length = _length(c)
            return None if length is None else check_sum(length, memories, stored)

        return self._of_pieces(decode, d.KV_OP_GET, key, [*memories, writable(stored)])

    def delete(self, key: Key, *, if_version: int | None = None) -> Any:
        if if_version == 0:  # it would be deleted whatever its version is
            raise error_of(-errno.EINVAL, "no key has the version 0")
        return self._of_key(_found, d.KV_OP_DELETE, key, version=if_version or 0)

    def exists(self, key: Key) -> Any:
        return self._of_key(_found, d.KV_OP_STAT, key)

    def stat(self, key: Key) -> Any:
        return self._of_key(_meta, d.KV_OP_STAT, key)

    def expire(self, key: Key, ttl: Ttl) -> Any:
        return self._of_key(_found, d.KV_OP_EXPIRE, key, ttl=microseconds(ttl))

    def incr(self, key: Key, by: int = 1, *, ttl: Ttl = None) -> Any:
        return self._of_key(_number, d.KV_OP_COUNT, key, delta=by, ttl=microseconds(ttl))

    def append(self, key: Key, data: Buffer) -> Any:
        return self._of_key(_whole, d.KV_OP_APPEND, key, data)

    def set_range(self, key: Key, offset: int, data: Buffer) -> Any:
        return self._of_key(_whole, d.KV_OP_SET_RANGE, key, data, offset=offset)


class Queue:
    """A handle's kv_submit() and kv_done(). Used by one thread at a time."""

    def __init__(self, handle: int):
        self._handle = handle
        self._requests = bytearray(AT_ONCE * REQUEST.size)
        self._request_array = (d.kv_request * AT_ONCE).from_buffer(self._requests)
        self._completions = bytearray(AT_ONCE * COMPLETION.size)
        self._completion_array = (d.kv_completion * AT_ONCE).from_buffer(self._completions)

    def submit(self, requests: Sequence[bytes]) -> int:
        """Submit the first ones, as many as there is room for, or why not even one."""
        count = min(len(requests), AT_ONCE)
        self._requests[:count * REQUEST.size] = b"".join(requests[:count])
        return library.kv_submit(self._handle, self._request_array, count)

    def done(self, timeout_us: int) -> tuple[int, Sequence[Completion]]:
        """Completions, or why there are none. Their values stay until the next call."""
        count = library.kv_done(self._handle, self._completion_array, AT_ONCE, timeout_us)
        if count <= 0:
            return count, ()
        return count, [COMPLETION.unpack_from(self._completions, at * COMPLETION.size) for at in range(count)]


class Pending(Generic[T]):
    """What a request of a batch brings, once the batch has ended."""

    __slots__ = ("_value", "_error", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: Any = None
        self._error: Exception | None = None

    def result(self) -> T:
        if not self.done:
            raise RuntimeError("the batch has not ended yet")
        if self._error is not None:
            raise self._error
        return self._value

    def _complete(self, decode: Decode, completion: Completion) -> None:
        try:
            self._value = decode(completion)
        except Exception as error:  # pylint: disable=broad-except
            self._error = error
        self.done = True

    def _fail(self, error: Exception) -> None:
        self._error, self.done = error, True
