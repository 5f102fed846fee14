/* operations.c: what can be asked for, and whether what is asked can be done. */
#include "gpu/gpu.h"
#include "gpu/operations.h"

#define GPU_OPERATION_ROW(OP, name, help) {WIRE_RING_##OP, #name, help, gpu_##name##_output},

const struct gpu_operation gpu_operations[] = {GPU_OPERATIONS(GPU_OPERATION_ROW){0}};

const struct gpu_operation *gpu_operation_find(uint32_t op)
{
	for (const struct gpu_operation *o = gpu_operations; o->op; o++)
		if (o->op == op)
			return o;
	return NULL;
}

int64_t gpu_job_check(const struct wire_ring_shape *shape, const struct wire_ring_job *job, const char **why)
{
	int64_t output = gpu_operation_check(shape, job, why);

	return output < 0 ? -EINVAL : output;
}
