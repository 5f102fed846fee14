/* link.c: one connection: hello and bye, and to whom its other records go. */
#include "peer/links/connect.h"

#include <stdlib.h>

struct peer_link *link_new(rdma_context *ctx, struct engine *engine, const struct fabric_transport *transport)
{
	struct peer_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->ctx = ctx;
	link->engine = engine;
	link->transport = transport;
	list_add_tail(&ctx->connections->links, &link->node);
	return link;
}

void link_enter_guests(struct peer_link *link)
{
	pending_add(&link->ctx->connections->guests, &link->pending, time_now());
}

void link_leave_guests(struct peer_link *link)
{
	pending_remove(&link->ctx->connections->guests, &link->pending);
}

void link_free(struct peer_link *link)
{
	link_leave_guests(link);
	list_del(&link->node);
	free(link);
}

struct peer_link *peer_link_of(const struct peer *peer)
{
	return peer->conn ? conn_context(peer->conn) : NULL;
}

void link_over(struct peer_link *link)
{
	link->state = LINK_OVER;
	link_enter_guests(link);
}

void link_close(struct peer_link *link, int error, const char *why)
{
	link->state = LINK_OVER;
	link_leave_guests(link);
	conn_close(link->conn, error, "%s", why);
}

/*
 * What this side says
 */
int link_say_hello(struct peer_link *link, unsigned flags, unsigned reply)
{
	const struct peer *peer = link->peer;
	const rdma_options *o = &link->ctx->options;
	struct wire_peer_hello hello = {
		.version = WIRE_PEER_VERSION,
		.flags = (uint16_t)flags,
		.reconnect_ms = (uint32_t)MIN(o->reconnect_ms, UINT32_MAX),
		.session = peer->session->id,
		.group = peer->session->group,
		.room = o->buf_size,
		.program = link->ctx->connections->number,
	};
	const struct wire_record head = {.op = WIRE_OP_PEER_HELLO, .flags = (uint8_t)reply};

	if (!reply || flags & (WIRE_PEER_WAITS | WIRE_PEER_CROSSES))
		memcpy(hello.secret, reply ? peer->session->token : peer->session->secret, sizeof(hello.secret));
	for_each_layer (layer, next)
		layer->next(peer, hello.next);
	/* Else it is ending: the first record of a connection always has room. */
	return conn_say(link->conn, &head, &hello, sizeof(hello), NULL, 0) ? 0 : -ENOTCONN;
}

void link_refuse(struct peer_link *link, enum wire_status status, const char *format, ...)
{
	const struct wire_record head = {
		.op = WIRE_OP_PEER_HELLO, .flags = WIRE_REPLY, .status = (uint16_t)status, .arg = WIRE_PEER_VERSION};
	char words[256];
	va_list args;

	va_start(args, format);
	vsnprintf(words, sizeof(words), format, args);
	va_end(args);
	log_info("peer", "a peer refused: %s", words);
	link_over(link);
	if (conn_say(link->conn, &head, words, strlen(words), NULL, 0))
		conn_flush(link->conn);
}

void link_say_bye(struct peer_link *link, bool answer)
{
	const struct wire_record head = {.op = WIRE_OP_PEER_BYE, .flags = answer ? WIRE_REPLY : 0};
	bool said = conn_say(link->conn, &head, NULL, 0, NULL, 0);

	link->say_bye = !said && conn_established(link->conn);
	link->bye_answer = answer;
	if (said)
		conn_flush(link->conn);
}

/*
 * What the other side says. Before a hello came, or after a bye, nothing but what the table has.
 */
static int took_hello(struct peer_link *link, const struct wire_record *record, const void *body)
{
	if (record->length < sizeof(link->hello.version))
		return -EPROTO;
	memcpy(&link->hello, body, MIN(record->length, sizeof(link->hello)));
	/* The rest of a hello of another version is unknown, and not read. */
	if (link->hello.version == WIRE_PEER_VERSION && record->length < sizeof(link->hello))
		return -EPROTO;
	link->state = LINK_ASKED;
	pending_hold(&link->pending);
	return 0;
}

