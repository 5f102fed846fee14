/*
 * kv.c: the caller's half of the key/value service. A request is a slot in a table, found by
 * the id that its answer brings back, and calls back exactly once.
 */
#include "client/kv.h"

#include <stdlib.h>

static void slots_init(struct kv *kv)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		kv->slot[i].id = i;
		kv->slot[i].next = i + 1;
	}
}

static inline struct request *slot_take(struct kv *kv)
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
	r->into = NULL;
	r->tries = 0;
	r->more = false;
	r->next = kv->free;
	kv->free = r->id % SLOTS;
	r->id += SLOTS;
	kv->outstanding--;
}

/* The length that the key's value had last, 0: not known or small. */
static inline uint64_t size_recall(const struct kv *kv, const void *key, size_t key_len)
{
	uint64_t hash;

	if (likely(!kv->sizes_used))
		return 0;
	hash = hash_bytes(key, key_len);
	return kv->size[hash % SIZES].hash == hash ? kv->size[hash % SIZES].length : 0;
}

static void size_remember(struct kv *kv, const void *key, size_t key_len, uint64_t length)
{
	uint64_t hash = hash_bytes(key, key_len);

	kv->sizes_used = true;
	kv->size[hash % SIZES] = (struct remembered){hash, length};
}

/* The callback of who gave none, or waits no more. */
static void nobody_waits(void *arg, int status, const void *value, size_t value_len)
{
	(void)arg;
	(void)status;
	(void)value;
	(void)value_len;
}

/* The guess of a GET was good enough, the next may be better: another client may have set the key. */
static void size_correct(struct kv *kv, const struct request *r, uint64_t length)
{
	struct remembered *size = &kv->size[r->key_hash % SIZES];

	if (r->landing && size->hash == r->key_hash)
		size->length = length;
}

/* Whether a value lies in the message, which goes when the turn goes on. */
static bool is_passing(const struct request *r, const void *value)
{
	return value && value != r->into && !(r->landing && value == landing_data(r->landing));
}

/* The progress thread calls nobody: the slot stays taken, and keeps the outcome for the caller's next turn. */
static void finish_later(struct kv *kv, struct request *r, int status, const void *value, size_t len)
{
	r->copied = is_passing(r, value);
	r->value = r->copied ? value_copy(value, len) : value;
	r->value_len = len;
	r->status = r->copied && !r->value ? -ENOMEM : status;
	r->next = SLOTS;
	*kv->finished_tail = r->id % SLOTS;
	kv->finished_tail = &r->next;
	r->id += SLOTS; /* a second answer does not find it */
	engine_defer(kv->engine, &kv->deferred);
}

void request_finish(struct kv *kv, struct request *r, int status, const void *value, size_t len)
{
	kv_callback done = r->done;
	void *arg = r->arg;

	if (unlikely(engine_defers(kv->engine))) {
		finish_later(kv, r, status, value, len);
		return;
	}
	kv->lent = NULL;
	if (unlikely(r->large)) {
		kv->lent = r->landing;
		memory_unreach(kv->buffers, &r->reach);
		r->landing = NULL;
		r->large = false;
	}
	slot_give(kv, r);
	++*kv->completed;
	done(arg, status, value, len);
	if (unlikely(kv->lent))
		landing_give(kv->lent);
	kv->lent = NULL;
}

static void kv_established(struct conn *conn)
{
	(void)conn;
}

/* A GET whose value lands in `size` bytes at `addr`. */
static int send_get_into(struct kv *kv, const struct request *r, const void *key, size_t key_len, const void *addr,
			 size_t size, const struct fabric_region *region)
{
	struct wire_remote remote = {
		.addr = (uintptr_t)addr,
		.length = size,
		.rkey = fabric_region_rkey(region, conn_endpoint(kv->conn)),
	};
	uint32_t length = (uint32_t)(sizeof(remote) + key_len);
	struct wire_record *record = conn_reserve(kv->conn, length, NULL);

	if (!record)
		return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
	record->id = r->id;
	record->op = WIRE_OP_GET_INTO;
	record->flags = r->more ? WIRE_VERSIONED : 0;
	memcpy(record + 1, &remote, sizeof(remote));
	memcpy((char *)(record + 1) + sizeof(remote), key, key_len);
	conn_commit(kv->conn, record, length);
	return 0;
}

