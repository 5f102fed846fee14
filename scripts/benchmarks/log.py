"""benchmarks.log: the part `log` of scripts/bench: what it costs to keep values on disk, beside redis-server's append-only file and beside
the bare file calls that it comes down to, on the same disk in the same run. Not a program of its own."""
import os
import statistics
import subprocess
import tempfile
import time

PORT = 7598


class Way:
    """How clients come: by TCP, or, between programs of one machine, by shared memory, and to redis by its UNIX socket."""

    def __init__(self, local, folder):
        self.name = "shared memory beside a UNIX socket" if local else "TCP loopback"
        self.host = "127.0.0.1:7599" if local else "tcp://127.0.0.1:7599"
        self.transports = '"tcp", "shm"' if local else '"tcp"'
        self.redis_at = ["-s", f"{folder}/redis"] if local else ["-p", str(PORT)]
        self.redis_listens = ["--port", "0", "--unixsocket", f"{folder}/redis"] if local else ["--port", str(PORT)]


way = Way(False, "")
POLICIES = [("always", "always"), ("interval", "everysec"), ("none", "no")]
FILE = 64 << 20     # bytes of the probe's file, written once and then again and again, as a segment is
RECORD = 48 + 16    # bytes that go before a value in the log, about: header and key


def zeroed(path, size):
    """A file whose blocks are all written, so that no sync has to note where they are."""
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())


def raw_syncs(folder, size, seconds):
    """Write and fdatasync of so many bytes, one after the other: microseconds of each, sorted."""
    path = os.path.join(folder, "probe")
    zeroed(path, FILE)
    data, took, at = os.urandom(size), [], 0
    fd = os.open(path, os.O_WRONLY)
    end = time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        os.pwrite(fd, data, at)
        os.fdatasync(fd)
        took.append((time.monotonic() - begin) * 1e6)
        at = at + size if at + 2 * size <= FILE else 0
    os.close(fd)
    os.unlink(path)
    return sorted(took)


def raw_read(paths):
    """Bytes a second by reads past the page cache, one file after the other, 1 MiB each."""
    size, begin = 0, time.monotonic()
    for path in paths:
        size += os.path.getsize(path)
        subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=1M", "iflag=direct"], check=True, stderr=subprocess.DEVNULL)
    return size / (time.monotonic() - begin)


