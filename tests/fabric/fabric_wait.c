/* fabric_wait.c: sleeping on the descriptors, and queues in threads of their own. */
#include "tests/fabric/fabric_pair.h"
#include "tests/suite.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS ((unsigned)MIN(suite_part(5000), target.slow > 1 ? 500u : 5000u))

START_TEST(descriptors_do_not_change)
{
	int before[FABRIC_MAX_FDS], after[FABRIC_MAX_FDS];
	struct fabric_pair p;
	int n;

	fabric_pair_open(&p, &fabric_pair_defaults);
	n = fabric_fds(p.client.queue, before);
	ck_assert_int_ge(n, 1);
	ck_assert_int_le(n, FABRIC_MAX_FDS);
	for (int i = 0; i < 10; i++)
		fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_exercise(&p, p.c, p.s);
	ck_assert_int_eq(fabric_fds(p.client.queue, after), n);
	ck_assert_mem_eq(before, after, (size_t)n * sizeof(int));
	fabric_pair_close(&p);
}
END_TEST

static void send_message(struct fabric_pair *p, struct buffer *mine, struct buffer *theirs, uint64_t id)
{
	struct fabric_wr wr = wr_local(FABRIC_SEND, id, mine, 0, 100);

	receive(&p->server, p->s, id, theirs, 0, 100);
	post(p->c, &wr);
	done_expect(p, &p->server, p->s, id, FABRIC_RECV, FABRIC_OK);
	done_expect(p, &p->client, p->c, id, FABRIC_SEND, FABRIC_OK);
}

/* Readable until it was pulled, quiet afterwards: again and again. */
START_TEST(a_completion_wakes)
{
	struct buffer mine, theirs;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, 0);
	buffer_make(&theirs, &p.server, 4096, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < 20; i++)
		fabric_pair_wake(&p, p.c, p.s, &mine, &theirs, i);
	fabric_pair_settle(&p, &p.server);
	fabric_pair_settle(&p, &p.client);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* The same where both polled for long before: a message, room for what waits, and the end. */
START_TEST(busy_ones_wake)
{
	const uint64_t many = 300;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 8 * MIB, 0);
	buffer_make(&theirs, &p.server, 8 * MIB, FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE);
	for (uint64_t id = 0; id < 3 * many; id++) {
		send_message(&p, &mine, &theirs, id);
		if (id % many == many - 1)
			fabric_pair_wake(&p, p.c, p.s, &mine, &theirs, id);
	}
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, mine.len, &theirs, p.s, 0);
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	for (uint64_t id = 0; id < many; id++)
		send_message(&p, &mine, &theirs, id);
	fabric_pair_settle(&p, &p.server);
	fabric_disconnect(p.c);
	check_that(station_readable(&p.server, SLEEP_MS) > 0, "the end woke nobody");
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	event_expect(&p, &p.client, p.c, FABRIC_DISCONNECTED);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* A write that another post is to follow goes with it, and without one by the next poll, also of an end that sleeps. */
START_TEST(more_is_sent_all_the_same)
{
	struct buffer mine, theirs;
	struct fabric_wr wr, then;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 64 * KIB, 0);
	buffer_make(&theirs, &p.server, 64 * KIB, FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE);
	memset(mine.at, 7, mine.len);
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, mine.len, &theirs, p.s, 0);
	wr.more = true;
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	ck_assert_mem_eq(theirs.at, mine.at, mine.len);
	memset(mine.at, 8, mine.len);
	fabric_pair_settle(&p, &p.client);
	receive(&p.server, p.s, 2, &theirs, 0, 100);
	post(p.c, &wr);
	if (target.soft)
		check_that(station_readable(&p.client, 0) > 0, "an end that sleeps would not send it");
	then = wr_local(FABRIC_SEND, 2, &mine, 0, 100);
	post(p.c, &then);
	done_expect(&p, &p.server, p.s, 2, FABRIC_RECV, FABRIC_OK);
	ck_assert_mem_eq(theirs.at, mine.at, mine.len);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	done_expect(&p, &p.client, p.c, 2, FABRIC_SEND, FABRIC_OK);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* Armed with something there already: arm, look once more, and there it is. */
