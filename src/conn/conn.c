/* conn.c: the life of a connection, from request to burial. */
#include "conn/internal.h"

#include <stdlib.h>

#define CLOSE_TIMEOUT (5 * TIME_S)         /* flushes and the disconnect may never come */
#define EXTRA_SENDS (WIRE_RETURNS_MAX + 2) /* beyond the credits: probes, and messages without records */

static const char *const state_names[] = {
	[CONN_CONNECTING] = "connecting",
	[CONN_ACCEPTING] = "accepting",
	[CONN_PROVING] = "proving",
	[CONN_ESTABLISHED] = "established",
	[CONN_CLOSING] = "closing",
	[CONN_FLUSHING] = "closing",
	[CONN_DEAD] = "dead",
};

static const char *const event_names[] = {
	[CONN_EVENT_ESTABLISHED] = "established",   [CONN_EVENT_REFUSED] = "refused",
	[CONN_EVENT_DISCONNECTED] = "disconnected", [CONN_EVENT_CLOSE] = "close",
	[CONN_EVENT_DRAINED] = "drained",           [CONN_EVENT_PROVED] = "proved",
};

uint64_t conn_next_id(void)
{
	static _Atomic uint64_t next = 1;

	return atomic_fetch_add(&next, 1);
}

/* The only writer of conn->state after birth. */
static void conn_set_state(struct conn *conn, enum conn_state state, enum conn_event event)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	bool ends = conn->state < CONN_CLOSING && state >= CONN_CLOSING;

	must(state > conn->state); /* no way back */
	log_debug("conn", "#%llu %s: %s to %s on %s", (unsigned long long)conn->id, conn->peer,
		  state_names[conn->state], state_names[state], event_names[event]);
	conn->state = state;
	if (state == CONN_ESTABLISHED) { /* what the timers check begins */
		conn->deadline = TIME_NEVER;
		conn->heard = conn->group->now;
		conn->probe.moved = fabric_moved_bytes(conn->endpoint);
		conn->send.watched = attr->stall_timeout && conn->transport->device;
		conn_choose_probe(conn);
		if (conn->probe.used)
			conn_timer_set(conn, conn->group->now + attr->keepalive);
	}
	if (ends && state != CONN_DEAD) {
		conn->deadline = conn->group->now + CLOSE_TIMEOUT;
		conn_timer_set(conn, conn->deadline);
		fabric_disconnect(conn->endpoint);
	}
	if (state == CONN_DEAD)
		conn->group->dead = true;
	if (ends) {
		list_add_tail(&conn->group->closing, &conn->ending);
		conn->group->ending++;
		conn_prover_free(conn);
		conn_parked_forget(conn);
	}
}

/* Whether there are buffers for what comes from here on, also for the proof. */
static bool conn_has_buffers(struct conn *conn)
{
	int rc = conn_own_open(conn);

	if (rc != 0)
		conn_close(conn, rc, "no memory for its messages");
	return rc == 0;
}

static void conn_enter_established(struct conn *conn, enum conn_event event)
{
	conn_set_state(conn, CONN_ESTABLISHED, event);
	conn->group->stats.accepted++;
	conn->lived = true;
	if (!conn_has_buffers(conn) || !conn_prove_begin(conn))
		return;
	if (!auth_enter(&conn->admission)) {
		conn_close(conn, -EUSERS, "its client has as many connections as it may");
		return;
	}
	conn_pace_choose(conn);
	if (conn->attr.admitted)
		conn_admit(conn);
	conn->ops->established(conn);
	if (conn->leave.told)
		conn_told_to_leave(conn, conn->leave.told);
	if (conn->say)
		conn_mark_dirty(conn);
	if (conn->parked.first)
		conn_mark_stuck(conn); /* the end of the turn resumes it */
}

/* The whole machine: what an event does in a state. What is not named is ignored: any event may
 * come in any state, late, twice or never. */
