/*
 * check_kv_queue.c: requests and completions by the array, of values of each way, beside callbacks; and what becomes of
 * them when the connection ends, they are cancelled, or nobody takes them.
 */
#include <check.h>
#include <poll.h>

#include "base/base.h"
#include "client/kv/kv.h"

#include "tests/client/caller.h"
#include "tests/service/value.h"
#include "tests/suite.h"

#define LONGEST (2 * MIB)
#define KEYS 16
#define ROUNDS 3000

static void *kv;
static uint8_t value[LONGEST + 1], space[LONGEST + 1];

static void start(const char *transport, uint64_t push_max, bool progress_thread)
{
	const struct rdmad_options options = {.progress_thread = progress_thread};

	server_start(&(struct server_options){
		.transport = transport, .services.value_max = LONGEST, .services.push_max = push_max});
	kv = open_kv(&options, NULL);
}

static void set_up(void)
{
	start("tcp", 0, false);
}

static void set_up_pushed(void)
{
	start("unix", 65536, false);
}

static void set_up_thread(void)
{
	start("unix", 65536, true);
}

static void set_up_rdma(void)
{
	start("rdma", 0, false);
}

static void tear_down(void)
{
	ck_assert_int_eq(kv_close(kv), 0);
	server_stop();
}

static struct kv_request request(enum kv_op op, const char *key, uint64_t tag)
{
	return (struct kv_request){.op = op, .key = key, .key_len = strlen(key), .tag = tag};
}

/* Submits one, and takes its completion. */
static struct kv_completion one(const struct kv_request *r)
{
	struct kv_completion done;

	ck_assert_int_eq(kv_submit(kv, r, 1), 1);
	ck_assert_int_eq(kv_done(kv, &done, 1, UINT64_MAX), 1);
	ck_assert_uint_eq(done.tag, r->tag);
	return done;
}

START_TEST(test_operations)
{
	struct kv_request r = request(KV_OP_SET, "k", 7);
	struct kv_completion done;
	uint64_t version;

	r.value = "hello";
	r.value_len = 5;
	r.condition = KV_IF_ABSENT;
	done = one(&r);
	ck_assert_int_eq(done.status, 0);
	version = done.meta.version;
	ck_assert_uint_gt(version, 0);
	ck_assert_int_eq(one(&r).status, -EEXIST);
	r = request(KV_OP_GET, "k", UINT64_MAX);
	done = one(&r);
	ck_assert_uint_eq(done.length, 5);
	ck_assert_mem_eq(done.value, "hello", 5);
	ck_assert_uint_eq(done.meta.version, version);
	r.offset = 1;
	r.length = 3;
	done = one(&r);
	ck_assert_uint_eq(done.length, 3);
	ck_assert_mem_eq(done.value, "ell", 3);
	ck_assert_uint_eq(done.meta.length, 5);
	r.value = space;
	r.value_len = 2;
	done = one(&r);
	ck_assert_int_eq(done.status, -EMSGSIZE);
	ck_assert_uint_eq(done.length, 3);
	ck_assert_ptr_null(done.value);
	r.offset = r.length = 0;
	r.value_len = 10;
	done = one(&r);
	ck_assert_uint_eq(done.length, 5);
	ck_assert_ptr_eq(done.value, space);
	ck_assert_mem_eq(space, "hello", 5);
	ck_assert_uint_eq(done.meta.version, version);
	r = request(KV_OP_APPEND, "k", 1);
	r.value = ", you";
	r.value_len = 5;
	ck_assert_uint_eq(one(&r).meta.length, 10);
	r = request(KV_OP_SET_RANGE, "k", 1);
	r.value = "H";
	r.value_len = 1;
	ck_assert_uint_eq(one(&r).meta.length, 10);
	r = request(KV_OP_STAT, "k", 2);
	done = one(&r);
	ck_assert_uint_eq(done.meta.length, 10);
	ck_assert_uint_eq(done.type, KV_STRING);
	r = request(KV_OP_EXPIRE, "k", 3);
	r.ttl_us = 3600000000;
	ck_assert_int_eq(one(&r).status, 0);
	r = request(KV_OP_DELETE, "k", 4);
	r.version = version;
	ck_assert_int_eq(one(&r).status, -ESTALE);
	r.version = 0;
	ck_assert_int_eq(one(&r).status, 0);
	ck_assert_int_eq(one(&r).status, -ENOENT);
	r = request(KV_OP_COUNT, "n", 5);
	r.delta = -3;
	ck_assert_int_eq(one(&r).number, -3);
	ck_assert_int_eq(one(&r).number, -6);
	r = request(KV_OP_GET, "n", 6);
	r.then = KV_THEN_DELETE;
	done = one(&r);
	ck_assert_uint_eq(done.length, 2);
	ck_assert_mem_eq(done.value, "-6", 2);
	ck_assert_int_eq(kv_exists(kv, "n", 1), 0);
}
END_TEST

