#!/bin/bash
# check_inherit.sh: sockets that the service manager listens on and hands down. Clients that come before the daemon, or while it
# restarts, are served when it is there; a socket that no setting names, or that is no listener, is logged and does no harm.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need python3 jq

# Listens as a service manager does, and starts rdmad for each line of its input: the id that it gives as the process's own, or
# "own". It says the ports first, and then each daemon's exit status.
launcher() {
	python3 -c '
import os, socket, subprocess, sys
folder, rdmad = sys.argv[1:]
def tcp(kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind)
    s.bind(("127.0.0.1", 0))
    return s
def unix(name):
    s = socket.socket(socket.AF_UNIX)
    s.bind(folder + "/" + name)
    return s
sockets = [tcp(), unix("redis.sock"), unix("control.sock"), tcp(), tcp(socket.SOCK_DGRAM)]
for s in sockets[:4]:
    s.listen()
print(sockets[0].getsockname()[1], sockets[3].getsockname()[1], flush=True)
first = max(s.fileno() for s in sockets) + len(sockets) + 3
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.environ.update(LISTEN_FDS=str(len(sockets)), LISTEN_FDNAMES="a:b:c:d:e", LISTEN_PID=line.strip() if line != "own\n" else str(os.getpid()))
        high = [os.dup2(s.fileno(), first + i) for i, s in enumerate(sockets)]
        log = os.open(folder + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 2)
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
        os.closerange(3 + len(sockets), 256)
        os.execv(rdmad, [rdmad, "-c", folder + "/rdmad.conf"])
    print(child, flush=True)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
' "$dir" "$rdmad"
}

# resp WHERE COMMAND: the first line of the answer.
resp() {
	python3 - "$@" <<-'END'
	import socket, sys
	s = socket.socket(socket.AF_UNIX if sys.argv[1][0] == "/" else socket.AF_INET)
	s.settimeout(120)
	s.connect(sys.argv[1] if sys.argv[1][0] == "/" else ("127.0.0.1", int(sys.argv[1])))
	s.sendall(sys.argv[2].encode() + b"\r\n")
	print(s.makefile("rb").readline().decode().strip())
	END
}

mkfifo "$dir/commands"
: >"$dir/told" # the launcher may open it later than it is looked at
launcher <"$dir/commands" >"$dir/told" 2>"$dir/launcher" &
clients=($!)
exec 9>"$dir/commands"
told() { mapfile -t said <"$dir/told"; [[ ${#said[@]} -ge $1 ]]; }
wait_for "the launcher" told 1 || give_up "$(cat "$dir/launcher")"
read -r port unnamed <<<"${said[0]}"
configure "resp = { listen = [\"127.0.0.1:$port\"]; unix_socket = \"$dir/redis.sock\"; };"

# It is asked before it runs.
resp "$port" PING >"$dir/early" &
clients+=($!)
echo own >&9
wait "${clients[1]}"
[[ $(cat "$dir/early") == +PONG ]] || fail "a client that came first got $(cat "$dir/early")"
[[ $(resp "$dir/redis.sock" "SET key value") == +OK ]] || fail "the UNIX socket"
control status | jq -e .ok >"$dir/out" || fail "the control socket"
logged "the service manager listens on 127.0.0.1:$unnamed, which no setting of rdmad.conf names"
logged "descriptor 7 of the service manager is none of"
[[ $(find "$dir" -name '*.sock' | wc -l) == 3 ]] || fail "there are $(find "$dir" -name '*.sock')"

# A restart: a client that comes meanwhile is served by the next daemon.
told 2
kill "${said[1]}"
wait_for "the end" told 3
[[ ${said[2]} == "ended 0" ]] || fail "the daemon ${said[2]}"
[[ -S $dir/redis.sock && -S $dir/control.sock ]] || fail "the daemon removed the service manager's sockets"
resp "$port" PING >"$dir/early" &
clients[1]=$!
echo own >&9
wait "${clients[1]}"
[[ $(cat "$dir/early") == +PONG ]] || fail "a client between two daemons got $(cat "$dir/early")"
wait_for "the next" told 4
kill "${said[3]}"
wait_for "its end" told 5

# Sockets for another process are none of its own, and the port is in use.
echo 1 >&9
wait_for "the third" told 7
[[ ${said[6]} == "ended 71" ]] || fail "with sockets of another process it ${said[6]}"
logged "cannot listen on 127.0.0.1:$port for resp: Address already in use"
exec 9>&-
conclude
