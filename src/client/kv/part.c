/*
 * part.c: calls that read parts of values, or read and change a key in one step, and those that write into values. What
 * the server does not do in one step is done here by versions: read, and store if nobody else has meanwhile.
 */
#include "client/kv/kv.h"

#define TRIES 1000 /* to be faster than other writers of a key */

_Static_assert((int)KV_THEN_NOTHING == WIRE_THEN_NOTHING && (int)KV_THEN_DELETE == WIRE_THEN_DELETE &&
		       (int)KV_THEN_EXPIRE == WIRE_THEN_EXPIRE,
	       "what follows a fetch has one number here and on the wire");

/*
 * Reading
 */
static int fetch_encode(const struct kv_fetch *what, const void *buffer, size_t size, uint32_t flags,
			struct kv_fetch_head *head)
{
	static const struct kv_fetch all = {.length = UINT64_MAX};

	what = what ? what : &all;
	if ((unsigned)what->then > KV_THEN_EXPIRE || (!buffer && size)) {
		log_error("kv", "a fetch needs a buffer where that has a size, and cannot be followed by %d",
			  (int)what->then);
		return -EINVAL;
	}
	*head = (struct kv_fetch_head){
		.remote = {.length = size}, /* a longer part is refused, and nothing follows */
		.fetch = {what->offset, what->length, what->ttl_us, (uint32_t)what->then, flags},
	};
	return 0;
}

static struct ask fetch_ask(const struct kv_fetch_head *head, const void *key, size_t key_len, void *buffer,
			    size_t size)
{
	return (struct ask){
		.op = WIRE_OP_FETCH,
		.head = head,
		.head_len = sizeof(*head),
		.key = key,
		.key_len = key_len,
		.into = buffer,
		.into_size = size,
	};
}

int kv_submit_fetch(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void *buffer,
		    size_t size, kv_result_callback done, void *arg)
{
	struct kv_fetch_head head = {0};
	struct ask ask = fetch_ask(&head, key, key_len, buffer, size);
	int rc = fetch_encode(what, buffer, size, buffer ? WIRE_FETCH_FITS : 0, &head);

	ask.result = done;
	ask.arg = arg;
	return rc != 0 ? rc : kv_submit_result(kv_handle, &ask);
}

static int fetch_call(struct kv *kv, struct ask *ask, size_t *len, struct kv_meta *meta)
{
	struct kv_call call = {.want_result = true};
	int rc = kv_call_key(kv, ask, &call);

	if (rc == 0 && call.value_len > ask->into_size)
		rc = -EMSGSIZE;
	if (len && (rc == 0 || rc == -EMSGSIZE))
		*len = call.value_len;
	if (meta && rc == 0)
		*meta = call.result.meta;
	return rc;
}

int kv_fetch(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void *buffer, size_t size,
	     size_t *len, struct kv_meta *meta)
{
	struct kv_fetch_head head = {0};
	struct ask ask = fetch_ask(&head, key, key_len, buffer, size);
	int rc = fetch_encode(what, buffer, size, WIRE_FETCH_FITS, &head);

	return rc != 0 ? rc : fetch_call(kv_handle, &ask, len, meta);
}

static int fetchv_ask(const struct kv_fetch *what, const struct iovec *pieces, size_t count, struct kv_fetch_head *head,
		      struct ask *ask)
{
	size_t size;
	int rc = kv_pieces_size(pieces, count, &size);

	*ask = fetch_ask(head, ask->key, ask->key_len, (void *)pieces, size);
	ask->pieces = count;
	return rc != 0 ? rc : fetch_encode(what, pieces, size, WIRE_FETCH_FITS, head);
}

int kv_submit_fetchv(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what,
		     const struct iovec *pieces, size_t count, kv_result_callback done, void *arg)
{
	struct kv_fetch_head head = {0};
	struct ask ask = {.key = key, .key_len = key_len};
	int rc = fetchv_ask(what, pieces, count, &head, &ask);

	ask.result = done;
	ask.arg = arg;
	return rc != 0 ? rc : kv_submit_result(kv_handle, &ask);
}

int kv_fetchv(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, const struct iovec *pieces,
	      size_t count, size_t *len, struct kv_meta *meta)
{
	struct kv_fetch_head head = {0};
	struct ask ask = {.key = key, .key_len = key_len};
	int rc = fetchv_ask(what, pieces, count, &head, &ask);

	return rc != 0 ? rc : fetch_call(kv_handle, &ask, len, meta);
}

