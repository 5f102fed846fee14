#!/usr/bin/env python3
"""The same random commands to a redis-server and to rdmad, each of whose replies has to be the same, byte by byte.

    resp_differential.py [--rdmad PATH] [--redis PATH] [--commands N] [--seed S] [--log] [--valkey PATH] [--self]

Commands are right and wrong ones, with options in all orders, binary keys and values, lengths at the edges, over RESP2 and
RESP3, one by one, in pipelines and in MULTI. It starts both servers in a directory of its own, and ends them. With --valkey rdmad
hears all over RDMA, as Valkey has it, by the bridge of that program (valkey_rdma.c). --self starts two redis-servers: what differs
then is this script's fault.

What may differ has a reason, in the functions of the table DIFFERENCES. What Redis 7.0 does not know, newer Redis and Valkey do:
those replies stand in NEWER. Exit status 77: there is no redis-server.
"""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import resp_client
from resp_client import LIMIT

KEY_MAX = 4095
ROUND = 400  # commands between two FLUSHALL

# Keys with values that most commands find, so that commands meet.
KEYS = [b"a", b"b", b"c", b"key:1", b"key:2", b"{tag}x", b"with space", b"\x00\xff\r\n\x80", b"k" * 300, b"9" * KEY_MAX]
NO_KEYS = [b"none", b"", b"x" * (KEY_MAX + 1), b"y" * 5000]  # the last three no key of rdmad: they are only read
INTEGERS = [b"0", b"1", b"-1", b"10", b"12345", b"9223372036854775807", b"-9223372036854775808", b"9223372036854775806",
            b"4294967296", b"2147483648", b"-2147483649"]
NO_INTEGERS = [b"", b" 1", b"1 ", b"+1", b"01", b"-0", b"1.5", b"abc", b"9223372036854775808", b"-9223372036854775809", b"0x10",
               b"1e3", b"1" * 30, b"-", b"\x001"]
FLOATS = [b"0.1", b"-1.5", b"3.0e3", b"1e10", b"0x1p3", b"1e-10", b"123456789.123456789", b"5", b"-0.0", b".5", b"5.", b"1e17",
          b"1e300", b"-1e300", b"1e4000"]
NO_FLOATS = [b"", b" 1", b"1 ", b"nan", b"inf", b"-inf", b"infinity", b"abc", b"1e5000", b"-1e5000", b"1e-5000", b"1,5", b"1.2.3"]
TEXTS = [b"", b"x", b"hello", b"\r\n", b"\x00", b"\xff\xfe\x00binary\r\n", b"e" * 44, b"r" * 45, b"12345678901234567890",
         b"v" * 1000, b"w" * 4095, b"w" * 4096, b"w" * 4097, b"p" * 16384, b"q" * 70000]
DEVICE = os.environ.get("RDMAD_GUEST_ADDR", "127.0.0.1")
SECONDS_RANGE = (1000, 9_000_000_000)  # no reply depends on which server was asked first


class Error(Exception):
    pass


# --- servers and connections

class Server:
    """A process with a UNIX socket."""
    ends = 0  # its status after SIGTERM

    def __init__(self, name, command, path):
        self.name, self.path = name, path
        self.log = open(path + ".log", "w+b")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + LIMIT
        while True:
            try:
                probe = Connection(self)
                probe.ask([b"PING"])
                probe.close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise Error(f"{name} did not start:\n{self.tail()}") from None
                time.sleep(0.02)

    def tail(self):
        self.log.seek(0)
        return self.log.read()[-3000:].decode(errors="replace")

    def stop(self):
        """None, or what is wrong with its end."""
        status = self.process.poll()
        if status is not None:
            return f"{self.name} had ended by itself, with status {status}"
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not end"
        return None if status == self.ends else f"{self.name} ended with status {status}"


class Bridge(Server):
    """The way to a server over RDMA."""
    ends = -signal.SIGTERM

    def __init__(self, program, server):
        port = re.search(r"listening on (?:tcp|rdma) [0-9.]*:([0-9]*) for resp", server.tail())[1]
        super().__init__("rdmad by RDMA", [program, "bridge", server.path + ".rdma", DEVICE, port], server.path + ".rdma")


