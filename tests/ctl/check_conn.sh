#!/bin/bash
# What operators see of connections: each of them, whatever protocol it speaks, and the end of one.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3

# A client that says each line of its standard input at a UNIX socket, and keeps the answers' bytes. hold FILE SOCKET
hold() {
	coproc CLIENT { exec python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
for line in sys.stdin:
    s.sendall(line.rstrip("\n").encode().decode("unicode_escape").encode())
    print(s.recv(65536).decode().replace("\r\n", " "), flush=True)' "$1"; }
	clients+=("$CLIENT_PID")
}
# ask TEXT: of that client, and its answer.
ask() {
	echo "$1" >&"${CLIENT[1]}"
	read -r -t 60 -u "${CLIENT[0]}" answer || fail "no answer to $1"
}
# leave: its end is seen.
leave() {
	kill -KILL "$CLIENT_PID"
	wait "$CLIENT_PID" 2>/dev/null
	clients=()
	wait_for "it to be gone" nobody_is_connected
}
# shown FILTER: of the one connection, by jq.
shown() { control conn list | jq -r ".connections[0] | ($1)" 2>/dev/null; }
has_asked() { (($(shown '.records_in // 0') > $1)); }
is_shown() { [[ $(shown ".$1") == "$2" ]]; }

umask 077
configure 'services = ["ping", "kv", "resp", "memcached"];' "resp.unix_socket = \"$dir/resp.sock\";" \
	"memcached.unix_socket = \"$dir/memcached.sock\";" "auth = { keys = \"$dir/keys\"; };"
"$rdmactl" --quiet key new lab --into "$dir/keys" >"$dir/lab.key" || give_up "no key"
start_daemon
user=@$(id -u)

expect 0 conn list && says '^connections: none' "no connection"
expect 1 conn show 1 && complains "no such connection" "conn show"
expect 1 conn close 1 && complains "no such connection" "conn close"
expect 1 conn show x && complains "the id of a connection" "conn show x"
expect 2 conn show && complains usage "conn show without an id"
expect 2 conn && complains "which of the above" conn

# Redis's protocol.
hold "$dir/resp.sock"
ask 'PING\r\n' && [[ $answer == +PONG* ]] || fail "PING: $answer"
[[ $(shown '.service + " " + .transport + " " + .key') == "resp unix $user" ]] || fail "a client of Redis's: $(control conn list)"
ask "SET a b\r\nGET a\r\n" || fail "SET"
is_shown records_in 3 || fail "requests of a client of Redis's: $(shown .records_in)"
is_shown records_out 3 || fail "answers of a client of Redis's: $(shown .records_out)"
is_shown in_flight 0 || fail "in flight of a client at rest: $(shown .in_flight)"
[[ $(shown .in_bytes) == 22 && $(shown .out_bytes) == 19 ]] || fail "bytes: $(control conn list)"
ask "AUTH lab $("$rdmactl" key resp "$dir/lab.key" lab)\r\n" && [[ $answer == +OK* ]] || fail "AUTH: $answer"
is_shown key lab || fail "its key: $(shown .key)"
id=$(shown .id)
expect 0 conn list && says "^  *id  address .* in flight$" "the table" && says "^ *$id .* resp .* lab .*established" "the table"
expect 0 conn show "$id" && says "^service  *resp$" "conn show" && says "^records in  *4$" "conn show"
expect 0 conn close "$id" && says "^ *$id " "conn close tells of it"
wait_for "the end" nobody_is_connected
logged "disconnects #$id,"
leave

# memcached's.
hold "$dir/memcached.sock"
ask 'set a 0 0 1\r\nb\r\n' && [[ $answer == STORED* ]] || fail "set: $answer"
ask 'get a\r\n'
[[ $(shown '"\(.service) \(.records_in) \(.records_out) \(.key)"') == "memcached 2 2 $user" ]] || fail "a client of memcached's: $(control conn list)"
expect 0 conn show "$(shown .id)" && says "^service  *memcached$" "conn show"
leave

# rdmad's own, by a key and without: what was asked is in the list as long as the client is.
server=unix://$dir/rdmad.sock
"$rdmactl" -H "$server" ping -c 100000000 >/dev/null 2>&1 &
clients+=($!)
wait_for "its pings" has_asked 10
[[ $(shown '"\(.service) \(.transport) \(.key)"') == "ping shm $user" ]] || fail "a client of ping: $(control conn list)"
ctl conn close "$(shown .id)" || fail "conn close of ping"
wait "${clients[0]}" && fail "a ping goes on whose connection was closed"
clients=()
server=${servers[0]}
"$rdmactl" -H "$server" --key "$dir/lab.key" ping -c 100000000 >/dev/null 2>&1 &
clients+=($!)
wait_for "its pings" has_asked 10
[[ $(shown '"\(.service) \(.key)"') == "ping lab" ]] || fail "a client with a key: $(control conn list)"
ctl conn close "$(shown .id)"
wait "${clients[0]}"
clients=()
stop_daemon
conclude
