/*
 * fabric_loss.c: a completion queue, a device or rdma_cm fails. What depended on it ends, nothing spins, and what can be
 * made anew is. Only under tests/fake/verbs_shim with its shape events, which makes them fail.
 */
#include "tests/fabric/fabric_pair.h"
#include "tests/suite.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>

#define INBOX 16

static int (*break_it)(const char *command);

struct loss {
	struct fabric_pair p;
	struct buffer mine, inbox;
};

static void loss_open(struct loss *l)
{
	struct fabric_pair_options options = fabric_pair_shared;

	options.queue.shared_depth = INBOX;
	fabric_pair_make(&l->p, &options);
	buffer_make(&l->mine, &l->p.client, 4096, FABRIC_LOCAL_WRITE);
	buffer_make(&l->inbox, &l->p.server, INBOX * 64, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < INBOX; i++)
		receive(&l->p.server, NULL, i, &l->inbox, i * 64, 64);
}

static void loss_close(struct loss *l)
{
	buffer_drop(&l->mine);
	buffer_drop(&l->inbox);
	fabric_pair_close(&l->p);
}

/* More than a few wake-ups in this time are a thread that spins. */
static void expect_quiet(struct fabric_pair *p, struct station *st)
{
	struct pollfd pfd[FABRIC_MAX_FDS];
	int fds[FABRIC_MAX_FDS], n = fabric_fds(st->queue, fds), wakes = 0;
	uint64_t until = time_now() + (uint64_t)target.slow * 50 * TIME_MS;

	fabric_pair_pump_for(p, 50);
	for (int i = 0; i < n; i++)
		pfd[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	while (time_now() < until) {
		ck_assert_int_eq(fabric_arm(st->queue), 0);
		fabric_pair_pump(p);
		wakes += poll(pfd, (nfds_t)n, target.slow) != 0;
	}
	ck_assert_int_le(wakes, 10);
}

static void expect_removed(struct fabric_pair *p, struct station *st, struct fabric_endpoint *endpoint, int error)
{
	struct fabric_event e = event_expect(p, st, endpoint, FABRIC_REMOVED);

	ck_assert_int_eq(e.error, error);
}

/* All shared receives are there, each once. */
static void expect_inbox(struct loss *l)
{
	bool seen[INBOX] = {false};

	for (uint64_t i = 0; i < INBOX; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &l->mine, 0, 8);

		post_patiently(&l->p, l->p.c, &wr);
	}
	for (int i = 0; i < INBOX; i++) {
		struct fabric_completion c = done_next(&l->p, &l->p.server, l->p.s);

		ck_assert(c.status == FABRIC_OK && c.id < INBOX && !seen[c.id]);
		seen[c.id] = true;
	}
}

/* The server's queue is the second one. Sends that wait for a receive are flushed, some receives were taken and are lost
 * with the queue; the next connection finds all well. */
