#!/bin/sh
# The fabric's promises, kept by the soft provider: over TCP and over a UNIX socket, by these and by memory that
# both ends share, and
# connecting over IPv6 where there is any. RDMAD_TEST_LARGE=1: more than 2 GiB in one call too.
set -eu

program=${CHECK_FABRIC:-./tests/fabric/check_fabric}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

failed=0
echo "soft over tcp"
"$program" soft 127.0.0.1 || failed=1
echo "soft over unix"
"$program" soft "unix:$dir/fabric" || failed=1
echo "soft by shared memory, from tcp"
"$program" soft memory:127.0.0.1 || failed=1
echo "soft by shared memory, from unix"
"$program" soft "memory:unix:$dir/fabric" || failed=1
if grep -qs '^0*1 ' /proc/net/if_inet6; then
	echo "soft over tcp, IPv6"
	"$program" soft ::1 connect || failed=1
	"$program" soft memory:::1 connect || failed=1
fi
if [ "${RDMAD_TEST_LARGE:-}" ]; then
	"$program" soft 127.0.0.1 large || failed=1
fi
exit $failed
