/*
 * gpu.h: what the files of the caller's half of the gpu service share: gpu.c, the session and how jobs end; calls.c,
 * the calls of a session; jobs.c, the table of jobs; rpc.c, jobs as requests; queue.c, jobs by the server's queues. All
 * of it is inside the engine, but for the public functions and what builds a session up and takes it down.
 *
 * A job is in one of three lists: it waits to be sent, is with the server (no list), or is done and waits to be told.
 */
#ifndef RDMAD_CLIENT_GPU_H
#define RDMAD_CLIENT_GPU_H

#include <rdmad/gpu.h>

#include "engine/engine.h"
#include "wire/gpu_operations.h"
#include "wire/ring.h"

#define CLIENT_GPU_REASON 256

enum job_state { JOB_FREE, JOB_WAITING, JOB_SENT, JOB_DONE };

struct job {
	struct list node; /* in a list of struct rdmad_gpu */
	enum job_state state;
	uint32_t id; /* on the wire */
	uint32_t input_size, output_size;
	struct rdmad_gpu_job asked;
	struct reach input, output;
	rdmad_gpu_callback done; /* NULL: to be dequeued */
	void *arg;
	uint64_t begun; /* time_now() */
	struct rdmad_gpu_result result;
};

/* All jobs, found by the ids that callers chose. */
struct job_table {
	struct job *job;
	uint32_t count;
	struct list free;
	uint32_t *place; /* job + 1 by hash of the id, 0: none; more than twice as many as jobs */
	uint32_t mask;
};

struct client_gpu_queues;

struct rdmad_gpu {
	struct engine *engine;
	struct conn *conn; /* NULL once it has ended */
	struct engine_options options;
	unsigned forks; /* of the process when it was opened */
	bool no_immediate, read_indices;
	unsigned sink; /* rights of memory that this side's reads land in */
	struct rdmad_gpu_session session;
	char backend[sizeof(((struct wire_gpu_ring *)0)->backend)], device[WIRE_GPU_NAME];

	struct blocking *asked; /* the open, info or terminate that is waited for, or NULL */
	uint64_t answers;       /* to such */
	struct wire_gpu_ring ring;
	struct wire_gpu_info info;
	bool terminated, closed;
	int error; /* why it ended */
	char reason[CLIENT_GPU_REASON];

	struct job_table jobs;
	struct list waiting, finished, results; /* finished: not told yet; results: to be dequeued */
	uint32_t waits, outstanding, ready;     /* jobs in waiting; not free; in results */
	uint64_t completed;                     /* jobs whose callback was told */
	struct deferred deferred;
	struct client_gpu_queues *queues; /* of queue mode, else NULL */
};

#pragma GCC visibility push(hidden)

/*
 * jobs.c
 */
int job_table_create(struct job_table *table, uint32_t count);
void job_table_destroy(struct job_table *table);

/* A free one; it has the caller's id where `named`, else one of the library's. *rc is -EAGAIN or -EEXIST where NULL. */
struct job *job_take(struct job_table *table, uint32_t id, bool named, int *rc);
void job_give(struct job_table *table, struct job *job);
/* NULL: none has this id. */
struct job *job_find(const struct job_table *table, uint32_t id);

/*
 * gpu.c
 */

/* The end of a job: its memory is the caller's again, which is told now or by the next turn. */
void job_finish(struct rdmad_gpu *gpu, struct job *job, int status);

/* Frees it; no callback is told. */
void job_forget(struct rdmad_gpu *gpu, struct job *job);

/* The next one that waits is with the server. NULL: none waits. */
struct job *job_next(struct rdmad_gpu *gpu);

/* Send what waits, as far as there is room. */
void client_gpu_pump(struct rdmad_gpu *gpu);

/* Begins a public function: forgets what was said before. 0; -EINVAL: there is no handle; -EPERM:
 * it is another process's. It ends with client_end(). */
int client_gpu_begin(const struct rdmad_gpu *gpu);
/* -EINVAL, said. */
int client_gpu_lacks(const char *function, const char *what);

/* -ENOTCONN, with the reason that the caller may have missed. */
int client_gpu_ended(const struct rdmad_gpu *gpu);

/* Waits until *counter, gpu->completed or another, is not `before` any more. 0, -ETIMEDOUT, -EDEADLK. */
int client_gpu_await(struct rdmad_gpu *gpu, const uint64_t *counter, uint64_t before, uint64_t until);

/* The same of struct blocking: until a job is done, or the session has ended. */
int client_gpu_await_job(void *gpu, uint64_t until);

/* Jobs that are not done. */
static inline uint32_t client_gpu_undone(const struct rdmad_gpu *gpu)
{
	return gpu->outstanding - gpu->ready;
}

/*
 * rpc.c
 */

/* Put what waits into messages, as far as there is room. */
void client_gpu_rpc_pump(struct rdmad_gpu *gpu);

/* The server wrote an output and named the job, by an immediate or a record. -EPROTO: it is none that it has. */
int client_gpu_rpc_done(struct rdmad_gpu *gpu, uint32_t id, int status);

/*
 * queue.c
 */

/* Reads and writes that a connection of queue mode has in flight at most. */
#define CLIENT_GPU_TRANSFERS (4 * CONN_CHAIN_MAX)

/* Creates them as the server answered in gpu->ring, which has a valid shape. */
int client_gpu_queues_create(struct rdmad_gpu *gpu);
void client_gpu_queues_destroy(struct client_gpu_queues *queues); /* after the connection ended; NULL is fine */

/* Write jobs into cells and poll for results, as far as there is room; waits for nothing. */
void client_gpu_queues_pump(struct rdmad_gpu *gpu);

/* Turn, and poll for results as often as the options say, until *counter is another than `before`, the session has
 * ended, or `until`: 0 or -ETIMEDOUT. */
int client_gpu_queues_wait(struct rdmad_gpu *gpu, const uint64_t *counter, uint64_t before, uint64_t until);

#pragma GCC visibility pop

#endif
