/* context.c: a context: options, engines, turns, waiting, and its end. */
#include "peer/links/connect.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CREDITS 32
#define END_PATIENCE (6 * TIME_S)              /* conn gives a connection five seconds to end */
#define LONGEST_MS (365ull * 24 * 3600 * 1000) /* of a time that is added to others */
#define MAX_WR_LIMIT 1024u
#define MAX_PEERS_LIMIT 65536u
#define BUF_SIZE_LIMIT ((size_t)1 << 40) /* it is added to counts of bytes */

static uint64_t ms_ns(uint64_t ms)
{
	return MIN(ms, LONGEST_MS) * TIME_MS;
}

static void options_fill(rdma_options *o)
{
	o->max_peers = MIN(o->max_peers ? o->max_peers : MAX_PEERS, MAX_PEERS_LIMIT);
	o->max_wr = MIN(o->max_wr ? o->max_wr : MAX_WR, MAX_WR_LIMIT);
	o->cq_depth = o->cq_depth ? o->cq_depth : CQ_DEPTH;
	o->buf_size = MIN(MAX(o->buf_size, PEER_INBOX_MIN), BUF_SIZE_LIMIT);
	o->connect_timeout_ms = MIN(o->connect_timeout_ms ? o->connect_timeout_ms : 5000, LONGEST_MS);
	o->reconnect_ms = MIN(o->reconnect_ms, LONGEST_MS);
	o->heartbeat_ms = o->heartbeat_ms ? o->heartbeat_ms : 5000;
	o->poll_us = o->no_poll ? 0 : MIN(o->poll_us ? o->poll_us : 200, LONGEST_MS * 1000);
}

/*
 * Inside and outside
 */
static void context_enter(rdma_context *ctx)
{
	ctx->depth++;
	for (unsigned i = 0; i < ctx->engines; i++)
		engine_enter(ctx->own[i]);
}

static void context_leave(rdma_context *ctx)
{
	for (unsigned i = 0; i < ctx->engines; i++)
		engine_leave(ctx->own[i]);
	ctx->depth--;
}

void rdma_enter(rdma_context *ctx)
{
	if (ctx->inside++)
		return;
	if (unlikely(ctx->thread))
		thread_enter(ctx->thread);
	context_enter(ctx);
}

/* The next peer to be told of, and why it was lost. */
static bool next_lost(rdma_context *ctx, int *index, char *why, size_t size)
{
	struct peer *peer;
	bool found;

	rdma_enter(ctx);
	found = !list_empty(&ctx->lost);
	if (found) {
		peer = list_first(&ctx->lost, struct peer, node);
		list_del(&peer->node);
		peer->told = true;
		peer_released(peer);
		*index = peer->index;
		snprintf(why, size, "%s: %s", peer->name, peer->why);
	}
	rdma_leave(ctx);
	return found;
}

static void tell_lost(rdma_context *ctx)
{
	struct error_kept kept;
	char why[sizeof(((struct peer *)0)->why) + sizeof(((struct peer *)0)->name) + 2];
	int index;

	error_keep(&kept);
	ctx->telling = true;
	while (next_lost(ctx, &index, why, sizeof(why)))
		if (ctx->lost_fn)
			ctx->lost_fn(ctx, index, why, ctx->lost_arg);
	ctx->telling = false;
	error_restore(&kept);
}

void rdma_leave(rdma_context *ctx)
{
	bool tell;

	must(ctx->inside);
	if (--ctx->inside)
		return;
	tell = !list_empty(&ctx->lost) && !ctx->telling;
	if (unlikely(ctx->gone_to_bury))
		peers_bury(ctx);
	context_leave(ctx);
	if (unlikely(ctx->thread))
		thread_leave(ctx->thread);
	if (unlikely(tell))
		tell_lost(ctx);
}

/*
 * Engines
 */
void context_engine_options(const rdma_context *ctx, struct engine_options *out)
{
	const rdma_options *o = &ctx->options;

	engine_options_from(NULL, out);
	out->connect_timeout = ms_ns(o->connect_timeout_ms);
	out->keepalive = o->heartbeat_ms >= LONGEST_MS ? 0 : ms_ns(o->heartbeat_ms);
	out->away = true;
	out->credits = CREDITS;
	out->transfers = o->max_wr;
	out->connections = 2 * o->max_peers + 2 * PEER_GUESTS; /* as many may wait as there are peers */
	out->completions = o->cq_depth;
	out->device = o->device;
	out->require_rdma = o->require_rdma;
	out->require_encryption = o->require_encryption;
	out->traffic_class = o->traffic_class;
	out->key = ctx->key;
}

