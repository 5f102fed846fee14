#!/bin/bash
# memcached's clients work: Debian's python3-pymemcache, python3-pylibmc, php-memcached, libmemcached's memccapable, nginx, and nutcracker
# before two rdmads. Debian's dalli, which has the binary protocol alone, is told so at once.
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
# has TOOL: or it is left out.
has() {
	command -v "$1" >/dev/null && return
	echo "$test_name: $1 is missing: left out"
	skipped=77
	return 1
}
module() { timeout 120 "$python" "$srcdir/tests/service/memcached/memcached_clients.py" "$@" >"$dir/out" 2>&1; }

# What nginx finds under the name of a page is the page, and what it does not find it asks another for.
see_nginx() {
	mkdir "$dir/nginx"
	cat >"$dir/nginx.conf" <<-END
		daemon off; master_process off; pid $dir/nginx/pid; error_log stderr;
		events {}
		http {
			access_log off; client_body_temp_path $dir/nginx; proxy_temp_path $dir/nginx; fastcgi_temp_path $dir/nginx;
			uwsgi_temp_path $dir/nginx; scgi_temp_path $dir/nginx;
			upstream store { server 127.0.0.1:$port; keepalive 4; }
			server {
				listen unix:$dir/nginx.sock;
				location / { set \$memcached_key \$uri; memcached_gzip_flag 2; memcached_pass store; error_page 404 502 504 = @other; }
				location @other { return 203 "of another"; }
			}
		}
	END
	nginx -p "$dir/nginx" -c "$dir/nginx.conf" >"$dir/nginx.log" 2>&1 &
	clients+=($!)
	wait_for "nginx" test -S "$dir/nginx.sock"
	module "$port" "$dir/nginx.sock" nginx || fail "nginx: $(tail -n 3 "$dir/nginx.log")"
}

# It spreads keys over two rdmads, and puts their answers together.
see_nutcracker() {
	local free
	sed 's/rdmad\.sock/second.sock/; s/control\.sock/control2.sock/; s/memcached\.sock/memcached2.sock/' "$dir/rdmad.conf" >"$dir/second.conf"
	"$rdmad" -c "$dir/second.conf" >"$dir/second.log" 2>&1 &
	clients+=($!)
	wait_for "the second rdmad" test -S "$dir/memcached2.sock"
	cat >"$dir/nutcracker.yml" <<-END
		pool:
		  listen: $dir/nutcracker.sock
		  hash: fnv1a_64
		  distribution: ketama
		  timeout: 60000
		  auto_eject_hosts: false
		  servers:
		   - $dir/memcached.sock:1 first
		   - $dir/memcached2.sock:1 second
	END
	# It tells of itself at a port, which has to be one.
	free=$(free_ports 1)
	nutcracker -c "$dir/nutcracker.yml" -s "$free" -a 127.0.0.1 -p "$dir/nutcracker.pid" -o "$dir/nutcracker.log" &
	clients+=($!)
	wait_for "nutcracker" test -S "$dir/nutcracker.sock"
	module "$dir/memcached2.sock" "$dir/nutcracker.sock" nutcracker || fail "nutcracker: $(tail -n 3 "$dir/nutcracker.log")"
}

see_dalli() {
	timeout 120 ruby -e '
		require "dalli"
		begin
			Dalli::Client.new("127.0.0.1:" + ARGV[0], protocol_implementation: Dalli::Protocol::Binary, socket_timeout: 60).set("key", "value")
			abort "a client of the binary protocol is served"
		rescue Dalli::RingError, Dalli::NetworkError => error
			puts error.message
		end' "$port" >"$dir/out" 2>&1 || fail "dalli"
	logged "binary protocol"
}

# A request of the binary protocol has no end of a line: a client would wait for its answer in vain.
see_binary() {
	exec {binary}<>"/dev/tcp/127.0.0.1/$port"
	printf '\200\v' >&"$binary"
	printf '\0%.0s' {1..22} >&"$binary"
	timeout 60 cat <&"$binary" >"$dir/out" || fail "a client of the binary protocol is not closed"
	[[ ! -s $dir/out ]] || fail "a client of the binary protocol has an answer"
	exec {binary}>&-
	logged "memcached's binary protocol"
}

see_binary
! has nginx || see_nginx
! has nutcracker || see_nutcracker
if ruby -e 'require "dalli"; exit Dalli::VERSION < "4"' 2>/dev/null; then
	see_dalli
else
	echo "$test_name: ruby-dalli, before 4, is missing: left out"
	skipped=77
fi
stop_daemon
[[ $failures != 0 || ! $skipped ]] || exit 77
conclude
