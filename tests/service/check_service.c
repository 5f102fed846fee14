/* check_service.c: ping and kv through a pair of connections, against a real store. */
#include "service/text/text.h"
#include "tests/conn/conn_pair.h"
#include "tests/service/server.h"
#include "tests/suite.h"

#define ARENA (4 * MIB)

/* What came back: each reply copied, in order. */
struct reply {
	struct wire_record record;
	uint8_t body[8192];
};

static struct conn_pair pair;
static struct conn *conn;
static bool established, closed;
static char why[200];
static struct reply replies[4096];
static unsigned got;
static struct services services;
static bool keep_bodies;

static void on_established(struct conn *c)
{
	established = true;
}

static int on_record(struct conn *c, const struct wire_record *record, const void *body)
{
	struct reply *r = &replies[got++ % ARRAY_SIZE(replies)];

	r->record = *record;
	if (keep_bodies)
		memcpy(r->body, body, MIN(record->length, sizeof(r->body)));
	return 0;
}

static void on_closed(struct conn *c, int error, const char *reason)
{
	closed = true;
	conn = NULL;
	snprintf(why, sizeof(why), "%s", reason);
}

static const struct conn_ops ops = {
	.established = on_established,
	.record = on_record,
	.closed = on_closed,
};

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	services_set_time(&services, pair.now);
	services_take(&services, pair.server.group, request, wire, reason);
}

static void set_up(void)
{
	struct conn_group_attr attr =
		server_group_attr((struct conn_group_attr){.receives = 256, .max_connections = 8});

	services_open(&services, &(struct services_options){.arena = ARENA});
	pair = (struct conn_pair){.listener.take = take};
	established = closed = false;
	keep_bodies = true;
	got = 0;
	conn_pair_open(&pair, false, &attr, &attr);
}

static void tear_down(void)
{
	if (conn)
		conn_close(conn, 0, "the test is over");
	conn_pair_rest(&pair);
	ck_assert_ptr_null(conn);
	conn_pair_close(&pair);
	services_close(&services);
}

static void connect_with(struct wire_request request)
{
	request.version = WIRE_VERSION;
	if (!request.credits)
		request.credits = 32;
	if (!request.message_size)
		request.message_size = 8192;
	ck_assert_int_eq(conn_pair_connect(&pair, &request, NULL, &ops, NULL, &conn), 0);
	PAIR_UNTIL(&pair, established || closed);
}

static void connect_kv(void)
{
	connect_with((struct wire_request){.service = WIRE_KV});
	ck_assert(established);
}

static void submit_raw(unsigned op, unsigned flags, uint32_t arg, const void *head, size_t head_len, const void *rest,
		       size_t rest_len)
{
	static uint32_t id;
	struct wire_record record = {.id = ++id, .op = (uint8_t)op, .flags = (uint8_t)flags, .arg = arg};

	PAIR_UNTIL(&pair, conn_say(conn, &record, head, head_len, rest, rest_len));
}

static void submit(unsigned op, const void *key, size_t key_len, const void *value, size_t value_len)
{
	submit_raw(op, 0, (uint32_t)key_len, key, key_len, value, value_len);
}

/* One request and its answer. */
static struct reply *ask_raw(unsigned op, unsigned flags, uint32_t arg, const void *head, size_t head_len,
			     const void *rest, size_t rest_len)
{
	unsigned before = got;
	struct reply *r = &replies[before % ARRAY_SIZE(replies)];

	submit_raw(op, flags, arg, head, head_len, rest, rest_len);
	PAIR_UNTIL(&pair, got > before || closed);
	ck_assert(!closed);
	ck_assert_uint_eq(r->record.op, op);
	ck_assert_uint_eq(r->record.flags, WIRE_REPLY);
	return r;
}

static struct reply *ask(unsigned op, const void *key, size_t key_len, const void *value, size_t value_len)
{
	return ask_raw(op, 0, (uint32_t)key_len, key, key_len, value, value_len);
}

/* The server cuts the connection off for it. */
static void assert_cut_off(const char *what)
{
	unsigned before = got;
	struct conn_group_stats stats;

	PAIR_UNTIL(&pair, closed);
	ck_assert_msg(got == before, "%s was answered", what);
	conn_group_get_stats(pair.server.group, &stats);
	ck_assert_msg(stats.violations == 1, "%s", what);
}

/*
 * The rows
 */
static void check_settings(const struct service *service, const char *name)
{
	const struct setting_table *table = service->settings;
	size_t len = strlen(name);

	ck_assert_msg(!table || (service->open && table->size), "%s: settings, and nobody reads them", name);
	for (unsigned i = 0; table && i < table->count; i++)
		ck_assert_msg((strncmp(table->row[i].path, name, len) == 0 && table->row[i].path[len] == '.') ||
				      strncmp(table->row[i].path, "log.", 4) == 0 ||   /* the daemon's, too */
				      strncmp(table->row[i].path, "cluster.", 8) == 0, /* of all that has keys */
			      "%s is a setting of %s", table->row[i].path, name);
}

static void check_counters(const struct service *service, const char *name)
{
	unsigned n = 0;

	while (service->counters && service->counters[n])
		n++;
	ck_assert_msg(n <= SERVICE_COUNTERS, "%s has too many counters", name);
	for (unsigned id = 0; id < service->id; id++)
		for (unsigned i = 0; service_find(id) && service_find(id)->counters && service_find(id)->counters[i];
		     i++)
			for (unsigned j = 0; j < n; j++)
				ck_assert_str_ne(service->counters[j], service_find(id)->counters[i]);
}

