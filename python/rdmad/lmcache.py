"""LMCache's second level of the cache of keys and values, in rdmad: a plugin of its multi-process mode.

    {"type": "plugin", "module_path": "rdmad.lmcache", "class_name": "L2Adapter",
     "adapter_params": {"address": "server", "prefix": "prod:"}}

An object is one value, which goes from and to its place in LMCache's arena. Its key is the text that LMCache's own
remote adapters write, so they can share a server by RESP. Made for the interface as it was at LMCache/LMCache 000e877
(l2_adapters/base.py) and 0b43a45 (the lookup's second argument).
"""
from __future__ import annotations

import errno
import itertools
import logging
import queue
import threading
from collections import Counter
from typing import Any, Callable, Sequence

from lmcache.v1.distributed.api import EncodedObjectKey, KeyEntry, KeyListPage  # type: ignore[import]
from lmcache.v1.distributed.internal_api import L2StoreResult  # type: ignore[import]
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface  # type: ignore[import]
from lmcache.v1.platform import create_event_notifier  # type: ignore[import]

from .errors import Corrupt, Error, NoSpace
from .store import OPTIONS, Meta, Registration, Store, options_among
from .watch import Event, Watch

try:
    from lmcache.lmcache_native import Bitmap  # type: ignore[import]
except ImportError:
    from lmcache.native_storage_ops import Bitmap  # type: ignore[import]

_log = logging.getLogger(__name__)


def key_text(key: Any) -> str:
    """Of an ObjectKey, as LMCache's native connectors write it."""
    text = f"{key.model_name}@{key.kv_rank:08x}@{key.object_group_id:x}@{key.chunk_hash.hex()}"
    return f"{text}@{key.cache_salt}" if key.cache_salt else text


def key_of_text(text: str) -> Any:
    """The EncodedObjectKey that was written so; None: it is not one."""
    parts = text.split("@")
    try:
        model, rank, group, digest = parts[:4]
        bytes.fromhex(digest)
        found = EncodedObjectKey(chunk_hash_hex=digest, model_name=model, kv_rank=int(rank, 16),
                                 object_group_id=int(group, 16), cache_salt=parts[4] if len(parts) > 4 else "")
    except ValueError:
        return None
    return found if len(parts) <= 5 else None


class _Stored:
    """An object that this adapter has stored. Each store makes a new one."""

    __slots__ = ("size",)

    def __init__(self, size: int):
        self.size = size


