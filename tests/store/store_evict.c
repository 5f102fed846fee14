/* store_evict: the choice of what goes, and that room is made without waste. */
#include "tests/store/store_common.h"

#define VALUE 1000

static void set_key(struct fixture *f, uint64_t key, uint64_t len)
{
	static char value[MIB];

	expect(set_all(f->store, &key, sizeof(key), value, len, NULL, NOW, NULL) == 0);
}

static bool read_key(struct fixture *f, uint64_t key)
{
	static char buf[MIB];
	uint64_t len;

	return copy(f->store, &key, sizeof(key), NOW, buf, sizeof(buf), &len, NULL) == 1;
}

/* A cache as plain as can be, of as many items, for comparison. */
struct fifo {
	uint64_t *ring;
	size_t capacity, count;
	bool *there;
};

static bool fifo_access(struct fifo *q, uint64_t key)
{
	size_t at = q->count % q->capacity;

	if (q->there[key])
		return true;
	if (q->count >= q->capacity)
		q->there[q->ring[at]] = false;
	q->ring[at] = key;
	q->there[key] = true;
	q->count++;
	return false;
}

#define HOT 30000
#define SCANNED 200000

/* Skewed reads of a set twice the cache's size; every fourth access belongs to a scan of other
 * keys. */
static uint64_t next_key(uint64_t *state, uint64_t n)
{
	uint64_t r = random_next(state);
	double u = (double)(r >> 11) / 9007199254740992.0;

	if (n % 4 == 3)
		return HOT + (n / 4) % SCANNED;
	return (uint64_t)(HOT * u * u * u);
}

START_TEST(test_scan_resistance)
{
	struct fixture f = fixture_open(16 * MIB, MIB, STORE_EVICT_S3_FIFO);
	struct fifo fifo = {.there = calloc(HOT + SCANNED, 1)};
	uint64_t state = 3, hits = 0, fifo_hits = 0, reads = 0;

	for (; fifo.capacity % 100 || !fixture_stats(&f).evictions; fifo.capacity++)
		set_key(&f, 1ull << 40 | fifo.capacity, VALUE);
	fifo.ring = calloc(fifo.capacity, sizeof(*fifo.ring));
	for (uint64_t n = 0; n < 500000; n++) {
		uint64_t key = next_key(&state, n);
		bool hit = read_key(&f, key), count = key < HOT && n > 100000;

		if (!hit)
			set_key(&f, key, VALUE);
		hits += hit && count;
		fifo_hits += fifo_access(&fifo, key) && count;
		reads += count;
	}
	printf("store: skewed reads with a scan: hit rate %.1f %%, plain FIFO %.1f %%\n",
	       100.0 * (double)hits / (double)reads, 100.0 * (double)fifo_hits / (double)reads);
	expect(hits * 100 > fifo_hits * 100 + reads * 5);
	free(fifo.ring);
	free(fifo.there);
	fixture_close(&f);
}
END_TEST

/* What is used often stays while ten times the arena is written once. */
START_TEST(test_hot_set_survives)
{
	struct fixture f = fixture_open(16 * MIB, MIB, STORE_EVICT_S3_FIFO);
	unsigned left = 0;

	for (uint64_t key = 0; key < 1000; key++)
		set_key(&f, key, VALUE);
	for (uint64_t n = 0; n < 160000; n++) {
		if (!read_key(&f, n % 1000))
			set_key(&f, n % 1000, VALUE);
		set_key(&f, 1000 + n, VALUE);
	}
	for (uint64_t key = 0; key < 1000; key++)
		left += read_key(&f, key);
	expect(left > 980);
	fixture_close(&f);
}
END_TEST

/* All that is there was read over and over: new values are taken all the same. */
START_TEST(test_hot_cache_takes_writes)
{
	struct fixture f = fixture_open(16 * MIB, MIB, STORE_EVICT_S3_FIFO);
	static const uint64_t lens[] = {64, 1000, 5000, 100000};
	uint64_t len = lens[_i], n = 0;

	while (!fixture_stats(&f).evictions)
		for (unsigned i = 0; i < 100; i++)
			set_key(&f, n++, len);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 3; i++)
			for (uint64_t key = 0; key < n; key++)
				read_key(&f, key);
		for (unsigned i = 0; i < 100; i++)
			set_key(&f, 1ull << 40 | round << 20 | i, len);
		set_key(&f, 1ull << 41 | round, MIB);
	}
	ck_assert_uint_eq(fixture_stats(&f).out_of_memory, 0);
	fixture_close(&f);
}
END_TEST

