"""The plugin for LMCache, by the interface as it was written down: see lmcache_recorded.py."""
import ctypes
import importlib
import inspect
import json
import mmap
import select
import threading
import time

import numpy
import pytest

import lmcache_recorded as recorded
from test_aio import start_server

REAL = recorded.install()
import rdmad  # noqa: E402  pylint: disable=wrong-import-position
from rdmad import lmcache  # noqa: E402  pylint: disable=wrong-import-position

BLOCK = 1 << 18


class Arena:
    """LMCache's memory in this process, and objects in it."""

    def __init__(self, blocks, block=BLOCK):
        self.block = block
        self.memory = mmap.mmap(-1, blocks * block)
        self.ptr = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.bytes = numpy.frombuffer(self.memory, dtype=numpy.uint8).reshape(blocks, block)

    def desc(self, **more):
        return recorded.L1MemoryDesc(self.ptr, len(self.memory), 4096, **more)

    def objects(self, blocks, length=None):
        return [MemoryObj(self.ptr + at * self.block, length or self.block) for at in blocks]


class MemoryObj:
    def __init__(self, address, length):
        self.array = (ctypes.c_ubyte * length).from_address(address)

    @property
    def byte_array(self):
        return memoryview(self.array)


class Listener:
    def __init__(self):
        self.seen = []

    def on_l2_keys_stored(self, keys, sizes):
        self.seen.append(("stored", list(keys), list(sizes)))

    def on_l2_keys_accessed(self, keys):
        self.seen.append(("accessed", list(keys)))

    def on_l2_keys_deleted(self, keys):
        self.seen.append(("deleted", list(keys)))


def keys_of(count, salt="", model="org/model", first=0):
    return [recorded.ObjectKey((first + at).to_bytes(8, "big"), model, 0x02010201, 1, salt) for at in range(count)]


def wait(fd):
    assert select.select([fd], [], [], 60)[0]


class Caller:
    """What LMCache's controllers do with an adapter."""

    def __init__(self, adapter):
        self.adapter = adapter
        self.results = {}

    def store(self, keys, objects):
        task = self.adapter.submit_store_task(keys, objects)
        while task not in self.results:
            wait(self.adapter.get_store_event_fd())
            self.adapter._storing.notifier.consume()
            self.results.update(self.adapter.pop_completed_store_tasks())
        return self.results.pop(task)

    def _query(self, task, lane, query):
        while True:
            found = query(task)
            if found is not None:
                assert query(task) is None
                return found.bits
            wait(lane.notifier.fileno())
            lane.notifier.consume()

    def look_up(self, keys):
        task = self.adapter.submit_lookup_and_lock_task(keys, {})
        return self._query(task, self.adapter._looking, self.adapter.query_lookup_and_lock_result)

    def load(self, keys, objects):
        task = self.adapter.submit_load_task(keys, objects)
        return self._query(task, self.adapter._loading, self.adapter.query_load_result)


def made(text, desc):
    """As LMCache makes a plugin of the text on its command line."""
    config = json.loads(text)
    assert config["type"] == "plugin"
    adapter_class = getattr(importlib.import_module(config["module_path"]), config["class_name"])
    assert issubclass(adapter_class, recorded.L2AdapterInterface)
    return adapter_class(config["adapter_params"], l1_memory_desc=desc)


@pytest.fixture(autouse=True)
def with_what_was_recorded(request):
    if REAL and request.function is not test_signatures:
        pytest.skip("LMCache is installed here: of it only the signatures are looked at")


@pytest.fixture
def arena():
    return Arena(64)


@pytest.fixture
def adapter(address, arena, store):
    text = json.dumps({"type": "plugin", "module_path": "rdmad.lmcache", "class_name": "L2Adapter",
                       "adapter_params": {"address": address, "prefix": "t:"}})
    adapter = made(text, arena.desc())
    yield adapter
    adapter.close()


