/* plot.c: pictures of curves: by gnuplot, which is run as a child, or in characters. Both axes are logarithmic. */
#include "ctl/ctl.h"

#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIDTH 64
#define HEIGHT 18

extern char **environ;

/*
 * gnuplot. It reads its commands from a file and writes the picture to its stdout: no name needs quoting, and
 * neither side can wait for the other.
 */
static int fail_without_gnuplot(void)
{
	ctl_say("%s: there is no gnuplot to draw it; install the package gnuplot-nox, or use --plot -",
		ctl_command_name());
	return CTL_FAILED;
}

int plot_check(void)
{
	const char *path = getenv("PATH");
	char *copy = strdup(path ? path : "/usr/bin:/bin"), *next = copy, *dir, name[4096];
	bool there = false;

	while (copy && !there && (dir = strsep(&next, ":"))) {
		snprintf(name, sizeof(name), "%s/gnuplot", *dir ? dir : ".");
		there = access(name, X_OK) == 0;
	}
	free(copy);
	return there ? CTL_OK : fail_without_gnuplot();
}

struct range {
	double min, max;
};

static void range_widen(struct range *r, double value)
{
	r->min = MIN(r->min, value);
	r->max = MAX(r->max, value);
}

/* The greatest number of one, two or five times a power of ten that is at most the value. */
static double round_down(double value)
{
	double ten = pow(10, floor(log10(value) + 1e-9)), digit = value / ten + 1e-9;

	return ten * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
}

static double round_up(double value)
{
	double below = round_down(value), ten = pow(10, floor(log10(below) + 1e-9));

	if (below >= value * (1 - 1e-9))
		return below;
	return ten * (below / ten < 1.5 ? 2 : below / ten < 2.5 ? 5 : 10);
}

/* Find the ranges of the curves; those of the rates begin and end at round numbers. */
static void curve_ranges(const struct plot_curve *curves, size_t n, struct range *x, struct range *y)
{
	*x = *y = (struct range){HUGE_VAL, 0};
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < curves[i].n; j++) {
			range_widen(x, curves[i].x[j]);
			range_widen(y, curves[i].y[j]);
		}
	if (!(y->max > 0))
		return;
	y->min = round_down(y->min);
	y->max = round_up(y->max);
	if (y->min == y->max)
		y->max = round_up(y->max * 1.1);
}

/* The sizes as rdmactl takes them, 4K, some dozen at most. */
static void write_tics(FILE *out, const struct range *x)
{
	double step = 2;
	char text[32];

	while (log(x->max / x->min) / log(step) > 12)
		step *= 2;
	fputs("set xtics (", out);
	for (double at = x->min; at <= x->max; at *= step)
		fprintf(out, "%s'%s' %.17g", at > x->min ? ", " : "", units_format_size((uint64_t)at, text), at);
	fputs(")\n", out);
	if (x->max > x->min) /* a trifle more, or the last label may be beyond the end */
		fprintf(out, "set xrange [%.17g:%.17g]\n", x->min, x->max * 1.001);
}

static void write_commands(FILE *out, const char *terminal, const char *title, const struct plot_curve *curves,
			   size_t n)
{
	struct range x, y;

	curve_ranges(curves, n, &x, &y);
	fprintf(out, "set terminal %s\n", terminal);
	if (y.max > 0) {
		fprintf(out, "set yrange [%.17g:%.17g]\n", y.min, y.max);
		write_tics(out, &x);
	}
	fputs("set logscale x 2\nset logscale y 10\nset grid\nset key left top\n"
	      "set xlabel 'bytes'\nset ylabel 'MiB/s'\nset title '",
	      out);
	for (; *title; title++) /* '' is one ' within '...' */
		fprintf(out, *title == '\'' ? "''" : "%c", *title);
	fputs("' noenhanced\nplot ", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s'-' using 1:2 with linespoints title '%s'", i ? ", " : "", curves[i].name);
	putc('\n', out);
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < curves[i].n; j++)
			fprintf(out, "%.17g %.17g\n", curves[i].x[j], curves[i].y[j]);
		fputs("e\n", out);
	}
	fflush(out);
	rewind(out);
}

