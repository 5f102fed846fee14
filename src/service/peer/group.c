/* group.c: the members of a group: admission, missing ones, their ranks. */
#include "service/peer/peer.h"

#define NAMED_MAX 8 /* ranks that are named to people */

const char *meeting_group_closed(const struct meeting_group *group, uint32_t size, uint32_t rank)
{
	if (group->size != size)
		return "others have begun that group with another size";
	if (group->number)
		return "that group is complete, and all its members are there";
	if (rank != WIRE_PEER_ANY_RANK && group->presence[rank] == MEETING_HERE)
		return "somebody has that rank";
	return NULL;
}

void meeting_group_enter(struct meeting_group *group, struct meeting_agent *a)
{
	struct meeting_service *service = meeting_service_of(a);

	must(!group->number && group->here < group->size && !a->group);
	pthread_mutex_lock(&service->groups.lock);
	group->member[group->here++] = a;
	if (a->rank != WIRE_PEER_ANY_RANK)
		group->presence[a->rank] = MEETING_HERE;
	a->group = group;
	service->members++;
	pthread_mutex_unlock(&service->groups.lock);
}

bool meeting_group_loses(const struct meeting_group *group)
{
	for (uint32_t i = 0; i < group->size; i++)
		if (group->member[i] && !conn_established(group->member[i]->conn))
			return true;
	return false;
}

static uint32_t place_of(const struct meeting_group *group, const struct meeting_agent *a)
{
	uint32_t i = group->number ? a->rank : 0;

	while (group->member[i] != a)
		i++;
	return i;
}

/* Under the lock. */
static void member_remove(struct meeting_group *group, struct meeting_agent *a)
{
	uint32_t at = place_of(group, a);

	group->here--;
	if (a->rank != WIRE_PEER_ANY_RANK)
		group->presence[a->rank] = MEETING_LEFT;
	if (!group->number)
		memmove(group->member + at, group->member + at + 1,
			(group->here - at) * sizeof(struct meeting_agent *));
	group->member[group->number ? at : group->here] = NULL;
}

void meeting_group_leave(struct meeting_agent *a)
{
	struct meeting_service *service = meeting_service_of(a);
	struct meeting_group *group = a->group;

	pthread_mutex_lock(&service->groups.lock);
	member_remove(group, a);
	group->name.over = group->number;
	service->members--;
	pthread_mutex_unlock(&service->groups.lock);
	a->group = NULL;
	if (group->here)
		return;
	meet_remove(&service->groups, &group->name);
	meeting_group_free(group);
}

/* Members that want a rank have it; the others get what is left, in the order of their coming. */
static void ranks_give(struct meeting_group *group)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < group->size; i++) {
		struct meeting_agent *a = group->member[i];

		if (a->rank != WIRE_PEER_ANY_RANK)
			continue;
		while (group->presence[next] == MEETING_HERE)
			next++;
		a->rank = next;
		group->presence[next] = MEETING_HERE;
	}
}

/* Each swap puts one at its place. */
static void members_sort(struct meeting_group *group)
{
	for (uint32_t i = 0; i < group->size; i++)
		while (group->member[i]->rank != i) {
			struct meeting_agent *a = group->member[i];

			group->member[i] = group->member[a->rank];
			group->member[a->rank] = a;
		}
}

/* Members without a key could not be told it. */
static void secret_make(struct meeting_group *group)
{
	for (uint32_t i = 0; i < group->size; i++)
		if (!conn_seals(group->member[i]->conn))
			return;
	group->name.issues = random_fill(group->name.secret, sizeof(group->name.secret)) == 0;
}

void meeting_group_complete(struct meeting_service *service, struct meeting_group *group, uint32_t number)
{
	must(meeting_group_is_full(group) && number);
	secret_make(group);
	pthread_mutex_lock(&service->groups.lock);
	ranks_give(group);
	members_sort(group);
	group->number = number;
	pthread_mutex_unlock(&service->groups.lock);
}

/*
 * In words
 */

/* "rank 3", "ranks 1, 2 and 7": those of that presence. How many there are. */
static uint32_t put_ranks(const struct meeting_group *group, enum meeting_presence presence, char *buf, size_t size)
{
	size_t used = 0;
	uint32_t n = 0;

	buf[0] = 0;
	for (uint32_t i = 0; i < group->size; i++) {
		if (group->presence[i] != presence)
			continue;
		if (n++ < NAMED_MAX && used < size)
			used += (size_t)snprintf(buf + used, size - used, n > 1 ? ", %u" : "%u", i);
	}
	if (n > NAMED_MAX && used < size)
		snprintf(buf + used, size - used, " and %u more", n - NAMED_MAX);
	return n;
}

/* Where a member takes any rank, none is missing by its number. */
static bool ranks_are_named(const struct meeting_group *group)
{
	for (uint32_t i = 0; i < group->here; i++)
		if (group->member[i]->rank == WIRE_PEER_ANY_RANK)
			return false;
	return true;
}

char *meeting_group_missing(const struct meeting_group *group, char *buf, size_t size)
{
	char missing[128], left[128];
	uint32_t n, gone;

	if (!ranks_are_named(group)) {
		snprintf(buf, size, "%u of %u members did not come", group->size - group->here, group->size);
		return buf;
	}
	n = put_ranks(group, MEETING_MISSING, missing, sizeof(missing));
	gone = put_ranks(group, MEETING_LEFT, left, sizeof(left));
	if (!gone)
		snprintf(buf, size, "rank%s %s of %u did not come", n > 1 ? "s" : "", missing, group->size);
	else if (!n)
		snprintf(buf, size, "rank%s %s of %u had come and left", gone > 1 ? "s" : "", left, group->size);
	else
		snprintf(buf, size, "rank%s %s of %u did not come, and rank%s %s had come and left", n > 1 ? "s" : "",
			 missing, group->size, gone > 1 ? "s" : "", left);
	return buf;
}

uint32_t meeting_member_put(const struct meeting_agent *a, bool token, uint8_t *out, uint32_t room)
{
	struct wire_peer_member member = {
		.token = token ? a->token : 0, .rank = a->rank, .addresses_len = a->addresses_len};
	uint32_t bytes = (uint32_t)sizeof(member) + WIRE_PAD(a->addresses_len);

	if (bytes > room)
		return 0;
	memset(out, 0, bytes);
	memcpy(out, &member, sizeof(member));
	if (a->addresses_len)
		memcpy(out + sizeof(member), a->addresses, a->addresses_len);
	return bytes;
}
