/* check_service_peer.c: the peer service, by records that are made by hand: groups that meet, missing members, refusals, limits, and what
 * clients may not do. */
#include "tests/conn/conn_pair.h"
#include "tests/service/server.h"
#include "tests/suite.h"

#define CLIENTS 68
#define JOIN_TIMEOUT (600 * TIME_S)
#define STALL_TIMEOUT (30 * TIME_S)
#define MEMBERS_SEEN 64

/* One connection of a client, and what came on it. */
struct client {
	struct conn *conn;
	bool established, closed, stops; /* takes nothing */
	char why[200];
	unsigned got;
	struct wire_record last; /* of the records that came */
	_Alignas(8) uint8_t body[8192];
	/* of its group */
	uint32_t number, size, rank, told;
	uint64_t token[MEMBERS_SEEN];
	char addresses[MEMBERS_SEEN][WIRE_PEER_ADDRESSES_MAX + 1];
};

static struct conn_pair pair;
static struct services services;
static struct client clients[CLIENTS];

static void on_established(struct conn *conn)
{
	((struct client *)conn_context(conn))->established = true;
}

static void take_page(struct client *c, const struct wire_record *record, const uint8_t *body)
{
	struct wire_peer_group page;
	struct wire_peer_member member;
	uint32_t at = sizeof(page);

	memcpy(&page, body, sizeof(page));
	ck_assert_uint_eq(page.first, c->told);
	ck_assert(!c->told || (page.number == c->number && page.size == c->size && page.rank == c->rank));
	c->number = page.number;
	c->size = page.size;
	c->rank = page.rank;
	for (uint32_t i = 0; i < page.count; i++, c->told++) {
		ck_assert_uint_le(at + sizeof(member), record->length);
		memcpy(&member, body + at, sizeof(member));
		at += sizeof(member);
		ck_assert_uint_le(at + WIRE_PAD(member.addresses_len), record->length);
		ck_assert_uint_eq(member.rank, c->told);
		c->token[c->told] = member.token;
		memcpy(c->addresses[c->told], body + at, member.addresses_len);
		c->addresses[c->told][member.addresses_len] = 0;
		at += WIRE_PAD(member.addresses_len);
	}
	ck_assert_uint_eq(at, record->length);
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct client *c = conn_context(conn);

	if (c->stops)
		return -EAGAIN;
	c->got++;
	c->last = *record;
	ck_assert_uint_eq(record->flags, WIRE_REPLY);
	ck_assert_uint_eq(record->id, 77);
	memcpy(c->body, body, MIN(record->length, sizeof(c->body)));
	if (record->op == WIRE_OP_PEER_JOIN && record->status == WIRE_OK)
		take_page(c, record, body);
	return 0;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct client *c = conn_context(conn);

	(void)error;
	c->closed = true;
	c->conn = NULL;
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

static void set_up_with(struct meeting_settings settings)
{
	struct conn_group_attr attr = server_group_attr((struct conn_group_attr){
		.receives = 512, .max_connections = CLIENTS, .credits = 4, .stall_timeout = STALL_TIMEOUT});

	memset(clients, 0, sizeof(clients));
	services_open(&services, &(struct services_options){.arena = 4 * MIB, .peer = settings});
	pair = (struct conn_pair){.listener.take = take, .work = serve};
	conn_pair_open(&pair, true, &attr, &attr);
}

static void set_up(void)
{
	set_up_with((struct meeting_settings){.join_timeout = JOIN_TIMEOUT, .members = 1024});
}

static void end(struct client *c, int error)
{
	conn_close(c->conn, error, "has enough");
	UNTIL(c->closed);
	conn_pair_rest(&pair);
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
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 0);
	ck_assert_uint_eq(services_peer(&services)->table.members, 0);
	ck_assert_uint_eq(services.thread.active, 0);
	conn_pair_close(&pair);
	services_close(&services);
}

