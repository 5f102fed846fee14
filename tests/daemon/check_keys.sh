#!/bin/bash
# check_keys.sh: which clients may come in: keys, rights, reloads that take them away, files that others could have
# changed. shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq
: "${rdmarun:=$builddir/rdmarun}"
export HOME=$dir RDMAD_KEY_FILE=''
umask 077

counter() { control status | jq ".counters.$1"; }
counted() { [[ $(counter "$1") -ge $2 ]]; }

# key NAME: appended to the daemon's file, and in NAME.key for the client.
key() { "$rdmactl" --quiet key new "$1" --into "$dir/keys" >"$dir/$1.key" || fail "key new $1"; }
rights() { printf '%s\n' "$@" >"$dir/clients"; }
reload() { control reload >/dev/null || fail "reload: $*"; }

settings=('services = ["ping", "kv", "channel", "peer"];' "auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };")

test_keys() {
	local at print password
	key app
	key lab
	[[ $(stat -c %a "$dir/keys") == 600 ]] || fail "the mode of the file of keys"
	ends 0 '"name":"lab"' "$rdmactl" --json key list "$dir/keys"
	print=$("$rdmactl" --json key list "$dir/keys" | jq -r '.keys[0].fingerprint')
	ends 0 "$print" "$rdmactl" key list "$dir/keys"
	grep -q "$(cut -d: -f4 "$dir/app.key")" "$dir/out" && fail "key list tells a key"
	ends 2 "no name of a client" "$rdmactl" key new 'a b'
	ends 0 "rdmad1:" "$rdmactl" key new other
	ends 4 "its directory is not there: mkdir" "$rdmactl" key new other --into "$dir/none/keys"
	"$rdmactl" --quiet key new stranger >"$dir/stranger.key"
	ends 0 '"name":"lab"' "$rdmactl" --json key resp "$dir/keys" lab
	password=$(jq -r .password "$dir/out")
	ends 0 "$password" "$rdmactl" key resp "$dir/lab.key" lab
	[[ $password =~ ^[A-Za-z0-9_-]{43}$ ]] || fail "the password \"$password\""
	ends 4 "has no key of nobody" "$rdmactl" key resp "$dir/keys" nobody

	rights 'app ping kv channel read=app/,shared/ write=app/ names=app.' 'lab kv read= write= flush' '@* ping kv read= write=' '* ping'
	configure "${settings[@]}"
	ends 0 "no errors" "$rdmad" -t --offline -c "$dir/rdmad.conf"
	start_daemon
	for at in "${servers[@]}"; do
		[[ ! ${RDMAD_GUEST_ADDR-} || $at == rdma:* ]] || continue
		server=$at
		expect 0 --key "$dir/app.key" ping -c 3
		expect 0 --key "$dir/app.key" kv set app/x hello
		expect 0 --key "$dir/app.key" kv get app/x && says hello
		RDMAD_KEY_FILE=$dir/app.key expect 0 kv get app/x && says hello
		expect 0 --key "$dir/app.key" kv list app/ && says app/x
		expect 1 --key "$dir/app.key" kv list && complains "no right to it"
		expect 1 --key "$dir/app.key" kv get other && complains "no right to it"
		expect 1 --key "$dir/app.key" kv set shared/x 1 && complains "no right to it"
		expect 1 --key "$dir/app.key" kv del shared/x && complains "no right to it"
		expect 1 --key "$dir/app.key" kv incr shared/n && complains "no right to it"
		expect 1 --key "$dir/app.key" kv flush --yes && complains "no right to it"
		head -c 300000 /dev/zero | ctl --key "$dir/app.key" kv set app/long - || fail "a long value"
		head -c 300000 /dev/zero >"$dir/zeros"
		expect 1 --key "$dir/app.key" kv set other/long "@$dir/zeros" && complains "no right to it"
		expect 0 --key "$dir/lab.key" kv set other 1
		expect 0 --key "$dir/lab.key" kv list && says other
		expect 0 --key "$dir/lab.key" kv flush --yes
		expect 1 --key "$dir/lab.key" ping -c 1 && complains "no right to the service ping"
		expect 0 --key "$dir/app.key" key check && says "of app, fingerprint $print"
		"$rdmactl" --json -H "$at" --key "$dir/app.key" key check | jq -e '.key.name == "app" and .services.kv == "yes" and
			.services.peer == "no right" and .services.gpu == "not offered"' >/dev/null || fail "key check as JSON"
		expect 1 --key "$dir/stranger.key" key check && complains "the server does not have key"
		expect 1 --key "$dir/stranger.key" ping -c 1 && complains "the server does not have key"
		if [[ $at == rdma:* ]]; then # which does not say whose it is
			expect 1 kv get other && complains "asks for a key"
		else
			expect 0 kv set other 1
			expect 0 key check && says "key: none, and the server asks for none"
			expect 1 kv flush --yes && complains "no right to it"
		fi
	done
	wait_for "denials" counted kv_denied 6
	[[ $server == rdma:* ]] || server=${servers[0]}
}

