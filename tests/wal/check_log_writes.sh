#!/bin/bash
# What each write of a log leaves on a disk: in an emulated machine the kernel records all that an rdmad and its file system write, and
# when what was answered. Each begin of that record is a disk as a loss of power leaves it: its file system is repaired, and an rdmad
# started on the log that is there. It finds what there was after one of the sets, and with log.policy "always" all that was answered by
# then; with "interval" some of that is lacking, which proves that this can be seen. WRITES_LOOKS says how many begins are looked at (0:
# each one; otherwise 80, and of that as RDMAD_TEST_PART says), WRITES_SETS how many sets are recorded.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
export PATH="$PATH:/usr/sbin:/sbin"
looks=${WRITES_LOOKS:-$(part 80)} || exit
sets=${WRITES_SETS:-3000}
guest=$srcdir/scripts/guest
replay=$srcdir/tests/wal/replay_writes.py
need qemu-system-x86_64 busybox mkfs.ext4 e2fsck debugfs dmsetup python3 jq

# What runs in the machine: the file system is on a device that records. File data is not ordered before metadata there, which is
# the least that a file system promises.
cat >"$dir/in_guest" <<END
#!/bin/bash
export DM_DISABLE_UDEV=1 # nobody else makes device files there

# record POLICY DISK RECORD
record() {
	local url=unix:///run/\$1.sock daemon
	dmsetup create "\$1" --table "0 \$(blockdev --getsz "\$2") log-writes \$2 \$3" &&
		mkdir "/run/\$1" && mount -o data=writeback,noauto_da_alloc "/dev/mapper/\$1" "/run/\$1" || return
	cat >/run/conf <<CONF
unix_socket = "/run/\$1.sock"; transports = ["unix"]; services = ["kv"]; kv.memory = "64M"; pid_file = "/run/\$1.pid";
control = { socket = "/run/\$1.control"; };
log = { directory = "/run/\$1/changes"; policy = "\$1"; segment = "64K"; sync_every = "1h"; };
CONF
	$rdmad -c /run/conf &
	daemon=\$!
	until [[ -S /run/\$1.sock && -S /run/\$1.control ]]; do kill -0 \$daemon || return; sleep 0.1; done
	$builddir/tests/wal/log_power \$url /run/answered.\$1 $((sets / 2)) "\$1" || return
	$rdmactl --control /run/\$1.control log checkpoint || return
	$builddir/tests/wal/log_power \$url /run/answered.\$1 $((sets - sets / 2)) "\$1" || return
	kill -KILL \$daemon
	wait \$daemon
	umount "/run/\$1" && dmsetup remove "\$1"
}

if ! modprobe -a virtio_blk ext4 dm-log-writes; then
	echo "no module"
	exit 77
fi
until [[ -b /dev/vdd ]]; do sleep 0.1; done
record always /dev/vda /dev/vdb && record interval /dev/vdc /dev/vdd
END
chmod +x "$dir/in_guest"

make_records() {
	local policy disks=() status
	for policy in always interval; do
		mkdir "$dir/$policy" && truncate -s 64M "$dir/$policy/empty" && truncate -s 4G "$dir/$policy/record" || give_up "cannot make disks"
		mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$dir/$policy/empty" || give_up "cannot make a file system"
		cp --sparse=always "$dir/$policy/empty" "$dir/$policy/disk"
		disks+=(--disk "$dir/$policy/disk" --disk "$dir/$policy/record")
	done
	"$guest" --timeout 600 --memory 512M "${disks[@]}" --env LD_LIBRARY_PATH -- "$dir/in_guest" >"$dir/guest.out" 2>&1
	status=$?
	if [[ $status == 77 ]]; then
		echo "$test_name: the guest's kernel has no dm-log-writes"
		exit 77
	fi
	[[ $status == 0 ]] || { tail -n 20 "$dir/guest.out" >&2; give_up "the machine made no records: exit status $status"; }
}

# make_disk POLICY COUNT [SEED]: takes the log out of the disk that the first COUNT entries make, and sets "marked", the last set that was
# answered by then.
make_disk() {
	local status
	rm -rf "$dir/trial" "$dir/changes"
	cp --sparse=always "$dir/$1/empty" "$dir/trial"
	marked=$("$replay" "$dir/$1/record" "$dir/trial" "${@:2}") || give_up "$1, $2 entries: cannot be replayed"
	e2fsck -f -p "$dir/trial" >"$dir/out" 2>&1
	status=$?
	((status < 4)) || { fail "$1, ${*:2}: e2fsck: exit status $status"; return 1; }
	debugfs -R "rdump /changes $dir" "$dir/trial" >"$dir/out" 2>&1
}

# look POLICY COUNT [SEED]: sets "found", what an rdmad finds there.
look() {
	make_disk "$@" || return
	"$rdmad" -c "$dir/rdmad.conf" >"$dir/daemon.log" 2>&1 &
	daemon=$!
	wait_for "the start of rdmad" daemon_is_settled
	if ! ended "$daemon" && "$builddir/tests/wal/log_power" "unix://$dir/rdmad.sock" "$dir/none" 0 >"$dir/out" 2>"$dir/err"; then
		read -r _ found <"$dir/out"
		stop_daemon
		return
	fi
	fail "$1, ${*:2}: of $marked answered sets it does not find what there was after one of the sets"
	tail -n 5 "$dir/daemon.log" >&2
	kill -KILL "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null
	daemon=''
	return 1
}

# compare POLICY COUNT [SEED]: counts in "lacking" where less is found than was answered, and says in "worst" where.
compare() {
	look "$@" && ((found < marked)) || return 0
	lacking=$((lacking + 1))
	worst="after ${*:2} entries, of $marked answered sets $found are there"
}

# walk POLICY LOOKS: that many begins of its record, up to the last mark, each as it is and torn.
walk() {
	local entries last looks=$2 count i
	read -r entries last < <("$replay" "$dir/$1/record") && ((last > 0)) || give_up "$1: no record with marks"
	((looks > 0 && looks < last)) || looks=$last
	lacking=0 worst=''
	for ((i = 1; i <= looks; i++)); do
		count=$((last * i / looks))
		compare "$1" "$count"
		compare "$1" "$count" "$i"
	done
	echo "$1: $entries entries, $((2 * looks)) disks, $lacking lack what was answered${worst:+; the last one: $worst}"
}

configure "log = { directory = \"$dir/changes\"; policy = \"always\"; segment = \"64K\"; };"
make_records
walk always "$looks"
((lacking == 0)) || fail "always: $worst"
walk interval 4
((lacking > 0)) || fail "interval: nothing is lacking, so what is not flushed is not lost here"
conclude
