/* check_service_channel.c: the channel service, by records that are made by hand: names, invitations, relay, limits, and what
 * clients may not do. */
#include "tests/conn/conn_pair.h"
#include "tests/service/server.h"
#include "tests/suite.h"

#define CAPACITY 4096
#define CLIENTS 8
#define INVITE_TIMEOUT (10 * TIME_S)
#define STALL_TIMEOUT (30 * TIME_S)

/* One connection of a client, and what came on it. */
struct client {
	struct conn *conn;
	bool established, closed, stops; /* takes nothing */
	int error;
	char why[200];
	unsigned got;
	struct wire_record last; /* of the records that came */
	_Alignas(8) uint8_t body[8192];
	uint8_t bytes[1 << 20]; /* of DATA, in order */
	size_t count;
	struct wire_channel_data data;
	uint64_t index; /* of TAIL and WANT */
	bool ended;     /* WIRE_CHANNEL_LAST came */
};

static struct conn_pair pair;
static struct services services;
static struct client clients[CLIENTS];

static void on_established(struct conn *conn)
{
	((struct client *)conn_context(conn))->established = true;
}

static void take_data(struct client *c, const struct wire_record *record, const uint8_t *body)
{
	memcpy(&c->data, body, sizeof(c->data));
	ck_assert_uint_eq(record->arg, record->length - sizeof(c->data));
	ck_assert_uint_le(c->count + record->arg, sizeof(c->bytes));
	memcpy(c->bytes + c->count, body + sizeof(c->data), record->arg);
	c->count += record->arg;
	ck_assert(!c->ended);
	c->ended = record->flags & WIRE_CHANNEL_LAST;
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct client *c = conn_context(conn);

	if (c->stops)
		return -EAGAIN;
	c->got++;
	c->last = *record;
	memcpy(c->body, body, MIN(record->length, sizeof(c->body)));
	if (record->op == WIRE_OP_CHANNEL_DATA)
		take_data(c, record, body);
	else if (record->length >= sizeof(c->index))
		memcpy(&c->index, body, sizeof(c->index));
	return 0;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct client *c = conn_context(conn);

	c->closed = true;
	c->conn = NULL;
	c->error = error;
	snprintf(c->why, sizeof(c->why), "%s", reason);
}

static const struct conn_ops ops = {.established = on_established, .record = on_record, .closed = on_closed};

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	services_take(&services, pair.server.group, request, wire, reason);
}

static int serve(void)
{
	services_set_time(&services, pair.now);
	return services_turn(&services);
}

#define UNTIL(condition) PAIR_UNTIL(&pair, condition)

static void set_up_with(struct channel_settings settings)
{
	struct conn_group_attr attr = server_group_attr(
		(struct conn_group_attr){.receives = 256, .max_connections = CLIENTS, .stall_timeout = STALL_TIMEOUT});

	memset(clients, 0, sizeof(clients));
	services_open(&services, &(struct services_options){.arena = 4 * MIB, .channel = settings});
	pair = (struct conn_pair){.listener.take = take, .work = serve};
	conn_pair_open(&pair, true, &attr, &attr);
}

static void set_up(void)
{
	set_up_with((struct channel_settings){.invite_timeout = INVITE_TIMEOUT});
}

/* No client has anything left in the service. */
static void tear_down(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (clients[i].conn)
			conn_close(clients[i].conn, 0, "the test is over");
	for (unsigned i = 0; i < CLIENTS; i++)
		UNTIL(!clients[i].conn);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(quota_taken(services_channel(&services)->table.names.quota), 0);
	ck_assert_uint_eq(quota_taken(services_channel(&services)->joined.quota), 0);
	ck_assert_uint_eq(services.thread.active, 0);
	conn_pair_close(&pair);
	services_close(&services);
}

static struct client *connect_with(unsigned i, uint32_t count, uint32_t message_size)
{
	struct wire_request request = {.version = WIRE_VERSION,
				       .service = WIRE_CHANNEL,
				       .credits = 32,
				       .message_size = message_size,
				       .count = count};
	struct client *c = &clients[i];

	*c = (struct client){0};
	ck_assert_int_eq(conn_pair_connect(&pair, &request, NULL, &ops, c, &c->conn), 0);
	UNTIL(c->established || c->closed);
	ck_assert(c->established);
	return c;
}

static struct client *connect_for(unsigned i, const char *name)
{
	return connect_with(i, WIRE_CHANNEL_COUNT(name, strlen(name)), 8192);
}

static void submit(struct client *c, unsigned op, unsigned flags, const void *head, size_t head_len, const void *rest,
		   size_t rest_len, uint32_t arg)
{
	struct wire_record record = {.id = 77, .op = (uint8_t)op, .flags = (uint8_t)flags, .arg = arg};

	UNTIL(conn_say(c->conn, &record, head, head_len, rest, rest_len));
}

static unsigned answer_of(struct client *c, unsigned before, unsigned op)
{
	UNTIL(c->got > before || c->closed);
	ck_assert_msg(!c->closed, "%s", c->why);
	ck_assert_uint_eq(c->last.op, op);
	ck_assert_uint_eq(c->last.flags, WIRE_REPLY);
	ck_assert_uint_eq(c->last.id, 77);
	return c->last.status;
}

static void submit_listen(struct client *c, const char *name, uint64_t capacity, const char *addresses)
{
	struct wire_channel_listen listen = {.capacity = capacity, .name_len = (uint32_t)strlen(name)};
	char text[2048];

	snprintf(text, sizeof(text), "%s%s", name, addresses);
	submit(c, WIRE_OP_CHANNEL_LISTEN, 0, &listen, sizeof(listen), text, strlen(text), 0);
}

