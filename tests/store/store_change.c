/* store_change: what the ring of changes tells, and that a copy made of it alone is the store. */
#include <pthread.h>

#include "store/internal.h"
#include "tests/store/store_common.h"

#define RING 64u
#define EPOCH 1000u

static struct fixture open_ring(size_t size, enum store_eviction eviction, uint32_t changes)
{
	struct fixture f = fixture_open_ring(size, MIB, eviction, changes);

	store_changes_begin(f.store, EPOCH);
	return f;
}

/* What is in the ring is given back, and then all of it. */
static void close_ring(struct fixture *f)
{
	struct store_change change;

	fixture_flush(f);
	while (store_changes_take(f->store, &change, 1))
		store_changes_release(f->store, &change, 1);
	fixture_close(f);
}

static struct store_change take_one(struct store *store)
{
	struct store_change change;

	ck_assert_uint_eq(store_changes_take(store, &change, 1), 1);
	return change;
}

static bool is_key(const struct store_change *change, const char *key)
{
	return change->key_len == strlen(key) && !memcmp(change->key, key, change->key_len);
}

/* Values stay readable, whatever became of their keys. */
START_TEST(test_order)
{
	struct fixture f = open_ring(MIB, STORE_EVICT_NONE, RING);
	struct store_put put = {STORE_ALWAYS, 0, NOW + TIME_S};
	struct store_change c;
	uint64_t version, cursor = 0, deleted;

	ck_assert_int_eq(store_set(f.store, "a", 1, "one", 3, &put, NOW, &version), 0);
	ck_assert_uint_eq(version, EPOCH + 1);
	ck_assert_int_eq(store_set(f.store, "a", 1, "two", 3, NULL, NOW, &version), 0);
	ck_assert_uint_eq(version, EPOCH + 2);
	ck_assert_uint_eq(store_removed(f.store, "a", 1), 0);
	ck_assert_int_eq(store_expire(f.store, "a", 1, 0, NOW + 5, NOW), 1);
	ck_assert_uint_eq(store_removed(f.store, "a", 1), EPOCH + 3);
	ck_assert_int_eq(store_delete(f.store, "a", 1, 0, NOW), 1);
	ck_assert_uint_eq(store_removed(f.store, "a", 1), EPOCH + 4);
	ck_assert_int_eq(incr(f.store, "n", 1, 7, NOW, NULL, NULL), 0);
	ck_assert_int_eq(store_flush_some(f.store, &cursor, &deleted), 0);
	ck_assert_uint_eq(deleted, 1);
	ck_assert_uint_eq(store_removed(f.store, "n", 1), EPOCH + 6);
	ck_assert_uint_eq(store_lsn(f.store), EPOCH + 6);

	c = take_one(f.store);
	ck_assert(c.lsn == EPOCH + 1 && c.type == STORE_CHANGE_SET && is_key(&c, "a") && c.version == c.lsn);
	ck_assert(c.value_len == 3 && !memcmp(c.value, "one", 3) && c.expires == NOW + TIME_S);
	store_changes_release(f.store, &c, 1);
	c = take_one(f.store);
	ck_assert(c.lsn == EPOCH + 2 && !memcmp(c.value, "two", 3) && c.expires == TIME_NEVER);
	store_changes_release(f.store, &c, 1);
	c = take_one(f.store);
	ck_assert(c.type == STORE_CHANGE_EXPIRE && c.version == EPOCH + 2 && c.expires == NOW + 5 && is_key(&c, "a"));
	store_changes_release(f.store, &c, 1);
	c = take_one(f.store);
	ck_assert(c.type == STORE_CHANGE_DELETE && c.flags == 0 && is_key(&c, "a") && !c.value);
	store_changes_release(f.store, &c, 1);
	c = take_one(f.store);
	ck_assert(c.type == STORE_CHANGE_SET && is_key(&c, "n") && c.value_len == 1 && *(char *)c.value == '7');
	store_changes_release(f.store, &c, 1);
	c = take_one(f.store);
	ck_assert(c.type == STORE_CHANGE_FLUSH && !c.key && c.lsn == EPOCH + 6);
	store_changes_release(f.store, &c, 1);
	ck_assert_uint_eq(store_changes_take(f.store, &c, 1), 0);
	close_ring(&f);
}
END_TEST

