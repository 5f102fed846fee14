/* store_memory: the arena seen through the store: no overlap, little waste, nothing lost. */
#include "tests/store/store_common.h"

#include <sched.h>
#include <sys/mman.h>

struct extent {
	uint64_t len, seed;
};

/* Mixed sizes come and go; each value is filled whole, and checked when it goes. */
START_TEST(test_mix_keeps_values)
{
	static struct extent extent[4000];
	struct fixture f = fixture_open(32 * MIB, 8 * MIB, STORE_EVICT_NONE);
	uint64_t state = 42 + (uint64_t)_i, buf_max = 1 * MIB;
	struct store_ref ref;
	unsigned refused = 0;

	memset(extent, 0, sizeof(extent));
	for (uint64_t n = 0; n < 30000; n++) {
		uint32_t key = (uint32_t)(random_next(&state) % ARRAY_SIZE(extent));
		struct extent *e = &extent[key];

		if (e->len) {
			expect(store_get(f.store, &key, sizeof(key), NOW, &ref) == 1);
			expect(ref.len == e->len);
			expect(pattern_holds(ref.addr, ref.len));
			expect(e->len < 8 || !memcmp(ref.addr, &e->seed, 8));
			store_unpin(f.store, &ref);
			store_delete(f.store, &key, sizeof(key), 0, NOW);
			e->len = 0;
			continue;
		}
		e->len = MIN(random_size(&state, 14 + n / 5000 % 2 * 4), buf_max);
		e->seed = random_next(&state);
		if (reserve_all(f.store, &key, sizeof(key), e->len, NOW, &ref)) {
			e->len = 0;
			refused++;
			continue;
		}
		pattern_fill(ref.addr, ref.len, e->seed);
		expect(store_publish(f.store, &ref, NULL, NOW, NULL) == 0);
	}
	expect(refused < 15000);
	fixture_close(&f);
}
END_TEST

#define HEADER 48 /* of an item; counted as asked for, since the allocator has no part in it */

static double waste_of(const struct store_stats *stats, uint64_t of)
{
	return 1 - (double)(stats->bytes_asked + stats->items * HEADER) / (double)of;
}

/* Keys drawn from so few that half of the writes replace. Values are not touched: 1 B to 1 GiB in
 * 32 GiB. */
START_TEST(test_waste_wide)
{
	struct fixture f = fixture_open(32 * GIB, GIB, STORE_EVICT_NONE);
	uint64_t state = 7, refused = 0, peak = 0;
	struct store_stats stats;
	struct store_ref ref;
	double waste;

	for (int n = 0; n < 20000; n++) {
		uint32_t key = (uint32_t)(random_next(&state) % 600);
		uint64_t len = random_size(&state, 30);

		if (reserve_all(f.store, &key, sizeof(key), len, NOW, &ref)) {
			refused++;
			continue;
		}
		expect(store_publish(f.store, &ref, NULL, NOW, NULL) == 0);
		if (n % 16 == 0)
			peak = MAX(peak, fixture_stats(&f).bytes_asked);
	}
	stats = fixture_stats(&f);
	waste = waste_of(&stats, stats.bytes_held);
	printf("store: 1 B to 1 GiB: waste %.2f %%, %lu refused, at most %.0f %% of the arena "
	       "asked\n",
	       100 * waste, refused, 100.0 * (double)peak / (double)stats.bytes_total);
	expect(waste < 0.25);
	fixture_close(&f);
}
END_TEST

/* Churn in a full arena: what does not hold keys, values or headers is waste. */
START_TEST(test_waste_when_full)
{
	static const unsigned bits[] = {1, 6, 10, 13, 16, 20};
	struct fixture f = fixture_open(32 * MIB, GIB, STORE_EVICT_NONE);
	uint64_t state = 99;
	struct store_stats stats;
	struct store_ref ref;
	uint32_t keys = 0;
	double waste;

	while (!reserve_all(f.store, &keys, 4, random_size(&state, bits[_i]), NOW, &ref)) {
		expect(store_publish(f.store, &ref, NULL, NOW, NULL) == 0);
		keys++;
	}
	for (uint64_t n = 0; n < MIN(20 * keys, 100000); n++) {
		uint32_t key = (uint32_t)(random_next(&state) % keys);

		store_delete(f.store, &key, 4, 0, NOW);
		key = (uint32_t)(random_next(&state) % keys);
		if (!reserve_all(f.store, &key, 4, random_size(&state, bits[_i]), NOW, &ref))
			store_publish(f.store, &ref, NULL, NOW, NULL);
	}
	for (uint32_t key = 0;; key++) { /* full again */
		if (reserve_all(f.store, &key, 4, random_size(&state, bits[_i]), NOW, &ref))
			break;
		store_publish(f.store, &ref, NULL, NOW, NULL);
	}
	stats = fixture_stats(&f);
	waste = waste_of(&stats, stats.bytes_total);
	printf("store: full with values below %u B: waste %.1f %%, of it %.1f %% free\n", 1u << bits[_i], 100 * waste,
	       100.0 - 100.0 * (double)stats.bytes_used / (double)stats.bytes_total);
	expect(waste < 0.25);
	fixture_close(&f);
}
END_TEST

