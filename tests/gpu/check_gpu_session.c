/*
 * check_gpu_session.c: processes, as the daemon has them: they start, work, sleep, are
 * stopped, die, are lied to; and nothing of them stays.
 *
 * RDMAD_TEST_BACKEND is the backend that they have, cpu unless given; RDMAD_TEST_KERNELS its file
 * of kernels, if it needs one.
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/message.h"
#include "gpu/program/program.h"
#include "tests/suite.h"

static const struct wire_ring_shape small = {2, 4, 4096};

static const char *backend = "cpu";
static struct gpu_process_attr attr;
static struct gpu_session *session;
static struct gpu_port *port;

/* What a process has that a session takes. */
struct has {
	unsigned descriptors, mappings, children;
};

static unsigned count_lines(const char *path, const char *with)
{
	FILE *file = fopen(path, "r");
	char line[512];
	unsigned n = 0;

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, with) != NULL;
	fclose(file);
	return n;
}

static struct has count(void)
{
	siginfo_t info = {.si_pid = 0};
	int rc = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);

	return (struct has){
		.descriptors = count_descriptors(),
		.mappings = count_lines("/proc/self/maps", "rdmad-gpu"),
		.children = rc == 0, /* else: none, not even dead ones */
	};
}

static struct has before;

static void set_up(void)
{
	attr = (struct gpu_process_attr){
		.program = "./rdmad-gpu",
		.backend = backend,
		.kernels = getenv("RDMAD_TEST_KERNELS"),
		.threads = 2,
		.poll = 50 * TIME_US,
		.park = TIME_S,
		.job_timeout = 10 * TIME_S,
	};
	session = NULL;
	port = NULL;
	before = count();
}

static void destroy(void)
{
	gpu_port_destroy(port);
	gpu_session_destroy(session);
	port = NULL;
	session = NULL;
}

static void tear_down(void)
{
	struct has after;

	destroy();
	after = count();
	ck_assert_uint_eq(after.descriptors, before.descriptors);
	ck_assert_uint_eq(after.mappings, before.mappings);
	ck_assert_uint_eq(after.children, before.children);
}

static void wait_for_session(void)
{
	struct pollfd fd = {.fd = gpu_session_fd(session), .events = POLLIN};
	uint64_t now = time_now(), deadline = gpu_session_deadline(session);

	poll(&fd, 1, deadline <= now ? 0 : (int)MIN((deadline - now) / TIME_MS + 1, 1000));
}

static void run_until(enum gpu_session_state state)
{
	while (gpu_session_progress(session, time_now()) < state)
		wait_for_session();
}

static void start_as(const struct wire_ring_shape *shape, bool queue_mode)
{
	ck_assert_int_eq(gpu_session_start(&attr, shape, queue_mode, &session), 0);
	ck_assert_int_eq(gpu_port_create(gpu_session_ring(session), &port), 0);
}

static void start(void)
{
	start_as(&small, false);
	run_until(GPU_RUNNING);
	ck_assert_int_eq(gpu_session_progress(session, time_now()), GPU_RUNNING);
}

static void assert_ended(const char *reason, enum wire_ring_error error)
{
	const struct wire_ring_header *header = wire_ring_header(gpu_session_ring(session));

	run_until(GPU_GONE);
	ck_assert_msg(strstr(gpu_session_reason(session), reason), "'%s' has no '%s'", gpu_session_reason(session),
		      reason);
	ck_assert_uint_eq(header->error, error);
	ck_assert_uint_eq(header->state, error ? WIRE_RING_FAILED : WIRE_RING_STOPPED);
	ck_assert_uint_eq(gpu_session_deadline(session), TIME_NEVER);
}

static struct wire_ring_job echo_job(uint32_t id, uint32_t microseconds)
{
	return (struct wire_ring_job){.id = id, .op = WIRE_RING_ECHO, .length = 64, .param = {microseconds}};
}

static bool submit(const struct wire_ring_job *job)
{
	struct gpu_cell cell;
	void *input;

	if (gpu_port_reserve(port, &cell, &input) != 0)
		return false;
	memset(input, (int)job->id, job->length);
	gpu_port_submit(port, &cell, job);
	return true;
}

