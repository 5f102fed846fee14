/*
 * keys.c: what goes over all keys, in steps: the scan for people, the walk for copies, and delete-all; and
 * one that is drawn of all.
 */
#include "store/internal.h"

#define FLUSH_SOME 1024  /* items after which a flush pauses, */
#define FLUSH_STRIPE 128 /* or gives a stripe's lock back; or buckets, */
#define FLUSH_TURNS 128  /* and stripes after which it pauses where they are empty */
#define FLUSH_PATIENCE TIME_S
#define SCAN_BUCKETS 8 /* buckets looked at for each key of the budget */
#define PICK_TRIES 64  /* places of a table that are drawn, */
#define PICK_CHAIN 3   /* of so many buckets each, before its keys are looked through, */
#define PICK_HELD 1024 /* so many buckets under its stripe's lock */

/* A visit's common part: the stripe whose lock is held, and whether it takes no more. */
struct visit {
	struct store *store;
	struct stripe *stripe;
	uint64_t now;
	bool full;
};

static bool cursor_begins(const struct index_cursor *cursor)
{
	return !cursor->place && !cursor->skip;
}

/* The cursor: the stripe above the index's skip and place. */
static void visit_keys(struct visit *visit, uint64_t *cursor, unsigned budget, index_visit_fn fn)
{
	struct store *store = visit->store;
	uint64_t at = *cursor >> 48, work = (uint64_t)MAX(budget, 1) * SCAN_BUCKETS;
	struct index_cursor in = {.place = (uint32_t)*cursor, .skip = (uint16_t)(*cursor >> 32)};

	while (at < store->stripes && work && !visit->full) {
		struct stripe *s = visit->stripe = &store->stripe[at];
		unsigned n;

		lock_take(&s->lock, LOCK_STRIPE);
		do {
			n = index_scan(&s->index, &in, fn, visit);
			work -= MIN(work, 1 + (uint64_t)n * SCAN_BUCKETS);
		} while (!cursor_begins(&in) && work && !visit->full);
		lock_give(&s->lock, LOCK_STRIPE);
		at += !visit->full && cursor_begins(&in);
	}
	*cursor = at < store->stripes ? at << 48 | (uint64_t)in.skip << 32 | in.place : 0;
}

struct scan {
	struct visit visit;
	const void *prefix;
	size_t prefix_len;
	store_scan_fn fn;
	void *arg;
	bool took; /* the callback took one */
};

static bool scan_visit(void *arg, uint32_t link)
{
	struct scan *scan = arg;
	const struct store_item *item = arena_item(&scan->visit.store->arena, link);
	struct store_meta meta;

	if (item->expires <= scan->visit.now || item->key_len < scan->prefix_len ||
	    (scan->prefix_len && memcmp(item->key, scan->prefix, scan->prefix_len)))
		return true;
	meta_set(&meta, item);
	scan->visit.full = !scan->fn(scan->arg, item->key, item->key_len, &meta);
	must(scan->took || !scan->visit.full);
	scan->took = true;
	return !scan->visit.full;
}

void store_scan(struct store *store, uint64_t *cursor, unsigned budget, const void *prefix, size_t prefix_len,
		uint64_t now, store_scan_fn fn, void *arg)
{
	struct scan scan = {{.store = store, .now = now}, prefix, prefix_len, fn, arg, false};

	visit_keys(&scan.visit, cursor, budget, scan_visit);
}

struct walk {
	struct visit visit;
	struct store_walked *out;
	unsigned n, most;
	uint64_t below; /* versions that go: a delete-all was told of, and has not come to them yet */
};

static bool walk_visit(void *arg, uint32_t link)
{
	struct walk *walk = arg;
	struct store_item *item = arena_item(&walk->visit.store->arena, link);
	struct store_walked *out = &walk->out[walk->n];

	if (item->expires <= walk->visit.now || item->version < walk->below)
		return true;
	walk->visit.full = walk->n == walk->most;
	if (walk->visit.full)
		return false;
	item_pin(walk->visit.stripe, item);
	ref_set(&out->ref, item, item->version);
	out->key = item->key;
	out->key_len = item->key_len;
	out->expires = item->expires;
	walk->n++;
	return true;
}

/* All changes but a delete-all draw their number under the lock of the stripe that they change, which the walk takes
 * later. */
uint64_t store_walk_begin(struct store *store)
{
	struct stripe *s = &store->stripe[0];
	uint64_t lsn;

	lock_take(&s->lock, LOCK_STRIPE);
	lsn = store_lsn(store);
	lock_give(&s->lock, LOCK_STRIPE);
	return lsn;
}

unsigned store_walk(struct store *store, uint64_t *cursor, uint64_t now, struct store_walked *out, unsigned most)
{
	struct walk walk = {{.store = store, .now = now}, out, 0, most, 0};

	if (store->changes.on)
		walk.below = atomic_load(&store->changes.flush);
	visit_keys(&walk.visit, cursor, most, walk_visit);
	return walk.n;
}

