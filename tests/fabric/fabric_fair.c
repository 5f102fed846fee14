/* fabric_fair.c: what one turn may cost, however much there is to do (soft: counted at the kernel's door). */
#include "tests/fabric/fabric_kernel.h"
#include "tests/fabric/fabric_pair.h"
#include "tests/suite.h"

#define CROWD 32
#define LARGE ((size_t)4 * MIB)
#define PIECE ((uint64_t)256 * 1024)
#define IDLE 16 /* turns with nothing to do, of which each takes a fraction of a microsecond */
/* A turn of all endpoints, and then what is small of each; twice, as completions are pulled until there is none. */
#define TURN ((uint64_t)(2 * (1024 + CROWD * 2 * 8)) * 1024)

struct crowd {
	struct fabric_pair p;
	struct fabric_endpoint *c[CROWD], *s[CROWD];
	struct buffer from, to, small, inbox;
	unsigned epolls, told; /* as counted while the server looked for small messages */
	bool late;             /* what is moved is counted by whole pieces, some of them begun in an earlier turn */
};

static void crowd_open(struct crowd *x)
{
	x->late = false;
	fabric_pair_make(&x->p, &fabric_pair_defaults);
	for (int i = 0; i < CROWD; i++)
		fabric_pair_connect(&x->p, &x->c[i], &x->s[i]);
	buffer_make(&x->from, &x->p.server, LARGE, FABRIC_LOCAL_WRITE | FABRIC_REMOTE_READ);
	buffer_make(&x->to, &x->p.client, LARGE, FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE);
	buffer_make(&x->small, &x->p.client, 64, 0);
	buffer_make(&x->inbox, &x->p.server, 64, FABRIC_LOCAL_WRITE);
}

static void crowd_close(struct crowd *x)
{
	buffer_drop(&x->from);
	buffer_drop(&x->to);
	buffer_drop(&x->small);
	buffer_drop(&x->inbox);
	fabric_pair_close(&x->p);
}

/* Its bytes do not pass the kernel, and a turn with nothing to do takes no system call. */
static bool crowd_shares_memory(void)
{
	return target.memory;
}

/* Bytes that the server has moved, as far as anybody counts them: those of messages in shared memory nobody does. */
static uint64_t crowd_moved(const struct crowd *x)
{
	uint64_t sum = 0;

	for (int i = 0; i < CROWD; i++)
		sum += fabric_moved_bytes(x->s[i]);
	return MAX(sum, kernel.bytes);
}

/* One turn of the server, which may not be a long one. Has it moved anything? */
static bool crowd_turn(struct crowd *x)
{
	uint64_t before = kernel.bytes, moved = crowd_moved(x);

	station_pump(&x->p.server);
	moved = crowd_moved(x) - moved;
	check_that(kernel.bytes - before <= TURN, "%llu bytes in one turn",
		   (unsigned long long)(kernel.bytes - before));
	if (crowd_shares_memory())
		check_that(moved <= TURN + (x->late ? CROWD * PIECE : 0), "%llu bytes in one turn",
			   (unsigned long long)moved);
	return moved > 0 || !crowd_shares_memory();
}

/* Large transfers of all; meanwhile small messages of one, each of which is there after a turn or two. */
static void crowd_busy(struct crowd *x)
{
	uint64_t until = deadline(), n = 0;
	int done = 0;

	while (done < CROWD) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, 1000, &x->small, 0, 8);
		int turns = 0, idle = 0;

		check_that(time_now() < until, "waited in vain");
		receive(&x->p.server, x->p.s, 1000, &x->inbox, 0, 64);
		post(x->p.c, &wr);
		for (bool seen = false; !seen;) {
			if (crowd_turn(x))
				turns++;
			else
				idle++;
			for (int i = 0; i < x->p.server.done_count; i++) {
				seen |= x->p.server.done[i].id == 1000;
				done += x->p.server.done[i].id != 1000;
			}
			x->p.server.done_count = 0;
		}
		check_that(turns <= 3 && idle <= IDLE, "message %d was there after %d turns and %d with nothing to do",
			   (int)n, turns, idle);
		n++;
		station_pump(&x->p.client);
		x->p.client.done_count = 0;
	}
	check_that(n > CROWD / 2, "there was time for %d messages only", (int)n);
}

