#!/bin/bash
# check_cluster_history.sh: what clients see of a server that is killed, started again and stopped for a while, and of three that get other
# tables beside: every hit is the latest value that was acknowledged.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
state=yes workers=2
# shellcheck source=tests/cluster/servers.sh
. "$(dirname "$0")/servers.sh"

# clients_begin ADDRESS SECONDS PAUSE
clients_begin() {
	tests/cluster/history "$1" "$2" 6 12 "$3" >"$dir/history" 2>"$dir/history.log" &
	history=$!
	clients+=("$history")
}
clients_end() {
	wait "$history" || { cat "$dir/history" "$dir/history.log" >&2; fail "a client of $1 saw what it must not see"; }
	cat "$dir/history"
}

configure 'workers = 2;' 'kv = { memory = "64M"; };'
start_daemon
clients_begin "unix://$dir/rdmad.sock" "$(part 8)" 0
while ! ended "$history"; do
	sleep 0.7
	kill -STOP "$daemon"
	sleep 0.3
	kill -CONT "$daemon"
	sleep 0.5
	kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null
	start_daemon
done
clients_end "one server"
stop_daemon

# Clients begin with the table of the first server that answers.
for node in "${nodes[@]}"; do cp "$dir/table" "$dir/$node.table"; done
start_all
clients_begin "cluster:127.0.0.1:${ports[0]},127.0.0.1:${ports[1]}" 600 500
RANDOM=1
for ((n = $(part 20); n; n--)); do
	first=$((RANDOM % 12000)) i=$((RANDOM % 3))
	give "$first" $((first + RANDOM % 4000)) "${nodes[RANDOM % 3]}"
	kill -STOP "${pids[i]}"
	sleep 0.2
	kill -CONT "${pids[i]}"
	i=$((RANDOM % 3))
	kill -KILL "${pids[i]}"
	wait "${pids[i]}" 2>/dev/null
	start $i
	await $i
	sleep 0.3
done
kill -TERM "$history"
clients_end "a cluster"
grep -q ' [1-9][0-9]* refused\| [1-9][0-9]* unanswered' "$dir/history" || fail "nothing happened to the servers"
stop_all
conclude
