/*
 * confine.c: what the process of a session may do. First its limits, its parent and its descriptors; then the sandbox,
 * what the kernel has to keep a process that was taken over from everything else. A kernel, or the filter of a service
 * manager, may refuse that, but for the capabilities: the caller is told what is left out then.
 *
 * The process is of the daemon's user, so only Landlock keeps it from the memory of the daemon and of its other
 * processes (a process outside of its domain cannot be traced), and that these hide theirs. What is sealed has a list
 * of system calls on top, none of which opens anything.
 */
#include "gpu/message.h"
#include "base/local.h"
#include "gpu/program/program.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sanitizers read /proc at any time, and look for leaks as a tracer of their own process. */
#ifdef RDMAD_SANITIZED
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define ARCHITECTURE 0 /* whose numbers were not tried here */
#endif

/* Adds what failed just now, with errno, to the text. */
static void add_lack(char lacks[static GPU_WHY], const char *what)
{
	size_t n = strlen(lacks);

	snprintf(lacks + n, GPU_WHY - n, "%s%s (%m)", n ? ", " : "", what);
}

int gpu_hide_memory(void)
{
	if (SANITIZED || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
		return 0;
	return -errno;
}

/*
 * Landlock, by its numbers: a system's headers may be older than its kernel.
 */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif

#define LANDLOCK_VERSION 1u /* flag of the first call: which version is there? */

struct landlock_rules {
	uint64_t files, net, scopes;
};

enum {
	FILES_DEVICES = 1 << 6 | 1 << 11, /* make those of characters and of blocks */
	NET_TCP = 1 << 0 | 1 << 1,        /* bind, connect */
	SCOPE_SOCKETS = 1 << 0,           /* abstract UNIX sockets of others */
	SCOPE_SIGNALS = 1 << 1,
};

/* All rights to files that each version knows; later ones know those of the last. */
static const uint64_t files_known[] = {0, 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff};

/* Rights that the rules name are forbidden, as there is no exception. A driver of accelerators needs files, its own
 * sockets and devices that are there. */
static struct landlock_rules landlock_rules(long version, bool sealed)
{
	uint64_t files = files_known[MIN((size_t)version, ARRAY_SIZE(files_known) - 1)];

	return (struct landlock_rules){
		.files = sealed ? files : files & FILES_DEVICES,
		.net = version >= 4 ? NET_TCP : 0,
		.scopes = version >= 6 ? SCOPE_SIGNALS | (sealed ? SCOPE_SOCKETS : 0) : 0,
	};
}

static void landlock_restrict(bool sealed, char lacks[static GPU_WHY])
{
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);
	struct landlock_rules rules;
	int fd;

	if (version < 1) {
		add_lack(lacks, "Landlock");
		return;
	}
	rules = landlock_rules(version, sealed);
	fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
	if (fd < 0 || syscall(SYS_landlock_restrict_self, fd, 0) != 0)
		add_lack(lacks, "Landlock's rules");
	if (fd >= 0)
		close(fd);
}

int gpu_sandbox(bool sealed, char lacks[static GPU_WHY])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
	int rc = syscall(SYS_capset, &header, none) == 0 ? gpu_hide_memory() : -errno;

	if (rc == 0 && !SANITIZED)
		landlock_restrict(sealed, lacks);
	return rc;
}

static int resource_limit(int what, rlim_t most)
{
	struct rlimit limits;

	if (getrlimit(what, &limits) != 0)
		return -errno;
	limits.rlim_cur = limits.rlim_max = MIN(most, limits.rlim_max);
	return setrlimit(what, &limits) == 0 ? 0 : -errno;
}

static void close_others(void)
{
	if (syscall(SYS_close_range, GPU_FD_END, ~0u, 0) == 0)
		return;
	for (int fd = GPU_FD_END; fd < sysconf(_SC_OPEN_MAX); fd++)
		close(fd);
}

