/* fabric_atomic.c: fetch and add, compare and swap; and their absence where the provider has none. */
#include "tests/fabric/fabric_pair.h"

#define PAGE 4096
#define RIGHTS (FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE | FABRIC_REMOTE_ATOMIC)

/* A page of words, and a second connection of the same domains. */
struct scene {
	struct fabric_pair p;
	struct buffer mine, theirs;
	struct fabric_endpoint *c2, *s2;
};

static void scene_open(struct scene *x, unsigned access)
{
	*x = (struct scene){.c2 = NULL};
	fabric_pair_make(&x->p, &fabric_pair_defaults);
	fabric_pair_connect(&x->p, &x->c2, &x->s2);
	buffer_make(&x->mine, &x->p.client, PAGE, sink_rights());
	buffer_make(&x->theirs, &x->p.server, PAGE, access);
	memset(x->mine.at, 0x11, PAGE);
	memset(x->theirs.at, 0, PAGE);
}

static void scene_close(struct scene *x)
{
	ck_assert_int_eq(x->p.client.done_count + x->p.server.done_count, 0);
	buffer_drop(&x->mine);
	buffer_drop(&x->theirs);
	fabric_pair_close(&x->p);
}

/* A signaled request for the word at `offset` of theirs; what it was lands in word `id` of mine. */
static struct fabric_wr request(const struct scene *x, enum fabric_opcode opcode, uint64_t id, size_t offset,
				uint64_t operand, uint64_t swap)
{
	struct fabric_wr wr = wr_remote(opcode, id, &x->mine, id * 8 % PAGE, 8, &x->theirs, x->p.s, offset);

	wr.operand = operand;
	wr.swap = swap;
	return wr;
}

static uint64_t word(const struct buffer *b, size_t offset)
{
	uint64_t value;

	memcpy(&value, b->at + offset, sizeof(value));
	return value;
}

/* Carries it out; what the word was. */
static uint64_t carry_out(struct scene *x, enum fabric_opcode opcode, size_t offset, uint64_t operand, uint64_t swap)
{
	struct fabric_wr wr = request(x, opcode, 1, offset, operand, swap);

	post(x->p.c, &wr);
	done_expect(&x->p, &x->p.client, x->p.c, 1, opcode, FABRIC_OK);
	return word(&x->mine, 8);
}

START_TEST(values)
{
	struct scene x;

	scene_open(&x, RIGHTS);
	if (x.p.limits.atomics) {
		ck_assert_uint_eq(carry_out(&x, FABRIC_FETCH_ADD, 64, 5, 0), 0);
		ck_assert_uint_eq(carry_out(&x, FABRIC_FETCH_ADD, 64, 1ull << 40, 0), 5);
		ck_assert_uint_eq(carry_out(&x, FABRIC_FETCH_ADD, 64, UINT64_MAX, 0), (1ull << 40) + 5);
		ck_assert_uint_eq(word(&x.theirs, 64), (1ull << 40) + 4);
		ck_assert_uint_eq(carry_out(&x, FABRIC_COMPARE_SWAP, 64, 1, 2), (1ull << 40) + 4);
		ck_assert_uint_eq(word(&x.theirs, 64), (1ull << 40) + 4);
		ck_assert_uint_eq(carry_out(&x, FABRIC_COMPARE_SWAP, 64, (1ull << 40) + 4, UINT64_MAX),
				  (1ull << 40) + 4);
		ck_assert_uint_eq(word(&x.theirs, 64), UINT64_MAX);
		ck_assert_uint_eq(carry_out(&x, FABRIC_FETCH_ADD, PAGE - 8, 7, 0), 0);
		for (size_t i = 0; i < PAGE; i += 8)
			ck_assert_uint_eq(word(&x.theirs, i), i == 64 ? UINT64_MAX : i == PAGE - 8 ? 7 : 0);
		for (size_t i = 0; i < PAGE; i++)
			check_that(i / 8 == 1 || x.mine.at[i] == 0x11, "byte %zu of mine was touched", i);
		fabric_pair_exercise(&x.p, x.p.c, x.p.s);
	}
	scene_close(&x);
}
END_TEST

