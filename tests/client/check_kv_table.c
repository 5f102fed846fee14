/* check_kv_table.c: tables that change while a server has clients: which are taken, what becomes of what is under way, of keys that
 * are lost and of slots that come back; and, with random tables, that no hit is older than the last acknowledged write. */
#include "client/kv/kv.h"
#include "tests/client/caller.h"
#include "tests/suite.h"

#include "base/thread.h"

#include <limits.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE (8 * MIB)
#define HERE 0
#define THERE 1

static char dir[] = "/tmp/check-table-XXXXXX", file[64], state[64];
static struct cluster_table now;

static struct kv_shared *shared(void)
{
	return server.services.shared.of[WIRE_KV];
}

static const struct kv_view *view(void)
{
	return kv_cluster_view(shared()->cluster);
}

/* Two nodes, of which the first one is this server and has all slots. */
static void make_first(void)
{
	now = (struct cluster_table){.name = "test", .epoch = 5};
	for (unsigned i = 0; i < 2; i++) {
		struct cluster_node node = {0};
		char address[40];

		snprintf(node.name, sizeof(node.name), "node%u", i);
		snprintf(address, sizeof(address), "tcp://127.0.0.1:%u", 20000 + i);
		ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, address), 0);
		ck_assert_int_eq(cluster_add(&now, &node), 0);
	}
}

static void open_server(void)
{
	server_start(&(struct server_options){
		.services = {.cluster_table = file, .cluster_node = "node0", .cluster_state = state}});
}

static void set_up(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/table", dir);
	snprintf(state, sizeof(state), "%s/state", dir);
	make_first();
	ck_assert_int_eq(cluster_save(file, &now), 0);
	open_server();
}

static void tear_down(void)
{
	server_stop();
	unlink(file);
	unlink(state);
	ck_assert_int_eq(rmdir(dir), 0);
}

/* The slot of the key gets that owner, by a table with the next epoch. */
static int give(const char *key, uint16_t owner)
{
	now.epoch++;
	now.owner[cluster_slot(key, strlen(key))] = owner;
	return kv_cluster_change(shared(), &now, NULL);
}

static void tick(void)
{
	kv_shared_tick(shared(), time_now());
}

/* Until every worker goes by the last table. The server's thread turns, or this one turns it. */
static void settle(void)
{
	while (!kv_cluster_settled(shared(), NULL)) {
		if (server.running)
			sched_yield();
		else
			server_turn();
	}
}

/* Until no key of a lost slot is left, and what is this server's again is served. */
static void sweep(void)
{
	while (view()->sweeping || !kv_cluster_settled(shared(), NULL)) {
		settle();
		tick();
	}
	tick(); /* and what was replaced is freed */
	ck_assert(list_empty(&shared()->cluster->replaced));
}

static void put(void *kv, const char *key, const char *value)
{
	ck_assert_msg(kv_set(kv, key, value) == 0, "%s: %s", key, rdmad_error());
}

static int refuse(const struct cluster_table *table, const char *text)
{
	const char *said;
	int rc;

	log_hush_begin();
	rc = kv_cluster_change(shared(), table, NULL);
	said = log_hush_end();
	ck_assert_msg(strstr(said, text), "%s", said);
	ck_assert_uint_eq(view()->table.epoch, now.epoch);
	return rc;
}

