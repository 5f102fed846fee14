/* cpu.h: operations in the form that suits processors; the same bits as their bodies make. */
#ifndef RDMAD_GPU_PROGRAM_CPU_H
#define RDMAD_GPU_PROGRAM_CPU_H

#include "gpu/program/process.h"

#include <pthread.h>

struct cpu_queue {
	_Alignas(CACHE_LINE) _Atomic bool held;
	_Atomic uint64_t index; /* of the next job and its result; written by the holder */
};

struct cpu {
	struct gpu_process *process;
	pthread_mutex_t gate; /* held until the threads may begin */
	struct cpu_queue queue[WIRE_RING_QUEUES_MAX];
};

struct cpu_thread {
	pthread_t thread;
	struct cpu *cpu;
	unsigned number;
	uint32_t next; /* the queue that it looks at first */
};

/* One job of the next queue that has some: 1; 0: none has, or no room for its result. Negative: the
 * session is over, by gpu_process_fail(). */
int cpu_step(struct cpu_thread *t);

/* Carry out a job that gpu_job_check() found good. `stop` is as in struct gpu_team. The output's
 * share of the check. Input and output as of gpu_operation_body(). */
uint64_t cpu_run(const struct wire_ring_job *job, const void *input, void *output, const uint32_t *stop);

/*
 * cpu_quantize.c: one form for each kind of vectors.
 */
struct cpu_vectors {
	const char *name; /* "AVX2"; "" for what every processor has */
	uint64_t (*quantize)(const struct wire_ring_job *job, const void *input, void *output);
};

/* The forms that this processor has, best first; NULL behind the last. */
const struct cpu_vectors *cpu_vectors(unsigned i);

#endif
