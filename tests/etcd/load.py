"""load.py PORT... : one writer of some keys on several servers, by Redis's protocol, until a line comes on standard input. A key is set at
whichever server takes it, and asked for at all of them: an answer that has a value has the one that was set last. Prints what was
wrong, a line for each; then "sets N hits N refused N". Exit status 1: something was wrong."""
import random
import select
import socket
import sys

KEYS = 64
WAIT = 0.3


class Server:
    def __init__(self, port):
        self.port = port
        self.socket = None

    def ask(self, *words):
        """The first line of the answer, and the value behind it; None: none came, and what was asked may be done."""
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        try:
            if not self.socket:
                self.socket = socket.create_connection(("127.0.0.1", self.port), WAIT)
                self.file = self.socket.makefile("rb")
            self.socket.sendall(request)
            line = self.file.readline().strip()
            if not line:
                raise OSError("closed")
            value = self.file.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" and line != b"$-1" else None
            return line, value
        except (OSError, ValueError):
            if self.socket:
                self.socket.close()
            self.socket = None
            return None


def main():
    servers = [Server(int(port)) for port in sys.argv[1:]]
    allowed = {}  # of a key: what it may have
    sets = hits = refused = wrong = number = 0
    while not select.select([0], [], [], 0)[0]:
        key = b"key%d" % random.randrange(KEYS)
        number += 1
        value = b"%d" % number
        random.shuffle(servers)
        for server in servers:
            answer = server.ask(b"SET", key, value)
            if answer and answer[0] == b"+OK":
                allowed[key] = {value}
                sets += 1
                break
            if not answer:
                allowed.setdefault(key, set()).add(value)
            else:
                refused += 1
        for server in servers:
            answer = server.ask(b"GET", key)
            if not answer or answer[1] is None:
                continue
            hits += 1
            if answer[1] not in allowed.get(key, ()):
                wrong += 1
                print("port", server.port, key.decode(), "has", answer[1].decode(), "and not one of",
                      *(v.decode() for v in allowed.get(key, ())), flush=True)
    print("sets", sets, "hits", hits, "refused", refused, flush=True)
    return 1 if wrong else 0


sys.exit(main())
