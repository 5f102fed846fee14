"""nemesis.py SEED SECONDS FOLDER RDMAD RDMACTL HISTORY: three etcds and three rdmads, each in a network namespace of its
own, in one that is this process's. For so long, processes are killed, stopped and started again, packets of a pair
are lost on one way or both, and tables are applied. Meanwhile clients write a history of some keys, and all servers are
asked which slots they answer for, on a way that is never cut. Prints what there was, as JSON; what was wrong stands on
stderr. Exit status 1: something was wrong. With a seed that is odd, etcd wants a password."""
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

ETCDS, NODES = ("e1", "e2", "e3"), ("a", "b", "c")
NUMBER = {"e1": 1, "e2": 2, "e3": 3, "a": 11, "b": 12, "c": 13, "h": 21}
PERIOD = os.environ.get("NEMESIS_PERIOD", "2s")
SPREAD = os.environ.get("NEMESIS_SPREAD", "2s")
KEYS = 12  # of the history, and as many others
PATIENCE = 60
NOWHERE = "02:00:00:00:ff:ff"
URLS = ",".join(f"http://10.77.0.{NUMBER[e]}:2379" for e in ETCDS)
USERS = ("user add root:other", "user grant-role root root", "user add rdmad:secret", "role add rdmad",
         "role grant-permission rdmad --prefix=true readwrite /rdmad/kv/", "user grant-role rdmad rdmad", "auth enable")
TABLE = "rdmad-cluster 1\nname kv\nepoch {}\n"

seed, seconds, folder, rdmad, rdmactl, history_program = int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]
draw = random.Random(seed)
has_users = seed % 2 == 1
engine = ["--etcd", URLS, *(["--user", "rdmad", "--password-file", f"{folder}/password"] if has_users else [])]
counts = dict.fromkeys(("kills", "stops", "cuts", "tables", "refused_tables", "looks", "answers", "two_owners"), 0)
failures = []
over = threading.Event()


def fail(text):
    if len(failures) < 5:
        print(f"FAILED: seed {seed}: {text}", file=sys.stderr, flush=True)
    failures.append(text)


def wait_for(what, test):
    until = time.monotonic() + PATIENCE
    while not test():
        if time.monotonic() > until:
            fail(f"waited in vain for {what}")
            return False
        time.sleep(0.05)
    return True


def address(name):
    return f"10.77.0.{NUMBER[name]}"


def card(name):
    return f"02:00:00:00:00:{NUMBER[name]:02x}"


# --- networks

