/* time.c: the clock of everything that is not told the time. */
#include "base/base.h"

#include <time.h>

uint64_t time_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * TIME_S + (uint64_t)ts.tv_nsec;
}
