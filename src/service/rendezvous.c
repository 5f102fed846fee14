/*
 * rendezvous.c: large values. The server moves the bytes: it reads a SET's value from the caller's memory into its
 * final place in the arena, and writes a GET's value from the arena into the caller's landing buffer. So nothing of
 * the store is ever remotely accessible, and no byte is copied by a processor. A value is pinned while the
 * wire touches it.
 */
#include "service/kv.h"

#include <stdlib.h>

struct kv_transfer {
	struct conn_transfer wire;
	struct list node; /* in agent->sets or agent->finished, or free in the thread */
	struct kv_agent *agent;
	struct store_ref ref;
	struct wire_record request; /* of a SET: to be answered when the bytes are here */
	struct wire_put put;        /* zeros: always, for ever */
	uint64_t key_hash;
	uint64_t version;
	enum wire_status status;
};

/* Transfers are kept by the thread for the next request. */
static struct kv_transfer *transfer_take(struct kv_agent *agent)
{
	struct kv_thread *w = agent->thread;
	struct kv_transfer *t = w->free_transfers;

	if (t)
		w->free_transfers = *(struct kv_transfer **)t;
	else
		t = malloc(sizeof(*t));
	if (!t)
		return NULL;
	*t = (struct kv_transfer){.agent = agent};
	list_init(&t->node);
	return t;
}

static void transfer_give(struct kv_transfer *t)
{
	struct kv_thread *w = t->agent->thread;

	*(struct kv_transfer **)t = w->free_transfers;
	w->free_transfers = t;
}

void kv_thread_clear(struct service_part *part)
{
	struct kv_thread *thread = container_of(part, struct kv_thread, part);

	while (thread->free_transfers) {
		struct kv_transfer *t = thread->free_transfers;

		thread->free_transfers = *(struct kv_transfer **)t;
		free(t);
	}
}

bool kv_key_busy(const struct kv_agent *agent, const void *key, size_t key_len)
{
	uint64_t hash;

	if (likely(list_empty(&agent->sets)))
		return false;
	hash = hash_bytes(key, key_len);
	for (const struct list *pos = agent->sets.next; pos != &agent->sets; pos = pos->next)
		if (container_of(pos, const struct kv_transfer, node)->key_hash == hash)
			return true;
	return false;
}

int kv_answer_too_large(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *key,
			uint32_t key_len, uint64_t value_len)
{
	struct wire_record *reply = conn_reserve(conn, (uint32_t)sizeof(value_len) + key_len, NULL);

	if (!reply)
		return -EAGAIN;
	memcpy(reply + 1, &value_len, sizeof(value_len));
	memcpy((char *)(reply + 1) + sizeof(value_len), key, key_len);
	kv_answer(conn, agent->thread, request, reply, WIRE_TOO_LARGE, (uint32_t)sizeof(value_len) + key_len);
	return 0;
}

/* The value is in the caller's memory, or never will be: it may go. */
static void get_done(struct conn_transfer *wire, enum fabric_status status)
{
	struct kv_transfer *t = container_of(wire, struct kv_transfer, wire);

	(void)status; /* a failed write ends the connection, and the answer behind it never arrives */
	store_unpin(t->agent->thread->store, &t->ref);
	transfer_give(t);
}

/* Post the write, then its answer behind it: one round trip in all. */
static int write_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		       struct wire_record *reply, const struct wire_remote *to, struct store_ref *ref)
{
	struct kv_transfer *t = transfer_take(agent);
	uint32_t head = request->flags & WIRE_VERSIONED;
	uint64_t len = ref->len;
	struct fabric_sge from = {ref->addr, len, agent->arena};
	int rc;

	if (!t)
		return -ENOMEM;
	t->wire.done = get_done;
	t->ref = *ref;
	rc = conn_write(conn, &t->wire, &from, to->addr, to->rkey);
	if (rc != 0) {
		transfer_give(t);
		return rc;
	}
	agent->thread->part.count[KV_COUNT_GETS]++;
	agent->thread->part.count[KV_COUNT_WRITES]++;
	memcpy(reply + 1, &len, sizeof(len));
	memcpy((char *)(reply + 1) + sizeof(len), &ref->version, head);
	kv_answer(conn, agent->thread, request, reply, WIRE_OK, (uint32_t)sizeof(len) + head);
	reply->flags |= WIRE_WRITTEN;
	return 0;
}

