/* hosts.c: where ranks run: HOST[:SLOTS],... of a user, the lines of a file, what a batch system says. */
#include "run/run.h"

#include <stdlib.h>
#include <unistd.h>

#define NODES_MAX (4 * RUN_RANKS_MAX) /* of a batch system's list */

/* Whether it is this host. Its name may be with the domain or without, here and there. */
static bool is_here(const char *name)
{
	size_t length = strcspn(name, ".");
	char own[256] = "";

	if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 || strcmp(name, "::1") == 0)
		return true;
	gethostname(own, sizeof(own) - 1);
	return *own && length == strcspn(own, ".") && strncasecmp(name, own, length) == 0 &&
	       (!name[length] || !own[length] || strcasecmp(name, own) == 0);
}

/* Names, numbers of IPv6 in brackets, and USER@HOST: nothing that a remote shell would take for an option or a word of
 * its own. */
static bool is_name(const char *text, size_t length)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:%";

	return length > 0 && length < 256 && text[0] != '-' && strspn(text, allowed) >= length;
}

static int hosts_add(struct run_hosts *hosts, const char *name, size_t length, unsigned slots)
{
	bool full = !(hosts->count & (hosts->count - 1)); /* its room doubles */
	struct run_host *grown = full ? realloc(hosts->host, MAX(2 * hosts->count, 1u) * sizeof(*grown)) : hosts->host;

	if (!grown)
		return -ENOMEM;
	hosts->host = grown;
	grown[hosts->count] = (struct run_host){.name = strndup(name, length), .slots = slots};
	if (!grown[hosts->count].name)
		return -ENOMEM;
	if (is_here(grown[hosts->count].name)) {
		free(grown[hosts->count].name);
		grown[hosts->count].name = NULL;
	}
	hosts->count++;
	return 0;
}

/* HOST[:SLOTS] or "[HOST]:SLOTS". `source` is where it stands. */
static int add_item(struct run_hosts *hosts, const char *source, const char *item, size_t length)
{
	const char *end = item + length, *close, *colon, *name, *slots; /* slots: behind the colon, or "" */
	size_t name_length;
	uint64_t number = 1;
	char text[16];

	close = item[0] == '[' ? memchr(item, ']', length) : NULL;
	colon = memchr(close ? close : item, ':', (size_t)(end - (close ? close : item)));
	name = close ? item + 1 : item;
	name_length = (size_t)((close ? close : colon ? colon : end) - name);
	slots = colon ? colon + 1 : end;
	snprintf(text, sizeof(text), "%.*s", (int)(end - slots), slots);
	if (is_name(name, name_length) && (slots == end || units_parse_number(text, 1, RUN_RANKS_MAX, &number) == 0))
		return hosts_add(hosts, name, name_length, (unsigned)number);
	run_say("%s: \"%.*s\" is no HOST[:SLOTS]", source, (int)length, item);
	return -EINVAL;
}

int run_hosts_parse(const char *text, struct run_hosts *out)
{
	int rc = 0;

	run_hosts_free(out);
	while (rc == 0) {
		size_t length = strcspn(text, ",");

		rc = add_item(out, "--hosts", text, length);
		if (!text[length])
			break;
		text += length + 1;
	}
	return rc;
}

/*
 * Files
 */
#define BLANKS " \t\r\n"

static int read_line(struct run_hosts *out, const char *path, char *line)
{
	char *state = NULL, *host, *word;
	uint64_t slots;
	int rc;

	line[strcspn(line, "#")] = '\0';
	host = strtok_r(line, BLANKS, &state);
	if (!host)
		return 0;
	rc = add_item(out, path, host, strlen(host));
	while (rc == 0 && (word = strtok_r(NULL, BLANKS, &state))) {
		if (strncmp(word, "slots=", 6) != 0 || units_parse_number(word + 6, 1, RUN_RANKS_MAX, &slots) != 0) {
			run_say("%s: \"%s\" behind %s is not slots=SLOTS", path, word, host);
			return -EINVAL;
		}
		out->host[out->count - 1].slots = (unsigned)slots;
	}
	return rc;
}

int run_hosts_read(const char *path, struct run_hosts *out)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	int rc = 0;

	run_hosts_free(out);
	while (file && rc == 0 && (errno = 0, getline(&line, &room, file)) >= 0)
		rc = read_line(out, path, line);
	if (!file || ferror(file)) {
		rc = errno ? -errno : -EIO;
		run_say("cannot read the hosts in %s: %s", path, strerror(-rc));
	} else if (rc == 0 && !out->count) {
		run_say("%s names no hosts", path);
		rc = -EINVAL;
	}
	if (file)
		fclose(file);
	free(line);
	return rc;
}

/*
 * Batch systems
 */

/* Slurm's list: names separated by commas, in which [01-03,07] stands for each of these numbers. */
struct node_list {
	struct run_hosts *hosts;
	const char *text; /* all of it */
	char name[256];
};

static int bad_nodes(const struct node_list *list)
{
	run_say("SLURM_JOB_NODELIST: \"%.300s\" is no list of hosts like node[01-03,07],gpu1", list->text);
	return -EINVAL;
}

/* Expands `text`, to `end`, behind `length` bytes of the name. */
static int nodes_expand(struct node_list *list, size_t length, const char *text, const char *end);