/* All of a value, however long, to memory that kv_release() takes. */
static int fetch_value(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void **value,
		       size_t *value_len)
{
	void *buffer;
	size_t size = WIRE_INLINE_MAX;
	int rc;

	if (!value || !value_len) {
		log_error("kv", "what is read needs places for the value and its length");
		return -EINVAL;
	}
	*value = NULL;
	do {
		rc = kv_buffer_lend(kv_handle, size + 1, &buffer);
		if (rc != 0)
			return rc;
		rc = kv_fetch(kv_handle, key, key_len, what, buffer, size, value_len, NULL);
		if (rc != 0)
			kv_release(buffer);
		size = rc == -EMSGSIZE && *value_len > size ? *value_len : 0;
	} while (size && size <= ((const struct kv *)kv_handle)->value_max);
	if (rc != 0)
		return rc;
	((char *)buffer)[*value_len] = '\0';
	*value = buffer;
	return 0;
}

int kv_get_into(void *kv_handle, const void *key, size_t key_len, void *buffer, size_t size, size_t *value_len)
{
	return kv_fetch(kv_handle, key, key_len, NULL, buffer, size, value_len, NULL);
}

int kv_get_range(void *kv_handle, const void *key, size_t key_len, uint64_t offset, void *buffer, size_t size,
		 size_t *len)
{
	struct kv_fetch what = {.offset = offset, .length = size};

	return kv_fetch(kv_handle, key, key_len, &what, buffer, size, len, NULL);
}

int kv_get_delete(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len)
{
	struct kv_fetch what = {.length = UINT64_MAX, .then = KV_THEN_DELETE};

	return fetch_value(kv_handle, key, key_len, &what, value, value_len);
}

int kv_get_touch(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, void **value, size_t *value_len)
{
	struct kv_fetch what = {.length = UINT64_MAX, .then = KV_THEN_EXPIRE, .ttl_us = ttl_us};

	return fetch_value(kv_handle, key, key_len, &what, value, value_len);
}

/*
 * Reading and writing by versions
 */
static bool lost_race(int rc)
{
	return rc == -EEXIST || rc == -ENOENT || rc == -ESTALE;
}

/* The value now, and a put that goes well only as long as it is that. *old is NULL where there is none. */
static int read_to_change(void *kv_handle, const void *key, size_t key_len, void **old, size_t *old_len,
			  struct kv_put_options *put)
{
	int rc = kv_get_version(kv_handle, key, key_len, old, old_len, &put->version);

	put->condition = KV_IF_VERSION;
	if (rc != -ENOENT)
		return rc;
	put->condition = KV_IF_ABSENT;
	*old = NULL;
	*old_len = 0;
	return 0;
}

int kv_get_set(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len, void **old,
	       size_t *old_len)
{
	struct kv_put_options put = {0};
	void *was = NULL;
	int rc = kv_begin(kv_handle);

	if (rc == 0 && (!old || !old_len)) {
		log_error("kv", "kv_get_set needs places for the old value and its length");
		rc = -EINVAL;
	}
	if (old)
		*old = NULL;
	if (rc != 0)
		return rc;
	rc = -ESTALE;
	for (unsigned i = 0; i < TRIES && lost_race(rc); i++) {
		rc = read_to_change(kv_handle, key, key_len, &was, old_len, &put);
		if (rc != 0)
			return rc;
		rc = kv_put(kv_handle, key, key_len, value, value_len, &put, NULL);
		if (rc != 0)
			kv_release(was);
	}
	if (rc == 0)
		*old = was;
	return rc;
}

/*
 * Writing into values
 */
static struct ask edit_ask(const uint64_t *offset, const void *key, size_t key_len, const void *bytes, size_t len)
{
	return (struct ask){
		.op = WIRE_OP_EDIT,
		.head = offset,
		.head_len = sizeof(*offset),
		.key = key,
		.key_len = key_len,
		.value = bytes,
		.value_len = len,
	};
}

static int edit_check(const struct kv *kv, uint64_t offset, const void *bytes, size_t len)
{
	if (!kv || (!bytes && len)) {
		log_error("kv", "a write into a value needs a handle, and bytes where they have a length");
		return -EINVAL;
	}
	if (offset != WIRE_APPEND && (len > kv->value_max || offset > kv->value_max - len)) {
		log_error("kv", "%zu bytes at %llu are beyond the longest value, %llu bytes", len,
			  (unsigned long long)offset, (unsigned long long)kv->value_max);
		return -EMSGSIZE;
	}
	return 0;
}

static int edit_submit(struct kv *kv, uint64_t offset, const void *key, size_t key_len, const void *bytes, size_t len,
		       kv_result_callback done, void *arg)
{
	struct ask ask = edit_ask(&offset, key, key_len, bytes, len);
	int rc = edit_check(kv, offset, bytes, len);

	if (rc == 0 && len > WIRE_EAGER_MAX - MIN(key_len, WIRE_EAGER_MAX)) {
		log_error("kv", "key and bytes have %zu bytes, and this request has to fit a message of %u",
			  key_len + len, WIRE_EAGER_MAX);
		rc = -EMSGSIZE;
	}
	ask.result = done;
	ask.arg = arg;
	return rc != 0 ? rc : kv_submit_result(kv, &ask);
}

