/* kv.c: "bench kv": its options, and one phase after the other: fill, measure, delete. */
#include "ctl/bench/kv.h"
#include "cluster/cluster.h"
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
 * Phases
 */
static void lane_begin(uint64_t client, uint64_t quota)
{
	struct lane *lane = &bench_kv.lane[client];

	lane->submitted = lane->done = lane->stamped = 0;
	lane->submit_key = lane->done_key = 0;
	lane->submit_pair = lane->done_pair = 0;
	lane->stamp_head = lane->stamp_tail = 0;
	lane->phase = bench_kv.phase;
	lane->keys = bench_kv.keys;
	lane->quota = quota;
}

static void phase_begin(struct bench_result *result)
{
	const struct lane *lane = &bench_kv.lane[0];
	bool eager = lane->key_len + bench.size <= kv_eager_max(lane->kv);

	/* The answer to a get carries a short value in any case. */
	if (bench_kv.phase == PHASE_GET && bench.size <= WIRE_INLINE_MAX)
		eager = true;
	result->way = eager ? "eager" : "rendezvous";
	result->keys = bench_kv.keys * bench.clients;
	result->depth = bench_kv.depth;
	for (uint64_t i = 0; i < bench.threads; i++)
		bench_result_init(&bench_kv.worker[i].slice, result->op);
	bench_kv.interval = bench.measuring ? interval : 0;
	bench_kv.apart = rate && bench_kv.phase != PHASE_FILL && bench_kv.phase != PHASE_DELETE
				 ? MAX(TIME_S * bench.clients / rate, 1ull)
				 : 0;
}

static void phase_end(struct bench_result *result)
{
	bench_kv.lost |= result->error && !ctl_kv_status_final(result->error);
}

/* Give each key its value, or delete all. */
static int touch_all(const char *name, enum bench_kv_phase phase)
{
	bench_kv.phase = phase;
	bench_kv.driven.op = name;
	return bench_phase(&bench_kv.driven, 0, (uint64_t)bench_kv.keys * bench.clients, NULL);
}

static void drop_text(void)
{
	for (uint64_t i = 0; bench_kv.text && i < bench.threads; i++)
		kv_buffer_unregister(bench_kv.worker[i].lane[0].kv, bench_kv.text);
	free(bench_kv.text);
	bench_kv.text = NULL;
}

/* Values are read from where they are: the text is registered, once for all that share queues. */
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
	for (uint64_t i = 0; i < bench.threads; i++) {
		int rc = kv_buffer_register(bench_kv.worker[i].lane[0].kv, bench_kv.text, bench_kv.text_len);

		if (rc != 0)
			return ctl_fail(rc, NULL, "%s: cannot register %zu bytes", ctl_command_name(),
					bench_kv.text_len);
	}
	return CTL_OK;
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

/* Choose how many keys, and requests under way, the daemon's memory has room for. */
static void choose_numbers(void)
{
	uint64_t each = MAX(bench.size, 1ull) * bench.clients, fill, room;
	char text[2][32];

	bench_kv.unordered = bench.size > WIRE_INLINE_MAX || cluster_is_named(bench.server, NULL);
	bench_kv.depth = MAX(1ull, MIN(bench.depth, FLIGHT_MAX / each));
	bench_kv.keys = (uint32_t)keys_wanted;
	if (!keys_wanted)
		bench_kv.keys = (uint32_t)MAX(
			1, MIN((uint64_t)KEYS_DEFAULT, room_for_values() / (each + OVERHEAD * bench.clients)));
	fill = bench_kv.keys * (each + OVERHEAD * bench.clients);
	room = 2 * room_for_values();
	if (fill > room && room < 2 * FILL_MAX)
		ctl_say("%s: the keys take %s, and the store has %s left: it may refuse them, or drop keys of others",
			ctl_command_name(), units_human_size((double)fill, text[0]),
			units_human_size((double)room, text[1]));
	/* A get that was overtaken must not meet the next value of its key. */
	if (bench_kv.unordered)
		bench_kv.depth = MIN(bench_kv.depth, (uint64_t)bench_kv.keys);
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
	rc = make_text();
	return rc == CTL_OK ? touch_all("fill", PHASE_FILL) : rc;
}

