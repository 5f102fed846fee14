/*
 * check_peer.c: contexts and peers: which connects and is accepted, which is refused, programs with a loop or threads.
 *
 *     check_peer [ADDRESS]     127.0.0.1 and a UNIX socket here, unless another one is given: rdma://10.99.0.1
 */
#include "tests/peer/peer_clients.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

/*
 * What the library calls, bent
 */
static _Atomic bool other_version;

bool __real_conn_say(struct conn *conn, const struct wire_record *head, const void *body, size_t length,
		     const void *rest, size_t rest_length);
bool __wrap_conn_say(struct conn *conn, const struct wire_record *head, const void *body, size_t length,
		     const void *rest, size_t rest_length);
bool __wrap_conn_say(struct conn *conn, const struct wire_record *head, const void *body, size_t length,
		     const void *rest, size_t rest_length)
{
	struct wire_peer_hello hello;

	if (!other_version || head->op != WIRE_OP_PEER_HELLO || head->flags)
		return __real_conn_say(conn, head, body, length, rest, rest_length);
	memcpy(&hello, body, sizeof(hello));
	hello.version++;
	return __real_conn_say(conn, head, &hello, length, rest, rest_length);
}

/*
 * Begin and end
 */
START_TEST(peers_have_indices_that_stay)
{
	struct client c[3];

	serve(NULL);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(client_accepted(&c[i], NULL), i);
		ck_assert_int_eq(c[i].peer, 0);
	}
	ck_assert_int_eq(rdma_peers(server), 3);
	ck_assert_int_eq(rdma_disconnect_peer(server, 1), 0);
	ck_assert_int_eq(rdma_peers(server), 2);
	ck_assert_int_eq(rdma_disconnect_peer(server, 1), -1);
	expect_error(ENOTCONN, "Peer not connected: ");
	say(server, 2, "two");
	hear(c[2].ctx, 0, "two");
	client_ends(&c[1]);
	ck_assert_int_eq(client_accepted(&c[1], NULL), 3);
	say(c[1].ctx, 0, "three");
	hear(server, 3, "three");
	for (int i = 0; i < 3; i++)
		client_ends(&c[i]);
}
END_TEST

START_TEST(transport_has_a_name)
{
	const char *named = strncmp(target, "tcp", 3) == 0 || strncmp(target, "rdma", 4) == 0 ? target : "shm:";
	struct client c;

	serve(NULL);
	client_accepted(&c, NULL);
	ck_assert_ptr_nonnull(rdma_transport(server, 0));
	ck_assert_int_eq(strncmp(rdma_transport(server, 0), named, strcspn(named, ":")), 0);
	ck_assert_str_eq(rdma_transport(c.ctx, 0), rdma_transport(server, 0));
	client_ends(&c);
}
END_TEST

static unsigned sockets_of_class(int traffic_class)
{
	unsigned n = 0;

	for (int fd = 0; fd < 200; fd++) {
		int tos = 0;
		socklen_t size = sizeof(tos);

		n += getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &size) == 0 && tos == traffic_class;
	}
	return n;
}

/* What listens, and both ends of the connection; of a device, see check_fabric. */
START_TEST(packets_have_the_class_that_was_asked_for)
{
	rdma_options options = {.traffic_class = 0xb8};
	struct client c;

	if (!strncmp(target, "unix:", 5) || !strncmp(target, "rdma:", 5))
		return;
	serve(&options);
	client_accepted(&c, &options);
	ck_assert_uint_eq(sockets_of_class(0xb8), 3);
	client_ends(&c);
}
END_TEST

START_TEST(cleanup_delivers_what_was_sent)
{
	struct client c;

	serve(NULL);
	for (int round = 0; round < 10; round++) {
		int index = client_accepted(&c, NULL);

		for (int i = 0; i < 20; i++)
			say(c.ctx, 0, "and then it ends");
		client_ends(&c);
		for (int i = 0; i < 20; i++)
			hear(server, index, "and then it ends");
		ck_assert_int_eq(rdma_recv(server, index, NULL, 0), -1);
		ck_assert_ptr_nonnull(strstr(rdma_get_error(), "it has disconnected"));
	}
}
END_TEST

