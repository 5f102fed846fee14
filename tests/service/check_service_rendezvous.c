/*
 * check_service_rendezvous.c: large values for clients without manners, and for one that has some beside them. One thread;
 * librdmad's half is in tests/client/check_rendezvous.c.
 */
#include <sys/resource.h>

#include "tests/conn/conn_pair.h"
#include "tests/service/server.h"
#include "service/kv/kv.h"
#include "tests/suite.h"
#include "tests/service/value.h"

#define TRANSFERS 4 /* of a connection at once: few, so that tests go beyond */
#define ARENA (32 * MIB)
#define VALUE_MAX (2 * MIB) /* a turn moves a part of it */
#define CROWD 1000          /* at most */

static uint8_t *value, *space; /* VALUE_MAX bytes each */
static struct conn_pair pair;
static struct services services;
static struct conn *conn; /* one with manners, of the client's side */
static bool established, closed;
static struct wire_record answer;
static unsigned answers;

static void on_established(struct conn *c)
{
	conn_admit(c);
	established = true;
}

static int on_record(struct conn *c, const struct wire_record *record, const void *body)
{
	(void)c;
	(void)body;
	answer = *record;
	answers++;
	return 0;
}

static void on_closed(struct conn *c, int error, const char *reason)
{
	(void)c;
	(void)error;
	(void)reason;
	closed = true;
	conn = NULL;
}

static const struct conn_ops ops = {
	.established = on_established,
	.record = on_record,
	.closed = on_closed,
};

/* Posts that were taken; and refused, which each second one is, 0: none is. */
static unsigned posts, refuses;
static bool refused_last;

int __real_conn_transfer_chain(struct conn *c, struct conn_transfer *transfer, const struct conn_part *parts,
			       unsigned n);
int __wrap_conn_transfer_chain(struct conn *c, struct conn_transfer *transfer, const struct conn_part *parts,
			       unsigned n);
int __wrap_conn_transfer_chain(struct conn *c, struct conn_transfer *transfer, const struct conn_part *parts,
			       unsigned n)
{
	refused_last = refuses && !refused_last;
	posts += !refused_last;
	if (!refused_last)
		return __real_conn_transfer_chain(c, transfer, parts, n);
	refuses++;
	conn_wait_writable(c);
	return -EAGAIN;
}

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	(void)arg;
	ck_assert_int_eq(reason, WIRE_REASON_NONE);
	services_set_time(&services, pair.now);
	services_take(&services, pair.server.group, request, wire, reason);
}

static void set_up_as(uint64_t transfer_memory, uint64_t value_max, enum store_eviction eviction)
{
	struct conn_group_attr attr = server_group_attr((struct conn_group_attr){
		.transfers = TRANSFERS,
		.receives = 512,
		.max_connections = CROWD + 8,
		.stall_timeout = 10 * TIME_S,
		.reads_in = 16,
	});

	value = malloc(VALUE_MAX);
	space = malloc(VALUE_MAX);
	ck_assert(value && space);
	pair = (struct conn_pair){.listener.take = take};
	established = closed = false;
	answers = 0;
	conn_pair_open(&pair, false, &attr, &attr);
	services_open(&services, &(struct services_options){.arena = ARENA,
							    .value_max = value_max,
							    .transfer_memory = transfer_memory,
							    .eviction = eviction,
							    .domain = pair.server.domain});
}

static void set_up_with(uint64_t transfer_memory)
{
	set_up_as(transfer_memory, VALUE_MAX, STORE_EVICT_NONE);
}

static void set_up(void)
{
	set_up_with(ARENA);
}

/* As a daemon has it: half of the memory. */
static void set_up_evicting(void)
{
	set_up_as(ARENA / 2, ARENA, STORE_EVICT_S3_FIFO);
}

#define HOLD (4 * MIB) /* a quarter of it, one value of 1 MiB, for each */

#define SHORT_HOLD (MIB / 2) /* less than one value */

static void set_up_short_hold(void)
{
	set_up_with(SHORT_HOLD);
}

static void set_up_hold(void)
{
	set_up_with(HOLD);
}

static struct conn_group_stats server_stats(void)
{
	struct conn_group_stats stats;

	conn_group_get_stats(pair.server.group, &stats);
	return stats;
}

/* Clients that were there have gone, and nothing of them is left. */
static void assert_nothing_held(void)
{
	PAIR_UNTIL(&pair, server_stats().connections == 0);
	ck_assert_uint_eq(server_stats().buffers_in_use, 0);
	ck_assert_uint_eq(services_store_stats(&services).pins, 0);
	ck_assert_uint_eq(kv_hold_bytes(services_hold(&services)), 0);
}

static void tear_down(void)
{
	if (conn)
		conn_close(conn, 0, "the test is over");
	conn_pair_rest(&pair);
	assert_nothing_held();
	services_close(&services);
	conn_pair_close(&pair);
	free(value);
	free(space);
}

static void connect_conn(void)
{
	struct wire_request request = {
		.service = WIRE_KV, .version = WIRE_VERSION, .credits = 32, .message_size = 8192};

	ck_assert_int_eq(conn_pair_connect(&pair, &request, NULL, &ops, NULL, &conn), 0);
	PAIR_UNTIL(&pair, established || closed);
	ck_assert(established);
}

/* A body: what the peer says of its memory, and a key. */
static size_t body_of(uint8_t *body, uint64_t addr, uint64_t length, uint32_t rkey, size_t key_len)
{
	struct wire_remote remote = {.addr = addr, .length = length, .rkey = rkey};

	memcpy(body, &remote, sizeof(remote));
	memset(body + sizeof(remote), 'k', key_len);
	return sizeof(remote) + key_len;
}

