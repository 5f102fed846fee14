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

/* Under the lock. NULL: it has a place. */
static const char *take_place(struct meeting_service *service, const struct fabric_source *source,
			      struct meeting_group *group)
{
	unsigned met = quota_take(service->groups, fabric_source_key(source), service->settings.groups_per_source,
				  &group->share);

	if (met)
		return met & QUOTA_ALL ? "the server has as many groups as it may have"
				       : "this address, network of IPv6 (/64) or user has begun as many groups as one "
					 "may";
	while (service->group[group->place])
		group->place++;
	service->group[group->place] = group;
	return NULL;
}

static void group_discard(struct meeting_group *group)
{
	quota_give(group->share);
	free(group->presence);
	free(group->member);
	auth_wipe(group->secret, sizeof(group->secret));
	free(group);
}

static struct meeting_group *group_allocate(uint32_t size)
{
	struct meeting_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	group->size = size;
	group->member = calloc(size, sizeof(struct meeting_agent *));
	group->presence = calloc(size, 1);
	if (group->member && group->presence)
		return group;
	group_discard(group);
	return NULL;
}

struct meeting_group *meeting_group_new(struct meeting_service *service, const struct fabric_source *source,
					const char *name, uint32_t name_len, uint32_t size, enum wire_status *status,
					const char **why)
{
	struct meeting_group *group = group_allocate(size);

	*status = WIRE_NO_MEMORY;
	*why = "the server has no memory";
	if (!group)
		return NULL;
	group->name_len = name_len;
	memcpy(group->name, name, name_len);
	pthread_mutex_lock(&service->lock);
	*why = take_place(service, source, group);
	pthread_mutex_unlock(&service->lock);
	if (!*why)
		return group;
	*status = WIRE_BUSY;
	group_discard(group);
	return NULL;
}

void meeting_group_free(struct meeting_service *service, struct meeting_group *group)
{
	must(group->here == 0);
	pthread_mutex_lock(&service->lock);
	service->group[group->place] = NULL;
	pthread_mutex_unlock(&service->lock);
	group_discard(group);
}

/* A group that is complete and has lost a member will never be whole again: its name is free. */
static bool is_current(const struct meeting_group *group)
{
	return !group->number || meeting_group_is_full(group);
}

struct meeting_group *meeting_group_find(struct meeting_service *service, const char *name, uint32_t len)
{
	struct meeting_group *group = NULL;

	pthread_mutex_lock(&service->lock);
	for (uint32_t i = 0, left = quota_taken(service->groups); left && i < service->settings.groups; i++) {
		group = service->group[i];
		left -= group != NULL;
		if (group && group->name_len == len && memcmp(group->name, name, len) == 0 && is_current(group))
			break;
		group = NULL;
	}
	pthread_mutex_unlock(&service->lock);
	return group;
}

static bool number_is_free(struct meeting_service *service, uint32_t number)
{
	bool free = number != 0;

	pthread_mutex_lock(&service->lock);
	for (uint32_t i = 0; i < service->settings.groups && free; i++)
		free = !service->group[i] || service->group[i]->number != number;
	pthread_mutex_unlock(&service->lock);
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

/*
 * The list. A cursor is a place and the members of its group that were told.
 */
#define CURSOR(place, member) ((uint64_t)(place) << 32 | (member))

/* Under the lock. A group's entry with its members from *member on, which is moved; 0: these were the last. Its bytes;
 * 0: no room. */
static uint32_t entry_put(const struct meeting_group *group, uint32_t *member, uint8_t *out, uint32_t room)
{
	uint32_t used = (uint32_t)sizeof(struct wire_peer_entry) + WIRE_PAD(group->name_len), bytes, i = *member;
	struct wire_peer_entry entry = {.number = group->number,
					.size = group->size,
					.here = group->here,
					.name_len = group->name_len,
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
	memcpy(out + sizeof(entry), group->name, group->name_len);
	return used;
}

uint32_t meeting_groups_list(struct meeting_service *service, const struct auth_client *client, uint64_t *cursor,
			     uint8_t *out, uint32_t room)
{
	uint32_t at = (uint32_t)(*cursor >> 32), member = (uint32_t)*cursor, used = 0, bytes;

	pthread_mutex_lock(&service->lock);
	for (; at < service->settings.groups; at++, member = 0) {
		const struct meeting_group *group = service->group[at];

		if (!group || !auth_may(client, AUTH_NAMES, group->name, group->name_len))
			continue;
		bytes = entry_put(group, &member, out + used, room - used);
		used += bytes;
		if (!bytes || member)
			break;
	}
	pthread_mutex_unlock(&service->lock);
	*cursor = at < service->settings.groups ? CURSOR(at, member) : 0;
	return used;
}

/*
 * The process
 */
static void meeting_close(void *shared)
{
	struct meeting_service *service = shared;

	must(!service->members);
	pthread_mutex_destroy(&service->lock);
	free(service->group);
	quota_destroy(service->groups);
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
	pthread_mutex_init(&service->lock, NULL);
	service->group = calloc(service->settings.groups, sizeof(struct meeting_group *));
	rc = service->group
		     ? quota_create((uint32_t)service->settings.groups, sizeof(struct fabric_source), &service->groups)
		     : -ENOMEM;
	if (rc == 0)
		*out = service;
	else
		meeting_close(service);
	return rc;
}

static uint64_t members_now(struct meeting_service *service)
{
	uint64_t n;

	pthread_mutex_lock(&service->lock);
	n = service->members;
	pthread_mutex_unlock(&service->lock);
	return n;
}

static void meeting_status(const void *shared, struct service_report *report)
{
	struct meeting_service *service = (void *)(uintptr_t)shared;

	report->begin(report, "peer");
	report->number(report, "groups", quota_taken(service->groups));
	report->number(report, "groups_max", service->settings.groups);
	report->number(report, "groups_per_source", service->settings.groups_per_source);
	report->number(report, "members", members_now(service));
	report->number(report, "members_max", service->settings.members);
	report->end(report);
}

static void meeting_resources(const void *shared, struct service_report *report)
{
	struct meeting_service *service = (void *)(uintptr_t)shared;

	report->number(report, "peer_groups_now", service ? quota_taken(service->groups) : 0);
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
