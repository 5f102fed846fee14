/* peer_collective_cases.c: see peer_collective_cases.h. The model computes what a member must have from the ranks alone. */
#include "tests/peer/collectives/peer_collective_cases.h"

#include <stdlib.h>

#include "tests/suite.h"

/* As ck_assert_msg(), which writes to a file each time. */
#define sure(condition, ...) ((condition) ? (void)0 : ck_abort_msg(__VA_ARGS__))

const char *trial_text(const struct trial *trial, int size)
{
	static char text[200];

	snprintf(text, sizeof(text), "%s by %s, %zu bytes, %d members, root %d, %s of %s%s",
		 collective_name(trial->kind), trial->algorithm ? trial->algorithm : "size", trial->bytes, size,
		 trial->root, reduce_op_name(trial->op), reduce_type_name(trial->type),
		 trial->in_place ? ", in place" : "");
	return text;
}

#define STRIDE 256

/* What `from` has for `to`: each byte is 7 more than the one before it, and each stride begins elsewhere, so that nothing is at
 * another place unseen. 183 is what 7 is multiplied by to be 1, modulo 256. */
static void bytes_fill(const struct trial *trial, char *into, int from, int to, size_t length)
{
	static uint8_t sevens[2 * STRIDE];
	unsigned first = (unsigned)(from * 31 + to * 17 + trial->salt * 101 + 3);

	if (!sevens[1])
		for (unsigned i = 0; i < sizeof(sevens); i++)
			sevens[i] = (uint8_t)(7 * i);
	for (size_t at = 0; at < length; at += STRIDE, first += 13)
		memcpy(into + at, &sevens[(uint8_t)(first * 183)], MIN(length - at, (size_t)STRIDE));
}

/*
 * Reductions. Numbers are small and whole, so that each order gives the same.
 */
static int64_t number_of(const struct trial *trial, int rank, size_t at)
{
	int64_t number = (rank * 7 + at * 3 + trial->salt) % 5 + 1;
	bool negative = trial->type != RDMA_BYTE && trial->type != RDMA_UINT64 && (rank + at) % 3 == 0;

	if (trial->op >= RDMA_AND)
		return (rank * 0x9e3779b97f4a7c15 + at * 0xff51afd7ed558ccd) ^ trial->salt;
	return negative ? -number : number;
}

static void number_store(const struct trial *trial, char *into, size_t at, int64_t number)
{
	switch (trial->type) {
	case RDMA_BYTE:
		((uint8_t *)into)[at] = number;
		break;
	case RDMA_INT32:
		((int32_t *)into)[at] = number;
		break;
	case RDMA_INT64:
	case RDMA_UINT64:
		((int64_t *)into)[at] = number;
		break;
	case RDMA_FLOAT:
		((float *)into)[at] = number;
		break;
	case RDMA_DOUBLE:
		((double *)into)[at] = number;
		break;
	}
}

static int64_t number_reduce(rdma_op op, int64_t a, int64_t b)
{
	switch (op) {
	case RDMA_SUM:
		return a + b;
	case RDMA_PRODUCT:
		return a * b;
	case RDMA_MIN:
		return a < b ? a : b;
	case RDMA_MAX:
		return a > b ? a : b;
	case RDMA_AND:
		return a & b;
	case RDMA_OR:
		return a | b;
	case RDMA_XOR:
		return a ^ b;
	}
	return 0;
}

/* Values that are added or compared repeat after 15. */
static void numbers_fill(const struct trial *trial, char *into, int first, int last, size_t bytes)
{
	size_t size = reduce_size(trial->type), all = bytes / size, own = trial->op >= RDMA_AND ? all : MIN(all, 15);

	for (size_t i = 0; i < own; i++) {
		int64_t number = number_of(trial, first, i);

		for (int rank = first + 1; rank <= last; rank++)
			number = number_reduce(trial->op, number, number_of(trial, rank, i));
		number_store(trial, into, i, number);
	}
	for (size_t at = own * size, n; at < all * size; at += n) {
		n = MIN(at, all * size - at);
		memcpy(into + at, into, n);
	}
}

/*
 * Each kind: how large a member's memory is, what it sends, what it must get, and how it begins.
 */
struct shape {
	size_t send, recv; /* bytes */
	size_t own;        /* in place: where its own is in the received memory */
};

static size_t length_of(const struct trial *trial, int a, int b)
{
	return ((a + b) * 3 + a * b + 1) % 4 * (trial->bytes / 3);
}

