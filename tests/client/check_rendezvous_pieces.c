/* check_rendezvous_pieces.c: large values that lie in pieces at the caller. */
#include "tests/client/rendezvous_common.h"

#define GAP 16 /* between two of them */

static const struct shape {
	unsigned count;
	size_t length[8];
} shapes[] = {
	{1, {10}},
	{4, {0, 100, 0, 1}},
	{2, {4000, 90}},
	{3, {4096, 1, 4096}},
	{2, {1, 5000}},
	{1, {20000}},
	{3, {64, 100000, 16}},
	{7, {3, 3, 5000, 3, 0, 4097, 3}}, /* 5 ranges: more than the server takes, as below */
	{5, {5000, 6000, 7000, 8000, 9000}},
	{8, {4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096}},
	{4, {MIB, 4097, 70000, 2 * MIB}},
};
static struct iovec pieces[8];
static uint8_t *edge;

/* Lays the pieces out in `space`, all 0xee to a gap behind them. Their sum. */
static size_t lay_out(const struct shape *shape)
{
	uint8_t *at = space + GAP;

	for (unsigned i = 0; i < shape->count; at += shape->length[i++] + GAP)
		pieces[i] = (struct iovec){at, shape->length[i]};
	edge = at;
	memset(space, 0xee, (size_t)(edge - space));
	return (size_t)(edge - space) - (shape->count + 1) * GAP;
}

static bool is_untouched(const uint8_t *from, const uint8_t *to)
{
	while (from < to && *from == 0xee)
		from++;
	return from == to;
}

/* The first `len` bytes that they hold are the value's, and nothing else was touched. */
static void assert_pieces(const struct shape *shape, size_t len, uint64_t seed)
{
	uint8_t *end = space, *to = value;

	for (unsigned i = 0; i < shape->count; i++) {
		size_t n = MIN(pieces[i].iov_len, len);

		ck_assert(is_untouched(end, pieces[i].iov_base));
		memcpy(to, pieces[i].iov_base, n);
		end = (uint8_t *)pieces[i].iov_base + n;
		to += n;
		len -= n;
	}
	ck_assert(is_untouched(end, edge));
	ck_assert(value_holds(value, (size_t)(to - value), seed));
}

static void fill_pieces(const struct shape *shape, size_t sum, uint64_t seed)
{
	uint8_t *from = value;

	value_fill(value, sum, seed);
	for (unsigned i = 0; i < shape->count; from += pieces[i++].iov_len)
		memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
}

START_TEST(test_pieces)
{
	void *kv = open_kv(NULL, NULL), *other = open_kv(NULL, NULL);
	unsigned before = registered();
	struct kv_meta meta;
	uint64_t version;

	for (unsigned s = 0; s < ARRAY_SIZE(shapes); s++) {
		size_t sum = lay_out(&shapes[s]), len;

		fill_pieces(&shapes[s], sum, s);
		ck_assert_int_eq(kv_putv(kv, "k", 1, pieces, shapes[s].count, NULL, &version), 0);
		assert_value(other, "k", sum, s);
		for (unsigned g = 0; g < ARRAY_SIZE(shapes); g++) {
			size_t room = lay_out(&shapes[g]);
			int rc = kv_fetchv(kv, "k", 1, NULL, pieces, shapes[g].count, &len, &meta);

			ck_assert_msg(rc == (room < sum ? -EMSGSIZE : 0), "%u to %u: %d %s", s, g, rc, rdmad_error());
			ck_assert_uint_eq(len, sum);
			assert_pieces(&shapes[g], rc == 0 ? sum : 0, s);
			ck_assert(rc != 0 || (meta.length == sum && meta.version == version));
		}
	}
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	kv_close(kv);
	kv_close(other);
	ck_assert_uint_le(registered(), before);
	server_rests();
	assert_store_empty();
}
END_TEST

static struct kv_result came;

static void result_came(void *arg, const struct kv_result *result)
{
	(void)arg;
	came = *result;
	total++;
}

