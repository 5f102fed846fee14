/*
 * pages: runs of pages. Free runs are kept in bins by length (one for each length below 32, eight
 * for each doubling above) and coalesce with their neighbours when they are given back. All
 * records are outside the arena, so that no page of it is touched before it is used.
 */
#include "store/internal.h"

#include <stdlib.h>
#include <sys/mman.h>

static unsigned bin_of(uint32_t n)
{
	unsigned log;

	if (n < EXACT_BINS)
		return n;
	log = 31 - (unsigned)__builtin_clz(n);
	return EXACT_BINS + (log - 5) * 8 + ((n >> (log - 3)) & 7);
}

static bool pages_are_mine(const struct pages *p)
{
	return lock_is_mine(&p->lock, LOCK_PAGES);
}

static void head_clear(struct pages *p, uint32_t at)
{
	p->heads[at / 64] &= ~(1ull << (at % 64));
}

/* First run that begins at `from` or after it; count: none. */
static uint32_t head_next(const struct pages *p, uint32_t from)
{
	uint64_t word;

	if (from >= p->count)
		return p->count;
	word = p->heads[from / 64] >> (from % 64);
	if (word)
		return from + (uint32_t)__builtin_ctzll(word);
	for (uint32_t i = from / 64 + 1; i <= (p->count - 1) / 64; i++)
		if (p->heads[i])
			return i * 64 + (uint32_t)__builtin_ctzll(p->heads[i]);
	return p->count;
}

static enum page_state state_of(struct page *run)
{
	return atomic_load_explicit(&run->state, memory_order_acquire);
}

static void run_set(struct pages *p, uint32_t first, uint32_t n, enum page_state state)
{
	struct page *run = &p->page[first];

	run->pages = n;
	run->start = first;
	p->page[first + n - 1].start = first;
	atomic_store_explicit(&run->claimed, 0, memory_order_relaxed);
	atomic_store_explicit(&run->state, (uint8_t)state, memory_order_release);
	p->heads[first / 64] |= 1ull << (first % 64);
}

static void bin_add(struct pages *p, uint32_t first, uint32_t n, enum page_idle idle)
{
	unsigned b = bin_of(n);
	struct page *run = &p->page[first];

	run_set(p, first, n, PAGE_FREE);
	run->idle = (uint8_t)idle;
	run->prev = 0;
	run->next = p->bin[b];
	if (run->next)
		p->page[run->next - 1].prev = first + 1;
	p->bin[b] = first + 1;
	p->bin_map[b / 64] |= 1ull << (b % 64);
}

static void bin_remove(struct pages *p, uint32_t first)
{
	struct page *run = &p->page[first];
	unsigned b = bin_of(run->pages);

	if (run->next)
		p->page[run->next - 1].prev = run->prev;
	if (run->prev)
		p->page[run->prev - 1].next = run->next;
	else
		p->bin[b] = run->next;
	if (!p->bin[b])
		p->bin_map[b / 64] &= ~(1ull << (b % 64));
}

static unsigned bin_next(const struct pages *p, unsigned from)
{
	for (unsigned i = from / 64; i < ARRAY_SIZE(p->bin_map); i++) {
		uint64_t word = p->bin_map[i];

		if (i == from / 64)
			word &= ~0ull << (from % 64);
		if (word)
			return i * 64 + (unsigned)__builtin_ctzll(word);
	}
	return BINS;
}

/* The bin of n itself may hold shorter runs, so it is searched; in any higher one all fit. The
 * search is short when a higher bin could serve, and whole when it is the last chance. */
static uint32_t run_find(const struct pages *p, uint32_t n)
{
	unsigned higher = bin_next(p, bin_of(n) + 1);
	unsigned left = higher < BINS ? 16 : UINT32_MAX;

	for (uint32_t at = p->bin[bin_of(n)]; at && left; at = p->page[at - 1].next, left--)
		if (p->page[at - 1].pages >= n)
			return at - 1;
	return higher < BINS ? p->bin[higher] - 1 : UINT32_MAX;
}

static void span_set(struct pages *p, uint32_t first, uint32_t n, int class, unsigned heap)
{
	struct page *run = &p->page[first];

	run->class = (uint8_t) class;
	run->free = 0;
	run->objects = 0;
	atomic_store_explicit(&run->used, 0, memory_order_relaxed);
	run->linked = false;
	atomic_store_explicit(&run->heap, (uint8_t)heap, memory_order_relaxed);
	atomic_store_explicit(&run->fresh, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < n; i++)
		p->page[first + i].start = first;
	run_set(p, first, n, PAGE_SPAN);
}

