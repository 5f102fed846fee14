/* check_peer_collective_far.c: collectives of real contexts: all members in one thread, in threads, and in processes of which one is killed. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/peer/collectives/peer_collective_cases.h"
#include "tests/suite.h"

#define SAYS(condition) ((condition) ? (void)0 : ck_abort_msg("%s: %s", #condition, rdma_get_error()))

/*
 * Members of one process.
 */
struct member {
	int rank;
	pthread_t thread;
	rdma_context *ctx;
};

static struct {
	int size, port;
	struct member member[CASE_MEMBERS];
	rdma_group *group[CASE_MEMBERS]; /* by rank */
	pthread_barrier_t barrier;
	void (*run)(rdma_group *group);
} world;

static void member_open(struct member *m)
{
	const rdma_options options = {.connect_timeout_ms = 600000, .heartbeat_ms = 60000};

	m->ctx = rdma_init_options(suite_address(), 0, m->rank == 0, &options);
	SAYS(m->ctx);
	if (m->rank == 0)
		world.port = rdma_port(m->ctx);
	pthread_barrier_wait(&world.barrier);
	for (int i = 1; i < world.size && m->rank == 0; i++)
		SAYS(rdma_accept_peer(m->ctx) >= 0);
	if (m->rank)
		SAYS(rdma_connect_peer(m->ctx, suite_address(), world.port) >= 0);
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	rdma_group *group;

	member_open(m);
	group = rdma_group_create(m->ctx);
	SAYS(group);
	world.group[rdma_group_rank(group)] = group;
	if (world.run)
		world.run(group);
	return NULL;
}

static void world_begin(int size, void (*run)(rdma_group *group))
{
	world.size = size;
	world.run = run;
	pthread_barrier_init(&world.barrier, NULL, size);
	for (int i = 0; i < size; i++) {
		world.member[i] = (struct member){.rank = i};
		ck_assert_int_eq(pthread_create(&world.member[i].thread, NULL, member_main, &world.member[i]), 0);
	}
	for (int i = 0; i < size; i++)
		pthread_join(world.member[i].thread, NULL);
}

static void world_end(void)
{
	for (int i = 0; i < world.size; i++)
		rdma_group_free(world.group[i]);
	for (int i = 0; i < world.size; i++)
		rdma_cleanup(world.member[i].ctx);
	pthread_barrier_destroy(&world.barrier);
}

/* The choice by size first, then each row of the table. */
static const char *algorithm_at(enum collective_kind kind, size_t at)
{
	return !at || algorithms[at - 1].kind != kind ? NULL : algorithms[at - 1].name;
}

START_TEST(one_thread)
{
	static const size_t sizes[] = {0, 7, 4096, 4097, 300 * 1024};
	struct trial trial = {.type = RDMA_DOUBLE, .op = RDMA_SUM};

	world_begin(_i, NULL);
	for (int kind = 0; kind < COLLECTIVES; kind++) {
		trial.kind = kind;
		for (size_t at = 0; at <= algorithms_count; at++) {
			trial.algorithm = algorithm_at(kind, at);
			if (at && !trial.algorithm)
				continue;
			for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
				trial.bytes = sizes[i];
				trial.salt++;
				trial.root = trial.salt % _i;
				trial.in_place = trial.salt % 2;
				trial_run(world.group, _i, &trial, NULL);
			}
		}
	}
	trial = (struct trial){.kind = COLLECTIVE_ALLREDUCE, .bytes = MIB + 40, .type = RDMA_INT64};
	trial_run(world.group, _i, &trial, NULL);
	world_end();
}
END_TEST

/*
 * A failure at one member.
 */
