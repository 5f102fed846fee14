/*
 * internal.h: what the store's files share. Nothing here is for other rooms.
 *
 *   store.c   the operations: hash, lock the stripe, one index step, unlock
 *   keys.c    what goes over all keys, in steps
 *   commit.c  several keys in one step
 *   change.c  the ring of changes
 *   load.c    changes that were kept, applied again
 *   index.c   a stripe's table: buckets of one cache line, incremental growth, scan
 *   evict.c   the order of eviction
 *   owner.c   whose the bytes are, and how many each may have
 *   room.c    making room, in steps
 *   move.c    an item to another place
 *   wheel.c   a stripe's timer wheel
 *   arena.c   extents: size classes in spans of pages for small, whole pages for large
 *   pages.c   runs of pages: find, split, coalesce, and the window that eviction clears
 *   lock.c    the spin lock, and what its holder may do
 *
 * Locks have ranks, in the order of enum lock_rank: window (one thread at a time makes room), stripe, order, heap,
 * pages. A thread holds one stripe's at a time, but for a commit, which takes several in the order of their numbers and
 * nothing but locks of higher ranks beside them. Extents are freed after the stripe's lock was given back.
 */
#ifndef RDMAD_STORE_INTERNAL_H
#define RDMAD_STORE_INTERNAL_H

#include <pthread.h>

#include "store/lock.h"
#include "store/store.h"

/*
 * An item: header, key, value. Its address in 32 bits is its link: 0 is none, else 1 + the offset
 * in the arena, in granules (16 bytes; more in an arena beyond 64 GiB).
 *
 * refs counts the index and the pins. A reservation has ITEM_RESERVED beside its one reference, and
 * a free extent has 0, so that a thread that clears a window tells the three apart without a lock.
 */
#define ITEM_RESERVED 0x80000000u
#define LINK_TAGGED 0xfffffe00u /* links from here on are not items: see wheel.c */

enum item_queue { QUEUE_NONE, QUEUE_SMALL, QUEUE_MAIN, QUEUE_GROWS /* none: its extent is not whole yet */ };

struct store_item {
	_Atomic uint32_t refs;
	_Atomic uint32_t tag; /* 32 bits of the key's hash; the top ones choose the stripe */
	union {
		struct {
			uint64_t value_len : 43;
			uint64_t key_len : 12;
			uint64_t attributes : 1; /* behind the value are its struct item_attributes */
		};
		struct {
			uint8_t lengths[7];
			_Atomic uint8_t heat; /* hits, up to 3, since it was last looked at for eviction */
		};
		uint64_t sizes; /* lengths and no heat, of a new item: one store, which a load soon after needs whole */
	};
	uint64_t version : 56; /* this, expires and the wheel: under the stripe's lock */
	uint8_t queue;         /* an enum item_queue, and its links: under the order's lock */
	uint64_t expires;
	uint32_t queue_next, queue_prev; /* next: also of a chain of the dead, or of the free */
	uint32_t wheel_next, wheel_prev; /* prev 0: not in the wheel */
	unsigned char key[];
};

_Static_assert(sizeof(struct store_item) == 48, "a header is three quarters of a cache line");

/* The part that plain items lack; zeros in an item that was to keep those of an item without. */
struct item_attributes {
	uint32_t flags;
	uint8_t type;
	uint8_t reserved;
	uint16_t owner;
};

_Static_assert(sizeof(struct item_attributes) == 8, "so many bytes more");

#define ITEM_ALIGN_FROM 4096 /* values from this size on begin on a cache line */
#define VALUE_LIMIT ((1ull << 43) - 1)
#define ITEM_VERSION_MAX (1ull << 56)

static inline uint64_t item_value_offset(uint64_t key_len, uint64_t value_len)
{
	uint64_t end = sizeof(struct store_item) + key_len;

	return value_len < ITEM_ALIGN_FROM ? end : (end + CACHE_LINE - 1) & ~(CACHE_LINE - 1ull);
}

static inline uint64_t item_size(uint64_t key_len, uint64_t value_len)
{
	return item_value_offset(key_len, value_len) + value_len;
}

/* Bytes behind the value. */
static inline uint64_t item_tail(const struct store_item *item)
{
	return item->attributes ? sizeof(struct item_attributes) : 0;
}

static inline uint32_t item_tag(const struct store_item *item)
{
	return atomic_load_explicit(&item->tag, memory_order_relaxed);
}

static inline uint64_t item_bytes(const struct store_item *item)
{
	return item_size(item->key_len, item->value_len) + item_tail(item);
}

/* Bytes of its extent that count as asked for. */
static inline uint64_t item_asked(const struct store_item *item)
{
	return (uint64_t)item->key_len + item->value_len;
}

static inline unsigned char *item_value(struct store_item *item)
{
	return (unsigned char *)item + item_value_offset(item->key_len, item->value_len);
}

