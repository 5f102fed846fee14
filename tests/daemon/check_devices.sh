#!/bin/bash
# A machine with two RDMA devices: clients come by either, in any order and by both at once. One device is taken away while the
# other goes on. In the guest, which gets a second device here. The name of a case after the command: only that one.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq
[[ ${RDMAD_GUEST_ADDR-} ]] || { echo "$test_name: no RDMA device"; exit 77; }
first=$RDMAD_GUEST_ADDR second=10.98.0.1 port=7480

ip link delete d1 2>/dev/null # of an earlier run, with its device
ip link add d1 type dummy && ip addr add "$second/24" dev d1 && ip link set d1 up &&
	wait_for "a second device" rdma link add rxe1 type rxe netdev d1 || give_up "no second device"
chmod 666 /dev/infiniband/uverbs*

head -c 300000 /dev/urandom >"$dir/value"
listen=(0.0.0.0:7471)

# One client by the device of this address, with long values too.
try_client() {
	server=rdma://$1
	expect 0 ping --count 20
	expect 0 kv set --file "$dir/value" large && expect 0 kv get large && same "$dir/value" "by $1"
}

# Each order anew: what the first device was given is not there for the other one.
try_orders() {
	local order at
	for order in "1 $first $second $first" "2 $second $first $second"; do
		configure "workers = ${order%% *};"
		start_daemon
		for at in ${order#* }; do try_client "$at"; done
		echo "workers, and the order of the clients: $order"
		server=''
		stop_daemon
	done
}

# Many by one, so that it has most of the receives, and then some by both.
try_both() {
	local at pid pids=()
	configure 'workers = 1;'
	start_daemon
	for at in "$first" "$first" $second "$first"; do
		"$rdmactl" -H "rdma://$at" bench kv -c 4 -d 16 -n 100 -w 0 -k 20 -s 64,8K >/dev/null 2>"$dir/err-$at" </dev/null &
		pids+=("$!")
	done
	clients=("${pids[@]}")
	for pid in "${pids[@]}"; do
		wait "$pid" || fail "one of several clients by both devices: $(tail -n 2 "$dir"/err-*)"
	done
	clients=()
	try_client $second
	try_client "$first"
	server=''
	stop_daemon
}

# Two programs that are equals, on both devices of one that listens.
try_peers() {
	local at pids=()
	"$builddir/tests/daemon/devices" serve $port 5 >"$dir/served" 2>&1 &
	clients=($!)
	for at in "$first" $second "$first"; do
		retry "$builddir/tests/daemon/devices" ask "rdma://$at" $port || fail "a peer by $at: $(cat "$dir/err")"
	done
	for at in "$first" $second; do
		timeout 60 "$builddir/tests/daemon/devices" ask "rdma://$at" $port 2>"$dir/err-$at" &
		pids+=($!)
	done
	wait "${pids[0]}" && wait "${pids[1]}" || fail "peers by both devices: $(cat "$dir"/err-*)"
	wait "${clients[0]}" || fail "the peer that listens: $(cat "$dir/served")"
	clients=()
}

# It may not listen yet.
retry() {
	local tries
	for tries in {1..100}; do
		timeout 60 "$@" 2>"$dir/err" && return
		grep -q refused "$dir/err" || return
		sleep 0.1
	done
}

try_channels() {
	local at
	"$rdmactl" channel listen -q -c 3 "rdma://0.0.0.0:$port/test" >"$dir/listened" 2>"$dir/err" &
	clients=($!)
	for at in "$first" $second "$first"; do
		retry "$rdmactl" channel push -q -f "$dir/value" "rdma://$at:$port/test" || fail "a channel by $at: $(cat "$dir/err")"
	done
	wait "${clients[0]}" || fail "the channel's listener"
	clients=()
	cat "$dir"/value{,,} | cmp -s - "$dir/listened" || fail "channels by both devices: other bytes came"
}

# The child of a fork whose parent used RDMA goes by TCP, and is told that it has no RDMA.
try_fork() {
	configure
	start_daemon
	ends 0 '' "$builddir/tests/daemon/devices" fork "$first"
	stop_daemon
}

# One device is taken away: its clients end, and the other's clients see nothing of it. The daemon gives it back, so that the
# command which takes it away ends.
try_removal() {
	configure 'workers = 2;'
	start_daemon
	try_client $second
	"$rdmactl" -H "rdma://$second" ping --count 1000000 --interval 20ms >"$dir/stays" 2>&1 </dev/null &
	clients=($!)
	wait_for "a connection" has_done "$(($(work_done) + 3))"
	rdma link delete rxe1 >/dev/null 2>&1 &
	remover=$!
	wait_for "the end of the connection" ended "${clients[0]}"
	wait_for "the end of the removal" ended "$remover"
	try_client "$first"
	server=tcp://$first expect 0 ping --count 3
	server=rdma://$second && ! ctl ping --count 1 -t 5s || fail "the device that was taken away answers"
	try_client "$first"
	server=''
	stop_daemon
	clients=()
}

case ${1-} in
'')
	try_orders
	try_both
	try_peers
	try_channels
	try_fork
	try_removal
	;;
*) "try_$1" ;;
esac
conclude
