/*
 * send.c: what leaves. A message leaves when its use has room at the peer, the rate allows it and the connection has a
 * credit; else its request waits. Of several that wait, urgent ones go first, and bulk last.
 */
#include "peer/messages/message.h"

static const uint8_t uses[MESSAGE_USES] = {MESSAGE_CONTROL, MESSAGE_COLLECTIVE, MESSAGE_PROGRAM};

void message_outbox_init(struct peer_message *m)
{
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		list_init(&m->out[i].retained);
		list_init(&m->out[i].offers);
		for (unsigned use = 0; use < MESSAGE_USES; use++)
			list_init(&m->out[i].waiting[use]);
	}
}

/* The record of a short message. False: no credit. */
static bool data_say(struct peer *peer, unsigned message_class, uint64_t number, uint64_t stream, const void *data,
		     size_t length)
{
	uint32_t bytes = (uint32_t)(sizeof(struct wire_peer_data) + length), room;
	struct wire_record *record = conn_reserve(peer->conn, bytes, &room);

	if (unlikely(!record))
		return false;
	record->op = WIRE_OP_PEER_DATA;
	record->flags = (uint8_t)message_class;
	record->id = (uint32_t)number;
	memcpy(record + 1, &stream, sizeof(stream));
	if (length)
		memcpy((char *)(record + 1) + sizeof(stream), data, length);
	conn_commit(peer->conn, record, bytes);
	if (unlikely(room < 2 * (sizeof(*record) + WIRE_PAD(bytes)))) /* another such one begins a message */
		conn_flush(peer->conn);
	return true;
}

/* A copy to be kept, filled in. False: no room for it now. */
static bool retained_new(struct peer_message *m, const struct outbox *out, const struct rdma_request *request,
			 struct stored **copy)
{
	struct stored *stored;

	*copy = NULL;
	if (likely(!m->retains))
		return true;
	if (out->kept > MESSAGE_RETAINED)
		return false;
	stored = stored_new(m, request->length);
	if (!stored)
		return false;
	stored->stream = request->stream;
	stored->number = out->next;
	stored->length = request->length;
	if (request->length)
		memcpy(stored->data, request->data, request->length);
	*copy = stored;
	return true;
}

void message_confirmed(struct peer *peer, unsigned message_class, uint64_t next)
{
	struct outbox *out = &peer->message->out[message_class];

	while (!list_empty(&out->retained)) {
		struct stored *stored = list_first(&out->retained, struct stored, node);

		if (stored->number >= next)
			break;
		out->kept -= stored->length + sizeof(*stored);
		list_del(&stored->node);
		stored_free(peer->message, stored);
	}
	out->confirmed = next;
	out->resend = MAX(out->resend, next);
}

static enum sent send_short(struct peer *peer, const struct rdma_request *request)
{
	struct peer_message *m = peer->message;
	struct outbox *out = &m->out[request->message_class];
	struct stored *copy;

	if (!retained_new(m, out, request, &copy))
		return SENT_NOT_NOW; /* a confirmation makes room */
	if (unlikely(!data_say(peer, request->message_class, out->next, request->stream, request->data,
			       request->length))) {
		if (copy)
			stored_free(m, copy);
		return SENT_NOT_NOW;
	}
	if (unlikely(copy)) {
		out->kept += copy->length + sizeof(*copy);
		list_add_tail(&out->retained, &copy->node);
	}
	return SENT;
}

/* The next of its class. */
static enum sent send_one(struct peer *peer, struct rdma_request *request)
{
	struct peer_message *m = peer->message;
	struct outbox *out = &m->out[request->message_class];
	struct message_out *use = &m->use_out[message_use(request->stream)];
	bool is_long = request->length > PEER_EAGER_MAX;
	uint64_t cost = WIRE_PEER_COST(is_long ? 0 : request->length);
	enum sent sent;

	if (unlikely(use->sent + cost > use->room))
		return SENT_NO_ROOM;
	if (unlikely(!message_limit_passes(m)))
		return SENT_NOT_NOW;
	sent = is_long ? message_offer_send(peer, request) : send_short(peer, request);
	if (unlikely(sent != SENT))
		return sent;
	out->next++;
	out->resend = out->next;
	use->sent += cost;
	if (!is_long)
		message_limit_take(m, request->length);
	return SENT;
}

