/* collective.c: the collectives of rdma_lib.h. Each has one function that makes a struct collective of its arguments,
 * for both of its forms. */
#include "peer/collectives/collective.h"

#include <limits.h>

/*
 * Faults of a call: a sentence, or NULL.
 */
static bool is_missing(const void *memory, size_t length)
{
	return length && !memory;
}

static const char *check_bcast(struct collective *call)
{
	return is_missing(call->recv, call->length) ? "no data" : NULL;
}

/* A part that may be in place at this member's place in what is received. */
static const char *check_own_part(struct collective *call)
{
	bool in_place = call->send == RDMA_IN_PLACE;

	if (is_missing(in_place ? call->recv : call->send, call->length))
		return "nothing to send";
	if (in_place)
		call->send = call->recv + call->group->rank * call->length;
	return NULL;
}

static const char *check_gather(struct collective *call)
{
	if (call->group->rank == call->root && is_missing(call->recv, call->length))
		return "the root has nowhere to receive";
	return check_own_part(call);
}

static const char *check_scatter(struct collective *call)
{
	bool root = call->group->rank == call->root;

	if (is_missing(call->recv, call->length))
		return "nowhere to receive";
	if (root && is_missing(call->send, call->length))
		return "the root has nothing to send";
	if (root && call->send == RDMA_IN_PLACE) {
		call->send = call->recv;
		call->recv += call->root * call->length;
	}
	return NULL;
}

static const char *check_allgather(struct collective *call)
{
	return is_missing(call->recv, call->length) ? "nowhere to receive" : check_own_part(call);
}

static const char *check_reduce(struct collective *call)
{
	bool in_place = call->send == RDMA_IN_PLACE;
	bool receives = call->kind == COLLECTIVE_ALLREDUCE || call->group->rank == call->root;

	if (is_missing(in_place ? call->recv : call->send, call->length))
		return "nothing to send";
	if (receives && is_missing(call->recv, call->length))
		return "nowhere to receive";
	if (in_place)
		call->send = call->recv;
	return NULL;
}

static const char *check_alltoall(struct collective *call)
{
	if (is_missing(call->recv, call->length))
		return "nowhere to receive";
	if (is_missing(call->send, call->length))
		return "nothing to send";
	if (call->send == RDMA_IN_PLACE)
		call->send = NULL;
	else if (!call->send)
		call->send = ""; /* of no length; NULL is in place */
	return NULL;
}

/* Whether the parts of one side can be: their places, and all together. */
static const char *check_parts(const size_t *length, const size_t *at, int size, const void *memory)
{
	size_t sum = 0;

	if (!length || !at)
		return "no lengths or no offsets";
	for (int rank = 0; rank < size; rank++) {
		if (length[rank] > PTRDIFF_MAX - sum || at[rank] > PTRDIFF_MAX - length[rank])
			return "lengths or offsets beyond memory";
		if (is_missing(memory, length[rank]))
			return "the memory of parts that have a length is NULL";
		sum += length[rank];
	}
	return NULL;
}

static const char *check_alltoallv(struct collective *call)
{
	const char *wrong = check_parts(call->recv_len, call->recv_at, call->group->size, call->recv);

	if (wrong || call->send == RDMA_IN_PLACE) {
		call->send = NULL;
		return wrong;
	}
	wrong = check_parts(call->send_len, call->send_at, call->group->size, call->send);
	if (!wrong && call->send_len[call->group->rank] != call->recv_len[call->group->rank])
		wrong = "this member's part for itself has two lengths";
	if (!call->send)
		call->send = "";
	return wrong;
}

static const char *check_none(struct collective *call)
{
	return NULL;
}

static const struct {
	const char *function;
	const char *(*check)(struct collective *call);
	bool has_root, is_reduction;
} kinds[COLLECTIVES] = {
	[COLLECTIVE_BARRIER] = {"rdma_barrier", check_none},
	[COLLECTIVE_BCAST] = {"rdma_bcast", check_bcast, .has_root = true},
	[COLLECTIVE_GATHER] = {"rdma_gather", check_gather, .has_root = true},
	[COLLECTIVE_SCATTER] = {"rdma_scatter", check_scatter, .has_root = true},
	[COLLECTIVE_ALLGATHER] = {"rdma_allgather", check_allgather},
	[COLLECTIVE_REDUCE] = {"rdma_reduce", check_reduce, .has_root = true, .is_reduction = true},
	[COLLECTIVE_ALLREDUCE] = {"rdma_allreduce", check_reduce, .is_reduction = true},
	[COLLECTIVE_ALLTOALL] = {"rdma_alltoall", check_alltoall},
	[COLLECTIVE_ALLTOALLV] = {"rdma_alltoallv", check_alltoallv},
};

