/*
 * timer.c: deadlines. Each connection has one time at which it is looked at, in a heap with the earliest first; a look
 * finds out what is late and when to look again. So ten thousand connections without a deadline cost nothing,
 * and traffic moves no timer: it leaves a time, which the look finds.
 */
#include "conn/internal.h"

#include <stdlib.h>

#define LOOKS 64                     /* of one turn */
#define LONG_PATIENCE 6              /* keepalives, for a program whose answer may stand behind a long value */
#define SILENT_PATIENCE (TIME_S / 2) /* for the flushes: a peer that does not answer does not disconnect either */

static void heap_put(struct conn_group *group, uint32_t at, struct conn *conn)
{
	group->heap[at] = conn;
	conn->heap_at = at;
}

static void heap_rise(struct conn_group *group, struct conn *conn)
{
	uint32_t at = conn->heap_at;

	for (; at && group->heap[(at - 1) / 2]->due > conn->due; at = (at - 1) / 2)
		heap_put(group, at, group->heap[(at - 1) / 2]);
	heap_put(group, at, conn);
}

static void heap_sink(struct conn_group *group, struct conn *conn)
{
	uint32_t at = conn->heap_at, child;

	for (; (child = 2 * at + 1) < group->heap_count; at = child) {
		if (child + 1 < group->heap_count && group->heap[child + 1]->due < group->heap[child]->due)
			child++;
		if (group->heap[child]->due >= conn->due)
			break;
		heap_put(group, at, group->heap[child]);
	}
	heap_put(group, at, conn);
}

static void heap_settle(struct conn_group *group, struct conn *conn)
{
	heap_rise(group, conn);
	heap_sink(group, conn);
	group->deadline = group->heap[0]->due;
}

int conn_timer_add(struct conn *conn)
{
	struct conn_group *group = conn->group;
	uint32_t room = MAX(2 * group->heap_room, 16u);

	if (group->heap_count == group->heap_room) {
		struct conn **heap = realloc(group->heap, room * sizeof(*heap));

		if (!heap)
			return -ENOMEM;
		group->heap = heap;
		group->heap_room = room;
	}
	conn->due = TIME_NEVER;
	heap_put(group, group->heap_count++, conn);
	heap_settle(group, conn);
	return 0;
}

void conn_timer_remove(struct conn *conn)
{
	struct conn_group *group = conn->group;
	struct conn *last = group->heap[--group->heap_count];

	must(group->heap[conn->heap_at] == conn || last == conn);
	group->deadline = TIME_NEVER;
	if (last != conn) {
		heap_put(group, conn->heap_at, last);
		heap_settle(group, last);
	} else if (group->heap_count) {
		group->deadline = group->heap[0]->due;
	}
}

void conn_timer_move(struct conn *conn, uint64_t due)
{
	conn->due = due;
	heap_settle(conn->group, conn);
}

/* A program that may be away is not waited for where its device can answer. But a peer that has not admitted this side
 * refuses even a write of no bytes; until it does, and it may wait long to be accepted, it is asked by a message, which
 * its device takes. */
void conn_choose_probe(struct conn *conn)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	bool writes = attr->away && conn->transport->silent && conn->admitted;

	conn->asks = attr->asks && (conn->accept.flags & WIRE_ANSWERS) && !writes;
	conn->probes = attr->keepalive && (conn->asks || conn->transport->silent);
	conn->probing = false;
}

/* RC says nothing of a dead host. A write of no bytes is answered by the peer's device, so it proves
 * the host without waiting for the peer's program. */
static void probe_host(struct conn *conn)
{
	struct fabric_wr wr = {
		.id = (uintptr_t)conn | CONN_ID_PROBE,
		.opcode = FABRIC_WRITE,
		.signaled = true,
	};

	if (fabric_post(conn->endpoint, &wr) != 0)
		return; /* no room for it: once more, later */
	conn->in_flight++;
	conn->probing = true;
}

/* A program that always turns its connections answers at once, unless it is frozen. One that computes between its
 * calls cannot, and is not asked. */
static void ask_program(struct conn *conn)
{
	conn->say |= WIRE_ASK;
	conn->probing = true;
	conn->lost = false;
	conn_mark_dirty(conn);
}

static void takes_no_answers(struct conn *conn, uint64_t ns)
{
	conn->group->stats.stalled++;
	conn_close(conn, -ETIMEDOUT, "the peer takes no answers since %llu s", (unsigned long long)(ns / TIME_S));
}

/* The look_ functions: when to look again, TIME_NEVER also when it was cut off. */

/* What the peer makes wait: it gives no credits, or does not acknowledge. */
static uint64_t look_stuck(struct conn *conn, uint64_t now)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	uint64_t end = conn->stuck_since + attr->stall_timeout;

	if (!list_linked(&conn->stuck) || !attr->stall_timeout || conn->transfer_count)
		return TIME_NEVER;
	if (end > now)
		return end;
	/* The service's own wait, or that for a pool that cannot grow, is not the peer's fault. */
	if (conn->busy || (conn->credits && !conn->sends))
		return now + attr->stall_timeout;
	takes_no_answers(conn, now - conn->stuck_since);
	return TIME_NEVER;
}

