#!/bin/bash
# Starts rdmad with a configuration of its own and uses it as people do, by rdmactl alone, at each ADDRESS:
#
#   tests/ctl/end_to_end.sh tcp unix rdma://10.99.0.1
#
# "tcp" and "unix" stand for a free port of the loopback and a socket in the temporary directory. Both programs come from
# PATH. ROUNDS says how often a client is killed (default 20), PARTS which parts are tried: by default all at the first
# address, and at the others the parts that it makes a difference to. Exit status 0: all is well; 1: what was not stands on
# stderr; 77: a tool is missing.
rdmad=rdmad rdmactl=rdmactl
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
rounds=${ROUNDS:-20}
need rdmad rdmactl jq cmp

# --- the daemon

listen=(tcp://127.0.0.1:0)
for address; do
	case $address in
	tcp | unix) ;;
	*:*:*) listen+=("$address") ;;
	*) listen+=("$address:0") ;;
	esac
done
configure 'workers = 2;' 'kv = { memory = "64M"; };'

# Only the transports that were asked for, in that order.
start() {
	local address one all
	start_daemon
	all=("${servers[@]}")
	servers=()
	for address; do
		for one in "${all[@]}"; do [[ ${one%%:*} != "${address%%:*}" ]] || servers+=("$one"); done
	done
}

# --- what is tested at each address

nobody() {
	case $server in
	unix:*) echo "unix://$dir/nobody.sock" ;;
	*) echo "${server%%:*}://$(sed 's,^[a-z]*://,,; s,:[0-9]*$,,' <<<"$server"):1" ;;
	esac
}

test_ping() {
	local size
	for size in 0 1 64 4000 100000; do
		expect 0 ping -c 50 -s $size --verify --json && json ".transport == \"$(transport_of)\" and
			.size_bytes == $size and .received == 50 and .verified and .verify_failures == 0 and
			.rtt_us_min > 0 and .rtt_us_min <= .rtt_us_p50 and .rtt_us_p50 <= .rtt_us_p99 and
			.rtt_us_p99 <= .rtt_us_p99_9 and .rtt_us_p99_9 <= .rtt_us_max and .rtt_us_mean > 0 and
			.messages_per_second > 0 and .megabits_per_second >= 0 and .cpu_user_seconds >= 0 and
			.cpu_system_seconds >= 0 and (.interrupted | not)" "ping of $size bytes"
	done
	expect 0 ping -c 100 --depth 8 -v && says "100 sent, 100 received, all verified" ping
	expect 0 ping -c 3 -i 10ms && says "64 bytes from .*seq=3 time=[0-9.]+ us" "ping -i"
	expect 0 ping -c 3 --poll 0
	expect 0 ping -c 3 --poll always
}

# No address makes a difference to these.
test_ping_options() {
	local bad
	for bad in "-c 0" "-c -1" "-c 1x" "-c 4294967296" "-s -1" "-s 1G" "-d 0" "-d 9999" "-i 5" "-i 1s -d 2" "-x" "a b"; do
		# shellcheck disable=SC2086 # some are two words
		expect 2 ping $bad && complains "usage: rdmactl help ping" "ping $bad"
	done
	for bad in "foo://a" "tcp:///a" "unix://a" "a:b"; do
		expect 2 ping "$bad" && complains "is not an address" "ping $bad"
		expect 2 kv get a -H "$bad" && complains "usage: rdmactl help kv get" "kv get -H $bad"
	done
}

test_pair() {
	local name=$1 file=$2
	expect 0 kv set "$name" --file "$file" -q
	expect 0 kv exists "$name" && says yes "exists $name"
	expect 0 kv get "$name" && same "$file" "get $name"
	complains "transport $(transport_of)" "get $name"
	expect 0 kv set "$name" - <"$file"
	expect 0 kv get "$name" && same "$file" "get $name from stdin"
	expect 0 kv del "$name"
	expect 4 kv del "$name"
	expect 4 kv exists "$name" && says no "exists $name"
	expect 4 kv get "$name" && complains "no such key" "get $name"
	[[ ! -s $dir/out ]] || fail "a missing key prints something"
}

make_values() {
	local i
	for i in {0..255}; do printf "\\x$(printf %02x "$i")"; done >"$dir/all"
	printf 'a\0b\n\0' >"$dir/nul"
	: >"$dir/empty"
	head -c 4000 /dev/urandom >"$dir/large"
	head -c 1000000 /dev/urandom >"$dir/bytes"
	for i in 4095 4096 4097 2000000; do
		head -c $i /dev/urandom >"$dir/$i"
	done
}

