/* groups.c: what the control groups of this process limit, and how much memory it may use by that. */
#include "base/base.h"

#include <inttypes.h>
#include <unistd.h>

/* Whether `controller` is one of those of a line "4:cpu,cpuacct:/path"; "" is the hierarchy of version 2,
 * "0::/path". */
static bool names_controller(const char *line, const char *controller)
{
	const char *at = strchr(line, ':');
	size_t len = strlen(controller);

	if (!at || !*controller)
		return at && at[1] == ':';
	do {
		at++;
		if (strncmp(at, controller, len) == 0 && strchr(",:", at[len]))
			return at[len];
		at += strcspn(at, ",:");
	} while (*at == ',');
	return false;
}

/* The path within the hierarchy, "/user.slice"; false: there is none. */
static bool group_path(const char *membership, const char *controller, char *out, size_t size)
{
	FILE *in = fopen(membership, "re");
	char line[512];
	bool found = false;

	while (in && !found && fgets(line, sizeof(line), in)) {
		const char *path = strstr(line, ":/");

		found = path && names_controller(line, controller);
		line[strcspn(line, "\n")] = '\0';
		if (found)
			snprintf(out, size, "%s", path + 1);
	}
	if (in)
		fclose(in);
	return found;
}

uint64_t control_groups_least(const struct control_groups *groups, const char *file, uint64_t (*read)(const char *path))
{
	uint64_t least = UINT64_MAX;
	char group[512], path[1024];

	if (!group_path(groups->membership, groups->controller, group, sizeof(group)))
		return least;
	/* The limit of each group above holds, too. Where the hierarchy's root is a container's, it has one. */
	while (true) {
		char *slash = strrchr(group, '/');

		snprintf(path, sizeof(path), "%s%s/%s", groups->mount, group[1] ? group : "", file);
		least = MIN(least, read(path));
		if (!slash || !group[1])
			return least;
		slash[slash == group] = '\0';
	}
}

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
