/* check_peer_collective.c: collectives over a network of chance (peer_fake.c): each algorithm, against a model; losses at each step. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "tests/peer/collectives/peer_collective_cases.h"
#include "tests/peer/collectives/peer_fake.h"
#include "tests/suite.h"

/* As ck_assert_msg(), which writes to a file each time. */
#define sure(condition, ...) ((condition) ? (void)0 : ck_abort_msg(__VA_ARGS__))

static rdma_group *groups[FAKE_MAX];

static bool is_rooted(enum collective_kind kind)
{
	return kind == COLLECTIVE_BCAST || kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER ||
	       kind == COLLECTIVE_REDUCE;
}

/* The algorithms of a kind, each once, and at last the choice by size. False: there are no more. */
static bool next_algorithm(enum collective_kind kind, size_t *at, const char **name)
{
	for (; *at < algorithms_count; ++*at) {
		const struct algorithm *each = &algorithms[*at];

		if (each->kind != kind || (*name && !strcmp(*name, each->name)))
			continue;
		*name = each->name;
		++*at;
		return true;
	}
	*name = NULL;
	return (*at)++ == algorithms_count;
}

static void run_fake(int size, struct trial *trial)
{
	static unsigned seed;

	trial->salt = ++seed;
	fake_begin(size, seed, groups);
	trial_run(groups, size, trial, fake_event);
	fake_end();
}

/*
 * What must come out.
 */
static const size_t small_sizes[] = {0, 1, 7, 4096, 4097};

static void all_roots(int size, struct trial *trial)
{
	for (trial->root = 0; trial->root < (is_rooted(trial->kind) ? size : 1); trial->root++) {
		for (int in_place = 0; in_place < 2; in_place++) {
			trial->in_place = in_place;
			run_fake(size, trial);
		}
	}
}

START_TEST(small)
{
	struct trial trial = {.kind = _i};

	for (size_t at = 0; next_algorithm(trial.kind, &at, &trial.algorithm);) {
		for (int size = 1; size <= 9; size++) {
			for (size_t i = 0; i < ARRAY_SIZE(small_sizes); i++) {
				trial.bytes = small_sizes[i];
				all_roots(size, &trial);
			}
		}
	}
}
END_TEST

/* More than one lane, with a remainder. */
START_TEST(large)
{
	static const int sizes[] = {5, 8, 1, 2, 3, 4};
	size_t n = MAX(suite_part(ARRAY_SIZE(sizes)), 2u);
	struct trial trial = {.kind = _i, .bytes = MIB + 8 * 5, .type = RDMA_INT64, .op = RDMA_SUM};

	for (size_t at = 0; next_algorithm(trial.kind, &at, &trial.algorithm);) {
		for (size_t i = 0; i < n; i++) {
			trial.root = is_rooted(trial.kind) ? sizes[i] - 1 : 0;
			trial.in_place = i % 2;
			run_fake(sizes[i], &trial);
			trial.in_place = !trial.in_place;
			trial.root = 0;
			run_fake(sizes[i], &trial);
		}
	}
}
END_TEST

START_TEST(types_and_operations)
{
	static const size_t counts[] = {1, 63, 200};
	struct trial trial = {.kind = _i};

	for (size_t at = 0; next_algorithm(trial.kind, &at, &trial.algorithm);) {
		for (int pair = 0; pair < 6 * 7; pair++) {
			trial.type = pair / 7;
			trial.op = pair % 7;
			if (!reduce_find(trial.type, trial.op))
				continue;
			for (int size = 2; size <= 9; size++) {
				trial.bytes = counts[size % 3] * reduce_size(trial.type);
				trial.in_place = (pair + size) % 2;
				trial.root = trial.kind == COLLECTIVE_REDUCE ? (pair + size) % size : 0;
				run_fake(size, &trial);
			}
		}
	}
}
END_TEST

