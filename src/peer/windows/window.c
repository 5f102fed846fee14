/* window.c: a window's owner: memory, registrations, shares and their keys, the end. See window.h. */
#include "peer/windows/window.h"

#include <stdlib.h>
#include <sys/mman.h>

_Static_assert(RDMA_WINDOW_READ == WIRE_WINDOW_READ && RDMA_WINDOW_WRITE == WIRE_WINDOW_WRITE &&
		       RDMA_WINDOW_ATOMIC == WIRE_WINDOW_ATOMIC,
	       "a window's rights travel as they are");

void window_say(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length)
{
	int rc = control_send(peer, kind, body, length);

	if (rc != 0 && rc != -ECONNRESET)
		peer_lose(peer, rc, "no memory for what is to be said of a window: %s", strerror(-rc));
}

void window_say_id(struct peer *peer, enum wire_control_kind kind, uint64_t id)
{
	window_say(peer, kind, &(struct wire_window_id){.id = id}, sizeof(struct wire_window_id));
}

/*
 * Registrations
 */
static struct fabric *engine_fabric_of(struct engine *engine)
{
	return fabric_domain_fabric(conn_group_domain(engine_group(engine)));
}

/* The access by RDMA that its users have. */
static unsigned window_access(const struct rdma_window *window)
{
	return (window->rights & RDMA_WINDOW_READ ? FABRIC_REMOTE_READ : 0) |
	       (window->rights & RDMA_WINDOW_WRITE ? FABRIC_REMOTE_WRITE : 0) |
	       (window->rights & RDMA_WINDOW_ATOMIC && window->by_device ? FABRIC_REMOTE_ATOMIC : 0);
}

const struct fabric_region *window_region_find(const struct rdma_window *window, const struct engine *engine)
{
	for (unsigned i = 0; i < ARRAY_SIZE(window->regions); i++)
		if (window->regions[i].engine == engine)
			return window->regions[i].region;
	return NULL;
}

/* Where the provider has windows, the region's own key opens nothing. */
static int window_register(struct rdma_window *window, struct engine *engine)
{
	struct window_region *region = window->regions;
	struct fabric_limits limits;
	int rc;

	if (!window->size || !window_access(window) || window_region_find(window, engine))
		return 0;
	fabric_limits(engine_fabric_of(engine), &limits);
	while (region->engine)
		region++;
	rc = fabric_register(conn_group_domain(engine_group(engine)), window->addr, window->size,
			     limits.windows ? FABRIC_WINDOWS : window_access(window), &region->region);
	if (rc == 0)
		region->engine = engine;
	return rc;
}

/*
 * Windows
 */
static int window_check(const rdma_context *ctx, const void *addr, size_t size, unsigned rights)
{
	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
	if (!rights || rights & ~WIRE_WINDOW_RIGHTS)
		return rdma_fail(-EINVAL, "Invalid parameters: rights %#x of a window", rights);
	if (!memory_ends(addr, size))
		return -1;
	if (rights & RDMA_WINDOW_ATOMIC && (uintptr_t)addr % sizeof(uint64_t))
		return rdma_fail(-EINVAL,
				 "Invalid parameters: atomic operations need memory aligned to 8 bytes, not %p", addr);
	return 0;
}

static void window_free(struct rdma_window *window)
{
	while (!list_empty(&window->shares))
		share_free(list_first(&window->shares, struct window_share, node));
	list_del(&window->node);
	for (unsigned i = 0; i < ARRAY_SIZE(window->regions); i++)
		fabric_deregister(window->regions[i].region);
	if (window->mapped)
		munmap(window->addr, window->size);
	free(window->notices.ring);
	free(window);
}

rdma_window *rdma_window_create(rdma_context *ctx, void *addr, size_t size, unsigned rights)
{
	struct rdma_window *window;

	if (window_check(ctx, addr, size, rights) != 0)
		return NULL;
	window = calloc(1, sizeof(*window));
	if (!window) {
		rdma_fail(-ENOMEM, "No memory for a window");
		return NULL;
	}
	*window = (struct rdma_window){.ctx = ctx, .addr = addr, .size = size, .rights = rights};
	list_init(&window->shares);
	list_init(&window->parked);
	if (!addr && size) { /* pages of its own, which are there when they are first touched */
		void *memory =
			mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (memory == MAP_FAILED) {
			rdma_fail(-errno, "No memory for a window of %zu bytes: %s", size, strerror(errno));
			free(window);
			return NULL;
		}
		window->addr = memory;
		window->mapped = true;
	}
	rdma_enter(ctx);
	list_add_tail(&ctx->windows, &window->node);
	rdma_leave(ctx);
	return window;
}

