/*
 * session.c: a ring and the process that works on it, from the daemon's side. Nothing here waits
 * for the process: what it says and its end are seen when its descriptors become readable, and its
 * the wait for it has a deadline.
 */
#include "gpu/gpu.h"
#include "base/local.h"
#include "gpu/message.h"
#include "gpu/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_LIMIT (30 * TIME_S) /* a driver may build the kernels for its device */
#define LIFE_LEAST (2 * TIME_S)   /* between two looks at the heartbeat, which counts tenths of a second */
#define LIFE_AGAIN TIME_S         /* until one more, as this process may have stood still itself */
#define MESSAGES 16               /* taken in a turn: the process may say a lot */
#define PLACE_LEAST (1ull << 45)  /* of a ring, from here on: 32 TiB of addresses that no other mapping is near to */
#define PLACES ((1ull << 45) / WIRE_RING_PAGE)
#define FD_LEAST 16 /* beyond the numbers that a process gets them under */

enum watched { WATCHED_CONTROL, WATCHED_EVENT, WATCHED_PROCESS };

struct gpu_session {
	struct wire_ring ring;
	int epoll, control, event, process; /* -1: closed */
	pid_t pid;
	enum gpu_session_state *state; /* its client's; `own` of one that has none */
	enum gpu_session_state own;
	uint64_t deadline;          /* of the start, of the next look at the heartbeat, or of the end */
	uint64_t life;              /* between two of them */
	uint64_t heartbeat, looked; /* at the last look, and when that was */
	bool still;                 /* at the last look it was what it had been */
	uintptr_t owner;            /* thread_self() of the thread that has it */
	bool asked;                 /* to end: its time is limited */
	bool failed;                /* that was why */
	bool killed;                /* because its time was over */
	struct gpu_probe probe;
	char reason[256];
};

/* Whether the session is this thread's: it has one thread, unless that has seen its process go. */
static bool session_is_mine(const struct gpu_session *session)
{
	return session->process < 0 || session->owner == thread_self();
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* The same descriptor under a higher number. */
static int lift_fd(int fd)
{
	int lifted = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_LEAST);
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return lifted;
}

/* Memory that cannot change its size under a process that maps it; new pages of it are zero. The
 * descriptor, or -errno. */
static int make_ring(const struct wire_ring_shape *shape, struct wire_ring *ring)
{
	uint64_t random = 0;
	void *place = NULL;
	int fd, rc;

	/* Clients of queue mode learn the address. It says nothing of where anything else is, as that of memory which
	 * the kernel places does. A wish: where it cannot be there, the kernel chooses. */
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) == sizeof(random))
		place = (void *)(uintptr_t)(PLACE_LEAST + random % PLACES * WIRE_RING_PAGE);
	ring->shape = *shape;
	ring->at = wire_ring_layout(shape);
	fd = lift_fd(memfd_sealed("rdmad-gpu", ring->at.bytes));
	if (fd < 0)
		goto fail;
	ring->base = mmap(place, ring->at.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring->base == MAP_FAILED)
		goto fail;
	*wire_ring_header(ring) = (struct wire_ring_header){
		.magic = WIRE_RING_MAGIC,
		.version = WIRE_RING_VERSION,
		.queues = shape->queues,
		.slots = shape->slots,
		.payload = shape->payload,
		.state = WIRE_RING_STARTING,
	};
	return fd;

fail:
	rc = -errno;
	log_error("gpu", "cannot make a ring of %llu bytes: %m", (unsigned long long)ring->at.bytes);
	ring->base = NULL;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* *other is the process's end of the control socket. */
static int make_descriptors(struct gpu_session *session, int *other)
{
	int ends[2], rc;

	session->event = lift_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (session->event < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		goto fail;
	session->control = ends[0];
	local_refuse_passing(ends[0]); /* the process runs what clients send */
	*other = lift_fd(ends[1]);
	if (*other >= 0)
		return 0;
fail:
	rc = -errno;
	log_error("gpu", "cannot make descriptors for a worker: %m");
	return rc;
}

static int spawn_process(struct gpu_session *session, const struct gpu_process_attr *attr, bool queue_mode, int ring)
{
	static _Atomic unsigned next;
	struct gpu_spawn spawn = {.queue_mode = queue_mode, .ring = ring};
	unsigned threads = gpu_threads(attr->threads);
	int rc = make_descriptors(session, &spawn.control);

	if (rc != 0)
		return rc;
	/* Session n begins where n - 1 ended: together they use all processors evenly. */
	spawn.share = atomic_fetch_add_explicit(&next, threads, memory_order_relaxed) % 65536;
	spawn.event = session->event;
	rc = gpu_spawn(attr, &spawn, &session->pid, &session->process);
	close(spawn.control);
	return rc;
}

static int watch_all(struct gpu_session *session)
{
	const int fds[] = {
		[WATCHED_CONTROL] = session->control,
		[WATCHED_EVENT] = session->event,
		[WATCHED_PROCESS] = session->process,
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};

		if (epoll_ctl(session->epoll, EPOLL_CTL_ADD, fds[i], &event) != 0) {
			int rc = -errno;

			log_error("gpu", "cannot watch a worker: %m");
			return rc;
		}
	}
	return 0;
}

