/* meeting.c: an rdmad with the peer service alone, for one run. */
#include "run/run.h"
#include "base/local.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int meeting_prepare(struct meeting *meeting)
{
	const char *place = getenv("TMPDIR");
	uint64_t number;
	int length, rc;
	bool made;

	if (run_options.meeting && strcmp(run_options.meeting, "none") == 0)
		return 0;
	if (run_options.meeting)
		snprintf(meeting->url, sizeof(meeting->url), "%s", run_options.meeting);
	if (run_options.meeting && run_hosts_remote(&run_options.hosts))
		return 0;
	rc = random_fill(&number, sizeof(number));
	if (rc != 0)
		return rc;
	length = snprintf(meeting->directory, sizeof(meeting->directory), "%s/rdmarun.%012llx",
			  place && *place ? place : "/tmp", (unsigned long long)number >> 16);
	if (length >= (int)sizeof(meeting->directory)) {
		meeting->directory[0] = '\0'; /* cut, it would be another directory */
		run_say("TMPDIR is too long for the paths of sockets: %s", place);
		return -ENAMETOOLONG;
	}
	made = mkdir(meeting->directory, 0700) == 0;
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

/* All addresses where other hosts take part, else a UNIX socket that only this user reaches. It sleeps rather than
 * polls: the processors are the ranks'. No address has more than a quarter of the connections, and a connection without
 * a request gives way, so others do not keep the ranks out. Nor are they told of the group, whose name they cannot
 * guess. */
static int write_configuration(const struct meeting *meeting, const char *path)
{
	bool remote = run_hosts_remote(&run_options.hosts);
	unsigned ranks = (unsigned)run_options.count, most = 2 * ranks + 64;
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

/* Listens as a service manager: see sd_notify(3). `variable`: the environment that names the socket. */
static int open_notify(struct meeting *meeting, struct buffer *variable)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct local_file file;

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/notify", meeting->directory);
	buffer_add(variable, "NOTIFY_SOCKET=", strlen("NOTIFY_SOCKET="));
	buffer_add(variable, sun.sun_path, strlen(sun.sun_path) + 1);
	meeting->notify = local_listen(&sun, sizeof(sun), SOCK_DGRAM, LOCAL_UMASK, &file);
	if (meeting->notify < 0)
		run_say("cannot make %s: %s", sun.sun_path, strerror(-meeting->notify));
	return MIN(meeting->notify, 0);
}

static int start_daemon(struct meeting *meeting, const char *config)
{
	char path[1024];
	const char *program = find_daemon(path, sizeof(path));
	char *argv[] = {(char *)program, "-c", (char *)config, NULL};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), rc = null < 0 ? -errno : 0;
	struct child child = {.argv = argv, .fd = {null, null, -1}};

	if (rc == 0)
		rc = open_notify(meeting, &child.env);
	if (rc == 0)
		rc = child_pipe(0, &meeting->log.fd, &child.fd[2]);
	if (rc == 0)
		rc = child_start(&child, "the meeting point");
	if (rc == 0) {
		meeting->daemon = child.pid;
		guard_add(child.pid);
		run_note("the meeting point: process %d: %s -c %s", (int)child.pid, program, config);
	}
	buffer_free(&child.env);
	if (null >= 0)
		close(null);
	if (child.fd[2] >= 0)
		close(child.fd[2]);
	return rc;
}

int meeting_start(struct meeting *meeting)
{
	char config[256], keys[MEETING_PATH_MAX + 8];
	struct auth_key key;
	int rc;

	if (run_options.meeting)
		return 0;
	snprintf(config, sizeof(config), "%s/rdmad.conf", meeting->directory);
	snprintf(meeting->url, sizeof(meeting->url), "unix://%s/rdmad.sock", meeting->directory);
	snprintf(keys, sizeof(keys), "%s/keys", meeting->directory);
	rc = auth_begin();
	/* The ranks, which have the key by their environment, prove it to rdmad and to each other. */
	if (rc == 0)
		rc = auth_keys_append(keys, "run", &key);
	if (rc == 0) {
		auth_key_format(&key, meeting->key);
		auth_wipe(&key, sizeof(key));
		rc = write_configuration(meeting, config);
	}
	if (rc == 0)
		rc = start_daemon(meeting, config);
	return rc;
}

bool meeting_is_ready(struct meeting *meeting)
{
	static const char port[] = "X_RDMAD_PORT=";
	char text[1024], name[256] = "localhost", *state = NULL;
	const char *host = run_options.address;
	ssize_t n = recv(meeting->notify, text, sizeof(text) - 1, 0);
	bool ready = false, bare;

	gethostname(name, sizeof(name) - 1);
	host = host ? host : name;
	bare = strchr(host, ':') && host[0] != '['; /* a number of IPv6 */
	text[MAX(n, 0)] = '\0';
	for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		if (strcmp(line, "READY=1") == 0)
			ready = true;
		else if (run_hosts_remote(&run_options.hosts) && strncmp(line, port, sizeof(port) - 1) == 0)
			snprintf(meeting->url, sizeof(meeting->url), "tcp://%s%s%s:%s", bare ? "[" : "", host,
				 bare ? "]" : "", line + sizeof(port) - 1); /* as other hosts reach it */
	}
	if (ready)
		run_note("ranks meet at %s", meeting->url);
	return ready;
}

/* No rank has anything of it any more: it carries nothing that could be lost. */
void meeting_stop(struct meeting *meeting)
{
	siginfo_t info;

	if (meeting->daemon) {
		kill(meeting->daemon, SIGKILL);
		while (waitid(P_PID, (id_t)meeting->daemon, &info, WEXITED) != 0 && errno == EINTR)
			;
		guard_remove(meeting->daemon);
	}
	stream_close(&meeting->log);
	if (meeting->notify >= 0)
		close(meeting->notify);
	if (meeting->opened >= 0)
		close(meeting->opened);
	auth_wipe(meeting->key, sizeof(meeting->key));
}
