/*
 * relay.c: the records of two connections that are joined, from one to the other. What they say is the ends' affair,
* which check each other's indices; here only lengths are looked at. Nothing is kept: what the receiver has no room for
 * waits with the sender's connection, and the ends' flow control bounds it. One of many bytes goes in pieces, each of
 * which tells how far it reaches, because the two may have been granted messages of different sizes, and so that others
 * have their turn in between.
 */
#include "service/channel/channel.h"

#define PIECE (64u * KIB)

/* Length of what stands in a record before the bytes that end at its first number. */
static uint32_t head_of(const struct wire_record *record)
{
	return record->op == WIRE_OP_CHANNEL_DATA ? (uint32_t)sizeof(struct wire_channel_data)
						  : (uint32_t)sizeof(uint64_t);
}

static bool relay_is_right(const struct wire_record *record)
{
	bool data = record->op == WIRE_OP_CHANNEL_DATA;

	return record->length >= head_of(record) && record->arg == record->length - head_of(record) &&
	       (data || !record->arg) && !(record->flags & ~(data ? WIRE_CHANNEL_LAST : 0));
}

static void put_piece(struct wire_record *out, const struct wire_record *record, const uint8_t *body, uint32_t from,
		      uint32_t count)
{
	uint32_t head = head_of(record);
	uint8_t *at = (uint8_t *)(out + 1);
	uint64_t index;

	out->op = record->op;
	out->flags = from + count == record->arg ? record->flags : 0;
	out->arg = count;
	memcpy(at, body, head);
	memcpy(&index, body, sizeof(index));
	index -= record->arg - from - count; /* the rest comes later */
	memcpy(at, &index, sizeof(index));
	memcpy(at + head, body + head + from, count);
}

/* The next piece. False: there is no room for it. */
static bool relay_piece(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	struct conn *to = a->partner->m.conn;
	uint32_t head = head_of(record), most = WIRE_BODY_MAX(conn_granted(to)->message_size) - head;
	uint32_t count = MIN(MIN(record->arg - a->relayed, most), PIECE);
	struct wire_record *out = conn_reserve(to, head + count, NULL);

	if (!out)
		return false;
	put_piece(out, record, body, a->relayed, count);
	conn_commit(to, out, head + count);
	a->relayed += count;
	a->got_on = true;
	channel_count(a, CHANNEL_COUNT_BYTES, count);
	return true;
}

int channel_relay(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	if (!relay_is_right(record) || a->m.role < MEET_JOINED)
		return -EPROTO;
	if (a->m.role == MEET_LEAVES)
		return 0; /* no client is left to have it */
	if (a->last && record->op == WIRE_OP_CHANNEL_DATA)
		return -EPROTO;
	do {
		if (relay_piece(a, record, body))
			continue;
		/* a sender whose records go on, though slowly, is not one that is stalled: its time begins anew */
		if (a->got_on)
			conn_yield(a->m.conn);
		a->got_on = false;
		return -EAGAIN;
	} while (a->relayed < record->arg && conn_time_left(a->m.conn));
	if (a->relayed < record->arg) {
		conn_yield(a->m.conn);
		return -EAGAIN;
	}
	a->relayed = 0;
	a->last |= record->flags & WIRE_CHANNEL_LAST;
	return 0;
}
