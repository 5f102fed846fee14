#!/bin/bash
# rdma_lib on networks of their own: two hosts that both have some of their addresses, addresses that lead nowhere, strangers, hosts with IPv6
# alone, and the ranks of one machine, which need no network.
# shellcheck source=tests/lib.sh disable=SC2016 # what others expand
. "$(dirname "$0")/../lib.sh"
need ip ss unshare nsenter python3
: "${rdmarun:=$builddir/rdmarun}"
export dir

# This script is the first host from here on, and has the second one's namespace.
if [[ ! ${NETWORK_ALONE-} ]]; then
	unshare -rnm true 2>/dev/null || { echo "$test_name: no namespaces here"; exit 77; }
	rm -rf "$dir"
	NETWORK_ALONE=1 exec unshare -rnm bash "$0"
fi
mount -t sysfs sysfs /sys 2>/dev/null || echo "$test_name: no sysfs of its own: bridges are not known as such"
unshare -n sleep 1000 &
clients=("$!")
other=$!
at_other() { nsenter -t "$other" -n "$@"; }
own_network() { [[ $(readlink "/proc/$other/ns/net") != $(readlink /proc/self/ns/net) ]]; }
wait_for "a second namespace" own_network

# make_host COMMAND...: both have a card and bridges with the same addresses, before the cable between them.
make_host() {
	local i
	"$@" ip link set lo up
	"$@" ip link add twin type veth peer name twin-end && "$@" ip addr add 10.99.0.1/24 dev twin && "$@" ip link set twin-end up &&
		"$@" ip link set twin up || return 1
	for i in 1 2 3 4 5; do
		"$@" ip link add "br$i" type bridge && "$@" ip addr add "172.$i.0.1/16" dev "br$i" && "$@" ip link set "br$i" up || return 1
	done
}
{ make_host && make_host at_other && ip link add card type veth peer name card netns "$other" &&
	ip addr add 10.1.0.1/24 dev card && ip link set card up &&
	at_other ip addr add 10.1.0.2/24 dev card && at_other ip link set card up; } 2>"$dir/err" || {
	echo "$test_name: no such interfaces here: $(cat "$dir/err")"
	exit 77
}

# --- the program
compile=$(sed -n 's/^CC = //p' "$builddir/Makefile")
sanitizers=$(sed -n 's/^SANITIZER_CFLAGS = //p' "$builddir/Makefile")
cat >"$dir/member.c" <<'END'
/* member MEETING NAME SIZE RANK PORT: of a group, which is found at the rdmad. Says how many seconds that took. */
#include <rdma_lib.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	rdma_options options = {.connect_timeout_ms = 120000};
	rdma_context *ctx = argc == 6 ? rdma_init_options(NULL, atoi(argv[5]), true, &options) : NULL;
	time_t begin = time(NULL);
	rdma_group *group = ctx ? rdma_group_meet(ctx, argv[1], argv[2], atoi(argv[3]), atoi(argv[4])) : NULL;

	if (!group || rdma_barrier(group) < 0) {
		fprintf(stderr, "%s\n", rdma_get_error());
		return 1;
	}
	printf("%ld\n", (long)(time(NULL) - begin));
	rdma_group_free(group);
	rdma_cleanup(ctx);
	return 0;
}
END
# shellcheck disable=SC2086 # words
$compile $sanitizers -I"$srcdir/src/include" "$dir/member.c" -o "$dir/member" -L"$builddir/.libs" -lrdma_lib -Wl,-rpath,"$builddir/.libs" \
	-Wl,-rpath-link,"$builddir/.libs" >"$dir/out" 2>"$dir/err" || { fail "the program does not compile"; conclude; }
export LD_LIBRARY_PATH="$builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# meet NAME MOST MEETING OTHERS_MEETING: rank 1 here, rank 0 at the other host, which connects; no more than MOST seconds.
meet() {
	local name=$1 most=$2 took
	timeout 240 "$dir/member" "$3" "$name" 2 1 7000 >"$dir/took" 2>"$dir/here" &
	clients[1]=$!
	at_other timeout 240 "$dir/member" "$4" "$name" 2 0 7000 >"$dir/out" 2>"$dir/err" || fail "$name: rank 0: exit status $?"
	wait "${clients[1]}" || fail "$name: rank 1: $(cat "$dir/here")"
	took=$(cat "$dir/out")
	((${took:-1000} <= most)) || fail "$name: the group was there after $took s"
}

# told NAME MEETING [PORT]: by which addresses rank 1 says that it is reached.
told() {
	timeout 240 "$dir/member" "$2" "$1" 2 1 "${3-7000}" >"$dir/took" 2>"$dir/here" &
	clients[1]=$!
	says_addresses() { ctl peer groups >/dev/null; grep -q 'tcp\|:70[0-9][0-9]' "$dir/out"; }
	wait_for "the member" says_addresses
	addresses=$(grep -oE '[^ ]*:70[0-9][0-9]' "$dir/out" | xargs)
	kill "${clients[1]}"
	wait "${clients[1]}" 2>/dev/null
}

