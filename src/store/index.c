/*
 * index: the hash table of one stripe. A bucket is one cache line of seven {tag, link} pairs, the
 * tag being 32 bits of the hash, so that a lookup touches one line of the table and then the item.
 * Buckets overflow into chained ones.
 *
 * The table doubles without a stop: the old one stays beside the new, every insert and remove
 * moves one more bucket, and a key is in exactly one of the two (in the old one iff its bucket
 * was not moved yet). Moving looks at tags only, never at items.
 */
#include "store/internal.h"

#include <stdlib.h>

#define LOAD_MAX 5       /* items a bucket, on average, before the table doubles */
#define BLOCK_BUCKETS 64 /* overflow buckets are allocated so many at a time */

static struct bucket *table_alloc(size_t buckets)
{
	/* aligned_alloc and memset would touch all of it now: the one long step of growth */
	char *raw = calloc(buckets + 2, sizeof(struct bucket));
	struct bucket *aligned;

	if (!raw)
		return NULL;
	aligned = (struct bucket *)(((uintptr_t)raw + 2 * CACHE_LINE - 1) & ~(CACHE_LINE - 1ull));
	((void **)aligned)[-1] = raw;
	return aligned;
}

static void table_free(struct bucket *bucket)
{
	if (bucket)
		free(((void **)bucket)[-1]);
}

int index_init(struct index *x)
{
	memset(x, 0, sizeof(*x));
	x->now.bucket = table_alloc(BUCKETS_MIN);
	x->now.mask = BUCKETS_MIN - 1;
	return x->now.bucket ? 0 : -ENOMEM;
}

void index_fini(struct index *x)
{
	struct bucket *block, *next;

	for (block = x->blocks; block; block = next) {
		next = block->next;
		table_free(block);
	}
	table_free(x->now.bucket);
	table_free(x->old.bucket);
	memset(x, 0, sizeof(*x));
}

/*
 * Overflow buckets. The first of a block links the blocks.
 */

static struct bucket *overflow_alloc(struct index *x)
{
	struct bucket *b = x->spare;

	if (likely(b)) {
		x->spare = b->next;
		memset(b, 0, sizeof(*b));
		return b;
	}
	b = table_alloc(BLOCK_BUCKETS);
	if (!b)
		return NULL;
	b->next = x->blocks;
	x->blocks = b;
	for (unsigned i = 1; i < BLOCK_BUCKETS - 1; i++) {
		b[i].next = x->spare;
		x->spare = &b[i];
	}
	return &b[BLOCK_BUCKETS - 1];
}

static void overflow_free_chain(struct index *x, struct bucket *b)
{
	struct bucket *next;

	for (; b; b = next) {
		next = b->next;
		b->next = x->spare;
		x->spare = b;
	}
}

static int bucket_add(struct index *x, struct bucket *b, uint32_t tag, uint32_t link)
{
	for (;; b = b->next) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			if (b->link[i])
				continue;
			b->tag[i] = tag;
			b->link[i] = link;
			return 0;
		}
		if (!b->next && !(b->next = overflow_alloc(x)))
			return -ENOMEM;
	}
}

/*
 * Growth.
 */

static void grow_begin(struct index *x)
{
	size_t buckets = ((size_t)x->now.mask + 1) * 2;
	struct bucket *bucket;

	if (x->old.bucket || buckets > UINT32_MAX / 2)
		return;
	bucket = table_alloc(buckets);
	if (!bucket)
		return; /* chains get longer; the next insert tries again */
	x->old = x->now;
	x->moved = 0;
	x->now.bucket = bucket;
	x->now.mask = (uint32_t)buckets - 1;
}

/* Move one bucket. Should memory for an overflow bucket lack, what was moved is taken back and the
 * next call tries again. */
static void grow_step(struct index *x)
{
	struct bucket *from = &x->old.bucket[x->moved], *b;
	struct bucket *low = &x->now.bucket[x->moved];
	struct bucket *high = &x->now.bucket[x->moved + x->old.mask + 1];
	int rc;

	for (b = from; b; b = b->next) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			if (!b->link[i])
				continue;
			rc = bucket_add(x, b->tag[i] & (x->old.mask + 1) ? high : low, b->tag[i], b->link[i]);
			if (rc != 0)
				goto undo;
		}
	}
	overflow_free_chain(x, from->next);
	from->next = NULL;
	if (++x->moved > x->old.mask) {
		table_free(x->old.bucket);
		memset(&x->old, 0, sizeof(x->old));
	}
	return;

undo:
	overflow_free_chain(x, low->next);
	overflow_free_chain(x, high->next);
	memset(low, 0, sizeof(*low));
	memset(high, 0, sizeof(*high));
}

/*
 * Operations.
 */

struct store_item *index_find(const struct index *x, const struct arena *a, uint32_t tag, const void *key,
			      size_t key_len, struct slot *slot)
{
	struct store_item *item;

	must(lock_rank_is_held(LOCK_STRIPE));
	for (struct bucket *b = index_bucket(x, tag); b; b = b->next) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			if (b->tag[i] != tag || !b->link[i])
				continue;
			item = arena_item(a, b->link[i]);
			if (item->key_len != key_len || memcmp(item->key, key, key_len))
				continue;
			*slot = (struct slot){b, i};
			return item;
		}
	}
	return NULL;
}

