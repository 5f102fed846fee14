/* channel_work.c: what each of the two processes of a benchmark of channels does: over the channel, and the same
 * without one. */
#include "ctl/bench/channel.h"
#include "rdmad/channel_types.h"

static const struct rdmad_field order_fields[] = {
	RDMAD_FIELD(struct bench_order, work, &rdmad_type_u32),
	RDMAD_FIELD(struct bench_order, in_place, &rdmad_type_bool),
	RDMAD_FIELD(struct bench_order, flush, &rdmad_type_bool),
	RDMAD_FIELD(struct bench_order, size, &rdmad_type_u64),
	RDMAD_FIELD(struct bench_order, count, &rdmad_type_u64),
};
const struct rdmad_type bench_order_type = RDMAD_TYPE_STRUCT(struct bench_order, order_fields);

/* As small as a remoted call is. */
struct call {
	uint64_t stream, address;
	uint32_t function, argument;
};

static const struct rdmad_field call_fields[] = {
	RDMAD_FIELD(struct call, function, &rdmad_type_u32),
	RDMAD_FIELD(struct call, stream, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct call, address, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct call, argument, &rdmad_type_u32),
};
const struct rdmad_type bench_call_type = RDMAD_TYPE_STRUCT(struct call, call_fields);

/*
 * The works. Each message has its number at its beginning, where there is room for it.
 */
static inline int put_message(struct bench_side *side, const struct bench_order *order, uint64_t number)
{
	void *place = side->buffer;
	int rc = order->in_place ? rdmad_channel_reserve(side->channel, order->size, side->limit_us, &place) : 0;

	if (rc != 0)
		return rc;
	if (order->size >= sizeof(number))
		memcpy(place, &number, sizeof(number));
	return order->in_place ? rdmad_channel_commit(side->channel, order->size)
			       : rdmad_channel_put(side->channel, place, order->size, side->limit_us);
}

static inline int get_message(struct bench_side *side, const struct bench_order *order, uint64_t expected)
{
	const void *place = side->buffer;
	uint64_t number = expected;
	size_t available;
	int rc = order->in_place ? rdmad_channel_view(side->channel, order->size, side->limit_us, &place, &available)
				 : rdmad_channel_get(side->channel, side->buffer, order->size, side->limit_us);

	if (rc != 0)
		return rc;
	if (order->size >= sizeof(number))
		memcpy(&number, place, sizeof(number));
	if (order->in_place)
		rc = rdmad_channel_consume(side->channel, order->size);
	return rc == 0 && number != expected ? -EBADMSG : rc;
}

static int work_pingpong(struct bench_side *side, const struct bench_order *order)
{
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		rc = side->first ? put_message(side, order, i) : get_message(side, order, i);
		if (rc == 0 && side->first)
			rc = rdmad_channel_flush(side->channel, side->limit_us);
		if (rc == 0)
			rc = side->first ? get_message(side, order, i) : put_message(side, order, i);
		if (rc == 0 && !side->first)
			rc = rdmad_channel_flush(side->channel, side->limit_us);
	}
	return rc;
}

/* Stream messages, until the other side says that all have come. */
static int work_stream(struct bench_side *side, const struct bench_order *order)
{
	uint8_t over = 1;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		rc = side->first ? put_message(side, order, i) : get_message(side, order, i);
		if (rc == 0 && order->flush && side->first)
			rc = rdmad_channel_flush(side->channel, side->limit_us);
	}
	if (rc == 0 && side->first)
		return rdmad_channel_get(side->channel, &over, 1, side->limit_us);
	if (rc == 0)
		rc = rdmad_channel_put(side->channel, &over, 1, side->limit_us);
	return rc != 0 ? rc : rdmad_channel_flush(side->channel, side->limit_us);
}

static int call_first(struct bench_side *side)
{
	struct call call = {.stream = 1, .address = 0x7f0000000000, .function = 7};
	uint32_t answer;

	for (call.argument = 0; call.argument <= BENCH_CALLS; call.argument++) {
		int rc = rdmad_channel_put_value(side->channel, &bench_call_type, &call, side->limit_us);

		if (rc != 0)
			return rc;
	}
	return rdmad_channel_get_value(side->channel, &rdmad_type_cuda_error, &answer, side->limit_us);
}

static int call_second(struct bench_side *side)
{
	struct call call;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i <= BENCH_CALLS; i++) {
		rc = rdmad_channel_get_value(side->channel, &bench_call_type, &call, side->limit_us);
		if (rc == 0 && call.argument != i)
			rc = -EBADMSG;
	}
	if (rc == 0)
		rc = rdmad_channel_put_value(side->channel, &rdmad_type_cuda_error, &(uint32_t){0}, side->limit_us);
	return rc != 0 ? rc : rdmad_channel_flush(side->channel, side->limit_us);
}

static int work_calls(struct bench_side *side, const struct bench_order *order)
{
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++)
		rc = side->first ? call_first(side) : call_second(side);
	return rc;
}

/*
 * The same without a channel.
 */
static int work_words(struct bench_side *side, const struct bench_order *order)
{
	return bench_raw_words(&side->raw, order);
}

static int work_ring(struct bench_side *side, const struct bench_order *order)
{
	return bench_raw_ring(&side->raw, order, side->buffer);
}

static int work_copy(struct bench_side *side, const struct bench_order *order)
{
	return bench_raw_copy(&side->raw, order, side->buffer);
}

static int work_echo(struct bench_side *side, const struct bench_order *order)
{
	return bench_raw_echo(&side->raw, order, side->buffer);
}

static int work_send(struct bench_side *side, const struct bench_order *order)
{
	return bench_raw_send(&side->raw, order, side->buffer);
}

/* Encode and decode as the two sides of calls do, without the channel: by one process, in its own memory. */
static int work_encoding(struct bench_side *side, const struct bench_order *order)
{
	const size_t room = (BENCH_CALLS + 1) * sizeof(struct call);
	struct call call = {.stream = 1, .address = 0x7f0000000000, .function = 7};
	ssize_t n = 0;

	for (uint64_t i = 0; side->first && n >= 0 && i < order->count; i++) {
		size_t at = 0;

		for (call.argument = 0; n >= 0 && call.argument <= BENCH_CALLS;
		     call.argument++, at += (size_t)MAX(n, 0))
			n = rdmad_type_encode(&bench_call_type, &call, side->buffer + at, room - at);
		for (at = 0; n > 0 && at < room; at += (size_t)n)
			n = rdmad_type_decode(&bench_call_type, side->buffer + at, room - at, &call);
	}
	return (int)MIN(n, 0);
}

const struct bench_work bench_works[BENCH_WORKS] = {
	[BENCH_PINGPONG] = {"pingpong", work_pingpong}, [BENCH_STREAM] = {"stream", work_stream},
	[BENCH_CALL] = {"calls", work_calls},           [BENCH_WORDS] = {"two words", work_words},
	[BENCH_RING] = {"bare ring", work_ring},        [BENCH_COPY] = {"memcpy", work_copy},
	[BENCH_ENCODING] = {"encoding", work_encoding}, [BENCH_ECHO] = {"polled socket", work_echo},
	[BENCH_SEND] = {"socket loop", work_send},
};
