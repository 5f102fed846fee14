/*
 * quota.c: a hash table with a share for each source. Any thread counts a share down in place. Shares of which nothing
 * is taken leave the table when there is no new one. There are twice as many as can be in use, so that taking costs
 * the same on average.
 */
#include "base/base.h"

#include <stdlib.h>

#define BUCKETS_MAX (1u << 16)
#define KEY_WORDS (QUOTA_KEY_MAX / sizeof(uint32_t))

struct quota_share {
	struct quota *quota;
	struct quota_share *next; /* of its bucket, or of the free ones */
	_Atomic uint32_t taken;
	unsigned char source[]; /* key_size */
};

struct quota {
	uint64_t secret[KEY_WORDS]; /* odd, so that no client knows which sources meet in a bucket */
	_Atomic uint32_t taken;
	uint32_t all;
	size_t key_size, share_size, buckets;
	size_t sources, begun; /* shares in the table; shares that were ever in it */
	char *shares;          /* 2 * all, and the first is for unknown sources */
	struct quota_share *free;
	struct quota_share *bucket[];
};

int quota_create(uint32_t all, size_t key_size, struct quota **out)
{
	struct quota *quota;
	size_t buckets = 16;
	int rc = -ENOMEM;

	must(key_size > 0 && key_size <= QUOTA_KEY_MAX);
	while (buckets < all && buckets < BUCKETS_MAX)
		buckets *= 2;
	quota = calloc(1, sizeof(*quota) + buckets * sizeof(quota->bucket[0]));
	if (!quota)
		return rc;
	quota->all = all;
	quota->buckets = buckets;
	quota->key_size = key_size;
	quota->share_size = (sizeof(struct quota_share) + key_size + 7) & ~(size_t)7;
	quota->shares = calloc(2 * (size_t)all + 1, quota->share_size);
	if (quota->shares)
		rc = random_fill(quota->secret, sizeof(quota->secret));
	if (rc != 0) {
		quota_destroy(quota);
		return rc;
	}
	for (size_t i = 0; i < KEY_WORDS; i++)
		quota->secret[i] |= 1;
	((struct quota_share *)(void *)quota->shares)->quota = quota;
	*out = quota;
	return 0;
}

void quota_destroy(struct quota *quota)
{
	if (!quota)
		return;
	must(quota_taken(quota) == 0);
	free(quota->shares);
	free(quota);
}

/* Multiply and shift (Dietzfelbinger and others, 1997): the upper bits. */
static struct quota_share **bucket_of(struct quota *quota, const void *source)
{
	uint64_t mixed = 0;

	for (size_t at = 0; at < quota->key_size; at += sizeof(uint32_t)) {
		uint32_t word = 0;

		memcpy(&word, (const char *)source + at, MIN(sizeof(word), quota->key_size - at));
		mixed += quota->secret[at / sizeof(word)] * word;
	}
	return &quota->bucket[(mixed >> 32) & (quota->buckets - 1)];
}

static void shares_sweep(struct quota *quota)
{
	for (size_t i = 0; i < quota->buckets; i++) {
		struct quota_share **at = &quota->bucket[i];

		while (*at) {
			struct quota_share *share = *at;

			if (atomic_load_explicit(&share->taken, memory_order_acquire) > 0) {
				at = &share->next;
				continue;
			}
			*at = share->next;
			share->next = quota->free;
			quota->free = share;
			quota->sources--;
		}
	}
}

/* The share of a source. NULL: none is free, so all are taken. */
static struct quota_share *share_of(struct quota *quota, const void *source)
{
	struct quota_share *share, **bucket;

	if (!source)
		return (struct quota_share *)(void *)quota->shares;
	bucket = bucket_of(quota, source);
	for (share = *bucket; share; share = share->next)
		if (memcmp(share->source, source, quota->key_size) == 0)
			return share;
	if (!quota->free && quota->begun == 2 * (size_t)quota->all)
		shares_sweep(quota);
	share = quota->free;
	if (share)
		quota->free = share->next;
	else if (quota->begun < 2 * (size_t)quota->all)
		share = (struct quota_share *)(void *)(quota->shares + ++quota->begun * quota->share_size);
	else
		return NULL;
	share->quota = quota;
	memcpy(share->source, source, quota->key_size);
	share->next = *bucket;
	*bucket = share;
	quota->sources++;
	return share;
}

unsigned quota_take(struct quota *quota, const void *source, uint64_t most, struct quota_share **out)
{
	struct quota_share *share = share_of(quota, source);
	unsigned met = quota_taken(quota) >= quota->all || !share ? QUOTA_ALL : 0;

	if (source && share && atomic_load_explicit(&share->taken, memory_order_acquire) >= most)
		met |= QUOTA_SOURCE;
	*out = met ? NULL : share;
	if (met)
		return met;
	atomic_fetch_add_explicit(&share->taken, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&quota->taken, 1, memory_order_relaxed);
	return 0;
}

/* When the share is counted down it may be another source's, and when the quota is, it may be gone. */
void quota_give(struct quota_share *share)
{
	struct quota *quota;

	if (!share)
		return;
	quota = share->quota;
	must(atomic_load(&share->taken) > 0);
	atomic_fetch_sub_explicit(&share->taken, 1, memory_order_release);
	atomic_fetch_sub_explicit(&quota->taken, 1, memory_order_release);
}

uint32_t quota_taken(const struct quota *quota)
{
	return atomic_load_explicit(&quota->taken, memory_order_acquire);
}

size_t quota_sources(const struct quota *quota)
{
	return quota->sources;
}