static struct client *connect_with(unsigned i, uint32_t count)
{
	struct wire_request request = {.version = WIRE_VERSION,
				       .service = WIRE_PEER,
				       .credits = 4,
				       .message_size = WIRE_MESSAGE_MIN,
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
	return connect_with(i, WIRE_PEER_COUNT(name, strlen(name)));
}

static void submit(struct client *c, unsigned op, const void *head, size_t head_len, const void *rest, size_t rest_len)
{
	struct wire_record record = {.id = 77, .op = (uint8_t)op};

	UNTIL(conn_say(c->conn, &record, head, head_len, rest, rest_len));
}

static void submit_join(struct client *c, const char *name, uint32_t size, uint32_t rank, const char *addresses)
{
	struct wire_peer_join join = {.token = (uint64_t)(1000 + (c - clients)),
				      .size = size,
				      .rank = rank,
				      .name_len = (uint32_t)strlen(name)};
	char text[2048];

	snprintf(text, sizeof(text), "%s%s", name, addresses);
	submit(c, WIRE_OP_PEER_JOIN, &join, sizeof(join), text, strlen(text));
}

/* Its number is also in its address. */
static struct client *join_patient(unsigned i, const char *name, uint32_t size, uint32_t rank, uint64_t patience)
{
	struct client *c = connect_for(i, name);
	struct wire_peer_join join = {.token = 1000 + i,
				      .patience = patience / TIME_US,
				      .size = size,
				      .rank = rank,
				      .name_len = (uint32_t)strlen(name)};
	char text[300];

