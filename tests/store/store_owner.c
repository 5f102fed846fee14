/* store_owner: bytes count for the owner that wrote them last, and not beyond a limit. */
#include <pthread.h>

#include "store/internal.h"
#include "tests/store/store_common.h"

#define ONE 7
#define OTHER 1023
#define VALUE 1000
#define ITEM (48 + 4 + VALUE + 8) /* what such a value counts for */

static int put_for(struct fixture *f, uint16_t owner, uint32_t key, uint64_t len)
{
	static const char value[64 * KIB];
	struct store_put put = {.expires = TIME_NEVER, .owner = owner};

	return set_all(f->store, &key, 4, value, len, &put, NOW, NULL);
}

static uint64_t bytes_of(struct fixture *f, uint16_t owner)
{
	return store_owner_bytes(f->store, owner);
}

static bool has(struct fixture *f, uint32_t key)
{
	struct store_meta meta;

	return store_stat(f->store, &key, 4, NOW, &meta) == 1;
}

static void close_empty(struct fixture *f)
{
	fixture_flush(f);
	for (uint16_t owner = 1; owner < STORE_OWNERS; owner++)
		ck_assert_uint_eq(bytes_of(f, owner), 0);
	fixture_close(f);
}

/* Each way by which an item comes and goes. */
START_TEST(test_counted)
{
	struct fixture f = fixture_open(8 * MIB, MIB, STORE_EVICT_NONE);
	struct store_put put = {.expires = NOW + TIME_S, .owner = ONE};
	struct store_put never = {.condition = STORE_IF_VERSION, .version = 12345, .owner = ONE};
	struct store_put keeps = {.expires = TIME_NEVER, .owner = OTHER, .keep_attributes = true};
	struct store_put flags = {.expires = TIME_NEVER, .owner = ONE, .flags = 5};
	struct store_meta meta;
	struct store_ref ref;
	uint64_t ready, version;

	ck_assert_int_eq(put_for(&f, ONE, 1, VALUE), 0);
	ck_assert_uint_eq(bytes_of(&f, ONE), ITEM);
	ck_assert_int_eq(put_for(&f, ONE, 1, VALUE - 1), 0);
	ck_assert_uint_eq(bytes_of(&f, ONE), ITEM - 1);
	ck_assert_int_eq(put_for(&f, OTHER, 1, VALUE), 0);
	ck_assert(bytes_of(&f, ONE) == 0 && bytes_of(&f, OTHER) == ITEM);
	ck_assert_int_eq(put_for(&f, 0, 1, VALUE), 0);
	ck_assert_uint_eq(bytes_of(&f, OTHER), 0);
	ck_assert_int_eq(put_for(&f, ONE, 1, VALUE), 0);
	ck_assert_int_eq(set_all(f.store, "\1\0\0\0", 4, "x", 1, &never, NOW, NULL), -ESTALE);
	ck_assert_uint_eq(bytes_of(&f, ONE), ITEM);
	ck_assert_int_eq(store_delete(f.store, "\1\0\0\0", 4, 0, NOW), 1);
	ck_assert_uint_eq(bytes_of(&f, ONE), 0);

	ck_assert_int_eq(set_all(f.store, "e", 1, "x", 1, &put, NOW, NULL), 0);
	ck_assert_uint_eq(bytes_of(&f, ONE), 48 + 1 + 1 + 8);
	ck_assert_int_eq(store_stat(f.store, "e", 1, NOW + 2 * TIME_S, &meta), 0);
	ck_assert_uint_eq(bytes_of(&f, ONE), 0);

	ck_assert_int_eq(store_reserve_for(f.store, "r", 1, VALUE, &put, NOW, &ref), 0);
	ck_assert_uint_eq(bytes_of(&f, ONE), ITEM - 3);
	store_abandon(f.store, &ref);
	ck_assert_uint_eq(bytes_of(&f, ONE), 0);
	ck_assert_int_eq(store_reserve_part(f.store, "r", 1, 200000, &put, 1, NOW, &ref, &ready), 0);
	ck_assert_int_eq(store_publish(f.store, &ref, &put, NOW, NULL), 0);
	ck_assert_uint_gt(bytes_of(&f, ONE), 200000);
	ck_assert_int_eq(store_get(f.store, "r", 1, NOW, &ref), 1);
	ck_assert_int_eq(store_delete(f.store, "r", 1, 0, NOW), 1);
	ck_assert_uint_eq(bytes_of(&f, ONE), 0); /* though it is pinned */
	store_unpin(f.store, &ref);

	/* An edit keeps what the item is, and takes it over. */
	ck_assert_int_eq(set_all(f.store, "n", 1, "1", 1, &flags, NOW, NULL), 0);
	ck_assert_int_eq(store_count_for(f.store, "n", 1, 1, &keeps, NOW, NULL, &version), 0);
	ck_assert(bytes_of(&f, ONE) == 0 && bytes_of(&f, OTHER) == 48 + 1 + 1 + 8);
	ck_assert_int_eq(store_stat(f.store, "n", 1, NOW, &meta), 1);
	ck_assert_uint_eq(meta.flags, 5);
	close_empty(&f);
}
END_TEST

