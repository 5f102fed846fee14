/*
 * gpu: jobs for an accelerator, or for processors where there is none. Knows no network.
 *
 * A session is a ring (wire/ring.h) in a sealed memfd, and a process of its own, rdmad-gpu,
 * that takes the jobs and writes the results; a fault of the accelerator, or of what a client sent,
 * ends one session and nothing else. This header is the room's face to the daemon: operations,
 * sessions, ports. What the process has inside is in gpu/program/process.h.
 *
 * Threads: a session and a port belong to one thread; operations are constant.
 */
#ifndef RDMAD_GPU_GPU_H
#define RDMAD_GPU_GPU_H

#include "base/base.h"
#include "wire/gpu_operations.h"
#include "wire/ring.h"

/*
 * operations.c
 */

/* Everything that can be said of a job before its input is looked at: operation, parameters, both
 * lengths against the ring's payload. Its output's length, or -EINVAL and *why. The service asks
 * before it reads anything, and the process asks again of its own copy. */
int64_t gpu_job_check(const struct wire_ring_shape *shape, const struct wire_ring_job *job, const char **why);

/*
 * life.c: what a session waits for, and what moves it on.
 */
enum gpu_session_state {
	GPU_WAITING,
	GPU_PLACING,
	GPU_MAKING,
	GPU_STARTING, /* the ring can be filled from here on */
	GPU_ANSWERING,
	GPU_RUNNING,
	GPU_FINISHING,
	GPU_ENDING,
	GPU_CLOSED,
	GPU_GONE,
};

enum gpu_session_event {
	GPU_EVENT_OPENED,
	GPU_EVENT_PLACED,
	GPU_EVENT_MADE,
	GPU_EVENT_READY,
	GPU_EVENT_ANSWERED,
	GPU_EVENT_TERMINATE, /* the client asked for the end */
	GPU_EVENT_DRAINED,   /* and all jobs before that are answered */
	GPU_EVENT_FAILED,
	GPU_EVENT_LEFT,   /* the client is gone */
	GPU_EVENT_EXITED, /* the process is, or there is none */
};

/* True: the event has moved it on. */
bool gpu_session_handle(enum gpu_session_state *state, enum gpu_session_event event);

/*
 * session.c: ring and process, from the daemon's side.
 */
#define GPU_THREADS_MAX 256

struct gpu_process_attr {
	const char *program; /* path of rdmad-gpu */
	const char *backend; /* "auto", "cpu" or "cuda" */
	const char *device;  /* of cuda: its number or UUID; NULL: the first */
	const char *kernels; /* of cuda: a file of PTX or machine code in place of what is built in,
				or NULL */
	unsigned threads;    /* of cpu, up to GPU_THREADS_MAX; 0: half of the processors, at least 1 */
	uint64_t poll;       /* ns that an idle process polls before it naps; TIME_NEVER: it never naps */
	uint64_t park; /* of cuda: ns without jobs after which the device is left to others; TIME_NEVER: it never is */
	uint64_t job_timeout; /* ns, not 0; TIME_NEVER: as long as it takes */
};

/* How many threads a process has that was asked for so many; 0: half of the processors. spawn.c. */
unsigned gpu_threads(unsigned asked);

/* Asks the program what a process would use, because the daemon itself never touches an accelerator. */
#define GPU_WHY 256
struct gpu_probe {
	char backend[16], device[64];
	char passed[GPU_WHY]; /* of "auto": the backend that was wanted more, and why it cannot be had: "cuda: ..." */
	char lacks[GPU_WHY];  /* of gpu_probe(): what the process cannot be confined by here, and why */
};

/* Runs the program for up to 30 s: a driver may have to begin with many devices. 0, or what it could not find; logged
 * with what it said. */
int gpu_probe(const struct gpu_process_attr *attr, struct gpu_probe *out);

struct gpu_session;

/* Make the ring, cleared, and start the process; shape was checked. `queue_mode`: jobs come by one-sided writes, of
 * which the process is not told. The thread that calls lives as long as the session: a process is killed when that
 * which made it ends. Takes long: memory and a process are made. -ENOMEM, -EAGAIN (no process), -ENOENT (no program),
 * -ENOSYS (a kernel without pidfd_open): logged. */
int gpu_session_start(const struct gpu_process_attr *attr, const struct wire_ring_shape *shape, bool queue_mode,
		      struct gpu_session **out);

