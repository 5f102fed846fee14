/*
 * owner: whose the bytes are. An item counts for its owner from when its extent is there until it leaves the index, or
 * was not published; what is pinned after that counts for no owner. So a write counts beside what it writes over, and
 * may, as that goes at once.
 *
 * Where eviction is on, a write beyond the limit takes what the owner has of others: by a hand that goes over the index
 * as that of CLOCK does, which passes what was hit since (Corbato: A paging experiment with the Multics system, 1968).
 * The hand is the owner's own, and goes on where the last call has stopped. An order of an owner's own would cost each
 * of its writes the lines of two other items; the hand costs nothing but a write over the limit, and that one more, the
 * less of the store the owner has.
 */
#include "store/internal.h"

#define LOOK_BUCKETS 128 /* in one call */
#define ROUNDS_MOST 5    /* without a victim: each cools what was hit by one, of three */

/* Bytes that the owner has of this key already. */
static uint64_t bytes_replaced(struct store *store, uint16_t owner, uint32_t tag, const void *key, size_t key_len)
{
	struct stripe *s = stripe_lock(store, tag);
	struct store_item *old;
	struct slot slot;
	uint64_t bytes = 0;

	old = index_find(&s->index, &store->arena, tag, key, key_len, &slot);
	if (old && item_attributes(old).owner == owner)
		bytes = item_bytes(old);
	lock_give(&s->lock, LOCK_STRIPE);
	return bytes;
}

struct look {
	struct store *store;
	struct stripe *stripe;
	uint16_t owner;
	uint32_t spared; /* the tag of what is written */
	uint64_t freed;
	bool waits; /* for changes to be released */
	struct dead dead;
};

static bool look_visit(void *arg, uint32_t link)
{
	struct look *look = arg;
	struct store_item *item = arena_item(&look->store->arena, link);
	uint32_t tag = item_tag(item);
	uint8_t heat = atomic_load_explicit(&item->heat, memory_order_relaxed);
	uint64_t size;

	if (!item->attributes || item_attributes(item).owner != look->owner || tag == look->spared)
		return true;
	if (heat) {
		atomic_store_explicit(&item->heat, heat - 1, memory_order_relaxed);
		return true;
	}
	if (evict_link(look->store, look->stripe, tag, link, &size, &look->dead))
		look->freed += size;
	else if (store_changes_full(look->store))
		look->waits = true;
	return !look->waits;
}

/* Looks at some buckets, from the owner's hand on, until `need` bytes came free. */
static void look_on(struct store *store, struct owner *o, struct look *look, uint64_t need)
{
	unsigned budget = LOOK_BUCKETS;

	while (budget && look->freed < need && !look->waits && o->rounds < ROUNDS_MOST) {
		struct stripe *s = look->stripe = &store->stripe[o->stripe];

		lock_take(&s->lock, LOCK_STRIPE);
		do
			index_scan(&s->index, &o->hand, look_visit, look);
		while (--budget && look->freed < need && !look->waits && (o->hand.place || o->hand.skip));
		stripe_unlock(store, s, &look->dead);
		if (look->freed)
			o->rounds = 0;
		if (!o->hand.place && !o->hand.skip && ++o->stripe == store->stripes) {
			o->stripe = 0;
			o->rounds++;
		}
	}
}

/* -EAGAIN: that was a step; -EDQUOT: nothing of it may go. */
static int owner_make_room(struct store *store, struct owner *o, uint16_t owner, uint32_t tag, uint64_t need)
{
	struct look look = {.store = store, .owner = owner, .spared = tag};
	int rc = -EAGAIN;

	if (atomic_exchange_explicit(&o->looking, true, memory_order_acquire))
		return rc;
	look_on(store, o, &look, need);
	if (o->rounds >= ROUNDS_MOST) {
		o->rounds = 0;
		rc = -EDQUOT;
	}
	atomic_store_explicit(&o->looking, false, memory_order_release);
	return rc;
}

int owner_charge(struct store *store, uint16_t owner, uint32_t tag, const void *key, size_t key_len, uint64_t bytes)
{
	struct owner *o = &store->owner[owner];
	uint64_t limit = atomic_load_explicit(&o->limit, memory_order_relaxed);
	uint64_t all = bytes + atomic_fetch_add_explicit(&o->bytes, bytes, memory_order_relaxed), replaced;

	if (likely(all <= limit))
		return 0;
	replaced = bytes_replaced(store, owner, tag, key, key_len);
	if (all <= limit || all - limit <= replaced)
		return 0;
	atomic_fetch_sub_explicit(&o->bytes, bytes, memory_order_relaxed);
	if (bytes > limit || store->eviction == STORE_EVICT_NONE)
		return -EDQUOT;
	return owner_make_room(store, o, owner, tag, all - limit - replaced);
}

void store_set_limit(struct store *store, uint16_t owner, uint64_t limit)
{
	must(owner && owner < STORE_OWNERS);
	atomic_store_explicit(&store->owner[owner].limit, limit, memory_order_relaxed);
}

uint64_t store_owner_bytes(const struct store *store, uint16_t owner)
{
	must(owner && owner < STORE_OWNERS);
	return atomic_load_explicit(&store->owner[owner].bytes, memory_order_relaxed);
}