test_kv() {
	local key name values=(all nul empty large 4095 4096 4097 2000000) # from 4096 on by rendezvous
	[[ ! ${RDMAD_GUEST-} ]] || values=(all 4096 2000000)
	for name in "${values[@]}"; do
		test_pair "e2e-$name" "$dir/$name"
	done
	expect 0 kv set e2e-text "two words" && expect 0 kv get e2e-text --newline && says "^two words$" "get"
	expect 0 kv get e2e-text --json && json ".value == \"two words\" and .value_bytes == 9 and .found and
		.transport == \"$(transport_of)\"" "get --json"
	expect 0 kv del e2e-text --json && json ".deleted" "del --json"
	expect 4 kv get e2e-text --json && json ".found == false" "get --json of a missing key"
	key=$(head -c 4095 /dev/zero | tr '\0' k)
	expect 0 kv set "$key" "" && expect 0 kv get "$key" && same "$dir/empty" "key of 4095 bytes"
	expect 0 kv del "$key"
	expect 1 kv set "${key}k" "" && complains "key has 4096 bytes" "key of 4096 bytes"
	expect 2 kv set "" "" 3
	expect 2 kv set e2e-novalue
}

test_kv_numbers() {
	local version
	ctl kv del e2e-n
	expect 0 kv incr e2e-n && says "^1$" incr
	expect 0 kv incr e2e-n -- -9223372036854775808 && says "^-9223372036854775807$" incr
	expect 1 kv incr e2e-n -- -2 && complains "64 bits" "incr below 64 bits"
	expect 0 kv set e2e-n "no number" && expect 1 kv incr e2e-n && complains "not a whole number" incr
	expect 2 kv incr e2e-n 1x
	expect 0 kv stat e2e-n --json && json ".value_bytes == 9 and .ttl_us == null and .version > 0 and .type == \"string\" and .flags == 0" stat
	version=$(jq .version "$dir/out")
	expect 0 kv get e2e-n --json && json ".version == $version" "version of get"
	expect 0 kv cas e2e-n "$version" first && says "^[0-9]+$" cas
	expect 1 kv cas e2e-n "$version" second && complains "another version" cas
	expect 0 kv get e2e-n && says "^first$" cas
	expect 1 kv cas e2e-n 0 third --json && json ".stored == false" "cas of a key that is there"
	expect 0 kv del e2e-n
	expect 4 kv cas e2e-n "$version" fourth
	expect 0 kv cas e2e-n 0 --file "$dir/2000000" && expect 0 kv get e2e-n && same "$dir/2000000" "cas of a file"
	expect 2 kv cas e2e-n x y
	expect 0 kv del e2e-n
}

has_no_key() { ! ctl kv exists "$1"; }

test_kv_ttl() {
	expect 0 kv set e2e-t x --ttl 1h && expect 0 kv ttl e2e-t --json && json ".ttl_us > 3500e6 and .ttl_us <= 3600e6" ttl
	expect 0 kv ttl e2e-t never && expect 0 kv ttl e2e-t && says "^never$" ttl
	expect 0 kv ttl e2e-t 50ms
	wait_for "the end of a key" has_no_key e2e-t
	expect 4 kv ttl e2e-t && expect 4 kv stat e2e-t && expect 4 kv ttl e2e-t 5s
	expect 2 kv ttl e2e-t 0
}