/* A value of several pieces, as one request. */
START_TEST(test_pieces)
{
	static const size_t first[] = {1, 5000, 100000};
	struct kv_request r = request(KV_OP_SET, "k", 1);
	struct kv_completion done;

	value_fill(value, sizeof(value), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(first); i++) {
		struct iovec from[] = {{value, first[i]}, {value + 200000, 70000}};
		struct iovec to[] = {{space, first[i]}, {space + 200000, 70000}};

		memset(space, 0, sizeof(space));
		r = request(KV_OP_SET, "k", 1);
		r.value = from;
		r.pieces = 2;
		ck_assert_int_eq(one(&r).status, 0);
		r = request(KV_OP_GET, "k", 2);
		r.value = to;
		r.pieces = 2;
		done = one(&r);
		ck_assert_int_eq(done.status, 0);
		ck_assert_uint_eq(done.length, first[i] + 70000);
		ck_assert_ptr_null(done.value);
		ck_assert_mem_eq(space, value, first[i]);
		ck_assert_mem_eq(space + 200000, value + 200000, 70000);
	}
	r.value = NULL;
	ck_assert_int_eq(kv_submit(kv, &r, 1), -EINVAL);
}
END_TEST

START_TEST(test_refused)
{
	struct kv_request r[3] = {request(KV_OP_STAT, "k", 1), request(KV_OP_STAT, "k", 2), request(KV_OP_STAT, "", 3)};
	struct kv_completion done[4];

	ck_assert_int_eq(kv_submit(kv, r, 3), 2);
	ck_assert_int_eq(kv_submit(kv, r + 2, 1), -EINVAL);
	r[2] = request((enum kv_op)99, "k", 4);
	ASSERT_ERROR((int)kv_submit(kv, r + 2, 1), -EINVAL, "operation 99");
	r[2] = request(KV_OP_GET, "k", 4);
	r[2].value = space;
	ck_assert_int_eq(kv_submit(kv, r + 2, 1), -EINVAL);
	r[2] = request(KV_OP_SET, "k", 4);
	r[2].value_len = 3;
	ck_assert_int_eq(kv_submit(kv, r + 2, 1), -EINVAL);
	ck_assert_int_eq(kv_submit(kv, NULL, 1), -EINVAL);
	ck_assert_int_eq(kv_submit(kv, NULL, 0), 0);
	ck_assert_int_eq(kv_done(kv, done, 0, 0), -EINVAL);
	ck_assert_int_eq(kv_done(kv, done, 1, UINT64_MAX), 1);
	ck_assert_uint_eq(done[0].tag, 1);
	ck_assert_int_eq(kv_done(kv, done, 4, UINT64_MAX), 1);
	ck_assert_uint_eq(done[0].tag, 2);
	ck_assert_int_eq(done[0].status, -ENOENT);
	ck_assert_int_eq(kv_done(kv, done, 4, 1000), 0);
}
END_TEST

