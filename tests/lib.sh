# lib.sh: what the tests in bash share, which begin with `. "$(dirname "$0")/lib.sh"`: a temporary directory $dir, a daemon
# of their own, rdmactl's exit status and output. They run in the build directory; the sources may be read-only.
# shellcheck shell=bash disable=SC2034 # some variables are the test's
set -u
builddir=${builddir:-$PWD}
srcdir=$(cd "${srcdir:-$(dirname "${BASH_SOURCE[0]}")/..}" && pwd)
# In a build folder rdmactl is libtool's wrapper, which takes longer than what it starts: that is in .libs.
if [[ ! ${rdmactl-} && -x $builddir/.libs/rdmactl ]]; then
	rdmactl=$builddir/.libs/rdmactl
	export LD_LIBRARY_PATH="$builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
: "${rdmad:=$builddir/rdmad}" "${rdmactl:=$builddir/rdmactl}"
test_name=$(basename "$0" .sh)
dir=$(mktemp -d "${TMPDIR:-/tmp}/rdmad-test.XXXXXX")
failures=0 server='' daemon='' clients=() servers=()
listen=(tcp://127.0.0.1:0 ${RDMAD_GUEST_ADDR:+"rdma://$RDMAD_GUEST_ADDR:0"})
unset RDMAD_HOST
export PYTHONDONTWRITEBYTECODE=1 # nothing is written beside the sources

finish() {
	kill -KILL ${daemon:+"$daemon"} "${clients[@]}" 2>/dev/null
	wait
	rm -rf "$dir"
}
trap finish EXIT

# need TOOL...: or the test is skipped.
need() {
	local tool
	for tool; do
		command -v "$tool" >/dev/null || { echo "$test_name: $tool is missing"; exit 77; }
	done
}

# fail TEXT: the test goes on, to its end or the 20th failure.
fail() {
	echo "FAILED: ${server:+$server: }$*" >&2
	sed 's/^/  stdout: /' "$dir/out" 2>/dev/null | cut -c1-300 | head -5 | cat -v >&2
	sed 's/^/  stderr: /' "$dir/err" 2>/dev/null | cut -c1-300 | head -5 | cat -v >&2
	failures=$((failures + 1))
	((failures < 20)) || give_up "too many failures"
}

give_up() {
	[[ ! -e $dir/log ]] || tail -n 20 "$dir/log" >&2
	echo "$test_name: $*" >&2
	exit 1
}

# The end of a test.
conclude() {
	[[ $failures == 0 ]] || give_up "$failures failures"
	exit 0
}

# logged TEXT [FILE]: now or soon.
logged() { wait_for "\"$1\" in the log" grep -qsF -- "$1" "${2:-$dir/log}"; }

# part WHOLE: of so much repetition, as suite_part() in suite.h.
part() {
	[[ ${RDMAD_TEST_PART-1} =~ ^[1-9][0-9]*$ ]] || give_up "RDMAD_TEST_PART=$RDMAD_TEST_PART is not a number from 1 on"
	echo $(($1 >= ${RDMAD_TEST_PART-1} ? $1 / ${RDMAD_TEST_PART-1} : 1))
}

# node_programs: the programs of Node.js, and the modules that they use, which are looked for beside them, in $dir/node; or why not.
node_programs() {
	local programs=$srcdir/tests/service/clients/programs modules why="the modules of Node.js cannot be fetched:"
	command -v node >/dev/null || { echo "$why there is no node"; return 1; }
	[[ $(node -p 'Number(process.versions.node.split(".")[0]) >= 20') == true ]] || { echo "$why they need node 20, and this is $(node --version)"; return 1; }
	modules=$("$srcdir/scripts/packages" --modules "$programs/package.json" 2>"$dir/out") || { echo "$why $(tail -n 1 "$dir/out")"; return 1; }
	mkdir "$dir/node" && cp "$programs"/*.mjs "$programs/package.json" "$dir/node" && ln -s "$modules/node_modules" "$dir/node"
}

# wait_for WHAT COMMAND...: until it succeeds. The limit only ends what hangs.
wait_for() {
	local what=$1 until=$((SECONDS + 120))
	shift
	until "$@"; do
		((SECONDS < until)) || { fail "waited in vain for $what"; return 1; }
		sleep 0.05
	done
}

# --- commands

# ends STATUS TEXT COMMAND...: it ends so, and TEXT stands on its stdout or stderr.
ends() {
	local status=$1 text=$2 got
	shift 2
	timeout 120 "$@" >"$dir/out" 2>&1 </dev/null
	got=$?
	: >"$dir/err"
	[[ $got == "$status" ]] || fail "exit status $got, not $status: $*"
	[[ -z $text ]] || grep -qF -- "$text" "$dir/out" || fail "no \"$text\": $*"
}

# ctl ARGUMENTS: rdmactl, of the daemon and at this server; stdout and stderr go to files.
ctl() {
	local at=$server
	case ${1-} in status | conn | memory | resources | metrics | reload | drain | shutdown | log) at='' ;; esac
	timeout 240 "$rdmactl" --control "$dir/control.sock" ${at:+-H "$at"} "$@" >"$dir/out" 2>"$dir/err"
}

# at_terminal TEXT COMMAND...: it runs at a terminal at which somebody types the text; its exit status, and what the terminal shows.
at_terminal() {
	timeout 240 python3 - "$@" >"$dir/out" 2>"$dir/err" <<-'END'
	import os, pty, sys
	child, terminal = pty.fork()
	if child == 0:
	    os.execvp(sys.argv[2], sys.argv[2:])
	os.write(terminal, sys.argv[1].encode())
	while True:
	    try:
	        shown = os.read(terminal, 65536)
	    except OSError:
	        break
	    if not shown:
	        break
	    os.write(1, shown)
	sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
	END
}

# free_ports NUMBER: of the loopback, a line each, below the ones that the kernel gives to clients: one of these might be there first.
free_ports() {
	python3 - "$1" <<-'END'
		import random, socket, sys
		held = []
		while len(held) < int(sys.argv[1]):
		    try:
		        held.append(socket.create_server(("127.0.0.1", random.randrange(10000, 32000))))
		    except OSError:
		        pass
		print(*(one.getsockname()[1] for one in held), sep="\n")
	END
}

# expect STATUS ARGUMENTS: of rdmactl.
expect() {
	local want=$1 got
	shift
	ctl "$@"
	got=$?
	[[ $got == "$want" ]] || { fail "rdmactl $(cut -c1-100 <<<"$*"): exit status $got, not $want"; return 1; }
}

# Whether the last command's stdout, stderr, or JSON is what it should be.
says() { grep -Eq -- "$1" "$dir/out" || fail "${2-}: stdout lacks \"$1\""; }
complains() { grep -Eq -- "$1" "$dir/err" || fail "${2-}: stderr lacks \"$1\""; }
# jq says nothing against an output that is empty.
json() { { [ -s "$dir/out" ] && jq -e "$1" "$dir/out" >/dev/null 2>&1; } || fail "${2-}: not true of the JSON: $1"; }
same() { cmp -s "$1" "$dir/out" || fail "${2-}: stdout differs from what was expected"; }

# --- the daemon

# configure [LINE...]: a file that listens as $listen says and has these settings too. Of memory a daemon takes little, unless
# they say more.
configure() {
	local quoted memory='kv.memory = "64M";'
	case $* in *kv.memory* | *'kv = {'*) memory='' ;; esac
	case $* in *auth* | *insecure*) ;; *) memory+=' insecure = true;' ;; esac
	printf -v quoted '"%s", ' "${listen[@]}"
	cat >"$dir/rdmad.conf" <<-CONF
		listen = [${quoted%, }];
		unix_socket = "$dir/rdmad.sock";
		control = { socket = "$dir/control.sock"; }; $memory
	CONF
	printf '%s\n' "$@" >>"$dir/rdmad.conf"
}

# An answer of the daemon, as JSON.
control() { timeout 60 "$rdmactl" --control "$dir/control.sock" --json "$@" 2>/dev/null; }

# A process that has ended and was not waited for yet is a zombie.
# ticks PROCESS: of a processor, that it has had (getconf CLK_TCK in a second).
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
ended() { [[ $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) != [!Z] ]]; }
daemon_is_settled() { control status >/dev/null || ended "$daemon"; }

# start_daemon [ARGUMENT...]: it is $daemon, and serves at $servers.
start_daemon() {
	"$rdmad" -c "$dir/rdmad.conf" "$@" >"$dir/log" 2>&1 &
	daemon=$!
	wait_for "the start of rdmad" daemon_is_settled
	ended "$daemon" && give_up "rdmad does not start"
	mapfile -t servers < <(control status | jq -r '.listen[] | .transport + "://" + .address')
}

# Where there is a device, only what no other machine has: such a machine may be slow.
keep_special() {
	local address kept=()
	for address in "${servers[@]}"; do [[ $address != rdma:* ]] || kept+=("$address"); done
	[[ ${#kept[@]} == 0 ]] || servers=("${kept[@]}")
}

# await_daemon WHY [STATUS]: it ends, by itself.
await_daemon() {
	local status
	wait_for "the end of rdmad after $1" ended "$daemon" || kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null
	status=$?
	daemon=''
	[[ $status == "${2:-0}" ]] || { fail "rdmad, $1: exit status $status"; cat "$dir/log" >&2; }
}

# stop_daemon [SIGNAL [STATUS]]
stop_daemon() {
	kill -"${1:-TERM}" "$daemon"
	await_daemon "SIG${1:-TERM}" "${2:-0}"
}

# resource NAME: what the daemon has of it.
resource() { control resources | jq ".$1"; }
nobody_is_connected() { [[ $(resource connections) == 0 ]]; }
has_no_processes() { [[ -z $(pgrep -P "$daemon") ]]; }

# What the services have done for clients so far: requests, jobs and bytes of images.
work_done() { control status | jq '.counters | .pings + .kv_gets + .kv_sets + .gpu_quantizes + .gpu_queue_jobs'; }
has_done() {
	local now
	now=$(work_done)
	[[ $now ]] && ((now >= $1))
}

# By what the address in $server is reached: with a UNIX socket both ends share memory.
transport_of() { sed 's/:.*//; s/^unix$/shm/' <<<"$server"; }
