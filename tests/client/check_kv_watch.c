/* check_kv_watch.c: changes of keys, by librdmad's calls, against a server in the same process: what is told, to whom,
 * and what a slow program misses. */
#include <check.h>

#include <poll.h>

#include "base/base.h"
#include "base/thread.h"
#include "client/kv/kv.h"
#include "service/kv/kv.h"
#include "tests/client/caller.h"
#include "tests/suite.h"

#define SECOND 1000000u /* us */
#define FOR_EVER (60ull * SECOND)
#define ALL ((unsigned)KV_EVENT_ALL)

static void *kv, *writer;

static void start(const struct rdmad_options *options, uint64_t time)
{
	server_start(&(struct server_options){.services = {.arena = 8 * MIB, .eviction = STORE_EVICT_S3_FIFO},
					      .time = time});
	kv = open_kv(options, NULL);
	writer = open_kv(NULL, NULL);
}

static void set_up(void)
{
	start(NULL, 0);
}

static void set_up_thread(void)
{
	start(&(struct rdmad_options){.progress_thread = true}, 0);
}

static void set_up_time(void)
{
	start(NULL, TIME_S);
}

static uint64_t watches(void)
{
	return atomic_load(&((struct kv_shared *)server.services.shared.of[WIRE_KV])->watches);
}

static void tear_down(void)
{
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(writer), 0);
	server_pause();
	while (server.group && conn_group_connections(server.group) > 0)
		server_turn();
	ck_assert_uint_eq(watches(), 0);
	server_stop();
}

static void put(const char *key, const char *value)
{
	ck_assert_int_eq(kv_set_bytes(writer, key, strlen(key), value, strlen(value)), 0);
}

static void expect_event(enum kv_event_kind kind, const char *key, bool fresh)
{
	struct kv_event event;
	int64_t n = kv_events(kv, &event, 1, FOR_EVER);

	ck_assert_msg(n == 1, "%lld: %s", (long long)n, rdmad_error());
	ck_assert_uint_eq(event.kind, kind);
	ck_assert_uint_eq(event.key_len, strlen(key));
	if (*key)
		ck_assert_mem_eq(event.key, key, strlen(key));
	else
		ck_assert_ptr_eq(event.key, NULL);
	ck_assert(event.fresh == fresh);
}

static void watch(const char *prefix, unsigned kinds)
{
	ck_assert_int_eq(kv_watch(kv, prefix, strlen(prefix), kinds), 0);
	expect_event(KV_EVENT_BEGAN, "", false);
}

/* What comes before this is all that there was. */
static void expect_no_more(void)
{
	static unsigned n;
	char key[16];

	snprintf(key, sizeof(key), "end%u", n++);
	put(key, "v");
	expect_event(KV_EVENT_STORED, key, true);
}

START_TEST(test_kinds)
{
	struct kv_put_options timed = {.ttl_us = 10 * SECOND};

	watch("", ALL);
	put("a", "1");
	expect_event(KV_EVENT_STORED, "a", true);
	put("a", "2");
	expect_event(KV_EVENT_STORED, "a", false);
	ck_assert_int_eq(kv_expire(writer, "a", 1, 5 * SECOND), 1);
	expect_event(KV_EVENT_TTL, "a", false);
	ck_assert_int_eq(kv_delete(writer, "a", 1), 1);
	expect_event(KV_EVENT_DELETED, "a", false);
	ck_assert_int_eq(kv_delete(writer, "a", 1), 0);
	ck_assert_int_eq(kv_put(writer, "t", 1, "v", 1, &timed, NULL), 0);
	expect_event(KV_EVENT_STORED, "t", true);
	server_pause();
	server.time += 11 * TIME_S;
	while (server_turn() > 0)
		continue;
	server_resume();
	ck_assert_int_eq(kv_exists(writer, "t", 1), 0);
	expect_event(KV_EVENT_EXPIRED, "t", false);
	ck_assert_int_eq(kv_delete_all(writer, NULL), 0);
	expect_event(KV_EVENT_FLUSHED, "", false);
	expect_no_more();
	ck_assert_uint_eq(server_count("kv_events_missed"), 0);
	ck_assert_uint_eq(server_count("kv_errors"), 0);
}
END_TEST

