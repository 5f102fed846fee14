/* check_peer_crossing.c: two servers that connect to each other at the same time. */
#include "peer/links/connect.h"

#include "tests/suite.h"

#include <pthread.h>
#include <sched.h>

#define PATIENCE_MS 600000 /* longer than a case may take: that limit ends a test that hangs */

struct side {
	rdma_context *ctx;
	int port, peer, delay;
	struct side *other;
	pthread_t thread;
};

static struct side sides[2];

static void side_up(struct side *side, uint32_t max_peers)
{
	const rdma_options options = {.max_peers = max_peers,
				      .timeout_ms = PATIENCE_MS,
				      .connect_timeout_ms = PATIENCE_MS,
				      .heartbeat_ms = PATIENCE_MS,
				      .reconnect_ms = PATIENCE_MS};

	side->ctx = rdma_init_options(suite_address(), 0, true, &options);
	ck_assert_msg(side->ctx, "%s", rdma_get_error());
	side->port = rdma_port(side->ctx);
	side->other = &sides[side == sides];
}

static void up(void)
{
	side_up(&sides[0], 0);
	side_up(&sides[1], 0);
}

static void up_for_one(void)
{
	side_up(&sides[0], 1);
	side_up(&sides[1], 1);
}

static void *connect_run(void *arg)
{
	struct side *side = arg;

	for (int i = 0; i < side->delay; i++)
		sched_yield();
	side->peer = rdma_connect_peer(side->ctx, suite_address(), side->other->port);
	if (side->peer < 0)
		ck_abort_msg("%s", rdma_get_error());
	return NULL;
}

static void both(void *(*run)(void *))
{
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&sides[i].thread, NULL, run, &sides[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(sides[i].thread, NULL);
}

static void *cleanup_run(void *arg)
{
	rdma_cleanup(((struct side *)arg)->ctx);
	return NULL;
}

static void down(void)
{
	both(cleanup_run);
}

static void *talk_run(void *arg)
{
	struct side *side = arg;
	int got = -1;

	if (rdma_send(side->ctx, side->peer, &side->port, sizeof(int)) != sizeof(int) ||
	    rdma_recv(side->ctx, side->peer, &got, sizeof(got)) != sizeof(int) || got != side->other->port)
		ck_abort_msg("%d: %s", got, rdma_get_error());
	return NULL;
}

static void break_connection(struct side *side)
{
	struct peer *peer = side->ctx->peer[0];

	rdma_enter(side->ctx);
	if (peer->conn)
		conn_close(peer->conn, -EIO, "the test breaks it");
	rdma_leave(side->ctx);
}

/* One peer at each, of which nobody waits to be accepted; and a connection that breaks is made anew. */
START_TEST(both_have_one_peer)
{
	sides[_i % 2].delay = _i / 2 * _i;
	both(connect_run);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sides[i].peer, 0);
		ck_assert_int_eq(rdma_peers(sides[i].ctx), 1);
		ck_assert(list_empty(&sides[i].ctx->waiting));
		ck_assert_uint_eq(sides[i].ctx->connections->held, 1);
	}
	both(talk_run);
	break_connection(&sides[_i % 2]);
	both(talk_run);
}
END_TEST

START_TEST(a_program_does_not_connect_to_itself)
{
	ck_assert_int_eq(rdma_connect_peer(sides[0].ctx, suite_address(), sides[0].port), -1);
	ck_assert_int_eq(rdma_get_errno(), EINVAL);
	ck_assert_msg(strstr(rdma_get_error(), "this program itself"), "%s", rdma_get_error());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer_crossing");
	TCase *tc = suite_case(suite, "crossing", up, down);

	tcase_add_loop_test(tc, both_have_one_peer, 0, 12);
	tcase_add_test(tc, a_program_does_not_connect_to_itself);
	tc = suite_case(suite, "limit", up_for_one,
			down); /* the place of the peer is taken by the call that is under way */
	tcase_add_loop_test(tc, both_have_one_peer, 0, 12);
	return suite_run(suite);
}
