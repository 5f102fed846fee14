#!/bin/bash
# What no client of Redis's protocol does by mistake: keys of a transaction that go before its step ends, the same long value written by
# several threads, passwords given again.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need python3 jq

configure 'workers = 2;' 'services = ["kv", "resp"];' 'kv = { memory = "64M"; eviction = "s3-fifo"; };' "resp.unix_socket = \"$dir/redis.sock\";"
start_daemon
timeout 240 python3 "$srcdir/tests/service/resp_hostile.py" "$dir/redis.sock" "$(part 4000)" || fail "a hostile client"
stop_daemon

echo "@$(id -u) kv resp read= write=" >"$dir/clients"
configure 'workers = 1;' 'services = ["kv", "resp"];' "resp.unix_socket = \"$dir/redis.sock\";" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; local = \"user\"; };"
umask 077
"$rdmactl" --quiet key new app --into "$dir/keys" >/dev/null || give_up "no key"
start_daemon
cat >"$dir/reload" <<END
echo "@$(id -u) kv resp read=none/ write=none/" >"$dir/clients"
exec "$rdmactl" --control "$dir/control.sock" reload >/dev/null
END
timeout 240 python3 "$srcdir/tests/service/resp_hostile.py" "$dir/redis.sock" 0 bash "$dir/reload" || fail "a reload"
stop_daemon

# A connection, which has file descriptor 5.
open_connection() { coproc CONNECTION { exec python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile("rb")
for line in sys.stdin.buffer:
    s.sendall(line)
    sys.stdout.buffer.write(f.readline())
    sys.stdout.flush()' "$dir/redis.sock"; }; }
# answers WANT COMMAND...
answers() {
	local got
	echo "${*:2}" >&"${CONNECTION[1]}"
	read -r -t 60 -u "${CONNECTION[0]}" got
	[[ $got == $1* ]] || fail "${*:2}: \"$got\", not \"$1\""
}

password=$("$rdmactl" key resp "$dir/keys" app)
echo 'app kv resp read= write= connections=1' >"$dir/clients"
configure 'services = ["kv", "resp"];' "resp.unix_socket = \"$dir/redis.sock\";" "auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
start_daemon
open_connection
answers -NOAUTH GET k
answers +OK AUTH app "$password"
answers +OK AUTH app "$password" # the same connection is no second one
answers +OK SET k v
answers +RESET RESET
answers -NOAUTH GET k
ctl reload || fail "reload"
answers -NOAUTH GET k # rights that were given back stay so
answers +OK AUTH app "$password"
exec {CONNECTION[1]}>&-
stop_daemon
conclude
