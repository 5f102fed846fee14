/*
 * service: what a request means. Each service is one file and one row of the table that
 * service_find looks up; the daemon knows nothing else of it.
 */
#ifndef RDMAD_SERVICE_H
#define RDMAD_SERVICE_H

#include "conn/conn.h"
#include "store/store.h"

/* What the workers share; made by the daemon, outlives them. */
struct service_shared {
	struct store *store;  /* NULL when kv is not enabled */
	/* The arena of the store as registered in each domain; a domain without has no large values. */
	struct service_arena {
		struct fabric_domain *domain;
		struct fabric_region *region;
	} arena[2];
	uint64_t value_max;   /* kv: longest value */
	uint32_t ping_size_max;
};

/* What the services count. A line here puts a counter into the reports and answers of the daemon under its name;
 * rdmad(8) says what each means. */
#define SERVICE_COUNTERS(COUNTER) \
	COUNTER(ping_agents)      \
	COUNTER(pings)            \
	COUNTER(kv_gets)          \
	COUNTER(kv_sets)          \
	COUNTER(kv_deletes)       \
	COUNTER(kv_exists)        \
	COUNTER(kv_stats)         \
	COUNTER(kv_expires)       \
	COUNTER(kv_incrs)         \
	COUNTER(kv_scans)         \
	COUNTER(kv_flushes)       \
	COUNTER(kv_infos)         \
	COUNTER(kv_errors)        \
	COUNTER(kv_reads)         \
	COUNTER(kv_writes)

struct service_stats {
#define COUNTER(name) uint64_t name;
	SERVICE_COUNTERS(COUNTER)
#undef COUNTER
};

/* What one worker thread has. `now` is set by the worker before each turn of its groups. */
struct service_worker {
	const struct service_shared *shared;
	uint64_t now;
	void *free_transfers;       /* kept for the next large value */
	struct service_stats stats; /* read by other threads only through the worker */
};

struct service {
	enum wire_service id;
	const char *help; /* one line, for rdmad --help and the sample configuration */
	/* Check a request that was decoded and fill what the service grants. A reason other than WIRE_REASON_NONE
	 * refuses, with *detail. */
	enum wire_reason (*admit)(const struct service_shared *shared, const struct conn_group *group,
				  const struct wire_request *request, struct wire_accept *grant,
				  uint64_t *detail);
	const struct conn_ops *ops;
	/* Make the agent of one connection in `group`; it is freed by ops->closed. NULL: no memory. */
	void *(*agent_new)(struct service_worker *worker, const struct conn_group *group);
};

/* Give back what the services keep in a worker; after its connections ended. */
void service_worker_free(struct service_worker *worker);

/* NULL: no such service in this build. */
const struct service *service_find(unsigned id);

/* Take one connection for a service, in the worker's thread. Consumes fabric_request in every case. */
int service_accept(const struct service *service, struct service_worker *worker,
		   struct conn_group *group, struct fabric_request *fabric_request,
		   const struct wire_request *request);

/* Refuse a request, telling the peer why; for the listener. */
void service_refuse(struct fabric_request *fabric_request, enum wire_reason reason,
		    uint64_t detail);

#endif
