/*
 * logging.c: where messages go: stderr, syslog or a file. While the daemon serves, a thread writes them, so that a
 * reader that does not read, a full pipe or a hung disk stops that thread alone: messages that find the queue full are
 * lost, and counted.
 */
#include "daemon/daemon.h"
#include "base/local.h"
#include "base/thread.h"

#include <endian.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sysexits.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_SIZE 1024
#define JOURNAL_SOCKET "/run/systemd/journal/socket" /* of systemd.journal-fields(7) */
#define QUEUE_END_TIMEOUT 1 /* seconds that the end waits until the last messages are written */

struct message {
	enum log_level level;
	const char *room;
	struct timespec when;
	char text[512];
};

/* Room for a line of either format. */
#define LINE_MAX_BYTES (sizeof(((struct message *)0)->text) * LOG_JSON_MAX + 160)

static struct {
	pthread_mutex_t lock; /* of all that follows; held to copy a message, never to write one */
	pthread_cond_t more;
	pthread_t thread;
	bool running, quit;
	unsigned head, tail; /* free-running */
	uint64_t lost;
	struct message message[QUEUE_SIZE];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

enum target { TARGET_STDERR, TARGET_SYSLOG, TARGET_FILE };

static _Atomic int target = TARGET_STDERR;
static _Atomic int format = LOG_FORMAT_TEXT;
/* Stays open once it was: another thread may be writing. A new file takes its place by dup2(). */
static _Atomic int file = -1;
/* While the daemon starts, its user may sit at the terminal and wonder why it does not. */
static atomic_bool echo = true;

/* Whether the line went out whole: in one write, so that threads do not mix theirs. */
static bool write_line(int fd, const char *line, int length)
{
	size_t n = length > 0 ? MIN((size_t)length, LINE_MAX_BYTES - 1) : 0;

	return write(fd, line, n) == (ssize_t)n;
}

static const int priorities[] = {
	[LOG_LEVEL_ERROR] = LOG_ERR,
	[LOG_LEVEL_WARN] = LOG_WARNING,
	[LOG_LEVEL_INFO] = LOG_INFO,
	[LOG_LEVEL_DEBUG] = LOG_DEBUG,
};

/* Where stderr is the journal of the service manager, which takes a line's priority from its begin. */
static bool journal;
static int journal_fd = -1; /* by which it takes fields */

static bool is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st) != 0)
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(stream, own) == 0;
}

/* The number of an error, with which its text ends (rdmad-errors(7)); "": it has none. Returns id. */
static char *find_id(const struct message *m, char id[static 16])
{
	const char *at = strrchr(m->text, '(');
	int length = 0;

	id[0] = '\0';
	if (at && sscanf(at, "(RD-%*4[0-9])%n", &length) == 0 && length && !at[length])
		snprintf(id, 16, "%.*s", length - 2, at + 1);
	return id;
}

/* In UTC. Returns buf. */
static char *format_time(const struct timespec *when, char buf[static 32])
{
	struct tm tm;
	size_t n;

	gmtime_r(&when->tv_sec, &tm);
	n = strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, 32 - n, ".%03uZ", (unsigned)(when->tv_nsec / 1000000) % 1000);
	return buf;
}

/* The line of a message, behind `before`; `stamped`: with the time, which one of JSON has anyway. How long. */
static int format_line(const struct message *m, const char *before, bool stamped, char line[static LINE_MAX_BYTES])
{
	char text[sizeof(m->text) * LOG_JSON_MAX], stamp[32], id[16];
	bool has_id = *find_id(m, id);

	format_time(&m->when, stamp);
	if (format == LOG_FORMAT_TEXT)
		return snprintf(line, LINE_MAX_BYTES, "%s%s%s%s %s: %s\n", before, stamped ? stamp : "",
				stamped ? " " : "", log_level_name(m->level), m->room, m->text);
	return snprintf(
		line, LINE_MAX_BYTES,
		"%s{\"time\":\"%s\",\"level\":\"%s\",\"component\":\"%s\",\"pid\":%d,\"message\":\"%s\"%s%s%s}\n",
		before, stamp, log_level_name(m->level), m->room, (int)getpid(), log_json(m->text, text, sizeof(text)),
		has_id ? ",\"id\":\"" : "", id, has_id ? "\"" : "");
}

