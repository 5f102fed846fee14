"""memcached_differential.py PORT PORT COUNT SEED: random commands, right and wrong, to memcached and to rdmad; both have to
answer the same bytes. What differs on purpose is made the same before, see same()."""
import random
import re
import socket
import sys

KEYS = [b"a", b"b", b"key", b"counter", b"k" * 250, b"k" * 249, b"bin\xff\x01"]
BASE64 = [b"Zm9v", b"YmFy", b"AAE=", b"/w==", b"Zm9vYmE=", b"x", b"====", b"Zm9"]
NUMBERS = [b"0", b"1", b"-1", b"5", b"+7", b"007", b"10", b"18446744073709551615", b"18446744073709551616", b"-18446744073709551615",
           b"9223372036854775807", b"9223372036854775808", b"4294967295", b"4294967296", b"2147483647", b"2147483648", b"-2147483648",
           b"abc", b"1x", b"0x10", b"\t3", b"3\t", b"3\tx", b"--1", b"-", b"1.5", b""]
TIMES = [b"0", b"0", b"0", b"1000", b"-1", b"2592000", b"abc", b"100 ", b"1700000000", b"4294967296"]
VALUES = [b"", b"x", b"0", b"1", b"99", b"100", b"18446744073709551615", b"12 ", b" 7", b"1\0x", b"-0", b"-1", b"text", b"\r\nx", b"END\r\n",
          b"\x00\xff\xfe", b"v" * 100, b"v" * 4095, b"v" * 4096, b"v" * 4097, b"v" * 16383, b"v" * 16384, b"v" * 70000]


class Peer:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""
        self.cas = {}

    def ask(self, command, marker):
        """Its answer, up to that of `mn`, which nothing else answers."""
        self.socket.sendall(command + b"mn\r\n" if marker else command)
        got = self.left
        while not got.endswith(b"MN\r\n"):
            try:
                more = self.socket.recv(1 << 20)
            except ConnectionResetError:
                more = b""
            except TimeoutError:
                sys.exit(f"no answer from port {self.socket.getpeername()[1]} to {command[:400]!r}, behind {got!r}")
            if not more:
                return got + b"<closed>"
            got += more
        self.left = b""
        return got

    def version(self, key):
        """The key's cas unique, of which each server has its own."""
        found = re.search(rb"^HD c(\d+)", self.ask(b"mg " + key + b" c u\r\n", True))
        return found.group(1) if found else b"0"


def key(r):
    return r.choice(KEYS) if r.random() < 0.97 else r.choice([b"k" * 251, b"k" * 300, b"x\ty"])


def data(r, value):
    """Its length as it should be, mostly, and what ends it."""
    n = len(value)
    if n > 4096:  # a line of so many bytes ends the connection
        return b"%d" % n, value + b"\r\n"
    if r.random() < 0.04:
        n += r.choice([-2, -1, 1])
    # Where a server waits for more than there is, it takes empty lines for it; to others they are errors.
    more = b"\r\n" * 8 if n != len(value) else b""
    if r.random() < 0.03:
        return r.choice(NUMBERS), value + b"\r\n" * 9
    return b"%d" % n, value + (b"\r\n" + more if r.random() < 0.98 else b"\n\r\n")


def noreply(r):
    return r.choice([b""] * 6 + [b" noreply"])


def text(r, alone):
    k = key(r)
    which = r.randrange(12)
    if which == 7 and not alone:  # an item of whose value an answer is on its way, memcached does not change in its place
        which = 4
    if which < 4:
        n, value = data(r, r.choice(VALUES))
        flags = r.choice([b"0", b"5", b"4294967295"]) if r.random() < 0.9 else r.choice(NUMBERS)
        line = b" ".join([r.choice([b"set", b"set", b"add", b"replace", b"append", b"prepend"]), k, flags, r.choice(TIMES), n])
        return line + noreply(r) + b"\r\n" + value
    if which < 6:
        return b" ".join([r.choice([b"get", b"gets", b"get"])] + [r.choice(KEYS) for _ in range(r.choice([1, 1, 2, 5, 30]))]) + b"\r\n"
    if which == 6:
        return b" ".join([r.choice([b"gat", b"gats"]), r.choice(TIMES)] + [r.choice(KEYS) for _ in range(r.randrange(3))]) + b"\r\n"
    if which == 7:
        return r.choice([b"incr ", b"decr "]) + k + b" " + r.choice(NUMBERS) + noreply(r) + b"\r\n"
    if which == 8:
        return b"delete " + k + r.choice([b"", b"", b" 0", b" 1", b" 0 noreply", b" noreply", b" noreply 0"]) + b"\r\n"
    if which == 9:
        return b"touch " + k + b" " + r.choice(TIMES) + noreply(r) + b"\r\n"
    if which == 10:
        return r.choice([b"verbosity 1", b"verbosity", b"verbosity x", b"version", b"flush_all", b"flush_all 0", b"flush_all noreply",
                         b"flush_all x", b"flush_all 0 noreply", b"flush_all 1 2 3 4", b"shutdown", b"stats nothing", b"stats detail"]) + b"\r\n"
    return r.choice([b"", b" ", b"x", b"GET a", b"get", b"gets", b"set a 0 0", b"set a 0 0 1 2 3 4", b"nothing at all", b"incr", b"touch",
                     b"mx a", b"m", b"mg", b"ms", b"ms a", b"md", b"ma", b"me", b"delete", b"cas a 0 0 1", b"get a\0b",
                     b" ".join([b"set"] * 40), b"\r", b"  get   a  "]) + r.choice([b"\r\n", b"\r\n", b"\n"])


