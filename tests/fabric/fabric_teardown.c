/* fabric_teardown.c: how a connection ends, and what each side still gets. */
#include "tests/fabric/fabric_pair.h"
#include "tests/suite.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_both_end(struct fabric_pair *p)
{
	event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
	event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
}

static void expect_nothing_more(struct fabric_pair *p)
{
	fabric_pair_pump_for(p, 20);
	ck_assert_int_eq(p->client.done_count + p->server.done_count, 0);
	ck_assert_int_eq(p->client.event_count + p->server.event_count, 0);
}

/* Sends that no receive took: on both sides all are flushed, in order, asked for or not. */
START_TEST(sends_are_flushed_in_order)
{
	bool by_server = _i;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, 0);
	buffer_make(&theirs, &p.server, 4096, 0);
	for (uint64_t i = 0; i < 20; i++) {
		wr = wr_local(FABRIC_SEND, i, &mine, 0, 200);
		wr.signaled = i % 3 == 0;
		post(p.c, &wr);
		wr = wr_local(FABRIC_SEND, 100 + i, &theirs, 0, 200);
		wr.signaled = i % 3 == 1;
		post(p.s, &wr);
	}
	fabric_pair_pump_for(&p, 5);
	fabric_disconnect(by_server ? p.s : p.c);
	for (uint64_t i = 0; i < 20; i++) {
		done_expect(&p, &p.client, p.c, i, FABRIC_SEND, FABRIC_FLUSHED);
		done_expect(&p, &p.server, p.s, 100 + i, FABRIC_SEND, FABRIC_FLUSHED);
	}
	expect_both_end(&p);
	expect_nothing_more(&p);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(own_receives_are_flushed_in_order)
{
	bool by_server = _i;
	struct buffer mine, theirs;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, sink_rights());
	buffer_make(&theirs, &p.server, 4096, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < 20; i++) {
		receive(&p.client, p.c, i, &mine, 0, 200);
		receive(&p.server, p.s, 100 + i, &theirs, 0, 200);
	}
	fabric_disconnect(by_server ? p.s : p.c);
	for (uint64_t i = 0; i < 20; i++) {
		done_expect(&p, &p.client, p.c, i, FABRIC_RECV, FABRIC_FLUSHED);
		done_expect(&p, &p.server, p.s, 100 + i, FABRIC_RECV, FABRIC_FLUSHED);
	}
	expect_both_end(&p);
	expect_nothing_more(&p);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* Receives that were posted while connecting are flushed, or go with the endpoint, where no
 * connection comes of it. */
START_TEST(receives_of_a_refused_connect)
{
	struct buffer mine;
	struct fabric_event e;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, sink_rights());
	ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, &p.options.client, NULL, 0, &p.c), 0);
	receive(&p.client, p.c, 1, &mine, 0, 100);
	e = event_expect(&p, &p.server, NULL, FABRIC_REQUEST);
	fabric_reject(e.request, NULL, 0);
	event_expect(&p, &p.client, p.c, FABRIC_REJECTED);
	fabric_pair_pump_for(&p, 10);
	ck_assert_int_le(p.client.done_count, 1);
	if (p.client.done_count)
		done_expect(&p, &p.client, p.c, 1, FABRIC_RECV, FABRIC_FLUSHED);
	station_destroy(&p.client, &p.c);
	expect_nothing_more(&p);
	buffer_drop(&mine);
	fabric_pair_close(&p);
}
END_TEST

