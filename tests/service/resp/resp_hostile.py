#!/usr/bin/env python3
"""resp_hostile.py SOCKET ROUNDS [RELOAD...]: what no client of Redis's protocol does by mistake. The daemon is to be built with sanitizers,
and has two workers. With a command that reloads the daemon: it has one, and takes the rights of all keys then."""
import random
import select
import subprocess
import sys
import threading

import resp_client
from resp_client import check, command, failures

PATH, ROUNDS = sys.argv[1], int(sys.argv[2])
MIB = 1 << 20
LONG = 20000  # bytes, which go to their place at once


class Client(resp_client.Client):
    def __init__(self):
        super().__init__(PATH)

    def send_all(self, *commands):
        self.socket.sendall(b"".join(command(*words) for words in commands))


def watched_keys():
    """A step has the names of watched keys until it ends."""
    one, other = Client(), Client()
    one.ask("WATCH", "watched 1", "watched 2")
    other.ask("SET", "watched 2", "x")
    one.ask("MULTI")
    one.ask("SET", "written", "x")
    check("EXEC behind a change", one.ask("EXEC"), None)
    check("what it would have written", one.ask("GET", "written"), None)
    one.ask("WATCH", "watched 1", "watched 2")
    one.ask("MULTI")
    one.ask("UNWATCH")
    one.ask("SET", "watched 1", "y")
    one.ask("GET", "watched 2")
    check("UNWATCH in a transaction", one.ask("EXEC"), [b"+OK", b"+OK", b"x"])
    one.ask("MULTI")
    check("EXEC behind it", one.ask("EXEC"), [])
    check("WATCH of many keys", one.ask("WATCH", *range(100000)), b"+OK")
    other.ask("SET", "0", "x")
    one.ask("MULTI")
    check("EXEC with many keys", one.ask("EXEC"), None)


def one_long_value():
    """Threads replace a value at once: each is whole. That none is read from where it was, the thread sanitizer sees."""
    def replace(client, first):
        for i in range(0, ROUNDS, 16):
            client.send_all(*[("GETSET", "long", bytes([first + (i + j) % 16]) * LONG) for j in range(16)])
            for _ in range(16):
                old = client.reply()
                if old is not None and (len(old) != LONG or old.count(old[:1]) != LONG):
                    check("a value", old, "one byte again and again")

    threads = [threading.Thread(target=replace, args=(Client(), ord("A") + 16 * i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def index_of_fields():
    """A command with many names of a hash has an index of its fields, which does not stay until the end of the transaction."""
    client = Client()
    pid = int(client.ask("INFO", "server").split(b"process_id:")[1].split()[0])

    def resident():
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))

    check("a long hash", client.ask("HSET", "hash", "field", bytes(65000)), 1)
    client.send_all(["MULTI"], *[["HMGET", "hash", *range(8)]] * 2000)
    for _ in range(2001):
        client.reply()
    before = peak = resident()
    client.send_all(["EXEC"])
    while not select.select([client.socket], [], [], 0.01)[0]:
        peak = max(peak, resident())
    check("EXEC", client.reply(), [[None] * 8] * 2000)
    if peak - before > 100:
        check("MiB that it took", peak - before, "100 at most")
    client.ask("DEL", "hash")


def long_transaction():
    """Each of its commands goes through all keys: it ends before the watchdog of the service takes the worker for one that hangs."""
    client, other = Client(), Client()
    client.ask("MSET", *[i // 2 for i in range(20000)])
    client.send_all(["MULTI"], ["SET", "of a long transaction", "x"], *[["KEYS", "none"]] * 100000, ["EXEC"])
    for _ in range(100002):
        client.reply()
    answer = client.reply()
    check("a transaction without end", answer[:24], b"-ERR transaction took mo")
    check("what it would have written", other.ask("EXISTS", "of a long transaction"), 0)
    check("the next one", [client.ask(*words) for words in (["MULTI"], ["PING"], ["EXEC"])], [b"+OK", b"+QUEUED", [b"+PONG"]])


def others_stop():
    """Long values that are not whole are in the way of one that is: it does not wait for them for ever."""
    chance = random.Random(1)
    for i, size in enumerate([14] * 3 + [20] + [1] * 30 + [14]):
        Client().ask("SET", f"filler {i}", bytes(size * MIB))
    for _ in range(20):
        clients = [Client() for _ in range(5)]
        left = [8 * MIB] * 5
        for i, client in enumerate(clients):
            client.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\n%d\r\n$%d\r\n" % (i, left[i]))
            client.socket.setblocking(False)
        while any(left):
            i = chance.choice([i for i in range(5) if left[i]])
            count = min(left[i], chance.randrange(1, MIB))
            while count and select.select([], [clients[i].socket], [], 0.5)[1]:
                sent = clients[i].socket.send(bytes(count))
                left[i] -= sent
                count -= sent
            if not count:
                continue
            clients[i].socket.settimeout(60)
            clients[i].socket.sendall(bytes(left[i]) + b"\r\n")
            answer = clients[i].reply()
            check("a long value that others are in the way of", answer[:4], answer[:4] if answer[:4] in (b"+OK", b"-OOM") else b"-OOM")
            return
        for client in clients:
            client.socket.settimeout(60)
            client.socket.sendall(b"\r\n")
            client.reply()
    print("nothing was in the way of a long value")


def overtaken(reload):
    """A connection that comes while its worker is busy, and a reload behind it: it has the rights of the new file."""
    busy = Client()
    busy.ask("MSET", *[i // 2 for i in range(10000)])
    busy.send_all(["MULTI"], *[["KEYS", "none"]] * 1000, ["EXEC"])
    late = Client()
    subprocess.run(reload, check=True, timeout=120)
    check("a connection that a reload overtook", late.ask("GET", "1")[:7], b"-NOPERM")


if len(sys.argv) > 3:
    overtaken(sys.argv[3:])
else:
    watched_keys()
    one_long_value()
    index_of_fields()
    long_transaction()
    others_stop()
sys.exit(1 if failures else 0)