void conn_handle(struct conn *conn, enum conn_event event)
{
	enum conn_state ending = event == CONN_EVENT_DISCONNECTED ? CONN_FLUSHING : CONN_CLOSING;

	must(conn_group_is_mine(conn->group));
	switch (conn->state) {
	case CONN_CONNECTING:
		if (event == CONN_EVENT_ESTABLISHED && conn_prove_awaits(conn)) {
			conn_set_state(conn, CONN_PROVING, event);
			conn_prove_speak(conn);
		} else if (event == CONN_EVENT_ESTABLISHED) {
			conn_enter_established(conn, event);
		} else {
			conn_set_state(conn, CONN_DEAD, event); /* nothing was sent, nothing is in flight */
		}
		break;
	case CONN_ACCEPTING:
		if (event == CONN_EVENT_ESTABLISHED && conn_unproved(conn)) {
			conn_set_state(conn, CONN_PROVING, event);
			if (conn_has_buffers(conn))
				conn_prove_say_refusal(conn);
		} else if (event == CONN_EVENT_ESTABLISHED) {
			conn_enter_established(conn, event);
		} else if (event == CONN_EVENT_DISCONNECTED || event == CONN_EVENT_CLOSE) {
			conn_set_state(conn, ending, event);
		}
		break;
	case CONN_PROVING:
		if (event == CONN_EVENT_DISCONNECTED)
			conn_prove_lost(conn);
		if (event == CONN_EVENT_PROVED)
			conn_enter_established(conn, event);
		else if (event == CONN_EVENT_DISCONNECTED || event == CONN_EVENT_CLOSE)
			conn_set_state(conn, ending, event);
		break;
	case CONN_ESTABLISHED:
		if (event == CONN_EVENT_DISCONNECTED && !conn->reason[0])
			snprintf(conn->reason, sizeof(conn->reason), "disconnected by the peer");
		if (event == CONN_EVENT_DISCONNECTED || event == CONN_EVENT_CLOSE)
			conn_set_state(conn, ending, event);
		break;
	case CONN_CLOSING:
		if (event == CONN_EVENT_DISCONNECTED || event == CONN_EVENT_REFUSED)
			conn_set_state(conn, CONN_FLUSHING, event);
		else if (event == CONN_EVENT_DRAINED)
			conn_set_state(conn, CONN_DEAD, event);
		break;
	case CONN_FLUSHING:
		if (event == CONN_EVENT_DRAINED)
			conn_set_state(conn, CONN_DEAD, event);
		break;
	case CONN_DEAD:
		break;
	}
}

void conn_close(struct conn *conn, int error, const char *format, ...)
{
	va_list args;

	if (!conn->reason[0]) { /* the first is kept */
		conn->error = error;
		va_start(args, format);
		vsnprintf(conn->reason, sizeof(conn->reason), format, args);
		va_end(args);
	}
	conn_handle(conn, CONN_EVENT_CLOSE);
}

static struct conn *conn_new(struct conn_group *group, const struct wire_request *request, const struct conn_attr *attr,
			     const struct conn_ops *ops, void *context, uint64_t now)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	must(conn_group_is_mine(group) && ops->established && ops->record && ops->closed);
	if (!conn)
		return NULL;
	conn->group = group;
	if (conn_timer_add(conn) != 0) {
		free(conn);
		return NULL;
	}
	if (attr)
		conn->attr = *attr;
	if (!conn->attr.domain)
		conn->attr.domain = group->domain;
	if (!conn->attr.transfers)
		conn->attr.transfers = group->attr.transfers;
	if (!conn->attr.reads_in)
		conn->attr.reads_in = group->attr.reads_in;
	conn->ops = ops;
	conn->context = context;
	conn->request = *request;
	conn->send.ready_tail = &conn->send.ready;
	conn->parked.tail = &conn->parked.first;
	conn->push.tail = &conn->push.first;
	list_init(&conn->send.posted);
	list_init(&conn->transfer.list);
	conn->id = conn_next_id();
	conn->opened = now;
	conn->deadline = now + group->attr.handshake_timeout;
	group->now = now;
	conn_timer_set(conn, conn->deadline);
	return conn;
}

