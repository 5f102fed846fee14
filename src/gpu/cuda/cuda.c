/*
 * cuda.c: the backend of an accelerator: one context, one kernel (kernel.cu) that polls the ring in this process's
 * memory until the session ends, or has had nothing to do for a while: then it is launched again with the next job.
 *
 * Beside such a kernel most of the driver deadlocks: what loads, allocates, frees or waits for the
 * device waits for the kernel's end. So all there is to take is taken before the launch, and given
 * back after the end; in between there is only cuStreamQuery. Host and kernel talk by the board
 * (kernel.h).
 *
 * Two threads: the caller's tends the kernel; in RPC mode a second one tells the daemon of results
 * at once.
 */
#include "gpu/cuda/cuda.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BEAT (5 * TIME_MS)       /* between looks at the kernel */
#define LEASE (2 * TIME_S)       /* the device is thought dead after so much silence */
#define HOST_LEASE (30 * TIME_S) /* and the host by the kernel: it may be stopped for a while, with its machine */
/* Time for all blocks to begin. One that is not resident, as other programs have its place, may never do so, and no
 * other serves its queues. */
#define BEGIN_PATIENCE (10 * TIME_S)
#define END_PATIENCE (2 * TIME_S) /* the process's watch has less */
#define RESULT_NAP (20 * TIME_US) /* while a job is under way for longer than attr.poll */

/*
 * Results: the daemon may sleep, and the kernel cannot wake it.
 */

/* Whether there are results since the last look; the daemon knows of them then. */
static bool results_tell(struct gpu_process *process, uint64_t *told)
{
	uint64_t done = gpu_ring_done(&process->ring);

	if (done == *told)
		return false;
	*told = done;
	gpu_process_results(process);
	return true;
}

/* The daemon looks for results itself, or was told of one since it began to wait: no wake-up is needed before it waits
 * anew, which wakes. */
static bool sleep_until_it_waits(struct gpu_process *process)
{
	struct wire_ring_control *control = wire_ring_control(&process->ring);
	const struct timespec beat = {.tv_nsec = BEAT};
	uint32_t waits = wire_ring_load32(&control->waits);

	if (waits && waits != atomic_load(&process->told))
		return false;
	wire_ring_store32(&control->watches, 1);
	wire_ring_fence(); /* it sees that we sleep, or the kernel sees that it waits */
	syscall(SYS_futex, &control->waits, FUTEX_WAIT, waits, &beat, NULL, 0);
	wire_ring_store32(&control->watches, 0);
	return true;
}

/* Jobs are under way, so there is no kick when one is done. */
static void wait_for_result(struct gpu_process *process, unsigned turns, uint64_t since)
{
	const struct timespec nap = {.tv_nsec = RESULT_NAP};

	if (sleep_until_it_waits(process))
		return;
	if (process->attr.poll != TIME_NEVER && turns % 64 == 0 && time_now() - since > process->attr.poll)
		nanosleep(&nap, NULL);
	else if (time_to_yield(turns))
		sched_yield();
}

