/* check_meet.c: names where clients meet, beside a model: random clients join groups, listen, open channels, leave, close, wait
 * for too long, and lose their rights. After each step both must agree on answers, ends, limits and what is counted. */
#include "tests/conn/conn_pair.h"
#include "tests/service/server.h"
#include "tests/suite.h"

#define CLIENTS 18
#define NAMES_MAX 2
#define JOINED_MAX 3
#define GROUPS_MAX 3
#define STEPS 1000
#define CAPACITY 4096
#define INVITE_TIMEOUT (700 * TIME_MS)
#define NOTHING (-1)

enum state { CLOSED, FRESH, WAITS, MEMBER, JOINED };

/* One connection of a client: what came on it, and what the model says of it. */
struct client {
	struct conn *conn;
	bool established, closed;
	unsigned got, seen; /* answers; the ones that the model knows of */
	struct wire_record last;
	struct wire_peer_group page;
	uint64_t invited; /* the token of the last invitation */
	/* the model */
	enum state state;
	bool peer; /* of this service, or of channels */
	const char *name, *prefix;
	unsigned group, order; /* of members; 0: none */
	uint32_t size, rank;
	uint64_t deadline, token;
	struct client *partner;
	bool named; /* one of a pair whose name has its listener yet */
	int due;    /* the status of an answer */
};

static const char *const names[] = {"aa", "ab", "b"};
static const char *const prefixes[] = {NULL, NULL, NULL, "a", "aa", "b"};

static struct conn_pair pair;
static struct services services;
static struct client clients[CLIENTS];
static bool complete[STEPS + 1]; /* groups, by number */
static unsigned last_group, last_order;
static uint64_t state;

#define for_each_agent(c) for (struct client *c = clients; c < clients + CLIENTS; c++)

static unsigned below(unsigned n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % n;
}

