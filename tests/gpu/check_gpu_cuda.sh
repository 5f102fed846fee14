#!/bin/bash
# check_gpu_cuda.sh: worker processes with the backend of CUDA, over the fake driver: the suite that the backend of
# threads passes, and what they say when there is no device.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
kernels=$srcdir/tests/fake/kernels.ptx
export LD_LIBRARY_PATH="$PWD/tests/fake/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# SETTING STATUS TEXT ARGUMENT...: with RDMAD_FAKE_CUDA=SETTING rdmad-gpu ends so, and prints that.
gpu() { RDMAD_FAKE_CUDA=$1 ends "$2" "$3" "$builddir/rdmad-gpu" "${@:4}"; }

gpu "" 0 "device Fake GPU 0" --probe --backend cuda --kernels "$kernels"
gpu "" 0 "backend cuda" --probe --kernels "$kernels"
gpu devices=2 0 "device Fake GPU 1" --probe --backend cuda --kernels "$kernels" --device 1
gpu cuInit=100 69 "cuInit: no CUDA-capable device is detected (100)" --probe --backend cuda --kernels "$kernels"
gpu cuInit=100 0 "backend cpu" --probe --kernels "$kernels"
gpu cuModuleLoadDataEx=209 0 "passed cuda: cuModuleLoadDataEx: no kernel image" --probe --kernels "$kernels"
# What fails only when a session begins: that session's jobs are done all the same.
gpu cuLaunchKernel=719 0 "backend cpu (1 thread" --measure --kernels "$kernels" -n 1 --threads 1
gpu cuLaunchKernel=719 69 "cuLaunchKernel: unspecified launch failure (719)" \
	--measure --backend cuda --kernels "$kernels" -n 1
gpu "" 69 "cannot read the kernels in /nonexistent" --measure --backend cuda --kernels /nonexistent -n 1
gpu fault=3 69 "an illegal memory access was encountered (700)" --measure --backend cuda --kernels "$kernels" -n 10
gpu "" 0 "Fake GPU 0" --measure --backend cuda --kernels "$kernels" -n 10

# A library of that name that is another.
mkdir "$dir/other"
ln -s "$(ldd "$builddir/rdmad-gpu" | sed -n 's/.* => \(.*libc\.so[^ ]*\).*/\1/p')" "$dir/other/libcuda.so.1"
fake=$LD_LIBRARY_PATH
LD_LIBRARY_PATH=$dir/other
gpu "" 69 "libcuda.so.1 has no cuInit of version 2.0" --probe --backend cuda --kernels "$kernels"
LD_LIBRARY_PATH=$fake

# Each device that the configuration names is looked for at the start.
devices() {
	configure 'services = ["gpu"];' \
		"gpu = { backend = \"$1\"; program = \"$builddir/rdmad-gpu\"; kernels = \"$kernels\"; devices = [$2]; };"
}
devices cuda '"0", "5"'
RDMAD_FAKE_CUDA=devices=2 ends 69 "there is no device number 5, of 2" "$rdmad" -c "$dir/rdmad.conf"
devices auto '"0", "1"'
RDMAD_FAKE_CUDA=devices=2 start_daemon
logged "gpu: cuda backend, Fake GPU 0"
stop_daemon

devices auto '"0", "5"'
RDMAD_FAKE_CUDA=devices=2 start_daemon
logged "session; not cuda: there is no device number 5, of 2"
stop_daemon
devices auto '"0"'
RDMAD_FAKE_CUDA=cuCtxCreate=2 start_daemon
logged "session; not cuda: cuCtxCreate: out of memory (2)"
server=${servers[0]#tcp://}
expect 0 gpu info && says "^backend +cpu" info && says "^device .*; not cuda: cuCtxCreate: out of memory" info
stop_daemon

# A real driver gives a context back for longer than a worker has for its end.
RDMAD_FAKE_CUDA=slow=300 RDMAD_TEST_BACKEND=cuda RDMAD_TEST_KERNELS=$kernels ./tests/gpu/check_gpu_session ||
	fail "the suite of sessions"
conclude
