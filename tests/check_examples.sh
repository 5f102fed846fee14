#!/bin/bash
# Each C program in README.md and in section 3 of the manual compiles without a warning, links, and succeeds at an rdmad from
# the build tree, but those of rdma_lib, which check_peer_programs.sh has. So do the programs of examples/, over each transport that a channel has.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
need jq
: "${rdmarun:=$builddir/rdmarun}"

# Programs of a page, as NAME.1.c, NAME.2.c ... in the temporary directory: what stands between two marks and has a main().
programs() {
	local name
	name=$(basename "$1")
	awk -v begin="$2" -v end="$3" -v place="$dir/$name" '
		$0 ~ begin { inside = 1; text = ""; next }
		inside && $0 ~ end { if (text ~ /int main\(/ && text !~ /rdma_lib\.h/) printf "%s", text >(place "." ++n ".c"); inside = 0; next }
		inside { gsub(/\\e/, "\\"); text = text $0 "\n" }' "$1"
}

# make_program NAME SOURCE...: in the temporary directory.
# shellcheck disable=SC2086 # words
make_program() {
	local name=$1 source objects=() library=librdmad
	shift
	! grep -q '"rdma_lib\.h"' "$@" || library=librdma_lib
	for source; do
		objects+=("$dir/$name.$(basename "$source" .c).o")
		$compile $flags -std=c99 -pedantic -Wall -Wextra -Werror -I"$srcdir/src/include" -I"$srcdir/examples" -c "$source" \
			-o "${objects[-1]}" >"$dir/out" 2>"$dir/err" || { fail "$name does not compile"; return 1; }
	done
	"$builddir/libtool" --quiet --mode=link $compile $flags -pthread "${objects[@]}" "$builddir/$library.la" -lm \
		-o "$dir/$name" >"$dir/out" 2>"$dir/err" || { fail "$name does not link"; return 1; }
}

try() {
	local program=${1%.c} name
	name=$(basename "$program")
	make_program "$name" "$1" || return
	if grep -q rdma_group_run "$1"; then
		timeout 240 "$rdmarun" -n 3 "$program" >"$dir/out" 2>"$dir/err" </dev/null
	else
		timeout 240 "$program" "$server" >"$dir/out" 2>"$dir/err"
	fi || { fail "$name: exit status $?"; return; }
	[[ -s $dir/out ]] || fail "$name says nothing"
	echo "$name: $(head -n 1 "$dir/out")"
}

[[ -e $builddir/libtool ]] || { echo "check_examples: the library was not built here"; exit 77; }
compile=$(sed -n 's/^CC = //p' "$builddir/Makefile")
flags=$(sed -n 's/^SANITIZER_CFLAGS = //p' "$builddir/Makefile")
programs "$srcdir/README.md" '^```c$' '^```$'
for page in "$srcdir"/man/*.3; do
	programs "$page" '^\.Bd -literal' '^\.Ed'
done
for page in README.md rdmad_kv.3 rdmad_kv_part.3 rdmad_kv_queue.3 rdmad_kv_watch.3 rdmad_ping.3 rdmad_gpu.3; do
	[[ -e $dir/$page.1.c ]] || fail "$page has no program"
done
configure "gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; memory = \"32M\"; };"
start_daemon
server=unix://$dir/rdmad.sock
for source in "$dir"/*.c; do
	try "$source"
done
server=''
stop_daemon

# --- examples/: a server and its clients over one channel

has_begun() { grep -q '^listening on ' "$dir/$1.out" || ended "$example"; }

# listen_on URL SERVER: it is $example, and listens on $server.
listen_on() {
	rm -f "$dir/$2.out" # of one before
	"$dir/$2" "$1" >"$dir/$2.out" 2>"$dir/$2.err" &
	example=$!
	clients=("$example")
	wait_for "the start of $2 at $1" has_begun "$2"
	server=$(sed -n 's/^listening on //p' "$dir/$2.out")
	[[ $server ]] || { fail "$2 does not listen on $1: $(cat "$dir/$2.err")"; return 1; }
}

try_message() {
	listen_on "$1" message_server || return
	ends 0 'got "hello, client"' "$dir/message_client" "$server"
	wait "$example" || fail "message_server: exit status $?"
	clients=()
	grep -qxF 'got "hello, server: 3"' "$dir/message_server.out" || fail "message_server did not get the third message"
}

# Three clients at once, beside some that send what is no call.
try_remote() {
	local n client started=() bad
	listen_on "$1" remote_server || return
	for n in 1 2 3; do
		timeout 240 "$dir/remote_client" "$server" >"$dir/client.$n" 2>&1 &
		started+=($!)
	done
	for bad in number none count string kind cut; do
		ends 0 "$bad: " "$dir/wrong" "$server" "$bad"
	done
	for client in "${started[@]}"; do
		wait "$client" || fail "remote_client: exit status $?: $(tail -n 2 "$dir"/client.*)"
	done
	sed -n 's/^one call/'"${server%%:*}"': one call/p' "$dir/client.1"
	kill -TERM "$example"
	wait "$example" || { cat "$dir/remote_server.err"; fail "remote_server: exit status $?"; }
	clients=()
	[[ $(grep -c 'a client is cut off' "$dir/remote_server.err") == 5 ]] || fail "remote_server: $(cat "$dir/remote_server.err")"
}

# A client that sends one wrong call, and is cut off for it. "cut" ends in the midst of a call.
cat >"$dir/wrong.c" <<'END'
#include "remote.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *bytes;
	size_t count;
	int ends; /* so it is told */
} calls[] = {
	{"number", "\377\377\377\177", 4, 1},
	{"none", "\0\0\0", 4, 1},
	{"count", "\011\0\0\0\100\0\0\0\0\0\0\0", 12, 1},
	{"string", "\011\0\0\0\4\0\0\0\0\0\0\0e\0ho", 16, 1},
	{"kind", "\6\0\0\0" "01234567" "01234567" "01234567" "01234567" "\5\0\0\0", 40, 1},
	{"cut", "\011\0\0\0\4\0\0", 7, 0},
};

