#!/bin/bash
# Channels of Redis's clients: as a redis-server has them, and what harms no other client.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 redis-server

redis-server --port 0 --unixsocket "$dir/other.sock" --save "" --appendonly no --dir "$dir" >"$dir/other.log" 2>&1 &
other=$!
wait_for "redis-server" test -S "$dir/other.sock"
configure 'workers = 2;' 'services = ["kv", "resp"];' 'kv = { memory = "64M"; };' "resp = { unix_socket = \"$dir/redis.sock\"; scripts = true; script_time = \"10s\"; };"
start_daemon
timeout 240 python3 "$srcdir/tests/service/resp/resp_pubsub.py" "$dir/other.sock" "$dir/redis.sock" "$(part 3000)" || fail "channels"
stop_daemon
kill "$other"
wait "$other"
conclude
