"""Clients that take what they can, for check_greedy.sh: written against rdmad-protocol(7), on a UNIX socket.

    greedy.py SOCKET pings COUNT    grant 1024 credits, ask for pings without end, acknowledge nothing
    greedy.py SOCKET large COUNT    ask for messages of 1 MiB
    greedy.py SOCKET silent COUNT   connect, and ask for nothing

Each prints a line, "IN in, OUT refused", when all have come, and stays until its input ends.
"""
import selectors
import socket
import struct
import sys
import time

CONNECT, ACCEPT, SEND = 1, 2, 4
PING = 300


def frame(op, payload, addr=0, key=0):
    return struct.pack("<QQII", op | len(payload) << 16, addr, key, 0) + payload


class Client:
    def __init__(self, path, message_size, credits):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(path)
        request = struct.pack("<IHBBHHIII32s", 0x44414d52, 1, 0, 1, 0, credits, message_size, 0, PING, b"")
        self.socket.sendall(frame(CONNECT, request, 0x74666f73616d6472, 1))
        self.credits = 0
        self.bytes = b""
        answer = self.exactly(24)
        op, length = answer[0], int.from_bytes(answer[2:8], "little")
        data = self.exactly(length)
        self.accepted = op == ACCEPT
        if self.accepted:
            self.credits = int.from_bytes(data[12:14], "little")
        self.socket.setblocking(False)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                return b"\0" * count
            data += piece
        return data

    def read(self):
        """Take what comes, and count the credits that come back. Nothing is acknowledged."""
        while True:
            try:
                piece = self.socket.recv(1 << 18)
            except OSError:
                break
            if not piece:
                break
            self.bytes += piece
        while len(self.bytes) >= 24:
            length = int.from_bytes(self.bytes[2:8], "little")
            if len(self.bytes) < 24 + length:
                break
            if self.bytes[0] == SEND:
                self.credits += int.from_bytes(self.bytes[28:30], "little")
            self.bytes = self.bytes[24 + length:]

    def ask(self):
        record = struct.pack("<IIBBHI", PING, 0, 1, 0, 0, 0) + b"\0" * (PING + 4)
        records = record * 50
        message = struct.pack("<IHH", 8 + len(records), 0, 0) + records
        while self.credits:
            try:
                self.socket.setblocking(True)
                self.socket.settimeout(0.05)
                self.socket.sendall(frame(SEND, message))
            except OSError:
                self.credits = 0
                return
            finally:
                self.socket.setblocking(False)
            self.credits -= 1


def main():
    path, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    size, credits = {"pings": (16384, 1024), "large": (1 << 20, 8), "silent": (8192, 8)}[kind]
    clients = [Client(path, size, credits) for _ in range(count)]
    inside = [c for c in clients if c.accepted]
    end = time.monotonic() + (3 if kind == "pings" else 0)
    while time.monotonic() < end:
        for client in inside:
            client.ask()
            client.read()
    print(f"{len(inside)} in, {count - len(inside)} refused", flush=True)
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin, selectors.EVENT_READ)
    waiting.select()


main()
