/* check_client_cluster.c: a caller of the servers of a cluster: the table that they tell. */
#include "tests/client/caller.h"
#include "tests/suite.h"

#include <unistd.h>

static char path[] = "/tmp/check-cluster-XXXXXX";

/* A table of so many nodes, the first of which has the address, as a file. */
static void write_table(const struct cluster_table *table)
{
	static char text[CLUSTER_TEXT_MAX + 1];
	FILE *file = fopen(path, "w");
	int length = cluster_print(table, text);

	ck_assert_int_gt(length, 0);
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, (size_t)length, file), length);
	ck_assert_int_eq(fclose(file), 0);
}

static struct cluster_table *make_table(unsigned nodes)
{
	struct cluster_table *table = calloc(1, sizeof(*table));

	strcpy(table->name, "test");
	table->epoch = 7;
	for (unsigned i = 0; i < nodes; i++) {
		struct cluster_node node = {0};
		char address[40];

		snprintf(node.name, sizeof(node.name), "node%u", i);
		snprintf(address, sizeof(address), "tcp://127.0.0.1:%u", 20000 + i);
		ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, address), 0);
		ck_assert_int_eq(cluster_add(table, &node), 0);
	}
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		table->owner[slot] = (uint16_t)(slot / 8 % nodes); /* short ranges: a long text */
	return table;
}

static void set_up(unsigned nodes)
{
	struct cluster_table *table = make_table(nodes);
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	write_table(table);
	free(table);
	server_start(&(struct server_options){.services = {.cluster_table = path, .cluster_node = "node0"}});
}

static void tear_down(void)
{
	server_stop();
	unlink(path);
}

/* The text is that of the file, in several pages; and nothing comes where the caller has it. */
START_TEST(test_table)
{
	static struct cluster_table read, wanted;
	uint64_t epoch = 0;
	char *text;
	void *kv;

	set_up(256);
	kv = open_kv(NULL, NULL);
	ck_assert_int_eq(kv_cluster_table(kv, &epoch, &text), 0);
	ck_assert_uint_eq(epoch, 7);
	ck_assert_uint_gt(strlen(text), 16384);
	ck_assert_int_eq(cluster_parse("told", text, strlen(text), &read), 0);
	ck_assert_int_eq(cluster_load(path, &wanted), 0);
	ck_assert_mem_eq(&read, &wanted, sizeof(read));
	kv_release(text);
	ck_assert_int_eq(kv_cluster_table(kv, &epoch, &text), 0);
	ck_assert_ptr_null(text);
	ck_assert_uint_eq(epoch, 7);
	kv_close(kv);
	tear_down();
}
END_TEST

START_TEST(test_table_of_no_cluster)
{
	uint64_t epoch = 0;
	char *text;
	void *kv;

	server_start(&(struct server_options){0});
	kv = open_kv(NULL, NULL);
	ASSERT_ERROR(kv_cluster_table(kv, &epoch, &text), -EOPNOTSUPP, "is of no cluster");
	ck_assert_ptr_null(text);
	ASSERT_ERROR(kv_cluster_table(kv, NULL, &text), -EINVAL, "places for the epoch");
	ck_assert_int_eq(kv_set(kv, "k", "v"), 0);
	kv_close(kv);
	server_stop();
}
END_TEST

/*
 * A server that tells what a test wants.
 */
static const struct page {
	const char *what;
	struct wire_table head;
	unsigned length; /* of the text in a page; an 'x' each */
	bool changes;    /* each page has another epoch */
	const char *said;
} pages[] = {
	{"an epoch of 0", {0, 5000}, 5000, false, "no table"},
	{"an epoch that no integer holds", {1ull << 63, 5000}, 5000, false, "no table"},
	{"a length of 0", {1, 0}, 0, false, "no table"},
	{"a table that is too long", {1, 65537}, 4000, false, "no table"},
	{"a length that wraps", {1, UINT64_MAX}, 4000, false, "no table"},
	{"more than the length", {1, 3999}, 4000, false, "no table"},
	{"a page of nothing", {1, 5000}, 0, false, "no table"},
	{"a page that is very short", {1, 5000}, 1000, false, "no table"},
	{"a text where the epoch is the caller's", {77, 4000}, 4000, false, "no table"},
	{"tables that change without an end", {1, 8000}, 4000, true, "no table"},
	{"a text of nonsense", {1, 4000}, 4000, false, "300 characters"},
};
static const struct page *told;
static unsigned asked;

static int tell(struct conn *conn, const struct wire_record *record, const void *body)
{
	static char text[8192];
	struct wire_record reply = {.id = record->id, .op = record->op, .flags = WIRE_REPLY};
	struct wire_table head = told->head;

	(void)body;
	memset(text, 'x', sizeof(text));
	if (told->changes)
		head.epoch += asked;
	asked++;
	return conn_say(conn, &reply, &head, sizeof(head), text, told->length) ? 0 : -EAGAIN;
}

static const struct conn_ops teller_ops = {
	.established = server_ignores_established,
	.record = tell,
	.closed = server_ignores_closed,
};

static void take_teller(struct fabric_event *event)
{
	const struct wire_accept grant = {.eager_max = WIRE_EAGER_MAX, .value_max = GIB, .flags = WIRE_TABLES};
	struct wire_request wire;
	struct conn *conn;

	ck_assert_int_eq(wire_request_decode(&wire, event->data, event->data_len), 0);
	conn_accept(server.group, event->request, &wire, &grant, NULL, &teller_ops, NULL, time_now(), &conn);
}

START_TEST(test_hostile_table)
{
	uint64_t epoch = 77;
	char *text;
	void *kv;

	told = &pages[_i];
	server_start(&(struct server_options){.take = take_teller});
	kv = open_kv(NULL, NULL);
	ASSERT_ERROR(kv_cluster_table(kv, &epoch, &text), -EPROTO, told->said);
	ck_assert_ptr_null(text);
	ck_assert_uint_eq(epoch, 77);
	ck_assert_uint_lt(asked, 100);
	kv_close(kv);
	server_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_cluster");

	TCase *tc = suite_case(suite, "table", NULL, NULL);

	tcase_add_test(tc, test_table);
	tcase_add_test(tc, test_table_of_no_cluster);
	tcase_add_loop_test(tc, test_hostile_table, 0, ARRAY_SIZE(pages));
	return suite_run(suite);
}
