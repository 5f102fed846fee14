#!/bin/bash
# check_etcd_servers.sh: three rdmads that agree by a real etcd, which wants a password, and TLS of one of them. Tables are
# applied under load, a node is killed, one is stopped and goes on, etcd is away for a while: what clients read is always
# what was written last, and slots get another server in time.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need etcd etcdctl jq openssl python3
# shellcheck source=tests/etcd/servers_by_etcd.sh
. "$(dirname "$0")/servers_by_etcd.sh"
engine+=" user = \"rdmad\"; password_file = \"$dir/password\";"
as+=(--user rdmad --password-file "$dir/password")
apply_options=(--empty)
tls=127.0.0.1:${ports[11]}

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=etcd -addext subjectAltName=IP:127.0.0.1 -keyout "$dir/tls.key" \
	-out "$dir/tls.pem" 2>"$dir/err" || give_up "no certificate: $(cat "$dir/err")"
# A token is good for two seconds in which nobody shows it.
etcd_options=(--listen-client-urls "$url,https://$tls" --cert-file "$dir/tls.pem" --key-file "$dir/tls.key"
	--auth-token-ttl 2)

# As rdmad-cluster(7) has it. Where there is no stunnel, all go without TLS. One has an address where nobody is, too.
urls[2]="http://127.0.0.1:1\", \"$url"
if command -v stunnel >/dev/null; then
	urls[1]=http://127.0.0.1:${ports[12]}
	cat >"$dir/stunnel.conf" <<-CONF
		foreground = yes
		pid =
		[etcd]
		client = yes
		accept = 127.0.0.1:${ports[12]}
		connect = $tls
		CAfile = $dir/tls.pem
		verifyChain = yes
		checkIP = 127.0.0.1
	CONF
	stunnel "$dir/stunnel.conf" >"$dir/stunnel.log" 2>&1 &
	clients+=("$!")
fi

epoch() { show --json | jq -r .epoch; }
# all_serve EPOCH: every node serves by that table, or a later one.
all_serve() { show --json | jq -e --argjson epoch "$1" 'all(.nodes[]; .state == "member" and .epoch >= $epoch and .waits_for == 0)' >/dev/null; }

# The user of etcd and its rights are made as rdmad-cluster(7) has it.
admin() { ETCDCTL_API=3 etcdctl --endpoints "$url" "$@" >>"$dir/etcdctl.log" 2>&1; }
(umask 077 && echo secret >"$dir/password")
start_etcd
wait_for "etcd" admin endpoint health
{ admin user add root:other && admin user grant-role root root && admin user add rdmad:secret && admin role add rdmad &&
	admin role grant-permission rdmad --prefix=true readwrite /rdmad/kv/ && admin user grant-role rdmad rdmad; } ||
	{ cat "$dir/etcdctl.log" >&2; give_up "no users of etcd"; }
for i in 0 1 2; do start $i; done
for i in 0 1 2; do wait_for "${nodes[i]} as a member" serves $i; done
# From here on it wants the password.
admin auth enable || give_up "no users of etcd: $(cat "$dir/etcdctl.log")"
refuses() { ends 3 "$1" "$rdmactl" cluster show --etcd "$url" "${@:2}"; }
refuses "status 400: etcdserver: user name is empty" --name kv
echo wrong >"$dir/wrong"
refuses "status 400: etcdserver: authentication failed, invalid user ID or password" --name kv --user rdmad --password-file "$dir/wrong"
refuses "status 403: etcdserver: permission denied" --name other --user rdmad --password-file "$dir/password"
ends 2 "TLS is not spoken here: have stunnel speak it" "$rdmactl" cluster show --etcd "https://$tls"
"$rdmactl" cluster show --name kv "${as[@]}" >"$dir/out" 2>"$dir/err"
[[ $? == 4 ]] && grep -q 'has no table of cluster kv' "$dir/err" || fail "show without a table"

"$rdmactl" cluster make --name kv "${specs[@]}" >"$dir/first"
apply "$dir/first" || fail "apply of the first table"
wait_for "the first table" all_serve 1

mkfifo "$dir/stop"
python3 "$srcdir/tests/etcd/load.py" "${ports[@]:3:3}" <"$dir/stop" >"$dir/load" 2>&1 &
load=$!
clients+=("$load")
exec 8<>"$dir/stop"
tests/cluster/history "cluster:127.0.0.1:${ports[0]},127.0.0.1:${ports[1]}" 600 4 12 2000 >"$dir/history" 2>"$dir/history.log" &
history=$!
clients+=("$history")