# holds FILE: the daemon's memory has the secret of that key.
holds() {
	python3 - "$daemon" "$1" <<-'END'
		import base64, sys
		pid, key = sys.argv[1:]
		secret = base64.b64decode(open(key).read().strip().split(":")[3])[:32]
		with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
		    for line in maps:
		        place, rights = line.split()[:2]
		        begin, end = (int(number, 16) for number in place.split("-"))
		        if not rights.startswith("rw") or end - begin > 1 << 30: # what a sanitizer reserves
		            continue
		        for at in range(begin, end, 1 << 24):
		            try:
		                memory.seek(at)
		                if secret in memory.read(min(end - at, (1 << 24) + 31)):
		                    sys.exit(0)
		            except OSError:
		                break
		sys.exit(1)
	END
}

# A reload takes rights and keys away at once, and one with a fault changes nothing.
test_reload() {
	local pid i
	key roll
	rights 'app ping kv read= write=' 'roll ping kv read= write=' '@* ping'
	reload "a key more"
	expect 0 --key "$dir/roll.key" kv set x 1
	expect 0 --key "$dir/app.key" kv get x && says 1
	"$rdmactl" -H "$server" --key "$dir/roll.key" ping -i 100ms >"$dir/pings" 2>&1 &
	pid=$!
	clients+=("$pid")
	logged "64 bytes" "$dir/pings"
	echo "rdmad1:5:bad:x" >>"$dir/keys"
	control reload | jq -e '.ok == false' >/dev/null || fail "a reload with a broken line"
	kill -0 "$pid" || fail "a reload that failed ended a connection"
	expect 0 --key "$dir/roll.key" kv get x
	sed -i '/:bad:/d' "$dir/keys"
	holds "$dir/roll.key" || fail "the secret of a key is not found where it is"
	chmod 644 "$dir/clients"
	chmod 640 "$dir/keys"
	expect 1 reload && complains "chmod 600"
	chmod 600 "$dir/keys"
	sed -i '/:roll:/d' "$dir/keys"
	reload "a key less"
	wait_for "the end of the connection" ended "$pid"
	forgotten() { ! holds "$dir/roll.key"; }
	wait_for "the end of the secret" forgotten
	[[ $(counter revoked) == 1 ]] || fail "revoked: $(counter revoked)"
	expect 1 --key "$dir/roll.key" ping -c 1 && complains "the server does not have key"
	expect 0 --key "$dir/app.key" kv get x && says 1
	for i in 1 2; do
		"$rdmactl" -H "$server" --key "$dir/app.key" ping -i 100ms >"$dir/pings$i" 2>&1 &
		clients+=($!)
		logged "64 bytes" "$dir/pings$i"
	done
	rights 'app ping kv connections=2' '@* ping'
	reload "rights less"
	expect 1 --key "$dir/app.key" ping -c 1 && complains "all the connections it allows from one address or user, 2"
	kill "${clients[@]: -2:1}"
	wait "${clients[@]: -2:1}" 2>/dev/null
	wait_for "a place" ctl --key "$dir/app.key" ping -c 1
	expect 1 --key "$dir/app.key" kv get x && complains "no right to it"
	rights 'app kv' '@* ping'
	reload "a service less"
	wait_for "the end of a connection to it" ended "${clients[@]: -1}"
}

