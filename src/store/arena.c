/*
 * arena: extents for items. Up to 32 KiB an extent is an object of a size class (eight classes for
 * each doubling, so at most 12.5 % too long), cut from a span of pages; beyond, it is a run of
 * whole pages. Threads are spread over heaps, each with its own lock and spans, so that small
 * allocations of different threads do not meet; an object goes back to the heap its span belongs
 * to. A span without objects goes back to the page runs (one per heap and class is kept until
 * memory is short), so that small memory becomes large memory again.
 */
#include "store/internal.h"

#include <stdlib.h>

#define HEAP_SHARE (64 * MIB) /* of arena for each heap */
#define SPAN_PAGES_MIN 8
#define SPAN_PAGES_MAX 64

static uint32_t page_number(const struct arena *a, const struct page *page)
{
	return (uint32_t)(page - a->pages.page);
}

static bool span_claimed(const struct page *span)
{
	return atomic_load_explicit(&span->claimed, memory_order_relaxed);
}

/*
 * Size classes.
 */

/* Takes as few pages as leave no more than 1/32 unused at the span's end, else the best number there is. */
static void class_size_span(struct arena *a, unsigned class)
{
	uint32_t size = a->class_size[class], best = UINT32_MAX, pages_best = 0;
	uint32_t min = MIN(SPAN_PAGES_MIN, MAX(1, a->pages.count / 512));
	uint32_t max = MIN(SPAN_PAGES_MAX, MAX(min, a->pages.count / 32));

	min = MAX(min, (size + PAGE_BYTES - 1) / PAGE_BYTES);
	for (uint32_t n = min; n <= MAX(min, max); n++) {
		uint32_t bytes = n * PAGE_BYTES, share = (bytes % size) * 1024 / (bytes / 1024);

		if (share < best) {
			best = share;
			pages_best = n;
		}
		if (bytes % size * 32 <= bytes)
			break;
	}
	a->class_pages[class] = (uint16_t)pages_best;
}

static void class_init_all(struct arena *a)
{
	uint32_t granule = 1u << a->shift, size = MAX(SMALL_MIN, granule), step;
	unsigned at = 0;

	for (; size <= SMALL_MAX; size += step) {
		step = MAX(granule, (1u << (31 - __builtin_clz(size))) / 8);
		a->class_size[a->classes] = size;
		for (; at <= size / GRANULE_MIN; at++)
			a->class_of[at] = (uint8_t)a->classes;
		class_size_span(a, a->classes++);
	}
}

static unsigned class_of(const struct arena *a, uint64_t size)
{
	return a->class_of[(size + GRANULE_MIN - 1) / GRANULE_MIN];
}

static uint64_t large_pages(uint64_t size)
{
	return (size + PAGE_BYTES - 1) >> PAGE_SHIFT;
}

int arena_init(struct arena *a, void *base, size_t size)
{
	int rc;

	a->base = base;
	a->shift = 4;
	while ((size >> a->shift) >= LINK_TAGGED - 1)
		a->shift++;
	a->heaps = (unsigned)MAX(1, MIN(HEAPS_MAX, size / HEAP_SHARE));
	if (a->shift > PAGE_SHIFT)
		return log_fail(-EINVAL, "store", "arena of %zu bytes is beyond what a 32-bit link reaches", size);
	rc = pages_create(&a->pages, (uint32_t)(size >> PAGE_SHIFT));
	if (rc != 0)
		return rc;
	class_init_all(a);
	return 0;
}

void arena_fini(struct arena *a)
{
	pages_destroy(&a->pages);
}

bool arena_can_hold(const struct arena *a, uint64_t size)
{
	return size <= SMALL_MAX || large_pages(size) <= a->pages.count;
}

uint32_t arena_pages_least(const struct arena *a, uint64_t size)
{
	return (uint32_t)large_pages(size > SMALL_MAX ? size : a->class_size[class_of(a, size)]);
}

uint32_t arena_pages_of(const struct arena *a, uint64_t size)
{
	return size <= SMALL_MAX ? a->class_pages[class_of(a, size)] : (uint32_t)large_pages(size);
}

/*
 * Heaps. All of this under the heap's lock.
 */

static bool heap_is_mine(const struct heap *h)
{
	return lock_is_mine(&h->lock, LOCK_HEAP);
}

static uint32_t heap_partial(const struct heap *h, unsigned class)
{
	return atomic_load_explicit(&h->partial[class], memory_order_relaxed);
}