class Connection(resp_client.Client):
    def __init__(self, server, resp=2):
        self.server = server
        super().__init__(server.path)
        if resp == 3:
            line, _ = self.ask([b"HELLO", b"3"])
            if line[:1] != b"%":
                raise Error(f"{server.name}: HELLO 3: {line!r}")

    def send(self, commands):
        self.socket.sendall(b"".join(resp_client.command(*words) for words in commands))

    def read(self):
        """A reply as (its first line, members): members are replies, or the bytes of a bulk."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Error(f"{self.server.name} closed the connection after {line!r}:\n{self.server.tail()}")
        kind = line[:1]
        if kind in b"$=" and line[1:2] != b"-":
            return line, self.file.read(int(line[1:]) + 2)
        if kind in b"*~>" and line[1:2] != b"-":
            return line, [self.read() for _ in range(int(line[1:]))]
        if kind == b"%":
            return line, [self.read() for _ in range(2 * int(line[1:]))]
        if kind not in b"+-:_,#($*":
            raise Error(f"{self.server.name}: no reply begins with {line!r}")
        return line, None

    def ask(self, command):
        self.send([command])
        return self.read()


def show(thing, most=300):
    text = repr(thing)
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


# --- what may differ

class Slack:
    """How long ago one server may have carried out what the other did just now: since the last FLUSHALL."""

    def __init__(self):
        self.seconds = 0.0

    def note(self, seconds):
        self.seconds = max(self.seconds, seconds)


def number(reply):
    return int(reply[0][1:]) if reply[0][:1] == b":" else None


def numbers_within(slack, reply, other, most):
    mine, its = number(reply), number(other)
    if mine is None or its is None or mine < 0 or its < 0:
        return reply == other
    return abs(mine - its) <= most + slack


def milliseconds(command, reply, other, slack):
    """A time to live begins when the server has the command, and counts down between the two questions."""
    return numbers_within(2 * slack.seconds * 1000, reply, other, 2)


def seconds(command, reply, other, slack):
    """The same, rounded."""
    return numbers_within(2 * slack.seconds, reply, other, 1)


def encoding(command, reply, other, slack):
    """rdmad tells by what the value is, Redis also by how it came about: by APPEND, SETRANGE, INCRBYFLOAT."""
    if command[1].lower() != b"encoding":
        return reference(command, reply, other, slack)
    return reply == other or (other[1] in (b"raw\r\n", b"embstr\r\n") and reply[1] in (b"int\r\n", b"embstr\r\n"))


def reference(command, reply, other, slack):
    """REFCOUNT: Redis shares small integers. IDLETIME: rdmad keeps no time of use. HELP is the same."""
    if command[1].lower() in (b"refcount", b"idletime"):
        return (number(reply) is None) == (number(other) is None)
    return reply == other


def bytes_taken(command, reply, other, slack):
    """Other memory."""
    return number(reply) is not None and number(other) is not None or reply == other


def fewer(command, reply, other, slack):
    """Redis counts what has expired until it finds out."""
    return 0 <= (number(reply) or 0) <= (number(other) or 0)


def unordered(command, reply, other, slack):
    """Keys come in the order of a hash table."""
    return reply[0] == other[0] and sorted(reply[1] or []) == sorted(other[1] or [])


def by_chance(command, reply, other, slack):
    """Another key each time: walk() looks at which."""
    return reply[0][:1] == other[0][:1]


def cursor(command, reply, other, slack):
    """Cursors and the keys of one call are the table's: walk() compares whole walks."""
    return reply[0] == other[0] and (reply[0][:1] != b"-" or reply == other)


DIFFERENCES = {
    b"pttl": milliseconds, b"pexpiretime": milliseconds, b"ttl": seconds, b"expiretime": seconds, b"object": encoding,
    b"memory": bytes_taken, b"keys": unordered, b"dbsize": fewer, b"randomkey": by_chance, b"scan": cursor,
    b"hrandfield": by_chance,
}


def same(command, reply, other, slack):
    if reply == other:
        return True
    may = DIFFERENCES.get(command[0].lower()) if command else None
    return bool(may) and may(command, reply, other, slack)


# --- random commands

class Random(random.Random):
    def case(self, word):
        """GET, get or gEt."""
        way = self.random()
        if way < 0.4:
            return word.upper()
        return word.lower() if way < 0.8 else bytes(c ^ 0x20 if chr(c).isalpha() and self.random() < 0.5 else c for c in word)

    def key(self):
        return self.choice(KEYS)

    def any_key(self):
        """Also words that are no keys: for commands that write nothing."""
        return self.choice(NO_KEYS) if self.random() < 0.15 else self.key()

    def text(self):
        way = self.random()
        if way < 0.6:
            return self.choice(TEXTS)
        if way < 0.8:
            return self.randbytes(self.choice([1, 2, 7, 43, 44, 45, 100, 4090, 5000]))
        return self.integer() if way < 0.9 else self.fraction()

    def integer(self):
        way = self.random()
        if way < 0.5:
            return b"%d" % self.randint(-1000, 1000)
        return self.choice(INTEGERS) if way < 0.85 else self.choice(NO_INTEGERS)

    def fraction(self):
        way = self.random()
        if way < 0.4:
            return b"%.6g" % self.uniform(-1000, 1000)
        return self.choice(FLOATS) if way < 0.8 else self.choice(NO_FLOATS)

    def offset(self):
        return b"%d" % self.choice([0, 1, 2, 5, 43, 44, 100, 4096, 5000, 70000]) if self.random() < 0.8 else self.choice(
            [b"-1", b"536870912", b"9223372036854775807", b"x", b"", b"-9223372036854775808"])

    def time(self, milliseconds=False, absolute=False):
        """Far away, past, or none: never one that passes while the test runs."""
        way = self.random()
        if way < 0.25:
            return self.choice([b"0", b"-1", b"-100000", b"9223372036854775807", b"-9223372036854775808", b"9223372036854776",
                                b"9223372036854775", b"x", b"", b"1.5", b"01"] + ([b"1"] if absolute else []))
        when = self.randint(*SECONDS_RANGE) + (int(time.time()) if absolute else 0)
        return b"%d" % (when * 1000 + self.randint(0, 999) if milliseconds else when)

    def far(self, milliseconds=False, absolute=False):
        """As time(), but none that only a clock with more bits has: Redis goes on to the year 292 million, rdmad to 2554."""
        while True:
            when = self.time(milliseconds, absolute)
            if not (when.isdigit() and len(when) >= 15):
                return when

    def options(self, *groups):
        """Some of these, in any order, some twice, now and then one that is none."""
        words = []
        for group in self.sample(groups, self.choice([0, 0, 1, 1, 1, 2, 3]) % (len(groups) + 1)):
            option = group() if callable(group) else group
            words += option
            if self.random() < 0.05:
                words += option
        if self.random() < 0.04:
            words.insert(self.randint(0, len(words)), self.choice([b"", b"foo", b"nxx", b"bad\r\noption"]))
        return [self.case(word) if word.isalpha() else word for word in words]

    def lives(self):
        word = self.choice([b"ex", b"px", b"exat", b"pxat"])
        words = [word, self.far(word[:1] == b"p", len(word) == 4)]
        return words[:1] if self.random() < 0.03 else words