static void send_record(unsigned op, const void *body, size_t len)
{
	struct wire_record record = {
		.id = answers, .op = (uint8_t)op, .arg = op == WIRE_OP_SET, /* the length of its key */
	};

	PAIR_UNTIL(&pair, closed || conn_say(conn, &record, body, len, NULL, 0));
	ck_assert(!closed);
}

static struct fabric_region *reachable(struct fabric_domain *domain)
{
	struct fabric_region *region;

	ck_assert_int_eq(fabric_register(domain, value, VALUE_MAX, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, &region),
			 0);
	return region;
}

static bool stored(const char *key, size_t len, uint64_t seed)
{
	struct store_ref ref;
	bool is;

	if (!store_get(services.store, key, strlen(key), pair.now, &ref))
		return false;
	is = ref.len == len && value_holds(ref.addr, len, seed);
	store_unpin(services.store, &ref);
	return is;
}

static void store_value(const char *key, size_t len, uint64_t seed)
{
	value_fill(space, len, seed);
	ck_assert_int_eq(store_set(services.store, key, strlen(key), space, len, NULL, pair.now, NULL), 0);
}

/* Cut off: for breaking the protocol, or by the refusal of its own memory. Its keys stay as they were. */
static const struct {
	const char *what;
	uint64_t skip, length;
	uint32_t rkey;
	size_t key_len, cut;
	bool absolute, violation;
} bad_requests[] = {
	{"another key", .length = 5000, .rkey = 1, .key_len = 1},
	{"longer than the region", .length = VALUE_MAX, .skip = 1, .key_len = 1},
	{"before the region", .length = 5000, .skip = (uint64_t)-64, .key_len = 1},
	{"wraps", .skip = UINT64_MAX - 10, .length = 5000, .absolute = true, .key_len = 1, .violation = true},
	{"ends at the end of all", .skip = UINT64_MAX - 4999, .length = 5000, .absolute = true, .key_len = 1,
	 .violation = true},
	{"wraps far", .skip = 1, .length = UINT64_MAX, .absolute = true, .key_len = 1, .violation = true},
	{"nobody's address", .skip = 4096, .length = 5000, .absolute = true, .key_len = 1},
	{"no length", .length = 0, .key_len = 1, .violation = true},
	{"no key", .length = 5000, .key_len = 0, .violation = true},
	{"a key too long", .length = 5000, .key_len = 4096, .violation = true},
	{"a body cut short", .length = 5000, .key_len = 1, .cut = 15, .violation = true},
	{"an empty body", .length = 5000, .key_len = 1, .cut = 25, .violation = true},
};

static void ask_badly(unsigned op, unsigned i)
{
	struct fabric_region *region;
	uint8_t body[8192];
	uint64_t addr = bad_requests[i].skip;
	size_t len;

	store_value("k", 4500, 1);
	connect_conn();
	region = reachable(pair.client.domain);
	if (!bad_requests[i].absolute)
		addr += (uintptr_t)value;
	len = body_of(body, addr, bad_requests[i].length,
		      fabric_region_rkey(region, conn_endpoint(conn)) ^ bad_requests[i].rkey, bad_requests[i].key_len);
	send_record(op, body, len - bad_requests[i].cut);
	PAIR_UNTIL(&pair, closed);
	assert_nothing_held();
	ck_assert_msg(server_stats().violations == bad_requests[i].violation, "%s: %u violations", bad_requests[i].what,
		      (unsigned)server_stats().violations);
	ck_assert_uint_eq(answers, 0);
	ck_assert(stored("k", 4500, 1));
	fabric_deregister(region);
}

START_TEST(test_bad_set)
{
	ask_badly(WIRE_OP_SET_FROM, (unsigned)_i);
}
END_TEST

/* The value fits in what the peer claims, so a region that is only too short is not found out. */
START_TEST(test_bad_get)
{
	if (bad_requests[_i].length == VALUE_MAX)
		return;
	ask_badly(WIRE_OP_GET_INTO, (unsigned)_i);
}
END_TEST

/* Pieces that are not asked for: two of 5000 bytes behind a key of one, but for what is said here. */
static const struct {
	const char *what;
	unsigned count;
	uint32_t key_len, longer;
	uint64_t length, addr; /* of the second; 0: behind the first */
	uint32_t rkey;
	bool refused; /* by the client's memory, and not for breaking the protocol */
} bad_pieces[] = {
	{"no pieces", 0, 1, 0, 0, 0, 0, false},
	{"more than granted", TRANSFERS + 1, 1, 0, 5000, 0, 0, false},
	{"more than there can be", WIRE_PIECES_MAX + 1, 1, 0, 5000, 0, 0, false},
	{"no key", 2, 0, 0, 5000, 0, 0, false},
	{"a key beyond the body", 2, 1000, 0, 5000, 0, 0, false},
	{"a key that takes all", 2, 49, 0, 5000, 0, 0, false},
	{"a key too long", 2, WIRE_KEY_MAX + 1, 0, 5000, 0, 0, false},
	{"half a piece", 2, 1, 12, 5000, 0, 0, false},
	{"a piece of nothing", 2, 1, 0, 0, 0, 0, false},
	{"a sum that overflows", 2, 1, 0, UINT64_MAX - 4999, 1, 0, false},
	{"a piece that wraps", 2, 1, 0, UINT64_MAX - 10000, 0, 0, false},
	{"a piece at the end of all", 2, 1, 0, 5000, UINT64_MAX - 4999, 0, false},
	{"another key", 2, 1, 0, 5000, 0, 1, true},
	{"nobody's address", 2, 1, 0, 5000, 4096, 0, true},
};

