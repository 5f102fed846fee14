/*
 * access.c: reads and writes. An operation is cut into pieces, which are posted in order, some at a time, and complete
 * in order; so what is done is a beginning of it, and on another connection it goes on from there. See window.h.
 */
#include "peer/messages/message.h"
#include "peer/windows/window.h"

#include <stdlib.h>

/*
 * Memory of this side
 */

/* Memory that is part of a window of this program is registered already; for reads it must be writable. */
static const struct fabric_region *op_own_region(const struct peer_window *pw, const struct window_op *op)
{
	bool brings = op->kind != WINDOW_WRITE;

	list_for_each (pos, &pw->peer->ctx->windows) {
		const struct rdma_window *window = container_of(pos, struct rdma_window, node);
		size_t offset = (size_t)(op->data - window->addr);

		if (offset >= window->size || op->length > window->size - offset)
			continue;
		return brings && !(window->rights & RDMA_WINDOW_WRITE) ? NULL : window_region_find(window, pw->engine);
	}
	return NULL;
}

int op_reach(struct peer_window *pw, struct window_op *op)
{
	unsigned access = op->kind == WINDOW_WRITE ? 0 : pw->sink;
	int rc;

	if (op->engine || !op->length || (op->kind == WINDOW_WRITE && op->length <= pw->inline_size))
		return 0;
	if (op->length <= WINDOW_COPIED) {
		op->landing = landing_take(engine_buffers(pw->engine), WINDOW_COPIED, pw->sink);
		if (!op->landing)
			return -ENOMEM;
		if (op->kind == WINDOW_WRITE)
			memcpy(landing_data(op->landing), op->data, op->length);
		op->engine = pw->engine;
		return 0;
	}
	op->own = pw->sink == FABRIC_LOCAL_WRITE ? op_own_region(pw, op) : NULL;
	rc = op->own ? 0 : message_reach(pw->peer, op->data, op->length, access, &op->reach);
	if (rc == 0)
		op->engine = pw->engine;
	return rc;
}

void op_unreach(struct window_op *op)
{
	if (op->landing)
		landing_give(op->landing);
	else if (op->engine && !op->own)
		buffers_unreach(engine_buffers(op->engine), &op->reach);
	op->landing = NULL;
	op->own = NULL;
	op->engine = NULL;
}

/* [at, at + length) of it. */
struct fabric_sge op_sge(const struct window_op *op, size_t at, size_t length)
{
	struct fabric_sge sge = {.addr = length ? op->data + at : NULL, .len = length};

	if (op->landing) {
		sge.addr = (char *)landing_data(op->landing) + at;
		sge.region = landing_region(op->landing);
	} else if (op->engine) {
		sge.region = op->own ? op->own : reach_region(&op->reach);
	}
	return sge;
}

/*
 * Pieces
 */
static void piece_done(struct conn_transfer *transfer, enum fabric_status status);

struct window_piece *piece_take(struct peer_window *pw, struct window_op *op, size_t length)
{
	struct window_piece *piece = &op->first;

	if (op->first_used && list_empty(&pw->pieces)) {
		piece = malloc(sizeof(*piece));
	} else if (op->first_used) {
		piece = list_first(&pw->pieces, struct window_piece, node);
		list_del(&piece->node);
	}
	if (!piece)
		return NULL;
	op->first_used = true;
	*piece = (struct window_piece){.op = op, .length = length, .transfer.done = piece_done};
	return piece;
}

void piece_posted(struct peer_window *pw, struct window_piece *piece)
{
	struct window_op *op = piece->op;

	op->begun = true;
	op->posted += piece->length;
	op->in_flight++;
	op->remote->in_flight++;
	pw->in_flight++;
	pw->ahead += piece->length;
}

void piece_give(struct peer_window *pw, struct window_piece *piece)
{
	if (piece == &piece->op->first)
		piece->op->first_used = false;
	else
		list_add_head(&pw->pieces, &piece->node);
}