	snprintf(text, sizeof(text), "%stcp://10.0.0.%u:7000", name, i);
	submit(c, WIRE_OP_PEER_JOIN, &join, sizeof(join), text, strlen(text));
	conn_pair_rest(&pair);
	return c;
}

static struct client *join(unsigned i, const char *name, uint32_t size, uint32_t rank)
{
	return join_patient(i, name, size, rank, 0);
}

static void assert_refused(const struct client *c, unsigned status, const char *text)
{
	ck_assert_msg(!c->closed, "%s", c->why);
	ck_assert_uint_gt(c->got, 0);
	ck_assert_msg(memmem(c->body, c->last.length, text, strlen(text)), "%.*s", (int)c->last.length, c->body);
	ck_assert_uint_eq(c->last.status, status);
}

/* It was told of all, with these ranks: the clients' numbers by rank. */
static void assert_told(const struct client *c, uint32_t size, const unsigned *by_rank)
{
	char address[40];

	ck_assert_msg(!c->closed, "%s", c->why);
	ck_assert_uint_eq(c->size, size);
	ck_assert_uint_eq(c->told, size);
	ck_assert_uint_ne(c->number, 0);
	ck_assert_uint_eq(by_rank[c->rank], c - clients);
	for (uint32_t i = 0; i < size; i++) {
		snprintf(address, sizeof(address), "tcp://10.0.0.%u:7000", by_rank[i]);
		ck_assert_str_eq(c->addresses[i], address);
		ck_assert_uint_eq(c->token[i], 1000 + by_rank[i]);
	}
}

static uint64_t count_of(const char *name)
{
	return services_count(&services, name);
}

/* The list as one text: "name number? here/size: rank=addresses ..." of each group. */
static unsigned list(struct client *c, char *out, size_t size)
{
	uint64_t cursor = 0, before;
	unsigned pages = 0;
	size_t used = 0;

	out[0] = 0;
	do {
		uint32_t at = sizeof(cursor);
		unsigned got = c->got;

		before = cursor;
		submit(c, WIRE_OP_PEER_LIST, &cursor, sizeof(cursor), NULL, 0);
		UNTIL(c->got > got || c->closed);
		ck_assert_uint_eq(c->last.op, WIRE_OP_PEER_LIST);
		ck_assert_uint_eq(c->last.status, WIRE_OK);
		memcpy(&cursor, c->body, sizeof(cursor));
		ck_assert(!cursor || cursor > before);
		pages++;
		while (at < c->last.length) {
			struct wire_peer_entry e;
			struct wire_peer_member m;

			memcpy(&e, c->body + at, sizeof(e));
			at += sizeof(e);
			if (!(e.flags & WIRE_PEER_FURTHER))
				used += (size_t)snprintf(out + used, size - used, "%.*s%s %u/%u:", (int)e.name_len,
							 c->body + at, e.number ? "" : "?", e.here, e.size);
			at += WIRE_PAD(e.name_len);
			for (uint32_t i = 0; i < e.count; i++) {
				memcpy(&m, c->body + at, sizeof(m));
				at += sizeof(m);
				ck_assert_uint_eq(m.token, 0);
				used += (size_t)snprintf(out + used, size - used, " %d=%.*s", (int)m.rank,
							 (int)m.addresses_len, c->body + at);
				at += WIRE_PAD(m.addresses_len);
			}
			if (used < size - 2)
				out[used++] = '\n', out[used] = 0;
		}
		ck_assert_uint_eq(at, c->last.length);
	} while (cursor);
	return pages;
}

/*
 * To meet
 */
START_TEST(test_meet)
{
	const unsigned by_rank[] = {2, 0, 1};
	struct client *a = join(0, "work", 3, 1), *b = join(1, "work", 3, 2), *c;

	ck_assert_uint_eq(a->got + b->got, 0);
	c = join(2, "work", 3, 0);
	UNTIL(a->told == 3 && b->told == 3 && c->told == 3);
	assert_told(a, 3, by_rank);
	assert_told(b, 3, by_rank);
	assert_told(c, 3, by_rank);
	ck_assert_uint_eq(a->number, b->number);
	ck_assert_uint_eq(a->number, c->number);
	ck_assert_uint_eq(count_of("peer_joins"), 3);
	ck_assert_uint_eq(count_of("peer_groups"), 1);
	ck_assert_uint_eq(services_deadline(&services), TIME_NEVER);
}
END_TEST

/* A member that wants no rank gets what is left, in the order of coming. */
START_TEST(test_any_rank)
{
	const unsigned by_rank[] = {0, 3, 1, 2};

	join(0, "work", 4, WIRE_PEER_ANY_RANK);
	join(1, "work", 4, WIRE_PEER_ANY_RANK);
	join(2, "work", 4, WIRE_PEER_ANY_RANK);
	join(3, "work", 4, 1);
	for (unsigned i = 0; i < 4; i++)
		assert_told(&clients[i], 4, by_rank);
}
END_TEST

START_TEST(test_one)
{
	assert_told(join(0, "alone", 1, 0), 1, (const unsigned[]){0});
}
END_TEST

/* More than fit in one reply, and credits for few. */
START_TEST(test_many)
{
	char addresses[WIRE_PEER_ADDRESSES_MAX + 1];

	memset(addresses, 'x', sizeof(addresses) - 1);
	addresses[sizeof(addresses) - 1] = 0;
	for (unsigned i = 0; i < 64; i++)
		submit_join(connect_for(i, "many"), "many", 64, 63 - i, addresses);
	for (unsigned i = 0; i < 64; i++) {
		UNTIL(clients[i].told == 64);
		ck_assert_uint_ge(clients[i].got, 8);
		ck_assert_uint_eq(clients[i].rank, 63 - i);
		for (unsigned k = 0; k < 64; k++) {
			ck_assert_uint_eq(clients[i].token[k], 1000 + 63 - k);
			ck_assert_str_eq(clients[i].addresses[k], addresses);
		}
	}
}
END_TEST

START_TEST(test_two_groups)
{
	join(0, "a", 2, 0);
	join(1, "b", 2, 0);
	join(2, "b", 2, 1);
	assert_told(&clients[1], 2, (const unsigned[]){1, 2});
	ck_assert_uint_eq(clients[0].got, 0);
	join(3, "a", 2, 1);
	assert_told(&clients[0], 2, (const unsigned[]){0, 3});
	ck_assert_uint_ne(clients[0].number, clients[1].number);
}
END_TEST

/* One that does not take what it is told is cut off, and the others are told. */
START_TEST(test_member_takes_nothing)
{
	char addresses[WIRE_PEER_ADDRESSES_MAX + 1];

	memset(addresses, 'x', sizeof(addresses) - 1);
	addresses[sizeof(addresses) - 1] = 0;
	for (unsigned i = 0; i < 64; i++)
		submit_join(connect_for(i, "many"), "many", 64, i, addresses);
	clients[5].stops = true;
	for (unsigned i = 0; i < 64; i++)
		if (i != 5)
			UNTIL(clients[i].told == 64);
	conn_pair_rest(&pair);
	ck_assert(!clients[5].closed);
	pair.now += STALL_TIMEOUT + 1;
	UNTIL(services_peer(&services)->table.members == 63);
	clients[5].stops = false;
}
END_TEST

/*
 * Members that leave, members that are late
 */
START_TEST(test_leaves_before)
{
	join(0, "work", 2, 0);
	end(&clients[0], _i ? -EIO : 0);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 0);
	ck_assert_uint_eq(count_of("peer_left"), 1);
	/* another size, as it is another group */
	join(1, "work", 3, 0);
	join(2, "work", 3, WIRE_PEER_ANY_RANK);
	join(3, "work", 3, 2);
	assert_told(&clients[1], 3, (const unsigned[]){1, 2, 3});
}
END_TEST

