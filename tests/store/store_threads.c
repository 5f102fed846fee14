/* store_threads: everything at once from many threads. Every value that is read must be whole. */
#include <pthread.h>
#include <unistd.h>

#include "store/internal.h"
#include "tests/store/store_common.h"

#define THREADS 4
#define KEYS 2000

struct torture {
	struct fixture f;
	unsigned bits; /* sizes below 2^bits */
	atomic_ulong torn, reads, writes, refused;
	atomic_long sum; /* of what the incrementing threads added */
};

struct worker {
	pthread_t thread;
	struct torture *t;
	unsigned long turns;
	uint64_t state;
	struct store_ref held[8];
};

static void do_read(struct worker *w, uint32_t key, uint64_t now)
{
	static _Thread_local unsigned char buf[4096];
	const struct store_key keys[] = {{&key, 4}, {&w->t->bits, 4}};
	struct store_ref ref;
	uint64_t len = 0;

	store_look_ahead(w->t->f.store, keys, ARRAY_SIZE(keys));
	if (random_next(&w->state) % 2) {
		if (copy(w->t->f.store, &key, 4, now, buf, sizeof(buf), &len, NULL) == 1 && len <= sizeof(buf) &&
		    !pattern_holds(buf, len))
			atomic_fetch_add(&w->t->torn, 1);
	} else if (store_get(w->t->f.store, &key, 4, now, &ref) == 1) {
		if (!pattern_holds(ref.addr, ref.len))
			atomic_fetch_add(&w->t->torn, 1);
		store_unpin(w->t->f.store, &ref);
	}
	atomic_fetch_add(&w->t->reads, 1);
}

/* Pins that last: checked again when their place is needed. */
static void do_hold(struct worker *w, uint32_t key, uint64_t now)
{
	struct store_ref *ref = &w->held[random_next(&w->state) % ARRAY_SIZE(w->held)];

	if (ref->item && !pattern_holds(ref->addr, ref->len))
		atomic_fetch_add(&w->t->torn, 1);
	store_unpin(w->t->f.store, ref);
	store_get(w->t->f.store, &key, 4, now, ref);
}

/* By and by, unless something stays in its way. */
static int reserve_growing(struct store *s, uint32_t key, uint64_t len, uint64_t now, struct store_ref *ref)
{
	uint64_t ready;
	int rc;

	do
		rc = store_reserve_part(s, &key, 4, len, NULL, 0, now, ref, &ready);
	while (rc == -EAGAIN);
	for (unsigned tries = 0; rc == 0 && ready < len; tries++) {
		memset(ref->addr, 0, ready);
		if (store_reserve_more(s, ref, ready + KIB, &ready) == -EBUSY && tries > 1000) {
			store_abandon(s, ref);
			rc = -EBUSY;
		}
	}
	return rc;
}

static void do_write(struct worker *w, uint32_t key, uint64_t now)
{
	uint64_t len = 8 + random_size(&w->state, w->t->bits), seed = random_next(&w->state);
	struct store_put put = {STORE_ALWAYS, 0, TIME_NEVER};
	struct store_ref ref;

	if (seed % 4 == 0)
		put.expires = now + seed % (20 * TIME_MS);
	if (seed % 16 == 1)
		put.condition = STORE_IF_ABSENT;
	if (seed % 8 < 4 ? reserve_growing(w->t->f.store, key, len, now, &ref)
			 : reserve_all(w->t->f.store, &key, 4, len, now, &ref)) {
		atomic_fetch_add(&w->t->refused, 1);
		return;
	}
	pattern_fill(ref.addr, len, seed);
	if (seed % 32 == 2)
		store_abandon(w->t->f.store, &ref);
	else
		store_publish(w->t->f.store, &ref, &put, now, NULL);
	atomic_fetch_add(&w->t->writes, 1);
}

static bool count_key(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	return ++*(unsigned *)arg % 8; /* full, now and then */
}

