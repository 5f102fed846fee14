/* agent.c: a connection of the peer service: its end, and what it is told when its group is complete. */
#include "service/internal.h"
#include "service/peer/peer.h"

#define TELL_BYTES (256u * 1024) /* in one turn, so that a large group does not make the others wait */

static struct meeting_thread *thread_of(const struct service_part *part)
{
	return container_of((struct service_part *)(uintptr_t)part, struct meeting_thread, meet.part);
}

static int agent_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct meeting_agent *a = conn_context(conn);

	must(service_part_is_mine(&a->m.thread->part));
	if (record->status || record->flags)
		return -EPROTO;
	if (record->op == WIRE_OP_PEER_JOIN)
		return meeting_serve_join(a, record, body);
	if (record->op == WIRE_OP_PEER_LIST)
		return meet_serve_list(&a->m, record, body);
	return record->op == WIRE_OP_PEER_LEAVE ? meeting_serve_leave(a, record, body) : -EPROTO;
}

static void wait_ends(void *agent)
{
	struct meeting_agent *a = agent;

	meet_rest(&a->m);
	if (a->m.name)
		meet_leave(&a->m);
	a->m.role = MEET_FRESH;
}

static void wait_is_late(void *agent)
{
	struct meeting_agent *a = agent;
	char missing[320], why[400];

	snprintf(why, sizeof(why), "%s within %.6g s", meeting_group_missing(a->m.name, missing, sizeof(missing)),
		 (double)a->m.patience / TIME_S);
	meet_count(&a->m, MEETING_COUNT_EXPIRED);
	meet_wait_refused(&a->m, WIRE_BUSY, 1, why);
}

void meeting_agent_part(struct meeting_agent *a)
{
	if (a->m.role == MEET_WAITS)
		meet_count(&a->m, MEETING_COUNT_LEFT);
	wait_ends(a);
}

static void agent_closed(struct conn *conn, int error, const char *reason)
{
	struct meeting_agent *a = conn_context(conn);

	if (error)
		service_warn("peer", conn, reason);
	meeting_agent_part(a);
	meet_agent_free(a);
}

/*
 * To tell
 */
void meeting_agents_tell(struct meet_name *group)
{
	for (uint32_t i = 0; i < group->size; i++) {
		struct meeting_agent *a = container_of(group->member[i], struct meeting_agent, m);

		meet_rest(&a->m);
		a->m.role = MEET_MEMBER;
		a->told = 0;
		meet_list(&a->m, &thread_of(&a->m.thread->part)->telling);
	}
}

/* One more page. Its bytes; 0: there is no room now, agent_writable() comes. Of one that has gone meanwhile nothing is
 * known but that. */
static uint32_t tell_page(struct meeting_agent *a)
{
	struct meet_name *group = a->m.name;
	struct wire_peer_group page = {
		.number = group->number, .size = group->size, .rank = a->m.rank, .first = a->told};
	uint32_t room, used = sizeof(page), bytes;
	struct wire_record *reply = conn_reserve_reply(a->m.conn, WIRE_OP_PEER_JOIN, a->m.id, MEETING_PAGE_MIN, &room);

	if (!reply)
		return 0;
	if (!a->told && group->issues) {
		reply->flags |= WIRE_PEER_TICKET;
		conn_seal(a->m.conn, group->secret, sizeof(group->secret), (uint8_t *)(reply + 1) + used);
		used += WIRE_SEALED;
	}
	for (; a->told < group->size; a->told++, page.count++) {
		const struct meet_member *member = group->member[a->told], gone = {.rank = a->told};

		bytes = meeting_member_put(member ? member : &gone, true, (uint8_t *)(reply + 1) + used, room - used);
		if (!bytes)
			break;
		used += bytes;
	}
	memcpy(reply + 1, &page, sizeof(page));
	conn_commit(a->m.conn, reply, used);
	return used;
}

/* Tells them in turn, a page to each. */
static int tell_some(struct meeting_thread *t)
{
	uint32_t told = 0, used;
	int n = 0;

	for (; told < TELL_BYTES && !list_empty(&t->telling); n++) {
		struct meeting_agent *a = list_first(&t->telling, struct meeting_agent, m.node);

		list_del(&a->m.node);
		list_add_tail(&t->telling, &a->m.node);
		used = tell_page(a);
		if (!used || a->told == a->m.name->size)
			meet_rest(&a->m);
		told += used;
	}
	return n;
}

static void agent_writable(struct conn *conn)
{
	struct meeting_agent *a = conn_context(conn);

	if (a->m.role == MEET_MEMBER && a->told < a->m.name->size && !list_linked(&a->m.node))
		meet_list(&a->m, &thread_of(&a->m.thread->part)->telling);
}

/*
 * The thread
 */
static const struct meet_view view = {
	.agent_size = sizeof(struct meeting_agent),
	.op = WIRE_OP_PEER_JOIN,
	.reply = MEETING_PAGE_MIN,
	.refused = MEETING_COUNT_REFUSED,
	.limits = MEETING_COUNT_LIMITS,
	.revoked = "its right to the name of its group was revoked",
	.ends = wait_ends,
	.late = wait_is_late,
	.entry = meeting_group_entry,
};

int meeting_thread_init(struct service_part *part)
{
	meet_thread_init(part, &view);
	list_init(&thread_of(part)->telling);
	return 0;
}

int meeting_thread_progress(struct service_part *part)
{
	return meet_turn(&thread_of(part)->meet) + tell_some(thread_of(part));
}

uint64_t meeting_thread_deadline(const struct service_part *part)
{
	return thread_of(part)->meet.next;
}

const struct conn_ops meeting_agent_ops = {
	.established = meet_established,
	.record = agent_record,
	.writable = agent_writable,
	.closed = agent_closed,
};
