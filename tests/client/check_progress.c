/*
 * check_progress.c: the progress thread. What a server asks of a client goes on while the caller is away, that is, makes no
 * call, and another connection sees what became of the requests. Callbacks are the caller's own all the same, and no call is
 * kept waiting.
 */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <rdmad/ping.h>

#include "base/base.h"
#include "tests/client/caller.h"
#include "tests/suite.h"

#define LARGE (5 * MIB) /* more than any socket buffer holds */
#define MANY 1000       /* answers, for which the credits do not suffice */
#define SMALL 3000      /* bytes of each */
#define PATIENCE (60 * TIME_S)

static const struct rdmad_options threaded = {.progress_thread = true};
static pthread_t caller;
static char *large, *space;

/*
 * A server that answers some requests, and then one that nobody asked
 */
static unsigned honest;

static int rogue_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct wire_record reply = {.id = honest ? record->id : ~record->id, .op = record->op, .flags = WIRE_REPLY};

	(void)body;
	if (!conn_say(conn, &reply, NULL, 0, NULL, 0))
		return -EAGAIN;
	honest -= honest > 0;
	return 0;
}

static const struct conn_ops rogue_ops = {
	.established = server_ignores_established,
	.record = rogue_record,
	.closed = server_ignores_closed,
};

static void take_rogue(struct fabric_event *event)
{
	const struct wire_accept grant = {.eager_max = WIRE_EAGER_MAX, .value_max = GIB};
	struct wire_request wire;
	struct conn *conn;

	ck_assert_int_eq(wire_request_decode(&wire, event->data, event->data_len), 0);
	conn_accept(server.group, event->request, &wire, &grant, NULL, &rogue_ops, NULL, time_now(), &conn);
}

static void set_up(void)
{
	caller = pthread_self();
	large = malloc(LARGE);
	space = malloc(LARGE);
	ck_assert(large && space);
	for (size_t i = 0; i < LARGE; i++)
		large[i] = (char)(i * 7 + i / 4096);
	server_start(&(struct server_options){.transport = "unix"});
}

static void tear_down(void)
{
	server_stop();
	free(space);
	free(large);
}

/*
 * The caller, and what is seen of it from outside
 */
static unsigned threads(void)
{
	return count_entries("/proc/self/task");
}

/* Until an expression is true; it does not touch what the caller has. */
#define ASSERT_SOON(expression)                                                                                        \
	do {                                                                                                           \
		uint64_t until_ = time_now() + PATIENCE;                                                               \
		while (!(expression))                                                                                  \
			ck_assert_msg(time_now() < until_, "not in time: " #expression);                               \
	} while (0)

static bool has_length(void *kv, const char *key, uint64_t length)
{
	struct kv_meta meta;

	return kv_stat(kv, key, strlen(key), &meta) == 0 && meta.length == length;
}

static struct store_stats stored(void)
{
	struct store_stats stats;

	store_get_stats(server.services.store, &stats);
	return stats;
}

/* A request behind the others: a connection's are carried out in order, and the server began none before it had room for
 * the answers to those before. The mark's length is its number. */
static void submit_mark(void *kv, unsigned number)
{
	ck_assert_int_eq(kv_submit_set(kv, "mark", 4, large, number, NULL, NULL), 0);
}

#define ASSERT_MARK_SOON(other, number) ASSERT_SOON(has_length(other, "mark", number))

/* An answer as its callback got it. */
struct told {
	unsigned calls;
	int status;
	size_t len;
	const void *value;
};

static void tell(void *arg, int status, const void *value, size_t value_len)
{
	struct told *told = arg;

	ck_assert(pthread_equal(pthread_self(), caller));
	*told = (struct told){told->calls + 1, status, value_len, value};
}

/*
 * Large values
 */
START_TEST(test_set_while_away)
{
	void *kv = open_kv(&threaded, NULL), *other = open_kv(NULL, NULL), *value;
	struct told told = {0};
	size_t len;

	ck_assert_int_eq(kv_submit_set(kv, "k", 1, large, LARGE, tell, &told), 0);
	if (_i) /* else the thread sends it, too */
		ck_assert_int_eq(kv_flush(kv), 0);
	ASSERT_SOON(has_length(other, "k", LARGE));
	ck_assert_uint_eq(told.calls, 0);
	ck_assert_uint_eq(kv_outstanding(kv), 1);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(told.calls, 1);
	ck_assert_int_eq(told.status, 0);
	ck_assert_int_eq(kv_get_bytes(other, "k", 1, &value, &len), 0);
	ck_assert_uint_eq(len, LARGE);
	ck_assert_mem_eq(value, large, LARGE);
	kv_release(value);
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(other), 0);
}
END_TEST

