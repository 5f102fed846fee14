#!/bin/bash
# As many gpu sessions as the configuration allows, and one more: tests/gpu_sessions asks through the library, by host name
# alone as a program does, and by the UNIX socket. By RDMA, too, where RDMAD_GUEST_ADDR says the address of a device.
set -u
builddir=${builddir:-$PWD}
dir=$(mktemp -d "${TMPDIR:-/tmp}/rdmad-sessions.XXXXXX")
host=${RDMAD_GUEST_ADDR:-127.0.0.1}
daemon=''

finish() {
	[[ $daemon ]] && kill -KILL "$daemon" 2>/dev/null
	wait
	rm -rf "$dir"
}
trap finish EXIT

fail() {
	tail -n 20 "$dir/log" >&2
	echo "FAILED: $*" >&2
	exit 1
}

start_daemon() {
	for _ in {1..5}; do
		port=$((20000 + RANDOM % 30000))
		cat >"$dir/rdmad.conf" <<-CONF
			listen = ["$host:$port"];
			unix_socket = "$dir/rdmad.sock";
			services = ["gpu"];
			gpu = { backend = "cpu"; threads = 1; program = "$builddir/rdmad-gpu"; memory = "1M"; sessions = 2; };
			control = { socket = "$dir/control.sock"; };
		CONF
		"$builddir/rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
		daemon=$!
		for _ in {1..200}; do
			timeout 60 "$builddir/rdmactl" --control "$dir/control.sock" status >/dev/null 2>&1 && return
			kill -0 $daemon 2>/dev/null || break
			sleep 0.1
		done
		wait $daemon
	done
	fail "rdmad does not start"
}

# The daemon counts a session until its process is gone.
nothing_left() {
	for _ in {1..200}; do
		timeout 60 "$builddir/rdmactl" --control "$dir/control.sock" status --json | grep -Eq '"sessions": ?0\b' && return
		sleep 0.1
	done
	fail "$server: sessions are left"
}

start_daemon
for server in "$host:$port" "unix://$dir/rdmad.sock"; do
	"$builddir/tests/gpu_sessions" "$server" 2 || fail "$server"
	nothing_left
done
# Each refusal was one request, and is told of once in the log: the library did not ask again by another transport.
refusals=$(grep -c "refused: too many sessions" "$dir/log")
[[ $refusals == 2 ]] || fail "$refusals refusals rather than 2"
kill -TERM "$daemon"
wait "$daemon" || fail "rdmad, SIGTERM: exit status $?"
daemon=''
