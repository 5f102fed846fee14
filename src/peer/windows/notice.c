/* notice.c: what users tell the owner behind a write: numbers, which wait until they are taken. See window.h. */
#include "peer/windows/window.h"

#include <stdlib.h>

#define NOTED_AT (WIRE_WINDOW_NOTICES / 4) /* notices taken until the user hears of it */

static int window_notices_push(struct window_notices *n, struct window_notice notice)
{
	uint32_t size = n->ring ? n->mask + 1 : 0, count = n->head - n->tail;

	if (count == size) {
		struct window_notice *ring = calloc(size ? 2 * (size_t)size : 64, sizeof(*ring));

		if (!ring)
			return -ENOMEM;
		for (uint32_t i = 0; i < count; i++)
			ring[i] = n->ring[(n->tail + i) & n->mask];
		free(n->ring);
		*n = (struct window_notices){.ring = ring, .mask = size ? 2 * size - 1 : 63, .head = count};
	}
	n->ring[n->head++ & n->mask] = notice;
	return 0;
}

int window_notice_came(struct peer *peer, const union window_body *body)
{
	struct window_share *share = share_find(peer, body->notice.id);

	if (!share)
		return 0;
	if (share->notices == WIRE_WINDOW_NOTICES)
		return -EPROTO;
	share->notices++;
	peer->ctx->progressed++;
	return window_notices_push(
		&share->window->notices,
		(struct window_notice){.value = body->notice.value, .share = share->id, .from = peer->index});
}

/* Or no peer is left that could send any. */
static bool window_has_notice(const void *arg)
{
	const struct rdma_window *window = arg;

	return window->notices.head != window->notices.tail || list_empty(&window->shares);
}

static int window_notice_take(struct rdma_window *window, uint64_t *notify, int *from)
{
	struct window_notices *n = &window->notices;
	struct wire_window_notice noticed;
	struct window_notice notice;
	struct window_share *share;

	if (n->head == n->tail)
		return rdma_fail(-EPIPE, "No notice can come: no peer has the window");
	notice = n->ring[n->tail++ & n->mask];
	share = share_of(window, notice.from);
	if (share && share->id == notice.share && ++share->taken >= NOTED_AT) {
		struct peer *peer = share->peer; /* which may be lost by the next, with the share */

		noticed = (struct wire_window_notice){.id = share->id, .value = share->taken};
		share->notices -= share->taken;
		share->taken = 0;
		window_say(peer, WIRE_CONTROL_WINDOW_NOTICED, &noticed, sizeof(noticed));
		message_flush(peer);
	}
	if (notify)
		*notify = notice.value;
	if (from)
		*from = notice.from;
	return 0;
}

int rdma_notice(rdma_window *window, uint64_t *notify, int *from, uint64_t timeout_ms)
{
	rdma_context *ctx;
	int rc = 0;

	if (!window)
		return rdma_fail(-EINVAL, "Invalid parameters: the window is NULL");
	ctx = window->ctx;
	rdma_enter(ctx);
	if (!window_has_notice(window) || list_empty(&window->shares))
		context_turn(ctx);
	if (!window_has_notice(window))
		rc = context_wait(ctx, window_has_notice, window, context_after(timeout_ms));
	if (rc != 0)
		rc = rdma_fail(rc, rc == -ETIMEDOUT ? "Timed out: no notice came" : "Cannot wait in a callback");
	else
		rc = window_notice_take(window, notify, from);
	rdma_leave(ctx);
	return rc;
}
