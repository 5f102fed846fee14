/*
 * operations.c: the operations of the service, a row each; how a request gets into the message that leaves next, and
 * what becomes of its answer. Behind them the calls that submit the shortest requests: there the operation is a
 * constant, so that of the table only that operation's way is left. All other calls are in calls.c and its like.
 */
#include "client/kv/kv.h"

#define KV_INLINE static inline __attribute__((always_inline)) /* the way of a small request */

/*
 * Answers, all of WIRE_OK and as long as the row says at least
 */

/* A value, in the message or in the caller's memory. Before a part of one stands what the whole is; before another, if
 * that is asked for, its version; and before either the length of what was written. */
KV_INLINE int decode_value(struct kv *kv, struct request *r, const struct wire_record *record, const char *body,
			   bool part)
{
	size_t at = record->flags & WIRE_WRITTEN ? sizeof(uint64_t) : 0;
	size_t head = part ? sizeof(struct wire_whole) : r->result ? sizeof(r->meta.version) : 0;
	size_t length = record->length - head;
	struct wire_whole whole;

	if (unlikely(record->length < at + head))
		return -EPROTO;
	if (part) {
		memcpy(&whole, body + at, sizeof(whole));
		r->meta = (struct kv_meta){.length = whole.length, .version = whole.version};
	} else if (unlikely(head)) {
		memcpy(&r->meta.version, body + at, sizeof(r->meta.version));
	}
	if (unlikely(at))
		return request_get_landed(kv, r, body, length);
	body += head;
	if (likely(!r->into)) {
		kv_size_correct(kv, r, length);
		kv_request_finish(kv, r, 0, part && !length ? NULL : body, length);
	} else if (unlikely(r->direct) && length) {
		return -EPROTO; /* it was to be written, and cannot be copied */
	} else if (length > r->into_size) {
		kv_request_finish(kv, r, -EMSGSIZE, NULL, length);
	} else if (part && r->pieces) {
		kv_pieces_scatter(r->into, SIZE_MAX, body, length);
		kv_request_finish(kv, r, 0, NULL, length);
	} else {
		kv_request_finish(kv, r, 0, memcpy(r->into, body, length), length);
	}
	return 0;
}

static int decode_get(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	return decode_value(kv, r, record, body, false);
}

static int decode_part(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	return decode_value(kv, r, record, body, true);
}

static int decode_nothing(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	(void)body;
	if (unlikely(record->flags & WIRE_WRITTEN))
		return -EPROTO; /* no memory was lent for that */
	kv_request_finish(kv, r, 0, NULL, 0);
	return 0;
}

static int decode_version(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	memcpy(&r->meta.version, body, sizeof(r->meta.version));
	return decode_nothing(kv, r, record, body);
}

static int decode_meta(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	struct wire_stat stat = {0};

	memcpy(&stat, body, MIN(record->length, sizeof(stat)));
	r->meta = (struct kv_meta){stat.meta.length, stat.meta.version, stat.meta.ttl};
	r->flags = stat.flags;
	r->type = stat.type;
	return decode_nothing(kv, r, record, body);
}

static int decode_sum(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	memcpy(&r->number, body, sizeof(r->number));
	return decode_version(kv, r, record, body + sizeof(r->number));
}

static int decode_whole(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	struct wire_whole whole;

	memcpy(&whole, body, sizeof(whole));
	r->meta = (struct kv_meta){.length = whole.length, .version = whole.version};
	return decode_nothing(kv, r, record, body);
}

static int decode_number(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	memcpy(&r->number, body, sizeof(r->number));
	return decode_nothing(kv, r, record, body);
}

/* The call that waits for it reads the body. */
static int decode_body(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	kv_request_finish(kv, r, 0, body, record->length);
	return 0;
}

#define NUMBER sizeof(uint64_t)

/* Where the length of a value comes from, which is asked for its way: there is no value, nor a key; there is none; it
 * is what goes in the message in any case (the argument is then the key's length); it is the caller's (likewise); the
 * key had one of that length last; or only the answer has it. */
enum size { SIZE_KEYLESS, SIZE_NONE, SIZE_KEY, SIZE_SENT, SIZE_TOLD, SIZE_INTO };

