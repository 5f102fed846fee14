/* check_peer_resume.c: messages over connections that break, against a model; and records that a hostile peer may send. */
#include "peer/links/connect.h"
#include "peer/messages/message.h"
#include "tests/peer/peer_pair.h"
#include "tests/suite.h"

#include <unistd.h>

static struct peer_pair pair;

static void up(void)
{
	rdma_options options = {.reconnect_ms = 600000};

	peer_pair_up(&pair, 1, &options);
}

static void up_plain(void)
{
	peer_pair_up(&pair, 1, NULL);
}

static void down(void)
{
	peer_pair_down(&pair);
}

/*
 * A model: of each way and class the messages that were sent, in order; each is received once, in the order of its class.
 */
#define ROOM 40000
#define UNDER_WAY 64

struct sending {
	rdma_request *request;
	size_t len;
	char *data;
};

struct way {
	rdma_context *from, *to;
	unsigned next[PEER_CLASSES], got[PEER_CLASSES]; /* numbers */
	unsigned sends, receives;
	struct sending sent[UNDER_WAY];
	rdma_request *receive[UNDER_WAY];
	char *into[UNDER_WAY];
	uint64_t left, came;
};

static unsigned state = 1;

static unsigned chance(unsigned below)
{
	state = state * 1103515245u + 12345u;
	return (state >> 8) % below;
}

static size_t random_length(void)
{
	switch (chance(6)) {
	case 0:
		return 8 + chance(ROOM - 8);
	case 1:
		return 4090 + chance(12);
	default:
		return 8 + chance(300);
	}
}

/* The class and its number are in the message, and what they were filled with. */
static void way_send(struct way *way)
{
	struct sending *sent = &way->sent[way->sends];
	unsigned head[2] = {chance(PEER_CLASSES), 0};

	if (way->sends == UNDER_WAY)
		return;
	head[1] = way->next[head[0]]++;
	sent->len = random_length();
	sent->data = malloc(sent->len);
	peer_pair_fill(sent->data, sent->len, head[1]);
	memcpy(sent->data, head, sizeof(head));
	ck_assert_int_eq(rdma_send_class(way->from, (int)head[0]), 0);
	sent->request = rdma_isend(way->from, 0, sent->data, sent->len);
	ck_assert_msg(sent->request, "%s", rdma_get_error());
	way->sends++;
	way->left++;
}

static void way_receive(struct way *way)
{
	if (way->receives == UNDER_WAY)
		return;
	way->into[way->receives] = malloc(ROOM);
	way->receive[way->receives] = rdma_irecv(way->to, 0, way->into[way->receives], ROOM);
	ck_assert_msg(way->receive[way->receives], "%s", rdma_get_error());
	way->receives++;
}

static void way_came(struct way *way, const char *data, int64_t len)
{
	unsigned head[2];
	char *expected = malloc((size_t)len);

	ck_assert_msg(len >= 8, "%s", rdma_get_error());
	memcpy(head, data, sizeof(head));
	ck_assert_uint_lt(head[0], PEER_CLASSES);
	peer_pair_fill(expected, (size_t)len, head[1]);
	ck_assert_msg(memcmp(data + 8, expected + 8, (size_t)len - 8) == 0, "message %u of class %u", head[1], head[0]);
	free(expected);
	ck_assert_msg(head[1] == way->got[head[0]], "message %u of class %u, not %u", head[1], head[0],
		      way->got[head[0]]);
	way->got[head[0]]++;
	way->came++;
}

/* Receives complete in any order, as long messages take longer, but were matched in that of their coming: looked at in order. */
static void way_look(struct way *way)
{
	int64_t result;

	while (way->receives && rdma_test(way->receive[0], &result)) {
		way_came(way, way->into[0], result);
		free(way->into[0]);
		way->receives--;
		memmove(way->receive, way->receive + 1, way->receives * sizeof(way->receive[0]));
		memmove(way->into, way->into + 1, way->receives * sizeof(way->into[0]));
	}
	for (unsigned i = 0; i < way->sends;) {
		struct sending *sent = &way->sent[i];

		if (!rdma_test(sent->request, &result)) {
			i++;
			continue;
		}
		ck_assert_msg(result == (int64_t)sent->len, "%s", rdma_get_error());
		memset(sent->data, 0xee, sent->len); /* it is ours again */
		free(sent->data);
		*sent = way->sent[--way->sends];
	}
}

