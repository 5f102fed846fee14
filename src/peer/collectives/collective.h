/*
 * collective.h: the collective operations. collective.c has the calls of rdma_lib.h, which check their arguments and
 * make each a struct collective; table.c chooses the algorithm; collective_NAME.c have the algorithms, which lay out
 * schedules (schedule.h).
 */
#ifndef RDMAD_PEER_COLLECTIVES_COLLECTIVE_H
#define RDMAD_PEER_COLLECTIVES_COLLECTIVE_H

#include "peer/collectives/schedule.h"

/* Places in rdma_group.algorithm. */
enum collective_kind {
	COLLECTIVE_BARRIER,
	COLLECTIVE_BCAST,
	COLLECTIVE_GATHER,
	COLLECTIVE_SCATTER,
	COLLECTIVE_ALLGATHER,
	COLLECTIVE_REDUCE,
	COLLECTIVE_ALLREDUCE,
	COLLECTIVE_ALLTOALL,
	COLLECTIVE_ALLTOALLV,
	COLLECTIVES
};

/* A call, checked. */
struct collective {
	struct rdma_group *group;
	enum collective_kind kind;
	/* bcast: both are the data. gather, allgather: `send` is this member's part, which in place is that of `recv`.
	 * scatter: `recv` is this member's part, `send` the root's whole. reductions: the same where in place.
	 * alltoall: `send` is NULL where in place. */
	const char *send;
	char *recv;
	size_t length; /* bytes: of one part; of a bcast; of all that is reduced */
	int root;
	size_t count, element; /* reductions: elements, bytes of one */
	rdma_type type;
	rdma_op op;
	const size_t *send_len, *send_at, *recv_len, *recv_at; /* alltoallv */
};

enum algorithm_condition {
	ALGORITHM_ANY,
	ALGORITHM_POWER_OF_TWO, /* as many members */
};

/* A way to carry out a collective, and when it is the best. The first row that fits is taken; a collective's last fits
 * always. */
struct algorithm {
	enum collective_kind kind;
	const char *name;
	size_t least, most; /* bytes, as in struct collective */
	int least_members, most_members;
	enum algorithm_condition condition;
	void (*build)(struct plan *plan, const struct collective *call);
};

extern const struct algorithm algorithms[];
extern const size_t algorithms_count;

/* "bcast". */
const char *collective_name(enum collective_kind kind);
/* The one to use. `named`: what the program wants, if it is possible with so many members; or NULL. */
const struct algorithm *algorithm_choose(enum collective_kind kind, size_t bytes, int members, const char *named);

/* A part of several that are as equal as can be. */
struct part {
	size_t at, length;
};

static inline struct part part_of(size_t total, size_t parts, size_t which)
{
	size_t least = total / parts, more = total % parts;

	return (struct part){which * least + MIN(which, more), least + (which < more)};
}

/* In how many lanes a collective of so many bytes is done, so that one's reductions and copies overlap with another's
 * transfers. */
#define COLLECTIVE_LANE (256u * 1024)
#define COLLECTIVE_LANES 8
static inline size_t collective_lanes(size_t bytes)
{
	size_t lanes = bytes / COLLECTIVE_LANE;

	return lanes < 1 ? 1 : MIN(lanes, COLLECTIVE_LANES);
}

/* Another member's rank, `by` away. */
static inline int rank_after(const struct plan *plan, int rank, int by)
{
	return (int)(((int64_t)rank + by) % plan->size);
}

static inline int rank_before(const struct plan *plan, int rank, int by)
{
	return (int)(((int64_t)rank - by + plan->size) % plan->size);
}

/* Reductions: where a member's chunk of a slice (of elements) is, in bytes. */
struct part reduce_chunk(const struct plan *plan, const struct collective *call, struct part slice, int rank);
/* Rounds in which all exchange chunks, and each reduces its own, in the order of the ranks, to `into`. In place, the
 * memory of the other chunks is free when their members send something that they have reduced. */
void reduce_exchange(struct plan *plan, const struct collective *call, struct part slice, char *into);
/* When what all others send has come to `from`, by rank: reduces it with what this member has, in the order of the
 * ranks. */
void reduce_by_ranks(struct plan *plan, const struct collective *call, char *from);

/* The algorithms, by subject; where each comes from stands with it. */
void barrier_dissemination(struct plan *plan, const struct collective *call);
void bcast_linear(struct plan *plan, const struct collective *call);
void bcast_binomial(struct plan *plan, const struct collective *call);
void bcast_chain(struct plan *plan, const struct collective *call);
void bcast_binary(struct plan *plan, const struct collective *call);
void bcast_scatter(struct plan *plan, const struct collective *call);
void gather_binomial(struct plan *plan, const struct collective *call);
void gather_linear(struct plan *plan, const struct collective *call);
void scatter_binomial(struct plan *plan, const struct collective *call);
void scatter_linear(struct plan *plan, const struct collective *call);
void allgather_linear(struct plan *plan, const struct collective *call);
void allgather_doubling(struct plan *plan, const struct collective *call);
void allgather_bruck(struct plan *plan, const struct collective *call);
void allgather_ring(struct plan *plan, const struct collective *call);
void reduce_linear(struct plan *plan, const struct collective *call);
void reduce_binomial(struct plan *plan, const struct collective *call);
void reduce_scatter(struct plan *plan, const struct collective *call);
void allreduce_linear(struct plan *plan, const struct collective *call);
void allreduce_doubling(struct plan *plan, const struct collective *call);
void allreduce_direct(struct plan *plan, const struct collective *call);
void allreduce_ring(struct plan *plan, const struct collective *call);
void alltoall_bruck(struct plan *plan, const struct collective *call);
void alltoall_linear(struct plan *plan, const struct collective *call);
void alltoall_pairwise(struct plan *plan, const struct collective *call);
void alltoallv_linear(struct plan *plan, const struct collective *call);
void alltoallv_pairwise(struct plan *plan, const struct collective *call);

#endif
