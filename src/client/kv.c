/*
 * kv.c: the caller's half of the key/value service. A request is a slot in a table, found by
 * the id that its answer brings back, and calls back exactly once.
 */
#include <rdmad/kv.h>

#include "client/client.h"

#include <stdlib.h>

#define SLOTS 1024 /* requests outstanding on one handle; a power of two */
#define SLOT_BITS 10
_Static_assert(1 << SLOT_BITS == SLOTS, "an id is a slot and its generation");

struct request {
	kv_callback done; /* NULL: the slot is free */
	void *arg;
	uint32_t id;
	uint32_t next; /* free slot behind this one */
};

struct kv {
	struct engine *engine;
	struct conn *conn; /* NULL once it has ended */
	struct engine_options options;
	bool closed;
	int error; /* why it ended */
	uint64_t *completed;
	size_t outstanding;
	uint32_t free; /* first free slot, SLOTS: none */
	uint64_t eager_max, value_max;
	const char *transport;
	struct request slot[SLOTS];
};

static void slots_init(struct kv *kv)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		kv->slot[i].id = i;
		kv->slot[i].next = i + 1;
	}
}

static struct request *slot_take(struct kv *kv)
{
	struct request *r;

	if (unlikely(kv->free == SLOTS))
		return NULL;
	r = &kv->slot[kv->free];
	kv->free = r->next;
	kv->outstanding++;
	return r;
}

/* Back to the free ones, under another id: a late answer to the old one is not mistaken. */
static void slot_give(struct kv *kv, struct request *r)
{
	r->done = NULL;
	r->next = kv->free;
	kv->free = r->id % SLOTS;
	r->id += SLOTS;
	kv->outstanding--;
}

static void finish(struct kv *kv, struct request *r, int status, const void *value, size_t len)
{
	kv_callback done = r->done;
	void *arg = r->arg;

	slot_give(kv, r);
	++*kv->completed;
	done(arg, status, value, len);
}

static void kv_established(struct conn *conn)
{
	(void)conn;
}

static int kv_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct kv *kv = conn_context(conn);
	struct request *r = &kv->slot[record->id % SLOTS];

	if (unlikely(r->id != record->id || !r->done || !(record->flags & WIRE_REPLY)))
		return -EPROTO;
	finish(kv, r, wire_status_errno(record->status), record->op == WIRE_OP_GET ? body : NULL,
	       record->length);
	return 0;
}

static void kv_closed(struct conn *conn, int error, const char *reason)
{
	struct kv *kv = conn_context(conn);
	int status = error ? error : -ECONNABORTED;

	log_warn("kv", "the connection ended: %s", reason);
	kv->conn = NULL;
	kv->closed = true;
	kv->error = status;
	for (uint32_t i = 0; i < SLOTS; i++)
		if (kv->slot[i].done)
			finish(kv, &kv->slot[i], status, NULL, 0);
	++*kv->completed; /* who waits for anything looks again */
}

static const struct conn_ops kv_ops = {
	.established = kv_established,
	.record = kv_record,
	.closed = kv_closed,
};

int kv_open_options(const char *server, const struct rdmad_options *options, void *share,
		    void **kv_handle)
{
	struct wire_request request = {.service = WIRE_KV};
	struct kv *kv;
	int rc;

	if (!server || !kv_handle) {
		log_error("kv", "kv_open needs a server and a place for the handle");
		return -EINVAL;
	}
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return -ENOMEM;
	slots_init(kv);
	engine_options_from(options, &kv->options);
	request.credits = (uint16_t)kv->options.credits;
	request.message_size = kv->options.message_size;
	rc = client_connect(server, &kv->options, share ? ((struct kv *)share)->engine : NULL, &request,
			    &kv_ops, kv, &kv->engine, &kv->conn);
	if (rc != 0) {
		free(kv);
		return rc;
	}
	kv->completed = engine_completed(kv->engine);
	kv->eager_max = conn_granted(kv->conn)->eager_max;
	kv->value_max = conn_granted(kv->conn)->value_max;
	kv->transport = fabric_endpoint_transport(conn_endpoint(kv->conn));
	*kv_handle = kv;
	return 0;
}

