/* ping.c: echoes by many clients, each with its own agent in the server. */
#include "ctl/ctl.h"
#include "rdmad/ping.h"
#include "wire/wire.h"

#include <stdlib.h>

static const char *sizes_text = "64";
static uint64_t depth = 1, clients = 1;

static int check_sizes(const char *text);

static const struct ctl_option bench_options[] = {
	{"size", 's', CTL_CHECKED, &sizes_text, "SIZES",
	 "message sizes: a list of sizes and ranges that double, e.g. 64,1K-64K; default 64", .check = check_sizes},
	{"depth", 'd', CTL_NUMBER, &depth, "N", "messages in flight of each client; default 1", .min = 1,
	 .max = WIRE_CREDITS_MAX - 1},
	{"clients", 'c', CTL_NUMBER, &clients, "N", "connections; default 1", .min = 1, .max = 1024},
	{"threads", 'T', CTL_NUMBER, &bench.threads, "N", "threads that share the connections; default 1", .min = 1,
	 .max = 256},
	{"duration", 'D', CTL_TIME, &bench.duration, "TIME", "of each measurement; default 1s", .min = TIME_MS,
	 .max = 86400 * TIME_S},
	{"count", 'n', CTL_NUMBER, &bench.count, "N", "round trips of each measurement, instead of a time", .min = 1,
	 .max = UINT32_MAX},
	{"warmup", 'w', CTL_TIME, &bench.warmup, "TIME", "run this long before measuring; default 200ms",
	 .max = 86400 * TIME_S},
	{"no-verify", 0, CTL_FLAG, &bench.no_verify, NULL, "do not compare what comes back"},
	{NULL},
};

struct bench_ping_client {
	struct rdmad_ping *ping;
	uint64_t sent, received, quota;
};

struct bench_ping_worker {
	struct bench_ping_client *client;
	unsigned clients;
	uint64_t duration; /* TIME_NEVER: by quota */
	struct bench_result result;
};

static int check_sizes(const char *text)
{
	return bench_check_sizes(text, 0, RDMAD_PING_SIZE_MAX);
}

static int client_send(struct bench_ping_client *c)
{
	uint64_t limit = MIN(c->received + bench.depth, c->quota);

	while (c->sent < limit) {
		int rc = rdmad_ping_send(c->ping);

		if (rc == -EAGAIN && c->sent > c->received)
			return 0;
		if (rc != 0)
			return rc;
		c->sent++;
	}
	return 0;
}

static int client_receive(struct bench_ping_client *c, struct bench_result *result)
{
	uint64_t until = time_now() + ctl_answer_limit(), rtt = 0;
	int rc;

	do {
		rc = rdmad_ping_receive(c->ping, &rtt);
		if (rc == -ETIMEDOUT && ctl_interrupted())
			return -EINTR;
	} while (rc == -ETIMEDOUT && time_now() < until);
	if (rc != 0 && rc != -EBADMSG)
		return rc;
	result->mismatches += rc != 0;
	result->operations++;
	c->received++;
	histogram_add(&result->latency, rtt);
	return 0;
}

/* One message to and from each client. True: something is still to come. */
static bool worker_turn(struct bench_ping_worker *w, bool stopping)
{
	bool busy = false;
	int rc = 0;

	for (unsigned i = 0; i < w->clients && rc == 0 && !stopping; i++)
		rc = client_send(&w->client[i]);
	for (unsigned i = 0; i < w->clients && rc == 0; i++) {
		struct bench_ping_client *c = &w->client[i];

		if (c->sent == c->received)
			continue;
		rc = client_receive(c, &w->result);
		busy = true;
	}
	if (rc != 0)
		bench_result_fail(&w->result, rc, rdmad_error());
	return busy && rc == 0;
}

static void worker_run(void *arg)
{
	struct bench_ping_worker *w = arg;
	uint64_t now = time_now(), until;

	w->result.begin = now;
	until = time_after(now, w->duration);
	while (worker_turn(w, now >= until || ctl_interrupted()))
		now = time_now();
	w->result.end = time_now();
}

