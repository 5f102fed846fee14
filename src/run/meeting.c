/* meeting.c: an rdmad with the peer service alone, for one run. */
#include "run/run.h"
#include "base/local.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_LIMIT (60 * TIME_S) /* of rdmad */

static int make_directory(struct meeting *meeting)
{
	bool made = mkdir(meeting->directory, 0700) == 0;
	int rc;

	if (made)
		meeting->opened = open(meeting->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (meeting->opened >= 0)
		return 0;
	rc = -errno;
	run_say("cannot make the directory %s: %s", meeting->directory, strerror(-rc));
	if (made)
		rmdir(meeting->directory);
	return rc;
}

int meeting_prepare(struct meeting *meeting, bool remote)
{
	const char *place = getenv("TMPDIR");
	uint64_t number;
	int length;

	*meeting = (struct meeting){.opened = -1, .log = -1, .notify = -1};
	if (run_options.meeting && strcmp(run_options.meeting, "none") == 0)
		return 0;
	if (run_options.meeting)
		snprintf(meeting->url, sizeof(meeting->url), "%s", run_options.meeting);
	if (run_options.meeting && remote)
		return 0;
	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return -EIO;
	length = snprintf(meeting->directory, sizeof(meeting->directory), "%s/rdmarun.%012llx",
			  place && *place ? place : "/tmp", (unsigned long long)number >> 16);
	if (length < (int)sizeof(meeting->directory))
		return make_directory(meeting);
	/* Cut, it would be another directory. */
	meeting->directory[0] = '\0';
	run_say("TMPDIR is too long for the paths of sockets: %s", place);
	return -ENAMETOOLONG;
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

/* The ranks, which have it by their environment, prove it to rdmad and to each other. */
static int make_key(struct meeting *meeting)
{
	char path[MEETING_PATH_MAX + 8];
	struct auth_key key;
	int rc;

	snprintf(path, sizeof(path), "%s/keys", meeting->directory);
	rc = auth_begin();
	if (rc == 0)
		rc = auth_keys_append(path, "run", &key);
	if (rc != 0)
		return rc;
	auth_key_format(&key, meeting->key);
	auth_wipe(&key, sizeof(key));
	return 0;
}

/* All addresses where other hosts take part, else a UNIX socket that only this user reaches. It sleeps rather than
 * polls: the processors are the ranks'. No address has more than a quarter of the connections, and a connection without
 * a request gives way, so strangers do not keep the ranks out. Nor are they told of the group, whose name nobody can
 * guess. */
static int write_configuration(const struct meeting *meeting, const char *path, unsigned ranks, bool remote)
{
	unsigned most = 2 * ranks + 64;
	FILE *file = fopen(path, "wxe");
	bool failed;

	if (!file) {
		run_say("cannot write %s: %s", path, strerror(errno));
		return -errno;
	}
	fprintf(file,
		"listen = [%s];\nauth = { keys = \"%s/keys\"; local = \"user\"; };\nunix_socket = "
		"\"%s/rdmad.sock\";\ncontrol = { socket = \"%s/control.sock\"; };\n"
		"services = [\"peer\"];\nworkers = 1;\npoll = \"0\";\nmax_connections = %u;\n"
		"max_connections_per_source = %u;\nfirst_request_timeout = \"5s\";\n"
		"peer = { members = %u; list = false; };\nlog = { level = \"%s\"; };\n",
		remote ? "\"tcp://*:0\"" : "", meeting->directory, meeting->directory, meeting->directory,
		remote ? 4 * most : most, most, MAX(ranks, 2u), run_options.verbose ? "info" : "warn");
	failed = ferror(file) != 0;
	if (fclose(file) == 0 && !failed)
		return 0;
	run_say("cannot write %s: %s", path, strerror(errno));
	return -EIO;
}

/* Listens as a service manager: see sd_notify(3). Returns the environment that names the socket; NULL: said. */
static char **open_notify(struct meeting *meeting, char *variable, size_t size)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	const char *first[] = {variable};
	char **environment = NULL;
	struct local_file file;

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/notify", meeting->directory);
	snprintf(variable, size, "NOTIFY_SOCKET=%s", sun.sun_path);
	meeting->notify = local_listen(&sun, sizeof(sun), SOCK_DGRAM, LOCAL_UMASK, &file);
	if (meeting->notify >= 0)
		environment = child_environment(first, 1);
	if (!environment)
		run_say("cannot make %s: %s", sun.sun_path, strerror(meeting->notify < 0 ? -meeting->notify : errno));
	return environment;
}

static int start_daemon(struct meeting *meeting, const char *config)
{
	char path[1024], variable[128], **environment = open_notify(meeting, variable, sizeof(variable));
	const char *program = find_daemon(path, sizeof(path));
	char *argv[] = {(char *)program, "-c", (char *)config, NULL};
	struct child child = {.argv = argv, .envp = environment};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), theirs = -1, rc;

	rc = !environment || null < 0 ? -errno : child_pipe(0, &meeting->log, &theirs);
	child.fd[0] = child.fd[1] = null;
	child.fd[2] = theirs;
	if (rc == 0)
		rc = child_start(&child, "the meeting point");
	if (rc == 0) {
		meeting->daemon = child.pid;
		guard_add(child.pid);
		run_note("the meeting point: process %d: %s -c %s", (int)child.pid, program, config);
	}
	free(environment);
	if (null >= 0)
		close(null);
	if (theirs >= 0)
		close(theirs);
	return rc;
}