void *rdma_window_addr(const rdma_window *window)
{
	return window ? window->addr : NULL;
}

/*
 * Shares
 */
struct window_share *share_find(struct peer *peer, uint64_t id)
{
	struct list *pos, *tmp;

	if (!peer->window)
		return NULL;
	list_for_each_safe (pos, tmp, &peer->window->shares) {
		struct window_share *share = container_of(pos, struct window_share, peer_node);

		if (share->id == id)
			return share;
	}
	return NULL;
}

struct window_share *share_of(const struct rdma_window *window, int peer)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &window->shares) {
		struct window_share *share = container_of(pos, struct window_share, node);

		if (share->peer->index == peer)
			return share;
	}
	return NULL;
}

void share_free(struct window_share *share)
{
	struct rdma_window *window = share->window;

	fabric_window_close(share->fabric);
	atomic_forget(share);
	list_del(&share->node);
	list_del(&share->peer_node);
	share->peer->window->share_count--;
	window->shared--;
	window->ctx->progressed++;
	free(share);
}

static struct window_share *share_new(struct rdma_window *window, struct peer *peer)
{
	static _Atomic uint64_t serial;
	struct window_share *share = calloc(1, sizeof(*share));

	if (!share)
		return NULL;
	share->window = window;
	share->peer = peer;
	share->id = ++serial;
	list_add_tail(&window->shares, &share->node);
	list_add_tail(&peer->window->shares, &share->peer_node);
	peer->window->share_count++;
	window->shared++;
	return share;
}

static int share_begin(struct rdma_window *window, struct peer *peer)
{
	struct wire_window_share say = {
		.addr = (uintptr_t)window->addr,
		.size = window->size,
		.rights = window->rights,
	};
	struct window_share *share;

	/* Each user may change by which side atomic operations are carried out. */
	if (window->rights & RDMA_WINDOW_ATOMIC && list_empty(&window->shares) && !window->atomics) {
		window->by_device = peer->engine && peer->window->atomics;
		window->atomics = peer->engine;
	} else if (window->by_device && !window_may_device(window, peer)) {
		window_switch(window);
	}
	if (peer->engine && window_register(window, peer->engine) != 0)
		return rdma_fail_logged(-ENOMEM, "Cannot register the window");
	share = share_new(window, peer);
	if (!share)
		return rdma_fail(-ENOMEM, "No memory to share a window");
	say.id = share->id;
	say.flags = window->by_device ? WIRE_WINDOW_BY_DEVICE : 0;
	window_say(peer, WIRE_CONTROL_WINDOW_SHARE, &say, sizeof(say));
	message_flush(peer);
	return 0;
}

int rdma_window_share(rdma_window *window, int peer_idx)
{
	struct peer *peer;
	int rc = -1;

	if (!window)
		return rdma_fail(-EINVAL, "Invalid parameters: the window is NULL");
	rdma_enter(window->ctx);
	peer = peer_to_send(window->ctx, peer_idx);
	if (peer && !peer_window_of(peer)) {
		rdma_fail(-ENOMEM, "No memory to share a window");
	} else if (peer && share_of(window, peer->index)) {
		rdma_fail(-EEXIST, "The window is shared with %s already", peer->name);
	} else if (peer && peer->window->share_count >= WIRE_WINDOW_SHARES) {
		rdma_fail(-ENOSPC, "%s has %u windows already: close some", peer->name, peer->window->share_count);
	} else if (peer) {
		peer_window_update(peer->window);
		rc = share_begin(window, peer);
	}
	rdma_leave(window->ctx);
	return rc;
}

