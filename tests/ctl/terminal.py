#!/usr/bin/env python3
"""terminal.py COMMAND...: looks at rdmactl's screen at a terminal of its own, and says what is wrong.

Each case types keys, changes the size or sends signals. In the end the terminal has to be as it was: the usual screen,
a cursor, lines and an echo."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

ENTER, LEAVE, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
LIMIT = 120
faults = 0


def fault(case, what):
    global faults
    faults += 1
    print(f"FAILED: {case}: {what}", file=sys.stderr)


class Screen:
    def __init__(self, case, command, rows=24, columns=100):
        self.case, self.shown = case, b""
        self.terminal, own = pty.openpty()
        self.resize(rows, columns)
        self.usual = termios.tcgetattr(own)
        self.own = own
        self.child = os.fork()
        if self.child == 0:
            os.setsid()
            fcntl.ioctl(own, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(own, fd)
            os.environ["TERM"] = "xterm"
            os.execvp(command[0], command)

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.terminal, keys)

    def frames(self):
        """What came since the last screen began, and each frame of it."""
        return self.shown.split(b"\x1b[H")[1:]

    def until(self, what, true):
        end = time.monotonic() + LIMIT
        while not true(self):
            if time.monotonic() > end:
                fault(self.case, f"waited in vain for {what}: {self.shown[-400:]!r}")
                return
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.terminal, 65536)
                except OSError:
                    return

    def wait(self):
        """Its exit status, or below 0 the signal."""
        end, pid = time.monotonic() + LIMIT, 0
        while pid == 0 and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.05)[0]:
                self.shown += os.read(self.terminal, 65536)
            pid, status = os.waitpid(self.child, os.WNOHANG)
        if pid == 0:
            fault(self.case, "does not end")
            os.kill(self.child, signal.SIGKILL)
            pid, status = os.waitpid(self.child, 0)
        while select.select([self.terminal], [], [], 0)[0]:
            self.shown += os.read(self.terminal, 65536)
        return os.waitstatus_to_exitcode(status)

    def is_usual(self):
        return termios.tcgetattr(self.own)[3] == self.usual[3]

    def ends(self, expected):
        status = self.wait()
        if status not in expected:
            fault(self.case, f"status {status}, not {expected}: {self.shown[-400:]!r}")
        if not self.is_usual():
            fault(self.case, "the terminal has neither lines nor an echo")
        if self.shown.count(ENTER) != self.shown.count(LEAVE) or self.shown.rfind(CURSOR) < self.shown.rfind(ENTER):
            fault(self.case, f"the screen or the cursor is not as it was: {self.shown[-200:]!r}")
        os.close(self.terminal)
        os.close(self.own)


def drawn(text):
    return lambda s: any(text in frame for frame in s.frames()[1:])


def last(text):
    return lambda s: text in s.frames()[-1] if s.frames() else False


def main():
    command = sys.argv[1:]
    every = command + ["top", "--delay", "0.2"]
    s = Screen("q", every)
    s.until("a screen", drawn(b"sorted by requests"))
    if s.is_usual():
        fault("q", "keys wait for a line's end")
    s.until("what Redis's clients ask for", lambda s: any(re.search(rb"resp \d+/s", frame) for frame in s.frames()))
    for key, order in ((b"i", b"in"), (b"o", b"out"), (b"f", b"flight"), (b"a", b"age"), (b"n", b"number"), (b"r", b"requests")):
        s.type(key)
        s.until(f"the order {order}", last(b"sorted by " + order))
    s.type(b"\x1b[A")  # an arrow is no key
    s.type(b"q")
    s.ends([0])

    s = Screen("size", every, rows=24, columns=100)
    s.until("a screen", drawn(b"sorted by"))
    s.resize(4, 30)
    s.shown = s.shown[:s.shown.find(ENTER) + len(ENTER)]
    s.until("a small one", lambda s: len(s.frames()) > 3 and b"sorted by" not in s.frames()[-2])
    lines = s.frames()[-2].replace(b"\x1b[K", b"").replace(b"\x1b[J", b"").split(b"\r\n")
    if len(lines) > 4 or max(map(len, lines)) > 30:
        fault("size", f"{len(lines)} lines, of {max(map(len, lines))} columns, for 4 of 30")
    s.type(b"q")
    s.ends([0])

    for name, status in (("INT", 0), ("TERM", 0), ("HUP", 0), ("QUIT", 0)):
        s = Screen(name, every)
        s.until("a screen", drawn(b"sorted by"))
        os.kill(s.child, getattr(signal, "SIG" + name))
        s.ends([status])
    s = Screen("^C", every)
    s.until("a screen", drawn(b"sorted by"))
    s.type(b"\x03")
    s.ends([0])
    s = Screen("abort", every)
    s.until("a screen", drawn(b"sorted by"))
    os.kill(s.child, signal.SIGABRT)
    s.ends([-signal.SIGABRT, 1, 134])

    s = Screen("^Z", every)
    s.until("a screen", drawn(b"sorted by"))
    os.kill(s.child, signal.SIGTSTP)
    s.until("the usual screen", lambda s: LEAVE in s.shown)
    os.waitpid(s.child, os.WUNTRACED)
    if not s.is_usual():
        fault("^Z", "the terminal of a program that stopped has neither lines nor an echo")
    os.kill(s.child, signal.SIGCONT)
    s.until("a screen again", lambda s: s.shown.count(ENTER) == 2 and b"sorted by" in s.shown[s.shown.rfind(ENTER):])
    s.type(b"q")
    s.ends([0])

    s = Screen("count", command + ["status", "--watch=0.2", "--count", "2"])
    s.ends([0])
    if not drawn(b"uptime")(s):
        fault("count", f"no status: {s.shown[:400]!r}")
    s = Screen("watch", command + ["status", "-w"])
    s.until("a status", lambda s: b"uptime" in s.shown)
    s.type(b"q")
    s.ends([0])

    # The daemon goes: the cause stands on the usual screen.
    s = Screen("gone", every)
    s.until("a screen", drawn(b"sorted by"))
    os.kill(int(os.environ["DAEMON"]), signal.SIGTERM)
    s.ends([3])
    if b"cannot reach the daemon" not in s.shown[s.shown.rfind(LEAVE):]:
        fault("gone", f"the cause is not told: {s.shown[-300:]!r}")
    sys.exit(min(faults, 1))


main()
