"""change.py PORTS...: clients of three rdmads while check_cluster_change.sh gives them other tables. It prints a line when something is
under way, and waits for a line before it goes on. Status 1: a client saw what it must not see."""

import logging
import socket
import sys
import threading
import time

PORTS = [int(port) for port in sys.argv[1:]]
RESP, MEMCACHED = PORTS[3:6], PORTS[6:9]
CLIENTS, KEYS = 4, 40


def same(a, b):
    if a != b:
        raise SystemExit(f"line {sys._getframe(1).f_lineno}: {a!r}, not {b!r}")


def pack(*words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Connection:
    def __init__(self, port):
        self.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def send(self, data):
        self.file.write(data)
        self.file.flush()

    def ask(self, *words):
        self.send(pack(*words))
        return self.answer()

    def line(self):
        return self.file.readline().decode().rstrip("\r\n")

    def answer(self):
        line = self.line()
        kind, rest = line[0], line[1:]
        if kind in "+-_":
            return line
        if kind == ":":
            return int(rest)
        if kind == "$":
            return None if rest == "-1" else self.file.read(int(rest) + 2)[:-2].decode()
        return None if rest == "-1" else [self.answer() for _ in range(int(rest) * (2 if kind == "%" else 1))]


def go_on(what):
    print(what, flush=True)
    if not sys.stdin.readline():
        raise SystemExit("nobody goes on")


# Clients that route by what they are told, each with keys of its own: a hit is the last value that was acknowledged.
stop = threading.Event()
faults, hits, misses, longest = [], [0], [0], [0.0]


def client(number):
    where = {port: Connection(port) for port in RESP}
    last, at = {}, {}
    count = 0
    while not stop.is_set():
        count += 1
        key = f"key{number}-{count * 7919 % KEYS}"
        value = f"{count}" if count % 9 else f"{count}" + "x" * 30000
        words = ("SET", key, value) if count % 3 == 0 else ("GET", key)
        while not stop.is_set():
            began = time.monotonic()
            answer = where[at.get(key, RESP[0])].ask(*words)
            longest[0] = max(longest[0], time.monotonic() - began)
            if isinstance(answer, str) and answer.startswith("-MOVED"):
                at[key] = int(answer.rsplit(":", 1)[1])
            elif not (isinstance(answer, str) and answer.startswith(("-TRYAGAIN", "-CLUSTERDOWN"))):
                break
        else:
            return
        if words[0] == "SET":
            if answer != "+OK":
                faults.append(f"{words[:2]}: {answer}")
            last[key] = value
        elif answer is None:
            misses[0] += 1
        elif answer != last.get(key):
            faults.append(f"{key}: {answer[:20]}, and {str(last.get(key))[:20]} was acknowledged")
        else:
            hits[0] += 1


def under_load():
    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    go_on("load")
    stop.set()
    for thread in threads:
        thread.join()
    if faults:
        raise SystemExit("\n".join(faults[:5]))
    print(f"hits {hits[0]}, misses {misses[0]}, longest request {longest[0] * 1000:.1f} ms", file=sys.stderr)
    if hits[0] < 10:
        raise SystemExit("there were no hits to speak of")


def key_of(first, last):
    """A key of a slot in the range."""
    ask = Connection(RESP[0]).ask
    return next(key for key in (f"k{i}" for i in range(100000)) if first <= ask("CLUSTER", "KEYSLOT", key) <= last)


def under_way():
    """A transaction, a watch, copies, and long values, of slot 0 to 99, which a loses, and of others, which it keeps."""
    lost, kept = key_of(0, 99), key_of(1000, 2000)
    moved = f"-MOVED {Connection(RESP[0]).ask('CLUSTER', 'KEYSLOT', lost)} 127.0.0.1:{RESP[1]}"
    multi, watch, tracker, long_value, other = [Connection(RESP[0]) for _ in range(5)]
    memcached = Connection(MEMCACHED[0])
    same(multi.ask("SET", lost, "1"), "+OK")
    same(multi.ask("SET", kept, "1"), "+OK")
    slot = other.ask("CLUSTER", "KEYSLOT", lost)
    same(other.ask("CLUSTER", "COUNTKEYSINSLOT", slot), 1)
    same(other.ask("CLUSTER", "GETKEYSINSLOT", slot, 10), [lost])
    same(other.ask("CLUSTER", "GETKEYSINSLOT", slot, 0), [])
    same(other.ask("CLUSTER", "GETKEYSINSLOT", 16384, 1)[:4], "-ERR")
    same(other.ask("CLUSTER", "COUNTKEYSINSLOT", "x")[:4], "-ERR")
    same([other.ask(w) for w in ("READONLY", "READWRITE", "ASKING")], ["+OK"] * 3)
    same(multi.ask("MULTI"), "+OK")
    same(multi.ask("SET", kept, "2"), "+QUEUED")
    same(multi.ask("SET", lost, "2"), "+QUEUED")
    same(watch.ask("WATCH", lost), "+OK")
    same(watch.ask("MULTI"), "+OK")
    same(watch.ask("SET", kept, "3"), "+QUEUED")
    tracker.ask("HELLO", "3")
    same(tracker.ask("CLIENT", "TRACKING", "ON"), "+OK")
    same(tracker.ask("GET", kept), "1")
    value = b"y" * 500000
    long_value.send(pack("SET", lost, value)[:300000])
    memcached.send(b"set %s 0 0 500000\r\n" % lost.encode() + value[:300000])
    same(other.ask("PING"), "+PONG")
    go_on("under way")
    same(tracker.answer(), ["invalidate", "_"])  # all its copies
    same(multi.ask("EXEC"), moved)
    same(multi.ask("GET", kept), "1")  # nothing of it happened
    same(watch.ask("EXEC"), None)
    same(other.ask("GET", kept), "1")
    long_value.send(pack("SET", lost, value)[300000:])
    same(long_value.answer(), moved)
    memcached.send(value[300000:] + b"\r\nget %s\r\n" % kept.encode())
    same(memcached.line(), "SERVER_ERROR another server has the key, see rdmad-cluster(7)")
    same(memcached.line(), f"VALUE {kept} 0 1")
    same(other.ask("GET", lost), moved)
    there = Connection(RESP[1])
    while (answer := there.ask("SET", lost, "there")) != "+OK":
        same(answer[:9], "-TRYAGAIN")
    go_on("moved")
    # It has come back, and has nothing of before.
    while isinstance(answer := other.ask("GET", lost), str):
        same(answer[:9], "-TRYAGAIN")
    same(other.ask("CLUSTER", "COUNTKEYSINSLOT", slot), 0)
    info = dict(line.split(":") for line in other.ask("CLUSTER", "INFO").split("\r\n") if line)
    same((info["cluster_state"], info["cluster_slots_ok"], info["cluster_current_epoch"]), ("ok", "16384", info["cluster_my_epoch"]))


def library():
    """python3-redis, whose client of a cluster learns of each change by MOVED."""
    try:
        from redis.cluster import RedisCluster
        from redis.exceptions import RedisError
    except ImportError:
        go_on("library")
        return
    logging.disable(logging.CRITICAL)  # it tells of each redirection
    over = threading.Event()
    seen = []

    def work():
        client, last = RedisCluster(host="127.0.0.1", port=RESP[0]), {}
        for count in range(10**9):
            key = f"library{count % 30}"
            try:
                if count % 2:
                    client.set(key, count)
                    last[key] = b"%d" % count
                elif (value := client.get(key)) is not None:
                    seen.append(value == last.get(key) or key not in last)
            except RedisError:
                last.pop(key, None)  # between the one that loses and the one that gains it may give up, in doubt
            if over.is_set() and count % 30 == 29:
                break
        for i in range(30):
            client.set(f"library{i}", i)
        same([client.get(f"library{i}") for i in range(30)], [b"%d" % i for i in range(30)])
        seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    go_on("library")
    over.set()
    thread.join()
    if not seen or not all(seen):
        raise SystemExit(f"python3-redis saw an old value, or nothing: {len(seen)} hits")


for part in (under_way, under_load, library):
    part()
print("the end", flush=True)
