/*
 * meet.c: members find each other at an rdmad: each says there by which addresses it is reached, and is told those of
 * all. The connection to it stays as long as the group does, in an engine of the context; when it ends, nothing changes
 * for the members.
 */
#include "peer/groups/group.h"

#include <stdlib.h>

#define RUN_PATIENCE (2 * 60 * TIME_S) /* for programs of a launcher, which ends all when one fails */
#define LEAVE TIME_S                   /* most for the rdmad to say that the name is free */
#define GRACE (2 * TIME_S)             /* rdmad knows who is missing, and says so when our time is over */

struct group_meeting {
	struct engine *engine;
	struct conn *conn;   /* NULL: it has ended */
	struct group *group; /* NULL: its size and rank are not known yet; it is the caller's then */
	rdma_context *ctx;
	const char *name;
	int size;
	uint64_t until;
	bool over;          /* all was told, or a refusal, or the end */
	bool leaving, left; /* the rdmad was told that it is no member any more; and has said that it knows */
	bool closed;
	uint32_t told;
	int error;
	char why[320];
};

static void meeting_end(struct group_meeting *m, int error, const char *why)
{
	if (m->over)
		return;
	m->over = true;
	m->error = error;
	log_printable(why, m->why, sizeof(m->why));
	m->ctx->progressed++;
}

static void meeting_established(struct conn *conn)
{
	(void)conn;
}

static int take_refusal(struct group_meeting *m, const struct wire_record *record, const void *body)
{
	char words[256];
	int error = wire_status_errno(record->status);

	snprintf(words, sizeof(words), "%.*s", (int)MIN(record->length, 255u), (const char *)body);
	meeting_end(m, record->status == WIRE_BUSY && record->arg ? -ETIMEDOUT : error, words);
	return 0;
}

/* From the first record; the later ones say the same. */
static bool take_group(struct group_meeting *m, const struct wire_peer_group *page)
{
	struct group *group = m->group;

	if (!page->number || page->size != (uint32_t)m->size || page->rank >= page->size || page->first != m->told ||
	    page->count > page->size - page->first)
		return false;
	if (m->told)
		return page->number == group->base.number && page->rank == (uint32_t)group->base.rank;
	if (group_find(m->ctx, page->number))
		return false;
	group->base.number = page->number;
	group->base.rank = (int)page->rank;
	return true;
}

/* The group's secret: members need not have the same key. */
static bool take_ticket(struct group_meeting *m, const uint8_t *sealed)
{
	uint8_t secret[WIRE_SECRET];

	m->group->ticket = m->ctx->key && conn_seals(m->conn) &&
			   conn_unseal(m->conn, sealed, WIRE_SEALED, secret) == 0 &&
			   engine_key_issue(m->ctx->key, m->group->base.number, secret) == 0;
	auth_wipe(secret, sizeof(secret));
	return m->group->ticket;
}

static int take_page(struct group_meeting *m, const uint8_t *body, uint32_t length, bool ticket)
{
	struct wire_peer_group page;
	uint32_t at = sizeof(page);

	if (length < sizeof(page))
		return -EPROTO;
	memcpy(&page, body, sizeof(page));
	if (!take_group(m, &page))
		return -EPROTO;
	if (ticket && (m->told || length - at < WIRE_SEALED || !take_ticket(m, body + at)))
		return -EPROTO;
	at += ticket ? WIRE_SEALED : 0;
	if (form_table(m->group, body + at, length - at, page.first, page.count) != 0)
		return -EPROTO;
	m->told += page.count;
	if (m->told == page.size)
		meeting_end(m, 0, "");
	return 0;
}

/* What stood before it is of no use any more. */
static int take_leave(struct group_meeting *m, const struct wire_record *record)
{
	if (record->flags != WIRE_REPLY)
		return -EPROTO;
	m->left = m->left || record->op == WIRE_OP_PEER_LEAVE;
	return 0;
}

static int meeting_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct group_meeting *m = conn_context(conn);

	if (m->leaving)
		return take_leave(m, record);
	if (m->over || record->op != WIRE_OP_PEER_JOIN || (record->flags & ~WIRE_PEER_TICKET) != WIRE_REPLY)
		return -EPROTO;
	if (record->status != WIRE_OK)
		return take_refusal(m, record, body);
	return take_page(m, body, record->length, record->flags & WIRE_PEER_TICKET);
}

static void meeting_closed(struct conn *conn, int error, const char *reason)
{
	struct group_meeting *m = conn_context(conn);
	char why[300];

	snprintf(why, sizeof(why), "the connection to the rdmad ended: %s", reason);
	m->conn = NULL;
	m->closed = m->left = true;
	meeting_end(m, error ? error : -ECONNRESET, why);
}

