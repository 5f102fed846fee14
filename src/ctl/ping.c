/* ping.c: round trips to rdmad and back, like ping(8) with -i, as fast as they go without. */
#include "ctl/ctl.h"
#include "rdmad/ping.h"
#include "wire/wire.h"

#include <time.h>

#define COUNT_DEFAULT 1000

static uint64_t count, size = 64, interval = TIME_NEVER, depth = 1;
static bool verify;

static const struct ctl_option ping_options[] = {
	{"count", 'c', CTL_NUMBER, &count, "N", "round trips; default 1000, with -i until interrupted", .min = 1,
	 .max = UINT32_MAX},
	{"size", 's', CTL_SIZE, &size, "SIZE", "bytes of each message; default 64", .max = RDMAD_PING_SIZE_MAX},
	{"interval", 'i', CTL_TIME, &interval, "TIME", "one at a time, this far apart, a line for each",
	 .max = 86400 * TIME_S},
	{"verify", 'v', CTL_FLAG, &verify, NULL, "send changing data and compare what comes back"},
	{"depth", 'd', CTL_NUMBER, &depth, "N", "most in flight; default 1", .min = 1, .max = WIRE_CREDITS_MAX - 1},
	{NULL},
};

struct run {
	const char *server;
	struct rdmad_ping *ping;
	struct histogram rtt;
	uint64_t sent, received, bad;
	uint64_t begin, end;
	struct ctl_usage usage;
	int error; /* what ended it early */
};

/* Receive the next pong; one that differs counts as a round trip. -EINTR, -ETIMEDOUT or the library's error. */
static int run_receive(struct run *run, uint64_t *rtt)
{
	uint64_t until = time_now() + ctl_answer_limit();
	int rc;

	do {
		rc = rdmad_ping_receive(run->ping, rtt);
		if (rc == 0 || rc == -EBADMSG) {
			run->received++;
			run->bad += rc != 0;
			histogram_add(&run->rtt, *rtt);
			return 0;
		}
		if (rc == -ETIMEDOUT && ctl_interrupted())
			return -EINTR;
	} while (rc == -ETIMEDOUT && time_now() < until);
	return rc;
}

/* Send until `depth` are in flight, or `wanted` were sent in all. */
static int run_send(struct run *run, uint64_t wanted)
{
	while (run->sent < wanted && run->sent - run->received < depth && !ctl_interrupted()) {
		int rc = rdmad_ping_send(run->ping);

		if (rc == -EAGAIN && run->sent > run->received)
			return 0; /* the server takes fewer at a time */
		if (rc != 0)
			return rc;
		run->sent++;
	}
	return 0;
}

/* Send `count` pings as fast as they go. */
static int run_flood(struct run *run)
{
	uint64_t rtt;
	int rc;

	while ((rc = run_send(run, count)) == 0 && run->sent != run->received) {
		rc = run_receive(run, &rtt);
		if (rc != 0)
			break;
	}
	return rc;
}

/* Send one ping each interval. */
static int run_one_by_one(struct run *run)
{
	uint64_t next = time_now(), rtt, bad;
	int rc = 0;

	while (!ctl_interrupted() && (!count || run->sent < count)) {
		bad = run->bad;
		rc = run_send(run, run->sent + 1);
		if (rc != 0 || run->sent == run->received)
			break;
		rc = run_receive(run, &rtt);
		if (rc != 0)
			break;
		if (!ctl.json && !ctl.quiet) {
			printf("%llu byte%s from %s: seq=%llu time=%.1f us%s\n", (unsigned long long)size, CTL_S(size),
			       run->server, (unsigned long long)run->received, (double)rtt / 1e3,
			       run->bad > bad ? " (not the bytes that were sent)" : "");
			ctl_flush();
		}
		next += interval;
		if (!count || run->sent < count) {
			struct timespec ts = {.tv_sec = (time_t)(next / TIME_S), .tv_nsec = (long)(next % TIME_S)};

			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		}
	}
	return rc;
}

static double ns_to_us(uint64_t ns)
{
	return (double)ns / 1e3;
}