START_TEST(large_writes_beside_small_messages)
{
	uint64_t before, least = UINT64_MAX, most = 0;
	struct crowd x;

	crowd_open(&x);
	before = kernel.bytes;
	for (uint64_t i = 0; i < CROWD; i++) {
		struct fabric_wr wr = wr_remote(FABRIC_WRITE, i, &x.from, 0, LARGE, &x.to, x.c[i], 0);

		post(x.s[i], &wr);
	}
	check_that(kernel.bytes - before <= TURN, "all of them were sent by the posts");
	for (int i = 0; i < CROWD / 2; i++) {
		crowd_turn(&x);
		station_pump(&x.p.client);
	}
	for (int i = 0; i < CROWD; i++) {
		least = MIN(least, fabric_moved_bytes(x.s[i]));
		most = MAX(most, fabric_moved_bytes(x.s[i]));
	}
	check_that(least * 8 > most, "one has %llu bytes and another %llu", (unsigned long long)least,
		   (unsigned long long)most);
	crowd_busy(&x);
	crowd_close(&x);
}
END_TEST

START_TEST(large_reads_beside_small_messages)
{
	struct buffer theirs;
	struct crowd x;

	crowd_open(&x);
	x.late = true;
	buffer_make(&theirs, &x.p.client, LARGE, FABRIC_REMOTE_READ);
	for (uint64_t i = 0; i < CROWD; i++) {
		struct fabric_wr wr = wr_remote(FABRIC_READ, i, &x.from, 0, LARGE, &theirs, x.c[i], 0);

		post(x.s[i], &wr);
	}
	crowd_busy(&x);
	for (int i = 0; i < CROWD; i++)
		ck_assert_uint_ge(fabric_moved_bytes(x.s[i]), LARGE);
	buffer_drop(&theirs);
	crowd_close(&x);
}
END_TEST

/* A quiet peer waits for its acknowledgement as long as if it were alone, however busy the others are. */
START_TEST(acknowledged_beside_busy_ones)
{
	struct fabric_endpoint *c, *s;
	struct buffer inbox, small;
	struct fabric_wr wr;
	struct fabric_pair p;
	int turns = 0;

	fabric_pair_make(&p, &fabric_pair_defaults);
	fabric_pair_connect(&p, &c, &s);
	buffer_make(&small, &p.client, 64, 0);
	buffer_make(&inbox, &p.server, 64, FABRIC_LOCAL_WRITE);
	receive(&p.server, s, 1, &inbox, 0, 64);
	wr = wr_local(FABRIC_SEND, 1, &small, 0, 8);
	post(c, &wr);
	for (bool done = false; !done; turns++) {
		receive(&p.server, p.s, 2, &inbox, 0, 64);
		wr = wr_local(FABRIC_SEND, 2, &small, 0, 8);
		(void)fabric_post(p.c, &wr);
		fabric_pair_pump(&p);
		for (int i = 0; i < p.client.done_count; i++)
			done |= p.client.done[i].endpoint == c;
		check_that(turns < 40, "no acknowledgement in %d turns", turns);
		p.server.done_count = p.client.done_count = 0;
	}
	buffer_drop(&small);
	buffer_drop(&inbox);
	fabric_pair_close(&p);
}
END_TEST

/* Without endpoints a poll asks the kernel seldom, and yet sees what connects, and a sleeper is woken. */
START_TEST(nobody_costs_nothing)
{
	enum { POLLS = 1600 };
	struct fabric_completion done;
	struct fabric_pair p;
	unsigned before;

	fabric_pair_open(&p, &fabric_pair_defaults);
	before = kernel.epolls;
	for (int i = 0; i < POLLS; i++)
		ck_assert_int_eq(fabric_poll(p.server.queue, &done, 1), 0);
	check_that(kernel.epolls - before <= POLLS / 10, "%u calls", kernel.epolls - before);
	ck_assert_int_eq(fabric_arm(p.server.queue), 0);
	before = kernel.epolls;
	ck_assert_int_eq(fabric_poll(p.server.queue, &done, 1), 0);
	ck_assert_uint_eq(kernel.epolls - before, 1);
	fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_close(&p);
}
END_TEST

/* A small message of `c`, which is there after a few turns of the server. */
static void crowd_message(struct crowd *x, struct fabric_endpoint *c, struct fabric_endpoint *s)
{
	struct fabric_wr wr = wr_local(FABRIC_SEND, 7, &x->small, 0, 8);
	unsigned turns = 0;

	receive(&x->p.server, s, 7, &x->inbox, 0, 64);
	post(c, &wr);
	for (; !x->p.server.done_count; turns++) {
		unsigned epolls = kernel.epolls, told = kernel.told;

		station_pump(&x->p.server);
		x->epolls += kernel.epolls - epolls;
		x->told += kernel.told - told;
		check_that(turns < 20, "not there after %u turns", turns);
	}
	ck_assert_ptr_eq(x->p.server.done[0].endpoint, s);
	x->p.server.done_count = 0;
	station_pump(&x->p.client);
	x->p.client.done_count = 0;
}

