/* agent.c: a connection of the peer service: its end, how long it waits, and what it is told when its group is
 * complete. */
#include "service/peer/peer.h"

#include <stdlib.h>

#define TELL_BYTES (256u * 1024) /* in one turn, so that a large group does not make the others wait */
#define LOOKS 16 /* at clients that wait, in one turn: where time is up, the missing ranks are looked for and named */

static struct meeting_thread *thread_of(const struct service_part *part)
{
	return container_of((struct service_part *)(uintptr_t)part, struct meeting_thread, part);
}

int meeting_thread_init(struct service_part *part)
{
	list_init(&thread_of(part)->waiting);
	list_init(&thread_of(part)->looked);
	list_init(&thread_of(part)->telling);
	thread_of(part)->next = thread_of(part)->coming = TIME_NEVER;
	return 0;
}

void *meeting_agent_new(struct service_part *part, const struct service_way *way)
{
	struct meeting_agent *a = calloc(1, sizeof(*a));

	(void)way;
	if (!a)
		return NULL;
	a->thread = thread_of(part);
	a->rank = WIRE_PEER_ANY_RANK;
	return a;
}

void meeting_agent_free(void *agent)
{
	struct meeting_agent *a = agent;

	free(a->addresses);
	free(a);
}

static void agent_established(struct conn *conn)
{
	((struct meeting_agent *)conn_context(conn))->conn = conn;
}

static int (*const requests[])(struct meeting_agent *a, const struct wire_record *record, const void *body) = {
	[WIRE_OP_PEER_JOIN] = meeting_serve_join,
	[WIRE_OP_PEER_LIST] = meeting_serve_list,
	[WIRE_OP_PEER_LEAVE] = meeting_serve_leave,
};

static int agent_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct meeting_agent *a = conn_context(conn);

	must(service_part_is_mine(&a->thread->part));
	if (record->op >= ARRAY_SIZE(requests) || !requests[record->op] || record->status || record->flags)
		return -EPROTO;
	return requests[record->op](a, record, body);
}

void meeting_agent_part(struct meeting_agent *a)
{
	meeting_agent_rest(a);
	if (a->role == MEETING_WAITS)
		meeting_count(a, MEETING_COUNT_LEFT);
	if (a->group)
		meeting_group_leave(a);
	a->role = MEETING_FRESH;
}

static void agent_closed(struct conn *conn, int error, const char *reason)
{
	struct meeting_agent *a = conn_context(conn);

	if (error)
		meet_log_end(conn, "peer", reason);
	meeting_agent_part(a);
	meeting_agent_free(a);
}

/*
 * In lists of the thread, which looks at them in each turn
 */
static void agent_list(struct meeting_agent *a, struct list *list)
{
	list_add_tail(list, &a->node);
	service_part_join(&a->thread->part);
}

void meeting_agent_wait(struct meeting_agent *a)
{
	a->role = MEETING_WAITS;
	a->thread->next = MIN(a->thread->next, a->deadline);
	agent_list(a, &a->thread->waiting);
}

void meeting_agent_rest(struct meeting_agent *a)
{
	if (!list_linked(&a->node))
		return;
	list_del(&a->node);
	service_part_leave(&a->thread->part);
}

void meeting_agents_tell(struct meeting_group *group)
{
	for (uint32_t i = 0; i < group->size; i++) {
		struct meeting_agent *a = group->member[i];

		meeting_agent_rest(a);
		a->role = MEETING_MEMBER;
		a->told = 0;
		agent_list(a, &a->thread->telling);
	}
}

/*
 * To tell
 */

/* One more page. Its bytes; 0: there is no room now, agent_writable() comes. Of one that has gone meanwhile nothing is
 * known but that. */
static uint32_t tell_page(struct meeting_agent *a)
{
	static const struct meeting_agent gone = {0};
	struct meeting_group *group = a->group;
	struct wire_peer_group page = {.number = group->number, .size = group->size, .rank = a->rank, .first = a->told};
	uint32_t room, used = sizeof(page), bytes;
	struct wire_record *reply = conn_reserve_reply(a->conn, WIRE_OP_PEER_JOIN, a->id, MEETING_PAGE_MIN, &room);

	if (!reply)
		return 0;
	if (!a->told && group->name.issues) {
		reply->flags |= WIRE_PEER_TICKET;
		conn_seal(a->conn, group->name.secret, sizeof(group->name.secret), (uint8_t *)(reply + 1) + used);
		used += WIRE_SEALED;
	}
	for (; a->told < group->size; a->told++, page.count++) {
		const struct meeting_agent *member = group->member[a->told];
		struct meeting_agent none = gone;

		none.rank = a->told;
		bytes = meeting_member_put(member ? member : &none, true, (uint8_t *)(reply + 1) + used, room - used);
		if (!bytes)
			break;
		used += bytes;
	}
	memcpy(reply + 1, &page, sizeof(page));
	conn_commit(a->conn, reply, used);
	return used;
}

static uint32_t tell(struct meeting_agent *a)
{
	uint32_t used = tell_page(a);

	if (!used || a->told == a->group->size)
		meeting_agent_rest(a);
	return used;
}

/* In turn, a page to each. */
static int tell_some(struct meeting_thread *t)
{
	uint32_t told = 0;
	int n = 0;

	while (told < TELL_BYTES && !list_empty(&t->telling)) {
		struct meeting_agent *a = list_first(&t->telling, struct meeting_agent, node);

		list_del(&a->node);
		list_add_tail(&t->telling, &a->node);
		told += tell(a);
		n++;
	}
	return n;
}

static void agent_writable(struct conn *conn)
{
	struct meeting_agent *a = conn_context(conn);

	if (a->role == MEETING_MEMBER && a->told < a->group->size && !list_linked(&a->node))
		agent_list(a, &a->thread->telling);
}

/*
 * Time
 */
static void look_at(struct meeting_thread *t, struct meeting_agent *a, uint64_t now)
{
	if (now >= a->deadline) {
		meeting_join_expired(a);
		return;
	}
	list_del(&a->node);
	list_add_tail(&t->looked, &a->node);
	t->coming = MIN(t->coming, a->deadline);
}

/* At some of them, when a client's time is up; then at the next ones in the turns that follow. */
static int look_at_waiting(struct meeting_thread *t, uint64_t now)
{
	int n = 0;

	if (now < t->next)
		return 0;
	for (; n < LOOKS && !list_empty(&t->waiting); n++)
		look_at(t, list_first(&t->waiting, struct meeting_agent, node), now);
	t->next = 0;
	if (!list_empty(&t->waiting))
		return n;
	list_prepend(&t->waiting, &t->looked);
	t->next = t->coming;
	t->coming = TIME_NEVER;
	return n;
}

int meeting_thread_progress(struct service_part *part)
{
	struct meeting_thread *t = thread_of(part);

	return look_at_waiting(t, service_part_now(part)) + tell_some(t);
}

uint64_t meeting_thread_deadline(const struct service_part *part)
{
	return thread_of(part)->next;
}

const struct conn_ops meeting_agent_ops = {
	.established = agent_established,
	.record = agent_record,
	.writable = agent_writable,
	.closed = agent_closed,
};
