#!/bin/sh
# The fabric's promises, kept by the soft provider: over TCP, then over a UNIX socket.
set -eu

program=${CHECK_FABRIC:-./tests/check_fabric}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

failed=0
echo "soft over tcp"
"$program" soft 127.0.0.1 || failed=1
echo "soft over unix"
"$program" soft "unix:$dir/fabric" || failed=1
if [ "${RDMAD_TEST_LARGE:-}" ]; then
	"$program" soft 127.0.0.1 large || failed=1
fi
exit $failed
