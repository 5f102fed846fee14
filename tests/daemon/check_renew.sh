#!/bin/bash
# The RDMA device of a daemon: its link goes down, and in the midst of requests its address goes or it is taken away; all that comes
# back. The daemon goes on, by TCP meanwhile, gives back all of the device, and listens on it again. A device, a link or an address
# that is not there at the start is taken when it comes. In the guest. The name of a case after the command: only that one. `cut` is by
# hand alone: behind it Soft-RoCE makes no connection to an address that comes back, until the guest is started anew.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq
[[ ${RDMAD_GUEST_ADDR-} ]] || { echo "$test_name: no RDMA device"; exit 77; }
interface=$(rdma link show rxe0/1 | sed -n 's/.* netdev \([^ ]*\).*/\1/p')
[[ $interface ]] || give_up "the device has no interface"
head -c 300000 /dev/urandom >"$dir/value"

begin() {
	configure 'workers = 2;' "$@"
	start_daemon
	for server in "${servers[@]}"; do
		case $server in tcp:*) tcp=$server ;; rdma:*) rdma=$server ;; esac
	done
	server=''
}

# Small and large values, by one transport.
serves() {
	server=$1
	expect 0 ping --count 5
	expect 0 kv set --file "$dir/value" large && expect 0 kv get large && same "$dir/value"
	server=''
}

answers() { timeout 60 "$rdmactl" -H "$1" ping --count 1 >"$dir/out" 2>"$dir/err"; }
available() { [[ $("$rdmactl" --control "$dir/control.sock" metrics | sed -n 's/^rdmad_transport_available{transport="rdma"} //p') == "$1" ]]; }
listens() { control status | jq -e '.listen[] | select(.transport == "rdma")' >/dev/null; }
misses() { ! listens && control status | jq -e '.missing[] | select(.transport == "rdma" and .address != "")' >/dev/null; }

# join NAME ARGUMENTS: a client that stays, and has been served.
join() {
	local before
	before=$(work_done)
	"$rdmactl" -t 60s "${@:2}" >"$dir/out-$1" 2>&1 </dev/null &
	clients+=($!)
	wait_for "a client: $1" has_done "$((before + 20))"
}

# Clients in the midst of what they ask for: one by TCP, and by RDMA small requests, large transfers, messages.
come() {
	clients=()
	join tcp -H "$tcp" ping --count 1000000 --interval 50ms
	beside=${clients[0]} clients=()
	join ping -H "$rdma" ping --count 1000000 --interval 5ms
	join eager -H "$rdma" bench kv -c 1 -d 2 -n 100000000 -w 0 -k 20 -s 64
	join large -H "$rdma" bench kv -c 1 -d 2 -n 100000000 -w 0 -k 20 -s 300K
}

ended_all() {
	local pid
	for pid in "${clients[@]}"; do ended "$pid" || return; done
}

# Those by RDMA ended with an error; the one by TCP saw nothing.
went() {
	local pid
	wait_for "the end of the clients by RDMA" ended_all
	for pid in "${clients[@]}"; do
		wait "$pid" && fail "a client whose device went ended well"
	done
	ended "$beside" && fail "the client by TCP ended: $(tail -n 3 "$dir/out-tcp")"
	kill "$beside" && wait "$beside" 2>/dev/null
	clients=()
}

descriptors() { find "/proc/$daemon/fd" -mindepth 1 | wc -l; }
# What the kernel has of the daemon, but for the registrations, which grow with the connections.
objects() { rdma resource show | sed 's/^[0-9]*: //; s/ mr [0-9]*//'; }

put_back() {
	wait_for "the device" rdma link add rxe0 type rxe netdev "$interface" 2>/dev/null
	chmod 666 /dev/infiniband/uverbs*
}

# The command that takes it away waits until all users have given it back. Twice: what is made anew is given back, too.
try_removal() {
	local before fds round
	begin
	serves "$rdma"
	wait_for "no connection" nobody_is_connected
	before=$(objects) fds=$(descriptors)
	for round in 1 2; do
		come
		rdma link delete rxe0 >/dev/null 2>&1 &
		remover=$!
		went
		wait_for "the end of the removal" ended "$remover"
		wait_for "the loss in status" misses
		available 0 || fail "metrics say that there is RDMA"
		answers "$rdma" && fail "the device that was taken away answers"
		serves "$tcp"
		put_back
		wait_for "RDMA in status" listens
		available 1 || fail "metrics say that there is no RDMA"
		serves "$rdma"
		wait_for "no connection" nobody_is_connected
		[[ $(objects) == "$before" ]] || fail "round $round: the kernel has $(objects) of all, not $before"
		[[ $(descriptors) == "$fds" ]] || fail "round $round: $(descriptors) descriptors, not $fds"
	done
	grep -q RD-5008 "$dir/log" || fail "the log names no RD-5008"
	logged "listening on rdma ${rdma#rdma://} again"
	stop_daemon
}