# milliseconds COMMAND...: that it takes, and succeeds.
milliseconds() {
	local since=${EPOCHREALTIME/./}
	"$@" >/dev/null 2>"$dir/err" || fail "$*"
	echo $(((${EPOCHREALTIME/./} - since) / 1000))
}

# Requests and bytes a second: a client waits, also on one connection after another, and the one beside it does not.
test_limits() {
	local took i
	local app=("$rdmactl" -H "$server" --key "$dir/app.key") lab=("$rdmactl" -H "$server" --key "$dir/lab.key")
	get_all() { for i in 1 2 3 4 5 6 7 8 9 10; do "${app[@]}" kv get long || return; done; }
	rights 'app ping kv read= write=' 'lab ping kv read= write='
	reload "no limits"
	head -c 300000 /dev/zero | "${app[@]}" kv set long - || fail "a long value"
	rights 'app ping kv read= write= requests=20' 'lab ping kv read= write='
	reload "requests a second"
	took=$(milliseconds "${app[@]}" ping -c 16)
	[[ $took -ge 600 ]] || fail "16 round trips at 20 requests a second in $took ms"
	[[ $(counter paced) -ge 10 ]] || fail "paced: $(counter paced)"
	"${app[@]}" ping -c 200 >"$dir/paced" 2>&1 &
	clients+=($!)
	took=$(milliseconds "${lab[@]}" ping -c 200)
	kill -0 "${clients[-1]}" || fail "200 round trips of a client with a limit took no longer than $took ms"
	rights 'app ping kv read= write= bytes=2M' 'lab ping kv read= write='
	reload "bytes a second in its place"
	wait "${clients[-1]}" || fail "a client whose limit was lifted: $(<"$dir/paced")"
	took=$(milliseconds get_all)
	[[ $took -ge 1000 ]] || fail "3 MB at 2 MiB a second in $took ms"
}

# Bytes stored: one client is refused, or loses its own, and the one beside it does not notice.
test_quota() {
	local i
	local app=("$rdmactl" -H "$server" --key "$dir/app.key") lab=("$rdmactl" -H "$server" --key "$dir/lab.key")
	stored() { control status | jq ".stored_bytes.$1"; }
	head -c 100000 /dev/zero >"$dir/zeros"
	head -c 3000000 /dev/zero >"$dir/long"
	rights 'app ping kv read= write= stored=1M' 'lab ping kv read= write= flush stored=64M'
	stop_daemon
	configure "${settings[@]}" 'kv = { memory = "64M"; eviction = "none"; };'
	start_daemon
	server=${servers[0]} app[2]=$server lab[2]=$server
	for i in 1 2 3 4 5 6 7 8 9 10; do
		"${app[@]}" kv set "app/$i" -f "$dir/zeros" >/dev/null || fail "set $i of 1 MiB"
		"${lab[@]}" kv set "lab/$i" -f "$dir/zeros" >/dev/null || fail "set $i of another"
	done
	ends 1 "over the quota of this client's name: it has 977 KiB stored, and may have 1.00 MiB" "${app[@]}" kv set app/11 -f "$dir/zeros"
	ends 1 "over the quota" "${app[@]}" kv append app/1 "$(head -c 60000 /dev/zero | tr '\0' a)"
	ends 0 "" "${app[@]}" kv set app/3 -f "$dir/zeros" # in place of its own
	[[ $(stored app) == 1000[0-9][0-9][0-9] ]] || fail "stored bytes of app: $(stored app)"
	[[ $(stored lab) == 1000[0-9][0-9][0-9] ]] || fail "stored bytes of lab: $(stored lab)"
	[[ $(counter kv_over_quota) == 2 ]] || fail "kv_over_quota: $(counter kv_over_quota)"
	ends 0 "" "${lab[@]}" kv set app/2 -f "$dir/zeros" # which counts for that one now
	ends 0 "" "${app[@]}" kv set app/11 -f "$dir/zeros"
	rights 'app ping kv read= write= stored=2M' 'lab ping kv read= write= flush stored=64M'
	reload "a higher limit"
	ends 0 "" "${app[@]}" kv set app/12 -f "$dir/zeros"
	"${lab[@]}" kv flush --yes >/dev/null
	[[ $(stored app) == 0 ]] || fail "stored bytes behind a flush: $(stored app)"
	stop_daemon
	configure "${settings[@]}" 'kv = { memory = "64M"; eviction = "s3-fifo"; };'
	start_daemon
	server=${servers[0]} app[2]=$server lab[2]=$server
	"${lab[@]}" kv set lab/1 -f "$dir/zeros" >/dev/null || fail "set of another"
	for ((i = 0; i < 40; i++)); do
		"${app[@]}" kv set "app/$i" -f "$dir/zeros" >/dev/null || fail "set $i with eviction"
	done
	[[ $(stored app) == 20[0-9][0-9][0-9][0-9][0-9] ]] || fail "stored bytes with eviction: $(stored app)"
	ends 0 "" "${lab[@]}" kv get lab/1
	ends 1 "over the quota" "${app[@]}" kv set app/long -f "$dir/long"
	stop_daemon
	configure "${settings[@]}"
	start_daemon
	server=${servers[0]}
}

