#!/bin/bash
# The Python package: its declarations, types, and each part against a server of its own.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need python3
# shellcheck source=tests/python/python.sh
. "$srcdir/tests/python/python.sh"
"$python" -c 'import pytest, hypothesis, numpy' 2>/dev/null ||
	{ echo "$test_name: pytest, hypothesis or numpy is missing: scripts/packages --install"; exit 77; }

export PYTHONPATH=$srcdir/python RDMAD_TEST_DAEMON=$rdmad RDMAD_TEST_CUDA=$builddir/tests/fake/.libs/libcuda.so.1
CC=$cc "$python" "$srcdir/scripts/python-declarations" "$srcdir" || fail "the declarations"
if "$python" -c 'import mypy' 2>/dev/null; then
	(cd "$srcdir/python" && "$python" -m mypy --cache-dir="$dir/mypy" rdmad) >"$dir/out" 2>&1 || fail "mypy: $(cat "$dir/out")"
else
	echo "$test_name: mypy is missing: types were not looked at"
fi

# The sizes that the compiler gives to the structures.
{
	printf '#include <%s>\n' stdio.h rdmad/kv.h rdmad/channel.h rdmad/peer.h rdma_lib.h
	echo 'int main(void) {'
	sed -n 's/^class \([a-z_]*\)(Structure):/\1/p' "$srcdir/python/rdmad/_declarations.py" | while read -r name; do
		case $name in
		iovec) ;;
		rdma_options) echo "printf(\"$name %zu\\n\", sizeof($name));" ;;
		*) echo "printf(\"$name %zu\\n\", sizeof(struct $name));" ;;
		esac
	done
	echo 'return 0; }'
} >"$dir/sizes.c"
${cc##* } -I"$srcdir/src/include" -o "$dir/sizes" "$dir/sizes.c" || fail "sizes.c"
RDMAD_TEST_SIZES=$("$dir/sizes")
export RDMAD_TEST_SIZES

configure 'services = ["kv", "ping", "channel", "peer"];' 'kv = { memory = "256M"; value_max = "32M"; };' 'workers = 2;'
start_daemon

# pytest_at ADDRESS FILE...
pytest_at() {
	local files=("${@:2}")
	RDMAD_TEST_SERVER=$1 LD_PRELOAD=$preload timeout 900 "$python" -m pytest -q --tb=short -p no:cacheprovider -p no:asyncio \
		"${files[@]/#/$srcdir/tests/python/}" >"$dir/out" 2>&1 || { tail -n 60 "$dir/out" >&2; fail "pytest at $1"; }
	echo "$1: $(tail -n 1 "$dir/out")"
}

keep_special
for server in "${servers[@]}"; do
	pytest_at "$server" test_store.py test_aio.py test_watch.py test_channel.py test_device.py test_caches.py test_lmcache.py
done
server=''

LD_PRELOAD=$preload ends 0 "3 ranks" "$builddir/rdmarun" -n 3 "$python" "$srcdir/tests/python/ranks.py"
if [[ ! $preload ]]; then
	LD_PRELOAD=$preload timeout 120 "$python" -m rdmad.bench --count 1000 --blocks 2 --block 256 --rounds 2 "${servers[0]}" \
		>"$dir/out" 2>"$dir/err" || fail "rdmad.bench"
	says '^get_many_into' "rdmad.bench"
fi
stop_daemon
conclude
