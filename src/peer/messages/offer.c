/*
 * offer.c: long messages that leave. The peer is told where one is and reads it, which over RDMA takes no turn here;
 * when it has all of it, it says so, and the request completes. A rate limit says how far it may read by now. A call
 * whose time is over withdraws its message, and waits a little for the peer to say that it does not read it any more.
 */
#include "peer/messages/message.h"

#include <stdlib.h>

#define WITHDRAW_TIMEOUT TIME_S

/*
 * Records
 */
static bool offer_say(struct peer *peer, unsigned message_class, const struct offer *offer, unsigned flags)
{
	const struct fabric_region *region = reach_region(&offer->reach);
	struct wire_peer_offer body = {.stream = offer->stream, .length = offer->length, .ready = offer->ready};
	const struct wire_record head = {
		.op = WIRE_OP_PEER_OFFER, .flags = (uint8_t)(message_class | flags), .id = (uint32_t)offer->number};

	if (offer->request && region) {
		body.addr = (uintptr_t)offer->request->data;
		body.rkey = offer->window ? fabric_window_rkey(offer->window)
					  : fabric_region_rkey(region, conn_endpoint(peer->conn));
	}
	return conn_say(peer->conn, &head, &body, sizeof(body), NULL, 0);
}

/* Else writable() comes. */
static bool offer_has_room(struct peer *peer)
{
	if (likely(conn_has_room(peer->conn, sizeof(struct wire_peer_offer))))
		return true;
	if (conn_established(peer->conn))
		conn_wait_writable(peer->conn);
	return false;
}

/* 0; -EAGAIN: writable() comes; or why not. */
static int offer_reach(struct peer *peer, struct offer *offer)
{
	int rc = message_show(peer, offer->request->data, offer->length, &offer->reach, &offer->window);

	if (rc == -EAGAIN)
		conn_wait_writable(peer->conn);
	return rc;
}

static void offer_unreach(struct peer *peer, struct offer *offer)
{
	fabric_window_close(offer->window);
	offer->window = NULL;
	message_unreach(peer, &offer->reach);
}

static void offer_free(struct peer *peer, struct offer *offer)
{
	offer_unreach(peer, offer);
	list_del(&offer->node);
	free(offer);
}

static struct offer *offer_find(const struct outbox *out, uint32_t id)
{
	list_for_each (at, &out->offers)
		if ((uint32_t)container_of(at, struct offer, node)->number == id)
			return container_of(at, struct offer, node);
	return NULL;
}

/*
 * The first time
 */
static bool others_are_out(const struct peer_message *m)
{
	return !list_empty(&m->out[0].offers) || !list_empty(&m->out[1].offers) || !list_empty(&m->out[2].offers);
}

static uint64_t may_be_read(struct peer_message *m, uint64_t length)
{
	uint64_t bytes = MIN(length, message_limit_quantum(m));

	message_limit_take(m, bytes);
	m->limited |= bytes < length;
	return bytes;
}

enum sent message_offer_send(struct peer *peer, struct rdma_request *request)
{
	struct peer_message *m = peer->message;
	struct outbox *out = &m->out[request->message_class];
	struct offer *offer;
	int rc;

	if (!offer_has_room(peer))
		return SENT_NOT_NOW;
	offer = calloc(1, sizeof(*offer));
	if (!offer)
		return SENT_FAILED;
	offer->request = request;
	offer->stream = request->stream;
	offer->number = out->next;
	offer->length = request->length;
	rc = offer_reach(peer, offer);
	if (rc != 0) {
		free(offer);
		/* The end of another makes room, or the connection's end is near. */
		return others_are_out(m) || rc == -EAGAIN || rc == -ENOTCONN ? SENT_NOT_NOW : SENT_FAILED;
	}
	list_add_tail(&out->offers, &offer->node);
	offer->ready = may_be_read(m, offer->length);
	if (list_linked(&request->node))
		list_del(&request->node);
	request->cancel = NULL;
	if (!offer_say(peer, request->message_class, offer, 0))
		message_violation(peer, "it gave room for a record, and then there was none");
	return SENT;
}

/*
 * Later
 */
bool message_offer_again(struct peer *peer, unsigned message_class, uint64_t number)
{
	struct offer *offer = offer_find(&peer->message->out[message_class], (uint32_t)number);

	if (!offer)
		return true; /* it cannot be: what is not confirmed was not taken */
	if (offer->request && !reach_region(&offer->reach) && offer_reach(peer, offer) != 0)
		return false;
	if (!offer_say(peer, message_class, offer, 0))
		return false;
	if (!offer->back)
		return true;
	peer->message->news = true; /* for its number only: it is withdrawn next */
	offer->back_said = false;
	return true;
}

