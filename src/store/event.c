/*
 * event: which keys were changed, for watchers. One ring of slots that no watcher holds up: a writer takes the
 * next numbers, as many as the key needs slots, and writes over what was there a lap ago; each watcher goes through the
 * numbers by itself. A slot's state is its number with a bit that says that it is written just now, so a reader sees
 * whether what it copied was whole (the sequence lock of Hemminger and Linux, a slot each; Boehm, Can Seqlocks Get
 * Along With Programming Language Memory Models?, MSPC 2012). What a watcher did not read in time it has missed, and is
 * told so.
 */
#include "store/internal.h"

#include <sys/mman.h>
#include <unistd.h>

#define SLOTS 65536u
#define HEAD_BYTES ((EVENT_WORDS - 2) * sizeof(uint64_t)) /* of the key in the first slot, */
#define MORE_BYTES (EVENT_WORDS * sizeof(uint64_t))       /* and in each that follows */
#define BUSY 1u

/* The state of a slot that has this number; what is there before any is 0. */
static uint64_t state_of(uint64_t number)
{
	return (number + 1) << 1;
}

static struct event_slot *slot_of(const struct events *e, uint64_t number)
{
	return &e->slot[number & (SLOTS - 1)];
}

static unsigned slots_of(size_t key_len)
{
	return 1 + (key_len > HEAD_BYTES ? (unsigned)((key_len - HEAD_BYTES + MORE_BYTES - 1) / MORE_BYTES) : 0);
}

void events_init(struct events *e)
{
	pthread_mutex_init(&e->lock, NULL);
	list_init(&e->watchers);
}

void events_fini(struct events *e)
{
	must(list_empty(&e->watchers));
	if (e->slot)
		munmap(e->slot, SLOTS * sizeof(*e->slot));
	pthread_mutex_destroy(&e->lock);
}

/*
 * Writing. Under the stripe's lock, so that the events of one key come in their order.
 */

/* NULL: a writer that was overtaken by a whole lap has the slot, or the one that overtook this one. */
static struct event_slot *slot_begin(struct events *e, uint64_t number)
{
	struct event_slot *slot = slot_of(e, number);
	uint64_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);

	if (!(state & BUSY) && state < state_of(number) &&
	    atomic_compare_exchange_strong_explicit(&slot->state, &state, state_of(number) | BUSY, memory_order_acquire,
						    memory_order_relaxed))
		return slot;
	atomic_fetch_add(&e->lost, 1);
	return NULL;
}

/* Bytes of the key, from the slot's word `at` on; behind them the slot is whole. */
static void slot_end(struct event_slot *slot, unsigned at, const unsigned char *key, size_t len, uint64_t number)
{
	for (; len; at++) {
		size_t n = MIN(len, sizeof(uint64_t));
		uint64_t word = 0;

		memcpy(&word, key, n);
		atomic_store_explicit(&slot->word[at], word, memory_order_release);
		key += n;
		len -= n;
	}
	atomic_store_explicit(&slot->state, state_of(number), memory_order_release);
}

void event_put(struct store *store, const struct event *event, struct dead *dead)
{
	struct events *e = &store->events;
	const unsigned char *key = event->item ? event->item->key : (const unsigned char *)"";
	size_t left = event->item ? event->item->key_len : 0;
	uint64_t number = atomic_fetch_add(&e->head, slots_of(left)); /* orders it before the look at sleepers */
	struct event_slot *slot = slot_begin(e, number);
	size_t n = MIN(left, HEAD_BYTES);

	dead->told = true;
	if (slot) {
		atomic_store_explicit(&slot->word[0],
				      (uint64_t)event->type | (uint64_t)event->fresh << 8 |
					      (uint64_t)event->timed << 9 | (uint64_t)left << 16,
				      memory_order_release);
		atomic_store_explicit(&slot->word[1], event->note, memory_order_release);
		slot_end(slot, 2, key, n, number);
	}
	for (left -= n, key += n; left; left -= n, key += n) {
		slot = slot_begin(e, ++number);
		n = MIN(left, MORE_BYTES);
		if (slot)
			slot_end(slot, 0, key, n, number);
	}
}

