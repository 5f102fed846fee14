#!/bin/bash
# check_encrypt.sh: connections of other machines that the kernel encrypts, heard and changed on their way. Where the kernel
# cannot encrypt (no TLS), what is said of that. The other machine is a network namespace.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3 ip
umask 077
export HOME=$dir RDMAD_KEY_FILE=''
: "${rdmarun:=$builddir/rdmarun}"

counter() { control status | jq ".counters.$1"; }
settings() { configure 'services = ["ping", "kv", "channel", "peer"];' "auth = { keys = \"$dir/keys\"; encrypt = \"$1\"; };"; }
again() {
	[[ ! $daemon ]] || stop_daemon
	settings "$1"
	start_daemon
	server=${servers[0]}
}

"$rdmactl" --quiet key new app --into "$dir/keys" >"$dir/app.key" || give_up "key new"
"$rdmactl" --quiet key new lab --into "$dir/keys" >"$dir/lab.key" || give_up "key new"
"$rdmactl" --quiet key new stranger >"$dir/stranger.key"

# The kernel has TLS.
modprobe -q tls 2>/dev/null
python3 - 2>/dev/null <<-'END'
	import errno, socket, sys
	try:
	    socket.socket().setsockopt(socket.IPPROTO_TCP, 31, b"tls")
	except OSError as error:
	    sys.exit(error.errno != errno.ENOTCONN)
END
has_tls=$?

