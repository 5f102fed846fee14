/*
 * bench_channel.c: round trips, streams and typed calls over a channel, by turns with the same work without one. The other end is
 * a child process, or an rdmactl elsewhere.
 */
#include "ctl/bench_channel.h"
#include "ctl/ctl.h"
#include "rdmad/channel_types.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE_MOST (64 * MIB)
#define ROUNDS_MOST 999
#define CALLS 1000       /* that are not answered, before one that is */
#define FROM_MEMCPY 4096 /* over shm, streams of messages from this size on are measured against memcpy */

static const char *sizes_text = "64,64K";
static uint64_t capacity = MIB, rounds = 5, duration = TIME_S;
static bool serving, connecting, alone, flushing;

static int check_sizes(const char *text)
{
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(text, SIZE_MOST, sizes, ARRAY_SIZE(sizes));

	if (n < 0)
		ctl_say("--size %s: not a list of sizes up to 64M like 64,1K-64K", text);
	return MIN(n, 0);
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

/* One of the two processes. */
struct side {
	struct rdmad_channel *channel;
	struct bench_raw raw;
	uint8_t *buffer;
	bool first; /* it says what comes next */
};

/*
 * What goes through the channel, typed.
 */
static const struct rdmad_field order_fields[] = {
	RDMAD_FIELD(struct bench_order, work, &rdmad_type_u32),
	RDMAD_FIELD(struct bench_order, in_place, &rdmad_type_bool),
	RDMAD_FIELD(struct bench_order, flush, &rdmad_type_bool),
	RDMAD_FIELD(struct bench_order, size, &rdmad_type_u64),
	RDMAD_FIELD(struct bench_order, count, &rdmad_type_u64),
};
static const struct rdmad_type order_type = RDMAD_TYPE_STRUCT(struct bench_order, order_fields);

/* As small as a remoted call is. */
struct call {
	uint64_t stream, address;
	uint32_t function, argument;
};

static const struct rdmad_field call_fields[] = {
	RDMAD_FIELD(struct call, function, &rdmad_type_u32),
	RDMAD_FIELD(struct call, stream, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct call, address, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct call, argument, &rdmad_type_u32),
};
static const struct rdmad_type call_type = RDMAD_TYPE_STRUCT(struct call, call_fields);

/*
 * The works. Each message has its number at its beginning, where there is room for it.
 */
static uint64_t limit_us(void)
{
	return ctl_answer_limit() / TIME_US;
}

static inline int put_message(struct side *side, const struct bench_order *order, uint64_t number)
{
	void *place = side->buffer;
	int rc = order->in_place ? rdmad_channel_reserve(side->channel, order->size, limit_us(), &place) : 0;

	if (rc != 0)
		return rc;
	if (order->size >= sizeof(number))
		memcpy(place, &number, sizeof(number));
	return order->in_place ? rdmad_channel_commit(side->channel, order->size)
			       : rdmad_channel_put(side->channel, place, order->size, limit_us());
}

static inline int get_message(struct side *side, const struct bench_order *order, uint64_t expected)
{
	const void *place = side->buffer;
	uint64_t number = expected;
	size_t available;
	int rc = order->in_place ? rdmad_channel_view(side->channel, order->size, limit_us(), &place, &available)
				 : rdmad_channel_get(side->channel, side->buffer, order->size, limit_us());

	if (rc != 0)
		return rc;
	if (order->size >= sizeof(number))
		memcpy(&number, place, sizeof(number));
	if (order->in_place)
		rc = rdmad_channel_consume(side->channel, order->size);
	return rc == 0 && number != expected ? -EBADMSG : rc;
}

static int work_pingpong(struct side *side, const struct bench_order *order)
{
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		rc = side->first ? put_message(side, order, i) : get_message(side, order, i);
		if (rc == 0 && side->first)
			rc = rdmad_channel_flush(side->channel, limit_us());
		if (rc == 0)
			rc = side->first ? get_message(side, order, i) : put_message(side, order, i);
		if (rc == 0 && !side->first)
			rc = rdmad_channel_flush(side->channel, limit_us());
	}
	return rc;
}

