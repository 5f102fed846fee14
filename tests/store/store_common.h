/* store_common: what the files of check_store share. */
#ifndef TESTS_STORE_COMMON_H
#define TESTS_STORE_COMMON_H

#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "store/store.h"
#include "tests/suite.h"

#define NOW 1000000000000ull /* a fake time */

/* ck_assert marks its place with a system call each time; for loops. */
#define expect(cond)                                                                                                   \
	do {                                                                                                           \
		if (unlikely(!(cond)))                                                                                 \
			ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #cond);                                          \
	} while (0)

struct fixture {
	void *arena;
	size_t size;
	struct store *store;
};

static inline struct fixture fixture_open_ring(size_t size, uint64_t value_max, enum store_eviction e, uint32_t changes)
{
	struct fixture f = {.size = size};
	struct store_config config = {.arena_size = size, .value_max = value_max, .eviction = e, .changes = changes};

	f.arena = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(f.arena, MAP_FAILED);
	config.arena = f.arena;
	ck_assert_int_eq(store_create(&config, &f.store), 0);
	return f;
}

static inline struct fixture fixture_open(size_t size, uint64_t value_max, enum store_eviction e)
{
	return fixture_open_ring(size, value_max, e, 0);
}

static inline struct store_stats fixture_stats(const struct fixture *f)
{
	struct store_stats stats;

	store_get_stats(f->store, &stats);
	return stats;
}

/* Deletes all keys, as the service does; returns how many there were. */
static inline uint64_t fixture_flush(const struct fixture *f)
{
	uint64_t deleted = 0, some, cursor = 0;

	do {
		store_flush_some(f->store, &cursor, &some);
		deleted += some;
	} while (cursor);
	return deleted;
}

/* Flushes, and demands that all memory came back. */
static inline void fixture_close(struct fixture *f)
{
	struct store_stats stats;

	fixture_flush(f);
	stats = fixture_stats(f);
	ck_assert_uint_eq(stats.items, 0);
	ck_assert_uint_eq(stats.pins, 0);
	ck_assert_uint_eq(stats.bytes_used, 0);
	ck_assert_uint_eq(stats.bytes_asked, 0);
	store_destroy(f->store);
	munmap(f->arena, f->size);
}

/* Room is made in steps: these take them all. */
static inline int set_all(struct store *s, const void *key, size_t key_len, const void *value, size_t value_len,
			  const struct store_put *put, uint64_t now, uint64_t *version)
{
	int rc;

	do {
		rc = store_set(s, key, key_len, value, value_len, put, now, version);
	} while (rc == -EAGAIN);
	return rc;
}

static inline int reserve_all(struct store *s, const void *key, size_t key_len, uint64_t value_len, uint64_t now,
			      struct store_ref *out)
{
	int rc;

	do {
		rc = store_reserve(s, key, key_len, value_len, now, out);
	} while (rc == -EAGAIN);
	return rc;
}

static inline uint64_t random_next(uint64_t *state) /* xorshift64*, Vigna 2016 */
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

/* Sizes in [1, 2^bits), each magnitude as likely as any other. */
static inline uint64_t random_size(uint64_t *state, unsigned bits)
{
	unsigned log = (unsigned)(random_next(state) % bits);

	return (1ull << log) + random_next(state) % (1ull << log);
}

/* Bytes that all follow from the seed, which is the first eight of them. */
static inline void pattern_fill(void *at, uint64_t len, uint64_t seed)
{
	unsigned char *byte = at;
	uint64_t word = seed;

	for (uint64_t i = 0; i < len; i += 8, word = word * 6364136223846793005ull + 1)
		memcpy(byte + i, &word, MIN(8, len - i));
}

static inline bool pattern_holds(const void *at, uint64_t len)
{
	const unsigned char *byte = at;
	uint64_t word;

	if (len < 8)
		return true;
	memcpy(&word, at, 8);
	for (uint64_t i = 0; i < len; i += 8, word = word * 6364136223846793005ull + 1)
		if (memcmp(byte + i, &word, MIN(8, len - i)))
			return false;
	return true;
}

static inline int set_text(struct store *s, const char *key, const char *value, uint64_t now)
{
	return set_all(s, key, strlen(key), value, strlen(value), NULL, now, NULL);
}

/* Copies the value, if it fits; *len and *version, unless that is NULL, are the item's. Returns whether it is there. */
static inline int copy(struct store *s, const void *key, size_t key_len, uint64_t now, void *buf, size_t size,
		       uint64_t *len, uint64_t *version)
{
	struct store_meta meta = {0};
	int found = store_read(s, key, key_len, now, buf, size, &meta);

	*len = meta.len;
	if (version)
		*version = meta.version;
	return found;
}

static inline bool has_text(struct store *s, const char *key, const char *value, uint64_t now)
{
	char buf[256];
	uint64_t len;

	return copy(s, key, strlen(key), now, buf, sizeof(buf), &len, NULL) == 1 && len == strlen(value) &&
	       !memcmp(buf, value, len);
}

/* Adds to a number; a new one expires so. */
static inline int add(struct store *s, const void *key, size_t key_len, int64_t delta, uint64_t expires, uint64_t now,
		      int64_t *value, uint64_t *version)
{
	return store_count(s, key, key_len, delta, &(struct store_put){.expires = expires}, now, value, version);
}

/* Adds to a number that does not expire. */
static inline int incr(struct store *s, const void *key, size_t key_len, int64_t delta, uint64_t now, int64_t *value,
		       uint64_t *version)
{
	return add(s, key, key_len, delta, TIME_NEVER, now, value, version);
}

TCase *store_memory_case(void);
TCase *store_evict_case(void);
TCase *store_room_case(void);
TCase *store_model_case(void);
TCase *store_threads_case(void);
TCase *store_change_case(void);
TCase *store_owner_case(void);
TCase *store_event_case(void);

#endif
