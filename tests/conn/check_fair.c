/*
 * check_fair.c: what one peer may take, so that the others are served: turns, buffers, memory, places. On the soft
 * provider, in one thread; the test sets the time, also that in the midst of a turn.
 */
#include "conn/internal.h"
#include "tests/conn/conn_pair.h"
#include "fabric/provider.h"
#include "tests/suite.h"

#define CLIENTS 8

struct peer {
	struct conn *conn;
	bool established;
	unsigned closed;
	int error;
	enum wire_reason refusal;
	char reason[200];
	uint32_t sent, got;
	unsigned steps;  /* that each record takes, with conn_yield() between them */
	unsigned charge; /* of each record */
	unsigned refuse; /* record() answers -EAGAIN so often */
	uint64_t cost;   /* ns that each record takes */
	uint32_t body;   /* of each record that it sends */
	bool echo;
};

static struct conn_pair pair;
static struct peer client[CLIENTS], server[CLIENTS];
static unsigned servers, step;
static uint64_t ticks, tick; /* of the clock in the midst of a turn */
static int accepted;         /* what the last conn_accept() answered */

static uint64_t test_clock(void)
{
	ticks += tick;
	return pair.now + ticks;
}

static void on_established(struct conn *conn)
{
	((struct peer *)conn_context(conn))->established = true;
}

static bool peer_send(struct peer *p)
{
	struct wire_record *r = conn_reserve(p->conn, p->body, NULL);

	if (!r)
		return false;
	r->id = p->sent++;
	memset(r + 1, 0, p->body);
	conn_commit(p->conn, r, p->body);
	return true;
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct peer *p = conn_context(conn);

	(void)body;
	if (p->refuse) {
		p->refuse--;
		return -EAGAIN;
	}
	ck_assert_uint_eq(record->id, p->got);
	if (p->steps && ++step % p->steps) {
		conn_yield(conn);
		return -EAGAIN;
	}
	if (p->echo && !peer_send(p))
		return -EAGAIN;
	ticks += p->cost;
	if (p->charge)
		conn_charge(conn, p->charge);
	p->got++;
	return 0;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct peer *p = conn_context(conn);

	p->closed++;
	p->error = error;
	p->refusal = conn_refusal(conn);
	snprintf(p->reason, sizeof(p->reason), "%s", reason);
	p->conn = NULL;
}

static const struct conn_ops ops = {
	.established = on_established,
	.record = on_record,
	.closed = on_closed,
};

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	struct wire_accept grant = {.eager_max = 4095, .value_max = 4095};
	struct peer *p = &server[servers];

	(void)arg;
	ck_assert_int_eq(reason, WIRE_REASON_NONE);
	ck_assert_uint_lt(servers, CLIENTS);
	accepted = conn_accept(pair.server.group, request, wire, &grant, NULL, &ops, p, pair.now, &p->conn);
	servers += accepted == 0;
}

static struct conn_group_attr attr_of_a_group(void)
{
	return (struct conn_group_attr){
		.message_size = 8192,
		.message_max = 1u << 20,
		.credits = 8,
		.receives = 256,
		.max_connections = CLIENTS,
		.handshake_timeout = 5 * TIME_S,
		.clock = test_clock,
	};
}

static void begin_over(bool unix_socket, const struct conn_group_attr *server_attr,
		       const struct conn_group_attr *client_attr)
{
	pair = (struct conn_pair){.listener.take = take};
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = server[i] = (struct peer){.body = 16};
	servers = step = 0;
	ticks = tick = 0;
	conn_pair_open(&pair, unix_socket, server_attr, client_attr);
}

static void begin(const struct conn_group_attr *server_attr, const struct conn_group_attr *client_attr)
{
	begin_over(false, server_attr, client_attr);
}

static struct wire_request request_of(uint16_t credits, uint32_t message_size)
{
	return (struct wire_request){
		.version = WIRE_VERSION,
		.service = WIRE_KV,
		.credits = credits,
		.message_size = message_size,
	};
}

