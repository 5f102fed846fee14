#!/bin/bash
# The wheel: it builds without a network, is of Python alone, has all of the package, and works where it is unpacked.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need python3
# shellcheck source=tests/python/python.sh
. "$srcdir/tests/python/python.sh"
"$python" -c 'import build, setuptools, wheel' 2>/dev/null ||
	{ echo "$test_name: python3-build, -setuptools or -wheel is missing: scripts/packages --install"; exit 77; }

# The build writes beside the sources, which may be read-only.
mkdir "$dir/source" "$dir/site"
cp "$srcdir/python/pyproject.toml" "$dir/source"
cp -r "$srcdir/python/rdmad" "$dir/source/rdmad"
chmod -R u+w "$dir/source"
rm -rf "$dir/source/rdmad/__pycache__"
(cd "$dir/source" && timeout 300 "$python" -m build --wheel --no-isolation --outdir "$dir/wheel" .) \
	>"$dir/out" 2>"$dir/err" ||
	{ fail "the wheel"; conclude; }
version=$(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' "$builddir/config.h")
wheel=$dir/wheel/rdmad-$version-py3-none-any.whl
[[ -e $wheel ]] || { fail "another wheel: $(ls "$dir/wheel")"; conclude; }
"$python" -m zipfile -e "$wheel" "$dir/site"
diff <(cd "$dir/source/rdmad" && ls) <(cd "$dir/site/rdmad" && ls) >"$dir/out" 2>&1 || fail "files of the wheel"

configure 'services = ["kv"];'
start_daemon
cd "$dir" || exit 1
ends 0 "$version b'value' $dir/site/rdmad/__init__.py" env PYTHONPATH="$dir/site" LD_PRELOAD="$preload" "$python" -c '
import sys, rdmad
with rdmad.Store(sys.argv[1]) as store:
    store["key"] = b"value"
    print(rdmad.__version__, store.get("key"), rdmad.__file__)' "${servers[0]}"
stop_daemon
conclude
