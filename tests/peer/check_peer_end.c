/* check_peer_end.c: peers that die, are silent, or do not come back: which others are told, and how. */
#include "tests/peer/peer_clients.h"

#include <linux/filter.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct {
	int index;
	unsigned times;
	char why[300];
} lost;

static void on_lost(rdma_context *ctx, int index, const char *text, void *arg)
{
	ck_assert_ptr_eq(ctx, server);
	ck_assert_ptr_eq(arg, &lost);
	lost.index = index;
	lost.times++;
	snprintf(lost.why, sizeof(lost.why), "%s", text);
	ck_assert_int_eq(rdma_send(ctx, index, "x", 1), -1); /* calls are allowed, and leave the error alone */
}

static void do_nothing(rdma_context *ctx, int peer)
{
	(void)ctx;
	(void)peer;
	while (true)
		pause();
}

/* A server, and a program that connects to it, says "here", and goes on so. The fork comes before the first use of a device, as it
 * must. */
static pid_t serve_program_that(void (*goes_on)(rdma_context *ctx, int peer), const rdma_options *options,
				const rdma_options *client)
{
	int port, ends[2];
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		rdma_context *ctx;
		int peer;

		ck_assert_int_eq(read(ends[0], &port, sizeof(port)), sizeof(port));
		ctx = context(false, client);
		peer = rdma_connect_peer(ctx, target, port);
		rdma_send(ctx, peer, "here", 5);
		goes_on(ctx, peer);
		_exit(0);
	}
	serve(options);
	port = rdma_port(server);
	ck_assert_int_eq(write(ends[1], &port, sizeof(port)), sizeof(port));
	close(ends[0]);
	close(ends[1]);
	return pid;
}

static pid_t serve_program(const rdma_options *options, const rdma_options *client)
{
	return serve_program_that(do_nothing, options, client);
}

/* The kernel has told this end of it, and its clock has ticked. */
static void kill_and_rest(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	usleep(strstr(target, "rdma:") ? 1000000 : 50000);
}

START_TEST(a_killed_peer_is_reported)
{
	char byte, name[128];
	pid_t pid;

	memset(&lost, 0, sizeof(lost));
	pid = serve_program(NULL, NULL);
	rdma_on_lost(server, on_lost, &lost);
	ck_assert_int_eq(rdma_accept_peer(server), 0);
	snprintf(name, sizeof(name), "%s", server->peer[0]->name);
	hear(server, 0, "here");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(rdma_recv(server, 0, &byte, 1), -1);
	ck_assert_msg(strstr(rdma_get_error(), name), "%s", rdma_get_error());
	ck_assert_uint_eq(lost.times, 1);
	ck_assert_int_eq(lost.index, 0);
	ck_assert_int_eq(rdma_send(server, 0, "x", 1), -1);
	expect_error(ENOTCONN, "Peer not connected: ");
	ck_assert_int_eq(rdma_peers(server), 0);
	ck_assert_uint_eq(lost.times, 1);
}
END_TEST

static int first_send(void)
{
	return rdma_send(server, 0, "x", 1);
}

static int first_isend(void)
{
	return rdma_isend(server, 0, "x", 1) ? 1 : -1;
}

static int first_broadcast(void)
{
	return rdma_broadcast(server, "x", 1);
}

static int first_count(void)
{
	return rdma_peers(server) ? 1 : -1;
}

static int first_share(void)
{
	rdma_window *window = rdma_window_create(server, NULL, 4096, RDMA_WINDOW_READ);
	int rc = rdma_window_share(window, 0);

	rdma_window_close(window);
	return rc;
}

static int (*const first_calls[])(void) = {first_send, first_isend, first_broadcast, first_count, first_share};

/* The first call behind a peer's death tells, though it need not wait for anything. */
START_TEST(the_first_call_tells)
{
	pid_t pid = serve_program(NULL, NULL);

	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	say(server, 0, "there");
	kill_and_rest(pid);
	ck_assert_int_eq(first_calls[_i](), -1);
	ck_assert_int_eq(rdma_peers(server), 0);
}
END_TEST