# Keys are rolled as rdmad-auth(7) says, while clients come and go: none of them notices.
test_rotation() {
	local pid failed
	rights 'app ping kv read= write='
	reload "one client"
	cp "$dir/app.key" "$dir/in_use.key"
	(
		while [[ ! -e $dir/rolled ]]; do
			"$rdmactl" -H "$server" --key "$dir/in_use.key" kv set rolling 1 || echo "failed"
		done
	) >"$dir/rolling" 2>&1 &
	pid=$!
	cp "$dir/app.key" "$dir/old.key"
	key app # a second one
	reload "both"
	sleep 0.3
	cp "$dir/app.key" "$dir/next.key" && mv "$dir/next.key" "$dir/in_use.key"
	sleep 0.3
	grep -vF "$(<"$dir/old.key")" "$dir/keys" >"$dir/keys.new" && mv "$dir/keys.new" "$dir/keys"
	sleep 0.3
	reload "the new one alone"
	sleep 0.3
	touch "$dir/rolled"
	wait "$pid"
	[[ $(grep -c stored "$dir/rolling") -gt 5 ]] || fail "hardly a client came: $(<"$dir/rolling")"
	failed=$(grep -c failed "$dir/rolling")
	[[ $failed == 0 ]] || fail "$failed clients failed while keys were rolled: $(tail -n 3 "$dir/rolling")"
	expect 1 --key "$dir/old.key" ping -c 1 && complains "the server does not have key"
}

# Names of channels and groups.
test_names() {
	rights 'app channel peer names=app.' '@* channel peer names='
	reload "names"
	expect 1 --key "$dir/app.key" channel listen "meet://${server#*://}/other" && complains "no right to the name"
	expect 1 --key "$dir/app.key" channel open "meet://${server#*://}/other" && complains "no right to the name"
	expect 4 --key "$dir/app.key" channel open "meet://${server#*://}/app.nobody"
}

