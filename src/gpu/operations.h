/*
 * operations.h: what each operation does, for C and for CUDA: each backend carries it out by gpu_operation_body().
 * Their list and their limits are in wire/gpu_operations.h.
 */
#ifndef RDMAD_GPU_OPERATIONS_H
#define RDMAD_GPU_OPERATIONS_H

#include "gpu/operation_echo.h"
#include "gpu/operation_quantize.h"

/* gpu_job_check() of gpu.h, for a kernel too: the output's length, or negative and *why. */
WIRE_RING_FN int64_t gpu_operation_check(const struct wire_ring_shape *shape, const struct wire_ring_job *job,
					 const char **why)
{
	int64_t output = wire_gpu_operation_output(job->op, job->param, job->length, why);

	if (output < 0)
		return output;
	if (job->length > shape->payload || output > shape->payload)
		*why = "input or output is longer than a cell";
	else if (job->reserved || job->reserved2)
		*why = "a reserved field is not 0";
	else
		return output;
	return -1;
}

/* Carry out a job that gpu_job_check() found good, by all threads of the team, each with the same
 * arguments; each gets its share of the output's check. */
WIRE_RING_FN uint64_t gpu_operation_body(const struct gpu_team *team, const struct wire_ring_job *job,
					 const void *input, void *output)
{
	switch (job->op) {
#define GPU_OPERATION_CASE(OP, number, name, names)                                                                    \
	case WIRE_RING_##OP:                                                                                           \
		return gpu_##name##_body(team, job, input, output);
		WIRE_GPU_OPERATIONS(GPU_OPERATION_CASE)
#undef GPU_OPERATION_CASE
	default:
		return 0;
	}
}

#endif