static const struct {
	enum size size;
	uint32_t head;   /* bytes of the body before the key */
	uint32_t answer; /* bytes that an answer of WIRE_OK has at least */
	int (*large)(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken);
	int (*decode)(struct kv *kv, struct request *r, const struct wire_record *record, const char *body);
} operations[] = {
	[WIRE_OP_GET] = {SIZE_TOLD, 0, 0, request_get_large, decode_get},
	[WIRE_OP_GET_INTO] = {SIZE_INTO, 0, 0, request_large, decode_get},
	[WIRE_OP_SET] = {SIZE_SENT, 0, 0, request_large, decode_nothing},
	[WIRE_OP_SET_FROM] = {SIZE_SENT, 0, 0, request_large, decode_nothing},
	[WIRE_OP_DELETE] = {SIZE_NONE, 0, 0, NULL, decode_nothing},
	[WIRE_OP_EXISTS] = {SIZE_NONE, 0, 0, NULL, decode_nothing},
	[WIRE_OP_PUT] = {SIZE_SENT, sizeof(struct wire_put), NUMBER, request_large, decode_version},
	[WIRE_OP_PUT_FROM] = {SIZE_SENT, sizeof(struct wire_put), NUMBER, request_large, decode_version},
	[WIRE_OP_STAT] = {SIZE_NONE, 0, sizeof(struct wire_meta), NULL, decode_meta},
	[WIRE_OP_EXPIRE] = {SIZE_NONE, NUMBER, 0, NULL, decode_nothing},
	[WIRE_OP_DELETE_IF] = {SIZE_NONE, NUMBER, 0, NULL, decode_nothing},
	[WIRE_OP_INCR] = {SIZE_NONE, NUMBER, 2 * NUMBER, NULL, decode_sum},
	[WIRE_OP_SCAN] = {SIZE_KEYLESS, NUMBER, NUMBER, NULL, decode_body},
	[WIRE_OP_FLUSH] = {SIZE_KEYLESS, NUMBER, 2 * NUMBER, NULL, decode_body},
	[WIRE_OP_INFO] = {SIZE_KEYLESS, 0, sizeof(struct wire_info), NULL, decode_body},
	[WIRE_OP_FETCH] = {SIZE_INTO, sizeof(struct kv_fetch_head), sizeof(struct wire_whole), request_large,
			   decode_part},
	[WIRE_OP_EDIT] = {SIZE_KEY, NUMBER, sizeof(struct wire_whole), NULL, decode_whole},
	[WIRE_OP_COUNT] = {SIZE_NONE, 2 * NUMBER, 2 * NUMBER, NULL, decode_sum},
	[WIRE_OP_PUT_PIECES] = {SIZE_SENT, sizeof(struct wire_put), NUMBER, request_large, decode_version},
	[WIRE_OP_FETCH_PIECES] = {SIZE_INTO, sizeof(struct kv_fetch_head), sizeof(struct wire_whole), request_large,
				  decode_part},
	[WIRE_OP_LEASE] = {SIZE_NONE, NUMBER, NUMBER, NULL, decode_number},
	[WIRE_OP_WATCH] = {SIZE_KEYLESS, 0, 0, NULL, NULL}, /* watch.c */
	[WIRE_OP_TABLE] = {SIZE_KEYLESS, 2 * NUMBER, sizeof(struct wire_table), NULL, decode_body},
	[WIRE_OP_MOVE] = {SIZE_KEYLESS, 0, 0, NULL, decode_nothing},
};
_Static_assert(ARRAY_SIZE(operations) == WIRE_OP_KV_END, "the last operation of the wire's list has a row");