/* The results that came, checked and given back. */
static unsigned collect(void)
{
	struct gpu_done done[16];
	int n = gpu_port_poll(port, done, ARRAY_SIZE(done));

	ck_assert_int_ge(n, 0);
	for (int i = 0; i < n; i++) {
		ck_assert_uint_eq(((const uint8_t *)done[i].output)[0], (uint8_t)done[i].result.id);
		ck_assert_uint_eq(wire_ring_check(&done[i].result, done[i].output), done[i].result.check);
		gpu_port_release(port, &done[i].cell);
	}
	return (unsigned)n;
}

/* Sleeping on the session's descriptor whenever there is nothing. */
static unsigned collect_or_sleep(void)
{
	unsigned n = collect();

	gpu_port_kick(port);
	if (n)
		return n;
	if (gpu_port_arm(port)) {
		wait_for_session();
		gpu_port_disarm(port);
	}
	ck_assert_int_eq(gpu_session_progress(session, time_now()), GPU_RUNNING);
	return 0;
}

static void exchange(unsigned jobs, unsigned outstanding)
{
	unsigned sent = 0, received = 0;

	while (received < jobs) {
		while (sent < jobs && sent - received < outstanding) {
			struct wire_ring_job job = echo_job(sent, 0);

			if (!submit(&job))
				break;
			sent++;
		}
		gpu_port_kick(port);
		received += collect_or_sleep();
	}
}

START_TEST(test_jobs)
{
	start();
	ck_assert_str_eq(gpu_session_probe(session)->backend, backend);
	ck_assert_uint_gt(strlen(gpu_session_probe(session)->device), 0);
	ck_assert_uint_eq(wire_ring_header(gpu_session_ring(session))->state, WIRE_RING_RUNNING);
	exchange(2000, 8);
	gpu_session_stop(session, time_now());
	gpu_session_stop(session, time_now());
	assert_ended("", WIRE_RING_NO_ERROR);
	ck_assert_str_eq(gpu_session_reason(session), "");
}
END_TEST

/* Jobs that are there before the process is. */
START_TEST(test_filled_before_it_runs)
{
	struct wire_ring_job job = echo_job(7, 0);

	start_as(&small, false);
	while (submit(&job))
		;
	run_until(GPU_RUNNING);
	for (unsigned n = 0; n < small.queues * small.slots;)
		n += collect_or_sleep();
}
END_TEST

/* Both sides sleep as soon as they have nothing: each job is a kick and a write to the descriptor,
 * none of which may be lost. */
START_TEST(test_both_sleep)
{
	attr.poll = 0;
	start();
	exchange(3000, 1);
	exchange(3000, 3);
}
END_TEST

/* Nobody kicks. */
START_TEST(test_queue_mode_naps)
{
	attr.poll = 0;
	start_as(&small, true);
	run_until(GPU_RUNNING);
	exchange(200, 1);
	exchange(2000, 8);
}
END_TEST

START_TEST(test_always_polls)
{
	attr.poll = TIME_NEVER;
	start();
	exchange(500, 4);
}
END_TEST

START_TEST(test_heartbeat)
{
	const uint64_t *heartbeat;
	uint64_t first;

	start();
	heartbeat = &wire_ring_header(gpu_session_ring(session))->heartbeat;
	first = wire_ring_load(heartbeat);
	while (wire_ring_load(heartbeat) < first + 2)
		usleep(1000);
}
END_TEST

/* A queue whose job takes long does not hold up another, where there are two threads. */
START_TEST(test_queues_are_apart)
{
	struct wire_ring_job slow = echo_job(1, 60000000), fast = echo_job(2, 0);

	attr.job_timeout = TIME_NEVER;
	start();
	ck_assert(submit(&slow));
	gpu_port_kick(port);
	ck_assert(submit(&fast)); /* in the other queue, which has more room */
	gpu_port_kick(port);
	while (collect_or_sleep() == 0)
		;
	gpu_session_stop(session, time_now());
	assert_ended("", WIRE_RING_NO_ERROR);
}
END_TEST

