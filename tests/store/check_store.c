/* check_store: each operation and its edges; memory, eviction, model and threads in store_*.c. */
#include <signal.h>
#include <unistd.h>

#include "store/internal.h"
#include "tests/store/store_common.h"

#define VALUE_MAX 100000

static struct fixture f;

static void setup(void)
{
	f = fixture_open(8 * MIB, VALUE_MAX, STORE_EVICT_NONE);
}

static void teardown(void)
{
	fixture_close(&f);
}

START_TEST(test_create_refuses)
{
	static _Alignas(4096) char arena[2 * MIB];
	struct store_config config = {.arena = arena, .arena_size = MIB - 1, .value_max = 10};
	struct store *store = NULL;

	ck_assert_int_eq(store_create(&config, &store), -EINVAL);
	config.arena = arena + 8;
	config.arena_size = MIB;
	ck_assert_int_eq(store_create(&config, &store), -EINVAL);
	config.arena = NULL;
	ck_assert_int_eq(store_create(&config, &store), -EINVAL);
	ck_assert_ptr_null(store);
	store_destroy(NULL);
}
END_TEST

START_TEST(test_key_lengths)
{
	static const size_t good[] = {1, 2, 15, 16, 17, 240, 241, 4094, 4095};
	char key[5000], buf[8];
	uint64_t len;

	memset(key, 'k', sizeof(key));
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ck_assert_int_eq(set_all(f.store, key, good[i], &i, sizeof(i), NULL, NOW, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_int_eq(copy(f.store, key, good[i], NOW, buf, 8, &len, NULL), 1);
		ck_assert_mem_eq(buf, &i, sizeof(i));
	}
	ck_assert_int_eq(set_all(f.store, key, 0, "", 0, NULL, NOW, NULL), -EINVAL);
	ck_assert_int_eq(set_all(f.store, key, 4096, "", 0, NULL, NOW, NULL), -EINVAL);
	ck_assert_int_eq(incr(f.store, key, 0, 1, NOW, NULL, NULL), -EINVAL);
	ck_assert_int_eq(copy(f.store, key, 0, NOW, buf, 8, &len, NULL), 0);
	ck_assert_int_eq(store_delete(f.store, key, 4096, 0, NOW), 0);
	ck_assert_uint_eq(fixture_stats(&f).items, ARRAY_SIZE(good));
}
END_TEST

START_TEST(test_value_lengths)
{
	static const uint64_t sizes[] = {0, 1, 4095, 4096, 4097, 32768, 65536, VALUE_MAX};
	struct store_ref ref;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		ck_assert_int_eq(reserve_all(f.store, &i, sizeof(i), sizes[i], NOW, &ref), 0);
		ck_assert_uint_eq(ref.len, sizes[i]);
		if (sizes[i] >= 4096)
			ck_assert_uint_eq((uintptr_t)ref.addr % 64, 0);
		pattern_fill(ref.addr, ref.len, i);
		ck_assert_int_eq(store_publish(f.store, &ref, NULL, NOW, NULL), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		ck_assert_int_eq(store_get(f.store, &i, sizeof(i), NOW, &ref), 1);
		ck_assert_uint_eq(ref.len, sizes[i]);
		ck_assert(pattern_holds(ref.addr, ref.len));
		store_unpin(f.store, &ref);
		ck_assert_ptr_null(ref.item);
	}
	ck_assert_int_eq(reserve_all(f.store, "k", 1, VALUE_MAX + 1, NOW, &ref), -EFBIG);
	ck_assert_int_eq(reserve_all(f.store, "k", 1, UINT64_MAX, NOW, &ref), -EFBIG);
	ck_assert_ptr_null(ref.item);
	store_unpin(f.store, &ref);
	store_abandon(f.store, &ref);
}
END_TEST

START_TEST(test_copy_sizes)
{
	static char value[20000], buf[20000];
	uint64_t len, version;

	pattern_fill(value, sizeof(value), 9);
	for (size_t size = 0; size <= sizeof(value); size += 500) {
		ck_assert_int_eq(set_all(f.store, "k", 1, value, size, NULL, NOW, NULL), 0);
		memset(buf, 0, sizeof(buf));
		ck_assert_int_eq(copy(f.store, "k", 1, NOW, buf, size, &len, &version), 1);
		ck_assert_uint_eq(len, size);
		ck_assert_mem_eq(buf, value, size);
		if (!size)
			continue;
		memset(buf, 'x', size);
		ck_assert_int_eq(copy(f.store, "k", 1, NOW, buf, size - 1, &len, NULL), 1);
		ck_assert_uint_eq(len, size);
		ck_assert_int_eq(buf[0], 'x');
	}
	ck_assert_uint_eq(fixture_stats(&f).pins, 0);
}
END_TEST

START_TEST(test_versions_rise)
{
	uint64_t last = 0, version;
	struct store_meta meta;
	struct store_ref ref;

	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(set_all(f.store, "k", 1, "v", 1, NULL, NOW, &version), 0);
		ck_assert_uint_gt(version, last);
		ck_assert_int_eq(store_stat(f.store, "k", 1, NOW, &meta), 1);
		ck_assert_uint_eq(meta.version, version);
		ck_assert_uint_eq(meta.expires, TIME_NEVER);
		ck_assert_int_eq(store_get(f.store, "k", 1, NOW, &ref), 1);
		ck_assert_uint_eq(ref.version, version);
		store_unpin(f.store, &ref);
		last = version;
		if (i % 3 == 0) /* what is created again must not look as what was deleted */
			ck_assert_int_eq(store_delete(f.store, "k", 1, version, NOW), 1);
		if (i % 10 == 0)
			fixture_flush(&f);
	}
}
END_TEST