/* What a row needs, and what it has only together. */
START_TEST(test_row)
{
	const struct service *s = service_find((unsigned)_i);
	const char *name = wire_service_name((unsigned)_i);

	if (_i == 0) { /* no number */
		ck_assert_ptr_null(s);
		return;
	}
	ck_assert_msg(s, "%s: no row", name);
	ck_assert_uint_eq(s->id, (unsigned)_i);
	ck_assert_msg(s->help && *s->help, "%s: no help", name);
	ck_assert_msg(!s->stream == !s->door && !s->stream == !s->refusal, "%s: streams", name);
	ck_assert_msg(!s->stream == !!s->ops, "%s: connections of one kind", name);
	if (s->ops) {
		ck_assert_msg(s->agent_new && s->agent_free, "%s: no agent", name);
		ck_assert_msg(s->ops->established && s->ops->record && s->ops->closed, "%s: no ops", name);
	}
	ck_assert_msg(!s->open == !s->close, "%s: open and close", name);
	ck_assert_msg(!s->fd == !s->readable, "%s: fd and readable", name);
	ck_assert_msg(!s->arm == !s->disarm, "%s: arm and disarm", name);
	ck_assert_msg(!s->part_size || s->part_size >= sizeof(struct service_part), "%s: part_size", name);
	ck_assert_msg(s->part_size || !(s->part_init || s->fd || s->progress || s->deadline), "%s: part_size", name);
	check_settings(s, name);
	check_counters(s, name);
}
END_TEST

/*
 * Admission
 */
START_TEST(test_admission)
{
	static const struct {
		struct wire_request request;
		const char *says;
	} cases[] = {
		{{.service = WIRE_GPU}, "gpu is not enabled"},
		{{.service = WIRE_PING, .size = 1u << 20, .message_size = 1u << 20}, "1048552 bytes"},
		{{.service = WIRE_PING, .size = 8192}, "1048552 bytes"}, /* beyond its own message */
	};

	connect_with(cases[_i].request);
	ck_assert(closed);
	ck_assert_msg(strstr(why, cases[_i].says), "%s", why);
}
END_TEST

START_TEST(test_kv_not_enabled)
{
	services_enable_kv(&services, false);
	connect_with((struct wire_request){.service = WIRE_KV});
	ck_assert(closed);
	ck_assert_ptr_nonnull(strstr(why, "kv is not enabled"));
}
END_TEST

/*
 * Ping
 */
static unsigned informed;

static void inform(enum log_level level, const char *room, const char *text)
{
	informed += level == LOG_LEVEL_INFO && strcmp(room, "ping") == 0;
	log_keep(level, room, text);
}

/* Nor does the end of one that is as short as a health check fill the log; that of a measurement is told. */
START_TEST(test_ping_echoes)
{
	uint8_t data[1000];
	struct reply *r;

	connect_with((struct wire_request){.service = WIRE_PING, .size = 1000, .count = 3});
	for (unsigned i = 0; i < 3; i++) {
		memset(data, (int)i + 1, sizeof(data));
		r = ask(WIRE_OP_ECHO, data, sizeof(data), NULL, 0);
		ck_assert_uint_eq(r->record.length, sizeof(data));
		ck_assert_mem_eq(r->body, data, sizeof(data));
	}
	ck_assert_uint_eq(services_count(&services, "pings"), 3);
	submit(WIRE_OP_ECHO, data, sizeof(data), NULL, 0);
	log_set_handler(inform);
	assert_cut_off("a ping beyond the count");
	ck_assert_uint_eq(informed, 0);
	established = closed = false;
	connect_with((struct wire_request){.service = WIRE_PING, .size = 8});
	for (unsigned i = 0; i < 1000; i++)
		ask(WIRE_OP_ECHO, data, 8, NULL, 0);
	conn_close(conn, 0, "enough");
	PAIR_UNTIL(&pair, informed);
}
END_TEST

START_TEST(test_ping_size)
{
	static const size_t wrong[] = {0, 99, 101, 4096};
	static const uint8_t data[4096];

	connect_with((struct wire_request){.service = WIRE_PING, .size = 100});
	submit(WIRE_OP_ECHO, data, wrong[_i], NULL, 0);
	assert_cut_off("a ping of another size");
}
END_TEST

/* The tests' server has no facts, as one of an earlier version: it does not offer the operation. */
START_TEST(test_ping_facts)
{
	connect_with((struct wire_request){.service = WIRE_PING, .size = 4});
	ck_assert_uint_eq(conn_granted(conn)->flags & WIRE_FACTS, 0);
	submit(WIRE_OP_FACTS, "abcd", 4 * (size_t)_i, NULL, 0);
	assert_cut_off("a question for what is not told");
}
END_TEST

START_TEST(test_ping_other_op)
{
	connect_with((struct wire_request){.service = WIRE_PING, .size = 4});
	submit(WIRE_OP_GET, "abcd", 4, NULL, 0);
	assert_cut_off("a get to the ping agent");
}
END_TEST

/*
 * Key and value
 */
static void assert_get(const void *key, size_t key_len, const void *value, size_t len)
{
	struct reply *r = ask(WIRE_OP_GET, key, key_len, NULL, 0);

	ck_assert_uint_eq(r->record.status, WIRE_OK);
	ck_assert_uint_eq(r->record.length, len);
	ck_assert_mem_eq(r->body, value, len);
}

static void set(const void *key, size_t key_len, const void *value, size_t len)
{
	ck_assert_uint_eq(ask(WIRE_OP_SET, key, key_len, value, len)->record.status, WIRE_OK);
}

START_TEST(test_kv_round)
{
	connect_kv();
	ck_assert_uint_eq(conn_granted(conn)->eager_max, WIRE_EAGER_MAX);
	ck_assert_uint_eq(conn_granted(conn)->value_max, WIRE_EAGER_MAX);
	ck_assert_uint_eq(ask(WIRE_OP_GET, "k", 1, NULL, 0)->record.status, WIRE_NOT_FOUND);
	ck_assert_uint_eq(ask(WIRE_OP_EXISTS, "k", 1, NULL, 0)->record.status, WIRE_NOT_FOUND);
	ck_assert_uint_eq(ask(WIRE_OP_DELETE, "k", 1, NULL, 0)->record.status, WIRE_NOT_FOUND);
	set("k", 1, "value", 5);
	assert_get("k", 1, "value", 5);
	ck_assert_uint_eq(ask(WIRE_OP_EXISTS, "k", 1, NULL, 0)->record.arg, 5);
	set("k", 1, "other", 5);
	assert_get("k", 1, "other", 5);
	ck_assert_uint_eq(ask(WIRE_OP_DELETE, "k", 1, NULL, 0)->record.status, WIRE_OK);
	ck_assert_uint_eq(ask(WIRE_OP_GET, "k", 1, NULL, 0)->record.status, WIRE_NOT_FOUND);
	ck_assert_uint_eq(services_count(&services, "kv_gets"), 4);
	ck_assert_uint_eq(services_count(&services, "kv_sets"), 2);
	ck_assert_uint_eq(services_count(&services, "kv_deletes"), 2);
	ck_assert_uint_eq(services_count(&services, "kv_exists"), 2);
	ck_assert_uint_eq(services_count(&services, "kv_errors"), 0);
}
END_TEST