static void on_established(struct conn *conn)
{
	((struct client *)conn_context(conn))->established = true;
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct client *c = conn_context(conn);

	if (record->op == WIRE_OP_CHANNEL_INVITE) {
		memcpy(&c->invited, body, sizeof(c->invited));
		return 0;
	}
	c->got++;
	c->last = *record;
	if (record->op == WIRE_OP_PEER_JOIN && record->status == WIRE_OK)
		memcpy(&c->page, body, sizeof(c->page));
	return 0;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct client *c = conn_context(conn);

	(void)error;
	(void)reason;
	c->closed = true;
	c->conn = NULL;
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

/*
 * The model
 */
static struct client *listener_of(const char *name)
{
	for_each_agent (c)
		if (!c->peer && c->state == MEMBER && c->name == name)
			return c;
	return NULL;
}

static bool may_use(const struct client *c)
{
	return !c->prefix || strncmp(c->name, c->prefix, strlen(c->prefix)) == 0;
}

static unsigned members_of(unsigned group)
{
	unsigned n = 0;

	for_each_agent (c)
		n += c->group == group;
	return n;
}

static uint32_t size_of(unsigned group)
{
	for_each_agent (c)
		if (c->group == group)
			return c->size;
	return 0;
}

static unsigned groups_there(void)
{
	unsigned n = 0;

	for (unsigned group = 1; group <= last_group; group++)
		n += members_of(group) > 0;
	return n;
}

static unsigned joined_there(void)
{
	unsigned waits = 0, joined = 0;

	for_each_agent (c) {
		waits += !c->peer && c->state == WAITS;
		joined += c->state == JOINED;
	}
	return waits + joined / 2;
}

/* The group that is met under the name: it waits for members or has them all. */
static unsigned current_group(const char *name)
{
	for_each_agent (c)
		if (c->group && c->name == name && (!complete[c->group] || members_of(c->group) == c->size))
			return c->group;
	return 0;
}

static void refused(struct client *c, int status)
{
	c->due = status;
	c->state = FRESH;
	c->group = 0;
}

static void parts(struct client *c)
{
	if (!c->peer && c->state == MEMBER)
		for_each_agent (guest) {
			if (guest->peer || guest->name != c->name)
				continue;
			if (guest->state == WAITS)
				refused(guest, WIRE_NOT_FOUND);
			guest->named = false;
		}
	if (c->state == JOINED)
		c->partner->state = CLOSED;
	c->state = FRESH;
	c->group = 0;
}

static void group_completes(unsigned group, uint32_t size)
{
	struct client *by_rank[CLIENTS] = {NULL}, *next;

	complete[group] = true;
	for_each_agent (c)
		if (c->group == group && c->rank != WIRE_PEER_ANY_RANK)
			by_rank[c->rank] = c;
	for (uint32_t rank = 0; rank < size; rank++) {
		next = NULL;
		for_each_agent (c)
			if (c->group == group && c->rank == WIRE_PEER_ANY_RANK && (!next || c->order < next->order))
				next = c;
		if (!by_rank[rank])
			(by_rank[rank] = next)->rank = rank;
		by_rank[rank]->state = MEMBER;
		by_rank[rank]->due = WIRE_OK;
	}
}

static void joins(struct client *c, uint32_t size, uint32_t rank, uint64_t patience)
{
	unsigned group = current_group(c->name);

	if (!may_use(c))
		refused(c, WIRE_DENIED);
	else if (group && size_of(group) != size)
		refused(c, WIRE_RANGE);
	else if (group && complete[group])
		refused(c, WIRE_EXISTS);
	else if (!group && groups_there() == GROUPS_MAX)
		refused(c, WIRE_BUSY);
	else {
		for_each_agent (other)
			if (group && other->group == group && other->rank == rank && rank != WIRE_PEER_ANY_RANK) {
				refused(c, WIRE_EXISTS);
				return;
			}
		c->group = group ? group : ++last_group;
		c->order = ++last_order;
		c->state = WAITS;
		c->size = size;
		c->rank = rank;
		c->deadline = pair.now + patience;
		if (members_of(c->group) == size)
			group_completes(c->group, size);
	}
}

/* The time of members that wait may be up, in whatever order they are looked at. */
static void time_passes(void)
{
	for_each_agent (c)
		if (c->state == WAITS && pair.now >= c->deadline)
			refused(c, WIRE_BUSY);
}

/*
 * Both must agree
 */
static void check_client(struct client *c)
{
	unsigned long i = (unsigned long)(c - clients);

	ck_assert_msg(c->closed == (c->state == CLOSED), "client %lu, %s: closed %d, state %d", i, c->name, c->closed,
		      c->state);
	if (c->state == CLOSED)
		return;
	ck_assert_msg(c->got - c->seen == (c->due != NOTHING), "client %lu: %u answers", i, c->got - c->seen);
	if (c->due == NOTHING)
		return;
	ck_assert_msg(c->last.status == c->due, "client %lu, %s: status %u, not %d", i, c->name, c->last.status,
		      c->due);
	if (c->last.op != WIRE_OP_PEER_JOIN || c->due != WIRE_OK)
		return;
	ck_assert_uint_eq(c->page.size, c->size);
	ck_assert_uint_eq(c->page.rank, c->rank);
	ck_assert_uint_eq(c->page.count, c->size);
	ck_assert_uint_ne(c->page.number, 0);
	for_each_agent (other) /* one number in a group, and no other group has it */
		if (other->group && complete[other->group] && other->due == NOTHING)
			ck_assert_uint_ne(other->page.number, c->page.number);
}

static void check_names(void)
{
	struct channel_service *channel = services_channel(&services);
	struct meeting_service *peer = services_peer(&services);
	unsigned members = 0, waits = 0, listened = 0, clients_there, here;

	for_each_agent (c) {
		waits += c->state == WAITS;
		members += c->peer && c->group;
		listened += !c->peer && c->state == MEMBER;
	}
	ck_assert_uint_eq(meet_members(&peer->table), members);
	ck_assert_uint_eq(quota_taken(peer->table.names.quota), groups_there());
	ck_assert_uint_eq(quota_taken(channel->table.names.quota), listened);
	ck_assert_uint_eq(meet_members(&channel->table), listened);
	ck_assert_uint_eq(quota_taken(channel->joined.quota), joined_there());
	ck_assert_uint_eq(services.thread.active, waits);
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		const struct meet_name *name = channel->table.name[i];

		clients_there = 0;
		for_each_agent (c)
			clients_there += name && c->state == JOINED && c->named && strlen(c->name) == name->len &&
					 memcmp(c->name, name->text, name->len) == 0;
		ck_assert_uint_eq(name ? name->clients : 0, clients_there / 2);
	}
	here = 0;
	for (unsigned i = 0; i < GROUPS_MAX; i++)
		here += peer->table.name[i] ? peer->table.name[i]->here : 0;
	ck_assert_uint_eq(here, members);
}

