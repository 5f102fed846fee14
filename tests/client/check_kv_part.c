/*
 * check_kv_part.c: parts of values, keys that are read and changed in one step, and many keys with one answer, for values that
 * travel in a message, behind one, and by rendezvous.
 */
#include <check.h>
#include <pthread.h>

#include "base/base.h"
#include "client/kv/kv.h"

#include "tests/client/caller.h"
#include "tests/suite.h"
#include "tests/service/value.h"

#define LONGEST (2 * MIB)
#define PUSH_MAX 65536

static void *kv;
static uint8_t value[LONGEST + 1], space[LONGEST + 1];

static void start(const char *transport, uint64_t push_max)
{
	server_start(&(struct server_options){
		.transport = transport, .services.value_max = LONGEST, .services.push_max = push_max});
	ck_assert_int_eq(kv_open(server.address, &kv), 0);
}

static void set_up(void)
{
	start("tcp", 0);
}

static void set_up_pushed(void)
{
	start("unix", PUSH_MAX);
}

static void set_up_rdma(void)
{
	start("rdma", 0);
}

static void tear_down(void)
{
	ck_assert_int_eq(kv_close(kv), 0);
	server_stop();
}

static void set(size_t len, uint64_t seed)
{
	value_fill(value, len, seed);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, value, len), 0);
}

/* The key's value is the first `len` bytes of `value`. */
static void assert_value(size_t len)
{
	void *got;
	size_t got_len;

	ck_assert_int_eq(kv_get_bytes(kv, "k", 1, &got, &got_len), 0);
	ck_assert_uint_eq(got_len, len);
	ck_assert(memcmp(got, value, len) == 0);
	kv_release(got);
}

static const size_t lengths[] = {0, 1, 100, 4000, 4096, 4097, 60000, PUSH_MAX, PUSH_MAX + 1, MIB, LONGEST};

/*
 * Reading
 */
START_TEST(test_range)
{
	static const uint64_t offsets[] = {0, 1, 99, 4095, 5000, MIB, LONGEST, UINT64_MAX};
	static const size_t sizes[] = {1, 10, 4096, 4097, 70000, LONGEST};

	for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
		set(lengths[l], l);
		for (size_t o = 0; o < ARRAY_SIZE(offsets); o++) {
			for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
				size_t at = MIN(offsets[o], lengths[l]), len = 77,
				       want = MIN(sizes[s], lengths[l] - at);

				memset(space, 0xee, want + 1);
				ck_assert_int_eq(kv_get_range(kv, "k", 1, offsets[o], space, sizes[s], &len), 0);
				ck_assert_uint_eq(len, want);
				ck_assert(memcmp(space, value + at, want) == 0);
				ck_assert(want == sizes[s] || space[want] == 0xee);
			}
		}
	}
	ASSERT_ERROR(kv_get_range(kv, "none", 4, 0, space, 10, NULL), -ENOENT, "no such key");
	ASSERT_ERROR(kv_get_range(kv, "k", 1, 0, NULL, 10, NULL), -EINVAL, "buffer");
	ASSERT_ERROR(kv_get_range(NULL, "k", 1, 0, space, 10, NULL), -EINVAL, "handle");
}
END_TEST

START_TEST(test_get_into)
{
	struct kv_meta meta;
	size_t len;

	for (size_t l = 1; l < ARRAY_SIZE(lengths); l++) {
		set(lengths[l], l);
		ck_assert_int_eq(kv_get_into(kv, "k", 1, space, lengths[l], &len), 0);
		ck_assert_uint_eq(len, lengths[l]);
		ck_assert(memcmp(space, value, len) == 0);
		if (lengths[l] > 1)
			ck_assert_int_eq(kv_get_into(kv, "k", 1, space, lengths[l] - 1, &len), -EMSGSIZE);
		ck_assert_uint_eq(len, lengths[l]);
		ck_assert_int_eq(kv_fetch(kv, "k", 1, &(struct kv_fetch){.length = 1}, space, 1, &len, &meta), 0);
		ck_assert_uint_eq(meta.length, lengths[l]);
		ck_assert_uint_ne(meta.version, 0);
	}
}
END_TEST

