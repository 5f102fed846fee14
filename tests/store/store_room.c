/* store_room: a write is not refused while there is room, whatever lies in its way; and making room goes in steps. */
#include "store/internal.h"
#include "tests/store/store_common.h"

#define KEYS 200000
#define MARK 64 /* bytes at both ends of a value that tell whose it is */

/* Keys and what their extents take at most. */
struct filled {
	struct fixture f;
	uint64_t state;
	uint32_t keys; /* 0 to keys - 1 may be there */
	uint64_t calls;
	bool there[KEYS];
};

/* Two of three have attributes, which say whose they are. */
static uint32_t flags_of(uint32_t key)
{
	return key % 3 * key;
}

static int set_len(struct filled *t, uint32_t key, uint64_t len)
{
	struct store_put put = {.expires = TIME_NEVER, .flags = flags_of(key)};
	struct store_ref ref;
	int rc;

	do {
		rc = store_reserve_for(t->f.store, &key, sizeof(key), len, &put, NOW, &ref);
		t->calls++;
	} while (rc == -EAGAIN);
	if (rc != 0)
		return rc;
	pattern_fill(ref.addr, MIN(len, MARK), key);
	if (len >= 2 * MARK)
		pattern_fill((char *)ref.addr + len - MARK, MARK, key);
	expect(store_publish(t->f.store, &ref, &put, NOW, NULL) == 0);
	t->there[key] = true;
	t->keys = MAX(t->keys, key + 1);
	return 0;
}

static void delete_key(struct filled *t, uint32_t key)
{
	store_delete(t->f.store, &key, sizeof(key), 0, NOW);
	t->there[key] = false;
}

static void check_values(struct filled *t)
{
	for (uint32_t key = 0; key < t->keys; key++) {
		struct store_ref ref;

		expect(store_get(t->f.store, &key, sizeof(key), NOW, &ref) == t->there[key]);
		if (!t->there[key])
			continue;
		expect(ref.flags == flags_of(key));
		expect(pattern_holds(ref.addr, MIN(ref.len, MARK)));
		expect(ref.len < 2 * MARK || pattern_holds((char *)ref.addr + ref.len - MARK, MARK));
		store_unpin(t->f.store, &ref);
	}
}

static struct filled *filled_open(size_t size, enum store_eviction eviction)
{
	static struct filled t;

	memset(&t, 0, sizeof(t));
	t.f = fixture_open(size, GIB, eviction);
	t.state = 99;
	return &t;
}

/* Full of the smallest, of which one in 400 stays: what is free serves any size. */
START_TEST(test_few_small_stay)
{
	static const uint64_t lens[] = {100, 1000, 5000, 30000, 70000, MIB, 16 * MIB, 50 * MIB};
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_NONE);

	while (t->keys < KEYS && set_len(t, t->keys, 16) == 0)
		;
	for (uint32_t key = 0; key < t->keys; key++)
		if (key % 400)
			delete_key(t, key);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		ck_assert_int_eq(set_len(t, 1, lens[i]), 0);
		delete_key(t, 1);
	}
	check_values(t);
	fixture_close(&t->f);
}
END_TEST

/* Every other one of one size goes, and what is a little longer comes. */
START_TEST(test_every_other)
{
	static const struct {
		uint64_t first, then;
	} row[] = {{40000, 70000}, {700000, 4 * MIB}, {500, 600}, {20000, 4 * MIB}, {200, 40000}, {30000, 100}};
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_NONE);
	uint64_t first = row[_i].first, then = row[_i].then, all = 0;
	uint32_t n;

	while (t->keys < KEYS && set_len(t, t->keys, first) == 0)
		;
	all = fixture_stats(&t->f).bytes_used;
	n = t->keys;
	for (uint32_t key = 0; key < n; key += 2)
		delete_key(t, key);
	for (uint32_t key = 0; key < n && fixture_stats(&t->f).bytes_used + then * 9 / 8 + 4096 < MIN(all, 60 * MIB);
	     key += 2)
		ck_assert_int_eq(set_len(t, key, then), 0);
	check_values(t);
	fixture_close(&t->f);
}
END_TEST

/* Long and short in turns, the short ones go: no long one has another place, so they move together. */
START_TEST(test_long_and_short)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_NONE);
	unsigned more = 0;

	while (set_len(t, t->keys, t->keys % 2 ? 700000 : 4 * MIB - 100) == 0)
		;
	for (uint32_t key = 1; key < t->keys; key += 2)
		delete_key(t, key);
	while (fixture_stats(&t->f).bytes_used + 4 * MIB <= 58 * MIB) {
		ck_assert_int_eq(set_len(t, t->keys + 1, 4 * MIB - 100), 0);
		more++;
	}
	ck_assert_uint_ge(more, 1);
	check_values(t);
	fixture_close(&t->f);
}
END_TEST