static void connect_begin(unsigned i, const struct wire_request *request)
{
	ck_assert_int_eq(conn_pair_connect(&pair, request, NULL, &ops, &client[i], &client[i].conn), 0);
}

static void connect_for(unsigned i, uint16_t credits)
{
	struct wire_request request = request_of(credits, 8192);

	connect_begin(i, &request);
	PAIR_UNTIL(&pair, client[i].established && server[i].established);
}

static void connect_one(unsigned i)
{
	connect_for(i, 8);
}

static bool all_closed(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (client[i].conn || server[i].conn)
			return false;
	return true;
}

static void end(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (client[i].conn)
			conn_close(client[i].conn, 0, "the test is over");
	PAIR_UNTIL(&pair, all_closed());
	conn_pair_rest(&pair);
	conn_pair_close(&pair);
}

static struct conn_group_stats stats_of(const struct side *side)
{
	struct conn_group_stats stats;

	conn_group_get_stats(side->group, &stats);
	return stats;
}

static void send_some(struct peer *p, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		ck_assert(peer_send(p));
	conn_flush(p->conn);
}

/*
 * Turns
 */
static void begin_turns(unsigned clients)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.turn = TIME_MS;
	begin(&s, &c);
	for (unsigned i = 0; i < clients; i++)
		connect_one(i);
	tick = 50 * TIME_US;
}

static int server_turn(void)
{
	return conn_group_progress(pair.server.group, pair.now);
}

/* Messages of many requests are carried out in parts, and one with a single request is not behind them. */
START_TEST(test_turn_is_bounded)
{
	unsigned turns = 0;

	begin_turns(3);
	for (unsigned i = 0; i < 6; i++) {
		send_some(&client[0], 200);
		send_some(&client[1], 200);
	}
	conn_pair_turn(&pair);
	send_some(&client[2], 1);
	conn_group_progress(pair.client.group, pair.now);
	for (; server[0].got + server[1].got < 2 * 6 * 200; turns++) {
		uint32_t before[] = {server[0].got, server[1].got};
		int more = server_turn();

		/* It does not sleep with work left. */
		ck_assert(more || server[0].got + server[1].got == 2 * 6 * 200);
		ck_assert_uint_le(server[0].got - before[0], 100);
		ck_assert_uint_le(server[1].got - before[1], 100);
		if (turns == 1)
			ck_assert_uint_eq(server[2].got, 1);
		ck_assert_uint_lt(turns, 1000);
	}
	ck_assert_uint_gt(turns, 10);
	ck_assert_uint_gt(stats_of(&pair.server).yields, 10);
	end();
}
END_TEST

/* What an end of the turn would cut in two is carried out, and answered, as one. */
START_TEST(test_messages_stay_whole)
{
	unsigned turns = 0, got = 0;

	begin_turns(CLIENTS);
	for (unsigned i = 0; i < CLIENTS; i++)
		send_some(&client[i], 64);
	conn_group_progress(pair.client.group, pair.now);
	for (; got < CLIENTS * 64; turns++) {
		unsigned before = got;

		server_turn();
		got = 0;
		for (unsigned i = 0; i < CLIENTS; i++)
			got += server[i].got;
		ck_assert_uint_le(got - before, 25 * 16);
		ck_assert_uint_lt(turns, 1000);
	}
	ck_assert_uint_gt(turns, 1);
	ck_assert_uint_eq(stats_of(&pair.server).yields, 0);
	end();
}
END_TEST

/* Without a limit, as in the library, all of it at once. */
START_TEST(test_turn_without_end)
{
	struct conn_group_attr attr = attr_of_a_group();

	begin(&attr, &attr);
	connect_one(0);
	tick = TIME_S;
	send_some(&client[0], 200);
	PAIR_UNTIL(&pair, server[0].got);
	ck_assert_uint_eq(server[0].got, 200);
	ck_assert_uint_eq(stats_of(&pair.server).yields, 0);
	end();
}
END_TEST

/* All that their credits allow, in messages of so many records. */
static void send_all(unsigned clients, unsigned records)
{
	for (unsigned i = 0; i < clients; i++)
		while (conn_may_send(client[i].conn))
			send_some(&client[i], records);
}

