/* process.c: what a process owes its system: background, pid file, limits, directories. */
#include "daemon/daemon.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define FDS_PROCESS 32 /* log, control socket, listeners, devices */
#define FDS_WORKER 14  /* its loop, and queues of sockets and of a device */
/* Seldom in use: control clients, and of each thread sockets that have not asked yet, or linger; see
 * fabric/soft/soft.h. Without a descriptor no client is accepted, so a quarter of all will do for them. */
#define FDS_PASSING 256
#define CONNECTIONS_LEAST 4

static int parent_pipe = -1; /* the parent waits at its other end */
static int pid_file = -1;

/* Wait, as the parent: the child's byte is success, its end without one the child's exit status. */
static void wait_for_child(int fd, pid_t child)
{
	char byte;
	int status;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(0);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : EX_SOFTWARE);
}

/* Signals go to the daemon; whatever ends is reaped, until the daemon has. */
static void stay_process_1(pid_t daemon, const sigset_t *all)
{
	siginfo_t info;
	pid_t ended;
	int status;

	while (true) {
		if (sigwaitinfo(all, &info) < 0)
			continue;
		if (info.si_signo != SIGCHLD) {
			if (info.si_code != SI_KERNEL) /* a terminal's: its whole group has it */
				kill(daemon, info.si_signo);
			continue;
		}
		while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
			if (ended == daemon)
				_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
}

int process_leave_1(void)
{
	sigset_t all, before;
	pid_t child;

	if (getpid() != 1)
		return 0;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before); /* from before there is a child */
	child = fork();
	if (child > 0)
		stay_process_1(child, &all);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (child == 0)
		return 0;
	return log_fail(EX_OSERR, "process", "cannot make the process that serves: %m");
}

int process_daemonize(void)
{
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) != 0)
		goto fail;
	child = fork();
	if (child < 0)
		goto fail;
	if (child > 0) {
		close(ends[1]);
		wait_for_child(ends[0], child);
	}
	close(ends[0]);
	parent_pipe = ends[1];
	setsid();
	return 0;

fail:
	return log_fail(EX_OSERR, "process", "cannot go into the background: %m");
}

void process_ready(void)
{
	int null;

	if (parent_pipe < 0)
		return;
	if (chdir("/") != 0)
		log_warn("process", "cannot change to /: %m");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	if (write(parent_pipe, "", 1) != 1)
		log_warn("process", "who started this daemon is gone");
	close(parent_pipe);
	parent_pipe = -1;
}

/* A daemon that ended after we opened its file has taken the name away, and the lock is on a file without a name. */
static bool file_is_at(const char *path, int fd)
{
	struct stat named, open;

	return lstat(path, &named) == 0 && fstat(fd, &open) == 0 && named.st_dev == open.st_dev &&
	       named.st_ino == open.st_ino;
}

/* Open and lock the file; 0 or an exit status. */
static int pid_file_open(const char *path, int *out)
{
	while (true) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

		if (fd < 0)
			return log_fail(EX_CANTCREAT, "process", "cannot make pid_file %s: %m", path);
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			char text[32] = "";
			ssize_t n = read(fd, text, sizeof(text) - 1);

			text[MAX(n, 0)] = '\0';
			text[strcspn(text, "\n")] = '\0';
			log_error("process", "pid_file %s is held by process %s: another rdmad runs with it (RD-5007)",
				  path, text);
			close(fd);
			return EX_CANTCREAT;
		}
		if (file_is_at(path, fd)) {
			*out = fd;
			return 0;
		}
		close(fd);
	}
}

int process_pid_file_create(const char *path)
{
	char text[32];
	int fd, rc = pid_file_open(path, &fd), n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	if (rc != 0)
		return rc;
	if (ftruncate(fd, 0) != 0 || write(fd, text, (size_t)n) != n) {
		log_error("process", "cannot write pid_file %s: %m", path);
		close(fd);
		return EX_IOERR;
	}
	pid_file = fd; /* the lock lives as long as it */
	return 0;
}

void process_pid_file_remove(const char *path)
{
	if (pid_file < 0)
		return;
	if (file_is_at(path, pid_file))
		unlink(path); /* while it is locked, so that it is ours */
	close(pid_file);
	pid_file = -1;
}

