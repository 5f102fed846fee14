#!/bin/bash
# check_daemon.sh: rdmad as a process: options, exit statuses, signals, reload, background, control socket.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need python3 jq

# ask COMMAND: the answer, to any text.
ask() {
	python3 - "$dir/control.sock" "$1" <<-'END'
	import socket, sys
	s = socket.socket(socket.AF_UNIX)
	s.settimeout(120)
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
	got=$(ask "$1")
	[[ $got = *"$2"* ]] || fail "$1 answers $got, without $2"
}

test_options() {
	ends 0 "rdmad " "$rdmad" --version
	ends 0 "protocol $("$rdmactl" version | sed -n 's/^protocol //p')" "$rdmad" -V
	ends 0 "--help-config" "$rdmad" --help
	ends 64 "Try" "$rdmad" --nonsense
	ends 64 "unexpected argument x" "$rdmad" x
	ends 64 "no log level loud" "$rdmad" -v loud
	ends 64 "is not an address" "$rdmad" -l http://x
	"$rdmad" --help-config >"$dir/sample"
	cmp -s "$dir/sample" "$srcdir/etc/rdmad.conf" || fail "etc/rdmad.conf is not what --help-config prints"
	ends 0 "no errors" "$rdmad" -t -c "$srcdir/etc/rdmad.conf"
}

# Every setting, service, transport, option, counter and number of a service has its place in the manual.
test_manual() {
	local name
	for name in $(sed -n 's/^\t*#\([a-z_]*\) = .*/\1/p' "$srcdir/etc/rdmad.conf"); do
		grep -q "^\.It .*\b$name\b" "$srcdir/man/rdmad.conf.5" || fail "rdmad.conf(5) lacks $name"
	done
	for name in $(sed -n 's/^#\(services\|transports\) = \[\(.*\)\];/\2/p' "$srcdir/etc/rdmad.conf" | tr -d '",'); do
		grep -qw "$name" "$srcdir/man/rdmad.conf.5" || fail "rdmad.conf(5) lacks $name"
	done
	for name in $("$rdmad" --help | sed -n 's/.*--\([a-z-]*\).*/\1/p' | sort -u); do
		grep -q "Fl Fl $name" "$srcdir/man/rdmad.8" || fail "rdmad(8) lacks --$name"
	done
	configure "log = { directory = \"$dir/manual\"; policy = \"always\"; };"
	start_daemon
	for name in $(ask status | python3 -c 'import json, sys; s = json.load(sys.stdin); print(*(name for part in s.values() if isinstance(part, dict) for name in part))'); do
		grep -qw "$name" "$srcdir/man/rdmad.8" || fail "rdmad(8) lacks $name of status"
	done
	test_manual_of_limits
	stop_daemon
}

# What the section LIMITS names: settings that there are, and numbers that the daemon tells.
test_manual_of_limits() {
	local name
	sed -n '/^\.Sh LIMITS/,/^\.Sh EXAMPLES/p' "$srcdir/man/rdmad.conf.5" >"$dir/section"
	[[ $(grep -c '^\.It' "$dir/section") -gt 20 ]] || fail "rdmad.conf(5) has no section LIMITS"
	for name in $(sed -n 's/^\.Ic \(.*\)/\1/p' "$dir/section" | tr -d ',.' | tr ' ' '\n' | sed 's/^\(kv\|gpu\|log\|channel\|peer\)//' | sort -u); do
		grep -q "^	*#$name = " "$srcdir/etc/rdmad.conf" || fail "LIMITS names $name, which is no setting"
	done
	{ ask status && ask resources; } >"$dir/told"
	for name in $(sed -n 's/^\.Va \(.*\)/\1/p' "$dir/section" | tr -d ',.' | sort -u); do
		grep -qw "$name" "$dir/told" || fail "LIMITS names $name, which the daemon does not tell"
	done
}

test_configuration() {
	configure
	ends 0 "no errors" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'gid_indx = 1;'
	ends 78 "conf:4: unknown setting gid_indx" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 78 "conf:4: unknown setting gid_indx" "$rdmad" -c "$dir/rdmad.conf"
	ends 78 "No such file" "$rdmad" -t -c "$dir/nothing"
	configure 'log = { target = "file:/nowhere/log"; };'
	ends 73 "cannot open /nowhere/log" "$rdmad" -c "$dir/rdmad.conf"
}

# A pipe that nobody reads or writes stops nobody.
test_pipes() {
	mkfifo "$dir/pipe"
	configure
	start_daemon
	configure "log.target = \"file:$dir/pipe\";"
	expect 1 reload && complains "pipe: nobody reads it" reload && complains "nothing was changed" reload
	expect 0 status
	stop_daemon
	ends 73 "nobody reads it" "$rdmad" -c "$dir/rdmad.conf"
	ends 78 "it is a pipe" "$rdmad" -t -c "$dir/pipe"
	ends 74 "cannot write to stdout: No space left" sh -c "'$rdmad' -T -c '$srcdir/etc/rdmad.conf' >/dev/full"
	ends 74 "cannot write to stdout: No space left" sh -c "'$rdmad' --help >/dev/full"
}

