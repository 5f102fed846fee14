/* bench.c: the common parts of the benchmarks: options, rounds, results. */
#include "ctl/ctl.h"

#include <stdlib.h>
#include <sys/resource.h>

struct bench_plan bench = {
	.depth = 64,
	.clients = 8,
	.threads = 1,
	.duration = TIME_S,
	.warmup = 200 * TIME_MS,
};

/*
 * Results: told as they come, one row each; one object for --json at the end.
 */
struct column {
	const char *title; /* in the table; NULL: only in JSON */
	int width;
	const char *member; /* in JSON */
	double (*value)(const struct bench_result *result);
	int decimals;
	bool whole;  /* of a whole measurement, not of an interval */
	bool blocks; /* of requests of blocks alone */
};

static double result_elapsed(const struct bench_result *r)
{
	return r->begin < r->end ? (double)(r->end - r->begin) / 1e9 : 0;
}

double bench_per_second(const struct bench_result *r)
{
	return result_elapsed(r) > 0 ? (double)r->operations / result_elapsed(r) : 0;
}

static double bytes_per_second(const struct bench_result *r)
{
	return bench_per_second(r) * (double)r->size;
}

static double mib_per_second(const struct bench_result *r)
{
	return bytes_per_second(r) / (double)MIB;
}

static double size_bytes(const struct bench_result *r)
{
	return (double)r->size;
}

static double result_operations(const struct bench_result *r)
{
	return (double)r->operations;
}

static double result_keys(const struct bench_result *r)
{
	return (double)r->keys;
}

static double result_depth(const struct bench_result *r)
{
	return (double)r->depth;
}

static double result_misses(const struct bench_result *r)
{
	return (double)r->misses;
}

static double result_blocks(const struct bench_result *r)
{
	return (double)r->blocks;
}

static double result_hits(const struct bench_result *r)
{
	return (double)r->hits;
}

static double result_unsent(const struct bench_result *r)
{
	return (double)r->unsent;
}

static double at_seconds(const struct bench_result *r)
{
	return (double)r->at / 1e9;
}

static double result_mismatches(const struct bench_result *r)
{
	return (double)r->mismatches;
}

static double cpu_user(const struct bench_result *r)
{
	return r->usage.user;
}

static double cpu_system(const struct bench_result *r)
{
	return r->usage.system;
}

static double percentile_us(const struct bench_result *r, double percent)
{
	return (double)histogram_percentile(&r->latency, percent) / 1e3;
}

static double us_min(const struct bench_result *r)
{
	return r->latency.count ? (double)r->latency.min / 1e3 : 0;
}

static double us_p50(const struct bench_result *r)
{
	return percentile_us(r, 50);
}

static double us_mean(const struct bench_result *r)
{
	return histogram_mean(&r->latency) / 1e3;
}

static double us_p99(const struct bench_result *r)
{
	return percentile_us(r, 99);
}

static double us_p99_9(const struct bench_result *r)
{
	return percentile_us(r, 99.9);
}

static double us_max(const struct bench_result *r)
{
	return (double)r->latency.max / 1e3;
}

static const struct column columns[] = {
	{"bytes", 9, "size_bytes", size_bytes, 0},
	{NULL, 0, "operations", result_operations},
	{NULL, 0, "elapsed_seconds", result_elapsed},
	{"ops/s", 11, "ops_per_second", bench_per_second, 0},
	{NULL, 0, "bytes_per_second", bytes_per_second},
	{"MiB/s", 9, NULL, mib_per_second, 1},
	{NULL, 0, "rtt_us_min", us_min},
	{"p50 us", 9, "rtt_us_p50", us_p50, 1},
	{NULL, 0, "rtt_us_mean", us_mean},
	{"p99 us", 9, "rtt_us_p99", us_p99, 1},
	{"p99.9 us", 9, "rtt_us_p99_9", us_p99_9, 1},
	{"max us", 10, "rtt_us_max", us_max, 1},
	{NULL, 0, "keys", result_keys, .whole = true},
	{NULL, 0, "depth", result_depth},
	{NULL, 0, "mismatches", result_mismatches, .whole = true},
	{NULL, 0, "misses", result_misses, .whole = true},
	{NULL, 0, "unsent", result_unsent, .whole = true},
	{NULL, 0, "blocks", result_blocks, .blocks = true},
	{NULL, 0, "hits", result_hits, .blocks = true},
	{NULL, 0, "at_seconds", at_seconds},
	{NULL, 0, "cpu_user_seconds", cpu_user, .whole = true},
	{NULL, 0, "cpu_system_seconds", cpu_system, .whole = true},
};

