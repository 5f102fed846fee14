#!/bin/bash
# check_etcd_keys.sh: slots move with their values to an rdmad that asks for keys: without a key, with one that is not known there, and
# with one that lacks a right the donor says what to do next, and the step goes on when that was done, without a restart.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need etcd jq python3
export HOME=$dir RDMAD_KEY_FILE=''
umask 077

mapfile -t ports < <(free_ports 6)
url=http://127.0.0.1:${ports[4]}
etcd --data-dir "$dir/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
	--listen-peer-urls "http://127.0.0.1:${ports[5]}" >>"$dir/etcd.log" 2>&1 &
clients+=("$!")
pids=()

# settings NODE NUMBER [LINE [WORD]]: a line more, and words more of the cluster.
settings() {
	cat >"$dir/$1.conf" <<-CONF
		listen = ["tcp://127.0.0.1:${ports[$2]}"];
		unix_socket = "$dir/$1.rdmad";
		control = { socket = "$dir/$1.sock"; };
		services = ["kv", "resp"];
		kv = { memory = "64M"; };
		resp = { listen = ["127.0.0.1:${ports[$2 + 2]}"]; };
		${3-}
		cluster = { engine = "etcd"; endpoints = ["$url"]; name = "kv"; node = "$1"; period = "4s"; ${4-} };
	CONF
}
start() {
	"$rdmad" -c "$dir/$1.conf" >>"$dir/$1.log" 2>&1 &
	clients+=("$!")
	pids+=("$!")
	wait_for "$1 as a member" eval "[[ \$(says $1 state) == beating ]]"
}
# says NODE MEMBER: what a server says of its engine.
says() { "$rdmactl" --control "$dir/$1.sock" status --json 2>/dev/null | jq -r ".engine.$2"; }
reload() { "$rdmactl" --control "$dir/$1.sock" reload >"$dir/out" 2>"$dir/err" || fail "the reload of $1"; }
# reason TEXT: why a's slots do not go, which is in its log, too.
has_reason() { [[ $(says a move_reason) == *"$1"* ]]; }
reason() {
	wait_for "the reason \"$1\"" has_reason "$1" || says a move_reason
	logged "$1" "$dir/a.log"
}
# rights WORD...: of the client node at b.
rights() {
	printf '%s\n' "@$(id -u) ping kv resp read= write=" "node $*" >"$dir/clients"
	reload b
}

"$rdmactl" --quiet key new node --into "$dir/keys" >"$dir/node.key" && "$rdmactl" --quiet key new stranger >"$dir/a.key" || give_up "no keys"
echo "@$(id -u) ping kv resp read= write=" >"$dir/clients"
settings a 0
settings b 1 "auth = { keys = \"$dir/keys\"; clients = \"$dir/clients\"; };"
start a
start b
"$rdmactl" cluster make --name kv "a=127.0.0.1:${ports[0]},resp=127.0.0.1:${ports[2]}" >"$dir/first"
ends 0 "" "$rdmactl" cluster apply "$dir/first" --etcd "$url"
wait_for "the first table" eval '[[ $(says a epoch) == 1 ]]'
python3 "$srcdir/tests/etcd/moved.py" fill "${ports[@]:2:2}" || give_up "no keys"
"$rdmactl" cluster plan "$dir/first" add "b=127.0.0.1:${ports[1]},resp=127.0.0.1:${ports[3]}" >"$dir/next" 2>"$dir/err"
ends 0 "" "$rdmactl" cluster apply "$dir/next" --etcd "$url"

reason "@$(id -u) has no right to move slots there: give its line in auth.clients the word move, and rdmactl reload"
settings a 0 "" "key_file = \"$dir/a.key\";"
reload a
grep -q 'cluster.key_file' "$dir/out" || fail "a reload does not take cluster.key_file"
reason "the server does not have key"
# The command that it names is to be typed.
next=$(says a move_reason)
next=${next##*; rdmactl }
# shellcheck disable=SC2086 # words
ends 1 "the server does not have key" "$rdmactl" $next
rights kv write=
cp "$dir/node.key" "$dir/a.key"
reason "node has no right to move slots there"
rights kv write=none/ move
reason "a key was not taken: its client has no right to it there: give its line in auth.clients the word write="
rights kv write= move
moved() { [[ $(says a wished_slots) == 0 ]]; }
wait_for "the slots of b" moved
[[ $(says a moved_slots) == 8192 && -z $(says a move_reason) ]] || fail "slots moved: $(says a moved_slots), $(says a move_reason)"
python3 "$srcdir/tests/etcd/moved.py" check "${ports[@]:2:2}" || fail "the keys behind the move"
kill -TERM "${pids[@]}"
wait "${pids[@]}" || fail "the end of a node"
for node in a b; do grep -E '^error|ERROR|Sanitizer' "$dir/$node.log" && fail "$node's log"; done
conclude
