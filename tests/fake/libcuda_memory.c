/*
 * libcuda_memory.c: a device's memory, of the driver library without a device: files in memory. A processor has no
 * access to its addresses, but by cuMemcpy.
 *
 * RDMAD_FAKE_CUDA: `managed=1`: processors reach it, as it is said; cuMemGetHandleForAddressRange=N fails with N.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "fake/fake.h"

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096u

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, MEMORY_TYPE = 2, IS_MANAGED = 8, DMABUF = 1 };

static struct {
	uint64_t at; /* 0: free */
	size_t size;
	int fd;
	char *seen; /* as the device does */
} allocations[16];

static int find(uint64_t pointer)
{
	for (unsigned i = 0; i < ARRAY_SIZE(allocations); i++)
		if (allocations[i].at && pointer - allocations[i].at < allocations[i].size)
			return (int)i;
	return -1;
}

static int find_free(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(allocations); i++)
		if (!allocations[i].at)
			return (int)i;
	return -1;
}

EXPORT int cuMemAlloc_v2(uint64_t *pointer, size_t size);
EXPORT int cuMemAlloc_v2(uint64_t *pointer, size_t size)
{
	size_t whole = (size + PAGE - 1) / PAGE * PAGE;
	int i = find_free(), fd = memfd_create("fake device", MFD_CLOEXEC);
	void *at = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *seen;

	if (i < 0 || fd < 0 || at == MAP_FAILED || ftruncate(fd, (off_t)whole) != 0)
		return OUT_OF_MEMORY;
	seen = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (seen == MAP_FAILED)
		return OUT_OF_MEMORY;
	*pointer = (uintptr_t)at;
	allocations[i].at = *pointer;
	allocations[i].size = whole;
	allocations[i].fd = fd;
	allocations[i].seen = seen;
	return 0;
}

EXPORT int cuMemFree_v2(uint64_t pointer);
EXPORT int cuMemFree_v2(uint64_t pointer)
{
	int i = find(pointer);

	if (i < 0)
		return INVALID_VALUE;
	munmap((void *)(uintptr_t)allocations[i].at, allocations[i].size);
	munmap(allocations[i].seen, allocations[i].size);
	close(allocations[i].fd);
	allocations[i].at = 0;
	return 0;
}

static char *seen_at(uint64_t pointer, size_t size)
{
	int i = find(pointer);

	if (i < 0 || size > allocations[i].size - (pointer - allocations[i].at))
		return NULL;
	return allocations[i].seen + (pointer - allocations[i].at);
}

EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size);
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
	char *seen = seen_at(to, size);

	return seen ? (memcpy(seen, from, size), 0) : INVALID_VALUE;
}

EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size);
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
	const char *seen = seen_at(from, size);

	return seen ? (memcpy(to, seen, size), 0) : INVALID_VALUE;
}

EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer);
EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer)
{
	unsigned is = attribute == MEMORY_TYPE ? 2 : (unsigned)fake_setting("managed", 0);

	if (find(pointer) < 0 || (attribute != MEMORY_TYPE && attribute != IS_MANAGED))
		return INVALID_VALUE;
	memcpy(value, &is, sizeof(is));
	return 0;
}

/* Of an allocation from its start on: a file has no other descriptor for what lies behind that. */
EXPORT int cuMemGetHandleForAddressRange(void *handle, uint64_t pointer, size_t size, int kind,
					 unsigned long long flags);
EXPORT int cuMemGetHandleForAddressRange(void *handle, uint64_t pointer, size_t size, int kind,
					 unsigned long long flags)
{
	int result = (int)fake_setting("cuMemGetHandleForAddressRange", 0), i = find(pointer), fd;

	if (result)
		return result;
	if (kind != DMABUF || flags || pointer % PAGE || size % PAGE || i < 0 || pointer != allocations[i].at ||
	    size > allocations[i].size)
		return INVALID_VALUE;
	fd = dup(allocations[i].fd);
	memcpy(handle, &fd, sizeof(fd));
	return fd < 0 ? OUT_OF_MEMORY : 0;
}
