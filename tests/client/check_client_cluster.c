/*
 * check_client_cluster.c: a caller of the servers of a cluster: the table that they tell, and one handle for all of them.
 * Each of these servers is a process, so that it can be killed.
 */
#include "client/kv/kv.h"
#include "tests/client/caller.h"
#include "tests/suite.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/check-cluster-XXXXXX";

static void write_table_to(const char *to, const struct cluster_table *t)
{
	static char text[CLUSTER_TEXT_MAX + 1];
	FILE *file = fopen(to, "w");
	int length = cluster_print(t, text);

	ck_assert_int_gt(length, 0);
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, (size_t)length, file), length);
	ck_assert_int_eq(fclose(file), 0);
}

static struct cluster_table *make_table(unsigned nodes)
{
	struct cluster_table *t = calloc(1, sizeof(*t));

	strcpy(t->name, "test");
	t->epoch = 7;
	for (unsigned i = 0; i < nodes; i++) {
		struct cluster_node node = {0};
		char address[40];

		snprintf(node.name, sizeof(node.name), "node%u", i);
		snprintf(address, sizeof(address), "tcp://127.0.0.1:%u", 20000 + i);
		ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, address), 0);
		ck_assert_int_eq(cluster_add(t, &node), 0);
	}
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		t->owner[slot] = (uint16_t)(slot / 8 % nodes); /* short ranges: a long text */
	return t;
}

static void set_up(unsigned nodes)
{
	struct cluster_table *t = make_table(nodes);
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	write_table_to(path, t);
	free(t);
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
	void *one;

	set_up(256);
	one = open_kv(NULL, NULL);
	ck_assert_int_eq(kv_cluster_table(one, &epoch, &text), 0);
	ck_assert_uint_eq(epoch, 7);
	ck_assert_uint_gt(strlen(text), 16384);
	ck_assert_int_eq(cluster_parse("told", text, strlen(text), &read), 0);
	ck_assert_int_eq(cluster_load(path, &wanted), 0);
	ck_assert_mem_eq(&read, &wanted, sizeof(read));
	kv_release(text);
	ck_assert_int_eq(kv_cluster_table(one, &epoch, &text), 0);
	ck_assert_ptr_null(text);
	ck_assert_uint_eq(epoch, 7);
	kv_close(one);
	tear_down();
}
END_TEST

START_TEST(test_table_of_no_cluster)
{
	uint64_t epoch = 0;
	char *text;
	void *one;

	server_start(&(struct server_options){0});
	one = open_kv(NULL, NULL);
	ASSERT_ERROR(kv_cluster_table(one, &epoch, &text), -EOPNOTSUPP, "is of no cluster");
	ck_assert_ptr_null(text);
	ASSERT_ERROR(kv_cluster_table(one, NULL, &text), -EINVAL, "places for the epoch");
	ck_assert_int_eq(kv_set(one, "k", "v"), 0);
	kv_close(one);
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
static const struct page *page;
static unsigned asked;

static int tell(struct conn *conn, const struct wire_record *record, const void *body)
{
	static char text[8192];
	struct wire_record reply = {.id = record->id, .op = record->op, .flags = WIRE_REPLY};
	struct wire_table head = page->head;

	(void)body;
	memset(text, 'x', sizeof(text));
	if (page->changes)
		head.epoch += asked;
	asked++;
	return conn_say(conn, &reply, &head, sizeof(head), text, page->length) ? 0 : -EAGAIN;
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
	void *one;

	page = &pages[_i];
	server_start(&(struct server_options){.take = take_teller});
	one = open_kv(NULL, NULL);
	ASSERT_ERROR(kv_cluster_table(one, &epoch, &text), -EPROTO, page->said);
	ck_assert_ptr_null(text);
	ck_assert_uint_eq(epoch, 77);
	ck_assert_uint_lt(asked, 100);
	kv_close(one);
	server_stop();
}
END_TEST

/*
 * Three servers and a handle
 */
#define NODES 3
#define KEYS 10000
#define LARGE 100000

static char folder[] = "/tmp/check-nodes-XXXXXX", names[CLUSTER_NODES][48], tables[CLUSTER_NODES][64];
static pid_t node_pid[NODES];
static struct cluster_table *table;
static void *kv;

static void node_run(unsigned i, int ready)
{
	char name[16], socket_path[64];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(name, sizeof(name), "node%u", i);
	snprintf(socket_path, sizeof(socket_path), "%s/%u", folder, i);
	server_start(&(struct server_options){.transport = "unix",
					      .path = socket_path,
					      .services = {.cluster_table = tables[i], .cluster_node = name}});
	if (write(ready, "", 1) != 1)
		abort();
	for (;;)
		pause();
}

static void node_start(unsigned i)
{
	int ends[2];
	char ready;

	ck_assert_int_eq(pipe(ends), 0);
	node_pid[i] = fork();
	if (node_pid[i] == 0)
		node_run(i, ends[1]);
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], &ready, 1), 1);
	close(ends[0]);
}

static void node_kill(unsigned i)
{
	kill(node_pid[i], SIGKILL);
	waitpid(node_pid[i], NULL, 0);
	node_pid[i] = 0;
}

