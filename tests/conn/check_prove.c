/* check_prove.c: connections whose ends prove that they have a key, and peers that do not. */
#include "auth/internal.h"
#include "tests/conn/conn_pair.h"
#include "tests/suite.h"

struct peer {
	struct conn *conn;
	unsigned established, records, closed;
	int error;
	char reason[160];
};

static struct conn_pair pair;
static struct peer client, server[80];
static unsigned servers;
static struct auth_key key;
static const struct auth_key *asked; /* of clients */
static struct memory_budget budget;  /* of the server's own buffers; 0: there is none */
static uint32_t evil_size;

static void on_established(struct conn *conn)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->established++, 0);
	ck_assert(conn_established(conn));
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->established, 1);
	ck_assert_uint_eq(record->op, 77);
	ck_assert_mem_eq(body, "request", 8);
	p->records++;
	return 0;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct peer *p = conn_context(conn);

	p->closed++;
	p->error = error;
	snprintf(p->reason, sizeof(p->reason), "%s", reason);
	p->conn = NULL;
}

static const struct conn_ops ops = {.established = on_established, .record = on_record, .closed = on_closed};

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	struct conn_attr attr = {.key = asked};
	struct wire_accept grant = {.eager_max = 4095, .value_max = 1234567};
	struct peer *p = &server[servers++ % ARRAY_SIZE(server)];

	*p = (struct peer){0};
	ck_assert_int_eq(reason, WIRE_REASON_NONE);
	ck_assert_int_eq(conn_accept(pair.server.group, request, wire, &grant, &attr, &ops, p, pair.now, &p->conn), 0);
}

static void begin(int unix_socket)
{
	struct conn_group_attr attr = {
		.message_size = 8192,
		.message_max = 1u << 20,
		.credits = 32,
		.receives = 256,
		.max_connections = ARRAY_SIZE(server),
		.handshake_timeout = 5 * TIME_S,
		.memory = true,
	};

	struct conn_group_attr theirs = attr;

	theirs.own = budget.limit ? &budget : NULL;
	evil_size = 8192;
	ck_assert_int_eq(auth_begin(), 0);
	ck_assert_int_eq(auth_key_new(7, "app", &key), 0);
	asked = &key;
	servers = 0;
	client = (struct peer){0};
	log_set_handler(log_keep);
	pair = (struct conn_pair){.listener.take = take};
	conn_pair_memory = unix_socket == 2; /* TCP that comes to go by shared memory */
	conn_pair_open(&pair, unix_socket == 1, &theirs, &attr);
}

static void end(void)
{
	if (client.conn)
		conn_close(client.conn, 0, "the test is over");
	conn_pair_rest(&pair);
	conn_pair_close(&pair);
}

static struct conn_group_stats stats(void)
{
	struct conn_group_stats out;

	conn_group_get_stats(pair.server.group, &out);
	return out;
}

static void connect_sized(const struct auth_key *with, uint32_t message_size)
{
	const struct wire_request request = {.service = WIRE_KV, .credits = 32, .message_size = message_size};
	const struct conn_attr attr = {.key = with};

	ck_assert_int_eq(conn_pair_connect(&pair, &request, &attr, &ops, &client, &client.conn), 0);
}

static void connect_with(const struct auth_key *with)
{
	connect_sized(with, 0);
}

static void ask(struct peer *p)
{
	const struct wire_record head = {.op = 77};

	ck_assert(conn_say(p->conn, &head, "request", 8, "", 0));
}

/*
 * In order
 */
