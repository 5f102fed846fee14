"""The calls that wait: against a dict, with each kind of memory, from threads, in a child, and what they raise."""
import array
import ctypes
import gc
import os
import threading
import time
from datetime import timedelta

import hypothesis
import hypothesis.strategies as st
import hypothesis.stateful
import numpy
import pytest

import rdmad
from rdmad import _declarations, _library, _requests

LENGTHS = [0, 1, 64, 4000, 4095, 4096, 4097, 100_000, 3 << 20]


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(store, length):
    value = os.urandom(length)
    version = store.set("t:k", value)
    assert version > 0
    for _ in range(3):  # the length of a long value is known then
        assert store.get("t:k") == value
    assert store.get_version("t:k") == (value, version)
    assert store.get_many(["t:k", "t:none"]) == [value, None]
    assert store.get_range("t:k", 1, length) == value[1:]
    assert store.get_range("t:k", length, 1 << 40) == b""
    space = bytearray(length + 1)
    assert store.get_into("t:k", space) == length
    assert space[:length] == value
    assert store.get_into("t:k", space, offset=length // 2) == length - length // 2
    assert store.get_delete("t:k") == value
    assert store.get("t:k") is None


def test_length_changes(store):
    for length in (9000, 20_000_000, 5000, 4096, 10, 5001, 0):
        store.set("t:k", b"x" * length)
        assert store.get("t:k") == b"x" * length
    store.delete("t:k")
    assert store.get("t:k", "default") == "default"


@pytest.mark.parametrize("value", [
    b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), memoryview(bytearray(b"xabcdx"))[1:5], array.array("B", b"abcd"),
    numpy.frombuffer(b"abcd", dtype=numpy.uint8)], ids=lambda value: type(value).__name__)
def test_buffers(store, value):
    store.set("t:k", value)
    assert store.get("t:k") == b"abcd"
    store.append("t:k", value)
    assert store.put_pieces("t:p", [value, b"", value]) > 0
    assert store.get("t:p") == store.get("t:k") == b"abcdabcd"
    store.set_many({"t:k": value})
    with store.batch() as batch:
        batch.set("t:b", value)
    assert store.get("t:b") == b"abcd"


def test_buffers_refused(store):
    with pytest.raises(BufferError):
        store.set("t:k", memoryview(b"abcdef")[::2])
    with pytest.raises((BufferError, ValueError)):
        store.set("t:k", numpy.zeros((4, 4))[:, 1])
    with pytest.raises(TypeError):
        store.set("t:k", "text is not bytes")
    with pytest.raises((BufferError, TypeError)):
        store.get_into("t:k", b"cannot be written")
    store.set("t:k", b"longer than that")
    small = bytearray(4)
    with pytest.raises(rdmad.NoSpace):
        store.get_into("t:k", small)
    assert small == bytes(4)


def test_arrays(store):
    grid = numpy.arange(300_000, dtype=numpy.float64).reshape(100, 3000)
    store.set("t:grid", grid)
    back = numpy.empty_like(grid)
    assert store.get_into("t:grid", back) == grid.nbytes
    assert (back == grid).all()
    with store.register(back):
        back.fill(0)
        assert store.get_many_into(["t:grid", "t:none"], [back, bytearray(1)]) == [grid.nbytes, None]
        assert (back == grid).all()
        with pytest.raises(rdmad.Error):
            store.register(back)
    memory = (back.ctypes.data, back.nbytes)  # as a tensor's storage is given
    back.fill(0)
    assert store.get_into("t:grid", memory) == grid.nbytes
    assert (back == grid).all()


def test_conditions(store):
    first = store.set("t:k", b"1", if_absent=True)
    with pytest.raises(rdmad.Conflict):
        store.set("t:k", b"2", if_absent=True)
    with pytest.raises(rdmad.Conflict):
        store.set("t:none", b"2", if_present=True)
    second = store.set("t:k", b"2", if_version=first)
    with pytest.raises(rdmad.Conflict):
        store.set("t:k", b"3", if_version=first)
    with pytest.raises(rdmad.Conflict):
        store.delete("t:k", if_version=first)
    with pytest.raises(ValueError):
        store.set("t:k", b"3", if_version=1, if_absent=True)
    assert store.get_set("t:k", b"4") == b"2"
    assert store.get_set("t:new", b"4") is None
    assert second > first