static void check_all(void)
{
	conn_pair_rest(&pair);
	for_each_agent (c)
		check_client(c);
	for_each_agent (c) {
		c->seen = c->got;
		c->due = NOTHING;
	}
	check_names();
}

/*
 * Steps
 */
static void submit(struct client *c, unsigned op, const void *head, size_t head_len, const void *rest, size_t rest_len)
{
	struct wire_record record = {.id = 77, .op = (uint8_t)op};

	PAIR_UNTIL(&pair, conn_say(c->conn, &record, head, head_len, rest, rest_len));
}

static void step_connect(struct client *c)
{
	const char *name = names[below(ARRAY_SIZE(names))];
	bool peer = below(5) < 2;
	struct wire_request request = {.version = WIRE_VERSION,
				       .service = peer ? WIRE_PEER : WIRE_CHANNEL,
				       .credits = 8,
				       .message_size = WIRE_MESSAGE_MIN,
				       .count = WIRE_PEER_COUNT(name, strlen(name))};

	*c = (struct client){.name = name, .peer = peer, .state = FRESH, .due = NOTHING};
	ck_assert_int_eq(conn_pair_connect(&pair, &request, NULL, &ops, c, &c->conn), 0);
	PAIR_UNTIL(&pair, c->established || c->closed);
}

static void step_join(struct client *c)
{
	struct wire_peer_join join = {.patience = (1 + below(5)) * 100000, .size = 1 + below(4)};
	char text[64];

	join.rank = below(2) ? WIRE_PEER_ANY_RANK : below(join.size);
	join.name_len = (uint32_t)strlen(c->name);
	snprintf(text, sizeof(text), "%stcp://10.0.0.1:7000", c->name);
	submit(c, WIRE_OP_PEER_JOIN, &join, sizeof(join), text, strlen(text));
	joins(c, join.size, join.rank, join.patience * TIME_US);
}

static void step_listen(struct client *c)
{
	struct wire_channel_listen listen = {.capacity = CAPACITY, .name_len = (uint32_t)strlen(c->name)};
	unsigned listened = 0;

	for_each_agent (other)
		listened += !other->peer && other->state == MEMBER;
	submit(c, WIRE_OP_CHANNEL_LISTEN, &listen, sizeof(listen), c->name, strlen(c->name));
	if (!may_use(c))
		c->due = WIRE_DENIED;
	else if (listener_of(c->name))
		c->due = WIRE_EXISTS;
	else if (listened == NAMES_MAX)
		c->due = WIRE_BUSY;
	else {
		c->due = WIRE_OK;
		c->state = MEMBER;
	}
}

static void open_with(struct client *c, uint32_t flags, uint64_t token)
{
	struct wire_channel_open open = {.capacity = CAPACITY, .flags = flags, .token = token};

	submit(c, WIRE_OP_CHANNEL_OPEN, &open, sizeof(open), c->name, strlen(c->name));
}

static void step_open(struct client *c)
{
	struct client *listener = listener_of(c->name);
	bool relay = below(4);

	open_with(c, relay ? WIRE_CHANNEL_RELAY : 0, 0);
	if (!may_use(c))
		c->due = WIRE_DENIED;
	else if (!listener)
		c->due = WIRE_NOT_FOUND;
	else if (!relay)
		c->due = WIRE_MOVED;
	else if (joined_there() == JOINED_MAX)
		c->due = WIRE_BUSY;
	else {
		c->state = WAITS;
		c->deadline = pair.now + INVITE_TIMEOUT;
		listener->invited = 0;
		PAIR_UNTIL(&pair, listener->invited);
		c->token = listener->invited;
	}
}

/* With the token of one that waits, or of another name, or none's. */
static void step_accept(struct client *c)
{
	struct client *waits = NULL;

	for_each_agent (other)
		if (!other->peer && other->state == WAITS && (!waits || other->name == c->name || !below(4)))
			waits = other;
	if (!waits)
		return;
	open_with(c, 0, below(5) ? waits->token : waits->token + 1);
	conn_pair_rest(&pair);
	if (!may_use(c))
		c->due = WIRE_DENIED;
	else if (waits->name != c->name || c->last.status == WIRE_NOT_FOUND)
		c->due = WIRE_NOT_FOUND;
	else {
		c->due = waits->due = WIRE_OK;
		c->state = waits->state = JOINED;
		c->named = waits->named = true;
		c->partner = waits;
		waits->partner = c;
	}
}