START_TEST(both_have_the_key)
{
	begin(_i);
	connect_with(&key);
	PAIR_UNTIL(&pair, client.established);
	ask(&client); /* it goes with the proof */
	PAIR_UNTIL(&pair, server[0].records == 1);
	ask(&server[0]);
	ask(&client);
	PAIR_UNTIL(&pair, server[0].records == 2 && client.records == 1);
	ck_assert_uint_eq(conn_request(server[0].conn)->key_id, 7);
	ck_assert_uint_eq(stats().unproved, 0);
	ck_assert_uint_eq(stats().records_in, 2);
	/* What one seals the other reads, once and in order. */
	for (unsigned i = 0; i < 4; i++) {
		struct conn *from = i % 2 ? server[0].conn : client.conn, *to = i % 2 ? client.conn : server[0].conn;
		uint8_t sealed[2][AUTH_SEALED(6)], text[6];

		ck_assert(conn_seals(from));
		conn_seal(from, "secret", 6, sealed[0]);
		conn_seal(from, "second", 6, sealed[1]);
		ck_assert_ptr_null(memmem(sealed[0], sizeof(sealed[0]), "secret", 6));
		ck_assert_int_eq(conn_unseal(to, sealed[1], sizeof(sealed[1]), text), -EBADMSG);
		ck_assert_int_eq(conn_unseal(from, sealed[0], sizeof(sealed[0]), text), -EBADMSG);
		ck_assert_int_eq(conn_unseal(to, sealed[0], sizeof(sealed[0]), text), 0);
		ck_assert_mem_eq(text, "secret", 6);
		ck_assert_int_eq(conn_unseal(to, sealed[0], sizeof(sealed[0]), text), -EBADMSG);
		ck_assert_int_eq(conn_unseal(to, sealed[1], sizeof(sealed[1]), text), 0);
		ck_assert_mem_eq(text, "second", 6);
	}
	end();
}
END_TEST

/* The messages are longer than the buffers that connections share. */
START_TEST(own_buffers)
{
	begin(_i);
	connect_sized(&key, 1u << 18);
	PAIR_UNTIL(&pair, client.established);
	ask(&client);
	PAIR_UNTIL(&pair, server[0].records == 1);
	end();
}
END_TEST

/* A client that says nothing yet proves itself all the same. */
START_TEST(silent_clients_are_proved)
{
	begin(_i);
	connect_with(&key);
	PAIR_UNTIL(&pair, server[0].established && client.established);
	conn_pair_rest(&pair);
	pair.now += 100 * TIME_S;
	conn_pair_rest(&pair);
	ck_assert_uint_eq(server[0].closed + client.closed, 0);
	end();
}
END_TEST

START_TEST(nothing_is_asked)
{
	begin(_i);
	asked = NULL;
	connect_with(NULL);
	PAIR_UNTIL(&pair, server[0].established && client.established);
	ask(&client);
	PAIR_UNTIL(&pair, server[0].records == 1);
	ck_assert(!conn_seals(client.conn) && !conn_seals(server[0].conn));
	end();
}
END_TEST

/* The client sees that the server has another key, or none, and says nothing. */
START_TEST(the_server_has_another_key)
{
	struct auth_key other;

	begin(_i);
	ck_assert_int_eq(auth_key_new(7, "app", &other), 0);
	for (unsigned none = 0; none < 2; none++) {
		asked = none ? NULL : &other;
		client = (struct peer){0};
		connect_with(&key);
		PAIR_UNTIL(&pair, client.closed);
		ck_assert_int_eq(client.error, -EACCES);
		ck_assert_str_eq(client.reason, "the server does not have key 7 (app), or is another one");
		ck_assert_uint_eq(client.established, 0);
		PAIR_UNTIL(&pair, server[none].closed);
		ck_assert_uint_eq(server[none].established, none);
		ck_assert_uint_eq(server[none].records, 0);
	}
	end();
}
END_TEST

/*
 * Peers without manners
 */
static uint8_t asks[WIRE_REQUEST_SIZE];

/* Connects with a nonce of its own, and answers what it is to prove. */
static struct evil *evil_asks(uint8_t proof[AUTH_PROOF])
{
	struct wire_request request = {.version = WIRE_VERSION,
				       .service = WIRE_KV,
				       .key_id = 7,
				       .credits = 32,
				       .message_size = evil_size,
				       .nonce = {1, 2, 3}};
	struct evil *evil = evil_new(&pair);
	struct auth_transcript th;
	uint8_t accept[WIRE_ACCEPT_SIZE];

