/* group.c: a thread's connections on one fabric queue, and their turn. */
#include "conn/internal.h"

#include <stdlib.h>

#define BURIALS 4        /* of one turn: each destroys a queue pair */
#define SPARE_RECEIVES 8 /* so many may be missing before others are posted in their place */
#define RECEIVE_CHUNK 64
#define SEND_CHUNK 64

static struct conn *conn_of(const struct fabric_completion *c)
{
	return c->context;
}

static void *pointer_of(uint64_t id)
{
	return (void *)(uintptr_t)(id & ~(uint64_t)CONN_ID_MASK);
}

/* Posts as many receives as the connections are worth, and a few more. A pool at its limit is no error: senders
 * wait. */
void conn_group_post_receives(struct conn_group *group)
{
	struct fabric_recv recv[CONN_POLL_BATCH];
	uint32_t until = fabric_shared_wanted(group->queue, SPARE_RECEIVES);

	while (group->posted < until) {
		unsigned n = 0;

		while (n < CONN_POLL_BATCH && group->posted + n < until) {
			struct memory_buffer *b = memory_pool_get(group->receives);

			if (!b)
				break;
			recv[n++] = (struct fabric_recv){
				.id = (uintptr_t)b | CONN_ID_RECEIVE,
				.sge = {b->addr, group->attr.message_size, b->region},
			};
		}
		if (!n || fabric_post_recv(group->queue, NULL, recv, n) != 0) {
			while (n-- > 0)
				memory_pool_put(group->receives, pointer_of(recv[n].id));
			return;
		}
		group->posted += n;
	}
}

/* Operations that one connection of the group may have outstanding: a message each way per credit, transfers, probes
 * and credit returns. */
static uint32_t work_outstanding(const struct conn_group_attr *attr)
{
	return 2u * (attr->credits + WIRE_RETURNS_MAX) + 4u + attr->transfers;
}

static void fresh_drop(struct pending_entry *entry, enum pending_reason reason)
{
	struct conn *conn = container_of(entry, struct conn, fresh);
	struct conn_group *group = conn->group;

	(void)reason;
	group->stats.gave_way++;
	conn_close(conn, -ETIMEDOUT, "it has asked for nothing since %llu s, and another wants its place",
		   (unsigned long long)((group->now - conn->opened) / TIME_S));
}

/* Sizes come from the devices, each with a completion queue of its own, and as many connections as fit them.
 * Overrunning a completion queue kills queue pairs: what it has room for beside the shared receives, posted and
 * taken, is dealt out to connections. At least one is to fit each device. */
static void group_fit(struct conn_group *group, const struct fabric_limits *limits)
{
	const struct conn_group_attr *asked = &group->asked;
	uint32_t dealt = group->completions_max - group->completions;
	uint64_t receives, rest;

	group->inline_size = limits->inline_size;
	group->sender_waits = limits->write_imm; /* iWARP has neither */
	group->shared = limits->shared;
	group->pushes = limits->pushes ? CONN_PUSHES : 0;
	group->attr.receives = MIN(asked->receives, limits->max_shared_depth);
	group->receives_max = group->attr.receives * limits->devices;
	receives = 2ull * group->attr.receives;
	rest = receives < limits->max_completions ? limits->max_completions - receives : 0;
	group->completions_max = limits->devices * (uint32_t)MAX(rest, (uint64_t)work_outstanding(asked));
	group->completions = group->completions_max - MIN(dealt, group->completions_max);
	group->attr.max_connections =
		MIN(asked->max_connections, group->completions_max / (work_outstanding(asked) + group->pushes));
	group->device_bound = group->attr.max_connections < asked->max_connections;
}

static uint32_t group_sends(const struct conn_group *group)
{
	return MAX(group->attr.max_connections, 1u) * (group->attr.credits + WIRE_RETURNS_MAX);
}

/* There is one device more. */
static void group_widen(struct conn_group *group)
{
	struct fabric_limits limits;

	fabric_limits(fabric_domain_fabric(group->domain), &limits);
	group_fit(group, &limits);
	if (group->receives)
		memory_pool_widen(group->receives, group->receives_max);
	memory_pool_widen(group->sends, group_sends(group));
}

