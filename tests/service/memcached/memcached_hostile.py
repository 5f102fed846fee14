"""memcached_hostile.py SOCKET ROUNDS REDIS: what no client of memcached's does by mistake. The daemon is to be built with sanitizers, and has
a socket REDIS for Redis's clients."""
import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../resp"))
import resp_client  # pylint: disable=wrong-import-position
from resp_client import check, failures  # pylint: disable=wrong-import-position

PATH, ROUNDS, REDIS = sys.argv[1], int(sys.argv[2]), sys.argv[3]
MIB = 1 << 20


class Client(resp_client.Client):
    """Lines, of memcached's protocol."""

    def __init__(self):
        super().__init__(PATH)

    def ask(self, data, lines=1):
        self.socket.sendall(data)
        return b"".join(self.file.readline() for _ in range(lines))


def lengths():
    """Lengths that are none, too much, or not true."""
    for length in [b"-1", b"-0x1", b"2147483646", b"2147483647", b"18446744073709551616", b"x", b"1.5"]:
        c = Client()
        check(f"a length of {length}", c.ask(b"set k 0 0 " + length + b"\r\nmn\r\n"), b"CLIENT_ERROR bad command line format\r\n")
        check(f"what follows a length of {length}", c.file.readline(), b"MN\r\n")
    c = Client()
    check("a value that is too long", c.ask(b"set k 0 0 3000000\r\n" + b"x" * 3000000 + b"\r\nmn\r\n"),
          b"SERVER_ERROR object too large for cache\r\n")
    check("what follows a value that is too long", c.file.readline(), b"MN\r\n")
    check("a value that is longer than was said", c.ask(b"set k 0 0 3\r\nabcd\r\nmn\r\n", 3), b"CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n")
    check("a long one", c.ask(b"set k 0 0 20000\r\n" + b"x" * 20001 + b"\r\nmn\r\n", 3), b"CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n")


def lines():
    """A line that never ends ends the connection, and takes little memory."""
    for start, most in [(b"set ", MIB), (b"x" * 100, MIB), (b"get ", 4 * MIB), (b"gets a ", 4 * MIB), (b" " * 200, MIB), (b"mg ", MIB)]:
        c = Client()
        try:
            c.socket.sendall(start)
            for _ in range(most // 4096):
                c.socket.sendall(b"k " * 2048)
        except (BrokenPipeError, ConnectionResetError):
            pass
        check(f"a line that begins with {start[:10]} and never ends", c.is_closed(), True)
    c = Client()
    check("a line of many keys", c.ask(b"get " + b"k " * 100000 + b"\r\n")[:3] in (b"END", b"VAL"), True)


def slow_reader():
    """One that asks for much and takes nothing holds up nobody, and has its answers when it takes them."""
    c, other = Client(), Client()
    value = random.randbytes(MIB // 2)
    other.ask(b"set long 0 0 %d\r\n" % len(value) + value + b"\r\n")
    done = threading.Event()

    def write():
        for _ in range(200):
            c.socket.sendall(b"get long\r\n" * 5)
        done.set()

    threading.Thread(target=write, daemon=True).start()
    for i in range(200):
        check("another client", other.ask(b"set other 0 0 1\r\nx\r\n"), b"STORED\r\n")
    for _ in range(1000):
        check("the head of a long value", c.file.readline(), b"VALUE long 0 %d\r\n" % len(value))
        check("a long value", c.file.read(len(value) + 2) == value + b"\r\n", True)
        check("the end", c.file.readline(), b"END\r\n")
        if failures:
            break
    done.wait(60)


def killed():
    """Clients that end in the middle of anything leave nothing behind."""
    parts = [b"set gone 0 0 100000\r\n", b"x" * 50000, b"set gone 0 0 10\r\nabc", b"mg", b"get gone long k\r\n" * 20, b"ms gone 50000 T30\r\nx",
             b"append long 0 0 20000\r\n" + b"y" * 10000, b"gat 100 long\r\n", b"flush_all", b"incr n 1\r\n"]
    r = random.Random(1)
    for _ in range(ROUNDS):
        c = Client()
        for _ in range(r.randrange(1, 4)):
            try:
                c.socket.sendall(r.choice(parts))
            except (BrokenPipeError, ConnectionResetError):
                break
        c.close()


def same_key():
    """Several at one key, with long and short values and numbers: each sees a whole one."""
    def work(seed):
        r, c = random.Random(seed), Client()
        for _ in range(ROUNDS // 4):
            which = r.randrange(6)
            n = r.choice([10, 5000, 30000, 200000])
            byte = b"%c" % r.randrange(97, 123)
            if which < 2:
                check("set", c.ask(b"set same 0 0 %d\r\n" % n + byte * n + b"\r\n"), b"STORED\r\n")
            elif which == 2:
                c.ask(b"append same 0 0 1\r\nx\r\n")
            elif which == 3:
                c.ask(b"md same I T100\r\n")
            elif which == 4:
                check("counted", c.ask(b"ma count N0 J1\r\n"), b"HD\r\n")
            else:
                line = c.ask(b"get same\r\n")
                if line.startswith(b"VALUE"):
                    value = c.file.read(int(line.split()[3]) + 2)
                    check("one value", len(set(value[:-2].rstrip(b"x"))) <= 1, True)
                    check("the end", c.file.readline(), b"END\r\n")
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def won():
    """Of all that ask at once, one makes the value anew."""
    for i in range(20):
        Client().ask(b"ms won 3 T10\r\nold\r\n")
        Client().ask(b"md won I\r\n")
        clients, answers = [Client() for _ in range(8)], []
        for c in clients:
            c.socket.sendall(b"mg won v\r\n")
        for c in clients:
            answers.append(c.file.readline())
            c.file.readline()
        check("one has won", sum(b" W" in a for a in answers), 1)
        check("the others know", sum(b" Z X" in a for a in answers), 7)


def other_types():
    """A hash of Redis's clients is not there for most commands, and stays."""
    redis = resp_client.Client(REDIS)
    c = Client()
    c.socket.settimeout(20)
    for command, want in [("get h", "END"), ("gats 0 h", "END"), ("mg h v", "EN"), ("mg h v N30", "EN"), ("me h", "EN"), ("incr h 1", "NOT_FOUND"),
                          ("decr h 1", "NOT_FOUND"), ("ma h", "NF"), ("ma h N0 J5", "NF"), ("append h 0 0 1\r\nx", "NOT_STORED"),
                          ("prepend h 0 0 1\r\nx", "NOT_STORED"), ("ms h 1 MA\r\nx", "NS"), ("ms h 1 ME\r\nx", "NS"),
                          ("md h I", "NF"), ("md h I T30", "NF"), ("md h C5", "EX"), ("add h 0 0 1\r\nx", "NOT_STORED"), ("cas h 0 0 1 5\r\nx", "EXISTS"),
                          ("touch h 100", "TOUCHED"), ("mg h T30", "EN")]:
        redis.ask("DEL", "h")
        check("a hash", redis.ask("HSET", "h", "a", 1), 1)
        check(f"{command} of a hash", c.ask(command.encode() + b"\r\n"), want.encode() + b"\r\n")
        check(f"what follows {command}", c.ask(b"mn\r\n"), b"MN\r\n")
        check(f"a hash behind {command}", redis.ask("HGET", "h", "a"), b"1")


def main():
    lengths()
    other_types()
    lines()
    slow_reader()
    killed()
    same_key()
    won()
    c = Client()
    check("the end", c.ask(b"mn\r\n"), b"MN\r\n")
    sys.exit(bool(failures))


main()