/* Work in full swing in both directions: each request completes exactly once. */
START_TEST(everything_completes_under_traffic)
{
	uint64_t posted[2] = {0}, completed[2] = {0};
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;
	unsigned seed = 7 + (unsigned)_i;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 300000, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	buffer_make(&theirs, &p.server, 300000, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	for (int round = 0; round < 200; round++) {
		for (int side = 0; side < 2; side++) {
			struct fabric_endpoint *ep = side ? p.s : p.c;
			struct buffer *local = side ? &theirs : &mine;
			size_t len = random_next(&seed) % 300000;
			int err;

			if (random_next(&seed) % 3 == 0)
				(void)try_receive(side ? &p.server : &p.client, ep, 5000, local, 0, 300000);
			wr = wr_remote(
				(enum fabric_opcode[]){FABRIC_SEND, FABRIC_WRITE, FABRIC_READ}[random_next(&seed) % 3],
				posted[side], local, 0, len, side ? &mine : &theirs, side ? p.c : p.s, 0);
			err = fabric_post(ep, &wr);
			ck_assert(err == 0 || err == -EAGAIN);
			posted[side] += !err;
		}
		if (random_next(&seed) % 4 == 0)
			fabric_pair_pump(&p);
	}
	fabric_disconnect(_i % 2 ? p.s : p.c);
	expect_both_end(&p);
	for (int side = 0; side < 2; side++) {
		struct station *st = side ? &p.server : &p.client;

		for (int i = 0; i < st->done_count; i++)
			if (st->done[i].id != 5000) {
				ck_assert_uint_eq(st->done[i].id, completed[side]);
				completed[side]++;
			}
		ck_assert_uint_eq(completed[side], posted[side]);
	}
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* What has completed at the sender reaches the receiver, however soon the end comes. */
START_TEST(completed_sends_are_delivered)
{
	struct buffer mine, theirs;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 32 * 1000, 0);
	buffer_make(&theirs, &p.server, 40 * 1000, FABRIC_LOCAL_WRITE);
	buffer_fill(&mine, 7);
	for (uint64_t i = 0; i < 40; i++)
		receive(&p.server, p.s, i, &theirs, i * 1000, 1000);
	for (uint64_t i = 0; i < 32; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &mine, i * 1000, 1000);

		post(p.c, &wr);
	}
	for (uint64_t i = 0; i < 32; i++)
		done_expect(&p, &p.client, p.c, i, FABRIC_SEND, FABRIC_OK);
	if (_i)
		station_destroy(&p.client, &p.c);
	else
		fabric_disconnect(p.c);
	for (uint64_t i = 0; i < 32; i++)
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
	ck_assert(buffer_has(&theirs, 0, mine.len, 7));
	for (uint64_t i = 32; i < 40; i++)
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_FLUSHED);
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(disconnect_is_idempotent)
{
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	fabric_disconnect(p.c);
	fabric_disconnect(p.c);
	if (_i)
		fabric_disconnect(p.s);
	expect_both_end(&p);
	fabric_disconnect(p.c);
	fabric_disconnect(p.s);
	expect_nothing_more(&p);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(posting_after_the_end)
{
	struct buffer mine;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, sink_rights());
	wr = wr_local(FABRIC_SEND, 1, &mine, 0, 10);
	fabric_disconnect(p.c);
	ck_assert_int_eq(fabric_post(p.c, &wr), -ENOTCONN);
	expect_both_end(&p);
	ck_assert_int_eq(fabric_post(p.c, &wr), -ENOTCONN);
	ck_assert_int_eq(fabric_post(p.s, &wr), -ENOTCONN);
	/* After its last event nothing can complete, so a receive is refused too. */
	ck_assert_int_lt(try_receive(&p.client, p.c, 2, &mine, 0, 10), 0);
	expect_nothing_more(&p);
	buffer_drop(&mine);
	fabric_pair_close(&p);
}
END_TEST

/* Completions and events that nobody pulled go with the endpoint; others keep theirs. */
START_TEST(destroy_drops_what_was_not_pulled)
{
	struct fabric_endpoint *c2, *s2;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	fabric_pair_connect(&p, &c2, &s2);
	buffer_make(&mine, &p.client, 4096, sink_rights());
	buffer_make(&theirs, &p.server, 4096, FABRIC_REMOTE_WRITE);
	for (uint64_t i = 0; i < 10; i++) {
		receive(&p.client, p.c, 100 + i, &mine, 0, 10);
		wr = wr_remote(FABRIC_WRITE, i, &mine, 0, 100, &theirs, p.s, 0);
		post(p.c, &wr);
		wr = wr_remote(FABRIC_WRITE, 200 + i, &mine, 0, 100, &theirs, s2, 0);
		post(c2, &wr);
	}
	if (_i)
		fabric_disconnect(p.c);
	for (int i = 0; i < 100; i++)
		station_pump(&p.server);
	station_destroy(&p.client, &p.c); /* the pump fails on whatever still comes of it */
	for (uint64_t i = 0; i < 10; i++)
		done_expect(&p, &p.client, c2, 200 + i, FABRIC_WRITE, FABRIC_OK);
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	fabric_pair_pump_for(&p, 10);
	ck_assert_int_eq(p.client.done_count + p.client.event_count, 0);
	fabric_pair_exercise(&p, c2, s2);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

#define INBOX 16

/* Shared receives of destroyed endpoints come back without one, or went out again by themselves. */
static void take_orphans(struct fabric_pair *p, struct buffer *inbox)
{
	uint64_t until = time_now() + (uint64_t)target.slow * 20 * TIME_MS;
	struct fabric_completion c;
	struct fabric_event e;

	while (time_now() < until) {
		while (fabric_poll(p->server.queue, &c, 1) == 1) {
			check_that(!c.endpoint && !c.context, "a completion of a destroyed endpoint");
			receive(&p->server, NULL, c.id, inbox, c.id * 64, 64);
		}
		check_that(fabric_next_event(p->server.queue, &e) == 0, "an event of a destroyed endpoint");
		station_pump(&p->client);
	}
}

/* Messages that took shared receives, which nobody has seen complete when the endpoint is destroyed. */
static void destroy_unseen(struct fabric_pair *p, struct buffer *mine, bool polite)
{
	fabric_pair_connect(p, &p->c, &p->s);
	for (uint64_t i = 0; i < INBOX / 2; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, mine, 0, 8);

		post(p->c, &wr);
	}
	/* Where a device takes them it needs nobody. */
	for (int i = 0; target.verbs ? p->client.done_count < INBOX / 2 : i < 100; i++)
		station_pump(&p->client);
	if (polite)
		fabric_disconnect(p->s);
	station_destroy(&p->server, &p->s);
	station_destroy(&p->client, &p->c);
	p->client.done_count = 0;
}

