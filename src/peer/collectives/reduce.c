/*
 * reduce.c: reduce to one member.
 *
 * The order of the operations depends on the algorithm, the number of members and that of elements, never on what comes
 * first; so the same call gives the same bits again.
 */
#include "peer/collectives/collective.h"

/* Everything to the root, which reduces in the order of the ranks. */
void reduce_linear(struct plan *plan, const struct collective *call)
{
	char *from;

	if (plan->rank != call->root) {
		plan_send(plan, call->root, call->send, call->length);
		return;
	}
	from = plan_memory(plan, plan->size * call->length);
	for (int rank = 0; rank < plan->size; rank++) {
		if (rank != plan->rank)
			plan_recv(plan, rank, from + rank * call->length, call->length);
	}
	reduce_by_ranks(plan, call, from);
}

/* A binomial tree of virtual ranks, in which the root is 0: each reduces its own and its subtrees, in their order, and
 * sends that to its parent. */
void reduce_binomial(struct plan *plan, const struct collective *call)
{
	int virtual = rank_before(plan, plan->rank, call->root), bit, children = 0;
	char *own = call->recv, *from;

	for (bit = 1; bit < plan->size && !(virtual & bit); bit *= 2)
		children += virtual + bit < plan->size;
	if (!children && virtual) {
		plan_send(plan, rank_after(plan, call->root, virtual - bit), call->send, call->length);
		return;
	}
	if (virtual)
		own = plan_memory(plan, call->length);
	from = plan_memory(plan, children * call->length);
	for (int i = 0; i < children; i++)
		plan_recv(plan, rank_after(plan, call->root, virtual + (1 << i)), from + i * call->length,
			  call->length);
	plan_copy(plan, own, call->send, call->length);
	plan_round(plan);
	for (int i = 0; i < children; i++)
		plan_reduce(plan, own, from + i * call->length, call->count);
	plan_round(plan);
	if (virtual)
		plan_send(plan, rank_after(plan, call->root, virtual - bit), own, call->length);
}

/* Send the chunk of a slice that each member has reduced to the root. */
static void reduce_collect(struct plan *plan, const struct collective *call, struct part slice, const char *reduced)
{
	struct part own = reduce_chunk(plan, call, slice, plan->rank);

	if (plan->rank != call->root) {
		plan_send(plan, call->root, reduced, own.length);
		return;
	}
	for (int by = 1; by < plan->size; by++) {
		int rank = rank_after(plan, plan->rank, by);
		struct part chunk = reduce_chunk(plan, call, slice, rank);

		plan_recv(plan, rank, call->recv + chunk.at, chunk.length);
	}
}

/* After R. Rabenseifner, "Optimization of Collective Reduction Operations", 2004: each reduces a chunk, and the root
 * collects them. The chunks are exchanged all at once, as every member is connected to each. */
void reduce_scatter(struct plan *plan, const struct collective *call)
{
	size_t lanes = collective_lanes(call->length);

	for (size_t lane = 0; lane < lanes; lane++) {
		struct part slice = part_of(call->count, lanes, lane),
			    own = reduce_chunk(plan, call, slice, plan->rank);
		char *into = plan->rank == call->root ? call->recv + own.at : plan_memory(plan, own.length);

		if (lane)
			plan_lane(plan);
		reduce_exchange(plan, call, slice, into);
		reduce_collect(plan, call, slice, into);
	}
}