static int check_type(struct collective *call)
{
	const char *function = kinds[call->kind].function;

	call->element = reduce_size(call->type);
	if (!call->element)
		return rdma_fail(-EINVAL, "Invalid parameters: %s: there is no type %d", function, (int)call->type);
	if (!reduce_find(call->type, call->op))
		return rdma_fail(-EINVAL, "Invalid parameters: %s: there is no operation %d (%s) of type %s", function,
				 (int)call->op, reduce_op_name(call->op), reduce_type_name(call->type));
	if (call->count > PTRDIFF_MAX / call->element)
		return rdma_fail(-EINVAL, "Invalid parameters: %s: %zu elements of %zu bytes are beyond memory",
				 function, call->count, call->element);
	call->length = call->count * call->element;
	return 0;
}

/* Memory that may be NULL, as it is empty or not this member's to read, becomes a place: offsets are added to it. */
static void collective_place(struct collective *call)
{
	static char nowhere[1];
	bool parts = call->kind == COLLECTIVE_ALLTOALL || call->kind == COLLECTIVE_ALLTOALLV; /* NULL: in place */

	if (!call->recv)
		call->recv = nowhere;
	if (!call->send && !parts)
		call->send = nowhere;
}

static int collective_check(struct collective *call)
{
	const char *function = kinds[call->kind].function, *wrong;
	const struct rdma_group *group = call->group;

	if (!group)
		return rdma_fail(-EINVAL, "Invalid parameters: %s: no group", function);
	if (kinds[call->kind].has_root && (call->root < 0 || call->root >= group->size))
		return rdma_fail(-EINVAL, "Invalid parameters: %s: the root is rank %d of a group of %d", function,
				 call->root, group->size);
	if (kinds[call->kind].is_reduction && check_type(call))
		return -1;
	if (call->length > (size_t)PTRDIFF_MAX / 4 / group->size)
		return rdma_fail(-EINVAL, "Invalid parameters: %s: %d parts of %zu bytes are beyond memory", function,
				 group->size, call->length);
	if (call->recv == RDMA_IN_PLACE)
		return rdma_fail(-EINVAL, "Invalid parameters: %s: RDMA_IN_PLACE is for what is sent", function);
	if (!call->length && call->kind != COLLECTIVE_ALLTOALLV)
		collective_place(call);
	wrong = kinds[call->kind].check(call);
	if (wrong)
		return rdma_fail(-EINVAL, "Invalid parameters: %s: %s", function, wrong);
	collective_place(call);
	return 0;
}

static struct schedule_order collective_order(const struct collective *call)
{
	const struct rdma_group *group = call->group;
	const struct algorithm *algorithm =
		algorithm_choose(call->kind, call->length, group->size, group->algorithm[call->kind]);

	return (struct schedule_order){
		.group = call->group,
		.name = kinds[call->kind].function,
		.build = algorithm->build,
		.call = call,
		.reduce = kinds[call->kind].is_reduction ? reduce_find(call->type, call->op) : NULL,
	};
}

static int collective_run(struct collective call)
{
	struct schedule_order order;
	int rc;

	if (collective_check(&call))
		return -1;
	rdma_enter(call.group->ctx);
	order = collective_order(&call);
	rc = schedule_run(&order);
	rdma_leave(call.group->ctx);
	return rc;
}

static rdma_request *collective_begin(struct collective call)
{
	struct rdma_request *request = NULL;
	struct schedule_order order;

	if (collective_check(&call))
		return NULL;
	rdma_enter(call.group->ctx);
	order = collective_order(&call);
	schedule_begin(&order, &request);
	rdma_leave(call.group->ctx);
	return request;
}

/*
 * Both forms of each.
 */
static struct collective call_barrier(rdma_group *group)
{
	return (struct collective){.kind = COLLECTIVE_BARRIER, .group = group};
}

static struct collective call_bcast(rdma_group *group, void *data, size_t len, int root)
{
	return (struct collective){
		.kind = COLLECTIVE_BCAST, .group = group, .send = data, .recv = data, .length = len, .root = root};
}

static struct collective call_parts(enum collective_kind kind, rdma_group *group, const void *send, void *recv,
				    size_t len, int root)
{
	return (struct collective){
		.kind = kind, .group = group, .send = send, .recv = recv, .length = len, .root = root};
}

