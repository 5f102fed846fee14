/* create.c: a store's beginning and end, and its figures. */
#include "store/internal.h"

#include <stdlib.h>
#include <time.h>

#define ROOM "store"

static void stripes_free(struct store *store)
{
	for (unsigned i = 0; i < store->stripes; i++) {
		index_fini(&store->stripe[i].index);
		free(store->stripe[i].ghost);
	}
	free(store->stripe);
}

/* An array of whole cache lines, zeroed. */
static void *lines_alloc(size_t n, size_t size)
{
	void *lines = aligned_alloc(CACHE_LINE, n * size);

	return lines ? memset(lines, 0, n * size) : NULL;
}

/* 128 stripes need 2.3 KiB each; a small arena takes fewer. */
static int stripes_create(struct store *store, size_t arena_size, uint64_t epoch)
{
	unsigned n = STRIPES_MIN;
	int rc;

	while (n < STRIPES_MAX && n * MIB < arena_size)
		n *= 2;
	store->stripe = lines_alloc(n, sizeof(struct stripe));
	if (!store->stripe)
		return -ENOMEM;
	store->stripe_shift = 32 - (unsigned)__builtin_ctz(n);
	for (; store->stripes < n; store->stripes++) {
		atomic_store(&store->stripe[store->stripes].due, TIME_NEVER);
		store->stripe[store->stripes].version = epoch;
		rc = index_init(&store->stripe[store->stripes].index);
		if (rc != 0) {
			stripes_free(store);
			return rc;
		}
	}
	return 0;
}

uint64_t store_epoch(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 4000000 + (uint64_t)t.tv_nsec / 250;
}

int store_create(const struct store_config *config, struct store **out)
{
	struct store *store;
	int rc;

	if (!config->arena || (uintptr_t)config->arena % PAGE_BYTES || config->arena_size < MIB)
		return log_fail(-EINVAL, ROOM, "arena of %zu bytes: at least 1 MiB of page-aligned memory needed",
				config->arena_size);
	store = lines_alloc(1, sizeof(*store));
	if (!store)
		goto no_memory;
	store->eviction = config->eviction;
	store->value_max = MIN(config->value_max, VALUE_LIMIT);
	atomic_store(&store->due, TIME_NEVER);
	/* So that no client can choose keys that share a bucket. */
	rc = random_fill(&store->seed, sizeof(store->seed));
	if (rc != 0)
		goto free_store;
	rc = -ENOMEM;
	store->owner = lines_alloc(STORE_OWNERS, sizeof(struct owner));
	if (!store->owner)
		goto free_store;
	for (unsigned i = 0; i < STORE_OWNERS; i++)
		atomic_init(&store->owner[i].limit, UINT64_MAX);
	rc = changes_init(&store->changes, config->changes, config->arena_size);
	if (rc != 0)
		goto free_store;
	rc = arena_init(&store->arena, config->arena, config->arena_size);
	if (rc != 0)
		goto free_changes;
	store->arena.pages.idle_at = config->gives_back ? 0 : TIME_NEVER;
	rc = stripes_create(store, config->arena_size, config->epoch);
	if (rc != 0)
		goto close_arena;
	pthread_mutex_init(&store->window_lock, NULL);
	events_init(&store->events);
	*out = store;
	return 0;

close_arena:
	arena_fini(&store->arena);
free_changes:
	changes_fini(&store->changes);
free_store:
	free(store->owner);
	free(store);
	if (rc != -ENOMEM)
		return rc;
no_memory:
	return log_fail(-ENOMEM, ROOM, "no memory for the index of a %zu byte arena", config->arena_size);
}

/* Pins and reservations that were not given back. The stripe's lock is held, or no other thread is left. */
static uint64_t stripe_pins(const struct stripe *s)
{
	return s->pinned - atomic_load_explicit(&s->unpinned, memory_order_relaxed);
}

void store_destroy(struct store *store)
{
	if (!store)
		return;
	for (unsigned i = 0; i < store->stripes; i++)
		must(stripe_pins(&store->stripe[i]) == 0);
	events_fini(&store->events);
	pthread_mutex_destroy(&store->window_lock);
	stripes_free(store);
	arena_fini(&store->arena);
	changes_fini(&store->changes);
	free(store->owner);
	free(store);
}

static void stripe_add_stats(struct stripe *s, struct store_stats *out)
{
	lock_take(&s->lock, LOCK_STRIPE);
	out->items += s->index.count;
	out->expiring += s->wheel.count;
	out->pins += stripe_pins(s);
	out->hits += s->hits;
	out->misses += s->misses;
	out->sets += s->sets;
	out->deletes += s->deletes;
	out->evictions += s->evictions;
	out->expired += s->expired;
	lock_give(&s->lock, LOCK_STRIPE);
}

void store_get_stats(struct store *store, struct store_stats *out)
{
	struct arena_usage usage;

	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < store->stripes; i++)
		stripe_add_stats(&store->stripe[i], out);
	out->evicted_age = evict_age(store) / TIME_US;
	arena_get_usage(&store->arena, &usage);
	out->bytes_used = usage.used;
	out->bytes_asked = usage.asked;
	out->bytes_held = usage.held;
	out->bytes_total = (uint64_t)store->arena.pages.count << PAGE_SHIFT;
	out->bytes_free_run = (uint64_t)pages_longest(&store->arena.pages, NULL) << PAGE_SHIFT;
	out->bytes_returned = atomic_load(&store->arena.pages.returned);
	out->bytes_reserved = atomic_load(&store->reserved);
	out->moves = atomic_load(&store->moves);
	out->out_of_memory = atomic_load(&store->out_of_memory);
}
