/* group.c: a group of peers in words and in records: admission, missing members, entries of the list. */
#include "service/peer/peer.h"

#define NAMED_MAX 8 /* ranks that are named to people */

const char *meeting_group_closed(const struct meet_name *group, uint32_t size, uint32_t rank)
{
	if (group->size != size)
		return "others have begun that group with another size";
	if (group->number)
		return "that group is complete, and all its members are there";
	if (rank != MEET_ANY_RANK && group->presence[rank] == MEET_HERE)
		return "somebody has that rank";
	return NULL;
}

/* Members without a key could not be told it. */
void meeting_group_secret(struct meet_name *group)
{
	for (uint32_t i = 0; i < group->size; i++)
		if (!conn_seals(group->member[i]->conn))
			return;
	group->issues = random_fill(group->secret, sizeof(group->secret)) == 0;
}

/*
 * In words
 */

/* "rank 3", "ranks 1, 2 and 7": those of that presence. How many there are. */
static uint32_t put_ranks(const struct meet_name *group, enum meet_presence presence, char *buf, size_t size)
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

/* No rank is missing by its number where a member takes any. */
static bool ranks_are_named(const struct meet_name *group)
{
	for (uint32_t i = 0; i < group->here; i++)
		if (group->member[i]->rank == MEET_ANY_RANK)
			return false;
	return true;
}

char *meeting_group_missing(const struct meet_name *group, char *buf, size_t size)
{
	char missing[128], left[128];
	uint32_t n, gone;

	if (!ranks_are_named(group)) {
		snprintf(buf, size, "%u of %u members did not come", group->size - group->here, group->size);
		return buf;
	}
	n = put_ranks(group, MEET_MISSING, missing, sizeof(missing));
	gone = put_ranks(group, MEET_LEFT, left, sizeof(left));
	if (!gone)
		snprintf(buf, size, "rank%s %s of %u did not come", n > 1 ? "s" : "", missing, group->size);
	else if (!n)
		snprintf(buf, size, "rank%s %s of %u had come and left", gone > 1 ? "s" : "", left, group->size);
	else
		snprintf(buf, size, "rank%s %s of %u did not come, and rank%s %s had come and left", n > 1 ? "s" : "",
			 missing, group->size, gone > 1 ? "s" : "", left);
	return buf;
}

/*
 * In records
 */
uint32_t meeting_member_put(const struct meet_member *m, bool token, uint8_t *out, uint32_t room)
{
	struct wire_peer_member member = {
		.token = token ? m->token : 0, .rank = m->rank, .addresses_len = m->addresses_len};
	uint32_t bytes = (uint32_t)sizeof(member) + WIRE_PAD(m->addresses_len);

	if (bytes > room)
		return 0;
	memset(out, 0, bytes);
	memcpy(out, &member, sizeof(member));
	if (m->addresses_len)
		memcpy(out + sizeof(member), m->addresses, m->addresses_len);
	return bytes;
}

uint32_t meeting_group_entry(const struct meet_name *group, uint32_t *member, uint8_t *out, uint32_t room)
{
	uint32_t used = (uint32_t)sizeof(struct wire_peer_entry) + WIRE_PAD(group->len), bytes, i = *member;
	struct wire_peer_entry entry = {.number = group->number,
					.size = group->size,
					.here = group->here,
					.name_len = group->len,
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
	memcpy(out + sizeof(entry), group->text, group->len);
	return used;
}
