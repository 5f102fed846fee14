/*
 * spread.h: a large job by all blocks of the kernel that have nothing else to do. One block alone has too few reads
 * over the bus under way.
 *
 * The block that took the job, its owner, opens it in a place in the memory of the device, in pieces of PIECE bytes;
 * the taker of a ticket does a piece, the owner too, so that no job depends on others. An operation has two phases, of
 * which the second needs what the first one counted of the whole input. A ticket names the phase by its turn, and how
 * many pieces it has: a block that comes late gets none.
 *
 * Between blocks everything is ordered by the words `ticket` and `done`; a piece of output is made visible to the host
 * before it is counted in `done`.
 */
#ifndef RDMAD_GPU_CUDA_SPREAD_H
#define RDMAD_GPU_CUDA_SPREAD_H

#include "gpu/operations.h"

#define SPREAD_PIECE (64u << 10)
#define SPREAD_NEXT 0xffffull /* of a ticket: the next piece, */
#define SPREAD_PIECES 16      /* how many there are, */
#define SPREAD_TURN 32        /* and its turn */

enum spread_phase { SPREAD_COUNT, SPREAD_PUT, SPREAD_PHASES };

/* A block's job. */
struct spread {
	uint64_t ticket;
	uint64_t done;  /* pieces of this phase */
	uint64_t check; /* of the output */
	uint64_t phase;
	uint32_t queue;
	uint64_t index;
	struct wire_ring_job job;
	uint32_t count[256];
};

struct spreads {
	uint64_t open; /* how many blocks have such a job */
	struct spread of[WIRE_RING_QUEUES_MAX];
};

DEVICE_GLOBAL(struct spreads, spreads);

/* A piece that a block was given. */
struct spread_piece {
	struct spread *spread;
	uint32_t number;
	uint32_t phase; /* looked at once for the whole team: an owner that is told to stop goes on to the next one */
};

DEVICE_FN bool spread_wanted(const struct wire_ring_job *job)
{
	return gridDim.x > 1 && job->op == WIRE_RING_QUANTIZE && job->length >= GPU_KERNEL_SPREAD;
}

/* One thread: a piece of that job, if there is one left. */
DEVICE_FN bool spread_take(struct spread *spread, struct spread_piece *out)
{
	uint64_t ticket = device_global_get(&spread->ticket);

	/* Looked at before it is drawn, so that tickets beyond the last are few. */
	if ((ticket & SPREAD_NEXT) >= (ticket >> SPREAD_PIECES & SPREAD_NEXT))
		return false;
	ticket = device_global_add(&spread->ticket, 1);
	out->spread = spread;
	out->number = (uint32_t)(ticket & SPREAD_NEXT);
	out->phase = (uint32_t)device_global_get(&spread->phase);
	return out->number < (ticket >> SPREAD_PIECES & SPREAD_NEXT);
}

/* One thread: a piece of any other block's. */
DEVICE_FN bool spread_find(struct spread_piece *out)
{
	if (!device_global_get(&spreads.open))
		return false;
	for (uint32_t i = 1; i < gridDim.x; i++)
		if (spread_take(&spreads.of[(blockIdx.x + i) % gridDim.x], out))
			return true;
	return false;
}

/* The team: words `first` to `end` are counted, for all. */
DEVICE_FN void spread_count(const struct gpu_team *team, struct spread *spread, const void *input, uint64_t first,
			    uint64_t end)
{
	uint32_t *count = team->scratch;

	for (uint32_t v = team->index; v < 256; v += team->count)
		count[v] = 0;
	gpu_team_barrier(team);
	gpu_quantize_count(team, &spread->job, input, first, end, count);
	gpu_team_barrier(team);
	for (uint32_t v = team->index; v < 256; v += team->count)
		if (count[v])
			atomicAdd(&spread->count[v], count[v]);
}

/* The team: words `first` to `end` of the output are made; their share of the check. */
DEVICE_FN uint64_t spread_put(const struct gpu_team *team, struct spread *spread, const void *input, void *output,
			      uint64_t first, uint64_t end)
{
	uint32_t *count = team->scratch, *map = count + 256;

	for (uint32_t v = team->index; v < 256; v += team->count)
		count[v] = spread->count[v];
	gpu_team_barrier(team);
	gpu_quantize_map(team, &spread->job, count, map);
	return gpu_quantize_put(team, &spread->job, input, output, first, end, map);
}

/* The team carries out a piece; *sum is shared, and 0. */
DEVICE_FN void spread_work(const struct wire_ring *ring, const struct gpu_team *team, const struct spread_piece *piece,
			   uint64_t *sum)
{
	struct spread *spread = piece->spread;
	const void *input = wire_ring_job(ring, spread->queue, spread->index) + 1;
	void *output = wire_ring_result(ring, spread->queue, spread->index) + 1;
	uint64_t words = gpu_words(spread->job.length), first = (uint64_t)piece->number * (SPREAD_PIECE / 8);
	uint64_t end = first + SPREAD_PIECE / 8 < words ? first + SPREAD_PIECE / 8 : words;

	if (piece->phase == SPREAD_COUNT)
		spread_count(team, spread, input, first, end);
	else
		device_add(sum, spread_put(team, spread, input, output, first, end));
	gpu_team_barrier(team);
	if (team->index == 0) {
		device_global_add(&spread->check, *sum);
		*sum = 0;
		__threadfence_system();
		device_global_add(&spread->done, 1);
	}
}

/* The owner's first thread: no block gets a piece from now on. */
DEVICE_FN void spread_close(struct spread *spread)
{
	device_global_set(&spread->ticket, device_global_get(&spread->ticket) >> SPREAD_TURN << SPREAD_TURN);
}

/* The owner's first thread: a phase begins. */
DEVICE_FN void spread_open(struct spread *spread, uint32_t phase)
{
	uint64_t turn = (device_global_get(&spread->ticket) >> SPREAD_TURN) + 1;
	uint64_t pieces = (spread->job.length + SPREAD_PIECE - 1) / SPREAD_PIECE;

	device_global_set(&spread->phase, phase); /* told to stop, others may still be in the last one */
	device_global_set(&spread->done, 0);
	device_global_set(&spread->ticket, turn << SPREAD_TURN | pieces << SPREAD_PIECES);
}

/* The owner's first thread: until others have done theirs of the phase, or all should go. */
DEVICE_FN void spread_await(const struct spread *spread, const uint32_t *stop)
{
	uint64_t pieces = (spread->job.length + SPREAD_PIECE - 1) / SPREAD_PIECE;

	while (device_global_get(&spread->done) < pieces && !wire_ring_load32(stop))
		__nanosleep(100);
}

#endif
