#!/bin/bash
# Hostile clients of each kind, scripts/hostile, beside an honest one, which is served all the while; and when they have
# gone, everything is back. How long the honest one waits, scripts/bench measures.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq python3

listen=(tcp://127.0.0.1:0)
attacks=(credits:40 half:40 scan:8 leases:40 reserve:8 sink:40 large:40 idle:64 flood:1 stutter:1 pour:40 names:40 groups:40 members:40 joins:40 descriptors:9 control:9)
# SO_PASSRIGHTS
# Another user than the honest one, or they are one source.
[[ $(id -u) != 0 ]] || attacks+=(sources:200)
python3 -c 'import socket; socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 83, 0)' 2>/dev/null && attacks+=(passing:8)

# Requests of each kind, some after another, by a client of its own each.
honest() {
	local what=$1 i
	for i in 1 2; do
		expect 0 ping -c 20 -s 64 --timeout 30s || fail "$what: an honest ping"
		expect 0 kv set "honest-$i" "value $i" || fail "$what: an honest set"
		expect 0 kv get "honest-$i" && says "^value $i$" "$what: an honest get"
		expect 0 kv set honest-large - <"$dir/large" || fail "$what: an honest large set"
		ctl channel pipe "meet://${server#*://}/echo" --count 1000000 <"$dir/large" || fail "$what: an honest channel"
		same "$dir/large" "$what: an honest channel"
	done
}

# Attacks of clients that have a path there: the services' socket, or the control socket, and other clients of it.
path() {
	case $1 in
	descriptors | passing) echo "$dir/rdmad.sock" ;;
	control) echo "$dir/control.sock" ;;
	esac
}

honest_here() { (server="unix://$dir/rdmad.sock" && expect 0 ping -c 20 -s 64 --timeout 30s) || fail "$1: an honest ping by the UNIX socket"; }

# What must be as before, once the clients have gone.
held() { control resources | jq -c '[.connections, .buffers_in_use, .store_pins, .transfer_bytes, .leased_bytes, .descriptors, .channel_names_now, .channel_joined_now, .peer_groups_now, .peer_members_now]'; }
is_held() { [[ $(held) == "$1" ]]; }
resident_mib() { control memory | jq '.resident_bytes / 1048576 | floor'; }

# It takes SIGTERM, bit 14, by a handler: before that it would be killed by it, and tell nothing.
ends_in_peace() { ((0x$(sed -n 's/^SigCgt:\t//p' "/proc/$1/status") >> 14 & 1)); }

attack() {
	local name=$1 number=$2 before attacker log_before grown at
	at=$(path "$name")
	local as=()
	[[ $name != sources ]] || as=(--user 65534)
	before=$(held) grown=$(resident_mib) log_before=$(wc -l <"$dir/log")
	"$srcdir/scripts/hostile" "${name/control/descriptors}" "${at:-${server#*://}}" -c "$number" -t 600 -s 4194304 "${as[@]}" >"$dir/hostile" &
	attacker=$!
	clients=("$attacker")
	wait_for "the begin of $name" ends_in_peace "$attacker"
	sleep 0.5
	honest "$name"
	[[ -z $at ]] || honest_here "$name"
	[[ $name != sources ]] || (($(control resources | jq .connections) <= 82)) || fail "$name: one user has more than half"
	kill -TERM "$attacker"
	wait "$attacker" || fail "$name: the attack itself failed"
	clients=()
	jq -e '.connections > 0' "$dir/hostile" >/dev/null || fail "$name: nobody attacked"
	wait_for "all to come back after $name: $before, not $(held)" is_held "$before"
	grown=$(($(resident_mib) - grown))
	((grown < 64)) || fail "$name: the daemon has grown by $grown MiB"
	(($(wc -l <"$dir/log") - log_before < 200)) || fail "$name: $(wc -l <"$dir/log") lines in the log"
}

# The address sanitizer keeps what was freed, up to so much, which is not the daemon's.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=8

head -c 1000000 /dev/zero | tr '\0' x >"$dir/large"
# A client that holds memory and gives none back is cut off after a while: here soon.
configure 'services = ["ping", "kv", "channel", "peer"];' 'shared_receives = 32;' 'max_connections = 160;' 'stall_timeout = "3s";'
chmod 711 "$dir"
start_daemon
server=${servers[0]}
honest "nobody"
[[ -z ${ATTACKS-} ]] || read -ra attacks <<<"$ATTACKS"
for part in "${attacks[@]}"; do attack "${part%%:*}" "${part#*:}"; done
server=''
stop_daemon
conclude
