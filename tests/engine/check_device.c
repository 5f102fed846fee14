/* check_device.c: which memory is a device's, and that what lies beside all of it is told from it without a lock. */
#include <check.h>
#include <pthread.h>

#include "engine/engine.h"

#include "tests/suite.h"

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

static unsigned locks;

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	locks++;
	return __real_pthread_mutex_lock(mutex);
}

static bool has(uintptr_t at, size_t len)
{
	return device_memory_has((const void *)at, len); /* NOLINT(performance-no-int-to-ptr) */
}

static void add(uintptr_t at, size_t len)
{
	ck_assert_int_eq(device_memory_add((const void *)at, len), 0); /* NOLINT(performance-no-int-to-ptr) */
}

static void take_away(uintptr_t at, size_t len)
{
	device_memory_remove((const void *)at, len); /* NOLINT(performance-no-int-to-ptr) */
}

START_TEST(test_borders)
{
	add(0x5000, 0x1000);
	add(0x9000, 0x1000);
	ck_assert(has(0x5000, 1) && has(0x5fff, 1) && has(0x4fff, 2) && has(0x4000, 0x8000) && has(0x9fff, 9));
	ck_assert(!has(0x4fff, 1) && !has(0x6000, 0x3000) && !has(0xa000, 1) && !has(0x5800, 0) && !has(0, 0x5000));
	ck_assert(has(0x4000, SIZE_MAX) && !has(0xa000, SIZE_MAX));
	take_away(0x5000, 0x1000);
	ck_assert(!has(0x5000, 0x1000) && has(0x9000, 1));
	take_away(0x9000, 0x1000);
	ck_assert(!has(0, SIZE_MAX) && !device_memory());
	add(0x1000, SIZE_MAX);
	ck_assert(has(UINTPTR_MAX - 1, 1) && has(0x1000, 1) && !has(0xfff, 1));
	take_away(0x1000, SIZE_MAX);
	ck_assert(!device_memory());
}
END_TEST

/* Two registrations of the same, of which one ends. */
START_TEST(test_twice)
{
	add(0x5000, 0x1000);
	add(0x5000, 0x1000);
	take_away(0x5000, 0x1000);
	ck_assert(has(0x5000, 1));
	take_away(0x5000, 0x1000);
	ck_assert(!has(0x5000, 1));
}
END_TEST

START_TEST(test_beside)
{
	unsigned before, beside, between;
	bool any;

	add(0x5000, 0x1000);
	add(0x9000, 0x1000);
	before = locks;
	any = has(0x1000, 0x4000) || has(0xa000, 0x4000) || has(0x4fff, 1);
	beside = locks;
	any |= has(0x7000, 0x100);
	between = locks;
	ck_assert(!any);
	ck_assert_uint_eq(beside, before);
	ck_assert_uint_eq(between, before + 1);
	take_away(0x9000, 0x1000);
	take_away(0x5000, 0x1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("device");
	TCase *tc = suite_case(suite, "device", NULL, NULL);

	tcase_add_test(tc, test_borders);
	tcase_add_test(tc, test_twice);
	tcase_add_test(tc, test_beside);
	return suite_run(suite);
}