int kv_open(char *servername, void **kv_handle)
{
	return kv_open_options(servername, NULL, NULL, kv_handle);
}

int kv_close(void *kv_handle)
{
	struct kv *kv = kv_handle;

	if (!kv)
		return 0;
	if (engine_may_wait(kv->engine) != 0)
		return -EDEADLK;
	if (kv->conn)
		client_disconnect(kv->engine, kv->conn, &kv->closed);
	engine_release(kv->engine);
	free(kv);
	return 0;
}

/* What of a request can be refused before it is sent. */
static int check(const struct kv *kv, const void *key, size_t key_len, size_t value_len)
{
	if (unlikely(!kv || !key || key_len < 1)) {
		log_error("kv", "a request needs a handle and a key of at least one byte");
		return -EINVAL;
	}
	if (unlikely(key_len > WIRE_KEY_MAX)) {
		log_error("kv", "the key has %zu bytes; a key has at most %u", key_len, WIRE_KEY_MAX);
		return -ENAMETOOLONG;
	}
	if (unlikely(value_len > kv->eager_max || key_len + value_len > kv->eager_max)) {
		log_error("kv", "a key of %zu bytes and a value of %zu need rendezvous, which the server "
				"does not offer: together they may have %llu bytes",
			  key_len, value_len, (unsigned long long)kv->eager_max);
		return -EMSGSIZE;
	}
	return 0;
}

/* Build the record in the message that leaves next. *taken (may be NULL) is the slot. */
static int submit(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value,
		  size_t value_len, kv_callback done, void *arg, struct request **taken)
{
	struct wire_record *record;
	struct request *r;
	int rc = check(kv, key, key_len, value_len);

	if (unlikely(rc != 0))
		return rc;
	if (unlikely(!kv->conn))
		return -ENOTCONN;
	if (unlikely(kv->free == SLOTS))
		return -EAGAIN;
	record = conn_reserve(kv->conn, (uint32_t)(key_len + value_len), NULL);
	if (unlikely(!record))
		return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
	r = slot_take(kv);
	r->done = done;
	r->arg = arg;
	record->id = r->id;
	record->op = (uint8_t)op;
	record->arg = (uint32_t)key_len;
	memcpy(record + 1, key, key_len);
	if (value_len)
		memcpy((char *)(record + 1) + key_len, value, value_len);
	conn_commit(kv->conn, record, (uint32_t)(key_len + value_len));
	if (taken)
		*taken = r;
	return 0;
}

int kv_submit_set(void *kv_handle, const void *key, size_t key_len, const void *value,
		  size_t value_len, kv_callback done, void *arg)
{
	return submit(kv_handle, WIRE_OP_SET, key, key_len, value, value_len, done, arg, NULL);
}

int kv_submit_get(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit(kv_handle, WIRE_OP_GET, key, key_len, NULL, 0, done, arg, NULL);
}

int kv_submit_delete(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit(kv_handle, WIRE_OP_DELETE, key, key_len, NULL, 0, done, arg, NULL);
}

int kv_submit_exists(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit(kv_handle, WIRE_OP_EXISTS, key, key_len, NULL, 0, done, arg, NULL);
}

int kv_flush(void *kv_handle)
{
	struct kv *kv = kv_handle;

	if (!kv->conn)
		return -ENOTCONN;
	conn_flush(kv->conn);
	return 0;
}

int kv_progress(void *kv_handle, uint64_t timeout_us)
{
	struct kv *kv = kv_handle;
	uint64_t before = *kv->completed;
	int rc;

	rc = engine_turn(kv->engine);
	if (rc < 0)
		return rc;
	if (*kv->completed == before && timeout_us && kv->conn) {
		uint64_t ns = timeout_us >= TIME_NEVER / TIME_US ? TIME_NEVER : timeout_us * TIME_US;

		rc = engine_wait_change(kv->engine, kv->completed, ns);
		if (rc != 0 && rc != -ETIMEDOUT)
			return rc;
	}
	if (*kv->completed == before && !kv->conn)
		return -ENOTCONN;
	return (int)(*kv->completed - before);
}