START_TEST(test_gives_its_place_back)
{
	for (unsigned i = 0; i < 4; i++)
		join(i, "work", 5, i == 2 ? WIRE_PEER_ANY_RANK : i);
	end(&clients[_i], -EIO);
	ck_assert_uint_eq(services_peer(&services)->table.members, 3);
	join(4, "work", 5, _i == 2 ? WIRE_PEER_ANY_RANK : (uint32_t)_i);
	join(5, "work", 5, 4);
	for (unsigned i = 0; i < 6; i++)
		if (i != (unsigned)_i)
			ck_assert_uint_eq(clients[i].told, 5);
}
END_TEST

/* What the last to come finds: one has gone, by a turn. */
START_TEST(test_leaves_while_told)
{
	struct client *a = join(0, "work", 3, 0), *b = join(1, "work", 3, 1);

	submit_join(connect_for(2, "work"), "work", 3, 2, "tcp://10.0.0.2:7000");
	conn_close(b->conn, -EIO, "dies");
	conn_pair_rest(&pair);
	UNTIL(a->told == 3 || a->closed || services_peer(&services)->table.members == 2);
	if (a->told) {
		ck_assert_uint_eq(a->size, 3);
		ck_assert_uint_eq(clients[2].told, 3);
	}
}
END_TEST

START_TEST(test_group_lasts)
{
	struct client *a = join(0, "work", 2, 0), *b = join(1, "work", 2, 1), *c;

	UNTIL(a->told == 2 && b->told == 2);
	c = join(2, "work", 2, 0);
	assert_refused(c, WIRE_EXISTS, "complete");
	end(a, -EIO);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 1);
	/* it will not be whole again, and its name is free */
	c = join(3, "work", 2, 0);
	ck_assert_uint_eq(c->got, 0);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 2);
	end(b, 0);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 1);
	join(4, "work", 2, WIRE_PEER_ANY_RANK);
	assert_told(c, 2, (const unsigned[]){3, 4});
	ck_assert_uint_ne(c->number, a->number);
}
END_TEST

/* A reload takes the name away: a member leaves its group, and one that waits for others is told. */
START_TEST(test_name_revoked)
{
	struct client *a = join(0, "work", 2, 0), *b = join(1, "work", 2, 1), *c = join(2, "wait", 2, 0);
	struct conn_group_stats stats;
	char text[4096];

	UNTIL(a->told == 2 && b->told == 2);
	services_revise_names(pair.server.group, "w");
	conn_pair_rest(&pair);
	ck_assert(!a->closed && !b->closed && !c->got);
	services_revise_names(pair.server.group, "wo");
	conn_pair_rest(&pair);
	assert_refused(c, WIRE_DENIED, "no right to the name");
	ck_assert(!a->closed && !b->closed);
	ck_assert_uint_eq(services_peer(&services)->table.members, 2);
	list(c, text, sizeof(text)); /* of what it may use */
	ck_assert_str_eq(text, "work 2/2: 0=tcp://10.0.0.0:7000 1=tcp://10.0.0.1:7000\n");
	services_revise_names(pair.server.group, "wa");
	list(c, text, sizeof(text));
	ck_assert_str_eq(text, "");
	UNTIL(a->closed && b->closed);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_eq(stats.revoked, 2);
	ck_assert_uint_eq(services_peer(&services)->table.members, 0);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 0);
}
END_TEST

/* A program that has left is no member when that is answered, be the group complete or not, and may come in again. */
START_TEST(test_leaves)
{
	struct client *a = join(0, "work", 2, 0), *b;

	submit(a, WIRE_OP_PEER_LEAVE, NULL, 0, NULL, 0);
	UNTIL(a->last.op == WIRE_OP_PEER_LEAVE);
	ck_assert_uint_eq(a->last.status, WIRE_OK);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 0);
	submit_join(a, "work", 2, 0, "");
	b = join(1, "work", 2, 1);
	UNTIL(a->told == 2 && b->told == 2);
	submit(a, WIRE_OP_PEER_LEAVE, NULL, 0, NULL, 0);
	submit_join(a, "work", 2, 0, "");
	UNTIL(quota_taken(services_peer(&services)->table.names.quota) == 2);
	submit(a, WIRE_OP_PEER_LEAVE, NULL, 0, NULL, 0);
	submit(a, WIRE_OP_PEER_LEAVE, NULL, 0, NULL, 0);
	UNTIL(quota_taken(services_peer(&services)->table.names.quota) == 1);
}
END_TEST

