/*
 * walk.c: the calls about all keys: walks, and what the server holds. They wait.
 */
#include "client/kv/kv.h"

#include <stdatomic.h>
#include <stdlib.h>

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

		if (!page_next(&at, end, &entry, &key))
			return log_fail(-EPROTO, "kv", "the server sent a list of keys that cannot be read");
		meta = (struct kv_meta){entry.meta.length, entry.meta.version, entry.meta.ttl};
		rc = each(arg, key, entry.key_len, &meta);
	}
	return rc;
}

static int scan_page(struct kv *kv, uint64_t *cursor, struct ask *ask, kv_scan_callback each, void *arg, int *count)
{
	struct kv_call call = {.want_value = true};
	uint64_t next;
	int rc = kv_call(kv, kv_begin(kv), ask, &call);

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

static int scan_check(const struct kv *kv, const void *prefix, size_t prefix_len, kv_scan_callback each)
{
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	if (!each || (!prefix && prefix_len))
		return log_fail(-EINVAL, "kv", "a walk needs a callback, and a prefix where that has a length");
	if (prefix_len > WIRE_KEY_MAX)
		return log_fail(-ENAMETOOLONG, "kv", "the prefix has %zu bytes; a key has at most %u", prefix_len,
				WIRE_KEY_MAX);
	return 0;
}

/* A slot that goes from a server that was not walked yet to one that was is not walked at all. So all of them are to go
 * by the table by which they went when the walk began. */
static int check_walked(struct kv *kv, uint64_t epoch)
{
	if (epoch && kv_nodes_epoch(kv) == epoch)
		return 0;
	return log_fail(
		-ESTALE, "kv",
		"slots may have moved during the walk of all keys, which then lacks some of theirs: begin it anew, "
		"see rdmad-cluster(7)");
}

/* The next server that the table has, from the i-th on; NULL: there is none. */
static struct kv *next_part(const struct kv *kv, unsigned *i)
{
	struct kv *part = kv_part(kv, *i);

	while (part && part->retired)
		part = kv_part(kv, ++*i);
	return part;
}

#define NODE_SHIFT 56 /* of a cluster's cursor: above is which server it is of, below is that one's */

static int scan_page_of_nodes(struct kv *kv, uint64_t *cursor, uint64_t *from, struct ask *ask, kv_scan_callback each,
			      void *arg, int *count)
{
	unsigned i = (unsigned)(*cursor >> NODE_SHIFT);
	struct kv *part = next_part(kv, &i);
	uint64_t next = 0;
	int rc = 0;

	*count = 0;
	*from = i == *cursor >> NODE_SHIFT ? *cursor & ((1ull << NODE_SHIFT) - 1) : 0;
	if (part)
		rc = scan_page(part, &next, ask, each, arg, count);
	if (rc == 0 && next >> NODE_SHIFT)
		rc = log_fail(-EPROTO, "kv", "the server at %s sent a cursor that is none", part->server);
	if (rc != 0)
		return rc;
	if (part && !next) {
		i++;
		part = next_part(kv, &i);
	}
	*cursor = part ? (uint64_t)i << NODE_SHIFT | next : 0;
	return *cursor ? 0 : check_walked(kv, kv->nodes->walked);
}

int kv_scan(void *kv_handle, uint64_t *cursor, const void *prefix, size_t prefix_len, unsigned limit,
	    kv_scan_callback each, void *arg)
{
	struct ask ask = {.op = WIRE_OP_SCAN,
			  .limit = limit,
			  .head_len = sizeof(*cursor),
			  .value = prefix,
			  .value_len = prefix_len};
	struct kv *kv = kv_handle;
	uint64_t from;
	int rc = scan_check(kv_handle, prefix, prefix_len, each), count;

	if (rc == 0 && !cursor) {
		log_error("kv", "kv_scan needs a cursor");
		rc = -EINVAL;
	}
	if (rc != 0)
		return rc;
	from = *cursor;
	ask.head = &from;
	if (kv->nodes && !from)
		kv->nodes->walked = kv_nodes_epoch(kv);
	if (kv->nodes)
		rc = scan_page_of_nodes(kv, cursor, &from, &ask, each, arg, &count);
	else
		rc = scan_page(kv_handle, cursor, &ask, each, arg, &count);
	return rc != 0 ? rc : count;
}

/* A walk of the keys of one server after the other: the others' go on where one cannot be reached. */
struct walk {
	kv_scan_callback each;
	void *arg;
	bool stopped; /* by the callback */
};

static int walk_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct walk *walk = arg;
	int rc = walk->each(walk->arg, key, key_len, meta);

	walk->stopped = rc != 0;
	return rc;
}

static int each_of_part(struct kv *kv, const void *prefix, size_t prefix_len, struct walk *walk)
{
	uint64_t cursor = 0;
	struct ask ask = {.op = WIRE_OP_SCAN,
			  .head = &cursor,
			  .head_len = sizeof(cursor),
			  .value = prefix,
			  .value_len = prefix_len};
	int rc, count;

	do {
		rc = scan_page(kv, &cursor, &ask, walk_key, walk, &count);
	} while (rc == 0 && cursor);
	return rc;
}