START_TEST(test_refused)
{
	static struct cluster_table other;
	const struct kv_view *before;

	ck_assert_int_eq(give("a", THERE), 0);
	before = view();
	other = now;
	other.epoch--;
	ck_assert_int_eq(refuse(&other, "epoch 5, and 6 was served already"), -ESTALE);
	other = now;
	other.owner[7] = THERE;
	ck_assert_int_eq(refuse(&other, "two tables of epoch 6"), -ESTALE);
	other.epoch++;
	strcpy(other.name, "kv");
	ck_assert_int_eq(refuse(&other, "of cluster kv, and this server of test"), -EINVAL);
	strcpy(other.name, "test");
	strcpy(other.node[0].name, "node7");
	ck_assert_int_eq(refuse(&other, "has no node node0"), -EINVAL);
	ck_assert_int_eq(kv_cluster_change(shared(), &now, NULL), 0);
	ck_assert_ptr_eq(view(), before); /* it is the same table */
	sweep();

	/* An epoch that was never seen is served as well, over a start, too, and no lower one. */
	now.epoch = 100;
	ck_assert_int_eq(kv_cluster_change(shared(), &now, NULL), 0);
	settle();
	server_stop();
	ck_assert_int_eq(cluster_load(state, &other), 0);
	ck_assert_mem_eq(&other, &now, sizeof(now));
	{
		struct kv_settings s = {.cluster_table = file, .cluster_node = "node0", .cluster_state = state};
		struct kv_cluster *cluster;

		ck_assert_int_eq(kv_cluster_open(&s, &cluster), -EINVAL); /* the file has 5 */
		ck_assert_int_eq(cluster_save(file, &now), 0);
		ck_assert_int_eq(kv_cluster_open(&s, &cluster), 0);
		kv_cluster_close(cluster);
		now.owner[9] = CLUSTER_ABSENT;
		ck_assert_int_eq(cluster_save(file, &now), 0);
		ck_assert_int_eq(kv_cluster_open(&s, &cluster), -EINVAL); /* the same epoch, and another table */
		now.epoch++;
		ck_assert_int_eq(cluster_save(file, &now), 0);
		ck_assert_int_eq(kv_cluster_open(&s, &cluster), 0);
		kv_cluster_close(cluster);
		ck_assert_int_eq(truncate(state, 40), 0);
		ck_assert_int_eq(kv_cluster_open(&s, &cluster), -EINVAL); /* nobody knows what was served */
		unlink(state);
	}
	open_server();
}
END_TEST

/* A state that cannot be written: nothing changes. */
START_TEST(test_state_fails)
{
	const struct kv_view *before = view();
	char beside[80];

	snprintf(beside, sizeof(beside), "%s.new", state);
	ck_assert_int_eq(mkdir(beside, 0700), 0);
	log_hush_begin();
	ck_assert_int_lt(give("a", THERE), 0);
	log_hush_end();
	ck_assert_ptr_eq(view(), before);
	rmdir(beside);
	ck_assert_int_eq(kv_cluster_change(shared(), &now, NULL), 0);
	sweep();
}
END_TEST

/* Lost slots are refused at once, gained ones when their former keys are gone; others' keys stay. */
START_TEST(test_lost_and_back)
{
	const struct kv_thread *thread = container_of(server.services.kv, const struct kv_thread, part);
	struct kv_event event;
	void *kv = open_kv(NULL, NULL);
	uint64_t denied;
	char *value;

	put(kv, "a", "1");
	put(kv, "{a}2", "1");
	put(kv, "b", "1");
	ck_assert_int_eq(kv_watch(kv, "", 0, KV_EVENT_DELETED), 0);
	ck_assert_int_eq(kv_events(kv, &event, 1, 60 * 1000000), 1);
	ck_assert_uint_eq(event.kind, KV_EVENT_BEGAN);
	server_pause();
	ck_assert_int_eq(give("a", THERE), 0);
	ck_assert(!kv_cluster_settled(shared(), NULL));
	tick(); /* no sweep before all go by it */
	ck_assert_uint_eq(services_store_stats(&server.services).items, 3);
	settle();
	ck_assert_uint_eq(thread->passed, view()->number);
	server_resume();
	ASSERT_ERROR(kv_get(kv, "a", &value), -EREMOTE, "another server");
	ASSERT_ERROR(kv_set(kv, "a", "2"), -EREMOTE, "another server");
	ck_assert_int_eq(kv_exists(kv, "b", 1), 1);
	denied = server_count("kv_elsewhere");
	ck_assert_uint_eq(denied, 2);

	/* Watchers know at once that something happened, and then what. */
	ck_assert_int_eq(kv_events(kv, &event, 1, 60 * 1000000), 1);
	ck_assert_uint_eq(event.kind, KV_EVENT_MISSED);

	/* It comes back before they are gone. */
	ck_assert_int_eq(give("a", HERE), 0);
	settle();
	ck_assert_uint_eq(view()->waiting, 1);
	ASSERT_ERROR(kv_get(kv, "a", &value), -EREMOTE, "another server");
	sweep();
	/* By the second table nothing more was lost. */
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(kv_events(kv, &event, 1, 60 * 1000000), 1);
		ck_assert_uint_eq(event.kind, KV_EVENT_DELETED);
	}
	ck_assert_int_eq(kv_exists(kv, "a", 1), 0);
	ck_assert_int_eq(kv_exists(kv, "{a}2", 4), 0);
	ck_assert_int_eq(kv_exists(kv, "b", 1), 1);
	put(kv, "a", "3");
	kv_close(kv);
}
END_TEST