START_TEST(test_expires)
{
	struct client *a = join(0, "work", 4, 0), *b, *c;

	ck_assert_uint_eq(services_deadline(&services), pair.now + JOIN_TIMEOUT);
	pair.now += JOIN_TIMEOUT - 1;
	b = join_patient(1, "work", 4, 1, 5 * TIME_S);
	ck_assert_uint_eq(a->got, 0);
	pair.now += 1;
	UNTIL(a->got == 1);
	assert_refused(a, WIRE_BUSY, "ranks 2, 3 of 4 did not come within 600 s");
	ck_assert_uint_eq(a->last.arg, 1);
	ck_assert_uint_eq(b->got, 0);
	pair.now += 5 * TIME_S;
	UNTIL(b->got == 1);
	assert_refused(b, WIRE_BUSY, "ranks 2, 3 of 4 did not come, and rank 0 had come and left within 5 s");
	ck_assert_uint_eq(count_of("peer_expired"), 2);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 0);
	ck_assert_uint_eq(services_deadline(&services), TIME_NEVER);
	/* and may ask again, by the same connection */
	submit_join(a, "work", 2, 0, "tcp://10.0.0.0:7000");
	c = join_patient(2, "work", 2, WIRE_PEER_ANY_RANK, TIME_S);
	UNTIL(a->told == 2 && c->told == 2);
	assert_told(a, 2, (const unsigned[]){0, 2});
}
END_TEST

/* Time is up for many at once: few of them are told in a turn, and all in the end, while others wait on. */
START_TEST(test_expires_in_steps)
{
	const unsigned many = 60;
	struct client *patient = join_patient(0, "patient", 2, 0, 2 * TIME_S);

	for (unsigned i = 1; i <= many; i++)
		join_patient(i, "many", 1024, i, TIME_S);
	pair.now += TIME_S;
	for (unsigned turns = 0; count_of("peer_expired") < many; turns++) {
		uint64_t before = count_of("peer_expired");

		ck_assert(conn_pair_turn(&pair));
		ck_assert_uint_le(count_of("peer_expired") - before, 16);
		ck_assert_uint_lt(turns, 100);
	}
	conn_pair_rest(&pair);
	ck_assert_uint_eq(services_deadline(&services), pair.now + TIME_S);
	ck_assert_uint_eq(patient->got, 0);
	join_patient(many + 1, "new", 2, 0, TIME_S / 2);
	ck_assert_uint_eq(services_deadline(&services), pair.now + TIME_S / 2);
	pair.now += TIME_S;
	UNTIL(patient->got);
	ck_assert_uint_eq(count_of("peer_expired"), many + 2);
	ck_assert_uint_eq(services_deadline(&services), TIME_NEVER);
}
END_TEST

START_TEST(test_expires_words)
{
	struct client *c = join_patient(0, "any", 4, WIRE_PEER_ANY_RANK, 500 * TIME_MS);

	pair.now += TIME_S;
	UNTIL(c->got);
	assert_refused(c, WIRE_BUSY, "3 of 4 members did not come within 0.5 s");
	c = join_patient(1, "large", 1000, 3, TIME_S);
	pair.now += TIME_S;
	UNTIL(c->got);
	assert_refused(c, WIRE_BUSY, "ranks 0, 1, 2, 4, 5, 6, 7, 8 and 991 more of 1000 did not come within 1 s");
	c = join_patient(2, "one", 2, 0, TIME_S);
	pair.now += TIME_S;
	UNTIL(c->got);
	assert_refused(c, WIRE_BUSY, "rank 1 of 2 did not come within 1 s");
}
END_TEST

/*
 * Refusals
 */
START_TEST(test_rank_taken)
{
	struct client *c;

	join(0, "work", 3, 1);
	c = join(1, "work", 3, 1);
	assert_refused(c, WIRE_EXISTS, "somebody has that rank");
	ck_assert_uint_eq(count_of("peer_refused"), 1);
	end(&clients[0], 0);
	submit_join(c, "work", 3, 1, "");
	conn_pair_rest(&pair);
	ck_assert_uint_eq(c->got, 1);
	ck_assert_uint_eq(services_peer(&services)->table.members, 1);
}
END_TEST

START_TEST(test_other_size)
{
	join(0, "work", 3, 1);
	assert_refused(join(1, "work", 4, 0), WIRE_RANGE, "another size");
	assert_refused(join(2, "work", 2, WIRE_PEER_ANY_RANK), WIRE_RANGE, "another size");
}
END_TEST

