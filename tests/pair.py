#!/usr/bin/env python3
"""Faults between two machines: rdmad in one, its clients in the other, over RDMA and over TCP at the same time.

Runs in a folder that has rdmad, rdmad-gpu and rdmactl, as the COMMAND of scripts/guest --pair:

    cd build/programs && ../../scripts/guest --pair -- ../../tests/pair.py [--long] [FAULT...]

Each fault meets a load of ping, small and large values, commands from a file and jobs of the gpu service, and then
 - every client ends as it should, or with an error that says what was wrong, and nothing that it verified was wrong,
 - no value in the store is a mix of two,
 - the daemon has what it had before the load, no more,
 - a new client is served, soon after the fault is gone.
Without FAULT the ones that take about a minute and a half; --long has all of them. Exit status 0: all is well; 1: what
was not stands on stderr; 77: this is no pair of machines.
"""

import json
import os
import re
import subprocess
import sys
import time

GUEST = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "scripts", "guest")
SERVER = {"rdma": "rdma://10.99.0.1", "tcp": "tcp://10.99.0.1"}
ENDING = 120  # seconds until a client must have ended: several times what it waits for itself
RETURN = 30  # seconds until a new client must be served; each takes a second to start here
HELD = ("connections", "descriptors", "store_pins", "buffers_in_use")
CONTROL = "/run/control.sock"
LOCAL = "unix:///run/rdmad.sock"
place = os.environ.get("RDMAD_PAIR", "")
folder = os.getcwd()
failures = []


def fail(text):
    print(f"FAILED: {text}", file=sys.stderr, flush=True)
    failures.append(text)


