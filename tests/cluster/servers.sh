# servers.sh: what the tests in bash of a cluster share: rdmads, which are a, b and c unless $nodes has others. They have $dir/table
# or another one, or agree by an etcd (tests/etcd/servers_by_etcd.sh).
# shellcheck shell=bash disable=SC2034,SC2154 # lib.sh's variables, and the test's
python=python3
python3 -c 'import redis' 2>/dev/null || [[ ! -x /usr/bin/python3 ]] || python=/usr/bin/python3

[[ ${nodes-} ]] || nodes=(a b c)
# The ports: for each node its own, then that of Redis's protocol, then memcached's; and others.
mapfile -t ports < <(free_ports $((3 * ${#nodes[@]} + 4)))
pids=()

# settings NODE NUMBER TABLE [LINE...]: without a table each node has its own file, or agrees as $engine says, by the etcd at
# ${urls[NUMBER]}; $state: it keeps what was served.
settings() {
	local node=$1 number=$2 by="table = \"${3:-$dir/$1.table}\";" keeps=''
	shift 3
	[[ ! ${engine-} ]] || by="$engine endpoints = [\"${urls[number]}\"];"
	[[ ! ${state-} ]] || keeps="state = \"$dir/$node.state\";"
	cat >"$dir/$node.conf" <<-CONF
		listen = ["tcp://127.0.0.1:${ports[number]}"];
		unix_socket = "$dir/$node.rdmad";
		control = { socket = "$dir/$node.sock"; };
		workers = ${workers:-1};
		kv = { memory = "${memory:-32M}"; };
		resp = { listen = ["127.0.0.1:${ports[number + ${#nodes[@]}]}"]; scripts = true; };
		memcached = { listen = ["127.0.0.1:${ports[number + 2 * ${#nodes[@]}]}"]; unix_socket = "$dir/$node.memcached"; };
		cluster = { $by node = "$node"; $keeps };
	CONF
	printf '%s\n' "$@" >>"$dir/$node.conf"
}

# start NUMBER [TABLE]: it, as ${pids[NUMBER]}; await NUMBER: until it has begun.
start() {
	local node=${nodes[$1]}
	settings "$node" "$1" "${2-}"
	"$rdmad" -c "$dir/$node.conf" >>"$dir/$node.log" 2>&1 &
	pids[$1]=$!
	clients+=("${pids[$1]}")
}
await() {
	local node=${nodes[$1]} pid=${pids[$1]}
	settled() { "$rdmactl" --control "$dir/$node.sock" status >/dev/null 2>&1 || ended "$pid"; }
	wait_for "the start of $node" settled
	ended "$pid" && { cat "$dir/$node.log" >&2; give_up "$node does not start"; }
}

# start_all [TABLE]: until they have begun.
start_all() {
	local i
	rm -f "$dir"/?.log
	for i in "${!nodes[@]}"; do start "$i" "${1-}"; done
	for i in "${!nodes[@]}"; do await "$i"; done
}

# stop_all [PATTERN]: no log has errors, or the pattern.
stop_all() {
	local node
	kill -TERM "${pids[@]}"
	wait "${pids[@]}"
	for node in "${nodes[@]}"; do
		grep -E "ERROR|Sanitizer${1:+|$1}" "$dir/$node.log" && fail "$node's log"
	done
}

specs=()
for i in "${!nodes[@]}"; do specs+=("${nodes[i]}=127.0.0.1:${ports[i]},resp=127.0.0.1:${ports[i + ${#nodes[@]}]}"); done
"$rdmactl" cluster make --name test "${specs[@]}" >"$dir/table" || give_up "no table"

reload() { "$rdmactl" --control "$dir/$1.sock" reload >"$dir/out" 2>"$dir/err"; }
# cluster_of NODE FIELD
cluster_of() { "$rdmactl" --control "$dir/$1.sock" --json status | jq ".cluster.$2"; }

# give FIRST LAST NODE: the next table, by which the node has that range. It gets it last, as the others lose by it.
give() {
	local node turn=''
	python3 - "$dir/table" "$@" >"$dir/next" <<-'END'
		import sys

		path, first, last, node = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
		owner = [None] * 16384
		for line in open(path):
		    words = line.split()
		    if words[0] == "shard":
		        for part in words[3:]:
		            a, _, b = part.partition("-")
		            owner[int(a):int(b or a) + 1] = [words[1]] * (int(b or a) + 1 - int(a))
		    elif words[0] == "epoch":
		        print("epoch", int(words[1]) + 1)
		    elif words[0] != "checksum":
		        print(line, end="")
		owner[first:last + 1] = [node] * (last + 1 - first)
		begin = 0
		for slot in range(1, 16385):
		    if slot == 16384 or owner[slot] != owner[begin]:
		        print("shard", owner[begin], owner[begin], f"{begin}-{slot - 1}")
		        begin = slot
	END
	mv "$dir/next" "$dir/table"
	for node in "${nodes[@]}" "$3"; do
		[[ $node == "$3" && ! ${turn-} ]] && { turn=last; continue; }
		cp "$dir/table" "$dir/$node.new" && mv "$dir/$node.new" "$dir/$node.table"
		reload "$node" || fail "the reload of $node"
		[[ $(cluster_of "$node" settled) == 1 ]] || fail "$node is not settled behind its reload"
	done
}
