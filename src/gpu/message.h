/* message.h: what a process says to its daemon, on a socket that keeps messages apart; and
 * which descriptors it is born with. Both are of one build. */
#ifndef RDMAD_GPU_MESSAGE_H
#define RDMAD_GPU_MESSAGE_H

#include "gpu/gpu.h"

enum { GPU_FD_RING = 3, GPU_FD_CONTROL, GPU_FD_EVENT, GPU_FD_END };

enum gpu_message_kind {
	GPU_SAYS_READY,  /* text: nothing */
	GPU_SAYS_FAILED, /* text: why */
	GPU_SAYS_LOG,    /* level, room, text: a line of the log */
};

struct gpu_message {
	uint32_t kind, level;
	char room[16];
	struct gpu_probe probe; /* of GPU_SAYS_READY */
	char text[256];
};

/* How soon a process ends that was asked to. */
#define GPU_STOP_GRACE (100 * TIME_MS)

#endif