int kv_answered(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct kv *kv = conn_context(conn);
	struct request *r;

	if (unlikely(record->op == WIRE_OP_WATCH))
		return kv_watch_answered(kv, record, body);
	if (unlikely(record->id % KV_SLOTS >= kv->slots))
		return -EPROTO;
	r = kv_slot(kv, record->id);
	if (unlikely(r->id != record->id || !r->done || !(record->flags & WIRE_REPLY) || r->op != record->op))
		return -EPROTO;
	if (likely(record->status == WIRE_OK)) {
		if (unlikely(record->length < operations[r->op].answer))
			return -EPROTO;
		return operations[r->op].decode(kv, r, record, body);
	}
	if (record->status == WIRE_TOO_LARGE && operations[r->op].size >= SIZE_TOLD)
		return request_get_again(kv, r, record, body);
	if (record->status == WIRE_MOVED && kv->whole) {
		kv->took_moved = WIRE_TOOK_MOVED | (uint16_t)(kv->took_moved + 1u);
		if (kv_route_moved(kv, r, record, body))
			return 0;
	}
	if (record->op == WIRE_OP_MOVE && record->length && wire_printable(body, record->length)) {
		kv_request_finish(kv, r, kv_status_errno(record->status), body, record->length); /* why */
		return 0;
	}
	kv->disk_full = record->status == WIRE_DISK_FULL;
	if (record->status == WIRE_OVER_QUOTA && record->length >= sizeof(kv->quota))
		memcpy(&kv->quota, body, sizeof(kv->quota));
	kv_request_finish(kv, r, kv_status_errno(record->status), NULL, 0);
	return 0;
}

/*
 * Submitting
 */

KV_INLINE uint8_t get_flags(const struct kv *kv, const struct ask *ask)
{
	return (uint8_t)(WIRE_AGAIN | (ask->result ? WIRE_VERSIONED : 0) | (kv->push_max ? WIRE_TAKES_PUSH : 0));
}

/* Head, key and value go into the message. */
KV_INLINE int encode_small(struct kv *kv, const struct kv_nodes *nodes, const struct ask *ask, struct request **taken)
{
	uint32_t length = (uint32_t)(ask->head_len + ask->key_len + ask->value_len);
	struct wire_record *record = conn_reserve(kv->conn, length, NULL);
	const enum size size = operations[ask->op].size;
	struct request *r;
	char *at;

	if (unlikely(!record))
		return kv_no_room(kv);
	r = request_take(kv, ask);
	record->id = r->id;
	record->op = (uint8_t)ask->op;
	record->status = kv->took_moved;
	record->flags = ask->op == WIRE_OP_GET ? get_flags(kv, ask) : ask->op == WIRE_OP_PUT ? ask->flags : 0;
	record->arg = size == SIZE_SENT || size == SIZE_KEY ? (uint32_t)ask->key_len : ask->limit;
	at = (char *)(record + 1);
	if (ask->head_len)
		memcpy(at, ask->head, ask->head_len);
	if (ask->key_len)
		memcpy(at + ask->head_len, ask->key, ask->key_len);
	at += ask->head_len + ask->key_len;
	if (ask->value_len && unlikely(ask->pieces))
		kv_pieces_gather(ask->value, ask->pieces, SIZE_MAX, at);
	else if (ask->value_len)
		memcpy(at, ask->value, ask->value_len);
	conn_commit(kv->conn, record, length);
	r->message = conn_message_begun(kv->conn);
	if (nodes)
		kv_route_keep(kv, nodes, record, r);
	*taken = r;
	return 0;
}

void kv_ask_read(struct ask *ask, const struct wire_record *record)
{
	const enum size size = operations[record->op].size;
	const uint32_t head = operations[record->op].head, rest = record->length - head;
	const uint32_t key = size == SIZE_SENT || size == SIZE_KEY ? record->arg : rest;
	const char *body = (const char *)(record + 1);

	*ask = (struct ask){
		.op = record->op,
		.flags = record->op == WIRE_OP_PUT ? record->flags : 0,
		.head = body,
		.head_len = head,
		.key = body + head,
		.key_len = key,
		.value = body + head + key,
		.value_len = rest - key,
	};
}

/* Refuses what can be refused of a request before it is built. */
KV_INLINE int check_key(struct kv *kv, size_t key_len, size_t value_len)
{
	if (unlikely(key_len < 1))
		return log_fail(-EINVAL, "kv", "a request needs a key of at least one byte");
	if (unlikely(key_len > WIRE_KEY_MAX))
		return log_fail(-ENAMETOOLONG, "kv", "the key has %zu bytes; a key has at most %u", key_len,
				WIRE_KEY_MAX);
	if (unlikely(value_len > kv->value_max))
		return log_fail(
			-EMSGSIZE, "kv",
			"the value has %zu bytes; by this transport the server takes at most %llu, see "
			"kv.value_max and kv.memory in its rdmad.conf, and its log; if that says that its memory is "
			"not registered for RDMA, tcp:// takes longer ones",
			value_len, (unsigned long long)kv->value_max);
	if (unlikely(!kv->taking))
		return kv_not_taking(kv);
	return likely(kv->free != KV_SLOTS) ? 0 : kv_slots_grow(kv);
}

