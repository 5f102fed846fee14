/*
 * team.h: the threads that carry out one operation together, in C11 and in CUDA C++. An operation's
 * body is one text for both: a block of the accelerator, or one processor as a team of one.
 *
 * A body answers its thread's share of the check of the output (wire_ring_check_payload), which it
 * adds up from the words that it writes, so that the output is not read again.
 */
#ifndef RDMAD_GPU_TEAM_H
#define RDMAD_GPU_TEAM_H

#include "wire/ring.h"

#ifndef RDMAD_GPU_CUDA_DEVICE_H /* not in the kernel */
#include <string.h>
#include <time.h>
#endif

#define GPU_BATCH 4u           /* loads of a thread that are under way at once */
#define GPU_TEAM_SCRATCH 4096u /* bytes of shared memory that a body may count on */

struct gpu_team {
	uint32_t index, count; /* this thread, of how many */
	uint32_t *scratch;     /* shared by the team */
	const uint32_t *stop;  /* when not 0: return, the output is not wanted */
};

/* Inputs and outputs are cells: they begin at a word, and their room ends with a whole one. What
 * lies in the last word behind `length` reads as 0. */
WIRE_RING_FN uint64_t gpu_words(uint32_t length)
{
	return ((uint64_t)length + 7) / 8;
}

WIRE_RING_FN uint32_t gpu_word_bytes(uint32_t length, uint64_t i)
{
	uint64_t left = length - i * 8;

	return left < 8 ? (uint32_t)left : 8;
}

#ifdef RDMAD_GPU_CUDA_DEVICE_H

WIRE_RING_FN void gpu_team_barrier(const struct gpu_team *team)
{
	device_barrier(team->count);
}

WIRE_RING_FN void gpu_team_add(uint32_t *word, uint32_t n)
{
	atomicAdd(word, n);
}

WIRE_RING_FN void gpu_word_set(void *cell, uint64_t i, uint64_t word)
{
	((uint64_t *)cell)[i] = word;
}

/* Nanoseconds of a clock that only counts up. */
WIRE_RING_FN uint64_t gpu_team_clock(void)
{
	return device_time();
}

WIRE_RING_FN void gpu_team_pause(void)
{
	__nanosleep(1000);
}

#else

WIRE_RING_FN void gpu_team_barrier(const struct gpu_team *team)
{
	(void)team; /* of one */
}

WIRE_RING_FN void gpu_team_add(uint32_t *word, uint32_t n)
{
	*word += n;
}

WIRE_RING_FN void gpu_word_set(void *cell, uint64_t i, uint64_t word)
{
	memcpy((uint8_t *)cell + i * 8, &word, sizeof(word));
}

WIRE_RING_FN uint64_t gpu_team_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

WIRE_RING_FN void gpu_team_pause(void)
{
	struct timespec ts = {.tv_nsec = 20000};

	nanosleep(&ts, NULL);
}

#endif

/* Words i, i + count, ... of an input that has `end`. */
WIRE_RING_FN void gpu_team_load(const struct gpu_team *team, const void *input, uint64_t i, uint64_t end,
				uint64_t word[GPU_BATCH])
{
	for (uint32_t k = 0; k < GPU_BATCH; k++)
		word[k] = i + k * team->count < end ? wire_ring_word(input, i + k * team->count) : 0;
}

/* Write a word of the output, at most up to its end; its share of the check. */
WIRE_RING_FN uint64_t gpu_team_put(void *output, uint32_t length, uint64_t i, uint64_t word)
{
	uint32_t bytes = gpu_word_bytes(length, i);

	if (bytes < 8)
		word &= ((uint64_t)1 << bytes * 8) - 1;
	gpu_word_set(output, i, word);
	return wire_ring_check_word(3 + i, word);
}

#endif