static void group_init(struct conn_group *group, struct fabric_domain *domain, const struct conn_group_attr *attr,
		       const struct fabric_limits *limits)
{
	const struct pending_attr fresh = {
		.limit = UINT32_MAX, /* the owner knows when there are too many */
		.stay = TIME_NEVER,
		.grace = attr->first_request,
		.drop = fresh_drop,
	};

	group->attr = group->asked = *attr;
	group->domain = domain;
	group->deadline = TIME_NEVER;
	group_fit(group, limits);
	list_init(&group->connections);
	list_init(&group->dirty);
	list_init(&group->stuck);
	list_init(&group->closing);
	list_init(&group->parting);
	pending_init(&group->fresh, &fresh);
	conn_prove_init(group);
}

int conn_group_create(struct fabric_domain *domain, const struct conn_group_attr *attr, struct conn_group **out)
{
	struct fabric_queue_attr queue_attr = {0};
	struct fabric_limits limits;
	struct memory_pool_attr pool_attr = {
		.buffer_size = attr->message_size,
		.access = FABRIC_LOCAL_WRITE,
	};
	struct conn_group *group = calloc(1, sizeof(*group));
	uint32_t first;
	int rc;

	if (!group)
		return -ENOMEM;
	fabric_limits(fabric_domain_fabric(domain), &limits);
	group_init(group, domain, attr, &limits);
	first = limits.devices ? group->attr.max_connections : attr->max_connections;
	first = attr->first_connections ? MIN(attr->first_connections, first) : first;
	attr = &group->attr;
	queue_attr.shared_depth = attr->receives;
	queue_attr.completions = first * (work_outstanding(attr) + group->pushes);
	queue_attr.completions = MIN(MAX(queue_attr.completions, attr->completions), limits.max_completions);
	rc = fabric_queue_create(domain, &queue_attr, &group->queue);
	if (rc != 0)
		goto free_group;
	pool_attr.name = "receive";
	pool_attr.chunk = MIN((uint32_t)RECEIVE_CHUNK, attr->receives);
	pool_attr.max = MAX(group->receives_max, pool_attr.chunk);
	if (attr->receives)
		rc = memory_pool_create(domain, &pool_attr, &group->receives);
	if (rc != 0)
		goto destroy_queue;
	pool_attr.name = "send";
	pool_attr.max = group_sends(group);
	pool_attr.chunk = MIN((uint32_t)SEND_CHUNK, pool_attr.max);
	rc = memory_pool_create(domain, &pool_attr, &group->sends);
	if (rc != 0)
		goto destroy_receives;
	*out = group;
	return 0;

destroy_receives:
	memory_pool_destroy(group->receives);
destroy_queue:
	fabric_queue_destroy(group->queue);
free_group:
	free(group);
	return rc;
}

void conn_group_destroy(struct conn_group *group)
{
	if (!group)
		return;
	must(!group->turning);
	group->batch_at = group->batch_end;
	while (!list_empty(&group->connections))
		conn_bury(list_first(&group->connections, struct conn, node));
	conn_checks_drop(group);
	/* The queue first: posted receives still point into the pools. */
	fabric_queue_destroy(group->queue);
	memory_pool_destroy(group->sends);
	memory_pool_destroy(group->receives);
	conn_spares_free(group);
	free(group->heap);
	free(group);
}

struct fabric_queue *conn_group_queue(const struct conn_group *group)
{
	return group->queue;
}

const struct conn_group_attr *conn_group_attr(const struct conn_group *group)
{
	return &group->attr;
}

struct fabric_domain *conn_group_domain(const struct conn_group *group)
{
	return group->domain;
}

uint64_t conn_group_deadline(const struct conn_group *group)
{
	return group->dead ? MIN(group->now, group->deadline) : group->deadline;
}