static inline struct item_attributes item_attributes(const struct store_item *item)
{
	struct item_attributes out = {0};

	if (unlikely(item->attributes))
		memcpy(&out, (const char *)item + item_size(item->key_len, item->value_len), sizeof(out));
	return out;
}

/*
 * pages.c
 */
#define PAGE_SHIFT 12
#define PAGE_BYTES (1u << PAGE_SHIFT)
#define EXACT_BINS 32 /* runs of fewer pages have a bin for each length */
#define BINS (EXACT_BINS + 8 * 27)

enum page_state {
	PAGE_FREE,
	PAGE_HELD,  /* free, kept back for the window, or for the extent before it that grows */
	PAGE_SPAN,  /* objects of one class */
	PAGE_NEW,   /* one large extent that its owner has not marked reserved yet */
	PAGE_LARGE, /* one large extent */
};

/* How much of a free run the system has. */
enum page_idle {
	IDLE_NOT,  /* it came free since the last look */
	IDLE_LONG, /* it was free at the last look */
	IDLE_GONE, /* no page of it is there: not touched yet, or given back */
};

/* A page's record; all but `start` is that of the run which begins with the page. */
struct page {
	_Atomic uint8_t state;
	/* For a window or an extent that grows: held when it comes free; a span takes no object. */
	_Atomic uint8_t claimed;
	_Atomic uint8_t heap;
	uint8_t class;
	uint32_t start; /* the run's first page: valid on a run's first and last page, and on all of a span's */
	uint32_t pages;
	uint32_t next, prev;    /* 1 + page, in a bin or in a heap's list */
	uint32_t free;          /* link of the first free object */
	_Atomic uint16_t fresh; /* objects that were ever handed out */
	_Atomic uint16_t used;  /* under the heap's lock, but to be looked at */
	uint16_t objects;
	bool linked;  /* in its heap's list */
	uint8_t idle; /* of a free run: an enum page_idle */
};

struct pages {
	_Alignas(CACHE_LINE) struct lock lock;
	uint32_t count;
	uint32_t taken; /* pages that are not free */
	uint32_t bin[BINS];
	uint64_t bin_map[(BINS + 63) / 64];
	uint64_t *heads; /* one bit a page: a run begins here */
	struct page *page;
	uint32_t window_first, window_end; /* empty: no window */
	uint32_t idle_hand;                /* the run where the look for idle ones is, */
	uint32_t idle_from;                /* how far it is in that one, */
	uint64_t idle_at;                  /* and when it goes on; TIME_NEVER: nothing is given back */
	_Atomic uint64_t returned;         /* bytes */
};

int pages_create(struct pages *p, uint32_t count);
void pages_destroy(struct pages *p);

/* First page of a run of n, or UINT32_MAX. A span (class >= 0) comes from the low end of what is
 * free, a large run (-1, PAGE_NEW) from the high end, so that the two mix less. */
uint32_t pages_take(struct pages *p, uint32_t n, int class, unsigned heap);
/* A run that was taken, named by its first page. */
void pages_give(struct pages *p, uint32_t first);

/* Gives some of what was free for long back to the system; returns when to call again. One thread. */
uint64_t pages_return(struct pages *p, char *base, uint64_t now);

/* The longest run that is free, to an eighth of its length where many are about as long: its length, 0 where there is
 * none. *first: its first page; NULL: not wanted. */
uint32_t pages_longest(struct pages *p, uint32_t *first);

/*
 * arena.c
 */
#define SMALL_MAX 32768 /* extents beyond are runs of pages */
#define SMALL_MIN 64
#define GRANULE_MIN 16
#define CLASSES_MAX 80
#define HEAPS_MAX 16

/* A thread allocates from the heap of its number; an object goes back to the heap that it came
 * from. */
struct heap {
	_Alignas(CACHE_LINE) struct lock lock;
	_Atomic uint32_t spares; /* spare spans, all classes */
	uint64_t used, asked;
	_Atomic uint32_t partial[CLASSES_MAX]; /* spans with a free object, 1 + page */
	_Atomic uint32_t slots[CLASSES_MAX];   /* free objects */
	uint32_t spare[CLASSES_MAX];           /* one empty span is kept back, 1 + page */
};

/*
 * An extent that grows: a large one for a value whose bytes are on their way. Of the stretch that it is to fill it has
 * the beginning; what lies in the rest stays there until its place is asked for. Under the window's lock.
 */
#define GROWTHS_MAX 32

struct growing {
	struct store_item *item;
	uint32_t first, end;  /* the stretch, pages */
	uint32_t run, object; /* what is cleared next, and how far that is */
	uint64_t asked;       /* counted once it is whole */
};

