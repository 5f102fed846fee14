/* channel_list.c: the names that programs listen on at an rdmad, page by page. */
#include "client/channel.h"
#include "client/client.h"

#include <stdlib.h>

#define PAGE (64u * 1024) /* no body is longer: the request says so */

struct listing {
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

	if (l->over || record->op != WIRE_OP_CHANNEL_LIST || record->flags != WIRE_REPLY ||
	    record->length < sizeof(l->cursor) || record->length > sizeof(l->page))
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
		log_error("channel", "the connection ended: %s", reason);
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
	record->op = WIRE_OP_CHANNEL_LIST;
	memcpy(record + 1, &l->cursor, sizeof(l->cursor));
	conn_commit(l->conn, record, sizeof(l->cursor));
	rc = engine_wait(l->engine, &l->over, l->timeout);
	if (rc == -ETIMEDOUT)
		log_error("channel", "no answer in time");
	return rc == 0 ? l->error : rc;
}

static int bad_page(void)
{
	log_error("channel", "the list of channels is broken: the server does not keep to the protocol");
	return -EPROTO;
}

/* What the page has. 0, -EPROTO, or what each() answered. */
static int list_page(const struct listing *l, rdmad_channel_each each, void *arg)
{
	struct rdmad_channel_entry out;
	struct wire_channel_entry entry;
	int rc = 0;

	for (uint32_t at = 0; at < l->length && rc == 0; at += (uint32_t)sizeof(entry) + WIRE_PAD(entry.name_len)) {
		if (l->length - at < sizeof(entry))
			return bad_page();
		memcpy(&entry, l->page + at, sizeof(entry));
		if (entry.name_len > RDMAD_CHANNEL_NAME_MAX ||
		    WIRE_PAD(entry.name_len) > l->length - at - sizeof(entry))
			return bad_page();
		out = (struct rdmad_channel_entry){.capacity = entry.capacity, .clients = entry.clients};
		memcpy(out.name, l->page + at + sizeof(entry), entry.name_len);
		rc = each(arg, &out);
	}
	return rc;
}

/* A page without an entry, or from which nothing goes forward, must be the last, or a server could keep us for ever. */
static int list_pages(struct listing *l, rdmad_channel_each each, void *arg)
{
	uint64_t before;
	int rc;

	do {
		before = l->cursor;
		rc = list_ask(l);
		if (rc == 0 && l->cursor && (l->cursor <= before || !l->length))
			rc = bad_page();
		if (rc == 0)
			rc = list_page(l, each, arg);
	} while (rc == 0 && l->cursor);
	return rc;
}

int rdmad_channel_list(const char *server, const struct rdmad_options *options, rdmad_channel_each each, void *arg,
		       char transport[8])
{
	struct wire_request request = {.service = WIRE_CHANNEL};
	struct listing *l = calloc(1, sizeof(*l));
	struct engine_options engine;
	int rc;

	if (!l)
		return -ENOMEM;
	engine_options_from(options, &engine);
	engine.progress_thread = false;
	l->timeout = engine.timeout;
	request.credits = (uint16_t)engine.credits;
	request.message_size = engine.message_size;
	rc = client_connect(server, &engine, NULL, &request, &list_ops, l, &l->engine, &l->conn);
	if (rc == 0) {
		snprintf(transport, 8, "%s", fabric_endpoint_transport(conn_endpoint(l->conn))->name);
		rc = list_pages(l, each, arg);
		l->over = !l->conn;
		client_disconnect(l->engine, l->conn, &l->over);
		engine_leave(l->engine);
		engine_release(l->engine);
	}
	free(l);
	return rc;
}
