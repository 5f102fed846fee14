#!/bin/bash
# The daemon is killed at any moment while changes come, and started again: with log.policy "always" no answer was given in vain, with
# "interval" what is found is a prefix of what was submitted. CRASH_CYCLES says how often; by hand thousands, with CRASH_SEED to repeat.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cycles=${CRASH_CYCLES:-$(part 200)} || exit

# crash NAME POLICY CYCLES KV: KV are further settings of the group.
crash() {
	mkdir "$dir/$1"
	cat >"$dir/$1/conf" <<-END
		unix_socket = "$dir/$1/socket";
		transports = ["unix"];
		services = ["kv"];
		workers = 1;
		control = { socket = "$dir/$1/control"; };
		kv = { $4 };
		log = { directory = "$dir/$1/log"; policy = "$2"; segment = "256K"; sync_every = "5ms"; target = "file:$dir/log"; };
	END
	timeout 7200 "$builddir/tests/wal/log_crash" "$rdmad" "$dir/$1/conf" "unix://$dir/$1/socket" "$dir/$1/control" "$1" "$3" \
		${CRASH_SEED:+"$CRASH_SEED"} || fail "$1: see above"
}

crash always always $((cycles / 2)) 'memory = "64M";'
crash interval interval $((cycles / 4)) 'memory = "64M";'
crash evicts always $((cycles / 4)) 'memory = "1M"; eviction = "s3-fifo";'
conclude
