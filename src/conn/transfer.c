/* transfer.c: reads and writes of the peer's memory, each completed exactly once. */
#include "conn/internal.h"

bool conn_transfer_room(const struct conn *conn, unsigned count)
{
	return conn->transfer.count - conn->push.count + count <= conn->attr.transfers;
}

static int transfer_failed(struct conn *conn, const struct fabric_wr *first, int rc)
{
	if (rc == -EAGAIN)
		conn_wait_writable(conn);
	else if (rc == -ENOTCONN)
		conn_close(conn, 0, "disconnected by the peer");
	else if (rc != -EOPNOTSUPP)
		conn_close(conn, rc, "cannot %s its memory: %s", first->opcode == FABRIC_READ ? "read" : "write",
			   strerror(-rc));
	return rc;
}

static uint64_t bytes_of(const struct fabric_wr *wr)
{
	uint64_t bytes = 0;

	for (; wr; wr = wr->next)
		for (unsigned i = 0; i < wr->sge_count; i++)
			bytes += wr->sge[i].len;
	return bytes;
}

static void transfer_begins(struct conn *conn, struct conn_transfer *transfer)
{
	transfer->conn = conn;
	conn->transfer.bytes += transfer->bytes;
	conn->transfer.begun += transfer->bytes;
	if (!conn->transfer.count) {
		conn->transfer.since = conn->group->now;
		conn->transfer.moved = fabric_moved_bytes(conn->endpoint);
		if (conn->group->attr.stall_timeout)
			conn_timer_set(conn, conn->group->now + conn_transfer_timeout(conn));
	}
	list_add_tail(&conn->transfer.list, &transfer->node);
	conn->transfer.count += transfer->count;
}

/* Post `count` requests, linked; the last of them tells of all. */
static int transfer_post(struct conn *conn, struct conn_transfer *transfer, struct fabric_wr *wr, unsigned count)
{
	int rc = -EAGAIN;

	must(conn_group_is_mine(conn->group) && transfer->done);
	wr[count - 1].id = (uintptr_t)transfer | CONN_ID_TRANSFER;
	wr[count - 1].signaled = true;
	if (conn->state != CONN_ESTABLISHED)
		return -ENOTCONN;
	if (conn_transfer_room(conn, count))
		rc = fabric_post(conn->endpoint, wr);
	if (rc != 0)
		return transfer_failed(conn, wr, rc);
	transfer->count = count;
	transfer->bytes = bytes_of(wr);
	transfer->pushed = false;
	transfer_begins(conn, transfer);
	conn->in_flight++;
	return 0;
}

int conn_read(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *to, uint64_t remote_addr,
	      uint32_t rkey)
{
	struct fabric_wr wr = {
		.opcode = FABRIC_READ, .sge_count = 1, .sge = {*to}, .remote_addr = remote_addr, .rkey = rkey};

	return transfer_post(conn, transfer, &wr, 1);
}

int conn_write(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *from, uint64_t remote_addr,
	       uint32_t rkey)
{
	struct fabric_wr wr = {
		.opcode = FABRIC_WRITE, .sge_count = 1, .sge = {*from}, .remote_addr = remote_addr, .rkey = rkey};

	return transfer_post(conn, transfer, &wr, 1);
}

int conn_write_more(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *from,
		    uint64_t remote_addr, uint32_t rkey)
{
	struct fabric_wr wr = {.opcode = FABRIC_WRITE,
			       .more = true,
			       .sge_count = 1,
			       .sge = {*from},
			       .remote_addr = remote_addr,
			       .rkey = rkey};

	return transfer_post(conn, transfer, &wr, 1);
}

/*
 * Pushes
 */
static void push_begins(struct conn *conn, struct conn_transfer *transfer, size_t bytes)
{
	transfer->count = 1;
	transfer->bytes = bytes;
	transfer->pushed = true;
	conn->push.count++;
	transfer_begins(conn, transfer);
}

bool conn_push_room(const struct conn *conn, size_t len)
{
	return len && len <= conn->accept.push_max && conn->state == CONN_ESTABLISHED &&
	       conn->push.count < conn->group->pushes;
}

void conn_push(struct conn *conn, struct conn_transfer *transfer, struct wire_record *record,
	       const struct fabric_sge *from)
{
	must(conn_group_is_mine(conn->group) && conn->open && transfer->done);
	must(conn_push_room(conn, from->len) && conn->open_pushes < WIRE_PUSHES);
	record->flags |= WIRE_PUSHED;
	transfer->sge = *from;
	transfer->next = NULL;
	*conn->push.tail = transfer;
	conn->push.tail = &transfer->next;
	conn->open_pushes++;
	push_begins(conn, transfer, from->len);
}

const struct conn_transfer *conn_pushes_chain(const struct conn_transfer *t, unsigned count, struct fabric_wr *wr)
{
	for (unsigned i = 0; i < count; i++, t = t->next)
		wr[i] = (struct fabric_wr){
			.id = (uintptr_t)t | CONN_ID_TRANSFER,
			.opcode = FABRIC_PUSH,
			.signaled = true,
			.sge_count = 1,
			.sge = {t->sge},
		};
	return t;
}

