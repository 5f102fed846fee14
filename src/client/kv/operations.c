/*
 * operations.c: the operations of the service, a row each; how a request gets into the message that leaves next, and
 * what becomes of its answer. Behind them the calls about one key: those that submit, in which the operation is a
 * constant, so that of the table only that operation's way is left; and those that wait.
 */
#include "client/kv/kv.h"

_Static_assert((int)KV_ALWAYS == WIRE_ALWAYS && (int)KV_IF_ABSENT == WIRE_IF_ABSENT &&
		       (int)KV_IF_PRESENT == WIRE_IF_PRESENT && (int)KV_IF_VERSION == WIRE_IF_VERSION,
	       "a condition has one number here and on the wire");

#define KV_INLINE static inline __attribute__((always_inline)) /* the way of a small request */

/*
 * Answers, all of WIRE_OK and as long as the row says at least
 */

static int decode_get(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	size_t length = record->length, at = record->flags & WIRE_WRITTEN ? sizeof(uint64_t) : 0;

	if (unlikely(r->result)) { /* the version: before a value, behind the length of one that was written */
		if (length < at + sizeof(r->meta.version))
			return -EPROTO;
		memcpy(&r->meta.version, body + at, sizeof(r->meta.version));
		length -= sizeof(r->meta.version);
	}
	if (unlikely(at))
		return request_get_landed(kv, r, body, length);
	if (unlikely(r->result))
		body += sizeof(r->meta.version);
	if (likely(!r->into)) {
		kv_size_correct(kv, r, length);
		kv_request_finish(kv, r, 0, body, length);
	} else if (length > r->into_size) {
		kv_request_finish(kv, r, -EMSGSIZE, NULL, length);
	} else {
		memcpy(r->into, body, length);
		kv_request_finish(kv, r, 0, r->into, length);
	}
	return 0;
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
	struct wire_meta meta;

	memcpy(&meta, body, sizeof(meta));
	r->meta = (struct kv_meta){meta.length, meta.version, meta.ttl};
	return decode_nothing(kv, r, record, body);
}

static int decode_sum(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	memcpy(&r->number, body, sizeof(r->number));
	return decode_version(kv, r, record, body + sizeof(r->number));
}

/* A part: of the whole value it came from, and the part, in the message or in the caller's memory. */
static int decode_part(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	struct wire_whole whole;
	size_t at = record->flags & WIRE_WRITTEN ? sizeof(uint64_t) : 0, length = record->length - sizeof(whole);

	if (length < at)
		return -EPROTO;
	memcpy(&whole, body + at, sizeof(whole));
	r->meta = (struct kv_meta){.length = whole.length, .version = whole.version};
	if (at)
		return request_get_landed(kv, r, body, length);
	body += sizeof(whole);
	if (!r->into) {
		kv_request_finish(kv, r, 0, length ? body : NULL, length);
	} else if (length > r->into_size) {
		kv_request_finish(kv, r, -EMSGSIZE, NULL, length);
	} else if (r->pieces) {
		kv_pieces_scatter(r->into, SIZE_MAX, body, length);
		kv_request_finish(kv, r, 0, NULL, length);
	} else {
		kv_request_finish(kv, r, 0, memcpy(r->into, body, length), length);
	}
	return 0;
}

static int decode_whole(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	struct wire_whole whole;

	memcpy(&whole, body, sizeof(whole));
	r->meta = (struct kv_meta){.length = whole.length, .version = whole.version};
	return decode_nothing(kv, r, record, body);
}

/* The call that waits for it reads the body. */
static int decode_body(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	kv_request_finish(kv, r, 0, body, record->length);
	return 0;
}

#define NUMBER sizeof(uint64_t)

/* Where the length of a value comes from, which says whether it goes with the message: there is no value, it is the
 * part of the message (the argument is then the key's length), it is the caller's (likewise), the key had one of that
 * length last, or it never does. */