int main(int argc, char **argv)
{
	struct rdmad_channel *channel;
	char byte;
	int rc = 0;

	if (argc < 3 || rdmad_channel_open(argv[1], REMOTE_CAPACITY, NULL, &channel) != 0)
		return fprintf(stderr, "%s\n", rdmad_error()), 1;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (strcmp(calls[i].name, argv[2]) != 0)
			continue;
		rc = rdmad_channel_put(channel, calls[i].bytes, calls[i].count, 1000000);
		if (rc == 0 && calls[i].ends)
			rc = rdmad_channel_get(channel, &byte, 1, 60000000) == -EPIPE ? 0 : 1;
	}
	printf("%s: %s\n", argv[2], rdmad_error());
	rdmad_channel_close(channel);
	return rc != 0;
}
END

make_program message_server "$srcdir/examples/message_server.c"
make_program message_client "$srcdir/examples/message_client.c"
make_program remote_server "$srcdir/examples/remote_server.c" "$srcdir/examples/remote.c"
make_program remote_client "$srcdir/examples/remote_client.c" "$srcdir/examples/remote_api.c" "$srcdir/examples/remote.c"
make_program wrong "$dir/wrong.c"
for url in "shm://examples-$$" "unix://$dir/channel.sock" tcp://127.0.0.1:0/examples \
	${RDMAD_GUEST_ADDR:+"rdma://$RDMAD_GUEST_ADDR:0/examples"}; do
	try_message "$url"
	try_remote "$url"
done
# A client that is started together with its server waits for it.
timeout 240 "$dir/remote_client" "shm://late-$$" >"$dir/client.late" 2>&1 &
late=$!
sleep 0.5 # it has found nobody
ended $late && fail "remote_client does not wait for its server: $(cat "$dir/client.late")"
listen_on "shm://late-$$" remote_server && wait $late || fail "remote_client, before its server: $(tail -n 2 "$dir/client.late")"
kill -TERM "$example"
wait "$example"
clients=()
# By way of an rdmad, whose end the server sees.
start_daemon
for server in "${servers[@]}"; do [[ $server != tcp:* ]] || break; done
listen_on "meet://${server#tcp://}/examples" remote_server && {
	ends 0 '' "$dir/remote_client" "$server"
	stop_daemon
	wait_for "the end of remote_server" ended "$example"
	wait "$example"
	[[ $? == 1 ]] || fail "remote_server goes on without the rdmad by which clients find it"
	clients=()
}
server=''

