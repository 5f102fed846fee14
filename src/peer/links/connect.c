/* connect.c: peers: their states and names, their end, and the calls of programs that are about them. */
#include "peer/links/connect.h"

#include <stdlib.h>

#define DISCONNECT_PATIENCE (5 * TIME_S) /* for what was sent before */

static const char *const state_names[] = {
	[PEER_CONNECTING] = "connecting", [PEER_WAITING] = "waiting", [PEER_CONNECTED] = "connected",
	[PEER_BROKEN] = "broken",         [PEER_LEAVING] = "leaving", [PEER_GONE] = "gone",
};

/* Counts as one that there is. */
static bool state_present(enum peer_state state)
{
	return state == PEER_CONNECTED || state == PEER_BROKEN;
}

/* Counts for max_peers. A peer that waits has a place of its own. */
static bool state_counts(enum peer_state state)
{
	return state != PEER_WAITING && state != PEER_GONE;
}

void peer_set_state(struct peer *peer, enum peer_state state)
{
	rdma_context *ctx = peer->ctx;

	must(peer->state != PEER_GONE || state == PEER_GONE);
	log_debug("peer", "%d %s: %s to %s", peer->index, peer->name, state_names[peer->state], state_names[state]);
	ctx->connections->held += (uint32_t)state_counts(state) - (uint32_t)state_counts(peer->state);
	peer->state = state;
	ctx->progressed++;
}

struct peer *peer_new(rdma_context *ctx)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->ctx = ctx;
	peer->index = -1;
	list_init(&peer->node);
	if (session_create(peer) != 0) {
		free(peer);
		return NULL;
	}
	ctx->connections->held++;
	return peer;
}

void peer_free(struct peer *peer)
{
	if (list_linked(&peer->node))
		list_del(&peer->node);
	peer->ctx->connections->held -= state_counts(peer->state);
	for_each_layer_down (layer, free)
		layer->free(peer);
	session_destroy(peer);
	free(peer);
}

void peer_set_name(struct peer *peer)
{
	struct conn_info info;

	conn_get_info(peer->conn, &info);
	snprintf(peer->name, sizeof(peer->name), "%s", info.peer);
}

/*
 * Begin
 */

int peer_begin(struct peer *peer, const struct wire_peer_hello *hello)
{
	conn_admit(peer->conn);
	peer->room = hello->room;
	peer->session->their_reconnect_ms = hello->reconnect_ms;
	peer->session->greeted = true;
	peer->resumes = session_resumes(peer);
	session_rest(peer);
	peer_set_state(peer, PEER_CONNECTED);
	for_each_layer (layer, resumed) {
		if (layer->resumed(peer, hello->next))
			continue;
		peer_lose(peer, -EPROTO, "it confirms what was not sent");
		return -EPROTO;
	}
	return 0;
}

int peer_welcome(struct peer *peer)
{
	struct peer_link *link = peer_link_of(peer);
	int rc = link_say_hello(link, 0, WIRE_REPLY);

	if (rc == 0)
		rc = peer_number(peer);
	if (rc != 0) {
		link->peer = NULL;
		link_close(link, rc, strerror(-rc));
		peer_free(peer);
		return rc;
	}
	link->state = LINK_OPEN;
	return peer_begin(peer, &link->hello);
}

int peer_answered(struct peer *peer, const struct wire_peer_hello *hello)
{
	bool again = peer->session->greeted;
	int rc = peer->index < 0 ? peer_number(peer) : 0;

	if (!again)
		peer_set_name(peer);
	if (rc != 0) {
		peer_lose(peer, rc, "no memory for another peer");
		return 0;
	}
	return peer_begin(peer, hello);
}

/*
 * End
 */

void peer_closed(struct peer *peer)
{
	for_each_layer (layer, closed)
		layer->closed(peer);
}

static bool peer_idle(struct peer *peer)
{
	for_each_layer (layer, idle)
		if (!layer->idle(peer))
			return false;
	return true;
}