static size_t pieces_of(uint8_t *body, size_t head, unsigned i, uint32_t rkey)
{
	uint8_t *at = body + head + 1;

	memset(body, 0, 8192);
	if (head == sizeof(struct wire_fetch))
		memset(body + 8, 0xff, 8); /* all of the value */
	body[head] = 'k';
	for (unsigned n = 0; n < bad_pieces[i].count; n++, at += sizeof(struct wire_remote)) {
		struct wire_remote piece = {(uintptr_t)value + 5000 * n, 5000, rkey, 0};

		if (n == 1) {
			piece.addr = bad_pieces[i].addr ? bad_pieces[i].addr : piece.addr;
			piece.length = bad_pieces[i].length;
			piece.rkey ^= bad_pieces[i].rkey;
		}
		memcpy(at, &piece, sizeof(piece));
	}
	return (size_t)(at - body) + bad_pieces[i].longer;
}

static void ask_for_pieces(unsigned op, size_t head, unsigned i)
{
	uint8_t body[8192];
	struct wire_record record = {.op = (uint8_t)op, .arg = bad_pieces[i].key_len};
	struct fabric_region *region;
	size_t len;

	store_value("k", 9000, 1);
	connect_conn();
	ck_assert_uint_eq(conn_granted(conn)->pieces, TRANSFERS);
	region = reachable(pair.client.domain);
	len = pieces_of(body, head, i, fabric_region_rkey(region, conn_endpoint(conn)));
	ck_assert(conn_say(conn, &record, body, len, NULL, 0));
	PAIR_UNTIL(&pair, closed);
	assert_nothing_held();
	ck_assert_msg(server_stats().violations == !bad_pieces[i].refused, "%s", bad_pieces[i].what);
	ck_assert_uint_eq(answers, 0);
	ck_assert(stored("k", 9000, 1));
	fabric_deregister(region);
}

START_TEST(test_bad_put_of_pieces)
{
	ask_for_pieces(WIRE_OP_PUT_PIECES, sizeof(struct wire_put), (unsigned)_i);
}
END_TEST

START_TEST(test_bad_fetch_of_pieces)
{
	ask_for_pieces(WIRE_OP_FETCH_PIECES, sizeof(struct wire_fetch), (unsigned)_i);
}
END_TEST

static void expect_answer(unsigned status)
{
	unsigned before = answers;

	PAIR_UNTIL(&pair, answers > before || closed);
	ck_assert(!closed);
	ck_assert_uint_eq(answer.status, status);
}

/* What the store cannot take is refused, and what it had stays; what it can make room for is taken. */
START_TEST(test_refused)
{
	struct fabric_region *region;
	uint8_t body[8192];
	char key[16];
	uint32_t rkey;

	connect_conn();
	region = reachable(pair.client.domain);
	rkey = fabric_region_rkey(region, conn_endpoint(conn));
	store_value("k", 5000, 1);
	send_record(WIRE_OP_SET_FROM, body, body_of(body, (uintptr_t)value, VALUE_MAX + 1, rkey, 1));
	expect_answer(WIRE_TOO_LARGE);
	ck_assert_uint_eq(answer.arg, VALUE_MAX);
	for (unsigned i = 0; i < ARENA / 20000; i++) {
		snprintf(key, sizeof(key), "%u", i);
		store_set(services.store, key, strlen(key), space, 20000, NULL, pair.now, NULL);
	}
	send_record(WIRE_OP_SET_FROM, body, body_of(body, (uintptr_t)value, VALUE_MAX, rkey, 1));
	expect_answer(WIRE_NO_MEMORY);
	ck_assert(stored("k", 5000, 1));
	/* Holes enough, but none that is long enough: what lies between them moves. */
	for (unsigned i = 0; i < ARENA / 20000; i += 2) {
		snprintf(key, sizeof(key), "%u", i);
		store_delete(services.store, key, strlen(key), 0, pair.now);
	}
	value_fill(value, VALUE_MAX, 3);
	send_record(WIRE_OP_SET_FROM, body, body_of(body, (uintptr_t)value, VALUE_MAX, rkey, 1));
	expect_answer(WIRE_OK);
	ck_assert(stored("k", VALUE_MAX, 3));
	value_fill(value, 19990, 2);
	send_record(WIRE_OP_SET_FROM, body, body_of(body, (uintptr_t)value, 19990, rkey, 1));
	expect_answer(WIRE_OK);
	ck_assert(stored("k", 19990, 2));
	ck_assert_uint_eq(services_store_stats(&services).pins, 0);
	fabric_deregister(region);
}
END_TEST

/* The memory goes while the server reads or writes it. */
START_TEST(test_deregistered_meanwhile)
{
	struct fabric_region *region;
	uint8_t body[64];

	store_value("k", VALUE_MAX, 1);
	connect_conn();
	region = reachable(pair.client.domain);
	send_record(_i ? WIRE_OP_GET_INTO : WIRE_OP_SET_FROM, body,
		    body_of(body, (uintptr_t)value, VALUE_MAX, fabric_region_rkey(region, conn_endpoint(conn)), 1));
	conn_flush(conn);
	conn_pair_turn(&pair); /* leaves */
	pair.client_stops = true;
	PAIR_UNTIL(&pair, services_store_stats(&services).pins == 1);
	for (unsigned i = 0; i < 10; i++)
		conn_pair_turn(&pair);
	fabric_deregister(region);
	pair.client_stops = false;
	PAIR_UNTIL(&pair, closed);
	assert_nothing_held();
	ck_assert(stored("k", VALUE_MAX, 1));
}
END_TEST

static void evil_join(struct evil *evil)
{
	struct wire_request request = {
		.service = WIRE_KV, .version = WIRE_VERSION, .credits = 32, .message_size = 8192};
	uint8_t data[WIRE_REQUEST_SIZE];

	wire_request_encode(&request, data);
	evil_connect(&pair, evil, data, sizeof(data));
	ck_assert(evil->established);
}

