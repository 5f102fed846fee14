#!/bin/bash
# check_cluster_change.sh: three rdmads get other tables while clients go on: losers first. What is under way, every hit, and the tables
# that are refused.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3
state=yes workers=2
# shellcheck source=tests/cluster/servers.sh
. "$(dirname "$0")/servers.sh"

for node in "${nodes[@]}"; do cp "$dir/table" "$dir/$node.table"; done
start_all

# Tables that are refused: nothing changes, and the reason is told.
cp "$dir/table" "$dir/good"
refused() {
	reload a && fail "it was taken: $1"
	grep -qF -- "$1" "$dir/err" || fail "no \"$1\""
	[[ $(cluster_of a epoch) == 1 && $(cluster_of a slots) == 5462 ]] || fail "something changed: $1"
	cp "$dir/good" "$dir/a.table"
}
sed '/^checksum/d; s/^name test/name other/; s/^epoch 1/epoch 2/' "$dir/good" >"$dir/a.table"
refused 'the table is of cluster other, and this server of test'
sed '/^checksum/d; s/^shard b .*/absent 5461-10922/; s/^shard a .*/shard a a 0-5460/' "$dir/good" >"$dir/a.table"
refused 'two tables of epoch 1'
sed 's/^epoch 1/epoch 2/' "$dir/good" >"$dir/a.table"
refused 'the checksum is not'
sed '/^checksum/d; s/\ba\b/z/g; s/^epoch 1/epoch 2/' "$dir/good" >"$dir/a.table"
refused 'has no node a'
head -c 200 "$dir/good" >"$dir/a.table"
refused 'is no range of slots'
rm "$dir/a.table"
refused 'No such file'
head -c 70000 /dev/urandom >"$dir/a.table"
refused 'a.table'
reload a || fail "a table that is served already"

# Several at once: each is answered, and the table is served once.
sed '/^checksum/d; s/^epoch 1/epoch 2/' "$dir/good" >"$dir/table"
cp "$dir/table" "$dir/a.table"
reloads=()
for i in {1..8}; do
	"$rdmactl" --control "$dir/a.sock" reload >"$dir/reload.$i" 2>&1 &
	reloads+=($!)
	clients+=($!)
done
for i in "${reloads[@]}"; do wait "$i" || fail "one of several reloads"; done
[[ $(cat "$dir"/reload.* | grep -c 'changed: cluster.table') == 1 ]] || fail "how often the table changed"
[[ $(cluster_of a epoch) == 2 ]] || fail "the epoch behind several reloads"


# All of them, seen from outside: two tables that give a slot to two of them are found.
status() { "$rdmactl" -H "tcp://127.0.0.1:${ports[1]}" --json cluster status "$@" 2>"$dir/err" >"$dir/out"; }
status || fail "cluster status"
jq -e '.epoch == 2 and .lowest_epoch == 1 and .reached == 3 and .slots_of_nobody == 0 and (.both | length) == 0 and
	([.nodes[].slots] | add) == 16384 and ([.nodes[].node] | join("")) == "abc"' "$dir/out" >/dev/null || fail "what cluster status says"
status "$dir/table" || fail "cluster status of a file"
status "tcp://127.0.0.1:1" "tcp://127.0.0.1:${ports[0]}" || fail "cluster status of the second host"
status "tcp://127.0.0.1:1" && fail "cluster status of nobody"
sed '/^checksum/d; s/^epoch .*/epoch 3/; s/^shard a .*/shard a a 0-5450/; s/^shard b .*/shard b b 5451-10922/' "$dir/good" >"$dir/b.table"
reload b || fail "a table of b alone"
status && fail "two servers answer for a slot"
jq -e '.both[0] | .first == 5451 and .last == 5461 and .node == "a" and .other == "b"' "$dir/out" >/dev/null || fail "the slots of two servers"
grep -q 'two servers answer for one slot by their tables, in 1 range' "$dir/err" || fail "what is said of them"
cp "$dir/b.table" "$dir/table"
for node in "${nodes[@]}"; do
	cp "$dir/table" "$dir/$node.table"
	reload "$node" || fail "the reload of $node"
done
status || fail "cluster status behind it"

# Clients, step by step.
coproc clients_of { "$python" "$srcdir/tests/cluster/change.py" "${ports[@]}" 2>"$dir/change.err"; }
change=$!
clients+=("$change")
exec 7<&"${clients_of[0]}" 8>&"${clients_of[1]}"
# at WHAT: the clients have got there.
at() {
	local line=''
	IFS= read -r -t 240 line <&7
	[[ $line == "$1" ]] || { cat "$dir/change.err" >&2; give_up "the clients are at \"$line\", not at \"$1\""; }
}
next() { echo >&8; }

at 'under way'
give 0 99 b
next
at moved
give 0 99 a
next
at load
RANDOM=1
for ((i = 0; i < $(part 10); i++)); do
	first=$((RANDOM % 16384)) last=$((first + RANDOM % 4000))
	give "$first" $((last < 16384 ? last : 16383)) "${nodes[RANDOM % 3]}"
done
next
at library
give 0 3000 b
give 0 3000 a
next
at "the end"
wait "$change" || fail "a client saw what it must not see"
cat "$dir/change.err"

# What was refused is counted; and no older table is served, after a start, too.
[[ $("$rdmactl" --control "$dir/a.sock" --json status | jq .counters.kv_elsewhere) -gt 0 ]] || fail "kv_elsewhere"
"$rdmactl" --control "$dir/a.sock" metrics | grep -q '^rdmad_cluster_slots{state="own"}' || fail "metrics"
stop_all
cp "$dir/good" "$dir/a.table"
ends 78 'epoch 1, and ' "$rdmad" -t -c "$dir/a.conf"
ends 78 'an older table is never served again' "$rdmad" -c "$dir/a.conf"
conclude