class _Lane:
    """Tasks of one kind, which a thread carries out in their order by a connection of its own."""

    def __init__(self, name: str, store: Store):
        self.store = store
        self.notifier = create_event_notifier()
        self.healthy = True
        self._results: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._tasks: queue.SimpleQueue[tuple[int | None, Callable[[], Any], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"rdmad-{name}", daemon=True)
        self._thread.start()

    def submit(self, task: int, carry_out: Callable[[], Any], otherwise: Any) -> int:
        self._tasks.put((task, carry_out, otherwise))
        return task

    def submit_silently(self, carry_out: Callable[[], Any]) -> None:
        """A task that has no result."""
        self._tasks.put((None, carry_out, None))

    def _work(self) -> None:
        while True:
            entry = self._tasks.get()
            if entry is None or self._closed:
                return
            task, carry_out, result = entry
            try:
                result = carry_out()
                self.healthy = True
            except Error as error:
                self.healthy = False
                _log.warning("%s: %s", self._thread.name, error)
            except Exception:  # pylint: disable=broad-except
                _log.exception("%s: a task failed", self._thread.name)
            if task is not None:
                with self._lock:
                    self._results[task] = result
                self.notifier.notify()

    def take(self, task: int) -> Any:
        """The result, once; None: there is none yet."""
        with self._lock:
            return self._results.pop(task, None)

    def take_all(self) -> dict[int, Any]:
        with self._lock:
            results, self._results = self._results, {}
        return results

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closed

    def close(self) -> None:
        """Wait for the task under way, whose memory is LMCache's; tasks behind it are not carried out."""
        self._closed = True
        self._tasks.put(None)
        self._thread.join()
        self.store.close()
        self.notifier.close()


class L2Adapter(L2AdapterInterface):  # type: ignore[misc]
    """Made by LMCache: config is what the plugin's adapter_params say.

    ``address``, ``prefix`` of all keys, ``ttl`` in seconds, ``max_capacity_gb``: from which on LMCache is to delete; 0,
    the default: the server evicts. ``lookup``: "all", or "prefix": objects behind the first gap count as missing, and
    the server does not look for them. ``lease``: for how many seconds the server keeps what a lookup has found, unless
    it is unlocked before; default: it does not. ``events``: whether the server tells at once which objects it does not
    have any more; default: it does. Else a lookup that misses them finds out. ``checksum``: store objects with one, of 8 bytes more, and take one
    whose is wrong for missing. Others are options of a Store.
    """

    def __init__(self, config: dict[str, Any], l1_memory_desc: Any = None):
        super().__init__(max_capacity_bytes=int(config.get("max_capacity_gb", 0) * 1024**3))
        self._address = config.get("address", "127.0.0.1")
        self._prefix = config.get("prefix", "")
        self._ttl = config.get("ttl")
        self._lookup = config.get("lookup", "all")
        self._lease = config.get("lease")
        self._checksum = bool(config.get("checksum", False))
        self._corrupt = 0
        self._closing = False
        self._watch: Watch | None = None
        self._following: threading.Thread | None = None
        self._names: dict[bytes, Any] = {}  # of what is stored
        unknown = set(config) - {"address", "prefix", "ttl", "max_capacity_gb", "lookup", "lease", "events", "checksum", *OPTIONS}
        if unknown:
            raise ValueError(f"adapter_params: {', '.join(sorted(unknown))}: no such option of rdmad.lmcache")
        if self._lookup not in ("all", "prefix"):
            raise ValueError(f"adapter_params: lookup is \"all\" or \"prefix\", not {self._lookup!r}")
        self._numbers = itertools.count(1)  # of tasks
        self._lock = threading.Lock()
        self._stored: dict[Any, _Stored] = {}
        self._locks: Counter[Any] = Counter()  # finds that are not unlocked; of the lookups' thread
        self._registrations: list[Registration] = []
        self._lanes: list[_Lane] = []
        try:
            for name in ("store", "lookup", "load"):
                self._lanes.append(_Lane(name, Store(self._address, **options_among(config))))
            self._storing, self._looking, self._loading = self._lanes
            self._register(l1_memory_desc)
            if config.get("events", True):
                self._follow(Store(self._address, **options_among(config)))
        except BaseException:
            self.close()
            raise

    def _register(self, memory: Any) -> None:
        """Register LMCache's arena with the RDMA device. Without that all works, each object registered for itself."""
        if memory is None:
            return
        size = getattr(memory, "stable_registration_size", None)
        size = memory.size if size is None else size
        for lane in (self._storing, self._loading) if size else ():
            try:
                self._registrations.append(lane.store.register((memory.ptr, size)))
            except Error as error:
                _log.warning("LMCache's arena of %d bytes is not registered: %s", size, error)

    def _follow(self, store: Store) -> None:
        try:
            self._watch = store.watch(self._prefix, ("deleted", "expired", "evicted"))
        except Error as error:
            store.close()
            if error.errno != errno.EOPNOTSUPP:
                raise
            _log.info("%s", error)
            return
        self._following = threading.Thread(target=self._listen, args=(self._watch, store), name="rdmad-events", daemon=True)
        self._following.start()

    def _listen(self, watch: Watch, store: Store) -> None:
        while not self._closing:
            try:
                self._hear(watch.take(1), store)
            except Error as error:  # of a watch that has ended, too; lookups find out what it would have told
                if not self._closing:
                    _log.warning("%s: %s", threading.current_thread().name, error)
                break
        store.close()

    def _hear(self, events: Sequence[Event], store: Store) -> None:
        """Objects of which an event tells may have been stored again since, so the server is asked."""
        with self._lock:
            if any(event.key is None for event in events):
                keys = list(self._stored)
            else:
                keys = [self._names[name] for name in {event.key or b"" for event in events} if name in self._names]
            before = [self._stored.get(key) for key in keys]
        hits = store.exists_many(self._texts(keys)) if keys else []
        self._forget([(key, was) for key, was, hit in zip(keys, before, hits) if was and not hit])

    def _texts(self, keys: Sequence[Any]) -> list[str]:
        return [self._prefix + key_text(key) for key in keys]

    @staticmethod
    def _bitmap(hits: Sequence[bool]) -> Any:
        bitmap = Bitmap(len(hits))
        for at, hit in enumerate(hits):
            if hit:
                bitmap.set(at)
        return bitmap

    # Descriptors

    def get_store_event_fd(self) -> int:
        return self._storing.notifier.fileno()

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._looking.notifier.fileno()

    def get_load_event_fd(self) -> int:
        return self._loading.notifier.fileno()

    # Store

    def submit_store_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        keys = list(keys)
        buffers = [each.byte_array for each in objects]
        if len(keys) != len(buffers):
            raise ValueError(f"{len(keys)} keys for {len(buffers)} objects")
        return self._storing.submit(next(self._numbers), lambda: self._store(keys, buffers), L2StoreResult(False, 0))

    def _store(self, keys: Sequence[Any], buffers: Sequence[Any]) -> Any:
        if self._checksum:
            batch = self._storing.store.batch()
            pending = [batch.put_pieces(text, [buffer], ttl=self._ttl, checksum=True)
                       for text, buffer in zip(self._texts(keys), buffers)]
            batch.run()
            for each in pending:
                each.result()
        else:
            self._storing.store.set_many(zip(self._texts(keys), buffers), ttl=self._ttl)
        sizes = []
        with self._lock:
            for key, buffer in zip(keys, buffers):
                size = memoryview(buffer).nbytes
                sizes.append(0 if key in self._stored else size)  # one that is there takes no more room
                self._stored[key] = _Stored(size)
                self._names[(self._prefix + key_text(key)).encode()] = key
        self._notify_keys_stored(list(keys), sizes)
        return L2StoreResult(True, sum(sizes))

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        return self._storing.take_all()

    # Lookup. Without a lease there is nothing to unlock: the server keeps a value while it sends it, and a load of one
    # that is gone is a miss.

    def submit_lookup_and_lock_task(self, keys: Sequence[Any], group_layout_descs: Any = None) -> int:
        keys = list(keys)
        return self._looking.submit(next(self._numbers), lambda: self._look_up(keys), self._bitmap([False] * len(keys)))

    def _look_up(self, keys: Sequence[Any]) -> Any:
        with self._lock:
            before = [self._stored.get(key) for key in keys]
        texts, asked, known = self._texts(keys), len(keys), len(keys)
        if self._lookup == "prefix":
            asked = self._looking.store.prefix_length(texts)
            known = asked + 1  # the first missing one, too
        if self._lease:
            hits = self._looking.store.lease(texts[:asked], self._lease)
            self._locks.update(key for key, hit in zip(keys, hits) if hit)
        elif self._lookup == "prefix":
            hits = [True] * asked
        else:
            hits = self._looking.store.exists_many(texts)
        hits += [False] * (len(keys) - asked)
        self._forget([(key, was) for key, was, hit in zip(keys[:known], before, hits) if was and not hit])
        return self._bitmap(hits)

    def _forget(self, lost: Sequence[tuple[Any, _Stored]]) -> None:
        """Account for objects that the server does not have any more, but for objects that were stored again since."""
        keys, sizes = [], []
        with self._lock:
            for key, was in lost:
                if self._stored.get(key) is was:
                    del self._stored[key]
                    self._names.pop((self._prefix + key_text(key)).encode(), None)
                    keys.append(key)
                    sizes.append(was.size)
        if keys:
            self._notify_keys_deleted(keys, sizes)

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._looking.take(task_id)

    def submit_unlock(self, keys: Sequence[Any]) -> None:
        keys = list(keys)
        if self._lease:
            self._looking.submit_silently(lambda: self._unlock(keys))

    def _unlock(self, keys: Sequence[Any]) -> None:
        """The last one of a key ends its lease. Should that fail, its time does."""
        free = []
        for key in keys:
            self._locks[key] -= 1
            if self._locks[key] <= 0:
                del self._locks[key]
                free.append(key)
        self._looking.store.release(self._texts(free))

    # Load

    def submit_load_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        keys = list(keys)
        buffers = [each.byte_array for each in objects]
        if len(keys) != len(buffers):
            raise ValueError(f"{len(keys)} keys for {len(buffers)} objects")
        return self._loading.submit(next(self._numbers), lambda: self._load(keys, buffers), self._bitmap([False] * len(keys)))

    def _load(self, keys: Sequence[Any], buffers: Sequence[Any]) -> Any:
        if self._checksum:
            hits = self._load_checked(keys, buffers)
        else:
            hits = self._loading.store.get_exactly(self._texts(keys), buffers)
        accessed = [key for key, hit in zip(keys, hits) if hit]
        if accessed:
            self._notify_keys_accessed(accessed)
        return self._bitmap(hits)

    def _load_checked(self, keys: Sequence[Any], buffers: Sequence[Any]) -> list[bool]:
        batch = self._loading.store.batch()
        pending = [batch.get_pieces(text, [buffer], checksum=True) for text, buffer in zip(self._texts(keys), buffers)]
        batch.run()
        hits = []
        for key, each in zip(keys, pending):
            try:
                hits.append(each.result() is not None)
            except (Corrupt, NoSpace) as error:
                self._corrupt += 1
                _log.error("%s: %s", key_text(key), error)
                hits.append(False)
        return hits

    def query_load_result(self, task_id: int) -> Any:
        return self._loading.take(task_id)

    # Eviction, and what there is

    def delete(self, keys: Sequence[Any]) -> None:
        with self._lock:
            before = [self._stored.get(key) for key in keys]
        try:
            self._looking.store.delete_many(self._texts(keys))
        except Error as error:
            _log.warning("%d objects were not deleted: %s", len(keys), error)
            return
        self._forget([(key, was) for key, was in zip(keys, before) if was])

    def list_l2_keys(self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None) -> Any:
        if page_size <= 0:
            raise ValueError(f"a page has at least one key, not {page_size}")
        prefix = self._prefix + (f"{model_name}@" if model_name is not None else "")
        at, page = self._looking.store.scan_page(int(cursor or "0"), prefix, page_size)
        entries = [self._entry(name, meta) for name, meta in page]
        return KeyListPage(entries=tuple(each for each in entries if each), next_page_token=str(at) if at else None)

    def _entry(self, name: bytes, meta: Meta) -> Any:
        key = key_of_text(name.decode(errors="replace")[len(self._prefix):])
        return key and KeyEntry(key=key, size_bytes=meta.length)

    def report_status(self) -> dict[str, Any]:
        return {"is_healthy": all(lane.alive and lane.healthy for lane in self._lanes), "type": "rdmad",
                "address": self._address, "transport": self._loading.store.transport,
                "arena_registered": len(self._registrations) == 2, "objects_stored": len(self._stored),
                "objects_corrupt": self._corrupt}

    def close(self) -> None:
        self._closing = True
        if self._watch:
            self._watch.close()
        if self._following:
            self._following.join()
        for lane in self._lanes:
            lane.close()
        self._lanes = []


__all__ = ["L2Adapter", "key_of_text", "key_text"]