static __attribute__((cold, noinline)) int not_there(const struct kv *kv, const char *what)
{
	return log_fail(-EOPNOTSUPP, "kv", "the server at %s has no %s: it is an older one", kv->server, what);
}

/* A request without a key goes by the rules of one with any. */
KV_INLINE int ask_check(struct kv *kv, const struct ask *ask)
{
	bool keyless = operations[ask->op].size == SIZE_KEYLESS;
	int rc;

	if (unlikely(!ask->value && ask->value_len))
		return log_fail(-EINVAL, "kv", "the value is NULL but has a length");
	if (keyless)
		rc = check_key(kv, 1, 0);
	else
		rc = check_key(kv, likely(ask->key) ? ask->key_len : 0, ask->value_len);
	if (unlikely(ask->op == WIRE_OP_LEASE && rc == 0 && !kv->leases))
		return not_there(kv, "leases");
	if (unlikely(ask->op == WIRE_OP_MOVE && rc == 0 && !kv->moves))
		return not_there(kv, "moves of slots");
	return unlikely(ask->op == WIRE_OP_TABLE && rc == 0 && !kv->tables) ? not_there(kv, "table") : rc;
}

/* The length of a value that is not to be in the message; 0: it is, or there is none. */
KV_INLINE uint64_t large_size(const struct kv *kv, const struct ask *ask)
{
	const struct wire_ways can = kv_ways(kv, ask->key_len);
	uint64_t size = 0;

	switch (operations[ask->op].size) {
	case SIZE_KEYLESS:
	case SIZE_NONE:
	case SIZE_KEY:
		break;
	case SIZE_SENT:
		size = unlikely(wire_way(ask->op, ask->value_len, &can) != WIRE_WAY_MESSAGE) ? ask->value_len : 0;
		break;
	case SIZE_TOLD:
		if (unlikely(kv->size))
			size = kv_size_recall(kv, ask->key, ask->key_len);
		if (unlikely(size) && !kv_get_names(kv, size))
			size = 0;
		break;
	case SIZE_INTO:
		size = ask->into_size;
		break;
	}
	return size;
}

/* Copy by members, so that the compiler keeps the original in registers. */
KV_INLINE struct ask ask_copy(const struct ask *ask)
{
	return (struct ask){
		.op = ask->op,
		.flags = ask->flags,
		.limit = ask->limit,
		.head = ask->head,
		.head_len = ask->head_len,
		.key = ask->key,
		.key_len = ask->key_len,
		.value = ask->value,
		.value_len = ask->value_len,
		.into = ask->into,
		.into_size = ask->into_size,
		.pieces = ask->pieces,
		.done = ask->done,
		.result = ask->result,
		.arg = ask->arg,
	};
}

/* kv_direct() of a copy, for the same reason. */
KV_INLINE int ask_direct(const struct kv *kv, const struct ask *ask)
{
	const struct ask asked = ask_copy(ask);

	return kv_direct(kv, &asked);
}

/* Where a request goes: to the handle itself or, of a cluster, to that of the key's node. NULL: nowhere, as *rc
 * says. */
KV_INLINE struct kv *ask_node(struct kv *kv, const struct ask *ask, int *rc)
{
	struct ask aside;
	struct kv *node;
	unsigned slot;

	*rc = 0;
	if (likely(!kv->nodes))
		return kv;
	if (device_memory())
		*rc = kv_readable(ask->key, ask->key_len, "the key");
	if (unlikely(*rc != 0))
		return NULL;
	slot = cluster_slot(ask->key, likely(ask->key) ? ask->key_len : 0);
	node = kv_node_of(kv, slot);
	if (likely(node) && likely(!kv->nodes->waiters))
		return node;
	aside = ask_copy(ask);
	return kv_route_aside(kv, &aside, slot, rc);
}