def test_times_to_live(store):
    store.set("t:k", b"1", ttl=timedelta(hours=1))
    assert 3599 < store.stat("t:k").ttl <= 3600
    store.set("t:k", b"2", keep_ttl=True)
    assert store.stat("t:k").ttl > 3590
    assert store.expire("t:k", None)
    assert store.stat("t:k") == rdmad.Meta(1, store.get_version("t:k")[1], None)
    assert store.get_touch("t:k", 0.001) == b"2"
    assert not store.expire("t:none", 1)
    until = time.monotonic() + 30
    while store.exists("t:k"):
        assert time.monotonic() < until
    for bad in (0, -1, float("nan")):
        with pytest.raises(ValueError):
            store.set("t:k", b"1", ttl=bad)


def test_numbers(store):
    assert [store.incr("t:n"), store.incr("t:n", -5), store.incr("t:n", 2**62)] == [1, -4, 2**62 - 4]
    with pytest.raises(rdmad.Error) as caught:
        store.incr("t:n", 2**62 + 4)
    assert "64 bits" in str(caught.value)
    store.set("t:n", b"text")
    with pytest.raises(rdmad.Error):
        store.incr("t:n")


@pytest.mark.parametrize("call", [
    lambda store: store.incr("t:n", 2**64 + 1), lambda store: store.incr("t:n", -2**63 - 1),
    lambda store: store.get_range("t:k", 2**64, 1), lambda store: store.get_range("t:k", -1, 1),
    lambda store: store.get_range("t:k", 0, -1), lambda store: store.set_range("t:k", -1, b"x"),
    lambda store: store.get_into("t:k", bytearray(4), offset=2**64), lambda store: store.set("t:k", (1, -1)),
    lambda store: store.get_into("t:k", (1, -1)), lambda store: store.lend(-1),
    lambda store: store.scan_page(-1), lambda store: store.scan_page(limit=2**32),
    lambda store: store.batch().incr("t:n", 2**63), lambda store: store.batch().get_into("t:k", bytearray(4), offset=-1)])
def test_numbers_without_room(store, call):
    store.set("t:k", b"value")
    with pytest.raises(ValueError):
        call(store)
    assert store.get("t:k") == b"value" and not store.exists("t:n")


def test_no_key_has_version_0(store):
    store.set("t:k", b"value")
    for delete in (store.delete, store.batch().delete):
        with pytest.raises(rdmad.Error):
            delete("t:k", if_version=0)
    assert store.exists("t:k")


def test_keys_refused(store):
    for key in (5, None, [116, 58], 1.5):
        for call in (lambda: store.set(key, b"value"), lambda: store.get(key), lambda: store.get_many([key]),
                     lambda: store.exists_many([key])):
            with pytest.raises(TypeError):
                call()
    store.set(bytearray(b"t:k"), b"value")
    assert store.get(memoryview(b"t:k")) == b"value"


def test_as_a_dict(store):
    store["t:k"] = b"v"
    assert store["t:k"] == b"v" and "t:k" in store
    del store["t:k"]
    assert "t:k" not in store
    with pytest.raises(KeyError):
        store["t:k"]
    with pytest.raises(KeyError):
        del store["t:k"]


def test_many(store):
    items = {f"t:{i:04}": b"%d" % i * (i % 50) for i in range(2500)}
    store.set_many(items)
    assert store.get_many(list(items)) == list(items.values())
    assert sorted(store.keys("t:")) == [key.encode() for key in items]
    assert {key: meta.length for key, meta in store.scan("t:00")} == {
        key.encode(): len(value) for key, value in items.items() if key.startswith("t:00")}
    store.delete("t:1000")
    assert store.prefix_length(list(items)) == 1000
    assert store.exists_many(list(items)).count(False) == 1
    assert store.delete_many(["t:0001", "t:1000", "t:0002"]) == 2
    assert store.get_many([]) == [] and store.exists_many([]) == [] and store.prefix_length([]) == 0
    assert store.delete_prefix("t:") == 2497
    with pytest.raises(ValueError):
        store.get_many_into(["t:k"], [])


def test_batch(store):
    store.set("t:hash?", b"text")
    with store.batch() as batch:
        results = [batch.set("t:k", b"v"), batch.get("t:k"), batch.get("t:none"), batch.incr("t:hash?"), batch.append("t:k", b"w"),
                   batch.stat("t:k"), batch.delete("t:k"), batch.delete("t:k"), batch.set("t:k", b"x", if_present=True),
                   batch.get("", 1), batch.get("t:none", "d"), batch.expire("t:none", 4)]
        with pytest.raises(RuntimeError):
            results[0].result()
    values = []
    for pending in results:
        try:
            values.append(pending.result())
        except rdmad.Error as error:
            values.append(type(error))
    assert values[1:5] == [b"v", None, rdmad.Error, 2]
    assert values[5].length == 2
    assert values[6:] == [True, False, rdmad.Conflict, rdmad.Error, "d", False]


