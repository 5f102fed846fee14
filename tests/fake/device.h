/*
 * device.h: the words of CUDA C++ and of gpu/cuda/device.h over threads, so that the kernel's very
 * text is compiled for a processor, and its races found by the thread sanitizer. device.c has the
 * functions.
 */
#ifndef RDMAD_GPU_CUDA_DEVICE_H
#define RDMAD_GPU_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_dim {
	uint32_t x;
};

/* What belongs to a thread. A library that was opened late gets such memory when a thread first touches
 * it, unless it asks for the model below; the thread sanitizer takes that for a race. */
#define FAKE_OF_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

extern FAKE_OF_THREAD struct fake_dim threadIdx, blockIdx, blockDim, gridDim;

#define __grid_constant__
#define __launch_bounds__(threads, blocks)
#define DEVICE_FN static inline
#define DEVICE_KERNEL
#define DEVICE_SHARED(type, name) type *name = fake_shared(sizeof(type))
#define DEVICE_GLOBAL(type, name) static type name

struct gpu_kernel_args;
void gpu_kernel(const struct gpu_kernel_args args);

/* The block's shared memory. */
void *fake_shared(size_t bytes);

void __syncthreads(void);
void device_barrier(uint32_t threads);
/* The kernel has two, when a job is finished; here some are made to fail. */
void device_barrier_warp(void);
void __threadfence_system(void);
/* glibc has a function __nanosleep, which would take this one's place, and takes a pointer. */
#define __nanosleep fake_nanosleep
void __nanosleep(uint32_t ns);
uint64_t device_time(void);

static inline uint32_t atomicAdd(uint32_t *word, uint32_t value)
{
	return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

static inline void device_add(uint64_t *sum, uint64_t value)
{
	__atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
}

static inline uint64_t device_global_get(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void device_global_set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint64_t device_global_add(uint64_t *word, uint64_t value)
{
	return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

static inline uint64_t device_get(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void device_set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

#endif