/* The members of a line of JSON as fields, of which the journal adds time and process. Nothing waits: false. */
static bool write_journal(const struct message *m)
{
	char fields[192], line[LINE_MAX_BYTES], id[16];
	bool has_id = *find_id(m, id);
	struct sockaddr_un to;
	uint64_t length;
	struct iovec iov[] = {{fields, 0}, {&length, sizeof(length)}, {line, 0}, {(void *)"\n", 1}};
	struct msghdr message = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = iov, .msg_iovlen = ARRAY_SIZE(iov)};
	size_t all;

	local_address(JOURNAL_SOCKET, &to);
	iov[0].iov_len = (size_t)snprintf(
		fields, sizeof(fields), "PRIORITY=%d\nSYSLOG_IDENTIFIER=rdmad\nRDMAD_COMPONENT=%.64s\n%s%s%sMESSAGE\n",
		priorities[m->level], m->room, has_id ? "RDMAD_ID=" : "", id, has_id ? "\n" : "");
	if (format == LOG_FORMAT_JSON)
		iov[2].iov_len = (size_t)format_line(m, "", false, line) - 1;
	else
		iov[2].iov_len = (size_t)snprintf(line, sizeof(line), "%s: %s", m->room, m->text);
	length = htole64(iov[2].iov_len);
	all = iov[0].iov_len + sizeof(length) + iov[2].iov_len + 1;
	return sendmsg(journal_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)all;
}

static bool write_stderr(const struct message *m)
{
	char line[LINE_MAX_BYTES], priority[8] = "";

	if (journal_fd >= 0 && write_journal(m))
		return true;
	if (journal)
		snprintf(priority, sizeof(priority), "<%d>", priorities[m->level]);
	return write_line(STDERR_FILENO, line, format_line(m, priority, false, line));
}

static bool write_file(const struct message *m)
{
	char line[LINE_MAX_BYTES];

	return write_line(file, line, format_line(m, "", true, line));
}

/* syslog() itself does not say whether the line was taken. */
static bool write_syslog(const struct message *m)
{
	char line[LINE_MAX_BYTES];

	if (format == LOG_FORMAT_JSON)
		syslog(priorities[m->level], "%.*s", format_line(m, "", false, line) - 1, line);
	else
		syslog(priorities[m->level], "%s: %s", m->room, m->text);
	return access(_PATH_LOG, F_OK) == 0;
}

static bool (*const writers[])(const struct message *) = {
	[TARGET_STDERR] = write_stderr,
	[TARGET_SYSLOG] = write_syslog,
	[TARGET_FILE] = write_file,
};

/* What a full disk or a missing system log does not take goes to stderr, which may be read. */
static void write_out(const struct message *m)
{
	int to = atomic_load(&target); /* a reload may change it now */
	bool taken = writers[to](m);

	if (unlikely(!taken || (echo && m->level <= LOG_LEVEL_WARN)) && to != TARGET_STDERR)
		write_stderr(m);
}

static void message_init(struct message *m, enum log_level level, const char *room, const char *text)
{
	m->level = level;
	m->room = room;
	clock_gettime(CLOCK_REALTIME, &m->when);
	snprintf(m->text, sizeof(m->text), "%s", text);
}

/* Queue a message. False: no thread writes the queue. */
static bool queue_put(enum log_level level, const char *room, const char *text)
{
	bool running;

	pthread_mutex_lock(&queue.lock);
	running = queue.running;
	if (running && queue.head - queue.tail < QUEUE_SIZE)
		message_init(&queue.message[queue.head++ % QUEUE_SIZE], level, room, text);
	else if (running)
		queue.lost++;
	pthread_cond_signal(&queue.more);
	pthread_mutex_unlock(&queue.lock);
	return running;
}

