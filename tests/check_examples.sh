#!/bin/bash
# Each C program in README.md and in section 3 of the manual compiles without a warning, links, and succeeds at an rdmad from
# the build tree.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
need jq

# Programs of a page, as NAME.1.c, NAME.2.c ... in the temporary directory: what stands between two marks and has a main().
programs() {
	local name
	name=$(basename "$1")
	awk -v begin="$2" -v end="$3" -v place="$dir/$name" '
		$0 ~ begin { inside = 1; text = ""; next }
		inside && $0 ~ end { if (text ~ /int main\(/) printf "%s", text >(place "." ++n ".c"); inside = 0; next }
		inside { gsub(/\\e/, "\\"); text = text $0 "\n" }' "$1"
}

# shellcheck disable=SC2086 # words
try() {
	local program=${1%.c} name
	name=$(basename "$program")
	$compile $flags -std=c99 -pedantic -Wall -Wextra -Werror -I"$srcdir/src/include" -c "$1" -o "$program.o" >"$dir/out" 2>"$dir/err" ||
		{ fail "$name does not compile"; return; }
	"$builddir/libtool" --quiet --mode=link $compile $flags "$program.o" "$builddir/librdmad.la" -o "$program" >"$dir/out" 2>"$dir/err" ||
		{ fail "$name does not link"; return; }
	timeout 60 "$program" "$server" >"$dir/out" 2>"$dir/err" || { fail "$name: exit status $?"; return; }
	[[ -s $dir/out ]] || fail "$name says nothing"
	echo "$name: $(head -n 1 "$dir/out")"
}

[[ -e $builddir/libtool ]] || { echo "check_examples: the library was not built here"; exit 77; }
compile=$(sed -n 's/^CC = //p' "$builddir/Makefile")
flags=$(sed -n 's/^SANITIZER_CFLAGS = //p' "$builddir/Makefile")
programs "$srcdir/README.md" '^```c$' '^```$'
for page in "$srcdir"/man/*.3; do
	programs "$page" '^\.Bd -literal' '^\.Ed'
done
for page in README.md rdmad_kv.3 rdmad_ping.3 rdmad_gpu.3; do
	[[ -e $dir/$page.1.c ]] || fail "$page has no program"
done
configure "gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; memory = \"32M\"; };"
start_daemon
server=unix://$dir/rdmad.sock
for source in "$dir"/*.c; do
	try "$source"
done
server=''
stop_daemon
conclude
