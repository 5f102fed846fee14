/* conn_record.c: what the peer of a far channel says. All of it is checked before it is used. */
#include "channel/conn.h"

static int far_took_tail(struct channel_far *far, uint64_t tail)
{
	if (tail < far->got || tail > far->sent)
		return -EPROTO;
	far->got = tail;
	channel_far_free(far);
	return 0;
}

static int far_record_data(struct channel_far *far, const struct wire_record *record, const void *body)
{
	const struct channel_mirror *mirror = &far->channel.in.mirror;
	uint64_t head = atomic_load_explicit(&far->head, memory_order_relaxed);
	uint64_t got = atomic_load_explicit(&far->channel.in.tail, memory_order_acquire);
	struct wire_channel_data data;
	uint64_t count;

	if (record->length < sizeof(data) || record->arg != record->length - sizeof(data) || far->last)
		return -EPROTO;
	memcpy(&data, body, sizeof(data));
	count = data.head - head;
	if (data.head < head || data.head - got > far->channel.capacity || (record->arg && record->arg != count) ||
	    (count && !record->arg && !far->in))
		return -EPROTO;
	memcpy(mirror->data + head % mirror->size, (const char *)body + sizeof(data), record->arg);
	atomic_store_explicit(&far->head, data.head, memory_order_release);
	if (far_took_tail(far, data.tail) != 0)
		return -EPROTO;
	if (record->flags & WIRE_CHANNEL_LAST) { /* the last word of the peer is answered by ours */
		far->last = far->over = true;
		if (!far->said_last)
			channel_far_say_last(far);
		channel_end(&far->channel, -EPIPE, "%s closed the channel", far->peer);
	}
	return 0;
}

static int far_index(const struct wire_record *record, const void *body, uint64_t *index)
{
	if (record->length != sizeof(*index))
		return -EPROTO;
	memcpy(index, body, sizeof(*index));
	return 0;
}

static int far_record_tail(struct channel_far *far, const struct wire_record *record, const void *body)
{
	uint64_t tail;
	int rc = far_index(record, body, &tail);

	return rc == 0 ? far_took_tail(far, tail) : rc;
}

/* An exchange, as that in far_taken(): one of the two sees the other's index. */
static int far_record_want(struct channel_far *far, const struct wire_record *record, const void *body)
{
	uint64_t tail;
	int rc = far_index(record, body, &tail);

	if (rc != 0)
		return rc;
	atomic_exchange(&far->wanted, tail);
	if (atomic_load(&far->channel.in.tail) >= tail)
		channel_far_tell(far);
	return 0;
}

static int far_record_open(struct channel_far *far, const struct wire_record *record, const void *body)
{
	uint32_t name_len = record->length - (uint32_t)sizeof(far->asked);

	if (record->length < sizeof(far->asked) || name_len > WIRE_CHANNEL_NAME_MAX)
		return -EPROTO;
	memcpy(&far->asked, body, sizeof(far->asked));
	memcpy(far->name, (const char *)body + sizeof(far->asked), name_len);
	if (memchr(far->name, '\0', name_len))
		return -EPROTO;
	far->state = CHANNEL_FAR_ASKED;
	return 0;
}

/* *length: without the ticket. */
static int far_took_ticket(struct channel_far *far, const void *body, uint32_t *length)
{
	const uint8_t *at;

	if (!far->issued || *length < WIRE_CHANNEL_TICKET_SIZE || !conn_seals(far->conn))
		return -EPROTO;
	*length -= WIRE_CHANNEL_TICKET_SIZE;
	at = (const uint8_t *)body + *length;
	memcpy(&far->issued->serial, at, sizeof(far->issued->serial));
	far->issued->given =
		conn_unseal(far->conn, at + sizeof(far->issued->serial), WIRE_SEALED, far->issued->secret) == 0;
	return far->issued->given ? 0 : -EPROTO;
}

/* WIRE_MOVED has URLs, any other refusal words for people. */
static int far_refused(struct channel_far *far, const struct wire_record *record, const void *body)
{
	bool moved = record->status == WIRE_MOVED;
	char *to = moved ? far->moved : far->why;
	size_t size = moved ? far->moved_size : sizeof(far->why);
	uint32_t length = record->length;

	if (!to || (moved && record->flags & WIRE_CHANNEL_TICKET && far_took_ticket(far, body, &length) != 0) ||
	    (moved && length >= size))
		return -EPROTO;
	snprintf(to, size, "%.*s", (int)length, (const char *)body);
	far->error = record->status == WIRE_UNSUPPORTED ? -EPROTONOSUPPORT : wire_status_errno(record->status);
	far->state = CHANNEL_FAR_REFUSED;
	far->over = true;
	return 0;
}

static int far_record_answer(struct channel_far *far, const struct wire_record *record, const void *body)
{
	struct wire_channel_open open;

	if (record->status != WIRE_OK)
		return far_refused(far, record, body);
	if (record->length < sizeof(open))
		return -EPROTO;
	memcpy(&open, body, sizeof(open));
	if (channel_far_take_ring(far, &open) != 0)
		return -EPROTO;
	far->state = CHANNEL_FAR_OPEN;
	far->over = true;
	return 0;
}

static const struct {
	enum wire_op op;
	bool reply;
	enum channel_far_state state; /* the only one in which it may come */
	int (*took)(struct channel_far *far, const struct wire_record *record, const void *body);
} records[] = {
	{.op = WIRE_OP_CHANNEL_DATA, .state = CHANNEL_FAR_OPEN, .took = far_record_data},
	{.op = WIRE_OP_CHANNEL_TAIL, .state = CHANNEL_FAR_OPEN, .took = far_record_tail},
	{.op = WIRE_OP_CHANNEL_WANT, .state = CHANNEL_FAR_OPEN, .took = far_record_want},
	{.op = WIRE_OP_CHANNEL_OPEN, .state = CHANNEL_FAR_SILENT, .took = far_record_open},
	{.op = WIRE_OP_CHANNEL_OPEN, .reply = true, .state = CHANNEL_FAR_ASKING, .took = far_record_answer},
};

static int far_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct channel_far *far = conn_context(conn);
	bool reply = record->flags & WIRE_REPLY;

	for (size_t i = 0; i < ARRAY_SIZE(records); i++)
		if (record->op == records[i].op && reply == records[i].reply && far->state == records[i].state)
			return records[i].took(far, record, body);
	return -EPROTO;
}

static void far_established(struct conn *conn)
{
	(void)conn;
}

static void far_writable(struct conn *conn)
{
	struct channel_far *far = conn_context(conn);

	if (far->say_last)
		channel_far_say_last(far);
	if (far->tell)
		channel_far_tell(far);
	channel_far_resume(far);
}

static void far_closed(struct conn *conn, int error, const char *reason)
{
	struct channel_far *far = conn_context(conn);
	/* The kinds of errors that <rdmad/channel.h> promises. */
	int kind = error == -EPROTO || error == -EBADMSG ? -EPROTO : error == -EIO ? -EIO : -ECONNRESET;

	far->conn = NULL;
	far->over = true;
	if (far->state == CHANNEL_FAR_OPEN && client_was_ended(error, reason))
		channel_end(&far->channel, kind, "the channel to %s ended: %s", far->peer, reason);
	if (far->state == CHANNEL_FAR_OPEN || far->state == CHANNEL_FAR_REFUSED)
		return;
	far->error = error == 0 ? -ECONNRESET : error;
	snprintf(far->why, sizeof(far->why), "%s", reason);
}

const struct conn_ops channel_far_ops = {
	.established = far_established,
	.record = far_record,
	.writable = far_writable,
	.closed = far_closed,
};
