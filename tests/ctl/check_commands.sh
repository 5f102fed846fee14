#!/bin/bash
# rdmactl's manners: how a command line is understood, what is said where it is not, what people are shown and asked at a
# terminal, and errors for programs.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
configure 'kv = { memory = "8M"; };' 'services = ["ping", "kv"];'
start_daemon
tcp=${servers[0]#tcp://}

test_command_line() {
	local command
	server=''
	expect 0 kv -q -H "$tcp" set anywhere x
	expect 0 -H "$tcp" kv get anywhere -q && says '^x$' "options between the words"
	expect 0 -c 3 ping "$tcp" && says "3 sent" "an option in front of its command"
	expect 0 -V && says '^rdmactl [0-9]' "-V"
	expect 0 kv get --version && says '^librdmad [0-9]' "--version"
	expect 0 help && says '^exit status: 0 done, .*4 no such key' "help"
	expect 0 help kv && says '^  kv cas KEY VERSION \[VALUE\|-\]      store' "columns of help"
	expect 0 kv --help && says 'kv get KEY' "kv --help"
	expect 0 bench -h && says 'bench kv' "bench -h"
	expect 0 kv help && says '^  kv cas KEY VERSION' "kv help"
	expect 0 kv help cas && says 'usage: rdmactl kv cas' "kv help cas"
	expect 2 help kvv && complains 'kvv: no such command; did you mean kv\?' "help kvv"
	expect 2 help pnig && complains 'did you mean ping\?' "help pnig"
	expect 2 help nosuch && complains 'nosuch: no such command$' "help nosuch"
	complains 'for the commands: rdmactl help' "help nosuch"
	expect 2 help kv xyzzyq && complains 'kv: xyzzyq: no such command; the above are there' "help kv xyzzyq"
	expect 2 kv touhc --help && complains 'did you mean kv touch' "kv touhc --help"
	expect 2 kvv && complains 'did you mean kv\?' kvv
	expect 2 chanel && complains 'did you mean channel\?' chanel
	expect 2 x && complains 'x: no such command$' x
	expect 2 kv && complains 'kv: which of the above' kv
	expect 2 kv gte x && complains 'did you mean kv get\?' "kv gte"
	expect 2 pnig && complains 'did you mean ping\?' pnig
	expect 2 get x && complains 'did you mean kv get\?' get
	test_help_width
	test_synonyms
	expect 2 -p 7471 ping && complains 'unknown option -p$' "-p in front"
	expect 2 --hots 1 ping && complains 'unknown option --hots; did you mean --host\?' "--hots in front"
	expect 2 -h 127.0.0.1 ping && complains 'to say which host: -H 127.0.0.1' "-h with a host"
	expect 2 pnig -c 5 && complains 'did you mean ping\?' "pnig -c"
	expect 2 kv nonsense && complains 'the above are there' "kv nonsense"
	expect 2 kv get anywhere --newlin && complains 'did you mean --newline' "--newlin"
	expect 2 kv set "" x && complains 'the key is empty' "an empty key"
	for command in "mget anywhere" "mexists anywhere" "mset anywhere x"; do
		# shellcheck disable=SC2086
		expect 2 kv $command "" x && complains 'the key is empty' "an empty key of kv ${command%% *}"
	done
	expect 2 kv ttl anywhere 1ns && complains 'the least is 1us' "kv ttl"
	expect 2 kv ttl anywhere soon && complains 'not a time like' "kv ttl"
	expect 2 --nope kv get anywhere && complains 'unknown option --nope' "--nope"
}

# No line of any help is longer than a terminal's, and what is said of something stands two blanks behind it at least.
test_help_width() {
	local command
	expect 0 help && sed -n 's/^  \([a-z]*\( [a-z]*\)\?\) .*  .*/\1/p' "$dir/out" >"$dir/names"
	(($(wc -l <"$dir/names") > 40)) || fail "the names of the commands"
	{
		cat "$dir/out"
		"$rdmad" --help
		"$builddir/rdmarun" --help
		while read -r command; do
			# shellcheck disable=SC2086
			"$rdmactl" help $command || fail "help $command"
		done <"$dir/names"
	} >"$dir/all"
	awk 'length > 80 && NF > 1' "$dir/all" >"$dir/out" # a path is as long as it is
	[[ ! -s $dir/out ]] || fail "a help has lines of more than 80 columns"
	for command in log gpu; do
		expect 0 help $command && ! grep -Ev '^  [^ ]+( [^ ]+)*  +[^ ]|^ {20}' "$dir/out" || fail "help $command: one blank in front of the text"
	done
	# What a command refuses its help does not have.
	expect 0 help status && ! grep -Eq -- '--host|--poll|--require-rdma' "$dir/out" && says '--control' "help status"
	expect 0 help ping && ! grep -q -- '--control' "$dir/out" && says '--host' "help ping"
}

# Words of other tools.
test_synonyms() {
	local said meant
	while IFS='|' read -r said meant; do
		# shellcheck disable=SC2086
		expect 2 $said && complains "no such command; did you mean $meant\?" "$said"
	done <<-'END'
		kv put k v|kv set
		put foo bar|kv set
		kv rm k|kv del
		kv delete k|kv del
		kv keys|kv list
		scan|kv list
		kv expire k 1s|kv ttl
		kv decr k|kv incr KEY -- -1
		info|status
		kv info|kv stat
		stats|status
		flushall|kv flush
		get k|kv get
		SET k v|kv set
		kv GET k|kv get
		PING|ping
		connections|conn list
		disconnect 7|conn close
	END
}

# What is meant for another machine does not hit this one.
test_local() {
	local command
	server=''
	for command in status "conn list" memory resources reload drain shutdown; do
		# shellcheck disable=SC2086
		expect 2 -H "$tcp" $command && complains 'this machine' "-H $command"
	done
	expect 0 status
	at_terminal $'n\n' "$rdmactl" --control "$dir/control.sock" shutdown
	[[ $? == 1 ]] || fail "shutdown, answered no: the exit status is not 1"
	says "shutdown the rdmad of process $daemon at .*, connections 0, keys [0-9]+\? \[y/N\]" question
	expect 0 status --json && json '.state == "running"' "shutdown, answered no"
	(
		unset -v RDMAD_HOST
		RDMAD_CONTROL=$dir/control.sock timeout 60 "$rdmactl" status >"$dir/out" 2>"$dir/err"
	) || fail "RDMAD_CONTROL is not used"
}

# A user who may store a key may not speak to the terminal of one who lists it.
test_terminal() {
	local key=$'evil\e[31m\nx' at=(-H "$tcp")
	server=$tcp
	expect 0 kv set "$key" $'one\e]0;title\a\ttwo\nthree' -q
	expect 0 kv list && [[ $(cat "$dir/out") == "$key"* || $(cat "$dir/out") == *"$key" ]] || fail "kv list off a terminal changes keys"
	at_terminal '' "$rdmactl" "${at[@]}" kv list
	says 'evil\\x1b\[31m\\x0ax' "kv list at a terminal"
	! grep -q $'\e' "$dir/out" || fail "kv list writes an escape to the terminal"
	at_terminal '' "$rdmactl" "${at[@]}" kv get "$key" -q
	says 'one\\x1b\]0;title\\x07	two' "kv get at a terminal"
	says '^three.$' "kv get at a terminal ends its line"
	[[ $(tail -c 1 "$dir/out" | od -An -tx1) == *0a ]] || fail "no line feed at a terminal"
	expect 0 kv get "$key" -q && [[ $(tail -c 1 "$dir/out") == e ]] || fail "a line feed off a terminal"
	expect 4 kv get "no$key" && complains 'no such key: noevil\\x1b' "a message with a key"
	expect 0 kv set grün ü -q
	at_terminal '' "$rdmactl" "${at[@]}" kv mget grün
	says '^grün ü' "UTF-8 at a terminal"
	test_terminal_store "$key"
	test_terminal_json
	test_terminal_peers
	expect 0 kv flush -yq
}

# shows_safely COMMAND...: at a terminal, an escape that others wrote is there as text.
shows_safely() {
	at_terminal '' timeout 60 "$rdmactl" "$@" || fail "at a terminal: exit status $?: $1 $2"
	! grep -q $'\e' "$dir/out" || fail "$1 $2 writes an escape to the terminal"
	says '\\x1b|\\u001[bB]' "$1 $2 at a terminal"
}

# Whatever prints keys or values.
test_terminal_store() {
	local key=$1 command
	expect 0 kv set "$key" $'v\e[31m' -q
	printf 'get %s\nprintkv\n' "${key%%$'\n'*}" >"$dir/run"
	expect 0 kv set "${key%%$'\n'*}" $'v\e[31m' -q
	for command in "list" "list -l" "list -j" "bigkeys" "bigkeys -j" "export" "run $dir/run" "run -j $dir/run"; do
		# shellcheck disable=SC2086 # they are words
		shows_safely kv $command -H "$tcp"
	done
	for command in get "get -j" mget "mget -j" mexists "mexists -j" "getrange KEY 0" "getset KEY v"$'\e' "touch KEY never" getdel; do
		# shellcheck disable=SC2086
		set -- ${command/ KEY/}
		shows_safely kv "$1" "$key" "${@:2}" -H "$tcp"
	done
}

# JSON means the same at a terminal, and says nothing to it: no CSI of eight bits, no delete, nothing that turns the line around. Off a
# terminal it has these as they are, and at one, too, what is only no ASCII.
test_terminal_json() {
	local mean=$'\xc2\x9b31m\xe2\x80\xaeabc\xe2\x81\xa6\x7f\xe2\x80\xa8 gr\xc3\xbcn \xf0\x9f\x98\x80' command
	expect 0 kv flush -yq
	expect 0 kv set "$mean" "$mean" -q
	for command in "list -j" "bigkeys -j" "export" "get -j KEY" "mget -j KEY"; do
		# shellcheck disable=SC2086
		set -- -q ${command/ KEY/}
		[[ $command != *KEY ]] || set -- "$@" "$mean"
		expect 0 kv "$@" && grep -qF -- "$mean" "$dir/out" || fail "kv $command off a terminal: other bytes"
		mv "$dir/out" "$dir/piped"
		at_terminal '' "$rdmactl" -H "$tcp" kv "$@" || fail "kv $command at a terminal: exit status $?"
		grep -qF -- '\u009b31m\u202eabc\u2066\u007f\u2028 '$'gr\xc3\xbcn \xf0\x9f\x98\x80' "$dir/out" || fail "kv $command at a terminal"
		! LC_ALL=C grep -q $'\xc2\x9b\\|\xe2\x80\\|\xe2\x81\\|\x7f' "$dir/out" || fail "kv $command speaks to the terminal"
		cmp -s <(jq -c '[.. | strings]' "$dir/piped") <(jq -c '[.. | strings]' "$dir/out") || fail "kv $command means something else at a terminal"
	done
}

# Whatever prints what another program sends.
test_terminal_peers() {
	local command mesh="unix://$dir/peer.sock" ring="unix://$dir/ring.sock" sends
	for command in "peer alltoall mine -l $mesh" "peer recv -l $mesh" "channel pop -l $ring" "channel pipe -l $ring" "channel listen -c 1 $ring"; do
		case $command in
		*alltoall*) sends=(peer alltoall $'theirs\e[31m' -c "$mesh") ;;
		peer*) sends=(peer send -c "$mesh") ;;
		*) sends=(channel push "$ring" $'theirs\e[31m') ;;
		esac
		wait_and_send "${sends[@]}" &
		clients=($!)
		# shellcheck disable=SC2086
		shows_safely $command
		says 'theirs' "$command"
		wait "${clients[0]}"
		clients=()
	done
}
# A text of a peer that is no UTF-8 is no reason to have no JSON.
test_peer_bytes() {
	wait_and_send peer alltoall $'\xff' -c "unix://$dir/peer.sock" &
	clients=($!)
	server=''
	expect 0 peer alltoall mine -j -l "unix://$dir/peer.sock" && json '.strings_base64 | @base64d | test("mine")' "peer alltoall"
	wait "${clients[0]}"
	clients=()
}
wait_and_send() {
	wait_for "who listens" test -S "$dir/peer.sock" -o -S "$dir/ring.sock"
	timeout 60 "$rdmactl" "$@" -q <<<$'theirs\e[31m' >/dev/null 2>&1
}

