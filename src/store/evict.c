/*
 * evict: which item goes, and how room is made.
 *
 * The order is S3-FIFO: what is new enters a small queue of about a tenth of the bytes; what was
 * hit there more than once moves to the main queue at its end, the rest is evicted and leaves its
 * tag in a ghost queue; what comes back while its ghost is remembered enters the main queue at
 * once. The main queue gives each item another turn for each hit, up to three. A hit only counts up
 * two bits in the item, under the lock that the lookup holds anyway: nothing is moved, as an LRU
 * list would. A scan of keys used once passes through the small queue and never touches the main
 * one.
 *
 * Making room first evicts in that order, from one stripe after the other. That is enough when
 * values are of similar sizes. A long run of pages, or a span for another class, does not come
 * free that way but by chance; so after some attempts a window of the arena, of the length that is
 * needed, is cleared of whatever lives there. It thus costs about as many bytes as it gains.
 */
#include "store/internal.h"

#include <stdlib.h>

#define ORDERLY_SMALL 256   /* evictions in order for one object, which is some 50 us, */
#define ORDERLY_LARGE 32    /* or for a run of pages, which small items seldom free, */
#define ORDERLY_BYTES 32768 /* or this much and four times what is needed; see below */
#define STEPS_MAX 256       /* items looked at per stripe and eviction */
#define WINDOWS_MAX 4       /* windows cleared in vain, spoiled by other threads */
#define LOOKS_MAX 256       /* windows looked at */
#define GHOSTS_MIN 256
#define GHOST_WAYS 4

static struct queue *queue_of(struct stripe *s, const struct store_item *item)
{
	return item->queue == QUEUE_MAIN ? &s->main : &s->small;
}

static uint64_t item_bytes(const struct store_item *item)
{
	return item_size(item->key_len, item->value_len);
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
	q->count++;
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
	q->count--;
	q->bytes -= item_bytes(item);
}

static void queue_rotate(const struct arena *a, struct queue *q, struct store_item *item)
{
	queue_remove(a, q, item);
	queue_add(a, q, item);
}

/*
 * Ghosts: tags of what left the small queue, in sets of four in which the oldest is replaced. One
 * counts while no more others came after it than the main queue has items.
 */

static struct ghost *ghost_set(const struct stripe *s, uint32_t tag)
{
	return &s->ghost[(tag * 0x9e3779b1u >> 7) & s->ghost_mask & ~(GHOST_WAYS - 1u)];
}

static bool ghost_take(struct stripe *s, uint32_t tag)
{
	struct ghost *set;
	uint32_t window = MAX(s->main.count, s->small.count);

	if (!s->ghost)
		return false;
	set = ghost_set(s, tag);
	for (unsigned i = 0; i < GHOST_WAYS; i++) {
		if (set[i].tag != tag || !set[i].stamp)
			continue;
		window = s->ghost_clock - set[i].stamp <= window;
		set[i].stamp = 0;
		return window;
	}
	return false;
}

static void ghost_put(struct stripe *s, uint32_t tag)
{
	struct ghost *set = ghost_set(s, tag), *oldest = set;

	for (unsigned i = 1; i < GHOST_WAYS; i++)
		if (!set[i].stamp || (oldest->stamp && s->ghost_clock - set[i].stamp > s->ghost_clock - oldest->stamp))
			oldest = &set[i];
	if (!++s->ghost_clock)
		s->ghost_clock = 1;
	*oldest = (struct ghost){tag, s->ghost_clock};
}