START_TEST(test_bad_numbers)
{
	assert_refused(join(0, "work", 0, 0), WIRE_RANGE, "from 1 to 1024");
	assert_refused(join(1, "work", 1025, 0), WIRE_RANGE, "from 1 to 1024");
	assert_refused(join(2, "work", UINT32_MAX, WIRE_PEER_ANY_RANK), WIRE_RANGE, "a group of 4294967295");
	assert_refused(join(3, "work", 4, 4), WIRE_RANGE, "rank 4 of 4; the last is 3");
	assert_refused(join(4, "work", 4, UINT32_MAX - 1), WIRE_RANGE, "the last is 3");
	assert_refused(join(5, "", 4, 0), WIRE_TOO_LARGE, "a name of 0 bytes");
	ck_assert_uint_eq(count_of("peer_refused"), 6);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 0);
}
END_TEST

START_TEST(test_too_long)
{
	char text[WIRE_PEER_ADDRESSES_MAX + 2];
	struct client *c;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	c = connect_for(0, "work");
	submit_join(c, "work", 2, 0, text);
	UNTIL(c->got);
	assert_refused(c, WIRE_TOO_LARGE, "513 bytes of addresses; up to 512");
	text[WIRE_PEER_NAME_MAX + 1] = 0;
	assert_refused(join(1, text, 2, 0), WIRE_TOO_LARGE, "a name of 201 bytes; from 1 to 200");
	text[WIRE_PEER_NAME_MAX] = 0;
	ck_assert_uint_eq(join(2, text, 2, 0)->got, 0);
}
END_TEST

START_TEST(test_second_join)
{
	struct client *c = join(0, "work", 2, 0);

	submit_join(c, "work", 2, 1, "");
	UNTIL(c->got == 1);
	assert_refused(c, WIRE_EXISTS, "is a member");
	c = join(1, "work", 2, 1);
	UNTIL(clients[0].told == 2 && c->told == 2);
	submit_join(c, "work", 2, 1, "");
	UNTIL(c->got == 2);
	assert_refused(c, WIRE_EXISTS, "is a member");
	ck_assert_uint_eq(services_peer(&services)->table.members, 2);
}
END_TEST

/*
 * The list
 */
START_TEST(test_list)
{
	struct client *c = connect_with(10, 0);
	char text[4096];

	ck_assert_uint_eq(list(c, text, sizeof(text)), 1);
	ck_assert_str_eq(text, "");
	join(0, "a", 3, 2);
	join(1, "a", 3, WIRE_PEER_ANY_RANK);
	join(2, "b", 2, WIRE_PEER_ANY_RANK);
	list(c, text, sizeof(text));
	ck_assert_str_eq(text, "a? 2/3: 2=tcp://10.0.0.0:7000 -1=tcp://10.0.0.1:7000\n"
			       "b? 1/2: -1=tcp://10.0.0.2:7000\n");
	join(3, "b", 2, 0);
	end(&clients[0], 0);
	list(c, text, sizeof(text));
	ck_assert_str_eq(text, "a? 1/3: -1=tcp://10.0.0.1:7000\n"
			       "b 2/2: 0=tcp://10.0.0.3:7000 1=tcp://10.0.0.2:7000\n");
	end(&clients[3], 0);
	/* also by one that waits */
	list(&clients[1], text, sizeof(text));
	ck_assert_str_eq(text, "a? 1/3: -1=tcp://10.0.0.1:7000\n"
			       "b 1/2: 1=tcp://10.0.0.2:7000\n");
	services_peer(&services)->table.secret = true;
	ck_assert_uint_eq(list(c, text, sizeof(text)), 1);
	ck_assert_str_eq(text, "");
}
END_TEST

/* A group of more members than fit in a reply. */
START_TEST(test_list_pages)
{
	static char text[1 << 16];
	char addresses[WIRE_PEER_ADDRESSES_MAX + 1], *at;
	struct client *c = connect_with(66, 0);

	memset(addresses, 'x', sizeof(addresses) - 1);
	addresses[sizeof(addresses) - 1] = 0;
	join(64, "before", 2, 0);
	for (unsigned i = 0; i < 64; i++)
		submit_join(connect_for(i, "many"), "many", 64, i, addresses);
	join(65, "behind", 2, 0);
	for (unsigned i = 0; i < 64; i++)
		UNTIL(clients[i].told == 64);
	ck_assert_uint_gt(list(c, text, sizeof(text)), 8);
	at = strstr(text, "many 64/64:");
	ck_assert(at && strstr(text, "before? 1/2: 0="));
	for (unsigned i = 0; i < 64; i++) {
		char rank[16];

		snprintf(rank, sizeof(rank), " %u=xx", i);
		at = strstr(at, rank);
		ck_assert_msg(at, "no%s", rank);
	}
	ck_assert(strstr(at, "behind? 1/2: 0="));
}
END_TEST