static size_t lengths_lay(const struct trial *trial, struct trial_member *member, int rank, int size)
{
	size_t at = 0;

	for (int other = 0; other < size; other++) {
		member->length[other] = length_of(trial, rank, other);
		member->send_at[other] = member->recv_at[other] = at;
		at += member->length[other] + other % 2;
	}
	return at;
}

static struct shape shape_of(const struct trial_run *run, struct trial_member *member, int rank)
{
	const struct trial *trial = run->trial;
	size_t part = trial->bytes, all = part * run->size;
	bool root = rank == trial->root;

	switch (trial->kind) {
	case COLLECTIVE_BCAST:
		return (struct shape){0, part, 0};
	case COLLECTIVE_GATHER:
		return (struct shape){part, root ? all : 0, part * rank};
	case COLLECTIVE_SCATTER:
		return (struct shape){root ? all : 0, root && trial->in_place ? all : part, 0};
	case COLLECTIVE_ALLGATHER:
		return (struct shape){part, all, part * rank};
	case COLLECTIVE_REDUCE:
		return (struct shape){part, root ? part : 0, 0};
	case COLLECTIVE_ALLREDUCE:
		return (struct shape){part, part, 0};
	case COLLECTIVE_ALLTOALL:
		return (struct shape){all, all, 0};
	case COLLECTIVE_ALLTOALLV:
		all = lengths_lay(trial, member, rank, run->size);
		return (struct shape){all, all, 0};
	default:
		return (struct shape){0, 0, 0};
	}
}

static void fill_sent(const struct trial_run *run, const struct trial_member *member, int rank, char *into)
{
	const struct trial *trial = run->trial;
	bool to_each = trial->kind == COLLECTIVE_ALLTOALL || (trial->kind == COLLECTIVE_SCATTER && rank == trial->root);

	if (trial->kind == COLLECTIVE_REDUCE || trial->kind == COLLECTIVE_ALLREDUCE)
		numbers_fill(trial, into, rank, rank, trial->bytes);
	else if (trial->kind == COLLECTIVE_GATHER || trial->kind == COLLECTIVE_ALLGATHER)
		bytes_fill(trial, into, rank, 0, trial->bytes);
	else if (trial->kind == COLLECTIVE_BCAST && rank == trial->root)
		bytes_fill(trial, into, rank, 0, trial->bytes);
	for (int other = 0; other < run->size; other++) {
		if (to_each)
			bytes_fill(trial, into + other * trial->bytes, rank, other, trial->bytes);
		else if (trial->kind == COLLECTIVE_ALLTOALLV)
			bytes_fill(trial, into + member->send_at[other], rank, other, member->length[other]);
	}
}

/* `expected` comes with what the memory was filled with before. */
static void fill_expected(const struct trial_run *run, const struct trial_member *member, int rank, char *expected)
{
	const struct trial *trial = run->trial;
	bool root = rank == trial->root, everybody = trial->kind == COLLECTIVE_ALLGATHER;

	if (trial->kind == COLLECTIVE_BCAST)
		bytes_fill(trial, expected, trial->root, 0, trial->bytes);
	if (trial->kind == COLLECTIVE_ALLREDUCE || (trial->kind == COLLECTIVE_REDUCE && root))
		numbers_fill(trial, expected, 0, run->size - 1, trial->bytes);
	if (trial->kind == COLLECTIVE_SCATTER)
		bytes_fill(trial, expected + (root && trial->in_place ? rank * trial->bytes : 0), trial->root, rank,
			   trial->bytes);
	for (int other = 0; other < run->size; other++) {
		if (everybody || (trial->kind == COLLECTIVE_GATHER && root))
			bytes_fill(trial, expected + other * trial->bytes, other, 0, trial->bytes);
		else if (trial->kind == COLLECTIVE_ALLTOALL)
			bytes_fill(trial, expected + other * trial->bytes, other, rank, trial->bytes);
		else if (trial->kind == COLLECTIVE_ALLTOALLV)
			bytes_fill(trial, expected + member->recv_at[other], other, rank, member->length[other]);
	}
}