static unsigned ask_listen(struct client *c, const char *name, uint64_t capacity, const char *addresses)
{
	unsigned before = c->got;

	submit_listen(c, name, capacity, addresses);
	return answer_of(c, before, WIRE_OP_CHANNEL_LISTEN);
}

static void submit_open(struct client *c, const char *name, uint64_t capacity, uint32_t flags, uint64_t token)
{
	struct wire_channel_open open = {.capacity = capacity, .flags = flags, .token = token};

	submit(c, WIRE_OP_CHANNEL_OPEN, 0, &open, sizeof(open), name, strlen(name), 0);
}

static unsigned ask_open(struct client *c, const char *name, uint64_t capacity, uint32_t flags, uint64_t token)
{
	unsigned before = c->got;

	submit_open(c, name, capacity, flags, token);
	return answer_of(c, before, WIRE_OP_CHANNEL_OPEN);
}

static void submit_data(struct client *c, const void *bytes, size_t count, uint64_t head, unsigned flags)
{
	struct wire_channel_data data = {.head = head, .tail = 3};

	submit(c, WIRE_OP_CHANNEL_DATA, flags, &data, sizeof(data), bytes, count, (uint32_t)count);
}

static void assert_says(const struct client *c, const char *text)
{
	ck_assert_msg(memmem(c->body, c->last.length, text, strlen(text)), "%.*s", (int)c->last.length, c->body);
}

/* Client 0 listens, 1 opened, by 2 the listener came. */
struct joined {
	struct client *listener, *opener, *acceptor;
};

static struct joined join_with(const char *name, uint32_t opener_size, uint32_t acceptor_size)
{
	uint32_t count = WIRE_CHANNEL_COUNT(name, strlen(name));
	struct joined j = {.listener = connect_with(0, count, 8192)};
	unsigned before;

