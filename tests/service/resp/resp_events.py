#!/usr/bin/env python3
"""resp_events.py REDIS RDMAD ROUNDS: what clients hear of changed keys, by UNIX sockets of a redis-server and of an rdmad with two
workers: keyspace notifications and CLIENT TRACKING in all its modes. Random commands have the same messages on both; then what a
redis-server is not asked: copies that many clients keep are never older than an invalidation, a table that is full, a redirection
whose target has gone, clients that take nothing."""
import random
import sys
import threading
import time

from resp_client import command, fail, failures
from resp_pubsub import Connection

WAIT = 10


class Reader(Connection):
    """Replies as Python's values; pushes and messages go to `heard`."""

    def __init__(self, path, three=False):
        super().__init__(path)
        self.heard = []
        self.three = three
        if three:
            self.ask("HELLO", 3)

    def line(self):
        return self.until(b"\r\n")[:-2]

    def take(self):
        """The next reply; what is none was heard."""
        while True:
            value = self.reply()
            if isinstance(value, tuple):
                self.heard.append(value[1])
            elif not self.three and isinstance(value, list) and value[:1] in ([b"message"], [b"pmessage"]):
                self.heard.append(value)
            else:
                return value

    def ask(self, *words):
        self.send(*words)
        return self.take()

    def listen(self, count):
        """Until so much was heard, or a while has passed."""
        end = time.monotonic() + WAIT
        while len(self.heard) < count and time.monotonic() < end:
            self.ask("PING")
            if len(self.heard) < count:
                time.sleep(0.001)


def kept(heard):
    """Invalidated keys in their order, whatever messages they came in; None: all."""
    keys = []
    for message in heard:
        if message[0] in (b"invalidate", b"message"):
            keys += [None] if message[-1] is None else message[-1]
        else:
            keys.append(tuple(message))
    return keys


KEYS = [b"a", b"b", b"user:1", b"user:2", b"u", b"h", b"h2", b"k" * 3000, b"\x00\r\n\xff"]


def random_command(r, scripts):
    key, other = r.choice(KEYS), r.choice(KEYS)
    return r.choice([
        lambda: ["SET", key, r.randint(0, 99)],
        lambda: ["SET", key, "v", "EX", 1000],
        lambda: ["SET", key, "v", "KEEPTTL"],
        lambda: ["SET", key, "v", r.choice(["NX", "XX"])],
        lambda: ["SET", key, "v", "GET"],
        lambda: ["SETEX", key, 100, "v"],
        lambda: ["PSETEX", key, 100000, "v"],
        lambda: ["SETNX", key, "v"],
        lambda: ["GETSET", key, "v"],
        lambda: ["GETDEL", key],
        lambda: ["GETEX", key, "EX", 50],
        lambda: ["GETEX", key, "PERSIST"],
        lambda: ["GETEX", key],
        lambda: ["MSET", key, "1", other + b"+", "2"],
        lambda: ["MSETNX", key, "1", other + b"+", "2"],
        lambda: ["APPEND", key, r.choice(["x", ""])],
        lambda: ["SETRANGE", key, r.choice([0, 3]), r.choice(["y", ""])],
        lambda: ["INCR", key],
        lambda: ["DECRBY", key, 3],
        lambda: ["INCRBYFLOAT", key, "1.5"],
        lambda: ["DEL", key, other],
        lambda: ["UNLINK", key],
        lambda: ["EXPIRE", key, r.choice([100, -1])],
        lambda: ["PEXPIREAT", key, 9999999999999],
        lambda: ["PERSIST", key],
        lambda: ["RENAME", key, other + b"+"],
        lambda: ["RENAMENX", key, other + b"+"],
        lambda: ["COPY", key, other + b"+", *r.choice([[], ["REPLACE"]])],
        lambda: ["HSET", key, "f", "1", "g", "2"],
        lambda: ["HSETNX", key, "f", "1"],
        lambda: ["HINCRBY", key, "f", 2],
        lambda: ["HINCRBYFLOAT", key, "f", "0.5"],
        lambda: ["HDEL", key, "f"],
        lambda: ["HDEL", key, "f", "g"],
        lambda: ["GET", key],
        lambda: ["FLUSHALL"],
        lambda: ["EVAL", "return redis.call('set', KEYS[1], ARGV[1])", 1, key, "s"] if scripts else ["PING"],
    ])()


