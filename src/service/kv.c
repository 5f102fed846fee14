/*
 * kv.c: the server's half of the key/value service. Small requests are eager: a request and its answer are one
 * record each, large values are in rendezvous.c. The answer is built where it will be sent from; a value is copied once, between
 * the message and the arena.
 */
#include "service/kv.h"

#include <stdlib.h>

/* Without a registered arena a value has to fit a message. */
static uint64_t value_max_of(const struct kv_shared *shared, const struct fabric_region *arena)
{
	return arena ? shared->value_max : MIN(shared->value_max, WIRE_EAGER_MAX);
}

uint64_t kv_agent_value_max(const struct kv_agent *agent)
{
	return value_max_of(agent->thread->part.shared, agent->arena);
}

static enum wire_reason admit(struct service_part *part, const struct conn_group *group,
			      const struct wire_request *request, struct wire_accept *grant, uint64_t *detail)
{
	const struct kv_shared *shared = part->shared;

	(void)request;
	(void)detail;
	grant->eager_max = WIRE_EAGER_MAX;
	grant->value_max = value_max_of(shared, kv_shared_region(shared, group));
	return WIRE_REASON_NONE;
}

static int thread_init(struct service_part *part)
{
	const struct kv_shared *shared = part->shared;

	container_of(part, struct kv_thread, part)->store = shared->store;
	return 0;
}

static void *agent_new(struct service_part *part, const struct conn_group *group)
{
	const struct kv_shared *shared = part->shared;
	struct kv_agent *agent = calloc(1, sizeof(*agent));

	if (!agent)
		return NULL;
	agent->thread = container_of(part, struct kv_thread, part);
	agent->value_max = shared->value_max;
	list_init(&agent->sets);
	list_init(&agent->finished);
	agent->arena = kv_shared_region(shared, group);
	return agent;
}

static void established(struct conn *conn)
{
	(void)conn;
}

void kv_answer(struct conn *conn, struct kv_thread *thread, const struct wire_record *request,
	       struct wire_record *reply, enum wire_status status, uint32_t length)
{
	/* An answer with a body says how to go on, and a condition may fail: those are no errors. */
	if (unlikely(status != WIRE_OK && status != WIRE_NOT_FOUND && !length && status != WIRE_EXISTS &&
		     status != WIRE_STALE))
		thread->part.count[KV_COUNT_ERRORS]++;
	reply->id = request->id;
	reply->op = request->op;
	reply->flags = WIRE_REPLY;
	reply->status = status;
	conn_commit(conn, reply, length);
}

_Static_assert(WIRE_VERSIONED == sizeof(uint64_t), "the flag is the length of what it asks for");

/* The value's length is known only when it is found: try what room the message has, and once
 * more with the length where that was too little. */
static int get(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	struct store *store = thread->store;
	uint32_t room = 0, head = request->flags & WIRE_VERSIONED;
	uint64_t len = 0, version;
	int found;

	do {
		struct wire_record *reply = conn_reserve(conn, (uint32_t)len + head, &room);

		if (unlikely(!reply))
			return -EAGAIN;
		room = MIN(room - head, WIRE_INLINE_MAX); /* a limit, however empty the message */
		found = store_copy(store, body, request->length, kv_now(thread), (char *)(reply + 1) + head, room, &len,
				   &version);
		if (found == 0 || len <= room) {
			if (unlikely(head) && found)
				memcpy(reply + 1, &version, sizeof(version));
			thread->part.count[KV_COUNT_GETS]++;
			kv_answer(conn, thread, request, reply, found ? WIRE_OK : WIRE_NOT_FOUND,
				  found ? (uint32_t)len + head : 0);
			return 0;
		}
		if (len > WIRE_INLINE_MAX)
			return kv_answer_too_large(conn, agent, request, body, request->length, len);
	} while (true);
}

static int set(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
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
		kv_answer(conn, thread, request, reply, WIRE_TOO_LARGE, 0);
		return 0;
	}
	rc = store_set(thread->store, body, key_len, body + key_len, request->length - key_len, NULL, kv_now(thread),
		       NULL);
	status = likely(rc == 0) ? WIRE_OK : wire_status_of(rc);
	thread->part.count[KV_COUNT_SETS]++;
	kv_answer(conn, thread, request, reply, status, 0);
	return 0;
}

static int delete_key(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	struct wire_record *reply = conn_reserve(conn, 0, NULL);
	int rc;

	if (!reply)
		return -EAGAIN;
	rc = store_delete(thread->store, body, request->length, 0, kv_now(thread));
	thread->part.count[KV_COUNT_DELETES]++;
	kv_answer(conn, thread, request, reply, rc == 1 ? WIRE_OK : WIRE_NOT_FOUND, 0);
	return 0;
}

