/*
 * Prints the rate of this machine's time-stamp counter in kHz. An emulated machine has the same counter, but finds out its rate by
 * timers that come late where processors are busy, and then its clock runs several times too fast.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct moment {
	uint64_t ns, ticks;
};

/* Of some looks at both clocks the one with the least in between, so that an interruption does not count. */
static struct moment look(void)
{
	struct moment best = {0};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 100; i++) {
		uint64_t before = __rdtsc(), took;
		struct timespec now;

		clock_gettime(CLOCK_MONOTONIC, &now);
		took = __rdtsc() - before;
		if (took >= least)
			continue;
		least = took;
		best.ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
		best.ticks = before + took / 2;
	}
	return best;
}

int main(void)
{
	const struct timespec pause = {.tv_nsec = 50000000};
	struct moment begin = look(), end;

	nanosleep(&pause, NULL);
	end = look();
	printf("%llu\n", (unsigned long long)((end.ticks - begin.ticks) * 1000000 / (end.ns - begin.ns)));
	return 0;
}