int kv_wait(void *kv_handle)
{
	struct kv *kv = kv_handle;
	uint64_t until = time_now() + kv->options.timeout;

	while (kv->outstanding) {
		uint64_t now = time_now();
		int rc;

		if (now >= until) {
			log_error("kv", "%zu requests have no answer after %llu ms", kv->outstanding,
				  (unsigned long long)(kv->options.timeout / TIME_MS));
			return -ETIMEDOUT;
		}
		rc = engine_wait_change(kv->engine, kv->completed, until - now);
		if (rc != 0 && rc != -ETIMEDOUT)
			return rc;
	}
	return kv->conn ? 0 : -ENOTCONN;
}

size_t kv_outstanding(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->outstanding;
}

int kv_fd(const void *kv_handle)
{
	return engine_fd(((const struct kv *)kv_handle)->engine);
}

int kv_arm(void *kv_handle)
{
	return engine_arm(((struct kv *)kv_handle)->engine);
}

const char *kv_transport(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->transport;
}

uint64_t kv_eager_max(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->eager_max;
}

uint64_t kv_value_max(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->value_max;
}

/*
 * Blocking: submit, send, wait.
 */
struct blocking {
	bool done;
	int status;
	bool want_value;
	char *value;
	size_t value_len;
};

static void blocking_done(void *arg, int status, const void *value, size_t value_len)
{
	struct blocking *b = arg;

	b->done = true;
	b->status = status;
	if (status != 0 || !b->want_value)
		return;
	b->value = malloc(value_len + 1);
	if (!b->value) {
		b->status = -ENOMEM;
		return;
	}
	memcpy(b->value, value, value_len);
	b->value[value_len] = '\0';
	b->value_len = value_len;
}

static void nobody_waits(void *arg, int status, const void *value, size_t value_len)
{
	(void)arg;
	(void)status;
	(void)value;
	(void)value_len;
}

static int blocking_call(struct kv *kv, enum wire_op op, const void *key, size_t key_len,
			 const void *value, size_t value_len, struct blocking *b)
{
	struct request *r;
	int rc;

	if (kv && engine_may_wait(kv->engine) != 0)
		return -EDEADLK;
	while ((rc = submit(kv, op, key, key_len, value, value_len, blocking_done, b, &r)) == -EAGAIN) {
		rc = engine_wait_change(kv->engine, kv->completed, kv->options.timeout);
		if (rc != 0)
			return rc;
	}
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
		r->done = nobody_waits; /* its answer may still come, b is gone then */
		return rc;
	}
	return b->status;
}

/* The server's answers that have no text yet. */
static int explained(int status, const char *what, size_t key_len, size_t value_len)
{
	if (unlikely(status < 0 && status != -ETIMEDOUT && status != -ENOTCONN && status != -EINVAL &&
		     status != -ENAMETOOLONG && status != -EMSGSIZE))
		log_error("kv", "%s with a key of %zu and a value of %zu bytes: %s", what, key_len,
			  value_len, wire_status_text(wire_status_of(status)));
	return status;
}

int kv_set_bytes(void *kv_handle, const void *key, size_t key_len, const void *value,
		 size_t value_len)
{
	struct blocking b = {0};

	if (!value && value_len) {
		log_error("kv", "the value is NULL but has a length");
		return -EINVAL;
	}
	return explained(blocking_call(kv_handle, WIRE_OP_SET, key, key_len, value, value_len, &b),
			 "set", key_len, value_len);
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
		return explained(rc, "get", key_len, 0);
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
	return rc == 0 ? 1 : explained(rc, "delete", key_len, 0);
}

int kv_exists(void *kv_handle, const void *key, size_t key_len)
{
	struct blocking b = {0};
	int rc = blocking_call(kv_handle, WIRE_OP_EXISTS, key, key_len, NULL, 0, &b);

	if (rc == -ENOENT)
		return 0;
	return rc == 0 ? 1 : explained(rc, "exists", key_len, 0);
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
		bytes = calloc(1, 1);
		rc = bytes ? 0 : -ENOMEM;
	}
	if (rc == 0)
		*value = bytes;
	return rc;
}

void kv_release(char *value)
{
	free(value);
}