static struct collective call_reduction(enum collective_kind kind, rdma_group *group, const void *send, void *recv,
					size_t count, rdma_type type, rdma_op op, int root)
{
	return (struct collective){.kind = kind,
				   .group = group,
				   .send = send,
				   .recv = recv,
				   .count = count,
				   .type = type,
				   .op = op,
				   .root = root};
}

static struct collective call_alltoallv(rdma_group *group, const void *send, const size_t *send_len,
					const size_t *send_at, void *recv, const size_t *recv_len,
					const size_t *recv_at)
{
	return (struct collective){.kind = COLLECTIVE_ALLTOALLV,
				   .group = group,
				   .send = send,
				   .recv = recv,
				   .send_len = send_len,
				   .send_at = send_at,
				   .recv_len = recv_len,
				   .recv_at = recv_at};
}

int rdma_barrier(rdma_group *group)
{
	return collective_run(call_barrier(group));
}

rdma_request *rdma_ibarrier(rdma_group *group)
{
	return collective_begin(call_barrier(group));
}

int rdma_bcast(rdma_group *group, void *data, size_t len, int root)
{
	return collective_run(call_bcast(group, data, len, root));
}

rdma_request *rdma_ibcast(rdma_group *group, void *data, size_t len, int root)
{
	return collective_begin(call_bcast(group, data, len, root));
}

int rdma_gather(rdma_group *group, const void *send, void *recv, size_t len, int root)
{
	return collective_run(call_parts(COLLECTIVE_GATHER, group, send, recv, len, root));
}

rdma_request *rdma_igather(rdma_group *group, const void *send, void *recv, size_t len, int root)
{
	return collective_begin(call_parts(COLLECTIVE_GATHER, group, send, recv, len, root));
}

int rdma_scatter(rdma_group *group, const void *send, void *recv, size_t len, int root)
{
	return collective_run(call_parts(COLLECTIVE_SCATTER, group, send, recv, len, root));
}

rdma_request *rdma_iscatter(rdma_group *group, const void *send, void *recv, size_t len, int root)
{
	return collective_begin(call_parts(COLLECTIVE_SCATTER, group, send, recv, len, root));
}

int rdma_allgather(rdma_group *group, const void *send, void *recv, size_t len)
{
	return collective_run(call_parts(COLLECTIVE_ALLGATHER, group, send, recv, len, 0));
}

rdma_request *rdma_iallgather(rdma_group *group, const void *send, void *recv, size_t len)
{
	return collective_begin(call_parts(COLLECTIVE_ALLGATHER, group, send, recv, len, 0));
}

int rdma_reduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type, rdma_op op, int root)
{
	return collective_run(call_reduction(COLLECTIVE_REDUCE, group, send, recv, count, type, op, root));
}

rdma_request *rdma_ireduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type, rdma_op op,
			   int root)
{
	return collective_begin(call_reduction(COLLECTIVE_REDUCE, group, send, recv, count, type, op, root));
}

int rdma_allreduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type, rdma_op op)
{
	return collective_run(call_reduction(COLLECTIVE_ALLREDUCE, group, send, recv, count, type, op, 0));
}

rdma_request *rdma_iallreduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type, rdma_op op)
{
	return collective_begin(call_reduction(COLLECTIVE_ALLREDUCE, group, send, recv, count, type, op, 0));
}

int rdma_alltoall(rdma_group *group, const void *send, void *recv, size_t len)
{
	return collective_run(call_parts(COLLECTIVE_ALLTOALL, group, send, recv, len, 0));
}

rdma_request *rdma_ialltoall(rdma_group *group, const void *send, void *recv, size_t len)
{
	return collective_begin(call_parts(COLLECTIVE_ALLTOALL, group, send, recv, len, 0));
}

int rdma_alltoallv(rdma_group *group, const void *send, const size_t *send_len, const size_t *send_at, void *recv,
		   const size_t *recv_len, const size_t *recv_at)
{
	return collective_run(call_alltoallv(group, send, send_len, send_at, recv, recv_len, recv_at));
}

rdma_request *rdma_ialltoallv(rdma_group *group, const void *send, const size_t *send_len, const size_t *send_at,
			      void *recv, const size_t *recv_len, const size_t *recv_at)
{
	return collective_begin(call_alltoallv(group, send, send_len, send_at, recv, recv_len, recv_at));
}
