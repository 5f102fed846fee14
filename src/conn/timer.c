/*
 * timer.c: deadlines. Each connection has one time at which it is looked at, in a heap with the earliest first; a look
 * finds out what is late and when to look again. So ten thousand connections without a deadline cost nothing,
 * and traffic moves no timer: it leaves a time, which the look finds.
 */
#include "conn/internal.h"

#include <stdlib.h>

#define CHECKS 64                   /* of one turn */
#define LONG_TIMEOUT 6              /* keepalives, for a program whose answer may stand behind a long value */
#define SILENT_TIMEOUT (TIME_S / 2) /* for the flushes: a peer that does not answer does not disconnect either */

static void heap_put(struct conn_group *group, uint32_t at, struct conn *conn)
{
	group->heap[at] = conn;
	conn->timer.at = at;
}

static void heap_rise(struct conn_group *group, struct conn *conn)
{
	uint32_t at = conn->timer.at;

	for (; at && group->heap[(at - 1) / 2]->timer.due > conn->timer.due; at = (at - 1) / 2)
		heap_put(group, at, group->heap[(at - 1) / 2]);
	heap_put(group, at, conn);
}

static void heap_sink(struct conn_group *group, struct conn *conn)
{
	uint32_t at = conn->timer.at, child;

	for (; (child = 2 * at + 1) < group->heap_count; at = child) {
		if (child + 1 < group->heap_count && group->heap[child + 1]->timer.due < group->heap[child]->timer.due)
			child++;
		if (group->heap[child]->timer.due >= conn->timer.due)
			break;
		heap_put(group, at, group->heap[child]);
	}
	heap_put(group, at, conn);
}

static void heap_settle(struct conn_group *group, struct conn *conn)
{
	heap_rise(group, conn);
	heap_sink(group, conn);
	group->deadline = group->heap[0]->timer.due;
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
	conn->timer.due = TIME_NEVER;
	heap_put(group, group->heap_count++, conn);
	heap_settle(group, conn);
	return 0;
}

void conn_timer_remove(struct conn *conn)
{
	struct conn_group *group = conn->group;
	struct conn *last = group->heap[--group->heap_count];

	must(group->heap[conn->timer.at] == conn || last == conn);
	group->deadline = TIME_NEVER;
	if (last != conn) {
		heap_put(group, conn->timer.at, last);
		heap_settle(group, last);
	} else if (group->heap_count) {
		group->deadline = group->heap[0]->timer.due;
	}
}

void conn_timer_move(struct conn *conn, uint64_t due)
{
	conn->timer.due = due;
	heap_settle(conn->group, conn);
}

/* A program that may be away is not waited for where its device can answer. But a peer that has not admitted this side
 * refuses even a write of no bytes; until it does, and it may wait long to be accepted, it is asked by a message, which
 * its device takes. */
void conn_choose_probe(struct conn *conn)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	bool writes = attr->away && conn->transport->silent && conn->admitted;

	conn->probe.asks = attr->asks && (conn->accept.flags & WIRE_ANSWERS) && !writes;
	conn->probe.used = attr->keepalive && (conn->probe.asks || conn->transport->silent);
	conn->probe.pending = false;
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
	conn->probe.pending = true;
}

static void conn_takes_no_answers(struct conn *conn, uint64_t ns)
{
	conn->group->stats.stalled++;
	conn_close(conn, -ETIMEDOUT, "the peer takes no answers since %llu s", (unsigned long long)(ns / TIME_S));
}

/* The check_ functions: when to check again, TIME_NEVER also when it was cut off. */

/* Check for a peer that makes this end wait: it gives no credits, or does not acknowledge. */
static uint64_t check_stuck(struct conn *conn, uint64_t now)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	uint64_t end = conn->stuck.since + attr->stall_timeout;

	if (!list_linked(&conn->stuck.node) || !attr->stall_timeout || conn->transfer.count)
		return TIME_NEVER;
	if (end > now)
		return end;
	/* The service's own wait, or that for a pool that cannot grow, is not the peer's fault. */
	if (conn->stuck.busy || (conn->credit.left && !conn->send.buffers))
		return now + attr->stall_timeout;
	conn_takes_no_answers(conn, now - conn->stuck.since);
	return TIME_NEVER;
}

static uint64_t check_paced(struct conn *conn, uint64_t now)
{
	return conn->pace.used && conn->parked.first && conn->pace.until > now ? conn->pace.until : TIME_NEVER;
}