/* All but the last client ask for what takes long. What is sent is there at once, so that turns can be counted. */
static void begin_crowd(void)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.turn = TIME_MS;
	s.credits = c.credits = 32;
	begin_over(true, &s, &c);
	for (unsigned i = 0; i < CLIENTS; i++) {
		connect_for(i, 32);
		server[i].charge = 1000;
		server[i].cost = i < CLIENTS - 1 ? 100 * TIME_US : 0;
	}
}

/* Clients that always have as much under way as they may. They share what there is, and one that asks now and then does not wait
 * for them, but for the turn that is. */
START_TEST(test_little_before_much)
{
	unsigned most = 0, least = UINT32_MAX, waited = 0;
	struct peer *little = &server[CLIENTS - 1];

	begin_crowd();
	for (unsigned turns = 0; turns < 400; turns++) {
		send_all(CLIENTS - 1, 4);
		if (turns >= 50 && client[CLIENTS - 1].sent == little->got) {
			send_some(&client[CLIENTS - 1], 1);
			waited = 0;
		}
		conn_group_progress(pair.client.group, pair.now);
		ck_assert(server_turn());
		if (little->got < client[CLIENTS - 1].sent)
			ck_assert_msg(++waited <= 1, "request %u waited for %u turns", little->got, waited);
	}
	for (unsigned i = 0; i < CLIENTS - 1; i++) {
		most = MAX(most, server[i].got);
		least = MIN(least, server[i].got);
	}
	ck_assert_uint_gt(little->got, 100);
	ck_assert_uint_gt(least, 100);
	ck_assert_msg(least * 10 >= most * 8, "%u and %u records", least, most);
	end();
}
END_TEST

/* What they send at once is only looked at, but for a visit to each of them: two are in half a turn. */
START_TEST(test_little_behind_much)
{
	unsigned turns = 0;

	begin_crowd();
	send_all(CLIENTS - 1, 4);
	conn_group_progress(pair.client.group, pair.now);
	send_some(&client[CLIENTS - 1], 1);
	conn_group_progress(pair.client.group, pair.now);
	while (!server[CLIENTS - 1].got) {
		server_turn();
		ck_assert_uint_le(++turns, CLIENTS / 2);
	}
	end();
}
END_TEST

/* Few and expensive: the clock is looked at after each. */
START_TEST(test_expensive_records)
{
	begin_turns(2);
	server[0].charge = 1000;
	tick = 200 * TIME_US;
	send_some(&client[0], 100);
	conn_pair_turn(&pair);
	send_some(&client[1], 1);
	conn_group_progress(pair.client.group, pair.now);
	for (unsigned turns = 0; server[0].got < 100; turns++) {
		uint32_t before = server[0].got;

		server_turn();
		ck_assert_uint_le(server[0].got - before, 6);
		if (turns == 1)
			ck_assert_uint_eq(server[1].got, 1);
		ck_assert_uint_lt(turns, 1000);
	}
	end();
}
END_TEST

/* A request that goes in steps: each turn does one, others are served between, and nobody takes its client for one that
 * does not take answers. */
START_TEST(test_steps)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.turn = TIME_MS;
	s.stall_timeout = TIME_S;
	begin(&s, &c);
	connect_one(0);
	connect_one(1);
	server[0].steps = 100;
	server[1].echo = true;
	send_some(&client[0], 2);
	conn_group_progress(pair.client.group, pair.now);
	for (unsigned i = 0; step < 198; i++) {
		unsigned before = step;

		if (client[1].sent == client[1].got)
			send_some(&client[1], 1);
		conn_group_progress(pair.client.group, pair.now);
		pair.now += TIME_S / 10;
		ck_assert(server_turn() || i < 10);
		ck_assert_uint_le(step - before, 2);
		ck_assert_uint_lt(i, 1000);
	}
	PAIR_UNTIL(&pair, server[0].got == 2);
	ck_assert_uint_gt(server[1].got, 20);
	ck_assert_uint_eq(server[0].closed, 0);
	end();
}
END_TEST