enum size { SIZE_NONE, SIZE_KEY, SIZE_SENT, SIZE_TOLD, SIZE_INTO };

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
	[WIRE_OP_SCAN] = {SIZE_NONE, NUMBER, NUMBER, NULL, decode_body},
	[WIRE_OP_FLUSH] = {SIZE_NONE, NUMBER, 2 * NUMBER, NULL, decode_body},
	[WIRE_OP_INFO] = {SIZE_NONE, 0, sizeof(struct wire_info), NULL, decode_body},
	[WIRE_OP_FETCH] = {SIZE_INTO, sizeof(struct kv_fetch_head), sizeof(struct wire_whole), request_large,
			   decode_part},
	[WIRE_OP_EDIT] = {SIZE_KEY, NUMBER, sizeof(struct wire_whole), NULL, decode_whole},
	[WIRE_OP_COUNT] = {SIZE_NONE, 2 * NUMBER, 2 * NUMBER, NULL, decode_sum},
	[WIRE_OP_PUT_PIECES] = {SIZE_SENT, sizeof(struct wire_put), NUMBER, request_large, decode_version},
	[WIRE_OP_FETCH_PIECES] = {SIZE_INTO, sizeof(struct kv_fetch_head), sizeof(struct wire_whole), request_large,
				  decode_part},
};
_Static_assert(ARRAY_SIZE(operations) == WIRE_OP_KV_END, "the last operation of the wire's list has a row");

int kv_answered(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct kv *kv = conn_context(conn);
	struct request *r;

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
	kv->disk_full = record->status == WIRE_DISK_FULL;
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
KV_INLINE int encode_small(struct kv *kv, const struct ask *ask, struct request **taken)
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
	*taken = r;
	return 0;
}

/* Refuses what can be refused of a request before it is built. */
KV_INLINE int check_key(struct kv *kv, size_t key_len, size_t value_len)
{
	if (unlikely(key_len < 1)) {
		log_error("kv", "a request needs a key of at least one byte");
		return -EINVAL;
	}
	if (unlikely(key_len > WIRE_KEY_MAX)) {
		log_error("kv", "the key has %zu bytes; a key has at most %u", key_len, WIRE_KEY_MAX);
		return -ENAMETOOLONG;
	}
	if (unlikely(value_len > kv->value_max)) {
		log_error("kv",
			  "the value has %zu bytes; by this transport the server takes at most %llu, see "
			  "kv.value_max and kv.memory in its rdmad.conf, and its log; if that says that its memory is "
			  "not registered for RDMA, tcp:// takes longer ones",
			  value_len, (unsigned long long)kv->value_max);
		return -EMSGSIZE;
	}
	if (unlikely(!kv->taking))
		return kv_not_taking(kv);
	return likely(kv->free != KV_SLOTS) ? 0 : kv_slots_grow(kv);
}

/* A request without a key goes by the rules of one with any. */
KV_INLINE int ask_check(struct kv *kv, const struct ask *ask)
{
	if (unlikely(!ask->value && ask->value_len)) {
		log_error("kv", "the value is NULL but has a length");
		return -EINVAL;
	}
	return ask->key ? check_key(kv, ask->key_len, ask->value_len) : check_key(kv, 1, 0);
}

/* The length of a value that is not to be in the message; 0: it is, or there is none. */
KV_INLINE uint64_t large_size(const struct kv *kv, const struct ask *ask)
{
	const struct wire_ways can = kv_ways(kv, ask->key_len);
	uint64_t size = 0;

	switch (operations[ask->op].size) {
	case SIZE_NONE:
	case SIZE_KEY:
		break;
	case SIZE_SENT:
		size = unlikely(wire_way(ask->op, ask->value_len, &can) != WIRE_WAY_MESSAGE) ? ask->value_len : 0;
		break;
	case SIZE_TOLD:
		size = kv_size_recall(kv, ask->key, ask->key_len);
		size = unlikely(kv_get_names(kv, size)) ? size : 0;
		break;
	case SIZE_INTO:
		size = ask->into_size;
		break;
	}
	return size;
}

/* Member by member: so the other, of which nobody has the address, stays in registers. */
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

KV_INLINE int ask_submit(struct kv *kv, const struct ask *ask, struct request **taken)
{
	int rc = ask_check(kv, ask);
	uint64_t size;

	must(engine_entered(kv->engine));
	must(ask->head_len == operations[ask->op].head);
	if (unlikely(rc != 0))
		return rc;
	size = large_size(kv, ask);
	if (unlikely(size)) {
		struct ask large = ask_copy(ask);

		return operations[ask->op].large(kv, &large, size, taken);
	}
	return encode_small(kv, ask, taken);
}