# While nobody is connected, and by all addresses: no connection tells of the device.
try_quiet() {
	local listen=(0.0.0.0:7471)
	begin
	rdma=rdma://$RDMAD_GUEST_ADDR tcp=tcp://$RDMAD_GUEST_ADDR
	rdma link delete rxe0 >/dev/null 2>&1 &
	remover=$!
	wait_for "the end of the removal" ended "$remover"
	wait_for "the loss in status" misses
	put_back
	wait_for "RDMA in status" listens
	serves "$rdma"
	stop_daemon
}

# Nobody is connected by RDMA: where Soft-RoCE had to send a message of rdma_cm while its link was down, it makes no connection
# any more, of any program.
try_link() {
	begin
	ip link set "$interface" down
	serves "$tcp"
	ip link set "$interface" up
	wait_for "RDMA" answers "$rdma"
	serves "$rdma"
	logged "device rxe0 port 1"
	stop_daemon
}

# Under traffic each connection ends by itself, while that by TCP goes on. Soft-RoCE then makes no connection any more, of any program,
# until the device is made anew, which the daemon takes.
try_cut() {
	begin
	come
	ip link set "$interface" down
	went
	grep -qsF "the link of this side's RDMA device is down" "$dir"/out-* || fail "no client names the link: $(tail -qn 2 "$dir"/out-*)"
	serves "$tcp"
	ip link set "$interface" up
	take_away
	wait_for "the loss in status" misses
	put_back
	wait_for "RDMA in status" listens
	serves "$rdma"
	stop_daemon
}

# Whether rping connects to itself.
any_connects() {
	local status
	rping -s -a "$RDMAD_GUEST_ADDR" -p 7900 -C 1 >/dev/null 2>&1 &
	sleep 1
	timeout 10 rping -c -a "$RDMAD_GUEST_ADDR" -p 7900 -C 1 >/dev/null 2>&1
	status=$?
	kill $! 2>/dev/null
	wait $! 2>/dev/null
	return $status
}

# Soft-RoCE may have had to send a message of rdma_cm meanwhile, see try_link(): then the device is made anew.
try_address() {
	begin
	come
	ip addr del "$RDMAD_GUEST_ADDR/24" dev "$interface"
	went
	serves "$tcp"
	ip addr add "$RDMAD_GUEST_ADDR/24" dev "$interface"
	if ! answers "$rdma" && ! any_connects; then
		echo "address: Soft-RoCE connects no program any more"
		take_away
		put_back
	fi
	wait_for "RDMA" answers "$rdma"
	serves "$rdma"
	stop_daemon
}

take_away() {
	rdma link delete rxe0 >/dev/null 2>&1 &
	wait_for "the end of the removal" ended $!
}

