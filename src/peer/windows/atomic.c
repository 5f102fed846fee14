/*
 * atomic.c: operations on words of a window: by a device, or by the owner's progress, which ATOMIC asks for. This can
 * change once, from the device to the owner. See window.h.
 */
#include "peer/windows/window.h"

#include <stdlib.h>

/* An ATOMIC that waits until no device carries out any. */
struct parked {
	struct list node; /* of its window */
	struct window_share *share;
	struct wire_window_atomic atomic;
};

/*
 * The owner
 */
bool window_may_device(const struct rdma_window *window, const struct peer *peer)
{
	return peer->engine && peer->engine == window->atomics && peer->window->atomics;
}

void window_switch(struct rdma_window *window)
{
	struct list *pos, *tmp;

	if (!window->by_device)
		return;
	window->by_device = false;
	list_for_each_safe (pos, tmp, &window->shares) {
		struct window_share *share = container_of(pos, struct window_share, node);
		struct wire_window_id say = {.id = share->id};

		share->switching = true;
		window->switching++;
		window_say(share->peer, WIRE_CONTROL_WINDOW_SWITCH, &say, sizeof(say));
	}
}

/* Checks that the peer's library makes as well: 0 or an errno value. */
static int atomic_refused(const struct rdma_window *window, const struct wire_window_atomic *atomic)
{
	if (!(window->rights & RDMA_WINDOW_ATOMIC))
		return EACCES;
	if (atomic->offset % sizeof(uint64_t))
		return EINVAL;
	return window->size < sizeof(uint64_t) || atomic->offset > window->size - sizeof(uint64_t) ? ERANGE : 0;
}

static void atomic_say(struct peer *peer, uint64_t number, int error, uint64_t before)
{
	struct wire_window_answer say = {.number = number, .error = (uint32_t)error, .before = before};

	window_say(peer, WIRE_CONTROL_WINDOW_ANSWER, &say, sizeof(say));
}

static void atomic_execute(const struct rdma_window *window, struct peer *peer, const struct wire_window_atomic *atomic)
{
	int error = atomic_refused(window, atomic);
	uint64_t *word, before = 0;

	if (!error) {
		word = (uint64_t *)(void *)(window->addr + atomic->offset);
		before = atomic->operand;
		if (atomic->operation == WIRE_WINDOW_FETCH_ADD)
			before = __atomic_fetch_add(word, atomic->operand, __ATOMIC_SEQ_CST);
		else
			__atomic_compare_exchange_n(word, &before, atomic->swap, false, __ATOMIC_SEQ_CST,
						    __ATOMIC_SEQ_CST);
	}
	atomic_say(peer, atomic->number, error, before);
}

int atomic_asked(struct peer *peer, const union window_body *body)
{
	const struct wire_window_atomic *atomic = &body->atomic;
	struct window_share *share = share_find(peer, atomic->id);
	struct parked *parked;

	if (atomic->operation != WIRE_WINDOW_FETCH_ADD && atomic->operation != WIRE_WINDOW_COMPARE_SWAP)
		return -EPROTO;
	if (!share) {
		atomic_say(peer, atomic->number, EPIPE, 0);
		return 0;
	}
	if (share->window->by_device || share->parked >= WIRE_WINDOW_ATOMICS)
		return -EPROTO;
	if (!share->window->switching) {
		atomic_execute(share->window, peer, atomic);
		return 0;
	}
	parked = calloc(1, sizeof(*parked));
	if (!parked)
		return -ENOMEM;
	*parked = (struct parked){.share = share, .atomic = *atomic};
	list_add_tail(&share->window->parked, &parked->node);
	share->parked++;
	return 0;
}

/* error 0: it is carried out. */
static void parked_end(struct parked *parked, int error)
{
	struct window_share *share = parked->share;

	list_del(&parked->node);
	share->parked--;
	if (error)
		atomic_say(share->peer, parked->atomic.number, error, 0);
	else
		atomic_execute(share->window, share->peer, &parked->atomic);
	free(parked);
}

static void window_switched(struct window_share *share)
{
	struct rdma_window *window = share->window;

	if (!share->switching)
		return;
	share->switching = false;
	if (--window->switching)
		return;
	while (!list_empty(&window->parked))
		parked_end(list_first(&window->parked, struct parked, node), 0);
}

/* Forget all of a share. */
void atomic_forget(struct window_share *share)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &share->window->parked) {
		struct parked *parked = container_of(pos, struct parked, node);

		if (parked->share == share)
			parked_end(parked, EPIPE);
	}
	window_switched(share);
}

int atomic_switched(struct peer *peer, const union window_body *body)
{
	struct window_share *share = share_find(peer, body->which.id);

	if (!share)
		return 0;
	if (!share->switching)
		return -EPROTO;
	window_switched(share);
	return 0;
}

/*
 * The user
 */
void remote_switch_settle(struct rdma_remote *remote)
{
	struct wire_window_id say = {.id = remote->id};

	if (!remote->switching || remote->atomics || remote->ended)
		return;
	remote->switching = false;
	window_say(remote->peer, WIRE_CONTROL_WINDOW_SWITCHED, &say, sizeof(say));
}

