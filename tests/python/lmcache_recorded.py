"""The part of LMCache's interface that rdmad.lmcache is made for, as it was written down from LMCache/LMCache: base.py
and api.py of lmcache/v1/distributed at 000e877, internal_api.py at 0101eda, native_connector_l2_adapter.py at 0b43a45
(the lookup's second argument), plugin_l2_adapter.py at 2b7c160 (how a plugin is made). Signatures are theirs, what is
behind them is made for the tests."""
import abc
import dataclasses
import os
import sys
import threading
import types


class Bitmap:
    def __init__(self, size):
        self.bits = [False] * size

    def set(self, index):
        self.bits[index] = True

    def test(self, index):
        return self.bits[index]

    def popcount(self):
        return sum(self.bits)


@dataclasses.dataclass(frozen=True)
class ObjectKey:
    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ""


@dataclasses.dataclass(frozen=True)
class EncodedObjectKey:
    chunk_hash_hex: str
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ""


@dataclasses.dataclass(frozen=True)
class KeyEntry:
    key: EncodedObjectKey
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class KeyListPage:
    entries: tuple
    next_page_token: "str | None"


@dataclasses.dataclass(frozen=True)
class L1MemoryDesc:
    ptr: int
    size: int
    align_bytes: int
    stable_registration_size: "int | None" = None


class L2StoreResult(int):
    """The bytes, or -1."""

    def __new__(cls, success, bytes_transferred):
        return super().__new__(cls, bytes_transferred if success else -1)

    def is_successful(self):
        return self >= 0

    def bytes_transferred(self):
        return max(int(self), 0)


class EventNotifier:
    def __init__(self):
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self):
        return self._fd

    def notify(self):
        os.eventfd_write(self._fd, 1)

    def consume(self):
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            pass

    def close(self):
        os.close(self._fd)


def create_event_notifier():
    return EventNotifier()


class L2AdapterInterface(abc.ABC):
    def __init__(self, max_capacity_bytes=0):
        self._max_capacity_bytes = max_capacity_bytes
        self._listeners = []
        self._usage_lock = threading.Lock()
        self.usage = {}  # bytes by salt

    @abc.abstractmethod
    def get_store_event_fd(self): ...

    @abc.abstractmethod
    def get_lookup_and_lock_event_fd(self): ...

    @abc.abstractmethod
    def get_load_event_fd(self): ...

    @abc.abstractmethod
    def submit_store_task(self, keys, objects): ...

    @abc.abstractmethod
    def pop_completed_store_tasks(self): ...

    @abc.abstractmethod
    def submit_lookup_and_lock_task(self, keys, group_layout_descs): ...

    @abc.abstractmethod
    def query_lookup_and_lock_result(self, task_id): ...

    @abc.abstractmethod
    def submit_unlock(self, keys): ...

    @abc.abstractmethod
    def submit_load_task(self, keys, objects): ...

    @abc.abstractmethod
    def query_load_result(self, task_id): ...

    @abc.abstractmethod
    def close(self): ...

    def register_listener(self, listener):
        self._listeners.append(listener)

    def delete(self, keys):
        return None

    def list_l2_keys(self, model_name=None, page_size=500, cursor=None):
        raise NotImplementedError

    def get_usage(self):
        return self.usage

    def report_status(self):
        return {"is_healthy": True}

    def _account(self, keys, sizes, sign):
        with self._usage_lock:
            for key, size in zip(keys, sizes, strict=True):
                self.usage[key.cache_salt] = self.usage.get(key.cache_salt, 0) + sign * size

    def _notify_keys_stored(self, keys, sizes):
        self._account(keys, sizes, 1)
        for listener in self._listeners:
            listener.on_l2_keys_stored(keys, sizes)

    def _notify_keys_accessed(self, keys):
        for listener in self._listeners:
            listener.on_l2_keys_accessed(keys)

    def _notify_keys_deleted(self, keys, sizes):
        self._account(keys, sizes, -1)
        for listener in self._listeners:
            listener.on_l2_keys_deleted(keys)


#: What stands where in LMCache, of what the adapter and its test use.
PLACES = {
    "lmcache.lmcache_native": [Bitmap],
    "lmcache.v1.distributed.api": [ObjectKey, EncodedObjectKey, KeyEntry, KeyListPage],
    "lmcache.v1.distributed.internal_api": [L1MemoryDesc, L2StoreResult],
    "lmcache.v1.distributed.l2_adapters.base": [L2AdapterInterface],
    "lmcache.v1.platform": [create_event_notifier],
}


def install():
    """Stand in for LMCache where it is not installed. Whether it is."""
    try:
        import lmcache.v1.distributed.l2_adapters.base  # pylint: disable=import-outside-toplevel,unused-import
        return True
    except ImportError:
        pass
    for place, names in PLACES.items():
        parts = place.split(".")
        for upto in range(1, len(parts) + 1):
            name = ".".join(parts[:upto])
            sys.modules.setdefault(name, types.ModuleType(name))
            if upto > 1:
                setattr(sys.modules[".".join(parts[:upto - 1])], parts[upto - 1], sys.modules[name])
        for each in names:
            setattr(sys.modules[place], each.__name__, each)
    return False
