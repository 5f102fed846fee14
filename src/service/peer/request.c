/* request.c: what a connection of the peer service asks for: to be one of a group, and which groups there are. */
#include "service/peer/peer.h"

#include <stdlib.h>

#define MEMBERS_OF_RECORD 32 /* that a client pays for as for a record, see meet.h */

/*
 * Answers
 */
static struct wire_record *answer_begin(const struct meeting_agent *a, unsigned op, uint32_t id, uint32_t *room)
{
	return conn_reserve_reply(a->conn, op, id, MEETING_PAGE_MIN, room);
}

static int refuse(struct meeting_agent *a, struct wire_record *reply, enum wire_status status, const char *why)
{
	meeting_count(a, MEETING_COUNT_REFUSED);
	return meet_refuse(a->conn, reply, status, why);
}

/*
 * To join
 */
struct asked {
	struct wire_peer_join join;
	const char *name, *addresses;
	uint32_t addresses_len;
};

/* The number of a connect request is that of the name: only so has one worker all that name it. */
static bool asked_decode(const struct meeting_agent *a, const struct wire_record *record, const void *body,
			 struct asked *out)
{
	uint32_t len;

	if (record->length < sizeof(out->join))
		return false;
	memcpy(&out->join, body, sizeof(out->join));
	len = record->length - (uint32_t)sizeof(out->join);
	if (out->join.name_len > len)
		return false;
	out->name = (const char *)body + sizeof(out->join);
	out->addresses = out->name + out->join.name_len;
	out->addresses_len = len - out->join.name_len;
	return wire_printable(out->name, len) &&
	       WIRE_PEER_COUNT(out->name, out->join.name_len) == conn_request(a->conn)->count;
}

/* WIRE_OK, or what is wrong with it, in words. */
static enum wire_status asked_check(const struct meeting_agent *a, const struct asked *asked, char *why, size_t size)
{
	const struct wire_peer_join *join = &asked->join;
	uint32_t most = (uint32_t)meeting_service_of(a)->settings.members;

	if (a->role != MEETING_FRESH) {
		snprintf(why, size,
			 "this connection is a member of a group; a further group needs a further connection");
		return WIRE_EXISTS;
	}
	if (!join->name_len || join->name_len > WIRE_PEER_NAME_MAX) {
		snprintf(why, size, "a name of %u bytes; from 1 to %u are allowed", join->name_len, WIRE_PEER_NAME_MAX);
		return WIRE_TOO_LARGE;
	}
	if (asked->addresses_len > WIRE_PEER_ADDRESSES_MAX) {
		snprintf(why, size, "%u bytes of addresses; up to %u are allowed", asked->addresses_len,
			 WIRE_PEER_ADDRESSES_MAX);
		return WIRE_TOO_LARGE;
	}
	if (!join->size || join->size > most) {
		snprintf(why, size, "a group of %u members; from 1 to %u are allowed, see peer.members", join->size,
			 most);
		return WIRE_RANGE;
	}
	if (join->rank != WIRE_PEER_ANY_RANK && join->rank >= join->size) {
		snprintf(why, size, "rank %u of %u; the last is %u", join->rank, join->size, join->size - 1);
		return WIRE_RANGE;
	}
	if (!meet_may_use(a->conn, asked->name, join->name_len)) {
		snprintf(why, size, MEET_NO_RIGHT);
		return WIRE_DENIED;
	}
	return WIRE_OK;
}

static struct meeting_group *find_group(struct meeting_agent *a, const struct asked *asked)
{
	struct meet_name *name = meet_find(&meeting_service_of(a)->groups, asked->name, asked->join.name_len, a->conn);

	return name ? meeting_group_of(name) : NULL;
}

/* A program may end and begin again: the end of its connection may be behind its request, by a turn, or not be
 * complete. */
static bool may_get_free(struct meeting_agent *a, const struct meeting_group *group, const struct asked *asked)
{
	bool again = a->again;

	a->again = true;
	if (!group || !meeting_group_closed(group, asked->join.size, asked->join.rank))
		return false;
	conn_charge(a->conn, group->size / MEMBERS_OF_RECORD);
	return !again || meeting_group_loses(group);
}

/* NULL: see `status` and `why`, which say that there is no memory. */
static struct meeting_group *make_group(struct meeting_agent *a, const struct asked *asked, enum wire_status *status,
					const char **why)
{
	struct meeting_group *group = meeting_group_new(asked->name, asked->join.name_len, asked->join.size);

	if (group && meet_enter(&meeting_service_of(a)->groups, &group->name, a->conn, why) != 0) {
		meeting_count(a, MEETING_COUNT_LIMITS);
		*status = WIRE_BUSY;
		meeting_group_free(group);
		return NULL;
	}
	return group;
}

static bool keep_addresses(struct meeting_agent *a, const struct asked *asked)
{
	free(a->addresses);
	a->addresses_len = asked->addresses_len;
	a->addresses = malloc(MAX(a->addresses_len, 1u));
	if (a->addresses)
		memcpy(a->addresses, asked->addresses, a->addresses_len);
	return a->addresses;
}