def test_batch_is_interrupted(store, monkeypatch):
    """As by a signal's exception. Completions that were left behind are not another batch's."""
    for each in range(600):
        store.set(f"t:a{each}", b"a%d" % each)
        store.set(f"t:b{each}", b"b%d" % each)
    done, space, calls = _requests.Queue.done, bytearray(5), []

    def interrupted(queue, timeout_us):
        calls.append(timeout_us)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return done(queue, timeout_us)

    monkeypatch.setattr(_requests.Queue, "done", interrupted)
    batch = store.batch()
    for each in range(600):
        batch.get(f"t:a{each}")
    batch.get_into("t:b599", space)
    with pytest.raises(KeyboardInterrupt):
        batch.run()
    with store.batch() as batch:
        results = [batch.get(f"t:b{each}") for each in range(5)]
    assert [each.result() for each in results] == [b"b%d" % each for each in range(5)]
    assert store.get_many(["t:a1", "t:b1"]) == [b"a1", b"b1"]


def test_interrupted_memory_stays(store, monkeypatch):
    """What a request reads or fills is not freed before its completion."""
    store.set("t:k", b"x" * 100_000)
    space = bytearray(100_000)
    with monkeypatch.context() as patch:
        patch.setattr(_requests.Queue, "done", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            with store.batch() as batch:
                batch.get_into("t:k", space)
    del batch
    gc.collect()
    with pytest.raises(BufferError):
        space.extend(b"more")
    assert store.get_many(["t:k", "t:none"]) == [b"x" * 100_000, None]
    while store._under_way:
        store.get_many(["t:k"])
    space.extend(b"more")


def test_registered_memory_stays(store):
    space = bytearray(100_000)
    store.register(space)
    gc.collect()
    with pytest.raises(BufferError):
        space.extend(b"more")
    other = bytearray(100_000)
    with store.register(other):
        pass
    other.extend(b"more")


def test_pieces_in_a_batch(store):
    pieces = [bytearray(b"ab"), bytearray(b"c" * 5000), bytearray(b"d" * 100_000)]
    places = [bytearray(len(piece)) for piece in pieces]
    with store.batch() as batch:
        batch.put_pieces("t:p", pieces, ttl=100)
        got = batch.get_pieces("t:p", places)
        none = batch.get_pieces("t:none", places[:1])
    assert got.result() == 105_002 and places == pieces and none.result() is None
    assert store.get_exactly(["t:p", "t:none"], [bytearray(105_002), bytearray(1)]) == [True, False]
    assert store.get_exactly(["t:p", "t:p"], [bytearray(105_003), bytearray(5)]) == [False, False]


@pytest.mark.parametrize("length", [0, 100, 5000, 300_000])
def test_checksum(store, length):
    value, space, other = os.urandom(length), bytearray(length), bytearray(3)
    store.put_pieces("t:k", [value, b"end"], checksum=True)
    assert store.stat("t:k").length == length + 3 + 8
    assert store.get_pieces("t:k", [space, other], checksum=True) == length + 3
    assert space == value and other == b"end"
    with store.batch() as batch:
        batch.put_pieces("t:b", [value], checksum=True)
        wrong, none = batch.get_pieces("t:k", [space], checksum=True), batch.get_pieces("t:none", [space], checksum=True)
    assert none.result() is None
    with pytest.raises((rdmad.Corrupt, rdmad.NoSpace)):
        wrong.result()
    assert store.get_pieces("t:b", [space], checksum=True) == length
    store.set_range("t:k", length + 1, b"x")
    with pytest.raises(rdmad.Corrupt, match="another checksum"):
        store.get_pieces("t:k", [space, other], checksum=True)
    store.set("t:k", b"short")
    with pytest.raises(rdmad.Corrupt, match="5 bytes in place of"):
        store.get_pieces("t:k", [space, other], checksum=True)
    assert store.get_pieces("t:none", [space], checksum=True) is None
    store.put_pieces("t:e", [], checksum=True)  # XXH3 of nothing, as its authors tell
    assert store.get("t:e") == 0x2d06800538d394c2.to_bytes(8, "little")


def test_lent_memory_goes_back(store):
    lent = store.lend(1 << 20)
    lent[:3] = b"abc"
    part = lent[:3]
    del lent
    gc.collect()
    store.set("t:k", part)
    assert store.get("t:k") == b"abc"


def test_threads(address, store):
    failures = []

    def work(own):
        try:
            for i in range(300):
                value = b"%s %d" % (own, i) * (1 + i % 900)
                store.set(b"t:" + own, value)
                assert store.get(b"t:" + own) == value
                with store.batch() as batch:
                    pending = batch.get(b"t:" + own)
                assert pending.result() == value
                store.incr("t:sum")
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=work, args=(b"%d" % i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.incr("t:sum", 0) == 1800


def test_child_of_a_fork(address, store):
    child = os.fork()
    if child == 0:
        try:
            store.get("t:k")
        except rdmad.Error:
            with rdmad.Store(address) as own:
                own.set("t:child", b"was here")
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.get("t:child") == b"was here"


def test_closed(address):
    store = rdmad.Store(address)
    assert store.transport in repr(store)
    store.close()
    store.close()
    assert "closed" in repr(store)
    for call in (lambda: store.get("t:k"), lambda: store.set("t:k", b""), store.info, store.batch().run):
        with pytest.raises((rdmad.Error, ValueError)):
            call()


def test_nothing_listens():
    with pytest.raises(rdmad.Gone) as caught:
        rdmad.Store("unix:///nothing/listens/here")
    assert isinstance(caught.value, ConnectionError) and caught.value.carried_out is False
    assert "is rdmad running" in str(caught.value)


def test_declarations_are_those_of_the_library():
    for name in _declarations.FUNCTIONS:
        if name.startswith(("kv_", "rdmad_")):
            assert getattr(_library.library, name)


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def test_no_leaks(store):
    value, space = b"x" * 50_000, bytearray(50_000)
    before = 0
    for turn in range(5):
        for _ in range(300):
            store.set("t:k", value)
            store.get("t:k")
            store.get_into("t:k", space)
            store.get_version("t:k")
            store.get_many(["t:k"] * 5)
            store.lend(50_000)
            list(store.scan("t:"))
        gc.collect()
        before = before or turn == 2 and resident() or 0
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        assert resident() - before < 8 << 20


class Model(hypothesis.stateful.RuleBasedStateMachine):
    """A store does what a dict does."""

    keys = st.sampled_from([f"t:{i}" for i in range(5)])
    values = st.binary(max_size=50) | st.integers(0, 200_000).map(lambda n: b"z" * n)

    def __init__(self):
        super().__init__()
        self.store, self.dict = rdmad.Store(os.environ["RDMAD_TEST_SERVER"]), {}
        self.store.delete_prefix("t:")

    def teardown(self):
        self.store.close()

    @hypothesis.stateful.rule(key=keys, value=values)
    def set(self, key, value):
        self.store.set(key, value)
        self.dict[key] = value

    @hypothesis.stateful.rule(key=keys)
    def get(self, key):
        assert self.store.get(key) == self.dict.get(key)

    @hypothesis.stateful.rule(key=keys)
    def delete(self, key):
        assert self.store.delete(key) == (self.dict.pop(key, None) is not None)

    @hypothesis.stateful.rule(key=keys, data=st.binary(max_size=20))
    def append(self, key, data):
        self.dict[key] = self.dict.get(key, b"") + data
        assert self.store.append(key, data) == len(self.dict[key])

    @hypothesis.stateful.rule(key=keys, offset=st.integers(0, 5000), data=st.binary(max_size=9))
    def set_range(self, key, offset, data):
        old = self.dict.get(key, b"").ljust(offset, b"\0")
        self.dict[key] = old[:offset] + data + old[offset + len(data):]
        assert self.store.set_range(key, offset, data) == len(self.dict[key])

    @hypothesis.stateful.rule(key=keys, offset=st.integers(0, 300_000), length=st.integers(0, 10_000))
    def part(self, key, offset, length):
        old = self.dict.get(key)
        assert self.store.get_range(key, offset, length) == (None if old is None else old[offset:offset + length])

    @hypothesis.stateful.rule(keys=st.lists(keys, max_size=9))
    def many(self, keys):
        assert self.store.get_many(keys) == [self.dict.get(key) for key in keys]
        assert self.store.exists_many(keys) == [key in self.dict for key in keys]


TestModel = Model.TestCase
TestModel.settings = hypothesis.settings(max_examples=25, stateful_step_count=40, deadline=None,
                                         suppress_health_check=list(hypothesis.HealthCheck))


def test_layouts():
    """Structures have the sizes that the C compiler gives them: RDMAD_TEST_SIZES has "name size" lines."""
    sizes = dict(line.split() for line in os.environ["RDMAD_TEST_SIZES"].splitlines())
    assert len(sizes) == len(_declarations.STRUCTURES)
    for structure in _declarations.STRUCTURES:
        assert ctypes.sizeof(structure) == int(sizes[structure.__name__]), structure.__name__
