/*
 * request.c: what a connection of the channel service asks for: a name to listen on, or a channel to a name: then it is
 * told by which addresses that is reached, or it waits until the listener came for it, by a connection of its own with
 * the token of the invitation. After that the two are joined, and only relay and end.
 */
#include "service/channel/channel.h"

#include <stdlib.h>
#include <sys/random.h>

#define REPLY_MAX (sizeof(struct wire_channel_open) + WIRE_CHANNEL_ADDRESSES_MAX + WIRE_CHANNEL_TICKET_SIZE)

_Static_assert(REPLY_MAX <= WIRE_BODY_MAX(WIRE_MESSAGE_MIN), "every answer fits in the least message");

/*
 * Answers
 */

/* The answer to the request of this id; NULL: there is no room for it now. */
static struct wire_record *answer_begin(const struct channel_agent *a, unsigned op, uint32_t id)
{
	return conn_reserve_reply(a->conn, op, id, REPLY_MAX, NULL);
}

static int answer(const struct channel_agent *a, struct wire_record *reply, const void *body, uint32_t len)
{
	if (len)
		memcpy(reply + 1, body, len);
	conn_commit(a->conn, reply, len);
	return 0;
}

static int refuse(struct channel_agent *a, struct wire_record *reply, enum wire_status status, const char *why)
{
	channel_count(a, CHANNEL_COUNT_REFUSED, 1);
	return meet_refuse(a->conn, reply, status, why);
}

static int refuse_size(struct channel_agent *a, struct wire_record *reply, uint64_t capacity)
{
	char why[80];

	snprintf(why, sizeof(why), "the rings of that channel have %llu bytes", (unsigned long long)capacity);
	return refuse(a, reply, WIRE_TOO_LARGE, why);
}

static int answer_joined(const struct channel_agent *a, struct wire_record *reply)
{
	const struct wire_channel_open open = {.capacity = a->capacity, .flags = WIRE_CHANNEL_RELAY};

	return answer(a, reply, &open, sizeof(open));
}

/*
 * What is asked
 */

/* The number of a connect request is that of the name: only so has one worker all that ask for it. */
static bool name_is_right(const struct channel_agent *a, const char *text, uint32_t len)
{
	return len >= 1 && len <= WIRE_CHANNEL_NAME_MAX && wire_printable(text, len) && !memchr(text, '/', len) &&
	       WIRE_CHANNEL_COUNT(text, len) == conn_request(a->conn)->count;
}

static bool capacity_is_right(uint64_t capacity)
{
	return capacity >= WIRE_CHANNEL_SIZE_MIN && capacity <= WIRE_CHANNEL_SIZE_MAX;
}

static bool is_echo(const char *text, uint32_t len)
{
	return len == strlen(CHANNEL_ECHO) && memcmp(text, CHANNEL_ECHO, len) == 0;
}

static struct channel_name *find_name(struct channel_agent *a, const char *text, uint32_t len)
{
	struct meet_name *name = meet_find(&channel_service_of(a)->names, text, len, a->conn);

	return name ? container_of(name, struct channel_name, name) : NULL;
}

/* A share of the pairs that are joined. -EBUSY: *why are the words. */
static int take_share(struct channel_agent *a, const char **why)
{
	struct channel_service *service = channel_service_of(a);

	a->share = meet_take(&service->joined, &service->names.lock, a->conn, why);
	if (!a->share)
		channel_count(a, CHANNEL_COUNT_LIMITS, 1);
	return a->share ? 0 : -EBUSY;
}

/*
 * To listen
 */
static struct channel_name *name_new(struct channel_agent *a, const struct wire_channel_listen *listen,
				     const char *text, uint32_t addresses_len)
{
	struct channel_name *name = calloc(1, sizeof(*name));

	if (!name)
		return NULL;
	name->listener = a;
	name->capacity = listen->capacity;
	name->name.len = listen->name_len;
	name->addresses_len = addresses_len;
	memcpy(name->name.text, text, listen->name_len);
	memcpy(name->addresses, text + listen->name_len, addresses_len);
	list_init(&name->joined);
	return name;
}

