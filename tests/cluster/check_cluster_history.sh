#!/bin/bash
# check_cluster_history.sh: what clients see of a server that is killed, started again and stopped for a while: every hit is the latest
# value that was acknowledged.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

configure 'workers = 2;' 'kv = { memory = "64M"; };'
start_daemon
tests/cluster/history "unix://$dir/rdmad.sock" "$(part 8)" 6 12 >"$dir/history" 2>"$dir/history.log" &
history=$!
clients+=("$history")
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
wait "$history" || { cat "$dir/history" "$dir/history.log" >&2; fail "a client saw what it must not see"; }
cat "$dir/history"
stop_daemon
conclude
