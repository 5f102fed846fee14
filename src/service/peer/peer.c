/* peer.c: the row of the peer service: its settings, its counters, its limit. */
#include "service/peer/peer.h"
#include "service/internal.h"

#include <stdlib.h>

#define AT(member) offsetof(struct meeting_settings, member)

static uint64_t groups_per_source(const void *values)
{
	const struct meeting_settings *s = values;

	return quota_most(s->groups_per_source, s->groups);
}

static const struct setting settings[] = {
	{"peer.groups", SETTING_NUMBER, AT(groups), "1024", 1, 16384,
	 .help = "Most groups of programs that meet here, or have met and still run; more are refused."},
	{"peer.groups_per_source", SETTING_NUMBER, AT(groups_per_source), "0", 0, 16384, .effective = groups_per_source,
	 .help = "Most of them that one source began: an address, a network of IPv6 (/64), or a user of this\n"
		 "machine. 0: half of them, and as many as there are is no limit."},
	{"peer.members", SETTING_NUMBER, AT(members), "1024", 1, WIRE_PEER_MEMBERS_MAX,
	 .help = "Most members of a group; larger ones are refused."},
	{"peer.join_timeout", SETTING_TIME, AT(join_timeout), "10m", TIME_MS, 24 * 3600 * TIME_S,
	 .help = "How long a program may wait here for the others of its group."},
	{"peer.list", SETTING_BOOL, AT(list), "true",
	 .help = "Tell clients of the groups and their members, as rdmactl peer groups shows them. With\n"
		 "false a stranger, who does not know a group's name, cannot take a place in it."},
};

static const struct setting_table meeting_settings = {settings, ARRAY_SIZE(settings), sizeof(struct meeting_settings)};

static const char *const counters[] = {
	[MEETING_COUNT_JOINS] = "peer_joins",
	[MEETING_COUNT_GROUPS] = "peer_groups",
	[MEETING_COUNT_LEFT] = "peer_left",
	[MEETING_COUNT_REFUSED] = "peer_refused",
	[MEETING_COUNT_LIMITS] = "peer_limits",
	[MEETING_COUNT_EXPIRED] = "peer_expired",
	[MEETING_COUNTS] = NULL,
};

static void meeting_close(void *shared)
{
	struct meeting_service *service = shared;

	meet_close(&service->table);
	free(service);
}

static int meeting_open(const struct service_host *host, const void *values, void **out)
{
	struct meeting_service *service = calloc(1, sizeof(*service));
	int rc;

	(void)host;
	if (!service)
		return -ENOMEM;
	service->settings = *(const struct meeting_settings *)values;
	service->table.secret = !service->settings.list;
	service->table.names = (struct meet_limit){
		.max = (uint32_t)service->settings.groups,
		.per_source = (uint32_t)groups_per_source(values),
		.full = "the server has as many groups as it may have",
		.enough = "this address, network of IPv6 (/64) or user has begun as many groups as one may",
	};
	rc = meet_open(&service->table);
	if (rc == 0)
		*out = service;
	else
		meeting_close(service);
	return rc;
}

static void meeting_status(const void *shared, struct service_report *report)
{
	struct meeting_service *service = (void *)(uintptr_t)shared;

	report->begin(report, "peer");
	meet_limit_report(&service->table.names, "groups", report);
	report->number(report, "members", meet_members(&service->table));
	report->number(report, "members_max", service->settings.members);
	report->end(report);
}

static void meeting_resources(const void *shared, struct service_report *report)
{
	struct meeting_service *service = (void *)(uintptr_t)shared;

	report->number(report, "peer_groups_now", service ? quota_taken(service->table.names.quota) : 0);
	report->number(report, "peer_members_now", service ? meet_members(&service->table) : 0);
}

const struct service service_peer = {
	.id = WIRE_PEER,
	.help = "the place where programs meet that talk as equals: it tells each the addresses of all",
	.settings = &meeting_settings,
	.counters = counters,
	.open = meeting_open,
	.close = meeting_close,
	.status = meeting_status,
	.resources = meeting_resources,
	.worker = service_worker_of_name,
	.part_size = sizeof(struct meeting_thread),
	.part_init = meeting_thread_init,
	.progress = meeting_thread_progress,
	.deadline = meeting_thread_deadline,
	.ops = &meeting_agent_ops,
	.revised = meet_revised,
	.agent_new = meet_agent_new,
	.agent_free = meet_agent_free,
};
