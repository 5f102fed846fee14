/*
 * gpu.h: what the files of the gpu service share: gpu_service.c, what the process has; gpu_thread.c, the turn of a
 * worker thread's sessions; gpu.c, the life of a session; gpu_open.c, its ring; gpu_rpc.c, jobs by request.
 *
 * Names: gpu_service_ is of the process or of a thread, gpu_agent_ of a connection and its session. Any other gpu_ is
 * the room gpu's, whose gpu_process is what carries out the jobs of a session.
 */
#ifndef RDMAD_SERVICE_GPU_H
#define RDMAD_SERVICE_GPU_H

#include "gpu/gpu.h"
#include "service/internal.h"

#define GPU_AGENT_TRANSFERS 64 /* inputs and outputs on their way on one connection */

/* By the rows of gpu_service_settings. */
struct gpu_service_settings {
	uint64_t backend; /* index of a name */
	struct setting_list devices;
	char *kernels, *program; /* NULL: built in; LIBEXECDIR/rdmad-gpu */
	uint64_t sessions, queues, slots, memory, threads;
	uint64_t poll, job_timeout; /* ns; poll: or TIME_NEVER */
};

/* What the workers share. */
struct gpu_service {
	struct gpu_process_attr
		attr; /* but the device: each session's process takes the next of these, if any are named */
	char *const *device;
	unsigned devices;
	_Atomic unsigned turn;
	struct gpu_probe probe; /* what the processes will use */
	uint32_t sessions_max;
	uint32_t queues, slots;                     /* most of a session */
	uint64_t memory;                            /* most bytes of its ring */
	_Atomic uint32_t sessions;                  /* connections, and processes that are not gone yet */
	_Atomic uint64_t jobs, bytes_in, bytes_out; /* of RPC mode */
};

enum gpu_service_count {
	GPU_SERVICE_SESSIONS,
	GPU_SERVICE_ERRORS,
	GPU_SERVICE_JOBS = GPU_SERVICE_ERRORS, /* and the operation's number, from 1 on */
	GPU_SERVICE_IN_BYTES = GPU_SERVICE_JOBS + WIRE_RING_OPS,
	GPU_SERVICE_OUT_BYTES,
	GPU_SERVICE_QUEUE_JOBS,
};

/* What a worker thread has for its sessions; its part is active while there are agents. */
struct gpu_service_thread {
	struct service_part part;
	int fd;        /* an epoll of their descriptors */
	uint64_t look; /* when to ask it without being told that it is readable */
	struct list agents;
};

/* Its connection moves an agent on by records and by its end, its process by becoming readable, and its deadline. What
 * is parked, and who wakes it: */
enum gpu_agent_state {
	GPU_AGENT_WAITING,   /* for the record that opens a session; the deadline ends it */
	GPU_AGENT_STARTING,  /* for the process, which says that it is ready, fails or runs out of the session's time */
	GPU_AGENT_RUNNING,   /* for jobs and their results */
	GPU_AGENT_FINISHING, /* the client is done, jobs from before are under way: for their results, or in queue mode
				for a look at the ring, by the deadline, every now and then */
	GPU_AGENT_ENDING,    /* the client was told: for it to leave; the deadline cuts it off */
	GPU_AGENT_CLOSED,    /* the connection is gone: for the end of the process, which frees the agent */
};

enum gpu_agent_event {
	GPU_AGENT_OPENED,
	GPU_AGENT_READY,
	GPU_AGENT_TERMINATE, /* the client asked for the end */
	GPU_AGENT_DRAINED,   /* and all jobs before that are answered */
	GPU_AGENT_FAILED,
	GPU_AGENT_TIMED_OUT,
	GPU_AGENT_LEFT, /* the connection ended */
};

/* A job of RPC mode, from its request to the end of its answer's write. */
struct gpu_agent_job {
	struct conn_transfer wire; /* the read of its input, then the write of its output */
	struct gpu_agent *agent;
	struct list node;           /* in agent->reads or agent->answers while it waits for room */
	struct gpu_agent_job *next; /* of the same bucket; later, of those answered together */
	struct gpu_cell cell;
	struct wire_ring_job ring;
	struct wire_remote input, output;
	void *to;         /* where the input goes */
	const void *from; /* where the output is */
};

/* One connection and its session. */
struct gpu_agent {
	struct list node; /* in thread->agents */
	struct gpu_service_thread *thread;
	struct conn *conn;            /* NULL once it is closed */
	struct fabric_domain *domain; /* the connection's own: no other client's keys reach this ring */
	enum gpu_agent_state state;
	uint64_t deadline;
	struct gpu_session *session; /* NULL before it is opened */
	bool look;                   /* its descriptor was readable */
	enum wire_gpu_mode mode;
	bool sends;       /* answers are a write and a record */
	bool answered;    /* the last word, ENDED or the answer to the request to end, was said */
	uint32_t open_id; /* of the request that is answered when the process is ready */
	const struct wire_ring *ring;
	struct fabric_region *region[2]; /* [0]: of RPC mode, or the process's part; [1]: the client's */
	struct fabric_window *window[2];
	int error; /* why it ends */
	char reason[256];

