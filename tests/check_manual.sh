#!/bin/sh
# check_manual.sh: what callers and other peers use has its place in the manual: each function of the installed headers, each
# operation of the protocol, each operation of the gpu service. tests/check_ctl.c and check_daemon.sh look for the rest.
set -eu

top=${srcdir:-.}

# told WHAT WORDS PATTERN PAGE...: for each line of words there is a line of the pages with the pattern, whose % stands for it
told() {
	what=$1 words=$2 pattern=$3
	shift 3
	[ -n "$words" ] || { echo "there are no $what" >&2; exit 1; }
	echo "$words" | while read -r one; do
		grep -q -e "$(echo "$pattern" | sed "s/%/$one/")" "$@" || { echo "the manual lacks $one" >&2; exit 1; }
	done
	echo "$what: $(echo "$words" | wc -l)"
}

told functions "$(sed -n 's/.*\<\(\(kv\|rdmad\)_[a-z0-9_]*\)([^0-9].*/\1/p' "$top"/src/include/rdmad/*.h | sort -u)" \
	'^\.F[no] %\>' "$top"/man/*.3
told operations "$(sed -n 's/^\tX([A-Z_]*, \([0-9]*\), [a-z_]*, "\([a-z ]*\)").*/\1 \2/p' "$top/src/wire/wire.h")" \
	'^\.It % Ta' "$top/man/rdmad-protocol.7"
told jobs "$(sed -n 's/^\tX([A-Z_]*, \([0-9]*\), \([a-z_]*\), [a-z_]*).*/\1 \2/p' "$top/src/wire/gpu_operations.h")" \
	'^\.It % Ta' "$top/man/rdmad-gpu-ring.7"