START_TEST(failed_queue_is_made_anew)
{
	static const char *const commands[] = {"cq_err=2", "srq_err=2", "poll_error=2", "arm_error=2"};
	struct fabric_endpoint *c2, *s2;
	struct loss l;

	loss_open(&l);
	fabric_pair_connect(&l.p, &c2, &s2);
	for (uint64_t i = 0; i < 3; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &l.inbox, 0, 8);

		wr.signaled = i != 1;
		post(l.p.s, &wr);
		wr = wr_local(FABRIC_SEND, i, &l.mine, 0, 8);
		post(l.p.c, &wr);
	}
	while (l.p.client.done_count < 3)
		station_pump(&l.p.client);
	ck_assert_int_eq(break_it(commands[_i]), 0);
	fabric_arm(l.p.server.queue);
	wait_until(&l.p, l.p.server.event_count == 2);
	expect_removed(&l.p, &l.p.server, l.p.s, -EIO);
	expect_removed(&l.p, &l.p.server, s2, -EIO);
	for (uint64_t i = 0, n = 0; i < 3; n++) { /* beside receives, which may have been seen */
		struct fabric_completion c = done_next(&l.p, &l.p.server, l.p.s);

		if (c.status == FABRIC_OK && c.opcode == FABRIC_RECV)
			receive(&l.p.server, NULL, c.id, &l.inbox, c.id * 64, 64);
		else
			ck_assert(c.id == i++ && c.status == FABRIC_FLUSHED);
	}
	event_expect(&l.p, &l.p.client, l.p.c, FABRIC_DISCONNECTED);
	event_expect(&l.p, &l.p.client, c2, FABRIC_DISCONNECTED);
	expect_quiet(&l.p, &l.p.server);
	station_destroy(&l.p.server, &l.p.s);
	station_destroy(&l.p.server, &s2);
	station_destroy(&l.p.client, &l.p.c);
	station_destroy(&l.p.client, &c2);
	l.p.client.done_count = l.p.server.done_count = 0;
	fabric_pair_connect(&l.p, &l.p.c, &l.p.s);
	expect_inbox(&l);
	expect_quiet(&l.p, &l.p.server);
	loss_close(&l);
}
END_TEST

/* While an endpoint of the failed queue is there no other is made, and the reason can be told. */
START_TEST(failed_queue_refuses)
{
	struct fabric_endpoint *c2;
	struct fabric_event e;
	struct loss l;

	loss_open(&l);
	ck_assert_int_eq(break_it("cq_err=2"), 0);
	event_expect(&l.p, &l.p.server, l.p.s, FABRIC_REMOVED);
	ck_assert_int_eq(station_connect(&l.p.client, &l.p.sa, l.p.len, &l.p.options.client, NULL, 0, &c2), 0);
	e = event_expect(&l.p, &l.p.server, NULL, FABRIC_REQUEST);
	ck_assert_int_eq(fabric_ready(l.p.server.queue, e.request), -EIO);
	fabric_reject(e.request, "busy", 4);
	event_expect(&l.p, &l.p.client, c2, FABRIC_REJECTED);
	loss_close(&l);
}
END_TEST

START_TEST(lost_device_is_quiet)
{
	static const char *const commands[] = {"gone", "fatal"};
	struct fabric_wr wr;
	struct fabric_event e;
	struct loss l;

	loss_open(&l);
	wr = wr_local(FABRIC_SEND, 7, &l.inbox, 0, 8);
	post(l.p.s, &wr);
	ck_assert_int_eq(break_it(commands[_i]), 0);
	done_expect(&l.p, &l.p.server, l.p.s, 7, FABRIC_SEND, FABRIC_FLUSHED);
	expect_removed(&l.p, &l.p.server, l.p.s, -ENODEV);
	expect_removed(&l.p, &l.p.client, l.p.c, -ENODEV);
	event_expect(&l.p, &l.p.server, NULL, FABRIC_REMOVED);
	expect_quiet(&l.p, &l.p.server);
	expect_quiet(&l.p, &l.p.client);
	station_destroy(&l.p.server, &l.p.s);
	station_destroy(&l.p.client, &l.p.c);
	if (station_connect(&l.p.client, &l.p.sa, l.p.len, &l.p.options.client, NULL, 0, &l.p.c) == 0) {
		e = event_expect(&l.p, &l.p.client, l.p.c, FABRIC_UNREACHABLE);
		ck_assert_int_eq(e.error, -ENODEV);
	}
	expect_quiet(&l.p, &l.p.client);
	loss_close(&l);
}
END_TEST