/* Several under way, of different kinds, begun in the same order and ended by chance. */
START_TEST(at_once)
{
	enum { RUNS = 3 * COLLECTIVES, SIZE = 5 };
	static struct trial_run run[RUNS];
	static struct trial trial[RUNS];
	int left = RUNS * SIZE;

	fake_begin(SIZE, _i + 1, groups);
	for (int i = 0; i < RUNS; i++) {
		trial[i] = (struct trial){.kind = i % COLLECTIVES,
					  .bytes = 5000 * (i / COLLECTIVES) + 8,
					  .root = i % SIZE,
					  .type = RDMA_DOUBLE,
					  .salt = i,
					  .in_place = i % 2};
		run[i] = (struct trial_run){.trial = &trial[i], .group = groups, .size = SIZE};
		for (int rank = 0; rank < SIZE; rank++)
			trial_begin(&run[i], rank);
	}
	while (left) {
		bool moved = fake_event();
		int before = left;

		left = 0;
		for (int i = 0; i < RUNS * SIZE; i++)
			left += !trial_test(&run[i / SIZE], i % SIZE);
		ck_assert(moved || left < before);
	}
	for (int i = 0; i < RUNS * SIZE; i++) {
		trial_check(&run[i / SIZE], i % SIZE);
		trial_free(&run[i / SIZE], i % SIZE);
	}
	fake_end();
}
END_TEST

/*
 * The same bit for bit.
 */
static const uint32_t nasty[] = {0x7fc00001, 0xffc00002, 0x80000000, 0, 0x7f800000, 0xff800000, 1, 0x80000001};

static float nasty_number(int rank, size_t at)
{
	uint32_t bits = (rank * 2654435761u + at * 40503u) ^ (at << 13);
	float number;

	if ((rank + at) % 5 == 0)
		bits = nasty[(rank * 3 + at) % ARRAY_SIZE(nasty)];
	else
		bits = (bits & 0x807fffff) | (120 + bits % 16) << 23;
	memcpy(&number, &bits, sizeof(number));
	return number;
}

enum { NASTY_COUNT = 1000 };

static void nasty_run(int size, uint64_t seed, const char *algorithm, rdma_op op, bool in_place,
		      float got[][NASTY_COUNT])
{
	static float sent[FAKE_MAX][NASTY_COUNT];
	rdma_request *request[FAKE_MAX];
	int left = size;
	int64_t result;

	fake_begin(size, seed, groups);
	for (int rank = 0; rank < size; rank++) {
		for (int i = 0; i < NASTY_COUNT; i++)
			sent[rank][i] = got[rank][i] = nasty_number(rank, i);
		ck_assert_int_eq(rdma_group_algorithm(groups[rank], "allreduce", algorithm), 0);
		request[rank] = rdma_iallreduce(groups[rank], in_place ? RDMA_IN_PLACE : sent[rank], got[rank],
						NASTY_COUNT, RDMA_FLOAT, op);
	}
	while (left) {
		fake_event();
		for (int rank = 0; rank < size; rank++) {
			if (request[rank] && rdma_test(request[rank], &result)) {
				ck_assert_int_eq(result, 0);
				request[rank] = NULL;
				left--;
			}
		}
	}
	fake_end();
	for (int rank = 0; rank < size && (op == RDMA_SUM || op == RDMA_PRODUCT); rank++)
		for (int i = 0; i < NASTY_COUNT; i++)
			if (isnan(got[rank][i]))
				got[rank][i] = NAN; /* which of two NaNs their sum is, the compiler chooses */
}

