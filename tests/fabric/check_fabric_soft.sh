#!/bin/sh
# The fabric's promises, kept by the soft provider: by TCP, and by memory that both ends share, which a UNIX socket brought. The
# other two pairs have three suites, and all with RDMAD_TEST_PART=1; IPv6 has connect, where there is any. RDMAD_TEST_LARGE=1: more
# than 2 GiB in one call too.
set -eu

program=${CHECK_FABRIC:-./tests/fabric/check_fabric}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

failed=0
# by ADDRESS [SUITE...]
by()
{
	address=$1
	shift
	echo "soft by $address"
	for suite in "${@:-}"; do
		# shellcheck disable=SC2086 # none, or a word
		"$program" soft "$address" $suite || failed=1
	done
}

some="connect message teardown"
[ "${RDMAD_TEST_PART:-1}" != 1 ] || some=''
by 127.0.0.1
by "memory:unix:$dir/fabric"
# shellcheck disable=SC2086 # words
by "unix:$dir/fabric" $some
# shellcheck disable=SC2086 # words
by memory:127.0.0.1 $some
if grep -qs '^0*1 ' /proc/net/if_inet6; then
	by ::1 connect
	by memory:::1 connect
fi
if [ "${RDMAD_TEST_LARGE:-}" ]; then
	by 127.0.0.1 large
fi
exit $failed
