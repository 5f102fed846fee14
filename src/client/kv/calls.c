/*
 * calls.c: the calls about one key and a whole value: some wait, the others have a callback that gets all that the
 * answer tells. A call that waits submits its request, sends it, waits, and has its end explained.
 */
#include "client/kv/kv.h"

_Static_assert((int)KV_ALWAYS == WIRE_ALWAYS && (int)KV_IF_ABSENT == WIRE_IF_ABSENT &&
		       (int)KV_IF_PRESENT == WIRE_IF_PRESENT && (int)KV_IF_VERSION == WIRE_IF_VERSION,
	       "a condition has one number here and on the wire");

/*
 * Submit, send, wait
 */
void *kv_keep_value(struct kv *kv, const void *value, size_t value_len)
{
	char *kept;

	for (unsigned i = 0; unlikely(kv->nodes) && kv_part(kv, i); i++)
		if (kv_part(kv, i)->lent && value == landing_data(kv_part(kv, i)->lent))
			return kv_keep_value(kv_part(kv, i), value, value_len);
	if (!kv->lent || value != landing_data(kv->lent))
		return value_copy(value, value_len);
	kept = landing_data(kv->lent);
	kept[value_len] = '\0';
	kv->lent = NULL;
	return kept;
}

static void call_done(void *arg, int status, const void *value, size_t value_len)
{
	struct kv_call *call = arg;

	blocking_done(&call->b, status);
	call->value_len = value_len;
	if (status != 0 || !call->want_value)
		return;
	call->value = kv_keep_value(call->kv, value, value_len);
	if (!call->value)
		call->b.status = -ENOMEM;
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

/* The call at one server. */
static int call_run_at(struct kv *kv, struct ask *ask, struct kv_call *call)
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
	if (unlikely(kv->whole && !kv->taking)) /* no answer will be waited for, and so nothing would connect it */
		engine_turn(kv->engine);
	/* A request that was not carried out because the connection ended is sent again on the next, if there is to
	 * be one. */
	do {
		call->b = (struct blocking){.handle = kv, .submit = call_submit, .await = kv_await};
		kv_timeout_begin(kv);
		rc = engine_block(kv->engine, &call->b, TIME_NEVER);
		if (call->b.taken && !call->b.done)
			request_orphan(kv, call->request);
	} while ((rc == -ESHUTDOWN || rc == -ENOTCONN) && call->b.done && !kv->closed && kv_keep(kv));
	kv_leave(kv);
	return rc;
}

static int call_run(struct kv *kv, struct ask *ask, struct kv_call *call)
{
	if (unlikely(kv->nodes))
		return kv_route_call(kv, ask, call, call_run_at);
	return call_run_at(kv, ask, call);
}

int kv_call(struct kv *kv, int begun, struct ask *ask, struct kv_call *call)
{
	return begun != 0 ? begun : kv_explain(kv, call_run(kv, ask, call), ask);
}

/* The same for which a missing key is an answer: 1 there is one, 0. */
static int call_found(struct kv *kv, int begun, struct ask *ask)
{
	struct kv_call call = {0};
	int rc;

	if (begun != 0)
		return begun;
	rc = call_run(kv, ask, &call);
	if (rc == 0 || rc == -ENOENT) {
		log_clear_last();
		return rc == 0;
	}
	return kv_explain(kv, rc, ask);
}

static int call_number(struct kv *kv, struct ask *ask, int64_t *number, uint64_t *version)
{
	struct kv_call call = {.want_result = true};
	int rc = kv_call(kv, kv_begin(kv), ask, &call);

	if (rc == 0 && number)
		*number = call.result.number;
	if (rc == 0 && version)
		*version = call.result.meta.version;
	return rc;
}

/* `head`, of `head_len` bytes, may be NULL. */
static struct ask ask_of(enum wire_op op, const void *head, size_t head_len, const void *key, size_t key_len)
{
	return (struct ask){.op = op, .head = head, .head_len = head_len, .key = key, .key_len = key_len};
}

/*
 * Reading
 */

/* *value is NULL where it fails, so that a caller that ignores that gives nothing wild back. `version` may be NULL. */
static int get_value(struct kv *kv, int begun, const void *key, size_t key_len, void **value, size_t *value_len,
		     uint64_t *version)
{
	struct ask ask = ask_of(WIRE_OP_GET, NULL, 0, key, key_len);
	struct kv_call call = {.want_value = true, .want_result = version};
	int rc;

	if (value)
		*value = NULL;
	rc = kv_call(kv, begun, &ask, &call);
	if (rc != 0)
		return rc;
	*value = call.value;
	*value_len = call.value_len;
	if (version)
		*version = call.result.meta.version;
	return 0;
}

/* Their lengths are still to be looked for. */
static int strings_readable(const char *key, const char *value)
{
	int rc = kv_readable(key, 1, "the key");

	return rc == 0 ? kv_readable(value, 1, "the value") : rc;
}

