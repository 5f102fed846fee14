/*
 * kernel.h: what the host side (cuda.c) and the kernel (kernel.cu) say to each other.
 * Both compile it.
 */
#ifndef RDMAD_GPU_CUDA_KERNEL_H
#define RDMAD_GPU_CUDA_KERNEL_H

#include "wire/ring.h"

#define GPU_KERNEL_NAME "gpu_kernel"
#define GPU_KERNEL_TEAM 512 /* threads of a block that carry out its jobs */
#define GPU_KERNEL_WATCH 32 /* and those of the warp that watches them */
#define GPU_KERNEL_THREADS (GPU_KERNEL_TEAM + GPU_KERNEL_WATCH)
#define GPU_KERNEL_STOP UINT64_MAX
#define GPU_KERNEL_PARK (UINT64_MAX - 1)
#define GPU_KERNEL_SPREAD (128u << 10) /* a job of so many bytes is worth more than one block */
#define GPU_KERNEL_SPREAD_BLOCKS 16u   /* which are there for it, if there is room on the device */

/* The words of a block. */
struct gpu_kernel_block {
	uint64_t beat;   /* counts while it lives */
	uint64_t failed; /* enum wire_ring_error << 32 | queue, after the two below */
	uint64_t index;  /* of the job that failed */
	uint64_t reserved[5];
	struct wire_ring_job job; /* the kernel's copy of it, if it was bad */
};

/* In memory of the process that its client cannot reach. One writer per word, as in the
 * ring. */
struct gpu_kernel_board {
	uint64_t beat; /* of the host: changes while it lives; GPU_KERNEL_STOP: end now; GPU_KERNEL_PARK: when idle */
	uint64_t reserved[7];
	struct gpu_kernel_block block[WIRE_RING_QUEUES_MAX];
};

/* The kernel's one parameter; pointers are the device's. Times are nanoseconds. */
struct gpu_kernel_args {
	struct wire_ring ring;
	struct gpu_kernel_board *board;
	uint64_t poll;        /* a block that is idle for longer naps between its looks */
	uint64_t job_timeout; /* a job that takes longer fails the session */
	uint64_t lease;       /* the kernel ends when the host's beat stands still for longer */
};

#endif
