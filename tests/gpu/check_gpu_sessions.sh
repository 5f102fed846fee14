#!/bin/bash
# As many gpu sessions as the configuration allows, and one more: tests/gpu/gpu_sessions asks through the library, by host name
# alone as a program does, and by the UNIX socket. By RDMA, too, where RDMAD_GUEST_ADDR says the address of a device.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq
host=${RDMAD_GUEST_ADDR:-127.0.0.1}
# Both transports at the same port where there are two: of a machine that has nothing else to do.
listen=("$host:$((${RDMAD_GUEST_ADDR:+20000 + RANDOM % 30000} + 0))")

# The daemon counts a session until its process is gone.
no_session_is_left() { control status | jq -e '.gpu.sessions == 0' >/dev/null; }

printf '%s gpu\n' '@*' '*' >"$dir/clients"
configure 'services = ["gpu"];' 'insecure = true;' "auth.clients = \"$dir/clients\";" \
	"gpu = { backend = \"cpu\"; threads = 1; program = \"$builddir/rdmad-gpu\"; memory = \"1M\"; sessions = 2; sessions_per_source = 2; };"
start_daemon
for address in "${servers[@]}"; do
	case $address in
	tcp:*) server=${address#tcp://} ;;
	unix:*) server=$address ;;
	*) continue ;;
	esac
	"$builddir/tests/gpu/gpu_sessions" "$server" 2 || fail "not as many sessions as are allowed"
	wait_for "the end of all sessions" no_session_is_left
done
# A client's own limit.
printf '%s gpu gpu=1 gpu_memory=64K\n' '@*' '*' >"$dir/clients"
control reload >/dev/null || fail "reload"
"$builddir/tests/gpu/gpu_sessions" "$server" 1 || fail "not as many sessions as this client may have"
wait_for "the end of all sessions" no_session_is_left
grep -q "that it may have, 1; see gpu= in" "$dir/log" || fail "the refusal does not name the limit"
server=''
# Each refusal was one request, and is told of once in the log: the library did not ask again by another transport.
refusals=$(grep -c "has all the gpu sessions" "$dir/log")
[[ $refusals == 3 ]] || fail "$refusals refusals rather than 3"
stop_daemon
conclude
