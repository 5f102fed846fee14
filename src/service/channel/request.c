/*
 * request.c: what a connection of the channel service asks for: a name to listen on, or a channel to a name: then it is
 * told by which addresses that is reached, or it waits until the listener came for it, by a connection of its own with
 * the token of the invitation. After that the two are joined, and only relay and end.
 */
#include "service/channel/channel.h"

#include <sys/random.h>

/*
 * Answers
 */
static int channel_answer(const struct channel_agent *a, struct wire_record *reply, const void *body, uint32_t len)
{
	if (len)
		memcpy(reply + 1, body, len);
	conn_commit(a->m.conn, reply, len);
	return 0;
}

static int refuse_size(struct channel_agent *a, struct wire_record *reply, uint64_t capacity)
{
	char why[80];

	snprintf(why, sizeof(why), "the rings of that channel have %llu bytes", (unsigned long long)capacity);
	return meet_refuse(&a->m, reply, WIRE_TOO_LARGE, why);
}

static int answer_joined(const struct channel_agent *a, struct wire_record *reply)
{
	const struct wire_channel_open open = {.capacity = a->capacity, .flags = WIRE_CHANNEL_RELAY};

	return channel_answer(a, reply, &open, sizeof(open));
}

/*
 * What is asked
 */
static bool name_is_right(const struct channel_agent *a, const char *text, uint32_t len)
{
	return len >= 1 && len <= WIRE_CHANNEL_NAME_MAX && wire_printable(text, len) && !memchr(text, '/', len) &&
	       meet_is_of(&a->m, text, len);
}

static bool capacity_is_right(uint64_t capacity)
{
	return capacity >= WIRE_CHANNEL_SIZE_MIN && capacity <= WIRE_CHANNEL_SIZE_MAX;
}

static bool is_echo(const char *text, uint32_t len)
{
	return len == strlen(CHANNEL_ECHO) && memcmp(text, CHANNEL_ECHO, len) == 0;
}

/*
 * To listen
 */

/* The name that it listens on from now on, unless there is `taken` one; NULL: see `status` and `why`. */
static struct meet_name *name_new(struct channel_agent *a, const struct meet_name *taken,
				  const struct wire_channel_listen *listen, const char *text, uint32_t addresses_len,
				  enum wire_status *status, const char **why)
{
	uint32_t len = listen->name_len;
	struct meet_name *name;

	if (!meet_may_use(&a->m, text, len)) {
		*status = WIRE_DENIED;
		*why = MEET_NO_RIGHT;
		return NULL;
	}
	if (taken || is_echo(text, len)) {
		*status = WIRE_EXISTS;
		*why = "somebody listens on that name";
		return NULL;
	}
	*status = WIRE_NO_MEMORY;
	*why = "the server has no memory";
	if (!meet_keep_addresses(&a->m, text + len, addresses_len))
		return NULL;
	name = meet_begin(&a->m, text, len, 1, status, why);
	if (!name)
		return NULL;
	name->capacity = listen->capacity;
	meet_enter(name, &a->m);
	a->m.role = MEET_MEMBER;
	return name;
}

