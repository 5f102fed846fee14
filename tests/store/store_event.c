/*
 * store_event: watchers of changed keys. Each kind of change is told with its key and note; one that sleeps is woken;
 * one that is a lap behind is told that it missed some; and a copy that is dropped at its event is never older than the
 * store for longer than that.
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/store/store_common.h"

#define KEYS 64u
#define WRITERS 2u
#define WATCHERS 2u
#define TURNS 20000u

struct watch {
	struct fixture f;
	struct store_watcher watcher;
	struct store_event event;
	int fd;
};

static void watch_open(struct watch *w)
{
	w->f = fixture_open(16 * MIB, MIB, STORE_EVICT_S3_FIFO);
	w->fd = eventfd(0, EFD_NONBLOCK);
	ck_assert_int_ge(w->fd, 0);
	ck_assert_int_eq(store_watch_begin(w->f.store, &w->watcher, w->fd), 0);
}

static void watch_close(struct watch *w)
{
	store_watch_end(w->f.store, &w->watcher);
	close(w->fd);
	fixture_close(&w->f);
}

static void expect_event(struct watch *w, enum store_event_type type, const char *key, uint64_t note)
{
	ck_assert(store_watch_next(w->f.store, &w->watcher, &w->event));
	ck_assert_int_eq(w->event.type, type);
	ck_assert_uint_eq(w->event.key_len, strlen(key));
	ck_assert_mem_eq(w->event.key, key, strlen(key));
	ck_assert_uint_eq(w->event.note, note);
}

static void expect_none(struct watch *w)
{
	ck_assert(!store_watch_next(w->f.store, &w->watcher, &w->event));
}

START_TEST(test_kinds)
{
	const struct store_put put = {.expires = NOW + 10, .note = 7};
	struct watch w;
	int64_t number;

	watch_open(&w);
	ck_assert_int_eq(store_set(w.f.store, "a", 1, "1", 1, NULL, NOW, NULL), 0);
	expect_event(&w, STORE_EVENT_SET, "a", 0);
	ck_assert(w.event.fresh && !w.event.timed);
	ck_assert_int_eq(add(w.f.store, "a", 1, 1, TIME_NEVER, NOW, &number, NULL), 0);
	expect_event(&w, STORE_EVENT_SET, "a", 0);
	ck_assert(!w.event.fresh);
	ck_assert_int_eq(store_set(w.f.store, "a", 1, "2", 1, &put, NOW, NULL), 0);
	expect_event(&w, STORE_EVENT_SET, "a", 7);
	ck_assert(!w.event.fresh && w.event.timed);
	ck_assert_int_eq(store_expire(w.f.store, "a", 1, 0, TIME_NEVER, NOW), 1);
	expect_event(&w, STORE_EVENT_EXPIRY, "a", 0);
	ck_assert(!w.event.timed);
	ck_assert_int_eq(store_expire(w.f.store, "a", 1, 0, NOW + 5, NOW), 1);
	expect_event(&w, STORE_EVENT_EXPIRY, "a", 0);
	ck_assert(w.event.timed);
	ck_assert(!has_text(w.f.store, "a", "2", NOW + 6));
	expect_event(&w, STORE_EVENT_EXPIRED, "a", 0);
	ck_assert_int_eq(store_delete(w.f.store, "a", 1, 0, NOW), 0);
	expect_none(&w);
	ck_assert_int_eq(set_text(w.f.store, "b", "1", NOW), 0);
	ck_assert_int_eq(store_delete(w.f.store, "b", 1, 0, NOW), 1);
	expect_event(&w, STORE_EVENT_SET, "b", 0);
	expect_event(&w, STORE_EVENT_DELETED, "b", 0);
	ck_assert_int_eq(set_text(w.f.store, "c", "1", NOW), 0);
	expect_event(&w, STORE_EVENT_SET, "c", 0);
	ck_assert_uint_eq(fixture_flush(&w.f), 1);
	expect_event(&w, STORE_EVENT_FLUSHED, "", 0);
	expect_none(&w);
	watch_close(&w);
}
END_TEST

/* By the clock, too, and by eviction. */
START_TEST(test_leave)
{
	static char value[64 * KIB];
	const struct store_put put = {.expires = NOW + TIME_S};
	bool evicted = false;
	struct watch w;
	char key[16];

	watch_open(&w);
	ck_assert_int_eq(store_set(w.f.store, "t", 1, "1", 1, &put, NOW, NULL), 0);
	expect_event(&w, STORE_EVENT_SET, "t", 0);
	store_tick(w.f.store, NOW + 2 * TIME_S);
	expect_event(&w, STORE_EVENT_EXPIRED, "t", 0);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ck_assert_int_eq(set_all(w.f.store, key, strlen(key), value, sizeof(value), NULL, NOW, NULL), 0);
	}
	while (store_watch_next(w.f.store, &w.watcher, &w.event))
		evicted |= w.event.type == STORE_EVENT_EVICTED && w.event.key_len >= 1;
	ck_assert(evicted);
	watch_close(&w);
}
END_TEST

