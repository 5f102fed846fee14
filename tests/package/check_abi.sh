#!/bin/bash
# check_abi.sh: the libraries have the interface that is recorded for their name, or more; and a break would be found.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
export RDMAD_ABI=$dir/abi
mkdir "$dir/abi" && cp "$srcdir"/tests/package/*.abi "$dir/abi/"
"$srcdir/scripts/abi" "$builddir" >"$dir/out" 2>"$dir/err"
case $? in
0) ;;
77) cat "$dir/out"; exit 77 ;;
*) fail "the interface has changed" ;;
esac

# One more function, and one with another type, in what is recorded.
sed -i "0,/<elf-symbol name='kv_get'/s//<elf-symbol name='kv_gone' version='RDMAD_0' is-default-version='yes' type='func-type' binding='global-binding' visibility='default-visibility' is-defined='yes'\/>\n    &/" "$dir/abi/librdmad.abi"
ends 1 "kv_gone" "$srcdir/scripts/abi" "$builddir"
says "librdmad.so.* may break" "a function that is gone"
sed -i "s/soname='librdmad.so.[0-9]*'/soname='librdmad.so.0'/" "$dir/abi/librdmad.abi"
ends 0 "kv_gone" "$srcdir/scripts/abi" "$builddir"
cp "$srcdir/tests/package/librdmad.abi" "$dir/abi/"
python3 - "$dir/abi/librdmad.abi" <<-'END'
import re, sys
text = open(sys.argv[1]).read()
changed = re.sub(r"(<function-decl name='kv_get' .*?)<parameter [^>]*/>", r"\1", text, count=1, flags=re.S)
assert changed != text
open(sys.argv[1], "w").write(changed)
END
ends 1 "kv_get" "$srcdir/scripts/abi" "$builddir"
conclude
