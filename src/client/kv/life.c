/*
 * life.c: the connection of a handle. It ends because the caller wants that, because the server told to leave, or
 * because it broke; then each request without an answer is told whether it may have been carried out, and another
 * connection is made: by kv_reopen(), or, where the caller wants it to be kept, by a timer, with longer and longer
 * pauses. Whatever else a handle has, its queue, registered memory and remembered lengths, belongs to the engine or the
 * handle and stays.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

#define FIRST_PAUSE (10 * TIME_MS)
#define LONGEST_PAUSE TIME_S
#define SERVER_LEAVES "it takes no new connections, or is to end"

void kv_join_engine(struct kv *kv, struct engine *engine)
{
	kv->engine = engine;
	kv->completed = engine_completed(kv->engine);
	kv->buffers = engine_buffers(kv->engine);
}

static void take_granted(struct kv *kv)
{
	kv_join_engine(kv, kv->engine);
	kv->eager_max = conn_granted(kv->conn)->eager_max;
	if (kv->eager_limit)
		kv->eager_max = MIN(kv->eager_max, kv->eager_limit);
	kv->value_max = conn_granted(kv->conn)->value_max;
	kv_pushes_init(kv, conn_granted(kv->conn)->push_max);
	kv->leases = conn_granted(kv->conn)->flags & WIRE_LEASES;
	kv->watches = conn_granted(kv->conn)->flags & WIRE_WATCHES;
	kv->tables = conn_granted(kv->conn)->flags & WIRE_TABLES;
	kv->moves = conn_granted(kv->conn)->flags & WIRE_MOVES;
	kv->direct = conn_granted(kv->conn)->flags & WIRE_DIRECT;
	kv->transport = conn_transport(kv->conn)->name;
	kv->leaving = kv->spared = kv->closed = kv->ending = false;
	kv->lost = 0;
	kv->took_moved = kv->whole ? WIRE_TOOK_MOVED : 0;
	kv->taking = true;
	kv_watch_send(kv);
}

static struct wire_request kv_request(const struct kv *kv)
{
	return (struct wire_request){
		.service = WIRE_KV,
		.credits = (uint16_t)kv->options.credits, /* and messages as long as the engine's buffers */
	};
}

/* A connection that was made again. */
static void kv_established(struct conn *conn)
{
	struct kv *kv = conn_context(conn);

	must(conn == kv->conn && !kv->taking);
	conn_admit(conn);
	take_granted(kv);
	engine_rouse(kv->engine);
	if (kv->whole)
		kv_route_ask(kv->whole, kv);
}

static void kv_writable(struct conn *conn)
{
	struct kv *kv = conn_context(conn);

	kv_large_writable(kv);
	kv_watch_send(kv);
	if (kv->wants_room)
		engine_rouse(kv->engine);
	kv->wants_room = false;
}

static void kv_told_to_leave(struct conn *conn, bool last)
{
	struct kv *kv = conn_context(conn);

	kv->leaving = true;
	kv->taking = false;
	kv->spared = last;
	if (last || !kv->outstanding)
		kv_go(kv);
}

void kv_go(struct kv *kv)
{
	if (kv->conn)
		conn_close(kv->conn, 0, SERVER_LEAVES);
}

/* Makes another attempt, as there is no connection, if it is not too late for one. */
static void rejoin_later(struct kv *kv)
{
	uint64_t now = time_now();

	if (!kv->lost) {
		kv->lost = now;
		kv->dial.pauses = (struct pauses){FIRST_PAUSE, LONGEST_PAUSE};
	}
	if (kv->ending || kv->retired || (!kv->whole && now - kv->lost >= kv->keep)) {
		kv->closed = true;
		return;
	}
	if (kv->whole) {
		kv_route_away(kv->whole);
		engine_rouse(kv->engine);
	}
	if (kv->dial.next && kv->dial.next < kv->dial.targets) { /* the name has other addresses */
		kv->dial.under_way = false;
		kv->dial.again = now;
	} else {
		dial_again(&kv->dial, now);
	}
	engine_timer_set(kv->engine, &kv->rejoin, kv->dial.again);
}

static void kv_closed(struct conn *conn, int error, const char *reason)
{
	struct kv *kv = conn_context(conn);
	bool told = kv->leaving || !client_was_ended(error, reason);

	kv->refused = conn_refusal(conn);
	kv->protocol = error == -EPROTO || error == -EBADMSG;
	if (kv->taking || kv->leaving) {
		kv->unposted = conn_message_unposted(conn);
		kv->ended = true;
	}
	if (!told && kv->taking)
		log_warn("kv", "the connection ended: %s", reason);
	snprintf(kv->reason, sizeof(kv->reason), "%s", reason);
	kv->conn = NULL;
	kv->taking = false;
	kv_large_end(kv);
	kv_watch_end(kv);
	rejoin_later(kv);
	kv_slots_end(kv);
}

static const struct conn_ops kv_ops = {
	.established = kv_established,
	.record = kv_answered,
	.writable = kv_writable,
	.leave = kv_told_to_leave,
	.closed = kv_closed,
};

