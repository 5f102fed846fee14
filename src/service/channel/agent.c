/*
 * agent.c: a connection of the channel service: what it is, whom it ends with, and what becomes of it by time.
 */
#include "service/channel/channel.h"

#include <stdlib.h>

#define LEAVE_PATIENCE (5 * TIME_S) /* for what was sent to an end before its partner's end */

static struct channel_thread *thread_of(const struct service_part *part)
{
	return container_of((struct service_part *)(uintptr_t)part, struct channel_thread, part);
}

static struct channel_agent *agent_at(struct list *node)
{
	return container_of(node, struct channel_agent, node);
}

static uint64_t agent_now(const struct channel_agent *a)
{
	return service_part_now(&a->thread->part);
}

int channel_thread_init(struct service_part *part)
{
	list_init(&thread_of(part)->waiting);
	list_init(&thread_of(part)->leaving);
	return 0;
}

void *channel_agent_new(struct service_part *part, const struct service_way *way)
{
	struct channel_agent *a = calloc(1, sizeof(*a));

	(void)way;
	if (!a)
		return NULL;
	a->thread = thread_of(part);
	return a;
}

static void agent_established(struct conn *conn)
{
	((struct channel_agent *)conn_context(conn))->conn = conn;
}

void channel_agent_enter(struct channel_agent *a, struct list *list, uint64_t patience)
{
	a->deadline = agent_now(a) + patience;
	list_add_tail(list, &a->node);
	service_part_join(&a->thread->part);
}

void channel_agent_leave(struct channel_agent *a)
{
	a->thread->uninvited -= a->role == CHANNEL_WAITS && !a->invited;
	list_del(&a->node);
	service_part_leave(&a->thread->part);
}

static int (*const requests[])(struct channel_agent *a, const struct wire_record *record, const void *body) = {
	[WIRE_OP_CHANNEL_OPEN] = channel_serve_open,     [WIRE_OP_CHANNEL_DATA] = channel_relay,
	[WIRE_OP_CHANNEL_TAIL] = channel_relay,          [WIRE_OP_CHANNEL_WANT] = channel_relay,
	[WIRE_OP_CHANNEL_LISTEN] = channel_serve_listen, [WIRE_OP_CHANNEL_LIST] = channel_serve_list,
	[WIRE_OP_CHANNEL_LEAVE] = channel_serve_leave,
};

static int agent_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct channel_agent *a = conn_context(conn);

	must(service_part_is_mine(&a->thread->part));
	if (record->op >= ARRAY_SIZE(requests) || !requests[record->op] || record->status)
		return -EPROTO;
	if (record->flags && requests[record->op] != channel_relay)
		return -EPROTO;
	return requests[record->op](a, record, body);
}

/*
 * Ends
 */

/* The partner of one that has gone: what was on its way to it goes on, then it ends. It sees by WIRE_CHANNEL_LAST if
 * that was in peace. */
static void agent_left(struct channel_agent *a)
{
	a->partner = NULL;
	a->role = CHANNEL_LEAVES;
	channel_agent_enter(a, &a->thread->leaving, LEAVE_PATIENCE);
}

static void leave_name(struct channel_agent *a)
{
	if (!list_linked(&a->of_name))
		return;
	list_del(&a->of_name);
	channel_name_clients(channel_service_of(a), a->name, -1);
	a->name = NULL;
}

static void joined_ends(struct channel_agent *a)
{
	struct channel_agent *partner = a->partner;

	leave_name(a);
	leave_name(partner);
	channel_give(a);
	channel_give(partner);
	if (partner != a)
		agent_left(partner);
}

void channel_listener_ends(struct channel_agent *a)
{
	struct channel_service *service = channel_service_of(a);
	struct channel_name *name = a->name;
	struct list *pos, *next;

	meet_remove(&service->names, &name->name);
	list_for_each_safe (pos, next, &a->thread->waiting)
		if (agent_at(pos)->name == name)
			channel_wait_refused(agent_at(pos), WIRE_NOT_FOUND, "who listened on that name has gone");
	while (!list_empty(&name->joined))
		leave_name(list_first(&name->joined, struct channel_agent, of_name));
	free(name);
	a->name = NULL;
	a->role = CHANNEL_FRESH;
}

static void agent_closed(struct conn *conn, int error, const char *reason)
{
	struct channel_agent *a = conn_context(conn);

	if (a->role == CHANNEL_JOINED && !a->last)
		meet_log_end(conn, "channel", error ? reason : "ended its channel without a word");
	/* an agent that has said its last word may not wait for what else comes */
	else if (error && a->role < CHANNEL_JOINED)
		meet_log_end(conn, "channel", reason);
	if (a->role == CHANNEL_LISTENS)
		channel_listener_ends(a);
	else if (a->role == CHANNEL_WAITS)
		channel_wait_ends(a);
	else if (a->role == CHANNEL_JOINED)
		joined_ends(a);
	else if (list_linked(&a->node))
		channel_agent_leave(a);
	free(a);
}

/*
 * Time
 */
static int look_waiting(struct channel_agent *a, uint64_t now)
{
	if (now < a->deadline)
		return !a->invited && channel_invite(a);
	channel_count(a, CHANNEL_COUNT_EXPIRED, 1);
	channel_wait_refused(a, WIRE_BUSY, "who listens on that name did not come in time");
	return 1;
}

static int look_leaving(struct channel_agent *a, uint64_t now)
{
	if (now < a->deadline && !conn_idle(a->conn))
		return 0;
	channel_agent_leave(a);
	conn_close(a->conn, 0, "the other end of the channel is gone");
	return 1;
}

/* Where all were invited, those behind the first whose time lasts are none to look at. */
static int look_at_waiting(struct channel_thread *t, uint64_t now)
{
	struct list *pos, *next;
	int n = 0;

	list_for_each_safe (pos, next, &t->waiting) {
		if (!t->uninvited && now < agent_at(pos)->deadline)
			break;
		n += look_waiting(agent_at(pos), now);
	}
	return n;
}

static int look_at_leaving(struct channel_thread *t, uint64_t now)
{
	struct list *pos, *next;
	int n = 0;

	list_for_each_safe (pos, next, &t->leaving)
		n += look_leaving(agent_at(pos), now);
	return n;
}

int channel_thread_progress(struct service_part *part)
{
	struct channel_thread *t = thread_of(part);
	uint64_t now = service_part_now(part);

	return look_at_waiting(t, now) + look_at_leaving(t, now);
}

static uint64_t first_deadline(const struct list *list)
{
	return list_empty(list) ? TIME_NEVER : list_first(list, struct channel_agent, node)->deadline;
}

uint64_t channel_thread_deadline(const struct service_part *part)
{
	return MIN(first_deadline(&thread_of(part)->waiting), first_deadline(&thread_of(part)->leaving));
}

const struct conn_ops channel_agent_ops = {
	.established = agent_established,
	.record = agent_record,
	.closed = agent_closed,
};