def get(r):
    return [r.choice([b"get", b"strlen", b"exists", b"ttl", b"pttl", b"expiretime", b"pexpiretime", b"type", b"touch"]), r.any_key()]


def several(r):
    return [r.choice([b"mget", b"exists", b"touch", b"del", b"unlink"])] + [r.any_key() for _ in range(r.randint(0, 5))]


def write_one(r):
    return r.choice([
        lambda: [b"getset", r.key(), r.text()], lambda: [b"setnx", r.key(), r.text()], lambda: [b"append", r.key(), r.text()],
        lambda: [b"getdel", r.key()], lambda: [b"persist", r.key()], lambda: [b"del", r.key()],
        lambda: [b"setex", r.key(), r.far(), r.text()], lambda: [b"psetex", r.key(), r.far(True), r.text()]])()


def set_value(r):
    return [b"set", r.key(), r.text()] + r.options([b"nx"], [b"xx"], [b"get"], [b"keepttl"], r.lives)


def getex(r):
    return [b"getex", r.key()] + r.options([b"persist"], r.lives, [b"keepttl"])


def set_several(r):
    words = [word for _ in range(r.randint(0, 4)) for word in (r.key(), r.text())]
    return [r.choice([b"mset", b"msetnx"])] + words + ([r.key()] if r.random() < 0.1 else [])


def ranges(r):
    if r.random() < 0.4:
        return [b"setrange", r.key(), r.offset(), r.text()]
    return [r.choice([b"getrange", b"substr"]), r.any_key(), r.integer(), r.integer()]


def count(r):
    name = r.choice([b"incr", b"decr", b"incrby", b"decrby", b"incrbyfloat"])
    return [name, r.key()] + ([r.fraction()] if name == b"incrbyfloat" else [r.integer()] if name[-1:] == b"y" else [])


def expire(r):
    name = r.choice([b"expire", b"pexpire", b"expireat", b"pexpireat"])
    when = r.far(name[:1] == b"p", name[-2:] == b"at")
    return [name, r.key(), when] + r.options([b"nx"], [b"xx"], [b"gt"], [b"lt"])


def rename(r):
    return [r.choice([b"rename", b"renamenx"]), r.key(), r.key()]


def copy(r):
    database = r.choice([b"0", b"0", b"0", b"16", b"-1", b"x", b"99999999999", b"9999999999999999999999"])
    return [b"copy", r.key(), r.key()] + r.options([b"replace"], [b"db", database], [b"db"])


def tell(r):
    return r.choice([
        lambda: [b"object", r.choice([b"encoding", b"refcount", b"freq", b"idletime"]), r.any_key()],
        lambda: [b"object"] + r.choice([[], [b"help"], [b"nothing"], [b"encoding"], [b"help", b"x"], [b"nothing", b"x", b"y"]]),
        lambda: [b"memory"] + r.choice([[], [b"usage"], [b"nothing"], [b"help", b"x"]]),
        lambda: [b"memory", b"usage", r.any_key()] + r.options([b"samples", r.integer()], [b"samples"]),
        lambda: [b"dbsize"], lambda: [b"randomkey"], lambda: [b"keys", pattern(r)], lambda: [b"scan"] + scan(r)])()


def pattern(r):
    return r.choice([b"*", b"?", b"key:*", b"[a-c]", b"[^a]*", b"nothing", b"", b"\\a", b"*x", b"k*k", b"*\xff*", b"{tag}?", b"[ab", b"**"])


def scan(r):
    words = [r.choice([b"0", b"0", b"0", b"x", b" 1", b"18446744073709551616", b"1x", b"0x1"])]
    return words + r.options([b"match", pattern(r)], [b"count", r.choice([b"1", b"10", b"1000", b"0", b"-1", b"x", b"1000000000"])],
                             [b"type", r.choice([b"string", b"STRING", b"hash", b"list"])], [b"match"], [b"novalues"])


# Redis keeps fields in their order up to this length, and rdmad always does.
FIELDS = [b"f", b"g", b"", b"field:1", b"\x00\r\n", b"F" * 64, b"1", b"n", b"m"]


def small(r):
    return r.choice([lambda: r.text()[:64], r.integer, lambda: r.fraction()[:64]])()


def hashes(r):
    key, field = r.key(), r.choice(FIELDS)
    fields = [r.choice(FIELDS) for _ in range(r.choice([1, 1, 2, 3, 5, 20]))]
    pairs = [word for name in fields for word in (name, small(r))] + ([b"odd"] if r.random() < 0.05 else [])
    return r.choice([
        lambda: [b"hset", key] + pairs, lambda: [b"hset", key] + pairs, lambda: [b"hmset", key] + pairs,
        lambda: [b"hsetnx", key, field, small(r)], lambda: [b"hget", r.any_key(), field], lambda: [b"hmget", r.any_key()] + fields,
        lambda: [r.choice([b"hgetall", b"hkeys", b"hvals", b"hlen"]), r.any_key()],
        lambda: [r.choice([b"hgetall", b"hkeys", b"hvals", b"hlen"]), key],
        lambda: [b"hdel", key] + fields, lambda: [r.choice([b"hexists", b"hstrlen"]), r.any_key(), field],
        lambda: [b"hincrby", key, field, r.integer()], lambda: [b"hincrbyfloat", key, field, r.fraction()],
        lambda: [b"hscan", r.any_key()] + hscan(r),
        lambda: [b"hrandfield", key] + r.choice([[], [b"0"], [b"100"], [b"x"], [b"100", b"WithValues"], [b"1", b"foo"],
                                                 [b"1", b"withvalues", b"x"], [b"-9223372036854775808", b"withvalues"]]),
        lambda: [r.choice([b"hset", b"hget", b"hdel", b"hlen", b"hscan", b"hincrby", b"hrandfield"])]])()


