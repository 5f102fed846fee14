/*
 * api.h: what rdmad uses of the accelerator's driver library, libcuda.so.1, in declarations of
 * our own: neither building nor running needs anything of a CUDA toolkit, and a machine without the
 * library only lacks this backend. Handles are opaque, results are numbers; their texts come from
 * the library itself.
 */
#ifndef RDMAD_GPU_CUDA_API_H
#define RDMAD_GPU_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_LIBRARY "libcuda.so.1"

/* Results that are told apart; 0 is success. */
#define CUDA_NOT_READY 600

#define CUDA_CONTEXT_MAP_HOST 0x08u
#define CUDA_REGISTER_PORTABLE 0x01u
#define CUDA_REGISTER_MAPPED 0x02u
#define CUDA_STREAM_NON_BLOCKING 0x01u
#define CUDA_ATTRIBUTE_PROCESSORS 16 /* multiprocessors of a device */
#define CUDA_ATTRIBUTE_RUN_LIMIT 17  /* not 0: it ends a kernel that runs for long */
#define CUDA_ATTRIBUTE_COMPUTE_MODE 20
#define CUDA_ATTRIBUTE_CAPABLE_MAJOR 75
#define CUDA_ATTRIBUTE_CAPABLE_MINOR 76
#define CUDA_MODE_PROHIBITED 2
#define CUDA_MODE_EXCLUSIVE 3 /* one process at a time has a context */
#define CUDA_JIT_ERRORS 5     /* a buffer for what the compiler of PTX says */
#define CUDA_JIT_ERRORS_SIZE 6

/*
 * ENTRY(member and name for cuGetProcAddress, exported name, interface version, arguments): the
 * version is that of the CUDA release whose arguments these are, as 1000 * major + 10 * minor; the
 * exported name has the suffix of that version, for libraries older than cuGetProcAddress.
 */
#define CUDA_ENTRIES(ENTRY)                                                                                            \
	ENTRY(cuInit, "cuInit", 2000, (unsigned flags))                                                                \
	ENTRY(cuGetErrorString, "cuGetErrorString", 6000, (int result, const char **text))                             \
	ENTRY(cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *count))                                                \
	ENTRY(cuDeviceGet, "cuDeviceGet", 2000, (int *device, int ordinal))                                            \
	ENTRY(cuDeviceGetName, "cuDeviceGetName", 2000, (char *name, int size, int device))                            \
	ENTRY(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, (int *value, int attribute, int device))             \
	ENTRY(cuCtxCreate, "cuCtxCreate_v2", 3020, (void **context, unsigned flags, int device))                       \
	ENTRY(cuCtxDestroy, "cuCtxDestroy_v2", 4000, (void *context))                                                  \
	ENTRY(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010,                                                          \
	      (void **module, const void *image, unsigned count, int *options, void **values))                         \
	ENTRY(cuModuleGetFunction, "cuModuleGetFunction", 2000, (void **function, void *module, const char *name))     \
	ENTRY(cuModuleUnload, "cuModuleUnload", 2000, (void *module))                                                  \
	ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050,        \
	      (int *blocks, void *function, int threads, size_t shared))                                               \
	ENTRY(cuMemHostRegister, "cuMemHostRegister_v2", 6050, (void *memory, size_t bytes, unsigned flags))           \
	ENTRY(cuMemHostUnregister, "cuMemHostUnregister", 4000, (void *memory))                                        \
	ENTRY(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", 3020,                                         \
	      (uint64_t * pointer, void *memory, unsigned flags))                                                      \
	ENTRY(cuStreamCreate, "cuStreamCreate", 2000, (void **stream, unsigned flags))                                 \
	ENTRY(cuStreamQuery, "cuStreamQuery", 2000, (void *stream))                                                    \
	ENTRY(cuStreamDestroy, "cuStreamDestroy_v2", 4000, (void *stream))                                             \
	ENTRY(cuLaunchKernel, "cuLaunchKernel", 4000,                                                                  \
	      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,  \
	       unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra))

#define CUDA_ENTRY_MEMBER(name, exported, version, arguments) int(*name) arguments;

struct cuda_api {
	char why[256]; /* what failed last, for people */
	CUDA_ENTRIES(CUDA_ENTRY_MEMBER)
};

/*
 * driver.c
 */

/* Find every entry. 0; -ENOENT: there is no library; -ENOSYS: it lacks an entry. What failed is in
 * api->why, here and below; the caller logs it, because with another backend to choose it is no
 * error. */
int cuda_api_load(struct cuda_api *api);

/* Keep what failed. */
void cuda_api_failed(struct cuda_api *api, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* 0 if `result` is; else it failed: "cuInit: no CUDA-capable device is detected (100)", and -EIO.
 */
int cuda_api_result(struct cuda_api *api, const char *entry, int result);

/* Call an entry: 0 or -EIO. */
#define cuda_call(api, entry, ...) cuda_api_result(api, #entry, (api)->entry(__VA_ARGS__))

/*
 * image.c: the kernels that were built in.
 */

/* Machine code for some devices and PTX for others. NULL: built without. */
const void *cuda_image(void);

#endif