int kv_get(void *kv_handle, const char *key, char **value)
{
	int rc = kv_begin_given(kv_handle, key && value, "kv_get needs a key and a place for the value");
	void *bytes;
	size_t len;

	if (rc == 0)
		rc = strings_readable(key, key);
	rc = get_value(kv_handle, rc, key, rc == 0 ? strlen(key) : 0, &bytes, &len, NULL);
	if (rc == -ENOENT) {
		bytes = value_copy("", 0);
		rc = kv_end(kv_handle, bytes ? 0 : -ENOMEM, "get");
	}
	if (value)
		*value = bytes;
	return rc;
}

int kv_get_bytes(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len)
{
	int rc =
		kv_begin_given(kv_handle, value && value_len, "kv_get_bytes needs places for the value and its length");

	return get_value(kv_handle, rc, key, key_len, value, value_len, NULL);
}

int kv_get_version(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len, uint64_t *version)
{
	int rc = kv_begin_given(kv_handle, value && value_len && version,
				"kv_get_version needs places for the value, its length and its version");

	return get_value(kv_handle, rc, key, key_len, value, value_len, version);
}

int kv_submit_get_version(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg)
{
	struct ask ask = ask_of(WIRE_OP_GET, NULL, 0, key, key_len);

	return kv_submit_result(kv_handle, kv_begin(kv_handle), &ask, done, arg);
}

int kv_exists(void *kv_handle, const void *key, size_t key_len)
{
	struct ask ask = ask_of(WIRE_OP_EXISTS, NULL, 0, key, key_len);

	return call_found(kv_handle, kv_begin(kv_handle), &ask);
}

int kv_stat(void *kv_handle, const void *key, size_t key_len, struct kv_meta *meta)
{
	struct ask ask = ask_of(WIRE_OP_STAT, NULL, 0, key, key_len);
	struct kv_call call = {.want_result = true};
	int rc = kv_begin_given(kv_handle, meta, "kv_stat needs a place for what it finds");

	rc = kv_call(kv_handle, rc, &ask, &call);
	if (rc == 0)
		*meta = call.result.meta;
	return rc;
}

int kv_type(void *kv_handle, const void *key, size_t key_len, uint32_t *flags)
{
	struct ask ask = ask_of(WIRE_OP_STAT, NULL, 0, key, key_len);
	struct kv_call call = {.want_result = true};
	int rc = kv_call(kv_handle, kv_begin(kv_handle), &ask, &call);

	if (rc != 0)
		return rc;
	if (flags)
		*flags = call.result.flags;
	return call.result.type;
}

int kv_submit_stat(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg)
{
	struct ask ask = ask_of(WIRE_OP_STAT, NULL, 0, key, key_len);

	return kv_submit_result(kv_handle, kv_begin(kv_handle), &ask, done, arg);
}

/*
 * Writing
 */
int kv_set(void *kv_handle, const char *key, const char *value)
{
	struct ask ask = {.op = WIRE_OP_SET, .key = key, .value = value};
	struct kv_call call = {0};
	int rc = kv_begin_given(kv_handle, key && value, "kv_set needs a key and a value");

	if (rc == 0)
		rc = strings_readable(key, value);
	if (rc != 0)
		return rc;
	ask.key_len = strlen(key);
	ask.value_len = strlen(value);
	return kv_call(kv_handle, 0, &ask, &call);
}

int kv_set_bytes(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len)
{
	struct ask ask = {.op = WIRE_OP_SET, .key = key, .key_len = key_len, .value = value, .value_len = value_len};
	struct kv_call call = {0};

	return kv_call(kv_handle, kv_begin(kv_handle), &ask, &call);
}

/* Makes a put of `ask`, which has key and value, and begins the call. Options may be NULL. -EINVAL: there is no such
 * condition, or the pieces are none of memory. */
static int put_begin(const struct kv *kv, const struct kv_put_options *options, struct wire_put *put, struct ask *ask)
{
	unsigned condition = options ? (unsigned)options->condition & ~(unsigned)KV_DURABLE : KV_ALWAYS;
	int rc = kv_begin(kv);

	*put = (struct wire_put){0};
	ask->op = WIRE_OP_PUT;
	ask->head = put;
	ask->head_len = sizeof(*put);
	if (rc == 0 && ask->pieces)
		rc = kv_pieces_size(ask->value, ask->pieces, &ask->value_len);
	if (rc != 0 || !options)
		return rc;
	if (condition > KV_IF_VERSION)
		return log_fail(-EINVAL, "kv", "%d is not a condition of a put", (int)options->condition);
	if (condition == KV_IF_VERSION && !options->version)
		return log_fail(-EINVAL, "kv",
				"no key has the version 0; a put of a key that is missing has KV_IF_ABSENT");
	ask->flags = (unsigned)options->condition & KV_DURABLE ? WIRE_DURABLE : 0;
	put->condition = condition;
	put->version = options->version;
	put->flags = options->ttl_us == KV_TTL_KEEP ? WIRE_KEEP_TTL : 0;
	put->ttl = put->flags ? 0 : options->ttl_us;
	return 0;
}

