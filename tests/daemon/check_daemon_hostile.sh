#!/bin/bash
# check_daemon_hostile.sh: clients that flood, hoard and forge, and a log that nobody reads: the daemon answers its operator,
# ends when it is told to, and the others are served.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need python3 jq prlimit

socket=$dir/rdmad.sock
hostile=$srcdir/tests/daemon/hostile.py

counter() { control status | jq ".counters.$1"; }
has_refused() { local now; now=$(counter refused); [[ $now ]] && ((now >= $1)); }
answers() { control status >"$dir/status" && [[ $(jq -r .ok "$dir/status") == true ]]; }

# flood_begin: more connects than the daemon can refuse.
flood_begin() {
	local i
	clients=()
	for i in 1 2 3 4; do
		python3 "$hostile" "$socket" flood 600 >/dev/null 2>&1 &
		clients+=($!)
	done
	wait_for "the flood" has_refused 100
}

flood_end() {
	kill -KILL "${clients[@]}" 2>/dev/null
	wait "${clients[@]}" 2>/dev/null
	clients=()
}

# The main thread has turns for all else beside a flood of requests, and the log is not filled by it.
test_flood() {
	local i lines begin=$SECONDS
	configure
	start_daemon
	flood_begin
	for i in 1 2 3 4 5; do answers || fail "status $i is not answered beside a flood"; done
	kill -HUP "$daemon"
	logged reloaded
	wait_for "1000 refusals" has_refused 1000
	stop_daemon # while it lasts
	flood_end
	lines=$(grep -c "refused: service not enabled" "$dir/log")
	((lines <= 60 * ((SECONDS - begin) / 60 + 2))) || fail "$lines lines of one kind in the log"
	logged "more like the next line will only be counted"
}

# Nobody reads what the daemon writes: it goes on, and ends when it is told to.
test_blocked_log() {
	local reader
	configure 'services = ["ping"];'
	mkfifo "$dir/pipe"
	(
		exec <"$dir/pipe"
		while IFS= read -r line && [[ $line != *ready* ]]; do :; done
		: >"$dir/deaf"
		exec sleep 600
	) &
	reader=$!
	"$rdmad" -c "$dir/rdmad.conf" -v debug >"$dir/pipe" 2>&1 &
	daemon=$!
	wait_for "the start of rdmad" test -e "$dir/deaf"
	[[ $(python3 "$hostile" "$socket" ask 3000) == 3000 ]] || fail "not all were refused"
	answers || fail "no status beside a log that nobody reads"
	server=unix://$socket
	expect 0 ping -c 10
	server=
	kill -TERM "$daemon"
	await_daemon SIGTERM
	kill "$reader"
	wait "$reader" 2>/dev/null
	rm "$dir/pipe"
}

# hold NAME TARGET COUNT [FROM [USER]]: so many connects, whose answers go to a file; they stay until `release NAME`.
# crowd NAME TARGET COUNT: likewise, and all by one worker.
connects() {
	: >"$dir/$2.out" # what one of that name said before are no answers to this one
	python3 "$hostile" "$3" "$1" "${@:4}" >"$dir/$2.out" 2>&1 &
	held[$2]=$!
	clients+=($!)
}
hold() { connects hold "$@"; }
crowd() { connects crowd "$@"; }
declare -A held
release() {
	local name
	for name; do
		kill -KILL "${held[$name]}"
		wait "${held[$name]}" 2>/dev/null
	done
}
said() { [[ $(grep -cs "" "$dir/$1.out") -ge $2 ]]; }
accepted() { grep -c accepted "$dir/$1.out"; }
connections_are() { [[ $(resource connections) == "$1" ]]; }

