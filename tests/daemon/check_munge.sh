#!/bin/bash
# check_munge.sh: clients of whom MUNGE says which user they are, with a munged of the test's own.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
PATH=$PATH:/usr/sbin # of munged
need jq munged munge
: "${rdmarun:=$builddir/rdmarun}"
export HOME=$dir RDMAD_KEY_FILE='' RDMAD_MUNGE_SOCKET=$dir/realm/socket
me=@$(id -u)
umask 077

counter() { control status | jq ".counters.$1"; }
rights() { printf '%s\n' "$@" >"$dir/clients"; }
reload() { control reload >/dev/null || fail "reload: $*"; }

# realm NAME: a munged with a key of its own, in a directory that all may enter; its process is $munged.
realm() {
	local at=$dir/$1
	mkdir -p "$at"
	chmod 711 "$dir"
	chmod 755 "$at"
	[[ -e $at/key ]] || (umask 077 && head -c 1024 /dev/urandom >"$at/key")
	munged --foreground --force --num-threads=2 --socket="$at/socket" --key-file="$at/key" --pid-file="$at/pid" \
		--log-file="$at/log" --seed-file="$at/seed" >"$at/said" 2>&1 &
	munged=$!
	clients+=("$munged")
	answers() { munge --socket="$at/socket" -n >/dev/null 2>&1; }
	wait_for "munged of $1" answers
}

realm other
realm realm
settings=('services = ["ping", "kv", "channel", "peer"];' "auth = { clients = \"$dir/clients\"; munge = true; };")
rights "$me ping kv read= write=mine/" '* ping'

# The client's user has the rights of its line, by each transport.
test_rights() {
	local at
	configure "${settings[@]}"
	ends 0 "no errors" "$rdmad" -t --offline -c "$dir/rdmad.conf"
	start_daemon
	for at in "${servers[@]}"; do
		server=$at
		expect 0 --munge ping -c 3
		expect 0 --munge kv set mine/x hello
		expect 0 --munge kv get mine/x && says hello
		expect 1 --munge kv set other/x 1 && complains "no right to it"
		expect 1 --munge channel list && complains "no right to the service channel"
		expect 0 --munge key check && says "MUNGE; to the server this is $me"
		"$rdmactl" --json -H "$at" --munge key check | jq -e ".key.name == \"$me\" and .services.kv == \"yes\" and
			.services.peer == \"no right\"" >/dev/null || fail "key check as JSON"
	done
	server=${servers[0]}
	logged "of user ${me#@}, refused: rights"
	expect 2 --munge --key "$dir/no.key" ping -c 1 && complains "choose one"
	rights "$me ping connections=1"
	reload "one connection"
	"$rdmactl" -H "$server" --munge ping -i 100ms >"$dir/pings" 2>&1 &
	clients+=($!)
	logged "64 bytes" "$dir/pings"
	expect 1 --munge ping -c 1 && complains "all the connections it allows from one address or user, 1"
	kill $!
}

# A reload takes rights away, and MUNGE as well.
test_reload() {
	local pid
	rights "$me ping kv"
	reload "ping"
	"$rdmactl" -H "$server" --munge ping -i 100ms >"$dir/pings" 2>&1 &
	pid=$!
	clients+=("$pid")
	logged "64 bytes" "$dir/pings"
	reload "nothing is changed"
	kill -0 "$pid" || fail "a reload that changed nothing ended a connection"
	rights "$me kv"
	reload "no ping"
	wait_for "the end of the connection" ended "$pid"
	rights "$me ping kv"
	reload "ping again"
	"$rdmactl" -H "$server" --munge ping -i 100ms >"$dir/pings" 2>&1 &
	pid=$!
	clients+=("$pid")
	logged "64 bytes" "$dir/pings"
	sed -i 's/munge = true/munge = false/' "$dir/rdmad.conf"
	reload "no MUNGE"
	wait_for "the end of the connection" ended "$pid"
	expect 1 --munge ping -c 1 && complains "asks for a key, or for another one"
	expect 0 ping -c 1
	sed -i 's/munge = false/munge = true/' "$dir/rdmad.conf"
	reload "MUNGE again"
	expect 0 --munge ping -c 1
}

