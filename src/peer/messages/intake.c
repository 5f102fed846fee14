/*
 * intake.c: long messages that come. They are read into the memory of the receive, in pieces, of which several are
 * under way; those of urgent messages are asked for first. When the connection breaks, reading goes on from where it
 * was, once the peer has offered the message again.
 */
#include "peer/messages/message.h"

#include <stdlib.h>

#define TAKEN_MAX 4096 /* messages of which a peer is to be told that gives no credit for it */

void message_intakes_init(struct peer_message *m)
{
	list_init(&m->all);
	list_init(&m->in_flight);
	list_init(&m->taken);
	for (unsigned i = 0; i < PEER_CLASSES; i++)
		list_init(&m->to_read[i]);
}

static struct intake *intake_new(struct peer *peer, unsigned message_class, uint64_t number)
{
	struct intake *intake = calloc(1, sizeof(*intake));

	if (!intake)
		return NULL;
	list_init(&intake->node);
	intake->peer = peer;
	intake->message_class = (uint8_t)message_class;
	intake->number = number;
	list_add_tail(&peer->message->all, &intake->all);
	return intake;
}

static void intake_free(struct intake *intake)
{
	must(!intake->pieces && !intake->stored && !intake->request);
	list_del(&intake->node);
	list_del(&intake->all);
	free(intake);
}

static void intake_move(struct intake *intake, struct list *to)
{
	list_del(&intake->node);
	list_add_tail(to, &intake->node);
}

/* The peer is to be told. */
static void intake_taken(struct intake *intake)
{
	intake_move(intake, &intake->peer->message->taken);
	intake->peer->message->takens++;
}

bool message_taken_say(struct peer *peer)
{
	struct peer_message *m = peer->message;

	while (!list_empty(&m->taken)) {
		struct intake *intake = list_first(&m->taken, struct intake, node);
		struct wire_record *record = conn_reserve(peer->conn, 0, NULL);

		if (!record)
			return false;
		record->op = WIRE_OP_PEER_TAKEN;
		record->flags = (uint8_t)(intake->message_class | (intake->back ? WIRE_PEER_BACK : 0));
		record->id = (uint32_t)intake->number;
		conn_commit(peer->conn, record, 0);
		m->takens--;
		intake_free(intake);
	}
	return true;
}

/*
 * Reading
 */
static struct piece *piece_free(struct peer_message *m)
{
	for (unsigned i = 0; i < MESSAGE_PIECES; i++)
		if (!m->piece[i].intake)
			return &m->piece[i];
	return NULL;
}

/* Register the memory that it is read into. Some devices write there as if the peer did. */
static int intake_reach(struct intake *intake)
{
	struct fabric_limits limits;
	struct fabric_domain *domain = conn_group_domain(engine_group(intake->peer->engine));

	if (reach_region(&intake->reach))
		return 0;
	fabric_limits(fabric_domain_fabric(domain), &limits);
	return message_reach(intake->peer, intake->request->data, intake->length,
			     limits.open_sinks ? FABRIC_REMOTE_WRITE : FABRIC_LOCAL_WRITE, &intake->reach);
}

/* The message cannot be read: the receive fails, and the message is first in the inbox again. */
static void intake_fail(struct intake *intake, int error)
{
	struct rdma_request *request = intake->request;
	const char *why = rdmad_error();

	list_del(&intake->node);
	intake->request = NULL;
	intake->posted = intake->done = 0;
	if (!inbox_put_back(intake))
		message_violation(intake->peer, "there is no memory for the place of a long message");
	request_fail(request, error, "Cannot receive %llu bytes from %s: %s", (unsigned long long)intake->length,
		     intake->peer->name, *why ? why : strerror(-error));
}

/* The receive that had begun waits for another message. */
static void intake_give_back(struct intake *intake)
{
	struct rdma_request *request = intake->request;

	message_unreach(intake->peer, &intake->reach);
	intake->request = NULL;
	intake_taken(intake);
	inbox_wait_again(request);
}

static void intake_fail_gone(struct intake *intake)
{
	struct rdma_request *request = intake->request;

	message_unreach(intake->peer, &intake->reach);
	intake->request = NULL;
	intake_free(intake);
	message_fail_gone(request);
}

static void piece_done(struct conn_transfer *transfer, enum fabric_status status)
{
	struct piece *piece = container_of(transfer, struct piece, transfer);
	struct intake *intake = piece->intake;
	struct rdma_request *request = intake->request;
	struct peer *peer = intake->peer;
	uint64_t length = intake->length;

	piece->intake = NULL;
	intake->pieces--;
	if (likely(status == FABRIC_OK))
		intake->done += piece->length;
	else
		intake->stale = true; /* the connection ends; what came before is here, as pieces come in order */
	if (intake->done == length) {
		message_unreach(peer, &intake->reach);
		intake->request = NULL;
		intake->back = false; /* too late */
		intake_taken(intake);
		message_say(peer);
		request_complete(request, 0, length);
	} else if (!intake->pieces && peer->message->gone) {
		intake_fail_gone(intake);
	} else if (!intake->pieces && intake->back) {
		intake_give_back(intake);
	}
	message_read_on(peer);
	message_say(peer);
}

