"""python3 -m rdmad.bench [ADDRESS]: how fast this package is here, in one table."""
from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any, Callable

from . import AsyncStore, Store

SMALL = b"x" * 64


def timed(call: Callable[[], Any], times: int = 1) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - begin


def say(what: str, count: float, seconds: float, size: int = 0) -> None:
    rate = f"{count * size / seconds / 2**20:10.0f} MiB/s" if size else f"{count / seconds:10.0f} /s"
    print(f"{what:32} {seconds / count * 1e6:10.2f} us {rate}")


def one_by_one(store: Store, count: int) -> None:
    say("set, 64 B", count, timed(lambda: store.set(b"bench:key", SMALL), count))
    say("get, 64 B", count, timed(lambda: store.get(b"bench:key"), count))


def batches(store: Store, count: int) -> None:
    keys = [b"bench:%d" % i for i in range(256)]
    rounds = max(1, count // len(keys))
    say("set_many, 256 of 64 B", rounds * 256, timed(lambda: store.set_many((key, SMALL) for key in keys), rounds))
    say("get_many, 256 of 64 B", rounds * 256, timed(lambda: store.get_many(keys), rounds))


def blocks(store: Store, rounds: int, size: int, number: int) -> None:
    memory = store.lend(size * number)
    parts = [memory[at * size:(at + 1) * size] for at in range(number)]
    names = [b"bench:block:%d" % at for at in range(number)]
    say(f"set_many, {number} of {size >> 10} KiB", rounds * number,
        timed(lambda: store.set_many(zip(names, parts)), rounds), size)
    say(f"get_many_into, {number} of {size >> 10} KiB", rounds * number,
        timed(lambda: store.get_many_into(names, parts), rounds), size)


async def tasks(address: str, count: int, number: int, **options: Any) -> None:
    async with await AsyncStore.connect(address, **options) as store:
        async def get() -> None:
            for _ in range(count // number):
                await store.get(b"bench:key")

        await store.set(b"bench:key", SMALL)
        begin = time.perf_counter()
        await asyncio.gather(*[get() for _ in range(number)])
        say(f"get, 64 B, {number} tasks", count // number * number, time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m rdmad.bench", description="Measure rdmad from Python.")
    parser.add_argument("address", nargs="?", default="127.0.0.1", help="as for rdmactl; default 127.0.0.1")
    parser.add_argument("--key", help="file of the key")
    parser.add_argument("--count", type=int, default=20000, help="small requests of each kind; default 20000")
    parser.add_argument("--block", type=int, default=2048, help="KiB of a block; default 2048")
    parser.add_argument("--blocks", type=int, default=16, help="blocks of a call; default 16")
    parser.add_argument("--rounds", type=int, default=20, help="calls with blocks; default 20")
    given = parser.parse_args()
    with Store(given.address, key=given.key) as store:
        print(f"{given.address} by {store.transport}")
        one_by_one(store, given.count)
        batches(store, given.count)
        asyncio.run(tasks(given.address, given.count, 1, key=given.key))
        asyncio.run(tasks(given.address, given.count, 32, key=given.key))
        size = given.block * 1024
        if size * given.blocks <= store.info().bytes_total // 2 and size <= store.info().value_max:
            blocks(store, given.rounds, size, given.blocks)
        else:
            print(f"blocks: left out, the store has no room for {given.blocks} of {given.block} KiB")
        store.delete_prefix(b"bench:")


if __name__ == "__main__":
    main()