static uint32_t fill(struct fixture *f, uint64_t len)
{
	struct store_ref ref;
	uint32_t n = 0;

	for (; !reserve_all(f->store, &n, sizeof(n), len, NOW, &ref); n++)
		expect(store_publish(f->store, &ref, NULL, NOW, NULL) == 0);
	return n;
}

/* What small values held becomes one large value, however they went. */
START_TEST(test_small_becomes_large)
{
	static const uint64_t sizes[] = {1, 100, 1000, 5000, 20000, 40000};
	struct fixture f = fixture_open(8 * MIB, GIB, STORE_EVICT_NONE);
	uint64_t whole = 8 * MIB - 4096;
	struct store_ref ref;
	uint32_t n;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		n = fill(&f, sizes[i]);
		expect(reserve_all(f.store, "k", 1, whole, NOW, &ref) == -ENOMEM);
		for (uint32_t k = 0; k < n; k += 2)
			store_delete(f.store, &k, sizeof(k), 0, NOW);
		for (uint32_t k = 1; k < n; k += 2)
			store_delete(f.store, &k, sizeof(k), 0, NOW);
		expect(reserve_all(f.store, "k", 1, whole, NOW, &ref) == 0);
		store_abandon(f.store, &ref);
	}
	expect(reserve_all(f.store, "k", 1, 8 * MIB, NOW, &ref) == -EFBIG);
	fixture_close(&f);
}
END_TEST

/* Exactly as much as was freed fits again, also when only one run of that length exists. */
START_TEST(test_exact_fit)
{
	struct fixture f = fixture_open(16 * MIB, GIB, STORE_EVICT_NONE);
	struct store_ref ref;
	uint32_t n = fill(&f, 300000), keep = n / 2;

	expect(store_delete(f.store, &keep, sizeof(keep), 0, NOW) == 1);
	expect(reserve_all(f.store, "k", 1, 300000, NOW, &ref) == 0);
	store_abandon(f.store, &ref);
	fixture_close(&f);
}
END_TEST

static uint64_t resident(const struct fixture *f)
{
	size_t pages = f->size / 4096, n = 0;
	unsigned char *in = malloc(pages);

	ck_assert_int_eq(mincore(f->arena, f->size, in), 0);
	for (size_t i = 0; i < pages; i++)
		n += in[i] & 1;
	free(in);
	return n * 4096;
}

/* Since Linux 5.14: MADV_POPULATE_WRITE, which older headers do not name. */
static bool kernel_takes_pages(void)
{
	return madvise(NULL, 0, 23) == 0;
}

/* As much again as is used, at the end where the next value comes; what is there is not touched. */
START_TEST(test_load_ahead)
{
	struct fixture f = fixture_open(256 * MIB, GIB, STORE_EVICT_NONE);
	uint64_t before = resident(&f), len = 8 * MIB, used;
	struct store_ahead *ahead = store_load_ahead(f.store);
	struct store_ref ref;

	ck_assert_ptr_nonnull(ahead);
	ck_assert_uint_lt(before, 4 * MIB);
	ck_assert_int_eq(reserve_all(f.store, "k", 1, len, NOW, &ref), 0);
	pattern_fill(ref.addr, len, 1);
	ck_assert_int_eq(store_publish(f.store, &ref, NULL, NOW, NULL), 0);
	used = fixture_stats(&f).bytes_used;
	while (resident(&f) < 2 * used)
		sched_yield();
	store_load_ahead_end(ahead);
	ck_assert_uint_le(resident(&f), 2 * used + 4 * MIB); /* the kernel may take larger pages */
	ck_assert_int_eq(store_get(f.store, "k", 1, NOW, &ref), 1);
	ck_assert(pattern_holds(ref.addr, ref.len));
	store_unpin(f.store, &ref);
	store_load_ahead_end(NULL);
	fixture_close(&f);
}
END_TEST