test_kv_walks() {
	local i pairs=() keys=()
	expect 2 kv flush && complains "flush --yes" flush
	expect 0 kv flush --yes --json && json ".deleted >= 0" flush
	for i in {1..300}; do pairs+=("e2e-w-$i" "value $i"); keys+=("e2e-w-$i"); done
	expect 0 kv mset "${pairs[@]}" e2e-other x
	expect 0 kv mget "${keys[@]}" && [[ $(tail -1 "$dir/out") == "e2e-w-300 value 300" && $(wc -l <"$dir/out") == 300 ]] ||
		fail "mget of 300 keys"
	expect 4 kv mget e2e-w-1 e2e-none --json && json "[.results[].found] == [true, false]" mget
	expect 2 kv mset a b c
	expect 0 kv list e2e-w- && diff <(sort -u "$dir/out") <(printf '%s\n' "${keys[@]}" | sort) >/dev/null ||
		fail "list of 300 keys"
	expect 0 kv list --json && json ".complete and (.keys | length >= 301) and (.count == (.keys | length))" list
	expect 0 kv list --limit 7 -l --null && [[ $(tr -cd '\0' <"$dir/out" | wc -c) == 7 ]] || fail "list --limit 7"
	expect 0 kv list e2e-w- --limit 300 --json && json ".complete and .count == 300" "list --limit of as many as there are"
	expect 0 kv list e2e-w- --limit 299 --json && json "(.complete | not) and .count == 299 and (.keys | length == 299)" "list --limit of one less"
	expect 0 kv set e2e-big --file "$dir/2000000"
	expect 0 kv mget e2e-big e2e-w-1 && cmp -s <(printf 'e2e-big '; cat "$dir/2000000"; printf '\ne2e-w-1 value 1\n') "$dir/out" ||
		fail "mget of a large and a small value"
	expect 0 kv bigkeys -n 2 --json && json '.results[0].key == "e2e-big" and .results[0].value_bytes == 2000000 and
		(.results | length == 2) and .keys >= 302' bigkeys
	expect 0 kv stat --json && json ".keys == 302 and .used_bytes > 2000000 and .key_max_bytes == 4095" "stat"
	expect 0 kv flush -y && complains "302 keys deleted" flush
	expect 0 kv list && [[ ! -s $dir/out ]] || fail "keys after flush"
}

# All 256 bytes as keys and values, small and large, expiring and not: there and back in both formats.
# Values that are replaced behind their listing go with what is true of the new ones.
test_kv_export_beside_others() {
	local i
	head -c 9M /dev/zero | tr '\0' x >"$dir/9M" # two are more than is asked for at once
	[[ -p $dir/exports ]] || mkfifo "$dir/exports"
	for i in 1 2; do expect 0 kv set e2e-replaced-$i --file "$dir/9M" --ttl 1000s -q; done
	exec 9<>"$dir/exports"
	timeout 240 "$rdmactl" -H "$server" kv export -p e2e-replaced - >"$dir/exports" 2>"$dir/err" 9>&- &
	clients=($!)
	head -c 1 <&9 >"$dir/exported"
	for i in 1 2; do expect 0 kv set e2e-replaced-$i new -q; done
	exec 8<"$dir/exports" 9>&-
	cat <&8 >>"$dir/exported"
	exec 8<&-
	wait "${clients[0]}" || fail "export beside others: exit status $?"
	clients=()
	cut -c1-200 "$dir/exported" >"$dir/out"
	says '^{"key":"e2e-replaced-[12]","value":"new"}$' "export beside others"
}

test_kv_move() {
	local format
	expect 0 kv flush -yq
	printf '{"key":"e2e-%s","value":"%s"}\n' 1 one 2 two >"$dir/in.jsonl"
	printf '{"key_base64":"%s","value_base64":"%s","ttl_us":3600000000}\n' "$(base64 -w0 "$dir/all")" \
		"$(base64 -w0 "$dir/2000000")" >>"$dir/in.jsonl"
	printf '{"key":"\\u0000\\n\\"","value":"\\u0000"}\n' >>"$dir/in.jsonl"
	for format in json binary; do
		expect 0 kv import "$dir/in.jsonl" --json && json ".imported == 4 and .failed == 0" import
		expect 0 kv export "$dir/exported" --format $format --json && json ".exported == 4" export
		expect 0 kv flush -yq
		ctl kv import - <"$dir/exported" || fail "import of $format"
		expect 0 kv export && cmp -s <(jq -cS 'del(.ttl_us)' "$dir/in.jsonl" | sort) <(jq -cS 'select(.end | not) | del(.ttl_us)' "$dir/out" | sort) ||
			fail "what was exported as $format and imported differs"
		[[ $(jq '.ttl_us // empty | . > 3500e6' "$dir/out") == true ]] || fail "time to live by $format"
	done
	head -c 1000 "$dir/exported" >"$dir/cut"
	expect 1 kv import "$dir/cut" && complains "cut:[0-9]: the file is cut off" import
	printf 'nonsense\n{"key":"e2e-3","value":"three"}\n' >"$dir/bad.jsonl"
	expect 1 kv import "$dir/bad.jsonl" && complains "bad.jsonl:1: " import && complains "1 key imported" import
	expect 0 kv export --prefix e2e-3 && says '^{"key":"e2e-3","value":"three"}$' "export --prefix"
	expect 1 kv export /dev/full
	expect 2 kv export --json
	expect 2 kv export --format xml
	test_kv_export_beside_others
	expect 0 kv flush -yq
}

