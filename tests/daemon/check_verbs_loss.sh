#!/bin/bash
# The daemon on devices that are not like Soft-RoCE, and on one that fails: under tests/fake/verbs_shim, in the guest.
# What RDMA loses ends RDMA connections alone, is logged once, and leaves no thread that spins.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq
[[ ${RDMAD_GUEST_ADDR-} ]] || { echo "$test_name: no RDMA device"; exit 77; }
shim=$builddir/tests/fake/.libs/verbs_shim.so
[[ -e $shim ]] || { echo "$test_name: $shim was not built"; exit 77; }
real=$rdmad rdmad=$dir/rdmad-shaped

# start_shaped SHAPE,...: the daemon alone is; its clients see the device as it is.
start_shaped() {
	printf '#!/bin/bash\nLD_PRELOAD=%q VERBS_SHIM=%q exec %q "$@"\n' "$shim" "$1" "$real" >"$rdmad"
	chmod +x "$rdmad"
	shape=$1
	start_daemon
	tcp='' rdma=''
	for server in "${servers[@]}"; do
		case $server in tcp:*) tcp=$server ;; rdma:*) rdma=$server ;; esac
	done
	server=''
	[[ $tcp && $rdma ]] || give_up "under $shape: no listener for RDMA or TCP: ${servers[*]}"
}

serves() { server=$1 expect 0 ping --count 50; }
refuses() { ! timeout 60 "$rdmactl" -H "$1" ping --count 1 >"$dir/out" 2>"$dir/err"; }
answers() { ! refuses "$1"; }

# times TEXT MOST: in the log, and not more often.
times() {
	local n
	n=$(grep -cF -- "$1" "$dir/log")
	((n >= 1 && n <= $2)) || fail "under $shape: \"$1\" is $n times in the log, not 1 to $2"
}

# Of one processor, in seconds of its time: a thread that spins takes three.
idles() {
	local before after
	sleep 1
	before=$(ticks "$daemon")
	sleep 3
	after=$(ticks "$daemon")
	((after - before < 2 * $(getconf CLK_TCK))) || fail "under $shape: $((after - before)) ticks of a processor in 3 s"
}

# A client that stays, until its connection ends.
stay() {
	"$rdmactl" -H "$1" ping --count 1000000 --interval 50ms >"$dir/stays" 2>&1 </dev/null &
	clients=($!)
	wait_for "a connection" has_done "$(($(work_done) + 3))"
}
stayed() { ended "${clients[0]}"; }

# Clients that die at any moment, more messages than there are receives: none is ever lost.
for shape in drop_on_destroy drop_on_destroy,last_wqe; do
	configure 'log = { level = "error"; };' 'workers = 1;' 'shared_receives = 16;'
	start_shaped "$shape"
	"$builddir/tests/daemon/connect_kill" "$rdma" "${CYCLES:-$(part 200)}" || fail "clients could not connect"
	wait_for "the end of all connections" nobody_is_connected
	serves "$rdma"
	serves "$tcp"
	stop_daemon
	echo "$shape: served on"
done

# A queue fails: its connections end, and the next client is served by a new one.
for command in cq_err srq_err poll_error arm_error; do
	configure 'workers = 1;'
	start_shaped "file=$dir/commands"
	serves "$rdma"
	stay "$rdma"
	echo "$command" >"$dir/command" && mv "$dir/command" "$dir/commands"
	wait_for "the end of the connection under $command" stayed
	wait_for "a new queue after $command" answers "$rdma"
	serves "$rdma"
	serves "$tcp"
	idles
	shape=$command times "its connections end" 2 # the listener may lose one, too
	stop_daemon
	echo "$command: served on"
done

# The device is taken away: TCP goes on, and RDMA when it is there again. Under "gone" it never is.
for command in gone fatal; do
	configure 'workers = 2;'
	start_shaped "file=$dir/commands"
	serves "$rdma"
	stay "$rdma"
	echo "$command" >"$dir/command" && mv "$dir/command" "$dir/commands"
	wait_for "the end of the connection under $command" stayed
	logged ", and nothing listens there until it is back"
	serves "$tcp"
	if [[ $command == gone ]]; then
		refuses "$rdma" || fail "after $command: the device still answers"
		logged "is there and not taken again yet"
	else
		wait_for "the device" answers "$rdma"
		serves "$rdma"
	fi
	idles
	shape=$command times "is lost" 1
	shape=$command times ", and nothing listens there until it is back" 1
	stop_daemon
	echo "$command: served on"
done

# No queue can be made any more: each client is told, the log once.
configure 'workers = 1;'
start_shaped "file=$dir/commands,fail_create_cq=${QUEUES:-4}"
echo cq_err >"$dir/command" && mv "$dir/command" "$dir/commands"
logged "is lost"
for _ in 1 2 3; do
	refuses "$rdma" || fail "a queue that cannot be made serves"
	complains "resources"
done
serves "$tcp"
times "cannot be made anew" 1
stop_daemon
echo "no queue: refused"
conclude