/* The one that watches hears of its own changes, too. */
START_TEST(test_prefix)
{
	char longest[WIRE_KEY_MAX + 1];

	memset(longest, 'p', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	watch("p", KV_EVENT_STORED);
	put("a", "1");
	put("q", "1");
	put("p", "1");
	expect_event(KV_EVENT_STORED, "p", true);
	ck_assert_int_eq(kv_delete(writer, "p", 1), 1);
	ck_assert_int_eq(kv_delete_all(writer, NULL), 0);
	put(longest, "1");
	expect_event(KV_EVENT_STORED, longest, true);
	ck_assert_int_eq(kv_set_bytes(kv, "pq", 2, "v", 1), 0);
	expect_event(KV_EVENT_STORED, "pq", true);
	watch("", KV_EVENT_DELETED | KV_EVENT_STORED); /* in its place */
	ck_assert_int_eq(kv_delete(writer, "pq", 2), 1);
	expect_event(KV_EVENT_DELETED, "pq", false);
	expect_no_more();
}
END_TEST

START_TEST(test_evicted)
{
	static char value[100000];
	struct kv_event event;
	unsigned evicted = 0;
	char key[16];

	watch("e", KV_EVENT_EVICTED);
	for (unsigned i = 0; i < 300; i++) {
		snprintf(key, sizeof(key), "e%u", i);
		ck_assert_int_eq(kv_set_bytes(writer, key, strlen(key), value, sizeof(value)), 0);
	}
	server_pause();
	evicted = (unsigned)services_store_stats(&server.services).evictions;
	server_resume();
	ck_assert_uint_gt(evicted, 0);
	for (unsigned i = 0; i < evicted; i++) {
		ck_assert_int_eq(kv_events(kv, &event, 1, FOR_EVER), 1);
		ck_assert_uint_eq(event.kind, KV_EVENT_EVICTED);
		ck_assert_uint_eq(*(const char *)event.key, 'e');
	}
	ck_assert_int_eq(kv_events(kv, &event, 1, 0), 0);
}
END_TEST

/* A program that takes nothing: other requests of its connection go on, no one waits for it, and it is told how many it
 * has missed, exactly, as the server's thread has read all of them. */
START_TEST(test_slow)
{
	enum { KEYS = 10000 };
	struct kv_event events[64];
	uint64_t told = 0, missed = 0;
	char key[64];
	char *value;

	watch("", KV_EVENT_STORED);
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "%050u", i);
		ck_assert_int_eq(kv_set_bytes(writer, key, 50, "v", 1), 0);
	}
	ck_assert_int_eq(kv_get(kv, key, &value), 0);
	ck_assert_str_eq(value, "v");
	kv_release(value);
	while (!missed) {
		int64_t n = kv_events(kv, events, ARRAY_SIZE(events), FOR_EVER);

		ck_assert_int_gt(n, 0);
		for (int64_t i = 0; i < n; i++) {
			missed += events[i].missed;
			if (events[i].kind == KV_EVENT_MISSED) {
				ck_assert_int_eq(i, n - 1); /* behind all that was kept */
				continue;
			}
			snprintf(key, sizeof(key), "%050llu", (unsigned long long)told++);
			ck_assert_mem_eq(events[i].key, key, 50);
		}
	}
	ck_assert_uint_eq(told + missed, KEYS);
	ck_assert_uint_gt(told, 500);
	ck_assert_uint_eq(server_count("kv_events"), told);
	ck_assert_uint_eq(server_count("kv_events_missed"), missed);
	expect_no_more();
}
END_TEST

/* More changes than the store's ring has places for, before the server's thread looks. */
START_TEST(test_lap)
{
	enum { KEYS = 70000 };
	struct kv_event event;

	watch("", KV_EVENT_STORED);
	server_pause();
	for (uint32_t i = 0; i < KEYS; i++)
		ck_assert_int_eq(
			store_set(server.services.store, &(uint32_t){i % 1000}, 4, "v", 1, NULL, time_now(), NULL), 0);
	server_resume();
	ck_assert_int_eq(kv_events(kv, &event, 1, FOR_EVER), 1);
	ck_assert_uint_eq(event.kind, KV_EVENT_MISSED);
	ck_assert_uint_eq(event.missed, KEYS);
	expect_no_more();
}
END_TEST