/* Into the caller's memory, or a landing buffer: the first get does not know the length and asks twice. */
START_TEST(test_get_while_away)
{
	void *kv = open_kv(&threaded, NULL), *other = open_kv(NULL, NULL);
	struct told told = {0};

	ck_assert_int_eq(kv_set_bytes(other, "k", 1, large, LARGE), 0);
	if (_i)
		ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, space, LARGE, tell, &told), 0);
	else
		ck_assert_int_eq(kv_submit_get(kv, "k", 1, tell, &told), 0);
	ASSERT_SOON(stored().hits == 1);
	ASSERT_SOON(stored().pins == 0);
	ck_assert_uint_eq(told.calls, 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(told.calls, 1);
	ck_assert_int_eq(told.status, 0);
	ck_assert_uint_eq(told.len, LARGE);
	if (_i)
		ck_assert_mem_eq(space, large, LARGE);
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(other), 0);
}
END_TEST

/*
 * Answers
 */
struct answers {
	unsigned next;
};

/* Value i is SMALL bytes of i. */
static void in_order(void *arg, int status, const void *value, size_t len)
{
	struct answers *a = arg;
	const unsigned char *bytes = value;

	ck_assert(pthread_equal(pthread_self(), caller));
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(len, SMALL);
	ck_assert_uint_eq(bytes[0], a->next % 256);
	ck_assert_mem_eq(bytes, bytes + 1, len - 1);
	a->next++;
}

static void set_small(void *kv)
{
	char value[SMALL];

	for (unsigned i = 0; i < 256; i++) {
		memset(value, (int)i, sizeof(value));
		ck_assert_int_eq(kv_set_bytes(kv, &(uint8_t){(uint8_t)i}, 1, value, SMALL), 0);
	}
}

static void get_small(void *kv, unsigned count, kv_callback done, void *arg)
{
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(kv_submit_get(kv, &(uint8_t){(uint8_t)i}, 1, done, arg), 0);
}

/* The server could not send them all if their credits did not go back; they are copies of what came, in order. */
START_TEST(test_answers_while_away)
{
	void *kv = open_kv(&threaded, NULL), *other = open_kv(NULL, NULL);
	struct answers answers = {0};

	set_small(other);
	get_small(kv, MANY, in_order, &answers);
	submit_mark(kv, 1);
	ASSERT_MARK_SOON(other, 1);
	ck_assert_uint_eq(answers.next, 0);
	ck_assert_uint_eq(kv_outstanding(kv), MANY + 1);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(answers.next, MANY);
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(other), 0);
}
END_TEST

static void result_told(void *arg, const struct kv_result *result)
{
	ck_assert(pthread_equal(pthread_self(), caller));
	*(struct kv_result *)arg = *result;
	if (result->status == 0 && result->value)
		ck_assert_mem_eq(result->value, "12", 2);
}

/* What an answer tells beside a value is kept, too. */
START_TEST(test_results_while_away)
{
	void *kv = open_kv(&threaded, NULL), *other = open_kv(NULL, NULL);
	struct kv_result sum = {.status = 1}, got = {.status = 1}, missing = {.status = 1};

	ck_assert_int_eq(kv_submit_stat(kv, "none", 4, result_told, &missing), 0);
	ck_assert_int_eq(kv_submit_incr(kv, "n", 1, 12, result_told, &sum), 0);
	ck_assert_int_eq(kv_submit_get_version(kv, "n", 1, result_told, &got), 0);
	submit_mark(kv, 1);
	ASSERT_MARK_SOON(other, 1);
	ck_assert_int_eq(sum.status, 1);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(missing.status, -ENOENT);
	ck_assert_int_eq(sum.status, 0);
	ck_assert_int_eq(sum.number, 12);
	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.value_len, 2);
	ck_assert_uint_eq(got.meta.version, sum.meta.version);
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(other), 0);
}
END_TEST

static void tell_result(void *arg, const struct kv_result *result)
{
	tell(arg, result->status, result->value, result->value_len);
}