/* Over and over: no receive is ever lost, however its endpoint ended. */
START_TEST(taken_shared_receives_come_back)
{
	struct fabric_pair_options options = fabric_pair_shared;
	struct buffer mine, inbox;
	bool seen[INBOX] = {false};
	struct fabric_pair p;

	options.queue.shared_depth = INBOX;
	fabric_pair_open(&p, &options);
	buffer_make(&mine, &p.client, 4096, 0);
	buffer_make(&inbox, &p.server, INBOX * 64, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < INBOX; i++)
		receive(&p.server, NULL, i, &inbox, i * 64, 64);
	for (int round = 0; round < 6; round++) {
		destroy_unseen(&p, &mine, _i);
		take_orphans(&p, &inbox);
	}
	fabric_pair_connect(&p, &p.c, &p.s);
	for (uint64_t i = 0; i < INBOX; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &mine, 0, 8);

		post_patiently(&p, p.c, &wr);
	}
	for (int i = 0; i < INBOX; i++) {
		struct fabric_completion c = done_next(&p, &p.server, p.s);

		ck_assert(c.status == FABRIC_OK && c.id < INBOX && !seen[c.id]);
		seen[c.id] = true;
	}
	buffer_drop(&mine);
	buffer_drop(&inbox);
	fabric_pair_close(&p);
}
END_TEST

