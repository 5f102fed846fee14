/*
 * gpu.h: what the files of the gpu service share: service.c, what the process has; places.c, how many sessions
 * there may be; helper.c, the thread for what takes long; thread.c, the turn of a worker thread's sessions; gpu.c,
 * the life of a session; open.c, its ring; rpc.c, jobs by request.
 *
 * Names: gpu_service_ is of the process or of a thread, gpu_agent_ of a connection and its session. Any other gpu_ is
 * the room gpu's, whose gpu_process is what carries out the jobs of a session.
 */
#ifndef RDMAD_SERVICE_GPU_H
#define RDMAD_SERVICE_GPU_H

#include "gpu/gpu.h"
#include "service/internal.h"

#include <pthread.h>

#define GPU_AGENT_TRANSFERS 64 /* inputs and outputs on their way on one connection */

/* By the rows of gpu_service_settings. */
struct gpu_service_settings {
	uint64_t backend; /* index of a name */
	struct setting_list devices;
	char *kernels, *program;                                       /* NULL: built in; LIBEXECDIR/rdmad-gpu */
	uint64_t sessions, per_source, queues, slots, memory, threads; /* per_source: 0: half of sessions */
	uint64_t poll, park, job_timeout, idle_timeout; /* ns; poll, park: or TIME_NEVER; idle_timeout: 0: never */
};

#define GPU_MEMORY_MIN (64 * KIB) /* of a session */

/* A place for a session: from the request to open it until its process and its memory are gone. */
struct gpu_service_place {
	struct gpu_service_thread *thread; /* NULL: free */
	struct fabric_source source;
	struct quota_share *of_source, *of_client; /* a client by its line in the file of clients */
	uint64_t used; /* when there was a job last, as far as its thread has looked; TIME_NEVER: it is not running */
	bool leave;    /* idle, and another wants the place */
};

/* The thread that does for sessions what takes long: memory is made, registered, given back, a process is started. It
 * lives longer than they do, whose processes end with the thread that made them. */
struct gpu_service_helper {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list errands; /* agents, by agent->errand */
	bool quit;
	_Atomic uintptr_t self;
};

/* What the workers share. */
struct gpu_service {
	struct gpu_process_attr attr; /* but the device: */
	char *const *device;          /* each session's process takes the next of these, if any are named */
	unsigned devices;
	_Atomic unsigned turn;
	struct gpu_probe probe;                     /* what the processes will use */
	uint32_t sessions_max, per_source;          /* per_source: 0: no limit */
	uint64_t idle_timeout;                      /* 0: never */
	uint32_t queues, slots;                     /* most of a session */
	uint64_t memory;                            /* most bytes of its ring */
	_Atomic uint64_t jobs, bytes_in, bytes_out; /* of RPC mode */

	pthread_mutex_t lock; /* of the places */
	struct gpu_service_place *place;
	struct quota *sources, *clients; /* places that are taken; the lock is for taking */
	struct gpu_service_helper helper;
};

enum gpu_service_count {
	GPU_SERVICE_SESSIONS,
	GPU_SERVICE_ERRORS,
	GPU_SERVICE_REFUSED,                    /* there was no place */
	GPU_SERVICE_EVICTED,                    /* idle ones whose place another wanted */
	GPU_SERVICE_JOBS = GPU_SERVICE_EVICTED, /* and the operation's number, from 1 on */
	GPU_SERVICE_IN_BYTES = GPU_SERVICE_JOBS + WIRE_RING_OPS,
	GPU_SERVICE_OUT_BYTES,
	GPU_SERVICE_QUEUE_JOBS,
};

/* What a worker thread has for its sessions; its part is active while there are agents. */
struct gpu_service_thread {
	struct service_part part;
	int fd;    /* an epoll of their descriptors, and of: */
	int event; /* an errand ended, or a place is wanted */
	pthread_mutex_t lock;
	struct list ended; /* errands; the helper's to add, under the lock */
	uint64_t look;     /* when to ask it without being told that it is readable */
	struct list agents;
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
	uint64_t since;   /* when it came */
};

