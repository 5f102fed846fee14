#!/bin/bash
# rdmarun: ranks that are shell programs, here and by a remote shell that is none; their output, input and end; what is left when
# rdmarun is killed. The ranks of rdma_lib are in check_examples.sh.
# shellcheck source=tests/lib.sh disable=SC2016 # what ranks expand
. "$(dirname "$0")/../lib.sh"
: "${rdmarun:=$builddir/rdmarun}"
export dir
unset SLURM_JOB_NODELIST SLURM_TASKS_PER_NODE PBS_NODEFILE RANK WORLD_SIZE "${!OMPI_@}" "${!PMI_@}" "${!SLURM_@}"
away=(--rsh "$dir/shell")

# A remote shell to this machine: the words behind the host are the command.
cat >"$dir/shell" <<'END'
#!/bin/sh
echo "$1" >>"$dir/hosts"
host=$1
shift
[ "$host" != unreachable ] || { echo "no route to $host" >&2; exit 255; }
[ "$host" != chatty ] || echo "welcome to $host"
[ "$host" != terse ] || printf 'welcome'
[ "$host" != content ] || { echo 'no shells here'; exit 0; }
[ "$host" != silent ] || exec sleep 1000
cd / && exec sh -c "$*"
END
chmod +x "$dir/shell"

# run STATUS ARGUMENTS: of rdmarun, with standard input as it is here.
run() {
	local want=$1 got
	shift
	timeout 240 "$rdmarun" --meeting none "$@" >"$dir/out" 2>"$dir/err"
	got=$?
	[[ $got == "$want" ]] || fail "rdmarun $*: exit status $got, not $want"
}

# sorted LINES: of standard output.
sorted() {
	[[ $(sort "$dir/out") == "$1" ]] || fail "not what was expected: $1"
}

all_ended() {
	local pid
	for pid; do ended "$pid" || return 1; done
}

# have COUNT PATTERN: files that ranks leave.
have() { [[ $(find "$dir" -maxdepth 1 -name "$2" | wc -l) == "$1" ]]; }

# --- options

run 0 --help </dev/null
says '^usage: rdmarun'
run 0 --version </dev/null
says '^rdmarun [0-9]'
for wrong in -x '-n 0' '-n 5000 true' '-n x true' '--grace 5 true' '-H -a true' '-H a:0 true' '-H a,,b true' '--env =x true' ''; do
	# shellcheck disable=SC2086 # words
	run 2 $wrong </dev/null
	complains 'Try|rdmarun: --' "$wrong"
done

# --- what ranks are given, and their output

run 0 -n 3 sh -c 'echo $RDMA_RANK $RDMA_SIZE $RDMA_LOCAL_RANK $RDMA_LOCAL_SIZE ${RDMA_MEETING-none}' </dev/null
sorted $'0 3 0 3 none\n1 3 1 3 none\n2 3 2 3 none'
run 0 -n 3 sh -c 'echo $RDMA_GROUP' </dev/null
[[ $(sort -u "$dir/out" | wc -l) == 1 && $(head -n 1 "$dir/out") == run-* ]] || fail "not one group"
cp "$dir/out" "$dir/group"
run 0 -n 3 sh -c 'echo $RDMA_GROUP' </dev/null
! cmp -s "$dir/group" "$dir/out" || fail "two runs have the same group"
run 0 -n 1 --meeting tcp://10.1.1.1:7 --env A=1 --env HOME --env B='two words' sh -c 'echo $RDMA_MEETING $A $HOME $B' </dev/null
sorted "tcp://10.1.1.1:7 1 $HOME two words"
RDMA_MEETING=tcp://10.1.1.1:7 run 0 -n 1 sh -c 'echo ${RDMA_MEETING-none}' </dev/null
sorted none
run 0 -n 1 -C / pwd </dev/null
sorted /
(ulimit -Sn 200 && run 0 -n 1 sh -c 'ulimit -Sn' </dev/null && says '^200$') || fail "the limit of a rank's descriptors"
run 1 -n 1 -C /none/such pwd </dev/null
complains 'cannot go to the directory /none/such'
run 0 -l -n 11 sh -c 'echo text; echo error >&2; printf unfinished' </dev/null
[[ $(grep -c '^10: text$' "$dir/out") == 1 && $(grep -c '^ 3: unfinished$' "$dir/out") == 1 ]] || fail "labels"
[[ $(grep -c '^ *[0-9]*: error$' "$dir/err") == 11 ]] || fail "labels of errors"
run 0 -n 1 printf unfinished </dev/null
[[ $(cat "$dir/out") == unfinished && $(wc -l <"$dir/out") == 0 ]] || fail "the end of a lonely rank was changed"

