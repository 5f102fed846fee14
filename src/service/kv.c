/*
 * kv.c: the server's half of the key/value service, eager: a request and its answer are one
 * record each. The answer is built where it will be sent from; a value is copied once, between
 * the message and the arena.
 */
#include "service/internal.h"

#include <stdlib.h>

struct kv_agent {
	struct service_worker *worker;
};

static enum wire_reason admit(const struct service_shared *shared,
			      const struct wire_request *request, struct wire_accept *grant,
			      uint64_t *detail)
{
	(void)request;
	if (!shared->store) {
		*detail = WIRE_KV;
		return WIRE_REASON_SERVICE;
	}
	grant->eager_max = WIRE_EAGER_MAX;
	grant->value_max = shared->value_max;
	return WIRE_REASON_NONE;
}

static void *agent_new(struct service_worker *worker)
{
	struct kv_agent *agent = calloc(1, sizeof(*agent));

	if (agent)
		agent->worker = worker;
	return agent;
}

static void established(struct conn *conn)
{
	(void)conn;
}

/* The answer that was reserved is complete. */
static void answer(struct conn *conn, struct service_worker *worker,
		   const struct wire_record *request, struct wire_record *reply,
		   enum wire_status status, uint32_t length)
{
	if (unlikely(status != WIRE_OK && status != WIRE_NOT_FOUND))
		worker->stats.kv_errors++;
	reply->id = request->id;
	reply->op = request->op;
	reply->flags = WIRE_REPLY;
	reply->status = status;
	conn_commit(conn, reply, length);
}

/* The value's length is known only when it is found: try what room the message has, and once
 * more with the length where that was too little. */
static int get(struct conn *conn, struct service_worker *worker, const struct wire_record *request,
	       const char *body)
{
	struct store *store = worker->shared->store;
	uint32_t room = 0;
	uint64_t len = 0;
	int found;

	do {
		struct wire_record *reply = conn_reserve(conn, (uint32_t)len, &room);

		if (unlikely(!reply))
			return -EAGAIN;
		room = MIN(room, WIRE_EAGER_MAX); /* a limit, however empty the message */
		found = store_copy(store, body, request->length, worker->now, reply + 1, room, &len,
				   NULL);
		if (found == 0 || len <= room) {
			worker->stats.kv_gets++;
			answer(conn, worker, request, reply, found ? WIRE_OK : WIRE_NOT_FOUND,
			       found ? (uint32_t)len : 0);
			return 0;
		}
		if (len > WIRE_EAGER_MAX) {
			reply->arg = WIRE_EAGER_MAX;
			answer(conn, worker, request, reply, WIRE_TOO_LARGE, 0);
			return 0;
		}
	} while (true);
}

static int set(struct conn *conn, struct service_worker *worker, const struct wire_record *request,
	       const char *body)
{
	uint32_t key_len = request->arg;
	struct wire_record *reply;
	enum wire_status status;
	int rc;

	if (unlikely(key_len < 1 || key_len > WIRE_KEY_MAX || key_len > request->length))
		return -EPROTO;
	reply = conn_reserve(conn, 0, NULL);
	if (unlikely(!reply))
		return -EAGAIN;
	if (unlikely(request->length > WIRE_EAGER_MAX)) {
		reply->arg = WIRE_EAGER_MAX;
		answer(conn, worker, request, reply, WIRE_TOO_LARGE, 0);
		return 0;
	}
	rc = store_set(worker->shared->store, body, key_len, body + key_len,
		       request->length - key_len, NULL, worker->now, NULL);
	status = likely(rc == 0) ? WIRE_OK : wire_status_of(rc);
	worker->stats.kv_sets++;
	answer(conn, worker, request, reply, status, 0);
	return 0;
}

static int delete (struct conn *conn, struct service_worker *worker,
		   const struct wire_record *request, const char *body)
{
	struct wire_record *reply = conn_reserve(conn, 0, NULL);
	int rc;

	if (!reply)
		return -EAGAIN;
	rc = store_delete(worker->shared->store, body, request->length, 0, worker->now);
	worker->stats.kv_deletes++;
	answer(conn, worker, request, reply, rc == 1 ? WIRE_OK : WIRE_NOT_FOUND, 0);
	return 0;
}

static int exists(struct conn *conn, struct service_worker *worker,
		  const struct wire_record *request, const char *body)
{
	struct wire_record *reply = conn_reserve(conn, 0, NULL);
	struct store_meta meta;
	int rc;

	if (!reply)
		return -EAGAIN;
	rc = store_stat(worker->shared->store, body, request->length, worker->now, &meta);
	worker->stats.kv_exists++;
	if (rc == 1)
		reply->arg = (uint32_t)MIN(meta.len, (uint64_t)UINT32_MAX);
	answer(conn, worker, request, reply, rc == 1 ? WIRE_OK : WIRE_NOT_FOUND, 0);
	return 0;
}

static const struct {
	int (*handle)(struct conn *conn, struct service_worker *worker,
		      const struct wire_record *request, const char *body);
	uint32_t body_min, body_max;
} handlers[] = {
	[WIRE_OP_GET] = {get, 1, WIRE_KEY_MAX},
	[WIRE_OP_SET] = {set, 1, UINT32_MAX},
	[WIRE_OP_DELETE] = {delete, 1, WIRE_KEY_MAX},
	[WIRE_OP_EXISTS] = {exists, 1, WIRE_KEY_MAX},
};

static int record(struct conn *conn, const struct wire_record *request, const void *body)
{
	struct kv_agent *agent = conn_context(conn);

	if (unlikely(request->op >= ARRAY_SIZE(handlers) || !handlers[request->op].handle))
		return -EPROTO;
	if (unlikely(request->length < handlers[request->op].body_min ||
		     request->length > handlers[request->op].body_max))
		return -EPROTO;
	return handlers[request->op].handle(conn, agent->worker, request, body);
}

static void closed(struct conn *conn, int error, const char *reason)
{
	struct conn_info info;

	if (error) {
		conn_get_info(conn, &info);
		log_warn("kv", "%s (%s): %s", info.peer, info.transport, reason);
	}
	free(conn_context(conn));
}

static const struct conn_ops ops = {
	.established = established,
	.record = record,
	.closed = closed,
};

const struct service service_kv = {
	.id = WIRE_KV,
	.help = "key/value store",
	.admit = admit,
	.ops = &ops,
	.agent_new = agent_new,
};