/* Columns that were not measured are left out, rather than 0. */
static bool is_measured(const struct column *column, const struct bench_result *result)
{
	return !(bench.no_latency && strncmp(column->member, "rtt_us", 6) == 0) &&
	       !(column->whole && (result->at || result->step)) && !(column->blocks && !result->blocks);
}

static json_t *results; /* under --json */
static json_t *slices;  /* of the result that comes next; NULL: none */

/* Everything that decides the figures and does not stand in the rows. */
void bench_print_head(const char *transport)
{
	char text[5][32];

	bench.transport = transport;
	printf("%s: transport %s, clients %llu, depth %llu, threads %llu%s\n", bench.server, transport,
	       (unsigned long long)bench.clients, (unsigned long long)bench.depth, (unsigned long long)bench.threads,
	       bench.no_verify ? ", not verified" : "");
	if (bench.rate)
		printf("open loop, %llu/s, latencies from the intended times", (unsigned long long)bench.rate);
	else
		printf("closed loop");
	if (bench.count)
		printf(", %llu operations", (unsigned long long)bench.count);
	else
		printf(", %s", units_format_time(bench.duration, text[0]));
	printf(" after %s of warm-up, poll %s", units_format_time(bench.warmup, text[1]),
	       !ctl.poll_given          ? "by default"
	       : ctl.poll == TIME_NEVER ? "always"
					: units_format_time(ctl.poll, text[2]));
	if (bench.keys)
		printf(", %llu keys of %llu bytes each%s%s", (unsigned long long)bench.keys,
		       (unsigned long long)bench.key_bytes, bench.ttl ? ", which expire after " : "",
		       bench.ttl ? units_format_time(bench.ttl, text[3]) : "");
	putchar('\n');
}

static void print_columns(const char *transport)
{
	if (bench.csv) {
		printf("op,way");
		for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
			if (columns[i].member && !columns[i].blocks)
				printf(",%s", columns[i].member);
	} else {
		bench_print_head(transport);
		printf("%-6s", "op");
		for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
			if (columns[i].title)
				printf(" %*s", columns[i].width, columns[i].title);
	}
	putchar('\n');
}

/* A slice of time begins with where it ends. */
static void print_row(const struct bench_result *result)
{
	if (result->at)
		printf("%5.1fs", (double)result->at / 1e9);
	else
		printf("%-6s", result->op);
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		if (!columns[i].title)
			continue;
		putchar(' ');
		if (bench.no_latency && strstr(columns[i].title, "us"))
			printf("%*s", columns[i].width, "-");
		else
			printf("%*.*f", columns[i].width, columns[i].decimals, columns[i].value(result));
	}
	putchar('\n');
}

static void print_row_csv(const struct bench_result *result)
{
	printf("%s,%s", result->op, result->way ? result->way : "");
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (columns[i].member && is_measured(&columns[i], result))
			printf(",%.9g", columns[i].value(result));
		else if (columns[i].member && !columns[i].blocks)
			putchar(',');
	putchar('\n');
}

static void print_result(const struct bench_result *result, const char *transport)
{
	static bool headed;

	bench.transport = transport;
	if (!headed)
		print_columns(transport);
	headed = true;
	if (bench.csv)
		print_row_csv(result);
	else
		print_row(result);
	ctl_flush();
}

json_t *bench_rate_json(const char *op, const char *way, uint64_t size, double ns)
{
	double rate = ns > 0 ? 1e9 / ns : 0;

	return json_pack("{s:s, s:s*, s:I, s:f, s:f, s:f}", "op", op, "way", way, "size_bytes", (json_int_t)size,
			 "time_us", ns / 1e3, "per_second", rate, "bytes_per_second", rate * (double)size);
}

json_t *bench_result_json(const struct bench_result *result)
{
	json_t *o = json_pack("{s:s, s:s*}", "op", result->op, "way", result->way);

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		const char *member = columns[i].member;
		double value;

		if (!member || !is_measured(&columns[i], result))
			continue;
		value = columns[i].value(result);
		/* Counts are whole numbers, in JSON too. */
		json_object_set_new(o, member,
				    value == (double)(json_int_t)value && !strstr(member, "_us_") &&
						    !strstr(member, "second")
					    ? json_integer((json_int_t)value)
					    : json_real(value));
	}
	return o;
}

