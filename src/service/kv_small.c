/*
 * kv_small.c: operations on one key whose value fits a message: read, write, delete, with conditions, versions, expiry
 * and numbers. A value is copied once, between the message and the arena. A large value put under a condition is in
 * rendezvous.c.
 */
#include "service/kv.h"

_Static_assert((int)WIRE_ALWAYS == STORE_ALWAYS && (int)WIRE_IF_ABSENT == STORE_IF_ABSENT &&
		       (int)WIRE_IF_PRESENT == STORE_IF_PRESENT && (int)WIRE_IF_VERSION == STORE_IF_VERSION,
	       "a condition has one number on the wire and in the store");
_Static_assert(WIRE_VERSIONED == sizeof(uint64_t), "the flag is the length of what it asks for");

/*
 * The wire's terms and the store's.
 */

/* A time to live from the wire made absolute; however long it is. */
static uint64_t expires_of(uint64_t ttl, uint64_t now)
{
	return ttl == 0 ? TIME_NEVER : time_after(now, time_of_us(ttl));
}

/* Rounded up: what is left is never told as 0, which would be for ever. */
static uint64_t ttl_left(uint64_t expires, uint64_t now)
{
	return expires == TIME_NEVER ? 0 : (expires - now - 1) / TIME_US + 1;
}

struct wire_meta kv_wire_meta(const struct store_meta *meta, uint64_t now)
{
	return (struct wire_meta){meta->len, meta->version, ttl_left(meta->expires, now)};
}

struct store_put kv_store_put(const struct wire_put *put, uint64_t now)
{
	return (struct store_put){
		.condition = (enum store_condition)put->condition,
		.version = put->version,
		.expires = expires_of(put->ttl, now),
	};
}

/*
 * Reading.
 */

/* The value's length is known only when it is found: try what room the message has, and once
 * more with the length where that was too little. */
int kv_serve_get(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		 struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	struct store *store = thread->store;
	uint32_t room = 0, head = request->flags & WIRE_VERSIONED;
	uint64_t len = 0, version;
	int found;

	do {
		reply = conn_reserve(conn, (uint32_t)len + head, &room);
		if (unlikely(!reply))
			return -EAGAIN;
		room = MIN(room - head, WIRE_INLINE_MAX); /* a limit, however empty the message */
		found = store_copy(store, body, request->length, kv_now(thread), (char *)(reply + 1) + head, room, &len,
				   &version);
		if (found == 0 || len <= room) {
			if (unlikely(head) && found)
				memcpy(reply + 1, &version, sizeof(version));
			kv_answer(conn, agent, request, reply, found ? WIRE_OK : WIRE_NOT_FOUND,
				  found ? (uint32_t)len + head : 0);
			return 0;
		}
		if (len > WIRE_INLINE_MAX)
			return kv_answer_too_large(conn, request, body, request->length, len);
	} while (true);
}

int kv_serve_exists(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		    struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	struct store_meta meta;
	int found = store_stat(thread->store, body, request->length, kv_now(thread), &meta);

	if (found)
		reply->arg = (uint32_t)MIN(meta.len, (uint64_t)UINT32_MAX);
	return kv_answer_result(conn, agent, request, reply, found ? 0 : -ENOENT, NULL, 0);
}

int kv_serve_stat(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		  struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	struct wire_meta wire = {0};
	struct store_meta meta;
	int found = store_stat(thread->store, body, request->length, kv_now(thread), &meta);

	if (found)
		wire = kv_wire_meta(&meta, kv_now(thread));
	return kv_answer_result(conn, agent, request, reply, found ? 0 : -ENOENT, &wire, sizeof(wire));
}

/*
 * Writing. The body is a key and a value, and the argument the key's length.
 */

static bool key_len_valid(uint32_t key_len, uint32_t length)
{
	return key_len >= 1 && key_len <= WIRE_KEY_MAX && key_len <= length;
}

int kv_serve_set(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		 struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	uint32_t key_len = request->arg;
	int rc;

	if (unlikely(!key_len_valid(key_len, request->length)))
		return -EPROTO;
	if (unlikely(request->length > WIRE_EAGER_MAX)) {
		reply->arg = WIRE_EAGER_MAX;
		rc = -EMSGSIZE;
	} else {
		KV_STEPS(conn, rc,
			 store_set(thread->store, body, key_len, body + key_len, request->length - key_len, NULL,
				   kv_now(thread), NULL));
		if (kv_write_waits(conn, agent, rc))
			return -EAGAIN;
	}
	kv_answer(conn, agent, request, reply, likely(rc == 0) ? WIRE_OK : wire_status_of(rc), 0);
	return 0;
}

int kv_serve_put(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		 struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	uint32_t key_len = request->arg, length = request->length - (uint32_t)sizeof(struct wire_put);
	const char *key = body + sizeof(struct wire_put);
	struct store_put put;
	struct wire_put wire;
	uint64_t version;
	int rc;

	memcpy(&wire, body, sizeof(wire));
	if (!key_len_valid(key_len, length) || wire.condition >= WIRE_CONDITIONS)
		return -EPROTO;
	if (length > WIRE_EAGER_MAX) {
		reply->arg = WIRE_EAGER_MAX;
		return kv_answer_result(conn, agent, request, reply, -EMSGSIZE, NULL, 0);
	}
	put = kv_store_put(&wire, kv_now(thread));
	KV_STEPS(conn, rc,
		 store_set(thread->store, key, key_len, key + key_len, length - key_len, &put, kv_now(thread),
			   &version));
	if (kv_write_waits(conn, agent, rc))
		return -EAGAIN;
	return kv_answer_result(conn, agent, request, reply, rc, &version, sizeof(version));
}

int kv_serve_incr(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		  struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	struct {
		int64_t number;
		uint64_t version;
	} sum = {0};
	int rc;

	KV_STEPS(conn, rc,
		 store_incr(thread->store, body + sizeof(uint64_t), request->length - sizeof(uint64_t),
			    (int64_t)kv_number(body), kv_now(thread), &sum.number, &sum.version));
	if (kv_write_waits(conn, agent, rc))
		return -EAGAIN;
	if (rc == -EINVAL) /* the key was checked: it is the value */
		rc = -EDOM;
	return kv_answer_result(conn, agent, request, reply, rc, &sum, sizeof(sum));
}

int kv_serve_expire(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		    struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	int found = store_expire(thread->store, body + sizeof(uint64_t), request->length - sizeof(uint64_t),
				 expires_of(kv_number(body), kv_now(thread)), kv_now(thread));

	return kv_answer_result(conn, agent, request, reply, found ? 0 : -ENOENT, NULL, 0);
}

/*
 * Deleting.
 */

static int delete_version(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
			  struct wire_record *reply, const char *key, uint32_t key_len, uint64_t version)
{
	int rc = store_delete(agent->thread->store, key, key_len, version, kv_now(agent->thread));

	if (rc >= 0)
		rc = rc == 1 ? 0 : -ENOENT;
	return kv_answer_result(conn, agent, request, reply, rc, NULL, 0);
}

int kv_serve_delete(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		    struct wire_record *reply)
{
	return delete_version(conn, agent, request, reply, body, request->length, 0);
}

int kv_serve_delete_if(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		       struct wire_record *reply)
{
	uint64_t version = kv_number(body);

	if (version == 0) /* no version, and to the store: any */
		return -EPROTO;
	return delete_version(conn, agent, request, reply, body + sizeof(version),
			      request->length - (uint32_t)sizeof(version), version);
}