# -t looks at the machine as well, also beside a daemon that runs with the file; --offline does not.
test_machine() {
	configure
	start_daemon
	sed -i "s/^listen = .*/listen = [\"${servers[0]#tcp://}\"];/" "$dir/rdmad.conf"
	ends 0 "no error if a running rdmad has it" "$rdmad" -t -c "$dir/rdmad.conf"
	stop_daemon
	configure 'kv.memory = "63T";'
	ends 71 "and there is" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 0 "no errors" "$rdmad" -t --offline -c "$dir/rdmad.conf"
	configure 'kv = { memory = "64M"; value_max = "1T"; };'
	ends 0 "kv.value_max is 1.00 TiB, and kv.memory 64.0 MiB" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'services = [];'
	ends 0 "services is empty" "$rdmad" -t -c "$dir/rdmad.conf"
	if [[ ! -e /dev/infiniband/rdma_cm ]]; then
		configure 'device = "mlx5_0";'
		ends 0 'device is "mlx5_0", and there is no rdma' "$rdmad" -t -c "$dir/rdmad.conf"
	fi
	configure 'log.target = "file:/nowhere/log";'
	ends 73 "cannot write /nowhere/log" "$rdmad" -t -c "$dir/rdmad.conf"
	configure "log.target = \"file:$dir\";"
	ends 73 "Is a directory" "$rdmad" -t -c "$dir/rdmad.conf"
	configure && sed -i "s/rdmad\.sock/value/" "$dir/rdmad.conf" && : >"$dir/value"
	ends 73 "unix_socket: $dir/value is there, and no socket" "$rdmad" -t -c "$dir/rdmad.conf"
	configure && sed -i "s/control\.sock/value/" "$dir/rdmad.conf"
	ends 73 "control.socket: $dir/value is there, and no socket" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'log = { directory = "/nowhere/log"; policy = "always"; };'
	ends 71 "cannot write to /nowhere/log" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'gpu = { program = "/nowhere/rdmad-gpu"; backend = "cuda"; };'
	ends 69 "/nowhere/rdmad-gpu" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 71 "no address of this machine" "$rdmad" -t -c "$dir/rdmad.conf" -l 192.0.2.1
	configure
	ends 71 "127.0.0.1:7999: listen has it twice" "$rdmad" -t -c "$dir/rdmad.conf" -l 127.0.0.1:7999 -l tcp://127.0.0.1:7999
	ends 71 "listen has it twice" "$rdmad" -t -c "$dir/rdmad.conf" -l 127.0.0.1:7999 -l 0.0.0.0:7999
	ends 0 "no errors" "$rdmad" -t -c "$dir/rdmad.conf" -l 127.0.0.1:0 -l 127.0.0.1:0 -l 127.0.0.1:7999 -l 127.0.0.1:7998
	ends 78 "it needs its interface" "$rdmad" -t -c "$dir/rdmad.conf" -l fe80::1
	configure 'transports = ["tcp"];' && sed -i "s/^listen = .*/listen = [];/" "$dir/rdmad.conf"
	ends 69 "there is nothing to listen on" "$rdmad" -t -c "$dir/rdmad.conf"
	if [[ ! -e /dev/infiniband/rdma_cm ]]; then
		configure 'transports = ["rdma"];' && sed -i "s/^listen = .*/listen = [\"127.0.0.1\"];/" "$dir/rdmad.conf"
		ends 69 "there is nothing to listen on" "$rdmad" -t -c "$dir/rdmad.conf"
		configure 'require_rdma = true;'
		ends 69 "RDMA is required and missing" "$rdmad" -t -c "$dir/rdmad.conf"
		# A device is waited for, where it can come.
		configure 'transports = ["rdma"];'
		ends 0 "nothing listens there until a device has this address (RD-5010)" "$rdmad" -t -c "$dir/rdmad.conf" -l rdma://192.0.2.1
		ends 69 "cannot listen on rdma 127.0.0.1: no RDMA" "$rdmad" -t -c "$dir/rdmad.conf" -l rdma://127.0.0.1
	fi
	test_machine_others
	test_machine_says_all
	test_machine_stays
}

# Where clients of other protocols come.
test_machine_others() {
	configure 'metrics.listen = ["192.0.2.1"];'
	ends 71 "cannot listen on 192.0.2.1:7472 for metrics: Cannot assign requested address" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'metrics.listen = ["127.0.0.1:7999"];' 'resp.listen = ["127.0.0.1:7998"];'
	ends 0 "no errors" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 71 "127.0.0.1:7999: listen has it already" "$rdmad" -t -c "$dir/rdmad.conf" -l 127.0.0.1:7999
	configure 'metrics.listen = ["127.0.0.1:7999"];' 'memcached.listen = ["127.0.0.1:7999"];'
	ends 71 "127.0.0.1:7999: metrics.listen has it already" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 71 "cannot listen on 127.0.0.1:7999 for memcached: Address already in use" "$rdmad" -c "$dir/rdmad.conf"
	configure 'resp.listen = ["192.0.2.1"];' 'insecure = false;'
	ends 78 "192.0.2.1:6379 is for other machines" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 71 "cannot listen on 192.0.2.1:6379 for resp: Cannot assign requested address" "$rdmad" -t -c "$dir/rdmad.conf" --insecure
	: >"$dir/value"
	configure "resp.unix_socket = \"$dir/value\";"
	ends 73 "resp.unix_socket: $dir/value is there, and no socket" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'resp.rdma = ["127.0.0.1"];'
	ends 69 "cannot listen on rdma 127.0.0.1" "$rdmad" -t -c "$dir/rdmad.conf"
	ends 69 "cannot listen on rdma 127.0.0.1" "$rdmad" -c "$dir/rdmad.conf"
	configure 'resp.rdma = ["tcp://127.0.0.1", "127.0.0.1"];'
	ends 69 "addresses of two transports" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'resp.rdma = ["unix:///run/valkey"];'
	ends 78 "by which no such client comes" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'transports = ["unix"];' 'resp.rdma = ["tcp://127.0.0.1:0"];' && sed -i "s/^listen = .*/listen = [];/" "$dir/rdmad.conf"
	ends 69 "cannot listen on tcp 127.0.0.1 for resp: it is not among the transports" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'services = ["ping", "resp"];' 'resp.listen = ["127.0.0.1:0"];'
	ends 78 'add "kv" to services' "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'services = ["ping", "resp"];'
	ends 0 "no errors" "$rdmad" -t -c "$dir/rdmad.conf"
	configure 'services = ["ping"];' 'resp.rdma = ["127.0.0.1"];' # of a service that is not offered
	ends 0 "no errors" "$rdmad" -t -c "$dir/rdmad.conf"
}

# All that is wrong at once, whatever is found first.
test_machine_says_all() {
	local text
	: >"$dir/value"
	configure 'require_rdma = true; kv.memory = "63T"; pid_file = "/nowhere/pid";' \
		'log = { target = "file:/nowhere/log"; directory = "/nowhere/log"; policy = "always"; };' \
		'gpu = { program = "/nowhere/rdmad-gpu"; backend = "cuda"; };'
	sed -i "s/rdmad\.sock/value/; s/control\.sock/value/" "$dir/rdmad.conf"
	ends "$([[ -e /dev/infiniband/rdma_cm ]] && echo 71 || echo 69)" "no address of this machine" \
		"$rdmad" -t -c "$dir/rdmad.conf" -l 192.0.2.1 -l rdma://192.0.2.1
	for text in "control.socket: $dir/value" "unix_socket: $dir/value" "log.target: cannot write" "pid_file: cannot write" \
		"log.directory: cannot write" "kv.memory is 63" "/nowhere/rdmad-gpu"; do
		grep -qF -- "$text" "$dir/out" || fail "-t lacks \"$text\""
	done
	[[ -e /dev/infiniband/rdma_cm ]] || says "cannot listen on rdma 192.0.2.1: no RDMA" -t
}