struct arena {
	char *base;
	unsigned shift; /* log2 of the granule */
	unsigned classes, heaps;
	uint32_t class_size[CLASSES_MAX];
	uint16_t class_pages[CLASSES_MAX];
	uint8_t class_of[SMALL_MAX / GRANULE_MIN + 1];
	_Atomic uint64_t large_used, large_asked;
	struct pages pages;
	unsigned growths;
	struct growing growth[GROWTHS_MAX];
	struct heap heap[HEAPS_MAX];
};

static inline uint32_t item_refs(const struct store_item *item)
{
	return atomic_load_explicit(&item->refs, memory_order_acquire);
}

static inline struct store_item *arena_item(const struct arena *a, uint32_t link)
{
	return (struct store_item *)(a->base + ((uint64_t)(link - 1) << a->shift));
}

static inline uint32_t arena_link(const struct arena *a, const struct store_item *item)
{
	return (uint32_t)(((uint64_t)((const char *)item - a->base) >> a->shift) + 1);
}

/* The page that the extent begins in, and the extent that begins with a page. */
static inline uint32_t arena_page(const struct arena *a, const struct store_item *item)
{
	return (uint32_t)((uint64_t)((const char *)item - a->base) >> PAGE_SHIFT);
}

static inline struct store_item *arena_at_page(const struct arena *a, uint32_t first)
{
	return (struct store_item *)(a->base + ((uint64_t)first << PAGE_SHIFT));
}

int arena_init(struct arena *a, void *base, size_t size);
void arena_fini(struct arena *a);

/* True when the arena could hold an extent of this size if it held nothing else. */
bool arena_can_hold(const struct arena *a, uint64_t size);

/* Pages of the run that an extent of this size is, or is cut from; at least, because a span is shorter where no run of
 * its usual length is left. */
uint32_t arena_pages_of(const struct arena *a, uint64_t size);
uint32_t arena_pages_least(const struct arena *a, uint64_t size);

/* An extent with refs = ITEM_RESERVED + 1, all else undefined. NULL: no room. `asked` is only
 * counted. Any thread, no stripe's lock held. */
struct store_item *arena_alloc(struct arena *a, uint64_t size, uint64_t asked);
/* The same, for a small one, from the spans that are there already. */
struct store_item *arena_alloc_packed(struct arena *a, uint64_t size, uint64_t asked);
/* No other thread knows of the extent any more. No stripe's lock held. */
void arena_free(struct arena *a, struct store_item *item, uint64_t asked);

struct arena_usage {
	uint64_t used, asked, held; /* held: pages taken, with the free objects of spans */
};
void arena_get_usage(struct arena *a, struct arena_usage *out);

/* Pages that nothing holds, also the ones that a window keeps back. */
uint32_t arena_get_pages_free(struct arena *a);

/* Gives spans that are empty back to the page runs. */
void arena_trim(struct arena *a);

/* For pages.c: a new large run becomes an extent; a span of a window that was given up takes
 * objects again. */
struct store_item *arena_large_begin(struct arena *a, uint32_t first, uint64_t asked);
void arena_span_unclaim(struct arena *a, uint32_t first);

/*
 * The window: a stretch of the arena that is cleared to get one long run, which random evictions would practically
 * never give. While it stands, its free pages are held back and its spans take no new objects. It stands until it is
 * finished, over many calls. One at a time: all of this under the caller's window lock.
 */
enum window_kind {
	WINDOW_GATHER, /* one span, whose objects find places in others of their class */
	WINDOW_PACK,   /* large extents that may be moved stay, packed at the low end; the rest is cleared */
	WINDOW_CLEAR,  /* all is cleared */
};

#define MOVE_PAGES ((4 * MIB + 64 * KIB) >> PAGE_SHIFT) /* longer ones are not moved: it would take too long */

struct window {
	enum window_kind kind;
	uint32_t pages;        /* wanted in a row */
	uint32_t whole;        /* 0, or what an extent is to grow to from there: the stretch is looked for by this */
	uint32_t first, end;   /* found */
	uint32_t stretch;      /* the end of all that was found for `whole` */
	uint32_t hand;         /* where the next one is looked for */
	uint32_t packed;       /* the end of the large extents that stay */
	uint32_t page, object; /* where the walk is */
};

/* Looks from the hand on for the stretch that costs least, at about so many runs, and claims it. False: none there. The
 * hand moves on, from the arena's end to its beginning; returns by how many pages in *past. */
bool arena_window_claim(struct arena *a, struct window *w, uint32_t *past);

/* Walk the extents in the window: NULL at its end. An extent may be free, pinned or reserved. */
void arena_window_rewind(struct window *w);
struct store_item *arena_window_next(struct arena *a, struct window *w);

/* The walk is at a large extent that stays. How many pages it may move down; false: they are not all free yet, as a
 * thread may be about to give one. It begins at page w->packed then. The record of that, under its stripe's lock, so
 * that no thread frees it. */