int request_submit(struct kv *kv, const struct ask *ask, struct request **taken)
{
	return ask_submit(kv, ask, taken);
}

/* A submission that was refused. Not inlined: so the request of the common way need not be in memory. */
static __attribute__((cold, noinline)) int request_refused(const struct kv *kv, int rc, enum wire_op op)
{
	return kv_end(kv, rc, wire_op_name(op));
}

/* Called from outside: a NULL key is an error. */
KV_INLINE int submit_key(struct kv *kv, const struct ask *ask)
{
	struct request *r;
	int rc = kv_begin(kv);

	if (unlikely(rc != 0))
		return rc;
	if (unlikely(!ask->key)) {
		log_error("kv", "a request needs a key of at least one byte");
		return -EINVAL;
	}
	kv_enter(kv);
	rc = ask_submit(kv, ask, &r);
	kv_leave(kv);
	return likely(rc == 0) ? 0 : request_refused(kv, rc, ask->op);
}

int kv_submit_set(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  kv_callback done, void *arg)
{
	return submit_key(kv_handle, &(struct ask){.op = WIRE_OP_SET,
						   .key = key,
						   .key_len = key_len,
						   .value = value,
						   .value_len = value_len,
						   .done = done,
						   .arg = arg});
}

int kv_submit_get(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_key(kv_handle,
			  &(struct ask){.op = WIRE_OP_GET, .key = key, .key_len = key_len, .done = done, .arg = arg});
}

int kv_submit_delete(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_key(
		kv_handle,
		&(struct ask){.op = WIRE_OP_DELETE, .key = key, .key_len = key_len, .done = done, .arg = arg});
}

int kv_submit_exists(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_key(
		kv_handle,
		&(struct ask){.op = WIRE_OP_EXISTS, .key = key, .key_len = key_len, .done = done, .arg = arg});
}

int kv_submit_get_into(void *kv_handle, const void *key, size_t key_len, void *buffer, size_t size, kv_callback done,
		       void *arg)
{
	int rc = kv_begin(kv_handle);

	if (rc == 0 && (!buffer || !size)) {
		log_error("kv", "kv_submit_get_into needs a buffer");
		rc = -EINVAL;
	}
	return rc ? rc
		  : submit_key(kv_handle, &(struct ask){.op = WIRE_OP_GET_INTO,
							.key = key,
							.key_len = key_len,
							.into = buffer,
							.into_size = size,
							.done = done,
							.arg = arg});
}

/*
 * Those whose callback gets all that the answer tells
 */

int kv_submit_result(struct kv *kv, const struct ask *ask)
{
	struct request *r;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	if (!ask->key || !ask->result) {
		log_error("kv", "a submitted request needs a key and a callback");
		return -EINVAL;
	}
	kv_enter(kv);
	rc = request_submit(kv, ask, &r);
	kv_leave(kv);
	return rc ? request_refused(kv, rc, ask->op) : 0;
}

/* The head of a put, and the request's flags; options may be NULL. -EINVAL: there is no such condition. */
static int put_encode(const struct kv_put_options *options, struct wire_put *put, uint8_t *flags)
{
	unsigned condition = options ? (unsigned)options->condition & ~(unsigned)KV_DURABLE : KV_ALWAYS;

	*put = (struct wire_put){0};
	*flags = 0;
	if (!options)
		return 0;
	if (condition > KV_IF_VERSION) {
		log_error("kv", "%d is not a condition of a put", (int)options->condition);
		return -EINVAL;
	}
	if (condition == KV_IF_VERSION && !options->version) {
		log_error("kv", "no key has the version 0; a put of a key that is missing has KV_IF_ABSENT");
		return -EINVAL;
	}
	*flags = (unsigned)options->condition & KV_DURABLE ? WIRE_DURABLE : 0;
	put->condition = condition;
	put->version = options->version;
	put->flags = options->ttl_us == KV_TTL_KEEP ? WIRE_KEEP_TTL : 0;
	put->ttl = put->flags ? 0 : options->ttl_us;
	return 0;
}