# One source does not take the places of the others, and they come back.
test_source() {
	local tcp
	configure 'max_connections = 20; max_connections_per_source = 5;'
	start_daemon
	tcp=$(sed -n 's/.*listening on tcp //p' "$dir/log")
	hold first "$tcp" 8
	wait_for "eight answers" said first 8
	[[ $(accepted first) == 5 ]] || fail "$(accepted first) connections of one source, not 5"
	grep -q "refused 11 5" "$dir/first.out" || fail "no reason with the limit: $(tail -n 1 "$dir/first.out")"
	[[ $(counter refused_sources) == 3 && $(counter refused) == 3 ]] || fail "refusals are not counted"
	server=tcp://$tcp
	expect 1 ping -c 1
	complains "all the connections it allows from one address or user, 5"
	server=
	# A user is one source, by whatever address of the loopback, and by the UNIX socket.
	hold second "$tcp" 2 127.0.0.2
	wait_for "two answers" said second 2
	[[ $(accepted second) == 0 ]] || fail "another address of the loopback has $(accepted second)"
	hold third "$socket" 2
	wait_for "two answers" said third 2
	[[ $(accepted third) == 0 ]] || fail "the UNIX socket has $(accepted third)"
	if [[ $(id -u) == 0 ]]; then
		hold other "$tcp" 6 127.0.0.1 65534
		wait_for "six answers" said other 6
		[[ $(accepted other) == 5 ]] || fail "another user has $(accepted other) of 5"
		[[ $(resource sources) == 2 ]] || fail "$(resource sources) sources, not 2"
		release other
	fi
	release first
	wait_for "the first to be gone" connections_are 0
	hold fourth "$tcp" 5
	wait_for "five answers" said fourth 5
	[[ $(accepted fourth) == 5 ]] || fail "places do not come back: $(accepted fourth) of 5"
	sed -i 's/per_source = 5/per_source = 6/' "$dir/rdmad.conf"
	kill -HUP "$daemon"
	logged "max_connections_per_source changed"
	release second third fourth
	wait_for "all to be gone" nobody_is_connected
	stop_daemon
	clients=()
	# By default half, so that one alone does not take all.
	configure 'max_connections = 9;'
	start_daemon
	hold half "$socket" 9
	wait_for "nine answers" said half 9
	[[ $(accepted half) == 5 ]] || fail "$(accepted half) of 9 by default, not 5"
	release half
	stop_daemon
	clients=()
}

