/* slow.c: the log of slow requests, a ring that the workers share. Only requests that are slow come here. */
#include "service/service.h"

#include <pthread.h>
#include <stdlib.h>

struct service_slow {
	_Atomic uint64_t limit; /* ns; 0: off */
	_Atomic bool keys;
	pthread_mutex_t lock; /* of what follows */
	uint64_t next;        /* the number of the next entry: those before it are there, SERVICE_SLOW_MAX at most */
	uint64_t first;       /* but none before this one */
	struct service_slow_entry ring[SERVICE_SLOW_MAX];
};

int service_slow_create(struct service_slow **out)
{
	struct service_slow *slow = calloc(1, sizeof(*slow)); /* pages that are not used cost nothing */

	if (!slow)
		return -ENOMEM;
	pthread_mutex_init(&slow->lock, NULL);
	*out = slow;
	return 0;
}

void service_slow_destroy(struct service_slow *slow)
{
	if (!slow)
		return;
	pthread_mutex_destroy(&slow->lock);
	free(slow);
}

void service_slow_set(struct service_slow *slow, uint64_t limit, bool keys)
{
	atomic_store(&slow->limit, limit);
	atomic_store(&slow->keys, keys);
}

uint64_t service_slow_limit(const struct service_slow *slow)
{
	return slow ? atomic_load_explicit(&slow->limit, memory_order_relaxed) : 0;
}

void service_slow_add(struct service_part *part, const struct service_slow_request *request)
{
	struct service_slow *slow = part->thread->slow;
	struct service_slow_entry *entry;
	struct timespec now;

	must(service_part_is_mine(part));
	if (!slow)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	pthread_mutex_lock(&slow->lock);
	entry = &slow->ring[slow->next % SERVICE_SLOW_MAX];
	*entry = (struct service_slow_entry){
		.id = slow->next++,
		.at = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000,
		.took = request->took,
		.size = request->size,
		.service = part->service->id,
		.operation = request->operation,
	};
	snprintf(entry->client, sizeof(entry->client), "%s", request->client);
	snprintf(entry->key_of, sizeof(entry->key_of), "%s", request->key_of);
	if (request->key && atomic_load_explicit(&slow->keys, memory_order_relaxed)) {
		entry->key_len = (uint32_t)MIN(request->key_len, sizeof(entry->key));
		memcpy(entry->key, request->key, entry->key_len);
	}
	pthread_mutex_unlock(&slow->lock);
}

size_t service_slow_read(struct service_slow *slow, struct service_slow_entry *out, size_t most)
{
	size_t n = 0;

	pthread_mutex_lock(&slow->lock);
	for (uint64_t id = slow->next; n < MIN(most, SERVICE_SLOW_MAX) && id > slow->first; n++)
		out[n] = slow->ring[--id % SERVICE_SLOW_MAX];
	pthread_mutex_unlock(&slow->lock);
	return n;
}

uint64_t service_slow_count(struct service_slow *slow)
{
	uint64_t n;

	pthread_mutex_lock(&slow->lock);
	n = slow->next - slow->first;
	pthread_mutex_unlock(&slow->lock);
	return MIN(n, SERVICE_SLOW_MAX);
}

void service_slow_reset(struct service_slow *slow)
{
	pthread_mutex_lock(&slow->lock);
	slow->first = slow->next;
	pthread_mutex_unlock(&slow->lock);
}