bool index_find_link(const struct index *x, uint32_t tag, uint32_t link, struct slot *slot)
{
	must(lock_rank_is_held(LOCK_STRIPE));
	for (struct bucket *b = index_bucket(x, tag); b; b = b->next) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			if (b->link[i] != link)
				continue;
			*slot = (struct slot){b, i};
			return true;
		}
	}
	return false;
}

int index_insert(struct index *x, uint32_t tag, uint32_t link)
{
	int rc;

	must(lock_rank_is_held(LOCK_STRIPE) && link);
	rc = bucket_add(x, index_bucket(x, tag), tag, link);
	if (rc != 0)
		return rc;
	x->count++;
	if (unlikely(x->old.bucket))
		grow_step(x);
	else if (unlikely(x->count > LOAD_MAX * ((uint64_t)x->now.mask + 1)))
		grow_begin(x);
	return 0;
}

void index_clear(struct index *x, struct slot slot)
{
	must(lock_rank_is_held(LOCK_STRIPE) && slot.bucket->link[slot.at]);
	slot.bucket->link[slot.at] = 0;
	x->count--;
}

void index_refill(struct index *x, uint32_t tag, uint32_t link)
{
	int rc = bucket_add(x, index_bucket(x, tag), tag, link);

	must(lock_rank_is_held(LOCK_STRIPE) && rc == 0);
	x->count++;
}

void index_remove(struct index *x, struct slot slot)
{
	index_clear(x, slot);
	if (unlikely(x->old.bucket))
		grow_step(x);
}

/*
 * Scan. The cursor counts with its bits reversed, so that the buckets a bucket splits into are
* exactly the buckets that its cursor stands for, whatever the table's size is at the next call (the
 * scheme by Pieter Noordhuis in Redis' dict.c, dictScan). While two tables exist, it walks the
 * smaller. Within a bucket it goes by the rest of the bits, so that a walk may stop between any two
 * links; only links of one whole tag are told apart by their number.
 */
#define SORTED 32 /* links of a bucket that are put in order at a time */

struct sorted {
	struct index_cursor from;
	unsigned n, skip;
	bool more; /* some did not fit; all of them come behind these */
	uint32_t place[SORTED], link[SORTED];
};

static uint32_t bits_reverse(uint32_t v)
{
	v = __builtin_bswap32(v);
	v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
	v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
	return (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
}

static void sorted_add(struct sorted *s, uint32_t place, uint32_t link)
{
	unsigned at = s->n;

	if (place < s->from.place)
		return;
	if (place == s->from.place && s->skip) {
		s->skip--;
		return;
	}
	while (at && s->place[at - 1] > place)
		at--;
	if (s->n == SORTED) {
		s->more = true;
		if (at == SORTED)
			return;
		s->n--;
	}
	memmove(&s->place[at + 1], &s->place[at], (s->n - at) * sizeof(s->place[0]));
	memmove(&s->link[at + 1], &s->link[at], (s->n - at) * sizeof(s->link[0]));
	s->place[at] = place;
	s->link[at] = link;
	s->n++;
}

static void sorted_add_bucket(struct sorted *s, const struct bucket *b)
{
	for (; b; b = b->next)
		for (unsigned i = 0; i < BUCKET_SLOTS; i++)
			if (b->link[i])
				sorted_add(s, bits_reverse(b->tag[i]), b->link[i]);
}

/* The cursor that goes on at `place` after the first `taken`. */
static struct index_cursor sorted_rest(const struct sorted *s, unsigned taken, uint32_t place)
{
	struct index_cursor rest = {.place = place};

	/* Links of that place come once more, so that none is passed over where one of them is removed meanwhile. Links
	 * of the place that the walk began with do not: it has to get on. */
	if (place != s->from.place)
		return rest;
	rest.skip = s->from.skip;
	while (taken && s->place[taken - 1] == place) {
		rest.skip++;
		taken--;
	}
	return rest;
}

unsigned index_scan(const struct index *x, struct index_cursor *cursor, index_visit_fn fn, void *arg)
{
	uint32_t mask = x->old.bucket ? x->old.mask : x->now.mask;
	uint32_t at = bits_reverse(cursor->place) & mask;
	struct sorted s = {.from = *cursor, .skip = cursor->skip};

	sorted_add_bucket(&s, index_bucket(x, at));
	if (x->old.bucket && at < x->moved)
		sorted_add_bucket(&s, &x->now.bucket[at + mask + 1]);
	for (unsigned i = 0; i < s.n; i++) {
		if (!fn(arg, s.link[i])) {
			*cursor = sorted_rest(&s, i, s.place[i]);
			return i;
		}
	}
	if (s.more)
		*cursor = sorted_rest(&s, s.n, s.place[s.n - 1]);
	else
		*cursor = (struct index_cursor){.place = (cursor->place | bits_reverse(~mask)) + 1};
	return s.n;
}
