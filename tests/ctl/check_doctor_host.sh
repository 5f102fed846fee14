#!/bin/bash
# rdmactl doctor towards a host: the furthest stage that was verified stands there, and no later one. In the guest, which has a
# device, things are broken in turn, and each has the finding that names it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq
server=''

# found NUMBER TEXT: among the findings, and the text in its figures or command.
found() {
	[[ $(jq -r ".findings[] | select(.id == \"RD-$1\") | .figures + \" \" + .command" "$dir/out") == *"$2"* ]] || fail "no RD-$1 with \"$2\""
}
# reaches TRANSPORT STAGE
reaches() { json ".paths[] | select(.transport == \"$1\") | .furthest == \"$2\"" "$1 does not come as far as $2"; }
last=load # two seconds of messages, behind the longest

doctor() { expect "$1" doctor --config "$dir/rdmad.conf" --json "${@:2}"; }

test_tcp() {
	local at=${servers[0]}
	doctor 0 "$at"
	reaches tcp "$last" && json '.paths[] | select(.transport == "tcp") | .largest_bytes == 1048552' "the largest that works"
	json '[.paths[] | select(.transport == "tcp").stages[]] | .[-2].stage == "message of 1048552 B" and .[-1].verified and
		(.[-1].figures | capture("^(?<n>[0-9]+) messages of 65536 B in (?<s>[0-9.]+) s$") | (.n | tonumber) > 0 and (.s | tonumber) >= 2)' "the load"
	json '[.paths[] | select(.transport == "tcp").stages[] | .stage][:4] == ["name", "connect", "handshake", "message of 64 B"]' "stages"
	expect 0 doctor --config "$dir/rdmad.conf" "$at" && says 'by tcp: furthest stage verified: load' "as text"
	doctor 2 tcp://127.0.0.1:1 && found 4002 'sport = :1' && reaches tcp name
	doctor 2 tcp://nosuchhost.invalid && found 4001 'getent hosts nosuchhost.invalid' && reaches tcp nothing
	expect 3 ping tcp://127.0.0.1:1 --json && json '.error.id == "RD-6001"' "an error with its number" && complains 'explain RD-6001'
	expect 2 doctor "unix://$dir/rdmad.sock" && complains 'is not a host' "a path"
	expect 2 doctor a:b && complains 'is not an address' "no address"
}

# What listens there and is no rdmad: a connection, and no handshake.
test_stranger() {
	python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
while True: s.accept()[0].close()' >"$dir/port" &
	clients=($!)
	wait_for "a stranger" test -s "$dir/port"
	doctor 2 "tcp://127.0.0.1:$(<"$dir/port")" && found 4004 'tcp to' && reaches tcp connect
	kill "${clients[0]}" && wait "${clients[0]}" 2>/dev/null
	clients=()
}

# On the way connections end that carry much: a ping of any length comes back, and a load does not.
test_load() {
	local at=${servers[0]}
	rm -f "$dir/port"
	python3 - "${at##*:}" >"$dir/port" <<-'END' &
	import socket, sys, threading
	MOST = 8 << 20
	def carry(a, b):
	    left = MOST
	    try:
	        while left > 0 and (data := a.recv(65536)):
	            b.sendall(data)
	            left -= len(data)
	    except OSError:
	        pass
	    for s in a, b:
	        try:
	            s.shutdown(socket.SHUT_RDWR)
	        except OSError:
	            pass
	s = socket.create_server(("127.0.0.1", 0))
	print(s.getsockname()[1], flush=True)
	while True:
	    a, b = s.accept()[0], socket.create_connection(("127.0.0.1", int(sys.argv[1])))
	    for way in (a, b), (b, a):
	        threading.Thread(target=carry, args=way, daemon=True).start()
	END
	clients=($!)
	wait_for "a way" test -s "$dir/port"
	doctor 2 "tcp://127.0.0.1:$(<"$dir/port")" && found 4012 'tcp: ' && found 4012 'rdmactl doctor 127.0.0.1, again'
	reaches tcp "message of 1048552 B"
	kill "${clients[0]}" && wait "${clients[0]}" 2>/dev/null
	clients=()
}

test_short_messages() {
	configure 'message_max = "64K";'
	start_daemon
	doctor 0 "${servers[0]}" && found 4011 'message_max' && reaches tcp "message of 4096 B"
	stop_daemon
}