/* Values of each way, of library memory, stay until the next kv_done(). */
START_TEST(test_values_stay)
{
	static const size_t lengths[] = {0, 1, 127, 128, 4000, 4096, 60000, LONGEST};
	struct kv_request r[ARRAY_SIZE(lengths)];
	struct kv_completion done[ARRAY_SIZE(lengths)];
	char keys[ARRAY_SIZE(lengths)][8];
	size_t taken = 0;

	value_fill(value, sizeof(value), 1);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
		ck_assert_int_eq(kv_set_bytes(kv, keys[i], strlen(keys[i]), value + i, lengths[i] - (i > 6) * i), 0);
		r[i] = request(KV_OP_GET, keys[i], i);
	}
	ck_assert_int_eq(kv_submit(kv, r, ARRAY_SIZE(r)), ARRAY_SIZE(r));
	ck_assert_int_eq(kv_wait(kv), 0); /* others may wait meanwhile */
	ck_assert_int_eq(kv_arm(kv), 1);
	taken = (size_t)kv_done(kv, done, ARRAY_SIZE(done), 0);
	ck_assert_uint_eq(taken, ARRAY_SIZE(done));
	ck_assert_int_eq(kv_set(kv, "other", "other"), 0);
	for (size_t i = 0; i < taken; i++) {
		size_t k = done[i].tag;

		ck_assert_int_eq(done[i].status, 0);
		ck_assert_uint_eq(done[i].length, lengths[k] - (k > 6) * k);
		ck_assert(memcmp(done[i].value ? done[i].value : "", value + k, done[i].length) == 0);
	}
	ck_assert_int_eq(kv_submit(kv, r, ARRAY_SIZE(r)), ARRAY_SIZE(r));
	ck_assert_int_eq(kv_wait(kv), 0); /* nothing takes these: the sanitizer says whether they are given back */
}
END_TEST

static void count_done(void *arg, int status, const void *got, size_t len)
{
	(void)got;
	(void)len;
	ck_assert_int_eq(status, 0);
	++*(unsigned *)arg;
}

START_TEST(test_as_many_as_fit)
{
	static struct kv_request r[KV_SLOTS + 100];
	static struct kv_completion done[KV_SLOTS + 100];
	size_t submitted = 0, completed = 0, sum = 0;
	unsigned called = 0;

	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		r[i] = request(KV_OP_COUNT, "n", i);
		r[i].delta = 1;
	}
	/* Nothing is taken: the queue is full in the end, and calls back otherwise all the same. */
	for (int64_t n; submitted < KV_SLOTS;) {
		n = kv_submit(kv, r + submitted, ARRAY_SIZE(r) - submitted);
		if (n == -EAGAIN)
			n = kv_progress(kv, UINT64_MAX) < 0 ? -1 : 0;
		ck_assert_int_ge(n, 0);
		submitted += (size_t)n;
	}
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(kv_submit(kv, r + submitted, 1), -EAGAIN);
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, "v", 1, count_done, &called), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(called, 1);
	while (completed < submitted) {
		int64_t n = kv_done(kv, done + completed, 100, UINT64_MAX);

		ck_assert_int_gt(n, 0);
		completed += (size_t)n;
	}
	for (size_t i = 0; i < completed; i++) {
		ck_assert_uint_eq(done[i].tag, i);
		ck_assert_int_eq(done[i].number, (int64_t)i + 1);
		sum += done[i].tag;
	}
	ck_assert_uint_eq(sum, (size_t)KV_SLOTS * (KV_SLOTS - 1) / 2);
	ck_assert_int_eq(kv_submit(kv, r + submitted, 1), 1);
}
END_TEST

START_TEST(test_cancel)
{
	struct kv_request r[3] = {request(KV_OP_STAT, "k", 1), request(KV_OP_STAT, "k", 2),
				  request(KV_OP_STAT, "k", 1)};
	struct kv_completion done[3];

	ck_assert_int_eq(kv_submit(kv, r, 3), 3);
	ck_assert_int_eq(kv_cancel_tag(kv, 9), 0);
	ck_assert_int_eq(kv_cancel_tag(kv, 1), 2);
	ck_assert_int_eq(kv_cancel_tag(kv, 1), 0);
	ck_assert_int_eq(kv_done(kv, done, 2, UINT64_MAX), 2);
	ck_assert_int_eq(done[0].status, -ECANCELED);
	ck_assert_int_eq(done[1].status, -ECANCELED);
	ck_assert_int_eq(kv_done(kv, done, 3, UINT64_MAX), 1);
	ck_assert_uint_eq(done[0].tag, 2);
	ck_assert_int_eq(done[0].status, -ENOENT);
}
END_TEST

