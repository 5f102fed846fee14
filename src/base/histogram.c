/*
 * histogram.c: log-linear buckets, as in HdrHistogram (Tene, 2012): each power of two is cut
 * into HISTOGRAM_SUB equal steps, so the relative error is at most 1/HISTOGRAM_SUB.
 */
#include "base/base.h"

#define SUB_BITS 5
_Static_assert(1 << SUB_BITS == HISTOGRAM_SUB, "the steps of a power of two");

static unsigned bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < HISTOGRAM_SUB)
		return (unsigned)value;
	shift = 63u - (unsigned)__builtin_clzll(value) - SUB_BITS;
	return (shift + 1) * HISTOGRAM_SUB + (unsigned)((value >> shift) - HISTOGRAM_SUB);
}

/* The middle of a bucket. */
static uint64_t value_of(unsigned bucket)
{
	unsigned shift;

	if (bucket < HISTOGRAM_SUB)
		return bucket;
	shift = bucket / HISTOGRAM_SUB - 1;
	return ((uint64_t)(bucket % HISTOGRAM_SUB + HISTOGRAM_SUB) << shift) + ((1ull << shift) >> 1);
}

void histogram_init(struct histogram *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

void histogram_add(struct histogram *h, uint64_t value)
{
	h->bucket[bucket_of(value)]++;
	h->count++;
	h->sum += (double)value;
	h->min = MIN(h->min, value);
	h->max = MAX(h->max, value);
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->bucket[i] += from->bucket[i];
	into->count += from->count;
	into->sum += from->sum;
	into->min = MIN(into->min, from->min);
	into->max = MAX(into->max, from->max);
}

uint64_t histogram_percentile(const struct histogram *h, double percent)
{
	uint64_t rank = (uint64_t)(percent / 100.0 * (double)h->count + 0.5), seen = 0;

	if (!h->count)
		return 0;
	if (rank >= h->count)
		return h->max;
	rank = MAX(rank, 1ull);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= rank)
			return MIN(MAX(value_of(i), h->min), h->max);
	}
	return h->max;
}

double histogram_mean(const struct histogram *h)
{
	return h->count ? h->sum / (double)h->count : 0;
}

void buckets_merge(struct buckets *into, const struct buckets *from)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		into->count[i] += from->count[i];
	into->sum += from->sum;
}