# An operator who is too late is told, and what is there is shown.
apply "$dir/first"
[[ $? == 1 ]] && grep -q 'have changed the table' "$dir/err" && grep -q 'epoch *1' "$dir/out" || fail "apply of an old table"

# Tables under load.
change drop c
wait_for "a table without slots of c" all_serve 2
[[ $(of c slots) == 0 ]] || fail "c has slots"
change add # the same nodes, of which c has none
wait_for "a table with slots of c again" all_serve 3
[[ $(of c slots) -gt 5000 ]] || fail "c has $(of c slots) slots"

# A node that dies: its slots go to the others.
spread() { [[ $(of "$1" slots) == 0 && $(of "$1" state) == out ]]; }
kill -KILL "${pids[2]}"
wait "${pids[2]}" 2>/dev/null
wait_for "c out, and its slots elsewhere" spread c
"$rdmactl" --control "$dir/a.sock" --json doctor --config "$dir/a.conf" >"$dir/out" 2>"$dir/err"
json '[.findings[] | select(.id == "RD-3207" and (.command | contains("cluster show --name kv")))] | length == 1' "doctor, with a node that is out"
start 2
wait_for "c again" serves 2

# The same node a second time, by its state: no.
cp "$dir/c.conf" "$dir/twice.conf"
sed -i -e 's/control = .*/control = { socket = "'"${dir//\//\\/}"'\/twice.sock"; };/' -e 's/^listen = .*/listen = ["tcp:\/\/127.0.0.1:0"];/' \
	-e '/^unix_socket/d' -e '/^resp/d' -e '/^memcached/d' "$dir/twice.conf"
"$rdmad" -c "$dir/twice.conf" >"$dir/twice.log" 2>&1 && fail "a node ran twice"
grep -q 'another rdmad is this node' "$dir/twice.log" || { cat "$dir/twice.log"; fail "a node twice"; }

# One that stands still, and goes on when its slots are others'.
kill -STOP "${pids[1]}"
wait_for "b out, and its slots elsewhere" spread b
kill -CONT "${pids[1]}"
wait_for "b again" serves 1
logged "invalid auth token" "$dir/b.log" # which was asked for again
change add
wait_for "slots of all" all_serve "$(epoch)"

# Without etcd nobody serves, and all go on when it is back.
kill -STOP "$etcd"
closed() { [[ $(says "$1" serves_ms) == 0 ]]; }
for i in 0 1 2; do wait_for "the end of ${nodes[i]}'s time" closed $i; done
# No list of keys is taken for all that there are.
for words in "keys key1" "scan 0" randomkey "cluster countkeysinslot 0"; do
	# shellcheck disable=SC2086 # a word each
	ends 0 TRYAGAIN redis-cli -p "${ports[3]}" --no-raw $words
done
ends 1 'another server of its cluster' "$rdmactl" -H "127.0.0.1:${ports[0]}" kv list
kill -KILL "$etcd"
wait "$etcd" 2>/dev/null
start_etcd
open() { [[ $(says "$1" serves_ms) -gt 0 ]]; }
for i in 0 1 2; do wait_for "${nodes[i]} serving again" open $i; done
wait_for "slots of all" all_serve "$(epoch)"

# One that ends says so.
kill -TERM "${pids[0]}"
wait "${pids[0]}" || fail "the end of a"
[[ $(of a state) == out ]] || fail "a is $(of a state) when it has ended"

echo >&8
wait "$load" || { fail "the load"; cat "$dir/load" >&2; }
grep -E '^sets [1-9][0-9]* hits [1-9][0-9]* refused [1-9]' "$dir/load" || fail "no load: $(cat "$dir/load")"

kill -TERM "$history"
wait "$history" || { cat "$dir/history.log" >&2; fail "native clients saw what they must not see"; }
cat "$dir/history"

unset 'pids[0]'
stop_all '^error'
# It was started twice; and says of an address once that nobody is there, until another one answers.
said=$(grep -c "http://127.0.0.1:1: it cannot be reached" "$dir/c.log")
((said > 0 && said <= 2 + $(grep -c "engine: $url answers" "$dir/c.log"))) || fail "a fault is said $said times"
conclude