/* Many connections end at once: few are buried in a turn, and all of them without anything else to wake the group. */
START_TEST(test_burials)
{
	unsigned turns = 0;

	begin_turns(CLIENTS);
	for (unsigned i = 0; i < CLIENTS; i++)
		conn_close(server[i].conn, 0, "enough");
	for (unsigned i = 0; i < CLIENTS; i++)
		conn_handle(server[i].conn, CONN_EVENT_DISCONNECTED);
	while (stats_of(&pair.server).connections) {
		uint64_t before = stats_of(&pair.server).connections;
		int more = server_turn();

		ck_assert_uint_le(before - stats_of(&pair.server).connections, 4);
		ck_assert(more || !stats_of(&pair.server).connections);
		turns++;
	}
	ck_assert_uint_ge(turns, CLIENTS / 4);
	ck_assert_uint_eq(conn_group_deadline(pair.server.group), TIME_NEVER); /* and its thread may sleep */
	end();
}
END_TEST

/*
 * Buffers
 */

/* A client that grants very many and takes none has its window and no more of the shared buffers, and the others have
 * theirs. It is the one that is cut off. */
START_TEST(test_window)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();
	struct wire_request greedy = request_of(WIRE_CREDITS_MAX, 8192);

	s.stall_timeout = 10 * TIME_S;
	s.max_connections = 8;
	c.credits = WIRE_CREDITS_MAX;
	begin(&s, &c);
	for (unsigned i = 0; i < 8; i++) {
		connect_begin(i, &greedy);
		PAIR_UNTIL(&pair, client[i].established && server[i].established);
		server[i].body = 5000;
	}
	pair.client_stops = true;
	for (unsigned i = 0; i < 8; i++) {
		while (peer_send(&server[i]))
			conn_flush(server[i].conn);
		ck_assert_uint_eq(server[i].sent, 8);
	}
	ck_assert_uint_eq(stats_of(&pair.server).buffers_in_use, 8 * 8);
	/* They take them, and there is room again; then all but one are away for too long. */
	pair.client_stops = false;
	for (unsigned i = 0; i < 8; i++)
		PAIR_UNTIL(&pair, client[i].got >= 8);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(stats_of(&pair.server).buffers_in_use, 0);
	pair.client_stops = true;
	while (peer_send(&server[0]))
		conn_flush(server[0].conn);
	pair.now += 10 * TIME_S;
	server_turn();
	pair.client_stops = false;
	PAIR_UNTIL(&pair, server[0].closed);
	ck_assert_int_eq(server[0].error, -ETIMEDOUT);
	for (unsigned i = 1; i < 8; i++)
		ck_assert_uint_eq(server[i].closed, 0);
	end();
}
END_TEST

/* A peer that takes nothing of what it has granted is found though nothing waits for it, where the device
 * acknowledges whatever its program does. */
START_TEST(test_oldest_send)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.stall_timeout = 10 * TIME_S;
	begin(&s, &c);
	connect_one(0);
	server[0].conn->send.watched = true;
	server[0].body = 5000;
	for (unsigned i = 0; i < 5; i++) {
		pair.now += 8 * TIME_S;
		send_some(&server[0], 1);
		conn_pair_rest(&pair); /* in time */
	}
	pair.client_stops = true;
	send_some(&server[0], 1);
	pair.now += 10 * TIME_S - 1;
	server_turn();
	ck_assert(conn_established(server[0].conn));
	pair.now++;
	server_turn();
	pair.client_stops = false;
	PAIR_UNTIL(&pair, server[0].closed && client[0].closed);
	ck_assert_int_eq(server[0].error, -ETIMEDOUT);
	ck_assert_str_eq(server[0].reason, "the peer takes no answers since 10 s");
	ck_assert_uint_eq(stats_of(&pair.server).stalled, 1);
	end();
}
END_TEST

