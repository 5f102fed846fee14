/*
 * bench_kv.c: keep `depth` requests outstanding on each connection and count the answers.
 *
 * The loop must cost less than the requests that it measures: keys and values are made beforehand, nothing is
 * allocated, and the clock is read once a turn. Small requests of a connection are answered in order. So the number
 * of an answer gives its key, its expected value and, by the stamps of the turns, its round trip. Large values may
 * overtake each other: there each get has a ticket with the expected value.
 */
#include "ctl/ctl.h"
#include "rdmad/kv.h"
#include "wire/wire.h"

#include <stdlib.h>

#define SIZE_LIMIT (1ull << 40)
#define DEPTH_MAX 1024
#define KEYS_DEFAULT 1000
/* The daemon's memory is 64 MiB by default. For a while a value and the one that replaces it are both there. So half
 * of the memory is for the values, unless --keys says more, and a quarter for those under way. */
#define FILL_MAX (32 * MIB)
#define FLIGHT_MAX (16 * MIB)
#define WINDOWS 64u /* different values: that many places in one random text */

static const char *sizes_text = "64", *op_text = "set,get", *prefix;
static uint64_t keys_wanted;
static bool keep;
static uint64_t idle_clients; /* connections that ask nothing */

static int check_sizes(const char *text);
static int check_op(const char *text);

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
	{"prefix", 'p', CTL_TEXT, &prefix, "TEXT", "what the keys begin with; default: different in each run"},
	{"idle", 'I', CTL_NUMBER, &idle_clients, "N", "more connections, which ask nothing; default 0", .max = 65536},
	{"keep", 0, CTL_FLAG, &keep, NULL, "do not delete the keys at the end"},
	{"no-verify", 0, CTL_FLAG, &bench.no_verify, NULL, "do not compare what is read"},
	{"no-latency", 0, CTL_FLAG, &bench.no_latency, NULL, "do not measure round trips"},
	{NULL},
};

enum phase { PHASE_FILL, PHASE_SET, PHASE_GET, PHASE_MIXED, PHASE_DELETE };

static const struct {
	const char *name;
	enum phase phase;
} ops[] = {{"set", PHASE_SET}, {"get", PHASE_GET}, {"mixed", PHASE_MIXED}};

/* The requests below number `upto` that have no stamp yet were submitted at `time`. */
struct stamp {
	uint64_t time, upto;
};

/* A get of a large value that is under way. */
struct ticket {
	struct lane *lane;
	struct ticket *next; /* free one behind this one */
	uint32_t window;
};

/* One connection. Hot members first. */
struct lane {
	void *kv;
	struct bench_kv_worker *worker;
	uint64_t submitted, done, stamped; /* numbers of requests in this phase */
	uint64_t quota;                    /* how many there are to be */
	uint32_t submit_key, done_key;     /* wrap at `keys` */
	uint32_t submit_pair, done_pair;   /* mixed: pairs of a set and a get */
	enum phase phase;
	uint32_t keys;
	uint32_t key_len;
	char *key; /* key_len bytes each */
	struct stamp *stamp;
	uint32_t stamp_mask, stamp_head, stamp_tail;
	struct ticket *tickets, *ticket; /* bench.depth of them, the first free one */
};

/* One thread with its lanes. */
struct bench_kv_worker {
	struct lane *lane;
	unsigned lanes;
	uint64_t duration; /* of this phase; TIME_NEVER: by quota */
	bool stopping, ignore_interrupt;
	struct bench_result result;
};

static struct {
	void **idle;
	struct lane *lane; /* all of them */
	struct bench_kv_worker *worker;
	char *text; /* text_len random bytes */
	size_t text_len;
	uint32_t keys;
	uint64_t depth;       /* bench.depth, less for large values */
	uint32_t eager_limit; /* of the options; 0: the default */
	bool large;           /* values do not fit the answer */
	bool lost;            /* a connection ended */
} b;

