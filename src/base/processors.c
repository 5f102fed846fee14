/* processors.c: how many processors this process has. */
#include "base/base.h"

#include <sched.h>

unsigned processors_usable(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	return (unsigned)MAX(CPU_COUNT(&set), 1);
}

unsigned processors_half(void)
{
	return MAX(processors_usable() / 2, 1u);
}
