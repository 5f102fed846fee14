/*
 * check_kv.c: librdmad's calls beyond the five, against a server in the same process: versions, conditions, expiry,
 * numbers, walks and batches, for values that travel in a message and for others.
 */
#include <check.h>
#include <limits.h>

#include "base/base.h"
#include "tests/client/caller.h"
#include "tests/suite.h"

#define LARGE 100000

static void *kv;
static char large[LARGE], other[LARGE];

static void set_up(void)
{
	memset(large, 'l', LARGE);
	memset(other, 'o', LARGE);
	server_start(&(struct server_options){.services.value_max = MIB});
	ck_assert_int_eq(kv_open(server.address, &kv), 0);
}

static void tear_down(void)
{
	ck_assert_int_eq(kv_close(kv), 0);
	server_stop();
}

static uint64_t assert_value(const char *key, const void *value, size_t len)
{
	uint64_t version = 0;
	void *got = NULL;
	size_t got_len = 0;

	ck_assert_int_eq(kv_get_version(kv, key, strlen(key), &got, &got_len, &version), 0);
	ck_assert_uint_eq(got_len, len);
	ck_assert_mem_eq(got, value, len);
	ck_assert_int_eq(((char *)got)[len], 0);
	kv_release(got);
	ck_assert_uint_ne(version, 0);
	return version;
}

/*
 * Versions and conditions; small values and large ones
 */
static const size_t lengths[] = {0, 5, 4000, 4096, 4097, LARGE};

START_TEST(test_conditions)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT}, same = {.condition = KV_IF_VERSION},
			      present = {.condition = KV_IF_PRESENT};
	size_t len = lengths[_i];
	uint64_t first = 0, second = 0;

	ASSERT_ERROR(kv_put(kv, "k", 1, large, len, &present, NULL), -ENOENT, "no such key");
	ASSERT_ERROR(kv_put(kv, "k", 1, large, len, &same, NULL), -EINVAL, "version 0");
	same.version = 1;
	ASSERT_ERROR(kv_put(kv, "k", 1, large, len, &same, NULL), -ENOENT, "no such key");
	ck_assert_int_eq(kv_put(kv, "k", 1, large, len, &absent, &first), 0);
	ck_assert_uint_eq(assert_value("k", large, len), first);
	ASSERT_ERROR(kv_put(kv, "k", 1, other, len, &absent, NULL), -EEXIST, "exists");
	same.version = first + 1;
	ASSERT_ERROR(kv_put(kv, "k", 1, other, len, &same, NULL), -ESTALE, "another version");
	ck_assert_uint_eq(assert_value("k", large, len), first);
	same.version = first;
	ck_assert_int_eq(kv_put(kv, "k", 1, other, len, &same, &second), 0);
	ck_assert_uint_gt(second, first);
	ck_assert_int_eq(kv_put(kv, "k", 1, other, len, &same, &second), -ESTALE);
	ck_assert_int_eq(kv_put(kv, "k", 1, large, len, &present, NULL), 0);
	ck_assert_int_eq(kv_put(kv, "k", 1, other, len, NULL, &second), 0);
	ck_assert_uint_eq(assert_value("k", other, len), second);
	ck_assert_uint_eq(assert_value("k", other, len), second); /* its size is known now */
	ck_assert_uint_eq(services_count(&server.services, "kv_errors"), 0);
}
END_TEST

/* A condition that failed has moved no byte. */
START_TEST(test_condition_checked_early)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};

	ck_assert_int_eq(kv_put(kv, "k", 1, large, LARGE, NULL, NULL), 0);
	ck_assert_int_eq(kv_put(kv, "k", 1, other, LARGE, &absent, NULL), -EEXIST);
	server_pause();
	ck_assert_uint_eq(services_count(&server.services, "kv_reads"), 1);
}
END_TEST

static unsigned called;
static struct kv_result last;

static void count(void *arg, const struct kv_result *result)
{
	ck_assert_ptr_eq(arg, &called);
	last = *result;
	called++;
}

static int statuses[8];

