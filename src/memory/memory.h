/*
 * memory: registered memory and buffer pools. Uses fabric.
 *
 * Registered memory is page-aligned and from mmap, so that a fork marks whole pages only.
 */
#ifndef RDMAD_MEMORY_H
#define RDMAD_MEMORY_H

#include "fabric/fabric.h"

/* One buffer of a pool, of the pool's buffer size. */
struct memory_buffer {
	struct memory_buffer *next;
	void *addr;
	const struct fabric_region *region;
	void *owner;      /* the user's: the connection it belongs to while in use */
	struct list node; /* the user's */
	uint32_t count;   /* the user's */
};

/* What pools of several threads may have together. A promise: its taker may use as much, whenever it needs it. */
struct memory_budget {
	uint64_t limit;
	_Atomic uint64_t used;
	_Atomic uint64_t unproved; /* of that, by clients that have not proved their keys */
};

static inline bool memory_budget_take(struct memory_budget *budget, uint64_t bytes)
{
	if (atomic_fetch_add(&budget->used, bytes) + bytes <= budget->limit)
		return true;
	atomic_fetch_sub(&budget->used, bytes);
	return false;
}

static inline void memory_budget_give(struct memory_budget *budget, uint64_t bytes)
{
	atomic_fetch_sub(&budget->used, bytes);
}

/* Fixed-size registered buffers; one thread at a time. Grows by chunks up to `max`, so that get() only
 * fails at that limit or at the machine's, which is not asked again at once but after a growing pause, seconds at
 * most. */
struct memory_pool;

struct memory_pool_attr {
	const char *name;     /* for the log */
	uint32_t buffer_size; /* bytes, rounded up to a cache line */
	uint32_t chunk;       /* buffers made at a time, and at create */
	uint32_t max;         /* most buffers */
	unsigned access;      /* enum fabric_access */
};

/* buffer_size and chunk are not 0. 0, -ENOBUFS when max is, -ENOMEM (logged by the fabric with what to do). */
int memory_pool_create(struct fabric_domain *domain, const struct memory_pool_attr *attr, struct memory_pool **out);
/* Every buffer is back, or nothing can touch it any more. */
void memory_pool_destroy(struct memory_pool *pool);

/* It may have so many buffers from now on; never fewer than before. */
void memory_pool_widen(struct memory_pool *pool, uint32_t max);

/* NULL: the pool is at its limit, or the machine's memory is. The content is what its last user left. */
struct memory_buffer *memory_pool_get(struct memory_pool *pool);
/* A buffer that came from get() of this pool, once. */
void memory_pool_put(struct memory_pool *pool, struct memory_buffer *buffer);

struct memory_pool_stats {
	uint64_t buffers, in_use, bytes, failures;
};
void memory_pool_get_stats(const struct memory_pool *pool, struct memory_pool_stats *out);

#endif