static uint32_t run_take(struct pages *p, uint32_t n, int class, unsigned heap)
{
	uint32_t at = run_find(p, n), rest;
	enum page_idle idle;

	must(pages_are_mine(p) && n > 0);
	if (at == UINT32_MAX)
		return at;
	bin_remove(p, at);
	rest = p->page[at].pages - n;
	idle = p->page[at].idle;
	if (class >= 0) {
		if (rest)
			bin_add(p, at + n, rest, idle);
		span_set(p, at, n, class, heap);
	} else {
		if (rest)
			bin_add(p, at, rest, idle);
		at += rest;
		run_set(p, at, n, PAGE_NEW);
	}
	p->taken += n;
	return at;
}

uint32_t pages_take(struct pages *p, uint32_t n, int class, unsigned heap)
{
	uint32_t at;

	lock_take(&p->lock, LOCK_PAGES);
	at = run_take(p, n, class, heap);
	lock_give(&p->lock, LOCK_PAGES);
	return at;
}

/* Two runs that become one are as the longer one, so that one that is free for long does not begin anew with each page
 * that comes free beside it. */
static enum page_idle idle_joined(enum page_idle a, uint32_t pages_a, const struct page *b)
{
	enum page_idle longer = pages_a > b->pages ? a : (enum page_idle)b->idle;

	return longer == IDLE_GONE && a != b->idle ? IDLE_LONG : longer;
}

static void run_give(struct pages *p, uint32_t first)
{
	uint32_t n = p->page[first].pages, near;
	enum page_idle idle = IDLE_NOT;

	must(pages_are_mine(p));
	if (first + n < p->count && state_of(&p->page[first + n]) == PAGE_FREE) {
		bin_remove(p, first + n);
		head_clear(p, first + n);
		idle = idle_joined(idle, n, &p->page[first + n]);
		n += p->page[first + n].pages;
	}
	near = first ? p->page[first - 1].start : first;
	if (first && state_of(&p->page[near]) == PAGE_FREE) {
		bin_remove(p, near);
		head_clear(p, first);
		idle = idle_joined(idle, n, &p->page[near]);
		n += p->page[near].pages;
		first = near;
	}
	bin_add(p, first, n, idle);
}

static bool in_window(const struct pages *p, uint32_t at)
{
	return at >= p->window_first && at < p->window_end;
}

void pages_give(struct pages *p, uint32_t first)
{
	struct page *run = &p->page[first];

	lock_take(&p->lock, LOCK_PAGES);
	must(run->start == first && state_of(run) != PAGE_FREE && state_of(run) != PAGE_HELD);
	p->taken -= run->pages;
	if (in_window(p, first) || atomic_load_explicit(&run->claimed, memory_order_relaxed))
		atomic_store_explicit(&run->state, PAGE_HELD, memory_order_release);
	else
		run_give(p, first);
	lock_give(&p->lock, LOCK_PAGES);
}

int pages_create(struct pages *p, uint32_t count)
{
	p->page = calloc(count, sizeof(*p->page));
	p->heads = calloc(count / 64 + 1, sizeof(*p->heads));
	if (!p->page || !p->heads) {
		pages_destroy(p);
		return -ENOMEM;
	}
	p->count = count;
	p->idle_at = TIME_NEVER;
	bin_add(p, 0, count, IDLE_GONE);
	return 0;
}

void pages_destroy(struct pages *p)
{
	free(p->page);
	free(p->heads);
	p->page = NULL;
	p->heads = NULL;
}

uint32_t pages_longest(struct pages *p, uint32_t *first)
{
	uint32_t longest = 0, at;
	unsigned looks = 64, bin = BINS;

	lock_take(&p->lock, LOCK_PAGES);
	while (bin && !p->bin[bin - 1])
		bin--;
	for (at = bin ? p->bin[bin - 1] : 0; at && looks; at = p->page[at - 1].next, looks--)
		if (p->page[at - 1].pages > longest) {
			longest = p->page[at - 1].pages;
			if (first)
				*first = at - 1;
		}
	lock_give(&p->lock, LOCK_PAGES);
	return longest;
}

/*
 * Memory that is free for long. A run that was free at the last look and is at the next goes, in stretches of the size
 * of a large page, so that none of these is taken apart. It stays under the lock meanwhile, one stretch at a time: a
 * write that needs it then waits some microseconds, and is not told that there is no room.
 */
