"""Changes of keys, as the server tells of them."""
from __future__ import annotations

import asyncio
import ctypes
import threading
from dataclasses import dataclass
from typing import Any, Iterable

from . import _declarations as d
from ._library import Handle, Key, encoded, library, sentence
from .errors import error_of

KINDS = {"stored": d.KV_EVENT_STORED, "deleted": d.KV_EVENT_DELETED, "expired": d.KV_EVENT_EXPIRED,
         "evicted": d.KV_EVENT_EVICTED, "ttl": d.KV_EVENT_TTL}
_NAMES = {**{value: name for name, value in KINDS.items()}, d.KV_EVENT_FLUSHED: "flushed", d.KV_EVENT_BEGAN: "began",
          d.KV_EVENT_MISSED: "missed"}
AT_ONCE = 256
SLICE_US = 100_000  # for so long a waiting thread keeps others from closing the watch


@dataclass(frozen=True)
class Event:
    """``kind``: "stored", "deleted", "expired", "evicted", "ttl", or, without a key, "flushed", "began" or "missed"."""

    kind: str
    key: bytes | None = None
    #: It was stored, and there was no such key.
    fresh: bool = False
    #: So many events, at most, are missing here.
    missed: int = 0


def bits_of(kinds: Iterable[str] | None) -> int:
    if kinds is None:
        return d.KV_EVENT_ALL
    bits = 0
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind not in KINDS:
            raise ValueError(f"a kind of event is one of {', '.join(KINDS)}, not {kind!r}")
        bits |= KINDS[kind]
    if not bits:
        raise ValueError("a watch is of some kinds of events")
    return bits


def begin(handle: int, prefix: Key, bits: int) -> None:
    name = encoded(prefix)
    status = library.kv_watch(handle, name, len(name), bits)
    if status:
        error = error_of(status, sentence())
        library.kv_close(handle)
        raise error


class _Events:
    """Room for what kv_events() hands on."""

    def __init__(self) -> None:
        self._space = (d.kv_event * AT_ONCE)()

    def take(self, handle: int, timeout_us: int) -> list[Event]:
        count = library.kv_events(handle, self._space, AT_ONCE, timeout_us)
        if count < 0:
            raise error_of(count, sentence())
        return [Event(_NAMES.get(each.kind, "changed"), ctypes.string_at(each.key, each.key_len) if each.key else None,
                      each.fresh, each.missed) for each in self._space[:count]]


class Watch(Handle):
    """An iterator over changes, by a connection of its own, until it is closed. Any threads may use it."""

    _what = "watch"

    def __init__(self, handle: int, prefix: Key, kinds: Iterable[str] | None):
        self._events = _Events()
        self._lock = threading.Lock()
        self._ready: list[Event] = []  # the next is the last
        begin(handle, prefix, bits_of(kinds))
        self._handle = handle

    def __iter__(self) -> "Watch":
        return self

    def __next__(self) -> Event:
        while self._handle or self._ready:
            with self._lock:
                handle = self._handle  # another thread may close it; what is under way ends first
                if not self._ready and handle:
                    self._ready = self._events.take(handle, SLICE_US)[::-1]
                if self._ready:
                    return self._ready.pop()
        raise StopIteration

    def take(self, timeout: float = 0) -> list[Event]:
        """What there is; while that is nothing, wait up to ``timeout`` seconds."""
        with self._lock:
            ready, self._ready = self._ready[::-1], []
            handle = self._handle
            return self._events.take(handle, round(timeout * 1e6)) if handle and not ready else ready

    def _end(self, handle: int) -> int:
        with self._lock:
            return int(library.kv_close(handle))


class AsyncWatch:
    """The same for the tasks of one event loop: ``async with store.watch() as events: async for event in events``."""

    def __init__(self, opening: Any, prefix: Key, kinds: Iterable[str] | None):
        self._opening, self._prefix, self._bits = opening, prefix, bits_of(kinds)
        self._handle: int | None = None
        self._events = _Events()
        self._ready: list[Event] = []
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    async def _open(self) -> int:
        loop = asyncio.get_running_loop()
        handle: int = await loop.run_in_executor(None, self._opening)
        if self._closed:
            library.kv_close(handle)
            raise StopAsyncIteration
        begin(handle, self._prefix, self._bits)
        self._handle = handle
        return handle

    async def __aenter__(self) -> "AsyncWatch":
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> "AsyncWatch":
        return self

    async def __anext__(self) -> Event:
        handle = self._handle if self._handle or self._closed else await self._open()
        while not self._ready:
            if not self._handle or handle is None:
                raise StopAsyncIteration
            self._ready = self._events.take(handle, 0)[::-1]
            if not self._ready and library.kv_arm(handle) == 0:
                await self._readable(library.kv_fd(handle))
        return self._ready.pop()

    async def _readable(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()

        def wake() -> None:
            if not waiting.done():
                waiting.set_result(None)

        loop.add_reader(fd, wake)
        try:
            await waiting
        finally:
            loop.remove_reader(fd)

    async def close(self) -> None:
        self._closed = True
        handle, self._handle = self._handle, None
        if handle:
            if self._waiting and not self._waiting.done():
                self._waiting.set_result(None)
                await asyncio.sleep(0)  # it takes its descriptor out of the loop
            library.kv_close(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.kv_close(self._handle)


__all__ = ["AsyncWatch", "Event", "Watch"]