# --- addresses that both hosts have
listen=(tcp://10.1.0.1:7471 tcp://127.0.0.1:7471 'tcp://[::1]:7471')
configure
start_daemon
server=127.0.0.1:7471
# By the card it came, so that is first, and bridges are last.
told far 10.1.0.1:7471
[[ $addresses == 10.1.0.1:7000\ 10.99.0.1:7000\ * ]] || fail "not the address by which it came first: $addresses"
if [[ -d /sys/class/net/br1/bridge ]]; then
	told near 127.0.0.1:7471
	[[ $addresses == 10.99.0.1:7000\ 10.1.0.1:7000\ * && $addresses == *\ 172.5.0.1:7000 ]] || fail "bridges are not last: $addresses"
fi
[[ $addresses != *127.0.0.1:7000* && $addresses != *::1* ]] || fail "the loopback is told"
# Another program has the port in the other family: of the ports that the system chooses for a listener. A program that
# connects gets the even ones.
range=$(cat /proc/sys/net/ipv4/ip_local_port_range)
if ip addr add fd78::1/64 dev card nodad && echo 7020 7099 2>/dev/null >/proc/sys/net/ipv4/ip_local_port_range; then
	: >"$dir/ports"
	timeout 240 python3 -c 'import socket, sys, time
ends = [socket.create_server(("::", port), family=socket.AF_INET6) for port in range(7021, 7100, 2)]
print(len(ends), flush=True)
time.sleep(240)' >"$dir/ports" &
	clients[2]=$!
	wait_for "40 ports" grep -q 40 "$dir/ports"
	told one 127.0.0.1:7471 0
	[[ $addresses == *10.1.0.1:70* && $addresses != *fd78* ]] || fail "an address at which another program listens: $addresses"
	kill "${clients[2]}"
	wait "${clients[2]}" 2>/dev/null
	clients=("$other")
	echo "$range" >/proc/sys/net/ipv4/ip_local_port_range
fi
ip addr del fd78::1/64 dev card
# The other one connects to the twin's address, and comes to itself.
meet twins 5 127.0.0.1:7471 10.1.0.1:7471

# Addresses that swallow what is sent to them, before the card: two seconds for each.
for i in 1 2 3; do
	ip addr add "10.98.0.$i/32" dev twin
done
at_other ip link add hole type veth peer name hole-end
at_other ip link set hole-end up
at_other ip link set hole up arp off
at_other ip route add 10.98.0.0/24 dev hole
meet holes 20 127.0.0.1:7471 10.1.0.1:7471
stop_daemon

# --- strangers at the meeting point of a run, which has a key
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >"$dir/shell"
cat >"$dir/hunted" <<'END'
#!/bin/sh
[ "$RDMA_RANK" = 1 ] || echo "$RDMA_MEETING" >"$dir/meeting"
until [ -e "$dir/hunters" ]; do sleep 0.05; done
exec "$@"
END
chmod +x "$dir/shell" "$dir/hunted"
timeout 240 "$rdmarun" --rdmad "$rdmad" --rsh "$dir/shell" --address 10.1.0.1 -H a,b --env LD_LIBRARY_PATH --env dir \
	"$dir/hunted" "$rdmactl" bench peer -s 8 -D 1ms >"$dir/out" 2>"$dir/err" </dev/null &
clients[1]=$!
wait_for "the meeting point" test -s "$dir/meeting"
at_other "$srcdir/scripts/hostile" groups "$(sed 's,.*//,,' "$dir/meeting")" -c 300 -t 200 >"$dir/hostile" 2>&1 &
clients[2]=$!
stranger() { at_other timeout 60 "$rdmactl" -H "$(sed 's,.*//,,' "$dir/meeting")" "$@" peer groups 2>"$dir/err"; }
stranger && fail "a stranger is told of groups"
complains "asks for a key"
(umask 077 && "$rdmactl" --quiet key new run >"$dir/stranger.key")
stranger --key "$dir/stranger.key" && fail "a stranger with a key of its own is told of groups"
complains "the server does not have key"
: >"$dir/hunters"
wait "${clients[1]}" || fail "strangers keep ranks out: exit status $?"
kill -TERM "${clients[2]}"
wait "${clients[2]}" 2>/dev/null
clients=("$other")

# --- IPv6 alone
for host in '' at_other; do
	for device in lo twin card br1 br2 br3 br4 br5; do
		$host ip -4 addr flush dev "$device"
	done
done
ip addr add fd77::1/64 dev card nodad
at_other ip addr add fd77::2/64 dev card nodad
listen=('tcp://[fd77::1]:7471')
configure
start_daemon
meet six 20 '[fd77::1]:7471' '[fd77::1]:7471'
stop_daemon
ends 0 '2 ranks, ' timeout 120 "$rdmarun" --rdmad "$rdmad" --rsh "$dir/shell" --address fd77::1 -H a,b --env LD_LIBRARY_PATH \
	"$rdmactl" bench peer -s 8 -D 1ms

# --- no network at all
ip link set card down
ip link set lo down
ends 0 '3 ranks, shm' timeout 120 "$rdmarun" --rdmad "$rdmad" -n 3 "$rdmactl" bench peer -s 8 -D 1ms
conclude
