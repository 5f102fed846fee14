/* check_spin.c: which way spin.h waits on an idle machine, on a busy one, and where it changes. */
#include "base/spin.h"
#include "tests/suite.h"

#include <sched.h>

#define LIMIT (100 * TIME_US)

/* What a wait takes there: polled, or asleep. */
struct machine {
	uint64_t polled, asleep;
};

static const struct machine idle = {12 * TIME_US, 35 * TIME_US}, busy = {LIMIT + 30 * TIME_US, 26 * TIME_US},
			    paused = {TIME_S, TIME_S};

struct run {
	struct spin spin;
	uint64_t now, waited, polled; /* ns of both */
	unsigned polls, sleeps;
};

static struct run run_of(uint64_t limit)
{
	struct run r = {.now = TIME_S};

	spin_init(&r.spin, limit);
	spin_begin(&r.spin, r.now);
	return r;
}

static void run_on(struct run *r, const struct machine *m, unsigned waits)
{
	r->waited = r->polled = 0;
	r->polls = r->sleeps = 0;
	for (unsigned i = 0; i < waits; i++) {
		bool sleeps = spin_turn(&r->spin, r->now, 0);
		uint64_t wait = sleeps ? m->asleep : m->polled;

		r->sleeps += sleeps;
		r->polls += !sleeps;
		r->polled += sleeps ? 0 : MIN(wait, LIMIT);
		r->waited += wait;
		r->now += wait;
		spin_turn(&r->spin, r->now, 1);
	}
}

START_TEST(test_idle)
{
	struct run r = run_of(LIMIT);

	run_on(&r, &idle, 10000);
	ck_assert_uint_lt(r.sleeps, 300);
	run_on(&r, &idle, 100000);
	ck_assert_uint_lt(r.waited, 100000 * idle.polled / 100 * 102);
}
END_TEST

/* Also soon after the start, as most commands wait little. */
START_TEST(test_busy)
{
	struct run r = run_of(LIMIT);

	run_on(&r, &busy, 1000);
	ck_assert_uint_lt(r.polls, 200);
	run_on(&r, &busy, 100000);
	ck_assert_uint_lt(r.waited, 100000 * busy.asleep / 100 * 105);
}
END_TEST

/* Some waits are long for other reasons, whichever way they go. */
START_TEST(test_busy_with_long_ones)
{
	struct machine m = {80 * TIME_US, 25 * TIME_US};
	struct run r = run_of(100 * LIMIT);
	uint64_t waited = 0;
	unsigned state = 1;

	for (unsigned i = 0; i < 20000; i++) {
		const struct machine long_one = {4 * TIME_MS, 4 * TIME_MS};

		state = state * 1103515245 + 12345;
		run_on(&r, state >> 16 & 31 ? &m : &long_one, 1);
		waited += MIN(r.waited, 100 * TIME_US);
	}
	ck_assert_uint_lt(waited, 20000 * 35 * TIME_US);
}
END_TEST

/* It follows within a moment, and stays. */
START_TEST(test_machine_changes)
{
	struct run r = run_of(LIMIT);

	for (int i = 0; i < 3; i++) {
		run_on(&r, &idle, 20000);
		run_on(&r, &busy, 200);
		run_on(&r, &busy, 10000);
		ck_assert_uint_lt(r.waited, 10000 * busy.asleep / 100 * 110);
		run_on(&r, &idle, 10000);
		run_on(&r, &idle, 10000);
		ck_assert_uint_lt(r.waited, 10000 * idle.polled / 100 * 110);
	}
}
END_TEST

/* Requests come seldom: polling finds nothing. When they come quickly it is worth it at once. */
START_TEST(test_found_nothing)
{
	struct run r = run_of(LIMIT);

	run_on(&r, &paused, 10000);
	ck_assert_uint_lt(r.polls, 1000);
	run_on(&r, &paused, 10000);
	ck_assert_uint_lt(r.polls, 100);
	run_on(&r, &idle, 50);
	run_on(&r, &idle, 1000);
	ck_assert_uint_lt(r.sleeps, 200);
}
END_TEST

/* Many answers at a time are worth a long wait. */
START_TEST(test_work_counts)
{
	struct run r = run_of(LIMIT);
	unsigned polls = 0;

	for (unsigned i = 0; i < 10000; i++) {
		bool sleeps = spin_turn(&r.spin, r.now, 0);

		polls += !sleeps;
		r.now += sleeps ? 40 * TIME_US : 20 * TIME_US;
		spin_turn(&r.spin, r.now, sleeps ? 64 : 16);
	}
	ck_assert_uint_lt(polls, 1000);
}
END_TEST

