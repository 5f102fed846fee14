/*
 * sources.c: how many connections each address or user has. A hash table with an entry for each source; workers count
 * down in the entry, and the main thread frees entries without connections when there are twice as many as there may be
 * connections, so that each request costs the same and the memory has a bound.
 */
#include "daemon/daemon.h"

#include <stdlib.h>

#define BUCKETS_MAX (1u << 16)
#define SPARE 16

struct source {
	struct source *next;
	struct fabric_source of;
	_Atomic uint32_t connections;
};

struct sources {
	uint64_t secret[5]; /* odd, so that nobody knows which addresses meet in a bucket */
	size_t count, most, buckets;
	struct source *bucket[];
};

int sources_create(uint64_t connections, struct sources **out)
{
	struct sources *s;
	size_t buckets = 16;
	int rc;

	while (buckets < connections && buckets < BUCKETS_MAX)
		buckets *= 2;
	s = calloc(1, sizeof(*s) + buckets * sizeof(s->bucket[0]));
	if (!s)
		return -ENOMEM;
	rc = random_fill(s->secret, sizeof(s->secret));
	if (rc != 0) {
		free(s);
		return rc;
	}
	for (size_t i = 0; i < ARRAY_SIZE(s->secret); i++)
		s->secret[i] |= 1;
	s->buckets = buckets;
	s->most = 2 * connections + SPARE;
	*out = s;
	return 0;
}

/* Free what `all` or, else, what has no connections. */
static void clear(struct sources *s, bool all)
{
	for (size_t i = 0; i < s->buckets; i++) {
		struct source **at = &s->bucket[i];

		while (*at) {
			struct source *source = *at;

			if (!all && atomic_load_explicit(&source->connections, memory_order_acquire) > 0) {
				at = &source->next;
				continue;
			}
			*at = source->next;
			free(source);
			s->count--;
		}
	}
}

void sources_destroy(struct sources *s)
{
	if (s)
		clear(s, true);
	free(s);
}

/* Multiply and shift (Dietzfelbinger and others, 1997): the upper bits. */
static struct source **bucket_of(struct sources *s, const struct fabric_source *of)
{
	uint64_t mixed = s->secret[0] * of->family + s->secret[1] * (uint32_t)of->id[0] +
			 s->secret[2] * (of->id[0] >> 32) + s->secret[3] * (uint32_t)of->id[1] +
			 s->secret[4] * (of->id[1] >> 32);

	return &s->bucket[(mixed >> 32) & (s->buckets - 1)];
}

static struct source *find(struct sources *s, const struct fabric_source *of)
{
	struct source *source = *bucket_of(s, of);

	while (source && memcmp(&source->of, of, sizeof(*of)) != 0)
		source = source->next;
	return source;
}

static struct source *add(struct sources *s, const struct fabric_source *of)
{
	struct source *source, **bucket = bucket_of(s, of);

	if (s->count >= s->most)
		clear(s, false);
	source = s->count < s->most ? calloc(1, sizeof(*source)) : NULL;
	if (!source)
		return NULL;
	source->of = *of;
	source->next = *bucket;
	*bucket = source;
	s->count++;
	return source;
}

int sources_enter(struct sources *s, const struct fabric_source *of, uint64_t most, _Atomic uint32_t **out)
{
	struct source *source;

	*out = NULL;
	if (of->family == AF_UNSPEC)
		return 0;
	source = find(s, of);
	if (!source)
		source = add(s, of);
	if (!source)
		return -ENOMEM;
	if (atomic_load_explicit(&source->connections, memory_order_acquire) >= most)
		return -EUSERS;
	atomic_fetch_add_explicit(&source->connections, 1, memory_order_relaxed);
	*out = &source->connections;
	return 0;
}

size_t sources_count(const struct sources *s)
{
	return s->count;
}