/* At one server. `nodes`: of its cluster, where the request may have to go to another; else NULL. */
KV_INLINE int ask_submit_at(struct kv *kv, const struct kv_nodes *nodes, const struct ask *ask, struct request **taken)
{
	int rc = ask_check(kv, ask), direct = 0;
	uint64_t size;

	if (unlikely(rc != 0))
		return rc;
	if (device_memory())
		rc = direct = ask_direct(kv, ask);
	if (unlikely(rc < 0))
		return rc;
	size = unlikely(direct) ? MAX(ask->value_len, ask->into_size) : large_size(kv, ask);
	if (unlikely(size)) {
		struct ask large = ask_copy(ask);

		large.direct = direct;
		rc = operations[ask->op].large(kv, &large, size, taken);
		if (nodes && rc == 0)
			kv_route_keep_large(kv, &large, *taken);
		return rc;
	}
	return encode_small(kv, nodes, ask, taken);
}

KV_INLINE int ask_submit(struct kv *kv, const struct ask *ask, struct request **taken)
{
	struct ask failed;
	struct kv *node;
	int rc;

	must(engine_entered(kv->engine));
	must(ask->head_len == operations[ask->op].head);
	node = ask_node(kv, ask, &rc);
	if (unlikely(!node))
		return rc;
	rc = ask_submit_at(node, kv->nodes, ask, taken);
	if (likely(rc == 0) || !kv->nodes)
		return rc;
	failed = ask_copy(ask);
	return kv_route_failed(kv, node, &failed, rc);
}

int request_submit(struct kv *kv, const struct ask *ask, struct request **taken)
{
	return ask_submit(kv, ask, taken);
}

int kv_goes_large(struct kv *kv, const struct ask *ask)
{
	int rc = ask_check(kv, ask);

	if (rc == 0 && device_memory())
		rc = kv_direct(kv, ask);
	return rc ? rc : large_size(kv, ask) != 0;
}

/* A submission that was refused. Not inlined: so the request of the common way need not be in memory. */
static __attribute__((cold, noinline)) int request_refused(const struct kv *kv, int rc, enum wire_op op)
{
	return kv_end(kv, rc, wire_op_name(op));
}

/* Called from outside. `begun`: what kv_begin() returned. */
KV_INLINE int submit_ask(struct kv *kv, int begun, const struct ask *ask)
{
	struct request *r;
	int rc;

	if (unlikely(begun != 0))
		return begun;
	kv_enter(kv);
	rc = ask_submit(kv, ask, &r);
	kv_leave(kv);
	return likely(rc == 0) ? 0 : request_refused(kv, rc, ask->op);
}

int kv_submit_result(struct kv *kv, int begun, struct ask *ask, kv_result_callback done, void *arg)
{
	if (begun == 0 && (!ask->key || !done))
		return log_fail(-EINVAL, "kv", "a submitted request needs a key and a callback");
	ask->result = done;
	ask->arg = arg;
	return submit_ask(kv, begun, ask);
}

int kv_submit_set(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  kv_callback done, void *arg)
{
	return submit_ask(kv_handle, kv_begin(kv_handle),
			  &(struct ask){.op = WIRE_OP_SET,
					.key = key,
					.key_len = key_len,
					.value = value,
					.value_len = value_len,
					.done = done,
					.arg = arg});
}

int kv_submit_get(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_ask(kv_handle, kv_begin(kv_handle),
			  &(struct ask){.op = WIRE_OP_GET, .key = key, .key_len = key_len, .done = done, .arg = arg});
}

int kv_submit_delete(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_ask(
		kv_handle, kv_begin(kv_handle),
		&(struct ask){.op = WIRE_OP_DELETE, .key = key, .key_len = key_len, .done = done, .arg = arg});
}

int kv_submit_exists(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_ask(
		kv_handle, kv_begin(kv_handle),
		&(struct ask){.op = WIRE_OP_EXISTS, .key = key, .key_len = key_len, .done = done, .arg = arg});
}

int kv_submit_get_into(void *kv_handle, const void *key, size_t key_len, void *buffer, size_t size, kv_callback done,
		       void *arg)
{
	int rc = kv_begin_given(kv_handle, buffer && size, "kv_submit_get_into needs a buffer");

	return submit_ask(kv_handle, rc,
			  &(struct ask){.op = WIRE_OP_GET_INTO,
					.key = key,
					.key_len = key_len,
					.into = buffer,
					.into_size = size,
					.done = done,
					.arg = arg});
}
