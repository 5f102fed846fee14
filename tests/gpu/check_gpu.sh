#!/bin/bash
# check_gpu.sh: what rdmad-gpu says on a command line.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# STATUS TEXT ARGUMENT...: rdmad-gpu ends so, and prints that.
gpu() { ends "$1" "$2" "$builddir/rdmad-gpu" "${@:3}"; }

gpu 0 "usage: rdmad-gpu" --help
gpu 0 "threads of this machine" --help
gpu 0 "rdmad-gpu " --version
gpu 0 "backend cpu" --probe --backend cpu
gpu 0 "device 3 threads" --probe --backend cpu --threads 3
gpu 69 "there is no backend abacus" --probe --backend abacus
gpu 64 "--ring, --control and --event"
gpu 64 "--ring, --control and --event" --ring 3
gpu 64 "unexpected argument x" --probe x
gpu 64 "Try 'rdmad-gpu --help'" --nonsense
gpu 64 "--threads many" --probe --threads many
gpu 64 "--threads 1000" --probe --threads 1000
gpu 64 "--timeout 5" --probe --timeout 5
gpu 64 "longer than no time" --probe --timeout 0
gpu 64 "--size 64" --measure --size 64
gpu 64 "--size 0x64" --measure --size 0x64
gpu 64 "--size 65536x65536" --measure --size 65536x65536
gpu 64 "levels are between" --measure --levels 257
gpu 64 "images at least 1" --measure -n 0
# Descriptors that are not what they should be.
gpu 65 "no sealed memory" --ring 1 --control 2 --event 2
gpu 0 "Tring" --measure --backend cpu -n 20
gpu 0 '"images": 20, "quantize_ns": ' --measure --backend cpu -n 20 --size 31x7 --levels 256 --json

# Under a filter that forbids the calls by which a session's process confines itself; a build with sanitizers leaves them out.
cat >"$dir/without.py" <<'END'
import ctypes, os, struct, sys
calls = {"x86_64": 317, "aarch64": 277}[os.uname().machine], 444, 445, 446
code = [(0x20, 0, 0, 0)] + [(0x15, len(calls) - i, 0, call) for i, call in enumerate(calls)]
code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]  # allow; EPERM
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in code))
program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, program, 0, 0):
    sys.exit("no filter: %s" % os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
END
lacks="Landlock (Operation not permitted), a filter of system calls (Operation not permitted)"
if ! grep -qs RDMAD_SANITIZED "$builddir/Makefile" && command -v python3 >/dev/null; then
	gpu 0 "backend cpu" --probe --backend cpu
	! grep -q "^lacks .*filter" "$dir/out" || fail "a filter is there to be had"
	ends 0 "lacks $lacks" python3 "$dir/without.py" "$builddir/rdmad-gpu" --probe --backend cpu
	printf '#!/bin/sh\nexec python3 %s %s "$@"\n' "$dir/without.py" "$(command -v "$rdmad")" >"$dir/confined"
	chmod +x "$dir/confined"
	rdmad=$dir/confined
	configure "gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; };"
	start_daemon
	logged "the process of a session is confined less: here it cannot have $lacks"
	[[ $(control status | jq -r .gpu.sandbox_lacks) == "$lacks" ]] || fail "the status does not tell what the sandbox lacks"
	ends 0 "; without Landlock" "$rdmactl" -H "${servers[0]}" gpu info
	stop_daemon
fi
conclude