START_TEST(arming_late_loses_nothing)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, 0);
	buffer_make(&theirs, &p.server, 4096, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < 20; i++) {
		receive(&p.server, p.s, i, &theirs, 0, 100);
		wr = wr_local(FABRIC_SEND, i, &mine, 0, 100);
		post(p.c, &wr);
		station_pump(&p.client);
		ck_assert_int_eq(fabric_arm(p.server.queue), 0);
		ck_assert_int_eq(fabric_arm(p.server.queue), 0);
		while (!p.server.done_count) {
			station_pump(&p.client);
			station_sleep(&p.server, 2);
		}
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
		done_expect(&p, &p.client, p.c, i, FABRIC_SEND, FABRIC_OK);
	}
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* Asked once for all bytes that came since: a large write is seen to move before it completes, and what has completed
 * moves no more. Where a device moves the bytes nothing is seen. */
START_TEST(moving_bytes_are_seen)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	unsigned seen = 0;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4 * MIB, 0);
	buffer_make(&theirs, &p.server, 4 * MIB, FABRIC_REMOTE_WRITE);
	ck_assert(!fabric_moving(p.server.queue));
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, mine.len, &theirs, p.s, 0);
	post(p.c, &wr);
	while (!p.client.done_count) {
		fabric_pair_pump(&p);
		seen += fabric_moving(p.server.queue);
		ck_assert(!fabric_moving(p.server.queue));
	}
	ck_assert(target.soft ? seen > 0 : seen == 0 || !target.transport->device);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	ck_assert(!fabric_moving(p.client.queue));
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* Sleep on one side, move the other now and then, until the event is there. */
static struct fabric_event sleep_for_event(struct fabric_pair *p, struct station *st)
{
	struct station *other = st == &p->client ? &p->server : &p->client;
	uint64_t until = deadline();

	while (!st->event_count) {
		check_that(time_now() < until, "waited in vain");
		station_sleep(st, target.slow);
		station_pump(other);
	}
	return st->event[--st->event_count];
}

START_TEST(events_wake)
{
	struct fabric_event e;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	fabric_pair_settle(&p, &p.server);
	ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, &p.options.client, NULL, 0, &p.c), 0);
	for (int tries = 0; tries < 1000 && station_readable(&p.server, target.slow) == 0; tries++)
		station_pump(&p.client);
	ck_assert_int_gt(station_readable(&p.server, 0), 0);
	e = sleep_for_event(&p, &p.server);
	ck_assert_int_eq(e.type, FABRIC_REQUEST);
	ck_assert_int_eq(station_take(&p.server, e.request, &p.options.server, &p.s), 0);
	ck_assert_int_eq(fabric_accept(p.s, NULL, 0), 0);
	ck_assert_int_eq(sleep_for_event(&p, &p.client).type, FABRIC_ESTABLISHED);
	event_expect(&p, &p.server, p.s, FABRIC_ESTABLISHED);
	fabric_pair_settle(&p, &p.client);
	fabric_pair_settle(&p, &p.server);

	/* A disconnect, seen by both sides in their sleep. */
	fabric_disconnect(p.c);
	ck_assert_int_eq(sleep_for_event(&p, &p.client).type, FABRIC_DISCONNECTED);
	ck_assert_int_eq(sleep_for_event(&p, &p.server).type, FABRIC_DISCONNECTED);
	fabric_pair_settle(&p, &p.client);
	fabric_pair_settle(&p, &p.server);
	fabric_pair_close(&p);
}
END_TEST

/* Idle connections cost no wake-ups. */
START_TEST(idle_is_quiet)
{
	struct fabric_pair p;
	int wakes = 0;

	fabric_pair_make(&p, &fabric_pair_defaults);
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_settle(&p, &p.server);
	for (int i = 0; i < 10; i++)
		if (station_readable(&p.server, 10)) {
			wakes++;
			fabric_pair_settle(&p, &p.server);
		}
	ck_assert_int_le(wakes, 1);
	fabric_pair_close(&p);
}
END_TEST

/*
 * Two threads, each with one side of the pair.
 */

struct race {
	struct fabric_pair p;
	struct buffer mine, theirs;
	_Atomic unsigned seen; /* messages that the sleeper has taken */
	bool sleeps;           /* the sender sleeps too, for the answer */
};

static void dawdle(unsigned *seed)
{
	uint64_t until = time_now() + random_next(seed) % 100 * TIME_US;

	while (time_now() < until)
		;
}