START_TEST(bit_for_bit)
{
	static float first[FAKE_MAX][NASTY_COUNT], again[FAKE_MAX][NASTY_COUNT], all[FAKE_MAX + 1][NASTY_COUNT];
	const char *algorithm = NULL;
	bool known[FAKE_MAX + 1] = {false};

	for (size_t at = 0; next_algorithm(COLLECTIVE_ALLREDUCE, &at, &algorithm);) {
		for (int size = 2; size <= 9; size++) {
			nasty_run(size, size, algorithm, _i, false, first);
			nasty_run(size, size + 77, algorithm, _i, true, again);
			for (int rank = 0; rank < size; rank++) {
				ck_assert_msg(!memcmp(first[0], first[rank], sizeof(first[0])),
					      "%s of %d: rank %d has something else", algorithm, size, rank);
				ck_assert_msg(!memcmp(first[0], again[rank], sizeof(first[0])),
					      "%s of %d: rank %d has something else in place", algorithm, size, rank);
			}
			if (_i != RDMA_MIN && _i != RDMA_MAX)
				continue;
			if (!known[size])
				memcpy(all[size], first[0], sizeof(all[size]));
			known[size] = true;
			ck_assert_msg(!memcmp(all[size], first[0], sizeof(first[0])),
				      "%s of %d has something else than another algorithm", algorithm, size);
		}
	}
}
END_TEST

/* Of each three elements the least and the most is one, in any order of operations and operands: so no algorithm has another result. */
static void order_does_not_matter(rdma_type type, rdma_op op, size_t size, const void *values, size_t count)
{
	reduce_fn *reduce = reduce_find(type, op);
	const uint8_t *value = values;
	uint8_t ab[8], ba[8], a_bc[8];

	for (size_t i = 0; i < count * count * count; i++) {
		const uint8_t *a = value + i % count * size, *b = value + i / count % count * size;
		const uint8_t *c = value + i / count / count * size;

		memcpy(ab, a, size);
		reduce(ab, b, 1, false);
		memcpy(ba, a, size);
		reduce(ba, b, 1, true);
		ck_assert_mem_eq(ab, ba, size);
		memcpy(ba, b, size);
		reduce(ba, a, 1, false);
		ck_assert_mem_eq(ab, ba, size);
		reduce(ab, c, 1, false);
		memcpy(a_bc, b, size);
		reduce(a_bc, c, 1, false);
		reduce(a_bc, a, 1, true);
		ck_assert_mem_eq(ab, a_bc, size);
	}
}

START_TEST(least_and_most)
{
	static const double doubles[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 1, -1, 5e-324, -5e-324, 1e300};
	static const float floats[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1, -1, 1e-45f, -1e-45f, 1e38f};
	static const int64_t integers[] = {0, 1, -1, INT64_MAX, INT64_MIN, UINT32_MAX, 0x8000000000000001, 255};
	static const rdma_type types[] = {RDMA_BYTE, RDMA_INT32, RDMA_INT64, RDMA_UINT64};
	float zeros[] = {0.0f, -0.0f}, with[] = {10, 9, NAN, 7};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		order_does_not_matter(types[i], _i, reduce_size(types[i]), integers,
				      sizeof(integers) / reduce_size(types[i]));
	order_does_not_matter(RDMA_FLOAT, _i, sizeof(float), floats, ARRAY_SIZE(floats));
	order_does_not_matter(RDMA_FLOAT, _i, sizeof(float), nasty, ARRAY_SIZE(nasty));
	order_does_not_matter(RDMA_DOUBLE, _i, sizeof(double), doubles, ARRAY_SIZE(doubles));
	reduce_find(RDMA_FLOAT, _i)(&zeros[0], &zeros[1], 1, false);
	ck_assert(!signbit(zeros[0]) == (_i == RDMA_MAX));
	for (int i = 1; i < 4; i++)
		reduce_find(RDMA_FLOAT, _i)(&with[0], &with[i], 1, false);
	ck_assert(isnan(with[0]));
}
END_TEST

/*
 * Losses.
 */
static void check_survivor(struct trial_run *run, int rank, int victim)
{
	struct trial_member *member = &run->member[rank];
	char name[32];

	snprintf(name, sizeof(name), "rank %d", victim);
	if (member->result == 0) {
		trial_check(run, rank);
	} else {
		sure(member->error == ECONNRESET, "%s: rank %d: %s", trial_text(run->trial, run->size), rank,
		     member->why);
		sure(strstr(member->why, name), "it names the member: %s", member->why);
		sure(strstr(member->why, collective_name(run->trial->kind)), "and what failed: %s", member->why);
	}
	trial_free(run, rank);
}

