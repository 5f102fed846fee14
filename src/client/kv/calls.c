/*
 * calls.c: a request that is waited for: submitted, sent, and its end explained. The calls that wait, but for those of
 * strings, are beside the operations.
 */
#include "client/kv/kv.h"

/*
 * Submit, send, wait
 */
static void call_done(void *arg, int status, const void *value, size_t value_len)
{
	struct kv_call *call = arg;

	blocking_done(&call->b, status);
	call->value_len = value_len;
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

static int call_run(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	int rc;

	if (call->want_result)
		ask->result = call_result;
	else
		ask->done = call_done;
	ask->arg = call;
	call->ask = ask;
	call->kv = kv;
	kv_enter(kv);
	/* What was not carried out because the connection ended is asked again on the next, if there is to be one. */
	do {
		call->b = (struct blocking){.handle = kv, .submit = call_submit, .await = kv_await};
		kv_timeout_begin(kv);
		rc = engine_block(kv->engine, &call->b, TIME_NEVER);
		if (call->b.taken && !call->b.done)
			request_orphan(kv, call->request);
	} while ((rc == -ESHUTDOWN || rc == -ENOTCONN) && call->b.done && !kv->closed && kv->keep);
	kv_leave(kv);
	return rc;
}

int kv_call(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	int rc = kv_begin(kv);

	return rc != 0 ? rc : kv_explain(kv, call_run(kv, ask, call), ask);
}

static int check_call_key(const struct kv *kv, const struct ask *ask)
{
	int rc = kv_begin(kv);

	if (rc == 0 && !ask->key) {
		log_error("kv", "a request needs a key of at least one byte");
		rc = -EINVAL;
	}
	return rc;
}

int kv_call_key(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	int rc = check_call_key(kv, ask);

	return rc != 0 ? rc : kv_call(kv, ask, call);
}

int kv_call_found(struct kv *kv, struct ask *ask)
{
	struct kv_call call = {0};
	int rc = check_call_key(kv, ask);

	if (rc == 0)
		rc = call_run(kv, ask, &call);
	else
		return rc;
	if (rc == 0 || rc == -ENOENT) {
		log_clear_last();
		return rc == 0;
	}
	return kv_explain(kv, rc, ask);
}

/*
 * Strings
 */
int kv_set(void *kv_handle, const char *key, const char *value)
{
	int rc = kv_begin(kv_handle);

	if (rc == 0 && (!key || !value)) {
		log_error("kv", "kv_set needs a key and a value");
		rc = -EINVAL;
	}
	return rc != 0 ? rc : kv_set_bytes(kv_handle, key, strlen(key), value, strlen(value));
}

int kv_get(void *kv_handle, const char *key, char **value)
{
	void *bytes;
	size_t len;
	int rc = kv_begin(kv_handle);

	if (rc == 0 && (!key || !value)) {
		log_error("kv", "kv_get needs a key and a place for the value");
		rc = -EINVAL;
	}
	if (value)
		*value = NULL;
	if (rc == 0)
		rc = kv_get_bytes(kv_handle, key, strlen(key), &bytes, &len);
	if (rc == -ENOENT) {
		bytes = value_copy("", 0);
		rc = kv_end(kv_handle, bytes ? 0 : -ENOMEM, "get");
	}
	if (rc == 0)
		*value = bytes;
	return rc;
}

void kv_release(char *value)
{
	value_release(value);
}
