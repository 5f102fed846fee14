/* check_system.c: neighbours, limits, memory of the machine: D09, D12, D14, D15. */
#include "ctl/doctor/doctor.h"

#include <stdlib.h>

#define CAP_IPC_LOCK 14

/* A number of /proc/sys/net/ipv4/conf/all, 0 where it is not there. */
static uint64_t ipv4_setting(struct doctor *d, const char *name)
{
	uint64_t value;

	return look_number(&d->look, &value, "/proc/sys/net/ipv4/conf/all/%s", name) ? value : 0;
}

void check_neighbours(struct doctor *d)
{
	for (unsigned i = 0; i < d->addresses; i++) {
		const struct local_address *a = &d->address[i];

		for (unsigned k = i + 1; k < d->addresses; k++) {
			const struct local_address *b = &d->address[k];

			if (!a->mask || !b->mask || a->network != b->network || a->mask != b->mask ||
			    strcmp(a->netdev, b->netdev) == 0 || !address_is_rdma(d, a) || !address_is_rdma(d, b) ||
			    (ipv4_setting(d, "arp_ignore") >= 1 && ipv4_setting(d, "arp_announce") == 2 &&
			     ipv4_setting(d, "rp_filter") != 1))
				continue;
			finding_add(d, 901, NULL,
				    "%s by %s and %s by %s; arp_ignore %llu, arp_announce %llu, rp_filter %llu",
				    a->text, a->netdev, b->text, b->netdev,
				    (unsigned long long)ipv4_setting(d, "arp_ignore"),
				    (unsigned long long)ipv4_setting(d, "arp_announce"),
				    (unsigned long long)ipv4_setting(d, "rp_filter"));
			return;
		}
	}
}

/* The bytes that a process may lock; UINT64_MAX: any. False: unknown. */
static bool lock_limit(struct doctor *d, const char *process, uint64_t *limit, bool *capable)
{
	char *limits = look_text(&d->look, "/proc/%s/limits", process);
	char *status = look_text(&d->look, "/proc/%s/status", process);
	uint64_t capabilities = 0;
	bool known = field_number(limits, "Max locked memory", limit, 10);

	field_number(status, "CapEff:", &capabilities, 16);
	*capable = capabilities >> CAP_IPC_LOCK & 1;
	if (!known && limits && strstr(limits, "Max locked memory"))
		*limit = UINT64_MAX, known = true;
	free(limits);
	free(status);
	return known;
}

static void check_limit(struct doctor *d, unsigned number, const char *process, const char *name)
{
	char have[32], need[32];
	uint64_t limit;
	bool capable;

	if (!lock_limit(d, process, &limit, &capable) || capable || limit >= d->store)
		return;
	finding_add(d, number, NAMES("UNIT", d->unit), "%s: limit %s, CAP_IPC_LOCK no; kv.memory %s", name,
		    units_human_size((double)limit, have), units_human_size((double)d->store, need));
}

/* systemctl show prints LimitMEMLOCK=BYTES or infinity; a unit that is not there has systemd's default. */
static void check_unit_limit(struct doctor *d)
{
	const char *const show[] = {"systemctl", "show", d->unit, "-p", "LimitMEMLOCK", "-p", "LoadState", NULL};
	int status;
	char *text = look_program(&d->look, show, &status), have[32], need[32];
	uint64_t limit;

	if (text && status == 0 && strstr(text, "LoadState=loaded") &&
	    field_number(text, "LimitMEMLOCK=", &limit, 10) && limit < d->store)
		finding_add(d, 1203, NAMES("UNIT", d->unit), "LimitMEMLOCK %s; kv.memory %s",
			    units_human_size((double)limit, have), units_human_size((double)d->store, need));
	free(text);
}

/* RDMA alone locks memory. A user needs it for a daemon of its own, not for one that runs as another user. */
void check_memlock(struct doctor *d)
{
	char pid[24], name[48];

	if (!d->ports || !d->wants_rdma)
		return;
	check_unit_limit(d);
	if (!d->pid) {
		if (daemon_is_ours(d))
			check_limit(d, 1201, "self", "this shell");
		return;
	}
	snprintf(pid, sizeof(pid), "%lld", (long long)d->pid);
	snprintf(name, sizeof(name), "process %lld", (long long)d->pid);
	check_limit(d, 1202, pid, name);
}

void check_maps(struct doctor *d)
{
	uint64_t most;

	if (look_number(&d->look, &most, "/proc/sys/vm/max_map_count") && most < 65530)
		finding_add(d, 1401, NULL, "vm.max_map_count %llu, its default is 65530", (unsigned long long)most);
}

/* While no daemon runs its memory is yet to be found. */
void check_pages(struct doctor *d)
{
	char *info = look_text(&d->look, "/proc/meminfo"), mode[64], have[32], need[32], aside[32], pages[24];
	uint64_t available = 0, total = 0, unused = 0, size = 0;

	look_line(&d->look, mode, sizeof(mode), "/sys/kernel/mm/transparent_hugepage/enabled");
	if (strstr(mode, "[never]"))
		finding_add(d, 1501, NULL, "transparent_hugepage/enabled: %s", mode);
	field_number(info, "HugePages_Total:", &total, 10);
	field_number(info, "HugePages_Free:", &unused, 10);
	field_number(info, "Hugepagesize:", &size, 10);
	snprintf(pages, sizeof(pages), "%llu", (unsigned long long)(total - MIN(unused, total)));
	if (!d->pid && field_number(info, "MemAvailable:", &available, 10) && available * KIB < d->store)
		finding_add(d, 1502, NAMES("PAGES", pages, "FILE", config_file(d)),
			    "available %s, kv.memory %s, huge pages that are not in use %s",
			    units_human_size((double)available * KIB, have), units_human_size((double)d->store, need),
			    units_human_size((double)(unused * size * KIB), aside));
	free(info);
}
