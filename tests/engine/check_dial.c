/* check_dial.c: the dialer, whose connections are the test's: it says what became of each attempt, and what time it is. */
#include <check.h>

#include "engine/engine.h"
#include "tests/suite.h"

static struct dial dial;
static struct dial_target targets[DIAL_TARGETS];
static const struct fabric_transport *begun[8];
static unsigned begins, abandons;
static int begin_error;

static int begin(struct dial *d, const struct dial_target *target, uint64_t now)
{
	(void)now;
	ck_assert_ptr_eq(d, &dial);
	begun[begins++] = target->transport;
	return begin_error;
}

static void abandon(struct dial *d, const char *why)
{
	(void)d;
	(void)why;
	abandons++;
}

static void explain(const struct dial *d, const struct dial_target *target, const char *reason, char *out, size_t size)
{
	snprintf(out, size, "%d by %s: %s", d->error, target->transport->name, reason);
}

static const struct dial_ops ops = {.begin = begin, .abandon = abandon, .explain = explain};

/* An address without a scheme: RDMA, then TCP. */
static void set_up(void)
{
	struct address address;

	begins = abandons = 0;
	begin_error = 0;
	dial = (struct dial){.ops = &ops,
			     .target = targets,
			     .until = 1000,
			     .first = 100,
			     .last = TIME_NEVER,
			     .pauses = {.next = 20, .most = 50}};
	ck_assert_int_eq(fabric_address_parse("127.0.0.1:7471", &address), 0);
	ck_assert_int_eq(dial_resolve(&dial, "test", "127.0.0.1:7471", &address, false, NULL), 0);
	ck_assert_uint_eq(dial.targets, 2);
}

START_TEST(test_in_turn)
{
	ck_assert_int_eq(dial_turn(&dial, 1), 0);
	ck_assert_str_eq(begun[0]->name, "rdma");
	ck_assert(dial_has_choice(&dial));
	dial_failed(&dial, -ECONNREFUSED, "nobody", false);
	ck_assert_str_eq(dial.why, "-111 by rdma: nobody");
	ck_assert_int_eq(dial_turn(&dial, 2), 0);
	ck_assert_str_eq(begun[1]->name, "tcp");
	ck_assert(!dial_has_choice(&dial));
	dial_failed(&dial, -ECONNRESET, "gone", false);
	ck_assert_str_eq(dial.why, "-104 by tcp: gone (before, by RDMA: nobody)");
	ck_assert_int_eq(dial_turn(&dial, 3), -ECONNRESET);
	ck_assert_uint_eq(begins, 2);
}
END_TEST

START_TEST(test_final)
{
	dial_turn(&dial, 1);
	dial_failed(&dial, -EACCES, "no key", true);
	ck_assert_int_eq(dial_turn(&dial, 2), -EACCES);
	ck_assert_uint_eq(begins, 1);
}
END_TEST

/* A transport that cannot begin has answered nothing. */
START_TEST(test_cannot_begin)
{
	begin_error = -ENODEV;
	ck_assert_int_eq(dial_turn(&dial, 1), -ENODEV);
	ck_assert_uint_eq(begins, 2);
	ck_assert_str_eq(dial.before, "");
}
END_TEST

START_TEST(test_deadline)
{
	ck_assert_int_eq(dial_turn(&dial, 1), 0);
	ck_assert_uint_eq(dial_deadline(&dial), 101);
	ck_assert_int_eq(dial_turn(&dial, 100), 0);
	ck_assert_uint_eq(begins, 1);
	ck_assert_int_eq(dial_turn(&dial, 101), 0);
	ck_assert_uint_eq(begins, 2);
	ck_assert_uint_eq(dial_deadline(&dial), 1000);
	ck_assert_int_eq(dial_turn(&dial, 1000), -ETIMEDOUT);
	ck_assert_str_eq(dial.why, "-110 by tcp: no answer (before, by RDMA: no answer)");
	ck_assert_uint_eq(begins, 2);
}
END_TEST

START_TEST(test_established)
{
	dial_turn(&dial, 1);
	dial_established(&dial);
	ck_assert_uint_eq(dial_deadline(&dial), 1000);
	ck_assert_int_eq(dial_turn(&dial, 999), 0);
	ck_assert_uint_eq(begins, 1);
}
END_TEST

START_TEST(test_cancel)
{
	dial_turn(&dial, 1);
	abandons = 0;
	dial_cancel(&dial, "enough");
	ck_assert_uint_eq(abandons, 1);
	ck_assert_int_eq(dial_turn(&dial, 2), -ECANCELED);
	ck_assert_uint_eq(begins, 1);
}
END_TEST

START_TEST(test_rounds)
{
	static const uint64_t pauses[] = {20, 40, 50, 50};

	for (unsigned i = 0; i < 4; i++) {
		dial_again(&dial, 100 * i);
		ck_assert_uint_eq(dial_deadline(&dial), 100 * i + pauses[i]);
		ck_assert_int_eq(dial_turn(&dial, 100 * i + pauses[i] - 1), 0);
		ck_assert_uint_eq(begins, i);
		ck_assert_int_eq(dial_turn(&dial, 100 * i + pauses[i]), 0);
		ck_assert_str_eq(begun[i]->name, "rdma");
	}
}
END_TEST

/* A server that offers short values by RDMA is asked again when TCP is of no use. */
START_TEST(test_short_values)
{
	dial_turn(&dial, 1);
	dial.small = dial.next;
	dial_failed(&dial, -ENOMEM, "short", false);
	dial_turn(&dial, 2);
	dial_failed(&dial, -ECONNREFUSED, "nobody", false);
	ck_assert_int_eq(dial_turn(&dial, 3), 0);
	ck_assert_str_eq(begun[2]->name, "rdma");
	ck_assert(!dial_has_choice(&dial));
}
END_TEST

START_TEST(test_require_rdma)
{
	struct address address;

	dial.targets = 0;
	ck_assert_int_eq(fabric_address_parse("127.0.0.1:7471", &address), 0);
	ck_assert_int_eq(dial_resolve(&dial, "test", "x", &address, true, NULL), 0);
	ck_assert_uint_eq(dial.targets, 1);
	dial.targets = 0;
	ck_assert_int_eq(fabric_address_parse("tcp://127.0.0.1:7471", &address), 0);
	ck_assert_int_eq(dial_resolve(&dial, "test", "x", &address, true, NULL), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dial");
	TCase *tc = suite_case(suite, "dial", set_up, NULL);

	tcase_add_test(tc, test_in_turn);
	tcase_add_test(tc, test_final);
	tcase_add_test(tc, test_cannot_begin);
	tcase_add_test(tc, test_deadline);
	tcase_add_test(tc, test_established);
	tcase_add_test(tc, test_cancel);
	tcase_add_test(tc, test_rounds);
	tcase_add_test(tc, test_short_values);
	tcase_add_test(tc, test_require_rdma);
	return suite_run(suite);
}