static void fails_for(rdma_group *group, const char *words)
{
	ck_assert_int_eq(rdma_barrier(group), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	ck_assert_msg(strstr(rdma_get_error(), words), "%s", rdma_get_error());
}

static void hear_of_it(rdma_group *group)
{
	while (list_empty(&group->ctx->aborts)) {
		rdma_progress(group->ctx);
		sched_yield();
	}
}

static void barrier_of(rdma_group **group, int size)
{
	rdma_request *request[CASE_MEMBERS];
	int64_t result;

	for (int i = 0; i < size; i++) {
		request[i] = rdma_ibarrier(group[i]);
		SAYS(request[i]);
	}
	for (int left = size; left;) {
		for (int i = 0; i < size; i++) {
			if (!request[i] || !rdma_test(request[i], &result))
				continue;
			SAYS(result == 0);
			request[i] = NULL;
			left--;
		}
	}
}

/* One has heard of it before it begins, the other one hears of it in the midst. They have no time of their own. */
START_TEST(one_gives_up)
{
	static const int both[] = {0, 1};
	rdma_group *sub[2];

	world_begin(3, NULL);
	world.group[0]->ctx->options.timeout_ms = 20;
	for (int i = 0; i < 3; i++)
		fails_for(world.group[0], "not all members have done their part in time; it waits for rank");
	hear_of_it(world.group[1]);
	for (int i = 0; i < 3; i++)
		for (int rank = 1; rank < 3; rank++)
			fails_for(world.group[rank], "rdma_barrier: rank 0 (");
	world.group[0]->ctx->options.timeout_ms = 0;
	barrier_of(world.group, 3);
	ck_assert(list_empty(&world.group[1]->ctx->aborts));

	/* Of a group that the other one has not made yet. */
	sub[0] = rdma_group_subset(world.group[0], both, 2);
	world.group[0]->ctx->options.timeout_ms = 20;
	fails_for(sub[0], "it waits for rank 1");
	hear_of_it(world.group[1]);
	sub[1] = rdma_group_subset(world.group[1], both, 2);
	fails_for(sub[1], "rdma_barrier: rank 0 (");
	barrier_of(sub, 2);

	/* A member frees the group with one under way. */
	SAYS(rdma_ibarrier(sub[0]));
	rdma_group_free(sub[0]);
	ck_assert_int_eq(rdma_barrier(sub[1]), -1);
	ck_assert_int_eq(rdma_get_errno(), ECANCELED);
	ck_assert_msg(strstr(rdma_get_error(), "its group was freed"), "%s", rdma_get_error());
	rdma_group_free(sub[1]);
	world_end();
}
END_TEST

/* Of what is slow, the others have received a part from each other. */
static void give_up_slow(rdma_group *group)
{
	char *data = calloc(4, MIB);

	ck_assert_ptr_nonnull(data);
	for (int rank = 0; rank < 3; rank++)
		SAYS(rank == group->rank || rdma_rate_limit(group->ctx, rdma_group_peer(group, rank), 1) == 0);
	SAYS(rdma_group_algorithm(group, "bcast", "chain") == 0);
	group->ctx->options.timeout_ms = group->rank ? 0 : 300;
	ck_assert_int_eq(rdma_bcast(group, data, 4 * MIB, 0), -1);
	ck_assert_msg(rdma_get_errno() == ETIMEDOUT, "%s", rdma_get_error());
	group->ctx->options.timeout_ms = 0;
	SAYS(rdma_barrier(group) == 0);
	free(data);
}

START_TEST(one_gives_up_what_is_slow)
{
	world_begin(3, give_up_slow);
	world_end();
}
END_TEST

/* Blocking calls, each member at its own pace. */
static void run_calls(rdma_group *group)
{
	int rank = rdma_group_rank(group), size = rdma_group_size(group);
	static const size_t counts[] = {1, 100, 1000, 50000};
	int64_t *mine = calloc(50000, sizeof(*mine)), *all = calloc(50000, sizeof(*all));

	for (int turn = 0; turn < 200; turn++) {
		size_t count = counts[turn % 4];

		for (size_t i = 0; i < count; i++)
			mine[i] = rank + turn + i;
		SAYS(rdma_allreduce(group, mine, all, count, RDMA_INT64, RDMA_SUM) == 0);
		for (size_t i = 0; i < count; i++) {
			if (all[i] != (int64_t)(size * (turn + i)) + size * (size - 1) / 2)
				ck_abort_msg("rank %d, turn %d: element %zu is %ld", rank, turn, i, (long)all[i]);
		}
		SAYS(rdma_bcast(group, mine, count * sizeof(*mine), turn % size) == 0);
		if (mine[count - 1] != (int64_t)(turn % size + turn + count - 1))
			ck_abort_msg("rank %d, turn %d: broadcast %ld", rank, turn, (long)mine[count - 1]);
		SAYS(rdma_barrier(group) == 0);
	}
	free(mine);
	free(all);
}

START_TEST(threads)
{
	world_begin(_i, run_calls);
	world_end();
}
END_TEST

/*
 * Processes.
 */
enum { PROCESSES = 4, VICTIM = 2, ENOUGH = 20 };

struct pipes {
	int port[2];     /* from rank 0 */
	int progress[2]; /* from the victim: its process, when it has done enough */
};

static int call_some(rdma_group *group, int turn, char *memory)
{
	size_t length = turn % 3 ? 100 : 200 * 1024;

	switch (turn % 5) {
	case 0:
		return rdma_bcast(group, memory, length, turn % PROCESSES);
	case 1:
		return rdma_allreduce(group, RDMA_IN_PLACE, memory, length, RDMA_BYTE, RDMA_XOR);
	case 2:
		return rdma_alltoall(group, RDMA_IN_PLACE, memory, length);
	case 3:
		return rdma_allgather(group, RDMA_IN_PLACE, memory, length);
	default:
		return rdma_barrier(group);
	}
}

/* The others go on until one fails, which must be for the victim's loss; the next fails at once. */
static int go_on(rdma_group *group, int rank, const struct pipes *pipes)
{
	char *memory = calloc(PROCESSES, 200 * 1024);
	pid_t self = getpid();
	int turn = 0;

	while (call_some(group, turn, memory) == 0) {
		if (rank == VICTIM && turn == ENOUGH && write(pipes->progress[1], &self, sizeof(self)) != sizeof(self))
			return 10;
		turn++;
	}
	free(memory);
	if (rdma_get_errno() != ECONNRESET || !strstr(rdma_get_error(), "rank 2")) {
		fprintf(stderr, "rank %d: %s\n", rank, rdma_get_error());
		return 11;
	}
	if (rdma_barrier(group) == 0 || !rdma_group_lost(group, VICTIM))
		return 12;
	group = rdma_group_shrink(group);
	if (!group || rdma_group_size(group) != PROCESSES - 1 || rdma_barrier(group)) {
		fprintf(stderr, "rank %d: %s\n", rank, rdma_get_error());
		return 13;
	}
	return 0;
}

static int process_main(int number, const struct pipes *pipes)
{
	const rdma_options options = {.connect_timeout_ms = 600000, .heartbeat_ms = 20000};
	rdma_context *ctx = rdma_init_options(suite_address(), 0, number == 0, &options);
	int port = ctx && !number ? rdma_port(ctx) : 0, rc;
	rdma_group *group;

	if (!ctx)
		return 1;
	for (int i = 1; i < PROCESSES && !number; i++) {
		if (write(pipes->port[1], &port, sizeof(port)) != sizeof(port))
			return 2;
	}
	for (int i = 1; i < PROCESSES && !number; i++) {
		if (rdma_accept_peer(ctx) < 0)
			return 3;
	}
	if (number && (read(pipes->port[0], &port, sizeof(port)) != sizeof(port) ||
		       rdma_connect_peer(ctx, suite_address(), port) < 0))
		return 4;
	group = rdma_group_create(ctx);
	if (!group)
		return 5;
	rc = go_on(group, rdma_group_rank(group), pipes);
	rdma_cleanup(ctx);
	return rc;
}

START_TEST(killed)
{
	pid_t pid[PROCESSES], victim;
	struct pipes pipes;
	int status;

	ck_assert_int_eq(pipe(pipes.port) | pipe(pipes.progress), 0);
	for (int i = 0; i < PROCESSES; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(process_main(i, &pipes));
	}
	ck_assert_int_eq(read(pipes.progress[0], &victim, sizeof(victim)), sizeof(victim));
	for (int i = 0; i < _i * 1000; i++)
		sched_yield(); /* so that it is in another step each time */
	ck_assert_int_eq(kill(victim, SIGKILL), 0);
	for (int i = 0; i < PROCESSES; i++) {
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_msg(pid[i] == victim || (WIFEXITED(status) && !WEXITSTATUS(status)), "process %d: status %#x",
			      i, status);
	}
	for (int i = 0; i < 2; i++) {
		close(pipes.port[i]);
		close(pipes.progress[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer_collective_far");
	TCase *tc = suite_case(suite, "contexts", NULL, NULL);
	TCase *processes = suite_case(suite, "processes", NULL, NULL); /* short enough for the guest */

	tcase_add_loop_test(tc, one_thread, 1, 6);
	tcase_add_loop_test(tc, threads, 2, 5);
	tcase_add_test(tc, one_gives_up);
	tcase_add_test(tc, one_gives_up_what_is_slow);
	tcase_add_loop_test(processes, killed, 0, 5);
	return suite_run(suite);
}