static void *tell_results(void *argument)
{
	struct gpu_process *process = argument;
	struct gpu_idle idle;
	uint64_t told = 0, since = time_now();
	unsigned turns = 0;

	gpu_idle_init(process, &idle);
	while (!gpu_process_stopping(process)) {
		if (results_tell(process, &told)) {
			since = time_now();
			turns = 0;
		} else if (told != gpu_ring_submitted(&process->ring)) {
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

static int kernel_launch(struct cuda *c)
{
	void *parameters[] = {&c->args};

	c->args.poll = c->process->attr.poll;
	c->args.job_timeout = c->process->attr.job_timeout;
	c->args.lease = HOST_LEASE;
	c->parked = false;
	c->looked = c->busy = time_now();
	for (unsigned i = 0; i < c->blocks; i++) {
		c->heard[i] = (struct cuda_heard){0, 0};
		wire_ring_store(&c->board->block[i].beat, 0);
	}
	wire_ring_store(&c->board->beat, ++c->beat);
	return cuda_call(&c->api, cuLaunchKernel, c->function, c->blocks, 1, 1, GPU_KERNEL_THREADS, 1, 1, 0, c->stream,
			 parameters, NULL);
}

/* Report why a block ended, in the words of any backend. */
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

static int fail_device(struct cuda *c)
{
	gpu_process_fail(c->process, WIRE_RING_DEVICE, 0, 0, "%s", c->api.why);
	return -EIO;
}

/* Each block has a beat of its own. One that has not begun may never do so, and one that stands still does nothing for
 * its queues while others go on. */
static int look_at_blocks(struct cuda *c)
{
	uint64_t now = time_now(), passed = now - c->looked;

	c->looked = now;
	for (unsigned i = 0; i < c->blocks; i++) {
		struct gpu_kernel_block *block = &c->board->block[i];
		uint64_t failed = wire_ring_load(&block->failed), silent;

		if (failed)
			fail_block(c->process, block, failed);
		silent = cuda_silence(&c->heard[i], wire_ring_load(&block->beat), passed);
		if (gpu_process_stopping(c->process) || silent <= (c->heard[i].beat ? LEASE : BEGIN_PATIENCE))
			continue;
		if (c->heard[i].beat)
			cuda_api_failed(&c->api, "block %u of the device's %u stands still", i, c->blocks);
		else
			cuda_api_failed(&c->api,
					"block %u of the kernel's %u does not begin: the device has no room for it "
					"beside other programs; see gpu.queues",
					i, c->blocks);
		return fail_device(c);
	}
	return 0;
}

static void sleep_for(uint64_t ns)
{
	const struct timespec ts = {.tv_nsec = (long)ns};

	nanosleep(&ts, NULL);
}

/* Say the word to the kernel, and see it end. False: it did not, or it failed. */
static bool end_kernel(struct cuda *c, uint64_t word)
{
	uint64_t limit = time_now() + END_PATIENCE;
	int result;

	wire_ring_store(&c->board->beat, word);
	while ((result = c->api.cuStreamQuery(c->stream)) == CUDA_NOT_READY && time_now() < limit)
		sleep_for(TIME_MS / 4);
	return cuda_api_result(&c->api, "the kernel", result) == 0;
}

static bool has_work(const struct cuda *c)
{
	return gpu_ring_submitted(&c->process->ring) != gpu_ring_done(&c->process->ring);
}

static int tend_running(struct cuda *c)
{
	uint64_t now = time_now();
	int rc = look_at_blocks(c), result;

	if (rc != 0 || gpu_process_stopping(c->process))
		return rc;
	result = c->api.cuStreamQuery(c->stream);
	if (result != CUDA_NOT_READY) {
		if (cuda_api_result(&c->api, "the kernel", result) == 0)
			cuda_api_failed(&c->api, "the kernel ended by itself, as it does when its host stood still "
						 "for 30 s");
		return fail_device(c);
	}
	if (has_work(c))
		c->busy = now;
	/* A kernel that polls takes its time slice from all other programs of the device, for nothing when there is
	 * nothing to do. So then it ends, and this thread waits for jobs. A job that comes while it ends is found by
	 * the next kernel. */
	if (now - c->busy > c->process->attr.park) {
		if (!end_kernel(c, GPU_KERNEL_PARK))
			return fail_device(c);
		c->parked = true;
		return 0;
	}
	wire_ring_store(&c->board->beat, ++c->beat);
	sleep_for(BEAT);
	return 0;
}

static int cuda_serve(struct cuda *c)
{
	struct gpu_process *process = c->process;
	struct gpu_idle idle = {0};
	uint64_t told = 0;
	pthread_t results;
	int rc = process->queue_mode ? 0 : pthread_create(&results, NULL, tell_results, process);

	if (rc != 0) {
		gpu_process_fail(process, WIRE_RING_DEVICE, 0, 0, "no thread for the results");
		return -rc;
	}
	gpu_process_ready(process);
	while (rc == 0 && !gpu_process_stopping(process)) { /* 0: the kernel still listens */
		if (!c->parked) {
			rc = tend_running(c);
		} else if (!has_work(c)) {
			gpu_idle(process, &idle);
		} else {
			gpu_idle_end(process, &idle);
			rc = kernel_launch(c) == 0 ? 0 : fail_device(c);
		}
		if (process->queue_mode)
			results_tell(process, &told);
	}
	gpu_idle_disarm(process, &idle);
	if (!process->queue_mode)
		pthread_join(results, NULL);
	return rc;
}

static int cuda_run(struct gpu_process *process, char *why)
{
	struct cuda c = {.process = process};
	int rc = cuda_take(&c);

	if (rc == 0) {
		rc = kernel_launch(&c);
		if (rc != 0)
			cuda_give_back(&c);
	}
	if (rc != 0) {
		snprintf(why, GPU_WHY, "%s", c.api.why);
		return -ENODEV;
	}
	rc = cuda_serve(&c);
	/* From a kernel that does not end nothing can be taken back, and after a fault every call
	 * fails: the end of the process is what remains. */
	if (end_kernel(&c, GPU_KERNEL_STOP))
		cuda_give_back(&c);
	return rc != 0 || atomic_load(&process->failed) ? -EIO : 0;
}

const struct gpu_backend gpu_backend_cuda = {
	.name = "cuda",
	.help = "an accelerator of NVIDIA: a kernel that stays on it and polls",
	.descriptors = 1024,    /* a driver opens dozens for each of its devices */
	.file_bytes = 64 * MIB, /* shared memory, and a cache of what it compiled */
	.probe = cuda_probe,
	.run = cuda_run,
};