# $1: whose; writes the command file and what it must print.
write_script() {
	local i
	for i in {1..500}; do
		echo "set e2e-$1-$i first of $1 and $i"
		echo "set e2e-$1-$i $1 $i $RANDOM$RANDOM"
	done >"$dir/$1.run"
	for i in {1..500..7}; do echo "get e2e-$1-$i"; done >>"$dir/$1.run"
	printf '# a comment\n\nget e2e-%s-missing\nprintkv\n' "$1" >>"$dir/$1.run"
	awk '$1 == "set" { key = $2; sub(/^set [^ ]* /, ""); if (!(key in v)) order[++n] = key; v[key] = $0 }
		$1 == "get" { if (!($2 in v)) { v[$2] = ""; order[++n] = $2 } print v[$2] }
		$1 == "printkv" { for (i = 1; i <= n; i++) print order[i], v[order[i]] }' "$dir/$1.run" >"$dir/$1.want"
}

# As if on another machine, which shares no memory with this one.
elsewhere() {
	# shellcheck disable=SC2016 # the inner shell's
	unshare "$1" bash -c 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"' "$dir/boot_id" "${@:2}"
}

# By a connection, directly or through the daemon: check_channel_meet tells them apart.
test_channel_elsewhere() {
	local namespace=-m
	echo 00000000-0000-0000-0000-000000000000 >"$dir/boot_id"
	elsewhere $namespace true 2>/dev/null || namespace=-rm
	elsewhere $namespace true 2>/dev/null || { echo "no namespaces: channels without shared memory are not tested"; return; }
	timeout 240 "$rdmactl" channel pop --listen "$1" >"$dir/popped" 2>/dev/null &
	clients=($!)
	wait_for "a listener" ctl channel stat elsewhere
	elsewhere $namespace timeout 240 "$rdmactl" channel push "$1" --json <"$dir/bytes" >"$dir/out" 2>"$dir/err" ||
		fail "channel push, elsewhere"
	json '.put_bytes == 1000000' "channel push, elsewhere"
	wait "${clients[0]}" || fail "channel pop, elsewhere"
	clients=()
	cmp "$dir/bytes" "$dir/popped" || fail "channel pop, elsewhere"
}

# The child of that process has read more than libraries, or the process has ended.
child_has_read() { ended "$1" || (($(awk '/^rchar/ { print $2 }' "/proc/$(pgrep -P "$1")/io" 2>/dev/null || echo 0) > 1000000)); }

# One signal ends them, also while bytes flow.
test_channel_interrupted() {
	local url=shm://rdmad-test-$$ status
	timeout 120 "$rdmactl" channel pop --listen "$url" >/dev/null 2>"$dir/err" &
	clients+=($!)
	wait_for "a listener" grep -q "^.*listening on" "$dir/err"
	timeout 60 "$rdmactl" channel push "$url" </dev/zero >/dev/null 2>&1 &
	clients+=($!)
	wait_for "bytes that flow" child_has_read "${clients[-1]}"
	kill -TERM "$(pgrep -P "${clients[-1]}")" # which timeout would do twice
	wait "${clients[-1]}"
	status=$?
	[[ $status == 130 ]] || fail "channel push, ended by a signal: exit status $status, not 130"
	wait "${clients[-2]}"
	clients=("${clients[@]:0:${#clients[@]}-2}")
}

# pipe_fails TEXT URL [REDIRECTION]
pipe_fails() {
	local status
	eval 'timeout 60 "$rdmactl" channel pipe "$2" <"$dir/bytes" >"$dir/out" 2>"$dir/err"' "${3-}"
	status=$?
	[[ $status == 1 ]] || fail "channel pipe ${3-}: exit status $status, not 1"
	complains "$1" "channel pipe ${3-}"
}

# What is closed is no other descriptor, as that of the connection.
test_channel_own_faults() {
	pipe_fails "Bad file descriptor" "$1" '>&-'
	pipe_fails "Bad file descriptor" "$1" '<&-'
	pipe_fails "Is a directory" "$1" '<"$dir"'
	pipe_fails "No space left" "$1" '>/dev/full'
}