static int send_get_landing(struct kv *kv, const struct request *r, const void *key, size_t key_len)
{
	return send_get_into(kv, r, key, key_len, landing_data(r->landing), landing_size(r->landing),
			     landing_region(r->landing));
}

static void remember_again(struct kv *kv, struct request *r, const void *key, size_t key_len)
{
	struct again *a = malloc(sizeof(*a) + key_len);

	if (!a) {
		request_finish(kv, r, -ENOMEM, NULL, 0);
		return;
	}
	a->next = NULL;
	a->id = r->id;
	a->key_len = key_len;
	memcpy(a->key, key, key_len);
	*kv->again_tail = a;
	kv->again_tail = &a->next;
}

static void kv_writable(struct conn *conn)
{
	struct kv *kv = conn_context(conn);
	struct again *a;

	while ((a = kv->again)) {
		struct request *r = &kv->slot[a->id % SLOTS];

		/* A server that answers twice may have finished it meanwhile. */
		if (r->id == a->id && r->landing && send_get_landing(kv, r, a->key, a->key_len) != 0)
			return;
		kv->again = a->next;
		if (!kv->again)
			kv->again_tail = &kv->again;
		free(a);
	}
}

/* The value was longer than the message or the landing buffer: once more with one that holds it. */
int request_get_again(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	const char *key = body + sizeof(uint64_t);
	size_t key_len = record->length - sizeof(uint64_t);
	uint64_t length;

	if (record->length <= sizeof(length) || key_len > WIRE_KEY_MAX)
		return -EPROTO;
	memcpy(&length, body, sizeof(length));
	if (length > kv->value_max)
		return -EPROTO;
	size_remember(kv, key, key_len, length);
	if (r->into || r->tries++ == TRIES) {
		request_finish(kv, r, -EMSGSIZE, NULL, length);
		return 0;
	}
	if (r->landing)
		landing_give(r->landing);
	r->large = true;
	r->key_hash = hash_bytes(key, key_len);
	r->landing = landing_take(kv->buffers, length);
	if (!r->landing)
		request_finish(kv, r, -ENOMEM, NULL, 0);
	else if (kv->again || send_get_landing(kv, r, key, key_len) != 0)
		remember_again(kv, r, key, key_len);
	return 0;
}

/* The value is in the landing buffer: the write came before this answer. */
int request_get_landed(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	size_t size = r->landing ? landing_size(r->landing) : r->into_size;
	uint64_t length;

	if (record->length != sizeof(length) + (r->more ? sizeof(r->meta.version) : 0) || !r->large ||
	    !(r->landing || r->into))
		return -EPROTO;
	memcpy(&length, body, sizeof(length));
	if (length > size)
		return -EPROTO;
	size_correct(kv, r, length);
	request_finish(kv, r, 0, r->landing ? landing_data(r->landing) : r->into, length);
	return 0;
}

/* The value is in the message. */
static inline void get_inline(struct kv *kv, struct request *r, const char *body, size_t length)
{
	if (likely(!r->into)) {
		size_correct(kv, r, length);
		request_finish(kv, r, 0, body, length);
	} else if (length > r->into_size) {
		request_finish(kv, r, -EMSGSIZE, NULL, length);
	} else {
		memcpy(r->into, body, length);
		request_finish(kv, r, 0, r->into, length);
	}
}

static int kv_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct kv *kv = conn_context(conn);
	struct request *r = &kv->slot[record->id % SLOTS];
	bool get = record->op == WIRE_OP_GET || record->op == WIRE_OP_GET_INTO;

	if (unlikely(r->id != record->id || !r->done || !(record->flags & WIRE_REPLY)))
		return -EPROTO;
	if (unlikely(r->more))
		return request_more(kv, r, record, body);
	if (unlikely(get && record->status == WIRE_TOO_LARGE))
		return request_get_again(kv, r, record, body);
	if (unlikely(record->flags & WIRE_WRITTEN))
		return request_get_landed(kv, r, record, body);
	if (get && record->status == WIRE_OK)
		get_inline(kv, r, body, record->length);
	else
		request_finish(kv, r, wire_status_errno(record->status), NULL, 0);
	return 0;
}