/* Survivors go on until they are done; nothing may touch their memory then, so it goes at once. */
static void survive(struct trial_run *run, int victim, int late)
{
	bool left = true, done[CASE_MEMBERS] = {false};

	while (left) {
		bool moved = fake_event();

		left = false;
		if (late >= 0 && !moved) {
			trial_begin(run, late);
			late = -1;
			moved = true;
		}
		for (int rank = 0; rank < run->size; rank++) {
			if (rank == victim || rank == late || done[rank]) {
				left |= rank == late;
				continue;
			}
			done[rank] = trial_test(run, rank);
			if (done[rank]) {
				check_survivor(run, rank, victim);
				moved = true;
			}
			left |= !done[rank];
		}
		sure(moved || !left, "%s: a survivor waits for ever", trial_text(run->trial, run->size));
	}
}

/* `step`: after how many events the member is lost. False: it was over before. */
static bool lose_at(const struct trial *trial, int size, unsigned step, int victim, bool one_late)
{
	struct trial_run run = {.trial = trial, .group = groups, .size = size};
	int late = one_late ? (victim + 1) % size : -1;
	bool moved = true;

	fake_begin(size, step * 31 + victim * 7 + trial->salt, groups);
	for (int rank = 0; rank < size; rank++) {
		if (rank != late)
			trial_begin(&run, rank);
	}
	while (moved && fake_events() < step) {
		moved = fake_event();
		for (int rank = 0; rank < size; rank++) {
			if (rank != late)
				schedule_turn(groups[rank]->ctx, 0, false);
		}
	}
	fake_kill(victim);
	sure(trial_test(&run, victim), "its own request is over");
	trial_free(&run, victim);
	survive(&run, victim, late);
	fake_end();
	return moved;
}

/* Of long ones, of which a step is like the next, not each. */
static const struct {
	size_t bytes;
	int size;
	bool late; /* a member begins after the loss */
	unsigned stride;
} losses[] = {{7, 3, false, 1}, {7, 5, true, 1}, {15000, 3, true, 1}, {15000, 5, false, 3}, {600 * 1024, 3, false, 7}};

START_TEST(lost_at_each_step)
{
	struct trial trial = {.kind = _i, .type = RDMA_BYTE};

	for (size_t at = 0; next_algorithm(trial.kind, &at, &trial.algorithm);) {
		for (size_t i = 0; i < ARRAY_SIZE(losses); i++) {
			int size = losses[i].size;
			unsigned step = 0;

			trial.bytes = losses[i].bytes;
			trial.root = 0;
			while (lose_at(&trial, size, step, step % size, losses[i].late)) {
				step += losses[i].stride;
				trial.root = is_rooted(trial.kind) ? (step + i) % size : 0;
			}
		}
	}
}
END_TEST

/* What is begun after a loss fails at once, with the reason; as does each form. */
START_TEST(lost_before)
{
	int number = 1;

	fake_begin(3, 1, groups);
	fake_kill(1);
	while (fake_event())
		;
	ck_assert_ptr_null(rdma_ibcast(groups[0], &number, sizeof(number), 1));
	ck_assert_int_eq(rdma_get_errno(), ECONNRESET);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "rdma_bcast: rank 1 (fake) was lost"));
	ck_assert_int_eq(rdma_barrier(groups[2]), -1);
	ck_assert_int_eq(rdma_get_errno(), ECONNRESET);
	fake_end();
}
END_TEST

