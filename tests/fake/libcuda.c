/*
 * libcuda.c: a driver library without a device behind it, for tests: the entries of
 * gpu/cuda/api.h, a kernel that runs on threads, and failures on demand.
 *
 * RDMAD_FAKE_CUDA is a list of NAME=NUMBER with commas:
 *
 *   ENTRY=RESULT   that entry fails with that result, e.g. cuInit=100
 *   devices=N      there are so many devices (1)
 *   capable=N      their compute capability, ten times (90)
 *   limited=N      not 0: they end kernels that run for long
 *   mode=N         their compute mode (0)
 *   fault=N        with the Nth job the device fails: 700, and so does every later call
 *   hang=N         with the Nth job the device stands still for ever
 *   still=N        with the Nth job the block that carries it out does
 *   resident=N     no more than N blocks ever begin
 *   slow=N         a context takes N ms to destroy
 *
 * What would deadlock beside a kernel that never ends, a call that waits for the device, or loads
 * or allocates, is an error of the program, and ends it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "fake/fake.h"
#include "gpu/cuda/api.h"

enum {
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_DEVICE = 101,
	INVALID_IMAGE = 200,
	INVALID_CONTEXT = 201,
	NOT_FOUND = 500,
	REGISTERED = 712,
	NOT_REGISTERED = 713,
};

static const struct {
	int result;
	const char *text;
} texts[] = {
	{INVALID_VALUE, "invalid argument"},
	{OUT_OF_MEMORY, "out of memory"},
	{NOT_INITIALIZED, "initialization error"},
	{100, "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "invalid device ordinal"},
	{209, "no kernel image is available for execution on the device"},
	{INVALID_IMAGE, "device kernel image is invalid"},
	{INVALID_CONTEXT, "invalid device context"},
	{NOT_FOUND, "named symbol not found"},
	{CUDA_NOT_READY, "device not ready"},
	{700, "an illegal memory access was encountered"},
	{REGISTERED, "part or all of the requested memory range is already mapped"},
	{NOT_REGISTERED, "pointer does not correspond to a registered memory region"},
	{719, "unspecified launch failure"},
};

static bool initialized;
static int device_fd = -1;          /* a real driver has several */
static int context, module, stream; /* their addresses are the handles */
bool fake_context_there;            /* for tests */
static struct {
	uint8_t *memory;
	size_t bytes;
} registered[8];

long fake_setting(const char *name, long otherwise)
{
	const char *all = getenv("RDMAD_FAKE_CUDA");
	size_t length = strlen(name);

	for (const char *at = all; at && *at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, name, length) == 0 && at[length] == '=')
			return strtol(at + length + 1, NULL, 10);
	}
	return otherwise;
}

/* An error of the program, which a device could answer with anything. */
static void never(const char *entry, const char *what)
{
	fprintf(stderr, "fake libcuda: %s %s\n", entry, what);
	abort();
}

static int enter(const char *entry)
{
	int result = (int)fake_setting(entry, 0);

	if (result)
		return result;
	if (!initialized)
		return NOT_INITIALIZED;
	if (fcntl(device_fd, F_GETFD) < 0)
		never(entry, "finds its descriptors closed");
	return fake_fault();
}

/* For what waits for the device or changes what it has. */
static int enter_idle(const char *entry)
{
	if (fake_running())
		never(entry, "deadlocks while the kernel runs");
	return enter(entry);
}

static int fake_cuInit(unsigned flags)
{
	const char *loading = getenv("CUDA_MODULE_LOADING");
	int result = (int)fake_setting("cuInit", 0);

	if (!loading || strcmp(loading, "EAGER") != 0)
		never("cuInit", "is called without CUDA_MODULE_LOADING=EAGER");
	if (!result && !initialized)
		device_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	initialized = !result;
	return result;
}

static int fake_cuGetErrorString(int result, const char **text)
{
	*text = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].result == result)
			*text = texts[i].text;
	return *text ? 0 : INVALID_VALUE;
}