/* A pool that cannot grow is not the fault of the connection that finds it empty. */
START_TEST(test_victim)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();
	struct memory_buffer *taken[1000];
	unsigned n = 0;

	s.stall_timeout = TIME_S;
	begin(&s, &c);
	connect_one(0);
	server[0].echo = true;
	while ((taken[n] = memory_pool_get(pair.server.group->sends)))
		n++;
	send_some(&client[0], 1);
	for (unsigned i = 0; i < 20; i++) {
		pair.now += TIME_S;
		conn_pair_turn(&pair);
	}
	ck_assert_uint_eq(server[0].closed, 0);
	while (n > 0)
		memory_pool_put(pair.server.group->sends, taken[--n]);
	PAIR_UNTIL(&pair, client[0].got == 1);
	end();
}
END_TEST

/*
 * Memory of a connection's own
 */
START_TEST(test_own_buffers)
{
	struct memory_budget budget = {.limit = 20u << 20};
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();
	struct wire_request large = request_of(8, WIRE_MESSAGE_MAX);
	unsigned in = 0;

	s.own = &budget;
	begin(&s, &c);
	for (unsigned i = 0; i < 4; i++) {
		accepted = 1;
		connect_begin(i, &large);
		PAIR_UNTIL(&pair, client[i].established || client[i].closed);
		in += client[i].established;
	}
	ck_assert_uint_eq(in, 1); /* 12 MiB each */
	ck_assert_int_eq(accepted, -ENOBUFS);
	ck_assert_uint_eq(client[1].refusal, WIRE_REASON_RESOURCES);
	PAIR_UNTIL(&pair, server[0].established);
	/* Little is made before it is used. */
	ck_assert_uint_le(stats_of(&pair.server).own_buffer_bytes, 2u << 20);
	server[0].echo = true;
	client[0].body = server[0].body = 1000000;
	for (unsigned i = 0; i < 20; i++) {
		PAIR_UNTIL(&pair, peer_send(&client[0]));
		conn_flush(client[0].conn);
	}
	PAIR_UNTIL(&pair, client[0].got == 20);
	ck_assert_uint_gt(stats_of(&pair.server).own_buffer_bytes, 4u << 20);
	ck_assert_uint_le(stats_of(&pair.server).own_buffer_bytes, budget.used);
	end();
	ck_assert_uint_eq(budget.used, 0);
}
END_TEST

/* Nothing is made for a peer that does not confirm. */
START_TEST(test_nothing_before_it_is_confirmed)
{
	struct memory_budget budget = {.limit = 100u << 20};
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();
	struct wire_request large = request_of(8, WIRE_MESSAGE_MAX);

	s.own = &budget;
	begin(&s, &c);
	connect_begin(0, &large);
	while (!server[0].conn) {
		conn_group_progress(pair.client.group, pair.now);
		pair.server_stops = pair.client_stops = true;
		conn_pair_turn(&pair);
	}
	ck_assert(!conn_established(server[0].conn));
	ck_assert_uint_gt(budget.used, 0);
	ck_assert_uint_eq(stats_of(&pair.server).own_buffer_bytes, 0);
	pair.server_stops = pair.client_stops = false;
	PAIR_UNTIL(&pair, client[0].established && server[0].established);
	end();
	ck_assert_uint_eq(budget.used, 0);
}
END_TEST

/* Of requests that wait there is a limit. The connection that has most of them goes. */
START_TEST(test_parked)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.parked = 40000;
	begin(&s, &c);
	for (unsigned i = 0; i < 3; i++) {
		connect_one(i);
		server[i].refuse = UINT32_MAX;
		client[i].body = 5000;
	}
	send_some(&client[1], 2);
	send_some(&client[0], 5);
	PAIR_UNTIL(&pair, conn_idle(client[0].conn) && conn_idle(client[1].conn));
	ck_assert_uint_gt(stats_of(&pair.server).parked_bytes, 35000);
	ck_assert_uint_le(stats_of(&pair.server).parked_bytes, 40000);
	send_some(&client[2], 2);
	PAIR_UNTIL(&pair, server[0].closed);
	ck_assert_int_eq(server[0].error, -ENOBUFS);
	ck_assert_uint_eq(server[1].closed + server[2].closed, 0);
	ck_assert_uint_eq(stats_of(&pair.server).overparked, 1);
	server[1].refuse = server[2].refuse = 0;
	PAIR_UNTIL(&pair, server[1].got == 2 && server[2].got == 2);
	ck_assert_uint_eq(stats_of(&pair.server).parked_bytes, 0);
	end();
}
END_TEST

