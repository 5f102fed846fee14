"""resp_client.py: a client of Redis's protocol for the tests of this folder and of memcached, and what they share beside it."""
import socket
import sys
import time

LIMIT = 120  # seconds that end a hang
failures = []


def fail(*text):
    failures.append(text)
    print("FAILED:", *[repr(t)[:300] if isinstance(t, bytes) else t for t in text], file=sys.stderr)


def check(what, got, want):
    if got != want:
        fail(f"{what}: {got!r}, not {want!r}"[:500])


def wait_until(what, there):
    until = time.monotonic() + LIMIT
    while not there():
        if time.monotonic() > until:
            fail(what)
            return
        time.sleep(0.01)


def command(*words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Client:
    """A connection to a UNIX socket's path, or to a port of this machine. A subclass may read otherwise."""

    def __init__(self, where):
        self.socket = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
        self.socket.settimeout(LIMIT)
        self.socket.connect(where if isinstance(where, str) else ("127.0.0.1", where))
        self.file = self.socket.makefile("rb", 1 << 16)

    def close(self):
        self.file.close()
        self.socket.close()

    def is_closed(self):
        """By the other end, which had nothing more to say."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def send(self, *words):
        self.socket.sendall(command(*words))

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(line)
        return line[:-2]

    def exactly(self, n):
        return self.file.read(n)

    def reply(self):
        """As Python's values; a simple string or an error is its line, a push a tuple."""
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"_" or kind in b"$*" and rest == b"-1":
            return None
        if kind == b":":
            return int(rest)
        if kind in b"$=":
            return self.exactly(int(rest) + 2)[:-2]
        if kind in b"*>~%":
            of = [self.reply() for _ in range(int(rest) * (2 if kind == b"%" else 1))]
            return ("push", of) if kind == b">" else of
        if kind in b"+-,#(":
            return line
        raise ValueError(line)

    def ask(self, *words):
        self.send(*words)
        return self.reply()
