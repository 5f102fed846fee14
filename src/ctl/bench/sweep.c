/*
 * sweep.c: sets, then gets, for sizes that double: the table of throughput by size. With --compare, sizes that fit a
 * message are also moved by RDMA read and write, to see from where on that is worth its round trip.
 *
 * Each size has connections and keys of its own, so that the daemon never holds more than one size.
 */
#include "ctl/ctl.h"
#include "wire/wire.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define KEY_BYTES 16        /* of the benchmark's keys */
#define HELD_MAX (24 * MIB) /* by the keys of all connections; as much again is under way */

enum { SET, GET, OPS };
/* SAME: as it comes; FORCED: by RDMA read and write, whatever the size. */
enum { SAME, FORCED, RUNS };

static uint64_t first = 1, last = MIB, clients = 4, depth = 32, duration = 500 * TIME_MS, warmup = 100 * TIME_MS;
static bool compare;
static const char *plot;

static int check_picture(const char *path)
{
	if (strcmp(path, "-") == 0 || ctl_file_ends(path, ".svg") || ctl_file_ends(path, ".png"))
		return 0;
	ctl_say("--plot %s: it is a .svg or .png file, or -", path);
	return -EINVAL;
}

static const struct ctl_option bench_options[] = {
	{"min", 'm', CTL_SIZE, &first, "SIZE", "size of the first values; default 1", .min = 1},
	{"max", 'M', CTL_SIZE, &last, "SIZE", "size of the last values; default 1M", .min = 1, .max = 1ull << 40},
	{"compare", 0, CTL_FLAG, &compare, NULL, "each size that can go both ways, eager and rendezvous"},
	{"plot", 'p', CTL_CHECKED, &plot, "FILE",
	 "draw the table: a .svg or .png file by gnuplot, or - for characters on stdout", .check = check_picture,
	 .choices = "@file"},
	{"depth", 'd', CTL_NUMBER, &depth, "N", "requests outstanding on each connection; default 32", .min = 1,
	 .max = 1024},
	{"clients", 'c', CTL_NUMBER, &clients, "N", "connections, fewer for large values; default 4", .min = 1,
	 .max = 1024},
	{"threads", 'T', CTL_NUMBER, &bench.threads, "N", "threads that share the connections; default 1", .min = 1,
	 .max = 256},
	{"duration", 'D', CTL_TIME, &duration, "TIME", "of each measurement; default 500ms", .min = TIME_MS,
	 .max = 86400 * TIME_S},
	{"warmup", 'w', CTL_TIME, &warmup, "TIME", "run this long before measuring; default 100ms",
	 .max = 86400 * TIME_S},
	{NULL},
};

/* The measurements at one size. */
struct cell {
	double rate, mib, p50; /* 0: not measured */
};

static struct {
	uint64_t size[BENCH_SIZES_MAX];
	struct cell cell[BENCH_SIZES_MAX][RUNS][OPS];
	const char *way[BENCH_SIZES_MAX][RUNS]; /* of the set; NULL: not measured */
	size_t sizes, at;
	int run;
	uint64_t threads; /* as wanted */
	json_t *rows;     /* NULL unless --json */
} s;

static void add_size(uint64_t size)
{
	if (s.sizes < BENCH_SIZES_MAX)
		s.size[s.sizes++] = size;
}

/* Choose sizes that double; to compare, also the largest that a message takes. */
static void choose_sizes(void)
{
	uint64_t largest = WIRE_EAGER_MAX - KEY_BYTES;

	for (uint64_t size = first; size <= last; size *= 2) {
		if (compare && size > largest && first <= largest && (!s.sizes || s.size[s.sizes - 1] < largest))
			add_size(largest);
		add_size(size);
	}
}

static void keep_result(const struct bench_result *r, const char *transport)
{
	int op = strcmp(r->op, "get") == 0 ? GET : SET;
	struct cell *cell = &s.cell[s.at][s.run][op];

	bench.transport = transport;
	if (!r->operations && !r->error)
		return; /* interrupted before it began */
	cell->rate = bench_per_second(r);
	cell->mib = cell->rate * (double)r->size / (double)MIB;
	cell->p50 = (double)histogram_percentile(&r->latency, 50) / 1e3;
	if (op == SET)
		s.way[s.at][s.run] = r->way;
	if (s.rows)
		json_array_append_new(s.rows, bench_result_json(r));
}

static int run_once(int run, const char *ops, uint32_t eager_limit)
{
	static bool headed;
	int rc;

	s.run = run;
	rc = bench_kv_once(ops, eager_limit, keep_result);
	if (s.rows || !s.way[s.at][s.run])
		return rc;
	if (!headed) {
		bench_print_head(bench.transport);
		printf("%9s %-10s %11s %10s %10s %11s %10s %10s\n", "bytes", "set by", "set/s", "MiB/s", "p50 us",
		       "get/s", "MiB/s", "p50 us");
		headed = true;
	}
	printf("%9llu %-10s", (unsigned long long)s.size[s.at], s.way[s.at][s.run]);
	for (int op = SET; op < OPS; op++) {
		const struct cell *cell = &s.cell[s.at][s.run][op];

		if (cell->rate > 0)
			printf(" %11.0f %10.2f %10.1f", cell->rate, cell->mib, cell->p50);
		else
			printf(" %11s %10s %10s", "-", "-", "-");
	}
	putchar('\n');
	ctl_flush();
	return rc;
}

/* Measure a size, to compare also its sets by RDMA. The answer to a get carries a value that fits in any case: gets are
 * measured once. */
