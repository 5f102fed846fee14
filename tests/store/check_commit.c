/* check_commit: several keys in one step, and a key that is drawn. */
#include <signal.h>

#include "tests/store/commit_common.h"

static struct fixture f;

static void setup(void)
{
	f = fixture_open(8 * MIB, MIB, STORE_EVICT_NONE);
}

static void teardown(void)
{
	calloc_fails = false;
	fixture_close(&f);
}

/* No memory for an index, while the flag is set. */
bool calloc_fails;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return calloc_fails ? NULL : __real_calloc(n, size);
}

static uint64_t version_of(const char *key)
{
	struct store_meta meta;

	return store_stat(f.store, key, strlen(key), NOW, &meta) ? meta.version : 0;
}

static uint64_t expires_of(const char *key)
{
	struct store_meta meta;

	return store_stat(f.store, key, strlen(key), NOW, &meta) ? meta.expires : 0;
}

static struct store_check check_of(const char *key, uint64_t version, uint64_t expires)
{
	return (struct store_check){.key = key, .key_len = strlen(key), .version = version, .expires = expires};
}

static int commit_steps(struct store_step *steps, unsigned n)
{
	return store_commit(f.store, NULL, 0, steps, n, NOW, NULL);
}

START_TEST(test_all_or_nothing)
{
	struct store_step steps[] = {put_text(f.store, "a", "1"), put_text(f.store, "b", "2"), delete_of("c"),
				     expire_of("d", NOW + 5)};
	struct store_check checks[] = {check_of("c", 0, 0), check_of("d", 77, 0)};
	uint64_t lsn = 9;

	set_text(f.store, "c", "old", NOW);
	set_text(f.store, "d", "stays", NOW);
	ck_assert_int_eq(store_commit(f.store, checks, 2, steps, 4, NOW, &lsn), -ESTALE);
	ck_assert(!version_of("a") && !version_of("b") && version_of("c") && expires_of("d") == TIME_NEVER);
	ck_assert_uint_eq(fixture_stats(&f).pins, 2);
	checks[0].version = version_of("c");
	ck_assert_int_eq(store_commit(f.store, checks, 2, steps, 4, NOW, &lsn), -ESTALE);
	checks[1].version = version_of("d");
	ck_assert_int_eq(store_commit(f.store, checks, 2, steps, 4, NOW, &lsn), 0);
	ck_assert_uint_eq(lsn, 0);
	ck_assert(has_text(f.store, "a", "1", NOW) && has_text(f.store, "b", "2", NOW) && !version_of("c"));
	ck_assert_uint_eq(expires_of("d"), NOW + 5);
	ck_assert(!steps[0].found && !steps[1].found && steps[2].found && steps[3].found);
	ck_assert(!steps[0].ref.item && !steps[1].ref.item);
	ck_assert_uint_eq(steps[0].version, version_of("a"));
	ck_assert_uint_eq(steps[1].version, version_of("b"));
	ck_assert_uint_eq(steps[2].version, 0);
	ck_assert_uint_eq(steps[3].version, version_of("d"));
	ck_assert_uint_eq(fixture_stats(&f).sets, 4);
	ck_assert_uint_eq(fixture_stats(&f).deletes, 1);
	ck_assert_uint_eq(fixture_stats(&f).pins, 0);
	ck_assert_uint_eq(fixture_stats(&f).bytes_reserved, 0);
}
END_TEST

