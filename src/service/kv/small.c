/*
 * small.c: operations on one key whose value fits a message: read, write, delete, with conditions, versions, expiry
 * and numbers. A value is copied once, between the message and the arena. A large value put under a condition is in
 * rendezvous.c.
 */
#include "service/kv/kv.h"

_Static_assert((int)WIRE_ALWAYS == STORE_ALWAYS && (int)WIRE_IF_ABSENT == STORE_IF_ABSENT &&
		       (int)WIRE_IF_PRESENT == STORE_IF_PRESENT && (int)WIRE_IF_VERSION == STORE_IF_VERSION,
	       "a condition has one number on the wire and in the store");
_Static_assert(WIRE_ITEM_STALE == STORE_STALE && WIRE_ITEM_TYPES == STORE_HASH + 1, "an item's type is one number");
_Static_assert(WIRE_VERSIONED == sizeof(uint64_t), "the flag is the length of what it asks for");

/*
 * The wire's terms and the store's.
 */

struct wire_meta kv_wire_meta(const struct store_meta *meta, uint64_t now)
{
	/* Rounded up: what is left is never told as 0, which would be for ever. */
	uint64_t left = meta->expires == TIME_NEVER ? 0 : (meta->expires - now - 1) / TIME_US + 1;

	return (struct wire_meta){meta->len, meta->version, left};
}

struct store_put kv_store_put(const struct wire_put *put, uint64_t now)
{
	const bool item = put->flags & WIRE_PUT_ITEM;

	return (struct store_put){
		.condition = (enum store_condition)put->condition,
		.version = item ? 0 : put->version,
		.expires = kv_expires_of(put->ttl, now),
		.keep_expiry = put->flags & WIRE_KEEP_TTL,
		.type = item ? (uint8_t)(put->version >> 32) : 0,
		.flags = item ? (uint32_t)put->version : 0,
	};
}

bool kv_put_valid(const struct wire_put *put)
{
	if (put->flags & WIRE_PUT_ITEM &&
	    (put->condition != WIRE_ALWAYS || put->flags & WIRE_KEEP_TTL || !wire_item_valid(put->version)))
		return false;
	return put->condition < WIRE_CONDITIONS;
}

/*
 * Reading.
 */

static int get_longer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		      uint64_t len, uint64_t version);

/* A value of `least` bytes or what the message has room for. */
static inline int get_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
			    const char *body, uint32_t least)
{
	const struct wire_ways can = kv_get_ways(agent, request);
	uint32_t room, head = request->flags & WIRE_VERSIONED;
	struct wire_record *reply = conn_reserve(conn, least + head, &room);
	struct store_meta meta;
	char *value;
	int found;

	if (unlikely(!reply))
		return -EAGAIN;
	room = MIN(room - head, (uint32_t)wire_message_max(WIRE_OP_GET, &can));
	value = (char *)(reply + 1) + head;
	found = store_read(agent->thread->store, body, request->length, kv_now(agent->thread), value, room, &meta);
	if (unlikely(!found)) {
		kv_answer(conn, agent, request, reply, WIRE_NOT_FOUND, 0,
			  kv_tells_removed(agent, request, body, request->length));
		return 0;
	}
	if (unlikely(meta.type != STORE_STRING)) {
		kv_answer(conn, agent, request, reply, WIRE_OTHER_TYPE, 0, meta.version);
		return 0;
	}
	if (unlikely(meta.len > room))
		return get_longer(conn, agent, request, body, meta.len, meta.version);
	if (unlikely(head))
		memcpy(reply + 1, &meta.version, sizeof(meta.version));
	kv_answer(conn, agent, request, reply, WIRE_OK, (uint32_t)meta.len + head, meta.version);
	return 0;
}

/* The value's length is known only when it is found: once more with the length where the room was too little. */
static __attribute__((noinline)) int get_longer(struct conn *conn, struct kv_agent *agent,
						const struct wire_record *request, const char *body, uint64_t len,
						uint64_t version)
{
	const struct wire_ways can = kv_get_ways(agent, request);
	enum wire_way way = wire_way(WIRE_OP_GET, len, &can);

	if (way == WIRE_WAY_PUSHED)
		return kv_push_value(conn, agent, request, body);
	if (way == WIRE_WAY_NONE)
		return kv_answer_too_large(conn, agent, request, body, request->length, len, version);
	return get_value(conn, agent, request, body, (uint32_t)len);
}

int kv_serve_get(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		 struct wire_record *reply)
{
	(void)reply;
	return get_value(conn, agent, request, body, 0);
}

int kv_serve_exists(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		    struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	struct store_meta meta;
	int found = store_stat(thread->store, body, request->length, kv_now(thread), &meta);

	if (found)
		reply->arg = (uint32_t)MIN(meta.len, (uint64_t)UINT32_MAX);
	return kv_answer_result(conn, agent, request, reply, found ? 0 : -ENOENT, NULL, 0,
				found ? meta.version : kv_tells_removed(agent, request, body, request->length));
}

int kv_serve_stat(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		  struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	struct wire_stat wire = {0};
	struct store_meta meta;
	int found = store_stat(thread->store, body, request->length, kv_now(thread), &meta);
	uint64_t tells = kv_tells_removed(agent, request, body, request->length);

	if (found) {
		wire = (struct wire_stat){kv_wire_meta(&meta, kv_now(thread)), meta.flags, meta.type, {0}};
		tells = MAX(tells, meta.version);
	}
	return kv_answer_result(conn, agent, request, reply, found ? 0 : -ENOENT, &wire, sizeof(wire), tells);
}

