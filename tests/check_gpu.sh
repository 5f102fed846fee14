#!/bin/sh
# check_gpu.sh: what rdmad-gpu says on a command line.
set -u
failed=0

# STATUS TEXT ARGUMENT...: it ends so, and prints that.
expect() {
	status=$1 text=$2
	shift 2
	out=$(./rdmad-gpu "$@" 2>&1 </dev/null)
	got=$?
	if [ $got -ne "$status" ]; then
		echo "rdmad-gpu $*: exit status $got, not $status: $out" >&2
		failed=1
	fi
	case $out in
	*"$text"*) ;;
	*)
		echo "rdmad-gpu $*: no '$text' in: $out" >&2
		failed=1
		;;
	esac
}

expect 0 "usage: rdmad-gpu" --help
expect 0 "threads of this machine" --help
expect 0 "rdmad-gpu " --version
expect 0 "backend cpu" --probe --backend cpu
expect 0 "device 3 threads" --probe --backend cpu --threads 3
expect 69 "there is no backend abacus" --probe --backend abacus
expect 64 "--ring, --control and --event"
expect 64 "--ring, --control and --event" --ring 3
expect 64 "unexpected argument x" --probe x
expect 64 "Try 'rdmad-gpu --help'" --nonsense
expect 64 "--threads many" --probe --threads many
expect 64 "--threads 1000" --probe --threads 1000
expect 64 "--timeout 5" --probe --timeout 5
expect 64 "longer than no time" --probe --timeout 0
expect 64 "--size 64" --measure --size 64
expect 64 "--size 0x64" --measure --size 0x64
expect 64 "--size 65536x65536" --measure --size 65536x65536
expect 64 "levels are between" --measure --levels 257
expect 64 "images at least 1" --measure -n 0
# Descriptors that are not what they should be.
expect 65 "no sealed memory" --ring 1 --control 2 --event 2
expect 0 "Tring" --measure --backend cpu -n 20
expect 0 '"images": 20, "quantize_ns": ' --measure --backend cpu -n 20 --size 31x7 --levels 256 --json
exit $failed