/* -EINVAL: no key has the version 0. */
static int version_check(const struct kv *kv, uint64_t version)
{
	int rc = kv_begin(kv);

	if (rc != 0 || version)
		return rc;
	log_error("kv", "no key has the version 0; use kv_delete for any version");
	return -EINVAL;
}

int kv_submit_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  const struct kv_put_options *options, kv_result_callback done, void *arg)
{
	struct wire_put put;
	uint8_t flags;
	int rc = kv_begin(kv_handle);

	if (rc == 0)
		rc = put_encode(options, &put, &flags);
	return rc ? rc
		  : kv_submit_result(kv_handle, &(struct ask){.op = WIRE_OP_PUT,
							      .flags = flags,
							      .head = &put,
							      .head_len = sizeof(put),
							      .key = key,
							      .key_len = key_len,
							      .value = value,
							      .value_len = value_len,
							      .result = done,
							      .arg = arg});
}

static int submit_number(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *number,
			 kv_result_callback done, void *arg)
{
	return kv_submit_result(kv, &(struct ask){.op = op,
						  .head = number,
						  .head_len = NUMBER,
						  .key = key,
						  .key_len = key_len,
						  .result = done,
						  .arg = arg});
}

int kv_submit_get_version(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg)
{
	return kv_submit_result(
		kv_handle,
		&(struct ask){.op = WIRE_OP_GET, .key = key, .key_len = key_len, .result = done, .arg = arg});
}

int kv_submit_stat(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg)
{
	return kv_submit_result(
		kv_handle,
		&(struct ask){.op = WIRE_OP_STAT, .key = key, .key_len = key_len, .result = done, .arg = arg});
}

int kv_submit_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, kv_result_callback done,
		     void *arg)
{
	return submit_number(kv_handle, WIRE_OP_EXPIRE, key, key_len, &ttl_us, done, arg);
}

int kv_submit_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version, kv_result_callback done,
			void *arg)
{
	int rc = version_check(kv_handle, version);

	return rc != 0 ? rc : submit_number(kv_handle, WIRE_OP_DELETE_IF, key, key_len, &version, done, arg);
}

int kv_submit_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, kv_result_callback done, void *arg)
{
	return submit_number(kv_handle, WIRE_OP_INCR, key, key_len, &delta, done, arg);
}

/*
 * The same calls, which wait
 */

static struct ask ask_of(enum wire_op op, const void *key, size_t key_len)
{
	return (struct ask){.op = op, .key = key, .key_len = key_len};
}

static struct ask ask_number(enum wire_op op, const void *key, size_t key_len, const void *number)
{
	return (struct ask){.op = op, .head = number, .head_len = NUMBER, .key = key, .key_len = key_len};
}

int kv_set_bytes(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len)
{
	struct ask ask = ask_of(WIRE_OP_SET, key, key_len);
	struct kv_call call = {0};

	ask.value = value;
	ask.value_len = value_len;
	return kv_call_key(kv_handle, &ask, &call);
}

int kv_get_bytes(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len)
{
	struct ask ask = ask_of(WIRE_OP_GET, key, key_len);
	struct kv_call call = {.want_value = true};
	int rc = kv_begin(kv_handle);

	if (rc == 0 && (!value || !value_len)) {
		log_error("kv", "kv_get_bytes needs places for the value and its length");
		rc = -EINVAL;
	}
	if (value)
		*value = NULL; /* so that a caller that ignores rc gives nothing wild back */
	if (rc == 0)
		rc = kv_call_key(kv_handle, &ask, &call);
	if (rc != 0)
		return rc;
	*value = call.value;
	*value_len = call.value_len;
	return 0;
}

int kv_delete(void *kv_handle, const void *key, size_t key_len)
{
	struct ask ask = ask_of(WIRE_OP_DELETE, key, key_len);

	return kv_call_found(kv_handle, &ask);
}

int kv_exists(void *kv_handle, const void *key, size_t key_len)
{
	struct ask ask = ask_of(WIRE_OP_EXISTS, key, key_len);

	return kv_call_found(kv_handle, &ask);
}