static void crowd_leave(struct crowd *x, int i)
{
	fabric_disconnect(x->c[i]);
	event_expect(&x->p, &x->p.server, x->s[i], FABRIC_DISCONNECTED);
	event_expect(&x->p, &x->p.client, x->c[i], FABRIC_DISCONNECTED);
	station_destroy(&x->p.server, &x->s[i]);
	station_destroy(&x->p.client, &x->c[i]);
}

/* One that is busy among many idle ones is read as if it were alone, and any of them that sends is found meanwhile. */
START_TEST(busy_among_idle)
{
	enum { MESSAGES = 200, ROUNDS = 5 };
	struct crowd x;

	crowd_open(&x);
	for (int i = 0; i < MESSAGES; i++)
		crowd_message(&x, x.p.c, x.p.s);
	/* Where the processors are busy the kernel may deliver one behind the look at its socket: then once more. */
	for (int round = 0; round == 0 || (x.told > 0 && round < ROUNDS); round++) {
		x.epolls = x.told = 0;
		for (int i = 0; i < MESSAGES; i++)
			crowd_message(&x, x.p.c, x.p.s);
		check_that(x.epolls <= MESSAGES, "%u calls for %d messages", x.epolls, MESSAGES);
	}
	check_that(x.told == 0, "epoll told of %u of them", x.told);
	for (int i = 0; i < CROWD; i++) {
		crowd_message(&x, x.c[i], x.s[i]);
		crowd_message(&x, x.p.c, x.p.s);
	}
	crowd_close(&x);
}
END_TEST

/* Whom it reads without epoll knowing wakes it all the same when it sleeps, also after the crowd around has gone. */
START_TEST(busy_among_idle_wakes)
{
	struct crowd x;

	crowd_open(&x);
	for (int i = CROWD; i > 0; i--) {
		for (int j = 0; j < 100; j++)
			crowd_message(&x, x.p.c, x.p.s);
		fabric_pair_wake(&x.p, x.p.c, x.p.s, &x.small, &x.inbox, 1);
		fabric_pair_wake(&x.p, x.c[i - 1], x.s[i - 1], &x.small, &x.inbox, 2);
		for (int j = 0; j < 100; j++)
			crowd_message(&x, x.p.c, x.p.s);
		crowd_leave(&x, i - 1);
	}
	crowd_close(&x);
}
END_TEST

/* Where more than few are busy, one after the other, none is read in vain however long they pause. */
START_TEST(busy_in_turns)
{
	enum { BUSY = 3, MESSAGES = 90, PAUSE = 100 };
	unsigned before = 0;
	struct crowd x;

	crowd_open(&x);
	for (int i = 0; i < MESSAGES; i++) {
		if (i == MESSAGES / 2)
			before = kernel.reads;
		crowd_message(&x, x.c[i % BUSY], x.s[i % BUSY]);
		for (int j = 0; j < PAUSE; j++)
			station_pump(&x.p.server);
	}
	check_that(kernel.reads - before < MESSAGES * PAUSE / 8, "%u reads", kernel.reads - before);
	crowd_close(&x);
}
END_TEST

/* Endpoints that were read without asking may end like all others, and leave no trace. */
START_TEST(busy_ones_end)
{
	struct crowd x;

	crowd_open(&x);
	for (int i = 0; i < 100; i++)
		crowd_message(&x, x.c[0], x.s[0]);
	fabric_disconnect(x.c[0]);
	event_expect(&x.p, &x.p.server, x.s[0], FABRIC_DISCONNECTED);
	station_destroy(&x.p.server, &x.s[0]);
	for (int i = 1; i < CROWD; i++)
		crowd_message(&x, x.c[i], x.s[i]);
	crowd_close(&x);
}
END_TEST

Suite *fair_suite(void)
{
	Suite *s = suite_create("fair");
	TCase *t;

	if (!target.soft) /* a device has turns of its own */
		return s;
	t = fabric_pair_tcase(s, "fair", 60);
	tcase_add_test(t, large_writes_beside_small_messages);
	tcase_add_test(t, large_reads_beside_small_messages);
	tcase_add_test(t, acknowledged_beside_busy_ones);
	tcase_add_test(t, nobody_costs_nothing);
	tcase_add_test(t, busy_among_idle);
	tcase_add_test(t, busy_among_idle_wakes);
	tcase_add_test(t, busy_in_turns);
	tcase_add_test(t, busy_ones_end);
	return s;
}
