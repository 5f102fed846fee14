/* check_wgl.c: the checker of histories: known ones, and random ones beside a search without any cleverness. */
#include "tests/cluster/wgl.h"
#include "tests/suite.h"

#define STEPS 1000000u

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

START_TEST(test_known)
{
	static const struct {
		enum wgl_verdict verdict;
		unsigned count;
		struct wgl_op op[4];
	} known[] = {
		{WGL_LINEARIZABLE, 0, {{0}}},
		{WGL_LINEARIZABLE, 2, {{WGL_SET, 1, 0, 1, 2, false}, {WGL_HIT, 1, 0, 3, 4, false}}},
		/* A hit of what nobody wrote, or is only written later. */
		{WGL_NOT, 1, {{WGL_HIT, 1, 0, 1, 2, false}}},
		{WGL_NOT, 2, {{WGL_SET, 1, 0, 3, 4, false}, {WGL_HIT, 1, 0, 1, 2, false}}},
		/* While it is written it may be read; the end of one and the begin of the other may be one moment. */
		{WGL_LINEARIZABLE, 2, {{WGL_SET, 1, 0, 1, 9, false}, {WGL_HIT, 1, 0, 2, 3, false}}},
		{WGL_LINEARIZABLE, 2, {{WGL_SET, 1, 0, 3, 4, false}, {WGL_HIT, 1, 0, 1, 3, false}}},
		/* An old value behind a newer one, and behind its deletion. */
		{WGL_NOT,
		 3,
		 {{WGL_SET, 1, 0, 1, 2, false}, {WGL_SET, 2, 0, 3, 4, false}, {WGL_HIT, 1, 0, 5, 6, false}}},
		{WGL_NOT,
		 3,
		 {{WGL_SET, 1, 0, 1, 2, false}, {WGL_DELETE, 0, 0, 3, 4, false}, {WGL_HIT, 1, 0, 5, 6, false}}},
		/* Two clients see two writes in another order. */
		{WGL_NOT,
		 4,
		 {{WGL_SET, 1, 0, 1, 9, false},
		  {WGL_SET, 2, 0, 1, 2, false},
		  {WGL_HIT, 1, 0, 3, 4, false},
		  {WGL_HIT, 2, 0, 5, 6, false}}},
		/* A write without an answer: seen late, or never; but not first there and then gone back. */
		{WGL_LINEARIZABLE,
		 3,
		 {{WGL_SET, 1, 0, 1, 0, true}, {WGL_SET, 2, 0, 2, 3, false}, {WGL_HIT, 1, 0, 8, 9, false}}},
		{WGL_LINEARIZABLE, 2, {{WGL_SET, 1, 0, 1, 0, true}, {WGL_SET, 2, 0, 2, 3, false}}},
		{WGL_NOT,
		 4,
		 {{WGL_SET, 2, 0, 1, 2, false},
		  {WGL_SET, 1, 0, 3, 0, true},
		  {WGL_HIT, 1, 0, 4, 5, false},
		  {WGL_HIT, 2, 0, 6, 7, false}}},
		/* Two conditional writes from one value. */
		{WGL_NOT,
		 3,
		 {{WGL_SET, 1, 0, 1, 2, false}, {WGL_CAS, 2, 1, 3, 6, false}, {WGL_CAS, 3, 1, 3, 6, false}}},
		{WGL_LINEARIZABLE,
		 3,
		 {{WGL_SET, 1, 0, 1, 2, false}, {WGL_CAS, 2, 1, 3, 6, false}, {WGL_CAS, 3, 2, 3, 6, false}}},
		/* What a deletion without an answer may have deleted. */
		{WGL_LINEARIZABLE,
		 3,
		 {{WGL_SET, 1, 0, 1, 2, false}, {WGL_DELETE, 0, 0, 3, 0, true}, {WGL_HIT, 1, 0, 8, 9, false}}},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		ck_assert_msg(wgl_check(known[i].op, known[i].count, STEPS) == known[i].verdict, "history %zu", i);
}
END_TEST

/* Every order is tried. */
static bool is_linearizable(const struct wgl_op *op, unsigned count, unsigned left, uint64_t value)
{
	uint64_t first_end = UINT64_MAX;
	unsigned known = 0;

	for (unsigned i = 0; i < count; i++) {
		if (!(left & 1u << i) || op[i].unknown)
			continue;
		known++;
		first_end = op[i].end < first_end ? op[i].end : first_end;
	}
	for (unsigned i = 0; known && i < count; i++) {
		bool fits = op[i].kind == WGL_SET || op[i].kind == WGL_DELETE ||
			    value == (op[i].kind == WGL_HIT ? op[i].value : op[i].expect);

		if ((left & 1u << i) && op[i].begin <= first_end && fits &&
		    is_linearizable(op, count, left & ~(1u << i), op[i].kind == WGL_DELETE ? 0 : op[i].value))
			return true;
	}
	return !known;
}

/* A history of a value that may be lost: what each request did at a moment of its own. The moments are `step` apart,
 * and a request lasts for up to `width` before and behind its own. */
static unsigned history_make(struct wgl_op *op, unsigned count, uint64_t step, uint64_t width, unsigned unknown)
{
	uint64_t value = 0, moment = width;
	unsigned made = 0;

	for (unsigned i = 0; i < count; i++) {
		struct wgl_op *o = &op[made];

		moment += 1 + draw(step);
		*o = (struct wgl_op){.kind = (enum wgl_kind)draw(4), .value = i + 1};
		o->begin = moment - draw(width);
		o->end = moment + draw(width);
		o->unknown = o->kind != WGL_HIT && draw(100) < unknown;
		value = draw(20) ? value : 0;
		if (o->kind == WGL_HIT)
			o->value = value;
		o->expect = value;
		if (o->kind != WGL_SET && !value) /* it found none */
			continue;
		if (o->kind == WGL_DELETE)
			o->value = 0;
		if (o->kind != WGL_HIT && (!o->unknown || draw(2))) /* the others never took effect */
			value = o->kind == WGL_DELETE ? 0 : o->value;
		made++;
	}
	return made;
}

static void one_is_wrong(struct wgl_op *op, unsigned count)
{
	for (unsigned i = count; i-- > 0;) {
		if (op[i].kind == WGL_HIT || op[i].kind == WGL_CAS) {
			*(op[i].kind == WGL_HIT ? &op[i].value : &op[i].expect) = 1 + draw(count);
			return;
		}
	}
}

START_TEST(test_short)
{
	struct wgl_op op[8];
	unsigned wrong = 0;
	uint64_t runs = suite_part(50000);

	for (uint64_t run = 0; run < runs; run++) {
		unsigned count;
		bool right;

		seed = run + 1;
		count = history_make(op, 8, 3, 1 + draw(12), 20);
		ck_assert_msg(wgl_check(op, count, STEPS) == WGL_LINEARIZABLE, "seed %llu", (unsigned long long)run);
		one_is_wrong(op, count);
		right = is_linearizable(op, count, (1u << count) - 1, 0);
		wrong += !right;
		ck_assert_msg(wgl_check(op, count, STEPS) == (right ? WGL_LINEARIZABLE : WGL_NOT), "seed %llu",
			      (unsigned long long)run);
	}
	ck_assert_uint_gt(wrong, runs / 10); /* else nothing was tried */
}
END_TEST

/* A hit of a value that was replaced long before. */
static void one_is_old(struct wgl_op *op, unsigned count)
{
	unsigned hit = count - 1, set = 0;

	while (op[hit].kind != WGL_HIT)
		hit--;
	while (op[set].kind != WGL_SET || op[set].unknown)
		set++;
	ck_assert_uint_lt(set + 1000, hit);
	op[hit].value = op[set].value;
}

START_TEST(test_long)
{
	static struct wgl_op op[5000];
	unsigned runs = (unsigned)suite_part(20);

	for (unsigned run = 0; run < runs; run++) {
		unsigned count;

		seed = run + 1;
		count = history_make(op, 5000, 10, 15, 1);
		ck_assert_msg(wgl_check(op, count, STEPS) == WGL_LINEARIZABLE, "seed %u", run);
		one_is_old(op, count);
		ck_assert_msg(wgl_check(op, count, STEPS) == WGL_NOT, "seed %u", run);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wgl");
	TCase *tc = suite_case(suite, "histories", NULL, NULL);

	tcase_add_test(tc, test_known);
	tcase_add_test(tc, test_short);
	tcase_add_test(tc, test_long);
	return suite_run(suite);
}