# What could not be written is not summed up.
test_full_stdout() {
	local command
	server=''
	expect 0 kv set full x -q -H "$tcp"
	printf 'get full\n' >"$dir/run"
	for command in "get full" "mget full" "mexists full" "exists full" "list" "list -l" "list -j" "bigkeys" "ttl full" "stat full" "run $dir/run"; do
		# shellcheck disable=SC2086
		timeout 60 "$rdmactl" -H "$tcp" kv $command >/dev/full 2>"$dir/err"
		[[ $? == 1 ]] || fail "kv $command: the exit status of what cannot be written is not 1"
		complains 'cannot write to stdout' "kv $command"
		[[ $(wc -l <"$dir/err") == 1 ]] || fail "kv $command tells of what it could not write"
	done
}

# read_slowly HOW SIGNAL COMMAND...: the signal comes while the command waits for its reader, which then goes on (slow),
# or reads nothing until the command has ended (never). Its exit status.
read_slowly() {
	timeout 30 python3 - "$@" >"$dir/out" 2>"$dir/err" <<-'END'
	import os, signal, subprocess, sys, time
	how, number, command = sys.argv[1], getattr(signal, "SIG" + sys.argv[2]), sys.argv[3:]
	child = subprocess.Popen(command, stdout=subprocess.PIPE)
	def written():
	    with open(f"/proc/{child.pid}/io") as io:
	        return int(io.read().split("wchar: ")[1].split()[0])
	while child.poll() is None and written() < 60000: # of the 64 KiB of a pipe
	    time.sleep(0.02)
	child.send_signal(number)
	if how == "never":
	    child.wait()
	while piece := os.read(child.stdout.fileno(), 4096):
	    os.write(1, piece)
	    time.sleep(0.01)
	status = child.wait()
	sys.exit(status if status >= 0 else 128 - status)
	END
}

