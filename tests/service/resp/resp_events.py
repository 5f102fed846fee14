#!/usr/bin/env python3
"""resp_events.py REDIS RDMAD ROUNDS: what clients hear of changed keys, by UNIX sockets of a redis-server and of an rdmad with two
workers: keyspace notifications and CLIENT TRACKING in all its modes. Random commands have the same messages on both; then what a
redis-server is not asked: copies that many clients keep are never older than an invalidation, a table that is full, a redirection
whose target has gone, clients that take nothing."""
import random
import re
import sys
import threading
import time

from resp_client import LIMIT, command, fail, failures, wait_until
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
        lambda: ["EVAL", "return redis.call('flushall')", 0] if scripts else ["PING"],
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


TRACK = ["CLIENT", "TRACKING", "ON"]
NUL = b"a\0" + b"b" * 30
# What several clients say in turn; a word "@x" is the number of client x, and those whose name ends in 3 speak RESP3.
SCENES = [
    ["no redirection, no message for RESP2", "a @TRACK", "a GET k", "a SUBSCRIBE x", "w SET k 1"],
    ["a redirection to itself", "a @TRACK REDIRECT @a", "a GET k", "a SUBSCRIBE __redis__:invalidate", "w SET k 1"],
    ["the same of RESP3", "a3 @TRACK REDIRECT @a3", "a3 GET k", "w SET k 1"],
    ["one that has not subscribed", "a3 @TRACK REDIRECT @b", "a3 GET k", "w SET k 1", "a3 CLIENT GETREDIR"],
    ["redirections end at the first", "a3 @TRACK REDIRECT @b3", "b3 @TRACK REDIRECT @c3", "a3 GET k", "b3 GET j", "w MSET k 1 j 1"],
    ["all for RESP2", "b SUBSCRIBE x", "a @TRACK REDIRECT @b", "a GET k", "w FLUSHALL"],
    ["a channel of a shard", "b SSUBSCRIBE x", "a3 @TRACK REDIRECT @b", "a3 GET k", "w SET k 1"],
    ["CACHING for a SET", "a3 @TRACK OPTIN", "a3 CLIENT CACHING YES", "a3 SET z 1", "a3 CLIENT TRACKINGINFO", "a3 GET k", "w SET k 1"],
    ["CACHING for what is unknown", "a3 @TRACK OPTIN", "a3 CLIENT CACHING YES", "a3 NOSUCH", "a3 GET k", "w SET k 1"],
    ["CACHING for what is not whole", "a3 @TRACK OPTIN", "a3 CLIENT CACHING YES", "a3 GET", "a3 GET k", "w SET k 1"],
    ["CACHING for a subcommand", "a3 @TRACK OPTIN", "a3 CLIENT CACHING YES", "a3 CLIENT ID", "a3 CLIENT NOSUCH", "a3 GET k", "w SET k 1"],
    ["CACHING for EXEC", "a3 @TRACK OPTIN", "a3 CLIENT CACHING YES", "a3 MULTI", "a3 GET k", "a3 EXEC", "a3 GET j", "w MSET k 1 j 1"],
    ["CACHING in MULTI", "a3 @TRACK OPTIN", "a3 MULTI", "a3 GET k", "a3 CLIENT CACHING YES", "a3 GET j", "a3 EXEC", "w MSET k 1 j 1"],
    ["keys that a script names", "a3 @TRACK", "a3 EVAL_RO return(1) 1 k", "w SET k 1"],
    ["a switch to RESP2", "a3 @TRACK", "a3 GET k", "a3 GET j", "a3 RESET", "w SET k 1", "a3 CLIENT TRACKINGINFO"],
    ["own changes again", "a3 @TRACK NOLOOP", "a3 GET k", "a3 @TRACK", "a3 SET k 1"],
    ["own changes in EXEC", "a3 @TRACK NOLOOP", "a3 MULTI", "a3 SET k 1", "a3 GET k", "a3 EXEC", "w SET k 2"],
    ["own times in EXEC", "w SET k 1", "a3 @TRACK NOLOOP", "a3 MULTI", "a3 EXPIRE k 99", "a3 GET k", "a3 EXEC", "w SET k 2"],
    ["own changes behind a read", "a3 @TRACK NOLOOP", "a3 MULTI", "a3 GET k", "a3 SET k 1", "a3 EXEC", "w SET k 2"],
    ["prefixes in their order", "a3 @TRACK BCAST PREFIX x PREFIX a", "a3 @TRACK BCAST PREFIX m", "a3 CLIENT TRACKINGINFO", "w MSET m 1 mm 2 n 3 a 4 y 5"],
    ["prefixes with a NUL", "a3 @TRACK BCAST PREFIX @NUL", "w SET @NUL 1", "w SET a 1", "w SET @NULb 1", "a3 CLIENT TRACKINGINFO"],
]


