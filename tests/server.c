/* server.c: the loop of a server in a thread: turns while there is work, then sleeps on its descriptors. */
#include <check.h>
#include <poll.h>

#include "server.h"

struct test_server server;

int server_turn(void)
{
	struct fabric_completion c;
	struct fabric_event event;
	int n = 0;

	server.worker.now = time_now();
	fabric_poll(server.queue, &c, 1);
	for (; fabric_next_event(server.queue, &event); n++)
		server.take(&event);
	n += conn_group_progress(server.group, server.worker.now);
	return n + (server.work ? server.work() : 0);
}

static void server_sleep(void)
{
	struct fabric_queue *queues[] = {server.queue, conn_group_queue(server.group)};
	struct pollfd pfd[2 * FABRIC_MAX_FDS];
	int fds[FABRIC_MAX_FDS];
	nfds_t n = 0;

	for (unsigned q = 0; q < 2; q++)
		fabric_arm(queues[q]);
	if (server_turn())
		return;
	for (unsigned q = 0; q < 2; q++)
		for (int i = fabric_fds(queues[q], fds); i-- > 0;)
			pfd[n++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	poll(pfd, n, 10);
}

static void *server_run(void *arg)
{
	while (!server.stop)
		if (!server_turn())
			server_sleep();
	return arg;
}

void server_resume(void)
{
	server.stop = false;
	ck_assert_int_eq(pthread_create(&server.thread, NULL, server_run, NULL), 0);
	server.running = true;
}

void server_pause(void)
{
	if (!server.running)
		return;
	server.stop = true;
	pthread_join(server.thread, NULL);
	server.running = false;
}
