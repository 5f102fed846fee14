/* processors.c: how many processors this process has: by its affinity, and by what its control groups let it use. */
#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

/* Numbers that a file begins with; how many there are. */
static int read_numbers(const char *path, long long number[2])
{
	FILE *in = fopen(path, "re");
	int n = in ? fscanf(in, "%lld %lld", &number[0], &number[1]) : 0;

	if (in)
		fclose(in);
	return n;
}

/* In microseconds; below 0: without limit. A part of a processor is one. */
static uint64_t processors_of_quota(long long quota, long long period)
{
	return quota > 0 && period > 0 ? ((uint64_t)quota + (uint64_t)period - 1) / (uint64_t)period : UINT64_MAX;
}

/* Version 2: "QUOTA PERIOD", or "max PERIOD". */
static uint64_t read_max(const char *path)
{
	long long number[2];

	return read_numbers(path, number) == 2 ? processors_of_quota(number[0], number[1]) : UINT64_MAX;
}

/* Version 1: a file each. */
static uint64_t read_quota(const char *path)
{
	long long quota[2], period[2];
	char beside[1100];

	snprintf(beside, sizeof(beside), "%.*s/cpu.cfs_period_us", (int)(strrchr(path, '/') - path), path);
	if (read_numbers(path, quota) < 1 || read_numbers(beside, period) < 1)
		return UINT64_MAX;
	return processors_of_quota(quota[0], period[0]);
}

unsigned processors_of_groups(const char *membership, const char *mount)
{
	char path[1000];
	const struct control_groups two = {membership, "", mount}, one = {membership, "cpu", path};
	uint64_t of_two = control_groups_least(&two, "cpu.max", read_max), of_one;

	snprintf(path, sizeof(path), "%s/cpu", mount);
	of_one = control_groups_least(&one, "cpu.cfs_quota_us", read_quota);
	return (unsigned)MIN(MIN(of_two, of_one), UINT32_MAX);
}

static unsigned limit;

static void find_limit(void)
{
	limit = processors_of_groups("/proc/self/cgroup", "/sys/fs/cgroup");
}

static unsigned processors_of_limit(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_limit);
	return limit;
}

bool processors_limited(void)
{
	return processors_of_limit() != UINT32_MAX;
}

unsigned processors_usable(void)
{
	cpu_set_t *set;
	unsigned n = 0;

	/* The kernel refuses a set that is shorter than its own. */
	for (size_t size = CPU_SETSIZE; n == 0 && size <= 64 * CPU_SETSIZE; size *= 2) {
		set = CPU_ALLOC(size);
		if (set && sched_getaffinity(0, CPU_ALLOC_SIZE(size), set) == 0)
			n = (unsigned)CPU_COUNT_S(CPU_ALLOC_SIZE(size), set);
		CPU_FREE(set);
	}
	return MIN(MAX(n, 1u), processors_of_limit());
}

unsigned processors_half(void)
{
	return MAX(processors_usable() / 2, 1u);
}