START_TEST(test_refused)
{
	struct fixture f = fixture_open(8 * MIB, MIB, STORE_EVICT_NONE);
	struct store_put put = {.expires = TIME_NEVER, .owner = ONE};
	uint32_t n = 0;

	store_set_limit(f.store, ONE, 10 * ITEM + 10);
	while (put_for(&f, ONE, n, VALUE) == 0)
		n++;
	ck_assert_uint_eq(n, 10);
	ck_assert_int_eq(put_for(&f, ONE, n, VALUE), -EDQUOT);
	ck_assert_int_eq(store_count_for(f.store, "n", 1, 1, &put, NOW, NULL, NULL), -EDQUOT);
	ck_assert_uint_eq(bytes_of(&f, ONE), 10 * ITEM);
	/* What goes makes room. */
	ck_assert_int_eq(put_for(&f, ONE, 3, VALUE + 10), 0);
	ck_assert_int_eq(put_for(&f, ONE, 3, VALUE + 11), -EDQUOT);
	ck_assert_int_eq(put_for(&f, ONE, 3, 10), 0);
	ck_assert_int_eq(store_delete(f.store, "\4\0\0\0", 4, 0, NOW), 1);
	ck_assert_int_eq(put_for(&f, ONE, 4, VALUE), 0);
	/* Others have all that there is. */
	ck_assert_int_eq(put_for(&f, OTHER, 100, 64 * KIB), 0);
	ck_assert_int_eq(put_for(&f, 0, 101, 64 * KIB), 0);
	ck_assert_int_eq(put_for(&f, ONE, 100, 64 * KIB), -EDQUOT); /* that is another's */
	store_set_limit(f.store, ONE, ITEM);
	ck_assert_int_eq(put_for(&f, ONE, 4, VALUE), -EDQUOT);
	store_set_limit(f.store, ONE, UINT64_MAX);
	ck_assert_int_eq(put_for(&f, ONE, 100, 64 * KIB), 0);
	ck_assert_uint_eq(fixture_stats(&f).evictions, 0);
	close_empty(&f);
}
END_TEST