/* What it takes to see that sleeping is ten times as long is little. */
START_TEST(test_lost_trials_are_short)
{
	const struct machine slow = {10 * TIME_US, 100 * TIME_US};
	struct run r = run_of(LIMIT);

	run_on(&r, &slow, 10000);
	ck_assert_uint_gt(r.sleeps, 0);
	ck_assert_uint_lt(r.sleeps, 60);
}
END_TEST

/* A thread that sleeps longer finds more at hand afterwards: what comes in turns one after the other took its time,
 * too. */
START_TEST(test_work_without_waits_counts)
{
	struct run r = run_of(LIMIT);
	unsigned polls = 0;

	for (unsigned i = 0; i < 10000; i++) {
		bool sleeps = spin_turn(&r.spin, r.now, 0);

		polls += !sleeps;
		r.now += sleeps ? 40 * TIME_US : 28 * TIME_US;
		spin_turn(&r.spin, r.now, 1);
		if (!sleeps)
			continue;
		r.now += 40 * TIME_US;
		spin_turn(&r.spin, r.now, 1);
	}
	ck_assert_uint_gt(polls, 9000);
}
END_TEST

/* Now and then another program has the processor while there is work behind work: that says nothing of either way. */
START_TEST(test_long_work_is_rare)
{
	struct run r = run_of(LIMIT);
	unsigned sleeps = 0;

	for (unsigned i = 0; i < 20000; i++) {
		run_on(&r, &idle, 1);
		sleeps += r.sleeps;
		r.now += i % 200 ? 2 * TIME_US : 4 * TIME_MS;
		spin_turn(&r.spin, r.now, 1);
	}
	ck_assert_uint_lt(sleeps, 600);
}
END_TEST

START_TEST(test_always_and_never)
{
	struct run r = run_of(TIME_NEVER);

	run_on(&r, &busy, 1000);
	ck_assert_uint_eq(r.sleeps, 0);
	r = run_of(0);
	run_on(&r, &idle, 1000);
	ck_assert_uint_eq(r.polls, 0);
	spin_limit(&r.spin, LIMIT);
	run_on(&r, &idle, 1000);
	ck_assert_uint_gt(r.polls, 800);
	spin_limit(&r.spin, 0);
	run_on(&r, &idle, 1000);
	ck_assert_uint_eq(r.polls, 0);
}
END_TEST

/* A turn that found nothing is not yet a long wait. */
START_TEST(test_window)
{
	struct spin s;

	spin_init(&s, LIMIT);
	spin_begin(&s, TIME_S);
	ck_assert(!spin_turn(&s, TIME_S, 0));
	ck_assert(!spin_turn(&s, TIME_S + LIMIT - 1, 0));
	ck_assert_uint_eq(s.idle, 2);
	ck_assert(spin_turn(&s, TIME_S + LIMIT, 0));
	ck_assert(!spin_turn(&s, TIME_S + LIMIT, 1));
	ck_assert_uint_eq(s.idle, 0);
	ck_assert(!spin_turn(&s, TIME_S + LIMIT + 1, 0));
}
END_TEST

START_TEST(test_allowed)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	ck_assert_uint_eq(spin_allowed(LIMIT, CPU_SETSIZE + 1), 0);
	ck_assert_uint_eq(spin_allowed(TIME_NEVER, CPU_SETSIZE + 1), TIME_NEVER);
	ck_assert_uint_eq(spin_allowed(LIMIT, 1), processors_limited() ? 0 : LIMIT);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_uint_eq(spin_allowed(LIMIT, 2), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spin");
	TCase *tc = suite_case(suite, "spin", NULL, NULL);

	tcase_add_test(tc, test_idle);
	tcase_add_test(tc, test_busy);
	tcase_add_test(tc, test_busy_with_long_ones);
	tcase_add_test(tc, test_machine_changes);
	tcase_add_test(tc, test_found_nothing);
	tcase_add_test(tc, test_work_counts);
	tcase_add_test(tc, test_lost_trials_are_short);
	tcase_add_test(tc, test_work_without_waits_counts);
	tcase_add_test(tc, test_long_work_is_rare);
	tcase_add_test(tc, test_always_and_never);
	tcase_add_test(tc, test_window);
	tcase_add_test(tc, test_allowed);
	return suite_run(suite);
}
