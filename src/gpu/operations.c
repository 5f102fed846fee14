/* operations.c: whether what is asked can be done. */
#include "gpu/gpu.h"
#include "gpu/operations.h"

int64_t gpu_job_check(const struct wire_ring_shape *shape, const struct wire_ring_job *job, const char **why)
{
	int64_t output = gpu_operation_check(shape, job, why);

	return output < 0 ? -EINVAL : output;
}
