#!/usr/bin/env python3
"""resp_clients.py PORT SOCKET [USER PASSWORD]: an rdmad with two workers as Redis's clients see it: the bytes of what programs parse, clients of
other threads, and python3-redis, if it is there. With a password, what a server answers that has keys."""
import re
import sys
import time

import resp_client
from resp_client import fail, failures

PORT, PATH = int(sys.argv[1]), sys.argv[2]
skipped = 0


def check(what, got, want):
    right = want(got) if callable(want) else want.fullmatch(got.replace("\n", " ").replace("\r", "")) if isinstance(want, re.Pattern) else got == want
    if not right:
        fail(f"{what}: {got!r}, not {getattr(want, 'pattern', want)!r}")


class Error(Exception):
    pass


class Client(resp_client.Client):
    """Replies of RESP2 and RESP3 as a program sees them."""

    def __init__(self, path=None):
        super().__init__(path or PORT)

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind in b"+":
            return rest.decode()
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        if kind in b"$=":
            if rest == b"-1":
                return None
            text = self.exactly(int(rest) + 2)[:-2]
            return text.decode() if kind == b"$" else ("verbatim", text.decode())
        if kind in b"*~>":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        if kind == b"%":
            pairs = [(self.reply(), self.reply()) for _ in range(int(rest))]
            return {k: v for k, v in pairs}
        if kind == b",":
            return float(rest)
        raise AssertionError(line)

    def ask(self, *words):
        got = super().ask(*words)
        return f"-{got}" if isinstance(got, Error) else got

    def raw(self, text, length):
        """The next bytes behind what is sent."""
        self.socket.sendall(text)
        return self.file.read(length)


