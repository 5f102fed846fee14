/*
 * kv.h: what the files of the key/value service share: kv_store.c, what the process has; kv.c and kv_more.c, small
 * values; rendezvous.c, large ones.
 */
#ifndef RDMAD_SERVICE_KV_H
#define RDMAD_SERVICE_KV_H

#include "service/internal.h"
#include "store/store.h"

#define KV_TRANSFERS 32 /* on one connection */

/* By the rows of kv_settings. */
struct kv_settings {
	uint64_t memory, value_max;
	uint64_t eviction; /* enum store_eviction */
};

/* What the workers share. Constant but for the store, which has its own locks. */
struct kv_shared {
	struct store *store;
	void *arena;
	size_t arena_size;
	uint64_t value_max; /* longest value */
	/* The arena as registered in each domain; a domain without has no large values. */
	struct kv_region {
		struct fabric_domain *domain;
		struct fabric_region *region;
	} * region;
	unsigned regions;
};

enum kv_count {
	KV_COUNT_GETS,
	KV_COUNT_SETS,
	KV_COUNT_DELETES,
	KV_COUNT_EXISTS,
	KV_COUNT_STATS,
	KV_COUNT_EXPIRES,
	KV_COUNT_INCRS,
	KV_COUNT_SCANS,
	KV_COUNT_FLUSHES,
	KV_COUNT_INFOS,
	KV_COUNT_ERRORS,
	KV_COUNT_READS,
	KV_COUNT_WRITES,
};

struct kv_thread {
	struct service_part part;
	struct store *store;
	void *free_transfers; /* kept for the next large value */
};

struct kv_agent {
	struct kv_thread *thread;
	const struct fabric_region *arena; /* NULL: large values are not offered here */
	struct list sets;                  /* large SETs whose bytes are on the way */
	struct list finished;              /* transfers that wait for room to answer */
	uint64_t value_max;
};

static inline uint64_t kv_now(const struct kv_thread *thread)
{
	return service_part_now(&thread->part);
}

/*
 * kv_store.c: the store and its arena. Main thread, but for the regions.
 */
extern const struct setting_table kv_settings;
extern const char *const kv_counters[];

int kv_shared_open(const struct service_host *host, const void *settings, void **shared);
void kv_shared_close(void *shared);
uint64_t kv_shared_tick(void *shared, uint64_t now);
void kv_shared_status(const void *shared, struct service_report *report);
void kv_shared_memory(const void *shared, struct service_report *report);
void kv_shared_resources(const void *shared, struct service_report *report);

/* The arena as the connections of a group reach it. NULL: not at all. */
const struct fabric_region *kv_shared_region(const struct kv_shared *shared, const struct conn_group *group);

/*
 * kv.c
 */

/* The answer that was reserved is complete. */
void kv_answer(struct conn *conn, struct kv_thread *thread, const struct wire_record *request,
	       struct wire_record *reply, enum wire_status status, uint32_t length);

/* Longest value that this connection takes. */
uint64_t kv_agent_value_max(const struct kv_agent *agent);

/*
 * kv_more.c: handlers, as in kv.c's table.
 */
int kv_serve_put(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_serve_stat(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_serve_expire(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_serve_delete_if(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_serve_incr(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_serve_scan(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_serve_flush(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_serve_info(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);

/* What a put asks for in the store's terms; its condition was checked. */
struct store_put kv_store_put(const struct wire_put *put, uint64_t now);

/* A time to live from the wire made absolute; however long it is. */
uint64_t kv_expires(uint64_t ttl, uint64_t now);

/*
 * rendezvous.c
 */

/* Whether a SET of this key is under way on the connection: a later request for it has to wait, so that
 * requests for one key are carried out in their order. */
bool kv_key_busy(const struct kv_agent *agent, const void *key, size_t key_len);

/* Handlers, as in kv.c's table. */
int kv_get_into(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_set_from(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
int kv_put_from(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);

/* A value beyond the message: tell its length and the key to ask again with. */
int kv_answer_too_large(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *key,
			uint32_t key_len, uint64_t value_len);

/* The connection's ops->writable. */
void kv_rendezvous_writable(struct conn *conn);

/* Transfers that were finished but not answered. */
void kv_rendezvous_close(struct kv_agent *agent);

/* Transfers that were kept for the next large value. */
void kv_thread_clear(struct service_part *part);

#endif