static void do_rare(struct worker *w, uint64_t now)
{
	static const char prefix[] = {0};
	uint64_t cursor = random_next(&w->state) % 16 << 48;
	unsigned seen = 0;
	struct store_stats stats;

	switch (random_next(&w->state) % 200) {
	case 0:
		fixture_flush(&w->t->f);
		break;
	case 1:
		store_get_stats(w->t->f.store, &stats);
		break;
	default:
		store_scan(w->t->f.store, &cursor, 20, prefix, 0, now, count_key, &seen);
	}
}

static void *torture_run(void *arg)
{
	struct worker *w = arg;

	for (unsigned long n = 1; n <= w->turns; n++) {
		uint32_t key = (uint32_t)(random_next(&w->state) % KEYS);
		uint64_t now = time_now(), what = random_next(&w->state) % 100;

		if (what < 45)
			do_read(w, key, now);
		else if (what < 55)
			do_hold(w, key, now);
		else if (what < 85)
			do_write(w, key, now);
		else if (what < 95)
			store_delete(w->t->f.store, &key, 4, 0, now);
		else if (what < 98)
			store_expire(w->t->f.store, &key, 4, 0, now + TIME_MS, now);
		else
			do_rare(w, now);
		if (n % 64 == 0)
			store_tick(w->t->f.store, now);
	}
	for (size_t i = 0; i < ARRAY_SIZE(w->held); i++)
		store_unpin(w->t->f.store, &w->held[i]);
	return NULL;
}

/* Of each thread. STORE_TORTURE: more than a test suite likes, for a hunt. */
static unsigned long torture_turns(void)
{
	const char *text = getenv("STORE_TORTURE");

	return text ? strtoul(text, NULL, 10) : suite_part(30000);
}

