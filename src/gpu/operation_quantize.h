/*
 * operation_quantize.h: an image of 8-bit pixels in fewer levels. With CDF(v) the count of pixels
 * up to v among N, and L levels: v becomes (256 / L) * floor(L * CDF(v) / N) in 8 bits, in which
 * 256 is 0; all in integers, so that every backend has the same bits.
 *
 * What it takes is in wire/gpu_operations.h.
 */
#ifndef RDMAD_GPU_OPERATION_QUANTIZE_H
#define RDMAD_GPU_OPERATION_QUANTIZE_H

#include "gpu/team.h"
#include "wire/gpu_operations.h"

/* The value that `value` becomes, where `cdf` of `pixels` pixels are up to it. */
WIRE_RING_FN uint8_t gpu_quantize_value(uint32_t cdf, uint32_t pixels, uint32_t levels)
{
	return (uint8_t)(256 / levels * (uint32_t)((uint64_t)levels * cdf / pixels));
}

/* Counts up to each value out of counts of each, in the same place; `other` is room for as many. */
WIRE_RING_FN void gpu_quantize_sum(const struct gpu_team *team, uint32_t *count, uint32_t *other)
{
	for (uint32_t step = 1; step < 256; step *= 2) {
		uint32_t *from = count;

		for (uint32_t v = team->index; v < 256; v += team->count)
			other[v] = count[v] + (v >= step ? count[v - step] : 0);
		gpu_team_barrier(team);
		count = other;
		other = from;
	}
}

/* Count the pixels of words `first` to `end` of the input, in addition to what was counted. Several loads of a
 * thread are under way at once: each is a read over the bus. */
WIRE_RING_FN void gpu_quantize_count(const struct gpu_team *team, const struct wire_ring_job *job, const void *input,
				     uint64_t first, uint64_t end, uint32_t *count)
{
	for (uint64_t i = first + team->index; i < end; i += (uint64_t)GPU_BATCH * team->count) {
		uint64_t word[GPU_BATCH];

		gpu_team_load(team, input, i, end, word);
		for (uint32_t k = 0; k < GPU_BATCH && i + k * team->count < end; k++)
			for (uint32_t b = gpu_word_bytes(job->length, i + k * team->count); b > 0; b--, word[k] >>= 8)
				gpu_team_add(&count[word[k] & 255], 1);
	}
}

/* Maps each value, out of the counts of all pixels. */
WIRE_RING_FN void gpu_quantize_map(const struct gpu_team *team, const struct wire_ring_job *job, uint32_t *count,
				   uint32_t *map)
{
	gpu_quantize_sum(team, count, map);
	for (uint32_t v = team->index; v < 256; v += team->count)
		map[v] = gpu_quantize_value(count[v], job->length, job->param[WIRE_GPU_QUANTIZE_LEVELS]);
	gpu_team_barrier(team);
}

/* Words `first` to `end` of the output; this thread's share of their check. */
WIRE_RING_FN uint64_t gpu_quantize_put(const struct gpu_team *team, const struct wire_ring_job *job, const void *input,
				       void *output, uint64_t first, uint64_t end, const uint32_t *map)
{
	uint64_t sum = 0;

	for (uint64_t i = first + team->index; i < end; i += (uint64_t)GPU_BATCH * team->count) {
		uint64_t word[GPU_BATCH];

		gpu_team_load(team, input, i, end, word);
		for (uint32_t k = 0; k < GPU_BATCH && i + k * team->count < end; k++) {
			uint64_t out = 0;

			for (uint32_t b = 0; b < 64; b += 8)
				out |= (uint64_t)map[word[k] >> b & 255] << b;
			sum += gpu_team_put(output, job->length, i + k * team->count, out);
		}
	}
	return sum;
}

WIRE_RING_FN uint64_t gpu_quantize_body(const struct gpu_team *team, const struct wire_ring_job *job, const void *input,
					void *output)
{
	uint32_t *count = team->scratch, *map = count + 256;
	uint64_t words = gpu_words(job->length);

	for (uint32_t v = team->index; v < 256; v += team->count)
		count[v] = 0;
	gpu_team_barrier(team);
	gpu_quantize_count(team, job, input, 0, words, count);
	gpu_team_barrier(team);
	gpu_quantize_map(team, job, count, map);
	return gpu_quantize_put(team, job, input, output, 0, words, map);
}

#endif