FLAGS = ["KEA", "KEA", "KEAn", "Kg$", "E$h", "Kx", "KEg", "", "Elsztd", "AKE"]
BAD = ["Q", "K E", "kea"]


def compare_notifications(paths, rounds):
    r = random.Random(11)
    speakers, listeners = [Reader(p) for p in paths], [Reader(p, three) for p in paths for three in [True]]
    for c in speakers:
        c.ask("FLUSHALL")
    for c in listeners:
        c.send("PSUBSCRIBE", "__key*__:*")
        c.ask("PING")
        c.heard.clear()
    for step in range(rounds):
        if step % 40 == 0:
            for _ in range(2):  # what happened under the former flags was looked at
                listeners[1].ask("PING")
            flags = r.choice(FLAGS)
            for letters in (r.choice(BAD), flags):  # a Redis that refuses letters may forget 'n'
                got = [c.ask("CONFIG", "SET", "notify-keyspace-events", letters) for c in speakers]
                if got[0][:1] != got[1][:1]:
                    fail(f"CONFIG SET {letters!r}: {got}")
            got = [c.ask("CONFIG", "GET", "notify-keyspace-events") for c in speakers]
            if got[0] != got[1]:
                fail(f"CONFIG GET behind {flags!r}: {got}")
        words = random_command(r, True)
        replies = [c.ask(*words) for c in speakers]
        if replies[0] != replies[1] and words[0] != "FLUSHALL":
            fail(f"step {step}, {words!r:.200}: {replies!r:.300}")
            return
        listeners[0].ask("PING")
        listeners[1].listen(len(listeners[0].heard))
        if sorted(listeners[0].heard) != sorted(listeners[1].heard):
            fail(f"step {step}, {words!r:.200}, flags {flags}:\n{listeners[1].heard!r:.900}, not\n{listeners[0].heard!r:.900}")
            return
        for c in listeners:
            c.heard.clear()
    print(f"resp_events: {rounds} commands have the same notifications")


MODES = [[], ["NOLOOP"], ["OPTIN"], ["OPTOUT"], ["BCAST"], ["BCAST", "PREFIX", "user:", "PREFIX", "h"], ["BCAST", "NOLOOP"], ["OPTIN", "NOLOOP"]]


def compare_tracking(paths, rounds):
    """Eight clients, each with a mode; one of them is RESP2, and another hears for it."""
    r = random.Random(12)
    crowds = []
    for path in paths:
        crowd = [Reader(path, True) for _ in MODES]
        for c, mode in zip(crowd, MODES):
            if c.ask("CLIENT", "TRACKING", "ON", *mode) != b"+OK":
                fail(f"TRACKING ON {mode}")
        ears, two = Reader(path), Reader(path)
        number = ears.ask("CLIENT", "ID")
        ears.ask("SUBSCRIBE", "__redis__:invalidate")
        ears.heard.clear()
        if two.ask("CLIENT", "TRACKING", "ON", "REDIRECT", number) != b"+OK" or two.ask("CLIENT", "GETREDIR") != number:
            fail("REDIRECT")
        crowds.append(crowd + [two, ears])
    for crowd in crowds:
        crowd[0].ask("FLUSHALL")
        for c in crowd:
            c.ask("PING")
            time.sleep(0.05)
            c.ask("PING")
            c.heard.clear()
    for step in range(rounds):
        i = r.randrange(len(MODES) + 1)
        words = [random_command(r, False)]  # Redis tells a client of what its own script has changed, whatever it asked for
        if r.random() < 0.4:
            words = [["GET", r.choice(KEYS)]]
        if r.random() < 0.2:
            words = [["MGET", r.choice(KEYS), r.choice(KEYS)]]
        if r.random() < 0.2:
            words = [["CLIENT", "CACHING", r.choice(["YES", "NO"])], *words]
        if r.random() < 0.1:
            words = [["MULTI"], ["GET", r.choice(KEYS)], ["HGETALL", "h"], ["EXEC"]]
        for word in words:
            replies = [crowd[i].ask(*word) for crowd in crowds]
            if replies[0] != replies[1] and not (word[0] == "FLUSHALL"):
                fail(f"step {step}, {word!r:.200} by {i}: {replies!r:.300}")
                return
        for k in range(len(crowds[0])):
            crowds[0][k].ask("PING")
            want = kept(crowds[0][k].heard)
            end = time.monotonic() + WAIT
            while len(kept(crowds[1][k].heard)) < len(want) and time.monotonic() < end:
                crowds[1][k].ask("PING")
            got = kept(crowds[1][k].heard)
            if sorted(got, key=repr) != sorted(want, key=repr):
                fail(f"step {step}, {words!r:.300} by {i}, heard by {k} {(MODES + ['redirect', 'ears'])[k]}: {got!r:.500}, not {want!r:.500}")
                return
            for crowd in crowds:
                crowd[k].heard.clear()
        if step % 50 == 0:
            for k in range(len(MODES)):
                got = [c[k].ask("CLIENT", "TRACKINGINFO") for c in crowds]
                for info in got:
                    info[-1].sort()
                if got[0] != got[1]:
                    fail(f"TRACKINGINFO of {MODES[k]}: {got}")
    print(f"resp_events: {rounds} commands of tracking clients have the same messages")


