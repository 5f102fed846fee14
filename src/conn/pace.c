/*
 * pace.c: clients with a limit of bytes or requests a second. All that a connection has moved is counted before more of
 * it is taken: a client over its limit waits, parked, and is refused nothing. The count is the client's, of all of its
 * connections and in all threads.
 */
#include "conn/internal.h"

static uint64_t conn_bytes(const struct conn *conn)
{
	return conn->bytes_in + conn->bytes_out + conn->transferred;
}

/* Count what was moved since the last time. When the client may go on. */
static uint64_t pace_count(struct conn *conn)
{
	uint64_t records = conn->records_in;
	uint64_t bytes = conn_bytes(conn);
	uint64_t until = auth_spend(conn->admission.client, bytes - conn->paced_bytes, records - conn->paced_records,
				    conn->group->now);

	conn->paced_records = records;
	conn->paced_bytes = bytes;
	return until;
}

void conn_pace_choose(struct conn *conn)
{
	conn->paced = conn->admission.client && conn->admission.client->spent;
	conn->paced_until = 0;
	conn->paced_records = conn->records_in;
	conn->paced_bytes = conn_bytes(conn);
}

bool conn_pace_waits(struct conn *conn)
{
	if (conn->paced_until <= conn->group->now)
		conn->paced_until = pace_count(conn);
	if (conn->paced_until <= conn->group->now)
		return false;
	conn->group->stats.paced += !conn->parked;
	conn->busy = true; /* the peer is not to blame, and what it pushes stays in its stream */
	conn_timer_set(conn, conn->paced_until);
	return true;
}

void conn_pace_end(struct conn *conn)
{
	if (conn->paced)
		pace_count(conn);
}