static void way_step(struct way *way)
{
	switch (chance(5)) {
	case 0:
	case 1:
		way_send(way);
		break;
	case 2:
	case 3:
		way_receive(way);
		break;
	default:
		way_look(way);
	}
}

static void way_finish(struct way *way)
{
	while (way->came < way->left || way->sends) {
		if (way->came + way->receives < way->left)
			way_receive(way);
		way_look(way);
		peer_pair_turn(&pair);
	}
	while (way->receives) {
		ck_assert_int_eq(rdma_cancel(way->receive[--way->receives]), 0);
		free(way->into[way->receives]);
	}
}

static void run_model(unsigned seed, unsigned steps, unsigned breaks)
{
	struct way there = {.from = pair.server, .to = pair.client[0]};
	struct way back = {.from = pair.client[0], .to = pair.server};

	state = seed;
	for (unsigned i = 0; i < steps; i++) {
		way_step(&there);
		way_step(&back);
		if (breaks && chance(breaks) == 0)
			peer_pair_break(&pair, 0);
		if (chance(3) == 0)
			peer_pair_turn(&pair);
	}
	way_finish(&there);
	way_finish(&back);
}

START_TEST(random_messages_come_once_and_in_order)
{
	run_model((unsigned)_i + 1, 3000, 0);
}
END_TEST

START_TEST(they_do_so_over_connections_that_break)
{
	run_model((unsigned)_i + 100, 1500, 150);
}
END_TEST

/* The old connection's end and the next one may be of one turn, so what is looked at is what stays of it. */
static void break_and_resume(void)
{
	struct peer *peer = pair.server->peer[0];

	peer->session->broken_why[0] = '\0';
	peer_pair_break(&pair, 0);
	while (!peer->session->broken_why[0] || peer->state == PEER_BROKEN)
		peer_pair_turn(&pair);
	ck_assert_int_eq(peer->state, PEER_CONNECTED);
}

START_TEST(a_message_under_way_goes_on_after_the_connection_broke)
{
	size_t len = 32 << 20;
	char *from = malloc(len), *to = malloc(len);
	rdma_request *sent, *received;

	peer_pair_fill(from, len, 3);
	received = rdma_irecv(pair.client[0], 0, to, len);
	sent = rdma_isend(pair.server, 0, from, len);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned turn = 0; turn < 10; turn++)
			peer_pair_turn(&pair);
		ck_assert(!received->complete);
		break_and_resume();
	}
	ck_assert_int_eq(peer_pair_end(&pair, received), (int64_t)len);
	ck_assert_int_eq(peer_pair_end(&pair, sent), (int64_t)len);
	ck_assert(peer_pair_is_filled(to, len, 3));
	free(from);
	free(to);
}
END_TEST

/*
 * Hostile peers. Records are handed over as if they came.
 */
static struct peer *victim(void) /* NULL: it has gone */
{
	return peer_at(pair.server, 0);
}

static int hand(uint8_t op, uint8_t flags, uint32_t id, const void *body, uint32_t length)
{
	struct {
		struct wire_record record;
		char body[PEER_EAGER_MAX + 64];
	} *message = calloc(1, sizeof(*message));
	int rc;

	message->record = (struct wire_record){.op = op, .flags = flags, .id = id, .length = length};
	if (length)
		memcpy(message->body, body, length);
	rdma_enter(pair.server);
	rc = message_record(victim(), &message->record, message->body);
	rdma_leave(pair.server);
	free(message);
	return rc;
}

/* Its connection ends with words; the context goes on. */
static void check_ended(const char *words)
{
	while (rdma_peers(pair.server))
		rdma_progress(pair.server);
	ck_assert_int_eq(rdma_send(pair.server, 0, "x", 1), -1);
	ck_assert_msg(strstr(rdma_get_error(), words), "%s", rdma_get_error());
}

static int hand_offer(struct wire_peer_offer offer, uint8_t flags, uint32_t id)
{
	return hand(WIRE_OP_PEER_OFFER, flags, id, &offer, sizeof(offer));
}