/* A failed work request ends its connection; flushes only say that it is ending. */
static void group_completed(struct conn_group *group, const struct fabric_completion *c)
{
	struct conn *conn = conn_of(c);

	if (unlikely(c->status == FABRIC_PEER_LOST && conn))
		conn_close(conn, -ETIMEDOUT, "the peer's host does not answer");
	else if (unlikely(c->status != FABRIC_OK && c->status != FABRIC_FLUSHED && conn))
		conn_close(conn, c->status == FABRIC_LINK_DOWN ? -ENETDOWN : -EIO, "%s", fabric_status_text(c->status));
	switch (c->id & CONN_ID_MASK) {
	case CONN_ID_RECEIVE:
		if (likely(c->status == FABRIC_OK && conn)) {
			if (unlikely(c->opcode == FABRIC_RECV_IMM))
				conn_immediate_received(conn, c->imm);
			else
				conn_message_received(conn, pointer_of(c->id), c->bytes);
		}
		if (unlikely(conn && conn->own.used)) {
			conn_own_received(conn, pointer_of(c->id));
		} else {
			memory_pool_put(group->receives, pointer_of(c->id));
			group->posted--;
		}
		break;
	case CONN_ID_SEND:
		conn_message_sent(conn, pointer_of(c->id));
		break;
	case CONN_ID_TRANSFER:
		conn_transfer_completed(pointer_of(c->id), c->status);
		break;
	case CONN_ID_UNSIGNALED:
		break;
	case CONN_ID_PROBE:
		conn->in_flight--;
		conn->probe.pending = false;
		conn->heard = group->now;
		break;
	}
}

static void group_conn_refused(struct conn *conn, const struct fabric_event *event)
{
	struct wire_reject reject;

	conn->refusal = event->type == FABRIC_REJECTED ? WIRE_REASONS : WIRE_REASON_NONE;
	if (conn->refusal && wire_reject_decode(&reject, event->data, event->data_len) == 0) {
		conn_told_refusal(conn, &reject);
	} else if (conn->refusal) {
		conn_close(conn, wire_reason_errno(conn->refusal), "refused by a program that is not rdmad");
	} else {
		conn_close(conn, event->error ? event->error : -EHOSTUNREACH, "%s",
			   strerror(event->error ? -event->error : EHOSTUNREACH));
	}
}

/* The server's answer to our request: take over what it granted. */
static void group_conn_answered(struct conn *conn, const struct fabric_event *event)
{
	if (conn->state == CONN_CONNECTING) {
		int rc = wire_accept_decode(&conn->accept, event->data, event->data_len);

		if (rc != 0) {
			conn_close(conn, rc, "the server's answer is not one of protocol version %u", WIRE_VERSION);
			return;
		}
		if (conn->accept.message_size > conn->message_size ||
		    conn->accept.credits > conn->group->attr.credits) {
			conn_close(conn, -EPROTO, "the server granted more than was asked for");
			return;
		}
		if (!conn_prove_answer(conn))
			return;
		conn->message_size = conn->accept.message_size;
		conn->credit.left = conn->credit.max = conn->send.window = conn->accept.credits;
	}
	conn_handle(conn, CONN_EVENT_ESTABLISHED);
}

/* The last poll took all that there was. */
static bool group_emptied(const struct conn_group *group)
{
	return group->batch_at == group->batch_end && group->batch_end < CONN_POLL_BATCH;
}

static void group_part(struct conn_group *group)
{
	while (!list_empty(&group->parting)) {
		struct conn *conn = list_first(&group->parting, struct conn, parting);

		if (!group_emptied(group) && group->taken < conn->parts_at)
			return;
		list_del(&conn->parting);
		conn_handle(conn, CONN_EVENT_DISCONNECTED);
	}
}

static void group_event(struct conn_group *group, const struct fabric_event *event)
{
	struct conn *conn = event->context;

	switch (event->type) {
	case FABRIC_ESTABLISHED:
		group_conn_answered(conn, event);
		break;
	case FABRIC_REJECTED:
	case FABRIC_UNREACHABLE:
		group_conn_refused(conn, event);
		conn_handle(conn, CONN_EVENT_REFUSED);
		break;
	case FABRIC_REMOVED:
		conn_close(conn, event->error,
			   event->error == -ENODEV ? "the device was removed" : "the device's completion queue failed");
		conn_handle(conn, CONN_EVENT_DISCONNECTED);
		break;
	case FABRIC_DISCONNECTED:
		/* The fabric tells of ends beside its queue, in which the peer's last messages may stand behind those
		 * of others: as many as the queue can hold. */
		if (group_emptied(group)) {
			conn_handle(conn, CONN_EVENT_DISCONNECTED);
			break;
		}
		conn->parts_at =
			group->taken + 2ull * group->receives_max + group->completions_max - group->completions;
		list_add_tail(&group->parting, &conn->parting);
		break;
	case FABRIC_REQUEST:
		fabric_reject(event->request, NULL, 0); /* groups do not listen */
		break;
	case FABRIC_WIDENED:
		group_widen(group);
		break;
	}
}

