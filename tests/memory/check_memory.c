/* check_memory.c: buffer pools on the soft provider. */
#include <check.h>
#include <sched.h>
#include <stdlib.h>

#include "memory/memory.h"
#include "tests/suite.h"

static struct fabric *fabric;
static struct fabric_domain *domain;

static void set_up(void)
{
	ck_assert_int_eq(fabric_open("soft", NULL, &fabric), 0);
	ck_assert_int_eq(fabric_domain_create(fabric, &domain), 0);
}

static void tear_down(void)
{
	fabric_domain_destroy(domain);
	fabric_close(fabric);
}

static struct memory_pool *pool_new(uint32_t buffer_size, uint32_t chunk, uint32_t max)
{
	struct memory_pool_attr attr = {
		.name = "test",
		.buffer_size = buffer_size,
		.chunk = chunk,
		.max = max,
		.access = FABRIC_LOCAL_WRITE,
	};
	struct memory_pool *pool;

	ck_assert_int_eq(memory_pool_create(domain, &attr, &pool), 0);
	return pool;
}

static void assert_stats(const struct memory_pool *pool, uint64_t buffers, uint64_t in_use, uint64_t bytes,
			 uint64_t failures)
{
	struct memory_pool_stats s;

	memory_pool_get_stats(pool, &s);
	ck_assert_uint_eq(s.buffers, buffers);
	ck_assert_uint_eq(s.in_use, in_use);
	ck_assert_uint_eq(s.bytes, bytes);
	ck_assert_uint_eq(s.failures, failures);
}

/* Chunk by chunk up to the limit, the last chunk cut to it. */
START_TEST(test_growth_and_limit)
{
	struct memory_pool *pool = pool_new(128, 4, 10);
	struct memory_buffer *b[10];

	assert_stats(pool, 4, 0, 4 * 128, 0);
	for (unsigned i = 0; i < 10; i++) {
		b[i] = memory_pool_get(pool);
		ck_assert_ptr_nonnull(b[i]);
		assert_stats(pool, i < 4 ? 4 : i < 8 ? 8 : 10, i + 1, (i < 4 ? 4 : i < 8 ? 8 : 10) * 128, 0);
	}
	ck_assert_ptr_null(memory_pool_get(pool));
	ck_assert_ptr_null(memory_pool_get(pool));
	assert_stats(pool, 10, 10, 1280, 2);
	memory_pool_put(pool, b[3]);
	ck_assert_ptr_eq(memory_pool_get(pool), b[3]);
	for (unsigned i = 0; i < 10; i++)
		memory_pool_put(pool, b[i]);
	assert_stats(pool, 10, 0, 1280, 2);
	memory_pool_destroy(pool);
}
END_TEST

static int by_address(const void *a, const void *b)
{
	const struct memory_buffer *const *x = a, *const *y = b;

	return (*x)->addr < (*y)->addr ? -1 : (*x)->addr > (*y)->addr;
}

/* A whole cache line each, none overlaps another, all writable and inside of a region. */
START_TEST(test_buffers_are_apart)
{
	struct memory_pool *pool = pool_new(1000, 7, 30);
	struct memory_buffer *b[30];

	for (unsigned i = 0; i < 30; i++) {
		b[i] = memory_pool_get(pool);
		ck_assert_ptr_nonnull(b[i]);
		ck_assert_ptr_nonnull(b[i]->region);
		ck_assert_uint_eq((uintptr_t)b[i]->addr % CACHE_LINE, 0);
		memset(b[i]->addr, (int)i, 1024);
	}
	qsort(b, 30, sizeof(b[0]), by_address);
	for (unsigned i = 1; i < 30; i++)
		ck_assert_uint_ge((uintptr_t)b[i]->addr - (uintptr_t)b[i - 1]->addr, 1024);
	assert_stats(pool, 30, 30, 30 * 1024, 0);
	for (unsigned i = 0; i < 30; i++)
		memory_pool_put(pool, b[i]);
	memory_pool_destroy(pool);
}
END_TEST

