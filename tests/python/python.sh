# python.sh: what the tests of the Python package share: $python, which is Debian's, and $preload, for LD_PRELOAD where
# it loads the libraries that were built here.
# shellcheck shell=bash
python=/usr/bin/python3
[[ -x $python ]] || python=python3
export RDMAD_LIBRARY=$builddir/.libs/librdmad.so RDMA_LIB_LIBRARY=$builddir/.libs/librdma_lib.so
[[ -e $RDMAD_LIBRARY && -e $RDMA_LIB_LIBRARY ]] || { echo "$test_name: the libraries were not built here"; exit 77; }
cc=$(sed -n 's/^CC = //p' "$builddir/Makefile")
# A library with the sanitizer in it needs that to be there first. What Python itself never frees is not of interest.
if ldd "$RDMAD_LIBRARY" | grep -q libasan; then
	LD_PRELOAD=$(${cc##* } -print-file-name=libasan.so)
	export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS-}
	[[ -e $LD_PRELOAD ]] || { echo "$test_name: the sanitizer's library is missing"; exit 77; }
elif ldd "$RDMAD_LIBRARY" | grep -q libtsan || nm -D "$RDMAD_LIBRARY" | grep -q ' U __[at]san_'; then
	echo "$test_name: this sanitizer cannot be loaded into Python"
	exit 77
fi
preload=${LD_PRELOAD-}
unset LD_PRELOAD
