/*
 * room: how room is made when the arena is full, in steps of some 100 us, of which a request takes one a call.
 *
 * Where eviction is on, items are evicted in order first. That is enough when values are of similar sizes. For a large
 * extent it goes on until as many pages are free; but small items give whole pages only by chance, so of them it takes
 * few.
 *
 * Free pages in a row come by a window, a stretch of the arena that is claimed and cleared. The cheapest is taken.
 * First it is packed: large items in it move together, and the objects of its spans move to other spans, or, where
 * there is no place and eviction is on, are evicted. Should no window do, one is cleared of everything, where that may
 * be evicted. Where eviction is off, spans are gathered before: a class whose objects have as many free places as a
 * span gives one up.
 *
 * An extent may grow: its bytes may never come, and nothing is to be evicted for them in vain. The stretch for all of
 * it is looked for at once, the cheapest that is cleared of everything, but only its beginning is cleared. The extent
 * takes the rest by and by, run by run. Other extents that grow keep out of its stretch; whatever else comes there
 * meanwhile goes, when its place is asked for.
 *
 * The window stands from call to call and belongs to the request that it was begun for, which is told by its key and
 * size. Requests that come meanwhile, and cannot be served otherwise, do steps for it; when it is clear they leave it
 * to its request for some calls. So each call is progress, and a request that comes again is served, or
 * refused, in the end.
 */
#include "store/internal.h"

#define BUDGET 1024         /* units of a call: an item looked at is one */
#define COST_ITEM 4         /* an item evicted or moved, */
#define COST_SHIFT 10       /* and for each KiB copied one more */
#define COST_LOOK 256       /* a look for a window */
#define ORDERLY_MAX 256     /* evictions in order in a call */
#define ORDERLY_SMALL 32    /* of small items, for a large one */
#define ORDERLY_BYTES 32768 /* or so much and four times what is needed, for a small one */
#define AGAIN_MAX 8         /* calls that wait for what is pinned in a window */
#define FAILED_MAX 16       /* windows given up, spoiled by other threads */
#define PATIENCE 64         /* calls of others for which a window waits for its request */
#define ABANDONED TIME_S    /* a request that did not come again so long */
#define SLACK 64            /* pages to gather beyond what is needed, since moving needs some */

struct request {
	uint32_t tag;
	uint64_t size, asked, part;
	int budget;
	struct store_item *item;
};

static bool is_large(const struct request *r)
{
	return r->size > SMALL_MAX;
}

/* An extent may have come free by now. */
static bool request_try(struct store *store, struct request *r)
{
	r->item = arena_alloc(&store->arena, r->size, r->asked);
	return r->item;
}

/*
 * In order.
 */

static bool pages_suffice(struct store *store, const struct request *r)
{
	return arena_get_pages_free(&store->arena) >= arena_pages_least(&store->arena, r->size);
}

/* True: enough was evicted in order, or all there is, and a window has to be cleared. */
static bool evict_in_order(struct store *store, struct request *r)
{
	uint64_t size, freed = 0;
	unsigned small = 0;

	for (unsigned n = 0; n < ORDERLY_MAX; n++) {
		if (is_large(r) && (small > ORDERLY_SMALL || pages_suffice(store, r)))
			return true;
		if (!is_large(r) && freed > 4 * r->size + ORDERLY_BYTES)
			return !changes_hold(&store->changes); /* else it comes free when they are released */
		if (changes_hold_dropped(&store->changes, r->size))
			return false;
		if (!evict_next(store, &size))
			return true;
		freed += size;
		small += size <= SMALL_MAX;
		if (request_try(store, r))
			return false;
	}
	return !is_large(r);
}

/*
 * Windows. All under the window's lock.
 */

static void stage_begin(struct store *store, enum room_stage stage)
{
	struct room *room = &store->room;
	uint32_t pages = store->arena.pages.count;
	static const enum window_kind kind[] = {
		[ROOM_GATHER] = WINDOW_GATHER, [ROOM_PACK] = WINDOW_PACK, [ROOM_CLEAR] = WINDOW_CLEAR};

	room->stage = stage;
	room->failed = 0;
	room->left = 2 * pages - room->window.hand; /* to the end, and all of it */
	if (stage < ROOM_READY)
		room->window.kind = kind[stage];
}