/* A store that follows another, as after a restart, gives no version again. */
START_TEST(test_versions_rise_over_a_restart)
{
	struct store_config config = {.arena = f.arena, .arena_size = f.size, .value_max = VALUE_MAX};
	struct store_put put = {STORE_IF_VERSION, 0, TIME_NEVER};
	uint64_t version;

	store_destroy(f.store);
	for (int i = 0; i < 3; i++) {
		config.epoch = store_epoch();
		ck_assert_int_eq(store_create(&config, &f.store), 0);
		ck_assert_int_eq(set_all(f.store, "k", 1, "v", 1, NULL, NOW, &version), 0);
		ck_assert_uint_gt(version, put.version);
		if (i > 0)
			ck_assert_int_eq(set_all(f.store, "k", 1, "w", 1, &put, NOW, NULL), -ESTALE);
		for (int n = 0; n < 1000; n++)
			set_all(f.store, "k", 1, "v", 1, NULL, NOW, &put.version);
		if (i < 2)
			store_destroy(f.store);
		usleep(1000);
	}
}
END_TEST

START_TEST(test_conditions)
{
	struct store_put absent = {STORE_IF_ABSENT, 0, TIME_NEVER};
	struct store_put present = {STORE_IF_PRESENT, 0, TIME_NEVER};
	struct store_put exact = {STORE_IF_VERSION, 1, TIME_NEVER};
	uint64_t version;

	ck_assert_int_eq(set_all(f.store, "k", 1, "0", 1, &present, NOW, NULL), -ENOENT);
	ck_assert_int_eq(set_all(f.store, "k", 1, "0", 1, &exact, NOW, NULL), -ENOENT);
	ck_assert_int_eq(set_all(f.store, "k", 1, "1", 1, &absent, NOW, &version), 0);
	ck_assert_int_eq(set_all(f.store, "k", 1, "0", 1, &absent, NOW, NULL), -EEXIST);
	exact.version = version + 1;
	ck_assert_int_eq(set_all(f.store, "k", 1, "0", 1, &exact, NOW, NULL), -ESTALE);
	ck_assert(has_text(f.store, "k", "1", NOW));
	exact.version = version;
	ck_assert_int_eq(set_all(f.store, "k", 1, "2", 1, &exact, NOW, &version), 0);
	ck_assert_int_eq(set_all(f.store, "k", 1, "0", 1, &exact, NOW, NULL), -ESTALE);
	ck_assert_int_eq(set_all(f.store, "k", 1, "3", 1, &present, NOW, NULL), 0);
	ck_assert(has_text(f.store, "k", "3", NOW));
	ck_assert_int_eq(store_delete(f.store, "k", 1, version, NOW), -ESTALE);
	ck_assert_int_eq(store_delete(f.store, "k", 1, 0, NOW), 1);
	ck_assert_int_eq(store_delete(f.store, "k", 1, 0, NOW), 0);
	ck_assert_uint_eq(fixture_stats(&f).bytes_used, 0);
}
END_TEST

/* An expired key is absent for every condition. */
START_TEST(test_conditions_after_expiry)
{
	struct store_put put = {STORE_ALWAYS, 0, NOW + 10};
	uint64_t version;

	ck_assert_int_eq(set_all(f.store, "k", 1, "1", 1, &put, NOW, &version), 0);
	put = (struct store_put){STORE_IF_PRESENT, 0, TIME_NEVER};
	ck_assert_int_eq(set_all(f.store, "k", 1, "2", 1, &put, NOW + 10, NULL), -ENOENT);
	ck_assert_int_eq(fixture_stats(&f).bytes_used, 0);
	put.condition = STORE_IF_ABSENT;
	put.expires = NOW + 20;
	ck_assert_int_eq(set_all(f.store, "k", 1, "3", 1, &put, NOW + 10, NULL), 0);
	put.expires = TIME_NEVER;
	ck_assert_int_eq(set_all(f.store, "k", 1, "4", 1, &put, NOW + 20, NULL), 0);
	ck_assert(has_text(f.store, "k", "4", NOW + 1000));
	ck_assert_uint_eq(fixture_stats(&f).expired, 2);
}
END_TEST

