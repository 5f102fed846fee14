#!/bin/bash
# check_cluster_servers.sh: three rdmads of one table: each has its own keys and refuses others', by librdmad, Redis's protocol and
# memcached's; clients of Redis Cluster route by themselves; settings that make no cluster are refused.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
# shellcheck source=tests/cluster/servers.sh
. "$(dirname "$0")/servers.sh"

# Settings that make no cluster.
settings d 0 "$dir/table"
ends 78 'has no node d' "$rdmad" -t -c "$dir/d.conf"
settings a 0 "$dir/nowhere"
ends 78 'nowhere: No such file' "$rdmad" -t -c "$dir/a.conf"
sed '5s/.*/nonsense/' "$dir/table" >"$dir/faulty"
settings a 0 "$dir/faulty"
ends 78 'faulty:5: "nonsense" begins no line' "$rdmad" -t -c "$dir/a.conf"
settings a 0 "$dir/table" "log = { directory = \"$dir/log.d\"; policy = \"always\"; };"
ends 78 'would come back from the log' "$rdmad" -t -c "$dir/a.conf"
sed -i 's/ node = "a";//' "$dir/a.conf"
ends 78 'cluster.table and cluster.node: set both' "$rdmad" -t -c "$dir/a.conf"

start_all "$dir/table"
"$rdmactl" --control "$dir/b.sock" --json status | jq -c .cluster >"$dir/out"
[[ $(<"$dir/out") == '{"name":"test","node":"b","epoch":1,"nodes":3,"slots":5461,"sweeping_slots":0,"waiting_slots":0,"settled":1}' ]] || fail "the cluster in status"

# By librdmad: each key at each node. Large values, too: the connection goes on behind a refusal.
head -c 100000 /dev/urandom >"$dir/large"
for key in foo bar hello 123456789 '{foo}x' k1 k2 k3; do
	owner=$("$rdmactl" cluster slot "$key" --table "$dir/table" | cut -d' ' -f2)
	for i in 0 1 2; do
		at=tcp://127.0.0.1:${ports[i]}
		if [[ ${nodes[i]} == "$owner" ]]; then
			ends 0 '' "$rdmactl" -H "$at" kv set "$key" --file "$dir/large"
			ends 0 '' "$rdmactl" -H "$at" kv set "$key" small
			ends 0 small "$rdmactl" -H "$at" kv get "$key"
		else
			ends 1 'another server of its cluster has the key' "$rdmactl" -H "$at" kv set "$key" small
			ends 1 'another server of its cluster has the key' "$rdmactl" -H "$at" kv set "$key" --file "$dir/large"
			ends 1 'another server of its cluster has the key' "$rdmactl" -H "$at" kv get "$key"
		fi
	done
done
printf 'set foo 1\nset bar 2\nget bar\n' >"$dir/commands"
"$rdmactl" -H "tcp://127.0.0.1:${ports[0]}" kv run "$dir/commands" >"$dir/out" 2>"$dir/err"
grep -q '^2' "$dir/out" || fail "what comes behind a key of another server"

# By Redis's protocol.
"$python" - "$dir/table" "${ports[@]}" >"$dir/out" 2>"$dir/err" <<'END' || fail "Redis's protocol"
import socket
import subprocess
import sys

ports = [int(port) for port in sys.argv[2:]]


def ask(stream, *words):
    stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
    stream.flush()
    return answer(stream)


def answer(stream):
    line = stream.readline().decode().rstrip("\r\n")
    kind, rest = line[0], line[1:]
    if kind in "+-":
        return line
    if kind == ":":
        return int(rest)
    if kind == "$":
        return None if rest == "-1" else stream.read(int(rest) + 2)[:-2].decode()
    return [answer(stream) for _ in range(int(rest))]


def same(a, b):
    if a != b:
        raise SystemExit(f"line {sys._getframe(1).f_lineno}: {a!r}, not {b!r}")


