#!/bin/bash
# Redis's commands over RDMA, as Valkey's clients have it: in the guest, by a client made from the protocol's description. Programs that
# have sockets only go through its bridge; clients that break the protocol are cut off alone, and all they had comes back.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need redis-cli redis-benchmark jq
[[ ${RDMAD_GUEST_ADDR-} ]] || { echo "$test_name: no RDMA device (scripts/guest)"; exit 77; }
valkey=$builddir/tests/service/resp/valkey_rdma
address=$RDMAD_GUEST_ADDR
listen=("tcp://127.0.0.1:0" "rdma://$address:7471")
[[ -x $valkey ]] || { echo "$test_name: $valkey was not built"; exit 77; }

bridges=()
# bridge NAME PORT: $dir/NAME.sock goes on by RDMA.
bridge() {
	"$valkey" bridge "$dir/$1.sock" "$address" "$2" &
	clients+=($!)
	bridges+=($!)
	wait_for "the bridge $1" test -S "$dir/$1.sock"
}
redis() { timeout 120 redis-cli -s "$dir/own.sock" "$@" 2>&1; }
# answers TEXT COMMAND...
answers() {
	local want=$1 got
	shift
	got=$(redis "$@" | tr '\n' ' ')
	[[ $got == "$want " ]] || fail "$*: \"$got\", not \"$want\""
}
rdma_clients() { control conn list | jq '[.connections[] | select(.transport == "rdma" and .service == "resp")] | length'; }
has_clients() { [[ $(rdma_clients) == "$1" ]]; }

configure 'workers = 2;' 'services = ["kv", "resp", "ping"];' "resp = { rdma = [\"$address\", \"$address:7471\"]; clear = true; };"
start_daemon
control status | jq -e '[.listen[] | select(.transport == "rdma" and .service == "resp")] | length == 2' >/dev/null ||
	fail "the status has not both listeners"

# Each address tells the two kinds of clients apart, and that of its own takes no other.
server=rdma://$address:7471 expect 0 ping --count 10
server=rdma://$address:6379
ctl ping --count 1 && fail "rdmad's own client at the address of Valkey's"
server=''
bridge own 6379
bridge common 7471
answers PONG PING
[[ $(timeout 60 redis-cli -s "$dir/common.sock" PING) == PONG ]] || fail "the common address"

# Commands, and values that go over many windows.
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
redis CLIENT LIST | grep -q "addr=$address:" || fail "CLIENT LIST has not the client's address"

# One that breaks the protocol ends alone.
coproc GOOD { exec redis-cli -s "$dir/own.sock"; } 2>/dev/null
clients+=("$GOOD_PID")
echo "SET good 1" >&"${GOOD[1]}"
read -r -t 60 -u "${GOOD[0]}" got
wait_for "the good client alone" has_clients 1
before=$(control resources | jq '.descriptors')
for act in write_past write_by_guess say_too_much register_early send_unknown send_short flood never_register wrong_place; do
	timeout 100 "$valkey" break "$address" 6379 "$act" || fail "$act"
	echo "INCR good" >&"${GOOD[1]}"
	read -r -t 60 -u "${GOOD[0]}" got
	[[ $got =~ ^[0-9]+$ ]] || fail "after $act the good client got \"$got\""
done
logged "registered again"
logged "its window has room for"
wait_for "the good client alone again" has_clients 1
[[ $(control resources | jq '.descriptors') == "$before" ]] || fail "descriptors were lost"
control status | jq -e '.counters.violations >= 7' >/dev/null || fail "the violations are not counted"

# A client that is killed leaves nothing.
kill -KILL "${bridges[@]}"
bridges=()
wait_for "the end of killed clients" has_clients 0
# A shutdown waits for none that is idle, and there are no leftovers that hold it.
rm -f "$dir"/own.sock
bridge own 6379
answers PONG PING
coproc IDLE { exec redis-cli -s "$dir/own.sock"; } 2>/dev/null
clients+=("$IDLE_PID")
echo "PING" >&"${IDLE[1]}"
read -r -t 60 -u "${IDLE[0]}" got
stop_daemon
kill -KILL "${bridges[@]}"

# Passwords go by the network, and windows are bounded: three clients have no room in so little.
configure 'workers = 1;' 'services = ["kv", "resp"];' \
	"resp = { rdma = [\"$address\"]; rdma_window = \"256K\"; rdma_memory = \"1300K\"; };" \
	"auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
umask 077
"$rdmactl" --quiet key new app --into "$dir/keys" >/dev/null || give_up "no key"
echo "app kv resp read= write=" >"$dir/clients"
start_daemon
rm -f "$dir"/own.sock
bridge own 6379
[[ $(redis GET k) == NOAUTH* ]] || fail "a client without a password may read"
[[ $(redis AUTH app wrong) == *"others may hear a password"* ]] || fail "a password in clear is asked for"
coproc FIRST { exec redis-cli -s "$dir/own.sock"; } 2>/dev/null
clients+=("$FIRST_PID")
coproc SECOND { exec redis-cli -s "$dir/own.sock"; } 2>/dev/null
clients+=("$SECOND_PID")
echo PING >&"${FIRST[1]}"
echo PING >&"${SECOND[1]}"
wait_for "two clients" has_clients 2
timeout 60 "$valkey" break "$address" 6379 flood 2>"$dir/err" && fail "a third client has memory beyond the limit"
grep -q refused "$dir/err" || fail "a third client was not refused"
stop_daemon
conclude