static void watcher_rise(struct events *e, struct store_watcher *w, bool wake)
{
	const uint64_t one = 1;

	if (!atomic_exchange(&w->asleep, false))
		return;
	atomic_fetch_sub(&e->sleepers, 1);
	/* It cannot fail: the number stays far below its limit. */
	if (wake && write(w->fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		log_error("store", "cannot wake a watcher: %m");
}

void events_wake(struct store *store)
{
	struct events *e = &store->events;

	if (!atomic_load(&e->sleepers))
		return;
	pthread_mutex_lock(&e->lock);
	list_for_each (pos, &e->watchers)
		watcher_rise(e, container_of(pos, struct store_watcher, node), true);
	pthread_mutex_unlock(&e->lock);
}

/*
 * Watching.
 */

int store_watch_begin(struct store *store, struct store_watcher *w, int fd)
{
	struct events *e = &store->events;

	pthread_mutex_lock(&e->lock);
	if (!e->slot) {
		void *at = mmap(NULL, SLOTS * sizeof(*e->slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				0);

		if (at == MAP_FAILED) {
			pthread_mutex_unlock(&e->lock);
			return -ENOMEM;
		}
		e->slot = at;
	}
	*w = (struct store_watcher){.fd = fd, .next = atomic_load(&e->head), .lost = atomic_load(&e->lost)};
	list_add_tail(&e->watchers, &w->node);
	atomic_store_explicit(&e->on, true, memory_order_release);
	pthread_mutex_unlock(&e->lock);
	/* A writer that has not seen it holds a stripe's lock: it has ended when this returns, also where another
	 * watcher waits for it still. */
	for (unsigned i = 0; i < store->stripes; i++) {
		lock_take(&store->stripe[i].lock, LOCK_STRIPE);
		lock_give(&store->stripe[i].lock, LOCK_STRIPE);
	}
	return 0;
}

void store_watch_end(struct store *store, struct store_watcher *w)
{
	struct events *e = &store->events;

	pthread_mutex_lock(&e->lock);
	watcher_rise(e, w, false);
	list_del(&w->node);
	if (list_empty(&e->watchers))
		atomic_store_explicit(&e->on, false, memory_order_relaxed);
	pthread_mutex_unlock(&e->lock);
}

/* The words of a slot, as far as `bytes` from word `at` on need them. False: it is not, or no more, of that number. */
static bool slot_read(const struct events *e, uint64_t number, unsigned at, void *to, size_t bytes)
{
	const struct event_slot *slot = slot_of(e, number);
	unsigned char *out = to;

	if (atomic_load_explicit(&slot->state, memory_order_acquire) != state_of(number))
		return false;
	for (; bytes; at++) {
		uint64_t word = atomic_load_explicit(&slot->word[at], memory_order_acquire);
		size_t n = MIN(bytes, sizeof(word));

		memcpy(out, &word, n);
		out += n;
		bytes -= n;
	}
	return atomic_load_explicit(&slot->state, memory_order_relaxed) == state_of(number);
}

/* False: its slots are not whole yet, or no more. */
static bool event_read(const struct events *e, uint64_t number, struct store_event *out)
{
	uint64_t head[2];
	size_t at;

	if (!slot_read(e, number, 0, head, sizeof(head)))
		return false;
	*out = (struct store_event){.type = head[0] & 0xff,
				    .fresh = head[0] >> 8 & 1,
				    .timed = head[0] >> 9 & 1,
				    .number = number,
				    .note = head[1],
				    .key_len = head[0] >> 16 & STORE_KEY_MAX};
	at = MIN(out->key_len, HEAD_BYTES);
	if (!slot_read(e, number, 2, out->key, at))
		return false;
	while (at < out->key_len) {
		size_t n = MIN(out->key_len - at, MORE_BYTES);

		if (!slot_read(e, ++number, 0, out->key + at, n))
			return false;
		at += n;
	}
	return true;
}

bool store_watch_next(struct store *store, struct store_watcher *w, struct store_event *out)
{
	const struct events *e = &store->events;
	uint64_t lost = atomic_load(&e->lost), head = atomic_load(&e->head);

	if (w->next == head)
		return false;
	if (lost == w->lost && head - w->next <= SLOTS) {
		if (!event_read(e, w->next, out))
			return false;
		w->next += slots_of(out->key_len);
		return true;
	}
	*out = (struct store_event){.type = STORE_EVENT_MISSED, .number = head, .missed = head - w->next};
	w->lost = lost;
	w->next = head;
	return true;
}

void store_watch_all_missed(struct store *store)
{
	struct events *e = &store->events;

	if (!events_on(store))
		return;
	atomic_fetch_add(&e->lost, 1);
	atomic_fetch_add(&e->head, 1);
	events_wake(store);
}

uint64_t store_event_head(const struct store *store)
{
	return atomic_load(&store->events.head);
}

bool store_watch_sleep(struct store *store, struct store_watcher *w)
{
	struct events *e = &store->events;

	atomic_fetch_add(&e->sleepers, 1);
	atomic_store(&w->asleep, true);
	if (atomic_load(&e->head) == w->next)
		return true;
	store_watch_rise(store, w);
	return false;
}

void store_watch_rise(struct store *store, struct store_watcher *w)
{
	watcher_rise(&store->events, w, false);
}