int gpu_confine(int control, const struct gpu_backend *backend)
{
	struct ucred daemon;
	int rc = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? local_peer(control, &daemon) : -errno;
	char lacks[GPU_WHY] = ""; /* gpu_probe() has told of it */

	if (rc == 0 && daemon.pid != getppid()) /* it went before its end was this process's, too */
		rc = -ESRCH;
	if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		rc = -errno;
	signal(SIGPIPE, SIG_IGN);
	if (rc == 0)
		rc = resource_limit(RLIMIT_CORE, 0);
	close_others();
	if (rc == 0)
		rc = gpu_sandbox(backend && backend->sealed, lacks);
	if (rc == -ESRCH)
		log_error("gpu", "who started this process is gone");
	else if (rc != 0)
		log_error("gpu", "cannot confine this process: %s", strerror(-rc));
	return rc;
}

int gpu_confine_files(const struct gpu_backend *backend)
{
	int rc;

	signal(SIGXFSZ, SIG_IGN); /* to write too much is no reason to die */
	rc = resource_limit(RLIMIT_FSIZE, backend->file_bytes);
	if (rc == 0)
		rc = resource_limit(RLIMIT_NOFILE, backend->descriptors);
	if (rc != 0)
		log_error("gpu", "cannot limit this process's files: %s", strerror(-rc));
	return rc;
}

/*
 * System calls
 */

/* System calls that are left: to read the clock, to sleep and wake, to tell the daemon by descriptors that are there,
 * memory, and an end. `never`: bits of that argument with which it is refused. */
static const struct call {
	int number, argument;
	uint32_t never;
} calls[] = {
	{SYS_futex},
	{SYS_sched_yield},
	{SYS_nanosleep},
	{SYS_clock_nanosleep},
	{SYS_clock_gettime},
	{SYS_ppoll},
#ifdef SYS_poll
	{SYS_poll},
#endif
	{SYS_write},
	{SYS_sendto},
	{SYS_brk},
	{SYS_munmap},
	{SYS_madvise},
	{SYS_mmap, 2, PROT_EXEC},
	{SYS_mprotect, 2, PROT_EXEC},
	{SYS_getrandom},
	{SYS_rt_sigprocmask},
	{SYS_rt_sigreturn},
	{SYS_restart_syscall},
	{SYS_set_robust_list}, /* a thread that begins */
#ifdef SYS_rseq
	{SYS_rseq},
#endif
	{SYS_exit},
	{SYS_exit_group},
};

#define CALL_CODE 5 /* most instructions of a row */

struct program {
	struct sock_filter code[4 + ARRAY_SIZE(calls) * CALL_CODE + 1];
	unsigned short count;
};

static void filter_emit(struct program *p, struct sock_filter instruction)
{
	p->code[p->count++] = instruction;
}

static void emit_load(struct program *p, size_t at)
{
	filter_emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)at));
}

static void emit_answer(struct program *p, uint32_t answer)
{
	filter_emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer));
}

/* The number is loaded. Arguments whose bits are asked for have 32. */
static void emit_call(struct program *p, const struct call *call)
{
	bool asks = call->never;

	filter_emit(p,
		    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call->number, 0, asks ? 4 : 1));
	if (asks) {
		emit_load(p, offsetof(struct seccomp_data, args) + (size_t)call->argument * sizeof(uint64_t));
		filter_emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, call->never, 0, 1));
		emit_answer(p, SECCOMP_RET_ERRNO | EPERM);
	}
	emit_answer(p, SECCOMP_RET_ALLOW);
}

void gpu_sandbox_calls(char lacks[static GPU_WHY])
{
	const struct rlimit none = {0, 0};
	struct program program = {.count = 0};
	struct sock_fprog all;

	if (SANITIZED)
		return;
	setrlimit(RLIMIT_NPROC, &none); /* no more threads: also where there is no filter */
	if (!ARCHITECTURE)
		return;
	emit_load(&program, offsetof(struct seccomp_data, arch));
	filter_emit(&program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
	emit_answer(&program, SECCOMP_RET_KILL_PROCESS);
	emit_load(&program, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		emit_call(&program, &calls[i]);
	emit_answer(&program, SECCOMP_RET_ERRNO | EPERM);
	all = (struct sock_fprog){.len = program.count, .filter = program.code};
	/* The filter refuses by the number, so speculation behind it gives nothing away. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		    &all) != 0)
		add_lack(lacks, "a filter of system calls");
}