START_TEST(cleanup_of_half_a_connection)
{
	struct client c[2];
	rdma_context *waits;

	serve(NULL);
	client_begin(&c[0], NULL);
	client_begin(&c[1], NULL);
	ck_assert_int_eq(rdma_accept_peer(server), 0);
	waits = server;
	server = NULL;
	rdma_cleanup(waits); /* one is accepted, the other not */
	for (int i = 0; i < 2; i++) {
		client_join(&c[i]);
		rdma_cleanup(c[i].ctx);
	}
	ck_assert_int_eq((c[0].peer < 0) + (c[1].peer < 0), 1);
	rdma_cleanup(NULL);
}
END_TEST

/*
 * What is refused
 */
START_TEST(arguments_that_make_no_sense)
{
	rdma_context *ctx;
	struct client c;
	char byte;

	ck_assert_int_eq(rdma_connect_peer(NULL, "127.0.0.1", 1), -1);
	expect_error(EINVAL, "Invalid parameters: ");
	ck_assert_int_eq(rdma_accept_peer(NULL), -1);
	expect_error(EINVAL, "Invalid parameters: ");
	ck_assert_int_eq(rdma_disconnect_peer(NULL, 0), -1);
	ck_assert_int_eq(rdma_peers(NULL), -1);
	ck_assert_int_eq(rdma_port(NULL), -1);
	ck_assert_int_eq(rdma_fd(NULL), -1);
	ck_assert_int_eq(rdma_progress(NULL), -1);
	ck_assert_ptr_null(rdma_transport(NULL, 0));
	ck_assert_ptr_null((rdma_init)("127.0.0.1", 65536, 0, true));
	expect_error(EINVAL, "Invalid parameters: ");
	ck_assert_ptr_null((rdma_init)("127.0.0.1", -1, 0, true));
	ck_assert_ptr_null((rdma_init)("ftp://127.0.0.1", 0, 0, true));
	expect_error(EINVAL, "Invalid parameters: ");

	ctx = context(false, NULL);
	ck_assert_int_eq(rdma_connect_peer(ctx, NULL, 1), -1);
	expect_error(EINVAL, "Invalid parameters: ");
	ck_assert_int_eq(rdma_connect_peer(ctx, "127.0.0.1", -1), -1);
	expect_error(EINVAL, "Invalid parameters: ");
	ck_assert_int_eq(rdma_connect_peer(ctx, "127.0.0.1", 0), -1);
	expect_error(EINVAL, "Invalid server IP address: ");
	ck_assert_int_eq(rdma_connect_peer(ctx, "", 1), -1);
	expect_error(EINVAL, "Invalid server IP address: ");
	ck_assert_int_eq(rdma_connect_peer(ctx, "[1.2.3", 1), -1);
	expect_error(EINVAL, "Invalid server IP address: ");
	ck_assert_int_eq(rdma_accept_peer(ctx), -1);
	expect_error(EOPNOTSUPP, "Not a server context: ");
	rdma_cleanup(ctx);

	serve(NULL);
	ck_assert_int_eq(rdma_send(server, 0, "x", 1), -1);
	expect_error(EINVAL, "Invalid peer index: ");
	client_accepted(&c, NULL);
	static const int wrong[] = {-1, 1, INT32_MAX, INT32_MIN};
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(rdma_send(server, wrong[i], "x", 1), -1);
		expect_error(EINVAL, "Invalid peer index: ");
		ck_assert_int_eq(rdma_recv(server, wrong[i], &byte, 1), -1);
		expect_error(EINVAL, "Invalid peer index: ");
		ck_assert_int_eq(rdma_disconnect_peer(server, wrong[i]), -1);
		expect_error(EINVAL, "Invalid peer index: ");
		ck_assert_ptr_null(rdma_transport(server, wrong[i]));
	}
	ck_assert_int_eq(rdma_send(server, 0, NULL, 1), -1);
	expect_error(EINVAL, "Invalid parameters: ");
	ck_assert_int_eq(rdma_recv(server, 0, NULL, 1), -1);
	expect_error(EINVAL, "Invalid parameters: ");
	ck_assert_ptr_null(rdma_isend(server, 0, &byte, SIZE_MAX));
	expect_error(EINVAL, "Invalid parameters: 18446744073709551615 bytes at ");
	ck_assert_int_eq(rdma_register(server, &byte, SIZE_MAX), -1);
	expect_error(EINVAL, "Invalid parameters: 18446744073709551615 bytes at ");
	client_ends(&c);
}
END_TEST

START_TEST(nobody_listens)
{
	rdma_context *ctx = context(false, NULL);
	int port;

	serve(NULL);
	port = rdma_port(server);
	rdma_cleanup(server);
	server = NULL;
	ck_assert_int_eq(rdma_connect_peer(ctx, target, port), -1);
	ck_assert_msg(strncmp(rdma_get_error(), "Failed to connect to server: ", 29) == 0, "%s", rdma_get_error());
	rdma_cleanup(ctx);
}
END_TEST