# A reload that takes names away does so to listeners and members that are there, and nobody sees names that it may not use.
test_names_taken() {
	local listener member revoked
	shows() { ctl --key "$dir/$2.key" channel list && grep -q "$1" "$dir/out"; }
	meets() { ctl --key "$dir/$2.key" peer groups && grep -q "$1" "$dir/out"; }
	listens() { # NAME KEY
		"$rdmactl" --quiet --key "$dir/$2.key" channel listen "meet://${server#*://}/$1" >"$dir/got" 2>"$dir/$1.log" &
		clients+=($!)
		wait_for "the listener on $1" shows "$1" "$2"
	}
	joins() {
		RDMA_RANK=0 RDMA_SIZE=2 RDMA_GROUP=$1 RDMA_MEETING=$server "$rdmactl" --key "$dir/$2.key" bench peer >"$dir/$1.log" 2>&1 &
		clients+=($!)
		wait_for "the member of $1" meets "$1" "$2"
	}
	rights 'app channel peer names=app.,both.' 'lab channel peer names=lab.,both.'
	reload "names for each"
	revoked=$(counter revoked)
	listens app.one app
	listener=${clients[-1]}
	listens both.two lab
	joins app.three app
	member=${clients[-1]}
	joins both.four lab
	shows app.one lab && fail "a channel is shown to a client that may not use its name"
	shows both.two app || fail "a channel is not shown to a client that may use its name"
	meets app.three lab && fail "a group is shown to a client that may not use its name"
	meets both.four app || fail "a group is not shown to a client that may use its name"
	rights 'app channel peer names=both.' 'lab channel peer names=lab.,both.'
	reload "fewer names"
	wait_for "the end of the listener" ended "$listener"
	wait_for "the end of the member" ended "$member"
	grep -q "no right to the name" "$dir/app.three.log" || fail "the member: $(<"$dir/app.three.log")"
	[[ $(counter revoked) == $((revoked + 1)) ]] || fail "revoked: $revoked, then $(counter revoked)"
	rights 'app channel peer names=' 'lab channel peer names='
	reload "all names"
	shows app.one app && fail "a name whose listener has lost it"
	meets app.three app && fail "a group whose member has lost its name"
	shows both.two app || fail "a name that nobody has taken"
	meets both.four app || fail "a group whose name nobody has taken"
	kill "${clients[@]: -3:1}" "${clients[-1]}" 2>/dev/null
}

# Programs that listen by themselves ask clients that name a key for it.
test_programs() {
	local pid url=unix://$dir/channel peer=unix://$dir/peer
	server=''
	"$rdmactl" --quiet --key "$dir/app.key" channel listen "$url" >"$dir/got" 2>"$dir/listener" &
	pid=$!
	clients+=("$pid")
	wait_for "the listener" test -S "$dir/channel"
	expect 1 --key "$dir/lab.key" channel open "$url" && complains "does not have key"
	"$rdmactl" --quiet --key "$dir/app.key" channel push "$url" <<<"with the key" 2>"$dir/err" || fail "a channel with the key"
	wait_for "what was sent" grep -q "with the key" "$dir/got"
	kill "$pid" 2>/dev/null
	"$rdmactl" --quiet --key "$dir/app.key" peer recv -l "$peer" >"$dir/got" 2>"$dir/listener" &
	pid=$!
	clients+=("$pid")
	wait_for "the peer" test -S "$dir/peer"
	expect 1 --key "$dir/lab.key" peer send -c "$peer" && complains "does not have key"
	"$rdmactl" --quiet --key "$dir/app.key" peer send -c "$peer" <<<words 2>"$dir/err" || fail "a message with the key"
	wait_for "the message" grep -q words "$dir/got"
	kill "$pid" 2>/dev/null
}

# Programs with different keys, which rdmad introduces to each other: by channels and in groups.
test_introduced() {
	local pid moved joined
	rights 'app channel peer names=' 'lab channel peer names='
	reload "names for both"
	moved=$(counter channel_moved) joined=$(counter channel_joined)
	mkdir -p -m 700 "$dir/elsewhere" # where no memory is shared
	"$rdmactl" --quiet --key "$dir/app.key" channel listen "meet://${server#*://}/app.met" >"$dir/got" 2>"$dir/listener" &
	pid=$!
	clients+=("$pid")
	listened() { ctl --key "$dir/app.key" channel list && grep -q app.met "$dir/out"; }
	wait_for "the listener" listened
	XDG_RUNTIME_DIR=$dir/elsewhere "$rdmactl" --quiet --key "$dir/lab.key" channel push "meet://${server#*://}/app.met" \
		<<<"by a ticket" 2>"$dir/err" || fail "a channel between two keys"
	wait_for "what was sent" grep -q "by a ticket" "$dir/got"
	[[ $(counter channel_moved) -gt $moved && $(counter channel_joined) == "$joined" ]] || fail "they did not meet directly"
	kill "$pid" 2>/dev/null
	[[ -x $rdmarun ]] || return
	# shellcheck disable=SC2016 # of the ranks
	ends 0 "2 ranks" env dir="$dir" rdmactl="$rdmactl" timeout 120 "$rdmarun" -n 2 --meeting "$server" sh -c \
		'key=app; [ "$RDMA_RANK" = 0 ] || key=lab; exec "$rdmactl" --key "$dir/$key.key" bench peer -s 8 -D 1ms'
}

