/* kv.c: "bench kv": its options, and one phase after the other: fill, measure, delete. */
#include "ctl/bench/kv.h"
#include "wire/wire.h"

#include <stdlib.h>

#define SIZE_LIMIT (1ull << 40)
#define DEPTH_MAX 1024
#define KEYS_DEFAULT 1000
/* The daemon may have 64 MiB. For a while a value and the one that replaces it are both there. So half
 * of the memory is for the values, unless --keys says more, and a quarter for those under way. */
#define FILL_MAX (32 * MIB)
#define OVERHEAD 128 /* of a key in the store, about */
#define FLIGHT_MAX (16 * MIB)
#define PREFIX_MAX 64

static const char *sizes_text = "64", *op_text = "set,get", *prefix;
static uint64_t keys_wanted;
static bool keep;
static uint64_t idle_clients; /* connections that ask nothing */
static uint64_t rate, interval, ttl;

static int check_sizes(const char *text);
static int check_op(const char *text);
static int check_prefix(const char *text);

static const struct ctl_option bench_options[] = {
	{"size", 's', CTL_CHECKED, &sizes_text, "SIZES",
	 "value sizes: a list of sizes and ranges that double, e.g. 64,1K-64K; default 64", .check = check_sizes},
	{"op", 'o', CTL_CHECKED, &op_text, "OP", "set, get, mixed, or a list; default set,get", .check = check_op,
	 .choices = "set get mixed set,get"},
	{"depth", 'd', CTL_NUMBER, &bench.depth, "N", "requests outstanding on each connection; default 64", .min = 1,
	 .max = DEPTH_MAX},
	{"clients", 'c', CTL_NUMBER, &bench.clients, "N", "connections; default 8", .min = 1, .max = 1024},
	{"threads", 'T', CTL_NUMBER, &bench.threads, "N", "threads that share the connections; default 1", .min = 1,
	 .max = 256},
	{"duration", 'D', CTL_TIME, &bench.duration, "TIME", "of each measurement; default 1s", .min = TIME_MS,
	 .max = 86400 * TIME_S},
	{"count", 'n', CTL_NUMBER, &bench.count, "N", "operations of each measurement, instead of a time", .min = 1,
	 .max = INT64_MAX},
	{"warmup", 'w', CTL_TIME, &bench.warmup, "TIME", "run this long before measuring; default 200ms",
	 .max = 86400 * TIME_S},
	{"keys", 'k', CTL_NUMBER, &keys_wanted, "N", "keys of each connection; default 1000, fewer for large values",
	 .min = 1, .max = 10000000},
	{"prefix", 'p', CTL_CHECKED, &prefix, "TEXT", "what the keys begin with; default: different in each run",
	 .check = check_prefix},
	{"idle", 'I', CTL_NUMBER, &idle_clients, "N", "more connections, which ask nothing; default 0", .max = 65536},
	{"rate", 'r', CTL_NUMBER, &rate, "N",
	 "operations per second of all, at even times, whatever the answers do; default: as fast as they come",
	 .min = 1, .max = 1000000000},
	{"interval", 'i', CTL_TIME, &interval, "TIME", "a line each time, beside the one of all", .min = 10 * TIME_MS,
	 .max = 86400 * TIME_S},
	{"csv", 0, CTL_FLAG, &bench.csv, NULL, "comma-separated values instead of a table"},
	{"ttl", 0, CTL_TIME, &ttl, "TIME", "the keys expire after this, should nobody delete them", .min = TIME_MS},
	{"keep", 0, CTL_FLAG, &keep, NULL, "do not delete the keys at the end"},
	{"no-verify", 0, CTL_FLAG, &bench.no_verify, NULL, "do not compare what is read"},
	{"no-latency", 0, CTL_FLAG, &bench.no_latency, NULL, "do not measure round trips"},
	{NULL},
};

static const struct {
	const char *name;
	enum bench_kv_phase phase;
} ops[] = {{"set", PHASE_SET}, {"get", PHASE_GET}, {"mixed", PHASE_MIXED}};

static int check_sizes(const char *text)
{
	return bench_check_sizes(text, 0, SIZE_LIMIT);
}