/* A table of so many nodes, those beyond NODES of which nothing listens at, with slots side by side. */
static struct cluster_table *nodes_table(unsigned nodes, uint64_t epoch)
{
	struct cluster_table *t = calloc(1, sizeof(*t));

	strcpy(t->name, "test");
	t->epoch = epoch;
	for (unsigned i = 0; i < nodes; i++) {
		struct cluster_node node = {0};

		snprintf(node.name, sizeof(node.name), "node%u", i);
		snprintf(names[i], sizeof(names[i]), "unix://%s/%u", folder, i);
		ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, names[i]), 0);
		ck_assert_int_eq(cluster_add(t, &node), 0);
	}
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		t->owner[slot] = (uint16_t)(slot * nodes / CLUSTER_SLOTS);
	return t;
}

/* The table is the one that node i starts with. */
static void give_table(unsigned i, const struct cluster_table *t)
{
	snprintf(tables[i], sizeof(tables[i]), "%s/table%u", folder, i);
	write_table_to(tables[i], t);
}

static void *open_cluster(const struct rdmad_options *options)
{
	char address[200];
	void *opened = NULL;
	int rc;

	snprintf(address, sizeof(address), "cluster:unix://%s/none,%s,%s", folder, names[1], names[0]);
	rc = kv_open_options(address, options, NULL, &opened);
	ck_assert_msg(rc == 0, "%s", rdmad_error());
	return opened;
}

static void nodes_begin(unsigned nodes)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	table = nodes_table(nodes, 5);
	for (unsigned i = 0; i < NODES; i++) {
		give_table(i, table);
		node_start(i);
	}
}

static void nodes_up(void)
{
	nodes_begin(NODES);
	kv = open_cluster(NULL);
}

static void nodes_down(void)
{
	if (kv)
		kv_close(kv);
	for (unsigned i = 0; i < NODES; i++) {
		if (node_pid[i])
			node_kill(i);
		unlink(names[i] + strlen("unix://"));
		unlink(tables[i]);
	}
	rmdir(folder);
	free(table);
}

static unsigned owner_of(const void *key, size_t len)
{
	return table->owner[cluster_slot(key, len)];
}

/* A key of node i. */
static const char *key_of(unsigned i)
{
	static char keys[NODES][32];

	for (unsigned n = 0; !*keys[i] || owner_of(keys[i], strlen(keys[i])) != i; n++)
		snprintf(keys[i], sizeof(keys[i]), "of%u-%u", i, n);
	return keys[i];
}

/* Another process in its place, with which the handle is connected then. */
static void node_restart(unsigned i)
{
	const char *key = key_of(i);
	int rc;

	if (node_pid[i])
		node_kill(i);
	node_start(i);
	do {
		kv_progress(kv, 1000);
		rc = kv_exists(kv, key, strlen(key));
	} while (rc == -ECONNABORTED || rc == -ENOTCONN || rc == -ESHUTDOWN);
}

static char keys[KEYS][16];
static struct kv_item items[KEYS];

static void items_init(void)
{
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "key%u", i);
		items[i] = (struct kv_item){keys[i], strlen(keys[i]), keys[i], strlen(keys[i]), 0};
	}
}

static unsigned got_right, got_none, got_gone;

static void item_got(void *arg, size_t i, int status, const void *value, size_t len)
{
	(void)arg;
	if (status == 0 && len == items[i].key_len && memcmp(value, items[i].key, len) == 0)
		got_right++;
	else if (status == -ENOENT)
		got_none++;
	else if (status == -ENOTCONN || status == -ECONNABORTED || status == -ESHUTDOWN)
		got_gone++;
	else
		ck_abort_msg("item %zu: %d", i, status);
}

static void mget_all(void)
{
	got_right = got_none = got_gone = 0;
	kv_mget(kv, items, KEYS, item_got, NULL);
	ck_assert_uint_eq(got_right + got_none + got_gone, KEYS);
}

static int is_of_node(void *arg, const void *key, size_t len, const struct kv_meta *meta)
{
	(void)meta;
	ck_assert_uint_eq(owner_of(key, len), *(unsigned *)arg);
	return 0;
}

static int count_key(void *arg, const void *key, size_t len, const struct kv_meta *meta)
{
	(void)key;
	(void)len;
	(void)meta;
	++*(unsigned *)arg;
	return 0;
}

/* Each key is at its own node, and nowhere else. */
START_TEST(test_each_at_its_node)
{
	uint64_t cursor = 0, deleted;
	unsigned walked = 0;
	struct kv_info info;
	int n;

	items_init();
	ck_assert_msg(kv_mset(kv, items, KEYS, NULL) == 0, "%s", rdmad_error());
	mget_all();
	ck_assert_uint_eq(got_right, KEYS);
	ck_assert_int_eq(kv_mexists(kv, items, KEYS, true), KEYS);
	for (unsigned i = 0; i < NODES; i++) {
		void *node;

		ck_assert_int_eq(kv_open(names[i], &node), 0);
		ck_assert_int_eq(kv_each(node, NULL, 0, is_of_node, &i), 0);
		ck_assert_int_eq(kv_info(node, &info), 0);
		ck_assert_uint_gt(info.keys, KEYS / NODES / 2);
		ck_assert_int_eq(kv_set(node, key_of((i + 1) % NODES), "v"), -EREMOTE);
		kv_close(node);
	}
	ck_assert_int_eq(kv_info(kv, &info), 0);
	ck_assert_uint_eq(info.keys, KEYS);
	ck_assert_int_eq(kv_each(kv, NULL, 0, count_key, &walked), 0);
	ck_assert_uint_eq(walked, KEYS);
	walked = 0;
	do {
		n = kv_scan(kv, &cursor, "key1", 4, 100, count_key, &walked);
		ck_assert_int_ge(n, 0);
	} while (cursor);
	ck_assert_uint_eq(walked, 1111);
	ck_assert_int_eq(kv_delete_prefix(kv, "key1", 4, &deleted), 0);
	ck_assert_uint_eq(deleted, 1111);
	ck_assert_int_eq(kv_delete_all(kv, &deleted), 0);
	ck_assert_uint_eq(deleted, KEYS - 1111);
}
END_TEST

