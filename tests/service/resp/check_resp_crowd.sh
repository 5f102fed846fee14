#!/bin/bash
# A crowd of hostile clients, all at once: a good one beside them goes on, and nothing of them is left.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 jq
ulimit -n "$(ulimit -Hn)"
(($(ulimit -n) >= 3000)) || { echo "$test_name: $(ulimit -n) open files are too few"; exit 77; }

lua=true
configure 'workers = 2;' 'services = ["kv", "resp"];' 'kv = { memory = "64M"; eviction = "none"; };' 'max_connections = 2500;' 'max_connections_per_source = 2500;' \
	"resp = { listen = [\"127.0.0.1:0\"]; unix_socket = \"$dir/redis.sock\"; scripts = true; };"
"$rdmad" -c "$dir/rdmad.conf" -T >"$dir/out" 2>&1 || { lua=false; sed -i 's/ scripts = true;//' "$dir/rdmad.conf"; }
start_daemon
port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for resp.*/\1/p' "$dir/log")

# What there is of clients: all of it goes back to what it was.
left() {
	control status | jq -c '{connections, items: .store.items, pins: .store.pins, reserved: .store.reserved_bytes, transfer: .store.transfer_bytes,
		used: .store.used_bytes, waiting: .counters.stream_waiting_bytes, buffers: .counters.stream_buffer_bytes}'
	resource descriptors
}
is_as_before() { left >"$dir/now" && cmp -s "$dir/before" "$dir/now"; }

left >"$dir/before"
[[ -s $dir/before ]] || give_up "no status"
timeout 240 python3 "$srcdir/tests/service/resp/resp_crowd.py" "$port" "$dir/redis.sock" "$lua" "$(part 4)" || fail "the crowd"
wait_for "what the crowd had" is_as_before || diff "$dir/before" "$dir/now" >&2
stop_daemon
conclude
