/* op.c: operations on windows: what is refused, their begin, their ends. See window.h. */
#include "peer/windows/window.h"

#include <stdarg.h>
#include <stdlib.h>

static const struct window_verb {
	const char *text;
	unsigned right;
	const char *named;
} verbs[] = {
	[WINDOW_WRITE] = {"write", RDMA_WINDOW_WRITE, "RDMA_WINDOW_WRITE"},
	[WINDOW_READ] = {"read", RDMA_WINDOW_READ, "RDMA_WINDOW_READ"},
	[WINDOW_FETCH_ADD] = {"add", RDMA_WINDOW_ATOMIC, "RDMA_WINDOW_ATOMIC"},
	[WINDOW_COMPARE_SWAP] = {"compare and swap", RDMA_WINDOW_ATOMIC, "RDMA_WINDOW_ATOMIC"},
};

const char *op_verb(enum window_kind kind)
{
	return verbs[kind].text;
}

bool op_check(const struct rdma_remote *remote, enum window_kind kind, uint64_t offset, const void *data, size_t length)
{
	const struct window_verb *verb = &verbs[kind];
	const struct peer *peer;

	if (!remote || (!data && length)) {
		rdma_fail(-EINVAL, "Invalid parameters: the %s is NULL", remote ? "memory" : "window");
		return false;
	}
	peer = remote->peer;
	if (peer->state == PEER_GONE)
		rdma_fail(-ECONNRESET, "Peer not connected: %s: %s", peer->name, peer->why);
	else if (remote->closed)
		rdma_fail(-EPIPE, "Window closed: %s has closed it", peer->name);
	else if (!(remote->rights & verb->right))
		rdma_fail(-EACCES, "No right to %s: %s shares the window without %s", verb->text, peer->name,
			  verb->named);
	else if (length > remote->size || offset > remote->size - length)
		rdma_fail(-ERANGE, "Out of range: %zu bytes at %llu of a window of %llu bytes", length,
			  (unsigned long long)offset, (unsigned long long)remote->size);
	else if (kind >= WINDOW_FETCH_ADD && offset % sizeof(uint64_t))
		rdma_fail(-EINVAL, "Not aligned: a word of 8 bytes at %llu", (unsigned long long)offset);
	else if (remote->refused)
		rdma_fail(remote->refused, "%s has no key for its window: %s", peer->name, strerror(-remote->refused));
	else
		return true;
	return false;
}

static bool op_cancel(struct rdma_request *request);
static uint64_t op_abandon(struct rdma_request *request);

struct window_op *op_new(struct rdma_remote *remote, enum window_kind kind, uint64_t offset, void *data, size_t length)
{
	struct peer *peer = remote->peer;
	struct rdma_request *request = request_new(peer->ctx, peer);
	struct list *spare = &peer->window->free;
	struct window_op *op = NULL;

	if (request && list_empty(spare)) {
		op = malloc(sizeof(*op));
	} else if (request) {
		op = list_first(spare, struct window_op, node);
		list_del(&op->node);
	}
	if (!op) {
		if (request)
			request_free(request);
		rdma_fail(-ENOMEM, "No memory for another operation");
		return NULL;
	}
	*op = (struct window_op){.request = request,
				 .remote = remote,
				 .kind = kind,
				 .offset = offset,
				 .data = data,
				 .length = length,
				 .notify = RDMA_NO_NOTICE};
	list_init(&op->node);
	request->owner = op;
	request->cancel = op_cancel;
	request->abandon = op_abandon;
	remote->operations++;
	return op;
}

struct rdma_request *op_begin(struct window_op *op)
{
	struct peer_window *pw = op->remote->peer->window;
	struct rdma_request *request = op->request;

	list_add_tail(&pw->waiting, &op->node);
	window_pump(pw);
	return request;
}

/* Back to where it came from; *op is void. */
static void op_free(struct window_op *op)
{
	struct rdma_remote *remote = op->remote;

	op_unreach(op);
	if (list_linked(&op->node))
		list_del(&op->node);
	free(op->why);
	remote->notices -= op->counted && !op->noticed;
	list_add_head(&remote->peer->window->free, &op->node);
	remote->operations--;
	remote_settle(remote);
}

void op_end(struct window_op *op, int status)
{
	struct rdma_request *request = op->request;

	must(!op->in_flight);
	if (request && status == 0)
		request_complete(request, 0, 0);
	else if (request)
		request_fail(request, status, op->why ? "%s" : NULL, op->why);
	op_free(op);
}

static void op_fail_va(struct window_op *op, int status, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));
static void op_fail_va(struct window_op *op, int status, const char *format, va_list args)
{
	if (op->status == 0) {
		op->status = status;
		if (vasprintf(&op->why, format, args) < 0)
			op->why = NULL;
	}
	if (!op->in_flight)
		op_end(op, op->status);
}

void op_fail(struct window_op *op, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	op_fail_va(op, status, format, args);
	va_end(args);
}

/* Cancel an operation that is not begun. */
static bool op_cancel(struct rdma_request *request)
{
	struct window_op *op = request->owner;

	if (op->begun || op->number)
		return false;
	op_free(op);
	return true;
}

/* The memory of the call is not needed any more: no call waits for the end of the operation. */
static void op_detach(struct window_op *op, const char *words)
{
	struct rdma_request *request = op->request;

	op->request = NULL;
	op->status = -ETIMEDOUT;
	request_fail(request, -ETIMEDOUT, "Timed out: %s: %s", request->peer->name, words);
}

/* Pieces of the caller's own memory that do not come back in time do so with the end of the connection. */
static uint64_t op_abandon(struct rdma_request *request)
{
	struct window_op *op = request->owner;
	struct conn *conn = request->peer->conn;
	bool first = op->status == 0;

	if (op->number) {
		op_detach(op, "it has not answered, and it is not known whether it was done");
	} else if (op->in_flight && (op->landing || !op->engine)) {
		op_detach(op, "it has not confirmed, and it is not known whether it was done");
	} else if (first) {
		op_fail(op, -ETIMEDOUT, "Timed out: %s: a part of it may have been done", request->peer->name);
		return time_now() + WINDOW_GRACE;
	} else if (conn) {
		conn_close(conn, -ETIMEDOUT, "the time of a call is over, and its memory is still in use");
	}
	return TIME_NEVER;
}

static void ops_list_fail(struct list *list, const struct rdma_remote *remote, int status, const char *format,
			  va_list args) __attribute__((format(printf, 4, 0)));
static void ops_list_fail(struct list *list, const struct rdma_remote *remote, int status, const char *format,
			  va_list args)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, list) {
		struct window_op *op = container_of(pos, struct window_op, node);
		va_list copy;

		if (remote && op->remote != remote)
			continue;
		va_copy(copy, args);
		op_fail_va(op, status, format, copy);
		va_end(copy);
	}
}

void ops_fail(struct peer_window *pw, const struct rdma_remote *remote, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	ops_list_fail(&pw->waiting, remote, status, format, args);
	if (!remote) {
		ops_list_fail(&pw->posted, NULL, status, format, args);
		ops_list_fail(&pw->asked, NULL, status, format, args);
	}
	va_end(args);
}

void ops_free(struct peer_window *pw)
{
	while (!list_empty(&pw->free)) {
		struct window_op *op = list_first(&pw->free, struct window_op, node);

		list_del(&op->node);
		free(op);
	}
	while (!list_empty(&pw->pieces)) {
		struct window_piece *piece = list_first(&pw->pieces, struct window_piece, node);

		list_del(&piece->node);
		free(piece);
	}
}
