/*
 * kernel.cu: the kernel that lives as long as its session. It polls the ring in host memory,
* and nothing is launched for a job.
 *
 * A block serves every gridDim.x-th queue in turn, if there are so many. Its first thread looks for a job and copies
 * the descriptor into shared memory, where it is judged; the team of GPU_KERNEL_TEAM threads carries it out, or, of a
 * large one (spread.h), a part; the first warp publishes the result. One warp more, of which one thread works, watches:
 * it tells the host that the block lives, and the team to stop, because the host says so or is not heard of any more,
 * or because a job takes too long. So a thread that waits never has to look at a clock.
 *
 * Written in what C and CUDA C++ have in common: tests/fake runs this text on threads.
 */
#include "gpu/cuda/device.h"

#include "gpu/cuda/kernel.h"
#include "gpu/cuda/spread.h"

#define STAGED (16u << 10) /* a longer input is not copied into shared memory */
#define NAP 20000u         /* ns between the looks of an idle block */
#define WATCH_NAP 100000u
#define LONGEST 4000000000u /* that a result says a job took */

/* As wide as one thread's load can be: fewer reads over the bus. */
struct wide {
	uint64_t low, high;
} __attribute__((aligned(16)));

/* What a block does next. */
enum turn { TURN_LEAVE, TURN_JOB, TURN_HELP };

struct block {
	struct wire_ring_job job;             /* the copy, found good */
	uint64_t count[WIRE_RING_QUEUES_MAX]; /* jobs done, of each queue */
	uint32_t room[WIRE_RING_QUEUES_MAX];  /* results that there is room for, as far as was asked */
	uint32_t turn;                        /* enum turn */
	uint32_t length;                      /* of the output */
	uint64_t check;                       /* of the output */
	uint32_t wanted;                      /* the result is to be published: */
	struct wire_ring_result result;
	struct spread_piece piece; /* of another block's job, or of the block's own */
	/* Between team and watch. */
	uint64_t queue; /* of the job */
	uint64_t begin; /* of the job; 0: there is none */
	uint64_t left;  /* the team is gone */
	uint32_t stop;  /* the team should go */
	uint32_t park;  /* when it has nothing to do */
	uint32_t scratch[GPU_TEAM_SCRATCH / sizeof(uint32_t)];
	struct wide staged[STAGED / sizeof(struct wide)];
};

DEVICE_FN void fail(const struct gpu_kernel_args *args, const struct block *block, uint32_t queue, uint32_t error)
{
	struct gpu_kernel_block *say = &args->board->block[blockIdx.x];

	say->index = device_get(&block->count[queue]);
	wire_ring_store(&say->failed, (uint64_t)error << 32 | queue);
}

/* Copy the next job of a queue and judge it: 1, 0 or negative, as wire_ring_take(). For how many results there is room
 * is asked when what was known of is used up: a read over the bus. So an index of results that jumps is seen then, or
 * when a job is wrong too. */
DEVICE_FN int look(const struct gpu_kernel_args *args, struct block *block, uint32_t queue)
{
	uint64_t count = block->count[queue];
	const char *why;
	int64_t length;
	int rc = 1;

	if (!block->room[queue])
		rc = wire_ring_room(&args->ring, queue, count);
	if (rc <= 0)
		return rc;
	if (!block->room[queue])
		block->room[queue] = (uint32_t)rc;
	rc = wire_ring_take(&args->ring, queue, count, &block->job);
	if (rc < 0 && wire_ring_room(&args->ring, queue, count) < 0)
		return -WIRE_RING_JUMPED;
	if (rc <= 0)
		return rc;
	length = gpu_operation_check(&args->ring.shape, &block->job, &why);
	block->length = (uint32_t)length;
	return length < 0 ? -WIRE_RING_BAD_JOB : 1;
}

/* The first thread: a job of the block's next queue. 0: there is none. */
DEVICE_FN int look_at_next(const struct gpu_kernel_args *args, struct block *block, uint32_t *queue)
{
	int rc;

	*queue += gridDim.x;
	if (*queue >= args->ring.shape.queues)
		*queue = blockIdx.x;
	if (*queue >= args->ring.shape.queues) /* the block has none, and only helps */
		return 0;
	rc = look(args, block, *queue);
	if (rc < 0) {
		args->board->block[blockIdx.x].job = block->job;
		fail(args, block, *queue, (uint32_t)-rc);
	}
	return rc;
}