/* Where less is left than it may be ahead, that is taken. */
START_TEST(test_load_ahead_of_a_small_one)
{
	struct fixture f = fixture_open(48 * MIB, GIB, STORE_EVICT_NONE);
	uint64_t len = 33 * MIB;
	struct store_ahead *ahead = store_load_ahead(f.store);
	struct store_ref ref;

	ck_assert_ptr_nonnull(ahead);
	ck_assert_int_eq(reserve_all(f.store, "k", 1, len, NOW, &ref), 0);
	pattern_fill(ref.addr, len, 1);
	ck_assert_int_eq(store_publish(f.store, &ref, NULL, NOW, NULL), 0);
	while (resident(&f) < f.size)
		sched_yield();
	store_load_ahead_end(ahead);
	fixture_close(&f);
}
END_TEST

/* Where an arena may not be used whole, no page is taken that is not needed. */
START_TEST(test_load_ahead_where_memory_is_scarce)
{
	struct fixture f = fixture_open(2 * ram_usable() / MIB * MIB, GIB, STORE_EVICT_NONE);

	ck_assert_ptr_null(store_load_ahead(f.store));
	fixture_close(&f);
}
END_TEST

static void give_back_until(struct fixture *f, uint64_t *now, uint64_t until)
{
	while (*now < until) {
		uint64_t before = fixture_stats(f).bytes_returned;

		*now = MAX(store_give_back(f->store, *now), *now + 1);
		ck_assert_uint_le(fixture_stats(f).bytes_returned - before, 16 * MIB);
	}
}

/* What was free for long goes back to the system, some at a time, and what stays is whole; only where that is asked for. */
START_TEST(test_gives_back)
{
	struct fixture f = {.size = 64 * MIB};
	struct store_config config = {.arena_size = f.size, .value_max = GIB, .gives_back = _i};
	uint64_t now = NOW, state = 3, held;
	struct store_ref ref;

	f.arena = mmap(NULL, f.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(f.arena, MAP_FAILED);
	config.arena = f.arena;
	ck_assert_int_eq(store_create(&config, &f.store), 0);
	for (uint32_t key = 0; key < 400; key++) {
		expect(reserve_all(f.store, &key, sizeof(key), 50000 + random_next(&state) % 100000, NOW, &ref) == 0);
		pattern_fill(ref.addr, ref.len, key);
		expect(store_publish(f.store, &ref, NULL, NOW, NULL) == 0);
	}
	held = resident(&f);
	ck_assert_uint_gt(held, 30 * MIB);
	give_back_until(&f, &now, NOW + 25 * TIME_S);
	ck_assert_uint_gt(resident(&f), 30 * MIB);
	/* Values that stay are not beside what was never there, and values that go are. */
	for (uint32_t key = 20; key < 400; key++)
		store_delete(f.store, &key, sizeof(key), 0, NOW);
	give_back_until(&f, &now, now + 9 * TIME_S);
	ck_assert_uint_gt(resident(&f), 30 * MIB);
	give_back_until(&f, &now, now + 25 * TIME_S);
	if (_i)
		ck_assert_uint_lt(resident(&f), 8 * MIB);
	else
		ck_assert_uint_gt(resident(&f), 30 * MIB);
	ck_assert_int_eq(fixture_stats(&f).bytes_returned > 20 * MIB, _i);
	ck_assert_uint_le(fixture_stats(&f).bytes_returned, held + 2 * MIB); /* what else is of the last stretch */
	for (uint32_t key = 0; key < 20; key++) {
		expect(store_get(f.store, &key, sizeof(key), NOW, &ref) == 1 && pattern_holds(ref.addr, ref.len));
		store_unpin(f.store, &ref);
	}
	fixture_close(&f);
}
END_TEST

TCase *store_memory_case(void)
{
	TCase *tc = tcase_create("memory");

	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, test_mix_keeps_values, 0, 2);
	tcase_add_test(tc, test_waste_wide);
	tcase_add_loop_test(tc, test_waste_when_full, 0, 6);
	tcase_add_test(tc, test_small_becomes_large);
	tcase_add_test(tc, test_exact_fit);
	if (kernel_takes_pages()) {
		tcase_add_test(tc, test_load_ahead);
		tcase_add_test(tc, test_load_ahead_of_a_small_one);
	}
	tcase_add_test(tc, test_load_ahead_where_memory_is_scarce);
	tcase_add_loop_test(tc, test_gives_back, 0, 2);
	return tc;
}