static int rejoin_begin(struct dial *dial, const struct dial_target *target, uint64_t now)
{
	struct kv *kv = container_of(dial, struct kv, dial);
	struct wire_request request = kv_request(kv);
	const struct sockaddr *sa = (const struct sockaddr *)&target->to.sa;
	struct conn_attr attr = {.memory = target->to.memory, .key = engine_key_to(engine_key_of(kv->engine), sa)};

	return conn_connect(engine_group(kv->engine), sa, target->to.len, &request, &attr, &kv_ops, kv, now, &kv->conn);
}

static const struct dial_ops rejoin_ops = {
	.begin = rejoin_begin,
};

static void rejoin_due(struct engine_timer *timer)
{
	struct kv *kv = container_of(timer, struct kv, rejoin);
	int rc;

	must(!kv->conn && !kv->closed);
	kv->leaving = kv->spared = false;
	rc = dial_turn(&kv->dial, time_now());
	if (rc == 0)
		return;
	kv->refused = WIRE_REASON_NONE;
	snprintf(kv->reason, sizeof(kv->reason), "%s", strerror(-rc));
	rejoin_later(kv);
	if (kv->closed)
		engine_rouse(kv->engine);
}

/* An attempt has the time of a handshake, and rejoin_later() ends them. */
static void rejoin_init(struct kv *kv, struct dial_target *target, unsigned targets)
{
	kv->dial = (struct dial){
		.ops = &rejoin_ops, .target = target, .targets = targets, .until = TIME_NEVER, .last = TIME_NEVER};
	kv->rejoin.due = rejoin_due;
}

int kv_join(struct kv *kv, struct engine *share)
{
	struct wire_request request = kv_request(kv);
	struct conn *conn;
	int rc = client_connect_to(kv->server, &kv->options, share, &request, &kv_ops, kv, &kv->engine, &conn,
				   &kv->at.to);

	if (rc != 0)
		return rc;
	kv->conn = conn;
	rejoin_init(kv, &kv->at, 1);
	take_granted(kv);
	return 0;
}

int kv_find(struct kv *kv, struct engine *engine)
{
	struct address address;
	int rc = fabric_address_parse(kv->server, &address);

	kv_join_engine(kv, engine);
	kv->closed = true;          /* until kv_join_soon() */
	kv->value_max = UINT64_MAX; /* until it is told */
	if (!kv->targets)
		kv->targets = calloc(DIAL_TARGETS, sizeof(*kv->targets));
	if (!kv->targets)
		return -ENOMEM;
	rejoin_init(kv, kv->targets, 0);
	if (rc == 0)
		rc = dial_resolve(&kv->dial, "kv", kv->server, &address, kv->options.require_rdma, engine);
	if (rc != 0)
		snprintf(kv->reason, sizeof(kv->reason), "%.150s", log_last());
	return rc;
}

void kv_join_soon(struct kv *kv)
{
	uint64_t now = time_now();

	must(!kv->conn);
	if (!kv->dial.targets)
		return; /* its name means nothing here */
	kv->closed = kv->ending = kv->retired = false;
	kv->reason[0] = '\0';
	kv->lost = now;
	kv->dial.pauses = (struct pauses){FIRST_PAUSE, LONGEST_PAUSE};
	kv->dial.next = 0;
	kv->dial.under_way = false;
	kv->dial.again = now;
	engine_timer_set(kv->engine, &kv->rejoin, now);
}

void kv_hang_up(struct kv *kv)
{
	kv->ending = true;
	engine_timer_cancel(kv->engine, &kv->rejoin);
	if (!kv->conn)
		kv->closed = true;
	client_disconnect(kv->engine, kv->conn, &kv->closed);
	engine_timer_cancel(kv->engine, &kv->watch);
}

int kv_not_taking(const struct kv *kv)
{
	if (kv->closed || kv->ending)
		return -ENOTCONN;
	if (kv->whole && kv->lost) {
		uint64_t lost = time_now() - kv->lost;

		/* A node of a new table is being connected: its first attempt has not failed. */
		return kv_keep(kv) > lost || (!*kv->reason && lost < DIAL_FIRST) ? -EAGAIN : -ENOTCONN;
	}
	return kv_keep(kv) ? -EAGAIN : -ESHUTDOWN;
}

int kv_end_status(const struct kv *kv, const struct request *r)
{
	int status = r->message >= kv->unposted ? -ENOTCONN : -ECONNABORTED;

	if (kv->ending)
		return -ECONNABORTED;
	if (kv->spared)
		status = -ESHUTDOWN;
	else if (kv->protocol)
		status = -EPROTO;
	return kv->whole ? kv_route_end_status(kv, r, status) : status;
}

int kv_reopen(void *kv_handle)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin(kv);

	if (rc == 0)
		rc = engine_may_wait(kv->engine);
	if (rc != 0)
		return rc;
	if (kv->nodes)
		return kv_nodes_reopen(kv);
	kv_enter(kv);
	kv_hang_up(kv);
	kv_leave(kv);
	rc = kv_join(kv, kv->engine);
	if (rc != 0) {
		snprintf(kv->reason, sizeof(kv->reason), "%s", rdmad_error());
		return rc;
	}
	kv_leave(kv);
	engine_release(kv->engine); /* it was joined once more */
	return 0;
}

int kv_keep_connected(void *kv_handle, uint64_t for_us)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	kv->keep = time_of_us(for_us);
	kv_leave(kv);
	return 0;
}
