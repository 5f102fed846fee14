/*
 * device.c: memory that a processor cannot reach, as that of an accelerator. All of the process that buffers.c has
 * registered as a dmabuf is in one list, so that code which copies a caller's bytes can ask before it does. Memory of
 * CUDA is known by its address, and exported as a dmabuf, where the program has the driver's library loaded.
 */
#include "engine/engine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct device_range {
	struct list node;
	const char *addr;
	size_t len;
};

_Atomic unsigned device_ranges;
static struct list ranges = {&ranges, &ranges};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of all that has been in the list since it was empty: what lies beside needs no lock. */
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest;

static void list_lock(void)
{
	pthread_mutex_lock(&lock);
}

static void list_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* A child of the process has the list as it was between two calls. */
__attribute__((constructor)) static void keep_over_forks(void)
{
	pthread_atfork(list_lock, list_unlock, list_unlock);
}

int device_memory_add(const void *addr, size_t len)
{
	struct device_range *range = malloc(sizeof(*range));
	uintptr_t begin = (uintptr_t)addr;

	if (!range)
		return -ENOMEM;
	range->addr = addr;
	range->len = len;
	list_lock();
	list_add_tail(&ranges, &range->node);
	atomic_store(&lowest, MIN(atomic_load(&lowest), begin));
	atomic_store(&highest, MAX(atomic_load(&highest), len < UINTPTR_MAX - begin ? begin + len : UINTPTR_MAX));
	atomic_fetch_add(&device_ranges, 1);
	list_unlock();
	return 0;
}

/* Several engines may have the same. */
void device_memory_remove(const void *addr, size_t len)
{
	struct list *pos, *next;

	list_lock();
	list_for_each_safe (pos, next, &ranges) {
		struct device_range *range = container_of(pos, struct device_range, node);

		if (range->addr != addr || range->len != len)
			continue;
		list_del(&range->node);
		free(range);
		atomic_fetch_sub(&device_ranges, 1);
		break;
	}
	if (list_empty(&ranges)) {
		atomic_store(&lowest, UINTPTR_MAX);
		atomic_store(&highest, 0);
	}
	list_unlock();
}

static bool is_beside_all(uintptr_t begin, size_t len)
{
	uintptr_t low = atomic_load_explicit(&lowest, memory_order_relaxed);

	return begin >= atomic_load_explicit(&highest, memory_order_relaxed) || (begin < low && len <= low - begin);
}

bool device_memory_has(const void *addr, size_t len)
{
	const char *begin = addr;
	bool found = false;

	if (is_beside_all((uintptr_t)addr, len))
		return false;
	list_lock();
	list_for_each (pos, &ranges) {
		const struct device_range *range = container_of(pos, struct device_range, node);

		/* Lengths of nonsense wrap nothing here. */
		found = len && (begin < range->addr ? (size_t)(range->addr - begin) < len
						    : (size_t)(begin - range->addr) < range->len);
		if (found)
			break;
	}
	list_unlock();
	return found;
}

/*
 * CUDA
 */
#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_MEMORY_TYPE 2 /* attributes of a pointer */
#define CUDA_IS_MANAGED 8
#define CUDA_TYPE_DEVICE 2
#define CUDA_DMABUF 1 /* kind of handle */

typedef int (*cuda_attribute_fn)(void *value, int attribute, uint64_t pointer);
typedef int (*cuda_handle_fn)(void *handle, uint64_t pointer, size_t size, int kind, unsigned long long flags);
typedef int (*cuda_text_fn)(int result, const char **text);

/* NULL: this program has no CUDA. It is not loaded for the question. */
static void *cuda_library(void)
{
	return dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

static bool cuda_owns(void *library, uint64_t pointer)
{
	cuda_attribute_fn ask = (cuda_attribute_fn)dlsym(library, "cuPointerGetAttribute");
	unsigned type = 0, managed = 0;

	if (!ask || ask(&type, CUDA_MEMORY_TYPE, pointer) != 0 || type != CUDA_TYPE_DEVICE)
		return false;
	/* A processor reaches managed memory, and no descriptor is given out for it. */
	return ask(&managed, CUDA_IS_MANAGED, pointer) != 0 || !managed;
}

static int cuda_export(void *library, uint64_t pointer, size_t len, struct fabric_dmabuf *out)
{
	cuda_handle_fn export_handle = (cuda_handle_fn)dlsym(library, "cuMemGetHandleForAddressRange");
	cuda_text_fn text_of = (cuda_text_fn)dlsym(library, "cuGetErrorString");
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = pointer & ~(page - 1);
	uint64_t end = (pointer + len + page - 1) & ~(page - 1);
	const char *why = "this driver has no cuMemGetHandleForAddressRange";
	int result = export_handle ? export_handle(&out->fd, first, end - first, CUDA_DMABUF, 0) : -1;

	if (result == 0) {
		out->offset = pointer - first;
		return 1;
	}
	if (export_handle && text_of && text_of(result, &why) != 0)
		why = "unknown error";
	return log_fail(
		-EOPNOTSUPP, "client",
		"CUDA gives no dmabuf for %zu bytes at %#llx: %s; that needs CUDA 11.7 and the open kernel modules of "
		"its driver; copy the values to memory of the host, and use that",
		len, (unsigned long long)pointer, why);
}

int device_memory_export(const void *addr, size_t len, struct fabric_dmabuf *out)
{
	void *library = cuda_library();
	int rc = 0;

	if (!library)
		return 0;
	if (cuda_owns(library, (uintptr_t)addr))
		rc = cuda_export(library, (uintptr_t)addr, len, out);
	dlclose(library);
	return rc;
}
