/*
 * elements.c: reductions of two vectors, a function for each type and operation. The loops go in blocks of a constant
 * number of elements, which compilers vectorise at -O2, too.
 */
#include "peer/collectives/elements.h"

#include <math.h>
#include <string.h>

#define BLOCK 64

/* A function for a type T and an operation; EXPRESSION is of a and b, the left and the right element. The block is a
 * function, as gcc believes `restrict` of parameters alone. */
#define REDUCE_LOOP(NAME, T, EXPRESSION, A, B)                                                                         \
	static inline void NAME##_block(T *restrict into, const T *restrict from)                                      \
	{                                                                                                              \
		for (int i = 0; i < BLOCK; i++) {                                                                      \
			const T a = A[i], b = B[i];                                                                    \
			into[i] = (T)(EXPRESSION);                                                                     \
		}                                                                                                      \
	}                                                                                                              \
	static inline void NAME(T *restrict into, const T *restrict from, size_t count)                                \
	{                                                                                                              \
		for (; count >= BLOCK; count -= BLOCK, into += BLOCK, from += BLOCK)                                   \
			NAME##_block(into, from);                                                                      \
		for (size_t i = 0; i < count; i++) {                                                                   \
			const T a = A[i], b = B[i];                                                                    \
			into[i] = (T)(EXPRESSION);                                                                     \
		}                                                                                                      \
	}
#define REDUCE_FUNCTION(NAME, OP, T, EXPRESSION)                                                                       \
	REDUCE_LOOP(NAME##_##OP##_right, T, EXPRESSION, into, from)                                                    \
	REDUCE_LOOP(NAME##_##OP##_left, T, EXPRESSION, from, into)                                                     \
	static void reduce_##NAME##_##OP(void *into, const void *from, size_t count, bool left)                        \
	{                                                                                                              \
		(left ? NAME##_##OP##_left : NAME##_##OP##_right)(into, from, count);                                  \
	}

/* The same bits in any order of the elements, which the algorithms differ in: a NaN goes on, and is always the same
 * one; a zero with a sign is less than one without. BITS has the size of T. `left` and `right` differ in equal zeros,
 * and where one is a NaN; two comparisons that are an instruction each are cheaper than one that tells all cases. */
#define FLOAT_ORDER(NAME, T, BITS, SAME, OP, RELATION)                                                                 \
	static inline T NAME##_##OP(T a, T b)                                                                          \
	{                                                                                                              \
		const T left = a RELATION b ? a : b, right = b RELATION a ? b : a;                                     \
		BITS x, y;                                                                                             \
		T both;                                                                                                \
                                                                                                                       \
		memcpy(&x, &left, sizeof(x));                                                                          \
		memcpy(&y, &right, sizeof(y));                                                                         \
		x = x SAME y;                                                                                          \
		memcpy(&both, &x, sizeof(both));                                                                       \
		return isunordered(a, b) ? (T)NAN : both;                                                              \
	}

FLOAT_ORDER(float, float, uint32_t, |, least, <)
FLOAT_ORDER(float, float, uint32_t, &, most, >)
FLOAT_ORDER(double, double, uint64_t, |, least, <)
FLOAT_ORDER(double, double, uint64_t, &, most, >)

/* U: the type in which sums and products wrap around. */
#define REDUCE_SUMS(NAME, T, U)                                                                                        \
	REDUCE_FUNCTION(NAME, sum, T, (U)a + (U)b)                                                                     \
	REDUCE_FUNCTION(NAME, product, T, (U)a *(U)b)
#define REDUCE_INTEGER(NAME, T, U)                                                                                     \
	REDUCE_SUMS(NAME, T, U)                                                                                        \
	REDUCE_FUNCTION(NAME, min, T, b < a ? b : a)                                                                   \
	REDUCE_FUNCTION(NAME, max, T, b > a ? b : a)
#define REDUCE_FLOAT(NAME, T)                                                                                          \
	REDUCE_SUMS(NAME, T, T)                                                                                        \
	REDUCE_FUNCTION(NAME, min, T, NAME##_least(a, b))                                                              \
	REDUCE_FUNCTION(NAME, max, T, NAME##_most(a, b))
#define REDUCE_BITS(NAME, T)                                                                                           \
	REDUCE_FUNCTION(NAME, and, T, a &b)                                                                            \
	REDUCE_FUNCTION(NAME, or, T, a | b)                                                                            \
	REDUCE_FUNCTION(NAME, xor, T, a ^ b)

REDUCE_INTEGER(byte, uint8_t, unsigned)
REDUCE_BITS(byte, uint8_t)
REDUCE_INTEGER(int32, int32_t, uint32_t)
REDUCE_BITS(int32, int32_t)
REDUCE_INTEGER(int64, int64_t, uint64_t)
REDUCE_BITS(int64, int64_t)
REDUCE_INTEGER(uint64, uint64_t, uint64_t)
REDUCE_BITS(uint64, uint64_t)
REDUCE_FLOAT(float, float)
REDUCE_FLOAT(double, double)

#define NUMBER(NAME)                                                                                                   \
	[RDMA_SUM] = reduce_##NAME##_sum, [RDMA_PRODUCT] = reduce_##NAME##_product, [RDMA_MIN] = reduce_##NAME##_min,  \
	[RDMA_MAX] = reduce_##NAME##_max
#define BITS(NAME) [RDMA_AND] = reduce_##NAME##_and, [RDMA_OR] = reduce_##NAME##_or, [RDMA_XOR] = reduce_##NAME##_xor

static const char *const op_name[] = {
	[RDMA_SUM] = "sum", [RDMA_PRODUCT] = "product", [RDMA_MIN] = "min", [RDMA_MAX] = "max",
	[RDMA_AND] = "and", [RDMA_OR] = "or",           [RDMA_XOR] = "xor",
};
#define OPS (sizeof(op_name) / sizeof(op_name[0]))

static const struct {
	const char *name;
	size_t size;
	reduce_fn *op[OPS];
} types[] = {
	[RDMA_BYTE] = {"byte", sizeof(uint8_t), {NUMBER(byte), BITS(byte)}},
	[RDMA_INT32] = {"int32", sizeof(int32_t), {NUMBER(int32), BITS(int32)}},
	[RDMA_INT64] = {"int64", sizeof(int64_t), {NUMBER(int64), BITS(int64)}},
	[RDMA_UINT64] = {"uint64", sizeof(uint64_t), {NUMBER(uint64), BITS(uint64)}},
	[RDMA_FLOAT] = {"float", sizeof(float), {NUMBER(float)}},
	[RDMA_DOUBLE] = {"double", sizeof(double), {NUMBER(double)}},
};
#define TYPES (sizeof(types) / sizeof(types[0]))

reduce_fn *reduce_find(rdma_type type, rdma_op op)
{
	return (size_t)type < TYPES && (size_t)op < OPS ? types[type].op[op] : NULL;
}

size_t reduce_size(rdma_type type)
{
	return (size_t)type < TYPES ? types[type].size : 0;
}

const char *reduce_type_name(rdma_type type)
{
	return (size_t)type < TYPES ? types[type].name : "?";
}

const char *reduce_op_name(rdma_op op)
{
	return (size_t)op < OPS ? op_name[op] : "?";
}