/* Ask for the next piece. False: not now. */
static bool piece_ask(struct peer *peer, struct intake *intake)
{
	struct piece *piece = piece_free(peer->message);
	uint64_t length = MIN(intake->ready - intake->posted, (uint64_t)MESSAGE_PIECE);
	struct fabric_sge to;

	if (!piece || !conn_transfer_room(peer->conn, 1))
		return false; /* the end of another one brings us here */
	to = (struct fabric_sge){intake->request->data + intake->posted, length, reach_region(&intake->reach)};
	*piece = (struct piece){.transfer.done = piece_done, .length = length};
	if (conn_read(peer->conn, &piece->transfer, &to, intake->addr + intake->posted, intake->rkey) != 0)
		return false; /* writable() comes, or the connection ends */
	piece->intake = intake;
	intake->pieces++;
	intake->posted += length;
	if (intake->posted == intake->length)
		intake_move(intake, &peer->message->in_flight);
	return true;
}

/* The most urgent one of which something may be asked for. */
static struct intake *intake_next_to_read(const struct peer_message *m)
{
	for (unsigned i = 0; i < PEER_CLASSES; i++)
		list_for_each (at, &m->to_read[message_ranks[i]]) {
			struct intake *intake = container_of(at, struct intake, node);

			if (!intake->stale && !intake->back && intake->posted < intake->ready)
				return intake;
		}
	return NULL;
}

static bool pieces_are_under_way(const struct peer_message *m)
{
	for (unsigned i = 0; i < MESSAGE_PIECES; i++)
		if (m->piece[i].intake)
			return true;
	return false;
}

static bool nothing_to_read(const struct peer_message *m)
{
	return list_empty(&m->to_read[0]) && list_empty(&m->to_read[1]) && list_empty(&m->to_read[2]);
}

void message_read_on(struct peer *peer)
{
	struct peer_message *m = peer->message;
	struct intake *intake;

	if (likely(nothing_to_read(m)) || m->reading || !m->open)
		return;
	m->reading = true;
	while (m->open && (intake = intake_next_to_read(m))) {
		int rc = intake_reach(intake);

		if (rc != 0 && pieces_are_under_way(m))
			break; /* their end makes room */
		if (rc != 0)
			intake_fail(intake, rc);
		else if (!piece_ask(peer, intake))
			break;
	}
	m->reading = false;
}

/* At the end of the turn: what came in it may say that a message was withdrawn. */
static void message_read_soon(struct peer *peer)
{
	struct peer_message *m = peer->message;

	if (!nothing_to_read(m) && !list_linked(&m->to_read_node))
		list_add_tail(&peer->ctx->to_read, &m->to_read_node);
}

void message_intake_begin(struct intake *intake, struct rdma_request *request)
{
	struct peer *peer = intake->peer;

	must(!intake->stored && intake->length <= request->length);
	intake->request = request;
	request->cancel = NULL;
	list_add_tail(&peer->message->to_read[intake->message_class], &intake->node);
	message_received(peer, intake->stream, WIRE_PEER_COST(0));
	message_read_soon(peer);
}

void message_intake_drop(struct intake *intake)
{
	must(!intake->request && !intake->stored);
	if (intake->stale || !intake->peer->message->open) {
		intake_free(intake); /* when it is offered again, it is not found, and so taken */
		return;
	}
	intake_taken(intake);
}

/*
 * Records
 */
static struct intake *intake_find(const struct peer_message *m, unsigned message_class, uint32_t id)
{
	list_for_each (at, &m->all) {
		struct intake *intake = container_of(at, struct intake, all);

		if (intake->message_class == message_class && (uint32_t)intake->number == id)
			return intake;
	}
	return NULL;
}

static int offer_new(struct peer *peer, unsigned message_class, const struct wire_peer_offer *offer)
{
	struct intake *intake;

	if (offer->length <= PEER_EAGER_MAX || offer->length > INT64_MAX || offer->addr + offer->length < offer->addr ||
	    offer->ready > offer->length || offer->stream == PEER_STREAM_CONTROL)
		return message_violation(peer, "an offer of %llu bytes, %llu to be read, for stream %llu",
					 (unsigned long long)offer->length, (unsigned long long)offer->ready,
					 (unsigned long long)offer->stream);
	intake = intake_new(peer, message_class, peer->message->next_in[message_class] - 1);
	if (!intake)
		return -ENOMEM;
	intake->stream = offer->stream;
	intake->length = offer->length;
	intake->addr = offer->addr;
	intake->ready = offer->ready;
	intake->rkey = offer->rkey;
	return inbox_deliver_long(intake);
}