#define IDLE_EVERY (10 * TIME_S)
#define IDLE_STEP (100 * TIME_MS)
#define IDLE_STRETCHES 8 /* a step */
#define IDLE_LOOKS 256   /* runs, under the lock */
#define STRETCH ((uint32_t)(2 * MIB >> PAGE_SHIFT))

/* The first stretch that lies in the run, and not before the hand; UINT32_MAX: none. */
static uint32_t stretch_in(const struct pages *p, const char *base, uint32_t first)
{
	uint32_t skew = (uint32_t)((uintptr_t)base >> PAGE_SHIFT) % STRETCH, from = MAX(first, p->idle_from);
	uint32_t at = (from + skew + STRETCH - 1) / STRETCH * STRETCH - skew;

	return at + STRETCH <= first + p->page[first].pages ? at : UINT32_MAX;
}

/* Whether any page of it is there. Of a run that another one has joined, most may have gone before. */
static bool stretch_is_there(void *base)
{
	unsigned char there[STRETCH];

	if (mincore(base, (size_t)STRETCH << PAGE_SHIFT, there) != 0)
		return true;
	for (uint32_t i = 0; i < STRETCH; i++)
		if (there[i] & 1)
			return true;
	return false;
}

/* One stretch, or a few looks. False: something went wrong, and nothing is given back any more. */
static bool idle_step(struct pages *p, char *base)
{
	uint32_t at = head_next(p, p->idle_hand), stretch;
	char *memory;

	for (unsigned looks = 0; at < p->count && looks < IDLE_LOOKS; looks++, at += p->page[at].pages) {
		struct page *run = &p->page[at];

		stretch = state_of(run) == PAGE_FREE && run->idle == IDLE_LONG ? stretch_in(p, base, at) : UINT32_MAX;
		if (stretch != UINT32_MAX) {
			p->idle_hand = at;
			p->idle_from = stretch + STRETCH;
			memory = base + ((uint64_t)stretch << PAGE_SHIFT);
			if (!stretch_is_there(memory))
				return true;
			if (madvise(memory, (size_t)STRETCH << PAGE_SHIFT, MADV_DONTNEED) != 0)
				return false;
			p->returned += (uint64_t)STRETCH << PAGE_SHIFT;
			return true;
		}
		if (state_of(run) == PAGE_FREE)
			run->idle = run->idle == IDLE_NOT ? IDLE_LONG : IDLE_GONE;
	}
	p->idle_hand = at;
	return true;
}

uint64_t pages_return(struct pages *p, char *base, uint64_t now)
{
	bool going = true;

	if (now < p->idle_at)
		return p->idle_at;
	for (unsigned n = 0; n < IDLE_STRETCHES && going && p->idle_hand < p->count; n++) {
		lock_take(&p->lock, LOCK_PAGES);
		going = idle_step(p, base);
		lock_give(&p->lock, LOCK_PAGES);
	}
	p->idle_at = now + IDLE_STEP;
	if (p->idle_hand >= p->count) {
		p->idle_hand = p->idle_from = 0;
		p->idle_at = now + IDLE_EVERY;
	}
	if (!going)
		p->idle_at = TIME_NEVER;
	return p->idle_at;
}

/*
 * Windows.
 */
#define LOOKS 2048 /* runs looked at in one call, under the lock, unless the window itself has more */

/* A run's worth to a window: pages gained when it is cleared, and the price of that, in pages copied or evicted. */
struct judgement {
	bool obstacle;
	uint32_t gain, cost;
};

static struct judgement judge_large(struct arena *a, uint32_t first, enum window_kind kind)
{
	struct page *run = &a->pages.page[first];
	const struct store_item *item = arena_at_page(a, first);
	struct judgement j = {.obstacle = item_refs(item) > 1 || kind == WINDOW_GATHER, .cost = run->pages};

	if (kind == WINDOW_CLEAR) {
		j.gain = run->pages;
		j.cost += run->pages * atomic_load_explicit(&item->heat, memory_order_relaxed);
	} else {
		j.obstacle |= run->pages > MOVE_PAGES;
	}
	return j;
}

/* A span is gathered when the class has as many free objects as it has objects: so many are in others, then. What its
 * objects hold is looked at later. */
static struct judgement judge_span(struct arena *a, uint32_t first, enum window_kind kind)
{
	struct page *run = &a->pages.page[first];
	uint32_t used = atomic_load_explicit(&run->used, memory_order_relaxed), size = a->class_size[run->class];
	uint32_t objects = run->pages * PAGE_BYTES / size, slots = 0;
	struct judgement j = {.gain = run->pages, .cost = (used * size + PAGE_BYTES - 1) / PAGE_BYTES};