/* What changes nothing takes no number and no place: far more of it than the ring has. */
START_TEST(test_nothing_changed)
{
	struct fixture f = open_ring(MIB, STORE_EVICT_NONE, RING);
	struct store_put absent = {STORE_IF_ABSENT, 0, TIME_NEVER};
	struct store_ref ref;
	struct store_change c;

	ck_assert_int_eq(store_set(f.store, "a", 1, "x", 1, NULL, NOW, NULL), 0);
	for (unsigned i = 0; i < 4 * RING; i++) {
		ck_assert_int_eq(store_set(f.store, "a", 1, "y", 1, &absent, NOW, NULL), -EEXIST);
		ck_assert_int_eq(store_set(f.store, "a", 1, "y", 2 * MIB, NULL, NOW, NULL), -EFBIG);
		ck_assert_int_eq(store_delete(f.store, "a", 1, 77, NOW), -ESTALE);
		ck_assert_int_eq(store_delete(f.store, "b", 1, 0, NOW), 0);
		ck_assert_int_eq(store_expire(f.store, "b", 1, 0, NOW, NOW), 0);
		ck_assert_int_eq(incr(f.store, "a", 1, 1, NOW, NULL, NULL), -EINVAL);
		ck_assert_int_eq(store_reserve(f.store, "a", 1, 9, NOW, &ref), 0);
		store_abandon(f.store, &ref);
	}
	ck_assert_uint_eq(store_lsn(f.store), EPOCH + 1);
	c = take_one(f.store);
	store_changes_release(f.store, &c, 1);
	close_ring(&f);
}
END_TEST

/* Each write waits for a place, and a reservation has one. */
START_TEST(test_full)
{
	struct fixture f = open_ring(MIB, STORE_EVICT_NONE, RING);
	struct store_change c;
	struct store_ref ref;
	uint64_t cursor = 0, deleted;

	ck_assert_int_eq(store_reserve(f.store, "r", 1, 1, NOW, &ref), 0);
	for (uint32_t i = 0; i < RING - 1; i++)
		ck_assert_int_eq(store_set(f.store, &i, 4, "x", 1, NULL, NOW, NULL), 0);
	ck_assert(store_changes_full(f.store));
	ck_assert_int_eq(store_set(f.store, "k", 1, "x", 1, NULL, NOW, NULL), -EAGAIN);
	ck_assert_int_eq(store_delete(f.store, "\0\0\0\0", 4, 0, NOW), -EAGAIN);
	ck_assert_int_eq(store_expire(f.store, "\0\0\0\0", 4, 0, NOW, NOW), -EAGAIN);
	ck_assert_int_eq(store_flush_some(f.store, &cursor, &deleted), -EAGAIN);
	*(char *)ref.addr = 'r';
	ck_assert_int_eq(store_publish(f.store, &ref, NULL, NOW, NULL), 0);
	for (unsigned i = 0; i < RING; i++) {
		c = take_one(f.store);
		ck_assert_uint_eq(c.lsn, EPOCH + 1 + i);
		ck_assert_int_eq(store_set(f.store, "k", 1, "x", 1, NULL, NOW, NULL), i ? 0 : -EAGAIN);
		store_changes_release(f.store, &c, 1);
	}
	close_ring(&f);
}
END_TEST

/* Memory that changes hold is bounded, and comes back. */
START_TEST(test_bytes)
{
	struct fixture f = open_ring(16 * MIB, STORE_EVICT_NONE, 1024);
	static const char value[64 * KIB];
	struct store_change c;
	unsigned written = 0;

	while (store_set(f.store, "a", 1, value, sizeof(value), NULL, NOW, NULL) == 0)
		ck_assert_uint_lt(++written, 1024);
	ck_assert_uint_ge(written, 15);
	ck_assert_uint_le(written, 17);
	c = take_one(f.store);
	store_changes_release(f.store, &c, 1);
	ck_assert_int_eq(store_set(f.store, "a", 1, value, sizeof(value), NULL, NOW, NULL), 0);
	close_ring(&f);
}
END_TEST

