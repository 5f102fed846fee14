/*
 * channel.c: round trips, streams and typed calls over a channel, by turns with the same work without one. The other
 * end is a child process, or an rdmactl elsewhere.
 */
#include "ctl/bench/channel.h"
#include "ctl/ctl.h"
#include "rdmad/channel_types.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE_MOST (64 * MIB)
#define ROUNDS_MOST 999
#define FROM_MEMCPY 4096 /* over shm, streams of messages from this size on are measured against memcpy, too */

static const char *sizes_text = "64,64K";
static uint64_t capacity = MIB, rounds = 5, duration = TIME_S;
static bool serving, connecting, alone, flushing;

static int check_sizes(const char *text)
{
	return bench_check_sizes(text, 1, SIZE_MOST);
}

static const struct ctl_option bench_options[] = {
	{"size", 's', CTL_CHECKED, &sizes_text, "SIZES",
	 "message sizes: a list of sizes and ranges that double; default 64,64K", .check = check_sizes},
	{"capacity", 0, CTL_SIZE, &capacity, "SIZE", "of each of the two rings, at least 4K; default 1M", .min = 4096,
	 .max = RDMAD_CHANNEL_SIZE_MAX},
	{"duration", 'D', CTL_TIME, &duration, "TIME", "of each measurement; default 1s", .min = 10 * TIME_MS,
	 .max = 86400 * TIME_S},
	{"rounds", 'r', CTL_NUMBER, &rounds, "N", "by turns with what is beside it, the median counts; default 5",
	 .min = 1, .max = ROUNDS_MOST},
	{"flush", 0, CTL_FLAG, &flushing, NULL,
	 "send each message of a stream, rather than as many as the channel likes"},
	{"alone", 0, CTL_FLAG, &alone, NULL, "measure the channel, and nothing beside it"},
	{"serve", 0, CTL_FLAG, &serving, NULL, "be the other end of one that runs with --connect"},
	{"connect", 0, CTL_FLAG, &connecting, NULL,
	 "the other end is one that runs with --serve; measures nothing beside it"},
	{NULL},
};

/*
 * The second side
 */

/* Carry out the orders of the first side until the channel is closed. */
static int run_orders(struct bench_side *side)
{
	struct bench_order order;
	int rc;

	do {
		uint32_t most = side->raw.memory ? BENCH_WORKS - 1 : BENCH_CALL;

		rc = rdmad_channel_get_value(side->channel, &bench_order_type, &order, RDMAD_CHANNEL_FOREVER);
		if (rc == 0 && (order.work > most || order.size > SIZE_MOST || order.size == 0))
			rc = -EPROTO;
		if (rc == 0)
			rc = rdmad_channel_put(side->channel, &(uint8_t){1}, 1, side->limit_us);
		if (rc == 0)
			rc = rdmad_channel_flush(side->channel, side->limit_us);
		if (rc == 0)
			rc = bench_works[order.work].run(side, &order);
	} while (rc == 0);
	return rc == -EPIPE ? 0 : rc;
}

static void channel_options(struct rdmad_channel_options *options)
{
	*options = (struct rdmad_channel_options){0};
	ctl_library_options(&options->common);
}

static int serve_first_side(struct rdmad_channel_listener *listener, struct bench_side *side)
{
	int rc;

	do
		rc = rdmad_channel_accept(listener, CTL_SLICE_US, &side->channel);
	while (rc == -ETIMEDOUT && !ctl_interrupted());
	if (rc == 0)
		rc = run_orders(side);
	rdmad_channel_close(side->channel);
	return rc;
}

/* The message of the child when it listens, or cannot: the URL, or why. */
struct child_word {
	int error;
	char text[600];
};

/* Be the second side in a process of its own, so that both sides have a processor each. */
static void child_main(const char *url, int tell, struct bench_side *side)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel_options options;
	struct child_word word = {0};
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* the first process decides */
	channel_options(&options);
	word.error = rdmad_channel_listen(url, capacity, &options, &listener);
	snprintf(word.text, sizeof(word.text), "%s", word.error ? rdmad_error() : rdmad_channel_listener_url(listener));
	if (write(tell, &word, sizeof(word)) < 0 || word.error)
		_exit(CTL_FAILED);
	close(tell);
	rc = serve_first_side(listener, side);
	rc = rc == 0 ? CTL_OK : ctl_fail_channel(rc, NULL, word.text);
	rdmad_channel_listener_close(listener);
	_exit(rc);
}

