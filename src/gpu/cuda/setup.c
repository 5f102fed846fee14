/*
 * setup.c: the device, its context, the kernels and the memory that it sees: all that is taken before the kernel
 * begins, and given back after its end.
 */
#include "gpu/cuda/cuda.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#define IMAGE_MAX (256 * MIB)
#define CAPABLE_MAJOR 7 /* threads of a warp that wait for each other: from compute capability 7.0 on */

/*
 * The device.
 */

static bool is_number(const char *text, uint64_t *number)
{
	return units_parse_number(text, 0, INT32_MAX, number) == 0;
}

static int choose_device(struct cuda *c)
{
	const char *wanted = c->process->attr.device;
	uint64_t number = 0;
	int count, rc = cuda_call(&c->api, cuDeviceGetCount, &count);

	if (rc != 0)
		return rc;
	if (wanted && !is_number(wanted, &number) && count == 0) {
		cuda_api_failed(&c->api, "no device has the UUID %s", wanted);
		return -ENODEV;
	}
	if (number >= (uint64_t)count) {
		cuda_api_failed(&c->api, "there is no device number %" PRIu64 ", of %d", number, count);
		return -ENODEV;
	}
	return cuda_call(&c->api, cuDeviceGet, &c->device, (int)number);
}

/* From nothing to a device that is chosen, and not yet taken. */
static int find_device(struct cuda *c)
{
	const char *wanted = c->process->attr.device;
	uint64_t number;
	int rc;

	if (!c->process->attr.kernels && !cuda_image()) {
		cuda_api_failed(&c->api, "built without kernels for CUDA: give gpu.kernels = FILE or "
					 "build with nvcc");
		return -ENODEV;
	}
	rc = cuda_api_load(&c->api);
	if (rc != 0)
		return rc;
	/* Lazily, a kernel would be loaded by its first launch, beside another that never ends. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	/* A UUID, of a device or of a part of one (MIG), is the driver's to find, which then shows nothing else: that
	 * is also faster where there are many. Numbers are those of nvidia-smi. */
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
	if (wanted && !is_number(wanted, &number))
		setenv("CUDA_VISIBLE_DEVICES", wanted, 1);
	rc = cuda_call(&c->api, cuInit, 0);
	return rc != 0 ? rc : choose_device(c);
}

static int device_attribute(struct cuda *c, int attribute, int *value)
{
	return cuda_call(&c->api, cuDeviceGetAttribute, value, attribute, c->device);
}

/* Check what the device can do, before anything of it is taken; its name, for people, and whether only one session at
 * a time will have it. */
static int check_device(struct cuda *c)
{
	struct gpu_probe *out = &c->process->probe;
	int limited = 0, mode = 0, rc = device_attribute(c, CUDA_ATTRIBUTE_CAPABLE_MAJOR, &c->major);
	size_t n;

	if (rc == 0)
		rc = device_attribute(c, CUDA_ATTRIBUTE_CAPABLE_MINOR, &c->minor);
	if (rc == 0)
		rc = device_attribute(c, CUDA_ATTRIBUTE_RUN_LIMIT, &limited);
	if (rc == 0)
		rc = device_attribute(c, CUDA_ATTRIBUTE_COMPUTE_MODE, &mode);
	if (rc != 0)
		return rc;
	rc = -ENODEV;
	if (c->major < CAPABLE_MAJOR)
		cuda_api_failed(&c->api, "its compute capability is %d.%d, and the kernel needs %d.0", c->major,
				c->minor, CAPABLE_MAJOR);
	else if (limited)
		cuda_api_failed(&c->api, "it ends each kernel after some seconds, as one with a display does");
	else if (mode == CUDA_MODE_PROHIBITED)
		cuda_api_failed(&c->api, "its compute mode is \"prohibited\": nvidia-smi -c DEFAULT lifts that");
	else
		rc = cuda_call(&c->api, cuDeviceGetName, out->device, sizeof(out->device), c->device);
	out->device[sizeof(out->device) - 1] = '\0';
	n = strlen(out->device);
	if (rc == 0 && mode == CUDA_MODE_EXCLUSIVE)
		snprintf(out->device + n, sizeof(out->device) - n, ", for one process");
	return rc;
}

/*
 * The kernel.
 */

/* A whole file, and a 0 behind it. NULL: api->why. */
static char *read_image(struct cuda *c, const char *path)
{
	FILE *file = fopen(path, "rb");
	char *image = NULL;
	long size = -1;

	if (file && fseek(file, 0, SEEK_END) == 0)
		size = ftell(file);
	if (size > 0 && (uint64_t)size < IMAGE_MAX)
		image = calloc(1, (size_t)size + 1);
	if (image && (fseek(file, 0, SEEK_SET) != 0 || fread(image, (size_t)size, 1, file) != 1)) {
		free(image);
		image = NULL;
	}
	if (!image)
		cuda_api_failed(&c->api, "cannot read the kernels in %s: %s", path,
				file && size <= 0 ? "it is empty" : strerror(errno));
	if (file)
		fclose(file);
	return image;
}