	/* RPC mode */
	struct gpu_port *port;
	struct gpu_agent_job *job;     /* by queue and place in it */
	struct gpu_agent_job **bucket; /* by id: not answered yet */
	unsigned bucket_shift;
	uint32_t multiplier; /* of the ids' hash, drawn anew for each session */
	unsigned jobs;       /* that hold a cell */
	struct list reads, answers;
	struct conn_transfer last; /* the write that answers the request to end */
};

static inline uint64_t gpu_agent_now(const struct gpu_agent *agent)
{
	return service_part_now(&agent->thread->part);
}

static inline bool gpu_agent_is_mine(const struct gpu_agent *agent)
{
	return service_part_is_mine(&agent->thread->part);
}

static inline struct gpu_service *gpu_agent_service(const struct gpu_agent *agent)
{
	return agent->thread->part.shared;
}

static inline void gpu_agent_count(struct gpu_agent *agent, enum gpu_service_count what, uint64_t n)
{
	agent->thread->part.count[what] += n;
}

/*
 * gpu_service.c: main thread.
 */
extern const struct setting_table gpu_service_settings;
extern const char *const gpu_service_counters[];

int gpu_service_open(const struct service_host *host, const void *settings, void **shared);
void gpu_service_close(void *shared);
unsigned gpu_service_descriptors(const void *settings);
void gpu_service_status(const void *shared, struct service_report *report);
void gpu_service_resources(const void *shared, struct service_report *report);

/*
 * gpu_thread.c: the worker.
 */
int gpu_service_thread_init(struct service_part *part);
void gpu_service_thread_clear(struct service_part *part);
int gpu_service_thread_fd(const struct service_part *part);
void gpu_service_thread_readable(struct service_part *part);
int gpu_service_thread_progress(struct service_part *part);
uint64_t gpu_service_thread_deadline(const struct service_part *part);
bool gpu_service_thread_arm(struct service_part *part);
void gpu_service_thread_disarm(struct service_part *part);
void gpu_service_thread_end(struct service_part *part);
void gpu_service_thread_count(const struct service_part *part, uint64_t *count);

/* The thread listens to the agent's session. -ENOMEM, -ENOSPC. */
int gpu_agent_watch(struct gpu_agent *agent);
void gpu_agent_unwatch(struct gpu_agent *agent);

/*
 * gpu.c
 */

/* What an event does in the agent's state. */
void gpu_agent_handle(struct gpu_agent *agent, enum gpu_agent_event event);

/* The session ends with an error: log it, tell the client, close. The first counts. */
void gpu_agent_fail(struct gpu_agent *agent, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Tell the client why, where that has not been possible yet. */
void gpu_agent_say_ended(struct gpu_agent *agent);

/* Whether jobs are under way. */
bool gpu_agent_busy(const struct gpu_agent *agent);

/* Jobs that were done in queue mode, until the connection is closed. */
uint64_t gpu_agent_queue_jobs(const struct gpu_agent *agent);

/* Its connection is gone, and its process, if it had one. */
void gpu_agent_free(void *agent);

/* An answer with a body. False: no room yet. */
bool gpu_agent_reply(struct gpu_agent *agent, uint8_t op, uint32_t id, const void *body, uint32_t length);

/*
 * gpu_open.c: the ring, as granted and as the client reaches it.
 */

/* Longest input or output that a session can have at all. */
uint32_t gpu_service_payload_max(const struct gpu_service *gpu);

/* Take a request to open apart and start what it asks for; a wrong one fails the session. */
void gpu_agent_open(struct gpu_agent *agent, const struct wire_record *request, const void *body);

/* The process is ready: tell the client what it got. False: there is no room yet. */
bool gpu_agent_open_answer(struct gpu_agent *agent);

/* Give back windows, regions and port; the endpoint is gone. */
void gpu_agent_open_undo(struct gpu_agent *agent);

/*
 * gpu_rpc.c
 */
int gpu_agent_rpc_start(struct gpu_agent *agent);

/* 0, or -EAGAIN: no room, the record is to come again. A wrong job fails the session. */
int gpu_agent_rpc_job(struct gpu_agent *agent, const struct wire_record *request, const void *body);

/* Wake the process for what was submitted, take results, answer. How much was done. */
int gpu_agent_rpc_turn(struct gpu_agent *agent);

/* Answer the request to end the session, of either mode. False: no room yet. */
bool gpu_agent_rpc_answer_end(struct gpu_agent *agent);

#endif
