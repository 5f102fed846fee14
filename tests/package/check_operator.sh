#!/bin/bash
# check_operator.sh: the first hour of an operator by the manual alone, in the guest: the commands and files of rdmad-intro(7) as they
# stand there, from the package to two daemons with keys, metrics, and an alert that fires when RDMA is lost. Then faults are
# planted, and what doctor says of each is typed as it stands, until doctor is content. Two things are otherwise, for time: the store
# is small, as each start touches its memory, and the alert fires after seconds; check_metrics_rules.sh has its minute. Each start of a
# program takes tenths of a second here, and doctor starts many.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/package/installed.sh
. "$srcdir/tests/package/installed.sh"
need prometheus curl rdma
page=$srcdir/man/rdmad-intro.7
began=$SECONDS

# --- the manual

# literal SECTION: what stands there to be typed, a blank line behind each piece.
literal() {
	awk -v title=".Ss $1" '/^\.S[sh] / { here = $0 == title } /^\.Bd -literal/ { on = here; next } /^\.Ed/ { if (on) print ""; on = 0; next } on' \
		"$page" | sed "s/10\.0\.0\.1/$RDMAD_GUEST_ADDR/g; s/\\\\-/-/g; s/\\\\e/\\\\/g"
}
# file SECTION NUMBER: of its pieces that are no commands.
file() { literal "$1" | awk -v RS= -v n="$2" '!/^[#$] / && ++i == n'; }

# as_root COMMAND, as_user COMMAND: a line of a shell, in the directory that this user has.
mkdir -p /srv/root /srv/user && chown nobody: /srv/user
as_root() { inside env -C /srv/root HOME=/srv/root bash -c "$1"; }
as_user() { inside env -C /srv/user HOME="${home:-/srv/user}" setpriv --reuid nobody --regid nogroup --clear-groups bash -c "$1"; }

# follow SECTION [AGAIN]: its commands, in order. There is neither a network to get packages by nor a journal here.
follow() {
	local line count=0
	while read -r line; do
		count=$((count + 1))
		case $line in
		'# apt-get '* | '# journalctl '*) continue ;;
		'# '*) as_root "${line:2}" ;;
		'$ '*) as_user "${line:2}" ;;
		esac >"$dir/out" 2>"$dir/err" </dev/null || fail "rdmad-intro(7): $line: exit status $?"
		[[ $line != '# rdmactl doctor' ]] || ! grep -E '^D[0-9]+ (failure|warning)' "$dir/out" >"$dir/found" ||
			fail "At the beginning, doctor is not content: $(cat "$dir/found")"
	done < <(literal "$1" | grep '^[#$] ' | grep -E -- "${2-}")
	((count > 0)) || fail "rdmad-intro(7) has no commands under \"$1\"${2+ with $2}"
}

# --- doctor

# doctor [OPTION...]: what it finds goes to $dir/out.
doctor() { inside "$rdmactl" doctor --json "$@" >"$dir/out" 2>"$dir/err"; }
# names NUMBER: among the findings, and the commands that mend it are in $mend, a line for each.
names() {
	mend=$(jq -r ".findings[] | select(.id == \"RD-$1\").command" "$dir/out")
	[[ $mend ]] || fail "doctor does not name RD-$1: $(jq -c '[.findings[].id]' "$dir/out")"
}
# Of notes, such as of a clock that nobody keeps, it makes no fault.
is_content() { doctor "$@" && jq -e '.failures + .warnings == 0' "$dir/out" >/dev/null; }
content() { is_content "${@:2}" || fail "$1, doctor is not content: $(jq -c '[.findings[] | select(.severity != "note") | .id + " " + .figures]' "$dir/out")"; }
type_mend() { as_root "$mend" >"$dir/mended" 2>&1 || fail "the command that doctor names: $mend: $(cat "$dir/mended")"; }

# --- the first hour

# Prometheus takes long to start here, and finds nobody at first.
file "Metrics and alerts" 2 >/srv/prometheus.yml
sed 's/for: 1m/for: 2s/' /usr/share/rdmad/rdmad.rules.yml >/srv/rdmad.rules.yml
sed -i -e 's,/usr/share/rdmad/,/srv/,' -e '1i global: {scrape_interval: 2s, evaluation_interval: 2s}' /srv/prometheus.yml
prometheus --config.file /srv/prometheus.yml --storage.tsdb.path "$dir/tsdb" --web.listen-address 127.0.0.1:9090 --log.level error >"$dir/prometheus" 2>&1 &
prometheus=$!