START_TEST(group_freed)
{
	struct trial trial = {.kind = COLLECTIVE_ALLREDUCE, .bytes = MIB};
	struct trial_run run = {.trial = &trial, .group = groups, .size = 4};

	for (unsigned step = 0; step < 40; step++) {
		fake_begin(4, step, groups);
		for (int rank = 0; rank < 4; rank++)
			trial_begin(&run, rank);
		while (fake_events() < step && fake_event()) {
			for (int rank = 0; rank < 4; rank++)
				schedule_turn(groups[rank]->ctx, 0, false);
		}
		for (int rank = 0; rank < 4; rank++)
			schedule_group_end(groups[rank]);
		for (int left = 4; left;) {
			fake_event();
			left = 0;
			for (int rank = 0; rank < 4; rank++)
				left += !trial_test(&run, rank);
		}
		for (int rank = 0; rank < 4; rank++) {
			ck_assert_int_eq(run.member[rank].error, ECANCELED);
			trial_free(&run, rank);
			run.member[rank] = (struct trial_member){0};
		}
		fake_end();
	}
}
END_TEST

/*
 * Bad use.
 */
/* All members call a barrier, and are in step. */
static void barrier_of_all(int size)
{
	rdma_request *request[FAKE_MAX];
	int64_t result;

	for (int rank = 0; rank < size; rank++) {
		request[rank] = rdma_ibarrier(groups[rank]);
		ck_assert_msg(request[rank], "%s", rdma_get_error());
	}
	for (int left = size; left;) {
		bool moved = fake_event();

		for (int rank = 0; rank < size; rank++) {
			if (!request[rank] || !rdma_test(request[rank], &result))
				continue;
			ck_assert_msg(result == 0, "%s", rdma_get_error());
			request[rank] = NULL;
			moved = true;
			left--;
		}
		ck_assert_msg(moved || !left, "a member waits for ever");
	}
}