/* End a peer of which nothing is under way any more. */
static void peer_ended(struct peer *peer)
{
	if (peer->index < 0)
		return;
	for_each_layer (layer, lost)
		layer->lost(peer);
	peer->ctx->progressed++;
	peer->ctx->gone_to_bury = true;
}

/* False: it had gone before. */
static bool peer_go_in_words(struct peer *peer, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
static bool peer_go_in_words(struct peer *peer, const char *format, va_list args)
{
	if (peer->state == PEER_GONE)
		return false;
	vsnprintf(peer->why, sizeof(peer->why), format, args);
	session_rest(peer);
	peer_set_state(peer, PEER_GONE);
	if (list_linked(&peer->node))
		list_del(&peer->node);
	if (peer->session->greeted && !peer->told)
		list_add_tail(&peer->ctx->lost, &peer->node);
	return true;
}

void peer_go(struct peer *peer, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	peer_go_in_words(peer, format, args);
	va_end(args);
}

/* Operations under way end when the connection has: until then the device may use their memory. */
void peer_lose(struct peer *peer, int error, const char *format, ...)
{
	va_list args;
	bool goes;

	va_start(args, format);
	goes = peer_go_in_words(peer, format, args);
	va_end(args);
	if (!goes)
		return;
	if (peer->conn)
		link_close(peer_link_of(peer), error, peer->why);
	else
		peer_ended(peer);
}

void peer_disconnected(struct peer *peer, int error, const char *reason, bool final)
{
	struct dial *dial = &peer->session->dial;

	switch (peer->state) {
	case PEER_CONNECTING:
		if (!dial->final)
			dial_failed(dial, error, reason, final);
		break;
	case PEER_WAITING:
		peer_free(peer);
		break;
	case PEER_CONNECTED:
		if (peer->resumes)
			session_broken(peer, reason);
		else
			peer_lose(peer, error, "%s", reason);
		break;
	case PEER_BROKEN:
		dial_failed(dial, error, reason, false);
		break;
	case PEER_LEAVING:
		peer_closed(peer); /* a group may yet have something to say to it */
		peer->session->bye_heard = true;
		peer->ctx->progressed++;
		break;
	case PEER_GONE:
		peer_ended(peer);
		break;
	}
}

/* Finding a peer
 */
struct peer *peer_find(rdma_context *ctx, int index)
{
	struct peer *peer;

	if (!ctx) {
		rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
		return NULL;
	}
	peer = peer_at(ctx, index);
	if (peer)
		return peer;
	if (index >= 0 && (uint32_t)index < ctx->indices)
		rdma_fail(-ENOTCONN, "Peer not connected: %d %s", index, peer_grave(ctx, index));
	else if (ctx->indices == 0)
		rdma_fail(-EINVAL, "Invalid peer index: %d, and no peer has connected yet", index);
	else
		rdma_fail(-EINVAL, "Invalid peer index: %d was never given out, the last was %u", index,
			  ctx->indices - 1);
	return NULL;
}

struct peer *peer_connected(rdma_context *ctx, int index)
{
	struct peer *peer = peer_find(ctx, index);

	if (!peer || state_present(peer->state))
		return peer;
	if (peer->state == PEER_GONE)
		rdma_fail(-ENOTCONN, "Peer not connected: %d (%s): %s", index, peer->name, peer->why);
	else
		rdma_fail(-ENOTCONN, "Peer not connected: %d (%s) is %s", index, peer->name, state_names[peer->state]);
	return NULL;
}

void peer_look(struct peer *peer)
{
	rdma_context *ctx = peer->ctx;

	if (likely(!peer->conn || !conn_hung_up(peer->conn, time_coarse())) || ctx->running)
		return;
	ctx->running = true;
	engine_see_end(peer->engine, &peer->conn);
	ctx->running = false;
	ctx->news = true;
}

/*
 * Connecting
 */
static int connect_begin(rdma_context *ctx, const char *address, int port, uint64_t group, struct peer **out)
{
	struct peer *peer = peer_new(ctx);
	int rc;

	if (!peer)
		return rdma_fail(-ENOMEM, "Failed to connect to server: no memory for another peer");
	log_clear_last();
	rc = peer_dial(peer, address, port);
	if (rc != 0) {
		peer_free(peer);
		return rdma_fail_logged(rc, "Invalid server IP address");
	}
	snprintf(peer->name, sizeof(peer->name), "%s", address);
	peer->session->group = group;
	peer->session->dials = true;
	session_watch(peer);
	*out = peer;
	return 0;
}

int peer_connect_begin(rdma_context *ctx, const char *address, uint64_t hello_group, struct peer **out)
{
	struct peer *peer;
	int rc = listen_room(ctx);

	if (rc == 0)
		rc = connect_begin(ctx, address, 0, hello_group, &peer);
	if (rc != 0)
		return -rdma_get_errno();
	rc = peer_number(peer);
	if (rc != 0) {
		peer_free(peer);
		return rc;
	}
	peer->inner = true;
	*out = peer;
	return 0;
}

static bool not_connecting(const void *arg)
{
	return ((const struct peer *)arg)->state != PEER_CONNECTING;
}

static int connect_wait(struct peer *peer, const char *address)
{
	int rc = context_wait(peer->ctx, not_connecting, peer, TIME_NEVER);

	/* The peer may have gone meanwhile, and have said something before. */
	if (peer->session->greeted && peer->index >= 0)
		return peer->index;
	if (rc == 0)
		rc = peer->session->dial.error;
	rdma_fail(rc ? rc : -ECONNRESET, "Failed to connect to server: %s: %s", address, peer->why);
	if (peer->index < 0) {
		if (peer->conn)
			peer_link_of(peer)->peer = NULL;
		peer_free(peer);
	}
	return -1;
}

int rdma_connect_peer(rdma_context *ctx, const char *peer_ip, int peer_port)
{
	struct peer *peer;
	int rc;

	if (!ctx || !peer_ip)
		return rdma_fail(-EINVAL, "Invalid parameters: the %s is NULL", ctx ? "address" : "context");
	if (peer_port < 0 || peer_port > UINT16_MAX)
		return rdma_fail(-EINVAL, "Invalid parameters: %d is not a port: 1 to 65535", peer_port);
	rdma_enter(ctx);
	rc = listen_room(ctx);
	if (rc == 0)
		rc = connect_begin(ctx, peer_ip, peer_port, 0, &peer);
	if (rc == 0)
		rc = connect_wait(peer, peer_ip);
	rdma_leave(ctx);
	return rc;
}

/*
 * Disconnecting
 */
static bool sends_delivered(const void *arg)
{
	struct peer *peer = (struct peer *)arg;

	return peer->state == PEER_GONE || peer_idle(peer);
}

static bool bye_answered(const void *arg)
{
	const struct peer *peer = arg;

	return peer->state == PEER_GONE || peer->session->bye_heard;
}

static void say_bye(struct peer *peer)
{
	if (peer->state == PEER_CONNECTED && peer->conn) {
		struct peer_link *link = peer_link_of(peer);

		peer_set_state(peer, PEER_LEAVING);
		link->state = LINK_OVER;
		link_say_bye(link, false);
	} else {
		peer->session->bye_heard = true; /* there is no peer to say it to */
	}
}

/* Step by step, by the turns of the context. */
void peer_part(struct peer *peer)
{
	if (peer->state == PEER_GONE || peer->session->parts)
		return;
	peer->told = true;
	peer->session->parts = true;
	peer->session->broken_until = time_after(time_now(), DISCONNECT_PATIENCE);
	session_watch(peer);
}

void peer_parts(struct peer *peer, uint64_t now)
{
	struct peer_session *session = peer->session;

	if (peer->state != PEER_LEAVING && (peer_idle(peer) || now >= session->broken_until)) {
		say_bye(peer);
		session->broken_until = time_after(now, PEER_FAREWELL);
	}
	if (session->bye_heard || (peer->state == PEER_LEAVING && now >= session->broken_until))
		peer_lose(peer, 0, "disconnected by this side");
}

static int peer_disconnect(struct peer *peer)
{
	rdma_context *ctx = peer->ctx;
	int rc = context_wait(ctx, sends_delivered, peer, time_after(time_now(), DISCONNECT_PATIENCE));

	peer->told = true;
	if (peer->state == PEER_GONE)
		return rdma_fail(-ECONNRESET, "Peer not connected: %d (%s): %s", peer->index, peer->name, peer->why);
	say_bye(peer);
	context_wait(ctx, bye_answered, peer, time_after(time_now(), PEER_FAREWELL));
	peer_lose(peer, 0, "disconnected by this side");
	if (rc == 0)
		return 0;
	return rdma_fail(rc, "%s has not taken all that was sent, within %llu s", peer->name,
			 (unsigned long long)(DISCONNECT_PATIENCE / TIME_S));
}

int rdma_disconnect_peer(rdma_context *ctx, int peer_idx)
{
	struct peer *peer;
	int rc = -1;

	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
	rdma_enter(ctx);
	peer = peer_connected(ctx, peer_idx);
	if (peer)
		rc = peer_disconnect(peer);
	rdma_leave(ctx);
	return rc;
}

static bool all_delivered(const void *arg)
{
	const rdma_context *ctx = arg;

	for (uint32_t i = 0; i < ctx->peers; i++)
		if (state_present(ctx->peer[i]->state) && !peer_idle(ctx->peer[i]))
			return false;
	return true;
}

static bool all_byes_answered(const void *arg)
{
	const rdma_context *ctx = arg;

	for (uint32_t i = 0; i < ctx->peers; i++)
		if (!bye_answered(ctx->peer[i]))
			return false;
	return true;
}

void peers_say_goodbye(rdma_context *ctx)
{
	uint64_t until = time_after(time_now(), PEER_FAREWELL);

	context_wait(ctx, all_delivered, ctx, until - PEER_FAREWELL / 10);
	for (uint32_t i = 0; i < ctx->peers; i++)
		say_bye(ctx->peer[i]);
	context_wait(ctx, all_byes_answered, ctx, until);
	for (uint32_t i = 0; i < ctx->peers; i++)
		peer_lose(ctx->peer[i], 0, "disconnected by this side");
}

/*
 * Looking
 */

int rdma_peers(rdma_context *ctx)
{
	int count = 0;

	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
	rdma_enter(ctx);
	for (uint32_t i = 0; i < ctx->peers; i++) {
		const struct peer *peer = ctx->peer[i];

		peer_look(ctx->peer[i]);
		/* One whose connection is ending is not there, unless another is made. */
		count += peer->state == PEER_BROKEN ||
			 (peer->state == PEER_CONNECTED && (peer->resumes || conn_established(peer->conn)));
	}
	rdma_leave(ctx);
	return count;
}

const char *rdma_transport(rdma_context *ctx, int peer_idx)
{
	const char *name = NULL;
	struct peer *peer;

	if (!ctx) {
		rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
		return NULL;
	}
	rdma_enter(ctx);
	peer = peer_connected(ctx, peer_idx);
	if (peer)
		name = (peer->conn ? conn_transport(peer->conn) : peer->transport)->name; /* not the one when it came */
	rdma_leave(ctx);
	return name;
}

void rdma_on_lost(rdma_context *ctx, rdma_lost_fn *lost, void *arg)
{
	if (!ctx) {
		rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
		return;
	}
	rdma_enter(ctx);
	ctx->lost_fn = lost;
	ctx->lost_arg = arg;
	rdma_leave(ctx);
}