# What a command printed of $dir/whole is its beginning up to the end of a record, a line or what a 0 byte ends, and the exit status says
# that it is not all.
is_beginning() { # STATUS WHAT
	local size last
	size=$(stat -c %s "$dir/out")
	cmp -s -n "$size" "$dir/whole" "$dir/out" || fail "$2: not the beginning of what it prints"
	if [[ $1 == 0 ]]; then cmp -s "$dir/whole" "$dir/out" || fail "$2: exit status 0, and not all of it"; fi
	last=$(tail -c 1 "$dir/out" | od -An -tx1)
	((size > 60000)) && [[ $last == *0a || $last == *00 ]] || fail "$2: $size bytes, the end of no record"
}

# A signal that comes while the reader is slow makes no hole, and no success of what is not all there.
test_slow_reader() {
	local command how status
	server=''
	expect 0 kv flush -yq -H "$tcp"
	expect 0 kv import -q -H "$tcp" - < <(printf '{"key":"slow-%s","value":"some value"}\n' {1..9000})
	{ printf 'get slow-%s\n' {1..9000}; echo printkv; } >"$dir/run"
	for command in "kv list" "kv list -0" "kv bigkeys -n 9000" "kv export -" "kv run $dir/run"; do
		# shellcheck disable=SC2086
		"$rdmactl" -qH "$tcp" $command >"$dir/whole" || fail "$command"
		for how in "slow INT" "never TERM"; do
			# shellcheck disable=SC2086
			read_slowly $how "$rdmactl" -qH "$tcp" $command
			status=$?
			[[ $status == 130 || ($status == 0 && $how == slow*) ]] || fail "$command, $how: exit status $status"
			is_beginning $status "$command, $how"
		done
	done
	for command in "kv list -j" "kv bigkeys -n 9000 -j"; do
		# shellcheck disable=SC2086
		read_slowly slow TERM "$rdmactl" -H "$tcp" $command
		status=$?
		json '.command' "$command, SIGTERM: a whole object"
		[[ $status == 130 ]] || json 'has("error") | not' "$command, SIGTERM"
		# shellcheck disable=SC2086
		read_slowly never INT "$rdmactl" -H "$tcp" $command
		[[ $? == 130 ]] || fail "$command, SIGINT: an exit status other than 130"
		complains 'interrupted: stdout lacks the end' "$command, SIGINT"
	done
	# Commands that no signal asks for a last word end by it.
	read_slowly never TERM "$rdmactl" -H "$tcp" kv mget slow-{1..9000}
	[[ $? == 143 ]] || fail "kv mget, SIGTERM: an exit status other than 143"
	for command in "kv list" "kv list -j" "kv bigkeys -n 9000" "kv export -" "kv run $dir/run"; do
		# shellcheck disable=SC2086
		timeout 60 "$rdmactl" -H "$tcp" $command >/dev/full 2>"$dir/err"
		[[ $? == 1 ]] || fail "$command to a full disk: an exit status other than 1"
		complains 'cannot write to stdout: No space left' "$command to a full disk"
		[[ $(wc -l <"$dir/err") == 1 ]] || fail "$command tells of what it could not write"
		# shellcheck disable=SC2086
		timeout 60 "$rdmactl" -qH "$tcp" $command 2>"$dir/err" | head -c 1 >/dev/null
		[[ ${PIPESTATUS[0]} == 141 ]] || fail "$command, whose reader has gone: an exit status other than 141"
	done
	expect 0 kv flush -yq -H "$tcp"
}

