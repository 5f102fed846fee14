/* check_peer_roster.c: what a context keeps of peers that have gone, and what it does not. */
#include "peer/links/connect.h"

#include "tests/suite.h"

#include <pthread.h>

#define PATIENCE_MS 600000 /* longer than a case may take: that limit ends a test that hangs */

static rdma_context *server;
static int port;

static void server_up(uint32_t max_peers)
{
	const rdma_options options = {
		.max_peers = max_peers, .timeout_ms = PATIENCE_MS, .connect_timeout_ms = PATIENCE_MS};

	server = rdma_init_options("127.0.0.1", 0, true, &options);
	ck_assert_msg(server, "%s", rdma_get_error());
	port = rdma_port(server);
}

static void server_down(void)
{
	rdma_cleanup(server);
	server = NULL;
}

struct visit {
	pthread_t thread;
	bool (*of)(rdma_context *ctx, int peer);
};

static void *visit_run(void *arg)
{
	const struct visit *visit = arg;
	rdma_context *ctx = rdma_init(NULL, 0, 0, false);
	int peer = rdma_connect_peer(ctx, "127.0.0.1", port);

	if (peer < 0 || !visit->of(ctx, peer))
		ck_abort_msg("%s", rdma_get_error());
	rdma_cleanup(ctx);
	return NULL;
}

static int visit_begin(struct visit *visit, bool (*of)(rdma_context *ctx, int peer))
{
	visit->of = of;
	ck_assert_int_eq(pthread_create(&visit->thread, NULL, visit_run, visit), 0);
	return rdma_accept_peer(server);
}

static void visit_end(struct visit *visit)
{
	while (rdma_peers(server))
		rdma_progress(server);
	pthread_join(visit->thread, NULL);
	while (!list_empty(&server->connections->links)) /* until nothing is under way with it */
		rdma_progress(server);
	rdma_progress(server);
}

static bool says(rdma_context *ctx, int peer)
{
	return rdma_send(ctx, peer, "hello", 6) == 6;
}

static bool is_asked(rdma_context *ctx, int peer)
{
	char word[8];

	return rdma_recv(ctx, peer, word, sizeof(word)) == 2;
}

static void is_gone(int index, const char *words)
{
	char text[8];

	ck_assert_int_eq(rdma_recv(server, index, text, sizeof(text)), -1);
	ck_assert_int_eq(rdma_get_errno(), ENOTCONN);
	ck_assert_msg(strstr(rdma_get_error(), words), "%s", rdma_get_error());
}

START_TEST(who_has_gone_leaves)
{
	char text[8];
	int lost = 0;

	for (int i = 0; i < PEER_GRAVES + 6; i++) {
		struct visit visit;

		ck_assert_int_eq(visit_begin(&visit, says), i);
		ck_assert_int_eq(rdma_recv(server, i, text, sizeof(text)), 6);
		visit_end(&visit);
		ck_assert_uint_eq(server->peers, 0);
		is_gone(i, "it has disconnected");
		lost++;
	}
	is_gone(0, "Peer not connected: 0 has gone");
	ck_assert_int_eq(rdma_recv(server, lost, text, sizeof(text)), -1);
	ck_assert_int_eq(rdma_get_errno(), EINVAL);
}
END_TEST

/* What came before can be received, of as many as there may be peers. */
START_TEST(what_was_not_received_stays)
{
	struct visit visit;
	char text[8];

	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(visit_begin(&visit, says), i);
		visit_end(&visit);
		ck_assert_uint_eq(server->peers, MIN(i + 1, 2));
	}
	for (int i = 0; i < 2; i++)
		is_gone(i, "it has disconnected");
	for (int i = 2; i < 4; i++)
		ck_assert_int_eq(rdma_recv(server, i, text, sizeof(text)), 6);
	ck_assert_uint_eq(server->peers, 0);
}
END_TEST

START_TEST(a_request_outlives_its_peer)
{
	struct visit visit;
	rdma_request *request;
	char text[8];

	ck_assert_int_eq(visit_begin(&visit, is_asked), 0);
	request = rdma_irecv(server, 0, text, sizeof(text));
	ck_assert_int_eq(rdma_send(server, 0, "go", 2), 2);
	visit_end(&visit);
	ck_assert_uint_eq(server->peers, 0);
	ck_assert_int_eq(rdma_wait(request, PATIENCE_MS, NULL), -1);
	ck_assert_msg(strstr(rdma_get_error(), "it has disconnected"), "%s", rdma_get_error());
}
END_TEST

static bool shares_and_joins(rdma_context *ctx, int peer)
{
	rdma_window *window = rdma_window_create(ctx, NULL, 64, RDMA_WINDOW_READ);

	return window && rdma_window_share(window, peer) == 0 && rdma_group_create(ctx) && is_asked(ctx, peer);
}

/* Handles of the program still say which one it was. */
START_TEST(who_is_referred_to_stays)
{
	struct visit visit;
	rdma_remote *remote;
	rdma_group *group;

	ck_assert_int_eq(visit_begin(&visit, shares_and_joins), 0);
	group = rdma_group_create(server);
	remote = rdma_window_open(server, 0, PATIENCE_MS);
	ck_assert_msg(group && remote, "%s", rdma_get_error());
	ck_assert_int_eq(rdma_send(server, 0, "go", 2), 2);
	visit_end(&visit);
	ck_assert_uint_eq(server->peers, 1);
	ck_assert_int_eq(rdma_group_lost(group, 1), 1);
	ck_assert_int_eq(rdma_group_peer(group, 1), 0);
	rdma_group_free(group);
	ck_assert_uint_eq(server->peers, 1);
	ck_assert_int_eq(rdma_read(remote, 0, &(char){0}, 1), -1);
	rdma_remote_close(remote);
	ck_assert_uint_eq(server->peers, 0);
	is_gone(0, "it has disconnected");
}
END_TEST

static void up(void)
{
	server_up(2);
}

int main(void)
{
	Suite *suite = suite_create("peer_roster");
	TCase *tc = suite_case(suite, "roster", up, server_down);

	tcase_add_test(tc, who_has_gone_leaves);
	tcase_add_test(tc, what_was_not_received_stays);
	tcase_add_test(tc, a_request_outlives_its_peer);
	tcase_add_test(tc, who_is_referred_to_stays);
	return suite_run(suite);
}
