/* check_kv_transfer.c: the states of a large value's transfer in the service, as its log tells them, and their contract. */
#include <signal.h>

#include "tests/conn/conn_pair.h"
#include "tests/service/server.h"
#include "tests/suite.h"

#define ARENA (4 * MIB)
#define LENGTH 65536
#define CREDITS WIRE_CREDITS_MIN

static struct conn_pair pair;
static struct services services;
static struct evil *evil;
static struct fabric_region *region;
static uint8_t value[LENGTH];
static char seen[4096]; /* the states, "reserved reading " */

/* "transfer of 65536 bytes: free to reserved" */
static void see(enum log_level level, const char *room, const char *text)
{
	const char *to = strstr(text, " to ");

	if (strcmp(room, "kv") == 0 && strncmp(text, "transfer of ", 12) == 0 && to)
		snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s, ", to + 4);
}

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	services_set_time(&services, pair.now);
	services_take(&services, pair.server.group, request, wire, reason);
}

/* A peer that never gives a credit back unless the test does. */
static void join(void)
{
	struct wire_request request = {
		.service = WIRE_KV, .version = WIRE_VERSION, .credits = CREDITS, .message_size = 8192};
	uint8_t data[WIRE_REQUEST_SIZE];

	evil = evil_new(&pair);
	ck_assert_int_eq(fabric_register(evil->domain, value, sizeof(value),
					 FABRIC_LOCAL_WRITE | FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, &region),
			 0);
	wire_request_encode(&request, data);
	evil_connect(&pair, evil, data, sizeof(data));
	ck_assert(evil->established);
}

static void set_up(void)
{
	struct conn_group_attr attr = server_group_attr(
		(struct conn_group_attr){.transfers = 8, .receives = 256, .max_connections = 8, .reads_in = 16});

	seen[0] = '\0';
	log_threshold = LOG_LEVEL_DEBUG;
	pair = (struct conn_pair){.listener.take = take};
	conn_pair_open(&pair, false, &attr, &attr);
	services_open(&services, &(struct services_options){.arena = ARENA, .domain = pair.server.domain});
	join();
}

static uint64_t connections(void)
{
	struct conn_group_stats stats;

	conn_group_get_stats(pair.server.group, &stats);
	return stats.connections;
}

static void leave(void)
{
	fabric_endpoint_destroy(evil->endpoint);
	evil->endpoint = NULL;
	PAIR_UNTIL(&pair, connections() == 0);
}

static void tear_down(void)
{
	if (evil->endpoint)
		leave();
	ck_assert_uint_eq(services_store_stats(&services).pins, 0);
	fabric_deregister(region);
	evil_free(evil);
	services_close(&services);
	conn_pair_close(&pair);
}

/* Without a turn of the peer: what the server wants of its memory is not served yet. */
static void ask(unsigned op)
{
	struct {
		struct wire_message message;
		struct wire_record record;
		struct wire_remote remote;
		char key[1];
	} m = {.record = {.op = (uint8_t)op, .length = sizeof(m.remote) + 1}, .key = "k"};
	struct fabric_wr wr = {.opcode = FABRIC_SEND, .sge_count = 1, .signaled = true};

	m.message.length = (uint32_t)(sizeof(m.message) + sizeof(m.record) + m.record.length);
	m.remote = (struct wire_remote){(uintptr_t)value, LENGTH, fabric_region_rkey(region, evil->endpoint), 0};
	memcpy(evil->out, &m, m.message.length);
	wr.sge[0] = (struct fabric_sge){evil->out, m.message.length, evil->region};
	ck_assert_int_eq(fabric_post(evil->endpoint, &wr), 0);
	evil_turn(evil);
}

#define UNTIL(condition) PAIR_UNTIL(&pair, (evil_turn(evil), condition))

static bool ends_with(const char *end)
{
	size_t len = strlen(seen), n = strlen(end);

	return len >= n && strcmp(seen + len - n, end) == 0;
}

static void give_a_credit(void)
{
	struct wire_message m = {.length = sizeof(m), .credits = 1};

	evil_send(&pair, evil, &m, sizeof(m));
}

START_TEST(test_set)
{
	ask(WIRE_OP_SET_FROM);
	UNTIL(ends_with("free, "));
	ck_assert_str_eq(seen, "reserved, reading, published, free, ");
	ck_assert_uint_eq(services_count(&services, "kv_sets"), 1);
	ck_assert_uint_eq(services_count(&services, "kv_reads"), 1);
}
END_TEST

START_TEST(test_get)
{
	ck_assert_int_eq(store_set(services.store, "k", 1, value, LENGTH, NULL, pair.now, NULL), 0);
	ask(WIRE_OP_GET_INTO);
	UNTIL(ends_with("free, "));
	ck_assert_str_eq(seen, "reserved, writing, free, ");
	ck_assert_uint_eq(services_count(&services, "kv_gets"), 1);
	ck_assert_uint_eq(services_count(&services, "kv_writes"), 1);
}
END_TEST

/* Each answer takes one of the peer's credits: the one after the last of them has to wait. */
static void set_and_wait_for_room(void)
{
	for (unsigned i = 0; i < CREDITS; i++) {
		ask(WIRE_OP_SET_FROM);
		UNTIL(ends_with("free, "));
		seen[0] = '\0';
	}
	ask(WIRE_OP_SET_FROM);
	UNTIL(ends_with("waiting, "));
	ck_assert_str_eq(seen, "reserved, reading, published, waiting, ");
	ck_assert_uint_eq(services_store_stats(&services).pins, 0);
}