def forget(paths):
    """The page cache has nothing of these files any more."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def files_of(folder):
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def redis_of(bench, folder, policy):
    append = [] if policy == "no" else ["--appendonly", "yes", "--appendfsync", policy]
    return bench.redis_server(way.redis_at, *way.redis_listens, "--dir", folder, *append)


def redis_sets(bench, clients, depth, requests, size):
    text = bench.run("redis-benchmark", *way.redis_at, "-t", "set", "-d", str(size), "-c", str(clients), "-P", str(depth),
                     "-r", "1000", "-n", str(requests), "--csv")
    return float(text.splitlines()[1].split(",")[1].strip('"'))


def daemon_of(bench, folder, policy, memory="512M", more=""):
    log = "" if policy == "none" else f'directory = "{folder}"; policy = "{policy}"; {more}'
    return bench.rdmad("127.0.0.1", bench.POLL, way.transports, memory=memory, log=log)


def sets(bench, clients, depth, size, *more, seconds=1.5, op="set"):
    return bench.rdmactl_kv(way.host, clients, depth, "--op", op, *more, poll=bench.POLL, seconds=seconds, size=size)[op]


def beside_redis(bench, rounds, folder):
    """Sets under each policy, and how they compare with each other."""
    table = bench.Table(f"Sets with a log, {way.name}, same disk", "rdmad", "redis-server")
    itself = bench.Table(f"Sets with a log beside none, {way.name}, 64 B, 8 clients, 64 in flight each", "interval", "none")
    shapes = [("64 B, 1 client, 1 in flight", 1, 1, 64, 3_000, None), ("64 B, 8 clients, 1 in flight each", 8, 1, 64, 20_000, None),
              ("64 B, 8 clients, 64 in flight each", 8, 64, 64, 400_000, ("at least", 2.0)),
              ("1 MiB, 8 clients, 1 in flight each", 8, 1, 1 << 20, 400, ("at least", 5.0))]
    for _ in range(rounds):
        for ours, theirs in POLICIES:
            with tempfile.TemporaryDirectory(dir=folder) as log, daemon_of(bench, log, ours):
                rates = [sets(bench, clients, depth, size)["ops_per_second"] for _, clients, depth, size, _, _ in shapes]
            if ours != "always":
                itself.add("set", "ops/s", "ours" if ours == "interval" else "theirs", rates[2], ("at least", 0.9))
            with tempfile.TemporaryDirectory(dir=folder) as log, redis_of(bench, log, theirs):
                for (what, clients, depth, size, requests, bound), rate in zip(shapes, rates):
                    what = f"{ours} beside {theirs}, {what}"
                    table.add(what, "sets/s", "ours", rate, bound if ours == "always" else None)
                    table.add(what, "sets/s", "theirs", redis_sets(bench, clients, depth, requests, size))
    return [table, itself]


def beside_files(bench, rounds, folder):
    """Under `always` beside the calls that it consists of."""
    table = bench.Table(f"Sets with policy always, {way.name}, beside bare writes with fdatasync to a file that was filled before", "rdmad", "bare")
    one, large = "median of a 64 B set, 1 client, 1 in flight", "1 MiB, 8 clients, 1 in flight each"
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as log, daemon_of(bench, log, "always"):
            result = sets(bench, 1, 1, 64)
            table.add(one, "us", "ours", result["rtt_us_p50"], ("at most", 1.2))
            table.add(one, "us", "theirs", statistics.median(raw_syncs(folder, RECORD + 64, 1.5)))
            table.add(large, "MB/s", "ours", sets(bench, 8, 1, 1 << 20)["bytes_per_second"] / 1e6, ("at least", 0.8))
            took = raw_syncs(folder, 8 << 20, 1.5)
            table.add(large, "MB/s", "theirs", 8 * (1 << 20) / statistics.mean(took))
    return [table]


def reads_beside_writes(bench, rounds, folder):
    """What a get waits while others set, with a log and without."""
    table = bench.Table("Gets of 64 B, 1 client, 1 in flight, 99th percentile, beside 4 clients that set 64 B values, 16 in flight "
                        "each", "with it", "without")
    for i in range(rounds):
        for what, policy, begin in (("policy always", "always", None), ("a checkpoint", "interval", "checkpoint")):
            for side in bench.sides(i):
                used = policy if side == "ours" or begin else "none"
                with tempfile.TemporaryDirectory(dir=folder) as log, \
                        daemon_of(bench, log, used, more='checkpoint_budget = "64M";') as daemon:
                    sets(bench, 8, 4, 65536, "--keys", "500", "--keep", seconds=1.0)  # what the checkpoint has to write
                    load = subprocess.Popen(["rdmactl", "bench", "kv", "-H", way.host, "-q", "--op", "set", "--clients", "4",
                                             "--depth", "16", "--duration", "4s"], stdout=subprocess.DEVNULL)
                    time.sleep(0.5)
                    if begin and side == "ours":
                        bench.run("rdmactl", "log", "checkpoint", "--control", daemon.control)
                    table.add(what, "us", side, sets(bench, 1, 1, 64, op="get")["rtt_us_p99"], ("at most", 1.5))
                    load.wait()
    return [table]


def started(bench, folder, memory):
    """Seconds until the daemon is ready with what is in the folder."""
    begin = time.monotonic()
    with daemon_of(bench, folder, "interval", memory) as daemon:
        return time.monotonic() - begin, daemon.ask("status")["store"]["items"]


def recovery(bench, rounds, folder):
    table = bench.Table("Start with what a killed daemon left, page cache empty", "rdmad", "dd iflag=direct of the same files")
    keys = bench.Table("Start with many keys of 64 B values", "rdmad", "to reach")
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            nothing = started(bench, empty, "4G")[0]
        # So many that the last second's, which are written once more, are few.
        for size, count in ((65536, 40_000), (64, 2_000_000)):
            with tempfile.TemporaryDirectory(dir=folder) as log:
                with daemon_of(bench, log, "interval", "4G"):
                    # Each key is set once before the first get.
                    sets(bench, 8, 16, size, "--keys", str(count // 8), "--count", "100", "--keep", "--no-verify", op="get")
                    time.sleep(2)
                forget(files_of(log))
                took, items = started(bench, log, "4G")
                took -= nothing
                if size == 64:
                    keys.add(f"{items} keys", "keys/s", "ours", items / took, ("at least", 1.0))
                    keys.add(f"{items} keys", "keys/s", "theirs", 1e6)
                else:
                    bytes_read = sum(os.path.getsize(path) for path in files_of(log))
                    table.add("values of 64 KiB", "MB/s", "ours", items * size / took / 1e6, ("at least", 0.8))
                    table.add("values of 64 KiB", "MB/s", "theirs", raw_read(files_of(log)) * items * size / bytes_read / 1e6)
    return [table, keys]


def written(bench, folder):
    """Bytes to the disk for each byte set, with the checkpoints that this makes necessary."""
    table = bench.Table("Bytes written beside bytes set, 64 KiB values overwritten again and again", "written", "set")
    with tempfile.TemporaryDirectory(dir=folder) as log, daemon_of(bench, log, "interval") as daemon:
        for _ in range(4):
            result = sets(bench, 8, 4, 65536, "--keys", "250", "--prefix", "again", "--keep", seconds=3)
            table.add("MB", "MB", "theirs", result["operations"] * 65536 / 1e6)
        status = daemon.ask("status")["log"]
    row = table.rows["MB"]
    row["theirs"] = [sum(row["theirs"])]
    table.add("MB", "MB", "ours", (status["written_bytes"] + status["checkpoint_bytes"]) / 1e6)
    row["bound"] = ("at most", 2.1)
    return [table]


def tables(bench, rounds, local=False):
    """`bench`: the module scripts/bench, whose tables, daemon and clients these are. `local`: what depends on how clients come."""
    global way
    with tempfile.TemporaryDirectory(dir=os.environ.get("RDMAD_BENCH_DISK", bench.BUILD)) as folder, \
            tempfile.TemporaryDirectory() as sockets:
        way = Way(local, sockets)
        made = beside_redis(bench, rounds, folder) + beside_files(bench, rounds, folder)
        return made if local else made + reads_beside_writes(bench, rounds, folder) + recovery(bench, rounds, folder) + written(bench, folder)