/*
 * Time
 */

/* A server that is frozen is found in twice the keepalive; one that answers never is, however long it is silent. */
START_TEST(test_frozen_server)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	c.keepalive = 10 * TIME_S;
	c.asks = true;
	begin(&s, &c);
	connect_one(0);
	for (unsigned i = 0; i < 10; i++) {
		pair.now += 10 * TIME_S;
		conn_group_progress(pair.client.group, pair.now);
		ck_assert(client[0].conn->probe.pending);
		PAIR_UNTIL(&pair, !client[0].conn->probe.pending);
	}
	ck_assert_uint_eq(server[0].got, 0);
	ck_assert_uint_ge(client[0].conn->messages_out, 10);
	pair.now += 3 * TIME_S;
	server[0].echo = true;
	send_some(&client[0], 1);
	PAIR_UNTIL(&pair, client[0].got == 1);
	pair.server_stops = true;
	send_some(&client[0], 1);
	for (unsigned i = 0; i < 18; i++) {
		pair.now += TIME_S;
		conn_pair_turn(&pair);
		ck_assert(conn_established(client[0].conn));
	}
	pair.now += 3 * TIME_S;
	conn_pair_turn(&pair);
	ck_assert(!client[0].conn || !conn_established(client[0].conn));
	pair.server_stops = false;
	PAIR_UNTIL(&pair, client[0].closed && server[0].closed);
	ck_assert_int_eq(client[0].error, -ETIMEDOUT);
	ck_assert_str_eq(client[0].reason, "the peer does not answer");
	ck_assert_uint_eq(stats_of(&pair.client).silent, 1);
	end();
}
END_TEST

/* A client that was away sees the answers before it judges. And a server never asks one that may compute. */
START_TEST(test_absent_client)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.keepalive = c.keepalive = 10 * TIME_S;
	c.asks = true;
	begin(&s, &c);
	connect_one(0);
	pair.now += 10 * TIME_S;
	conn_group_progress(pair.client.group, pair.now); /* it asks */
	for (unsigned i = 0; i < 10; i++) {
		pair.now += 100 * TIME_S;
		server_turn();
	}
	for (unsigned i = 0; i < 10; i++)
		conn_group_progress(pair.client.group, pair.now);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(client[0].closed + server[0].closed, 0);
	ck_assert(!client[0].conn->probe.pending);
	end();
}
END_TEST

/* An older server knows nothing of it. */
START_TEST(test_old_server_is_not_asked)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	c.keepalive = 10 * TIME_S;
	c.asks = true;
	begin(&s, &c);
	connect_one(0);
	ck_assert(client[0].conn->probe.asks);
	client[0].conn->accept.flags = 0;
	client[0].conn->probe.asks = client[0].conn->probe.used = false;
	for (unsigned i = 0; i < 10; i++) {
		pair.now += 10 * TIME_S;
		conn_pair_rest(&pair);
	}
	ck_assert_uint_eq(client[0].conn->messages_out, 0);
	end();
}
END_TEST

/* It has heard nothing for its keepalive. */
static void client_looks(void)
{
	pair.now += 10 * TIME_S;
	conn_group_progress(pair.client.group, pair.now);
	ck_assert(client[0].conn->probe.pending);
	PAIR_UNTIL(&pair, client[0].closed || !client[0].conn->probe.pending);
	ck_assert_uint_eq(client[0].closed + server[0].closed, 0);
}