	wire_request_encode(&request, asks);
	evil_connect(&pair, evil, asks, sizeof(asks));
	ck_assert(evil->established);
	wire_accept_encode(&evil->accept, accept);
	auth_transcript(AUTH_SOCKET, asks, accept, &th);
	ck_assert(auth_proof_fits(&key, &th, AUTH_SERVER, evil->accept.proof));
	auth_prove(&key, &th, AUTH_CLIENT, proof);
	return evil;
}

/* A message of one record, or of two: a request is behind it. */
static size_t message(uint8_t *out, unsigned op, unsigned flags, const uint8_t *body, uint32_t length, bool request)
{
	struct wire_record record = {.length = length, .op = (uint8_t)op, .flags = (uint8_t)flags};
	struct wire_message head = {.length = (uint32_t)(sizeof(head) + sizeof(record) + WIRE_PAD(length))};
	uint8_t *at = out + sizeof(head);

	memset(out, 0, 256);
	memcpy(at, &record, sizeof(record));
	memcpy(at + sizeof(record), body, length);
	if (request) {
		at = out + head.length;
		head.length += (uint32_t)sizeof(record) + 8;
		record = (struct wire_record){.length = 8, .op = 77};
		memcpy(at, &record, sizeof(record));
		memcpy(at + sizeof(record), "request", 8);
	}
	memcpy(out, &head, sizeof(head));
	return head.length;
}

static void expect_cut_off(struct evil *evil, const char *what)
{
	const struct peer *p = &server[(servers - 1) % ARRAY_SIZE(server)];

	PAIR_UNTIL(&pair, (evil_turn(evil), p->closed && evil->disconnected));
	ck_assert_msg(p->established == 0 && p->records == 0, "%s: it was let in", what);
	ck_assert_msg(p->error == -EACCES, "%s: %d (%s)", what, p->error, p->reason);
	evil_free(evil);
}

START_TEST(the_right_proof)
{
	uint8_t proof[AUTH_PROOF], data[256];
	struct evil *evil;

	begin(_i);
	evil = evil_asks(proof);
	evil_send(&pair, evil, data, message(data, WIRE_OP_PROOF, 0, proof, sizeof(proof), true));
	PAIR_UNTIL(&pair, (evil_turn(evil), server[0].records == 1));
	/* Once is enough: a second one is no request. */
	ck_assert_uint_eq(stats().unproved, 0);
	evil_free(evil);
	end();
}
END_TEST

START_TEST(wrong_proofs)
{
	uint8_t proof[AUTH_PROOF + 8] = {0}, data[256];
	struct evil *evil;
	unsigned cut = 0;

	begin(_i);
	for (unsigned bit = 0; bit < 8 * AUTH_PROOF; bit += _i ? 37 : 5, cut++) {
		evil = evil_asks(proof);
		proof[bit / 8] = (uint8_t)(proof[bit / 8] ^ 1 << bit % 8);
		evil_send(&pair, evil, data, message(data, WIRE_OP_PROOF, 0, proof, AUTH_PROOF, true));
		expect_cut_off(evil, "a bit");
	}
	for (unsigned kind = 0; kind < 7; kind++, cut++) {
		static const struct {
			const char *what;
			unsigned op, flags, length;
			bool request;
		} kinds[] = {
			{"a request first", 77, 0, 8, true},
			{"too short", WIRE_OP_PROOF, 0, AUTH_PROOF - 1, true},
			{"too long", WIRE_OP_PROOF, 0, AUTH_PROOF + 1, true},
			{"nothing", WIRE_OP_PROOF, 0, 0, false},
			{"an answer", WIRE_OP_PROOF, WIRE_REPLY, AUTH_PROOF, false},
			{"a push", WIRE_OP_PROOF, WIRE_PUSHED, AUTH_PROOF, false},
			{"another operation", WIRE_OP_PROOF + 1, 0, AUTH_PROOF, true},
		};

		evil = evil_asks(proof);
		evil_send(&pair, evil, data,
			  message(data, kinds[kind].op, kinds[kind].flags, proof, kinds[kind].length,
				  kinds[kind].request));
		expect_cut_off(evil, kinds[kind].what);
	}
	/* Its own proof, sent back. */
	evil = evil_asks(proof);
	evil_send(&pair, evil, data, message(data, WIRE_OP_PROOF, 0, evil->accept.proof, AUTH_PROOF, true));
	expect_cut_off(evil, "a reflection");
	ck_assert_uint_eq(stats().unproved, cut + 1);
	ck_assert_uint_eq(stats().accepted, 0);
	end();
}
END_TEST

