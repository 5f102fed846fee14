/* cuda.h: what the files of the backend of an accelerator share: setup.c, the device and what is taken of it; cuda.c,
 * the kernel's life and the session's end. */
#ifndef RDMAD_GPU_CUDA_H
#define RDMAD_GPU_CUDA_H

#include "gpu/cuda/api.h"
#include "gpu/cuda/kernel.h"
#include "gpu/program/process.h"

struct cuda {
	struct gpu_process *process;
	struct cuda_api api;
	int device;
	int major, minor; /* its compute capability */
	void *context, *module, *function, *stream;
	struct gpu_kernel_board *board;
	struct gpu_kernel_args args;
	unsigned blocks;

	/* The running kernel's. */
	bool parked;     /* none does: it ended because there was nothing to do */
	uint64_t looked; /* when its blocks were looked at */
	uint64_t beat;   /* of this host */
	uint64_t busy;   /* when there was work last */
	struct cuda_heard {
		uint64_t beat, silent;
	} heard[WIRE_RING_QUEUES_MAX]; /* of each block */
};

#define CUDA_LOOK_MAX (50 * TIME_MS)

/* A look at a block, so long after the one before: for how long it has been silent. A host that was away itself,
 * stopped or on a busy machine, knows nothing of that time, and the device may have been away with it: no look counts
 * for more than it takes. */
static inline uint64_t cuda_silence(struct cuda_heard *heard, uint64_t beat, uint64_t passed)
{
	heard->silent = beat == heard->beat ? heard->silent + MIN(passed, CUDA_LOOK_MAX) : 0;
	heard->beat = beat;
	return heard->silent;
}

/*
 * setup.c: 0 or -errno; what failed is in api.why.
 */

/* All but the launch, in the order in which cuda_give_back() undoes it; process->probe is filled in. */
int cuda_take(struct cuda *c);

/* No kernel runs. */
void cuda_give_back(struct cuda *c);

/* Takes what a session would take of the device, and gives it back: struct gpu_backend's probe(). */
int cuda_probe(const struct gpu_process_attr *attr, struct gpu_probe *out, char *why);

#endif