# What the daemon tells of its machine, to clients that have the right to it.
test_facts() {
	local at=${servers[0]}
	doctor 0 "$at" && json '.there.version == "'"$("$rdmactl" version --json | jq -r .librdmad)"'" and (.there.ports | type) == "array"' "what is there"
	json '[.findings[] | select(.check == "D41" and .id != "RD-4112")] == []' "here and there are one machine"
	expect 0 doctor --config "$dir/rdmad.conf" --bundle "$dir/bundle.tar" "$at"
	tar xOf "$dir/bundle.tar" --wildcards '*programs/there' | grep -q '^facts 1$' || fail "the bundle lacks what is there"
	stop_daemon
	(umask 077 && "$rdmactl" key new app --into "$dir/keys" >"$dir/app.key" 2>"$dir/err") || fail "no key"
	echo 'app ping' >"$dir/clients"
	configure "auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
	start_daemon
	at=${servers[0]}
	doctor 0 --key "$dir/app.key" "$at" && found 4102 '"facts"' && json '.there == {}' "it is told to a client without the right"
	echo 'app ping facts' >"$dir/clients"
	expect 0 reload
	doctor 0 --key "$dir/app.key" "$at" && json '.there.facts == "1"' "a client with the right"
	doctor 2 "$at" && json '.there == null' "a client without a key"
	stop_daemon
	configure
	start_daemon
}

# What is told changes on the way: a time that no clock has.
test_liar() {
	local at=${servers[0]}
	rm -f "$dir/port"
	python3 - "${at##*:}" >"$dir/port" <<-'END' &
	import re, socket, sys, threading
	def lie(match):
	    return b"clock_us -" + b"9" * (len(match[0]) - 11) + b"\n"
	def carry(a, b):
	    try:
	        while data := a.recv(65536):
	            b.sendall(re.sub(rb"clock_us [0-9]+\n[a-z]+_bytes [0-9]+\n", lie, data))
	    except OSError:
	        pass
	    for s in a, b:
	        try:
	            s.shutdown(socket.SHUT_RDWR)
	        except OSError:
	            pass
	s = socket.create_server(("127.0.0.1", 0))
	print(s.getsockname()[1], flush=True)
	while True:
	    a, b = s.accept()[0], socket.create_connection(("127.0.0.1", int(sys.argv[1])))
	    for way in (a, b), (b, a):
	        threading.Thread(target=carry, args=way, daemon=True).start()
	END
	clients=($!)
	wait_for "a way" test -s "$dir/port"
	doctor 0 "tcp://127.0.0.1:$(<"$dir/port")" && found 4105 's behind'
	kill "${clients[0]}" && wait "${clients[0]}" 2>/dev/null
	clients=()
}

# Of a cluster's nodes one is this server, one answers nobody, and the daemon has the table of its start.
test_cluster() {
	"$rdmactl" cluster make "a=${servers[0]#*://}" b=127.0.0.1:1 >"$dir/table" 2>"$dir/err" || fail "no table"
	stop_daemon
	configure "cluster = { table = \"$dir/table\"; node = \"a\"; };"
	start_daemon
	doctor 0 && found 3204 'rdmactl doctor 127.0.0.1:1' && json '[.findings[] | select(.check == "D32")] | length == 1' "the node that is this one"
	"$rdmactl" cluster plan "$dir/table" add c=127.0.0.1:2 >"$dir/next" 2>"$dir/err" && mv "$dir/next" "$dir/table"
	doctor 0 && found 3203 'has the epoch 2, the daemon 1'
	# What listens by RDMA alone takes no connection by TCP.
	"$rdmactl" cluster make "a=${servers[0]#*://}" b=rdma://127.0.0.1:1 >"$dir/table" 2>"$dir/err" || fail "no table"
	doctor 0 && json '[.findings[] | select(.id == "RD-3204")] == []' "a node by RDMA is not tried by TCP"
	echo junk >>"$dir/table"
	doctor 2 && found 3201 "cluster check $dir/table"
	stop_daemon
	# An engine that is not there.
	configure "cluster = { engine = \"etcd\"; endpoints = [\"http://127.0.0.1:1\"]; name = \"kv\"; node = \"a\"; period = \"1s\"; };"
	start_daemon
	lost() { control status | jq -e ".engine.lost > 1" >/dev/null; }
	wait_for "requests that etcd does not answer" lost
	doctor 2 && found 3205 'cluster show --name kv --etcd http://127.0.0.1:1' && found 3206 'curl -sS http://127.0.0.1:1/health'
	stop_daemon
	configure
	start_daemon
}