/* NOTICE, of a write that is complete, or where the connection keeps it behind the write. */
static void op_notice(struct window_op *op)
{
	struct wire_window_notice say = {.id = op->remote->id, .value = op->notify};

	if (op->kind != WINDOW_WRITE || op->notify == RDMA_NO_NOTICE || op->noticed)
		return;
	op->noticed = true;
	window_say(op->remote->peer, WIRE_CONTROL_WINDOW_NOTICE, &say, sizeof(say));
}

/* Why it cannot be done again on another connection, if it cannot. */
static void op_fail_by_status(struct window_op *op, enum fabric_status status)
{
	const char *name = op->remote->peer->name;

	if (status == FABRIC_REMOTE_ACCESS)
		op_fail(op, -EACCES, "%s refused access: its window is closed, or not what it said", name);
	else if (status == FABRIC_LOCAL_ERROR)
		op_fail(op, -EFAULT, "The device could not reach the memory of this side");
	else if (op->kind >= WINDOW_FETCH_ADD)
		op_fail(op, -ECONNABORTED, "The connection to %s broke: it is not known whether it was done", name);
}

void ops_rewind(struct peer_window *pw)
{
	while (!list_empty(&pw->posted)) {
		struct list *last = pw->posted.prev;

		list_del(last);
		list_add_head(&pw->waiting, last);
	}
	list_for_each (pos, &pw->waiting) {
		struct window_op *op = container_of(pos, struct window_op, node);

		op->posted = op->done;
		op->begun = op->done > 0;
		op_unreach(op);
	}
}

/* Its last piece under way is back. */
static void op_settle(struct window_op *op, enum fabric_status status)
{
	if (op->status) {
		op_end(op, op->status);
	} else if (status == FABRIC_OK && op->done == op->length) {
		if (op->kind == WINDOW_READ && op->landing)
			memcpy(op->data, landing_data(op->landing), op->length);
		else if (op->kind >= WINDOW_FETCH_ADD)
			memcpy(op->before, landing_data(op->landing), sizeof(*op->before));
		op_notice(op);
		op_end(op, 0);
	}
}

static void piece_done(struct conn_transfer *transfer, enum fabric_status status)
{
	struct window_piece *piece = container_of(transfer, struct window_piece, transfer);
	struct window_op *op = piece->op;
	struct rdma_remote *remote = op->remote;
	struct peer_window *pw = remote->peer->window;

	pw->in_flight--;
	pw->ahead -= piece->length;
	pw->stalled |= status != FABRIC_OK;
	remote->in_flight--;
	remote->atomics -= op->kind >= WINDOW_FETCH_ADD;
	op->done += status == FABRIC_OK ? piece->length : 0;
	piece_give(pw, piece);
	remote->operations++; /* it outlives the operation */
	if (status != FABRIC_OK)
		op_fail_by_status(op, status);
	if (--op->in_flight == 0)
		op_settle(op, status);
	remote->operations--;
	remote_settle(remote);
	if (pw->stalled && !pw->in_flight)
		ops_rewind(pw);
	window_pump(pw);
}

/*
 * What is posted
 */
static int op_post(struct peer_window *pw, struct window_op *op)
{
	struct rdma_remote *remote = op->remote;
	size_t length = MIN(op->length - op->posted, WINDOW_PIECE);
	struct window_piece *piece = piece_take(pw, op, length);
	struct fabric_sge sge = op_sge(op, op->posted, length);
	uint64_t addr = remote->addr + op->offset + op->posted;
	int rc;

	if (!piece)
		return -ENOMEM;
	if (op->kind == WINDOW_READ)
		rc = conn_read(pw->peer->conn, &piece->transfer, &sge, addr, remote->rkey);
	else
		rc = conn_write(pw->peer->conn, &piece->transfer, &sge, addr, remote->rkey);
	if (rc == 0)
		piece_posted(pw, piece);
	else
		piece_give(pw, piece);
	return rc;
}

/* Whether its notice may be under way, too. */
static bool op_count_notice(struct window_op *op)
{
	struct rdma_remote *remote = op->remote;

	if (op->notify == RDMA_NO_NOTICE || op->counted)
		return true;
	if (remote->notices >= WIRE_WINDOW_NOTICES)
		return false;
	remote->notices++;
	op->counted = true;
	return true;
}