/* Offered before, on a connection that is gone. One that is not known was read: its sender did not learn it. */
static int offer_again(struct peer *peer, unsigned message_class, uint32_t id, const struct wire_peer_offer *offer,
		       struct intake *intake)
{
	if (!intake) {
		intake = intake_new(peer, message_class, id);
		if (!intake || peer->message->takens >= TAKEN_MAX)
			return message_violation(peer, "it offers again more than it is told of");
		intake_taken(intake);
		return 0;
	}
	if (!intake->stale || offer->length != intake->length || offer->stream != intake->stream ||
	    offer->addr + offer->length < offer->addr || offer->ready > offer->length || offer->ready < intake->done)
		return message_violation(peer, "an offer of %llu bytes that was another one before",
					 (unsigned long long)offer->length);
	intake->stale = false;
	intake->addr = offer->addr;
	intake->ready = offer->ready;
	intake->rkey = offer->rkey;
	return 0;
}

static void intake_unstore(struct intake *intake)
{
	struct peer *peer = intake->peer;

	list_del(&intake->stored->node);
	stored_free(peer->message, intake->stored);
	intake->stored = NULL;
}

/* For one that was offered before. What is not known any more has been taken, and the peer learns it. One that is
 * withdrawn while it is read is given up when the pieces that are under way have come. */
static int offer_known(struct peer *peer, const struct wire_record *record, const struct wire_peer_offer *offer)
{
	unsigned message_class = record->flags & WIRE_PEER_CLASS;
	struct peer_message *m = peer->message;
	struct intake *intake = intake_find(m, message_class, record->id);
	bool again = record->flags & WIRE_PEER_AGAIN;

	if ((int32_t)(record->id - (uint32_t)m->next_in[message_class]) >= 0)
		return message_violation(peer, "offer %u, which was not made", record->id);
	if (again && !(intake && (record->flags & WIRE_PEER_BACK)))
		return offer_again(peer, message_class, record->id, offer, intake);
	if (!intake)
		return 0; /* it was dropped, and the peer is told by now */
	if (record->flags & WIRE_PEER_BACK) {
		intake->back = true;
		intake->stale = false;
		if (intake->stored) {
			intake_unstore(intake);
			message_received(peer, intake->stream, WIRE_PEER_COST(0));
			intake_taken(intake);
		} else if (intake->request && !intake->pieces) {
			intake_give_back(intake);
		} else if (!intake->request && !list_linked(&intake->node)) {
			intake_taken(intake); /* given back, as was said on an earlier connection */
		}
		return 0;
	}
	if (!intake->stored && !intake->request)
		return 0;
	if (intake->stale || offer->ready <= intake->ready || offer->ready > intake->length)
		return message_violation(peer, "%llu bytes of %llu that may be read, after %llu",
					 (unsigned long long)offer->ready, (unsigned long long)intake->length,
					 (unsigned long long)intake->ready);
	intake->ready = offer->ready;
	return 0;
}

int message_offer_record(struct peer *peer, const struct wire_record *record, const struct wire_peer_offer *offer)
{
	bool known = record->flags & (WIRE_PEER_AGAIN | WIRE_PEER_MORE | WIRE_PEER_BACK);
	int rc = known ? offer_known(peer, record, offer) : offer_new(peer, record->flags & WIRE_PEER_CLASS, offer);

	if (rc != 0)
		return rc;
	message_read_soon(peer);
	message_say(peer);
	return 0;
}

/*
 * Connections
 */

void message_intakes_closed(struct peer *peer)
{
	struct peer_message *m = peer->message;
	struct list *at, *next;

	list_for_each_safe (at, next, &m->all) {
		struct intake *intake = container_of(at, struct intake, all);

		if (intake->pieces)
			continue;
		message_unreach(peer, &intake->reach);
		intake->posted = intake->done;
		intake->stale = true;
		if (intake->request)
			intake_move(intake, &m->to_read[intake->message_class]);
		else if (!intake->stored && intake->back)
			list_del(&intake->node); /* the peer asks again whether it was given back */
		else if (!intake->stored)
			intake_free(intake); /* taken, and not told: it is offered again */
	}
	m->takens = 0;
}

/* Callbacks may end others of them. */
static struct intake *intake_at_rest(const struct peer_message *m)
{
	list_for_each (at, &m->all)
		if (!container_of(at, struct intake, all)->pieces)
			return container_of(at, struct intake, all);
	return NULL;
}

void message_intakes_clear(struct peer *peer)
{
	struct peer_message *m = peer->message;
	struct intake *intake;

	while ((intake = intake_at_rest(m))) { /* others are ended by piece_done() */
		if (intake->stored)
			intake_unstore(intake);
		if (intake->request)
			intake_fail_gone(intake);
		else
			intake_free(intake);
	}
	m->takens = 0;
}

void message_intakes_free(struct peer_message *m)
{
	while (!list_empty(&m->all)) {
		struct intake *intake = list_first(&m->all, struct intake, all);

		list_del(&intake->all);
		free(intake);
	}
}