/* It is over when the other side says that all is there. */
static int work_stream(struct side *side, const struct bench_order *order)
{
	uint8_t over = 1;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		rc = side->first ? put_message(side, order, i) : get_message(side, order, i);
		if (rc == 0 && order->flush && side->first)
			rc = rdmad_channel_flush(side->channel, limit_us());
	}
	if (rc == 0 && side->first)
		return rdmad_channel_get(side->channel, &over, 1, limit_us());
	if (rc == 0)
		rc = rdmad_channel_put(side->channel, &over, 1, limit_us());
	return rc != 0 ? rc : rdmad_channel_flush(side->channel, limit_us());
}

static int call_first(struct side *side)
{
	struct call call = {.stream = 1, .address = 0x7f0000000000, .function = 7};
	uint32_t answer;

	for (call.argument = 0; call.argument <= CALLS; call.argument++) {
		int rc = rdmad_channel_put_value(side->channel, &call_type, &call, limit_us());

		if (rc != 0)
			return rc;
	}
	return rdmad_channel_get_value(side->channel, &rdmad_type_cuda_error, &answer, limit_us());
}

static int call_second(struct side *side)
{
	struct call call;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i <= CALLS; i++) {
		rc = rdmad_channel_get_value(side->channel, &call_type, &call, limit_us());
		if (rc == 0 && call.argument != i)
			rc = -EBADMSG;
	}
	if (rc == 0)
		rc = rdmad_channel_put_value(side->channel, &rdmad_type_cuda_error, &(uint32_t){0}, limit_us());
	return rc != 0 ? rc : rdmad_channel_flush(side->channel, limit_us());
}

static int work_calls(struct side *side, const struct bench_order *order)
{
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++)
		rc = side->first ? call_first(side) : call_second(side);
	return rc;
}

static int work_words(struct side *side, const struct bench_order *order)
{
	return bench_raw_words(&side->raw, order);
}

static int work_ring(struct side *side, const struct bench_order *order)
{
	return bench_raw_ring(&side->raw, order, side->buffer);
}

static int work_copy(struct side *side, const struct bench_order *order)
{
	return bench_raw_copy(&side->raw, order, side->buffer);
}

static int work_echo(struct side *side, const struct bench_order *order)
{
	return bench_raw_echo(&side->raw, order, side->buffer);
}

static int work_send(struct side *side, const struct bench_order *order)
{
	return bench_raw_send(&side->raw, order, side->buffer);
}

enum { PINGPONG, STREAM, CALL, WORDS, RING, COPY, ECHO, SEND, WORKS };

static const struct {
	const char *name;
	int (*run)(struct side *side, const struct bench_order *order);
} works[WORKS] = {
	[PINGPONG] = {"pingpong", work_pingpong}, [STREAM] = {"stream", work_stream},  [CALL] = {"calls", work_calls},
	[WORDS] = {"two words", work_words},      [RING] = {"bare ring", work_ring},   [COPY] = {"memcpy", work_copy},
	[ECHO] = {"polled socket", work_echo},    [SEND] = {"socket loop", work_send},
};

/*
 * The second side: does what it is told until the channel is closed.
 */
static int take_orders(struct side *side)
{
	struct bench_order order;
	int rc;

	do {
		uint32_t most = side->raw.memory ? WORKS - 1 : CALL;

		rc = rdmad_channel_get_value(side->channel, &order_type, &order, RDMAD_CHANNEL_FOREVER);
		if (rc == 0 && (order.work > most || order.size > SIZE_MOST || order.size == 0))
			rc = -EPROTO;
		if (rc == 0)
			rc = rdmad_channel_put(side->channel, &(uint8_t){1}, 1, limit_us());
		if (rc == 0)
			rc = rdmad_channel_flush(side->channel, limit_us());
		if (rc == 0)
			rc = works[order.work].run(side, &order);
	} while (rc == 0);
	return rc == -EPIPE ? 0 : rc;
}

