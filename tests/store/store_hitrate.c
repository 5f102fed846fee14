/*
 * store_hitrate [SEED]: what part of reads finds its key in a full store that evicts, beside an exact LRU list of as many items. Each
 * miss writes the key. Prints a table in Markdown, of reads of the second half. docs/figures.md has one.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "store/store.h"

#define SHARE 4   /* keys for each that the store holds */
#define ROUNDS 24 /* reads for each key that the store holds, on average */
#define READS_MIN 20000

static uint64_t state = 1;

static uint64_t random_next(void) /* xorshift64*, Vigna 2016 */
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dull;
}

/*
 * Reads: of so many keys, by a Zipf law, mixed with a walk over others, or in a loop.
 */

struct pattern {
	const char *name;
	double skew;   /* 0: a loop over keys for as many again as are held */
	unsigned scan; /* of each so many reads one belongs to a walk; 0: none */
};

static const struct pattern patterns[] = {
	{"zipf 0.7", 0.7, 0},
	{"zipf 0.9", 0.9, 0},
	{"zipf 1.1", 1.1, 0},
	{"zipf 0.9, every 2nd read of a walk", 0.9, 2},
	{"zipf 0.9, every 4th of a walk", 0.9, 4},
	{"loop over 1.25 times what fits", 0, 0},
};

struct reads {
	const struct pattern *pattern;
	uint32_t held, keys;
	double *sum; /* of the weights up to each key */
	uint64_t n, walked;
};

static uint32_t zipf_key(const struct reads *r)
{
	double at = (double)(random_next() >> 11) / 9007199254740992.0 * r->sum[r->keys - 1];
	uint32_t low = 0, high = r->keys - 1;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (r->sum[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The walk's keys are behind the others, and as many. */
static uint32_t next_key(struct reads *r)
{
	uint64_t n = r->n++;

	if (r->pattern->skew == 0)
		return (uint32_t)(n % (r->held + r->held / 4));
	if (r->pattern->scan && n % r->pattern->scan == 0)
		return r->keys + (uint32_t)(r->walked++ % r->keys);
	return zipf_key(r);
}

static bool counts(const struct reads *r, uint32_t key)
{
	return r->pattern->skew == 0 || key < r->keys;
}

/*
 * LRU: a list of keys, 0 is its end.
 */

struct lru {
	uint32_t *next, *prev; /* of 1 + key; both 0: not there, but for the one that is alone */
	bool *there;
	uint32_t count, most;
};

static void lru_unlink(struct lru *l, uint32_t at)
{
	l->next[l->prev[at]] = l->next[at];
	l->prev[l->next[at]] = l->prev[at];
	l->there[at] = false;
	l->count--;
}

static bool lru_read(struct lru *l, uint32_t key)
{
	uint32_t at = key + 1;
	bool hit = l->there[at];

	if (hit)
		lru_unlink(l, at);
	else if (l->count == l->most)
		lru_unlink(l, l->prev[0]);
	l->next[at] = l->next[0];
	l->prev[at] = 0;
	l->prev[l->next[0]] = at;
	l->next[0] = at;
	l->there[at] = true;
	l->count++;
	return hit;
}

/*
 * The store. Values are not touched.
 */

static void store_write(struct store *store, uint32_t key, uint64_t len)
{
	struct store_ref ref;
	int rc;

	do {
		rc = store_reserve(store, &key, sizeof(key), len, 1, &ref);
	} while (rc == -EAGAIN);
	if (rc == 0)
		store_publish(store, &ref, NULL, 1, NULL);
}

static bool read_through(struct store *store, uint32_t key, uint64_t len)
{
	struct store_ref ref;
	bool hit = store_get(store, &key, sizeof(key), 1, &ref);

	store_unpin(store, &ref);
	if (!hit)
		store_write(store, key, len);
	return hit;
}

static uint64_t evictions(struct store *store)
{
	struct store_stats stats;

	store_get_stats(store, &stats);
	return stats.evictions;
}

/* A store that is empty, after it told how many of this length it holds. */
static uint32_t store_fill(struct store *store, uint64_t len)
{
	uint64_t cursor = 0, deleted;
	uint32_t held = 0;

	while (!evictions(store))
		store_write(store, held++, len);
	do {
		store_flush_some(store, &cursor, &deleted);
	} while (cursor);
	return held - 1;
}

static void *get(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		exit(1);
	return memory;
}

static void row(struct store *store, const struct pattern *pattern, uint64_t len)
{
	struct reads r = {.pattern = pattern, .held = store_fill(store, len)};
	uint64_t all, hits = 0, lru_hits = 0, counted = 0;
	struct lru lru;

	r.keys = r.held * SHARE;
	r.sum = get(r.keys, sizeof(*r.sum));
	for (uint32_t key = 0; key < r.keys; key++)
		r.sum[key] = (key ? r.sum[key - 1] : 0) + pow(key + 1, -pattern->skew);
	lru = (struct lru){get(2 * r.keys + 1, 4), get(2 * r.keys + 1, 4), get(2 * r.keys + 1, 1), 0, r.held};
	all = MAX(READS_MIN, (uint64_t)r.held * ROUNDS);
	while (r.n < all) {
		uint32_t key = next_key(&r);
		bool count = r.n > all / 2 && counts(&r, key);

		hits += read_through(store, key, len) && count;
		lru_hits += lru_read(&lru, key) && count;
		counted += count;
	}
	printf(" %.1f / %.1f |", 100.0 * (double)hits / (double)counted, 100.0 * (double)lru_hits / (double)counted);
	fflush(stdout);
	free(r.sum);
	free(lru.next);
	free(lru.prev);
	free(lru.there);
}

static int cell(const struct pattern *pattern, uint64_t len)
{
	struct store_config config = {
		.arena_size = len < 4096 ? 4 * MIB : 64 * MIB, .value_max = GIB, .eviction = STORE_EVICT_S3_FIFO};
	struct store *store;
	int rc;

	config.arena = mmap(NULL, config.arena_size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (config.arena == MAP_FAILED)
		return -ENOMEM;
	rc = store_create(&config, &store);
	if (rc == 0)
		row(store, pattern, len);
	if (rc == 0)
		store_destroy(store);
	munmap(config.arena, config.arena_size);
	return rc;
}

int main(int argc, char **argv)
{
	static const uint64_t lens[] = {64, 1024, 64 * KIB, MIB, 4 * MIB - 64};

	if (argc > 1)
		state = strtoull(argv[1], NULL, 10) | 1;
	printf("| reads, percent that hit: rdmad / LRU | 64 B | 1 KiB | 64 KiB | 1 MiB | 4 MiB "
	       "|\n|---|---:|---:|---:|---:|---:|\n");
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		printf("| %s |", patterns[i].name);
		for (size_t n = 0; n < ARRAY_SIZE(lens); n++)
			if (cell(&patterns[i], lens[n]) != 0)
				return 1;
		printf("\n");
	}
	return 0;
}
