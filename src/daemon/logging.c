/* logging.c: where messages go: stderr, syslog or a file. */
#include "daemon/daemon.h"

#include <fcntl.h>
#include <sysexits.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

enum target { TARGET_STDERR, TARGET_SYSLOG, TARGET_FILE };

static _Atomic int target = TARGET_STDERR;
/* Stays open once it was: another thread may be writing. A new file takes its place by dup2(). */
static _Atomic int file = -1;
/* While the daemon starts, somebody may sit at the terminal and wonder why it does not. */
static atomic_bool echo = true;

static void write_line(int fd, const char *line, int length, size_t size)
{
	/* One write a line, so that threads do not mix theirs. What cannot be logged is lost. */
	if (length > 0 && write(fd, line, MIN((size_t)length, size - 1)) < 0)
		return;
}

static void write_stderr(enum log_level level, const char *room, const char *text)
{
	char line[640];
	int n = snprintf(line, sizeof(line), "%s %s: %s\n", log_level_name(level), room, text);

	write_line(STDERR_FILENO, line, n, sizeof(line));
}

static void write_file(enum log_level level, const char *room, const char *text)
{
	struct timespec now;
	struct tm tm;
	char line[700], stamp[32];
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line, sizeof(line), "%s.%03ldZ %s %s: %s\n", stamp, now.tv_nsec / 1000000, log_level_name(level),
		     room, text);
	write_line(file, line, n, sizeof(line));
}

static void write_syslog(enum log_level level, const char *room, const char *text)
{
	static const int priority[] = {
		[LOG_LEVEL_ERROR] = LOG_ERR,
		[LOG_LEVEL_WARN] = LOG_WARNING,
		[LOG_LEVEL_INFO] = LOG_INFO,
		[LOG_LEVEL_DEBUG] = LOG_DEBUG,
	};

	syslog(priority[level], "%s: %s", room, text);
}

static void (*const writers[])(enum log_level, const char *, const char *) = {
	[TARGET_STDERR] = write_stderr,
	[TARGET_SYSLOG] = write_syslog,
	[TARGET_FILE] = write_file,
};

static void handle(enum log_level level, const char *room, const char *text)
{
	int to = atomic_load(&target); /* a reload may change it now */

	log_keep(level, room, text);
	writers[to](level, room, text);
	if (unlikely(echo) && to != TARGET_STDERR && level <= LOG_LEVEL_WARN)
		write_stderr(level, room, text);
}

static int open_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);

	if (fd < 0) {
		log_error("log", "cannot open %s: %m", path);
		return EX_CANTCREAT;
	}
	if (file < 0) {
		file = fd;
		return 0;
	}
	dup3(fd, file, O_CLOEXEC);
	close(fd);
	return 0;
}

int logging_open(const char *name, enum log_level level)
{
	enum target wanted = TARGET_STDERR;
	int rc = 0;

	log_set_handler(handle);
	if (strncmp(name, "file:", 5) == 0) {
		wanted = TARGET_FILE;
		rc = open_file(name + 5);
	} else if (strcmp(name, "syslog") == 0) {
		wanted = TARGET_SYSLOG;
		openlog("rdmad", LOG_PID | LOG_NDELAY, LOG_DAEMON);
	}
	if (rc != 0)
		return rc;
	log_threshold = (int)level;
	target = (int)wanted;
	return 0;
}

void logging_close(void)
{
	target = TARGET_STDERR;
	if (file >= 0)
		close(file);
	file = -1;
	closelog();
}

void logging_echo(bool on)
{
	echo = on;
}
