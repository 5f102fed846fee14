/*
 * ring_allreduce.c: every rank computes gradients of its part of the data, and all need their sum. Here it is made by hand, in a ring: each
 * vector is cut into as many pieces as there are ranks; in one round after the other a rank sends a piece to the next and adds the one
 * that comes from the last to its own; after that the sums go round. rdma_allreduce() does the same in one call, and is the check.
 *
 *     rdmarun -n 4 ./ring_allreduce
 */
#include "rdma_lib.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define GRADIENTS 100003 /* which no number of ranks divides */

struct ring {
	rdma_context *ctx;
	int rank, ranks, next, last; /* the peers' indices */
	float *piece;                /* that comes */
};

/* What a model would say about the samples of this rank: whole numbers, so that sums are exact in any order. */
static void compute(float *gradient, int rank)
{
	for (int i = 0; i < GRADIENTS; i++)
		gradient[i] = (float)((i * 7 + rank * 13) % 1000 - 500);
}

static int begin_of(const struct ring *ring, int piece)
{
	piece = (piece + 2 * ring->ranks) % ring->ranks;
	return (int)((long)GRADIENTS * piece / ring->ranks);
}

static size_t count_of(const struct ring *ring, int piece)
{
	piece = (piece + 2 * ring->ranks) % ring->ranks;
	return (size_t)((long)GRADIENTS * (piece + 1) / ring->ranks - (long)GRADIENTS * piece / ring->ranks);
}

/* Send one piece on, and receive another, at the same time. */
static int pass(struct ring *ring, const float *send, size_t send_count, float *recv, size_t recv_count)
{
	rdma_request *both[2];

	both[0] = rdma_irecv(ring->ctx, ring->last, recv, recv_count * sizeof(float));
	both[1] = rdma_isend(ring->ctx, ring->next, send, send_count * sizeof(float));
	return both[0] && both[1] ? rdma_wait_all(both, 2, UINT64_MAX, NULL) : -1;
}

static int ring_allreduce(struct ring *ring, float *gradient)
{
	/* After this, the piece behind one's own is summed up. */
	for (int round = 0; round < ring->ranks - 1; round++) {
		int out = ring->rank - round, in = out - 1;
		float *into = gradient + begin_of(ring, in);

		if (pass(ring, gradient + begin_of(ring, out), count_of(ring, out), ring->piece, count_of(ring, in)) <
		    0)
			return -1;
		for (size_t i = 0; i < count_of(ring, in); i++)
			into[i] += ring->piece[i];
	}
	for (int round = 0; round < ring->ranks - 1; round++) {
		int out = ring->rank + 1 - round, in = out - 1;

		if (pass(ring, gradient + begin_of(ring, out), count_of(ring, out), gradient + begin_of(ring, in),
			 count_of(ring, in)) < 0)
			return -1;
	}
	return 0;
}

/* 0; 1: the sums are not what they should be; -1: the library has said why. */
static int run(rdma_context *ctx, rdma_group *group)
{
	struct ring ring = {.ctx = ctx, .rank = rdma_group_rank(group), .ranks = rdma_group_size(group)};
	static float gradient[GRADIENTS], sum[GRADIENTS], piece[GRADIENTS];
	int wrong = 0;

	ring.piece = piece;
	ring.next = rdma_group_peer(group, (ring.rank + 1) % ring.ranks);
	ring.last = rdma_group_peer(group, (ring.rank + ring.ranks - 1) % ring.ranks);
	compute(gradient, ring.rank);
	if (rdma_allreduce(group, gradient, sum, GRADIENTS, RDMA_FLOAT, RDMA_SUM) < 0)
		return -1;
	if (ring.ranks > 1 && ring_allreduce(&ring, gradient) < 0)
		return -1;
	for (int i = 0; i < GRADIENTS; i++)
		wrong += fabsf(gradient[i] - sum[i]) > 0;
	printf("rank %d of %d: the first sum is %.0f, %d of %d are wrong\n", ring.rank, ring.ranks, (double)gradient[0],
	       wrong, GRADIENTS);
	return wrong != 0;
}

int main(void)
{
	rdma_context *ctx = rdma_init(NULL, 0, 0, false);
	rdma_group *group = ctx ? rdma_group_run(ctx) : NULL;
	int rc = group ? run(ctx, group) : -1;

	if (rc < 0)
		fprintf(stderr, "%s\n", rdma_get_error());
	rdma_group_free(group);
	rdma_cleanup(ctx);
	return rc != 0;
}