# Through the daemon, and by way of it. meet:// has no UNIX sockets.
test_channel() {
	local at="meet://${server#*://}"
	expect 0 channel list && says none "channel list"
	expect 0 peer groups && says "^groups: none" "peer groups"
	expect 4 channel stat nobody && complains "nobody listens" "channel stat"
	[[ $server != unix:* ]] || return 0
	ctl channel pipe "$at/echo" --count 1000000 <"$dir/bytes" || fail "channel pipe"
	same "$dir/bytes" "channel pipe"
	test_channel_own_faults "$at/echo"
	expect 0 channel open "$at/echo" --json && json ".transport == \"$(server=${server/#tcp/unix} transport_of)\" and .relayed" \
		"channel open"
	expect 4 channel open "$at/nobody"
	expect 2 channel open nowhere && complains "is not a channel" "channel open without one"
	expect 1 channel push "$at/nobody" --file "$dir/nothing" && complains "nothing: No such file" "channel push of a file that is not there"
	timeout 240 "$rdmactl" channel pop --listen "$at/pop" >"$dir/popped" 2>/dev/null &
	clients=($!)
	wait_for "a listener" ctl channel stat pop
	expect 0 channel list --json && json '.channels | length == 1 and .[0].name == "pop"' "channel list"
	expect 1 channel open "$at/pop" --size 4K && complains "262144 bytes" "channel open"
	ctl channel push "$at/pop" --json <"$dir/bytes" && json ".put_bytes == 1000000" "channel push" ||
		fail "channel push"
	wait "${clients[0]}" || fail "channel pop"
	clients=()
	cmp "$dir/bytes" "$dir/popped" || fail "channel pop"
	test_channel_elsewhere "$at/elsewhere"
}

# listen_on_channel OUT [OPTION...]: without a server; it is $listener, on $url.
listen_on_channel() {
	local out=$1
	shift
	url=shm://e2e-$$
	: >"$dir/by"
	"$rdmactl" channel listen "$url" --size "${size:-64K}" "$@" >"$out" 2>"$dir/by" &
	listener=$!
	clients=("$listener")
	wait_for "a listener" grep -qs "listening on" "$dir/by"
}

# has_slept PID TIMES, or has ended
has_slept() { ended "$1" || (($(awk '/^voluntary/ { print $2 }' "/proc/$1/status") >= $2)); }

# The end that takes stops for a while, in the midst of what is put, and then goes on.
test_channel_pause() {
	local size=40K # the ring and the pipe are full in the midst of what is put at once
	mkfifo "$dir/slow"
	exec 9<>"$dir/slow"
	listen_on_channel "$dir/slow" --count 1
	"$rdmactl" channel push "$url" --size $size <"$dir/bytes" 2>"$dir/err" &
	clients+=($!)
	wait_for "a push that waits for some slices of time" has_slept "${clients[1]}" 20
	head -c 1000000 <&9 >"$dir/popped" &
	wait "${clients[1]}" || fail "channel push to an end that pauses"
	wait "$listener" || { fail "channel listen" && kill $!; } # what has not come does not come any more
	clients=()
	wait $!
	exec 9>&-
	cmp "$dir/bytes" "$dir/popped" || fail "channel push to an end that pauses"
}

# More than --json prints, at once.
test_channel_json_limit() {
	local options=("shm://e2e-$$" --size 128M)
	: >"$dir/by"
	"$rdmactl" channel push --listen "${options[@]}" < <(head -c 70000000 /dev/zero) 2>"$dir/by" &
	clients=($!)
	wait_for "a listener" grep -qs "listening on" "$dir/by" # the one before may have left its socket
	expect 1 channel pop "${options[@]}" --json || kill "${clients[0]}"
	wait "${clients[0]}"
	clients=()
}

# A client that breaks the rules is told of, and the next one is served.
test_channel_overrun() {
	command -v python3 >/dev/null || { echo "no python3: a client of a channel that breaks the rules is not tested"; return; }
	listen_on_channel "$dir/popped" --count 2
	python3 "$(dirname "$0")/../daemon/hostile.py" "$dir/rdmad-channel/e2e-$$" overrun 65536 || fail "hostile.py"
	logged "claims to have put" "$dir/by"
	expect 0 channel push "$url" --size 64K after
	wait "$listener" || fail "channel listen after a client that broke the rules: $(cat "$dir/by")"
	clients=()
	[[ $(cat "$dir/popped") == after ]] || fail "channel listen after a client that broke the rules"
}

# What stands on standard input is sent though more may come, and Ctrl-C is none of its errors.
test_channel_trickle() {
	mkfifo "$dir/trickle"
	exec 8<>"$dir/trickle"
	listen_on_channel "$dir/popped"
	"$rdmactl" channel push "$url" --size 64K <"$dir/trickle" 2>"$dir/err" &
	clients+=($!)
	echo one >&8
	wait_for "the first line" grep -qx one "$dir/popped"
	echo two >&8
	wait_for "the second line" grep -qx two "$dir/popped"
	interrupted "${clients[1]}" "channel push"
	[[ $(cat "$dir/err") != *error* ]] || fail "channel push, interrupted"
	interrupted "$listener" "channel listen"
	clients=()
	exec 8>&-
}