	if (kind != WINDOW_GATHER)
		return j;
	for (unsigned i = 0; i < a->heaps; i++)
		slots += atomic_load_explicit(&a->heap[i].slots[run->class], memory_order_relaxed);
	j.obstacle = used == objects || slots < objects;
	return j;
}

static struct judgement run_judge(struct arena *a, uint32_t first, enum window_kind kind)
{
	switch (state_of(&a->pages.page[first])) {
	case PAGE_FREE:
		return (struct judgement){.obstacle = kind == WINDOW_GATHER, .gain = a->pages.page[first].pages};
	case PAGE_SPAN:
		return judge_span(a, first, kind);
	case PAGE_LARGE:
		return judge_large(a, first, kind);
	case PAGE_NEW:
	case PAGE_HELD:
		break;
	}
	return (struct judgement){.obstacle = true};
}

/* The runs between two ends, moved over the arena. */
struct stretch {
	uint32_t first, end;
	uint64_t gain, cost;
};

static uint32_t window_needs(const struct window *w)
{
	return MAX(w->pages, w->whole);
}

/* Two extents that grow would be in each other's way for ever. */
static bool growths_keep(const struct arena *a, uint32_t first, uint32_t end)
{
	for (unsigned i = 0; i < a->growths; i++)
		if (first < a->growth[i].end && end > a->growth[i].first)
			return true;
	return false;
}

/* Adds a run, and takes those at the beginning away that are not needed any more. One run is a stretch where spans are
 * gathered, because each is worth its own. */
static void stretch_add(struct arena *a, struct stretch *s, uint32_t at, const struct window *w)
{
	struct judgement j = run_judge(a, at, w->kind);
	uint32_t end = at + a->pages.page[at].pages;

	if (j.obstacle || (w->whole && growths_keep(a, at, end))) {
		*s = (struct stretch){end, end, 0, 0};
		return;
	}
	if (w->kind == WINDOW_GATHER)
		*s = (struct stretch){at, end, w->pages, (uint64_t)j.cost * 1024 / j.gain};
	else
		*s = (struct stretch){s->first, end, s->gain + j.gain, s->cost + j.cost};
	while (s->first < s->end) {
		j = run_judge(a, s->first, w->kind);
		if (s->gain < j.gain + window_needs(w))
			break;
		s->first += a->pages.page[s->first].pages;
		s->gain -= j.gain;
		s->cost -= MIN(s->cost, j.cost); /* it may have changed since it was added */
	}
}

/* Looks at so many runs, and on until a stretch that was begun is long enough or far too long. */
static bool window_find(struct arena *a, struct window *w)
{
	struct pages *p = &a->pages;
	uint32_t at = head_next(p, w->hand);
	struct stretch s = {at, at, 0, 0}, best = {.cost = UINT64_MAX};

	must(pages_are_mine(p));
	for (unsigned looks = 0; at < p->count; looks++) {
		if (looks >= LOOKS && (best.end || at - s.first >= 32ull * window_needs(w)))
			break;
		stretch_add(a, &s, at, w);
		at += p->page[at].pages;
		if (s.gain >= window_needs(w) && s.cost < best.cost)
			best = s;
	}
	w->hand = at;
	w->first = best.first;
	w->end = w->stretch = best.end;
	if (best.end && w->whole)
		for (w->end = w->first; w->end - w->first < w->pages; w->end += p->page[w->end].pages)
			;
	return best.end;
}

bool arena_window_claim(struct arena *a, struct window *w, uint32_t *past)
{
	struct pages *p = &a->pages;
	uint32_t from = w->hand, end;
	bool found;

	must(lock_rank_is_held(LOCK_WINDOW) && p->window_end == 0);
	lock_take(&p->lock, LOCK_PAGES);
	found = window_find(a, w);
	end = found ? w->end : w->first;
	if (found) {
		p->window_first = w->first;
		p->window_end = w->end;
	}
	for (uint32_t at = w->first; at < end; at += p->page[at].pages) {
		struct page *run = &p->page[at];

		if (state_of(run) == PAGE_FREE) {
			bin_remove(p, at);
			atomic_store_explicit(&run->state, PAGE_HELD, memory_order_release);
		} else {
			atomic_store_explicit(&run->claimed, 1, memory_order_relaxed);
		}
	}
	lock_give(&p->lock, LOCK_PAGES);
	*past = MAX(w->hand - from, 1);
	if (w->hand >= p->count)
		w->hand = 0;
	arena_window_rewind(w);
	return found;
}