/* The only one that the program asked to see, by its UUID, which ends with its number; -1: none has it. False: all of them
 * are seen. */
static bool one_visible(int *device)
{
	const char *uuid = getenv("CUDA_VISIBLE_DEVICES"), *start = "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae0";

	if (!uuid)
		return false;
	*device = strncmp(uuid, start, strlen(start)) == 0 ? atoi(uuid + strlen(start)) : -1;
	if (*device >= fake_setting("devices", 1))
		*device = -1;
	return true;
}

static int fake_cuDeviceGetCount(int *count)
{
	int device;

	*count = one_visible(&device) ? device >= 0 : (int)fake_setting("devices", 1);
	return enter("cuDeviceGetCount");
}

static int fake_cuDeviceGet(int *device, int ordinal)
{
	int count = 0;

	fake_cuDeviceGetCount(&count);
	if (ordinal < 0 || ordinal >= count)
		return INVALID_DEVICE;
	if (!one_visible(device))
		*device = ordinal;
	return enter("cuDeviceGet");
}

static int fake_cuDeviceGetName(char *name, int size, int device)
{
	snprintf(name, (size_t)size, "Fake GPU %d", device);
	return enter("cuDeviceGetName");
}

static int fake_cuDeviceGetAttribute(int *value, int attribute, int device)
{
	const int values[] = {
		[CUDA_ATTRIBUTE_PROCESSORS] = 2,
		[CUDA_ATTRIBUTE_RUN_LIMIT] = (int)fake_setting("limited", 0),
		[CUDA_ATTRIBUTE_COMPUTE_MODE] = (int)fake_setting("mode", 0),
		[CUDA_ATTRIBUTE_CAPABLE_MAJOR] = (int)fake_setting("capable", 90) / 10,
		[CUDA_ATTRIBUTE_CAPABLE_MINOR] = (int)fake_setting("capable", 90) % 10,
	};

	if (attribute < 0 || attribute >= (int)ARRAY_SIZE(values))
		return INVALID_VALUE;
	*value = values[attribute];
	return enter("cuDeviceGetAttribute");
}

static int fake_cuCtxCreate(void **out, unsigned flags, int device)
{
	int result = enter_idle("cuCtxCreate");

	if (result)
		return result;
	fake_context_there = true;
	*out = &context;
	return 0;
}

static int fake_cuCtxDestroy(void *handle)
{
	int result = enter_idle("cuCtxDestroy");

	if (result || handle != &context || !fake_context_there)
		return result ? result : INVALID_CONTEXT;
	usleep((useconds_t)fake_setting("slow", 0) * 1000);
	fake_context_there = false;
	return 0;
}

/* Any image that could be one: machine code, or the text of PTX. What it is made of is not looked
 * at, because the kernel is in here. */
static int fake_cuModuleLoadDataEx(void **out, const void *image, unsigned count, int *options, void **values)
{
	const char *starts[] = {"\177ELF", "\x50\xed\x55\xba", ".version", "//"};
	int result = enter_idle("cuModuleLoadDataEx");

	if (result || !fake_context_there)
		return result ? result : INVALID_CONTEXT;
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
		if (strncmp(image, starts[i], strlen(starts[i])) == 0) {
			*out = &module;
			return 0;
		}
	for (unsigned i = 0; i < count; i++)
		if (options[i] == CUDA_JIT_ERRORS)
			strcpy(values[i], "ptxas fatal: this is no PTX");
	return INVALID_IMAGE;
}

static int fake_cuModuleGetFunction(void **function, void *handle, const char *name)
{
	*function = (void *)GPU_KERNEL_NAME;
	if (strcmp(name, GPU_KERNEL_NAME) != 0)
		return NOT_FOUND;
	return enter_idle("cuModuleGetFunction");
}

