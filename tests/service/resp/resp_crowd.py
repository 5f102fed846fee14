#!/usr/bin/env python3
"""resp_crowd.py PORT SOCKET LUA ROUNDS: clients that do what no client does, all at once and again: each gets what is due to it and harms
nobody. A good one, a process of its own, looks at each of its replies and how long it waited. In the end the store is empty."""
import multiprocessing
import random
import select
import socket
import struct
import sys
import threading
import time

import resp_client
from resp_client import LIMIT, command, fail, failures

PORT, PATH, LUA, ROUNDS = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "true", int(sys.argv[4])
MIB = 1 << 20
LATE = 20  # seconds that a good client may wait; its usual wait is told, not judged


class Client(resp_client.Client):
    def __init__(self, unix=False):
        super().__init__(PATH if unix else PORT)

    def kill(self):
        """By a reset: what it had not read is thrown away, and the other end is told at once."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def until_closed(self):
        got = b""
        try:
            while part := self.socket.recv(1 << 16):
                got += part
        except ConnectionError:
            pass
        self.kill()
        return got


# --- what the crowd does; each function is a thread

def wrong_lengths(r):
    for bytes_, want in [
        (b"*1\r\n$-1\r\n", b"invalid bulk length"),
        (b"*1\r\n$-2147483649\r\n", b"invalid bulk length"),
        (b"*1\r\n$99999999999999999999999\r\n", b"invalid bulk length"),
        (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
        (b"*1\r\n$4x\r\n", b"invalid bulk length"),
        (b"*1\r\n$\r\n", b"invalid bulk length"),
        (b"*1\r\n:4\r\n", b"expected '$', got ':'"),
        (b"*1048577\r\n", b"invalid multibulk length"),
        (b"*9223372036854775808\r\n", b"invalid multibulk length"),
        (b"*one\r\n", b"invalid multibulk length"),
        (b"*" + b"1" * 70000, b"too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 70000, b"too big bulk count string"),
        (b"x" * 70000, b"too big inline request"),
        (b'SET "k\r\n', b"unbalanced quotes"),
    ]:
        c = Client(r.random() < 0.5)
        try:
            c.socket.sendall(command("PING") + bytes_)
        except ConnectionError:
            pass
        got = c.until_closed()
        # A reset may overtake the reply to the bytes that nobody read.
        if not got.startswith(b"+PONG\r\n-ERR Protocol error: ") and len(bytes_) < 70000 or want not in got and len(bytes_) < 70000:
            fail("a wrong length", bytes_[:40], got)
    c = Client()
    c.socket.sendall(b"*0\r\n*-1\r\n\r\n" + command("ECHO", "goes on"))
    if c.reply() != b"goes on":
        fail("an empty command")
    c.kill()


def many_arguments(r):
    c = Client(True)
    for name, is_right in (("EXISTS", lambda got: got == 0), ("NOSUCH", lambda got: got.startswith(b"-ERR unknown command"))):
        c.socket.sendall(b"*%d\r\n" % MIB + command(name)[4:] + b"$1\r\nk\r\n" * (MIB - 1))
        if not is_right(got := c.reply()):
            fail("a million arguments", name, got)
    if c.ask("PING") != b"+PONG":
        fail("PING behind a million arguments")
    c.kill()


def never_ends(r):
    """A command that goes on and on, as far as it is let; and one of which nothing comes."""
    waits = [Client(), Client(True)]
    for c in waits:
        c.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (500 * MIB))
    c = Client(True)
    c.socket.sendall(b"*1000000\r\n$4\r\nMGET\r\n")
    part = b"$%d\r\n%s\r\n" % (MIB, bytes(MIB))
    sent = 0
    try:
        while sent < 100:
            c.socket.sendall(part)
            sent += 1
    except ConnectionError:
        pass
    for c in waits + [c]:
        c.kill()


def takes_nothing(r):
    """It asks for much, and reads nothing of it."""
    c = Client(r.random() < 0.5)
    asks = command("GET", "long") * 1000
    c.socket.setblocking(False)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        if not select.select([], [c.socket], [], 0.1)[1]:
            continue
        try:
            c.socket.send(asks)
        except (BlockingIOError, ConnectionError):
            pass
    c.kill()


def cut(r):
    """Commands that end at each byte; and that come byte by byte."""
    whole = command("SET", "cut", "v" * 20) + command("EXEC")
    first = len(command("SET", "cut", "v" * 20))
    for n in range(1, first):
        c = Client(n & 1)
        c.socket.sendall(whole[:n])
        c.kill() if n % 3 else c.close()
    c = Client()
    c.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in command("ECHO", b"\0by\r\nbyte\0"):
        c.socket.sendall(bytes([byte]))
    if c.reply() != b"\0by\r\nbyte\0":
        fail("a command that came byte by byte")
    if c.ask("EXISTS", "cut") != 0:
        fail("half a command was carried out")
    c.kill()


def noise(r):
    """NULs and bytes by chance, some of them behind the beginning of a command."""
    for _ in range(20):
        c = Client(r.random() < 0.5)
        begin = r.choice([b"", b"*3\r\n", b"*2\r\n$3\r\nGET\r\n", b"PING\0\r\n", b"\0\r\n", b"HELLO 3\r\n*1\r\n$4\r\n"])
        try:
            c.socket.sendall(begin + (bytes(500) if r.random() < 0.5 else r.randbytes(500)) + b"\r\n")
            c.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        c.until_closed()
    c = Client()
    key = f"nul\0{r.random()}"
    if [c.ask("SET", key, b"\0\0"), c.ask("GET", key), c.ask("DEL", key)] != [b"+OK", b"\0\0", 1]:
        fail("a key with a NUL")
    c.kill()


def killed(r):
    """A reset in each state."""
    states = [
        [b"*3\r\n$3\r\nSET\r\n$6\r\nkill"],
        [command("MULTI"), command("SET", "killed", "x"), command("GET", "long")],
        [command("WATCH", "long", "killed"), command("MULTI")],
        [b"*3\r\n$3\r\nSET\r\n$6\r\nkilled\r\n$%d\r\n" % (2 * MIB) + bytes(MIB)],
        [b"*3\r\n$6\r\nGETSET\r\n$4\r\nlong\r\n$%d\r\n" % (2 * MIB) + bytes(MIB)],
        [command("GET", "long") * 3, 1000],
        [command("SUBSCRIBE", "crowd"), 10],
        [command("HELLO", 3) + command("PSUBSCRIBE", "c*")],
        [command("EVAL", "while true do end", 0)] if LUA else [command("PING")],
        [command("EVAL", "redis.call('SET', 'killed', 'x') local s = redis.call('GET', 'long') while #s > 0 do end", 0)] if LUA else [b"PING"],
        [command("KEYS", "*") + command("INFO"), 1],
        [command("CLIENT", "REPLY", "OFF") + command("GET", "long")],
    ]
    for steps in states:
        c = Client(r.random() < 0.3)
        for step in steps:
            if isinstance(step, bytes):
                c.socket.sendall(step)
            else:
                c.socket.recv(step)
        time.sleep(r.random() / 50)
        c.kill()


def subscribers(r):
    """A thousand that read nothing, while others publish."""
    all_of = [Client(True) for _ in range(1000)]
    for c in all_of:
        c.socket.sendall(command("SUBSCRIBE", "deaf"))
    publisher = Client()
    until = time.monotonic() + LIMIT
    while publisher.ask("PUBLISH", "deaf", "x") < len(all_of):
        if time.monotonic() > until:
            return fail("a thousand subscribers")
    for _ in range(20):
        publisher.ask("PUBLISH", "deaf", bytes(10000))
    for c in [*all_of, publisher]:
        c.kill()


CROWD = [wrong_lengths, many_arguments, never_ends, takes_nothing, takes_nothing, takes_nothing, cut, noise, killed, killed, killed]


def good(number, ends, report):
    """Its replies are right, and come."""
    count, longest = 0, 0.0
    c = Client(number & 1)
    while not ends.is_set():
        begin = time.monotonic()
        count += 1
        value = b"%d\0" % count * 50
        got = [c.ask("SET", f"good {number}", value), c.ask("GET", f"good {number}"), c.ask("INCR", f"count {number}")]
        if got != [b"+OK", value, count]:
            report.put((number, f"got {got!r:.300}"))
            return
        longest = max(longest, time.monotonic() - begin)
    if c.ask("DEL", f"good {number}", f"count {number}") != 2:
        report.put((number, "its keys are gone"))
        return
    report.put((number, count, longest))


def main():
    before = Client()
    if before.ask("SET", "long", bytes(8 * MIB)) != b"+OK":
        fail("the long value")
    ends, report = multiprocessing.Event(), multiprocessing.Queue()
    good_ones = [multiprocessing.Process(target=good, args=(n, ends, report)) for n in range(4)]
    for p in good_ones:
        p.start()

    def careful(member, seed):
        try:
            member(random.Random(seed))
        except Exception as e:
            fail(member.__name__, type(e).__name__, str(e))

    for i in range(ROUNDS):
        crowd = CROWD + ([subscribers] if i == 0 else [])
        threads = [threading.Thread(target=careful, args=(member, 100 * i + k)) for k, member in enumerate(crowd)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    ends.set()
    for _ in good_ones:
        number, *what = report.get(timeout=LIMIT)
        if len(what) == 1 or what[0] < 10 or what[1] > LATE:
            fail(f"the good client {number}: {what}")
        else:
            print(f"the good client {number}: {what[0]} rounds, the longest took {what[1] * 1000:.0f} ms")
    for p in good_ones:
        p.join()
    if before.ask("GET", "long") != bytes(8 * MIB):
        fail("the long value is another one")
    if before.ask("EXISTS", "killed") != 0:
        fail("half a command was carried out")
    before.ask("FLUSHALL")
    before.kill()


main()
sys.exit(1 if failures else 0)