START_TEST(test_connection_ends)
{
	struct kv_request r[2] = {request(KV_OP_STAT, "k", 1), request(KV_OP_STAT, "k", 2)};
	struct kv_completion done[3];

	ck_assert_int_eq(kv_submit(kv, r, 1), 1);
	ck_assert_int_eq(kv_wait(kv), 0);
	server_die();
	while (kv_submit(kv, r + 1, 1) == 1)
		kv_progress(kv, 1000);
	ck_assert_int_eq(kv_done(kv, done, 1, UINT64_MAX), 1);
	ck_assert_int_eq(done[0].status, -ENOENT);
	while (kv_done(kv, done, 1, UINT64_MAX) == 1) {
		ck_assert_uint_eq(done[0].tag, 2);
		ck_assert(done[0].status == -ECONNABORTED || done[0].status == -ENOTCONN);
	}
	ASSERT_ERROR((int)kv_done(kv, done, 1, UINT64_MAX), -ENOTCONN, "");
}
END_TEST

/* The descriptor tells when to call kv_done(), for a caller with a loop of its own. */
START_TEST(test_own_loop)
{
	struct kv_request r = request(KV_OP_COUNT, "n", 1);
	struct kv_completion done;

	r.delta = 1;
	for (unsigned i = 0; i < 100; i++) {
		int64_t n = 0;

		ck_assert_int_eq(kv_submit(kv, &r, 1), 1);
		while (n == 0) {
			n = kv_done(kv, &done, 1, 0);
			if (n == 0 && kv_arm(kv) == 0) {
				struct pollfd at = {.fd = kv_fd(kv), .events = POLLIN};

				ck_assert_int_eq(poll(&at, 1, 10000), 1);
			}
		}
		ck_assert_int_eq(done.number, i + 1);
	}
}
END_TEST

/* Random requests against what a store must answer: those of a key are carried out in their order. */
START_TEST(test_model)
{
	static size_t length[KEYS]; /* of each key's value, 0: none */
	static struct {
		enum kv_op op;
		size_t before, after;
	} expected[ROUNDS];
	uint64_t seed = 12345;
	size_t submitted = 0, completed = 0;

	memset(length, 0, sizeof(length));
	value_fill(value, sizeof(value), 1);
	while (completed < ROUNDS) {
		struct kv_request batch[32];
		char keys[32][4];
		struct kv_completion done[32];
		size_t n = 0;
		int64_t took, first = (int64_t)submitted;

		for (; n < 1 + seed % 32 && submitted + n < ROUNDS; n++) {
			unsigned key;

			seed = seed * 6364136223846793005u + 1442695040888963407u;
			key = (unsigned)(seed >> 33) % KEYS;
			snprintf(keys[n], sizeof(keys[n]), "%u", key);
			batch[n] = request((seed >> 40) % 3 == 0   ? KV_OP_SET
					   : (seed >> 40) % 7 == 1 ? KV_OP_DELETE
								   : KV_OP_STAT,
					   keys[n], submitted + n);
			if (batch[n].op == KV_OP_SET) {
				batch[n].value = value;
				batch[n].value_len = 1 + (seed >> 45) % ((seed >> 60) ? 300 : 20000);
			}
		}
		took = n ? kv_submit(kv, batch, n) : 0;
		ck_assert(took >= 0 || took == -EAGAIN);
		for (int64_t i = 0; i < took; i++) {
			size_t *now = &length[atoi(keys[i])];

			expected[first + i].op = batch[i].op;
			expected[first + i].before = *now;
			if (batch[i].op != KV_OP_STAT)
				*now = batch[i].op == KV_OP_SET ? batch[i].value_len : 0;
		}
		submitted += took > 0 ? (size_t)took : 0;
		if (took == (int64_t)n && submitted < ROUNDS && seed >> 62)
			continue;
		took = kv_done(kv, done, 1 + (seed >> 50) % 32, UINT64_MAX);
		ck_assert_int_gt(took, 0);
		completed += (size_t)took;
		for (int64_t i = 0; i < took; i++) {
			size_t before = expected[done[i].tag].before;

			if (expected[done[i].tag].op == KV_OP_SET)
				ck_assert_int_eq(done[i].status, 0);
			else
				ck_assert_int_eq(done[i].status, before ? 0 : -ENOENT);
			if (expected[done[i].tag].op == KV_OP_STAT)
				ck_assert_uint_eq(done[i].meta.length, before);
		}
	}
	ck_assert_uint_eq(kv_outstanding(kv), 0);
}
END_TEST