def hscan(r):
    words = [r.choice([b"0", b"0", b"0", b"x", b"5"])]
    return words + r.options([b"match", pattern(r)], [b"count", r.choice([b"1", b"10", b"0", b"x"])], [b"match"], [b"foo", b"bar"])


def wrong_arity(r):
    name = r.choice([b"get", b"set", b"setnx", b"setex", b"psetex", b"getset", b"getdel", b"getex", b"mget", b"mset", b"msetnx", b"append",
                     b"strlen", b"getrange", b"substr", b"setrange", b"incr", b"decr", b"incrby", b"decrby", b"incrbyfloat", b"del",
                     b"unlink", b"exists", b"touch", b"type", b"expire", b"pexpireat", b"ttl", b"pttl", b"persist", b"rename", b"renamenx",
                     b"copy", b"keys", b"scan", b"randomkey", b"dbsize"])
    most = {b"get": 3, b"getdel": 3, b"strlen": 3, b"incr": 3, b"decr": 3}
    words = [r.choice(KEYS[:7]) for _ in range(r.choice([0, 0, 1, most.get(name, 6) - 1]))]
    return [name] + words


def flush(r):
    return [r.choice([b"flushall", b"flushdb"])] + r.choice([[], [], [b"async"], [b"sync"], [b"foo"], [b"sync", b"async"]])


def connection(r):
    return r.choice([
        lambda: [b"ping"], lambda: [b"ping", r.text()], lambda: [b"ping", b"a", b"b"], lambda: [b"echo", r.text()], lambda: [b"echo"],
        lambda: [b"select", b"0"], lambda: [b"select", r.choice(NO_INTEGERS + [b"-1", b"16", b"99999999999"])], lambda: [b"select"],
        lambda: [b"foo", b"a\r\nb", r.text()], lambda: [b"foo" * 60], lambda: [b"foo"] + [b"x" * 20] * 12, lambda: [b""],
        lambda: [b"unwatch"], lambda: [b"exec", b"x"], lambda: [b"multi", b"x"], lambda: [b"watch"], lambda: [b"wait", b"0", b"0"],
        lambda: [b"client", b"getname"], lambda: [b"client", b"setname", b"me"], lambda: [b"client", b"setname", b"not me"],
        lambda: [b"client"], lambda: [b"client", b"foo"], lambda: [b"asking"], lambda: [b"auth"]])()


KINDS = [(get, 20), (several, 6), (write_one, 14), (set_value, 16), (getex, 5), (set_several, 5), (ranges, 8), (count, 10), (expire, 9),
         (rename, 4), (copy, 3), (hashes, 14), (tell, 6), (wrong_arity, 2), (connection, 3), (flush, 0.3)]


def command(r):
    words = r.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0](r)
    words[0] = r.case(words[0])
    if words[0].lower() in (b"object", b"memory") and len(words) > 1:
        words[1] = r.case(words[1])
    return words


# --- the comparison

class Pair:
    """Both servers, a connection to each over either protocol, and the last commands for a report."""

    def __init__(self, subject, model):
        self.subject, self.model = subject, model
        self.connections = {resp: (Connection(subject, resp), Connection(model, resp)) for resp in (2, 3)}
        self.slack = Slack()
        self.past = []
        self.compared = 0

    def ask(self, commands, resp=2):
        """All in one write, first to the one and then to the other. Replies of the first."""
        began = time.monotonic()
        replies = []
        for connection in self.connections[resp]:
            sender = threading.Thread(target=connection.send, args=(commands,))  # rdmad wants its replies taken meanwhile
            sender.start()
            replies.append([connection.read() for _ in commands])
            sender.join()
        self.slack.note(time.monotonic() - began)
        self.past += [(resp, words) for words in commands]
        kept = []
        for words, reply, other in zip(commands, *replies):
            self.compare(words, reply, other, resp, kept)
        return replies[0]

    def compare(self, words, reply, other, resp, kept):
        """`kept`: the commands since MULTI, whose replies are those of EXEC."""
        self.compared += 1
        if words[:1] == [b"EXEC"] and reply[0] == other[0] and isinstance(reply[1], list):
            queued = [words for words, told in kept if told == b"+QUEUED\r\n"]
            for words, one, two in zip(queued, reply[1], other[1]):
                if not same(words, one, two, self.slack):
                    self.differs(words, one, two, resp)
            return
        if words[:1] == [b"MULTI"]:
            kept.clear()
        kept.append((words, reply[0]))
        if not same(words, reply, other, self.slack):
            self.differs(words, reply, other, resp)

    def differs(self, words, reply, other, resp):
        """Tells of the commands since the last FLUSHALL that have a word in common with this one, and of all last ones."""
        lines = [f"{show(words)} over RESP{resp}", f"  {self.subject.name}: {show(reply)}", f"  {self.model.name}: {show(other)}",
                 f"of the {len(self.past)} commands before it:"]
        first = len(self.past) - 40
        lines += [f"  {at} RESP{past_resp} {show(past, 160)}" for at, (past_resp, past) in enumerate(self.past)
                  if at >= first or set(past[1:]) & set(words[1:])]
        raise Error("\n".join(lines))

    def fresh(self):
        self.ask([[b"FLUSHALL"]])
        self.slack = Slack()
        self.past = []