def test_store_and_load(adapter, arena, store):
    caller, keys = Caller(adapter), keys_of(32)
    assert len({adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()}) == 3
    assert caller.look_up(keys) == [False] * 32
    for at in range(32):
        arena.bytes[at] = at + 1
    result = caller.store(keys, arena.objects(range(32)))
    assert result.is_successful() and result.bytes_transferred() == 32 * BLOCK
    store.delete("t:" + lmcache.key_text(keys[20]))
    store.set("t:" + lmcache.key_text(keys[21]), b"another length")
    assert caller.look_up(keys) == [at != 20 for at in range(32)]
    adapter.submit_unlock(keys)
    assert caller.load(keys, arena.objects(range(32, 64))) == [at not in (20, 21) for at in range(32)]
    for at in range(32):
        assert at == 21 or (arena.bytes[32 + at] == (0 if at == 20 else at + 1)).all()
    assert caller.load([], []) == [] == caller.look_up([])
    assert caller.store([], []).is_successful()
    assert adapter.report_status()["is_healthy"] and adapter.report_status()["arena_registered"]
    with pytest.raises(ValueError):
        adapter.submit_load_task(keys, [])


def test_keys(adapter, arena, store):
    key = recorded.ObjectKey(b"\xab\x01", "org/model", 0x1f, 17, "user")
    assert lmcache.key_text(key) == "org/model@0000001f@11@ab01@user"
    assert Caller(adapter).store([key], arena.objects([0], 100)).bytes_transferred() == 100
    assert list(store.keys("t:")) == [b"t:org/model@0000001f@11@ab01@user"]
    encoded = recorded.EncodedObjectKey("ab01", "org/model", 0x1f, 17, "user")
    assert lmcache.key_of_text(lmcache.key_text(key)) == encoded
    for text in ("", "a@b", "m@x@0@ab", "m@0@0@xy", "m@0@0@ab@s@more"):
        assert lmcache.key_of_text(text) is None


def test_listeners_and_usage(adapter, arena, store):
    caller, listener, keys = Caller(adapter), Listener(), keys_of(4, "salt")
    adapter.register_listener(listener)
    assert caller.store(keys, arena.objects(range(4))).bytes_transferred() == 4 * BLOCK
    assert adapter.get_usage() == {"salt": 4 * BLOCK}
    assert caller.store(keys[:1], arena.objects([0])).bytes_transferred() == 0  # there before
    assert adapter.get_usage() == {"salt": 4 * BLOCK}
    assert caller.load(keys[:2] + keys_of(1, first=9), arena.objects(range(3))) == [True, True, False]
    adapter.delete(keys[1:2] + keys_of(1, first=9))
    store.delete("t:" + lmcache.key_text(keys[2]))  # as the server does when it evicts
    assert caller.look_up(keys) == [True, False, False, True]
    assert caller.look_up(keys) == [True, False, False, True]
    assert adapter.get_usage() == {"salt": 2 * BLOCK}
    assert listener.seen == [("stored", keys, [BLOCK] * 4), ("stored", keys[:1], [0]), ("accessed", keys[:2]),
                             ("deleted", keys[1:2]), ("deleted", keys[2:3])]