START_TEST(test_kv_binary)
{
	uint8_t key[256], value[256];

	for (unsigned i = 0; i < 256; i++) {
		key[i] = (uint8_t)i;
		value[i] = (uint8_t)~i;
	}
	connect_kv();
	set(key, sizeof(key), value, sizeof(value));
	assert_get(key, sizeof(key), value, sizeof(value));
	ck_assert_uint_eq(ask(WIRE_OP_GET, key, 255, NULL, 0)->record.status, WIRE_NOT_FOUND);
	set("\0", 1, "\0\0", 2);
	assert_get("\0", 1, "\0\0", 2);
	set("empty", 5, NULL, 0);
	assert_get("empty", 5, "", 0);
	ck_assert_uint_eq(ask(WIRE_OP_EXISTS, "empty", 5, NULL, 0)->record.status, WIRE_OK);
}
END_TEST

/* Key and value of 4095 bytes in all, however divided. */
START_TEST(test_kv_eager_limit)
{
	static const size_t keys[] = {1, 2, 2048, 4094, 4095};
	static uint8_t bytes[8192];
	size_t key_len = keys[_i];

	memset(bytes, 'x', sizeof(bytes));
	connect_kv();
	set(bytes, key_len, bytes, WIRE_EAGER_MAX - key_len);
	assert_get(bytes, key_len, bytes, WIRE_EAGER_MAX - key_len);
	ck_assert_uint_eq(ask(WIRE_OP_DELETE, bytes, key_len, NULL, 0)->record.status, WIRE_OK);
	if (key_len == WIRE_EAGER_MAX)
		return;
	ask(WIRE_OP_SET, bytes, key_len, bytes, WIRE_EAGER_MAX + 1 - key_len);
	ck_assert_uint_eq(replies[got - 1].record.status, WIRE_TOO_LARGE);
	ck_assert_uint_eq(replies[got - 1].record.arg, WIRE_EAGER_MAX);
	ck_assert_uint_eq(ask(WIRE_OP_GET, bytes, key_len, NULL, 0)->record.status, WIRE_NOT_FOUND);
}
END_TEST

/* A value that came another way is too large to be answered by eager. */
START_TEST(test_kv_get_too_large)
{
	static uint8_t value[100000];
	struct reply *r;

	ck_assert_int_eq(store_set(services.store, "big", 3, value, sizeof(value), NULL, 1, NULL), 0);
	connect_kv();
	r = ask(WIRE_OP_GET, "big", 3, NULL, 0);
	ck_assert_uint_eq(r->record.status, WIRE_TOO_LARGE);
	ck_assert_uint_eq(r->record.length, sizeof(uint64_t) + 3); /* its length, and the key to ask again with */
	ck_assert_uint_eq(ask(WIRE_OP_EXISTS, "big", 3, NULL, 0)->record.arg, sizeof(value));
	ck_assert_uint_eq(services_count(&services, "kv_errors"), 0);
	set("big", 3, "small", 5);
	assert_get("big", 3, "small", 5);
}
END_TEST

static void slow_set(struct service_slow *slow, uint64_t limit)
{
	service_slow_set(slow, limit, true);
	service_thread_slow(&services.thread, slow);
}

/* Each answer ends the time of its request, that of a value that is too long, too: what is under way is not much. */
START_TEST(test_kv_slow)
{
	static uint8_t value[100000];
	struct service_slow_entry entry;
	struct service_slow *slow;

	ck_assert_int_eq(service_slow_create(&slow), 0);
	ck_assert_int_eq(store_set(services.store, "big", 3, value, sizeof(value), NULL, 1, NULL), 0);
	connect_kv();
	slow_set(slow, 1);
	for (unsigned i = 1; i <= 40; i++) {
		ask(WIRE_OP_GET, "big", 3, NULL, 0);
		ck_assert_uint_eq(service_slow_count(slow), i);
		ck_assert_uint_eq(service_slow_read(slow, &entry, 1), 1);
		ck_assert_str_eq(entry.operation, "get");
		ck_assert_mem_eq(entry.key, "big", 3);
	}
	slow_set(slow, 0);
	ask(WIRE_OP_GET, "big", 3, NULL, 0);
	ask(WIRE_OP_EXISTS, "big", 3, NULL, 0);
	slow_set(slow, TIME_S * 3600);
	ask(WIRE_OP_GET, "big", 3, NULL, 0);
	ck_assert_uint_eq(service_slow_count(slow), 40);
	slow_set(slow, 1);
	ask(WIRE_OP_EXISTS, "big", 3, NULL, 0);
	ck_assert_uint_eq(service_slow_count(slow), 41);
	service_thread_slow(&services.thread, NULL);
	service_slow_destroy(slow);
}
END_TEST

/* The request that finds the search for hot keys at its end is in no log, which is off; nor is a command that waited
 * from a time when it was on. */