#define OK(call) ck_assert_msg((call) == 0, "%s: %s", #call, rdmad_error())

static int stop_here(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)arg, (void)key, (void)key_len, (void)meta;
	return 7;
}

/* A list of keys that may lack some, as a server has another table than the others, ends with an error. */
START_TEST(test_list_while_slots_move)
{
	struct cluster_table *other = nodes_table(NODES, 6);
	uint64_t cursor = 0;
	unsigned walked = 0;
	int n;

	items_init();
	ck_assert_msg(kv_mset(kv, items, 1000, NULL) == 0, "%s", rdmad_error());
	give_table(0, other);
	node_restart(0);
	ASSERT_ERROR(kv_each(kv, NULL, 0, count_key, &walked), -ESTALE, "may have moved");
	ck_assert_uint_gt(walked, 0);
	do
		n = kv_scan(kv, &cursor, NULL, 0, 0, count_key, &walked);
	while (n >= 0 && cursor);
	ck_assert_int_eq(n, -ESTALE);
	ck_assert_uint_eq(cursor, 0);
	OK(kv_set(kv, key_of(1), "v"));
	ck_assert_int_eq(kv_each(kv, NULL, 0, stop_here, NULL), 7);
	for (unsigned i = 1; i < NODES; i++) {
		give_table(i, other);
		node_restart(i);
	}
	OK(kv_set(kv, key_of(1), "v"));
	OK(kv_set(kv, key_of(2), "v"));
	walked = 0;
	OK(kv_each(kv, NULL, 0, count_key, &walked));
	ck_assert_uint_eq(walked, 2);
	free(other);
}
END_TEST

struct told {
	unsigned called;
	struct kv_result result;
	char value[64];
};

static void tell_result(void *arg, const struct kv_result *result)
{
	struct told *told = arg;

	told->called++;
	told->result = *result;
	if (result->value && result->value_len < sizeof(told->value))
		memcpy(told->value, result->value, result->value_len);
}

static void tell_plain(void *arg, int status, const void *value, size_t len)
{
	tell_result(arg, &(struct kv_result){.status = status, .value = value, .value_len = len});
}

/* The handle has a table of before, by which each key is at another node. */
static bool stale_each; /* before each request that does not wait */
static void make_stale(void)
{
	struct kv_nodes *nodes = ((struct kv *)kv)->nodes;

	nodes->epoch = 3;
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		nodes->node[slot] = (uint16_t)((nodes->node[slot] + 1) % NODES);
	kv_nodes_find_runs(nodes);
}

/* A submitted request's end. */
#define ASSERT_VALUE(key, text)                                                                                        \
	do {                                                                                                           \
		char *came;                                                                                            \
		OK(kv_get(kv, key, &came));                                                                            \
		ck_assert_str_eq(came, text);                                                                          \
		kv_release(came);                                                                                      \
	} while (0)
#define ANSWERED(call, want)                                                                                           \
	do {                                                                                                           \
		struct told told = {0};                                                                                \
		if (stale_each)                                                                                        \
			make_stale();                                                                                  \
		ck_assert_int_eq(call, 0);                                                                             \
		while (!told.called)                                                                                   \
			ck_assert_int_ge(kv_progress(kv, 1000000), 0);                                                 \
		ck_assert_int_eq(told.result.status, want);                                                            \
		ck_assert_uint_eq(told.called, 1);                                                                     \
	} while (0)
#define ONE(call) ck_assert_msg((call) == 1, "%s: %s", #call, rdmad_error())

