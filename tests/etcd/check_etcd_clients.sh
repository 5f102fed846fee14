#!/bin/bash
# check_etcd_clients.sh: clients of Redis Cluster, as others have written them, count while a node joins, is drained and joins again: none
# is told of an error, and no number is lost or comes twice. A list of all keys meanwhile has all, or ends with an error.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need etcd etcdctl jq python3
nodes=(a b c d) memory=64M
# shellcheck source=tests/etcd/servers_by_etcd.sh
. "$(dirname "$0")/servers_by_etcd.sh"
programs=$srcdir/tests/service/clients/programs
start_etcd
wait_for "etcd" put_key begin 1
for i in "${!nodes[@]}"; do start $i; done
for i in "${!nodes[@]}"; do wait_for "${nodes[i]} as a member" serves $i; done
"$rdmactl" cluster make --name kv "${specs[@]:0:3}" >"$dir/first" && apply "$dir/first" || fail "the first table"
all_serve() { timeout 5 "$rdmactl" cluster status "127.0.0.1:${ports[0]}" >"$dir/out" 2>&1; }
wait_for "the first table" all_serve

set -o pipefail
counting=() names=()
# counts NAME COMMAND...
counts() {
	local name=$1
	shift
	"$@" >"$dir/${name##*/}.out" 2>"$dir/${name##*/}.err" &
	counting+=($!)
	clients+=($!)
	names+=("${name##*/}")
	wait_for "$name" grep -qs began "$dir/${name##*/}.out"
}
if "$python" -c 'from redis.cluster import RedisCluster' 2>/dev/null; then
	counts RedisCluster "$python" "$programs/in_cluster.py" "${ports[4]}"
fi
if why=$(node_programs); then
	for module in ioredis iovalkey redis @valkey/valkey-glide; do counts "$module" node "$dir/node/in_cluster.mjs" "$module" "${ports[4]}"; done
else
	echo "$why"
fi
[[ ${counting[*]} ]] || { echo "$test_name: no client of Redis Cluster is here"; exit 77; }

lists() { "$rdmactl" -H "cluster:127.0.0.1:${ports[0]},127.0.0.1:${ports[1]}" kv list 2>"$dir/err" | sort -u >"$dir/list"; }
has_all() { lists && [[ $(wc -l <"$dir/list") == $((100 * ${#counting[@]})) ]]; }
wait_for "the counters" has_all
moved_or_listed() {
	if lists; then
		[[ $(wc -l <"$dir/list") == $((100 * ${#counting[@]})) ]] || fail "a list has $(wc -l <"$dir/list") keys, and no error"
	fi
	moved
}

moved() { show --json | jq -e 'all(.nodes[]; .gives == 0)' >/dev/null; }
for round in 1 2; do
	if [[ $round == 1 ]]; then change add "${specs[3]}"; else change add; fi
	wait_for "the slots of d" moved_or_listed
	[[ $(of d slots) == 4096 ]] || fail "d has $(of d slots) slots in round $round"
	"$rdmactl" cluster drain d --wait --name kv "${as[@]}" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; fail "drain $round of d"; }
done
wait_for "a list of all keys when nothing moves" has_all
kill -TERM "${counting[@]}"
for i in "${!counting[@]}"; do
	wait "${counting[i]}" || { head -n 20 "$dir/${names[i]}.err"; fail "${names[i]} while slots move"; }
	tail -n 1 "$dir/${names[i]}.out"
done
stop_all '^error'
conclude