	ck_assert_uint_eq(ask_listen(j.listener, name, CAPACITY, ""), WIRE_OK);
	before = j.listener->got;
	j.opener = connect_with(1, count, opener_size);
	submit_open(j.opener, name, CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(j.listener->got > before);
	ck_assert_uint_eq(j.listener->last.op, WIRE_OP_CHANNEL_INVITE);
	ck_assert_uint_eq(j.listener->last.length, 8);
	ck_assert_uint_eq(j.opener->got, 0);
	j.acceptor = connect_with(2, count, acceptor_size);
	ck_assert_uint_eq(ask_open(j.acceptor, name, CAPACITY, 0, j.listener->index), WIRE_OK);
	ck_assert_uint_eq(answer_of(j.opener, 0, WIRE_OP_CHANNEL_OPEN), WIRE_OK);
	return j;
}

static struct joined join(void)
{
	return join_with("n", 8192, 8192);
}

static uint64_t count_of(const char *name)
{
	return services_count(&services, name);
}

/*
 * Names
 */
START_TEST(test_moved)
{
	struct client *listener = connect_for(0, "some name"), *c = connect_for(1, "some name");
	static const char *const addresses = "tcp://10.0.0.1:7000 unix:///run/x";
	const struct wire_channel_open *open = (void *)c->body;

	ck_assert_uint_eq(ask_open(c, "some name", CAPACITY, 0, 0), WIRE_NOT_FOUND);
	assert_says(c, "nobody listens");
	ck_assert_uint_eq(ask_listen(listener, "some name", CAPACITY, addresses), WIRE_OK);
	ck_assert_uint_eq(listener->last.length, 0);
	ck_assert_uint_eq(ask_open(c, "some name", CAPACITY, 0, 0), WIRE_MOVED);
	ck_assert_uint_eq(c->last.length, strlen(addresses));
	ck_assert_mem_eq(c->body, addresses, strlen(addresses));
	ck_assert_uint_eq(ask_open(c, "some name", 2 * CAPACITY, 0, 0), WIRE_TOO_LARGE);
	ck_assert_uint_eq(c->last.arg, 0);
	assert_says(c, "4096 bytes");
	/* the same connection may ask to be joined */
	submit_open(c, "some name", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(listener->last.op == WIRE_OP_CHANNEL_INVITE);
	ck_assert_uint_eq(ask_open(connect_for(2, "some name"), "some name", CAPACITY, 0, listener->index), WIRE_OK);
	UNTIL(c->last.status == WIRE_OK);
	ck_assert_uint_eq(open->capacity, CAPACITY);
	ck_assert_uint_eq(open->addr, 0);
	ck_assert_uint_eq(open->flags, WIRE_CHANNEL_RELAY);
	ck_assert_uint_eq(count_of("channel_listens"), 1);
	ck_assert_uint_eq(count_of("channel_opens"), 4);
	ck_assert_uint_eq(count_of("channel_moved"), 1);
	ck_assert_uint_eq(count_of("channel_invites"), 1);
	ck_assert_uint_eq(count_of("channel_joined"), 1);
	ck_assert_uint_eq(count_of("channel_refused"), 2);
}
END_TEST

START_TEST(test_name_taken)
{
	struct client *first = connect_for(0, "n"), *second = connect_for(1, "n"), *echo = connect_for(2, "echo");

	ck_assert_uint_eq(ask_listen(first, "n", CAPACITY, ""), WIRE_OK);
	ck_assert_uint_eq(ask_listen(second, "n", CAPACITY, ""), WIRE_EXISTS);
	assert_says(second, "somebody listens");
	ck_assert_uint_eq(ask_listen(echo, "echo", CAPACITY, ""), WIRE_EXISTS);
	conn_close(first->conn, 0, "has enough");
	UNTIL(first->closed);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(ask_listen(second, "n", CAPACITY, ""), WIRE_OK);
}
END_TEST

/* The name is free when that is answered; clients that wait are told, clients that are joined stay. */
START_TEST(test_listener_leaves)
{
	struct joined j = join();
	struct client *next = connect_for(3, "n"), *waits = connect_for(4, "n");

	submit_open(waits, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(count_of("channel_invites") == 2);
	submit(j.listener, WIRE_OP_CHANNEL_LEAVE, 0, NULL, 0, NULL, 0, 0);
	UNTIL(j.listener->last.op == WIRE_OP_CHANNEL_LEAVE);
	ck_assert_uint_eq(answer_of(j.listener, 0, WIRE_OP_CHANNEL_LEAVE), WIRE_OK);
	ck_assert_uint_eq(quota_taken(services_channel(&services)->table.names.quota), 0);
	ck_assert_uint_eq(answer_of(waits, 0, WIRE_OP_CHANNEL_OPEN), WIRE_NOT_FOUND);
	submit_data(j.opener, "bytes", 5, 5, 0);
	UNTIL(j.acceptor->count == 5);
	ck_assert_uint_eq(ask_listen(next, "n", CAPACITY, ""), WIRE_OK);
	ck_assert_uint_eq(ask_listen(j.listener, "n", CAPACITY, ""), WIRE_EXISTS);
	submit(next, WIRE_OP_CHANNEL_LEAVE, 0, NULL, 0, NULL, 0, 0);
	UNTIL(next->last.op == WIRE_OP_CHANNEL_LEAVE);
	ck_assert_uint_eq(ask_listen(j.listener, "n", CAPACITY, ""), WIRE_OK);
}
END_TEST

START_TEST(test_list)
{
	struct wire_channel_entry entry;
	uint64_t cursor = 0;
	struct client *c;
	unsigned before;
	struct joined j = join_with("first", 8192, 8192);

	ck_assert_uint_eq(ask_listen(connect_for(3, "b"), "b", 2 * CAPACITY, ""), WIRE_OK);
	c = connect_with(4, 0, 8192);
	before = c->got;
	submit(c, WIRE_OP_CHANNEL_LIST, 0, &cursor, sizeof(cursor), NULL, 0, 0);
	ck_assert_uint_eq(answer_of(c, before, WIRE_OP_CHANNEL_LIST), WIRE_OK);
	ck_assert_uint_eq(c->last.length, 8 + 2 * (sizeof(entry) + 8));
	ck_assert_uint_eq(c->index, 0);
	memcpy(&entry, c->body + 8, sizeof(entry));
	ck_assert_uint_eq(entry.capacity, CAPACITY);
	ck_assert_uint_eq(entry.clients, 1);
	ck_assert_uint_eq(entry.name_len, 5);
	ck_assert_mem_eq(c->body + 8 + sizeof(entry), "first", 5);
	memcpy(&entry, c->body + 16 + sizeof(entry), sizeof(entry));
	ck_assert_uint_eq(entry.capacity, 2 * CAPACITY);
	ck_assert_uint_eq(entry.clients, 0);
	cursor = UINT64_MAX; /* any is allowed */
	submit(c, WIRE_OP_CHANNEL_LIST, 0, &cursor, sizeof(cursor), NULL, 0, 0);
	ck_assert_uint_eq(answer_of(c, before + 1, WIRE_OP_CHANNEL_LIST), WIRE_OK);
	ck_assert_uint_eq(c->last.length, 8);
	ck_assert_uint_eq(c->index, 0);
	conn_close(j.opener->conn, 0, "has enough");
	UNTIL(j.acceptor->closed);
	cursor = 0;
	submit(c, WIRE_OP_CHANNEL_LIST, 0, &cursor, sizeof(cursor), NULL, 0, 0);
	ck_assert_uint_eq(answer_of(c, before + 2, WIRE_OP_CHANNEL_LIST), WIRE_OK);
	memcpy(&entry, c->body + 8, sizeof(entry));
	ck_assert_uint_eq(entry.clients, 0);
}
END_TEST

/* More than fit in a message. */
START_TEST(test_list_pages)
{
	struct meet_table *table = &services_channel(&services)->table;
	struct fabric_source nobody = {0};
	struct meet_name *names[200];
	struct wire_channel_entry entry;
	struct client *c = connect_with(0, 0, 8192);
	unsigned found = 0, pages = 0;
	char prefix[WIRE_CHANNEL_NAME_MAX];
	uint64_t cursor = 0;
	enum wire_status status;
	const char *why;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(prefix, sizeof(prefix), "%0*u", WIRE_CHANNEL_NAME_MAX - 1, i);
		names[i] = meet_name_new(table, &nobody, prefix, WIRE_CHANNEL_NAME_MAX, 1, &status, &why);
		ck_assert_ptr_nonnull(names[i]);
	}
	/* Another worker's are not told before they have a member, which has said all about them. */
	submit(c, WIRE_OP_CHANNEL_LIST, 0, &cursor, sizeof(cursor), NULL, 0, 0);
	ck_assert_uint_eq(answer_of(c, 0, WIRE_OP_CHANNEL_LIST), WIRE_OK);
	ck_assert_uint_eq(c->last.length, 8);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		names[i]->here = 1;
	do {
		unsigned before = c->got;

		submit(c, WIRE_OP_CHANNEL_LIST, 0, &cursor, sizeof(cursor), NULL, 0, 0);
		ck_assert_uint_eq(answer_of(c, before, WIRE_OP_CHANNEL_LIST), WIRE_OK);
		for (uint32_t at = 8; at < c->last.length; at += sizeof(entry) + WIRE_CHANNEL_NAME_MAX)
			ck_assert_mem_eq(c->body + at + sizeof(entry), names[found++]->text, WIRE_CHANNEL_NAME_MAX);
		cursor = c->index;
		pages++;
	} while (cursor);
	ck_assert_uint_eq(found, ARRAY_SIZE(names));
	ck_assert_uint_gt(pages, 1);
	/* The last ten are all that it may use; they come in one page, though they stand behind all others. */
	snprintf(prefix, sizeof(prefix), "%0*u", WIRE_CHANNEL_NAME_MAX - 2, 19);
	services_revise_names(pair.server.group, prefix);
	submit(c, WIRE_OP_CHANNEL_LIST, 0, &cursor, sizeof(cursor), NULL, 0, 0);
	ck_assert_uint_eq(answer_of(c, pages + 1, WIRE_OP_CHANNEL_LIST), WIRE_OK);
	ck_assert_uint_eq(c->last.length, 8 + 10 * (sizeof(entry) + WIRE_CHANNEL_NAME_MAX));
	ck_assert_mem_eq(c->body + 8 + sizeof(entry), names[190]->text, WIRE_CHANNEL_NAME_MAX);
	ck_assert_uint_eq(c->index, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		names[i]->here = 0;
		meet_name_free(table, names[i]);
	}
}
END_TEST

/*
 * Invitations
 */
START_TEST(test_token)
{
	struct client *listener = connect_for(0, "n"), *opener = connect_for(1, "n"), *thief = connect_for(2, "n");
	uint64_t token;

	ck_assert_uint_eq(ask_listen(listener, "n", CAPACITY, ""), WIRE_OK);
	ck_assert_uint_eq(ask_open(thief, "n", CAPACITY, 0, 1), WIRE_NOT_FOUND);
	assert_says(thief, "nobody waits");
	submit_open(opener, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(listener->got == 2);
	token = listener->index;
	ck_assert_uint_eq(ask_open(thief, "n", CAPACITY, 0, token + 1), WIRE_NOT_FOUND);
	ck_assert_uint_eq(ask_open(thief, "n", 2 * CAPACITY, 0, token), WIRE_TOO_LARGE);
	ck_assert_uint_eq(ask_open(connect_for(3, "m"), "m", CAPACITY, 0, token), WIRE_NOT_FOUND);
	ck_assert_uint_eq(opener->got, 0);
	ck_assert_uint_eq(ask_open(thief, "n", CAPACITY, 0, token), WIRE_OK);
	UNTIL(opener->got == 1);
	/* once */
	ck_assert_uint_eq(ask_open(connect_for(4, "n"), "n", CAPACITY, 0, token), WIRE_NOT_FOUND);
}
END_TEST

START_TEST(test_invitation_expires)
{
	struct client *listener = connect_for(0, "n"), *opener = connect_for(1, "n");
	uint64_t token;

	ck_assert_uint_eq(ask_listen(listener, "n", CAPACITY, ""), WIRE_OK);
	submit_open(opener, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(listener->got == 2);
	token = listener->index;
	conn_pair_rest(&pair);
	ck_assert_uint_eq(services_deadline(&services), pair.now + INVITE_TIMEOUT);
	pair.now += INVITE_TIMEOUT - 1;
	conn_pair_rest(&pair);
	ck_assert_uint_eq(opener->got, 0);
	pair.now += 1;
	ck_assert_uint_eq(answer_of(opener, 0, WIRE_OP_CHANNEL_OPEN), WIRE_BUSY);
	assert_says(opener, "did not come in time");
	ck_assert_uint_eq(services_deadline(&services), TIME_NEVER);
	ck_assert_uint_eq(count_of("channel_expired"), 1);
	ck_assert_uint_eq(ask_open(connect_for(2, "n"), "n", CAPACITY, 0, token), WIRE_NOT_FOUND);
	/* and may ask again */
	submit_open(opener, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(listener->got == 3);
	ck_assert_uint_ne(listener->index, token);
}
END_TEST

/* A listener that takes nothing: its invitations wait, and do not hold clients that ask, nor do they end it. */
START_TEST(test_listener_takes_nothing)
{
	struct client *listener = connect_for(0, "n");
	unsigned invited;

	ck_assert_uint_eq(ask_listen(listener, "n", CAPACITY, ""), WIRE_OK);
	listener->stops = true;
	for (unsigned i = 0; i < 200; i++) {
		struct client *c = connect_for(1, "n");

		submit_open(c, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
		conn_pair_rest(&pair);
		conn_close(c->conn, 0, "has enough");
		UNTIL(c->closed);
	}
	conn_pair_rest(&pair);
	ck_assert_uint_eq(quota_taken(services_channel(&services)->joined.quota), 0);
	invited = (unsigned)count_of("channel_invites");
	ck_assert_uint_le(invited, 64); /* what its credits allow, and no more is kept */
	pair.now += STALL_TIMEOUT;      /* a program between two accepts */
	conn_pair_rest(&pair);
	ck_assert(!listener->closed);
	submit_open(connect_for(2, "n"), "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	conn_pair_rest(&pair);
	listener->stops = false;
	UNTIL(count_of("channel_invites") == invited + 1);
	pair.now += INVITE_TIMEOUT;
	ck_assert_uint_eq(answer_of(&clients[2], 0, WIRE_OP_CHANNEL_OPEN), WIRE_BUSY);
}
END_TEST

START_TEST(test_listener_ends)
{
	struct client *opener;
	struct joined j = join();

	opener = connect_for(3, "n");
	submit_open(opener, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(j.listener->got == 3);
	conn_close(j.listener->conn, -EIO, "dies");
	ck_assert_uint_eq(answer_of(opener, 0, WIRE_OP_CHANNEL_OPEN), WIRE_NOT_FOUND);
	assert_says(opener, "has gone");
	ck_assert_uint_eq(ask_open(opener, "n", CAPACITY, 0, 0), WIRE_NOT_FOUND);
	/* clients that are joined stay */
	submit_data(j.opener, "abc", 3, 3, 0);
	UNTIL(j.acceptor->count == 3);
}
END_TEST

/* A reload takes the name away: from its listener, and from clients that are joined or wait. */
START_TEST(test_name_revoked)
{
	struct conn_group_stats stats;
	struct client *opener, *other;
	struct joined j = join();

	opener = connect_for(3, "n");
	submit_open(opener, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(j.listener->got == 3);
	other = connect_for(4, "nothing");
	ck_assert_uint_eq(ask_listen(other, "nothing", CAPACITY, ""), WIRE_OK);
	services_revise_names(pair.server.group, "n");
	conn_pair_rest(&pair);
	ck_assert(!j.listener->closed && !j.opener->closed && !j.acceptor->closed && !opener->got && !other->closed);
	services_revise_names(pair.server.group, "no");
	ck_assert_uint_eq(answer_of(opener, 0, WIRE_OP_CHANNEL_OPEN), WIRE_DENIED);
	assert_says(opener, "no right to the name");
	UNTIL(j.listener->closed && j.opener->closed && j.acceptor->closed);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_eq(stats.revoked, 3);
	ck_assert(!other->closed);
	services_revise_names(pair.server.group, NULL);
	ck_assert_uint_eq(ask_open(opener, "n", CAPACITY, 0, 0), WIRE_NOT_FOUND);
}
END_TEST

/*
 * Relay
 */
START_TEST(test_relay)
{
	struct joined j = join();
	uint64_t tail = 5;

	submit_data(j.opener, "hello", 5, 5, 0);
	UNTIL(j.acceptor->count == 5);
	ck_assert_mem_eq(j.acceptor->bytes, "hello", 5);
	ck_assert_uint_eq(j.acceptor->data.head, 5);
	ck_assert_uint_eq(j.acceptor->data.tail, 3);
	submit(j.acceptor, WIRE_OP_CHANNEL_TAIL, 0, &tail, sizeof(tail), NULL, 0, 0);
	UNTIL(j.opener->last.op == WIRE_OP_CHANNEL_TAIL);
	ck_assert_uint_eq(j.opener->index, tail);
	tail = UINT64_MAX; /* the ends look at what it says */
	submit(j.opener, WIRE_OP_CHANNEL_WANT, 0, &tail, sizeof(tail), NULL, 0, 0);
	UNTIL(j.acceptor->last.op == WIRE_OP_CHANNEL_WANT);
	ck_assert_uint_eq(j.acceptor->index, tail);
	submit_data(j.acceptor, NULL, 0, 7, 0);
	UNTIL(j.opener->data.head == 7);
	ck_assert_uint_eq(j.opener->count, 0);
	ck_assert_uint_eq(count_of("channel_bytes"), 5);
}
END_TEST

START_TEST(test_echo)
{
	struct client *c = connect_for(0, "echo");

	ck_assert_uint_eq(ask_open(c, "echo", CAPACITY, 0, 0), WIRE_OK);
	submit_data(c, "echo!", 5, 5, 0);
	UNTIL(c->count == 5);
	ck_assert_mem_eq(c->bytes, "echo!", 5);
	submit_data(c, NULL, 0, 5, WIRE_CHANNEL_LAST);
	UNTIL(c->ended);
	ck_assert_uint_eq(count_of("channel_echoes"), 1);
}
END_TEST

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 31 + i / 251);
}

/* Each of the two may have larger messages than the other. */
START_TEST(test_relay_large)
{
	static const uint32_t sizes[][2] = {{8192, 8192}, {1u << 20, 8192}, {8192, 1u << 20}, {1u << 20, 1u << 20}};
	static uint8_t bytes[1 << 20];
	struct joined j = join_with("n", sizes[_i][0], sizes[_i][1]);
	size_t most = WIRE_BODY_MAX(sizes[_i][0]) - sizeof(struct wire_channel_data), at = 0;
	size_t all = 900000;

	for (size_t i = 0; i < all; i++)
		bytes[i] = pattern(i);
	while (at < all) {
		size_t n = MIN(most, all - at);

		at += n;
		submit_data(j.opener, bytes + at - n, n, at, at == all ? WIRE_CHANNEL_LAST : 0);
	}
	UNTIL(j.acceptor->ended);
	ck_assert_uint_eq(j.acceptor->count, all);
	ck_assert_mem_eq(j.acceptor->bytes, bytes, all);
	ck_assert_uint_eq(j.acceptor->data.head, all);
	ck_assert_uint_eq(count_of("channel_bytes"), all);
}
END_TEST

/* What the receiver does not take waits, and another pair does not notice. */
START_TEST(test_relay_receiver_stops)
{
	struct joined j = join();
	struct client *other = connect_for(3, "echo");
	static uint8_t bytes[4000];
	struct conn_group_stats stats;
	unsigned i;

	ck_assert_uint_eq(ask_open(other, "echo", CAPACITY, 0, 0), WIRE_OK);
	j.acceptor->stops = true;
	for (i = 0; i < 100; i++) {
		struct wire_record *r = conn_reserve(j.opener->conn, 16 + sizeof(bytes), NULL);

		if (!r)
			break;
		submit_data(j.opener, bytes, sizeof(bytes), (i + 1) * sizeof(bytes), 0);
		conn_pair_rest(&pair);
	}
	ck_assert_uint_lt(i, 100); /* its credits do not come back */
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_gt(stats.parked_bytes, 0);
	submit_data(other, "quick", 5, 5, 0);
	UNTIL(other->count == 5);
	ck_assert_uint_eq(j.acceptor->count, 0);
	j.acceptor->stops = false;
	UNTIL(j.acceptor->count == i * sizeof(bytes));
	conn_pair_rest(&pair);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_eq(stats.parked_bytes, 0);
}
END_TEST

/*
 * Ends
 */
START_TEST(test_end_in_peace)
{
	struct joined j = join();
	struct client *from = _i ? j.acceptor : j.opener, *to = _i ? j.opener : j.acceptor;

	submit_data(from, "bye", 3, 3, WIRE_CHANNEL_LAST);
	UNTIL(to->ended);
	conn_close(from->conn, 0, "has enough");
	UNTIL(to->closed);
	ck_assert_uint_eq(to->count, 3);
	ck_assert(!j.listener->closed);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(quota_taken(services_channel(&services)->joined.quota), 0);
}
END_TEST

/* Without a word: what it sent before still comes. */
START_TEST(test_end_by_death)
{
	struct joined j = join();
	struct client *from = _i ? j.acceptor : j.opener, *to = _i ? j.opener : j.acceptor;

	submit_data(from, "oops", 4, 4, 0);
	UNTIL(to->count == 4);
	conn_close(from->conn, -EIO, "dies");
	UNTIL(to->closed);
	ck_assert(!to->ended);
	ck_assert(!j.listener->closed);
}
END_TEST

/* A partner that takes nothing does not keep its place for ever. */
START_TEST(test_end_beside_one_who_stops)
{
	struct joined j = join();
	static uint8_t bytes[4000];

	j.acceptor->stops = true;
	for (unsigned i = 0; i < 20; i++)
		submit_data(j.opener, bytes, sizeof(bytes), (i + 1) * sizeof(bytes), 0);
	conn_pair_rest(&pair);
	conn_close(j.opener->conn, -EIO, "dies");
	UNTIL(j.opener->closed);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(quota_taken(services_channel(&services)->joined.quota), 0);
	pair.now += 5 * TIME_S;
	UNTIL(j.acceptor->closed);
}
END_TEST

/* A client that breaks the rules ends, and its partner too. */
START_TEST(test_partner_breaks_rules)
{
	struct joined j = join();
	struct conn_group_stats stats;

	submit(j.opener, WIRE_OP_CHANNEL_TAIL, 0, "1234", 4, NULL, 0, 0);
	UNTIL(j.opener->closed && j.acceptor->closed);
	ck_assert(!j.acceptor->ended);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_eq(stats.violations, 1);
	ck_assert(!j.listener->closed);
}
END_TEST

/*
 * What clients may not do. Each is cut off, and no other.
 */
static void bad_name(struct client *c, const char *name)
{
	submit_open(c, name, CAPACITY, 0, 0);
}

static void bad_slash(struct client *c)
{
	bad_name(c, "a/b");
}

static void bad_empty(struct client *c)
{
	bad_name(c, "");
}

static void bad_control(struct client *c)
{
	bad_name(c, "a\nb");
}

static void bad_other_count(struct client *c)
{
	bad_name(c, "of another worker");
}

static void bad_long(struct client *c)
{
	char name[WIRE_CHANNEL_NAME_MAX + 2];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	bad_name(c, name);
}

static void bad_small(struct client *c)
{
	submit_open(c, "n", WIRE_CHANNEL_SIZE_MIN - 1, 0, 0);
}

static void bad_large(struct client *c)
{
	submit_listen(c, "n", WIRE_CHANNEL_SIZE_MAX + 1, "");
}

static void bad_flags(struct client *c)
{
	submit_open(c, "n", CAPACITY, 2, 0);
}

static void bad_short_open(struct client *c)
{
	submit(c, WIRE_OP_CHANNEL_OPEN, 0, "short", 5, NULL, 0, 0);
}

static void bad_short_listen(struct client *c)
{
	submit(c, WIRE_OP_CHANNEL_LISTEN, 0, "short", 5, NULL, 0, 0);
}

static void bad_name_beyond(struct client *c)
{
	struct wire_channel_listen listen = {.capacity = CAPACITY, .name_len = UINT32_MAX};

	submit(c, WIRE_OP_CHANNEL_LISTEN, 0, &listen, sizeof(listen), "n", 1, 0);
}

static void bad_addresses(struct client *c)
{
	char text[WIRE_CHANNEL_ADDRESSES_MAX + 2];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	submit_listen(c, "n", CAPACITY, text);
}

static void bad_address_control(struct client *c)
{
	submit_listen(c, "n", CAPACITY, "tcp://\033[2J");
}

static void bad_data(struct client *c)
{
	submit_data(c, "abc", 3, 3, 0);
}

static void bad_invite(struct client *c)
{
	submit(c, WIRE_OP_CHANNEL_INVITE, 0, "12345678", 8, NULL, 0, 0);
}

static void bad_op(struct client *c)
{
	submit(c, WIRE_OP_GET, 0, "key", 3, NULL, 0, 0);
}

static void bad_reply(struct client *c)
{
	struct wire_channel_open open = {.capacity = CAPACITY};

	submit(c, WIRE_OP_CHANNEL_OPEN, WIRE_REPLY, &open, sizeof(open), "n", 1, 0);
}

static void bad_list(struct client *c)
{
	submit(c, WIRE_OP_CHANNEL_LIST, 0, "1234", 4, NULL, 0, 0);
}

static void bad_listen_twice(struct client *c)
{
	ck_assert_uint_eq(ask_listen(c, "n", CAPACITY, ""), WIRE_OK);
	submit_listen(c, "n", CAPACITY, "");
}

static void bad_open_as_listener(struct client *c)
{
	ck_assert_uint_eq(ask_listen(c, "n", CAPACITY, ""), WIRE_OK);
	submit_open(c, "n", CAPACITY, 0, 0);
}

static void wait_for_listener(struct client *c)
{
	ck_assert_uint_eq(ask_listen(connect_for(1, "n"), "n", CAPACITY, ""), WIRE_OK);
	submit_open(c, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(clients[1].got == 2);
}

static void bad_open_while_waiting(struct client *c)
{
	wait_for_listener(c);
	submit_open(c, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
}

static void bad_data_while_waiting(struct client *c)
{
	wait_for_listener(c);
	bad_data(c);
}

static void bad_leave(struct client *c)
{
	submit(c, WIRE_OP_CHANNEL_LEAVE, 0, NULL, 0, NULL, 0, 0);
}

static void bad_leave_body(struct client *c)
{
	ask_listen(c, "n", CAPACITY, "");
	submit(c, WIRE_OP_CHANNEL_LEAVE, 0, "n", 1, NULL, 0, 0);
}

static void (*const bad[])(struct client *c) = {
	bad_slash,
	bad_empty,
	bad_control,
	bad_other_count,
	bad_long,
	bad_small,
	bad_large,
	bad_flags,
	bad_short_open,
	bad_short_listen,
	bad_name_beyond,
	bad_addresses,
	bad_address_control,
	bad_data,
	bad_invite,
	bad_op,
	bad_reply,
	bad_list,
	bad_listen_twice,
	bad_open_as_listener,
	bad_open_while_waiting,
	bad_data_while_waiting,
	bad_leave,
	bad_leave_body,
};

/* The number of the connect request fits the name, but for the one that is about that. */
static const char *const bad_names[] = {[0] = "a/b", [1] = "", [2] = "a\nb"};

START_TEST(test_bad)
{
	struct client *other = connect_for(7, "echo"), *c;
	struct conn_group_stats stats;

	ck_assert_uint_eq(ask_open(other, "echo", CAPACITY, 0, 0), WIRE_OK);
	c = connect_for(0, (unsigned)_i < ARRAY_SIZE(bad_names) ? bad_names[_i] : "n");
	bad[_i](c);
	UNTIL(c->closed);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_eq(stats.violations, 1);
	submit_data(other, "alive", 5, 5, 0);
	UNTIL(other->count == 5);
}
END_TEST

/* Of a client that is joined. */
static const struct {
	unsigned op, flags, len;
	uint32_t arg;
} bad_records[] = {
	{WIRE_OP_CHANNEL_DATA, 0, 15, 0},          {WIRE_OP_CHANNEL_DATA, 0, 16, 1},
	{WIRE_OP_CHANNEL_DATA, 0, 17, 0},          {WIRE_OP_CHANNEL_DATA, 0, 16, UINT32_MAX},
	{WIRE_OP_CHANNEL_DATA, WIRE_REPLY, 16, 0}, {WIRE_OP_CHANNEL_TAIL, 0, 0, 0},
	{WIRE_OP_CHANNEL_TAIL, 0, 9, 1},           {WIRE_OP_CHANNEL_TAIL, WIRE_CHANNEL_LAST, 8, 0},
	{WIRE_OP_CHANNEL_WANT, 0, 7, 0},           {WIRE_OP_CHANNEL_OPEN, 0, 41, 0},
	{WIRE_OP_CHANNEL_LISTEN, 0, 17, 0},        {WIRE_OP_CHANNEL_LIST, 0, 8, 0},
};

START_TEST(test_bad_records)
{
	struct joined j = join();
	struct conn_group_stats stats;
	static const uint8_t bytes[64];

	submit(j.opener, bad_records[_i].op, bad_records[_i].flags, bytes, bad_records[_i].len, NULL, 0,
	       bad_records[_i].arg);
	UNTIL(j.opener->closed && j.acceptor->closed);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_eq(stats.violations, 1);
}
END_TEST

START_TEST(test_data_after_last)
{
	struct joined j = join();

	submit_data(j.opener, NULL, 0, 0, WIRE_CHANNEL_LAST);
	submit_data(j.opener, "x", 1, 1, 0);
	UNTIL(j.opener->closed && j.acceptor->closed);
	ck_assert_uint_eq(j.acceptor->count, 0);
}
END_TEST

/*
 * Limits
 */
static void set_up_small(void)
{
	set_up_with((struct channel_settings){.names = 2,
					      .names_per_source = 2,
					      .joined = 2,
					      .joined_per_source = 2,
					      .invite_timeout = INVITE_TIMEOUT});
}

START_TEST(test_limit_names)
{
	struct client *c;

	ck_assert_uint_eq(ask_listen(connect_for(0, "a"), "a", CAPACITY, ""), WIRE_OK);
	ck_assert_uint_eq(ask_listen(connect_for(1, "b"), "b", CAPACITY, ""), WIRE_OK);
	c = connect_for(2, "c");
	ck_assert_uint_eq(ask_listen(c, "c", CAPACITY, ""), WIRE_BUSY);
	assert_says(c, "channel.names of");
	ck_assert_uint_eq(count_of("channel_limits"), 1);
	conn_close(clients[0].conn, 0, "has enough");
	UNTIL(clients[0].closed);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(ask_listen(c, "c", CAPACITY, ""), WIRE_OK);
}
END_TEST

START_TEST(test_limit_joined)
{
	struct client *c;

	ck_assert_uint_eq(ask_open(connect_for(0, "echo"), "echo", CAPACITY, 0, 0), WIRE_OK);
	ck_assert_uint_eq(ask_listen(connect_for(1, "n"), "n", CAPACITY, ""), WIRE_OK);
	submit_open(connect_for(2, "n"), "n", CAPACITY, WIRE_CHANNEL_RELAY, 0);
	UNTIL(clients[1].got == 2);
	c = connect_for(3, "n");
	ck_assert_uint_eq(ask_open(c, "n", CAPACITY, WIRE_CHANNEL_RELAY, 0), WIRE_BUSY);
	assert_says(c, "channel.joined of");
	ck_assert_uint_eq(ask_open(connect_for(4, "echo"), "echo", CAPACITY, 0, 0), WIRE_BUSY);
	ck_assert_uint_eq(count_of("channel_limits"), 2);
	conn_close(clients[2].conn, 0, "has enough");
	UNTIL(clients[2].closed);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(ask_open(&clients[4], "echo", CAPACITY, 0, 0), WIRE_OK);
}
END_TEST

/* All of the test is one user: half is what one may have. */
static void set_up_source(void)
{
	set_up_with((struct channel_settings){.names = 3, .joined = 3, .invite_timeout = INVITE_TIMEOUT});
}

START_TEST(test_limit_source)
{
	struct client *c;

	ck_assert_uint_eq(ask_listen(connect_for(0, "a"), "a", CAPACITY, ""), WIRE_OK);
	ck_assert_uint_eq(ask_listen(connect_for(1, "b"), "b", CAPACITY, ""), WIRE_OK);
	c = connect_for(2, "c");
	ck_assert_uint_eq(ask_listen(c, "c", CAPACITY, ""), WIRE_BUSY);
	assert_says(c, "this address, network of IPv6 (/64) or user");
	ck_assert_uint_eq(ask_open(connect_for(3, "echo"), "echo", CAPACITY, 0, 0), WIRE_OK);
	ck_assert_uint_eq(ask_open(connect_for(4, "echo"), "echo", CAPACITY, 0, 0), WIRE_OK);
	c = connect_for(5, "echo");
	ck_assert_uint_eq(ask_open(c, "echo", CAPACITY, 0, 0), WIRE_BUSY);
	assert_says(c, "this address, network of IPv6 (/64) or user");
}
END_TEST

/* The worker of a name. */
START_TEST(test_worker)
{
	const struct service *service = service_find(WIRE_CHANNEL);
	struct wire_request request = {.count = 77};

	ck_assert_uint_eq(service->worker(&request), 77);
	request.count = 0; /* of a name, too: also always the same */
	ck_assert_uint_ne(service->worker(&request), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("service_channel");
	TCase *tc = suite_case(suite, "channel", set_up, tear_down);
	TCase *small = suite_case(suite, "limits", set_up_small, tear_down);
	TCase *source = suite_case(suite, "source", set_up_source, tear_down);

	log_set_handler(log_keep);
	tcase_add_test(tc, test_moved);
	tcase_add_test(tc, test_name_taken);
	tcase_add_test(tc, test_listener_leaves);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_list_pages);
	tcase_add_test(tc, test_token);
	tcase_add_test(tc, test_invitation_expires);
	tcase_add_test(tc, test_listener_takes_nothing);
	tcase_add_test(tc, test_listener_ends);
	tcase_add_test(tc, test_name_revoked);
	tcase_add_test(tc, test_relay);
	tcase_add_test(tc, test_echo);
	tcase_add_loop_test(tc, test_relay_large, 0, 4);
	tcase_add_test(tc, test_relay_receiver_stops);
	tcase_add_loop_test(tc, test_end_in_peace, 0, 2);
	tcase_add_loop_test(tc, test_end_by_death, 0, 2);
	tcase_add_test(tc, test_end_beside_one_who_stops);
	tcase_add_test(tc, test_partner_breaks_rules);
	tcase_add_loop_test(tc, test_bad, 0, ARRAY_SIZE(bad));
	tcase_add_loop_test(tc, test_bad_records, 0, ARRAY_SIZE(bad_records));
	tcase_add_test(tc, test_data_after_last);
	tcase_add_test(tc, test_worker);
	tcase_add_test(small, test_limit_names);
	tcase_add_test(small, test_limit_joined);
	tcase_add_test(source, test_limit_source);
	return suite_run(suite);
}