# Programs find an error where they look for a result.
test_json_errors() {
	local command
	server=''
	expect 3 kv get x -j -H "unix://$dir/nobody.sock" && json '.command == "kv get" and .error.status == 3 and (.error.text | length > 0)' "nobody"
	expect 2 kv get -j && json '.error.status == 2' usage
	expect 2 ping -c 0 --nope -qj && json '.error.status == 2 and (.error.text | test("count"))' "usage, and --json behind what is wrong"
	expect 4 kv get nokey -j -H "$tcp" && json '.found == false and .error.status == 4' "no key"
	for command in del exists mexists; do
		expect 4 kv $command nokey -j -H "$tcp" && json '.error.status == 4 and (.error.text | length > 0)' "kv $command of no key"
	done
	expect 0 kv set -q there x -H "$tcp"
	expect 1 kv cas there 1 y -j -H "$tcp" && json '.stored == false and (.error.text | test("another version"))' "kv cas"
	expect 3 bench kv "unix://$dir/nobody.sock" -j && json '.error.status == 3 and .results == []' bench
	expect 3 status -j --control "$dir/nobody" && json '.error.status == 3' status
	expect 0 kv list -j -H "$tcp" && json 'has("error") | not' list
}

archive() { # FIRST LAST: an archive of keys, in JSON
	local i
	for ((i = $1; i <= $2; i++)); do printf '{"key":"move-%d","value":"%d"}\n' $i $i; done
	printf '{"end":true,"keys":%d}\n' $(($2 - $1 + 1))
}

# Archives that are whole, that are several, and that are not what they say.
test_import() {
	server=$tcp
	expect 0 kv flush -yq
	archive 1 3 >"$dir/one"
	expect 0 kv import "$dir/one" && complains '3 keys imported' import
	! grep -q 'cut off' "$dir/err" || fail "a whole archive is taken for a cut one"
	expect 0 kv export "$dir/two" --format binary
	cat "$dir/two" "$dir/one" "$dir/two" >"$dir/all"
	expect 0 kv import "$dir/all" --json && json '.imported == 9 and .failed == 0' "archives behind each other"
	head -n 2 "$dir/one" >"$dir/cut"
	expect 0 kv import "$dir/cut" && complains 'was it cut off' "an archive without its end"
	expect 0 kv import "$dir/cut" --json && json '.imported == 2 and .failed == 0 and .truncated' "an archive without its end"
	expect 0 kv import "$dir/one" --json && json '.truncated == false' "a whole archive"
	head -c -20 "$dir/two" >"$dir/cut"
	expect 1 kv import "$dir/cut" --json && json '.imported == 3 and .truncated' "a binary archive without its end"
	sed 2d "$dir/one" >"$dir/cut"
	expect 1 kv import "$dir/cut" && complains 'says here that it has 3 records, and 2 were there' "an archive without its middle"
	expect 1 kv import "$dir/cut" --json && json '.truncated' "an archive without its middle"
	sed 's/$/\r/' "$dir/one" >"$dir/dos"
	expect 0 kv import "$dir/dos" && complains '3 keys imported' "an archive with carriage returns"
}

# A million bad lines are no million messages, and what did not go in is kept for another time.
test_rejects() {
	server=$tcp
	{ yes nonsense | head -n 1000; archive 1 3; } >"$dir/bad"
	expect 1 kv import "$dir/bad" --reject "$dir/rejects" && (($(wc -l <"$dir/err") < 20)) || fail "$(wc -l <"$dir/err") messages"
	complains '3 keys imported, .* 1001 failed' rejects # and the count at the end
	[[ $(grep -c '^nonsense$' "$dir/rejects") == 1000 ]] || fail "the rejected lines are not all there"
	expect 0 kv flush -yq
	head -c 700000 /dev/zero | tr '\0' x >"$dir/x"
	for i in {1..16}; do printf '{"key":"move-%d","value":"%s"}\n' "$i" "$(cat "$dir/x")"; done >"$dir/large"
	expect 1 kv import "$dir/large" && complains 'the store is full; --reject' "a full store"
	expect 0 kv flush -yq
	expect 1 kv import "$dir/large" --reject "$dir/rejects" --json || return
	[[ $(jq '.imported + .failed' "$dir/out") == 16 ]] || fail "with rejects not all are tried"
	json '.imported > 3' rejects
	expect 0 kv flush -yq
	expect 0 kv import "$dir/rejects" -q
	expect 0 kv flush -yq
	# A value that the server does not take, in the binary format.
	archive 1 1 | ctl kv import -q -
	expect 0 kv export -F binary "$dir/small"
	{ head -c -20 "$dir/small" && printf '\x05\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0large' && head -c 16M /dev/zero &&
		printf '\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'; } >"$dir/large"
	expect 1 kv import "$dir/large" && complains '1 key imported, .* 1 failed' "a value too large"
	expect 1 kv import "$dir/large" --reject "$dir/rejects" && complains '1 key imported, .* 1 failed' "a value too large"
	[[ $(head -n 1 "$dir/rejects" | jq -r '.key, (.value | length)' | xargs) == "large $((16 << 20))" ]] || fail "the rejected value is not there"
	# What an earlier import rejected is not this one's.
	archive 1 3 >"$dir/good"
	expect 0 kv import "$dir/good" --reject "$dir/rejects" && [[ -e $dir/rejects && ! -s $dir/rejects ]] || fail "old rejects stay"
	expect 1 kv import "$dir/good" --reject "$dir/nowhere/rejects" && complains 'cannot write .*nowhere' "rejects to nowhere"
	# What is read is not written over.
	cp "$dir/bad" "$dir/again"
	expect 2 kv import "$dir/again" --reject "$dir/../${dir##*/}/again" && cmp -s "$dir/bad" "$dir/again" || fail "the rejects are in the place of what was to be imported"
	expect 0 kv flush -yq
}

