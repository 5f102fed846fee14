#!/bin/bash
# Redis's clients connect to rdmad and work: what they parse of its replies, Debian's redis-cli, redis-benchmark, python3-redis and the
# exporter for Prometheus; passwords.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3
socket=$dir/redis.sock
# Debian's modules are those of its own python.
python=python3
python3 -c 'import redis' 2>/dev/null || [[ ! -x /usr/bin/python3 ]] || python=/usr/bin/python3

skipped=''
# has TOOL: else this part of the test is left out, and the test counts as skipped.
has() {
	command -v "$1" >/dev/null && return
	echo "$test_name: $1 is missing: left out"
	skipped=77
	return 1
}

# see ARGUMENT...: resp_clients.py.
see() {
	"$python" "$srcdir/tests/service/resp/resp_clients.py" "$port" "$socket" "$@"
	case $? in 0) ;; 77) skipped=77 ;; *) fail "resp_clients.py $*" ;; esac
}

# The port of the daemon, which the system has chosen.
resp_port() { port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for resp.*/\1/p' "$dir/log"); [[ $port ]]; }

start() { start_at 127.0.0.1 '' "$@"; }

# start_at HOST SETTINGS [LINE...]
start_at() {
	configure 'workers = 2;' "resp = { listen = [\"$1:0\"]; unix_socket = \"$socket\"; $2 };" "${@:3}"
	start_daemon
	wait_for "the port" resp_port
}

stop() {
	kill "$daemon"
	wait "$daemon" || fail "the end of rdmad: exit status $?"
	daemon=''
}

# cli ARGUMENT...: with standard input.
cli() { timeout 60 redis-cli -p "$port" "$@" >"$dir/out" 2>"$dir/err"; }

test_redis_cli() {
	local i three
	has redis-cli || return
	for three in "" -3; do
		cli $three set cli "some text" </dev/null && says '^OK$' "set $three"
		cli $three get cli </dev/null && says '^some text$' "get $three"
		cli $three hello </dev/null && says '^proto' "hello $three"
	done
	cli select 1 </dev/null
	says 'ERR DB index is out of range' "select"
	for ((i = 0; i < 1000; i++)); do echo "SET pipe$i $i"; done | cli --pipe
	says 'errors: 0, replies: 1000' "--pipe"
	cli --scan --pattern 'pipe1*' </dev/null && [[ $(grep -c '^pipe1' "$dir/out") == 111 ]] || fail "--scan"
	cli --bigkeys </dev/null && says '1001 strings with' "--bigkeys"
	cli --memkeys </dev/null && says 'Biggest string' "--memkeys"
	timeout 3 stdbuf -oL redis-cli -p "$port" --stat -i 0.2 >"$dir/out" 2>"$dir/err"
	says '^1001 ' "--stat"
	printf 'multi\nincr n\nget cli\nexec\n' | cli && says 'some text' "a transaction"
	cli -s "$socket" ping </dev/null && says PONG "a UNIX socket"
	cli flushall </dev/null
}

# A hash is a value of another type for rdmad's own clients, which may write over it. The log has it as what it is.
test_hashes() {
	local field
	cli hset hash one 1 two 2 </dev/null && says '^2$' "hset"
	server=unix://$dir/rdmad.sock
	expect 1 kv get hash && complains 'type' "kv get of a hash"
	expect 0 kv set hash text
	cli type hash </dev/null && says '^string$' "the type of what was written over a hash"
	expect 0 kv del hash
	server=''
	field=$(head -c 65000 /dev/zero | tr '\0' f)
	cli hset hash "$field" 1 </dev/null && says '^1$' "a hash of nearly 64 KiB"
	cli hset hash b "$(head -c 600 /dev/zero | tr '\0' f)" </dev/null
	says 'ERR hash would have 65610 bytes, and rdmad keeps hashes of 65536 at most' "a hash of more than 64 KiB"
	cli hlen hash </dev/null && says '^1$' "what is left of it"
	cli del hash </dev/null
}

test_hashes_in_the_log() {
	mkdir -p "$dir/log.d"
	start_at 127.0.0.1 '' "log = { directory = \"$dir/log.d\"; policy = \"always\"; };"
	cli hset hash one 1 two 2 </dev/null
	cli expire hash 1000 </dev/null
	cli hincrby hash one 5 </dev/null && says '^6$' hincrby
	stop
	mkdir -p "$dir/log.d"
	start_at 127.0.0.1 '' "log = { directory = \"$dir/log.d\"; policy = \"always\"; };"
	cli hgetall hash </dev/null
	[[ $(tr '\n' ' ' <"$dir/out") == "one 6 two 2 " ]] || fail "a hash of the log"
	cli type hash </dev/null && says '^hash$' "its type"
	cli ttl hash </dev/null && says '^(9[0-9]*|1000)$' "its time to live"
	stop
}

test_redis_benchmark() {
	has redis-benchmark || return
	timeout 240 redis-benchmark -p "$port" -n "$(part 10000)" -P 4 -c 20 -t ping,set,get,incr,mset --csv >"$dir/out" 2>"$dir/err" ||
		fail "redis-benchmark"
	[[ $(grep -c '^"[A-Z].*","[0-9]' "$dir/out") == 6 ]] || fail "the lines of redis-benchmark"
	grep -iq 'warning\|error' "$dir/out" "$dir/err" && fail "what redis-benchmark says"
	timeout 240 redis-benchmark -3 -s "$socket" -n 1000 -t set,get -q >"$dir/out" 2>"$dir/err" || fail "redis-benchmark -3"
	cli flushall </dev/null
}

# What a client asks of those of other threads while they work.
test_beside() {
	local loads=() i
	has redis-benchmark || return
	for ((i = 0; i < 2; i++)); do
		timeout 240 redis-benchmark -p "$port" -n "$(part 20000)" -P 4 -c 20 -t set,get -q >"$dir/load$i" 2>&1 &
		loads+=($!)
	done
	for ((i = 0; i < 100; i++)); do
		printf 'CLIENT LIST\r\nINFO all\r\nCLIENT LIST TYPE pubsub\r\nMEMORY STATS\r\nCONFIG RESETSTAT\r\nCLIENT KILL ADDR 1.2.3.4:5\r\n'
	done | cli
	says '^id=.* cmd=client.list ' "CLIENT LIST"
	for i in "${loads[@]}"; do wait "$i" || fail "a load ended with $?"; done
	# Its own connections, all at once.
	timeout 240 redis-benchmark -p "$port" -n 100000000 -P 4 -c 40 -t get -q >"$dir/load" 2>&1 &
	loads=($!)
	wait_for "the clients" has_clients 40
	cli client kill type normal </dev/null && says '^4[0-9]$' "CLIENT KILL"
	wait "${loads[0]}"
	wait_for "their end" has_clients 1
	cli flushall </dev/null
}

has_clients() {
	cli info clients </dev/null
	if [[ $1 == 1 ]]; then grep -q '^connected_clients:1.$' "$dir/out"; else [[ $(sed -n 's/^connected_clients:\([0-9]*\).*/\1/p' "$dir/out") -ge $1 ]]; fi
}

exported() { python3 -c "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen('http://127.0.0.1:$web/metrics').read())" >"$dir/out" 2>/dev/null; }

test_exporter() {
	has prometheus-redis-exporter || return
	web=$(free_ports 1)
	prometheus-redis-exporter -redis.addr "redis://127.0.0.1:$port" -web.listen-address "127.0.0.1:$web" >"$dir/exporter" 2>&1 &
	clients+=($!)
	wait_for "the exporter" exported
	says '^redis_up 1$' "redis_up"
	says '^redis_instance_info\{.*redis_version="7.2.4".*role="master"' "redis_instance_info"
	says '^redis_connected_clients [1-9]' "redis_connected_clients"
	says '^redis_memory_max_bytes 6.7108864e\+07$' "redis_memory_max_bytes"
	says '^redis_commands_total\{cmd="info"\} [1-9]' "redis_commands_total"
	grep -q '^redis_exporter_last_scrape_error{err=""} 0$' "$dir/out" || fail "redis_exporter_last_scrape_error"
	kill "${clients[-1]}"
}

test_passwords() {
	local password
	umask 077
	"$rdmactl" --quiet key new app --into "$dir/keys" >/dev/null || fail "key new"
	password=$("$rdmactl" key resp "$dir/keys" app)
	printf '%s\n' 'app kv resp read=app/ write=app/' '@* ping' '* ping' >"$dir/clients"
	start "auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
	see app "$password"
	test_reload
	stop
	test_far "$password"
}

# An address of this machine that is not of the loopback stands for another machine.
test_far() {
	local far clear
	far=$(ip -4 -o addr show scope global 2>/dev/null | sed -n '1s/.* inet \([0-9.]*\).*/\1/p')
	[[ $far ]] && has redis-cli || return
	for clear in false true; do
		start_at "$far" "clear = $clear;" "auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
		timeout 60 redis-cli -h "$far" -p "$port" auth app "$1" >"$dir/out" 2>"$dir/err" </dev/null
		says "$([[ $clear == true ]] && echo '^OK$' || echo '^ERR .*resp.clear = true')" "resp.clear = $clear"
		stop
	done
}

# A client that has not said a password yet is looked for in the keys that there are when it does.
test_reload() {
	local password
	exec 5<>"/dev/tcp/127.0.0.1/$port"
	echo PING >&5
	read -r -t 60 -u 5 password
	[[ $password == -NOAUTH* ]] || fail "without a password: $password"
	"$rdmactl" --quiet key new late --into "$dir/keys" >/dev/null || fail "key new"
	echo 'late kv resp read= write=' >>"$dir/clients"
	control reload >/dev/null || fail "reload"
	password=$("$rdmactl" key resp "$dir/keys" late)
	wait_for "the new key" says_password late "$password"
	exec 5>&-
}

says_password() {
	local answer
	printf 'AUTH %s %s\r\n' "$1" "$2" >&5
	read -r -t 60 -u 5 answer
	[[ $answer == +OK* ]]
}

start
see
test_redis_cli
test_hashes
test_redis_benchmark
test_beside
test_exporter
stop
test_hashes_in_the_log
test_passwords
[[ $failures == 0 && $skipped ]] && exit 77
conclude