static void note(void *arg, const struct kv_result *result)
{
	*(int *)arg = result->status;
	called++;
}

/* Of large puts under way at once, for a key that nobody has, one wins: the condition is decided at the end. */
START_TEST(test_condition_decided_at_publish)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};
	unsigned won = 0;
	void *kvs[4];

	called = 0;
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(kv_open_options(server.address, NULL, kv, &kvs[i]), 0);
		ck_assert_int_eq(kv_submit_put(kvs[i], "k", 1, large, LARGE, &absent, note, &statuses[i]), 0);
		statuses[i] = 1;
	}
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(kv_wait(kvs[i]), 0);
	ck_assert_uint_eq(called, 4);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(statuses[i] == 0 || statuses[i] == -EEXIST);
		won += statuses[i] == 0;
		kv_close(kvs[i]);
	}
	ck_assert_uint_eq(won, 1);
	assert_value("k", large, LARGE);
}
END_TEST

START_TEST(test_delete_if)
{
	uint64_t version;

	ck_assert_int_eq(kv_delete_if(kv, "k", 1, 7), 0);
	ck_assert_int_eq(kv_put(kv, "k", 1, "v", 1, NULL, &version), 0);
	ck_assert_int_eq(kv_delete_if(kv, "k", 1, version + 1), -ESTALE);
	ck_assert_int_eq(kv_delete_if(kv, "k", 1, version), 1);
	ck_assert_int_eq(kv_exists(kv, "k", 1), 0);
	ASSERT_ERROR(kv_delete_if(kv, "k", 1, 0), -EINVAL, "version 0");
}
END_TEST

/*
 * Expiry
 */
#define HOUR 3600000000ull

static uint64_t ttl_of(const char *key)
{
	struct kv_meta meta = {0};

	ck_assert_int_eq(kv_stat(kv, key, strlen(key), &meta), 0);
	return meta.ttl_us;
}

START_TEST(test_ttl)
{
	static const uint64_t endless[] = {0, UINT64_MAX, UINT64_MAX / 1000, UINT64_MAX / 1000 - 1};
	struct kv_put_options hour = {.ttl_us = HOUR};
	struct kv_meta meta;
	size_t len = lengths[_i];

	ASSERT_ERROR(kv_stat(kv, "k", 1, &meta), -ENOENT, "no such key");
	ck_assert_int_eq(kv_put(kv, "k", 1, large, len, &hour, NULL), 0);
	ck_assert_int_eq(kv_stat(kv, "k", 1, &meta), 0);
	ck_assert_uint_eq(meta.length, len);
	ck_assert_uint_eq(meta.version, assert_value("k", large, len));
	ck_assert(meta.ttl_us > HOUR / 2 && meta.ttl_us <= HOUR);
	for (unsigned i = 0; i < ARRAY_SIZE(endless); i++) {
		ck_assert_int_eq(kv_expire(kv, "k", 1, endless[i]), 1);
		ck_assert_uint_eq(ttl_of("k"), 0);
	}
	ck_assert_int_eq(kv_expire(kv, "k", 1, 2 * HOUR), 1);
	ck_assert_uint_gt(ttl_of("k"), HOUR);
	ck_assert_uint_eq(meta.version, assert_value("k", large, len));
	ck_assert_int_eq(kv_put(kv, "k", 1, large, len, NULL, NULL), 0);
	ck_assert_uint_eq(ttl_of("k"), 0);
	ck_assert_int_eq(kv_expire(kv, "none", 4, HOUR), 0);
}
END_TEST

START_TEST(test_expires)
{
	struct kv_put_options soon = {.ttl_us = 1};

	ck_assert_int_eq(kv_put(kv, "k", 1, large, lengths[_i], &soon, NULL), 0);
	while (kv_exists(kv, "k", 1))
		;
	ck_assert_int_eq(kv_put(kv, "k", 1, large, lengths[_i], NULL, NULL), 0);
	ck_assert_int_eq(kv_expire(kv, "k", 1, 1), 1);
	while (kv_exists(kv, "k", 1))
		;
}
END_TEST