static void step_leave(struct client *c)
{
	submit(c, c->peer ? WIRE_OP_PEER_LEAVE : WIRE_OP_CHANNEL_LEAVE, NULL, 0, NULL, 0);
	parts(c);
	c->due = WIRE_OK;
}

static void step_close(struct client *c)
{
	conn_close(c->conn, 0, "has enough");
	parts(c);
	c->state = CLOSED;
}

/* Which of a name's connections hears of a reload first is open. Where the listener does, clients that wait for it may be
 * told that, and pairs may stay, without a name. */
static void step_revise(void)
{
	const char *prefix = prefixes[below(ARRAY_SIZE(prefixes))];

	services_revise_names(pair.server.group, prefix);
	conn_pair_rest(&pair);
	for_each_agent (c)
		c->prefix = prefix;
	for_each_agent (c) {
		if (c->state == CLOSED || may_use(c))
			continue;
		if (c->state == WAITS)
			refused(c, !c->peer && c->last.status == WIRE_NOT_FOUND ? WIRE_NOT_FOUND : WIRE_DENIED);
		else if (c->peer && c->state == MEMBER) {
			c->state = CLOSED;
			c->group = 0;
		} else if (c->state == JOINED && c->named && c->closed)
			c->state = c->partner->state = CLOSED;
	}
	for_each_agent (c)
		if (!c->peer && c->state == MEMBER && !may_use(c)) {
			for_each_agent (guest)
				guest->named &= guest->peer || guest->name != c->name;
			c->state = CLOSED;
		}
}

static void step(void)
{
	struct client *c = &clients[below(CLIENTS)];
	unsigned what = below(20);

	if (what == 0 && below(2)) {
		step_revise();
	} else if (what == 1) {
		pair.now += (1 + below(3)) * 50 * TIME_MS;
		time_passes();
	} else if (c->state == CLOSED) {
		step_connect(c);
	} else if (what == 3 || c->state == JOINED) {
		if (what <= 5)
			step_close(c);
	} else if (c->peer) {
		if (c->state == FRESH)
			step_join(c);
		else if (what <= 6)
			step_leave(c);
	} else if (c->state == FRESH) {
		(what <= 7 ? step_listen : what <= 11 ? step_open : step_accept)(c);
	} else if (c->state == MEMBER && what == 2) {
		step_leave(c);
	}
}

START_TEST(test_model)
{
	unsigned reached[JOINED + 1] = {0};

	state = (uint64_t)_i + 1;
	last_group = last_order = 0;
	memset(complete, 0, sizeof(complete));
	for_each_agent (c)
		*c = (struct client){.name = "", .closed = true, .state = CLOSED, .due = NOTHING};
	for (unsigned i = 0; i < STEPS; i++) {
		step();
		check_all();
		for_each_agent (c)
			reached[c->state]++;
	}
	for (unsigned s = CLOSED; s <= JOINED; s++)
		ck_assert_msg(reached[s] > STEPS / 100, "the steps reach state %u %u times", s, reached[s]);
}
END_TEST

static void set_up(void)
{
	struct conn_group_attr attr = server_group_attr((struct conn_group_attr){
		.receives = 512, .max_connections = 2 * CLIENTS, .stall_timeout = 3600 * TIME_S});

	services_open(&services, &(struct services_options){
					 .arena = 4 * MIB,
					 .channel = {.names = NAMES_MAX,
						     .names_per_source = NAMES_MAX,
						     .joined = JOINED_MAX,
						     .joined_per_source = JOINED_MAX,
						     .invite_timeout = INVITE_TIMEOUT},
					 .peer = {.groups = GROUPS_MAX, .groups_per_source = GROUPS_MAX, .members = 16},
				 });
	pair = (struct conn_pair){.listener.take = take, .work = serve};
	conn_pair_open(&pair, true, &attr, &attr);
}

static void tear_down(void)
{
	for_each_agent (c)
		if (c->conn)
			conn_close(c->conn, 0, "the test is over");
	for_each_agent (c)
		PAIR_UNTIL(&pair, !c->conn);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(services.thread.active, 0);
	conn_pair_close(&pair);
	services_close(&services);
}

int main(void)
{
	Suite *suite = suite_create("meet");
	TCase *tc = suite_case(suite, "model", set_up, tear_down);

	log_set_handler(log_keep);
	tcase_add_loop_test(tc, test_model, 0, 6);
	return suite_run(suite);
}