# What fails says why, and what mends it.
test_failures() {
	local unproved=$(counter unproved)
	RDMAD_MUNGE_SOCKET=$dir/nothing expect 1 --munge ping -c 1 && complains "nothing.*systemctl start munge"
	RDMAD_MUNGE_SOCKET=$dir/other/socket expect 1 --munge ping -c 1 && complains "its log says why: clocks that differ"
	logged "/etc/munge/munge.key"
	kill "$munged"
	wait "$munged" 2>/dev/null
	expect 1 --munge ping -c 1 && complains "munged does not answer.*systemctl start munge"
	reload "without munged"
	logged "no client can prove itself so for now: munged does not answer"
	# The daemon's is gone, but not the client's.
	cp "$dir/realm/key" "$dir/other/key.of.realm"
	mv "$dir/realm" "$dir/moved"
	realm realm2
	RDMAD_MUNGE_SOCKET=$dir/realm2/socket expect 1 --munge ping -c 1 && complains "its log says why"
	logged "munged does not answer"
	kill "$munged"
	wait "$munged" 2>/dev/null
	mv "$dir/moved" "$dir/realm"
	realm realm
	expect 0 --munge ping -c 1
	[[ $(counter unproved) == $((unproved + 2)) ]] || fail "unproved: $unproved, then $(counter unproved)"
}

# With keys, too; clients that have one go on as ever.
test_beside_keys() {
	stop_daemon
	"$rdmactl" --quiet key new app --into "$dir/keys" >"$dir/app.key"
	rights "app ping" "$me kv read= write="
	configure "${settings[0]}" "auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; munge = true; };"
	start_daemon -l tcp://0.0.0.0:0
	server=${servers[0]}
	expect 0 --key "$dir/app.key" ping -c 1
	expect 0 --munge kv set x 1
	expect 1 --munge ping -c 1 && complains "no right"
	stop_daemon
	configure "${settings[@]}"
	start_daemon -l tcp://0.0.0.0:0 # they are asked for their user
	server=${servers[0]}
	expect 0 --munge kv set x 1
}

# Programs that rdmad introduces have tickets by it.
test_introduced() {
	local pid moved
	rights "$me channel peer names="
	reload "names"
	moved=$(counter channel_moved)
	mkdir -p -m 700 "$dir/elsewhere"
	"$rdmactl" --quiet --munge channel listen "meet://${server#*://}/met" >"$dir/got" 2>"$dir/listener" &
	pid=$!
	clients+=("$pid")
	listened() { ctl --munge channel list && grep -q met "$dir/out"; }
	wait_for "the listener" listened
	XDG_RUNTIME_DIR=$dir/elsewhere "$rdmactl" --quiet --munge channel push "meet://${server#*://}/met" <<<"by a ticket" \
		2>"$dir/err" || fail "a channel"
	wait_for "what was sent" grep -q "by a ticket" "$dir/got"
	[[ $(counter channel_moved) -gt $moved ]] || fail "they did not meet directly"
	kill "$pid" 2>/dev/null
	[[ -x $rdmarun ]] || return
	ends 0 "2 ranks" timeout 120 "$rdmarun" -n 2 --meeting "$server" "$rdmactl" --munge bench peer -s 8 -D 1ms
	ends 0 "no errors" "$rdmad" -t --offline -c "$dir/rdmad.conf"
}

# What MUNGE itself keeps from coming twice: the cases of a suite, with this realm.
test_suite() {
	[[ -x $builddir/tests/conn/check_munge ]] || return
	"$builddir/tests/conn/check_munge" >"$dir/out" 2>&1 || fail "tests/conn/check_munge with munged"
}

# The server's user is to be root, that of the client, or the one that is named.
test_server_user() {
	local other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	[[ $(id -u) = 0 ]] && command -v setpriv >/dev/null || return
	stop_daemon
	mkdir "$dir/theirs"
	chown 65534 "$dir/theirs"
	cat >"$dir/theirs/rdmad.conf" <<-CONF
		listen = ["tcp://127.0.0.1:0"];
		unix_socket = "$dir/theirs/rdmad.sock";
		control = { socket = "$dir/theirs/control.sock"; }; kv.memory = "64M";
		auth = { munge = true; };
	CONF
	chown 65534 "$dir/theirs/rdmad.conf"
	"${other[@]}" "$rdmad" -c "$dir/theirs/rdmad.conf" >"$dir/log" 2>&1 &
	daemon=$!
	server=unix://$dir/theirs/rdmad.sock
	wait_for "the daemon of another user" test -S "$dir/theirs/rdmad.sock"
	expect 1 --munge ping -c 1 && complains "the server is of user 65534.*--server-user 65534"
	expect 0 --munge --server-user 65534 ping -c 1
	expect 0 --munge --server-user "$(id -nu 65534)" ping -c 1
	expect 2 --munge --server-user nobody.at.all ping -c 1 && complains "no user of this machine"
	expect 1 --munge --server-user 1 ping -c 1 && complains "the server is of user 65534"
	# Of the same user.
	ends 0 "64 bytes" "${other[@]}" "$rdmactl" -H "$server" --munge ping -c 1
	kill "$daemon"
	await_daemon SIGTERM
}

for part in rights reload failures beside_keys introduced suite server_user; do
	"test_$part"
done
conclude
