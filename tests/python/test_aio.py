"""Requests of asyncio's tasks: many at once, cancelled ones, and requests whose server ends."""
import asyncio
import os
import subprocess
import sys

import pytest

import rdmad


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def with_store(address, body):
    async def main():
        async with await rdmad.AsyncStore.connect(address) as store:
            await body(store)
    run(main())


def test_operations(address):
    async def body(store):
        version = await store.set("t:k", b"v", ttl=100)
        assert await store.get("t:k") == b"v"
        assert await store.get_version("t:k") == (b"v", version)
        assert await store.get("t:none") is None and await store.get("t:none", 5) == 5
        assert (await store.stat("t:k")).ttl > 90
        with pytest.raises(rdmad.Conflict):
            await store.set("t:k", b"w", if_absent=True)
        assert await store.append("t:k", b"w" * 2000) == 2001
        space = bytearray(3000)
        assert await store.get_into("t:k", space, offset=1) == 2000
        assert await store.incr("t:n") >= 1 and await store.expire("t:n", 5)
        big = os.urandom(3 << 20)
        await store.set("t:big", bytearray(big))
        assert await store.get("t:big") == big
        with pytest.raises(rdmad.NoSpace):
            await store.get_into("t:big", space)
        assert await store.delete("t:k") and not await store.delete("t:k")
        assert not await store.exists("t:k")
        assert await store.delete_many(["t:big", "t:n", "t:k"]) == 2
        assert store.transport in repr(store) and store.value_max >= 3 << 20
        with pytest.raises(rdmad.Error):
            await store.get("")
    with_store(address, body)


def test_many_tasks(address):
    async def body(store):
        async def count(own):
            for i in range(50):
                value = b"%d" % i * (1 + (own * i) % 300)
                await store.set(f"t:{own}", value)
                assert await store.get(f"t:{own}") == value
                await store.incr("t:sum")
        await store.delete("t:sum")
        await asyncio.gather(*[count(own) for own in range(200)])
        assert await store.incr("t:sum", 0) == 10000
        keys = [f"t:{own}" for own in range(3000)]
        await store.set_many((key, key.encode()) for key in keys)
        assert await store.get_many(keys) == [key.encode() for key in keys]
        spaces = [bytearray(10) for _ in keys]
        assert await store.get_many_into(keys, spaces) == [len(key) for key in keys]
        await store.delete("t:2000")
        assert await store.prefix_length(keys) == 2000
        assert await store.exists_many(keys[1999:2002]) == [True, False, True]
    with_store(address, body)


def test_cancel(address):
    async def body(store):
        await store.set("t:k", b"x" * 500_000)
        for i in range(200):
            future = store.get("t:k")
            for _ in range(i % 4):
                await asyncio.sleep(0)
            if not future.done():
                future.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await future
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(store.get("t:k"), 0)
        assert len(await store.get("t:k")) == 500_000
        assert not store._waiting and not store._unsent
    with_store(address, body)


def test_close(address):
    async def body(store):
        pending = [store.get("t:k") for _ in range(10)]
        await store.close()
        for future in pending:
            with pytest.raises(rdmad.Gone):
                await future
        with pytest.raises(ValueError):
            store.get("t:k")
        await store.close()
    with_store(address, body)


def start_server(path, more=""):
    """Another rdmad, which may be killed."""
    config = path / "rdmad.conf"
    socket = path / "s.sock"
    config.write_text(f'services = ["kv"]; listen = ["unix://{socket}"]; kv.memory = "64M"; insecure = true; {more}\n'
                      f'control = {{ socket = "{path}/control.sock"; }}; unix_socket = "{path}/r.sock";\n')
    process = subprocess.Popen([os.environ["RDMAD_TEST_DAEMON"], "-c", str(config)], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "ready" in line:
            return process, f"unix://{socket}"
    sys.exit("rdmad did not start")


def test_server_killed(tmp_path):
    process, address = start_server(tmp_path)

    async def main():
        store = await rdmad.AsyncStore.connect(address)
        blocking = rdmad.Store(address)
        await store.set("t:k", b"v")

        async def forever():
            while True:
                await store.get("t:k")

        tasks = [asyncio.ensure_future(forever()) for _ in range(20)]
        await asyncio.sleep(0.1)
        process.kill()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, rdmad.Gone), repr(result)
        with pytest.raises(rdmad.Gone):
            for _ in range(3):
                blocking.get("t:k")
        batch = blocking.batch()
        pending = batch.get("t:k")
        batch.run()
        with pytest.raises(rdmad.Gone):
            pending.result()
        with pytest.raises(rdmad.Gone):
            await store.get("t:k")
        await store.close()
    run(main())
    process.wait()
    process.stderr.close()


def test_reconnect(tmp_path):
    process, address = start_server(tmp_path)

    async def main():
        nonlocal process
        store = await rdmad.AsyncStore.connect(address, reconnect=60)
        blocking = rdmad.Store(address, reconnect=60)
        await store.set("t:k", b"v")
        process.terminate()
        process.wait()
        process.stderr.close()
        process, _ = start_server(tmp_path)
        until = asyncio.get_running_loop().time() + 60
        while True:
            assert asyncio.get_running_loop().time() < until
            try:
                assert await store.get("t:k") is None  # it had no log
                break
            except rdmad.Gone:
                await asyncio.sleep(0.05)
        blocking.set("t:k", b"again")
        assert await store.get("t:k") == b"again"
        await store.close()
        blocking.close()
    run(main())
    process.terminate()
    process.wait()
    process.stderr.close()