static void use_key(const char *key)
{
	static char large[LARGE], back[LARGE];
	const size_t len = strlen(key);
	struct iovec pieces[] = {{large, 5000}, {large + 5000, LARGE - 5000}};
	struct iovec into[] = {{back, 70000}, {back + 70000, LARGE - 70000}};
	const struct kv_put_options absent = {.condition = KV_IF_ABSENT};
	struct kv_fetch what = {.offset = 1, .length = 2};
	struct kv_meta meta;
	size_t value_len;
	uint64_t version, length;
	int64_t number;
	char *text;
	void *value;

	memset(large, *key, sizeof(large));
	large[77] = 'x';
	OK(kv_set(kv, key, "value"));
	OK(kv_get(kv, key, &text));
	ck_assert_str_eq(text, "value");
	kv_release(text);
	ONE(kv_exists(kv, key, len));
	OK(kv_stat(kv, key, len, &meta));
	ck_assert_uint_eq(meta.length, 5);
	ck_assert_int_eq(kv_type(kv, key, len, NULL), KV_STRING);
	ck_assert_int_eq(kv_put(kv, key, len, "x", 1, &absent, NULL), -EEXIST);
	OK(kv_get_version(kv, key, len, &value, &value_len, &version));
	kv_release(value);
	ck_assert_int_eq(kv_delete_if(kv, key, len, version + 1), -ESTALE);
	ONE(kv_expire(kv, key, len, 60000000));
	OK(kv_append(kv, key, len, "s", 1, &length));
	ck_assert_uint_eq(length, 6);
	OK(kv_set_range(kv, key, len, 1, "A", 1, NULL));
	OK(kv_get_range(kv, key, len, 0, back, 3, &value_len));
	ck_assert_mem_eq(back, "vAl", 3);
	OK(kv_fetch(kv, key, len, &what, back, 10, &value_len, NULL));
	ck_assert_uint_eq(value_len, 2);
	OK(kv_get_set(kv, key, len, "7", 1, &value, &value_len));
	ck_assert_mem_eq(value, "vAlues", 6);
	kv_release(value);
	OK(kv_incr(kv, key, len, 3, &number, NULL));
	ck_assert_int_eq(number, 10);
	OK(kv_count(kv, key, len, 1, 0, &number, NULL));
	OK(kv_get_touch(kv, key, len, 1000000000, &value, &value_len));
	kv_release(value);
	OK(kv_get_delete(kv, key, len, &value, &value_len));
	ck_assert_mem_eq(value, "11", 2);
	kv_release(value);
	ck_assert_int_eq(kv_delete(kv, key, len), 0);
	/* Large ones. */
	OK(kv_set_bytes(kv, key, len, large, sizeof(large)));
	OK(kv_get_bytes(kv, key, len, &value, &value_len));
	ck_assert_uint_eq(value_len, sizeof(large));
	ck_assert_mem_eq(value, large, sizeof(large));
	kv_release(value);
	OK(kv_get_into(kv, key, len, back, sizeof(back), &value_len));
	ck_assert_mem_eq(back, large, sizeof(large));
	OK(kv_putv(kv, key, len, pieces, 2, NULL, NULL));
	memset(back, 0, sizeof(back));
	OK(kv_fetchv(kv, key, len, NULL, into, 2, &value_len, NULL));
	ck_assert_mem_eq(back, large, sizeof(large));
	/* Those that do not wait. */
	ANSWERED(kv_submit_set(kv, key, len, "5", 1, tell_plain, &told), 0);
	ANSWERED(kv_submit_get(kv, key, len, tell_plain, &told), 0);
	ANSWERED(kv_submit_exists(kv, key, len, tell_plain, &told), 0);
	ANSWERED(kv_submit_get_into(kv, key, len, back, 10, tell_plain, &told), 0);
	ANSWERED(kv_submit_put(kv, key, len, "6", 1, NULL, tell_result, &told), 0);
	ANSWERED(kv_submit_putv(kv, key, len, pieces, 2, NULL, tell_result, &told), 0);
	ANSWERED(kv_submit_fetchv(kv, key, len, NULL, into, 2, tell_result, &told), 0);
	ANSWERED(kv_submit_fetch(kv, key, len, &what, back, 10, tell_result, &told), 0);
	ANSWERED(kv_submit_get_version(kv, key, len, tell_result, &told), 0);
	ANSWERED(kv_submit_stat(kv, key, len, tell_result, &told), 0);
	ANSWERED(kv_submit_expire(kv, key, len, 1000000000, tell_result, &told), 0);
	ANSWERED(kv_submit_lease(kv, key, len, 1000000, tell_result, &told), 0);
	ANSWERED(kv_submit_delete_if(kv, key, len, 1, tell_result, &told), -ESTALE);
	ANSWERED(kv_submit_delete(kv, key, len, tell_plain, &told), 0);
	ANSWERED(kv_submit_incr(kv, key, len, 1, tell_result, &told), 0);
	ANSWERED(kv_submit_count(kv, key, len, 1, 0, tell_result, &told), 0);
	ANSWERED(kv_submit_append(kv, key, len, "a", 1, tell_result, &told), 0);
	ANSWERED(kv_submit_set_range(kv, key, len, 0, "b", 1, tell_result, &told), 0);
	ASSERT_VALUE(key, "ba");
}