/* As the main queue grows; without memory the old size goes on serving. */
static void ghost_grow(struct stripe *s)
{
	struct ghost *old = s->ghost, *new;
	uint32_t size = old ? s->ghost_mask + 1 : 0;

	if (size >= MAX(GHOSTS_MIN, s->main.count + s->main.count / 2))
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
 * The queues.
 */

void evict_add(struct store *store, struct stripe *s, struct store_item *item)
{
	uint32_t tag = atomic_load_explicit(&item->tag, memory_order_relaxed);

	must(stripe_is_mine(s) && item->queue == QUEUE_NONE);
	item->heat = 0;
	if (store->eviction == STORE_EVICT_NONE)
		return;
	item->queue = ghost_take(s, tag) ? QUEUE_MAIN : QUEUE_SMALL;
	queue_add(&store->arena, queue_of(s, item), item);
}

void evict_remove(struct store *store, struct stripe *s, struct store_item *item)
{
	must(stripe_is_mine(s));
	if (item->queue != QUEUE_NONE)
		queue_remove(&store->arena, queue_of(s, item), item);
	item->queue = QUEUE_NONE;
}

void evict_replace(struct store *store, struct stripe *s, struct store_item *old, struct store_item *new)
{
	const struct arena *a = &store->arena;
	struct queue *q = queue_of(s, old);
	uint32_t me = arena_link(a, new);

	must(stripe_is_mine(s) && new->queue == QUEUE_NONE);
	new->heat = old->heat;
	new->queue = old->queue;
	old->queue = QUEUE_NONE;
	if (new->queue == QUEUE_NONE)
		return;
	evict_touch(new);
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

static bool item_pinned(const struct store_item *item)
{
	return atomic_load_explicit(&item->refs, memory_order_acquire) > 1;
}

/* One step at the small queue's tail: the item to evict, or NULL: it was moved. */
static struct store_item *small_step(const struct arena *a, struct stripe *s)
{
	struct store_item *item = arena_item(a, s->small.tail);

	if (item->heat > 1) {
		queue_remove(a, &s->small, item);
		item->heat = 0;
		item->queue = QUEUE_MAIN;
		queue_add(a, &s->main, item);
		return NULL;
	}
	if (item_pinned(item)) {
		queue_rotate(a, &s->small, item);
		return NULL;
	}
	ghost_grow(s);
	if (s->ghost)
		ghost_put(s, atomic_load_explicit(&item->tag, memory_order_relaxed));
	return item;
}

static struct store_item *main_step(const struct arena *a, struct stripe *s)
{
	struct store_item *item = arena_item(a, s->main.tail);

	if (!item->heat && !item_pinned(item))
		return item;
	if (item->heat)
		item->heat--;
	queue_rotate(a, &s->main, item);
	return NULL;
}

/* The unpinned item at the tail of a queue, if it is colder than the coldest that was met. */
static struct store_item *colder(const struct arena *a, const struct queue *q, struct store_item *coldest)
{
	struct store_item *item = arena_item(a, q->tail);

	return !item_pinned(item) && (!coldest || item->heat < coldest->heat) ? item : coldest;
}

/* Where all that is looked at was read lately, the coldest of it goes: a write is never refused for that. */
static struct store_item *stripe_victim(const struct arena *a, struct stripe *s)
{
	struct store_item *item = NULL, *coldest = NULL;

	must(stripe_is_mine(s));
	for (unsigned n = 0; n < STEPS_MAX && !item && s->small.count + s->main.count; n++) {
		bool small = s->small.count && (!s->main.count || s->small.bytes * 10 > s->small.bytes + s->main.bytes);

		coldest = colder(a, small ? &s->small : &s->main, coldest);
		item = small ? small_step(a, s) : main_step(a, s);
	}
	return item ? item : coldest;
}

static bool item_evict(struct store *store, struct stripe *s, struct store_item *item, struct dead *dead)
{
	uint32_t tag = atomic_load_explicit(&item->tag, memory_order_relaxed);
	struct slot slot;

	must(stripe_is_mine(s));
	if (!index_find_link(&s->index, tag, arena_link(&store->arena, item), &slot) || item_pinned(item))
		return false;
	store_item_drop(store, s, slot, item, dead);
	s->evictions++;
	return true;
}

/* Evict one item, from the next stripe that has one to give. False: there is none anywhere. */
static bool evict_one(struct store *store, uint64_t *freed)
{
	for (unsigned n = 0; n < store->stripes; n++) {
		uint32_t at = atomic_fetch_add_explicit(&store->evict_hand, 1, memory_order_relaxed);
		struct stripe *s = &store->stripe[at % store->stripes];
		struct store_item *item;
		struct dead dead = {0};

		lock_take(&s->lock, LOCK_STRIPE);
		item = stripe_victim(&store->arena, s);
		if (item) {
			*freed += item_bytes(item);
			item_evict(store, s, item, &dead);
		}
		lock_give(&s->lock, LOCK_STRIPE);
		store_dead_release(store, &dead);
		if (item)
			return true;
	}
	return false;
}

/*
 * Windows.
 */

static uint32_t refs_of(const struct store_item *item)
{
	return atomic_load_explicit(&item->refs, memory_order_acquire);
}

/* Nothing is evicted in vain: look first whether anything in the window is pinned or reserved. */
static bool window_is_clearable(struct store *store, struct window *w)
{
	struct store_item *item;

	arena_window_rewind(w);
	while ((item = arena_window_next(&store->arena, w)))
		if (refs_of(item) > 1)
			return false;
	return true;
}

/* The tag may be that of a former item: the index is what tells, under the stripe's lock. */
static bool window_evict_item(struct store *store, struct store_item *item)
{
	uint32_t tag = atomic_load_explicit(&item->tag, memory_order_relaxed);
	struct stripe *s = store_stripe(store, tag);
	struct dead dead = {0};
	bool done;

	lock_take(&s->lock, LOCK_STRIPE);
	done = item_evict(store, s, item, &dead);
	lock_give(&s->lock, LOCK_STRIPE);
	store_dead_release(store, &dead);
	return done;
}

static bool window_clear(struct store *store, struct window *w)
{
	struct store_item *item;

	arena_trim(&store->arena); /* of empty spans, which else would stay in it */
	arena_window_rewind(w);
	while ((item = arena_window_next(&store->arena, w)))
		if (refs_of(item) && !window_evict_item(store, item) && refs_of(item))
			return false;
	return true;
}

/* One pass over the arena from where the last one ended. */
static struct store_item *window_search(struct store *store, uint64_t size, uint64_t asked)
{
	bool large = size > SMALL_MAX, wrapped = false, clear;
	struct window w = {.pages = arena_pages_of(&store->arena, size), .hand = store->window_hand};
	uint32_t begin = w.hand;
	struct store_item *item = NULL;
	int spoiled = 0;

	for (int n = 0; n < LOOKS_MAX && !item && spoiled < WINDOWS_MAX; n++) {
		if (wrapped && w.hand > begin)
			break;
		if (!arena_window_claim(&store->arena, &w)) {
			if (wrapped)
				break;
			wrapped = true;
			w.hand = 0;
			continue;
		}
		clear = window_is_clearable(store, &w);
		if (clear)
			spoiled++;
		clear = clear && window_clear(store, &w);
		item = arena_window_finish(&store->arena, &w, clear && large, asked);
		if (clear && !item)
			item = arena_alloc(&store->arena, size, asked);
	}
	store->window_hand = w.hand;
	return item;
}

static void window_lock(struct store *store)
{
	if (LOCK_NOTED)
		lock_note_take(&store->window_lock, LOCK_WINDOW);
	pthread_mutex_lock(&store->window_lock);
}

static void window_unlock(struct store *store)
{
	if (LOCK_NOTED)
		lock_note_give(&store->window_lock, LOCK_WINDOW);
	pthread_mutex_unlock(&store->window_lock);
}

/* Another thread may have freed what is needed while this one waited for its turn. */
static struct store_item *window_make_room(struct store *store, uint64_t size, uint64_t asked)
{
	struct store_item *item;

	window_lock(store);
	item = arena_alloc(&store->arena, size, asked);
	if (!item)
		item = window_search(store, size, asked);
	window_unlock(store);
	return item;
}

/* The orderly part pays even where it frees nothing for this extent: what it frees serves other
 * classes, and a window takes hot items with the cold. */
struct store_item *evict_make_room(struct store *store, uint64_t size, uint64_t asked)
{
	struct store_item *item;
	unsigned most = size > SMALL_MAX ? ORDERLY_LARGE : ORDERLY_SMALL;
	uint64_t freed = 0;

	must(store->eviction == STORE_EVICT_S3_FIFO);
	for (unsigned n = 0; n < most && freed <= 4 * size + ORDERLY_BYTES; n++) {
		if (!evict_one(store, &freed))
			break;
		item = arena_alloc(&store->arena, size, asked);
		if (item)
			return item;
	}
	return window_make_room(store, size, asked);
}