static int run_size(void)
{
	int rc;

	bench.size = s.size[s.at];
	bench.clients = MAX(1ull, MIN(clients, HELD_MAX / bench.size));
	bench.threads = MIN(s.threads, bench.clients);
	rc = run_once(SAME, "set,get", 0);
	if (rc == CTL_OK && compare && !ctl_interrupted() && s.way[s.at][SAME] &&
	    strcmp(s.way[s.at][SAME], "eager") == 0)
		rc = run_once(FORCED, "set", 1);
	return rc;
}

uint64_t bench_crossover(const uint64_t *sizes, const double *eager, const double *rendezvous, size_t n)
{
	uint64_t from = 0;

	while (n--) {
		if (!(eager[n] > 0) || !(rendezvous[n] > 0))
			continue;
		if (rendezvous[n] < eager[n])
			break;
		from = sizes[n];
	}
	return from;
}

static uint64_t sizes_crossover(uint64_t *largest)
{
	double rate[RUNS][BENCH_SIZES_MAX];

	*largest = 0;
	for (size_t i = 0; i < s.sizes; i++) {
		for (int run = SAME; run < RUNS; run++)
			rate[run][i] = s.cell[i][run][SET].rate;
		if (s.way[i][FORCED])
			*largest = s.size[i];
	}
	return bench_crossover(s.size, rate[SAME], rate[FORCED], s.sizes);
}

static void print_crossover(void)
{
	uint64_t largest, from = sizes_crossover(&largest);

	if (!largest)
		printf("crossover: no size was measured both ways\n");
	else if (from)
		printf("crossover: a set by rendezvous is at least as fast from %llu bytes on\n",
		       (unsigned long long)from);
	else
		printf("crossover: none up to %llu bytes: an eager set is faster at the largest size that fits a "
		       "message\n",
		       (unsigned long long)largest);
}

/*
 * The picture.
 */
static void add_curve_point(struct plot_curve *curve, size_t i, const struct cell *cell)
{
	if (!(cell->mib > 0))
		return;
	curve->x[curve->n] = (double)s.size[i];
	curve->y[curve->n++] = cell->mib;
}

/* Make the curves; to compare, the sets have one for each way. */
static size_t make_curves(struct plot_curve curves[3])
{
	curves[0] = (struct plot_curve){.name = compare ? "set, eager" : "set", .mark = 's'};
	curves[1] = (struct plot_curve){.name = "get", .mark = 'g'};
	curves[2] = (struct plot_curve){.name = "set, rendezvous", .mark = 'r'};
	for (size_t i = 0; i < s.sizes; i++) {
		bool eager = s.way[i][SAME] && strcmp(s.way[i][SAME], "eager") == 0;

		add_curve_point(&curves[compare && !eager ? 2 : 0], i, &s.cell[i][SAME][SET]);
		add_curve_point(&curves[1], i, &s.cell[i][SAME][GET]);
		add_curve_point(&curves[2], i, &s.cell[i][FORCED][SET]);
	}
	return compare ? 3 : 2;
}

static int draw_plot(void)
{
	struct plot_curve *curves = calloc(3, sizeof(*curves));
	char title[256];
	int rc = CTL_OK;
	size_t n;

	if (!curves)
		return CTL_FAILED;
	n = make_curves(curves);
	snprintf(title, sizeof(title), "MiB/s by bytes of the values, %.100s, %s", bench.server, bench.transport);
	if (strcmp(plot, "-") == 0)
		plot_text(stdout, title, curves, n);
	else
		rc = plot_file(plot, title, curves, n);
	free(curves);
	return rc;
}

/* Report failures that would come at the end before minutes of measuring. */
static int check_plot(void)
{
	int fd;

	if (!plot)
		return CTL_OK;
	if (strcmp(plot, "-") == 0)
		return ctl.json ? ctl_usage_error("bench sweep: --plot - and --json both want stdout") : CTL_OK;
	if (plot_check() != CTL_OK)
		return CTL_FAILED;
	fd = open(plot, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0) {
		ctl_say("bench sweep: cannot write %s: %s", plot, strerror(errno));
		return CTL_FAILED;
	}
	close(fd);
	return CTL_OK;
}

static int command_bench(const struct ctl_arguments *arguments)
{
	uint64_t largest, from;
	int rc, drawn = CTL_OK;

	if (last < first)
		return ctl_usage_error("bench sweep: --max %llu is less than --min %llu", (unsigned long long)last,
				       (unsigned long long)first);
	bench.clients = clients;
	bench.depth = depth;
	bench.duration = duration;
	bench.warmup = warmup;
	s.threads = bench.threads;
	rc = bench_prepare(arguments);
	if (rc == CTL_OK)
		rc = check_plot();
	if (rc != CTL_OK)
		return rc;
	choose_sizes();
	s.rows = ctl.json ? json_array() : NULL;
	for (; s.at < s.sizes && rc == CTL_OK && !ctl_interrupted(); s.at++)
		rc = run_size();
	bench.clients = clients;
	bench.threads = s.threads;
	if (plot && bench.transport)
		drawn = draw_plot();
	if (compare && bench.transport && !s.rows)
		print_crossover();
	if (s.rows) {
		json_t *o = bench_summary(ctl_command_name(), s.rows);

		from = sizes_crossover(&largest);
		if (compare)
			json_object_set_new(o, "set_crossover_bytes",
					    from ? json_integer((json_int_t)from) : json_null());
		ctl_json_print(o);
	}
	if (rc == CTL_OK)
		rc = drawn;
	return rc == CTL_OK && ctl_interrupted() ? CTL_INTERRUPTED : rc;
}

const struct ctl_command ctl_bench_sweep_commands[] = {
	{"bench sweep", command_bench, "[HOST]", "throughput by size of the values", bench_options, 0, 1},
	{NULL},
};
