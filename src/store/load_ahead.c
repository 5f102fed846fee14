/*
 * load_ahead.c: pages that are taken from the kernel before they are used. What is free in a store that is being loaded
 * is one long run, of which spans take the low end and large items the high end; so it is there that pages are wanted
 * next.
 */
#include "store/internal.h"

#include "base/thread.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define AHEAD (32 * MIB)
#define STEP (4 * MIB)
#define REST (TIME_MS / 2) /* where nothing is to be done: in so long a fast disk brings a tenth of what it is ahead */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 and glibc 2.35 */
#endif

struct store_ahead {
	struct arena *arena;
	pthread_t thread;
	_Atomic bool stop;  /* also where the kernel has said no: it has no such call, or no memory */
	uint64_t low, high; /* where the two ends' pages are taken up to, in bytes of the arena */
};

static void take_pages(struct store_ahead *ahead, uint64_t from, uint64_t to)
{
	if (madvise(ahead->arena->base + from, to - from, MADV_POPULATE_WRITE) != 0)
		atomic_store_explicit(&ahead->stop, true, memory_order_relaxed);
}

/* One step at each end. False: there is nothing to be done. */
static bool ahead_step(struct store_ahead *ahead)
{
	uint64_t size = (uint64_t)ahead->arena->pages.count << PAGE_SHIFT, from, to, low, high;
	uint32_t first, n = pages_longest(&ahead->arena->pages, &first);
	bool done = false;

	if (!n)
		return false;
	from = (uint64_t)first << PAGE_SHIFT;
	to = from + ((uint64_t)n << PAGE_SHIFT);
	ahead->low = MAX(ahead->low, from);
	ahead->high = MIN(ahead->high, to);
	low = from + MIN(MIN(from, AHEAD), to - from);
	high = to - MIN(MIN(size - to, AHEAD), to - from);
	if (ahead->low < low) {
		low = MIN(low, ahead->low + STEP);
		take_pages(ahead, ahead->low, low);
		ahead->low = low;
		done = true;
	}
	if (ahead->high > high) {
		high = MAX(high, ahead->high - MIN(ahead->high, STEP));
		take_pages(ahead, high, ahead->high);
		ahead->high = high;
		done = true;
	}
	return done;
}

static void *ahead_run(void *arg)
{
	struct store_ahead *ahead = arg;

	while (!atomic_load_explicit(&ahead->stop, memory_order_relaxed))
		if (!ahead_step(ahead))
			nanosleep(&(struct timespec){.tv_nsec = REST}, NULL);
	return NULL;
}

struct store_ahead *store_load_ahead(struct store *store)
{
	uint64_t size = (uint64_t)store->arena.pages.count << PAGE_SHIFT;
	struct store_ahead *ahead = size <= ram_usable() ? malloc(sizeof(*ahead)) : NULL;

	if (!ahead)
		return NULL;
	*ahead = (struct store_ahead){.arena = &store->arena, .high = size};
	if (thread_start(&ahead->thread, "store-ahead", ahead_run, ahead) == 0)
		return ahead;
	free(ahead);
	return NULL;
}

void store_load_ahead_end(struct store_ahead *ahead)
{
	if (!ahead)
		return;
	atomic_store_explicit(&ahead->stop, true, memory_order_relaxed);
	pthread_join(ahead->thread, NULL);
	free(ahead);
}