# Lines in pieces, from all at once, are whole.
run 0 -l -n 4 sh -c 'i=0; while [ $i -lt 300 ]; do printf "a%s" $i; printf "b%s" $i; echo "c$RDMA_RANK"; i=$((i + 1)); done' </dev/null
[[ $(wc -l <"$dir/out") == 1200 ]] || fail "$(wc -l <"$dir/out") lines, not 1200"
! grep -Evq '^([0-3]): a([0-9]+)b\2c\1$' "$dir/out" || fail "lines are mixed"
# A long one, to a reader that is slow, and to one that goes.
"$rdmarun" --meeting none -n 2 sh -c 'head -c 900000 /dev/zero | tr "\0" x; echo' 2>"$dir/err" </dev/null | { wait_for "output" true; cat; } >"$dir/out"
[[ $(awk '{ print length($0) }' "$dir/out") == $'900000\n900000' ]] || fail "long lines"
timeout 240 "$rdmarun" --meeting none -n 2 yes </dev/null 2>"$dir/err" | head -n 1 >"$dir/out"
[[ ${PIPESTATUS[0]} == 141 ]] || fail "nobody reads, and it goes on: ${PIPESTATUS[0]}"

# What is written to a full disk is lost, which is told, and ends the ranks; what was lost with the disk's words, too, by the exit status.
cannot='rdmarun: cannot write to standard output: No space left on device'
ends 74 "$cannot; the ranks are ended" timeout 60 bash -c "'$rdmarun' --meeting none -n 2 sh -c 'echo text; exec sleep 1000' >/dev/full"
ends 74 "$cannot" bash -c "'$rdmarun' --meeting none -n 1 echo text >/dev/full"
# Rank 0 writes when the end of rank 1 is known.
cat >"$dir/after" <<'END'
cd "$dir"; [ $RDMA_RANK = 1 ] && echo $$ >first && exit 3
until [ -s first ] && ! kill -0 "$(cat first)" 2>/dev/null; do sleep 0.05; done
echo text
END
ends 3 "$cannot" bash -c "'$rdmarun' --meeting none -k -n 2 sh '$dir/after' >/dev/full"
ends 74 "" bash -c "'$rdmarun' --meeting none -n 2 sh -c 'echo text >&2; exec sleep 1000' 2>/dev/full"

ends 1 "cannot write to stdout: No space left" sh -c "'$rdmarun' --help >/dev/full"

# A line of a mebibyte is one; what has no line feeds comes from a lonely rank as it is.
run 0 -n 2 sh -c 'head -c 1048576 /dev/zero | tr "\0" x; echo' </dev/null
[[ $(awk '{ print length($0) }' "$dir/out") == $'1048576\n1048576' ]] || fail "lines of a mebibyte"
head -c 3000000 /dev/zero >"$dir/input"
run 0 -n 1 cat "$dir/input" </dev/null
cmp -s "$dir/input" "$dir/out" || fail "a lonely rank's output was changed"

# A reader that stays, but reads nothing, hinders neither --timeout nor a signal, and is not waited for by turning.
mkfifo "$dir/deaf"
# unread STATUS ARGUMENTS: of rdmarun, whose standard output and standard error are one pipe that is full.
unread() {
	local want=$1 got
	shift
	timeout -k 1 60 "$rdmarun" --meeting none "$@" >"$dir/deaf" 2>&1 </dev/null 9>&- &
	clients=("$!")
	wait "$!"
	got=$?
	clients=()
	[[ $got == "$want" ]] || fail "rdmarun $* that nobody reads: exit status $got, not $want"
}
exec 9<>"$dir/deaf"
unread 124 -n 2 --grace 50ms --timeout 300ms sh -c 'yes >&2 & yes'
exec 9>&- 9<>"$dir/deaf"
"$rdmarun" --meeting none -n 2 sh -c 'head -c 200000 /dev/zero; : >"$dir/said.$RDMA_RANK"' >"$dir/deaf" 2>"$dir/err" </dev/null 9>&- &
client=$!
clients=("$client")
wait_for "what two ranks say" have 2 'said.*'
# Ranks' ends are waited for for a while; after that nothing is to be done: poll() or ppoll() without a time. Some kernels do not tell.
waits_for_ever() {
	local call='' time=''
	read -r call _ _ time _ 2>/dev/null <"/proc/$1/syscall"
	[[ ! $call || "$call $time" =~ ^(7 0x(ffffffff){1,2}|73 0x0)$ ]]
}
wait_for "the end of all waiting for ranks" waits_for_ever "$client"
ticks() { awk '{ print $14 + $15 }' "/proc/$client/stat"; }
before=$(ticks)
sleep 1
(($(ticks) - before < 20)) || fail "it turns while nobody reads"
kill -TERM "$client"
wait "$client"
[[ $? == 143 ]] || fail "SIGTERM while nobody reads"
clients=()
exec 9>&-

