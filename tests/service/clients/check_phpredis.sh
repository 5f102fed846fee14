#!/bin/bash
# The tests that phpredis 5.3.7 has for itself, against rdmad: those of phpredis_skip.txt are left out, each with a reason.
# TESTS=testPipeline asks for one.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need php redis-cli
[[ $(php -r 'echo extension_loaded("redis");') == 1 ]] || { echo "$test_name: Debian's php-redis is missing"; exit 77; }
sources=$("$srcdir/scripts/packages" --source php-redis 2>"$dir/out") ||
	{ echo "$test_name: the sources of phpredis cannot be fetched: $(tail -n 1 "$dir/out")"; exit 77; }
tar -xf "$sources"/php-redis_*.orig.tar.* -C "$dir" || give_up "the sources of phpredis: tar"

configure 'workers = 2;' 'services = ["kv", "resp"];' 'resp = { listen = ["127.0.0.1:0"]; scripts = true; };'
"$rdmad" -c "$dir/rdmad.conf" -T >"$dir/out" 2>&1 || { echo "$test_name: this rdmad was built without Lua"; exit 77; }
start_daemon
port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for resp.*/\1/p' "$dir/log")

# Its tests are the methods whose names begin with "test".
cd "$dir"/redis-5.*/tests || give_up "the tests of phpredis"
while read -r name; do
	grep -q "public function $name()" RedisTest.php || fail "phpredis has no test $name"
	sed -i "s/public function $name()/public function left_out_$name()/" RedisTest.php
done < <(grep '^test' "$srcdir/tests/service/clients/phpredis_skip.txt")
sed -i 's/error_reporting(E_ALL)/error_reporting(E_ALL \& ~E_DEPRECATED)/' TestRedis.php
sed -i "s/strstr(strtolower(\$name), \$str_limit)===FALSE/strtolower(\$name) !== \$str_limit/" TestSuite.php

timeout 60 redis-cli -p "$port" set "a key" "for clients that want one" >"$dir/out"
TEST_PHP_ARGS='-d display_errors=0' timeout 300 php TestRedis.php --host 127.0.0.1 --port "$port" --class Redis --nocolors \
	${TESTS:+--test "$TESTS"} >"$dir/suite" 2>&1
status=$?
passed=$(grep -ac '\[PASSED\]' "$dir/suite")
echo "$passed tests passed, $(grep -c '^test' "$srcdir/tests/service/clients/phpredis_skip.txt") are left out by the list, $(grep -ac '\[SKIPPED\]' "$dir/suite") by phpredis"
if [[ $status != 0 ]]; then
	grep -aE 'FAILED|Fatal|Uncaught|Assertion failed' "$dir/suite" | cut -c1-300 | head -n 100 >&2
	fail "exit status $status of phpredis's suite"
fi
[[ ${TESTS-} ]] || ((passed >= 90)) || fail "$passed tests of phpredis passed, not 90"
cd "$builddir" || exit
stop_daemon
conclude