/* Where silence is looked into by writes, a peer is asked by messages until it has said that it admits this side. */
START_TEST(test_not_yet_admitted)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();
	struct fabric_transport silent;
	uint64_t said;

	c.keepalive = 10 * TIME_S;
	c.asks = c.away = s.away = true;
	begin(&s, &c);
	connect_one(0);
	silent = *client[0].conn->transport;
	silent.silent = true;
	client[0].conn->transport = &silent;
	conn_choose_probe(client[0].conn);
	for (unsigned i = 0; i < 3; i++)
		client_looks();
	ck_assert(client[0].conn->probe.asks);
	conn_admit(server[0].conn);
	PAIR_UNTIL(&pair, !client[0].conn->probe.asks);
	conn_admit(server[0].conn);
	conn_pair_rest(&pair);
	said = client[0].conn->messages_out;
	for (unsigned i = 0; i < 3; i++)
		client_looks();
	ck_assert_uint_eq(client[0].conn->messages_out, said);
	end();
}
END_TEST

/* One that asks twice before it was answered. */
START_TEST(test_asks_without_end)
{
	struct conn_group_attr attr = attr_of_a_group();

	begin(&attr, &attr);
	connect_one(0);
	for (unsigned i = 0; i < 2; i++) {
		client[0].conn->say = WIRE_ASK;
		conn_mark_dirty(client[0].conn);
		conn_flush(client[0].conn);
	}
	PAIR_UNTIL(&pair, server[0].closed);
	ck_assert_int_eq(server[0].error, -EPROTO);
	ck_assert_uint_eq(stats_of(&pair.server).violations, 1);
	end();
}
END_TEST

/* Timers look at what is due, not at all there is. */
START_TEST(test_timers_in_order)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.keepalive = 10 * TIME_S;
	begin(&s, &c);
	for (unsigned i = 0; i < CLIENTS; i++) {
		connect_one(i);
		conn_timer_move(server[i].conn, TIME_NEVER);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		conn_timer_set(server[i * 5 % CLIENTS].conn, pair.now + (1 + i * 3 % CLIENTS) * TIME_S);
	for (unsigned i = 0; i < CLIENTS; i++) {
		ck_assert_uint_eq(conn_group_deadline(pair.server.group), pair.now + TIME_S);
		pair.now += TIME_S;
		server_turn();
	}
	ck_assert_uint_eq(conn_group_deadline(pair.server.group), TIME_NEVER);
	end();
}
END_TEST

static char memory_of_transfer[4u << 20];
static struct fabric_region *transfer_region;
static uint64_t moved; /* what the fabric says of every endpoint */
static struct fabric_provider counting;

static uint64_t moved_bytes(const struct fabric_endpoint *endpoint)
{
	(void)endpoint;
	return moved;
}

static void transfer_done(struct conn_transfer *transfer, enum fabric_status status)
{
	(void)transfer;
	(void)status;
}

/* A read that the client never serves, of so many bytes. */
static void begin_transfer(struct conn_transfer *transfer, uint64_t bytes)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();
	struct fabric_sge sge = {.len = bytes};

	s.stall_timeout = 10 * TIME_S;
	s.transfers = c.reads_in = 4;
	begin(&s, &c);
	connect_one(0);
	counting = *server[0].conn->endpoint->ops;
	counting.moved_bytes = moved_bytes;
	server[0].conn->endpoint->ops = &counting;
	*transfer = (struct conn_transfer){.done = transfer_done};
	ck_assert_int_eq(fabric_register(pair.server.domain, memory_of_transfer, sizeof(memory_of_transfer),
					 FABRIC_LOCAL_WRITE, &transfer_region),
			 0);
	sge.addr = memory_of_transfer;
	sge.region = transfer_region;
	pair.client_stops = true;
	ck_assert_int_eq(conn_read(server[0].conn, transfer, &sge, 0, 0), 0);
}

static void end_transfer(void)
{
	pair.client_stops = false;
	PAIR_UNTIL(&pair, server[0].closed && client[0].closed);
	ck_assert_str_eq(server[0].reason, "a transfer does not get on");
	ck_assert_uint_eq(stats_of(&pair.server).stalled, 1);
	fabric_deregister(transfer_region);
	end();
}

