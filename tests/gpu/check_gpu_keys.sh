#!/bin/bash
# No client of the gpu service reaches another's ring, whatever key it names: tests/gpu/gpu_keys tries those of the other, those
# near them, and the keys from 0 to KEYS - 1 (default 256; 65536 takes a while). By TCP and UNIX sockets, or by RDMA where
# there is a device whose address RDMAD_GUEST_ADDR says.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq pgrep

configure 'services = ["gpu"];' 'log = { level = "warn"; };' 'handshake_timeout = "60s";' \
	"gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; memory = \"1M\"; sessions = 100; };"
start_daemon
keep_special
for server in "${servers[@]}"; do
	echo "$server:"
	"$builddir/tests/gpu/gpu_keys" "$server" "${KEYS:-256}" || fail "gpu_keys: exit status $?"
	wait_for "the end of all connections" nobody_is_connected
	wait_for "the end of worker processes" has_no_processes || pgrep -aP "$daemon"
done
server=''
stop_daemon
conclude
