#!/bin/bash
# What no client of memcached's does by mistake: lengths that are none, lines that never end, readers that do not read, ends in the middle.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 jq

configure 'workers = 2;' 'services = ["kv", "memcached", "resp"];' 'kv = { memory = "64M"; value_max = "2M"; eviction = "s3-fifo"; };' \
	"memcached.unix_socket = \"$dir/memcached.sock\";" "resp.unix_socket = \"$dir/redis.sock\";"
start_daemon
timeout 240 python3 "$srcdir/tests/service/memcached/memcached_hostile.py" "$dir/memcached.sock" "$(part 1000)" "$dir/redis.sock" || fail "a hostile client"
# What they left behind is given back.
wait_for "the end of all connections" eval 'control status | jq -e ".connections == 0" >/dev/null'
control memory | jq -e '.kv.reserved_bytes == 0 // true' >/dev/null || fail "reservations are left"
stop_daemon
conclude
