/* look.c: files below the root and the output of programs, which go into the bundle, too. */
#include "ctl/doctor/doctor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_TIMEOUT (60 * TIME_S) /* rdmad -t tries its devices, on a busy machine for long */

static char *path_of(struct look *look, const char *format, va_list args, const char **name)
	__attribute__((format(printf, 2, 0)));
static char *text_of(struct look *look, size_t *len, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

/* The path below the root: free() it. *name is the path without the root, for the bundle. */
static char *path_of(struct look *look, const char *format, va_list args, const char **name)
{
	char *tail, *path;
	int n = vasprintf(&tail, format, args);

	if (n < 0)
		return NULL;
	n = asprintf(&path, "%s%s", look->root, tail);
	free(tail);
	if (n < 0)
		return NULL;
	*name = path + strlen(look->root);
	return path;
}

/* All of a descriptor until its end or LOOK_MAX or `until`, which is read to its end all the same. */
static char *read_all(int fd, uint64_t until, size_t *len)
{
	char *text = malloc(LOOK_MAX + 1), rest[4096];
	ssize_t got = 1;

	*len = 0;
	while (text && got > 0) {
		struct pollfd in = {.fd = fd, .events = POLLIN};
		bool full = *len == LOOK_MAX;
		uint64_t now = time_now();

		if (until != TIME_NEVER && (now >= until || poll(&in, 1, (int)((until - now) / TIME_MS) + 1) == 0))
			break;
		got = read(fd, full ? rest : text + *len, full ? sizeof(rest) : LOOK_MAX - *len);
		if (got < 0 && errno == EINTR)
			got = 1;
		else if (got < 0 && !*len)
			goto err_text;
		else if (got > 0 && !full)
			*len += (size_t)got;
	}
	if (text)
		text[*len] = '\0';
	return text;

err_text:
	got = errno;
	free(text);
	errno = (int)got;
	return NULL;
}

static void trim_end(char *text, size_t len)
{
	while (len && strchr(" \t\n", text[len - 1]))
		text[--len] = '\0';
}

static char *text_of(struct look *look, size_t *len, const char *format, va_list args)
{
	const char *name;
	char *path = path_of(look, format, args, &name), *text = NULL;
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1, error;

	if (fd >= 0) {
		text = read_all(fd, TIME_NEVER, len);
		error = errno;
		close(fd);
		if (text && look->into)
			bundle_add(look->into, name, text, *len);
		errno = error;
	}
	free(path);
	return text;
}

char *look_bytes(struct look *look, size_t *len, const char *format, ...)
{
	va_list args;
	char *text;
	size_t n;

	va_start(args, format);
	text = text_of(look, &n, format, args);
	va_end(args);
	if (text && len)
		*len = n;
	else if (text)
		trim_end(text, n);
	return text;
}

bool look_line(struct look *look, char *buf, size_t size, const char *format, ...)
{
	va_list args;
	char *text;
	size_t len;

	va_start(args, format);
	text = text_of(look, &len, format, args);
	va_end(args);
	snprintf(buf, size, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
	trim_end(buf, strlen(buf));
	free(text);
	return text != NULL;
}

bool look_number(struct look *look, uint64_t *out, const char *format, ...)
{
	va_list args;
	char *text, *end;
	size_t len;
	bool there;

	va_start(args, format);
	text = text_of(look, &len, format, args);
	va_end(args);
	if (!text)
		return false;
	*out = strtoull(text, &end, 10);
	there = end > text && *text != '-';
	free(text);
	return there;
}

bool look_there(struct look *look, const char *format, ...)
{
	const char *name;
	struct stat st;
	va_list args;
	char *path;
	bool there;

	va_start(args, format);
	path = path_of(look, format, args, &name);
	va_end(args);
	there = path && stat(path, &st) == 0;
	if (there && look->into)
		bundle_add(look->into, name, S_ISDIR(st.st_mode) ? NULL : "", 0);
	free(path);
	return there;
}

static int no_dots(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

char *look_names(struct look *look, const char *format, ...)
{
	struct dirent **entry;
	char *path, *names = NULL, *to;
	size_t room = 1;
	const char *name;
	va_list args;
	int n;

	va_start(args, format);
	path = path_of(look, format, args, &name);
	va_end(args);
	n = path ? scandir(path, &entry, no_dots, versionsort) : -1;
	free(path);
	if (n < 0)
		return NULL;
	for (int i = 0; i < n; i++)
		room += strlen(entry[i]->d_name) + 1;
	names = to = malloc(room);
	for (int i = 0; i < n; i++) {
		if (names)
			to = stpcpy(to, entry[i]->d_name) + 1;
		free(entry[i]);
	}
	if (names)
		*to = '\0';
	free(entry);
	return names;
}

/* The name of an output's file. */
static char *program_name(const char *const *arguments, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(buf, size, "/programs/");

	for (unsigned i = 0; arguments[i] && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? " " : "", arguments[i]);
	for (char *p = buf + strlen("/programs/"); *p; p++)
		if (strchr("/ ", *p))
			*p = '_';
	return buf;
}

/* Start it with both outputs at `out`. Its id, or -1. */
static pid_t program_start(const char *const *arguments, int out)
{
	posix_spawn_file_actions_t actions;
	pid_t child = -1;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
	if (posix_spawnp(&child, arguments[0], &actions, NULL, (char *const *)arguments, environ) != 0)
		child = -1;
	posix_spawn_file_actions_destroy(&actions);
	return child;
}

static char *program_run(const char *const *arguments, size_t *len, int *status)
{
	int pipes[2], ended = 0;
	char *text = NULL;
	pid_t child;

	*status = 127;
	if (pipe2(pipes, O_CLOEXEC) != 0)
		return NULL;
	child = program_start(arguments, pipes[1]);
	close(pipes[1]);
	if (child > 0) {
		text = read_all(pipes[0], time_now() + PROGRAM_TIMEOUT, len);
		if (waitpid(child, &ended, WNOHANG) == 0) {
			struct timespec grace = {.tv_nsec = (long)(100 * TIME_MS)};

			nanosleep(&grace, NULL); /* its output has ended, it itself as a rule, too */
			if (waitpid(child, &ended, WNOHANG) == 0) {
				kill(child, SIGKILL);
				waitpid(child, &ended, 0);
			}
		}
		*status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128;
	}
	close(pipes[0]);
	return text;
}

char *look_program(struct look *look, const char *const *arguments, int *status)
{
	char name[512], *text;
	size_t len = 0;

	program_name(arguments, name, sizeof(name));
	if (*look->root) {
		text = look_text(look, "%s", name);
		*status = text ? 0 : 127;
		return text;
	}
	text = program_run(arguments, &len, status);
	if (text && look->into && *status == 0)
		bundle_add(look->into, name, text, len);
	if (text)
		trim_end(text, len);
	return text;
}