/* The least n with n - MIN(passing, n / 4) >= lasting. */
static uint64_t fds_enough(uint64_t lasting, uint64_t passing)
{
	return lasting + MIN(passing, (lasting - 1) / 3);
}

int process_limits(uint64_t *connections, unsigned workers, unsigned services)
{
	uint64_t others = FDS_PROCESS + FDS_WORKER * (uint64_t)workers + services;
	uint64_t passing = FDS_PASSING * (1 + (uint64_t)workers), enough = fds_enough(others + *connections, passing);
	uint64_t least = fds_enough(others + MIN(CONNECTIONS_LEAST, *connections), passing), asked = *connections;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 0;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
		getrlimit(RLIMIT_NOFILE, &limit);
	}
	if (limit.rlim_cur >= enough)
		return 0;
	if (limit.rlim_cur < least)
		return log_fail(EX_OSERR, "process",
				"RLIMIT_NOFILE is %" PRIu64 ", and rdmad starts with %" PRIu64 " at least; %" PRIu64
				" suffice for max_connections %" PRIu64 ": raise it (ulimit -n, LimitNOFILE=)",
				(uint64_t)limit.rlim_cur, least, enough, asked);
	*connections = limit.rlim_cur - MIN(passing, limit.rlim_cur / 4) - others;
	log_warn("process",
		 "RLIMIT_NOFILE is %" PRIu64 ", and max_connections %" PRIu64 " needs %" PRIu64
		 " descriptors: limited to %" PRIu64 " connections; raise it (ulimit -n, LimitNOFILE=)",
		 (uint64_t)limit.rlim_cur, asked, enough, *connections);
	return 0;
}

void process_check_memlock(uint64_t bytes)
{
	char has[32], needs[32];
	struct rlimit limit;

	/* The kernel does not hold root to it. */
	if (geteuid() == 0 || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= bytes)
		return;
	log_warn("process",
		 "RLIMIT_MEMLOCK is %s, and RDMA may take %s: raise it (ulimit -l, LimitMEMLOCK=), or lower kv.memory, "
		 "shared_receives, workers, message_size or resp.rdma_memory",
		 units_human_size((double)limit.rlim_cur, has), units_human_size((double)bytes, needs));
}

/* A directory that others may write to, such as one of ours below /tmp that another user made before,
 * is no place for a socket that we trust. */
static int check_directory(const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return 0; /* as /var/run is */
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

#define PARENT_MAX 256

/* The directory that `path` is in. False: it is /, or none that has a name. */
static bool parent_of(const char *path, char parent[static PARENT_MAX])
{
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path || slash - path >= PARENT_MAX)
		return false;
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = '\0';
	return true;
}

static int make_directory(const char *path)
{
	if (mkdir(path, geteuid() == 0 ? 0755 : 0700) != 0 && errno != EEXIST)
		return -errno;
	return 0;
}

/* What make_directory() would answer, and 1 where it would make one. */
static int could_make_directory(const char *path)
{
	char above[PARENT_MAX];
	struct stat st;

	if (lstat(path, &st) == 0)
		return 0;
	if (errno != ENOENT)
		return -errno;
	return access(parent_of(path, above) ? above : "/", W_OK | X_OK) == 0 ? 1 : -errno;
}

static int try_parent(const char *path, int (*try)(const char *parent))
{
	char parent[PARENT_MAX];
	int rc;

	if (!parent_of(path, parent))
		return 0;
	rc = try(parent);
	if (rc < 0)
		log_error("process", "cannot make the directory %s: %s", parent, strerror(-rc));
	if (rc != 0)
		return MIN(rc, 0);
	rc = strncmp(parent, "/tmp/", 5) == 0 ? address_check_directory(parent) : check_directory(parent);
	if (rc != 0)
		log_error("process", "%s is no directory to put a socket into: %s", parent,
			  rc == -EPERM ? "others own it or may write to it" : strerror(-rc));
	return rc;
}

int process_make_parent(const char *path)
{
	return try_parent(path, make_directory);
}

int process_check_parent(const char *path)
{
	return try_parent(path, could_make_directory);
}

unsigned process_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself */
}