def compare_errors(paths):
    asks = [
        ["CLIENT", "TRACKING", "ON", "PREFIX", "a"],
        ["CLIENT", "TRACKING", "ON", "BCAST", "OPTIN"],
        ["CLIENT", "TRACKING", "ON", "OPTIN", "OPTOUT"],
        ["CLIENT", "TRACKING", "ON", "REDIRECT", 999999],
        ["CLIENT", "TRACKING", "ON", "REDIRECT", "x"],
        ["CLIENT", "TRACKING", "ON", "QUICKLY"],
        ["CLIENT", "TRACKING", "ON", "PREFIX"],
        ["CLIENT", "TRACKING", "MAYBE"],
        ["CLIENT", "TRACKING", "OFF"],
        ["CLIENT", "CACHING", "YES"],
        ["CLIENT", "GETREDIR"],
        ["CLIENT", "TRACKINGINFO"],
        ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "ab", "PREFIX", "abc"],
        ["CLIENT", "TRACKINGINFO"],
        ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "ab"],
        ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "ab"],
        ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x"],
        ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a"],
        ["CLIENT", "TRACKING", "ON"],
        ["CLIENT", "CACHING", "YES"],
        ["CLIENT", "TRACKINGINFO"],
        ["CLIENT", "TRACKING", "OFF"],
        ["CLIENT", "TRACKING", "ON", "OPTIN"],
        ["CLIENT", "TRACKING", "ON", "OPTOUT"],
        ["CLIENT", "TRACKING", "ON", "BCAST"],
        ["CLIENT", "CACHING", "NO"],
        ["CLIENT", "CACHING", "MAYBE"],
        ["CLIENT", "CACHING", "YES"],
        ["CLIENT", "TRACKINGINFO"],
        ["CLIENT", "TRACKINGINFO"],
        ["RESET"],
        ["CLIENT", "TRACKINGINFO"],
    ]
    both = [Reader(p) for p in paths]
    for words in asks:
        got = [c.ask(*words) for c in both]
        if words[2:3] == ["ON"] and b"overlaps" in (got[0] if isinstance(got[0], bytes) else b""):
            got = [g[:12] for g in got]  # which of the two is named first
        if got[0] != got[1]:
            fail(f"{words}: {got[1]!r}, not {got[0]!r}")


class Cache(threading.Thread):
    """A client that keeps what it read until it is told that it has changed."""

    def __init__(self, path, seed, mode):
        super().__init__()
        self.random, self.reader = random.Random(seed), Reader(path, True)
        if self.reader.ask("CLIENT", "TRACKING", "ON", *mode) != b"+OK":
            fail("TRACKING ON")
        self.copy, self.hits, self.stop = {}, 0, False

    def hear(self):
        for message in self.reader.heard:
            for key in message[1] or list(self.copy):
                self.copy.pop(key, None)
        self.reader.heard.clear()

    def run(self):
        while not self.stop:
            key = b"copy:%d" % self.random.randrange(20)
            if key in self.copy:
                self.hits += 1
                self.reader.ask("PING")
                self.hear()
                continue
            value = self.reader.ask("GET", key)
            self.hear()  # what was heard in front of the reply is of earlier values
            self.copy[key] = value