# Another program has the port of the configuration; then rdmad itself.
test_port() {
	local at=${servers[0]} user
	sed -i "1a port = ${at##*:};" "$dir/rdmad.conf"
	doctor 0
	json '[.findings[] | select(.id == "RD-2501")] == []' "the port is the daemon's own"
	# What rdmad says of its own port is no error; each of its errors is told.
	sed "\$a log = { directory = \"$dir/none/log\"; policy = \"interval\"; };" "$dir/rdmad.conf" >"$dir/wrong.conf"
	sed -i 's/^listen = \[/&"tcp:\/\/203.0.113.1", /' "$dir/wrong.conf"
	expect 2 doctor --config "$dir/wrong.conf" --json && found 5001 203.0.113.1 && found 5005 "$dir/none/log"
	rm "$dir/port"
	python3 -c 'import socket, time; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(600)' >"$dir/port" &
	clients=($!)
	wait_for "a stranger" test -s "$dir/port"
	sed -i "2s/.*/port = $(<"$dir/port");/" "$dir/rdmad.conf"
	doctor 2 && found 2501 "python3, process ${clients[0]}"
	kill "${clients[0]}" && wait "${clients[0]}" 2>/dev/null
	clients=()
}

# A log in memory.
test_log() {
	local shm=/dev/shm/rdmad-doctor.$$
	[[ $(stat -f -c %T /dev/shm 2>/dev/null) == tmpfs ]] || return 0
	mkdir -m 700 "$shm" || return 0
	configure "log = { directory = \"$shm\"; policy = \"interval\"; };"
	doctor 0 && found 2803 "$shm is on tmpfs"
	rmdir "$shm" || fail "doctor left something in the directory of the log"
	configure "log = { directory = \"$dir/none/log\"; policy = \"interval\"; };"
	doctor 2 && found 5005 "install -d -o rdmad -m 700 $dir/none/log"
	json '[.findings[].id | select(. == "RD-2603")] == []' "what rdmad says in the way of its start is told once"
	mkdir -m 777 "$dir/log.d" && chmod 777 "$dir/log.d"
	configure "log = { directory = \"$dir/log.d\"; policy = \"interval\"; };"
	doctor 2 && found 2802 'mode 0777' && found 2802 "chmod go-w $dir/log.d"
	chmod 700 "$dir/log.d"
	doctor 0 && json '[.findings[].id | select(. == "RD-2802")] == []' "a directory that is the daemon's own"
	configure "log = { directory = \"$dir/log.d\"; policy = \"interval\"; };" 'kv.memory = "64T";'
	doctor 2 && found 2804 "$dir/log.d: free" && found 5006 kv.memory
}

test_config() {
	echo 'nonsense = 1;' >>"$dir/rdmad.conf"
	doctor 2 && found 2601 'unknown setting nonsense'
}

# as_nobody ARGUMENT...: an ordinary user's doctor, with a limit of locked memory.
as_nobody() {
	(ulimit -l 64 && timeout 240 setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
		"$rdmactl" --control "$dir/none" doctor --config "$dir/rdmad.conf" --json "$@" >"$dir/out" 2>"$dir/err")
}

# Which user the unit has systemd is asked once, however many checks want to know.
test_user() {
	setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$rdmactl" 2>/dev/null || return 0
	(umask 077 && "$rdmactl" key new app --into "$dir/keys.d" >/dev/null 2>"$dir/err") || fail "no key"
	configure "auth = { keys = \"$dir/keys.d\"; };"
	mkdir -p "$dir/bin" && : >"$dir/asked"
	printf '%s\n' '#!/bin/sh' "echo \"\$*\" >>'$dir/asked'" 'printf "User=root\nLoadState=loaded\n"' >"$dir/bin/systemctl"
	chmod 755 "$dir" "$dir/bin" "$dir/bin/systemctl" && chmod 644 "$dir/rdmad.conf" && chmod 666 "$dir/asked"
	PATH=$dir/bin:$PATH as_nobody
	json '.command == "doctor"' "a report"
	[[ $(grep -c -e '-p User' "$dir/asked") == 1 ]] || fail "systemctl was asked for: $(cat "$dir/asked")"
}