static rdma_request *begin_call(const struct trial_run *run, struct trial_member *member, int rank, const void *send)
{
	const struct trial *t = run->trial;
	rdma_group *group = run->group[rank];
	size_t count = t->bytes / reduce_size(t->type);

	switch (t->kind) {
	case COLLECTIVE_BARRIER:
		return rdma_ibarrier(group);
	case COLLECTIVE_BCAST:
		return rdma_ibcast(group, member->recv, t->bytes, t->root);
	case COLLECTIVE_GATHER:
		return rdma_igather(group, send, member->recv, t->bytes, t->root);
	case COLLECTIVE_SCATTER:
		return rdma_iscatter(group, send, member->recv, t->bytes, t->root);
	case COLLECTIVE_ALLGATHER:
		return rdma_iallgather(group, send, member->recv, t->bytes);
	case COLLECTIVE_REDUCE:
		return rdma_ireduce(group, send, member->recv, count, t->type, t->op, t->root);
	case COLLECTIVE_ALLREDUCE:
		return rdma_iallreduce(group, send, member->recv, count, t->type, t->op);
	case COLLECTIVE_ALLTOALL:
		return rdma_ialltoall(group, send, member->recv, t->bytes);
	case COLLECTIVE_ALLTOALLV:
		return rdma_ialltoallv(group, send, member->length, member->send_at, member->recv, member->length,
				       member->recv_at);
	default:
		return NULL;
	}
}

static bool sends_in_place(const struct trial *trial, int rank)
{
	bool rooted = trial->kind == COLLECTIVE_GATHER || trial->kind == COLLECTIVE_SCATTER ||
		      trial->kind == COLLECTIVE_REDUCE;

	return trial->in_place && trial->kind != COLLECTIVE_BCAST && (!rooted || rank == trial->root);
}

/*
 * A run.
 */
static void member_failed(struct trial_member *member)
{
	member->error = rdma_get_errno();
	snprintf(member->why, sizeof(member->why), "%s", rdma_get_error());
}

void trial_begin(struct trial_run *run, int rank)
{
	struct trial_member *member = &run->member[rank];
	struct shape shape = shape_of(run, member, rank);
	bool in_place = sends_in_place(run->trial, rank);
	const void *send = in_place ? RDMA_IN_PLACE : NULL;

	member->recv_size = shape.recv;
	member->recv = shape.recv ? malloc(shape.recv) : NULL;
	if (member->recv)
		memset(member->recv, 0x55, shape.recv);
	if (!in_place && shape.send) {
		send = member->send = malloc(shape.send);
		memset(member->send, 0x66, shape.send);
		fill_sent(run, member, rank, member->send);
	} else if (member->recv) {
		fill_sent(run, member, rank, member->recv + shape.own);
	}
	sure(!rdma_group_algorithm(run->group[rank], collective_name(run->trial->kind), run->trial->algorithm), "%s",
	     rdma_get_error());
	member->request = begin_call(run, member, rank, send);
	if (!member->request) {
		member->done = true;
		member->result = -1;
		member_failed(member);
	}
}

bool trial_test(struct trial_run *run, int rank)
{
	struct trial_member *member = &run->member[rank];

	if (member->done || !rdma_test(member->request, &member->result))
		return member->done;
	member->done = true;
	if (member->result < 0)
		member_failed(member);
	return true;
}

void trial_check(const struct trial_run *run, int rank)
{
	const struct trial_member *member = &run->member[rank];
	struct trial_member layout;
	struct shape shape = shape_of(run, &layout, rank);
	char *expected = malloc(MAX(shape.send, shape.recv) + 1);

	sure(member->result == 0, "%s: rank %d: %s", trial_text(run->trial, run->size), rank, member->why);
	memset(expected, 0x55, shape.recv);
	if (!member->send && shape.recv)
		fill_sent(run, &layout, rank, expected + shape.own);
	fill_expected(run, &layout, rank, expected);
	sure(!shape.recv || !memcmp(member->recv, expected, shape.recv), "%s: what rank %d has",
	     trial_text(run->trial, run->size), rank);
	memset(expected, 0x66, shape.send);
	if (member->send)
		fill_sent(run, &layout, rank, expected);
	sure(!member->send || !memcmp(member->send, expected, shape.send), "%s: what rank %d sent",
	     trial_text(run->trial, run->size), rank);
	free(expected);
}

void trial_free(struct trial_run *run, int rank)
{
	free(run->member[rank].send);
	free(run->member[rank].recv);
	run->member[rank].send = run->member[rank].recv = NULL;
}

void trial_run(rdma_group **group, int size, const struct trial *trial, bool (*turn)(void))
{
	struct trial_run run = {.trial = trial, .group = group, .size = size};
	int left = size;

	for (int rank = 0; rank < size; rank++)
		trial_begin(&run, rank);
	while (left) {
		bool moved = turn ? turn() : true;
		int before = left;

		left = 0;
		for (int rank = 0; rank < size; rank++)
			left += !trial_test(&run, rank);
		sure(moved || left < before, "%s: %d members wait for ever", trial_text(trial, size), left);
	}
	for (int rank = 0; rank < size; rank++) {
		trial_check(&run, rank);
		trial_free(&run, rank);
	}
}
