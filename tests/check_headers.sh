#!/bin/sh
# check_headers.sh: each installed header compiles alone, as C99 -pedantic and as C++.
set -eu

include=${srcdir:-.}/src/include
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# compile COMPILER STANDARD SUFFIX HEADER
compile() {
	printf '#include <%s>\n#include <%s>\n' "$4" "$4" >"$scratch/one.$3"
	$1 -std="$2" -pedantic -Wall -Wextra -Werror -I"$include" -fsyntax-only "$scratch/one.$3" || {
		echo "$4 does not compile alone as $2" >&2
		exit 1
	}
}

headers=$(cd "$include" && find rdmad -name '*.h' | sort)
test -n "$headers"
cxx=$(command -v "${CXX:-c++}" || true)
test -n "$cxx" || echo "no C++ compiler: C alone is checked"
for header in $headers; do
	compile "${CC:-cc}" c99 c "$header"
	compile "${CC:-cc}" c11 c "$header"
	test -z "$cxx" || compile "$cxx" c++11 cc "$header"
done