int gpu_session_start(const struct gpu_process_attr *attr, const struct wire_ring_shape *shape, bool queue_mode,
		      struct gpu_session **out)
{
	struct gpu_session *session = calloc(1, sizeof(*session));
	int ring, rc;

	if (!session)
		return -ENOMEM;
	session->control = session->event = session->process = -1;
	session->state = &session->own;
	session->own = GPU_STARTING;
	session->life = MAX(attr->job_timeout, LIFE_LEAST);
	session->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (session->epoll < 0) {
		rc = -errno;
		log_error("gpu", "epoll_create: %m");
		goto destroy;
	}
	ring = rc = make_ring(shape, &session->ring);
	if (rc < 0)
		goto destroy;
	rc = spawn_process(session, attr, queue_mode, ring);
	close(ring); /* the mappings keep it */
	if (rc != 0)
		goto destroy;
	session->owner = thread_self();
	session->deadline = time_now() + START_LIMIT;
	rc = watch_all(session);
	if (rc != 0)
		goto destroy;
	log_debug("gpu", "worker %d started", (int)session->pid);
	*out = session;
	return 0;

destroy:
	gpu_session_destroy(session);
	return rc;
}

void gpu_session_own(struct gpu_session *session, enum gpu_session_state *state)
{
	session->owner = thread_self();
	session->state = state;
}

const struct wire_ring *gpu_session_ring(const struct gpu_session *session)
{
	return &session->ring;
}

int gpu_session_fd(const struct gpu_session *session)
{
	return session->epoll;
}

bool gpu_session_alive(const struct gpu_session *session)
{
	return session->process >= 0;
}

uint64_t gpu_session_deadline(const struct gpu_session *session)
{
	return session->deadline;
}

const struct gpu_probe *gpu_session_probe(const struct gpu_session *session)
{
	return &session->probe;
}

const char *gpu_session_reason(const struct gpu_session *session)
{
	return session->reason;
}

pid_t gpu_session_pid(const struct gpu_session *session)
{
	return session->pid;
}