def play(path, lines):
    """Replies, and the clients, by their names."""
    clients, numbers, replies = {}, {}, []

    def client(name):
        if name not in clients:
            clients[name] = Reader(path, name.endswith("3"))
            numbers[name] = clients[name].ask("CLIENT", "ID")
        return clients[name]

    for line in lines:
        who, *texts = line.split()
        words = []
        for text in texts:
            if text == "@TRACK":
                words += TRACK
            elif text.startswith("@NUL"):
                words.append(NUL + text[4:].encode())
            elif text.startswith("@"):
                client(text[1:])
                words.append(numbers[text[1:]])
            else:
                words.append(text)
        reply = client(who).ask(*words)
        names = {number: "@" + name for name, number in numbers.items()}
        replies.append(names.get(reply, reply) if isinstance(reply, int) else reply)
    return replies, clients


def compare_scenes(paths):
    for what, *lines in SCENES:
        for path in paths:
            Reader(path).ask("FLUSHALL")
        (want, theirs), (got, ours) = (play(path, lines) for path in paths)
        if got != want:
            fail(f"{what}: {got}, not {want}")
        for name in theirs:
            for c in (theirs[name], ours[name]):
                c.send("PING")
            theirs[name].heard += iter(lambda c=theirs[name]: after_pong(c), None)
            want = sorted(kept(theirs[name].heard), key=repr)
            end = time.monotonic() + WAIT
            ours[name].heard += iter(lambda c=ours[name]: after_pong(c), None)
            while len(kept(ours[name].heard)) < len(want) and time.monotonic() < end:
                ours[name].send("PING")
                ours[name].heard += iter(lambda c=ours[name]: after_pong(c), None)
            if sorted(kept(ours[name].heard), key=repr) != want:
                fail(f"{what}: {name} heard {ours[name].heard}, not {theirs[name].heard}")
        for c in [*theirs.values(), *ours.values()]:
            c.close()
    print(f"resp_events: {len(SCENES)} scenes are alike")


def after_pong(c):
    """What comes before the answer to PING; None: it has come."""
    value = c.reply()
    if value == b"+PONG" or isinstance(value, list) and value[:1] == [b"pong"]:
        return None
    return value[1] if isinstance(value, tuple) else value


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
    """A client that reads more keys than the table has room for hears of the oldest, behind the reply that has their values."""
    c = Reader(path, True)
    c.ask("CLIENT", "TRACKING", "ON")
    for i in range(0, 24000, 100):
        c.ask("PING")
        heard = len(c.heard)
        c.ask("MGET", *[b"%d:" % k + b"x" * 3900 for k in range(i, i + 100)])
        if len(c.heard) > heard:
            fail("keys left the table before the reply came that may have them")
            break
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
        if f" redir={c.ask('CLIENT', 'GETREDIR')} " not in c.ask("CLIENT", "INFO").decode():
            fail("CLIENT INFO tells of another redirection")
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
    end, i = time.monotonic() + LIMIT, 0
    while "flags=tB" in writer.ask("CLIENT", "LIST").decode() and time.monotonic() < end:
        for _ in range(50):  # few at a time: what a worker misses is told in one short message
            i += 1
            writer.socket.sendall(command("SET", key, i) * 100)
            for _ in range(100):
                writer.take()
    try:
        while True:
            c.reply()
    except (EOFError, ConnectionError):
        return
    except TimeoutError:
        fail("a client that takes no messages stays")