static int print_json(const struct run *run)
{
	double elapsed = (double)(run->end - run->begin) / 1e9;
	double rate = elapsed > 0 ? (double)run->received / elapsed : 0;
	json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:I, s:b}", "command", "ping", "server",
			      run->server, "transport", rdmad_ping_transport(run->ping), "size_bytes", (json_int_t)size,
			      "depth", (json_int_t)depth, "sent", (json_int_t)run->sent, "received",
			      (json_int_t)run->received, "verified", verify, "verify_failures", (json_int_t)run->bad,
			      "interrupted", ctl_interrupted());
	json_t *more = json_pack(
		"{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "elapsed_seconds", elapsed,
		"messages_per_second", rate, "megabits_per_second", rate * (double)size * 8 / 1e6, "bytes_per_second",
		rate * (double)size, "rtt_us_min", ns_to_us(run->received ? run->rtt.min : 0), "rtt_us_p50",
		ns_to_us(histogram_percentile(&run->rtt, 50)), "rtt_us_mean", histogram_mean(&run->rtt) / 1e3,
		"rtt_us_p99", ns_to_us(histogram_percentile(&run->rtt, 99)), "rtt_us_p99_9",
		ns_to_us(histogram_percentile(&run->rtt, 99.9)), "rtt_us_max", ns_to_us(run->rtt.max),
		"cpu_user_seconds", run->usage.user, "cpu_system_seconds", run->usage.system);

	json_object_update(o, more);
	json_decref(more);
	return ctl_json_print(o);
}

static void print_text(const struct run *run)
{
	double elapsed = (double)(run->end - run->begin) / 1e9;
	double rate = elapsed > 0 ? (double)run->received / elapsed : 0;

	printf("%s: transport %s, %llu byte%s, depth %llu\n", run->server, rdmad_ping_transport(run->ping),
	       (unsigned long long)size, CTL_S(size), (unsigned long long)depth);
	printf("%llu sent, %llu received, %s, %.3f s\n", (unsigned long long)run->sent,
	       (unsigned long long)run->received,
	       !verify    ? "not verified"
	       : run->bad ? "verification failed"
			  : "all verified",
	       elapsed);
	printf("%.0f messages/s, %.3f Mb/s, user %.3f s, system %.3f s\n", rate, rate * (double)size * 8 / 1e6,
	       run->usage.user, run->usage.system);
	if (run->received)
		printf("round trip min %.1f, p50 %.1f, avg %.1f, p99 %.1f, p99.9 %.1f, max %.1f us\n",
		       ns_to_us(run->rtt.min), ns_to_us(histogram_percentile(&run->rtt, 50)),
		       histogram_mean(&run->rtt) / 1e3, ns_to_us(histogram_percentile(&run->rtt, 99)),
		       ns_to_us(histogram_percentile(&run->rtt, 99.9)), ns_to_us(run->rtt.max));
}

/* Print the results so far, also after an error, and find the exit status. */
static int print_results(struct run *run)
{
	char limit[32], why[64];
	int rc = CTL_OK;

	/* The library's text has the length of one wait, of which there were many. */
	snprintf(why, sizeof(why), "no pong after %s", units_format_time(ctl_answer_limit(), limit));
	if (ctl.json)
		rc = print_json(run);
	else
		print_text(run);
	if (run->bad) {
		ctl_say("ping %s: %llu of %llu messages came back with other bytes than were sent", run->server,
			(unsigned long long)run->bad, (unsigned long long)run->received);
		rc = CTL_FAILED;
	}
	if (run->error && run->error != -EINTR)
		return ctl_fail(run->error, run->error == -ETIMEDOUT ? why : NULL, "ping %s, after %llu round trips",
				run->server, (unsigned long long)run->received);
	if (ctl_interrupted())
		return CTL_INTERRUPTED;
	return rc;
}

static int command_ping(const struct ctl_arguments *arguments)
{
	struct run run = {.server = arguments->count ? arguments->text[0] : ctl.host};
	struct rdmad_ping_options options = {.size = (uint32_t)size, .depth = (uint32_t)depth, .verify = verify};
	struct address address;
	int rc;

	if (address_parse(run.server, &address) != 0)
		return ctl_usage_hint();
	if (interval != TIME_NEVER && depth > 1)
		return ctl_usage_error("ping: -i sends one at a time; it does not go with --depth %llu",
				       (unsigned long long)depth);
	if (!count && interval == TIME_NEVER)
		count = COUNT_DEFAULT;
	options.count = (uint32_t)count;
	histogram_init(&run.rtt);
	ctl_catch_interrupt();
	ctl_library_options(&options.common);
	options.common.timeout_us = MIN(ctl.timeout, CTL_SLICE) / TIME_US;
	options.common.credits = (uint32_t)MAX(depth + 1, 32u);
	rc = rdmad_ping_open(run.server, &options, &run.ping);
	if (rc != 0)
		return ctl_fail_open(rc, run.server);
	ctl_usage_add(&run.usage, -1);
	run.begin = time_now();
	run.error = interval == TIME_NEVER ? run_flood(&run) : run_one_by_one(&run);
	run.end = time_now();
	ctl_usage_add(&run.usage, 1);
	rc = print_results(&run);
	rdmad_ping_close(run.ping);
	return rc;
}

const struct ctl_command ctl_ping_commands[] = {
	{"ping", command_ping, "[HOST]", "measure round trips to rdmad and back", ping_options, 0, 1},
	{NULL},
};