# Standard input, output and error that are closed are nobody's.
run 3 -n 2 sh -c 'exit 3' <&-
run 0 -n 2 sh -c 'cat; echo text' <&-
timeout -k 1 60 "$rdmarun" --meeting none -n 2 true >&- 2>&- <&- || fail "closed descriptors: exit status $?"
timeout -k 1 60 "$rdmarun" --meeting none -n 2 echo text >&- 2>"$dir/err" </dev/null
[[ $? == 141 ]] || fail "standard output is closed, and nobody says so"

# Standard input is rank 0's.
seq 100000 >"$dir/input"
run 0 -n 3 sh -c 'cksum' <"$dir/input"
[[ $(sort -u "$dir/out") == "$(printf '%s\n' "$(cksum </dev/null)" "$(cksum <"$dir/input")" | sort -u)" ]] || fail "input"
run 0 -n 2 true <"$dir/input"
# Or nobody's, so that a shell's loop keeps what it reads.
for more in '' '-H a' '-H a,localhost'; do
	# shellcheck disable=SC2086 # words
	printf '1\n2\n3\n' | while read -r line; do
		timeout 60 "$rdmarun" --meeting none --no-stdin $more "${away[@]}" sh -c 'cat; echo "$0 of $RDMA_RANK"' "$line"
	done >"$dir/out" 2>"$dir/err"
	[[ $(grep -c ' of 0$' "$dir/out") == 3 ]] || fail "a loop lost its input $more"
	! grep -qx '[0-9]' "$dir/out" || fail "a rank has standard input $more"
done

# At a terminal, too, also when a shell has brought it back from the background.
cat >"$dir/fg.py" <<'END'
import os, pty, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
seen = b""
def wait(text):
    global seen
    while text not in seen:
        seen += os.read(terminal, 65536)
    seen = seen[seen.index(text) + len(text):]
def type(text):
    os.write(terminal, text.encode() + b"\n")
type("PS1='rea''dy$ '")
wait(b"ready$")
type(f"'{sys.argv[1]}' --meeting none -n 1 sh -c 'echo sta\"\"rted; sed -u s/^/got:/' &")
wait(b"started")
time.sleep(0.3)
type("fg")
wait(b"sed -u")
type("line")
wait(b"got:line")
os.write(terminal, b"\x04")
wait(b"ready$")
# It is that of another session.
type(f"setsid -w '{sys.argv[1]}' --meeting none -n 1 sh -c 'echo sta\"\"rted; sed -u s/^/got:/'")
wait(b"started")
type("line")
wait(b"got:line")
os.write(terminal, b"\x04")
wait(b"ready$")
type("exit")
END
timeout 60 python3 "$dir/fg.py" "$rdmarun" >"$dir/out" 2>"$dir/err" || fail "input of a terminal, after fg or of another session"

# --- how it ends

run 3 -n 3 --grace 60s sh -c '[ $RDMA_RANK = 1 ] && exit 3; exec sleep 1000' </dev/null
complains 'rank 1 ended: exit status 3; the others are ended'
# Or the others go on, to their own ends, and what the first that failed said is what is told.
# shellcheck disable=SC2016 # for the ranks
survive='cd "$0"; [ $RDMA_RANK = 1 ] && echo $$ >one && exit 3
	until [ -s one ] && ! kill -0 "$(cat one)" 2>/dev/null; do sleep 0.1; done
	echo "end of $RDMA_RANK"; exit $((RDMA_RANK * 2))'
