#!/bin/bash
# The power of a machine is cut while its rdmad writes a log: an emulated machine with a disk is killed, whose page cache is lost with
# it. With log.policy "always" all that was answered is found again, with "interval" what there was after one of the sets, which are
# fewer. POWER_CYCLES says how often; otherwise 20 times, or as RDMAD_TEST_PART says.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cycles=${POWER_CYCLES:-$(part 20)} || exit
guest=$srcdir/scripts/guest
need qemu-system-x86_64 busybox mkfs.ext4

# What runs in the machine: in_guest POLICY SYNC_EVERY COUNT. Answers are kept in the directory that the host shares.
cat >"$dir/in_guest" <<END
#!/bin/bash
set -e
modprobe virtio_blk && modprobe ext4
until [[ -b /dev/vda ]]; do sleep 0.1; done
mkdir -p /disk && mount /dev/vda /disk
cat >/run/conf <<CONF
unix_socket = "/run/rdmad.sock"; transports = ["unix"]; services = ["kv"]; kv.memory = "64M"; pid_file = "/run/rdmad.pid";
control = { socket = "/run/control.sock"; };
log = { directory = "/disk/log"; policy = "\$1"; segment = "1M"; sync_every = "\$2"; target = "file:$dir/\$1/log"; };
CONF
$rdmad -c /run/conf &
until [[ -S /run/rdmad.sock ]]; do kill -0 \$!; sleep 0.1; done
$builddir/tests/wal/log_power unix:///run/rdmad.sock $dir/\$1/answered \$3
END
chmod +x "$dir/in_guest"

# boot POLICY SYNC_EVERY [COUNT]
boot() {
	exec "$guest" --timeout 600 --memory 512M --disk "$dir/$1/disk" --share "$dir/$1" --pid-file "$dir/$1/pid" \
		--env LD_LIBRARY_PATH -- "$dir/in_guest" "$@"
}

answered() {
	od -An -tu8 -N8 "$dir/$1/answered" 2>/dev/null | tr -d ' '
}

# cut POLICY SYNC_EVERY: after a thousand sets more were answered.
cut_power() {
	local before shell now
	before=$(answered "$1")
	rm -f "$dir/$1/pid"
	boot "$@" >"$dir/$1/out" 2>&1 &
	shell=$!
	for ((i = 0; i < 3000; i++)); do
		now=$(answered "$1")
		((${now:-0} > ${before:-0} + 1000)) && break
		kill -0 "$shell" 2>/dev/null || break
		sleep 0.1
	done
	((${now:-0} > ${before:-0} + 1000)) || { cat "$dir/$1/out" "$dir/$1/log"; give_up "$1: the machine answers no sets"; }
	kill -KILL "$(<"$dir/$1/pid")"
	wait "$shell"
}

# try_policy POLICY SYNC_EVERY: sets "kept" and "found".
try_policy() {
	mkdir "$dir/$1" && truncate -s 64M "$dir/$1/disk" && mkfs.ext4 -q "$dir/$1/disk" || give_up "cannot make a disk"
	for ((cycle = 0; cycle < $3; cycle++)); do
		cut_power "$1" "$2"
		kept=$(answered "$1")
	done
	read -r kept found < <(boot "$1" "$2" 0 2>"$dir/$1/out") || { cat "$dir/$1/out" "$dir/$1/log"; give_up "$1: see above"; }
	echo "$1: $kept sets were answered, $found are there"
}

try_policy always 1s "$cycles"
((found >= kept)) || fail "always: of $kept answered sets only $found are there"
try_policy interval 1h 1
((found < kept)) || fail "interval: all $kept sets are there, so the power was not cut"
conclude