/* A caller that cancels a request may free its argument, also where the thread has the answer already. */
START_TEST(test_cancel_while_away)
{
	void *kv = open_kv(&threaded, NULL), *other = open_kv(NULL, NULL);
	struct told goes = {0}, stays = {0};

	ck_assert_int_eq(kv_set_bytes(other, "k", 1, large, LARGE), 0);
	ck_assert_int_eq(kv_set_bytes(other, "s", 1, large, SMALL), 0);
	for (unsigned round = 1; round <= 3; round++) {
		goes = stays = (struct told){0};
		ck_assert_int_eq(kv_submit_get(kv, "s", 1, tell, &goes), 0);
		ck_assert_int_eq(kv_submit_get(kv, "s", 1, tell, &stays), 0);
		ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, space, LARGE, tell, &goes), 0);
		ck_assert_int_eq(kv_submit_get(kv, "k", 1, tell, &goes), 0);
		ck_assert_int_eq(kv_submit_stat(kv, "k", 1, tell_result, &goes), 0);
		submit_mark(kv, round);
		ASSERT_MARK_SOON(other, round);
		ASSERT_SOON(stored().pins == 0);
		ck_assert_uint_eq(goes.calls, 0);
		ck_assert_int_eq(kv_cancel(kv, &goes), 4);
		ck_assert_int_eq(kv_cancel(kv, &goes), 0);
		ck_assert_uint_eq(goes.calls, 4);
		ck_assert_int_eq(goes.status, -ECANCELED);
		ck_assert_uint_eq(stays.calls, 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		ck_assert_uint_eq(goes.calls, 4);
		ck_assert_uint_eq(stays.calls, 1);
		ck_assert_int_eq(stays.status, 0);
		ck_assert_uint_eq(stays.len, SMALL);
	}
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(other), 0);
}
END_TEST

/* A caller with a loop of its own is woken by what the thread has left to it. */
START_TEST(test_own_loop)
{
	void *kv = open_kv(&threaded, NULL), *other = open_kv(NULL, NULL);
	struct pollfd pfd = {.fd = kv_fd(kv), .events = POLLIN};
	struct told told = {0};

	for (unsigned i = 0; i < 20; i++) {
		told.calls = 0;
		ck_assert_int_eq(kv_submit_get(kv, "none", 4, tell, &told), 0);
		submit_mark(kv, i + 1);
		if (i % 2)
			ASSERT_MARK_SOON(other, i + 1);
		while (!told.calls) {
			if (kv_arm(kv) == 0)
				ck_assert_int_eq(poll(&pfd, 1, PATIENCE / TIME_MS), 1);
			ck_assert_int_ge(kv_progress(kv, 0), 0);
		}
		ck_assert_int_eq(told.status, -ENOENT);
	}
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(other), 0);
}
END_TEST

struct chain {
	void *kv;
	unsigned left;
};

static void submit_next(void *arg, int status, const void *value, size_t len)
{
	struct chain *chain = arg;

	ck_assert(pthread_equal(pthread_self(), caller));
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(kv_exists(chain->kv, "k", 1), -EDEADLK);
	ck_assert_int_eq(kv_close(chain->kv), -EDEADLK);
	(void)value;
	(void)len;
	if (chain->left-- == 0)
		return;
	ck_assert_int_eq(kv_submit_get(chain->kv, "k", 1, submit_next, chain), 0);
	ck_assert_int_eq(kv_wait(chain->kv), -EDEADLK);
}

START_TEST(test_submit_from_callback)
{
	struct chain chain = {.left = 100};

	chain.kv = open_kv(&threaded, NULL);
	ck_assert_int_eq(kv_set(chain.kv, "k", "v"), 0);
	ck_assert_int_eq(kv_submit_get(chain.kv, "k", 1, submit_next, &chain), 0);
	ck_assert_int_eq(kv_wait(chain.kv), 0);
	ck_assert_uint_eq(chain.left + 1, 0);
	ck_assert_int_eq(kv_close(chain.kv), 0);
}
END_TEST

static int delete_it(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)meta;
	ck_assert_int_eq(kv_delete(arg, key, key_len), 1);
	return 0;
}

/* A walk's callback may wait. */
START_TEST(test_walk)
{
	void *kv = open_kv(&threaded, NULL);
	struct kv_info info;

	set_small(kv);
	ck_assert_int_eq(kv_each(kv, NULL, 0, delete_it, kv), 0);
	ck_assert_int_eq(kv_info(kv, &info), 0);
	ck_assert_uint_eq(info.keys, 0);
	ck_assert_int_eq(kv_close(kv), 0);
}
END_TEST