/* Something has to go: for an extent that may grow only its part is cleared. */
static void clear_begin(struct store *store)
{
	struct room *room = &store->room;

	if (room->part) {
		room->window.whole = arena_pages_of(&store->arena, room->size);
		room->window.pages = arena_pages_of(&store->arena, room->part);
	}
	stage_begin(store, ROOM_CLEAR);
}

static void room_begin(struct store *store, const struct request *r)
{
	struct room *room = &store->room;

	room->tag = r->tag;
	room->size = r->size;
	room->part = r->part;
	room->others = 0;
	room->window.whole = 0;
	room->window.pages = arena_pages_of(&store->arena, r->size);
	arena_trim(&store->arena);
	/* Where there is room in pieces it is moved together, and nothing has to go. */
	if (r->part && !pages_suffice(store, r))
		clear_begin(store);
	else
		stage_begin(store, store->eviction == STORE_EVICT_NONE ? ROOM_GATHER : ROOM_PACK);
}

/* No window is left to try: the next way, if there is one. */
static void stage_end(struct store *store)
{
	struct room *room = &store->room;
	struct arena *a = &store->arena;

	if (room->stage == ROOM_GATHER && arena_get_pages_free(a) < room->window.pages)
		room->window.pages = arena_pages_least(a, room->size);
	if (room->stage == ROOM_GATHER && arena_get_pages_free(a) >= room->window.pages)
		stage_begin(store, ROOM_PACK);
	else if (room->stage == ROOM_PACK && store->eviction != STORE_EVICT_NONE)
		clear_begin(store);
	else
		room->stage = ROOM_REFUSED;
}

static void pass_on(struct store *store, uint32_t past)
{
	struct room *room = &store->room;

	room->left -= MIN(room->left, past);
	if (!room->left || room->failed >= FAILED_MAX)
		stage_end(store);
}

static void window_look(struct store *store)
{
	struct room *room = &store->room;
	uint32_t past;

	if (room->stage == ROOM_GATHER &&
	    arena_get_pages_free(&store->arena) >= room->window.pages + MIN(room->window.pages, SLACK)) {
		stage_end(store);
		return;
	}
	room->stands = arena_window_claim(&store->arena, &room->window, &past);
	room->checked = false;
	room->again = 0;
	if (room->stands)
		arena_trim(&store->arena); /* of empty spans, which else would stay in it */
	else
		pass_on(store, past);
}

static void window_give_up(struct store *store)
{
	struct room *room = &store->room;

	room->stands = false;
	room->failed++;
	arena_window_finish(&store->arena, &room->window, false, 0);
	pass_on(store, room->window.pages);
}

/* Something in it is pinned or being written: wait a little, where it was not so when the window was claimed. */
static void window_obstacle(struct store *store, struct request *r)
{
	if (!changes_hold(&store->changes) && ++store->room.again > AGAIN_MAX)
		window_give_up(store);
	else
		r->budget = 0;
}

/* Nothing is evicted or moved in vain: look first whether anything is pinned or reserved. */
static void window_check(struct store *store, struct request *r)
{
	struct room *room = &store->room;
	struct store_item *item;

	while (r->budget-- > 0) {
		item = arena_window_next(&store->arena, &room->window);
		if (!item) {
			room->checked = true;
			arena_window_rewind(&room->window);
			return;
		}
		if (item_refs(item) > 1) {
			window_give_up(store);
			return;
		}
	}
}

/* An extent in the window goes: moved or evicted. 0 or -errno, as the functions of move.c. */
static int extent_clear(struct store *store, struct store_item *item, bool large, struct request *r)
{
	struct room *room = &store->room;
	bool evicts = store->eviction != STORE_EVICT_NONE;
	int rc = -ENOMEM;

	r->budget -= COST_ITEM;
	if (large && room->stage == ROOM_PACK) {
		uint32_t pages = store->arena.pages.page[room->window.page].pages;

		r->budget -= (int)(pages << PAGE_SHIFT >> COST_SHIFT);
		return move_large(store, &room->window, item);
	}
	if (!large)
		rc = move_object(store, item, !evicts && room->stage == ROOM_PACK);
	if (rc == -ENOMEM && evicts)
		rc = evict_item(store, item) || !item_refs(item) ? 0 : -EBUSY;
	return rc;
}

