/*
 * gpu.h: jobs for the accelerator of a server, or for its processors where it has none. See rdmad_gpu(3).
 *
 * A handle is one session, for which the server makes a worker process. In RPC mode each job is a request: the server
 * reads the input from the caller's memory, and writes the output there. In queue mode the library itself drives the
 * accelerator's queues, by reading and writing memory of the server, and the daemon does nothing for a job.
 *
 * A handle belongs to one thread at a time. Errors are negative errno values:
 *   -EINVAL parameters or sizes that the operation does not take  -EMSGSIZE larger than the session takes
 *   -EAGAIN as many jobs are outstanding as the handle takes      -EEXIST the id is that of an outstanding job
 *   -ENOTCONN the session has ended                               -ETIMEDOUT no answer in time
 *   -EDEADLK a call that waits was made from inside a callback: nothing was done
 * rdmad_error() says it in words.
 */
#ifndef RDMAD_GPU_H
#define RDMAD_GPU_H

#include <rdmad/rdmad.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rdmad_gpu;

#define RDMAD_GPU_PARAMS 8
#define RDMAD_GPU_OUTSTANDING 8192     /* most jobs outstanding on one handle */
#define RDMAD_GPU_SIZE_MAX (64u << 20) /* most bytes of an input or output */
#define RDMAD_GPU_ID_MAX 0xfffeffffu   /* ids above are the library's own */

enum rdmad_gpu_mode { RDMAD_GPU_RPC, RDMAD_GPU_QUEUE };

enum rdmad_gpu_op {
	RDMAD_GPU_QUANTIZE = 1, /* param: width, height, levels (1 to 256). Pixels of 8 bits in, as many out */
	RDMAD_GPU_ECHO = 2      /* param: microseconds to take at least. The same bytes out */
};

/* Zero it, then set what matters: 0 is the default of each field. */
struct rdmad_gpu_options {
	struct rdmad_options common; /* credits: default 128 in RPC mode */
	enum rdmad_gpu_mode mode;
	uint32_t size_max;    /* bytes of the largest input or output; default 4096 */
	uint32_t queues;      /* pairs of queues; default: the server chooses. It may grant fewer */
	uint32_t slots;       /* cells of each queue; the same */
	uint32_t outstanding; /* most jobs outstanding; default and most RDMAD_GPU_OUTSTANDING */
	bool no_immediate; /* RPC mode: the server reports a job's end by a message behind the write, rather than by a
	                         write with immediate; it does so anyway if a device cannot do the latter */
	/* queue mode: look for results in the index words only, rather than also at the results, which can be checked
	 * on their own */
	bool read_indices;
};

/* Connect and make a session; waits until its worker is ready. -EMSGSIZE: the server takes no jobs of size_max bytes;
 * -EAGAIN: there are as many sessions as the server allows; librdmad(3) lists the other errors of opening a handle. */
int rdmad_gpu_open(const char *server, const struct rdmad_gpu_options *options, struct rdmad_gpu **gpu);

/* Disconnect: the session ends. Callbacks of outstanding jobs get -ECONNABORTED, results not dequeued are lost.
 * NULL is allowed. -EDEADLK from a callback: nothing is closed. */
int rdmad_gpu_close(struct rdmad_gpu *gpu);

/* Wait until all jobs are done, and then ask the server to end the session. Results can be dequeued afterwards, but no
 * more jobs enqueued. */
int rdmad_gpu_terminate(struct rdmad_gpu *gpu);

/*
 * Jobs. Input and output are memory of the caller, which must not touch either until the job is done. They may be the
 * same memory.
 */
struct rdmad_gpu_job {
	uint32_t id; /* chosen by the caller, comes back in the result */
	uint32_t op; /* enum rdmad_gpu_op */
	uint32_t param[RDMAD_GPU_PARAMS];
	const void *input;
	size_t input_size; /* at least 1 */
	void *output;
	size_t output_size; /* bytes of room; at least as many as the operation's output has */
};

struct rdmad_gpu_result {
	uint32_t id;
	int status;          /* 0, or why the job was not done: the session ended */
	size_t output_size;  /* bytes that are in the output */
	uint64_t latency_ns; /* from enqueue until the result was here */
	uint32_t work_ns;    /* queue mode: how long the operation itself took, at most 4 s; else 0 */
};

/* Take a job. It leaves with the next call of dequeue, wait, progress or flush, together with others. 0: its result
 * will come exactly once, by rdmad_gpu_dequeue. Otherwise the job was not taken: -EAGAIN: dequeue first; -EEXIST: a job
 * with this id is outstanding, or its result has not been dequeued. */
int rdmad_gpu_enqueue(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job);

/* Send and receive without waiting, and take up to `max` results, in the order in which they came. Returns how many;
 * -ENOTCONN: there is none, and the session has ended. */
int rdmad_gpu_dequeue(struct rdmad_gpu *gpu, struct rdmad_gpu_result *results, unsigned max);

/* Wait until there is a result to dequeue. Returns how many there are; 0: nothing is outstanding; -ETIMEDOUT. */
int rdmad_gpu_wait(struct rdmad_gpu *gpu, uint64_t timeout_us);