START_TEST(test_stopped_while_starting)
{
	start_as(&small, false);
	gpu_session_stop(session, time_now());
	run_until(GPU_GONE);
	ck_assert_str_eq(gpu_session_reason(session), "");
	ck_assert_uint_eq(wire_ring_header(gpu_session_ring(session))->state, WIRE_RING_STOPPED);
}
END_TEST

/* One that does not listen is killed when its time is over. */
START_TEST(test_stopped_while_it_hangs)
{
	start();
	ck_assert_int_eq(kill(gpu_session_pid(session), SIGSTOP), 0);
	gpu_session_stop(session, time_now());
	assert_ended("", WIRE_RING_NO_ERROR);
}
END_TEST

START_TEST(test_killed)
{
	start();
	exchange(10, 1);
	kill(gpu_session_pid(session), SIGKILL);
	assert_ended("was killed by signal 9", WIRE_RING_DIED);
}
END_TEST

START_TEST(test_destroyed_while_it_works)
{
	struct wire_ring_job job = echo_job(1, 1000000);

	start();
	submit(&job);
	gpu_port_kick(port);
	destroy();
	start_as(&small, false); /* and before it is ready */
}
END_TEST

START_TEST(test_cannot_start)
{
	attr.program = "/nonexistent/rdmad-gpu";
	ck_assert_int_eq(gpu_session_start(&attr, &small, false, &session), -ENOENT);
	ck_assert_ptr_null(session);
	attr.program = "/etc/passwd";
	ck_assert_int_eq(gpu_session_start(&attr, &small, false, &session), -EACCES);
	attr.program = "/bin/false";
	start_as(&small, false);
	assert_ended("ended with exit status 1", WIRE_RING_DIED);
}
END_TEST

/* Its time to get ready is limited, and then that to end. */
START_TEST(test_never_ready)
{
	const char *srcdir = getenv("srcdir");
	char program[4096];

	snprintf(program, sizeof(program), "%s/tests/fake/silent-gpu", srcdir ? srcdir : ".");
	attr.program = program;
	start_as(&small, false);
	ck_assert_int_eq(gpu_session_progress(session, gpu_session_deadline(session)), GPU_ENDING);
	gpu_session_progress(session, gpu_session_deadline(session));
	assert_ended("not ready within 30 s", WIRE_RING_DIED);
}
END_TEST

START_TEST(test_bad_backend)
{
	attr.backend = "abacus";
	start_as(&small, false);
	assert_ended("there is no backend abacus in this build", WIRE_RING_DEVICE);
}
END_TEST

START_TEST(test_overtime)
{
	struct wire_ring_job job = echo_job(1, 60000000);

	attr.job_timeout = TIME_S; /* also on a busy machine, no other job takes as long */
	start();
	exchange(3, 1);
	submit(&job);
	gpu_port_kick(port);
	assert_ended("takes longer than 1s", WIRE_RING_OVERTIME);
}
END_TEST

/* A process that is stopped does not look at its jobs' time. */
START_TEST(test_stands_still)
{
	attr.job_timeout = TIME_S;
	start();
	exchange(3, 1);
	ck_assert_int_eq(kill(gpu_session_pid(session), SIGSTOP), 0);
	assert_ended("stands still", WIRE_RING_DIED);
}
END_TEST

/* One that is not is left alone, also when it has nothing to do. */
START_TEST(test_does_not_stand_still)
{
	uint64_t until;

	attr.job_timeout = TIME_S;
	start();
	for (until = time_now() + 6 * TIME_S; time_now() < until; wait_for_session())
		ck_assert_int_eq(gpu_session_progress(session, time_now()), GPU_RUNNING);
	exchange(3, 1);
}
END_TEST

/*
 * A client of queue mode writes what it likes into its part.
 */
static const struct wire_ring *hostile(void)
{
	start_as(&small, true);
	run_until(GPU_RUNNING);
	return gpu_session_ring(session);
}

/* Job 0 of queue 1, as it stands there when the index says so. */
static void assert_refused(struct wire_ring_job job, const char *reason, enum wire_ring_error error)
{
	const struct wire_ring *ring = hostile();
	const struct wire_ring_header *header = wire_ring_header(ring);

	*wire_ring_job(ring, 1, 0) = job;
	wire_ring_store(&wire_ring_client_line(ring, 1)->submitted, 1);
	assert_ended(reason, error);
	ck_assert_uint_eq(header->error_queue, 1);
	ck_assert_uint_eq(header->error_index, 0);
	destroy();
}