/*
 * Numbers
 */
START_TEST(test_incr)
{
	struct kv_put_options hour = {.ttl_us = HOUR};
	uint64_t version = 0;
	int64_t number = 0;

	ck_assert_int_eq(kv_incr(kv, "n", 1, -5, &number, &version), 0);
	ck_assert_int_eq(number, -5);
	ck_assert_uint_eq(assert_value("n", "-5", 2), version);
	ck_assert_int_eq(kv_incr(kv, "n", 1, 47, NULL, NULL), 0);
	assert_value("n", "42", 2);
	ck_assert_int_eq(kv_put(kv, "n", 1, "9223372036854775806", 19, &hour, NULL), 0);
	ck_assert_int_eq(kv_incr(kv, "n", 1, 1, &number, NULL), 0);
	ck_assert(number == INT64_MAX);
	ck_assert_uint_gt(ttl_of("n"), HOUR / 2);
	ASSERT_ERROR(kv_incr(kv, "n", 1, 1, &number, NULL), -ERANGE, "64 bits");
	assert_value("n", "9223372036854775807", 19);
	ck_assert_int_eq(kv_incr(kv, "n", 1, INT64_MIN, &number, NULL), 0);
	ck_assert_int_eq(number, -1);
}
END_TEST

START_TEST(test_incr_not_number)
{
	static const char *const values[] = {"", "x", "1 ", "1.5", "0x10", "9223372036854775808"};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		ck_assert_int_eq(kv_set(kv, "n", values[i]), 0);
		ASSERT_ERROR(kv_incr(kv, "n", 1, 1, NULL, NULL), -EDOM, "whole number");
		assert_value("n", values[i], strlen(values[i]));
	}
	ck_assert_int_eq(kv_put(kv, "n", 1, large, LARGE, NULL, NULL), 0);
	ck_assert_int_eq(kv_incr(kv, "n", 1, 1, NULL, NULL), -EDOM);
}
END_TEST

/*
 * Submitted
 */