/* Two endpoints add to one word, with as many under way as they may: each sees another value, and the sum is right. */
START_TEST(sum)
{
	enum { EACH = 200, DEPTH = 16 };
	bool seen[2 * EACH] = {false};
	unsigned sent = 0, done = 0;
	struct scene x;

	scene_open(&x, RIGHTS);
	while (x.p.limits.atomics && done < 2 * EACH) {
		for (; sent < 2 * EACH && sent - done < DEPTH; sent++) {
			struct fabric_wr wr = request(&x, FABRIC_FETCH_ADD, sent % (2 * DEPTH), 128, 1, 0);

			post_patiently(&x.p, sent % 2 ? x.c2 : x.p.c, &wr);
		}
		for (int which = 0; which < 2 && done < sent; which++, done++) {
			struct fabric_endpoint *c = done % 2 ? x.c2 : x.p.c;
			uint64_t was = word(
				&x.mine,
				done_expect(&x.p, &x.p.client, c, done % (2 * DEPTH), FABRIC_FETCH_ADD, FABRIC_OK).id *
					8);

			ck_assert_uint_lt(was, 2 * EACH);
			ck_assert(!seen[was]);
			seen[was] = true;
		}
	}
	ck_assert_uint_eq(word(&x.theirs, 128), done);
	scene_close(&x);
}
END_TEST

/* In a chain: behind a write of the word, which it sees, and before another. */
START_TEST(in_a_chain)
{
	struct fabric_wr wr[3];
	struct scene x;

	scene_open(&x, RIGHTS);
	if (x.p.limits.atomics) {
		memset(x.mine.at, 0, 8);
		x.mine.at[0] = 9;
		wr[0] = wr_remote(FABRIC_WRITE, 0, &x.mine, 0, 8, &x.theirs, x.p.s, 256);
		wr[1] = request(&x, FABRIC_FETCH_ADD, 1, 256, 1, 0);
		wr[2] = request(&x, FABRIC_COMPARE_SWAP, 2, 256, 10, 77);
		wr[0].signaled = false;
		wr[0].next = &wr[1];
		wr[1].next = &wr[2];
		post(x.p.c, wr);
		done_expect(&x.p, &x.p.client, x.p.c, 1, FABRIC_FETCH_ADD, FABRIC_OK);
		done_expect(&x.p, &x.p.client, x.p.c, 2, FABRIC_COMPARE_SWAP, FABRIC_OK);
		ck_assert_uint_eq(word(&x.mine, 8), 9);
		ck_assert_uint_eq(word(&x.mine, 16), 10);
		ck_assert_uint_eq(word(&x.theirs, 256), 77);
	}
	scene_close(&x);
}
END_TEST

static const struct refusal {
	const char *what;
	unsigned access;
	size_t offset;
	uint32_t key; /* XORed */
} refusals[] = {
	{"key", RIGHTS, 64, 0x5a5a5a00},     {"right", FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, 64, 0},
	{"beyond the end", RIGHTS, PAGE, 0}, {"before the begin", RIGHTS, (size_t)-8, 0},
	{"no right at all", 0, 64, 0},
};

/* The request fails, touches nothing, and ends that connection; the other does not notice. */
static void expect_refused(struct scene *x, const struct fabric_wr *wr)
{
	struct fabric_pair *p = &x->p;

	post(p->c, wr);
	done_expect(p, &p->client, p->c, 1, wr->opcode, FABRIC_REMOTE_ACCESS);
	event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
	event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
	for (size_t i = 0; i < PAGE; i++)
		check_that(x->mine.at[i] == 0x11 && x->theirs.at[i] == 0, "byte %zu was touched", i);
	fabric_pair_exercise(p, x->c2, x->s2);
}