static const struct {
	uint8_t op, flags;
	uint32_t id, length;
	uint64_t word[6];
	const char *words;
} bad[] = {
	{WIRE_OP_PEER_DATA, 0, 1, 8, {0}, "is the next"},
	{WIRE_OP_PEER_DATA, 3, 0, 8, {0}, "class 3"},
	{WIRE_OP_PEER_DATA, 0, 0, 7, {0}, "short message of 7 bytes"},
	{WIRE_OP_PEER_DATA, 0, 0, PEER_EAGER_MAX + 9, {0}, "short message of 4105 bytes"},
	{WIRE_OP_PEER_DATA, 1, 0, 12, {1}, "control message of 4 bytes"},
	{WIRE_OP_PEER_DATA, 1, 0, 16, {1, 99}, "kind 99"},
	{WIRE_OP_PEER_TAKEN, 0, 0, 0, {0}, "not offered"},
	{WIRE_OP_PEER_TAKEN, 0, 0, 8, {0}, "8 bytes"},
	{WIRE_OP_PEER_CONFIRM, 0, 0, 48, {1, 0, 0, 70000, 70000, 70000}, "confirms 1 messages"},
	{WIRE_OP_PEER_CONFIRM, 0, 0, 48, {0, 0, 0, 1, 1, 1}, "takes back room"},
	{WIRE_OP_PEER_CONFIRM, 0, 0, 40, {0}, "confirmation of 40 bytes"},
	{WIRE_OP_PEER_OFFER, 0, 0, 39, {0}, "offer of 39 bytes"},
	{WIRE_OP_PEER_OFFER, 0, 0, 40, {0, 10, 0, 10}, "offer of 10 bytes"},
	{WIRE_OP_PEER_OFFER, 0, 0, 40, {0, 1ull << 63, 0, 0}, "offer of"},
	{WIRE_OP_PEER_OFFER, 0, 0, 40, {0, 1 << 20, UINT64_MAX - 5, 1 << 20}, "offer of"},
	{WIRE_OP_PEER_OFFER, 0, 0, 40, {0, 1 << 20, 4096, 2 << 20}, "offer of"},
	{WIRE_OP_PEER_OFFER, 0, 0, 40, {1, 1 << 20, 4096, 1 << 20}, "stream 1"},
	{WIRE_OP_PEER_OFFER, WIRE_PEER_MORE, 5, 40, {0}, "not made"},
	{WIRE_OP_PEER_OFFER, WIRE_PEER_AGAIN, 5, 40, {0}, "not made"},
	{WIRE_OP_PEER_JOIN, 0, 0, 0, {0}, "does not belong here"},
	{WIRE_OP_ECHO, 0, 0, 0, {0}, "does not belong here"},
};

START_TEST(what_breaks_the_protocol_ends_the_connection_with_words)
{
	char body[PEER_EAGER_MAX + 64] = {0};

	memcpy(body, bad[_i].word, sizeof(bad[_i].word));
	ck_assert_int_eq(hand(bad[_i].op, bad[_i].flags, bad[_i].id, body, bad[_i].length), -EPROTO);
	check_ended(bad[_i].words);
}
END_TEST

START_TEST(more_than_the_room_ends_the_connection)
{
	char body[8 + 4096] = {0};
	unsigned n = 0;

	while (n < 100 && hand(WIRE_OP_PEER_DATA, 0, n, body, sizeof(body)) == 0)
		n++;
	ck_assert_uint_eq(n, 16);
	check_ended("wait to be received");
}
END_TEST

/* It reads, but gives no room for what it is answered: the answers do not pile up for ever. */
START_TEST(who_asks_and_takes_no_answers_is_stopped)
{
	struct {
		struct wire_peer_data data;
		struct wire_peer_control head;
		struct wire_window_ask ask;
	} body = {.data = {PEER_STREAM_CONTROL}, .head = {.kind = WIRE_CONTROL_WINDOW_ASK}, .ask = {.id = 12345}};
	unsigned n = 0;

	victim()->message->use_in[MESSAGE_CONTROL].told = 1ull << 60;
	while (hand(WIRE_OP_PEER_DATA, RDMA_URGENT, n, &body, sizeof(body)) == 0)
		ck_assert_uint_lt(++n, 100000);
	check_ended("makes no room");
}
END_TEST

