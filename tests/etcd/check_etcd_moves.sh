#!/bin/bash
# check_etcd_moves.sh: slots move with their values between rdmads that agree by a real etcd, under load: a node joins, one is drained,
# donor and target are killed in the midst, etcd is away. No key is lost but the keys of a node that died, and none has an old value.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need etcd etcdctl jq python3
nodes=(a b c d) memory=64M
# shellcheck source=tests/etcd/servers_by_etcd.sh
. "$(dirname "$0")/servers_by_etcd.sh"
start_etcd
wait_for "etcd" put_key begin 1

# Drains of a cluster without servers, whose members' keys are written here: what is planned, and what cannot be.
# member NODE [out]
member() { put_key "still/member/$1" "rdmad-member 1 boot $1 place - count 1 epoch 9 period 4000${2:+ out}"; }
drain() { "$rdmactl" cluster drain "$@" --name still --etcd "$url" >"$dir/out" 2>"$dir/err"; }
drain a && fail "a drain without a table"
grep -q "no table of cluster still" "$dir/err" || fail "a drain without a table: $(cat "$dir/err")"
"$rdmactl" cluster make --name still a=h1 b=h2 c=h3 d=h4 >"$dir/still" && apply "$dir/still" || fail "a table without servers"
member a
drain a && fail "a drain of the only member"
grep -q "no other node is a member" "$dir/err" || fail "a drain of the only member: $(cat "$dir/err")"
member b && member d && member c out
drain c || fail "a drain of a node that is out: $(cat "$dir/err")"
drain a || fail "a drain beside a node that is out and empty: $(cat "$dir/err")"
drain b || fail "a drain beside another one: $(cat "$dir/err")"
"$rdmactl" cluster show --name still --etcd "$url" --text >"$dir/still"
grep -q "^node c " "$dir/still" || fail "a node that is out is not listed any more"
grep -Eq "^shard c| to [abc]" "$dir/still" && fail "drained nodes get slots: $(cat "$dir/still")"
[[ $(grep -c " to d" "$dir/still") == 2 ]] || fail "two drains: $(cat "$dir/still")"
"$rdmactl" cluster drain a --wait --name still --etcd "$url" >"$dir/wait.out" 2>"$dir/wait.err" &
waits=$!
clients+=("$waits")
to_d() { [[ $("$rdmactl" cluster show --name still --etcd "$url" --json | jq .epoch) == 5 ]]; }
wait_for "the drain that waits" to_d
member d out

# A node that is out keeps its slots, and gets none.
"$rdmactl" cluster make --name part a=h1 b=h2 c=h3 >"$dir/part" && apply "$dir/part" || fail "a table with a node that is out"
for node in a "b out" c; do
	put_key "part/member/${node% out}" "rdmad-member 1 boot ${node% out} place - count 1 epoch 9 period 4000${node#?}"
done
"$rdmactl" cluster drain a --name part --etcd "$url" >"$dir/out" 2>"$dir/err" || fail "a drain beside a node that is out: $(cat "$dir/err")"
"$rdmactl" cluster show --name part --etcd "$url" --text >"$dir/part"
grep -q "^shard a.* to c " "$dir/part" && ! grep -q " to b " "$dir/part" && grep -q "^shard b b 5462-10922$" "$dir/part" ||
	fail "a drain beside a node that is out: $(cat "$dir/part")"
# Drains of two nodes at one time: each table follows the other one.
for n in {1..5}; do
	"$rdmactl" cluster make --name "race$n" a=h1 b=h2 c=h3 >"$dir/race" && apply "$dir/race" || fail "a table for two drains"
	for node in a b c; do put_key "race$n/member/$node" "rdmad-member 1 boot $node place - count 1 epoch 9 period 4000"; done
	drains=()
	for node in a b; do
		"$rdmactl" cluster drain "$node" --name "race$n" --etcd "$url" >>"$dir/race.out" 2>>"$dir/race.err" &
		drains+=($!)
	done
	for pid in "${drains[@]}"; do wait "$pid" || fail "two drains at one time: $(cat "$dir/race.err")"; done
done

for i in 0 1 2 3; do start $i; done
for i in 0 1 2 3; do wait_for "${nodes[i]} as a member" serves $i; done
"$rdmactl" cluster make --name kv "${specs[@]:0:3}" >"$dir/first"
apply "$dir/first" || fail "apply of the first table"
first_serve() { show --json | jq -e '[.nodes[] | select(.state == "member" and .epoch >= 1)] | length == 3' >/dev/null; }
wait_for "the first table" first_serve

all=("${ports[@]:4:4}" "$dir"/[abcd].memcached)
# Keys that are not changed: each is to be there, with its value, its time to live, its type and its flags.
python3 "$srcdir/tests/etcd/moved.py" fill "${all[@]}" || give_up "no keys"
tests/cluster/history "cluster:127.0.0.1:${ports[0]},127.0.0.1:${ports[1]}" 600 4 12 2000 >"$dir/history" 2>"$dir/history.log" &
history=$!
clients+=("$history")
all_there() { python3 "$srcdir/tests/etcd/moved.py" check "${all[@]}" >"$dir/there" 2>&1; }
all_there || { cat "$dir/there"; fail "the keys before any move"; }
python3 "$srcdir/tests/etcd/moved.py" count "${ports[@]:4:4}" >"$dir/counts" 2>&1 &
counts=$!
clients+=("$counts")
watches=()
for i in 0 1 2 3; do
	"$rdmactl" kv watch -H "127.0.0.1:${ports[i]}" moved >"$dir/watch.$i" 2>"$dir/watch.err" &
	watches+=($!)
	clients+=($!)
	watches_now() { grep -q began "$dir/watch.$1"; }
	wait_for "a watch of ${nodes[i]}" watches_now $i