def copies(path, rounds):
    caches = [Cache(path, i, mode) for i, mode in enumerate([[], [], ["BCAST"], ["BCAST", "PREFIX", "copy:"], ["NOLOOP"], []])]
    for cache in caches:
        cache.start()
    r, writers = random.Random(5), [Reader(path) for _ in range(4)]
    for _ in range(rounds // 20):
        asked = [r.choice(writers) for _ in range(20)]
        for c in asked:
            key, i = b"copy:%d" % r.randrange(20), r.randrange(1000)
            c.send(*r.choice([["SET", key, i], ["INCR", key], ["DEL", key], ["PEXPIRE", key, 1], ["SET", key, i, "PX", 2]]))
        for c in asked:
            c.take()
    time.sleep(0.05)  # what expires has
    for cache in caches:
        cache.stop = True
    for cache in caches:
        cache.join()
    known = {b"copy:%d" % k: writers[0].ask("GET", b"copy:%d" % k) for k in range(20)}
    for i, cache in enumerate(caches):
        end = time.monotonic() + WAIT
        while any(known[k] != v for k, v in cache.copy.items()) and time.monotonic() < end:
            cache.reader.ask("PING")
            cache.hear()
        stale = {k: v for k, v in cache.copy.items() if known[k] != v}
        if stale or not cache.hits:
            fail(f"cache {i} has copies that are too old: {stale}, now {known}; {cache.hits} hits")
    print("resp_events:", sum(c.hits for c in caches), "hits in copies")


def full_table(path):
    """A client that reads more keys than the table has room for hears of the oldest."""
    c = Reader(path, True)
    c.ask("CLIENT", "TRACKING", "ON")
    for i in range(0, 24000, 100):
        c.ask("MGET", *[b"%d:" % k + b"x" * 3900 for k in range(i, i + 100)])
    if not 5000 < len(kept(c.heard)) < 20000 or kept(c.heard)[0] != b"0:" + b"x" * 3900:
        fail(f"{len(kept(c.heard))} keys left the table")
    info = Reader(path).ask("INFO", "stats").decode()
    items = int(info.split("tracking_total_items:")[1].split()[0])
    if not 4000 < items < 20000:
        fail(f"{items} keys are tracked")
    c.ask("CLIENT", "TRACKING", "OFF")


def broken(path):
    """The target of a redirection goes; a client with RESP3 hears of it."""
    for _ in range(6):  # on the same worker, and on the other
        target, c, writer = Reader(path), Reader(path, True), Reader(path)
        target.ask("SUBSCRIBE", "__redis__:invalidate")
        c.ask("CLIENT", "TRACKING", "ON", "REDIRECT", newest_subscriber(c))
        target.close()
        end = time.monotonic() + WAIT
        while b"broken_redirect" not in c.ask("CLIENT", "TRACKINGINFO")[1] and time.monotonic() < end:
            time.sleep(0.01)
        c.ask("GET", "broken")
        writer.ask("SET", "broken", 1)
        c.listen(1)
        if [m[0] for m in c.heard] != [b"tracking-redir-broken"]:
            fail(f"behind a redirection that is broken: {c.heard}")


def newest_subscriber(asker):
    lines = asker.ask("CLIENT", "LIST").decode().split("\n")
    return max(int(line.split("id=")[1].split()[0]) for line in lines if " sub=1 " in line)


def deaf(path):
    """A client that takes no messages is cut off, and others go on."""
    c, writer = Reader(path, True), Reader(path)
    c.ask("CLIENT", "TRACKING", "ON", "BCAST")
    key = b"d" * 4000
    for i in range(600):  # few at a time: what a worker misses is told in one short message
        writer.socket.sendall(command("SET", key, i) * 100)
        for _ in range(100):
            writer.take()
        if i % 50 == 49 and "flags=tB" not in writer.ask("CLIENT", "LIST").decode():
            break
    end = time.monotonic() + WAIT
    while "flags=tB" in writer.ask("CLIENT", "LIST").decode() and time.monotonic() < end:
        time.sleep(0.05)
    try:
        while True:
            c.reply()
    except (EOFError, ConnectionError):
        return
    except TimeoutError:
        fail("a client that takes no messages stays")


def main():
    paths, rounds = sys.argv[1:3], int(sys.argv[3])
    compare_errors(paths)
    compare_notifications(paths, rounds)
    compare_tracking(paths, rounds)
    copies(paths[1], rounds)
    full_table(paths[1])
    broken(paths[1])
    deaf(paths[1])
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