/* A device has no reason to leave a message for long: the peer, which granted it, has posted no receive. */
static uint64_t check_sends(struct conn *conn, uint64_t now)
{
	uint64_t end;

	if (!conn->send.watched || list_empty(&conn->send.posted))
		return TIME_NEVER;
	if (conn->transfer.count)
		conn->send.since = now; /* it may stand behind a long one, which check_transfers() watches */
	end = conn->send.since + conn->group->attr.stall_timeout;
	if (end > now)
		return end;
	conn_takes_no_answers(conn, now - conn->send.since);
	return TIME_NEVER;
}

/* Bytes of transfers, where the fabric can tell: are there more than when `seen` was asked for last? */
static bool conn_has_moved(const struct conn *conn, uint64_t *seen)
{
	uint64_t before = *seen;

	*seen = fabric_moved_bytes(conn->endpoint);
	return *seen != before;
}

static uint64_t check_transfers(struct conn *conn, uint64_t now)
{
	if (!conn->transfer.count || !conn->group->attr.stall_timeout)
		return TIME_NEVER;
	if (conn->transfer.since + conn_transfer_timeout(conn) <= now && conn_has_moved(conn, &conn->transfer.moved))
		conn->transfer.since = now;
	if (conn->transfer.since + conn_transfer_timeout(conn) > now)
		return conn->transfer.since + conn_transfer_timeout(conn);
	conn->group->stats.stalled++;
	conn_close(conn, -ETIMEDOUT, "a transfer does not get on");
	return TIME_NEVER;
}

static uint64_t check_alive(struct conn *conn, uint64_t now)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	uint64_t keepalive = attr->keepalive, timeout;

	if (!conn->probe.used)
		return TIME_NEVER;
	if (conn->probe.asks && conn_has_moved(conn, &conn->probe.moved))
		conn->heard = now; /* the answer may stand behind a long value */
	if (conn->probe.pending && conn->probe.asks && conn->heard > conn->probe.since)
		conn->probe.pending = false;
	if (conn->probe.pending) {
		/* A device does not tell whether bytes move. A host that is gone, it notices itself, by what it was
		 * asked. */
		timeout = (conn->probe.asks || attr->away) && conn->probe.moved == FABRIC_MOVED_UNKNOWN
				  ? LONG_TIMEOUT * keepalive
				  : keepalive;
		if (now - conn->probe.since >= 2 * timeout)
			conn->probe.since =
				now; /* it was this side that was away: the answer may be about to be seen */
		if (now - conn->probe.since < timeout)
			return conn->probe.since + timeout;
		if (attr->away && conn->probe.asks) {
			bool before = conn->probe.lost; /* some packets may be lost in a row */

			conn->probe.lost = fabric_host_lost(conn->endpoint, keepalive);
			if (!conn->probe.lost || !before) {
				conn->probe.since = now; /* one question waits for it: there is no second one */
				return now + timeout;
			}
		}
		conn->group->stats.silent++;
		conn_close(conn, -ETIMEDOUT, "the peer%s does not answer", conn->probe.asks ? "" : "'s host");
		conn->deadline = now + SILENT_TIMEOUT;
		return conn->deadline;
	}
	if (now - conn->heard < keepalive)
		return conn->heard + keepalive;
	conn->probe.since = now;
	if (conn->probe.asks) {
		/* A program that always turns its connections answers at once, unless it is frozen. One that computes
		 * between its calls cannot, and is not asked. */
		conn->say |= WIRE_ASK;
		conn->probe.pending = true;
		conn->probe.lost = false;
		conn_mark_dirty(conn);
	} else {
		probe_host(conn);
	}
	return now + keepalive;
}

static uint64_t timer_check(struct conn *conn, uint64_t now)
{
	bool established = conn->state == CONN_ESTABLISHED;
	static uint64_t (*const checks[])(struct conn * conn, uint64_t now) = {check_stuck, check_paced, check_sends,
									       check_transfers, check_alive};
	uint64_t next = TIME_NEVER;

	for (size_t i = 0; i < ARRAY_SIZE(checks) && conn->state == CONN_ESTABLISHED; i++) {
		uint64_t when = checks[i](conn, now);

		next = MIN(next, when);
	}
	if (established)
		return next;
	if (conn->deadline > now)
		return conn->deadline;
	if (conn->state == CONN_CLOSING || conn->state == CONN_FLUSHING)
		conn_handle(conn, CONN_EVENT_DRAINED);
	else if (conn->state == CONN_PROVING)
		conn_prove_failed(conn);
	else if (conn->state != CONN_DEAD)
		conn_close(conn, -ETIMEDOUT, "no answer to the connect request in time");
	return TIME_NEVER;
}

void conn_timers_check(struct conn_group *group)
{
	for (unsigned n = 0; n < CHECKS && group->deadline <= group->now; n++) {
		struct conn *conn = group->heap[0];

		conn_timer_move(conn, TIME_NEVER); /* what the look does may set it */
		conn_timer_set(conn, timer_check(conn, group->now));
	}
}