static void window_cleared(struct store *store, struct request *r)
{
	struct room *room = &store->room;

	if (!arena_window_is_clear(&store->arena, &room->window)) { /* something came while it was claimed */
		arena_window_rewind(&room->window);
		window_obstacle(store, r);
	} else if (room->stage != ROOM_GATHER) {
		room->stage = ROOM_READY;
	} else {
		room->stands = false;
		arena_window_finish(&store->arena, &room->window, false, 0);
		stage_begin(store, ROOM_GATHER);
	}
}

static void window_clear(struct store *store, struct request *r)
{
	struct window *w = &store->room.window;
	struct store_item *item;
	uint32_t page, object;
	bool large;
	int rc;

	while (r->budget-- > 0) {
		page = w->page;
		object = w->object;
		item = arena_window_next(&store->arena, w);
		if (!item) {
			window_cleared(store, r);
			return;
		}
		if (!item_refs(item))
			continue;
		large = atomic_load(&store->arena.pages.page[w->page].state) == PAGE_LARGE;
		rc = extent_clear(store, item, large, r);
		if (rc == 0)
			continue;
		w->page = page;
		w->object = object;
		if (rc == -EBUSY)
			window_obstacle(store, r);
		else
			window_give_up(store);
		return;
	}
}

static void room_end(struct store *store)
{
	struct room *room = &store->room;

	if (room->stands)
		arena_window_finish(&store->arena, &room->window, false, 0);
	room->stands = false;
	room->stage = ROOM_IDLE;
	room->size = 0;
}

/* Steps, until the budget is spent or the stage is one of the last two. */
static void room_work(struct store *store, struct request *r)
{
	struct room *room = &store->room;

	while (r->budget > 0 && room->stage < ROOM_READY) {
		if (!room->stands) {
			r->budget -= COST_LOOK;
			window_look(store);
		} else if (!room->checked) {
			window_check(store, r);
		} else {
			window_clear(store, r);
		}
	}
}

/* The request's own window is clear, or there is none. */
static int room_conclude(struct store *store, struct request *r)
{
	struct room *room = &store->room;
	bool refused = room->stage == ROOM_REFUSED;

	if (room->stands) {
		room->stands = false;
		r->item = arena_window_finish(&store->arena, &room->window, is_large(r), r->asked);
	}
	if (r->item && room->window.pages < room->window.whole &&
	    !arena_growth_begin(&store->arena, r->item, &room->window, r->asked)) {
		arena_free(&store->arena, r->item, r->asked);
		r->item = NULL;
		refused = true;
	}
	room_end(store);
	if (r->item || request_try(store, r))
		return 0;
	return refused ? -ENOMEM : -EAGAIN;
}

static bool room_is_for(const struct room *room, const struct request *r)
{
	return room->size == r->size && room->tag == r->tag && room->part == r->part;
}