def start(machine, *command, name=None):
    """A command in a machine. Its output goes to files here."""
    process = subprocess.Popen([GUEST, "--in", machine, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace")
    process.name = name or " ".join(command)
    return process


def run(machine, *command, timeout=ENDING):
    process = start(machine, *command)
    try:
        process.out, process.err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.out, process.err = process.communicate()
        process.returncode = 124
    return process


def link(*words):
    subprocess.run([GUEST, "--link", *words], check=True)


def power(*words):
    subprocess.run([GUEST, "--power", *words], check=True)


def wait_for(what, test, seconds=ENDING):
    until = time.monotonic() + seconds
    while not test():
        if time.monotonic() > until:
            fail(f"waited in vain for {what}")
            return False
        time.sleep(0.2)
    return True


# --- the daemon, in a

class Daemon:
    process = None

    def configure(self, **settings):
        lines = ['listen = ["10.99.0.1"];', 'unix_socket = "/run/rdmad.sock";', f'control = {{ socket = "{CONTROL}"; }};',
                 "insecure = true;", "workers = 1;", 'poll = "0";', 'kv = { memory = "48M"; };',
                 f'gpu = {{ backend = "cpu"; threads = 1; program = "{folder}/rdmad-gpu"; memory = "1M"; }};']
        lines += [f"{name} = {value};" for name, value in settings.items()]
        with open(f"{place}/rdmad.conf", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def start(self):
        self.process = start("a", f"{folder}/rdmad", "-c", f"{place}/rdmad.conf")
        wait_for("the start of rdmad", lambda: self.ask("status") or self.process.poll() is not None)
        if self.process.poll() is not None:
            sys.exit(f"pair: rdmad does not start: {self.process.stderr.read()}")

    def ask(self, what):
        answer = run("a", f"{folder}/rdmactl", "--control", CONTROL, "--json", what)
        return json.loads(answer.out) if answer.returncode == 0 else None

    def work(self):
        counters = (self.ask("status") or {}).get("counters", {})
        return [counters.get(name, 0) for name in ("pings", "kv_gets", "kv_sets", "gpu_quantizes", "gpu_queue_jobs")]

    def held(self):
        resources = self.ask("resources")
        if not resources:
            return None
        processes = run("a", "pgrep", "-xc", "rdmad-gpu").out.strip()
        return {name: resources[name] for name in HELD} | {"processes": int(processes or 0)}

    def signal(self, name):
        run("a", "pkill", f"-{name}", "-x", "rdmad")

    def idle(self):
        """What it has when nobody is connected: the same twice."""
        last, now = None, self.held()
        until = time.monotonic() + ENDING
        while now is None or now["connections"] or last != now:
            if time.monotonic() > until:
                fail(f"connections do not end: {now}")
                break
            time.sleep(0.5)
            last, now = now, self.held()
        return now


daemon = Daemon()


# --- the clients, in b

ROUNDS, LENGTHS = 25, (50, 5000, 70000, 250000)


def write_commands():
    """Values that tell whether they are whole: number, length, and one letter again and again."""
    for scheme in SERVER:
        with open(f"{place}/commands-{scheme}", "w", encoding="ascii") as file:
            for number in range(ROUNDS):
                for length in LENGTHS:
                    file.write(f"set whole-{scheme}-{length} {number} {length} {chr(97 + number % 26) * length}\n")


def is_whole(value):
    number, length, text = value.split(" ", 2)
    return text == chr(97 + int(number) % 26) * int(length)


def check_values(fault):
    answer = run("a", f"{folder}/rdmactl", "-H", LOCAL, "kv", "export", "--prefix", "whole-")
    if answer.returncode != 0:
        fail(f"{fault}: kv export: exit status {answer.returncode}: {answer.err}")
        return
    *lines, end = answer.out.splitlines()
    if "end" not in json.loads(end):
        fail(f"{fault}: kv export: the last line is no end mark: {end[:60]}")
    for line in lines:
        record = json.loads(line)
        if not is_whole(record["value"]):
            fail(f"{fault}: the value of {record['key']} is torn: {record['value'][:60]} ...")


def client(scheme, what, *command):
    return start("b", f"{folder}/rdmactl", "-H", SERVER[scheme], "-t", "15s", "--poll", "0", "--json", *command, name=f"{scheme} {what}")


def start_load():
    """Every client goes on until it is ended, and verifies what it gets; but the commands, which end."""
    load = []
    for scheme, mode in (("rdma", "queue"), ("tcp", "rpc")):
        load += [client(scheme, "ping", "ping", "-c", "4000000000", "-v", "-s", "1K"),
                 client(scheme, "small", "bench", "kv", "-D", "1h", "-w", "0", "-c", "1", "-d", "16", "-k", "20", "-o", "mixed"),
                 client(scheme, "large", "bench", "kv", "-D", "1h", "-w", "0", "-c", "1", "-d", "1", "-k", "4", "-o", "mixed", "-s",
                        "128K"),
                 client(scheme, "gpu", "gpu", "bench", "-m", mode, "-n", "4000000000", "-o", "8"),
                 client(scheme, "commands", "kv", "run", f"{place}/commands-{scheme}")]
    return load


def await_work(queues=True):
    """Until each service did a good deal for them. Only a client by RDMA uses queues."""
    before = daemon.work()

    def done():
        ping, get, put, rpc, queue = (now - then for now, then in zip(daemon.work(), before))
        return ping > 20 and get > 20 and put > 20 and rpc > 5 and (queue > 5 or not queues)

    wait_for("the work of all clients", done)


def wrong(out):
    """What the JSON of a client tells of data that were wrong."""
    try:
        report = json.loads(out)
    except ValueError:
        return None
    counts = [report.get("verify_failures"), report.get("total", {}).get("distance")]
    counts += [result.get("mismatches") for result in report.get("results", []) if isinstance(result, dict)]
    return next((report for count in counts if count), None)


def judge(fault, process):
    """Returns its exit status."""
    try:
        out, err = process.communicate(timeout=ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        fail(f"{fault}: {process.name} has not ended after {ENDING} s")
        return "hangs"
    status = process.returncode
    if wrong(out):
        fail(f"{fault}: {process.name}: wrong data: {wrong(out)}")
    if status not in (0, 1, 3, 5, 130):
        fail(f"{fault}: {process.name}: exit status {status}: {err}")
    if status in (1, 3, 5) and not re.search(r"rdmactl: .*[a-z]{4}", err):
        fail(f"{fault}: {process.name}: exit status {status} without a word: {err}")
    if re.search(r"differ|wrong data|mismatch", err):
        fail(f"{fault}: {process.name}: {err}")
    if status not in (0, 130):
        print(f"  {process.name}: {status}: {err.strip().splitlines()[0] if err.strip() else ''}", flush=True)
    return status


def end_load(fault, load, signal="INT"):
    if signal:
        run("b", "pkill", f"-{signal}", "-x", "rdmactl")
    return {process.name: judge(fault, process) for process in load}


def ask_anew(fault, schemes=tuple(SERVER)):
    """Until a new client is served, in seconds, for each transport."""
    took = {}
    for scheme in schemes:
        began = time.monotonic()

        def served(scheme=scheme):
            return client(scheme, "ping", "ping", "-c", "1", "-v").wait() == 0

        wait_for(f"a new client by {scheme}, {fault}", served, RETURN)
        took[scheme] = round(time.monotonic() - began, 1)
    return took


# --- the faults. Each begins with a load that works, and returns how clients ended.

def expect_survivors(fault, ends, schemes):
    """By RDMA only where the machine has nothing else to do: a host that does not answer for half a second is dead."""
    for name, status in ends.items():
        if name.split()[0] in schemes and status not in (0, 130):
            fail(f"{fault}: {name}: exit status {status}, though nothing was wrong for long")


def survivors():
    return tuple(SERVER) if "--long" in sys.argv else ("tcp",)


def client_killed(fault, load):
    run("b", "pkill", "-KILL", "-x", "rdmactl")
    for process in load:
        process.communicate(timeout=ENDING)
    return {}


def client_frozen(fault, load):
    run("b", "pkill", "-STOP", "-x", "rdmactl")
    ask_anew(fault)  # others do not wait for them
    time.sleep(3)
    run("b", "pkill", "-CONT", "-x", "rdmactl")
    return end_load(fault, load)


def daemon_killed(fault, load):
    daemon.signal("KILL")
    ends = end_load(fault, load, None)
    for name, status in ends.items():
        if status == 0 and "commands" not in name:
            fail(f"{fault}: {name} ended without an error")
    daemon.process.communicate(timeout=ENDING)
    wait_for("the end of processes of the daemon", lambda: run("a", "pgrep", "-x", "rdmad-gpu").returncode == 1)
    daemon.start()
    return ends


def daemon_frozen(fault, load):
    daemon.signal("STOP")
    time.sleep(3)
    daemon.signal("CONT")
    time.sleep(1)
    ends = end_load(fault, load)
    expect_survivors(fault, ends, survivors())
    return ends


def cut(seconds):
    def fault_cut(fault, load):
        link("cut")
        time.sleep(seconds)
        link("heal")
        print(f"  after the heal, a new client was served within {ask_anew(fault)} s", flush=True)
        return end_load(fault, load)
    return fault_cut


def lossy(percent, seconds, schemes=(), *more):
    def fault_lossy(fault, load):
        link("loss", str(percent), *more)
        if schemes:
            await_work(queues=False)
        time.sleep(seconds)
        link("heal")
        ends = end_load(fault, load)
        expect_survivors(fault, ends, schemes)
        return ends
    return fault_lossy


def interface_down(fault, load):
    """The kernel of Debian 12 loses its own queue pair for connecting, when that finds no route: the device is made anew."""
    run("b", "ip", "link", "set", "eth0", "down")
    time.sleep(3)
    run("b", "ip", "link", "set", "eth0", "up")
    ends = end_load(fault, load)
    run("b", "rdma", "link", "delete", "rxe0")
    run("b", "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
    return ends


def paused(machine):
    def fault_paused(fault, load):
        power(machine, "pause")
        time.sleep(6)
        power(machine, "resume")
        ask_anew(fault)
        return end_load(fault, load)
    return fault_paused


def doctor(fault, furthest, number):
    """How far doctor comes from b by each transport, and what it finds."""
    answer = run("b", f"{folder}/rdmactl", "--json", "doctor", "10.99.0.1")
    try:
        report = json.loads(answer.out)
        stages = {path["transport"]: path["furthest"] for path in report["paths"]}
        numbers = {found["id"] for found in report["findings"] if found["check"] == "D40"}
    except (ValueError, KeyError) as error:
        fail(f"{fault}: doctor's report: {error!r}: {answer.out[:200]} {answer.err[:200]}")
        return
    if stages != furthest:
        fail(f"{fault}: doctor verified {stages}, not {furthest}")
    if number not in numbers and (number or numbers):
        fail(f"{fault}: doctor found {numbers}, not {number}")


def diagnosed(fault, load):
    """Doctor towards the daemon: over a link that is well, one that loses frames from 4096 bytes on, and one that is cut."""
    ends = end_load(fault, load)
    last = "load"
    doctor(fault, {"tcp": last, "rdma": last}, None)
    run("b", "modprobe", "-a", "sch_ingress", "cls_u32", "act_gact")
    run("b", "tc", "qdisc", "add", "dev", "eth0", "ingress")
    # A bit of the length in the head of IPv4.
    made = run("b", *"tc filter add dev eth0 parent ffff: protocol ip u32 match u16 0x1000 0x1000 at 2 action drop".split())
    if made.returncode != 0:
        fail(f"{fault}: tc: {made.err}")
    doctor(fault, {"tcp": "message of 64 B", "rdma": "message of 64 B"}, "RD-4007")
    run("b", "tc", "qdisc", "del", "dev", "eth0", "ingress")
    link("cut")
    doctor(fault, {"tcp": "name", "rdma": "rdma_resolve_route"}, "RD-4003")
    link("heal")
    return ends


def client_off(fault, load):
    power("b", "off")
    for process in load:
        process.communicate(timeout=ENDING)
    held = daemon.idle()
    print(f"  the daemon has {held}", flush=True)
    power("b", "on")
    return {}


def daemon_off(fault, load):
    power("a", "off")
    ends = end_load(fault, load, None)
    for name, status in ends.items():
        if status == 0 and "commands" not in name:
            fail(f"{fault}: {name} ended without an error")
    power("a", "on")
    daemon.start()
    return ends


# Name, fault, whether it is one of the short form.
FAULTS = (
    ("doctor", diagnosed, True),
    ("client killed", client_killed, False),
    ("client frozen", client_frozen, False),
    ("daemon frozen", daemon_frozen, False),
    ("cut 2 s", cut(2), True),
    ("cut 15 s", cut(15), False),
    ("interface down", interface_down, False),
    ("loss 0.1 %", lossy(0.1, 5, ("tcp",)), False),
    ("loss 1 %", lossy(1, 3, ("tcp",)), True),
    ("loss 5 %", lossy(5, 5), False),
    ("loss 1 %, 20 ms late", lossy(1, 5, (), "delay", "20"), False),
    ("client's machine paused", paused("b"), False),
    ("daemon's machine paused", paused("a"), False),
    ("daemon killed", daemon_killed, True),
    ("client's machine off", client_off, True),
    ("daemon's machine off", daemon_off, False),
)


def prepare():
    """The daemon with all that it makes once and keeps: what it has then. A machine that has other work may have left one of
    these for so long that the other took it for dead: only by RDMA, and not again and again."""
    for _ in range(3):
        load = start_load()
        await_work()
        ends = end_load("no fault", load)
        expect_survivors("no fault", ends, ("tcp",))
        if all(status in (0, 130) for status in ends.values()):
            return daemon.idle()
    fail("without a fault clients lose their connections")
    return daemon.idle()


def meet(fault, function, before):
    began, known = time.monotonic(), len(failures)
    load = start_load()
    await_work()
    ends = function(fault, load)
    took = ask_anew(fault)
    check_values(fault)
    after = daemon.idle()
    if after != before and not (function in (daemon_killed, daemon_off)):
        fail(f"{fault}: the daemon had {before}, and has {after}")
    statuses = ", ".join(f"{name} {status}" for name, status in ends.items())
    print(f"{'ok' if len(failures) == known else 'FAILED'}: {fault}: {time.monotonic() - began:.0f} s; new client {took}; {statuses}",
          flush=True)


def main(words):
    if not place:
        print("pair: run by scripts/guest --pair -- tests/pair.py")
        return 77
    long = "--long" in words
    wanted = [word for word in words if word != "--long"]
    unknown = set(wanted) - {name for name, _, _ in FAULTS}
    if unknown:
        print(f"pair: no such fault: {', '.join(unknown)}; there are: {', '.join(name for name, _, _ in FAULTS)}", file=sys.stderr)
        return 2
    write_commands()
    daemon.configure(**{} if long else {"keepalive": '"2s"'})
    daemon.start()
    before = prepare()
    print(f"the daemon has {before}", flush=True)
    for name, function, short in FAULTS:
        if name in wanted or not wanted and (long or short):
            meet(name, function, before)
            if function in (daemon_killed, daemon_off):
                before = prepare()
    daemon.signal("TERM")
    _, log = daemon.process.communicate(timeout=ENDING)
    if failures:
        print("".join(f"  rdmad: {line}\n" for line in log.splitlines()[-40:]), file=sys.stderr)
        print(f"pair: {len(failures)} failures", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
