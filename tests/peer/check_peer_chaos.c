/*
 * check_peer_chaos.c: random sequences of operations among five programs, of which some are killed, against a model: all draw the same numbers, so
 * each knows what all of them do. It prints its seed. By RDMA where RDMAD_GUEST_ADDR says the address of a device.
 *
 *     RDMAD_CHAOS_SEED=N         begins with this one
 *     RDMAD_CHAOS_SEQUENCES=N    so many sequences; 1000
 */
#include <rdma_lib.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer/peer.h"
#include "tests/suite.h"

#define MEMBERS 5
#define STEPS 30
#define LONGEST 40000 /* bytes of a message; some are short, others go by the way of long ones */
#define PATIENCE_S 120

static struct {
	_Atomic int port;
	_Atomic int step[MEMBERS]; /* by number: that it is in */
} * common;

/* What one program knows. Numbers of programs stay, ranks change. */
static struct {
	uint64_t random; /* the same draws in all */
	int number, step;
	unsigned long seed;
	rdma_context *ctx;
	rdma_group *group;
	int member[MEMBERS]; /* by rank: its number */
	int size, rank;
	rdma_options options;
} me;

static uint64_t draw(uint64_t below)
{
	me.random ^= me.random << 13;
	me.random ^= me.random >> 7;
	me.random ^= me.random << 17;
	return (me.random * 0x2545f4914f6cdd1dull >> 20) % below;
}

#define EXPECT(condition)                                                                                              \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "seed %lu, step %d, program %d (rank %d of %d): %s: %s\n", me.seed, me.step,   \
				me.number, me.rank, me.size, #condition, rdma_get_error());                            \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

static uint8_t pattern(int from, int to, size_t at)
{
	return (uint8_t)(from * 31 + to * 7 + me.step * 13 + (int)(at % 251));
}

static void fill(uint8_t *data, size_t length, int from, int to)
{
	for (size_t i = 0; i < length; i++)
		data[i] = pattern(from, to, i);
}

static bool is_filled(const uint8_t *data, size_t length, int from, int to)
{
	for (size_t i = 0; i < length; i++)
		if (data[i] != pattern(from, to, i))
			return false;
	return true;
}

static size_t draw_length(void)
{
	return draw(3) ? draw(5000) : draw(LONGEST);
}

/*
 * Steps
 */
static uint8_t out[MEMBERS * LONGEST], in[MEMBERS * LONGEST];

static void step_ring(void)
{
	int next = (me.rank + 1) % me.size, before = (me.rank + me.size - 1) % me.size;
	size_t length = draw_length();
	rdma_request *r[2];

	if (me.size == 1)
		return;
	fill(out, length, me.rank, next);
	r[0] = rdma_irecv(me.ctx, rdma_group_peer(me.group, before), in, sizeof(in));
	r[1] = rdma_isend(me.ctx, rdma_group_peer(me.group, next), out, length);
	EXPECT(r[0] && r[1]);
	EXPECT(rdma_wait_all(r, 2, UINT64_MAX, NULL) == 0);
	EXPECT(is_filled(in, length, before, me.rank));
}

static void step_bcast(void)
{
	int root = (int)draw((uint64_t)me.size);
	size_t length = draw_length();

	fill(in, length, me.rank, 0);
	EXPECT(rdma_bcast(me.group, in, length, root) == 0);
	EXPECT(is_filled(in, length, root, 0));
}

static void sum_check(rdma_group *group, bool in_place)
{
	static int64_t numbers[500], sums[500];
	size_t count = 1 + draw(500);
	int64_t ranks = rdma_group_size(group);

	for (size_t i = 0; i < count; i++)
		numbers[i] = sums[i] = (int64_t)i + rdma_group_rank(group);
	EXPECT(rdma_allreduce(group, in_place ? RDMA_IN_PLACE : numbers, sums, count, RDMA_INT64, RDMA_SUM) == 0);
	for (size_t i = 0; i < count; i++)
		EXPECT(sums[i] == ranks * (int64_t)i + ranks * (ranks - 1) / 2);
}

static void step_allreduce(void)
{
	sum_check(me.group, draw(2));
}

static void step_alltoall(void)
{
	size_t length = draw_length();

	for (int i = 0; i < me.size; i++)
		fill(out + (size_t)i * length, length, me.rank, i);
	EXPECT(rdma_alltoall(me.group, out, in, length) == 0);
	for (int i = 0; i < me.size; i++)
		EXPECT(is_filled(in + (size_t)i * length, length, i, me.rank));
}

/* Those of even ranks and the others, at the same time. */
static void step_subsets(void)
{
	int ranks[MEMBERS], count = 0;
	rdma_group *part;

	for (int i = me.rank % 2; i < me.size; i += 2)
		ranks[count++] = i;
	part = rdma_group_subset(me.group, ranks, count);
	EXPECT(part);
	sum_check(part, false);
	rdma_group_free(part);
}

/* Each writes into the window of the next one, which closes it when it has heard of it. */
static void step_window(void)
{
	int next = (me.rank + 1) % me.size, before = (me.rank + me.size - 1) % me.size, from;
	size_t length = 1 + draw_length();
	rdma_window *window;
	rdma_remote *remote;
	uint64_t notice;

	if (me.size == 1)
		return;
	window = rdma_window_create(me.ctx, NULL, LONGEST + 1, RDMA_WINDOW_WRITE);
	EXPECT(window && rdma_window_share(window, rdma_group_peer(me.group, before)) == 0);
	remote = rdma_window_open(me.ctx, rdma_group_peer(me.group, next), UINT64_MAX);
	EXPECT(remote);
	fill(out, length, me.rank, next);
	EXPECT(rdma_write(remote, 0, out, length, (uint64_t)me.step) == 0);
	EXPECT(rdma_notice(window, &notice, &from, UINT64_MAX) == 0);
	EXPECT(notice == (uint64_t)me.step && from == rdma_group_peer(me.group, before));
	EXPECT(is_filled(rdma_window_addr(window), length, before, me.rank));
	rdma_window_close(window);
	rdma_remote_close(remote);
}

