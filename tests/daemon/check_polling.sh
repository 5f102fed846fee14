#!/bin/bash
# A program that waits polls where that helps, and sleeps where the one that is waited for needs the processor: told by
# how often both sleep though they may poll for longer than any answer takes.
. "$(dirname "$0")/../lib.sh"
need python3 taskset

configure 'poll = "10ms";' 'services = ["ping"];'
start_daemon
processor=$(taskset -cp $$ | grep -oE '[0-9]+' | sed -n 2p)

# sleeps PROCESSOR DAEMON COMMAND...: how often the command did; with a DAEMON, both, and both are moved to that processor when
# they know how many they have.
sleeps() {
	python3 - "$@" <<-'PYTHON'
		import os, subprocess, sys, time

		def connects(pid):
		    try:
		        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
		    except FileNotFoundError:  # closed meanwhile
		        links = []
		    return any(link.startswith("socket:") for link in links)

		def tasks(pid):
		    return [int(task) for task in os.listdir(f"/proc/{pid}/task")]

		def sleeps(pid):
		    status = "".join(open(f"/proc/{pid}/task/{task}/status").read() for task in tasks(pid))
		    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary"))

		processor, daemon, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
		before = sleeps(daemon) if daemon else 0
		p = subprocess.Popen(command, stdout=subprocess.DEVNULL)
		if daemon:
		    while not connects(p.pid):
		        time.sleep(0.001)
		    for task in tasks(daemon) + tasks(p.pid):
		        os.sched_setaffinity(task, {processor})
		_, status, usage = os.wait4(p.pid, 0)
		assert status == 0, status
		print(usage.ru_nvcsw + (sleeps(daemon) - before if daemon else 0))
	PYTHON
}

ping() { sleeps "$processor" "$1" "${@:3}" "$rdmactl" ping -H "${servers[0]}" -c "$count" --poll "$2"; }

# It has one processor from the start: no polling at all, unless told to.
count=500
n=$(ping 0 10ms taskset -c "$processor")
((n >= count / 2)) || fail "on one processor it slept $n times in $count round trips"
n=$(ping 0 always taskset -c "$processor")
((n < count / 2)) || fail "it was to poll always, and slept $n times in $count round trips"

# What they could not know, they learn.
count=5000
n=$(ping "$daemon" 10ms)
((n >= count / 4)) || fail "on the same processor they slept $n times in $count round trips"
stop_daemon
conclude