static struct fabric_endpoint_attr endpoint_attr(const struct conn *conn)
{
	return (struct fabric_endpoint_attr){
		.send_depth = conn->send.window + EXTRA_SENDS + conn->attr.transfers + conn->group->pushes,
		.recv_depth = conn->own.used ? conn_receives(conn) : 0,
		.shared = conn->own.used ? 0 : conn_receives(conn),
		.reads_out = (uint8_t)MIN(conn->attr.transfers, UINT8_MAX),
		.reads_in = conn->attr.reads_in,
		.context = (void *)conn,
		.from = conn->attr.from,
		.memory = conn->state == CONN_CONNECTING
				  ? conn->attr.memory
				  : conn->group->attr.memory && !(conn->accept.flags & WIRE_ENCRYPT),
		.undecided = conn->state == CONN_CONNECTING && conn->request.flags & WIRE_ENCRYPT,
		.closed = true,
	};
}

/* Room in the group's completion queue for all that it may have outstanding, and for what a device adds. */
static bool conn_take_completions(struct conn *conn, const struct fabric_endpoint_attr *attr)
{
	uint32_t need = attr->send_depth + conn_receives(conn) + 1;

	if (need > conn->group->completions)
		return false;
	conn->completions = need;
	conn->group->completions -= need;
	return true;
}

static void conn_free(struct conn *conn)
{
	if (!conn)
		return;
	must(!conn->open && !conn->send.ready && !conn->parked.first && list_empty(&conn->send.posted) &&
	     list_empty(&conn->transfer.list));
	conn->group->completions += conn->completions;
	conn_prover_free(conn);
	conn_session_free(conn);
	conn_pace_end(conn);
	auth_admission_end(&conn->admission);
	conn_own_release(conn);
	conn_timer_remove(conn);
	free(conn);
}

static void conn_link(struct conn *conn)
{
	conn_group_post_receives(conn->group);
	list_add_tail(&conn->group->connections, &conn->node);
	conn->group->stats.connections++;
	conn->transport = fabric_endpoint_transport(conn->endpoint);
}

int conn_connect(struct conn_group *group, const struct sockaddr *sa, socklen_t len, const struct wire_request *request,
		 const struct conn_attr *own, const struct conn_ops *ops, void *context, uint64_t now,
		 struct conn **out)
{
	struct conn *conn = conn_new(group, request, own, ops, context, now);
	struct fabric_endpoint_attr attr;
	uint8_t data[WIRE_REQUEST_SIZE];
	int rc;

	if (!conn)
		return -ENOMEM;
	conn->state = CONN_CONNECTING;
	conn->request.version = WIRE_VERSION;
	conn->request.flags |= WIRE_ANSWERS | WIRE_WRITES_NOT;
	conn->request.key_id = conn->attr.key ? conn->attr.key->id : 0;
	conn->request.credits = MIN(request->credits, group->attr.credits);
	conn->request.message_size =
		request->message_size ? MIN(request->message_size, group->attr.message_max) : group->attr.message_size;
	conn->message_size = conn->request.message_size;
	conn->credit.granted = conn->request.credits;
	/* The server's grant is known only with its answer: room for the most. */
	conn->send.window = group->attr.credits;
	conn->unshared = !group->shared; /* which device it will be is not known yet */
	rc = random_fill(conn->request.nonce, sizeof(conn->request.nonce));
	if (rc == 0)
		rc = conn_prover_new(conn, conn->attr.key, AUTH_CLIENT);
	conn->attr.key = NULL;
	if (rc == 0)
		rc = conn_prove_ask(conn, sa);
	if (rc == 0)
		rc = conn_own_reserve(conn);
	if (rc != 0)
		goto free_conn;
	attr = endpoint_attr(conn);
	rc = -EUSERS;
	if (!conn_take_completions(conn, &attr))
		goto free_conn;
	wire_request_encode(&conn->request, data);
	rc = fabric_connect(group->queue, conn->attr.domain, sa, len, &attr, data, sizeof(data), &conn->endpoint);
	if (rc != 0)
		goto free_conn;
	rc = conn_own_open(conn);
	if (rc != 0)
		goto destroy_endpoint;
	address_format_socket(sa, conn->peer, sizeof(conn->peer));
	conn_link(conn);
	*out = conn;
	return 0;

destroy_endpoint:
	fabric_endpoint_destroy(conn->endpoint);
free_conn:
	conn_free(conn);
	return rc;
}

static void refusal_encode(enum wire_reason reason, uint64_t detail, uint8_t data[static WIRE_REJECT_SIZE])
{
	struct wire_reject reject = {.version = WIRE_VERSION, .reason = reason, .detail = detail};

	wire_reject_encode(&reject, data);
}