static int check_sizes(const char *text)
{
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(text, SIZE_LIMIT, sizes, ARRAY_SIZE(sizes));

	if (n < 0)
		ctl_say("--size %s: not a list of sizes like 64,1K-64K", text);
	return MIN(n, 0);
}

/* Index into ops, or -EINVAL. */
static int find_op(const char *word, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (strlen(ops[i].name) == len && memcmp(ops[i].name, word, len) == 0)
			return (int)i;
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
 * Answers. These run for each operation.
 */
static void lane_failed(struct lane *lane, int status)
{
	struct bench_kv_worker *w = lane->worker;

	/* A delete that finds nothing has nothing to do. */
	if (lane->phase == PHASE_DELETE && status == -ENOENT)
		return;
	bench_result_fail(&w->result, status, ctl_kv_status_text(status));
	w->stopping = true;
}

static void lane_set_done(void *arg, int status, const void *value, size_t len)
{
	struct lane *lane = arg;

	lane->done++;
	if (unlikely(status != 0))
		lane_failed(lane, status);
}

static inline bool value_expected(const void *value, size_t len, uint32_t window)
{
	return len == bench.size && memcmp(value, b.text + window % WINDOWS, len) == 0;
}

static void lane_get_done(void *arg, int status, const void *value, size_t len)
{
	struct lane *lane = arg;
	uint32_t window = lane->phase == PHASE_MIXED ? lane->done_pair++ : lane->done_key;

	lane->done++;
	if (++lane->done_key == lane->keys)
		lane->done_key = 0;
	if (unlikely(status != 0))
		lane_failed(lane, status);
	else if (!bench.no_verify && unlikely(!value_expected(value, len, window)))
		lane->worker->result.mismatches++;
}

static void lane_large_done(void *arg, int status, const void *value, size_t len)
{
	struct ticket *ticket = arg;
	struct lane *lane = ticket->lane;

	lane->done++;
	if (unlikely(status != 0))
		lane_failed(lane, status);
	else if (!bench.no_verify && unlikely(!value_expected(value, len, ticket->window)))
		lane->worker->result.mismatches++;
	ticket->next = lane->ticket;
	lane->ticket = ticket;
}

/*
 * Requests.
 */
static int lane_set(struct lane *lane, const char *key, uint32_t window)
{
	return kv_submit_set(lane->kv, key, lane->key_len, b.text + window % WINDOWS, bench.size, lane_set_done, lane);
}

static int lane_get(struct lane *lane, const char *key, uint32_t window)
{
	struct ticket *ticket = lane->ticket;
	int rc;

	if (likely(!b.large))
		return kv_submit_get(lane->kv, key, lane->key_len, lane_get_done, lane);
	ticket->window = window;
	lane->ticket = ticket->next; /* before: it may be answered within */
	rc = kv_submit_get(lane->kv, key, lane->key_len, lane_large_done, ticket);
	if (rc != 0)
		lane->ticket = ticket;
	return rc;
}

static int lane_submit(struct lane *lane)
{
	const char *key = lane->key + (size_t)lane->submit_key * lane->key_len;

	switch (lane->phase) {
	case PHASE_FILL:
	case PHASE_SET:
		return lane_set(lane, key, lane->submit_key);
	case PHASE_GET:
		return lane_get(lane, key, lane->submit_key);
	case PHASE_MIXED:
		if (lane->submitted % 2 == 0)
			return lane_set(lane, key, lane->submit_pair);
		return lane_get(lane, key, lane->submit_pair);
	case PHASE_DELETE:
		return kv_submit_delete(lane->kv, key, lane->key_len, lane_set_done, lane);
	}
	return -EINVAL;
}

/* The next request is for the next key; in mixed, after the get of a pair. */
static void lane_advance(struct lane *lane)
{
	bool pair_done = lane->submitted % 2;

	lane->submitted++;
	if (lane->phase == PHASE_MIXED && !pair_done)
		return;
	lane->submit_pair++;
	if (++lane->submit_key == lane->keys)
		lane->submit_key = 0;
}

static void lane_fill(struct lane *lane, uint64_t now)
{
	uint64_t before = lane->submitted, limit = MIN(lane->done + b.depth, lane->quota);
	int rc = 0;

	while (lane->submitted < limit) {
		rc = lane_submit(lane);
		if (unlikely(rc != 0))
			break;
		lane_advance(lane);
	}
	if (unlikely(rc != 0 && rc != -EAGAIN)) {
		bench_result_fail(&lane->worker->result, rc, rdmad_error());
		lane->worker->stopping = true;
	}
	if (lane->submitted != before && !bench.no_latency)
		lane->stamp[lane->stamp_head++ & lane->stamp_mask] = (struct stamp){now, lane->submitted};
}

/* Round trips of the requests answered in this turn: all of one stamp are alike. */
static void lane_latency(struct lane *lane, uint64_t now)
{
	while (lane->stamped != lane->done) {
		struct stamp *s = &lane->stamp[lane->stamp_tail & lane->stamp_mask];
		uint64_t upto = MIN(s->upto, lane->done);

		for (; lane->stamped != upto; lane->stamped++)
			histogram_add(&lane->worker->result.latency, now - s->time);
		lane->stamp_tail += upto == s->upto;
	}
}

static bool worker_idle(const struct bench_kv_worker *w)
{
	for (unsigned i = 0; i < w->lanes; i++)
		if (w->lane[i].done != w->lane[i].submitted)
			return false;
	return true;
}

static bool worker_satisfied(const struct bench_kv_worker *w)
{
	for (unsigned i = 0; i < w->lanes; i++)
		if (w->lane[i].done < w->lane[i].quota)
			return false;
	return true;
}

/* Send, receive, count. How many requests were answered, or a negative errno. */
static int worker_turn(struct bench_kv_worker *w, uint64_t *now)
{
	int n;

	if (likely(!w->stopping))
		for (unsigned i = 0; i < w->lanes; i++)
			lane_fill(&w->lane[i], *now);
	if (unlikely(w->stopping && worker_idle(w)))
		return 0;
	n = kv_progress(w->lane[0].kv, CTL_SLICE_US);
	*now = time_now();
	if (!bench.no_latency)
		for (unsigned i = 0; i < w->lanes; i++)
			lane_latency(&w->lane[i], *now);
	return n;
}

static void worker_loop(struct bench_kv_worker *w)
{
	uint64_t now = w->result.begin, alive = now, limit = ctl_answer_limit();
	uint64_t until = time_after(now, w->duration);
	int n;

	do {
		bool interrupted = ctl_interrupted() && !w->ignore_interrupt;

		if (now >= until || interrupted || worker_satisfied(w))
			w->stopping = true;
		n = worker_turn(w, &now);
		if (n > 0)
			alive = now;
		else if (n == 0 && interrupted)
			n = -EINTR;
		else if (n == 0 && now - alive > limit)
			n = -ETIMEDOUT;
	} while (n >= 0 && !(w->stopping && worker_idle(w)));
	w->result.end = now;
	if (n < 0)
		bench_result_fail(&w->result, n, n == -ETIMEDOUT ? "no answer in time" : rdmad_error());
}

static void worker_run(void *arg)
{
	struct bench_kv_worker *w = arg;

	w->stopping = false;
	w->result.begin = time_now();
	worker_loop(w);
	for (unsigned i = 0; i < w->lanes; i++)
		w->result.operations += w->lane[i].done;
}

/*
 * Phases: all threads, from begin to end.
 */
static void lane_reset(struct lane *lane, enum phase phase, uint64_t quota)
{
	lane->submitted = lane->done = lane->stamped = 0;
	lane->submit_key = lane->done_key = 0;
	lane->submit_pair = lane->done_pair = 0;
	lane->stamp_head = lane->stamp_tail = 0;
	lane->phase = phase;
	lane->keys = b.keys;
	lane->quota = quota;
}

/* In messages, or by RDMA read and write. The answer to a get carries a short value in any case. */
static const char *way_of(enum phase phase)
{
	const struct lane *lane = &b.lane[0];

	if (lane->key_len + bench.size <= kv_eager_max(lane->kv))
		return "eager";
	return phase == PHASE_GET && bench.size <= WIRE_INLINE_MAX ? "eager" : "rendezvous";
}

/* count 0: for `duration`; else so many operations in all. */
static void run_phase(const char *name, enum phase phase, uint64_t duration, uint64_t count,
		      struct bench_result *result)
{
	int rc;

	bench_result_init(result, name);
	result->keys = b.keys * bench.clients;
	result->depth = b.depth;
	result->way = way_of(phase);
	for (uint64_t i = 0; i < bench.clients; i++)
		lane_reset(&b.lane[i], phase, count ? count / bench.clients + (i < count % bench.clients) : UINT64_MAX);
	for (uint64_t i = 0; i < bench.threads; i++) {
		bench_result_init(&b.worker[i].result, name);
		b.worker[i].duration = count ? TIME_NEVER : duration;
		b.worker[i].ignore_interrupt = phase == PHASE_DELETE;
	}
	bench_take_usage(result, -1);
	rc = bench_threads((unsigned)bench.threads, worker_run, b.worker, sizeof(b.worker[0]));
	bench_take_usage(result, 1);
	for (uint64_t i = 0; i < bench.threads; i++)
		bench_result_merge(result, &b.worker[i].result);
	if (rc != 0)
		bench_result_fail(result, rc, "cannot start a thread");
	b.lost |= result->error && !ctl_kv_status_final(result->error);
}

/* Warm up, measure, tell. */
static int measure(const char *name, enum phase phase, bench_report_fn *report)
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
		run_phase(name, phase, bench.duration, bench.count, result);
		report(result, kv_transport(b.lane[0].kv));
		rc = bench_judge(result);
	}
	free(result);
	return rc;
}

