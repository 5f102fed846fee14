/*
 * cuda.c: the backend of an accelerator: one context, one kernel (cuda_kernel.cu) that is launched
 * once and polls the ring in this process's memory until the session ends.
 *
 * Beside such a kernel most of the driver deadlocks: what loads, allocates, frees or waits for the
 * device waits for the kernel's end. So all there is to take is taken before the launch, and given
 * back after the end; in between there is only cuStreamQuery. Host and kernel talk by the board
 * (cuda_kernel.h).
 *
 * Two threads: the caller's tends the kernel; in RPC mode a second one tells the daemon of results
 * at once.
 */
#include "gpu/cuda_api.h"
#include "gpu/cuda_kernel.h"
#include "gpu/process.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define BEAT (5 * TIME_MS)       /* between looks at the kernel */
#define LEASE (2 * TIME_S)       /* the device is thought dead after so much silence */
#define HOST_LEASE (30 * TIME_S) /* and the host by the kernel: it may be stopped for a while, with its machine */
/* Of all blocks to begin. One that is not resident, as other programs have its place, may never do so, and nobody else
 * serves its queues. */
#define BEGIN_PATIENCE (10 * TIME_S)
#define END_PATIENCE (2 * TIME_S) /* the process's watch has less */
#define RESULT_NAP (20 * TIME_US) /* while a job is under way for longer than attr.poll */
#define IMAGE_MAX (256 * MIB)

struct cuda {
	struct gpu_process *process;
	struct cuda_api api;
	int device;
	void *context, *module, *function, *stream;
	struct gpu_kernel_board *board;
	struct gpu_kernel_args args;
	unsigned blocks;
};

/*
 * The device.
 */

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi -L prints it. */
static void format_uuid(const struct cuda_uuid *uuid, char out[static 48])
{
	int n = sprintf(out, "GPU");

	for (int i = 0; i < 16; i++)
		n += sprintf(out + n, "%s%02x", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "", uuid->bytes[i]);
}

static int device_by_number(struct cuda *c, uint64_t number, int count)
{
	if (number >= (uint64_t)count) {
		cuda_api_failed(&c->api, "there is no device number %" PRIu64 ", of %d", number, count);
		return -ENODEV;
	}
	return cuda_call(&c->api, cuDeviceGet, &c->device, (int)number);
}

static int device_by_uuid(struct cuda *c, const char *wanted, int count)
{
	struct cuda_uuid uuid;
	char text[48];
	int rc = 0;

	for (int i = 0; i < count && rc == 0; i++) {
		rc = cuda_call(&c->api, cuDeviceGet, &c->device, i);
		if (rc == 0)
			rc = cuda_call(&c->api, cuDeviceGetUuid, &uuid, c->device);
		if (rc != 0)
			return rc;
		format_uuid(&uuid, text);
		if (strcasecmp(text, wanted) == 0)
			return 0;
	}
	cuda_api_failed(&c->api, "none of the %d devices has the UUID %s", count, wanted);
	return -ENODEV;
}

static int choose_device(struct cuda *c)
{
	const char *wanted = c->process->attr.device;
	uint64_t number = 0;
	int count, rc = cuda_call(&c->api, cuDeviceGetCount, &count);

	if (rc != 0)
		return rc;
	if (wanted && units_parse_number(wanted, 0, INT32_MAX, &number) != 0)
		return device_by_uuid(c, wanted, count);
	return device_by_number(c, number, count);
}

/* From nothing to a device that is chosen, and not yet taken. */
static int find_device(struct cuda *c)
{
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
	rc = cuda_call(&c->api, cuInit, 0);
	return rc != 0 ? rc : choose_device(c);
}