static const struct kv_fetch all = {.length = UINT64_MAX, .then = KV_THEN_DELETE};

START_TEST(test_get_delete_and_touch)
{
	struct kv_meta meta;
	size_t len;
	void *got;

	for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
		set(lengths[l], l);
		ck_assert_int_eq(kv_get_touch(kv, "k", 1, 1000000000, &got, &len), 0);
		ck_assert_uint_eq(len, lengths[l]);
		ck_assert(memcmp(got, value, len) == 0 && ((char *)got)[len] == 0);
		kv_release(got);
		ck_assert_int_eq(kv_stat(kv, "k", 1, &meta), 0);
		ck_assert(meta.ttl_us > 900000000 && meta.ttl_us <= 1000000000);
		ck_assert_int_eq(kv_get_delete(kv, "k", 1, &got, &len), 0);
		ck_assert_uint_eq(len, lengths[l]);
		ck_assert(memcmp(got, value, len) == 0);
		kv_release(got);
		ck_assert_int_eq(kv_exists(kv, "k", 1), 0);
		got = space;
		ASSERT_ERROR(kv_get_delete(kv, "k", 1, &got, &len), -ENOENT, "no such key");
		ck_assert_ptr_null(got);
		got = space;
		ASSERT_ERROR(kv_get_touch(kv, "k", 1, 1, &got, &len), -ENOENT, "no such key");
		ck_assert_ptr_null(got);
	}
	/* A server that takes shorter values by this transport may have it from elsewhere. */
	set(MIB, 1);
	((struct kv *)kv)->value_max = 8192;
	ASSERT_ERROR(kv_get_delete(kv, "k", 1, &got, &len), -EMSGSIZE, "longer than");
	ASSERT_ERROR(kv_get_touch(kv, "k", 1, 1, &got, &len), -EMSGSIZE, "longer than");
	((struct kv *)kv)->value_max = LONGEST;
	/* What does not fit is not deleted. */
	for (size_t size = 100; size <= 5000; size += 4900) {
		set(size, 1);
		ck_assert_int_eq(kv_fetch(kv, "k", 1, &all, space, size - 1, &len, NULL), -EMSGSIZE);
		ck_assert_uint_eq(len, size);
		assert_value(size);
	}
	ASSERT_ERROR(kv_fetch(kv, "k", 1, &(struct kv_fetch){.then = (enum kv_then)3}, NULL, 0, NULL, NULL), -EINVAL,
		     "followed");
}
END_TEST

/* No room is too little for all but nothing, in a buffer and in pieces. */
START_TEST(test_fetch_to_nowhere)
{
	const struct iovec empty[] = {{space, 0}, {NULL, 0}};
	struct kv_meta meta;
	size_t len;

	for (size_t size = 1; size <= 5000; size = size * 4 + 1) {
		set(size, 1);
		for (unsigned i = 0; i < 3; i++) {
			len = 0;
			ASSERT_ERROR(i == 2 ? kv_fetchv(kv, "k", 1, &all, empty, 2, &len, NULL)
					    : kv_fetch(kv, "k", 1, &all, i ? space : NULL, 0, &len, NULL),
				     -EMSGSIZE, "buffer");
			ck_assert_uint_eq(len, size);
			assert_value(size);
		}
		len = 1;
		ck_assert_int_eq(kv_get_range(kv, "k", 1, size, space, 0, &len), 0);
		ck_assert_uint_eq(len, 0);
		ck_assert_int_eq(kv_fetch(kv, "k", 1, &(struct kv_fetch){.then = KV_THEN_DELETE}, NULL, 0, &len, &meta),
				 0);
		ck_assert_uint_eq(meta.length, size);
		ck_assert_int_eq(kv_exists(kv, "k", 1), 0);
	}
}
END_TEST

