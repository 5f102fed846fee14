#!/bin/bash
# A daemon under thousands of clients that die at any point of their life ends with the resources that it began with.
# CYCLES: how many on each address (default 5000, in the guest 200). RDMA too where RDMAD_GUEST_ADDR says an address.
set -u
builddir=${top_builddir:-.}
cycles=${CYCLES:-${RDMAD_GUEST:+200}}
cycles=${cycles:-5000}
dir=$(mktemp -d "${TMPDIR:-/tmp}/connect-kill.XXXXXX")
address=${RDMAD_GUEST_ADDR:-127.0.0.1}
port=$((20000 + RANDOM % 30000)) # two runs at once do not meet
daemon=
cleanup() {
	[[ -z $daemon ]] || kill -KILL "$daemon" 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
fail() {
	echo "FAIL: $*"
	tail -n 20 "$dir/log"
	exit 1
}

cat >"$dir/rdmad.conf" <<END
listen = ["$address"];
port = $port;
unix_socket = "$dir/rdmad.sock";
pid_file = "$dir/pid";
control = { socket = "$dir/control.sock"; };
log = { level = "error"; };
END
"$builddir/rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
daemon=$!
control() { "$builddir/rdmactl" "$@" --control "$dir/control.sock" --json; }
for _ in $(seq 100); do
	control status >/dev/null 2>&1 && break
	sleep 0.1
done

# What must come back. Heap and store are what the requests left, so they are not compared.
resources() {
	control resources | jq -c '{descriptors, connections, store_pins, buffers_in_use}'
}
# A connection that ended may take some seconds to be buried: wait until nothing changes any more.
settled() {
	local last= now=
	for _ in $(seq 60); do
		now=$(resources)
		[[ $(jq .connections <<<"$now") == 0 && $now == "$last" ]] && break
		last=$now
		sleep 0.5
	done
	echo "$now"
}

for server in tcp://$address:$port unix://$dir/rdmad.sock ${RDMAD_GUEST_ADDR:+rdma://$address:$port}; do
	"$builddir/tests/connect_kill" "$server" 20 >/dev/null # what is made once and kept
	before=$(settled)
	"$builddir/tests/connect_kill" "$server" "$cycles" || fail "$server: clients could not connect"
	kill -0 $daemon 2>/dev/null || fail "$server: the daemon died"
	after=$(settled)
	[[ $before == "$after" ]] || fail "$server: resources were $before, are $after"
	echo "$server: $cycles clients, before $before, after $after"
done
kill -TERM $daemon
wait $daemon || fail "the daemon ended with status $?"
daemon=