static int probe(const struct gpu_process_attr *attr, struct gpu_probe *out, char *why)
{
	struct gpu_process process = {.attr = *attr};
	struct cuda c = {.process = &process};
	int rc = find_device(&c);

	if (rc == 0)
		rc = cuda_call(&c.api, cuDeviceGetName, out->device, sizeof(out->device), c.device);
	out->device[sizeof(out->device) - 1] = '\0';
	if (rc != 0)
		snprintf(why, GPU_WHY, "%s", c.api.why);
	return rc != 0 ? -ENODEV : 0;
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

static int load_image(struct cuda *c, const void *image)
{
	char said[1024] = "";
	int options[] = {CUDA_JIT_ERRORS, CUDA_JIT_ERRORS_SIZE};
	void *values[] = {said, (void *)(uintptr_t)sizeof(said)};
	int rc = cuda_call(&c->api, cuModuleLoadDataEx, &c->module, image, ARRAY_SIZE(options), options, values);
	size_t n = strlen(c->api.why);

	if (rc != 0 && said[0])
		snprintf(c->api.why + n, sizeof(c->api.why) - n, ": %s", said);
	return rc;
}

static int load_kernel(struct cuda *c)
{
	const char *path = c->process->attr.kernels;
	char *file = NULL;
	int rc;

	if (path) {
		file = read_image(c, path);
		if (!file)
			return -ENOENT;
	}
	rc = load_image(c, file ? file : cuda_image());
	free(file);
	if (rc != 0)
		return rc;
	rc = cuda_call(&c->api, cuModuleGetFunction, &c->function, c->module, GPU_KERNEL_NAME);
	if (rc != 0)
		c->api.cuModuleUnload(c->module);
	return rc;
}

/* A block per queue, but no more than are resident at once: one that is not never begins. */
static int count_blocks(struct cuda *c)
{
	int each, processors, rc;

	rc = cuda_call(&c->api, cuOccupancyMaxActiveBlocksPerMultiprocessor, &each, c->function, GPU_KERNEL_THREADS, 0);
	if (rc == 0)
		rc = cuda_call(&c->api, cuDeviceGetAttribute, &processors, CUDA_ATTRIBUTE_PROCESSORS, c->device);
	if (rc != 0)
		return rc;
	c->blocks = MIN((unsigned)each * (unsigned)processors, c->args.ring.shape.queues);
	if (c->blocks)
		return 0;
	cuda_api_failed(&c->api, "the device has no room for a block of %d threads", GPU_KERNEL_THREADS);
	return -ENODEV;
}

/* Let the device see memory of this process; *seen is where. */
static int map(struct cuda *c, void *memory, uint64_t bytes, uint64_t *seen)
{
	int rc = cuda_call(&c->api, cuMemHostRegister, memory, bytes, CUDA_REGISTER_MAPPED | CUDA_REGISTER_PORTABLE);

	if (rc != 0)
		return rc;
	rc = cuda_call(&c->api, cuMemHostGetDevicePointer, seen, memory, 0);
	if (rc != 0)
		c->api.cuMemHostUnregister(memory);
	return rc;
}

static int map_ring(struct cuda *c)
{
	uint64_t seen;
	int rc = map(c, c->process->ring.base, c->process->ring.at.bytes, &seen);

	c->args.ring = c->process->ring;
	c->args.ring.base = (uint8_t *)seen;
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
	rc = map(c, c->board, board_bytes(), &seen);
	c->args.board = (struct gpu_kernel_board *)seen;
	if (rc != 0)
		munmap(c->board, board_bytes());
	return rc;
}

static int launch(struct cuda *c)
{
	void *parameters[] = {&c->args};
	int rc = cuda_call(&c->api, cuStreamCreate, &c->stream, CUDA_STREAM_NON_BLOCKING);

	if (rc != 0)
		return rc;
	c->args.poll = c->process->attr.poll;
	c->args.job_timeout = c->process->attr.job_timeout;
	c->args.lease = HOST_LEASE;
	wire_ring_store(&c->board->beat, 1);
	rc = cuda_call(&c->api, cuLaunchKernel, c->function, c->blocks, 1, 1, GPU_KERNEL_THREADS, 1, 1, 0, c->stream,
		       parameters, NULL);
	if (rc != 0)
		c->api.cuStreamDestroy(c->stream);
	return rc;
}

/* All in the order in which give_back() undoes it. */
static int take(struct cuda *c)
{
	int rc = find_device(c);

	if (rc != 0)
		return rc;
	rc = cuda_call(&c->api, cuCtxCreate, &c->context, CUDA_CONTEXT_MAP_HOST, c->device);
	if (rc != 0)
		return rc;
	rc = load_kernel(c);
	if (rc != 0)
		goto destroy_context;
	rc = map_ring(c);
	if (rc != 0)
		goto unload;
	rc = make_board(c);
	if (rc != 0)
		goto unmap_ring;
	rc = count_blocks(c);
	if (rc == 0)
		rc = launch(c);
	if (rc == 0)
		return 0;

	c->api.cuMemHostUnregister(c->board);
	munmap(c->board, board_bytes());
unmap_ring:
	c->api.cuMemHostUnregister(c->process->ring.base);
unload:
	c->api.cuModuleUnload(c->module);
destroy_context:
	c->api.cuCtxDestroy(c->context);
	return rc;
}

/* The kernel has ended. */
static void give_back(struct cuda *c)
{
	c->api.cuStreamDestroy(c->stream);
	c->api.cuMemHostUnregister(c->board);
	munmap(c->board, board_bytes());
	c->api.cuMemHostUnregister(c->process->ring.base);
	c->api.cuModuleUnload(c->module);
	c->api.cuCtxDestroy(c->context);
}

/*
 * Results: the daemon may sleep, and the kernel cannot wake it.
 */

static uint64_t sum_done(const struct wire_ring *ring)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ring->shape.queues; i++)
		sum += wire_ring_load(&wire_ring_worker_line(ring, i)->done);
	return sum;
}

