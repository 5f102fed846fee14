/*
 * timer.c: deadlines of connections. One look at all of them when the earliest may have come: a
 * thousand connections are a few microseconds, and nothing is kept in order on the hot path.
 */
#include "conn/internal.h"

void conn_timer_set(struct conn_group *group, uint64_t when)
{
	group->deadline = MIN(group->deadline, when);
}

/* RC says nothing of a dead host. A write of no bytes is answered by the peer's device, so it proves
 * the host without waiting for the peer's program. Over software that program would have to answer, and
 * one that computes is not dead: there the provider itself notices a dead host. */
static void conn_probe(struct conn *conn)
{
	struct fabric_wr wr = {
		.id = (uintptr_t)conn | CONN_ID_PROBE,
		.opcode = FABRIC_WRITE,
		.signaled = true,
	};

	if (fabric_post(conn->endpoint, &wr) == 0) {
		conn->in_flight++;
		conn->probing = true;
		conn->probed = conn->group->now;
	}
}

static uint64_t timer_look_established(struct conn *conn, uint64_t now)
{
	const struct conn_group_attr *attr = &conn->group->attr;
	uint64_t messages = conn->messages_in + conn->messages_out, next = TIME_NEVER;

	if (list_linked(&conn->stuck) && attr->stall_timeout && !conn->transfer_count) {
		next = conn->stuck_since + attr->stall_timeout;
		if (next <= now) {
			conn_close(conn, -ETIMEDOUT, "the peer takes no answers since %llu s",
				   (unsigned long long)((now - conn->stuck_since) / TIME_S));
			return TIME_NEVER;
		}
	}
	if (conn->transfer_count && attr->stall_timeout) {
		if (conn->transfer_since + TRANSFER_PATIENCE(conn) <= now) {
			conn_close(conn, -ETIMEDOUT, "a transfer does not get on");
			return TIME_NEVER;
		}
		next = MIN(next, conn->transfer_since + TRANSFER_PATIENCE(conn));
	}
	if (!conn->probes)
		return next;
	if (messages != conn->messages_seen && !conn->probing) {
		conn->messages_seen = messages;
		conn->last_traffic = now;
	}
	if (conn->probing && now - conn->probed >= attr->keepalive) {
		conn_close(conn, -ETIMEDOUT, "the peer's host does not answer");
		return TIME_NEVER;
	}
	if (conn->probing)
		return MIN(next, conn->probed + attr->keepalive);
	if (now - conn->last_traffic < attr->keepalive)
		return MIN(next, conn->last_traffic + attr->keepalive);
	conn_probe(conn); /* no room for it: once more, later */
	return MIN(next, now + attr->keepalive);
}

static uint64_t timer_look(struct conn *conn, uint64_t now)
{
	if (conn->state == CONN_ESTABLISHED)
		return timer_look_established(conn, now);
	if (conn->deadline > now)
		return conn->deadline;
	if (conn->state == CONN_CLOSING)
		conn_handle(conn, CONN_EVENT_DRAINED);
	else
		conn_close(conn, -ETIMEDOUT, "no answer to the connect request in time");
	return conn->deadline;
}

void conn_timers_look(struct conn_group *group)
{
	struct list *pos, *tmp;
	uint64_t next = TIME_NEVER;

	group->deadline = TIME_NEVER;
	list_for_each_safe (pos, tmp, &group->connections)
		next = MIN(next, timer_look(container_of(pos, struct conn, node), group->now));
	conn_timer_set(group, next);
}