static int fake_cuModuleUnload(void *handle)
{
	return enter_idle("cuModuleUnload");
}

static int fake_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared)
{
	*blocks = 2;
	return enter_idle("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

static int fake_cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
	int result = enter_idle("cuMemHostRegister");

	if (result || !fake_context_there)
		return result ? result : INVALID_CONTEXT;
	if ((uintptr_t)memory % 4096 || bytes % 4096 || !bytes)
		return INVALID_VALUE;
	for (size_t i = 0; i < ARRAY_SIZE(registered); i++)
		if (registered[i].memory == memory)
			return REGISTERED;
	for (size_t i = 0; i < ARRAY_SIZE(registered); i++)
		if (!registered[i].memory) {
			registered[i].memory = memory;
			registered[i].bytes = bytes;
			return 0;
		}
	return OUT_OF_MEMORY;
}

static int fake_cuMemHostUnregister(void *memory)
{
	int result = enter_idle("cuMemHostUnregister");

	for (size_t i = 0; i < ARRAY_SIZE(registered) && !result; i++)
		if (registered[i].memory == memory) {
			registered[i].memory = NULL;
			return 0;
		}
	return result ? result : NOT_REGISTERED;
}

static int fake_cuMemHostGetDevicePointer(uint64_t *pointer, void *memory, unsigned flags)
{
	int result = enter("cuMemHostGetDevicePointer");

	for (size_t i = 0; i < ARRAY_SIZE(registered) && !result; i++)
		if (registered[i].memory == memory) {
			*pointer = (uintptr_t)memory;
			return 0;
		}
	return result ? result : INVALID_VALUE;
}

static int fake_cuStreamCreate(void **out, unsigned flags)
{
	int result = enter_idle("cuStreamCreate");

	if (result || !fake_context_there)
		return result ? result : INVALID_CONTEXT;
	*out = &stream;
	return flags == CUDA_STREAM_NON_BLOCKING ? 0 : INVALID_VALUE;
}

static int fake_cuStreamQuery(void *handle)
{
	int result = enter("cuStreamQuery");

	if (result)
		return result;
	return fake_running() ? CUDA_NOT_READY : 0;
}

static int fake_cuStreamDestroy(void *handle)
{
	int result = enter_idle("cuStreamDestroy");

	if (!result)
		fake_end();
	return result;
}

static int fake_cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
			       unsigned block_y, unsigned block_z, unsigned shared, void *handle, void **parameters,
			       void **extra)
{
	int result = enter_idle("cuLaunchKernel");

	if (result)
		return result;
	if (grid_y != 1 || grid_z != 1 || block_x != GPU_KERNEL_THREADS || block_y != 1 || block_z != 1 ||
	    handle != &stream || grid_x < 1 || grid_x > 4)
		return INVALID_VALUE;
	return fake_launch(grid_x, parameters[0]) ? OUT_OF_MEMORY : 0;
}

/* The entries under the names that the real library exports. */
#define FAKE_EXPORT(name, exported, version, arguments)                                                                \
	extern int exported_##name arguments __asm__(exported)                                                         \
		__attribute__((alias("fake_" #name), visibility("default")));
CUDA_ENTRIES(FAKE_EXPORT)

#define FAKE_ROW(name, exported, version, arguments) {#name, version, (void *)fake_##name},
static const struct {
	const char *name;
	int version;
	void *entry;
} entries[] = {CUDA_ENTRIES(FAKE_ROW)};

int cuGetProcAddress(const char *name, void **entry, int version, uint64_t flags);
int cuGetProcAddress(const char *name, void **entry, int version, uint64_t flags)
{
	for (size_t i = 0; i < ARRAY_SIZE(entries) && !fake_setting("cuGetProcAddress", 0); i++)
		if (strcmp(entries[i].name, name) == 0 && version == entries[i].version) {
			*entry = entries[i].entry;
			return 0;
		}
	*entry = NULL;
	return NOT_FOUND;
}