int kv_each(void *kv_handle, const void *prefix, size_t prefix_len, kv_scan_callback each, void *arg)
{
	struct walk walk = {each, arg, false};
	int rc = scan_check(kv_handle, prefix, prefix_len, each), first = 0;
	struct kv *kv = kv_handle, *part;
	uint64_t epoch = 0;

	if (rc != 0)
		return rc;
	if (kv->nodes)
		epoch = kv_nodes_epoch(kv);
	for (unsigned i = 0; !walk.stopped && (part = next_part(kv_handle, &i)); i++) {
		rc = each_of_part(part, prefix, prefix_len, &walk);
		first = first == 0 || walk.stopped ? rc : first;
	}
	if (kv->nodes && first == 0)
		first = check_walked(kv, epoch);
	return first;
}

static int delete_all_of_part(struct kv *kv, uint64_t *deleted)
{
	struct {
		uint64_t cursor, deleted;
	} flushed = {0};
	struct ask ask = {.op = WIRE_OP_FLUSH, .head = &flushed.cursor, .head_len = sizeof(flushed.cursor)};

	do {
		struct kv_call call = {.want_value = true};
		int rc = kv_call(kv, kv_begin(kv), &ask, &call);

		if (rc != 0)
			return rc;
		memcpy(&flushed, call.value, sizeof(flushed));
		value_release(call.value);
		*deleted += flushed.deleted;
	} while (flushed.cursor);
	return 0;
}

int kv_delete_all(void *kv_handle, uint64_t *deleted)
{
	int rc = kv_begin(kv_handle), first = rc;
	uint64_t sum = 0;
	struct kv *part;

	for (unsigned i = 0; rc == 0 && (part = next_part(kv_handle, &i)); i++) {
		int failed = delete_all_of_part(part, &sum);

		first = first == 0 ? failed : first;
	}
	if (first == 0 && deleted)
		*deleted = sum;
	return first;
}

/* Keys of a page, deleted while the next one is asked for. The caller may have given up before the last answer. */
struct deleting {
	struct kv *kv;
	uint64_t deleted;
	int error;
	atomic_uint holders; /* the caller, and each answer that is to come */
};

static void deleting_leave(struct deleting *d)
{
	if (atomic_fetch_sub(&d->holders, 1) == 1)
		free(d);
}

static void key_deleted(void *arg, int status, const void *value, size_t value_len)
{
	struct deleting *d = arg;

	(void)value;
	(void)value_len;
	d->deleted += status == 0;
	if (status != 0 && status != -ENOENT && d->error == 0)
		d->error = status;
	deleting_leave(d);
}

static int delete_begin(struct deleting *d, const void *key, size_t key_len)
{
	int rc;

	atomic_fetch_add(&d->holders, 1);
	rc = kv_submit_delete(d->kv, key, key_len, key_deleted, d);
	if (rc != 0)
		deleting_leave(d);
	return rc;
}

static int delete_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct deleting *d = arg;
	int rc;

	(void)meta;
	while ((rc = delete_begin(d, key, key_len)) == -EAGAIN && d->error == 0) {
		if (!kv_outstanding(d->kv)) { /* the connection is made again, for which a call that waits has time */
			rc = kv_delete(d->kv, key, key_len);
			d->deleted += rc == 1;
			return MIN(rc, 0);
		}
		rc = kv_wait(d->kv);
		if (rc != 0)
			return rc;
	}
	return rc == -EAGAIN ? d->error : rc;
}

int kv_delete_prefix(void *kv_handle, const void *prefix, size_t prefix_len, uint64_t *deleted)
{
	struct deleting *d;
	int waited, rc = kv_begin_given(kv_handle, prefix && prefix_len,
					"kv_delete_prefix needs a prefix; kv_delete_all deletes all keys");

	if (rc != 0)
		return rc;
	d = calloc(1, sizeof(*d));
	if (!d)
		return log_fail(-ENOMEM, "kv", "no memory to delete keys");
	d->kv = kv_handle;
	d->holders = 1;
	rc = kv_each(kv_handle, prefix, prefix_len, delete_key, d);
	waited = kv_wait(kv_handle);
	if (rc == 0)
		rc = waited ? waited : d->error;
	if (deleted)
		*deleted = d->deleted;
	deleting_leave(d);
	return kv_end(kv_handle, rc, "kv_delete_prefix");
}

static int info_of_part(struct kv *kv, struct wire_info *wire)
{
	struct ask ask = {.op = WIRE_OP_INFO};
	struct kv_call call = {.want_value = true};
	int rc = kv_call(kv, kv_begin(kv), &ask, &call);

	if (rc != 0)
		return rc;
	memcpy(wire, call.value, sizeof(*wire));
	value_release(call.value);
	return 0;
}

int kv_info(void *kv_handle, struct kv_info *info)
{
	struct kv_info sum = {UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, 0, 0, 0, 0, 0, 0};
	int rc = kv_begin_given(kv_handle, info, "kv_info needs a place for what the server tells");
	struct wire_info of;
	struct kv *part;

	for (unsigned i = 0; rc == 0 && (part = next_part(kv_handle, &i)); i++) {
		rc = info_of_part(part, &of);
		if (rc != 0)
			break;
		sum = (struct kv_info){MIN(sum.key_max, of.key_max),
				       MIN(sum.eager_max, of.eager_max),
				       MIN(sum.value_max, of.value_max),
				       sum.keys + of.keys,
				       sum.bytes_used + of.bytes_used,
				       sum.bytes_total + of.bytes_total,
				       sum.hits + of.hits,
				       sum.misses + of.misses,
				       sum.evictions + of.evictions,
				       sum.expired + of.expired};
	}
	if (rc == 0)
		*info = sum;
	return rc;
}
