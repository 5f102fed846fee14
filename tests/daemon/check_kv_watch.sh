#!/bin/bash
# Programs that are told of changed keys, of a daemon with several workers: their copies are what the store has; one that takes nothing, and
# one that is killed, are in nobody's way.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
configure 'services = ["ping", "kv", "resp"];' 'workers = 4;' "resp.unix_socket = \"$dir/resp.sock\";" \
	'kv = { memory = "8M"; eviction = "s3-fifo"; };'
start_daemon
server=unix://$dir/rdmad.sock

watching() { [[ $(control memory | jq .store.watches) == "$1" ]]; }
# watch NAME ARGUMENT...: its output goes to $dir/NAME; $watcher is its process.
watch() {
	"$rdmactl" -H "$server" --json kv watch "${@:2}" >"$dir/$1" 2>"$dir/$1.err" &
	watcher=$!
	clients+=("$watcher")
	wait_for "$1" grep -q began "$dir/$1"
}
told() { grep -q "$1" "$dir/$2"; }

# Four clients of Redis's protocol, which the workers share, each with keys of its own and some that all write.
write_keys() {
	python3 - "$dir" "$1" <<-'END'
		import random, socket, sys, threading
		def client(number):
		    s = socket.socket(socket.AF_UNIX)
		    s.connect(f"{sys.argv[1]}/resp.sock")
		    answers = s.makefile("rb")
		    some = random.Random(number)
		    for _ in range(int(sys.argv[2])):
		        key = f"k{some.choice((number, 9))}:{some.randrange(200)}"
		        words = some.choice((["SET", key, "v" * some.randrange(60000)], ["DEL", key], ["PEXPIRE", key, "1"]))
		        s.sendall(("*%d\r\n" % len(words) + "".join(f"${len(w)}\r\n{w}\r\n" for w in words)).encode())
		        answers.readline()
		threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
		for each in threads: each.start()
		for each in threads: each.join()
	END
}

watch all
watch some k1: --kinds stored
watching 2 || fail "watches: $(control memory | jq .store.watches)"
write_keys 3000
none_expires() { [[ $(control memory | jq .store.items) == "$(expect 0 kv list >/dev/null; wc -l <"$dir/out")" ]]; }
wait_for "keys to expire" none_expires
expect 0 kv set end v
wait_for "the last event" told '"end"' all
expect 0 kv list k
sort "$dir/out" >"$dir/there"
! grep -q missed "$dir/all" || fail "events were missed"
jq -rn 'reduce inputs as $e ({}; if ($e.event == "new" or $e.event == "stored") then .[$e.key] = 1
	elif ($e.event == "ttl" or $e.key == null) then . else del(.[$e.key]) end) | keys[] | select(startswith("k"))' "$dir/all" |
	sort >"$dir/copied"
cmp "$dir/there" "$dir/copied" || fail "copies differ: $(diff "$dir/there" "$dir/copied" | head -n 3)"
for kind in new stored deleted expired evicted ttl; do
	told "\"$kind\"" all || fail "no event is called $kind"
done
jq -ern '[inputs | select(.key)] | length > 0 and all((.event == "new" or .event == "stored") and (.key | startswith("k1:")))' \
	"$dir/some" >/dev/null || fail "a watch of a prefix and of kinds"

# Stopped, it takes nothing; the others go on, and it is told how many it has missed.
kill -STOP "$watcher"
expect 0 -q bench kv --op set --count 300000 --size 64
kill -CONT "$watcher"
expect 0 kv set k1:last v
: >"$dir/out"
wait_for "the stopped watch" told k1:last some
watch slow
kill -STOP "$watcher"
expect 0 -q bench kv --op set --count 300000 --size 64
kill -CONT "$watcher"
wait_for "what was missed" told '"missed"' slow
control status | jq -e '.counters | .kv_events > 0 and .kv_events_missed > 0' >/dev/null || fail "counters"

# Killed, one that lags, too.
kill -STOP "$watcher"
expect 0 -q bench kv --op set --count 100000 --size 64
kill -KILL "${clients[@]}"
wait "${clients[@]}" 2>/dev/null
clients=()
wait_for "the end of the watches" watching 0

# Limits of the command.
"$rdmactl" -H "$server" kv watch c --count 1 >"$dir/counted" &
watcher=$!
clients+=("$watcher")
wait_for "a watch that counts" grep -q '^began$' "$dir/counted"
expect 0 kv set c1 v
expect 0 kv set c2 v
wait "$watcher" || fail "a watch that counts: exit status $?"
clients=()
[[ $(<"$dir/counted") == $'began\nnew c1' ]] || fail "a watch that counts: $(<"$dir/counted")"
expect 2 kv watch --kinds stored,other
stop_daemon
conclude