START_TEST(test_get_set)
{
	size_t len;
	void *old;

	ck_assert_int_eq(kv_get_set(kv, "k", 1, "a", 1, &old, &len), 0);
	ck_assert_ptr_null(old);
	for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
		set(lengths[l], l);
		ck_assert_int_eq(kv_get_set(kv, "k", 1, value, l, &old, &len), 0);
		ck_assert_uint_eq(len, lengths[l]);
		ck_assert(memcmp(old, value, len) == 0);
		kv_release(old);
		assert_value(l);
	}
	old = space;
	ASSERT_ERROR(kv_get_set(kv, "", 0, value, 1, &old, &len), -EINVAL, "key");
	ck_assert_ptr_null(old);
}
END_TEST

/*
 * Writing
 */
START_TEST(test_append)
{
	static const size_t pieces[] = {0, 1, 100, 4094, 4095, 5000, 70000, MIB - 200};
	size_t sum = 0;
	uint64_t length;

	value_fill(value, LONGEST, 3);
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		ck_assert_int_eq(kv_append(kv, "k", 1, value + sum, pieces[i], &length), 0);
		sum += pieces[i];
		ck_assert_uint_eq(length, sum);
		assert_value(sum);
	}
	ck_assert_int_eq(kv_append(kv, "k", 1, value + sum, 10, NULL), 0); /* to a value of more than 1 MiB */
	assert_value(sum + 10);
	ASSERT_ERROR(kv_append(kv, "k", 1, value, LONGEST, NULL), -EMSGSIZE, "longest");
	ASSERT_ERROR(kv_append(kv, "k", 1, NULL, 1, NULL), -EINVAL, "bytes");
	assert_value(sum + 10);
}
END_TEST

START_TEST(test_set_range)
{
	static const struct {
		uint64_t offset;
		size_t len;
	} writes[] = {{0, 1},       {100, 50},    {0, 10},  {4000, 200}, {60000, 1},
		      {1000, 5000}, {MIB - 1, 1}, {MIB, 1}, {5, 70000}};
	size_t length = 0;
	uint64_t told;

	memset(value, 0, sizeof(value));
	for (size_t i = 0; i < ARRAY_SIZE(writes); i++) {
		value_fill(value + writes[i].offset, writes[i].len, i);
		length = MAX(length, writes[i].offset + writes[i].len);
		ck_assert_int_eq(
			kv_set_range(kv, "k", 1, writes[i].offset, value + writes[i].offset, writes[i].len, &told), 0);
		ck_assert_uint_eq(told, length);
		assert_value(length);
	}
	ASSERT_ERROR(kv_set_range(kv, "k", 1, LONGEST, "a", 1, NULL), -EMSGSIZE, "longest");
	ASSERT_ERROR(kv_set_range(kv, "k", 1, UINT64_MAX, "a", 1, NULL), -EMSGSIZE, "longest");
	ASSERT_ERROR(kv_set_range(kv, "k", 1, UINT64_MAX - 1, "ab", 2, NULL), -EMSGSIZE, "longest");
	assert_value(length);
}
END_TEST

/* Many at once write behind the end of one value: nothing is lost, and nothing torn. */
#define WRITERS 3
#define PIECES 200

static void *append_some(void *arg)
{
	void *handle = open_kv(NULL, NULL);

	for (int i = 0; i < PIECES; i++)
		ck_assert_int_eq(kv_append(handle, "k", 1, arg, 50, NULL), 0);
	kv_close(handle);
	return NULL;
}