/* Each of the numbers of `range`, "01-03" or "07", and what is behind the bracket. */
static int expand_range(struct node_list *list, size_t length, const char *range, size_t size, const char *behind,
			const char *end)
{
	uint64_t low, high;
	char text[2][16];
	size_t dash = 0;

	while (dash < size && range[dash] != '-')
		dash++;
	snprintf(text[0], sizeof(text[0]), "%.*s", (int)dash, range);
	snprintf(text[1], sizeof(text[1]), "%.*s", dash < size ? (int)(size - dash - 1) : (int)dash,
		 dash < size ? range + dash + 1 : range);
	if (dash > 9 || size > 19 || units_parse_number(text[0], 0, 999999999, &low) != 0 ||
	    units_parse_number(text[1], low, low + NODES_MAX, &high) != 0)
		return bad_nodes(list);
	for (uint64_t number = low; number <= high; number++) {
		size_t n = length + (size_t)snprintf(list->name + length, sizeof(list->name) - length, "%0*llu",
						     (int)dash, (unsigned long long)number);
		int rc = n < sizeof(list->name) ? nodes_expand(list, n, behind, end) : bad_nodes(list);

		if (rc != 0)
			return rc;
	}
	return 0;
}

static int nodes_expand(struct node_list *list, size_t length, const char *text, const char *end)
{
	const char *open = memchr(text, '[', (size_t)(end - text)), *close;
	size_t plain = (size_t)((open ? open : end) - text);
	int rc = 0;

	if (length + plain >= sizeof(list->name) || list->hosts->count >= NODES_MAX)
		return bad_nodes(list);
	memcpy(list->name + length, text, plain);
	length += plain;
	if (!open)
		return is_name(list->name, length) ? hosts_add(list->hosts, list->name, length, 1) : bad_nodes(list);
	close = memchr(open, ']', (size_t)(end - open));
	if (!close)
		return bad_nodes(list);
	for (const char *at = open; rc == 0 && at < close;) {
		size_t size = 0;

		at++;
		while (at[size] != ',' && at + size < close)
			size++;
		rc = expand_range(list, length, at, size, close + 1, end);
		at += size;
	}
	return rc;
}

static int nodes_of_slurm(const char *text, struct run_hosts *out)
{
	struct node_list list = {.hosts = out, .text = text};
	int rc = 0;

	while (rc == 0) {
		size_t length = 0;

		for (bool inside = false; text[length] && (inside || text[length] != ','); length++)
			inside = text[length] == '[' || (inside && text[length] != ']');
		rc = nodes_expand(&list, 0, text, text + length);
		if (!text[length])
			break;
		text += length + 1;
	}
	return rc;
}

/* "2(x3),1": three hosts with two tasks each, and one with one. */
static int tasks_of_slurm(const char *text, struct run_hosts *hosts)
{
	unsigned host = 0;

	for (const char *at = text; at && host < hosts->count; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		unsigned tasks = 0, times = 1;

		if (sscanf(at, "%u(x%u)", &tasks, &times) < 1 || !tasks || tasks > RUN_RANKS_MAX) {
			run_say("SLURM_TASKS_PER_NODE: \"%.300s\" is no list of numbers like 2(x3),1", text);
			return -EINVAL;
		}
		for (; times && host < hosts->count; times--)
			hosts->host[host++].slots = tasks;
	}
	return 0;
}

/* Other launchers, which start ranks themselves, and what they tell them. */
static const struct {
	const char *name, *rank, *size;
} launchers[] = {
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"mpiexec", "PMI_RANK", "PMI_SIZE"},
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
	{"torchrun", "RANK", "WORLD_SIZE"},
};

void run_hosts_say_launcher(bool of_job)
{
	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++) {
		const char *rank = getenv(launchers[i].rank), *size = getenv(launchers[i].size);
		uint64_t count;

		if (!rank || !size || units_parse_number(size, 1, UINT32_MAX, &count) != 0)
			continue;
		if (count > 1 && strcmp(rank, "0") == 0)
			run_say("%s has started %llu of rdmarun, and each starts a run of its own; '%s PROGRAM' starts "
				"the "
				"ranks of one",
				launchers[i].name, (unsigned long long)count, launchers[i].name);
		return;
	}
	if (of_job && getenv("SLURM_JOB_NODELIST"))
		run_say("this is a job of Slurm: 'srun PROGRAM' starts its ranks without %s", run_options.rsh);
}

int run_hosts_of_job(struct run_hosts *out)
{
	const char *slurm = getenv("SLURM_JOB_NODELIST"), *tasks = getenv("SLURM_TASKS_PER_NODE");
	const char *pbs = getenv("PBS_NODEFILE");
	int rc;

	if (!slurm || !*slurm)
		return pbs && *pbs ? run_hosts_read(pbs, out) : 0;
	rc = nodes_of_slurm(slurm, out);
	return rc == 0 && tasks && *tasks ? tasks_of_slurm(tasks, out) : rc;
}

void run_hosts_free(struct run_hosts *hosts)
{
	for (unsigned i = 0; i < hosts->count; i++)
		free(hosts->host[i].name);
	free(hosts->host);
	*hosts = (struct run_hosts){0};
}

unsigned run_hosts_slots(const struct run_hosts *hosts)
{
	unsigned slots = 0;

	for (unsigned i = 0; i < hosts->count; i++)
		slots += hosts->host[i].slots;
	return slots;
}

bool run_hosts_remote(const struct run_hosts *hosts)
{
	for (unsigned i = 0; i < hosts->count; i++)
		if (hosts->host[i].name && hosts->host[i].ranks)
			return true;
	return false;
}
