#!/bin/bash
# No client of the gpu service reaches another's ring, whatever key it names: tests/gpu_keys tries those of the other, those
# near them, and the keys from 0 to KEYS - 1 (default 256; 65536 takes a while). By TCP and UNIX sockets, or by RDMA where
# there is a device whose address RDMAD_GUEST_ADDR says.
set -u
builddir=${builddir:-$PWD}
dir=$(mktemp -d "${TMPDIR:-/tmp}/rdmad-keys.XXXXXX")
daemon=''

finish() {
	[[ $daemon ]] && kill -KILL "$daemon" 2>/dev/null
	wait
	rm -rf "$dir"
}
trap finish EXIT

command -v jq >/dev/null || { echo "check_gpu_keys: jq is missing"; exit 77; }

fail() {
	tail -n 20 "$dir/log" >&2
	echo "FAILED: $*" >&2
	exit 1
}

ctl() { timeout 60 "$builddir/rdmactl" --control "$dir/control.sock" "$@"; }

start_daemon() {
	local rdma=${RDMAD_GUEST_ADDR:+", \"rdma://$RDMAD_GUEST_ADDR:"} port
	for _ in {1..5}; do
		port=$((20000 + RANDOM % 30000))
		cat >"$dir/rdmad.conf" <<-CONF
			listen = ["tcp://127.0.0.1:$port"${rdma:+"$rdma$port\""}];
			unix_socket = "$dir/rdmad.sock";
			pid_file = "$dir/rdmad.pid";
			services = ["gpu"];
			gpu = { backend = "cpu"; program = "$builddir/rdmad-gpu"; memory = "1M"; sessions = 100; };
			control = { socket = "$dir/control.sock"; };
			log = { level = "warn"; };
		CONF
		"$builddir/rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
		daemon=$!
		servers=("tcp://127.0.0.1:$port" "unix://$dir/rdmad.sock")
		[[ ! $rdma ]] || servers=("rdma://$RDMAD_GUEST_ADDR:$port")
		for _ in {1..200}; do
			ctl status >/dev/null 2>&1 && return
			kill -0 $daemon 2>/dev/null || break
			sleep 0.1
		done
		wait $daemon
	done
	fail "rdmad does not start"
}

# Connections and worker processes are gone soon after who had them.
nothing_left() {
	for _ in {1..100}; do
		[[ $(ctl resources --json | jq .connections) == 0 && -z $(pgrep -P "$daemon") ]] && return
		sleep 0.1
	done
	fail "$server: left are connections or $(pgrep -aP "$daemon")"
}

start_daemon
for server in "${servers[@]}"; do
	echo "$server:"
	"$builddir/tests/gpu_keys" "$server" "${KEYS:-256}" || fail "$server"
	nothing_left
done
kill -TERM "$daemon"
wait "$daemon" || fail "rdmad, SIGTERM: exit status $?"
daemon=''
