/*
 * cuda_kernel.cu: the kernel that lives as long as its session. It polls the ring in host memory,
 * and nobody launches anything for a job.
 *
 * A block serves every gridDim.x-th queue in turn. Its first thread looks for a job and copies the
 * descriptor into shared memory, where it is judged; the team of GPU_KERNEL_TEAM threads carries it
 * out; the first thread publishes the result. One warp more, of which one thread works, watches:
 * it tells the host that the block lives, and the team to stop, because the host says so or is not
 * heard of any more, or because a job takes too long. So whoever waits never has to look at a clock.
 *
 * Written in what C and CUDA C++ have in common: tests/fake runs this text on threads.
 */
#include "gpu/cuda_device.h"

#include "gpu/cuda_kernel.h"
#include "gpu/operations.h"

#define STAGED (16u << 10) /* a longer input is not copied into shared memory */
#define NAP 20000u         /* ns between the looks of an idle block */
#define WATCH_NAP 100000u
#define LONGEST 4000000000u /* that a result says a job took */

/* As wide as one thread's load can be: fewer reads over the bus. */
struct wide {
	uint64_t low, high;
} __attribute__((aligned(16)));

struct block {
	struct wire_ring_job job;             /* the copy, found good */
	uint64_t count[WIRE_RING_QUEUES_MAX]; /* jobs done, of each queue */
	uint32_t room[WIRE_RING_QUEUES_MAX];  /* not 0: there is room for its next result */
	uint32_t leave;
	uint32_t length; /* of the output */
	uint64_t check;  /* of the output */
	/* Between team and watch. */
	uint64_t queue; /* of the job */
	uint64_t begin; /* of the job; 0: there is none */
	uint64_t left;  /* the team is gone */
	uint32_t stop;  /* the team should go */
	uint32_t scratch[GPU_TEAM_SCRATCH / sizeof(uint32_t)];
	struct wide staged[STAGED / sizeof(struct wide)];
};

DEVICE_FN void fail(const struct gpu_kernel_args *args, const struct block *block, uint32_t queue, uint32_t error)
{
	struct gpu_kernel_block *say = &args->board->block[blockIdx.x];

	say->index = device_get(&block->count[queue]);
	wire_ring_store(&say->failed, (uint64_t)error << 32 | queue);
}

/* Copy the next job of a queue and judge it: 1, 0 or negative, as wire_ring_take(). That there is
 * room for its result is asked before it comes, and once: a read over the bus. So an index of results
 * that jumps is seen with the job after, or when the job is wrong too. */
DEVICE_FN int look(const struct gpu_kernel_args *args, struct block *block, uint32_t queue)
{
	uint64_t count = block->count[queue];
	const char *why;
	int64_t length;
	int rc = 1;

	if (!block->room[queue])
		rc = wire_ring_has_room(&args->ring, queue, count);
	if (rc <= 0)
		return rc;
	block->room[queue] = 1;
	rc = wire_ring_take(&args->ring, queue, count, &block->job);
	if (rc < 0 && wire_ring_has_room(&args->ring, queue, count) < 0)
		return -WIRE_RING_JUMPED;
	if (rc <= 0)
		return rc;
	length = gpu_operation_check(&args->ring.shape, &block->job, &why);
	block->length = (uint32_t)length;
	return length < 0 ? -WIRE_RING_BAD_JOB : 1;
}

/* The first thread: wait for a job of any of the block's queues. False: leave. */
DEVICE_FN bool next_job(const struct gpu_kernel_args *args, struct block *block)
{
	uint32_t queue = (uint32_t)block->queue;
	uint64_t idle = device_time();

	while (!wire_ring_load32(&block->stop)) {
		int rc;

		queue += gridDim.x;
		if (queue >= args->ring.shape.queues)
			queue = blockIdx.x;
		rc = look(args, block, queue);
		if (rc < 0) {
			args->board->block[blockIdx.x].job = block->job;
			fail(args, block, queue, (uint32_t)-rc);
			return false;
		}
		if (rc > 0) {
			block->check = 0;
			device_set(&block->queue, queue);
			device_set(&block->begin, device_time());
			return true;
		}
		if (device_time() - idle > args->poll)
			__nanosleep(NAP);
	}
	return false;
}

