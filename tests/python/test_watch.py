"""Changes of keys: what is told, to threads and to tasks, and how a watch ends."""
import asyncio
import os
import signal
import threading

import pytest

import rdmad
from test_aio import start_server


def test_events(store):
    with store.watch("t:w", kinds=("stored", "deleted", "ttl")) as watch:
        assert next(watch) == rdmad.Event("began")
        store.set("t:w1", b"1")
        store.set("t:w1", b"2")
        store.set("t:other", b"1")
        store.expire("t:w1", 100)
        store.delete("t:w1")
        got = [next(watch) for _ in range(4)]
        assert got == [rdmad.Event("stored", b"t:w1", fresh=True), rdmad.Event("stored", b"t:w1"), rdmad.Event("ttl", b"t:w1"),
                       rdmad.Event("deleted", b"t:w1")]
        assert watch.take() == [] and watch.take(0.01) == []
        store.set("t:w2", b"1")
        assert watch.take(60) == [rdmad.Event("stored", b"t:w2", fresh=True)]
    assert list(watch) == [] and watch.take(60) == []
    watch.close()


def test_wrong(store):
    for kinds in ("evict", ["stored", 1], []):
        with pytest.raises(ValueError):
            store.watch("t:", kinds)
    with pytest.raises(rdmad.Error):
        store.watch("x" * 4096)


def test_closed_by_another_thread(store):
    watch = store.watch("t:w")
    assert next(watch).kind == "began"
    timer = threading.Timer(0.05, watch.close)
    timer.start()
    assert list(watch) == []
    timer.join()


def test_slow(store):
    """All that was written is told or counted."""
    with store.watch("t:w", kinds="stored") as watch:
        assert next(watch).kind == "began"
        for at in range(0, 20000, 1000):
            store.set_many([(f"t:w{number}", b"") for number in range(at, at + 1000)])
        told = missed = 0
        while told + missed < 20000:
            for event in watch.take(60):
                told += event.kind == "stored"
                missed += event.missed
        assert told + missed == 20000
        store.delete_prefix("t:w")


def test_asyncio(address):
    async def main():
        async with await rdmad.AsyncStore.connect(address) as store:
            async with store.watch("t:a") as watch:
                assert (await watch.__anext__()).kind == "began"
                await store.set_many([(f"t:a{number}", b"v") for number in range(1000)])
                await store.delete_many([f"t:a{number}" for number in range(1000)])
                kept = set()
                async for event in watch:
                    assert event.kind in ("stored", "deleted"), event
                    (kept.add if event.kind == "stored" else kept.remove)(event.key)
                    if event.kind == "deleted" and not kept:
                        break
            # One that waits is ended by close(), or cancelled.
            watch = store.watch("t:a", kinds="evicted")
            assert (await watch.__anext__()).kind == "began"
            task = asyncio.ensure_future(watch.__anext__())
            await asyncio.sleep(0.01)
            await watch.close()
            with pytest.raises(StopAsyncIteration):
                await task
            watch = store.watch("t:a")
            assert (await watch.__anext__()).kind == "began"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(watch.__anext__(), 0.01)
            await store.set("t:a", b"v")
            assert (await watch.__anext__()).key == b"t:a"
            await watch.close()
            await store.delete("t:a")
    asyncio.run(asyncio.wait_for(main(), 120))


def test_server_killed(tmp_path):
    process, other = start_server(tmp_path)
    with rdmad.Store(other) as store, store.watch() as watch:
        assert next(watch).kind == "began"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(rdmad.Gone):
            next(watch)
