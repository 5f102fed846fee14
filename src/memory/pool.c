/* pool.c: fixed-size registered buffers, a stack of free ones. */
#include "memory/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

struct chunk {
	struct chunk *next;
	void *memory;
	size_t size;
	struct fabric_region *region;
	struct memory_buffer buffer[];
};

struct memory_pool {
	struct memory_pool_attr attr;
	struct fabric_domain *domain;
	struct chunk *chunks;
	struct memory_buffer *free;
	uint64_t retry, pause; /* after the machine refused: when to ask it again, and how long it was told to wait */
	struct memory_pool_stats stats;
};

#define PAUSE_MIN (10 * TIME_MS)
#define PAUSE_MAX (5 * TIME_S)

static int memory_pool_add(struct memory_pool *pool)
{
	uint32_t count = (uint32_t)MIN((uint64_t)pool->attr.chunk, pool->attr.max - pool->stats.buffers);
	size_t size = (size_t)count * pool->attr.buffer_size;
	struct chunk *chunk;
	int rc = -ENOMEM;

	chunk = calloc(1, sizeof(*chunk) + count * sizeof(chunk->buffer[0]));
	if (!chunk)
		return -ENOMEM;
	chunk->size = size;
	chunk->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (chunk->memory == MAP_FAILED) {
		log_error("memory", "%s buffers: no %zu bytes of memory: %m", pool->attr.name, size);
		goto free_chunk;
	}
	rc = fabric_register(pool->domain, chunk->memory, size, pool->attr.access, &chunk->region);
	if (rc != 0)
		goto unmap;
	for (uint32_t i = count; i-- > 0;) {
		struct memory_buffer *b = &chunk->buffer[i];

		b->addr = (char *)chunk->memory + (size_t)i * pool->attr.buffer_size;
		b->region = chunk->region;
		b->next = pool->free;
		pool->free = b;
	}
	chunk->next = pool->chunks;
	pool->chunks = chunk;
	pool->stats.buffers += count;
	pool->stats.bytes += size;
	return 0;

unmap:
	munmap(chunk->memory, size);
free_chunk:
	free(chunk);
	return rc;
}

/* Asking costs system calls and a line of the log, at a hot place: a machine that refused is left in peace
 * for a while. The pool's own limit costs nothing to find out. */
static int memory_pool_grow(struct memory_pool *pool)
{
	uint64_t now;
	int rc;

	if (pool->stats.buffers == pool->attr.max)
		return -ENOBUFS;
	now = time_now();
	if (now < pool->retry)
		return -ENOMEM;
	rc = memory_pool_add(pool);
	pool->pause = rc == 0 ? 0 : MIN(MAX(2 * pool->pause, PAUSE_MIN), PAUSE_MAX);
	pool->retry = rc == 0 ? 0 : now + pool->pause;
	return rc;
}

/* For must(). */
static bool pool_has(const struct memory_pool *pool, const struct memory_buffer *buffer)
{
	for (const struct chunk *c = pool->chunks; c; c = c->next)
		if (buffer->region == c->region)
			return true;
	return false;
}

int memory_pool_create(struct fabric_domain *domain, const struct memory_pool_attr *attr, struct memory_pool **out)
{
	struct memory_pool *pool = calloc(1, sizeof(*pool));
	int rc;

	must(attr->buffer_size && attr->chunk);
	if (!pool)
		return -ENOMEM;
	pool->attr = *attr;
	pool->attr.buffer_size = (attr->buffer_size + CACHE_LINE - 1) & ~(CACHE_LINE - 1u);
	pool->domain = domain;
	rc = memory_pool_grow(pool);
	if (rc != 0) {
		free(pool);
		return rc;
	}
	*out = pool;
	return 0;
}

void memory_pool_widen(struct memory_pool *pool, uint32_t max)
{
	pool->attr.max = MAX(pool->attr.max, max);
}

void memory_pool_destroy(struct memory_pool *pool)
{
	if (!pool)
		return;
	while (pool->chunks) {
		struct chunk *chunk = pool->chunks;

		pool->chunks = chunk->next;
		fabric_deregister(chunk->region);
		munmap(chunk->memory, chunk->size);
		free(chunk);
	}
	free(pool);
}

struct memory_buffer *memory_pool_get(struct memory_pool *pool)
{
	struct memory_buffer *buffer;

	if (unlikely(!pool->free) && memory_pool_grow(pool) != 0) {
		pool->stats.failures++;
		return NULL;
	}
	buffer = pool->free;
	pool->free = buffer->next;
	pool->stats.in_use++;
	return buffer;
}

void memory_pool_put(struct memory_pool *pool, struct memory_buffer *buffer)
{
	must(pool->stats.in_use && buffer != pool->free && pool_has(pool, buffer));
	buffer->next = pool->free;
	pool->free = buffer;
	pool->stats.in_use--;
}

void memory_pool_get_stats(const struct memory_pool *pool, struct memory_pool_stats *out)
{
	*out = pool->stats;
}