bool arena_window_gap(struct arena *a, const struct window *w, uint32_t *gap);
void arena_window_slide(struct arena *a, struct window *w, const struct store_item *item);

/* All is free that should be. */
bool arena_window_is_clear(struct arena *a, const struct window *w);

/* Give the window up; the hand moves behind the extent where the walk stopped. When it is clear and `take` is set, its
 * pages become a large extent as arena_alloc's, which is returned. */
struct store_item *arena_window_finish(struct arena *a, struct window *w, bool take, uint64_t asked);

/*
 * Extents that grow. Under the window's lock.
 */

/* One that a window for `whole` was finished for. False: there are too many. */
bool arena_growth_begin(struct arena *a, struct store_item *item, const struct window *w, uint64_t asked);
struct growing *arena_growth(struct arena *a, const struct store_item *item);
/* It has as many pages: 0, with all that is free behind it up to these. 1: there is something at run g->run, which is
 * claimed. -EBUSY: that belongs to a window, or to a thread that has just taken it. */
int arena_grow(struct arena *a, struct growing *g, uint32_t pages);
/* The first large extent from there on, not of a window, as a page before `end`; else UINT32_MAX. It may go at any
 * moment. */
uint32_t arena_next_large(struct arena *a, uint32_t from, uint32_t end);
/* It is whole, or given up: what was claimed behind it goes back. `next`: the window of the next one is looked for from
 * there, where something was cleared already; or NULL. */
void arena_growth_end(struct arena *a, struct growing *g, struct window *next);

/* Bytes that the extent has by now. */
uint64_t arena_extent(struct arena *a, const struct store_item *item);

/*
 * index.c: the table of a stripe, under its lock, but for one that no stripe has yet or any more.
 */
#define BUCKET_SLOTS 7
#define BUCKETS_MIN 16

struct bucket { /* one cache line */
	uint32_t tag[BUCKET_SLOTS];
	uint32_t link[BUCKET_SLOTS]; /* 0: empty */
	struct bucket *next;
};

_Static_assert(sizeof(struct bucket) == CACHE_LINE, "a bucket is a cache line");

struct table {
	struct bucket *bucket; /* NULL: no table */
	uint32_t mask;
};

struct slot {
	struct bucket *bucket;
	unsigned at;
};

struct index {
	struct table now, old; /* old: still being moved to now */
	uint32_t moved;        /* buckets of old that are in now already */
	uint32_t count;
	struct bucket *spare;  /* overflow buckets to reuse */
	struct bucket *blocks; /* the blocks they were allocated in */
};

int index_init(struct index *x);
void index_fini(struct index *x);

/* The item of a key, or NULL. The slot stays valid until the next insert or remove. */
struct store_item *index_find(const struct index *x, const struct arena *a, uint32_t tag, const void *key,
			      size_t key_len, struct slot *slot);

/* Whether this very item is in the table. */
bool index_find_link(const struct index *x, uint32_t tag, uint32_t link, struct slot *slot);

int index_insert(struct index *x, uint32_t tag, uint32_t link); /* -ENOMEM */
void index_remove(struct index *x, struct slot slot);

/* The same without a step of the table's growth: so where one was removed, one with its tag has a place until the lock
 * is given back. */
void index_clear(struct index *x, struct slot slot);
void index_refill(struct index *x, uint32_t tag, uint32_t link);

/* A walk stands at a place, a tag with its bits reversed, behind the first `skip` links that have it. */
struct index_cursor {
	uint32_t place;
	uint16_t skip;
};

/* Calls back for the links of the bucket at the cursor, in the order of their places, and moves it on; false: not that
 * one, and the cursor stands before it. Begins and ends with zeros. Returns how many were taken. */
typedef bool (*index_visit_fn)(void *arg, uint32_t link);
unsigned index_scan(const struct index *x, struct index_cursor *cursor, index_visit_fn fn, void *arg);

static inline struct bucket *index_bucket(const struct index *x, uint32_t tag)
{
	uint32_t at = tag & x->old.mask;

	if (unlikely(x->old.bucket) && at >= x->moved)
		return &x->old.bucket[at];
	return &x->now.bucket[tag & x->now.mask];
}

/*
 * A stripe: the keys whose hash has the same top bits.
 */
#define STRIPES_MIN 16
#define STRIPES_MAX 128

#define WHEEL_BITS 6
#define WHEEL_SLOTS (1u << WHEEL_BITS)
#define WHEEL_LEVELS 8
#define WHEEL_SHIFT 20 /* a tick is 2^20 ns, about a millisecond */

struct wheel {
	uint64_t now; /* ticks */
	uint32_t count;
	uint64_t map[WHEEL_LEVELS];
	uint32_t head[WHEEL_LEVELS][WHEEL_SLOTS];
};