static struct fabric_completion take_done(struct station *st)
{
	struct fabric_completion c = st->done[0];

	memmove(st->done, st->done + 1, (size_t)--st->done_count * sizeof(c));
	ck_assert_int_eq(c.status, FABRIC_OK);
	return c;
}

/* Send at random moments, the next one only when the last one was taken. */
static void *sender(void *arg)
{
	struct race *r = arg;
	unsigned seed = 1;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &r->mine, 0, 64);
		uint64_t until = deadline();

		dawdle(&seed);
		post(r->p.c, &wr);
		while (r->p.client.done_count < 1 || atomic_load(&r->seen) <= i) {
			station_pump(&r->p.client);
			check_that(time_now() < until, "message %u was not taken", i);
		}
		ck_assert_uint_eq(take_done(&r->p.client).id, i);
	}
	return NULL;
}

static void race_open(struct race *r)
{
	*r = (struct race){0};
	fabric_pair_make(&r->p, &fabric_pair_defaults);
	buffer_make(&r->mine, &r->p.client, 4096, sink_rights());
	buffer_make(&r->theirs, &r->p.server, 4096, FABRIC_LOCAL_WRITE);
}

static void race_close(struct race *r)
{
	buffer_drop(&r->mine);
	buffer_drop(&r->theirs);
	fabric_pair_close(&r->p);
}

START_TEST(sleeping_loses_no_completion)
{
	pthread_t thread;
	struct race r;

	race_open(&r);
	receive(&r.p.server, r.p.s, 0, &r.theirs, 0, 64);
	ck_assert_int_eq(pthread_create(&thread, NULL, sender, &r), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		while (!r.p.server.done_count)
			check_that(station_sleep(&r.p.server, SLEEP_MS), "overslept message %u", i);
		ck_assert_uint_eq(take_done(&r.p.server).id, i);
		if (i + 1 < ROUNDS)
			receive(&r.p.server, r.p.s, i + 1, &r.theirs, 0, 64);
		atomic_store(&r.seen, i + 1);
	}
	/* Serve what the other side's last completion needs. */
	while (pthread_tryjoin_np(thread, NULL) != 0)
		station_pump(&r.p.server);
	race_close(&r);
}
END_TEST

static void sleep_for_done(struct station *st, enum fabric_opcode opcode, uint64_t id)
{
	for (;;) {
		while (!st->done_count)
			check_that(station_sleep(st, SLEEP_MS), "overslept %d", (int)id);
		struct fabric_completion c = take_done(st);

		if (c.opcode == opcode) {
			ck_assert_uint_eq(c.id, id);
			return;
		}
	}
}

static void *echo(void *arg)
{
	struct race *r = arg;
	unsigned seed = 2;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &r->mine, 0, 64);

		sleep_for_done(&r->p.client, FABRIC_RECV, i);
		if (i + 1 < ROUNDS)
			receive(&r->p.client, r->p.c, i + 1, &r->mine, 0, 64);
		if (i % 3 == 0)
			dawdle(&seed);
		post(r->p.c, &wr);
	}
	while (station_sleep(&r->p.client, 100 * target.slow))
		;
	return NULL;
}

/* Ping-pong between two sleepers. */
START_TEST(both_sides_sleep)
{
	unsigned seed = 3;
	pthread_t thread;
	struct race r;

	race_open(&r);
	receive(&r.p.client, r.p.c, 0, &r.mine, 0, 64);
	ck_assert_int_eq(pthread_create(&thread, NULL, echo, &r), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &r.theirs, 0, 64);

		receive(&r.p.server, r.p.s, i, &r.theirs, 0, 64);
		post(r.p.s, &wr);
		sleep_for_done(&r.p.server, FABRIC_RECV, i);
		if (i % 4 == 0)
			dawdle(&seed);
	}
	pthread_join(thread, NULL);
	race_close(&r);
}
END_TEST

/*
 * The listener's thread hands the request to another thread.
 */

struct handed {
	struct fabric *fabric;
	struct fabric_request *request;
	_Atomic bool done;
};

#define ECHOES 200

