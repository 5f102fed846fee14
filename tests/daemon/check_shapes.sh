#!/bin/bash
# Devices unlike the one at hand, which a shared object between rdma-core and the programs imitates: rdmad and rdmactl work
# over each of them, and say what it cannot carry. Skipped where there is no RDMA device (RDMAD_GUEST_ADDR).
# SHAPES: those to try, separated by blanks, without check_fabric.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq cmp setpriv
[[ ${RDMAD_GUEST_ADDR-} ]] || { echo "$test_name: no RDMA device"; exit 77; }
shim=${VERBS_SHIM_SO:-$builddir/tests/fake/.libs/verbs_shim.so}
[[ -e $shim ]] || { echo "$test_name: $shim is missing"; exit 77; }

# as SHAPE COMMAND...: with such a device.
as() {
	local -x VERBS_SHIM=$1 LD_PRELOAD=$shim
	shift
	"$@"
}

# The server by this transport.
by() { for server in "${servers[@]}"; do [[ $server == "$1":* ]] && return; done; server=''; fail "nothing listens by $1"; }

# Values of each kind, and jobs in both modes, by RDMA. LARGE: are values of 4 KiB and more taken?
try_services() {
	local large=$1 mode
	expect 0 ping -c 20 -s 1000 && says 'rdma'
	expect 0 kv set small "of few bytes"
	expect 0 kv get small && says '^of few bytes$'
	if [[ $large == yes ]]; then
		expect 0 kv set --file "$dir/value" large
		expect 0 kv get large && same "$dir/value" "a large value"
	else
		expect 1 kv set --file "$dir/value" large
		complains 'at most 4095' "a large value is refused by name"
		by tcp
		expect 0 kv set --file "$dir/value" large
		expect 0 kv get large && same "$dir/value" "a large value by TCP"
		by rdma
		expect 1 kv get large
		expect 0 kv get small && says '^of few bytes$'
	fi
	for mode in rpc queue; do
		rm -f "$dir/got.pgm"
		expect 0 gpu quantize "$dir/image.pgm" "$dir/got.pgm" -m $mode -q
		cmp -s "$dir/want.pgm" "$dir/got.pgm" || fail "gpu, $mode: another image than by TCP"
	done
	[[ $(control status | jq .counters.violations) == 0 ]] || fail "violations"
}

try_shape() {
	local shape=$1 large=yes
	[[ $shape != *iwarp* ]] || large=no
	echo "shape $shape"
	as "$shape" start_daemon
	by rdma && as "$shape" try_services $large
	server=''
	stop_daemon
}

# A client that comes too late is told of the peer, and not of an argument.
try_given_up() {
	start_daemon
	by rdma && as fail_init_qp_attr=2 expect 3 ping -c 1 && complains 'Connection reset by peer'
	expect 0 ping -c 1
	as fail_init_qp_attr=2 expect 3 kv get small && complains 'Connection reset by peer'
	server=''
	stop_daemon
}

# The fabric's promises that the shape may break. check_fabric_verbs.sh has all of them on iWARP.
try_promises() {
	local shape=$1 suite
	shift
	for suite; do
		echo "shape $shape, promises: $suite"
		as "$shape" timeout 600 "$builddir/tests/fabric/check_fabric" verbs "$RDMAD_GUEST_ADDR" "$suite" >"$dir/out" 2>"$dir/err" ||
			fail "$shape: check_fabric $suite: $(grep ':[FE]:' "$dir/out")"
	done
}