/* A program may close a listener and listen again: its end may be behind its request, by a turn, or not be complete. */
static bool name_may_get_free(struct channel_agent *a, const char *text, uint32_t len)
{
	const struct channel_name *name = find_name(a, text, len);
	bool again = a->again;

	a->again = true;
	return name && (!again || !conn_established(name->listener->conn));
}

/* `sealed`: the listener's secret, or NULL. */
static enum wire_status name_admit(struct channel_agent *a, struct channel_name *name, const char *sealed,
				   const char **why)
{
	struct meet_name *meet = &name->name;
	int rc;

	*why = "the listener's secret is not sealed for this connection";
	meet->issues = sealed;
	if (sealed && conn_unseal(a->conn, sealed, WIRE_SEALED, meet->secret) != 0)
		return WIRE_BAD_REQUEST;
	*why = MEET_NO_RIGHT;
	if (!meet_may_use(a->conn, meet->text, meet->len))
		return WIRE_DENIED;
	*why = "somebody listens on that name";
	rc = is_echo(meet->text, meet->len) ? -EEXIST : meet_enter(&channel_service_of(a)->names, meet, a->conn, why);
	channel_count(a, CHANNEL_COUNT_LIMITS, rc == -EBUSY);
	return rc == -EBUSY ? WIRE_BUSY : rc == -EEXIST ? WIRE_EXISTS : WIRE_OK;
}