static struct store_step step_put(struct watch *w, const char *key, uint64_t note)
{
	struct store_step step = {.kind = STORE_STEP_PUT, .expires = TIME_NEVER, .note = note};

	ck_assert_int_eq(reserve_all(w->f.store, key, strlen(key), 1, NOW, &step.ref), 0);
	memcpy(step.ref.addr, "v", 1);
	return step;
}

START_TEST(test_commit)
{
	struct store_step step[3];
	struct watch w;

	watch_open(&w);
	ck_assert_int_eq(set_text(w.f.store, "old", "1", NOW), 0);
	ck_assert_int_eq(set_text(w.f.store, "time", "1", NOW), 0);
	expect_event(&w, STORE_EVENT_SET, "old", 0);
	expect_event(&w, STORE_EVENT_SET, "time", 0);
	step[0] = step_put(&w, "new", 11);
	step[1] = (struct store_step){.kind = STORE_STEP_DELETE, .key = "old", .key_len = 3, .note = 12};
	step[2] = (struct store_step){
		.kind = STORE_STEP_EXPIRE, .key = "time", .key_len = 4, .expires = NOW + 1, .note = 13};
	ck_assert_int_eq(store_commit(w.f.store, NULL, 0, step, 3, NOW, NULL), 0);
	expect_event(&w, STORE_EVENT_SET, "new", 11);
	ck_assert(w.event.fresh && !w.event.timed);
	expect_event(&w, STORE_EVENT_DELETED, "old", 12);
	expect_event(&w, STORE_EVENT_EXPIRY, "time", 13);
	ck_assert(w.event.timed);
	step[0] = step_put(&w, "time", 14);
	ck_assert_int_eq(store_commit(w.f.store, NULL, 0, step, 1, NOW + 2, NULL), 0);
	expect_event(&w, STORE_EVENT_EXPIRED, "time", 0);
	expect_event(&w, STORE_EVENT_SET, "time", 14);
	ck_assert(w.event.fresh);
	expect_none(&w);
	watch_close(&w);
}
END_TEST

/* Keys of each length, in one slot and in many. */
START_TEST(test_lengths)
{
	unsigned char key[STORE_KEY_MAX];
	struct watch w;

	watch_open(&w);
	for (size_t len = 1; len <= sizeof(key); len++) {
		for (size_t i = 0; i < len; i++)
			key[i] = (unsigned char)(len + i * 7);
		expect(set_all(w.f.store, key, len, "", 0, NULL, NOW, NULL) == 0);
		expect(store_delete(w.f.store, key, len, 0, NOW) == 1);
		for (unsigned n = 0; n < 2; n++) {
			expect(store_watch_next(w.f.store, &w.watcher, &w.event));
			expect(w.event.key_len == len && memcmp(w.event.key, key, len) == 0);
		}
	}
	expect_none(&w);
	watch_close(&w);
}
END_TEST

START_TEST(test_missed)
{
	struct watch w;

	watch_open(&w);
	for (unsigned i = 0; i < 70000; i++)
		expect(set_all(w.f.store, &i, sizeof(i), "", 0, NULL, NOW, NULL) == 0);
	expect_event(&w, STORE_EVENT_MISSED, "", 0);
	expect_none(&w);
	ck_assert_int_eq(set_text(w.f.store, "a", "1", NOW), 0);
	expect_event(&w, STORE_EVENT_SET, "a", 0);
	watch_close(&w);
}
END_TEST

START_TEST(test_sleep)
{
	uint64_t n;
	struct watch w;

	watch_open(&w);
	ck_assert_int_eq(set_text(w.f.store, "a", "1", NOW), 0);
	ck_assert_int_lt(read(w.fd, &n, sizeof(n)), 0); /* it does not sleep */
	ck_assert(!store_watch_sleep(w.f.store, &w.watcher));
	expect_event(&w, STORE_EVENT_SET, "a", 0);
	ck_assert(store_watch_sleep(w.f.store, &w.watcher));
	ck_assert_int_eq(set_text(w.f.store, "b", "1", NOW), 0);
	ck_assert_int_eq(set_text(w.f.store, "c", "1", NOW), 0);
	ck_assert_int_eq(read(w.fd, &n, sizeof(n)), sizeof(n));
	ck_assert_uint_eq(n, 1); /* the first has woken it */
	expect_event(&w, STORE_EVENT_SET, "b", 0);
	expect_event(&w, STORE_EVENT_SET, "c", 0);
	ck_assert(store_watch_sleep(w.f.store, &w.watcher));
	store_watch_rise(w.f.store, &w.watcher);
	ck_assert_int_eq(set_text(w.f.store, "d", "1", NOW), 0);
	ck_assert_int_lt(read(w.fd, &n, sizeof(n)), 0);
	watch_close(&w);
}
END_TEST

