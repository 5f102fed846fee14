/* remote.c: a window's user: what peers offer, and what is open of it. See window.h. */
#include "peer/windows/window.h"

#include <stdlib.h>

static struct rdma_remote *remote_find_in(const struct list *list, uint64_t id)
{
	list_for_each (pos, list) {
		struct rdma_remote *remote = container_of(pos, struct rdma_remote, node);

		if (remote->id == id)
			return remote;
	}
	return NULL;
}

struct rdma_remote *remote_find(struct peer_window *pw, uint64_t id)
{
	struct rdma_remote *remote = remote_find_in(&pw->remotes, id);

	return remote ? remote : remote_find_in(&pw->offers, id);
}

/* Begin no more operations with it. */
static void remote_end(struct rdma_remote *remote)
{
	struct peer_window *pw = remote->peer->window;

	remote->ended = true;
	list_del(&remote->node);
	list_add_tail(&pw->ended, &remote->node);
	pw->remote_count--;
}

static void remote_free(struct rdma_remote *remote)
{
	list_del(&remote->node);
	peer_released(remote->peer);
	free(remote);
}

static bool share_is_sane(const struct wire_window_share *share)
{
	bool aligned = !(share->rights & WIRE_WINDOW_ATOMIC) || share->addr % sizeof(uint64_t) == 0;

	return share->rights && !(share->rights & ~WIRE_WINDOW_RIGHTS) && aligned && share->size <= PTRDIFF_MAX &&
	       share->addr + share->size >= share->addr;
}

int remote_offered(struct peer *peer, const union window_body *body)
{
	struct peer_window *pw = peer->window;
	struct rdma_remote *remote;

	if (!share_is_sane(&body->share) || pw->remote_count >= WIRE_WINDOW_SHARES || remote_find(pw, body->share.id))
		return -EPROTO;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return -ENOMEM;
	*remote = (struct rdma_remote){
		.peer = peer,
		.id = body->share.id,
		.addr = body->share.addr,
		.size = body->share.size,
		.rights = body->share.rights,
		.by_device = body->share.flags & WIRE_WINDOW_BY_DEVICE,
	};
	list_add_tail(&pw->offers, &remote->node);
	pw->remote_count++;
	peer->ctx->progressed++;
	return 0;
}

static void remote_ask_key(struct rdma_remote *remote)
{
	struct peer_window *pw = remote->peer->window;
	struct wire_window_ask ask = {.id = remote->id, .epoch = pw->epoch};

	remote->keyed = false;
	if (remote->closed)
		return;
	ask.flags = pw->atomics ? 0 : WIRE_WINDOW_NO_DEVICE;
	window_say(remote->peer, WIRE_CONTROL_WINDOW_ASK, &ask, sizeof(ask));
}

void remotes_ask_keys(struct peer_window *pw)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &pw->remotes)
		remote_ask_key(container_of(pos, struct rdma_remote, node));
}

/* A key of an earlier connection is of no use any more, and another was asked for. */
int remote_key(struct peer *peer, const union window_body *body)
{
	struct rdma_remote *remote = remote_find_in(&peer->window->remotes, body->key.id);

	if (!remote || body->key.epoch != peer->window->epoch)
		return 0;
	remote->keyed = true;
	remote->rkey = body->key.rkey;
	remote->refused = -(int)(body->key.error & 0xfff);
	if (remote->refused)
		ops_fail(peer->window, remote, remote->refused, "%s has no key for its window: %s", peer->name,
			 strerror(-remote->refused));
	window_pump(peer->window);
	return 0;
}

void remote_settle(struct rdma_remote *remote)
{
	bool idle = !remote->operations, over = remote->closed ? !remote->in_flight : remote->released && idle;

	remote_switch_settle(remote);
	if (over && !remote->ended) {
		remote_end(remote);
		window_say_id(remote->peer, WIRE_CONTROL_WINDOW_CLOSED, remote->id);
	}
	if (remote->released && idle)
		remote_free(remote);
}