# Both ends need it.
test_without() {
	local own
	listen=(tcp://0.0.0.0:0)
	settings require
	ends 69 "modprobe tls" "$rdmad" -c "$dir/rdmad.conf"
	again offer
	logged "nothing is encrypted"
	server=tcp://127.0.0.1:${server##*:}
	own=$(ip -o -4 address show scope global | awk '{sub("/.*", "", $4); print $4; exit}')
	expect 0 --key "$dir/app.key" --require-encryption ping -c 1 # which goes by no network
	[[ $own ]] || return
	server=tcp://$own:${server##*:}
	expect 0 --key "$dir/app.key" ping -c 1
	expect 1 --key "$dir/app.key" --require-encryption ping -c 1 && complains "modprobe tls"
	expect 1 --require-encryption ping -c 1 && complains "needs a key"
}

# --- with TLS

far() { ip netns exec far env HOME="$dir" RDMAD_KEY_FILE="${key-$dir/app.key}" timeout 240 "$@" >"$dir/out" 2>"$dir/err"; }
far_ctl() { far "$rdmactl" -t 60s -H "$server" "$@"; }
expect_far() {
	local want=$1 got
	shift
	far_ctl "$@"
	got=$?
	[[ $got == "$want" ]] || fail "from elsewhere: rdmactl $(cut -c1-100 <<<"$*"): exit status $got, not $want"
}

network() {
	ip netns delete far 2>/dev/null # of a run that was killed, and its end of the link with it
	ip netns add far && ip link add near0 type veth peer name far0 netns far || give_up "no network namespace"
	ip address add 10.98.0.1/24 dev near0 && ip link set near0 up
	ip -n far address add 10.98.0.2/24 dev far0 && ip -n far link set far0 up && ip -n far link set lo up
	listen=(tcp://10.98.0.1:0)
}

# All that the link carries goes to a file, until `heard`.
hear() {
	rm -f "$dir/heard"
	python3 - "$dir/heard" <<-'END' &
		import signal, socket, sys
		link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
		link.bind(("near0", 0))
		link.setsockopt(socket.SOL_SOCKET, 33, 1 << 26) # SO_RCVBUFFORCE
		signal.signal(signal.SIGTERM, lambda *_: sys.exit())
		with open(sys.argv[1], "wb", 0) as file:
		    file.write(b"begun")
		    while True:
		        file.write(link.recv(1 << 17))
	END
	clients+=($!)
	wait_for "the ear" test -s "$dir/heard"
}
heard() {
	sleep 0.5
	kill "${clients[-1]}"
	wait "${clients[-1]}" 2>/dev/null
}

# No value passes in clear, nor does a key or a ticket ever.
test_secrecy() {
	local way secret
	secret=$(cut -d: -f4 "$dir/app.key" | base64 -d | head -c 32 | base64 -w0)
	for way in no offer require; do
		again "$way"
		hear
		printf 'a value that stands out' | ip netns exec far "$rdmactl" -t 60s -H "$server" --key "$dir/app.key" --quiet kv set "key-$way" - ||
			fail "$way: set"
		expect_far 0 kv get "key-$way" && says "a value that stands out"
		head -c 100000 <(yes 'a long value that stands out') >"$dir/long"
		ip netns exec far "$rdmactl" -t 60s -H "$server" --key "$dir/app.key" --quiet kv set "long-$way" - <"$dir/long" || fail "$way: long set"
		expect_far 0 kv get "long-$way" && same "$dir/long"
		heard
		if [[ $way == no ]]; then
			grep -qa "value that stands out" "$dir/heard" || fail "the ear hears nothing"
			grep -qa "long-no" "$dir/heard" || fail "the ear does not hear keys"
			[[ $(counter encrypted) == 0 ]] || fail "no: encrypted $(counter encrypted)"
			complains "transport tcp" "no"
			expect_far 0 key check && says "transport: tcp, not encrypted"
		else
			! grep -qa "stands out\|long-$way\|key-$way" "$dir/heard" ||
				fail "$way: heard: $(grep -ao ".\{20\}\(stands out\|long-$way\|key-$way\)" "$dir/heard" | head -n 3 | cat -v)"
			[[ $(counter encrypted) == 4 ]] || fail "$way: encrypted $(counter encrypted)"
			complains "transport tls" "$way"
			expect_far 0 key check && says "transport: tls, encrypted"
			expect_far 0 --json key check && json '.transport == "tls" and .encrypted == true'
		fi
		python3 - "$dir/heard" "$secret" <<-'END' || fail "$way: a key was heard"
			import base64, sys
			sys.exit(base64.b64decode(sys.argv[2]) in open(sys.argv[1], "rb").read())
		END
	done
}

# Values of memory that no processor of the client may touch; the kernel encrypts what is read where the dmabuf is mapped.
test_device() {
	again require
	far env PYTHONPATH="$srcdir/python" python3 - "$server" <<-'END' || fail "memory of a device"
		import os, sys, rdmad
		descriptor = os.memfd_create("device")
		os.ftruncate(descriptor, 1 << 20)
		with rdmad.Store(sys.argv[1], require_encryption=True) as store, store.register_dmabuf(descriptor, 1 << 20) as device:
		    assert store.transport == "tls", store.transport
		    for length in 1, 64, 4096, 4097, 500000:
		        value = os.urandom(length)
		        os.pwrite(descriptor, value, 0)
		        store.set("device", (device.address, length))
		        assert store["device"] == value
		        assert store.get_into("device", (device.address + 4096, length)) == length
		        assert os.pread(descriptor, length, 4096) == value
	END
}

# Which client comes in, and what each is told.
test_refusals() {
	again no
	expect_far 0 ping -c 1
	expect_far 1 --require-encryption ping -c 1 && complains "the server does not agree"
	again require
	key='' expect_far 1 ping -c 1 && complains "asks for a key"
	key=$dir/stranger.key expect_far 1 ping -c 1 && complains "the server does not have key"
	expect_far 0 --require-encryption ping -c 100 --verify && says "transport tls"
	expect 0 --key "$dir/app.key" ping -c 1 # of this machine: nobody hears it
	stop_daemon
	configure 'auth = { encrypt = "require"; };' 'insecure = true;'
	ends 78 "which needs keys" "$rdmad" -c "$dir/rdmad.conf"
}

# Long values and many requests of several clients at once, and clients that are killed amid them.
test_traffic() {
	local n pid
	again require
	head -c 5000000 /dev/urandom >"$dir/bytes"
	ip netns exec far "$rdmactl" -t 60s -H "$server" --key "$dir/app.key" --quiet kv set bytes - <"$dir/bytes" || fail "5 MB"
	expect_far 0 kv get bytes && same "$dir/bytes"
	expect_far 0 bench kv -o set,get -s 1,100,4000,4096,70000 -c 4 -d 8 -D 300ms
	for n in 1 2 3; do
		ip netns exec far "$rdmactl" -t 60s -H "$server" --key "$dir/app.key" bench kv -o set,get -s 300000 -c 2 -d 4 -D 60s >/dev/null 2>&1 &
		pid=$!
		sleep 0.$n
		kill -KILL "$pid"
		wait "$pid" 2>/dev/null
	done
	expect_far 0 kv get bytes && same "$dir/bytes"
	gone() { [[ $(control status | jq .connections) == 0 ]]; }
	wait_for "the end of the killed clients' connections" gone
}

# A byte that is changed on its way ends the connection, and nothing false arrives. What is changed before the encryption,
# nonces among it, is found by the proof.
test_changes() {
	local at port=7999
	again require
	head -c 20000 <(yes 'a value that nobody changes') >"$dir/value"
	ip netns exec far "$rdmactl" -t 60s -H "$server" --key "$dir/app.key" --quiet kv set value - <"$dir/value" || fail "set"
	for at in 6 60 130 300 15000; do
		python3 - "$port" "${server##*:}" "$at" 2>"$dir/proxy" <<-'END' &
			import os, select, socket, sys
			port, to, at = map(int, sys.argv[1:])
			server = socket.create_server(("10.98.0.1", port))
			sys.stderr.write("listens\n")
			sys.stderr.flush()
			a, _ = server.accept()
			b = socket.create_connection(("10.98.0.1", to))
			passed = 0
			while True:
			    for s in select.select([a, b], [], [])[0]:
			        data = bytearray(s.recv(65536))
			        if not data:
			            os._exit(0)
			        if s is b: # what the server says
			            if passed <= at < passed + len(data):
			                data[at - passed] ^= 4
			            passed += len(data)
			        (a if s is b else b).sendall(data)
		END
		pid=$!
		clients+=("$pid")
		logged listens "$dir/proxy"
		ip netns exec far timeout 100 "$rdmactl" -H "tcp://10.98.0.1:$port" --key "$dir/app.key" --timeout 20s kv get value >"$dir/out" \
			2>"$dir/err" && fail "a change at byte $at went unseen"
		[[ ! -s $dir/out ]] || fail "a change at byte $at: something false arrived"
		kill "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
		port=$((port + 1))
	done
	expect_far 0 kv get value && same "$dir/value"
}

# Programs that listen by themselves agree, and introduced ones, too, by their tickets.
test_programs() {
	local pid
	again require
	"$rdmactl" --quiet --key "$dir/app.key" channel listen "tcp://10.98.0.1:7888/it" >"$dir/got" 2>"$dir/listener" &
	pid=$!
	clients+=("$pid")
	sleep 1
	hear
	printf 'words of a channel' | ip netns exec far "$rdmactl" --quiet --key "$dir/app.key" --require-encryption channel push \
		"tcp://10.98.0.1:7888/it" 2>"$dir/err" || fail "a channel"
	wait_for "what was sent" grep -q "words of a channel" "$dir/got"
	heard
	! grep -qa "words of a channel" "$dir/heard" || fail "a channel was heard"
	kill "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	"$rdmactl" --quiet --key "$dir/app.key" peer recv -l tcp://10.98.0.1:7889 >"$dir/got" 2>"$dir/listener" &
	pid=$!
	clients+=("$pid")
	sleep 1
	hear
	printf 'words of a peer' | ip netns exec far "$rdmactl" --quiet --key "$dir/app.key" --require-encryption peer send -c \
		tcp://10.98.0.1:7889 2>"$dir/err" || fail "a peer"
	wait_for "the message" grep -q "words of a peer" "$dir/got"
	heard
	! grep -qa "words of a peer" "$dir/heard" || fail "a peer was heard"
	kill "$pid" 2>/dev/null
}

if [[ $has_tls != 0 ]]; then
	test_without
	conclude
fi
[[ $(id -u) == 0 ]] || { echo "$test_name: not root: no network namespace, and no RDMA (scripts/guest)"; exit 77; }
network
for part in ${PARTS-secrecy device refusals traffic changes programs}; do
	"test_$part"
done
conclude
