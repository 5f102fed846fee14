/* kernel.c: the kernel's own text, for threads. */
#include "fake/device.h"

#include "gpu/cuda/kernel.cu"
