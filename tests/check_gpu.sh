#!/bin/bash
# check_gpu.sh: what rdmad-gpu says on a command line.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"

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
conclude