/* Sizes of one range come, at nine tenths of the arena's bytes. */
static void mix_phase(struct filled *t, unsigned low, unsigned high, unsigned writes)
{
	uint64_t limit = t->f.size / 10 * 9;

	for (unsigned n = 0; n < suite_part(writes); n++) {
		uint64_t len = (1ull << low) + random_size(&t->state, high) % ((1ull << high) - (1ull << low));
		uint64_t used = fixture_stats(&t->f).bytes_used, need = len + len / 8 + 4096;

		while (used + need > limit) {
			for (unsigned i = 0; i < 20; i++)
				delete_key(t, (uint32_t)(random_next(&t->state) % KEYS));
			used = fixture_stats(&t->f).bytes_used;
		}
		ck_assert_int_eq(set_len(t, (uint32_t)(random_next(&t->state) % KEYS), len), 0);
	}
}

START_TEST(test_any_mix)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_NONE);
	unsigned scale = getenv("STORE_MIX") ? (unsigned)atoi(getenv("STORE_MIX")) : 1;

	t->state += (uint64_t)_i;
	for (unsigned round = 0; round < 2 * scale; round++) {
		mix_phase(t, 4, 22, 2000);
		mix_phase(t, 4, 10, 40000);
		mix_phase(t, 12, 22, 1000);
		mix_phase(t, 9, 15, 8000);
		mix_phase(t, 4, 6, 40000);
		mix_phase(t, 20, 22, 200);
	}
	check_values(t);
	printf("store: any mix: %lu moves\n", (unsigned long)fixture_stats(&t->f).moves);
	ck_assert_uint_eq(fixture_stats(&t->f).out_of_memory, 0);
	fixture_close(&t->f);
}
END_TEST

/*
 * Steps.
 */

/* Extents moved and items evicted since the last time, which a single call did. */
static uint64_t work_since(struct filled *t, uint64_t *before)
{
	struct store_stats stats = fixture_stats(&t->f);
	uint64_t all = stats.evictions + stats.moves + stats.expired + stats.deletes, done = all - *before;

	*before = all;
	return done;
}

#define STEP_MOST 1200 /* items of one call: some 100 us */

START_TEST(test_steps_are_bounded)
{
	struct filled *t = filled_open(64 * MIB, _i ? STORE_EVICT_S3_FIFO : STORE_EVICT_NONE);
	uint64_t before = 0, most = 0, calls = 0;
	struct store_ref ref;
	int rc;

	for (uint32_t key = 0; key < KEYS; key++)
		expect(set_len(t, key, 240) == 0);
	for (uint32_t key = 0; key < KEYS && !_i; key += 2)
		delete_key(t, key);
	work_since(t, &before);
	do {
		rc = store_reserve(t->f.store, "k", 1, 24 * MIB, NOW, &ref);
		most = MAX(most, work_since(t, &before));
		calls++;
	} while (rc == -EAGAIN);
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_gt(calls, 20);
	ck_assert_uint_le(most, STEP_MOST);
	store_abandon(t->f.store, &ref);
	fixture_close(&t->f);
}
END_TEST

START_TEST(test_flush_and_expiry_are_bounded)
{
	struct filled *t = filled_open(256 * MIB, STORE_EVICT_NONE);
	struct store_put put = {STORE_ALWAYS, 0, NOW + TIME_S};
	uint64_t before = 0, cursor = 0, deleted, most = 0;

	for (uint32_t key = 0; key < KEYS; key++)
		expect(set_all(t->f.store, &key, sizeof(key), "v", 1, key % 2 ? &put : NULL, NOW, NULL) == 0);
	while (store_tick(t->f.store, NOW + 2 * TIME_S) <= NOW + 2 * TIME_S)
		most = MAX(most, work_since(t, &before));
	do {
		most = MAX(most, work_since(t, &before));
		store_flush_some(t->f.store, &cursor, &deleted);
	} while (cursor);
	ck_assert_uint_le(most, STEP_MOST);
	ck_assert_uint_eq(fixture_stats(&t->f).items, 0);
	ck_assert_uint_eq(fixture_stats(&t->f).expired, KEYS / 2);
	fixture_close(&t->f);
}
END_TEST

