/*
 * move: an item to another place in the arena. Items are reached by a link alone, which is swapped under the stripe's
 * lock, and only while the item is not pinned; so a reader never sees it at two places. The old place is then free.
 */
#include "store/internal.h"

/* An extent's item, if it is in the index: its stripe is locked then. */
static struct stripe *item_lock(struct store *store, struct store_item *item, struct slot *slot)
{
	uint32_t tag = item_tag(item);
	struct stripe *s = stripe_lock(store, tag);

	if (index_find_link(&s->index, tag, arena_link(&store->arena, item), slot))
		return s;
	lock_give(&s->lock, LOCK_STRIPE);
	return NULL;
}

/* The header, and all that leads to it. */
static void item_rehouse(struct store *store, struct stripe *s, struct slot slot, struct store_item *old,
			 struct store_item *new)
{
	must(stripe_is_mine(s));
	atomic_store_explicit(&new->tag, item_tag(old), memory_order_relaxed);
	new->value_len = old->value_len;
	new->key_len = old->key_len;
	new->attributes = old->attributes;
	new->version = old->version;
	new->expires = old->expires;
	evict_move(store, s, old, new);
	wheel_move(store, s, old, new);
	slot.bucket->link[slot.at] = arena_link(&store->arena, new);
	atomic_store_explicit(&new->refs, 1, memory_order_release);
	atomic_fetch_add_explicit(&store->moves, 1, memory_order_relaxed);
}

static void body_copy(struct store_item *new, const struct store_item *old, uint64_t size)
{
	memmove(new->key, old->key, size - sizeof(*old));
}

/* Not in the index: free, reserved, or pinned by a thread after it was overwritten. */
static int not_found(const struct store_item *item)
{
	return item_refs(item) ? -EBUSY : 0;
}

int move_object(struct store *store, struct store_item *item, bool grow)
{
	struct store_item *new;
	struct stripe *s;
	struct slot slot;
	uint64_t size, asked;

	s = item_lock(store, item, &slot);
	if (!s)
		return not_found(item);
	size = item_bytes(item);
	asked = item_asked(item);
	lock_give(&s->lock, LOCK_STRIPE);
	new = arena_alloc_packed(&store->arena, size, asked);
	if (!new &&grow)
		new = arena_alloc(&store->arena, size, asked);
	if (!new)
		return -ENOMEM;
	s = item_lock(store, item, &slot);
	if (!s || item_refs(item) > 1 || item_bytes(item) != size) {
		if (s)
			lock_give(&s->lock, LOCK_STRIPE);
		arena_free(&store->arena, new, asked);
		return s ? -EBUSY : not_found(item);
	}
	body_copy(new, item, size);
	asked = item_asked(item);
	item_rehouse(store, s, slot, item, new);
	lock_give(&s->lock, LOCK_STRIPE);
	arena_free(&store->arena, item, asked);
	return 0;
}

/* Moves it by so little that the two places overlap under the lock, at once; else without the lock, under a pin: a
 * published value does not change. */
static int move_down(struct store *store, struct window *w, struct store_item *item, uint64_t by)
{
	struct store_item *new = arena_at_page(&store->arena, w->packed);
	struct slot slot;
	struct stripe *s = item_lock(store, item, &slot);
	uint64_t size;
	int rc = 0;

	if (!s)
		return not_found(item);
	if (item_refs(item) > 1) {
		lock_give(&s->lock, LOCK_STRIPE);
		return -EBUSY;
	}
	size = item_bytes(item);
	if (by < size) {
		arena_window_slide(&store->arena, w, item);
		item_rehouse(store, s, slot, item, new);
		body_copy(new, item, size);
		lock_give(&s->lock, LOCK_STRIPE);
		return 0;
	}
	atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
	lock_give(&s->lock, LOCK_STRIPE);
	body_copy(new, item, size);
	s = item_lock(store, item, &slot);
	if (!s) { /* overwritten or deleted meanwhile: it goes with this pin, or with another's */
		store_item_release(store, item);
		return 0;
	}
	if (item_refs(item) == 2) {
		arena_window_slide(&store->arena, w, item);
		item_rehouse(store, s, slot, item, new);
	} else {
		atomic_fetch_sub_explicit(&item->refs, 1, memory_order_release);
		rc = -EBUSY;
	}
	lock_give(&s->lock, LOCK_STRIPE);
	return rc;
}

int move_large(struct store *store, struct window *w, struct store_item *item)
{
	uint32_t gap;

	if (!arena_window_gap(&store->arena, w, &gap))
		return -EBUSY;
	if (!item_refs(item)) /* it went while the walk came here */
		return 0;
	if (gap)
		return move_down(store, w, item, (uint64_t)gap << PAGE_SHIFT);
	arena_window_slide(&store->arena, w, item);
	return 0;
}