/* Ask for a transfer, and not a turn more: what the server then wants is not served. */
static void evil_ask(struct evil *evil, const struct fabric_region *region, unsigned op, size_t len, const char *key)
{
	struct {
		struct wire_message message;
		struct wire_record record;
		struct wire_remote remote;
		char key[16];
	} m = {.record.op = (uint8_t)op};
	struct fabric_wr wr = {.opcode = FABRIC_SEND, .sge_count = 1, .signaled = true};

	m.record.length = (uint32_t)(sizeof(m.remote) + strlen(key));
	m.message.length = (uint32_t)(sizeof(m.message) + sizeof(m.record) + m.record.length);
	m.remote = (struct wire_remote){(uintptr_t)value, len, fabric_region_rkey(region, evil->endpoint), 0};
	memcpy(m.key, key, strlen(key));
	memcpy(evil->out, &m, m.message.length);
	wr.sge[0] = (struct fabric_sge){evil->out, m.message.length, evil->region};
	ck_assert_int_eq(fabric_post(evil->endpoint, &wr), 0);
	evil_turn(evil);
}

/* A peer dies after any number of turns, of either side. */
START_TEST(test_dies_in_each_state)
{
	struct store_stats before;

	store_value("k", MIB, 1);
	before = services_store_stats(&services);
	for (unsigned turns = 0; turns < 24; turns++) {
		struct evil *evil = evil_new(&pair);
		struct fabric_region *region = reachable(evil->domain);

		evil_join(evil);
		evil_ask(evil, region, _i ? WIRE_OP_GET_INTO : WIRE_OP_SET_FROM, MIB, _i ? "k" : "new");
		for (unsigned i = 0; i < turns; i++) {
			conn_pair_turn(&pair);
			if (turns % 2)
				evil_turn(evil);
		}
		fabric_endpoint_destroy(evil->endpoint);
		evil->endpoint = NULL;
		PAIR_UNTIL(&pair, server_stats().connections == 0);
		assert_nothing_held();
		store_delete(services.store, "new", 3, 0, pair.now);
		ck_assert_uint_eq(services_store_stats(&services).bytes_used, before.bytes_used);
		ck_assert(stored("k", MIB, 1));
		ck_assert_uint_eq(server_stats().violations, 0);
		fabric_deregister(region);
		evil_free(evil);
	}
}
END_TEST

/*
 * Values that others have to be evicted for.
 */
#define FEW 300 /* values that fill the arena */
#define EACH ((uint64_t)ARENA / FEW - 5000)
#define AHEAD (ARENA / 32) /* as rdmad.conf(5) says */

static void fill_store(void)
{
	char key[16];

	for (unsigned i = 0; i < FEW; i++) {
		snprintf(key, sizeof(key), "few%u", i);
		store_value(key, EACH, i);
	}
	ck_assert_uint_eq(services_store_stats(&services).evictions, 0);
}

/* Values that are there are whole. */
static unsigned count_few(void)
{
	struct store_meta meta;
	unsigned n = 0;
	char key[16];

	for (unsigned i = 0; i < FEW; i++) {
		snprintf(key, sizeof(key), "few%u", i);
		if (!store_stat(services.store, key, strlen(key), pair.now, &meta))
			continue;
		ck_assert(stored(key, EACH, i));
		n++;
	}
	return n;
}

/* Eight, one after the other, that ask for a long set: killed at once, or after they stood still for long. */
START_TEST(test_half_way)
{
	static const uint64_t lens[] = {MIB / 2, 8 * MIB, 31 * MIB};

	fill_store();
	for (unsigned n = 0; n < 8; n++) {
		struct evil *evil = evil_new(&pair);
		struct fabric_region *region = reachable(evil->domain);

		evil_join(evil);
		evil_ask(evil, region, WIRE_OP_SET_FROM, lens[_i / 2], "never");
		PAIR_UNTIL(&pair, services_store_stats(&services).pins == 1);
		for (unsigned i = 0; i < 20; i++)
			conn_pair_turn(&pair);
		if (_i % 2) {
			PAIR_UNTIL(&pair, (pair.now += TIME_S) && server_stats().connections == 0);
			ck_assert_uint_eq(server_stats().stalled, n + 1);
		}
		fabric_endpoint_destroy(evil->endpoint);
		evil->endpoint = NULL;
		PAIR_UNTIL(&pair, server_stats().connections == 0);
		assert_nothing_held();
		fabric_deregister(region);
		evil_free(evil);
	}
	ck_assert_uint_ge(count_few(), FEW - AHEAD / EACH - 4); /* and the ones that it begins and ends in */
}
END_TEST

/* One that is served for some turns, and killed: what did not come is not evicted for. */
START_TEST(test_killed_on_the_way)
{
	struct fabric_region *region;
	uint8_t *long_one = malloc(ARENA);
	uint64_t moved = 0, len = 31 * MIB;
	struct evil *evil = evil_new(&pair);
	uint8_t *was = value;

	ck_assert_ptr_nonnull(long_one);
	fill_store();
	value_fill(long_one, len, 9);
	ck_assert_int_eq(fabric_register(evil->domain, long_one, len, FABRIC_REMOTE_READ, &region), 0);
	evil_join(evil);
	value = long_one;
	evil_ask(evil, region, WIRE_OP_SET_FROM, len, "never");
	value = was;
	posts = 0;
	while (moved < 8 * MIB) {
		conn_pair_turn(&pair);
		evil_turn(evil);
		moved = (uint64_t)posts * (AHEAD / 2); /* asked for: two pieces may not be here */
	}
	fabric_endpoint_destroy(evil->endpoint);
	evil->endpoint = NULL;
	PAIR_UNTIL(&pair, server_stats().connections == 0);
	assert_nothing_held();
	ck_assert_uint_eq(services_count(&services, "kv_reads"), 1); /* a value, in however many pieces */
	ck_assert_uint_ge(count_few(), FEW - (moved + AHEAD / 2) / EACH - 4);
	ck_assert_uint_lt(count_few(), FEW - (moved - AHEAD) / EACH + 4);
	fabric_deregister(region);
	evil_free(evil);
	free(long_one);
}
END_TEST

