/* kv.h: what the files of the key/value service share: kv.c and kv_more.c, small values, rendezvous.c, large. */
#ifndef RDMAD_SERVICE_KV_H
#define RDMAD_SERVICE_KV_H

#include "service/internal.h"

#define KV_TRANSFERS 32 /* on one connection */

struct kv_agent {
	struct service_worker *worker;
	const struct fabric_region *arena; /* NULL: large values are not offered here */
	struct list sets;                  /* large SETs whose bytes are on the way */
	struct list finished;              /* transfers that wait for room to answer */
	uint64_t value_max;
};

/* The answer that was reserved is complete. */
void kv_answer(struct conn *conn, struct service_worker *worker, const struct wire_record *request,
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

#endif