START_TEST(test_slow_ends)
{
	struct service_slow_request request = {.operation = "get", .key = "k", .key_len = 1};
	struct service_part *part = services.kv;
	struct service_slow *slow;
	uint64_t begun = 0;

	ck_assert_int_eq(service_slow_create(&slow), 0);
	service_thread_slow(&services.thread, slow);
	ck_assert(!text_slow_is_on(part, begun));
	services_set_time(&services, 1);
	ck_assert_int_eq(service_hot_begin(&services.thread, 2), 0);
	for (unsigned now = 1; now <= 2; now++) {
		services_set_time(&services, now);
		ck_assert(text_slow_is_on(part, begun));
		text_slow_begin(&begun);
		text_slow_end(part, NULL, &begun, &request); /* it looks at no stream to log */
	}
	ck_assert(!part->slow);
	slow_set(slow, TIME_S * 3600);
	text_slow_begin(&begun);
	slow_set(slow, 0);
	ck_assert(text_slow_is_on(part, begun));
	text_slow_end(part, NULL, &begun, &request);
	ck_assert(!text_slow_is_on(part, begun));
	ck_assert_uint_eq(service_slow_count(slow), 0);
	service_thread_slow(&services.thread, NULL);
	service_slow_destroy(slow);
}
END_TEST

START_TEST(test_kv_store_full)
{
	static uint8_t value[4000];
	char key[16];
	unsigned i, status = WIRE_OK;

	connect_kv();
	for (i = 0; i < 2 * ARENA / sizeof(value) && status == WIRE_OK; i++) {
		snprintf(key, sizeof(key), "%08u", i);
		status = ask(WIRE_OP_SET, key, 8, value, sizeof(value))->record.status;
	}
	ck_assert_uint_eq(status, WIRE_NO_MEMORY);
	assert_get("00000000", 8, value, sizeof(value));
}
END_TEST

START_TEST(test_kv_bad_requests)
{
	static const uint8_t bytes[8192];
	static const struct {
		unsigned op;
		size_t len;
		const char *what;
	} cases[] = {
		{0, 4, "op 0"},
		{WIRE_OP_ECHO, 4, "a ping to kv"},
		{WIRE_OP_KV_END, 4, "an op beyond the table"},
		{255, 4, "op 255"},
		{WIRE_OP_GET, 0, "a get without key"},
		{WIRE_OP_GET, 4096, "a get with a key too long"},
		{WIRE_OP_DELETE, 0, "a delete without key"},
		{WIRE_OP_DELETE, 4096, "a delete with a key too long"},
		{WIRE_OP_EXISTS, 0, "an exists without key"},
		{WIRE_OP_EXISTS, 4096, "an exists with a key too long"},
		{WIRE_OP_SET, 0, "a set without anything"},
		{WIRE_OP_SET, 4096, "a set with a key too long"},
		{WIRE_OP_PUT, 24, "a put without key"},
		{WIRE_OP_PUT, 25, "a put whose key is longer than it"},
		{WIRE_OP_PUT_FROM, 48, "a large put without key"},
		{WIRE_OP_PUT_FROM, 49, "a large put of nothing"},
		{WIRE_OP_PUT_FROM, 48 + 4096, "a large put with a key too long"},
		{WIRE_OP_STAT, 0, "a stat without key"},
		{WIRE_OP_STAT, 4096, "a stat with a key too long"},
		{WIRE_OP_EXPIRE, 8, "an expire without key"},
		{WIRE_OP_EXPIRE, 8 + 4096, "an expire with a key too long"},
		{WIRE_OP_DELETE_IF, 8, "a delete if without key"},
		{WIRE_OP_DELETE_IF, 9, "a delete of version 0"},
		{WIRE_OP_DELETE_IF, 8 + 4096, "a delete if with a key too long"},
		{WIRE_OP_INCR, 8, "an incr without key"},
		{WIRE_OP_INCR, 8 + 4096, "an incr with a key too long"},
		{WIRE_OP_LEASE, 8, "a lease without key"},
		{WIRE_OP_LEASE, 8 + 4096, "a lease with a key too long"},
		{WIRE_OP_SCAN, 7, "a scan without cursor"},
		{WIRE_OP_SCAN, 8 + 4096, "a scan with a prefix too long"},
		{WIRE_OP_FLUSH, 7, "a flush without cursor"},
		{WIRE_OP_FLUSH, 9, "a flush with more than a cursor"},
		{WIRE_OP_INFO, 1, "an info of something"},
		{WIRE_OP_TABLE, 15, "a table without an offset"},
		{WIRE_OP_TABLE, 17, "a table with more than an offset"},
		{WIRE_OP_MOVE, 31, "a move without a session"},
		{WIRE_OP_MOVE, 32, "a move of no kind"},
		{WIRE_OP_MOVE, 2241, "a move with more than slots"},
	};

	connect_kv();
	submit(cases[_i].op, bytes, cases[_i].len, NULL, 0);
	assert_cut_off(cases[_i].what);
}
END_TEST

/* What the services do between the group's turns, too. */
static int serve_turn(void)
{
	return conn_pair_turn(&pair) + services_turn(&services);
}

/* What waits is answered when there is something, or when another takes its place; and nothing else waits for it. */
START_TEST(test_kv_watch)
{
	const uint64_t kinds = WIRE_EVENT_STORED | WIRE_EVENT_DELETED, none = 0;
	struct wire_event event;
	unsigned before;
	struct reply *r;

	connect_kv();
	r = ask_raw(WIRE_OP_WATCH, 0, WIRE_EVENTS_MIN, &kinds, sizeof(kinds), "k", 1);
	ck_assert_uint_eq(r->record.status, WIRE_OK);
	ck_assert_uint_eq(r->record.length, 8);
	before = got;
	submit_raw(WIRE_OP_WATCH, 0, WIRE_EVENTS_MIN, NULL, 0, NULL, 0);
	set("k1", 2, "v", 1);
	TURN_UNTIL(serve_turn(), got == before + 2);
	r = &replies[(before + 1) % ARRAY_SIZE(replies)];
	ck_assert_uint_eq(r->record.op, WIRE_OP_WATCH);
	ck_assert_uint_eq(r->record.length, 8 + sizeof(event) + 8);
	memcpy(&event, r->body + 8, sizeof(event));
	ck_assert_uint_eq(event.kind, WIRE_EVENT_STORED);
	ck_assert_uint_eq(event.flags, WIRE_EVENT_FRESH);
	ck_assert_uint_eq(event.key_len, 2);
	ck_assert_mem_eq(r->body + 8 + sizeof(event), "k1\0\0\0\0\0", 8);
	before = got;
	submit_raw(WIRE_OP_WATCH, 0, UINT32_MAX, NULL, 0, NULL, 0);
	submit_raw(WIRE_OP_WATCH, 0, UINT32_MAX, &none, sizeof(none), NULL, 0);
	PAIR_UNTIL(&pair, got == before + 2);
	ck_assert_uint_eq(replies[before % ARRAY_SIZE(replies)].record.length, 8);
	ck_assert_uint_eq(replies[(before + 1) % ARRAY_SIZE(replies)].record.length, 8);
	ck_assert_uint_eq(services_count(&services, "kv_watches"), 4);
	ck_assert_uint_eq(services_count(&services, "kv_events"), 1);
}
END_TEST