int channel_serve_listen(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	const char *text = (const char *)body + sizeof(struct wire_channel_listen), *why;
	struct wire_channel_listen listen;
	uint8_t secret[WIRE_SECRET] = {0};
	struct wire_record *reply;
	enum wire_status status;
	struct meet_name *name;
	uint32_t len, sealed;

	if (a->m.role != MEET_FRESH || record->length < sizeof(listen))
		return -EPROTO;
	memcpy(&listen, body, sizeof(listen));
	sealed = listen.flags & WIRE_CHANNEL_ISSUES ? WIRE_SEALED : 0;
	len = record->length - (uint32_t)sizeof(listen);
	if (len < sealed || (sealed && !conn_seals(a->m.conn)))
		return -EPROTO;
	len -= sealed;
	if (listen.name_len > len || len - listen.name_len > WIRE_CHANNEL_ADDRESSES_MAX ||
	    !name_is_right(a, text, listen.name_len) || !capacity_is_right(listen.capacity) ||
	    !wire_printable(text + listen.name_len, len - listen.name_len))
		return -EPROTO;
	name = meet_find(&a->m, text, listen.name_len);
	reply = meet_asks_again(&a->m, name) ? NULL : meet_answer(&a->m, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	if (sealed && conn_unseal(a->m.conn, text + len, WIRE_SEALED, secret) != 0)
		return meet_refuse(&a->m, reply, WIRE_BAD_REQUEST,
				   "the listener's secret is not sealed for this connection");
	name = name_new(a, name, &listen, text, len - listen.name_len, &status, &why);
	if (!name) {
		auth_wipe(secret, sizeof(secret));
		return meet_refuse(&a->m, reply, status, why);
	}
	name->issues = sealed;
	memcpy(name->secret, secret, sizeof(name->secret));
	auth_wipe(secret, sizeof(secret));
	meet_complete(name, 1);
	channel_count(a, CHANNEL_COUNT_LISTENS, 1);
	return channel_answer(a, reply, NULL, 0);
}

/* As much as clients take that wait or are joined, which may be as many as there are places. */
int channel_serve_leave(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	struct wire_record *reply;

	(void)body;
	if (a->m.role != MEET_MEMBER || record->length)
		return -EPROTO;
	reply = meet_answer(&a->m, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	conn_charge(a->m.conn, quota_taken(channel_service_of(a)->joined.quota) / MEET_NAMES_OF_RECORD);
	channel_listener_ends(a);
	return channel_answer(a, reply, NULL, 0);
}

/*
 * To be let in
 */
static void agent_join(struct channel_agent *a, struct channel_agent *with)
{
	a->m.role = MEET_JOINED;
	a->partner = with;
}

static int serve_echo(struct channel_agent *a, struct wire_record *reply)
{
	const char *why;

	a->share = meet_take(&a->m, &channel_service_of(a)->joined, &why);
	if (why)
		return meet_refuse(&a->m, reply, WIRE_BUSY, why);
	agent_join(a, a);
	channel_count(a, CHANNEL_COUNT_ECHOES, 1);
	return answer_joined(a, reply);
}

/* A listener takes invitations when its program calls: that it does not for a while is no reason to end it. */
bool channel_invite(struct channel_agent *a)
{
	struct conn *listener = a->m.name->member[0]->conn;
	bool room = conn_has_room(listener, sizeof(a->m.token));
	struct wire_record *invitation = room ? conn_reserve(listener, sizeof(a->m.token), NULL) : NULL;

	if (!invitation)
		return false;
	invitation->op = WIRE_OP_CHANNEL_INVITE;
	memcpy(invitation + 1, &a->m.token, sizeof(a->m.token));
	conn_commit(listener, invitation, sizeof(a->m.token));
	list_del(&a->uninvited);
	channel_count(a, CHANNEL_COUNT_INVITES, 1);
	return true;
}

/* A client that knows the token may come in the listener's place. Among the guests, clients that wait are the first. */
static int agent_wait(struct channel_agent *a, struct meet_name *name, struct wire_record *reply)
{
	struct channel_service *service = channel_service_of(a);
	const char *why;

	if (getrandom(&a->m.token, sizeof(a->m.token), GRND_NONBLOCK) != sizeof(a->m.token) || !a->m.token)
		return meet_refuse(&a->m, reply, WIRE_FAILED, "the server has no random numbers");
	a->share = meet_take(&a->m, &service->joined, &why);
	if (why)
		return meet_refuse(&a->m, reply, WIRE_BUSY, why);
	a->m.name = name;
	list_add_head(&name->guests, &a->m.of_name);
	meet_wait(&a->m, reply->id, service->settings.invite_timeout);
	list_add_tail(&channel_thread_of(a)->uninvited, &a->uninvited);
	channel_invite(a);
	return 0;
}

static struct channel_agent *guest_of_token(const struct channel_agent *listener, const struct meet_name *name,
					    uint64_t token)
{
	unsigned looked = 0;

	list_for_each (pos, &name->guests) {
		struct channel_agent *a = container_of(pos, struct channel_agent, m.of_name);

		if (++looked % MEET_NAMES_OF_RECORD == 0)
			conn_charge(listener->m.conn, 1);
		if (a->m.role != MEET_WAITS)
			break;
		if (a->m.token == token)
			return a;
	}
	return NULL;
}

/* The listener comes for a client that waits. */
static int serve_invited(struct channel_agent *a, struct wire_record *reply, struct meet_name *name, uint64_t token)
{
	struct channel_agent *w = name ? guest_of_token(a, name, token) : NULL;
	struct wire_record *waited;

	if (!w)
		return meet_refuse(&a->m, reply, WIRE_NOT_FOUND, "nobody waits with that token, or no more");
	if (w->capacity != a->capacity)
		return refuse_size(a, reply, w->capacity);
	waited = meet_answer(&w->m, WIRE_OP_CHANNEL_OPEN, w->m.id);
	if (!waited)
		return -EAGAIN;
	meet_rest(&w->m);
	if (list_linked(&w->uninvited))
		list_del(&w->uninvited);
	list_del(&w->m.of_name);
	list_add_tail(&name->guests, &w->m.of_name);
	list_add_tail(&name->guests, &a->m.of_name);
	a->m.name = name;
	agent_join(w, a);
	agent_join(a, w);
	channel_clients(a, 1);
	channel_count(a, CHANNEL_COUNT_JOINED, 1);
	answer_joined(w, waited);
	return answer_joined(a, reply);
}

/* To the addresses, and with a ticket: the client proves by it to the listener, and the listener to the client, that
 * this rdmad has introduced them. */
static int serve_moved(struct channel_agent *a, struct meet_name *name, struct wire_record *reply)
{
	uint8_t body[WIRE_CHANNEL_ADDRESSES_MAX + WIRE_CHANNEL_TICKET_SIZE];
	const struct meet_member *listener = name->member[0];
	uint32_t used = listener->addresses_len;
	struct auth_key ticket;

	memcpy(body, listener->addresses, used);
	reply->status = WIRE_MOVED;
	if (name->issues && conn_seals(a->m.conn)) {
		reply->flags |= WIRE_CHANNEL_TICKET;
		name->serial++;
		auth_ticket(name->secret, WIRE_CHANNEL_COUNT(name->text, name->len), name->serial, &ticket);
		memcpy(body + used, &name->serial, sizeof(name->serial));
		conn_seal(a->m.conn, ticket.secret, sizeof(ticket.secret), body + used + sizeof(name->serial));
		auth_wipe(&ticket, sizeof(ticket));
		used += WIRE_CHANNEL_TICKET_SIZE;
	}
	channel_count(a, CHANNEL_COUNT_MOVED, 1);
	return channel_answer(a, reply, body, used);
}

int channel_serve_open(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	const char *text = (const char *)body + sizeof(struct wire_channel_open);
	struct wire_channel_open open;
	struct wire_record *reply;
	struct meet_name *name;
	uint32_t len;

	if (a->m.role != MEET_FRESH || record->length < sizeof(open))
		return -EPROTO;
	memcpy(&open, body, sizeof(open));
	len = record->length - (uint32_t)sizeof(open);
	if (!name_is_right(a, text, len) || !capacity_is_right(open.capacity) || open.flags & ~WIRE_CHANNEL_RELAY)
		return -EPROTO;
	reply = meet_answer(&a->m, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	if (!meet_may_use(&a->m, text, len))
		return meet_refuse(&a->m, reply, WIRE_DENIED, MEET_NO_RIGHT);
	a->capacity = open.capacity;
	name = meet_find(&a->m, text, len);
	if (open.token)
		return serve_invited(a, reply, name, open.token);
	channel_count(a, CHANNEL_COUNT_OPENS, 1);
	if (is_echo(text, len))
		return serve_echo(a, reply);
	if (!name)
		return meet_refuse(&a->m, reply, WIRE_NOT_FOUND, "nobody listens on that name");
	must(name->member[0]->thread == a->m.thread);
	if (name->capacity != open.capacity)
		return refuse_size(a, reply, name->capacity);
	return open.flags & WIRE_CHANNEL_RELAY ? agent_wait(a, name, reply) : serve_moved(a, name, reply);
}
