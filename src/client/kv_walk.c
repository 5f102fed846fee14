/*
 * kv_walk.c: the calls about all keys: walks, and what the server holds. They wait.
 */
#include "client/kv.h"

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

/* Counts the keys. What the callback returned when not 0. */
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

static int scan_page(struct kv *kv, uint64_t *cursor, struct ask *ask, kv_scan_callback each, void *arg, int *count)
{
	struct kv_call call = {.want_value = true};
	uint64_t next;
	int rc = kv_call(kv, ask, &call);

	if (rc != 0)
		return rc;
	must(!engine_entered(kv->engine)); /* the callback may wait */
	memcpy(&next, call.value, sizeof(next));
	rc = page_walk(call.value + sizeof(next), call.value + call.value_len, each, arg, count);
	value_release(call.value);
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
			  .limit = limit,
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
		struct kv_call call = {.want_value = true};

		rc = kv_call(kv_handle, &ask, &call);
		if (rc != 0)
			return rc;
		memcpy(&flushed, call.value, sizeof(flushed));
		value_release(call.value);
		sum += flushed.deleted;
	} while (flushed.cursor);
	if (deleted)
		*deleted = sum;
	return 0;
}

int kv_info(void *kv_handle, struct kv_info *info)
{
	struct ask ask = {.op = WIRE_OP_INFO};
	struct kv_call call = {.want_value = true};
	struct wire_info wire;
	int rc;

	if (!info) {
		log_error("kv", "kv_info needs a place for what the server tells");
		return -EINVAL;
	}
	rc = kv_call(kv_handle, &ask, &call);
	if (rc != 0)
		return rc;
	memcpy(&wire, call.value, sizeof(wire));
	value_release(call.value);
	*info = (struct kv_info){wire.key_max,     wire.eager_max, wire.value_max, wire.keys,      wire.bytes_used,
				 wire.bytes_total, wire.hits,      wire.misses,    wire.evictions, wire.expired};
	return 0;
}
