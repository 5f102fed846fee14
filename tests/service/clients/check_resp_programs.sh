#!/bin/bash
# Programs that use clients of others as they are used: Debian's for Python and PHP, the exporter for Prometheus, and those of Node.js.
# ADDRESS="127.0.0.1 6379" asks another server, which shows whether the programs are right.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
programs=$srcdir/tests/service/clients/programs
skipped=''

# left_out WHY: this part, and the test counts as skipped.
left_out() {
	skipped="$test_name: $*"
	echo "$skipped"
}

# works COMMAND...: the program, with the address of the server.
works() {
	timeout 120 "$@" "${address[@]}" >"$dir/out" 2>"$dir/err" || fail "exit status $?: $(basename "${*:2:1}") ${*:3}"
}

# Debian's modules are those of its own python.
test_python() {
	local module python=python3
	! [ -x /usr/bin/python3 ] || python=/usr/bin/python3
	for module in redis django_redis flask_caching celery; do
		if ! "$python" -c "import $module" 2>/dev/null; then
			left_out "Debian's python3-${module//_/-} is missing"
		else
			works "$python" "$programs/with_${module%%_*}.py"
		fi
	done
}

test_php() {
	if [[ $(php -r 'echo extension_loaded("redis") && extension_loaded("pcntl");' 2>/dev/null) != 1 ]]; then
		left_out "Debian's php-redis is missing"
	else
		works php "$programs/with_phpredis.php"
	fi
}

exported() { python3 -c "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen('http://127.0.0.1:$web/metrics').read())" >"$dir/out" 2>/dev/null; }

# The exporter looks at keys, too, if it is told so.
test_exporter() {
	command -v prometheus-redis-exporter >/dev/null || { left_out "prometheus-redis-exporter is missing"; return; }
	timeout 60 redis-cli -h "${address[0]}" -p "${address[1]}" set exported "of 18 bytes length" >"$dir/out"
	web=$(free_ports 1)
	prometheus-redis-exporter -redis.addr "redis://${address[0]}:${address[1]}" -web.listen-address "127.0.0.1:$web" -check-keys 'exporte*' \
		-check-single-keys exported -count-keys 'exporte*' -export-client-list >"$dir/exporter" 2>&1 &
	clients+=($!)
	wait_for "the exporter" exported
	says '^redis_up 1$' "redis_up"
	says '^redis_key_size\{db="db0",key="exported"\} 18$' "the size of a key"
	says '^redis_keys_count\{db="db0",key="exporte\*"\} 1$' "how many keys"
	says '^redis_commands_total\{cmd="set"\} [1-9]' "commands"
	says '^redis_db_keys\{db="db0"\} [1-9]' "the keys of the database"
	says '^redis_connected_clients_details{.*name="redis_exporter"' "the clients"
	kill "${clients[-1]}"
}

test_node() {
	local why
	why=$(node_programs) || { left_out "$why"; return; }
	works node "$dir/node/with_redis.mjs"
	works node "$dir/node/with_ioredis.mjs" ioredis
	works node "$dir/node/with_ioredis.mjs" iovalkey
	works node "$dir/node/with_limiters.mjs"
	works node "$dir/node/with_glide.mjs"
}

# Its adapter for servers of this protocol, of which there is no package. As its server, this one has keys.
test_lmcache() {
	local password
	umask 077
	"$rdmactl" --quiet key new default --into "$dir/keys" >/dev/null || give_up "no key"
	echo 'default kv resp read= write=' >"$dir/clients"
	configure 'workers = 2;' 'services = ["kv", "resp"];' 'kv = { memory = "512M"; eviction = "s3-fifo"; };' 'resp = { listen = ["127.0.0.1:0"]; };' \
		"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
	start_daemon
	address=(127.0.0.1 "$(resp_port)")
	password=$("$rdmactl" key resp "$dir/keys" default)
	timeout 120 python3 "$programs/as_lmcache.py" "${address[@]}" "$password" >"$dir/out" 2>"$dir/err" || fail "as LMCache's adapter"
	stop_daemon
}

resp_port() { sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for resp.*/\1/p' "$dir/log"; }

need python3 redis-cli
if [[ ${ADDRESS-} ]]; then
	read -ra address <<<"$ADDRESS"
	export ANOTHER_SERVER=1
else
	configure 'workers = 2;' 'services = ["kv", "resp"];' 'resp = { listen = ["127.0.0.1:0"]; scripts = true; };'
	"$rdmad" -c "$dir/rdmad.conf" -T >"$dir/out" 2>&1 || { echo "$test_name: this rdmad was built without Lua"; exit 77; }
	start_daemon
	address=(127.0.0.1 "$(resp_port)")
fi
test_python
test_php
test_exporter
test_node
if [[ $daemon ]]; then
	stop_daemon
	test_lmcache
fi
[[ $failures != 0 || ! $skipped ]] || { echo "$skipped"; exit 77; }
conclude
