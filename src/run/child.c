/* child.c: starting processes, and how they end. */
#include "run/run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Passed on to the ranks, and the end of a child. */
static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/* As nohup(1) and shells have it: such a signal is not for this process, nor for its ranks. */
static bool is_ignored(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static bool without_pipe; /* SIGPIPE was ignored at the start */

int child_signals(void)
{
	sigset_t set;
	int fd;

	without_pipe = is_ignored(SIGPIPE);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(watched); i++)
		if (!is_ignored(watched[i]))
			sigaddset(&set, watched[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd >= 0)
		return fd;
	run_say("cannot watch signals: %s", strerror(errno));
	return -errno;
}

static struct rlimit usual; /* of descriptors; 0: as it is */

void child_raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &usual) != 0)
		return;
	limit = usual;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int child_pipe(unsigned end, int *ours, int *theirs)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC) != 0) {
		int rc = -errno;

		run_say("cannot make a pipe: %s", strerror(-rc));
		return rc;
	}
	fcntl(fd[end], F_SETFL, O_NONBLOCK);
	*ours = fd[end];
	*theirs = fd[!end];
	return 0;
}

/* The child's message when it could not start. */
struct failure {
	int error;
	bool directory;
};

static void child_become(const struct child *child, pid_t parent, int tell)
{
	struct failure failure = {0};
	sigset_t none;
	int moved[3];

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(RUN_FAILED); /* it ended before this could be said */
	/* The descriptors may be 0, 1 and 2 in any order, so they are moved out of the way first. */
	for (int i = 0; i < 3; i++)
		moved[i] = fcntl(child->fd[i], F_DUPFD_CLOEXEC, 3);
	for (int i = 0; i < 3; i++)
		dup2(moved[i], i);
	sigemptyset(&none);
	if (!without_pipe)
		signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (usual.rlim_max)
		setrlimit(RLIMIT_NOFILE, &usual);
	/* From the last to the first, so that of two with one name the first holds. */
	for (char *at = child->env.data + child->env.used; at > child->env.data; putenv(at))
		for (at--; at > child->env.data && at[-1]; at--)
			;
	if (child->directory && chdir(child->directory) != 0) {
		failure = (struct failure){.error = errno, .directory = true};
	} else {
		execvp(child->argv[0], child->argv);
		failure.error = errno;
	}
	if (write(tell, &failure, sizeof(failure)) < 0)
		_exit(RUN_FAILED);
	_exit(RUN_NOT_FOUND);
}

/* Wait until the child is another program, or says why not. */
static int await_exec(const struct child *child, int from, const char *who)
{
	struct failure failure;
	ssize_t n;

	do
		n = read(from, &failure, sizeof(failure));
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(failure))
		return 0;
	waitpid(child->pid, NULL, 0);
	if (failure.directory)
		run_say("%s: cannot go to the directory %s: %s", who, child->directory, strerror(failure.error));
	else
		run_say("%s: cannot start %s: %s", who, child->argv[0], strerror(failure.error));
	return failure.directory ? -ENOTDIR : -failure.error;
}

int child_start(struct child *child, const char *who)
{
	pid_t parent = getpid();
	int tell[2], rc;

	if (pipe2(tell, O_CLOEXEC) != 0) {
		rc = -errno;
		run_say("%s: cannot make a pipe: %s", who, strerror(-rc));
		return rc;
	}
	child->pid = fork();
	if (child->pid == 0)
		child_become(child, parent, tell[1]);
	rc = -errno;
	close(tell[1]);
	if (child->pid < 0) {
		run_say("%s: cannot make a process: %s", who, strerror(-rc));
	} else {
		setpgid(child->pid, child->pid);
		rc = await_exec(child, tell[0], who);
	}
	close(tell[0]);
	return rc;
}

int child_exit_status(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED ? info->si_status : RUN_SIGNALLED + info->si_status;
}

char *child_end_text(int status, char *buf, size_t size)
{
	if (status > RUN_SIGNALLED && status < RUN_SIGNALLED + NSIG)
		snprintf(buf, size, "signal %d (%s)", status - RUN_SIGNALLED, strsignal(status - RUN_SIGNALLED));
	else
		snprintf(buf, size, "exit status %d", status);
	return buf;
}

bool child_reap(siginfo_t *info)
{
	*info = (siginfo_t){0};
	if (waitid(P_ALL, 0, info, WEXITED | WNOHANG | WNOWAIT) != 0 || !info->si_pid)
		return false;
	/* No other process gets the number before it is reaped. */
	kill(-info->si_pid, SIGKILL);
	waitpid(info->si_pid, NULL, 0);
	return true;
}
