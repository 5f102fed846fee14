#!/bin/bash
# The log of a daemon: what is there after a crash and after an end in peace, rdmactl log, and what is refused. The arguments say which
# parts; "values" is by RDMA where there is a device whose address RDMAD_GUEST_ADDR says.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq

with_log_of() { configure "log = { directory = \"$dir/changes\"; segment = \"$1\"; ${*:2} };"; }
with_log() { with_log_of 256K "$@"; }
start() {
	start_daemon
	server=unix://$dir/rdmad.sock
}
kill_daemon() {
	kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null
}
has() { ctl kv get "$1" && [[ $(cat "$dir/out") == "$2" ]] || fail "no $2 at $1"; }
log_number() { control log status | jq ".$1"; }

state_is() { [[ $(control log status | jq -r .state) == "$1" ]]; }

# An answer is kept, whatever happens.
test_always() {
	local files
	with_log 'policy = "always";'
	start
	ctl kv set k one && ctl kv set --ttl 1h t timed && ctl kv set gone x && ctl kv del gone || fail "no answer"
	kill_daemon
	start
	logged "log: 4 records"
	has k one
	ctl kv ttl t && says "59 min|[0-9.]+ s|1 h|59\." "what is left"
	ctl kv exists gone && fail "it came back"
	ctl log status && says "policy +always"
	[[ $(control log status | jq -r .state) == good && $(log_number lag) == 0 ]] || fail "not on disk: $(control log status)"
	ctl kv set k two || fail "no answer"
	ctl log checkpoint || fail "no checkpoint"
	made() { [[ $(log_number checkpoints) == 1 ]]; }
	wait_for "the checkpoint" made
	stop_daemon
	for files in "$dir"/changes/*.log "$dir"/changes/*.checkpoint; do
		ctl log verify "$files" || fail "$files is damaged"
	done
	ctl --json log verify "$dir/changes" && json '(.files | length) == 3 and ([.files[].records] | min) > 0'
	ctl log verify "$dir/changes/MANIFEST" || fail "it is damaged"
	expect 1 log verify "$dir" && complains "no MANIFEST"
	mv "$dir"/changes/*.checkpoint "$dir/moved"
	expect 1 log verify "$dir/changes" && complains "\.checkpoint: No such file"
	cp "$dir/moved" "$dir/changes/$(sed -n 's/^checkpoint \([0-9]*\) .*/\1/p' "$dir/changes/MANIFEST" | xargs printf %016x).checkpoint"
	ctl log dump "$dir"/changes/*.checkpoint && says "SET 3 bytes k"
	ctl --json log verify "$dir"/changes/*.checkpoint && json '.records > 1'
	start
	has k two
	stop_daemon
}

checkpoint_says() { control log status | jq -e "$1" >/dev/null; }

# While one is made, how much of it there is; else nothing. The budget has it last some seconds.
test_checkpoint() {
	local none='[.checkpoint_under_way_ns, .checkpoint_done_bytes, .checkpoint_whole_bytes] == [0, 0, 0]'
	rm -rf "$dir/changes"
	with_log 'policy = "interval"; checkpoint_budget = "2M";'
	start
	ctl bench kv -o set -s 20K -n 400 -c 1 -k 400 --keep || fail "no keys"
	checkpoint_says "$none" || fail "none is made: $(control log status)"
	ctl log checkpoint || fail "no checkpoint"
	wait_for "a part of it" checkpoint_says '.checkpoint_under_way_ns > 0 and .checkpoint_under_way_ns < 60e9 and
		.checkpoint_done_bytes > 0 and .checkpoint_done_bytes < .checkpoint_whole_bytes and
		.checkpoint_whole_bytes >= 400 * 20480 and .checkpoint_whole_bytes < 500 * 20480'
	wait_for "its end" checkpoint_says ".checkpoints == 1 and $none"
	stop_daemon
	rm -rf "$dir/changes"
}

# One daemon has a directory.
test_taken() {
	with_log 'policy = "always";'
	start
	sed "s|rdmad.sock|other.sock|; s|control.sock|other.control|" "$dir/rdmad.conf" >"$dir/other.conf"
	ends 71 "$dir/changes" "$rdmad" -c "$dir/other.conf"
	stop_daemon
}

test_interval() {
	with_log 'policy = "interval"; sync_every = "1h";'
	start
	ctl kv set k three && ctl kv set --durable d four || fail "no answer"
	[[ $(log_number durable_lsn) == "$(log_number lsn)" ]] || fail "it is not on disk: $(control log status)"
	stop_daemon
	start
	has k three
	has d four
	stop_daemon
}

# With the policy "none" all is there once after an end in peace.
test_save_at_exit() {
	rm -rf "$dir/changes"
	with_log 'save_at_exit = true;'
	start
	ctl kv set k five || fail "no answer"
	ctl kv set --durable k six && fail "there is no log"
	complains "keeps no log"
	stop_daemon
	start
	has k five
	kill_daemon
	start
	ctl kv exists k && fail "it came back after a crash"
	stop_daemon
	rm -rf "$dir/changes"
}

# spoil FILE OFFSET: that byte is another than it was.
spoil() {
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# What makes no sense is said, and damage.
test_refused() {
	local file
	configure 'log = { policy = "always"; };'
	ends 78 "set log.directory" "$rdmad" -c "$dir/rdmad.conf"
	printf '#!/bin/sh\n' >"$dir/program"
	chmod 755 "$dir/program" # which root may read, write and search, as far as access(2) knows
	configure "log = { directory = \"$dir/program\"; policy = \"always\"; };"
	ends 71 "Not a directory" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 71 "Not a directory" "$rdmad" -c "$dir/rdmad.conf"
	configure
	start
	ctl log status && fail "there is no log"
	complains "keeps no log"
	ctl log checkpoint && fail "there is no log"
	complains "log.directory"
	stop_daemon
	rm -rf "$dir/changes"
	with_log 'policy = "always";'
	start
	for file in $(seq 20); do ctl kv set "key $file" "$file" || fail "no answer"; done
	kill_daemon
	file=$(ls -S "$dir"/changes/*.log | head -1)
	spoil "$file" 4250
	ctl log verify "$file" && fail "it is damaged"
	complains "damaged at byte [0-9]+"
	expect 1 log verify "$dir/nothing" && complains "No such file" && same /dev/null
	mkfifo "$dir/fifo"
	expect 1 log verify "$dir/fifo" && complains "too short"
	ends 71 "$(basename "$file")" "$rdmad" -c "$dir/rdmad.conf"
	with_log 'policy = "always"; recover = "prefix";'
	start
	ctl kv exists "key 20" && fail "it comes behind the damage"
	logged "bytes of records are lost, as far as is known, in files of the log: 1"
	[[ $(control log status | jq -r '.state, .lost_bytes > 0' | tr '\n' ' ') == "prefix true " ]] || fail "$(control log status)"
	[[ -e ${file%.log}.damaged ]] || fail "it is not kept: $(ls "$dir/changes")"
	stop_daemon
	rm "$dir"/changes/*.damaged
}

# The last change of all, too, once the daemon has rested or ended; and files that somebody removes.
test_last() {
	local file
	rm -rf "$dir/changes"
	with_log 'policy = "always";'
	start
	ctl kv set k "the last one" || fail "no answer"
	stop_daemon
	file=$(ls -S "$dir"/changes/*.log | head -1)
	spoil "$file" 4196
	ends 71 "damage at 41" "$rdmad" -c "$dir/rdmad.conf"
	spoil "$file" 4196
	start
	has k "the last one"
	rm -r "$dir/changes"
	logged "somebody has removed the files of log.directory"
	wait_for "it in the status" state_is removed
	stop_daemon
}

# On a disk that fails, here by a limit to the length of a file.
start_limited() {
	(
		trap '' XFSZ
		ulimit -f 400
		exec "$rdmad" -c "$dir/rdmad.conf"
	) >"$dir/log" 2>&1 &
	daemon=$!
	server=unix://$dir/rdmad.sock
	wait_for "its start" daemon_is_settled
}

# The daemon ends, and what it had answered is there.
test_fails() {
	rm -rf "$dir/changes"
	with_log 'policy = "always";'
	head -c 600K /dev/zero >"$dir/large"
	start_limited
	ctl kv set k seven || fail "no answer"
	ctl kv set large -f "$dir/large" && fail "it is not on disk"
	await_daemon "a disk that fails" 74
	logged "log.on_error is \"stop\""
	start
	has k seven
	ctl kv exists large && fail "it was not answered"
	stop_daemon
	rm -rf "$dir/changes"
	with_log 'save_at_exit = true;'
	start_limited
	ctl kv set large -f "$dir/large" || fail "no answer"
	stop_daemon TERM 74
	logged "keys and values are not saved"
}

large_values() { control status | jq "[.counters.kv_reads, .counters.kv_writes] | map(. // 0) | .[$1]"; }

# Values of each size come back as they were, whichever way they came; where there is a device by RDMA, the large ones read and written.
test_values() {
	local size by_rdma=''
	rm -rf "$dir/changes"
	with_log 'policy = "always";'
	start_daemon
	keep_special
	[[ ${servers[*]} != rdma:* ]] || by_rdma=2
	for size in 64 64K 1M; do head -c $size /dev/urandom >"$dir/value.$size"; done
	for server in "${servers[@]}"; do
		for size in 64 64K 1M; do ctl kv set "${server%%:*} $size" -f "$dir/value.$size" || fail "no answer"; done
	done
	[[ ! $by_rdma || $(large_values 0) == "$by_rdma" ]] || fail "of 2 large values $(large_values 0) were read by RDMA"
	kill_daemon
	start_daemon
	keep_special
	logged "log: $((3 * ${#servers[@]})) records"
	for server in "${servers[@]}"; do
		for size in 64 64K 1M; do
			ctl kv get "${server%%:*} $size" && same "$dir/value.$size" "${server%%:*}, $size after a crash"
		done
	done
	[[ ! $by_rdma || $(large_values 1) == "$by_rdma" ]] || fail "of 2 large values $(large_values 1) were written by RDMA"
	stop_daemon
}

# In a mount namespace of its own. A disk of 16M has files as short as it needs; one that is full heals by itself when there is room for a
# checkpoint, also behind a restart, and what was answered is there.
test_tmpfs() {
	mkdir -p "$dir/changes"
	mount -t tmpfs -o size=16M none "$dir/changes" || fail "no tmpfs"
	with_log_of 256M 'policy = "always";'
	start
	logged "the disk has room for 16.0 MiB of log: its files get 2.00 MiB each"
	[[ $(log_number segment_bytes) == $((2 << 20)) ]] || fail "no shorter files: $(control log status)"
	ctl kv set k one || fail "no answer"
	stop_daemon
	with_log_of 1M 'policy = "interval"; sync_every = "10ms";'
	start
	has k one
	cat /dev/zero >"$dir/changes/ballast" 2>/dev/null
	ctl bench kv -o set -s 64 -n 400000 -c 2 --keep -p aa -k 100
	complains "disk of its log"
	logged "for another file of 1.00 MiB"
	[[ $(grep -c "no space is left" "$dir/log") == 1 ]] || fail "told more than once: $(grep "no space" "$dir/log")"
	wait_for "the full disk" state_is "disk full"
	truncate -s -300K "$dir/changes/ballast"
	wait_for "room" ctl kv set --durable k two
	kill_daemon
	rm -f "$dir"/changes/*.spare
	cat /dev/zero >"$dir/changes/ballast" 2>/dev/null
	start
	wait_for "the full disk" state_is "disk full"
	truncate -s -300K "$dir/changes/ballast"
	wait_for "room" state_is good
	has k two
	ctl kv set k three || fail "no answer"
	stop_daemon
	umount "$dir/changes"
}

# With a user namespace for anybody but root.
test_full() {
	local how
	for how in -m -rm; do
		unshare "$how" mount -t tmpfs none "$dir" 2>/dev/null || continue
		unshare "$how" "$0" tmpfs || fail "see above"
		return
	done
	left_out="full: no namespace to mount a disk in"
}

left_out=''
parts=(always checkpoint taken interval save_at_exit values refused last fails full)
[[ $# == 0 ]] || parts=("$@")
for part in "${parts[@]}"; do
	echo "$part"
	"test_$part"
done
[[ ! $left_out || $failures != 0 ]] || { echo "$left_out"; exit 77; }
conclude
