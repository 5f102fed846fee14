#!/usr/bin/env python3
"""resp_pubsub.py REDIS RDMAD ROUNDS: channels and patterns, by UNIX sockets of a redis-server and of an rdmad with two workers. Random
commands have byte by byte the same effect on all connections of both; then what a redis-server is not asked: a subscriber that takes
nothing, many that are killed, transactions that come to nothing."""
import random
import re
import sys

from resp_client import LIMIT, Client, command, fail, failures, wait_until


class Connection(Client):
    """Of which all that has come can be looked at."""

    def __init__(self, path, three=False):
        super().__init__(path)
        self.waiting = b""
        if three:
            self.send("HELLO", 3)
            self.until(b"modules\r\n*0\r\n")

    def until(self, end):
        """All up to that; what may be behind it stays."""
        while end not in self.waiting:
            part = self.socket.recv(1 << 16)
            if not part:
                raise EOFError(f"the end came before {end!r}: {self.waiting[-200:]!r}")
            self.waiting += part
        at = self.waiting.index(end) + len(end)
        got, self.waiting = self.waiting[:at], self.waiting[at:]
        return got

    def exactly(self, n):
        parts, there = [self.waiting], len(self.waiting)
        while there < n:
            try:
                part = self.socket.recv(1 << 16)
            except TimeoutError:
                part = b""
            if not part:
                break
            parts.append(part)
            there += len(part)
        self.waiting = b"".join(parts)
        got, self.waiting = self.waiting[:n], self.waiting[n:]
        return got

    def there(self):
        """All that has come."""
        self.socket.setblocking(False)
        try:
            while part := self.socket.recv(1 << 16):
                self.waiting += part
        except BlockingIOError:
            pass
        self.socket.settimeout(LIMIT)
        got, self.waiting = self.waiting, b""
        return got

    def number(self, *words):
        self.send(*words)
        return int(self.until(b"\r\n")[1:])


NAMES = [b"a", b"b", b"news", b"news.one", b"news.two", b"", b"*", b"\x00\r\n\xff", b"n" * 5000]
PATTERNS = [b"*", b"news.*", b"n?ws", b"[ab]", b"", b"news.*one", b"\\*"]


def random_step(r, subscriber):
    some = lambda of: [r.choice(of) for _ in range(r.randint(1, 3))]
    if not subscriber:
        return r.choice([
            lambda: ["PUBLISH", r.choice(NAMES), r.choice([b"", b"m", b"x" * r.randint(1, 20000)])],
            lambda: ["PUBLISH", r.choice(NAMES), b"m"],
            lambda: ["SPUBLISH", r.choice(NAMES), b"of a shard"],
            lambda: ["PUBSUB", "NUMSUB", *some(NAMES)],
            lambda: ["PUBSUB", "SHARDNUMSUB", *some(NAMES)],
            lambda: ["PUBSUB", "NUMPAT"],
            lambda: ["PUBSUB", "CHANNELS", r.choice([b"none*", b"a"])],
            lambda: ["PUBLISH", "a"],
            lambda: ["UNSUBSCRIBE"],
        ])()
    return r.choice([
        lambda: ["SUBSCRIBE", *some(NAMES)],
        lambda: ["SUBSCRIBE", *some(NAMES)],
        lambda: ["PSUBSCRIBE", *some(PATTERNS)],
        lambda: ["SSUBSCRIBE", *some(NAMES)],
        lambda: ["UNSUBSCRIBE", *some(NAMES)],
        lambda: ["PUNSUBSCRIBE", *some(PATTERNS)],
        lambda: ["SUNSUBSCRIBE", *some(NAMES)],
        lambda: ["PING"],
        lambda: ["GET", "a"],
        lambda: ["SUBSCRIBE"],
    ])()


def messages(heard):
    """In any order, as those of several patterns have none in Redis."""
    return sorted(re.split(rb"(?=[*>][234]\r\n\$)", heard))


def compare(redis_path, rdmad_path, rounds):
    r = random.Random(5)
    redis, rdmad = ([Connection(path, i % 2) for i in range(8)] for path in (redis_path, rdmad_path))
    for step in range(rounds):
        i = r.randrange(8)
        words = random_step(r, i < 6)
        mark = b"mark %d" % step
        for all_of in (redis, rdmad):
            all_of[i].socket.sendall(command(*words) + command("PING", mark))
        heard = {i: redis[i].until(mark + b"\r\n")}
        for k, connection in enumerate(redis):  # by then it has sent all that there is
            if part := connection.there():
                heard[k] = heard.get(k, b"") + part
        for k, want in heard.items():
            got = rdmad[k].exactly(len(want))
            if got != want and messages(got) != messages(want):
                fail(f"step {step}, {words!r:.200} by connection {i}, heard by {k}: {got[:300]!r}, not {want[:300]!r}")
                return
    for k, connection in enumerate(rdmad):
        connection.send("PING", "last")
        got = connection.until(b"last\r\n")
        if len(got) > 30:
            fail(f"connection {k} hears more than it should: {got[:300]!r}")