int kv_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	   const struct kv_put_options *options, uint64_t *version)
{
	struct wire_put put;
	struct ask ask = ask_of(WIRE_OP_PUT, key, key_len);
	struct kv_call call = {.want_result = true};
	int rc = kv_begin(kv_handle);

	if (rc == 0)
		rc = put_encode(options, &put, &ask.flags);
	ask.head = &put;
	ask.head_len = sizeof(put);
	ask.value = value;
	ask.value_len = value_len;
	if (rc == 0)
		rc = kv_call_key(kv_handle, &ask, &call);
	if (rc == 0 && version)
		*version = call.result.meta.version;
	return rc;
}

int kv_get_version(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len, uint64_t *version)
{
	struct ask ask = ask_of(WIRE_OP_GET, key, key_len);
	struct kv_call call = {.want_value = true, .want_result = true};
	int rc = kv_begin(kv_handle);

	if (rc == 0 && (!value || !value_len || !version)) {
		log_error("kv", "kv_get_version needs places for the value, its length and its version");
		rc = -EINVAL;
	}
	if (value)
		*value = NULL;
	if (rc == 0)
		rc = kv_call_key(kv_handle, &ask, &call);
	if (rc != 0)
		return rc;
	*value = call.value;
	*value_len = call.value_len;
	*version = call.result.meta.version;
	return 0;
}

static int putv_ask(const struct iovec *pieces, size_t count, const struct kv_put_options *options,
		    struct wire_put *put, struct ask *ask)
{
	int rc = kv_pieces_size(pieces, count, &ask->value_len);

	ask->op = WIRE_OP_PUT;
	ask->head = put;
	ask->head_len = sizeof(*put);
	ask->value = pieces;
	ask->pieces = count;
	return rc != 0 ? rc : put_encode(options, put, &ask->flags);
}

int kv_putv(void *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
	    const struct kv_put_options *options, uint64_t *version)
{
	struct wire_put put;
	struct ask ask = {.key = key, .key_len = key_len};
	struct kv_call call = {.want_result = true};
	int rc = kv_begin(kv_handle);

	if (rc == 0)
		rc = putv_ask(pieces, count, options, &put, &ask);
	if (rc == 0)
		rc = kv_call_key(kv_handle, &ask, &call);
	if (rc == 0 && version)
		*version = call.result.meta.version;
	return rc;
}

int kv_submit_putv(void *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
		   const struct kv_put_options *options, kv_result_callback done, void *arg)
{
	struct wire_put put;
	struct ask ask = {.key = key, .key_len = key_len, .result = done, .arg = arg};
	int rc = kv_begin(kv_handle);

	if (rc == 0)
		rc = putv_ask(pieces, count, options, &put, &ask);
	return rc != 0 ? rc : kv_submit_result(kv_handle, &ask);
}

int kv_stat(void *kv_handle, const void *key, size_t key_len, struct kv_meta *meta)
{
	struct ask ask = ask_of(WIRE_OP_STAT, key, key_len);
	struct kv_call call = {.want_result = true};
	int rc = kv_begin(kv_handle);

	if (rc == 0 && (!meta)) {
		log_error("kv", "kv_stat needs a place for what it finds");
		rc = -EINVAL;
	}
	if (rc == 0)
		rc = kv_call_key(kv_handle, &ask, &call);
	if (rc == 0)
		*meta = call.result.meta;
	return rc;
}

int kv_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us)
{
	struct ask ask = ask_number(WIRE_OP_EXPIRE, key, key_len, &ttl_us);

	return kv_call_found(kv_handle, &ask);
}

int kv_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version)
{
	struct ask ask = ask_number(WIRE_OP_DELETE_IF, key, key_len, &version);
	int rc = version_check(kv_handle, version);

	return rc != 0 ? rc : kv_call_found(kv_handle, &ask);
}

int kv_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, int64_t *number, uint64_t *version)
{
	struct ask ask = ask_number(WIRE_OP_INCR, key, key_len, &delta);
	struct kv_call call = {.want_result = true};
	int rc = kv_call_key(kv_handle, &ask, &call);

	if (rc != 0)
		return rc;
	if (number)
		*number = call.result.number;
	if (version)
		*version = call.result.meta.version;
	return 0;
}