START_TEST(test_reserve_is_invisible)
{
	struct store_ref a, b;
	struct store_put absent = {STORE_IF_ABSENT, 0, TIME_NEVER};

	set_text(f.store, "k", "old", NOW);
	ck_assert_int_eq(reserve_all(f.store, "k", 1, 50000, NOW, &a), 0);
	ck_assert_int_eq(reserve_all(f.store, "k", 1, 3, NOW, &b), 0);
	ck_assert_uint_eq(fixture_stats(&f).pins, 2);
	ck_assert(has_text(f.store, "k", "old", NOW));
	memcpy(b.addr, "new", 3);
	ck_assert_int_eq(store_publish(f.store, &b, NULL, NOW, NULL), 0);
	ck_assert_ptr_null(b.item);
	ck_assert(has_text(f.store, "k", "new", NOW));
	store_abandon(f.store, &a);
	ck_assert(has_text(f.store, "k", "new", NOW));
	ck_assert_int_eq(reserve_all(f.store, "k", 1, 60000, NOW, &a), 0);
	ck_assert_int_eq(store_publish(f.store, &a, &absent, NOW, NULL), -EEXIST);
	ck_assert_ptr_null(a.item);
	ck_assert_uint_eq(fixture_stats(&f).pins, 0);
	ck_assert_uint_eq(fixture_stats(&f).bytes_asked, 4);
}
END_TEST

enum fate { OVERWRITTEN, DELETED, FLUSHED, EXPIRED, FATES };

static void meet_fate(enum fate fate)
{
	switch (fate) {
	case OVERWRITTEN:
		ck_assert_int_eq(set_text(f.store, "k", "new", NOW), 0);
		break;
	case DELETED:
		ck_assert_int_eq(store_delete(f.store, "k", 1, 0, NOW), 1);
		break;
	case FLUSHED:
		ck_assert_uint_eq(fixture_flush(&f), 1);
		break;
	case EXPIRED:
		ck_assert_int_eq(store_expire(f.store, "k", 1, 0, NOW + 1, NOW), 1);
		store_tick(f.store, NOW + TIME_S);
		break;
	case FATES:
		break;
	}
}

START_TEST(test_pin_outlives)
{
	static const uint64_t sizes[] = {8, 5000, VALUE_MAX};
	uint64_t size = sizes[_i / FATES];
	struct store_ref ref, two;

	ck_assert_int_eq(reserve_all(f.store, "k", 1, size, NOW, &ref), 0);
	pattern_fill(ref.addr, size, 77);
	ck_assert_int_eq(store_publish(f.store, &ref, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_get(f.store, "k", 1, NOW, &ref), 1);
	ck_assert_int_eq(store_get(f.store, "k", 1, NOW, &two), 1);
	ck_assert_ptr_eq(ref.addr, two.addr);
	meet_fate((enum fate)(_i % FATES));
	for (int i = 0; i < 20; i++) /* a thread that takes freed memory would show */
		ck_assert_int_eq(set_all(f.store, &i, sizeof(i), "xxxxxxxx", 8, NULL, NOW, NULL), 0);
	store_unpin(f.store, &two);
	ck_assert(pattern_holds(ref.addr, size));
	fixture_flush(&f);
	ck_assert_uint_eq(fixture_stats(&f).bytes_asked, size + 1);
	ck_assert_uint_eq(fixture_stats(&f).pins, 1);
	store_unpin(f.store, &ref);
	ck_assert_uint_eq(fixture_stats(&f).bytes_used, 0);
}
END_TEST

START_TEST(test_incr)
{
	static const struct {
		const char *before;
		int64_t delta;
		int rc;
		int64_t after;
	} row[] = {
		{NULL, 5, 0, 5},
		{NULL, INT64_MIN, 0, INT64_MIN},
		{"0", 0, 0, 0},
		{"41", 1, 0, 42},
		{"-1", 1, 0, 0},
		{"007", 1, 0, 8},
		{"9223372036854775806", 1, 0, INT64_MAX},
		{"-9223372036854775808", 0, 0, INT64_MIN},
		{"9223372036854775807", 1, -ERANGE, 0},
		{"-9223372036854775808", -1, -ERANGE, 0},
		{"9223372036854775808", -1, -EINVAL, 0},
		{"-9223372036854775809", 1, -EINVAL, 0},
		{"99999999999999999999999", 1, -EINVAL, 0},
		{"", 1, -EINVAL, 0},
		{"-", 1, -EINVAL, 0},
		{"--1", 1, -EINVAL, 0},
		{"+1", 1, -EINVAL, 0},
		{" 1", 1, -EINVAL, 0},
		{"1 ", 1, -EINVAL, 0},
		{"1.5", 1, -EINVAL, 0},
	};
	int64_t value;
	uint64_t version;

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		store_delete(f.store, "n", 1, 0, NOW);
		if (row[i].before)
			set_text(f.store, "n", row[i].before, NOW);
		ck_assert_int_eq(incr(f.store, "n", 1, row[i].delta, NOW, &value, &version), row[i].rc);
		if (!row[i].rc)
			ck_assert_int_eq(value, row[i].after);
		else if (row[i].before)
			ck_assert(has_text(f.store, "n", row[i].before, NOW));
	}
}
END_TEST

