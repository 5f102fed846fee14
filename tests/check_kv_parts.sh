#!/bin/bash
# The three parts of the key/value exercise as people run them, with rdmad and rdmactl from the build tree: small values by
# eager; values of every size up to 2,000,000 bytes by rendezvous (up to 200,000,000 with RDMAD_TEST_LARGE set); two
# clients at once, each with its command file and many sets outstanding. By TCP and UNIX sockets, or by RDMA where
# there is a device whose address RDMAD_GUEST_ADDR says.
set -u
builddir=${builddir:-$PWD}
dir=$(mktemp -d "${TMPDIR:-/tmp}/rdmad-parts.XXXXXX")
daemon='' failures=0
unset RDMAD_HOST

finish() {
	[[ $daemon ]] && kill -KILL "$daemon" 2>/dev/null
	wait
	rm -rf "$dir"
}
trap finish EXIT

for tool in jq cmp; do
	command -v $tool >/dev/null || { echo "check_kv_parts: $tool is missing"; exit 77; }
done

fail() {
	echo "FAILED: $server: $*" >&2
	head -c 500 "$dir/err" >&2
	failures=$((failures + 1))
}

ctl() { timeout 240 "$builddir/rdmactl" --control "$dir/control.sock" "$@"; }
run() { ctl -H "$server" kv run "$1" >"$2" 2>"$dir/err" || fail "kv run $1: exit status $?"; }

memory=256M sizes=(2 100 4094 4095 4096 4097 4098 8192 8193 65536 65537 1000000 1048577 2000000)
if [[ ${RDMAD_TEST_LARGE-} ]]; then
	memory=1G sizes+=(20000000 200000000)
fi

start_daemon() {
	local rdma=${RDMAD_GUEST_ADDR:+", \"rdma://$RDMAD_GUEST_ADDR:"} port
	for _ in {1..5}; do
		port=$((20000 + RANDOM % 30000))
		cat >"$dir/rdmad.conf" <<-CONF
			listen = ["tcp://127.0.0.1:$port"${rdma:+"$rdma$port\""}];
			unix_socket = "$dir/rdmad.sock";
			pid_file = "$dir/rdmad.pid";
			kv = { memory = "$memory"; };
			control = { socket = "$dir/control.sock"; };
		CONF
		"$builddir/rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
		daemon=$!
		servers=("tcp://127.0.0.1:$port" "unix://$dir/rdmad.sock")
		# In the guest, which is slow, only what no other machine has.
		[[ ! $rdma ]] || servers=("rdma://$RDMAD_GUEST_ADDR:$port")
		for _ in {1..200}; do
			ctl status >/dev/null 2>&1 && return
			kill -0 $daemon 2>/dev/null || break
			sleep 0.1
		done
		wait $daemon
	done
	cat "$dir/log" >&2
	echo "check_kv_parts: rdmad does not start" >&2
	exit 1
}

# The values as the commands say: "set" and "get" in order, a missing key is empty, printkv is what there is at the end.
model() {
	awk '$1 == "set" { key = $2; sub(/^set [^ ]* /, ""); if (!(key in v)) order[++n] = key; v[key] = $0 }
		$1 == "get" { if (!($2 in v)) { v[$2] = ""; order[++n] = $2 } print v[$2] }
		$1 == "printkv" { for (i = 1; i <= n; i++) print order[i], v[order[i]] }' "$1"
}

part_eager() {
	{
		for i in {1..1000}; do
			echo "set parts-eager-${server%%:*}-$((i % 300)) value $i of $RANDOM"
			((i % 3)) || echo "get parts-eager-${server%%:*}-$((RANDOM % 400))"
		done
		echo printkv
	} >"$dir/eager"
	model "$dir/eager" >"$dir/want"
	run "$dir/eager" "$dir/out"
	cmp -s "$dir/want" "$dir/out" || fail "eager: the values are not what was set"
}

# Each of its size, the same by whoever asks, and never that of another key.
part_rendezvous() {
	local n line=0
	for n in "${sizes[@]}"; do echo "setsize parts-$n $n"; done >"$dir/rendezvous"
	for n in "${sizes[@]}"; do echo "get parts-$n"; done >>"$dir/rendezvous"
	run "$dir/rendezvous" "$dir/out"
	for n in "${sizes[@]}"; do
		line=$((line + 1))
		sed -n ${line}p "$dir/out" | tr -d '\n' >"$dir/value"
		[[ $(wc -c <"$dir/value") == $((n - 1)) ]] || fail "setsize $n: not $((n - 1)) bytes"
		ctl -H "$server" kv get "parts-$n" >"$dir/again" 2>"$dir/err" || fail "kv get parts-$n"
		cmp -s "$dir/value" "$dir/again" || fail "setsize $n: another value when asked again"
	done
	[[ $(wc -l <"$dir/out") == "$line" ]] || fail "setsize: lines that nobody asked for"
	# Lines of that length are values too; a small one over a large one, and back.
	{
		for n in 5000 100 70000 4095 4096; do
			echo "set parts-x $(head -c $n /dev/urandom | base64 -w0 | head -c $n)"
			echo "get parts-x"
			echo "get parts-small"
			echo "set parts-small $n"
		done
		echo printkv
	} >"$dir/lines"
	model "$dir/lines" >"$dir/want"
	ctl -H "$server" kv del parts-small >/dev/null 2>&1
	run "$dir/lines" "$dir/out"
	cmp -s "$dir/want" "$dir/out" || fail "long lines: the values are not what was set"
	for n in "${sizes[@]}"; do ctl -q -H "$server" kv del "parts-$n" >/dev/null 2>"$dir/err" || fail "kv del"; done
}

part_two_clients() {
	local who pid pids=()
	for who in one two; do
		{
			for i in {1..400}; do
				echo "setsize parts-common-$((i % 10)) $((i * 50 + 1))"
				echo "set parts-$who-$i $who $i $(head -c $((i * 40)) /dev/zero | tr '\0' "${who:0:1}")"
			done
			for i in {1..400}; do echo "get parts-$who-$i"; done
		} >"$dir/$who"
		model <(grep -v common "$dir/$who") >"$dir/$who.want"
		ctl -H "$server" kv run "$dir/$who" >"$dir/$who.out" 2>"$dir/$who.err" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || fail "one of two clients: exit status $?"; done
	for who in one two; do
		cmp -s "$dir/$who.want" "$dir/$who.out" || fail "two clients: what $who set is not what it gets"
	done
	for i in {0..9}; do echo "get parts-common-$i"; done >"$dir/common"
	run "$dir/common" "$dir/out"
	[[ $(wc -c <"$dir/out") == 197760 ]] || fail "two clients: what both set is neither's last"
}

# Nobody is connected, nothing is pinned.
nothing_held() {
	for _ in {1..100}; do
		ctl resources --json >"$dir/out" 2>"$dir/err"
		jq -e '.connections == 0 and .store_pins == 0 and .buffers_in_use == 0' "$dir/out" >/dev/null && return
		sleep 0.1
	done
	fail "connections, pins or buffers are left"
}

start_daemon
for server in "${servers[@]}"; do
	for part in eager rendezvous two_clients; do
		part_$part
	done
	nothing_held
	echo "${server%%:*}: $failures failures"
done
server=daemon
kill -TERM "$daemon"
wait "$daemon" || fail "rdmad: exit status $?"
daemon=
[[ $failures == 0 ]] || tail -20 "$dir/log" >&2
[[ $failures == 0 ]]