START_TEST(refused)
{
	const struct refusal *r = &refusals[_i / 2];
	enum fabric_opcode opcode = _i % 2 ? FABRIC_COMPARE_SWAP : FABRIC_FETCH_ADD;
	struct fabric_wr wr;
	struct scene x;

	scene_open(&x, r->access);
	if (x.p.limits.atomics) {
		wr = request(&x, opcode, 1, r->offset, 0, 1);
		wr.rkey ^= r->key;
		expect_refused(&x, &wr);
	}
	scene_close(&x);
}
END_TEST

/* By a window's key, for which the same holds. */
START_TEST(by_a_window)
{
	const unsigned both = FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE;
	struct fabric_window *window = NULL;
	struct fabric_wr wr;
	struct scene x;

	scene_open(&x, FABRIC_WINDOWS);
	if (x.p.limits.atomics && x.p.limits.windows) {
		ck_assert_int_eq(fabric_window_open(x.p.s, x.theirs.region, x.theirs.at + 64, 64,
						    _i == 1 ? both : both | FABRIC_REMOTE_ATOMIC, &window),
				 0);
		wr = request(&x, FABRIC_FETCH_ADD, 1, _i == 2 ? 128 : 64, 3, 0);
		wr.rkey = fabric_window_rkey(window);
		if (_i) {
			expect_refused(&x, &wr);
		} else {
			post(x.p.c, &wr);
			done_expect(&x.p, &x.p.client, x.p.c, 1, FABRIC_FETCH_ADD, FABRIC_OK);
			ck_assert_uint_eq(word(&x.theirs, 64), 3);
		}
		fabric_window_close(window);
	}
	scene_close(&x);
}
END_TEST

/* Nothing is posted, and the endpoint is as it was. */
START_TEST(arguments)
{
	struct fabric_wr wr;
	struct scene x;
	int wrong;

	scene_open(&x, RIGHTS);
	wrong = x.p.limits.atomics ? -EINVAL : -EOPNOTSUPP;
	for (int i = 0; i < 10; i++) {
		wr = request(&x, i % 2 ? FABRIC_COMPARE_SWAP : FABRIC_FETCH_ADD, 1, 0, 1, 1);
		if (i / 2 == 0)
			wr.sge[0].len = 4;
		else if (i / 2 == 1)
			wr.sge[0].region = NULL;
		else if (i / 2 == 2)
			wr.sge_count = 0;
		else if (i / 2 == 3)
			wr.remote_addr += 4;
		else if (x.p.limits.atomics)
			continue;
		ck_assert_int_eq(fabric_post(x.p.c, &wr), wrong);
	}
	ck_assert_uint_eq(word(&x.theirs, 0), 0);
	fabric_pair_exercise(&x.p, x.p.c, x.p.s);
	scene_close(&x);
}
END_TEST

/* What is flushed with the endpoint completes once, as all else. */
START_TEST(flushed)
{
	struct scene x;

	scene_open(&x, RIGHTS);
	if (x.p.limits.atomics) {
		struct fabric_pair *p = &x.p;

		for (uint64_t i = 0; i < 8; i++) {
			struct fabric_wr wr = request(&x, FABRIC_FETCH_ADD, i, 0, 1, 0);

			post(p->c, &wr);
		}
		fabric_disconnect(p->c);
		event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
		for (uint64_t i = 0; i < 8; i++)
			ck_assert_uint_eq(done_next(p, &p->client, p->c).id, i);
		event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
	}
	scene_close(&x);
}
END_TEST

Suite *atomic_suite(void)
{
	Suite *s = suite_create("atomic");
	TCase *t = fabric_pair_tcase(s, "atomic", 40);

	tcase_add_test(t, values);
	tcase_add_test(t, sum);
	tcase_add_test(t, in_a_chain);
	tcase_add_loop_test(t, refused, 0, 2 * ARRAY_SIZE(refusals));
	tcase_add_loop_test(t, by_a_window, 0, 3);
	tcase_add_test(t, arguments);
	tcase_add_test(t, flushed);
	return s;
}
