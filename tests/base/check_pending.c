/* check_pending.c: places for pending connections: which give way, which are late, and what holds its place. */
#include "base/base.h"
#include "tests/suite.h"

#define PLACES 4
#define STAY (5 * TIME_S)
#define GRACE (200 * TIME_MS)

struct guest {
	struct pending_entry entry;
	unsigned dropped;
	enum pending_reason reason;
	struct pending *leaves; /* the next one, too, when this one is dropped */
};

static struct pending pending;
static struct guest guest[64];
static uint64_t now;

static void guest_dropped(struct pending_entry *entry, enum pending_reason reason)
{
	struct guest *g = container_of(entry, struct guest, entry);

	ck_assert(!pending_has(entry));
	g->dropped++;
	g->reason = reason;
	if (g->leaves)
		pending_remove(g->leaves, &g[1].entry);
}

static const struct pending_attr usual = {.limit = PLACES, .stay = STAY, .grace = GRACE, .drop = guest_dropped};

static void begin(const struct pending_attr *attr)
{
	now = 1000 * TIME_S;
	memset(guest, 0, sizeof(guest));
	pending_init(&pending, attr);
}

/* Those from `first` on, as many as `count`, a ms after each other. */
static void come(unsigned first, unsigned count)
{
	for (unsigned i = first; i < first + count; i++) {
		ck_assert(pending_has_place(&pending, now));
		pending_add(&pending, &guest[i].entry, now);
		now += TIME_MS;
	}
}

static void expect_dropped(unsigned i, enum pending_reason reason)
{
	ck_assert_uint_eq(guest[i].dropped, 1);
	ck_assert_int_eq(guest[i].reason, reason);
}

static void expect_none_dropped(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(guest); i++)
		ck_assert_uint_eq(guest[i].dropped, 0);
}

START_TEST(test_places)
{
	begin(&usual);
	ck_assert_ptr_null(pending_first(&pending));
	come(0, PLACES);
	ck_assert_uint_eq(pending.count, PLACES);
	ck_assert_ptr_eq(pending_first(&pending), &guest[0].entry);
	ck_assert(!pending.crowded);
	ck_assert(!pending_has_place(&pending, now)); /* each has its time of grace */
	ck_assert(pending.crowded);
	pending_remove(&pending, &guest[1].entry);
	pending_remove(&pending, &guest[1].entry);
	ck_assert_uint_eq(pending.count, PLACES - 1);
	come(4, 1);
	ck_assert(!pending.crowded);
	expect_none_dropped();
}
END_TEST

START_TEST(test_first_gives_way)
{
	begin(&usual);
	come(0, PLACES);
	now = guest[0].entry.since + GRACE - 1;
	ck_assert(!pending_has_place(&pending, now));
	expect_none_dropped();
	now++;
	come(PLACES, 1);
	expect_dropped(0, PENDING_GAVE_WAY);
	ck_assert_uint_eq(guest[1].dropped, 0);
	ck_assert_uint_eq(pending.count, PLACES);
	now = guest[3].entry.since + GRACE; /* one for each that comes */
	come(PLACES + 1, 3);
	for (unsigned i = 1; i < PLACES; i++)
		expect_dropped(i, PENDING_GAVE_WAY);
	ck_assert(!pending_has_place(&pending, now));
}
END_TEST

/* As it has said what it wants; until its time is over, all the same. */
START_TEST(test_holds)
{
	begin(&usual);
	come(0, PLACES);
	pending_hold(&guest[0].entry);
	pending_hold(&guest[1].entry);
	now += GRACE;
	come(PLACES, 1);
	expect_dropped(2, PENDING_GAVE_WAY);
	come(PLACES + 1, 1);
	expect_dropped(3, PENDING_GAVE_WAY);
	pending_hold(&guest[PLACES].entry);
	pending_hold(&guest[PLACES + 1].entry);
	now += TIME_S;
	ck_assert(!pending_has_place(&pending, now));
	ck_assert_uint_eq(pending_deadline(&pending), guest[0].entry.since + STAY);
	now = guest[0].entry.since + STAY;
	ck_assert_int_eq(pending_turn(&pending, now), 1);
	expect_dropped(0, PENDING_LATE);
	ck_assert(pending_has_place(&pending, now));
}
END_TEST

START_TEST(test_late)
{
	begin(&usual);
	ck_assert_uint_eq(pending_deadline(&pending), TIME_NEVER);
	ck_assert_int_eq(pending_turn(&pending, now), 0);
	come(0, 3);
	ck_assert_uint_eq(pending_deadline(&pending), guest[0].entry.since + STAY);
	ck_assert_int_eq(pending_turn(&pending, guest[0].entry.since + STAY - 1), 0);
	ck_assert_int_eq(pending_turn(&pending, guest[1].entry.since + STAY), 2);
	expect_dropped(0, PENDING_LATE);
	expect_dropped(1, PENDING_LATE);
	ck_assert_uint_eq(guest[2].dropped, 0);
	ck_assert_uint_eq(pending_deadline(&pending), guest[2].entry.since + STAY);
}
END_TEST