/* Each way in which a key may be another one than was read. */
START_TEST(test_checks)
{
	struct store_put put = {STORE_ALWAYS, 0, NOW + 100};
	struct store_check a, none = check_of("none", 0, 0), ghost = check_of("ghost", 0, 0);
	struct store_check all[2];
	struct store_ref ref;

	set_all(f.store, "a", 1, "v", 1, &put, NOW, NULL);
	set_all(f.store, "ghost", 5, "v", 1, &put, NOW, NULL);
	ck_assert_int_eq(store_get(f.store, "a", 1, NOW, &ref), 1);
	ck_assert_uint_eq(ref.expires, NOW + 100);
	store_unpin(f.store, &ref);
	a = check_of("a", ref.version, ref.expires);
	ck_assert_int_eq(store_commit(f.store, &a, 1, NULL, 0, NOW, NULL), 0);
	ck_assert_int_eq(store_commit(f.store, &none, 1, NULL, 0, NOW, NULL), 0);
	ck_assert_int_eq(store_commit(f.store, &ghost, 1, NULL, 0, NOW, NULL), -ESTALE);
	ck_assert_int_eq(store_commit(f.store, &ghost, 1, NULL, 0, NOW + 100, NULL), 0);
	ck_assert_int_eq(store_commit(f.store, &a, 1, NULL, 0, NOW + 100, NULL), -ESTALE);
	all[0] = all[1] = a; /* twice, and one that does not hold behind one that does */
	ck_assert_int_eq(store_commit(f.store, all, 2, NULL, 0, NOW, NULL), 0);
	all[1].version++;
	ck_assert_int_eq(store_commit(f.store, all, 2, NULL, 0, NOW, NULL), -ESTALE);
	ck_assert_int_eq(store_expire(f.store, "a", 1, 0, NOW + 50, NOW), 1);
	ck_assert_int_eq(store_commit(f.store, &a, 1, NULL, 0, NOW, NULL), -ESTALE);
	a.expires = 0;
	ck_assert_int_eq(store_commit(f.store, &a, 1, NULL, 0, NOW, NULL), 0);
	set_text(f.store, "a", "v", NOW);
	ck_assert_int_eq(store_commit(f.store, &a, 1, NULL, 0, NOW, NULL), -ESTALE);
	ck_assert_int_eq(store_delete(f.store, "a", 1, 0, NOW), 1);
	ck_assert_int_eq(store_commit(f.store, &a, 1, NULL, 0, NOW, NULL), -ESTALE);
	a.version = 0;
	ck_assert_int_eq(store_commit(f.store, &a, 1, NULL, 0, NOW, NULL), 0);
	ck_assert_int_eq(store_commit(f.store, NULL, 0, NULL, 0, NOW, NULL), 0);
}
END_TEST

/* Several steps of one key, in their order. */
START_TEST(test_one_key_often)
{
	struct store_step twice[] = {put_text(f.store, "a", "first"), put_text(f.store, "a", "second")};
	struct store_step gone[] = {put_text(f.store, "b", "v"), delete_of("b"), delete_of("b")};
	struct store_step anew[] = {delete_of("a"), put_text(f.store, "a", "third"), expire_of("a", NOW + 9),
				    put_text(f.store, "a", "fourth")};
	struct store_step late[] = {expire_of("c", NOW + 9), delete_of("c"), put_text(f.store, "c", "v")};
	uint64_t version;

	ck_assert_int_eq(commit_steps(twice, 2), 0);
	ck_assert(has_text(f.store, "a", "second", NOW) && !twice[0].found && twice[1].found);
	ck_assert(twice[0].version && twice[0].version < twice[1].version);
	ck_assert_uint_eq(version_of("a"), twice[1].version);
	ck_assert_int_eq(commit_steps(gone, 3), 0);
	ck_assert(!version_of("b") && !gone[0].found && gone[1].found && !gone[2].found);
	version = version_of("a");
	anew[1].expires = NOW + 5;
	anew[3].keep_expiry = true;
	ck_assert_int_eq(commit_steps(anew, 4), 0);
	ck_assert(has_text(f.store, "a", "fourth", NOW));
	ck_assert_uint_eq(expires_of("a"), NOW + 9);
	ck_assert(anew[0].found && !anew[1].found && anew[2].found && anew[3].found);
	ck_assert(anew[1].version > version && anew[2].version == anew[1].version);
	ck_assert_int_eq(commit_steps(late, 3), 0);
	ck_assert(!late[0].found && !late[1].found && !late[2].found && version_of("c"));
	ck_assert_uint_eq(fixture_stats(&f).items, 2);
	ck_assert_uint_eq(fixture_stats(&f).expiring, 1);
}
END_TEST

