#!/bin/bash
# check_cluster_handle.sh: three rdmads of one table behind one address: rdmactl and Python have each key at its server, go on
# while one is away, and follow a table that changed.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
# shellcheck source=tests/cluster/servers.sh
. "$(dirname "$0")/servers.sh"
start_all "$dir/table"
all=cluster:127.0.0.1:${ports[0]},127.0.0.1:${ports[1]}

# rdmactl: keys of all servers, small and large, by either form of the address.
head -c 300000 /dev/urandom >"$dir/large"
for n in {1..12}; do
	ends 0 '' "$rdmactl" -H "$all" kv set "key$n" "value$n"
	ends 0 "value$n" "$rdmactl" -H "cluster:$dir/table" kv get "key$n"
	owner=$("$rdmactl" cluster slot "key$n" --table "$dir/table" | cut -d' ' -f2)
	for i in 0 1 2; do
		[[ ${nodes[i]} == "$owner" ]] || continue
		ends 0 "value$n" "$rdmactl" -H "tcp://127.0.0.1:${ports[i]}" kv get "key$n"
		ends 0 '' "$rdmactl" -H "$all" kv set "large$i" --file "$dir/large"
	done
done
"$rdmactl" -H "$all" kv get large1 >"$dir/out" && cmp -s "$dir/out" "$dir/large" || fail "a large value"
"$rdmactl" -H "$all" kv list key >"$dir/out"
[[ $(grep -c '^key' "$dir/out") == 12 ]] || fail "the keys of all servers"
printf 'set foo 1\nset bar 2\nget bar\nget foo\n' >"$dir/commands"
"$rdmactl" -H "$all" kv run "$dir/commands" >"$dir/out" 2>"$dir/err"
grep -q '^2' "$dir/out" || fail "kv run"
ends 0 '' "$rdmactl" -H "$all" bench kv --duration 100ms --warmup 10ms --clients 2 --size 64,8K
ends 2 'names no server' "$rdmactl" -H cluster:, kv get foo
ends 3 'nowhere' "$rdmactl" -H cluster:/nowhere/table kv get foo
ends 2 'is not an address' "$rdmactl" -H tcp:://x kv get foo

# Python, while one server is away and comes back by another table.
key_of_c=$(for n in {1..99}; do echo "of$n"; done | while read -r key; do
	[[ $("$rdmactl" cluster slot "$key" --table "$dir/table" | cut -d' ' -f2) != c ]] || { echo "$key"; break; }; done)
sed '/^checksum/d; s/^epoch 1/epoch 2/; s/^shard a a .*/shard a a 0-5461 10923-16383/; /^shard c/d' "$dir/table" >"$dir/next"
cat >"$dir/program.py" <<'END'
import sys
import time

import rdmad

address, key = sys.argv[1:]
say = lambda word: print(word, flush=True)
with rdmad.Store(address) as store, rdmad.Store(address, miss=True) as cache:
    values = {f"python{i}": b"%d" % i for i in range(300)}
    for name, value in values.items():
        store.set(name, value)
    assert {name: store.get(name) for name in values} == values
    assert store.info().keys >= 300
    store.set(key, b"of c")
    say("kill")
    sys.stdin.readline()
    for attempt in range(2):  # the first may be the one that finds it out
        try:
            store.get(key)
        except (rdmad.Gone, OSError) as error:
            last = error
        else:
            raise SystemExit("a server that is away answers")
    assert "127.0.0.1" in str(last), last
    assert cache.get(key) is None
    left = sum(cache.get(name) is not None for name in values)
    assert 150 <= left < 300, left
    say("restart")
    sys.stdin.readline()
    for name, value in {key: b"of a", **values}.items():  # a server that is back is not connected yet
        while True:
            try:
                store.set(name, value)
                break
            except (rdmad.Gone, OSError):
                time.sleep(0.01)
    assert store.get(key) == b"of a"
    assert {name: store.get(name) for name in values} == values
END
# shellcheck source=tests/python/python.sh
(. "$srcdir/tests/python/python.sh"
	trap 'kill -KILL "${clients[@]}" 2>/dev/null' EXIT # servers that begin here
	mkfifo "$dir/to"
	exec 5<>"$dir/to"
	PYTHONPATH=$srcdir/python LD_PRELOAD=$preload "$python" "$dir/program.py" "$all" "$key_of_c" <"$dir/to" >"$dir/said" 2>"$dir/err" &
	program=$!
	says() { grep -q "$1" "$dir/said" || ended "$program"; }
	wait_for "the first half of the program" says kill
	kill -KILL "${pids[2]}"
	echo >&5
	wait_for "the second half" says restart
	for i in 0 1; do
		kill -TERM "${pids[i]}"
		wait_for "the end of ${nodes[i]}" ended "${pids[i]}"
		start "$i" "$dir/next"
		await "$i"
	done
	echo >&5
	wait "$program" || { cat "$dir/err" >&2; exit 1; }
	unset 'pids[2]'
	stop_all
	exit "$failures"
) || fail "Python over a cluster"
conclude