/* False: no credit. */
static bool offer_news_say(struct peer *peer, unsigned message_class, struct offer *offer)
{
	unsigned again = offer->again ? WIRE_PEER_AGAIN : 0;

	if (offer->back) {
		if (!offer->back_said && !offer_say(peer, message_class, offer, WIRE_PEER_BACK | again))
			return false;
		offer->back_said = true;
	} else if (again) {
		if ((!reach_region(&offer->reach) && offer_reach(peer, offer) != 0) ||
		    !offer_say(peer, message_class, offer, again))
			return false;
	}
	offer->again = false;
	return true;
}

bool message_offers_say(struct peer *peer)
{
	struct peer_message *m = peer->message;

	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		struct outbox *out = &m->out[i];

		list_for_each (at, &out->offers) {
			struct offer *offer = container_of(at, struct offer, node);

			if (offer->number >= out->resend)
				break; /* pump_again() sends these first */
			if (!offer_news_say(peer, i, offer))
				return false;
		}
	}
	m->news = false;
	return true;
}

/* False: no credit, or not yet. */
static bool offer_feed(struct peer *peer, unsigned message_class, struct offer *offer)
{
	struct peer_message *m = peer->message;

	while (offer->ready < offer->length && !offer->back) {
		if (!message_limit_passes(m) || !offer_has_room(peer))
			return false;
		offer->ready += may_be_read(m, offer->length - offer->ready);
		if (!offer_say(peer, message_class, offer, WIRE_PEER_MORE))
			return false;
	}
	return true;
}

bool message_offers_feed(struct peer *peer, unsigned message_class)
{
	list_for_each (at, &peer->message->out[message_class].offers)
		if (!offer_feed(peer, message_class, container_of(at, struct offer, node)))
			return false;
	return true;
}

/*
 * Its end
 */
static void offer_fail_late(struct rdma_request *request)
{
	request_fail(request, -ETIMEDOUT, "Timed out: %s has not received %zu bytes", request->peer->name,
		     request->length);
}

int message_taken_record(struct peer *peer, const struct wire_record *record, const void *body)
{
	unsigned message_class = record->flags & WIRE_PEER_CLASS;
	struct rdma_request *request;
	struct offer *offer;

	if (record->length || message_class >= PEER_CLASSES)
		return message_violation(peer, "%u bytes of a long message that was taken, of class %u", record->length,
					 message_class);
	offer = offer_find(&peer->message->out[message_class], record->id);
	if (!offer || ((record->flags & WIRE_PEER_BACK) && !offer->back))
		return message_violation(peer, "it took message %u of class %u, which was not offered", record->id,
					 message_class);
	request = offer->request;
	offer_free(peer, offer);
	if (request && (record->flags & WIRE_PEER_BACK))
		offer_fail_late(request);
	else if (request)
		request_complete(request, 0, request->length);
	message_pump(peer); /* memory that could not be registered */
	return 0;
}

static struct offer *offer_of(const struct rdma_request *request)
{
	list_for_each (at, &request->peer->message->out[request->message_class].offers)
		if (container_of(at, struct offer, node)->request == request)
			return container_of(at, struct offer, node);
	return NULL;
}

uint64_t message_abandon(struct rdma_request *request)
{
	struct peer *peer = request->peer;
	struct offer *offer = peer && peer->message ? offer_of(request) : NULL;

	request->late = true;
	if (!offer)
		return TIME_NEVER;
	if (!offer->back && peer->message->open) {
		offer->back = peer->message->news = true;
		message_pump(peer);
		message_flush(peer);
		return time_after(time_now(), WITHDRAW_TIMEOUT);
	}
	offer->back = true;
	offer->request = NULL;
	offer_unreach(peer, offer);
	offer_fail_late(request);
	return TIME_NEVER;
}

/*
 * Connections
 */
void message_offers_closed(struct peer *peer)
{
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		struct list *offers = &peer->message->out[i].offers;

		list_for_each (at, offers) {
			struct offer *offer = container_of(at, struct offer, node);

			offer_unreach(peer, offer);
			offer->again = true;
			offer->back_said = false;
		}
	}
}

void message_offers_resumed(struct peer *peer)
{
	struct peer_message *m = peer->message;

	m->news = others_are_out(m);
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		struct list *offers = &m->out[i].offers;

		list_for_each (at, offers) {
			struct offer *offer = container_of(at, struct offer, node);

			offer->again = offer->number < m->out[i].resend;
		}
	}
}

void message_offers_clear(struct peer *peer)
{
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		struct list *offers = &peer->message->out[i].offers;

		while (!list_empty(offers)) {
			struct offer *offer = list_first(offers, struct offer, node);
			struct rdma_request *request = offer->request;

			offer_free(peer, offer);
			if (request)
				message_fail_gone(request);
		}
	}
}