static int took_answer(struct peer_link *link, const struct wire_record *record, const void *body)
{
	struct peer *peer = link->peer;
	struct wire_peer_hello hello;
	char words[256], printable[256];

	if (record->status != WIRE_OK) {
		snprintf(words, sizeof(words), "%.*s", (int)MIN(record->length, sizeof(words) - 1), (const char *)body);
		session_refused(peer, record->status == WIRE_BUSY ? -EUSERS : wire_status_errno(record->status),
				log_printable(words, printable, sizeof(printable)));
		return 0;
	}
	if (record->length < sizeof(hello))
		return -EPROTO;
	memcpy(&hello, body, sizeof(hello));
	if (hello.version != WIRE_PEER_VERSION || hello.session != peer->session->id)
		return -EPROTO;
	if (hello.flags & WIRE_PEER_CROSSES) {
		crossing_use(peer, hello.secret);
		return 0;
	}
	peer->session->other = hello.program;
	memcpy(peer->session->token, hello.secret, sizeof(peer->session->token));
	if (hello.flags & WIRE_PEER_WAITS)
		return 0;
	link->state = LINK_OPEN;
	return peer_answered(peer, &hello);
}

/* All that it sent before has come. */
static int took_bye(struct peer_link *link, const struct wire_record *record, const void *body)
{
	struct peer *peer = link->peer;

	(void)record;
	(void)body;
	link_say_bye(link, true);
	link_over(link);
	peer->session->bye_heard = true;
	peer_go(peer, "it has disconnected");
	return 0;
}

static int took_bye_answer(struct peer_link *link, const struct wire_record *record, const void *body)
{
	(void)record;
	(void)body;
	if (link->peer)
		link->peer->session->bye_heard = true;
	link->ctx->progressed++;
	return 0;
}

static const struct {
	enum wire_op op;
	bool reply;
	enum link_state state;
	int (*took)(struct peer_link *link, const struct wire_record *record, const void *body);
} records[] = {
	{WIRE_OP_PEER_HELLO, false, LINK_SILENT, took_hello},
	{WIRE_OP_PEER_HELLO, true, LINK_ASKING, took_answer},
	{WIRE_OP_PEER_BYE, false, LINK_OPEN, took_bye},
	{WIRE_OP_PEER_BYE, true, LINK_OVER, took_bye_answer},
};

static int link_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct peer_link *link = conn_context(conn);
	bool reply = record->flags & WIRE_REPLY;

	if (likely(link->state == LINK_OPEN && record->op != WIRE_OP_PEER_BYE))
		return peer_layers[PEER_LAYER_RECORDS]->record(link->peer, record, body);
	for (size_t i = 0; i < ARRAY_SIZE(records); i++)
		if (record->op == records[i].op && reply == records[i].reply && link->state == records[i].state)
			return records[i].took(link, record, body);
	return link->state == LINK_OVER ? 0 : -EPROTO; /* said before it heard that it is over */
}

static void link_established(struct conn *conn)
{
	struct peer_link *link = conn_context(conn);

	link->transport = conn_transport(conn);
	if (link->state != LINK_CONNECTING)
		return;
	link->state = LINK_ASKING;
	dial_established(&link->peer->session->dial);
	link->peer->transport = link->transport;
	link_say_hello(link, link->peer->session->greeted ? WIRE_PEER_RESUME : 0, 0);
}

static void link_writable(struct conn *conn)
{
	struct peer_link *link = conn_context(conn);

	if (link->say_bye)
		link_say_bye(link, link->bye_answer);
	if (link->state != LINK_OPEN)
		return;
	for_each_layer (layer, writable)
		layer->writable(link->peer);
}

static void link_closed(struct conn *conn, int error, const char *reason)
{
	struct peer_link *link = conn_context(conn);
	struct peer *peer = link->peer;
	bool final = conn_refusal(conn) != WIRE_REASON_NONE && wire_reason_final(conn_refusal(conn));
	bool asking = link->state == LINK_ASKING;

	final = final || (link->state <= LINK_ASKING && (error == -EPROTO || error == -EPROTONOSUPPORT));
	link_free(link);
	if (!peer || peer->conn != conn)
		return;
	peer->conn = NULL;
	/* A hello that comes when the connection is closed, or was not read by then, makes it a reset. */
	peer->session->given_up = asking && (!error || error == -ECONNRESET || error == -EPIPE);
	peer_disconnected(peer, error ? error : -ECONNRESET, reason, final);
}

const struct conn_ops link_ops = {
	.established = link_established,
	.record = link_record,
	.writable = link_writable,
	.closed = link_closed,
};

static void guest_drop(struct pending_entry *entry, enum pending_reason reason)
{
	struct peer_link *link = container_of(entry, struct peer_link, pending);
	const char *late = link->state == LINK_SILENT ? "it connected, and has not said who it is" : "it is over";

	link_close(link, -ETIMEDOUT, reason == PENDING_LATE ? late : "others came, and it had said nothing");
}

const struct pending_attr link_guests = {
	.limit = PEER_GUESTS,
	.stay = PEER_GUEST_PATIENCE,
	.grace = PEER_GUEST_GIVES_WAY,
	.drop = guest_drop,
};