/* Whatever is outstanding ends with the connection. */
static void finish_all(struct kv *kv)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		if (kv->slot[i].done)
			request_finish(kv, &kv->slot[i], kv->error, NULL, 0);
	++*kv->completed; /* who waits for anything looks again */
}

/* What the progress thread found finished, in its order, and then the end of the connection, if it found that. */
static void kv_deliver(struct deferred *deferred)
{
	struct kv *kv = container_of(deferred, struct kv, deferred);

	while (kv->finished != SLOTS) {
		struct request *r = &kv->slot[kv->finished];
		void *copy = r->copied ? (void *)r->value : NULL;

		kv->finished = r->next;
		if (kv->finished == SLOTS)
			kv->finished_tail = &kv->finished;
		request_finish(kv, r, r->status, r->value, r->value_len);
		value_release(copy);
	}
	if (kv->closed)
		finish_all(kv);
}

static void kv_closed(struct conn *conn, int error, const char *reason)
{
	struct kv *kv = conn_context(conn);

	if (error)
		log_warn("kv", "the connection ended: %s", reason);
	kv->conn = NULL;
	kv->closed = true;
	kv->error = error ? error : -ECONNABORTED;
	while (kv->again) {
		struct again *a = kv->again;

		kv->again = a->next;
		free(a);
	}
	if (engine_defers(kv->engine))
		engine_defer(kv->engine, &kv->deferred);
	else
		finish_all(kv);
}

static const struct conn_ops kv_ops = {
	.established = kv_established,
	.record = kv_record,
	.writable = kv_writable,
	.closed = kv_closed,
};

int kv_open_options(const char *server, const struct rdmad_options *options, void *share, void **kv_handle)
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
	kv->again_tail = &kv->again;
	kv->finished = SLOTS;
	kv->finished_tail = &kv->finished;
	kv->deferred.deliver = kv_deliver;
	engine_options_from(options, &kv->options);
	request.credits = (uint16_t)kv->options.credits;
	request.message_size = kv->options.message_size;
	rc = client_connect(server, &kv->options, share ? ((struct kv *)share)->engine : NULL, &request, &kv_ops, kv,
			    &kv->engine, &kv->conn);
	if (rc != 0) {
		free(kv);
		return rc;
	}
	kv->completed = engine_completed(kv->engine);
	kv->buffers = engine_buffers(kv->engine);
	kv->eager_max = conn_granted(kv->conn)->eager_max;
	if (options && options->eager_limit)
		kv->eager_max = MIN(kv->eager_max, options->eager_limit);
	kv->value_max = conn_granted(kv->conn)->value_max;
	kv->transport = fabric_endpoint_transport(conn_endpoint(kv->conn))->name;
	engine_leave(kv->engine);
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
	engine_enter(kv->engine);
	client_disconnect(kv->engine, kv->conn, &kv->closed);
	engine_leave(kv->engine);
	engine_release(kv->engine);
	free(kv);
	return 0;
}

/* What of a request can be refused before it is sent. */
int request_check(const struct kv *kv, const void *key, size_t key_len, size_t value_len)
{
	if (unlikely(!kv || !key || key_len < 1)) {
		log_error("kv", "a request needs a handle and a key of at least one byte");
		return -EINVAL;
	}
	if (unlikely(key_len > WIRE_KEY_MAX)) {
		log_error("kv", "the key has %zu bytes; a key has at most %u", key_len, WIRE_KEY_MAX);
		return -ENAMETOOLONG;
	}
	if (unlikely(value_len > kv->value_max)) {
		log_error("kv",
			  "the value has %zu bytes; by this transport the server takes at most %llu, see "
			  "kv.value_max in its rdmad.conf, and its log",
			  value_len, (unsigned long long)kv->value_max);
		return -EMSGSIZE;
	}
	if (unlikely(!kv->conn))
		return -ENOTCONN;
	return likely(kv->free != SLOTS) ? 0 : -EAGAIN;
}