/* What came before is complete for all. */
static bool all_are_here(void)
{
	for (int i = 0; i < me.size; i++)
		if (common->step[me.member[i]] < me.step)
			return false;
	return true;
}

/* One is killed in the middle of a collective; the others find out, and go on without it. */
static void step_kill(void)
{
	int victim = (int)draw((uint64_t)me.size), turns = (int)draw(40), rank = me.rank, n = 0;
	rdma_group *old = me.group;
	size_t length = draw_length();

	if (me.size <= 2)
		return;
	if (me.rank == victim) {
		while (!all_are_here())
			rdma_progress(me.ctx);
		(void)rdma_ialltoall(me.group, out, in, length);
		for (int i = 0; i < turns; i++)
			rdma_progress(me.ctx);
		raise(SIGKILL);
	}
	(void)rdma_alltoall(me.group, out, in, length); /* it may or may not have taken its part */
	EXPECT(rdma_barrier(me.group) == -1);
	me.group = rdma_group_shrink(old);
	EXPECT(me.group);
	rdma_group_free(old);
	for (int i = 0; i < me.size; i++)
		if (i != victim)
			me.member[n++] = me.member[i];
	me.size--;
	me.rank = rank - (rank > victim);
	EXPECT(rdma_group_size(me.group) == me.size && rdma_group_rank(me.group) == me.rank);
	EXPECT(me.member[me.rank] == me.number);
	sum_check(me.group, true);
}

static void (*const steps[])(void) = {step_ring,    step_bcast,  step_allreduce, step_alltoall,
				      step_subsets, step_window, step_kill};

/*
 * A program
 */
static void begin(void)
{
	me.ctx = rdma_init_options(suite_address(), 0, me.number == 0, &me.options);
	EXPECT(me.ctx);
	if (me.number == 0) {
		common->port = rdma_port(me.ctx);
		for (int i = 1; i < MEMBERS; i++)
			EXPECT(rdma_accept_peer(me.ctx) >= 0);
	} else {
		while (!common->port)
			usleep(1000);
		EXPECT(rdma_connect_peer(me.ctx, suite_address(), common->port) == 0);
	}
	EXPECT(!strcmp(rdma_transport(me.ctx, 0), getenv("RDMAD_GUEST_ADDR") ? "rdma" : "shm"));
	me.group = rdma_group_create(me.ctx);
	EXPECT(me.group);
	me.size = MEMBERS;
	me.rank = rdma_group_rank(me.group);
}

static void program(int number, unsigned long seed)
{
	int64_t numbers[MEMBERS], mine = number;

	alarm(PATIENCE_S);
	me.random = seed * 0x9e3779b97f4a7c15ull | 1;
	me.seed = seed;
	me.number = number;
	me.options.connect_timeout_ms = 1000 * PATIENCE_S;
	me.options.progress_thread = draw(4) == 0;
	me.options.no_poll = draw(2);
	me.options.require_rdma = getenv("RDMAD_GUEST_ADDR"); /* no other transport where the device is slow */
	begin();
	EXPECT(rdma_allgather(me.group, &mine, numbers, sizeof(mine)) == 0);
	for (int i = 0; i < MEMBERS; i++)
		me.member[i] = (int)numbers[i];
	for (me.step = 0; me.step < STEPS; me.step++) {
		common->step[number] = me.step;
		steps[draw(ARRAY_SIZE(steps))]();
	}
	rdma_group_free(me.group);
	rdma_cleanup(me.ctx);
	_exit(0);
}

static void sequence(unsigned long seed)
{
	int status, killed = 0;
	pid_t pid[MEMBERS];

	common->port = 0;
	for (int i = 0; i < MEMBERS; i++)
		common->step[i] = -1;
	fflush(NULL);
	for (int i = 0; i < MEMBERS; i++) {
		pid[i] = fork();
		ck_assert_int_ge(pid[i], 0);
		if (pid[i] == 0)
			program(i, seed);
	}
	for (int i = 0; i < MEMBERS; i++) {
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		ck_assert_msg((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
				      (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL),
			      "seed %lu: program %d ended with %#x", seed, i, (unsigned)status);
	}
	ck_assert_int_le(killed, MEMBERS - 2);
}

static unsigned long number_from(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 0) : otherwise;
}

START_TEST(random_sequences)
{
	unsigned long seed = number_from("RDMAD_CHAOS_SEED", (unsigned long)time_now() / 1000 % 1000000000);
	unsigned long count = number_from("RDMAD_CHAOS_SEQUENCES", suite_part(1000));

	printf("%lu sequences from seed %lu on\n", count, seed);
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(common, MAP_FAILED);
	for (unsigned long i = 0; i < count; i++)
		sequence(seed + i);
	munmap(common, sizeof(*common));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer chaos");
	TCase *tc = suite_case(suite, "sequences", NULL, NULL);

	tcase_set_timeout(tc, 0); /* each program has its own */
	tcase_add_test(tc, random_sequences);
	return suite_run(suite);
}
