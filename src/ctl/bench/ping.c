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

struct ping_client {
	struct rdmad_ping *ping;
	uint64_t sent, received, quota;
};

static struct ping_client *ping_clients; /* of this round */

static int check_sizes(const char *text)
{
	return bench_check_sizes(text, 0, RDMAD_PING_SIZE_MAX);
}

static int client_send(struct ping_client *c)
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

static int client_receive(struct ping_client *c, struct bench_result *result)
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

/* Exchange messages by turns: one to and from each client, until the time is over or all is done. */
static void ping_run(struct bench_thread *thread)
{
	struct ping_client *first = &ping_clients[thread->first], *end = first + thread->clients;
	uint64_t now = time_now(), until = time_after(now, thread->duration);
	bool busy = true;
	int rc = 0;

	thread->result.begin = now;
	while (busy && rc == 0) {
		bool stopping = now >= until || ctl_interrupted();

		busy = false;
		for (struct ping_client *c = first; c < end && rc == 0 && !stopping; c++)
			rc = client_send(c);
		for (struct ping_client *c = first; c < end && rc == 0; c++) {
			if (c->sent == c->received)
				continue;
			rc = client_receive(c, &thread->result);
			busy = true;
		}
		now = time_now();
	}
	if (rc != 0)
		bench_result_fail(&thread->result, rc, rdmad_error());
	thread->result.end = now;
}

static void ping_client_begin(uint64_t client, uint64_t quota)
{
	ping_clients[client].sent = ping_clients[client].received = 0;
	ping_clients[client].quota = quota;
}

static int open_clients(void)
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
		int rc = rdmad_ping_open(bench.server, &options, &ping_clients[i].ping);

		if (rc != 0)
			return ctl_fail_open(rc, bench.server);
		if (ctl_interrupted())
			return CTL_INTERRUPTED;
	}
	return CTL_OK;
}

/* A connection has one size for life, so each round opens its own. */
static int round_of_size(void)
{
	struct bench_thread *threads = calloc(bench.threads, sizeof(*threads));
	struct bench_case c = {
		.op = "ping",
		.threads = threads,
		.thread_size = sizeof(*threads),
		.client_begin = ping_client_begin,
		.run = ping_run,
	};
	int rc = CTL_FAILED;

	ping_clients = calloc(bench.clients, sizeof(*ping_clients));
	if (ping_clients && threads) {
		rc = open_clients();
		if (rc == CTL_OK) {
			bench_share(&c);
			c.transport = rdmad_ping_transport(ping_clients[0].ping);
			rc = bench_measure(&c, bench_report);
		}
		for (uint64_t i = 0; i < bench.clients; i++)
			rdmad_ping_close(ping_clients[i].ping);
	}
	free(threads);
	free(ping_clients);
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