START_TEST(test_append_beside_others)
{
	static char text[WRITERS][50];
	pthread_t thread[WRITERS];
	unsigned count[WRITERS] = {0};
	size_t len;
	char *got;

	for (int i = 0; i < WRITERS; i++) {
		memset(text[i], 'a' + i, sizeof(text[i]));
		ck_assert_int_eq(pthread_create(&thread[i], NULL, append_some, text[i]), 0);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(thread[i], NULL);
	ck_assert_int_eq(kv_get_bytes(kv, "k", 1, (void **)&got, &len), 0);
	ck_assert_uint_eq(len, WRITERS * PIECES * sizeof(text[0]));
	for (size_t at = 0; at < len; at += sizeof(text[0])) {
		int who = got[at] - 'a';

		ck_assert(who >= 0 && who < WRITERS && memcmp(got + at, text[who], sizeof(text[0])) == 0);
		count[who]++;
	}
	for (int i = 0; i < WRITERS; i++)
		ck_assert_uint_eq(count[i], PIECES);
	kv_release(got);
}
END_TEST

/*
 * Times to live
 */
static uint64_t ttl_of(const char *key)
{
	struct kv_meta meta;

	ck_assert_int_eq(kv_stat(kv, key, strlen(key), &meta), 0);
	return meta.ttl_us;
}

START_TEST(test_keep_ttl)
{
	struct kv_put_options put = {.ttl_us = 1000000000}, keep = {.ttl_us = KV_TTL_KEEP};

	for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
		ck_assert_int_eq(kv_put(kv, "k", 1, "a", 1, &put, NULL), 0);
		ck_assert_int_eq(kv_put(kv, "k", 1, value, lengths[l], &keep, NULL), 0);
		ck_assert_uint_gt(ttl_of("k"), 900000000);
		ck_assert_int_eq(kv_append(kv, "k", 1, "a", lengths[l] < LONGEST, NULL), 0);
		ck_assert_uint_gt(ttl_of("k"), 900000000);
		set(lengths[l], l);
		ck_assert_int_eq(kv_put(kv, "k", 1, "a", 1, &keep, NULL), 0);
		ck_assert_uint_eq(ttl_of("k"), 0);
	}
	ck_assert_int_eq(kv_put(kv, "new", 3, "a", 1, &keep, NULL), 0);
	ck_assert_uint_eq(ttl_of("new"), 0);
}
END_TEST

START_TEST(test_count)
{
	uint64_t version;
	int64_t number;

	ck_assert_int_eq(kv_count(kv, "n", 1, 5, 1000000000, &number, &version), 0);
	ck_assert_int_eq(number, 5);
	ck_assert_uint_gt(ttl_of("n"), 900000000);
	ck_assert_int_eq(kv_count(kv, "n", 1, -7, 5, &number, &version), 0);
	ck_assert_int_eq(number, -2);
	ck_assert_uint_gt(ttl_of("n"), 900000000);
	ck_assert_int_eq(kv_count(kv, "m", 1, 1, 0, NULL, NULL), 0);
	ck_assert_uint_eq(ttl_of("m"), 0);
	set(3, 1);
	ck_assert_int_eq(kv_count(kv, "k", 1, 1, 5, &number, NULL), -EDOM);
}
END_TEST

/*
 * Submitted
 */
static struct kv_result last;
static unsigned results;

static void result_done(void *arg, const struct kv_result *result)
{
	(void)arg;
	last = *result;
	results++;
}

static void await(int submitted)
{
	unsigned before = results;

	ck_assert_int_eq(submitted, 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(results, before + 1);
}

START_TEST(test_submitted)
{
	struct kv_fetch end = {.offset = 2, .length = 100};

	await(kv_submit_append(kv, "k", 1, "abc", 3, result_done, NULL));
	ck_assert_int_eq(last.status, 0);
	ck_assert_uint_eq(last.meta.length, 3);
	await(kv_submit_set_range(kv, "k", 1, 5, "f", 1, result_done, NULL));
	ck_assert_uint_eq(last.meta.length, 6);
	await(kv_submit_fetch(kv, "k", 1, &end, space, sizeof(space), result_done, NULL));
	ck_assert_ptr_eq(last.value, space);
	ck_assert_uint_eq(last.value_len, 4);
	ck_assert_uint_eq(last.meta.length, 6);
	ck_assert(memcmp(space, "c\0\0f", 4) == 0);
	await(kv_submit_count(kv, "n", 1, 3, 0, result_done, NULL));
	ck_assert_int_eq(last.number, 3);
	set(5000, 1);
	await(kv_submit_fetch(kv, "k", 1, NULL, space, 100, result_done, NULL));
	ck_assert_int_eq(last.status, -EMSGSIZE);
	ck_assert_uint_eq(last.value_len, 5000);
	ASSERT_ERROR(kv_submit_append(kv, "k", 1, value, 4095, result_done, NULL), -EMSGSIZE, "message");
	ck_assert_int_eq(kv_submit_append(kv, "k", 1, "a", 1, NULL, NULL), -EINVAL);
}
END_TEST

/*
 * Many keys
 */
#define MANY 700

static void many_keys(struct kv_item *items, char (*keys)[8])
{
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%03u", i);
		items[i] = (struct kv_item){.key = keys[i], .key_len = 4, .value = value + i, .value_len = i * 10};
	}
}

