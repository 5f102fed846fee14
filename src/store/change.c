/*
 * change: the ring of changes. Its index is the LSN: a change draws the next number under its stripe's lock, fills the
 * slot of that number and publishes it by writing the number there last; the one consumer waits for the number after
 * the last that it took. So nothing is merged and no lock is shared (the scheme of slots with sequence numbers by
 * Dmitry Vyukov's bounded queue, with the ticket as the version).
 *
 * A change asks for room before: `granted` counts grants, `released` changes that the consumer has done with, and their
 * difference never exceeds the ring. Grants come before numbers and releases after takes, so that a number's slot is
 * free when it is drawn; a thread that saw the release that makes it free has drawn before, or draws now, so drawing is
 * what orders the two. A short key and value are copied into the slot. Longer ones are immutable, and a reference is
 * the snapshot: of what is written a further one, of what is dropped the index's own.
 */
#include "store/internal.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HELD_SHIFT 4    /* changes hold at most a sixteenth of the arena, and the last one's value */
#define DROPPED_SHIFT 6 /* eviction waits while a sixty-fourth is dropped but not released, */
#define DROPPED_LEAST (32 * KIB)
#define DROPPED_MOST MIB
#define AHEAD 4       /* changes from now a slot is written, or read: its lines are fetched meanwhile, */
#define AHEAD_LINES 3 /* of one that is written as a rule so many */
#define HUGE_PAGE (2 * MIB)

_Static_assert(sizeof(struct change) == offsetof(struct change, copy) + CHANGE_COPY + 1, "whole cache lines");

int changes_init(struct changes *c, uint32_t size, uint64_t arena_size)
{
	size_t bytes = size * sizeof(*c->slot), page;

	if (!size)
		return 0;
	if (size & (size - 1) || size < CHANGES_MIN || size > CHANGES_MAX)
		return log_fail(-EINVAL, "store", "a ring of %u changes: a power of two from %u to %u needed", size,
				CHANGES_MIN, CHANGES_MAX);
	page = bytes < HUGE_PAGE ? CACHE_LINE : HUGE_PAGE;
	c->slot = aligned_alloc(page, bytes);
	if (!c->slot)
		return -ENOMEM;
	if (page == HUGE_PAGE)
		madvise(c->slot, bytes, MADV_HUGEPAGE); /* it is gone through again and again */
	memset(c->slot, 0, bytes);
	c->size = size;
	c->held_max = arena_size >> HELD_SHIFT;
	c->dropped_max = MIN(MAX(arena_size >> DROPPED_SHIFT, DROPPED_LEAST), DROPPED_MOST);
	return 0;
}

void changes_fini(struct changes *c)
{
	free(c->slot);
}

void store_changes_begin(struct store *store, uint64_t last)
{
	struct changes *c = &store->changes;

	must(c->slot && !c->on && last + c->size < ITEM_VERSION_MAX);
	c->next = last + 1;
	atomic_store(&c->last, last);
	c->flushed = atomic_load(&c->flush);
	c->on = true;
}

static struct change *slot_of(const struct changes *c, uint64_t lsn)
{
	return &c->slot[lsn & (c->size - 1)];
}

bool changes_grant(struct changes *c, unsigned n)
{
	if (atomic_load_explicit(&c->held, memory_order_relaxed) >= c->held_max)
		return false;
	if (atomic_fetch_add_explicit(&c->granted, n, memory_order_relaxed) + n -
		    atomic_load_explicit(&c->released, memory_order_acquire) <=
	    c->size)
		return true;
	changes_return(c, n);
	return false;
}

void changes_return(struct changes *c, unsigned n)
{
	atomic_fetch_sub_explicit(&c->granted, n, memory_order_relaxed);
}

bool store_changes_full(const struct store *store)
{
	const struct changes *c = &store->changes;

	return c->on &&
	       (atomic_load_explicit(&c->held, memory_order_relaxed) >= c->held_max || changes_hold_dropped(c, 0) ||
		atomic_load_explicit(&c->granted, memory_order_relaxed) -
				atomic_load_explicit(&c->released, memory_order_relaxed) >=
			c->size);
}

bool store_changes_hold(const struct store *store)
{
	return changes_hold(&store->changes);
}

uint64_t changes_draw(struct changes *c, unsigned n)
{
	return n + atomic_fetch_add_explicit(&c->last, n, memory_order_acq_rel);
}