class Network:
    """A namespace for each name, and a bridge between them. Which card has which address is known, never asked:
    so packets from one to another are lost where the address has a card that is nowhere."""

    def __init__(self):
        self.place = {}  # processes that keep the namespaces
        self.cuts = {}  # (from, to): how many there are at this time
        self.configure(None, "link set lo up", "link add br0 address 02:00:00:00:00:fe type bridge",
                       "addr add 10.77.0.254/24 dev br0", "link set br0 up")
        for name in NUMBER:
            place = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 100000"], stdout=subprocess.PIPE)
            place.stdout.readline()
            self.place[name] = place
            self.configure(None, f"link add v{name} type veth peer name eth0 address {card(name)} netns {place.pid}",
                           f"link set v{name} master br0 up")
            self.configure(name, "link set lo up", f"addr add {address(name)}/24 dev eth0", "link set eth0 up")
        for name in NUMBER:
            self.configure(name, *(self.way(other, card(other)) for other in NUMBER if other != name))

    def inside(self, name):
        return ["nsenter", "-n", "-t", str(self.place[name].pid)] if name else []

    def configure(self, name, *lines):
        subprocess.run([*self.inside(name), "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)

    @staticmethod
    def way(to, where):
        return f"neigh replace {address(to)} lladdr {where} dev eth0 nud permanent"

    def cut(self, pairs):
        for begin, end in pairs:
            self.cuts[begin, end] = self.cuts.get((begin, end), 0) + 1
            self.configure(begin, self.way(end, NOWHERE))

    def mend(self, pairs):
        for begin, end in pairs:
            self.cuts[begin, end] -= 1
            if not self.cuts[begin, end]:
                self.configure(begin, self.way(end, card(end)))


# --- processes

class Process:
    def __init__(self, name, *command):
        self.name, self.command, self.process = name, command, None
        self.held = 0  # how many times it is stopped

    def start(self):
        with open(f"{folder}/{self.name}.log", "ab") as log:
            self.process = subprocess.Popen([*network.inside(self.name), *self.command], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)

    def runs(self):
        return self.process is not None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process, self.held = None, 0

    def stop(self):
        self.held += 1
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.held -= 1
        if not self.held:
            self.process.send_signal(signal.SIGCONT)

    def end(self):
        self.process.terminate()
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = f"none after {PATIENCE} s"
        if status:
            fail(f"{self.name}: exit status {status}")


def make_etcd(name):
    clients, peers = (f"http://{address(name)}:{port}" for port in (2379, 2380))
    return Process(name, "etcd", "--name", name, "--data-dir", f"{folder}/{name}", "--heartbeat-interval", "50",
                   "--election-timeout", "500", "--bcrypt-cost", "4", "--auth-token-ttl", "2", "--listen-client-urls", clients, "--advertise-client-urls", clients,
                   "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                   "--initial-cluster", ",".join(f"{e}=http://{address(e)}:2380" for e in ETCDS))


def make_node(name):
    first = NODES.index(name)
    user = f'user = "rdmad"; password_file = "{folder}/password";' if has_users else ""
    urls = ", ".join(f'"{url}"' for url in URLS.split(",")[first:] + URLS.split(",")[:first])
    with open(f"{folder}/{name}.conf", "w", encoding="utf-8") as file:
        file.write(f'listen = ["tcp://{address(name)}:7471"]; unix_socket = "{folder}/{name}.rdmad"; insecure = true;\n'
                   f'control = {{ socket = "{folder}/{name}.sock"; }}; workers = 1; services = ["kv", "resp"];\n'
                   f'kv = {{ memory = "32M"; }}; resp = {{ listen = ["{address(name)}:6379"]; }};\n'
                   f'cluster = {{ engine = "etcd"; endpoints = [{urls}]; name = "kv"; node = "{name}"; {user}\n'
                   f'            period = "{PERIOD}"; spread_after = "{SPREAD}"; state = "{folder}/{name}.state"; }};\n')
    return Process(name, rdmad, "-c", f"{folder}/{name}.conf")


def ask_etcd(name, path, limit=0.3):
    request = urllib.request.Request(f"http://{address(name)}:2379{path}", b"{}", {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=limit) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return {}


def leader():
    for name in ETCDS:
        status = ask_etcd(name, "/v3/maintenance/status")
        if status.get("leader", "0") != "0" and status["leader"] == status["header"]["member_id"]:
            return name
    return None


# --- tables

def ctl(*words):
    try:
        return subprocess.run([rdmactl, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                              check=False)
    except subprocess.TimeoutExpired:
        return None


def make_table(epoch, nodes, owner):
    lines = TABLE.format(epoch) + "".join(f"node {n} {address(n)}:7471 resp {address(n)}:6379\n" for n in nodes)
    begin = 0
    for slot in range(1, 16385):
        if slot == 16384 or owner[slot] != owner[begin]:
            lines += f"shard {owner[begin]} {owner[begin]} {begin}-{slot - 1}\n"
            begin = slot
    return lines


def read_table(text):
    epoch, owner = 0, ["a"] * 16384
    for line in text.splitlines():
        words = line.split()
        if words[0] == "epoch":
            epoch = int(words[1])
        elif words[0] == "shard":
            for part in words[3:]:
                if not part[0].isdigit():  # from, to, moved
                    break
                first, _, last = part.partition("-")
                for slot in range(int(first), int(last or first) + 1):
                    owner[slot] = words[1]
    return epoch, owner


def apply_table(text):
    with open(f"{folder}/table", "w", encoding="utf-8") as file:
        file.write(text)
    done = ctl("cluster", "apply", f"{folder}/table", *engine)
    return done is not None and done.returncode == 0


def operate(mine):
    """An operator: a table with some ranges elsewhere, or with a node less, again and again."""
    while not over.wait(mine.uniform(0.2, 1.5)):
        shown = ctl("cluster", "show", "--name", "kv", *engine, "--text")
        if shown is None or shown.returncode:
            continue
        epoch, owner = read_table(shown.stdout)
        nodes = mine.sample(NODES, 2) if mine.random() < 0.15 else NODES
        for _ in range(mine.randrange(1, 4)):
            first, node = mine.randrange(16384), mine.choice(nodes)
            for slot in range(first, min(first + mine.randrange(500, 8000), 16384)):
                owner[slot] = node
        owner = [node if node in nodes else nodes[slot // 8192] for slot, node in enumerate(owner)]
        counts["tables" if apply_table(make_table(epoch + 1, nodes, owner)) else "refused_tables"] += 1


# --- which slots a server answers for

class Server:
    """One of the servers, by Redis's protocol, from the bridge."""
    keys = [b"history %d" % i for i in range(KEYS)] + [b"other %d" % i for i in range(KEYS)]
    batch = (b"CLUSTER INFO\r\n" + b"".join(b"*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n" % (len(key), key) for key in keys)
             + b"CLUSTER INFO\r\n")

    def __init__(self, name):
        self.name, self.socket, self.file = name, None, None

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("closed")
        return self.file.read(int(line[1:]) + 2) if line[:1] == b"$" else line

    def epoch(self):
        found = re.search(rb"cluster_my_epoch:(\d+)", self.line())
        return int(found[1]) if found else 0

    def look(self):
        """The epoch by which it serves, and for which of the keys it answers; None: it does not, or has another one now."""
        try:
            if not self.socket:
                self.socket = socket.create_connection((address(self.name), 6379), 0.2)
                self.socket.settimeout(0.2)
                self.file = self.socket.makefile("rb")
            self.socket.sendall(self.batch)
            before = self.epoch()
            answers = [self.line()[:1] == b":" for _ in self.keys]
            return (before, answers) if self.epoch() == before else None
        except (OSError, ValueError):
            if self.socket:
                self.socket.close()
            self.socket = None
            return None


class Watch:
    """Asks one server after the other, never two at a time. Slots get another server by another table only. So of each
    slot the epochs of the servers that answer for it never fall, and for one epoch it is one server."""

    def __init__(self):
        self.servers = [Server(name) for name in NODES]
        self.last = [(0, "")] * len(Server.keys)
        self.answered = [0.0] * len(Server.keys)

    def look(self):
        for server in self.servers:
            seen = server.look()
            counts["looks"] += 1
            for i in (i for i, answers in enumerate(seen[1]) if answers) if seen else ():
                counts["answers"] += 1
                epoch, name = self.last[i]
                if seen[0] < epoch or (seen[0] == epoch and server.name != name):
                    counts["two_owners"] += 1
                    fail(f"{Server.keys[i].decode()}: {server.name} answers by table {seen[0]}, behind {name} by {epoch}")
                self.last[i] = max(self.last[i], (seen[0], server.name))
                self.answered[i] = time.monotonic()

    def run(self):
        while not over.wait(0.01):
            self.look()

    def all_answered(self):
        begin = time.monotonic()
        self.look()
        return min(self.answered) >= begin


# --- what happens to them

class Nemesis:
    def __init__(self):
        self.undo = []  # (when, what)

    def later(self, limit, what):
        self.undo.append((time.monotonic() + draw.uniform(0.1, limit), what))

    def turn(self, everything=False):
        for entry in sorted(self.undo, key=lambda entry: entry[0]):
            if everything or entry[0] <= time.monotonic():
                self.undo.remove(entry)
                entry[1]()

    def kill(self, process, limit, gently=False):
        if process.runs():
            counts["kills"] += 1
            if gently and not process.held:
                process.end()
            process.kill()
            self.later(limit, process.start)

    def stop(self, process, limit):
        if process.runs():
            counts["stops"] += 1
            process.stop()
            kept = process.process
            self.later(limit, lambda: process.go_on() if process.process is kept else None)

    def cut(self, begins, ends):
        pairs = [(b, e) for b in begins for e in ends if b != e]
        way = draw.randrange(3)
        pairs = [(e, b) for b, e in pairs] if way == 1 else pairs + [(e, b) for b, e in pairs] if way == 2 else pairs
        counts["cuts"] += len(pairs)
        network.cut(pairs)
        self.later(4, lambda: network.mend(pairs))

    def strike(self):
        node, kind = draw.choice(NODES), draw.randrange(100)
        if kind < 12:
            self.kill(processes[node], 2, gently=kind < 4)
        elif kind < 34:
            self.stop(processes[node], 6 if draw.random() < 0.5 else 1.5)
        elif kind < 46:
            chosen = (leader() if draw.random() < 0.7 else None) or draw.choice(ETCDS)
            (self.kill if kind < 39 else self.stop)(processes[chosen], 2.5)
        elif kind < 58:
            self.cut([node], ETCDS)
        elif kind < 70:
            self.cut([node], [draw.choice(ETCDS)])
        elif kind < 78:
            self.cut([leader() or "e1"], draw.choice((ETCDS, (*ETCDS, *NODES))))
        elif kind < 88:
            self.cut([node], ["h"])
        else:
            self.turn(everything=True)
            time.sleep(draw.uniform(0.5, 2))

    def run(self, until):
        strike = 0
        while time.monotonic() < until:
            if time.monotonic() >= strike:
                self.strike()
                strike = time.monotonic() + draw.uniform(0.2, 1.2)
            self.turn()
            time.sleep(0.02)
        self.turn(everything=True)


# --- a run

def make_users():
    with open(f"{folder}/password", "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write("secret\n")
    for words in USERS:
        done = subprocess.run(["etcdctl", "--endpoints", URLS, *words.split()], env={**os.environ, "ETCDCTL_API": "3"},
                              capture_output=True, text=True, check=False)
        if done.returncode:
            fail(f"etcdctl {words}: {done.stderr}")
            return False
    return True


def begin():
    for name in ETCDS:
        processes[name].start()
    if not wait_for("a leader of etcd", leader) or (has_users and not make_users()):
        return False
    for name in NODES:
        processes[name].start()
    owner = [NODES[slot // 5462] for slot in range(16384)]
    return (wait_for("the first table", lambda: apply_table(make_table(1, NODES, owner))) and
            wait_for("the servers", watch.all_answered))


def read_history(history):
    history.terminate()
    try:
        out, err = history.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        history.kill()
        out, err = history.communicate()
    found = re.findall(r"(\d+) (requests|hits|misses|refused|unanswered|values torn|are not|are undecided)", out)
    if history.returncode or not found:
        fail(f"the history: exit status {history.returncode}: {out}{err}")
    return {name.replace(" ", "_"): int(number) for number, name in found}


def end(threads):
    over.set()
    for thread in threads:
        thread.join()
    wait_for("servers of all slots behind it", watch.all_answered)
    result = read_history(history)
    for name in (*NODES, *ETCDS):
        if processes[name].runs():
            processes[name].end() if name in NODES else processes[name].kill()
    for name in NODES:
        with open(f"{folder}/{name}.log", encoding="utf-8", errors="replace") as log:
            bad = [line for line in log if "Sanitizer" in line or "ERROR" in line or "contract" in line]
        if bad:
            fail(f"{name}'s log: {bad[0]}")
    return result


network = Network()
processes = {name: make_etcd(name) for name in ETCDS} | {name: make_node(name) for name in NODES}
watch = Watch()
result = {}
if begin():
    history = subprocess.Popen([*network.inside("h"), history_program, "cluster:" + ",".join(map(address, NODES)),
                                "100000", "4", str(KEYS), "500"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    threads = [threading.Thread(target=watch.run), threading.Thread(target=operate, args=(random.Random(seed + 1),))]
    for thread in threads:
        thread.start()
    Nemesis().run(time.monotonic() + seconds)
    time.sleep(1)
    result = end(threads)
print(json.dumps({"seed": seed, **counts, **result, "failures": len(failures)}), flush=True)
for process in (*processes.values(), *network.place.values()):
    if isinstance(process, subprocess.Popen):
        process.kill()
    elif process.runs():
        process.process.kill()
sys.exit(bool(failures))