static void may_read(const char *prefix)
{
	server_pause();
	conn_group_each(server.group, restrict_reads, (void *)(uintptr_t)prefix);
	server_resume();
}

START_TEST(test_rights)
{
	struct kv_event event;

	may_read("mine");
	watch("", ALL);
	put("his", "1");
	put("mine1", "1");
	expect_event(KV_EVENT_STORED, "mine1", true);
	watch("mine2", ALL);
	put("mine1", "1");
	put("mine2", "1");
	expect_event(KV_EVENT_STORED, "mine2", true);
	ck_assert_int_eq(kv_watch(kv, "his", 3, ALL), 0);
	ASSERT_ERROR((int)kv_events(kv, &event, 1, FOR_EVER), -EACCES, "right");
	ck_assert_uint_eq(watches(), 0);
	ck_assert_uint_eq(server_count("kv_denied"), 1);
	ASSERT_ERROR((int)kv_events(kv, &event, 1, 0), -EINVAL, "kv_watch");
}
END_TEST

/* Rights are taken away while events wait in the server: those that go by now are told no more. */
START_TEST(test_rights_reload)
{
	struct kv_event event;

	watch("", ALL);
	put("m0", "1"); /* goes at once; the others wait until it was taken */
	put("x1", "1");
	put("m1", "1");
	put("x2", "1");
	may_read("m");
	expect_event(KV_EVENT_STORED, "m0", true);
	expect_event(KV_EVENT_STORED, "m1", true);
	put("x3", "1");
	put("m2", "1");
	expect_event(KV_EVENT_STORED, "m2", true);
	may_read("x");
	put("m2", "1");
	put("x3", "1");
	expect_event(KV_EVENT_STORED, "x3", false);
	watch("x4", ALL);
	put("x4", "1");
	put("x4", "2");
	may_read("m");
	put("m2", "1");
	/* The first may have left before. */
	while (kv_events(kv, &event, 1, FOR_EVER) == 1)
		ck_assert_mem_eq(event.key, "x4", 2);
	ck_assert_msg(strstr(rdmad_error(), "right"), "%s", rdmad_error());
	ck_assert_int_eq(kv_events(kv, &event, 1, 0), -EINVAL);
}
END_TEST

START_TEST(test_ended)
{
	struct kv_event event;

	ck_assert_int_eq(kv_events(kv, &event, 1, FOR_EVER), -EINVAL);
	ck_assert_int_eq(kv_watch(kv, NULL, 0, 0), 0); /* there is none */
	watch("", ALL);
	put("a", "1");
	ck_assert_int_eq(kv_watch(kv, NULL, 0, 0), 0);
	ck_assert_int_eq(kv_events(kv, &event, 1, FOR_EVER), -EINVAL);
	ck_assert_int_eq(kv_exists(kv, "a", 1), 1); /* behind it */
	ck_assert_uint_eq(watches(), 0);
	put("a", "2");
	watch("", ALL);
	expect_no_more();
	/* Others in a row, of which only the last one counts. */
	for (unsigned i = 0; i < 200; i++)
		ck_assert_int_eq(kv_watch(kv, "a", 1, i % 3 ? ALL : 0), 0);
	watch("e", ALL);
	put("a", "3");
	expect_no_more();
}
END_TEST

START_TEST(test_wrong)
{
	static const char longest[WIRE_KEY_MAX + 1];
	struct kv_event event;

	ck_assert_int_eq(kv_watch(NULL, NULL, 0, ALL), -EINVAL);
	ck_assert_int_eq(kv_watch(kv, NULL, 1, ALL), -EINVAL);
	ck_assert_int_eq(kv_watch(kv, longest, sizeof(longest), ALL), -ENAMETOOLONG);
	ASSERT_ERROR(kv_watch(kv, NULL, 0, KV_EVENT_FLUSHED), -EINVAL, "kinds");
	ck_assert_int_eq(kv_events(kv, NULL, 1, 0), -EINVAL);
	ck_assert_int_eq(kv_events(kv, &event, 0, 0), -EINVAL);
	((struct kv *)kv)->watches = false; /* as of an older server */
	ASSERT_ERROR(kv_watch(kv, NULL, 0, ALL), -EOPNOTSUPP, "older");
}
END_TEST

