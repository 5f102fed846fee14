/*
 * won.c: a client that is told to make a value anew (W) is the only one: others are told that one does (Z), until
 * the key is written, by which it has another version. So what is kept is a mark of a key's version, in one of a few
 * places that it may be in; the oldest gives way.
 */
#include "service/memcached/memcached.h"

#include <stdlib.h>

#define WAYS 4

int memcached_won_open(struct memcached_won *won)
{
	won->mark = calloc(MEMCACHED_WON, sizeof(*won->mark));
	pthread_mutex_init(&won->lock, NULL);
	return won->mark ? 0 : -ENOMEM;
}

void memcached_won_close(struct memcached_won *won)
{
	pthread_mutex_destroy(&won->lock);
	free(won->mark);
}

static uint64_t mark_of(uint64_t hash, uint64_t version)
{
	uint64_t mark = (hash ^ version) * 0x9e3779b97f4a7c15ull ^ hash >> 29;

	return mark ? mark : 1;
}

static _Atomic uint64_t *won_places(const struct memcached_won *won, uint64_t hash)
{
	return &won->mark[hash % (MEMCACHED_WON / WAYS) * WAYS];
}

bool memcached_won_sent(const struct memcached_won *won, uint64_t hash, uint64_t version)
{
	const _Atomic uint64_t *at = won_places(won, hash);
	uint64_t mark = mark_of(hash, version);

	if (likely(!atomic_load_explicit(&won->any, memory_order_relaxed)))
		return false;
	for (unsigned i = 0; i < WAYS; i++)
		if (atomic_load_explicit(&at[i], memory_order_relaxed) == mark)
			return true;
	return false;
}

bool memcached_won_take(struct memcached_won *won, uint64_t hash, uint64_t version)
{
	_Atomic uint64_t *at = won_places(won, hash);
	bool taken;

	pthread_mutex_lock(&won->lock);
	atomic_store_explicit(&won->any, true, memory_order_relaxed);
	taken = !memcached_won_sent(won, hash, version);
	if (taken) {
		for (unsigned i = WAYS - 1; i > 0; i--)
			atomic_store_explicit(&at[i], atomic_load_explicit(&at[i - 1], memory_order_relaxed),
					      memory_order_relaxed);
		atomic_store_explicit(&at[0], mark_of(hash, version), memory_order_relaxed);
	}
	pthread_mutex_unlock(&won->lock);
	return taken;
}
