/*
 * kv_more.c: versions, conditions, expiry, numbers and walks. Their requests are slots as in kv.c, whose `more` sends the
 * answers here; what an answer tells is kept in the slot until the caller is called.
 */
#include "client/kv.h"

#include <stdlib.h>

_Static_assert((int)KV_ALWAYS == WIRE_ALWAYS && (int)KV_IF_ABSENT == WIRE_IF_ABSENT &&
		       (int)KV_IF_PRESENT == WIRE_IF_PRESENT && (int)KV_IF_VERSION == WIRE_IF_VERSION,
	       "a condition has one number here and on the wire");

/* One request as the caller wants it: its body is head, key, value. */
struct ask {
	enum wire_op op;
	uint32_t arg;
	const void *head;
	size_t head_len;
	const void *key; /* NULL: of no key, or of all that begin with the value */
	size_t key_len;
	const void *value;
	size_t value_len;
};

/*
 * Answers
 */

/* The slot is free already, but nobody has taken it yet. */
static void call_result(void *arg, int status, const void *value, size_t value_len)
{
	const struct request *r = arg;
	struct kv_result result = {.status = status};

	if (status == 0) {
		result.value = value;
		result.value_len = value_len;
		result.meta = r->meta;
		result.number = r->number;
	}
	r->result(r->result_arg, &result);
}

static int get_record(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	size_t at = record->flags & WIRE_WRITTEN ? sizeof(uint64_t) : 0;
	const size_t version_len = sizeof(r->meta.version);

	if (record->status == WIRE_TOO_LARGE)
		return request_get_again(kv, r, record, body);
	if (record->status != WIRE_OK) {
		request_finish(kv, r, wire_status_errno(record->status), NULL, 0);
		return 0;
	}
	if (record->length < at + version_len)
		return -EPROTO;
	memcpy(&r->meta.version, body + at, version_len);
	if (at)
		return request_get_landed(kv, r, record, body);
	request_get_inline(kv, r, body + version_len, record->length - version_len);
	return 0;
}

static void take_version(struct request *r, const char *body)
{
	memcpy(&r->meta.version, body, sizeof(r->meta.version));
}

static void take_meta(struct request *r, const char *body)
{
	struct wire_meta meta;

	memcpy(&meta, body, sizeof(meta));
	r->meta = (struct kv_meta){meta.length, meta.version, meta.ttl};
}

static void take_sum(struct request *r, const char *body)
{
	memcpy(&r->number, body, sizeof(r->number));
	memcpy(&r->meta.version, body + sizeof(r->number), sizeof(r->meta.version));
}

static void take_nothing(struct request *r, const char *body)
{
	(void)r;
	(void)body;
}

/* What an answer has at least, and what of it is kept; `raw`: its body is handed on. */
static const struct {
	uint32_t length;
	void (*take)(struct request *r, const char *body);
	bool raw;
} answers[] = {
	[WIRE_OP_PUT] = {sizeof(uint64_t), take_version, false},
	[WIRE_OP_PUT_FROM] = {sizeof(uint64_t), take_version, false},
	[WIRE_OP_STAT] = {sizeof(struct wire_meta), take_meta, false},
	[WIRE_OP_EXPIRE] = {0, take_nothing, false},
	[WIRE_OP_DELETE_IF] = {0, take_nothing, false},
	[WIRE_OP_INCR] = {2 * sizeof(uint64_t), take_sum, false},
	[WIRE_OP_SCAN] = {sizeof(uint64_t), take_nothing, true},
	[WIRE_OP_FLUSH] = {2 * sizeof(uint64_t), take_nothing, true},
	[WIRE_OP_INFO] = {sizeof(struct wire_info), take_nothing, true},
};