START_TEST(test_bad_jobs)
{
	struct wire_ring_job job = {.sequence = 1, .op = WIRE_RING_QUANTIZE, .length = 4096, .param = {64, 64, 4}};

	job.param[2] = 0;
	assert_refused(job, "job 0 of queue 1: levels", WIRE_RING_BAD_JOB);
	job.param[2] = 4;
	job.length = 4095;
	assert_refused(job, "width times height", WIRE_RING_BAD_JOB);
	job.length = UINT32_MAX;
	job.param[0] = UINT32_MAX;
	job.param[1] = 1;
	assert_refused(job, "longer than a cell", WIRE_RING_BAD_JOB);
	job.op = 77;
	assert_refused(job, "no such operation", WIRE_RING_BAD_JOB);
	job.sequence = 2;
	assert_refused(job, "sequence number is not 1", WIRE_RING_SEQUENCE);
}
END_TEST

static void assert_jump(uint64_t submitted, uint64_t collected)
{
	const struct wire_ring *ring = hostile();

	wire_ring_store(&wire_ring_client_line(ring, 1)->collected, collected);
	wire_ring_store(&wire_ring_client_line(ring, 1)->submitted, submitted);
	assert_ended("queue 1: an index", WIRE_RING_JUMPED);
	destroy();
}

START_TEST(test_jumps)
{
	assert_jump(5, 0);
	assert_jump(UINT64_MAX, 0);
	assert_jump(1u << 31, 0);
	assert_jump(1, 1);
	assert_jump(1, UINT64_MAX - small.slots);
}
END_TEST

struct rewriter {
	const struct wire_ring *ring;
	_Atomic bool stop;
};

/* Good values and at times bad ones, faster than anybody looks. */
static void *rewrite(void *argument)
{
	struct rewriter *r = argument;
	uint32_t n = 0;

	while (!atomic_load(&r->stop)) {
		for (uint32_t queue = 0; queue < small.queues; queue++)
			for (uint32_t slot = 0; slot < small.slots; slot++) {
				struct wire_ring_job *job = wire_ring_job(r->ring, queue, slot);
				uint32_t *input = (uint32_t *)(job + 1);

				__atomic_store_n(&job->length, n % 50 ? 4096 : 1u << 30, __ATOMIC_RELAXED);
				__atomic_store_n(&job->param[0], n % 60 ? 64 : 1u << 24, __ATOMIC_RELAXED);
				__atomic_store_n(&job->param[2], n % 70 ? 4 : n, __ATOMIC_RELAXED);
				__atomic_store_n(&input[n % 1024], n, __ATOMIC_RELAXED);
			}
		n++;
	}
	return NULL;
}

/* Jobs, as fast as they are taken, while a thread rewrites them all: the process either carries out
 * what it copied or refuses it. It never dies of it. */
static void submit_while_rewritten(const struct wire_ring *ring)
{
	uint64_t index = 0;

	while (gpu_session_progress(session, time_now()) == GPU_RUNNING && index < 20000) {
		struct wire_ring_worker_line *line = wire_ring_worker_line(ring, 0);
		struct wire_ring_job *job = wire_ring_job(ring, 0, index);

		if (index - wire_ring_load(&line->taken) == small.slots)
			continue;
		__atomic_store_n(&job->sequence, index + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&job->op, WIRE_RING_QUANTIZE, __ATOMIC_RELAXED);
		__atomic_store_n(&job->param[1], 64, __ATOMIC_RELAXED);
		wire_ring_store(&wire_ring_client_line(ring, 0)->collected, wire_ring_load(&line->done));
		wire_ring_store(&wire_ring_client_line(ring, 0)->submitted, ++index);
	}
}

