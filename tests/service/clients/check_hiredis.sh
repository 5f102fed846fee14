#!/bin/bash
# The test that hiredis has for itself, against rdmad.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need make
sources=$("$srcdir/scripts/packages" --source hiredis 2>"$dir/out") ||
	{ echo "$test_name: the sources of hiredis cannot be fetched: $(tail -n 1 "$dir/out")"; exit 77; }
tar -xf "$sources"/hiredis_*.orig.tar.gz -C "$dir" || give_up "the sources of hiredis: tar"
make -s -C "$dir"/hiredis-* hiredis-test CC="${CC:-gcc}" >"$dir/out" 2>&1 || give_up "hiredis-test: $(tail "$dir/out")"

configure 'services = ["kv", "resp"];' "resp = { listen = [\"127.0.0.1:0\"]; unix_socket = \"$dir/redis.sock\"; };"
start_daemon
port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for resp.*/\1/p' "$dir/log")
timeout 100 "$dir"/hiredis-*/hiredis-test -h 127.0.0.1 -p "$port" -s "$dir/redis.sock" --skip-throughput >"$dir/suite" 2>&1
sed -i 's/\x1b\[[0-9;]*m//g' "$dir/suite"
# They use lists; and DEBUG SLEEP, for a reply that comes late.
grep -a FAILED "$dir/suite" | grep -avE 'Can parse (nested )?multi bulk replies|Can handle nested multi bulk|Does not return a reply when the command times out|TESTS FAILED' >&2 &&
	fail "hiredis's test"
passed=$(grep -ac PASSED "$dir/suite")
((passed >= 77)) || { tail "$dir/suite" >&2; fail "$passed tests of hiredis passed, not 77"; }
stop_daemon
conclude