/* More than places may have to be in. A turn has an end, and its deadline says that there is more. */
START_TEST(test_turn_is_bounded)
{
	begin(&usual);
	for (size_t i = 0; i < ARRAY_SIZE(guest); i++)
		pending_add(&pending, &guest[i].entry, now);
	ck_assert_uint_eq(pending.count, ARRAY_SIZE(guest));
	now += STAY;
	for (unsigned left = ARRAY_SIZE(guest); left; left -= PENDING_TURN) {
		ck_assert_uint_le(pending_deadline(&pending), now);
		ck_assert_int_eq(pending_turn(&pending, now), PENDING_TURN);
	}
	ck_assert_uint_eq(pending.count, 0);
	ck_assert_int_eq(pending_turn(&pending, now), 0);
	ck_assert_uint_eq(pending_deadline(&pending), TIME_NEVER);
}
END_TEST

/* One that waits outside is looked at when the first has had its grace, and not before. */
START_TEST(test_crowded_deadline)
{
	begin(&usual);
	come(0, PLACES);
	ck_assert_uint_eq(pending_deadline(&pending), guest[0].entry.since + STAY);
	ck_assert(!pending_has_place(&pending, now));
	ck_assert_uint_eq(pending_deadline(&pending), guest[0].entry.since + GRACE);
	pending_hold(&guest[0].entry);
	ck_assert_uint_eq(pending_deadline(&pending), guest[1].entry.since + GRACE);
	ck_assert(pending_has_place(&pending, guest[1].entry.since + GRACE));
	expect_dropped(1, PENDING_GAVE_WAY);
	ck_assert_uint_eq(pending_deadline(&pending), guest[0].entry.since + STAY);
}
END_TEST

/* One that is refused, and is to take it: it begins anew, behind the others. */
START_TEST(test_anew)
{
	begin(&usual);
	come(0, PLACES);
	pending_hold(&guest[0].entry);
	now += GRACE;
	pending_add(&pending, &guest[0].entry, now);
	ck_assert_uint_eq(pending.count, PLACES);
	ck_assert_ptr_eq(pending_first(&pending), &guest[1].entry);
	for (unsigned i = 0; i < PLACES - 1; i++)
		ck_assert(pending_make_room(&pending, now));
	ck_assert(!pending_make_room(&pending, now));
	ck_assert_uint_eq(guest[0].dropped, 0);
	ck_assert(pending_make_room(&pending, now + GRACE));
	expect_dropped(0, PENDING_GAVE_WAY);
	ck_assert(!pending_make_room(&pending, now + GRACE));
}
END_TEST

/* Without a limit in time. */
START_TEST(test_for_ever)
{
	begin(&(struct pending_attr){.limit = 2, .stay = TIME_NEVER, .drop = guest_dropped});
	come(0, 2);
	ck_assert_uint_eq(pending_deadline(&pending), TIME_NEVER);
	ck_assert_int_eq(pending_turn(&pending, TIME_NEVER - 1), 0);
	come(2, 8); /* and without grace */
	for (unsigned i = 0; i < 8; i++)
		expect_dropped(i, PENDING_GAVE_WAY);
	ck_assert_uint_eq(pending.count, 2);
}
END_TEST

/* What is dropped may take another one with it. */
START_TEST(test_drop_removes_another)
{
	begin(&usual);
	come(0, 3);
	guest[0].leaves = &pending;
	ck_assert_int_eq(pending_turn(&pending, now + STAY), 2);
	expect_dropped(0, PENDING_LATE);
	ck_assert_uint_eq(guest[1].dropped, 0);
	expect_dropped(2, PENDING_LATE);
	ck_assert_uint_eq(pending.count, 0);
	come(10, 3);
	guest[10].leaves = &pending;
	pending_close(&pending);
	expect_dropped(10, PENDING_CLOSED);
	ck_assert_uint_eq(guest[11].dropped, 0);
	expect_dropped(12, PENDING_CLOSED);
	ck_assert_uint_eq(pending.count, 0);
	pending_close(&pending);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pending");
	TCase *tc = suite_case(suite, "pending", NULL, NULL);

	tcase_add_test(tc, test_places);
	tcase_add_test(tc, test_first_gives_way);
	tcase_add_test(tc, test_holds);
	tcase_add_test(tc, test_late);
	tcase_add_test(tc, test_turn_is_bounded);
	tcase_add_test(tc, test_crowded_deadline);
	tcase_add_test(tc, test_anew);
	tcase_add_test(tc, test_for_ever);
	tcase_add_test(tc, test_drop_removes_another);
	return suite_run(suite);
}