# --- programs that talk as equals

make_program peer_server "$srcdir/examples/peer_server.c"
make_program peer_client "$srcdir/examples/peer_client.c"
make_program ring_allreduce "$srcdir/examples/ring_allreduce.c"
make_program halo "$srcdir/examples/halo.c"
port_is_told() { grep -q '^listening on port ' "$dir/peers.out" || ended "$example"; }
"$dir/peer_server" tcp://127.0.0.1 0 2 >"$dir/peers.out" 2>"$dir/peers.err" &
example=$!
clients=("$example")
wait_for "the start of peer_server" port_is_told
port=$(sed -n 's/^listening on port //p' "$dir/peers.out")
for n in 0 1; do
	ends 0 "got \"Hello RDMA! to you, client $n\"" "$dir/peer_client" 127.0.0.1 "$port"
done
wait "$example" || fail "peer_server: exit status $?: $(cat "$dir/peers.err")"
clients=()
[[ $(grep -c '^client [01], by shm: "Hello RDMA!"$' "$dir/peers.out") == 2 ]] || fail "peer_server: $(cat "$dir/peers.out")"
for n in 1 2 3 4; do
	ends 0 "rank $((n - 1)) of $n: the first sum is" "$rdmarun" -n "$n" "$dir/ring_allreduce"
	[[ $(grep -c ', 0 of 100003 are wrong$' "$dir/out") == "$n" ]] || fail "sums of $n ranks"
	ends 0 ' 60 steps: 0 cells are wrong' "$rdmarun" -n "$n" "$dir/halo"
done
# By a remote shell, which is none.
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >"$dir/shell"
chmod +x "$dir/shell"
ends 0 'rank 2 of 3: the first sum is' "$rdmarun" --rsh "$dir/shell" --address 127.0.0.1 -H here:2,there "$dir/ring_allreduce"

# --- rdmactl peer, and its benchmark

printf 'some bytes' >"$dir/bytes"
head -c 3000000 /dev/urandom >"$dir/many"
# Input that comes late, and a reader that is slow, by more than two heartbeats; looked at in the end.
"$rdmactl" peer recv --listen "unix://$dir/late.sock" 2>"$dir/late.err" >"$dir/late" &
late=$!
wait_for "a peer recv" grep -qs listening "$dir/late.err"
{ printf 'some '; sleep 12; printf 'bytes'; } | timeout 240 "$rdmactl" -q peer send --connect "unix://$dir/late.sock" -s 5 2>"$dir/late.sent" &
late_send=$!
"$rdmactl" peer send --file "$dir/many" --listen "unix://$dir/slow.sock" 2>"$dir/slow.err" &
slow=$!
wait_for "a peer send" grep -qs listening "$dir/slow.err"
timeout 240 "$rdmactl" -q peer recv --connect "unix://$dir/slow.sock" 2>"$dir/slow.received" | { sleep 12; cat; } >"$dir/slow" &
slow_reader=$!
# peer_listens ARGUMENT...: rdmactl listens, at $port.
peer_listens() {
	rm -f "$dir/peers.err"
	timeout 240 "$rdmactl" "$@" --listen tcp://127.0.0.1:0 >"$dir/peers.out" 2>"$dir/peers.err" &
	example=$!
	clients=("$example")
	wait_for "a port of $*" grep -qs 'listening on port ' "$dir/peers.err"
	port=$(sed -n 's/.*listening on port //p' "$dir/peers.err")
}
peer_ended() {
	wait "$example" || fail "$*: exit status $?: $(cat "$dir/peers.err")"
	clients=()
}
for bytes in "$dir/bytes" "$dir/many" /dev/null; do
	peer_listens peer recv
	ends 0 '' "$rdmactl" peer send --connect "tcp://127.0.0.1:$port" --file "$bytes" -s 700K
	peer_ended peer recv
	cmp -s "$bytes" "$dir/peers.out" || fail "what came by peer send is not what was sent"