/* The place of what a transport's provider has, at its first transport. */
static unsigned place_of(const struct fabric_transport *transport)
{
	unsigned i = 0;

	while (fabric_transports[i].provider != transport->provider)
		i++;
	return i;
}

/* A holder more of what the engines and the doors of a provider have together. */
int context_fabric(void *arg, const struct fabric_transport *transport, struct engine_fabric **out)
{
	rdma_context *ctx = arg;
	unsigned i = place_of(transport);
	struct engine_options options;
	int rc = 0;

	context_engine_options(ctx, &options);
	if (!ctx->fabric[i])
		rc = engine_fabric_open(transport, &options, &ctx->fabric[i]);
	if (rc != 0)
		return rc;
	engine_fabric_hold(ctx->fabric[i]);
	*out = ctx->fabric[i];
	return 0;
}

static int engine_make(rdma_context *ctx, const struct fabric_transport *transport, struct engine **out)
{
	struct engine_options options;
	struct engine *engine;
	int rc;

	context_engine_options(ctx, &options);
	rc = context_fabric(ctx, transport, &options.fabric);
	if (rc != 0)
		return rc;
	rc = engine_create(transport, &options, &engine);
	engine_fabric_release(options.fabric);
	if (rc != 0)
		return rc;
	rc = door_watch("peer", ctx->epoll, engine_fd(engine));
	if (rc != 0) {
		engine_release(engine);
		return rc;
	}
	*out = engine;
	return 0;
}

int context_engine(rdma_context *ctx, const struct fabric_transport *transport, struct engine **out)
{
	unsigned i = place_of(transport);
	int rc = 0;

	must(ctx->depth);
	if (!ctx->engine[i]) {
		rc = engine_make(ctx, transport, &ctx->engine[i]);
		if (rc != 0)
			return rc;
		ctx->own[ctx->engines++] = ctx->engine[i];
		engine_enter(ctx->engine[i]);
	}
	*out = ctx->engine[i];
	return 0;
}

/*
 * Turns
 */
/* As at most times: one look rather than a call for each layer. */
static bool only_engines_turn(const rdma_context *ctx, uint64_t now)
{
	return list_empty(&ctx->schedules) && list_empty(&ctx->to_read) && list_empty(&ctx->limited) &&
	       connections_are_quiet(ctx->connections, now);
}

static int context_work(rdma_context *ctx, uint64_t now, bool arm)
{
	int work = 0;

	must(ctx->depth && !ctx->running);
	ctx->running = true;
	for (unsigned i = 0; i < ctx->engines; i++) {
		if (arm)
			fabric_arm(conn_group_queue(engine_group(ctx->own[i])));
		work += engine_turn_at(ctx->own[i], now);
	}
	if (unlikely(arm || !only_engines_turn(ctx, now))) {
		for_each_layer_down (layer, turn)
			work += layer->turn(ctx, now, arm);
	}
	ctx->running = false;
	return work;
}

/* The caller's: the thread, if there is one, looks whether there are any. */
static int context_turn_at(rdma_context *ctx, uint64_t now, bool arm)
{
	ctx->turns++;
	return context_work(ctx, now, arm);
}

int context_turn(rdma_context *ctx)
{
	return context_turn_at(ctx, time_now(), false);
}

/* When context_turn() must be called though nothing comes. */
static uint64_t context_deadline(const rdma_context *ctx)
{
	uint64_t deadline = TIME_NEVER;

	for_each_layer (layer, deadline)
		deadline = MIN(deadline, layer->deadline(ctx));
	for (unsigned i = 0; i < ctx->engines; i++)
		deadline = MIN(deadline, conn_group_deadline(engine_group(ctx->own[i])));
	return deadline;
}

bool context_serve(rdma_context *ctx, uint64_t *deadline)
{
	int work;

	context_enter(ctx);
	work = context_work(ctx, time_now(), false);
	if (!work)
		work = context_work(ctx, time_now(), true);
	*deadline = context_deadline(ctx);
	context_leave(ctx);
	return !work;
}

