/*
 * gpu.h: requests and replies of the gpu service. wire/ring.h has the ring that both modes go through. wire/wire.h
 * includes it.
 */
#ifndef RDMAD_WIRE_GPU_H
#define RDMAD_WIRE_GPU_H

#include "wire/record.h"

/*
 * GPU_JOB, RPC mode: struct wire_gpu_job. The answer is a write of the output, with the id as immediate. After
 * WIRE_GPU_SENDS it is a write, then a reply. Both modes: the id WIRE_GPU_TERMINATE without a body ends the session
 * after all jobs before it. The answer is an empty write with that immediate, or a reply.
 */
/* clang-format off */
#define WIRE_OPS_GPU(X) \
	X(GPU_INFO, 48, gpu_info, "gpu info")    /* nothing. Reply: struct wire_gpu_info, perhaps longer */ \
	/* struct wire_gpu_open, once. Reply, when ready: struct wire_gpu_ring */ \
	X(GPU_OPEN, 49, gpu_open, "gpu open") \
	X(GPU_JOB, 50, gpu_job, "gpu job")       /* see above */ \
	X(GPU_ENDED, 51, gpu_ended, "gpu ended") /* from the server: the session is over, status and text say why */
/* clang-format on */

#define WIRE_GPU_TERMINATE UINT32_MAX
#define WIRE_GPU_PARAMS 8
#define WIRE_GPU_NAME 64

enum wire_gpu_mode { WIRE_GPU_RPC, WIRE_GPU_QUEUE, WIRE_GPU_MODES };

#define WIRE_GPU_SENDS 1u /* flags of an open: no write with immediate, but a write and then a reply */

/* The wishes of a client; 0: the server chooses. The server grants at most these. */
struct wire_gpu_open {
	uint32_t mode; /* enum wire_gpu_mode */
	uint32_t flags;
	uint32_t queues, slots;
	uint32_t payload; /* bytes of the largest input or output */
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_gpu_open) == 24, "wire layout");

/* The session as granted. Addresses and keys are of queue mode, else 0. The client may read the worker's part of the
 * ring and write its own part. */
struct wire_gpu_ring {
	uint32_t queues, slots, payload;
	uint32_t flags; /* WIRE_GPU_SENDS: also where the server's device has no write with immediate */
	uint64_t worker_addr, client_addr;
	uint32_t worker_rkey, client_rkey;
	char backend[16], device[WIRE_GPU_NAME]; /* text, ended by 0 */
};
_Static_assert(sizeof(struct wire_gpu_ring) == 120, "wire layout");

struct wire_gpu_job {
	uint32_t op; /* enum wire_ring_op */
	uint32_t reserved;
	uint32_t param[WIRE_GPU_PARAMS];
	struct wire_remote input, output; /* of the client's memory; the op gives the output's length */
};
_Static_assert(sizeof(struct wire_gpu_job) == 88, "wire layout");

struct wire_gpu_info {
	uint32_t sessions, sessions_max;
	uint32_t queues_max, slots_max;
	uint64_t payload_max, memory_max;   /* bytes, of one session */
	uint64_t operations;                /* bit 1 << enum wire_ring_op */
	uint64_t jobs, bytes_in, bytes_out; /* since the daemon started; of RPC mode */
	char backend[16], device[WIRE_GPU_NAME];
};
_Static_assert(sizeof(struct wire_gpu_info) == 144, "wire layout");

#endif