def wait_until(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    assert condition()


def test_events(address, arena, store):
    """What the server does not have any more is off the account without a lookup; what was stored again stays."""
    adapter = lmcache.L2Adapter({"address": address, "prefix": "t:"})
    caller, listener, keys = Caller(adapter), Listener(), keys_of(5)
    adapter.register_listener(listener)
    assert caller.store(keys, arena.objects(range(5))).is_successful()
    store.delete("t:" + lmcache.key_text(keys[1]))
    store.expire("t:" + lmcache.key_text(keys[2]), 0.001)
    wait_until(lambda: adapter.get_usage() == {"": 3 * BLOCK})
    assert sorted(listener.seen[1:], key=str) == sorted([("deleted", keys[1:2]), ("deleted", keys[2:3])], key=str)
    for _ in range(100):
        store.delete("t:" + lmcache.key_text(keys[0]))
        assert caller.store(keys[:1], arena.objects([0])).is_successful()
    store.delete_prefix("t:")
    wait_until(lambda: adapter.get_usage().get("", 0) == 0)
    adapter.close()
    adapter = lmcache.L2Adapter({"address": address, "prefix": "t:", "events": False})
    assert Caller(adapter).store(keys, arena.objects(range(5))).is_successful()
    store.delete_prefix("t:")
    assert adapter.get_usage() == {"": 5 * BLOCK}
    adapter.close()


def test_list(adapter, arena, store):
    caller = Caller(adapter)
    ours, others = keys_of(30), keys_of(7, model="org/model-2")
    assert caller.store(ours + others, arena.objects([0] * 37, 10)).is_successful()
    store.set("t:not a key of LMCache", b"")
    for model, count in ((None, 37), ("org/model", 30), ("org/model-2", 7), ("org", 0)):
        found, cursor = [], None
        while True:
            page = adapter.list_l2_keys(model, 5, cursor)
            assert len(page.entries) <= 5 and all(entry.size_bytes == 10 for entry in page.entries)
            found += page.entries
            cursor = page.next_page_token
            if cursor is None:
                break
        assert len({entry.key for entry in found}) == count
    for bad in ((None, 0, None), (None, 5, "x")):
        with pytest.raises(ValueError):
            adapter.list_l2_keys(*bad)


def test_prefix_lookup(address, arena, store):
    adapter = lmcache.L2Adapter({"address": address, "prefix": "t:", "lookup": "prefix", "ttl": 1000})
    caller, keys = Caller(adapter), keys_of(5)
    assert caller.store(keys, arena.objects(range(5))).is_successful()
    assert 0 < store.stat("t:" + lmcache.key_text(keys[0])).ttl <= 1000
    assert caller.look_up(keys) == [True] * 5
    store.delete("t:" + lmcache.key_text(keys[2]))
    assert caller.look_up(keys) == [True, True, False, False, False]
    assert adapter.get_usage() == {"": 4 * BLOCK}
    adapter.close()
    adapter.close()


def test_lease(tmp_path, arena):
    """What a lookup has found stays, however much is stored, until the last one is unlocked."""
    process, address = start_server(tmp_path, 'kv.eviction = "s3-fifo"; kv.lease_memory = "32M";')
    adapter = lmcache.L2Adapter({"address": address, "lease": 1000})
    caller, keys, more = Caller(adapter), keys_of(8), keys_of(400, "more")
    assert caller.store(keys, arena.objects(range(8))).is_successful()
    assert caller.look_up(keys) == caller.look_up(keys + more)[:8] == [True] * 8
    adapter.submit_unlock(keys)  # the first of two
    assert caller.store(more, arena.objects([0] * 400)).is_successful()
    assert caller.load(keys, arena.objects(range(8))) == [True] * 8
    released, release = [], adapter._looking.store.release
    adapter._looking.store.release = lambda texts: released.append(len(texts)) or release(texts)
    adapter.submit_unlock(keys)
    adapter.submit_unlock(keys[:1])  # which is not locked any more
    assert caller.look_up([]) == [] and not adapter._locks and released == [8, 1]
    with rdmad.Store(address) as store:
        store.set("t:k", b"v")
        assert store.lease(["t:k", "t:none"], 10) == [True, False] and store.lease([], 1) == []
        store.release(["t:k", "t:none"])
    adapter.close()
    process.kill()
    process.wait()
    process.stderr.close()


def test_checksum(address, arena, store):
    adapter = lmcache.L2Adapter({"address": address, "prefix": "t:", "checksum": True}, l1_memory_desc=arena.desc())
    caller, keys = Caller(adapter), keys_of(4)
    arena.bytes[:4] = [[1], [2], [3], [4]]
    assert caller.store(keys, arena.objects(range(4))).bytes_transferred() == 4 * BLOCK
    store.set_range("t:" + lmcache.key_text(keys[1]), 1000, b"x")
    store.set("t:" + lmcache.key_text(keys[2]), bytes(BLOCK + 9))
    assert caller.look_up(keys) == [True] * 4
    assert caller.load(keys + keys_of(1, "none"), arena.objects(range(8, 13))) == [True, False, False, True, False]
    assert (arena.bytes[8] == 1).all() and (arena.bytes[11] == 4).all()
    assert adapter.report_status()["objects_corrupt"] == 2 and adapter.report_status()["is_healthy"]
    adapter.close()


def test_two_controllers(adapter, arena):
    """Stores by one thread, lookups and loads by another, several under way."""
    keys, failures = keys_of(160), []

    def store_all():
        tasks = {adapter.submit_store_task(keys[at:at + 16], arena.objects(range(16))) for at in range(0, 160, 16)}
        while tasks:
            wait(adapter.get_store_event_fd())
            adapter._storing.notifier.consume()
            for task, result in adapter.pop_completed_store_tasks().items():
                tasks.remove(task)
                if not result.is_successful():
                    failures.append(task)

    arena.bytes[:16] = 7
    storing = threading.Thread(target=store_all)
    storing.start()
    caller = Caller(adapter)
    while sum(caller.look_up(keys)) < len(keys):
        hits = [at for at, hit in enumerate(caller.look_up(keys)) if hit][:16]
        assert caller.load([keys[at] for at in hits], arena.objects(range(16, 16 + len(hits)))) == [True] * len(hits)
        assert (arena.bytes[16:16 + len(hits)] == 7).all()
    storing.join()
    assert not failures and adapter.get_usage() == {"": 160 * BLOCK}


def test_failures(address, arena, store, tmp_path):
    for params in ({"adress": "x"}, {"lookup": "first"}):
        with pytest.raises(ValueError):
            lmcache.L2Adapter(params)
    with pytest.raises(OSError):
        lmcache.L2Adapter({"address": f"unix://{tmp_path}/none", "connect_timeout": 0.1})
    process, other = start_server(tmp_path, 'kv.eviction = "s3-fifo";')
    adapter = lmcache.L2Adapter({"address": other, "timeout": 2}, l1_memory_desc=arena.desc(stable_registration_size=0))
    caller, keys = Caller(adapter), keys_of(4)
    assert caller.store(keys, arena.objects(range(4))).is_successful()
    with rdmad.Store(other) as store:
        longer = Arena(1, (store.info().value_max // 4096 + 1) * 4096)
    assert not caller.store(keys_of(1, first=9), longer.objects([0])).is_successful()
    many = keys_of(400, "many")
    assert caller.store(many, arena.objects([0] * 400)).is_successful()
    hits = caller.look_up(many)
    assert 0 < sum(hits) < 400 and adapter.get_usage()["many"] == sum(hits) * BLOCK  # some were evicted
    process.kill()
    process.wait()
    process.stderr.close()
    assert caller.look_up(keys) == [False] * 4
    assert not caller.store(keys, arena.objects(range(4))).is_successful()
    assert caller.load(keys, arena.objects(range(4))) == [False] * 4
    assert not adapter.report_status()["is_healthy"]
    process, other = start_server(tmp_path)
    for _ in range(100):
        if caller.store(keys, arena.objects(range(4))).is_successful():
            break
    assert caller.load(keys, arena.objects(range(4))) == [True] * 4 == caller.look_up(keys)
    assert adapter.report_status()["is_healthy"]
    adapter.close()
    process.kill()
    process.wait()
    process.stderr.close()


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_signatures():
    """Those of the adapter, of the interface as it was written down, and of LMCache itself where that is."""
    base = importlib.import_module("lmcache.v1.distributed.l2_adapters.base").L2AdapterInterface
    for name, function in vars(recorded.L2AdapterInterface).items():
        if inspect.isfunction(function) and name not in ("_account", "__init__"):
            assert parameters(getattr(base, name)) == parameters(function), name
            assert parameters(getattr(lmcache.L2Adapter, name)) == parameters(function), name
    assert not lmcache.L2Adapter.__abstractmethods__
