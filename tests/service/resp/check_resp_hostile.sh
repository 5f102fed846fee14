#!/bin/bash
# What no client of Redis's protocol does by mistake: keys of a transaction that go before its step ends, the same long value written by
# several threads, passwords given again.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 jq

configure 'workers = 2;' 'services = ["kv", "resp"];' 'kv = { memory = "64M"; eviction = "s3-fifo"; };' "resp.unix_socket = \"$dir/redis.sock\";"
start_daemon
timeout 240 python3 "$srcdir/tests/service/resp/resp_hostile.py" "$dir/redis.sock" "$(part 4000)" || fail "a hostile client"
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
timeout 240 python3 "$srcdir/tests/service/resp/resp_hostile.py" "$dir/redis.sock" 0 bash "$dir/reload" || fail "a reload"
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

# One user of this machine, without a password, counts from the first command on, and until it is another client.
printf '%s\n' "@$(id -u) kv resp read= write= connections=1" 'app kv resp read= write= connections=1' >"$dir/clients"
configure 'services = ["kv", "resp"];' "resp.unix_socket = \"$dir/redis.sock\";" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; local = \"user\"; };"
start_daemon
timeout 120 python3 - "$dir/redis.sock" "$password" "$rdmactl" "$dir/control.sock" <<'END' || fail "connections= of a user"
import socket, subprocess, sys

def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    return s, s.makefile("rb")

def ask(connection, text):
    connection[0].sendall(text)
    return connection[1].readline()

def is_refused():
    try:
        return ask(connect(), b"PING\r\n") != b"+PONG\r\n"
    except ConnectionError:
        return True

one = connect()
assert ask(one, b"GET k\r\n") == b"$-1\r\n" and is_refused()
assert connect()[1].readline().startswith(b"-ERR max number of clients")
subprocess.run([sys.argv[3], "--control", sys.argv[4], "reload"], check=True, stdout=subprocess.DEVNULL)
assert ask(one, b"PING\r\n") == b"+PONG\r\n" and is_refused()
assert ask(one, b"AUTH app %s\r\n" % sys.argv[2].encode()) == b"+OK\r\n"
two = connect()
assert ask(two, b"PING\r\n") == b"+PONG\r\n" and is_refused()
two[0].shutdown(socket.SHUT_RDWR)
while is_refused():
    pass
END
stop_daemon

# A client that resets its connection is named in the log; one that has begun a command, a long value or a transaction, and does not
# go on, does not hold up the end.
resp_port() { port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for resp.*/\1/p' "$dir/log"); [[ $port ]]; }
configure 'services = ["kv", "resp"];' 'drain_timeout = "1000s";' 'stall_timeout = "1000s";' 'resp = { listen = ["127.0.0.1"]; port = 0; };'
start_daemon
wait_for "the port" resp_port
reset=$(python3 -c 'import socket, struct, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"PING\r\n")
s.recv(7)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
print("%s:%u" % s.getsockname())
s.close()' "$port")
logged "$reset (tcp): "
coproc BEGUN { exec python3 -c 'import socket, sys
begun = [b"*2\r\n$3\r\nGET\r\n$100\r\nk", b"MULTI\r\nSET k v\r\n", b"WATCH k\r\nMULTI\r\nGE",
         b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n" + bytes(300000), b"*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$20000\r\n" + bytes(20000)]
clients = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in begun]
for s, text in zip(clients, begun):
    s.sendall(b"PING\r\n" + text)
    s.recv(7)
print("begun", flush=True)
for s in clients:
    try:
        while s.recv(1000):
            pass
    except ConnectionResetError:  # what it sent last was not read
        pass
print("closed", flush=True)' "$port"; }
read -r -t 60 -u "${BEGUN[0]}" line && [[ $line == begun ]] || fail "clients that begin: \"$line\""
exec {ends}<&"${BEGUN[0]}"
stop_daemon
read -r -t 60 -u "$ends" line && [[ $line == closed ]] || fail "clients that do not go on: \"$line\""
conclude