static void heap_link(struct arena *a, struct heap *h, struct page *span)
{
	uint32_t first = heap_partial(h, span->class), me = page_number(a, span) + 1;

	must(heap_is_mine(h) && !span->linked);
	span->linked = true;
	span->prev = 0;
	span->next = first;
	if (first)
		a->pages.page[first - 1].prev = me;
	atomic_store_explicit(&h->partial[span->class], me, memory_order_relaxed);
}

static void heap_unlink(struct arena *a, struct heap *h, struct page *span)
{
	must(heap_is_mine(h) && span->linked);
	span->linked = false;
	if (span->next)
		a->pages.page[span->next - 1].prev = span->prev;
	if (span->prev)
		a->pages.page[span->prev - 1].next = span->next;
	else
		atomic_store_explicit(&h->partial[span->class], span->next, memory_order_relaxed);
}

static void heap_add_slots(struct heap *h, unsigned class, int n)
{
	uint32_t now = atomic_load_explicit(&h->slots[class], memory_order_relaxed);

	atomic_store_explicit(&h->slots[class], now + (uint32_t)n, memory_order_relaxed);
}

static uint16_t span_used(const struct page *span)
{
	return atomic_load_explicit(&span->used, memory_order_relaxed);
}

/* An empty span goes back to the page runs. */
static void span_give(struct arena *a, struct heap *h, struct page *span)
{
	must(heap_is_mine(h) && span_used(span) == 0);
	heap_add_slots(h, span->class, -span->objects);
	pages_give(&a->pages, page_number(a, span));
}

static void heap_add_spares(struct heap *h, int n)
{
	uint32_t now = atomic_load_explicit(&h->spares, memory_order_relaxed);

	atomic_store_explicit(&h->spares, now + (uint32_t)n, memory_order_relaxed);
}

/* The next span with a free object; spans that a window claims are passed over. One without objects was claimed between
 * its pages' and its heap's step of growth: it goes, because no free will ever give it back. */
static struct page *heap_span(struct arena *a, struct heap *h, unsigned class)
{
	struct page *span;
	uint32_t at;

	must(heap_is_mine(h));
	while ((at = heap_partial(h, class))) {
		span = &a->pages.page[at - 1];
		if (likely(!span_claimed(span)))
			return span;
		heap_unlink(a, h, span);
		if (!span_used(span))
			span_give(a, h, span);
	}
	at = h->spare[class];
	if (!at || span_claimed(&a->pages.page[at - 1]))
		return NULL;
	h->spare[class] = 0;
	heap_add_spares(h, -1);
	heap_link(a, h, &a->pages.page[at - 1]);
	return &a->pages.page[at - 1];
}

static struct store_item *span_take(struct arena *a, struct heap *h, struct page *span)
{
	unsigned class = span->class;
	struct store_item *item;
	uint16_t fresh;

	must(heap_is_mine(h) && span_used(span) < span->objects);
	if (span->free) {
		item = arena_item(a, span->free);
		span->free = item->queue_next;
		atomic_store_explicit(&item->refs, ITEM_RESERVED + 1, memory_order_release);
	} else {
		fresh = atomic_load_explicit(&span->fresh, memory_order_relaxed);
		item = (struct store_item *)((char *)arena_at_page(a, page_number(a, span)) +
					     (uint64_t)fresh * a->class_size[class]);
		atomic_store_explicit(&item->refs, ITEM_RESERVED + 1, memory_order_relaxed);
		atomic_store_explicit(&span->fresh, fresh + 1, memory_order_release);
	}
	heap_add_slots(h, class, -1);
	atomic_store_explicit(&span->used, span_used(span) + 1, memory_order_relaxed);
	if (span_used(span) == span->objects)
		heap_unlink(a, h, span);
	h->used += a->class_size[class];
	return item;
}

static struct store_item *heap_take(struct arena *a, struct heap *h, unsigned class, uint64_t asked)
{
	struct store_item *item = NULL;
	struct page *span;

	lock_take(&h->lock, LOCK_HEAP);
	span = heap_span(a, h, class);
	if (likely(span)) {
		item = span_take(a, h, span);
		h->asked += asked;
	}
	lock_give(&h->lock, LOCK_HEAP);
	return item;
}

