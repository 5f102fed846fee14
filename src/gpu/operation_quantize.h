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

/* What `value` becomes, where `cdf` of `pixels` pixels are up to it. */
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

WIRE_RING_FN uint64_t gpu_quantize_body(const struct gpu_team *team, const struct wire_ring_job *job, const void *input,
					void *output)
{
	uint32_t *count = team->scratch, *map = count + 256;
	uint64_t words = gpu_words(job->length), sum = 0;

	for (uint32_t v = team->index; v < 256; v += team->count)
		count[v] = 0;
	gpu_team_barrier(team);
	for (uint64_t i = team->index; i < words; i += team->count) {
		uint64_t word = wire_ring_word(input, i);

		for (uint32_t b = gpu_word_bytes(job->length, i); b > 0; b--, word >>= 8)
			gpu_team_add(&count[word & 255], 1);
	}
	gpu_team_barrier(team);
	gpu_quantize_sum(team, count, map);
	for (uint32_t v = team->index; v < 256; v += team->count)
		map[v] = gpu_quantize_value(count[v], job->length, job->param[WIRE_GPU_QUANTIZE_LEVELS]);
	gpu_team_barrier(team);
	for (uint64_t i = team->index; i < words; i += team->count) {
		uint64_t word = wire_ring_word(input, i), out = 0;

		for (uint32_t b = 0; b < 64; b += 8)
			out |= (uint64_t)map[word >> b & 255] << b;
		sum += gpu_team_put(output, job->length, i, out);
	}
	return sum;
}

#endif