run 3 -k -n 3 sh -c "$survive" "$dir" </dev/null
complains 'rank 1 ended: exit status 3; the others go on'
complains 'rank 2 ended: exit status 4'
says '^end of 0$' && says '^end of 2$' || fail "survivors do not go on"
run 0 -k -n 2 true </dev/null
run 137 -k -n 2 sh -c '[ $RDMA_RANK = 0 ] && kill -KILL $$; exit 0' </dev/null
run 139 -n 2 sh -c '[ $RDMA_RANK = 0 ] && kill -SEGV $$; exec sleep 1000' </dev/null
complains 'rank 0 ended: signal 11'
run 4 -n 2 --grace 50ms sh -c '[ $RDMA_RANK = 0 ] || trap "" TERM; : >$dir/ready.$RDMA_RANK; if [ $RDMA_RANK = 0 ]; then
	until [ -e $dir/ready.1 ]; do sleep 0.05; done; exit 4; fi; while :; do sleep 1000; done' </dev/null
run 5 -n 2 sh -c 'trap "exit 9" TERM; [ $RDMA_RANK = 0 ] && exit 5; while :; do sleep 0.05; done' </dev/null
run 124 -n 2 --timeout 100ms sleep 1000 </dev/null
complains 'ended after its --timeout'
run 127 -n 2 /none/such </dev/null
complains 'rank 0: cannot start /none/such: No such file'
run 126 -n 2 "$dir" </dev/null
complains 'cannot start'
# What a rank leaves behind ends with it, also what holds its output open from a session of its own.
run 0 -n 2 sh -c 'sleep 1000 & echo $! >$dir/left.$RDMA_RANK' </dev/null
wait_for "the end of what ranks left" all_ended "$(cat "$dir/left.0")" "$(cat "$dir/left.1")"
run 0 -n 1 sh -c 'setsid sleep 1000 & echo $! >$dir/far' </dev/null
kill -KILL "$(cat "$dir/far")" 2>/dev/null
# It neither takes the end of what its rank said with it, nor is it waited for by what it says itself, however slowly that is read.
cat >"$dir/leave" <<'END'
setsid sh -c 'echo $$ >"$dir/far.$RDMA_RANK"; exec "$@"' sh "$@" &
until [ -s "$dir/far.$RDMA_RANK" ]; do sleep 0.05; done
printf unfinished
END
run 0 -n 2 sh "$dir/leave" sleep 1000 </dev/null
sorted $'unfinished\nunfinished'
kill -KILL "$(cat "$dir/far.0")" "$(cat "$dir/far.1")"
rm -f "$dir/far.0"
timeout 60 "$rdmarun" --meeting none sh "$dir/leave" yes 2>"$dir/err" </dev/null | python3 -c 'import os, time
while os.read(0, 4096): time.sleep(0.01)'
[[ ${PIPESTATUS[0]} == 0 ]] || fail "what a rank left behind writes for ever, and is waited for"

# What rdmarun ignores from the start.
(trap '' PIPE USR1 && run 0 -n 1 sh -c 'grep SigIgn /proc/self/status' </dev/null && says '^SigIgn:.*1200$') || fail "ignored signals"

# Signals: start_signalled NAME ARGUMENT...: of rdmarun, with two ranks that say when they can be signalled.
start_signalled() {
	local name=$1
	shift
	rm -f "$dir"/up.*
	# Shells start what is in the background with SIGINT ignored.
	env --default-signal=INT "$rdmarun" --meeting none -n 2 "$@" sh -c 'trap "echo usr1; : >$dir/got.$RDMA_RANK" USR1; trap "echo term; exit 0" TERM INT
		echo $$ >$dir/up.$RDMA_RANK; while :; do sleep 0.05; done' >"$dir/$name" 2>"$dir/err" </dev/null &
	client=$!
	clients=("$client")
	wait_for "the start of two ranks" have 2 'up.*'
	wait_for "their numbers" test -s "$dir/up.0" -a -s "$dir/up.1"
}
rm -f "$dir"/got.*
for where in '' '-H a,b'; do
	# shellcheck disable=SC2086 # words
	start_signalled out --grace 240s $where ${where:+"${away[@]}"}
	kill -USR1 "$client"
	wait_for "USR1 at both ranks" have 2 'got.*'
	kill -INT "$client"
	wait "$client" || fail "ranks that took SIGINT well: exit status $?"
	sorted $'term\nterm\nusr1\nusr1'
	rm -f "$dir"/got.*
done
start_signalled out --grace 240s
mapfile -t pids < <(cat "$dir"/up.*)
kill -KILL "$client"
{ wait "$client"; } 2>/dev/null
wait_for "the end of ranks whose rdmarun was killed" all_ended "${pids[@]}"
# Those of a remote shell, and what they started.
start_signalled out --grace 50ms -H a,b "${away[@]}"
mapfile -t pids < <(cat "$dir"/up.*)
kill -KILL "$client"
{ wait "$client"; } 2>/dev/null
wait_for "the end of far ranks whose rdmarun was killed" all_ended "${pids[@]}"
clients=()

