/*
 * gpu_operations.h: the operations of the gpu service, a row each: number, name, what it takes and how long its output
 * is. Pure arithmetic, for the caller, the daemon, the worker process and its kernel: all of them refuse the same. What
 * an operation does is in gpu/operation_NAME.h.
 *
 * A new operation is a row and its _output() here, its constant in rdmad/gpu.h, a header like gpu/operation_echo.h, and
 * that header's line in gpu/operations.h. Counters, the list that `rdmactl gpu info` prints and all checks follow.
 */
#ifndef RDMAD_WIRE_GPU_OPERATIONS_H
#define RDMAD_WIRE_GPU_OPERATIONS_H

#include "wire/ring.h"

/* Constant, number, name, and what the counter of its jobs is called. Numbers go from 1 on without a gap. */
#define WIRE_GPU_OPERATIONS(X)                                                                                         \
	X(QUANTIZE, 1, quantize, quantizes) /* width, height, levels: 8-bit pixels in, as many out */                  \
	X(ECHO, 2, echo, echoes)            /* microseconds to take at least: the same bytes back */

enum wire_ring_op {
#define WIRE_GPU_OPERATION_NUMBER(OP, number, name, names) WIRE_RING_##OP = number,
	WIRE_GPU_OPERATIONS(WIRE_GPU_OPERATION_NUMBER)
#undef WIRE_GPU_OPERATION_NUMBER
		WIRE_RING_OPS
};

/* Where the parameters of each are. */
enum { WIRE_GPU_QUANTIZE_WIDTH, WIRE_GPU_QUANTIZE_HEIGHT, WIRE_GPU_QUANTIZE_LEVELS };
enum { WIRE_GPU_ECHO_MICROSECONDS };

#define WIRE_GPU_QUANTIZE_LEVELS_MAX 256u
#define WIRE_GPU_ECHO_LONGEST 60000000u

/* Each answers the length of the output of a job whose input has `length` bytes. Negative: parameters or length are not
 * what the operation takes, and *why says so. */
WIRE_RING_FN int64_t wire_gpu_quantize_output(const uint32_t *param, uint32_t length, const char **why)
{
	uint32_t width = param[WIRE_GPU_QUANTIZE_WIDTH], height = param[WIRE_GPU_QUANTIZE_HEIGHT];
	uint32_t levels = param[WIRE_GPU_QUANTIZE_LEVELS];

	if (levels < 1 || levels > WIRE_GPU_QUANTIZE_LEVELS_MAX)
		*why = "levels is not between 1 and 256";
	else if (width == 0 || height == 0)
		*why = "an image has at least one pixel: width and height are not 0";
	else if ((uint64_t)width * height != length)
		*why = "width times height is not the length of the input";
	else
		return length;
	return -1;
}

WIRE_RING_FN int64_t wire_gpu_echo_output(const uint32_t *param, uint32_t length, const char **why)
{
	if (param[WIRE_GPU_ECHO_MICROSECONDS] <= WIRE_GPU_ECHO_LONGEST)
		return length;
	*why = "microseconds is more than 60 s";
	return -1;
}

/* Of any operation. An input has at least one byte. */
WIRE_RING_FN int64_t wire_gpu_operation_output(uint32_t op, const uint32_t *param, uint32_t length, const char **why)
{
	int64_t output = -1;

	switch (op) {
#define WIRE_GPU_OPERATION_OUTPUT(OP, number, name, names)                                                             \
	case WIRE_RING_##OP:                                                                                           \
		output = wire_gpu_##name##_output(param, length, why);                                                 \
		break;
		WIRE_GPU_OPERATIONS(WIRE_GPU_OPERATION_OUTPUT)
#undef WIRE_GPU_OPERATION_OUTPUT
	default:
		*why = "there is no such operation";
	}
	if (output >= 0 && length == 0) {
		*why = "the input is empty";
		return -1;
	}
	return output;
}

#ifndef __CUDACC__
/*
 * gpu_operations.c
 */

/* "quantize"; NULL: there is no such operation. */
const char *wire_gpu_operation_name(uint32_t op);
#endif

#endif
