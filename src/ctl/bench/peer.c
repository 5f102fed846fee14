/*
 * peer.c: latency, bandwidth and collectives of rdma_lib. As a rank of rdmarun it is one of a group; alone it is rank 0
 * and starts the others on this machine.
 */
#include "ctl/ctl.h"
#include "ctl/peer.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE_MOST (64 * MIB)
#define RANKS_MOST 64u

static const char *sizes_text = "64,4K,64K,1M", *works_text, *algorithms_text, *address = "127.0.0.1";
static uint64_t ranks = 4, duration = 500 * TIME_MS;

static int check_sizes(const char *text)
{
	return bench_check_sizes(text, 0, SIZE_MOST);
}

/* Whether a list separated by commas has `name`; NULL: it has all. */
static bool list_has(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (strcspn(at, ",") == length && memcmp(at, name, length) == 0)
			return true;
	return !list;
}

static int check_works(const char *text)
{
	for (const char *at = text;; at += strcspn(at, ",") + 1) {
		size_t length = strcspn(at, ",");
		const struct peer_work *work = peer_works;

		while (work->name && (strlen(work->name) != length || memcmp(work->name, at, length) != 0))
			work++;
		if (!work->name) {
			ctl_say("--work %s: there is no \"%.*s\"; there are latency, bandwidth, write-latency, write, "
				"read-latency, read, fetch-add, exchange, and the names of the collectives",
				text, (int)length, at);
			return -EINVAL;
		}
		if (!at[length])
			return 0;
	}
}

static const struct ctl_option bench_options[] = {
	{"size", 's', CTL_CHECKED, &sizes_text, "SIZES",
	 "bytes of a message, or of a rank's part: a list of sizes and ranges that double; default 64,4K,64K,1M",
	 .check = check_sizes},
	{"work", 'w', CTL_CHECKED, &works_text, "WORKS", "what to measure, e.g. latency,allreduce; default: everything",
	 .check = check_works,
	 .choices = "latency bandwidth write-latency write read-latency read fetch-add barrier bcast gather scatter "
		    "allgather reduce allreduce alltoall exchange"},
	{"ranks", 'n', CTL_NUMBER, &ranks, "N", "alone: processes on this machine; default 4", .min = 2,
	 .max = RANKS_MOST},
	{"address", 'a', CTL_CHECKED, &address, "ADDRESS",
	 "alone: where rank 0 listens: HOST, tcp://HOST, rdma://HOST or unix:///PATH; default 127.0.0.1",
	 .check = ctl_peer_check_address},
	{"duration", 'D', CTL_TIME, &duration, "TIME", "of each measurement, at least; default 500ms", .min = TIME_MS,
	 .max = 3600 * TIME_S},
	{"algorithm", 0, CTL_TEXT, &algorithms_text, "COLLECTIVE=NAME",
	 "the algorithm of a collective, separated by commas; default: by size"},
	{NULL},
};

/*
 * Measuring, on each rank alike. -1: the library has said why.
 */

/* Measure `count` operations, in nanoseconds: of a pair those of rank 0, else the mean of all ranks, each without the
 * barriers between two operations. */
static int run_work(struct peer_bench *b, const struct peer_work *work, uint64_t count, double *ns)
{
	uint64_t own = 0;
	double mine, all = 0;

	if (rdma_barrier(b->group) < 0)
		return -1;
	if (work->kind == PEER_WORK_PAIR) {
		uint64_t begin = time_now();

		if (work->run(b, count) < 0)
			return -1;
		*ns = (double)(time_now() - begin);
		return 0;
	}
	for (uint64_t i = 0; i < count; i++) {
		uint64_t begin = time_now();

		if (work->run(b, 1) < 0)
			return -1;
		own += time_now() - begin;
		if (rdma_barrier(b->group) < 0)
			return -1;
	}
	mine = (double)own;
	if (rdma_reduce(b->group, &mine, &all, 1, RDMA_DOUBLE, RDMA_SUM, 0) < 0)
		return -1;
	*ns = all / b->ranks;
	return 0;
}

/* The decisions of rank 0. */
struct plan {
	uint64_t count, last;
};

/* Run ever more operations, until they take an eighth of the time, and then as many as take all of it. The runs before
 * the last warm up. */