struct queue {
	uint32_t head, tail; /* in at the head, out at the tail */
	_Atomic uint32_t count;
	uint64_t bytes;
};

/* The order of eviction, of the whole store. */
#define PROBES 64u /* a power of two */
#define PROBE_EACH 1024u

struct order {
	_Alignas(CACHE_LINE) struct lock lock;
	_Atomic uint32_t ghost_clock;
	struct queue small, main;
	/* Of some items, by their tag: when they came. So it is known how old what is evicted is. */
	struct {
		_Atomic uint32_t link; /* 0: none. Read without the lock, where that says no more than "perhaps" */
		uint64_t at;           /* as `now` */
	} probe[PROBES];
	uint64_t came;              /* items */
	_Atomic uint64_t now;       /* of the last store_tick(); 0: there was none */
	uint64_t age[PROBES], ages; /* of the last that were evicted, and how many ever */
};

struct ghost {
	uint32_t tag, stamp;
};

struct stripe {
	_Alignas(CACHE_LINE) struct lock lock;
	struct index index;
	uint64_t hits; /* the rest of the first two lines is what every operation touches */
	uint64_t version;
	uint64_t pinned; /* pins and reservations given out, ever */
	uint64_t misses, sets, deletes, evictions, expired;

	_Alignas(CACHE_LINE) _Atomic uint64_t unpinned; /* and given back */
	_Atomic uint64_t due;                           /* of the wheel, read without the lock */
	_Atomic uint64_t removed; /* LSN of the last change that took a key away or its time to live */
	struct ghost *ghost;
	uint32_t ghost_mask; /* 0: none yet */
	struct wheel wheel;
};

/* Making room: one request's at a time, in steps that other requests may take as well. See room.c. */
enum room_stage { ROOM_IDLE, ROOM_GATHER, ROOM_PACK, ROOM_CLEAR, ROOM_READY, ROOM_REFUSED };

struct room {
	enum room_stage stage;
	struct window window;
	bool stands;     /* the window is claimed */
	bool checked;    /* and has nothing that is pinned */
	unsigned again;  /* calls that found something pinned in it all the same */
	unsigned failed; /* windows given up */
	uint32_t left;   /* pages to look at before there is nothing to be had */
	uint32_t tag;    /* the request: its key's, and its extent's size */
	uint64_t size, part;
	unsigned others;      /* calls of other requests since its own last one */
	uint64_t calls, seen; /* its calls, and how many there were when a tick looked last */
	uint64_t seen_at;
};

/*
 * change.c: the ring of changes.
 */
#define CHANGES_MIN 64
#define CHANGES_MAX (1u << 20)

#define CHANGE_COPY (4 * CACHE_LINE - 40)

struct change {
	_Alignas(CACHE_LINE) _Atomic uint64_t lsn; /* written last */
	struct store_item *item;                   /* with one reference; NULL: what is told of it is a copy */
	uint64_t version, expires;
	uint8_t type, flags; /* an enum store_change_type */
	uint16_t key_len, value_len;
	bool attributes;
	unsigned char copy[CHANGE_COPY]; /* key, value and attributes */
};

struct changes {
	struct change *slot; /* NULL: changes are not kept */
	uint32_t size;
	bool on;
	uint64_t held_max, dropped_max;
	_Alignas(CACHE_LINE) _Atomic uint64_t last; /* LSN that was drawn */
	_Atomic uint64_t granted;
	_Alignas(CACHE_LINE) _Atomic uint64_t released;
	_Atomic uint64_t held;              /* bytes of the arena that only changes not yet released hold, or share, */
	_Atomic uint64_t dropped;           /* and those of dropped items among them */
	_Alignas(CACHE_LINE) uint64_t next; /* of the consumer: the LSN that it waits for */
	_Atomic uint64_t flush;             /* LSN of the last delete-all */
	_Atomic uint64_t flush_steps;       /* that its clients have asked for */
	_Atomic unsigned flushes_held;      /* store_hold_flushes() */
	/* The thread that ends what its client has not: all below `flushed` is gone, what is below `flushing` up to
	 * the cursor. */
	uint64_t flushed, flushing, flush_cursor;
	uint64_t flush_seen, flush_seen_at; /* flush_steps, and when there was the last one */
};

int changes_init(struct changes *c, uint32_t size, uint64_t arena_size);
void changes_fini(struct changes *c);

/* Room for so many changes that are about to be made; false: there is none now. What was not needed is returned. */
bool changes_grant(struct changes *c, unsigned n);
void changes_return(struct changes *c, unsigned n);

/* Whether as much was dropped and not released as an extent of this size needs: evicting further frees nothing
 * sooner. */
bool changes_hold_dropped(const struct changes *c, uint64_t size);