int remote_close_asked(struct peer *peer, const union window_body *body)
{
	struct peer_window *pw = peer->window;
	struct rdma_remote *remote = remote_find(pw, body->which.id);

	if (!remote)
		return 0;
	remote->closed = true;
	if (!remote->opened)
		remote->released = true;
	remote->operations++; /* it outlives the failures of operations that wait */
	ops_fail(pw, remote, -EPIPE, "Window closed: %s has closed it", peer->name);
	remote->operations--;
	remote_settle(remote);
	return 0;
}

int remote_noticed(struct peer *peer, const union window_body *body)
{
	struct rdma_remote *remote = remote_find_in(&peer->window->remotes, body->notice.id);

	if (!remote)
		return 0;
	if (body->notice.value > remote->notices)
		return -EPROTO;
	remote->notices -= (uint32_t)body->notice.value;
	window_pump(peer->window);
	return 0;
}

void remotes_lost(struct peer_window *pw)
{
	while (!list_empty(&pw->offers)) {
		pw->remote_count--;
		remote_free(list_first(&pw->offers, struct rdma_remote, node));
	}
	while (!list_empty(&pw->remotes)) {
		struct rdma_remote *remote = list_first(&pw->remotes, struct rdma_remote, node);

		remote->closed = true;
		remote_end(remote);
	}
}

void remotes_free(struct peer_window *pw)
{
	remotes_lost(pw);
	while (!list_empty(&pw->ended))
		remote_free(list_first(&pw->ended, struct rdma_remote, node));
}

/*
 * Calls
 */
static bool offer_came(const void *arg)
{
	const struct peer *peer = arg;

	return peer->state == PEER_GONE || (peer->window && !list_empty(&peer->window->offers));
}

static struct rdma_remote *offer_open(struct peer *peer, uint64_t timeout_ms)
{
	struct rdma_remote *remote;
	int rc = 0;

	if (!offer_came(peer))
		rc = context_wait(peer->ctx, offer_came, peer, context_after(timeout_ms));
	if (rc == -ETIMEDOUT)
		rdma_fail(rc, "Timed out: %s shares no window that is not open", peer->name);
	else if (rc != 0)
		rdma_fail(rc, "Cannot wait in a callback");
	else if (peer->state == PEER_GONE)
		rdma_fail(-ECONNRESET, "Peer not connected: %s: %s", peer->name, peer->why);
	if (rc != 0 || peer->state == PEER_GONE)
		return NULL;
	remote = list_first(&peer->window->offers, struct rdma_remote, node);
	list_del(&remote->node);
	list_add_tail(&peer->window->remotes, &remote->node);
	remote->opened = true;
	peer_window_update(peer->window);
	remote_ask_key(remote);
	message_flush(peer);
	return remote;
}

rdma_remote *rdma_window_open(rdma_context *ctx, int peer_idx, uint64_t timeout_ms)
{
	struct rdma_remote *remote = NULL;
	struct peer *peer;

	if (!ctx) {
		rdma_fail(-EINVAL, "Invalid parameters: no context");
		return NULL;
	}
	rdma_enter(ctx);
	peer = peer_connected(ctx, peer_idx);
	if (peer)
		remote = offer_open(peer, timeout_ms);
	rdma_leave(ctx);
	return remote;
}

size_t rdma_remote_size(const rdma_remote *remote)
{
	return remote ? remote->size : 0;
}

unsigned rdma_remote_rights(const rdma_remote *remote)
{
	return remote ? remote->rights : 0;
}

void rdma_remote_close(rdma_remote *remote)
{
	rdma_context *ctx = remote ? remote->peer->ctx : NULL;
	struct peer *peer = remote ? remote->peer : NULL;

	if (!remote)
		return;
	rdma_enter(ctx);
	remote->released = true;
	remote_settle(remote);
	message_flush(peer);
	rdma_leave(ctx);
}