# interrupted PID WHAT: by Ctrl-C.
interrupted() {
	kill -INT "$1"
	wait "$1"
	[[ $? == 130 ]] || fail "$2, interrupted: not exit status 130"
}

# No advice on a daemon that has nothing to do with it.
test_channel_hints() {
	local command
	for command in open push pop pipe; do
		expect 3 channel $command tcp://127.0.0.1:1/nobody
		[[ $(wc -l <"$dir/err") == 1 ]] || fail "channel $command: more than what was wrong"
	done
	expect 3 channel open meet://127.0.0.1:1/nobody && complains "start the daemon with: rdmad"
	expect 3 bench channel tcp://127.0.0.1:1/nobody --connect && [[ $(wc -l <"$dir/err") == 1 ]] ||
		fail "bench channel: more than what was wrong"
}

# From the shell, without a daemon.
test_channel_alone() {
	local url listener part before=$failures
	export XDG_RUNTIME_DIR=$dir
	for part in interrupted pause json_limit overrun trickle hints; do
		test_channel_$part
	done
	unset XDG_RUNTIME_DIR
	echo "channels without a daemon: $([[ $failures == "$before" ]] && echo ok || echo FAILED)"
}

test_scripts() {
	local who pids=()
	for who in one two; do
		write_script $who
		timeout 120 "$rdmactl" -H "$server" kv run "$dir/$who.run" >"$dir/$who.out" 2>"$dir/$who.err" &
		pids+=($!)
	done
	for who in one two; do
		wait "${pids[0]}" || fail "kv run of client $who"
		pids=("${pids[@]:1}")
		cmp -s "$dir/$who.want" "$dir/$who.out" || fail "kv run of client $who prints something else"
	done
	printf 'set e2e-x 1\nnonsense\nget e2e-x\nsetsize e2e-x 100\nget e2e-x\nsetsize e2e-x 0\n' >"$dir/bad.run"
	expect 1 kv run "$dir/bad.run" && complains "bad.run:2: no such command" "kv run" && complains "bad.run:6:" "kv run"
	[[ $(sed -n 2p "$dir/out" | tr -d '\n' | wc -c) == 99 ]] || fail "setsize 100 is no text of 99 bytes"
	ctl kv run - --json < <(echo get e2e-x) && json '.results[0].value | length == 99' "kv run --json"
	expect 1 kv run "$dir/nosuchfile"
}

test_bench() {
	expect 0 bench kv -D 100ms -w 20ms -s 1,64,1K,3K -c 4 --json && json "[.results[] | .ops_per_second > 0 and
		.bytes_per_second > 0 and .mismatches == 0 and .rtt_us_p50 > 0 and .rtt_us_p99 >= .rtt_us_p50] |
		length == 8 and all" "bench kv" && json ".transport == \"$(transport_of)\" and .verified" "bench kv"
	expect 0 bench kv -n 10000 -w 0 -c 3 -d 7 -T 2 --op mixed --json && json ".results[0].operations == 10000" "bench -n"
	expect 0 bench ping -D 100ms -w 20ms -s 1-4 -c 2 -d 4 --json && json "[.results[] | .ops_per_second > 0 and
		.mismatches == 0] | length == 3 and all" "bench ping"
	expect 0 bench kv -D 50ms -w 10ms -s 4K,100K,1M -c 4 --op set,get,mixed --json && json "[.results[] |
		.operations > 0 and .mismatches == 0] | length == 9 and all" "bench kv of large values"
	expect 0 kv list && sort "$dir/out" >"$dir/before"
	expect 0 bench blocks -s 16,3K,64K -b 8 -S 50 -P 3 -c 2 -n 40 -w 10ms --json && json '[.results[] | (.mismatches // 0) == 0 and
		.operations == 40 and .bytes_per_second >= 0] | length == 12 and all' "bench blocks" &&
		json '[.results[] | select(.op == "request") | .blocks == 320 and .hits == 160 and .size_bytes == (16, 3072, 65536) * 8] |
			length == 9' "bench blocks" &&
		json '[.results[] | select(.op == "load" and has("blocks") == false) | .size_bytes] == [64, 12288, 262144]' "bench blocks"
	expect 0 kv list && sort "$dir/out" | cmp -s - "$dir/before" || fail "bench blocks leaves keys behind"
	expect 0 bench sweep -D 20ms -w 5ms --min 1K --max 64K --compare --json && json "[.results[] | .operations > 0 and
		.mismatches == 0] | length == 19 and all" "bench sweep" && json 'has("set_crossover_bytes") and
		([.results[] | select(.way == "rendezvous" and .op == "get") | .size_bytes] == [8192, 16384, 32768, 65536])' \
		"bench sweep"
}