/* A key for the connection that is there now: 0, -EAGAIN: later, or why there is none. */
static int share_key(struct window_share *share, uint32_t *rkey)
{
	struct rdma_window *window = share->window;
	struct peer *peer = share->peer;
	unsigned access = window_access(window);
	const struct fabric_region *region;
	struct fabric_limits limits;
	int rc = window_register(window, peer->engine);

	*rkey = 0;
	region = rc ? NULL : window_region_find(window, peer->engine);
	if (!region || !access)
		return rc;
	fabric_limits(engine_fabric_of(peer->engine), &limits);
	if (!limits.windows) {
		*rkey = fabric_region_rkey(region, conn_endpoint(peer->conn));
		return 0;
	}
	fabric_window_close(share->fabric);
	share->fabric = NULL;
	rc = fabric_window_open(conn_endpoint(peer->conn), region, window->addr, window->size, access, &share->fabric);
	if (rc == 0)
		*rkey = fabric_window_rkey(share->fabric);
	return rc;
}

/* The KEY that was asked for. It waits for room on the connection; one that has gone will ask again on the next. */
static void share_answer_key(struct window_share *share)
{
	struct wire_window_key key = {.id = share->id, .epoch = share->epoch};
	struct peer *peer = share->peer;
	int rc = -ENOTCONN;

	if (peer->conn && conn_established(peer->conn))
		rc = share_key(share, &key.rkey);
	if (rc == -EAGAIN)
		conn_wait_writable(peer->conn);
	share->asked = rc == -EAGAIN;
	if (rc == -EAGAIN || rc == -ENOTCONN)
		return;
	key.error = (uint32_t)-rc;
	window_say(peer, WIRE_CONTROL_WINDOW_KEY, &key, sizeof(key));
}

static int window_key_asked(struct peer *peer, const union window_body *body)
{
	struct window_share *share = share_find(peer, body->ask.id);
	struct wire_window_key none = {.id = body->ask.id, .epoch = body->ask.epoch, .error = EPIPE};

	if (!share) { /* closed meanwhile */
		window_say(peer, WIRE_CONTROL_WINDOW_KEY, &none, sizeof(none));
		return 0;
	}
	peer_window_update(peer->window);
	share->epoch = body->ask.epoch;
	if (share->window->by_device &&
	    (body->ask.flags & WIRE_WINDOW_NO_DEVICE || !window_may_device(share->window, peer)))
		window_switch(share->window);
	share_answer_key(share);
	return 0;
}

static int window_share_closed(struct peer *peer, const union window_body *body)
{
	struct window_share *share = share_find(peer, body->which.id);

	if (share)
		share_free(share);
	return 0;
}

static bool window_is_alone(const void *arg)
{
	return list_empty(&((const struct rdma_window *)arg)->shares);
}

void rdma_window_close(rdma_window *window)
{
	rdma_context *ctx = window ? window->ctx : NULL;
	struct list *pos, *tmp;

	if (!window)
		return;
	rdma_enter(ctx);
	window->closing = true;
	list_for_each_safe (pos, tmp, &window->shares) {
		struct window_share *share = container_of(pos, struct window_share, node);
		struct peer *peer = share->peer;

		window_say_id(peer, WIRE_CONTROL_WINDOW_CLOSE, share->id);
		message_flush(peer);
	}
	if (!window_is_alone(window) &&
	    context_wait(ctx, window_is_alone, window, time_now() + WINDOW_CLOSE_TIMEOUT) == -ETIMEDOUT)
		log_warn("peer", "%u peers did not let go of a window of %zu bytes: it is closed all the same",
			 window->shared, window->size);
	window_free(window);
	rdma_leave(ctx);
}

/*
 * What the rest of the room tells
 */
static const struct {
	size_t length;
	int (*handle)(struct peer *peer, const union window_body *body);
} kinds[WIRE_CONTROLS] = {
	[WIRE_CONTROL_WINDOW_SHARE] = {sizeof(struct wire_window_share), remote_offered},
	[WIRE_CONTROL_WINDOW_ASK] = {sizeof(struct wire_window_ask), window_key_asked},
	[WIRE_CONTROL_WINDOW_KEY] = {sizeof(struct wire_window_key), remote_key},
	[WIRE_CONTROL_WINDOW_CLOSE] = {sizeof(struct wire_window_id), remote_close_asked},
	[WIRE_CONTROL_WINDOW_CLOSED] = {sizeof(struct wire_window_id), window_share_closed},
	[WIRE_CONTROL_WINDOW_ATOMIC] = {sizeof(struct wire_window_atomic), atomic_asked},
	[WIRE_CONTROL_WINDOW_ANSWER] = {sizeof(struct wire_window_answer), atomic_answered},
	[WIRE_CONTROL_WINDOW_NOTICE] = {sizeof(struct wire_window_notice), window_notice_came},
	[WIRE_CONTROL_WINDOW_NOTICED] = {sizeof(struct wire_window_notice), remote_noticed},
	[WIRE_CONTROL_WINDOW_SWITCH] = {sizeof(struct wire_window_id), atomic_switch},
	[WIRE_CONTROL_WINDOW_SWITCHED] = {sizeof(struct wire_window_id), atomic_switched},
};