def walk(connection, words):
    """A whole walk by SCAN: the keys, sorted."""
    cursor, keys = b"0", []
    while True:
        line, members = connection.ask([b"SCAN", cursor] + words)
        if line != b"*2\r\n":
            raise Error(f"{connection.server.name}: SCAN {show(words)}: {line!r}")
        cursor = members[0][1][:-2]
        keys += [key[1] for key in members[1][1]]
        if cursor == b"0":
            return sorted(set(keys))


def compare_walks(pair, r):
    connections = pair.connections[r.choice([2, 3])]
    words = r.choice([[], [b"COUNT", b"1"], [b"COUNT", b"3"], [b"MATCH", b"key:*"], [b"MATCH", b"*", b"COUNT", b"100"], [b"TYPE", b"string"]])
    mine, its = (walk(connection, words) for connection in connections)
    if mine != its:
        pair.differs([b"SCAN"] + words, mine, its, 2)
    keys = walk(connections[0], [])
    drawn = connections[0].ask([b"RANDOMKEY"])
    if (drawn[1] not in keys) if keys else (drawn[1] is not None):
        pair.differs([b"RANDOMKEY"], drawn, keys, 2)


def watch(pair, r):
    """WATCH, perhaps a change by another connection, and EXEC."""
    key, other = r.key(), r.key()
    pair.ask([[b"WATCH", key]], 3)
    if r.random() < 0.7:
        pair.ask([[b"SET", other, r.text()]], 2)
    pair.ask([[b"MULTI"], [b"APPEND", key, b"+"], [b"GET", key], [b"EXEC"]], 3)


def compare_random(pair, r, commands):
    while pair.compared < commands:
        pair.fresh()
        until = min(pair.compared + ROUND, commands)
        while pair.compared < until:
            way, resp = r.random(), r.choice([2, 3])
            if way < 0.6:
                pair.ask([command(r)], resp)
            elif way < 0.75:
                pair.ask([command(r) for _ in range(r.choice([2, 5, 20, 50]))], resp)
            elif way < 0.9:
                pair.ask([[b"MULTI"]] + [command(r) for _ in range(r.randint(0, 8))] + [[b"EXEC" if r.random() < 0.9 else b"DISCARD"]], resp)
            elif way < 0.95:
                watch(pair, r)
            else:
                compare_walks(pair, r)


# --- single promises

def expect(connection, words, want):
    """`want`: the reply's bytes, or None: it is not looked at."""
    line, members = connection.ask(words)
    got = line + (members if isinstance(members, bytes) else b"")
    if want is not None and got != want:
        raise Error(f"{show(words)}: {show(got)}, not {show(want)}")
    return got


OK, NULL, ZERO, ONE = b"+OK\r\n", b"$-1\r\n", b":0\r\n", b":1\r\n"
HELLO = b"9555e8555c62dcfd"  # the digest of "hello"

# Of Redis 8.4: SET with IFEQ and its kin, DELEX, DIGEST, MSETEX. Of Valkey 9: DELIFEQ.
NEWER = [
    (b"SET k hello", OK), (b"DIGEST k", b"$16\r\n%s\r\n" % HELLO), (b"DIGEST none", NULL),
    (b"DIGEST", b"-ERR wrong number of arguments for 'digest' command\r\n"),
    (b"SET z v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd", OK),
    (b"DIGEST z", b"$16\r\n00006c38adf31777\r\n"),
    (b"SET k new IFEQ other", NULL), (b"SET k new IFEQ hello", OK), (b"SET k hello ifne new", NULL), (b"SET k hello IfNe x", OK),
    (b"SET k b IFDEQ " + HELLO[::-1], NULL), (b"SET k b IFDEQ " + HELLO.upper(), OK), (b"SET k hello IFDNE " + HELLO, OK),
    (b"SET k x IFDNE " + HELLO, NULL), (b"SET none x IFEQ y", NULL), (b"SET none x IFDEQ y", NULL), (b"EXISTS none", ZERO),
    (b"SET n1 x IFNE y", OK), (b"SET n2 x IFDNE y", OK), (b"EXISTS n1 n2", b":2\r\n"),
    (b"SET k y IFEQ hello GET", b"$5\r\nhello\r\n"), (b"SET k z GET IFEQ hello", b"$1\r\ny\r\n"), (b"GET k", b"$1\r\ny\r\n"),
    (b"SET k z IFEQ y EX 1000", OK), (b"TTL k", b":1000\r\n"), (b"SET k y KEEPTTL IFEQ z", OK), (b"TTL k", b":1000\r\n"),
    (b"SET k z IFEQ", b"-ERR syntax error\r\n"), (b"SET k z IFEQ y NX", b"-ERR syntax error\r\n"),
    (b"SET k z XX IFNE y", b"-ERR syntax error\r\n"), (b"SET k z IFEQ y IFNE y", b"-ERR syntax error\r\n"),
    (b"SET k z IFDEQ 123", b"-ERR must be exactly 16 hexadecimal characters\r\n"),
    (b"DELEX k IFEQ x", ZERO), (b"DELEX k IFNE y", ZERO), (b"DELEX k ifne x", ONE), (b"EXISTS k", ZERO), (b"DELEX k", ZERO),
    (b"SET k hello", OK), (b"DELEX k", ONE), (b"SET k hello", OK), (b"DELEX k IFDEQ " + HELLO[::-1], ZERO),
    (b"DELEX k IFDNE " + HELLO, ZERO), (b"DELEX k IFDEQ " + HELLO, ONE), (b"DELEX none FOO x", ZERO), (b"SET k hello", OK),
    (b"DELEX k FOO x", b"-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE\r\n"),
    (b"DELEX k NX x", b"-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE\r\n"),
    (b"DELEX k IFDNE x", b"-ERR must be exactly 16 hexadecimal characters\r\n"),
    (b"DELEX k IFEQ", b"-ERR wrong number of arguments for 'delex' command\r\n"),
    (b"DELEX k IFEQ hello x", b"-ERR wrong number of arguments for 'delex' command\r\n"),
    (b"DELIFEQ k x", ZERO), (b"DELIFEQ none x", ZERO), (b"DELIFEQ k hello", ONE), (b"EXISTS k", ZERO),
    (b"MSETEX 2 m1 a m2 b NX EX 100", ONE), (b"MSETEX 2 m2 c m3 d NX", ZERO), (b"EXISTS m3", ZERO), (b"MSETEX 2 m2 c m3 d XX", ZERO),
    (b"MSETEX 2 m1 c m2 d xx keepttl", ONE), (b"TTL m1", b":100\r\n"), (b"GET m2", b"$1\r\nd\r\n"), (b"MSETEX 1 m1 e", ONE),
    (b"TTL m1", b":-1\r\n"), (b"MSETEX 0 a b", b"-ERR invalid numkeys value\r\n"), (b"MSETEX x a b", b"-ERR invalid numkeys value\r\n"),
    (b"MSETEX 2147483648 a b", b"-ERR invalid numkeys value\r\n"), (b"MSETEX 2 a b c", b"-ERR wrong number of key-value pairs\r\n"),
    (b"MSETEX 2147483647 a b", b"-ERR wrong number of key-value pairs\r\n"), (b"MSETEX 1 a b foo", b"-ERR syntax error\r\n"),
    (b"MSETEX 1 a b EX 10 PX 10", b"-ERR syntax error\r\n"), (b"MSETEX 1 a b NX XX", b"-ERR syntax error\r\n"),
    (b"MSETEX 1 a b EX 0", b"-ERR invalid expire time in 'msetex' command\r\n"), (b"MSETEX 1 a b EX x", b"-ERR value is not an integer or out of range\r\n"),
    (b"MSETEX 1 a b GET", b"-ERR syntax error\r\n"), (b"EXISTS a", ZERO),
]