static void keep_result(void *arg, const struct kv_result *result)
{
	*(struct kv_result *)arg = *result;
}

START_TEST(test_many_submitted)
{
	struct kv_item items[100];
	struct kv_place places[100];
	char keys[100][8];
	struct kv_result got = {.status = 1};

	value_fill(value, sizeof(value), 1);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(keys[i], sizeof(keys[i]), "m%u", i);
		items[i] = (struct kv_item){keys[i], strlen(keys[i]), value + i, i * 200, 1};
		places[i] = (struct kv_place){keys[i], strlen(keys[i]), space + (size_t)i * 20000, 20000, 0, 1};
	}
	ck_assert_int_eq(kv_mset(kv, items, 100, NULL), 0);
	ck_assert_int_eq(kv_delete(kv, "m60", 3), 1);
	places[50].size = 10;
	for (int64_t n = 0, at = 0; at < 100; at += n) {
		n = kv_submit_mget_into(kv, places + at, 100 - (size_t)at, keep_result, &got);
		ck_assert_int_gt(n, 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		ck_assert_int_eq(got.status, at <= 50 && at + n > 50 ? -EMSGSIZE : 0);
		ck_assert_int_eq(got.number, at <= 50 && at + n > 50);
	}
	for (unsigned i = 0; i < 100; i++) {
		ck_assert_int_eq(places[i].status, i == 60 ? -ENOENT : i == 50 ? -EMSGSIZE : 0);
		ck_assert_uint_eq(places[i].value_len, i == 60 ? 0 : i * 200);
		ck_assert(places[i].status || memcmp(places[i].buffer, value + i, i * 200) == 0);
	}
	got.number = -1;
	ck_assert_int_eq(kv_submit_mexists(kv, items, 100, keep_result, &got), 100);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(got.number, 60);
	ck_assert_int_eq(items[60].status, -ENOENT);
	ck_assert_int_eq(items[61].status, 0);
	places[0].buffer = NULL;
	ck_assert_int_eq(kv_submit_mget_into(kv, places, 100, keep_result, &got), -EINVAL);
	ck_assert_int_eq(kv_submit_mexists(kv, items, 0, keep_result, &got), -EINVAL);
	ck_assert_int_eq(kv_submit_mexists(kv, items, 3, keep_result, &got), 3);
	ck_assert_int_eq(kv_cancel(kv, &got), 3);
	ck_assert_int_eq(items[2].status, -ECANCELED);
}
END_TEST

static void add(Suite *suite, const char *name, void (*up)(void))
{
	TCase *tc = suite_case(suite, name, up, tear_down);

	tcase_add_test(tc, test_operations);
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_values_stay);
	tcase_add_test(tc, test_as_many_as_fit);
	tcase_add_test(tc, test_cancel);
	tcase_add_test(tc, test_connection_ends);
	tcase_add_test(tc, test_own_loop);
	tcase_add_test(tc, test_model);
	tcase_add_test(tc, test_many_submitted);
}

int main(void)
{
	Suite *suite = suite_create("kv_queue");

	add(suite, "tcp", set_up);
	add(suite, "unix, pushed", set_up_pushed);
	add(suite, "progress thread", set_up_thread);
	if (getenv("RDMAD_GUEST_ADDR"))
		add(suite, "rdma", set_up_rdma);
	return suite_run(suite);
}
