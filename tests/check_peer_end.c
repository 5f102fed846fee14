/* check_peer_end.c: peers that die, are silent, or do not come back: who is told, and how. */
#include "peer_clients.h"

#include <signal.h>
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

/* A server, and a program that connects to it, says "here", and does nothing any more. The fork comes before the first use of a
 * device, as it must. */
static pid_t serve_program(const rdma_options *options, const rdma_options *client)
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
		while (true)
			pause();
	}
	serve(options);
	port = rdma_port(server);
	ck_assert_int_eq(write(ends[1], &port, sizeof(port)), sizeof(port));
	close(ends[0]);
	close(ends[1]);
	return pid;
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

START_TEST(a_silent_peer_is_asked)
{
	rdma_options heartbeat = {.heartbeat_ms = 1000};
	pid_t pid;
	char byte;

	pid = serve_program(&heartbeat, NULL); /* makes no call any more */
	ck_assert_int_eq(rdma_accept_peer(server), 0);
	hear(server, 0, "here");
	ck_assert_int_eq(rdma_recv(server, 0, &byte, 1), -1);
	ck_assert_msg(strstr(rdma_get_error(), "does not answer"), "%s", rdma_get_error());
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
	tcase_add_test(tc, a_silent_peer_is_asked);
	tcase_add_test(tc, a_thread_answers);
	tcase_add_test(tc, a_peer_that_never_comes_back);
	tcase_add_test(tc, another_server_in_its_place);
	return suite;
}

int main(int argc, char **argv)
{
	return run_over_each(argc, argv, suite_make);
}
