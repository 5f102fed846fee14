/* top.c: what the daemon of this machine does now, from the differences between two looks at it. */
#include "ctl/watch/watch.h"

#include <stdlib.h>

/* A connection of the last look, and what it had moved by the look before. */
struct row {
	uint64_t id, age, flight;
	uint64_t now[4], before[4]; /* by enum traffic */
	const char *address, *transport, *service, *key;
};

enum traffic { REQUESTS, ANSWERS, IN, OUT };
static const char *const traffic[] = {"records_in", "records_out", "in_bytes", "out_bytes"};

struct look {
	json_t *status, *memory, *connections;
	struct row *row; /* by id; texts are those of `connections` */
	size_t rows;
	uint64_t at;       /* time_now() */
	uint64_t answered; /* ns, until all workers had told of themselves */
};

static const char *delay = "1", *sort = "requests";
static struct watch_times times;

/*
 * The order of the connections
 */
static uint64_t rate_of(const struct row *row, enum traffic of)
{
	return row->now[of] - MIN(row->before[of], row->now[of]);
}

static uint64_t by_requests(const struct row *row)
{
	return rate_of(row, REQUESTS);
}

static uint64_t by_in(const struct row *row)
{
	return rate_of(row, IN);
}

static uint64_t by_out(const struct row *row)
{
	return rate_of(row, OUT);
}

static uint64_t by_flight(const struct row *row)
{
	return row->flight;
}

static uint64_t by_age(const struct row *row)
{
	return row->age;
}

static uint64_t by_id(const struct row *row)
{
	return UINT64_MAX - row->id; /* the least is the first */
}

/* The key that is pressed begins the name. */
static const struct order {
	const char *name;
	uint64_t (*of)(const struct row *row);
} orders[] = {
	{"requests", by_requests}, {"in", by_in},   {"out", by_out},
	{"flight", by_flight},     {"age", by_age}, {"number", by_id},
};
#define ORDERS "requests in out flight age number"

static const struct order *order = orders;

static int check_sort(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
		if (strcmp(orders[i].name, text) == 0) {
			order = &orders[i];
			return 0;
		}
	ctl_say("--sort %s: one of " ORDERS, text);
	return -EINVAL;
}

static int compare_rows(const void *a, const void *b)
{
	const struct row *one = a, *other = b;
	uint64_t x = order->of(one), y = order->of(other);

	if (x != y)
		return x < y ? 1 : -1;
	return (one->id > other->id) - (one->id < other->id);
}

static int compare_ids(const void *a, const void *b)
{
	const struct row *one = a, *other = b;

	return (one->id > other->id) - (one->id < other->id);
}

/*
 * Looks
 */
struct top {
	struct look look[2];
	unsigned last; /* of them */
};

static uint64_t member_number(const json_t *object, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(object, name));
}

static const char *member_text(const json_t *object, const char *name)
{
	const char *s = json_string_value(json_object_get(object, name));

	return s ? s : "-";
}

static void look_free(struct look *look)
{
	json_decref(look->status);
	json_decref(look->memory);
	json_decref(look->connections);
	free(look->row);
	*look = (struct look){.rows = 0};
}

/* Rows of the connections; a connection that was there before has what it had then. */
static int rows_make(struct look *look, const struct look *before)
{
	const json_t *list = json_object_get(look->connections, "connections");
	struct row *row = calloc(json_array_size(list) + 1, sizeof(*row));

	if (!row)
		return ctl_fail(-ENOMEM, "no memory", "%s", ctl_command_name());
	look->row = row;
	look->rows = json_array_size(list);
	for (size_t i = 0; i < look->rows; i++, row++) {
		const json_t *c = json_array_get(list, i);
		const struct row *old;

		row->id = member_number(c, "id");
		row->age = member_number(c, "age_seconds");
		row->flight = member_number(c, "in_flight");
		row->address = member_text(c, "peer");
		row->transport = member_text(c, "transport");
		row->service = member_text(c, "service");
		row->key = member_text(c, "key");
		old = before->rows ? bsearch(row, before->row, before->rows, sizeof(*row), compare_ids) : NULL;
		for (size_t k = 0; k < ARRAY_SIZE(traffic); k++) {
			row->now[k] = member_number(c, traffic[k]);
			row->before[k] = old ? old->now[k] : 0;
		}
	}
	qsort(look->row, look->rows, sizeof(*row), compare_ids);
	return CTL_OK;
}

static int look_now(void *arg)
{
	struct top *top = arg;
	struct look *look = &top->look[!top->last];
	uint64_t begun = time_now();
	int rc;

	look_free(look);
	rc = ctl_control_ask("connections", &look->connections);
	look->at = time_now();
	look->answered = look->at - begun;
	if (rc == CTL_OK)
		rc = ctl_control_ask("status", &look->status);
	if (rc == CTL_OK)
		rc = ctl_control_ask("memory", &look->memory);
	if (rc == CTL_OK)
		rc = rows_make(look, &top->look[top->last]);
	if (rc == CTL_OK)
		top->last = !top->last;
	else
		look_free(look);
	return rc;
}