struct owner {
	_Alignas(CACHE_LINE) _Atomic uint64_t bytes;
	_Atomic uint64_t limit;
	_Atomic bool looking; /* a thread is, and has the rest */
	unsigned rounds;      /* the hand went without a victim */
	unsigned stripe;      /* where the hand is */
	struct index_cursor hand;
};

/*
 * event.c: which keys were changed, for watchers.
 */
#define EVENT_WORDS 15

struct event_slot {
	_Atomic uint64_t state;
	_Atomic uint64_t word[EVENT_WORDS]; /* of an event's first: type and length, note, then the key */
};

struct events {
	_Atomic bool on;         /* there is a watcher */
	struct event_slot *slot; /* NULL: there was none yet */
	pthread_mutex_t lock;    /* of the list, and of `slot` */
	struct list watchers;
	_Alignas(CACHE_LINE) _Atomic uint64_t head; /* the number that is drawn next */
	_Atomic uint64_t lost;                      /* slots that no writer could have */
	_Alignas(CACHE_LINE) _Atomic unsigned sleepers;
};

void events_init(struct events *e);
void events_fini(struct events *e);
/* When the stripe's lock is given back. */
void events_wake(struct store *store);

struct store {
	enum store_eviction eviction;
	uint64_t value_max;
	uint64_t seed;
	unsigned stripe_shift; /* tag >> this is the stripe */
	unsigned stripes;
	struct stripe *stripe;
	struct owner *owner; /* STORE_OWNERS; 0 stands for none */
	_Alignas(CACHE_LINE) _Atomic uint32_t tick_hand;
	_Atomic uint64_t due, out_of_memory, reserved, moves;
	pthread_mutex_t window_lock;
	struct room room;
	struct order order;
	struct arena arena;
	struct changes changes;
	struct events events;
};

/* One grant, where changes are asked for. */
static inline bool change_grant(struct store *store)
{
	return likely(!store->changes.on) || changes_grant(&store->changes, 1);
}

static inline void change_return(struct store *store)
{
	if (unlikely(store->changes.on))
		changes_return(&store->changes, 1);
}

/* Changes that were not released hold memory: what is refused for want of it now may fit soon. */
static inline bool changes_hold(const struct changes *c)
{
	return unlikely(c->on) && atomic_load_explicit(&c->held, memory_order_relaxed);
}

/* What a change tells of the item goes into its slot, so that the reader of changes never touches the item: else the
 * lines of a short one go to the processor of that thread and back again. */
static inline bool change_is_copy(const struct store_item *item, enum store_change_type type)
{
	return item->key_len + (type == STORE_CHANGE_SET ? item->value_len + item_tail(item) : 0) <= CHANGE_COPY;
}

/* Use a grant up, under the stripe's lock: draws the LSN, which becomes the version of what is written, and publishes.
 * Unless it is a copy, a reference to the item goes to the change. Returns the LSN. */
uint64_t change_put(struct store *store, struct store_item *item, enum store_change_type type, uint8_t flags);

/* The same in two steps, for several changes in a row: draw the LSNs, the last of which is returned, then publish each
 * of them, under the locks of all their stripes. */
uint64_t changes_draw(struct changes *c, unsigned n);
void change_put_at(struct store *store, uint64_t lsn, struct store_item *item, enum store_change_type type,
		   uint8_t flags);

/* The change that a delete-all is. 0 or -EAGAIN. */
int changes_flush(struct store *store);

static inline struct stripe *store_stripe(struct store *store, uint32_t tag)
{
	return &store->stripe[tag >> store->stripe_shift];
}

/* For must(): the calling thread holds the stripe's lock. */
static inline bool stripe_is_mine(const struct stripe *s)
{
	return lock_is_mine(&s->lock, LOCK_STRIPE);
}

/* Items that left the index under a stripe's lock, chained by queue_next, to be released after it. */
struct dead {
	struct store_item *first;
	bool told; /* events were put, and watchers are to be woken */
};

static inline void dead_add(const struct arena *a, struct dead *dead, struct store_item *item)
{
	item->queue_next = dead->first ? arena_link(a, dead->first) : 0;
	dead->first = item;
}

/* Takes the stripe's lock, and gives it back; what left the index is released after that. */
static inline struct stripe *stripe_lock(struct store *store, uint32_t tag)
{
	struct stripe *s = store_stripe(store, tag);

	lock_take(&s->lock, LOCK_STRIPE);
	return s;
}

void store_dead_release(struct store *store, struct dead *dead);

static inline void stripe_unlock(struct store *store, struct stripe *s, struct dead *dead)
{
	lock_give(&s->lock, LOCK_STRIPE);
	if (unlikely(dead->first || dead->told))
		store_dead_release(store, dead);
}