/* With manners, of one piece and of several: it is taken, as often as it comes. */
START_TEST(test_long_into_full)
{
	static const uint64_t lens[] = {2 * MIB, 15 * MIB, 31 * MIB};
	uint64_t len = lens[_i / 2], half = len / 3 / 4096 * 4096 + 5;
	uint8_t *long_one = malloc(ARENA), body[256] = {0};
	struct fabric_region *region;
	char key[2] = "a";

	ck_assert_ptr_nonnull(long_one);
	fill_store();
	connect_conn();
	ck_assert_int_eq(fabric_register(pair.client.domain, long_one, len, FABRIC_REMOTE_READ, &region), 0);
	for (unsigned n = 0; n < 3; n++, key[0]++) {
		uint32_t rkey = fabric_region_rkey(region, conn_endpoint(conn));
		struct wire_remote pieces[] = {{(uintptr_t)long_one, half, rkey, 0},
					       {(uintptr_t)long_one + half, 1, rkey, 0},
					       {(uintptr_t)long_one + half + 1, len - half - 1, rkey, 0}};
		struct wire_record record = {.op = WIRE_OP_PUT_PIECES, .arg = 1};
		size_t head = sizeof(struct wire_put);

		value_fill(long_one, len, n);
		if (_i % 2) {
			body[head] = (uint8_t)key[0];
			memcpy(body + head + 1, pieces, sizeof(pieces));
			ck_assert(conn_say(conn, &record, body, head + 1 + sizeof(pieces), NULL, 0));
		} else {
			body_of(body, (uintptr_t)long_one, len, rkey, 1);
			body[sizeof(pieces[0])] = (uint8_t)key[0];
			send_record(WIRE_OP_SET_FROM, body, sizeof(pieces[0]) + 1);
		}
		expect_answer(WIRE_OK);
		ck_assert(stored(key, len, n));
	}
	count_few();
	fabric_deregister(region);
	free(long_one);
}
END_TEST

/* A device that takes no request now, each second time, the last piece's as well. */
START_TEST(test_long_refused_posts)
{
	uint64_t len = 8 * MIB;
	struct fabric_region *region;
	uint8_t *long_one = malloc(len), body[64];

	ck_assert_ptr_nonnull(long_one);
	fill_store();
	connect_conn();
	ck_assert_int_eq(fabric_register(pair.client.domain, long_one, len, FABRIC_REMOTE_READ, &region), 0);
	value_fill(long_one, len, 9);
	refuses = 1;
	send_record(WIRE_OP_SET_FROM, body,
		    body_of(body, (uintptr_t)long_one, len, fabric_region_rkey(region, conn_endpoint(conn)), 1));
	expect_answer(WIRE_OK);
	ck_assert_uint_gt(refuses, len / (AHEAD / 2));
	refuses = 0;
	ck_assert(stored("k", len, 9));
	fabric_deregister(region);
	free(long_one);
}
END_TEST

/* The log takes no writes any more, while a long set is on its way: nothing is evicted for it from then on. */
START_TEST(test_long_refused_meanwhile)
{
	struct kv_thread *thread = container_of(services.kv, struct kv_thread, part);
	uint64_t len = 31 * MIB, evictions;
	struct fabric_region *region;
	uint8_t *long_one = malloc(len), body[64];

	ck_assert_ptr_nonnull(long_one);
	fill_store();
	connect_conn();
	ck_assert_int_eq(fabric_register(pair.client.domain, long_one, len, FABRIC_REMOTE_READ, &region), 0);
	value_fill(long_one, len, 9);
	send_record(WIRE_OP_SET_FROM, body,
		    body_of(body, (uintptr_t)long_one, len, fabric_region_rkey(region, conn_endpoint(conn)), 1));
	PAIR_UNTIL(&pair, services_store_stats(&services).evictions > FEW / 4);
	evictions = services_store_stats(&services).evictions;
	ck_assert_uint_lt(evictions, FEW / 2);
	atomic_store(&thread->refused, -EROFS);
	expect_answer(WIRE_READ_ONLY);
	ck_assert_uint_eq(services_store_stats(&services).evictions, evictions);
	ck_assert_uint_eq(services_store_stats(&services).pins, 0);
	atomic_store(&thread->refused, 0);
	ck_assert_uint_eq(count_few(), FEW - evictions);
	fabric_deregister(region);
	free(long_one);
}
END_TEST

/* The one with manners is served all the while, by small requests and by large ones. */
static void serve_others(struct fabric_region *region, unsigned rounds)
{
	uint32_t rkey = fabric_region_rkey(region, conn_endpoint(conn));
	uint8_t body[64];

	for (unsigned i = 0; i < rounds; i++) {
		value_fill(value, 20000, i);
		send_record(WIRE_OP_SET_FROM, body, body_of(body, (uintptr_t)value, 20000, rkey, 3));
		expect_answer(WIRE_OK);
		ck_assert(stored("kkk", 20000, i));
		send_record(WIRE_OP_GET_INTO, body, body_of(body, (uintptr_t)value + MIB, 20000, rkey, 3));
		expect_answer(WIRE_OK);
		ck_assert_uint_eq(answer.flags, WIRE_REPLY | WIRE_WRITTEN);
		ck_assert(value_holds(value + MIB, 20000, i));
		send_record(WIRE_OP_EXISTS, "kkk", 3);
		expect_answer(WIRE_OK);
	}
}

static struct evil *crowd[CROWD];
static struct fabric_region *crowd_region[CROWD];

