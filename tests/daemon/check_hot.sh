#!/bin/bash
# Keys that are asked for most, by any protocol, and only while somebody looks for them; how old evicted ones are.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
configure 'services = ["ping", "kv", "resp", "memcached"];' "resp.unix_socket = \"$dir/resp.sock\";" \
	"memcached.unix_socket = \"$dir/memcached.sock\";" 'kv = { memory = "8M"; eviction = "s3-fifo"; };'
start_daemon

# Clients that go on until they are killed: half of what each asks for is one key.
busy() {
	python3 - "$dir" "$1" <<-'END' &
	import socket, sys
	s = socket.socket(socket.AF_UNIX)
	s.connect(f"{sys.argv[1]}/{sys.argv[2]}.sock")
	n = 0
	while True:
	    n += 1
	    for key in (f"hot {sys.argv[2]}".replace(" ", ":"), f"cold:{n}"):
	        s.sendall((f"get {key}\r\n").encode())
	        s.recv(65536)
	END
	clients+=($!)
}
grows() { control status | jq -e ".counters.$1 > $2" >/dev/null; }

expect 0 kv hot --for 0.1 && says '^requests 0, of which 0' "kv hot of nobody"
! grep -q evictions "$dir/out" || fail "evictions of an empty store"
busy resp
busy memcached
wait_for "a client of memcached" grows memcached_cmd_get 100
wait_for "a client of Redis's" grows records_in 1000
expect 0 --json kv hot --for 2
json '.requests > 100 and .sampled > 10 and .sampled < .requests' "how many"
json '.keys[:2] | [.[].key] | sort == ["hot:memcached", "hot:resp"]' "the hottest keys"
json '[.keys[:2][].share_percent] | add > 35 and add < 65' "their share"
json '.keys | all(.share_percent >= .over_percent)' "the error"
expect 0 kv hot && says '^ *[0-9.]* %  *[0-9.]* %  hot:' "the table"
# It ends by itself: nothing is counted any more, and requests are not timed.
expect 0 slow && says '^slow: none' "hot keys are no slow requests"
kill -KILL "${clients[@]}"
wait "${clients[@]}" 2>/dev/null
clients=()

# rdmad's own protocol.
server=unix://$dir/rdmad.sock
"$rdmactl" -H "$server" -q bench kv --op get --count 100000000 --size 64 >/dev/null 2>&1 &
clients+=($!)
wait_for "a benchmark" grows kv_gets 100
server=''
expect 0 --json kv hot --for 1 && json '.requests > 100 and (.keys | length) > 0' "keys of rdmad's own protocol"
kill -KILL "${clients[@]}"
wait "${clients[@]}" 2>/dev/null
clients=()

# More than it has room for.
server=unix://$dir/rdmad.sock
head -c 100000 /dev/zero >"$dir/value"
for ((i = 0; i < 130; i++)); do "$rdmactl" -H "$server" -q kv set "large:$i" - <"$dir/value" || fail "kv set"; done
server=''
expect 0 kv hot --for 0.1 && says '^evictions [1-9][0-9]*, lately of keys that had been there for [0-9.]* s$' "evictions"
[[ $(control status | jq '.store.evicted_age_us > 0') == true ]] || fail "the age of evicted keys: $(control status | jq -c .store)"
expect 2 kv hot --for 0 && complains "of 0.1 to 3600 s" "no time"
stop_daemon
conclude