START_TEST(test_rewritten_descriptors)
{
	for (unsigned round = 0; round < 20; round++) {
		struct rewriter r = {.ring = hostile()};
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, rewrite, &r), 0);
		submit_while_rewritten(r.ring);
		atomic_store(&r.stop, true);
		pthread_join(thread, NULL);
		gpu_session_stop(session, time_now());
		run_until(GPU_GONE);
		ck_assert_uint_ne(wire_ring_header(r.ring)->error, WIRE_RING_DIED);
		destroy();
	}
}
END_TEST

/* One session's end is nothing to another. */
START_TEST(test_sessions_are_apart)
{
	struct gpu_session *other;
	struct gpu_port *its_port;

	start();
	other = session;
	its_port = port;
	start();
	kill(gpu_session_pid(session), SIGKILL);
	assert_ended("signal 9", WIRE_RING_DIED);
	destroy();
	session = other;
	port = its_port;
	exchange(100, 4);
}
END_TEST

/*
 * The process.
 */
static void assert_status(pid_t pid, const char *file, const char *line)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	ck_assert_msg(count_lines(path, line) == 1, "%s has no '%s'", path, line);
}

/* What a build with sanitizers leaves out. */
#ifdef RDMAD_SANITIZED
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif
#ifdef __SANITIZE_THREAD__
enum { THREAD_SANITIZED = true };
#else
enum { THREAD_SANITIZED = false };
#endif

/* Bytes of the process's environment with that text in them. */
static bool environment_has(pid_t pid, const char *text)
{
	char path[64], all[4096];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	n = fread(all, 1, sizeof(all), file);
	fclose(file);
	return memmem(all, n, text, strlen(text));
}

START_TEST(test_confined)
{
	char path[64];
	pid_t pid;

	setenv("PASSWORD_OF_SOMETHING", "hush", 1);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	start();
	pid = gpu_session_pid(session);
	assert_status(pid, "status", "NoNewPrivs:\t1");
	assert_status(pid, "status", "CapPrm:\t0000000000000000");
	assert_status(pid, "status", "CapEff:\t0000000000000000");
	assert_status(pid, "status", SANITIZED ? "Seccomp:\t0" : "Seccomp:\t2");
	if (geteuid() != 0 && !SANITIZED) {
		snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
		ck_assert_int_ne(access(path, R_OK), 0); /* it hides, also from its own user */
		return;
	}
	ck_assert(environment_has(pid, "CUDA_VISIBLE_DEVICES=0"));
	ck_assert(!environment_has(pid, "PASSWORD_OF_SOMETHING"));
	assert_status(pid, "limits", "Max core file size        0                    0");
	assert_status(pid, "limits", "Max file size             0                    0");
	assert_status(pid, "limits", "Max open files            64                   64");
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	/* ., .., standard ones, control socket and event descriptor */
	ck_assert_uint_eq(count_entries(path), 2 + 3 + 2);
	ck_assert_int_eq(getpgid(pid), pid);
}
END_TEST

/* One thing that a process was taken over for. True: it could be done. */
static bool open_file(void)
{
	return open("/etc/passwd", O_RDONLY) >= 0;
}

static bool open_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0) >= 0;
}

static bool kill_parent(void)
{
	return kill(getppid(), 0) == 0;
}

static bool run_program(void)
{
	static char *const none[] = {NULL};

	return execve("/bin/true", none, none) == 0;
}

static bool make_process(void)
{
	return fork() >= 0;
}

static bool make_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static bool read_parent(void)
{
	char here = 0, there = 0;
	struct iovec local = {&here, 1}, remote = {&there, 1};

	return process_vm_readv(getppid(), &local, 1, &remote, 1, 0) == 1;
}

