/* message.c: messages of a peer: their records, what is confirmed, room; the connection's end and its return. */
#include "peer/messages/message.h"

#include <stdlib.h>

const uint8_t message_ranks[PEER_CLASSES] = {RDMA_URGENT, RDMA_NORMAL, RDMA_BULK};

static int message_init(struct peer *peer)
{
	struct peer_message *m = calloc(1, sizeof(*m));
	const rdma_options *options = &peer->ctx->options;

	if (!m)
		return -ENOMEM;
	m->window = MAX((uint64_t)options->buf_size, (uint64_t)PEER_INBOX_MIN);
	m->retains = options->reconnect_ms != 0;
	m->flushed = UINT64_MAX;
	message_outbox_init(m);
	inbox_init(m);
	message_intakes_init(m);
	for (unsigned i = 0; i < MESSAGE_USES; i++)
		m->use_in[i].told = m->use_out[i].room = WIRE_PEER_ROOM;
	peer->message = m;
	m->peer = peer;
	list_init(&m->to_read_node);
	list_init(&m->limited_node);
	message_limit_set(peer, options->rate_limit_mib * (uint64_t)MIB);
	return 0;
}

int message_violation(struct peer *peer, const char *format, ...)
{
	char words[200];
	va_list args;

	va_start(args, format);
	vsnprintf(words, sizeof(words), format, args);
	va_end(args);
	log_warn("peer", "%s breaks the protocol: %s", peer->name, words);
	if (peer->conn)
		conn_close(peer->conn, -EPROTO, "it breaks the protocol: %s", words);
	return -EPROTO;
}

void message_fail_gone(struct rdma_request *request)
{
	const struct peer *peer = request->peer;

	request_fail(request, -ECONNRESET, "Peer not connected: %s: %s", peer->name, message_gone_why(peer));
}

/*
 * What is said of what came
 */
void message_received(struct peer *peer, uint64_t stream, uint64_t cost)
{
	struct peer_message *m = peer->message;
	struct message_in *in = &m->use_in[message_use(stream)];

	in->received += cost;
	if (in->received + m->window - in->told >= m->window / 4)
		m->say_confirm = true;
}

/* Its room is checked before anything of it is looked at. */
static int message_came(struct peer *peer, uint64_t stream, uint64_t cost)
{
	struct peer_message *m = peer->message;
	struct message_in *in = &m->use_in[message_use(stream)];

	if (unlikely(in->came + cost > in->told))
		return message_violation(peer, "more than the %llu bytes that may wait to be received",
					 (unsigned long long)m->window);
	in->came += cost;
	m->unconfirmed += cost;
	if (m->unconfirmed >= MESSAGE_UNCONFIRMED)
		m->say_confirm = true;
	return 0;
}

static bool confirm_say(struct peer *peer)
{
	struct peer_message *m = peer->message;
	struct wire_peer_confirm confirm;
	struct wire_record *record = conn_reserve(peer->conn, sizeof(confirm), NULL);

	if (!record)
		return false;
	memcpy(confirm.next, m->next_in, sizeof(confirm.next));
	for (unsigned i = 0; i < MESSAGE_USES; i++) {
		m->use_in[i].told = MAX(m->use_in[i].told, m->use_in[i].received + m->window);
		confirm.room[i] = m->use_in[i].told;
	}
	record->op = WIRE_OP_PEER_CONFIRM;
	record->flags = m->ask ? WIRE_PEER_ASKS : 0;
	memcpy(record + 1, &confirm, sizeof(confirm));
	conn_commit(peer->conn, record, sizeof(confirm));
	m->say_confirm = m->ask = false;
	m->unconfirmed = 0;
	return true;
}

bool message_say(struct peer *peer)
{
	struct peer_message *m = peer->message;

	if (!m->open)
		return false;
	if (unlikely(m->say_confirm || m->ask) && !confirm_say(peer))
		return false;
	return likely(list_empty(&m->taken)) || message_taken_say(peer);
}

/*
 * Records
 */

/* Recognise messages that came before: numbers are counted without a gap. 1: it came before; 0: it is the next. */
static int number_check(struct peer *peer, unsigned message_class, uint32_t id)
{
	int32_t ahead = (int32_t)(id - (uint32_t)peer->message->next_in[message_class]);

	if (likely(ahead == 0))
		return 0;
	return ahead < 0 ? 1
			 : message_violation(peer, "message %u, but %u is the next", id,
					     (uint32_t)peer->message->next_in[message_class]);
}

