/*
 * evict: which item goes.
 *
 * The order is S3-FIFO: what is new enters a small queue of about a tenth of the bytes; what was
 * hit there more than once moves to the main queue at its end, the rest is evicted and leaves its
 * tag in a ghost queue; what comes back while its ghost is remembered enters the main queue at
 * once. The main queue gives each item another turn for each hit, up to three. A hit only counts up
 * two bits in the item, under the lock that the lookup holds anyway: nothing is moved, as an LRU
 * list would. A scan of keys used once passes through the small queue and never touches the main
 * one.
 *
 * The queues are of the whole store, so that the order holds for a few large values as for many small ones; a write
 * takes their lock for a moment, a read never does. Ghosts are the stripe's, and their time is the store's.
 */
#include "store/internal.h"

#include <stdlib.h>

#define STEPS_MAX 64  /* items looked at for one eviction, under the order's lock */
#define SMALL_LEAST 2 /* the last so many that came stay, however short the small queue should be */
#define GHOSTS_MIN 256
#define GHOST_WAYS 4

static void order_lock(struct order *o)
{
	lock_take(&o->lock, LOCK_ORDER);
}

static void order_unlock(struct order *o)
{
	lock_give(&o->lock, LOCK_ORDER);
}

static struct queue *queue_of(struct order *o, const struct store_item *item)
{
	return item->queue == QUEUE_MAIN ? &o->main : &o->small;
}

static uint32_t queue_count(const struct queue *q)
{
	return atomic_load_explicit(&q->count, memory_order_relaxed);
}

static void queue_count_add(struct queue *q, int n)
{
	atomic_store_explicit(&q->count, queue_count(q) + (uint32_t)n, memory_order_relaxed);
}

static void queue_add(const struct arena *a, struct queue *q, struct store_item *item)
{
	uint32_t me = arena_link(a, item);

	item->queue_prev = 0;
	item->queue_next = q->head;
	if (q->head)
		arena_item(a, q->head)->queue_prev = me;
	else
		q->tail = me;
	q->head = me;
	queue_count_add(q, 1);
	q->bytes += item_bytes(item);
}

static void queue_remove(const struct arena *a, struct queue *q, struct store_item *item)
{
	if (item->queue_next)
		arena_item(a, item->queue_next)->queue_prev = item->queue_prev;
	else
		q->tail = item->queue_prev;
	if (item->queue_prev)
		arena_item(a, item->queue_prev)->queue_next = item->queue_next;
	else
		q->head = item->queue_next;
	queue_count_add(q, -1);
	q->bytes -= item_bytes(item);
}

/*
 * Ghosts: tags of what left the small queue, in sets of four in which the oldest is replaced. One
 * counts while no more others came after it than the main queue has items.
 */

static struct ghost *ghost_set(const struct stripe *s, uint32_t tag)
{
	return &s->ghost[(tag * 0x9e3779b1u >> 7) & s->ghost_mask & ~(GHOST_WAYS - 1u)];
}

static bool ghost_take(struct store *store, struct stripe *s, uint32_t tag)
{
	struct ghost *set;
	uint32_t window = MAX(queue_count(&store->order.main), queue_count(&store->order.small));
	uint32_t clock = atomic_load_explicit(&store->order.ghost_clock, memory_order_relaxed);

	if (!s->ghost)
		return false;
	set = ghost_set(s, tag);
	for (unsigned i = 0; i < GHOST_WAYS; i++) {
		if (set[i].tag != tag || !set[i].stamp)
			continue;
		window = clock - set[i].stamp <= window;
		set[i].stamp = 0;
		return window;
	}
	return false;
}

static void ghost_put(struct store *store, struct stripe *s, uint32_t tag)
{
	struct ghost *set = ghost_set(s, tag), *oldest = set;
	uint32_t clock = 1 + atomic_fetch_add_explicit(&store->order.ghost_clock, 1, memory_order_relaxed);

	for (unsigned i = 1; i < GHOST_WAYS; i++)
		if (!set[i].stamp || (oldest->stamp && clock - set[i].stamp > clock - oldest->stamp))
			oldest = &set[i];
	*oldest = (struct ghost){tag, clock ? clock : 1};
}