/* A short input is read once, into shared memory; the operation may look at it several times. */
DEVICE_FN const void *stage(const struct gpu_team *team, struct block *block, const void *cell)
{
	const struct wide *from = (const struct wide *)cell;
	uint32_t count = (block->job.length + sizeof(*from) - 1) / sizeof(*from);

	if (block->job.length > STAGED)
		return cell;
	for (uint32_t i = team->index; i < count; i += team->count)
		block->staged[i] = from[i];
	gpu_team_barrier(team);
	return block->staged;
}

/* The first thread: publish the result, unless nobody wants it any more. */
DEVICE_FN void publish(const struct gpu_kernel_args *args, struct block *block)
{
	uint32_t queue = (uint32_t)block->queue;
	uint64_t count = block->count[queue], took = device_time() - block->begin;
	struct wire_ring_result result = {0};

	device_set(&block->begin, 0);
	if (wire_ring_load32(&block->stop))
		return;
	result.sequence = count + 1;
	result.id = block->job.id;
	result.length = block->length;
	result.nanoseconds = (uint32_t)(took < LONGEST ? took : LONGEST);
	result.check = block->check + wire_ring_check_descriptor(&result);
	__threadfence_system(); /* the whole team's part of the output, which the barrier has ordered */
	wire_ring_finish(&args->ring, queue, count, count, &result);
	device_set(&block->count[queue], count + 1);
	block->room[queue] = 0;
}

DEVICE_FN void work(const struct gpu_kernel_args *args, struct block *block)
{
	struct gpu_team team = {threadIdx.x, blockDim.x - GPU_KERNEL_WATCH, block->scratch, sizeof(block->scratch),
				&block->stop};

	if (team.index == 0) /* after the last one comes the block's first */
		device_set(&block->queue, args->ring.shape.queues);
	for (;;) {
		uint32_t queue;
		uint64_t count;

		if (team.index == 0)
			block->leave = !next_job(args, block);
		gpu_team_barrier(&team);
		if (block->leave)
			break;
		queue = (uint32_t)block->queue;
		count = block->count[queue];
		device_add(&block->check,
			   gpu_operation_body(&team, &block->job,
					      stage(&team, block, wire_ring_job(&args->ring, queue, count) + 1),
					      wire_ring_result(&args->ring, queue, count) + 1));
		gpu_team_barrier(&team);
		if (team.index == 0)
			publish(args, block);
	}
	if (team.index == 0)
		device_set(&block->left, 1);
}

/* Whether the job that is under way takes too long. Said once. */
DEVICE_FN bool late(const struct gpu_kernel_args *args, const struct block *block)
{
	uint64_t begin = device_get(&block->begin);

	if (!begin || device_time() - begin <= args->job_timeout)
		return false;
	fail(args, block, (uint32_t)device_get(&block->queue), WIRE_RING_OVERTIME);
	return true;
}

DEVICE_FN void watch(const struct gpu_kernel_args *args, struct block *block)
{
	uint64_t beat = 0, heard = 0, host = 0;
	bool stop = false;

	while (!device_get(&block->left)) {
		uint64_t now = device_time(), said = wire_ring_load(&args->board->beat);

		if (said != host || !heard)
			heard = now;
		host = said;
		if (!stop && (host == GPU_KERNEL_STOP || now - heard > args->lease || late(args, block))) {
			stop = true;
			wire_ring_store32(&block->stop, 1);
		}
		wire_ring_store(&args->board->block[blockIdx.x].beat, ++beat);
		__nanosleep(WATCH_NAP);
	}
}

/* Two blocks on each multiprocessor suffice: for more of them the registers would not. */
DEVICE_KERNEL void __launch_bounds__(GPU_KERNEL_THREADS, 2)
	gpu_kernel(const __grid_constant__ struct gpu_kernel_args args)
{
	DEVICE_SHARED(struct block, block);

	for (uint32_t i = threadIdx.x; i < sizeof(*block) / sizeof(uint64_t); i += blockDim.x)
		((uint64_t *)block)[i] = 0;
	__syncthreads();
	if (threadIdx.x < blockDim.x - GPU_KERNEL_WATCH)
		work(&args, block);
	else if (threadIdx.x == blockDim.x - GPU_KERNEL_WATCH)
		watch(&args, block);
}