done
peer_listens peer send --file "$dir/many"
ends 0 '"bytes":3000000' "$rdmactl" peer recv --connect "tcp://127.0.0.1:$port" --file "$dir/came" --json
peer_ended peer send
cmp -s "$dir/many" "$dir/came" || fail "what came to a file is not what was sent"
peer_listens peer broadcast --peers 3 --file "$dir/many"
for n in 1 2 3; do
	timeout 240 "$rdmactl" -q peer recv --connect "tcp://127.0.0.1:$port" >"$dir/came.$n" 2>"$dir/err" &
	clients+=($!)
done
started=("${clients[@]:1}")
peer_ended peer broadcast
for n in 1 2 3; do
	wait "${started[n - 1]}" || fail "peer recv of a broadcast: exit status $?"
	cmp -s "$dir/many" "$dir/came.$n" || fail "what came by peer broadcast is not what was sent"
done
peer_listens peer alltoall --peers 1 'the one'
ends 0 'the one; the other;' "$rdmactl" -q peer alltoall --connect "tcp://127.0.0.1:$port" 'the other'
peer_ended peer alltoall
grep -qxF 'the one; the other;' "$dir/peers.out" || fail "peer alltoall: $(cat "$dir/peers.out")"
wait "$late_send" && wait "$late" || fail "peer send of input that is late: $(cat "$dir/late.sent" "$dir/late.err")"
cmp -s "$dir/late" "$dir/bytes" || fail "what came late is not what was sent"
wait "$slow" && wait "$slow_reader" || fail "peer recv by a slow reader: $(cat "$dir/slow.err" "$dir/slow.received")"
cmp -s "$dir/slow" "$dir/many" || fail "what a slow reader has is not what was sent"
timeout 60 "$rdmactl" peer send --connect tcp://127.0.0.1:1 <&- >"$dir/out" 2>&1 && fail "peer send without standard input"
peer_listens peer alltoall --peers 2 'the one'
"$rdmactl" -q peer alltoall --connect "tcp://127.0.0.1:$port" 'the lost' >"$dir/out" 2>"$dir/err" &
lost=$!
clients+=("$lost")
wait_for "a peer" grep -qs transport "$dir/peers.err"
sleep 0.2
kill -KILL "$lost"
{ wait "$lost"; } 2>/dev/null
sleep 0.2
ends 3 '' "$rdmactl" peer alltoall --connect "tcp://127.0.0.1:$port" 'the other'
wait "$example"
[[ $? == 3 ]] || fail "peer alltoall without one who has gone: $(cat "$dir/peers.out")"
clients=()
peer_listens peer recv --file /dev/full
ends 3 '' "$rdmactl" peer send --connect "tcp://127.0.0.1:$port" --file "$dir/many"
wait "$example"
[[ $? == 1 ]] || fail "peer recv into what is full: exit status $?"
! grep -qF 'kv stat' "$dir/peers.err" || fail "a file that is full is no store: $(cat "$dir/peers.err")"
clients=()
ends 2 'either --listen or --connect' "$rdmactl" peer recv
ends 2 'there is no "nothing"' "$rdmactl" bench peer --work latency,nothing
ends 3 'Failed to connect' "$rdmactl" peer send --connect tcp://127.0.0.1:1
ends 3 'Failed to connect' "$rdmactl" peer send --connect "unix://$dir/nobody.sock"
ends 1 'Failed to listen' "$rdmactl" peer recv --listen "unix://$dir/nowhere/peer.sock"
timeout 240 "$rdmactl" bench peer --json -n 3 -s 8,5000 -D 1ms >"$dir/out" 2>"$dir/err" </dev/null || fail "bench peer: exit status $?"
json '.ranks == 3 and .transport == "shm" and (.results | length == 29) and all(.results[]; .time_us > 0)'
timeout 240 "$rdmarun" -n 3 "$rdmactl" bench peer --json -s 8 -D 1ms >"$dir/out" 2>"$dir/err" </dev/null || fail "ranks of bench peer: exit status $?"
json '.ranks == 3 and ([.results[].op] | index("latency") and index("alltoall") and (index("exchange") | not))'
conclude