static void crowd_add(unsigned i)
{
	char key[16];

	crowd[i] = evil_new(&pair);
	evil_join(crowd[i]);
	crowd_region[i] = reachable(crowd[i]->domain);
	for (unsigned k = 0; k < TRANSFERS + 2; k++) { /* more than it may */
		snprintf(key, sizeof(key), "crowd%u-%u", i, k);
		evil_ask(crowd[i], crowd_region[i], WIRE_OP_SET_FROM, 5000, key);
	}
}

/* As many as the process may have descriptors for, both ends of each. */
static unsigned crowd_come(void)
{
	struct rlimit limit;
	unsigned before = count_descriptors(), each, size;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	crowd_add(0);
	PAIR_UNTIL(&pair, services_store_stats(&services).pins == TRANSFERS);
	each = count_descriptors() - before;
	size = (unsigned)MIN((limit.rlim_cur - before - 16) / each, (rlim_t)suite_part(CROWD));
	if (size < suite_part(CROWD))
		printf("the crowd is of %u: RLIMIT_NOFILE is %llu\n", size, (unsigned long long)limit.rlim_cur);
	for (unsigned i = 1; i < size; i++)
		crowd_add(i);
	PAIR_UNTIL(&pair, services_store_stats(&services).pins == size * TRANSFERS);
	return size;
}

static void crowd_go(unsigned size)
{
	for (unsigned i = 0; i < size; i++) {
		fabric_deregister(crowd_region[i]);
		evil_free(crowd[i]);
	}
}

/* A thousand clients that ask and never serve the read: they hold what they asked for until they are gone or their time is
 * over, and stand in no client's way. */
START_TEST(test_crowd)
{
	struct fabric_region *region;
	struct store_stats before;
	unsigned fds, size;

	connect_conn();
	region = reachable(pair.client.domain);
	serve_others(region, 2);
	before = services_store_stats(&services);
	fds = count_descriptors();
	size = crowd_come();
	serve_others(region, 10);
	ck_assert_uint_eq(server_stats().connections, 1 + size);
	if (_i) {
		pair.now += 39 * TIME_S;
		serve_others(region, 2);
		ck_assert_uint_eq(server_stats().connections, 1 + size);
		pair.now += 2 * TIME_S;
		PAIR_UNTIL(&pair, server_stats().closed == size);
	}
	crowd_go(size);
	PAIR_UNTIL(&pair, server_stats().connections == 1);
	serve_others(region, 2);
	ck_assert_uint_eq(services_store_stats(&services).pins, before.pins);
	ck_assert_uint_eq(services_store_stats(&services).items, before.items);
	ck_assert_uint_eq(services_store_stats(&services).bytes_used, before.bytes_used);
	PAIR_UNTIL(&pair, count_descriptors() == fds); /* a client that was cut off is told so first */
	fabric_deregister(region);
}
END_TEST

/*
 * What large values under way hold
 */
static struct evil *held[8];
static struct fabric_region *held_region[8];

/* A peer that asks for as many values and serves none of the transfers. */
static void hold_add(unsigned i, unsigned op, unsigned values, size_t len)
{
	char key[16];

	held[i] = evil_new(&pair);
	evil_join(held[i]);
	held_region[i] = reachable(held[i]->domain);
	for (unsigned k = 0; k < values; k++) {
		snprintf(key, sizeof(key), op == WIRE_OP_GET_INTO ? "k" : "held%u-%u", i, k);
		evil_ask(held[i], held_region[i], op, len, key);
	}
}

static void hold_remove(unsigned i)
{
	fabric_deregister(held_region[i]);
	evil_free(held[i]);
}

static void turns(unsigned n)
{
	while (n-- > 0)
		conn_pair_turn(&pair);
}

static uint64_t pins(void)
{
	return services_store_stats(&services).pins;
}

/* All that there may be is held, by four of them. */
static void hold_fill(void)
{
	for (unsigned i = 0; i < 4; i++)
		hold_add(i, WIRE_OP_SET_FROM, 1, MIB);
	PAIR_UNTIL(&pair, pins() == 4);
}

static void hold_remove_all(unsigned from, unsigned end)
{
	while (from < end)
		hold_remove(from++);
}

static unsigned ask_set(struct fabric_region *region, const char *key, size_t len, uint64_t seed)
{
	uint32_t rkey = fabric_region_rkey(region, conn_endpoint(conn));
	uint8_t body[64];

	value_fill(value, len, seed);
	send_record(WIRE_OP_SET_FROM, body, body_of(body, (uintptr_t)value, len, rkey, strlen(key)));
	return answers;
}

/* Of one client's values the first is taken, however many it asks for; others find room. */
START_TEST(test_hold_share)
{
	struct fabric_region *region;

	store_value("k", MIB, 1);
	connect_conn();
	region = reachable(pair.client.domain);
	hold_add(0, _i ? WIRE_OP_GET_INTO : WIRE_OP_SET_FROM, 3, MIB);
	PAIR_UNTIL(&pair, pins() == 1);
	turns(50);
	ck_assert_uint_eq(pins(), 1);
	ck_assert_uint_eq(kv_hold_bytes(services_hold(&services)), MIB);
	ck_assert_uint_eq(services_count(&services, "kv_waits"), 1);
	serve_others(region, 3);
	hold_remove(0);
	PAIR_UNTIL(&pair, server_stats().connections == 1);
	ck_assert_uint_eq(pins(), 0);
	fabric_deregister(region);
}
END_TEST

/* Beyond what all may hold one waits, and goes on when another has gone. Small requests of others do not notice. */
START_TEST(test_hold_limit)
{
	struct fabric_region *region;
	unsigned before;

	connect_conn();
	region = reachable(pair.client.domain);
	hold_fill();
	before = ask_set(region, "k", MIB, 7);
	turns(50);
	ck_assert_uint_eq(answers, before);
	ck_assert_uint_eq(pins(), 4);
	hold_remove(0);
	expect_answer(WIRE_OK);
	ck_assert(stored("k", MIB, 7));
	hold_remove_all(1, 4);
	fabric_deregister(region);
}
END_TEST