def newer(server):
    connection = Connection(server)
    expect(connection, [b"FLUSHALL"], OK)
    for line, want in NEWER:
        expect(connection, line.split(), want)
    expect(connection, [b"SET", b"empty", b""], OK)
    expect(connection, [b"DIGEST", b"empty"], b"$16\r\n2d06800538d394c2\r\n")
    expect(connection, [b"DELIFEQ", b"empty", b""], ONE)
    connection.close()


def own_limits(server):
    """Where rdmad has a limit that Redis has not: what it says, and that nothing was done."""
    connection = Connection(server)
    long_key = b"k" * (KEY_MAX + 1)
    too_long = b"-ERR key is too long: %d bytes, %d at most\r\n" % (len(long_key), KEY_MAX)
    expect(connection, [b"FLUSHALL"], OK)
    expect(connection, [b"SET", b"a", b"1"], OK)
    for words in ([b"SET", long_key, b"x"], [b"MSET", b"b", b"1", long_key, b"x"], [b"MSETNX", b"b", b"1", long_key, b"x"],
                  [b"APPEND", long_key, b"x"], [b"INCR", long_key], [b"INCRBYFLOAT", long_key, b"1"], [b"SETRANGE", long_key, b"1", b"x"],
                  [b"GETSET", long_key, b"x"], [b"RENAME", b"a", long_key], [b"COPY", b"a", long_key], [b"MSETEX", b"2", b"b", b"1", long_key, b"x"]):
        expect(connection, words, too_long)
    expect(connection, [b"SET", b"", b"x"], b"-ERR key is empty: it has 1 byte at least\r\n")
    expect(connection, [b"SET", long_key, b"x", b"XX"], NULL)
    expect(connection, [b"EXISTS", long_key, b"", b"b"], ZERO)
    expect(connection, [b"DBSIZE"], ONE)
    expect(connection, [b"COPY", b"a", b"b", b"DB", b"1"], b"-ERR DB index is out of range\r\n")
    pairs = [word for i in range(70000) for word in (b"many:%d" % i, b"")]
    expect(connection, [b"MSET"] + pairs, b"-ERR a command or transaction writes 32768 keys at most\r\n")
    expect(connection, [b"DBSIZE"], ONE)
    # A time beyond all that rdmad knows is the last of them.
    expect(connection, [b"PEXPIREAT", b"a", b"9223372036854775807"], ONE)
    if int(expect(connection, [b"TTL", b"a"], None)[1:]) < SECONDS_RANGE[1]:
        raise Error("the last time that there is comes too early")
    expect(connection, [b"PERSIST", b"a"], ONE)
    connection.close()


def full(server):
    """No memory for a part of what is asked for: nothing of it happens."""
    connection = Connection(server)
    oom = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    values = [word for i in range(6) for word in (b"%d" % i, b"v" * 1000000)]
    keys = [b"EXISTS", b"a"] + values[::2]
    expect(connection, [b"MSET", b"a", b"1"] + values, oom)
    expect(connection, keys, ZERO)
    for words, want in (([b"MULTI"], OK), ([b"SET", b"a", b"1"], b"+QUEUED\r\n"), ([b"MSET"] + values, b"+QUEUED\r\n"),
                        ([b"INCR", b"a"], b"+QUEUED\r\n"), ([b"EXEC"], oom)):
        expect(connection, words, want)
    expect(connection, keys, ZERO)
    expect(connection, [b"MSET", b"a", b"1"] + values[:2], OK)
    expect(connection, [b"SETRANGE", b"0", b"3500000", b"x"], oom)
    expect(connection, [b"APPEND", b"a", b"1"], b":2\r\n")
    expect(connection, [b"SETRANGE", b"a", b"10000000", b"x"], None)
    expect(connection, keys, b":2\r\n")
    connection.close()


