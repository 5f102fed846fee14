/* check_tuning.c: processors, memory of control groups, flow control, counters: D16 to D20. */
#include "ctl/doctor/doctor.h"

#include <limits.h>
#include <stdlib.h>

#define PROCESSORS_MAX 4096
#define NOISE 8 /* so many errors in a run are no news: Soft-RoCE has some of its own */

struct processors {
	uint8_t bit[PROCESSORS_MAX / 8];
};

/* "0-3,8". */
static void parse_processors(const char *text, struct processors *out)
{
	char *end;

	memset(out, 0, sizeof(*out));
	for (; *text; text = *end == ',' ? end + 1 : "") {
		unsigned long from = strtoul(text, &end, 10), to = from;

		if (end == text)
			return;
		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (; from <= to && from < PROCESSORS_MAX; from++)
			out->bit[from / 8] |= (uint8_t)(1u << from % 8);
	}
}

/* How many of `a` are of `b`, too, or with b NULL how many there are. */
static unsigned count_processors(const struct processors *a, const struct processors *b)
{
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(a->bit); i++)
		n += (unsigned)__builtin_popcount(a->bit[i] & (b ? b->bit[i] : 0xffu));
	return n;
}

/* The processors of the running daemon, else of this shell. */
static bool allowed_processors(struct doctor *d, struct processors *out, char *text, size_t size)
{
	static const char name[] = "Cpus_allowed_list:";
	char pid[24] = "self", *status, *at;

	if (d->pid)
		snprintf(pid, sizeof(pid), "%lld", (long long)d->pid);
	status = look_text(&d->look, "/proc/%s/status", pid);
	at = status ? strstr(status, name) : NULL;
	if (at) {
		at += strlen(name);
		at += strspn(at, " \t");
		snprintf(text, size, "%.*s", (int)strcspn(at, "\n"), at);
		parse_processors(text, out);
	}
	free(status);
	return at;
}

void check_numa(struct doctor *d)
{
	struct processors of_daemon, of_node;
	char allowed[256], list[256], number[24];
	uint64_t node;

	for (unsigned i = 0; i < d->ports; i++) {
		const struct port *p = &d->port[i];
		unsigned common;

		if (!port_is_first(d, i) || !look_there(&d->look, "/sys/devices/system/node/node1") ||
		    !look_number(&d->look, &node, "/sys/class/infiniband/%s/device/numa_node", p->device) ||
		    !look_line(&d->look, list, sizeof(list), "/sys/devices/system/node/node%llu/cpulist",
			       (unsigned long long)node) ||
		    !allowed_processors(d, &of_daemon, allowed, sizeof(allowed)))
			continue;
		parse_processors(list, &of_node);
		common = count_processors(&of_node, &of_daemon);
		snprintf(number, sizeof(number), "%llu", (unsigned long long)node);
		if (common < count_processors(&of_daemon, NULL))
			finding_add(d, common ? 1602 : 1601, NAMES("NODE", number, "LIST", list),
				    "%s is at node %s, processors %s; %s may run on %s", p->device, number, list,
				    d->pid ? "the daemon" : "a daemon of this shell", allowed);
	}
}

/* base reads the files of control groups; those of the own group go into the bundle. */
static void bundle_groups(struct doctor *d)
{
	static const char *const files[] = {"memory.max", "cpu.max"};
	char *groups = look_text(&d->look, "/proc/self/cgroup"), *at = groups ? strstr(groups, "0::/") : NULL;
	char value[64];

	for (size_t i = 0; i < ARRAY_SIZE(files) && at; i++)
		look_line(&d->look, value, sizeof(value), "/sys/fs/cgroup%.*s/%s", (int)strcspn(at + 3, "\n"), at + 3,
			  files[i]);
	free(groups);
}

void check_groups(struct doctor *d)
{
	char membership[PATH_MAX], two[PATH_MAX], one[PATH_MAX], have[32], need[32];
	unsigned processors;
	uint64_t memory;

	bundle_groups(d);
	snprintf(membership, sizeof(membership), "%s/proc/self/cgroup", d->look.root);
	snprintf(two, sizeof(two), "%s/sys/fs/cgroup", d->look.root);
	snprintf(one, sizeof(one), "%s/sys/fs/cgroup/memory", d->look.root);
	memory = ram_of_groups(&(struct control_groups){membership, "", two},
			       &(struct control_groups){membership, "memory", one});
	processors = processors_of_groups(membership, two);
	if (memory < d->store)
		finding_add(d, 1701, NULL, "limit %s, kv.memory %s", units_human_size((double)memory, have),
			    units_human_size((double)d->store, need));
	if (processors != UINT32_MAX)
		finding_add(d, 1702, NULL, "processor time of %u", processors);
}

