/* transfer.c: reads and writes of the peer's memory, each completed exactly once. */
#include "conn/internal.h"

bool conn_transfer_room(const struct conn *conn)
{
	return conn->transfer_count < conn->group->attr.transfers;
}

static int post(struct conn *conn, struct conn_transfer *transfer, enum fabric_opcode opcode,
		const struct fabric_sge *sge, uint64_t remote_addr, uint32_t rkey)
{
	struct fabric_wr wr = {
		.id = (uintptr_t)transfer | CONN_ID_TRANSFER,
		.opcode = opcode,
		.signaled = true,
		.sge_count = 1,
		.sge = {*sge},
		.remote_addr = remote_addr,
		.rkey = rkey,
	};
	int rc = -EAGAIN;

	if (conn->state != CONN_ESTABLISHED)
		return -ENOTCONN;
	if (conn_transfer_room(conn))
		rc = fabric_post(conn->endpoint, &wr);
	if (rc == -EAGAIN)
		conn_wait_writable(conn);
	else if (rc != 0)
		conn_close(conn, rc, "cannot %s its memory: %s",
			   opcode == FABRIC_READ ? "read" : "write", strerror(-rc));
	if (rc != 0)
		return rc;
	if (!conn->transfer_count) {
		conn->transfer_since = conn->group->now;
		if (conn->group->attr.stall_timeout)
			conn_timer_set(conn->group, conn->group->now + TRANSFER_PATIENCE(conn));
	}
	transfer->conn = conn;
	list_add_tail(&conn->transfers, &transfer->node);
	conn->transfer_count++;
	conn->in_flight++;
	return 0;
}

int conn_read(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *to,
	      uint64_t remote_addr, uint32_t rkey)
{
	return post(conn, transfer, FABRIC_READ, to, remote_addr, rkey);
}

int conn_write(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *from,
	       uint64_t remote_addr, uint32_t rkey)
{
	return post(conn, transfer, FABRIC_WRITE, from, remote_addr, rkey);
}

void conn_transfer_completed(struct conn_transfer *transfer, enum fabric_status status)
{
	struct conn *conn = transfer->conn;

	list_del(&transfer->node);
	conn->transfer_count--;
	conn->in_flight--;
	conn->transfer_since = conn->stuck_since = conn->group->now; /* it gets on */
	transfer->done(transfer, status);
}

void conn_transfers_flush(struct conn *conn)
{
	while (!list_empty(&conn->transfers))
		conn_transfer_completed(list_first(&conn->transfers, struct conn_transfer, node),
					FABRIC_FLUSHED);
}