static int measure_time(struct peer_bench *b, const struct peer_work *work, double *ns)
{
	struct plan plan = {.count = PEER_STREAM_WINDOW};

	for (;;) {
		uint64_t begin = time_now(), whole;

		if (run_work(b, work, plan.count, ns) < 0)
			return -1;
		*ns /= (double)plan.count;
		if (plan.last)
			break;
		whole = MAX(time_now() - begin, 1ull);
		plan.last = whole >= duration / 8;
		plan.count =
			plan.last ? (uint64_t)((double)plan.count * (double)duration / (double)whole) : 4 * plan.count;
		plan.count = plan.count / PEER_STREAM_WINDOW * PEER_STREAM_WINDOW + PEER_STREAM_WINDOW;
		if (rdma_bcast(b->group, &plan, sizeof(plan), 0) < 0)
			return -1;
	}
	*ns *= work->share;
	return 0;
}

/*
 * Output, of rank 0
 */
static json_t *rows; /* with --json */

static void print_row(const struct peer_bench *b, const struct peer_work *work, double ns)
{
	static bool headed;
	double rate = ns > 0 ? 1e9 / ns : 0;
	char text[32];

	if (b->rank != 0)
		return;
	if (ctl.json) {
		json_t *o = bench_rate_json(work->name, NULL, b->size, ns);

		if (b->round.count)
			json_object_set_new(o, "time_us_p50",
					    json_real((double)histogram_percentile(&b->round, 50) / 2e3));
		json_array_append_new(rows, o);
		return;
	}
	if (!headed)
		printf("%-14s %8s %12s %12s %10s\n", "what", "size", "us", "1/s", "MiB/s");
	headed = true;
	printf("%-14s %8s %12.3f %12.0f %10.1f\n", work->name, work->sized ? units_format_size(b->size, text) : "-",
	       ns / 1e3, rate, rate * (double)b->size / (double)MIB);
	ctl_flush();
}

static int measure_size(struct peer_bench *b, const struct peer_work *work, size_t size)
{
	double ns = 0;
	int rc;

	b->size = size;
	histogram_init(&b->round);
	b->sent = calloc((size_t)b->ranks, MAX(size, (size_t)1));
	b->received = calloc((size_t)b->ranks, MAX(size, (size_t)1));
	if (!b->sent || !b->received) {
		free(b->sent);
		free(b->received);
		return ctl_fail(-ENOMEM, strerror(ENOMEM), "%s", ctl_command_name());
	}
	rc = work->remote ? peer_bench_window(b) : 0;
	if (rc == 0)
		rc = measure_time(b, work, &ns);
	if (rc == 0)
		print_row(b, work, ns);
	else
		rc = ctl_peer_fail(work->name);
	if (work->remote)
		peer_bench_window_close(b);
	free(b->sent);
	free(b->received);
	return rc;
}

static int measure_work(struct peer_bench *b, const struct peer_work *work, const uint64_t *sizes, int n)
{
	int rc = CTL_OK;

	if (!work->sized)
		return measure_size(b, work, 0);
	for (int i = 0; i < n && rc == CTL_OK; i++)
		if (sizes[i] >= work->least)
			rc = measure_size(b, work, sizes[i]);
	return rc;
}

/* "bcast=chain,allreduce=ring" */
static int name_algorithms(rdma_group *group)
{
	char *list = algorithms_text ? strdup(algorithms_text) : NULL, *state = NULL;
	int rc = CTL_OK;

	for (char *word = list ? strtok_r(list, ",", &state) : NULL; word && rc == CTL_OK;
	     word = strtok_r(NULL, ",", &state)) {
		char *name = strchr(word, '=');

		if (name)
			*name++ = '\0';
		if (rdma_group_algorithm(group, word, name) < 0)
			rc = ctl_peer_fail(word);
	}
	free(list);
	return rc;
}

static int measure_all(rdma_context *ctx, rdma_group *group, bool star)
{
	struct peer_bench b = {.ctx = ctx, .group = group};
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(sizes_text, SIZE_MOST, sizes, ARRAY_SIZE(sizes)), rc;

	b.rank = rdma_group_rank(group);
	b.ranks = rdma_group_size(group);
	if (b.ranks < 2)
		return ctl_usage_error("%s: one rank has nobody to talk to", ctl_command_name());
	if (b.rank == 0 && !(b.transport = rdma_transport(ctx, rdma_group_peer(group, 1))))
		return ctl_peer_fail(NULL);
	if (b.rank == 0 && !ctl.json && !ctl.quiet)
		ctl_say("%d ranks, %s", b.ranks, b.transport);
	rows = ctl.json && b.rank == 0 ? json_array() : NULL;
	rc = name_algorithms(group);
	for (const struct peer_work *work = peer_works; work->name && rc == CTL_OK; work++)
		if (list_has(works_text, work->name) && (star || work->kind != PEER_WORK_STAR))
			rc = measure_work(&b, work, sizes, n);
	if (rc == CTL_OK && rows)
		rc = ctl_json_print(json_pack("{s:s, s:i, s:s, s:O}", "command", ctl_command_name(), "ranks", b.ranks,
					      "transport", b.transport, "results", rows));
	json_decref(rows);
	return rc;
}