void conn_pushes_posted(struct conn *conn, unsigned count)
{
	conn->in_flight += count;
	for (; count; count--)
		conn->push.first = conn->push.first->next;
	if (!conn->push.first)
		conn->push.tail = &conn->push.first;
}

int conn_pull(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *to)
{
	struct fabric_recv recv = {(uintptr_t)transfer | CONN_ID_TRANSFER, *to};
	int rc = -EAGAIN;

	must(conn_group_is_mine(conn->group) && transfer->done && !conn->push.pulled);
	if (conn->state != CONN_ESTABLISHED)
		return -ENOTCONN;
	if (conn_push_room(conn, to->len))
		rc = fabric_pull(conn->endpoint, &recv, 1);
	if (rc != 0) {
		conn_wait_writable(conn);
		return -EAGAIN; /* of -ENOTCONN, too: its end is on its way */
	}
	conn->push.pulled = true;
	push_begins(conn, transfer, to->len);
	conn->in_flight++;
	return 0;
}

void conn_drop_pushed(struct conn *conn, unsigned count)
{
	int rc = count ? fabric_pull(conn->endpoint, NULL, count) : 0;

	if (rc != 0 && rc != -ENOTCONN)
		conn_close(conn, rc, "cannot drop what it pushes: %s", strerror(-rc));
}

/* An immediate takes a credit, and does not overtake what was committed before it. */
static bool immediates_fit(struct conn *conn, unsigned count)
{
	if (!count)
		return true;
	conn_flush(conn);
	if (conn->state != CONN_ESTABLISHED || (conn->credit.left >= count && !conn->send.ready))
		return true;
	conn_wait_writable(conn);
	return false;
}

static void immediates_posted(struct conn *conn, unsigned count)
{
	conn->credit.left -= count;
	conn->messages_out += count;
}

int conn_write_imm(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *from,
		   uint64_t remote_addr, uint32_t rkey, uint32_t imm)
{
	struct fabric_wr wr = {.opcode = FABRIC_WRITE_IMM,
			       .sge_count = 1,
			       .sge = {*from},
			       .imm = imm,
			       .remote_addr = remote_addr,
			       .rkey = rkey};
	int rc;

	if (!immediates_fit(conn, 1))
		return -EAGAIN;
	rc = transfer_post(conn, transfer, &wr, 1);
	if (rc == 0)
		immediates_posted(conn, 1);
	return rc;
}

int conn_transfer_chain(struct conn *conn, struct conn_transfer *transfer, const struct conn_part *parts,
			unsigned count)
{
	struct fabric_wr wr[CONN_CHAIN_MAX];
	unsigned immediates = 0;
	int rc;

	if (!count || count > MIN((uint32_t)CONN_CHAIN_MAX, conn->attr.transfers))
		return -EINVAL;
	for (unsigned i = 0; i < count; i++) {
		wr[i] = (struct fabric_wr){
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.id = CONN_ID_UNSIGNALED,
			.opcode = parts[i].opcode,
			.sge_count = parts[i].sge_count,
			.imm = parts[i].imm,
			.remote_addr = parts[i].remote_addr,
			.rkey = parts[i].rkey,
			.operand = parts[i].operand,
			.swap = parts[i].swap,
		};
		memcpy(wr[i].sge, parts[i].sge, sizeof(wr[i].sge));
		immediates += parts[i].opcode == FABRIC_WRITE_IMM;
	}
	if (!immediates_fit(conn, immediates))
		return -EAGAIN;
	rc = transfer_post(conn, transfer, wr, count);
	if (rc == 0)
		immediates_posted(conn, immediates);
	return rc;
}

void conn_transfer_completed(struct conn_transfer *transfer, enum fabric_status status)
{
	struct conn *conn = transfer->conn;

	must(list_linked(&transfer->node) && conn->in_flight && conn->transfer.count >= transfer->count);
	list_del(&transfer->node);
	conn->transfer.count -= transfer->count;
	conn->push.count -= transfer->pushed;
	conn->transfer.bytes -= transfer->bytes;
	conn->in_flight--;
	conn->transfer.since = conn->stuck.since = conn->group->now; /* it gets on */
	transfer->done(transfer, status);
}

void conn_transfers_flush(struct conn *conn)
{
	while (conn->push.first)
		conn_pushes_posted(conn, 1);
	while (!list_empty(&conn->transfer.list))
		conn_transfer_completed(list_first(&conn->transfer.list, struct conn_transfer, node), FABRIC_FLUSHED);
}

uint64_t conn_transfer_timeout(const struct conn *conn)
{
	uint64_t patience = 4 * conn->group->attr.stall_timeout;

	if (conn->transfer.moved == FABRIC_MOVED_UNKNOWN)
		patience += conn->transfer.bytes / (1u << 20) * TIME_S;
	return patience;
}