done

# moved: nothing is to go any more, and all serve by the table.
moved() { show --json | jq -e 'all(.nodes[]; .gives == 0)' >/dev/null; }
began=$(date +%s%N)
change add "${specs[3]}"
# A slot that goes has one server at any time, and status, which asks one after the other, says so.
moved_alone() {
	"$rdmactl" cluster status "127.0.0.1:${ports[0]}" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; fail "status in a move"; }
	moved
}
wait_for "the slots of d" moved_alone
echo "joined in $((($(date +%s%N) - began) / 1000000)) ms"
[[ $(of d slots) == 4096 ]] || fail "d has $(of d slots) slots"
all_there || { cat "$dir/there"; fail "keys behind the join"; }
for i in 0 1 2; do
	echo "${nodes[i]}: done $(says $i moves_done), failed $(says $i moves_failed), keys $(says $i moved_keys), sealed $(says $i sealed_most_us) us"
	[[ $(says $i moves_done) -gt 0 ]] || fail "${nodes[i]} gave nothing"
done

# A node is drained, and goes.
"$rdmactl" cluster drain a --wait --name kv --etcd "$url" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; fail "the drain of a"; }
[[ $(of a slots) == 0 ]] || fail "a has slots behind its drain"
all_there || { cat "$dir/there"; fail "keys behind the drain"; }
kill -TERM "$counts"
wait "$counts" || { cat "$dir/counts"; fail "clients of Redis Cluster that count"; }
# A watcher is told where slots went or came, and of no change, as there was none.
kill -INT "${watches[@]}"
wait "${watches[@]}"
for i in 0 1 2 3; do
	grep -q "^missed" "$dir/watch.$i" || fail "${nodes[i]} told no watcher that slots went or came"
	grep -Ev "^(began|missed)" "$dir/watch.$i" >"$dir/out" && fail "${nodes[i]} told of changes in moves"
done
"$rdmactl" cluster drain nobody --name kv --etcd "$url" 2>"$dir/err" && fail "a drain of no node"

# A transaction that deletes all deletes nothing that is on its way.
for i in {1..5}; do
	python3 "$srcdir/tests/etcd/moved.py" flush "${ports[4]}" "$etcd" >"$dir/flush" 2>&1 &
	flush=$!
	change add
	wait "$flush"
	flushed=$?
	wait_for "slots of a" moved
	[[ $flushed == 2 ]] || break
	"$rdmactl" cluster drain a --wait --name kv --etcd "$url" >"$dir/out" 2>"$dir/err" || fail "drain $i of a"
done
echo "a delete-all in the midst: try $i, status $flushed"
[[ $flushed == 0 || $flushed == 2 ]] || { cat "$dir/flush"; fail "a delete-all in the midst"; }
all_there || { cat "$dir/there"; fail "keys behind a delete-all in the midst"; }

# etcd is away in the midst; all goes on when it is back.
change add
kill -STOP "$etcd"
sleep 1
kill -CONT "$etcd"
wait_for "slots of all" moved
all_there || { cat "$dir/there"; fail "keys behind etcd's pause"; }

# A donor stands still in the midst, for less time than after which it is out: nothing is lost.
"$rdmactl" cluster drain b --name kv --etcd "$url" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; fail "the drain of b"; }
kill -STOP "${pids[1]}"
sleep 1
kill -CONT "${pids[1]}"
wait_for "slots of the others" moved
all_there || { cat "$dir/there"; fail "keys behind b's pause"; }

# A target stands still until it is out, and comes back: its slots' keys are gone, or as they were.
change add
kill -STOP "${pids[1]}"
is_out() { [[ $(of b state) == out ]]; }
wait_for "b out" is_out
kill -CONT "${pids[1]}"
wait_for "b again" serves 1
wait_for "the end of moves behind b's pause" moved
python3 "$srcdir/tests/etcd/moved.py" right "${all[@]}" >"$dir/there" 2>&1 || { cat "$dir/there"; fail "values behind b's pause"; }

# A target dies in the midst, and a donor: what they had is gone, and nothing else is; no value is an old one.
again() {
	kill -KILL "${pids[$1]}"
	wait "${pids[$1]}" 2>/dev/null
	start "$1"
	wait_for "${nodes[$1]} again" serves "$1"
	wait_for "the end of moves behind ${nodes[$1]}'s death" moved
	python3 "$srcdir/tests/etcd/moved.py" right "${all[@]}" >"$dir/there" 2>&1 || { cat "$dir/there"; fail "values behind ${nodes[$1]}'s death"; }
}
"$rdmactl" cluster drain b --name kv --etcd "$url" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; fail "the drain of b"; }
again 3
change add
again 0

# A node without a server is to get slots: each owner says why they stay, until that is withdrawn.
change add e=127.0.0.1:1
no_target() { [[ $(says 1 move_reason) == *"is a member"* ]]; }
wait_for "the reason why no slot goes" no_target
change drop e
wait_for "the withdrawal" moved

wait "$waits" && fail "a drain to a node that is out has ended well"
grep -q "that cannot go: no node that is to get them is a member" "$dir/wait.err" || fail "a drain to a node that is out: $(cat "$dir/wait.err")"

kill -TERM "$history"
wait "$history" || { cat "$dir/history.log" >&2; fail "native clients saw what they must not see"; }
cat "$dir/history"
stop_all '^error'
conclude
