/* program.h: the files of rdmad-gpu that are neither a backend nor for one. */
#ifndef RDMAD_GPU_PROGRAM_H
#define RDMAD_GPU_PROGRAM_H

#include "gpu/program/process.h"

enum gpu_mode { GPU_SERVE, GPU_PROBE, GPU_MEASURE };

struct gpu_arguments {
	enum gpu_mode mode;
	struct gpu_process_attr attr;
	bool queue_mode;
	uint64_t share;                /* UINT64_MAX: none */
	uint64_t ring, control, event; /* descriptors; 0: not given */
	uint64_t images, width, height, levels;
	bool json;
};

/* arguments.c: -1: go on, else the exit status. */
int gpu_arguments_parse(int argc, char **argv, struct gpu_arguments *out);

/* confine.c: the process of a session is small, ends with its parent, keeps nothing it was not given and has no
 * privilege. `backend`: what it will run if that is known, else NULL. Before any thread is made. 0 or -errno,
 * logged. */
int gpu_confine(int control, const struct gpu_backend *backend);
/* And has no more files than its backend needs. */
int gpu_confine_files(const struct gpu_backend *backend);
/* The sandbox, what the kernel has to keep a process that was taken over from everything else. What the kernel refuses
 * is left out, and added to `lacks` in words. A build with sanitizers, which need more themselves, leaves out what
 * hides memory, files and calls. */

/* No capability, no process looks into its memory, it into that of no other, it opens no connection; `sealed`: and
 * no file. Before any thread is made. 0 or -errno. */
int gpu_sandbox(bool sealed, char lacks[static GPU_WHY]);
/* All threads have those system calls left that a thread of processors needs for its jobs; others fail with EPERM. */
void gpu_sandbox_calls(char lacks[static GPU_WHY]);

/* serve.c: map the ring of a descriptor; it is what it says, and stays as it is. 0 or -errno, logged. */
int gpu_ring_map(int fd, struct wire_ring *ring);
/* Carry out jobs until told to end. The exit status. */
int gpu_serve(const struct gpu_arguments *arguments);

/* watch.c: the thread that listens to the daemon and looks at the clock. */
int gpu_watch_start(struct gpu_process *process);

/* measure.c: what a session does without a network. The exit status. */
int gpu_measure(const struct gpu_arguments *arguments);

#endif