/* Requests that the peer sent behind a short value are at hand: the answers go together, by one system call for many.
 * An answer that brings a value does not wait: its call is worth it, and both ways are in use at a time. */
static bool conn_holds(struct conn *conn)
{
	if (likely(!conn->push.count) || conn->push.first || conn->push.held == CONN_HOLDS ||
	    conn->state != CONN_ESTABLISHED || !fabric_arriving(conn->endpoint))
		return false;
	conn->push.held++;
	return true;
}

static void group_flush_all(struct conn_group *group)
{
	struct list held;

	list_init(&held);
	while (!list_empty(&group->dirty)) {
		struct conn *conn = list_first(&group->dirty, struct conn, dirty);

		if (conn_holds(conn)) {
			list_del(&conn->dirty);
			list_add_tail(&held, &conn->dirty);
			group->unfinished = true;
		} else {
			conn_messages_flush(conn);
		}
	}
	group->holds = !list_empty(&held);
	list_prepend(&group->dirty, &held);
}

/* Mostly there is none. */
static inline void group_flush_dirty(struct conn_group *group)
{
	if (!list_empty(&group->dirty))
		group_flush_all(group);
	else
		group->holds = false;
}

bool conn_group_check_clock(struct conn_group *group)
{
	uint64_t now;

	group->units = CONN_CLOCK_UNITS;
	if (!group->attr.turn)
		return false;
	now = group->attr.clock();
	if (!group->turn_began)
		group->turn_began = now;
	if (!group->visit_began)
		group->visit_began = now;
	group->over = now - group->turn_began >= group->allowed;
	group->visited = now - group->visit_began >= group->attr.turn / CONN_VISITS;
	return group->visited;
}

static void group_visit_begins(struct conn_group *group)
{
	group->visit_began = group->crowded ? group->attr.clock() : 0;
	group->visited = false;
	if (group->crowded && !group->turn_began)
		group->turn_began = group->visit_began;
}

static void group_visit_ends(struct conn_group *group, struct conn *conn)
{
	uint64_t now;

	if (likely(!group->crowded))
		return;
	now = group->attr.clock();
	group->over = now - group->turn_began >= group->allowed;
	if (!conn)
		return;
	if (conn->visit.round != group->round)
		conn->visit.taken = 0;
	conn->visit.round = group->round;
	conn->visit.taken += now - group->visit_began;
}

bool conn_had_visit(const struct conn *conn)
{
	const struct conn_group *group = conn->group;

	return group->crowded && conn->visit.round == group->round &&
	       conn->visit.taken >= group->attr.turn / CONN_VISITS;
}

/* Perhaps: a full batch was not the last. */
static bool group_has_more(const struct conn_group *group)
{
	return group->crowded && group->batch_end == CONN_POLL_BATCH;
}

static int group_poll_batch(struct conn_group *group)
{
	int n = 0;

	if (group->batch_at == group->batch_end) {
		group->batch_at = 0;
		group->batch_end = fabric_poll(group->queue, group->batch, CONN_POLL_BATCH);
		group->taken += (unsigned)group->batch_end;
	}
	group->crowded = group->attr.turn &&
			 (!list_empty(&group->stuck) || group->batch_at || group->batch_end == CONN_POLL_BATCH);
	while (group->batch_at < group->batch_end && !group->over) {
		const struct fabric_completion *c = &group->batch[group->batch_at++];

		group_visit_begins(group);
		group_completed(group, c);
		group_visit_ends(group, conn_of(c));
		n++;
	}
	if (n > 0)
		group_flush_dirty(group); /* before receives: peers wait for answers */
	/* In the place of the taken ones. Peers wait for what came by them, none yet for a receive: as long as
	 * there are enough for all that may come, others are posted by the turn that finds nothing. */
	if (unlikely(group->posted < fabric_shared_wanted(group->queue, n == 0 ? SPARE_RECEIVES : 0)))
		conn_group_post_receives(group);
	return n;
}