static void run_phase(struct bench_ping_client *client, struct bench_ping_worker *worker, uint64_t duration,
		      uint64_t count, struct bench_result *result)
{
	int rc;

	bench_result_init(result, "ping");
	for (uint64_t i = 0; i < bench.clients; i++) {
		client[i].sent = client[i].received = 0;
		client[i].quota = count ? count / bench.clients + (i < count % bench.clients) : UINT64_MAX;
	}
	for (uint64_t i = 0; i < bench.threads; i++) {
		bench_result_init(&worker[i].result, "ping");
		worker[i].duration = count ? TIME_NEVER : duration;
	}
	ctl_usage_add(&result->usage, -1);
	rc = bench_threads((unsigned)bench.threads, worker_run, worker, sizeof(worker[0]));
	ctl_usage_add(&result->usage, 1);
	for (uint64_t i = 0; i < bench.threads; i++)
		bench_result_merge(result, &worker[i].result);
	if (rc != 0)
		bench_result_fail(result, rc, "cannot start a thread");
}

static int open_all(struct bench_ping_client *client)
{
	struct rdmad_ping_options options = {
		.size = (uint32_t)bench.size,
		.depth = (uint32_t)bench.depth,
		.verify = !bench.no_verify,
	};

	ctl_library_options(&options.common);
	options.common.timeout_us = MIN(ctl.timeout, CTL_SLICE) / TIME_US;
	options.common.credits = (uint32_t)MAX(bench.depth + 1, 32u);
	for (uint64_t i = 0; i < bench.clients; i++) {
		int rc = rdmad_ping_open(bench.server, &options, &client[i].ping);

		if (rc != 0)
			return ctl_fail_open(rc, bench.server);
		if (ctl_interrupted())
			return CTL_INTERRUPTED;
	}
	return CTL_OK;
}

static void share_out(struct bench_ping_client *client, struct bench_ping_worker *worker)
{
	for (uint64_t i = 0; i < bench.threads; i++) {
		worker[i].client = client;
		worker[i].clients = (unsigned)(bench.clients / bench.threads + (i < bench.clients % bench.threads));
		client += worker[i].clients;
	}
}

static int measure(struct bench_ping_client *client, struct bench_ping_worker *worker, struct bench_result *result)
{
	int rc = CTL_OK;

	if (bench.warmup) {
		run_phase(client, worker, bench.warmup, 0, result);
		rc = bench_judge(result);
	}
	if (rc != CTL_OK || ctl_interrupted())
		return rc;
	run_phase(client, worker, bench.duration, bench.count, result);
	bench_report(result, rdmad_ping_transport(client[0].ping));
	return bench_judge(result);
}

/* A connection has one size for life, so each round opens its own. */
static int round_of_size(void)
{
	struct bench_ping_client *client = calloc(bench.clients, sizeof(*client));
	struct bench_ping_worker *worker = calloc(bench.threads, sizeof(*worker));
	struct bench_result *result = malloc(sizeof(*result));
	int rc = CTL_FAILED;

	if (client && worker && result) {
		share_out(client, worker);
		rc = open_all(client);
		if (rc == CTL_OK)
			rc = measure(client, worker, result);
		for (uint64_t i = 0; i < bench.clients; i++)
			rdmad_ping_close(client[i].ping);
	}
	free(result);
	free(worker);
	free(client);
	return rc;
}

static int command_bench(const struct ctl_arguments *arguments)
{
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(sizes_text, RDMAD_PING_SIZE_MAX, sizes, ARRAY_SIZE(sizes));

	bench.depth = depth;
	bench.clients = clients;
	return bench_rounds(arguments, sizes, (size_t)n, round_of_size);
}

const struct ctl_command ctl_bench_ping_commands[] = {
	{"bench ping", command_bench, "[HOST]", "measure echoes by many clients", bench_options, 0, 1},
	{NULL},
};
