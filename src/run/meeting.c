/* meeting.c: an rdmad with the peer service alone, for one run. */
#include "run/run.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_LIMIT (60 * TIME_S) /* of rdmad */

int meeting_prepare(struct meeting *meeting)
{
	const char *place = getenv("TMPDIR");
	uint64_t number;
	int length;

	*meeting = (struct meeting){.log = -1};
	if (run_options.meeting) {
		if (strcmp(run_options.meeting, "none") != 0)
			snprintf(meeting->url, sizeof(meeting->url), "%s", run_options.meeting);
		return 0;
	}
	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return -EIO;
	length = snprintf(meeting->directory, sizeof(meeting->directory), "%s/rdmarun.%012llx",
			  place && *place ? place : "/tmp", (unsigned long long)number >> 16);
	if (length < (int)sizeof(meeting->directory))
		return 0;
	/* Cut, it would be another directory, and the guard would empty that. */
	meeting->directory[0] = '\0';
	run_say("TMPDIR is too long: %s", place);
	return -ENAMETOOLONG;
}

static int make_directory(const struct meeting *meeting)
{
	if (mkdir(meeting->directory, 0700) == 0)
		return 0;
	run_say("cannot make the directory %s: %s", meeting->directory, strerror(errno));
	return -errno;
}

/* Beside rdmarun in a build folder, or where the same `make install` put it; else by PATH. */
static const char *find_daemon(char *path, size_t size)
{
	static const char *const places[] = {"rdmad", "../sbin/rdmad"};
	ssize_t length = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (run_options.rdmad)
		return run_options.rdmad;
	path[MAX(length, 0)] = '\0';
	slash = strrchr(path, '/');
	for (size_t i = 0; slash && i < ARRAY_SIZE(places); i++) {
		snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s", places[i]);
		if (access(path, X_OK) == 0)
			return path;
	}
	return "rdmad";
}

/* All addresses where other hosts take part, else a UNIX socket that only this user reaches. It sleeps rather than polls: the
 * processors are the ranks'. */
static int write_configuration(const struct meeting *meeting, const char *path, unsigned ranks, bool remote)
{
	FILE *file = fopen(path, "wxe");
	bool failed;

	if (!file) {
		run_say("cannot write %s: %s", path, strerror(errno));
		return -errno;
	}
	fprintf(file,
		"listen = [%s];\nunix_socket = \"%s/rdmad.sock\";\ncontrol = { socket = \"%s/control.sock\"; };\n"
		"services = [\"peer\"];\nworkers = 1;\npoll = \"0\";\nmax_connections = %u;\n"
		"max_connections_per_source = %u;\npeer = { members = %u; };\nlog = { level = \"info\"; };\n",
		remote ? "\"tcp://0.0.0.0:0\"" : "", meeting->directory, meeting->directory, 2 * ranks + 64,
		2 * ranks + 64, MAX(ranks, 2u));
	failed = ferror(file) != 0;
	if (fclose(file) == 0 && !failed)
		return 0;
	run_say("cannot write %s: %s", path, strerror(errno));
	return -EIO;
}

static int start_daemon(struct meeting *meeting, const char *config)
{
	char path[1024];
	const char *program = find_daemon(path, sizeof(path));
	char *argv[] = {(char *)program, "-c", (char *)config, NULL};
	struct child child = {.argv = argv};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), theirs = -1, rc;

	rc = null < 0 ? -errno : child_pipe(0, &meeting->log, &theirs);
	child.fd[0] = child.fd[1] = null;
	child.fd[2] = theirs;
	if (rc == 0)
		rc = child_start(&child, "the meeting point");
	if (rc == 0) {
		meeting->daemon = child.pid;
		guard_add(child.pid);
		run_note("the meeting point: process %d: %s -c %s", (int)child.pid, program, config);
	}
	if (null >= 0)
		close(null);
	if (theirs >= 0)
		close(theirs);
	return rc;
}

/* "info rdmad: listening on tcp 0.0.0.0:40123" */
static void take_port(struct meeting *meeting, const char *line)
{
	const char *port = strstr(line, "listening on tcp ") ? strrchr(line, ':') : NULL;
	char name[256] = "localhost";

	if (!port)
		return;
	gethostname(name, sizeof(name) - 1);
	snprintf(meeting->url, sizeof(meeting->url), "tcp://%s:%s", run_options.address ? run_options.address : name,
		 port + 1);
}