/* Index into ops, or -EINVAL. */
static int find_op(const char *word, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (strlen(ops[i].name) == len && memcmp(ops[i].name, word, len) == 0)
			return (int)i;
	return -EINVAL;
}

/* So that each key is known by its whole prefix, as one that `kv flush` is given. */
static int check_prefix(const char *text)
{
	if (strlen(text) <= PREFIX_MAX)
		return 0;
	ctl_say("--prefix %.80s: it has more than %d bytes", text, PREFIX_MAX);
	return -EINVAL;
}

static int check_op(const char *text)
{
	for (const char *p = text;; p++) {
		size_t len = strcspn(p, ",");

		if (find_op(p, len) < 0) {
			ctl_say("--op %s: not set, get, mixed or a list of them", text);
			return -EINVAL;
		}
		p += len;
		if (!*p)
			return 0;
	}
}

/*
 * Phases: all threads, from begin to end.
 */
static void lane_reset(struct lane *lane, enum bench_kv_phase phase, uint64_t quota)
{
	lane->submitted = lane->done = lane->stamped = 0;
	lane->submit_key = lane->done_key = 0;
	lane->submit_pair = lane->done_pair = 0;
	lane->stamp_head = lane->stamp_tail = 0;
	lane->phase = phase;
	lane->keys = bench_kv.keys;
	lane->quota = quota;
}

/* In messages, or by RDMA read and write. The answer to a get carries a short value in any case. */
static const char *way_of(enum bench_kv_phase phase)
{
	const struct lane *lane = &bench_kv.lane[0];

	if (lane->key_len + bench.size <= kv_eager_max(lane->kv))
		return "eager";
	return phase == PHASE_GET && bench.size <= WIRE_INLINE_MAX ? "eager" : "rendezvous";
}

/* count 0: for `duration`; else so many operations in all. */
static void run_phase(const char *name, enum bench_kv_phase phase, uint64_t duration, uint64_t count,
		      struct bench_result *result)
{
	int rc;

	bench_result_init(result, name);
	result->keys = bench_kv.keys * bench.clients;
	result->depth = bench_kv.depth;
	result->way = way_of(phase);
	for (uint64_t i = 0; i < bench.clients; i++)
		lane_reset(&bench_kv.lane[i], phase,
			   count ? count / bench.clients + (i < count % bench.clients) : UINT64_MAX);
	for (uint64_t i = 0; i < bench.threads; i++) {
		bench_result_init(&bench_kv.worker[i].result, name);
		bench_result_init(&bench_kv.worker[i].slice, name);
		bench_kv.worker[i].duration = count ? TIME_NEVER : duration;
		bench_kv.worker[i].ignore_interrupt = phase == PHASE_DELETE;
	}
	ctl_usage_add(&result->usage, -1);
	rc = bench_threads((unsigned)bench.threads, bench_kv_work, bench_kv.worker, sizeof(bench_kv.worker[0]));
	ctl_usage_add(&result->usage, 1);
	for (uint64_t i = 0; i < bench.threads; i++)
		bench_result_merge(result, &bench_kv.worker[i].result);
	if (rc != 0)
		bench_result_fail(result, rc, "cannot start a thread");
	bench_kv.lost |= result->error && !ctl_kv_status_final(result->error);
}

/* Warm up, measure, tell. */
static int measure(const char *name, enum bench_kv_phase phase, bench_report_fn *report)
{
	struct bench_result *result = malloc(sizeof(*result));
	int rc = CTL_OK;

	if (!result)
		return CTL_FAILED;
	if (bench.warmup) {
		run_phase(name, phase, bench.warmup, 0, result);
		rc = bench_judge(result);
	}
	if (rc == CTL_OK && !ctl_interrupted()) {
		bench_kv.interval = interval;
		run_phase(name, phase, bench.duration, bench.count, result);
		bench_kv.interval = 0;
		report(result, kv_transport(bench_kv.lane[0].kv));
		rc = bench_judge(result);
	}
	free(result);
	return rc;
}

