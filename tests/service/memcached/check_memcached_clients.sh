#!/bin/bash
# memcached's clients work: Debian's python3-pymemcache, python3-pylibmc, php-memcached, and libmemcached's memccapable.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3
skipped=''
# Debian's modules are those of its own programs.
python=/usr/bin/python3
[[ -x $python ]] || python=python3

configure 'workers = 2;' 'services = ["kv", "memcached"];' \
	"memcached = { listen = [\"127.0.0.1:0\"]; unix_socket = \"$dir/memcached.sock\"; };" 'kv = { memory = "128M"; value_max = "2M"; };'
start_daemon
port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for memcached.*/\1/p' "$dir/log")

for module in pymemcache pylibmc; do
	timeout 120 "$python" "$srcdir/tests/service/memcached/memcached_clients.py" "$port" "$dir/memcached.sock" "$module" >"$dir/out" 2>&1
	case $? in 0) ;; 77) cat "$dir/out"; skipped=77 ;; *) fail "$module" ;; esac
done

if php -r 'exit(extension_loaded("memcached") ? 0 : 1);' 2>/dev/null; then
	timeout 120 php -r '
		$m = new Memcached(); $m->addServer("127.0.0.1", (int)$argv[1]); $m->flush();
		function check($what, $is) { if (!$is) { echo "php: $what\n"; exit(1); } }
		check("set", $m->set("key", ["a" => 1]) && $m->get("key") === ["a" => 1]);
		check("types", $m->set("f", 1.5) && $m->get("f") === 1.5 && $m->set("b", true) && $m->get("b") === true);
		$got = $m->get("key", null, Memcached::GET_EXTENDED);
		check("cas", $m->cas($got["cas"], "key", "new") && !$m->cas($got["cas"], "key", "newer"));
		check("increment", $m->set("n", 5) && $m->increment("n", 3) === 8 && $m->decrement("n", 10) === 0);
		check("many", $m->setMulti(["x" => 1, "y" => 2]) && $m->getMulti(["x", "y", "z"]) == ["x" => 1, "y" => 2]);
		check("long", $m->set("long", str_repeat("x", 900000)) && strlen($m->get("long")) === 900000);
		check("touch", $m->touch("x", 100) && $m->delete("x") && $m->get("x") === false);' "$port" >"$dir/out" 2>&1 || fail "php-memcached"
else
	echo "$test_name: php-memcached is missing: left out"
	skipped=77
fi

if command -v memccapable >/dev/null; then
	timeout 120 memccapable -h 127.0.0.1 -p "$port" -a >"$dir/out" 2>&1 || fail "memccapable"
	grep -q 'All tests passed' "$dir/out" || fail "memccapable does not say that all tests passed"
else
	echo "$test_name: memccapable is missing: left out"
	skipped=77
fi
stop_daemon
[[ $failures != 0 || ! $skipped ]] || exit 77
conclude