START_TEST(test_answer_waits_for_room)
{
	set_and_wait_for_room();
	give_a_credit();
	UNTIL(ends_with("waiting, free, "));
	ck_assert_uint_eq(services_count(&services, "kv_sets"), CREDITS + 1);
}
END_TEST

START_TEST(test_peer_dies_while_its_answer_waits)
{
	set_and_wait_for_room();
	leave();
	ck_assert(ends_with("waiting, free, "));
}
END_TEST

START_TEST(test_peer_dies_while_read)
{
	ask(WIRE_OP_SET_FROM);
	PAIR_UNTIL(&pair, ends_with("reading, "));
	leave();
	ck_assert_str_eq(seen, "reserved, reading, free, ");
	ck_assert_uint_eq(services_store_stats(&services).items, 0);
}
END_TEST

/*
 * The contract.
 */
#define STATE(name) [KV_TRANSFER_##name] = true

static const bool may_follow[KV_TRANSFER_STATES][KV_TRANSFER_STATES] = {
	[KV_TRANSFER_FREE] = {STATE(RESERVED)},
	[KV_TRANSFER_RESERVED] = {STATE(READING), STATE(UNCOMMITTED), STATE(WRITING), STATE(FREE)},
	[KV_TRANSFER_READING] = {STATE(PUBLISHED), STATE(GROWING), STATE(FREE)},
	[KV_TRANSFER_GROWING] = {STATE(READING), STATE(PUBLISHED), STATE(FREE)},
	[KV_TRANSFER_UNCOMMITTED] = {STATE(WRITING), STATE(FREE)},
	[KV_TRANSFER_WRITING] = {STATE(FREE)},
	[KV_TRANSFER_PUBLISHED] = {STATE(WAITING), STATE(FREE)},
	[KV_TRANSFER_WAITING] = {STATE(FREE)},
};

static void put_into(struct kv_agent *agent, struct kv_transfer *transfer, enum kv_transfer_state state)
{
	static struct kv_shared shared;
	static struct kv_thread thread = {.part.shared = &shared};

	*agent = (struct kv_agent){.thread = &thread};
	list_init(&agent->sets);
	list_init(&agent->finished);
	list_init(&agent->uncommitted);
	*transfer = (struct kv_transfer){.agent = agent, .state = state};
	list_init(&transfer->node);
	if (state == KV_TRANSFER_READING || state == KV_TRANSFER_GROWING)
		list_add_tail(&agent->sets, &transfer->node);
	if (state == KV_TRANSFER_WAITING)
		list_add_tail(&agent->finished, &transfer->node);
	if (state == KV_TRANSFER_UNCOMMITTED)
		list_add_tail(&agent->uncommitted, &transfer->node);
}

START_TEST(test_what_may_follow)
{
	struct kv_agent agent;
	struct kv_transfer transfer;

	for (unsigned from = 0; from < KV_TRANSFER_STATES; from++) {
		for (unsigned to = 0; to < KV_TRANSFER_STATES; to++) {
			if (!may_follow[from][to])
				continue;
			put_into(&agent, &transfer, (enum kv_transfer_state)from);
			kv_transfer_set_state(&transfer, (enum kv_transfer_state)to);
			ck_assert_uint_eq(transfer.state, to);
			ck_assert_int_eq(list_empty(&agent.sets),
					 to != KV_TRANSFER_READING && to != KV_TRANSFER_GROWING);
			ck_assert_int_eq(list_empty(&agent.finished), to != KV_TRANSFER_WAITING);
			ck_assert_int_eq(list_empty(&agent.uncommitted), to != KV_TRANSFER_UNCOMMITTED);
		}
	}
}
END_TEST

static void breach(void)
{
#ifndef RDMAD_CONTRACTS
	abort(); /* as a build with contracts does */
#endif
}

START_TEST(test_what_may_not_follow)
{
	unsigned from = (unsigned)_i / KV_TRANSFER_STATES, to = (unsigned)_i % KV_TRANSFER_STATES;
	struct kv_agent agent;
	struct kv_transfer transfer;

	if (may_follow[from][to])
		abort(); /* see above */
	put_into(&agent, &transfer, (enum kv_transfer_state)from);
	kv_transfer_set_state(&transfer, (enum kv_transfer_state)to);
	breach();
}
END_TEST

START_TEST(test_state_without_its_list)
{
	struct kv_agent agent;
	struct kv_transfer transfer;

	put_into(&agent, &transfer, KV_TRANSFER_READING);
	list_del(&transfer.node);
	list_add_tail(&agent.finished, &transfer.node);
	kv_transfer_set_state(&transfer, KV_TRANSFER_FREE);
	breach();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv_transfer");
	TCase *tc = suite_case(suite, "life", set_up, tear_down);

	log_set_handler(see);
	tcase_add_test(tc, test_set);
	tcase_add_test(tc, test_get);
	tcase_add_test(tc, test_answer_waits_for_room);
	tcase_add_test(tc, test_peer_dies_while_its_answer_waits);
	tcase_add_test(tc, test_peer_dies_while_read);
	tc = suite_case(suite, "contract", NULL, NULL);
	tcase_add_test(tc, test_what_may_follow);
	tcase_add_loop_test_raise_signal(tc, test_what_may_not_follow, SIGABRT, 0,
					 KV_TRANSFER_STATES * KV_TRANSFER_STATES);
	tcase_add_test_raise_signal(tc, test_state_without_its_list, SIGABRT);
	return suite_run(suite);
}