static int status_of;
static unsigned calls;

static void done(void *arg, int status, const void *value, size_t len)
{
	(void)arg, (void)value, (void)len;
	status_of = status;
	calls++;
}

/* Turns of both until the call has come. */
static void finish(void *kv, unsigned wanted)
{
	while (calls < wanted) {
		server_turn();
		kv_progress(kv, 0);
	}
}

/* A large value on its way when its slot is given away is not stored, whether it comes back meanwhile or not. */
START_TEST(test_large_set)
{
	const bool again = _i & 1, fills = _i & 2;
	void *kv = open_kv(NULL, NULL);
	char *value = malloc(LARGE);

	memset(value, 'x', LARGE);
	put(kv, "a", "old");
	calls = 0;
	server_pause();
	ck_assert_int_eq(kv_submit_set(kv, "a", 1, value, LARGE, done, NULL), 0);
	kv_flush(kv);
	while (!services_store_stats(&server.services).pins) /* its place */
		server_turn();
	ck_assert_int_eq(give("a", THERE), 0);
	settle(); /* though the value is on its way */
	tick();
	if (again) {
		ck_assert_int_eq(give("a", HERE), 0);
		sweep();
	}
	if (fills)
		kv_progress(kv, 0);
	ck_assert_uint_eq(calls, 0);
	finish(kv, 1);
	/* Back, and empty, it is this server's: a write that is under way still is as good as one that begins now. */
	ck_assert_int_eq(status_of, again ? 0 : -EREMOTE);
	ck_assert_uint_eq(services_store_stats(&server.services).pins, 0);
	ck_assert_uint_eq(kv_hold_bytes(services_hold(&server.services)), 0);
	sweep();
	ck_assert_uint_eq(services_store_stats(&server.services).items, again);
	server_resume();
	ck_assert_int_eq(kv_exists(kv, "a", 1), again ? 1 : -EREMOTE);
	kv_close(kv);
	free(value);
}
END_TEST

/* A large get on its way ends as it began. */
START_TEST(test_large_get)
{
	void *kv = open_kv(NULL, NULL);
	char *value = malloc(LARGE), *to = malloc(LARGE);

	memset(value, 'x', LARGE);
	ck_assert_int_eq(kv_set_bytes(kv, "a", 1, value, LARGE), 0);
	calls = 0;
	server_pause();
	ck_assert_int_eq(kv_submit_get_into(kv, "a", 1, to, LARGE, done, NULL), 0);
	kv_flush(kv);
	while (!services_store_stats(&server.services).pins)
		server_turn();
	ck_assert_int_eq(give("a", THERE), 0);
	sweep();
	ck_assert_uint_eq(services_store_stats(&server.services).items, 0);
	finish(kv, 1);
	ck_assert_int_eq(status_of, 0);
	ck_assert_mem_eq(value, to, LARGE);
	while (services_store_stats(&server.services).pins)
		server_turn();
	server_resume();
	kv_close(kv);
	free(value);
	free(to);
}
END_TEST

/* A lease keeps the memory of what is deleted, and nothing else. */
START_TEST(test_lease)
{
	struct kv_item item = {.key = "a", .key_len = 1};
	void *kv = open_kv(NULL, NULL);
	size_t leased;

	put(kv, "a", "1");
	ck_assert_int_ge(kv_mlease(kv, &item, 1, 60 * 1000000, &leased), 0);
	ck_assert_uint_eq(leased, 1);
	ck_assert_int_eq(give("a", THERE), 0);
	sweep();
	ck_assert_int_eq(kv_exists(kv, "a", 1), -EREMOTE);
	ck_assert_int_eq(give("a", HERE), 0);
	sweep();
	ck_assert_int_eq(kv_exists(kv, "a", 1), 0);
	kv_close(kv);
}
END_TEST

static int see(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)meta;
	ck_assert_uint_eq(key_len, 1);
	ck_assert_int_eq(*(const char *)key, 'b');
	++*(unsigned *)arg;
	return 0;
}