/* The same of a peer that has ended in peace, for which it waits a second. */
static void hang_up(rdma_context *ctx, int peer)
{
	(void)peer;
	rdma_cleanup(ctx);
}

START_TEST(a_send_to_one_that_has_hung_up)
{
	pid_t pid = serve_program_that(hang_up, NULL, NULL);

	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	waitpid(pid, NULL, 0);
	usleep(50000);
	ck_assert_int_eq(rdma_send(server, 0, "x", 1), -1);
	expect_error(ENOTCONN, "Peer not connected: ");
}
END_TEST

START_TEST(a_broadcast_counts_who_is_alive)
{
	struct client c = {0};
	pid_t pid = serve_program(NULL, NULL);

	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	ck_assert_int_eq(client_accepted(&c, NULL), 1);
	kill_and_rest(pid);
	ck_assert_int_eq(rdma_broadcast(server, "x", 2), 1);
	ck_assert_int_eq(rdma_peers(server), 1);
	hear(c.ctx, c.peer, "x");
	client_ends(&c);
}
END_TEST

/* What a look has brought the descriptor does not tell: then there is no time to sleep. */
START_TEST(a_look_is_not_slept_over)
{
	struct client c = {0};
	pid_t pid = serve_program(NULL, NULL);

	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	ck_assert_int_eq(client_accepted(&c, NULL), 1);
	while (rdma_progress(server))
		;
	ck_assert_int_ne(rdma_progress_timeout(server), 0);
	say(c.ctx, c.peer, "news");
	kill_and_rest(pid);
	ck_assert_int_eq(rdma_peers(server), 1);
	ck_assert_int_eq(rdma_progress_timeout(server), 0);
	while (rdma_progress(server))
		;
	ck_assert_int_ne(rdma_progress_timeout(server), 0);
	hear(server, 1, "news");
	client_ends(&c);
}
END_TEST

static void compute_and_send(rdma_context *ctx, int peer)
{
	sleep(3);
	rdma_send(ctx, peer, "back", 5);
	rdma_cleanup(ctx);
}

/* One that computes for long is alive, and at most one question waits for it. */
START_TEST(a_program_that_computes_is_not_given_up)
{
	rdma_options heartbeat = {.heartbeat_ms = 100};
	struct conn_info before, after;
	pid_t pid = serve_program_that(compute_and_send, &heartbeat, NULL);

	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	conn_get_info(server->peer[0]->conn, &before);
	ck_assert_int_eq(rdma_probe(server, 0, 2000), -1);
	ck_assert_int_eq(rdma_get_errno(), EAGAIN);
	ck_assert_int_eq(rdma_peers(server), 1);
	conn_get_info(server->peer[0]->conn, &after);
	ck_assert_uint_le(after.messages_out - before.messages_out, 2); /* it, and an acknowledgement */
	hear(server, 0, "back");
	waitpid(pid, NULL, 0);
}
END_TEST

/* All packets of its connections are lost from here on. */
static void swallow(rdma_context *ctx, int peer)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {1, &drop};

	for (int fd = 3; fd < 256; fd++)
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
	do_nothing(ctx, peer);
}

