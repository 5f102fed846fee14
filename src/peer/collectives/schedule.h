/*
 * schedule.h: a collective as a schedule, which is laid out once, when the collective begins, and then carried out by
 * the turns of the context. (The idea of collectives that wait for nothing: T. Hoefler, A. Lumsdaine, W. Rehm,
 * "Implementation and Performance Analysis of Non-Blocking Collective Operations for MPI", SC 2007.)
 *
 * A schedule has one lane or more. A lane is a row of rounds, a round a set of steps: messages to and from other
 * members, and copies and reductions. When a round begins, its messages are posted, in their order, and then its copies
 * and reductions are carried out while those are under way; so they must not touch the same memory. The next round
 * begins when all messages of this one are complete, but loose sends, for which the end of the schedule alone waits:
 * their memory must not change before the member that gets them cannot but have read it.
 *
 * Lanes know nothing of each other, which is how a long collective overlaps reductions of one part with transfers of
 * another. Each has a stream of its own, so all members must lay out the same lanes; and within a lane two members must
 * agree on the order of their messages.
 *
 * All of a schedule is one allocation, from the context's spare ones if one is large enough. Therefore what lays it out
 * runs twice: first it counts, then it writes. It must do the same both times, and must not read the memory that it
 * asks for.
 */
#ifndef RDMAD_PEER_COLLECTIVES_SCHEDULE_H
#define RDMAD_PEER_COLLECTIVES_SCHEDULE_H

#include "peer/groups/group.h"
#include "peer/collectives/elements.h"

#define SCHEDULE_LANES 16 /* of one at most */

struct schedule;
struct collective; /* collective.h */

struct plan {
	struct schedule *schedule; /* NULL: it counts */
	int rank, size;            /* of this member, of the group */
	uint32_t steps, lanes;
	size_t memory;
};

/* A collective to be carried out. `call` is handed to build() and not kept. */
struct schedule_order {
	struct rdma_group *group;
	const char *name; /* of the call, for people; stays */
	void (*build)(struct plan *plan, const struct collective *call);
	const struct collective *call;
	reduce_fn *reduce; /* for its reductions */
};

/* Steps of the round that is being laid out. Of a length of 0: nothing; but a message is, unless plan_signal() and
 * plan_await() make it. */
void plan_recv(struct plan *plan, int rank, void *to, size_t length);
void plan_send(struct plan *plan, int rank, const void *from, size_t length);
void plan_send_loose(struct plan *plan, int rank, const void *from, size_t length);
void plan_await(struct plan *plan, int rank);  /* an empty message */
void plan_signal(struct plan *plan, int rank); /* which is sent by this */
void plan_copy(struct plan *plan, void *to, const void *from, size_t length);
/* into = into OP from, `count` elements; they do not overlap. */
void plan_reduce(struct plan *plan, void *into, const void *from, size_t count);
/* into = from OP into. */
void plan_reduce_left(struct plan *plan, void *into, const void *from, size_t count);
/* The round ends here. An empty one is none. */
void plan_round(struct plan *plan);
/* The round and the lane end here, and another lane begins. What is laid out last needs neither. */
void plan_lane(struct plan *plan);
/* Memory of the schedule, aligned to a cache line, not zeroed. While it counts: an address that is not to be used. */
void *plan_memory(struct plan *plan, size_t size);

/* Lay a collective out and begin it. *out: the program's request. 0 or -errno: rdma_fail() was called, and it counts as
 * one that was begun and has failed. Inside, not in a callback. */
int schedule_begin(const struct schedule_order *order, struct rdma_request **out);
/* Begin and wait. 0 or -1. When the context's time is over the collective is given up, and the call returns when
 * nothing can touch the caller's memory any more. */
int schedule_run(const struct schedule_order *order);

/* The layer's row has these. A collective that was begun is a request whose `peer` is NULL. */
int schedule_turn(rdma_context *ctx, uint64_t now, bool arm);
void schedule_group_lost(struct rdma_group *group);
void schedule_group_abort(struct rdma_group *group, uint32_t sequence, int error, const char *words);
void schedule_group_end(struct rdma_group *group);
void schedule_context_end(rdma_context *ctx);

#endif