echo 'kv.memory = "64M";' >>/etc/rdmad.conf
start_system
clients+=("$prometheus")
follow "Is it there?"
follow "The first key"
file "The second machine" 1 >>/etc/rdmad.conf
follow "The second machine" '^#'
cp /srv/root/app.key /srv/user && chown nobody: /srv/user/app.key # as by scp
follow "The second machine" '^\$'
for address in "$RDMAD_GUEST_ADDR" "rdma://$RDMAD_GUEST_ADDR"; do
	home=/srv as_user "$(type -P rdmactl) -H $address ping -c 1" >"$dir/out" 2>"$dir/err" && fail "$address: a client without the key comes in"
	grep -q 'key' "$dir/err" || fail "$address: it is not told that it lacks a key"
done

file "A second daemon on a machine" 1 >/etc/rdmad/second.conf
follow "A second daemon on a machine"
[[ $(pgrep -xc rdmad) == 2 ]] || fail "two daemons: $(pgrep -xa rdmad)"
home=/srv as_user "rdmactl -H $RDMAD_GUEST_ADDR:7481 kv get greeting" >"$dir/out" 2>"$dir/err" && fail "the second daemon lets a client in without the key"
[[ $(as_user "rdmactl -H $RDMAD_GUEST_ADDR:7481 kv get greeting") == "hello, second" ]] || fail "what the second daemon has"
[[ $(as_user "rdmactl -H $RDMAD_GUEST_ADDR kv get greeting" 2>"$dir/err") == "hello, second" ]] && fail "the two daemons have one store"
inside systemctl reload rdmad@second || fail "reload of the second daemon"

file "Metrics and alerts" 1 >>/etc/rdmad.conf
follow "Metrics and alerts"
# asked QUERY VALUE: whether Prometheus has so many series of it.
asked() { [[ $(curl -s -G --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query | jq '.data.result | length' 2>"$dir/err") == "$2" ]]; }
alert_is() { asked "ALERTS{alertname=\"$1\",alertstate=\"firing\"}" "$2"; }
wait_for "Prometheus's first look" asked 'rdmad_transport_available{transport="rdma"} == 1' 2 || cat "$dir/prometheus" >&2
[[ ! -s $dir/prometheus ]] || fail "Prometheus: $(cat "$dir/prometheus")"

follow "When something is wrong"
echo "the first hour: $((SECONDS - began)) s"

# --- faults

# Too little memory that may be locked, for the second daemon.
mkdir -p /etc/systemd/system/rdmad@second.service.d
printf '%s\n' '[Service]' LimitMEMLOCK=1M >/etc/systemd/system/rdmad@second.service.d/override.conf
inside systemctl daemon-reload
inside systemctl restart rdmad@second || fail "a restart with little memory to lock"
doctor --config /etc/rdmad/second.conf
names 1202
names 1203 && type_mend
content "With LimitMEMLOCK as it says" --config /etc/rdmad/second.conf

# A file of keys that the daemon may not read, and a rule of the firewall.
chown root: /etc/rdmad/keys
inside systemctl restart rdmad 2>"$dir/err" && fail "the daemon starts with keys that it cannot read"
iptables -P INPUT DROP && iptables -I INPUT -i lo -j ACCEPT || fail "no rule of the firewall can be made"
doctor && fail "doctor takes keys of another user for good"
names 2901 && type_mend
names 2403 && type_mend
[[ $(wc -l <<<"$mend") == 2 ]] || fail "not TCP's port and that of RoCE: $mend"
content "With the keys its own and the ports let in"
iptables -P INPUT ACCEPT
iptables -F INPUT

# The device is lost.
wait_for "Prometheus's look behind the restart" asked 'rdmad_transport_available{transport="rdma"} == 1' 2
lost=$SECONDS
rdma link delete rxe0 >"$dir/out" 2>&1 & # which waits for programs that use it
deleting=$!
wait_for "Prometheus to see that the device is gone" asked 'rdmad_transport_available{transport="rdma"} == 0' 2
wait_for "the end of the device" ended $deleting
doctor
names 0604
names 0102
ends 0 "tcp" "$rdmactl" --key /srv/user/.config/rdmad/key -H "$RDMAD_GUEST_ADDR" ping -c 1
wait_for "the alert" alert_is RdmadRdmaMissing 2
echo "the alert: $((SECONDS - lost)) s behind the loss"
mend=${mend##*without: }
type_mend
chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm # as the rules of rdma-core do, where there is udev
wait_for "the end of the alert" alert_is RdmadRdmaMissing 0
ends 0 "" "$rdmactl" --key /srv/user/.config/rdmad/key -H "rdma://$RDMAD_GUEST_ADDR" ping -c 1
content "With the device back"

inside systemctl stop rdmad@second rdmad || fail "systemctl stop"
echo "$((SECONDS - began)) s in all"
conclude
