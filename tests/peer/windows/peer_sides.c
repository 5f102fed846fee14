/* peer_sides.c: see peer_sides.h. */
#include "tests/peer/windows/peer_sides.h"

#include <sched.h>

const char *scheme = "tcp", *host = "127.0.0.1";
struct side sides[SIDES];
static unsigned count;
static pthread_t thread;
static atomic_bool stop;

static void *turn(void *arg)
{
	while (!atomic_load(&stop))
		for (unsigned i = 0; i < SIDES; i++) {
			if (pthread_mutex_trylock(&sides[i].lock) != 0)
				continue;
			if (sides[i].ctx)
				rdma_progress(sides[i].ctx);
			pthread_mutex_unlock(&sides[i].lock);
			sched_yield();
		}
	return arg;
}

static void side_begin(unsigned i, uint64_t reconnect_ms)
{
	rdma_options options = {.reconnect_ms = reconnect_ms, .timeout_ms = 600000, .connect_timeout_ms = 30000};

	sides[i].ctx = rdma_init_options(i ? NULL : host, 0, i == 0, &options);
	ck_assert_msg(sides[i].ctx, "%s", rdma_get_error());
}

struct connecting {
	unsigned side;
	char url[128];
	int port;
};

static void *connect_one(void *arg)
{
	struct connecting *c = arg;

	sides[c->side].owner = of(c->side, rdma_connect_peer(sides[c->side].ctx, c->url, c->port));
	ck_assert_msg(sides[c->side].owner >= 0, "%s", rdma_get_error());
	return NULL;
}

static void side_connect(unsigned i, const char *by)
{
	struct connecting c = {.side = i, .port = rdma_port(sides[0].ctx)};
	pthread_t connector;

	snprintf(c.url, sizeof(c.url), "%s://%s", by, host);
	ck_assert_int_eq(pthread_create(&connector, NULL, connect_one, &c), 0);
	sides[i].index = of(0, rdma_accept_peer(sides[0].ctx));
	ck_assert_msg(sides[i].index >= 0, "%s", rdma_get_error());
	pthread_join(connector, NULL);
}

/* Side 0 listens, the others are connected to it. */
void begin_with(unsigned n, uint64_t reconnect_ms)
{
	memset(sides, 0, sizeof(sides));
	for (unsigned i = 0; i < SIDES; i++)
		pthread_mutex_init(&sides[i].lock, NULL);
	count = n;
	for (unsigned i = 0; i < n; i++)
		side_begin(i, reconnect_ms);
	go_on();
	for (unsigned i = 1; i < n; i++)
		side_connect(i, scheme);
}

void begin(unsigned n)
{
	begin_with(n, 0);
}

void halt(void)
{
	if (atomic_exchange(&stop, true))
		return;
	pthread_join(thread, NULL);
}

void end(void)
{
	halt();
	for (unsigned i = 0; i < count; i++)
		rdma_cleanup(sides[i].ctx);
}

rdma_window *window;
rdma_remote *remote;

rdma_remote *open_by(unsigned i)
{
	rdma_remote *r = of(i, rdma_window_open(sides[i].ctx, sides[i].owner, 600000));

	ck_assert_msg(r, "%s", rdma_get_error());
	return r;
}

rdma_remote *share_with(unsigned i, rdma_window *w)
{
	ck_assert_msg(of(0, rdma_window_share(w, sides[i].index)) == 0, "%s", rdma_get_error());
	return open_by(i);
}

void window_begin(void *addr, size_t size, unsigned rights)
{
	window = of(0, rdma_window_create(sides[0].ctx, addr, size, rights));
	ck_assert_msg(window, "%s", rdma_get_error());
	remote = share_with(1, window);
}

void window_end(void)
{
	pthread_mutex_lock(&sides[0].lock);
	rdma_window_close(window);
	pthread_mutex_unlock(&sides[0].lock);
	pthread_mutex_lock(&sides[1].lock);
	rdma_remote_close(remote);
	pthread_mutex_unlock(&sides[1].lock);
}

void fill(uint8_t *data, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		data[i] = (uint8_t)(i * 7 + i / 251 + seed);
}

void go_on(void)
{
	atomic_store(&stop, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, turn, NULL), 0);
}

void side_add(unsigned i, const char *by)
{
	pthread_mutex_lock(&sides[i].lock);
	side_begin(i, 0);
	pthread_mutex_unlock(&sides[i].lock);
	side_connect(i, by);
	count = MAX(count, i + 1);
}

void sides_arguments(int argc, char **argv)
{
	char *colon = argc > 1 ? strstr(argv[1], "://") : NULL;

	if (!colon)
		return;
	*colon = '\0';
	scheme = argv[1];
	host = colon + 3;
}

void break_connection(unsigned side)
{
	rdma_context *ctx = sides[side].ctx;

	pthread_mutex_lock(&sides[side].lock);
	rdma_enter(ctx);
	if (ctx->peers && ctx->peer[0]->conn)
		conn_close(ctx->peer[0]->conn, -EIO, "the test breaks it");
	rdma_leave(ctx);
	pthread_mutex_unlock(&sides[side].lock);
}

void *adder_run(void *arg)
{
	struct adder *a = arg;
	uint64_t before, guess = 0;

	for (unsigned i = 0; i < ADDS; i++) {
		expect_ok(of(a->side, rdma_fetch_add(a->remote, 8, 1, &before)));
		for (;; guess = before) {
			expect_ok(of(a->side, rdma_compare_swap(a->remote, 16, guess, guess + 1, &before)));
			if (before == guess)
				break;
		}
	}
	return NULL;
}