void check_governor(struct doctor *d)
{
	char governor[64];

	if (look_line(&d->look, governor, sizeof(governor), "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") &&
	    strcmp(governor, "performance") != 0)
		finding_add(d, 1801, NULL, "cpu0 has %s", governor);
}

/* Whether an interface marks congestion: the first file says of priority 0, and so on. */
static bool marks_congestion(struct doctor *d, const char *netdev)
{
	uint64_t on;

	for (unsigned i = 0; i < 8; i++)
		if (look_number(&d->look, &on, "/sys/class/net/%s/ecn/roce_np/enable/%u", netdev, i) && on)
			return true;
	return false;
}

/* dcb prints "prio-pfc 0:off 1:off 2:off 3:on ...". Soft-RoCE has none. */
void check_flow(struct doctor *d)
{
	uint64_t class = 0;

	config_size(d, "traffic_class", &class, false);
	for (unsigned i = 0; i < d->ports; i++) {
		const char *const show[] = {"dcb", "pfc", "show", "dev", d->port[i].netdev, NULL};
		char *text = NULL, *at, wanted[16];
		int status;

		if (!d->port[i].ethernet || !look_there(&d->look, "/sys/class/infiniband/%s/device", d->port[i].device))
			continue;
		text = look_program(&d->look, show, &status);
		at = text && status == 0 ? strstr(text, "prio-pfc") : NULL;
		snprintf(wanted, sizeof(wanted), "%u:on", (unsigned)(class >> 5));
		if (at && !strstr(at, ":on") && !marks_congestion(d, d->port[i].netdev))
			finding_add(d, 1901, NAMES("IF", d->port[i].netdev), "%s: no priority has PFC, none ECN",
				    d->port[i].netdev);
		else if (at && class && strstr(at, ":on") && !strstr(at, wanted))
			finding_add(d, 1902, NAMES("IF", d->port[i].netdev),
				    "%s: traffic_class %llu is priority %u; %.*s", d->port[i].netdev,
				    (unsigned long long)class, (unsigned)(class >> 5), (int)strcspn(at, "\n"), at);
		free(text);
	}
}

/* Files of a port that count what a good network has none of. */
static const char *const counters[] = {
	"hw_counters/out_of_sequence",    "hw_counters/packet_seq_err",     "hw_counters/local_ack_timeout_err",
	"hw_counters/out_of_seq_request", "hw_counters/retry_exceeded_err", "counters/port_rcv_errors",
	"counters/symbol_error",          "counters/link_downed",
};

json_t *counters_read(struct doctor *d)
{
	json_t *all = json_object();
	char name[160];
	uint64_t value;

	for (unsigned i = 0; i < d->ports; i++)
		for (size_t k = 0; k < ARRAY_SIZE(counters); k++) {
			snprintf(name, sizeof(name), "/sys/class/infiniband/%s/ports/%u/%s", d->port[i].device,
				 d->port[i].number, counters[k]);
			if (look_number(&d->look, &value, "%s", name) && value)
				json_object_set_new(all, name, json_integer((json_int_t)value));
		}
	return all;
}

/* Put "NAME VALUE" of all that have grown by more than `above` since `before`, NULL: the start of the device. */
static unsigned list_counters(json_t *now, json_t *before, json_int_t above, char *buf, size_t size)
{
	const char *name;
	unsigned n = 0;
	json_t *value;

	*buf = '\0';
	json_object_foreach(now, name, value)
	{
		json_int_t more = json_integer_value(value) - json_integer_value(json_object_get(before, name));

		if (more <= above)
			continue;
		n++;
		snprintf(buf + strlen(buf), size - strlen(buf), "%s%s %lld", *buf ? ", " : "",
			 name + strlen("/sys/class/infiniband/"), (long long)more);
	}
	return n;
}

void check_counters(struct doctor *d)
{
	json_t *now = counters_read(d);
	char list[600];

	if (d->live && list_counters(now, d->counters, NOISE, list, sizeof(list)))
		finding_add(d, 2001, d->ports == 1 ? NAMES("IF", d->port[0].netdev) : NULL, "during this run: %s",
			    list);
	else if (list_counters(now, NULL, 0, list, sizeof(list)))
		finding_add(d, 2002, NULL, "%s", list);
	json_decref(now);
}
