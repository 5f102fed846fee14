/* commit_common: what the files of check_commit share. */
#ifndef TESTS_STORE_COMMIT_COMMON_H
#define TESTS_STORE_COMMIT_COMMON_H

#include "store/internal.h"
#include "tests/store/store_common.h"

/* Steps; of a value only the length. */
static inline struct store_step put_of(struct store *s, const void *key, size_t key_len, uint64_t len)
{
	struct store_step step = {.kind = STORE_STEP_PUT, .expires = TIME_NEVER};

	expect(reserve_all(s, key, key_len, len, NOW, &step.ref) == 0);
	return step;
}

static inline struct store_step put_text(struct store *s, const char *key, const char *value)
{
	struct store_step step = put_of(s, key, strlen(key), strlen(value));

	memcpy(step.ref.addr, value, strlen(value));
	return step;
}

/* A reference that was not set is not looked at. */
static inline struct store_step delete_of_bytes(const void *key, size_t key_len)
{
	return (struct store_step){
		.kind = STORE_STEP_DELETE, .key = key, .key_len = key_len, .ref.item = (struct store_item *)1};
}

static inline struct store_step delete_of(const char *key)
{
	return delete_of_bytes(key, strlen(key));
}

static inline struct store_step expire_of(const char *key, uint64_t expires)
{
	struct store_step step = delete_of(key);

	step.kind = STORE_STEP_EXPIRE;
	step.expires = expires;
	return step;
}

/* What is in the ring is given back, and then all of it. */
static inline void ring_close(struct fixture *r)
{
	struct store_change change;

	fixture_flush(r);
	while (r->store->changes.slot && store_changes_take(r->store, &change, 1))
		store_changes_release(r->store, &change, 1);
	fixture_close(r);
}

extern bool calloc_fails;

TCase *commit_model_case(void);
TCase *commit_threads_case(void);

#endif