START_TEST(test_ping)
{
	struct rdmad_ping_options options = {.common = threaded, .size = 1000, .depth = 8, .verify = true};
	struct rdmad_ping *ping;
	uint64_t rtt;

	ck_assert_int_eq(rdmad_ping_open(server.address, &options, &ping), 0);
	for (unsigned i = 0; i < 200; i++) {
		for (unsigned out = 0; out < 8; out++)
			ck_assert_int_eq(rdmad_ping_send(ping), 0);
		for (unsigned out = 0; out < 8; out++)
			ck_assert_int_eq(rdmad_ping_receive(ping, &rtt), 0);
	}
	rdmad_ping_close(ping);
}
END_TEST

/*
 * Ends
 */
static _Atomic unsigned ended_elsewhere; /* logged by a thread that is not the caller */

static void keep_and_count(enum log_level level, const char *room, const char *text)
{
	if (strstr(text, "the connection ended") && !pthread_equal(pthread_self(), caller))
		ended_elsewhere++;
	log_keep(level, room, text);
}

struct ends {
	unsigned calls, good;
};

/* First the requests that were answered, then the ones that ended with the connection. */
static void end(void *arg, int status, const void *value, size_t len)
{
	struct ends *ends = arg;

	(void)value;
	(void)len;
	ck_assert(pthread_equal(pthread_self(), caller));
	ck_assert_uint_eq(ends->good, MIN(ends->calls, 50u));
	ends->calls++;
	ends->good += status == 0;
}

/* The thread found it; the caller is told what happened, in order and by all of its requests. */
START_TEST(test_ends_while_away)
{
	struct ends ends = {0};
	struct pollfd pfd;
	void *kv;

	log_set_handler(keep_and_count);
	server_pause();
	server.take = take_rogue;
	honest = 50;
	server_resume();
	kv = open_kv(&threaded, NULL);
	pfd = (struct pollfd){.fd = kv_fd(kv), .events = POLLIN};
	server_pause(); /* until all are submitted */
	for (unsigned i = 0; i < 100; i++)
		ck_assert_int_eq(kv_submit_set(kv, "k", 1, "v", 1, end, &ends), 0);
	server_resume();
	ASSERT_SOON(ended_elsewhere == 1);
	ck_assert_int_eq(poll(&pfd, 1, PATIENCE / TIME_MS), 1);
	ck_assert_uint_eq(ends.calls, 0);
	if (_i) {
		ck_assert_uint_eq(kv_outstanding(kv), 100);
		ck_assert_int_eq(kv_wait(kv), -ENOTCONN);
		ck_assert_ptr_nonnull(strstr(rdmad_error(), "has ended"));
		ck_assert_uint_eq(ends.calls, 100);
		ck_assert_int_eq(kv_progress(kv, 0), -ENOTCONN);
		ck_assert_int_eq(kv_flush(kv), -ENOTCONN);
	}
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_uint_eq(ends.calls, 100);
	ck_assert_uint_eq(ends.good, 50);
	log_set_handler(log_keep);
}
END_TEST

/* However far the requests have come, each is told once, and the thread and all descriptors go. */
START_TEST(test_close_loses_nothing)
{
	void *other = open_kv(NULL, NULL);
	unsigned fds = count_descriptors(), tasks = threads();

	set_small(other);
	for (unsigned i = 0; i < 40; i++) {
		void *kv = open_kv(&threaded, NULL);
		struct told small = {0}, big = {0};

		ck_assert_uint_eq(threads(), tasks + 1);
		get_small(kv, 100, tell, &small);
		submit_mark(kv, i + 1);
		ck_assert_int_eq(kv_submit_set(kv, "k", 1, large, LARGE, tell, &big), 0);
		if (i % 4 == 1)
			ck_assert_int_eq(kv_flush(kv), 0);
		if (i % 4 == 2) {
			ASSERT_MARK_SOON(other, i + 1);
		} else if (i % 4 == 3) {
			ASSERT_SOON(has_length(other, "k", LARGE));
		}
		ck_assert_int_eq(kv_close(kv), 0);
		ck_assert_uint_eq(small.calls, 100);
		ck_assert_uint_eq(big.calls, 1);
		ck_assert_uint_eq(threads(), tasks);
		ASSERT_SOON(kv_delete(other, "k", 1) >= 0 && stored().pins == 0);
	}
	ASSERT_SOON(count_descriptors() == fds); /* the server's ends go in its own time */
	ck_assert_int_eq(kv_close(other), 0);
}
END_TEST

