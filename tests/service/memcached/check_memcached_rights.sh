#!/bin/bash
# What a client of memcached's may do to keys, and how it says which user it is.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 jq

# said TEXT: all that is answered; \r and \n as in printf.
said() {
	python3 - "$dir/memcached.sock" "$1" <<-'END'
	import socket, sys
	s = socket.socket(socket.AF_UNIX)
	s.connect(sys.argv[1])
	s.sendall(sys.argv[2].encode().decode("unicode_escape").encode())
	s.shutdown(socket.SHUT_WR)
	print(s.makefile("rb").read().decode().replace("\r\n", "|"), end="")
	END
}
# answers WANT COMMANDS
answers() {
	local got
	got=$(said "$2")
	[[ $got == $1 ]] || fail "$2: \"$got\", not \"$1\""
}
may() { echo "@$(id -u) kv memcached $*" >"$dir/clients"; }
denied='CLIENT_ERROR the client has no right to do this, see rdmad-auth(7)'

may read= write= flush
configure 'services = ["kv", "memcached"];' "memcached.unix_socket = \"$dir/memcached.sock\";" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; local = \"user\"; };"
"$rdmactl" --quiet key new lab --into "$dir/keys" >"$dir/lab.key" || give_up "no key"
start_daemon
answers 'STORED|STORED|' 'set app/1 0 0 1\r\na\r\nset other 0 0 1\r\nb\r\n'

may read=app/ write=app/
ctl reload || fail "reload"
wait_for "the rights of the file" eval '[[ $(said "get other\r\n") == "$denied|" ]]'
answers 'VALUE app/1 0 1|a|END|' 'get app/1\r\n'
answers "$denied|VALUE app/1 0 1|a|END|" 'get app/1 other\r\nget app/1\r\n'
answers "$denied|$denied|" 'set other 0 0 1\r\nx\r\nms other 1\r\nx\r\n'
answers "$denied|MN|" "set other 0 0 20000\r\n$(printf 'x%.0s' {1..20000})\r\nmn\r\n"
answers "$denied|$denied|$denied|$denied|$denied|" 'delete other\r\nincr other 1\r\nmg other v\r\nmd b3RoZXI= b\r\ntouch other 5\r\n'
answers "$denied|" 'flush_all\r\n'

may read=none/ write=app/
ctl reload || fail "reload"
wait_for "the rights of the file" eval '[[ $(said "get app/1\r\n") == "$denied|" ]]'
answers 'STORED|' 'set app/1 0 0 1\r\n7\r\n'
answers "$denied|$denied|" 'incr app/1 1\r\ngat 5 app/1\r\n'
may read=app/ write=none/
ctl reload || fail "reload"
wait_for "the rights of the file" eval '[[ $(said "get app/1\r\n") == VALUE* ]]'
answers "$denied|$denied|$denied|HD|" 'gat 5 app/1\r\nmg app/1 T5\r\nmg new N5\r\nmg app/1\r\n'
stop_daemon

# A client without a right of its own says a name and a password first.
echo 'lab kv memcached read= write=' >"$dir/clients"
configure 'services = ["kv", "memcached"];' "memcached.unix_socket = \"$dir/memcached.sock\";" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
start_daemon
password=$("$rdmactl" key resp "$dir/keys" lab)
login="lab $password"
login="set any 0 0 ${#login}\r\n$login\r\n"
answers 'CLIENT_ERROR unauthenticated|' 'get a\r\n'
answers 'CLIENT_ERROR unauthenticated|CLIENT_ERROR unauthenticated|' 'mn\r\nset a 0 0\r\n'
answers 'CLIENT_ERROR authentication failure|' 'set any 0 0 5\r\nlab x\r\n'
answers 'CLIENT_ERROR bad authentication token format|' 'set any 0 0 3\r\nlab\r\n'
answers 'CLIENT_ERROR bad command line termination|' 'set any 0 0 5\r\nlab xyz'
answers 'STORED|STORED|VALUE a 0 1|x|END|' "${login}set a 0 0 1\r\nx\r\nget a\r\n"
answers '' "set any 0 0 100000\r\n"
[[ $(control status | jq '.counters.memcached_auth_errors') == 1 ]] || fail "auth_errors: $(control status | jq -c .counters)"
stop_daemon

# One whose right goes while a part of its line is here says its password next.
printf '%s\n' "@$(id -u) kv memcached read= write=" 'lab kv memcached read= write=' >"$dir/clients"
configure 'workers = 1;' 'services = ["kv", "memcached"];' "memcached.unix_socket = \"$dir/memcached.sock\";" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; local = \"user\"; };"
start_daemon
cat >"$dir/reload" <<END
printf '%s\n' "@$(id -u) kv read= write=" 'lab kv memcached read= write=' >"$dir/clients"
exec "$rdmactl" --control "$dir/control.sock" reload >/dev/null
END
sed '/^printf/s/ memcached//g' "$dir/reload" >"$dir/reload_all"
timeout 120 python3 - "$dir/memcached.sock" "$login" "$dir/reload" "$dir/reload_all" >"$dir/out" 2>&1 <<-'END' || fail "a right that goes"
import socket, subprocess, sys

def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    return s, s.makefile("rb")

def ask(connection, text, lines=1):
    connection[0].sendall(text)
    return [connection[1].readline() for _ in range(lines)]

one, other = connect(), connect()
assert ask(one, b"mn\r\nget app") == [b"MN\r\n"]
subprocess.run(["bash", sys.argv[3]], check=True)
while ask(other, b"mn\r\n") == [b"MN\r\n"]:
    pass
assert ask(one, b"\r\n") == [b"CLIENT_ERROR unauthenticated\r\n"]
assert ask(one, sys.argv[2].encode().decode("unicode_escape").encode()) == [b"STORED\r\n"]
answer = ask(one, b"mn\r\nmn\r\n", 2)
assert answer == [b"MN\r\n"] * 2, answer
subprocess.run(["bash", sys.argv[4]], check=True)
assert one[1].read() == b"", "one that has said a password, and has no right any more, ends"
assert ask(other, b"mn\r\n") == [b"CLIENT_ERROR unauthenticated\r\n"]
END
stop_daemon
conclude
