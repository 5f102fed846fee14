#!/bin/bash
# Redis's commands over RDMA, as Valkey's clients have it, by a client made from the protocol's description: in the guest by its device,
# elsewhere by software. Programs that have sockets only go through its bridge; clients that break the protocol are cut off alone, and
# all they had comes back.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need redis-cli redis-benchmark jq
valkey=$builddir/tests/service/resp/valkey_rdma
[[ -x $valkey ]] || { echo "$test_name: $valkey was not built"; exit 77; }
address=${RDMAD_GUEST_ADDR-127.0.0.1}
if [[ ${RDMAD_GUEST_ADDR-} ]]; then
	own=$address
	common=", \"$address:7471\""
	listen=(tcp://127.0.0.1:0 "rdma://$address:7471")
else
	own=tcp://$address:0
	common=''
fi

bridges=() port=''
# The daemon, the port of its clients of Valkey's, and their bridge.
start() {
	start_daemon
	port=$(control status | jq -r '[.listen[] | select(.service == "resp").address | sub(".*:"; "") | select(. != "7471")][0]')
	bridge own "$port"
}
stop() {
	kill -KILL "${bridges[@]}"
	bridges=()
	rm -f "$dir"/own.sock "$dir"/common.sock
}
# bridge NAME PORT: $dir/NAME.sock goes on by RDMA.
bridge() {
	"$valkey" bridge "$dir/$1.sock" "$address" "$2" &
	clients+=($!)
	bridges+=($!)
	wait_for "the bridge $1" test -S "$dir/$1.sock"
}
redis() { timeout 120 redis-cli -s "$dir/own.sock" --no-auth-warning "$@" 2>&1; }
# answers TEXT COMMAND...
answers() {
	local want=$1 got
	shift
	got=$(redis "$@" | tr '\n' ' ')
	[[ $got == "$want " ]] || fail "$*: \"$got\", not \"$want\""
}
# refuses TEXT COMMAND...: an error that has this text.
refuses() {
	local want=$1 got
	shift
	got=$(redis "$@")
	[[ $got == *"$want"* ]] || fail "$*: \"$got\", not \"$want\""
}
# stay [OPTION...]: a client that stays, whose next command is one_more.
stay() {
	{ coproc STAYS { exec redis-cli -s "$dir/own.sock" --no-auth-warning "$@" 2>&1; }; } 2>/dev/null
	clients+=("$STAYS_PID")
	exec {talk}>&"${STAYS[1]}" {heard}<&"${STAYS[0]}"
}
one_more() {
	echo "$*" >&"$talk"
	read -r -t 60 -u "$heard" got
}
has_clients() { [[ $(control conn list | jq '[.connections[] | select(.service == "resp")] | length') == "$1" ]]; }

# Each address tells the two kinds of clients apart, and that of its own takes no other.
see_addresses() {
	control status | jq -e '[.listen[] | select(.transport == "rdma" and .service == "resp")] | length == 2' >/dev/null ||
		fail "the status has not both listeners"
	server=rdma://$address:7471 expect 0 ping --count 10
	server=rdma://$address:$port
	ctl ping --count 1 && fail "rdmad's own client at the address of Valkey's"
	server=''
	bridge common 7471
	[[ $(timeout 60 redis-cli -s "$dir/common.sock" PING) == PONG ]] || fail "the common address"
}

# Also values that go over many windows.
see_commands() {
	answers PONG PING
	answers OK SET greeting "hello, cluster"
	answers '"hello, cluster"' --no-raw GET greeting
	answers 2 HSET hash a 1 b 2
	head -c 3000000 /dev/urandom | base64 -w 0 >"$dir/large"
	answers OK -x SET large <"$dir/large"
	redis --raw GET large | head -c -1 | cmp -s - "$dir/large" || fail "a value of 4 MB came back as another"
	answers "(integer) 4000000" --no-raw STRLEN large
	answers "OK QUEUED QUEUED 1 2" <<-'END'
		MULTI
		INCR n
		INCR n
		EXEC
	END
	for ((i = 0; i < 3000; i++)); do printf 'SET k%d %0300d\r\n' "$i" "$i"; done >"$dir/pipe"
	redis --pipe <"$dir/pipe" | grep -q 'errors: 0, replies: 3000' || fail "3000 commands at once"
	answers "3004" --raw DBSIZE
	timeout 200 redis-benchmark -s "$dir/own.sock" -q -c 8 -P 16 -n "$(part 4000)" -d 256 -t set,get,incr,mset >"$dir/out" 2>&1 ||
		fail "redis-benchmark: $(cat "$dir/out")"
	timeout 200 "$valkey" bench "$address" "$port" 10 32 >"$dir/out" || fail "GETs in one write"
	says '^[0-9.]+ [0-9]+$' "GETs in one write"
	redis CLIENT LIST | grep -q "addr=$address:" || fail "CLIENT LIST has not the client's address"
}

# One that breaks the protocol ends alone.
see_hostile() {
	local act before
	stay
	one_more SET good 1
	wait_for "the good client alone" has_clients 1
	before=$(resource descriptors)
	for act in write_past write_by_guess say_too_much register_early send_unknown send_short flood never_register wrong_place; do
		timeout 100 "$valkey" break "$address" "$port" "$act" || fail "$act"
		one_more INCR good
		[[ $got =~ ^[0-9]+$ ]] || fail "after $act the good client got \"$got\""
	done
	logged "registered again"
	logged "its window has room for"
	wait_for "the good client alone again" has_clients 1
	[[ $(resource descriptors) == "$before" ]] || fail "descriptors were lost"
	control status | jq -e '.counters.violations >= 7' >/dev/null || fail "the violations are not counted"
}

# A client that is killed leaves nothing, and a shutdown waits for none that is idle.
see_ends() {
	stop
	wait_for "the end of killed clients" has_clients 0
	bridge own "$port"
	stay
	one_more PING
	[[ $got == PONG ]] || fail "PING: \"$got\""
	stop_daemon
	stop
}

configure 'workers = 2;' 'services = ["kv", "resp", "ping"];' 'handshake_timeout = "5s";' "resp = { rdma = [\"$own\"$common]; };"
start
[[ ! $common ]] || see_addresses
see_commands
see_hostile
see_ends

# Passwords go by the network, and windows are bounded: three clients have no room in so little.
umask 077
for name in app lab late; do
	"$rdmactl" --quiet key new "$name" --into "$dir/keys" >/dev/null || give_up "no key"
done
printf '%s\n' 'app kv resp read=app/ write=app/ connections=1' 'lab kv read= write=' >"$dir/clients"
password=$("$rdmactl" key resp "$dir/keys" app)
auth="auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
configure 'services = ["kv", "resp"];' "resp = { rdma = [\"$own\"]; rdma_window = \"256K\"; rdma_memory = \"1300K\"; };" "$auth"
start
refuses NOAUTH GET app/k
refuses "others may hear a password" AUTH app "$password"
stay
one_more PING
stay
one_more PING
wait_for "two clients" has_clients 2
timeout 60 "$valkey" break "$address" "$port" flood 2>"$dir/err" && fail "a third client has memory beyond the limit"
complains refused
stop_daemon
stop

# Rights are those of the password, connection by connection.
configure 'workers = 1;' 'services = ["kv", "resp"];' "resp = { rdma = [\"$own\"]; clear = true; };" "$auth"
start
for command in 'GET app/k' 'SET app/k v' PING 'CLIENT LIST' 'SUBSCRIBE news' MULTI; do
	# shellcheck disable=SC2086 # its words
	refuses NOAUTH $command
done
refuses WRONGPASS AUTH app wrong
refuses WRONGPASS AUTH nobody "$password"
refuses WRONGPASS AUTH app "$("$rdmactl" key resp "$dir/keys" lab)"
refuses NOPERM AUTH lab "$("$rdmactl" key resp "$dir/keys" lab)"
stay --user app --pass "$password"
one_more SET app/k v
[[ $got == OK ]] || fail "with a password: \"$got\""
one_more GET other
[[ $got == NOPERM* ]] || fail "a key that may not be read: \"$got\""
refuses NOAUTH GET app/k # of another connection
refuses "max number of clients reached" --user app --pass "$password" GET app/k
control conn list | jq -e '[.connections[] | select(.service == "resp" and .key == "app")] | length == 1' >/dev/null ||
	fail "the list has not the client's name"

# A reload without its key ends it; another key that comes by it counts at once.
sed -i '/:app:/d' "$dir/keys"
sed -i '/^app /d' "$dir/clients"
echo 'late kv resp read=app/ write=' >>"$dir/clients"
ctl reload || fail "reload"
wait_for "the end of a client whose key is gone" has_clients 0
answers v --user late --pass "$("$rdmactl" key resp "$dir/keys" late)" GET app/k
stop_daemon
conclude
