#!/bin/bash
# A daemon under thousands of clients that die at any point of their life ends with the resources that it began with.
# CYCLES: how many on each address (default 5000, in the guest 400, and of that as RDMAD_TEST_PART says). RDMA too where
# RDMAD_GUEST_ADDR says an address.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cycles=5000
[[ ! ${RDMAD_GUEST-} ]] || cycles=400
cycles=${CYCLES:-$(part $cycles)} || exit
need jq

configure 'log = { level = "error"; };'
start_daemon

# What must come back. Heap and store are what the requests left, so they are not compared.
resources() {
	control resources | jq -c '{descriptors, connections, store_pins, buffers_in_use}'
}

# nobody_is_there [RESOURCES]: and what there is now is that, or the same twice.
now=''
nobody_is_there() {
	local last=$now
	now=$(resources)
	[[ $(jq .connections <<<"$now") == 0 && ${1-$last} == "$now" ]]
}

for server in "${servers[@]}"; do
	"$builddir/tests/daemon/connect_kill" "$server" 20 >/dev/null # what is made once and kept
	wait_for "the end of all connections" nobody_is_there
	before=$now
	"$builddir/tests/daemon/connect_kill" "$server" "$cycles" || fail "clients could not connect"
	kill -0 "$daemon" 2>/dev/null || give_up "the daemon died"
	wait_for "what clients had that died: there was $before" nobody_is_there "$before" || fail "there is $now"
	echo "$server: $cycles clients, before $before, after $now"
done
server=''
stop_daemon
conclude