/* Give each key its value, or delete all. */
static int touch_all(const char *name, enum phase phase)
{
	struct bench_result *result = malloc(sizeof(*result));
	int rc;

	if (!result)
		return CTL_FAILED;
	run_phase(name, phase, 0, (uint64_t)b.keys * bench.clients, result);
	rc = bench_judge(result);
	free(result);
	return rc;
}

/* Values are read from where they are: the text is registered, once for all that share queues. */
static int register_text(void)
{
	for (uint64_t i = 0; i < bench.threads; i++) {
		void *kv = b.worker[i].lane[0].kv;
		int rc = kv_buffer_register(kv, b.text, b.text_len);

		if (rc != 0)
			return ctl_fail(rc, NULL, "bench kv: cannot register %zu bytes", b.text_len);
	}
	return CTL_OK;
}

static void drop_text(void)
{
	for (uint64_t i = 0; b.text && i < bench.threads; i++)
		kv_buffer_unregister(b.worker[i].lane[0].kv, b.text);
	free(b.text);
	b.text = NULL;
}

static int make_text(void)
{
	uint64_t state = time_now() | 1;

	drop_text();
	b.text_len = bench.size + WINDOWS;
	b.text = malloc(b.text_len);
	if (!b.text) {
		ctl_say("no memory for values of %llu bytes", (unsigned long long)bench.size);
		return CTL_FAILED;
	}
	script_random_text(b.text, b.text_len, &state);
	return register_text();
}