/* The server dies and comes back: the watch begins again, and so it is said that events may be missing. */
START_TEST(test_reconnected)
{
	struct kv_event event;

	watch("a", ALL);
	put("a1", "1");
	expect_event(KV_EVENT_STORED, "a1", true);
	ck_assert_int_eq(kv_keep_connected(kv, UINT64_MAX), 0);
	server_pause();
	server_die();
	ck_assert_uint_eq(watches(), 0);
	ck_assert_int_eq(kv_events(kv, &event, 1, 1000), 0);
	server_revive();
	server_resume();
	ck_assert_int_eq(kv_reopen(writer), 0);
	expect_event(KV_EVENT_BEGAN, "", false);
	put("b1", "1");
	put("a1", "2");
	expect_event(KV_EVENT_STORED, "a1", false);
	/* Nor is it another connection that has to be kept. */
	ck_assert_int_eq(kv_keep_connected(kv, 0), 0);
	server_pause();
	server_die();
	ck_assert_int_eq(kv_events(kv, &event, 1, FOR_EVER), -ENOTCONN);
	ck_assert_int_eq(kv_watch(kv, "a", 1, ALL), -ENOTCONN);
	server_revive();
	server_resume();
	ck_assert_int_eq(kv_reopen(kv), 0);
	expect_event(KV_EVENT_BEGAN, "", false);
}
END_TEST

/* A loop of the program's own: the descriptor tells of events. */
START_TEST(test_loop)
{
	struct pollfd pfd = {.fd = kv_fd(kv), .events = POLLIN};
	struct kv_event event;

	watch("", ALL);
	put("a", "1");
	while (kv_arm(kv) == 0)
		ck_assert_int_ge(poll(&pfd, 1, -1), 0);
	/* It may have been something else. */
	while (kv_events(kv, &event, 1, 0) == 0)
		if (kv_arm(kv) == 0)
			ck_assert_int_ge(poll(&pfd, 1, -1), 0);
	ck_assert_uint_eq(event.kind, KV_EVENT_STORED);
	/* What came is not forgotten by one that waits for something else, nor by one that waits for ever. */
	put("b", "1");
	ck_assert_int_eq(kv_exists(kv, "b", 1), 1);
	while (!kv_watch_filled(kv))
		ck_assert_int_ge(kv_progress(kv, UINT64_MAX), 1);
	ck_assert_int_eq(kv_arm(kv), 1);
	expect_event(KV_EVENT_STORED, "b", true);
}
END_TEST

/*
 * A model: a program that keeps copies by events has what the store has when it has heard of all
 */
#define MODEL_KEYS 200

struct model {
	uint64_t copy[MODEL_KEYS]; /* 0: no such key */
	unsigned events, rescans;
};

static int model_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct model *m = arg;
	char text[16] = "";
	unsigned i;

	memcpy(text, key, MIN(key_len, sizeof(text) - 1));
	i = (unsigned)atoi(text + 1);
	if (*text == 'k' && i < MODEL_KEYS)
		m->copy[i] = meta->version;
	return 0;
}

static void model_rescan(struct model *m)
{
	memset(m->copy, 0, sizeof(m->copy));
	m->rescans++;
	ck_assert_int_eq(kv_each(kv, "k", 1, model_key, m), 0);
}

/* False: it was the last. */
static bool model_event(struct model *m, const struct kv_event *event)
{
	struct kv_meta meta = {0};
	char text[16] = "";
	int rc;

	m->events++;
	if (event->kind == KV_EVENT_BEGAN || event->kind == KV_EVENT_MISSED) {
		model_rescan(m);
		return true;
	}
	if (event->kind == KV_EVENT_FLUSHED) {
		memset(m->copy, 0, sizeof(m->copy));
		return true;
	}
	memcpy(text, event->key, MIN(event->key_len, sizeof(text) - 1));
	if (strcmp(text, "kend") == 0)
		return false;
	/* What is read is no older than the event. */
	rc = event->kind == KV_EVENT_STORED ? kv_stat(kv, text, strlen(text), &meta) : -ENOENT;
	ck_assert(rc == 0 || rc == -ENOENT);
	m->copy[atoi(text + 1)] = rc == 0 ? meta.version : 0;
	return true;
}