/*
 * Writing. The body is a key and a value, and the argument the key's length.
 */

/* Inlined, so that a SET, whose handler is called most, has nothing of a PUT. */
static inline __attribute__((always_inline)) int
set_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body, bool put)
{
	const uint32_t head = put ? sizeof(struct wire_put) : 0, key_len = request->arg;
	const uint32_t length = request->length - head;
	struct kv_thread *thread = agent->thread;
	const char *key = body + head;
	struct wire_record *reply;
	struct store_put terms;
	struct wire_put wire;
	bool item = false;
	uint64_t version;
	int rc;

	if (unlikely(key_len < 1 || key_len > MIN(WIRE_KEY_MAX, length)))
		return -EPROTO;
	if (put) {
		memcpy(&wire, body, sizeof(wire));
		if (!kv_put_valid(&wire))
			return -EPROTO;
		item = wire.flags & WIRE_PUT_ITEM;
		if (unlikely(item) && !kv_move_takes(agent, cluster_slot(key, key_len)))
			return kv_answer_status(conn, agent, request, WIRE_STALE, 0, 0);
		terms = kv_store_put(&wire, kv_now(thread));
		terms.owner = item ? 0 : agent->owner;
	} else if (unlikely(agent->owner)) {
		terms = (struct store_put){.expires = TIME_NEVER, .owner = agent->owner};
	}
	reply = conn_reserve(conn, put ? sizeof(version) : 0, NULL);
	if (unlikely(!reply))
		return -EAGAIN;
	if (unlikely(length > WIRE_EAGER_MAX)) {
		reply->arg = WIRE_EAGER_MAX;
		rc = -EMSGSIZE;
	} else {
		do {
			rc = store_set(thread->store, key, key_len, key + key_len, length - key_len,
				       put || unlikely(agent->owner) ? &terms : NULL, kv_now(thread), &version);
		} while (kv_step_again(conn, agent, rc));
		if (kv_write_waits(conn, agent, rc))
			return -EAGAIN;
		if (unlikely(rc == -EDQUOT))
			return kv_answer_over_quota(conn, agent, request);
	}
	if (put && rc == 0)
		memcpy(reply + 1, &version, sizeof(version));
	if (unlikely(item) && rc == 0)
		kv_move_wrote(agent, length);
	kv_answer(conn, agent, request, reply, likely(rc == 0) ? WIRE_OK : wire_status_of(rc),
		  put && rc == 0 ? sizeof(version) : 0, likely(rc == 0) ? version : kv_tells_all(agent, request));
	return 0;
}

int kv_serve_set(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		 struct wire_record *reply)
{
	(void)reply;
	return set_value(conn, agent, request, body, false);
}

int kv_serve_put(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		 struct wire_record *reply)
{
	(void)reply;
	return set_value(conn, agent, request, body, true);
}

int kv_serve_count(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		   struct wire_record *reply)
{
	const bool expires = request->op == WIRE_OP_COUNT; /* the key, if it is made */
	const uint32_t head = (expires ? 2 : 1) * sizeof(uint64_t);
	struct kv_thread *thread = agent->thread;
	const struct store_put put = {
		.expires = expires ? kv_expires_of(kv_number(body + sizeof(uint64_t)), kv_now(thread)) : TIME_NEVER,
		.owner = agent->owner,
	};
	struct {
		int64_t number;
		uint64_t version;
	} sum = {0};
	int rc;

	do {
		rc = store_count(thread->store, body + head, request->length - head, (int64_t)kv_number(body), &put,
				 kv_now(thread), &sum.number, &sum.version);
	} while (kv_step_again(conn, agent, rc));
	if (kv_write_waits(conn, agent, rc))
		return -EAGAIN;
	if (rc == -EINVAL) /* the key was checked: it is the value */
		rc = -EDOM;
	return kv_answer_result(conn, agent, request, reply, rc, &sum, sizeof(sum),
				rc == 0 ? sum.version : kv_tells_all(agent, request));
}

int kv_serve_expire(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		    struct wire_record *reply)
{
	struct kv_thread *thread = agent->thread;
	int rc = store_expire(thread->store, body + sizeof(uint64_t), request->length - sizeof(uint64_t), 0,
			      kv_expires_of(kv_number(body), kv_now(thread)), kv_now(thread));

	if (kv_write_waits(conn, agent, rc))
		return -EAGAIN;
	return kv_answer_result(conn, agent, request, reply, rc ? 0 : -ENOENT, NULL, 0, kv_tells_all(agent, request));
}

int kv_serve_delete(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		    struct wire_record *reply)
{
	const bool of_version = request->op == WIRE_OP_DELETE_IF;
	const uint32_t head = of_version ? sizeof(uint64_t) : 0;
	uint64_t version = of_version ? kv_number(body) : 0; /* 0: any, to the store */
	int rc;

	if (of_version && version == 0)
		return -EPROTO;
	/* Late, of a session that has ended: the slot may be this server's meanwhile, with newer values. */
	if (unlikely(agent->session) && !kv_move_takes(agent, cluster_slot(body + head, request->length - head)))
		return kv_answer_result(conn, agent, request, reply, -ESTALE, NULL, 0, 0);
	rc = store_delete(agent->thread->store, body + head, request->length - head, version, kv_now(agent->thread));
	if (kv_write_waits(conn, agent, rc))
		return -EAGAIN;
	if (rc >= 0)
		rc = rc == 1 ? 0 : -ENOENT;
	return kv_answer_result(conn, agent, request, reply, rc, NULL, 0, kv_tells_all(agent, request));
}