START_TEST(test_all_calls)
{
	struct kv_item three[NODES];
	struct kv_place places[NODES];
	struct kv_request requests[NODES];
	struct kv_completion done[NODES];
	char back[NODES][8];
	size_t leased;
	void *lent;

	for (unsigned i = 0; i < 2 * NODES; i++) {
		stale_each = i >= NODES; /* each is told where its key is, and submitted again as it was */
		use_key(key_of(i % NODES));
	}
	for (unsigned i = 0; i < NODES; i++) {
		three[i] = (struct kv_item){key_of(i), strlen(key_of(i)), "abc", 3, 0};
		places[i] =
			(struct kv_place){.key = key_of(i), .key_len = strlen(key_of(i)), .buffer = back[i], .size = 8};
		requests[i] =
			(struct kv_request){.tag = i, .op = KV_OP_GET, .key = key_of(i), .key_len = strlen(key_of(i))};
	}
	OK(kv_mset(kv, three, NODES, NULL));
	OK(kv_mget_into(kv, places, NODES));
	ck_assert_mem_eq(back[2], "abc", 3);
	ck_assert_int_eq(kv_mlease(kv, three, NODES, 1000000, &leased), NODES);
	ck_assert_uint_eq(leased, NODES);
	OK(kv_mrelease(kv, three, NODES));
	{
		struct told told = {0};

		ck_assert_int_eq(kv_submit_mset(kv, three, NODES, NULL, tell_result, &told), NODES);
		ck_assert_uint_eq(kv_outstanding(kv), NODES);
		OK(kv_wait(kv));
		ck_assert_uint_eq(told.called, 1);
		ck_assert_int_eq(told.result.status, 0);
		ck_assert_int_eq(kv_submit_mget_into(kv, places, NODES, tell_result, &told), NODES);
		ck_assert_int_eq(kv_submit_mexists(kv, three, NODES, tell_result, &told), NODES);
		ck_assert_int_eq(kv_cancel(kv, &told), 2 * NODES);
		ck_assert_uint_eq(told.called, 3);
	}
	ck_assert_int_eq(kv_submit(kv, requests, NODES), NODES);
	for (int64_t n = 0; n < NODES;) {
		int64_t more = kv_done(kv, done, NODES, 1000000);

		ck_assert_int_ge(more, 1);
		for (int64_t i = 0; i < more; i++, n++) {
			ck_assert_int_eq(done[i].status, 0);
			ck_assert_mem_eq(done[i].value, "abc", 3);
		}
	}
	OK(kv_buffer_lend(kv, LARGE, &lent));
	memset(lent, 'b', LARGE);
	for (unsigned i = 0; i < NODES; i++) { /* one registration for all */
		OK(kv_set_bytes(kv, key_of(i), strlen(key_of(i)), lent, LARGE));
		OK(kv_expect_length(kv, key_of(i), strlen(key_of(i)), LARGE));
		ANSWERED(kv_submit_get(kv, key_of(i), strlen(key_of(i)), tell_plain, &told), 0);
	}
	kv_release(lent);
	OK(kv_flush(kv));
	OK(kv_request_timeout(kv, 1000000));
	OK(kv_keep_connected(kv, 1000000));
	ck_assert_str_eq(kv_transport(kv), "shm");
	ck_assert_uint_eq(kv_eager_max(kv), WIRE_EAGER_MAX);
	ck_assert_uint_eq(kv_value_max(kv), 64 * MIB);
	ck_assert_int_ge(kv_fd(kv), 0);
	OK(kv_reopen(kv));
	use_key(key_of(0));
	ASSERT_ERROR(kv_set_bytes(kv, "", 0, "v", 1), -EINVAL, "at least one byte");
	ASSERT_ERROR(kv_cluster_flags(kv, 2), -EINVAL, "KV_CLUSTER_MISS");
}
END_TEST

START_TEST(test_watch)
{
	struct kv_event events[16];
	unsigned began = 0, stored = 0;

	OK(kv_watch(kv, "of", 2, KV_EVENT_STORED));
	while (began < NODES) {
		int64_t n = kv_events(kv, events, 16, 1000000);

		ck_assert_int_ge(n, 0);
		for (int64_t i = 0; i < n; i++)
			began += events[i].kind == KV_EVENT_BEGAN;
	}
	for (unsigned i = 0; i < NODES; i++)
		OK(kv_set(kv, key_of(i), "v"));
	while (stored < NODES) {
		int64_t n = kv_events(kv, events, 16, 1000000);

		ck_assert_int_ge(n, 0);
		for (int64_t i = 0; i < n; i++) {
			ck_assert_int_eq(events[i].kind, KV_EVENT_STORED);
			ck_assert_mem_eq(events[i].key, "of", 2);
			stored++;
		}
	}
	OK(kv_watch(kv, NULL, 0, 0));
	ck_assert_int_eq(kv_events(kv, events, 16, 0), -EINVAL);
}
END_TEST

START_TEST(test_stale_table)
{
	static char large[LARGE];
	struct told sets[200] = {0};

	memset(large, 'l', sizeof(large));
	make_stale();
	OK(kv_set(kv, key_of(0), "v"));
	ck_assert_uint_eq(((struct kv *)kv)->nodes->epoch, 5);
	make_stale();
	items_init();
	for (unsigned i = 0; i < 200; i++)
		ck_assert_int_eq(kv_submit_set(kv, keys[i], strlen(keys[i]), i % 10 ? keys[i] : large,
					       i % 10 ? strlen(keys[i]) : sizeof(large), tell_plain, &sets[i]),
				 0);
	OK(kv_wait(kv));
	for (unsigned i = 0; i < 200; i++) {
		void *value;
		size_t len;

		ck_assert_uint_eq(sets[i].called, 1);
		ck_assert_int_eq(sets[i].result.status, 0);
		OK(kv_get_bytes(kv, keys[i], strlen(keys[i]), &value, &len));
		ck_assert_uint_eq(len, i % 10 ? strlen(keys[i]) : sizeof(large));
		kv_release(value);
	}
	make_stale();
	OK(kv_mset(kv, items, KEYS, NULL));
	make_stale();
	mget_all();
	ck_assert_uint_eq(got_right, KEYS);
	make_stale();
	use_key(key_of(1));
	make_stale();
	ck_assert_int_eq(kv_submit_set(kv, keys[0], strlen(keys[0]), "v", 1, tell_plain, &sets[0]), 0);
	ck_assert_int_eq(kv_cancel(kv, &sets[0]), 1);
	OK(kv_wait(kv));
	ck_assert_uint_eq(sets[0].called, 2);
}
END_TEST

