/*
 * meet.c: members find each other at an rdmad: each says there by which addresses it is reached, and is told those of
 * all. The connection to it stays as long as the group does, in an engine of the context; when it ends, nothing changes
 * for the members.
 */
#include "peer/groups/group.h"

#include <stdlib.h>

#define LEAVE_TIMEOUT TIME_S /* most for the rdmad to say that the name is free */
#define GRACE (2 * TIME_S)   /* rdmad knows which are missing, and says so when our time is over */

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

/* The first has the group's number, this program's rank and perhaps a secret, as members need not have the same key;
 * the later ones say the same. */
static int meeting_page(struct group_meeting *m, const uint8_t *body, uint32_t length, bool ticket)
{
	struct group *group = m->group;
	struct wire_peer_group page;
	uint32_t at = sizeof(page);

	if (length < sizeof(page))
		return -EPROTO;
	memcpy(&page, body, sizeof(page));
	if (!page.number || page.size != (uint32_t)m->size || page.rank >= page.size || page.first != m->told ||
	    page.count > page.size - page.first)
		return -EPROTO;
	if (m->told ? page.number != group->base.number || page.rank != (uint32_t)group->base.rank
		    : group_find(m->ctx, page.number) != NULL)
		return -EPROTO;
	group->base.number = page.number;
	group->base.rank = (int)page.rank;
	if (ticket) {
		uint8_t secret[WIRE_SECRET];

		if (m->told || length - at < WIRE_SEALED)
			return -EPROTO;
		group->ticket = m->ctx->key && conn_seals(m->conn) &&
				conn_unseal(m->conn, body + at, WIRE_SEALED, secret) == 0 &&
				engine_key_issue(m->ctx->key, group->base.number, secret) == 0;
		auth_wipe(secret, sizeof(secret));
		if (!group->ticket)
			return -EPROTO;
		at += WIRE_SEALED;
	}
	if (form_table(group, body + at, length - at, page.first, page.count) != 0)
		return -EPROTO;
	m->told += page.count;
	if (m->told == page.size)
		meeting_end(m, 0, "");
	return 0;
}

static int meeting_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct group_meeting *m = conn_context(conn);
	char words[256];

	if (m->leaving) { /* records that stood before the answer are of no use any more */
		m->left = m->left || record->op == WIRE_OP_PEER_LEAVE;
		return record->flags == WIRE_REPLY ? 0 : -EPROTO;
	}
	if (m->over || record->op != WIRE_OP_PEER_JOIN || (record->flags & ~WIRE_PEER_TICKET) != WIRE_REPLY)
		return -EPROTO;
	if (record->status != WIRE_OK) {
		snprintf(words, sizeof(words), "%.*s", (int)MIN(record->length, 255u), (const char *)body);
		meeting_end(m,
			    record->status == WIRE_BUSY && record->arg ? -ETIMEDOUT : wire_status_errno(record->status),
			    words);
		return 0;
	}
	return meeting_page(m, body, record->length, record->flags & WIRE_PEER_TICKET);
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

/* When it says that it left, the group's name is free, and may be met by at once. Where an rdmad does not answer in
 * time, it frees the name when it has seen the connection's end. */
void meeting_free(struct group_meeting *m)
{
	const struct wire_record leave = {.op = WIRE_OP_PEER_LEAVE};

	if (!m)
		return;
	if (m->engine) {
		if (m->conn && conn_say(m->conn, &leave, NULL, 0, NULL, 0)) {
			m->leaving = true;
			engine_wait(m->engine, &m->left, LEAVE_TIMEOUT);
		}
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

static int meeting_join(struct group_meeting *m, int rank)
{
	struct wire_peer_join join = {
		.token = form_token(m->group),
		.patience = m->group->timeout / TIME_US,
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

/* Wait until all are there. */
static int meeting_wait(struct group_meeting *m, int rank)
{
	rdma_context *ctx = m->ctx;
	uint64_t timeout = m->group->timeout;
	int rc = meeting_join(m, rank);

	if (rc == 0)
		rc = context_wait(ctx, meeting_over, m, time_after(time_now(), timeout + GRACE));
	if (rc == 0 && !m->error)
		return 0;
	if (rc == -ETIMEDOUT)
		snprintf(m->why, sizeof(m->why), "the rdmad did not answer within %g s",
			 (double)(timeout + GRACE) / TIME_S);
	else if (rc != 0)
		snprintf(m->why, sizeof(m->why), "%s", strerror(-rc));
	return rdma_fail(rc ? rc : m->error, "%s: %s", m->group->name, m->why);
}

static rdma_group *group_meet(rdma_context *ctx, const char *address, const char *name, int size, int rank,
			      uint64_t timeout)
{
	struct group *group = group_new(ctx, 0, MAX(rank, 0), size, GROUP_FORMING);
	struct group_meeting *m = calloc(1, sizeof(*m));
	char words[300];
	int rc;

	if (!group || !m) {
		free(m);
		if (group)
			group_discard(group);
		rdma_fail(-ENOMEM, "No memory for a group of %d members", size);
		return NULL;
	}
	group->timeout = MAX(group->timeout, timeout);
	snprintf(group->name, sizeof(group->name), "group \"%s\"", name);
	*m = (struct group_meeting){.group = group, .ctx = ctx, .name = name, .size = size};
	group->meeting = m;
	rc = form_begin(group, time_after(time_now(), group->timeout));
	if (rc == 0) {
		log_clear_last();
		rc = meeting_connect(m, address);
		snprintf(words, sizeof(words), "%s: the rdmad is not reached", group->name);
		rc = rc ? rdma_fail_logged(rc, words) : meeting_wait(m, rank);
	}
	if (rc != 0) {
		group_discard(group);
		return NULL;
	}
	m->name = NULL; /* the caller's */
	form_patient(group);
	return form_finish(group) == 0 ? &group->base : NULL;
}

rdma_group *group_meet_within(rdma_context *ctx, const char *meeting, const char *name, int size, int rank,
			      uint64_t timeout)
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
			group = group_meet(ctx, meeting && *meeting ? meeting : "127.0.0.1", name, size, rank, timeout);
		rdma_leave(ctx);
	}
	return group;
}

rdma_group *rdma_group_meet(rdma_context *ctx, const char *meeting, const char *name, int size, int rank)
{
	return group_meet_within(ctx, meeting, name, size, rank, 0);
}
