/* schedule_private.h: what a schedule is: for schedule.c, which carries it out, and plan.c, which lays it out. */
#ifndef RDMAD_PEER_COLLECTIVES_SCHEDULE_PRIVATE_H
#define RDMAD_PEER_COLLECTIVES_SCHEDULE_PRIVATE_H

#include "peer/collectives/schedule.h"

enum step_kind {
	STEP_ROUND, /* the end of one */
	STEP_RECV,
	STEP_SEND,
	STEP_SEND_LOOSE,
	STEP_COPY,
	STEP_REDUCE,
	STEP_REDUCE_LEFT,
};

struct step {
	struct lane *lane;
	struct rdma_request *request; /* under way */
	char *to;                     /* of a message: its memory */
	const char *from;
	size_t length; /* bytes; of a reduction: elements */
	int rank;
	enum step_kind kind;
};

struct lane {
	struct schedule *schedule;
	uint64_t stream;
	uint32_t next, end; /* steps: the next round's first, and behind the last one's */
	uint32_t waiting;   /* messages of the round that are not complete */
};

struct schedule {
	struct list node; /* of ctx->schedules; the ready ones come first */
	rdma_context *ctx;
	struct rdma_group *group; /* NULL: it was freed, and the schedule has failed */
	uint32_t sequence;        /* which of the group's collectives */
	struct rdma_request *request;
	const char *name;
	reduce_fn *reduce;
	struct lane *lane;
	struct step *step;
	char *memory;
	size_t room; /* bytes of the allocation */
	uint32_t lanes, steps;
	uint32_t under_way; /* messages, loose ones among them */
	unsigned message_class;
	bool ready; /* something has completed */
	bool given_up;
	bool told;  /* the other members know that it has failed */
	int status; /* 0, or of its failure */
	char why[400];
};

/* NULL: no memory. Everything that build() decides is in it. */
struct schedule *schedule_plan(const struct schedule_order *order);
void schedule_free(rdma_context *ctx, struct schedule *schedule);
void schedule_free_spares(rdma_context *ctx);

#endif