# Other forms of these, and what is refused.
test_bench_options() {
	expect 0 bench kv -n 1000 --no-latency --no-verify && says "^set +64 " "bench"
	expect 0 bench kv -n 1000 -w 0 -c 1 --idle 240 --json && json ".results[0].operations == 1000" "bench kv --idle"
	expect 0 bench blocks -s 4K -b 10 -n 20 --no-verify && says "^hits: 70.0 % of 200 blocks; 4 prefixes of 7 blocks" "bench blocks"
	expect 0 bench blocks -s 4K -b 4 -S 0 -n 20 && says "^hits: 0.0 % of 80 blocks" "bench blocks"
	expect 0 bench blocks -s 4K -b 4 -S 100 -n 20 && says "^hits: 100.0 % of 80 blocks" "bench blocks"
	expect 1 bench blocks -s 2M -b 64 -n 1 && complains "cannot store the prefixes: .*the store is full" "bench blocks"
	expect 2 bench blocks -s 8
	expect 2 bench blocks -S 101
	expect 2 bench blocks -b 0
	expect 0 bench sweep -D 10ms -w 0 --max 16 --plot - && says "^ +16 eager" "bench sweep" && says "s set, g get" "plot"
	if command -v gnuplot >/dev/null; then
		expect 0 bench sweep -D 10ms -w 0 --max 16 --compare --plot "$dir/plot.svg"
		grep -q '<svg' "$dir/plot.svg" && grep -q 'set, rendezvous' "$dir/plot.svg" || fail "bench sweep --plot drew no SVG"
		grep -q '>16<' "$dir/plot.svg" && ! grep -q '  *B<' "$dir/plot.svg" || fail "the labels of the SVG"
	fi
	expect 0 bench channel -D 10ms -r 1 -s 1,100,8K --capacity 4K --json && json '(.results | length == 12) and
		all(.results[]; .time_us > 0) and ([.results[] | select(.ratio > 0)] | length == 8)' "bench channel"
	expect 0 bench channel "unix://$dir/bench.channel" -D 10ms -r 2 -s 64 --flush && says "^stream +in place +64 .*socket loop" \
		"bench channel"
	expect 2 bench channel --serve
	[[ ! -e $dir/bench.channel ]] || fail "bench channel leaves its socket behind"
	expect 2 bench channel nowhere --json && json '.error.text | test("is not a channel")' "bench channel without one"
	expect 2 bench channel -s 64,0 && complains "sizes from 1 to 64M" "bench channel of no bytes"
	expect 2 bench sweep --min 2K --max 1K
	expect 2 bench sweep --plot - --json
	expect 2 bench sweep --plot "$dir/plot.pdf" && complains 'a .svg or .png file' "--plot of a PDF"
	expect 1 bench sweep --plot "$dir/no/such.png"
	expect 2 bench kv -s 4K-1K
	expect 2 bench kv --op put
	expect 2 bench kv -T 9 -c 8
}

# interrupt WORK JSON ARGUMENTS: Ctrl-C when so many requests were done, which is more than may be unanswered; the partial
# result must be there.
interrupt() {
	local work=$1 check=$2 client status
	shift 2
	work=$((work + $(work_done)))
	"$rdmactl" -H "$server" --json "$@" >"$dir/out" 2>"$dir/err" &
	client=$!
	clients=("$client")
	wait_for "the work of rdmactl $1" has_done $work
	kill -INT $client
	wait $client
	status=$?
	clients=()
	[[ $status == 130 ]] || fail "rdmactl $* interrupted: exit status $status, not 130"
	json "$check" "rdmactl $* interrupted"
}