static int record_data(struct peer *peer, const struct wire_record *record, const void *body)
{
	struct peer_message *m = peer->message;
	unsigned message_class = record->flags & WIRE_PEER_CLASS;
	struct wire_peer_data data;
	size_t length = record->length - sizeof(data);
	int rc;

	if (unlikely(record->length < sizeof(data) || length > PEER_EAGER_MAX || message_class >= PEER_CLASSES))
		return message_violation(peer, "a short message of %u bytes and class %u", record->length,
					 message_class);
	memcpy(&data, body, sizeof(data));
	rc = number_check(peer, message_class, record->id);
	if (unlikely(rc != 0))
		return MIN(rc, 0);
	rc = message_came(peer, data.stream, WIRE_PEER_COST(length));
	if (unlikely(rc != 0))
		return rc;
	m->next_in[message_class]++;
	body = (const char *)body + sizeof(data);
	if (unlikely(data.stream == PEER_STREAM_CONTROL)) {
		message_received(peer, data.stream, WIRE_PEER_COST(length));
		return control_record(peer, body, length);
	}
	return inbox_deliver(peer, message_class, data.stream, body, length);
}

static int record_offer(struct peer *peer, const struct wire_record *record, const void *body)
{
	struct peer_message *m = peer->message;
	unsigned message_class = record->flags & WIRE_PEER_CLASS;
	struct wire_peer_offer offer;
	int rc = 0;

	if (record->length != sizeof(offer) || message_class >= PEER_CLASSES)
		return message_violation(peer, "an offer of %u bytes and class %u", record->length, message_class);
	memcpy(&offer, body, sizeof(offer));
	if (!(record->flags & (WIRE_PEER_AGAIN | WIRE_PEER_MORE | WIRE_PEER_BACK))) {
		rc = number_check(peer, message_class, record->id);
		if (rc == 0)
			rc = message_came(peer, offer.stream, WIRE_PEER_COST(0));
		if (rc == 0)
			m->next_in[message_class]++;
	}
	return rc == 0 ? message_offer_record(peer, record, &offer) : MIN(rc, 0);
}

static int record_confirm(struct peer *peer, const struct wire_record *record, const void *body)
{
	struct peer_message *m = peer->message;
	struct wire_peer_confirm confirm;

	if (record->length != sizeof(confirm))
		return message_violation(peer, "a confirmation of %u bytes", record->length);
	memcpy(&confirm, body, sizeof(confirm));
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		if (confirm.next[i] < m->out[i].confirmed || confirm.next[i] > m->out[i].next)
			return message_violation(peer, "it confirms %llu messages of class %u of %llu",
						 (unsigned long long)confirm.next[i], i,
						 (unsigned long long)m->out[i].next);
		message_confirmed(peer, i, confirm.next[i]);
	}
	for (unsigned i = 0; i < MESSAGE_USES; i++) {
		if (confirm.room[i] < m->use_out[i].room)
			return message_violation(peer, "it takes back room that it gave");
		m->use_out[i].room = confirm.room[i];
	}
	m->say_confirm |= (record->flags & WIRE_PEER_ASKS) != 0;
	peer->ctx->progressed++; /* wakes a wait until all is confirmed */
	message_pump(peer);
	return 0;
}

static const struct {
	enum wire_op op;
	int (*handle)(struct peer *peer, const struct wire_record *record, const void *body);
} records[] = {
	{WIRE_OP_PEER_DATA, record_data},
	{WIRE_OP_PEER_OFFER, record_offer},
	{WIRE_OP_PEER_TAKEN, message_taken_record},
	{WIRE_OP_PEER_CONFIRM, record_confirm},
};

int message_record(struct peer *peer, const struct wire_record *record, const void *body)
{
	for (unsigned i = 0; i < ARRAY_SIZE(records) && peer->message->open; i++) {
		int rc;

		if (records[i].op != record->op)
			continue;
		rc = records[i].handle(peer, record, body);
		if (rc == 0 && unlikely(peer->message->say_confirm))
			message_say(peer);
		return rc;
	}
	return message_violation(peer, "a record %u (%s), which does not belong here", record->op,
				 wire_op_name(record->op));
}