START_TEST(test_torture)
{
	static const struct {
		size_t arena;
		unsigned bits;
		enum store_eviction eviction;
	} row[] = {{256 * MIB, 12, STORE_EVICT_NONE}, /* four heaps */
		   {MIB, 13, STORE_EVICT_S3_FIFO},
		   {8 * MIB, 19, STORE_EVICT_S3_FIFO}, /* large among small: windows */
		   {4 * MIB, 17, STORE_EVICT_NONE}};
	static struct torture t;
	static struct worker worker[THREADS];

	memset(&t, 0, sizeof(t));
	t.f = fixture_open(row[_i].arena, GIB, row[_i].eviction);
	t.bits = row[_i].bits;
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){.t = &t, .turns = torture_turns(), .state = 77 + i};
		ck_assert_int_eq(pthread_create(&worker[i].thread, NULL, torture_run, &worker[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(worker[i].thread, NULL);
	printf("store: torture %d: %lu reads, %lu writes, %lu refused, %lu evictions\n", _i, t.reads, t.writes,
	       t.refused, fixture_stats(&t.f).evictions);
	ck_assert_uint_eq(t.torn, 0);
	fixture_close(&t.f);
}
END_TEST

static void *incr_run(void *arg)
{
	struct torture *t = arg;
	int64_t value;

	for (int i = 0; i < 20000; i++) {
		expect(!incr(t->f.store, "n", 1, i % 7 - 3, NOW, &value, NULL));
		atomic_fetch_add(&t->sum, i % 7 - 3);
	}
	return NULL;
}

START_TEST(test_incr_is_one_step)
{
	static struct torture t;
	pthread_t thread[THREADS];
	int64_t value;

	memset(&t, 0, sizeof(t));
	t.f = fixture_open(4 * MIB, GIB, STORE_EVICT_NONE);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, incr_run, &t), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ck_assert_int_eq(incr(t.f.store, "n", 1, 0, NOW, &value, NULL), 0);
	ck_assert_int_eq(value, atomic_load(&t.sum));
	fixture_close(&t.f);
}
END_TEST

static void *large_run(void *arg)
{
	struct worker *w = arg;
	struct store_ref ref;
	uint32_t key;

	for (uint32_t n = 0; n < w->turns; n++) {
		key = (uint32_t)random_next(&w->state);
		expect(reserve_all(w->t->f.store, &key, 4, MIB + n % 4 * MIB, NOW, &ref) == 0);
		expect(set_all(w->t->f.store, &n, 4, "small", 5, NULL, NOW, NULL) == 0);
		store_abandon(w->t->f.store, &ref);
	}
	return NULL;
}

/* Each needs a window of its own time and again, among small values that fill the rest: all are served. */
START_TEST(test_large_ones_compete)
{
	static const char small[1000];
	static struct torture t;
	struct worker worker[THREADS];

	memset(&t, 0, sizeof(t));
	t.f = fixture_open(64 * MIB, GIB, STORE_EVICT_S3_FIFO);
	for (uint32_t key = 1u << 20; key < (1u << 20) + 64 * 1024; key++) /* as many KiB as there are */
		expect(set_all(t.f.store, &key, 4, small, sizeof(small), NULL, NOW, NULL) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){.t = &t, .turns = 20, .state = 5 + i};
		ck_assert_int_eq(pthread_create(&worker[i].thread, NULL, large_run, &worker[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(worker[i].thread, NULL);
	ck_assert_uint_eq(fixture_stats(&t.f).out_of_memory, 0);
	fixture_close(&t.f);
}
END_TEST

/*
 * A thread that grows its heap takes pages first and links them after; a window may be claimed between the two. Locks of the
 * arena hold the thread up there.
 */
struct growth {
	struct arena arena;
	_Atomic bool waits, heap_held, heap_free; /* waits: for pages */
	struct store_item *item;
};

static struct growth growth;

void __real_lock_wait(struct lock *l);
void __wrap_lock_wait(struct lock *l);
void __wrap_lock_wait(struct lock *l)
{
	if (l == &growth.arena.pages.lock)
		atomic_store(&growth.waits, true);
	__real_lock_wait(l);
}

static void wait_until_set(_Atomic bool *flag)
{
	while (!atomic_load(flag))
		usleep(100);
}

static void *growth_run(void *arg)
{
	struct growth *g = arg;

	g->item = arena_alloc(&g->arena, 100, 100);
	return NULL;
}

static void *growth_hold_heap(void *arg)
{
	struct growth *g = arg;

	lock_take(&g->arena.heap[0].lock, LOCK_HEAP);
	atomic_store(&g->heap_held, true);
	wait_until_set(&g->heap_free);
	lock_give(&g->arena.heap[0].lock, LOCK_HEAP);
	return NULL;
}

START_TEST(test_growth_meets_window)
{
	static _Alignas(4096) char memory[MIB];
	struct growth *g = &growth;
	struct window w = {.kind = WINDOW_CLEAR, .pages = MIB / PAGE_BYTES};
	uint32_t past;
	struct arena_usage usage;
	pthread_t grows, holds;
	int window_lock; /* stands for the store's */

	ck_assert_int_eq(arena_init(&g->arena, memory, sizeof(memory)), 0);
	lock_take(&g->arena.pages.lock, LOCK_PAGES);
	ck_assert_int_eq(pthread_create(&grows, NULL, growth_run, g), 0);
	wait_until_set(&g->waits);
	ck_assert_int_eq(pthread_create(&holds, NULL, growth_hold_heap, g), 0);
	wait_until_set(&g->heap_held);
	lock_give(&g->arena.pages.lock, LOCK_PAGES);
	while (arena_get_pages_free(&g->arena) == MIB / PAGE_BYTES)
		usleep(100);
	lock_note_take(&window_lock, LOCK_WINDOW);
	ck_assert(arena_window_claim(&g->arena, &w, &past));
	atomic_store(&g->heap_free, true);
	pthread_join(holds, NULL);
	pthread_join(grows, NULL);
	arena_window_finish(&g->arena, &w, false, 0);
	lock_note_give(&window_lock, LOCK_WINDOW);
	if (g->item)
		arena_free(&g->arena, g->item, 100);
	arena_trim(&g->arena);
	arena_get_usage(&g->arena, &usage);
	ck_assert_uint_eq(usage.held, 0);
	arena_fini(&g->arena);
}
END_TEST

TCase *store_threads_case(void)
{
	TCase *tc = tcase_create("threads");

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, test_torture, 0, 4);
	tcase_add_test(tc, test_incr_is_one_step);
	tcase_add_test(tc, test_large_ones_compete);
	tcase_add_test(tc, test_growth_meets_window);
	return tc;
}