int atomic_switch(struct peer *peer, const union window_body *body)
{
	struct rdma_remote *remote = remote_find(peer->window, body->which.id);

	if (!remote)
		return 0;
	if (!remote->by_device)
		return -EPROTO;
	remote->by_device = false;
	remote->switching = true;
	remote_switch_settle(remote);
	window_pump(peer->window);
	return 0;
}

static int atomic_by_device(struct peer_window *pw, struct window_op *op)
{
	struct rdma_remote *remote = op->remote;
	struct window_piece *piece = NULL;
	struct conn_part part;
	int rc;

	if (!remote->keyed || !pw->atomics) /* a SWITCH comes */
		return -EBUSY;
	rc = op_reach(pw, op);
	if (rc == 0) {
		piece = piece_take(pw, op, op->length);
		rc = piece ? 0 : -ENOMEM;
	}
	if (rc == 0) {
		part = (struct conn_part){
			.opcode = op->kind == WINDOW_FETCH_ADD ? FABRIC_FETCH_ADD : FABRIC_COMPARE_SWAP,
			.sge_count = 1,
			.sge = {op_sge(op, 0, op->length)},
			.remote_addr = remote->addr + op->offset,
			.rkey = remote->rkey,
			.operand = op->operand,
			.swap = op->swap,
		};
		rc = conn_transfer_chain(pw->peer->conn, &piece->transfer, &part, 1);
		if (rc != 0)
			piece_give(pw, piece);
	}
	if (rc == 0) {
		remote->atomics++;
		piece_posted(pw, piece);
		list_del(&op->node);
		list_add_tail(&pw->posted, &op->node);
	}
	if (rc == 0 || rc == -EAGAIN || rc == -ENOTCONN)
		return rc;
	op_fail(op, rc, "Cannot change a word of a window of %s: %s", pw->peer->name, strerror(-rc));
	return 0;
}

int atomic_advance(struct peer_window *pw, struct window_op *op)
{
	struct rdma_remote *remote = op->remote;
	struct wire_window_atomic say = {
		.id = remote->id,
		.offset = op->offset,
		.operand = op->operand,
		.swap = op->swap,
		.operation = op->kind == WINDOW_FETCH_ADD ? WIRE_WINDOW_FETCH_ADD : WIRE_WINDOW_COMPARE_SWAP,
	};

	if (remote->by_device)
		return atomic_by_device(pw, op);
	if (remote->answers >= WIRE_WINDOW_ATOMICS)
		return -EBUSY;
	remote->answers++;
	say.number = op->number = ++pw->numbers;
	list_del(&op->node);
	list_add_tail(&pw->asked, &op->node);
	window_say(pw->peer, WIRE_CONTROL_WINDOW_ATOMIC, &say, sizeof(say));
	return 0;
}

static struct window_op *op_find_asked(struct peer_window *pw, uint64_t number)
{
	list_for_each (pos, &pw->asked) {
		struct window_op *op = container_of(pos, struct window_op, node);

		if (op->number == number)
			return op;
	}
	return NULL;
}

int atomic_answered(struct peer *peer, const union window_body *body)
{
	const struct wire_window_answer *answer = &body->answer;
	struct window_op *op = op_find_asked(peer->window, answer->number);

	if (!op)
		return -EPROTO;
	op->remote->answers--;
	if (answer->error) {
		op_fail(op, -(int)(answer->error & 0xfff), "%s refused to change a word of its window: %s", peer->name,
			strerror((int)(answer->error & 0xfff)));
	} else {
		if (op->request)
			*op->before = answer->before;
		op_end(op, 0);
	}
	window_pump(peer->window);
	return 0;
}

/*
 * Calls
 */
static int atomic_wait(rdma_remote *remote, enum window_kind kind, uint64_t offset, uint64_t operand, uint64_t swap,
		       uint64_t *before)
{
	rdma_context *ctx = remote ? remote->peer->ctx : NULL;
	struct window_op *op = NULL;
	struct rdma_request *request;
	uint64_t ignored;
	int64_t rc = -1;

	if (!before)
		before = &ignored;
	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the window is NULL");
	rdma_enter(ctx);
	if (op_check(remote, kind, offset, before, sizeof(*before)))
		op = op_new(remote, kind, offset, NULL, sizeof(*before));
	if (op) {
		op->operand = operand;
		op->swap = swap;
		op->before = before;
		request = op_begin(op);
		rc = request_finish(request);
	}
	rdma_leave(ctx);
	return rc < 0 ? -1 : 0;
}

int rdma_fetch_add(rdma_remote *remote, uint64_t offset, uint64_t add, uint64_t *before)
{
	return atomic_wait(remote, WINDOW_FETCH_ADD, offset, add, 0, before);
}

int rdma_compare_swap(rdma_remote *remote, uint64_t offset, uint64_t expected, uint64_t desired, uint64_t *before)
{
	return atomic_wait(remote, WINDOW_COMPARE_SWAP, offset, expected, desired, before);
}

const char *rdma_remote_atomics(const rdma_remote *remote)
{
	bool by_device;

	if (!remote)
		return NULL;
	rdma_enter(remote->peer->ctx);
	by_device = remote->by_device && remote->peer->window->atomics;
	rdma_leave(remote->peer->ctx);
	return by_device ? "device" : "peer";
}