/* A new span for the heap, of fewer pages than usual where no run of that length is left; false: no pages. */
static bool heap_grow(struct arena *a, unsigned heap, unsigned class)
{
	struct heap *h = &a->heap[heap];
	uint32_t n = a->class_pages[class], least = (uint32_t)large_pages(a->class_size[class]);
	uint32_t first = pages_take(&a->pages, n, (int)class, heap);
	struct page *span;

	while (first == UINT32_MAX && n > least) {
		n = MAX(least, n / 2);
		first = pages_take(&a->pages, n, (int)class, heap);
	}
	if (first == UINT32_MAX)
		return false;
	span = &a->pages.page[first];
	lock_take(&h->lock, LOCK_HEAP);
	span->objects = (uint16_t)(span->pages * PAGE_BYTES / a->class_size[class]);
	heap_add_slots(h, class, span->objects);
	heap_link(a, h, span);
	lock_give(&h->lock, LOCK_HEAP);
	return true;
}

/* An emptied span: the spare of its class if that place is free, else back to the page runs. */
static void span_retire(struct arena *a, struct heap *h, struct page *span)
{
	must(heap_is_mine(h) && span_used(span) == 0);
	if (span->linked)
		heap_unlink(a, h, span);
	if (span_claimed(span) || h->spare[span->class] || heap_partial(h, span->class)) {
		span_give(a, h, span);
		return;
	}
	h->spare[span->class] = page_number(a, span) + 1;
	heap_add_spares(h, 1);
}

static void heap_give(struct arena *a, struct page *span, struct store_item *item, uint64_t asked)
{
	struct heap *h = &a->heap[atomic_load_explicit(&span->heap, memory_order_relaxed)];

	lock_take(&h->lock, LOCK_HEAP);
	must(span_used(span) > 0);
	item->queue_next = span->free;
	span->free = arena_link(a, item);
	h->used -= a->class_size[span->class];
	h->asked -= asked;
	heap_add_slots(h, span->class, 1);
	atomic_store_explicit(&span->used, span_used(span) - 1, memory_order_relaxed);
	if (span_used(span) == 0)
		span_retire(a, h, span);
	else if (!span->linked && !span_claimed(span))
		heap_link(a, h, span);
	lock_give(&h->lock, LOCK_HEAP);
}

static void heap_trim(struct arena *a, struct heap *h)
{
	lock_take(&h->lock, LOCK_HEAP);
	for (unsigned c = 0; c < a->classes; c++) {
		if (!h->spare[c])
			continue;
		span_give(a, h, &a->pages.page[h->spare[c] - 1]);
		h->spare[c] = 0;
	}
	atomic_store_explicit(&h->spares, 0, memory_order_relaxed);
	lock_give(&h->lock, LOCK_HEAP);
}

void arena_trim(struct arena *a)
{
	for (unsigned i = 0; i < a->heaps; i++)
		if (atomic_load_explicit(&a->heap[i].spares, memory_order_relaxed))
			heap_trim(a, &a->heap[i]);
}

void arena_span_unclaim(struct arena *a, uint32_t first)
{
	struct page *span = &a->pages.page[first];
	struct heap *h = &a->heap[atomic_load_explicit(&span->heap, memory_order_relaxed)];

	must(lock_rank_is_held(LOCK_WINDOW));
	lock_take(&h->lock, LOCK_HEAP);
	if (atomic_load_explicit(&span->state, memory_order_relaxed) == PAGE_SPAN) {
		atomic_store_explicit(&span->claimed, 0, memory_order_relaxed);
		if (span_used(span) && !span->linked && span_used(span) < span->objects)
			heap_link(a, h, span);
	}
	lock_give(&h->lock, LOCK_HEAP);
}

/*
 * Extents.
 */

/* Threads take the heaps in turn. */
static unsigned heap_of_thread(const struct arena *a)
{
	static _Atomic unsigned threads;
	static _Thread_local unsigned mine;

	if (unlikely(!mine))
		mine = 1 + atomic_fetch_add(&threads, 1);
	return likely(mine <= a->heaps) ? mine - 1 : (mine - 1) % a->heaps; /* a division is long */
}

/* Takes an object of another heap, when there are no pages for a new span. */
static struct store_item *small_steal(struct arena *a, unsigned class, uint64_t asked)
{
	struct store_item *item;

	for (unsigned i = 0; i < a->heaps; i++) {
		if (!heap_partial(&a->heap[i], class) &&
		    !atomic_load_explicit(&a->heap[i].spares, memory_order_relaxed))
			continue;
		item = heap_take(a, &a->heap[i], class, asked);
		if (item)
			return item;
	}
	return NULL;
}