/* 0, or a negative errno: gnuplot did not start, or -EIO: it failed, and said why. */
static int run_gnuplot(int in, int out)
{
	char *argv[] = {(char *)"gnuplot", NULL};
	posix_spawn_file_actions_t actions;
	int rc, status = 0;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	rc = posix_spawnp(&pid, "gnuplot", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (rc != 0)
		return -rc;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int plot_file(const char *path, const char *title, const struct plot_curve *curves, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), rc = -errno;
	FILE *commands = fd < 0 ? NULL : tmpfile();

	if (commands) {
		bool svg = ctl_file_ends(path, ".svg");

		write_commands(commands, svg ? "svg size 1000,600 background 'white'" : "pngcairo size 1000,600", title,
			       curves, n);
		rc = run_gnuplot(fileno(commands), fd);
		fclose(commands);
	} else if (fd >= 0) {
		rc = -errno;
	}
	if (fd >= 0)
		close(fd);
	if (rc == -ENOENT && fd >= 0)
		return fail_without_gnuplot();
	if (rc != 0) {
		ctl_say("%s: cannot draw %s: %s", ctl_command_name(), path,
			rc == -EIO ? "gnuplot failed" : strerror(-rc));
		return CTL_FAILED;
	}
	return CTL_OK;
}

/*
 * In characters.
 */

/* Find which of `steps` places from the range's begin to its end a value has. */
static int range_place(const struct range *r, double value, int steps)
{
	if (!(r->max > r->min))
		return 0;
	return (int)lround(log(value / r->min) / log(r->max / r->min) * (steps - 1));
}

static void put_curve(char grid[HEIGHT][WIDTH + 1], const struct plot_curve *curve, const struct range *x,
		      const struct range *y)
{
	for (size_t i = 0; i < curve->n; i++) {
		char *at = &grid[HEIGHT - 1 - range_place(y, curve->y[i], HEIGHT)][range_place(x, curve->x[i], WIDTH)];

		*at = *at == ' ' || *at == curve->mark ? curve->mark : '*';
	}
}

/* Label the ends of the axis, and `digit` times each power of ten, unless there is a label beside it. */
static void put_labels(double label[HEIGHT], const struct range *y, int digit)
{
	label[0] = y->max;
	label[HEIGHT - 1] = y->min;
	for (double at = digit * pow(10, floor(log10(y->min))); at < y->max; at *= 10) {
		int row = at > y->min ? HEIGHT - 1 - range_place(y, at, HEIGHT) : 0;

		if (row > 1 && row < HEIGHT - 2 && !(label[row - 1] > 0) && !(label[row] > 0) && !(label[row + 1] > 0))
			label[row] = at;
	}
}

static void print_grid(FILE *out, char grid[HEIGHT][WIDTH + 1], const struct range *x, const struct range *y)
{
	double label[HEIGHT] = {0};
	char from[32], to[32], value[32];

	put_labels(label, y, 1);
	put_labels(label, y, 5);
	put_labels(label, y, 2);
	for (int row = 0; row < HEIGHT; row++) {
		size_t len = WIDTH;

		while (len && grid[row][len - 1] == ' ')
			len--; /* no blanks at a line's end */
		snprintf(value, sizeof(value), "%g", label[row]);
		fprintf(out, "%10s |%.*s\n", label[row] > 0 ? value : "", (int)len, grid[row]);
	}
	fprintf(out, "%10s +", "");
	for (int i = 0; i < WIDTH; i++)
		putc('-', out);
	fprintf(out, "\n%11s%s%*s bytes\n", "", units_format_size((uint64_t)x->min, from),
		WIDTH + 1 - (int)strlen(from), units_format_size((uint64_t)x->max, to));
}

void plot_text(FILE *out, const char *title, const struct plot_curve *curves, size_t n)
{
	char grid[HEIGHT][WIDTH + 1];
	struct range x, y;

	curve_ranges(curves, n, &x, &y);
	if (!(x.max > 0) || !(y.max > 0))
		return; /* nothing was measured */
	memset(grid, ' ', sizeof(grid));
	for (size_t i = 0; i < n; i++)
		put_curve(grid, &curves[i], &x, &y);
	fprintf(out, "\n%s\n", title);
	print_grid(out, grid, &x, &y);
	fprintf(out, "%11s", "");
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%c %s, ", curves[i].mark, curves[i].name);
	fputs("* several\n", out);
}