# --- other hosts

cd "$dir" || exit 1
: >"$dir/hosts"
run 0 -l -H a:2,b,localhost,chatty "${away[@]}" --env 'FOO=b $a"r'"'" sh -c \
	'echo "$RDMA_RANK $RDMA_LOCAL_RANK/$RDMA_LOCAL_SIZE $FOO" "$1" "$2"; pwd; cat' name 'two words' "quo'te" <<<input
sorted "0: $dir
0: 0 0/2 b \$a\"r' two words quo'te
0: input
1: $dir
1: 1 1/2 b \$a\"r' two words quo'te
2: $dir
2: 2 0/1 b \$a\"r' two words quo'te
3: $dir
3: 3 0/1 b \$a\"r' two words quo'te
4: $dir
4: 4 0/1 b \$a\"r' two words quo'te
4: welcome to chatty"
[[ $(sort "$dir/hosts") == $'a\na\nb\nchatty' ]] || fail "reached $(cat "$dir/hosts")"
run 0 -n 5 -H a:2,b "${away[@]}" true </dev/null
[[ $(tail -n 5 "$dir/hosts" | sort) == $'a\na\na\na\nb' ]] || fail "five ranks in three places"
run 0 -H a,localhost,a:2,127.0.0.1 "${away[@]}" sh -c 'echo "$RDMA_RANK $RDMA_LOCAL_RANK/$RDMA_LOCAL_SIZE"' </dev/null
sorted $'0 0/3\n1 0/2\n2 1/3\n3 2/3\n4 1/2'
run 0 -H a "${away[@]}" cksum <"$dir/input"
sorted "$(cksum <"$dir/input")"
run 7 -H a,b "${away[@]}" sh -c '[ $RDMA_RANK = 1 ] && exit 7; exec sleep 1000' </dev/null
run 137 -H a "${away[@]}" sh -c 'kill -KILL $$' </dev/null
run 255 -H a,unreachable "${away[@]}" sleep 1000 </dev/null
complains 'rank 1 at unreachable: not reached: .* ended with exit status 255'
# Also where the others would go on; what failed before is still what is told.
run 255 -k -H a,unreachable,localhost "${away[@]}" sleep 1000 </dev/null
complains 'rank 1 at unreachable: not reached: .* ended with exit status 255'
rm -f "$dir/failed"
cat >"$dir/later" <<'END'
#!/bin/sh
[ "$1" != unreachable ] || until [ -s "$dir/failed" ] && ! kill -0 "$(cat "$dir/failed")" 2>/dev/null; do sleep 0.05; done
exec "$dir/shell" "$@"
END
chmod +x "$dir/later"
run 3 -k -H a,localhost,unreachable --rsh "$dir/later" sh -c '[ $RDMA_RANK = 1 ] && echo $$ >"$dir/failed" && exit 3; exec sleep 1000' </dev/null
complains 'rank 1 ended: exit status 3; the others go on'
complains 'rank 2 at unreachable: not reached'
run 1 -H a,content "${away[@]}" sleep 1000 </dev/null
complains 'rank 1 at content: not reached: .* ended with exit status 0'
run 4 -H terse "${away[@]}" sh -c 'echo text; exit 4' </dev/null
[[ $(cat "$dir/out") == $'welcome\ntext' ]] || fail "output behind a greeting without a line feed"
complains 'rank 0 at terse ended: exit status 4'
# Its own name is this machine.
: >"$dir/hosts"
run 0 -H "$(hostname)" "${away[@]}" true </dev/null
[[ ! -s $dir/hosts ]] || fail "a remote shell to this machine"