/* Hands a session to its client: the calling thread has it from now on, after another, which lives on. Its process
 * moves *state, which lives as long. */
void gpu_session_own(struct gpu_session *session, enum gpu_session_state *state);

const struct wire_ring *gpu_session_ring(const struct gpu_session *session);

/* Becomes readable when progress has something to do, or, of an armed port, when there are results;
 * does not change. */
int gpu_session_fd(const struct gpu_session *session);
/* Take what the process said, its death, and its deadline. Its state then. */
enum gpu_session_state gpu_session_progress(struct gpu_session *session, uint64_t now);
/* Its process is not reaped yet. */
bool gpu_session_alive(const struct gpu_session *session);
/* When progress must be called though nothing came. */
uint64_t gpu_session_deadline(const struct gpu_session *session);

/* A running process. */
const struct gpu_probe *gpu_session_probe(const struct gpu_session *session);
/* Why it is ending, for people: "job 17 of queue 2: levels is 0". "" while it runs or when it was
 * stopped. */
const char *gpu_session_reason(const struct gpu_session *session);
pid_t gpu_session_pid(const struct gpu_session *session);

/* Ask the process to end: it has 100 ms, then it is killed. Idempotent; GPU_EVENT_EXITED if there is none. */
void gpu_session_stop(struct gpu_session *session, uint64_t now);

/* Its process was killed and does not end, as one that waits for a device in the kernel: leave it to the system.
 * Logged. */
void gpu_session_abandon(struct gpu_session *session);

/* Unmap the ring and free, which takes long; deregister it first. If the process is still there it is killed; one that
 * does not end within GPU_KILL_PATIENCE is abandoned. NULL is fine. */
#define GPU_KILL_PATIENCE (2 * TIME_S)
void gpu_session_destroy(struct gpu_session *session);

/* gpu/program/confine.c: the calling process dumps no core, and from now on only root reads its memory from outside:
 * its workers are of its own user. Not in a build with sanitizers, whose search for leaks is from outside. 0 or
 * -errno. */
int gpu_hide_memory(void);

/* Jobs that were ever put into a ring, and results: there is work where these differ. */
static inline uint64_t gpu_ring_submitted(const struct wire_ring *ring)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ring->shape.queues; i++)
		sum += wire_ring_load(&wire_ring_client_line(ring, i)->submitted);
	return sum;
}

static inline uint64_t gpu_ring_done(const struct wire_ring *ring)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ring->shape.queues; i++)
		sum += wire_ring_load(&wire_ring_worker_line(ring, i)->done);
	return sum;
}

/*
 * port.c: the client's side of a ring in this process, for RPC mode, local measurements and tests.
 * Cells may be submitted and released in any order; the indices move in order.
 */
struct gpu_port;

struct gpu_cell {
	uint32_t queue;
	uint64_t index;
};

struct gpu_done {
	struct gpu_cell cell;           /* of the result */
	struct wire_ring_result result; /* a copy; its length was checked against the payload */
	const void *output;             /* until released */
};

int gpu_port_create(const struct wire_ring *ring, struct gpu_port **out);
void gpu_port_destroy(struct gpu_port *port); /* NULL is fine */

/* A free cell of the queue with the most room; a full queue never hides one that is free. *input
 * has room for the payload. -EAGAIN: all are full. */
int gpu_port_reserve(struct gpu_port *port, struct gpu_cell *cell, void **input);

/* Its input is in place: publish it as soon as all that were reserved in its queue before are.
 * job->sequence is filled in. */
void gpu_port_submit(struct gpu_port *port, const struct gpu_cell *cell, const struct wire_ring_job *job);

/* Wake the process if it sleeps and there is something for it, jobs or room for results where there was none; after a
 * batch of submissions and releases. */
void gpu_port_kick(struct gpu_port *port);

/* Results that came since; in order within a queue: result i of a queue is of its job i. Count, or
 * -EBADMSG: the process wrote nonsense. */
int gpu_port_poll(struct gpu_port *port, struct gpu_done *out, int max);
void gpu_port_release(struct gpu_port *port, const struct gpu_cell *cell);

/* Before sleeping on the session's descriptor: true if it will tell of the next result, false if
 * there are some already. gpu_port_disarm ends it. */
bool gpu_port_arm(struct gpu_port *port);
void gpu_port_disarm(struct gpu_port *port);

#endif