START_TEST(test_kv_bad_watches)
{
	static const char bytes[8 + 4096] = {WIRE_EVENT_STORED};
	static const struct {
		bool begun, waits;
		uint32_t length, most;
		const char *what;
	} cases[] = {
		{false, false, 0, WIRE_EVENTS_MIN, "a watch that goes on, and was not begun"},
		{true, true, 0, WIRE_EVENTS_MIN, "a second watch that waits"},
		{true, false, 0, WIRE_EVENTS_MIN - 1, "a watch whose answer has no room for an event"},
		{false, false, 8, WIRE_EVENTS_MIN - 1, "a watch that begins so"},
		{false, false, 7, WIRE_EVENTS_MIN, "a watch without kinds"},
		{false, false, 8 + 4096, WIRE_EVENTS_MIN, "a watch with a prefix too long"},
	};

	connect_kv();
	if (cases[_i].begun)
		ask_raw(WIRE_OP_WATCH, 0, WIRE_EVENTS_MIN, bytes, 8, NULL, 0);
	if (cases[_i].waits)
		submit_raw(WIRE_OP_WATCH, 0, WIRE_EVENTS_MIN, NULL, 0, NULL, 0);
	submit_raw(WIRE_OP_WATCH, 0, cases[_i].most, bytes, cases[_i].length, NULL, 0);
	assert_cut_off(cases[_i].what);
}
END_TEST

START_TEST(test_kv_set_key_lies)
{
	static const uint32_t lies[] = {0, 9, 4096, UINT32_MAX};
	struct wire_record record = {.op = WIRE_OP_SET, .arg = lies[_i]};

	connect_kv();
	ck_assert(conn_say(conn, &record, "xxxxxxxx", 8, NULL, 0));
	assert_cut_off("a set whose key is longer than it");
}
END_TEST

/* What is looked up before its turn is a key, or is left for its turn. */
START_TEST(test_kv_set_key_lies_behind_others)
{
	static const uint32_t lies[] = {0, 4096, 6000, UINT32_MAX};
	struct wire_record *r;

	connect_kv();
	submit(WIRE_OP_GET, "k", 1, NULL, 0);
	r = conn_reserve(conn, 6000, NULL);
	r->op = WIRE_OP_SET;
	r->arg = lies[_i];
	memset(r + 1, 'x', 6000);
	conn_commit(conn, r, 6000);
	assert_cut_off("a set whose key is too long, behind a get");
}
END_TEST

/* Answers that fill their message go on in the next, each whole and in order. */
START_TEST(test_kv_answers_roll_over)
{
	static uint8_t value[3000];
	unsigned base;

	connect_kv();
	for (unsigned i = 0; i < 10; i++) {
		memset(value, (int)i, sizeof(value));
		set(&(char){(char)i}, 1, value, 100 + i * 300);
	}
	base = got;
	for (unsigned i = 0; i < 200; i++)
		submit(WIRE_OP_GET, &(char){(char)(i % 10)}, 1, NULL, 0);
	PAIR_UNTIL(&pair, got == base + 200);
	for (unsigned i = 0; i < 200; i++) {
		const struct reply *r = &replies[base + i];

		ck_assert_uint_eq(r->record.status, WIRE_OK);
		ck_assert_uint_eq(r->record.length, 100 + i % 10 * 300);
		ck_assert_uint_eq(r->body[0], i % 10);
		ck_assert_uint_eq(r->body[r->record.length - 1], i % 10);
		if (i)
			ck_assert_uint_eq(r->record.id, replies[base + i - 1].record.id + 1);
	}
}
END_TEST

/* The value grows and shrinks between the two looks that a get may take: whatever it finds is one
 * value, whole. Another thread cannot be stopped in between, so the change is by wrapped call. */
static unsigned looks;
static size_t sizes[4];

int __real_store_read(struct store *store, const void *key, size_t key_len, uint64_t now, void *buf, size_t size,
		      struct store_meta *out);
int __wrap_store_read(struct store *store, const void *key, size_t key_len, uint64_t now, void *buf, size_t size,
		      struct store_meta *out);

int __wrap_store_read(struct store *store, const void *key, size_t key_len, uint64_t now, void *buf, size_t size,
		      struct store_meta *out)
{
	static uint8_t value[8192];

	if (looks < ARRAY_SIZE(sizes) && sizes[looks]) {
		memset(value, (int)sizes[looks] & 0xff, sizeof(value));
		store_set(store, key, key_len, value, sizes[looks], NULL, now, NULL);
	}
	looks++;
	return __real_store_read(store, key, key_len, now, buf, size, out);
}

