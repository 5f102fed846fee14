/*
 * hot.c: which keys are asked for most. While it is looked for, each worker takes one request of about EACH by chance
 * and counts its key in a table of its own, by the algorithm Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005): a
 * key that has no place takes that of the key with the least count, and its count. So each key with more than a
 * SERVICE_HOT_KEYS-th of the requests is there, and its count is too high by `over` at most.
 */
#include "service/service.h"

#include <stdlib.h>

#define EACH 8u /* a power of two */

struct service_hot {
	uint64_t until; /* time_now() scale; 0: it is over */
	uint64_t random;
	uint32_t skip; /* requests until the next one is taken */
	struct service_hot_table table;
};

int service_hot_begin(struct service_thread *thread, uint64_t until)
{
	must(service_thread_is_mine(thread));
	if (!thread->hot)
		thread->hot = malloc(sizeof(*thread->hot));
	if (!thread->hot)
		return -ENOMEM;
	*thread->hot = (struct service_hot){.until = until, .random = until | 1};
	service_thread_slow(thread, thread->slow); /* which has the services time requests, and so tell of them */
	return 0;
}

bool service_hot_is_on(const struct service_thread *thread)
{
	return thread->hot && thread->hot->until;
}

void service_hot_end(struct service_thread *thread)
{
	if (!service_hot_is_on(thread))
		return;
	thread->hot->until = 0;
	service_thread_slow(thread, thread->slow);
}

struct service_hot_table *service_hot_copy(const struct service_thread *thread)
{
	struct service_hot_table *copy = thread->hot ? malloc(sizeof(*copy)) : NULL;

	if (copy)
		*copy = thread->hot->table;
	return copy;
}

static void count_key(struct service_hot_table *table, const void *key, size_t len)
{
	uint64_t hash = hash_bytes(key, len);
	struct service_hot_key *least = &table->key[0];

	for (unsigned i = 0; i < table->keys; i++) {
		if (table->key[i].hash == hash) {
			table->key[i].count++;
			return;
		}
		if (table->key[i].count < least->count)
			least = &table->key[i];
	}
	if (table->keys < SERVICE_HOT_KEYS) {
		least = &table->key[table->keys++];
		*least = (struct service_hot_key){.hash = hash};
	}
	least->over = least->count++;
	least->hash = hash;
	least->len = (uint32_t)MIN(len, sizeof(least->key));
	memcpy(least->key, key, least->len);
}

void service_hot_key(struct service_part *part, const void *key, size_t len)
{
	struct service_hot *hot = part->thread->hot;

	must(service_part_is_mine(part));
	if (!hot || !hot->until)
		return;
	if (service_part_now(part) >= hot->until) {
		service_hot_end(part->thread);
		return;
	}
	hot->table.seen++;
	if (hot->skip) {
		hot->skip--;
		return;
	}
	/* A fixed step could meet one key of a client that asks for several in turn. */
	hot->skip = (uint32_t)(random_step(&hot->random) >> 32) % (2 * EACH - 1);
	hot->table.sampled++;
	count_key(&hot->table, key, len);
}

static int by_count(const void *a, const void *b)
{
	const struct service_hot_key *one = a, *other = b;

	return (one->count < other->count) - (one->count > other->count);
}

void service_hot_add(struct service_hot_sum *into, const struct service_hot_table *from)
{
	into->seen += from->seen;
	into->sampled += from->sampled;
	for (unsigned i = 0; i < from->keys; i++) {
		const struct service_hot_key *key = &from->key[i];
		unsigned at = 0;

		while (at < into->keys && into->key[at].hash != key->hash)
			at++;
		if (at < into->keys) {
			into->key[at].count += key->count;
			into->key[at].over += key->over;
		} else if (at < ARRAY_SIZE(into->key)) {
			into->key[into->keys++] = *key;
		}
	}
	qsort(into->key, into->keys, sizeof(into->key[0]), by_count);
	into->keys = MIN(into->keys, SERVICE_HOT_SUM); /* room for those of the next */
}