static void channel_options(struct rdmad_channel_options *options)
{
	*options = (struct rdmad_channel_options){0};
	ctl_library_options(&options->common);
}

static int serve(const struct rdmad_channel_listener *listener, struct side *side)
{
	int rc;

	do
		rc = rdmad_channel_accept((struct rdmad_channel_listener *)listener, CTL_SLICE_US, &side->channel);
	while (rc == -ETIMEDOUT && !ctl_interrupted());
	if (rc == 0)
		rc = take_orders(side);
	rdmad_channel_close(side->channel);
	return rc;
}

/* A process of its own: what it does in the channel and without it, it does on a processor of its own. */
static void child_main(const char *url, int tell, struct side *side)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel_options options;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* the first process decides */
	channel_options(&options);
	if (rdmad_channel_listen(url, capacity, &options, &listener) != 0) {
		ctl_say("%s", rdmad_error());
		_exit(CTL_FAILED);
	}
	url = rdmad_channel_listener_url(listener);
	if (write(tell, url, strlen(url) + 1) < 0)
		_exit(CTL_FAILED);
	close(tell);
	rc = serve(listener, side);
	_exit(rc == 0 ? CTL_OK : ctl_fail_channel(rc, NULL, url));
}

/* *url becomes what the child listens on. */
static int child_start(struct side *side, char *url, size_t size, pid_t *child)
{
	pid_t parent = getpid();
	int tell[2];
	ssize_t n;

	if (pipe(tell) != 0)
		return -errno;
	*child = fork();
	if (*child < 0) {
		int rc = -errno;

		close(tell[0]);
		close(tell[1]);
		return rc;
	}
	if (*child == 0) {
		close(tell[0]);
		bench_raw_part(&side->raw, parent, false);
		side->first = false;
		child_main(url, tell[1], side);
	}
	close(tell[1]);
	bench_raw_part(&side->raw, *child, true);
	n = read(tell[0], url, size - 1);
	close(tell[0]);
	url[MAX(n, 0)] = '\0';
	return n > 0 ? 0 : -ECONNREFUSED; /* it has said why */
}

/*
 * The first side: what is measured, beside what.
 */
struct result {
	const char *op, *way, *beside;
	uint64_t size;
	double ns, beside_ns; /* of a message, a round trip, or all calls; 0: there is nothing beside it */
};

static int run_order(struct side *side, const struct bench_order *order, uint64_t *ns)
{
	uint8_t ready;
	int rc = rdmad_channel_put_value(side->channel, &order_type, order, limit_us());

	if (rc == 0)
		rc = rdmad_channel_get(side->channel, &ready, 1, limit_us());
	if (rc == 0) {
		uint64_t begin = time_now();

		rc = works[order->work].run(side, order);
		*ns = time_now() - begin;
	}
	return rc != 0 ? rc : ctl_interrupted() ? -EINTR : 0;
}

/* Ever more of it, until it takes long enough to know how many are `slice`. */
static int calibrate(struct side *side, struct bench_order *order, uint64_t slice)
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