void bench_report(const struct bench_result *result, const char *transport)
{
	if (!result->operations && !result->error)
		return; /* interrupted before it began */
	bench.transport = transport;
	if (ctl.json) {
		json_t *row = bench_result_json(result);

		if (slices)
			json_object_set_new(row, "intervals", slices);
		slices = NULL;
		json_array_append_new(results, row);
	} else {
		print_result(result, transport);
	}
	if (result->misses)
		ctl_say("bench: %s: %llu of %llu keys were not there: the store dropped them, or they expired",
			result->op, (unsigned long long)result->misses, (unsigned long long)result->operations);
	if (result->unsent)
		ctl_say("bench: %s: %llu requests of this rate were due and could not be sent: the server is slower",
			result->op, (unsigned long long)result->unsent);
}

void bench_report_slice(const struct bench_result *result, const char *transport)
{
	if (!ctl.json) {
		print_result(result, transport);
		return;
	}
	if (!slices)
		slices = json_array();
	json_array_append_new(slices, bench_result_json(result));
}

void bench_result_init(struct bench_result *result, const char *op)
{
	memset(result, 0, sizeof(*result));
	histogram_init(&result->latency);
	result->op = op;
	result->size = bench.size;
	result->depth = bench.depth;
	result->begin = TIME_NEVER;
}