static int room_step(struct store *store, struct request *r)
{
	struct room *room = &store->room;
	bool mine = room_is_for(room, r);

	if (request_try(store, r)) {
		if (mine)
			room_end(store);
		return 0;
	}
	if (room->stage != ROOM_IDLE && !mine) { /* it waits a while for its request, when it is done */
		room_work(store, r);
		if (room->stage >= ROOM_READY && ++room->others > PATIENCE)
			room_end(store);
		return -EAGAIN;
	}
	if (room->stage == ROOM_IDLE)
		room_begin(store, r);
	room->calls++;
	room->others = 0;
	room_work(store, r);
	return room->stage < ROOM_READY ? -EAGAIN : room_conclude(store, r);
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

static bool window_is_for(struct store *store, const struct request *r)
{
	bool is;

	window_lock(store);
	is = store->room.stands && room_is_for(&store->room, r);
	window_unlock(store);
	return is;
}

int room_make(struct store *store, const struct room_want *want, uint64_t now, struct store_item **out)
{
	struct request r = {want->tag, want->size, want->asked, want->part, .budget = BUDGET};
	bool evicts = store->eviction != STORE_EVICT_NONE;
	/* What has expired goes first, which may be enough. */
	bool expires = atomic_load_explicit(&store->due, memory_order_relaxed) <= now &&
		       (store_tick(store, now) <= now || request_try(store, &r));
	uint64_t evicted = 0;
	int rc = -EAGAIN;

	if (!expires && (!evicts || r.part || window_is_for(store, &r) || evict_in_order(store, &r))) {
		window_lock(store);
		rc = room_step(store, &r);
		window_unlock(store);
	}
	if (r.item)
		rc = 0;
	/* A small one is served in the end by what goes in order, and be it all. */
	if (rc == -ENOMEM && evicts && !is_large(&r) && evict_next(store, &evicted))
		rc = -EAGAIN;
	*out = r.item;
	return rc == -ENOMEM && changes_hold(&store->changes) ? -EAGAIN : rc;
}

/* Clears the way of an extent that grows, in a step. 0: all has gone; -EAGAIN: not all of it. */
static int run_clear(struct store *store, struct growing *g, struct request *r)
{
	struct arena *a = &store->arena;
	struct page *run = &a->pages.page[g->run];
	char *base = (char *)arena_at_page(a, g->run);
	bool large = atomic_load(&run->state) == PAGE_LARGE;
	struct store_item *item = (struct store_item *)base;

	if (large) {
		r->budget -= COST_ITEM;
		return evict_item(store, item) || !item_refs(item) ? 0 : -EBUSY;
	}
	for (; r->budget-- > 0; g->object++) {
		if (g->object >= atomic_load_explicit(&run->fresh, memory_order_acquire)) {
			g->object = 0;
			return atomic_load(&run->state) == PAGE_SPAN ? -EBUSY : 0;
		}
		item = (struct store_item *)(base + (uint64_t)g->object * a->class_size[run->class]);
		if (item_refs(item))
			extent_clear(store, item, false, r); /* or later: it is looked at again */
	}
	return -EAGAIN;
}

/* Changes hold what was evicted until they are released. So what is large goes now, up to the piece's end: the growth
 * then waits once for many, not for each. Whether an item is still there, its stripe tells. */
static void evict_ahead(struct store *store, const struct growing *g, uint32_t pages, struct request *r)
{
	struct arena *a = &store->arena;
	uint32_t end = g->first + pages, at = g->first + 1;

	while (r->budget > 0 && (at = arena_next_large(a, at, end)) < end) {
		evict_item(store, arena_at_page(a, at));
		r->budget -= COST_ITEM;
		at++;
	}
}

int room_grow(struct store *store, struct store_item *item, uint64_t bytes)
{
	struct request r = {.budget = BUDGET};
	uint32_t pages = arena_pages_of(&store->arena, bytes);
	struct growing *g;
	int rc;

	window_lock(store);
	g = arena_growth(&store->arena, item);
	do {
		rc = arena_grow(&store->arena, g, pages);
		if (rc == 1 && g->object == 0)
			arena_trim(&store->arena); /* of a span that is empty */
		if (rc == 1)
			rc = run_clear(store, g, &r) == -EBUSY ? -EBUSY : -EAGAIN;
	} while (rc == -EAGAIN && r.budget > 0);
	if (rc == -EBUSY && changes_hold(&store->changes))
		evict_ahead(store, g, pages, &r);
	window_unlock(store);
	return rc;
}

void room_grow_end(struct store *store, struct store_item *item, bool whole)
{
	struct arena *a = &store->arena;

	window_lock(store);
	arena_growth_end(a, arena_growth(a, item), whole || store->room.stands ? NULL : &store->room.window);
	window_unlock(store);
}

void room_tick(struct store *store, uint64_t now)
{
	struct room *room = &store->room;

	window_lock(store);
	if (room->calls != room->seen || room->stage == ROOM_IDLE) {
		room->seen = room->calls;
		room->seen_at = now;
	} else if (now >= time_after(room->seen_at, ABANDONED)) {
		room_end(store);
	}
	window_unlock(store);
}