# It looks, and makes nothing.
test_machine_stays() {
	configure && sed -i "s/rdmad\.sock/made\/socket/; s/control\.sock/made\/control/" "$dir/rdmad.conf"
	ends 0 "no errors" "$rdmad" -t -c "$dir/rdmad.conf"
	[[ ! -e $dir/made ]] || fail "-t makes a directory"
	configure && sed -i "s/rdmad\.sock/made\/deep\/socket/" "$dir/rdmad.conf"
	ends 73 "cannot make the directory $dir/made/deep" "$rdmad" -t -c "$dir/rdmad.conf"
	configure && sed -i "s/rdmad\.sock/value\/socket/" "$dir/rdmad.conf" && : >"$dir/value"
	ends 73 "$dir/value is no directory" "$rdmad" -t -c "$dir/rdmad.conf"
}

# What -T prints is a configuration that says the same.
test_print() {
	configure 'kv.memory = "48M"; services = ["ping", "kv"]; keepalive = "0"; poll = "always";' 'log = { level = "warn"; };'
	"$rdmad" -T -c "$dir/rdmad.conf" -l 127.0.0.5:99 >"$dir/first" 2>"$dir/err" || fail "-T"
	cp "$dir/first" "$dir/out"
	says 'memory = "48M";' -T
	says '^listen = \["127.0.0.5:99"\];' -T
	says '^services = \["ping", "kv"\];' -T
	says 'value_max = "1G"; # in effect "48M"$' -T
	says 'transfer_memory = "0"; # in effect "24M"$' -T
	says '^max_connections_per_source = 0; # in effect 512$' -T
	says 'sessions_per_source = 0; # in effect 4$' -T
	says 'names_per_source = 0; # in effect 512$' -T
	says 'joined_per_source = 0; # in effect 512$' -T
	says 'groups_per_source = 0; # in effect 512$' -T
	says 'threads = 0; # in effect [1-9]' -T
	says '^	# directory is not set$' -T
	says '^# device is not set$' -T
	"$rdmad" -T -c "$dir/first" >"$dir/out" 2>"$dir/err" || fail "-T of what -T printed"
	same "$dir/first" "-T of what -T printed"
	cmp -s <("$rdmad" --help-config | sed -n 's/^	*#\([a-z_]*\) = .*/\1/p' | sort) <(sed -n 's/^	*\(\([a-z_]*\) = .*;\|# \([a-z_]*\) is not set$\).*/\2\3/p' "$dir/first" | sort) ||
		fail "-T does not name every setting"
	# What is said to be in effect is.
	configure
	"$rdmad" -T -c "$dir/rdmad.conf" >"$dir/out" 2>"$dir/err" || fail "-T"
	start_daemon
	says "^workers = 0; # in effect $(sed -n 's/.*ready, workers \([0-9]*\)$/\1/p' "$dir/log")$" "-T, beside the daemon"
	stop_daemon
}

test_life() {
	configure
	sed -i 's/kv.memory = .*//' "$dir/rdmad.conf"
	start_daemon
	logged "listening on tcp 127.0.0.1:"
	logged "listening on unix $dir/rdmad.sock"
	answers status '"state":"running"'
	answers status '"transport":"tcp"'
	answers connections '"connections":[]'
	test_default_memory
	answers resources '"descriptors":'
	answers nonsense '"error":"there is no command nonsense"'
	[[ $(stat -c %a "$dir/control.sock") = 600 ]] || fail "the control socket is open to others"
	[[ $(stat -c %a "$dir/rdmad.sock") = 666 ]] || fail "the service socket is not open to others"
	kill -USR1 "$daemon"
	logged "connections 0 accepted 0"
	stop_daemon TERM
	[[ ! -e $dir/control.sock && ! -e $dir/rdmad.sock ]] || fail "sockets are left behind"
	start_daemon
	stop_daemon INT
	! grep "nothing asks clients" "$dir/log" || fail "a warning of strangers on the loopback"
	start_daemon -l tcp://0.0.0.0:0 --insecure
	logged "nothing asks clients of tcp 0.0.0.0:"
	answers shutdown '"ok":true'
	await_daemon shutdown
	start_daemon
	answers drain '"ok":true'
	answers status '"state":"draining"'
	stop_daemon TERM
}

is_taking_a_value() { [[ $(resource transfer_bytes) -gt 0 ]]; }

# Something is under way that never ends, and a second shutdown does not wait for it.
# goes_by TRANSPORT HOST
goes_by() {
	"$rdmactl" ping -c 1 -H "$2" >"$dir/out" 2>&1 && grep -q "transport $1," "$dir/out" || fail "$2 is not reached by $1: $(cat "$dir/out")"
}

# Programs of this machine share memory with the daemon, unless either side does not want to.
test_shared_memory() {
	local host
	configure
	start_daemon
	host=$(sed -n 's/.*listening on tcp //p' "$dir/log")
	goes_by shm "$host"
	goes_by shm "localhost:${host##*:}"
	goes_by shm "unix://$dir/rdmad.sock"
	goes_by tcp "tcp://$host"
	stop_daemon
	configure 'transports = ["tcp", "unix"];'
	start_daemon
	host=$(sed -n 's/.*listening on tcp //p' "$dir/log")
	goes_by tcp "$host"
	goes_by unix "unix://$dir/rdmad.sock"
	stop_daemon
}

test_end_at_once() {
	configure 'drain_timeout = "1000s"; stall_timeout = "1000s";'
	start_daemon
	"$srcdir/scripts/hostile" -c 1 -t 600 reserve "$dir/rdmad.sock" >"$dir/reserve" 2>&1 &
	clients=($!)
	wait_for "a value that does not come" is_taking_a_value
	answers shutdown '"ok":true'
	answers shutdown '"connections":1'
	await_daemon "a second shutdown"
	logged "ending at once"
	kill "${clients[0]}"
	wait "${clients[0]}"
	clients=()
}