/* What watchers are told of a key, under its stripe's lock; item NULL: of none. */
struct event {
	enum store_event_type type;
	const struct store_item *item;
	uint64_t note;
	bool fresh, timed; /* see struct store_event */
};
void event_put(struct store *store, const struct event *event, struct dead *dead);

/* A write gave it its time, not what it took the place of. */
static inline bool item_is_timed(const struct store_item *item, bool kept)
{
	return item->expires != TIME_NEVER && !kept;
}

static inline bool events_on(const struct store *store)
{
	/* The ring that a watcher made is seen with it. */
	return unlikely(atomic_load_explicit(&store->events.on, memory_order_acquire));
}

static inline void event_tell(struct store *store, struct event event, struct dead *dead)
{
	if (events_on(store))
		event_put(store, &event, dead);
}

/* Why an item leaves the index. The first two are changes, which use a grant up. Expiry is none: the time stands in the
 * change that wrote the item, and the reader of changes sees it pass without being told. Delete-all is one change of
 * its own. */
enum drop { DROP_DELETED, DROP_EVICTED, DROP_EXPIRED, DROP_FLUSHED };

/* A miss in the stripe tells of this change. */
static inline void stripe_removed(struct stripe *s, uint64_t lsn)
{
	must(stripe_is_mine(s));
	if (atomic_load_explicit(&s->removed, memory_order_relaxed) < lsn)
		atomic_store_explicit(&s->removed, lsn, memory_order_release);
}

/* store.c: tells, counts and releases an item that leaves the index, under its stripe's lock: its slot is cleared, or
 * stays the caller's. */
void store_item_left(struct store *store, struct stripe *s, struct store_item *item, enum drop why, struct dead *dead);
void store_item_drop(struct store *store, struct stripe *s, struct slot slot, struct store_item *item, enum drop why,
		     struct dead *dead);

uint32_t store_tag(const struct store *store, const void *key, size_t key_len);

/* A reservation is given up, or about to be published. */
void store_reservation_ends(struct store *store, struct store_item *item);

/* Given out by store_reserve() or item_create(), and not published yet. */
static inline bool item_is_reserved(const struct store_item *item)
{
	return atomic_load_explicit(&item->refs, memory_order_relaxed) == ITEM_RESERVED + 1;
}

/* True for an item that is in the index or pinned, or both. */
static inline bool item_is_published(const struct store_item *item)
{
	uint32_t refs = atomic_load_explicit(&item->refs, memory_order_relaxed);

	return refs > 0 && refs < ITEM_RESERVED;
}

static inline void item_pin(struct stripe *s, struct store_item *item)
{
	must(stripe_is_mine(s) && item_is_published(item));
	atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
	s->pinned++;
}

static inline void ref_set(struct store_ref *ref, struct store_item *item, uint64_t version)
{
	struct item_attributes attributes = item_attributes(item);

	ref->item = item;
	ref->addr = item_value(item);
	ref->len = item->value_len;
	ref->version = version;
	ref->flags = attributes.flags;
	ref->type = attributes.type & (uint8_t)~STORE_STALE;
	ref->stale = attributes.type & STORE_STALE;
}

static inline void meta_set(struct store_meta *meta, const struct store_item *item)
{
	struct item_attributes attributes = item_attributes(item);

	meta->len = item->value_len;
	meta->version = item->version;
	meta->expires = item->expires;
	meta->flags = attributes.flags;
	meta->type = attributes.type & (uint8_t)~STORE_STALE;
	meta->stale = attributes.type & STORE_STALE;
	meta->heat = atomic_load_explicit(&item->heat, memory_order_relaxed);
}

/* No stripe's lock held. Gives one reference back; frees the item with the last. */
void store_item_release(struct store *store, struct store_item *item);

/*
 * evict.c: the order of eviction is S3-FIFO, of the whole store (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you
 * need for cache eviction, SOSP 2023). A stripe's lock is held, but for the last two.
 */

/* An item that is in no queue. */
void evict_add(struct store *store, struct stripe *s, struct store_item *item);
void evict_remove(struct store *store, struct stripe *s, struct store_item *item);

/* The same item, at another place. */
void evict_move(struct store *store, struct stripe *s, struct store_item *old, struct store_item *new);

/* Evicts the next in order. False: nothing that may be evicted was met. *size: that of its extent, 0 when a thread was
 * faster. */
bool evict_next(struct store *store, uint64_t *size);

/* Evicts an item by its link, if that is in the table, and no thread has it pinned. Under the stripe's lock. */
bool evict_link(struct store *store, struct stripe *s, uint32_t tag, uint32_t link, uint64_t *size, struct dead *dead);

/* Evicts what the extent holds, unless it is pinned. */
bool evict_item(struct store *store, struct store_item *item);
/* How long items that were evicted lately had been there, ns, on the average of some; by the time of store_tick(). */
uint64_t evict_age(struct store *store);
void evict_tick(struct store *store, uint64_t now);

