#!/bin/bash
# A program with a poll loop of its own, 32 requests in flight and values of 10 MiB loses no answer when rdmad is restarted in the
# middle, and commands whose last answer is lost say so. By TCP and a UNIX socket, or by RDMA where there is a device whose address RDMAD_GUEST_ADDR says.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
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
	coproc "$builddir/tests/wal/kv_stranger" "$server" "$count" 2>"$dir/err"
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

somebody_is_connected() { [[ $(resource connections) -gt 0 ]]; }

# The signal is on its way for as long as a thread takes to wake up.
daemon_is_stopped() { ! grep -h ^State: "/proc/$daemon/task/"*/status | grep -qv stopped; }

# There is something at this port that the daemon has not read. Of a line of /proc/net/tcp: state 1, and what is queued each way.
has_unread() { grep -qE ":$(printf %04X "$1") [0-9A-F]+:[0-9A-F]+ 01 [0-9A-F]+:0*[1-9A-F]" /proc/net/tcp; }

# The daemon is killed with the request unread, while the client waits for its answer and for more commands.
check_lost_answer() {
	local client lines status
	server=$1
	mkfifo "$dir/lines"
	"$rdmactl" -H "$server" kv run - <"$dir/lines" >"$dir/out" 2>"$dir/err" &
	client=$!
	clients=("$client")
	exec {lines}>"$dir/lines"
	wait_for "a connection" somebody_is_connected
	kill -STOP "$daemon"
	wait_for "the daemon's stop" daemon_is_stopped
	echo "set key value" >&$lines
	wait_for "the request" has_unread "${server##*:}"
	stop_daemon KILL 137
	exec {lines}>&-
	wait "$client"
	status=$?
	clients=()
	[[ $status == 3 ]] || fail "commands whose answer was lost: exit status $status"
	complains "the connection ended before all answers"
}

configure 'kv = { memory = "1G"; };'
start_daemon
for address in "${servers[@]}"; do
	[[ $address != tcp:* ]] || tcp=$address
done
check_lost_answer "$tcp"
start_daemon
keep_special
for address in "${servers[@]}"; do
	check_restart "$address"
done
stop_daemon
conclude