static bool make_data(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static bool (*const deeds[])(void) = {make_data,   open_file,   open_socket,  kill_parent,
				      run_program, read_parent, make_process, make_code};

/* Deed i in a process confined so far. */
static void do_confined(int i, const struct gpu_backend *as, bool calls, int control)
{
	if (gpu_confine(control, as) != 0)
		_exit(2);
	if (calls)
		gpu_sandbox_calls((char[GPU_WHY]){""});
	_exit(deeds[i]() ? 1 : 0);
}

static int confined_status(int i, const struct gpu_backend *as, bool calls)
{
	int ends[2], status;
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		ck_assert_int_ge(dup2(ends[1], GPU_FD_CONTROL), 0);
		do_confined(i, as, calls, GPU_FD_CONTROL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	close(ends[0]);
	close(ends[1]);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A sealed process can have memory and nothing else of the list. */
START_TEST(test_sealed)
{
	ck_assert_int_eq(confined_status(_i, &gpu_backend_cpu, true), deeds[_i] == make_data ? 1 : 0);
}
END_TEST

/* Before its calls are filtered, the kernel's Landlock has closed files and other processes already. */
START_TEST(test_sandboxed)
{
	bool there = syscall(444, NULL, 0, 1) >= 1; /* landlock_create_ruleset() */
	bool open = deeds[_i] != open_file && deeds[_i] != run_program && deeds[_i] != read_parent;

	if (there && (deeds[_i] != kill_parent || syscall(444, NULL, 0, 1) >= 6))
		ck_assert_int_eq(confined_status(_i, &gpu_backend_cpu, false), open && deeds[_i] != kill_parent);
}
END_TEST

/* Where a ring is says nothing of where anything else is: no other mapping is near. */
START_TEST(test_ring_is_far)
{
	uintptr_t base, from, to, near = 1ull << 32;
	char line[512];
	FILE *maps;

	start();
	base = (uintptr_t)gpu_session_ring(session)->base;
	maps = fopen("/proc/self/maps", "r");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		if (!strstr(line, "rdmad-gpu") && sscanf(line, "%lx-%lx", &from, &to) == 2)
			ck_assert_msg(to < base - near || from > base + near, "%s", line);
	fclose(maps);
}
END_TEST

static cpu_set_t share_of(const struct gpu_session *of)
{
	cpu_set_t set;

	ck_assert_int_eq(sched_getaffinity(gpu_session_pid(of), sizeof(set), &set), 0);
	return set;
}

/* As many processors as threads, and others than the session before has; all of them where there are fewer than four. */
START_TEST(test_share)
{
	struct gpu_session *other;
	struct gpu_port *its_port;
	cpu_set_t all, mine, its, both;
	int count;

	sched_getaffinity(0, sizeof(all), &all);
	count = CPU_COUNT(&all);
	attr.threads = 0;
	start();
	other = session;
	its_port = port;
	start();
	mine = share_of(session);
	its = share_of(other);
	ck_assert_int_eq(CPU_COUNT(&mine), count < 4 ? count : count / 2);
	CPU_AND(&both, &mine, &its);
	ck_assert_int_eq(CPU_COUNT(&both), count < 4 ? count : 0);
	destroy();
	session = other;
	port = its_port;
}
END_TEST

static bool process_gone(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return access(path, F_OK) != 0 || count_lines(path, "State:\tZ") == 1;
}

/* A daemon that is killed leaves no process. */
START_TEST(test_daemon_dies)
{
	int ends[2];
	pid_t daemon, process;

	ck_assert_int_eq(pipe(ends), 0);
	daemon = fork();
	ck_assert_int_ge(daemon, 0);
	if (daemon == 0) {
		start();
		process = gpu_session_pid(session);
		if (write(ends[1], &process, sizeof(process)) == sizeof(process))
			pause();
		_exit(1);
	}
	ck_assert_int_eq(read(ends[0], &process, sizeof(process)), sizeof(process));
	kill(daemon, SIGKILL);
	ck_assert_int_eq(waitpid(daemon, NULL, 0), daemon);
	while (!process_gone(process))
		usleep(1000);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/*
 * The ring that a process is given.
 */
static int map(int seals, off_t size, const struct wire_ring_header *header)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING), rc;
	struct wire_ring ring = {0};

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	ck_assert_int_eq(pwrite(fd, header, sizeof(*header), 0), sizeof(*header));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	rc = gpu_ring_map(fd, &ring);
	if (rc == 0)
		munmap(ring.base, ring.at.bytes);
	close(fd);
	return rc;
}

START_TEST(test_ring_is_checked)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	const struct wire_ring_header good = {
		.magic = WIRE_RING_MAGIC,
		.version = WIRE_RING_VERSION,
		.queues = small.queues,
		.slots = small.slots,
		.payload = small.payload,
	};
	struct wire_ring_header header = good;
	off_t size = (off_t)wire_ring_layout(&small).bytes;

	ck_assert_int_eq(map(seals, size, &header), 0);
	ck_assert_int_eq(map(F_SEAL_GROW, size, &header), -EINVAL);
	ck_assert_int_eq(map(F_SEAL_SHRINK, size, &header), -EINVAL);
	ck_assert_int_eq(map(seals, size - 4096, &header), -EINVAL);
	ck_assert_int_eq(map(seals, size + 4096, &header), -EINVAL);
	ck_assert_int_eq(map(seals, 64, &header), -EINVAL);
	header.magic++;
	ck_assert_int_eq(map(seals, size, &header), -EINVAL);
	header = good;
	header.version++;
	ck_assert_int_eq(map(seals, size, &header), -EINVAL);
	header = good;
	header.queues = UINT32_MAX;
	ck_assert_int_eq(map(seals, size, &header), -EINVAL);
	header = good;
	header.slots++;
	ck_assert_int_eq(map(seals, size, &header), -EINVAL);
	ck_assert_int_eq(gpu_ring_map(0, &(struct wire_ring){0}), -EINVAL);
}
END_TEST

START_TEST(test_probe)
{
	struct gpu_probe probe;

	ck_assert_int_eq(gpu_probe(&attr, &probe), 0);
	ck_assert_str_eq(probe.backend, "cpu");
	ck_assert_int_eq(strncmp(probe.device, "2 threads", 9), 0);
	attr.threads = 0;
	ck_assert_int_eq(gpu_probe(&attr, &probe), 0);
	attr.backend = "abacus";
	ck_assert_int_eq(gpu_probe(&attr, &probe), -ENODEV);
	attr.program = "/bin/true"; /* which says nothing */
	ck_assert_int_eq(gpu_probe(&attr, &probe), -ENODEV);
	attr.program = "/nonexistent/rdmad-gpu";
	ck_assert_int_eq(gpu_probe(&attr, &probe), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpu session");
	TCase *tc = suite_case(suite, "session", set_up, tear_down);

	if (getenv("RDMAD_TEST_BACKEND"))
		backend = getenv("RDMAD_TEST_BACKEND");
	tcase_add_test(tc, test_jobs);
	tcase_add_test(tc, test_filled_before_it_runs);
	tcase_add_test(tc, test_both_sleep);
	tcase_add_test(tc, test_queue_mode_naps);
	tcase_add_test(tc, test_always_polls);
	tcase_add_test(tc, test_heartbeat);
	tcase_add_test(tc, test_queues_are_apart);
	tcase_add_test(tc, test_stopped_while_starting);
	tcase_add_test(tc, test_stopped_while_it_hangs);
	tcase_add_test(tc, test_killed);
	tcase_add_test(tc, test_destroyed_while_it_works);
	tcase_add_test(tc, test_cannot_start);
	tcase_add_test(tc, test_never_ready);
	tcase_add_test(tc, test_bad_backend);
	tcase_add_test(tc, test_overtime);
	tcase_add_test(tc, test_stands_still);
	tcase_add_test(tc, test_does_not_stand_still);
	tcase_add_test(tc, test_bad_jobs);
	tcase_add_test(tc, test_jumps);
	tcase_add_test(tc, test_rewritten_descriptors);
	tcase_add_test(tc, test_sessions_are_apart);
	tcase_add_test(tc, test_daemon_dies);
	tcase_add_test(tc, test_ring_is_checked);
	if (strcmp(backend, "cpu") == 0) {
		tcase_add_test(tc, test_confined);
		if (!THREAD_SANITIZED) /* which has places of its own for mappings */
			tcase_add_test(tc, test_ring_is_far);
		tcase_add_test(tc, test_share);
		if (!SANITIZED) {
			tcase_add_loop_test(tc, test_sealed, 0, ARRAY_SIZE(deeds));
			tcase_add_loop_test(tc, test_sandboxed, 0, ARRAY_SIZE(deeds));
		}
		tcase_add_test(tc, test_probe);
	}
	return suite_run(suite);
}
