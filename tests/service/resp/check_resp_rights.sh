#!/bin/bash
# What a client of Redis's protocol may do to keys: commands on all keys show the ones that it may read, and no others. It
# hears of no others, either.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need redis-cli jq python3

redis() { timeout 60 redis-cli -s "$dir/redis.sock" "$@" 2>&1 | LC_ALL=C sort | tr '\n' ' '; }
# answers TEXT COMMAND...: so, with lines in the order of their bytes.
answers() {
	local want=$1 got
	shift
	got=$(redis "$@")
	[[ $got == "$want" ]] || fail "$*: \"$got\", not \"$want\""
}
# may RIGHT...: of this user.
may() { echo "@$(id -u) kv resp $*" >"$dir/clients"; }

may read= write= flush
configure 'services = ["kv", "resp"];' "resp.unix_socket = \"$dir/redis.sock\"; resp.scripts = true;" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; local = \"user\"; };"
"$rdmactl" --quiet key new lab --into "$dir/keys" >"$dir/lab.key" || give_up "no key"
start_daemon

answers "OK " MSET app/1 a app/2 b other c
answers "app/1 app/2 other " KEYS '*'
answers "(integer) 3 " --no-raw DBSIZE

may read=app/ write=app/ flush
ctl reload || fail "reload"
wait_for "the rights of the file" grep -q NOPERM <(redis GET other)
answers "app/1 app/2 " KEYS '*'
answers "app/1 " KEYS '*1'
answers " " KEYS 'o*'
answers "0 app/1 app/2 " SCAN 0 COUNT 100
answers "0 app/2 " SCAN 0 MATCH '*2' COUNT 100
for ((i = 0; i < 20; i++)); do [[ $(redis RANDOMKEY) == app/* ]] || fail "RANDOMKEY shows another key"; done
may read=none/ write=app/
ctl reload || fail "reload"
wait_for "the rights of the file" grep -q NOPERM <(redis GET app/1)
answers " " KEYS '*'
answers " " RANDOMKEY

# What a command may do to keys depends on its options, and its keys on its arguments.
answers "OK " SET app/1 b
answers "OK " SET app/1 b XX EX 1000
for option in GET 'IFEQ b' 'IFNE x' 'IFDEQ x' 'IFDNE x'; do
	# shellcheck disable=SC2086 # two words
	[[ $(redis SET app/1 c $option) == *NOPERM* ]] || fail "SET $option tells of a value that may not be read"
done
answers "1 " MSETEX 2 app/1 d app/2 e
[[ $(redis MSETEX 2 app/1 x other x) == *NOPERM* ]] || fail "MSETEX writes a key that may not be written"
[[ $(redis DELEX app/1 IFEQ d) == *NOPERM* ]] || fail "DELEX tells of a value that may not be read"
[[ $(redis OBJECT ENCODING app/1) == *NOPERM* ]] || fail "OBJECT tells of a value that may not be read"
[[ $(redis FLUSHALL) == *NOPERM* ]] || fail "FLUSHALL without the right"
# Each command of a script is looked at; where it may not, the script may go on.
if [[ $(redis EVAL 'return 1' 0) != *'no Lua'* ]]; then
	[[ $(redis EVAL "return redis.call('SET', 'other', 'x')" 0) == *NOPERM* ]] || fail "a script writes a key that may not be written"
	[[ $(redis EVAL "return redis.call('GET', 'app/1')" 0) == *NOPERM* ]] || fail "a script reads a key that may not be read"
	[[ $(redis EVAL "redis.pcall('SET', 'other', 'x') return redis.call('SET', 'app/1', 'y')" 0) == *OK* ]] || fail "a script may not go on"
fi
timeout 240 python3 "$srcdir/tests/service/resp/resp_rights.py" "$dir/redis.sock" "$dir/clients" \
	"$("$rdmactl" key resp "$dir/keys" lab)" "$rdmactl" --control "$dir/control.sock" reload >"$dir/reloads" || fail "what clients hear of"
stop_daemon

# A client that said a password goes when a reload takes its line or its key. Reloads before were of other lines.
lab() { printf '%s\n' "lab kv ${1-resp read= write=}" 'other kv resp' >"$dir/clients"; }
lab
configure 'workers = 1;' 'services = ["kv", "resp"];' "resp.unix_socket = \"$dir/redis.sock\";" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
start_daemon
# ends LINE COMMAND...: a connection of lab's that is told LINE ends by the command, and none before.
ends() {
	local password
	password=$("$rdmactl" key resp "$dir/keys" lab)
	timeout 120 python3 - "$dir/redis.sock" "$password" "$rdmactl" "$dir/control.sock" "$@" <<-'END' || fail "$*"
	import socket, subprocess, sys

	def connect():
	    s = socket.socket(socket.AF_UNIX)
	    s.connect(sys.argv[1])
	    return s, s.makefile("rb")

	def ask(connection, text):
	    connection[0].sendall(text)
	    return connection[1].readline()

	def reload():
	    subprocess.run([sys.argv[3], "--quiet", "--control", sys.argv[4], "reload"], check=True,
	                   stdout=subprocess.DEVNULL)

	stranger, client = connect(), connect()
	assert ask(client, b"AUTH lab %s\r\n" % sys.argv[2].encode()) == b"+OK\r\n"
	reload()
	assert ask(client, b"SET a b\r\n") == b"+OK\r\n"
	subprocess.run(["bash", "-c", sys.argv[5]], check=True)
	reload()
	assert client[1].read() == b""
	reload()  # of the keys and lines that it had, nothing is read any more
	subprocess.run([sys.argv[3], "--quiet", "--control", sys.argv[4], "conn", "list"], check=True,
	               stdout=subprocess.DEVNULL)
	assert ask(stranger, b"GET a\r\n").startswith(b"-NOAUTH"), "a stranger stays"
	END
}
export dir
ends 'printf "%s\n" "other kv resp" >"$dir/clients"'
lab
ctl reload || fail "reload"
ends 'printf "%s\n" "lab kv read= write=" >"$dir/clients"'
lab
"$rdmactl" --quiet key new other --into "$dir/keys" >"$dir/other.key" || fail "no key"
ctl reload || fail "reload"
ends 'sed -i /:lab:/d "$dir/keys"'
[[ $(control status | jq .counters.revoked) == 3 ]] || fail "revoked: $(control status | jq .counters.revoked)"
stop_daemon
conclude
