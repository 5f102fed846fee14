#!/bin/bash
# check_unit.sh: the installed unit under a real systemd, in the guest: its sandbox keeps nothing from rdmad that it needs, RDMA and
# the confinement of a session's process least of all.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/package/installed.sh
. "$srcdir/tests/package/installed.sh"
id -u rdmad >"$dir/out" 2>&1 || fail "there is no user rdmad"
printf '%s\n' "listen = [\"127.0.0.1\", \"$RDMAD_GUEST_ADDR\"];" 'insecure = true;' 'kv.memory = "16M"; gpu.backend = "cpu"; resp.listen = ["127.0.0.1"];' \
	'log.directory = "/var/lib/rdmad"; log.policy = "always";' >>/etc/rdmad.conf
mkdir -p /etc/systemd/system/rdmad.service.d && printf '%s\n' '[Service]' WatchdogSec=20 >/etc/systemd/system/rdmad.service.d/watchdog.conf
start_system
systemd-analyze security --offline=yes --threshold=20 /lib/systemd/system/rdmad.service >"$dir/out" 2>&1 ||
	fail "the unit's exposure: $(tail -n 1 "$dir/out")"
process=$(inside "$rdmactl" --json status | jq .pid)
main=$(pgrep -x rdmad)
[[ $process -gt 0 && $(state MainPID) == "$process" ]] || fail "rdmad told systemd of process $(state MainPID), and is $process"
[[ $(stat -c %u "/proc/$main") != 0 ]] || fail "rdmad runs as root"

# More commands by each transport are in check_operator.sh.
ends 0 "" "$rdmactl" -H 127.0.0.1 kv set key value
ends 0 value "$rdmactl" -H "rdma://$RDMAD_GUEST_ADDR" kv get key

lacks=$(inside "$rdmactl" --json status | jq -r .gpu.sandbox_lacks)
[[ $lacks == "" ]] || fail "the unit keeps from sessions: $lacks"
filters() { sed -n 's/^Seccomp_filters:\t//p' "/proc/$1/status"; }
"$rdmactl" -H 127.0.0.1 bench gpu -p 100 >"$dir/bench" 2>&1 &
clients+=($!)
session() { pgrep -x rdmad-gpu | head -n 1; }
session_is_confined() { [[ $(session) && $(filters "$(session)") -gt $(filters "$main") ]]; }
wait_for "the session's own filter of system calls" session_is_confined || cat "$dir/bench"
kill "${clients[1]}"

inside systemctl reload rdmad || fail "systemctl reload: $(tail -n 5 "$dir/log")"
cp /etc/rdmad.conf "$dir/good.conf"
echo 'nonsense = ;' >>/etc/rdmad.conf
inside systemctl reload rdmad 2>"$dir/err" && fail "a bad configuration is reloaded without a word"
is ActiveState active || fail "a reload that failed ended the service"
cp "$dir/good.conf" /etc/rdmad.conf

# started_anew WHY BEFORE: another process serves, and has what was stored.
started_anew() {
	is_another() { is ActiveState active && [[ $(state MainPID) != "$2" && $(state MainPID) != 0 ]]; }
	has_value() { [[ $("$rdmactl" -H 127.0.0.1 kv get key 2>"$dir/err") == value ]]; }
	wait_for "another start after $1" is_another "$@" || return
	# On a busy machine the new one may be taken for hung, too, and be started once more.
	wait_for "what was stored, after $1" has_value || { cat "$dir/err"; tail -n 30 "$dir/log"; } >&2
}
before=$(state MainPID)
kill -SEGV "$(pgrep -x rdmad)"
started_anew "a crash" "$before"
before=$(state MainPID)
kill -STOP "$(pgrep -x rdmad)"
started_anew "a hang" "$before"
before=$(state MainPID)
if command -v python3 >"$dir/out"; then
	python3 "$srcdir/tests/daemon/stop_thread.py" "$(pgrep -x rdmad)" "worker 0" >"$dir/out" 2>&1 &
	clients+=($!)
	started_anew "a worker's hang" "$before"
	kill "${clients[-1]}" 2>/dev/null
fi
before=$(state MainPID)
# The folder of the packages may be below /tmp, which is another one in there.
cp "$packages"/rdmad_*.deb /opt
# A machine like this one may have a policy that starts nothing.
printf '%s\n' '#!/bin/sh' 'exit 0' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
inside dpkg --no-triggers --force-unsafe-io -i /opt/rdmad_*.deb >"$dir/dpkg" 2>&1 || fail "dpkg in the running system: $(tail "$dir/dpkg")"
started_anew "an upgrade" "$before" || cat "$dir/dpkg" >&2

inside systemctl stop rdmad || fail "systemctl stop"
is Result success || fail "the end is $(state Result)"
is ActiveState inactive || fail "it is $(state ActiveState) at the end"

# The first client of a socket of the service manager starts it anew.
inside systemctl is-enabled rdmad.socket >"$dir/out" && fail "the package enables rdmad.socket"
inside systemctl start rdmad.socket || fail "rdmad.socket: $(tail -n 5 "$dir/log")"
is ActiveState inactive || fail "the socket alone started the service"
pong=$(exec 3<>/dev/tcp/127.0.0.1/6379 && echo PING >&3 && timeout 120 head -n 1 <&3)
[[ $pong == +PONG* ]] || fail "the client that started the service got $pong"
is ActiveState active || fail "the first client starts nothing"
inside systemctl stop rdmad.socket rdmad || fail "systemctl stop of the socket"
conclude
