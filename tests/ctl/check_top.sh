#!/bin/bash
# What the daemon does now: lines and JSON of rdmactl top and status --watch, and their screen at a terminal.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
configure 'services = ["ping", "kv", "resp"];' "resp.unix_socket = \"$dir/resp.sock\";"
start_daemon

# A client that is busy meanwhile.
"$rdmactl" -H "unix://$dir/rdmad.sock" ping -c 100000000 >/dev/null 2>&1 &
clients+=($!)
wait_for "its pings" eval '(($(control status | jq .counters.pings) > 10))'

expect 0 top --delay 0.3 --count 2 && [[ $(wc -l <"$dir/out") == 2 ]] || fail "two lines of top"
says "^20[-0-9T:]*  connections 1  requests [1-9][0-9]*/s  answers [1-9].*  memory .*  store .* answered in" "a line of top"
! grep -q $'\x1b' "$dir/out" || fail "a line of top speaks to a terminal"
expect 0 --json top -d 300ms -c 2 && [[ $(jq -c 'select(.connections | length == 1)' "$dir/out" | wc -l) == 2 ]] || fail "two lines of JSON"
json '.counters.pings_per_second > 0 and .connections[0].records_in_per_second > 0 and .memory.resident_bytes > 0' "rates"
json '.interval_seconds > 0.01 and .interval_seconds < 60 and .answered_us > 0' "times"
expect 0 status --watch=0.2 --count 2 && [[ $(grep -c '^uptime' "$dir/out") == 2 ]] || fail "status --watch"
expect 0 --json status -w0.2 -c 3 && [[ $(jq -c 'select(.ok)' "$dir/out" | wc -l) == 3 ]] || fail "JSON lines of status --watch"
expect 2 top --delay 0 && complains "of 0.1 to 3600 s" "no delay"
expect 2 top --sort size && complains "one of requests in out" "an order that is none"
expect 2 status --count 2 && complains "of --watch" "--count alone"
expect 2 status --watch=often && complains "not seconds" "status --watch=often"
# Its reader has gone.
timeout 60 "$rdmactl" --control "$dir/control.sock" top -d 0.1 2>"$dir/err" | head -n 1 >"$dir/out"
ended=${PIPESTATUS[0]}
[[ $ended != 0 && $ended != 124 && -s $dir/out ]] || fail "top without a reader: $ended"

# Without an end of its own, an interruption is one.
"$rdmactl" --control "$dir/control.sock" top -d 0.1 >"$dir/lines" 2>"$dir/err" &
clients+=($!)
client=$!
wait_for "a line" test -s "$dir/lines"
kill -TERM "$client"
wait "$client" || fail "top that is ended: $?"

kill -KILL "${clients[0]}"
wait "${clients[@]}" 2>/dev/null
clients=()
"$rdmactl" -H "unix://$dir/resp.sock" bench blocks --resp -s 16 -b 2 -D 600s -w 0 >/dev/null 2>&1 &
clients+=($!)
DAEMON=$daemon python3 "$(dirname "$0")/terminal.py" "$rdmactl" --control "$dir/control.sock" >"$dir/out" 2>"$dir/err" || fail "at a terminal"
grep FAILED "$dir/err" >&2
await_daemon "its end"
conclude