/* A walk does not show what was given away, swept or not. */
START_TEST(test_walk)
{
	void *kv = open_kv(NULL, NULL);
	unsigned seen = 0;

	put(kv, "a", "1");
	put(kv, "b", "1");
	ck_assert_int_eq(give("a", THERE), 0);
	settle();
	ck_assert_int_eq(kv_each(kv, "", 0, see, &seen), 0);
	ck_assert_uint_eq(seen, 1);
	sweep();
	kv_close(kv);
}
END_TEST

/* Out of the table nothing is answered; the same table gives all back, empty. */
START_TEST(test_out)
{
	void *kv = open_kv(NULL, NULL);

	put(kv, "a", "1");
	ck_assert_int_eq(kv_cluster_change(shared(), NULL, NULL), 0);
	ck_assert_int_eq(kv_cluster_change(shared(), NULL, NULL), 0);
	settle();
	ck_assert_int_eq(kv_exists(kv, "a", 1), -EREMOTE);
	ck_assert_int_eq(kv_cluster_change(shared(), &now, NULL), 0);
	settle();
	ck_assert_int_eq(kv_exists(kv, "a", 1), -EREMOTE);
	sweep();
	ck_assert_int_eq(kv_exists(kv, "a", 1), 0);
	put(kv, "a", "2");
	kv_close(kv);
}
END_TEST

/*
 * Random tables beside clients.
 */
#define CLIENTS 2
#define KEYS 24
#define LONG 20000 /* bytes of some values: they go by rendezvous */

/* Of each slot: how often it began to be given away, how often that was said to the server, and how often it was over. */
static _Atomic unsigned losing[CLUSTER_SLOTS], given[CLUSTER_SLOTS], lost[CLUSTER_SLOTS];
static _Atomic bool stop;

struct key {
	char text[16];
	unsigned slot;
	unsigned number;        /* of the last acknowledged value; 0: none */
	unsigned before, after; /* losing[] around its write; UINT_MAX: not known */
};

static void model_write(void *kv, struct key *k, unsigned number)
{
	static __thread char value[LONG];
	size_t len = number % 5 ? 32 : LONG;
	unsigned before = atomic_load(&losing[k->slot]);
	bool whole = atomic_load(&given[k->slot]) == before;
	int rc;

	memset(value, 0, len);
	memcpy(value, &number, sizeof(number));
	rc = kv_set_bytes(kv, k->text, strlen(k->text), value, len);
	ck_assert_msg(rc == 0 || rc == -EREMOTE, "%s", rdmad_error());
	if (rc == 0) {
		k->number = number;
		k->before = whole ? before : UINT_MAX; /* a loss that had begun may come behind it */
		k->after = atomic_load(&losing[k->slot]);
	}
}

static void model_read(void *kv, struct key *k)
{
	unsigned over = atomic_load(&lost[k->slot]), began, number = 0;
	size_t len = 0;
	void *value;
	int rc = kv_get_bytes(kv, k->text, strlen(k->text), &value, &len);

	began = atomic_load(&losing[k->slot]);
	ck_assert_msg(rc == 0 || rc == -EREMOTE || rc == -ENOENT, "%s", rdmad_error());
	if (rc == 0) {
		memcpy(&number, value, sizeof(number));
		kv_release(value);
		/* The latest that was acknowledged; and not one of before a loss that was over. */
		ck_assert_uint_eq(number, k->number);
		ck_assert_msg(over <= k->after, "%s: what was written before loss %u came back behind loss %u", k->text,
			      k->after + 1, over);
	} else if (k->number && rc == -ENOENT) {
		ck_assert_msg(began != k->before, "%s: a value that was not lost is gone", k->text);
	}
}

static void *client(void *arg)
{
	uint64_t random = 12345 + (uintptr_t)arg;
	struct key key[KEYS] = {0};
	void *kv = open_kv(NULL, NULL);

	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key[i].text, sizeof(key[i].text), "c%u-%u", (unsigned)(uintptr_t)arg, i);
		key[i].slot = cluster_slot(key[i].text, strlen(key[i].text));
	}
	for (unsigned number = 1; !atomic_load(&stop); number++) {
		struct key *k;

		random = random * 6364136223846793005u + 1442695040888963407u;
		k = &key[(random >> 33) % KEYS];
		if (random >> 60 & 1)
			model_write(kv, k, number);
		else
			model_read(kv, k);
	}
	kv_close(kv);
	return NULL;
}

