/* processors.c: how many processors this process has: by its affinity, and by what its control groups let it use. */
#include "base/base.h"

#include <sched.h>
#include <stdlib.h>

static unsigned processors_of_affinity(void)
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
	return MAX(n, 1u);
}

/* "QUOTA PERIOD" in microseconds; "max": without limit. A part of a processor is one. */
static unsigned processors_of_quota(const char *path)
{
	FILE *in = fopen(path, "re");
	unsigned long long quota, period;
	int n = in ? fscanf(in, "%llu %llu", &quota, &period) : 0;

	if (in)
		fclose(in);
	return n == 2 && quota && period ? (unsigned)MIN((quota + period - 1) / period, UINT32_MAX) : UINT32_MAX;
}

/* The path within the hierarchy of version 2, "0::/user.slice"; false: there is none. */
static bool control_group(const char *membership, char *out, size_t size)
{
	FILE *in = fopen(membership, "re");
	char line[512];
	bool found = false;

	while (in && !found && fgets(line, sizeof(line), in)) {
		found = strncmp(line, "0::/", 4) == 0;
		line[strcspn(line, "\n")] = '\0';
		snprintf(out, size, "%s", line + 3);
	}
	if (in)
		fclose(in);
	return found;
}

unsigned processors_of_groups(const char *membership, const char *mount)
{
	unsigned least = UINT32_MAX;
	char group[512], path[1024];

	if (!control_group(membership, group, sizeof(group)))
		return UINT32_MAX;
	/* The limit of each group above holds, too. Where the hierarchy's root is a container's, it has one. */
	while (true) {
		char *slash = strrchr(group, '/');

		snprintf(path, sizeof(path), "%s%s/cpu.max", mount, group[1] ? group : "");
		least = MIN(least, processors_of_quota(path));
		if (!slash || !group[1])
			return least;
		slash[slash == group] = '\0';
	}
}

unsigned processors_usable(void)
{
	return MIN(processors_of_affinity(), processors_of_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
}

unsigned processors_half(void)
{
	return MAX(processors_usable() / 2, 1u);
}