/* New completions may take the turn; what earlier turns left over has a visit behind them, and the rest of the turn.
 * The last message that it begins has its visit: cut in two it would take longer, and be answered twice. In a crowd
 * most of it is only parked, so all of it is looked at: a client that asks for little may stand behind it. */
static int group_poll(struct conn_group *group)
{
	int n;

	group->allowed = group->attr.turn;
	n = group_poll_batch(group);
	while (group_has_more(group) && !group->over)
		n += group_poll_batch(group);
	return n;
}

static void group_resume_stuck(struct conn_group *group)
{
	struct list stuck;

	if (likely(list_empty(&group->stuck))) {
		group->round += !group->crowded;
		return;
	}
	/* A list of its own: a connection that stays stuck is linked again behind. */
	stuck = group->stuck;
	stuck.next->prev = stuck.prev->next = &stuck;
	list_init(&group->stuck);
	group->over = false;
	/* A visit, where more has come that is to be looked at; the rest of the turn, where not. */
	group->allowed = group->attr.turn;
	if (group_has_more(group))
		group->allowed = group->attr.clock() - group->turn_began + group->attr.turn / CONN_VISITS;
	group->crowded = group->attr.turn;
	if (list_first(&stuck, struct conn, stuck.node)->visit.round == group->round)
		group->round++; /* where the first has had its visit, all had */
	do {
		struct conn *conn = list_first(&stuck, struct conn, stuck.node);

		group_visit_begins(group);
		conn_messages_resume(conn);
		conn_flush(conn); /* a part of the visit, and it may be the longer one */
		group_visit_ends(group, conn);
	} while (!list_empty(&stuck) && !group->over);
	if (list_empty(&stuck))
		return;
	list_prepend(&group->stuck, &stuck); /* a connection that had no turn is first in the next */
	group->unfinished = true;
}

static void group_bury(struct conn_group *group)
{
	struct list *pos, *tmp;
	unsigned buried = 0;

	list_for_each_safe (pos, tmp, &group->closing) {
		struct conn *conn = container_of(pos, struct conn, ending);

		if (conn->state == CONN_FLUSHING && conn->in_flight == 0)
			conn_handle(conn, CONN_EVENT_DRAINED);
		if (conn->state != CONN_DEAD)
			continue;
		if (buried++ == BURIALS) {
			group->unfinished = group->dead = true;
			return;
		}
		group->dead = false; /* this one goes; its closed() may end another */
		conn_bury(conn);
		group->unfinished = true; /* requests may wait for its end: they are looked at once more */
	}
}

bool conn_group_is_mine(const struct conn_group *group)
{
	return group->turning == 0 || group->turning == thread_self();
}

int conn_group_progress(struct conn_group *group, uint64_t now)
{
	struct fabric_event event;
	int n, events = 0;
	bool batch_done; /* an end must not overtake what came before it */

	must(atomic_exchange(&group->turning, thread_self()) == 0); /* not inside another turn, of any thread */
	group->now = now;
	group->units = CONN_CLOCK_UNITS;
	group->turn_began = 0;
	group->over = false;
	group->unfinished = false;
	/* Requests made between two turns do not wait for a poll of what has come. */
	if (unlikely(!list_empty(&group->dirty) && !group->holds))
		group_flush_dirty(group);
	n = group_poll(group);
	if (unlikely(group->checks))
		n += conn_checks_collect(group);
	batch_done = group->batch_at == group->batch_end;
	if (unlikely(batch_done && !list_empty(&group->parting)))
		group_part(group);
	while (unlikely(batch_done && fabric_next_event(group->queue, &event))) {
		group_event(group, &event);
		events++;
	}
	group_resume_stuck(group);
	if (unlikely(now >= group->deadline))
		conn_timers_check(group);
	group_flush_dirty(group);
	if (unlikely(batch_done && !list_empty(&group->closing)))
		group_bury(group);
	must(atomic_exchange(&group->turning, 0) == thread_self());
	return n + events + (group->unfinished || !batch_done || fabric_moving(group->queue));
}