/* The group that it may be one of; NULL: see `status` and `why`. */
static struct meeting_group *choose_group(struct meeting_agent *a, struct meeting_group *group,
					  const struct asked *asked, enum wire_status *status, const char **why)
{
	*status = WIRE_NO_MEMORY;
	*why = "the server has no memory";
	if (!keep_addresses(a, asked))
		return NULL;
	if (!group)
		return make_group(a, asked, status, why);
	*status = group->size != asked->join.size ? WIRE_RANGE : WIRE_EXISTS;
	*why = meeting_group_closed(group, asked->join.size, asked->join.rank);
	return *why ? NULL : group;
}

/* Only then it is worth a number, which no other group has. */
static bool completes(const struct meeting_group *group, const struct asked *asked)
{
	return (group ? group->here : 0) + 1 == asked->join.size;
}

static void join(struct meeting_agent *a, struct meeting_group *group, const struct wire_peer_join *asked, uint32_t id)
{
	uint64_t most = meeting_service_of(a)->settings.join_timeout;

	a->patience = asked->patience && asked->patience < most / TIME_US ? asked->patience * TIME_US : most;
	a->deadline = time_after(service_part_now(&a->thread->part), a->patience);
	a->token = asked->token;
	a->rank = asked->rank;
	a->id = id;
	a->again = false;
	meeting_group_enter(group, a);
	meeting_agent_wait(a);
	meeting_count(a, MEETING_COUNT_JOINS);
}

int meeting_serve_join(struct meeting_agent *a, const struct wire_record *record, const void *body)
{
	struct meeting_service *service = meeting_service_of(a);
	struct meeting_group *group;
	struct wire_record *reply;
	enum wire_status status;
	const char *words = NULL;
	struct asked asked;
	uint32_t number = 0;
	char why[160];

	if (!asked_decode(a, record, body, &asked))
		return -EPROTO;
	status = asked_check(a, &asked, why, sizeof(why));
	group = status == WIRE_OK ? find_group(a, &asked) : NULL;
	reply = may_get_free(a, group, &asked) ? NULL : answer_begin(a, record->op, record->id, NULL);
	if (!reply)
		return -EAGAIN;
	if (status != WIRE_OK)
		return refuse(a, reply, status, why);
	if (completes(group, &asked) && !(number = meeting_group_number(service)))
		return refuse(a, reply, WIRE_FAILED, "the server has no random numbers");
	group = choose_group(a, group, &asked, &status, &words);
	if (!group)
		return refuse(a, reply, status, words);
	join(a, group, &asked.join, record->id);
	if (!meeting_group_is_full(group))
		return 0;
	conn_charge(a->conn, group->size / MEMBERS_OF_RECORD);
	meeting_group_complete(service, group, number);
	meeting_count(a, MEETING_COUNT_GROUPS);
	meeting_agents_tell(group);
	return 0;
}

int meeting_serve_leave(struct meeting_agent *a, const struct wire_record *record, const void *body)
{
	struct wire_record *reply;

	(void)body;
	if (record->length)
		return -EPROTO;
	reply = answer_begin(a, record->op, record->id, NULL);
	if (!reply)
		return -EAGAIN;
	meeting_agent_part(a);
	a->again = false;
	conn_commit(a->conn, reply, 0);
	return 0;
}

/* It waits no more, and is told why; `arg` is the answer's. */
static void join_ends(struct meeting_agent *a, enum wire_status status, uint32_t arg, const char *why)
{
	struct wire_record *reply = answer_begin(a, WIRE_OP_PEER_JOIN, a->id, NULL);

	meeting_agent_rest(a);
	meeting_group_leave(a);
	a->role = MEETING_FRESH;
	if (reply)
		reply->arg = arg;
	if (reply)
		meeting_count(a, MEETING_COUNT_REFUSED);
	meet_end_wait(a->conn, reply, status, why);
}

void meeting_join_expired(struct meeting_agent *a)
{
	char missing[320], why[400];

	snprintf(why, sizeof(why), "%s within %.6g s", meeting_group_missing(a->group, missing, sizeof(missing)),
		 (double)a->patience / TIME_S);
	meeting_count(a, MEETING_COUNT_EXPIRED);
	join_ends(a, WIRE_BUSY, 1, why);
}

void meeting_agent_revised(struct conn *conn)
{
	struct meeting_agent *a = conn_context(conn);

	must(service_part_is_mine(&a->thread->part));
	if (!a->group || meet_may_use(conn, a->group->name.text, a->group->name.len))
		return;
	if (a->role == MEETING_WAITS)
		join_ends(a, WIRE_DENIED, 0, MEET_NO_RIGHT);
	else
		conn_revoke(conn, "its right to the name of its group was revoked");
}

int meeting_serve_list(struct meeting_agent *a, const struct wire_record *record, const void *body)
{
	struct meeting_service *service = meeting_service_of(a);

	return meet_serve_list(a->conn, record, body, &service->groups, MEETING_PAGE_MIN, !service->settings.list);
}