/* The first thread: wait for a job of any of the block's queues, or a piece of another block's. */
DEVICE_FN enum turn next_turn(const struct gpu_kernel_args *args, struct block *block)
{
	uint32_t queue = (uint32_t)block->queue;
	uint64_t idle = device_time();

	while (!wire_ring_load32(&block->stop)) {
		int rc = look_at_next(args, block, &queue);

		if (rc < 0)
			return TURN_LEAVE;
		block->check = 0;
		if (rc > 0) {
			device_set(&block->queue, queue);
			device_set(&block->begin, device_time());
			return TURN_JOB;
		}
		if (spread_find(&block->piece))
			return TURN_HELP;
		if (wire_ring_load32(&block->park))
			return TURN_LEAVE;
		if (device_time() - idle > args->poll)
			__nanosleep(NAP);
	}
	return TURN_LEAVE;
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

/* The first thread: what is said of the job. False: it is not wanted any more. */
DEVICE_FN bool describe(struct block *block)
{
	uint64_t took = device_time() - block->begin;
	struct wire_ring_result *result = &block->result;

	device_set(&block->begin, 0);
	if (wire_ring_load32(&block->stop))
		return false;
	result->sequence = block->count[block->queue] + 1;
	result->id = block->job.id;
	result->length = block->length;
	result->nanoseconds = (uint32_t)(took < LONGEST ? took : LONGEST);
	result->check = block->check + wire_ring_check_descriptor(result);
	return true;
}

/* The first warp: publish the result. Its descriptor leaves in one transfer; that output and descriptor are there
 * before the words say so needs one fence, of the first thread, which the barriers have put behind what the others
 * wrote. */
DEVICE_FN void publish(const struct gpu_kernel_args *args, const struct gpu_team *team, struct block *block)
{
	uint32_t queue = (uint32_t)block->queue, lanes = team->count < 32 ? team->count : 32;
	uint64_t count = block->count[queue];

	if (team->index == 0)
		block->wanted = describe(block);
	device_barrier_warp();
	if (block->wanted)
		for (uint32_t i = team->index; i < WIRE_RING_LINE / 8; i += lanes)
			wire_ring_result(&args->ring, queue, count)->word[i] = block->result.word[i];
	device_barrier_warp();
	if (team->index != 0 || !block->wanted)
		return;
	wire_ring_publish(&args->ring, queue, count);
	device_set(&block->count[queue], count + 1);
	block->room[queue]--;
}

/* The team: what there is of the phase for it to do, and others theirs. */
DEVICE_FN void spread_phase(const struct gpu_kernel_args *args, const struct gpu_team *team, struct block *block,
			    struct spread *spread, uint32_t phase)
{
	if (team->index == 0)
		spread_open(spread, phase);
	for (;;) {
		if (team->index == 0)
			block->wanted = !wire_ring_load32(&block->stop) && spread_take(spread, &block->piece);
		gpu_team_barrier(team);
		if (!block->wanted)
			break;
		spread_work(&args->ring, team, &block->piece, &block->check);
	}
	if (team->index == 0)
		spread_await(spread, &block->stop);
	gpu_team_barrier(team);
}

/* The team: a job with the help of other blocks. */
DEVICE_FN void spread_job(const struct gpu_kernel_args *args, const struct gpu_team *team, struct block *block)
{
	struct spread *spread = &spreads.of[blockIdx.x];

	for (uint32_t v = team->index; v < 256; v += team->count)
		spread->count[v] = 0;
	if (team->index == 0) {
		spread->job = block->job;
		spread->queue = (uint32_t)block->queue;
		spread->index = block->count[block->queue];
		device_global_set(&spread->check, 0);
		device_global_add(&spreads.open, 1);
	}
	gpu_team_barrier(team);
	for (uint32_t phase = 0; phase < SPREAD_PHASES; phase++)
		spread_phase(args, team, block, spread, phase);
	if (team->index == 0) {
		spread_close(spread);
		device_global_add(&spreads.open, UINT64_MAX);
		block->check = device_global_get(&spread->check);
	}
}

/* The team: the job that was found. */
DEVICE_FN void carry_out(const struct gpu_kernel_args *args, const struct gpu_team *team, struct block *block)
{
	uint32_t queue = (uint32_t)block->queue;
	uint64_t count = block->count[queue];

	if (spread_wanted(&block->job)) {
		spread_job(args, team, block);
	} else {
		device_add(&block->check,
			   gpu_operation_body(team, &block->job,
					      stage(team, block, wire_ring_job(&args->ring, queue, count) + 1),
					      wire_ring_result(&args->ring, queue, count) + 1));
	}
	gpu_team_barrier(team);
	if (team->index < 32)
		publish(args, team, block);
}

/* The first thread: the words of the block's queues are as the kernel before this one left them. */
DEVICE_FN void resume(const struct gpu_kernel_args *args, struct block *block)
{
	for (uint32_t queue = blockIdx.x; queue < args->ring.shape.queues; queue += gridDim.x)
		device_set(&block->count[queue], wire_ring_load(&wire_ring_worker_line(&args->ring, queue)->done));
	device_set(&block->queue, args->ring.shape.queues); /* after the last one comes the block's first */
}

DEVICE_FN void work(const struct gpu_kernel_args *args, struct block *block)
{
	struct gpu_team team = {threadIdx.x, blockDim.x - GPU_KERNEL_WATCH, block->scratch, &block->stop};

	if (team.index == 0)
		resume(args, block);
	for (;;) {
		if (team.index == 0)
			block->turn = next_turn(args, block);
		gpu_team_barrier(&team);
		if (block->turn == TURN_LEAVE)
			break;
		if (block->turn == TURN_JOB)
			carry_out(args, &team, block);
		else
			spread_work(&args->ring, &team, &block->piece, &block->check);
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
		if (host == GPU_KERNEL_PARK)
			wire_ring_store32(&block->park, 1);
		wire_ring_store(&args->board->block[blockIdx.x].beat, ++beat);
		__nanosleep(WATCH_NAP);
	}
}

/* Two blocks on each multiprocessor suffice: for more of them the registers would not. Turing's has threads for one. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
#define BLOCKS_EACH 1
#else
#define BLOCKS_EACH 2
#endif

DEVICE_KERNEL void __launch_bounds__(GPU_KERNEL_THREADS, BLOCKS_EACH)
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