def expiry(pair):
    """Keys that expire while they are looked at: both servers forget them, and not before their time."""
    pair.fresh()
    for connection in pair.connections[2]:
        began = time.monotonic()
        expect(connection, [b"SET", b"k", b"v", b"PX", b"60"], OK)
        expect(connection, [b"SET", b"kept", b"v", b"PX", b"60"], OK)
        expect(connection, [b"PERSIST", b"kept"], None)
        while expect(connection, [b"GET", b"k"], None) != NULL:
            if time.monotonic() > began + LIMIT:
                raise Error(f"{connection.server.name}: a key does not expire")
        if time.monotonic() < began + 0.058:
            raise Error(f"{connection.server.name}: a key expires before its time")
        for words, want in (([b"TTL", b"k"], b":-2\r\n"), ([b"EXISTS", b"k"], ZERO), ([b"SET", b"k", b"w", b"XX"], NULL), ([b"INCR", b"k"], ONE),
                            ([b"TTL", b"k"], b":-1\r\n"), ([b"GET", b"kept"], None), ([b"DEL", b"k", b"kept"], None)):
            expect(connection, words, want)
    # Times that have just come, in one turn with others.
    pair.ask([words for _ in range(200) for words in ([b"SET", b"k", b"v"], [b"PEXPIRE", b"k", b"0"], [b"EXISTS", b"k"])])
    at = int(time.time() * 1000) + 1_000_000
    for milliseconds in range(50):
        pair.ask([[b"SET", b"k", b"v", b"PXAT", b"%d" % (at + milliseconds)]])
        for connection in pair.connections[2]:
            expect(connection, [b"PEXPIRETIME", b"k"], b":%d\r\n" % (at + milliseconds))
            expect(connection, [b"EXPIRETIME", b"k"], b":%d\r\n" % ((at + milliseconds + 500) // 1000))


# Bytes that are commands of another form, or none.
RAW = [
    b"PING\r\n", b"ping\n", b"  SET  a   b  \r\nGET a\r\n", b"SET a \"x y\\r\\x41\\\"\"\r\nGET a\r\n", b"SET a 'x \\' \\n'\r\nGET a\r\n",
    b"SET a \"x\r\n", b"SET a 'x'y\r\n", b"\r\n\r\n\nPING\r\n", b"SET a \"\"\r\nGET a\r\n", b"FOO bar\r\n", b"GET\r\n",
    b"*0\r\n*-1\r\nPING\r\n", b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nping\r\n", b"*x\r\n", b"*2147483648\r\n", b"*-5\r\n", b"*1\r\nPING\r\n",
    b"*1\r\n#4\r\n", b"*1\r\n$x\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$536870913\r\n", b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", b"*1 \r\n", b"* 1\r\n",
    b"*1\r\n$04\r\nPING\r\n", b"*01\r\n$4\r\nPING\r\n", b"*1\r\n$+4\r\nPING\r\n", b"*1\r\n$4\r\nPINGxxPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
]


def received(end):
    """What has come, or nothing at the end, also where that is a reset."""
    try:
        return end.recv(1 << 16)
    except ConnectionResetError:
        return b""


def raw(pair):
    """The replies to bytes, up to the end of the connection, all at once and byte by byte."""
    pair.fresh()
    for text in RAW:
        for piece in (len(text) + 6, 1):
            told = []
            for server in (pair.subject, pair.model):
                talk = Connection(server)
                try:
                    for at in range(0, len(text) + 6, piece):
                        talk.socket.sendall((text + b"QUIT\r\n")[at:at + piece])
                except OSError:
                    pass  # it has heard enough
                told.append(b"".join(iter(lambda: received(talk.socket), b"")))
                talk.close()
            if told[0] != told[1]:
                raise Error(f"{show(text)} in pieces of {piece}: {pair.subject.name} {show(told[0])}, {pair.model.name} {show(told[1])}")
            pair.compared += 1


def large(pair):
    """Values of some megabytes, which leave from where they are."""
    pair.fresh()
    value = random.Random(1).randbytes(3 << 20)
    for resp in (2, 3):
        pair.ask([[b"SET", b"big", value], [b"GET", b"big"], [b"GETRANGE", b"big", b"100000", b"2000000"], [b"APPEND", b"big", b"+end"],
                  [b"STRLEN", b"big"], [b"GETRANGE", b"big", b"-10", b"-1"], [b"SETRANGE", b"big", b"5", b"xyz"], [b"RENAME", b"big", b"b2"],
                  [b"COPY", b"b2", b"b3"], [b"MGET", b"b2", b"b3", b"b2", b"big"], [b"GETSET", b"b3", value[::-1]], [b"GETDEL", b"b2"],
                  [b"SET", b"b3", b"x", b"GET"]], resp)
        pair.ask([[b"MULTI"], [b"SET", b"big", value], [b"APPEND", b"big", b"1"], [b"GET", b"big"], [b"SETRANGE", b"big", b"1", value],
                  [b"GETRANGE", b"big", b"0", b"100"], [b"RENAME", b"big", b"b2"], [b"GET", b"b2"], [b"GETDEL", b"b2"], [b"GET", b"b2"], [b"EXEC"]], resp)


def many(pair, keys):
    """KEYS, SCAN and FLUSHALL of more keys than one step has, while another connection goes on."""
    pair.fresh()
    for first in range(0, keys, 1000):
        pair.ask([[b"MSET"] + [word for i in range(first, min(first + 1000, keys)) for word in (b"many:%d" % i, b"v")]])
    pair.ask([[b"DBSIZE"], [b"KEYS", b"many:*7"], [b"GET", b"many:7"], [b"KEYS", b"*"]], 3)
    pair.ask([[b"MULTI"], [b"KEYS", b"many:1*"], [b"DBSIZE"], [b"KEYS", b"nothing"], [b"EXEC"]])
    asked, other = pair.connections[2][0], pair.connections[3][0]
    for words in ([b"KEYS", b"*"], [b"FLUSHALL"]):
        asked.send([words, [b"DBSIZE"]])
        expect(other, [b"SET", b"between", b"x"], OK)
        asked.read()
        asked.read()
    expect(other, [b"FLUSHALL"], OK)
    pair.connections[2][1].ask([b"FLUSHALL"])
    pair.ask([[b"DBSIZE"], [b"KEYS", b"*"], [b"RANDOMKEY"], [b"SCAN", b"0"]])


def together(server, clients=6, rounds=300):
    """Several clients at once: no change is lost, and what is carried out as one is seen as one."""
    first = Connection(server)
    expect(first, [b"MSET", b"from", b"1000000", b"to", b"0", b"count", b"0", b"text", b""], OK)
    faults = []

    def client(number):
        try:
            talk = Connection(server)
            for i in range(rounds):
                talk.send([[b"INCR", b"count"], [b"APPEND", b"text", b"%d" % number], [b"MULTI"], [b"DECRBY", b"from", b"7"],
                           [b"INCRBY", b"to", b"7"], [b"EXEC"], [b"MGET", b"from", b"to"], [b"WATCH", b"watched"], [b"GET", b"watched"]])
                _, values = [talk.read() for _ in range(7)][6]
                if sum(int(value[1]) for value in values) != 1000000:
                    raise Error(f"MGET sees a half of a transaction: {values}")
                talk.read()
                seen = talk.read()[1]
                talk.send([[b"MULTI"], [b"SET", b"watched", b"%d" % (int(seen or 0) + 1)], [b"INCR", b"won"], [b"EXEC"]])
                [talk.read() for _ in range(4)]
            talk.close()
        except (Error, OSError) as error:
            faults.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    whole = clients * rounds
    expect(first, [b"INCRBY", b"count", b"0"], b":%d\r\n" % whole)
    expect(first, [b"STRLEN", b"text"], b":%d\r\n" % whole)
    expect(first, [b"INCRBY", b"to", b"0"], b":%d\r\n" % (7 * whole))
    won, watched = (first.ask([b"GET", key])[1] for key in (b"won", b"watched"))
    if won != watched or won is None:
        raise Error(f"{show(won)} transactions came behind WATCH, and {show(watched)} is what they count to")
    first.close()


# --- start

def redis(path, program):
    return Server("redis-server", [program, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", os.path.dirname(path)], path)


CONFIGURATION = """listen = ["tcp://127.0.0.1:0"];
unix_socket = "{path}.main";
control = {{ socket = "{path}.control"; }};
services = ["kv", "resp"];
insecure = true;
workers = 2;
kv.memory = "{memory}";
resp = {{ unix_socket = "{path}"; rdma = [{rdma}]; }};
"""


LOG = """log = {{ directory = "{path}.log.d"; policy = "always"; }};
"""


def rdmad(path, program, log=False, memory="512M", rdma=False):
    address = f'"{"rdma" if "RDMAD_GUEST_ADDR" in os.environ else "tcp"}://{DEVICE}:0"' if rdma else ""
    os.mkdir(path + ".log.d")
    with open(path + ".conf", "w", encoding="ascii") as out:
        out.write(CONFIGURATION.format(path=path, memory=memory, rdma=address) + (LOG.format(path=path) if log else ""))
    return Server("rdmad", [program, "-c", path + ".conf"], path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rdmad", default="./rdmad")
    parser.add_argument("--redis", default="redis-server")
    parser.add_argument("--commands", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", action="store_true", help="rdmad has a log, and replies wait for the disk")
    parser.add_argument("--valkey", metavar="PATH", help="commands come over RDMA, by this program's bridge")
    parser.add_argument("--self", action="store_true", help="two redis-servers")
    options = parser.parse_args()
    if not shutil.which(options.redis):
        print("resp_differential: there is no redis-server to compare with; scripts/packages --install has it")
        return 77
    folder = tempfile.mkdtemp(prefix="rdmad-resp.")
    servers, failed = [], None
    try:
        servers.append(redis(folder + "/redis", options.redis))
        servers.append(redis(folder + "/other", options.redis) if options.self else
                       rdmad(folder + "/rdmad", options.rdmad, options.log, rdma=options.valkey))
        model, subject = servers
        if options.valkey:
            subject = Bridge(options.valkey, subject)
            servers.append(subject)
        if not options.self:
            newer(subject)
            own_limits(subject)
            servers.append(rdmad(folder + "/full", options.rdmad, memory="4M"))
            full(servers[-1])
        together(subject)
        pair = Pair(subject, model)
        expiry(pair)
        raw(pair)
        large(pair)
        many(pair, 20000)
        compare_random(pair, Random(options.seed), options.commands)
        print(f"resp_differential: {pair.compared} replies compared")
    except (Error, OSError) as error:
        failed = f"with --seed {options.seed}: {error}\n" + "".join(server.tail() for server in servers[1:])
    finally:
        for server in servers:
            wrong = server.stop()
            if wrong:
                failed = f"{failed or ''}\n{wrong}:\n{server.tail()}"
        shutil.rmtree(folder)
    if failed:
        print(f"resp_differential: {failed}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