/* Nothing is told of before it was asked for, nor behind the end. */
START_TEST(test_begin_end)
{
	struct fixture f = fixture_open(16 * MIB, MIB, STORE_EVICT_S3_FIFO);
	struct store_watcher watcher;
	struct store_event event;

	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(set_text(f.store, "a", "1", NOW), 0);
		ck_assert_int_eq(store_watch_begin(f.store, &watcher, -1), 0);
		ck_assert(!store_watch_next(f.store, &watcher, &event));
		ck_assert_int_eq(set_text(f.store, "b", "1", NOW), 0);
		ck_assert(store_watch_next(f.store, &watcher, &event));
		store_watch_end(f.store, &watcher);
	}
	fixture_close(&f);
}
END_TEST

/*
 * Copies: a watcher keeps what it read until an event says that it is another. When all writers have ended and all
 * events were read, each copy is what the store has.
 */
struct crowd {
	struct fixture f;
	atomic_uint writing, hits;
};

struct keeper {
	struct crowd *crowd;
	uint64_t copy[KEYS + 1]; /* 0: none */
	uint64_t seed, missed;
	pthread_t thread;
};

static uint64_t value_read(struct store *store, uint32_t key)
{
	struct store_ref ref;
	uint64_t value = UINT64_MAX; /* it is not there */

	if (store_get(store, &key, sizeof(key), time_now(), &ref)) {
		memcpy(&value, ref.addr, sizeof(value));
		store_unpin(store, &ref);
	}
	return value;
}

static void *keeper_run(void *arg)
{
	struct keeper *k = arg;
	struct store *store = k->crowd->f.store;
	struct store_watcher watcher;
	struct store_event event;
	int fd = eventfd(0, 0);
	uint64_t n;
	bool writing;

	expect(fd >= 0 && store_watch_begin(store, &watcher, fd) == 0);
	do {
		uint32_t key = (uint32_t)(random_next(&k->seed) % KEYS);

		writing = atomic_load(&k->crowd->writing);
		usleep(300);
		if (!k->copy[key])
			k->copy[key] = value_read(store, key);
		else
			atomic_fetch_add(&k->crowd->hits, 1);
		while (store_watch_next(store, &watcher, &event)) {
			if (event.type == STORE_EVENT_MISSED) {
				memset(k->copy, 0, sizeof(k->copy));
				k->missed++;
				continue;
			}
			memcpy(&key, event.key, sizeof(key));
			k->copy[key] = 0;
		}
		if (writing && random_next(&k->seed) % 16 == 0 && store_watch_sleep(store, &watcher)) {
			/* While a writer has not ended, its last event is to come and wakes it; else it may have been read. */
			if (atomic_load(&k->crowd->writing))
				expect(read(fd, &n, sizeof(n)) == sizeof(n));
			store_watch_rise(store, &watcher);
		}
	} while (writing);
	for (uint32_t key = 0; key < KEYS; key++)
		expect(!k->copy[key] || k->copy[key] == value_read(store, key));
	store_watch_end(store, &watcher);
	close(fd);
	return NULL;
}

static void *writer_run(void *arg)
{
	struct keeper *w = arg;
	struct store *store = w->crowd->f.store;

	/* Fast, and then so slowly that a copy stays until it is looked at. */
	for (unsigned i = 0; i < TURNS || !atomic_load(&w->crowd->hits); i++) {
		uint32_t key = (uint32_t)(random_next(&w->seed) % KEYS);
		uint64_t value = random_next(&w->seed) | 1;

		if (i >= TURNS)
			usleep(1000);
		if (i % 8 == 0)
			store_delete(store, &key, sizeof(key), 0, time_now());
		else
			expect(set_all(store, &key, sizeof(key), &value, sizeof(value), NULL, time_now(), NULL) == 0);
	}
	atomic_fetch_sub(&w->crowd->writing, 1);
	/* What sleeps hears of the end by this. */
	expect(set_all(store, &(uint32_t){KEYS}, sizeof(uint32_t), &(uint64_t){1}, sizeof(uint64_t), NULL, time_now(),
		       NULL) == 0);
	return NULL;
}

START_TEST(test_copies)
{
	struct crowd crowd = {.f = fixture_open(16 * MIB, MIB, STORE_EVICT_S3_FIFO), .writing = WRITERS};
	struct keeper keeper[WATCHERS] = {0}, writer[WRITERS] = {0};

	for (unsigned i = 0; i < WATCHERS; i++) {
		keeper[i].crowd = &crowd;
		keeper[i].seed = 100 + i;
		ck_assert_int_eq(pthread_create(&keeper[i].thread, NULL, keeper_run, &keeper[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		writer[i].crowd = &crowd;
		writer[i].seed = 1 + i;
		ck_assert_int_eq(pthread_create(&writer[i].thread, NULL, writer_run, &writer[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(writer[i].thread, NULL);
	for (unsigned i = 0; i < WATCHERS; i++)
		pthread_join(keeper[i].thread, NULL);
	fixture_close(&crowd.f);
}
END_TEST

TCase *store_event_case(void)
{
	TCase *tc = tcase_create("event");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_kinds);
	tcase_add_test(tc, test_leave);
	tcase_add_test(tc, test_commit);
	tcase_add_test(tc, test_lengths);
	tcase_add_test(tc, test_missed);
	tcase_add_test(tc, test_sleep);
	tcase_add_test(tc, test_begin_end);
	tcase_add_test(tc, test_copies);
	return tc;
}