/* Cheaper in the answer than by a write of its own, though it may take a message of its own. */
static int inline_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
			const struct store_ref *ref)
{
	uint32_t head = request->flags & WIRE_VERSIONED;
	struct wire_record *reply = conn_reserve(conn, (uint32_t)ref->len + head, NULL);

	if (!reply)
		return -EAGAIN;
	memcpy(reply + 1, &ref->version, head);
	memcpy((char *)(reply + 1) + head, ref->addr, ref->len);
	agent->thread->part.count[KV_COUNT_GETS]++;
	kv_answer(conn, agent->thread, request, reply, WIRE_OK, (uint32_t)ref->len + head);
	return 0;
}

/* What the client says of its memory was read once, into *remote. */
static bool remote_valid(const struct wire_remote *remote)
{
	return remote->length && remote->addr + remote->length >= remote->addr;
}

int kv_get_into(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct store *store = agent->thread->store;
	const char *key = body + sizeof(struct wire_remote);
	uint32_t key_len = request->length - (uint32_t)sizeof(struct wire_remote);
	struct wire_record *reply;
	struct wire_remote to;
	struct store_ref ref;
	int rc;

	memcpy(&to, body, sizeof(to));
	if (!remote_valid(&to))
		return -EPROTO;
	reply = conn_reserve(conn, 2 * (uint32_t)sizeof(uint64_t), NULL); /* length, version */
	if (!reply)
		return -EAGAIN;
	if (store_get(store, key, key_len, kv_now(agent->thread), &ref) == 0) {
		agent->thread->part.count[KV_COUNT_GETS]++;
		kv_answer(conn, agent->thread, request, reply, WIRE_NOT_FOUND, 0);
		return 0;
	}
	if (ref.len <= WIRE_INLINE_MAX) {
		rc = inline_value(conn, agent, request, &ref);
	} else if (ref.len > to.length || !agent->arena) {
		rc = kv_answer_too_large(conn, agent, request, key, key_len, ref.len);
	} else {
		rc = write_value(conn, agent, request, reply, &to, &ref);
		if (rc == 0)
			return 0; /* pinned until it is written */
	}
	store_unpin(store, &ref);
	return rc;
}

/* Answer a SET whose bytes came; false when there is no room. */
static bool set_answer(struct conn *conn, struct kv_transfer *t)
{
	struct wire_record *reply = conn_reserve(conn, (uint32_t)sizeof(t->version), NULL);
	bool versioned = t->request.op == WIRE_OP_PUT_FROM && t->status == WIRE_OK;

	if (!reply)
		return false;
	if (versioned)
		memcpy(reply + 1, &t->version, sizeof(t->version));
	kv_answer(conn, t->agent->thread, &t->request, reply, t->status, versioned ? sizeof(t->version) : 0);
	return true;
}

/* The value is in its place, unless the connection failed: then the old one stays. */
static void set_done(struct conn_transfer *wire, enum fabric_status status)
{
	struct kv_transfer *t = container_of(wire, struct kv_transfer, wire);
	struct kv_thread *thread = t->agent->thread;
	struct store *store = thread->store;
	struct store_put put;
	int rc;

	list_del(&t->node);
	if (status != FABRIC_OK) {
		store_abandon(store, &t->ref);
		transfer_give(t);
		return;
	}
	put = kv_store_put(&t->put, kv_now(thread));
	rc = store_publish(store, &t->ref, &put, kv_now(thread), &t->version);
	t->status = rc == 0 ? WIRE_OK : wire_status_of(rc);
	thread->part.count[KV_COUNT_SETS]++;
	if (list_empty(&t->agent->finished) && set_answer(wire->conn, t))
		transfer_give(t);
	else
		list_add_tail(&t->agent->finished, &t->node);
}

/* A request of a large SET, taken apart. */
struct large_set {
	struct wire_remote from;
	struct wire_put put;
	const char *key;
	uint32_t key_len;
};