# hosts_are TEXT ARGUMENTS...: which hosts have which ranks. The command line's come first, then a file's or a batch system's.
hosts_are() {
	local want=$1
	shift
	: >"$dir/hosts"
	run 0 "${away[@]}" "$@" sh -c 'echo $RDMA_RANK $RDMA_LOCAL_RANK/$RDMA_LOCAL_SIZE' </dev/null
	[[ "$(sort "$dir/hosts" | uniq -c | awk '{ printf "%s%s:%s", s, $2, $1; s = " " }')" == "$want" ]] ||
		fail "ranks at $(sort "$dir/hosts" | uniq -c | xargs), not $want: $*"
}
printf '# two racks\n\na:2 # the first\nb slots=3\r\n  c\n[d]\n' >"$dir/hostfile"
hosts_are 'a:2 b:3 c:1 d:1' --hostfile "$dir/hostfile"
hosts_are 'a:2 b:1' -n 3 --hostfile "$dir/hostfile"
# bad_hosts TEXT ARGUMENTS...
bad_hosts() {
	local text=$1
	shift
	run 2 "$@" true </dev/null
	complains "$text"
}
bad_hosts 'cannot read the hosts in /none/such: No such file' --hostfile /none/such
bad_hosts "names no hosts" --hostfile /dev/null
for line in 'a:0' 'a slots=0' 'a cpus=4' '-x' 'a b'; do
	echo "$line" >"$dir/bad"
	bad_hosts "$dir/bad: " --hostfile "$dir/bad"
done
# Slurm's list of hosts, and of tasks.
export SLURM_JOB_NODELIST='node[01-03,07],gpu1,r[1-2]n[9-10]-x'
hosts_are 'gpu1:1 node01:1 node02:1 node03:1 node07:1 r1n10-x:1 r1n9-x:1 r2n10-x:1 r2n9-x:1'
SLURM_TASKS_PER_NODE='2(x3),1,4,1(x4)' hosts_are 'gpu1:4 node01:2 node02:2 node03:2 node07:1 r1n10-x:1 r1n9-x:1 r2n10-x:1 r2n9-x:1'
SLURM_TASKS_PER_NODE=2 hosts_are 'node01:2 node02:1' -n 3
complains "this is a job of Slurm: 'srun PROGRAM' starts its ranks without"
hosts_are 'a:1' -H a
grep -q Slurm "$dir/err" && fail "hosts that are named are none of Slurm's"
hosts_are '' -H localhost
SLURM_TASKS_PER_NODE=x bad_hosts 'SLURM_TASKS_PER_NODE: "x" is no list'
for nodes in 'a[1-' 'a[x]' 'a[2-1]' 'a[1-99999999999]' '-a' 'a,,b' 'a[]' 'a[1-2' 'a[1-3][1-9999][1-9999]' "$(printf 'x%.0s' {1..300})"; do
	SLURM_JOB_NODELIST=$nodes bad_hosts 'SLURM_JOB_NODELIST: '
done
SLURM_JOB_NODELIST="$(hostname)" hosts_are ''
unset SLURM_JOB_NODELIST
printf 'a\na\nb\n' >"$dir/nodes"
PBS_NODEFILE=$dir/nodes hosts_are 'a:2 b:1'
PBS_NODEFILE=/none/such bad_hosts 'cannot read the hosts in /none/such'
# Several of rdmarun, which another launcher has started.
for launcher in 'mpirun OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE' 'mpiexec PMI_RANK PMI_SIZE' 'srun SLURM_PROCID SLURM_STEP_NUM_TASKS'; do
	read -r name rank size <<<"$launcher"
	env "$rank=0" "$size=2" "$rdmarun" --meeting none -n 1 true >"$dir/out" 2>"$dir/err" </dev/null || fail "beside $name: exit status $?"
	complains "$name has started 2 of rdmarun, and each starts a run of its own; '$name PROGRAM' starts"
	for other in "$rank=1 $size=2" "$rank=0 $size=1" "$rank=0" "$size=2" "$rank=0 $size=x"; do
		# shellcheck disable=SC2086 # several variables
		env $other "$rdmarun" --meeting none -n 1 true >"$dir/out" 2>"$dir/err" </dev/null || fail "beside $name: exit status $?"
		[[ ! -s $dir/err ]] || fail "complains of $other"
	done
done
# A second signal ends a remote shell at which nobody reads it.
rm -f "$dir/here"
env --default-signal=INT "$rdmarun" -v --meeting none -H silent,localhost "${away[@]}" --grace 240s sh -c 'trap "" INT; : >"$dir/here"; while :; do sleep 1; done' \
	>"$dir/out" 2>"$dir/err" </dev/null &