START_TEST(nobody_accepts)
{
	rdma_options options = {.connect_timeout_ms = 300};
	struct client c;

	serve(NULL);
	client_begin(&c, &options);
	while (c.ctx && pthread_tryjoin_np(c.thread, NULL) != 0)
		turn(server);
	ck_assert_int_eq(c.peer, -1);
	ck_assert_int_eq(c.error, ETIMEDOUT);
	ck_assert_msg(strstr(c.why, "Failed to connect to server: "), "%s", c.why);
	ck_assert_msg(strstr(c.why, "rdma_accept_peer()"), "%s", c.why);
	client_ends(&c);
	/* The peer has gone, and nobody is accepted in its place. */
	server->options.timeout_ms = 100;
	ck_assert_int_eq(rdma_accept_peer(server), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
}
END_TEST

/* The server's program is busy: it accepts nobody, and makes no call at all. */
START_TEST(nobody_answers)
{
	rdma_options options = {.connect_timeout_ms = 300};
	struct client c;

	serve(NULL);
	client_begin(&c, &options);
	pthread_join(c.thread, NULL);
	ck_assert_int_eq(c.peer, -1);
	ck_assert_int_eq(c.error, ETIMEDOUT);
	ck_assert_msg(strstr(c.why, "rdma_accept_peer()"), "%s", c.why);
	client_ends(&c);
}
END_TEST

START_TEST(more_than_max_peers)
{
	rdma_options few = {.max_peers = 2};
	struct client c[3];

	serve(&few);
	client_accepted(&c[0], NULL);
	client_begin(&c[1], NULL);
	while (list_empty(&server->waiting))
		turn(server);
	client_begin(&c[2], NULL);
	while (server->waiting.next->next == &server->waiting) /* both may wait: there is a place for one of them */
		turn(server);
	ck_assert_int_eq(rdma_accept_peer(server), 1);
	client_join(&c[1]);
	while (pthread_tryjoin_np(c[2].thread, NULL) != 0)
		turn(server);
	ck_assert_int_eq(c[2].peer, -1);
	ck_assert_int_eq(c[2].error, EUSERS);
	ck_assert_msg(strstr(c[2].why, "Maximum number of peers reached: 2 at "), "%s", c[2].why);
	ck_assert_msg(strncmp(c[2].why, "Failed to connect to server: ", 29) == 0, "%s", c[2].why);
	ck_assert_int_eq(c[1].peer, 0);
	client_ends(&c[2]);

	/* A place that is free is given again. */
	ck_assert_int_eq(rdma_disconnect_peer(server, 0), 0);
	ck_assert_int_eq(client_accepted(&c[2], NULL), 2);
	for (int i = 0; i < 3; i++)
		client_ends(&c[i]);
}
END_TEST

START_TEST(a_client_has_max_peers_too)
{
	rdma_options one = {.max_peers = 1};
	struct client c;

	serve(NULL);
	client_accepted(&c, &one);
	ck_assert_int_eq(rdma_connect_peer(c.ctx, target, c.port), -1);
	expect_error(EUSERS, "Maximum number of peers reached: 1");
	client_ends(&c);
}
END_TEST

/* One more than there are places; an emulated device takes a second for each. */
START_TEST(all_clients_at_once)
{
	const int places = getenv("RDMAD_GUEST") ? 16 : 64;
	rdma_options options = {.max_peers = places};
	struct client c[65];
	unsigned refused = 0;
	char words[100];

	snprintf(words, sizeof(words), "Maximum number of peers reached: %d", places);
	serve(places == 64 ? NULL : &options);
	for (int i = 0; i <= places; i++)
		client_begin(&c[i], NULL);
	for (int i = 0; i < places; i++)
		ck_assert_msg(rdma_accept_peer(server) == i, "%s", rdma_get_error());
	for (int i = 0; i <= places; i++) {
		while (pthread_tryjoin_np(c[i].thread, NULL) != 0)
			turn(server);
		refused += c[i].peer < 0;
		if (c[i].peer < 0)
			ck_assert_msg(strstr(c[i].why, words), "%s", c[i].why);
	}
	ck_assert_uint_eq(refused, 1);
	ck_assert_int_eq(rdma_peers(server), places);
	for (int i = 0; i < places; i++)
		ck_assert_int_eq(rdma_send(server, i, &i, sizeof(i)), sizeof(i));
	for (int i = 0; i <= places; i++)
		client_ends(&c[i]);
}
END_TEST

START_TEST(another_version)
{
	struct client c;
	char words[100];

	serve(NULL);
	other_version = true;
	client_begin(&c, NULL);
	while (pthread_tryjoin_np(c.thread, NULL) != 0)
		turn(server);
	other_version = false;
	ck_assert_int_eq(c.peer, -1);
	snprintf(words, sizeof(words), "speaks version %u of the protocol of peers, the other one version %u",
		 WIRE_PEER_VERSION, WIRE_PEER_VERSION + 1);
	ck_assert_msg(strstr(c.why, words), "%s", c.why);
	client_ends(&c);
	ck_assert_int_eq(client_accepted(&c, NULL), 0);
	client_ends(&c);
}
END_TEST

/*
 * Loops and threads
 */
START_TEST(a_loop_sleeps_on_the_descriptor)
{
	for (int with_thread = 0; with_thread < 2; with_thread++) {
		rdma_options options = {.progress_thread = with_thread};
		struct client c;
		struct pollfd fd;
		int index;

		serve(&options);
		index = client_accepted(&c, NULL);
		fd = (struct pollfd){.fd = rdma_fd(server), .events = POLLIN};
		for (int i = 0; i < 20; i++) {
			char text[30], heard[sizeof(text)]; /* with a thread it may come at once */
			int64_t result = 0;
			rdma_request *request = rdma_irecv(server, index, heard, sizeof(heard));

			snprintf(text, sizeof(text), "%d", i);
			ck_assert_int_eq(rdma_send(c.ctx, 0, text, sizeof(text)), sizeof(text));
			turn(c.ctx);
			while (rdma_test(request, &result) == 0) {
				int timeout = rdma_progress_timeout(server);

				if (rdma_progress(server) == 0)
					poll(&fd, 1, timeout < 0 || timeout > 1000 ? 1000 : timeout);
			}
			ck_assert_int_eq(result, sizeof(text));
			ck_assert_str_eq(heard, text);
		}
		client_ends(&c);
		rdma_cleanup(server);
		server = NULL;
	}
}
END_TEST

static _Atomic bool program_works;

static void *client_sends(void *arg)
{
	struct client *c = arg;
	char *data = malloc(1 << 20);

	for (int i = 0; i < 20; i++) {
		memset(data, i, 1 << 20);
		ck_assert_msg(rdma_send(c->ctx, 0, data, 1 << 20) == 1 << 20, "%s", rdma_get_error());
	}
	free(data);
	program_works = false;
	return NULL;
}

/* Each has arrived, which takes the receiver's reading: by its thread, while its program does something else. */
START_TEST(a_thread_moves_bytes)
{
	rdma_options options = {.progress_thread = true};
	rdma_request *request[20];
	struct client c;
	char *data[20];

	serve(&options);
	client_accepted(&c, &options);
	for (int i = 0; i < 20; i++) {
		data[i] = malloc(1 << 20);
		request[i] = rdma_irecv(server, 0, data[i], 1 << 20);
		ck_assert_ptr_nonnull(request[i]);
	}
	program_works = true;
	ck_assert_int_eq(pthread_create(&c.thread, NULL, client_sends, &c), 0);
	while (program_works)
		sched_yield();
	client_join(&c);
	for (int i = 0; i < 20; i++) {
		int64_t length = 0;

		ck_assert_int_eq(rdma_wait(request[i], PATIENCE_MS, &length), 0);
		ck_assert_int_eq(length, 1 << 20);
		ck_assert_int_eq(data[i][12345], i);
		free(data[i]);
	}
	client_ends(&c);
}
END_TEST

/*
 * Meshes
 */
static struct peer *arrived_peer;

static void arrived(void *arg, struct peer *peer)
{
	ck_assert_ptr_eq(arg, &arrived_peer);
	arrived_peer = peer;
}

START_TEST(members_find_each_other)
{
	rdma_context *ctx;
	char addresses[600];
	struct peer *peer = NULL;

	serve(NULL);
	rdma_enter(server);
	ck_assert_int_gt(peer_addresses(server, NULL, addresses, sizeof(addresses)), 0);
	rdma_leave(server);
	ctx = context(false, NULL);
	rdma_enter(ctx);
	ck_assert_int_eq(peer_connect_begin(ctx, addresses, 4711, &peer), 0);
	rdma_leave(ctx);
	ck_assert_int_eq(peer->index, 0);
	arrived_peer = NULL;
	rdma_enter(server);
	peer_expect(server, 4711, arrived, &arrived_peer);
	rdma_leave(server);
	while (peer->state == PEER_CONNECTING) {
		turn(ctx);
		turn(server);
	}
	ck_assert_msg(peer->state == PEER_CONNECTED, "%s", peer->why);
	ck_assert_ptr_nonnull(arrived_peer);
	ck_assert_int_eq(arrived_peer->index, 0);
	say(ctx, 0, "member");
	hear(server, 0, "member");
	rdma_enter(server);
	peer_expect(server, 4711, NULL, NULL);
	rdma_leave(server);

	rdma_enter(ctx);
	ck_assert_int_eq(peer_listen(ctx), 0);
	ck_assert_int_gt(peer_addresses(ctx, peer->conn, addresses, sizeof(addresses)), 0);
	ck_assert_int_eq(peer_addresses(ctx, peer->conn, addresses, 4), -ENOSPC);
	rdma_leave(ctx);
	rdma_cleanup(ctx);
}
END_TEST

/* By an address that another machine has, too. */
START_TEST(a_member_comes_to_itself)
{
	char addresses[600];
	struct peer *peer = NULL;

	serve(NULL);
	rdma_enter(server);
	ck_assert_int_gt(peer_addresses(server, NULL, addresses, sizeof(addresses)), 0);
	ck_assert_int_eq(peer_connect_begin(server, addresses, 4711, &peer), 0);
	while (peer->state == PEER_CONNECTING)
		turn(server);
	ck_assert_int_eq(peer->state, PEER_GONE);
	ck_assert_msg(strstr(peer->why, "this program itself listens there"), "%s", peer->why);
	ck_assert(list_empty(&server->waiting));
	rdma_leave(server);
}
END_TEST

START_TEST(a_client_has_its_own_address)
{
	rdma_context *ctx;
	struct client c;

	if (strstr(target, "://"))
		return;
	serve(NULL);
	c = (struct client){.port = rdma_port(server), .ctx = rdma_init("127.0.0.2", 0, 0, false)};
	ck_assert_ptr_nonnull(c.ctx);
	ck_assert_int_eq(pthread_create(&c.thread, NULL, client_connects, &c), 0);
	ck_assert_int_eq(rdma_accept_peer(server), 0);
	client_join(&c);
	ck_assert_msg(strncmp(server->peer[0]->name, "127.0.0.2:", 10) == 0, "%s", server->peer[0]->name);
	client_ends(&c);
	ctx = rdma_init("192.0.2.1", 0, 0, false);
	ck_assert_ptr_nonnull(ctx);
	ck_assert_int_eq(rdma_connect_peer(ctx, target, c.port), -1);
	expect_error(EADDRNOTAVAIL, "Failed to connect to server: ");
	rdma_cleanup(ctx);
}
END_TEST

/*
 * The suite
 */
static Suite *suite_make(const char *name)
{
	Suite *suite = suite_create(name);
	TCase *tc = suite_case(suite, "begin", set_up, tear_down);

	tcase_add_test(tc, peers_have_indices_that_stay);
	tcase_add_test(tc, transport_has_a_name);
	tcase_add_test(tc, packets_have_the_class_that_was_asked_for);
	tcase_add_test(tc, cleanup_delivers_what_was_sent);
	tcase_add_test(tc, cleanup_of_half_a_connection);

	tc = suite_case(suite, "refusal", set_up, tear_down);
	tcase_add_test(tc, arguments_that_make_no_sense);
	tcase_add_test(tc, nobody_listens);
	tcase_add_test(tc, nobody_accepts);
	tcase_add_test(tc, nobody_answers);
	tcase_add_test(tc, more_than_max_peers);
	tcase_add_test(tc, a_client_has_max_peers_too);
	tcase_add_test(tc, all_clients_at_once);
	tcase_add_test(tc, another_version);

	tc = suite_case(suite, "loops", set_up, tear_down);
	tcase_add_test(tc, a_loop_sleeps_on_the_descriptor);
	tcase_add_test(tc, a_thread_moves_bytes);

	tc = suite_case(suite, "mesh", set_up, tear_down);
	tcase_add_test(tc, members_find_each_other);
	tcase_add_test(tc, a_member_comes_to_itself);
	tcase_add_test(tc, a_client_has_its_own_address);
	return suite;
}

int main(int argc, char **argv)
{
	return run_over_each(argc, argv, suite_make);
}