def slow(path):
    """One that takes nothing is cut off, and no other."""
    deaf, honest, publisher = Connection(path), Connection(path), Connection(path)
    for c in (deaf, honest):
        c.send("SUBSCRIBE", "flood")
        c.until(b":1\r\n")
    both, n = [b"m" * (1 << 20), b"short"], 0  # the client that is cut off by the long one had room for the other
    while n < 200:
        publisher.socket.sendall(b"".join(command("PUBLISH", "flood", message) for message in both))
        there = publisher.until(b"\r\n"), publisher.until(b"\r\n")
        honest.exactly(len(b"".join(command("message", "flood", message) for message in both)))
        if there != (b":2\r\n", b":2\r\n"):
            break
        n += 1
    if not 30 <= n < 100:
        fail(f"a subscriber that takes nothing had {n} MiB waiting")
    publisher.number("PUBLISH", "flood", "last")
    if b"last" not in honest.until(b"last\r\n"):
        fail("the honest one did not hear the last")


def busy(path):
    """A worker in a long script, for whose subscribers more messages come than may wait: those that lack one are cut off, the others
    have all."""
    text, most = b"m" * (1 << 20), 13
    subscribers = [Connection(path) for _ in range(12)]
    for i, c in enumerate(subscribers):
        c.send("SUBSCRIBE", f"busy {i:02}")
        c.until(b":1\r\n")
    publishers = [Connection(path) for _ in range(6)]
    script = Connection(path)
    script.send("EVAL", "while true do end", 0)
    free = []
    for c in publishers:  # of the worker that is not in the script: by the second answer it has begun
        c.socket.settimeout(1)
        try:
            for _ in range(2):
                c.send("PING")
                c.until(b"PONG\r\n")
            free.append(c)
        except TimeoutError:
            pass
    if not 0 < len(free) < len(publishers):
        fail(f"of {len(publishers)} connections {len(free)} are of another worker than a script's")
        return
    publisher = free[0]
    publisher.socket.settimeout(LIMIT)
    one = len(command("message", "busy 00", text))
    there = [0] * len(subscribers)
    for _ in range(most):
        for i, c in enumerate(subscribers):
            publisher.number("PUBLISH", f"busy {i:02}", text)
            there[i] += len(c.there())
    early = script.there()
    if not early:
        script.until(b"resp.script_time\r\n")
    cut = 0
    for i, c in enumerate(subscribers):
        try:
            while there[i] < most * one and (part := c.socket.recv(1 << 20)):
                there[i] += len(part)
        except ConnectionResetError:
            pass
        cut += there[i] < most * one
    if early:
        print("the script ended before too many messages waited: this machine is slow now", file=sys.stderr)
    elif not 0 < cut < len(subscribers):
        fail(f"{cut} of {len(subscribers)} subscribers were cut off, of which some are of a busy worker, and some are not")
    for i, c in enumerate(subscribers):
        if there[i] == most * one:
            publisher.number("PUBLISH", f"busy {i:02}", "last")
            c.until(b"last\r\n")


def killed(path):
    publisher = Connection(path)
    for _ in range(3):
        all_of = [Connection(path, i % 2) for i in range(150)]
        for i, c in enumerate(all_of):
            c.send("SUBSCRIBE", "crowd", f"own {i}")
            c.send("PSUBSCRIBE", "cr*")
        for c in all_of:
            c.until(b":3\r\n")
        if (n := publisher.number("PUBLISH", "crowd", "x")) != 300:
            fail(f"300 should have heard it, not {n}")
        for c in all_of[::2]:
            c.until(b"cr*\r\n$5\r\ncrowd\r\n$1\r\nx\r\n")
        for c in all_of:  # with a message that half of them did not read
            c.close()
        wait_until("subscriptions of clients that are gone stay", lambda: publisher.number("PUBLISH", "crowd", "y") == 0)
    if publisher.number("PUBSUB", "NUMPAT"):
        fail("patterns of clients that are gone stay")


def transactions(path):
    """What is published by a step happens with the step, and once."""
    subscriber, one, other = Connection(path), Connection(path), Connection(path, True)
    subscriber.send("SUBSCRIBE", "t")
    subscriber.until(b":1\r\n")
    for words in (("WATCH", "k"), ("MULTI",), ("PUBLISH", "t", "never")):
        one.send(*words)
    one.until(b"QUEUED\r\n")
    other.send("SET", "k", "v")
    other.until(b"OK\r\n")
    one.send("EXEC")
    one.until(b"*-1\r\n")
    for words in (("MULTI",), ("SET", "k", "w"), ("PUBLISH", "t", "once"), ("EXEC",)):
        one.send(*words)
    one.until(b"*2\r\n+OK\r\n:1\r\n")
    one.number("PUBLISH", "t", "last")
    got = subscriber.until(b"last\r\n")
    if b"never" in got or got.count(b"once") != 1:
        fail(f"what a transaction published: {got!r}")
    other.send("SUBSCRIBE", "t")
    other.until(b":1\r\n")
    other.send("PUBLISH", "t", "own")
    if other.until(b"own\r\n") != b":2\r\n>3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$3\r\nown\r\n":
        fail("one's own message comes behind the reply")
    other.send("RESET")
    other.until(b"+RESET\r\n")
    if one.number("PUBLISH", "t", "x") != 1:
        fail("RESET ends subscriptions")


if __name__ == "__main__":
    compare(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    slow(sys.argv[2])
    busy(sys.argv[2])
    killed(sys.argv[2])
    transactions(sys.argv[2])
    sys.exit(1 if failures else 0)