client=$!
clients=("$client")
wait_for "a rank" test -e "$dir/here"
kill -INT "$client"
wait_for "the first signal" grep -q 'passing on' "$dir/err" # two that wait are one
kill -INT "$client"
wait_for "the end after a second signal" ended "$client"
wait "$client"
[[ $? == 137 ]] || fail "a second signal"
clients=()
run 127 -H a "${away[@]}" --remote /none/rdmarun true </dev/null
complains 'rank 0 at a: no rdmarun there'
run 127 -H a "${away[@]}" /none/such </dev/null
complains 'cannot start /none/such'
run 1 -H a "${away[@]}" -C /none/such true </dev/null
complains 'cannot go to the directory /none/such'
run 4 -H a,b --grace 50ms "${away[@]}" sh -c 'trap "" TERM; : >$dir/deaf.$RDMA_RANK; if [ $RDMA_RANK = 0 ]; then
	until [ -e $dir/deaf.1 ]; do sleep 0.05; done; exit 4; fi; while :; do sleep 1000; done' </dev/null
# What is no rdmarun at the other end of an agent.
printf zzzz | "$rdmarun" --agent >"$dir/out" 2>"$dir/err"
[[ $? == 1 ]] || fail "an agent whose input ends in the midst of a frame: exit status $?"
printf 'a\377\377\377\377' | "$rdmarun" --agent >"$dir/out" 2>"$dir/err"
complains 'of no rdmarun of this version'
cd "$builddir" || exit 1

# --- the meeting point

export TMPDIR=$dir/tmp
mkdir "$TMPDIR"
# meet STATUS ARGUMENTS: with an rdmad of the run's own.
meet() {
	local want=$1 got
	shift
	timeout 240 "$rdmarun" --rdmad "$rdmad" "$@" >"$dir/out" 2>"$dir/err" </dev/null
	got=$?
	[[ $got == "$want" ]] || fail "rdmarun $*: exit status $got, not $want"
	[[ -z $(ls -A "$TMPDIR") ]] || fail "left behind: $(ls -A "$TMPDIR")"
}
meet 0 -n 2 sh -c 'case $RDMA_MEETING in unix://*) test -S "${RDMA_MEETING#unix://}" && echo there ;; esac'
sorted $'there\nthere'
meet 0 -H a,b "${away[@]}" --address 127.0.0.1 sh -c 'echo "$RDMA_MEETING"'
says '^tcp://127\.0\.0\.1:[1-9][0-9]*$'
meet 0 -H a,b "${away[@]}" --address fd77::1 sh -c 'echo "$RDMA_MEETING"'
says '^tcp://\[fd77::1\]:[1-9][0-9]*$'
# Each run has a key of its own, which is in no argument of any process.
meet 0 -n 2 sh -c 'echo "$RDMA_KEY"'
[[ $(sort -u "$dir/out" | wc -l) == 1 && $(<"$dir/out") == rdmad1:1:run:* ]] || fail "the ranks' key"
first=$(head -n 1 "$dir/out")
meet 0 -H a,b "${away[@]}" --address 127.0.0.1 sh -c 'echo "$RDMA_KEY"
	printf %s "${RDMA_KEY##*:}" >"$dir/secret.$RDMA_RANK"
	for at in /proc/[0-9]*/cmdline; do ! tr "\0" " " <"$at" 2>/dev/null | grep -qFf "$dir/secret.$RDMA_RANK" || echo "told by $at"; done'
[[ $(sort -u "$dir/out" | wc -l) == 1 && $(<"$dir/out") == rdmad1:1:run:* ]] || fail "the ranks' key: $(<"$dir/out")"
[[ $(head -n 1 "$dir/out") != "$first" ]] || fail "two runs have one key"
RDMA_KEY=$first run 0 -n 1 sh -c 'echo "${RDMA_KEY-none}"' </dev/null
says '^none$'
# The user's own key, which is for other servers, is none for the ranks; and a rank asks clients of this machine, too.
"$rdmactl" --quiet key new me >"$dir/own.key"
chmod 600 "$dir/own.key"
RDMAD_KEY_FILE=$dir/own.key timeout 240 "$rdmarun" --rdmad "$rdmad" -H a,b "${away[@]}" --address 127.0.0.1 --env LD_LIBRARY_PATH \
	sh -c 'echo $$ >"$dir/bench.$RDMA_RANK"; exec "$0" bench peer -s 8 -D 600s' "$rdmactl" >"$dir/out" 2>"$dir/err" </dev/null &
