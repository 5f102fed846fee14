#!/bin/bash
# The tests that memcached 1.6.18 has for itself, in Perl, against rdmad: tests that skip.txt names may fail, each
# with a reason. UNITS="cas touch" asks for some files.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need perl
perl -MTest::More -e 1 2>/dev/null || { echo "$test_name: Perl's Test::More is missing"; exit 77; }
sources=$("$srcdir/scripts/packages" --source memcached 2>"$dir/out") ||
	{ echo "$test_name: the sources of memcached cannot be fetched: $(tail -n 1 "$dir/out")"; exit 77; }
mkdir "$dir/sources" && tar -xf "$sources"/memcached_*.orig.tar.?z -C "$dir/sources" --strip-components=1 || give_up "the sources of memcached: tar"

units=(bogus-commands cas expirations flags flush-all getandtouch getset incrdecr issue_104 issue_108 issue_14 issue_140
	issue_152 issue_163 issue_192 issue_260 issue_3 issue_41 issue_68 issue_70 line-lengths
	malicious-commands metaget multiversioning noreply quit strtol-testing touch whitespace)
[[ $(part 20) -gt 1 ]] || units=(cas incrdecr noreply touch)
[[ ! ${UNITS-} ]] || read -ra units <<<"$UNITS"
configure 'services = ["kv", "memcached"];' 'kv = { memory = "256M"; value_max = "1M"; eviction = "s3-fifo"; };' 'memcached = { listen = ["127.0.0.1:0"]; };'
start_daemon
port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for memcached.*/\1/p' "$dir/log")

# Its tests look for memcached's own program, which may not be started, and move its clock: here time has to pass.
touch "$dir/sources/memcached-debug" && chmod +x "$dir/sources/memcached-debug"
sed -i '/^sub mem_move_time/,/^}/ { /print \$sock/d; s/<\$sock>;/select undef, undef, undef, $move + 0.05;/ }' "$dir/sources/t/lib/MemcachedTest.pm"
say() { { exec 3<>"/dev/tcp/127.0.0.1/$port" && printf '%s\r\nquit\r\n' "$1" >&3 && cat <&3; } 2>/dev/null; }

passed=0 excused=0
for unit in "${units[@]}"; do
	say flush_all >/dev/null
	say 'stats reset' >/dev/null
	(cd "$dir/sources" && T_MEMD_USE_DAEMON=127.0.0.1:$port timeout 120 perl "t/$unit.t") >"$dir/out" 2>&1
	status=$?
	passed=$((passed + $(grep -c '^ok' "$dir/out")))
	failed=0
	while read -r name; do
		failed=$((failed + 1))
		name=$(sed 's/^not ok [0-9]* - //; s/^not ok //' <<<"$name")
		if grep -qF "$unit: $name # " "$srcdir/tests/service/memcached/skip.txt"; then
			excused=$((excused + 1))
		else
			fail "$unit: $name"
		fi
	done < <(grep '^not ok' "$dir/out")
	[[ $status == "$failed" ]] || fail "$unit: exit status $status with $failed failures"
done
echo "$passed tests passed, $excused are excused by the list"
((passed > 20)) || fail "$passed tests of memcached's suite passed"
stop_daemon
conclude
