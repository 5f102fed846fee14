/* request.c: what a connection of the peer service asks for: to be one of a group, and which groups there are. */
#include "service/peer/peer.h"

/*
 * To join
 */
struct asked {
	struct wire_peer_join join;
	const char *name, *addresses;
	uint32_t addresses_len;
};

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
	return wire_printable(out->name, len) && meet_is_of(&a->m, out->name, out->join.name_len);
}

static __attribute__((format(printf, 4, 5))) enum wire_status asked_wrong(enum wire_status status, char *why,
									  size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, size, format, args);
	va_end(args);
	return status;
}

/* WIRE_OK, or what is wrong with it, in words. */
static enum wire_status asked_check(const struct meeting_agent *a, const struct asked *asked, char *why, size_t size)
{
	const struct wire_peer_join *join = &asked->join;
	uint32_t most = (uint32_t)meeting_service_of(a)->settings.members;

	if (a->m.role != MEET_FRESH)
		return asked_wrong(
			WIRE_EXISTS, why, size,
			"this connection is a member of a group; a further group needs a further connection");
	if (!join->name_len || join->name_len > WIRE_PEER_NAME_MAX)
		return asked_wrong(WIRE_TOO_LARGE, why, size, "a name of %u bytes; from 1 to %u are allowed",
				   join->name_len, WIRE_PEER_NAME_MAX);
	if (asked->addresses_len > WIRE_PEER_ADDRESSES_MAX)
		return asked_wrong(WIRE_TOO_LARGE, why, size, "%u bytes of addresses; up to %u are allowed",
				   asked->addresses_len, WIRE_PEER_ADDRESSES_MAX);
	if (!join->size || join->size > most)
		return asked_wrong(WIRE_RANGE, why, size,
				   "a group of %u members; from 1 to %u are allowed, see peer.members", join->size,
				   most);
	if (join->rank != WIRE_PEER_ANY_RANK && join->rank >= join->size)
		return asked_wrong(WIRE_RANGE, why, size, "rank %u of %u; the last is %u", join->rank, join->size,
				   join->size - 1);
	return meet_may_use(&a->m, asked->name, join->name_len)
		       ? WIRE_OK
		       : asked_wrong(WIRE_DENIED, why, size, "%s", MEET_NO_RIGHT);
}

/* The group that it may be one of, `group` or a new one; NULL: see `status` and `why`. */
static struct meet_name *choose_group(struct meeting_agent *a, struct meet_name *group, const struct asked *asked,
				      enum wire_status *status, const char **why)
{
	const struct wire_peer_join *join = &asked->join;

	*status = WIRE_NO_MEMORY;
	*why = "the server has no memory";
	if (!meet_keep_addresses(&a->m, asked->addresses, asked->addresses_len))
		return NULL;
	if (!group)
		return meet_begin(&a->m, asked->name, join->name_len, join->size, status, why);
	*status = group->size != join->size ? WIRE_RANGE : WIRE_EXISTS;
	*why = meeting_group_closed(group, join->size, join->rank);
	return *why ? NULL : group;
}

int meeting_serve_join(struct meeting_agent *a, const struct wire_record *record, const void *body)
{
	uint64_t most = meeting_service_of(a)->settings.join_timeout, patience;
	enum wire_status status;
	struct wire_record *reply;
	struct meet_name *group;
	const char *words = NULL;
	struct asked asked;
	uint32_t number = 0;
	char why[160];
	bool closed;

	if (!asked_decode(a, record, body, &asked))
		return -EPROTO;
	status = asked_check(a, &asked, why, sizeof(why));
	group = status == WIRE_OK ? meet_find(&a->m, asked.name, asked.join.name_len) : NULL;
	closed = group && meeting_group_closed(group, asked.join.size, asked.join.rank);
	reply = meet_asks_again(&a->m, closed ? group : NULL) ? NULL : meet_answer(&a->m, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	if (status != WIRE_OK)
		return meet_refuse(&a->m, reply, status, why);
	/* only the last is worth a number, which no other group has */
	if ((group ? group->here : 0) + 1 == asked.join.size && !(number = meet_number(&a->m)))
		return meet_refuse(&a->m, reply, WIRE_FAILED, "the server has no random numbers");
	group = choose_group(a, group, &asked, &status, &words);
	if (!group)
		return meet_refuse(&a->m, reply, status, words);
	patience = asked.join.patience && asked.join.patience < most / TIME_US ? asked.join.patience * TIME_US : most;
	a->m.token = asked.join.token;
	a->m.rank = asked.join.rank;
	meet_enter(group, &a->m);
	meet_wait(&a->m, record->id, patience);
	meet_count(&a->m, MEETING_COUNT_JOINS);
	if (!meet_is_full(group))
		return 0;
	conn_charge(a->m.conn, group->size / MEET_MEMBERS_OF_RECORD);
	meeting_group_secret(group);
	meet_complete(group, number);
	meet_count(&a->m, MEETING_COUNT_GROUPS);
	meeting_agents_tell(group);
	return 0;
}

int meeting_serve_leave(struct meeting_agent *a, const struct wire_record *record, const void *body)
{
	struct wire_record *reply;

	(void)body;
	if (record->length)
		return -EPROTO;
	reply = meet_answer(&a->m, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	meeting_agent_part(a);
	a->m.again = false;
	conn_commit(a->m.conn, reply, 0);
	return 0;
}