static inline void evict_touch(struct store_item *item)
{
	uint8_t heat = atomic_load_explicit(&item->heat, memory_order_relaxed);

	if (heat < 3)
		atomic_store_explicit(&item->heat, heat + 1, memory_order_relaxed);
}

/* The new item takes the old one's place; an overwrite is a hit. */
static inline void evict_replace(struct store *store, struct stripe *s, struct store_item *old, struct store_item *new)
{
	must(new->queue == QUEUE_NONE);
	if (store->eviction == STORE_EVICT_NONE)
		return; /* hits are not counted */
	evict_move(store, s, old, new);
	evict_touch(new);
}

/*
 * owner.c
 */

/* Counts an item that is to be written, of item_bytes(). No stripe's lock held. -EDQUOT, -EAGAIN: nothing was counted,
 * see store_set_limit(). */
int owner_charge(struct store *store, uint16_t owner, uint32_t tag, const void *key, size_t key_len, uint64_t bytes);

/* Counts an item no more: it leaves the index, or was not published. */
static inline void owner_discharge(struct store *store, const struct store_item *item)
{
	uint16_t owner = unlikely(item->attributes) ? item_attributes(item).owner : 0;

	if (unlikely(owner))
		atomic_fetch_sub_explicit(&store->owner[owner].bytes, item_bytes(item), memory_order_relaxed);
}

/*
 * move.c: no stripe's lock held. 0: it is no longer there; -EBUSY: pinned or reserved; -ENOMEM: no other place.
 */

/* A small item to another span; `grow`: to a new one, if no other has a place. */
int move_object(struct store *store, struct store_item *item, bool grow);

/* A large item, at which the window's walk is, down to the items that stay in the window already. */
int move_large(struct store *store, struct window *w, struct store_item *item);

/*
 * room.c
 */

/* A request for an extent. `tag`, `size` and `part` tell requests apart. */
struct room_want {
	uint32_t tag;
	uint64_t size, asked;
	uint64_t part; /* 0, or enough to begin with where something has to be evicted: the rest by room_grow() */
};

/* An extent as arena_alloc's, for which something else is moved or evicted: 0, -EAGAIN: that was a step, call again,
 * -ENOMEM. */
int room_make(struct store *store, const struct room_want *want, uint64_t now, struct store_item **out);

/* Some further bytes of an extent that has only a part. 0, -EAGAIN, -EBUSY: something that is in its way is pinned. */
int room_grow(struct store *store, struct store_item *item, uint64_t bytes);
/* Ends an extent's growth: it is whole, or given up. */
void room_grow_end(struct store *store, struct store_item *item, bool whole);

/* Gives up what a request began that does not come again. */
void room_tick(struct store *store, uint64_t now);

/*
 * wheel.c: under the stripe's lock.
 */

void wheel_link(struct store *store, struct stripe *s, struct store_item *item, uint64_t now);
void wheel_unlink(struct store *store, struct stripe *s, struct store_item *item);

/* An item that is not in the wheel; one that never expires does not come into it. */
static inline void wheel_add(struct store *store, struct stripe *s, struct store_item *item, uint64_t now)
{
	must(stripe_is_mine(s) && !item->wheel_prev);
	if (unlikely(item->expires != TIME_NEVER))
		wheel_link(store, s, item, now);
}

static inline void wheel_remove(struct store *store, struct stripe *s, struct store_item *item)
{
	must(stripe_is_mine(s));
	if (unlikely(item->wheel_prev))
		wheel_unlink(store, s, item);
}

/* The same item, at another place. */
void wheel_move(struct store *store, struct stripe *s, struct store_item *old, struct store_item *new);

/* Takes out what is due by now, at most *budget steps. Returns the next deadline in ns, or
 * TIME_NEVER; one that is not after `now` says that the budget ended it. */
uint64_t wheel_advance(struct store *store, struct stripe *s, uint64_t now, unsigned *budget, struct dead *dead);

/* The item leaves the index: the other places where it stands. Under the stripe's lock. */
static inline void item_leave(struct store *store, struct stripe *s, struct store_item *item)
{
	evict_remove(store, s, item);
	wheel_remove(store, s, item);
	owner_discharge(store, item);
}

/* Any thread. */
static inline void atomic_raise(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t was = atomic_load_explicit(value, memory_order_relaxed);

	while (to > was &&
	       !atomic_compare_exchange_weak_explicit(value, &was, to, memory_order_relaxed, memory_order_relaxed))
		;
}

static inline void due_lower(_Atomic uint64_t *due, uint64_t to)
{
	uint64_t was = atomic_load_explicit(due, memory_order_relaxed);

	while (to < was &&
	       !atomic_compare_exchange_weak_explicit(due, &was, to, memory_order_relaxed, memory_order_relaxed))
		;
}

#endif
