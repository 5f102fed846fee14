/*
 * agent.c: a connection of the channel service: whom it ends with, and what becomes of it by time.
 */
#include "service/channel/channel.h"
#include "service/internal.h"

#define LEAVE_PATIENCE (5 * TIME_S) /* for what was sent to an end before its partner's end */

static struct channel_thread *thread_of(const struct service_part *part)
{
	return container_of((struct service_part *)(uintptr_t)part, struct channel_thread, meet.part);
}

static int (*const requests[])(struct channel_agent *a, const struct wire_record *record, const void *body) = {
	[WIRE_OP_CHANNEL_OPEN] = channel_serve_open,     [WIRE_OP_CHANNEL_DATA] = channel_relay,
	[WIRE_OP_CHANNEL_TAIL] = channel_relay,          [WIRE_OP_CHANNEL_WANT] = channel_relay,
	[WIRE_OP_CHANNEL_LISTEN] = channel_serve_listen, [WIRE_OP_CHANNEL_LEAVE] = channel_serve_leave,
};

static int agent_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct channel_agent *a = conn_context(conn);

	must(service_part_is_mine(&a->m.thread->part));
	if (record->op == WIRE_OP_CHANNEL_LIST && !record->status && !record->flags && a->m.role == MEET_FRESH)
		return meet_serve_list(&a->m, record, body);
	if (record->op >= ARRAY_SIZE(requests) || !requests[record->op] || record->status)
		return -EPROTO;
	if (record->flags && requests[record->op] != channel_relay)
		return -EPROTO;
	return requests[record->op](a, record, body);
}

static uint32_t entry_put(const struct meet_name *name, uint32_t *member, uint8_t *out, uint32_t room)
{
	struct wire_channel_entry entry = {.capacity = name->capacity, .clients = name->clients, .name_len = name->len};
	uint32_t bytes = (uint32_t)sizeof(entry) + WIRE_PAD(name->len);

	*member = 0;
	if (bytes > room)
		return 0;
	memset(out, 0, bytes);
	memcpy(out, &entry, sizeof(entry));
	memcpy(out + sizeof(entry), name->text, name->len);
	return bytes;
}

/*
 * Ends
 */
static void guest_leaves(struct meet_member *m)
{
	if (list_linked(&m->of_name))
		list_del(&m->of_name);
	m->name = NULL;
}

void channel_clients(struct channel_agent *a, int change)
{
	struct meet_table *table = meet_table_of(&a->m);

	pthread_mutex_lock(&table->lock);
	a->m.name->clients += (uint32_t)change;
	pthread_mutex_unlock(&table->lock);
}

static void share_give(struct channel_agent *a)
{
	quota_give(a->share);
	a->share = NULL;
}

static void wait_ends(void *agent)
{
	struct channel_agent *a = agent;

	meet_rest(&a->m);
	guest_leaves(&a->m);
	if (list_linked(&a->uninvited))
		list_del(&a->uninvited);
	share_give(a);
	a->m.role = MEET_FRESH;
	a->m.token = 0;
}

static void wait_is_late(void *agent)
{
	struct channel_agent *a = agent;

	channel_count(a, CHANNEL_COUNT_EXPIRED, 1);
	meet_wait_refused(&a->m, WIRE_BUSY, 0, "the listener of that name did not come in time");
}

/* Bytes on their way to the partner go on, then it ends. It sees by WIRE_CHANNEL_LAST whether that was in peace. */
static void joined_ends(struct channel_agent *a)
{
	struct channel_agent *partner = a->partner;

	if (a->m.name)
		channel_clients(a, -1);
	guest_leaves(&a->m);
	guest_leaves(&partner->m);
	share_give(a);
	share_give(partner);
	if (partner == a)
		return;
	partner->partner = NULL;
	partner->m.role = MEET_LEAVES;
	partner->m.deadline = service_part_now(&a->m.thread->part) + LEAVE_PATIENCE;
	meet_list(&partner->m, &channel_thread_of(a)->leaving);
}

void channel_listener_ends(struct channel_agent *a)
{
	struct list *pos, *next;

	list_for_each_safe (pos, next, &a->m.name->guests) {
		struct meet_member *guest = container_of(pos, struct meet_member, of_name);

		if (guest->role == MEET_WAITS)
			meet_wait_refused(guest, WIRE_NOT_FOUND, 0, "the listener of that name has gone");
		else
			guest_leaves(guest);
	}
	meet_leave(&a->m);
	a->m.role = MEET_FRESH;
}

static void agent_closed(struct conn *conn, int error, const char *reason)
{
	struct channel_agent *a = conn_context(conn);
	bool unheard = a->m.role == MEET_JOINED && !a->last;

	/* an agent that has said its last word may not wait for what else comes */
	if (unheard || (error && a->m.role < MEET_JOINED))
		service_warn("channel", conn, error ? reason : "ended its channel without a word");
	if (a->m.role == MEET_MEMBER)
		channel_listener_ends(a);
	else if (a->m.role == MEET_WAITS)
		wait_ends(a);
	else if (a->m.role == MEET_JOINED)
		joined_ends(a);
	meet_rest(&a->m);
	meet_agent_free(a);
}

/*
 * The thread
 */
static const struct meet_view view = {
	.agent_size = sizeof(struct channel_agent),
	.op = WIRE_OP_CHANNEL_OPEN,
	.reply = CHANNEL_REPLY_MAX,
	.refused = CHANNEL_COUNT_REFUSED,
	.limits = CHANNEL_COUNT_LIMITS,
	.revoked = "its right to the name was revoked",
	.ends = wait_ends,
	.late = wait_is_late,
	.entry = entry_put,
};

int channel_thread_init(struct service_part *part)
{
	meet_thread_init(part, &view);
	list_init(&thread_of(part)->uninvited);
	list_init(&thread_of(part)->leaving);
	return 0;
}

int channel_thread_progress(struct service_part *part)
{
	struct channel_thread *t = thread_of(part);
	uint64_t now = service_part_now(part);
	int n = meet_turn(&t->meet);
	struct list *pos, *next;

	list_for_each_safe (pos, next, &t->uninvited)
		n += channel_invite(container_of(pos, struct channel_agent, uninvited));
	list_for_each_safe (pos, next, &t->leaving) {
		struct meet_member *m = container_of(pos, struct meet_member, node);

		if (now < m->deadline && !conn_idle(m->conn))
			continue;
		meet_rest(m);
		conn_close(m->conn, 0, "the other end of the channel is gone");
		n++;
	}
	return n;
}

uint64_t channel_thread_deadline(const struct service_part *part)
{
	const struct channel_thread *t = thread_of(part);

	if (list_empty(&t->leaving))
		return t->meet.next;
	return MIN(t->meet.next, list_first(&t->leaving, struct meet_member, node)->deadline);
}

const struct conn_ops channel_agent_ops = {
	.established = meet_established,
	.record = agent_record,
	.closed = agent_closed,
};