START_TEST(test_many)
{
	static struct kv_item items[MANY];
	static struct kv_place places[MANY];
	static char keys[MANY][8];
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};
	size_t at = 0;
	int64_t n;

	many_keys(items, keys);
	value_fill(value, sizeof(value), 1);
	for (unsigned round = 0; at < MANY; round++) {
		unsigned before = results;

		n = kv_submit_mset(kv, items + at, MANY - at, NULL, result_done, NULL);
		ck_assert_int_gt(n, 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		ck_assert_uint_eq(results, before + 1);
		ck_assert_int_eq(last.status, 0);
		ck_assert_int_eq(last.number, 0);
		at += (size_t)n;
	}
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_int_eq(items[i].status, 0);
		places[i] = (struct kv_place){items[i].key, 4, space + (size_t)i * 1000, MIN(i * 10 + 1, 1000u), 0, 1};
	}
	ck_assert_int_eq(kv_mget_into(kv, places, MANY), -EMSGSIZE);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_uint_eq(places[i].value_len, i * 10);
		ck_assert_int_eq(places[i].status, i > 100 ? -EMSGSIZE : 0);
		ck_assert(i > 100 || memcmp(places[i].buffer, value + i, i * 10) == 0);
	}
	ck_assert_int_eq(kv_mexists(kv, items, MANY, false), MANY);
	ck_assert_int_eq(kv_delete(kv, "k300", 4), 1);
	ck_assert_int_eq(kv_delete(kv, "k400", 4), 1);
	ck_assert_int_eq(kv_mexists(kv, items, MANY, false), 300);
	ck_assert_int_eq(items[400].status, -ENOENT);
	ck_assert_int_eq(items[699].status, 0);
	ck_assert_int_eq(kv_mexists(kv, items, MANY, true), 300);
	ck_assert_int_eq(items[300].status, -ENOENT);
	ck_assert_int_eq(items[699].status, -ECANCELED);
	ck_assert_int_gt(kv_submit_mset(kv, items + 299, 3, &absent, result_done, NULL), 2);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(last.status, -EEXIST);
	ck_assert_int_eq(last.number, 2);
	ck_assert_int_eq(items[300].status, 0);
	ck_assert_int_eq(kv_submit_mset(kv, items, 0, NULL, result_done, NULL), -EINVAL);
}
END_TEST

static void delete_from_callback(void *arg, int status, const void *got, size_t len)
{
	(void)got;
	(void)len;
	ck_assert_int_eq(status, -ENOENT);
	ASSERT_ERROR(kv_delete_prefix(arg, "user:", 5, NULL), -EDEADLK, "callback");
}