# An eighth of the machine's memory, of which nothing is taken before it is needed where no device has to know it.
test_default_memory() {
	local arena kib
	arena=$(control memory | jq .arena_bytes)
	kib=$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)
	((arena > 1048576 && arena <= 1 << 32 && arena <= kib * 128)) || fail "by default the store has $arena bytes"
	[[ -e /dev/infiniband/rdma_cm ]] && return
	kib=$(awk '/^RssAnon/ { print $2 }' "/proc/$daemon/status")
	((kib * 1024 < arena / 2 + (256 << 20))) || fail "the store's memory is taken before there are keys: $kib KiB"
}

# Without a setting, values of 1 MiB by several clients with many under way, and the longest pings.
test_default_limits() {
	configure
	sed -i 's/kv.memory = .*//' "$dir/rdmad.conf"
	start_daemon
	server=${servers[0]}
	expect 0 bench kv -s 1M -c 4 -d 32 -D 100ms -w 0 -j && json 'all(.results[]; .operations > 0 and .mismatches == 0)' "values of 1 MiB"
	expect 0 ping -c 20 -s 1048552 -d 8 -v
	server=''
	stop_daemon
}

test_in_use() {
	configure
	start_daemon
	local port
	port=$(sed -n 's/.*listening on tcp 127.0.0.1://p' "$dir/log")
	ends 71 "Address already in use; another program has it" "$rdmad" -c "$dir/rdmad.conf" -l "127.0.0.1:$port"
	: >"$dir/file"
	ends 71 "a file of another kind" "$rdmad" -c "$dir/rdmad.conf" -l "unix://$dir/file"
	ends 71 "cannot listen on unix $dir/rdmad.sock: Address already in use" "$rdmad" -c "$dir/rdmad.conf"
	# A second one of this user, as that says.
	grep -q "RUNTIME_DIRECTORY=DIRECTORY rdmad" "$dir/out" || fail "a second daemon is not told its way"
	echo 'services = ["ping"];' >"$dir/second.conf"
	RUNTIME_DIRECTORY="$dir/second" "$rdmad" -c "$dir/second.conf" -l 127.0.0.1:0 >"$dir/second.log" 2>&1 &
	clients+=($!)
	logged ready "$dir/second.log"
	ends 0 running "$rdmactl" --control "$dir/second/control.sock" status
	kill "${clients[-1]}"
	wait "${clients[-1]}" || fail "the second daemon"
	clients=()
	sed -i 's/rdmad.sock/other.sock/' "$dir/rdmad.conf"
	ends 73 "another rdmad has it" "$rdmad" -c "$dir/rdmad.conf"
	answers status '"ok":true'
	stop_daemon KILL 137
	configure
	start_daemon # what a killed one left behind is replaced
	answers status '"ok":true'
	stop_daemon
}

test_reload() {
	configure 'log = { level = "info"; };'
	start_daemon
	sed -i 's/"info"/"debug"/' "$dir/rdmad.conf"
	echo 'port = 5; max_connections = 9; poll = "0"; workers = 3;' >>"$dir/rdmad.conf"
	kill -HUP "$daemon"
	logged "reloaded"
	logged "log.level changed"
	logged "max_connections changed"
	logged "port changed in the file, and needs a restart"
	logged "workers changed in the file, and needs a restart"
	answers status '"max_connections":9'
	answers status '"workers":1'
	sed -i 's/max_connections = 9/max_connections = 8/; s/"debug"/"loud"/' "$dir/rdmad.conf"
	kill -HUP "$daemon"
	logged "there is no \"loud\""
	logged "nothing was changed"
	answers status '"max_connections":9'
	answers reload '"ok":false'
	sed -i 's/ workers = 3;/ wrokers = 3;&/' "$dir/rdmad.conf"
	expect 1 reload && complains 'nothing was changed' reload && complains 'there is no "loud"' reload &&
		complains 'did you mean workers' "all reasons of reload"
	expect 1 reload --json && json '.ok == false and (.reasons | length == 2) and .error.status == 1' "reload --json"
	sed -i 's/ wrokers = 3;//' "$dir/rdmad.conf"
	sed -i 's/"loud"/"info"/; s/max_connections = 8/max_connections = 100000/' "$dir/rdmad.conf"
	expect 0 reload --json && json '.changed == ["log.level"] and (.needs_restart | sort) == ["max_connections", "port", "workers"]' "reload --json"
	expect 0 reload && says "^changed: none" reload && says "^needs restart: .*port" reload
	answers status '"max_connections":9'
	stop_daemon
	configure 'services = ["ping"];'
	start_daemon
	sed -i '/^services/d' "$dir/rdmad.conf"
	answers reload '"needs_restart":["services"]' # once, though two are missing
	stop_daemon
	# What was offered at the start goes and comes back.
	configure 'services = ["ping", "kv"];'
	start_daemon
	server="unix://$dir/rdmad.sock"
	expect 0 kv set a b
	sed -i 's/"ping", "kv"/"ping"/' "$dir/rdmad.conf"
	expect 0 reload --json && json '.changed == ["services"]' "reload without a service"
	expect 1 kv get a
	complains "kv is not enabled" "a service that was taken away"
	expect 0 ping -c 1 -q
	sed -i 's/"ping"/"ping", "kv"/' "$dir/rdmad.conf"
	expect 0 reload --json && json '.changed == ["services"]' "reload with a service"
	expect 0 kv get a && says '^b$' "what was stored before the service was taken away"
	server=''
	stop_daemon
}

test_log_file() {
	configure "log = { target = \"file:$dir/file\"; };"
	start_daemon
	logged ready "$dir/file"
	grep -qE '^[0-9]{4}-[0-9-]*T[0-9:.]*Z info rdmad: ready' "$dir/file" || fail "no times in the log file"
	mv "$dir/file" "$dir/file.1"
	kill -HUP "$daemon"
	logged reloaded "$dir/file" # which is a new one
	stop_daemon
}

# What is not taken there is not lost.
test_log_full() {
	local target
	for target in file:/dev/full syslog; do
		[[ $target == file:* || ! -e /dev/log ]] || continue
		configure "log = { target = \"$target\"; };"
		start_daemon
		logged 'info rdmad: ready'
		stop_daemon
	done
}

