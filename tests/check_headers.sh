#!/bin/sh
# check_headers.sh: each header compiles alone, and twice: the installed ones as C99 -pedantic, C11 and C++, the others as
# the project's C with all its warnings. Each function of the installed ones is in the manual. Runs in the build directory,
# whose Makefile has the flags.
set -eu

src=${srcdir:-.}/src
include=$src/include
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What a header needs that is not to be had here.
exceptions='gpu/cuda/device.h: the words of CUDA or of the fake driver, which come before it
gpu/cuda/spread.h: the same'

# compile COMPILER SUFFIX HEADER FLAG...
compile() {
	compiler=$1 suffix=$2 header=$3
	shift 3
	printf '#include <%s>\n#include <%s>\n' "$header" "$header" >"$scratch/one.$suffix"
	# shellcheck disable=SC2086 # a compiler may be two words
	$compiler "$@" -Wall -Wextra -Werror -I"$include" -fsyntax-only "$scratch/one.$suffix" || {
		echo "$header does not compile alone: $*" >&2
		exit 1
	}
}

# The value of a variable in the Makefile.
value() { sed -n "s/^$1 = //p" Makefile; }

headers=$(cd "$include" && find rdmad rdma_lib.h -name '*.h' | sort)
test -n "$headers"
cxx=$(command -v "${CXX:-c++}" || true)
test -n "$cxx" || echo "no C++ compiler: C alone is checked"
for header in $headers; do
	compile "${CC:-cc}" c "$header" -std=c99 -pedantic
	compile "${CC:-cc}" c "$header" -std=c11 -pedantic
	test -z "$cxx" || compile "$cxx" cc "$header" -std=c++11 -pedantic
done

flags="-std=gnu11 -D_GNU_SOURCE $(value WARNING_CFLAGS) $(value SANITIZER_CFLAGS)"
for library in VERBS EVENT CONFIG JANSSON PNG XXHASH LUA; do
	flags="$flags $(value ${library}_CFLAGS)"
done
test -n "$(value LUA_CFLAGS)" || exceptions="$exceptions
service/resp/script/run.h: Lua is not here"
internal=$(cd "$src" && find . -path ./include -prune -o -name '*.h' -print | sed 's,^\./,,' | sort)
test -n "$internal"
for header in $internal; do
	case "$exceptions" in
	*"$header: "*) ;;
	*)
		# shellcheck disable=SC2086 # words
		compile "${CC:-cc}" c "$header" $flags -I"$src"
		;;
	esac
done
echo "$exceptions" | while IFS=: read -r header reason; do
	test -e "$src/$header" || { echo "there is no $header any more: $reason" >&2; exit 1; }
done

# A function that a caller sees stands in a page of section 3, also in its NAME, by which man(1) finds it; one is behind a macro, one a
# type of callbacks.
manual=${srcdir:-.}/man
named=$(sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z0-9_]*\).*/\1/p' "$manual"/*.3)
for function in $(cd "$include" && grep -ohE '\b(rdmad|rdma|kv)_[a-z0-9_]+\([^0-9)]' rdmad/*.h rdma_lib.h | sed 's/(.*//' |
	grep -vx rdma_init_limits | sort -u); do
	grep -qE "^\.F[no] .*\b$function\b" "$manual"/*.3 || { echo "no page of section 3 has $function()" >&2; exit 1; }
	[ "$function" = rdma_lost_fn ] || echo "$named" | grep -qx "$function" || { echo "no NAME of a page of section 3 has $function()" >&2; exit 1; }
done
echo "$(echo "$headers" | wc -l) installed headers and $(echo "$internal" | wc -l) others, but $exceptions"