/* Others begin late: for them it has failed before. */
START_TEST(time_is_over)
{
	char data[MIB] = {0};

	fake_begin(4, 1, groups);
	groups[0]->ctx->options.timeout_ms = 1;
	ck_assert_int_eq(rdma_bcast(groups[0], data, sizeof(data), 1), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	ck_assert_int_eq(rdma_allreduce(groups[0], RDMA_IN_PLACE, data, sizeof(data), RDMA_BYTE, RDMA_SUM), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	while (fake_event())
		;
	for (int rank = 1; rank < 4; rank++) {
		for (int call = 0; call < 2; call++) {
			ck_assert_ptr_null(rdma_ibarrier(groups[rank]));
			ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
			ck_assert_msg(strstr(rdma_get_error(), "rank 0 (fake) gave it up: not all members"), "%s",
				      rdma_get_error());
		}
	}
	barrier_of_all(4);
	fake_end();
}
END_TEST

/* Others are in the midst of it. */
START_TEST(time_is_over_under_way)
{
	rdma_request *request[4];
	int64_t result;

	fake_begin(4, _i, groups);
	groups[0]->ctx->options.timeout_ms = 1;
	for (int rank = 1; rank < 3; rank++)
		request[rank] = rdma_ibarrier(groups[rank]);
	ck_assert_int_eq(rdma_barrier(groups[0]), -1);
	ck_assert_msg(strstr(rdma_get_error(), "it waits for rank"), "%s", rdma_get_error());
	while (fake_event())
		;
	for (int rank = 1; rank < 3; rank++) {
		while (!rdma_test(request[rank], &result))
			ck_assert(fake_event());
		ck_assert_int_eq(result, -1);
		ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
		ck_assert_msg(strstr(rdma_get_error(), "rank 0"), "%s", rdma_get_error());
	}
	ck_assert_int_eq(rdma_barrier(groups[3]), -1);
	barrier_of_all(4);
	fake_end();
}
END_TEST

/* Each of 4 members: a member that does not see it itself is told. */
static void other_length(enum collective_kind kind, const char *algorithm, int who, size_t length, size_t others)
{
	char data[4 * 100] = {0}, to[4][4 * 100];
	rdma_request *request[4];

	fake_begin(4, who + length, groups);
	for (int rank = 0; rank < 4; rank++) {
		size_t len = rank == who ? length : others;

		ck_assert_int_eq(rdma_group_algorithm(groups[rank], collective_name(kind), algorithm), 0);
		request[rank] = kind == COLLECTIVE_ALLGATHER ? rdma_iallgather(groups[rank], data, to[rank], len)
							     : rdma_ialltoall(groups[rank], data, to[rank], len);
		ck_assert_ptr_nonnull(request[rank]);
	}
	for (int left = 4; left;) {
		bool moved = fake_event();

		for (int rank = 0; rank < 4; rank++) {
			int64_t result;

			if (!request[rank] || !rdma_test(request[rank], &result))
				continue;
			ck_assert_int_eq(result, -1);
			ck_assert_msg(rdma_get_errno() == EPROTO || rdma_get_errno() == EMSGSIZE, "%s",
				      rdma_get_error());
			ck_assert_msg(strstr(rdma_get_error(), "sent"), "%s", rdma_get_error());
			request[rank] = NULL;
			moved = true;
			left--;
		}
		ck_assert_msg(moved || !left, "a member waits for ever");
	}
	barrier_of_all(4);
	fake_end();
}

START_TEST(lengths_do_not_fit)
{
	other_length(COLLECTIVE_ALLGATHER, "linear", _i, 10, 20);
	other_length(COLLECTIVE_ALLGATHER, "ring", _i, 20, 10);
	other_length(COLLECTIVE_ALLTOALL, "pairwise", _i, 20, 10);
	other_length(COLLECTIVE_ALLTOALL, "linear", _i, 10, 20);
}
END_TEST

static void check_without_memory(struct trial_run *run, int rank)
{
	struct trial_member *member = &run->member[rank];

	if (member->result == 0) {
		trial_check(run, rank);
	} else {
		sure(member->error == ENOMEM, "rank %d: %s", rank, member->why);
		sure(!rank || strstr(member->why, "rank 0 (fake) gave it up: no memory"), "rank %d: %s", rank,
		     member->why);
	}
	trial_free(run, rank);
}

/* Memory for the n-th message of a member is not there: all end soon, nothing is left, and all are in step. */
START_TEST(no_memory)
{
	struct trial trial = {.kind = _i, .bytes = 6000, .type = RDMA_DOUBLE};
	struct trial_run run = {.trial = &trial, .group = groups, .size = 4};
	bool failed = true;

	for (unsigned granted = 0; failed; granted++) {
		bool done[4] = {false};

		fake_begin(4, granted, groups);
		fake_limit(0, granted);
		memset(run.member, 0, sizeof(run.member));
		for (int rank = 3; rank >= 0; rank--)
			trial_begin(&run, rank);
		for (int left = 4; left;) {
			bool moved = fake_event();

			for (int rank = 0; rank < 4; rank++) {
				if (done[rank] || !trial_test(&run, rank))
					continue;
				failed = rank ? failed : run.member[0].result != 0;
				check_without_memory(&run, rank);
				done[rank] = moved = true;
				left--;
			}
			ck_assert_msg(moved || !left, "%s: a member waits for ever", trial_text(&trial, 4));
		}
		fake_limit(0, UINT_MAX);
		barrier_of_all(4);
		fake_end();
	}
}
END_TEST

#define REFUSED(call, words)                                                                                           \
	do {                                                                                                           \
		ck_assert_int_eq(call, -1);                                                                            \
		ck_assert_int_eq(rdma_get_errno(), EINVAL);                                                            \
		ck_assert_msg(strstr(rdma_get_error(), words), "%s", rdma_get_error());                                \
	} while (0)

START_TEST(refused)
{
	char data[64] = {0}, other[64];
	size_t length[2] = {1, 1}, beyond[2] = {SIZE_MAX / 2, 8}, at[2] = {0, 1};
	rdma_group *group;

	fake_begin(2, 1, groups);
	group = groups[0];
	REFUSED(rdma_barrier(NULL), "rdma_barrier: no group");
	REFUSED(rdma_bcast(group, data, 1, 2), "the root is rank 2 of a group of 2");
	REFUSED(rdma_bcast(group, data, 1, -1), "the root is rank -1");
	REFUSED(rdma_bcast(group, NULL, 1, 0), "no data");
	REFUSED(rdma_bcast(group, (void *)RDMA_IN_PLACE, 1, 0), "RDMA_IN_PLACE");
	REFUSED(rdma_gather(group, NULL, data, 1, 0), "nothing to send");
	REFUSED(rdma_gather(group, data, NULL, 1, 0), "nowhere to receive");
	REFUSED(rdma_gather(group, data, other, SIZE_MAX / 2, 0), "beyond memory");
	REFUSED(rdma_scatter(group, NULL, data, 1, 0), "nothing to send");
	REFUSED(rdma_scatter(group, data, NULL, 1, 1), "nowhere to receive");
	REFUSED(rdma_allgather(group, data, NULL, 1), "nowhere to receive");
	REFUSED(rdma_allreduce(group, data, other, 1, 6, RDMA_SUM), "there is no type 6");
	REFUSED(rdma_allreduce(group, data, other, 1, (rdma_type)-1, RDMA_SUM), "there is no type -1");
	REFUSED(rdma_allreduce(group, data, other, 1, RDMA_FLOAT, RDMA_XOR), "operation 6 (xor) of type float");
	REFUSED(rdma_allreduce(group, data, other, 1, RDMA_INT32, 7), "operation 7 (?) of type int32");
	REFUSED(rdma_allreduce(group, data, other, SIZE_MAX / 4, RDMA_DOUBLE, RDMA_SUM), "beyond memory");
	REFUSED(rdma_reduce(group, data, NULL, 1, RDMA_DOUBLE, RDMA_SUM, 0), "nowhere to receive");
	REFUSED(rdma_reduce(group, data, other, 1, RDMA_DOUBLE, RDMA_SUM, 9), "rank 9");
	REFUSED(rdma_alltoall(group, NULL, data, 1), "nothing to send");
	REFUSED(rdma_alltoallv(group, data, NULL, at, other, length, at), "no lengths");
	REFUSED(rdma_alltoallv(group, data, length, at, other, beyond, at), "beyond memory");
	REFUSED(rdma_alltoallv(group, NULL, length, at, other, length, at), "the memory of parts");
	ck_assert_ptr_null(rdma_ibarrier(NULL));
	ck_assert_uint_eq(group->sequence, 0);
	fake_end();
}
END_TEST

START_TEST(named)
{
	fake_begin(3, 1, groups);
	REFUSED(rdma_group_algorithm(groups[0], "broadcast", NULL), "there is no collective \"broadcast\"");
	REFUSED(rdma_group_algorithm(groups[0], NULL, NULL), "there is no collective \"\"");
	REFUSED(rdma_group_algorithm(NULL, "bcast", NULL), "no group");
	REFUSED(rdma_group_algorithm(groups[0], "gather", "ring"),
		"gather has no algorithm \"ring\", but: binomial linear");
	ck_assert_int_eq(rdma_group_algorithm(groups[0], "bcast", "chain"), 0);
	ck_assert_str_eq(groups[0]->algorithm[COLLECTIVE_BCAST], "chain");
	ck_assert_int_eq(rdma_group_algorithm(groups[0], "bcast", NULL), 0);
	ck_assert_ptr_null(groups[0]->algorithm[COLLECTIVE_BCAST]);
	/* One that is not possible with so many members gives way. */
	ck_assert_str_eq(algorithm_choose(COLLECTIVE_ALLGATHER, 1, 8, "doubling")->name, "doubling");
	ck_assert_str_ne(algorithm_choose(COLLECTIVE_ALLGATHER, 1, 6, "doubling")->name, "doubling");
	fake_end();
}
END_TEST

/*
 * The table.
 */
START_TEST(table_is_whole)
{
	for (int kind = 0; kind < COLLECTIVES; kind++) {
		const struct algorithm *last = NULL;

		for (size_t i = 0; i < algorithms_count; i++)
			last = (int)algorithms[i].kind == kind ? &algorithms[i] : last;
		ck_assert_ptr_nonnull(last);
		ck_assert_msg(!last->least && last->most == SIZE_MAX && last->least_members == 1 &&
				      last->most_members == INT_MAX && last->condition == ALGORITHM_ANY,
			      "%s: the last row fits always", collective_name(kind));
	}
}
END_TEST

/* "any", "to 4", "from 5", "5 to 9". */
static const char *range_text(const char *least, const char *most, char text[80])
{
	if (*least && *most)
		snprintf(text, 80, "%s to %s", least, most);
	else
		snprintf(text, 80, "%s%s%s", *least ? "from " : *most ? "to " : "any", least, most);
	return text;
}

static const char *bytes_text(const struct algorithm *each, char text[80])
{
	char least[32], most[32];

	return range_text(each->least ? units_format_size(each->least, least) : "",
			  each->most == SIZE_MAX ? "" : units_format_size(each->most, most), text);
}

static const char *members_text(const struct algorithm *each, char text[80])
{
	char least[32] = "", most[32] = "";

	if (each->condition == ALGORITHM_POWER_OF_TWO)
		return "a power of two";
	if (each->least_members > 1)
		snprintf(least, sizeof(least), "%d", each->least_members);
	if (each->most_members < INT_MAX)
		snprintf(most, sizeof(most), "%d", each->most_members);
	return range_text(least, most, text);
}

START_TEST(manual_has_the_table)
{
	char *page = suite_source("man/rdma_lib.3"), row[300], bytes[80], members[80], *at = page;

	for (size_t i = 0; i < algorithms_count; i++) {
		const struct algorithm *each = &algorithms[i];

		snprintf(row, sizeof(row), ".It %s Ta %s Ta %s Ta %s\n", collective_name(each->kind), each->name,
			 bytes_text(each, bytes), members_text(each, members));
		at = strstr(at, row);
		ck_assert_msg(at, "rdma_lib(3) lacks, or has in another place: %s", row);
	}
	free(page);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer_collective");
	TCase *tc = suite_case(suite, "model", NULL, NULL);

	tcase_add_loop_test(tc, small, 0, COLLECTIVES);
	tcase_add_loop_test(tc, large, 0, COLLECTIVES);
	tcase_add_loop_test(tc, types_and_operations, COLLECTIVE_REDUCE, COLLECTIVE_ALLREDUCE + 1);
	tcase_add_loop_test(tc, at_once, 0, 20);
	tcase_add_loop_test(tc, bit_for_bit, RDMA_SUM, RDMA_MAX + 1);
	tcase_add_loop_test(tc, least_and_most, RDMA_MIN, RDMA_MAX + 1);
	tc = suite_case(suite, "loss", NULL, NULL);
	tcase_add_loop_test(tc, lost_at_each_step, 0, COLLECTIVES);
	tcase_add_test(tc, lost_before);
	tcase_add_test(tc, group_freed);
	tc = suite_case(suite, "use", NULL, NULL);
	tcase_add_test(tc, time_is_over);
	tcase_add_loop_test(tc, time_is_over_under_way, 0, 20);
	tcase_add_loop_test(tc, lengths_do_not_fit, 0, 4);
	tcase_add_loop_test(tc, no_memory, 0, COLLECTIVES);
	tcase_add_test(tc, refused);
	tcase_add_test(tc, named);
	tc = suite_case(suite, "table", NULL, NULL);
	tcase_add_test(tc, table_is_whole);
	tcase_add_test(tc, manual_has_the_table);
	return suite_run(suite);
}