/* However long it is, as long as bytes move it goes on. */
START_TEST(test_transfer_gets_on)
{
	struct conn_transfer transfer;

	moved = 0;
	begin_transfer(&transfer, 8192);
	for (unsigned i = 0; i < 100; i++) {
		moved++;
		pair.now += 39 * TIME_S;
		server_turn();
		ck_assert(conn_established(server[0].conn));
	}
	for (unsigned i = 0; i < 3; i++) {
		pair.now += 40 * TIME_S;
		server_turn();
	}
	end_transfer();
}
END_TEST

/* Where nobody can tell, a long one has longer: a second for each MiB. */
START_TEST(test_long_transfer_untold)
{
	struct conn_transfer transfer;

	moved = FABRIC_MOVED_UNKNOWN;
	begin_transfer(&transfer, 3u << 20);
	pair.now += 43 * TIME_S - 1;
	server_turn();
	ck_assert(conn_established(server[0].conn));
	pair.now++;
	server_turn();
	end_transfer();
}
END_TEST

/*
 * Places
 */
START_TEST(test_who_asks_for_nothing_gives_way)
{
	struct conn_group_attr s = attr_of_a_group(), c = attr_of_a_group();

	s.max_connections = 3;
	s.first_request = 60 * TIME_S;
	begin(&s, &c);
	for (unsigned i = 0; i < 3; i++) {
		connect_one(i);
		pair.now += TIME_S;
	}
	send_some(&client[0], 1);
	conn_pair_rest(&pair);
	ck_assert(!conn_group_make_room(pair.server.group, pair.now));
	ck_assert_uint_eq(conn_group_oldest(pair.server.group), pair.now - 2 * TIME_S);
	pair.now += 60 * TIME_S;
	conn_pair_rest(&pair);
	ck_assert_uint_eq(server[1].closed, 0); /* while nobody wants its place */
	ck_assert(conn_group_make_room(pair.server.group, pair.now));
	connect_one(3);
	PAIR_UNTIL(&pair, client[1].closed);
	ck_assert_uint_eq(server[0].closed + server[2].closed, 0);
	ck_assert_int_eq(server[1].error, -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(server[1].reason, "asked for nothing since 62 s"));
	ck_assert_uint_eq(stats_of(&pair.server).gave_way, 1);
	end();
}
END_TEST

static Suite *suite_of_quotas(void)
{
	Suite *suite = suite_create("fair");
	TCase *tc = suite_case(suite, "turns", NULL, NULL);

	tcase_add_test(tc, test_turn_is_bounded);
	tcase_add_test(tc, test_messages_stay_whole);
	tcase_add_test(tc, test_turn_without_end);
	tcase_add_test(tc, test_little_before_much);
	tcase_add_test(tc, test_little_behind_much);
	tcase_add_test(tc, test_expensive_records);
	tcase_add_test(tc, test_steps);
	tcase_add_test(tc, test_burials);
	tc = suite_case(suite, "buffers", NULL, NULL);
	tcase_add_test(tc, test_window);
	tcase_add_test(tc, test_oldest_send);
	tcase_add_test(tc, test_victim);
	tc = suite_case(suite, "memory", NULL, NULL);
	tcase_add_test(tc, test_own_buffers);
	tcase_add_test(tc, test_nothing_before_it_is_confirmed);
	tcase_add_test(tc, test_parked);
	tc = suite_case(suite, "time", NULL, NULL);
	tcase_add_test(tc, test_frozen_server);
	tcase_add_test(tc, test_absent_client);
	tcase_add_test(tc, test_old_server_is_not_asked);
	tcase_add_test(tc, test_not_yet_admitted);
	tcase_add_test(tc, test_asks_without_end);
	tcase_add_test(tc, test_timers_in_order);
	tcase_add_test(tc, test_transfer_gets_on);
	tcase_add_test(tc, test_long_transfer_untold);
	tc = suite_case(suite, "places", NULL, NULL);
	tcase_add_test(tc, test_who_asks_for_nothing_gives_way);
	return suite;
}

int main(void)
{
	log_set_handler(log_keep);
	return suite_run(suite_of_quotas());
}
