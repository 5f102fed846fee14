/* allgather.c: each rank gets each rank's part. */
#include "peer/collectives/collective.h"

static void allgather_copy_own(struct plan *plan, const struct collective *call)
{
	plan_copy(plan, call->recv + plan->rank * call->length, call->send, call->length);
}

/* Each sends to each, all at once. */
void allgather_linear(struct plan *plan, const struct collective *call)
{
	for (int by = 1; by < plan->size; by++) {
		int rank = rank_before(plan, plan->rank, by);

		plan_recv(plan, rank, call->recv + rank * call->length, call->length);
	}
	for (int by = 1; by < plan->size; by++)
		plan_send(plan, rank_after(plan, plan->rank, by), call->send, call->length);
	allgather_copy_own(plan, call);
}

/* Recursive doubling, for powers of two: in round k pairs that are 2^k away exchange the 2^k parts that they have. (R.
 * Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, compares it
 * with the next two.) */
void allgather_doubling(struct plan *plan, const struct collective *call)
{
	allgather_copy_own(plan, call);
	plan_round(plan);
	for (int have = 1; have < plan->size; have *= 2) {
		int other = plan->rank ^ have, mine = plan->rank & ~(have - 1), theirs = other & ~(have - 1);

		plan_recv(plan, other, call->recv + theirs * call->length, have * call->length);
		plan_send(plan, other, call->recv + mine * call->length, have * call->length);
		plan_round(plan);
	}
}

/* J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications in
 * Multiport Message-Passing Systems", 1997: the same for any number of members; parts are kept in the order of the
 * distance from this member. */
void allgather_bruck(struct plan *plan, const struct collective *call)
{
	char *parts = plan_memory(plan, plan->size * call->length);

	plan_copy(plan, parts, call->send, call->length);
	plan_round(plan);
	for (int have = 1; have < plan->size; have *= 2) {
		size_t length = MIN(have, plan->size - have) * call->length;

		plan_recv(plan, rank_after(plan, plan->rank, have), parts + have * call->length, length);
		plan_send(plan, rank_before(plan, plan->rank, have), parts, length);
		plan_round(plan);
	}
	for (int by = 0; by < plan->size; by++)
		plan_copy(plan, call->recv + rank_after(plan, plan->rank, by) * call->length, parts + by * call->length,
			  call->length);
}

/* A ring: each passes on to the next what it got from the one before, beginning with its own. In lanes, which have a
 * slice of each part. */
static void allgather_ring_lane(struct plan *plan, const struct collective *call, struct part slice)
{
	int next = rank_after(plan, plan->rank, 1), before = rank_before(plan, plan->rank, 1);

	for (int by = 0; by < plan->size - 1; by++) {
		int passed = rank_before(plan, plan->rank, by), got = rank_before(plan, before, by);
		const char *from = by ? call->recv + passed * call->length : call->send;

		plan_recv(plan, before, call->recv + got * call->length + slice.at, slice.length);
		plan_send_loose(plan, next, from + slice.at, slice.length);
		plan_round(plan);
	}
}

void allgather_ring(struct plan *plan, const struct collective *call)
{
	size_t lanes = collective_lanes(call->length);

	for (size_t lane = 0; lane < lanes; lane++) {
		allgather_ring_lane(plan, call, part_of(call->length, lanes, lane));
		plan_lane(plan);
	}
	allgather_copy_own(plan, call);
}