static double timeval_seconds(struct timeval tv)
{
	return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

void ctl_usage_add(struct ctl_usage *usage, int sign)
{
	struct rusage now;

	getrusage(RUSAGE_SELF, &now);
	usage->user += sign * timeval_seconds(now.ru_utime);
	usage->system += sign * timeval_seconds(now.ru_stime);
}

void bench_result_merge(struct bench_result *into, const struct bench_result *from)
{
	into->operations += from->operations;
	into->mismatches += from->mismatches;
	into->misses += from->misses;
	into->unsent += from->unsent;
	into->blocks += from->blocks;
	into->hits += from->hits;
	into->begin = MIN(into->begin, from->begin);
	into->end = MAX(into->end, from->end);
	histogram_merge(&into->latency, &from->latency);
	if (!into->error && from->error) {
		into->error = from->error;
		memcpy(into->why, from->why, sizeof(into->why));
	}
}

void bench_result_fail(struct bench_result *result, int error, const char *why)
{
	if (result->error)
		return;
	result->error = error;
	snprintf(result->why, sizeof(result->why), "%s", why && *why ? why : strerror(-error));
}

/* Say what is wrong with a phase's result, if anything. An exit status. */
static int bench_judge(const struct bench_result *result)
{
	int rc;

	if (result->mismatches) {
		ctl_say("bench: %s of %llu bytes: %llu of %llu answers were not what was stored or sent", result->op,
			(unsigned long long)result->size, (unsigned long long)result->mismatches,
			(unsigned long long)result->operations);
		return CTL_FAILED;
	}
	if (!result->error || result->error == -EINTR)
		return CTL_OK;
	rc = ctl_fail(result->error, result->why, "bench: %s of %llu bytes", result->op,
		      (unsigned long long)result->size);
	/* A pair of our own that is gone is a failure, not an answer. */
	return rc == CTL_NOT_FOUND ? CTL_FAILED : rc;
}

/*
 * The driver: phases, each by all threads. The first runs in the caller, so that one thread needs no other.
 */
static void *thread_main(void *arg)
{
	struct bench_thread *thread = arg;

	thread->benchmark->run(thread);
	return NULL;
}

static struct bench_thread *thread_at(const struct bench_case *c, uint64_t i)
{
	return (struct bench_thread *)((char *)c->threads + i * c->thread_size);
}

void bench_share(const struct bench_case *c)
{
	uint64_t next = 0;

	for (uint64_t i = 0; i < bench.threads; i++) {
		struct bench_thread *thread = thread_at(c, i);

		thread->first = next;
		thread->clients = bench.clients / bench.threads + (i < bench.clients % bench.threads);
		next += thread->clients;
	}
}

/* Start the threads, and wait for all. 0 or -errno: not all could be started, and the others did the work. */
static int run_threads(const struct bench_case *c)
{
	uint64_t started = 1;
	int rc = 0;

	for (; started < bench.threads && rc == 0; started += rc == 0)
		rc = -pthread_create(&thread_at(c, started)->id, NULL, thread_main, thread_at(c, started));
	if (rc == 0)
		thread_main(thread_at(c, 0));
	for (uint64_t i = 1; i < started; i++)
		pthread_join(thread_at(c, i)->id, NULL);
	return rc;
}

int bench_phase(const struct bench_case *c, uint64_t duration, uint64_t count, bench_report_fn *report)
{
	struct bench_result *result = malloc(sizeof(*result)); /* too large for a stack */
	int rc;

	if (!result)
		return CTL_FAILED;
	bench_result_init(result, c->op);
	bench.measuring = report != NULL;
	for (uint64_t i = 0; i < bench.threads; i++) {
		bench_result_init(&thread_at(c, i)->result, c->op);
		thread_at(c, i)->benchmark = c;
		thread_at(c, i)->duration = count ? TIME_NEVER : duration;
	}
	for (uint64_t i = 0; i < bench.clients; i++)
		c->client_begin(i, count ? count / bench.clients + (i < count % bench.clients) : UINT64_MAX);
	if (c->begin)
		c->begin(result);
	ctl_usage_add(&result->usage, -1);
	rc = run_threads(c);
	ctl_usage_add(&result->usage, 1);
	for (uint64_t i = 0; i < bench.threads; i++)
		bench_result_merge(result, &thread_at(c, i)->result);
	if (rc != 0)
		bench_result_fail(result, rc, "cannot start a thread");
	if (c->end)
		c->end(result);
	if (report)
		report(result, c->transport);
	rc = bench_judge(result);
	free(result);
	return rc;
}

int bench_measure(const struct bench_case *c, bench_report_fn *report)
{
	int rc = bench.warmup ? bench_phase(c, bench.warmup, 0, NULL) : CTL_OK;

	return rc == CTL_OK && !ctl_interrupted() ? bench_phase(c, bench.duration, bench.count, report) : rc;
}

/*
 * Rounds: one for each size, until one fails or Ctrl-C.
 */
json_t *bench_summary(const char *what, json_t *rows)
{
	return json_pack("{s:s, s:s, s:s?, s:I, s:I, s:I, s:b, s:b, s:s, s:I, s:f, s:f, s:I, s:o}", "command", what,
			 "server", bench.server, "transport", bench.transport, "clients", (json_int_t)bench.clients,
			 "depth", (json_int_t)bench.depth, "threads", (json_int_t)bench.threads, "verified",
			 !bench.no_verify, "interrupted", ctl_interrupted(), "loop", bench.rate ? "open" : "closed",
			 "rate_per_second", (json_int_t)bench.rate, "duration_seconds",
			 bench.count ? 0 : (double)bench.duration / 1e9, "warmup_seconds", (double)bench.warmup / 1e9,
			 "key_bytes", (json_int_t)bench.key_bytes, "results", rows);
}

int bench_check_sizes(const char *text, uint64_t least, uint64_t most)
{
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(text, most, sizes, ARRAY_SIZE(sizes));
	char limit[32];

	for (int i = 0; i < n; i++)
		if (sizes[i] < least)
			n = -EINVAL;
	if (n < 0)
		ctl_say("--size %s: not a list of sizes from %llu to %s like 64,1K-64K", text,
			(unsigned long long)least, units_format_size(most, limit));
	return MIN(n, 0);
}

int bench_prepare(const struct ctl_arguments *arguments)
{
	struct address address;

	bench.server = arguments->count ? arguments->text[0] : ctl.host;
	if (address_parse(bench.server, &address) != 0)
		return ctl_usage_hint();
	if (bench.threads > bench.clients)
		return ctl_usage_error("%s: %llu threads for %llu clients; a client belongs to one thread",
				       ctl_command_name(), (unsigned long long)bench.threads,
				       (unsigned long long)bench.clients);
	ctl_catch_interrupt();
	return CTL_OK;
}

int bench_rounds(const struct ctl_arguments *arguments, const uint64_t *sizes, size_t n, int (*round)(void))
{
	int rc = bench_prepare(arguments);

	if (rc != 0)
		return rc;
	results = ctl.json ? json_array() : NULL;
	for (size_t i = 0; i < n && rc == CTL_OK && !ctl_interrupted(); i++) {
		bench.size = sizes[i];
		rc = round();
	}
	if (ctl.json)
		ctl_json_print(bench_summary(ctl_command_name(), results));
	if (rc == CTL_OK && ctl_interrupted())
		return CTL_INTERRUPTED;
	return rc;
}