static int exists(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	struct wire_record *reply = conn_reserve(conn, 0, NULL);
	struct store_meta meta;
	int rc;

	if (!reply)
		return -EAGAIN;
	rc = store_stat(thread->store, body, request->length, kv_now(thread), &meta);
	thread->part.count[KV_COUNT_EXISTS]++;
	if (rc == 1)
		reply->arg = (uint32_t)MIN(meta.len, (uint64_t)UINT32_MAX);
	kv_answer(conn, thread, request, reply, rc == 1 ? WIRE_OK : WIRE_NOT_FOUND, 0);
	return 0;
}

#define NUMBER sizeof(uint64_t)
#define PUT sizeof(struct wire_put)
#define REMOTE sizeof(struct wire_remote)
#define KEY_NONE 254 /* the operation is on no key */
#define KEY_ALL 255  /* or on all of them */

static const struct {
	int (*handle)(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);
	uint32_t body_min, body_max;
	uint8_t key_at; /* where in the body the key begins */
	bool key_arg;   /* the argument is its length; else it goes to the body's end */
} handlers[] = {
	[WIRE_OP_GET] = {get, 1, WIRE_KEY_MAX, 0, false},
	[WIRE_OP_SET] = {set, 1, UINT32_MAX, 0, true},
	[WIRE_OP_DELETE] = {delete_key, 1, WIRE_KEY_MAX, 0, false},
	[WIRE_OP_EXISTS] = {exists, 1, WIRE_KEY_MAX, 0, false},
	[WIRE_OP_GET_INTO] = {kv_get_into, REMOTE + 1, REMOTE + WIRE_KEY_MAX, REMOTE, false},
	[WIRE_OP_SET_FROM] = {kv_set_from, REMOTE + 1, REMOTE + WIRE_KEY_MAX, REMOTE, false},
	[WIRE_OP_PUT] = {kv_serve_put, PUT + 1, UINT32_MAX, PUT, true},
	[WIRE_OP_PUT_FROM] = {kv_put_from, REMOTE + PUT + 1, REMOTE + PUT + WIRE_KEY_MAX, REMOTE + PUT, false},
	[WIRE_OP_STAT] = {kv_serve_stat, 1, WIRE_KEY_MAX, 0, false},
	[WIRE_OP_EXPIRE] = {kv_serve_expire, NUMBER + 1, NUMBER + WIRE_KEY_MAX, NUMBER, false},
	[WIRE_OP_DELETE_IF] = {kv_serve_delete_if, NUMBER + 1, NUMBER + WIRE_KEY_MAX, NUMBER, false},
	[WIRE_OP_INCR] = {kv_serve_incr, NUMBER + 1, NUMBER + WIRE_KEY_MAX, NUMBER, false},
	[WIRE_OP_SCAN] = {kv_serve_scan, NUMBER, NUMBER + WIRE_KEY_MAX, KEY_ALL, false},
	[WIRE_OP_FLUSH] = {kv_serve_flush, NUMBER, NUMBER, KEY_ALL, false},
	[WIRE_OP_INFO] = {kv_serve_info, 0, 0, KEY_NONE, false},
};

/* Whether a request has to wait for a large SET that came before it. */
static bool key_busy(const struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	uint8_t at = handlers[request->op].key_at;
	uint32_t rest = request->length - at;

	if (at == KEY_NONE || at == KEY_ALL)
		return at == KEY_ALL;
	if (handlers[request->op].key_arg)
		rest = MIN(rest, request->arg);
	return kv_key_busy(agent, body + at, rest);
}

static int record(struct conn *conn, const struct wire_record *request, const void *body)
{
	struct kv_agent *agent = conn_context(conn);

	if (unlikely(request->op >= ARRAY_SIZE(handlers) || !handlers[request->op].handle))
		return -EPROTO;
	if (unlikely(request->length < handlers[request->op].body_min ||
		     request->length > handlers[request->op].body_max))
		return -EPROTO;
	if (unlikely(!list_empty(&agent->sets)) && key_busy(agent, request, body)) {
		conn_wait_writable(conn);
		return -EAGAIN;
	}
	return handlers[request->op].handle(conn, agent, request, body);
}

static void closed(struct conn *conn, int error, const char *reason)
{
	struct conn_info info;

	if (error) {
		conn_get_info(conn, &info);
		log_warn("kv", "%s (%s): %s", info.peer, info.transport, reason);
	}
	kv_rendezvous_close(conn_context(conn));
	free(conn_context(conn));
}

static const struct conn_ops ops = {
	.established = established,
	.record = record,
	.writable = kv_rendezvous_writable,
	.closed = closed,
};

const struct service service_kv = {
	.id = WIRE_KV,
	.help = "key/value store",
	.settings = &kv_settings,
	.counters = kv_counters,
	.open = kv_shared_open,
	.close = kv_shared_close,
	.tick = kv_shared_tick,
	.status = kv_shared_status,
	.memory = kv_shared_memory,
	.resources = kv_shared_resources,
	.part_size = sizeof(struct kv_thread),
	.part_init = thread_init,
	.part_clear = kv_thread_clear,
	.admit = admit,
	.ops = &ops,
	.agent_new = agent_new,
	.agent_free = free,
};