/* How many keys, and requests under way, the daemon's memory has room for. */
static void choose_numbers(void)
{
	uint64_t each = MAX(bench.size, 1ull) * bench.clients;

	b.large = bench.size > WIRE_INLINE_MAX;
	b.depth = MAX(1ull, MIN(bench.depth, FLIGHT_MAX / each));
	b.keys = (uint32_t)keys_wanted;
	if (!keys_wanted)
		b.keys = (uint32_t)MAX(1, MIN((uint64_t)KEYS_DEFAULT, FILL_MAX / each));
	/* A get that was overtaken must not meet the next value of its key. */
	if (b.large)
		b.depth = MIN(b.depth, (uint64_t)b.keys);
}

static int prepare_size(void)
{
	uint64_t limit = kv_value_max(b.lane[0].kv);
	int rc;

	if (bench.size > limit) {
		ctl_say("bench kv: %s takes values up to %llu bytes", bench.server, (unsigned long long)limit);
		return CTL_FAILED;
	}
	/* The values of the last size would take the place of those to come. */
	rc = b.keys && bench.size > WIRE_INLINE_MAX ? touch_all("delete", PHASE_DELETE) : CTL_OK;
	if (rc != CTL_OK)
		return rc;
	choose_numbers();
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
#define KEY_FORMAT "%.64s:%03x:%07x"

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
		ctl_say("bench kv: no memory for the keys");
		return CTL_FAILED;
	}
	return CTL_OK;
}