/* What one client said once, said again: the server's nonce is another. */
START_TEST(replays)
{
	uint8_t first[AUTH_PROOF], proof[AUTH_PROOF], data[256];
	uint64_t times = suite_part(1000);
	struct evil *evil;

	begin(_i);
	evil = evil_asks(first);
	evil_send(&pair, evil, data, message(data, WIRE_OP_PROOF, 0, first, sizeof(first), true));
	PAIR_UNTIL(&pair, (evil_turn(evil), server[0].records == 1));
	evil_free(evil);
	for (uint64_t i = 0; i < times; i++) {
		evil = evil_asks(proof);
		ck_assert_mem_ne(first, proof, sizeof(proof));
		evil_send(&pair, evil, data, message(data, WIRE_OP_PROOF, 0, first, sizeof(first), true));
		expect_cut_off(evil, "a replay");
	}
	ck_assert_uint_eq(stats().accepted, 1);
	ck_assert_uint_eq(stats().unproved, times);
	end();
}
END_TEST

START_TEST(a_proof_that_does_not_come)
{
	uint8_t proof[AUTH_PROOF];
	struct evil *evil;

	begin(_i);
	evil = evil_asks(proof);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(server[0].closed, 0);
	pair.now += 6 * TIME_S;
	expect_cut_off(evil, "silence");
	end();
}
END_TEST

/* The ones that wait for longest give way, so an honest client comes in beside any number of them. */
START_TEST(a_flood_of_unproved)
{
	struct evil *evil[70];
	uint8_t proof[AUTH_PROOF];

	begin(_i);
	for (unsigned i = 0; i < ARRAY_SIZE(evil); i++)
		evil[i] = evil_asks(proof);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(conn_group_connections(pair.server.group), 64);
	ck_assert_uint_eq(stats().gave_way, ARRAY_SIZE(evil) - 64);
	for (unsigned i = 0; i < ARRAY_SIZE(evil); i++)
		ck_assert_uint_eq(server[i].closed, i < ARRAY_SIZE(evil) - 64);
	connect_with(&key);
	PAIR_UNTIL(&pair, client.established);
	ask(&client);
	PAIR_UNTIL(&pair, server[ARRAY_SIZE(evil)].records == 1);
	for (unsigned i = 0; i < ARRAY_SIZE(evil); i++)
		evil_free(evil[i]);
	PAIR_UNTIL(&pair, conn_group_connections(pair.server.group) == 1);
	end();
}
END_TEST

/* Nor do they hold the memory that it needs for its long messages. */
START_TEST(a_flood_of_long_messages)
{
	struct evil *evil[30];
	uint8_t proof[AUTH_PROOF];
	uint64_t one;

	budget = (struct memory_budget){.limit = 256 * MIB};
	begin(_i);
	evil_size = 1u << 20;
	evil[0] = evil_asks(proof);
	one = budget.used;
	ck_assert_uint_gt(one, 0);
	for (unsigned i = 1; i < ARRAY_SIZE(evil); i++)
		evil[i] = evil_asks(proof);
	conn_pair_rest(&pair);
	ck_assert_uint_gt(stats().gave_way, 0);
	ck_assert_uint_le(budget.used, budget.limit / 4);
	connect_sized(&key, 1u << 20);
	PAIR_UNTIL(&pair, client.established);
	ask(&client);
	PAIR_UNTIL(&pair, server[ARRAY_SIZE(evil)].records == 1);
	for (unsigned i = 0; i < ARRAY_SIZE(evil); i++)
		evil_free(evil[i]);
	PAIR_UNTIL(&pair, conn_group_connections(pair.server.group) == 1 && budget.used <= one);
	end();
	ck_assert_uint_eq(budget.used, 0);
}
END_TEST