# without_sync COMMAND...: the kernel refuses to bring any file to the disk. 99: this machine has no such means.
without_sync() {
	timeout 60 python3 - "$@" >"$dir/out" 2>"$dir/err" <<-'END'
	import ctypes, os, struct, sys
	number = {"x86_64": 74, "aarch64": 82}.get(os.uname().machine, -1)
	load, equal, answer = 0x20, 0x15, 0x06
	refuse, allow = 0x00050000 | 5, 0x7fff0000 # EIO
	code = ((load, 0, 0, 0), (equal, 0, 1, number), (answer, 0, 0, refuse), (answer, 0, 0, allow))
	filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
	program = struct.pack("HP", len(code), ctypes.addressof(filters))
	prctl = ctypes.CDLL(None).prctl
	if number < 0 or prctl(38, 1, 0, 0, 0) or prctl(22, 2, program):
	    sys.exit(99)
	os.execvp(sys.argv[1], sys.argv[1:])
	END
}

# The file of yesterday stays until that of today is whole.
test_export() {
	server=$tcp
	archive 1 2000 | ctl kv import -q - || fail import
	expect 0 kv export "$dir/kept"
	says_export() { [[ $(wc -l <"$dir/kept") == 2001 && $(tail -n 1 "$dir/kept") == '{"end":true,"keys":2000}' ]]; }
	says_export || fail "what was exported"
	[[ $(stat -c %a "$dir/kept") == $(printf %o $((0666 & ~0$(umask)))) ]] || fail "the file's mode"
	expect 3 kv export "$dir/kept" -H "unix://$dir/nobody.sock" && complains 'is as it was before' export
	says_export || fail "a failed export changes the file"
	[[ -z $(find "$dir" -name 'kept.*') ]] || fail "a failed export leaves a part"
	ln -s kept "$dir/link"
	expect 0 kv export "$dir/link" -q && [[ -L $dir/link ]] && says_export || fail "a link is replaced"
	test_export_owner
	test_export_sync
	expect 0 kv flush -yq
}

# Whom the file of yesterday is for, that of today is for.
test_export_owner() {
	chmod 600 "$dir/kept"
	expect 0 kv export "$dir/kept" -q && [[ $(stat -c %a "$dir/kept") == 600 ]] || fail "an export changes a file's mode"
	chmod 664 "$dir/kept"
	expect 0 kv export "$dir/kept" -q && [[ $(stat -c %a "$dir/kept") == 664 ]] || fail "an export changes a file's mode"
	((UID == 0)) || return
	chown 65534:65533 "$dir/kept"
	expect 0 kv export "$dir/kept" -q && [[ $(stat -c %u:%g "$dir/kept") == 65534:65533 ]] || fail "an export changes a file's owner"
}

# A file that may not be on the disk takes no other's place.
test_export_sync() {
	local inode status
	inode=$(stat -c %i "$dir/kept")
	without_sync "$rdmactl" -H "$tcp" kv export "$dir/kept"
	status=$?
	[[ $status != 99 ]] || return
	[[ $status == 1 ]] || fail "an export that is not on the disk: exit status $status, not 1"
	complains 'cannot write .*kept: Input/output error' "an export that is not on the disk"
	complains 'is as it was before' "an export that is not on the disk"
	[[ $(stat -c %i "$dir/kept") == "$inode" && -z $(find "$dir" -name 'kept.*') ]] || fail "an export that is not on the disk takes a file's place"
}

test_script() {
	server=$tcp
	printf 'set crlf value\r\nget crlf\r\n' >"$dir/run"
	expect 0 kv run "$dir/run" -q && [[ $(od -An -c "$dir/out" | tr -d ' ') == 'value\n' ]] || fail "a command file with carriage returns"
}

test_bench() {
	local kv=(bench kv -c 2 -w 0 -k 100)
	server=''
	expect 0 "${kv[@]}" "$tcp" -D 300ms --rate 2000 -i 100ms -o set -j && json '.loop == "open" and .rate_per_second == 2000 and
		.results[0].operations + .results[0].unsent <= 600 and (.results[0].intervals | length > 0) and
		(.results[0].intervals[0] | has("at_seconds") and (has("keys") or has("misses") or has("cpu_user_seconds") | not))' "bench --rate"
	expect 0 "${kv[@]}" "$tcp" -n 10 -o set --no-latency --csv && says '^set,eager,64,10,[^,]+,[^,]+,[^,]+,,,,,,,' "bench --no-latency --csv"
	expect 0 "${kv[@]}" "$tcp" -D 200ms -i 50ms --csv && [[ $(head -n 1 "$dir/out") == op,way,size_bytes,operations,* ]] &&
		[[ $(awk -F, '{ print NF }' "$dir/out" | sort -u | wc -l) == 1 ]] || fail "bench --csv"
	expect 0 "${kv[@]}" "$tcp" -n 1000 && says 'closed loop, 1000 operations after 0s? of warm-up.*100 keys of 16 bytes each' "the head of bench"
	expect 0 "${kv[@]}" "$tcp" -n 1000 --ttl 1h --keep -p left -o set && expect 0 kv ttl -H "$tcp" left:000:0000000 -j &&
		json '.ttl_us > 3000e6' "bench --ttl"
	expect 0 "${kv[@]}" "$tcp" -D 400ms --ttl 20ms -o get -j && json '.results[0].misses > 0' "keys that expired" &&
		complains 'were not there' "keys that expired"
	expect 2 "${kv[@]}" "$tcp" -n 1 -p "$(printf 'p%.0s' {1..65})" && complains 'more than 64 bytes' "bench --prefix"
	expect 1 bench sweep "$tcp" -w 0 -D 1ms --min 2G --max 2G && complains 'bench sweep: .* takes values up to' "bench sweep"
	expect 0 kv flush -yq -H "$tcp"
	ctl bench kv "$tcp" -n 100 -k 100000 -c 2 -s 1K && fail "a benchmark fits that is larger than the store"
	complains 'the store has .* left' "a benchmark larger than the store"
	expect 0 kv flush -yq -H "$tcp"
}

