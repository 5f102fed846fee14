/*
 * gpu.h: what the files of the gpu service share: gpu.c, the life of a session; gpu_open.c, its ring;
 * gpu_rpc.c, jobs by request; gpu_worker.c, the turn of a worker's sessions.
 */
#ifndef RDMAD_SERVICE_GPU_H
#define RDMAD_SERVICE_GPU_H

#include "gpu/gpu.h"
#include "service/internal.h"

#define GPU_TRANSFERS 64 /* inputs and outputs on their way on one connection */

enum gpu_agent_state {
	GPU_AGENT_WAITING,  /* for the client to open a session */
	GPU_AGENT_STARTING, /* the worker process comes up */
	GPU_AGENT_RUNNING,
	GPU_AGENT_FINISHING, /* the client is done, jobs from before are under way */
	GPU_AGENT_ENDING,    /* the client was told, and has a moment to leave */
	GPU_AGENT_CLOSED,    /* the connection is gone, its worker process still there */
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
struct gpu_job {
	struct conn_transfer wire; /* the read of its input, then the write of its output */
	struct gpu_agent *agent;
	struct list node;     /* in agent->reads or agent->answers while it waits for room */
	struct gpu_job *next; /* of the same bucket; later, of those answered together */
	struct gpu_cell cell;
	struct wire_ring_job ring;
	struct wire_remote input, output;
	void *to;         /* where the input goes */
	const void *from; /* where the output is */
};

/* One connection and its session. */
struct gpu_agent {
	struct list node; /* of the worker */
	struct service_worker *worker;
	struct conn *conn;            /* NULL once it is closed */
	struct fabric_domain *domain; /* the connection's own: no other client's keys reach this ring */
	enum gpu_agent_state state;
	uint64_t deadline;
	struct gpu_session *session; /* NULL before it is opened */
	enum gpu_session_state process;
	bool look; /* its descriptor was readable */
	enum wire_gpu_mode mode;
	bool sends;       /* answers are a write and a record */
	bool answered;    /* the last word, ENDED or the answer to the request to end, was said */
	uint32_t open_id; /* of the request that is answered when the worker is ready */
	const struct wire_ring *ring;
	struct fabric_region *region[2]; /* [0]: of RPC mode, or the worker's part; [1]: the client's */
	struct fabric_window *window[2];
	int error; /* why it ends */
	char reason[256];

	/* RPC mode */
	struct gpu_port *port;
	struct gpu_job *job;     /* by queue and place in it */
	struct gpu_job **bucket; /* by id: not answered yet */
	unsigned bucket_shift;
	uint32_t multiplier; /* of the ids' hash, drawn anew for each session */
	unsigned jobs;       /* that hold a cell */
	struct list reads, answers;
	struct conn_transfer last; /* the write that answers the request to end */
};

/* What a worker thread has for its sessions. */
struct gpu_worker_sessions {
	int fd;        /* an epoll of their descriptors */
	uint64_t look; /* when to ask it without being told that it is readable */
	struct list agents;
};

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

/* Its connection is gone, and its worker process, if it had one. */
void gpu_agent_free(void *agent);

/* An answer with a body. False: no room yet. */
bool gpu_reply(struct gpu_agent *agent, uint8_t op, uint32_t id, const void *body, uint32_t length);

/*
 * gpu_open.c: the ring, as granted and as the client reaches it.
 */

/* Longest input or output that a session can have at all. */
uint32_t gpu_payload_max(const struct service_gpu *gpu);

/* Take a request to open apart and start what it asks for; a wrong one fails the session. */
void gpu_open(struct gpu_agent *agent, const struct wire_record *request, const void *body);

/* The worker is ready: tell the client what it got. False: there is no room yet. */
bool gpu_open_answer(struct gpu_agent *agent);

/* Give back windows, regions and port; the endpoint is gone. */
void gpu_open_undo(struct gpu_agent *agent);

/*
 * gpu_rpc.c
 */
int gpu_rpc_start(struct gpu_agent *agent);

/* 0, or -EAGAIN: no room, the record is to come again. A wrong job fails the session. */
int gpu_rpc_job(struct gpu_agent *agent, const struct wire_record *request, const void *body);

/* Wake the worker for what was submitted, take results, answer. How much was done. */
int gpu_rpc_turn(struct gpu_agent *agent);

/* Answer the request to end the session, of either mode. False: no room yet. */
bool gpu_rpc_answer_end(struct gpu_agent *agent);

/*
 * gpu_worker.c
 */

/* The worker listens to the agent's session. -ENOMEM, -ENOSPC. */
int gpu_worker_watch(struct gpu_agent *agent);
void gpu_worker_unwatch(struct gpu_agent *agent);

#endif