START_TEST(test_pieces_submitted)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};
	struct kv_fetch what = {.offset = 1000, .length = 4000, .then = KV_THEN_DELETE};
	const struct shape *shape = &shapes[6], *many = &shapes[8];
	void *kv = open_kv(NULL, NULL);
	size_t sum = lay_out(shape);

	fill_pieces(shape, sum, 1);
	ck_assert_int_eq(kv_submit_putv(kv, "k", 1, pieces, shape->count, &absent, result_came, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert(came.status == 0 && came.meta.version);
	ck_assert_int_eq(kv_submit_putv(kv, "k", 1, pieces, shape->count, &absent, result_came, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(came.status, -EEXIST);
	assert_value(kv, "k", sum, 1);
	lay_out(shape);
	ck_assert_int_eq(kv_submit_fetchv(kv, "k", 1, NULL, pieces, shape->count, result_came, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert(came.status == 0 && !came.value && came.value_len == sum && came.meta.length == sum);
	assert_pieces(shape, sum, 1);
	set_value(kv, "none", 0, 0);
	ck_assert_int_eq(kv_submit_fetchv(kv, "none", 4, NULL, NULL, 0, result_came, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert(came.status == 0 && !came.value && came.value_len == 0);
	for (what.length = 4000; what.length <= 30000; what.length += 26000) { /* in the answer, and beside it */
		set_value(kv, "k", 40000, 2);
		lay_out(many);
		ck_assert_int_eq(kv_submit_fetchv(kv, "k", 1, &what, pieces, many->count, result_came, NULL), 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		ck_assert(came.status == 0 && came.value_len == what.length && came.meta.length == 40000);
		ck_assert_int_eq(kv_exists(kv, "k", 1), 0);
		value_fill(value, 40000, 2);
		ck_assert(memcmp(pieces[0].iov_base, value + 1000, 4000) == 0);
	}
	kv_close(kv);
	server_rests();
}
END_TEST

START_TEST(test_pieces_refused)
{
	struct iovec null = {NULL, 1}, wraps[2] = {{space, SIZE_MAX}, {space, 1}}, nothing = {NULL, 0};
	struct iovec beyond[2] = {{space, 10}, {space, (size_t)GIB + 1}};
	void *kv = open_kv(NULL, NULL);
	size_t len;

	ASSERT_ERROR(kv_putv(kv, "k", 1, NULL, 1, NULL, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_putv(kv, "k", 1, &null, 1, NULL, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_fetchv(kv, "k", 1, NULL, wraps, 2, NULL, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_submit_putv(kv, "k", 1, wraps, 2, NULL, ignored, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_submit_fetchv(kv, "k", 1, NULL, &null, 1, ignored, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_submit_fetchv(kv, "k", 1, NULL, wraps, 1, NULL, NULL), -EINVAL, "callback");
	ASSERT_ERROR(kv_putv(NULL, "k", 1, wraps, 1, NULL, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_fetchv(NULL, "k", 1, NULL, wraps, 1, NULL, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_putv(kv, "k", 1, beyond, 2, NULL, NULL), -EMSGSIZE, "at most");
	ck_assert_int_eq(kv_putv(kv, "k", 1, &nothing, 1, NULL, NULL), 0);
	ck_assert_int_eq(kv_putv(kv, "n", 1, NULL, 0, NULL, NULL), 0);
	ck_assert_int_eq(kv_fetchv(kv, "k", 1, NULL, NULL, 0, &len, NULL), 0);
	ck_assert_int_eq(kv_fetchv(kv, "k", 1, NULL, &nothing, 1, &len, NULL), 0);
	ck_assert_uint_eq(len, 0);
	kv_close(kv);
}
END_TEST

/* Long pieces stay where they are, short ones go in one: nothing is registered, allocated or asked twice. */
START_TEST(test_pieces_price)
{
	void *kv = open_kv(NULL, NULL), *lent[2];
	unsigned allocated = 0, registered_before = 0, calls;
	uint64_t records = 0;

	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(kv_buffer_lend(kv, MIB, &lent[i]), 0);
	pieces[0] = (struct iovec){space, 100};
	pieces[1] = (struct iovec){lent[0], MIB};
	pieces[2] = (struct iovec){space + 5000, 10};
	pieces[3] = (struct iovec){space + 6000, 4096};
	pieces[4] = (struct iovec){lent[1], 5000};
	server_pause();
	for (unsigned i = 0; i < 16; i++) {
		if (i == 8) {
			allocated = allocations;
			registered_before = registrations;
			records = records_taken();
			longest_copy = 0;
		}
		calls = total + 2;
		if (kv_submit_putv(kv, "k", 1, pieces, 5, NULL, result_came, NULL) != 0 ||
		    kv_submit_fetchv(kv, "k", 1, NULL, pieces, 5, result_came, NULL) != 0)
			abort();
		turn_until(kv, calls);
	}
	allocated = allocations - allocated;
	ck_assert_uint_eq(registrations - registered_before, 0);
	ck_assert(came.status == 0 && came.value_len == 100 + MIB + 10 + 4096 + 5000);
	ck_assert_uint_eq(allocated, 0);
	ck_assert_uint_eq(records_taken() - records, 16);
	ck_assert_uint_le(longest_copy, copy_limit(kv));
	kv_release(lent[0]);
	kv_release(lent[1]);
	server_resume();
	kv_close(kv);
}
END_TEST

/* A caller that gave up may free the array, and what it names. */
START_TEST(test_pieces_given_up)
{
	struct rdmad_options options = {.timeout_us = 20000};
	void *kv = open_kv(&options, NULL), *other = open_kv(NULL, NULL);
	struct iovec *array = malloc(3 * sizeof(*array));
	unsigned before = registered();
	uint64_t until = time_now() + PATIENCE;
	int rc;

	set_value(other, "k", 6000, 1);
	lay_out(&shapes[5]);
	array[0] = (struct iovec){space + 100, 3000};
	array[1] = (struct iovec){space + 5000, 3000};
	server_pause();
	ASSERT_ERROR(kv_fetchv(kv, "k", 1, NULL, array, 2, NULL, NULL), -ETIMEDOUT, "20 ms");
	server_resume();
	array[2] = (struct iovec){space + 10000, 10000};
	while ((rc = kv_stat(kv, "k", 1, &(struct kv_meta){0})) == -ETIMEDOUT && time_now() < until)
		;
	ck_assert_int_eq(rc, 0);            /* what was given up is answered before it */
	before = MAX(before, registered()); /* a landing buffer is kept, which the server may write to ... */
	server_pause();
	ASSERT_ERROR(kv_putv(kv, "k", 1, array, 3, NULL, NULL), -ETIMEDOUT, "20 ms");
	free(array);
	ck_assert_uint_eq(registered(), before + 1); /* ... and one that it may read */
	ck_assert(is_untouched(space, edge));
	server_resume();
	while (kv_progress(kv, 10000) != -ENOTCONN) /* its read was refused */
		ck_assert(time_now() < until);
	assert_value(other, "k", 6000, 1);
	kv_close(kv);
	kv_close(other);
	server_rests();
}
END_TEST

static void set_up_single(void)
{
	set_up_memory();
	server_start(&(struct server_options){.group.transfers = 1});
}

/* A server that takes one range, as those of before do: the pieces go in one. */
START_TEST(test_pieces_single)
{
	void *kv = open_kv(NULL, NULL);
	size_t sum = lay_out(&shapes[10]), len;

	fill_pieces(&shapes[10], sum, 1);
	ck_assert_int_eq(kv_putv(kv, "k", 1, pieces, shapes[10].count, NULL, NULL), 0);
	assert_value(kv, "k", sum, 1);
	lay_out(&shapes[10]);
	ck_assert_int_eq(kv_fetchv(kv, "k", 1, NULL, pieces, shapes[10].count, &len, NULL), 0);
	assert_pieces(&shapes[10], sum, 1);
	kv_close(kv);
}
END_TEST

/*
 * A server without manners. To two pieces, of 5000 bytes and 100.
 */
static const struct rogue piece_rogues[] = {
	{"written beyond them", 5101, 24, WIRE_WRITTEN, WIRE_OK, 0, -EPROTO},
	{"written, and a body too short", 5100, 16, WIRE_WRITTEN, WIRE_OK, 0, -EPROTO},
	{"longer than both", 0, 16 + 5101, 0, WIRE_OK, 0, -EMSGSIZE},
	{"too large", 6000, 9, 0, WIRE_TOO_LARGE, 0, -EMSGSIZE},
};

START_TEST(test_rogue_pieces)
{
	const struct shape two = {2, {5000, 100}};
	void *kv = open_kv(NULL, NULL);
	unsigned before = registered();

	rogue = &piece_rogues[_i];
	lay_out(&two);
	ck_assert_msg(kv_fetchv(kv, "k", 1, NULL, pieces, 2, NULL, NULL) == rogue->get, "%s: %s", rogue->what,
		      rdmad_error());
	ck_assert(is_untouched(space, edge));
	ck_assert_uint_le(registered(), before + 1); /* a landing buffer is kept */
	kv_close(kv);
}
END_TEST

/* Whichever way they go. */
static void add_either(TCase *tc)
{
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_pieces_submitted);
}

static void add(TCase *tc)
{
	add_either(tc);
	tcase_add_test(tc, test_pieces_refused);
	tcase_add_test(tc, test_pieces_price);
	tcase_add_test(tc, test_pieces_given_up);
}

int main(void)
{
	Suite *suite = suite_over_each("rendezvous_pieces", add, add_either);

	log_set_handler(log_keep);
	tcase_add_test(suite_case(suite, "single", set_up_single, tear_down), test_pieces_single);
	tcase_add_loop_test(suite_case(suite, "rogue", set_up_rogue, tear_down), test_rogue_pieces, 0,
			    ARRAY_SIZE(piece_rogues));
	return suite_run(suite);
}