/* -EPIPE: it has ended. */
static int read_log(struct meeting *meeting)
{
	char piece[4096], *feed;
	ssize_t n = read(meeting->log, piece, sizeof(piece));

	if (n == 0)
		return -EPIPE;
	if (n < 0 || run_append(&meeting->said, &meeting->used, &meeting->room, piece, (size_t)n) != 0)
		return 0;
	while ((feed = memchr(meeting->said, '\n', meeting->used))) {
		size_t length = (size_t)(feed - meeting->said);

		run_say("the meeting point: %.*s", (int)length, meeting->said);
		meeting->used -= length + 1;
		memmove(meeting->said, feed + 1, meeting->used);
	}
	return 0;
}

void meeting_read(struct meeting *meeting)
{
	if (read_log(meeting) != -EPIPE)
		return;
	close(meeting->log);
	meeting->log = -1;
}

/* The port of rdmad, as other hosts reach it. */
static void take_port(struct meeting *meeting, const char *port)
{
	char name[256] = "localhost";
	const char *host = run_options.address;
	bool bare;

	gethostname(name, sizeof(name) - 1);
	host = host ? host : name;
	bare = strchr(host, ':') && host[0] != '['; /* a number of IPv6 */
	snprintf(meeting->url, sizeof(meeting->url), "tcp://%s%s%s:%s", bare ? "[" : "", host, bare ? "]" : "", port);
}

/* 1: ready; 0: not yet. */
static int read_notify(struct meeting *meeting, bool remote)
{
	static const char port[] = "X_RDMAD_PORT=";
	char text[1024], *state = NULL;
	ssize_t n = recv(meeting->notify, text, sizeof(text) - 1, 0);
	int rc = 0;

	text[MAX(n, 0)] = '\0';
	for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		if (strcmp(line, "READY=1") == 0)
			rc = 1;
		else if (remote && strncmp(line, port, sizeof(port) - 1) == 0)
			take_port(meeting, line + sizeof(port) - 1);
	}
	return rc;
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

static int await_daemon(struct meeting *meeting, bool remote, int signals, uint64_t until)
{
	uint64_t now;
	int rc = 0;

	while (rc == 0 && (now = time_now()) < until) {
		struct pollfd in[] = {{.fd = meeting->notify, .events = POLLIN},
				      {.fd = signals, .events = POLLIN},
				      {.fd = meeting->log, .events = POLLIN}};

		if (poll(in, 3, (int)((until - now) / TIME_MS) + 1) <= 0)
			continue;
		if (in[1].revents)
			rc = take_signal(meeting, signals);
		if (rc == 0 && in[0].revents)
			rc = read_notify(meeting, remote);
		if (rc == 0 && in[2].revents)
			rc = read_log(meeting);
	}
	if (rc > 0)
		return 0;
	if (rc == -EINTR)
		return rc;
	run_say("the meeting point %s", rc ? "has ended before it was ready" : "does not become ready");
	return rc != 0 ? rc : -ETIMEDOUT;
}

int meeting_start(struct meeting *meeting, unsigned ranks, bool remote, int signals, uint64_t until)
{
	char config[256];
	int rc;

	if (run_options.meeting)
		return 0;
	snprintf(config, sizeof(config), "%s/rdmad.conf", meeting->directory);
	snprintf(meeting->url, sizeof(meeting->url), "unix://%s/rdmad.sock", meeting->directory);
	rc = make_key(meeting);
	if (rc == 0)
		rc = write_configuration(meeting, config, ranks, remote);
	if (rc == 0)
		rc = start_daemon(meeting, config);
	if (rc == 0)
		rc = await_daemon(meeting, remote, signals, MIN(until, time_now() + START_LIMIT));
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
	if (meeting->notify >= 0)
		close(meeting->notify);
	if (meeting->opened >= 0)
		close(meeting->opened);
	meeting->log = meeting->notify = meeting->opened = -1;
	free(meeting->said);
	meeting->said = NULL;
	auth_wipe(meeting->key, sizeof(meeting->key));
}