static const struct look *last_of(const struct top *top)
{
	return &top->look[top->last];
}

static double seconds_of(const struct top *top)
{
	const struct look *last = last_of(top), *before = &top->look[!top->last];

	return before->at ? (double)(last->at - before->at) / (double)TIME_S : 0;
}

/* How much a counter of an object of the status rises a second. A daemon that began anew counts from 0. */
static double per_second(const struct top *top, const char *object, const char *name)
{
	uint64_t now = member_number(json_object_get(last_of(top)->status, object), name);
	uint64_t before = member_number(json_object_get(top->look[!top->last].status, object), name);
	double seconds = seconds_of(top);

	return seconds > 0 && now > before ? (double)(now - before) / seconds : 0;
}

/* Requests a second that the connections of a service ask for now. */
static double requests_of(const struct top *top, const char *service)
{
	const struct look *look = last_of(top);
	double seconds = seconds_of(top);
	uint64_t sum = 0;

	for (size_t i = 0; i < look->rows; i++)
		if (strcmp(look->row[i].service, service) == 0)
			sum += rate_of(&look->row[i], REQUESTS);
	return seconds > 0 ? (double)sum / seconds : 0;
}

static uint64_t in_flight(const struct look *look)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < look->rows; i++)
		sum += look->row[i].flight;
	return sum;
}

/*
 * For people
 */
static void put_totals(const struct top *top, FILE *out)
{
	const struct look *look = last_of(top);
	char in[32], to[32];

	fprintf(out, "connections %zu  requests %.0f/s  answers %.0f/s  in %s/s  out %s/s  in flight %llu", look->rows,
		per_second(top, "counters", "records_in"), per_second(top, "counters", "records_out"),
		units_human_size(per_second(top, "counters", "in_bytes"), in),
		units_human_size(per_second(top, "counters", "out_bytes"), to), (unsigned long long)in_flight(look));
}

static void put_memory(const struct top *top, FILE *out)
{
	const json_t *memory = last_of(top)->memory, *store = json_object_get(memory, "store");
	char resident[32], buffers[32], used[32], all[32];

	fprintf(out, "memory %s  buffers %s",
		units_human_size((double)member_number(memory, "resident_bytes"), resident),
		units_human_size((double)member_number(memory, "buffer_bytes"), buffers));
	if (member_number(store, "total_bytes"))
		fprintf(out, "  store %s of %s  keys %llu  evictions %.0f/s",
			units_human_size((double)member_number(store, "used_bytes"), used),
			units_human_size((double)member_number(store, "total_bytes"), all),
			(unsigned long long)member_number(store, "items"), per_second(top, "store", "evictions"));
}

/* Rows of each service, without what stands in the totals. */
static bool is_of_service(const char *name)
{
	static const char *const prefixes[] = {"ping", "kv_", "gpu_", "channel_", "peer_", "memcached_"};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0 && !strstr(name, "bytes"))
			return true;
	return false;
}

static void put_services(const struct top *top, FILE *out)
{
	double resp = requests_of(top, "resp"); /* of whose commands the status has no counters */
	const char *name, *gap = "";
	json_t *value;

	json_object_foreach(json_object_get(last_of(top)->status, "counters"), name, value)
	{
		double rate = is_of_service(name) ? per_second(top, "counters", name) : 0;

		if (rate > 0) {
			fprintf(out, "%s%s %.0f/s", gap, name, rate);
			gap = "  ";
		}
	}
	if (resp > 0)
		fprintf(out, "%sresp %.0f/s", gap, resp);
	fputs(*gap || resp > 0 ? "\n" : "no service is asked for anything\n", out);
}

static void put_connections(const struct top *top, FILE *out)
{
	const struct look *look = last_of(top);
	struct row *sorted = calloc(look->rows + 1, sizeof(*sorted));
	double seconds = seconds_of(top);
	struct ctl_table table;
	unsigned rows, columns;

	static const char *const titles[] = {"id",    "address",   "transport", "service", "key",      "age",
					     "req/s", "answers/s", "in/s",      "out/s",   "in flight"};

	screen_size(&rows, &columns);
	ctl_table_init(&table);
	for (size_t i = 0; i < ARRAY_SIZE(titles); i++)
		ctl_table_column(&table, titles[i], i == 0 || i > 4);
	if (sorted)
		memcpy(sorted, look->row, look->rows * sizeof(*sorted));
	if (sorted)
		qsort(sorted, look->rows, sizeof(*sorted), compare_rows);
	for (size_t i = 0; sorted && i < MIN(look->rows, (size_t)rows); i++) {
		const struct row *r = &sorted[i];
		char age[32], in[32], to[32];
		double each = seconds > 0 ? 1 / seconds : 0;

		ctl_table_cell(&table, "%llu", (unsigned long long)r->id);
		ctl_table_cell(&table, "%s", r->address);
		ctl_table_cell(&table, "%s", r->transport);
		ctl_table_cell(&table, "%s", r->service);
		ctl_table_cell(&table, "%s", r->key);
		ctl_table_cell(&table, "%s", ctl_clock_text(r->age, age));
		ctl_table_cell(&table, "%.0f", (double)rate_of(r, REQUESTS) * each);
		ctl_table_cell(&table, "%.0f", (double)rate_of(r, ANSWERS) * each);
		ctl_table_cell(&table, "%s", units_human_size((double)rate_of(r, IN) * each, in));
		ctl_table_cell(&table, "%s", units_human_size((double)rate_of(r, OUT) * each, to));
		ctl_table_cell(&table, "%llu", (unsigned long long)r->flight);
	}
	ctl_table_print(out, &table, 0);
	ctl_table_destroy(&table);
	free(sorted);
}

