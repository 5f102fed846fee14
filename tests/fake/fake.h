/* fake.h: between libcuda.c, which has the library's entries, and device.c, which has its device.
 */
#ifndef TESTS_FAKE_FAKE_H
#define TESTS_FAKE_FAKE_H

#include <stdbool.h>

#include "gpu/cuda/kernel.h"

#define FAKE_TEAM 4u                  /* threads of a team, in place of the GPU_KERNEL_TEAM */
#define FAKE_SHARED_BYTES (48u << 10) /* what a real block may have */

/* What a test asks of the device by RDMAD_FAKE_CUDA: a number, or `otherwise`. */
long fake_setting(const char *name, long otherwise);

/* There is a context. */
extern bool fake_context_there;

/* How often a kernel was started, and how many pieces of large jobs were done by other blocks than the first. */
extern _Atomic unsigned fake_launches, fake_helped;

/* Start the kernel on threads of its own. Not 0: no threads. */
int fake_launch(unsigned blocks, const struct gpu_kernel_args *args);
/* After its end: give back what it had. */
void fake_end(void);
/* It was started and has not ended, by itself or by a fault. */
bool fake_running(void);
/* Threads of it may still touch memory: also after a fault, for a moment. */
bool fake_busy(void);
/* What it failed with: a result of the library, or 0. */
int fake_fault(void);

#endif
