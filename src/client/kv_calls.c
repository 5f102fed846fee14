/*
 * kv_calls.c: a request that is waited for: submitted, sent, and its end explained. The calls that wait, but for those of
 * strings, are beside the operations.
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
	if (call->want_result)
		ask->result = call_result;
	else
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

int kv_call_key(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	return kv_call(ask->key ? kv : NULL, ask, call);
}

int kv_call_found(struct kv *kv, struct ask *ask)
{
	struct kv_call call = {0};
	int rc = call_outside(ask->key ? kv : NULL, ask, &call);

	if (rc == -ENOENT)
		return 0;
	return rc == 0 ? 1 : kv_explain(rc, wire_op_name(ask->op), ask->key_len, ask->value_len);
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