/* Two servers by one epoch do not agree: neither is asked again. */
START_TEST(test_fault)
{
	struct cluster_table *other = nodes_table(NODES, 5);

	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		other->owner[slot] = other->owner[slot] == 2 ? 1 : other->owner[slot];
	give_table(2, other);
	node_restart(2);
	ASSERT_ERROR(kv_set(kv, key_of(2), "v"), -EREMOTE, names[1]);
	ASSERT_ERROR(kv_set(kv, key_of(2), "v"), -EREMOTE, names[2]);
	ANSWERED(kv_submit_get(kv, key_of(2), strlen(key_of(2)), tell_plain, &told), -EREMOTE);
	OK(kv_set(kv, key_of(0), "v"));
	items_init();
	ASSERT_ERROR(kv_mset(kv, items, 100, NULL), -EREMOTE, names[2]);
	free(other);
}
END_TEST

/* A server that is behind is asked for a while, and one that is ahead tells its table. */
START_TEST(test_behind_and_ahead)
{
	struct cluster_table *other = nodes_table(NODES, 4);

	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		other->owner[slot] = other->owner[slot] == 2 ? 1 : other->owner[slot];
	give_table(2, other);
	node_restart(2);
	ASSERT_ERROR(kv_set(kv, key_of(2), "v"), -EREMOTE, "none of 8");
	ANSWERED(kv_submit_set(kv, key_of(2), strlen(key_of(2)), "v", 1, tell_plain, &told), -EREMOTE);
	other->epoch = 6;
	for (unsigned i = 1; i < NODES; i++) {
		give_table(i, other);
		node_restart(i);
	}
	OK(kv_set(kv, key_of(2), "v"));
	ck_assert_uint_eq(((struct kv *)kv)->nodes->epoch, 6);
	ANSWERED(kv_submit_get(kv, key_of(2), strlen(key_of(2)), tell_plain, &told), 0);
	free(other);
}
END_TEST

/* Two servers by an older table than the handle's, in which node1 has what node2 has in that. */
static void two_behind(void)
{
	struct cluster_table *other = nodes_table(NODES, 4);

	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		other->owner[slot] = other->owner[slot] == 2 ? 1 : other->owner[slot];
	for (unsigned i = 1; i < NODES; i++) {
		give_table(i, other);
		node_restart(i);
	}
	free(other);
}

/* A request for the key, of node2, waits to be submitted again; and requests for it go to node1 from now on. */
static void one_waits(const char *key, const char *value, struct told *set)
{
	struct kv_nodes *nodes = ((struct kv *)kv)->nodes;
	unsigned slot = cluster_slot(key, strlen(key)), called = set->called;

	nodes->node[slot] = 2;
	kv_nodes_find_runs(nodes);
	ck_assert_int_eq(kv_submit_set(kv, key, strlen(key), value, strlen(value), tell_plain, set), 0);
	while (!nodes->waiters)
		ck_assert_int_ge(kv_progress(kv, 0), 0);
	ck_assert_uint_eq(set->called, called);
	nodes->node[slot] = 1;
	kv_nodes_find_runs(nodes);
}

/* Requests for one key keep their order, though some wait for another server; by all ways to submit one. */
START_TEST(test_order)
{
	const char *key = key_of(2), *other = key_of(0);
	struct kv_item item = {key, strlen(key), "item", 4, 0};
	struct told first = {0}, second = {0}, away = {0};
	char changed[] = "second";

	two_behind();
	one_waits(key, "first", &first);
	ck_assert_int_eq(kv_submit_set(kv, key, strlen(key), changed, strlen(changed), tell_plain, &second), 0);
	memset(changed, 'x', strlen(changed));
	OK(kv_set(kv, other, "of another slot"));
	OK(kv_wait(kv));
	ck_assert_int_eq(first.result.status, 0);
	ck_assert_int_eq(second.result.status, 0);
	ASSERT_VALUE(key, "second");

	one_waits(key, "first", &first);
	OK(kv_set(kv, key, "call"));
	ck_assert_uint_eq(first.called, 2);
	ASSERT_VALUE(key, "call");

	one_waits(key, "first", &first);
	OK(kv_mset(kv, &item, 1, NULL));
	ck_assert_uint_eq(first.called, 3);
	ASSERT_VALUE(key, "item");

	/* One that is cancelled holds up no others. */
	one_waits(key, "first", &away);
	ck_assert_int_eq(kv_submit_set(kv, key, strlen(key), "a", 1, tell_plain, &first), 0);
	ck_assert_int_eq(kv_submit_set(kv, key, strlen(key), "b", 1, tell_plain, &second), 0);
	ck_assert_int_eq(kv_cancel(kv, &away), 1);
	OK(kv_wait(kv));
	ck_assert_int_eq(away.result.status, -ECANCELED);
	ck_assert_uint_eq(second.called, 2);
	ASSERT_VALUE(key, "b");
	ck_assert_uint_eq(((struct kv *)kv)->nodes->waiters, 0);
}
END_TEST

