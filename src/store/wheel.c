/*
 * wheel: expiry by a hierarchical timer wheel, one per stripe (Varghese and Lauck, SOSP 1987).
 * Eight levels of 64 slots, a tick of about a millisecond: 2^48 ticks, more than 64 bits of
 * nanoseconds hold, so no time is too far. An item sits at the level of the highest digit (of 6
 * bits) in which its tick differs from the wheel's; it comes down one level each time the wheel
 * reaches its slot.
 *
 * An item's wheel_prev names the item before it, or, tagged, the slot that it heads.
 */
#include "store/internal.h"

static uint64_t tick_of(uint64_t ns)
{
	return ns >> WHEEL_SHIFT;
}

static unsigned tick_digit(uint64_t tick, unsigned level)
{
	return (tick >> (level * WHEEL_BITS)) % WHEEL_SLOTS;
}

static void slot_add(const struct arena *a, struct wheel *w, struct store_item *item)
{
	/* Rounded up: when the tick has come, the time has passed. */
	uint64_t after = tick_of(item->expires) + !!(item->expires & ((1u << WHEEL_SHIFT) - 1));
	uint64_t tick = MAX(after, w->now), differ = tick ^ w->now;
	unsigned level = differ ? (63 - (unsigned)__builtin_clzll(differ)) / WHEEL_BITS : 0;
	unsigned slot = tick_digit(tick, level);
	uint32_t *head = &w->head[level][slot], me = arena_link(a, item);

	item->wheel_next = *head;
	item->wheel_prev = LINK_TAGGED + level * WHEEL_SLOTS + slot;
	if (*head)
		arena_item(a, *head)->wheel_prev = me;
	*head = me;
	w->map[level] |= 1ull << slot;
	w->count++;
}

static void slot_remove(const struct arena *a, struct wheel *w, struct store_item *item)
{
	unsigned at = item->wheel_prev - LINK_TAGGED;

	if (item->wheel_next)
		arena_item(a, item->wheel_next)->wheel_prev = item->wheel_prev;
	if (item->wheel_prev < LINK_TAGGED) {
		arena_item(a, item->wheel_prev)->wheel_next = item->wheel_next;
	} else {
		w->head[at / WHEEL_SLOTS][at % WHEEL_SLOTS] = item->wheel_next;
		if (!item->wheel_next)
			w->map[at / WHEEL_SLOTS] &= ~(1ull << (at % WHEEL_SLOTS));
	}
	item->wheel_prev = 0;
	w->count--;
}

void wheel_link(struct store *store, struct stripe *s, struct store_item *item, uint64_t now)
{
	if (!s->wheel.count)
		s->wheel.now = tick_of(now);
	slot_add(&store->arena, &s->wheel, item);
	due_lower(&s->due, item->expires);
	due_lower(&store->due, item->expires);
}

void wheel_unlink(struct store *store, struct stripe *s, struct store_item *item)
{
	slot_remove(&store->arena, &s->wheel, item);
}

void wheel_move(struct store *store, struct stripe *s, struct store_item *old, struct store_item *new)
{
	const struct arena *a = &store->arena;
	unsigned at = old->wheel_prev - LINK_TAGGED;
	uint32_t me = arena_link(a, new);

	must(stripe_is_mine(s));
	new->wheel_next = old->wheel_next;
	new->wheel_prev = old->wheel_prev;
	if (!new->wheel_prev)
		return;
	if (new->wheel_next)
		arena_item(a, new->wheel_next)->wheel_prev = me;
	if (new->wheel_prev < LINK_TAGGED)
		arena_item(a, new->wheel_prev)->wheel_next = me;
	else
		s->wheel.head[at / WHEEL_SLOTS][at % WHEEL_SLOTS] = me;
}

/* The level of a slot that the wheel has reached and not emptied yet, 0 if none. */
static unsigned level_to_settle(const struct wheel *w)
{
	for (unsigned level = WHEEL_LEVELS - 1; level; level--)
		if (w->map[level] >> tick_digit(w->now, level) & 1)
			return level;
	return 0;
}

/* Empty a slot: down to the levels below, or, at level 0, out. False: the budget is spent. */
static bool slot_drain(struct store *store, struct stripe *s, unsigned level, unsigned *budget, struct dead *dead)
{
	struct wheel *w = &s->wheel;
	uint32_t *head = &w->head[level][tick_digit(w->now, level)];
	struct slot slot;

	while (*head) {
		struct store_item *item = arena_item(&store->arena, *head);

		if (!*budget)
			return false;
		--*budget;
		if (level) {
			slot_remove(&store->arena, w, item);
			slot_add(&store->arena, w, item);
		} else if (index_find_link(&s->index, item_tag(item), *head, &slot)) { /* always: it is in the index */
			store_item_drop(store, s, slot, item, DROP_EXPIRED, dead);
		}
	}
	return true;
}

/* The tick at which the next slot that is not empty begins; UINT64_MAX: the wheel is empty. */
static uint64_t next_tick(const struct wheel *w)
{
	for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
		unsigned shift = level * WHEEL_BITS;
		uint64_t map = w->map[level] & ~0ull << tick_digit(w->now, level);

		if (map)
			return (w->now >> shift & ~(uint64_t)(WHEEL_SLOTS - 1)) << shift |
			       (uint64_t)__builtin_ctzll(map) << shift;
	}
	return UINT64_MAX;
}

uint64_t wheel_advance(struct store *store, struct stripe *s, uint64_t now, unsigned *budget, struct dead *dead)
{
	struct wheel *w = &s->wheel;
	uint64_t until = tick_of(now), next;
	unsigned level;

	must(stripe_is_mine(s));
	for (;;) {
		level = level_to_settle(w);
		if (!level) {
			next = next_tick(w);
			if (next > until)
				break;
			w->now = next;
			level = level_to_settle(w);
		}
		if (!slot_drain(store, s, level, budget, dead))
			return now;
	}
	w->now = MAX(w->now, until);
	return next == UINT64_MAX ? TIME_NEVER : next << WHEEL_SHIFT;
}