/* Wait for the next message. False: the log ends. */
static bool queue_take(struct message *out, uint64_t *lost)
{
	bool found;

	pthread_mutex_lock(&queue.lock);
	while (queue.head == queue.tail && !queue.quit)
		pthread_cond_wait(&queue.more, &queue.lock);
	found = queue.head != queue.tail;
	if (found)
		*out = queue.message[queue.tail++ % QUEUE_SIZE];
	*lost = queue.lost;
	queue.lost = 0;
	pthread_mutex_unlock(&queue.lock);
	return found;
}

static void *queue_run(void *arg)
{
	struct message m, note;
	char text[80];
	uint64_t lost;

	while (queue_take(&m, &lost)) {
		write_out(&m);
		if (!lost)
			continue;
		snprintf(text, sizeof(text), "%llu messages were lost: the log was not taken in time",
			 (unsigned long long)lost);
		message_init(&note, LOG_LEVEL_WARN, "log", text);
		write_out(&note);
	}
	return arg;
}

static __thread struct {
	char *lines;
	size_t size;
} gathering;

void logging_gather(char *lines, size_t size)
{
	gathering.lines = lines;
	gathering.size = size;
}

static void handle_message(enum log_level level, const char *room, const char *text)
{
	struct message m;
	size_t n;

	log_keep(level, room, text);
	if (gathering.lines && level <= LOG_LEVEL_WARN) {
		n = strlen(gathering.lines);
		snprintf(gathering.lines + n, gathering.size - n, "%s%s", n ? "\n" : "", text);
	}
	if (queue_put(level, room, text))
		return;
	message_init(&m, level, room, text);
	write_out(&m);
}

int logging_start(void)
{
	int rc = thread_start(&queue.thread, "log", queue_run, NULL);

	if (rc != 0)
		return log_fail(EX_OSERR, "log", "cannot start a thread: %s", strerror(-rc));
	pthread_mutex_lock(&queue.lock);
	queue.running = true;
	pthread_mutex_unlock(&queue.lock);
	log_throttle(true);
	return 0;
}

/* End the thread. False: it still writes, to a reader that takes nothing. */
static bool queue_end(void)
{
	struct timespec until;

	if (!queue.running)
		return true;
	pthread_mutex_lock(&queue.lock);
	queue.quit = true;
	pthread_cond_signal(&queue.more);
	pthread_mutex_unlock(&queue.lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += QUEUE_END_TIMEOUT;
	if (pthread_timedjoin_np(queue.thread, NULL, &until) != 0)
		return false;
	queue.running = false;
	return true;
}

/* A pipe without a reader is an error, and not waited for. */
static int open_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);

	if (fd < 0)
		return log_fail(EX_CANTCREAT, "log", "cannot open %s: %s", path,
				errno == ENXIO ? "nobody reads it" : strerror(errno));
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	if (file < 0) {
		file = fd;
		return 0;
	}
	dup3(fd, file, O_CLOEXEC);
	close(fd);
	return 0;
}

int logging_open(const char *name, enum log_level level, enum log_format wanted_format)
{
	enum target wanted = TARGET_STDERR;
	int rc = 0;

	if (!queue.running) { /* no other thread writes yet */
		journal = is_journal();
		if (journal && journal_fd < 0)
			journal_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
	log_set_handler(handle_message);
	if (strncmp(name, "file:", 5) == 0) {
		wanted = TARGET_FILE;
		rc = open_file(name + 5);
	} else if (strcmp(name, "syslog") == 0) {
		wanted = TARGET_SYSLOG;
		/* Not again: its lock is the thread's while the system log takes nothing. */
		if (target != TARGET_SYSLOG)
			openlog("rdmad", LOG_PID | LOG_NDELAY, LOG_DAEMON);
	}
	if (rc != 0)
		return rc;
	log_threshold = (int)level;
	format = (int)wanted_format;
	target = (int)wanted;
	return 0;
}

void logging_close(void)
{
	if (!queue_end())
		return; /* the process ends all the same */
	target = TARGET_STDERR;
	if (file >= 0)
		close(file);
	file = -1;
	if (journal_fd >= 0)
		close(journal_fd);
	journal_fd = -1;
	closelog();
}

void logging_echo(bool on)
{
	echo = on;
}
