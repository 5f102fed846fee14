/* check_peer_anew.c: connections made anew: all messages arrive, once and in order. */
#include "tests/peer/peer_clients.h"

/* Emulated devices are slow. */
#define MESSAGES (strncmp(target, "rdma:", 5) == 0 ? 500u : (unsigned)suite_part(10000))
#define LONGEST (300u * 1024)

struct half {
	pthread_t thread;
	rdma_context *ctx;
	unsigned seed, cuts;
	bool ok;
	char why[600];
};

/* The same at both ends: mostly short, now and then long. */
static uint32_t length_of(unsigned i)
{
	uint32_t x = i * 2654435761u;

	if (i % 50 == 0)
		return x % LONGEST;
	return i % 10 == 0 ? x % 8192 : x % 100;
}

static uint8_t byte_of(unsigned i, uint32_t at)
{
	return (uint8_t)(i * 7 + at);
}

static bool half_failed(struct half *half, const char *what, unsigned i)
{
	snprintf(half->why, sizeof(half->why), "%s %u: %s", what, i, rdma_get_error());
	return false;
}

static void cut(rdma_context *ctx)
{
	rdma_enter(ctx);
	if (ctx->peers && ctx->peer[0]->conn)
		conn_close(ctx->peer[0]->conn, -EIO, "cut by the test");
	rdma_leave(ctx);
}

static bool half_checks(struct half *half, unsigned i, int64_t length, const uint8_t *data)
{
	if (length != length_of(i) ||
	    (length && (data[0] != byte_of(i, 0) || data[length - 1] != byte_of(i, (uint32_t)length - 1)))) {
		snprintf(half->why, sizeof(half->why), "message %u: length %lld, not %u, or other bytes", i,
			 (long long)length, length_of(i));
		return false;
	}
	return true;
}

/* A few sends and a receive are under way at all times. */
static bool half_runs(struct half *half)
{
	enum { AT_A_TIME = 4 };
	uint8_t *out[AT_A_TIME], *in = malloc(LONGEST + 1);
	rdma_request *sends[AT_A_TIME] = {NULL}, *receive = NULL;
	unsigned sent = 0, got = 0, cuts = 0, calm = 0;
	bool ok = true;

	for (unsigned k = 0; k < AT_A_TIME; k++)
		out[k] = malloc(LONGEST + 1);
	while (ok && (got < MESSAGES || sent < MESSAGES)) {
		int64_t length;

		for (unsigned k = 0; ok && k < AT_A_TIME; k++) {
			if (sends[k] && rdma_test(sends[k], &length) == 1) {
				sends[k] = NULL;
				if (length < 0)
					ok = half_failed(half, "send before", sent);
			}
		}
		/* In the order of the numbers, one slot after the other. */
		if (ok && sent < MESSAGES && !sends[sent % AT_A_TIME]) {
			uint32_t n = length_of(sent);

			for (uint32_t at = 0; at < n; at++)
				out[sent % AT_A_TIME][at] = byte_of(sent, at);
			sends[sent % AT_A_TIME] = rdma_isend(half->ctx, 0, out[sent % AT_A_TIME], n);
			if (!sends[sent % AT_A_TIME])
				ok = half_failed(half, "isend", sent);
			sent++;
		}
		if (ok && !receive && got < MESSAGES) {
			receive = rdma_irecv(half->ctx, 0, in, LONGEST + 1);
			if (!receive)
				ok = half_failed(half, "irecv", got);
		}
		if (ok && receive && rdma_test(receive, &length) == 1) {
			receive = NULL;
			ok = length >= 0 ? half_checks(half, got, length, in) : half_failed(half, "receive", got);
			got++;
			calm++;
		}
		if (cuts < half->cuts && calm * (half->cuts + 1) > MESSAGES + half->seed) {
			cut(half->ctx);
			cuts++;
			calm = 0;
		}
	}
	for (unsigned k = 0; ok && k < AT_A_TIME; k++)
		if (sends[k] && rdma_wait(sends[k], PATIENCE_MS, NULL) != 0)
			ok = half_failed(half, "last send", k);
	/* The last ones are confirmed, for the other end. */
	if (ok && rdma_disconnect_peer(half->ctx, 0) != 0 && rdma_peers(half->ctx) != 0)
		ok = half_failed(half, "disconnect", 0);
	for (unsigned k = 0; k < AT_A_TIME; k++)
		free(out[k]);
	free(in);
	return ok;
}

static void *half_thread(void *arg)
{
	struct half *half = arg;

	half->ok = half_runs(half);
	return NULL;
}

static void exchange_with_cuts(unsigned cuts, bool thread)
{
	rdma_options options = {.reconnect_ms = PATIENCE_MS, .progress_thread = thread};
	struct half a, b;
	struct client c;

	serve(&options);
	client_accepted(&c, &options);
	a = (struct half){.ctx = server, .cuts = cuts, .seed = 17};
	b = (struct half){.ctx = c.ctx, .cuts = cuts, .seed = 1234};
	ck_assert_int_eq(pthread_create(&a.thread, NULL, half_thread, &a), 0);
	half_thread(&b);
	pthread_join(a.thread, NULL);
	ck_assert_msg(a.ok, "server: %s", a.why);
	ck_assert_msg(b.ok, "client: %s", b.why);
	client_ends(&c);
}

START_TEST(all_arrive_once_and_in_order)
{
	exchange_with_cuts(0, false);
}
END_TEST

START_TEST(all_arrive_though_it_is_cut)
{
	exchange_with_cuts(5, false);
}
END_TEST

START_TEST(all_arrive_in_a_storm)
{
	exchange_with_cuts(40, true);
}
END_TEST

START_TEST(calls_wait_for_a_connection)
{
	rdma_options options = {.reconnect_ms = PATIENCE_MS};
	struct client c;

	serve(&options);
	client_accepted(&c, &options);
	for (int i = 0; i < 20; i++) {
		rdma_request *request;
		int64_t length;

		cut(i % 2 ? c.ctx : server);
		request = rdma_isend(c.ctx, 0, "there", 6);
		ck_assert_msg(request, "%s", rdma_get_error());
		while (rdma_test(request, &length) == 0)
			turn(server);
		ck_assert_int_eq(length, 6);
		while (rdma_probe(server, 0, 1) < 0) {
			ck_assert_msg(rdma_get_errno() == EAGAIN, "%s", rdma_get_error());
			turn(c.ctx);
		}
		hear(server, 0, "there");
	}
	ck_assert_int_eq(rdma_peers(server), 1);
	client_ends(&c);
}
END_TEST

static Suite *suite_make(const char *name)
{
	Suite *suite = suite_create(name);
	TCase *tc = suite_case(suite, "anew", set_up, tear_down);

	tcase_add_test(tc, all_arrive_once_and_in_order);
	tcase_add_test(tc, all_arrive_though_it_is_cut);
	tcase_add_test(tc, all_arrive_in_a_storm);
	tcase_add_test(tc, calls_wait_for_a_connection);
	return suite;
}

int main(int argc, char **argv)
{
	return run_over_each(argc, argv, suite_make);
}
