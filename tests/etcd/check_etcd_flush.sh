#!/bin/bash
# check_etcd_flush.sh: a delete-all at a node to which slots come waits, by each protocol and without a processor, for the table by
# which it has them, and is carried out when that never comes, as their owner is out. A request for a key there waits for a second.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need etcd etcdctl jq python3
nodes=(t f)
# shellcheck source=tests/etcd/servers_by_etcd.sh
. "$(dirname "$0")/servers_by_etcd.sh"
start_etcd
wait_for "etcd" put_key begin 1

: >"$dir/f.log"
# f is no server: its key is written here, and lives as long as that goes on.
boot=0123456789abcdef0123456789abcdef
beat() { for ((count = 1; ; count++)); do put_key kv/member/f "rdmad-member 1 boot $boot place - count $count epoch 1 period 4000"; sleep 0.5; done; }
beat &
beats=$!
clients+=("$beats")
start 0
wait_for "t as a member" serves 0
"$rdmactl" cluster make --name kv "f=127.0.0.1:${ports[1]}" "${specs[0]}" >"$dir/first" && apply "$dir/first" || fail "the first table"
drains() { "$rdmactl" cluster drain f --name kv "${as[@]}" >"$dir/out" 2>"$dir/err"; }
wait_for "f as a member" drains
epoch=$(show --json | jq .epoch)
tests/etcd/donor "127.0.0.1:${ports[0]}" kv f $boot "$epoch" 1023 >"$dir/donor" 2>"$dir/donor.err" &
clients+=($!)
logged complete "$dir/donor"

for ((i = 0; i < 1000; i++)); do echo "k$i"; done >"$dir/keys"
key=$(xargs "$rdmactl" cluster slot --table "$dir/first" <"$dir/keys" | paste -d' ' "$dir/keys" - | awk '$2 < 1024 {print $1; exit}')
before=$(ticks "${pids[0]}")
python3 - "${ports[2]}" "$dir/t.memcached" "$key" >"$dir/gets" 2>&1 <<-'END' || fail "keys of slots that come: $(cat "$dir/gets")"
	import socket, sys, time
	redis = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
	memcached = socket.socket(socket.AF_UNIX)
	memcached.connect(sys.argv[2])
	clients = ((redis, "GET %s\r\n", b"-CLUSTERDOWN Hash slot is served by node f"), (memcached, "get %s\r\n", b"SERVER_ERROR another server"))
	began = time.monotonic()
	for client, words, _ in clients:
	    client.sendall((words % sys.argv[3]).encode())
	for client, words, wanted in clients:
	    answer = client.recv(100)
	    if not answer.startswith(wanted):
	        sys.exit(f"{words} is answered {answer}")
	print(f"{time.monotonic() - began:.2f}")
END
used=$(($(ticks "${pids[0]}") - before))
echo "gets of a key that comes: answered after $(<"$dir/gets") s, by $used ticks of a processor"
((used < $(getconf CLK_TCK) / 8)) || fail "gets that wait took $used ticks of a processor in a second"

before=$(ticks "${pids[0]}")
python3 - "${ports[2]}" "$dir/t.memcached" >"$dir/flushes" 2>&1 <<-'END' &
	import socket, sys
	redis = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
	memcached = socket.socket(socket.AF_UNIX)
	memcached.connect(sys.argv[2])
	clients = ((redis, b"FLUSHALL\r\n", b"+OK\r\n"), (memcached, b"flush_all\r\n", b"OK\r\n"))
	for client, words, _ in clients:
	    client.sendall(words)
	    client.settimeout(0.5)
	for client, words, _ in clients:
	    try:
	        sys.exit(f"{words} is answered {client.recv(100)}")
	    except TimeoutError:
	        client.settimeout(100)
	print("waits", flush=True)
	for client, words, wanted in clients:
	    answer = client.recv(100)
	    if answer != wanted:
	        sys.exit(f"{words} is answered {answer}")
END
flushes=$!
wait_for "what becomes of the delete-alls" test -s "$dir/flushes"
used=$(($(ticks "${pids[0]}") - before))
((used < $(getconf CLK_TCK) / 2)) || fail "delete-alls that wait took $used ticks of a processor in a second"
kill "$beats"
wait "$flushes" || fail "delete-alls of Redis and memcached: $(cat "$dir/flushes")"
[[ $(of f state) == out ]] || fail "f is $(of f state) when the delete-alls are carried out"
stop_all '^error'
conclude
