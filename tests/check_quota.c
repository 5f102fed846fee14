/*
 * check_quota.c: what one peer may take, so that the others are served: turns, buffers, memory, places. On the soft
 * provider, in one thread; the test sets the time, also that in the midst of a turn.
 */
#include "conn/internal.h"
#include "conn_pair.h"
#include "suite.h"

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

static void begin(const struct conn_group_attr *server_attr, const struct conn_group_attr *client_attr)
{
	pair = (struct conn_pair){.listener.take = take};
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = server[i] = (struct peer){.body = 16};
	servers = step = 0;
	ticks = tick = 0;
	conn_pair_open(&pair, false, server_attr, client_attr);
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
	ck_assert_int_eq(conn_connect(pair.client.group, (struct sockaddr *)&pair.listener.address,
				      pair.listener.address_len, request, NULL, &ops, &client[i], pair.now,
				      &client[i].conn),
			 0);
}

static void connect_one(unsigned i)
{
	struct wire_request request = request_of(8, 8192);

	connect_begin(i, &request);
	PAIR_UNTIL(&pair, client[i].established && server[i].established);
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
		server[i].conn->disconnected = true;
	while (stats_of(&pair.server).connections) {
		uint64_t before = stats_of(&pair.server).connections;
		int more = server_turn();

		ck_assert_uint_le(before - stats_of(&pair.server).connections, 4);
		ck_assert(more || !stats_of(&pair.server).connections);
		turns++;
	}
	ck_assert_uint_ge(turns, CLIENTS / 4);
	end();
}
END_TEST

static Suite *suite_of_quotas(void)
{
	Suite *suite = suite_create("quota");
	TCase *tc = suite_case(suite, "turns", NULL, NULL);

	tcase_add_test(tc, test_turn_is_bounded);
	tcase_add_test(tc, test_turn_without_end);
	tcase_add_test(tc, test_expensive_records);
	tcase_add_test(tc, test_steps);
	tcase_add_test(tc, test_burials);
	return suite;
}

int main(void)
{
	log_set_handler(log_keep);
	return suite_run(suite_of_quotas());
}