START_TEST(test_random)
{
	const unsigned rounds = (unsigned)suite_part(400);
	static bool goes[CLUSTER_SLOTS];
	uint64_t random = 1;
	pthread_t thread[CLIENTS];

	atomic_store(&stop, false);
	for (uintptr_t i = 0; i < CLIENTS; i++)
		ck_assert_int_eq(thread_start(&thread[i], "client", client, (void *)i), 0);
	for (unsigned round = 0; round < rounds; round++) {
		memset(goes, 0, sizeof(goes));
		now.epoch++;
		for (unsigned i = 0; i < CLIENTS * KEYS; i++) {
			char text[16];
			unsigned slot;

			snprintf(text, sizeof(text), "c%u-%u", i / KEYS, i % KEYS);
			slot = cluster_slot(text, strlen(text));
			random = random * 6364136223846793005u + 1442695040888963407u;
			if (random >> 61)
				continue; /* it stays */
			if (now.owner[slot] == HERE) {
				goes[slot] = true;
				atomic_fetch_add(&losing[slot], 1);
			}
			now.owner[slot] = now.owner[slot] == HERE ? THERE : HERE;
		}
		ck_assert_int_eq(kv_cluster_change(shared(), &now, NULL), 0);
		for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
			atomic_store(&given[slot], atomic_load(&losing[slot]));
		if (!(random >> 32 & 3))
			continue; /* the next one comes in its midst */
		settle();
		for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
			if (goes[slot])
				atomic_store(&lost[slot], atomic_load(&losing[slot]));
		for (unsigned i = 0; i < (random >> 40 & 7); i++)
			tick();
		if (random >> 50 & 1)
			sweep();
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < CLIENTS; i++)
		pthread_join(thread[i], NULL);
	sweep();
}
END_TEST

static void take_status(void *arg, int status, const void *value, size_t len)
{
	(void)value;
	(void)len;
	*(int *)arg = status;
}

/* A request that is on its way while the slot comes here is not carried out before a request that was refused. */
START_TEST(test_order)
{
	const char *key = "a";
	int first = 1, second = 1;
	struct kv_nodes *nodes;
	char address[200];
	void *kv = NULL;
	char *value;

	server_stop();
	unlink(state);
	make_first();
	now.owner[cluster_slot(key, 1)] = THERE;
	snprintf(address, sizeof(address), "unix://%s/server", dir);
	ck_assert_int_eq(cluster_node_set(&now.node[HERE], CLUSTER_NATIVE, address), 0);
	ck_assert_int_eq(cluster_save(file, &now), 0);
	server_start(&(struct server_options){
		.transport = "unix",
		.path = address + strlen("unix://"),
		.services = {.cluster_table = file, .cluster_node = "node0", .cluster_state = state}});
	snprintf(address, sizeof(address), "cluster:%s", server.address);
	ck_assert_int_eq(kv_open(address, &kv), 0);
	/* It goes by a table that the server has not yet. */
	nodes = ((struct kv *)kv)->nodes;
	nodes->node[cluster_slot(key, 1)] = nodes->node[cluster_slot("b", 1)];
	nodes->epoch += _i;
	kv_nodes_find_runs(nodes);
	ck_assert_int_eq(kv_submit_set(kv, key, 1, "first", 5, take_status, &first), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	while (server_count("kv_elsewhere") != 1)
		sched_yield();
	server_pause();
	ck_assert_int_eq(give(key, HERE), 0);
	server_resume();
	settle();
	ck_assert_int_eq(kv_submit_set(kv, key, 1, "second", 6, take_status, &second), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(first, 0);
	ck_assert_int_eq(second, 0);
	ck_assert_int_eq(kv_get(kv, key, &value), 0);
	ck_assert_str_eq(value, "second");
	kv_release(value);
	kv_close(kv);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv_table");
	TCase *tc = suite_case(suite, "change", set_up, tear_down);

	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_state_fails);
	tcase_add_test(tc, test_lost_and_back);
	tcase_add_loop_test(tc, test_large_set, 0, 4);
	tcase_add_test(tc, test_large_get);
	tcase_add_test(tc, test_lease);
	tcase_add_test(tc, test_walk);
	tcase_add_test(tc, test_out);
	tcase_add_loop_test(tc, test_order, 1, 3);
	tc = suite_case(suite, "random", set_up, tear_down);
	tcase_add_test(tc, test_random);
	return suite_run(suite);
}
