/*
 * launched.c: a program that launchers start, for check_peer_launchers.sh. launched [WORD...]: what it does with the
 * group that it is in:
 *
 *   tcp           connects by TCP alone
 *   two           makes a second group, at the same time as the first one; its context ends first
 *   fork          a child makes and ends a context of its own, and forgets that of its parent
 *   crash         rank 1 ends itself by a signal
 *   late          rank 1 does not come
 *   quiet         rank 0 alone says how it went
 */
#include <rdma_lib.h>

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool has(char **words, const char *word)
{
	for (; *words; words++)
		if (strcmp(*words, word) == 0)
			return true;
	return false;
}

static int failed(const char *what)
{
	fprintf(stderr, "launched: %s: %s\n", what, rdma_get_error());
	return 1;
}

static int environment_rank(void)
{
	static const char *const names[] = {"PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return -1;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static rdma_context *context(char **words)
{
	rdma_options options = {.max_peers = 512, .heartbeat_ms = 60000};

	/* an address of one's own is no socket in a directory, nor shared memory with the others */
	return rdma_init_options(has(words, "tcp") ? "tcp://127.0.0.1" : NULL, 0, false, &options);
}

/* Each has come. */
static int work(rdma_group *group)
{
	int64_t mine = rdma_group_rank(group) + 1, sum = 0, size = rdma_group_size(group);

	if (rdma_allreduce(group, &mine, &sum, 1, RDMA_INT64, RDMA_SUM) != 0)
		return failed("allreduce");
	return sum == size * (size + 1) / 2 ? 0 : 1;
}

int main(int argc, char **argv)
{
	char **words = argv + (argc > 0);
	const char *launcher = rdma_launcher();
	rdma_context *ctx = context(words), *other = NULL;
	double begin = now_ms(), formed;
	rdma_group *group, *second = NULL;
	const char *transport = "nothing";
	int rank, rc;

	if (!ctx)
		return failed("context");
	if (has(words, "late") && environment_rank() == 1) {
		pause();
		return 1;
	}
	group = rdma_group_run(ctx);
	formed = now_ms() - begin;
	if (!group) {
		failed("group");
		rdma_cleanup(ctx);
		return 1;
	}
	rank = rdma_group_rank(group);
	if (rdma_group_size(group) > 1) /* as long as the others are there */
		transport = rdma_transport(ctx, rdma_group_peer(group, rank ? 0 : 1));
	rc = work(group);
	if (rc == 0 && has(words, "two")) {
		other = context(words);
		second = other ? rdma_group_run(other) : NULL;
		rc = second ? work(second) || work(group) : failed("second group");
		rdma_group_free(second);
		rdma_cleanup(other);
		rc = rc || work(group);
	}
	if (has(words, "fork") && fork() == 0) {
		other = context(words);
		rdma_cleanup(other);
		_exit(other == NULL);
	} else if (has(words, "fork")) {
		int status = 1;

		wait(&status);
		rc = rc || status || work(group);
	}
	if (has(words, "crash") && rank == 1)
		raise(SIGKILL);
	if (has(words, "crash")) {
		rc = work(group) == 0; /* the launcher may end this rank first */
		fprintf(stderr, "launched: rank %d goes on: %s\n", rank, rdma_get_error());
	}
	if (rc == 0 && (!has(words, "quiet") || rank == 0))
		printf("rank %d of %d by %s over %s in %.0f ms\n", rank, rdma_group_size(group), launcher, transport,
		       formed);
	rdma_group_free(group);
	rdma_cleanup(ctx);
	return rc;
}