/* Build the record in the message that leaves next. *taken is the slot. */
static inline int submit(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value,
			 size_t value_len, kv_callback done, void *arg, struct request **taken)
{
	struct wire_record *record = conn_reserve(kv->conn, (uint32_t)(key_len + value_len), NULL);
	struct request *r;

	if (unlikely(!record))
		return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
	r = slot_take(kv);
	r->done = done ? done : nobody_waits;
	r->arg = arg;
	record->id = r->id;
	record->op = (uint8_t)op;
	record->arg = (uint32_t)key_len;
	memcpy(record + 1, key, key_len);
	if (value_len)
		memcpy((char *)(record + 1) + key_len, value, value_len);
	conn_commit(kv->conn, record, (uint32_t)(key_len + value_len));
	*taken = r;
	return 0;
}

/*
 * For kv_more.c; here the same are inlined.
 */

struct request *request_take(struct kv *kv)
{
	return slot_take(kv);
}

uint64_t request_size(const struct kv *kv, const void *key, size_t key_len)
{
	return size_recall(kv, key, key_len);
}

void request_get_inline(struct kv *kv, struct request *r, const char *body, size_t length)
{
	get_inline(kv, r, body, length);
}

/* A slot for a request whose value is moved by the server. */
struct request *request_take_large(struct kv *kv, kv_callback done, void *arg)
{
	struct request *r = slot_take(kv);

	r->done = done ? done : nobody_waits;
	r->arg = arg;
	r->large = true;
	return r;
}

/* Nobody was told of it. */
static void drop_large(struct kv *kv, struct request *r)
{
	if (r->landing)
		landing_give(r->landing);
	r->landing = NULL;
	r->large = false;
	memory_unreach(kv->buffers, &r->reach);
	slot_give(kv, r);
}

static const struct fabric_region *reach_region(const struct reach *reach)
{
	return reach->region ? reach->region : reach->temporary;
}

static int send_set_from(struct kv *kv, const struct request *r, const struct wire_put *put, const void *key,
			 size_t key_len, const void *value, size_t value_len)
{
	struct wire_remote remote = {
		.addr = (uintptr_t)value,
		.length = value_len,
		.rkey = fabric_region_rkey(reach_region(&r->reach), conn_endpoint(kv->conn)),
	};
	size_t put_len = put ? sizeof(*put) : 0;
	uint32_t length = (uint32_t)(sizeof(remote) + put_len + key_len);
	struct wire_record *record = conn_reserve(kv->conn, length, NULL);

	if (!record)
		return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
	record->id = r->id;
	record->op = put ? WIRE_OP_PUT_FROM : WIRE_OP_SET_FROM;
	memcpy(record + 1, &remote, sizeof(remote));
	if (put)
		memcpy((char *)(record + 1) + sizeof(remote), put, put_len);
	memcpy((char *)(record + 1) + sizeof(remote) + put_len, key, key_len);
	conn_commit(kv->conn, record, length);
	return 0;
}

#define LARGE_HEAD (sizeof(struct wire_remote) + sizeof(struct wire_put)) /* at most */

/* Whether a request could leave now: to be known before anything is registered for it. What waits
 * travels meanwhile. */
static int room_for_large(struct kv *kv, size_t key_len)
{
	conn_flush(kv->conn);
	if (conn_reserve(kv->conn, (uint32_t)(LARGE_HEAD + key_len), NULL))
		return 0;
	return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
}

int request_set_large(struct kv *kv, const struct wire_put *put, const void *key, size_t key_len, const void *value,
		      size_t value_len, kv_callback done, void *arg, struct request **taken)
{
	struct request *r;
	int rc;

	if (unlikely(kv->value_max <= WIRE_EAGER_MAX)) {
		log_error("kv",
			  "a key of %zu and a value of %zu bytes do not fit a message, and the server has no "
			  "registered memory for large values on this transport; its log says why",
			  key_len, value_len);
		return -EMSGSIZE;
	}
	rc = room_for_large(kv, key_len);
	if (rc != 0)
		return rc;
	r = request_take_large(kv, done, arg);
	rc = memory_reach(kv->buffers, value, value_len, FABRIC_REMOTE_READ, &r->reach);
	if (rc == 0)
		rc = send_set_from(kv, r, put, key, key_len, value, value_len);
	if (rc != 0) {
		drop_large(kv, r);
		return rc;
	}
	size_remember(kv, key, key_len, value_len);
	*taken = r;
	return 0;
}