static int messages_turn(rdma_context *ctx, uint64_t now, bool arm)
{
	int work = 0;

	(void)now;
	(void)arm;
	if (unlikely(!list_empty(&ctx->limited)))
		message_limits_turn(ctx);
	for (; unlikely(!list_empty(&ctx->to_read)); work++) {
		struct peer_message *m = list_first(&ctx->to_read, struct peer_message, to_read_node);

		list_del(&m->to_read_node);
		message_read_on(m->peer);
	}
	return work;
}

void message_writable(struct peer *peer)
{
	peer->message->limited = false; /* a deadline that is over comes once */
	message_pump(peer);
	message_read_on(peer);
}

/*
 * Connections
 */
static void message_closed(struct peer *peer)
{
	struct peer_message *m = peer->message;

	m->open = false;
	m->ask = m->say_confirm = false;
	m->asked = 0;
	message_offers_closed(peer);
	message_intakes_closed(peer);
}

static void message_next(const struct peer *peer, uint64_t next[static PEER_CLASSES])
{
	if (peer->message)
		memcpy(next, peer->message->next_in, sizeof(peer->message->next_in));
}

static bool message_resume(struct peer *peer, const uint64_t next[static PEER_CLASSES])
{
	struct peer_message *m = peer->message;

	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		const struct outbox *out = &m->out[i];

		if (next[i] < out->confirmed || next[i] > out->next || (!m->retains && next[i] != out->next))
			return false; /* what was not kept cannot be sent again */
	}
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		message_confirmed(peer, i, next[i]);
		m->out[i].resend = next[i];
	}
	m->open = true;
	m->say_confirm = true; /* the room that there is, and what of it was told and did not arrive */
	message_offers_resumed(peer);
	message_pump(peer);
	message_flush(peer); /* the answer to a hello, too: the accepting program may turn much later */
	return true;
}

static uint64_t messages_left(const struct peer_message *m)
{
	return m->out[0].next + m->out[1].next + m->out[2].next;
}

static bool outbox_idle(const struct outbox *out)
{
	return out->next == out->confirmed && list_empty(&out->offers) && list_empty(&out->waiting[0]) &&
	       list_empty(&out->waiting[1]) && list_empty(&out->waiting[2]);
}

bool message_idle(struct peer *peer)
{
	struct peer_message *m = peer->message;

	if (outbox_idle(&m->out[0]) && outbox_idle(&m->out[1]) && outbox_idle(&m->out[2]))
		return true;
	if (m->open && m->asked != messages_left(m)) {
		m->asked = messages_left(m);
		m->ask = true;
		message_pump(peer);
		message_flush(peer);
	}
	return false;
}

static void message_clear(struct peer *peer)
{
	struct peer_message *m = peer->message;

	m->open = false;
	m->gone = true;
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		for (unsigned use = 0; use < MESSAGE_USES; use++) {
			while (!list_empty(&m->out[i].waiting[use])) {
				struct rdma_request *request =
					list_first(&m->out[i].waiting[use], struct rdma_request, node);

				list_del(&request->node);
				message_fail_gone(request);
			}
		}
		message_confirmed(peer, i, m->out[i].next);
	}
	message_offers_clear(peer);
	message_intakes_clear(peer);
	inbox_clear(peer);
}

static void message_free(struct peer *peer)
{
	struct peer_message *m = peer->message;

	if (!m)
		return;
	message_intakes_free(m);
	inbox_free(m);
	if (list_linked(&m->to_read_node))
		list_del(&m->to_read_node);
	if (list_linked(&m->limited_node))
		list_del(&m->limited_node);
	free(m);
	peer->message = NULL;
}

static void messages_release(rdma_context *ctx)
{
	request_pool_end(ctx);
	register_end(ctx);
}

const struct peer_layer peer_messages = {
	.init = message_init,
	.free = message_free,
	.record = message_record,
	.writable = message_writable,
	.next = message_next,
	.resumed = message_resume,
	.closed = message_closed,
	.lost = message_clear,
	.idle = message_idle,
	.unread = inbox_has_more,
	.turn = messages_turn,
	.deadline = messages_deadline,
	.release = messages_release,
};