/* Connections of one thread share its queues. */
static int worker_open(struct bench_kv_worker *w)
{
	struct rdmad_options options;

	ctl_library_options(&options);
	options.eager_limit = b.eager_limit;
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
		struct bench_kv_worker *w = &b.worker[i];

		w->lane = &b.lane[next];
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
	b.idle = calloc(idle_clients, sizeof(*b.idle));
	for (uint64_t i = 0; b.idle && i < idle_clients; i++) {
		int rc = kv_open_options(bench.server, &options, share, &b.idle[i]);

		if (rc == -EUSERS && share) {
			share = NULL;
			rc = kv_open_options(bench.server, &options, share, &b.idle[i]);
		}
		if (rc != 0)
			return ctl_fail_open(rc, bench.server);
		if (!share)
			share = b.idle[i];
		if (ctl_interrupted())
			return CTL_INTERRUPTED;
	}
	return b.idle ? CTL_OK : CTL_FAILED;
}

static int set_up(void)
{
	int rc = CTL_OK;

	if (!prefix)
		make_prefix();
	b.lane = calloc(bench.clients, sizeof(*b.lane));
	b.worker = calloc(bench.threads, sizeof(*b.worker));
	if (!b.lane || !b.worker) {
		ctl_say("bench kv: no memory for %llu clients", (unsigned long long)bench.clients);
		return CTL_FAILED;
	}
	if (idle_clients)
		rc = open_idle();
	return rc == CTL_OK ? make_workers() : rc;
}

static void take_down(void)
{
	if (b.lane && b.worker)
		drop_text();
	for (uint64_t i = 0; b.lane && i < bench.clients; i++) {
		kv_close(b.lane[i].kv);
		free(b.lane[i].key);
		free(b.lane[i].stamp);
		free(b.lane[i].tickets);
	}
	for (uint64_t i = 0; b.idle && i < idle_clients; i++)
		kv_close(b.idle[i]);
	free(b.idle);
	free(b.lane);
	free(b.worker);
	memset(&b, 0, sizeof(b));
}

/* Delete the keys and end the connections. `rc` is the exit status so far. */
static int finish(int rc)
{
	if (b.keys && !b.lost && !keep && touch_all("delete", PHASE_DELETE) != CTL_OK && rc == CTL_OK)
		rc = CTL_FAILED;
	take_down();
	return rc;
}

/* The first one connects. */
static int next_round(void)
{
	int rc = b.lane ? CTL_OK : set_up();

	return rc == CTL_OK ? round_of_size(bench_report) : rc;
}

int bench_kv_once(const char *wanted_ops, uint32_t eager_limit, bench_report_fn *report)
{
	int rc;

	op_text = wanted_ops;
	b.eager_limit = eager_limit;
	rc = set_up();
	if (rc == CTL_OK)
		rc = round_of_size(report);
	return finish(rc);
}

static int command_bench(const struct ctl_arguments *arguments)
{
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(sizes_text, SIZE_LIMIT, sizes, ARRAY_SIZE(sizes));

	return finish(bench_rounds(arguments, sizes, (size_t)n, next_round));
}

const struct ctl_command ctl_bench_kv_commands[] = {
	{"bench kv", command_bench, "[HOST]", "measure the key/value store", bench_options, 0, 1},
	{NULL},
};
