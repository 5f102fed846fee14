/* bcast.c: barrier and broadcast. Trees are of virtual ranks, in which the root is 0. */
#include "peer/collectives/collective.h"

/* D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", 1988: in round k each member tells
 * the one 2^k behind. */
void barrier_dissemination(struct plan *plan, const struct collective *call)
{
	for (int away = 1; away < plan->size; away *= 2) {
		plan_await(plan, rank_before(plan, plan->rank, away));
		plan_signal(plan, rank_after(plan, plan->rank, away));
		plan_round(plan);
	}
}

/* The root sends to each. */
void bcast_linear(struct plan *plan, const struct collective *call)
{
	if (plan->rank != call->root) {
		plan_recv(plan, call->root, call->recv, call->length);
		return;
	}
	for (int by = 1; by < plan->size; by++)
		plan_send(plan, rank_after(plan, call->root, by), call->send, call->length);
}

/* A binomial tree: the parent is without the lowest bit that is set; the largest subtree is served first. */
void bcast_binomial(struct plan *plan, const struct collective *call)
{
	int virtual = rank_before(plan, plan->rank, call->root), bit = 1;

	while (bit < plan->size && !(virtual & bit))
		bit *= 2;
	if (virtual) {
		plan_recv(plan, rank_after(plan, call->root, virtual - bit), call->recv, call->length);
		plan_round(plan);
	}
	for (bit /= 2; bit; bit /= 2) {
		if (virtual + bit < plan->size)
			plan_send(plan, rank_after(plan, call->root, virtual + bit), call->send, call->length);
	}
}

/*
 * Pipelines: the data goes down a tree in pieces, of which each member passes one on while it gets another. Lane L has
 * the pieces L, L + lanes, L + 2 lanes ..., so that several are under way between two members.
 */
#define PIECE (128u * 1024)
#define PIECES_MAX 512
#define PIPELINE_LANES 4

/* A tree in which each member has at most `width` children. Width 1: each passes on to the next. */
static void bcast_pipelined(struct plan *plan, const struct collective *call, int width)
{
	int64_t virtual = rank_before(plan, plan->rank, call->root);
	size_t pieces = call->length / PIECE + !!(call->length % PIECE);

	pieces = MAX(1, MIN(pieces, PIECES_MAX));
	for (size_t lane = 0; lane < PIPELINE_LANES && lane < pieces; lane++) {
		if (lane)
			plan_lane(plan);
		for (size_t i = lane; i < pieces; i += PIPELINE_LANES) {
			struct part piece = part_of(call->length, pieces, i);

			if (virtual) {
				plan_recv(plan, rank_after(plan, call->root, (int)((virtual - 1) / width)),
					  call->recv + piece.at, piece.length);
				plan_round(plan);
			}
			for (int k = 1; k <= width && width * virtual + k < plan->size; k++)
				plan_send_loose(plan, rank_after(plan, call->root, (int)(width * virtual + k)),
						call->send + piece.at, piece.length);
		}
	}
}

void bcast_chain(struct plan *plan, const struct collective *call)
{
	bcast_pipelined(plan, call, 1);
}

void bcast_binary(struct plan *plan, const struct collective *call)
{
	bcast_pipelined(plan, call, 2);
}

/*
 * Scatter and allgather, after M. Barnett, L. Shuler, R. van de Geijn and others, "Interprocessor Collective
 * Communication Library (InterCom)", 1994; here each but the root has a part, which it gets from the root and gives to
 * all others, so that the root sends everything once and no member more.
 */
static void bcast_scatter_root(struct plan *plan, const struct collective *call, struct part slice)
{
	for (int by = 1; by < plan->size; by++) {
		struct part part = part_of(slice.length, plan->size - 1, by - 1);

		plan_send(plan, rank_after(plan, call->root, by), call->send + slice.at + part.at, part.length);
	}
}

static void bcast_scatter_member(struct plan *plan, const struct collective *call, struct part slice)
{
	int virtual = rank_before(plan, plan->rank, call->root);
	struct part own = part_of(slice.length, plan->size - 1, virtual - 1);
	char *to = call->recv + slice.at;

	plan_recv(plan, call->root, to + own.at, own.length);
	plan_round(plan);
	for (int by = 1; by < plan->size; by++) {
		struct part part = part_of(slice.length, plan->size - 1, by - 1);

		if (by != virtual)
			plan_recv(plan, rank_after(plan, call->root, by), to + part.at, part.length);
	}
	for (int by = 1; by < plan->size; by++) {
		if (by != virtual)
			plan_send(plan, rank_after(plan, call->root, by), to + own.at, own.length);
	}
}

void bcast_scatter(struct plan *plan, const struct collective *call)
{
	size_t lanes = collective_lanes(call->length);

	for (size_t lane = 0; lane < lanes && plan->size > 1; lane++) {
		if (lane)
			plan_lane(plan);
		(plan->rank == call->root ? bcast_scatter_root
					  : bcast_scatter_member)(plan, call, part_of(call->length, lanes, lane));
	}
}