int channel_serve_listen(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	const char *text = (const char *)body + sizeof(struct wire_channel_listen), *why = NULL;
	struct wire_channel_listen listen;
	struct channel_name *name;
	struct wire_record *reply;
	enum wire_status status;
	uint32_t len, sealed;

	if (a->role != CHANNEL_FRESH || record->length < sizeof(listen))
		return -EPROTO;
	memcpy(&listen, body, sizeof(listen));
	sealed = listen.flags & WIRE_CHANNEL_ISSUES ? WIRE_SEALED : 0;
	len = record->length - (uint32_t)sizeof(listen);
	if (len < sealed || (sealed && !conn_seals(a->conn)))
		return -EPROTO;
	len -= sealed;
	if (listen.name_len > len || len - listen.name_len > WIRE_CHANNEL_ADDRESSES_MAX ||
	    !name_is_right(a, text, listen.name_len) || !capacity_is_right(listen.capacity) ||
	    !wire_printable(text + listen.name_len, len - listen.name_len))
		return -EPROTO;
	reply = name_may_get_free(a, text, listen.name_len) ? NULL : answer_begin(a, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	name = name_new(a, &listen, text, len - listen.name_len);
	if (!name)
		return refuse(a, reply, WIRE_NO_MEMORY, "the server has no memory");
	status = name_admit(a, name, sealed ? text + len : NULL, &why);
	if (status != WIRE_OK) {
		auth_wipe(name->name.secret, sizeof(name->name.secret));
		free(name);
		return refuse(a, reply, status, why);
	}
	a->name = name;
	a->role = CHANNEL_LISTENS;
	channel_count(a, CHANNEL_COUNT_LISTENS, 1);
	return answer(a, reply, NULL, 0);
}

/* As much as clients take that wait or are joined, which may be as many as there are places. */
int channel_serve_leave(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	struct wire_record *reply;

	(void)body;
	if (a->role != CHANNEL_LISTENS || record->length)
		return -EPROTO;
	reply = answer_begin(a, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	conn_charge(a->conn, quota_taken(channel_service_of(a)->joined.quota) / MEET_NAMES_OF_RECORD);
	channel_listener_ends(a);
	a->again = false;
	return answer(a, reply, NULL, 0);
}

/*
 * To be let in
 */
static void agent_join(struct channel_agent *a, struct channel_agent *with)
{
	a->role = CHANNEL_JOINED;
	a->partner = with;
}

static int serve_echo(struct channel_agent *a, struct wire_record *reply)
{
	const char *why = NULL;

	if (take_share(a, &why) != 0)
		return refuse(a, reply, WIRE_BUSY, why);
	agent_join(a, a);
	channel_count(a, CHANNEL_COUNT_ECHOES, 1);
	return answer_joined(a, reply);
}

/* A listener takes invitations when its program calls: that it does not for a while is no reason to end it. */
bool channel_invite(struct channel_agent *a)
{
	struct conn *listener = a->name->listener->conn;
	bool room = conn_has_room(listener, sizeof(a->token));
	struct wire_record *invitation = room ? conn_reserve(listener, sizeof(a->token), NULL) : NULL;

	if (!invitation)
		return false;
	invitation->op = WIRE_OP_CHANNEL_INVITE;
	memcpy(invitation + 1, &a->token, sizeof(a->token));
	conn_commit(listener, invitation, sizeof(a->token));
	a->invited = true;
	a->thread->uninvited--;
	channel_count(a, CHANNEL_COUNT_INVITES, 1);
	return true;
}

/* A client that knows it may come in the listener's place. */
static bool make_token(uint64_t *token)
{
	return getrandom(token, sizeof(*token), GRND_NONBLOCK) == sizeof(*token) && *token;
}

static int agent_wait(struct channel_agent *a, struct channel_name *name, struct wire_record *reply)
{
	const char *why = NULL;

	if (!make_token(&a->token))
		return refuse(a, reply, WIRE_FAILED, "the server has no random numbers");
	if (take_share(a, &why) != 0)
		return refuse(a, reply, WIRE_BUSY, why);
	a->id = reply->id;
	a->name = name;
	a->role = CHANNEL_WAITS;
	a->invited = false;
	channel_agent_enter(a, &a->thread->waiting, channel_service_of(a)->settings.invite_timeout);
	a->thread->uninvited++;
	channel_invite(a);
	return 0;
}

void channel_give(struct channel_agent *a)
{
	quota_give(a->share);
	a->share = NULL;
}

void channel_wait_ends(struct channel_agent *a)
{
	channel_agent_leave(a);
	channel_give(a);
	a->role = CHANNEL_FRESH;
	a->name = NULL;
	a->token = 0;
}

void channel_wait_refused(struct channel_agent *a, enum wire_status status, const char *why)
{
	struct wire_record *reply = answer_begin(a, WIRE_OP_CHANNEL_OPEN, a->id);

	channel_wait_ends(a);
	channel_count(a, CHANNEL_COUNT_REFUSED, reply != NULL);
	meet_end_wait(a->conn, reply, status, why);
}

static struct channel_agent *who_waits(const struct channel_agent *listener, uint64_t token, const char *text,
				       uint32_t len)
{
	const struct channel_thread *thread = listener->thread;
	unsigned looked = 0;

	list_for_each (pos, &thread->waiting) {
		struct channel_agent *a = container_of(pos, struct channel_agent, node);

		if (++looked % MEET_NAMES_OF_RECORD == 0)
			conn_charge(listener->conn, 1);
		if (a->token == token && a->name->name.len == len && memcmp(a->name->name.text, text, len) == 0)
			return a;
	}
	return NULL;
}

/* The listener comes for a client that waits. */
static int serve_invited(struct channel_agent *a, struct wire_record *reply, uint64_t token, const char *text,
			 uint32_t len)
{
	struct channel_agent *w = who_waits(a, token, text, len);
	struct wire_record *waited;

	if (!w)
		return refuse(a, reply, WIRE_NOT_FOUND, "nobody waits with that token, or no more");
	if (w->capacity != a->capacity)
		return refuse_size(a, reply, w->capacity);
	waited = answer_begin(w, WIRE_OP_CHANNEL_OPEN, w->id);
	if (!waited)
		return -EAGAIN;
	channel_agent_leave(w);
	list_add_tail(&w->name->joined, &w->of_name);
	channel_name_clients(channel_service_of(w), w->name, 1);
	agent_join(w, a);
	agent_join(a, w);
	channel_count(a, CHANNEL_COUNT_JOINED, 1);
	answer_joined(w, waited);
	return answer_joined(a, reply);
}

/* The client proves by it to the listener, and the listener to the client, that this rdmad has introduced them. */
static uint32_t put_ticket(struct channel_agent *a, struct channel_name *name, uint8_t *out)
{
	struct auth_key ticket;

	name->serial++;
	auth_ticket(name->name.secret, WIRE_CHANNEL_COUNT(name->name.text, name->name.len), name->serial, &ticket);
	memcpy(out, &name->serial, sizeof(name->serial));
	conn_seal(a->conn, ticket.secret, sizeof(ticket.secret), out + sizeof(name->serial));
	auth_wipe(&ticket, sizeof(ticket));
	return WIRE_CHANNEL_TICKET_SIZE;
}

static int serve_moved(struct channel_agent *a, struct channel_name *name, struct wire_record *reply)
{
	uint8_t body[WIRE_CHANNEL_ADDRESSES_MAX + WIRE_CHANNEL_TICKET_SIZE];
	uint32_t used = name->addresses_len;

	memcpy(body, name->addresses, used);
	reply->status = WIRE_MOVED;
	if (name->name.issues && conn_seals(a->conn)) {
		reply->flags |= WIRE_CHANNEL_TICKET;
		used += put_ticket(a, name, body + used);
	}
	channel_count(a, CHANNEL_COUNT_MOVED, 1);
	return answer(a, reply, body, used);
}

int channel_serve_open(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	const char *text = (const char *)body + sizeof(struct wire_channel_open);
	struct wire_channel_open open;
	struct channel_name *name;
	struct wire_record *reply;
	uint32_t len;

	if (a->role != CHANNEL_FRESH || record->length < sizeof(open))
		return -EPROTO;
	memcpy(&open, body, sizeof(open));
	len = record->length - (uint32_t)sizeof(open);
	if (!name_is_right(a, text, len) || !capacity_is_right(open.capacity) || open.flags & ~WIRE_CHANNEL_RELAY)
		return -EPROTO;
	reply = answer_begin(a, record->op, record->id);
	if (!reply)
		return -EAGAIN;
	if (!meet_may_use(a->conn, text, len))
		return refuse(a, reply, WIRE_DENIED, MEET_NO_RIGHT);
	a->capacity = open.capacity;
	if (open.token)
		return serve_invited(a, reply, open.token, text, len);
	channel_count(a, CHANNEL_COUNT_OPENS, 1);
	if (is_echo(text, len))
		return serve_echo(a, reply);
	name = find_name(a, text, len);
	if (!name)
		return refuse(a, reply, WIRE_NOT_FOUND, "nobody listens on that name");
	must(name->listener->thread == a->thread);
	if (name->capacity != open.capacity)
		return refuse_size(a, reply, name->capacity);
	return open.flags & WIRE_CHANNEL_RELAY ? agent_wait(a, name, reply) : serve_moved(a, name, reply);
}

int channel_serve_list(struct channel_agent *a, const struct wire_record *record, const void *body)
{
	if (a->role != CHANNEL_FRESH)
		return -EPROTO;
	return meet_serve_list(a->conn, record, body, &channel_service_of(a)->names, REPLY_MAX, false);
}

/* Of two agents that are joined one has the name. */
void channel_agent_revised(struct conn *conn)
{
	struct channel_agent *a = conn_context(conn);
	const struct channel_name *name = a->name;

	must(service_part_is_mine(&a->thread->part));
	if (!name && a->role == CHANNEL_JOINED)
		name = a->partner->name;
	if (!name || meet_may_use(conn, name->name.text, name->name.len))
		return;
	if (a->role == CHANNEL_WAITS)
		channel_wait_refused(a, WIRE_DENIED, MEET_NO_RIGHT);
	else
		conn_revoke(conn, "its right to the name was revoked");
}