/* Into a landing buffer of the size that the value had last. */
int request_get_large(struct kv *kv, struct request *r, const void *key, size_t key_len, uint64_t size)
{
	int rc = -ENOMEM;

	r->key_hash = hash_bytes(key, key_len);
	r->landing = landing_take(kv->buffers, size);
	if (r->landing)
		rc = send_get_landing(kv, r, key, key_len);
	if (rc != 0)
		drop_large(kv, r);
	return rc;
}

static int submit_set(struct kv *kv, const void *key, size_t key_len, const void *value, size_t value_len,
		      kv_callback done, void *arg, struct request **taken)
{
	int rc = request_check(kv, key, key_len, value_len);

	if (unlikely(rc != 0))
		return rc;
	if (likely(key_len + value_len <= kv->eager_max || !value_len))
		return submit(kv, WIRE_OP_SET, key, key_len, value, value_len, done, arg, taken);
	return request_set_large(kv, NULL, key, key_len, value, value_len, done, arg, taken);
}

static int submit_get(struct kv *kv, const void *key, size_t key_len, kv_callback done, void *arg,
		      struct request **taken)
{
	int rc = request_check(kv, key, key_len, 0);
	uint64_t size;

	if (unlikely(rc != 0))
		return rc;
	size = size_recall(kv, key, key_len);
	if (likely(size <= kv->eager_max || size <= WIRE_INLINE_MAX))
		return submit(kv, WIRE_OP_GET, key, key_len, NULL, 0, done, arg, taken);
	*taken = request_take_large(kv, done, arg);
	return request_get_large(kv, *taken, key, key_len, size);
}

static int submit_plain(struct kv *kv, enum wire_op op, const void *key, size_t key_len, kv_callback done, void *arg,
			struct request **taken)
{
	int rc = request_check(kv, key, key_len, 0);

	return rc ? rc : submit(kv, op, key, key_len, NULL, 0, done, arg, taken);
}

static inline int submit_op(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value,
			    size_t value_len, kv_callback done, void *arg, struct request **taken)
{
	if (op == WIRE_OP_SET)
		return submit_set(kv, key, key_len, value, value_len, done, arg, taken);
	if (op == WIRE_OP_GET)
		return submit_get(kv, key, key_len, done, arg, taken);
	return submit_plain(kv, op, key, key_len, done, arg, taken);
}

int request_submit(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value, size_t value_len,
		   kv_callback done, void *arg, struct request **taken)
{
	return submit_op(kv, op, key, key_len, value, value_len, done, arg, taken);
}

/* The public calls' way in; a constant op decides itself. */
static inline int submit_outside(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value,
				 size_t value_len, kv_callback done, void *arg)
{
	struct request *r;
	int rc;

	kv_enter(kv);
	rc = submit_op(kv, op, key, key_len, value, value_len, done, arg, &r);
	kv_leave(kv);
	return rc;
}

int kv_submit_set(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  kv_callback done, void *arg)
{
	return submit_outside(kv_handle, WIRE_OP_SET, key, key_len, value, value_len, done, arg);
}

int kv_submit_get(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_outside(kv_handle, WIRE_OP_GET, key, key_len, NULL, 0, done, arg);
}

