#!/usr/bin/env python3
"""python.py ADDRESS WHAT COUNT: as kv.c, with the package rdmad; "tasks": gets of 32 tasks of asyncio, a second. ADDRESS
redis:PATH is that of a redis-server's UNIX socket, by python3-redis."""
import asyncio
import sys
import time

VALUE = b"x" * 64
BLOCKS, BLOCK = 64, 2 << 20
TASKS = 32


def blocks(store, count):
    """Values come to memory that is there in rdmad, and as new objects in redis."""
    names = [b"block:%d" % i for i in range(BLOCKS)]
    for name in names:
        store.set(name, b"x" * BLOCK)
    if hasattr(store, "lend"):
        memory = store.lend(BLOCKS * BLOCK)
        parts = [memory[at * BLOCK:(at + 1) * BLOCK] for at in range(BLOCKS)]
        read = lambda: store.get_many_into(names, parts)
    else:
        read = lambda: store.mget(names)
    read()  # its memory is there then
    begin = time.perf_counter()
    for _ in range(count):
        read()
    return count * BLOCKS * BLOCK / (time.perf_counter() - begin) / 1e6


def one_by_one(store, what, count):
    store.set(b"key", VALUE)
    call = (lambda: store.get(b"key")) if what == "get" else lambda: store.set(b"key", VALUE)
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e6


async def tasks(connect, count):
    store = await connect()
    await store.set(b"key", VALUE)

    async def some():
        for _ in range(count // TASKS):
            await store.get(b"key")

    begin = time.perf_counter()
    await asyncio.gather(*[some() for _ in range(TASKS)])
    rate = count // TASKS * TASKS / (time.perf_counter() - begin)
    await store.close()
    return rate


def main():
    address, what, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if address.startswith("redis:"):
        import redis
        import redis.asyncio
        path = address[len("redis:"):]
        store = redis.Redis(unix_socket_path=path)

        async def connect():
            return redis.asyncio.Redis(unix_socket_path=path)
    else:
        import rdmad
        store = rdmad.Store(address)

        async def connect():
            return await rdmad.AsyncStore.connect(address)
    if what == "tasks":
        print(asyncio.run(tasks(connect, count)))
    elif what == "blocks":
        print(blocks(store, count))
    else:
        print(one_by_one(store, what, count))


main()
