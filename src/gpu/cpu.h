/* cpu.h: operations in the form that suits processors; the same bits as their bodies make. */
#ifndef RDMAD_GPU_CPU_H
#define RDMAD_GPU_CPU_H

#include "gpu/worker.h"

/* Carry out a job that gpu_job_check() found good. `stop` is as in struct gpu_team. The output's
 * share of the check. Input and output as of gpu_operation_body(). */
uint64_t cpu_run(const struct wire_ring_job *job, const void *input, void *output,
		 const uint32_t *stop);

/* cpu_quantize.c */
uint64_t cpu_quantize(const struct wire_ring_job *job, const void *input, void *output);

/* What it uses: "AVX2", or "" for what every processor has. */
const char *cpu_quantize_vectors(void);

#endif