void conn_refuse(struct fabric_request *request, enum wire_reason reason, uint64_t detail)
{
	uint8_t data[WIRE_REJECT_SIZE];
	char peer[128];

	log_info("conn", "%s refused: %s", fabric_request_peer(request, peer, sizeof(peer)), wire_reason_name(reason));
	refusal_encode(reason, detail, data);
	fabric_reject(request, data, sizeof(data));
}

/* The size that is asked for, or less. */
static uint32_t message_size_of(const struct wire_request *request, const struct wire_accept *grant)
{
	return grant->message_size ? MIN(request->message_size, grant->message_size) : request->message_size;
}

void conn_told_refusal(struct conn *conn, const struct wire_reject *reject)
{
	bool known = reject->reason != WIRE_REASON_NONE && reject->reason < WIRE_REASONS;
	char text[160];

	conn->refusal = known ? (enum wire_reason)reject->reason : WIRE_REASONS;
	conn_close(conn, wire_reason_errno(conn->refusal), "refused: %s", wire_reject_text(reject, text, sizeof(text)));
}

/* Whether there may be one more connection than there are, of this kind. *detail is the limit that was met. */
static enum wire_reason conn_may_accept(const struct conn_group *group, const struct fabric_request *fabric_request,
					const struct fabric_limits *limits, const struct wire_request *request,
					uint32_t message_size, uint64_t *detail)
{
	*detail = 0;
	if (group->attr.encrypt == CONN_REQUIRE && !(request->flags & WIRE_ENCRYPT) &&
	    fabric_request_exposed(fabric_request))
		return WIRE_REASON_ENCRYPT;
	*detail = group->attr.message_max;
	if (message_size > group->attr.message_max)
		return WIRE_REASON_MESSAGE_SIZE;
	*detail = (uint64_t)limits->packet << 32 | limits->peer_packet;
	if (limits->peer_packet > limits->packet)
		return WIRE_REASON_PACKET;
	*detail = group->attr.max_connections;
	if (group->stats.connections - group->ending < group->attr.max_connections)
		return WIRE_REASON_NONE;
	return group->device_bound ? WIRE_REASON_RESOURCES : WIRE_REASON_CONNECTIONS;
}

/* Grant what was asked for, or less. */
static void conn_negotiate(struct conn *conn, const struct wire_accept *grant)
{
	const struct conn_group_attr *attr = &conn->group->attr;

	conn->accept = *grant;
	conn->accept.version = WIRE_VERSION;
	conn->accept.flags |= WIRE_ANSWERS;
	conn->accept.service = conn->request.service;
	conn->accept.message_size = message_size_of(&conn->request, grant);
	conn->accept.credits = MIN(attr->credits, conn->request.credits);
	if (conn->accept.message_size > attr->message_size)
		conn->accept.credits = MIN(conn->accept.credits, conn_own_credits(conn->accept.message_size));
	conn->message_size = conn->accept.message_size;
	conn->credit.granted = conn->accept.credits;
	conn->credit.left = conn->credit.max = conn->request.credits;
	conn->send.window = MIN(conn->credit.max, (uint32_t)conn->accept.credits);
}

/* All that can fail before the request is taken. */
static int conn_prepare_accept(struct conn *conn, const struct wire_accept *grant, struct fabric_endpoint_attr *attr)
{
	int rc;

	conn->state = CONN_ACCEPTING;
	conn_negotiate(conn, grant);
	rc = random_fill(conn->accept.nonce, sizeof(conn->accept.nonce));
	if (rc == 0)
		rc = conn_prover_new(conn, conn->attr.key, AUTH_SERVER);
	conn->attr.key = NULL;
	if (rc == 0)
		rc = conn_prove_agree(conn);
	if (rc == 0)
		rc = conn_own_reserve(conn);
	if (rc != 0)
		return rc;
	*attr = endpoint_attr(conn);
	if (conn_take_completions(conn, attr))
		return 0;
	log_warn("conn", "the completion queue has no room for another connection beside %llu; fewer credits take less",
		 (unsigned long long)conn->group->stats.connections);
	return -EUSERS;
}

