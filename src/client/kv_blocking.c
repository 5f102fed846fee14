/*
 * kv_blocking.c: the calls that submit a request, send it and wait for its answer; and the five of strings.
 */
#include "client/kv.h"

#include <stdlib.h>

/*
 * Blocking: submit, send, wait.
 */
void blocking_done(void *arg, int status, const void *value, size_t value_len)
{
	struct blocking *b = arg;

	b->done = true;
	b->status = status;
	if (status != 0 || !b->want_value)
		return;
	if (b->kv->lent && value == landing_data(b->kv->lent)) { /* it stays where it landed */
		b->value = landing_data(b->kv->lent);
		b->value[value_len] = '\0';
		b->kv->lent = NULL;
	} else {
		b->value = value_copy(value, value_len);
		if (!b->value) {
			b->status = -ENOMEM;
			return;
		}
	}
	b->value_len = value_len;
}

int blocking_wait(struct kv *kv, int rc, enum wire_op op, struct request *r, struct blocking *b)
{
	if (rc == -ENOTCONN)
		log_error("kv", "the connection has ended (%s); open another",
			  strerror(kv->error ? -kv->error : ENOTCONN));
	if (rc != 0)
		return rc;
	conn_flush(kv->conn);
	rc = engine_wait(kv->engine, &b->done, kv->options.timeout);
	if (rc != 0) {
		if (rc == -ETIMEDOUT)
			log_error("kv", "no answer to %s after %llu ms", wire_op_name(op),
				  (unsigned long long)(kv->options.timeout / TIME_MS));
		request_orphan(kv, r);
		return rc;
	}
	return b->status;
}

static int call_inside(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value,
		       size_t value_len, struct blocking *b)
{
	struct request *r;
	int rc;

	if (kv && engine_may_wait(kv->engine) != 0)
		return -EDEADLK;
	b->kv = kv;
	while ((rc = request_submit(kv, op, key, key_len, value, value_len, blocking_done, b, &r)) == -EAGAIN) {
		rc = engine_wait_change(kv->engine, kv->completed, kv->options.timeout);
		if (rc != 0)
			return rc;
	}
	return blocking_wait(kv, rc, op, r, b);
}

static int blocking_call(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value,
			 size_t value_len, struct blocking *b)
{
	int rc;

	kv_enter(kv);
	rc = call_inside(kv, op, key, key_len, value, value_len, b);
	kv_leave(kv);
	return rc;
}

/* The server's answers that have no text yet. */
int blocking_explained(int status, const char *what, size_t key_len, size_t value_len)
{
	enum wire_status known = wire_status_of(status);

	if (unlikely(status < 0 && status != -EMSGSIZE && wire_status_errno(known) == status))
		log_error("kv", "%s with a key of %zu and a value of %zu bytes: %s", what, key_len, value_len,
			  wire_status_text(known));
	return status;
}

int kv_set_bytes(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len)
{
	struct blocking b = {0};

	if (!value && value_len) {
		log_error("kv", "the value is NULL but has a length");
		return -EINVAL;
	}
	return blocking_explained(blocking_call(kv_handle, WIRE_OP_SET, key, key_len, value, value_len, &b), "set",
				  key_len, value_len);
}

int kv_get_bytes(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len)
{
	struct blocking b = {.want_value = true};
	int rc;

	if (!value || !value_len) {
		log_error("kv", "kv_get_bytes needs places for the value and its length");
		return -EINVAL;
	}
	rc = blocking_call(kv_handle, WIRE_OP_GET, key, key_len, NULL, 0, &b);
	if (rc != 0)
		return blocking_explained(rc, "get", key_len, 0);
	*value = b.value;
	*value_len = b.value_len;
	return 0;
}

int kv_delete(void *kv_handle, const void *key, size_t key_len)
{
	struct blocking b = {0};
	int rc = blocking_call(kv_handle, WIRE_OP_DELETE, key, key_len, NULL, 0, &b);

	if (rc == -ENOENT)
		return 0;
	return rc == 0 ? 1 : blocking_explained(rc, "delete", key_len, 0);
}

int kv_exists(void *kv_handle, const void *key, size_t key_len)
{
	struct blocking b = {0};
	int rc = blocking_call(kv_handle, WIRE_OP_EXISTS, key, key_len, NULL, 0, &b);

	if (rc == -ENOENT)
		return 0;
	return rc == 0 ? 1 : blocking_explained(rc, "exists", key_len, 0);
}

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