static const struct conn_ops meeting_ops = {
	.established = meeting_established,
	.record = meeting_record,
	.closed = meeting_closed,
};

/* The group's name is free then, and may be met by at once. Where an rdmad does not say so in time, it frees the name
 * when it has seen the connection's end. */
static void say_leave(struct group_meeting *m)
{
	const struct wire_record head = {.op = WIRE_OP_PEER_LEAVE};

	if (!m->conn || !conn_say(m->conn, &head, NULL, 0, NULL, 0))
		return;
	m->leaving = true;
	engine_wait(m->engine, &m->left, LEAVE);
}

void meeting_free(struct group_meeting *m)
{
	if (!m)
		return;
	if (m->engine) {
		say_leave(m);
		client_disconnect(m->engine, m->conn, &m->closed);
		engine_leave(m->engine); /* of the context, which holds it, too */
		engine_release(m->engine);
		engine_enter(m->engine);
	}
	free(m);
}

/*
 * To join
 */
static int meeting_try(struct group_meeting *m, const char *address, const struct fabric_transport *transport)
{
	struct wire_request request = {.service = WIRE_PEER, .count = WIRE_PEER_COUNT(m->name, strlen(m->name))};
	struct engine_options options;
	struct engine *engine;
	int rc = context_engine(m->ctx, transport, &engine);

	if (rc != 0)
		return rc;
	context_engine_options(m->ctx, &options);
	options.require_rdma = false; /* it carries no payload */
	request.credits = (uint16_t)options.credits;
	request.message_size = options.message_size;
	engine_leave(engine); /* what fails is released outside; what does not is inside, as the context is */
	rc = client_connect(address, &options, engine, &request, &meeting_ops, m, &m->engine, &m->conn);
	if (rc != 0)
		engine_enter(engine);
	return rc;
}

/* By the best transport that the address means. */
static int meeting_connect(struct group_meeting *m, const char *text)
{
	const struct fabric_provider *tried = NULL;
	struct address address;
	int rc = fabric_address_parse(text, &address);

	if (rc != 0)
		return rc;
	rc = -EADDRNOTAVAIL;
	for (unsigned i = 0; i < FABRIC_TRANSPORTS && rc != 0; i++) {
		const struct fabric_transport *t = &fabric_transports[i];

		if (!fabric_transport_serves(t, &address) || t->provider == tried)
			continue;
		tried = t->provider;
		rc = meeting_try(m, text, t);
	}
	return rc;
}

static int say_join(struct group_meeting *m, int rank)
{
	struct wire_peer_join join = {
		.token = form_token(m->group),
		.patience = m->group->patience / TIME_US,
		.size = (uint32_t)m->size,
		.rank = rank < 0 ? WIRE_PEER_ANY_RANK : (uint32_t)rank,
		.name_len = (uint32_t)strlen(m->name),
	};
	char text[WIRE_PEER_NAME_MAX + WIRE_PEER_ADDRESSES_MAX + 1];
	size_t used = (size_t)snprintf(text, sizeof(text), "%s", m->name);
	int len = peer_addresses(m->ctx, m->conn, text + used, WIRE_PEER_ADDRESSES_MAX);
	const struct wire_record head = {.op = WIRE_OP_PEER_JOIN};

	if (len < 0)
		return len;
	used += (size_t)len;
	if (!m->conn || !conn_say(m->conn, &head, &join, sizeof(join), text, used))
		return -ECONNRESET; /* the first record of a connection always has room */
	conn_flush(m->conn);
	return 0;
}

static bool meeting_over(const void *arg)
{
	return ((const struct group_meeting *)arg)->over;
}

/* Until all are there. */
static int meeting_wait(struct group_meeting *m, int rank)
{
	rdma_context *ctx = m->ctx;
	uint64_t patience = m->group->patience;
	int rc = say_join(m, rank);

	if (rc == 0)
		rc = context_wait(ctx, meeting_over, m, time_after(time_now(), patience + GRACE));
	if (rc == 0 && !m->error)
		return 0;
	if (rc == -ETIMEDOUT)
		snprintf(m->why, sizeof(m->why), "the rdmad did not answer within %g s",
			 (double)(patience + GRACE) / TIME_S);
	else if (rc != 0)
		snprintf(m->why, sizeof(m->why), "%s", strerror(-rc));
	return rdma_fail(rc ? rc : m->error, "%s: %s", m->group->name, m->why);
}

static int meet(struct group *group, struct group_meeting *m, const char *address, int rank)
{
	char words[300];
	int rc;

	if (form_begin(group, time_after(time_now(), group->patience)) != 0)
		return -1;
	log_clear_last();
	rc = meeting_connect(m, address);
	if (rc != 0) {
		snprintf(words, sizeof(words), "%s: the rdmad is not reached", group->name);
		return rdma_fail_logged(rc, words);
	}
	return meeting_wait(m, rank);
}

