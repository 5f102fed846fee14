/*
 * allreduce.c: each rank gets the same reduction.
 *
 * The same bit for bit: each element is reduced by one member, which gives it to all, or by all with the same operands
 * on the same sides in the same order. The sides matter where an operation is not commutative to the bit, as a minimum
 * of zeros with signs. Which of two NaNs their sum is, the compiler chooses.
 */
#include "peer/collectives/collective.h"

void reduce_by_ranks(struct plan *plan, const struct collective *call, char *from)
{
	plan_copy(plan, from + plan->rank * call->length, call->send, call->length);
	plan_round(plan);
	plan_copy(plan, call->recv, from, call->length);
	for (int rank = 1; rank < plan->size; rank++)
		plan_reduce(plan, call->recv, from + rank * call->length, call->count);
}

/* Everything to all; each reduces in the order of the ranks. One delay of the network, for few members and few
 * bytes. */
void allreduce_linear(struct plan *plan, const struct collective *call)
{
	char *from = plan_memory(plan, plan->size * call->length);

	for (int by = 1; by < plan->size; by++) {
		int rank = rank_before(plan, plan->rank, by);

		plan_recv(plan, rank, from + rank * call->length, call->length);
	}
	for (int by = 1; by < plan->size; by++)
		plan_send(plan, rank_after(plan, plan->rank, by), call->send, call->length);
	reduce_by_ranks(plan, call, from);
}

/* Recursive doubling (Thakur and others, see allgather.c). Of members beyond a power of two, `extra`, the first 2 *
 * extra are pairs: the odd one gives what it has to the even one, which takes part for both. */
void allreduce_doubling(struct plan *plan, const struct collective *call)
{
	int members = 1, extra, place; /* place: among the members of a power of two */
	bool paired;
	char *from;

	while (members <= plan->size / 2)
		members *= 2;
	extra = plan->size - members;
	paired = plan->rank < 2 * extra;
	place = paired ? plan->rank / 2 : plan->rank - extra;
	if (paired && plan->rank % 2) {
		plan_send(plan, plan->rank - 1, call->send, call->length);
		plan_round(plan);
		plan_recv(plan, plan->rank - 1, call->recv, call->length);
		return;
	}
	from = plan_memory(plan, call->length);
	plan_copy(plan, call->recv, call->send, call->length);
	if (paired) {
		plan_recv(plan, plan->rank + 1, from, call->length);
		plan_round(plan);
		plan_reduce(plan, call->recv, from, call->count);
	}
	plan_round(plan);
	for (int bit = 1; bit < members; bit *= 2) {
		int other = place ^ bit, rank = other < extra ? other * 2 : other + extra;

		plan_recv(plan, rank, from, call->length);
		plan_send(plan, rank, call->recv, call->length);
		plan_round(plan);
		(place & bit ? plan_reduce_left : plan_reduce)(plan, call->recv, from, call->count);
		plan_round(plan);
	}
	if (paired)
		plan_send(plan, plan->rank + 1, call->recv, call->length);
}

/*
 * Reduce-scatter and allgather, in lanes, each with a slice.
 */
struct part reduce_chunk(const struct plan *plan, const struct collective *call, struct part slice, int rank)
{
	struct part chunk = part_of(slice.length, plan->size, rank);

	return (struct part){(slice.at + chunk.at) * call->element, chunk.length * call->element};
}

/* `sum` has the first member's operand. In place, this member's own is in `into`, and stays there until its turn. */
static void reduce_in_order(struct plan *plan, const struct collective *call, struct part own, char *into, char *sum,
			    const char *parts)
{
	size_t count = own.length / call->element;

	for (int rank = 1; rank < plan->size; rank++) {
		if (rank != plan->rank) {
			plan_reduce(plan, sum, parts + rank * own.length, count);
		} else if (sum == into) {
			plan_reduce(plan, sum, call->send + own.at, count);
		} else {
			plan_reduce_left(plan, into, sum, count);
			sum = into;
		}
	}
	plan_round(plan);
}