/* Give each key its value, or delete all. */
static int touch_all(const char *name, enum bench_kv_phase phase)
{
	struct bench_result *result = malloc(sizeof(*result));
	int rc;

	if (!result)
		return CTL_FAILED;
	bench_kv.apart = 0;
	run_phase(name, phase, 0, (uint64_t)bench_kv.keys * bench.clients, result);
	bench_kv.apart = rate ? MAX(TIME_S * bench.clients / rate, 1ull) : 0;
	rc = bench_judge(result);
	free(result);
	return rc;
}

/* Values are read from where they are: the text is registered, once for all that share queues. */
static int register_text(void)
{
	for (uint64_t i = 0; i < bench.threads; i++) {
		void *kv = bench_kv.worker[i].lane[0].kv;
		int rc = kv_buffer_register(kv, bench_kv.text, bench_kv.text_len);

		if (rc != 0)
			return ctl_fail(rc, NULL, "%s: cannot register %zu bytes", ctl_command_name(),
					bench_kv.text_len);
	}
	return CTL_OK;
}

static void drop_text(void)
{
	for (uint64_t i = 0; bench_kv.text && i < bench.threads; i++)
		kv_buffer_unregister(bench_kv.worker[i].lane[0].kv, bench_kv.text);
	free(bench_kv.text);
	bench_kv.text = NULL;
}

static int make_text(void)
{
	uint64_t state = time_now() | 1;

	drop_text();
	bench_kv.text_len = bench.size + BENCH_KV_WINDOWS;
	bench_kv.text = malloc(bench_kv.text_len);
	if (!bench_kv.text) {
		ctl_say("no memory for values of %llu bytes", (unsigned long long)bench.size);
		return CTL_FAILED;
	}
	script_random_text(bench_kv.text, bench_kv.text_len, &state);
	return register_text();
}

/* Half of what the store has left, at most: what others stored is not to make room for a benchmark, where the store
 * drops keys. */
static uint64_t room_for_values(void)
{
	struct kv_info info;

	if (kv_info(bench_kv.lane[0].kv, &info) != 0)
		return FILL_MAX;
	return MIN((info.bytes_total - MIN(info.bytes_used, info.bytes_total)) / 2, FILL_MAX);
}

static void warn_of_eviction(uint64_t each)
{
	uint64_t fill = bench_kv.keys * (each + OVERHEAD * bench.clients), room = 2 * room_for_values();
	char text[2][32];

	if (fill > room && room < 2 * FILL_MAX)
		ctl_say("%s: the keys take %s, and the store has %s left: it may refuse them, or drop keys of others",
			ctl_command_name(), units_human_size((double)fill, text[0]),
			units_human_size((double)room, text[1]));
}

/* How many keys, and requests under way, the daemon's memory has room for. */
static void choose_numbers(void)
{
	uint64_t each = MAX(bench.size, 1ull) * bench.clients;

	bench_kv.large = bench.size > WIRE_INLINE_MAX;
	bench_kv.depth = MAX(1ull, MIN(bench.depth, FLIGHT_MAX / each));
	bench_kv.keys = (uint32_t)keys_wanted;
	if (!keys_wanted)
		bench_kv.keys = (uint32_t)MAX(
			1, MIN((uint64_t)KEYS_DEFAULT, room_for_values() / (each + OVERHEAD * bench.clients)));
	warn_of_eviction(each);
	/* A get that was overtaken must not meet the next value of its key. */
	if (bench_kv.large)
		bench_kv.depth = MIN(bench_kv.depth, (uint64_t)bench_kv.keys);
}

/* What decides the figures, and does not stand in the rows. */
static void tell_keys(void)
{
	bench.keys = bench_kv.keys;
	bench.key_bytes = bench_kv.lane[0].key_len;
}

static int prepare_size(void)
{
	uint64_t limit = kv_value_max(bench_kv.lane[0].kv);
	int rc;

	if (bench.size > limit) {
		ctl_say("%s: %s takes values up to %llu bytes", ctl_command_name(), bench.server,
			(unsigned long long)limit);
		return CTL_FAILED;
	}
	/* The values of the last size would take the place of those to come. */
	rc = bench_kv.keys && bench.size > WIRE_INLINE_MAX ? touch_all("delete", PHASE_DELETE) : CTL_OK;
	if (rc != CTL_OK)
		return rc;
	choose_numbers();
	tell_keys();
	return make_text();
}

