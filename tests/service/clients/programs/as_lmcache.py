#!/usr/bin/env python3
"""as_lmcache.py HOST PORT PASSWORD: of the user "default", whom half of the connections name: what LMCache's RESP adapter sends, and how it reads the answers, to the byte: 8 connections, a request in
flight on each, values of up to 32 MiB. Any other answer than those here ends it there."""
import hashlib
import socket
import sys
import threading

HOST, PORT, PASSWORD = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
CONNECTIONS = 8
KIB, MIB = 1 << 10, 1 << 20
failures = []


class Connection:
    def __init__(self, names_user):
        self.socket = socket.create_connection((HOST, PORT))
        self.socket.settimeout(100)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = b"*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n" if names_user else b"*2\r\n$4\r\nAUTH\r\n"
        self.socket.sendall(begin + b"$%d\r\n%s\r\n" % (len(PASSWORD), PASSWORD))
        self.answers(b"+OK\r\n")

    def exactly(self, n):
        got = bytearray(n)
        at = memoryview(got)
        while at:
            n = self.socket.recv_into(at)
            if not n:
                raise EOFError("the connection ended")
            at = at[n:]
        return bytes(got)

    def answers(self, *wants):
        got = self.exactly(len(wants[0]))
        if got not in wants:
            raise ValueError(f"{got!r}, not {wants!r}")
        return got

    def line(self):
        got = b""
        while not got.endswith(b"\n"):
            got += self.exactly(1)
        return got

    def send_parts(self, *parts):
        """All in one call, and the rest of what the kernel did not take."""
        parts = [memoryview(p) for p in parts]
        while parts:
            sent = self.socket.sendmsg(parts)
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][sent:]

    def set(self, key, value):
        self.send_parts(b"*3\r\n$3\r\nSET\r\n$%d\r\n" % len(key), key, b"\r\n$%d\r\n" % len(value), value, b"\r\n")
        self.answers(b"+OK\r\n")

    def get(self, key, n):
        self.socket.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key))
        header = self.line()
        if header == b"$-1\r\n":
            return None
        if header != b"$%d\r\n" % n:
            raise ValueError(f"{header!r}, not the length {n}")
        value = self.exactly(n)
        self.answers(b"\r\n")
        return value

    def one(self, name, key):
        self.socket.sendall(b"*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(name), name, len(key), key))
        return self.answers(b":0\r\n", b":1\r\n") == b":1\r\n"


def key_of(text):
    return b"a-model/of 70B@%08x kv_rank@0 group@%s" % (len(text), hashlib.sha256(text.encode()).hexdigest().encode())


def value_of(number, n):
    return (hashlib.sha256(b"%d" % number).digest() * (n // 32 + 1))[:n]


def worker(number):
    try:
        c = Connection(number % 2 == 0)
        for n in (0, 1, 16 * KIB - 1, 16 * KIB, 255 * KIB, MIB, 3 * MIB + 1):
            key, value = key_of(f"{number} {n}"), value_of(number, n)
            if c.one(b"EXISTS", key) or c.get(key, n) is not None or c.one(b"DEL", key):
                raise ValueError("a key that nobody stored is there")
            c.set(key, value)
            if c.get(key, n) != value or not c.one(b"EXISTS", key):
                raise ValueError(f"a value of {n} bytes is another one")
            c.set(key, value_of(number + 1, n))
            if c.get(key, n) != value_of(number + 1, n) or not c.one(b"DEL", key) or c.one(b"DEL", key):
                raise ValueError(f"a value of {n} bytes that was stored again is another one")
        # The same large key, by all; then one that half of them reads while the others store.
        shared, big = key_of("shared"), value_of(100, 32 * MIB)
        barrier.wait()
        if number % 4 == 0:
            c.set(shared, big)
        barrier.wait()
        for _ in range(2):
            if number < 2:
                c.set(shared, big)
            elif c.get(shared, len(big)) != big:
                raise ValueError("a value of 32 MiB is another one")
        c.socket.close()
    except Exception as e:
        failures.append(f"connection {number}: {type(e).__name__}: {e}")
        barrier.abort()


barrier = threading.Barrier(CONNECTIONS)
threads = [threading.Thread(target=worker, args=(i,)) for i in range(CONNECTIONS)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for text in failures:
    print(text, file=sys.stderr)
sys.exit(1 if failures else 0)