/* A host that does not acknowledge is gone, and found by the heartbeat. */
START_TEST(a_host_that_swallows_packets)
{
	rdma_options heartbeat = {.heartbeat_ms = 1000};
	uint64_t since;
	char byte;
	pid_t pid;

	if (!strstr(target, "tcp:"))
		return;
	pid = serve_program_that(swallow, &heartbeat, NULL);
	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	usleep(200000);
	since = time_now();
	ck_assert_int_eq(rdma_recv(server, 0, &byte, 1), -1);
	ck_assert_msg(strstr(rdma_get_error(), "does not answer"), "%s", rdma_get_error());
	ck_assert_uint_lt(time_now() - since, 6 * TIME_S); /* before the kernel's own keepalive ends it */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(a_thread_answers)
{
	rdma_options heartbeat = {.heartbeat_ms = 1000}, thread = {.progress_thread = true};
	pid_t pid;

	pid = serve_program(&heartbeat, &thread);
	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	ck_assert_int_eq(rdma_probe(server, 0, 5000), -1); /* for as long as five questions */
	ck_assert_int_eq(rdma_get_errno(), EAGAIN);
	ck_assert_int_eq(rdma_peers(server), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(a_peer_that_never_comes_back)
{
	rdma_options options = {.reconnect_ms = 300};
	rdma_request *request[3];
	char byte[3], name[200];
	pid_t pid;

	memset(&lost, 0, sizeof(lost));
	pid = serve_program(&options, &options);
	rdma_on_lost(server, on_lost, &lost);
	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	snprintf(name, sizeof(name), "%s", server->peer[0]->name);
	for (int i = 0; i < 3; i++)
		request[i] = rdma_irecv(server, 0, &byte[i], 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(rdma_wait(request[i], PATIENCE_MS, NULL), -1);
		ck_assert_msg(strstr(rdma_get_error(), "was not made anew within 300 ms"), "%s", rdma_get_error());
		ck_assert_msg(strstr(rdma_get_error(), name), "%s", rdma_get_error());
	}
	ck_assert_uint_eq(lost.times, 1);
}
END_TEST

/* The server's program has died: its session is over, though another one listens there. */
START_TEST(another_server_in_its_place)
{
	rdma_options options = {.reconnect_ms = PATIENCE_MS};
	int port, to_child[2], to_parent[2];
	rdma_context *ctx;
	char byte = 0;
	pid_t pid;

	if (strstr(target, "rdma:"))
		return; /* a port that an ended program had is not free at once there */
	ck_assert_int_eq(pipe(to_child) | pipe(to_parent), 0);
	pid = fork();
	if (pid == 0) {
		server = context(true, &options);
		port = rdma_port(server);
		ck_assert_int_eq(write(to_parent[1], &port, sizeof(port)), sizeof(port));
		rdma_accept_peer(server);
		while (true)
			rdma_recv(server, 0, &byte, 1);
	}
	ck_assert_int_eq(read(to_parent[0], &port, sizeof(port)), sizeof(port));
	ctx = context(false, &options);
	ck_assert_msg(rdma_connect_peer(ctx, target, port) == 0, "%s", rdma_get_error());
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	server = rdma_init_options(target, port, true, &options);
	ck_assert_msg(server, "%s", rdma_get_error());
	while (rdma_peers(ctx) > 0) {
		turn(ctx);
		turn(server);
	}
	ck_assert_int_eq(rdma_send(ctx, 0, "x", 1), -1);
	ck_assert_msg(strstr(rdma_get_error(), "the session is over here"), "%s", rdma_get_error());
	rdma_cleanup(ctx);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}
END_TEST

static Suite *suite_make(const char *name)
{
	Suite *suite = suite_create(name);
	TCase *tc = suite_case(suite, "end", NULL, tear_down_alone);

	tcase_add_test(tc, a_killed_peer_is_reported);
	tcase_add_loop_test(tc, the_first_call_tells, 0, ARRAY_SIZE(first_calls));
	tcase_add_test(tc, a_send_to_one_that_has_hung_up);
	tcase_add_test(tc, a_broadcast_counts_who_is_alive);
	tcase_add_test(tc, a_look_is_not_slept_over);
	tcase_add_test(tc, a_program_that_computes_is_not_given_up);
	tcase_add_test(tc, a_host_that_swallows_packets);
	tcase_add_test(tc, a_thread_answers);
	tcase_add_test(tc, a_peer_that_never_comes_back);
	tcase_add_test(tc, another_server_in_its_place);
	return suite;
}

int main(int argc, char **argv)
{
	int failed = run_over_each(argc, argv, suite_make);

	if (argc > 1)
		return failed;
	target = "tcp://127.0.0.1"; /* by the socket itself, without shared memory */
	return suite_run(suite_make(target)) || failed;
}
