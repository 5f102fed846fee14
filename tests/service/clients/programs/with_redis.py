#!/usr/bin/env python3
"""with_redis.py HOST PORT: python3-redis, by itself and in asyncio: values, a pipeline, a transaction, a lock, a script, messages."""
import asyncio
import sys
import threading
import time

import redis
import redis.asyncio

HOST, PORT = sys.argv[1], int(sys.argv[2])
BINARY = bytes(range(256)) * 40


def values(r):
    assert r.ping() and r.client_getname() == "with_redis"
    assert r.set("py:a", BINARY, ex=100, nx=True) is True
    assert r.set("py:a", b"x", nx=True) is None
    assert r.get("py:a") == BINARY and r.strlen("py:a") == len(BINARY)
    assert 90 < r.ttl("py:a") <= 100 and r.persist("py:a") and r.ttl("py:a") == -1
    assert r.getex("py:a", px=50000) == BINARY and 0 < r.pttl("py:a") <= 50000
    assert r.set("py:short", "gone", px=30) and not r.set("py:b", "new", get=True)
    assert r.incrby("py:n", 41) == 41 and r.incr("py:n") == 42 and r.incrbyfloat("py:f", 0.5) == 0.5
    assert r.mset({"py:m1": "1", "py:m2": b"\0\r\n"}) and r.mget("py:m1", "py:none", "py:m2") == [b"1", None, b"\0\r\n"]
    assert sorted(r.scan_iter("py:m*", count=1)) == [b"py:m1", b"py:m2"]
    assert r.copy("py:m1", "py:m3") and r.rename("py:m3", "py:m4") and r.getdel("py:m4") == b"1"
    until = time.monotonic() + 60
    while r.exists("py:short"):
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        r.execute_command("NOSUCH", "a")
        raise AssertionError("an unknown command")
    except redis.ResponseError as e:
        assert "unknown command" in str(e), e


def transactions(r, other):
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            p.set(f"py:p{i}", i)
        assert p.execute() == [True] * 1000
    with r.pipeline() as p:
        p.set("py:t", "1").expire("py:t", 60).get("py:t")
        assert p.execute() == [True, True, b"1"]
        p.watch("py:t")
        other.set("py:t", "2")
        p.multi()
        p.set("py:t", "3")
        try:
            p.execute()
            raise AssertionError("a transaction behind a change")
        except redis.WatchError:
            pass
    assert r.transaction(lambda p: (value := int(p.get("py:t")), p.multi(), p.set("py:t", value * 21)), "py:t") == [True]
    assert r.get("py:t") == b"42"


def locks(r, other):
    lock = r.lock("py:lock", timeout=60)
    assert lock.acquire() and not other.lock("py:lock", timeout=60).acquire(blocking=False)
    assert lock.owned() and lock.extend(10) and lock.reacquire()
    waiting = threading.Thread(target=lambda: other.lock("py:lock", timeout=60, sleep=0.01).acquire(blocking_timeout=60))
    waiting.start()
    lock.release()
    waiting.join()
    assert lock.locked()
    try:
        lock.release()
        raise AssertionError("a lock released twice")
    except redis.exceptions.LockError:
        pass
    add = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    r.script_flush()
    assert add(keys=["py:s"], args=[7]) == 7 and add(keys=["py:s"], args=[7], client=other) == 14


def messages(r, other):
    heard = []
    p = r.pubsub(ignore_subscribe_messages=True)
    p.subscribe(**{"py:ch": lambda m: heard.append(m["data"])})
    p.psubscribe(**{"py:pat*": lambda m: heard.append((m["channel"], m["data"]))})
    thread = p.run_in_thread(sleep_time=0.01)
    until = time.monotonic() + 60
    while other.publish("py:pattern", BINARY) != 1 or other.publish("py:ch", "last") != 1:
        assert time.monotonic() < until
    while b"last" not in heard:
        assert time.monotonic() < until
        time.sleep(0.01)
    thread.stop()
    thread.join()
    assert (b"py:pattern", BINARY) in heard, heard


async def asynchronous():
    r = redis.asyncio.Redis(host=HOST, port=PORT, decode_responses=True)
    assert await r.set("py:async", "ü", ex=60)
    assert await asyncio.gather(*[r.get("py:async") for _ in range(50)]) == ["ü"] * 50
    async with r.pipeline() as p:
        assert await p.incr("py:an").incr("py:an").execute() == [1, 2]
    async with r.lock("py:alock", timeout=60):
        assert await r.exists("py:alock") == 1
    async with r.pubsub() as p:
        await p.subscribe("py:ach")
        assert (await p.get_message(timeout=60))["type"] == "subscribe"
        await r.publish("py:ach", "told")
        assert (await p.get_message(timeout=60))["data"] == "told"
    await r.close()
    await r.connection_pool.disconnect()


one = redis.Redis(host=HOST, port=PORT, client_name="with_redis", health_check_interval=1)
two = redis.Redis.from_url(f"redis://{HOST}:{PORT}/0")
values(one)
transactions(one, two)
locks(one, two)
messages(one, two)
asyncio.run(asynchronous())