static uint64_t look_paced(struct conn *conn, uint64_t now)
{
	return conn->paced && conn->parked && conn->paced_until > now ? conn->paced_until : TIME_NEVER;
}

/* A device has no reason to leave a message for long: the peer, which granted it, has posted no receive. */
static uint64_t look_sends(struct conn *conn, uint64_t now)
{
	uint64_t end;

	if (!conn->watch_sends || list_empty(&conn->sending))
		return TIME_NEVER;
	if (conn->transfer_count)
		conn->send_since = now; /* it may stand behind a long one, which look_transfers() watches */
	end = conn->send_since + conn->group->attr.stall_timeout;
	if (end > now)
		return end;
	takes_no_answers(conn, now - conn->send_since);
	return TIME_NEVER;
}

static uint64_t look_transfers(struct conn *conn, uint64_t now)
{
	if (!conn->transfer_count || !conn->group->attr.stall_timeout)
		return TIME_NEVER;
	if (conn->transfer_since + conn_transfer_patience(conn) <= now && conn_transfers_get_on(conn))
		conn->transfer_since = now;
	if (conn->transfer_since + conn_transfer_patience(conn) > now)
		return conn->transfer_since + conn_transfer_patience(conn);
	conn->group->stats.stalled++;
	conn_close(conn, -ETIMEDOUT, "a transfer does not get on");
	return TIME_NEVER;
}

/* Bytes of transfers, where the fabric can tell. */
static bool moved_since_last_look(struct conn *conn)
{
	uint64_t before = conn->alive_moved;

	conn->alive_moved = fabric_moved_bytes(conn->endpoint);
	return conn->alive_moved != before;
}

static uint64_t look_alive(struct conn *conn, uint64_t now)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	uint64_t keepalive = attr->keepalive, patience;

	if (!conn->probes)
		return TIME_NEVER;
	if (conn->asks && moved_since_last_look(conn))
		conn->heard = now; /* the answer may stand behind a long value */
	if (conn->probing && conn->asks && conn->heard > conn->probed)
		conn->probing = false;
	if (conn->probing) {
		/* A device does not tell whether bytes move. A host that is gone, it notices itself, by what it was
		 * asked. */
		patience = (conn->asks || attr->away) && conn->alive_moved == FABRIC_MOVED_UNKNOWN
				   ? LONG_PATIENCE * keepalive
				   : keepalive;
		if (now - conn->probed >= 2 * patience)
			conn->probed = now; /* it was this side that was away: the answer may be about to be seen */
		if (now - conn->probed < patience)
			return conn->probed + patience;
		if (attr->away && conn->asks) {
			bool before = conn->lost; /* some packets may be lost in a row */

			conn->lost = fabric_host_lost(conn->endpoint, keepalive);
			if (!conn->lost || !before) {
				conn->probed = now; /* one question waits for it: there is no second one */
				return now + patience;
			}
		}
		conn->group->stats.silent++;
		conn_close(conn, -ETIMEDOUT, "the peer%s does not answer", conn->asks ? "" : "'s host");
		conn->deadline = now + SILENT_PATIENCE;
		return conn->deadline;
	}
	if (now - conn->heard < keepalive)
		return conn->heard + keepalive;
	conn->probed = now;
	if (conn->asks)
		ask_program(conn);
	else
		probe_host(conn);
	return now + keepalive;
}

static uint64_t look_established(struct conn *conn, uint64_t now)
{
	static uint64_t (*const looks[])(struct conn * conn, uint64_t now) = {look_stuck, look_paced, look_sends,
									      look_transfers, look_alive};
	uint64_t next = TIME_NEVER;

	for (size_t i = 0; i < ARRAY_SIZE(looks) && conn->state == CONN_ESTABLISHED; i++) {
		uint64_t when = looks[i](conn, now);

		next = MIN(next, when);
	}
	return next;
}

static uint64_t timer_look(struct conn *conn, uint64_t now)
{
	if (conn->state == CONN_ESTABLISHED)
		return look_established(conn, now);
	if (conn->deadline > now)
		return conn->deadline;
	if (conn->state == CONN_CLOSING)
		conn_handle(conn, CONN_EVENT_DRAINED);
	else if (conn->state == CONN_PROVING)
		conn_prove_failed(conn);
	else if (conn->state != CONN_DEAD)
		conn_close(conn, -ETIMEDOUT, "no answer to the connect request in time");
	return TIME_NEVER;
}

void conn_timers_look(struct conn_group *group)
{
	for (unsigned n = 0; n < LOOKS && group->deadline <= group->now; n++) {
		struct conn *conn = group->heap[0];

		conn_timer_move(conn, TIME_NEVER); /* what the look does may set it */
		conn_timer_set(conn, timer_look(conn, group->now));
	}
}