void arena_window_rewind(struct window *w)
{
	w->page = w->packed = w->first;
	w->object = 0;
}

/* No lock: while the window stands its runs keep their places, but for the ones that the walk itself moves, and their
 * classes; others can only make them held. */
struct store_item *arena_window_next(struct arena *a, struct window *w)
{
	must(lock_rank_is_held(LOCK_WINDOW));
	while (w->page < w->end) {
		struct page *run = &a->pages.page[w->page];
		char *base = (char *)arena_at_page(a, w->page);
		enum page_state state = state_of(run);
		unsigned objects = state == PAGE_LARGE;

		if (state == PAGE_SPAN)
			objects = atomic_load_explicit(&run->fresh, memory_order_acquire);
		if (w->object < objects) {
			base += state == PAGE_SPAN ? (uint64_t)w->object * a->class_size[run->class] : 0;
			w->object++;
			return (struct store_item *)base;
		}
		w->page += run->pages;
		w->object = 0;
	}
	return NULL;
}

static bool range_is_held(struct pages *p, uint32_t from, uint32_t end)
{
	for (uint32_t at = from; at < end; at += p->page[at].pages)
		if (state_of(&p->page[at]) != PAGE_HELD)
			return false;
	return true;
}

bool arena_window_gap(struct arena *a, const struct window *w, uint32_t *gap)
{
	*gap = w->page - w->packed;
	return range_is_held(&a->pages, w->packed, w->page);
}

/* The walk goes on behind it. */
void arena_window_slide(struct arena *a, struct window *w, const struct store_item *item)
{
	struct pages *p = &a->pages;
	uint32_t at = arena_page(a, item), to = w->packed, n = p->page[at].pages;

	must(lock_rank_is_held(LOCK_WINDOW) && at == w->page && to <= at);
	if (to < at) {
		lock_take(&p->lock, LOCK_PAGES);
		for (uint32_t head = to; head <= at; head = head_next(p, head + 1))
			head_clear(p, head);
		run_set(p, to, n, PAGE_LARGE);
		run_set(p, to + n, at - to, PAGE_HELD);
		lock_give(&p->lock, LOCK_PAGES);
	}
	w->packed = to + n;
	w->page = at + n;
	w->object = 0;
}

bool arena_window_is_clear(struct arena *a, const struct window *w)
{
	return (w->kind == WINDOW_GATHER || w->end - w->packed >= w->pages) &&
	       range_is_held(&a->pages, w->packed, w->end);
}

/* Makes pages that are held a run, and the rest of them free again; under the lock of the pages. */
static void held_take(struct pages *p, uint32_t first, uint32_t n, uint32_t end, enum page_state state)
{
	for (uint32_t head = head_next(p, first + 1); head < end; head = head_next(p, head + 1))
		head_clear(p, head);
	run_set(p, first, n, state);
	if (first + n == end)
		return;
	run_set(p, first + n, end - first - n, PAGE_HELD);
	run_give(p, first + n);
}

struct store_item *arena_window_finish(struct arena *a, struct window *w, bool take, uint64_t asked)
{
	struct pages *p = &a->pages;
	uint32_t at, n;
	bool clear;

	must(lock_rank_is_held(LOCK_WINDOW) && p->window_first == w->first && p->window_end == w->end);
	w->hand = w->page < w->end ? w->page + p->page[w->page].pages : w->end;
	if (w->hand >= p->count)
		w->hand = 0;
	/* A span that took no objects while it was claimed may have room and yet be in no list. */
	for (at = w->first; at < w->end; at += p->page[at].pages)
		if (state_of(&p->page[at]) == PAGE_SPAN)
			arena_span_unclaim(a, at);
	lock_take(&p->lock, LOCK_PAGES);
	clear = take && arena_window_is_clear(a, w);
	p->window_first = p->window_end = 0;
	if (clear && w->whole) {
		held_take(p, w->first, w->pages, w->end, PAGE_NEW);
		p->taken += w->pages;
		lock_give(&p->lock, LOCK_PAGES);
		return arena_large_begin(a, w->first, asked);
	}
	for (at = w->first; at < w->end; at += n) {
		n = p->page[at].pages;
		if (state_of(&p->page[at]) == PAGE_HELD)
			run_give(p, at);
		else
			atomic_store_explicit(&p->page[at].claimed, 0, memory_order_relaxed);
	}
	at = clear ? run_take(p, w->pages, -1, 0) : UINT32_MAX;
	lock_give(&p->lock, LOCK_PAGES);
	return at == UINT32_MAX ? NULL : arena_large_begin(a, at, asked);
}