def errors():
    c = Client()
    for words, want in [
        ("hello 4", "-NOPROTO unsupported protocol version"),
        ("hello x", "-ERR Protocol version is not an integer or out of range"),
        ("hello 3 setname", "-ERR Syntax error in HELLO option 'setname'"),
        ("auth x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"),
        ("auth other x", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("auth default x", "OK"),
        ("auth a b c", "-ERR syntax error"),
        ("select 1", "-ERR DB index is out of range"),
        ("select x", "-ERR value is not an integer or out of range"),
        ("client maint_notifications on", "-ERR unknown subcommand 'maint_notifications'. Try CLIENT HELP."),
        ("client setinfo color red", "-ERR Unrecognized option 'color'"),
        ("client list type x", "-ERR Unknown client type 'x'"),
        ("client list id x", "-ERR Invalid client ID"),
        ("client list x", "-ERR syntax error"),
        ("client kill x", "-ERR No such client"),
        ("client kill id 0", "-ERR client-id should be greater than 0"),
        ("client kill user x", "-ERR No such user 'x'"),
        ("client kill id 999999", 0),
        ("client kill id", "-ERR No such client"),
        ("client kill skipme x", "-ERR syntax error"),
        ("client kill id 9 addr", "-ERR syntax error"),
        ("client reply x", "-ERR syntax error"),
        ("client no-evict on", "OK"),
        ("client no-touch off", "OK"),
        ("client tracking off", "OK"),
        ("client getredir", -1),
        ("client getname", None),
        ("cluster info", "-ERR This instance has cluster support disabled"),
        ("cluster nodes", "-ERR This instance has cluster support disabled"),
        ("asking", "-ERR This instance has cluster support disabled"),
        ("readonly", "OK"),
        ("wait 1 0", 0),
        ("wait 1 -1", "-ERR timeout is negative"),
        ("config set nosuch 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
        ("config set databases 1", "OK"),
        ("config set daemonize yes", "-ERR CONFIG SET failed (possibly related to argument 'daemonize') - can't set immutable config: see rdmad.conf(5)"),
        ("config set maxmemory 1 maxmemory 1", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter"),
        ("config set databases", "-ERR wrong number of arguments for 'config|set' command"),
        ("config rewrite", "-ERR The server is running without a config file"),
        ("config get nosuch", []),
        ("slowlog get -2", "-ERR count should be greater than or equal to -1"),
        ("slowlog len", 0),
        ("latency latest", []),
        ("latency reset", 0),
        ("command list filterby x y", "-ERR syntax error"),
        ("command getkeys ping", "-ERR The command has no key arguments"),
        ("command getkeys nosuch", "-ERR Invalid command specified"),
        ("command getkeys get", "-ERR Invalid number of arguments specified for command"),
        ("command getkeys mset a 1 b 2", ["a", "b"]),
        ("command getkeysandflags set a b", [["a", ["OW", "update"]]]),
        ("command info nosuch", [None]),
        ("function flush", "OK"),
        ("bgsave", "Background saving started"),
        ("save", "OK"),
        ("bgrewriteaof", "Background append only file rewriting started"),
        ("role", ["master", 0, []]),
        ("module list", []),
        ("latency history x", []),
        ("replicaof no one", "-ERR unknown command 'replicaof', rdmad stores strings and hashes, see rdmad-resp(7)"),
        ("monitor", "-ERR unknown command 'monitor', rdmad stores strings and hashes, see rdmad-resp(7)"),
        ("acl whoami", "default"),
        ("acl getuser x", None),
        ("acl cat x", "-ERR Unknown category 'x'"),
        ("acl users", ["default"]),
        ("acl list", ["user default on nopass ~* &* +@all"]),
        ("ping", "PONG"),
        ("ping x", "x"),
        ("ping x y", "-ERR wrong number of arguments for 'ping' command"),
        ("echo x", "x"),
        ("reset", "RESET"),
    ]:
        check(words, c.ask(*words.split()), want)
    check("client setname 'a b'", c.ask("client", "setname", "a b"), "-ERR Client names cannot contain spaces, newlines or special characters.")
    check("client setinfo lib-ver 'a b'", c.ask("client", "setinfo", "lib-ver", "a b"),
          "-ERR lib-ver cannot contain spaces, newlines or special characters.")
    check("shutdown", c.ask("shutdown"), re.compile("-NOPERM .*systemctl stop rdmad.*"))
    check("debug", c.ask("debug", "sleep", "0"), re.compile("-ERR DEBUG command not allowed.*"))
    check("quit", c.raw(b"QUIT\r\n", 5), b"+OK\r\n")
    check("the end after QUIT", c.is_closed(), True)


def protocols():
    c = Client()
    check("hello", c.raw(b"HELLO\r\n", 5), b"*14\r\n")
    c = Client()
    hello = c.ask("hello", "3", "setname", "me")
    check("hello 3", {k: v for k, v in hello.items() if k != "id"},
          {"server": "redis", "version": "7.2.4", "proto": 3, "mode": "standalone", "role": "master", "modules": []})
    check("the name of HELLO", c.ask("client", "getname"), "me")
    check("info in RESP3", c.ask("info", "server"), lambda got: got[0] == "verbatim")
    check("config get in RESP3", c.ask("config", "get", "databases", "save"), {"databases": "1", "save": ""})
    check("trackinginfo", c.ask("client", "trackinginfo"), {"flags": ["off"], "redirect": -1, "prefixes": []})
    check("getuser", c.ask("acl", "getuser", "default"), {"flags": ["on", "nopass"], "passwords": [], "commands": "+@all",
                                                           "keys": "~*", "channels": "&*", "selectors": []})
    check("null in RESP3", c.raw(b"GET nosuch\r\n", 3), b"_\r\n")
    check("memory stats", c.ask("memory", "stats"), lambda got: got["total.allocated"] <= got["peak.allocated"] and got["keys.count"] == 0)
    check("memory doctor", c.ask("memory", "doctor"), lambda got: "kv.memory" in got[1])
    check("histogram", c.raw(b"LATENCY HISTOGRAM\r\n", 4), b"%0\r\n")
    check("hello without a version", c.ask("hello")["proto"], 3)
    other = Client()
    check("another connection is in RESP2", other.raw(b"GET nosuch\r\n", 5), b"$-1\r\n")
    check("and this one still in RESP3", c.raw(b"GET nosuch\r\n", 3), b"_\r\n")
    docs, commands = c.ask("command", "docs"), c.ask("command")
    check("command count", c.ask("command", "count"), len(commands))
    check("command docs", sorted(docs), sorted(x[0] for x in commands))
    check("command list", c.ask("command", "list"), lambda got: {x[0] for x in commands} <= set(got) and "client|id" in got)
    check("command docs of one", list(c.ask("command", "docs", "get", "nosuch")), ["get"])
    check("command info of a subcommand", c.ask("command", "info", "client|id")[0][0], "client|id")
    check("reset", c.raw(b"RESET\r\n", 8), b"+RESET\r\n")
    check("RESP2 after RESET", c.raw(b"GET nosuch\r\n", 5), b"$-1\r\n")
    check("no name after RESET", c.ask("client", "getname"), None)
    check("CLIENT REPLY", c.raw(b"CLIENT REPLY SKIP\r\nPING a\r\nPING b\r\nCLIENT REPLY OFF\r\nPING c\r\nCLIENT REPLY ON\r\n", 12),
          b"$1\r\nb\r\n+OK\r\n")


FIELDS = "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem multi-mem rbs rbp obl oll omem tot-mem events " \
         "cmd user redir resp lib-name lib-ver".split()


def listed(c, *words):
    text = c.ask("client", "list", *words)
    rows = [dict(field.split("=", 1) for field in line.split(" ")) for line in (text[1] if isinstance(text, tuple) else text).split("\n")[:-1]]
    for row in rows:
        check("the fields of CLIENT LIST", list(row), FIELDS)
    return rows


def clients():
    c, others = Client(), []
    for i in range(16):
        other = Client(PATH if i >= 8 else None)
        others.append(other)
        other.ask("client", "setname", f"other{i}")
        other.ask("client", "setinfo", "lib-name", "tests")
        other.ask("client", "setinfo", "LIB-VER", "1.2")
    ids = [other.ask("client", "id") for other in others]
    check("ids rise", ids, sorted(ids))
    rows = listed(c, "id", *ids)
    check("client list id", [int(row["id"]) for row in rows], ids)
    check("the others' names", [row["name"] for row in rows], [f"other{i}" for i in range(16)])
    check("and libraries", {(row["lib-name"], row["lib-ver"], row["user"], row["resp"]) for row in rows}, {("tests", "1.2", "default", "2")})
    check("addresses", rows[0]["addr"], "127.0.0.1:%d" % others[0].socket.getsockname()[1])
    check("addresses", rows[0]["laddr"], f"127.0.0.1:{PORT}")
    check("addresses of UNIX sockets", (rows[8]["addr"], rows[8]["flags"]), (f"{PATH}:0", "U"))
    others[0].ask("multi")
    others[0].ask("get", "x")
    row = listed(others[1], "id", ids[0])[0]
    check("a transaction", (row["multi"], row["flags"]), ("1", "x"))
    check("its own line", others[2].ask("client", "info"), re.compile(f"id={ids[2]} .* cmd=client\\|info .* "))
    check("by type", len(listed(c, "type", "normal")) >= 17 and not listed(c, "type", "pubsub") + listed(c, "type", "master"), True)
    connected = int(re.search("connected_clients:([0-9]+)", c.ask("info", "clients")).group(1))
    check("connected_clients", connected, len(listed(c)))

    check("the old form", c.ask("client", "kill", rows[1]["addr"]), "OK")
    check("kill id", c.ask("client", "kill", "id", ids[2]), 1)
    check("kill addr and id that differ", c.ask("client", "kill", "id", ids[3], "addr", rows[4]["addr"]), 0)
    check("kill addr", c.ask("client", "kill", "addr", rows[4]["addr"]), 1)
    check("kill laddr and id", c.ask("client", "kill", "laddr", f"{PATH}:0", "id", ids[9]), 1)
    for i in (1, 2, 4, 9):
        check(f"killed {i}", others[i].is_closed(), True)
    check("the others live", [others[i].ask("ping") for i in (3, 5, 8)], ["PONG"] * 3)
    mine = c.ask("client", "id")
    check("not the client itself", c.ask("client", "kill", "id", mine), 0)
    check("but when it wants that", c.ask("client", "kill", "id", mine, "skipme", "no"), 1)
    check("which ends it", c.is_closed(), True)
    c = Client()
    check("all of a user", c.ask("client", "kill", "user", "default"), lambda n: n >= 12)
    for i in (0, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15):
        check(f"killed {i}", others[i].is_closed(), True)
    check("gone", len(listed(c)), 1)


def figures():
    c = Client()
    text = c.ask("info")
    fields = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
    for name in """redis_version redis_mode os arch_bits process_id run_id tcp_port uptime_in_seconds loading role connected_slaves
            master_repl_offset cluster_enabled used_memory used_memory_rss used_memory_peak maxmemory maxmemory_policy total_system_memory
            mem_fragmentation_ratio connected_clients maxclients blocked_clients total_connections_received total_commands_processed
            instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes rejected_connections expired_keys evicted_keys
            keyspace_hits keyspace_misses aof_enabled aof_last_write_status rdb_last_bgsave_status used_cpu_sys used_cpu_user server_name
            rdmad_version""".split():
        check(f"INFO has {name}", name in fields, True)
    check("some of them", [fields[x] for x in "redis_version server_name redis_mode role loading tcp_port arch_bits".split()],
          ["7.2.4", "rdmad", "standalone", "master", "0", str(PORT), "64"])
    check("run_id", fields["run_id"], re.compile("[0-9a-f]{40}"))
    check("sections", re.findall("# (.*)\r\n", text),
          "Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster Keyspace".split())
    check("sections by name", re.findall("# (.*)\r\n", c.ask("info", "CPU", "keyspace", "nosuch")), ["CPU", "Keyspace"])
    check("all", re.findall("# (.*)\r\n", c.ask("info", "all")),
          "Server Clients Memory Persistence Stats Replication CPU Commandstats Errorstats Latencystats Cluster Keyspace".split())
    c.ask("set", "a", "1")
    c.ask("set", "b", "1", "EX", "100")
    check("keyspace", c.ask("info", "keyspace"), "# Keyspace\r\ndb0:keys=2,expires=1,avg_ttl=0\r\n")
    other = Client(PATH)
    c.ask("config", "resetstat")
    for _ in range(7):
        other.ask("get", "a")
    other.ask("get", "nosuch")
    other.ask("incr", "a", "b")
    other.ask("ping")  # the visit of those before it has ended
    stats = dict(line.split(":", 1) for line in c.ask("info", "stats").split("\r\n")[1:-1])
    check("hits and misses", (stats["keyspace_hits"], stats["keyspace_misses"]), ("7", "1"))
    check("commands", int(stats["total_commands_processed"]), lambda n: 9 <= n <= 12)
    check("errors", stats["total_error_replies"], "1")
    check("bytes", int(stats["total_net_input_bytes"]) > 100 and int(stats["total_net_output_bytes"]) > 50, True)
    check("cmdstat", c.ask("info", "commandstats"), re.compile(r".*cmdstat_get:calls=[0-9]+,usec=[0-9]+,usec_per_call=(?!0\.00)[0-9]+\.[0-9][0-9],rejected_calls=0,failed_calls=0.*"))
    c.ask("config", "resetstat")
    c.ask("multi")
    for words in (("set", "a", "x"), ("incr", "a"), ("expire", "a", "0")):
        c.ask(*words)
    c.ask("exec")
    c.ask("multi")
    c.ask("nosuch")
    c.ask("exec")
    c.ask("hello", "9")
    c.ask("client", "nosuch")
    c.ask("get")
    rows = c.ask("info", "errorstats").split("\r\n")[1:-1]
    check("errors by class", rows, ["errorstat_ERR:count=4", "errorstat_EXECABORT:count=1", "errorstat_NOPROTO:count=1"])
    check("all errors", "total_error_replies:6\r" in c.ask("info", "stats"), True)
    rows = re.findall("cmdstat_([^:]*):calls=([0-9]+).*failed_calls=([0-9]+)", c.ask("info", "commandstats"))
    got = {name: (calls, failed) for name, calls, failed in rows}
    check("calls of a transaction", [got.get(name) for name in "set incr expire multi exec get".split()],
          [("1", "0"), ("1", "1"), ("1", "0"), ("2", "0"), ("2", "1"), ("0", "0")])
    other.close()
    c.ask("client", "kill", "type", "normal")
    known = 1
    for i in range(200):
        other = Client()
        number = other.ask("client", "id")
        check("kill", c.ask("client", "kill", "id", number), 1)
        if i % 2:
            check("clients behind CLIENT KILL", f"connected_clients:{known}\r" in c.ask("info", "clients"), True)
        try:
            other.send("set", "killed", "x")
        except OSError:  # it has ended
            continue
        check("its end", other.is_closed(), True)
    check("a command behind CLIENT KILL", c.ask("exists", "killed"), 0)
    now = [int(x) for x in c.ask("time")]
    check("time", abs(now[0] + now[1] / 1e6 - time.time()) < 60, True)
    check("lastsave", c.ask("lastsave"), lambda t: abs(t - time.time()) < 3600)
    c.ask("del", "a", "b")


def python3_redis():
    try:
        import redis
    except ImportError:
        print("resp_clients: python3-redis is missing: left out")
        return 77
    for r in (redis.Redis(port=PORT, client_name="py", decode_responses=True), redis.Redis(unix_socket_path=PATH, decode_responses=True)):
        check("python3-redis ping", r.ping(), True)
        check("set", (r.set("py", "value", ex=100), r.get("py"), r.ttl("py") in (99, 100)), (True, "value", True))
        check("info", (r.info()["redis_version"], r.info("keyspace")["db0"]["keys"]), ("7.2.4", 1))
        check("client list", [x["id"] for x in r.client_list() if x["id"] == str(r.client_id())], [str(r.client_id())])
        check("config", r.config_get("maxmem*")["maxmemory-policy"], "noeviction")
        check("time", abs(r.time()[0] - time.time()) < 60, True)
        check("command", r.command()["get"]["arity"], 2)
        check("pipeline", r.pipeline().set("py", 1).incr("py").mget("py", "nosuch").execute(), [True, 2, ["2", None]])
        check("scan", list(r.scan_iter("p*")), ["py"])
        check("slowlog", r.slowlog_get(), [])
        check("acl", (r.acl_whoami(), r.acl_getuser("default")["enabled"]), ("default", True))
        try:
            r.lpush("list", 1)
        except redis.ResponseError as error:
            check("lists", str(error), re.compile("unknown command 'LPUSH', rdmad stores strings and hashes.*"))
        r.delete("py")
        r.close()
    return 0


def keys(user, password):
    c = Client()
    noauth = "-NOAUTH Authentication required."
    check("without a password", c.ask("get", "x"), noauth)
    check("ping", c.ask("ping"), noauth)
    check("hello", c.ask("hello", "3"), re.compile("-NOAUTH HELLO must be called with the client already authenticated.*"))
    wrong = "-WRONGPASS invalid username-password pair or user is disabled."
    for words in (("auth", password), ("auth", user, password[:-1]), ("auth", user, password + "A"), ("auth", "x", password),
                  ("hello", "3", "auth", user, "x"), ("auth", user, "")):
        check(" ".join(words[:-1]), c.ask(*words), wrong)
    check("still without", c.ask("get", "x"), noauth)
    check("auth", c.ask("auth", user, password), "OK")
    check("whoami", c.ask("acl", "whoami"), user)
    check("its own keys", c.ask("set", "app/x", 1), "OK")
    check("others' keys", c.ask("set", "x", 1), re.compile("-NOPERM .*"))
    check("flush", c.ask("flushall"), re.compile("-NOPERM .*'flushall' command"))
    check("its rights", c.ask("acl", "list"), [f"user {user} on %R~app/* %W~app/* +@all -flushall -flushdb"])
    local = Client(PATH)  # of another user, whose rights are none
    check("a client of a UNIX socket", local.ask("ping"), noauth)
    check("the list has its own user alone", [row["user"] for row in listed(c)], [user])
    check("kill all", c.ask("client", "kill", "type", "normal"), 0)
    check("kill another user's", c.ask("client", "kill", "user", "default"), 0)
    check("the other lives", local.ask("ping"), noauth)
    for words in ("bgsave", "save", "bgrewriteaof", "config resetstat"):
        check(words, c.ask(*words.split()), f"-NOPERM this user has no permissions to run the '{words.replace(' ', '|')}' command")
    for words in ("publish news m", "subscribe news", "psubscribe n*", "ssubscribe news"):
        check(words, c.ask(*words.split()), "-NOPERM this user has no permissions to access one of the channels used as arguments")
    check("reset", (c.ask("reset"), c.ask("get", "app/x")), ("RESET", noauth))
    c = Client()
    hello = c.ask("hello", "3", "auth", user, password, "setname", "n")
    check("hello with a password", (hello["proto"], c.ask("get", "app/x"), c.ask("client", "getname")), (3, "1", "n"))
    check("a wrong one later", (c.ask("auth", user, "x"), c.ask("get", "app/x")), (wrong, "1"))
    try:
        import redis
    except ImportError:
        return
    check("python3-redis", redis.Redis(port=PORT, username=user, password=password).get("app/x"), b"1")


def http():
    """A request of a browser: what its body says is not done."""
    for head in (b"POST / HTTP/1.1\r\n", b"host: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n"):
        c = Client()
        c.socket.sendall(head + b"\r\nSET evil 1\r\n")
        said = b""
        while part := c.socket.recv(4096):
            said += part
        check(f"what {head} is told", said.count(b"\r\n"), head.count(b"GET"))
    check("the body of a request", Client().ask("exists", "evil"), 0)


if len(sys.argv) > 3:
    keys(*sys.argv[3:])
else:
    errors()
    protocols()
    clients()
    figures()
    http()
    skipped = python3_redis()
sys.exit(1 if failures else skipped)