/* Grows as the main queue does; without memory the old size goes on serving. */
static void ghost_grow(struct store *store, struct stripe *s)
{
	struct ghost *old = s->ghost, *new;
	uint32_t size = old ? s->ghost_mask + 1 : 0, share = queue_count(&store->order.main) / store->stripes;

	if (size >= MAX(GHOSTS_MIN, share + share / 2))
		return;
	new = calloc(MAX(GHOSTS_MIN, size * 2), sizeof(*new));
	if (!new)
		return;
	s->ghost = new;
	s->ghost_mask = MAX(GHOSTS_MIN, size * 2) - 1;
	for (uint32_t i = 0; i < size; i++)
		if (old[i].stamp)
			ghost_set(s, old[i].tag)[i % GHOST_WAYS] = old[i];
	free(old);
}

/*
 * The age of what is evicted: of a few items it is kept when they came. An item that stays gives its place to another
 * now and then.
 */
static unsigned probe_of(const struct store_item *item)
{
	return (item_tag(item) * 0x9e3779b1u >> 20) & (PROBES - 1);
}

static uint32_t probe_link(const struct order *o, unsigned at)
{
	return atomic_load_explicit(&o->probe[at].link, memory_order_relaxed);
}

static void probe_set(struct order *o, unsigned at, uint32_t link)
{
	atomic_store_explicit(&o->probe[at].link, link, memory_order_relaxed);
}

static void probe_add(struct order *o, uint32_t link, unsigned at)
{
	uint64_t now = atomic_load_explicit(&o->now, memory_order_relaxed);

	if (now && (!probe_link(o, at) || ++o->came % PROBE_EACH == 0)) {
		probe_set(o, at, link);
		o->probe[at].at = now;
	}
}

static void probe_remove(struct order *o, uint32_t link, unsigned at, bool evicted)
{
	uint64_t now = atomic_load_explicit(&o->now, memory_order_relaxed);

	if (likely(probe_link(o, at) != link))
		return;
	if (evicted)
		o->age[o->ages++ % PROBES] = now - MIN(now, o->probe[at].at);
	probe_set(o, at, 0);
}

uint64_t evict_age(struct store *store)
{
	struct order *o = &store->order;
	uint64_t sum = 0, n;

	order_lock(o);
	n = MIN(o->ages, PROBES);
	for (uint64_t i = 0; i < n; i++)
		sum += o->age[i] / n;
	order_unlock(o);
	return sum;
}

void evict_tick(struct store *store, uint64_t now)
{
	atomic_store_explicit(&store->order.now, now, memory_order_relaxed);
}

/*
 * The queues.
 */

void evict_add(struct store *store, struct stripe *s, struct store_item *item)
{
	struct order *o = &store->order;
	bool known;

	must(stripe_is_mine(s) && item->queue == QUEUE_NONE);
	if (store->eviction == STORE_EVICT_NONE)
		return;
	known = ghost_take(store, s, item_tag(item));
	order_lock(o);
	item->queue = known ? QUEUE_MAIN : QUEUE_SMALL;
	queue_add(&store->arena, queue_of(o, item), item);
	probe_add(o, arena_link(&store->arena, item), probe_of(item));
	order_unlock(o);
}

void evict_remove(struct store *store, struct stripe *s, struct store_item *item)
{
	struct order *o = &store->order;

	must(stripe_is_mine(s));
	if (store->eviction == STORE_EVICT_NONE)
		return;
	order_lock(o);
	queue_remove(&store->arena, queue_of(o, item), item);
	item->queue = QUEUE_NONE;
	probe_remove(o, arena_link(&store->arena, item), probe_of(item), false);
	order_unlock(o);
}

static void queue_replace(const struct arena *a, struct queue *q, struct store_item *old, struct store_item *new)
{
	uint32_t me = arena_link(a, new);

	new->queue = old->queue;
	new->queue_next = old->queue_next;
	new->queue_prev = old->queue_prev;
	if (new->queue_next)
		arena_item(a, new->queue_next)->queue_prev = me;
	else
		q->tail = me;
	if (new->queue_prev)
		arena_item(a, new->queue_prev)->queue_next = me;
	else
		q->head = me;
	q->bytes += item_bytes(new) - item_bytes(old);
}

void evict_move(struct store *store, struct stripe *s, struct store_item *old, struct store_item *new)
{
	struct order *o = &store->order;

	must(stripe_is_mine(s));
	atomic_store_explicit(&new->heat, atomic_load_explicit(&old->heat, memory_order_relaxed), memory_order_relaxed);
	if (store->eviction == STORE_EVICT_NONE)
		return;
	order_lock(o);
	queue_replace(&store->arena, queue_of(o, old), old, new);
	old->queue = QUEUE_NONE;
	if (probe_link(o, probe_of(old)) == arena_link(&store->arena, old))
		probe_set(o, probe_of(old), arena_link(&store->arena, new));
	order_unlock(o);
}