static int load_kernel(struct cuda *c)
{
	const char *path = c->process->attr.kernels;
	char *file = NULL, said[1024] = "";
	int options[] = {CUDA_JIT_ERRORS, CUDA_JIT_ERRORS_SIZE}, rc;
	void *values[] = {said, (void *)(uintptr_t)sizeof(said)};
	size_t n;

	if (path) {
		file = read_image(c, path);
		if (!file)
			return -ENOENT;
	}
	rc = cuda_call(&c->api, cuModuleLoadDataEx, &c->module, file ? file : cuda_image(), ARRAY_SIZE(options),
		       options, values);
	free(file);
	if (rc != 0) {
		n = strlen(c->api.why);
		snprintf(c->api.why + n, sizeof(c->api.why) - n, "%s%s, on compute capability %d.%d",
			 said[0] ? ": " : "", said, c->major, c->minor);
		return rc;
	}
	rc = cuda_call(&c->api, cuModuleGetFunction, &c->function, c->module, GPU_KERNEL_NAME);
	if (rc != 0)
		c->api.cuModuleUnload(c->module);
	return rc;
}

/* Take as many blocks as are wanted, but no more than are resident at once: one that is not never begins. */
static int count_blocks(struct cuda *c, unsigned wanted)
{
	int each, processors, rc;

	rc = cuda_call(&c->api, cuOccupancyMaxActiveBlocksPerMultiprocessor, &each, c->function, GPU_KERNEL_THREADS, 0);
	if (rc == 0)
		rc = device_attribute(c, CUDA_ATTRIBUTE_PROCESSORS, &processors);
	if (rc != 0)
		return rc;
	c->blocks = MIN((unsigned)each * (unsigned)processors, wanted);
	if (c->blocks)
		return 0;
	cuda_api_failed(&c->api, "the device has no room for a block of %d threads", GPU_KERNEL_THREADS);
	return -ENODEV;
}

/* Let the device see memory of this process; *seen is where. */
static int memory_map(struct cuda *c, void *memory, uint64_t bytes, uint64_t *seen)
{
	int rc = cuda_call(&c->api, cuMemHostRegister, memory, bytes, CUDA_REGISTER_MAPPED | CUDA_REGISTER_PORTABLE);

	if (rc != 0)
		return rc;
	rc = cuda_call(&c->api, cuMemHostGetDevicePointer, seen, memory, 0);
	if (rc != 0)
		c->api.cuMemHostUnregister(memory);
	return rc;
}

static uint64_t board_bytes(void)
{
	return wire_ring_pages(sizeof(struct gpu_kernel_board));
}

static int make_board(struct cuda *c)
{
	uint64_t seen;
	int rc;

	c->board = mmap(NULL, board_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (c->board == MAP_FAILED) {
		cuda_api_failed(&c->api, "no memory for the board: %s", strerror(errno));
		return -ENOMEM;
	}
	rc = memory_map(c, c->board, board_bytes(), &seen);
	c->args.board = (struct gpu_kernel_board *)seen;
	if (rc != 0)
		munmap(c->board, board_bytes());
	return rc;
}

/*
 * Together.
 */

static void drop_context(struct cuda *c)
{
	c->api.cuModuleUnload(c->module);
	c->api.cuCtxDestroy(c->context);
}

static int take_context(struct cuda *c)
{
	int rc = find_device(c);

	if (rc == 0)
		rc = check_device(c);
	if (rc == 0)
		rc = cuda_call(&c->api, cuCtxCreate, &c->context, CUDA_CONTEXT_MAP_HOST, c->device);
	if (rc != 0)
		return rc;
	rc = load_kernel(c);
	if (rc != 0)
		c->api.cuCtxDestroy(c->context);
	return rc;
}

int cuda_probe(const struct gpu_process_attr *attr, struct gpu_probe *out, char *why)
{
	struct gpu_process process = {.attr = *attr, .probe = *out};
	struct cuda c = {.process = &process};
	int rc = take_context(&c);

	if (rc == 0) {
		rc = count_blocks(&c, 1);
		drop_context(&c);
	}
	*out = process.probe;
	if (rc != 0)
		snprintf(why, GPU_WHY, "%s", c.api.why);
	return rc != 0 ? -ENODEV : 0;
}

int cuda_take(struct cuda *c)
{
	const struct wire_ring_shape *shape = &c->process->ring.shape;
	uint64_t seen = 0;
	int rc = take_context(c);

	if (rc != 0)
		return rc;
	rc = memory_map(c, c->process->ring.base, c->process->ring.at.bytes, &seen);
	c->args.ring = c->process->ring;
	c->args.ring.base = (uint8_t *)seen;
	if (rc != 0)
		goto drop_context;
	rc = make_board(c);
	if (rc != 0)
		goto unmap_ring;
	/* A block for each queue, and where jobs may be large some more, which help. */
	rc = count_blocks(c, shape->payload < GPU_KERNEL_SPREAD ? shape->queues
								: MAX(shape->queues, GPU_KERNEL_SPREAD_BLOCKS));
	if (rc == 0)
		rc = cuda_call(&c->api, cuStreamCreate, &c->stream, CUDA_STREAM_NON_BLOCKING);
	if (rc == 0)
		return 0;

	c->api.cuMemHostUnregister(c->board);
	munmap(c->board, board_bytes());
unmap_ring:
	c->api.cuMemHostUnregister(c->process->ring.base);
drop_context:
	drop_context(c);
	return rc;
}

void cuda_give_back(struct cuda *c)
{
	c->api.cuStreamDestroy(c->stream);
	c->api.cuMemHostUnregister(c->board);
	munmap(c->board, board_bytes());
	c->api.cuMemHostUnregister(c->process->ring.base);
	drop_context(c);
}