static int measure_ops(bench_report_fn *report)
{
	int rc = CTL_OK;

	for (const char *p = op_text; rc == CTL_OK && !ctl_interrupted(); p++) {
		size_t len = strcspn(p, ",");
		int op = find_op(p, len);

		rc = measure(ops[op].name, ops[op].phase, report);
		p += len;
		if (!*p)
			break;
	}
	return rc;
}

static int round_of_size(bench_report_fn *report)
{
	int rc = prepare_size();

	if (rc == CTL_OK)
		rc = touch_all("fill", PHASE_FILL);
	return rc == CTL_OK ? measure_ops(report) : rc;
}

/*
 * Set-up.
 */
/* All keys have the same length: 16 bytes with the default prefix. */
#define KEY_FORMAT "%s:%03x:%07x"

static void make_prefix(void)
{
	static char random[5];
	uint64_t state = time_now() | 1;

	script_random_text(random, sizeof(random) - 1, &state);
	prefix = random;
}

static int lane_keys(struct lane *lane, unsigned number, uint64_t keys)
{
	int len = snprintf(NULL, 0, KEY_FORMAT, prefix, number, 0u);

	lane->key_len = (uint32_t)len;
	lane->key = malloc(keys * lane->key_len + 1);
	if (!lane->key)
		return -ENOMEM;
	for (uint64_t i = 0; i < keys; i++)
		sprintf(lane->key + i * lane->key_len, KEY_FORMAT, prefix, number, (unsigned)i);
	return 0;
}

static int lane_make(struct lane *lane, unsigned number)
{
	uint32_t stamps = 1;

	while (stamps < bench.depth)
		stamps *= 2;
	lane->stamp_mask = stamps - 1;
	lane->stamp = calloc(stamps, sizeof(*lane->stamp));
	lane->tickets = calloc(bench.depth, sizeof(*lane->tickets));
	for (uint64_t i = 0; lane->tickets && i < bench.depth; i++) {
		lane->tickets[i] = (struct ticket){.lane = lane, .next = lane->ticket};
		lane->ticket = &lane->tickets[i];
	}
	if (!lane->stamp || !lane->tickets || lane_keys(lane, number, keys_wanted ? keys_wanted : KEYS_DEFAULT) != 0) {
		ctl_say("%s: no memory for the keys", ctl_command_name());
		return CTL_FAILED;
	}
	return CTL_OK;
}

/* Connections of one thread share its queues. */
static int worker_open(struct bench_kv_worker *w)
{
	struct rdmad_options options;

	ctl_library_options(&options);
	options.eager_limit = bench_kv.eager_limit;
	for (unsigned i = 0; i < w->lanes; i++) {
		int rc = kv_open_options(bench.server, &options, i ? w->lane[0].kv : NULL, &w->lane[i].kv);

		if (rc != 0)
			return ctl_fail_open(rc, bench.server);
		if (ctl_interrupted())
			return CTL_INTERRUPTED;
	}
	return CTL_OK;
}

static int make_workers(void)
{
	uint64_t next = 0;
	int rc = CTL_OK;

	for (uint64_t i = 0; i < bench.threads && rc == CTL_OK; i++) {
		struct bench_kv_worker *w = &bench_kv.worker[i];

		pthread_mutex_init(&w->lock, NULL);
		w->lane = &bench_kv.lane[next];
		w->lanes = (unsigned)(bench.clients / bench.threads + (i < bench.clients % bench.threads));
		for (unsigned j = 0; j < w->lanes && rc == CTL_OK; j++, next++) {
			w->lane[j].worker = w;
			rc = lane_make(&w->lane[j], (unsigned)next);
		}
		if (rc == CTL_OK)
			rc = worker_open(w);
	}
	return rc;
}

/* They share queues of their own, so that the busy connections cost no more beside them. Over RDMA a queue holds some
 * hundreds. */