/* Whatever is missing for an endpoint is a resource: the client is told so. */
static int conn_take_request(struct conn *conn, struct fabric_request *request, struct fabric_endpoint_attr *attr)
{
	uint8_t refusal[WIRE_REJECT_SIZE];
	char peer[128];
	int rc;

	fabric_request_peer(request, peer, sizeof(peer));
	refusal_encode(WIRE_REASON_RESOURCES, 0, refusal);
	attr->refusal = refusal;
	attr->refusal_len = sizeof(refusal);
	rc = fabric_take(conn->group->queue, conn->attr.domain, request, attr, &conn->endpoint);
	if (rc == 0)
		return 0;
	conn->group->stats.refused++;
	log_info("conn", "%s refused: %s: %s", peer, wire_reason_name(WIRE_REASON_RESOURCES), strerror(-rc));
	return rc;
}

/* Answer the client; all behind that is encrypted, if that was agreed on. */
static void conn_answer(struct conn *conn)
{
	uint8_t data[WIRE_ACCEPT_SIZE];
	int rc;

	conn_prove_accept(conn);
	wire_accept_encode(&conn->accept, data);
	rc = fabric_accept(conn->endpoint, data, sizeof(data));
	if (rc != 0)
		conn_close(conn, rc, "cannot accept: %s", strerror(-rc));
	else
		conn_prove_encrypt(conn);
}

int conn_accept(struct conn_group *group, struct fabric_request *fabric_request, const struct wire_request *request,
		const struct wire_accept *grant, const struct conn_attr *own, const struct conn_ops *ops, void *context,
		uint64_t now, struct conn **out)
{
	struct fabric_endpoint_attr attr;
	struct fabric_limits limits;
	struct auth_admission admission = {0};
	struct conn *conn = NULL;
	enum wire_reason reason;
	uint64_t detail;
	int rc;

	if (own && own->admission) {
		admission = *own->admission;
		*own->admission = (struct auth_admission){0};
	}
	fabric_request_limits(fabric_request, &limits);
	reason = conn_may_accept(group, fabric_request, &limits, request, message_size_of(request, grant), &detail);
	rc = wire_reason_errno(reason);
	if (reason != WIRE_REASON_NONE)
		goto refuse;
	reason = WIRE_REASON_RESOURCES;
	detail = 0;
	rc = -ENOMEM;
	conn = conn_new(group, request, own, ops, context, now);
	if (!conn)
		goto refuse;
	conn->admission = admission;
	admission = (struct auth_admission){0};
	conn->unshared = !limits.shared || !group->receives;
	rc = fabric_ready(group->queue, fabric_request);
	if (rc == 0)
		rc = conn_prepare_accept(conn, grant, &attr);
	if (rc != 0)
		goto refuse;
	conn_prove_enter(conn);
	rc = conn_take_request(conn, fabric_request, &attr);
	if (rc != 0)
		goto free_conn;
	if (!group->sender_waits)
		rc = conn_own_open(conn);
	if (rc != 0)
		goto destroy_endpoint;
	fabric_endpoint_peer(conn->endpoint, conn->peer, sizeof(conn->peer));
	conn_link(conn);
	pending_add(&group->fresh, &conn->fresh, now);
	conn_answer(conn);
	*out = conn;
	return 0;

refuse:
	group->stats.refused++;
	conn_refuse(fabric_request, reason, detail);
	goto free_conn;
destroy_endpoint:
	fabric_endpoint_destroy(conn->endpoint);
free_conn:
	auth_admission_end(&admission);
	conn_free(conn);
	return rc;
}

void conn_add_stats(const struct conn *conn, struct conn_group_stats *into)
{
	into->messages_in += conn->messages_in;
	into->messages_out += conn->messages_out;
	into->records_in += conn->records_in;
	into->records_out += conn->records_out;
	into->bytes_in += conn->bytes_in;
	into->bytes_out += conn->bytes_out;
}