uint64_t store_highest(struct store *store)
{
	uint64_t highest = 0;

	for (unsigned i = 0; i < store->stripes; i++) {
		struct stripe *s = &store->stripe[i];

		lock_take(&s->lock, LOCK_STRIPE);
		highest = MAX(highest, s->version);
		lock_give(&s->lock, LOCK_STRIPE);
	}
	return highest;
}

void store_raise(struct store *store, uint64_t version)
{
	must(!store->changes.on && version < ITEM_VERSION_MAX);
	for (unsigned i = 0; i < store->stripes; i++) {
		struct stripe *s = &store->stripe[i];

		lock_take(&s->lock, LOCK_STRIPE);
		s->version = MAX(s->version, version);
		lock_give(&s->lock, LOCK_STRIPE);
	}
}

struct flush {
	struct store *store;
	struct stripe *stripe;
	uint64_t below;     /* versions that go */
	store_goes_fn goes; /* and which keys of them; NULL: all, without an event of each */
	void *arg;
	unsigned dropped;
	struct dead dead;
};

static bool flush_visit(void *arg, uint32_t link)
{
	struct flush *f = arg;
	struct store_item *item = arena_item(&f->store->arena, link);
	struct slot slot;

	if (item->version < f->below && (!f->goes || f->goes(f->arg, item->key, item->key_len)) &&
	    index_find_link(&f->stripe->index, item_tag(item), link, &slot)) {
		store_item_drop(f->store, f->stripe, slot, item, f->goes ? DROP_DELETED : DROP_FLUSHED, &f->dead);
		f->dropped++;
	}
	return true;
}

/* Some buckets, under the lock: with changes, what was written before the last delete-all was told of. An empty table
 * that has grown makes place for a small one; without memory for that it stays. */
static unsigned stripe_flush(struct store *store, struct stripe *s, struct index_cursor *cursor, store_goes_fn goes,
			     void *arg)
{
	struct flush f = {.store = store,
			  .stripe = s,
			  .below = store->changes.slot ? atomic_load(&store->changes.flush) : UINT64_MAX,
			  .goes = goes,
			  .arg = arg};
	struct index fresh, old = {0};
	unsigned seen = 0, buckets = 0;

	lock_take(&s->lock, LOCK_STRIPE);
	do {
		seen += index_scan(&s->index, cursor, flush_visit, &f);
		cursor->skip = 0; /* the passed ones are gone, or come again and stay */
	} while (!cursor_begins(cursor) && seen < FLUSH_STRIPE && ++buckets < FLUSH_STRIPE);
	if (f.dropped && store->changes.on)
		stripe_removed(s, f.below);
	if (cursor_begins(cursor) && !s->index.count && s->index.now.mask >= BUCKETS_MIN && index_init(&fresh) == 0) {
		old = s->index;
		s->index = fresh;
	}
	stripe_unlock(store, s, &f.dead);
	index_fini(&old);
	return f.dropped;
}

static void flush_step(struct store *store, uint64_t *cursor, uint64_t *deleted, store_goes_fn goes, void *arg)
{
	uint64_t at = *cursor >> 32;
	struct index_cursor in = {.place = (uint32_t)*cursor};

	*deleted = 0;
	for (unsigned turns = 0; at < store->stripes && *deleted < FLUSH_SOME && turns < FLUSH_TURNS; turns++) {
		*deleted += stripe_flush(store, &store->stripe[at], &in, goes, arg);
		at += cursor_begins(&in);
	}
	*cursor = at < store->stripes ? at << 32 | in.place : 0;
}

/* All is gone: sooner, a watcher might read again what is about to go. */
static void tell_all(struct store *store, enum store_event_type type)
{
	struct stripe *s = &store->stripe[0];
	struct dead dead = {0};

	if (!events_on(store))
		return;
	lock_take(&s->lock, LOCK_STRIPE);
	event_tell(store, (struct event){type}, &dead);
	stripe_unlock(store, s, &dead);
}

void store_tell_came(struct store *store)
{
	tell_all(store, STORE_EVENT_MISSED);
}

void store_hold_flushes(struct store *store, bool held)
{
	must(held || atomic_load(&store->changes.flushes_held));
	if (held)
		atomic_fetch_add(&store->changes.flushes_held, 1);
	else
		atomic_fetch_sub(&store->changes.flushes_held, 1);
}

bool store_flushes_held(const struct store *store)
{
	return atomic_load_explicit(&store->changes.flushes_held, memory_order_relaxed);
}

uint64_t store_flushes(const struct store *store)
{
	return atomic_load(&store->changes.flush_steps);
}

/* It is counted before the look, so that one of the two sees the other that holds it and then looks at the count. */
static bool flush_is_held(struct store *store)
{
	if (atomic_load(&store->changes.flushes_held))
		return true;
	atomic_fetch_add(&store->changes.flush_steps, 1);
	return atomic_load(&store->changes.flushes_held);
}