/*
 * The queue
 */
static bool waiting_cancel(struct rdma_request *request)
{
	list_del(&request->node);
	return true;
}

static void send_later(struct peer_message *m, struct rdma_request *request)
{
	request->cancel = waiting_cancel;
	list_add_tail(&m->out[request->message_class].waiting[message_use(request->stream)], &request->node);
}

static void send_failed(struct rdma_request *request)
{
	request_fail(request, -ENOMEM, "Cannot send %zu bytes to %s: %s", request->length, request->peer->name,
		     rdmad_error());
}

void message_send(struct rdma_request *request)
{
	struct peer_message *m = request->peer->message;
	const struct outbox *out = &m->out[request->message_class];
	enum sent sent;

	must(request->message_class < PEER_CLASSES && !request->complete);
	if (unlikely(m->gone)) {
		message_fail_gone(request);
		return;
	}
	/* Messages that wait go first: of its class and use, or to be sent again. */
	if (unlikely(!m->open) || out->resend != out->next ||
	    !list_empty(&out->waiting[message_use(request->stream)])) {
		send_later(m, request);
		return;
	}
	sent = send_one(request->peer, request);
	if (unlikely(sent == SENT_FAILED))
		send_failed(request);
	else if (unlikely(sent != SENT))
		send_later(m, request);
	else if (request->length <= PEER_EAGER_MAX)
		request_complete(request, 0, request->length);
}

/* False: nothing more can leave now. */
static bool pump_use(struct peer *peer, struct list *waiting)
{
	while (peer->message->open && !list_empty(waiting)) {
		struct rdma_request *request = list_first(waiting, struct rdma_request, node);
		enum sent sent = send_one(peer, request);

		if (sent == SENT_NO_ROOM || sent == SENT_NOT_NOW)
			return sent == SENT_NO_ROOM;
		if (sent == SENT && request->length > PEER_EAGER_MAX)
			continue; /* it has left the list */
		list_del(&request->node);
		if (sent == SENT)
			request_complete(request, 0, request->length);
		else
			send_failed(request);
	}
	return true;
}

/* Send again what left on an earlier connection, by number: short messages as they were kept, and the offers between
 * them. False: no credit. */
static bool pump_again(struct peer *peer, unsigned message_class)
{
	struct outbox *out = &peer->message->out[message_class];
	struct list *at = out->retained.next;

	for (; out->resend < out->next; out->resend++) {
		const struct stored *stored;
		bool sent;

		while (at != &out->retained && container_of(at, struct stored, node)->number < out->resend)
			at = at->next;
		stored = container_of(at, struct stored, node);
		if (at == &out->retained || stored->number != out->resend)
			sent = message_offer_again(peer, message_class, out->resend);
		else
			sent = data_say(peer, message_class, stored->number, stored->stream, stored->data,
					stored->length);
		if (!sent)
			return false;
	}
	return true;
}

static bool pump_class(struct peer *peer, unsigned message_class)
{
	struct outbox *out = &peer->message->out[message_class];

	if (unlikely(out->resend < out->next) && !pump_again(peer, message_class))
		return false;
	if (unlikely(!list_empty(&out->offers)) && !message_offers_feed(peer, message_class))
		return false;
	for (unsigned i = 0; i < MESSAGE_USES; i++)
		if (!list_empty(&out->waiting[uses[i]]) && !pump_use(peer, &out->waiting[uses[i]]))
			return false;
	return true;
}

void message_pump(struct peer *peer)
{
	if (!message_say(peer) || (unlikely(peer->message->news) && !message_offers_say(peer)))
		return;
	for (unsigned i = 0; i < PEER_CLASSES; i++)
		if (!pump_class(peer, message_ranks[i]))
			return;
}

void message_flush(struct peer *peer)
{
	struct peer_message *m = peer->message;

	if (likely(m && m->open && peer->conn))
		conn_flush(peer->conn);
	if (m)
		m->flushed = UINT64_MAX;
}

void message_gather(struct peer *peer)
{
	struct peer_message *m = peer->message;
	uint64_t turn;

	if (unlikely(!m->open))
		return;
	turn = engine_turns(peer->engine);
	if (m->flushed == turn)
		return;
	conn_flush(peer->conn);
	m->flushed = turn;
}