START_TEST(test_kv_value_changes_size)
{
	static const size_t cases[][4] = {
		{4000, 100, 0, 0},  /* shrinks */
		{3000, 4094, 0, 0}, /* grows within eager */
		{3000, 5000, 0, 0}, /* grows beyond */
		{4000, 4000, 4000, 4000},
	};
	static const uint8_t filler[4095];
	unsigned base;
	struct reply *r;
	size_t len;

	connect_kv();
	/* Three quarters of the answer's message are taken already. */
	ck_assert_int_eq(store_set(services.store, "f", 1, filler, 2900, NULL, 1, NULL), 0);
	base = got;
	looks = ARRAY_SIZE(sizes);
	submit(WIRE_OP_GET, "f", 1, NULL, 0);
	submit(WIRE_OP_GET, "f", 1, NULL, 0);
	submit(WIRE_OP_GET, "k", 1, NULL, 0);
	PAIR_UNTIL(&pair, got == base + 3);
	memcpy(sizes, cases[_i], sizeof(sizes));
	submit(WIRE_OP_GET, "f", 1, NULL, 0);
	submit(WIRE_OP_GET, "f", 1, NULL, 0);
	submit(WIRE_OP_GET, "k", 1, NULL, 0);
	looks = UINT32_MAX - 1; /* the two of "f", then sizes[0] */
	PAIR_UNTIL(&pair, got == base + 6);
	r = &replies[base + 5];
	len = cases[_i][looks - 1];
	if (len > WIRE_EAGER_MAX) {
		ck_assert_uint_eq(r->record.status, WIRE_TOO_LARGE);
		return;
	}
	ck_assert_uint_eq(looks, 2);
	ck_assert_uint_eq(r->record.status, WIRE_OK);
	ck_assert_uint_eq(r->record.length, len);
	ck_assert_uint_eq(r->body[0], len & 0xff);
	ck_assert_uint_eq(r->body[len - 1], len & 0xff);
}
END_TEST

/* A thousand requests at once, more than the answers' credits: each is answered once. */
START_TEST(test_kv_flood)
{
	static uint8_t value[2000];

	keep_bodies = false;
	connect_kv();
	set("k", 1, value, sizeof(value));
	for (unsigned i = 0; i < 20000; i++)
		submit(WIRE_OP_GET, "k", 1, NULL, 0);
	PAIR_UNTIL(&pair, got == 20001);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(got, 20001);
}
END_TEST

/*
 * Beyond get, set, delete and exists
 */
static struct reply *put(struct wire_put how, const char *text)
{
	char pair_of[64]; /* the key is the first letter */

	snprintf(pair_of, sizeof(pair_of), "%s", text);
	return ask_raw(WIRE_OP_PUT, 0, 1, &how, sizeof(how), pair_of, strlen(text));
}

static uint64_t word(const struct reply *r, unsigned i)
{
	uint64_t value;

	memcpy(&value, r->body + 8 * i, 8);
	return value;
}

START_TEST(test_kv_put_and_version)
{
	uint64_t version;
	struct reply *r;

	connect_kv();
	r = put((struct wire_put){.condition = WIRE_IF_PRESENT}, "kvalue");
	ck_assert_uint_eq(r->record.status, WIRE_NOT_FOUND);
	ck_assert_uint_eq(r->record.length, 0);
	r = put((struct wire_put){.condition = WIRE_IF_ABSENT}, "kvalue");
	ck_assert_uint_eq(r->record.status, WIRE_OK);
	ck_assert_uint_eq(r->record.length, 8);
	version = word(r, 0);
	r = ask_raw(WIRE_OP_GET, WIRE_VERSIONED, 0, "k", 1, NULL, 0);
	ck_assert_uint_eq(r->record.length, 8 + 5);
	ck_assert_uint_eq(word(r, 0), version);
	ck_assert_mem_eq(r->body + 8, "value", 5);
	assert_get("k", 1, "value", 5); /* a client that does not ask for it gets none */
	r = put((struct wire_put){.condition = WIRE_IF_VERSION, .version = version + 1}, "kother");
	ck_assert_uint_eq(r->record.status, WIRE_STALE);
	r = put((struct wire_put){.condition = WIRE_IF_VERSION, .version = version}, "kother");
	ck_assert_uint_eq(r->record.status, WIRE_OK);
	r = put((struct wire_put){.condition = WIRE_IF_ABSENT}, "kthird");
	ck_assert_uint_eq(r->record.status, WIRE_EXISTS);
	assert_get("k", 1, "other", 5);
	ck_assert_uint_eq(services_count(&services, "kv_errors"), 0);
}
END_TEST

/* The longest value of a versioned answer, also when its message is half full. */
START_TEST(test_kv_version_of_long_values)
{
	static char value[WIRE_INLINE_MAX];
	struct reply *r;

	connect_kv();
	for (unsigned len = WIRE_INLINE_MAX - 9; len <= WIRE_INLINE_MAX; len++) {
		unsigned base;

		memset(value, (int)len, sizeof(value));
		ck_assert_int_eq(store_set(services.store, "k", 1, value, len, NULL, 1, NULL), 0);
		base = got;
		for (unsigned i = 0; i < 3; i++)
			submit_raw(WIRE_OP_GET, WIRE_VERSIONED, 0, "k", 1, NULL, 0);
		PAIR_UNTIL(&pair, got == base + 3);
		for (unsigned i = 0; i < 3; i++) {
			r = &replies[base + i];
			ck_assert_uint_eq(r->record.status, WIRE_OK);
			ck_assert_uint_eq(r->record.length, 8 + len);
			ck_assert_mem_eq(r->body + 8, value, len);
		}
	}
}
END_TEST

START_TEST(test_kv_bad_condition)
{
	struct wire_put how = {.condition = WIRE_CONDITIONS};

	connect_kv();
	submit_raw(WIRE_OP_PUT, 0, 1, &how, sizeof(how), "kv", 2);
	assert_cut_off("a condition that does not exist");
}
END_TEST

START_TEST(test_kv_put_limit)
{
	static const char bytes[WIRE_EAGER_MAX + 1];
	struct wire_put how = {0};
	struct reply *r;

	connect_kv();
	r = ask_raw(WIRE_OP_PUT, 0, 1, &how, sizeof(how), bytes, WIRE_EAGER_MAX);
	ck_assert_uint_eq(r->record.status, WIRE_OK);
	r = ask_raw(WIRE_OP_PUT, 0, 1, &how, sizeof(how), bytes, WIRE_EAGER_MAX + 1);
	ck_assert_uint_eq(r->record.status, WIRE_TOO_LARGE);
	ck_assert_uint_eq(r->record.arg, WIRE_EAGER_MAX);
}
END_TEST

