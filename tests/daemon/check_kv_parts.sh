#!/bin/bash
# The three parts of the key/value exercise as people run them, with rdmad and rdmactl from the build tree: small values by
# eager; values of every size up to 2,000,000 bytes by rendezvous (up to 200,000,000 with RDMAD_TEST_LARGE set); two
# clients at once, each with its command file and many sets outstanding. By TCP and UNIX sockets, or by RDMA where
# there is a device whose address RDMAD_GUEST_ADDR says.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq cmp

# run COMMANDS OUTPUT
run() {
	expect 0 kv run "$1"
	mv "$dir/out" "$2"
}

memory=256M sizes=(2 100 4094 4095 4096 4097 4098 8192 8193 65536 65537 1000000 1048577 2000000)
if [[ ${RDMAD_TEST_LARGE-} ]]; then
	memory=1G sizes+=(20000000 200000000)
fi

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
	run "$dir/eager" "$dir/got"
	cmp -s "$dir/want" "$dir/got" || fail "eager: the values are not what was set"
}

# Each of its size, the same for any client that asks, and never that of another key.
part_rendezvous() {
	local n line=0
	for n in "${sizes[@]}"; do echo "setsize parts-$n $n"; done >"$dir/rendezvous"
	for n in "${sizes[@]}"; do echo "get parts-$n"; done >>"$dir/rendezvous"
	run "$dir/rendezvous" "$dir/got"
	for n in "${sizes[@]}"; do
		line=$((line + 1))
		sed -n ${line}p "$dir/got" | tr -d '\n' >"$dir/value"
		[[ $(wc -c <"$dir/value") == $((n - 1)) ]] || fail "setsize $n: not $((n - 1)) bytes"
		expect 0 kv get "parts-$n" && same "$dir/value" "setsize $n, asked again"
	done
	[[ $(wc -l <"$dir/got") == "$line" ]] || fail "setsize: lines that nobody asked for"
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
	ctl kv del parts-small
	run "$dir/lines" "$dir/got"
	cmp -s "$dir/want" "$dir/got" || fail "long lines: the values are not what was set"
	for n in "${sizes[@]}"; do expect 0 kv del "parts-$n"; done
}

part_two_clients() {
	local who pid pids=()
	for who in one two; do
		awk -v who="$who" 'BEGIN {
			for (i = 1; i <= 400; i++) {
				print "setsize parts-common-" i % 10, i * 50 + 1
				for (; length(text) < i * 40; ) text = text substr(who, 1, 1)
				print "set parts-" who "-" i, who, i, text
			}
			for (i = 1; i <= 400; i++) print "get parts-" who "-" i
		}' >"$dir/$who"
		model <(grep -v common "$dir/$who") >"$dir/$who.want"
		timeout 240 "$rdmactl" -H "$server" kv run "$dir/$who" >"$dir/$who.out" 2>"$dir/$who.err" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || fail "one of two clients: exit status $?"; done
	for who in one two; do
		cmp -s "$dir/$who.want" "$dir/$who.out" || fail "two clients: what $who set is not what it gets"
	done
	for i in {0..9}; do echo "get parts-common-$i"; done >"$dir/common"
	run "$dir/common" "$dir/got"
	[[ $(wc -c <"$dir/got") == 197760 ]] || fail "two clients: what both set is neither's last"
}

nothing_is_held() { control resources | jq -e '.connections == 0 and .store_pins == 0 and .buffers_in_use == 0' >/dev/null; }

configure "kv = { memory = \"$memory\"; };"
start_daemon
keep_special
for server in "${servers[@]}"; do
	for part in eager rendezvous two_clients; do
		part_$part
	done
	wait_for "the end of connections, pins and buffers" nothing_is_held
	echo "${server%%:*}: $failures failures"
done
server=''
stop_daemon
conclude
