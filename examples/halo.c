/*
 * halo.c: heat spreads over a square plate, whose edge is kept hot on one side. Each rank has a part of a grid of parts, and in every step it
 * needs the outermost cells of its neighbours, the halo: it begins to receive and to send them, computes its inner cells meanwhile,
 * and then those at its edges. In the end rank 0 computes the same alone and compares.
 *
 *     rdmarun -n 4 ./halo
 */
#include "rdma_lib.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 48 /* of a part, in each direction */
#define STEPS 60
#define HOT 100.0

enum { UP, DOWN, LEFT, RIGHT, SIDES };

struct part {
	rdma_context *ctx;
	int across, down, column, row;        /* the grid of parts, and the place in it */
	int peer[SIDES];                      /* the neighbours' indices; -1: the edge of the plate */
	double cell[2][CELLS + 2][CELLS + 2]; /* this step and the next, with the halo */
	double out[SIDES][CELLS], in[SIDES][CELLS];
};

/* One cell after another of a side: of the part's own (depth 1), or of the halo (depth 0). */
static double *side_cell(double (*cell)[CELLS + 2], int side, int depth, int i)
{
	switch (side) {
	case UP:
		return &cell[depth][i + 1];
	case DOWN:
		return &cell[CELLS + 1 - depth][i + 1];
	case LEFT:
		return &cell[i + 1][depth];
	default:
		return &cell[i + 1][CELLS + 1 - depth];
	}
}

static void compute(double (*next)[CELLS + 2], double (*now)[CELLS + 2], int from, int to)
{
	for (int y = from; y <= to; y++)
		for (int x = from; x <= to; x++)
			next[y][x] = (now[y - 1][x] + now[y + 1][x] + now[y][x - 1] + now[y][x + 1]) / 4;
}

static void compute_edges(double (*next)[CELLS + 2], double (*now)[CELLS + 2])
{
	for (int side = 0; side < SIDES; side++)
		for (int i = 0; i < CELLS; i++) {
			double *cell = side_cell(next, side, 1, i);
			long at = cell - &next[0][0], y = at / (CELLS + 2), x = at % (CELLS + 2);

			*cell = (now[y - 1][x] + now[y + 1][x] + now[y][x - 1] + now[y][x + 1]) / 4;
		}
}

/* Receives first, so that what comes has its place at once. How many requests; -1. */
static int exchange_begin(struct part *part, double (*now)[CELLS + 2], rdma_request **request)
{
	int count = 0;

	for (int side = 0; side < SIDES; side++)
		if (part->peer[side] >= 0) {
			request[count] =
				rdma_irecv(part->ctx, part->peer[side], part->in[side], sizeof(part->in[side]));
			if (!request[count++])
				return -1;
		}
	for (int side = 0; side < SIDES; side++)
		if (part->peer[side] >= 0) {
			for (int i = 0; i < CELLS; i++)
				part->out[side][i] = *side_cell(now, side, 1, i);
			request[count] =
				rdma_isend(part->ctx, part->peer[side], part->out[side], sizeof(part->out[side]));
			if (!request[count++])
				return -1;
		}
	return count;
}

static int step(struct part *part, double (*next)[CELLS + 2], double (*now)[CELLS + 2])
{
	rdma_request *request[2 * SIDES];
	int count = exchange_begin(part, now, request);

	if (count < 0)
		return -1;
	compute(next, now, 2, CELLS - 1);
	if (count > 0 && rdma_wait_all(request, count, UINT64_MAX, NULL) < 0)
		return -1;
	for (int side = 0; side < SIDES; side++)
		for (int i = 0; i < CELLS && part->peer[side] >= 0; i++)
			*side_cell(now, side, 0, i) = part->in[side][i];
	compute_edges(next, now);
	return 0;
}

/* A part's own cells, without the halo, of all ranks to rank 0. */
static int collect(rdma_group *group, double (*now)[CELLS + 2], double *all)
{
	static double own[CELLS][CELLS];

	for (int y = 0; y < CELLS; y++)
		memcpy(own[y], &now[y + 1][1], sizeof(own[y]));
	return rdma_gather(group, own, all, sizeof(own), 0);
}

/* The whole plate by one program. */
static int count_wrong(const struct part *part, const double *all)
{
	int width = part->across * CELLS + 2, height = part->down * CELLS + 2, wrong = 0;
	size_t bytes = (size_t)width * (size_t)height * sizeof(double);
	double *now = calloc(1, bytes), *next = calloc(1, bytes);

	for (int x = 0; now && next && x < width; x++)
		now[x] = next[x] = HOT;
	for (int i = 0; now && next && i < STEPS; i++) {
		double *swap = now;

		for (int y = 1; y < height - 1; y++)
			for (int x = 1; x < width - 1; x++)
				next[y * width + x] = (now[(y - 1) * width + x] + now[(y + 1) * width + x] +
						       now[y * width + x - 1] + now[y * width + x + 1]) /
						      4;
		now = next;
		next = swap;
	}
	for (int y = 0; now && next && y < height - 2; y++)
		for (int x = 0; x < width - 2; x++) {
			int rank = y / CELLS * part->across + x / CELLS;

			wrong += all[((long)rank * CELLS + y % CELLS) * CELLS + x % CELLS] !=
				 now[(y + 1) * width + x + 1];
		}
	wrong += !now || !next;
	free(now);
	free(next);
	return wrong;
}

/* As square as it can be. */
static void take_place(struct part *part, rdma_group *group)
{
	int rank = rdma_group_rank(group), ranks = rdma_group_size(group);

	for (part->down = 1; (part->down + 1) * (part->down + 1) <= ranks; part->down++)
		;
	while (ranks % part->down)
		part->down--;
	part->across = ranks / part->down;
	part->column = rank % part->across;
	part->row = rank / part->across;
	part->peer[UP] = part->row > 0 ? rdma_group_peer(group, rank - part->across) : -1;
	part->peer[DOWN] = part->row + 1 < part->down ? rdma_group_peer(group, rank + part->across) : -1;
	part->peer[LEFT] = part->column > 0 ? rdma_group_peer(group, rank - 1) : -1;
	part->peer[RIGHT] = part->column + 1 < part->across ? rdma_group_peer(group, rank + 1) : -1;
}

/* 0; 1: the plate is wrong; -1: the library has said why. */
static int run(rdma_context *ctx, rdma_group *group)
{
	static struct part part;
	double *all = malloc((size_t)rdma_group_size(group) * CELLS * CELLS * sizeof(double));
	int wrong = 0, rc = all ? 0 : -1;

	part.ctx = ctx;
	take_place(&part, group);
	for (int x = 0; x < CELLS + 2 && part.row == 0; x++)
		part.cell[0][0][x] = part.cell[1][0][x] = HOT;
	for (int i = 0; i < STEPS && rc == 0; i++)
		rc = step(&part, part.cell[(i + 1) % 2], part.cell[i % 2]);
	if (rc == 0)
		rc = collect(group, part.cell[STEPS % 2], all);
	if (rc == 0 && rdma_group_rank(group) == 0) {
		wrong = count_wrong(&part, all);
		printf("%d x %d parts of %d x %d cells, %d steps: %d cells are wrong\n", part.across, part.down, CELLS,
		       CELLS, STEPS, wrong);
	}
	free(all);
	return rc < 0 ? rc : wrong != 0;
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