/* Time is what the worker says it is. */
START_TEST(test_kv_ttl)
{
	uint64_t now = TIME_S;
	struct reply *r;

	connect_kv();
	services_set_time(&services, now);
	ck_assert_uint_eq(put((struct wire_put){.ttl = 5}, "kv")->record.status, WIRE_OK);
	r = ask(WIRE_OP_STAT, "k", 1, NULL, 0);
	ck_assert_uint_eq(r->record.length, sizeof(struct wire_stat));
	ck_assert_uint_eq(word(r, 3), 0);
	ck_assert_uint_eq(word(r, 0), 1);
	ck_assert_uint_eq(word(r, 2), 5);
	services_set_time(&services, now + 4 * TIME_US + 1); /* rounded up */
	ck_assert_uint_eq(word(ask(WIRE_OP_STAT, "k", 1, NULL, 0), 2), 1);
	services_set_time(&services, now + 5 * TIME_US);
	ck_assert_uint_eq(ask(WIRE_OP_STAT, "k", 1, NULL, 0)->record.status, WIRE_NOT_FOUND);
	for (uint64_t ttl = 1; ttl; ttl *= 2) { /* the longest are for ever, none wraps */
		ck_assert_uint_eq(put((struct wire_put){.ttl = ttl}, "kv")->record.status, WIRE_OK);
		ck_assert_uint_eq(word(ask(WIRE_OP_STAT, "k", 1, NULL, 0), 2), ttl <= 1ull << 54 ? ttl : 0);
	}
}
END_TEST

/* Walks in pages of the smallest message: each holds at least one key, however long, and their paddings are zeros. */
START_TEST(test_kv_scan_pages)
{
	static unsigned char seen[600];
	static char key[WIRE_KEY_MAX];
	uint64_t cursor = 0;

	memset(seen, 0, sizeof(seen));
	connect_with((struct wire_request){.service = WIRE_KV, .message_size = WIRE_MESSAGE_MIN});
	for (unsigned i = 0; i < ARRAY_SIZE(seen); i++) {
		memset(key, 0xff, sizeof(key));
		memcpy(key, &i, sizeof(i));
		ck_assert_int_eq(store_set(services.store, key, i % 3 ? 4 + i : WIRE_KEY_MAX, "v", 1, NULL, 1, NULL),
				 0);
	}
	do {
		struct reply *r = ask_raw(WIRE_OP_SCAN, 0, 0, &cursor, 8, NULL, 0);
		uint32_t at = 8;

		ck_assert_uint_eq(r->record.status, WIRE_OK);
		ck_assert_uint_le(r->record.length, WIRE_BODY_MAX(WIRE_MESSAGE_MIN));
		cursor = word(r, 0);
		for (; at < r->record.length; r->record.arg--) {
			struct wire_entry entry;
			unsigned i;

			memcpy(&entry, r->body + at, sizeof(entry));
			memcpy(&i, r->body + at + sizeof(entry), sizeof(i));
			ck_assert_uint_eq(entry.key_len, i % 3 ? 4 + i : WIRE_KEY_MAX);
			ck_assert_uint_eq(entry.meta.length, 1);
			seen[i]++;
			at += (uint32_t)sizeof(entry);
			for (uint32_t pad = entry.key_len; pad < WIRE_PAD(entry.key_len); pad++)
				ck_assert_uint_eq(r->body[at + pad], 0);
			at += WIRE_PAD(entry.key_len);
		}
		ck_assert_uint_eq(at, r->record.length);
		ck_assert_uint_eq(r->record.arg, 0);
	} while (cursor);
	for (unsigned i = 0; i < ARRAY_SIZE(seen); i++)
		ck_assert_uint_eq(seen[i], 1);
}
END_TEST

/* A cursor from nowhere is answered like any other. */
START_TEST(test_kv_any_cursor)
{
	static const uint64_t cursors[] = {1, UINT32_MAX, UINT64_MAX, 1ull << 63, 1ull << 47};

	connect_kv();
	set("k", 1, "v", 1);
	for (unsigned i = 0; i < ARRAY_SIZE(cursors); i++) {
		ck_assert_uint_eq(ask_raw(WIRE_OP_SCAN, 0, 1, &cursors[i], 8, NULL, 0)->record.status, WIRE_OK);
		ck_assert_uint_eq(ask_raw(WIRE_OP_FLUSH, 0, 1, &cursors[i], 8, NULL, 0)->record.status, WIRE_OK);
	}
}
END_TEST

START_TEST(test_kv_incr)
{
	int64_t delta = -3;
	struct reply *r;

	connect_kv();
	r = ask_raw(WIRE_OP_INCR, 0, 0, &delta, 8, "n", 1);
	ck_assert_uint_eq(r->record.length, 16);
	ck_assert_int_eq((int64_t)word(r, 0), -3);
	ck_assert_uint_ne(word(r, 1), 0);
	delta = INT64_MIN;
	r = ask_raw(WIRE_OP_INCR, 0, 0, &delta, 8, "n", 1);
	ck_assert_uint_eq(r->record.status, WIRE_RANGE);
	ck_assert_uint_eq(r->record.length, 0);
	set("n", 1, "x", 1);
	r = ask_raw(WIRE_OP_INCR, 0, 0, &delta, 8, "n", 1);
	ck_assert_uint_eq(r->record.status, WIRE_NOT_NUMBER);
}
END_TEST

