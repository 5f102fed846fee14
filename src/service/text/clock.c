/* clock.c: the clocks of clients, and the store's. */
#include "service/text/text.h"

#include <time.h>

int64_t text_unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Between the system's clock and the store's. Two looks at them are less than half a millisecond apart, as a rule, so
 * that a time to the millisecond comes back as it was given. */
static uint64_t unix_offset(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * TIME_S + (uint64_t)now.tv_nsec - time_now();
}

uint64_t text_expires_at(uint64_t now, int64_t unix_ms)
{
	uint64_t offset = unix_offset(), at;

	if (unix_ms <= text_unix_ms()) /* perhaps behind the time of this turn */
		return now;
	if (__builtin_mul_overflow((uint64_t)unix_ms, TIME_MS, &at))
		return TIME_NEVER - 1;
	return MAX(at > offset ? at - offset : 0, now);
}

int64_t text_unix_of(uint64_t expires)
{
	uint64_t at;

	if (__builtin_add_overflow(expires, unix_offset(), &at) || at > TIME_NEVER - TIME_MS)
		at = TIME_NEVER - TIME_MS;
	return (int64_t)((at + TIME_MS / 2) / TIME_MS);
}