static uint64_t sum_submitted(const struct wire_ring *ring)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ring->shape.queues; i++)
		sum += wire_ring_load(&wire_ring_client_line(ring, i)->submitted);
	return sum;
}

/* Whether there are results since the last look; the daemon knows of them then. */
static bool tell(struct gpu_process *process, uint64_t *told)
{
	uint64_t done = sum_done(&process->ring);

	if (done == *told)
		return false;
	*told = done;
	gpu_process_results(process);
	return true;
}

/* Jobs are under way, so nobody kicks when one is done. */
static void wait_for_result(const struct gpu_process *process, unsigned turns, uint64_t since)
{
	const struct timespec nap = {.tv_nsec = RESULT_NAP};

	if (process->attr.poll != TIME_NEVER && turns % 64 == 0 && time_now() - since > process->attr.poll)
		nanosleep(&nap, NULL);
	else if (time_to_yield(turns))
		sched_yield();
}

static void *tell_results(void *argument)
{
	struct gpu_process *process = argument;
	struct gpu_idle idle = {0};
	uint64_t told = 0, since = time_now();
	unsigned turns = 0;

	while (!gpu_process_stopping(process)) {
		if (tell(process, &told)) {
			since = time_now();
			turns = 0;
		} else if (told != sum_submitted(&process->ring)) {
			gpu_idle_end(process, &idle);
			wait_for_result(process, ++turns, since);
		} else {
			gpu_idle(process, &idle);
		}
	}
	gpu_idle_disarm(process, &idle);
	return NULL;
}

/*
 * The kernel's life.
 */

static void fail(struct cuda *c, const char *why)
{
	gpu_process_fail(c->process, WIRE_RING_DEVICE, 0, 0, "%s", why);
}

/* What a block says it ended for, in the words of any backend. */
static void fail_block(struct gpu_process *process, const struct gpu_kernel_block *block, uint64_t failed)
{
	int error = (int)(failed >> 32);
	uint32_t queue = (uint32_t)failed;
	const char *why = "it is not what the ring can carry";
	char limit[32];

	switch (error) {
	case WIRE_RING_BAD_JOB:
		gpu_job_check(&process->ring.shape, &block->job, &why);
		gpu_process_fail(process, error, queue, block->index, "job %" PRIu64 " of queue %u: %s", block->index,
				 queue, why);
		break;
	case WIRE_RING_OVERTIME:
		gpu_process_fail(process, error, queue, block->index,
				 "job %" PRIu64 " of queue %u takes longer than %s", block->index, queue,
				 units_format_time(process->attr.job_timeout, limit));
		break;
	default:
		gpu_process_fail_ring(process, -error, queue, block->index);
	}
}

