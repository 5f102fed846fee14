#!/bin/bash
# rdmactl doctor towards a host whose network is broken in turn: namespaces with a cable and a switch between them. Each fault has the
# finding that names it and the last stage that works, and no other finding.
# shellcheck source=tests/lib.sh disable=SC2016 # what others expand
. "$(dirname "$0")/../lib.sh"
need ip unshare nsenter jq

# This script is one host from here on, and has the namespaces of the switch and of the other host.
if [[ ! ${NETWORK_ALONE-} ]]; then
	unshare -rnm true 2>/dev/null || { echo "$test_name: no namespaces here"; exit 77; }
	rm -rf "$dir"
	NETWORK_ALONE=1 exec unshare -rnm bash "$0"
fi
unshare -n sleep 1000 &
switch=$!
unshare -n sleep 1000 &
other=$!
clients=("$switch" "$other")
at_switch() { nsenter -t "$switch" -n "$@"; }
at_other() { nsenter -t "$other" -n "$@"; }
own_networks() { [[ $(readlink {/proc/self,"/proc/$switch","/proc/$other"}/ns/net | sort -u | wc -l) == 3 ]]; }
wait_for "three namespaces" own_networks

# Long frames, so that a message of 4 KiB is one of them.
{ ip link add card mtu 9000 type veth peer name port1 netns "$switch" && at_other ip link add card mtu 9000 type veth peer name port2 netns "$switch" &&
	at_switch ip link add br0 type bridge && for port in port1 port2; do
		at_switch ip link set "$port" mtu 9000 master br0 up || exit 77
	done && at_switch ip link set br0 up && ip addr add 10.1.0.1/24 dev card && at_other ip addr add 10.1.0.2/24 dev card &&
	ip link set lo up && ip link set card up && at_other ip link set lo up && at_other ip link set card up; } 2>"$dir/err" || {
	echo "$test_name: no such interfaces here: $(cat "$dir/err")"
	exit 77
}

# The daemon is at the other host; doctor looks at a configuration of this one.
configure
cp "$dir/rdmad.conf" "$dir/here.conf"
listen=(tcp://10.1.0.2:0)
configure
printf '%s\n' '#!/bin/sh' "exec nsenter -t $other -n '$rdmad' \"\$@\"" >"$dir/rdmad-there"
chmod 755 "$dir/rdmad-there"
rdmad=$dir/rdmad-there
start_daemon
there=${servers[0]} port=${servers[0]##*:}

# finds HOST STAGE [NUMBER TEXT]: how far doctor comes, and the one thing that it finds on the way.
finds() {
	timeout 240 "$rdmactl" --control "$dir/none" --json doctor --config "$dir/here.conf" "$1" >"$dir/out" 2>"$dir/err"
	json ".paths[] | select(.transport == \"tcp\") | .furthest == \"$2\"" "$1 is not verified up to $2, but $(jq -c '.paths[0]' "$dir/out")"
	json "[.findings[] | select(.check == \"D40\").id] == [${3:+\"RD-$3\"}]" "$1: not ${3:-nothing}"
	[[ ! ${4-} || $(jq -r '.findings[] | select(.check == "D40") | .figures + " " + .command' "$dir/out") == *"$4"* ]] || fail "no \"$4\" in the finding"
}

# breaks COMMAND... -- HOST STAGE NUMBER TEXT: with the fault that the command makes; `mend` takes it away.
breaks() {
	local command=()
	while [[ $1 != -- ]]; do command+=("$1") && shift; done
	"${command[@]}" 2>"$dir/err" || { fail "cannot break: ${command[*]}"; return; }
	finds "${@:2}"
	"${mend[@]}" 2>"$dir/err" || fail "cannot mend: ${mend[*]}"
}

finds "$there" load
finds tcp://10.1.0.2:1 name 4002 'sport = :1'
finds tcp://10.9.0.1 name 4003 unreachable
mend=(ip route del 10.9.0.0/24)
breaks ip route add prohibit 10.9.0.0/24 -- tcp://10.9.0.1 name 4003 'ip route get 10.9.0.1'
mend=(at_other ip link set card up)
breaks at_other ip link set card down -- "$there" name 4003 'ping 10.1.0.2'
# The frames of the switch are shorter than those of the hosts, which do not hear of it.
mend=(at_switch ip link set port2 mtu 9000)
breaks at_switch ip link set port2 mtu 1280 -- "$there" "message of 64 B" 4007 '64 B come back, message of 4096 B does not'
if at_other iptables -A INPUT -p tcp --dport 1 -j DROP 2>/dev/null && at_other iptables -A INPUT -p tcp --dport 1 -j REJECT 2>/dev/null; then
	rule=(INPUT -p tcp --dport "$port")
	mend=(at_other iptables -D "${rule[@]}" -j DROP)
	breaks at_other iptables -A "${rule[@]}" -j DROP -- "$there" name 4003 'nft list ruleset'
	mend=(at_other iptables -D "${rule[@]}" -j REJECT)
	breaks at_other iptables -A "${rule[@]}" -j REJECT -- "$there" name 4002 "sport = :$port"
else
	echo "$test_name: no iptables here: the firewall is left out"
fi
finds "$there" load
stop_daemon
conclude