# The client's network has longer packets than the server's: HOST goes by TCP, and rdma:// is told both numbers.
try_packets() {
	as path_mtu=4096 start_daemon
	by rdma && expect 3 ping -c 1 && complains 'packets of 1024 bytes at most, and this machine.s sends 4096'
	server=${server#rdma://}
	expect 0 kv set --file "$dir/value" large && expect 0 kv get large && same "$dir/value" "a large value by TCP"
	expect 0 ping -c 1 && says 'transport (tcp|shm)'
	server=''
	stop_daemon
	as path_mtu=1024 start_daemon
	by rdma && expect 0 ping -c 1
	server=''
	stop_daemon
}

# A device that is of no use leaves the others to serve; where it is required, nothing starts.
try_useless() {
	local shape=$1 text=$2
	echo "useless: $shape"
	as "$shape" start_daemon
	[[ ${servers[*]} != *rdma:* ]] || fail "$shape: RDMA is served"
	control status | jq -e '.missing[] | select(.transport == "rdma") | .reason' | grep -qF -- "$text" ||
		fail "$shape: no \"$text\" among what is missing"
	by tcp && expect 0 ping -c 3
	server=''
	stop_daemon
	as "$shape" ends 69 "$text" "$rdmad" -c "$dir/rdmad-required.conf"
}

# An ordinary user's 8 MiB of locked memory, completion queues counted as mlx5 pins them, are enough for a client.
try_small_lock() {
	local shape=cq_round,memlock=8388608
	echo "a client with 8 MiB of locked memory"
	start_daemon
	by rdma
	chmod 755 "$dir"
	as $shape ctl_as_user kv set small "of few bytes" || fail "set: $(cat "$dir/err")"
	as $shape ctl_as_user kv set --file "$dir/value" large || fail "large set: $(cat "$dir/err")"
	as $shape ctl_as_user kv get large || fail "large get: $(cat "$dir/err")"
	same "$dir/value" "a large value"
	server=''
	stop_daemon
}

# A daemon that may lock 8 MiB, less than its store has: HOST goes by TCP for values, and by RDMA for the rest. The log says
# how much would do.
try_small_lock_of_daemon() {
	echo "a daemon with 8 MiB of locked memory"
	chown 65534:65534 "$dir"
	printf '#!/bin/bash\nulimit -l 8192\nexec setpriv --reuid=65534 --regid=65534 --clear-groups %q "$@"\n' "$rdmad" >"$dir/rdmad-of-user"
	chmod 755 "$dir/rdmad-of-user"
	echo "resp = { rdma = [\"$RDMAD_GUEST_ADDR:0\"]; rdma_memory = \"4G\"; };" >>"$dir/rdmad.conf"
	rdmad=$dir/rdmad-of-user start_daemon
	grep -qE "RLIMIT_MEMLOCK is 8.00 MiB, and RDMA may take [4-9]\.[0-9]* GiB" "$dir/log" || fail "the log: $(grep MEMLOCK "$dir/log")"
	by rdma
	expect 0 kv set small "of few bytes"
	expect 1 kv set --file "$dir/value" large && complains 'tcp:// takes longer ones'
	server=${server#rdma://}
	expect 0 kv set --file "$dir/value" large && expect 0 kv get large && same "$dir/value" "a large value by TCP"
	expect 0 ping -c 1 && says 'transport rdma'
	server=rdma://$server
	expect 1 kv get large && complains 'tcp:// brings it'
	server=''
	stop_daemon
}

# rdmactl without the rights of root, which no limit of locked memory binds.
ctl_as_user() {
	(
		ulimit -l 8192
		exec setpriv --reuid=65534 --regid=65534 --clear-groups timeout 240 "$rdmactl" -H "$server" "$@"
	) >"$dir/out" 2>"$dir/err"
}

listen=(tcp://127.0.0.1:0 "$RDMAD_GUEST_ADDR:0")
head -c 300000 /dev/urandom >"$dir/value"
{
	printf 'P5 64 64 255\n'
	head -c 4096 /dev/urandom
} >"$dir/image.pgm"
configure 'workers = 2;' 'kv = { memory = "16M"; };' "gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; };"
cp "$dir/rdmad.conf" "$dir/rdmad-required.conf"
echo 'require_rdma = true;' >>"$dir/rdmad-required.conf"
start_daemon
by tcp && expect 0 gpu quantize "$dir/image.pgm" "$dir/want.pgm" -m rpc -q
server=''
stop_daemon

for shape in ${SHAPES-iwarp no_windows no_srq,max_wr=512,inline_size=0 iwarp,no_srq,no_windows}; do
	try_shape "$shape"
done
if [[ ! ${SHAPES+set} ]]; then
	try_promises no_srq message
	try_promises no_windows window
	try_promises max_wr=512,inline_size=0 message
fi
try_given_up
try_packets
try_useless no_rc "makes no reliable connections"
try_useless fail_create_cq=4 "completion queue of"
try_small_lock
try_small_lock_of_daemon
conclude