test_journal() {
	configure
	: >"$dir/log"
	JOURNAL_STREAM=$(stat -c %d:%i "$dir/log")
	export JOURNAL_STREAM
	start_daemon
	logged "<6>info rdmad: ready"
	unset JOURNAL_STREAM
	stop_daemon
	start_daemon
	! grep '^<' "$dir/log" || fail "priorities for a file that is no journal"
	stop_daemon
}

# Where the journal's own socket is there it gets fields; else, as above.
test_journal_fields() {
	local reader
	[[ $(id -u) = 0 ]] && unshare -m mount -t tmpfs none /run 2>/dev/null || return
	: >"$dir/fields"
	python3 - "$dir/journal" >"$dir/fields" <<-'END' &
	import json, socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(sys.argv[1])
	while True:
	    data, fields = s.recv(1 << 16), {}
	    while data:
	        name, _, rest = data.partition(b"\n")
	        if b"=" in name:
	            name, _, value = name.partition(b"=")
	        else:
	            n = int.from_bytes(rest[:8], "little")
	            value, rest = rest[8:8 + n], rest[8 + n:]
	            assert rest[:1] == b"\n"
	            rest = rest[1:]
	        fields[name.decode()] = value.decode()
	        data = rest
	    print(json.dumps(fields), flush=True)
	END
	reader=$!
	clients+=("$reader")
	wait_for "the journal's socket" test -S "$dir/journal"
	configure
	: >"$dir/log"
	JOURNAL_STREAM=$(stat -c %d:%i "$dir/log") unshare -m sh -c 'mount -t tmpfs none /run && mkdir -p /run/systemd/journal &&
		: >/run/systemd/journal/socket && mount --bind "$0" /run/systemd/journal/socket && exec "$@"' \
		"$dir/journal" "$rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
	daemon=$!
	wait_for "the start of rdmad" daemon_is_settled
	tells() { jq -es "any(.[]; $1)" "$dir/fields" >/dev/null 2>&1; }
	wait_for "readiness as fields" tells '. == {PRIORITY: "6", SYSLOG_IDENTIFIER: "rdmad", RDMAD_COMPONENT: "rdmad", MESSAGE: .MESSAGE} and
		(.MESSAGE | startswith("rdmad: ready"))'
	echo 'nonsense = 1;' >>"$dir/rdmad.conf"
	kill -HUP "$daemon"
	wait_for "an error with its number" tells '.PRIORITY == "3" and .RDMAD_ID == "RD-2601" and (.MESSAGE | endswith("(RD-2601)"))'
	[[ ! -s $dir/log ]] || fail "what the journal took comes as text, too"
	configure 'log.format = "json";'
	kill -HUP "$daemon"
	wait_for "a line of JSON with its fields" tells '.RDMAD_COMPONENT == "config" and (.MESSAGE | fromjson? | .message | startswith("reloaded"))'
	kill "$reader"
	wait "$reader" 2>/dev/null
	echo 'nonsense = 1;' >>"$dir/rdmad.conf"
	kill -HUP "$daemon"
	logged '<3>{"time":'
	logged '"id":"RD-2601"}'
	stop_daemon
}

# is_json LEVEL COMPONENT MESSAGE FILE: each line is an object, whose time is now, and one of them says that.
is_json() {
	python3 - "$@" <<-'END'
	import datetime, json, sys
	level, component, message, path = sys.argv[1:]
	lines = [json.loads(l[3:] if l[:1] == "<" else l) for l in open(path, encoding="utf-8")]
	for o in lines:
	    age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(o["time"].replace("Z", "+00:00"))
	    ends = "(" + o.get("id", "") + ")"
	    assert list(o)[:5] == ["time", "level", "component", "pid", "message"] and list(o)[5:] in ([], ["id"]), o
	    assert (ends[1:4] == "RD-") == ("(RD-" in o["message"]) and (ends == "()" or o["message"].endswith(ends)), o
	    assert abs(age.total_seconds()) < 3600, o
	assert [level, component] in [[o["level"], o["component"]] for o in lines if message in o["message"]], lines
	END
}

test_log_json() {
	configure 'log.format = "json";'
	start_daemon
	is_json info rdmad ready "$dir/log" || fail "standard error has other lines than JSON"
	# What is wrong goes into the log, quotes, backslashes and bytes that are no UTF-8.
	printf 'log.level = "\\"\\\\\xff";\n' >>"$dir/rdmad.conf"
	kill -HUP "$daemon"
	logged 'nothing was changed'
	is_json error config '"\\xff' "$dir/log" || fail "an error with strange bytes"
	configure 'log.format = "text";' && kill -HUP "$daemon"
	logged 'info config: reloaded'
	stop_daemon
	configure "log = { format = \"json\"; target = \"file:$dir/file\"; };"
	rm -f "$dir/file"
	start_daemon
	logged '"message":"ready' "$dir/file"
	stop_daemon
	is_json info rdmad ready "$dir/file" || fail "the file has other lines than JSON"
}

test_background() {
	configure "pid_file = \"$dir/pid\"; log = { target = \"file:$dir/file\"; };"
	cd "$dir" || return # the daemon goes elsewhere, and finds its configuration all the same
	ends 0 "" "$rdmad" -D -c rdmad.conf
	cd "$builddir" || return
	daemon=$(cat "$dir/pid")
	answers status "\"pid\":$daemon"
	ends 73 "is held by process $daemon" "$rdmad" -D -c "$dir/rdmad.conf"
	kill -HUP "$daemon"
	logged reloaded "$dir/file"
	kill "$daemon"
	wait_for "the end of the daemon in the background" ended "$daemon"
	daemon=''
	[[ ! -e $dir/pid ]] || fail "the pid file is left behind"
	configure 'kv = { memory = "64T"; };'
	# The sanitizers need more address space than there is to be.
	if ! bash -c "ulimit -v 4000000; $rdmad --version" 2>&1 | grep -q Sanitizer; then
		ends 71 "kv.memory" bash -c "ulimit -v 4000000; exec $rdmad -D -c $dir/rdmad.conf"
		configure 'kv = { memory = "1G"; };'
		ends 71 "or raise ulimit -v" bash -c "ulimit -v 1000000; exec $rdmad -t -c $dir/rdmad.conf"
	fi
}