/* A value longer than all may hold is not refused for it, and waits no longer than for those before it. */
START_TEST(test_hold_longest)
{
	struct fabric_region *region;
	unsigned before;

	connect_conn();
	region = reachable(pair.client.domain);
	hold_fill();
	before = ask_set(region, "k", VALUE_MAX, 9);
	turns(20);
	for (unsigned i = 0; i < 4; i++) {
		hold_add(4 + i, WIRE_OP_SET_FROM, 1, MIB);
		ck_assert_uint_eq(answers, before);
		hold_remove(i);
		turns(20);
	}
	if (answers == before)
		expect_answer(WIRE_OK);
	ck_assert(stored("k", VALUE_MAX, 9));
	hold_remove_all(4, 8);
	fabric_deregister(region);
}
END_TEST

/* Of transfers that have waited long enough one at a time exceeds the limit, whatever ends at once. */
START_TEST(test_hold_one_beyond)
{
	for (unsigned i = 0; i < 8; i++)
		hold_add(i, WIRE_OP_SET_FROM, 1, i < 4 ? MIB : VALUE_MAX);
	PAIR_UNTIL(&pair, pins() == 4 && services_count(&services, "kv_waits") == 4);
	hold_remove_all(0, 4);
	PAIR_UNTIL(&pair, server_stats().connections == 4);
	turns(50);
	ck_assert_uint_le(kv_hold_bytes(services_hold(&services)), HOLD + VALUE_MAX);
	ck_assert_uint_eq(pins(), 3);
	hold_remove_all(4, 8);
}
END_TEST

/* A value longer than the limit that began alone is the one beyond it: another such waits until it has gone. */
START_TEST(test_hold_two_longest)
{
	hold_add(0, WIRE_OP_SET_FROM, 1, SHORT_HOLD);
	PAIR_UNTIL(&pair, pins() == 1);
	hold_add(1, WIRE_OP_SET_FROM, 1, VALUE_MAX);
	hold_add(2, WIRE_OP_SET_FROM, 1, VALUE_MAX);
	PAIR_UNTIL(&pair, services_count(&services, "kv_waits") == 2);
	hold_remove(0);
	PAIR_UNTIL(&pair, server_stats().connections == 2 && pins() == 1);
	turns(50);
	ck_assert_uint_eq(kv_hold_bytes(services_hold(&services)), VALUE_MAX);
	hold_remove_all(1, 3);
}
END_TEST

/* A value that waits to be sent is not read meanwhile: what it counts as is one read. */
START_TEST(test_hold_waits_unread)
{
	store_value("k", MIB, 1);
	hold_fill();
	hold_add(4, WIRE_OP_GET_INTO, 1, MIB);
	turns(50);
	ck_assert_uint_eq(services_count(&services, "kv_waits"), 1);
	ck_assert_uint_eq(services_store_stats(&services).hits, 0);
	hold_remove(0);
	PAIR_UNTIL(&pair, services_store_stats(&services).hits == 1);
	hold_remove_all(1, 5);
}
END_TEST

/* A store that is full for what may never come is not full yet. */
START_TEST(test_hold_full)
{
	struct fabric_region *region;
	char key[16], small[100] = {0};
	unsigned before = 0;
	uint64_t refused;

	connect_conn();
	region = reachable(pair.client.domain);
	hold_add(0, WIRE_OP_SET_FROM, 1, MIB);
	PAIR_UNTIL(&pair, pins() == 1);
	for (unsigned i = 0; i < ARENA / 20000; i++) {
		snprintf(key, sizeof(key), "%u", i);
		store_set(services.store, key, strlen(key), space, 20000, NULL, pair.now, NULL);
	}
	if (_i) {
		while (store_set(services.store, key, (size_t)snprintf(key, sizeof(key), "s%u", before++), small,
				 sizeof(small), NULL, pair.now, NULL) == 0)
			;
		before = answers;
		small[0] = 's';
		refused = services_store_stats(&services).out_of_memory;
		send_record(WIRE_OP_SET, small, sizeof(small));
	} else {
		refused = services_store_stats(&services).out_of_memory;
		before = ask_set(region, "k", 900 * 1024, 3);
	}
	turns(50);
	ck_assert_uint_eq(answers, before);
	hold_remove(0);
	expect_answer(WIRE_OK);
	ck_assert_uint_eq(services_count(&services, "kv_waits"), 1);
	ck_assert_uint_eq(services_store_stats(&services).out_of_memory, refused); /* which only waited */
	fabric_deregister(region);
}
END_TEST

/*
 * Gets that come again
 */
static void ask_get(uint32_t id, const char *key)
{
	struct wire_record record = {.id = id, .op = WIRE_OP_GET, .flags = WIRE_AGAIN};

	ck_assert(conn_say(conn, &record, key, 1, NULL, 0));
	expect_answer(WIRE_TOO_LARGE);
}

static void ask_again(struct fabric_region *region, uint32_t id, const char *key)
{
	struct wire_remote remote = {(uintptr_t)value, VALUE_MAX, fabric_region_rkey(region, conn_endpoint(conn)), 0};
	struct wire_record record = {.id = id, .op = WIRE_OP_GET_INTO, .flags = WIRE_AGAIN};

	ck_assert(conn_say(conn, &record, &remote, sizeof(remote), key, 1));
}

static void ask_key(unsigned op, uint32_t id, const char *key)
{
	struct wire_record record = {.id = id, .op = (uint8_t)op};

	ck_assert(conn_say(conn, &record, key, 1, NULL, 0));
	expect_answer(WIRE_OK);
}

#define UNUSED_ID 1000