START_TEST(test_list_cursors)
{
	static const uint64_t cursors[] = {UINT64_MAX, UINT32_MAX, 1ull << 32, 4096, 1};
	struct client *c = connect_with(10, 0);

	join(0, "a", 3, 2);
	for (unsigned i = 0; i < ARRAY_SIZE(cursors); i++) {
		submit(c, WIRE_OP_PEER_LIST, &cursors[i], sizeof(cursors[i]), NULL, 0);
		UNTIL(c->got == i + 1);
		ck_assert_uint_eq(c->last.status, WIRE_OK);
	}
}
END_TEST

/*
 * What clients may not do. Each is cut off, and no other.
 */
static void bad_short(struct client *c)
{
	submit(c, WIRE_OP_PEER_JOIN, "short", 5, NULL, 0);
}

static void bad_empty(struct client *c)
{
	submit(c, WIRE_OP_PEER_JOIN, NULL, 0, NULL, 0);
}

static void bad_name_beyond(struct client *c)
{
	struct wire_peer_join j = {.size = 2, .name_len = UINT32_MAX};

	submit(c, WIRE_OP_PEER_JOIN, &j, sizeof(j), "n", 1);
}

static void bad_name_behind(struct client *c)
{
	struct wire_peer_join j = {.size = 2, .name_len = 2};

	submit(c, WIRE_OP_PEER_JOIN, &j, sizeof(j), "n", 1);
}

static void bad_control(struct client *c)
{
	submit_join(c, "a\nb", 2, 0, "");
}

static void bad_address(struct client *c)
{
	submit_join(c, "n", 2, 0, "tcp://\033[2J");
}

static void bad_count(struct client *c)
{
	submit_join(c, "of another worker", 2, 0, "");
}

static void bad_list(struct client *c)
{
	submit(c, WIRE_OP_PEER_LIST, "1234", 4, NULL, 0);
}

static void bad_leave(struct client *c)
{
	submit(c, WIRE_OP_PEER_LEAVE, "n", 1, NULL, 0);
}

static void bad_op(struct client *c)
{
	submit(c, WIRE_OP_PEER_HELLO, NULL, 0, NULL, 0);
}

static void bad_op_of_others(struct client *c)
{
	submit(c, WIRE_OP_GET, "key", 3, NULL, 0);
}

static void bad_flags(struct client *c)
{
	struct wire_record record = {.op = WIRE_OP_PEER_LIST, .flags = WIRE_REPLY};

	ck_assert(conn_say(c->conn, &record, NULL, 0, NULL, 0));
}

static void bad_status(struct client *c)
{
	struct wire_record record = {.op = WIRE_OP_PEER_LIST, .status = 1};
	uint64_t cursor = 0;

	ck_assert(conn_say(c->conn, &record, &cursor, sizeof(cursor), NULL, 0));
}

static void bad_while_waiting(struct client *c)
{
	submit_join(c, "n", 3, 0, "");
	conn_pair_rest(&pair);
	ck_assert_uint_eq(c->got, 0);
	bad_op(c);
}

static const struct {
	void (*does)(struct client *c);
	const char *name; /* of the connect request's number */
} bad[] = {
	{bad_leave, "n"},       {bad_short, "n"},         {bad_empty, "n"},
	{bad_name_beyond, "n"}, {bad_name_behind, "n"},   {bad_control, "a\nb"},
	{bad_address, "n"},     {bad_count, "n"},         {bad_list, "n"},
	{bad_op, "n"},          {bad_op_of_others, "n"},  {bad_flags, "n"},
	{bad_status, "n"},      {bad_while_waiting, "n"},
};

START_TEST(test_bad)
{
	struct client *other = join(1, "n", 3, 1), *c = connect_for(0, bad[_i].name);
	struct conn_group_stats stats;

	bad[_i].does(c);
	UNTIL(c->closed);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_uint_eq(stats.violations, 1);
	ck_assert_uint_eq(other->got, 0);
	join(2, "n", 3, 0);
	join(3, "n", 3, 2);
	UNTIL(other->told == 3);
}
END_TEST

