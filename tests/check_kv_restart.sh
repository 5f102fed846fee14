#!/bin/bash
# A program with a poll loop of its own, 32 requests in flight and values of 10 MiB loses no answer when rdmad is restarted in the
# middle. By TCP and a UNIX socket, or by RDMA where there is a device whose address RDMAD_GUEST_ADDR says.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
need jq

count=${RDMAD_GUEST:+120}
count=${count:-400}

# Where it serves, it serves again.
restart_there() {
	local address=${1#*://}
	stop_daemon
	listen=("${1%%:*}://$address")
	[[ $1 != unix:* ]] || listen=(tcp://127.0.0.1:0)
	configure 'kv = { memory = "1G"; };'
	start_daemon
}

check_restart() {
	local client half
	server=$1
	coproc "$builddir/tests/kv_stranger" "$server" "$count" 2>"$dir/err"
	client=$!
	clients=("$client")
	read -r half <&"${COPROC[0]}"
	[[ $half == half ]] || fail "it ended before its half: $half"
	restart_there "$server"
	cat <&"${COPROC[0]}" >"$dir/out"
	wait "$client" || fail "the program lost answers"
	says "^$count answered, [0-9]+ missing, 0 lost: well"
	clients=()
}

configure 'kv = { memory = "1G"; };'
start_daemon
keep_special
for address in "${servers[@]}"; do
	check_restart "$address"
done
stop_daemon
conclude