client=$!
clients=("$client")
rank_port() { # of a rank that listens
	local at
	port=''
	for at in "$dir"/bench.[01]; do
		[[ -s $at ]] && port=$(ss -Hltnp 2>/dev/null | awk -v pid="pid=$(<"$at")," 'index($0, pid) {sub(/.*:/, "", $4); print $4; exit}')
		[[ $port ]] && return
	done
	return 1
}
wait_for "a rank that listens" rank_port
RDMAD_KEY_FILE='' ends 1 "asks for a key" "$rdmactl" peer send -c "127.0.0.1:$port"
RDMAD_KEY_FILE='' ends 1 "does not have key" "$rdmactl" --key "$dir/own.key" peer send -c "127.0.0.1:$port"
kill -TERM "$client" || fail "strangers end a run"
wait "$client"
clients=()
# Where all are here, there is a directory for their sockets that nobody else enters, also with another meeting point.
private='test "$(stat -c %a:%u "$RDMA_DIRECTORY")" = "700:$(id -u)" && echo private'
meet 0 -n 2 sh -c "$private"
sorted $'private\nprivate'
meet 0 -n 2 --meeting 127.0.0.1:7 sh -c "$private"
sorted $'private\nprivate'
RDMA_DIRECTORY=$dir meet 0 -H a,localhost "${away[@]}" --address 127.0.0.1 sh -c 'echo "${RDMA_DIRECTORY-none}"'
sorted $'none\nnone'
# What stands in the place of the directory at the end is none of ours; what is in the directory goes, wherever it is.
mkdir "$dir/precious"
: >"$dir/precious/file"
for what in link directory; do
	timeout 60 "$rdmarun" --rdmad "$rdmad" sh -c 'mv "$RDMA_DIRECTORY" "$dir/moved"
		case $0 in link) ln -s "$dir/precious" "$RDMA_DIRECTORY" ;; *) mkdir "$RDMA_DIRECTORY" && : >"$RDMA_DIRECTORY/file" ;; esac' "$what" \
		>"$dir/out" 2>"$dir/err" </dev/null || fail "a run without its directory: exit status $?"
	[[ -e $dir/precious/file ]] || fail "what a link led to was removed"
	[[ -z $(ls -A "$dir/moved") ]] || fail "left in the directory: $(ls -A "$dir/moved")"
	[[ $what == link || -n $(find "$TMPDIR" -name file) ]] || fail "a directory of another was emptied"
	rm -rf "$dir/moved" "${TMPDIR:?}"/rdmarun.*
done
meet 1 -n 2 --rdmad /none/rdmad true
complains 'the meeting point: cannot start /none/rdmad'
meet 1 -n 2 --rdmad false true
complains 'the meeting point has ended before it was ready'
# One that never is ready does not keep one that was told to end.
printf '#!/bin/sh\necho $$ >"$dir/never"\nexec sleep 1000\n' >"$dir/never.rdmad"
chmod +x "$dir/never.rdmad"
meet 124 -n 2 --rdmad "$dir/never.rdmad" --timeout 300ms true
rm -f "$dir/never"
"$rdmarun" --rdmad "$dir/never.rdmad" true >"$dir/out" 2>"$dir/err" </dev/null &
client=$!
clients=("$client")
wait_for "the meeting point" test -s "$dir/never"
kill -TERM "$client"
wait "$client"
[[ $? == 143 ]] || fail "SIGTERM before the meeting point is ready"
clients=()
# A place whose name would be cut, at its own end, keeps what it has.
long=$dir/
while ((${#long} < 199)); do long+=x; done
mkdir "$long"
: >"$long/file"
TMPDIR=$long timeout 240 "$rdmarun" --rdmad "$rdmad" true >"$dir/out" 2>"$dir/err" </dev/null
[[ $? == 1 ]] || fail "a TMPDIR that is too long"
complains 'TMPDIR is too long'
[[ -e $long/file ]] || fail "a long TMPDIR was emptied"
# Nor does a guard that cannot start leave anything.
(ulimit -n 5 && meet 1 true && complains 'cannot make a pipe') || fail "a guard that cannot start"
# It goes when rdmarun is killed.
"$rdmarun" --rdmad "$rdmad" sh -c ': >$dir/met; exec sleep 1000' >"$dir/out" 2>"$dir/err" </dev/null &
client=$!
clients=("$client")
wait_for "a rank" test -e "$dir/met"
mapfile -t pids < <(pgrep -P "$client")
kill -KILL "$client"
{ wait "$client"; } 2>/dev/null
clients=()
wait_for "the end of an rdmad whose rdmarun was killed" all_ended "${pids[@]}"
nothing_is_left() { [[ -z $(ls -A "$TMPDIR") ]]; }
wait_for "the end of its directory" nothing_is_left
conclude