/* All memory and all queues that were made before it went serve with it again, and so do the shared receives. */
START_TEST(lost_device_comes_back)
{
	struct loss l;

	loss_open(&l);
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(fabric_renew(l.p.fabric), 1);
		ck_assert_int_eq(break_it("fatal"), 0);
		expect_removed(&l.p, &l.p.server, l.p.s, -ENODEV);
		expect_removed(&l.p, &l.p.client, l.p.c, -ENODEV);
		event_expect(&l.p, &l.p.server, NULL, FABRIC_REMOVED);
		fabric_listener_close(l.p.listener);
		for (int i = 0; i < 3; i++) {
			ck_assert_int_eq(fabric_renew(l.p.fabric), 0);
			fabric_pair_pump_for(&l.p, 5); /* the endpoints are there, and use it */
		}
		station_destroy(&l.p.server, &l.p.s);
		station_destroy(&l.p.client, &l.p.c);
		l.p.client.done_count = l.p.server.done_count = 0;
		for (uint64_t until = deadline(); fabric_renew(l.p.fabric) == 0; fabric_pair_pump_for(&l.p, 5))
			check_that(time_now() < until, "it does not come back");
		ck_assert_int_eq(fabric_listen(l.p.server.queue, (struct sockaddr *)&l.p.sa, l.p.len, &l.p.server,
					       &l.p.listener),
				 0);
		fabric_pair_connect(&l.p, &l.p.c, &l.p.s);
		expect_inbox(&l);
		for (uint64_t i = 0; i < INBOX; i++)
			receive(&l.p.server, NULL, i, &l.inbox, i * 64, 64);
	}
	loss_close(&l);
}
END_TEST

/* An event that cannot be got must not keep anybody awake. */
START_TEST(lost_connection_manager_is_quiet)
{
	struct fabric_endpoint *c2;
	struct loss l;

	loss_open(&l);
	ck_assert_int_eq(break_it("cm_error"), 0);
	ck_assert_int_eq(station_connect(&l.p.client, &l.p.sa, l.p.len, &l.p.options.client, NULL, 0, &c2), 0);
	expect_removed(&l.p, &l.p.client, l.p.c, -EIO);
	expect_quiet(&l.p, &l.p.client);
	loss_close(&l);
}
END_TEST

/* Ports come and go without harm. */
START_TEST(port_events_are_no_loss)
{
	struct loss l;

	loss_open(&l);
	ck_assert_int_eq(break_it("port_err"), 0);
	ck_assert_int_eq(break_it("port_active"), 0);
	fabric_pair_pump_for(&l.p, 20);
	ck_assert_int_eq(l.p.client.event_count + l.p.server.event_count, 0);
	expect_inbox(&l);
	loss_close(&l);
}
END_TEST

/* A device says of its link what it says of memory, too: the state of the port tells. */
START_TEST(lost_link_is_named)
{
	struct fabric_wr wr;
	struct loss l;

	loss_open(&l);
	ck_assert_int_eq(break_it("link_down"), 0);
	wr = wr_local(FABRIC_SEND, 7, &l.mine, 0, 8);
	post(l.p.c, &wr);
	done_expect(&l.p, &l.p.client, l.p.c, 7, FABRIC_SEND, FABRIC_LINK_DOWN);
	event_expect(&l.p, &l.p.client, l.p.c, FABRIC_DISCONNECTED);
	loss_close(&l);
}
END_TEST

Suite *loss_suite(void)
{
	Suite *s = suite_create("loss");
	const char *shapes = getenv("VERBS_SHIM");
	TCase *t;

	*(void **)&break_it = dlsym(RTLD_DEFAULT, "verbs_shim_do");
	if (!break_it || !target.verbs || !shapes || !strstr(shapes, "events"))
		return s;
	t = fabric_pair_tcase(s, "loss", 30);
	tcase_add_loop_test(t, failed_queue_is_made_anew, 0, 4);
	tcase_add_test(t, failed_queue_refuses);
	tcase_add_loop_test(t, lost_device_is_quiet, 0, 2);
	tcase_add_test(t, lost_device_comes_back);
	tcase_add_test(t, lost_connection_manager_is_quiet);
	tcase_add_test(t, port_events_are_no_loss);
	tcase_add_test(t, lost_link_is_named);
	return s;
}