START_TEST(test_submitted)
{
	called = 0;
	ck_assert_int_eq(kv_submit_put(kv, "k", 1, large, LARGE, NULL, count, &called), 0);
	ck_assert_int_eq(kv_submit_get_version(kv, "k", 1, count, &called), 0);
	ck_assert_int_eq(kv_submit_stat(kv, "k", 1, count, &called), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(called, 3);
	ck_assert_uint_eq(last.meta.length, LARGE);
	ck_assert_ptr_null(last.value);
	ck_assert_int_eq(kv_submit_expire(kv, "k", 1, HOUR, count, &called), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(last.status, 0);
	ck_assert_int_eq(kv_submit_delete_if(kv, "k", 1, last.meta.version + 1000, count, &called), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(last.status, -ESTALE);
	ck_assert_int_eq(kv_submit_incr(kv, "n", 1, -7, count, &called), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(last.number, -7);
	ck_assert_int_eq(kv_submit_get_version(kv, "none", 4, count, &called), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(last.status, -ENOENT);
	ck_assert_uint_eq(called, 7);
}
END_TEST

/* Each callback submits the next: a slot that was just freed is taken from inside its callback. */
static void chain(void *arg, const struct kv_result *result)
{
	ck_assert_int_eq(result->status, 0);
	ck_assert_int_eq(result->number, ++called);
	if (called < 5000)
		ck_assert_int_eq(kv_submit_incr(kv, "n", 1, 1, chain, arg), 0);
}

START_TEST(test_submit_from_callback)
{
	called = 0;
	ck_assert_int_eq(kv_submit_incr(kv, "n", 1, 1, chain, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(called, 5000);
}
END_TEST

START_TEST(test_closed_with_outstanding)
{
	void *more;

	called = 0;
	ck_assert_int_eq(kv_open(server.address, &more), 0);
	server_pause();
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(kv_submit_incr(more, "n", 1, 1, count, &called), 0);
	server_resume();
	ck_assert_int_eq(kv_close(more), 0);
	ck_assert_uint_eq(called, 10);
}
END_TEST

/*
 * Walks
 */
struct walk {
	unsigned keys, stop_at;
	unsigned char seen[20000];
};

static int see(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct walk *w = arg;
	char text[32] = "";

	ck_assert_uint_ge(key_len, 8);
	memcpy(text, key, 8);
	w->seen[atoi(text + 2)]++;
	ck_assert_uint_eq(meta->length, strlen("value"));
	ck_assert_uint_ne(meta->version, 0);
	return ++w->keys == w->stop_at ? -ECANCELED : 0;
}

/* Keys "ab000000" and on, of up to 4095 bytes. */
static void fill(const char *begin, unsigned keys, bool vary)
{
	static char key[4096];

	for (unsigned i = 0; i < keys; i++) {
		size_t len = vary ? 8 + i * 7919 % 4088 : 8;

		memset(key, 'x', sizeof(key));
		snprintf(key, sizeof(key), "%s%06u", begin, i);
		key[8] = 'x';
		ck_assert_int_eq(store_set(server.services.store, key, len, "value", 5, NULL, time_now(), NULL), 0);
	}
}

/* No key is lost though only one or two of them fit a page, and none comes twice. */
START_TEST(test_walk_long_keys)
{
	static struct walk w;

	w = (struct walk){0};
	server_pause();
	fill("ab", 2000, true);
	server_resume();
	ck_assert_int_eq(kv_each(kv, NULL, 0, see, &w), 0);
	ck_assert_uint_eq(w.keys, 2000);
	for (unsigned i = 0; i < 2000; i++)
		ck_assert_uint_eq(w.seen[i], 1);
}
END_TEST

START_TEST(test_walk_prefix_and_pages)
{
	static struct walk w;
	uint64_t cursor = 0, before;
	int n = 0, rc;

	w = (struct walk){0};
	fill("ab", 500, false);
	fill("cd", 500, false);
	do {
		rc = kv_scan(kv, &cursor, "cd", 2, 7, see, &w);
		ck_assert(rc >= 0 && rc <= 7);
		n += rc;
	} while (cursor);
	ck_assert_int_eq(n, 500);
	for (unsigned i = 0; i < 500; i++)
		ck_assert_uint_eq(w.seen[i], 1);
	w = (struct walk){.stop_at = 3};
	do {
		before = cursor;
		rc = kv_scan(kv, &cursor, "ab", 2, 0, see, &w);
	} while (rc >= 0);
	ck_assert_int_eq(rc, -ECANCELED);
	ck_assert_uint_eq(cursor, before); /* the page comes again */
	cursor = 0;
	w = (struct walk){.stop_at = 10};
	ck_assert_int_eq(kv_each(kv, "ab", 2, see, &w), -ECANCELED);
	ck_assert_uint_eq(w.keys, 10);
	ck_assert_int_eq(kv_each(kv, "ef", 2, see, &w), 0);
	ck_assert_uint_eq(w.keys, 10);
}
END_TEST

/* The callback of a walk may use the handle. */
static int delete_it(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	++*(unsigned *)arg;
	ck_assert_int_eq(kv_delete_if(kv, key, key_len, meta->version), 1);
	return 0;
}

START_TEST(test_walk_and_delete)
{
	unsigned deleted = 0;
	struct kv_info info;

	fill("ab", 2000, false);
	ck_assert_int_eq(kv_each(kv, NULL, 0, delete_it, &deleted), 0);
	ck_assert_uint_eq(deleted, 2000);
	ck_assert_int_eq(kv_info(kv, &info), 0);
	ck_assert_uint_eq(info.keys, 0);
}
END_TEST

START_TEST(test_delete_all_and_info)
{
	uint64_t deleted = 0;
	struct kv_info info;

	server_pause();
	fill("ab", 15000, false); /* more than one request deletes */
	server_resume();
	ck_assert_int_eq(kv_info(kv, &info), 0);
	ck_assert_uint_eq(info.keys, 15000);
	ck_assert_uint_eq(info.key_max, 4095);
	ck_assert_uint_eq(info.eager_max, kv_eager_max(kv));
	ck_assert_uint_eq(info.value_max, MIB);
	ck_assert_uint_gt(info.bytes_used, 15000 * 13);
	ck_assert_uint_le(info.bytes_used, info.bytes_total);
	ck_assert_int_eq(kv_delete_all(kv, &deleted), 0);
	ck_assert_uint_eq(deleted, 15000);
	ck_assert_int_eq(kv_delete_all(kv, NULL), 0);
	ck_assert_int_eq(kv_info(kv, &info), 0);
	ck_assert_uint_eq(info.keys, 0);
	ck_assert_uint_eq(info.bytes_used, 0);
}
END_TEST

/* A large SET that was submitted first is deleted too. */
START_TEST(test_delete_all_in_order)
{
	uint64_t deleted;

	called = 0;
	ck_assert_int_eq(kv_submit_put(kv, "k", 1, large, LARGE, NULL, count, &called), 0);
	ck_assert_int_eq(kv_delete_all(kv, &deleted), 0);
	ck_assert_uint_eq(deleted, 1);
	ck_assert_uint_eq(called, 1);
}
END_TEST

/*
 * Batches
 */
#define ITEMS 5000

static struct kv_item items[ITEMS];
static char keys[ITEMS][16];
static unsigned answers[ITEMS];

/* Every 500th value is large, every 100th key is missing. */
static void items_init(void)
{
	for (unsigned i = 0; i < ITEMS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "key %u", i);
		items[i] = (struct kv_item){
			.key = keys[i], .key_len = strlen(keys[i]), .value = keys[i], .value_len = strlen(keys[i])};
		if (i % 500 == 0) {
			items[i].value = large;
			items[i].value_len = LARGE;
		}
		answers[i] = 0;
	}
}

static void got_item(void *arg, size_t i, int status, const void *value, size_t value_len)
{
	ck_assert_ptr_eq(arg, items);
	answers[i]++;
	ck_assert_int_eq(status, i % 100 == 1 ? -ENOENT : 0);
	if (status)
		return;
	ck_assert_uint_eq(value_len, items[i].value_len);
	ck_assert_mem_eq(value, items[i].value, value_len);
}

START_TEST(test_batch)
{
	struct kv_put_options hour = {.ttl_us = HOUR};

	items_init();
	ck_assert_int_eq(kv_mset(kv, items, ITEMS, _i ? &hour : NULL), 0);
	for (unsigned i = 0; i < ITEMS; i++) {
		ck_assert_int_eq(items[i].status, 0);
		if (i % 100 == 1)
			ck_assert_int_eq(kv_delete(kv, keys[i], strlen(keys[i])), 1);
	}
	for (unsigned round = 1; round <= 2; round++) { /* in the second the sizes are known */
		ck_assert_int_eq(kv_mget(kv, items, ITEMS, got_item, items), 0);
		for (unsigned i = 0; i < ITEMS; i++)
			ck_assert_uint_eq(answers[i], round);
	}
	ck_assert_int_eq(items[1].status, -ENOENT);
	ck_assert_uint_eq(ttl_of("key 7") > 0, _i);
	ck_assert_int_eq(kv_mset(kv, NULL, 0, NULL), 0);
	ck_assert_int_eq(kv_mget(kv, NULL, 0, got_item, NULL), 0);
}
END_TEST

/* What is wrong with one item is its own affair. */
START_TEST(test_batch_errors)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};

	items_init();
	items[2].key_len = 5000;
	items[3].key = NULL;
	items[4].value_len = 2 * MIB;
	items[5].value = NULL;
	ck_assert_int_eq(kv_set(kv, keys[6], "there"), 0);
	ck_assert_int_eq(kv_mset(kv, items, 10, &absent), -ENAMETOOLONG);
	ck_assert_int_eq(items[0].status, 0);
	ck_assert_int_eq(items[2].status, -ENAMETOOLONG);
	ck_assert_int_eq(items[3].status, -EINVAL);
	ck_assert_int_eq(items[4].status, -EMSGSIZE);
	ck_assert_int_eq(items[5].status, -EINVAL);
	ck_assert_int_eq(items[6].status, -EEXIST);
	ck_assert_int_eq(items[9].status, 0);
}
END_TEST

static void timed_out(void *arg, size_t i, int status, const void *value, size_t value_len)
{
	ck_assert_int_eq(status, -ETIMEDOUT);
	answers[i]++;
}

/* Without answers a batch ends, with each item told once; late answers harm nobody. */
START_TEST(test_batch_timeout)
{
	struct rdmad_options options = {.timeout_us = 50000};
	void *impatient;
	int rc;

	items_init();
	ck_assert_int_eq(kv_open_options(server.address, &options, NULL, &impatient), 0);
	server_pause();
	ASSERT_ERROR(kv_mget(impatient, items, ITEMS, timed_out, NULL), -ETIMEDOUT, "no answer");
	for (unsigned i = 0; i < ITEMS; i++)
		ck_assert_uint_eq(answers[i], 1);
	server_resume();
	while (kv_outstanding(impatient))
		kv_progress(impatient, 1000);
	do
		rc = kv_mset(impatient, items, 100, NULL);
	while (rc == -ETIMEDOUT); /* on a machine that has little time for the server */
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(kv_close(impatient), 0);
}
END_TEST

static void waits(void *arg, const struct kv_result *result)
{
	uint64_t cursor = 0;

	called++;
	ck_assert_int_eq(kv_mset(kv, items, 1, NULL), -EDEADLK);
	ck_assert_int_eq(kv_incr(kv, "n", 1, 1, NULL, NULL), -EDEADLK);
	ck_assert_int_eq(kv_scan(kv, &cursor, NULL, 0, 0, see, NULL), -EDEADLK);
	ck_assert_int_eq(kv_delete_all(kv, NULL), -EDEADLK);
	ck_assert_int_eq(kv_progress(kv, 1), -EDEADLK);
	ck_assert_int_eq(kv_reopen(kv), -EDEADLK);
	ck_assert_int_eq(kv_close(kv), -EDEADLK);
}

static void waits_for_item(void *arg, size_t index, int status, const void *value, size_t len)
{
	waits(arg, NULL);
}

/* Also in callbacks that no answer called. */
START_TEST(test_no_waiting_in_callbacks)
{
	struct kv_item none = {0};

	items_init();
	called = 0;
	ck_assert_int_eq(kv_submit_incr(kv, "n", 1, 1, waits, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(called, 1);
	ck_assert_int_eq(kv_submit_incr(kv, "n", 1, 1, waits, &none), 0);
	ck_assert_int_eq(kv_cancel(kv, &none), 1);
	ck_assert_uint_eq(called, 2);
	ck_assert_int_eq(kv_mget(kv, &none, 1, waits_for_item, NULL), -EINVAL);
	ck_assert_uint_eq(called, 3);
	ck_assert_int_eq(kv_set(kv, "k", "v"), 0);
}
END_TEST

START_TEST(test_misuse)
{
	struct kv_put_options bad = {.condition = (enum kv_condition)4};
	static char key[4096];
	uint64_t cursor = 0, version;
	struct kv_meta meta;
	size_t len;
	void *value;

	ASSERT_ERROR(kv_put(NULL, "k", 1, "v", 1, NULL, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_put(kv, NULL, 1, "v", 1, NULL, NULL), -EINVAL, "key");
	ASSERT_ERROR(kv_put(kv, "", 0, "v", 1, NULL, NULL), -EINVAL, "key");
	ASSERT_ERROR(kv_put(kv, key, 4096, "v", 1, NULL, NULL), -ENAMETOOLONG, "4096");
	ASSERT_ERROR(kv_put(kv, "k", 1, NULL, 1, NULL, NULL), -EINVAL, "value");
	ASSERT_ERROR(kv_put(kv, "k", 1, "v", 2 * MIB, NULL, NULL), -EMSGSIZE, "at most");
	ASSERT_ERROR(kv_put(kv, "k", 1, "v", 1, &bad, NULL), -EINVAL, "condition");
	ASSERT_ERROR(kv_submit_put(kv, "k", 1, "v", 1, NULL, NULL, NULL), -EINVAL, "callback");
	ASSERT_ERROR(kv_get_version(kv, "k", 1, &value, &len, NULL), -EINVAL, "version");
	ASSERT_ERROR(kv_get_version(kv, "k", 1, NULL, &len, &version), -EINVAL, "version");
	ASSERT_ERROR(kv_stat(kv, "k", 1, NULL), -EINVAL, "place");
	ASSERT_ERROR(kv_stat(kv, NULL, 1, &meta), -EINVAL, "key");
	ASSERT_ERROR(kv_scan(kv, NULL, NULL, 0, 0, see, NULL), -EINVAL, "cursor");
	ASSERT_ERROR(kv_scan(kv, &cursor, NULL, 1, 0, see, NULL), -EINVAL, "prefix");
	ASSERT_ERROR(kv_scan(kv, &cursor, key, 4096, 0, see, NULL), -ENAMETOOLONG, "4096");
	ASSERT_ERROR(kv_each(kv, NULL, 0, NULL, NULL), -EINVAL, "callback");
	ASSERT_ERROR(kv_each(NULL, NULL, 0, see, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_delete_all(NULL, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_info(kv, NULL), -EINVAL, "place");
	ASSERT_ERROR(kv_mset(kv, NULL, 1, NULL), -EINVAL, "items");
	ASSERT_ERROR(kv_mget(kv, items, 1, NULL, NULL), -EINVAL, "callback");
}
END_TEST

START_TEST(test_status_text)
{
	static const int answered[] = {0, -ENOENT, -EMSGSIZE, -ENOSPC, -EEXIST, -ESTALE, -EDOM, -ERANGE, -EIO};
	static const int others[] = {-ETIMEDOUT, -ENOTCONN, -ECONNABORTED, -EPROTO, -EINVAL, -ENOMEM, INT_MIN + 1};

	for (size_t i = 0; i < ARRAY_SIZE(answered); i++) {
		ck_assert_int_eq(kv_status_answered(answered[i]), 1);
		ck_assert_str_ne(kv_status_text(answered[i]), "");
	}
	ck_assert(strstr(kv_status_text(-ESTALE), "the key has another version"));
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		ck_assert_int_eq(kv_status_answered(others[i]), 0);
		ck_assert_str_ne(kv_status_text(others[i]), "");
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv");
	TCase *tc = suite_case(suite, "kv", set_up, tear_down);
	int n = (int)ARRAY_SIZE(lengths);

	tcase_add_loop_test(tc, test_conditions, 0, n);
	tcase_add_test(tc, test_condition_checked_early);
	tcase_add_test(tc, test_condition_decided_at_publish);
	tcase_add_test(tc, test_delete_if);
	tcase_add_loop_test(tc, test_ttl, 0, n);
	tcase_add_loop_test(tc, test_expires, 0, n);
	tcase_add_test(tc, test_incr);
	tcase_add_test(tc, test_incr_not_number);
	tcase_add_test(tc, test_submitted);
	tcase_add_test(tc, test_submit_from_callback);
	tcase_add_test(tc, test_closed_with_outstanding);
	tcase_add_test(tc, test_walk_long_keys);
	tcase_add_test(tc, test_walk_prefix_and_pages);
	tcase_add_test(tc, test_walk_and_delete);
	tcase_add_test(tc, test_delete_all_and_info);
	tcase_add_test(tc, test_delete_all_in_order);
	tcase_add_loop_test(tc, test_batch, 0, 2);
	tcase_add_test(tc, test_batch_errors);
	tcase_add_test(tc, test_batch_timeout);
	tcase_add_test(tc, test_no_waiting_in_callbacks);
	tcase_add_test(tc, test_misuse);
	tcase_add_test(tc, test_status_text);
	return suite_run(suite);
}
