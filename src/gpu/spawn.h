/* spawn.h: the program rdmad-gpu, run by the daemon. */
#ifndef RDMAD_GPU_SPAWN_H
#define RDMAD_GPU_SPAWN_H

#include "gpu/gpu.h"

/* Arguments of the program beside attr. */
struct gpu_spawn {
	bool probe; /* print what a process would use, and end; else what follows */
	bool queue_mode;
	unsigned share;
	int output;               /* of a probe: its stdout and stderr */
	int ring, control, event; /* of a process */
};

/* Start it. Everything that was not named is closed in it; of the descriptors it gets copies.
 * *pidfd becomes readable when it has ended. 0, or what failed, logged. */
int gpu_spawn(const struct gpu_process_attr *attr, const struct gpu_spawn *spawn, pid_t *pid, int *pidfd);

/* Take its exit status, and close nothing: true if it has ended. *status as that of waitpid(). */
bool gpu_spawn_reap(int pidfd, int flags, int *status);

/* "was killed by signal 9 (Killed)", "ended with exit status 1". Returns buf. */
char *gpu_spawn_status(int status, char buf[static 64]);

#endif