# Without keys it is not for other machines, unless the configuration says so.
test_exposed() {
	local far=tcp://0.0.0.0:0
	rights 'app ping' '@* ping'
	stop_daemon
	configure 'services = ["ping"];' 'insecure = false;'
	local listen_far=(-c "$dir/rdmad.conf" -l "$far")
	ends 78 "rdmactl key new NAME" "$rdmad" "${listen_far[@]}"
	ends 78 "0.0.0.0:0 is for other machines" "$rdmad" -t "${listen_far[@]}"
	ends 0 "no errors" "$rdmad" -t "${listen_far[@]}" --insecure
	start_daemon -l "$far" --insecure
	logged "for keys: each host that reaches it"
	stop_daemon
	configure "${settings[@]}"
	start_daemon -l "$far"
	! grep -q "each host that reaches it" "$dir/log" || fail "a warning beside keys"
	server=${servers[0]}
	expect 0 --key "$dir/app.key" ping -c 1
	sed -i 's/^auth = .*/insecure = false;/' "$dir/rdmad.conf"
	expect 1 reload && complains "is for other machines"
	expect 0 --key "$dir/app.key" ping -c 1
	stop_daemon
	configure "${settings[@]}"
	start_daemon
	server=${servers[0]}
}

# The daemon's own user and root alone need no key.
test_local() {
	[[ $(id -u) = 0 ]] && command -v setpriv >/dev/null || return
	local other=(setpriv --reuid=65534 --regid=65534 --clear-groups "$rdmactl" -H "$server") open
	open=$(mktemp -d) # which that user can read
	chmod 755 "$open"
	install -m 600 -o 65534 "$dir/app.key" "$open/key"
	rights 'app ping' '@* ping'
	reload "all"
	ends 0 "64 bytes" "${other[@]}" ping -c 1
	sed -i 's/clients = [^;]*;/& local = "user";/' "$dir/rdmad.conf"
	reload "the own user alone"
	ends 1 "asks for a key" "${other[@]}" ping -c 1
	ends 0 "64 bytes" "${other[@]}" --key "$open/key" ping -c 1
	expect 0 ping -c 1
	rm -r "$open"
}

# Starts that fail say which file, and what mends it.
test_starts() {
	stop_daemon
	chmod 604 "$dir/keys"
	ends 77 "chmod 600" "$rdmad" -c "$dir/rdmad.conf"
	chmod 600 "$dir/keys"
	mv "$dir/keys" "$dir/moved"
	ends 78 "rdmactl key new" "$rdmad" -c "$dir/rdmad.conf"
	ln -s moved "$dir/keys"
	ends 78 "symbolic link" "$rdmad" -c "$dir/rdmad.conf"
	rm "$dir/keys"
	mv "$dir/moved" "$dir/keys"
	rights 'app kw'
	ends 78 "no service and no right" "$rdmad" -t --offline -c "$dir/rdmad.conf"
	ends 78 "no service and no right" "$rdmad" -c "$dir/rdmad.conf"
	RDMAD_KEY_FILE=$dir/nothing ends 2 "no such file" "$rdmactl" ping -c 1
}

listen=(tcp://127.0.0.1:0 ${RDMAD_GUEST_ADDR:+"rdma://$RDMAD_GUEST_ADDR:0"})
# PARTS: in the guest, what a device may do otherwise than a socket.
for part in ${PARTS-keys reload limits quota rotation names names_taken introduced programs exposed local starts}; do
	"test_$part"
done
conclude
