/* time.c: the clock of everything that is not told the time. */
#include "base/base.h"

#include <time.h>

static inline uint64_t time_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * TIME_S + (uint64_t)ts.tv_nsec;
}

uint64_t time_now(void)
{
	return time_of(CLOCK_MONOTONIC);
}

uint64_t time_boot(void)
{
	return time_of(CLOCK_BOOTTIME);
}

uint64_t time_coarse(void)
{
	return time_of(CLOCK_MONOTONIC_COARSE);
}