# While the server stands still, requests of an open loop wait, and all of them say so.
test_open_loop() {
	"$rdmactl" bench kv "$tcp" -c 1 -k 100 -w 0 -D 3s --rate 1000 -i 100ms -o set -j >"$dir/out" 2>"$dir/err" &
	clients=($!)
	wait_for "requests" has_sets
	kill -STOP "$daemon"
	sleep 0.7 # that long it stands still
	kill -CONT "$daemon"
	wait "${clients[0]}" || fail "bench --rate of a server that stands still"
	clients=()
	json '.results[0].rtt_us_p99 > 300000 and .results[0].rtt_us_max > 600000' "latencies from the intended times"
}
has_sets() { [[ $(control status | jq .counters.kv_sets) -gt $((sets + 1100)) ]]; }

# What an operator looks for stands first, without what has counted nothing.
test_status() {
	server=''
	expect 0 kv set one x -H "$tcp" && complains ': 1 byte stored' "kv set"
	expect 0 status && says '^  used bytes +[0-9]' status && says '^  kv sets +[1-9]' status
	! grep -Eq '^  (kv flushes|peer joins|overparked) +0$' "$dir/out" || fail "status has counters that are 0"
	(($(grep -n '^store:' "$dir/out" | cut -d: -f1) < $(grep -n '^listen:' "$dir/out" | cut -d: -f1))) || fail "the store does not come first"
	[[ $(grep -n '^counters:' "$dir/out" | cut -d: -f1) -gt $(grep -n '^listen:' "$dir/out" | cut -d: -f1) ]] || fail "the counters do not come last"
	expect 0 status --all && says '^  overparked +0$' "status --all"
	expect 0 status -j && json '.counters.overparked == 0' "status --json"
	expect 0 kv del one -q -H "$tcp"
}

# A benchmark whose server gives no answer any more says which keys it leaves.
test_bench_timeout() {
	"$rdmactl" bench kv "$tcp" -c 2 -k 100 -w 0 -D 600s -p left -t 1s >"$dir/out" 2>"$dir/err" &
	clients=($!)
	wait_for "requests" has_sets
	kill -STOP "$daemon"
	wait "${clients[0]}"
	[[ $? == 5 ]] || fail "bench kv -t: an exit status other than 5"
	kill -CONT "$daemon"
	clients=()
	complains 'up to 200 keys are left, which begin with "left:"; to delete them: rdmactl kv flush left:$' "bench kv -t"
	expect 0 kv flush -yq left: -H "$tcp"
}

# However it is ended, but by force, a benchmark takes its keys along.
test_interrupted_bench() {
	local signal
	for signal in INT TERM; do
		sets=$(control status | jq .counters.kv_sets)
		"$rdmactl" bench kv "$tcp" -c 2 -k 100 -w 0 -D 600s -p "gone$signal" >"$dir/out" 2>"$dir/err" &
		clients=($!)
		wait_for "requests" has_sets
		kill -$signal "${clients[0]}"
		wait "${clients[0]}"
		[[ $? == 130 ]] || fail "bench, ended by SIG$signal: another exit status than 130"
		clients=()
		expect 0 kv list -H "$tcp" "gone$signal" && [[ ! -s $dir/out ]] || fail "bench, ended by SIG$signal, leaves keys"
	done
}

# One signal ends a list that nobody reads, also while it waits for room in a pipe.
test_interrupted_list() {
	local option status
	expect 0 kv import -H "$tcp" - < <(printf '{"key":"many-%s","value":"v"}\n' {1..4000})
	mkfifo "$dir/unread"
	exec 9<>"$dir/unread"
	for option in --long --json; do
		"$rdmactl" kv list -H "$tcp" "$option" >"$dir/unread" 2>"$dir/err" 9>&- &
		clients=($!)
		wait_for "a full pipe" waits_for_room "${clients[0]}"
		kill -TERM "${clients[0]}"
		wait_for "its end" ended "${clients[0]}"
		wait "${clients[0]}"
		status=$?
		clients=()
		[[ $status == 130 ]] || fail "kv list $option, ended by a signal: exit status $status, not 130"
		dd if="$dir/unread" of=/dev/null bs=1M count=1 2>/dev/null
	done
	exec 9>&-
	expect 0 kv flush -y -H "$tcp" many-
}
waits_for_room() { ended "$1" || (($(awk '/^wchar/ { print $2 }' "/proc/$1/io") >= 60000)); } # of 64 KiB

both_write() { "$rdmactl" -q -H "$tcp" kv mexists drained-run drained-import >/dev/null 2>&1; }