int request_more(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	bool get = record->op == WIRE_OP_GET || record->op == WIRE_OP_GET_INTO;

	if (get && r->op == WIRE_OP_GET)
		return get_record(kv, r, record, body);
	if (record->op != r->op)
		return -EPROTO;
	if (record->status != WIRE_OK) {
		request_finish(kv, r, wire_status_errno(record->status), NULL, 0);
		return 0;
	}
	if (record->length < answers[r->op].length)
		return -EPROTO;
	answers[r->op].take(r, body);
	if (answers[r->op].raw)
		request_finish(kv, r, 0, body, record->length);
	else
		request_finish(kv, r, 0, NULL, 0);
	return 0;
}

/*
 * Requests
 */

static void result_init(struct request *r, enum wire_op op, kv_result_callback done, void *arg)
{
	r->done = call_result;
	r->arg = r;
	r->more = true;
	r->op = op;
	r->result = done;
	r->result_arg = arg;
	r->meta = (struct kv_meta){0};
	r->number = 0;
}

static int submit_small(struct kv *kv, const struct ask *ask, kv_result_callback done, void *arg,
			struct request **taken)
{
	uint32_t length = (uint32_t)(ask->head_len + ask->key_len + ask->value_len);
	struct wire_record *record = conn_reserve(kv->conn, length, NULL);
	char *at;

	if (!record)
		return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
	at = (char *)(record + 1);
	*taken = request_take(kv);
	result_init(*taken, ask->op, done, arg);
	record->id = (*taken)->id;
	record->op = (uint8_t)ask->op;
	record->flags = ask->op == WIRE_OP_GET ? WIRE_VERSIONED : 0;
	record->arg = ask->arg;
	if (ask->head_len)
		memcpy(at, ask->head, ask->head_len);
	if (ask->key_len)
		memcpy(at + ask->head_len, ask->key, ask->key_len);
	if (ask->value_len)
		memcpy(at + ask->head_len + ask->key_len, ask->value, ask->value_len);
	conn_commit(kv->conn, record, length);
	return 0;
}

static int submit_put_large(struct kv *kv, const struct ask *ask, kv_result_callback done, void *arg,
			    struct request **taken)
{
	int rc = request_set_large(kv, ask->head, ask->key, ask->key_len, ask->value, ask->value_len, call_result, NULL,
				   taken);

	if (rc == 0)
		result_init(*taken, WIRE_OP_PUT_FROM, done, arg);
	return rc;
}

static int submit_get_large(struct kv *kv, const struct ask *ask, uint64_t size, kv_result_callback done, void *arg,
			    struct request **taken)
{
	*taken = request_take_large(kv, call_result, NULL);
	result_init(*taken, WIRE_OP_GET, done, arg);
	return request_get_large(kv, *taken, ask->key, ask->key_len, size);
}

/* A request without a key goes by the rules of one with any. */
static int ask_check(const struct kv *kv, const struct ask *ask)
{
	if (!ask->key)
		return request_check(kv, "", 1, 0);
	if (!ask->value && ask->value_len) {
		log_error("kv", "the value is NULL but has a length");
		return -EINVAL;
	}
	return request_check(kv, ask->key, ask->key_len, ask->value_len);
}

static int submit_ask(struct kv *kv, const struct ask *ask, kv_result_callback done, void *arg, struct request **taken)
{
	int rc = ask_check(kv, ask);
	uint64_t size = 0;

	if (rc != 0)
		return rc;
	if (ask->op == WIRE_OP_PUT && ask->value_len && ask->key_len + ask->value_len > kv->eager_max)
		return submit_put_large(kv, ask, done, arg, taken);
	if (ask->op == WIRE_OP_GET)
		size = request_size(kv, ask->key, ask->key_len);
	if (size > kv->eager_max && size > WIRE_INLINE_MAX)
		return submit_get_large(kv, ask, size, done, arg, taken);
	return submit_small(kv, ask, done, arg, taken);
}

/* For the caller's submit functions: a NULL key is an error there. */
static int submit_key(struct kv *kv, const struct ask *ask, kv_result_callback done, void *arg)
{
	struct request *r;
	int rc;

	if (!ask->key || !done) {
		log_error("kv", "a submitted request needs a key and a callback");
		return -EINVAL;
	}
	kv_enter(kv);
	rc = submit_ask(kv, ask, done, arg, &r);
	kv_leave(kv);
	return rc;
}

