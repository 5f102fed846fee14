#!/bin/bash
# The log of slow requests: off unless it is asked for, of each protocol, with keys only where that is wanted, bounded.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq redis-cli python3
configured=('services = ["ping", "kv", "resp", "memcached"];' "resp.unix_socket = \"$dir/resp.sock\";"
	"memcached.unix_socket = \"$dir/memcached.sock\";")

# again SETTING...: the daemon has these from now on.
again() { configure "${configured[@]}" "$@" && expect 0 reload; }
redis() { timeout 60 redis-cli -s "$dir/resp.sock" "$@"; }
memcached() {
	python3 - "$dir/memcached.sock" "$1" <<-'END'
	import socket, sys
	s = socket.socket(socket.AF_UNIX)
	s.connect(sys.argv[1])
	s.sendall(sys.argv[2].encode().decode("unicode_escape").encode())
	s.recv(65536)
	END
}
# logged_are FILTER: of the entries, by jq.
logged_are() { control slow | jq -e ".slow | ($1)" >/dev/null; }
ask_all() {
	server=unix://$dir/rdmad.sock
	expect 0 -q kv set small value
	expect 0 -q kv get small
	head -c 300000 /dev/zero | timeout 60 "$rdmactl" -H "$server" -q kv set large - || fail "kv set"
	ctl kv get large
	server=''
	redis set one 1 >"$dir/out"
	redis get one >"$dir/out"
	memcached 'set two 0 0 1\r\n2\r\n'
	memcached 'get two\r\n'
}

configure "${configured[@]}"
start_daemon
ask_all
expect 0 slow && says '^slow: none' "slow, off" && complains 'is off: in rdmad.conf' "slow, off"
[[ $(redis slowlog len) == 0 ]] || fail "slowlog len, off"

again 'slow = "1ns";'
ask_all
for operation in put get; do
	logged_are "any(.service == \"kv\" and .operation == \"$operation\")" || fail "no $operation: $(control slow)"
done
logged_are 'any(.service == "kv" and .size_bytes >= 300000)' || fail "no large value: $(control slow)"
logged_are 'any(.service == "resp" and .operation == "set") and any(.service == "resp" and .operation == "get")' || fail "no command of Redis's"
logged_are 'any(.service == "memcached" and .operation == "set") and any(.service == "memcached" and .operation == "get")' ||
	fail "no command of memcached's"
logged_are 'all(has("key") | not)' || fail "keys, which were not asked for"
logged_are 'all(.us >= 0 and (.client | test("pid|:")) and .at_unix_seconds > 1600000000)' || fail "entries: $(control slow)"
logged_are '[.[].id] | . == (sort | reverse)' || fail "the last one is not the first"
expect 0 slow && says '^  at  *id  *service  *operation  *took  *size bytes  *client' "the table"
[[ $(redis slowlog len) -ge 8 && $(redis slowlog get 1 | sed -n 4p) == 'slowlog|len' ]] || fail "slowlog: $(redis slowlog get)"

again 'slow = "1ns";' 'slow_keys = true;'
expect 0 slow --reset
ask_all
logged_are '[.[] | select(.key) | .key] | sort | unique == ["large", "one", "small", "two"]' || fail "keys: $(control slow)"
[[ $(redis slowlog reset) == OK ]] || fail "slowlog reset"
logged_are 'length < 3' || fail "slowlog reset leaves entries"

# It is bounded.
for ((i = 0; i < 1000; i++)); do echo "set k$i x"; done | redis >"$dir/out"
logged_are 'length == 512 and any(.key == "k999") and all(.key != "k1")' || fail "not the last 512"
[[ $(redis slowlog get -1 | grep -c '^set$') -ge 500 ]] || fail "slowlog get -1"

# A limit that nothing meets, and then none at all.
again 'slow = "1h";'
expect 0 slow --reset
ask_all
logged_are 'length == 0' || fail "requests of less than an hour: $(control slow)"
expect 0 slow && ! grep -q 'is off' "$dir/err" || fail "slow, on"
again
expect 0 slow && complains 'is off' "slow, off again"
sed -i 's/^slow.*//' "$dir/rdmad.conf" && echo 'slow = "soon";' >>"$dir/rdmad.conf"
expect 1 reload && complains 'slow' "a time that is none"
stop_daemon
conclude