static int open_idle(void)
{
	struct rdmad_options options;
	void *share = NULL;

	ctl_library_options(&options);
	bench_kv.idle = calloc(idle_clients, sizeof(*bench_kv.idle));
	for (uint64_t i = 0; bench_kv.idle && i < idle_clients; i++) {
		int rc = kv_open_options(bench.server, &options, share, &bench_kv.idle[i]);

		if (rc == -EUSERS && share) {
			share = NULL;
			rc = kv_open_options(bench.server, &options, share, &bench_kv.idle[i]);
		}
		if (rc != 0)
			return ctl_fail_open(rc, bench.server);
		if (!share)
			share = bench_kv.idle[i];
		if (ctl_interrupted())
			return CTL_INTERRUPTED;
	}
	return bench_kv.idle ? CTL_OK : CTL_FAILED;
}

static int set_up(void)
{
	int rc = CTL_OK;

	if (!prefix)
		make_prefix();
	bench_kv.ttl_us = ttl / TIME_US;
	bench_kv.lane = calloc(bench.clients, sizeof(*bench_kv.lane));
	bench_kv.worker = calloc(bench.threads, sizeof(*bench_kv.worker));
	if (!bench_kv.lane || !bench_kv.worker) {
		ctl_say("%s: no memory for %llu clients", ctl_command_name(), (unsigned long long)bench.clients);
		return CTL_FAILED;
	}
	if (idle_clients)
		rc = open_idle();
	return rc == CTL_OK ? make_workers() : rc;
}

static void take_down(void)
{
	if (bench_kv.lane && bench_kv.worker)
		drop_text();
	for (uint64_t i = 0; bench_kv.lane && i < bench.clients; i++) {
		kv_close(bench_kv.lane[i].kv);
		free(bench_kv.lane[i].key);
		free(bench_kv.lane[i].stamp);
		free(bench_kv.lane[i].tickets);
	}
	for (uint64_t i = 0; bench_kv.idle && i < idle_clients; i++)
		kv_close(bench_kv.idle[i]);
	free(bench_kv.idle);
	free(bench_kv.lane);
	free(bench_kv.worker);
	memset(&bench_kv, 0, sizeof(bench_kv));
}

/* Delete the keys and end the connections. `rc` is the exit status so far. */
static int finish(int rc)
{
	if (bench_kv.keys && bench_kv.lost && !keep)
		ctl_say("%s: up to %llu keys are left, which begin with \"%s:\"; to delete them: rdmactl kv flush %s:",
			ctl_command_name(), (unsigned long long)bench_kv.keys * bench.clients, prefix, prefix);
	else if (bench_kv.keys && !keep && touch_all("delete", PHASE_DELETE) != CTL_OK && rc == CTL_OK)
		rc = CTL_FAILED;
	take_down();
	return rc;
}

/* The first one connects. */
static int next_round(void)
{
	int rc = bench_kv.lane ? CTL_OK : set_up();

	return rc == CTL_OK ? round_of_size(bench_report) : rc;
}

int bench_kv_once(const char *wanted_ops, uint32_t eager_limit, bench_report_fn *report)
{
	int rc;

	op_text = wanted_ops;
	bench_kv.eager_limit = eager_limit;
	rc = set_up();
	if (rc == CTL_OK)
		rc = round_of_size(report);
	return finish(rc);
}

static int command_bench(const struct ctl_arguments *arguments)
{
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(sizes_text, SIZE_LIMIT, sizes, ARRAY_SIZE(sizes));

	if ((rate || interval) && bench.no_latency)
		return ctl_usage_error(
			"bench kv: --rate and --interval tell latencies; they do not go with --no-latency");
	if (bench.csv && ctl.json)
		return ctl_usage_error("bench kv: either --csv or --json");
	bench.rate = rate;
	bench.ttl = ttl;
	return finish(bench_rounds(arguments, sizes, (size_t)n, next_round));
}

const struct ctl_command ctl_bench_kv_commands[] = {
	{"bench kv", command_bench, "[HOST]", "measure the key/value store", bench_options, 0, 1},
	{NULL},
};