uint64_t context_after(uint64_t timeout_ms)
{
	return timeout_ms >= LONGEST_MS ? TIME_NEVER : time_now() + ms_ns(timeout_ms);
}

uint64_t context_until(const rdma_context *ctx)
{
	return ctx->options.timeout_ms ? context_after(ctx->options.timeout_ms) : TIME_NEVER;
}

/* A yield is long if it takes more than both limits, the second in system calls, which take microseconds on an emulated
 * processor: then another thread has run, or an interrupt came. So one long yield is not enough: it adds YIELD_WORTH,
 * each short one takes 1 away, and from CROWDED on each idle turn yields. A thread that ran for longer than STRANGER
 * does not wait, and each further yield would cost as much. */
#define YIELD_LONG (2 * TIME_US)
#define YIELD_LONG_CALLS 8
#define YIELD_WORTH 16
#define CROWDED (2 * YIELD_WORTH)
#define CROWDED_MOST 1000
#define STRANGER (500 * TIME_US)
#define CLOCK_TURNS 8 /* the clock costs a part of a turn, and is read once for so many idle ones */

static void context_sleep(rdma_context *ctx, uint64_t now, uint64_t until)
{
	struct pollfd pfd = {.fd = ctx->epoll, .events = POLLIN};
	struct timespec timeout;

	until = MIN(until, context_deadline(ctx));
	if (until <= now)
		return;
	timeout.tv_sec = (time_t)((until - now) / TIME_S);
	timeout.tv_nsec = (long)((until - now) % TIME_S);
	if (ctx->thread)
		thread_unlock(ctx->thread);
	ppoll(&pfd, 1, until == TIME_NEVER ? NULL : &timeout, NULL);
	if (ctx->thread)
		thread_lock(ctx->thread);
}

/* If another thread ran during the yield, it may be the one we wait for: keep yielding while that is so. Returns the
 * time. */
static uint64_t context_yield(rdma_context *ctx, uint64_t now)
{
	uint64_t after;

	sched_yield();
	after = time_now();
	if (after - now > STRANGER)
		ctx->crowded = 0;
	else if (after - now > ctx->yield_long)
		ctx->crowded = MIN(ctx->crowded + YIELD_WORTH, CROWDED_MOST);
	else if (ctx->crowded)
		ctx->crowded--;
	return after;
}

int context_wait(rdma_context *ctx, bool (*finished)(const void *arg), const void *arg, uint64_t until)
{
	uint64_t now = time_now(), poll = ctx->options.poll_us * TIME_US, busy_until = time_after(now, poll);
	unsigned idle = 0;

	if (ctx->running)
		return -EDEADLK;
	while (true) {
		int work = context_turn_at(ctx, now, false);

		if (finished(arg))
			return 0;
		idle = work ? 0 : idle + 1;
		if (idle % CLOCK_TURNS && poll && now < until && ctx->crowded < CROWDED)
			continue;
		now = time_now();
		if (now >= until)
			return -ETIMEDOUT;
		if (work)
			busy_until = time_after(now, poll);
		if (now < busy_until) {
			if (ctx->crowded < CROWDED ? time_to_yield(idle) : idle > 0)
				now = context_yield(ctx, now);
			continue;
		}
		if (context_turn_at(ctx, now, true))
			continue;
		if (finished(arg))
			return 0;
		context_sleep(ctx, now, until);
		now = time_now();
	}
}

int rdma_fd(rdma_context *ctx)
{
	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
	return ctx->thread ? thread_fd(ctx->thread) : ctx->epoll;
}

int rdma_progress(rdma_context *ctx)
{
	int work;

	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
	rdma_enter(ctx);
	work = context_turn(ctx);
	if (!work)
		work = context_turn_at(ctx, time_now(), true);
	ctx->news = false;
	rdma_leave(ctx);
	return work != 0;
}

int rdma_progress_timeout(rdma_context *ctx)
{
	uint64_t deadline, now = time_now();

	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
	rdma_enter(ctx);
	deadline = ctx->news ? now : context_deadline(ctx);
	rdma_leave(ctx);
	if (deadline == TIME_NEVER)
		return -1;
	return deadline <= now ? 0 : (int)MIN((deadline - now) / TIME_MS + 1, 1000000000ull);
}

