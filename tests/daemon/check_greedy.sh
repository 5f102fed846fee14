#!/bin/bash
# A daemon and clients that take what they can: buffers, memory, places; and a daemon that is frozen. What is judged is how
# much they get, that others are served meanwhile, and that all of it comes back.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3

# hostile KIND COUNT: they have come, and stay until dismiss.
hostile() {
	local fifo=$dir/stay
	rm -f "$fifo" "$dir/hostile"
	mkfifo "$fifo"
	python3 "$srcdir/tests/daemon/greedy.py" "$dir/rdmad.sock" "$@" <"$fifo" >"$dir/hostile" 2>"$dir/hostile.err" &
	attackers=$!
	clients+=("$attackers")
	exec 9>"$fifo"
	wait_for "hostile clients ($*)" grep -q refused "$dir/hostile" || cat "$dir/hostile.err" >&2
}

dismiss() {
	exec 9>&-
	wait "$attackers"
	wait_for "the end of their connections" nobody_is_connected
	[[ $(resource buffers_in_use) == 0 ]] || fail "$1: $(resource buffers_in_use) buffers are still in use"
	[[ $(resource own_buffer_bytes) == 0 ]] || fail "$1: $(resource own_buffer_bytes) bytes of own buffers are left"
	[[ $(resource parked_bytes) == 0 ]] || fail "$1: $(resource parked_bytes) bytes of requests still wait"
}

counter() { control status | jq ".counters.$1"; }
has_counted() { (($(counter "$1") >= $2)); }
resident() { control memory | jq .resident_bytes; }

listen=(tcp://127.0.0.1:0)
configure 'workers = 1;' 'max_connections = 60;' 'max_connections_per_source = 1000;' 'stall_timeout = "10s";' 'own_buffers = "30M";' \
	'first_request_timeout = "1s";' 'credits = 16;'
start_daemon
server=unix://$dir/rdmad.sock

# The shared buffers: each has its share, 16 and some that return credits, whatever it grants.
hostile pings 40
used=$(resource buffers_in_use)
((used > 0 && used <= 40 * 20)) || fail "40 clients hold $used send buffers"
expect 0 ping -c 10 -s 5000 && expect 0 kv set a 1
wait_for "the cutting off of a client that takes no answers" has_counted stalled 40
expect 0 ping -c 10 -s 5000
dismiss pings

# Buffers of their own: nothing but a promise until they are used, and no more than own_buffers.
before=$(resident)
hostile large 40
grep -q '^2 in, 38 refused' "$dir/hostile" || fail "large messages: $(cat "$dir/hostile")"
(($(resource own_buffer_bytes) <= 30 << 20)) || fail "own buffers beyond own_buffers"
(($(resident) - before < 16 << 20)) || fail "connections alone took $(($(resident) - before)) bytes"
expect 0 ping -c 10 -s 5000
dismiss large

# Places: clients that ask for nothing keep them only until somebody wants one.
hostile silent 60
grep -q '^60 in' "$dir/hostile" || fail "silent: $(cat "$dir/hostile")"
wait_for "a place" ctl ping -c 1
(($(counter gave_way) >= 1)) || fail "nobody gave way"
(($(resource connections) >= 55)) || fail "connections were closed that nobody wanted the place of"
dismiss silent

# A daemon that does not run any more is found, and what waits for it ends.
for server in "${servers[@]}"; do
	timeout 240 "$rdmactl" -H "$server" ping -c 1000000 -i 50ms >"$dir/out" 2>"$dir/err" &
	pinger=$!
	clients+=("$pinger")
	wait_for "pings" has_counted pings $(($(counter pings) + 5))
	kill -STOP "$daemon"
	wait_for "the end of the pings" ended "$pinger"
	kill -CONT "$daemon"
	wait "$pinger" && fail "a ping of a frozen daemon succeeded"
	complains "the peer does not answer" "$server"
	wait_for "the end of its connection" nobody_is_connected
done
stop_daemon
conclude