static int window_control(struct peer *peer, enum wire_control_kind kind, const void *bytes, size_t length)
{
	union window_body body;

	if (!kinds[kind].handle || length != kinds[kind].length)
		return -EPROTO;
	memcpy(&body, bytes, length);
	return peer_window_of(peer) ? kinds[kind].handle(peer, &body) : -ENOMEM;
}

struct peer_window *peer_window_of(struct peer *peer)
{
	struct peer_window *pw = peer->window;

	if (pw)
		return pw;
	pw = calloc(1, sizeof(*pw));
	if (!pw)
		return NULL;
	pw->peer = peer;
	list_init(&pw->shares);
	list_init(&pw->offers);
	list_init(&pw->remotes);
	list_init(&pw->ended);
	list_init(&pw->waiting);
	list_init(&pw->posted);
	list_init(&pw->asked);
	list_init(&pw->free);
	list_init(&pw->pieces);
	peer->window = pw;
	return pw;
}

void peer_window_update(struct peer_window *pw)
{
	struct fabric_limits limits;

	if (!pw->peer->engine || pw->engine == pw->peer->engine)
		return;
	pw->engine = pw->peer->engine;
	fabric_limits(engine_fabric_of(pw->engine), &limits);
	pw->inline_size = limits.inline_size;
	pw->atomics = limits.atomics;
	pw->sink = FABRIC_LOCAL_WRITE | (limits.open_sinks ? FABRIC_REMOTE_WRITE : 0);
}

static void window_writable(struct peer *peer)
{
	struct list *pos, *tmp;

	if (!peer->window)
		return;
	list_for_each_safe (pos, tmp, &peer->window->shares) { /* KEYs that could not be made before */
		struct window_share *share = container_of(pos, struct window_share, peer_node);

		if (share->asked)
			share_answer_key(share);
	}
	window_pump(peer->window);
}

static bool window_peer_resumed(struct peer *peer, const uint64_t next[static PEER_CLASSES])
{
	struct peer_window *pw = peer->window;

	(void)next;
	if (!pw)
		return true;
	pw->stalled = false;
	pw->epoch++;
	ops_rewind(pw);
	peer_window_update(pw);
	remotes_ask_keys(pw);
	window_pump(pw);
	return true;
}

static void window_peer_lost(struct peer *peer)
{
	struct peer_window *pw = peer->window;

	if (!pw)
		return;
	pw->stalled = true;
	while (!list_empty(&pw->shares))
		share_free(list_first(&pw->shares, struct window_share, peer_node));
	remotes_lost(pw);
	ops_fail(pw, NULL, -ECONNRESET, "Peer not connected: %s: %s", peer->name, peer->why);
	peer->ctx->progressed++;
}

static bool window_has_peer(const struct peer *peer)
{
	return peer->window && !list_empty(&peer->window->ended);
}

static void window_peer_free(struct peer *peer)
{
	struct peer_window *pw = peer->window;

	if (!pw)
		return;
	window_peer_lost(peer);
	remotes_free(pw);
	ops_free(pw);
	free(pw);
	peer->window = NULL;
}

static void window_context_end(rdma_context *ctx)
{
	while (!list_empty(&ctx->windows))
		window_free(list_first(&ctx->windows, struct rdma_window, node));
	for (uint32_t i = 0; i < ctx->peers; i++)
		window_peer_free(ctx->peer[i]);
}

const struct peer_layer peer_windows = {
	.free = window_peer_free,
	.first_control = WIRE_CONTROL_WINDOW_SHARE,
	.last_control = WIRE_CONTROL_WINDOW_SWITCHED,
	.control = window_control,
	.writable = window_writable,
	.resumed = window_peer_resumed,
	.lost = window_peer_lost,
	.refers = window_has_peer,
	.end = window_context_end,
};