START_TEST(test_incr_keeps_expiry)
{
	struct store_put put = {STORE_ALWAYS, 0, NOW + 100};
	struct store_meta meta;
	int64_t value;

	set_all(f.store, "n", 1, "7", 1, &put, NOW, NULL);
	ck_assert_int_eq(incr(f.store, "n", 1, -9, NOW, &value, NULL), 0);
	ck_assert(has_text(f.store, "n", "-2", NOW));
	store_stat(f.store, "n", 1, NOW, &meta);
	ck_assert_uint_eq(meta.expires, NOW + 100);
	ck_assert_int_eq(incr(f.store, "n", 1, 3, NOW + 100, &value, NULL), 0);
	ck_assert_int_eq(value, 3);
	store_stat(f.store, "n", 1, NOW, &meta);
	ck_assert_uint_eq(meta.expires, TIME_NEVER);
}
END_TEST

/* An item without any takes no more than before there were attributes; the rest of their rules is in store_model.c. */
START_TEST(test_attributes)
{
	struct store_put put = {.expires = TIME_NEVER, .flags = 0x01020304, .type = STORE_HASH};
	struct store_put keeps = {.expires = TIME_NEVER, .keep_attributes = true, .flags = 9};
	struct store_meta meta;

	ck_assert_int_eq(set_all(f.store, "12345678", 8, "12345678", 8, NULL, NOW, NULL), 0);
	ck_assert_uint_eq(fixture_stats(&f).bytes_used, 64);
	ck_assert_int_eq(set_all(f.store, "12345678", 8, "12345678", 8, &put, NOW, NULL), 0);
	ck_assert_uint_gt(fixture_stats(&f).bytes_used, 64);
	ck_assert_int_eq(set_all(f.store, "12345678", 8, "1", 1, &keeps, NOW, NULL), 0);
	ck_assert_int_eq(store_stat(f.store, "12345678", 8, NOW, &meta), 1);
	ck_assert(meta.flags == put.flags && meta.type == STORE_HASH);
	ck_assert_int_eq(incr(f.store, "12345678", 8, 1, NOW, NULL, NULL), -EMEDIUMTYPE);
	ck_assert(!meta.stale);
	put.type = STORE_STRING | STORE_STALE;
	ck_assert_int_eq(set_all(f.store, "12345678", 8, "7", 1, &put, NOW, NULL), 0);
	ck_assert_int_eq(store_stat(f.store, "12345678", 8, NOW, &meta), 1);
	ck_assert(meta.stale && meta.type == STORE_STRING);
	ck_assert_int_eq(incr(f.store, "12345678", 8, 1, NOW, NULL, NULL), 0);
	put.type = STORE_STRING;
	ck_assert_int_eq(set_all(f.store, "12345678", 8, "7", 1, &put, NOW, NULL), 0);
	ck_assert_int_eq(incr(f.store, "12345678", 8, 1, NOW, NULL, NULL), 0);
	ck_assert_int_eq(store_expire(f.store, "12345678", 8, 0, NOW + TIME_S, NOW), 1);
	ck_assert_int_eq(store_stat(f.store, "12345678", 8, NOW, &meta), 1);
	ck_assert(meta.flags == put.flags && meta.type == STORE_STRING && !meta.stale && meta.expires == NOW + TIME_S);
	ck_assert_int_eq(set_all(f.store, "12345678", 8, "12345678", 8, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_stat(f.store, "12345678", 8, NOW, &meta), 1);
	ck_assert(meta.flags == 0 && meta.type == STORE_STRING);
	ck_assert_uint_eq(fixture_stats(&f).bytes_used, 64);
	ck_assert_int_eq(set_all(f.store, "new", 3, "1", 1, &keeps, NOW, NULL), 0);
	ck_assert_int_eq(store_stat(f.store, "new", 3, NOW, &meta), 1);
	ck_assert_uint_eq(meta.flags, 9);
}
END_TEST

START_TEST(test_expiry_lazy)
{
	struct store_put put = {STORE_ALWAYS, 0, NOW + 50};
	struct store_meta meta;
	struct store_ref ref;

	set_all(f.store, "k", 1, "v", 1, &put, NOW, NULL);
	ck_assert_int_eq(store_get(f.store, "k", 1, NOW + 49, &ref), 1);
	store_unpin(f.store, &ref);
	ck_assert_int_eq(store_get(f.store, "k", 1, NOW + 50, &ref), 0);
	ck_assert_ptr_null(ref.item);
	ck_assert_uint_eq(fixture_stats(&f).bytes_used, 0);
	ck_assert_int_eq(store_expire(f.store, "k", 1, 0, TIME_NEVER, NOW), 0);
	set_all(f.store, "k", 1, "v", 1, &put, NOW, NULL);
	ck_assert_int_eq(store_expire(f.store, "k", 1, 1, TIME_NEVER, NOW), -ESTALE);
	ck_assert_int_eq(store_expire(f.store, "k", 1, 0, TIME_NEVER, NOW), 1);
	ck_assert_int_eq(store_stat(f.store, "k", 1, NOW + 1000, &meta), 1);
	ck_assert_uint_eq(meta.expires, TIME_NEVER);
	ck_assert_int_eq(store_expire(f.store, "k", 1, 0, NOW + 2000, NOW + 1000), 1);
	ck_assert_int_eq(store_stat(f.store, "k", 1, NOW + 2000, &meta), 0);
}
END_TEST

#define WHEEL_TICK (1ull << 20)

/* Key i expires 2^i ns after NOW: how many have by then. */
static uint64_t due_by(uint64_t now)
{
	uint64_t n = 0;

	while (n < 62 && NOW + (1ull << n) <= now)
		n++;
	return n;
}

static uint64_t tick_and_check(uint64_t now)
{
	uint64_t next = store_tick(f.store, now), expired = fixture_stats(&f).expired;

	ck_assert_uint_gt(next, now);
	ck_assert_uint_le(expired, due_by(now));
	ck_assert_uint_ge(expired, due_by(now - WHEEL_TICK));
	return next;
}

/* Each goes in time and none before its time, however far off it is and however seldom ticks come.
 */
START_TEST(test_wheel_spans)
{
	static const uint64_t stride[] = {1, 3 * WHEEL_TICK, 100 * TIME_S, 1ull << 50, 1ull << 60};
	uint64_t now = NOW, next;
	struct store_put put = {STORE_ALWAYS, 0, 0};

	for (int i = 0; i < 62; i++) {
		put.expires = NOW + (1ull << i);
		ck_assert_int_eq(set_all(f.store, &i, sizeof(i), "v", 1, &put, NOW, NULL), 0);
	}
	while (now < NOW + (1ull << 62)) {
		next = tick_and_check(now);
		now = MAX(next, now + MAX(stride[_i], (now - NOW) / 5));
	}
	ck_assert_uint_eq(fixture_stats(&f).items, 0);
	put.expires = TIME_NEVER - 1;
	ck_assert_int_eq(set_all(f.store, "z", 1, "v", 1, &put, now, NULL), 0);
	store_tick(f.store, now * 2);
	ck_assert(has_text(f.store, "z", "v", now * 2));
}
END_TEST

START_TEST(test_tick_is_bounded)
{
	struct store_put put = {STORE_ALWAYS, 0, NOW + 5 * TIME_S};
	uint64_t next = 0, now = NOW + 6 * TIME_S, expired = 0, calls = 0;

	for (int i = 0; i < 30000; i++)
		set_all(f.store, &i, sizeof(i), "v", 1, &put, NOW, NULL);
	next = store_tick(f.store, NOW);
	ck_assert_uint_gt(next, NOW);
	ck_assert_uint_le(next, NOW + 5 * TIME_S);
	do {
		uint64_t before = expired;

		next = store_tick(f.store, now);
		expired = fixture_stats(&f).expired;
		ck_assert_uint_le(expired - before, 4096);
		calls++;
	} while (next <= now);
	ck_assert_uint_eq(expired, 30000);
	ck_assert_uint_ge(calls, 30000 / 4096);
	ck_assert_uint_eq(fixture_stats(&f).bytes_used, 0);
}
END_TEST

/* Memory of what has expired serves a write before the tick came by. */
START_TEST(test_expired_makes_room)
{
	struct store_put put = {STORE_ALWAYS, 0, NOW + TIME_S};
	static char value[VALUE_MAX];
	int n = 0;

	while (!set_all(f.store, &n, sizeof(n), value, sizeof(value), &put, NOW, NULL))
		n++;
	ck_assert_int_gt(n, 70);
	ck_assert_int_eq(set_all(f.store, "k", 1, value, sizeof(value), NULL, NOW, NULL), -ENOMEM);
	ck_assert_int_eq(set_all(f.store, "k", 1, value, sizeof(value), NULL, NOW + 2 * TIME_S, NULL), 0);
	ck_assert_uint_ge(fixture_stats(&f).out_of_memory, 1);
}
END_TEST

struct seen {
	unsigned char count[40000];
	unsigned calls;
};

static bool see(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	struct seen *seen = arg;
	char text[32] = "";

	expect(key_len < sizeof(text));
	expect(meta->len == 1);
	memcpy(text, key, key_len);
	seen->count[atoi(text + 4)]++;
	seen->calls++;
	return true;
}

static void set_number(const char *prefix, int i)
{
	char key[32];

	snprintf(key, sizeof(key), "%s%d", prefix, i);
	expect(set_text(f.store, key, "v", NOW) == 0);
}

/* While the table grows under it; every key that was there at the start is seen. */
START_TEST(test_scan_while_growing)
{
	static struct seen seen;
	uint64_t cursor = 0;
	int n = 0, start[] = {0, 1, 200, 10000}, rounds = 0;
	unsigned before;

	memset(&seen, 0, sizeof(seen));
	while (n < start[_i])
		set_number("key:", n++);
	do {
		before = seen.calls;
		store_scan(f.store, &cursor, 10, NULL, 0, NOW, see, &seen);
		ck_assert_uint_le(seen.calls - before, 10 + 30);
		for (int i = 0; i < 30 && n < 39000; i++)
			set_number("key:", n++);
		if (rounds++ % 2) /* deletes must not hide others */
			store_delete(f.store, "none", 4, 0, NOW);
	} while (cursor);
	for (int i = 0; i < start[_i]; i++)
		ck_assert_uint_ge(seen.count[i], 1);
}
END_TEST

START_TEST(test_scan_prefix)
{
	static struct seen seen;
	uint64_t cursor = 0;
	struct store_put put = {STORE_ALWAYS, 0, NOW + 1};

	memset(&seen, 0, sizeof(seen));
	for (int i = 0; i < 300; i++) {
		set_number("abc:", i);
		set_number("abd:", i);
	}
	ck_assert_int_eq(set_all(f.store, "abc:999", 7, "v", 1, &put, NOW, NULL), 0);
	ck_assert_int_eq(set_text(f.store, "ab", "v", NOW), 0);
	do {
		store_scan(f.store, &cursor, 7, "abc", 3, NOW + 1, see, &seen);
	} while (cursor);
	ck_assert_uint_eq(seen.calls, 300); /* no growth: each exactly once */
	ck_assert_uint_eq(seen.count[999], 0);
}
END_TEST

/* A cursor comes from a client: whatever it is, the scan ends. */
START_TEST(test_scan_any_cursor)
{
	static const uint64_t cursors[] = {1, UINT32_MAX, UINT64_MAX, 1ull << 32, 15ull << 48 | 999, 1ull << 63};
	static struct seen seen;

	for (int i = 0; i < 500; i++)
		set_number("key:", i);
	for (size_t i = 0; i < ARRAY_SIZE(cursors); i++) {
		uint64_t cursor = cursors[i];
		int calls = 0;

		do {
			store_scan(f.store, &cursor, 0, NULL, 0, NOW, see, &seen);
			ck_assert_int_lt(++calls, 100000);
		} while (cursor);
	}
}
END_TEST

/* Takes as many keys in a call as it was told, and refuses the next. */
struct limited {
	struct seen *seen;
	unsigned room;
};

static bool see_page(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	struct limited *page = arg;

	return page->room && page->room-- && see(page->seen, key, key_len, meta);
}

/* However few keys a page takes, none is lost and none comes twice. */
START_TEST(test_scan_pages)
{
	static struct seen seen;
	uint64_t cursor = 0;

	memset(&seen, 0, sizeof(seen));
	for (int i = 0; i < 5000; i++)
		set_number("key:", i);
	do {
		struct limited page = {&seen, (unsigned)_i};

		store_scan(f.store, &cursor, 1000, NULL, 0, NOW, see_page, &page);
	} while (cursor);
	for (int i = 0; i < 5000; i++)
		ck_assert_uint_eq(seen.count[i], 1);
}
END_TEST

static bool see_link(void *arg, uint32_t link)
{
	unsigned *count = arg;

	if (!count[0]) /* the room that is left */
		return false;
	count[0]--;
	count[link]++;
	return true;
}

/* Links of one tag have no order but their number: more of them than are sorted at a time, and than a page takes. */
START_TEST(test_scan_one_tag)
{
	static const unsigned rooms[] = {1, 2, 31, 32, 33, 1000};
	struct index_cursor cursor = {0};
	unsigned count[301] = {0};
	struct lock lock = {0};
	struct index x;

	ck_assert_int_eq(index_init(&x), 0);
	lock_take(&lock, LOCK_STRIPE);
	for (uint32_t link = 1; link <= 300; link++)
		ck_assert_int_eq(index_insert(&x, link % 3 ? 0 : UINT32_MAX, link), 0);
	lock_give(&lock, LOCK_STRIPE);
	do {
		count[0] = rooms[_i];
		index_scan(&x, &cursor, see_link, count);
	} while (cursor.place || cursor.skip);
	for (uint32_t link = 1; link <= 300; link++)
		ck_assert(count[link] == 1 || count[link] == 2); /* twice where a page ended between links of its tag */
	index_fini(&x);
}
END_TEST

/* What came is removed before the next page: none of the same tag is passed over. */
START_TEST(test_scan_one_tag_removed)
{
	struct index_cursor cursor = {0};
	unsigned count[301] = {0};
	struct lock lock = {0};
	struct index x;
	struct slot slot;

	ck_assert_int_eq(index_init(&x), 0);
	lock_take(&lock, LOCK_STRIPE);
	for (uint32_t link = 1; link <= 8; link++)
		ck_assert_int_eq(index_insert(&x, link <= 4 ? 0 : UINT32_MAX, link), 0);
	count[0] = 6;
	index_scan(&x, &cursor, see_link, count);
	for (uint32_t link = 1; link <= 8; link++)
		if (count[link]) {
			ck_assert(index_find_link(&x, link <= 4 ? 0 : UINT32_MAX, link, &slot));
			index_remove(&x, slot);
		}
	lock_give(&lock, LOCK_STRIPE);
	while (cursor.place || cursor.skip) {
		count[0] = 6;
		index_scan(&x, &cursor, see_link, count);
	}
	for (uint32_t link = 1; link <= 8; link++)
		ck_assert_uint_eq(count[link], 1);
	index_fini(&x);
}
END_TEST

START_TEST(test_full_arena)
{
	static char value[1000];
	int n = 0;
	struct store_stats stats;

	while (!set_all(f.store, &n, sizeof(n), value, sizeof(value), NULL, NOW, NULL))
		n++;
	ck_assert_int_eq(set_all(f.store, &n, sizeof(n), value, sizeof(value), NULL, NOW, NULL), -ENOMEM);
	stats = fixture_stats(&f);
	ck_assert_uint_eq(stats.items, n);
	ck_assert_uint_eq(stats.evictions, 0);
	ck_assert_uint_ge(stats.bytes_used, stats.bytes_total / 10 * 9);
	ck_assert_uint_eq(stats.bytes_asked, 1004ull * n);
	n = 5;
	ck_assert_int_eq(set_all(f.store, &n, sizeof(n), value, 1000, NULL, NOW, NULL), -ENOMEM);
	ck_assert_int_eq(store_delete(f.store, &n, sizeof(n), 0, NOW), 1);
	ck_assert_int_eq(set_all(f.store, &n, sizeof(n), value, 1000, NULL, NOW, NULL), 0);
}
END_TEST

START_TEST(test_stats)
{
	struct store_stats stats;
	char buf[8];
	uint64_t len;

	set_text(f.store, "a", "1", NOW);
	set_text(f.store, "a", "2", NOW);
	set_text(f.store, "b", "3", NOW);
	copy(f.store, "a", 1, NOW, buf, 8, &len, NULL);
	copy(f.store, "c", 1, NOW, buf, 8, &len, NULL);
	store_delete(f.store, "b", 1, 0, NOW);
	stats = fixture_stats(&f);
	ck_assert_uint_eq(stats.items, 1);
	ck_assert_uint_eq(stats.sets, 3);
	ck_assert_uint_eq(stats.hits, 1);
	ck_assert_uint_eq(stats.misses, 1);
	ck_assert_uint_eq(stats.deletes, 1);
	ck_assert_uint_eq(stats.bytes_asked, 2);
	ck_assert_uint_eq(stats.bytes_used, 64);
	ck_assert_uint_ge(stats.bytes_held, stats.bytes_used);
	ck_assert_uint_eq(stats.bytes_total, 8 * MIB);
}
END_TEST

/* Keys that are there and keys that are not, of each length, while the index grows: nothing is seen of it. */
START_TEST(test_look_ahead)
{
	struct store_stats before, after;
	char key[5000] = "k";

	for (uint64_t i = 0; i < 10000; i++) {
		uint64_t far = i / 2, none = UINT64_MAX - i;
		struct store_key keys[STORE_AHEAD] = {{&i, sizeof(i)},
						      {&far, sizeof(far)},
						      {&none, sizeof(none)},
						      {key, 1},
						      {key, 1 + i % STORE_KEY_MAX},
						      {key, STORE_KEY_MAX},
						      {key, 8},
						      {key, 9}};

		ck_assert_int_eq(set_all(f.store, &i, sizeof(i), key, i % 200, NULL, NOW, NULL), 0);
		before = fixture_stats(&f);
		store_look_ahead(f.store, keys, i % (STORE_AHEAD + 1));
		after = fixture_stats(&f);
		ck_assert_mem_eq(&before, &after, sizeof(before));
	}
}
END_TEST

/* A value that did not fit is asked for again: one read in all. */
START_TEST(test_one_read_is_one_hit)
{
	static char value[10000];
	struct store_ref ref;
	uint64_t len;

	ck_assert_int_eq(set_all(f.store, "k", 1, value, sizeof(value), NULL, NOW, NULL), 0);
	ck_assert_int_eq(copy(f.store, "k", 1, NOW, value, 100, &len, NULL), 1);
	ck_assert_uint_eq(len, sizeof(value));
	ck_assert_uint_eq(fixture_stats(&f).hits, 0);
	ck_assert_int_eq(store_get(f.store, "k", 1, NOW, &ref), 1);
	store_unpin(f.store, &ref);
	ck_assert_uint_eq(fixture_stats(&f).hits, 1);
	ck_assert_int_eq(copy(f.store, "k", 1, NOW, value, sizeof(value), &len, NULL), 1);
	ck_assert_uint_eq(fixture_stats(&f).hits, 2);
	ck_assert_uint_eq(fixture_stats(&f).misses, 0);
}
END_TEST

/* Each breaks a promise of store.h or of the store's locks, which builds with contracts answer with SIGABRT. */
static void publish_what_is_published(void)
{
	struct store_ref ref;

	set_text(f.store, "k", "v", NOW);
	store_get(f.store, "k", 1, NOW, &ref);
	store_publish(f.store, &ref, NULL, NOW, NULL);
}

static void abandon_what_is_pinned(void)
{
	struct store_ref ref;

	set_text(f.store, "k", "v", NOW);
	store_get(f.store, "k", 1, NOW, &ref);
	store_abandon(f.store, &ref);
}

static void unpin_what_is_reserved(void)
{
	struct store_ref ref;

	reserve_all(f.store, "k", 1, 1, NOW, &ref);
	store_unpin(f.store, &ref);
}

static void destroy_with_a_pin(void)
{
	struct store_ref ref;

	set_text(f.store, "k", "v", NOW);
	store_get(f.store, "k", 1, NOW, &ref);
	store_destroy(f.store);
}

static void take_locks_against_their_order(void)
{
	struct lock heap = {0}, stripe = {0};

	lock_take(&heap, LOCK_HEAP);
	lock_take(&stripe, LOCK_STRIPE);
}

static void touch_an_index_without_its_lock(void)
{
	struct index x;

	index_init(&x);
	index_insert(&x, 1, 1);
}

static bool take_none(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	return false;
}

static void scan_and_take_none(void)
{
	uint64_t cursor = 0;

	set_text(f.store, "k", "v", NOW);
	store_scan(f.store, &cursor, 1000, NULL, 0, NOW, take_none, NULL);
}

static void (*const breaches[])(void) = {
	publish_what_is_published,      abandon_what_is_pinned,          unpin_what_is_reserved, destroy_with_a_pin,
	take_locks_against_their_order, touch_an_index_without_its_lock, scan_and_take_none,
};

START_TEST(test_contracts)
{
	if (LOCK_NOTED)
		breaches[_i]();
	else
		abort();
}
END_TEST

static TCase *operations_case(void)
{
	TCase *tc = tcase_create("operations");

	tcase_set_timeout(tc, 240);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_create_refuses);
	tcase_add_test(tc, test_key_lengths);
	tcase_add_test(tc, test_value_lengths);
	tcase_add_test(tc, test_copy_sizes);
	tcase_add_test(tc, test_versions_rise);
	tcase_add_test(tc, test_versions_rise_over_a_restart);
	tcase_add_test(tc, test_conditions);
	tcase_add_test(tc, test_conditions_after_expiry);
	tcase_add_test(tc, test_reserve_is_invisible);
	tcase_add_loop_test(tc, test_pin_outlives, 0, 3 * FATES);
	tcase_add_test(tc, test_incr);
	tcase_add_test(tc, test_incr_keeps_expiry);
	tcase_add_test(tc, test_attributes);
	tcase_add_test(tc, test_expiry_lazy);
	tcase_add_loop_test(tc, test_wheel_spans, 0, 5);
	tcase_add_test(tc, test_tick_is_bounded);
	tcase_add_test(tc, test_expired_makes_room);
	tcase_add_loop_test(tc, test_scan_while_growing, 0, 4);
	tcase_add_test(tc, test_scan_prefix);
	tcase_add_test(tc, test_scan_any_cursor);
	tcase_add_loop_test(tc, test_scan_pages, 1, 9);
	tcase_add_loop_test(tc, test_scan_one_tag, 0, 6);
	tcase_add_test(tc, test_scan_one_tag_removed);
	tcase_add_test(tc, test_full_arena);
	tcase_add_test(tc, test_stats);
	tcase_add_test(tc, test_one_read_is_one_hit);
	tcase_add_test(tc, test_look_ahead);
	tcase_add_loop_test_raise_signal(tc, test_contracts, SIGABRT, 0, (int)ARRAY_SIZE(breaches));
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("store");

	suite_add_tcase(suite, operations_case());
	suite_add_tcase(suite, store_memory_case());
	suite_add_tcase(suite, store_evict_case());
	suite_add_tcase(suite, store_room_case());
	suite_add_tcase(suite, store_model_case());
	suite_add_tcase(suite, store_threads_case());
	suite_add_tcase(suite, store_change_case());
	suite_add_tcase(suite, store_owner_case());
	suite_add_tcase(suite, store_event_case());
	return suite_run(suite);
}