struct waiting {
	struct blocking b;
	struct kv_result result;
};

static void result_done(void *arg, const struct kv_result *result)
{
	struct waiting *w = arg;

	w->result = *result;
	blocking_done(&w->b, result->status, result->value, result->value_len);
}

static int call_inside(struct kv *kv, const struct ask *ask, struct waiting *w)
{
	struct request *r;
	int rc;

	if (kv && engine_may_wait(kv->engine) != 0)
		return -EDEADLK;
	w->b.kv = kv;
	while ((rc = submit_ask(kv, ask, result_done, w, &r)) == -EAGAIN) {
		rc = engine_wait_change(kv->engine, kv->completed, kv->options.timeout);
		if (rc != 0)
			return rc;
	}
	rc = blocking_wait(kv, rc, ask->op, r, &w->b);
	return blocking_explained(rc, wire_op_name(ask->op), ask->key_len, ask->value_len);
}

static int call(struct kv *kv, const struct ask *ask, struct waiting *w)
{
	int rc;

	kv_enter(kv);
	rc = call_inside(kv, ask, w);
	kv_leave(kv);
	return rc;
}

static int call_key(struct kv *kv, const struct ask *ask, struct waiting *w)
{
	if (ask->key)
		return call(kv, ask, w);
	log_error("kv", "a request needs a handle and a key of at least one byte");
	return -EINVAL;
}

/* -ENOENT is an answer, not an error: 0. */
static int found(int rc)
{
	if (rc == -ENOENT)
		return 0;
	return rc == 0 ? 1 : rc;
}

/*
 * Put and get
 */

static int put_encode(const struct kv_put_options *options, struct wire_put *put)
{
	*put = (struct wire_put){0};
	if (!options)
		return 0;
	if ((unsigned)options->condition > KV_IF_VERSION) {
		log_error("kv", "%d is not a condition of a put", (int)options->condition);
		return -EINVAL;
	}
	put->condition = (uint32_t)options->condition;
	put->version = options->version;
	put->ttl = options->ttl_us;
	return 0;
}

int kv_submit_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  const struct kv_put_options *options, kv_result_callback done, void *arg)
{
	struct wire_put put;
	struct ask ask = {WIRE_OP_PUT, (uint32_t)key_len, &put, sizeof(put), key, key_len, value, value_len};
	int rc = put_encode(options, &put);

	return rc ? rc : submit_key(kv_handle, &ask, done, arg);
}

int kv_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	   const struct kv_put_options *options, uint64_t *version)
{
	struct wire_put put;
	struct ask ask = {WIRE_OP_PUT, (uint32_t)key_len, &put, sizeof(put), key, key_len, value, value_len};
	struct waiting w = {0};
	int rc = put_encode(options, &put);

	if (rc == 0)
		rc = call_key(kv_handle, &ask, &w);
	if (rc == 0 && version)
		*version = w.result.meta.version;
	return rc;
}

int kv_submit_get_version(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg)
{
	struct ask ask = {.op = WIRE_OP_GET, .key = key, .key_len = key_len};

	return submit_key(kv_handle, &ask, done, arg);
}

int kv_get_version(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len, uint64_t *version)
{
	struct ask ask = {.op = WIRE_OP_GET, .key = key, .key_len = key_len};
	struct waiting w = {.b.want_value = true};
	int rc;

	if (!value || !value_len || !version) {
		log_error("kv", "kv_get_version needs places for the value, its length and its version");
		return -EINVAL;
	}
	rc = call_key(kv_handle, &ask, &w);
	if (rc != 0)
		return rc;
	*value = w.b.value;
	*value_len = w.b.value_len;
	*version = w.result.meta.version;
	return 0;
}

/*
 * One key: stat, expire, delete, increment
 */