/* True: it is ready. Its warnings are the user's to know. */
static bool take_line(struct meeting *meeting, const char *line)
{
	if (strncmp(line, "warn ", 5) == 0 || strncmp(line, "error ", 6) == 0)
		run_say("the meeting point: %s", line);
	else
		run_note("the meeting point: %s", line);
	take_port(meeting, line);
	return strstr(line, "rdmad: ready") != NULL;
}

/* 1: ready; 0: not yet; -EPIPE: it has ended. */
static int read_log(struct meeting *meeting)
{
	char piece[4096], *feed;
	ssize_t n = read(meeting->log, piece, sizeof(piece));
	int rc = 0;

	if (n == 0)
		return -EPIPE;
	if (n < 0 || run_append(&meeting->said, &meeting->used, &meeting->room, piece, (size_t)n) != 0)
		return 0;
	while ((feed = memchr(meeting->said, '\n', meeting->used))) {
		size_t length = (size_t)(feed - meeting->said);

		*feed = '\0';
		if (take_line(meeting, meeting->said))
			rc = 1;
		meeting->used -= length + 1;
		memmove(meeting->said, feed + 1, meeting->used);
	}
	return rc;
}

void meeting_read(struct meeting *meeting)
{
	if (read_log(meeting) != -EPIPE)
		return;
	close(meeting->log);
	meeting->log = -1;
}

/* There are no ranks yet to which a signal could be passed on. */
static int take_signal(struct meeting *meeting, int signals)
{
	struct signalfd_siginfo info;

	if (read(signals, &info, sizeof(info)) != (ssize_t)sizeof(info) || info.ssi_signo == SIGCHLD ||
	    info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)
		return 0;
	meeting->signal = (int)info.ssi_signo;
	return -EINTR;
}

static int await_daemon(struct meeting *meeting, int signals, uint64_t until)
{
	uint64_t now;
	int rc = 0;

	while (rc == 0 && (now = time_now()) < until) {
		struct pollfd in[] = {{.fd = meeting->log, .events = POLLIN}, {.fd = signals, .events = POLLIN}};

		if (poll(in, 2, (int)((until - now) / TIME_MS) + 1) <= 0)
			continue;
		if (in[1].revents)
			rc = take_signal(meeting, signals);
		if (rc == 0 && in[0].revents)
			rc = read_log(meeting);
	}
	if (rc > 0)
		return 0;
	if (rc == -EINTR)
		return rc;
	run_say("the meeting point %s", rc ? "has ended before it was ready" : "does not become ready");
	return rc ? rc : -ETIMEDOUT;
}

int meeting_start(struct meeting *meeting, unsigned ranks, bool remote, int signals, uint64_t until)
{
	char config[256];
	int rc;

	if (!meeting->directory[0])
		return 0;
	snprintf(config, sizeof(config), "%s/rdmad.conf", meeting->directory);
	snprintf(meeting->url, sizeof(meeting->url), "unix://%s/rdmad.sock", meeting->directory);
	rc = make_directory(meeting);
	if (rc == 0)
		rc = write_configuration(meeting, config, ranks, remote);
	if (rc == 0)
		rc = start_daemon(meeting, config);
	if (rc == 0)
		rc = await_daemon(meeting, signals, MIN(until, time_now() + START_LIMIT));
	if (rc == 0)
		run_note("ranks meet at %s", meeting->url);
	return rc;
}

/* Nobody has anything of it any more: it carries nothing that could be lost. */
void meeting_stop(struct meeting *meeting)
{
	siginfo_t info;

	if (meeting->daemon) {
		kill(meeting->daemon, SIGKILL);
		while (meeting->daemon && waitid(P_PID, (id_t)meeting->daemon, &info, WEXITED) != 0 && errno == EINTR)
			;
		guard_remove(meeting->daemon);
		meeting->daemon = 0;
	}
	if (meeting->log >= 0)
		close(meeting->log);
	meeting->log = -1;
	free(meeting->said);
	meeting->said = NULL;
}