struct store_item *arena_alloc_packed(struct arena *a, uint64_t size, uint64_t asked)
{
	must(!lock_rank_is_held(LOCK_STRIPE) && size <= SMALL_MAX);
	return small_steal(a, class_of(a, size), asked);
}

static struct store_item *small_alloc_slow(struct arena *a, unsigned heap, unsigned class, uint64_t asked)
{
	struct store_item *item;

	for (int try = 0; try < 2; try++) {
		while (heap_grow(a, heap, class)) {
			item = heap_take(a, &a->heap[heap], class, asked);
			if (item)
				return item;
		}
		item = small_steal(a, class, asked);
		if (item)
			return item;
		arena_trim(a);
	}
	return NULL;
}

struct store_item *arena_large_begin(struct arena *a, uint32_t first, uint64_t asked)
{
	struct page *run = &a->pages.page[first];
	struct store_item *item = arena_at_page(a, first);

	must(atomic_load_explicit(&run->state, memory_order_relaxed) == PAGE_NEW);
	atomic_store_explicit(&item->refs, ITEM_RESERVED + 1, memory_order_relaxed);
	atomic_fetch_add(&a->large_used, (uint64_t)run->pages << PAGE_SHIFT);
	atomic_fetch_add(&a->large_asked, asked);
	atomic_store_explicit(&run->state, PAGE_LARGE, memory_order_release);
	return item;
}

static struct store_item *large_alloc(struct arena *a, uint64_t size, uint64_t asked)
{
	uint64_t n = large_pages(size);
	uint32_t first;

	if (n > a->pages.count)
		return NULL;
	first = pages_take(&a->pages, (uint32_t)n, -1, 0);
	if (first == UINT32_MAX) {
		arena_trim(a);
		first = pages_take(&a->pages, (uint32_t)n, -1, 0);
	}
	return first == UINT32_MAX ? NULL : arena_large_begin(a, first, asked);
}

struct store_item *arena_alloc(struct arena *a, uint64_t size, uint64_t asked)
{
	unsigned class, heap;
	struct store_item *item;

	must(!lock_rank_is_held(LOCK_STRIPE));
	if (size > SMALL_MAX)
		return large_alloc(a, size, asked);
	class = class_of(a, size);
	heap = heap_of_thread(a);
	item = heap_take(a, &a->heap[heap], class, asked);
	return likely(item) ? item : small_alloc_slow(a, heap, class, asked);
}

/* The last reference is gone, or is the caller's, or it was reserved and never published. */
static bool item_is_unused(const struct store_item *item)
{
	uint32_t refs = atomic_load_explicit(&item->refs, memory_order_relaxed);

	return refs <= 1 || refs == ITEM_RESERVED + 1;
}

void arena_free(struct arena *a, struct store_item *item, uint64_t asked)
{
	struct page *run = &a->pages.page[a->pages.page[arena_page(a, item)].start];

	must(!lock_rank_is_held(LOCK_STRIPE) && item_is_unused(item));
	atomic_store_explicit(&item->refs, 0, memory_order_relaxed);
	if (atomic_load_explicit(&run->state, memory_order_relaxed) == PAGE_SPAN) {
		heap_give(a, run, item, asked);
		return;
	}
	atomic_fetch_sub(&a->large_used, (uint64_t)run->pages << PAGE_SHIFT);
	atomic_fetch_sub(&a->large_asked, asked);
	pages_give(&a->pages, page_number(a, run));
}

void arena_get_usage(struct arena *a, struct arena_usage *out)
{
	out->used = atomic_load(&a->large_used);
	out->asked = atomic_load(&a->large_asked);
	for (unsigned i = 0; i < a->heaps; i++) {
		struct heap *h = &a->heap[i];

		lock_take(&h->lock, LOCK_HEAP);
		out->used += h->used;
		out->asked += h->asked;
		lock_give(&h->lock, LOCK_HEAP);
	}
	out->held = (uint64_t)(a->pages.count - arena_get_pages_free(a)) << PAGE_SHIFT;
}

uint32_t arena_get_pages_free(struct arena *a)
{
	uint32_t n;

	lock_take(&a->pages.lock, LOCK_PAGES);
	n = a->pages.count - a->pages.taken;
	lock_give(&a->pages.lock, LOCK_PAGES);
	return n;
}