/* *url becomes what the child listens on. An exit status. */
static int child_start(struct bench_side *side, char *url, size_t size, pid_t *child)
{
	pid_t parent = getpid();
	struct child_word word;
	int tell[2];
	ssize_t n;

	if (pipe(tell) != 0)
		return ctl_fail(-errno, NULL, "cannot start the other end");
	*child = fork();
	if (*child < 0) {
		int rc = -errno;

		close(tell[0]);
		close(tell[1]);
		return ctl_fail(rc, NULL, "cannot start the other end");
	}
	if (*child == 0) {
		close(tell[0]);
		bench_raw_part(&side->raw, parent, false);
		side->first = false;
		child_main(url, tell[1], side);
	}
	close(tell[1]);
	bench_raw_part(&side->raw, *child, true);
	n = read(tell[0], &word, sizeof(word));
	close(tell[0]);
	if (n != (ssize_t)sizeof(word))
		return ctl_fail(-EPIPE, "it has ended", "cannot start the other end");
	if (word.error)
		return ctl_fail_channel(word.error, word.text, url);
	snprintf(url, size, "%s", word.text);
	return CTL_OK;
}

/*
 * The first side: what is measured, beside what.
 */
static int run_order(struct bench_side *side, const struct bench_order *order, uint64_t *ns)
{
	uint8_t ready;
	int rc = rdmad_channel_put_value(side->channel, &bench_order_type, order, side->limit_us);

	if (rc == 0)
		rc = rdmad_channel_get(side->channel, &ready, 1, side->limit_us);
	if (rc == 0) {
		uint64_t begin = time_now();

		rc = bench_works[order->work].run(side, order);
		*ns = time_now() - begin;
	}
	return rc != 0 ? rc : ctl_interrupted() ? -EINTR : 0;
}

/* Run ever more operations, until they take long enough to know how many take `slice`. */
static int calibrate_order(struct bench_side *side, struct bench_order *order, uint64_t slice)
{
	uint64_t ns = 0;
	int rc = 0;

	for (order->count = 1; rc == 0; order->count *= 4) {
		rc = run_order(side, order, &ns);
		if (ns >= slice / 8)
			break;
	}
	order->count = (uint64_t)((double)order->count * (double)slice / (double)MAX(ns, 1ull)) + 1;
	return rc;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Measure orders[0], by turns with orders[1], unless that is BENCH_WORKS: the medians of an operation's time. */
static int measure_orders(struct bench_side *side, struct bench_order orders[2], double ns[2])
{
	unsigned kinds = orders[1].work == BENCH_WORKS ? 1 : 2;
	double each[2][ROUNDS_MOST];
	int rc = 0;

	for (unsigned k = 0; rc == 0 && k < kinds; k++)
		rc = calibrate_order(side, &orders[k], duration / rounds);
	for (uint64_t i = 0; rc == 0 && i < rounds; i++) {
		for (unsigned k = 0; rc == 0 && k < kinds; k++) {
			unsigned which = kinds == 2 ? (k + (unsigned)i) % 2 : 0; /* the first one alternates */
			uint64_t took = 0;

			rc = run_order(side, &orders[which], &took);
			each[which][i] = (double)took / (double)orders[which].count;
		}
	}
	for (unsigned k = 0; k < 2; k++) {
		ns[k] = 0;
		if (rc != 0 || k >= kinds)
			continue;
		qsort(each[k], rounds, sizeof(each[k][0]), by_value);
		ns[k] = (each[k][(rounds - 1) / 2] + each[k][rounds / 2]) / 2;
	}
	return rc;
}

/* Choose the works without a channel that an order is compared with, by the transport, or the sockets that introduced
 * both sides: how many, of which the first is BENCH_WORKS where there is none. The smallest messages are compared with
 * words. Bytes that stay in their place are not compared with copied ones. */
static unsigned works_beside(const struct rdmad_channel_info *info, const struct bench_order *order, uint32_t beside[2])
{
	bool none = alone || connecting;

	beside[0] = order->work == BENCH_CALL ? BENCH_PINGPONG : BENCH_WORKS;
	beside[1] = BENCH_ENCODING;
	if (order->work == BENCH_CALL || none || order->size > capacity)
		return order->work == BENCH_CALL && !none ? 2 : 1;
	if (info->sockets)
		beside[0] = order->work == BENCH_PINGPONG ? BENCH_ECHO : BENCH_SEND;
	if (info->sockets || !info->memory)
		return 1;
	beside[1] = BENCH_RING;
	if (order->work == BENCH_PINGPONG)
		beside[0] = order->size <= CACHE_LINE ? BENCH_WORDS : BENCH_WORKS;
	else if (order->size < FROM_MEMCPY)
		beside[0] = BENCH_RING;
	else if (!order->in_place)
		beside[0] = BENCH_COPY;
	return beside[0] == BENCH_COPY ? 2 : 1;
}

static int measure_one(struct bench_side *side, const struct bench_order *order, uint32_t beside,
		       struct bench_channel_result *result)
{
	struct bench_order orders[2] = {*order, {.work = beside, .size = order->size}};
	bool calls = order->work == BENCH_CALL;
	double ns[2];
	int rc = measure_orders(side, orders, ns);

	*result = (struct bench_channel_result){
		.op = bench_works[order->work].name,
		.way = calls             ? "typed"
		       : order->in_place ? "in place"
					 : "copied",
		.beside = beside == BENCH_PINGPONG ? "round trip"
			  : beside == BENCH_WORKS  ? NULL
						   : bench_works[beside].name,
		.size = calls ? BENCH_CALL_SIZE : order->size,
		.ns = ns[0],
		.beside_ns = ns[1],
	};
	return rc;
}

/*
 * The command
 */
struct results {
	struct bench_channel_result each[6 * BENCH_SIZES_MAX + 2];
	size_t n;
};

/* Measure one order beside each work that it can be compared with. */
static int measure_work(struct bench_side *side, const struct rdmad_channel_info *info, const struct bench_order *order,
			struct results *results)
{
	uint32_t beside[2];
	unsigned count = works_beside(info, order, beside);
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < count; i++) {
		rc = measure_one(side, order, beside[i], &results->each[results->n]);
		results->n += rc == 0;
	}
	return rc;
}

