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
static int missing(void)
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
	return there ? CTL_OK : missing();
}

/* gnuplot's name of the format that the file's name asks for. */
static const char *terminal_of(const char *path)
{
	return ctl_file_ends(path, ".svg") ? "svg size 1000,600 background 'white'" : "pngcairo size 1000,600";
}

static void write_commands(FILE *out, const char *terminal, const char *title, const struct plot_curve *curves,
			   size_t n)
{
	fprintf(out, "set terminal %s\n", terminal);
	fputs("set logscale x 2\nset logscale y 10\nset format x '%.0b %BB'\nset grid\nset key left top\n"
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
		write_commands(commands, terminal_of(path), title, curves, n);
		rc = run_gnuplot(fileno(commands), fd);
		fclose(commands);
	} else if (fd >= 0) {
		rc = -errno;
	}
	if (fd >= 0)
		close(fd);
	if (rc == -ENOENT && fd >= 0)
		return missing();
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
struct range {
	double min, max;
};

static void widen(struct range *r, double value)
{
	r->min = MIN(r->min, value);
	r->max = MAX(r->max, value);
}

/* Which of `steps` places from the range's begin to its end. */
static int place(const struct range *r, double value, int steps)
{
	if (!(r->max > r->min))
		return 0;
	return (int)lround(log(value / r->min) / log(r->max / r->min) * (steps - 1));
}

static void put_curve(char grid[HEIGHT][WIDTH + 1], const struct plot_curve *curve, const struct range *x,
		      const struct range *y)
{
	for (size_t i = 0; i < curve->n; i++) {
		char *at = &grid[HEIGHT - 1 - place(y, curve->y[i], HEIGHT)][place(x, curve->x[i], WIDTH)];

		*at = *at == ' ' || *at == curve->mark ? curve->mark : '*';
	}
}

static void print_grid(FILE *out, char grid[HEIGHT][WIDTH + 1], const struct range *x, const struct range *y)
{
	char from[32], to[32];

	for (int row = 0; row < HEIGHT; row++) {
		double value = y->max * pow(y->min / y->max, (double)row / (HEIGHT - 1));
		size_t len = WIDTH;

		while (len && grid[row][len - 1] == ' ')
			len--; /* no blanks at a line's end */
		if (row % 4 == 0 || row == HEIGHT - 1)
			fprintf(out, "%10.4g |%.*s\n", value, (int)len, grid[row]);
		else
			fprintf(out, "%10s |%.*s\n", "", (int)len, grid[row]);
	}
	fprintf(out, "%10s +", "");
	for (int i = 0; i < WIDTH; i++)
		putc('-', out);
	fprintf(out, "\n%11s%s%*s\n", "", units_human_size(x->min, from), WIDTH + 1 - (int)strlen(from),
		units_human_size(x->max, to));
}

void plot_text(FILE *out, const char *title, const struct plot_curve *curves, size_t n)
{
	struct range x = {HUGE_VAL, 0}, y = {HUGE_VAL, 0};
	char grid[HEIGHT][WIDTH + 1];

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < curves[i].n; j++) {
			widen(&x, curves[i].x[j]);
			widen(&y, curves[i].y[j]);
		}
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