/* Keys that have expired before, or between two steps. */
START_TEST(test_expired)
{
	struct store_put put = {STORE_ALWAYS, 0, NOW};
	struct store_step steps[] = {put_text(f.store, "a", "new"), delete_of("b"),
				     expire_of("c", NOW + 5),       put_text(f.store, "d", "v"),
				     expire_of("d", NOW - 1),       expire_of("d", NOW + 5),
				     put_text(f.store, "e", "v"),   put_text(f.store, "e", "w"),
				     expire_of("f", NOW),           put_text(f.store, "f", "v")};

	for (const char *key = "abc"; *key; key++)
		set_all(f.store, key, 1, "old", 3, &put, NOW - 1, NULL);
	set_text(f.store, "f", "old", NOW);
	steps[0].keep_expiry = steps[7].keep_expiry = steps[9].keep_expiry = true;
	steps[6].expires = NOW;
	ck_assert_int_eq(commit_steps(steps, ARRAY_SIZE(steps)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		ck_assert_int_eq(steps[i].found, i == 4 || i == 8);
	ck_assert(has_text(f.store, "a", "new", NOW) && expires_of("a") == TIME_NEVER);
	ck_assert(!version_of("b") && !version_of("c") && !version_of("d"));
	ck_assert(has_text(f.store, "e", "w", NOW) && expires_of("e") == TIME_NEVER);
	ck_assert(has_text(f.store, "f", "v", NOW) && expires_of("f") == TIME_NEVER);
	ck_assert_uint_eq(fixture_stats(&f).items, 3);
	ck_assert_uint_eq(fixture_stats(&f).expired, 6);
	ck_assert_uint_eq(fixture_stats(&f).expiring, 0);
}
END_TEST

/* An item of an owner, with flags. */
static struct store_step put_of_owner(const char *key, uint64_t expires)
{
	const struct store_put put = {.owner = 7, .flags = 0xabcd};
	struct store_step step = {.kind = STORE_STEP_PUT, .expires = expires};

	ck_assert_int_eq(store_reserve_for(f.store, key, strlen(key), 1000, &put, NOW, &step.ref), 0);
	memset(step.ref.addr, 'v', 1000);
	return step;
}

/* Bytes come back to their owner in each way in which a step takes an item away. */
START_TEST(test_owners)
{
	struct store_step steps[] = {put_of_owner("a", TIME_NEVER), put_of_owner("b", TIME_NEVER),
				     put_of_owner("c", NOW + 1), put_of_owner("d", TIME_NEVER)};
	struct store_step later[] = {put_text(f.store, "a", "anybody's"), delete_of("b"), expire_of("c", NOW + 9),
				     put_of_owner("d", TIME_NEVER)};
	struct store_meta meta;
	uint64_t one;

	store_set_limit(f.store, 7, MIB);
	ck_assert_int_eq(commit_steps(steps, 4), 0);
	ck_assert_int_eq(store_stat(f.store, "a", 1, NOW, &meta), 1);
	ck_assert_uint_eq(meta.flags, 0xabcd);
	one = store_owner_bytes(f.store, 7) / 5; /* with that which is reserved */
	ck_assert_uint_gt(one, 1000);
	ck_assert_int_eq(store_commit(f.store, NULL, 0, later, 4, NOW + 2, NULL), 0);
	ck_assert_uint_eq(store_owner_bytes(f.store, 7), one);
}
END_TEST

static struct store_step steps[STORE_COMMIT_MAX + 1];

/* Keys from `first` on, four bytes each, with no value. */
static void reserve_many(struct store *store, struct store_step *to, uint32_t first, unsigned n)
{
	for (unsigned i = 0; i < n; i++, first++)
		to[i] = put_of(store, &first, sizeof(first), 0);
}

/* An index that finds no memory for the last of many keys has none of them, and takes them when there is some. */
START_TEST(test_no_memory)
{
	unsigned n = 4000;
	uint64_t cursor = 0, deleted;

	set_text(f.store, "a", "v", NOW);
	reserve_many(f.store, steps, 0, n);
	calloc_fails = true;
	ck_assert_int_eq(commit_steps(steps, n), -ENOMEM);
	calloc_fails = false;
	ck_assert_uint_eq(fixture_stats(&f).items, 1);
	ck_assert_uint_eq(fixture_stats(&f).pins, n);
	ck_assert_uint_eq(fixture_stats(&f).out_of_memory, 1);
	ck_assert(has_text(f.store, "a", "v", NOW));
	store_flush_some(f.store, &cursor, &deleted);
	ck_assert_int_eq(commit_steps(steps, n), 0);
	ck_assert_uint_eq(fixture_stats(&f).items, n);
}
END_TEST

/* What is deleted and put again needs no memory, however full the table is and whether it grows. */
START_TEST(test_again_without_memory)
{
	unsigned n = 0, most = (unsigned)_i * 777, done;

	for (; n < most; n++)
		expect(store_set(f.store, &n, sizeof(n), "v", 1, NULL, NOW, NULL) == 0);
	calloc_fails = true;
	while (store_set(f.store, &n, sizeof(n), "v", 1, NULL, NOW, NULL) == 0)
		n++;
	for (unsigned first = 0; first < n; first += done) {
		done = MIN(n - first, 1000);
		reserve_many(f.store, &steps[done], first, done);
		for (unsigned i = 0; i < done; i++)
			steps[i] = delete_of_bytes(steps[done + i].ref.item->key, sizeof(n));
		ck_assert_int_eq(commit_steps(steps, 2 * done), 0);
	}
	ck_assert_uint_eq(fixture_stats(&f).items, n);
}
END_TEST

/* As many steps as there may be, in all stripes, while the tables grow; and one more. */
START_TEST(test_most)
{
	struct store_check check = check_of("none", 0, 0);
	struct fixture large = fixture_open(128 * MIB, MIB, STORE_EVICT_S3_FIFO);
	uint64_t begin;

	reserve_many(large.store, steps, 0, STORE_COMMIT_MAX + 1);
	ck_assert_int_eq(store_commit(large.store, &check, 1, steps, STORE_COMMIT_MAX + 1, NOW, NULL), -E2BIG);
	ck_assert_uint_eq(fixture_stats(&large).items, 0);
	begin = time_now();
	ck_assert_int_eq(store_commit(large.store, &check, 1, steps, STORE_COMMIT_MAX, NOW, NULL), 0);
	printf("store: a commit of %u new keys: %.1f ms\n", STORE_COMMIT_MAX, (double)(time_now() - begin) / TIME_MS);
	ck_assert_uint_eq(fixture_stats(&large).items, STORE_COMMIT_MAX);
	for (uint32_t i = 0; i < STORE_COMMIT_MAX; i++)
		expect(store_delete(large.store, &i, sizeof(i), steps[i].version, NOW) == 1);
	store_abandon(large.store, &steps[STORE_COMMIT_MAX].ref);
	fixture_close(&large);
}
END_TEST

/* Places in the ring of changes: of reservations, of other steps, and of what they did not need. */
START_TEST(test_ring_is_full)
{
	struct fixture r = fixture_open_ring(MIB, MIB, STORE_EVICT_NONE, 64);
	struct store_change change[64];
	uint64_t lsn;

	store_changes_begin(r.store, 1000);
	reserve_many(r.store, steps, 0, 60);
	steps[60] = delete_of("none");
	steps[61] = expire_of("none", NOW + 5);
	steps[62] = delete_of_bytes("\0\0\0\0", 4);
	steps[63] = delete_of("none");
	set_text(r.store, "a", "v", NOW);
	ck_assert_int_eq(store_commit(r.store, NULL, 0, steps, 64, NOW, &lsn), -EAGAIN);
	ck_assert_int_eq(store_commit(r.store, NULL, 0, steps, 65, NOW, &lsn), -E2BIG);
	ck_assert_uint_eq(store_lsn(r.store), 1001);
	ck_assert_uint_eq(fixture_stats(&r).pins, 60);
	ck_assert_uint_eq(store_changes_take(r.store, change, 64), 1);
	store_changes_release(r.store, change, 1);
	ck_assert_int_eq(store_commit(r.store, NULL, 0, steps, 64, NOW, &lsn), 0);
	ck_assert_uint_eq(lsn, 1062); /* 60, and one that deletes */
	ck_assert_int_eq(store_set(r.store, "b", 1, "v", 1, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_set(r.store, "b", 1, "v", 1, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_set(r.store, "b", 1, "v", 1, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_set(r.store, "b", 1, "v", 1, NULL, NOW, NULL), -EAGAIN);
	ck_assert_uint_eq(store_changes_take(r.store, change, 64), 64);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(change[i].flags, i < 60 ? STORE_CHANGE_MORE : 0);
	store_changes_release(r.store, change, 64);
	ring_close(&r);
}
END_TEST

/* What is told of steps of one key, with copies in the ring and with items. */
START_TEST(test_changes_of_one_key)
{
	static const char value[1000];
	struct fixture r = fixture_open_ring(MIB, MIB, STORE_EVICT_NONE, 64);
	struct store_check stale = check_of("k", 5, 0);
	uint64_t len = _i ? sizeof(value) : 1, lsn;
	struct store_change c[8];

	store_changes_begin(r.store, 1000);
	for (unsigned i = 0; i < 4; i++)
		steps[i] = put_of(r.store, "k", 1, len);
	steps[4] = steps[3];
	steps[3] = delete_of("k");
	steps[5] = expire_of("k", NOW + 7);
	ck_assert_int_eq(store_commit(r.store, &stale, 1, steps, 6, NOW, &lsn), -ESTALE);
	ck_assert_uint_eq(lsn, 0);
	steps[1].expires = NOW; /* so the third one finds none */
	ck_assert_int_eq(store_commit(r.store, NULL, 0, steps, 6, NOW, &lsn), 0);
	ck_assert_uint_eq(lsn, 1006);
	ck_assert(steps[1].found && !steps[2].found && steps[3].found && !steps[4].found && steps[5].found);
	ck_assert_uint_eq(store_removed(r.store, "k", 1), 1006);
	ck_assert_int_eq(store_delete(r.store, "k", 1, 1005, NOW), 1);
	ck_assert_uint_eq(store_changes_take(r.store, c, 8), 7);
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_uint_eq(c[i].lsn, 1001 + i);
		ck_assert_int_eq(c[i].flags, i < 5 ? STORE_CHANGE_MORE : 0);
		ck_assert_int_eq(c[i].type, i == 3   ? STORE_CHANGE_DELETE
					    : i == 5 ? STORE_CHANGE_EXPIRE
						     : STORE_CHANGE_SET);
		ck_assert_uint_eq(c[i].value_len, c[i].type == STORE_CHANGE_SET ? len : 0);
		ck_assert_uint_eq(steps[i].version, i == 3 ? 0 : i == 5 ? 1005 : 1001 + i);
	}
	ck_assert(c[5].version == 1005 && c[5].expires == NOW + 7 && c[6].flags == 0);
	store_changes_release(r.store, c, 7);
	ring_close(&r);
}
END_TEST

/* A PUT that expires at once and is gone by the end took away what was there before: a miss tells of it. */
START_TEST(test_removed_is_told)
{
	struct fixture r = fixture_open_ring(MIB, MIB, STORE_EVICT_NONE, 64);
	struct store_step end[] = {put_text(r.store, "k", "v"), delete_of("k")};
	uint64_t lsn;

	store_changes_begin(r.store, 1000);
	set_text(r.store, "k", "old", NOW);
	store_abandon(r.store, &end[0].ref); /* that was none of those with changes */
	end[0] = put_text(r.store, "k", "v");
	end[0].expires = NOW;
	ck_assert_int_eq(store_commit(r.store, NULL, 0, end, 2, NOW, &lsn), 0);
	ck_assert(lsn == 1002 && !end[1].found);
	ck_assert_uint_eq(store_removed(r.store, "k", 1), 1002);
	ring_close(&r);
}
END_TEST

static void commit_what_is_published(void)
{
	struct store_step step = {.kind = STORE_STEP_PUT, .expires = TIME_NEVER};

	set_text(f.store, "k", "v", NOW);
	store_get(f.store, "k", 1, NOW, &step.ref);
	commit_steps(&step, 1);
}

static void take_stripes_against_their_order(void)
{
	struct lock stripe[2] = {0};

	lock_take_further(&stripe[1], LOCK_STRIPE);
	lock_take_further(&stripe[0], LOCK_STRIPE);
}

static void take_two_stripes(void)
{
	struct lock stripe[2] = {0};

	lock_take(&stripe[0], LOCK_STRIPE);
	lock_take(&stripe[1], LOCK_STRIPE);
}

static void take_a_stripe_behind_a_heap(void)
{
	struct lock heap = {0}, stripe = {0};

	lock_take(&heap, LOCK_HEAP);
	lock_take_further(&stripe, LOCK_STRIPE);
}

static void (*const breaches[])(void) = {commit_what_is_published, take_stripes_against_their_order, take_two_stripes,
					 take_a_stripe_behind_a_heap};

START_TEST(test_contracts)
{
	if (LOCK_NOTED)
		breaches[_i]();
	else
		abort();
}
END_TEST

/* Locks of a rank are given back in any order, and what is left is still known. */
START_TEST(test_locks_in_a_row)
{
	struct lock stripe[3] = {0}, order = {0};

	for (unsigned i = 0; i < 3; i++)
		lock_take_further(&stripe[i], LOCK_STRIPE);
	lock_take(&order, LOCK_ORDER);
	lock_give(&stripe[1], LOCK_STRIPE);
	ck_assert(!LOCK_NOTED || (lock_is_mine(&stripe[0], LOCK_STRIPE) && !lock_is_mine(&stripe[1], LOCK_STRIPE) &&
				  lock_is_mine(&stripe[2], LOCK_STRIPE) && lock_is_mine(&order, LOCK_ORDER)));
	lock_give(&stripe[0], LOCK_STRIPE);
	lock_give(&order, LOCK_ORDER);
	ck_assert(!LOCK_NOTED || lock_rank_is_held(LOCK_STRIPE));
	lock_give(&stripe[2], LOCK_STRIPE);
	ck_assert(!lock_rank_is_held(LOCK_STRIPE));
}
END_TEST

/*
 * A key that is drawn.
 */

#define DRAWS 20000u

/* Each of n keys is drawn about as often; _i: how many there were once. */
static void draw_evenly(unsigned n, unsigned once, unsigned margin)
{
	static unsigned count[2000];
	unsigned char key[STORE_KEY_MAX];
	struct store_put brief = {STORE_ALWAYS, 0, NOW + 1};
	uint32_t k;

	memset(count, 0, sizeof(count));
	for (k = 0; k < MAX(n, once); k++) /* in any order of times: keys that expire are passed over */
		expect(set_all(f.store, &k, sizeof(k), "v", 1, k < n ? NULL : &brief, NOW, NULL) == 0);
	for (unsigned i = 0; i < DRAWS; i++) {
		expect(store_random(f.store, i * 12345, NOW + 1, key) == sizeof(k));
		memcpy(&k, key, sizeof(k));
		expect(k < n);
		count[k]++;
	}
	for (k = 0; k < n; k++)
		ck_assert_msg(count[k] * n >= DRAWS / margin && count[k] * n <= DRAWS * margin,
			      "key %u of %u: %u draws", k, n, count[k]);
}

START_TEST(test_random_is_even)
{
	static const unsigned n[] = {1, 2, 3, 10, 100, 500};

	draw_evenly(n[_i], 0, 3);
}
END_TEST

/* Of a table that was full once all are found, if less evenly. */
START_TEST(test_random_of_few_left)
{
	unsigned char key[STORE_KEY_MAX];

	ck_assert_uint_eq(store_random(f.store, 1, NOW, key), 0);
	draw_evenly(3, 30000, 100);
	fixture_flush(&f);
	ck_assert_uint_eq(store_random(f.store, 1, NOW, key), 0);
	for (uint32_t k = 0; k < 30000; k++)
		set_all(f.store, &k, sizeof(k), "v", 1, NULL, NOW, NULL);
	for (uint32_t k = 1; k < 30000; k++)
		store_delete(f.store, &k, sizeof(k), 0, NOW);
	for (unsigned i = 0; i < 100; i++)
		ck_assert(store_random(f.store, i, NOW, key) == 4 && !memcmp(key, "\0\0\0\0", 4));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("commit");
	TCase *tc = suite_case(suite, "steps", setup, teardown);

	tcase_add_test(tc, test_all_or_nothing);
	tcase_add_test(tc, test_checks);
	tcase_add_test(tc, test_one_key_often);
	tcase_add_test(tc, test_expired);
	tcase_add_test(tc, test_owners);
	tcase_add_test(tc, test_no_memory);
	tcase_add_loop_test(tc, test_again_without_memory, 0, 20);
	tcase_add_test(tc, test_most);
	tcase_add_test(tc, test_ring_is_full);
	tcase_add_loop_test(tc, test_changes_of_one_key, 0, 2);
	tcase_add_test(tc, test_removed_is_told);
	tcase_add_loop_test_raise_signal(tc, test_contracts, SIGABRT, 0, (int)ARRAY_SIZE(breaches));
	tcase_add_test(tc, test_locks_in_a_row);
	tc = suite_case(suite, "random", setup, teardown);
	tcase_add_loop_test(tc, test_random_is_even, 0, 6);
	tcase_add_test(tc, test_random_of_few_left);
	suite_add_tcase(suite, commit_model_case());
	suite_add_tcase(suite, commit_threads_case());
	return suite_run(suite);
}