def long_reply(path):
    """A client that has yet to take a long reply is no client that takes no messages."""
    c, writer = Reader(path, True), Reader(path)
    writer.ask("SET", "long", b"x" * (48 << 20))
    c.ask("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "short")
    c.send("GET", "long")
    end = time.monotonic() + WAIT
    while not re.search(r"flags=tB.* omem=[3-5]\d{7} ", writer.ask("CLIENT", "LIST").decode()) and time.monotonic() < end:
        time.sleep(0.01)
    for i in range(3):
        writer.ask("SET", b"short%d" % i, 1)
    try:
        if len(c.take()) != 48 << 20:
            fail("a long reply has another length")
        c.listen(1)
    except (EOFError, OSError) as e:
        fail(f"a client with a long reply was cut off by messages: {e!r:.200}")
    if set(kept(c.heard)) - {b"short0", b"short1", b"short2"} or not c.heard:
        fail(f"behind a long reply: {c.heard}")
    writer.ask("DEL", "long")


def limits(path):
    """Names that one client may have a worker keep."""
    c = Reader(path, True)
    for words in (["SUBSCRIBE", b"x" * (17 << 20)], [*TRACK, "BCAST", "PREFIX", b"x" * 4096],
                  [*TRACK, "BCAST", *[w for i in range(1001) for w in ("PREFIX", b"%d:" % i)]]):
        got = c.ask(*words)
        if not got.startswith(b"-ERR"):
            fail(f"{words[0]} with more names than there may be: {got!r:.200}")
    if c.ask(*TRACK, "BCAST", *[w for i in range(1000) for w in ("PREFIX", b"%d:" % i)]) != b"+OK":
        fail("1000 prefixes")
    writer = Reader(path)
    for i in (0, 1, 999, 1000, 9):
        writer.ask("SET", b"%d:" % i, 1)
        writer.ask("SET", b"%d" % i, 1)
    c.listen(4)
    if kept(c.heard) != [b"0:", b"1:", b"999:", b"9:"]:
        fail(f"with 1000 prefixes: {c.heard}")


def killed(path, rounds):
    """Clients of all kinds come, track, subscribe, redirect to one another, and are killed, while keys change."""
    r, stop, crowd, killer = random.Random(21), threading.Event(), [], Reader(path)

    def write(seed):
        w, c = random.Random(seed), Reader(path)
        while not stop.is_set():
            c.socket.sendall(b"".join(command("SET", b"key:%d" % w.randrange(50), w.randrange(9)) for _ in range(50)))
            for _ in range(50):
                c.take()
            if w.randrange(20) == 0:
                c.ask("FLUSHALL")

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for thread in writers:
        thread.start()
    for _ in range(rounds):
        if len(crowd) < 12:
            c = Reader(path, r.random() < 0.6)
            crowd.append((c, c.ask("CLIENT", "ID")))
        c, number = r.choice(crowd)
        c.send(*r.choice([
            [*TRACK], [*TRACK, "REDIRECT", r.choice(crowd)[1]], [*TRACK, "BCAST"], ["CLIENT", "TRACKING", "OFF"], ["RESET"],
            [*TRACK, "BCAST", "PREFIX", "key:1", "REDIRECT", r.choice(crowd)[1]], ["SUBSCRIBE", "__redis__:invalidate", "x"],
            ["PSUBSCRIBE", "__key*"], ["PUBLISH", "x", "y" * 100], ["UNSUBSCRIBE"], ["MGET", *[f"key:{i}" for i in range(50)]],
            ["HELLO", r.choice([2, 3])], ["MULTI"], ["EXEC"], ["CLIENT", "REPLY", r.choice(["ON", "OFF", "SKIP"])]]))
        if r.random() < 0.3:
            crowd.remove((c, number))
            if r.random() < 0.5:
                killer.ask("CLIENT", "KILL", "ID", number)
            c.close()
    stop.set()
    for thread in writers:
        thread.join()
    for c, _ in crowd:
        c.close()
    names = b"tracking_clients", b"tracking_total_items", b"tracking_total_prefixes", b"pubsub_channels", b"pubsub_patterns"

    def nothing_is_left():
        reader = Reader(path)
        info = reader.ask("INFO", "clients") + reader.ask("INFO", "stats")
        return all(name + b":0\r" in info for name in names)

    wait_until("the end of killed clients, and of what they had", nothing_is_left)


def main():
    paths, rounds = sys.argv[1:3], int(sys.argv[3])
    compare_errors(paths)
    compare_scenes(paths)
    compare_notifications(paths, rounds)
    compare_tracking(paths, rounds)
    copies(paths[1], rounds)
    full_table(paths[1])
    broken(paths[1])
    deaf(paths[1])
    long_reply(paths[1])
    limits(paths[1])
    Reader(paths[1]).ask("CONFIG", "SET", "notify-keyspace-events", "KEA")
    killed(paths[1], rounds // 5)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
