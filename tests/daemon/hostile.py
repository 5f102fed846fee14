#!/usr/bin/env python3
"""hostile.py SOCKET COMMAND...: a client of the software transport that rdmad has no reason to like.

SOCKET is the path of a UNIX socket, or HOST:PORT.
  flood SECONDS      ask for a service that is not there, again and again, and do not wait for the answer; print how often
  ask COUNT          ask COUNT times and wait for each refusal; print how often it came
  hold COUNT [FROM [USER]]
                     connect to ping, at most COUNT times, and print for each "accepted" or "refused REASON DETAIL";
                     then keep the connections until it is killed. FROM: the local address. USER: as this user, a number
  crowd COUNT        as hold, to the channel service, and all of them to one worker
  forged TEXT        as hold 1, from a socket with this name
  overrun SIZE       SOCKET is that of a channel over shared memory with rings of SIZE bytes: claim to have put far more
"""
import mmap
import os
import socket
import struct
import sys
import time

PING, CHANNEL = 1, 4
ACCEPT, REJECT = 2, 3


def request(service, count=0):
    wire = struct.pack("<IHBBHHIII", 0x44414D52, 1, 0, service, 0, 2, 4608, count, 0) + bytes(32)
    header = bytes([1, 0]) + len(wire).to_bytes(6, "little") + b"rdmasoft" + struct.pack("<HBBI", 1, 0, 0, 0)
    return header + wire


def connect(target, local=None, name=None):
    if target.startswith("/"):
        s = socket.socket(socket.AF_UNIX)
        if name is not None:
            s.bind(name)
    else:
        s = socket.socket()
        if local:
            s.bind((local, 0))
        host, _, port = target.rpartition(":")
        target = (host, int(port))
    s.connect(target)
    return s


def receive(s, size):
    data = b""
    while len(data) < size:
        part = s.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def answer(s):
    """The operation, then, of a reject, reason and detail."""
    header = receive(s, 24)
    data = receive(s, int.from_bytes(header[2:8], "little"))
    return (header[0], *struct.unpack("<HQ", data[6:16])) if header[0] == REJECT and len(data) >= 16 else (header[0], 0, 0)


def flood(target, seconds):
    until, count, bytes_ = time.monotonic() + float(seconds), 0, request(CHANNEL)
    while time.monotonic() < until:
        try:
            s = connect(target)
            s.sendall(bytes_)
            s.close()
            count += 1
        except OSError:
            time.sleep(0.01)
    print(count)


def ask(target, times):
    refused = 0
    for _ in range(int(times)):
        s = connect(target)
        s.sendall(request(CHANNEL))
        refused += answer(s)[0] == REJECT
        s.close()
    print(refused)


def hold(target, count, local=None, user=None, name=None, asked=request(PING)):
    kept = []
    if user:
        os.setgroups([])
        os.setuid(int(user))
    for _ in range(int(count)):
        s = connect(target, local, name)
        s.sendall(asked)
        got = answer(s)
        print("accepted" if got[0] == ACCEPT else f"refused {got[1]} {got[2]}", flush=True)
        kept.append(s)
    time.sleep(600)


def crowd(target, count):
    hold(target, count, asked=request(CHANNEL, 1))


def forged(target, text):
    hold(target, 1, name=text.encode().decode("unicode_escape").encode("latin-1"))


def overrun(target, size):
    s, magic = connect(target), 0x6D68732D64616D64
    name = target.rpartition("/")[2].encode()
    s.sendall(struct.pack("<QIIQ200s", magic, 1, len(name), int(size), name))
    fds = socket.recv_fds(s, 24, 5)[1]
    mmap.mmap(fds[0], 4096)[128:136] = struct.pack("<Q", 1 << 40)
    os.write(fds[1], struct.pack("<Q", 1))
    s.recv(1)


if __name__ == "__main__":
    {"flood": flood, "ask": ask, "hold": hold, "crowd": crowd, "forged": forged,
     "overrun": overrun}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