def meta_flags(r, letters):
    out = []
    for letter in r.sample(letters, r.randrange(min(len(letters), 6) + 1)):
        if letter in "O":
            out.append(b"O" + b"x" * r.choice([0, 1, 5, 30, 31]))
        elif letter == "R":  # none that an item has, which memcached may have seen a second later
            out.append(b"R" + r.choice([b"0", b"500", b"1500000", b"-1", b"abc"]))
        elif letter in "NT":
            out.append(letter.encode() + r.choice(TIMES))
        elif letter in "FDJ":
            out.append(letter.encode() + (r.choice(NUMBERS)))
        elif letter == "M":
            out.append(b"M" + r.choice([b"E", b"A", b"P", b"R", b"S", b"I", b"D", b"+", b"-", b"", b"Q", b"EE"]))
        else:
            out.append(letter.encode())
    if r.random() < 0.03:
        out.append(r.choice([b"x", b"E", b"S100", b"\x7f", b"v", b"q"]))
    return out


def meta(r):
    """A command, in which {cas} stands for a version of its key."""
    command = r.choice([b"mg", b"mg", b"mg", b"ms", b"ms", b"md", b"ma", b"ma"])
    binary = r.random() < 0.15
    k = r.choice(BASE64) if binary else key(r)
    # Of a key that was stored by base64, memcached answers k so ever after: keys of both kinds are not the same ones.
    if command == b"mg":
        # Of a number that grows, memcached forgets T. Of a key that it makes itself, it forgets that it came in base64.
        flags = meta_flags(r, "fsvqutOTNR" if binary else "fksvqutOTNR")
    elif command == b"ms":
        flags = meta_flags(r, "kqOTFMI")
    elif command == b"md":
        flags = meta_flags(r, "kqOTI")
    else:
        flags = meta_flags(r, "qtvONJDM" if binary else "kqtvONJDM")
    if binary:
        flags.append(b"b")
    if command != b"mg" and r.random() < 0.3:
        flags.append(b"C{cas}" if r.random() < 0.6 else b"C" + r.choice([b"0", b"x", b"-1", b"18446744073709551615"]))
    r.shuffle(flags)
    if command == b"ms":
        n, value = data(r, r.choice(VALUES))
        return b" ".join([command, k, n] + flags) + b"\r\n" + value, None if binary else k
    return b" ".join([command, k] + flags) + b"\r\n", None if binary else k


def same(answer):
    """cas uniques are each server's own."""
    answer = re.sub(rb"(VALUE [^\r\n]+ \d+ \d+) \d+\r\n", rb"\1 CAS\r\n", answer)
    # Blanks behind a number are there or not, by what else memcached has to do with the item just then.
    answer = re.sub(rb"(VALUE [^\r\n ]+ \d+|VA) \d+([^\r\n]*\r\n)(\d+) *\r\n", rb"\1 N\2\3\r\n", answer)
    answer = re.sub(rb" s\d+", b" sN", answer)
    # Times are whole seconds of each server's own beginning.
    answer = re.sub(rb" t(\d{2,7})\b", lambda found: b" t%d" % (-(-int(found.group(1)) // 100)), answer)
    answer = re.sub(rb" t42949\d+", b" t0", answer)  # of what has expired memcached takes away too much
    return re.sub(rb"^((?:HD|VA|EX|NF|NS)\b[^\r\n]*) c\d+", rb"\1 cN", answer, flags=re.M)


def main():
    ports, count, seed = [int(p) for p in sys.argv[1:3]], int(sys.argv[3]), int(sys.argv[4])
    r = random.Random(seed)
    peers = [Peer(p) for p in ports]
    for peer in peers:
        peer.ask(b"flush_all\r\n", True)
    differ = 0
    for number in range(count):
        if r.random() < 0.5:
            n = r.choice([1, 1, 1, 4])
            commands = [text(r, n == 1) for _ in range(n)]
            if r.random() < 0.02:  # alone, as memcached drops the answers before it
                commands = [b"get a " + b"k" * 251 + b" b\r\n"]
            asked = [b"".join(commands)] * 2
        else:
            command, of = meta(r)
            asked = [command.replace(b"{cas}", p.version(of) if of and len(of) <= 250 and b"\t" not in of else b"1") for p in peers]
        # Whether memcached ends a connection for a line of more than 2048 bytes is up to when it comes.
        cut = r.randrange(len(asked[0]) + 1) if r.random() < 0.1 and len(asked[0]) < 2000 else 0
        answers = []
        for peer, ask in zip(peers, asked):
            if cut:
                peer.socket.sendall(ask[:cut])
            answers.append(peer.ask(ask[cut:], True))
        # What was answered before the end, memcached may lose.
        if same(answers[0]) != same(answers[1]) and not all(a.endswith(b"<closed>") for a in answers):
            differ += 1
            print(f"{number}: {asked[0][:300]!r}\n  memcached: {same(answers[0])[:300]!r}\n  rdmad:     {same(answers[1])[:300]!r}")
            if differ == 10:
                break
        if any(a.endswith(b"<closed>") for a in answers):
            peers = [Peer(p) for p in ports]
        if number % 200 == 199:  # what differs has no consequences for ever
            for peer in peers:
                peer.ask(b"flush_all\r\n", True)
    print(f"{count} commands, seed {seed}: {differ} answers differ")
    sys.exit(differ > 0)


main()