/* Among many of others' it finds its own, and evicts no more than that; what is read stays longest. */
START_TEST(test_evicts_its_own)
{
	struct fixture f = fixture_open(64 * MIB, MIB, STORE_EVICT_S3_FIFO);
	char value[VALUE];
	uint64_t len;
	uint32_t hot = 0;

	for (uint32_t key = 0; key < 20000; key++)
		expect(put_for(&f, key % 2 ? OTHER : 0, 1000000 + key, VALUE) == 0);
	store_set_limit(f.store, ONE, 100 * ITEM);
	for (uint32_t key = 0; key < 1000; key++) {
		expect(put_for(&f, ONE, key, VALUE) == 0);
		expect(bytes_of(&f, ONE) <= 100 * ITEM);
		expect(has(&f, key));
		for (uint32_t k = 0; k < 5; k++)
			store_copy(f.store, &k, 4, NOW, value, sizeof(value), &len, NULL);
	}
	ck_assert_uint_eq(bytes_of(&f, ONE), 100 * ITEM);
	ck_assert_uint_eq(fixture_stats(&f).evictions, 900);
	ck_assert_uint_eq(fixture_stats(&f).items, 20100);
	for (uint32_t key = 0; key < 5; key++)
		hot += has(&f, key);
	ck_assert_uint_ge(hot, 4);
	/* Too long for it, and nothing goes for that. */
	ck_assert_int_eq(put_for(&f, ONE, 1, 1), 0);
	store_set_limit(f.store, ONE, 10 * ITEM);
	ck_assert_int_eq(put_for(&f, ONE, 1, 60 * KIB), -EDQUOT);
	ck_assert_uint_gt(bytes_of(&f, ONE), 98 * ITEM);
	/* A lower limit is come down to by the next write. */
	ck_assert_int_eq(put_for(&f, ONE, 5000, VALUE), 0);
	ck_assert_uint_le(bytes_of(&f, ONE), 10 * ITEM);
	close_empty(&f);
}
END_TEST

/* Work of one call is bounded, and where nothing may go there is an end to it. */
START_TEST(test_steps)
{
	struct fixture f = fixture_open(64 * MIB, MIB, STORE_EVICT_S3_FIFO);
	struct store_put put = {.expires = TIME_NEVER, .owner = ONE};
	struct store_ref ref[10];
	unsigned calls = 0;
	int rc;

	for (uint32_t key = 0; key < 30000; key++)
		expect(put_for(&f, OTHER, 1000000 + key, 100) == 0);
	store_set_limit(f.store, ONE, 10 * ITEM);
	for (uint32_t key = 0; key < 10; key++) {
		expect(put_for(&f, ONE, key, VALUE) == 0);
		expect(store_get(f.store, &key, 4, NOW, &ref[key]) == 1);
	}
	do {
		rc = store_set(f.store, "more", 4, "x", 1, &put, NOW, NULL);
		calls++;
	} while (rc == -EAGAIN);
	ck_assert_int_eq(rc, -EDQUOT);
	ck_assert_uint_gt(calls, 10);
	ck_assert_uint_eq(fixture_stats(&f).evictions, 0);
	store_unpin(f.store, &ref[3]);
	ck_assert_int_eq(set_all(f.store, "more", 4, "x", 1, &put, NOW, NULL), 0);
	ck_assert(!has(&f, 3));
	for (uint32_t key = 0; key < 10; key++)
		store_unpin(f.store, &ref[key]);
	close_empty(&f);
}
END_TEST

#define THREADS 3

static void *racer(void *arg)
{
	struct fixture *f = arg;
	uint64_t state = (uintptr_t)&state | 1;

	for (unsigned i = 0; i < 20000; i++) {
		uint32_t key = (uint32_t)(random_next(&state) % 400);
		uint16_t owner = (uint16_t)(random_next(&state) % 3);
		int rc = put_for(f, owner, key, random_size(&state, 12));

		expect(rc == 0 || rc == -EDQUOT || rc == -ENOMEM);
		if (i % 7 == 0)
			store_delete(f->store, &key, 4, 0, NOW);
	}
	return NULL;
}

/* In an arena that is short, too: items move and are evicted for others meanwhile. Nothing is lost count of. */
START_TEST(test_race)
{
	struct fixture f = fixture_open(_i ? MIB : 8 * MIB, MIB, STORE_EVICT_S3_FIFO);
	pthread_t thread[THREADS];

	for (uint16_t owner = 1; owner < 3; owner++)
		store_set_limit(f.store, owner, 50000u * owner);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, racer, &f), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (uint16_t owner = 1; owner < 3; owner++)
		ck_assert_uint_le(bytes_of(&f, owner), 50000u * owner + THREADS * 5000);
	close_empty(&f);
}
END_TEST

TCase *store_owner_case(void)
{
	TCase *tc = tcase_create("owner");

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, test_counted);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_evicts_its_own);
	tcase_add_test(tc, test_steps);
	tcase_add_loop_test(tc, test_race, 0, 2);
	return tc;
}