static rdma_group *meet_begin(rdma_context *ctx, const char *address, const char *name, int size, int rank,
			      uint64_t patience)
{
	struct group *group = group_new(ctx, 0, MAX(rank, 0), size, GROUP_FORMING);
	struct group_meeting *m = calloc(1, sizeof(*m));

	if (!group || !m) {
		free(m);
		if (group)
			group_discard(group);
		rdma_fail(-ENOMEM, "No memory for a group of %d members", size);
		return NULL;
	}
	group->patience = MAX(group->patience, patience);
	snprintf(group->name, sizeof(group->name), "group \"%s\"", name);
	*m = (struct group_meeting){.group = group, .ctx = ctx, .name = name, .size = size};
	group->meeting = m;
	if (meet(group, m, address, rank) != 0) {
		group_discard(group);
		return NULL;
	}
	m->name = NULL; /* the caller's */
	form_patient(group);
	return form_finish(group) == 0 ? &group->base : NULL;
}

/* `patience`: at least, in ns. */
static rdma_group *meet_within(rdma_context *ctx, const char *meeting, const char *name, int size, int rank,
			       uint64_t patience)
{
	rdma_group *group = NULL;

	if (!meeting)
		meeting = secure_getenv("RDMAD_HOST");
	if (!ctx || !name)
		rdma_fail(-EINVAL, "Invalid parameters: the %s is NULL", ctx ? "name" : "context");
	else if (!*name || strlen(name) > WIRE_PEER_NAME_MAX)
		rdma_fail(-EINVAL, "Invalid parameters: a name of %zu bytes; from 1 to %u are allowed", strlen(name),
			  WIRE_PEER_NAME_MAX);
	else if (!wire_printable(name, strlen(name)))
		rdma_fail(-EINVAL, "Invalid parameters: a name with a control character");
	else if (size < 1 || (unsigned)size > WIRE_PEER_MEMBERS_MAX || rank < -1 || rank >= size)
		rdma_fail(-EINVAL, "Invalid parameters: rank %d of a group of %d, from 1 to %u members", rank, size,
			  WIRE_PEER_MEMBERS_MAX);
	else {
		rdma_enter(ctx);
		if (ctx->running)
			rdma_fail(-EDEADLK, "rdma_group_meet() from within a callback");
		else
			group = meet_begin(ctx, meeting && *meeting ? meeting : "127.0.0.1", name, size, rank,
					   patience);
		rdma_leave(ctx);
	}
	return group;
}

rdma_group *rdma_group_meet(rdma_context *ctx, const char *meeting, const char *name, int size, int rank)
{
	return meet_within(ctx, meeting, name, size, rank, 0);
}

/*
 * As a launcher says
 */

/* A number of the environment. False: rdma_fail() was called. */
static bool number_from(const char *variable, int *out)
{
	const char *text = secure_getenv(variable);
	char *end = NULL;
	long number = text && *text ? strtol(text, &end, 10) : -1;

	*out = (int)number;
	if (!text)
		rdma_fail(-EINVAL, "%s is not set: was the program started by rdmarun?", variable);
	else if (!end || *end || number < 0 || number > (long)WIRE_PEER_MEMBERS_MAX)
		rdma_fail(-EINVAL, "%s is \"%.40s\", which is no number that it can be", variable, text);
	else
		return true;
	return false;
}

/* Where all ranks are on this machine they need no port for others, but a socket in a directory of the run. A context
 * that listens, or has an address of its own, stays as it is, as does one that must not be without RDMA: that needs the
 * address of a device. */
static void listen_in_directory(rdma_context *ctx, int rank)
{
	struct peer_connections *c = ctx->connections;
	const char *directory = secure_getenv("RDMA_DIRECTORY");

	if (directory && !ctx->listening && !*c->ip && !ctx->options.require_rdma)
		snprintf(c->ip, sizeof(c->ip), "unix://%s/peer.%d.%08x", directory, rank, (unsigned)(c->number >> 32));
}

rdma_group *rdma_group_run(rdma_context *ctx)
{
	const char *name = secure_getenv("RDMA_GROUP");
	int rank, size;

	if (!number_from("RDMA_RANK", &rank) || !number_from("RDMA_SIZE", &size))
		return NULL;
	if (!name) {
		rdma_fail(-EINVAL, "RDMA_GROUP is not set: was the program started by rdmarun?");
		return NULL;
	}
	if (ctx) {
		rdma_enter(ctx);
		listen_in_directory(ctx, rank);
		rdma_leave(ctx);
	}
	return meet_within(ctx, secure_getenv("RDMA_MEETING"), name, size, rank, RUN_PATIENCE);
}
