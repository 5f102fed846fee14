/*
 * operation_echo.h: the input again, after a while: what a job costs whose operation costs nothing,
 * and a job that takes as long as a test of time limits wants.
 *
 * What it takes is in wire/gpu_operations.h.
 */
#ifndef RDMAD_GPU_OPERATION_ECHO_H
#define RDMAD_GPU_OPERATION_ECHO_H

#include "gpu/team.h"
#include "wire/gpu_operations.h"

WIRE_RING_FN uint64_t gpu_echo_body(const struct gpu_team *team, const struct wire_ring_job *job, const void *input,
				    void *output)
{
	uint64_t wait = (uint64_t)job->param[WIRE_GPU_ECHO_MICROSECONDS] * 1000;
	uint64_t begin = wait ? gpu_team_clock() : 0, words = gpu_words(job->length), sum = 0;

	for (uint64_t i = team->index; i < words; i += team->count)
		sum += gpu_team_put(output, job->length, i, wire_ring_word(input, i));
	while (wait && gpu_team_clock() - begin < wait && !wire_ring_load32(team->stop))
		gpu_team_pause();
	return sum;
}

#endif