/*
 * Limits of a second
 */
static struct auth_clients *clients;

static void take_limited(void *arg, struct fabric_request *request, const struct wire_request *wire,
			 enum wire_reason reason)
{
	struct auth_admission admission = {.client = auth_clients_find(clients, "app")};
	struct conn_attr attr = {.key = asked, .admission = &admission};
	struct wire_accept grant = {.eager_max = 4095, .value_max = 1234567};
	struct peer *p = &server[servers++];

	*p = (struct peer){0};
	ck_assert_int_eq(conn_accept(pair.server.group, request, wire, &grant, &attr, &ops, p, pair.now, &p->conn), 0);
}

/* One request for each message. */
static void ask_once(void)
{
	ask(&client);
	conn_pair_rest(&pair);
}

static unsigned records(void)
{
	return server[0].records + server[1].records;
}

/* It goes on when the time has come and not before, on another connection neither. Nobody is cut off for it. */
START_TEST(over_its_limit_a_client_waits)
{
	static const char line[] = "app kv requests=10\n";
	static const char *const services[] = {"ping", "kv", NULL};
	struct peer first;

	ck_assert_int_eq(auth_clients_parse("rights", line, sizeof(line) - 1, services, &clients), 0);
	begin(_i);
	pair.listener.take = take_limited;
	connect_with(&key);
	PAIR_UNTIL(&pair, client.established);
	for (unsigned i = 0; i < 8; i++)
		ask_once();
	ck_assert_uint_eq(records(), 2);
	ck_assert_uint_eq(stats().paced, 1);
	for (unsigned i = 3; i <= 6; i++) {
		pair.now += TIME_S / 10 - 1;
		conn_pair_rest(&pair);
		ck_assert_uint_eq(records(), i - 1);
		pair.now++;
		conn_pair_rest(&pair);
		ck_assert_uint_eq(records(), i);
	}
	first = client;
	client = (struct peer){0};
	connect_with(&key);
	PAIR_UNTIL(&pair, client.established);
	ask_once();
	ask_once();
	ck_assert_uint_eq(records(), 6);
	pair.now += 2 * TIME_S;
	conn_pair_rest(&pair);
	ck_assert_uint_eq(records(), 9); /* as much as after a short pause */
	pair.now += TIME_S / 5;
	conn_pair_rest(&pair);
	ck_assert_uint_eq(records(), 10);
	ck_assert_uint_eq(stats().stalled, 0);
	ck_assert_uint_eq(server[0].closed + server[1].closed, 0);
	conn_close(first.conn, 0, "the test is over");
	end();
	auth_clients_free(clients);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("prove");
	TCase *tc = suite_case(suite, "in order", NULL, NULL);

	tcase_add_loop_test(tc, both_have_the_key, 0, 3);
	tcase_add_loop_test(tc, own_buffers, 0, 3);
	tcase_add_loop_test(tc, silent_clients_are_proved, 0, 3);
	tcase_add_loop_test(tc, nothing_is_asked, 0, 3);
	tcase_add_loop_test(tc, the_server_has_another_key, 0, 3);
	tc = suite_case(suite, "evil", NULL, NULL);
	tcase_add_loop_test(tc, the_right_proof, 0, 3);
	tcase_add_loop_test(tc, wrong_proofs, 0, 3);
	tcase_add_loop_test(tc, replays, 0, 3);
	tcase_add_loop_test(tc, a_proof_that_does_not_come, 0, 3);
	tcase_add_loop_test(tc, a_flood_of_unproved, 0, 3);
	tcase_add_loop_test(tc, a_flood_of_long_messages, 0, 3);
	tc = suite_case(suite, "limits", NULL, NULL);
	tcase_add_loop_test(tc, over_its_limit_a_client_waits, 0, 3);
	return suite_run(suite);
}
