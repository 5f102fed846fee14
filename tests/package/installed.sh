# installed.sh: the packages in the guest, under a systemd that is the first process of a namespace. Read by tests behind lib.sh.
# They change the system that they run on, which an emulated machine forgets.
# shellcheck shell=bash disable=SC2154 # of lib.sh
[[ ${RDMAD_GUEST-} ]] || { echo "$test_name: no RDMA here, and a system that it would change (scripts/guest)"; exit 77; }
need jq nsenter unshare
[[ -x /lib/systemd/systemd ]] || { echo "$test_name: systemd is missing"; exit 77; }
packages=${RDMAD_PACKAGES:?the folder with the packages, which check_debian.sh has made}

# Nothing starts here, as systemd is not running yet.
# Triggers, of which that of the manual takes minutes here, are of no interest.
# A test before this one may have installed them: what it left goes.
if [[ -e /opt/rdmad.conf ]]; then
	rm -rf /etc/systemd/system/rdmad.service.d /run/systemd /var/lib/private/rdmad
	cp /opt/rdmad.conf /etc
else
	dpkg --no-triggers --force-unsafe-io -i "$packages"/{rdmad,rdmactl,rdmad-gpu,librdmad6,librdma-lib1}_*.deb >"$dir/dpkg" 2>&1 ||
		give_up "dpkg: $(grep -v '^Selecting' "$dir/dpkg")"
	cp /etc/rdmad.conf /opt
fi
unset LD_LIBRARY_PATH
rdmactl=/usr/bin/rdmactl
system='' # its process

# start_system: with nothing to start but the unit rdmad and what that needs.
start_system() {
	# shellcheck disable=SC2016 # what the shell in there expands
	unshare --pid --mount --cgroup --fork --kill-child sh -c 'mount -t proc proc /proc && mount -t tmpfs tmp /tmp &&
		container=test exec /lib/systemd/systemd --system --unit=rdmad.service --log-target=console --show-status=0' \
		<&- >"$dir/log" 2>&1 &
	clients=($!)
	# It waits for the start, once there is a systemd to ask: a look now and then would take as long as the start.
	wait_for "the unit's start" inside systemctl start rdmad 2>"$dir/err" || give_up "$(inside systemctl status rdmad 2>&1; tail -n 20 "$dir/log")"
}
inside() {
	system=${system:-$(pgrep -P "${clients[0]}" | head -n 1)}
	nsenter -t "$system" -m -p "$@"
}
# state PROPERTY [UNIT]
state() { inside systemctl show -p "$1" --value "${2:-rdmad}" 2>/dev/null; }
# is PROPERTY VALUE [UNIT]
is() { [[ $(state "$1" "${3-}") == "$2" ]]; }