/* 0: all of it is under way, or it is no more. -EAGAIN: later. -EBUSY: not before something that its remote waits
 * for. */
static int op_advance(struct peer_window *pw, struct window_op *op)
{
	int rc;

	if (op->kind >= WINDOW_FETCH_ADD)
		return atomic_advance(pw, op);
	if (!op->remote->keyed || !op_count_notice(op))
		return -EBUSY;
	rc = op_reach(pw, op);
	while (rc == 0 && !(op->begun && op->posted == op->length))
		rc = pw->ahead >= WINDOW_AHEAD ? -EAGAIN : op_post(pw, op);
	if (rc == -EAGAIN || rc == -ENOTCONN)
		return rc;
	if (rc != 0) {
		op_fail(op, rc, "Cannot %s a window of %s: %s", op_verb(op->kind), pw->peer->name,
			*rdmad_error() ? rdmad_error() : strerror(-rc));
		return 0;
	}
	list_del(&op->node);
	list_add_tail(&pw->posted, &op->node);
	if (!pw->peer->resumes)
		op_notice(op);
	return 0;
}

void window_pump(struct peer_window *pw)
{
	struct list *pos, *tmp;

	if (pw->stalled || !pw->peer->conn)
		return;
	pw->round++;
	list_for_each_safe (pos, tmp, &pw->waiting) {
		struct window_op *op = container_of(pos, struct window_op, node);
		int rc;

		if (op->remote->blocked == pw->round || op->status)
			continue;
		rc = op_advance(pw, op);
		if (rc == -EBUSY)
			op->remote->blocked = pw->round;
		else if (rc != 0)
			break;
	}
}

/*
 * Calls
 */
static rdma_request *access_begin(rdma_remote *remote, enum window_kind kind, uint64_t offset, const void *data,
				  size_t length, uint64_t notify)
{
	struct window_op *op = NULL;

	if (op_check(remote, kind, offset, data, length))
		op = op_new(remote, kind, offset, (void *)data, length);
	if (!op)
		return NULL;
	op->notify = notify;
	return op_begin(op);
}

static rdma_request *access_start(rdma_remote *remote, enum window_kind kind, uint64_t offset, const void *data,
				  size_t length, uint64_t notify)
{
	rdma_context *ctx = remote ? remote->peer->ctx : NULL;
	rdma_request *request;

	if (!ctx)
		return access_begin(NULL, kind, offset, data, length, notify);
	rdma_enter(ctx);
	request = access_begin(remote, kind, offset, data, length, notify);
	rdma_leave(ctx);
	return request;
}

static int access_wait(rdma_remote *remote, enum window_kind kind, uint64_t offset, const void *data, size_t length,
		       uint64_t notify)
{
	rdma_context *ctx = remote ? remote->peer->ctx : NULL;
	rdma_request *request;
	int64_t rc = -1;

	if (!ctx)
		return access_begin(NULL, kind, offset, data, length, notify) ? 0 : -1;
	rdma_enter(ctx);
	request = access_begin(remote, kind, offset, data, length, notify);
	if (request)
		rc = request_finish(request);
	rdma_leave(ctx);
	return rc < 0 ? -1 : 0;
}

int rdma_write(rdma_remote *remote, uint64_t offset, const void *data, size_t len, uint64_t notify)
{
	return access_wait(remote, WINDOW_WRITE, offset, data, len, notify);
}

int rdma_read(rdma_remote *remote, uint64_t offset, void *data, size_t len)
{
	return access_wait(remote, WINDOW_READ, offset, data, len, RDMA_NO_NOTICE);
}

rdma_request *rdma_iwrite(rdma_remote *remote, uint64_t offset, const void *data, size_t len, uint64_t notify)
{
	return access_start(remote, WINDOW_WRITE, offset, data, len, notify);
}

rdma_request *rdma_iread(rdma_remote *remote, uint64_t offset, void *data, size_t len)
{
	return access_start(remote, WINDOW_READ, offset, data, len, RDMA_NO_NOTICE);
}
