/*
 * part.c: calls that read parts of values, or read and change a key in one step, and those that write into values. What
 * the server does not do in one step is done here by versions: read, and store if no other client has meanwhile.
 */
#include "client/kv/kv.h"

#define TRIES 1000 /* to be faster than other writers of a key */

_Static_assert((int)KV_THEN_NOTHING == WIRE_THEN_NOTHING && (int)KV_THEN_DELETE == WIRE_THEN_DELETE &&
		       (int)KV_THEN_EXPIRE == WIRE_THEN_EXPIRE,
	       "what follows a fetch has one number here and on the wire");

/*
 * Reading
 */

/* Makes a fetch of `ask`, which has the key and where the part goes, and begins the call. */
static int fetch_begin(const struct kv *kv, const struct kv_fetch *what, uint32_t flags, struct kv_fetch_head *head,
		       struct ask *ask)
{
	static const struct kv_fetch all = {.length = UINT64_MAX};
	int rc = kv_begin(kv);

	if (rc == 0 && ask->pieces)
		rc = kv_pieces_size(ask->into, ask->pieces, &ask->into_size);
	if (rc != 0)
		return rc;
	what = what ? what : &all;
	if ((unsigned)what->then > KV_THEN_EXPIRE || (!ask->into && ask->into_size))
		return log_fail(-EINVAL, "kv",
				"a fetch needs a buffer where that has a size, and cannot be followed by %d",
				(int)what->then);
	*head = (struct kv_fetch_head){
		.remote = {.length = ask->into_size}, /* a longer part is refused, and nothing follows */
		.fetch = {what->offset, what->length, what->ttl_us, (uint32_t)what->then, flags},
	};
	ask->op = WIRE_OP_FETCH;
	ask->head = head;
	ask->head_len = sizeof(*head);
	return 0;
}

static int fetch_submit(struct kv *kv, const struct kv_fetch *what, uint32_t flags, struct ask *ask,
			kv_result_callback done, void *arg)
{
	struct kv_fetch_head head;
	int rc = fetch_begin(kv, what, flags, &head, ask);

	return kv_submit_result(kv, rc, ask, done, arg);
}

int kv_submit_fetch(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void *buffer,
		    size_t size, kv_result_callback done, void *arg)
{
	struct ask ask = {.key = key, .key_len = key_len, .into = buffer, .into_size = size};

	return fetch_submit(kv_handle, what, buffer ? WIRE_FETCH_FITS : 0, &ask, done, arg);
}

int kv_submit_fetchv(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what,
		     const struct iovec *pieces, size_t count, kv_result_callback done, void *arg)
{
	struct ask ask = {.key = key, .key_len = key_len, .into = (void *)pieces, .pieces = count};

	return fetch_submit(kv_handle, what, WIRE_FETCH_FITS, &ask, done, arg);
}

static int fetch_call(struct kv *kv, const struct kv_fetch *what, struct ask *ask, size_t *len, struct kv_meta *meta)
{
	struct kv_call call = {.want_result = true};
	struct kv_fetch_head head;
	int rc = fetch_begin(kv, what, WIRE_FETCH_FITS, &head, ask);

	rc = kv_call(kv, rc, ask, &call);
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
	struct ask ask = {.key = key, .key_len = key_len, .into = buffer, .into_size = size};

	return fetch_call(kv_handle, what, &ask, len, meta);
}

int kv_fetchv(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, const struct iovec *pieces,
	      size_t count, size_t *len, struct kv_meta *meta)
{
	struct ask ask = {.key = key, .key_len = key_len, .into = (void *)pieces, .pieces = count};

	return fetch_call(kv_handle, what, &ask, len, meta);
}

/* All of a value, however long, to memory that kv_release() takes. */
static int fetch_value(void *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void **value,
		       size_t *value_len)
{
	void *buffer;
	size_t size = WIRE_INLINE_MAX;
	int rc;

	if (!value || !value_len)
		return log_fail(-EINVAL, "kv", "what is read needs places for the value and its length");
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
	int rc = kv_begin_given(kv_handle, old && old_len, "kv_get_set needs places for the old value and its length");

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
static int edit_check(const struct kv *kv, uint64_t offset, const void *bytes, size_t len)
{
	if (!kv || (!bytes && len))
		return log_fail(-EINVAL, "kv",
				"a write into a value needs a handle, and bytes where they have a length");
	if (kv_readable(bytes, len, "what is to be written into a value") != 0)
		return -EFAULT;
	if (offset != WIRE_APPEND && (len > kv->value_max || offset > kv->value_max - len))
		return log_fail(-EMSGSIZE, "kv", "%zu bytes at %llu are beyond the longest value, %llu bytes", len,
				(unsigned long long)offset, (unsigned long long)kv->value_max);
	return 0;
}

/* Makes the request of an edit that was checked. -EMSGSIZE: it does not fit a message. */
static int edit_ask(const uint64_t *offset, const void *key, size_t key_len, const void *bytes, size_t len,
		    struct ask *ask)
{
	const struct wire_ways can = {.message_max = WIRE_EAGER_MAX - MIN(key_len, WIRE_EAGER_MAX)};

	*ask = (struct ask){
		.op = WIRE_OP_EDIT,
		.head = offset,
		.head_len = sizeof(*offset),
		.key = key,
		.key_len = key_len,
		.value = bytes,
		.value_len = len,
	};
	return wire_way(WIRE_OP_EDIT, len, &can) == WIRE_WAY_MESSAGE ? 0 : -EMSGSIZE;
}

static int edit_submit(struct kv *kv, uint64_t offset, const void *key, size_t key_len, const void *bytes, size_t len,
		       kv_result_callback done, void *arg)
{
	int rc = edit_check(kv, offset, bytes, len);
	struct ask ask;

	if (rc != 0)
		return rc;
	if (edit_ask(&offset, key, key_len, bytes, len, &ask) != 0)
		return log_fail(-EMSGSIZE, "kv",
				"key and bytes have %zu bytes, and this request has to fit a message of %u",
				key_len + len, WIRE_EAGER_MAX);
	return kv_submit_result(kv, kv_begin(kv), &ask, done, arg);
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

static int edit_value(struct kv *kv, uint64_t offset, const void *key, size_t key_len, const void *bytes, size_t len,
		      uint64_t *length)
{
	struct kv_call call = {.want_result = true};
	uint64_t sum = 0;
	struct ask ask;
	int rc = edit_check(kv, offset, bytes, len);

	if (rc != 0)
		return rc;
	rc = edit_ask(&offset, key, key_len, bytes, len, &ask);
	if (rc == 0) {
		rc = kv_call(kv, kv_begin(kv), &ask, &call);
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
	return edit_value(kv_handle, WIRE_APPEND, key, key_len, bytes, len, length);
}

int kv_set_range(void *kv_handle, const void *key, size_t key_len, uint64_t offset, const void *bytes, size_t len,
		 uint64_t *length)
{
	return edit_value(kv_handle, MIN(offset, WIRE_APPEND - 1), key, key_len, bytes, len, length);
}