test_limits() {
	configure
	ends 71 "RLIMIT_NOFILE is 60" bash -c "ulimit -n 60; exec $rdmad -c $dir/rdmad.conf"
	# What it says suffices does, and the least that it names starts.
	least=$(sed -n 's/.*starts with \([0-9]*\) at least.*/\1/p' "$dir/out")
	enough=$(sed -n 's/.* \([0-9]*\) suffice for max_connections 1024.*/\1/p' "$dir/out")
	ends 71 "starts with $least at least; $enough suffice" bash -c "ulimit -n $((least - 1)); exec $rdmad -c $dir/rdmad.conf"
	for limit in "$least" $((enough - 1)) "$enough"; do
		(
			failures=0
			ulimit -n "$limit"
			start_daemon
			if [[ $limit == "$enough" ]]; then
				! grep "limited to" "$dir/log" || fail "$limit descriptors do not suffice"
			else
				logged "max_connections 1024 needs $enough descriptors: limited to"
			fi
			answers status '"max_connections":'
			stop_daemon
			exit $failures
		) || fail "with $limit descriptors"
	done
	(
		failures=0
		ulimit -n 300
		start_daemon
		logged "limited to"
		answers status '"max_connections":'
		kill -HUP "$daemon"
		logged reloaded
		! grep "max_connections changed" "$dir/log" || fail "max_connections did not change in the file"
		sed -i '1i max_connections = 2000;' "$dir/rdmad.conf"
		kill -HUP "$daemon"
		logged "max_connections changed in the file, and needs a restart"
		stop_daemon
		exit $failures
	) || fail "with 300 descriptors"
	if [[ ! -e /dev/infiniband/rdma_cm ]]; then
		configure 'require_rdma = true;'
		ends 69 "RDMA is required and missing" "$rdmad" -c "$dir/rdmad.conf"
		configure
		ends 69 "cannot listen on rdma" "$rdmad" -c "$dir/rdmad.conf" -l rdma://127.0.0.1
		listen=(rdma://192.0.2.1:7471) configure
		start_daemon
		grep -q "rdma 192.0.2.1:7471: no RDMA device has this address, and nothing listens there .*RD-5010" "$dir/log" ||
			fail "nothing is said of an address that no device has: $(cat "$dir/log")"
		control status | jq -e '.missing[] | select(.transport == "rdma")' >/dev/null || fail "status does not say that RDMA is missing"
		server=unix://$dir/rdmad.sock expect 0 ping --count 1
		stop_daemon
	fi
	configure
	ends 71 "no address of this machine" "$rdmad" -c "$dir/rdmad.conf" -l 192.0.2.1
	ends 68 "no address for host" "$rdmad" -c "$dir/rdmad.conf" -l no-such-host.invalid
}

# What the gpu service will use is known at the start; without it the others are served.
test_gpu() {
	local program="program = \"$builddir/rdmad-gpu\""
	configure "gpu = { $program; backend = \"cpu\"; threads = 1; sessions = 3; };"
	start_daemon
	logged "gpu: cpu backend, 1 thread a session"
	answers status '"services":["ping","kv","gpu","channel","peer"]'
	answers status '"gpu":{"backend":"cpu","device":"'
	answers status '"sessions":0,"sessions_max":3,"sessions_per_source":2}'
	answers resources '"gpu_sessions":0'
	stop_daemon
	configure 'gpu = { program = "/nowhere/rdmad-gpu"; };'
	start_daemon
	logged "gpu: the service is not offered: "
	logged "/nowhere/rdmad-gpu"
	answers status '"services":["ping","kv","channel","peer"]'
	kill -HUP "$daemon"
	logged reloaded
	grep -q "services changed" "$dir/log" && fail "a service that cannot be offered is news at each reload"
	stop_daemon
	configure 'gpu = { program = "/nowhere/rdmad-gpu"; backend = "cuda"; };'
	ends 69 "/nowhere/rdmad-gpu" "$rdmad" -c "$dir/rdmad.conf"
	# A start that takes long ends when it is told to.
	printf '#!/bin/sh\n: >"%s"\nexec sleep 600\n' "$dir/slow.begun" >"$dir/slow"
	chmod +x "$dir/slow"
	configure "gpu = { program = \"$dir/slow\"; };"
	"$rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
	daemon=$!
	wait_for "a slow start" test -e "$dir/slow.begun"
	stop_daemon TERM 143
	! grep ready "$dir/log" || fail "the start was not slow"
	configure 'services = ["ping"];'
	start_daemon
	! grep -q gpu "$dir/log" || fail "gpu is looked for, and not enabled"
	echo 'gpu = { sessions = 5; };' >>"$dir/rdmad.conf"
	sed -i 's/\["ping"\]/["ping", "gpu"]/' "$dir/rdmad.conf"
	answers reload 'services'
	answers status '"services":["ping"]'
	stop_daemon
}

test_notify() {
	python3 - "$dir/notify" >"$dir/notified" <<-'END' &
	import socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(sys.argv[1])
	s.settimeout(120)
	while True:
	    text = s.recv(4096).decode()
	    print(text, flush=True)
	    if text.startswith("STOPPING"):
	        break
	END
	local reader=$! port
	wait_for "the service manager" test -S "$dir/notify"
	export NOTIFY_SOCKET=$dir/notify
	configure 'log = { directory = "'"$dir"'/notifying"; policy = "interval"; };'
	start_daemon
	kill -HUP "$daemon"
	logged reloaded
	stop_daemon
	unset NOTIFY_SOCKET
	wait "$reader"
	port=$(sed -n 's/^X_RDMAD_PORT=//p' "$dir/notified")
	[[ $port && "${servers[*]} " == *":$port "* ]] || fail "the service manager was told of port $port, of ${servers[*]}"
	[[ $(tr '\n' ' ' <"$dir/notified") = "STATUS=log: 0 B of 0 B read EXTEND_TIMEOUT_USEC=30000000 READY=1 STATUS=ready X_RDMAD_PORT=$port RELOADING=1 READY=1 STATUS=draining: no new connections STOPPING=1 " ]] ||
		fail "the service manager was told $(cat "$dir/notified")"
	notified_of_life
}

# As often as it wants to the service manager's watchdog hears that all threads turn.
notified_of_life() {
	python3 - "$dir/watchdog" <<-'END' &
	import socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(sys.argv[1])
	s.settimeout(120)
	heard = 0
	while heard < 5:
	    heard += s.recv(4096) == b"WATCHDOG=1"
	END
	local reader=$!
	wait_for "the service manager" test -S "$dir/watchdog"
	export NOTIFY_SOCKET=$dir/watchdog WATCHDOG_USEC=200000
	start_daemon
	unset NOTIFY_SOCKET WATCHDOG_USEC
	wait "$reader" || fail "the watchdog does not hear of the daemon"
	stop_daemon
}

daemon_answers() { [[ $(ask status 2>/dev/null) == *'"ok":true'* ]]; }

# A worker that is stopped is named in the log, and the watchdog hears nothing until it turns again.
test_stuck() {
	export NOTIFY_SOCKET=$dir/stuck WATCHDOG_USEC=800000
	python3 - "$dir/stuck" >"$dir/heard" <<-'END' &
	import socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(sys.argv[1])
	s.settimeout(1) # five times as long as it should take
	while True:
	    try:
	        if s.recv(4096) == b"WATCHDOG=1":
	            print("lives", flush=True)
	    except socket.timeout:
	        print("silent", flush=True)
	END
	clients=($!)
	wait_for "the service manager" test -S "$dir/stuck"
	configure "workers = 2;"
	start_daemon
	unset NOTIFY_SOCKET WATCHDOG_USEC
	lives() { [[ $(tail -n 1 "$dir/heard") == lives ]]; }
	wait_for "a sign of life" lives
	python3 "$srcdir/tests/daemon/stop_thread.py" "$daemon" "worker 1" >"$dir/stopped" 2>"$dir/err" &
	clients+=($!)
	is_stopped() { grep -q stopped "$dir/stopped" || ended "${clients[1]}"; }
	wait_for "the stop of a worker" is_stopped
	if grep -q stopped "$dir/stopped"; then
		logged "error worker: worker 1 has not turned for "
		is_silent() { [[ $(tail -n 1 "$dir/heard") == silent ]]; }
		wait_for "the watchdog's silence while a worker is stopped" is_silent
		kill "${clients[1]}"
		logged "warn worker: worker 1 turns again"
		[[ $(grep -c "has not turned" "$dir/log") == 1 ]] || fail "the log does not name the worker once"
		wait_for "a sign of life again" lives
	else
		echo "a thread cannot be stopped here: $(cat "$dir/err")"
	fi
	kill "${clients[@]}" 2>/dev/null
	clients=()
	stop_daemon
}

# Clients of the control socket that are silent, slow, greedy or mad cost nobody else anything.
test_hostile_control() {
	configure
	start_daemon
	python3 - "$dir/control.sock" <<-'END' || fail "hostile control clients"
	import os, select, socket, sys
	def connect():
	    s = socket.socket(socket.AF_UNIX)
	    s.settimeout(120)
	    s.connect(sys.argv[1])
	    return s
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
	silent = [connect() for _ in range(10)]
	gone = connect()            # asks, and does not wait for the answer
	gone.sendall(b"connections\n")
	gone.close()
	s = connect()
	s.sendall(b"status\n")
	assert b'"ok":true' in b"".join(iter(lambda: s.recv(65536), b""))
	assert not select.select(silent, [], [], 0)[0], "only when the silent were thrown out"
	many = [connect() for _ in range(30)]
	assert any(b"too many" in m.recv(200) for m in many[10:])
	for m in many + silent:
	    m.close()
	END
	wait_for "an answer after all that" daemon_answers
	server=unix://$dir/control.sock expect 1 ping && complains "does not answer like rdmad" "a client of the services"
	stop_daemon
}

test_ordinary_user() {
	[[ $(id -u) = 0 ]] && command -v setpriv >/dev/null || return
	configure
	mkdir "$dir/own"
	chmod 755 "$dir"
	chmod 644 "$dir/rdmad.conf"
	chown 65534:65534 "$dir/own"
	sed -i "s|$dir/\([a-z]*\).sock|$dir/own/\1.sock|" "$dir/rdmad.conf"
	local user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	ends 77 "the daemon's user may not" "${user[@]}" "$rdmad" -c "$dir/rdmad.conf" -l unix:///rdmad.sock
	ends 77 "listen: cannot make /rdmad.sock: Permission denied" "${user[@]}" "$rdmad" -t -c "$dir/rdmad.conf" -l unix:///rdmad.sock
	ends 77 "may not write there: change listen, unix_socket or XDG_RUNTIME_DIR" "${user[@]}" "$rdmad" -c "$dir/rdmad.conf" -l unix:///rdmad.sock
	! grep -q 'choose a port' "$dir/out" || fail "a port is recommended for a path"
	ends 0 "no errors" "${user[@]}" "$rdmad" -t -c "$dir/rdmad.conf"
	rm -f "$dir/log" # of the daemon before
	"${user[@]}" "$rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
	daemon=$!
	logged ready
	ln -sf own/control.sock "$dir/control.sock"
	answers status '"ok":true' # root may ask
	stop_daemon
	rm -rf "$dir/own" "$dir/control.sock"
}

# With the system's daemon there, an ordinary user is led to that one, and not to a second. /run is the test's own.
test_system_daemon() {
	[[ $(id -u) = 0 ]] && command -v setpriv >/dev/null && command -v nsenter >/dev/null && unshare -m mount -t tmpfs none /run 2>/dev/null || return
	local user
	printf '%s\n' "listen = [\"${listen[0]}\"];" 'insecure = true;' 'services = ["ping"];' >"$dir/rdmad.conf"
	chmod 755 "$dir"
	rm -f "$dir/log" # of the daemon before
	# shellcheck disable=SC2016 # what the shell in there expands
	unshare -m sh -c 'mount -t tmpfs none /run && exec "$@"' - "$rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
	daemon=$!
	logged ready
	user=(nsenter -m -t $daemon setpriv --reuid=65534 --regid=65534 --clear-groups env RDMAD_CONTROL= "XDG_RUNTIME_DIR=$dir/own")
	ends 3 "no daemon of yours is at $dir/own/rdmad-control.sock; the system's is at /run/rdmad/control.sock" "${user[@]}" "$rdmactl" status
	grep -qx 'try: sudo rdmactl status' "$dir/out" || fail "what to do is not said"
	! grep -q 'start the daemon' "$dir/out" || fail "a second daemon is recommended"
	ends 0 running nsenter -m -t "$daemon" env -u RDMAD_CONTROL "$rdmactl" status
	nsenter -m -t "$daemon" rm /run/rdmad/control.sock
	ends 3 "start the daemon with: rdmad" "${user[@]}" "$rdmactl" status
	stop_daemon
}

# What a parent hands down disables nothing: blocked signals, an ignored SIGCHLD, a limit of the size of files.
test_parent() {
	local real=$rdmad
	need python3
	cat >"$dir/parent" <<-END
		#!/bin/sh
		exec python3 -c 'import os, signal, sys
		signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
		signal.signal(signal.SIGCHLD, signal.SIG_IGN)
		os.execv(sys.argv[1], sys.argv[1:])' "$real" "\$@"
	END
	chmod +x "$dir/parent"
	rdmad=$dir/parent
	configure "pid_file = \"$dir/pid\"; log = { target = \"file:$dir/file\"; };"
	ends 0 "" "$rdmad" -D -c "$dir/rdmad.conf"
	daemon=$(cat "$dir/pid")
	ends 73 "is held by process $daemon" "$rdmad" -D -c "$dir/rdmad.conf"
	kill -HUP "$daemon"
	logged reloaded "$dir/file"
	kill "$daemon"
	wait_for "the end by SIGTERM" ended "$daemon"
	rdmad=$real
	configure
	start_daemon
	(ulimit -f 1 && ends 0 "" "$rdmactl" -H "unix://$dir/rdmad.sock" kv set key value && exit "$failures") ||
		fail "a client that may write no file"
	stop_daemon
	(
		failures=0
		ulimit -f 1
		start_daemon 2>/dev/null
		ends 0 "" "$rdmactl" -H "unix://$dir/rdmad.sock" kv set key value
		stop_daemon
		exit $failures
	) || fail "a daemon that may write no file"
}

# As process 1 of a container: whatever is orphaned is reaped, signals arrive, and its exit status is the daemon's.
test_process_1() {
	local first orphan
	configure
	if ! unshare -pf true 2>/dev/null; then
		echo "no process namespaces here"
		return
	fi
	unshare -pf --kill-child sh -c 'exec "$@"' - "$rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
	daemon=$!
	logged ready
	first=$(pgrep -P $daemon)
	nsenter -p -t "$first" sh -c 'sleep 0.3 & echo' >/dev/null
	orphan=$(pgrep -P "$first" -x sleep)
	[[ $orphan ]] || fail "there is no orphan"
	wait_for "the orphan to be reaped" ended "$orphan"
	[[ -z $(ps -o stat= --ppid "$first" | grep Z) ]] || fail "there are zombies"
	kill "$first"
	await_daemon SIGTERM 0
	configure 'port = 70000;'
	ends 78 "" unshare -pf --kill-child "$rdmad" -c "$dir/rdmad.conf"
	configure 'pid_file = "/nowhere/at/all";'
	ends 73 "" unshare -pf --kill-child "$rdmad" -c "$dir/rdmad.conf"
}

# The sockets of a daemon that took their names over.
test_names_taken_over() {
	local before log=$dir/log
	configure
	start_daemon
	before=$daemon
	rm "$dir/rdmad.sock" "$dir/control.sock"
	mv "$log" "$dir/before"
	start_daemon
	kill "$before"
	wait_for "the end of the one before" ended "$before"
	answers status "\"pid\":$daemon"
	ends 0 "" "$rdmactl" -H "unix://$dir/rdmad.sock" ping -c 1
	stop_daemon
	[[ ! -e $dir/rdmad.sock && ! -e $dir/control.sock ]] || fail "its own sockets are left behind"
}

# Where another user has made the control socket it is not talked to, whatever it would answer.
test_strange_socket() {
	[[ $(id -u) = 0 ]] && command -v setpriv >/dev/null || return
	local stranger asker=(setpriv --reuid=65533 --regid=65533 --clear-groups)
	mkdir -m 777 "$dir/shared"
	chmod 755 "$dir"
	python3 - "$dir/shared/control.sock" >"$dir/heard" <<-'END' &
	import os, socket, sys
	os.setuid(65534)
	s = socket.socket(socket.AF_UNIX)
	s.bind(sys.argv[1] + ".new")
	os.chmod(sys.argv[1] + ".new", 0o777)
	s.listen()
	os.rename(sys.argv[1] + ".new", sys.argv[1])
	while True:
	    c = s.accept()[0]
	    heard = c.recv(100)
	    print(heard, flush=True)
	    if heard:
	        c.send(b'{"ok":true,"state":"forged"}\n')
	    c.close()
	END
	stranger=$!
	clients+=("$stranger")
	wait_for "the stranger's socket" test -S "$dir/shared/control.sock"
	ends 3 "is of user 65534, and neither of this user, 65533, nor of root" "${asker[@]}" "$rdmactl" --control "$dir/shared/control.sock" status
	! grep -q forged "$dir/out" || fail "what a stranger says is shown"
	[[ $(cat "$dir/heard") == "b''" ]] || fail "the stranger heard $(cat "$dir/heard")"
	kill "$stranger"
	wait "$stranger" 2>/dev/null
	clients=()
	rm -rf "$dir/shared"
}

# A daemon that does not answer any more: how long rdmactl waited is in its words.
test_silence() {
	configure
	start_daemon
	timeout 240 "$rdmactl" -H "unix://$dir/rdmad.sock" ping -i 10ms --timeout 5s >"$dir/out" 2>"$dir/err" &
	clients=($!)
	wait_for "the first pongs" grep -q "seq=2" "$dir/out"
	kill -STOP "$daemon"
	wait "${clients[0]}"
	[[ $? == 5 ]] || fail "the exit status is not that of a timeout"
	complains "no pong after 5s"
	kill -CONT "$daemon"
	clients=()
	stop_daemon
}

parts=(options manual configuration machine pipes print life shared_memory end_at_once default_limits in_use reload log_file log_full journal journal_fields log_json background parent process_1 names_taken_over limits gpu notify stuck hostile_control ordinary_user system_daemon strange_socket silence)
[[ $# == 0 ]] || parts=("$@")
for part in "${parts[@]}"; do
	echo "$part"
	"test_$part"
done
conclude