/* Its index stays, what its messages were kept in does not. */
START_TEST(a_peer_that_has_gone_keeps_little)
{
	struct peer_message *m = victim()->message;
	char data[4096] = {0};

	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(rdma_send(pair.client[0], 0, data, sizeof(data)), sizeof(data));
	while (rdma_probe(pair.server, 0, 0) < 0)
		;
	ck_assert_int_eq(rdma_recv(pair.server, 0, data, sizeof(data)), sizeof(data));
	while (rdma_probe(pair.server, 0, 0) < 0)
		;
	ck_assert(!list_empty(&m->spare[MESSAGE_STORED_SIZES - 1]));
	peer_pair_break(&pair, 0);
	while (victim() && (rdma_peers(pair.server) || victim()->conn))
		rdma_progress(pair.server);
	ck_assert(list_empty(&m->spare[MESSAGE_STORED_SIZES - 1]));
	ck_assert_int_eq(rdma_recv(pair.server, 0, data, sizeof(data)), sizeof(data)); /* what had come is there */
	ck_assert(list_empty(&m->spare[MESSAGE_STORED_SIZES - 1]));
}
END_TEST

/* Each turn looks at those with a limit: not at all that ever were. */
START_TEST(a_peer_that_has_gone_has_no_limit)
{
	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 10), 0);
	ck_assert(!list_empty(&pair.server->limited));
	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 0), 0);
	ck_assert(list_empty(&pair.server->limited));
	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 10), 0);
	peer_pair_break(&pair, 0);
	while (!list_empty(&pair.server->limited))
		rdma_progress(pair.server);
	ck_assert_int_eq(rdma_peers(pair.server), 0);
}
END_TEST

START_TEST(an_offer_is_not_made_another)
{
	struct wire_peer_offer offer = {.length = 1 << 20, .addr = 4096, .ready = 8192, .rkey = 1};

	ck_assert_int_eq(hand_offer(offer, 0, 0), 0);
	offer.ready = 4096;
	ck_assert_int_eq(hand_offer(offer, WIRE_PEER_MORE, 0), -EPROTO);
	check_ended("may be read");
}
END_TEST

/* It does not wait for what does not come, and touches nothing: the peer is gone. */
START_TEST(an_offer_of_what_is_not_there_ends_the_connection)
{
	static char to[1 << 20];
	struct wire_peer_offer offer = {.length = sizeof(to), .addr = 4096, .ready = sizeof(to), .rkey = 12345};
	rdma_request *request = rdma_irecv(pair.server, 0, to, sizeof(to));
	int64_t result = 0;

	ck_assert_int_eq(hand_offer(offer, 0, 0), 0);
	while (!rdma_test(request, &result))
		peer_pair_turn(&pair);
	ck_assert_int_eq(result, -1);
	ck_assert_msg(strstr(rdma_get_error(), "Peer not connected"), "%s", rdma_get_error());
}
END_TEST

/* A length, and then death. */
START_TEST(a_peer_that_dies_behind_its_offer_ends_the_receive)
{
	static char from[1 << 20], to[1 << 20];
	rdma_request *sent = rdma_isend(pair.client[0], 0, from, sizeof(from)), *request;
	int64_t result = 0;

	ck_assert_ptr_nonnull(sent);
	while (rdma_probe(pair.server, 0, 0) < 0)
		;
	request = rdma_irecv(pair.server, 0, to, sizeof(to));
	peer_pair_break(&pair, 0);
	while (!rdma_test(request, &result))
		;
	if (result == sizeof(to))
		ck_assert_int_eq(memcmp(from, to, sizeof(to)), 0); /* a device was faster */
	else
		ck_assert_msg(result == -1 && rdma_get_errno() == ECONNRESET, "%lld: %s", (long long)result,
			      rdma_get_error());
}
END_TEST