static int read_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		      const struct large_set *set, struct store_ref *ref)
{
	struct kv_transfer *t = transfer_take(agent);
	struct fabric_sge to = {ref->addr, ref->len, agent->arena};
	int rc;

	if (!t)
		return -ENOMEM;
	t->wire.done = set_done;
	t->ref = *ref;
	t->request = *request;
	t->put = set->put;
	t->key_hash = hash_bytes(set->key, set->key_len);
	rc = conn_read(conn, &t->wire, &to, set->from.addr, set->from.rkey);
	if (rc != 0) {
		transfer_give(t);
		return rc;
	}
	agent->thread->part.count[KV_COUNT_READS]++;
	list_add_tail(&agent->sets, &t->node);
	return 0;
}

/* A SET that is refused before a byte is moved. */
static int refuse_set(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		      enum wire_status status)
{
	struct wire_record *reply = conn_reserve(conn, 0, NULL);

	if (!reply)
		return -EAGAIN;
	if (status == WIRE_TOO_LARGE)
		reply->arg = (uint32_t)MIN(agent->value_max, (uint64_t)UINT32_MAX);
	agent->thread->part.count[KV_COUNT_SETS]++;
	kv_answer(conn, agent->thread, request, reply, status, 0);
	return 0;
}

/* A condition that does not hold now spares the bytes; one that does is looked at again when they are here. */
static int condition_check(struct store *store, const struct large_set *set, uint64_t now)
{
	struct store_meta meta;
	int found;

	if (set->put.condition == WIRE_ALWAYS)
		return 0;
	found = store_stat(store, set->key, set->key_len, now, &meta);
	if (set->put.condition == WIRE_IF_ABSENT)
		return found ? -EEXIST : 0;
	if (!found)
		return -ENOENT;
	return set->put.condition == WIRE_IF_VERSION && meta.version != set->put.version ? -ESTALE : 0;
}

static int set_begin(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     const struct large_set *set)
{
	struct store *store = agent->thread->store;
	struct store_ref ref;
	int rc;

	if (!remote_valid(&set->from) || set->put.condition >= WIRE_CONDITIONS)
		return -EPROTO;
	if (!agent->arena)
		return refuse_set(conn, agent, request, WIRE_UNSUPPORTED);
	if (set->from.length > agent->value_max)
		return refuse_set(conn, agent, request, WIRE_TOO_LARGE);
	rc = condition_check(store, set, kv_now(agent->thread));
	if (rc != 0)
		return refuse_set(conn, agent, request, wire_status_of(rc));
	if (!conn_transfer_room(conn)) {
		conn_wait_writable(conn);
		return -EAGAIN;
	}
	rc = store_reserve(store, set->key, set->key_len, set->from.length, kv_now(agent->thread), &ref);
	if (rc != 0)
		return refuse_set(conn, agent, request, wire_status_of(rc));
	rc = read_value(conn, agent, request, set, &ref);
	if (rc != 0)
		store_abandon(store, &ref);
	return rc;
}

int kv_set_from(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct large_set set = {
		.key = body + sizeof(set.from),
		.key_len = request->length - (uint32_t)sizeof(set.from),
	};

	memcpy(&set.from, body, sizeof(set.from));
	return set_begin(conn, agent, request, &set);
}

int kv_put_from(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	const size_t head = sizeof(struct wire_remote) + sizeof(struct wire_put);
	struct large_set set = {.key = body + head, .key_len = request->length - (uint32_t)head};

	memcpy(&set.from, body, sizeof(set.from));
	memcpy(&set.put, body + sizeof(set.from), sizeof(set.put));
	return set_begin(conn, agent, request, &set);
}

void kv_rendezvous_writable(struct conn *conn)
{
	struct kv_agent *agent = conn_context(conn);

	while (!list_empty(&agent->finished)) {
		struct kv_transfer *t = list_first(&agent->finished, struct kv_transfer, node);

		if (!set_answer(conn, t))
			return;
		list_del(&t->node);
		transfer_give(t);
	}
}

void kv_rendezvous_close(struct kv_agent *agent)
{
	while (!list_empty(&agent->finished)) {
		struct kv_transfer *t = list_first(&agent->finished, struct kv_transfer, node);

		list_del(&t->node);
		transfer_give(t);
	}
}