void change_put_at(struct store *store, uint64_t lsn, struct store_item *item, enum store_change_type type,
		   uint8_t flags)
{
	struct changes *c = &store->changes;
	struct change *slot = slot_of(c, lsn);
	const char *ahead = (const char *)slot_of(c, lsn + AHEAD);
	bool set = type == STORE_CHANGE_SET;

	must(c->on && lsn < ITEM_VERSION_MAX);
	if (set)
		item->version = lsn;
	slot->type = type;
	slot->flags = flags;
	slot->version = item->version;
	slot->expires = item->expires;
	if (change_is_copy(item, type)) {
		slot->item = NULL;
		slot->key_len = (uint16_t)item->key_len;
		slot->value_len = set ? (uint16_t)item->value_len : 0;
		slot->attributes = set && item->attributes;
		memcpy(slot->copy, item->key, slot->key_len);
		memcpy(slot->copy + slot->key_len, item_value(item), set ? item->value_len + item_tail(item) : 0);
	} else {
		slot->item = item;
		atomic_fetch_add_explicit(&c->held, item_bytes(item), memory_order_relaxed);
		if (type == STORE_CHANGE_DELETE)
			atomic_fetch_add_explicit(&c->dropped, item_bytes(item), memory_order_relaxed);
	}
	atomic_store_explicit(&slot->lsn, lsn, memory_order_release);
	/* The thread that took the slot ahead last has its lines, and a lock that follows would wait for them. */
	for (unsigned i = 0; i < AHEAD_LINES; i++)
		prefetch_to_write(ahead + i * CACHE_LINE);
}

uint64_t change_put(struct store *store, struct store_item *item, enum store_change_type type, uint8_t flags)
{
	uint64_t lsn = changes_draw(&store->changes, 1);

	change_put_at(store, lsn, item, type, flags);
	return lsn;
}

bool changes_hold_dropped(const struct changes *c, uint64_t size)
{
	return c->on && atomic_load_explicit(&c->dropped, memory_order_relaxed) >= c->dropped_max + size;
}

int changes_flush(struct store *store)
{
	static struct store_item all = {.expires = TIME_NEVER}; /* no key */
	struct changes *c = &store->changes;
	struct stripe *s = &store->stripe[0];

	if (!c->on)
		return 0;
	if (!change_grant(store))
		return -EAGAIN;
	/* Two at a time: whichever is told last, all that is older than either goes. */
	lock_take(&s->lock, LOCK_STRIPE); /* for store_walk_begin() */
	atomic_raise(&c->flush, change_put(store, &all, STORE_CHANGE_FLUSH, 0));
	lock_give(&s->lock, LOCK_STRIPE);
	return 0;
}

/*
 * The consumer's side.
 */

static void change_read(const struct change *slot, uint64_t lsn, struct store_change *out)
{
	struct store_item *item = slot->item;
	struct item_attributes attributes = {0};

	*out = (struct store_change){
		.lsn = lsn,
		.version = slot->version,
		.expires = slot->expires,
		.type = slot->type,
		.flags = slot->flags,
		.key = item ? item->key : slot->copy,
		.key_len = item ? item->key_len : slot->key_len,
		.item = item,
	};
	if (slot->type == STORE_CHANGE_SET) {
		out->value = item ? item_value(item) : slot->copy + slot->key_len;
		out->value_len = item ? item->value_len : slot->value_len;
		if (item)
			attributes = item_attributes(item);
		else if (unlikely(slot->attributes))
			memcpy(&attributes, slot->copy + slot->key_len + slot->value_len, sizeof(attributes));
		out->item_flags = attributes.flags;
		out->item_type = attributes.type;
	}
	if (!out->key_len)
		out->key = NULL;
}

unsigned store_changes_take(struct store *store, struct store_change *out, unsigned most)
{
	struct changes *c = &store->changes;
	const char *told;
	unsigned n = 0;

	for (; n < most; n++) {
		const struct change *slot = slot_of(c, c->next + n);

		__builtin_prefetch(slot_of(c, c->next + n + AHEAD));
		if (atomic_load_explicit(&slot->lsn, memory_order_acquire) != c->next + n)
			break;
		/* Others have written it last: to fetch one takes as long as many at once. */
		told = slot->item ? (const char *)slot->item : (const char *)slot + CACHE_LINE;
		__builtin_prefetch(told);
		__builtin_prefetch(told + CACHE_LINE);
	}
	for (unsigned i = 0; i < n; i++, c->next++) {
		const struct change *slot = slot_of(c, c->next);

		if (slot->type == STORE_CHANGE_FLUSH) /* a walk from now on must know, perhaps before the teller */
			atomic_raise(&c->flush, c->next);
		change_read(slot, c->next, &out[i]);
	}
	return n;
}

void store_changes_release(struct store *store, struct store_change *change, unsigned n)
{
	struct changes *c = &store->changes;
	uint64_t held = 0, dropped = 0;

	for (unsigned i = 0; i < n; i++) {
		struct store_item *item = change[i].item;
		uint64_t bytes = item ? item_bytes(item) : 0;

		held += bytes;
		if (change[i].type == STORE_CHANGE_DELETE)
			dropped += bytes;
		if (item)
			store_item_release(store, item);
		change[i].item = NULL;
	}
	/* Once for all, as writers wait for these lines. */
	atomic_fetch_sub_explicit(&c->held, held, memory_order_relaxed);
	if (dropped)
		atomic_fetch_sub_explicit(&c->dropped, dropped, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->released, n, memory_order_release);
}

uint64_t store_lsn(const struct store *store)
{
	return atomic_load_explicit(&store->changes.last, memory_order_acquire);
}

uint64_t store_removed(struct store *store, const void *key, size_t key_len)
{
	return atomic_load_explicit(&store_stripe(store, store_tag(store, key, key_len))->removed,
				    memory_order_acquire);
}