START_TEST(test_pinned_stays)
{
	struct fixture f = fixture_open(4 * MIB, MIB, STORE_EVICT_S3_FIFO);
	struct store_ref pin[20], reserved;

	for (uint64_t key = 0; key < 20; key++) {
		expect(reserve_all(f.store, &key, 8, key * 3000, NOW, &pin[key]) == 0);
		pattern_fill(pin[key].addr, pin[key].len, key);
		expect(store_publish(f.store, &pin[key], NULL, NOW, NULL) == 0);
		expect(store_get(f.store, &key, 8, NOW, &pin[key]) == 1);
	}
	expect(reserve_all(f.store, "r", 1, 9000, NOW, &reserved) == 0);
	pattern_fill(reserved.addr, reserved.len, 5);
	for (uint64_t n = 0; n < 3000; n++)
		set_key(&f, 100 + n, n % 7 * 15000 + n % 100);
	expect(fixture_stats(&f).evictions > 100);
	expect(pattern_holds(reserved.addr, reserved.len));
	store_abandon(f.store, &reserved);
	for (uint64_t key = 0; key < 20; key++) {
		expect(pattern_holds(pin[key].addr, pin[key].len));
		expect(store_get(f.store, &key, 8, NOW, &reserved) == 1);
		expect(reserved.addr == pin[key].addr);
		store_unpin(f.store, &reserved);
		store_unpin(f.store, &pin[key]);
	}
	fixture_close(&f);
}
END_TEST

/* The age of what goes is told, whatever stays: by the ticks, of which there is one a second. */
START_TEST(test_age)
{
	struct fixture f = fixture_open(2 * MIB, MIB, STORE_EVICT_S3_FIFO);
	uint64_t key = 0, lives = 0, now = NOW;

	for (; !fixture_stats(&f).evictions; lives++)
		set_key(&f, key++, VALUE);
	expect(fixture_stats(&f).evicted_age == 0); /* no tick yet */
	store_tick(f.store, now);
	for (uint64_t n = 0; n < 20 * lives; n++) {
		if (n % (lives / 10) == 0)
			store_tick(f.store, now += TIME_S);
		set_key(&f, key++, VALUE);
		if (n % 10 == 0)
			read_key(&f, key % 10); /* is never there */
	}
	/* All of it goes in the order in which it came: ten seconds later, unless its place is in the other queue. */
	expect(fixture_stats(&f).evicted_age > TIME_S / TIME_US);
	expect(fixture_stats(&f).evicted_age < 30 * TIME_S / TIME_US);
	/* What is deleted is not evicted. */
	for (uint64_t n = 0; n < key; n++)
		store_delete(f.store, &n, sizeof(n), 0, NOW);
	expect(fixture_stats(&f).items == 0 && fixture_stats(&f).evicted_age < 30 * TIME_S / TIME_US);
	fixture_close(&f);
}
END_TEST

/* All is pinned: refused, and quickly. */
START_TEST(test_all_pinned)
{
	static struct store_ref pin[8000];
	struct fixture f = fixture_open(2 * MIB, MIB, STORE_EVICT_S3_FIFO);
	struct store_ref ref;
	uint64_t n = 0;

	for (; n < ARRAY_SIZE(pin); n++) {
		if (reserve_all(f.store, &n, 8, VALUE, NOW, &ref))
			break;
		store_publish(f.store, &ref, NULL, NOW, NULL);
		expect(store_get(f.store, &n, 8, NOW, &pin[n]) == 1);
	}
	expect(n < ARRAY_SIZE(pin));
	expect(reserve_all(f.store, "k", 1, 200000, NOW, &ref) == -ENOMEM);
	expect(fixture_stats(&f).evictions == 0);
	while (n--)
		store_unpin(f.store, &pin[n]);
	expect(reserve_all(f.store, "k", 1, 200000, NOW, &ref) == 0);
	store_abandon(f.store, &ref);
	fixture_close(&f);
}
END_TEST