static int finish_group(rdma_context *ctx, rdma_group *group, bool star)
{
	int rc = group ? measure_all(ctx, group, star) : ctl_peer_fail(NULL);

	rdma_group_free(group);
	rdma_cleanup(ctx);
	return rc;
}

/*
 * Alone
 */

/* Be a rank in a process of its own, which reads from rank 0 where rank 0 listens. */
static int child_main(int from)
{
	rdma_options options;
	rdma_context *ctx;
	int32_t port;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(from, &port, sizeof(port)) != (ssize_t)sizeof(port))
		return CTL_FAILED; /* rank 0 has said why */
	close(from);
	ctl_peer_options(&options);
	ctx = rdma_init_options(NULL, 0, false, &options);
	if (!ctx || rdma_connect_peer(ctx, address, port) < 0) {
		rdma_cleanup(ctx);
		return ctl_peer_fail(address);
	}
	return finish_group(ctx, rdma_group_create(ctx), true);
}

/* Start the other ranks; each is killed when this process ends. */
static int start_children(int from, int to, pid_t *child)
{
	for (uint64_t i = 1; i < ranks; i++) {
		child[i] = fork();
		if (child[i] == 0) {
			close(to);
			_exit(child_main(from));
		}
		if (child[i] < 0)
			return ctl_fail(-errno, strerror(errno), "%s: cannot start rank %d", ctl_command_name(),
					(int)i);
	}
	return CTL_OK;
}

static int run_rank0(int to)
{
	rdma_options options;
	rdma_context *ctx;
	int32_t port;

	ctl_peer_options(&options);
	if (!options.timeout_ms)
		options.timeout_ms = ctl_answer_limit() / TIME_MS; /* a rank that cannot start never comes */
	ctx = rdma_init_options(address, 0, true, &options);
	if (!ctx)
		return ctl_peer_fail(address);
	port = rdma_port(ctx);
	for (uint64_t i = 1; i < ranks; i++)
		if (write(to, &port, sizeof(port)) < 0)
			return ctl_fail(-errno, strerror(errno), "%s", ctl_command_name());
	close(to);
	for (uint64_t i = 1; i < ranks; i++) {
		if (rdma_accept_peer(ctx) < 0) {
			ctl_peer_fail(address);
			rdma_cleanup(ctx);
			return CTL_FAILED;
		}
	}
	return finish_group(ctx, rdma_group_create(ctx), true);
}

static int run_alone(void)
{
	pid_t child[RANKS_MOST] = {0};
	int fd[2], rc;

	if (pipe(fd) != 0)
		return ctl_fail(-errno, strerror(errno), "%s", ctl_command_name());
	ctl_flush();
	rc = start_children(fd[0], fd[1], child);
	close(fd[0]);
	if (rc == CTL_OK)
		rc = run_rank0(fd[1]);
	for (uint64_t i = 1; i < ranks && child[i] > 0; i++) {
		int status = 0;

		if (rc != CTL_OK)
			kill(child[i], SIGKILL); /* it may wait for a rank that has ended */
		waitpid(child[i], &status, 0);
		if (rc == CTL_OK && status)
			rc = CTL_FAILED;
	}
	return rc;
}

static int command_bench(const struct ctl_arguments *arguments)
{
	rdma_options options;
	rdma_context *ctx;

	if (!rdma_launcher())
		return run_alone();
	ctl_peer_options(&options); /* a rank of rdmarun or another launcher */
	options.max_peers = RDMACTL_PEERS_MAX;
	ctx = rdma_init_options(NULL, 0, false, &options);
	return finish_group(ctx, ctx ? rdma_group_run(ctx) : NULL, false);
}

const struct ctl_command ctl_bench_peer_commands[] = {
	{"bench peer", command_bench, "", "measure messages and collectives between equals", bench_options, 0, 0},
	{NULL},
};
