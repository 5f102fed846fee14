/*
 * pace.c: clients with a limit of bytes or requests a second. All that a connection has moved is counted before more of
 * it is taken: a client over its limit waits, parked, and is refused nothing. The count is the client's, of all of its
 * connections and in all threads.
 */
#include "conn/internal.h"

static uint64_t conn_bytes(const struct conn *conn)
{
	return conn->bytes_in + conn->bytes_out + conn->transfer.begun;
}

/* Count what was moved since the last time. When the client may go on. */
static uint64_t pace_count(struct conn *conn)
{
	uint64_t records = conn->records_in;
	uint64_t bytes = conn_bytes(conn);
	uint64_t until = auth_spend(conn->admission.client, bytes - conn->pace.bytes, records - conn->pace.records,
				    conn->group->now);

	conn->pace.records = records;
	conn->pace.bytes = bytes;
	return until;
}

void conn_pace_choose(struct conn *conn)
{
	conn->pace.used = conn->admission.client && conn->admission.client->spent;
	conn->pace.until = 0;
	conn->pace.records = conn->records_in;
	conn->pace.bytes = conn_bytes(conn);
}

bool conn_pace_waits(struct conn *conn)
{
	if (conn->pace.until <= conn->group->now)
		conn->pace.until = pace_count(conn);
	if (conn->pace.until <= conn->group->now)
		return false;
	conn->group->stats.paced += !conn->parked.first;
	conn->stuck.busy = true; /* the peer is not to blame, and what it pushes stays in its stream */
	conn_timer_set(conn, conn->pace.until);
	return true;
}

void conn_pace_end(struct conn *conn)
{
	if (conn->pace.used)
		pace_count(conn);
}
