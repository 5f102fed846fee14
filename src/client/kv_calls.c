/*
 * kv_calls.c: the calls that submit a request about one key, send it and wait for its answer.
 */
#include "client/kv.h"

/*
 * Submit, send, wait
 */
static void call_done(void *arg, int status, const void *value, size_t value_len)
{
	struct kv_call *call = arg;

	blocking_done(&call->b, status);
	if (status != 0 || !call->want_value)
		return;
	if (call->kv->lent && value == landing_data(call->kv->lent)) { /* it stays where it landed */
		call->value = landing_data(call->kv->lent);
		call->value[value_len] = '\0';
		call->kv->lent = NULL;
	} else {
		call->value = value_copy(value, value_len);
		if (!call->value) {
			call->b.status = -ENOMEM;
			return;
		}
	}
	call->value_len = value_len;
}

static void call_result(void *arg, const struct kv_result *result)
{
	struct kv_call *call = arg;

	call->result = *result;
	call_done(call, result->status, result->value, result->value_len);
}

static int call_submit(struct blocking *b)
{
	struct kv_call *call = container_of(b, struct kv_call, b);

	return request_submit(call->kv, call->ask, &call->request);
}

static int call_inside(struct kv *kv, struct kv_call *call)
{
	int rc;

	call->b.handle = kv;
	call->b.submit = call_submit;
	call->b.await = kv_await;
	call->kv = kv;
	rc = engine_block(kv->engine, &call->b, kv->options.timeout);
	if (rc == -ENOTCONN && !call->b.taken)
		log_error("kv", "the connection has ended (%s); open another",
			  strerror(kv->error ? -kv->error : ENOTCONN));
	if (rc == -ETIMEDOUT && !call->b.done)
		log_error("kv", "no answer to %s after %llu ms", wire_op_name(call->ask->op),
			  (unsigned long long)(kv->options.timeout / TIME_MS));
	if (call->b.taken && !call->b.done)
		request_orphan(kv, call->request);
	return rc;
}

static int call_outside(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	int rc;

	if (!kv) {
		log_error("kv", "a request needs a handle and a key of at least one byte");
		return -EINVAL;
	}
	if (!ask->result)
		ask->done = call_done;
	ask->arg = call;
	call->ask = ask;
	engine_enter(kv->engine);
	rc = call_inside(kv, call);
	engine_leave(kv->engine);
	return rc;
}

int kv_status_answered(int status)
{
	return wire_status_errno(wire_status_of(status)) == status;
}

const char *kv_status_text(int status)
{
	return kv_status_answered(status) ? wire_status_text(wire_status_of(status)) : strerror(-status);
}

int kv_explain(int status, const char *what, size_t key_len, size_t value_len)
{
	if (unlikely(status < 0 && status != -EMSGSIZE && kv_status_answered(status)))
		log_error("kv", "%s with a key of %zu and a value of %zu bytes: %s", what, key_len, value_len,
			  kv_status_text(status));
	return status;
}

int kv_call(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	return kv_explain(call_outside(kv, ask, call), wire_op_name(ask->op), ask->key_len, ask->value_len);
}

static int call_key(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	return kv_call(ask->key ? kv : NULL, ask, call);
}

/* -ENOENT is an answer, not an error: 0. */
static int call_found(struct kv *kv, struct ask *ask)
{
	struct kv_call call = {0};
	int rc = call_outside(ask->key ? kv : NULL, ask, &call);

	if (rc == -ENOENT)
		return 0;
	return rc == 0 ? 1 : kv_explain(rc, wire_op_name(ask->op), ask->key_len, ask->value_len);
}

static struct ask ask_of(enum wire_op op, const void *key, size_t key_len)
{
	return (struct ask){.op = op, .key = key, .key_len = key_len};
}

static struct ask ask_number(enum wire_op op, const void *key, size_t key_len, const void *number)
{
	return (struct ask){.op = op, .head = number, .head_len = sizeof(uint64_t), .key = key, .key_len = key_len};
}

/*
 * Bytes
 */
int kv_set_bytes(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len)
{
	struct ask ask = ask_of(WIRE_OP_SET, key, key_len);
	struct kv_call call = {0};

	ask.value = value;
	ask.value_len = value_len;
	return call_key(kv_handle, &ask, &call);
}