/* Requests that compete take their steps in turns, and all are served; one that never comes again is forgotten. */
START_TEST(test_requests_compete)
{
	struct filled *t = filled_open(64 * MIB, _i ? STORE_EVICT_S3_FIFO : STORE_EVICT_NONE);
	struct store_ref ref[6] = {{0}};
	unsigned served = 0, turns = 0, step = _i ? 1 : 3;

	for (uint32_t key = 0; key < KEYS; key++)
		expect(set_len(t, key, 150) == 0);
	for (uint32_t key = 0; key < KEYS; key++)
		if (key % step)
			delete_key(t, key);
	ck_assert_int_eq(store_reserve(t->f.store, "gone", 4, 30 * MIB, NOW, &ref[0]), -EAGAIN);
	while (served != 5) {
		for (uint32_t i = 1; i < 6; i++) {
			if (ref[i].item)
				continue;
			if (!store_reserve(t->f.store, &i, sizeof(i), i * MIB, NOW, &ref[i]))
				served++;
		}
		ck_assert_uint_lt(++turns, 100000);
	}
	for (uint32_t i = 1; i < 6; i++)
		store_abandon(t->f.store, &ref[i]);
	if (!_i)
		check_values(t);
	fixture_close(&t->f);
}
END_TEST

/* What a window kept back comes free again when its request stays away. */
START_TEST(test_abandoned)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);
	struct store_ref ref;
	int rc;

	for (uint32_t key = 0; key < KEYS; key++)
		expect(set_len(t, key, 250) == 0);
	ck_assert_int_eq(store_reserve(t->f.store, "gone", 4, 30 * MIB, NOW, &ref), -EAGAIN);
	ck_assert_int_ne(t->f.store->room.stage, ROOM_IDLE);
	for (uint64_t now = NOW; now < NOW + 3 * TIME_S; now += TIME_S)
		store_tick(t->f.store, now);
	ck_assert_int_eq(t->f.store->room.stage, ROOM_IDLE);
	fixture_flush(&t->f);
	do
		rc = store_reserve(t->f.store, "long", 4, 50 * MIB, NOW, &ref);
	while (rc == -EAGAIN);
	ck_assert_int_eq(rc, 0);
	store_abandon(t->f.store, &ref);
	fixture_close(&t->f);
}
END_TEST

/*
 * What goes.
 */

static bool is_there(struct filled *t, uint32_t key)
{
	struct store_meta meta;

	return store_stat(t->f.store, &key, sizeof(key), NOW, &meta);
}

static bool read_key(struct filled *t, uint32_t key)
{
	struct store_ref ref;
	bool found = store_get(t->f.store, &key, sizeof(key), NOW, &ref);

	store_unpin(t->f.store, &ref);
	return found;
}

/* Large values that are read before each of many writes outlive all that is written. */
START_TEST(test_hot_large)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);
	uint32_t hot = _i ? 10 : 1;

	for (uint32_t key = 0; key < hot; key++)
		ck_assert_int_eq(set_len(t, key, MIB), 0);
	for (uint32_t key = hot; key < 5000; key++) {
		for (uint32_t i = 0; i < 3 * hot; i++)
			ck_assert(read_key(t, i % hot));
		ck_assert_int_eq(set_len(t, key, MIB), 0);
	}
	fixture_close(&t->f);
}
END_TEST

/* What was just written is not what goes, however few there are. */
START_TEST(test_young)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);

	for (uint32_t key = 0; key < suite_part(2000); key++) {
		ck_assert_int_eq(set_len(t, key, _i ? 3000000 + random_next(&t->state) % 1000000 : 4000000), 0);
		for (uint32_t young = key > 1 ? key - 2 : 0; young <= key; young++)
			ck_assert(is_there(t, young));
		read_key(t, (uint32_t)(random_next(&t->state) % (key + 1)));
	}
	fixture_close(&t->f);
}
END_TEST

/* A large value among middle-sized ones takes about its own size of them. */
START_TEST(test_evicts_what_it_needs)
{
	static const uint64_t lens[] = {1000000, 3000000, 300000, 50000};
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);
	uint64_t used;

	for (uint32_t key = 0; key < suite_part(3000); key++)
		ck_assert_int_eq(set_len(t, key, lens[_i] - random_next(&t->state) % (lens[_i] / 4)), 0);
	used = fixture_stats(&t->f).bytes_used;
	ck_assert_int_eq(set_len(t, 5000, 16 * MIB), 0);
	ck_assert_uint_ge(fixture_stats(&t->f).bytes_used + 2 * lens[_i] + MIB / 2, used);
	fixture_close(&t->f);
}
END_TEST

/*
 * Extents that grow.
 */
#define PART (MIB / 2)