/* How often the blocks looked up, all together, and whether one of them failed. *missing: how many have not begun. */
static uint64_t look_at_blocks(struct cuda *c, unsigned *missing)
{
	uint64_t beats = 0;

	*missing = 0;
	for (unsigned i = 0; i < c->blocks; i++) {
		struct gpu_kernel_block *block = &c->board->block[i];
		uint64_t failed = wire_ring_load(&block->failed), beat = wire_ring_load(&block->beat);

		if (failed)
			fail_block(c->process, block, failed);
		beats += beat;
		*missing += beat == 0;
	}
	return beats;
}

static int fail_missing(struct cuda *c, unsigned missing)
{
	cuda_api_failed(&c->api,
			"%u of the kernel's %u blocks do not begin: the device has no room for them beside other "
			"programs; see gpu.queues",
			missing, c->blocks);
	fail(c, c->api.why);
	return -EIO;
}

/* Whether the device is still at it: 0, or it failed, or the kernel ended by itself. */
static int look_at_device(struct cuda *c)
{
	int result = c->api.cuStreamQuery(c->stream);

	if (result == CUDA_NOT_READY)
		return 0;
	if (cuda_api_result(&c->api, "the kernel", result) == 0)
		cuda_api_failed(&c->api, "the kernel ended by itself, as it does when its host stood still for 30 s");
	fail(c, c->api.why);
	return -EIO;
}

static void sleep_for(uint64_t ns)
{
	const struct timespec ts = {.tv_nsec = (long)ns};

	nanosleep(&ts, NULL);
}

/* Until it should end or has failed: 0 when the kernel still listens. */
static int tend(struct cuda *c)
{
	uint64_t begin = time_now(), beats = 0, heard = begin, beat = 1, told = 0;
	unsigned missing;

	while (!gpu_process_stopping(c->process)) {
		uint64_t now = time_now(), said = look_at_blocks(c, &missing);
		int rc = gpu_process_stopping(c->process) ? 0 : look_at_device(c);

		if (rc != 0)
			return rc;
		if (said != beats)
			heard = now;
		beats = said;
		if (now - heard > LEASE) {
			fail(c, "the device stands still");
			return -EIO;
		}
		if (missing && now - begin > BEGIN_PATIENCE)
			return fail_missing(c, missing);
		if (c->process->queue_mode)
			tell(c->process, &told);
		wire_ring_store(&c->board->beat, ++beat);
		sleep_for(BEAT);
	}
	return 0;
}

/* Tell the kernel to end, and see it end. False: it did not, or it failed. */
static bool end_kernel(struct cuda *c)
{
	uint64_t limit = time_now() + END_PATIENCE;
	int result;

	wire_ring_store(&c->board->beat, GPU_KERNEL_STOP);
	while ((result = c->api.cuStreamQuery(c->stream)) == CUDA_NOT_READY && time_now() < limit)
		sleep_for(TIME_MS / 4);
	return result == 0;
}

static int serve(struct cuda *c)
{
	struct gpu_process *process = c->process;
	pthread_t results;
	int rc = process->queue_mode ? 0 : pthread_create(&results, NULL, tell_results, process);

	if (rc != 0) {
		fail(c, "no thread for the results");
		return -rc;
	}
	gpu_process_ready(process);
	rc = tend(c);
	if (!process->queue_mode)
		pthread_join(results, NULL);
	return rc;
}

static int run(struct gpu_process *process)
{
	struct cuda c = {.process = process};
	int rc = take(&c);

	if (rc != 0) {
		fail(&c, c.api.why);
		return rc;
	}
	rc = serve(&c);
	/* From a kernel that does not end nothing can be taken back, and after a fault every call
	 * fails: the end of the process is what remains. */
	if (end_kernel(&c))
		give_back(&c);
	return rc != 0 || atomic_load(&process->failed) ? -EIO : 0;
}

const struct gpu_backend gpu_backend_cuda = {
	.name = "cuda",
	.help = "an accelerator of NVIDIA: a kernel that stays on it and polls",
	.descriptors = 1024,    /* a driver opens dozens for each of its devices */
	.file_bytes = 64 * MIB, /* shared memory, and a cache of what it compiled */
	.probe = probe,
	.run = run,
};