/*
 * Growth.
 */

bool arena_growth_begin(struct arena *a, struct store_item *item, const struct window *w, uint64_t asked)
{
	must(lock_rank_is_held(LOCK_WINDOW));
	if (a->growths == GROWTHS_MAX)
		return false;
	atomic_fetch_sub(&a->large_asked, asked);
	a->growth[a->growths++] = (struct growing){item, w->first, w->stretch, .run = UINT32_MAX, .asked = asked};
	return true;
}

struct growing *arena_growth(struct arena *a, const struct store_item *item)
{
	struct growing *g = a->growth;

	must(lock_rank_is_held(LOCK_WINDOW));
	while (g < a->growth + a->growths && g->item != item)
		g++;
	must(g < a->growth + a->growths);
	return g;
}

/* Take of the run behind the extent, if it is free: as much as is wanted. */
static bool growth_take(struct arena *a, struct page *run, uint32_t first, uint32_t pages)
{
	struct pages *p = &a->pages;
	uint32_t end = first + run->pages, n, all;
	enum page_state state = end < p->count ? state_of(&p->page[end]) : PAGE_NEW;

	if (state == PAGE_FREE)
		bin_remove(p, end);
	else if (state != PAGE_HELD || in_window(p, end))
		return false;
	all = end + p->page[end].pages;
	n = MIN(pages - run->pages, p->page[end].pages);
	p->taken += n;
	atomic_fetch_add(&a->large_used, (uint64_t)n << PAGE_SHIFT);
	held_take(p, first, run->pages + n, all, PAGE_LARGE);
	return true;
}

int arena_grow(struct arena *a, struct growing *g, uint32_t pages)
{
	struct pages *p = &a->pages;
	struct page *run = &p->page[g->first];
	uint32_t end;
	int rc = 0;

	must(lock_rank_is_held(LOCK_WINDOW));
	lock_take(&p->lock, LOCK_PAGES);
	while (run->pages < pages && growth_take(a, run, g->first, pages))
		;
	end = g->first + run->pages;
	if (run->pages < pages) {
		must(end < p->count);
		rc = state_of(&p->page[end]) == PAGE_NEW || in_window(p, end) ? -EBUSY : 1;
	}
	if (rc == 1) {
		atomic_store_explicit(&p->page[end].claimed, 1, memory_order_relaxed);
		g->object = g->run == end ? g->object : 0;
		g->run = end;
	}
	lock_give(&p->lock, LOCK_PAGES);
	return rc;
}

uint32_t arena_next_large(struct arena *a, uint32_t from, uint32_t end)
{
	struct pages *p = &a->pages;
	uint32_t at;

	must(lock_rank_is_held(LOCK_WINDOW));
	lock_take(&p->lock, LOCK_PAGES);
	at = head_next(p, from);
	while (at < end && (state_of(&p->page[at]) != PAGE_LARGE || in_window(p, at)))
		at += p->page[at].pages;
	lock_give(&p->lock, LOCK_PAGES);
	return at < end ? at : UINT32_MAX;
}

void arena_growth_end(struct arena *a, struct growing *g, struct window *next)
{
	struct pages *p = &a->pages;
	uint32_t end = g->first + p->page[g->first].pages;

	must(lock_rank_is_held(LOCK_WINDOW));
	if (end < p->count && !in_window(p, end) && state_of(&p->page[end]) == PAGE_SPAN)
		arena_span_unclaim(a, end);
	lock_take(&p->lock, LOCK_PAGES);
	if (end < p->count && !in_window(p, end)) {
		if (state_of(&p->page[end]) == PAGE_HELD)
			run_give(p, end);
		else
			atomic_store_explicit(&p->page[end].claimed, 0, memory_order_relaxed);
	}
	if (next)
		next->hand = g->first ? p->page[g->first - 1].start : 0;
	lock_give(&p->lock, LOCK_PAGES);
	atomic_fetch_add(&a->large_asked, g->asked);
	*g = a->growth[--a->growths];
}

uint64_t arena_extent(struct arena *a, const struct store_item *item)
{
	return (uint64_t)a->pages.page[arena_page(a, item)].pages << PAGE_SHIFT;
}