int store_flush_some(struct store *store, uint64_t *cursor, uint64_t *deleted)
{
	int rc = flush_is_held(store) ? -EAGAIN : *cursor ? 0 : changes_flush(store);

	*deleted = 0;
	if (rc != 0)
		return rc;
	flush_step(store, cursor, deleted, NULL, NULL);
	if (!*cursor)
		tell_all(store, STORE_EVENT_FLUSHED);
	return 0;
}

unsigned store_sweep_some(struct store *store, uint64_t *cursor, store_goes_fn goes, void *arg)
{
	uint64_t deleted;

	must(!store->changes.on);
	flush_step(store, cursor, &deleted, goes, arg);
	return (unsigned)deleted;
}

bool store_flush_rest(struct store *store, uint64_t now)
{
	struct changes *c = &store->changes;
	uint64_t steps = atomic_load_explicit(&c->flush_steps, memory_order_relaxed), deleted;

	if (!c->on || atomic_load(&c->flush) == c->flushed)
		return false;
	if (steps != c->flush_seen) {
		c->flush_seen = steps;
		c->flush_seen_at = now;
	}
	if (now < time_after(c->flush_seen_at, FLUSH_PATIENCE))
		return false;
	if (!c->flush_cursor)
		c->flushing = atomic_load(&c->flush);
	flush_step(store, &c->flush_cursor, &deleted, NULL, NULL);
	if (!c->flush_cursor) {
		c->flushed = c->flushing;
		tell_all(store, STORE_EVENT_FLUSHED);
	}
	return c->flush_cursor;
}

/*
 * A key that is drawn: first the stripe, by the number of its keys, then a place in its table, until there is a key.
 * Where that is seldom, one is drawn of the next ones in the order of the walk; of a small table that is of all.
 */
struct pick {
	struct visit visit;
	uint64_t random;
	unsigned seen; /* keys of which one was taken */
	unsigned char *key;
	size_t len;
};

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t pick_draw(struct pick *p)
{
	uint64_t z = p->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* Each visited item is the one with the same probability. */
static bool pick_visit(void *arg, uint32_t link)
{
	struct pick *p = arg;
	const struct store_item *item = arena_item(&p->visit.store->arena, link);

	if (item->expires <= p->visit.now || pick_draw(p) % ++p->seen)
		return true;
	p->len = item->key_len;
	memcpy(p->key, item->key, p->len);
	return true;
}

/* Walks from the cursor to the table's end. */
static void pick_walk(struct pick *p, struct stripe *s, struct index_cursor cursor)
{
	bool ends;

	do {
		unsigned n = 0;

		lock_take(&s->lock, LOCK_STRIPE);
		do {
			index_scan(&s->index, &cursor, pick_visit, p);
			ends = cursor_begins(&cursor);
		} while (!ends && ++n < PICK_HELD);
		lock_give(&s->lock, LOCK_STRIPE);
	} while (!p->seen && !ends);
}

static void pick_of_stripe(struct pick *p, struct stripe *s)
{
	uint32_t count, mask;

	lock_take(&s->lock, LOCK_STRIPE);
	count = s->index.count;
	mask = s->index.now.mask;
	for (unsigned n = 0; n < PICK_TRIES && count && !p->seen; n++) {
		uint64_t random = pick_draw(p);
		const struct bucket *b = index_bucket(&s->index, (uint32_t)random);
		unsigned at = (unsigned)((random >> 32) % (PICK_CHAIN * BUCKET_SLOTS));

		for (; b && at >= BUCKET_SLOTS; at -= BUCKET_SLOTS)
			b = b->next;
		if (b && b->link[at])
			pick_visit(p, b->link[at]);
	}
	lock_give(&s->lock, LOCK_STRIPE);
	if (count && !p->seen && mask >= PICK_HELD)
		pick_walk(p, s, (struct index_cursor){.place = (uint32_t)pick_draw(p)});
	if (count && !p->seen)
		pick_walk(p, s, (struct index_cursor){0});
}

static unsigned pick_stripe(struct pick *p)
{
	struct store *store = p->visit.store;
	uint32_t counts[STRIPES_MAX];
	uint64_t all = 0, at;
	unsigned i = 0;

	for (; i < store->stripes; i++) {
		struct stripe *s = &store->stripe[i];

		lock_take(&s->lock, LOCK_STRIPE);
		all += counts[i] = s->index.count;
		lock_give(&s->lock, LOCK_STRIPE);
	}
	if (!all)
		return 0;
	at = pick_draw(p) % all;
	for (i = 0; at >= counts[i]; i++)
		at -= counts[i];
	return i;
}

size_t store_random(struct store *store, uint64_t random, uint64_t now, void *key)
{
	struct pick p = {.visit = {.store = store, .now = now}, .random = random, .key = key};
	unsigned first = pick_stripe(&p);

	for (unsigned i = 0; i < store->stripes && !p.seen; i++)
		pick_of_stripe(&p, &store->stripe[(first + i) % store->stripes]);
	return p.len;
}