/* Queue, listener and endpoints may go at once, with everything still in flight. */
START_TEST(close_with_work_in_flight)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_shared);
	buffer_make(&mine, &p.client, MIB, sink_rights());
	buffer_make(&theirs, &p.server, MIB, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	receive(&p.server, NULL, 1, &theirs, 0, 100);
	for (uint64_t i = 0; i < 8; i++) {
		wr = wr_remote(i % 2 ? FABRIC_READ : FABRIC_WRITE, i, &mine, 0, MIB, &theirs, p.s, 0);
		post(p.c, &wr);
	}
	fabric_pair_pump(&p);
	station_destroy(&p.server, &p.s);
	station_destroy(&p.client, &p.c);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* The peer's process: says when it is connected, then waits for its end. */
static void peer_process(int port_fd)
{
	struct buffer b;
	struct fabric *fabric;
	struct station st;
	struct fabric_endpoint *endpoint;
	struct sockaddr_storage sa;
	socklen_t len;
	uint16_t port;

	if (read(port_fd, &port, sizeof(port)) != sizeof(port))
		_exit(1);
	target_address(0, &sa, &len);
	target_set_port(&sa, port);
	ck_assert_int_eq(fabric_open(target.provider, NULL, &fabric), 0);
	station_open(&st, fabric, &fabric_pair_defaults.queue);
	buffer_make(&b, &st, 4096, FABRIC_LOCAL_WRITE);
	ck_assert_int_eq(station_connect(&st, &sa, len, &fabric_pair_defaults.client, NULL, 0, &endpoint), 0);
	receive(&st, endpoint, 1, &b, 0, 100);
	for (;;)
		station_pump(&st);
}

START_TEST(killed_peer_is_noticed)
{
	struct buffer theirs;
	struct fabric_event e;
	struct fabric_wr wr;
	struct fabric_pair p;
	int port_pipe[2];
	uint16_t port;
	pid_t child;

	ck_assert_int_eq(pipe(port_pipe), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		alarm((unsigned)target.slow * 100);
		peer_process(port_pipe[0]);
	}
	fabric_pair_open(&p, &fabric_pair_defaults);
	port = fabric_listener_port(p.listener);
	ck_assert_int_eq(write(port_pipe[1], &port, sizeof(port)), sizeof(port));
	buffer_make(&theirs, &p.server, 4096, FABRIC_LOCAL_WRITE);
	e = event_expect(&p, &p.server, NULL, FABRIC_REQUEST);
	ck_assert_int_eq(station_take(&p.server, e.request, &p.options.server, &p.s), 0);
	receive(&p.server, p.s, 9, &theirs, 0, 100);
	ck_assert_int_eq(fabric_accept(p.s, NULL, 0), 0);
	event_expect(&p, &p.server, p.s, FABRIC_ESTABLISHED);
	wr = wr_local(FABRIC_SEND, 1, &theirs, 0, 100);
	post(p.s, &wr);
	done_expect(&p, &p.server, p.s, 1, FABRIC_SEND, FABRIC_OK);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	done_expect(&p, &p.server, p.s, 9, FABRIC_RECV, FABRIC_FLUSHED);
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

static bool asleep(const struct station *st)
{
	struct pollfd pfd[FABRIC_MAX_FDS];
	int fds[FABRIC_MAX_FDS], n = fabric_fds(st->queue, fds);

	for (int i = 0; i < n; i++)
		pfd[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	return poll(pfd, (nfds_t)n, 0) == 0;
}

/* A process that was forked has the sockets too. Sockets that are closed here bring nothing any more all the same. */
START_TEST(forked_process_keeps_nothing_alive)
{
	struct fabric_pair p;
	pid_t child;

	if (!target.soft)
		return;
	fabric_pair_make(&p, &fabric_pair_defaults);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		alarm((unsigned)target.slow * 100);
		pause();
		_exit(0);
	}
	fabric_disconnect(p.c);
	fabric_disconnect(p.s);
	expect_both_end(&p);
	expect_nothing_more(&p);
	wait_until(&p, asleep(&p.client) && asleep(&p.server));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	fabric_pair_close(&p);
}
END_TEST

#define WORDS 5 /* as many as are under way at once on a new connection */

/* An endpoint that sends to one that has gone still gets what that one had sent before. */
START_TEST(last_words_are_heard_by_who_speaks)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	if (!target.soft)
		return;
	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, 0);
	buffer_make(&theirs, &p.server, 4096, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < WORDS; i++) {
		receive(&p.server, p.s, i, &theirs, 100 * i, 100);
		wr = wr_local(FABRIC_SEND, 100 + i, &mine, 100 * i, 100);
		post(p.c, &wr);
	}
	buffer_drop(&mine);
	station_close(&p.client);
	p.c = NULL;
	station_open(&p.client, p.fabric, &p.options.queue);
	for (uint64_t i = 0; i < WORDS; i++) {
		wr = wr_local(FABRIC_SEND, 200 + i, &theirs, 0, 10);
		post(p.s, &wr);
	}
	for (uint64_t i = 0; i < WORDS; i++)
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
	for (uint64_t i = 0; i < WORDS; i++)
		done_expect(&p, &p.server, p.s, 200 + i, FABRIC_SEND, FABRIC_FLUSHED);
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

Suite *teardown_suite(void)
{
	Suite *s = suite_create("teardown");
	TCase *t = fabric_pair_tcase(s, "flush", 30);

	tcase_add_loop_test(t, sends_are_flushed_in_order, 0, 2);
	tcase_add_loop_test(t, own_receives_are_flushed_in_order, 0, 2);
	tcase_add_test(t, receives_of_a_refused_connect);
	tcase_add_loop_test(t, everything_completes_under_traffic, 0, target.slow > 1 ? 4 : (int)suite_part(60));
	tcase_add_loop_test(t, completed_sends_are_delivered, 0, 2);
	t = fabric_pair_tcase(s, "end", 30);
	tcase_add_loop_test(t, disconnect_is_idempotent, 0, 2);
	tcase_add_test(t, posting_after_the_end);
	tcase_add_loop_test(t, destroy_drops_what_was_not_pulled, 0, 2);
	if (target.shared)
		tcase_add_loop_test(t, taken_shared_receives_come_back, 0, 2);
	if (target.shared)
		tcase_add_test(t, close_with_work_in_flight);
	tcase_add_test(t, last_words_are_heard_by_who_speaks);
	tcase_add_test(t, killed_peer_is_noticed);
	tcase_add_test(t, forked_process_keeps_nothing_alive);
	return s;
}
