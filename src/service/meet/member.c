/* member.c: a connection that meets others: what it waits for, how long, and what it is told; its rights. */
#include "service/meet/meet.h"

#include <stdlib.h>

#define LOOKS 16 /* at members that wait, in one turn: what is missing may have to be looked for and named */

void meet_thread_init(struct service_part *part, const struct meet_view *view)
{
	struct meet_thread *t = container_of(part, struct meet_thread, part);

	t->view = view;
	list_init(&t->waiting);
	list_init(&t->looked);
	t->next = t->coming = TIME_NEVER;
}

void *meet_agent_new(struct service_part *part, const struct service_way *way)
{
	struct meet_thread *t = container_of(part, struct meet_thread, part);
	struct meet_member *m = calloc(1, t->view->agent_size);

	(void)way;
	if (!m)
		return NULL;
	m->thread = t;
	m->rank = MEET_ANY_RANK;
	return m;
}

void meet_agent_free(void *agent)
{
	free(((struct meet_member *)agent)->addresses);
	free(agent);
}

void meet_established(struct conn *conn)
{
	((struct meet_member *)conn_context(conn))->conn = conn;
}

/*
 * What is asked, and answers
 */
struct wire_record *meet_answer(const struct meet_member *m, unsigned op, uint32_t id)
{
	return conn_reserve_reply(m->conn, op, id, m->thread->view->reply, NULL);
}

int meet_refuse(struct meet_member *m, struct wire_record *reply, enum wire_status status, const char *why)
{
	uint32_t len = (uint32_t)strlen(why);

	reply->status = (uint16_t)status;
	meet_count(m, m->thread->view->refused);
	memcpy(reply + 1, why, len);
	conn_commit(m->conn, reply, len);
	return 0;
}

bool meet_is_of(const struct meet_member *m, const char *text, uint32_t len)
{
	return (uint32_t)hash_bytes(text, len) == conn_request(m->conn)->count;
}

bool meet_may_use(const struct meet_member *m, const char *text, uint32_t len)
{
	return auth_may(conn_client(m->conn), AUTH_NAMES, text, len);
}

struct meet_name *meet_begin(struct meet_member *m, const char *text, uint32_t len, uint32_t size,
			     enum wire_status *status, const char **why)
{
	struct fabric_source source;
	struct meet_name *name;

	fabric_endpoint_source(conn_endpoint(m->conn), &source);
	name = meet_name_new(meet_table_of(m), &source, text, len, size, status, why);
	if (!name && *status == WIRE_BUSY)
		meet_count(m, m->thread->view->limits);
	return name;
}

bool meet_keep_addresses(struct meet_member *m, const char *addresses, uint32_t len)
{
	free(m->addresses);
	m->addresses = malloc(MAX(len, 1u));
	m->addresses_len = m->addresses ? len : 0;
	if (m->addresses)
		memcpy(m->addresses, addresses, len);
	return m->addresses;
}

/* A member is about to leave: its connection ends. */
static bool name_loses_member(const struct meet_name *name)
{
	for (uint32_t i = 0; i < name->size; i++)
		if (name->member[i] && !conn_established(name->member[i]->conn))
			return true;
	return false;
}

bool meet_asks_again(struct meet_member *m, const struct meet_name *name)
{
	bool again = m->again;

	m->again = true;
	if (!name)
		return false;
	conn_charge(m->conn, name->size / MEET_MEMBERS_OF_RECORD);
	return !again || name_loses_member(name);
}

void meet_revised(struct conn *conn)
{
	struct meet_member *m = conn_context(conn);

	must(service_part_is_mine(&m->thread->part));
	if (!m->name || meet_may_use(m, m->name->text, m->name->len))
		return;
	if (m->role == MEET_WAITS)
		meet_wait_refused(m, WIRE_DENIED, 0, MEET_NO_RIGHT);
	else
		conn_revoke(conn, m->thread->view->revoked);
}

/*
 * Waiting
 */
void meet_list(struct meet_member *m, struct list *list)
{
	list_add_tail(list, &m->node);
	service_part_join(&m->thread->part);
}

void meet_rest(struct meet_member *m)
{
	if (!list_linked(&m->node))
		return;
	list_del(&m->node);
	service_part_leave(&m->thread->part);
}

void meet_wait(struct meet_member *m, uint32_t id, uint64_t patience)
{
	m->role = MEET_WAITS;
	m->id = id;
	m->patience = patience;
	m->deadline = time_after(service_part_now(&m->thread->part), patience);
	m->thread->next = MIN(m->thread->next, m->deadline);
	meet_list(m, &m->thread->waiting);
}

void meet_wait_refused(struct meet_member *m, enum wire_status status, uint32_t arg, const char *why)
{
	struct wire_record *reply = meet_answer(m, m->thread->view->op, m->id);

	m->thread->view->ends(m);
	if (!reply) {
		conn_close(m->conn, -ETIMEDOUT, "%s, and it takes no answers", why);
		return;
	}
	reply->arg = arg;
	meet_refuse(m, reply, status, why);
}

/* Looks at some of them, when a member's time is up; then at the next ones in the turns that follow. */
int meet_turn(struct meet_thread *t)
{
	uint64_t now = service_part_now(&t->part);
	int n = 0;

	if (now < t->next)
		return 0;
	for (; n < LOOKS && !list_empty(&t->waiting); n++) {
		struct meet_member *m = list_first(&t->waiting, struct meet_member, node);

		if (now >= m->deadline) {
			t->view->late(m);
			continue;
		}
		list_del(&m->node);
		list_add_tail(&t->looked, &m->node);
		t->coming = MIN(t->coming, m->deadline);
	}
	t->next = 0;
	if (!list_empty(&t->waiting))
		return n;
	list_prepend(&t->waiting, &t->looked);
	t->next = t->coming;
	t->coming = TIME_NEVER;
	return n;
}