static int reserve_part(struct filled *t, uint32_t key, uint64_t len, struct store_ref *ref, uint64_t *ready)
{
	int rc;

	do
		rc = store_reserve_part(t->f.store, &key, sizeof(key), len, NULL, PART, NOW, ref, ready);
	while (rc == -EAGAIN);
	return rc;
}

static int reserve_more(struct filled *t, struct store_ref *ref, uint64_t *ready)
{
	uint64_t bytes = *ready + PART;
	int rc;

	do
		rc = store_reserve_more(t->f.store, ref, bytes, ready);
	while (rc == -EAGAIN);
	return rc;
}

/* As full as it gets: 320 values, or small ones, or any. */
static void fill(struct filled *t, int how)
{
	for (uint32_t key = 0; !fixture_stats(&t->f).evictions; key++)
		expect(set_len(t, key, how == 0 ? 200000 : how == 1 ? 1000 : random_size(&t->state, 21)) == 0);
}

/* Values that are there are whole; returns how many bytes they are. */
static uint64_t check_remaining(struct filled *t)
{
	for (uint32_t key = 0; key < t->keys; key++)
		t->there[key] = is_there(t, key);
	check_values(t);
	return fixture_stats(&t->f).bytes_asked;
}

/* What is asked for and does not come costs others a part of its length. */
START_TEST(test_half_way)
{
	static const uint64_t lens[] = {MIB, 16 * MIB, 62 * MIB};
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);
	uint64_t before, ready;
	struct store_ref ref;

	fill(t, _i / 3);
	before = check_remaining(t);
	for (uint32_t n = 0; n < 8; n++) {
		ck_assert_int_eq(reserve_part(t, KEYS + n, lens[_i % 3], &ref, &ready), 0);
		ck_assert_uint_ge(ready, PART);
		if (ready == lens[_i % 3])
			ck_assert_uint_eq(ready, MIB); /* the one before was as long */
		else
			ck_assert_int_eq(reserve_more(t, &ref, &ready), 0);
		store_abandon(t->f.store, &ref);
	}
	ck_assert_uint_ge(check_remaining(t) + 5 * PART, before); /* and runs at the edge */
	fixture_close(&t->f);
}
END_TEST

/* The same where half is free, in pieces that no window joins: what lies between them is too long to be moved. */
START_TEST(test_half_way_between_long)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);
	struct store_ref ref;
	uint64_t ready;
	uint32_t n;

	for (n = 0; n < 12; n++)
		expect(set_len(t, n, 5 * MIB) == 0);
	for (n = 0; n < 12; n += 2)
		delete_key(t, n);
	for (n = 0; n < 8; n++) {
		ck_assert_int_eq(reserve_part(t, KEYS + n, 15 * MIB, &ref, &ready), 0);
		ck_assert_uint_lt(ready, 15 * MIB);
		store_abandon(t->f.store, &ref);
	}
	check_values(t);
	ck_assert_int_eq(reserve_part(t, KEYS, 15 * MIB, &ref, &ready), 0);
	while (ready < 15 * MIB)
		ck_assert_int_eq(reserve_more(t, &ref, &ready), 0);
	store_abandon(t->f.store, &ref);
	ck_assert_uint_le(fixture_stats(&t->f).evictions, 2);
	check_remaining(t);
	fixture_close(&t->f);
}
END_TEST

/* One that comes takes room as it does, and what it has not reached is there and whole. */
START_TEST(test_grows)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);
	uint64_t before, ready, len = 40 * MIB, most = 0, work = 0;
	struct store_ref ref;

	fill(t, _i);
	before = check_remaining(t);
	work_since(t, &work);
	ck_assert_int_eq(reserve_part(t, KEYS - 1, len, &ref, &ready), 0);
	for (unsigned n = 0; ready < len; n++) {
		memset(ref.addr, (int)n, ready);
		if (n % 8 == 0)
			ck_assert_uint_ge(check_remaining(t) + ready + 5 * PART, before);
		work_since(t, &work);
		ck_assert_uint_ge(fixture_stats(&t->f).bytes_reserved, ready);
		ck_assert_uint_le(fixture_stats(&t->f).bytes_reserved, ready + 4096); /* the header and the key */
		ck_assert_int_ne(store_reserve_more(t->f.store, &ref, ready + PART, &ready), -EBUSY);
		most = MAX(most, work_since(t, &work));
	}
	ck_assert_uint_le(most, STEP_MOST);
	pattern_fill(ref.addr, len, 7);
	ck_assert_int_eq(store_publish(t->f.store, &ref, NULL, NOW, NULL), 0);
	ck_assert_uint_eq(fixture_stats(&t->f).bytes_reserved, 0);
	check_remaining(t);
	ck_assert(read_key(t, KEYS - 1));
	ck_assert_uint_eq(t->f.store->arena.growths, 0);
	fixture_close(&t->f);
}
END_TEST