static bool item_pinned(const struct store_item *item)
{
	return item_refs(item) > 1;
}

/* An item that is to leave, by name: when the stripe's lock is held it may be gone. */
struct victim {
	uint32_t link, tag;
	bool was_small;
};

static struct victim victim_of(const struct arena *a, const struct store_item *item)
{
	return (struct victim){arena_link(a, item), item_tag(item), item->queue == QUEUE_SMALL};
}

/* One step at a queue's tail: true, the item may go; else it was moved. */
static bool order_step(struct store *store, struct queue *q, struct store_item *item, uint8_t heat)
{
	const struct arena *a = &store->arena;
	struct order *o = &store->order;

	if (heat <= (q == &o->small) && !item_pinned(item))
		return true;
	queue_remove(a, q, item);
	if (q == &o->small && heat > 1) {
		heat = 0;
		item->queue = QUEUE_MAIN;
		q = &o->main;
	} else if (q == &o->main && heat) {
		heat--;
	}
	atomic_store_explicit(&item->heat, heat, memory_order_relaxed);
	queue_add(a, q, item);
	return false;
}

/* `n` have been looked at: should all of the main queue be pinned, the small one's turn comes. */
static struct queue *order_queue(struct order *o, unsigned n)
{
	uint32_t small = queue_count(&o->small), main = queue_count(&o->main);
	bool long_enough = small > SMALL_LEAST && o->small.bytes * 10 > o->small.bytes + o->main.bytes;

	return small && (main <= n || long_enough) ? &o->small : &o->main;
}

/* Finds the next item in order; where all that it sees was read lately, the coldest: no write is refused for that. */
static bool order_victim(struct store *store, struct victim *out)
{
	struct order *o = &store->order;
	bool done = false;
	uint8_t coldest = UINT8_MAX, heat;

	order_lock(o);
	for (unsigned n = 0; n < STEPS_MAX && !done && queue_count(&o->small) + queue_count(&o->main); n++) {
		struct queue *q = order_queue(o, n);
		struct store_item *item = arena_item(&store->arena, q->tail);

		heat = atomic_load_explicit(&item->heat, memory_order_relaxed);
		if (heat < coldest && !item_pinned(item)) {
			*out = victim_of(&store->arena, item);
			coldest = heat;
		}
		done = order_step(store, q, item, heat);
		if (done)
			*out = victim_of(&store->arena, item);
	}
	order_unlock(o);
	return done || coldest != UINT8_MAX;
}

/* The tag may be that of a former item: the index is what tells, under the stripe's lock. */
bool evict_link(struct store *store, struct stripe *s, uint32_t tag, uint32_t link, uint64_t *size, struct dead *dead)
{
	struct store_item *item = arena_item(&store->arena, link);
	struct slot slot;

	must(stripe_is_mine(s));
	if (!index_find_link(&s->index, tag, link, &slot) || item_pinned(item) || unlikely(!change_grant(store)))
		return false;
	*size = item_bytes(item);
	if (unlikely(probe_link(&store->order, probe_of(item)) == link)) {
		order_lock(&store->order);
		probe_remove(&store->order, link, probe_of(item), true);
		order_unlock(&store->order);
	}
	store_item_drop(store, s, slot, item, DROP_EVICTED, dead);
	return true;
}

bool evict_next(struct store *store, uint64_t *size)
{
	struct dead dead = {0};
	struct victim v = {0};
	struct stripe *s;

	*size = 0;
	if (!order_victim(store, &v))
		return false;
	s = stripe_lock(store, v.tag);
	if (evict_link(store, s, v.tag, v.link, size, &dead) && v.was_small) {
		ghost_grow(store, s);
		if (s->ghost)
			ghost_put(store, s, v.tag);
	}
	stripe_unlock(store, s, &dead);
	return true;
}

bool evict_item(struct store *store, struct store_item *item)
{
	uint32_t tag = item_tag(item);
	struct stripe *s = stripe_lock(store, tag);
	struct dead dead = {0};
	uint64_t size;
	bool done = evict_link(store, s, tag, arena_link(&store->arena, item), &size, &dead);

	stripe_unlock(store, s, &dead);
	return done;
}
