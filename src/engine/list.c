/* list.c: what an rdmad has of a kind, page by page: names of channels, groups of programs. */
#include "engine/engine.h"

#include <stdlib.h>

#define PAGE (64u * 1024) /* no body is longer: the request says so */

struct listing {
	const struct list_kind *kind;
	struct engine *engine;
	struct conn *conn; /* NULL: it has ended */
	uint64_t timeout;
	bool over; /* a page came, or the end */
	int error;
	uint64_t cursor;
	uint32_t length;
	uint8_t page[PAGE];
};

static void list_established(struct conn *conn)
{
	(void)conn;
}

static int list_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct listing *l = conn_context(conn);

	if (l->over || record->op != l->kind->op || record->flags != WIRE_REPLY || record->length < sizeof(l->cursor) ||
	    record->length > sizeof(l->page))
		return -EPROTO;
	memcpy(&l->cursor, body, sizeof(l->cursor));
	l->length = record->length - (uint32_t)sizeof(l->cursor);
	memcpy(l->page, (const uint8_t *)body + sizeof(l->cursor), l->length);
	l->over = true;
	return 0;
}

static void list_closed(struct conn *conn, int error, const char *reason)
{
	struct listing *l = conn_context(conn);

	if (client_was_ended(error, reason))
		log_error(l->kind->room, "the connection ended: %s", reason);
	l->conn = NULL;
	l->error = error ? error : -ECONNRESET;
	l->over = true;
}

static const struct conn_ops list_ops = {
	.established = list_established,
	.record = list_record,
	.closed = list_closed,
};

/* Inside. */
static int list_ask(struct listing *l)
{
	struct wire_record *record = l->conn ? conn_reserve(l->conn, sizeof(l->cursor), NULL) : NULL;
	int rc;

	if (!record)
		return l->error ? l->error : -ECONNRESET;
	l->over = false;
	record->op = l->kind->op;
	memcpy(record + 1, &l->cursor, sizeof(l->cursor));
	conn_commit(l->conn, record, sizeof(l->cursor));
	rc = engine_wait(l->engine, &l->over, l->timeout);
	if (rc == -ETIMEDOUT)
		log_error(l->kind->room, "no answer in time");
	return rc == 0 ? l->error : rc;
}

int list_broken(const struct list_kind *kind)
{
	return log_fail(-EPROTO, kind->room, "the list of %s is broken: the server does not keep to the protocol",
			kind->things);
}

/* A page without an entry, or from which nothing goes forward, must be the last, or a server could keep us for ever. */
static int list_pages(struct listing *l, void *arg)
{
	uint64_t before;
	int rc;

	do {
		before = l->cursor;
		rc = list_ask(l);
		if (rc == 0 && l->cursor && (l->cursor <= before || !l->length))
			rc = list_broken(l->kind);
		if (rc == 0)
			rc = l->kind->page(arg, l->page, l->length);
	} while (rc == 0 && l->cursor);
	return rc;
}

int list_all(const struct list_kind *kind, const char *server, const struct rdmad_options *options, void *arg,
	     char transport[8])
{
	struct wire_request request = {.service = kind->service};
	struct listing *l = calloc(1, sizeof(*l));
	struct engine_options engine;
	int rc;

	if (!l)
		return -ENOMEM;
	l->kind = kind;
	engine_options_from(options, &engine);
	engine.progress_thread = false;
	l->timeout = engine.timeout;
	request.credits = (uint16_t)engine.credits;
	request.message_size = engine.message_size;
	rc = client_connect(server, &engine, NULL, &request, &list_ops, l, &l->engine, &l->conn);
	if (rc == 0) {
		snprintf(transport, 8, "%s", conn_transport(l->conn)->name);
		rc = list_pages(l, arg);
		l->over = !l->conn;
		client_disconnect(l->engine, l->conn, &l->over);
		engine_leave(l->engine);
		engine_release(l->engine);
	}
	free(l);
	return rc;
}
