"""The adapter for a cache of language models, by the interface as it was written down: see the head of its module."""
import array
import inspect
from types import SimpleNamespace

import numpy
import pytest

from rdmad import sglang


class Tensor:
    """The names of torch's tensors that Storage uses, for numpy's arrays."""

    def __init__(self, data):
        self.data = data

    def data_ptr(self):
        return self.data.ctypes.data

    def numel(self):
        return self.data.size

    def element_size(self):
        return self.data.itemsize

    def contiguous(self):
        return Tensor(numpy.ascontiguousarray(self.data))

    def tolist(self):
        return self.data.tolist()


class Pool:
    """A host's pool with keys and values apart, page by page, as SGLang has it in the layout page_first."""

    page_size = 4

    def __init__(self, pages, width):
        self.data = numpy.zeros((2, pages * self.page_size, width), dtype=numpy.float32)
        self.kv_buffer = Tensor(self.data)

    def get_page_buffer_meta(self, places):
        row = self.data.strides[1]
        addresses = []
        for place in places.tolist()[::self.page_size]:
            addresses += [self.data[0].ctypes.data + place * row, self.data[1].ctypes.data + place * row]
        return addresses, [row * self.page_size] * len(addresses)

    def page(self, at):
        return self.data[:, at * self.page_size:(at + 1) * self.page_size]


def places(pages):
    return Tensor(numpy.concatenate([numpy.arange(at * Pool.page_size, (at + 1) * Pool.page_size) for at in pages]))


def config(address, rank=0, mla=False):
    return SimpleNamespace(tp_rank=rank, tp_size=2, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=mla,
                           model_name="org/model", extra_config={"address": address, "prefix": "t:"})


@pytest.mark.parametrize("width", [3, 3000])
def test_pages(address, store, width):
    storage, other = sglang.Storage(config(address), {}), sglang.Storage(config(address, rank=1), {})
    pool = Pool(16, width)
    storage.register_mem_pool_host(pool)
    other.register_mem_pool_host(pool)
    for at in range(8):
        pool.page(at)[:] = at + 1
    keys = [f"hash{at}" for at in range(8)]
    assert storage.batch_set_v1(keys, places(range(8))) == [True] * 8
    assert storage.batch_exists(keys + ["none"]) == 8 and other.batch_exists(keys) == 0
    assert sglang.Storage(config(address, mla=True), {}).batch_exists(keys) == 0
    store.delete(storage._name("hash5"))
    assert storage.batch_exists(keys) == 5 and storage.exists("hash6") and not storage.exists("hash5")
    assert storage.batch_get_v1(keys, places(range(8, 16))) == [at != 5 for at in range(8)]
    for at in range(8):
        assert (pool.page(8 + at) == (0 if at == 5 else at + 1)).all()
    store.set(storage._name("hash1"), b"another length")
    assert storage.batch_get_v1(keys[:3], places(range(3))) == [True, False, True]
    assert storage.batch_get_v1([], None) == [] == storage.batch_set_v1([], None)


def test_checksum(address, store):
    with_checksum = config(address)
    with_checksum.extra_config["checksum"] = True
    storage, pool, keys = sglang.Storage(with_checksum, {}), Pool(8, 3000), ["a", "b", "c"]
    storage.register_mem_pool_host(pool)
    pool.page(1)[:] = 5
    assert storage.batch_set_v1(keys, places(range(3))) == [True] * 3
    store.set_range(storage._name("a"), 1000, b"x")
    assert storage.batch_get_v1(keys, places(range(4, 7))) == [False, True, True]
    assert (pool.page(5) == 5).all()


def transfer(name, keys, pages, policy="all_pages"):
    return SimpleNamespace(name=name, keys=keys, host_indices=places(pages), hit_policy=policy)


def test_pools(address, store):
    storage = sglang.Storage(config(address), {})
    pool, states = Pool(8, 10), Pool(8, 7)
    storage.register_mem_pool_host(pool)
    storage.register_mem_host_pool_v2(states, "mamba")
    keys = [f"hash{at}" for at in range(6)]
    states.page(5)[:] = 7
    done = storage.batch_set_v2([transfer("kv", keys, range(6)), transfer("mamba", keys[4:], [4, 5])])
    assert done == {"kv": [True] * 6, "mamba": [True, True]}
    assert storage.batch_exists_v2(keys, [transfer("mamba", keys[4:], [4, 5])]).kv_hit_pages == 0
    found = storage.batch_exists_v2(keys, [transfer("mamba", keys[5:], [5], "trailing_pages")])
    assert found.kv_hit_pages == 6 and found.extra_pool_hit_pages == {"kv": 6, "mamba": 6}
    assert storage.batch_exists_v2(["none"] + keys, None).kv_hit_pages == 0
    assert storage.batch_get_v2([transfer("mamba", keys[5:], [0])]) == {"mamba": [True]}
    assert (states.page(0) == 7).all()
    assert storage.batch_get_v2([transfer("mamba", keys, [0])]) == {"mamba": [False] * 6}  # too few places
    storage.clear()
    assert not list(store.keys("t:"))


def test_values(address, store):
    storage = sglang.Storage(config(address), {})
    tensor = Tensor(numpy.arange(1000.0))
    assert storage.set("one", tensor) and storage.batch_set(["two"], [tensor]) and storage.set("bytes", array.array("d", [1]))
    target = Tensor(numpy.zeros(1000))
    assert storage.get("one", target) is target and (target.data == tensor.data).all()
    assert storage.get("none", target) is None and storage.batch_get(["two", "bytes"], [target, target]) == [target, None]
    assert not storage.set("large", bytes(store.info().value_max + 1))


#: The methods of HiCacheStorage at sgl-project/sglang 001067f, and the names of their arguments.
RECORDED = {
    "register_mem_pool_host": ["mem_pool_host"],
    "register_mem_host_pool_v2": ["host_pool", "host_pool_name"],
    "batch_exists_v2": ["keys", "pool_transfers", "extra_info"],
    "batch_get_v2": ["transfers", "extra_info"],
    "batch_set_v2": ["transfers", "extra_info"],
    "batch_get_v1": ["keys", "host_indices", "extra_info"],
    "batch_set_v1": ["keys", "host_indices", "extra_info"],
    "get": ["key", "target_location", "target_sizes"],
    "batch_get": ["keys", "target_locations", "target_sizes"],
    "set": ["key", "value", "target_location", "target_sizes"],
    "batch_set": ["keys", "values", "target_locations", "target_sizes"],
    "exists": ["key"],
    "batch_exists": ["keys", "extra_info"],
    "clear": [],
    "get_stats": [],
}


def arguments(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_signatures():
    """Those of the backend, of the interface as it was written down, and of SGLang itself where that is."""
    for name, expected in RECORDED.items():
        assert arguments(getattr(sglang.Storage, name)) == expected, name
    if sglang._Base is object:
        return
    for name, function in vars(sglang._Base).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            assert arguments(function) == RECORDED.get(name), name
    assert not sglang.Storage.__abstractmethods__
