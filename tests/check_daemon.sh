#!/bin/bash
# check_daemon.sh: rdmad as a process: options, exit statuses, signals, reload, background, control socket.
# Runs in the build directory; $srcdir is where the sources are.
set -u
srcdir=${srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
rdmad=${RDMAD:-$PWD/rdmad}
dir=$(mktemp -d /tmp/check_daemon.XXXXXX)
failures=0 pids=()

finish() {
	for pid in "${pids[@]}"; do
		kill -KILL "$pid" 2>/dev/null
	done
	rm -rf "$dir"
}
trap finish EXIT

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# expect STATUS TEXT COMMAND...: the exit status, and a line on stdout or stderr that has TEXT.
expect() {
	local status=$1 text=$2 rc
	shift 2
	timeout 20 "$@" >"$dir/out" 2>&1
	rc=$?
	[[ $rc = "$status" ]] || fail "exit status $rc, not $status: $*: $(cat "$dir/out")"
	[[ -z $text ]] || grep -qF -- "$text" "$dir/out" || fail "no \"$text\": $*: $(cat "$dir/out")"
}

config() { # [LINE...] after what every test needs
	cat >"$dir/conf" <<-END
	listen = ["tcp://127.0.0.1:0"];
	unix_socket = "$dir/service.sock";
	control = { socket = "$dir/control.sock"; };
	END
	printf '%s\n' "$@" >>"$dir/conf"
}

start() { # [ARGUMENT...]: in $pid, ready
	: >"$dir/log"
	"$rdmad" -c "$dir/conf" "$@" >>"$dir/log" 2>&1 &
	pid=$!
	pids+=("$pid")
	for ((i = 0; i < 100; i++)); do
		grep -q ready "$dir/log" && return
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.05
	done
	fail "did not start: $(cat "$dir/log")"
}

logged() { # TEXT: now or soon
	for ((i = 0; i < 60; i++)); do
		grep -qF -- "$1" "$dir/log" && return
		sleep 0.05
	done
	fail "not logged \"$1\": $(cat "$dir/log")"
}

stop() { # [SIGNAL [STATUS]]
	kill -"${1:-TERM}" "$pid"
	wait "$pid"
	local rc=$?
	[[ $rc = "${2:-0}" ]] || fail "exit status $rc after SIG${1:-TERM}: $(cat "$dir/log")"
}

# control COMMAND: the answer. In Python, so that this test needs the daemon only.
control() {
	python3 - "$dir/control.sock" "$1" <<-'END'
	import socket, sys
	s = socket.socket(socket.AF_UNIX)
	s.settimeout(10)
	s.connect(sys.argv[1])
	s.sendall(sys.argv[2].encode("latin-1") + b"\n")
	data = b""
	while True:
	    part = s.recv(65536)
	    if not part:
	        break
	    data += part
	sys.stdout.write(data.decode())
	END
}

answers() { # COMMAND TEXT
	local got
	got=$(control "$1")
	[[ $got = *"$2"* ]] || fail "$1 answers $got, without $2"
}

test_options() {
	expect 0 "rdmad " "$rdmad" --version
	expect 0 "--help-config" "$rdmad" --help
	expect 64 "Try" "$rdmad" --nonsense
	expect 64 "unexpected argument x" "$rdmad" x
	expect 64 "no log level loud" "$rdmad" -v loud
	expect 64 "is not an address" "$rdmad" -l http://x
	"$rdmad" --help-config >"$dir/sample"
	cmp -s "$dir/sample" "$srcdir/etc/rdmad.conf" || fail "etc/rdmad.conf is not what --help-config prints"
	expect 0 "no errors" "$rdmad" -t -c "$srcdir/etc/rdmad.conf"
}

# Every setting, option and counter has its place in the manual.
test_manual() {
	local name
	for name in $(sed -n 's/^\t*#\([a-z_]*\) = .*/\1/p' "$srcdir/etc/rdmad.conf"); do
		grep -q "^\.It .*\b$name\b" "$srcdir/man/rdmad.conf.5" || fail "rdmad.conf(5) lacks $name"
	done
	for name in $("$rdmad" --help | sed -n 's/.*--\([a-z-]*\).*/\1/p' | sort -u); do
		grep -q "Fl Fl $name" "$srcdir/man/rdmad.8" || fail "rdmad(8) lacks --$name"
	done
	config
	start
	for name in $(control status | python3 -c 'import json, sys; s = json.load(sys.stdin); print(*s["counters"], *s["store"])'); do
		grep -q "^\.It .*\b$name\b" "$srcdir/man/rdmad.8" || fail "rdmad(8) lacks the counter $name"
	done
	stop
}

test_configuration() {
	config
	expect 0 "no errors" "$rdmad" -t -c "$dir/conf"
	config 'gid_indx = 1;'
	expect 78 "conf:4: unknown setting gid_indx" "$rdmad" -t -c "$dir/conf"
	expect 78 "conf:4: unknown setting gid_indx" "$rdmad" -c "$dir/conf"
	expect 78 "No such file" "$rdmad" -t -c "$dir/nothing"
	config 'log = { target = "file:/nowhere/log"; };'
	expect 73 "cannot open /nowhere/log" "$rdmad" -c "$dir/conf"
}

test_life() {
	config
	start
	logged "listening on tcp 127.0.0.1:"
	logged "listening on unix $dir/service.sock"
	answers status '"state":"running"'
	answers status '"transport":"tcp"'
	answers connections '"connections":[]'
	answers memory '"arena_bytes":67108864'
	answers resources '"descriptors":'
	answers nonsense '"error":"there is no command nonsense"'
	[[ $(stat -c %a "$dir/control.sock") = 600 ]] || fail "the control socket is open to others"
	[[ $(stat -c %a "$dir/service.sock") = 666 ]] || fail "the service socket is not open to others"
	kill -USR1 "$pid"
	logged "connections 0 accepted 0"
	stop TERM
	[[ ! -e $dir/control.sock && ! -e $dir/service.sock ]] || fail "sockets are left behind"
	start
	stop INT
	start
	answers shutdown '"ok":true'
	wait "$pid" || fail "shutdown: exit status $?"
	start
	answers drain '"ok":true'
	answers status '"state":"draining"'
	stop TERM
}

test_in_use() {
	config
	start
	local first=$pid port
	port=$(sed -n 's/.*listening on tcp 127.0.0.1://p' "$dir/log")
	expect 71 "Address already in use; another program has it" "$rdmad" -c "$dir/conf" -l "127.0.0.1:$port"
	expect 71 "service.sock: Address already in use" "$rdmad" -c "$dir/conf"
	sed -i 's/service.sock/other.sock/' "$dir/conf"
	expect 73 "another rdmad has it" "$rdmad" -c "$dir/conf"
	answers status '"ok":true'
	pid=$first
	stop KILL 137 2>/dev/null
	config
	start # what a killed one left behind is replaced
	answers status '"ok":true'
	stop
}

test_reload() {
	config 'log = { level = "info"; };'
	start
	sed -i 's/"info"/"debug"/' "$dir/conf"
	echo 'port = 5; max_connections = 9; poll = "0"; workers = 3;' >>"$dir/conf"
	kill -HUP "$pid"
	logged "reloaded"
	logged "log.level changed"
	logged "max_connections changed"
	logged "port changed in the file, and needs a restart"
	logged "workers changed in the file, and needs a restart"
	answers status '"max_connections":9'
	answers status '"workers":1'
	sed -i 's/max_connections = 9/max_connections = 8/; s/"debug"/"loud"/' "$dir/conf"
	kill -HUP "$pid"
	logged "there is no \"loud\""
	logged "nothing was changed"
	answers status '"max_connections":9'
	answers reload '"ok":false'
	sed -i 's/"loud"/"info"/; s/max_connections = 8/max_connections = 100000/' "$dir/conf"
	answers reload 'max_connections'
	answers status '"max_connections":9'
	stop
}

test_log_file() {
	config "log = { target = \"file:$dir/file\"; };"
	"$rdmad" -c "$dir/conf" &
	pid=$!
	pids+=("$pid")
	for ((i = 0; i < 100; i++)); do
		grep -qs ready "$dir/file" && break
		sleep 0.05
	done
	grep -qE '^[0-9]{4}-[0-9-]*T[0-9:.]*Z info rdmad: ready' "$dir/file" || fail "no times in the log file"
	mv "$dir/file" "$dir/file.1"
	kill -HUP "$pid"
	for ((i = 0; i < 100; i++)); do
		grep -qs reloaded "$dir/file" && break
		sleep 0.05
	done
	grep -q reloaded "$dir/file" || fail "SIGHUP did not open the log file anew"
	: >"$dir/log"
	stop
}

test_background() {
	config "pid_file = \"$dir/pid\"; log = { target = \"file:$dir/file\"; };"
	expect 0 "" "$rdmad" -D -c "$dir/conf"
	pid=$(cat "$dir/pid")
	pids+=("$pid")
	answers status "\"pid\":$pid"
	expect 73 "is held by process $pid" "$rdmad" -D -c "$dir/conf"
	kill "$pid"
	for ((i = 0; i < 100; i++)); do
		[[ -e $dir/pid ]] || break
		sleep 0.05
	done
	[[ ! -e $dir/pid ]] || fail "the pid file is left behind"
	config 'kv = { memory = "64T"; };'
	# The sanitizers need more address space than there is to be.
	if ! bash -c "ulimit -v 4000000; $rdmad --version" 2>&1 | grep -q Sanitizer; then
		expect 71 "kv.memory" bash -c "ulimit -v 4000000; exec $rdmad -D -c $dir/conf"
	fi
}

test_limits() {
	config
	expect 71 "RLIMIT_NOFILE is 60" bash -c "ulimit -n 60; exec $rdmad -c $dir/conf"
	(
		failures=0
		ulimit -n 300
		start
		logged "limited to"
		answers status '"max_connections":'
		stop
		exit $failures
	) || fail "with 300 descriptors"
	if [[ ! -e /dev/infiniband/rdma_cm ]]; then
		config 'require_rdma = true;'
		expect 69 "RDMA is required and missing" "$rdmad" -c "$dir/conf"
		config
		expect 69 "cannot listen on rdma" "$rdmad" -c "$dir/conf" -l rdma://127.0.0.1
	fi
	config
	expect 71 "no address of this machine" "$rdmad" -c "$dir/conf" -l 192.0.2.1
	expect 68 "no address for host" "$rdmad" -c "$dir/conf" -l no-such-host.invalid
}

# What the gpu service will use is known at the start; without it the others are served.
test_gpu() {
	local program="program = \"$(dirname "$rdmad")/rdmad-gpu\""
	config "gpu = { $program; backend = \"cpu\"; threads = 1; sessions = 3; };"
	start
	logged "gpu: cpu backend, 1 thread a session"
	answers status '"services":["ping","kv","gpu"]'
	answers status '"gpu":{"backend":"cpu","device":"'
	answers status '"sessions":0,"sessions_max":3}'
	answers resources '"gpu_sessions":0'
	stop
	config 'gpu = { program = "/nowhere/rdmad-gpu"; };'
	start
	logged "gpu: the service is not offered: "
	logged "/nowhere/rdmad-gpu"
	answers status '"services":["ping","kv"]'
	kill -HUP "$pid"
	logged reloaded
	grep -q "services changed" "$dir/log" && fail "a service that cannot be offered is news at each reload"
	stop
	config 'gpu = { program = "/nowhere/rdmad-gpu"; backend = "cuda"; };'
	expect 69 "/nowhere/rdmad-gpu" "$rdmad" -c "$dir/conf"
	config 'services = ["ping"];'
	start
	! grep -q gpu "$dir/log" || fail "gpu is looked for, and not enabled"
	echo 'gpu = { sessions = 5; };' >>"$dir/conf"
	sed -i 's/\["ping"\]/["ping", "gpu"]/' "$dir/conf"
	answers reload 'services'
	answers status '"services":["ping"]'
	stop
}

test_notify() {
	config
	python3 - "$dir/notify" >"$dir/notified" <<-'END' &
	import socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(sys.argv[1])
	s.settimeout(20)
	while True:
	    text = s.recv(4096).decode()
	    print(text, flush=True)
	    if text.startswith("STOPPING"):
	        break
	END
	local reader=$!
	while [[ ! -S $dir/notify ]]; do sleep 0.02; done
	export NOTIFY_SOCKET=$dir/notify
	start
	kill -HUP "$pid"
	logged reloaded
	stop
	unset NOTIFY_SOCKET
	wait "$reader"
	[[ $(tr '\n' ' ' <"$dir/notified") = "READY=1 RELOADING=1 READY=1 STOPPING=1 " ]] ||
		fail "the service manager was told $(cat "$dir/notified")"
}

# Clients of the control socket that are silent, slow, greedy or mad cost nobody else anything.
test_hostile_control() {
	config
	start
	python3 - "$dir/control.sock" <<-'END' || fail "hostile control clients"
	import os, socket, sys, time
	def connect():
	    s = socket.socket(socket.AF_UNIX)
	    s.settimeout(10)
	    s.connect(sys.argv[1])
	    return s
	silent = [connect() for _ in range(10)]
	for data in [b"\n", b"\0" * 100, os.urandom(600), b"status", b"s" * 5000, b"\xff\n", b"status extra words\n"]:
	    s = connect()
	    try:
	        s.sendall(data)
	        if data == b"status":
	            s.close()
	            continue
	        s.recv(10)
	    except ConnectionError:
	        pass
	    s.close()
	gone = connect()            # asks, and does not wait for the answer
	gone.sendall(b"connections\n")
	gone.close()
	begin = time.time()
	s = connect()
	s.sendall(b"status\n")
	assert b'"ok":true' in b"".join(iter(lambda: s.recv(65536), b""))
	assert time.time() - begin < 2, "a status took too long"
	many = [connect() for _ in range(30)]
	assert any(b"too many" in m.recv(200) for m in many[10:])
	for m in many + silent:
	    m.close()
	time.sleep(0.2)
	s = connect()
	s.sendall(b"status\n")
	assert b'"ok":true' in b"".join(iter(lambda: s.recv(65536), b""))
	END
	stop
}

test_ordinary_user() {
	[[ $(id -u) = 0 ]] && command -v setpriv >/dev/null || return
	config
	mkdir "$dir/own"
	chmod 755 "$dir"
	chmod 644 "$dir/conf"
	chown 65534:65534 "$dir/own"
	sed -i "s|$dir/\([a-z]*\).sock|$dir/own/\1.sock|" "$dir/conf"
	local user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	expect 77 "the daemon's user may not" "${user[@]}" "$rdmad" -c "$dir/conf" -l unix:///service.sock
	"${user[@]}" "$rdmad" -c "$dir/conf" >"$dir/log" 2>&1 &
	pid=$!
	pids+=("$pid")
	logged ready
	ln -sf own/control.sock "$dir/control.sock"
	answers status '"ok":true' # root may ask
	stop
	rm -rf "$dir/own" "$dir/control.sock"
}

command -v python3 >/dev/null || exit 77
for t in options manual configuration life in_use reload log_file background limits gpu notify \
	hostile_control ordinary_user; do
	[[ $# = 0 || " $* " = *" $t "* ]] || continue
	echo "$t"
	"test_$t"
done
exit $((failures > 0))
