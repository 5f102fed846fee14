/*
 * device.h: the few words that the kernel uses beyond those of CUDA C++. tests/fake/device.h
 * has the same, and those of CUDA C++, over threads of a processor.
 */
#ifndef RDMAD_GPU_CUDA_DEVICE_H
#define RDMAD_GPU_CUDA_DEVICE_H

#include <stdint.h>

#define DEVICE_FN static __device__ __forceinline__
#define DEVICE_KERNEL extern "C" __global__

/* One object of `type` for all threads of a block. */
#define DEVICE_SHARED(type, name)                                                                                      \
	__shared__ type name##_of_block;                                                                               \
	type *name = &name##_of_block

/* No thread returns before `threads` of the block, whole warps, came. The others take no part. */
DEVICE_FN void device_barrier(uint32_t threads)
{
	asm volatile("barrier.sync 1, %0;" : : "r"(threads) : "memory");
}

/* Nanoseconds; the same clock for all blocks. */
DEVICE_FN uint64_t device_time(void)
{
	uint64_t now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) : : "memory");
	return now;
}

/* All threads of some whole warps add theirs to a word of shared memory; a warp is one addition. */
DEVICE_FN void device_add(uint64_t *sum, uint64_t value)
{
	for (int half = 16; half; half /= 2)
		value += __shfl_down_sync(0xffffffffu, value, half);
	if (threadIdx.x % 32 == 0)
		atomicAdd((unsigned long long *)sum, (unsigned long long)value);
}

/* One object for all blocks, in the memory of the device. It is zero before the first kernel, and stays from one to the
 * next. */
#define DEVICE_GLOBAL(type, name) static __device__ type name

/* The threads of the first warp; what each wrote before, the others see. */
DEVICE_FN void device_barrier_warp(void)
{
	__syncwarp();
}

/* Words of the memory of the device, for all blocks. */
DEVICE_FN uint64_t device_global_get(const uint64_t *word)
{
	uint64_t value;

	asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
	return value;
}

DEVICE_FN void device_global_set(uint64_t *word, uint64_t value)
{
	asm volatile("st.release.gpu.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

/* What it was. */
DEVICE_FN uint64_t device_global_add(uint64_t *word, uint64_t value)
{
	uint64_t before;

	asm volatile("atom.acq_rel.gpu.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(word), "l"(value) : "memory");
	return before;
}

/* Words of shared memory that other threads of the block look at without a barrier. */
DEVICE_FN uint64_t device_get(const uint64_t *word)
{
	uint64_t value;

	asm volatile("ld.relaxed.cta.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
	return value;
}

DEVICE_FN void device_set(uint64_t *word, uint64_t value)
{
	asm volatile("st.relaxed.cta.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

#endif