/* Free a connection of which nothing is in flight, or will ever come back: give back all, tell the owner. */
void conn_bury(struct conn *conn)
{
	struct conn_group *group = conn->group;

	conn->transport = conn_transport(conn); /* for closed() */
	fabric_endpoint_destroy(conn->endpoint);
	conn->endpoint = NULL;
	conn_transfers_flush(conn);
	conn_messages_drop(conn);
	conn_own_release(conn); /* closed() may destroy the domain */
	conn_group_leave_walk(group, conn);
	list_del(&conn->node);
	if (list_linked(&conn->dirty))
		list_del(&conn->dirty);
	if (list_linked(&conn->stuck.node))
		list_del(&conn->stuck.node);
	if (list_linked(&conn->ending)) {
		list_del(&conn->ending);
		group->ending--;
	}
	pending_remove(&group->fresh, &conn->fresh);
	if (list_linked(&conn->parting))
		list_del(&conn->parting);
	group->stats.connections--;
	group->stats.closed += conn->lived;
	quota_give(conn->attr.share);
	conn_add_stats(conn, &group->stats);
	conn->ops->closed(conn, conn->error, conn->reason[0] ? conn->reason : "closed");
	conn_free(conn);
}

void conn_admit(struct conn *conn)
{
	int rc;

	must(conn_group_is_mine(conn->group));
	rc = fabric_admit(conn->endpoint);
	if (rc != 0 && rc != -ENOTCONN) /* that one's end is on its way */
		conn_close(conn, rc, "it cannot be given its rights to memory: %s", strerror(-rc));
	if (rc != 0 || !conn->group->attr.away || conn->admits)
		return;
	conn->admits = true;
	conn->say |= WIRE_ADMITS;
	conn_mark_dirty(conn);
}

const struct auth_client *conn_client(const struct conn *conn)
{
	return conn->admission.client ? conn->admission.client : &auth_everything;
}

void conn_revoke(struct conn *conn, const char *why)
{
	conn->group->stats.revoked++;
	conn_close(conn, -EACCES, "%s", why);
}

bool conn_revise(struct conn *conn, struct auth_table *table)
{
	bool holds;

	must(conn_group_is_mine(conn->group));
	conn_pace_end(conn);
	holds = conn->state > CONN_ESTABLISHED || auth_readmit(&conn->admission, table);
	if (conn->state == CONN_ESTABLISHED)
		conn_pace_choose(conn);
	if (holds && (conn->state > CONN_ESTABLISHED || auth_may_use(&conn->admission, conn->request.service)))
		return true;
	conn_revoke(conn, holds ? "its right to the service was revoked" : "its key was revoked");
	return false;
}

void conn_set_owner(struct conn *conn, const struct conn_ops *ops, void *context)
{
	must(conn_group_is_mine(conn->group));
	conn->ops = ops;
	conn->context = context;
}

struct fabric_endpoint *conn_endpoint(const struct conn *conn)
{
	return conn->endpoint;
}

const struct fabric_transport *conn_transport(const struct conn *conn)
{
	return conn->endpoint ? fabric_endpoint_transport(conn->endpoint) : conn->transport;
}

const struct wire_accept *conn_granted(const struct conn *conn)
{
	return &conn->accept;
}

const struct wire_request *conn_request(const struct conn *conn)
{
	return &conn->request;
}

enum wire_reason conn_refusal(const struct conn *conn)
{
	return conn->refusal;
}

bool conn_established(const struct conn *conn)
{
	return conn->state == CONN_ESTABLISHED;
}

bool conn_hung_up(struct conn *conn, uint64_t tick)
{
	if (likely(tick == conn->looked))
		return false;
	conn->looked = tick;
	return conn->state == CONN_ESTABLISHED && fabric_hung_up(conn->endpoint);
}

void conn_get_info(const struct conn *conn, struct conn_info *out)
{
	*out = (struct conn_info){
		.id = conn->id,
		.transport = conn_transport(conn)->name,
		.service = wire_service_name(conn->request.service),
		.state = state_names[conn->state],
		.messages_in = conn->messages_in,
		.messages_out = conn->messages_out,
		.records_in = conn->records_in,
		.records_out = conn->records_out,
		.bytes_in = conn->bytes_in,
		.bytes_out = conn->bytes_out,
		.in_flight = conn->transfer.count,
		.parked_bytes = conn->parked.bytes,
		.opened = conn->opened,
	};
	auth_admission_name(&conn->admission, out->key);
	snprintf(out->peer, sizeof(out->peer), "%s", conn->peer);
}