# Strangers do not take all places: some are for the users of this machine, and of those some for root.
test_places() {
	local tcp
	[[ $(id -u) == 0 ]] || return 0
	if [[ ! ${places_inside-} ]]; then
		places_inside=1 unshare -n "$0" places || fail "in a network of its own"
		return
	fi
	ip link set lo up && ip address add 10.9.0.1/24 dev lo || return
	listen=(tcp://10.9.0.1:0)
	configure 'max_connections = 64; max_connections_per_source = 40;'
	chmod 711 "$dir"
	start_daemon
	tcp=$(sed -n 's/.*listening on tcp //p' "$dir/log")
	hold first "$tcp" 40 10.9.0.2
	wait_for "forty answers" said first 40
	hold second "$tcp" 40 10.9.0.3
	wait_for "forty answers" said second 40
	[[ $(accepted first) == 40 && $(accepted second) == 22 ]] || fail "two strangers have $(accepted first) and $(accepted second) of 64"
	grep -q "refused 4 62" "$dir/second.out" || fail "no reason with the limit: $(tail -n 1 "$dir/second.out")"
	hold third "$socket" 2 '' 65534
	wait_for "two answers" said third 2
	[[ $(accepted third) == 1 ]] || fail "a user of the machine has $(accepted third) of the last two places"
	hold fourth "$socket" 2
	wait_for "two answers" said fourth 2
	[[ $(accepted fourth) == 1 ]] || fail "root has $(accepted fourth) of the last place"
	release first second third fourth
	wait_for "all to be gone" nobody_is_connected
	stop_daemon
	clients=()
}

# Clients that choose their worker do not fill it, and one that has asked for nothing gives way there, too.
test_crowd() {
	configure 'max_connections = 16; max_connections_per_source = 100; workers = 4; first_request_timeout = "1ms";'
	start_daemon
	crowd first "$socket" 12
	wait_for "twelve answers" said first 12
	[[ $(accepted first) == 12 ]] || fail "a worker has places for $(accepted first) of 12"
	crowd second "$socket" 12
	wait_for "twelve answers" said second 12
	[[ $(accepted second) == 12 ]] || fail "$(accepted second) of 12 have the places of idle clients"
	wait_for "the others to be gone" connections_are 16
	release first second
	wait_for "all to be gone" nobody_is_connected
	stop_daemon
	clients=()
}

# The operator ends a connection, and that one alone.
test_disconnect() {
	local id
	configure
	start_daemon
	hold first "$socket" 3
	wait_for "three answers" said first 3
	id=$(control conn list | jq '.connections[1].id')
	expect 0 conn close "$id" || fail "conn close"
	says "^ *$id " "disconnect tells of the connection"
	wait_for "it to be gone" connections_are 2
	! control conn list | jq -e ".connections[] | select(.id == $id)" >/dev/null || fail "another one was ended"
	expect 1 conn close "$id" && complains "no such connection"
	expect 1 conn close 0 && complains "the id of a connection"
	expect 1 conn close 12x && complains "the id of a connection"
	expect 2 conn close
	release first
	stop_daemon
	clients=()
}

# A client has gone before it was accepted: of that the log says no more than that, whatever buffers it would have had.
test_gone() {
	configure 'services = ["ping", "gpu"];' "gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; };"
	start_daemon
	server=${servers[0]}
	kill -STOP "$daemon"
	"$rdmactl" -H "$server" -t 1s gpu info >"$dir/out" 2>&1 && fail "gpu info of a daemon that was stopped"
	"$rdmactl" -H "$server" -t 1s ping -c 1 -s 100000 >"$dir/out" 2>&1 && fail "ping of a daemon that was stopped"
	kill -CONT "$daemon"
	wait_for "both to have come and gone" closed_are 2
	server=
	stop_daemon
	! grep '^warn .*127[.]0[.]0[.]1' "$dir/log" || fail "a warning of a client that has gone"
}
closed_are() { [[ $(counter closed) == "$1" ]]; }

# A name that a client chose makes no line of the log, and sends nothing to a terminal.
test_forged() {
	configure
	start_daemon -v debug
	python3 "$hostile" "$socket" forged "$dir"'/x\n2026-01-01T00:00:00.000Z error rdmad: forged \x1b[31m\xff' >"$dir/forged" &
	clients+=($!)
	wait_for "its answer" test -s "$dir/forged"
	control conn list | jq -e '[.connections[].peer | test("[\u0000-\u001f]")] | length == 1 and (any | not)' >/dev/null ||
		fail "control characters in a peer's name"
	kill -KILL "${clients[@]}"
	wait "${clients[@]}" 2>/dev/null
	wait_for "it to be gone" nobody_is_connected
	stop_daemon
	clients=()
	! grep -q '^2026' "$dir/log" || fail "a client wrote a line into the log"
	! grep -q $'\x1b' "$dir/log" || fail "a client wrote to the terminal"
}

open_descriptors() { local all=("/proc/$daemon/fd"/*); echo ${#all[@]}; }

# Without a descriptor left the operator is answered all the same, one at a time, and waiting ones cost no processor.
test_descriptors() {
	local begin lines
	configure
	start_daemon
	answers || fail "no status"
	prlimit --pid "$daemon" --nofile="$(open_descriptors):" || return
	answers || fail "no status without a descriptor"
	python3 -c 'import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print("in", flush=True); time.sleep(600)' \
		"$dir/control.sock" >"$dir/silent" &
	clients+=($!)
	wait_for "a silent client" test -s "$dir/silent"
	begin=$SECONDS
	answers || fail "no status behind a silent client"
	lines=$(grep -c "cannot take a client" "$dir/log")
	((lines <= 10 * (SECONDS - begin + 2))) || fail "$lines attempts to take a client in $((SECONDS - begin)) s"
	kill -KILL "${clients[@]}"
	wait "${clients[@]}" 2>/dev/null
	stop_daemon
	clients=()
}

parts=(flood blocked_log source places crowd forged disconnect gone descriptors)
[[ $# == 0 ]] || parts=("$@")
for part in "${parts[@]}"; do
	echo "$part"
	"test_$part"
done
conclude