START_TEST(test_content_stays)
{
	struct memory_pool *pool = pool_new(64, 1, 1);
	struct memory_buffer *b = memory_pool_get(pool);

	memcpy(b->addr, "what its last user left", 24);
	memory_pool_put(pool, b);
	b = memory_pool_get(pool);
	ck_assert_str_eq(b->addr, "what its last user left");
	memory_pool_put(pool, b);
	memory_pool_destroy(pool);
}
END_TEST

START_TEST(test_no_memory)
{
	struct memory_pool_attr attr = {
		.name = "test",
		.buffer_size = 1u << 31,
		.chunk = 1u << 20, /* 2 PiB: beyond the address space */
		.max = 1u << 20,
		.access = FABRIC_LOCAL_WRITE,
	};
	struct memory_pool *pool = NULL;

	ck_assert_int_eq(memory_pool_create(domain, &attr, &pool), -ENOMEM);
	ck_assert_ptr_null(pool);
}
END_TEST

/* A size that rounding up would turn into 0 is an error, not a pool of nothing. */
START_TEST(test_size_overflow)
{
	struct memory_pool_attr attr = {
		.name = "test",
		.buffer_size = UINT32_MAX,
		.chunk = 1,
		.max = 1,
		.access = FABRIC_LOCAL_WRITE,
	};
	struct memory_pool *pool = NULL;

	ck_assert_int_ne(memory_pool_create(domain, &attr, &pool), 0);
	ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(test_limit_of_nothing)
{
	struct memory_pool_attr attr = {.name = "test", .buffer_size = 64, .chunk = 4};
	struct memory_pool *pool = NULL;

	ck_assert_int_eq(memory_pool_create(domain, &attr, &pool), -ENOBUFS);
	ck_assert_ptr_null(pool);
	memory_pool_destroy(NULL);
}
END_TEST

static unsigned complaints;

static void count_complaint(enum log_level level, const char *room, const char *text)
{
	(void)room;
	(void)text;
	complaints += level == LOG_LEVEL_ERROR;
}

/* The soft provider has some 65,000 regions: a pool that cannot register another chunk fails
 * softly, asks for one now and then only, and goes on when regions come back. */
START_TEST(test_registration_failure)
{
	static struct fabric_region *region[1 << 17];
	static char memory[4096];
	struct memory_pool *pool = pool_new(64, 1, 2);
	struct memory_buffer *a = memory_pool_get(pool), *b;
	uint64_t begin = time_now();
	struct memory_pool_stats s;
	size_t n = 0;

	while (n < ARRAY_SIZE(region) && fabric_register(domain, memory, sizeof(memory), 0, &region[n]) == 0)
		n++;
	ck_assert_uint_lt(n, ARRAY_SIZE(region));
	log_set_handler(count_complaint);
	complaints = 0;
	for (unsigned i = 0; i < 10000; i++)
		ck_assert_ptr_null(memory_pool_get(pool));
	log_set_handler(NULL);
	ck_assert_uint_ge(complaints, 1);
	ck_assert_uint_le(complaints, 100);
	assert_stats(pool, 1, 1, 64, 10000);
	fabric_deregister(region[--n]);
	while (!(b = memory_pool_get(pool)) && time_now() < begin + 60 * TIME_S)
		sched_yield();
	ck_assert_ptr_nonnull(b);
	memory_pool_get_stats(pool, &s);
	ck_assert_uint_eq(s.buffers, 2);
	ck_assert_uint_eq(s.in_use, 2);
	memory_pool_put(pool, a);
	memory_pool_put(pool, b);
	memory_pool_destroy(pool);
	while (n)
		fabric_deregister(region[--n]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *tc = suite_case(suite, "pool", set_up, tear_down);

	tcase_add_test(tc, test_growth_and_limit);
	tcase_add_test(tc, test_buffers_are_apart);
	tcase_add_test(tc, test_content_stays);
	tcase_add_test(tc, test_no_memory);
	tcase_add_test(tc, test_size_overflow);
	tcase_add_test(tc, test_limit_of_nothing);
	tcase_add_test(tc, test_registration_failure);
	return suite_run(suite);
}