/* The handle goes by this table. */
static void take_table(const struct cluster_table *t)
{
	static struct kv_table_text text;
	static char printed[CLUSTER_TEXT_MAX + 1];
	struct kv *whole = kv;

	text.head.epoch = t->epoch;
	text.at = (uint64_t)cluster_print(t, printed);
	memcpy(text.text, printed, text.at);
	kv_enter(kv);
	ck_assert_int_eq(kv_table_take(kv, whole->nodes->member[0], &text), 0);
	kv_leave(kv);
	ck_assert_uint_eq(whole->nodes->epoch, t->epoch);
}

/* A node that a new table adds is connected before its requests fail; one where nobody listens fails them soon. */
START_TEST(test_joined)
{
	struct cluster_table *fewer = nodes_table(NODES, 6), *all = nodes_table(NODES, 7);
	uint64_t began;
	struct told early = {0};

	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		fewer->owner[slot] = fewer->owner[slot] == 2 ? 1 : fewer->owner[slot];
	fewer->count--;
	for (unsigned i = 0; i < 4; i++, fewer->epoch += 2, all->epoch += 2) {
		take_table(fewer);
		while (!((struct kv *)kv)->nodes->member[2]->closed)
			ck_assert_int_ge(kv_progress(kv, 1000), 0);
		if (i == 3)
			node_kill(2);
		take_table(all);
		began = time_now();
		if (i == 0)
			OK(kv_set(kv, key_of(2), "v"));
		else if (i == 1)
			OK(kv_mset(kv, &(struct kv_item){key_of(2), strlen(key_of(2)), "v", 1, 0}, 1, NULL));
		else if (i == 2)
			ck_assert_int_eq(kv_submit_get(kv, key_of(2), strlen(key_of(2)), tell_plain, &early), -EAGAIN);
		else
			ck_assert_int_eq(kv_set(kv, key_of(2), "v"), -ENOTCONN);
		ck_assert_uint_lt(time_now() - began, TIME_S);
	}
	free(fewer);
	free(all);
}
END_TEST

/* A server has announced a table, and is in none any more before it can be asked: nobody awaits that for ever. */
START_TEST(test_announcer_gone)
{
	struct cluster_table *without = nodes_table(NODES - 1, 8), *next = nodes_table(NODES - 1, 9);
	struct kv_nodes *nodes = ((struct kv *)kv)->nodes;
	struct kv *gone = nodes->member[2];
	struct cluster_node another = {.name = "another"};
	struct told set = {0};

	ck_assert_int_eq(cluster_node_set(&another, CLUSTER_NATIVE, "unix:///tmp/another"), 0);
	ck_assert_int_eq(cluster_add(next, &another), 0);
	two_behind();
	one_waits(key_of(2), "v", &set);
	nodes->waiting->answered = 10;
	take_table(without);
	while (!gone->closed)
		ck_assert_int_ge(kv_progress(kv, 1000), 0);
	nodes->spoke = gone;
	take_table(next);
	ck_assert_ptr_null(nodes->spoke);
	OK(kv_wait(kv));
	ck_assert_uint_eq(set.called, 1);
	ck_assert_int_eq(set.result.status, -EREMOTE);
	free(without);
	free(next);
}
END_TEST

/* One that dies costs its own keys, and nothing else; it is back when it is back. */
START_TEST(test_killed)
{
	unsigned of_dead = 0, killed = 0;
	struct told early = {0};

	items_init();
	OK(kv_mset(kv, items, KEYS, NULL));
	for (unsigned i = 0; i < KEYS; i++)
		of_dead += owner_of(keys[i], strlen(keys[i])) == 2;
	for (unsigned i = 0; i < 1000; i++)
		killed += kv_submit_get(kv, keys[i], strlen(keys[i]), tell_plain, &early) == 0;
	node_kill(2);
	mget_all();
	ck_assert_uint_le(got_gone, of_dead);
	ck_assert_uint_ge(got_right, KEYS - of_dead);
	kv_wait(kv);
	ck_assert_uint_eq(early.called, killed);
	mget_all();
	ck_assert_uint_eq(got_gone, of_dead);
	ASSERT_ERROR(kv_set(kv, key_of(2), "v"), -ENOTCONN, names[2]);
	ck_assert_int_eq(kv_submit_get(kv, key_of(2), strlen(key_of(2)), tell_plain, &early), -ENOTCONN);
	ck_assert_int_eq(kv_exists(kv, key_of(2), strlen(key_of(2))), -ENOTCONN);
	ck_assert_int_eq(kv_info(kv, &(struct kv_info){0}), -ENOTCONN);
	OK(kv_cluster_flags(kv, KV_CLUSTER_MISS));
	mget_all();
	ck_assert_uint_eq(got_none, of_dead);
	ck_assert_int_eq(kv_exists(kv, key_of(2), strlen(key_of(2))), 0);
	ANSWERED(kv_submit_get(kv, key_of(2), strlen(key_of(2)), tell_plain, &told), -ENOENT);
	ck_assert_int_eq(kv_mset(kv, items, 100, NULL), -ENOTCONN);
	OK(kv_cluster_flags(kv, 0));
	node_restart(2);
	OK(kv_set(kv, key_of(2), "v"));
	node_kill(2);
	node_start(2);
	OK(kv_keep_connected(kv, UINT64_MAX));
	while (kv_set(kv, key_of(2), "v") == -ECONNABORTED)
		continue;
	OK(kv_mset(kv, items, KEYS, NULL));
}
END_TEST