/*
 * Begin and end
 */
static uint64_t yield_long(void)
{
	uint64_t least = TIME_NEVER;

	for (unsigned i = 0; i < 4; i++) {
		uint64_t begin = time_now();

		getppid();
		least = MIN(least, time_now() - begin);
	}
	return MAX(YIELD_LONG, YIELD_LONG_CALLS * least);
}

static rdma_context *context_new(const rdma_options *options, bool is_server)
{
	rdma_context *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	if (options)
		ctx->options = *options;
	options_fill(&ctx->options);
	if (ctx->options.device) {
		snprintf(ctx->device, sizeof(ctx->device), "%s", ctx->options.device);
		ctx->options.device = ctx->device;
	}
	ctx->is_server = is_server;
	ctx->yield_long = yield_long();
	list_init(&ctx->waiting);
	list_init(&ctx->lost);
	list_init(&ctx->schedules);
	list_init(&ctx->groups);
	list_init(&ctx->aborts);
	list_init(&ctx->windows);
	list_init(&ctx->to_read);
	list_init(&ctx->limited);
	ctx->options.key_file = ctx->options.server_user = NULL;
	ctx->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (ctx->epoll >= 0 && connections_create(ctx) == 0)
		return ctx;
	if (ctx->epoll >= 0)
		close(ctx->epoll);
	free(ctx);
	return NULL;
}

static bool no_connections(const void *ctx)
{
	return list_empty(&((const rdma_context *)ctx)->connections->links);
}

/* Each connection is closed before what it used is freed. */
static void context_free(rdma_context *ctx)
{
	connections_close(ctx);
	context_wait(ctx, no_connections, ctx, time_after(time_now(), END_PATIENCE));
	for_each_layer_down (layer, end)
		layer->end(ctx);
	connections_destroy(ctx);
	for_each_layer (layer, release)
		layer->release(ctx);
	rdma_leave(ctx);
	thread_destroy(ctx);
	pmix_leave(ctx);
	for (unsigned i = 0; i < ctx->engines; i++)
		engine_release(ctx->own[i]);
	free(ctx->connections);
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		engine_fabric_release(ctx->fabric[i]);
	engine_key_release(ctx->key);
	close(ctx->epoll);
	free(ctx);
}

rdma_context *rdma_init_options(const char *ip, int port, bool is_server, const rdma_options *options)
{
	struct engine_key_source proof = {.line = secure_getenv("RDMA_KEY")};
	rdma_context *ctx;
	int rc = 0;

	if (options) {
		proof.file = options->key_file;
		proof.munge = options->munge;
		proof.server_user = options->server_user;
	}
	if (port < 0 || port > UINT16_MAX) {
		rdma_fail(-EINVAL, "Invalid parameters: %d is not a port: 0 to 65535", port);
		return NULL;
	}
	ctx = context_new(options, is_server);
	if (!ctx) {
		rdma_fail(-ENOMEM, "Invalid parameters: no memory or descriptors for a context: %s", strerror(errno));
		return NULL;
	}
	rdma_enter(ctx);
	rc = engine_key_create(&proof, &ctx->key);
	if (rc != 0)
		rdma_fail_logged(rc, "Invalid parameters");
	else
		rc = is_server ? listen_open(ctx, ip, port) : dial_from(ctx, ip);
	if (rc != 0) {
		context_free(ctx);
		return NULL;
	}
	rdma_leave(ctx);
	if (ctx->options.progress_thread) {
		rc = thread_create(ctx);
		if (rc == 0)
			return ctx;
		rdma_enter(ctx);
		context_free(ctx);
		rdma_fail(rc, "Invalid parameters: cannot start the progress thread: %s", strerror(-rc));
		return NULL;
	}
	return ctx;
}

rdma_context *(rdma_init)(const char *ip, int port, size_t buf_size, bool is_server)
{
	rdma_options options = {.buf_size = buf_size};

	return rdma_init_options(ip, port, is_server, &options);
}

void rdma_cleanup(rdma_context *ctx)
{
	if (!ctx)
		return;
	rdma_enter(ctx);
	ctx->lost_fn = NULL;
	peers_say_goodbye(ctx);
	context_free(ctx);
}

int rdma_port(const rdma_context *ctx)
{
	return ctx ? ctx->connections->port : rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
}
