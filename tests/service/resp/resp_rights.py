#!/usr/bin/env python3
"""resp_rights.py RDMAD CLIENTS PASSWORD RELOAD...: what a client hears of when its rights become less while it listens. It comes by a
UNIX socket as its user, whose line in the file CLIENTS this rewrites, and has the daemon read by the command RELOAD. Another one
proves that it is "lab", and may do everything."""
import os
import subprocess
import sys

from resp_client import check, fail, failures, wait_until
from resp_events import Reader, kept

TRACK = ["CLIENT", "TRACKING", "ON"]


def main():
    path, clients, password, *reload = sys.argv[1:]

    def may(rights):
        with open(clients, "w", encoding="utf-8") as file:
            file.write(f"lab kv resp read= write= flush names=\n@{os.getuid()} kv resp {rights}\n")
        subprocess.run(reload, check=True)

    may("read= write= flush names=")
    full, asker = Reader(path), Reader(path)
    wait_until("all rights", lambda: not (asker.ask("GET", "other") or b"").startswith(b"-"))
    check("AUTH", full.ask("AUTH", "lab", password), b"+OK")
    check("CONFIG SET", full.ask("CONFIG", "SET", "notify-keyspace-events", "KEA"), b"+OK")
    full.ask("MSET", "app/1", 1, "other", 1)
    reads, all_keys, ears, far, channels, pattern = (Reader(path, True) for _ in range(6))
    reads.ask(*TRACK)
    reads.ask("MGET", "app/1", "other")
    all_keys.ask(*TRACK, "BCAST")
    far.ask(*TRACK, "BCAST", "REDIRECT", ears.ask("CLIENT", "ID"))
    for c, words in ((channels, ["SUBSCRIBE", "news", "app/news"]), (pattern, ["PSUBSCRIBE", "__key*"])):
        c.send(*words)
        c.ask("PING")
        c.heard.clear()

    may("read=app/ write=app/ names=app/,__key")
    wait_until("less rights", lambda: (asker.ask("GET", "other") or b"").startswith(b"-NOPERM"))
    full.ask("MSET", "app/1", 2, "other", 2)
    for c in (reads, all_keys, ears):
        c.listen(1)
    reads.listen(2)
    full.ask("PUBLISH", "news", "x")
    full.ask("PUBLISH", "app/news", "y")
    full.ask("SET", "other", 3)
    full.ask("SET", "app/2", 3)
    for c in (all_keys, ears):
        c.listen(2)
    channels.listen(1)
    pattern.listen(4)
    check("a client that reads", sorted(kept(reads.heard), key=repr), [None, b"app/1"])
    for c in (all_keys, ears):
        check("a client that hears of all", kept(c.heard), [b"app/1", b"app/2"])
    check("one of channels", channels.heard, [[b"message", b"app/news", b"y"]])
    if len(pattern.heard) < 4 or any(b"other" in b" ".join(words) for words in pattern.heard):
        fail(f"one of a pattern heard {pattern.heard}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