/* One connection and its session. */
struct gpu_agent {
	struct list node; /* in thread->agents */
	struct gpu_service_thread *thread;
	struct conn *conn;            /* NULL once it is closed */
	struct fabric_domain *domain; /* the connection's own: no other client's keys reach this ring */
	struct fabric_limits limits;  /* of its device */
	enum gpu_session_state state; /* gpu/life.c tells what it waits for */
	uint64_t deadline;            /* of the client, or of the next look at what is not told */
	/* Not NULL: an errand is on its way, and what it makes or gives back is the helper's: session, ring, regions,
	 * and what RPC mode has. */
	void (*work)(struct gpu_agent *agent);
	struct list errand;
	int made; /* by the errand: 0 or -errno */
	struct gpu_service_place *place;
	bool evicts;       /* it has asked an idle session to leave */
	uint64_t patience; /* when it waits for a place no more */
	uint64_t seen;     /* jobs that were submitted, when it was looked whether it is idle */
	struct wire_ring_shape shape;
	struct gpu_session *session; /* NULL before it is opened */
	bool look;                   /* its descriptor was readable */
	enum wire_gpu_mode mode;
	bool occupied;    /* queue mode: there are jobs, and thread->busy counts the session */
	bool sends;       /* answers are a write and a record */
	bool answered;    /* the last word, ENDED or the answer to the request to end, was said */
	uint32_t open_id; /* of the request that is answered when the process is ready */
	const struct wire_ring *ring;
	struct fabric_region *region[2]; /* [0]: the process's part, or all of it; [1]: the client's, or NULL */
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

/* There is one, and it is this thread's. */
static inline bool gpu_agent_has_session(const struct gpu_agent *agent)
{
	return !agent->work && agent->session;
}

static inline void gpu_agent_count(struct gpu_agent *agent, enum gpu_service_count what, uint64_t n)
{
	agent->thread->part.count[what] += n;
}

/*
 * service.c: main thread.
 */
extern const struct setting_table gpu_service_settings;
extern const char *const gpu_service_counters[];

int gpu_service_check(const void *settings, uint64_t services);
int gpu_service_open(const struct service_host *host, const void *settings, void **shared);
void gpu_service_close(void *shared);
unsigned gpu_service_descriptors(const void *settings);
void gpu_service_status(const void *shared, struct service_report *report);
void gpu_service_resources(const void *shared, struct service_report *report);

/* What a service that is filled in has besides: places and the helper. 0 or -errno, logged. */
int gpu_service_start(struct gpu_service *gpu);
void gpu_service_stop(struct gpu_service *gpu);

/*
 * places.c: any thread, but for an agent's own.
 */
enum gpu_place_answer {
	GPU_PLACE_TAKEN,
	GPU_PLACE_FULL,   /* all are taken */
	GPU_PLACE_CLIENT, /* its client has as many as its line allows */
	GPU_PLACE_SOURCE, /* its source has as many as one may */
};

/* Take a place. If there is none, a session that has been idle for gpu.idle_timeout is asked to leave, once:
 * agent->evicts. */
enum gpu_place_answer gpu_agent_take_place(struct gpu_agent *agent);
void gpu_agent_give_place(struct gpu_agent *agent); /* none is fine */
/* There was a job by then; TIME_NEVER: it may not be held for idle. */
void gpu_agent_used_place(struct gpu_agent *agent, uint64_t when);
bool gpu_agent_is_to_leave(struct gpu_agent *agent);

/*
 * helper.c
 */
int gpu_helper_start(struct gpu_service_helper *helper);
void gpu_helper_stop(struct gpu_service_helper *helper); /* all errands have ended */
static inline bool gpu_helper_is_here(const struct gpu_service_helper *helper)
{
	return atomic_load(&helper->self) == thread_self();
}
/* The helper calls work(agent), then gpu_agent_errand_ended() is called in the agent's thread. */
void gpu_agent_send_errand(struct gpu_agent *agent, void (*work)(struct gpu_agent *agent));

/*
 * thread.c: the worker.
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

/* The thread has something to look at. Any thread, under t->lock or while the thread cannot end. */
void gpu_service_thread_wake(struct gpu_service_thread *t);

/*
 * gpu.c
 */

/* An event of its session; what a new state needs is begun. */
void gpu_agent_handle(struct gpu_agent *agent, enum gpu_session_event event);

/* Its deadline is over. */
void gpu_agent_expired(struct gpu_agent *agent);

/* The session ends with an error: log it, tell the client, close. The first counts. */
void gpu_agent_fail(struct gpu_agent *agent, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* It has failed, for agent->reason: the same but for the state. */
void gpu_agent_failed(struct gpu_agent *agent, int error);

/* Tell the client why, where that has not been possible yet. */
void gpu_agent_say_ended(struct gpu_agent *agent);

void gpu_agent_errand_ended(struct gpu_agent *agent);

/* Its connection is gone: the next step to its end, if it is time. May free it. */
void gpu_agent_bury(struct gpu_agent *agent);

/* Another wants its place: it ends if it is idle. */
void gpu_agent_leave_place(struct gpu_agent *agent);

/* Whether jobs are under way. */
bool gpu_agent_busy(const struct gpu_agent *agent);

/* Jobs that were done in queue mode, until the connection is closed. */
uint64_t gpu_agent_queue_jobs(const struct gpu_agent *agent);

/* Its connection is gone, and its process, if it had one. */
void gpu_agent_free(void *agent);

/* An answer with a body. False: no room yet. */
bool gpu_agent_reply(struct gpu_agent *agent, uint8_t op, uint32_t id, const void *body, uint32_t length);

/*
 * open.c: the ring, as granted and as the client reaches it.
 */

/* Longest input or output that a session with so much memory can have at all. */
uint32_t gpu_service_payload_max(uint64_t memory);

/* Take a request to open apart and start what it asks for; a wrong one fails the session. 0. */
int gpu_agent_open(struct gpu_agent *agent, const struct wire_record *request, const void *body);

/* The process is ready: tell the client what it got. False: there is no room yet. */
bool gpu_agent_open_answer(struct gpu_agent *agent);

/* Ring and process are made, and registered; agent->made. Errand. */
void gpu_agent_make(struct gpu_agent *agent);

/* The client reaches nothing any more; the endpoint is gone. */
void gpu_agent_close_windows(struct gpu_agent *agent);

/* Give back all that was made, after that; the process is gone. Errand. */
void gpu_agent_unmake(struct gpu_agent *agent);

/*
 * rpc.c
 */
int gpu_agent_rpc_start(struct gpu_agent *agent);

/* 0, or -EAGAIN: no room, the record is to come again. A wrong job fails the session. */
int gpu_agent_rpc_job(struct gpu_agent *agent, const struct wire_record *request, const void *body);

/* Wake the process for what was submitted, take results, answer. How much was done. */
int gpu_agent_rpc_turn(struct gpu_agent *agent);

/* Answer the request to end the session, of either mode. False: no room yet. */
bool gpu_agent_rpc_answer_end(struct gpu_agent *agent);

#endif