begin_late() {
	local listen=("rdma://$RDMAD_GUEST_ADDR:7471" tcp://127.0.0.1:0)
	begin "$@"
	rdma=rdma://$RDMAD_GUEST_ADDR:7471
	misses_all || fail "status does not say what is missing"
	available 0 || fail "metrics say that there is RDMA"
}
misses_all() { ! listens && control status | jq -e '.missing[] | select(.transport == "rdma")' >/dev/null; }

comes() {
	wait_for "RDMA in status" listens
	available 1 || fail "metrics say that there is no RDMA"
	control status | jq -e '.missing == []' >/dev/null || fail "something is missing still: $(control status | jq -c .missing)"
	serves "$rdma"
}

# What was stored before is there by RDMA, too; then the device goes and comes as one that was there at the start.
try_late() {
	take_away
	begin_late
	logged RD-5010
	server=$tcp
	expect 0 kv set --file "$dir/value" before
	put_back
	comes
	logged "it came after the start"
	server=$rdma
	expect 0 kv get before && same "$dir/value"
	server=''
	come
	rdma link delete rxe0 >/dev/null 2>&1 &
	remover=$!
	went
	wait_for "the end of the removal" ended "$remover"
	wait_for "the loss in status" misses
	serves "$tcp"
	put_back
	comes
	logged "listening on rdma ${rdma#rdma://} again"
	stop_daemon
}

# The device is there, and has no link, or the address is on another machine's interface still.
try_late_link() {
	ip link set "$interface" down
	begin_late
	ip link set "$interface" up
	comes
	stop_daemon
	ip addr del "$RDMAD_GUEST_ADDR/24" dev "$interface"
	begin_late
	ip addr add "$RDMAD_GUEST_ADDR/24" dev "$interface"
	comes
	stop_daemon
}

# Beside one that serves meanwhile.
try_late_second() {
	local listen=(0.0.0.0:7471) round
	begin
	rdma=rdma://$RDMAD_GUEST_ADDR tcp=tcp://$RDMAD_GUEST_ADDR
	come
	clients+=("$beside")
	ip link add late type dummy && ip addr add 10.99.7.1/24 dev late && ip link set late up
	rdma link add rxe7 type rxe netdev late
	chmod 666 /dev/infiniband/uverbs*
	logged "device rxe7 is there"
	wait_for "RDMA by the second device" answers rdma://10.99.7.1
	serves rdma://10.99.7.1
	for round in "${clients[@]}"; do
		ended "$round" && fail "a client of the first device ended: $(tail -n 3 "$dir"/out-*)"
		kill "$round" && wait "$round" 2>/dev/null
	done
	serves "$rdma"
	stop_daemon
	rdma link delete rxe7 && ip link delete late
}

# Programs of librdmad that live on: a client that keeps its handle, and one that listens. Neither holds the device, and both
# have it again.
try_library() {
	local port=7600 pid
	begin
	"$builddir/tests/daemon/devices" keep "$rdma" >"$dir/kept" 2>"$dir/kept-err" &
	clients=($!)
	"$rdmactl" channel listen -q -c 2 "rdma://0.0.0.0:$port/test" >"$dir/listened" 2>"$dir/listen-err" &
	clients+=($!)
	wait_for "a client by RDMA" grep -qx rdma "$dir/kept"
	wait_for "a listener of channels" "$rdmactl" channel push -q -f "$dir/value" "rdma://$RDMAD_GUEST_ADDR:$port/test" 2>/dev/null
	take_away
	wait_for "the client's loss" grep -qx "not served" "$dir/kept"
	for pid in "${clients[@]}"; do
		ended "$pid" && fail "a program ended with the device: $(tail -n 3 "$dir"/*-err)"
	done
	put_back
	wait_for "RDMA in status" listens
	wait_for "the client by RDMA again" eval '[[ $(grep -cx rdma "$dir/kept") == 2 ]]'
	wait_for "the listener of channels again" "$rdmactl" channel push -q -f "$dir/value" "rdma://$RDMAD_GUEST_ADDR:$port/test" 2>/dev/null
	kill "${clients[0]}" && wait "${clients[0]}" 2>/dev/null
	wait "${clients[1]}" || fail "the listener of channels: $(cat "$dir/listen-err")"
	cat "$dir"/value{,} | cmp -s - "$dir/listened" || fail "channels: other bytes came"
	clients=()
	stop_daemon
}

# Programs of rdma_lib that were peers and are idle: no connection tells them of the device, and yet they give it back. Then peers in
# the midst of messages are told, and have each other by the device again.
try_peers() {
	local port=7610 pid round
	"$builddir/tests/daemon/devices" serve $port 1000 >"$dir/accepted" 2>"$dir/accepted-err" &
	clients=($!)
	wait_for "one that listens" "$builddir/tests/daemon/devices" ask "rdma://$RDMAD_GUEST_ADDR" $port 2>/dev/null
	"$builddir/tests/daemon/devices" left "rdma://$RDMAD_GUEST_ADDR" $port >"$dir/left" 2>"$dir/left-err" &
	clients+=($!)
	wait_for "the end of a peer" grep -qx left "$dir/left"
	take_away
	put_back
	"$builddir/tests/daemon/devices" talk "rdma://$RDMAD_GUEST_ADDR" $port >"$dir/talked" 2>"$dir/talked-err" &
	clients+=($!)
	for round in 1 2 3; do
		wait_for "peers by RDMA, round $round" eval "[[ \$(grep -cx served '$dir/talked') == $round ]]"
		take_away
		for pid in "${clients[@]}"; do
			ended "$pid" && fail "a program ended with the device: $(tail -n 3 "$dir"/*-err)"
		done
		wait_for "the peer that connects to be told" eval "[[ \$(grep -c 'device was removed' '$dir/talked') -ge $round ]]"
		# By the device, or first by the other peer's end; two had left before.
		wait_for "the peer that listens to be told" eval "[[ \$(wc -l <'$dir/accepted') -ge $((round + 2)) ]]"
		put_back
	done
	wait_for "peers by RDMA again" eval "[[ \$(grep -cx served '$dir/talked') == 4 ]]"
	kill "${clients[@]}" && wait "${clients[@]}" 2>/dev/null
	clients=()
}

# Where it is required nothing starts without.
try_required() {
	local listen=("rdma://$RDMAD_GUEST_ADDR:7471")
	take_away
	configure 'require_rdma = true;'
	timeout 60 "$rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1
	[[ $? == 69 ]] || fail "without the device that is required, the exit status is not 69"
	grep -q RD-5003 "$dir/log" || fail "no RD-5003: $(cat "$dir/log")"
	put_back
	begin 'require_rdma = true;'
	serves "$rdma"
	stop_daemon
}

case ${1-} in
'') cases=(link late_link late_second late required address quiet library peers removal) ;;
*) cases=("$@") ;;
esac
for case in "${cases[@]}"; do
	"try_$case"
	echo "$case: served on"
done
conclude