/* Fill, and measure each operation of --op. */
static int round_of_size(bench_report_fn *report)
{
	int rc = prepare_size();

	for (const char *p = op_text; rc == CTL_OK && !ctl_interrupted(); p++) {
		size_t len = strcspn(p, ",");
		int op = find_op(p, len);

		bench_kv.phase = ops[op].phase;
		bench_kv.driven.op = ops[op].name;
		rc = bench_measure(&bench_kv.driven, report);
		p += len;
		if (!*p)
			break;
	}
	return rc;
}

/*
 * Set-up.
 */
/* All keys have the same length: 16 bytes with the default prefix. */
#define KEY_FORMAT "%s:%03x:%07x"

static int lane_make(struct lane *lane, unsigned number)
{
	uint64_t keys = keys_wanted ? keys_wanted : KEYS_DEFAULT;
	uint32_t stamps = 1;

	while (stamps < bench.depth)
		stamps *= 2;
	lane->stamp_mask = stamps - 1;
	lane->stamp = calloc(stamps, sizeof(*lane->stamp));
	lane->tickets = calloc(bench.depth, sizeof(*lane->tickets));
	lane->key_len = (uint32_t)snprintf(NULL, 0, KEY_FORMAT, prefix, number, 0u);
	lane->key = malloc(keys * lane->key_len + 1);
	if (!lane->stamp || !lane->tickets || !lane->key) {
		ctl_say("%s: no memory for the keys", ctl_command_name());
		return CTL_FAILED;
	}
	for (uint64_t i = 0; i < bench.depth; i++) {
		lane->tickets[i] = (struct ticket){.lane = lane, .next = lane->ticket};
		lane->ticket = &lane->tickets[i];
	}
	for (uint64_t i = 0; i < keys; i++)
		sprintf(lane->key + i * lane->key_len, KEY_FORMAT, prefix, number, (unsigned)i);
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
	int rc = CTL_OK;

	bench_share(&bench_kv.driven);
	for (uint64_t i = 0; i < bench.threads && rc == CTL_OK; i++) {
		struct bench_kv_worker *w = &bench_kv.worker[i];

		pthread_mutex_init(&w->lock, NULL);
		w->lane = &bench_kv.lane[w->thread.first];
		w->lanes = (unsigned)w->thread.clients;
		for (unsigned j = 0; j < w->lanes && rc == CTL_OK; j++) {
			w->lane[j].worker = w;
			rc = lane_make(&w->lane[j], (unsigned)(w->thread.first + j));
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
	static char random[5];
	uint64_t state = time_now() | 1;
	int rc = CTL_OK;

	if (!prefix) {
		script_random_text(random, sizeof(random) - 1, &state);
		prefix = random;
	}
	bench_kv.ttl_us = ttl / TIME_US;
	bench_kv.lane = calloc(bench.clients, sizeof(*bench_kv.lane));
	bench_kv.worker = calloc(bench.threads, sizeof(*bench_kv.worker));
	if (!bench_kv.lane || !bench_kv.worker) {
		ctl_say("%s: no memory for %llu clients", ctl_command_name(), (unsigned long long)bench.clients);
		return CTL_FAILED;
	}
	bench_kv.driven = (struct bench_case){
		.threads = bench_kv.worker,
		.thread_size = sizeof(bench_kv.worker[0]),
		.client_begin = lane_begin,
		.run = bench_kv_work,
		.begin = phase_begin,
		.end = phase_end,
	};
	if (idle_clients)
		rc = open_idle();
	if (rc == CTL_OK)
		rc = make_workers();
	if (rc == CTL_OK)
		bench_kv.driven.transport = kv_transport(bench_kv.lane[0].kv);
	return rc;
}

/* Delete the keys and end the connections. `rc` is the exit status so far. */
static int bench_finish(int rc)
{
	if (bench_kv.keys && bench_kv.lost && !keep)
		ctl_say("%s: up to %llu keys are left, which begin with \"%s:\"; to delete them: rdmactl kv flush %s:",
			ctl_command_name(), (unsigned long long)bench_kv.keys * bench.clients, prefix, prefix);
	else if (bench_kv.keys && !keep && touch_all("delete", PHASE_DELETE) != CTL_OK && rc == CTL_OK)
		rc = CTL_FAILED;
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
	return bench_finish(rc);
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
	return bench_finish(bench_rounds(arguments, sizes, (size_t)n, next_round));
}

const struct ctl_command ctl_bench_kv_commands[] = {
	{"bench kv", command_bench, "[HOST]", "measure the key/value store", bench_options, 0, 1},
	{NULL},
};
