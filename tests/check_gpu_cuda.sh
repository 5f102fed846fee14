#!/bin/sh
# check_gpu_cuda.sh: worker processes with the backend of CUDA, over the fake driver: the suite that the backend of
# threads passes, and what they say when there is no device.
set -u
failed=0
kernels=${srcdir:-.}/tests/fake/kernels.ptx
export LD_LIBRARY_PATH="$PWD/tests/fake/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# SETTING STATUS TEXT ARGUMENT...: with RDMAD_FAKE_CUDA=SETTING it ends so, and prints that.
expect() {
	setting=$1 status=$2 text=$3
	shift 3
	out=$(RDMAD_FAKE_CUDA=$setting ./rdmad-gpu "$@" 2>&1 </dev/null)
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

expect "" 0 "device Fake GPU 0" --probe --backend cuda --kernels "$kernels"
expect "" 0 "backend cuda" --probe --kernels "$kernels"
expect devices=2 0 "device Fake GPU 1" --probe --backend cuda --kernels "$kernels" --device 1
expect cuInit=100 69 "cuInit: no CUDA-capable device is detected (100)" --probe --backend cuda --kernels "$kernels"
expect cuInit=100 0 "backend cpu" --probe --kernels "$kernels"
expect cuLaunchKernel=719 69 "cuLaunchKernel: unspecified launch failure (719)" \
	--measure --backend cuda --kernels "$kernels" -n 1
expect "" 69 "cannot read the kernels in /nonexistent" --measure --backend cuda --kernels /nonexistent -n 1
expect fault=3 69 "an illegal memory access was encountered (700)" --measure --backend cuda --kernels "$kernels" -n 10
expect "" 0 "Fake GPU 0" --measure --backend cuda --kernels "$kernels" -n 10

# A library of that name that is another.
other=$(mktemp -d) || exit 99
trap 'rm -rf "$other"' EXIT
ln -s "$(ldd ./rdmad-gpu | sed -n 's/.* => \(.*libc\.so[^ ]*\).*/\1/p')" "$other/libcuda.so.1"
fake=$LD_LIBRARY_PATH
LD_LIBRARY_PATH=$other
expect "" 69 "libcuda.so.1 has no cuInit of version 2.0" --probe --backend cuda --kernels "$kernels"
LD_LIBRARY_PATH=$fake

# A real driver gives a context back for longer than a worker has for its end.
RDMAD_FAKE_CUDA=slow=300 RDMAD_TEST_BACKEND=cuda RDMAD_TEST_KERNELS=$kernels ./tests/check_gpu_session || failed=1
exit $failed