int kv_submit_stat(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg)
{
	struct ask ask = {.op = WIRE_OP_STAT, .key = key, .key_len = key_len};

	return submit_key(kv_handle, &ask, done, arg);
}

int kv_stat(void *kv_handle, const void *key, size_t key_len, struct kv_meta *meta)
{
	struct ask ask = {.op = WIRE_OP_STAT, .key = key, .key_len = key_len};
	struct waiting w = {0};
	int rc;

	if (!meta) {
		log_error("kv", "kv_stat needs a place for what it finds");
		return -EINVAL;
	}
	rc = call_key(kv_handle, &ask, &w);
	if (rc == 0)
		*meta = w.result.meta;
	return rc;
}

static struct ask ask_number(enum wire_op op, const void *key, size_t key_len, const void *number)
{
	return (struct ask){.op = op, .head = number, .head_len = sizeof(uint64_t), .key = key, .key_len = key_len};
}

int kv_submit_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, kv_result_callback done,
		     void *arg)
{
	struct ask ask = ask_number(WIRE_OP_EXPIRE, key, key_len, &ttl_us);

	return submit_key(kv_handle, &ask, done, arg);
}

int kv_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us)
{
	struct ask ask = ask_number(WIRE_OP_EXPIRE, key, key_len, &ttl_us);
	struct waiting w = {0};

	return found(call_key(kv_handle, &ask, &w));
}

static int version_check(uint64_t version)
{
	if (version)
		return 0;
	log_error("kv", "no key has the version 0; use kv_delete for any version");
	return -EINVAL;
}

int kv_submit_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version, kv_result_callback done,
			void *arg)
{
	struct ask ask = ask_number(WIRE_OP_DELETE_IF, key, key_len, &version);
	int rc = version_check(version);

	return rc ? rc : submit_key(kv_handle, &ask, done, arg);
}

int kv_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version)
{
	struct ask ask = ask_number(WIRE_OP_DELETE_IF, key, key_len, &version);
	struct waiting w = {0};
	int rc = version_check(version);

	return rc ? rc : found(call_key(kv_handle, &ask, &w));
}

int kv_submit_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, kv_result_callback done, void *arg)
{
	struct ask ask = ask_number(WIRE_OP_INCR, key, key_len, &delta);

	return submit_key(kv_handle, &ask, done, arg);
}

int kv_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, int64_t *number, uint64_t *version)
{
	struct ask ask = ask_number(WIRE_OP_INCR, key, key_len, &delta);
	struct waiting w = {0};
	int rc = call_key(kv_handle, &ask, &w);

	if (rc != 0)
		return rc;
	if (number)
		*number = w.result.number;
	if (version)
		*version = w.result.meta.version;
	return 0;
}

/*
 * All keys
 */

/* The next key of a page; false where a length lies. */
static bool page_next(const char **at, const char *end, struct wire_entry *entry, const char **key)
{
	size_t left = (size_t)(end - *at);

	if (left < sizeof(*entry))
		return false;
	memcpy(entry, *at, sizeof(*entry));
	*key = *at + sizeof(*entry);
	left -= sizeof(*entry);
	if (entry->key_len > WIRE_KEY_MAX || WIRE_PAD(entry->key_len) > left)
		return false;
	*at = *key + WIRE_PAD(entry->key_len);
	return true;
}

/* Counts the keys; what the callback returned when not 0. */
static int page_walk(const char *at, const char *end, kv_scan_callback each, void *arg, int *count)
{
	int rc = 0;

	for (*count = 0; at < end && rc == 0; ++*count) {
		struct wire_entry entry;
		struct kv_meta meta;
		const char *key;

		if (!page_next(&at, end, &entry, &key)) {
			log_error("kv", "the server sent a list of keys that cannot be read");
			return -EPROTO;
		}
		meta = (struct kv_meta){entry.meta.length, entry.meta.version, entry.meta.ttl};
		rc = each(arg, key, entry.key_len, &meta);
	}
	return rc;
}