uint64_t conn_group_oldest(struct conn_group *group)
{
	struct pending_entry *entry;

	/* Connections that asked for something leave the list when they come to its front. */
	while (group->attr.first_request && (entry = pending_first(&group->fresh))) {
		const struct conn *conn = container_of(entry, const struct conn, fresh);

		if (!conn->records_in && conn->state <= CONN_ESTABLISHED)
			return conn->opened;
		pending_remove(&group->fresh, entry);
	}
	return TIME_NEVER;
}

bool conn_group_make_room(struct conn_group *group, uint64_t now)
{
	must(conn_group_is_mine(group));
	group->now = now;
	return conn_group_oldest(group) != TIME_NEVER && pending_make_room(&group->fresh, now);
}

uint64_t conn_group_connections(const struct conn_group *group)
{
	return group->stats.connections;
}

static void stats_add_conn(const struct conn *conn, struct conn_group_stats *into)
{
	struct memory_pool_stats own;

	conn_add_stats(conn, into);
	if (!conn->own.pool)
		return;
	memory_pool_get_stats(conn->own.pool, &own);
	into->own_buffer_bytes += own.bytes;
}

static void stats_add_pools(const struct conn_group *group, struct conn_group_stats *out)
{
	struct memory_pool_stats receives = {0}, sends;

	out->parked_bytes = group->parked_bytes;
	if (group->receives)
		memory_pool_get_stats(group->receives, &receives);
	memory_pool_get_stats(group->sends, &sends);
	out->buffers = receives.buffers + sends.buffers;
	/* Posted receives wait for the peer that sends next; they are not in use. */
	out->buffers_in_use = receives.in_use - group->posted + sends.in_use;
	out->buffer_bytes = receives.bytes + sends.bytes;
}

void conn_group_get_stats(const struct conn_group *group, struct conn_group_stats *out)
{
	*out = group->stats;
	list_for_each (pos, &group->connections)
		stats_add_conn(container_of(pos, const struct conn, node), out);
	stats_add_pools(group, out);
}

/* Adds what conn_add_stats() adds, `times` 1 or, to take it away, -1. */
static void stats_add_traffic(struct conn_group_stats *into, const struct conn_group_stats *from, uint64_t times)
{
	into->messages_in += times * from->messages_in;
	into->messages_out += times * from->messages_out;
	into->records_in += times * from->records_in;
	into->records_out += times * from->records_out;
	into->bytes_in += times * from->bytes_in;
	into->bytes_out += times * from->bytes_out;
}

void conn_group_leave_walk(struct conn_group *group, const struct conn *conn)
{
	if (!group->walk)
		return;
	if (group->walk == &conn->node)
		group->walk = conn->node.next;
	if (conn->id <= group->walked)
		conn_add_stats(conn, &group->gone);
}

bool conn_group_step_stats(struct conn_group *group, unsigned most, void (*fn)(void *arg, struct conn *conn), void *arg,
			   struct conn_group_stats *out)
{
	must(conn_group_is_mine(group));
	if (!group->walk) {
		group->walk = group->connections.next;
		group->walked = 0;
		group->seen = group->gone = (struct conn_group_stats){.connections = 0};
	}
	for (; most > 0 && group->walk != &group->connections; most--) {
		struct conn *conn = container_of(group->walk, struct conn, node);

		group->walk = conn->node.next;
		group->walked = conn->id;
		stats_add_conn(conn, &group->seen);
		if (fn)
			fn(arg, conn);
	}
	if (group->walk != &group->connections)
		return false;
	group->walk = NULL;
	*out = group->stats;
	out->own_buffer_bytes = group->seen.own_buffer_bytes;
	stats_add_traffic(out, &group->seen, 1);
	stats_add_traffic(out, &group->gone, UINT64_MAX);
	stats_add_pools(group, out);
	return true;
}

void conn_group_each(struct conn_group *group, void (*fn)(void *arg, struct conn *conn), void *arg)
{
	struct list *pos, *tmp;

	must(conn_group_is_mine(group));
	list_for_each_safe (pos, tmp, &group->connections)
		fn(arg, container_of(pos, struct conn, node));
}