/* Some nodes of many are there. */
START_TEST(test_many_nodes)
{
	nodes_begin(CLUSTER_NODES);
	kv = open_cluster(NULL);
	OK(kv_set(kv, key_of(0), "v"));
	OK(kv_set(kv, key_of(2), "v"));
	ck_assert_int_eq(kv_info(kv, &(struct kv_info){0}), -ENOTCONN);
	items_init();
	ck_assert_int_eq(kv_mset(kv, items, KEYS, NULL), -ENOTCONN);
	nodes_down();
}
END_TEST

static unsigned submitted_within;

static void submit_more(void *arg, int status, const void *value, size_t len)
{
	struct told *told = arg;

	tell_plain(arg, status, value, len);
	if (told->called < 100000)
		submitted_within += kv_submit_get(kv, keys[told->called % KEYS], 4, submit_more, arg) == 0;
}

/* An end in the midst of everything, of which each request is told once. */
START_TEST(test_closed_amidst)
{
	struct told told = {0};
	unsigned begun = 0;

	items_init();
	OK(kv_watch(kv, NULL, 0, KV_EVENT_ALL));
	for (unsigned i = 0; i < 900; i++)
		begun += kv_submit_get(kv, keys[i], strlen(keys[i]), submit_more, &told) == 0;
	kv_progress(kv, 0);
	make_stale();
	for (unsigned i = 0; i < 900; i++)
		begun += kv_submit_set(kv, keys[i], strlen(keys[i]), "v", 1, tell_plain, &told) == 0;
	kv_progress(kv, 0);
	kv_progress(kv, 1000);
	ck_assert_int_eq(kv_close(kv), 0);
	kv = NULL;
	ck_assert_uint_eq(told.called, begun + submitted_within);
}
END_TEST

START_TEST(test_fork)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(kv_set(kv, "k", "v") == -EPERM && kv_close(kv) == 0 ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	OK(kv_set(kv, key_of(0), "v"));
	OK(kv_set(kv, key_of(2), "v"));
}
END_TEST

/* With a progress thread, two handles of one engine, one of which is of a file. */
START_TEST(test_thread)
{
	char address[100];
	struct told told = {0};
	void *second;

	kv_close(kv);
	kv = open_cluster(&(struct rdmad_options){.progress_thread = true});
	snprintf(address, sizeof(address), "cluster:%s", tables[0]);
	OK(kv_open_options(address, NULL, kv, &second));
	items_init();
	OK(kv_mset(kv, items, KEYS, NULL));
	for (unsigned round = 0; round < 5; round++) {
		make_stale();
		told.called = 0;
		for (unsigned i = 0; i < 500; i++)
			OK(kv_submit_set(kv, keys[i], strlen(keys[i]), keys[i], strlen(keys[i]), tell_plain, &told));
		usleep(20000); /* the thread has them answered, or it does not */
		OK(kv_wait(kv));
		ck_assert_uint_eq(told.called, 500);
		ck_assert_int_eq(told.result.status, 0);
	}
	mget_all();
	ck_assert_uint_eq(got_right, KEYS);
	OK(kv_set(second, key_of(1), "v"));
	node_kill(2);
	mget_all();
	kv_close(kv);
	kv = second;
	OK(kv_set(kv, key_of(0), "v"));
}
END_TEST

START_TEST(test_open_fails)
{
	char address[200];
	void *none;

	ASSERT_ERROR(kv_open((char *)"cluster:,", &none), -EINVAL, "names no server");
	ASSERT_ERROR(kv_open((char *)"cluster:/nowhere/table", &none), -ENOENT, "/nowhere/table");
	snprintf(address, sizeof(address), "cluster:unix://%s/none", folder);
	ASSERT_ERROR(kv_open(address, &none), -ENOENT, "cannot connect");
	server_start(&(struct server_options){.transport = "unix"});
	snprintf(address, sizeof(address), "cluster:%s", server.address);
	ASSERT_ERROR(kv_open(address, &none), -EOPNOTSUPP, "of no cluster");
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
	tc = suite_case(suite, "nodes", nodes_up, nodes_down);
	tcase_add_test(tc, test_each_at_its_node);
	tcase_add_test(tc, test_list_while_slots_move);
	tcase_add_test(tc, test_all_calls);
	tcase_add_test(tc, test_watch);
	tcase_add_test(tc, test_stale_table);
	tcase_add_test(tc, test_fault);
	tcase_add_test(tc, test_behind_and_ahead);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_announcer_gone);
	tcase_add_test(tc, test_joined);
	tcase_add_test(tc, test_killed);
	tcase_add_test(tc, test_closed_amidst);
	tcase_add_test(tc, test_fork);
	tcase_add_test(tc, test_thread);
	tcase_add_test(tc, test_open_fails);
	tc = suite_case(suite, "many", NULL, NULL);
	tcase_add_test(tc, test_many_nodes);
	return suite_run(suite);
}
