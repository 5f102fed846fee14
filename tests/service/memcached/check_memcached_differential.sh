#!/bin/bash
# The answers of rdmad to memcached's clients are those of a memcached, or memcached_differential.py says why not; also where they
# wait for the log. COMMANDS=100000 SEED=7 asks for more of them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 memcached

memcached_port=''
start_memcached() {
	local i user=()
	[[ $(id -u) != 0 ]] || user=(-u nobody)
	for ((i = 0; i < 50; i++)); do
		memcached_port=$((RANDOM % 20000 + 30000))
		memcached "${user[@]}" -l 127.0.0.1 -p "$memcached_port" -U 0 -m 256 -I 4m >"$dir/memcached.log" 2>&1 &
		servers=("$!")
		clients=("$!")
		for ((; ;)); do
			kill -0 "${servers[0]}" 2>/dev/null || break # another one has the port
			{ exec 3<>"/dev/tcp/127.0.0.1/$memcached_port"; } 2>/dev/null && { exec 3>&-; return; }
			sleep 0.1
		done
	done
	give_up "memcached does not start: $(tail -n 1 "$dir/memcached.log")"
}

# compare COMMANDS LINE...: of the configuration.
compare() {
	configure 'services = ["kv", "memcached"];' 'memcached = { listen = ["127.0.0.1:0"]; };' "${@:2}"
	start_daemon
	port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for memcached.*/\1/p' "$dir/log")
	python3 "$srcdir/tests/service/memcached/memcached_differential.py" "$memcached_port" "$port" "$1" "${SEED:-1}" ||
		give_up "the answers differ"
	stop_daemon
}

start_memcached
compare "${COMMANDS:-$(part 8000)}" 'kv.memory = "256M";' 'workers = 2;'
compare "$(part 1000)" "kv.memory = \"256M\"; log = { directory = \"$dir/changes\"; policy = \"always\"; };"
conclude