int kv_get_bytes(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len)
{
	struct ask ask = ask_of(WIRE_OP_GET, key, key_len);
	struct kv_call call = {.want_value = true};
	int rc;

	if (!value || !value_len) {
		log_error("kv", "kv_get_bytes needs places for the value and its length");
		return -EINVAL;
	}
	rc = call_key(kv_handle, &ask, &call);
	if (rc != 0)
		return rc;
	*value = call.value;
	*value_len = call.value_len;
	return 0;
}

int kv_delete(void *kv_handle, const void *key, size_t key_len)
{
	struct ask ask = ask_of(WIRE_OP_DELETE, key, key_len);

	return call_found(kv_handle, &ask);
}

int kv_exists(void *kv_handle, const void *key, size_t key_len)
{
	struct ask ask = ask_of(WIRE_OP_EXISTS, key, key_len);

	return call_found(kv_handle, &ask);
}

/*
 * Strings
 */
int kv_set(void *kv_handle, const char *key, const char *value)
{
	if (!key || !value) {
		log_error("kv", "kv_set needs a key and a value");
		return -EINVAL;
	}
	return kv_set_bytes(kv_handle, key, strlen(key), value, strlen(value));
}

int kv_get(void *kv_handle, const char *key, char **value)
{
	void *bytes;
	size_t len;
	int rc;

	if (!key || !value) {
		log_error("kv", "kv_get needs a key and a place for the value");
		return -EINVAL;
	}
	rc = kv_get_bytes(kv_handle, key, strlen(key), &bytes, &len);
	if (rc == -ENOENT) {
		bytes = value_copy("", 0);
		rc = bytes ? 0 : -ENOMEM;
	}
	if (rc == 0)
		*value = bytes;
	return rc;
}

void kv_release(char *value)
{
	value_release(value);
}

/*
 * Versions, conditions, expiry, numbers
 */
int kv_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	   const struct kv_put_options *options, uint64_t *version)
{
	struct wire_put put;
	struct ask ask = ask_of(WIRE_OP_PUT, key, key_len);
	struct kv_call call = {0};
	int rc = kv_put_encode(options, &put);

	ask.head = &put;
	ask.head_len = sizeof(put);
	ask.value = value;
	ask.value_len = value_len;
	ask.result = call_result;
	if (rc == 0)
		rc = call_key(kv_handle, &ask, &call);
	if (rc == 0 && version)
		*version = call.result.meta.version;
	return rc;
}

int kv_get_version(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len, uint64_t *version)
{
	struct ask ask = ask_of(WIRE_OP_GET, key, key_len);
	struct kv_call call = {.want_value = true};
	int rc;

	if (!value || !value_len || !version) {
		log_error("kv", "kv_get_version needs places for the value, its length and its version");
		return -EINVAL;
	}
	ask.result = call_result;
	rc = call_key(kv_handle, &ask, &call);
	if (rc != 0)
		return rc;
	*value = call.value;
	*value_len = call.value_len;
	*version = call.result.meta.version;
	return 0;
}

int kv_stat(void *kv_handle, const void *key, size_t key_len, struct kv_meta *meta)
{
	struct ask ask = ask_of(WIRE_OP_STAT, key, key_len);
	struct kv_call call = {0};
	int rc;

	if (!meta) {
		log_error("kv", "kv_stat needs a place for what it finds");
		return -EINVAL;
	}
	ask.result = call_result;
	rc = call_key(kv_handle, &ask, &call);
	if (rc == 0)
		*meta = call.result.meta;
	return rc;
}

int kv_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us)
{
	struct ask ask = ask_number(WIRE_OP_EXPIRE, key, key_len, &ttl_us);

	return call_found(kv_handle, &ask);
}

int kv_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version)
{
	struct ask ask = ask_number(WIRE_OP_DELETE_IF, key, key_len, &version);
	int rc = kv_version_check(version);

	return rc ? rc : call_found(kv_handle, &ask);
}

int kv_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, int64_t *number, uint64_t *version)
{
	struct ask ask = ask_number(WIRE_OP_INCR, key, key_len, &delta);
	struct kv_call call = {0};
	int rc;

	ask.result = call_result;
	rc = call_key(kv_handle, &ask, &call);
	if (rc != 0)
		return rc;
	if (number)
		*number = call.result.number;
	if (version)
		*version = call.result.meta.version;
	return 0;
}