# Whether no finding is of the local checks of RDMA but notes.
rdma_is_well() { json '[.findings[] | select(.severity != "note" and .id < "RD-1400")] == []' "$1"; }

# One by one, and mended after that.
test_guest() {
	local device=rxe0 netdev ib=/sys/class/infiniband/rxe0/ports/1 at=$RDMAD_GUEST_ADDR port
	netdev=$(<"$ib/gid_attrs/ndevs/0")
	port=${servers[1]##*:}
	doctor 0 "rdma://$at:$port" && rdma_is_well "a device that is well"
	reaches rdma "$last"
	json '[.paths[] | select(.transport == "rdma").stages[] | select(.verified) | .stage][:6] == ["name", "rdma_bind_addr", "rdma_resolve_addr",
		"rdma_resolve_route", "connect", "handshake"]' "stages of RDMA"
	json '.there.ports[0] | .device == "rxe0" and .state == "active" and .link == "ethernet" and .roce_2 == "1" and .mtu == "1024" and
		.netdev == "'"$netdev"'" and (.gids | contains("::ffff:'"$at"'"))' "what the daemon tells of its port"
	json '[.findings[] | select(.check == "D41")] == []' "one machine at both ends"
	json '.paths[] | select(.transport == "rdma").stages[2].figures == "GID ::ffff:'"$at"' here, ::ffff:'"$at"' there"' "GIDs"
	stop_daemon

	listen=("tcp://$at:0")
	configure
	start_daemon
	# The daemon has TCP alone there: RDMA comes to the end of the route, and no further.
	doctor 0 "$at:${servers[0]##*:}" && found 4006 'rdma_resolve_route; connect fails' && found 0601 "$at" && reaches rdma rdma_resolve_route
	reaches tcp "$last"
	stop_daemon
	configure 'require_rdma = true;' 'listen = ["'"$at"'"];' 2>/dev/null
	sed -i 1d "$dir/rdmad.conf"

	chmod 755 "$dir" && chmod 644 "$dir/rdmad.conf"
	as_nobody && found 1201 'limit 64.0 KiB'
	chmod 600 /dev/infiniband/uverbs0
	as_nobody && found 0202 /dev/infiniband/uverbs0
	chmod 666 /dev/infiniband/uverbs0

	# A daemon that may lock less memory than its store has: of root, without the right to lock more.
	listen=(tcp://127.0.0.1:0)
	configure
	(ulimit -l 64 && exec setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock "$rdmad" -c "$dir/rdmad.conf") >"$dir/log" 2>&1 &
	daemon=$!
	wait_for "the start of rdmad" daemon_is_settled
	doctor 0 && found 1202 "process $daemon: limit 64.0 KiB"
	stop_daemon
	configure 'require_rdma = true;' 'listen = ["'"$at"'"];'
	sed -i 1d "$dir/rdmad.conf"

	ip link set "$netdev" down
	doctor 2 && found 0401 "ip link set $netdev up"
	ip link set "$netdev" up
	wait_for "the port" grep -q ACTIVE $ib/state
	ip addr flush dev "$netdev"
	doctor 2 && found 0602 "dev $netdev"
	ip addr add "$at/24" dev "$netdev"
	wait_for "the entry of the address" grep -qi "ffff:0a63" $ib/gids/*
	doctor 0 && rdma_is_well "mended"

	rdma link delete $device
	doctor 2 && found 0102 "rdma link add rxe0 type rxe netdev $netdev"
	rmmod rdma_ucm && doctor 2 && found 0101 'modprobe -a rdma_ucm'
	modprobe rdma_ucm
	rdma link add $device type rxe netdev "$netdev"
	wait_for "the device" test -c /dev/infiniband/uverbs0
	chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm
}

configure
start_daemon
if [[ ${RDMAD_GUEST_ADDR-} ]]; then
	test_guest
	conclude
fi
test_tcp
test_stranger
test_load
test_facts
test_liar
test_cluster
test_port
stop_daemon
test_short_messages
test_log
test_user
test_config
conclude