static void ask_to_end(struct gpu_session *session, uint64_t now)
{
	struct wire_ring_control *control = wire_ring_control(&session->ring);

	session->asked = true;
	session->deadline = now + GPU_STOP_GRACE;
	wire_ring_store32(&control->stop, 1);
	wire_ring_store32(&control->kick, control->kick + 1);
	syscall(SYS_futex, &control->kick, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	if (session->control >= 0)
		shutdown(session->control, SHUT_WR);
}

/* The first reason counts, and none does for what was stopped. */
static void session_fail(struct gpu_session *session, uint64_t now, const char *reason)
{
	if (session->asked)
		return;
	session->failed = true;
	snprintf(session->reason, sizeof(session->reason), "%s", reason);
	log_info("gpu", "worker %d: %s", (int)session->pid, reason);
	ask_to_end(session, now);
	gpu_session_handle(session->state, GPU_EVENT_FAILED);
}

/* Handle an event in place of a client, where the session has none. */
static void handle_alone(struct gpu_session *session, enum gpu_session_event event)
{
	if (session->state == &session->own)
		gpu_session_handle(session->state, event);
}

void gpu_session_stop(struct gpu_session *session, uint64_t now)
{
	must(session_is_mine(session));
	handle_alone(session, GPU_EVENT_LEFT);
	if (session->process < 0)
		gpu_session_handle(session->state, GPU_EVENT_EXITED);
	else if (!session->asked)
		ask_to_end(session, now);
}

static void session_terminate(char *text, size_t size)
{
	text[size - 1] = '\0';
}

static void take_message(struct gpu_session *session, struct gpu_message *m, uint64_t now)
{
	session_terminate(m->room, sizeof(m->room));
	session_terminate(m->probe.backend, sizeof(m->probe.backend));
	session_terminate(m->probe.device, sizeof(m->probe.device));
	session_terminate(m->text, sizeof(m->text));
	switch (m->kind) {
	case GPU_SAYS_READY:
		if (!gpu_session_handle(session->state, GPU_EVENT_READY))
			return;
		session->probe = m->probe;
		session->deadline = time_after(now, session->life);
		handle_alone(session, GPU_EVENT_ANSWERED);
		log_debug("gpu", "worker %d runs on %s (%s)", (int)session->pid, m->probe.backend, m->probe.device);
		return;
	case GPU_SAYS_FAILED:
		session_fail(session, now, m->text);
		return;
	case GPU_SAYS_LOG:
		log_at(MIN(m->level, LOG_LEVEL_DEBUG), m->room, "worker %d: %s", (int)session->pid, m->text);
		return;
	default:
		session_fail(session, now, "the worker process sent a message that there is not");
	}
}

/* Take at most so many messages of the process. When it hung up it is about to end, or should be. */
static void take_messages(struct gpu_session *session, unsigned most, uint64_t now)
{
	struct gpu_message message;
	ssize_t n;

	while (session->control >= 0 && most-- > 0) {
		n = recv(session->control, &message, sizeof(message), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n == (ssize_t)sizeof(message))
			take_message(session, &message, now);
		else
			close_fd(&session->control);
	}
}

static void session_exited(struct gpu_session *session)
{
	close_fd(&session->process);
	close_fd(&session->control);
	session->deadline = TIME_NEVER;
	handle_alone(session, GPU_EVENT_LEFT);
	gpu_session_handle(session->state, GPU_EVENT_EXITED);
}

static void session_reaped(struct gpu_session *session, int status, uint64_t now)
{
	struct wire_ring_header *header = wire_ring_header(&session->ring);
	char how[64], reason[128];

	take_messages(session, UINT_MAX, now); /* as many as a socket holds */
	snprintf(reason, sizeof(reason), "the worker process %s", gpu_spawn_status(status, how));
	session_fail(session, now, reason);
	log_debug("gpu", "worker %d %s", (int)session->pid, how);
	/* A client that looks at the ring alone learns of it too; the process, whose words these are, is no more. */
	if (header->state != WIRE_RING_FAILED && header->state != WIRE_RING_STOPPED) {
		header->error = session->failed ? WIRE_RING_DIED : WIRE_RING_NO_ERROR;
		wire_ring_store32(&header->state, session->failed ? WIRE_RING_FAILED : WIRE_RING_STOPPED);
	}
	session_exited(session);
}

static void kill_process(const struct gpu_session *session)
{
	syscall(SYS_pidfd_send_signal, session->process, SIGKILL, NULL, 0);
}

/* The process itself looks at how long its jobs take. That it does is seen here: it may be stopped. */
static void look_for_life(struct gpu_session *session, uint64_t now)
{
	uint64_t heartbeat = wire_ring_load(&wire_ring_header(&session->ring)->heartbeat);
	uint64_t clock = time_now(); /* the process has no other one */
	bool still = heartbeat == session->heartbeat && clock - session->looked >= LIFE_AGAIN / 2;

	if (still && session->still) {
		session_fail(
			session, now,
			"the worker process stands still: a signal has stopped it, or it gets no processor; open a new "
			"session");
		return;
	}
	session->heartbeat = heartbeat;
	session->looked = clock;
	session->still = still;
	session->deadline = time_after(now, still ? LIFE_AGAIN : session->life);
}

static void session_expired(struct gpu_session *session, uint64_t now)
{
	if (!session->asked) {
		if (session->control < 0)
			session_fail(session, now, "the worker process hung up");
		else if (*session->state == GPU_STARTING)
			session_fail(session, now, "the worker process was not ready within 30 s");
		else
			look_for_life(session, now);
		return;
	}
	if (session->killed) {
		log_warn("gpu", "worker %d was killed and does not end: its session keeps its place until it does",
			 (int)session->pid);
		session->deadline = TIME_NEVER;
		return;
	}
	log_debug("gpu", "worker %d is killed", (int)session->pid);
	kill_process(session);
	session->killed = true;
	session->deadline = now + GPU_KILL_PATIENCE; /* its end comes by the descriptor */
}

enum gpu_session_state gpu_session_progress(struct gpu_session *session, uint64_t now)
{
	struct epoll_event events[3];
	int n = epoll_wait(session->epoll, events, ARRAY_SIZE(events), 0), status;
	uint64_t count;

	must(session_is_mine(session));
	for (int i = 0; i < n; i++) {
		if (events[i].data.u32 == WATCHED_EVENT) {
			while (read(session->event, &count, sizeof(count)) < 0 && errno == EINTR)
				;
		} else if (events[i].data.u32 == WATCHED_CONTROL) {
			take_messages(session, MESSAGES, now);
			if (session->control < 0 && !session->asked)
				/* how it ended is about to be known */
				session->deadline = MIN(session->deadline, now + GPU_STOP_GRACE);
		} else if (session->process >= 0 && gpu_spawn_reap(session->process, WNOHANG, &status)) {
			session_reaped(session, status, now);
		}
	}
	if (now >= session->deadline)
		session_expired(session, now);
	return *session->state;
}

void gpu_session_abandon(struct gpu_session *session)
{
	must(session_is_mine(session));
	must(session->process >= 0);
	log_error("gpu", "worker %d was killed and does not end: it is left to the system", (int)session->pid);
	session_exited(session);
}

void gpu_session_destroy(struct gpu_session *session)
{
	int status;

	if (!session)
		return;
	must(session_is_mine(session));
	if (session->process >= 0) { /* it is not asked to end in peace any more */
		kill_process(session);
		poll(&(struct pollfd){.fd = session->process, .events = POLLIN}, 1, (int)(GPU_KILL_PATIENCE / TIME_MS));
		if (!gpu_spawn_reap(session->process, WNOHANG, &status))
			gpu_session_abandon(session);
	}
	close_fd(&session->process);
	close_fd(&session->control);
	close_fd(&session->event);
	close_fd(&session->epoll);
	if (session->ring.base)
		munmap(session->ring.base, session->ring.at.bytes);
	free(session);
}