/* A set that finds no memory waits, as long as what was deleted is held by changes, as it is for a key that is not copied. */
START_TEST(test_deleted_is_held)
{
	struct fixture f = open_ring(MIB, STORE_EVICT_NONE, RING);
	static const char value[400 * KIB];
	char key[CHANGE_COPY + 1] = "";
	struct store_change c;
	int rc;

	for (unsigned i = 0; i < 2; i++) {
		key[0] = (char)i;
		ck_assert_int_eq(store_set(f.store, key, sizeof(key), value, sizeof(value), NULL, NOW, NULL), 0);
		c = take_one(f.store);
		store_changes_release(f.store, &c, 1);
	}
	ck_assert_int_eq(store_delete(f.store, key, sizeof(key), 0, NOW), 1);
	for (unsigned i = 0; i < 1000; i++)
		ck_assert_int_eq(store_set(f.store, "b", 1, value, sizeof(value), NULL, NOW, NULL), -EAGAIN);
	c = take_one(f.store);
	store_changes_release(f.store, &c, 1);
	while ((rc = store_set(f.store, "b", 1, value, sizeof(value), NULL, NOW, NULL)) == -EAGAIN)
		;
	ck_assert_int_eq(rc, 0);
	close_ring(&f);
}
END_TEST

/* Short ones hold nothing: memory comes back at once, and what they tell stays what it was. */
START_TEST(test_copied_is_free)
{
	struct fixture f = open_ring(MIB, STORE_EVICT_NONE, RING);
	static const char value[900 * KIB];
	char key[CHANGE_COPY], small[CHANGE_COPY - 1];
	struct store_change c;

	memset(key, 'k', sizeof(key));
	memset(small, 's', sizeof(small));
	ck_assert_int_eq(store_set(f.store, key, sizeof(key), value, sizeof(value), NULL, NOW, NULL), 0);
	c = take_one(f.store);
	store_changes_release(f.store, &c, 1);
	ck_assert_int_eq(store_delete(f.store, key, sizeof(key), 0, NOW), 1);
	ck_assert_int_eq(store_set(f.store, "a", 1, small, sizeof(small), NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_set(f.store, "a", 1, "other", 5, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_set(f.store, "b", 1, value, sizeof(value), NULL, NOW, NULL), 0);

	c = take_one(f.store);
	ck_assert(c.type == STORE_CHANGE_DELETE && c.key_len == sizeof(key) && !memcmp(c.key, key, sizeof(key)));
	store_changes_release(f.store, &c, 1);
	c = take_one(f.store);
	ck_assert(c.type == STORE_CHANGE_SET && is_key(&c, "a"));
	ck_assert(c.value_len == sizeof(small) && !memcmp(c.value, small, sizeof(small)));
	store_changes_release(f.store, &c, 1);
	c = take_one(f.store);
	ck_assert(c.value_len == 5 && !memcmp(c.value, "other", 5));
	store_changes_release(f.store, &c, 1);
	close_ring(&f);
}
END_TEST

/*
 * A copy in another store, kept by the changes alone, or by a walk while writes go on and the changes from its beginning on.
 */
#define KEYS 3000u
#define WRITES ((unsigned)MAX(suite_part(10000), 4000u)) /* of each thread, so that a small store is full */

struct copy {
	struct fixture f, mirror;
	uint64_t lsn;  /* the last that was told of */
	uint64_t skip; /* changes up to this one are not applied */
	unsigned lag;  /* changes that are taken together */
	unsigned evicted;
	atomic_bool end;
};

static void mirror_set(struct copy *copy, const void *key, size_t key_len, const void *value, uint64_t len,
		       uint64_t version, uint64_t expires, uint32_t flags, uint8_t type)
{
	struct store_put put = {STORE_IF_OLDER, version, expires, .flags = flags, .type = type};
	int rc = set_all(copy->mirror.store, key, key_len, value, len, &put, 0, NULL);

	expect(rc == 0 || rc == -ESTALE);
}

static void mirror_apply(struct copy *copy, const struct store_change *c)
{
	struct store *mirror = copy->mirror.store;

	switch (c->type) {
	case STORE_CHANGE_SET:
		mirror_set(copy, c->key, c->key_len, c->value, c->value_len, c->lsn, c->expires, c->item_flags,
			   c->item_type);
		return;
	case STORE_CHANGE_DELETE:
		store_load_delete(mirror, c->key, c->key_len, c->lsn);
		copy->evicted += c->flags & STORE_CHANGE_EVICTED;
		return;
	case STORE_CHANGE_EXPIRE:
		store_load_expire(mirror, c->key, c->key_len, c->version, c->expires);
		return;
	case STORE_CHANGE_FLUSH:
		expect(!c->key);
		store_load_flush(mirror, c->lsn);
	}
}

static unsigned copy_step(struct copy *copy)
{
	static struct store_change change[256];
	unsigned n = store_changes_take(copy->f.store, change, copy->lag);

	for (unsigned i = 0; i < n; i++) {
		expect(change[i].lsn == ++copy->lsn);
		if (copy->lsn > copy->skip)
			mirror_apply(copy, &change[i]);
		if (copy->lsn > copy->skip && copy->lsn % 5 == 0) /* twice does no harm */
			mirror_apply(copy, &change[i]);
	}
	for (unsigned i = n; i > 0; i--) /* in any order */
		store_changes_release(copy->f.store, &change[i - 1], 1);
	return n;
}

static void copy_walk(struct copy *copy)
{
	struct store_walked walked[64];
	uint64_t cursor = 0;
	unsigned n;

	do {
		n = store_walk(copy->f.store, &cursor, 0, walked, ARRAY_SIZE(walked));
		for (unsigned i = 0; i < n; i++) {
			struct store_walked *w = &walked[i];

			mirror_set(copy, w->key, w->key_len, w->ref.addr, w->ref.len, w->ref.version, w->expires,
				   w->ref.flags, (uint8_t)(w->ref.type | (w->ref.stale ? STORE_STALE : 0)));
			store_unpin(copy->f.store, &w->ref);
		}
	} while (cursor);
}

/* Keys of `a`, each of which is the same in `b`. */
static unsigned keys_in(struct fixture *a, struct fixture *b, uint64_t now)
{
	struct store_walked walked[64];
	struct store_meta meta;
	struct store_ref ref;
	uint64_t cursor = 0;
	unsigned n, seen = 0;

	do {
		n = store_walk(a->store, &cursor, now, walked, ARRAY_SIZE(walked));
		for (unsigned i = 0; i < n; i++) {
			struct store_walked *w = &walked[i];

			expect(store_stat(b->store, w->key, w->key_len, now, &meta) == 1);
			expect(meta.version == w->ref.version && meta.expires == w->expires);
			expect(meta.flags == w->ref.flags && meta.type == w->ref.type && meta.stale == w->ref.stale);
			expect(store_get(b->store, w->key, w->key_len, now, &ref) == 1);
			expect(ref.len == w->ref.len && !memcmp(ref.addr, w->ref.addr, ref.len));
			store_unpin(b->store, &ref);
			store_unpin(a->store, &w->ref);
		}
		seen += n;
	} while (cursor);
	return seen;
}

struct writer {
	struct copy *copy;
	uint64_t state;
	uint64_t last[KEYS]; /* versions rise */
	pthread_t thread;
};

static void random_set(struct writer *w, uint32_t key, uint64_t now)
{
	static const char value[8192] = "value";
	uint64_t len = random_next(&w->state) % (random_next(&w->state) % 8 ? 100 : sizeof(value)), version;
	struct store_put put = {(enum store_condition)(random_next(&w->state) % 3), 0, TIME_NEVER};
	struct store_ref ref;
	int rc;

	if (random_next(&w->state) % 4 == 0)
		put.expires = now + random_next(&w->state) % (50 * TIME_MS);
	if (random_next(&w->state) % 3 == 0) {
		put.flags = (uint32_t)random_next(&w->state);
		put.type = random_next(&w->state) % 2 ? STORE_HASH : STORE_HASH | STORE_STALE;
	}
	put.keep_attributes = random_next(&w->state) % 4 == 0;
	if (random_next(&w->state) % 2) {
		rc = set_all(w->copy->f.store, &key, 4, value, len, &put, now, &version);
	} else {
		do
			rc = store_reserve_for(w->copy->f.store, &key, 4, len, &put, now, &ref);
		while (rc == -EAGAIN);
		expect(rc == 0);
		memset(ref.addr, (int)(now & 0xff), len);
		if (random_next(&w->state) % 8 == 0) {
			store_abandon(w->copy->f.store, &ref);
			return;
		}
		rc = store_publish(w->copy->f.store, &ref, &put, now, &version);
	}
	expect(rc == 0 || (rc == -EEXIST && put.condition == STORE_IF_ABSENT) ||
	       (rc == -ENOENT && put.condition == STORE_IF_PRESENT));
	if (rc != 0)
		return;
	expect(version > w->last[key]);
	w->last[key] = version;
}

static void writer_step(struct writer *w)
{
	struct store *store = w->copy->f.store;
	uint32_t key = (uint32_t)(random_next(&w->state) % KEYS);
	uint64_t now = time_now(), cursor = 0, deleted;

	switch (random_next(&w->state) % 10000) {
	case 0:
		do
			store_flush_some(store, &cursor, &deleted);
		while (cursor);
		break;
	case 1 ... 1000:
		while (store_delete(store, &key, 4, 0, now) == -EAGAIN)
			;
		break;
	case 1001 ... 1500:
		while (store_expire(store, &key, 4, 0, now + 20 * TIME_MS, now) == -EAGAIN)
			;
		break;
	case 1501 ... 1510:
		store_tick(store, now);
		break;
	default:
		random_set(w, key, now);
	}
}

static void *writer_run(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = 0; i < WRITES; i++)
		writer_step(w);
	return NULL;
}

static void *reader_run(void *arg)
{
	struct copy *copy = arg;
	bool end, walks = copy->skip;

	do {
		end = atomic_load(&copy->end);
		if (walks && copy->lsn >= copy->skip) {
			walks = false;
			copy->skip = copy->lsn;
			copy_walk(copy);
		}
	} while (copy_step(copy) || !end);
	return NULL;
}

/* _i: without eviction in much memory, or with it in little; changes taken one at a time, or many; from the beginning, or by a walk. */
START_TEST(test_copy)
{
	static struct copy copy;
	static struct writer writer[3];
	bool evicts = _i & 1;
	pthread_t reader;
	uint64_t now;

	copy = (struct copy){.lsn = EPOCH, .lag = _i & 2 ? 256 : 1, .skip = _i & 4 ? EPOCH + WRITES : 0};
	copy.f = open_ring(evicts ? MIB : 32 * MIB, evicts ? STORE_EVICT_S3_FIFO : STORE_EVICT_NONE, 256);
	copy.mirror = fixture_open_ring(64 * MIB, MIB, STORE_EVICT_NONE, RING);
	ck_assert_int_eq(pthread_create(&reader, NULL, reader_run, &copy), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(writer); i++) {
		memset(&writer[i], 0, sizeof(writer[i]));
		writer[i].copy = &copy;
		writer[i].state = i + 1;
		ck_assert_int_eq(pthread_create(&writer[i].thread, NULL, writer_run, &writer[i]), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(writer); i++)
		pthread_join(writer[i].thread, NULL);
	atomic_store(&copy.end, true);
	pthread_join(reader, NULL);
	ck_assert_uint_eq(copy.lsn, store_lsn(copy.f.store));
	ck_assert(!evicts || copy.evicted > 0);
	now = time_now();
	ck_assert_uint_eq(keys_in(&copy.f, &copy.mirror, now), keys_in(&copy.mirror, &copy.f, now));
	store_load_flush(copy.mirror.store, UINT64_MAX);
	fixture_close(&copy.mirror);
	close_ring(&copy.f);
}
END_TEST

/* A miss tells of what was written there and has expired: that what was there before is gone. */
START_TEST(test_expired_is_told)
{
	struct fixture f = open_ring(MIB, STORE_EVICT_NONE, RING);
	struct store_put put = {STORE_ALWAYS, 0, NOW + 5};
	struct store_meta meta;
	uint64_t version;

	ck_assert(!store_changes_full(f.store));
	ck_assert_int_eq(store_set(f.store, "a", 1, "one", 3, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_set(f.store, "a", 1, "two", 3, &put, NOW, &version), 0);
	ck_assert_uint_eq(store_removed(f.store, "a", 1), 0);
	ck_assert_int_eq(store_stat(f.store, "a", 1, NOW + 5, &meta), 0);
	ck_assert_uint_eq(store_removed(f.store, "a", 1), version);
	close_ring(&f);
}
END_TEST

/* A copy has nothing of what a delete-all that was told of has not come to yet; the reader that takes that change
 * knows, also where the one that has told of it does not yet. */
START_TEST(test_walk_passes_what_is_flushed)
{
	struct fixture f = open_ring(4 * MIB, STORE_EVICT_NONE, 4096);
	struct store_walked walked[64];
	struct store_change c;
	uint64_t cursor = 0, at = 0, deleted;
	unsigned n = 0;

	for (uint32_t i = 0; i < 3000; i++)
		ck_assert_int_eq(store_set(f.store, &i, 4, "x", 1, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_flush_some(f.store, &cursor, &deleted), 0);
	ck_assert(cursor && deleted < 3000);
	atomic_store(&f.store->changes.flush, 0); /* as if it had not come so far */
	do {
		c = take_one(f.store);
		store_changes_release(f.store, &c, 1);
	} while (c.type != STORE_CHANGE_FLUSH);
	ck_assert_uint_eq(atomic_load(&f.store->changes.flush), c.lsn);
	ck_assert_int_eq(store_set(f.store, "new", 3, "x", 1, NULL, NOW, NULL), 0);
	do {
		unsigned got = store_walk(f.store, &at, 0, walked, ARRAY_SIZE(walked));

		for (unsigned i = 0; i < got; i++)
			store_unpin(f.store, &walked[i].ref);
		n += got;
	} while (at);
	ck_assert_uint_eq(n, 1);
	close_ring(&f);
}
END_TEST

/* A delete-all whose client has ended is in the changes: it is carried on, or what it left would be gone behind a restart only. */
START_TEST(test_flush_is_carried_on)
{
	struct fixture f = open_ring(4 * MIB, STORE_EVICT_NONE, 4096);
	uint64_t cursor = 0, deleted;

	for (uint32_t i = 0; i < 3000; i++)
		ck_assert_int_eq(store_set(f.store, &i, 4, "x", 1, NULL, NOW, NULL), 0);
	ck_assert_int_eq(store_flush_some(f.store, &cursor, &deleted), 0);
	ck_assert(cursor && deleted < 3000);
	ck_assert_int_eq(store_set(f.store, "new", 3, "x", 1, NULL, NOW, NULL), 0);
	ck_assert(!store_flush_rest(f.store, NOW)); /* its client may come yet */
	ck_assert_uint_eq(fixture_stats(&f).items, 3001 - deleted);
	while (store_flush_rest(f.store, NOW + 2 * TIME_S))
		;
	ck_assert_uint_eq(fixture_stats(&f).items, 1);
	close_ring(&f);
}
END_TEST

/* Without changes: versions rise above what was loaded, and a delete-all deletes all again. */
START_TEST(test_load_without_changes)
{
	struct fixture f = fixture_open_ring(MIB, MIB, STORE_EVICT_NONE, RING);
	struct store_put older = {STORE_IF_OLDER, 5000, TIME_NEVER};
	uint64_t version;

	ck_assert_int_eq(store_set(f.store, "a", 1, "x", 1, &older, 0, NULL), 0);
	store_load_flush(f.store, 4000);
	store_load_end(f.store, 6000);
	ck_assert_uint_eq(fixture_stats(&f).items, 1);
	ck_assert_int_eq(store_set(f.store, "a", 1, "y", 1, NULL, NOW, &version), 0);
	ck_assert_uint_eq(version, 6001);
	ck_assert_int_eq(store_set(f.store, "b", 1, "y", 1, NULL, NOW, NULL), 0);
	ck_assert_uint_eq(fixture_flush(&f), 2);
	fixture_close(&f);
}
END_TEST

START_TEST(test_config)
{
	static const uint32_t wrong[] = {1, 63, 65, 96, 1u << 21};
	struct store_config config = {.arena_size = MIB, .value_max = MIB};
	struct store *store;

	config.arena = aligned_alloc(4096, MIB);
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		config.changes = wrong[i];
		ck_assert_int_eq(store_create(&config, &store), -EINVAL);
	}
	free(config.arena);
}
END_TEST

TCase *store_change_case(void)
{
	TCase *tests = tcase_create("changes");

	tcase_set_timeout(tests, 300);
	tcase_add_test(tests, test_order);
	tcase_add_test(tests, test_nothing_changed);
	tcase_add_test(tests, test_full);
	tcase_add_test(tests, test_bytes);
	tcase_add_test(tests, test_deleted_is_held);
	tcase_add_test(tests, test_copied_is_free);
	tcase_add_loop_test(tests, test_copy, 0, 8);
	tcase_add_test(tests, test_expired_is_told);
	tcase_add_test(tests, test_walk_passes_what_is_flushed);
	tcase_add_test(tests, test_flush_is_carried_on);
	tcase_add_test(tests, test_load_without_changes);
	tcase_add_test(tests, test_config);
	return tests;
}