START_TEST(test_delete_prefix)
{
	uint64_t deleted = 0;
	char key[16];

	for (unsigned i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "%s%u", i % 3 ? "user:" : "other:", i);
		ck_assert_int_eq(kv_set_bytes(kv, key, strlen(key), "v", 1), 0);
	}
	ck_assert_int_eq(kv_delete_prefix(kv, "user:", 5, &deleted), 0);
	ck_assert_uint_eq(deleted, 2000);
	ck_assert_int_eq(kv_delete_prefix(kv, "user:", 5, &deleted), 0);
	ck_assert_uint_eq(deleted, 0);
	ck_assert_int_eq(kv_exists(kv, "other:0", 7), 1);
	ck_assert_int_eq(kv_delete_prefix(kv, "", 0, &deleted), -EINVAL);
	ck_assert_int_eq(kv_submit_get(kv, "none", 4, delete_from_callback, kv), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	server_die(); /* the sanitizer says whether its memory is given back then, too */
	ck_assert_int_lt(kv_exists(kv, "k", 1), 0);
	ck_assert_int_eq(kv_delete_prefix(kv, "user:", 5, &deleted), -ENOTCONN);
}
END_TEST

/* The value's memory is the caller's again, so the rest of it cannot follow. */
START_TEST(test_cancel_pushed)
{
	ck_assert_int_eq(kv_submit_put(kv, "k", 1, value, 60000, NULL, result_done, kv), 0);
	ck_assert_int_eq(kv_cancel(kv, kv), 1);
	ASSERT_ERROR(kv_set(kv, "k", "v"), -ENOTCONN, "given up while");
	ck_assert_int_eq(kv_reopen(kv), 0);
	ck_assert_int_eq(kv_set(kv, "k", "v"), 0);
}
END_TEST

START_TEST(test_handle_of_its_type)
{
	struct rdmad_kv *typed = NULL;

	ck_assert_int_eq(rdmad_kv_open(server.address, NULL, kv, &typed), 0);
	ck_assert_int_eq(kv_set(typed, "a", "b"), 0);
	ck_assert_int_eq(kv_expect_length(typed, "a", 1, 100000), 0);
	ck_assert_int_eq(kv_exists(kv, "a", 1), 1);
	ck_assert_int_eq(kv_close(typed), 0);
}
END_TEST

START_TEST(test_checksum)
{
	struct iovec whole = {(void *)(uintptr_t) "the bytes of a value", 20}, parts[3];
	uint64_t sum = kv_checksum(&whole, 1);

	for (size_t at = 0; at <= whole.iov_len; at++) {
		parts[0] = (struct iovec){whole.iov_base, at};
		parts[1] = (struct iovec){NULL, 0};
		parts[2] = (struct iovec){(char *)whole.iov_base + at, whole.iov_len - at};
		ck_assert_uint_eq(kv_checksum(parts, 3), sum);
	}
	whole.iov_len--;
	ck_assert_uint_ne(kv_checksum(&whole, 1), sum);
	ck_assert_uint_eq(kv_checksum(NULL, 0), 0x2d06800538d394c2); /* of nothing, as XXH3's authors tell */
}
END_TEST

static TCase *add(Suite *suite, const char *name, void (*up)(void))
{
	TCase *tc = suite_case(suite, name, up, tear_down);

	tcase_add_test(tc, test_range);
	tcase_add_test(tc, test_get_into);
	tcase_add_test(tc, test_get_delete_and_touch);
	tcase_add_test(tc, test_fetch_to_nowhere);
	tcase_add_test(tc, test_get_set);
	tcase_add_test(tc, test_append);
	tcase_add_test(tc, test_set_range);
	tcase_add_test(tc, test_append_beside_others);
	tcase_add_test(tc, test_keep_ttl);
	tcase_add_test(tc, test_count);
	tcase_add_test(tc, test_submitted);
	tcase_add_test(tc, test_many);
	tcase_add_test(tc, test_delete_prefix);
	tcase_add_test(tc, test_handle_of_its_type);
	tcase_add_test(tc, test_checksum);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("kv_part");

	add(suite, "tcp", set_up);
	tcase_add_test(add(suite, "unix, pushed", set_up_pushed), test_cancel_pushed);
	if (getenv("RDMAD_GUEST_ADDR"))
		add(suite, "rdma", set_up_rdma);
	return suite_run(suite);
}