static double median(double *values, uint64_t n)
{
	qsort(values, n, sizeof(values[0]), by_value);
	return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* orders[1].work WORKS: nothing is beside it. */
static int measure(struct side *side, struct bench_order orders[2], double ns[2])
{
	unsigned kinds = orders[1].work == WORKS ? 1 : 2;
	double each[2][ROUNDS_MOST];
	int rc = 0;

	for (unsigned k = 0; rc == 0 && k < kinds; k++)
		rc = calibrate(side, &orders[k], duration / rounds);
	for (uint64_t i = 0; rc == 0 && i < rounds; i++) {
		for (unsigned k = 0; rc == 0 && k < kinds; k++) {
			unsigned which = kinds == 2 ? (k + (unsigned)i) % 2 : 0; /* who is first alternates */
			uint64_t took = 0;

			rc = run_order(side, &orders[which], &took);
			each[which][i] = (double)took / (double)orders[which].count;
		}
	}
	for (unsigned k = 0; k < 2; k++)
		ns[k] = rc == 0 && k < kinds ? median(each[k], rounds) : 0;
	return rc;
}

/* What the same is without a channel, by the transport; WORKS: nothing. Words are what the smallest messages are beside, and
 * bytes that stay in their place are none that could be copied. */
static uint32_t work_beside(const char *transport, const struct bench_order *order)
{
	bool sockets = strcmp(transport, "tcp") == 0 || strcmp(transport, "unix") == 0;

	if (order->work == CALL)
		return PINGPONG;
	if (alone || connecting || order->size > capacity)
		return WORKS;
	if (sockets)
		return order->work == PINGPONG ? ECHO : SEND;
	if (strcmp(transport, "shm") != 0)
		return WORKS;
	if (order->work == PINGPONG)
		return order->size <= CACHE_LINE ? WORDS : WORKS;
	return order->size < FROM_MEMCPY ? RING : order->in_place ? WORKS : COPY;
}

static int measure_one(struct side *side, const char *transport, uint32_t work, bool in_place, uint64_t size,
		       struct result *result)
{
	struct bench_order orders[2] = {{.work = work, .in_place = in_place, .flush = flushing, .size = size},
					{.size = size}};
	uint32_t beside = orders[1].work = work_beside(transport, &orders[0]);
	double ns[2];
	int rc = measure(side, orders, ns);

	*result = (struct result){
		.op = works[work].name,
		.way = work == CALL ? "typed"
		       : in_place   ? "in place"
				    : "copied",
		.beside = work == CALL      ? "round trip"
			  : beside == WORKS ? NULL
					    : works[beside].name,
		.size = work == CALL ? (uint64_t)rdmad_type_length(&call_type, &(struct call){0}) : size,
		.ns = ns[0],
		.beside_ns = ns[1],
	};
	return rc;
}

/*
 * Output
 */

/* Of times for what is waited for, else of rates. */
static double ratio(const struct result *r)
{
	bool stream = strcmp(r->op, "stream") == 0;

	return r->ns <= 0 || r->beside_ns <= 0 ? 0 : stream ? r->beside_ns / r->ns : r->ns / r->beside_ns;
}

static double per_second(const struct result *r)
{
	return r->ns > 0 ? 1e9 / r->ns : 0;
}

static json_t *result_json(const struct result *r)
{
	json_t *o = json_pack("{s:s, s:s, s:I, s:f, s:f, s:f}", "op", r->op, "way", r->way, "size_bytes",
			      (json_int_t)r->size, "time_us", r->ns / 1e3, "per_second", per_second(r),
			      "bytes_per_second", per_second(r) * (double)r->size);

	if (r->beside) {
		json_object_set_new(o, "beside", json_string(r->beside));
		json_object_set_new(o, "beside_time_us", json_real(r->beside_ns / 1e3));
		json_object_set_new(o, "ratio", json_real(ratio(r)));
	}
	return o;
}

static void add_row(struct ctl_table *table, const struct result *r)
{
	char text[32];

	ctl_table_cell(table, "%s", r->op);
	ctl_table_cell(table, "%s", r->way);
	ctl_table_cell(table, "%s", units_format_size(r->size, text));
	ctl_table_cell(table, "%.3f", r->ns / 1e3);
	ctl_table_cell(table, "%.0f", per_second(r));
	ctl_table_cell(table, "%.1f", per_second(r) * (double)r->size / (double)MIB);
	if (r->beside) {
		ctl_table_cell(table, "%s", r->beside);
		ctl_table_cell(table, "%.3f", r->beside_ns / 1e3);
		ctl_table_cell(table, "%.2f", ratio(r));
		return;
	}
	for (int i = 0; i < 3; i++)
		ctl_table_cell(table, "%s", "");
}

static void print_table(const struct result *results, size_t n)
{
	static const char *const titles[] = {"what", "way", "size", "us", "1/s", "MiB/s", "beside", "its us", "ratio"};
	struct ctl_table table;

	ctl_table_init(&table);
	for (size_t i = 0; i < ARRAY_SIZE(titles); i++)
		ctl_table_column(&table, titles[i], i >= 2 && i != 6);
	for (size_t i = 0; i < n; i++)
		add_row(&table, &results[i]);
	ctl_table_print(stdout, &table, 0);
	ctl_table_destroy(&table);
}

static int print_results(const char *url, const char *transport, const struct result *results, size_t n)
{
	json_t *o, *list = json_array();

	if (!ctl.json) {
		print_table(results, n);
		json_decref(list);
		return CTL_OK;
	}
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, result_json(&results[i]));
	o = json_pack("{s:s, s:s, s:s, s:I, s:b, s:o}", "command", ctl_command_name(), "url", url, "transport",
		      transport, "capacity_bytes", (json_int_t)capacity, "interrupted", ctl_interrupted(), "results",
		      list);
	return ctl_json_print(o);
}