static void *worker(void *arg)
{
	struct handed *h = arg;
	struct fabric_endpoint *endpoint;
	struct buffer b;
	struct station st;
	unsigned echoes = 0;
	bool end = false;

	station_open(&st, h->fabric, &fabric_pair_defaults.queue);
	buffer_make(&b, &st, 16 * 64, FABRIC_LOCAL_WRITE);
	ck_assert_int_eq(station_take(&st, h->request, &fabric_pair_defaults.server, &endpoint), 0);
	for (uint64_t i = 0; i < 16; i++)
		receive(&st, endpoint, i, &b, i * 64, 64);
	ck_assert_int_eq(fabric_accept(endpoint, "hello", 5), 0);
	while (!end) {
		check_that(station_sleep(&st, SLEEP_MS), "the worker overslept");
		for (int i = 0; i < st.done_count; i++) {
			struct fabric_completion c = st.done[i];
			struct fabric_wr wr;
			int err;

			if (c.status != FABRIC_OK)
				continue;
			if (c.opcode == FABRIC_SEND) {
				/* The client may have the last echo, and be gone, before this end hears that it was sent. */
				err = try_receive(&st, endpoint, c.id, &b, c.id * 64, 64);
				check_that(err == 0 || (err == -ENOTCONN && echoes == ECHOES),
					   "a receive after %u echoes answers %d", echoes, err);
				continue;
			}
			wr = wr_local(FABRIC_SEND, c.id, &b, c.id * 64, c.bytes);
			err = fabric_post(endpoint, &wr);
			ck_assert(err == 0 || err == -ENOTCONN);
			echoes++;
		}
		st.done_count = 0;
		for (int i = 0; i < st.event_count; i++)
			end = end || st.event[i].type == FABRIC_DISCONNECTED;
	}
	station_destroy(&st, &endpoint);
	buffer_drop(&b);
	station_close(&st);
	atomic_store(&h->done, true);
	return NULL;
}

START_TEST(taken_in_another_thread)
{
	struct handed h = {0};
	struct buffer b;
	struct fabric_event e;
	pthread_t thread;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	buffer_make(&b, &p.client, 128, sink_rights());
	ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, &p.options.client, NULL, 0, &p.c), 0);
	h.request = event_expect(&p, &p.server, NULL, FABRIC_REQUEST).request;
	h.fabric = p.fabric;
	ck_assert_int_eq(pthread_create(&thread, NULL, worker, &h), 0);
	e = event_expect(&p, &p.client, p.c, FABRIC_ESTABLISHED);
	ck_assert_mem_eq(e.data, "hello", 5);
	for (uint64_t i = 0; i < ECHOES; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, 1000 + i, &b, 0, 8);

		memcpy(b.at, &i, 8);
		receive(&p.client, p.c, i, &b, 64, 64);
		post(p.c, &wr);
		for (int k = 0; k < 2; k++) {
			struct fabric_completion c = done_next(&p, &p.client, p.c);

			ck_assert_int_eq(c.status, FABRIC_OK);
			ck_assert_uint_eq(c.id, c.opcode == FABRIC_SEND ? 1000 + i : i);
		}
		ck_assert_mem_eq(b.at, b.at + 64, 8);
	}
	fabric_disconnect(p.c);
	event_expect(&p, &p.client, p.c, FABRIC_DISCONNECTED);
	wait_until(&p, atomic_load(&h.done));
	pthread_join(thread, NULL);
	ck_assert_int_eq(p.server.event_count, 0);
	buffer_drop(&b);
	fabric_pair_close(&p);
}
END_TEST

Suite *wait_suite(void)
{
	Suite *s = suite_create("wait");
	TCase *t = fabric_pair_tcase(s, "sleep", 30);

	tcase_add_test(t, descriptors_do_not_change);
	tcase_add_test(t, a_completion_wakes);
	tcase_add_test(t, arming_late_loses_nothing);
	tcase_add_test(t, busy_ones_wake);
	tcase_add_test(t, more_is_sent_all_the_same);
	tcase_add_test(t, moving_bytes_are_seen);
	tcase_add_test(t, events_wake);
	tcase_add_test(t, idle_is_quiet);
	t = fabric_pair_tcase(s, "threads", 60);
	tcase_add_test(t, sleeping_loses_no_completion);
	tcase_add_test(t, both_sides_sleep);
	tcase_add_test(t, taken_in_another_thread);
	return s;
}
