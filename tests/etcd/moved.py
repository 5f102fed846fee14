"""moved.py fill|check|right PORT... [PATH...]: keys of several lengths, types and times to live on several servers, by Redis's protocol, and
with flags by memcached's where sockets of it are named; and whether each is still there as it was, at the server that has it now; `right`: or
is not there. `count`: clients count until SIGTERM, and follow redirections as clients of Redis Cluster do. Exit status 1: a key is not
there, or a count is wrong or refused, which is printed.
moved.py flush PORT PID: when the first keys come to a server that has none, etcd, of that process, is stopped, and a transaction deletes all
that the server shows. Exit status 2: it was too late for that, and nothing is deleted."""
import os
import signal
import socket
import sys
import threading
import time

COUNT = 3000
CLIENTS = 4
COUNTERS = 200
REDIRECTIONS = 16  # that a client follows; the later half after a pause, where it is told TRYAGAIN


def connect(to):
    if to.isdigit():
        return socket.create_connection(("127.0.0.1", int(to)), 10)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(to)
    return connection


class Servers:
    def __init__(self, servers):
        self.files, self.servers = [], servers
        for connection in map(connect, servers):
            self.files.append((connection, connection.makefile("rb")))

    def once(self, at, words):
        connection, file = self.files[at]
        connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        line = file.readline().strip()
        if line[:1] == b"$" and line != b"$-1":
            return file.read(int(line[1:]) + 2)[:-2]
        return line

    def ask(self, *words):
        """The answer of the server that has the key, which there may be none for a moment."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for at in range(len(self.files)):
                answer = self.once(at, words)
                if not answer.startswith((b"-MOVED", b"-CLUSTERDOWN", b"-TRYAGAIN", b"-ERR", b"-LOADING", b"SERVER_ERROR")):
                    return answer
            time.sleep(0.002)
        return answer

    def follow(self, at, words):
        """The answer, and the server that gave it, by no more redirections than a client of Redis Cluster follows."""
        for redirection in range(REDIRECTIONS):
            answer = self.once(at, words)
            if answer.startswith(b"-MOVED"):
                at = self.servers.index(answer.rsplit(b":", 1)[1].decode())
            elif not answer.startswith(b"-TRYAGAIN"):
                break
            elif redirection >= REDIRECTIONS // 2:
                time.sleep(0.05)
        return answer, at


def count(ports, number, ended, wrong):
    servers, at = Servers(ports), [0] * COUNTERS
    for counted in range(1, sys.maxsize):
        for counter in range(COUNTERS):
            if ended.is_set() or wrong:
                return
            answer, at[counter] = servers.follow(at[counter], (b"INCR", b"count%d.%d" % (number, counter)))
            if answer != b":%d" % counted:
                wrong.append("count%d.%d answers %r to number %d" % (number, counter, answer[:60], counted))


def count_all(ports):
    ended, wrong = threading.Event(), []
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    clients = [threading.Thread(target=count, args=(ports, number, ended, wrong)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    print(*wrong, sep="\n", end="")
    return 1 if wrong else 0


class Memcached(Servers):
    def once(self, at, words):
        connection, file = self.files[at]
        connection.sendall(words[0])
        lines = [file.readline()]
        if lines[0].startswith(b"VALUE"):
            lines += [file.readline(), file.readline()]
        return b"".join(lines)


def flush(port, etcd):
    server = Servers([port])
    end = time.monotonic() + 20
    while server.once(0, (b"DBSIZE",)) == b":0" and time.monotonic() < end:
        pass
    os.kill(etcd, signal.SIGSTOP)
    try:
        time.sleep(0.3)  # a table that was on its way comes
        own = [line for line in server.once(0, (b"CLUSTER", b"NODES")).splitlines() if b"myself" in line][0]
        if server.once(0, (b"DBSIZE",)) == b":0" or not own.endswith(b"connected"):  # and slots behind that
            return 2
        answers = [server.once(0, words) for words in ((b"MULTI",), (b"FLUSHALL",), (b"EXEC",))]
        print(*answers)
        return 0 if answers[2] == b"*1" else 1
    finally:
        os.kill(etcd, signal.SIGCONT)


def value(number):
    return b"%d " % number * (1 + number % 7 * 40)


def main():
    if sys.argv[1] == "count":
        return count_all(sys.argv[2:])
    if sys.argv[1] == "flush":
        return flush(sys.argv[2], int(sys.argv[3]))
    servers = Servers([to for to in sys.argv[2:] if to.isdigit()])
    flagged = Memcached([to for to in sys.argv[2:] if not to.isdigit()])
    wrong = 0
    for number in range(COUNT):
        key = b"moved%d" % number
        kind = number % 3
        if flagged.files and number % 4 == 0:
            item = b"%d %d\r\n%s\r\n" % (number * 1000003 % 2**32, len(value(number)), value(number))
            if sys.argv[1] == "fill":
                answer = flagged.ask(b"set f%s " % key + item.replace(b" ", b" 0 ", 1))
                good = answer == b"STORED\r\n"
            else:
                answer = flagged.ask(b"get f%s\r\n" % key)
                good = answer == b"VALUE f%s %sEND\r\n" % (key, item) or (sys.argv[1] == "right" and answer == b"END\r\n")
            wrong += not good
            if not good:
                print("f" + key.decode(), "answers", answer[:60])
        if sys.argv[1] == "fill":
            words = ((b"SET", key, value(number)), (b"SET", key, value(number), b"EX", b"5000"),
                     (b"HSET", key, b"field", value(number)))[kind]
            answer = servers.ask(*words)
            good = answer in (b"+OK", b":1")
        else:
            answer = servers.ask(*((b"HGET", key, b"field") if kind == 2 else (b"GET", key)))
            good = answer == value(number)
            if sys.argv[1] == "right" and answer == b"$-1":
                continue
            if good and kind < 2:
                answer = servers.ask(b"TTL", key)
                good = answer == b":-1" if kind == 0 else 1000 < int(answer[1:]) <= 5000
        if not good:
            wrong += 1
            print(key.decode(), "answers", answer[:60])
    return 1 if wrong else 0


sys.exit(main())