static int call_put(struct kv *kv, struct ask *ask, const struct kv_put_options *options, uint64_t *version)
{
	struct kv_call call = {.want_result = true};
	struct wire_put put;
	int rc = put_begin(kv, options, &put, ask);

	rc = kv_call(kv, rc, ask, &call);
	if (rc == 0 && version)
		*version = call.result.meta.version;
	return rc;
}

int kv_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	   const struct kv_put_options *options, uint64_t *version)
{
	struct ask ask = {.key = key, .key_len = key_len, .value = value, .value_len = value_len};

	return call_put(kv_handle, &ask, options, version);
}

int kv_putv(void *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
	    const struct kv_put_options *options, uint64_t *version)
{
	struct ask ask = {.key = key, .key_len = key_len, .value = pieces, .pieces = count};

	return call_put(kv_handle, &ask, options, version);
}

static int submit_put(struct kv *kv, struct ask *ask, const struct kv_put_options *options, kv_result_callback done,
		      void *arg)
{
	struct wire_put put;
	int rc = put_begin(kv, options, &put, ask);

	return kv_submit_result(kv, rc, ask, done, arg);
}

int kv_submit_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  const struct kv_put_options *options, kv_result_callback done, void *arg)
{
	struct ask ask = {.key = key, .key_len = key_len, .value = value, .value_len = value_len};

	return submit_put(kv_handle, &ask, options, done, arg);
}

int kv_submit_putv(void *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
		   const struct kv_put_options *options, kv_result_callback done, void *arg)
{
	struct ask ask = {.key = key, .key_len = key_len, .value = pieces, .pieces = count};

	return submit_put(kv_handle, &ask, options, done, arg);
}

int kv_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us)
{
	struct ask ask = ask_of(WIRE_OP_EXPIRE, &ttl_us, sizeof(ttl_us), key, key_len);

	return call_found(kv_handle, kv_begin(kv_handle), &ask);
}

int kv_submit_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, kv_result_callback done,
		     void *arg)
{
	struct ask ask = ask_of(WIRE_OP_EXPIRE, &ttl_us, sizeof(ttl_us), key, key_len);

	return kv_submit_result(kv_handle, kv_begin(kv_handle), &ask, done, arg);
}

int kv_submit_lease(void *kv_handle, const void *key, size_t key_len, uint64_t lease_us, kv_result_callback done,
		    void *arg)
{
	struct ask ask = ask_of(WIRE_OP_LEASE, &lease_us, sizeof(lease_us), key, key_len);

	return kv_submit_result(kv_handle, kv_begin(kv_handle), &ask, done, arg);
}

int kv_delete(void *kv_handle, const void *key, size_t key_len)
{
	struct ask ask = ask_of(WIRE_OP_DELETE, NULL, 0, key, key_len);

	return call_found(kv_handle, kv_begin(kv_handle), &ask);
}

static int begin_version(const struct kv *kv, uint64_t version)
{
	return kv_begin_given(kv, version, "no key has the version 0; use kv_delete for any version");
}

int kv_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version)
{
	struct ask ask = ask_of(WIRE_OP_DELETE_IF, &version, sizeof(version), key, key_len);

	return call_found(kv_handle, begin_version(kv_handle, version), &ask);
}

int kv_submit_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version, kv_result_callback done,
			void *arg)
{
	struct ask ask = ask_of(WIRE_OP_DELETE_IF, &version, sizeof(version), key, key_len);

	return kv_submit_result(kv_handle, begin_version(kv_handle, version), &ask, done, arg);
}

/*
 * Numbers
 */
int kv_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, int64_t *number, uint64_t *version)
{
	struct ask ask = ask_of(WIRE_OP_INCR, &delta, sizeof(delta), key, key_len);

	return call_number(kv_handle, &ask, number, version);
}

int kv_submit_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, kv_result_callback done, void *arg)
{
	struct ask ask = ask_of(WIRE_OP_INCR, &delta, sizeof(delta), key, key_len);

	return kv_submit_result(kv_handle, kv_begin(kv_handle), &ask, done, arg);
}

/* The head of a count with an expiry. */
struct count_head {
	int64_t delta;
	uint64_t ttl;
};

int kv_count(void *kv_handle, const void *key, size_t key_len, int64_t delta, uint64_t ttl_us, int64_t *number,
	     uint64_t *version)
{
	struct count_head head = {delta, ttl_us};
	struct ask ask = ask_of(WIRE_OP_COUNT, &head, sizeof(head), key, key_len);

	return call_number(kv_handle, &ask, number, version);
}

int kv_submit_count(void *kv_handle, const void *key, size_t key_len, int64_t delta, uint64_t ttl_us,
		    kv_result_callback done, void *arg)
{
	struct count_head head = {delta, ttl_us};
	struct ask ask = ask_of(WIRE_OP_COUNT, &head, sizeof(head), key, key_len);

	return kv_submit_result(kv_handle, kv_begin(kv_handle), &ask, done, arg);
}

void kv_release(char *value)
{
	value_release(value);
}