/* Two at once, and a value that is pinned in the way of each, in turns. */
START_TEST(test_two_grow)
{
	struct filled *t = filled_open(64 * MIB, STORE_EVICT_S3_FIFO);
	struct store_ref ref[2], pin[400];
	uint64_t ready[2], len = 24 * MIB;
	uint32_t pins = 0, busy = 0;

	fill(t, 0);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_int_eq(reserve_part(t, KEYS + i, len, &ref[i], &ready[i]), 0);
	for (uint32_t key = 0; key < t->keys; key++)
		pins += (uint32_t)store_get(t->f.store, &key, sizeof(key), NOW, &pin[pins]);
	while (ready[0] < len || ready[1] < len) {
		for (uint32_t i = 0; i < 2; i++) {
			if (ready[i] == len || reserve_more(t, &ref[i], &ready[i]) == 0)
				continue;
			ck_assert_uint_lt(busy, pins);
			store_unpin(t->f.store, &pin[busy++]);
		}
	}
	ck_assert_uint_gt(busy, 1);
	while (busy < pins)
		store_unpin(t->f.store, &pin[busy++]);
	for (uint32_t i = 0; i < 2; i++)
		memset(ref[i].addr, 1, len);
	check_remaining(t);
	store_abandon(t->f.store, &ref[0]);
	ck_assert_int_eq(store_publish(t->f.store, &ref[1], NULL, NOW, NULL), 0);
	fixture_close(&t->f);
}
END_TEST

static void release_changes(struct store *store)
{
	struct store_change change;

	while (store_changes_take(store, &change, 1))
		store_changes_release(store, &change, 1);
}

/* Where changes hold what was evicted, one whose key no change copies: it waits for them once a piece. */
START_TEST(test_grows_beside_changes)
{
	static const char value[40000];
	struct fixture f = fixture_open_ring(64 * MIB, GIB, STORE_EVICT_S3_FIFO, 1 << 12);
	uint64_t ready, len = 16 * MIB, bytes;
	unsigned waits = 0, pieces = 0;
	struct store_ref ref;
	char key[300];
	int rc;

	store_changes_begin(f.store, 1);
	memset(key, 'k', sizeof(key));
	for (uint32_t n = 0; fixture_stats(&f).evictions < 100; n++) {
		memcpy(key, &n, sizeof(n));
		while (store_set(f.store, key, sizeof(key), value, sizeof(value), NULL, NOW, NULL) == -EAGAIN)
			release_changes(f.store);
	}
	release_changes(f.store);
	while ((rc = store_reserve_part(f.store, "k", 1, len, NULL, PART, NOW, &ref, &ready)) == -EAGAIN)
		release_changes(f.store);
	ck_assert_int_eq(rc, 0);
	for (; ready < len; pieces++)
		for (bytes = ready + PART; (rc = store_reserve_more(f.store, &ref, bytes, &ready)) != 0;) {
			if (rc != -EBUSY)
				continue;
			waits++;
			release_changes(f.store);
		}
	ck_assert_uint_ge(pieces, 16);
	ck_assert_uint_ge(waits, pieces / 2); /* they do hold it */
	ck_assert_uint_le(waits, 2 * pieces);
	store_abandon(f.store, &ref);
	release_changes(f.store);
	fixture_flush(&f);
	release_changes(f.store);
	fixture_close(&f);
}
END_TEST

TCase *store_room_case(void)
{
	TCase *tc = tcase_create("room");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_few_small_stay);
	tcase_add_loop_test(tc, test_every_other, 0, 6);
	tcase_add_test(tc, test_long_and_short);
	tcase_add_loop_test(tc, test_any_mix, 0, 2);
	tcase_add_loop_test(tc, test_steps_are_bounded, 0, 2);
	tcase_add_test(tc, test_flush_and_expiry_are_bounded);
	tcase_add_loop_test(tc, test_requests_compete, 0, 2);
	tcase_add_test(tc, test_abandoned);
	tcase_add_loop_test(tc, test_hot_large, 0, 2);
	tcase_add_loop_test(tc, test_young, 0, 2);
	tcase_add_loop_test(tc, test_evicts_what_it_needs, 0, 4);
	tcase_add_loop_test(tc, test_half_way, 0, 9);
	tcase_add_test(tc, test_half_way_between_long);
	tcase_add_loop_test(tc, test_grows, 0, 3);
	tcase_add_test(tc, test_two_grow);
	tcase_add_test(tc, test_grows_beside_changes);
	return tc;
}