int kv_submit_append(void *kv_handle, const void *key, size_t key_len, const void *bytes, size_t len,
		     kv_result_callback done, void *arg)
{
	return edit_submit(kv_handle, WIRE_APPEND, key, key_len, bytes, len, done, arg);
}

int kv_submit_set_range(void *kv_handle, const void *key, size_t key_len, uint64_t offset, const void *bytes,
			size_t len, kv_result_callback done, void *arg)
{
	return edit_submit(kv_handle, MIN(offset, WIRE_APPEND - 1), key, key_len, bytes, len, done, arg);
}

/* Edits that the server does not do in one step: a long value, or many bytes. */
static int edit_by_version(struct kv *kv, uint64_t offset, const void *key, size_t key_len, const void *bytes,
			   size_t len, uint64_t *length)
{
	struct kv_put_options put = {.ttl_us = KV_TTL_KEEP};
	int rc = -ESTALE;

	for (unsigned i = 0; i < TRIES && lost_race(rc); i++) {
		void *old, *fresh;
		size_t old_len;
		uint64_t at;

		rc = read_to_change(kv, key, key_len, &old, &old_len, &put);
		if (rc != 0)
			return rc;
		at = offset == WIRE_APPEND ? old_len : offset;
		rc = edit_check(kv, at, bytes, len);
		*length = MAX(old_len, at + len);
		if (rc == 0)
			rc = kv_buffer_lend(kv, MAX(*length, 1u), &fresh);
		if (rc == 0) {
			if (old_len)
				memcpy(fresh, old, old_len);
			if (at > old_len)
				memset((char *)fresh + old_len, 0, at - old_len);
			if (len)
				memcpy((char *)fresh + at, bytes, len);
			rc = kv_put(kv, key, key_len, fresh, *length, &put, NULL);
			kv_release(fresh);
		}
		kv_release(old);
	}
	return rc;
}

static int edit(struct kv *kv, uint64_t offset, const void *key, size_t key_len, const void *bytes, size_t len,
		uint64_t *length)
{
	struct ask ask = edit_ask(&offset, key, key_len, bytes, len);
	struct kv_call call = {.want_result = true};
	uint64_t sum = 0;
	int rc = edit_check(kv, offset, bytes, len);

	if (rc != 0)
		return rc;
	rc = -EMSGSIZE;
	if (len <= WIRE_EAGER_MAX - MIN(key_len, WIRE_EAGER_MAX)) {
		rc = kv_call_key(kv, &ask, &call);
		sum = call.result.meta.length;
	}
	if (rc == -EMSGSIZE)
		rc = edit_by_version(kv, offset, key, key_len, bytes, len, &sum);
	if (rc == 0 && length)
		*length = sum;
	return rc;
}

int kv_append(void *kv_handle, const void *key, size_t key_len, const void *bytes, size_t len, uint64_t *length)
{
	return edit(kv_handle, WIRE_APPEND, key, key_len, bytes, len, length);
}

int kv_set_range(void *kv_handle, const void *key, size_t key_len, uint64_t offset, const void *bytes, size_t len,
		 uint64_t *length)
{
	return edit(kv_handle, MIN(offset, WIRE_APPEND - 1), key, key_len, bytes, len, length);
}

/*
 * Numbers that expire
 */
struct count_head {
	int64_t delta;
	uint64_t ttl;
};

static struct ask count_ask(const struct count_head *head, const void *key, size_t key_len)
{
	return (struct ask){
		.op = WIRE_OP_COUNT, .head = head, .head_len = sizeof(*head), .key = key, .key_len = key_len};
}

int kv_submit_count(void *kv_handle, const void *key, size_t key_len, int64_t delta, uint64_t ttl_us,
		    kv_result_callback done, void *arg)
{
	struct count_head head = {delta, ttl_us};
	struct ask ask = count_ask(&head, key, key_len);

	ask.result = done;
	ask.arg = arg;
	return kv_submit_result(kv_handle, &ask);
}

int kv_count(void *kv_handle, const void *key, size_t key_len, int64_t delta, uint64_t ttl_us, int64_t *number,
	     uint64_t *version)
{
	struct count_head head = {delta, ttl_us};
	struct ask ask = count_ask(&head, key, key_len);
	struct kv_call call = {.want_result = true};
	int rc = kv_call_key(kv_handle, &ask, &call);

	if (rc == 0 && number)
		*number = call.result.number;
	if (rc == 0 && version)
		*version = call.result.meta.version;
	return rc;
}