/* Like enqueue, but instead of a result to dequeue there is a callback, exactly once, from rdmad_gpu_progress or
 * another call that sends and receives. The job may have any id, also that of another job. The callback may enqueue and
 * submit, but not wait or close. */
typedef void (*rdmad_gpu_callback)(void *arg, const struct rdmad_gpu_result *result);
int rdmad_gpu_submit(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job, rdmad_gpu_callback done, void *arg);

/* Send and receive; wait up to timeout_us (0: do not wait, UINT64_MAX: for ever) until at least one job is done.
 * Returns how many are, called back or to be dequeued; 0 after the timeout; -ENOTCONN. */
int rdmad_gpu_progress(struct rdmad_gpu *gpu, uint64_t timeout_us);

/* Send what was enqueued and submitted. */
int rdmad_gpu_flush(struct rdmad_gpu *gpu);

/* How many jobs were taken whose result has been neither dequeued nor called back. */
size_t rdmad_gpu_outstanding(const struct rdmad_gpu *gpu);

/* For a caller's own loop: a descriptor that becomes readable when rdmad_gpu_progress has work. Call rdmad_gpu_arm
 * before each sleep. 0: sleep; 1: there is work now. In queue mode the server does not report results: arm begins to
 * look for one, and the descriptor becomes readable when it has looked. */
int rdmad_gpu_fd(const struct rdmad_gpu *gpu);
int rdmad_gpu_arm(struct rdmad_gpu *gpu);

/*
 * Calls that do one job and wait for it, up to common.timeout_us. After -ETIMEDOUT the session has ended, so that
* no process writes to the output any more.
 */

/* Pixels of 8 bits; `levels` 1 to 256. If c(v) of the N pixels have at most the value v, a pixel of value v becomes
 * (256 / levels) * (levels * c(v) / N), in whole numbers, of which the lowest 8 bits are kept. */
int rdmad_gpu_quantize(struct rdmad_gpu *gpu, uint32_t width, uint32_t height, uint32_t levels, const void *input,
		       void *output);

/* The same bytes back, after at least `delay_us`. */
int rdmad_gpu_echo(struct rdmad_gpu *gpu, const void *input, size_t size, uint32_t delay_us, void *output);

/*
 * Registered memory. Devices read inputs and write outputs, and for that the memory must be registered. Memory that the
 * program has not registered by these calls is registered for each job, which takes microseconds to milliseconds.
 */

/* A registered buffer of at least `size` bytes; give it back with rdmad_gpu_buffer_release. */
int rdmad_gpu_buffer_lend(struct rdmad_gpu *gpu, size_t size, void **buffer);
/* NULL is allowed. In the thread of the handle, or after rdmad_gpu_close. */
void rdmad_gpu_buffer_release(void *buffer);

/* Register the caller's own memory for repeated use. -EEXIST: part of it is already; -ENOMEM: rdmad_error() says
 * what the limits are. Unregister it before it is freed; -EBUSY: jobs use it. */
int rdmad_gpu_buffer_register(struct rdmad_gpu *gpu, void *addr, size_t len);
int rdmad_gpu_buffer_unregister(struct rdmad_gpu *gpu, void *addr);

/*
 * What there is.
 */

/* What the session got; does not change. */
struct rdmad_gpu_session {
	enum rdmad_gpu_mode mode;
	uint32_t queues, slots;
	uint32_t size_max, outstanding;
	bool immediate;        /* RPC mode: jobs end by a write with immediate */
	const char *backend;   /* "cpu", "cuda" */
	const char *device;    /* for people */
	const char *transport; /* "rdma", "tcp", "tls", "unix" or "shm" */
};
const struct rdmad_gpu_session *rdmad_gpu_session(const struct rdmad_gpu *gpu);

/* "rdma", "tcp", "tls" (TCP, encrypted), "unix" or "shm": shared memory. */
const char *rdmad_gpu_transport(const struct rdmad_gpu *gpu);

/* The service: its limits, and what it has done. */
struct rdmad_gpu_info {
	uint32_t sessions, sessions_max;    /* now, with the connection that asks; at most */
	uint32_t queues_max, slots_max;     /* of one session */
	uint64_t size_max, memory_max;      /* bytes of one input or output, and of all of one session's cells */
	uint64_t operations;                /* bit 1 << enum rdmad_gpu_op for each that it has */
	uint64_t jobs, bytes_in, bytes_out; /* since the daemon started, of RPC mode */
	char backend[16], device[64];
	char transport[8]; /* by which the server was asked */
};

/* "quantize"; NULL: not known to this library. `op` is of enum rdmad_gpu_op, or a bit's number in `operations`. */
const char *rdmad_gpu_operation_name(unsigned op);

/* Ask the server of a session. */
int rdmad_gpu_info(struct rdmad_gpu *gpu, struct rdmad_gpu_info *info);

/* Ask a server without making a session: connect, ask, disconnect. options NULL: defaults. */
int rdmad_gpu_server_info(const char *server, const struct rdmad_options *options, struct rdmad_gpu_info *info);

#ifdef __cplusplus
}
#endif

#endif