static void draw_top(void *arg, FILE *out)
{
	const struct top *top = arg;
	const struct look *look = last_of(top);
	char up[32];

	fprintf(out, "rdmad %s  pid %llu  up %s  %s  workers %llu, all of which answered in %.2f ms\n",
		member_text(look->status, "version"), (unsigned long long)member_number(look->status, "pid"),
		ctl_clock_text(member_number(look->status, "uptime_seconds"), up), member_text(look->status, "state"),
		(unsigned long long)member_number(look->status, "workers"), (double)look->answered / 1e6);
	put_totals(top, out);
	putc('\n', out);
	put_services(top, out);
	put_memory(top, out);
	fprintf(out, "\nsorted by %s; keys: requests in out flight age number, by their first letter; q leaves\n\n",
		order->name);
	put_connections(top, out);
}

static void line_top(void *arg, FILE *out)
{
	const struct top *top = arg;
	char now[32];

	fprintf(out, "%s  ", watch_time_text(time(NULL), now));
	put_totals(top, out);
	fputs("  ", out);
	put_memory(top, out);
	fprintf(out, "  answered in %.2f ms\n", (double)last_of(top)->answered / 1e6);
}

static void top_key(void *arg, int key)
{
	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
		if (orders[i].name[0] == key)
			order = &orders[i];
}

/*
 * For programs
 */
static json_t *rates_json(const struct top *top, const char *object)
{
	json_t *rates = json_object(), *value;
	const char *name;

	json_object_foreach(json_object_get(last_of(top)->status, object), name, value)
	{
		double rate = per_second(top, object, name);
		char key[128];

		if (rate <= 0)
			continue;
		snprintf(key, sizeof(key), "%s_per_second", name);
		json_object_set_new(rates, key, json_real(rate));
	}
	return rates;
}

static json_t *connections_json(const struct top *top)
{
	const struct look *look = last_of(top);
	json_t *list = json_object_get(look->connections, "connections"), *c;
	double seconds = seconds_of(top);
	size_t i;

	json_array_foreach(list, i, c)
	{
		struct row key = {.id = member_number(c, "id")};
		const struct row *row = bsearch(&key, look->row, look->rows, sizeof(key), compare_ids);

		for (size_t k = 0; row && k < ARRAY_SIZE(traffic); k++) {
			char name[64];

			snprintf(name, sizeof(name), "%s_per_second", traffic[k]);
			json_object_set_new(c, name, json_real(seconds > 0 ? (double)rate_of(row, k) / seconds : 0));
		}
	}
	return json_incref(list);
}

static json_t *json_of_top(void *arg)
{
	const struct top *top = arg;
	const struct look *look = last_of(top);

	return json_pack("{s:I, s:f, s:f, s:I, s:O, s:o, s:o, s:O, s:o}", "time_seconds", (json_int_t)time(NULL),
			 "interval_seconds", seconds_of(top), "answered_us", (double)look->answered / 1e3, "in_flight",
			 (json_int_t)in_flight(look), "state", json_object_get(look->status, "state"), "counters",
			 rates_json(top, "counters"), "store", rates_json(top, "store"), "memory", look->memory,
			 "connections", connections_json(top));
}

static const struct ctl_option options[] = {
	{"delay", 'd', CTL_CHECKED, &delay, "SECONDS", "between two looks; default 1", .check = watch_every_check},
	{"count", 'c', CTL_NUMBER, &times.count, "COUNT", "end after so many looks", .min = 1},
	{"sort", 's', CTL_CHECKED, &sort, "WHAT", "the order: " ORDERS, .check = check_sort, .choices = ORDERS},
	{NULL},
};

static int command_top(const struct ctl_arguments *arguments)
{
	struct top top = {.last = 0};
	struct watch_view view = {
		.look = look_now,
		.draw = draw_top,
		.line = line_top,
		.json = json_of_top,
		.key = top_key,
		.compares = true,
		.arg = &top,
	};
	int rc;

	(void)arguments;
	times.every = watch_every(delay);
	rc = watch_run(&view, &times);
	look_free(&top.look[0]);
	look_free(&top.look[1]);
	return rc;
}

const struct ctl_command ctl_top_commands[] = {
	{"top", command_top, "", "what the daemon does now, and for which clients", options, .local = true},
	{NULL},
};
