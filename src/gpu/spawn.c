/* spawn.c: starting rdmad-gpu and learning how it ended. */
#include "gpu/spawn.h"
#include "gpu/message.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

extern char **environ;

#define ARGUMENTS_MAX 32
#define ENVIRONMENT_MAX 64

/* Variables of the daemon's environment that its processes get, by their beginnings: for a driver of accelerators or
 * for the sanitizers, and where the former's library is. */
static const char *const passed_on[] = {
	"CUDA_",         "NVIDIA_",       "LD_LIBRARY_PATH=", "RDMAD_FAKE_CUDA=",
	"ASAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS=",    "UBSAN_OPTIONS=",
};

unsigned gpu_threads(unsigned asked)
{
	return asked ? asked : MIN(processors_half(), (unsigned)GPU_THREADS_MAX);
}

struct arguments {
	const char *argv[ARGUMENTS_MAX];
	unsigned count;
	char text[512]; /* of the numbers */
	size_t used;
};

static void argument_add(struct arguments *a, const char *name, const char *value)
{
	if (!value)
		return;
	a->argv[a->count++] = name;
	a->argv[a->count++] = value;
}

static void add_number(struct arguments *a, const char *name, uint64_t number, const char *unit)
{
	char *text = a->text + a->used;

	a->used += (size_t)snprintf(text, sizeof(a->text) - a->used, "%" PRIu64 "%s", number, unit) + 1;
	argument_add(a, name, text);
}

static void add_time(struct arguments *a, const char *name, uint64_t ns)
{
	if (ns == TIME_NEVER)
		argument_add(a, name, "never");
	else
		add_number(a, name, ns, "ns");
}

/* As gpu/program/arguments.c reads them. */
static void make_arguments(const struct gpu_process_attr *attr, const struct gpu_spawn *spawn, struct arguments *a)
{
	a->argv[a->count++] = attr->program;
	argument_add(a, "--backend", attr->backend);
	argument_add(a, "--device", attr->device);
	argument_add(a, "--kernels", attr->kernels);
	add_number(a, "--threads", gpu_threads(attr->threads), "");
	if (spawn->probe) {
		a->argv[a->count++] = "--probe";
		return;
	}
	add_time(a, "--nap-after", attr->poll);
	add_time(a, "--park", attr->park);
	add_time(a, "--timeout", attr->job_timeout);
	add_number(a, "--share", spawn->share, "");
	add_number(a, "--ring", GPU_FD_RING, "");
	add_number(a, "--control", GPU_FD_CONTROL, "");
	add_number(a, "--event", GPU_FD_EVENT, "");
	if (spawn->queue_mode)
		a->argv[a->count++] = "--queue-mode";
}

/* Each source was made with a number beyond the targets, so that none is overwritten before its
 * turn. */
static int add_files(const struct gpu_spawn *spawn, posix_spawn_file_actions_t *files)
{
	int rc = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);

	if (rc == 0 && spawn->probe) {
		rc = posix_spawn_file_actions_adddup2(files, spawn->output, 1);
		if (rc == 0)
			rc = posix_spawn_file_actions_adddup2(files, spawn->output, 2);
		return rc;
	}
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(files, spawn->ring, GPU_FD_RING);
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(files, spawn->control, GPU_FD_CONTROL);
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(files, spawn->event, GPU_FD_EVENT);
	return rc;
}

static void make_environment(char *out[ENVIRONMENT_MAX + 1])
{
	unsigned n = 0;

	for (char **variable = environ; *variable && n < ENVIRONMENT_MAX; variable++)
		for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
			if (strncmp(*variable, passed_on[i], strlen(passed_on[i])) == 0) {
				out[n++] = *variable;
				break;
			}
	out[n] = NULL;
}

static int program_start(const struct gpu_process_attr *attr, const struct gpu_spawn *spawn, pid_t *pid)
{
	struct arguments arguments = {.count = 0};
	posix_spawn_file_actions_t files;
	char *environment[ENVIRONMENT_MAX + 1];
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int rc;

	make_arguments(attr, spawn, &arguments);
	make_environment(environment);
	rc = posix_spawn_file_actions_init(&files);
	if (rc != 0)
		return -rc;
	rc = posix_spawnattr_init(&attributes);
	if (rc != 0)
		goto destroy_files;
	/* A group of its own: what a terminal sends to ours is for the daemon, which ends its processes. And signals as
	 * they are in a new process, whatever the daemon did to its own. */
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setpgroup(&attributes, 0);
	rc = add_files(spawn, &files);
	if (rc == 0)
		rc = posix_spawnattr_setflags(&attributes,
					      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	if (rc == 0)
		rc = posix_spawn(pid, attr->program, &files, &attributes, (char *const *)arguments.argv, environment);
	posix_spawnattr_destroy(&attributes);
destroy_files:
	posix_spawn_file_actions_destroy(&files);
	return -rc;
}

int gpu_spawn(const struct gpu_process_attr *attr, const struct gpu_spawn *spawn, pid_t *pid, int *pidfd)
{
	int rc = program_start(attr, spawn, pid);

	if (rc != 0) {
		log_error("gpu", "cannot start %s: %s", attr->program, strerror(-rc));
		return rc;
	}
	*pidfd = (int)syscall(SYS_pidfd_open, *pid, 0);
	if (*pidfd >= 0)
		return 0;
	rc = -errno;
	if (rc == -ENOSYS)
		log_error("gpu", "this kernel has no pidfd_open(2), which Linux has since 5.3: it "
				 "cannot watch worker processes");
	else
		log_error("gpu", "pidfd_open: %m");
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	return rc;
}

bool gpu_spawn_reap(int pidfd, int flags, int *status)
{
	siginfo_t info = {.si_pid = 0};
	int rc;

	do
		rc = waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | flags);
	while (rc != 0 && errno == EINTR);
	if (rc != 0) {
		*status = 0; /* another thread has reaped it */
		return true;
	}
	if (info.si_pid == 0)
		return false;
	*status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
	return true;
}

char *gpu_spawn_status(int status, char buf[static 64])
{
	if (WIFSIGNALED(status))
		snprintf(buf, 64, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(buf, 64, "ended with exit status %d", WEXITSTATUS(status));
	return buf;
}
