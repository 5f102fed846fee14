"""The key/value store, for asyncio."""
from __future__ import annotations

import asyncio
import collections
import errno
import functools
import os
from typing import Any, Iterable, Mapping, Sequence

from . import _declarations as d
from ._library import Buffer, Key, library, sentence
from ._requests import AT_ONCE, Queue, Requests, Ttl, packed
from .errors import Error, error_of
from .store import Info, open_handle, options_of
from .watch import AsyncWatch


def _close_late(opening: "asyncio.Future[int]") -> None:
    """Nobody waits for this connection any more."""
    if not opening.cancelled() and opening.exception() is None:
        library.kv_close(opening.result())


class _Future(asyncio.Future):  # type: ignore[type-arg]
    """A request that is under way. To cancel it ends the request."""

    _store: "AsyncStore"
    _tag: int

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self._store._cancel(self._tag)
        return cancelled


class AsyncStore(Requests):
    """One connection to an rdmad, for the tasks of one event loop: the names of Store, to be awaited.

    Requests that are made while others are under way, or in the same turn of the loop, share messages.
    """

    def __init__(self, handle: int, loop: asyncio.AbstractEventLoop, address: str, opening: Any = None):
        self._handle: int | None = handle
        self._loop = loop
        self._address, self._opening = address, opening
        self._queue = Queue(handle)
        self._waiting: dict[int, tuple[_Future, Any, Any]] = {}
        self._unsent: collections.deque[tuple[int, bytes]] = collections.deque()
        self._tag = 0
        self._scheduled = False
        self._fd = library.kv_fd(handle)
        loop.add_reader(self._fd, self._turn)

    @classmethod
    async def connect(cls, address: str = "127.0.0.1", *, key: str | os.PathLike[str] | None = None,
                      require_rdma: bool = False, require_encryption: bool = False, timeout: float = 30.0,
                      connect_timeout: float = 5.0, reconnect: float | None = None, miss: bool = False) -> "AsyncStore":
        """Options as of Store. ``timeout``: how long no answer may come until requests end with TimeoutError."""
        options = options_of(key=key, require_rdma=require_rdma, require_encryption=require_encryption, timeout=timeout,
                             connect_timeout=connect_timeout, poll=None, progress_thread=False)
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(None, open_handle, address, options, reconnect, miss)
        try:
            handle = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_late)
            raise
        library.kv_request_timeout(handle, options.timeout_us)
        return cls(handle, loop, address, functools.partial(open_handle, address, options, reconnect, miss))

    async def __aenter__(self) -> "AsyncStore":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._end(error_of(-errno.ECONNABORTED, "the store was closed"))

    def __repr__(self) -> str:
        return f"<rdmad.AsyncStore {self._address} {self.transport if self._handle else 'closed'}>"

    async def close(self) -> None:
        """End the connection; requests under way fail with Gone."""
        if self._handle:
            self._end(error_of(-errno.ECONNABORTED, "the store was closed"))

    def _end(self, error: Error) -> None:
        handle, self._handle = self._handle, None
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        library.kv_close(handle)
        self._fail_all(error)

    def _fail_all(self, error: Error) -> None:
        waiting, self._waiting = self._waiting, {}
        self._unsent.clear()
        for future, _, _ in waiting.values():
            if not future.done():
                future.set_exception(error)

    # Requests

    def _request(self, decode: Any, keep: Any, *fields: int) -> Any:
        if not self._handle:
            raise ValueError("the store is closed")
        request = packed(self._tag + 1, *fields)
        self._tag += 1
        future = _Future(loop=self._loop)
        future._store, future._tag = self, self._tag
        self._waiting[self._tag] = future, decode, keep
        self._unsent.append((self._tag, request))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)
        return future

    def _cancel(self, tag: int) -> None:
        """Its completion comes with -ECANCELED; until then its memory is kept. One that was not sent is passed over."""
        if self._handle and library.kv_cancel_tag(self._handle, tag) and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _submit(self) -> bool:
        """Whether something was sent, or is not to be any more."""
        batch: list[tuple[int, bytes]] = []
        while self._unsent and len(batch) < AT_ONCE:
            request = self._unsent.popleft()
            if self._waiting[request[0]][0].done():
                del self._waiting[request[0]]
            else:
                batch.append(request)
        if not batch:
            return False
        count = self._queue.submit([request for _, request in batch])
        if count < 0 and count not in (-errno.EAGAIN,):
            future = self._waiting.pop(batch[0][0])[0]
            if not future.done():
                future.set_exception(error_of(count, sentence()))
            count = 1
        taken = max(count, 0)
        self._unsent.extendleft(reversed(batch[taken:]))
        return taken > 0

    def _take(self) -> int:
        status, completions = self._queue.done(0)
        for completion in completions:
            waiting = self._waiting.pop(completion[0], None)
            if waiting is None or waiting[0].done():
                continue
            future, decode, _ = waiting
            try:
                future.set_result(decode(completion))
            except Exception as error:  # pylint: disable=broad-except
                future.set_exception(error)
        return status

    def _turn(self) -> None:
        """Send, and take what has come, until there is neither."""
        self._scheduled = False
        if not self._handle:
            return
        while True:
            sent = self._submit()
            status = self._take()
            if status > 0 or sent:
                continue
            armed = library.kv_arm(self._handle) if status == 0 else status
            if armed == 0:
                return
            if armed < 0:
                self._fail_all(error_of(armed, sentence()))
                self._loop.remove_reader(self._fd)
                return

    # Many keys

    async def get_many(self, keys: Sequence[Key]) -> list[bytes | None]:
        return list(await asyncio.gather(*[self.get(key) for key in keys]))

    async def set_many(self, items: Mapping[Key, Buffer] | Iterable[tuple[Key, Buffer]], *, ttl: Ttl = None) -> None:
        pairs = items.items() if isinstance(items, Mapping) else items
        await asyncio.gather(*[self.set(key, value, ttl=ttl) for key, value in pairs])

    async def get_many_into(self, keys: Sequence[Key], buffers: Sequence[Buffer]) -> list[int | None]:
        if len(keys) != len(buffers):
            raise ValueError(f"{len(keys)} keys for {len(buffers)} buffers")
        return list(await asyncio.gather(*[self.get_into(key, buffer) for key, buffer in zip(keys, buffers)]))

    async def exists_many(self, keys: Sequence[Key]) -> list[bool]:
        return list(await asyncio.gather(*[self.exists(key) for key in keys]))

    async def prefix_length(self, keys: Sequence[Key]) -> int:
        found = await self.exists_many(keys)
        return found.index(False) if False in found else len(found)

    async def delete_many(self, keys: Sequence[Key]) -> int:
        return sum(await asyncio.gather(*[self.delete(key) for key in keys]))

    def watch(self, prefix: Key = b"", kinds: Iterable[str] | None = None) -> AsyncWatch:
        """As Store.watch(), for ``async for``."""
        return AsyncWatch(self._opening, prefix, kinds)

    # The connection

    @property
    def transport(self) -> str:
        return library.kv_transport(self._handle).decode()

    @property
    def value_max(self) -> int:
        """The longest value that the server takes."""
        return library.kv_value_max(self._handle)


__all__ = ["AsyncStore", "Info", "d"]