/* Of the writer, in a thread of its own. */
static void *model_writes(void *arg)
{
	uint64_t seed = 1;
	char key[16];

	(void)arg;
	for (unsigned i = 0; i < 4000; i++) {
		uint64_t random;

		seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's */
		random = seed >> 33;
		snprintf(key, sizeof(key), "k%u", (unsigned)(random >> 8) % MODEL_KEYS);
		if (random % 500 == 0)
			REQUIRE(kv_delete_all(writer, NULL) == 0);
		else if (random % 8 == 0)
			REQUIRE(kv_delete(writer, key, strlen(key)) >= 0);
		else
			REQUIRE(kv_submit_set(writer, key, strlen(key), key, strlen(key), request_unheard, NULL) == 0 ||
				kv_wait(writer) == 0);
	}
	REQUIRE(kv_wait(writer) == 0);
	return NULL;
}

static int model_same(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct model *m = arg;
	char text[16] = "";

	memcpy(text, key, MIN(key_len, sizeof(text) - 1));
	if (strcmp(text, "kend") == 0)
		return 0;
	ck_assert_msg(m->copy[atoi(text + 1)] == meta->version, "%s: %llu, %llu", text,
		      (unsigned long long)m->copy[atoi(text + 1)], (unsigned long long)meta->version);
	m->copy[atoi(text + 1)] = 0;
	return 0;
}

START_TEST(test_model)
{
	static struct model model;
	struct kv_event events[32];
	bool more = true;
	pthread_t thread;
	int64_t n;

	ck_assert_int_eq(kv_watch(kv, "k", 1, ALL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, model_writes, NULL), 0);
	for (unsigned turn = 0; turn < 300; turn++) {
		n = kv_events(kv, events, ARRAY_SIZE(events), 1000);
		ck_assert_int_ge(n, 0);
		for (int64_t i = 0; i < n; i++)
			model_event(&model, &events[i]);
	}
	pthread_join(thread, NULL);
	put("kend", "1");
	/* The last one may be among those that were missed; another one is not. */
	while (more) {
		n = kv_events(kv, events, ARRAY_SIZE(events), FOR_EVER);
		ck_assert_int_gt(n, 0);
		for (int64_t i = 0; i < n && more; i++) {
			if (events[i].kind == KV_EVENT_MISSED)
				put("kend", "1");
			more = model_event(&model, &events[i]);
		}
	}
	ck_assert_uint_ge(model.rescans, 1);
	ck_assert_int_eq(kv_each(kv, "k", 1, model_same, &model), 0);
	for (unsigned i = 0; i < MODEL_KEYS; i++)
		ck_assert_uint_eq(model.copy[i], 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv_watch");
	TCase *tc = suite_case(suite, "watch", set_up, tear_down);

	tcase_add_test(tc, test_prefix);
	tcase_add_test(tc, test_evicted);
	tcase_add_test(tc, test_slow);
	tcase_add_test(tc, test_lap);
	tcase_add_test(tc, test_rights);
	tcase_add_test(tc, test_rights_reload);
	tcase_add_test(tc, test_ended);
	tcase_add_test(tc, test_wrong);
	tcase_add_test(tc, test_reconnected);
	tcase_add_test(tc, test_loop);
	tcase_add_test(tc, test_model);
	tc = suite_case(suite, "time", set_up_time, tear_down);
	tcase_add_test(tc, test_kinds);
	tc = suite_case(suite, "progress thread", set_up_thread, tear_down);
	tcase_add_test(tc, test_prefix);
	tcase_add_test(tc, test_ended);
	tcase_add_test(tc, test_reconnected);
	tcase_add_test(tc, test_loop);
	tcase_add_test(tc, test_model);
	return suite_run(suite);
}
