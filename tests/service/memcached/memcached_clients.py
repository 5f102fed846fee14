"""memcached_clients.py PORT SOCKET pymemcache|pylibmc: what programs do by Debian's modules for memcached. 77: there is no such module.

memcached_clients.py PORT SOCKET nginx: pages that are at PORT, of the nginx at SOCKET.
memcached_clients.py SOCKET2 SOCKET nutcracker: that is before two servers, of which one has SOCKET2.
"""
import socket
import sys

PATH, WHICH = sys.argv[2:4]
PORT = int(sys.argv[1]) if sys.argv[1].isdigit() else sys.argv[1]


def check(what, got, want):
    if got != want:
        sys.exit(f"{WHICH}: {what}: {got!r}, not {want!r}"[:500])


def pymemcache(where):
    try:
        from pymemcache.client.base import Client
        from pymemcache import serde
    except ImportError as error:
        print(f"pymemcache is missing: {error}")
        sys.exit(77)
    c = Client(where, serde=serde.pickle_serde, timeout=60, default_noreply=False)
    c.flush_all()
    check("set", c.set("key", {"a": [1, 2]}), True)
    check("get", c.get("key"), {"a": [1, 2]})  # which client flags tell
    check("set_many", c.set_many({f"k{i}": i for i in range(100)}), [])
    check("get_many", c.get_many([f"k{i}" for i in range(0, 200, 2)]), {f"k{i}": i for i in range(0, 100, 2)})
    value, cas = c.gets("key")
    check("cas", c.cas("key", "new", cas), True)
    check("cas behind it", c.cas("key", "newer", cas), False)
    check("cas of nothing", c.cas("none", "x", cas), None)
    check("add", (c.add("key", 1), c.add("fresh", 1), c.replace("none", 1)), (False, True, False))
    long = b"x" * 1000000
    check("a long value", (c.set("long", long), c.get("long") == long), (True, True))
    check("incr", (c.set("n", "10"), c.incr("n", 5), c.decr("n", 20), c.incr("none", 1)), (True, 15, 0, None))
    check("append", (c.set("s", b"b"), c.append("s", b"c"), c.prepend("s", b"a"), c.get("s")), (True, True, True, b"abc"))
    check("touch", (c.touch("s", 100), c.touch("none", 1)), (True, False))
    check("delete", (c.delete("s"), c.delete("s"), c.get("s")), (True, False, None))
    check("version", c.version(), b"1.6.18")
    check("stats", c.stats()[b"version"], b"1.6.18")
    c.set("quiet", b"1", noreply=True)
    c.delete("key", noreply=True)
    check("noreply", (c.get("quiet"), c.get("key")), (b"1", None))
    c.quit()


def pylibmc():
    try:
        import pylibmc as module
    except ImportError as error:
        print(f"pylibmc is missing: {error}")
        sys.exit(77)
    for where in (f"127.0.0.1:{PORT}", PATH):
        c = module.Client([where], binary=False, behaviors={"cas": True, "tcp_nodelay": where != PATH})
        c.flush_all()
        check("set", c.set("key", [1, "a"]), True)
        check("get", c.get("key"), [1, "a"])
        check("set_multi", c.set_multi({f"k{i}": i for i in range(100)}), [])
        check("get_multi", len(c.get_multi([f"k{i}" for i in range(200)])), 100)
        value, cas = c.gets("key")
        check("cas", (c.cas("key", "new", cas), c.cas("key", "newer", cas)), (True, False))
        check("incr", (c.set("n", 10), c.incr("n"), c.decr("n", 3)), (True, 11, 8))
        check("long", (c.set("long", "x" * 900000), len(c.get("long"))), (True, 900000))
        check("delete", (c.delete("key"), c.get("key")), (True, None))


def page(name):
    """The status and the text of it."""
    talk = socket.socket(socket.AF_UNIX)
    talk.settimeout(60)
    talk.connect(PATH)
    talk.sendall(b"GET %s HTTP/1.0\r\n\r\n" % name)
    answer = b"".join(iter(lambda: talk.recv(1 << 16), b""))
    talk.close()
    head, _, text = answer.partition(b"\r\n\r\n")
    return head.split()[1], text, head


def nginx():
    try:
        from pymemcache.client.base import Client
    except ImportError as error:
        print(f"pymemcache is missing: {error}")
        sys.exit(77)
    c = Client(("127.0.0.1", PORT), timeout=60, default_noreply=False)
    c.flush_all()
    long = b"<p>" * 300000
    for name, text, flags in ((b"/page", b"<p>hello", 0), (b"/empty", b"", 0), (b"/long", long, 0), (b"/packed", b"\x1f\x8b", 2)):
        check("set", c.set(name, text, flags=flags), True)
        for _ in range(3):  # by connections that stay
            status, got, head = page(name)
            check(name, (status, got, b"Content-Encoding: gzip" in head), (b"200", text, bool(flags)))
    check("no page", page(b"/none")[:2], (b"203", b"of another"))
    check("a page that has gone", (c.delete("/page"), page(b"/page")[:2]), (True, (b"203", b"of another")))
    check("a word with a blank", page(b"/a%20b")[:2], (b"203", b"of another"))


def nutcracker():
    try:
        from pymemcache.client.base import Client
    except ImportError as error:
        print(f"pymemcache is missing: {error}")
        sys.exit(77)
    second, c = (Client(where, timeout=60, default_noreply=False) for where in (PORT, PATH))
    keys = {f"nutcracker:{i}": b"%d" % i * (i % 50 + 1) for i in range(500)}
    for key, value in keys.items():
        check("set", c.set(key, value), True)
    check("get_many", c.get_many(list(keys) + ["none"]), keys)
    there = len(second.get_many(list(keys)))
    check("keys of each", 0 < there < len(keys), True)
    value, cas = c.gets("nutcracker:7")
    check("cas", (c.cas("nutcracker:7", "new", cas), c.cas("nutcracker:7", "newer", cas)), (True, False))
    check("add", (c.add("nutcracker:7", "x"), c.replace("none", "x")), (False, False))
    check("incr", (c.set("n", "10"), c.incr("n", 5), c.decr("n", 20), c.incr("none", 1)), (True, 15, 0, None))
    check("append", (c.set("s", b"b"), c.append("s", b"c"), c.prepend("s", b"a"), c.get("s")), (True, True, True, b"abc"))
    check("touch", (c.touch("s", 100), c.touch("none", 1)), (True, False))
    check("delete", (c.delete("s"), c.delete("s"), c.get("s")), (True, False, None))
    long = b"x" * 1000000
    check("a long value", (c.set("long", long), c.get("long") == long), (True, True))
    long = b"x" * 3000000
    try:
        c.set("long", long)
        check("a value beyond value_max", "stored", "refused")
    except Exception as error:
        check("a value beyond value_max", "too large" in str(error), True)
    check("behind it", (c.set("s", b"1"), c.get("s")), (True, b"1"))
    c.close()


if WHICH in ("nginx", "nutcracker"):
    globals()[WHICH]()
elif WHICH == "pymemcache":
    pymemcache(("127.0.0.1", PORT))
    pymemcache(PATH)
else:
    pylibmc()