a, b, c = [socket.create_connection(("127.0.0.1", port)).makefile("rwb") for port in ports[3:6]]
moved = f"-MOVED 12182 127.0.0.1:{ports[5]}"
same(ask(a, "GET", "foo"), moved)
same(ask(b, "SET", "foo", "1"), moved)
same(ask(a, "SET", "foo", "x" * 100000), moved)
same(ask(a, "HSET", "{foo}", "f", "1"), moved)
same(ask(c, "SET", "foo", "1"), "+OK")
same(ask(a, "MGET", "foo", "bar"), "-CROSSSLOT Keys in request don't hash to the same slot")
same(ask(a, "MGET", "{bar}1", "{bar}2"), [None, None])
same(ask(a, "EVAL", "return redis.call('get', KEYS[1])", "1", "foo"), moved)
script = ask(a, "EVAL", "return redis.call('get', 'foo')", "0")  # a key that it does not name; and a build may have no Lua
same("MOVED 12182" in script or "are not in this build" in script, True)
same(ask(a, "MULTI"), "+OK")
same(ask(a, "GET", "bar"), "+QUEUED")
same(ask(a, "GET", "foo"), moved)
same(ask(a, "EXEC")[:10], "-EXECABORT")
same(ask(a, "ASKING"), "+OK")
same(ask(a, "CLUSTER", "KEYSLOT", "{foo}bar"), 12182)
same(ask(a, "CONFIG", "GET", "cluster-enabled"), ["cluster-enabled", "yes"])
same("cluster_enabled:1" in ask(a, "INFO", "cluster"), True)
same("cluster_slots_assigned:16384" in ask(a, "CLUSTER", "INFO"), True)
ids = [ask(stream, "CLUSTER", "MYID") for stream in (a, b, c)]
same([len(i) for i in ids], [40, 40, 40])
slots = ask(a, "CLUSTER", "SLOTS")
same([s[:2] for s in slots], [[0, 5461], [5462, 10922], [10923, 16383]])
same([s[2] for s in slots], [["127.0.0.1", port, i, []] for port, i in zip(ports[3:6], ids)])
same(slots, ask(c, "CLUSTER", "SLOTS"))
nodes = ask(b, "CLUSTER", "NODES").split("\n")
same(nodes[1], f"{ids[1]} 127.0.0.1:{ports[4]}@0 myself,master - 0 0 1 connected 5462-10922")
same(len(ask(b, "CLUSTER", "SHARDS")), 3)
same(ask(a, "CLUSTER", "MEET", "h", "1")[:4], "-ERR")
same(ask(a, "DBSIZE"), ask(a, "DBSIZE"))

# memcached's.
m = socket.create_connection(("127.0.0.1", ports[6])).makefile("rwb")
m.write(b"get foo\r\nget bar foo\r\nset foo 0 0 1\r\nx\r\nmg foo v\r\nset bar 0 0 1\r\nx\r\nget bar\r\n")
m.flush()
for wanted in [b"SERVER_ERROR another server has the key, see rdmad-cluster(7)"] * 4 + [b"STORED", b"VALUE bar 0 1", b"x", b"END"]:
    same(m.readline().rstrip(), wanted)
END
if command -v redis-cli >/dev/null; then
	for ((i = 0; i < 100; i++)); do echo "set routed$i $i"; done | redis-cli -c -p "${ports[3]}" >"$dir/out"
	[[ $(grep -c '^OK' "$dir/out") == 100 ]] || fail "redis-cli -c"
	for ((i = 0; i < 100; i++)); do echo "get routed$i"; done | redis-cli -c -p "${ports[4]}" | grep -v '^->' >"$dir/out"
	seq 0 99 | diff - <(tr -d '"' <"$dir/out") >/dev/null || fail "what redis-cli -c reads"
fi
if "$python" -c 'from redis.cluster import RedisCluster' 2>/dev/null; then
	"$python" - "${ports[3]}" >"$dir/out" 2>"$dir/err" <<-'END' || fail "RedisCluster of python3-redis"
		import sys
		from redis.cluster import RedisCluster
		client = RedisCluster(host="127.0.0.1", port=int(sys.argv[1]))
		for i in range(300):
		    client.set(f"python{i}", i)
		assert [client.get(f"python{i}") for i in range(300)] == [b"%d" % i for i in range(300)]
		assert sum(client.dbsize(target_nodes=node) for node in client.get_primaries()) >= 300
	END
fi
stop_all

# Slots of no server.
sed '/^checksum/d; s/^epoch 1/epoch 2/; s/^shard a a .*/shard a a 1001-5461\nabsent 0-1000/' "$dir/table" >"$dir/less"
for ((i = 0; i < 100; i++)); do echo "k$i"; done >"$dir/keys"
key=$(paste -d' ' "$dir/keys" <(xargs "$rdmactl" cluster slot --table "$dir/less" <"$dir/keys") | sed -n '/absent/{s/ .*//p;q}')
[[ $key ]] || give_up "none of 100 keys is absent"
start_all "$dir/less"
for i in 0 1 2; do
	ends 1 'another server of its cluster has the key' "$rdmactl" -H "tcp://127.0.0.1:${ports[i]}" kv get "$key"
	exec 3<>"/dev/tcp/127.0.0.1/${ports[i + 3]}"
	printf 'get %s\r\n' "$key" >&3
	IFS= read -r line <&3
	exec 3>&-
	[[ $line == '-CLUSTERDOWN Hash slot not served'* ]] || fail "an absent slot at ${nodes[i]}: $line"
done
stop_all
conclude