/* One thread for all handles that share, from the first that asks until the last has gone; a refused one leaves none. */
START_TEST(test_one_thread)
{
	unsigned fds = count_descriptors(), tasks = threads();
	void *kv[4], *refused;

	kv[0] = open_kv(NULL, NULL);
	ck_assert_uint_eq(threads(), tasks);
	for (unsigned i = 1; i < ARRAY_SIZE(kv); i++) {
		kv[i] = open_kv(&threaded, kv[0]);
		ck_assert_uint_eq(threads(), tasks + 1);
		ck_assert_int_eq(kv_set(kv[i], "k", "v"), 0);
		ck_assert_int_eq(kv_exists(kv[0], "k", 1), 1);
	}
	ck_assert_int_ne(kv_open_options("unix:///nowhere", &threaded, kv[0], &refused), 0);
	ck_assert_int_ne(kv_open_options("unix:///nowhere", &threaded, NULL, &refused), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(kv); i++) {
		ck_assert_uint_eq(threads(), tasks + 1);
		ck_assert_int_eq(kv_close(kv[i]), 0);
	}
	ck_assert_uint_eq(threads(), tasks);
	ASSERT_SOON(count_descriptors() == fds);
}
END_TEST

/*
 * All at once: callers that come and go, each with handles that share a thread, for the thread sanitizer.
 */
static void count(void *arg, int status, const void *value, size_t len)
{
	(void)value;
	(void)len;
	ck_assert(status == 0 || status == -ENOENT);
	++*(unsigned *)arg;
}

static void come_and_go(void *const kv[2], unsigned seed, char *mine)
{
	char key[16];
	unsigned told = 0, submitted = 0;

	snprintf(key, sizeof(key), "key %u", seed);
	for (unsigned i = 0; i < 150; i++) {
		void *handle = kv[i % 2], *value, *lent;
		size_t len;

		memset(mine, (int)i, 20000);
		ck_assert_int_eq(kv_set_bytes(handle, key, strlen(key), mine, i % 3 ? 100 : 20000), 0);
		ck_assert_int_eq(kv_buffer_lend(handle, 10000, &lent), 0);
		for (unsigned k = 0; k < i % 20; k++, submitted++)
			ck_assert_int_eq(kv_submit_get(handle, key, strlen(key), count, &told), 0);
		ck_assert_int_eq(kv_submit_set(handle, key, strlen(key), lent, 10000, count, &told), 0);
		submitted++;
		if (i % 5 == 0)
			usleep(rand_r(&seed) % 3000); /* away: the thread takes over, or is about to */
		if (i % 7 == 0)
			ck_assert_int_ge(kv_progress(kv[0], 0), 0);
		ck_assert_int_eq(kv_get_bytes(handle, key, strlen(key), &value, &len), 0);
		kv_release(value);
		ck_assert_int_eq(kv_wait(handle), 0);
		kv_release(lent);
	}
	ck_assert_int_eq(kv_wait(kv[0]), 0);
	ck_assert_uint_eq(told, submitted);
}

static void *run_caller(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	char *mine = malloc(20000);
	void *kv[2];

	for (unsigned round = 0; round < 3; round++) {
		kv[0] = open_kv(&threaded, NULL);
		kv[1] = open_kv(NULL, kv[0]);
		come_and_go(kv, seed, mine);
		ck_assert_int_eq(kv_close(kv[round % 2]), 0);
		ck_assert_int_eq(kv_close(kv[1 - round % 2]), 0);
	}
	free(mine);
	return NULL;
}

START_TEST(test_callers_come_and_go)
{
	pthread_t thread[3];

	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, run_caller, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_join(thread[i], NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("progress");
	TCase *tc = suite_case(suite, "thread", set_up, tear_down);

	log_set_handler(log_keep);
	tcase_add_loop_test(tc, test_set_while_away, 0, 2);
	tcase_add_loop_test(tc, test_get_while_away, 0, 2);
	tcase_add_test(tc, test_answers_while_away);
	tcase_add_test(tc, test_results_while_away);
	tcase_add_test(tc, test_cancel_while_away);
	tcase_add_test(tc, test_own_loop);
	tcase_add_test(tc, test_submit_from_callback);
	tcase_add_test(tc, test_walk);
	tcase_add_test(tc, test_ping);
	tcase_add_loop_test(tc, test_ends_while_away, 0, 2);
	tcase_add_test(tc, test_close_loses_nothing);
	tcase_add_test(tc, test_one_thread);
	tcase_add_test(tc, test_callers_come_and_go);
	return suite_run(suite);
}
