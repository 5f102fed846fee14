# servers.sh: what the tests in bash of a cluster share: three rdmads a, b and c, of $dir/table or another one.
# shellcheck shell=bash disable=SC2034,SC2154 # lib.sh's variables, and the test's
python=python3
python3 -c 'import redis' 2>/dev/null || [[ ! -x /usr/bin/python3 ]] || python=/usr/bin/python3

nodes=(a b c)
mapfile -t ports < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(9)]
print(*(s.getsockname()[1] for s in held), sep="\n")')

# settings NODE NUMBER TABLE [LINE...]: without a table each node has its own file; $state: it keeps what was served.
settings() {
	local node=$1 number=$2 table=${3:-$dir/$1.table} keeps=''
	shift 3
	[[ ! ${state-} ]] || keeps="state = \"$dir/$node.state\";"
	cat >"$dir/$node.conf" <<-CONF
		listen = ["tcp://127.0.0.1:${ports[number]}"];
		unix_socket = "$dir/$node.rdmad";
		control = { socket = "$dir/$node.sock"; };
		workers = ${workers:-1};
		kv = { memory = "32M"; };
		resp = { listen = ["127.0.0.1:${ports[number + 3]}"]; scripts = true; };
		memcached = { listen = ["127.0.0.1:${ports[number + 6]}"]; };
		cluster = { table = "$table"; node = "$node"; $keeps };
	CONF
	printf '%s\n' "$@" >>"$dir/$node.conf"
}

# start [TABLE]: all of them, as ${pids[@]}.
start() {
	local i node
	pids=()
	for i in 0 1 2; do
		node=${nodes[i]}
		settings "$node" "$i" "${1-}"
		"$rdmad" -c "$dir/$node.conf" >"$dir/$node.log" 2>&1 &
		pids+=($!)
		clients+=($!)
	done
	for i in 0 1 2; do
		settled() { "$rdmactl" --control "$dir/${nodes[i]}.sock" status >/dev/null 2>&1 || ended "${pids[i]}"; }
		wait_for "the start of ${nodes[i]}" settled
		ended "${pids[i]}" && { cat "$dir/${nodes[i]}.log" >&2; give_up "${nodes[i]} does not start"; }
	done
}

stop() {
	kill -TERM "${pids[@]}"
	wait "${pids[@]}"
	for node in "${nodes[@]}"; do
		grep -E 'ERROR|Sanitizer' "$dir/$node.log" && fail "$node's log"
	done
}

specs=()
for i in 0 1 2; do specs+=("${nodes[i]}=127.0.0.1:${ports[i]},resp=127.0.0.1:${ports[i + 3]}"); done
"$rdmactl" cluster make --name test "${specs[@]}" >"$dir/table" || give_up "no table"

