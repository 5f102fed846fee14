/* alltoall.c: each rank has a part for each rank. */
#include "peer/collectives/collective.h"

/* The part that goes to and comes from each member: the same for alltoall and alltoallv. */
struct exchange {
	const struct collective *call;
	char *parts; /* in place: a copy of what is sent, in the order of the ranks */
};

static struct part exchange_place(const struct exchange *exchange, int rank)
{
	const struct collective *call = exchange->call;

	if (call->kind == COLLECTIVE_ALLTOALL)
		return (struct part){rank * call->length, call->length};
	return (struct part){call->recv_at[rank], call->recv_len[rank]};
}

/* Where what is sent to a member lies. */
static const char *exchange_from(const struct exchange *exchange, int rank, size_t *length)
{
	const struct collective *call = exchange->call;
	size_t at = 0;

	if (call->send) {
		*length = call->kind == COLLECTIVE_ALLTOALL ? call->length : call->send_len[rank];
		return call->send + (call->kind == COLLECTIVE_ALLTOALL ? rank * call->length : call->send_at[rank]);
	}
	for (int before = 0; before < rank; before++)
		at += exchange_place(exchange, before).length;
	*length = exchange_place(exchange, rank).length;
	return exchange->parts + at;
}

/* In place, what is sent is copied before anything can come. */
static void exchange_begin(struct plan *plan, const struct collective *call, struct exchange *exchange)
{
	size_t length = 0, at = 0;

	*exchange = (struct exchange){.call = call};
	if (call->send)
		return;
	for (int rank = 0; rank < plan->size; rank++)
		length += exchange_place(exchange, rank).length;
	exchange->parts = plan_memory(plan, length);
	for (int rank = 0; rank < plan->size; rank++) {
		struct part part = exchange_place(exchange, rank);

		plan_copy(plan, exchange->parts + at, call->recv + part.at, part.length);
		at += part.length;
	}
	plan_round(plan);
}

static void exchange_recv_from(struct plan *plan, const struct exchange *exchange, int rank)
{
	struct part part = exchange_place(exchange, rank);

	plan_recv(plan, rank, exchange->call->recv + part.at, part.length);
}

static void exchange_send_to(struct plan *plan, const struct exchange *exchange, int rank)
{
	size_t length;
	const char *from = exchange_from(exchange, rank, &length);

	plan_send(plan, rank, from, length);
}

static void exchange_copy_own(struct plan *plan, const struct exchange *exchange)
{
	struct part part = exchange_place(exchange, plan->rank);
	size_t length;
	const char *from = exchange_from(exchange, plan->rank, &length);

	if (exchange->call->send)
		plan_copy(plan, exchange->call->recv + part.at, from, MIN(length, part.length));
}

/* All at once, each beginning with the next member. */
void alltoall_linear(struct plan *plan, const struct collective *call)
{
	struct exchange exchange;

	exchange_begin(plan, call, &exchange);
	for (int by = 1; by < plan->size; by++)
		exchange_recv_from(plan, &exchange, rank_before(plan, plan->rank, by));
	for (int by = 1; by < plan->size; by++)
		exchange_send_to(plan, &exchange, rank_after(plan, plan->rank, by));
	exchange_copy_own(plan, &exchange);
}

/* One to send to and one to receive from at a time, so that no member is sent to by many. (Thakur and others, see
 * allgather.c.) */
void alltoall_pairwise(struct plan *plan, const struct collective *call)
{
	struct exchange exchange;

	exchange_begin(plan, call, &exchange);
	exchange_copy_own(plan, &exchange);
	for (int by = 1; by < plan->size; by++) {
		exchange_recv_from(plan, &exchange, rank_before(plan, plan->rank, by));
		exchange_send_to(plan, &exchange, rank_after(plan, plan->rank, by));
		plan_round(plan);
	}
}

void alltoallv_linear(struct plan *plan, const struct collective *call)
{
	alltoall_linear(plan, call);
}

void alltoallv_pairwise(struct plan *plan, const struct collective *call)
{
	alltoall_pairwise(plan, call);
}

/*
 * Bruck and others (allgather.c): parts lie in the order of the distance that they have to go; in round k those with
 * that bit go 2^k members on together. Few messages, but each part travels several times.
 */
struct bruck {
	char *parts, *out, *in;
	size_t length;
};

static size_t bruck_pack(struct plan *plan, const struct bruck *bruck, int bit)
{
	size_t at = 0;

	for (int i = bit; i < plan->size; i++) {
		if (!(i & bit))
			continue;
		plan_copy(plan, bruck->out + at, bruck->parts + i * bruck->length, bruck->length);
		at += bruck->length;
	}
	plan_round(plan);
	return at;
}

static void bruck_unpack(struct plan *plan, const struct bruck *bruck, int bit)
{
	size_t at = 0;

	for (int i = bit; i < plan->size; i++) {
		if (!(i & bit))
			continue;
		plan_copy(plan, bruck->parts + i * bruck->length, bruck->in + at, bruck->length);
		at += bruck->length;
	}
	plan_round(plan);
}

void alltoall_bruck(struct plan *plan, const struct collective *call)
{
	const char *from = call->send ? call->send : call->recv;
	struct bruck bruck = {.length = call->length};

	bruck.parts = plan_memory(plan, plan->size * call->length);
	bruck.out = plan_memory(plan, plan->size * call->length);
	bruck.in = plan_memory(plan, plan->size * call->length);
	for (int i = 0; i < plan->size; i++)
		plan_copy(plan, bruck.parts + i * call->length, from + rank_after(plan, plan->rank, i) * call->length,
			  call->length);
	plan_round(plan);
	for (int bit = 1; bit < plan->size; bit *= 2) {
		size_t length = bruck_pack(plan, &bruck, bit);

		plan_recv(plan, rank_before(plan, plan->rank, bit), bruck.in, length);
		plan_send(plan, rank_after(plan, plan->rank, bit), bruck.out, length);
		plan_round(plan);
		bruck_unpack(plan, &bruck, bit);
	}
	for (int i = 0; i < plan->size; i++)
		plan_copy(plan, call->recv + rank_before(plan, plan->rank, i) * call->length,
			  bruck.parts + i * call->length, call->length);
}