void reduce_exchange(struct plan *plan, const struct collective *call, struct part slice, char *into)
{
	struct part own = reduce_chunk(plan, call, slice, plan->rank);
	char *parts = plan_memory(plan, plan->size * own.length);
	char *sum = plan->rank && into == call->send + own.at ? parts : into;

	for (int by = 1; by < plan->size; by++) {
		int rank = rank_before(plan, plan->rank, by);

		plan_recv(plan, rank, rank ? parts + rank * own.length : sum, own.length);
	}
	for (int by = 1; by < plan->size; by++) {
		int rank = rank_after(plan, plan->rank, by);
		struct part chunk = reduce_chunk(plan, call, slice, rank);

		plan_send_loose(plan, rank, call->send + chunk.at, chunk.length);
	}
	if (!plan->rank)
		plan_copy(plan, into, call->send + own.at, own.length);
	plan_round(plan);
	reduce_in_order(plan, call, own, into, sum, parts);
}

/* All chunks are exchanged at once, and so are the reduced ones. A member sends a reduced chunk when it has read the
 * operands for it, so what comes does not change what is still to be read. */
void allreduce_direct(struct plan *plan, const struct collective *call)
{
	size_t lanes = collective_lanes(call->length);

	for (size_t lane = 0; lane < lanes; lane++) {
		struct part slice = part_of(call->count, lanes, lane),
			    own = reduce_chunk(plan, call, slice, plan->rank);

		if (lane)
			plan_lane(plan);
		reduce_exchange(plan, call, slice, call->recv + own.at);
		for (int by = 1; by < plan->size; by++) {
			int rank = rank_before(plan, plan->rank, by);
			struct part chunk = reduce_chunk(plan, call, slice, rank);

			plan_recv(plan, rank, call->recv + chunk.at, chunk.length);
		}
		for (int by = 1; by < plan->size; by++)
			plan_send(plan, rank_after(plan, plan->rank, by), call->recv + own.at, own.length);
	}
}

/*
 * A ring (P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009): a chunk
 * goes round once, and each adds its own to it; then it goes round again as it is. No member sends more than two
 * vectors' length, to one neighbour.
 */
struct allreduce_ring {
	const struct collective *call;
	struct part slice;
	int next, before;
	char *from; /* in place: where a chunk comes to; else that is its place in the received memory */
};

static void ring_reduce(struct plan *plan, const struct allreduce_ring *ring)
{
	const struct collective *call = ring->call;

	for (int by = 0; by < plan->size - 1; by++) {
		struct part gone = reduce_chunk(plan, call, ring->slice, rank_before(plan, plan->rank, by));
		struct part come = reduce_chunk(plan, call, ring->slice, rank_before(plan, ring->before, by));
		size_t count = come.length / call->element;

		plan_recv(plan, ring->before, ring->from ? ring->from : call->recv + come.at, come.length);
		plan_send_loose(plan, ring->next, (by ? call->recv : call->send) + gone.at, gone.length);
		plan_round(plan);
		if (ring->from)
			plan_reduce_left(plan, call->recv + come.at, ring->from, count);
		else
			plan_reduce(plan, call->recv + come.at, call->send + come.at, count);
		plan_round(plan);
	}
}

/* Each has finished the chunk behind its own. */
static void ring_gather(struct plan *plan, const struct allreduce_ring *ring)
{
	const struct collective *call = ring->call;

	for (int by = 0; by < plan->size - 1; by++) {
		struct part gone = reduce_chunk(plan, call, ring->slice, rank_before(plan, ring->next, by));
		struct part come = reduce_chunk(plan, call, ring->slice, rank_before(plan, plan->rank, by));

		plan_recv(plan, ring->before, call->recv + come.at, come.length);
		plan_send_loose(plan, ring->next, call->recv + gone.at, gone.length);
		plan_round(plan);
	}
}

void allreduce_ring(struct plan *plan, const struct collective *call)
{
	size_t lanes = collective_lanes(call->length);

	if (plan->size == 1)
		plan_copy(plan, call->recv, call->send, call->length);
	for (size_t lane = 0; lane < lanes && plan->size > 1; lane++) {
		struct allreduce_ring ring = {
			.call = call,
			.slice = part_of(call->count, lanes, lane),
			.next = rank_after(plan, plan->rank, 1),
			.before = rank_before(plan, plan->rank, 1),
		};

		if (lane)
			plan_lane(plan);
		if (call->send == call->recv)
			ring.from = plan_memory(plan, (ring.slice.length / plan->size + 1) * call->element);
		ring_reduce(plan, &ring);
		ring_gather(plan, &ring);
	}
}