/* Another client has written a hash, or flags; what edits a value keeps these, and what writes it anew does not. */
START_TEST(test_kv_types)
{
	static const struct {
		enum wire_op op;
		uint32_t head_len;
		unsigned status;
	} asked[] = {
		{WIRE_OP_GET, 0, WIRE_OTHER_TYPE},
		{WIRE_OP_GET_INTO, sizeof(struct wire_remote), WIRE_OTHER_TYPE},
		{WIRE_OP_FETCH, sizeof(struct wire_remote) + sizeof(struct wire_fetch), WIRE_OTHER_TYPE},
		{WIRE_OP_INCR, 8, WIRE_OTHER_TYPE},
		{WIRE_OP_COUNT, 16, WIRE_OTHER_TYPE},
		{WIRE_OP_EDIT, 8, WIRE_OTHER_TYPE},
		{WIRE_OP_EXISTS, 0, WIRE_OK},
		{WIRE_OP_EXPIRE, 8, WIRE_OK},
		{WIRE_OP_SET, 0, WIRE_OK},
	};
	struct store_put hash = {.expires = TIME_NEVER, .type = STORE_HASH, .flags = 77};
	static const char zeros[64], large_value[9000];
	char head[sizeof(struct wire_remote) + sizeof(struct wire_fetch)] = {0};
	uint64_t at = WIRE_APPEND;
	struct reply *r;

	memcpy(head, &(struct wire_remote){.length = 4096}, sizeof(struct wire_remote));
	connect_kv();
	for (unsigned large = 0; large < 2; large++) {
		ck_assert_int_eq(store_set(services.store, "k", 1, large ? large_value : zeros,
					   large ? sizeof(large_value) : 20, &hash, time_now(), NULL),
				 0);
		for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
			r = ask(WIRE_OP_STAT, "k", 1, NULL, 0);
			ck_assert_uint_eq(word(r, 3), 1ull << 32 | 77);
			r = ask_raw(asked[i].op, 0, 1, head, asked[i].head_len, "k", 1);
			ck_assert_uint_eq(r->record.status, asked[i].status);
			ck_assert_uint_eq(r->record.length, 0);
		}
		ck_assert_uint_eq(word(ask(WIRE_OP_STAT, "k", 1, NULL, 0), 3), 0);
	}
	hash.type = STORE_STRING;
	ck_assert_int_eq(store_set(services.store, "k", 1, "1", 1, &hash, time_now(), NULL), 0);
	ck_assert_uint_eq(ask_raw(WIRE_OP_EDIT, 0, 1, &at, 8, "k2", 2)->record.status, WIRE_OK);
	ck_assert_uint_eq(word(ask(WIRE_OP_STAT, "k", 1, NULL, 0), 3), 77);
	ck_assert_uint_eq(word(ask_raw(WIRE_OP_INCR, 0, 0, zeros, 8, "k", 1), 0), 12);
	ck_assert_uint_eq(word(ask(WIRE_OP_STAT, "k", 1, NULL, 0), 3), 77);
	ck_assert_uint_eq(ask(WIRE_OP_GET, "k", 1, NULL, 0)->record.status, WIRE_OK);
}
END_TEST

/* A request counts once, as what it is. */
START_TEST(test_kv_counters)
{
	static const char zeros[64], one[8] = {1};
	static const struct {
		enum wire_op op;
		const char *head;
		uint32_t head_len, key_len;
		const char *counter;
	} asked[] = {
		{WIRE_OP_GET, zeros, 0, 1, "kv_gets"},
		{WIRE_OP_SET, zeros, 0, 1, "kv_sets"},
		{WIRE_OP_PUT, zeros, sizeof(struct wire_put), 1, "kv_sets"},
		{WIRE_OP_EXISTS, zeros, 0, 1, "kv_exists"},
		{WIRE_OP_STAT, zeros, 0, 1, "kv_stats"},
		{WIRE_OP_EXPIRE, zeros, 8, 1, "kv_expires"},
		{WIRE_OP_DELETE_IF, one, 8, 1, "kv_deletes"},
		{WIRE_OP_DELETE, zeros, 0, 1, "kv_deletes"},
		{WIRE_OP_INCR, one, 8, 1, "kv_incrs"},
		{WIRE_OP_SCAN, zeros, 8, 0, "kv_scans"},
		{WIRE_OP_FLUSH, zeros, 8, 0, "kv_flushes"},
		{WIRE_OP_INFO, zeros, 0, 0, "kv_infos"},
	};

	connect_kv();
	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++) {
		struct service_counts want = services_counts(&services), counted;

		++*services_counter(&want, asked[i].counter);
		ask_raw(asked[i].op, 0, asked[i].key_len, asked[i].head, asked[i].head_len, "k", asked[i].key_len);
		counted = services_counts(&services);
		ck_assert_msg(memcmp(&counted, &want, sizeof(want)) == 0, "%s", wire_op_name(asked[i].op));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("service");
	TCase *tc = suite_case(suite, "service", set_up, tear_down);

	log_set_handler(log_keep);
	tcase_add_loop_test(tc, test_row, 0, WIRE_SERVICES);
	tcase_add_loop_test(tc, test_admission, 0, 3);
	tcase_add_test(tc, test_kv_not_enabled);
	tcase_add_test(tc, test_ping_echoes);
	tcase_add_loop_test(tc, test_ping_size, 0, 4);
	tcase_add_loop_test(tc, test_ping_facts, 0, 2);
	tcase_add_test(tc, test_ping_other_op);
	tcase_add_test(tc, test_kv_round);
	tcase_add_test(tc, test_kv_binary);
	tcase_add_loop_test(tc, test_kv_eager_limit, 0, 5);
	tcase_add_test(tc, test_kv_get_too_large);
	tcase_add_test(tc, test_kv_slow);
	tcase_add_test(tc, test_slow_ends);
	tcase_add_test(tc, test_kv_store_full);
	tcase_add_loop_test(tc, test_kv_bad_requests, 0, 33);
	tcase_add_test(tc, test_kv_watch);
	tcase_add_loop_test(tc, test_kv_bad_watches, 0, 6);
	tcase_add_loop_test(tc, test_kv_set_key_lies, 0, 4);
	tcase_add_loop_test(tc, test_kv_set_key_lies_behind_others, 0, 4);
	tcase_add_test(tc, test_kv_answers_roll_over);
	tcase_add_loop_test(tc, test_kv_value_changes_size, 0, 4);
	tcase_add_test(tc, test_kv_flood);
	tcase_add_test(tc, test_kv_put_and_version);
	tcase_add_test(tc, test_kv_version_of_long_values);
	tcase_add_test(tc, test_kv_bad_condition);
	tcase_add_test(tc, test_kv_put_limit);
	tcase_add_test(tc, test_kv_ttl);
	tcase_add_test(tc, test_kv_scan_pages);
	tcase_add_test(tc, test_kv_any_cursor);
	tcase_add_test(tc, test_kv_incr);
	tcase_add_test(tc, test_kv_types);
	tcase_add_test(tc, test_kv_counters);
	return suite_run(suite);
}
