/* ram.c: how much memory this process may use: the machine's, or less where its control groups say so. */
#include "base/base.h"

#include <inttypes.h>
#include <unistd.h>

/* "max", or a number of bytes. */
static uint64_t read_limit(const char *path)
{
	FILE *in = fopen(path, "re");
	uint64_t bytes;
	int n = in ? fscanf(in, "%" SCNu64, &bytes) : 0;

	if (in)
		fclose(in);
	return n == 1 ? bytes : UINT64_MAX;
}

uint64_t ram_of_groups(const struct control_groups *two, const struct control_groups *one)
{
	return MIN(control_groups_least(two, "memory.max", read_limit),
		   control_groups_least(one, "memory.limit_in_bytes", read_limit));
}

uint64_t ram_usable(void)
{
	static const struct control_groups two = {"/proc/self/cgroup", "", "/sys/fs/cgroup"},
					   one = {"/proc/self/cgroup", "memory", "/sys/fs/cgroup/memory"};
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;

	return MIN(machine, ram_of_groups(&two, &one));
}
