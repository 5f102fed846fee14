/* plan.c: how a schedule is laid out: counted first, then written into one allocation. */
#include "peer/collectives/schedule_private.h"

#include <stdlib.h>

#define SPARES 4                /* allocations that a context keeps */
#define SPARE_MAX (8 * MIB)     /* and how large each may be */
#define MEMORY_ALIGN CACHE_LINE /* of what plan_memory() gives */

static size_t round_up(size_t size)
{
	return (size + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
}

static struct step *plan_step(struct plan *plan, enum step_kind kind)
{
	struct schedule *schedule = plan->schedule;
	uint32_t at = plan->steps++;

	if (!schedule)
		return NULL;
	must(at < schedule->steps && plan->lanes < schedule->lanes);
	schedule->step[at] = (struct step){.kind = kind, .lane = &schedule->lane[plan->lanes]};
	return &schedule->step[at];
}

static void plan_message(struct plan *plan, enum step_kind kind, int rank, void *data, size_t length)
{
	struct step *step = plan_step(plan, kind);

	must(rank >= 0 && rank < plan->size && rank != plan->rank);
	if (!step)
		return;
	step->rank = rank;
	step->to = data;
	step->length = length;
}

void plan_recv(struct plan *plan, int rank, void *to, size_t length)
{
	if (length)
		plan_message(plan, STEP_RECV, rank, to, length);
}

void plan_send(struct plan *plan, int rank, const void *from, size_t length)
{
	if (length)
		plan_message(plan, STEP_SEND, rank, (void *)from, length);
}

void plan_send_loose(struct plan *plan, int rank, const void *from, size_t length)
{
	if (length)
		plan_message(plan, STEP_SEND_LOOSE, rank, (void *)from, length);
}

void plan_await(struct plan *plan, int rank)
{
	plan_message(plan, STEP_RECV, rank, NULL, 0);
}

void plan_signal(struct plan *plan, int rank)
{
	plan_message(plan, STEP_SEND, rank, NULL, 0);
}

static void plan_local(struct plan *plan, enum step_kind kind, void *to, const void *from, size_t length)
{
	struct step *step = length && to != from ? plan_step(plan, kind) : NULL;

	if (!step)
		return;
	step->to = to;
	step->from = from;
	step->length = length;
}

void plan_copy(struct plan *plan, void *to, const void *from, size_t length)
{
	plan_local(plan, STEP_COPY, to, from, length);
}

void plan_reduce(struct plan *plan, void *into, const void *from, size_t count)
{
	plan_local(plan, STEP_REDUCE, into, from, count);
}

void plan_reduce_left(struct plan *plan, void *into, const void *from, size_t count)
{
	plan_local(plan, STEP_REDUCE_LEFT, into, from, count);
}

void plan_round(struct plan *plan)
{
	plan_step(plan, STEP_ROUND);
}

void plan_lane(struct plan *plan)
{
	struct schedule *schedule = plan->schedule;

	plan_round(plan);
	if (schedule) {
		schedule->lane[plan->lanes].end = plan->steps;
		if (plan->lanes + 1 < schedule->lanes)
			schedule->lane[plan->lanes + 1].next = plan->steps;
	}
	plan->lanes++;
}

void *plan_memory(struct plan *plan, size_t size)
{
	size_t at = plan->memory;

	plan->memory += round_up(size);
	return plan->schedule ? plan->schedule->memory + at : (char *)0x1000 + at;
}

/*
 * The allocation.
 */
struct spare {
	struct spare *next;
	size_t room;
};

static struct schedule *spare_find(rdma_context *ctx, size_t room)
{
	for (struct spare **at = (struct spare **)&ctx->schedule_spare; *at; at = &(*at)->next) {
		struct spare *spare = *at;

		if (spare->room < room)
			continue;
		room = spare->room;
		*at = spare->next;
		((struct schedule *)spare)->room = room;
		return (struct schedule *)spare;
	}
	return NULL;
}

/* In the order of their room, so that the first that is large enough is the smallest; where there are too many, that
 * goes. */
void schedule_free(rdma_context *ctx, struct schedule *schedule)
{
	struct spare *spare = (struct spare *)schedule, **at = (struct spare **)&ctx->schedule_spare;
	size_t room = schedule->room;
	unsigned count = 0;

	_Static_assert(sizeof(struct spare) <= sizeof(struct schedule), "a spare one fits");
	if (room > SPARE_MAX) {
		free(schedule);
		return;
	}
	spare->room = room;
	while (*at && (*at)->room < room)
		at = &(*at)->next;
	spare->next = *at;
	*at = spare;
	for (struct spare *each = ctx->schedule_spare; each; each = each->next)
		count++;
	if (count > SPARES) {
		spare = ctx->schedule_spare;
		ctx->schedule_spare = spare->next;
		free(spare);
	}
}

void schedule_free_spares(rdma_context *ctx)
{
	while (ctx->schedule_spare) {
		struct spare *spare = ctx->schedule_spare;

		ctx->schedule_spare = spare->next;
		free(spare);
	}
}

static struct schedule *schedule_new(rdma_context *ctx, const struct plan *count)
{
	size_t lanes = round_up(sizeof(struct schedule)), steps = lanes + round_up(count->lanes * sizeof(struct lane));
	size_t memory = steps + round_up(count->steps * sizeof(struct step)), room = memory + count->memory;
	struct schedule *schedule = spare_find(ctx, room);

	if (!schedule) {
		schedule = aligned_alloc(MEMORY_ALIGN, room);
		if (!schedule)
			return NULL;
		schedule->room = room;
	}
	room = schedule->room;
	memset(schedule, 0, steps);
	schedule->room = room;
	schedule->lanes = count->lanes;
	schedule->steps = count->steps;
	schedule->lane = (struct lane *)((char *)schedule + lanes);
	schedule->step = (struct step *)((char *)schedule + steps);
	schedule->memory = (char *)schedule + memory;
	return schedule;
}

struct schedule *schedule_plan(const struct schedule_order *order)
{
	struct plan count = {.rank = order->group->rank, .size = order->group->size}, write = count;
	struct schedule *schedule;

	order->build(&count, order->call);
	plan_lane(&count);
	must(count.lanes <= SCHEDULE_LANES);
	schedule = schedule_new(order->group->ctx, &count);
	if (!schedule)
		return NULL;
	write.schedule = schedule;
	order->build(&write, order->call);
	plan_lane(&write);
	must(write.steps == count.steps && write.lanes == count.lanes && write.memory == count.memory);
	return schedule;
}
