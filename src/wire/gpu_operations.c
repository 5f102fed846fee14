/* gpu_operations.c: the names of the gpu service's operations. */
#include "wire/gpu_operations.h"

#include <stddef.h>

static const char *const names[WIRE_RING_OPS] = {
#define WIRE_GPU_OPERATION_NAME(OP, number, name, names) [WIRE_RING_##OP] = #name,
	WIRE_GPU_OPERATIONS(WIRE_GPU_OPERATION_NAME)
#undef WIRE_GPU_OPERATION_NAME
};

const char *wire_gpu_operation_name(uint32_t op)
{
	return op < WIRE_RING_OPS ? names[op] : NULL;
}