/* What they are to have is pinned when it is replaced, not before, and as much of it as one client may hold. */
START_TEST(test_again_share)
{
	struct fabric_region *region;

	connect_conn();
	region = reachable(pair.client.domain);
	for (uint32_t i = 0; i < 3; i++) {
		char key[] = {(char)('a' + i), '\0'};

		store_value(key, MIB, i);
		ask_get(i, key);
		ck_assert_uint_eq(pins(), i ? 1 : 0);
		ask_key(WIRE_OP_DELETE, UNUSED_ID, key);
		ck_assert_uint_eq(pins(), 1);
	}
	ask_again(region, 0, "a");
	expect_answer(WIRE_OK);
	ck_assert(value_holds(value, MIB, 0));
	PAIR_UNTIL(&pair, pins() == 0);
	for (uint32_t i = 1; i < 3; i++) {
		char key[] = {(char)('a' + i), '\0'};

		ask_again(region, i, key);
		expect_answer(WIRE_STALE);
	}
	ask_again(region, 1, "b"); /* of that nothing is known any more */
	expect_answer(WIRE_NOT_FOUND);
	fabric_deregister(region);
}
END_TEST

/* It is kept for 10 seconds, though no client says a word. */
START_TEST(test_again_time)
{
	struct fabric_region *region;

	connect_conn();
	region = reachable(pair.client.domain);
	store_value("k", MIB, 1);
	ask_get(1, "k");
	ask_get(2, "k");
	ask_key(WIRE_OP_DELETE, UNUSED_ID, "k");
	ck_assert_uint_eq(pins(), 2);
	ck_assert_uint_le(services_deadline(&services), pair.now + 10 * TIME_S);
	services_set_time(&services, pair.now + 9 * TIME_S);
	services_turn(&services);
	ck_assert_uint_eq(pins(), 2);
	services_set_time(&services, pair.now + 11 * TIME_S);
	services_turn(&services);
	ck_assert_uint_eq(pins(), 0);
	ck_assert_uint_eq(services_deadline(&services), TIME_NEVER);
	ask_again(region, 2, "k");
	expect_answer(WIRE_STALE);
	fabric_deregister(region);
}
END_TEST

/* It does not come, and says so, or goes. */
START_TEST(test_again_given_up)
{
	connect_conn();
	store_value("k", MIB, 1);
	store_value("e", MIB, 1);
	ask_get(1, "k");
	ask_get(2, "e");
	ask_key(WIRE_OP_DELETE, UNUSED_ID, "k");
	ck_assert_uint_eq(pins(), 1);
	ask_key(WIRE_OP_EXISTS, 1, "e");
	ck_assert_uint_eq(pins(), 0);
	ask_key(WIRE_OP_DELETE, UNUSED_ID, "e");
	ck_assert_uint_eq(pins(), 1);
}
END_TEST

/* There was nothing, or another client's, when the first write behind it came; what is longer by then, it asks for once more. */
START_TEST(test_again_changed)
{
	struct fabric_region *region;

	connect_conn();
	region = reachable(pair.client.domain);
	store_value("k", MIB, 1);
	ask_get(1, "k");
	ask_get(2, "k");
	store_delete(services.store, "k", 1, 0, pair.now);
	send_record(WIRE_OP_SET, "kv", 2);
	expect_answer(WIRE_OK);
	ask_again(region, 1, "k");
	expect_answer(WIRE_NOT_FOUND);
	store_value("k", 5000, 2);
	ask_get(3, "k");
	store_value("k", VALUE_MAX, 3);
	ask_key(WIRE_OP_DELETE, UNUSED_ID, "k");
	ask_again(region, 3, "k");
	expect_answer(WIRE_OK);
	ck_assert(value_holds(value, VALUE_MAX, 3));
	fabric_deregister(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("service rendezvous");
	TCase *peers = suite_case(suite, "peers", set_up, tear_down);
	TCase *evicting = suite_case(suite, "evicting", set_up_evicting, tear_down);
	TCase *hold = suite_case(suite, "hold", set_up_hold, tear_down);
	TCase *short_hold = suite_case(suite, "short hold", set_up_short_hold, tear_down);

	log_set_handler(log_keep);
	tcase_add_loop_test(peers, test_bad_set, 0, ARRAY_SIZE(bad_requests));
	tcase_add_loop_test(peers, test_bad_get, 0, ARRAY_SIZE(bad_requests));
	tcase_add_loop_test(peers, test_bad_put_of_pieces, 0, ARRAY_SIZE(bad_pieces));
	tcase_add_loop_test(peers, test_bad_fetch_of_pieces, 0, ARRAY_SIZE(bad_pieces));
	tcase_add_test(peers, test_refused);
	tcase_add_loop_test(peers, test_deregistered_meanwhile, 0, 2);
	tcase_add_loop_test(peers, test_dies_in_each_state, 0, 2);
	tcase_add_loop_test(peers, test_crowd, 0, 2);
	tcase_add_loop_test(evicting, test_half_way, 0, 6);
	tcase_add_test(evicting, test_killed_on_the_way);
	tcase_add_loop_test(evicting, test_long_into_full, 0, 6);
	tcase_add_test(evicting, test_long_refused_posts);
	tcase_add_test(evicting, test_long_refused_meanwhile);
	tcase_add_loop_test(hold, test_hold_share, 0, 2);
	tcase_add_test(hold, test_hold_limit);
	tcase_add_test(hold, test_hold_longest);
	tcase_add_test(hold, test_hold_one_beyond);
	tcase_add_test(short_hold, test_hold_two_longest);
	tcase_add_test(hold, test_hold_waits_unread);
	tcase_add_loop_test(hold, test_hold_full, 0, 2);
	tcase_add_test(hold, test_again_share);
	tcase_add_test(peers, test_again_time);
	tcase_add_test(peers, test_again_given_up);
	tcase_add_test(peers, test_again_changed);
	return suite_run(suite);
}