static int measure_all(struct bench_side *side, const char *url)
{
	struct results results = {.n = 0};
	uint64_t sizes[BENCH_SIZES_MAX];
	int count = ctl_sizes_parse(sizes_text, SIZE_MOST, sizes, ARRAY_SIZE(sizes)), rc = 0, status;
	struct rdmad_channel_info info;

	rdmad_channel_info(side->channel, &info);
	ctl_say_transport(url, info.transport);
	for (int i = 0; rc == 0 && i < count; i++)
		for (unsigned k = 0; rc == 0 && k < 4; k++) {
			const struct bench_order order = {.work = k % 2 ? BENCH_STREAM : BENCH_PINGPONG,
							  .in_place = k >= 2,
							  .flush = flushing,
							  .size = sizes[i]};

			if (k < 2 || sizes[i] <= capacity)
				rc = measure_work(side, &info, &order, &results);
		}
	if (rc == 0)
		rc = measure_work(side, &info, &(struct bench_order){.work = BENCH_CALL, .size = 64}, &results);
	status = bench_channel_print(url, info.transport, capacity, results.each, results.n);
	if (rc != 0 && rc != -EINTR)
		return ctl_fail_channel(rc, rc == -EBADMSG ? "what came is not what was sent" : NULL, url);
	return rc == -EINTR ? CTL_INTERRUPTED : status;
}

static int bench_from_here(struct bench_side *side, const char *url)
{
	struct rdmad_channel_options options;
	int rc;

	channel_options(&options);
	rc = rdmad_channel_open(url, capacity, &options, &side->channel);
	if (rc != 0)
		return ctl_fail_channel(rc, NULL, url);
	rc = measure_all(side, url);
	rdmad_channel_close(side->channel);
	return rc;
}

static int bench_with_child(struct bench_side *side, char *url, size_t size)
{
	pid_t child = -1;
	int rc = bench_raw_open(&side->raw, capacity, strstr(url, ":///") != NULL), status;

	status = rc == 0 ? child_start(side, url, size, &child) : ctl_fail(rc, NULL, "cannot start the other end");
	if (status == CTL_OK)
		status = bench_from_here(side, url);
	if (child > 0 && status != CTL_OK)
		kill(child, SIGKILL); /* it may wait for a side that has ended */
	if (child > 0)
		waitpid(child, NULL, 0);
	bench_raw_close(&side->raw);
	return status;
}

static int bench_serve(struct bench_side *side, const char *url)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel_options options;
	int rc;

	channel_options(&options);
	rc = rdmad_channel_listen(url, capacity, &options, &listener);
	if (rc == 0) {
		ctl_say("listening on %s", rdmad_channel_listener_url(listener));
		rc = serve_first_side(listener, side);
		rdmad_channel_listener_close(listener);
	}
	if (ctl_interrupted())
		return CTL_INTERRUPTED;
	return rc == 0 ? CTL_OK : ctl_fail_channel(rc, NULL, url);
}

static int command_bench(const struct ctl_arguments *arguments)
{
	struct bench_side side = {.raw.fd = {-1, -1}, .first = !serving, .limit_us = ctl_answer_limit() / TIME_US};
	char url[600];
	int rc;

	if (serving && connecting)
		return ctl_usage_error("--serve and --connect are of different ends");
	if ((serving || connecting) && !arguments->count)
		return ctl_usage_error("--serve and --connect need a URL that both ends have");
	side.buffer = aligned_alloc(CACHE_LINE, SIZE_MOST);
	if (!side.buffer)
		return ctl_fail(-ENOMEM, NULL, "%s", ctl_command_name());
	ctl_catch_interrupt();
	if (arguments->count)
		snprintf(url, sizeof(url), "%s", arguments->text[0]);
	else
		snprintf(url, sizeof(url), "shm://rdmactl-bench-%d", (int)getpid());
	memset(side.buffer, 1, SIZE_MOST); /* memory of its own, not one page of zeros */
	rc = serving      ? bench_serve(&side, url)
	     : connecting ? bench_from_here(&side, url)
			  : bench_with_child(&side, url, sizeof(url));
	free(side.buffer);
	return rc;
}

const struct ctl_command ctl_bench_channel_commands[] = {
	{"bench channel", command_bench, "[URL]", "measure round trips, streams and calls over a channel",
	 bench_options, 0, 1},
	{NULL},
};