static int submit_get_into(struct kv *kv, const void *key, size_t key_len, void *buffer, size_t size, kv_callback done,
			   void *arg)
{
	struct request *r;
	int rc = request_check(kv, key, key_len, 0);

	if (rc != 0)
		return rc;
	if (!buffer || !size) {
		log_error("kv", "kv_submit_get_into needs a buffer");
		return -EINVAL;
	}
	rc = room_for_large(kv, key_len);
	if (rc != 0)
		return rc;
	r = request_take_large(kv, done, arg);
	r->into = buffer;
	r->into_size = size;
	rc = memory_reach(kv->buffers, buffer, size, FABRIC_REMOTE_WRITE, &r->reach);
	if (rc == 0)
		rc = send_get_into(kv, r, key, key_len, buffer, size, reach_region(&r->reach));
	if (rc != 0)
		drop_large(kv, r);
	return rc;
}

int kv_submit_get_into(void *kv_handle, const void *key, size_t key_len, void *buffer, size_t size, kv_callback done,
		       void *arg)
{
	int rc;

	kv_enter(kv_handle);
	rc = submit_get_into(kv_handle, key, key_len, buffer, size, done, arg);
	kv_leave(kv_handle);
	return rc;
}

int kv_buffer_lend(void *kv_handle, size_t size, void **buffer)
{
	struct kv *kv = kv_handle;
	int rc;

	if (!kv_handle || !buffer || !size) {
		log_error("kv", "kv_buffer_lend needs a handle, a size and a place for the buffer");
		return -EINVAL;
	}
	engine_enter(kv->engine);
	rc = buffers_lend(kv->buffers, size, buffer);
	engine_leave(kv->engine);
	return rc;
}

int kv_buffer_register(void *kv_handle, void *addr, size_t len)
{
	struct kv *kv = kv_handle;
	int rc;

	if (!kv_handle || !addr || !len) {
		log_error("kv", "kv_buffer_register needs a handle, an address and a length");
		return -EINVAL;
	}
	engine_enter(kv->engine);
	rc = buffers_register(kv->buffers, addr, len);
	engine_leave(kv->engine);
	if (rc == -EEXIST)
		log_error("kv", "part of this memory is registered already");
	return rc;
}

int kv_buffer_unregister(void *kv_handle, void *addr)
{
	struct kv *kv = kv_handle;
	int rc;

	if (!kv_handle || !addr) {
		log_error("kv", "kv_buffer_unregister needs a handle and an address");
		return -EINVAL;
	}
	engine_enter(kv->engine);
	rc = buffers_unregister(kv->buffers, addr);
	engine_leave(kv->engine);
	if (rc == -ENOENT)
		log_error("kv", "no memory was registered with this address");
	if (rc == -EBUSY)
		log_error("kv", "requests that use this memory are outstanding: wait for them first");
	return rc;
}

int kv_submit_delete(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_outside(kv_handle, WIRE_OP_DELETE, key, key_len, NULL, 0, done, arg);
}

int kv_submit_exists(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg)
{
	return submit_outside(kv_handle, WIRE_OP_EXISTS, key, key_len, NULL, 0, done, arg);
}

int kv_flush(void *kv_handle)
{
	struct kv *kv = kv_handle;
	int rc = 0;

	engine_enter(kv->engine);
	if (kv->conn)
		conn_flush(kv->conn);
	else
		rc = -ENOTCONN;
	engine_leave(kv->engine);
	return rc;
}

static int progress(struct kv *kv, uint64_t timeout_us)
{
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

int kv_progress(void *kv_handle, uint64_t timeout_us)
{
	struct kv *kv = kv_handle;
	int rc;

	engine_enter(kv->engine);
	rc = progress(kv, timeout_us);
	engine_leave(kv->engine);
	return rc;
}

static int wait_all(struct kv *kv)
{
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

int kv_wait(void *kv_handle)
{
	struct kv *kv = kv_handle;
	int rc;

	engine_enter(kv->engine);
	rc = wait_all(kv);
	engine_leave(kv->engine);
	return rc;
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
	struct kv *kv = kv_handle;
	int rc;

	engine_enter(kv->engine);
	rc = engine_arm(kv->engine);
	engine_leave(kv->engine);
	return rc;
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

void request_orphan(struct kv *kv, struct request *r)
{
	r->done = nobody_waits; /* its answer may still come, but who waited is gone */
	if (r->large)
		memory_unreach(kv->buffers, &r->reach); /* and so may be the caller's memory */
}