/* A large value costs about its own size in small ones, wherever they lie. */
START_TEST(test_large_among_small)
{
	static const uint64_t sizes[] = {20000, 100000, 1000000, 5000000, 15000000};
	struct fixture f = fixture_open(16 * MIB, GIB, STORE_EVICT_S3_FIFO);
	struct store_stats before, after;
	struct store_ref ref;
	uint64_t state = 11;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (uint64_t n = 0; n < 30000; n++)
			set_key(&f, random_next(&state), random_next(&state) % 1000);
		before = fixture_stats(&f);
		expect(reserve_all(f.store, "k", 1, sizes[i], NOW, &ref) == 0);
		after = fixture_stats(&f);
		store_abandon(f.store, &ref);
		expect(before.bytes_used - (after.bytes_used - sizes[i]) < sizes[i] + sizes[i] / 8 + 256 * 1024);
	}
	fixture_close(&f);
}
END_TEST

START_TEST(test_never_fits)
{
	struct fixture f = fixture_open(4 * MIB, GIB, STORE_EVICT_S3_FIFO);
	struct store_ref ref;

	for (uint64_t n = 0; n < 10000; n++)
		set_key(&f, n, 100);
	expect(reserve_all(f.store, "k", 1, 4 * MIB, NOW, &ref) == -EFBIG);
	expect(reserve_all(f.store, "k", 1, GIB + 1, NOW, &ref) == -EFBIG);
	expect(fixture_stats(&f).evictions == 0);
	expect(fixture_stats(&f).items == 10000);
	expect(reserve_all(f.store, "k", 1, 4 * MIB - 4096, NOW, &ref) == 0);
	store_abandon(f.store, &ref);
	fixture_close(&f);
}
END_TEST

/* Pins in the middle of everywhere: refused without evicting more than the orderly attempts. */
START_TEST(test_scattered_pins)
{
	static struct store_ref pin[64];
	struct fixture f = fixture_open(16 * MIB, GIB, STORE_EVICT_S3_FIFO);
	struct store_ref ref;
	uint64_t items;

	for (uint64_t n = 0; n < 14000; n++)
		set_key(&f, n, VALUE);
	for (uint64_t n = 0; n < 64; n++) {
		uint64_t key = n * 200 + 100;

		expect(store_get(f.store, &key, 8, NOW, &pin[n]) == 1);
	}
	items = fixture_stats(&f).items;
	expect(reserve_all(f.store, "k", 1, 8 * MIB, NOW, &ref) == -ENOMEM);
	expect(fixture_stats(&f).items >= items - 256);
	expect(reserve_all(f.store, "k", 1, 64 * KIB, NOW, &ref) == 0);
	store_abandon(f.store, &ref);
	for (uint64_t n = 0; n < 64; n++)
		store_unpin(f.store, &pin[n]);
	fixture_close(&f);
}
END_TEST

/* From one size to another and back: no class keeps memory that another needs. */
START_TEST(test_sizes_change)
{
	struct fixture f = fixture_open(4 * MIB, GIB, STORE_EVICT_S3_FIFO);
	struct store_stats stats;

	for (unsigned phase = 0; phase < 16; phase++) {
		uint64_t len = 10ull << phase * 7 % 15;

		for (uint64_t n = 0; n * (len + 56) < 10 * MIB; n++)
			set_key(&f, (uint64_t)phase << 32 | n, len);
		stats = fixture_stats(&f);
		expect(stats.bytes_used > stats.bytes_total / 100 * 60);
	}
	expect(stats.out_of_memory == 0);
	fixture_close(&f);
}
END_TEST

TCase *store_evict_case(void)
{
	TCase *tc = tcase_create("evict");

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, test_scan_resistance);
	tcase_add_test(tc, test_hot_set_survives);
	tcase_add_loop_test(tc, test_hot_cache_takes_writes, 0, 4);
	tcase_add_test(tc, test_pinned_stays);
	tcase_add_test(tc, test_age);
	tcase_add_test(tc, test_all_pinned);
	tcase_add_test(tc, test_large_among_small);
	tcase_add_test(tc, test_never_fits);
	tcase_add_test(tc, test_scattered_pins);
	tcase_add_test(tc, test_sizes_change);
	return tc;
}
