/*
 * service: what a request means. Each service is one file and one row of the table that
 * service_find looks up; the daemon knows nothing else of it.
 */
#ifndef RDMAD_SERVICE_H
#define RDMAD_SERVICE_H

#include "conn/conn.h"
#include "gpu/gpu.h"
#include "store/store.h"

#define SERVICE_GPU_DEVICES 32

/* What the gpu service has of the daemon's settings, and what all workers count together. */
struct service_gpu {
	struct gpu_process_attr
		attr; /* but the device: each session's worker takes the next of these, if any are named */
	const char *device[SERVICE_GPU_DEVICES];
	unsigned devices;
	_Atomic unsigned turn;
	struct gpu_probe probe; /* what the workers will use */
	uint32_t sessions_max;
	uint32_t queues, slots;                     /* most of a session */
	uint64_t memory;                            /* most bytes of its ring */
	_Atomic uint32_t sessions;                  /* connections, and worker processes that are not gone yet */
	_Atomic uint64_t jobs, bytes_in, bytes_out; /* of RPC mode */
};

/* What the workers share; made by the daemon, outlives them. */
struct service_shared {
	struct store *store; /* NULL when kv is not enabled */
	/* The arena of the store as registered in each domain; a domain without has no large values. */
	struct service_arena {
		struct fabric_domain *domain;
		struct fabric_region *region;
	} arena[2];
	uint64_t value_max; /* kv: longest value */
	uint32_t ping_size_max;
	struct service_gpu *gpu; /* NULL when gpu is not enabled */
};

/* What the services count. A line here puts a counter into the reports and answers of the daemon under its name;
 * rdmad(8) says what each means. */
#define SERVICE_COUNTERS(COUNTER)                                                                                      \
	COUNTER(ping_agents)                                                                                           \
	COUNTER(pings)                                                                                                 \
	COUNTER(kv_gets)                                                                                               \
	COUNTER(kv_sets)                                                                                               \
	COUNTER(kv_deletes)                                                                                            \
	COUNTER(kv_exists)                                                                                             \
	COUNTER(kv_stats)                                                                                              \
	COUNTER(kv_expires)                                                                                            \
	COUNTER(kv_incrs)                                                                                              \
	COUNTER(kv_scans)                                                                                              \
	COUNTER(kv_flushes)                                                                                            \
	COUNTER(kv_infos)                                                                                              \
	COUNTER(kv_errors)                                                                                             \
	COUNTER(kv_reads)                                                                                              \
	COUNTER(kv_writes)                                                                                             \
	COUNTER(gpu_sessions)                                                                                          \
	COUNTER(gpu_errors)                                                                                            \
	COUNTER(gpu_quantizes)                                                                                         \
	COUNTER(gpu_echoes)                                                                                            \
	COUNTER(gpu_in_bytes)                                                                                          \
	COUNTER(gpu_out_bytes)                                                                                         \
	COUNTER(gpu_queue_jobs)

struct service_stats {
#define COUNTER(name) uint64_t name;
	SERVICE_COUNTERS(COUNTER)
#undef COUNTER
};

/* What one worker thread has. `now` is set by the worker before each turn of its groups. */
struct service_worker {
	const struct service_shared *shared;
	uint64_t now;
	void *free_transfers;            /* kept for the next large value */
	unsigned sessions;               /* of gpu, here */
	unsigned gpu_jobs;               /* of RPC mode, under way in the processes of these sessions */
	struct gpu_worker_sessions *gpu; /* NULL when gpu is not enabled */
	struct service_stats stats;      /* read by other threads only through the worker */
};

struct service {
	enum wire_service id;
	const char *help; /* one line, for rdmad --help and the sample configuration */
	/* Check a request that was decoded and fill what the service grants. A reason other than WIRE_REASON_NONE
	 * refuses, with *detail. */
	enum wire_reason (*admit)(const struct service_shared *shared, const struct conn_group *group,
				  const struct wire_request *request, struct wire_accept *grant, uint64_t *detail);
	const struct conn_ops *ops;
	/* Make the agent of one connection in `group`; it is freed by ops->closed. NULL: no memory. */
	void *(*agent_new)(struct service_worker *worker, const struct conn_group *group);
	/* Of a connection that came to nothing; closed() is not called. */
	void (*agent_free)(void *agent);
	/* What the agent's connection has of its own. NULL: nothing. */
	void (*attr)(void *agent, struct conn_attr *attr);
	/* The daemon is to end, and nothing of the connection is in flight: close it, or finish first what was begun. Called
	 * again and again. NULL: it is closed. */
	void (*drain)(struct conn *conn);
};

/*
 * service.c
 */
int service_worker_create(struct service_worker *worker, const struct service_shared *shared);
/* After its connections ended. Waits for the processes of gpu sessions, a tenth of a second as a rule. */
void service_worker_free(struct service_worker *worker);

/* NULL: no such service in this build. */
const struct service *service_find(unsigned id);

/* Take one connection for a service, in the worker's thread. Consumes fabric_request in every case. */
int service_accept(const struct service *service, struct service_worker *worker, struct conn_group *group,
		   struct fabric_request *fabric_request, const struct wire_request *request);

/* The service's drain() where it has one. */
void service_drain(struct conn *conn);

/* Refuse a request, telling the peer why; for the listener. */
void service_refuse(struct fabric_request *fabric_request, enum wire_reason reason, uint64_t detail);

/*
 * gpu_worker.c: what services wait for beside connections: their processes. A descriptor out, progress in.
 */

/* To be watched for reading; does not change. -1: none. */
int service_worker_fd(const struct service_worker *worker);
/* It is readable. */
void service_worker_readable(struct service_worker *worker);

/* After each turn of the groups. How much was done: 0 says that it may be time to sleep. */
int gpu_worker_turn(struct service_worker *worker);
static inline int service_worker_progress(struct service_worker *worker)
{
	return unlikely(worker->sessions) ? gpu_worker_turn(worker) : 0;
}

/* When it must be called though nothing comes. */
uint64_t service_worker_deadline(const struct service_worker *worker);

/* Before sleeping, as fabric_arm; false: do not. service_worker_disarm() after it. */
bool service_worker_arm(struct service_worker *worker);
void service_worker_disarm(struct service_worker *worker);

/* The thread is about to end, and what it made must not outlive it: ends the processes and waits as above. */
void service_worker_end(struct service_worker *worker);

/* The counts so far, with those that are taken from where they are. */
void service_worker_get_stats(const struct service_worker *worker, struct service_stats *out);

#endif
