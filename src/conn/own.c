/*
 * own.c: buffers of a connection's own, when its messages are longer than the shared ones, or these are of another
 * domain, or its device shares none. What it may come to use is taken from a budget when it is accepted, so that it
 * never lacks them later; made and registered they are from when the peer has confirmed the connection, as messages
 * come.
 */
#include "conn/internal.h"

#define OWN_BYTES (2u << 20)   /* of messages that a peer is granted, if these are large */
#define OWN_CREDITS 8          /* and most of these */
#define OWN_CHUNK (256u << 10) /* bytes made at a time */
#define OWN_RECEIVES 2         /* at first; one more with each that completes */

uint32_t conn_receives(const struct conn *conn)
{
	return conn->credit.granted + WIRE_RETURNS_MAX;
}

static uint32_t own_sends(const struct conn *conn)
{
	return conn->send.window + WIRE_RETURNS_MAX;
}

uint16_t conn_own_credits(uint32_t message_size)
{
	return (uint16_t)MIN(MAX(OWN_BYTES / message_size, WIRE_CREDITS_MIN), OWN_CREDITS);
}

int conn_own_reserve(struct conn *conn)
{
	struct memory_budget *budget = conn->group->attr.own;

	conn->own.used = conn->message_size > conn->group->attr.message_size ||
			 conn->attr.domain != conn->group->domain || conn->unshared;
	if (!conn->own.used)
		return 0;
	if (budget) {
		conn->own.bytes = (uint64_t)(conn_receives(conn) + own_sends(conn)) * conn->message_size;
		if (memory_budget_take(budget, conn->own.bytes)) {
			budget->unproved += conn_unproved(conn) ? conn->own.bytes : 0;
			return 0;
		}
		conn->own.bytes = 0;
		log_warn("conn", "all of own_buffers is in use: no room for a connection with messages of %u bytes",
			 conn->message_size);
		return -ENOBUFS;
	}
	return 0;
}

void conn_own_release(struct conn *conn)
{
	memory_pool_destroy(conn->own.pool);
	conn->own.pool = NULL;
	if (conn->own.bytes)
		memory_budget_give(conn->group->attr.own, conn->own.bytes);
	conn->own.bytes = 0;
}

static int own_post_receive(struct conn *conn, struct memory_buffer *buffer)
{
	struct fabric_recv recv = {
		.id = (uintptr_t)buffer | CONN_ID_RECEIVE,
		.sge = {buffer->addr, conn->message_size, buffer->region},
	};

	return fabric_post_recv(conn->group->queue, conn->endpoint, &recv, 1);
}

static int own_post_more(struct conn *conn)
{
	struct memory_buffer *buffer = memory_pool_get(conn->own.pool);
	int rc = buffer ? own_post_receive(conn, buffer) : -ENOMEM;

	if (rc == 0)
		conn->own.posted++;
	else if (buffer)
		memory_pool_put(conn->own.pool, buffer);
	return rc;
}

int conn_own_open(struct conn *conn)
{
	struct memory_pool_attr attr = {
		.name = "connection",
		.buffer_size = conn->message_size,
		.chunk = MAX(OWN_CHUNK / conn->message_size, 1u),
		.max = conn_receives(conn) + own_sends(conn),
		.access = FABRIC_LOCAL_WRITE,
	};
	uint32_t count = conn->group->sender_waits ? MIN(OWN_RECEIVES, conn_receives(conn)) : conn_receives(conn);
	int rc;

	if (!conn->own.used || conn->own.pool)
		return 0;
	rc = memory_pool_create(conn->attr.domain, &attr, &conn->own.pool);
	while (rc == 0 && conn->own.posted < count)
		rc = own_post_more(conn);
	return rc == -ENOTCONN ? 0 : rc; /* its end is on its way, and memory was not lacking */
}

void conn_own_received(struct conn *conn, struct memory_buffer *buffer)
{
	if (conn->state > CONN_ESTABLISHED || own_post_receive(conn, buffer) != 0)
		memory_pool_put(conn->own.pool, buffer);
	else if (conn->own.posted < conn_receives(conn))
		own_post_more(conn); /* not now, then with another */
}