/* Thousands of records of any content, mostly near to right ones. */
START_TEST(random_records_harm_nothing)
{
	static char to[8192];
	rdma_request *receive[8];
	uint32_t next[4] = {0};

	state = (unsigned)_i * 7919 + 1;
	for (unsigned i = 0; i < ARRAY_SIZE(receive); i++)
		receive[i] = rdma_irecv(pair.server, 0, to + i * 1000, i * 140);
	for (unsigned i = 0; i < 3000 && victim() && victim()->state == PEER_CONNECTED; i++) {
		static const uint8_t ops[] = {WIRE_OP_PEER_DATA, WIRE_OP_PEER_DATA, WIRE_OP_PEER_OFFER,
					      WIRE_OP_PEER_CONFIRM};
		static const uint64_t streams[] = {PEER_STREAM_PROGRAM, PEER_STREAM_EXCHANGE, 1ull << 32,
						   5ull << 32 | 7};
		unsigned message_class = chance(3), op = ops[chance(ARRAY_SIZE(ops))];
		uint8_t flags = (uint8_t)message_class;
		uint64_t body[1024] = {0};
		uint32_t length = op == WIRE_OP_PEER_OFFER ? 40 : op == WIRE_OP_PEER_CONFIRM ? 48 : 8 + chance(600);

		body[0] = streams[chance(4)];
		if (op == WIRE_OP_PEER_OFFER) {
			body[1] = 5000 + chance(100000);
			body[2] = 4096;
			body[3] = chance(5000);
			flags |= chance(10) ? 0 : (uint8_t)(4u << chance(3));
		} else if (op == WIRE_OP_PEER_CONFIRM) {
			body[0] = 0;
			body[3] = body[4] = body[5] = chance(2) ? 70000 : UINT64_MAX;
		}
		if (chance(300) == 0)
			op = chance(3) ? WIRE_OP_PEER_TAKEN : chance(256);
		if (chance(300) == 0)
			((uint8_t *)body)[chance(64)] ^= (uint8_t)(1u << chance(8));
		if (chance(400) == 0)
			length = chance(5000) % sizeof(body);
		if (hand((uint8_t)op, flags, flags > 3 ? chance(10) : next[message_class] + (chance(400) == 0), body,
			 MIN(length, (uint32_t)PEER_EAGER_MAX + 64)) != 0)
			break;
		next[message_class] = (uint32_t)victim()->message->next_in[message_class];
		while (rdma_probe(pair.server, 0, 0) >= 0 && rdma_probe(pair.server, 0, 0) <= PEER_EAGER_MAX)
			rdma_recv(pair.server, 0, to, sizeof(to));
	}
	rdma_enter(pair.server);
	if (victim() && victim()->conn)
		conn_close(victim()->conn, -EPROTO, "the test is over");
	rdma_leave(pair.server);
	for (unsigned i = 0; i < ARRAY_SIZE(receive); i++)
		peer_pair_end(&pair, receive[i]);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("peer resume");
	TCase *tc;
	int seeds = 5;

	if (argc > 1) {
		peer_pair_use(argv[1]);
		seeds = (int)suite_part(20);
	}
	tc = suite_case(suite, "model", up, down);
	tcase_add_loop_test(tc, random_messages_come_once_and_in_order, 0, seeds);
	tcase_add_loop_test(tc, they_do_so_over_connections_that_break, 0, 2 * seeds);
	tcase_add_test(tc, a_message_under_way_goes_on_after_the_connection_broke);
	tc = suite_case(suite, "hostile", up_plain, down);
	tcase_add_loop_test(tc, what_breaks_the_protocol_ends_the_connection_with_words, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, more_than_the_room_ends_the_connection);
	tcase_add_test(tc, who_asks_and_takes_no_answers_is_stopped);
	tcase_add_test(tc, a_peer_that_has_gone_keeps_little);
	tcase_add_test(tc, a_peer_that_has_gone_has_no_limit);
	tcase_add_test(tc, an_offer_is_not_made_another);
	tcase_add_test(tc, an_offer_of_what_is_not_there_ends_the_connection);
	tcase_add_test(tc, a_peer_that_dies_behind_its_offer_ends_the_receive);
	tcase_add_loop_test(tc, random_records_harm_nothing, 0, 40);
	return suite_run(suite);
}
