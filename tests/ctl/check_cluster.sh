#!/bin/bash
# check_cluster.sh: tables of a cluster by rdmactl's commands: a first one, the next ones, faults of people; slots as redis-server has
# them, and the manual's table.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq

cluster() { "$rdmactl" cluster "$@" 2>"$dir/err" </dev/null; }
# slots_of TABLE NODE: as one number.
slots_of() { cluster check --json "$1" | jq ".nodes[] | select(.node == \"$2\").slots"; }

cd "$dir" || exit 1
cluster make --name kv a=10.0.0.1,metrics=10.0.0.1:9999 B=tcp://10.0.0.2:7000 h3 --resp-port 6379 >one || fail "make"
cat >wanted <<-'END'
	rdmad-cluster 1
	name kv
	epoch 1
	node a 10.0.0.1:7471 resp 10.0.0.1:6379 metrics 10.0.0.1:9999
	node B tcp://10.0.0.2:7000 resp 10.0.0.2:6379
	node h3 h3:7471 resp h3:6379
	shard a a 0-5461
	shard B B 5462-10922
	shard h3 h3 10923-16383
END
head -n -1 one | diff - wanted >out || fail "the first table"
cluster check one | grep -q '^  B  *5461  *1  *tcp://10.0.0.2:7000  *10.0.0.2:6379' || fail "check"
"$rdmactl" --json cluster make "x=[::1]:1,resp=[::1]:2" --metrics-port 9 | jq -r .table | grep -qF 'node x [::1]:1 resp [::1]:2 metrics [::1]:9' || fail "a number of IPv6"

# One more, one less, both.
cluster plan one add d=10.0.0.4 >two || fail "plan"
grep -q 'epoch 2: 4096 of 16384 slots move, in 3 ranges' err || fail "what moves"
grep -q '^first, as they lose slots: a B h3$' err && grep -q '^then: d$' err || fail "the order of a join"
[[ $(slots_of two a) == 4096 && $(slots_of two d) == 4096 ]] || fail "shares of four"
cluster plan --json two drop a add e=10.0.0.5 f=10.0.0.6 >three || fail "plan --json"
jq -e '.epoch == 3 and .first[0] == "a" and ([.moves[] | .last - .first + 1] | add) == .moved and (.moves | all(.from != .to))' three >out || fail "moves of three"
jq -r .table three >text && [[ $(cluster check --json text | jq -c '[.nodes[].node], ([.nodes[].slots] | add)' | tr '\n' ' ') == '["B","h3","d","e","f"] 16384 ' ]] ||
	fail "the table in JSON"
cluster plan - add x=y <one >/dev/null && fail "standard input that is empty"
"$rdmactl" cluster plan -q - add x=y <one 2>err | "$rdmactl" cluster check - >out && [[ ! -s err ]] || fail "quietly, by pipes"

# Slots and addresses.
[[ $(cluster slot foo bar --table one) == $'12182 h3 h3:7471\n5061 a 10.0.0.1:7471' ]] || fail "slot"
sed '/checksum/d; s/^shard h3.*/absent 10923-16383/' one >less
[[ $(cluster slot foo --table less) == '12182 absent' && $(cluster slot foo) == 12182 ]] || fail "an absent slot"
[[ $(cluster slot --json foo --table less | jq -c '.keys[0]') == '{"slot":12182,"key":"foo","node":null}' ]] || fail "slot --json"
[[ $(cluster targets one) == '[{"targets":["10.0.0.1:9999"],"labels":{"cluster":"kv","node":"a"}}]' ]] || fail "targets"
grep -q 'node B has no metrics address' err || fail "a node without metrics"

# Faults.
sed 's/10.0.0.2:7000/10.0.0.2:7001/' one >changed
ends 1 'changed: the checksum is not' "$rdmactl" cluster check changed
ends 1 'changed: the checksum is not' "$rdmactl" cluster plan changed drop a
head -c 200 one >part
ends 1 'part: slots ' "$rdmactl" cluster check part
sed '3s/.*/x/' less >word
ends 1 'word:3: "x" begins no line' "$rdmactl" cluster check word
ends 1 'No such file' "$rdmactl" cluster check nowhere
ends 1 'no node z' "$rdmactl" cluster plan one drop z
ends 1 'a cluster needs a node' "$rdmactl" cluster plan one drop a B h3
ends 1 'two nodes a' "$rdmactl" cluster plan one add a=10.0.0.9
ends 1 'the address of node a and of node z' "$rdmactl" cluster plan one add z=10.0.0.1
ends 1 'NAME=ADDRESS gives it one' "$rdmactl" cluster make fe80::1
ends 1 'neither resp=HOST:PORT nor' "$rdmactl" cluster make a,rest=b:1
ends 1 'no host for a port' "$rdmactl" cluster make a=unix:///run/a --resp-port 1
ends 2 'neither add nor drop' "$rdmactl" cluster plan one remove a
ends 2 'no name of a cluster' "$rdmactl" cluster make --name a/b a
ends 2 'an argument is missing' "$rdmactl" cluster plan one
ends 0 '' "$rdmactl" cluster plan one add # the same nodes
ends 2 '--etcd says where' "$rdmactl" cluster show
ends 2 'it is http://HOST:PORT' "$rdmactl" cluster apply one --etcd host:1
ends 3 'no endpoint of 1 has answered' "$rdmactl" cluster show --etcd http://127.0.0.1:1

# The manual's table has the checksum that it says.
sed -n '/^rdmad-cluster 1/,/^\.Ed/p' "$srcdir/man/rdmad-cluster.7" | grep -v '^\.Ed' >manual
ends 0 'epoch' "$rdmactl" cluster check manual
grep -q '^checksum' manual || fail "the manual's table has no checksum"

# Keys that are chosen by chance, with braces in every place.
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
	# It listens for other servers, too, at a port that may be taken.
	for ((try = 0; try < 10; try++)); do
		redis-server --port 0 --unixsocket "$dir/redis" --cluster-enabled yes --cluster-port $((20000 + RANDOM)) --save '' --dir "$dir" >log 2>&1 &
		theirs=$!
		clients+=("$theirs")
		up() { redis-cli -s "$dir/redis" ping >/dev/null 2>&1 || ! kill -0 "$theirs" 2>/dev/null; }
		wait_for "redis-server" up
		kill -0 "$theirs" 2>/dev/null && break
	done
	RANDOM=1
	for ((i = 0; i < 500; i++)); do
		key=
		for ((n = RANDOM % 24; n >= 0; n--)); do
			letters='abcdefgh{}{}01:/' at=$((RANDOM % 16))
			key+=${letters:at:1}
		done
		echo "$key"
	done >keys
	sed 's/.*/cluster keyslot "&"/' keys | redis-cli -s "$dir/redis" >theirs
	xargs "$rdmactl" cluster slot <keys >ours
	diff theirs ours >out || fail "slots differ from redis-server's"
	[[ $(wc -l <ours) == 500 ]] || fail "$(wc -l <ours) slots of 500"
fi
conclude