# What is under way when the daemon is drained ends at once, with the place, and does not fail all that is left of its file.
test_drained() {
	local round of status
	local -A lines=([run]='set drained-run v' [import]='{"key":"drained-import","value":"v"}')
	server=''
	for round in {1..4}; do
		for of in import run; do
			"$rdmactl" -H "$tcp" kv $of <(yes "${lines[$of]}") >"$dir/$of.out" 2>&1 & # never through
			clients+=($!)
		done
		wait_for "the first keys" both_write
		wait_for "more of them" has_done $(($(work_done) + 10000))
		expect 0 drain -q
		for of in import run; do
			wait "${clients[0]}"
			status=$?
			clients=("${clients[@]:1}")
			mv "$dir/$of.out" "$dir/out"
			[[ $status == 3 && $(wc -l <"$dir/out") -le 4 ]] || fail "kv $of while the daemon is drained: exit status $status"
			says ', 0 failed' "kv $of"
			says "kv $of .*, (record|line) [0-9]+: " "kv $of"
		done
		stop_daemon
		start_daemon
		tcp=${servers[0]#tcp://}
	done
}

# A listener at a file that is told to end leaves no file.
test_peer_socket() {
	local signal status
	for signal in TERM INT; do
		rm -f "$dir/err" # of the one before
		# Bash has its background ignore Ctrl-C.
		python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$rdmactl" peer recv -l "unix://$dir/peer.sock" >"$dir/out" 2>"$dir/err" &
		clients=($!)
		wait_for "a listener" grep -qs '^rdmactl: listening' "$dir/err"
		[[ -S $dir/peer.sock ]] || fail "there is no socket"
		kill -$signal "${clients[0]}"
		wait "${clients[0]}"
		status=$?
		clients=()
		[[ $status == $((128 + $(kill -l $signal))) ]] || fail "peer recv, ended by SIG$signal: exit status $status"
		[[ ! -e $dir/peer.sock ]] || fail "SIG$signal leaves the socket's file"
		rm -f "$dir/peer.sock"
	done
}

# --timeout ends what waits for another program, and the next step that is told is one.
test_timeout() {
	local ring=unix://$dir/ring.sock
	server=''
	expect 2 channel push "meet://$tcp/echo" x && complains 'what it puts into echo nobody gets: that is for channel pipe' "push to echo"
	expect 5 channel listen "$ring" -t 300ms && complains 'nothing moved for as long as --timeout says' "channel listen"
	expect 5 channel push "$ring" -l -t 300ms x && complains 'nothing moved' "channel push --listen"
	[[ -p $dir/unread ]] || mkfifo "$dir/unread"
	exec 9<>"$dir/unread"
	"$rdmactl" -q channel pop -l "$ring" >"$dir/unread" 2>"$dir/err.pop" 9>&- &
	clients=($!)
	wait_for "a listener" test -S "$dir/ring.sock"
	timeout 60 "$rdmactl" channel push "$ring" -t 300ms -f /dev/zero >"$dir/out" 2>"$dir/err"
	[[ $? == 5 ]] || fail "channel push to one that takes nothing: an exit status other than 5"
	timeout 30 cat <&9 >/dev/null & # so that it sees the end
	wait "${clients[0]}"
	kill $! 2>/dev/null
	exec 9>&-
	"$rdmactl" -q channel pipe -l "$ring" 9<>"$dir/unread" <&9 >/dev/null 2>&1 & # opened to read alone it would wait for a writer
	clients=($!)
	wait_for "a listener" test -S "$dir/ring.sock"
	expect 5 channel pop "$ring" -t 300ms && complains 'nothing moved' "channel pop"
	wait "${clients[0]}" # its other end has gone
	clients=()
	expect 1 channel listen "tcp://$tcp/x" && complains "cannot listen on tcp://$tcp/x by TCP: Address already in use" "channel listen"
	[[ $(grep -o 'cannot listen' "$dir/err" | wc -l) == 1 && $(grep -o "$tcp/x" "$dir/err" | wc -l) == 1 ]] || fail "channel listen says it twice"
	expect 4 channel open "$ring" && [[ $(grep -o "$ring" "$dir/err" | wc -l) == 1 ]] || fail "channel open names the channel twice"
	kill -STOP "$daemon"
	expect 5 status -t 300ms && complains 'does the daemon stand still' "status of a daemon that stands still"
	! grep -q 'rdmactl status' "$dir/err" || fail "status recommends itself"
	expect 5 channel list -t 300ms -H "$tcp" && ! grep -q 'rdmad_channel_accept' "$dir/err" || fail "channel list asks for a program that accepts"
	kill -CONT "$daemon"
}

# An export that waits for its reader while the daemon dies says why it ends.
test_export_cut_off() {
	local status
	expect 0 kv import -q -H "$tcp" - < <(printf '{"key":"many-%s","value":"v"}\n' {1..8000})
	[[ -p $dir/unread ]] || mkfifo "$dir/unread"
	exec 9<>"$dir/unread"
	"$rdmactl" kv export -H "$tcp" - >"$dir/unread" 2>"$dir/err" 9>&- &
	clients=($!)
	wait_for "a full pipe" waits_for_room "${clients[0]}"
	stop_daemon KILL 137
	timeout 60 cat <&9 >/dev/null &
	clients+=($!)
	wait_for "its end" ended "${clients[0]}"
	wait "${clients[0]}"
	status=$?
	kill "${clients[1]}"
	exec 9>&-
	clients=()
	[[ $status == 3 ]] || fail "kv export, whose daemon died: exit status $status, not 3"
	complains 'kv export: .*the connection to .* ended' "kv export, whose daemon died"
	start_daemon
	tcp=${servers[0]#tcp://}
}

# completes WANTED WORD...: what bash offers for the last word is, or begins with, that.
completes() {
	local wanted=$1
	shift
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_rdmactl 2>/dev/null
	[[ "${COMPREPLY[*]-}" == "$wanted"* && ($wanted || ! ${COMPREPLY[*]-}) ]] || fail "${*:1}: bash completes ${COMPREPLY[*]:0:5}, not $wanted"
}

# zsh_completes WANTED WORD...: a line of what zsh offers for the last word, by functions in place of its own, begins with that.
zsh_completes() {
	# shellcheck disable=SC2016 # what zsh expands
	zsh -f -c 'words=("${@:2}") CURRENT=$(($# - 1))
		compdef() { print registered $* >&2 }; compadd() { print -rl -- "${@:2}" }; _gnu_generic() { print generic }
		_describe() { print -rl -- ${(P)2} }; _files() { print files }; service=$words[1]; . "$1"; _rdmactl' \
		- "$srcdir/etc/rdmactl.zsh-completion" "${@:2}" >"$dir/out" 2>"$dir/err"
	if [[ $1 ]]; then says "^$1"; else [[ ! -s $dir/out ]]; fi || fail "${*:2}: zsh completes other things than $1"
}

test_zsh() {
	command -v zsh >/dev/null || return
	zsh_completes ping: rdmactl pin
	zsh_completes exists: rdmactl kv ex
	zsh_completes get: rdmactl -H host:7471 kv ''
	zsh_completes get: rdmactl help kv ''
	zsh_completes --newline: rdmactl kv get --newl
	zsh_completes '' rdmactl kv get a
	zsh_completes files rdmactl kv import a
	zsh_completes files rdmactl kv set key --file a
	zsh_completes binary rdmactl kv export --format ''
	zsh_completes zsh rdmactl completion ''
	zsh_completes '' rdmactl completion bash ''
	complains '^registered _rdmactl rdmactl rdmad rdmarun$' "zsh, where the script is sourced"
	zsh_completes generic rdmarun --la
	# As zsh does it: the file is the function's body.
	mkdir -p "$dir/functions"
	cp "$srcdir/etc/rdmactl.zsh-completion" "$dir/functions/_rdmactl"
	# shellcheck disable=SC2016 # what zsh expands
	zsh -f -c 'fpath=($1 $fpath); autoload -Uz _rdmactl; words=(rdmactl pin) CURRENT=2 service=rdmactl
		_describe() { print -rl -- ${(P)2} }; _rdmactl; _rdmactl' - "$dir/functions" >"$dir/out" 2>"$dir/err"
	[[ $(grep -c '^ping:' "$dir/out") == 2 && ! -s $dir/err ]] || fail "zsh, which finds the file"
	# shellcheck disable=SC2016
	HOME=$dir zsh -f -c 'autoload -Uz compinit && compinit -D -u; source <("$1" completion zsh); print $_comps[rdmad]' - "$rdmactl" >"$dir/out" 2>"$dir/err"
	says '^_rdmactl$' "zsh, source <(rdmactl completion zsh)"
	[[ ! -s $dir/err ]] || fail "zsh says something where the script is sourced"
}

test_completion() {
	local shell
	: >"$dir/afile"
	cd "$dir" || return
	# shellcheck source=etc/rdmactl.bash-completion
	. "$srcdir/etc/rdmactl.bash-completion"
	completes ping rdmactl pin
	completes "get set del" rdmactl kv ''
	completes "get set del" rdmactl -H host : 7471 kv ''
	completes "get set del" rdmactl -j kv ''
	completes "get set del" rdmactl help kv ''
	completes --newline rdmactl kv get --newl
	completes --newline rdmactl kv -H host get key --newl
	completes '' rdmactl kv get a
	completes afile rdmactl kv import a
	completes afile rdmactl kv set key --file a
	completes "json binary" rdmactl kv export --format ''
	completes "json binary" rdmactl kv export --format =
	completes json rdmactl kv export --format = js
	completes --format=json rdmactl kv export --format=js
	completes afile rdmactl kv set key --file = a
	completes "get set del" rdmactl --host = host : 7471 kv ''
	completes "bash zsh fish" rdmactl completion ''
	completes zsh rdmactl completion z
	completes '' rdmactl completion bash ''
	completes '' rdmactl kv get -H a
	COMP_WORDS=() COMPREPLY=()
	_rdmactl_help "$rdmad" --lo rdmad && [[ ${COMPREPLY[*]} == --log-level ]] || fail "bash completes rdmad --lo by ${COMPREPLY[*]}"
	_rdmactl_help "$builddir/rdmarun" --la rdmarun && [[ ${COMPREPLY[*]} == --label ]] || fail "bash completes rdmarun --la by ${COMPREPLY[*]}"
	cd "$builddir" || return
	for shell in zsh fish; do
		command -v $shell >/dev/null || continue
		$shell -n "$srcdir/etc/rdmactl.$shell-completion" >"$dir/out" 2>"$dir/err" || fail "completion for $shell"
	done
	command -v fish >/dev/null || return
	HOME=$dir fish --no-config -c "source '$srcdir/etc/rdmactl.fish-completion'; complete -C 'rdmactl -H host:7471 kv ex'" >"$dir/out" 2>"$dir/err"
	says '^exists' fish
	says '^export' fish
	HOME=$dir fish --no-config -c "source '$srcdir/etc/rdmactl.fish-completion'; complete -C 'rdmactl completion '" >"$dir/out" 2>"$dir/err"
	says '^zsh' fish
	PATH=$builddir:$PATH HOME=$dir fish --no-config -c "'$rdmactl' completion fish | source; complete -C 'rdmarun --la'; complete -C 'rdmad -'" >"$dir/out" 2>"$dir/err"
	says '^--label	put its rank' "fish, rdmarun"
	says '^-c	read FILE' "fish, rdmad"
	says '^--offline	' "fish, rdmad"
}

parts=(completion zsh command_line status local terminal peer_bytes full_stdout slow_reader json_errors import rejects export script bench interrupted_bench bench_timeout interrupted_list open_loop drained peer_socket timeout export_cut_off)
[[ $# == 0 ]] || parts=("$@")
for part in "${parts[@]}"; do
	sets=$(control status | jq .counters.kv_sets)
	echo "$part"
	test_$part
done
server=''
expect 0 shutdown # without a terminal nobody is asked
await_daemon shutdown
conclude