test_interrupt() {
	interrupt 100 '.interrupted and .received > 0 and .rtt_us_max > 0' ping -c 4000000000
	interrupt 3 '.interrupted and .received > 0' ping -i 50ms
	interrupt 3000 '.interrupted and .results[0].operations > 0' bench kv -D 600s -w 0 -c 2
	interrupt 300 '.interrupted and .results[0].operations > 0' bench blocks -s 1K -b 4 -D 600s -w 0
	interrupt 3000 '.interrupted and .results[0].operations > 0' bench sweep -D 600s -w 0 -c 2
	interrupt 100 '.interrupted and .results[0].operations > 0' bench ping -D 600s -w 0
}

test_exit_statuses() {
	expect 3 ping "$(nobody)" -c 1 -t 5s && complains "rdmad" "nobody there"
	expect 3 kv get x -H "$(nobody)" -t 5s
	expect 3 bench kv "$(nobody)" -t 5s
	expect 2 nosuchcommand
	expect 2 kv
	expect 2 ping -H "host:port"
	expect 2 ping "tcp://127.0.0.1:99999"
	expect 3 status --control "$dir/nobody.sock" && complains "start the daemon with: rdmad" status
	if [[ $server == rdma:* ]]; then
		expect 0 ping -c 1 --require-rdma
	else
		expect 1 ping -c 1 --require-rdma && complains "RDMA" "ping --require-rdma"
	fi
}

test_connection_listed() {
	: >"$dir/ping" # of the server before
	"$rdmactl" -H "$server" ping -i 100ms >"$dir/ping" 2>&1 &
	clients=($!)
	wait_for "a ping" grep -qs seq=1 "$dir/ping"
	expect 0 conn list --json && json "[.connections[] | select(.transport == \"$(transport_of)\")] | length == 1" "conn list"
	expect 0 conn list && says "$(transport_of)" "conn list"
	kill -KILL "${clients[0]}"
	wait "${clients[0]}" 2>/dev/null
	clients=()
}

# --- what a client that dies leaves behind: nothing

# At any moment: at once, or when some work was done, more or less of it.
kill_clients() {
	local i command work
	for ((i = 0; i < rounds; i++)); do
		case $((i % 3)) in
		0) command="bench kv -D 600s -w 0 -s 1,2K --prefix e2e" work=5000 ;;
		1) command="bench ping -D 600s -w 0 -s 100000 -c 3 -d 4" work=100 ;;
		2) command="bench kv -D 600s -w 0 -c 20 -d 512 --op mixed --prefix e2e" work=5000 ;;
		esac
		work=$((i / 3 % 2 * (RANDOM % work + 1) + $(work_done)))
		# shellcheck disable=SC2086 # words
		"$rdmactl" -H "$server" $command >/dev/null 2>&1 &
		clients=($!)
		wait_for "the work of rdmactl $command" has_done $work
		kill -KILL "${clients[0]}"
		wait "${clients[0]}" 2>/dev/null
		clients=()
	done
}

# is_idle [USED]: nobody is connected, and what is used is that, or the same twice.
after=''
is_idle() {
	local last=$after
	after=$(control resources | jq -c '[.connections, .descriptors, .buffers_in_use, .store_pins]')
	[[ $after == "[0,"* && ${1-$last} == "$after" ]]
}

test_killed_clients() {
	local before
	expect 0 bench kv -n 1000 -c 20
	wait_for "the end of all connections" is_idle
	before=$after
	kill_clients
	wait_for "what killed clients had: [connections, descriptors, buffers, pins] were $before" is_idle "$before" ||
		fail "they are $after"
	expect 0 ping -c 10 -v
}

test_status() {
	expect 0 status && says "^state +running" status && says "ping, kv" status
	expect 0 status --json && json '.ok and .state == "running" and (.listen | length > 0)' status
	expect 0 memory && expect 0 memory --json && json .ok memory
	expect 0 reload
	expect 0 version --json && json '.rdmactl and .librdmad and .protocol' version
	expect 0 help && says "bench kv" help
	expect 0 completion && bash -n "$dir/out"
}

make_values
start "$@"
test_status
parts="ping kv channel bench interrupt exit_statuses connection_listed killed_clients"
[[ ${PARTS+set} ]] || first="ping_options kv_numbers kv_ttl kv_walks kv_move scripts bench_options"
for server in "${servers[@]}"; do
	for part in ${first-} ${PARTS-$parts}; do
		before_part=$failures
		began=$SECONDS
		test_$part
		echo "$server: $part: $([[ $failures == "$before_part" ]] && echo ok || echo FAILED), $((SECONDS - began)) s"
	done
	first=''
done
server=
[[ ${PARTS+set} ]] || test_channel_alone
stop_daemon
start_daemon
expect 0 shutdown
await_daemon shutdown
conclude
