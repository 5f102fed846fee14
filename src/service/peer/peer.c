/* peer.c: the row of the peer service, and what all its workers share: the groups. */
#include "service/peer/peer.h"
#include "service/internal.h"

#include <stdlib.h>
#include <sys/random.h>

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

/*
 * Groups
 */

void meeting_group_free(struct meeting_group *group)
{
	free(group->presence);
	free(group->member);
	free(group);
}

struct meeting_group *meeting_group_new(const char *name, uint32_t name_len, uint32_t size)
{
	struct meeting_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	group->name.len = name_len;
	memcpy(group->name.text, name, name_len);
	group->size = size;
	group->member = calloc(size, sizeof(struct meeting_agent *));
	group->presence = calloc(size, 1);
	if (group->member && group->presence)
		return group;
	meeting_group_free(group);
	return NULL;
}

static bool number_is_free(struct meeting_service *service, uint32_t number)
{
	bool free = number != 0;

	pthread_mutex_lock(&service->groups.lock);
	for (uint32_t i = 0; i < service->settings.groups && free; i++)
		free = !service->groups.name[i] || meeting_group_of(service->groups.name[i])->number != number;
	pthread_mutex_unlock(&service->groups.lock);
	return free;
}

uint32_t meeting_group_number(struct meeting_service *service)
{
	uint32_t number;

	do {
		if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
			return 0;
	} while (!number_is_free(service, number));
	return number;
}

/* A group's entry, with its members from *member on. */
static uint32_t entry_put(const struct meet_name *name, uint32_t *member, uint8_t *out, uint32_t room)
{
	const struct meeting_group *group = meeting_group_of(name);
	uint32_t used = (uint32_t)sizeof(struct wire_peer_entry) + WIRE_PAD(name->len), bytes, i = *member;
	struct wire_peer_entry entry = {.number = group->number,
					.size = group->size,
					.here = group->here,
					.name_len = name->len,
					.flags = i ? WIRE_PEER_FURTHER : 0};

	if (room < used + sizeof(struct wire_peer_member) + WIRE_PEER_ADDRESSES_MAX)
		return 0;
	memset(out, 0, used);
	for (; i < group->size; i++) {
		if (!group->member[i])
			continue;
		bytes = meeting_member_put(group->member[i], false, out + used, room - used);
		if (!bytes)
			break;
		used += bytes;
		entry.count++;
	}
	*member = i < group->size ? i : 0;
	memcpy(out, &entry, sizeof(entry));
	memcpy(out + sizeof(entry), name->text, name->len);
	return used;
}

/*
 * The process
 */
static void meeting_close(void *shared)
{
	struct meeting_service *service = shared;

	must(!service->members);
	meet_table_close(&service->groups);
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
	service->settings.groups_per_source = groups_per_source(values);
	service->groups.entry = entry_put;
	service->groups.limit = (struct meet_limit){
		.max = (uint32_t)service->settings.groups,
		.per_source = (uint32_t)service->settings.groups_per_source,
		.full = "the server has as many groups as it may have",
		.enough = "this address, network of IPv6 (/64) or user has begun as many groups as one may",
	};
	rc = meet_table_open(&service->groups);
	if (rc == 0)
		*out = service;
	else
		meeting_close(service);
	return rc;
}

static uint64_t members_now(struct meeting_service *service)
{
	uint64_t n;

	pthread_mutex_lock(&service->groups.lock);
	n = service->members;
	pthread_mutex_unlock(&service->groups.lock);
	return n;
}

static void meeting_status(const void *shared, struct service_report *report)
{
	struct meeting_service *service = (void *)(uintptr_t)shared;

	report->begin(report, "peer");
	report->number(report, "groups", quota_taken(service->groups.limit.quota));
	report->number(report, "groups_max", service->settings.groups);
	report->number(report, "groups_per_source", service->settings.groups_per_source);
	report->number(report, "members", members_now(service));
	report->number(report, "members_max", service->settings.members);
	report->end(report);
}

static void meeting_resources(const void *shared, struct service_report *report)
{
	struct meeting_service *service = (void *)(uintptr_t)shared;

	report->number(report, "peer_groups_now", service ? quota_taken(service->groups.limit.quota) : 0);
	report->number(report, "peer_members_now", service ? members_now(service) : 0);
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
	.revised = meeting_agent_revised,
	.agent_new = meeting_agent_new,
	.agent_free = meeting_agent_free,
};