static int scan_page(struct kv *kv, uint64_t *cursor, const struct ask *ask, kv_scan_callback each, void *arg,
		     int *count)
{
	struct waiting w = {.b.want_value = true};
	uint64_t next;
	int rc = call(kv, ask, &w);

	if (rc != 0)
		return rc;
	memcpy(&next, w.b.value, sizeof(next));
	rc = page_walk(w.b.value + sizeof(next), w.b.value + w.b.value_len, each, arg, count);
	value_release(w.b.value);
	if (rc == 0)
		*cursor = next;
	return rc;
}

static int scan_check(const void *prefix, size_t prefix_len, kv_scan_callback each)
{
	if (!each || (!prefix && prefix_len)) {
		log_error("kv", "a walk needs a callback, and a prefix where that has a length");
		return -EINVAL;
	}
	if (prefix_len > WIRE_KEY_MAX) {
		log_error("kv", "the prefix has %zu bytes; a key has at most %u", prefix_len, WIRE_KEY_MAX);
		return -ENAMETOOLONG;
	}
	return 0;
}

int kv_scan(void *kv_handle, uint64_t *cursor, const void *prefix, size_t prefix_len, unsigned limit,
	    kv_scan_callback each, void *arg)
{
	struct ask ask = {.op = WIRE_OP_SCAN,
			  .arg = limit,
			  .head_len = sizeof(*cursor),
			  .value = prefix,
			  .value_len = prefix_len};
	uint64_t from;
	int rc = scan_check(prefix, prefix_len, each), count;

	if (rc == 0 && !cursor) {
		log_error("kv", "kv_scan needs a cursor");
		rc = -EINVAL;
	}
	if (rc != 0)
		return rc;
	from = *cursor;
	ask.head = &from;
	rc = scan_page(kv_handle, cursor, &ask, each, arg, &count);
	return rc ? rc : count;
}

int kv_each(void *kv_handle, const void *prefix, size_t prefix_len, kv_scan_callback each, void *arg)
{
	uint64_t cursor = 0;
	struct ask ask = {.op = WIRE_OP_SCAN,
			  .head = &cursor,
			  .head_len = sizeof(cursor),
			  .value = prefix,
			  .value_len = prefix_len};
	int rc = scan_check(prefix, prefix_len, each), count;

	if (rc != 0)
		return rc;
	do {
		rc = scan_page(kv_handle, &cursor, &ask, each, arg, &count);
	} while (rc == 0 && cursor);
	return rc;
}

int kv_delete_all(void *kv_handle, uint64_t *deleted)
{
	struct {
		uint64_t cursor, deleted;
	} flushed = {0};
	struct ask ask = {.op = WIRE_OP_FLUSH, .head = &flushed.cursor, .head_len = sizeof(flushed.cursor)};
	uint64_t sum = 0;
	int rc;

	do {
		struct waiting w = {.b.want_value = true};

		rc = call(kv_handle, &ask, &w);
		if (rc != 0)
			return rc;
		memcpy(&flushed, w.b.value, sizeof(flushed));
		value_release(w.b.value);
		sum += flushed.deleted;
	} while (flushed.cursor);
	if (deleted)
		*deleted = sum;
	return 0;
}

int kv_info(void *kv_handle, struct kv_info *info)
{
	struct ask ask = {.op = WIRE_OP_INFO};
	struct waiting w = {.b.want_value = true};
	struct wire_info wire;
	int rc;

	if (!info) {
		log_error("kv", "kv_info needs a place for what the server tells");
		return -EINVAL;
	}
	rc = call(kv_handle, &ask, &w);
	if (rc != 0)
		return rc;
	memcpy(&wire, w.b.value, sizeof(wire));
	value_release(w.b.value);
	*info = (struct kv_info){wire.key_max,     wire.eager_max, wire.value_max, wire.keys,      wire.bytes_used,
				 wire.bytes_total, wire.hits,      wire.misses,    wire.evictions, wire.expired};
	return 0;
}