/*
 * Limits
 */
static void set_up_small(void)
{
	set_up_with((struct meeting_settings){
		.groups = 2, .groups_per_source = 2, .members = 3, .join_timeout = JOIN_TIMEOUT});
}

START_TEST(test_limit_groups)
{
	struct client *c;

	join(0, "a", 2, 0);
	join(1, "b", 2, 0);
	c = join(2, "c", 2, 0);
	assert_refused(c, WIRE_BUSY, "as many groups as it may");
	ck_assert_uint_eq(count_of("peer_limits"), 1);
	/* others go on */
	join(3, "b", 2, 1);
	UNTIL(clients[1].told == 2);
	end(&clients[0], 0);
	submit_join(c, "c", 2, 0, "");
	conn_pair_rest(&pair);
	ck_assert_uint_eq(c->got, 1);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 2);
}
END_TEST

START_TEST(test_limit_members)
{
	assert_refused(join(0, "a", 4, 0), WIRE_RANGE, "from 1 to 3 are allowed, see peer.members");
	ck_assert_uint_eq(join(1, "a", 3, 0)->got, 0);
}
END_TEST

/* All of the test is one user: half is what one may have. */
static void set_up_source(void)
{
	set_up_with((struct meeting_settings){.groups = 3, .join_timeout = JOIN_TIMEOUT});
}

START_TEST(test_limit_source)
{
	join(0, "a", 2, 0);
	join(1, "b", 2, 0);
	assert_refused(join(2, "c", 2, 0), WIRE_BUSY, "this address, network of IPv6 (/64) or user");
	/* a program that joins what another began begins none */
	ck_assert_uint_eq(join(3, "b", 2, 1)->told, 2);
	ck_assert_uint_eq(count_of("peer_limits"), 1);
}
END_TEST

/* The worker of a group. */
START_TEST(test_worker)
{
	const struct service *service = service_find(WIRE_PEER);
	struct wire_request request = {.count = 77};

	ck_assert_uint_eq(service->worker(&request), 77);
	request.count = 0; /* of a name, too: also always the same */
	ck_assert_uint_ne(service->worker(&request), 0);
}
END_TEST

/* What was told must be read whole by a program that came and went many times. */
START_TEST(test_many_times)
{
	for (unsigned i = 0; i < 200; i++) {
		join(0, "work", 2, 0);
		join(1, "work", 2, WIRE_PEER_ANY_RANK);
		UNTIL(clients[0].told == 2 && clients[1].told == 2);
		end(&clients[i % 2], i % 3 ? -EIO : 0);
		end(&clients[!(i % 2)], 0);
	}
	ck_assert_uint_eq(count_of("peer_groups"), 200);
	ck_assert_uint_eq(quota_taken(services_peer(&services)->table.names.quota), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("service_peer");
	TCase *tc = suite_case(suite, "peer", set_up, tear_down);
	TCase *small = suite_case(suite, "limits", set_up_small, tear_down);
	TCase *source = suite_case(suite, "source", set_up_source, tear_down);

	log_set_handler(log_keep);
	tcase_add_test(tc, test_meet);
	tcase_add_test(tc, test_any_rank);
	tcase_add_test(tc, test_one);
	tcase_add_test(tc, test_many);
	tcase_add_test(tc, test_two_groups);
	tcase_add_test(tc, test_member_takes_nothing);
	tcase_add_loop_test(tc, test_leaves_before, 0, 2);
	tcase_add_loop_test(tc, test_gives_its_place_back, 0, 4);
	tcase_add_test(tc, test_leaves_while_told);
	tcase_add_test(tc, test_group_lasts);
	tcase_add_test(tc, test_name_revoked);
	tcase_add_test(tc, test_leaves);
	tcase_add_test(tc, test_expires);
	tcase_add_test(tc, test_expires_in_steps);
	tcase_add_test(tc, test_expires_words);
	tcase_add_test(tc, test_rank_taken);
	tcase_add_test(tc, test_other_size);
	tcase_add_test(tc, test_bad_numbers);
	tcase_add_test(tc, test_too_long);
	tcase_add_test(tc, test_second_join);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_list_pages);
	tcase_add_test(tc, test_list_cursors);
	tcase_add_loop_test(tc, test_bad, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_worker);
	tcase_add_test(tc, test_many_times);
	tcase_add_test(small, test_limit_groups);
	tcase_add_test(small, test_limit_members);
	tcase_add_test(source, test_limit_source);
	return suite_run(suite);
}