/*
 * The command
 */
static int measure_all(struct side *side, const char *url)
{
	struct result results[4 * BENCH_SIZES_MAX + 1];
	uint64_t sizes[BENCH_SIZES_MAX];
	int count = ctl_sizes_parse(sizes_text, SIZE_MOST, sizes, ARRAY_SIZE(sizes)), rc = 0, status;
	struct rdmad_channel_info info;
	size_t n = 0;

	rdmad_channel_info(side->channel, &info);
	ctl_say_transport(url, info.transport);
	for (int i = 0; rc == 0 && i < count; i++)
		for (unsigned k = 0; rc == 0 && k < 4; k++)
			if (k < 2 || sizes[i] <= capacity)
				rc = measure_one(side, info.transport, k % 2 ? STREAM : PINGPONG, k >= 2, sizes[i],
						 &results[n++]);
	if (rc == 0)
		rc = measure_one(side, info.transport, CALL, false, 64, &results[n++]);
	n -= rc != 0; /* the last one was not measured */
	status = print_results(url, info.transport, results, n);
	if (rc != 0 && rc != -EINTR)
		return ctl_fail_channel(rc, rc == -EBADMSG ? "what came is not what was sent" : NULL, url);
	return rc == -EINTR ? CTL_INTERRUPTED : status;
}

static int bench_from_here(struct side *side, const char *url)
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

static int bench_with_child(struct side *side, char *url, size_t size)
{
	pid_t child = -1;
	int rc = bench_raw_open(&side->raw, capacity, strncmp(url, "unix:", 5) == 0 ? "unix" : "tcp"), status;

	if (rc == 0)
		rc = child_start(side, url, size, &child);
	status = rc == 0               ? bench_from_here(side, url)
		 : rc == -ECONNREFUSED ? CTL_FAILED
				       : ctl_fail(rc, NULL, "cannot start the other end");
	if (child > 0 && status != CTL_OK)
		kill(child, SIGKILL); /* it may wait for what does not come any more */
	if (child > 0)
		waitpid(child, NULL, 0);
	bench_raw_close(&side->raw);
	return status;
}

static int bench_serve(struct side *side, const char *url)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel_options options;
	int rc;

	channel_options(&options);
	rc = rdmad_channel_listen(url, capacity, &options, &listener);
	if (rc == 0) {
		ctl_say("listening on %s", rdmad_channel_listener_url(listener));
		rc = serve(listener, side);
		rdmad_channel_listener_close(listener);
	}
	if (ctl_interrupted())
		return CTL_INTERRUPTED;
	return rc == 0 ? CTL_OK : ctl_fail_channel(rc, NULL, url);
}

static int command_bench(const struct ctl_arguments *arguments)
{
	struct side side = {.raw.fd = {-1, -1}, .first = !serving};
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
