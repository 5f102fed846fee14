#!/bin/bash
# check_gpu_kernel.sh: what the kernel says to the bus, in the text that nvcc makes of it: the order and number of what costs a
# round trip, which no processor shows.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || { echo "skipped: no nvcc" && exit 77; }
"$nvcc" -std=c++17 -O3 -arch=compute_75 -I"$srcdir/src" -ptx -o "$dir/kernel.ptx" "$srcdir/src/gpu/cuda/kernel.cu" ||
	give_up "the kernel does not compile"
count() { grep -c -- "$1" "$dir/kernel.ptx"; }

# A job's descriptor: eight loads, and no store, barrier or use of what was loaded between them.
between=$(sed -n '/ld\.relaxed\.sys/,/^[[:space:]]*st\.shared/p' "$dir/kernel.ptx" | grep -v '^[[:space:]]*//')
[[ $(grep -c 'ld\.relaxed\.sys' <<<"$between") == 8 && $(wc -l <<<"$between") == 9 ]] ||
	fail "the descriptor is not loaded at once: $between"
# A result: one fence, and both words in one store behind it.
[[ $(count 'fence\.acq_rel\.sys') == 1 && $(count 'st\.relaxed\.sys\.v2\.u64') == 1 ]] ||
	fail "a result is published by more than one fence and one store"
# Beside that, a fence for each piece of a large job, which two places carry out, and none else.
[[ $(count 'membar\.sys\|fence\.sc\.sys') == 2 ]] || fail "$(count 'membar\.sys\|fence\.sc\.sys') fences for pieces"
conclude
