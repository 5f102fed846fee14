/*
 * process.h: what is inside of rdmad-gpu, the process that carries out the jobs of one session. Not
 * for the daemon, which has gpu.h.
 *
 * The main thread runs a backend. A second thread, the watch, listens to the daemon, counts the
 * heartbeat and ends the process when a job takes too long or the backend does not stop. So a
 * backend may block in what it calls, and only has to look at gpu_process_stopping() when it can.
 *
 * What the client may write is read once, into a copy, by wire_ring_take(); gpu_job_check() judges
 * the copy; what breaks a rule ends the session by gpu_process_fail().
 */
#ifndef RDMAD_GPU_PROGRAM_PROCESS_H
#define RDMAD_GPU_PROGRAM_PROCESS_H

#include "base/spin.h"
#include "gpu/gpu.h"
#include "gpu/operations.h"

struct gpu_process;

/*
 * A backend: one row, and one file that begins with its name.
 */
struct gpu_backend {
	const char *name, *help;
	/* How many descriptors its process may have, and how long a file it may write. */
	uint64_t descriptors, file_bytes;
	/* The backend needs nothing but the ring, memory and its threads: what opens files, makes sockets or reaches
	 * other processes is closed to its process, see confine.c. */
	bool sealed;
	/* Writes what a session would use into out->device (short, for people): 0. It takes what a session does and
	 * gives it back, so that what is offered is what can be had. Or -ENODEV, and why: a text of at most GPU_WHY
	 * bytes; logs nothing, for "auto" goes on to the next. */
	int (*probe)(const struct gpu_process_attr *attr, struct gpu_probe *out, char *why);
	/* Take what it needs, say in process->probe.device what, then gpu_process_ready(), and carry out jobs until
	 * gpu_process_stopping(), in this thread and others that it makes and joins. 0 when stopped. -ENODEV: it could
	 * not start, and why, as above. Else negative: it failed; the reason was given to gpu_process_fail(). All that
	 * it took is given back. */
	int (*run)(struct gpu_process *process, char *why);
};

extern const struct gpu_backend gpu_backend_cpu, gpu_backend_cuda;

/* The backends that were built in, most wanted first, ended by NULL. */
extern const struct gpu_backend *const gpu_backends[];

/* NULL: there is none of that name. */
const struct gpu_backend *gpu_backend_find(const char *name);

/* The backend of that name, or for "auto" the first whose probe succeeds; *out is filled in. NULL:
 * logged. */
const struct gpu_backend *gpu_backend_choose(const struct gpu_process_attr *attr, struct gpu_probe *out);

/* Run the backend of attr.backend, or for "auto" the first that can start. 0 or negative: logged, or told by
 * gpu_process_fail(). */
int gpu_backend_run(struct gpu_process *process);

/*
 * process.c: the state of the process, and what a backend says. Any thread.
 */

/* The job that a thread is working on, for the watch; a cache line each. */
struct gpu_busy {
	_Alignas(CACHE_LINE) _Atomic uint64_t since; /* time_now(); 0: nothing */
	_Atomic uint64_t index;
	_Atomic uint32_t queue;
};

struct gpu_process {
	/* For backends to read. */
	struct wire_ring ring;
	struct gpu_process_attr attr; /* threads is what to use: not 0 */
	struct gpu_probe probe;       /* its backend's */
	bool queue_mode;              /* without kicks */
	int share;                    /* the first of attr.threads processors that are this session's; -1: any */

	/* Behind the functions below. */
	const struct gpu_backend *backend;
	int control, event; /* descriptors; -1: none, as in a test */
	_Atomic bool stopping, failed;
	_Atomic uint32_t told; /* the value of control->waits that was answered */
	struct gpu_busy busy[GPU_THREADS_MAX];
};

/* The backend has all that it needs, its threads too, and takes jobs from now on, not before: here the process of a
 * backend that is sealed gives up most system calls. */
void gpu_process_ready(struct gpu_process *process);

/* The backend should end: asked for by the daemon, or because of a failure. */
static inline bool gpu_process_stopping(const struct gpu_process *process)
{
	return atomic_load_explicit(&process->stopping, memory_order_relaxed) ||
	       wire_ring_load32(&wire_ring_control(&process->ring)->stop);
}

/* The backend has ended, without a failure unless one was told. */
void gpu_process_stopped(struct gpu_process *process);

/* A line for the daemon's log. */
void gpu_process_log(struct gpu_process *process, enum log_level level, const char *room, const char *text);

/* The session is over: error and place go into the ring's header, and the text to the daemon and
 * from there to the client. Of several the first counts. gpu_process_stopping() is true then.
 * `queue` and `index` are 0 for what is no job's fault. */
void gpu_process_fail(struct gpu_process *process, enum wire_ring_error error, uint32_t queue, uint64_t index,
		      const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The same for what wire_ring_take() or wire_ring_room() found, of queue `queue`. */
void gpu_process_fail_ring(struct gpu_process *process, int rc, uint32_t queue, uint64_t index);

/* Results were published: the daemon is woken if it sleeps. After each, or after a few. */
void gpu_process_results(struct gpu_process *process);

/* Thread `thread` begins a job at time `now`; if it takes longer than attr.job_timeout, the watch
 * fails the session and ends the process. */
static inline void gpu_process_begin(struct gpu_process *process, unsigned thread, uint32_t queue, uint64_t index,
				     uint64_t now)
{
	struct gpu_busy *busy = &process->busy[thread];

	must(thread < GPU_THREADS_MAX);
	atomic_store_explicit(&busy->queue, queue, memory_order_relaxed);
	atomic_store_explicit(&busy->index, index, memory_order_relaxed);
	atomic_store_explicit(&busy->since, now, memory_order_release);
}

static inline void gpu_process_end(struct gpu_process *process, unsigned thread)
{
	atomic_store_explicit(&process->busy[thread].since, 0, memory_order_release);
}

/*
 * idle.c: a thread that has nothing to do: it polls for attr.poll, as far as spin.h lets it, then naps: until the
 * daemon kicks, or, without kicks, for a while that grows to a millisecond.
 *
 *     while (!gpu_process_stopping(process))
 *             if (look for work and do it)
 *                     gpu_idle_end(process, &idle);
 *             else
 *                     gpu_idle(process, &idle);
 *
 * No kick is lost: a thread says that it is about to sleep, then looks once more (the caller's
 * loop), then sleeps.
 */
struct gpu_idle {
	struct spin spin;
	unsigned turns; /* without work */
	uint64_t nap;   /* the last one */
	uint32_t kick;  /* what the word was when it armed */
	bool armed;
};

void gpu_idle_init(const struct gpu_process *process, struct gpu_idle *idle);

void gpu_idle(struct gpu_process *process, struct gpu_idle *idle);
void gpu_idle_disarm(struct gpu_process *process, struct gpu_idle *idle);

static inline void gpu_idle_end(struct gpu_process *process, struct gpu_idle *idle)
{
	if (unlikely(idle->turns))
		gpu_idle_disarm(process, idle);
}

#endif
