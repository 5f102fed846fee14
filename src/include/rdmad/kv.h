/*
 * kv.h: the key/value store of rdmad. See rdmad_kv(3) and rdmad_kv_version(3).
 *
 * Keys are 1 to 4095 bytes. If key plus value are below 4096 bytes, they travel in messages, one each way. Larger
 * values never pass through a message: the server reads them from the caller's memory, or writes them there.
 *
 * A handle belongs to one thread at a time, and to one process: in the child of a fork it can only be closed.
 *
 * Calls and callbacks have statuses: 0 (or a count), or a negative errno value. The server answered:
 *   -ENOENT no such key                     -ENOSPC the store is full
 *   -EMSGSIZE value over the limit, or longer than the store or the buffer
 *   -EEXIST, -ESTALE the condition of a put or delete did not hold; -ESTALE also of a get, see kv_submit_get
 *   -EDOM not a number                      -ERANGE the number would leave 64 bits
 *   -EDQUOT the client has stored as much as it may, see rdmad-auth(7)
 *   -EREMOTE another server of its cluster has the key, see rdmad-cluster(7)
 *   -EMEDIUMTYPE the value is not of a type that the call takes: see kv_type
 *   -EOPNOTSUPP it does not know the call   -EIO it failed to carry it out
 * There is no answer, and the request may have been carried out:
 *   -ECONNABORTED the connection ended      -ETIMEDOUT nothing came for too long
 *   -ECANCELED kv_cancel                    -EPROTO the server breaks the protocol, and the connection ended
 * It was not carried out:
 *   -EFAULT memory of a device that cannot be used so, see kv_buffer_register
 *   -EINVAL a NULL pointer or an empty key   -ENAMETOOLONG key over 4095 bytes
 *   -EAGAIN the handle takes no more now: kv_progress, then again
 *   -ENOTCONN the connection has ended: kv_reopen
 *   -ESHUTDOWN the server is to end, or takes no new connections: kv_reopen when it is back
 *   -EDEADLK a call that waits was made from inside a callback
 *   -EPERM the handle belongs to the parent of this process
 * -ENOMEM: this program has no memory.
 * rdmad_error() says it in words, of the thread's last call.
 */
#ifndef RDMAD_KV_H
#define RDMAD_KV_H

#include <rdmad/rdmad.h>

#include <stdbool.h>
#include <sys/uio.h>

/*
 * A handle. It may be kept in a `struct rdmad_kv *` or in a `void *`. In C the calls take both, and the compiler warns
 * if a handle of another service is passed. C++ does not convert `void *` to another pointer, so there the calls take
 * any pointer.
 */
struct rdmad_kv;
#ifndef RDMAD_KV_ANY
#ifdef __cplusplus
#define RDMAD_KV_ANY void
#else
#define RDMAD_KV_ANY struct rdmad_kv
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The five calls. servername is host[:port] (RDMA where both ends have it, else software), rdma://host[:port],
 * tcp://host[:port] or unix:///path; or cluster:ADDRESS[,ADDRESS...] or cluster:/path/of/table, all servers of a
 * cluster by one handle, see below. -ECONNREFUSED nothing listens there, -EOPNOTSUPP the server has no kv, -EUSERS too
 * many connections, -ESHUTDOWN it takes no more ...: librdmad(3) lists all errors of opening a handle.
 */
int kv_open(char *servername, void **kv_handle);
int kv_set(RDMAD_KV_ANY *kv_handle, const char *key, const char *value);
/* A missing key is "" and success. *value is given back with kv_release; it is NULL after a failure. */
int kv_get(RDMAD_KV_ANY *kv_handle, const char *key, char **value);
void kv_release(char *value);
/* Outstanding requests end with -ECONNABORTED. NULL is allowed. -EDEADLK from a callback: nothing
 * is closed. In the child of a fork the parent's connection goes on. */
int kv_close(RDMAD_KV_ANY *kv_handle);

/*
 * The same, for bytes. Blocking; callbacks of other outstanding requests run meanwhile.
 */

/* kv_open with options (NULL: defaults). `share` (NULL: none) is another handle whose queues this one uses, too: both
 * then belong to one thread, and kv_progress of either serves both. For many connections in one thread this is cheaper
 * than separate handles. They may be closed in any order. */
int kv_open_options(const char *server, const struct rdmad_options *options, RDMAD_KV_ANY *share, void **kv_handle);

/* The same with a handle of its own type. */
int rdmad_kv_open(const char *server, const struct rdmad_options *options, struct rdmad_kv *share,
		  struct rdmad_kv **kv);

int kv_set_bytes(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len);
/* *value has *value_len bytes and a 0 byte behind them; kv_release gives it back, in the thread of the handle or
 * after kv_close. -ENOENT: no such key. *value is NULL after a failure. */
int kv_get_bytes(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len);
/* 1: was deleted, 0: no such key. */
int kv_delete(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len);
/* 1 or 0. */
int kv_exists(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len);

/*
 * Asynchronous. Each accepted request calls back exactly once. Callbacks run in the program's own thread, while it is
 * in kv_progress, kv_arm, a blocking call or kv_close; what a progress thread finds finished waits for one of these
 * calls.
 *
 * Requests for the same key are carried out in the order in which they were submitted. Requests whose key and value go
 * in the message are answered in that order, whatever their keys; the answer about a large value may come later. A get
 * of a large value asks the server twice if it does not know the length. Writes that were submitted after the get do
 * not change its result: it gets the value from before them, or -ESTALE if the server could not keep that.
 *
 * Submitted requests leave together, in one message, with the next kv_progress or kv_flush. Where there is a progress
 * thread, they leave without these calls after a few milliseconds.
 */

/* status: 0 or a negative errno as above. value: of a get, valid during the call; NULL otherwise. The
 * callback may submit, but not close the handle. NULL: not wanted. */
typedef void (*kv_callback)(void *arg, int status, const void *value, size_t value_len);

/* If the server keeps a log with the policy "always", the answer to a write may come after the answers to later
 * requests for other keys. The answer to a write with KV_DURABLE may come late under "interval", too, and then even
 * after the answers to later requests for the same key; they are carried out after the write all the same.
 *
 * Returns 0: accepted; -EAGAIN: as many requests are outstanding as the handle or the server takes, call kv_progress
 * first. The key is copied before the call returns, and so is a value that goes in the message. A larger value (see
 * kv_eager_max) is fetched from where it lies, and must stay unchanged until the callback has been called. */
int kv_submit_set(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  kv_callback done, void *arg);
int kv_submit_get(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);
int kv_submit_delete(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);
/* status 0 or -ENOENT. */
int kv_submit_exists(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);

/* The value goes to the caller's buffer, from 4 KiB on without a copy. The buffer must stay until the callback has been
 * called, whose `value` is then `buffer`. -EMSGSIZE: the value is longer than `size`, and value_len says how long. */
int kv_submit_get_into(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void *buffer, size_t size,
		       kv_callback done, void *arg);

/*
 * Versions, conditions and expiry. Each write of a key gives it a higher version, also if the key was deleted in
 * between. No version is 0. A time to live (ttl) is in microseconds, from the moment when the server carries the
 * request out; 0: the key does not expire.
 *
 * Each call has a kv_submit_ variant, which does not wait and calls back, as kv_submit_get does for kv_get_bytes.
 */
enum kv_condition {
	KV_ALWAYS,
	KV_IF_ABSENT,  /* else -EEXIST */
	KV_IF_PRESENT, /* else -ENOENT */
	KV_IF_VERSION, /* the key has this version; else -ESTALE, or -ENOENT where it is missing */

	/* May be added to any of these: the answer comes when the value is on the server's disk, whatever the server's
	 * log.policy is. -EOPNOTSUPP: the server keeps no log, and nothing was set. */
	KV_DURABLE = 64
};

#define KV_TTL_KEEP UINT64_MAX /* the new value expires when the old one would have */

struct kv_put_options {
	enum kv_condition condition; /* perhaps with KV_DURABLE: (enum kv_condition)(KV_IF_ABSENT | KV_DURABLE) */
	uint64_t version;            /* of KV_IF_VERSION */
	uint64_t ttl_us;             /* or KV_TTL_KEEP */
};

struct kv_meta {
	uint64_t length; /* of the value */
	uint64_t version;
	uint64_t ttl_us; /* what is left of it */
};

/* What an answer brings; valid while the callback runs. */
struct kv_result {
	int status;        /* 0 or a negative errno; the rest is set when it is 0 */
	const void *value; /* of a get or fetch */
	size_t value_len;  /* the same; with -EMSGSIZE: how long it would have been */
	struct kv_meta
		meta;   /* of a stat: all; of a fetch, append or set_range: length and version of the whole value; of
	                      * a get, put, incr or count: the version; else 0 */
	int64_t number; /* of an incr or count; of an mset: how many items failed; of a lease: its microseconds */
	uint32_t flags; /* of a stat, as by kv_type */
	uint8_t type;   /* likewise, an enum kv_value_type */
};
typedef void (*kv_result_callback)(void *arg, const struct kv_result *result);

/* Set under a condition (options NULL: always, for ever). *version (may be NULL): of what was stored. */
int kv_put(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	   const struct kv_put_options *options, uint64_t *version);
int kv_submit_put(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  const struct kv_put_options *options, kv_result_callback done, void *arg);

/* kv_get_bytes that also tells the version, to put with KV_IF_VERSION. */
int kv_get_version(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len,
		   uint64_t *version);
int kv_submit_get_version(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg);

/* Length, version and time left, without the value. -ENOENT. */
int kv_stat(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, struct kv_meta *meta);
int kv_submit_stat(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg);

/* What a value is. The calls that read or change values take strings, others say -EMEDIUMTYPE; those that write, delete
 * or expire a whole key take any, and what they write is a string. */
enum kv_value_type { KV_STRING, KV_HASH };

/* The value's type, perhaps one of a later server that is not here; or -ENOENT. *flags (may be NULL): a number that the
 * client which wrote it has given it, as those of memcached do; else 0. A server from before there were types says
 * KV_STRING and 0. */
int kv_type(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint32_t *flags);

/* Change the time to live, not the version. 1: done, 0: no such key (submitted: 0, -ENOENT). */
int kv_expire(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t ttl_us);
int kv_submit_expire(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, kv_result_callback done,
		     void *arg);

/* 1: was deleted, 0: no such key (submitted: 0, -ENOENT), -ESTALE: it has another version. version 0: -EINVAL. */
int kv_delete_if(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t version);
int kv_submit_delete_if(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t version,
			kv_result_callback done, void *arg);

/* Add `delta` to a value that is a decimal number (missing: 0), as one step; the ttl stays. *number: the sum;
 * *version; both may be NULL. -EDOM: the value is not a whole number in 64 bits; -ERANGE: the sum is not: nothing
 * was changed. */
int kv_incr(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, int64_t delta, int64_t *number,
	    uint64_t *version);
int kv_submit_incr(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, int64_t delta, kv_result_callback done,
		   void *arg);

/* The same with a ttl for a key that was missing: the number that the call makes expires after ttl_us (0: never). The
 * ttl of a number that is there already stays. So one call is enough to count what happens within some time. */
int kv_count(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, int64_t delta, uint64_t ttl_us, int64_t *number,
	     uint64_t *version);
int kv_submit_count(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, int64_t delta, uint64_t ttl_us,
		    kv_result_callback done, void *arg);

/*
 * Parts of values, and values that are read and changed in one step.
 */
enum kv_then {
	KV_THEN_NOTHING,
	KV_THEN_DELETE, /* the key */
	KV_THEN_EXPIRE  /* after ttl_us from now; 0: never */
};

struct kv_fetch {
	uint64_t offset, length; /* of the part; what is beyond the value's end is left out */
	enum kv_then then;       /* what happens in the same step */
	uint64_t ttl_us;
};

/* Read a part (what NULL: all) to the caller's buffer, which must stay until the call has returned, or the callback has
 * been called. *len: bytes of the part; *meta: length and version of the whole value; both may be NULL. -ENOENT;
 * -EMSGSIZE: the part is longer than `size`: *len says how long, and nothing was done. If the connection ends, the key
 * may have been deleted although the value did not come.
 *
 * A callback's value is `buffer`. With buffer NULL and size 0, for parts of up to 4096 bytes, it is memory of the
 * library, valid while the callback runs; it is NULL if the part is empty. */
int kv_fetch(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void *buffer,
	     size_t size, size_t *len, struct kv_meta *meta);
int kv_submit_fetch(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void *buffer,
		    size_t size, kv_result_callback done, void *arg);

/* Short forms of kv_fetch: all of the value; `size` bytes from an offset on; all of it in memory of the library, as by
 * kv_get_bytes, while the key is deleted, or gets another time to live, in the same step. */
int kv_get_into(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void *buffer, size_t size, size_t *value_len);
int kv_get_range(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t offset, void *buffer, size_t size,
		 size_t *len);
int kv_get_delete(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len);
int kv_get_touch(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, void **value,
		 size_t *value_len);

/* Set, and get what was there before: *old is NULL if there was nothing, else kv_release gives it back. Takes two round
 * trips, and more while others write the key; -ESTALE: they did so again and again, and nothing was set. */
int kv_get_set(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	       void **old, size_t *old_len);

/* Write bytes behind the value's end, or at an offset of it. A missing key counts as an empty value, and what lies
 * between the value's end and the offset becomes zeros. The ttl stays. *length (may be NULL): of the whole value then.
 * A reader sees the change as a whole or not at all.
 *
 * This takes one round trip if key and bytes fit in a message and the value becomes no longer than 1 MiB. Otherwise the
 * whole value is fetched, changed here and put back, as by kv_get_set. The submitted variants do only the former, and
 * else return -EMSGSIZE. */
int kv_append(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *bytes, size_t len,
	      uint64_t *length);
int kv_submit_append(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *bytes, size_t len,
		     kv_result_callback done, void *arg);
int kv_set_range(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t offset, const void *bytes,
		 size_t len, uint64_t *length);
int kv_submit_set_range(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t offset, const void *bytes,
			size_t len, kv_result_callback done, void *arg);

/* A value whose bytes lie in several pieces of memory, in the order of the array: kv_put from them, kv_fetch to them
 * (all of the value with `what` NULL). The array and the pieces must stay until the call has returned, or the callback
 * has been called; a callback's value is NULL.
 *
 * If the value does not fit in a message, pieces of more than 4096 bytes are read and written where they lie. Shorter
 * ones are copied, to travel together. All pieces are copied if there would still be more than 16 ranges, or if the
 * server is an older one that takes only one range. */
int kv_putv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
	    const struct kv_put_options *options, uint64_t *version);
int kv_submit_putv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
		   const struct kv_put_options *options, kv_result_callback done, void *arg);
int kv_fetchv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what,
	      const struct iovec *pieces, size_t count, size_t *len, struct kv_meta *meta);
int kv_submit_fetchv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what,
		     const struct iovec *pieces, size_t count, kv_result_callback done, void *arg);

/* A checksum of all bytes of the pieces, in their order: XXH3 in 64 bits. For values that bring theirs, as 8 bytes
 * behind the others: the writer appends it as one piece more, and the reader compares it. So what is read is what was
 * stored, whatever happened on the way between the two memories. 0, and rdmad_error() has words: a piece lies in
 * registered memory of a device. */
uint64_t kv_checksum(const struct iovec *pieces, size_t count);

/* Say how long the value of this key is. The next get of it is prepared for that, which saves a round trip if the value
 * is large. */
int kv_expect_length(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t length);

/*
 * All keys. These calls wait; they have no kv_submit_ variants.
 */

/* Called for each key. It may use the handle, and also wait or delete. If it returns anything but 0, the walk stops. */
typedef int (*kv_scan_callback)(void *arg, const void *key, size_t key_len, const struct kv_meta *meta);

/* One page of the keys that begin with the prefix (length 0: all keys), at most `limit` of them (0: as many as one
 * message takes). Set *cursor to 0 to begin; it is 0 again after the last page. Pages before the last may be empty.
 * Returns how many keys the page had, or what the callback returned if that was not 0; *cursor is unchanged then. A key
 * that is there during the whole walk comes at least once, and usually only once; others may or may not come.
 * -ESTALE, with the last page: slots of a cluster may have moved meanwhile, and keys of these may be missing: begin
 * anew. That looks at the walk that the handle began last. */
int kv_scan(RDMAD_KV_ANY *kv_handle, uint64_t *cursor, const void *prefix, size_t prefix_len, unsigned limit,
	    kv_scan_callback each, void *arg);

/* All pages. 0, what the callback returned when not 0, or an error. */
int kv_each(RDMAD_KV_ANY *kv_handle, const void *prefix, size_t prefix_len, kv_scan_callback each, void *arg);

/* Delete all keys, of all clients. *deleted (may be NULL): how many. Keys that are written meanwhile may stay. */
int kv_delete_all(RDMAD_KV_ANY *kv_handle, uint64_t *deleted);

/* Delete the keys that begin with the prefix, which must not be empty. *deleted (may be NULL): how many, also after an
 * error. */
int kv_delete_prefix(RDMAD_KV_ANY *kv_handle, const void *prefix, size_t prefix_len, uint64_t *deleted);

/* The server's limits and what it holds. */
struct kv_info {
	uint64_t key_max, eager_max, value_max; /* bytes */
	uint64_t keys;
	uint64_t bytes_used, bytes_total;          /* of its memory for keys and values */
	uint64_t hits, misses, evictions, expired; /* since it started */
};
int kv_info(RDMAD_KV_ANY *kv_handle, struct kv_info *info);

/*
 * Many keys in one call, with as many requests outstanding as the handle takes. The calls wait until all items are
 * answered. They return 0, or the error of the first item that has one; -ETIMEDOUT, -ENOTCONN: there was no answer for
 * some. An item's error does not stop the others. At most 1024 requests are outstanding at a time, however large their
 * values are, and kv_mget holds the values of all of them; an item for which there is no memory gets -ENOMEM.
 */
struct kv_item {
	const void *key;
	size_t key_len;
	const void *value; /* of kv_mset */
	size_t value_len;
	int status; /* set by the call: 0 or a negative errno */
};

/* options as of kv_put, the same for all; NULL: as kv_set_bytes. */
int kv_mset(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count, const struct kv_put_options *options);

/* Calls back once for each item, with its index, as soon as it is answered; the value is valid while the callback runs.
 * A missing key has status -ENOENT, which does not count as an error of kv_mget. The callback may submit requests, but
 * not wait. */
typedef void (*kv_mget_callback)(void *arg, size_t index, int status, const void *value, size_t value_len);
int kv_mget(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count, kv_mget_callback each, void *arg);

/* kv_mget to the callers' buffers. value_len is also set with -EMSGSIZE. */
struct kv_place {
	const void *key;
	size_t key_len;
	void *buffer;
	size_t size;
	size_t value_len; /* set by the call */
	int status;       /* the same */
};
int kv_mget_into(RDMAD_KV_ANY *kv_handle, struct kv_place *places, size_t count);

/* Ask which keys are there: the status of each item is 0 or -ENOENT. Returns how many items come before the first
 * missing key, or an error. With `stop`, keys far behind the first missing one are not asked for; their status is
 * -ECANCELED. */
int64_t kv_mexists(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count, bool stop);

/* Leases: a value that was found is not evicted for some time, so that it is there when it is read soon after. A lease
 * is of the value that there was: the key may be written or deleted, and expires. It ends with kv_mrelease, with its
 * time, or with the connection, also where another one is made in its place. The server has limits, see kv.lease_time
 * and kv.lease_memory in rdmad.conf(5): a lease may be shorter than was asked for, and a value found and not leased.
 *
 * kv_mlease is kv_mexists, which also leases what it finds, or gives a lease that there is another time. *leased, which
 * may be NULL, becomes how many have one. kv_mrelease ends leases; an item that has none has the status -ENOENT, which
 * is no error of the call. kv_submit_lease is for one key; lease_us 0 ends its lease. result->number becomes for how
 * long the value is leased, 0: it is not. -EOPNOTSUPP: the server is an older one. */
int64_t kv_mlease(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count, uint64_t lease_us, size_t *leased);
int kv_mrelease(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count);
int kv_submit_lease(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t lease_us,
		    kv_result_callback done, void *arg);

/* kv_mset that does not wait. It calls back once, when all items have their status: result->status is the first error,
 * and result->number is how many items failed. The items must stay until then. Returns how many items it took: the
 * first ones, as many as the handle has room for; -EAGAIN: none. */
int64_t kv_submit_mset(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count,
		       const struct kv_put_options *options, kv_result_callback done, void *arg);

/* kv_mget_into and kv_mexists that do not wait, otherwise as kv_submit_mset. A missing key is not a failure; of
 * kv_submit_mexists, number is how many items come before the first missing one. */
int64_t kv_submit_mget_into(RDMAD_KV_ANY *kv_handle, struct kv_place *places, size_t count, kv_result_callback done,
			    void *arg);
int64_t kv_submit_mexists(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count, kv_result_callback done,
			  void *arg);

/*
 * Requests by the array, and completions by the array in place of callbacks: for programs in whose language a call or a
 * callback is dear, and for programs that keep completions for later. Both kinds of requests may be outstanding on one
 * handle.
 */
enum kv_op {
	KV_OP_GET,
	KV_OP_SET,
	KV_OP_DELETE,
	KV_OP_STAT,
	KV_OP_EXPIRE,
	KV_OP_COUNT,
	KV_OP_APPEND,
	KV_OP_SET_RANGE,
	KV_OP_LEASE
};

/* Zero it, then set what the operation takes. */
struct kv_request {
	uint64_t tag; /* the caller's, which the completion brings back */
	enum kv_op op;
	enum kv_condition condition; /* of a set */
	const void *key;
	size_t key_len;
	void *value;      /* what is set or appended, which is only read; of a get: the buffer, which is written */
	size_t value_len; /* of both. A get without a buffer has value NULL and 0 here */
	/* of a set or get: `value` is an array of so many struct iovec, which stays, too; 0: it is the bytes */
	size_t pieces;
	uint64_t version;  /* of a set with KV_IF_VERSION; of a delete, 0: of any version */
	uint64_t ttl_us;   /* of a set, expire, count or lease, and of a get with KV_THEN_EXPIRE */
	uint64_t offset;   /* of a get or set_range */
	uint64_t length;   /* of a get: of the part that is read, 0: all behind the offset */
	int64_t delta;     /* of a count */
	enum kv_then then; /* of a get */
};

struct kv_completion {
	uint64_t tag;
	int status;          /* 0 or a negative errno; -ENOENT also of a delete or expire of a missing key */
	uint32_t flags;      /* of a stat */
	const void *value;   /* of a get: the buffer, or memory of the library, valid until the handle's next kv_done */
	uint64_t length;     /* of a get: bytes at `value`; with -EMSGSIZE: how long it would have been */
	struct kv_meta meta; /* as in struct kv_result */
	int64_t number;      /* of a count */
	uint8_t type;        /* of a stat, an enum kv_value_type */
};

/* Submit. Keys are copied before it returns; values and buffers have to stay as for kv_submit_set and kv_submit_fetch,
 * until the completion. A get without a buffer that reads a part, or is followed by something, takes up to 4096 bytes.
 *
 * Returns how many were accepted, the first ones. -EAGAIN: none, 1024 are outstanding or not taken by kv_done yet, or
 * the server takes no more now. Any other error is the first request's; one of a later request comes when that is the
 * first. */
int64_t kv_submit(RDMAD_KV_ANY *kv_handle, const struct kv_request *requests, size_t count);

/* Send what was submitted, and take up to `count` completions; while there is none, wait up to timeout_us (0: do not
 * wait, UINT64_MAX: for ever). They come in the order in which they became known. Returns how many; 0 after the
 * timeout; -ENOTCONN: there is none, and the connection has ended. */
int64_t kv_done(RDMAD_KV_ANY *kv_handle, struct kv_completion *completions, size_t count, uint64_t timeout_us);

/* kv_cancel of the requests with that tag: they complete with -ECANCELED. Returns how many there were. */
int kv_cancel_tag(RDMAD_KV_ANY *kv_handle, uint64_t tag);

/*
 * Changes of keys, by whatever client or the server itself, for programs that keep copies of values or of what is
 * there. See rdmad_kv_watch(3).
 */
enum kv_event_kind {
	KV_EVENT_STORED = 1, /* written */
	KV_EVENT_DELETED = 2,
	KV_EVENT_EXPIRED = 4,
	KV_EVENT_EVICTED = 8, /* to make room */
	KV_EVENT_TTL = 16,    /* it expires at another time, or no more */
	KV_EVENT_ALL = 31,

	/* Not to be asked for: all keys were deleted, told to those that watch KV_EVENT_DELETED; */
	KV_EVENT_FLUSHED = 32,
	/* from here on all is told: the watch has begun, or went on after the connection was made again; */
	KV_EVENT_BEGAN = 64,
	/* events are missing here, as the program took them too slowly. */
	KV_EVENT_MISSED = 128
};

struct kv_event {
	enum kv_event_kind kind;
	bool fresh;      /* of KV_EVENT_STORED: there was no such key */
	const void *key; /* NULL of those that are not to be asked for */
	size_t key_len;
	uint64_t missed; /* of KV_EVENT_MISSED: so many events, at most */
};

/* Watch the keys that begin with the prefix (length 0: all), as far as the client may read them: kinds of events,
 * KV_EVENT_STORED | KV_EVENT_DELETED ...; 0 ends it. A handle has one watch; another takes its place, and events of the
 * former that were not taken are dropped. Does not wait: KV_EVENT_BEGAN says when the server watches. -EOPNOTSUPP: the
 * server is an older one. */
int kv_watch(RDMAD_KV_ANY *kv_handle, const void *prefix, size_t prefix_len, unsigned kinds);

/* Send what was submitted, and take up to `count` events; while there is none, wait up to timeout_us (0: do not wait,
 * UINT64_MAX: for ever). Their keys are valid until the handle's next kv_events or kv_watch. Events of one key come in
 * the order of its changes. What is read behind an event is no older than it.
 *
 * Returns how many; 0 after the timeout; -EACCES: the client has no right to read such keys, or has lost it, and the
 * watch has ended; -EINVAL: there is none; -ENOTCONN. */
int64_t kv_events(RDMAD_KV_ANY *kv_handle, struct kv_event *events, size_t count, uint64_t timeout_us);

/*
 * Registered memory. The server's device reads values from 4 KiB on from the caller's memory, and writes them there.
 * Such memory has to be registered, which takes microseconds to milliseconds. Memory that the program has not
 * registered by these calls is registered for each request.
 */

/* A registered buffer of at least `size` bytes; give it back with kv_release. */
int kv_buffer_lend(RDMAD_KV_ANY *kv_handle, size_t size, void **buffer);
/* Register the caller's own memory for repeated use. -EEXIST: part of it is already; -ENOMEM: rdmad_error() says
 * what the limits are. Unregister it before it is freed; -EBUSY: requests use it. */
int kv_buffer_register(RDMAD_KV_ANY *kv_handle, void *addr, size_t len);

/*
 * Memory of a device, as an accelerator's. kv_buffer_register takes addresses of CUDA, too, in a program that has its
 * driver loaded, and exports the memory as a dmabuf; kv_buffer_register_dmabuf takes a dmabuf of any driver. Values are
 * then set from and got into it by its addresses, by every call of this header and from 1 byte on: the server's device
 * reads and writes them where they are, and no processor of this side touches them. See rdmad_kv(3).
 *
 * -EFAULT, before anything is sent: what a processor has to read lies there, as a key, a prefix, the bytes of kv_append
 * and kv_set_range; a value that is only in part in a registration of the handle; pieces of more than 16 ranges. The
 * program sees to it that the device has written a value before it is set, and reads none before the call is done.
 *
 * `len` bytes at `offset` of the dmabuf. *addr is the address by which the calls are to know them, at the same place of
 * a page as `offset`; NULL: becomes one that is nobody else's, and a fault to touch. The descriptor stays the caller's,
 * and may be closed at once. kv_buffer_unregister ends it, before the memory is given back. By tcp://, unix:// and
 * shared memory the descriptor is mapped, and a processor moves the bytes.
 *
 * -EOPNOTSUPP: the kernel (Linux 5.12), the driver of a device, or CUDA (11.7, with the open kernel modules) gives or
 * takes no dmabuf, or without RDMA it cannot be mapped: copy values to memory of the host, and use that. -EINVAL: the
 * range is not in it, or not at that place of a page. -EBADF, -EEXIST, -ENOMEM.
 */
int kv_buffer_register_dmabuf(RDMAD_KV_ANY *kv_handle, int fd, uint64_t offset, size_t len, void **addr);

int kv_buffer_unregister(RDMAD_KV_ANY *kv_handle, void *addr);

/*
 * When the connection ends, each request without an answer calls back, with -ECONNABORTED if it may have been carried
 * out, or with -ENOTCONN or -ESHUTDOWN if it was not. After that every call on the handle returns -ENOTCONN until
 * kv_reopen.
 *
 * A server that takes no new connections, or that is going to end, says so first: outstanding requests are still
 * answered, but new ones are not taken: they return -ESHUTDOWN, or -EAGAIN after kv_keep_connected. So no request fails
 * because a server restarts.
 */

/* Connect again, to the server of kv_open. The handle keeps its registered and lent memory, the lengths that it
 * remembers, and the handles that it shares with. Outstanding requests end as by kv_close. Errors as of kv_open; the
 * call may be made again later. */
int kv_reopen(RDMAD_KV_ANY *kv_handle);

/* From now on kv_progress and the calls that wait do so by themselves: they try to connect again, to the address that
 * was reached before, for up to for_us microseconds after each end of the connection, with pauses of 10 ms to 1 s
 * between the tries. 0 (the default): they do not; UINT64_MAX: they never give up. Meanwhile submissions return
 * -EAGAIN. Calls that wait go on waiting, and send again what was not carried out. */
int kv_keep_connected(RDMAD_KV_ANY *kv_handle, uint64_t for_us);

/* Requests that are submitted from now on end with -ETIMEDOUT if for so long no answer has come to the handle, and no
 * byte of a large value has moved. 0 (the default): they wait as long as the connection lives. For calls that wait,
 * `timeout_us` of the options is that time. */
int kv_request_timeout(RDMAD_KV_ANY *kv_handle, uint64_t timeout_us);

/* End all outstanding requests that were submitted with this `arg`, by -ECANCELED. Their callbacks are called before
 * this call returns; requests that these callbacks submit are not ended. Returns how many there were. The server may
 * still carry them out. It cannot reach memory any more that was registered for one of them alone: if it tries to, the
 * connection ends. Memory that stays registered may still be read or written. */
int kv_cancel(RDMAD_KV_ANY *kv_handle, const void *arg);

/* Send what was submitted. */
int kv_flush(RDMAD_KV_ANY *kv_handle);

/* Send, receive and call back; wait up to timeout_us (0: do not wait, UINT64_MAX: for ever) until at least one request
 * has completed. Returns how many have, of all handles that share; 0 after the timeout, or earlier if there is room
 * again after an -EAGAIN (but not with UINT64_MAX); -ENOTCONN. */
int kv_progress(RDMAD_KV_ANY *kv_handle, uint64_t timeout_us);

/* Wait until nothing is outstanding on this handle; -ETIMEDOUT if there was no progress for `timeout_us` of its
 * options. */
int kv_wait(RDMAD_KV_ANY *kv_handle);

/* Requests that were submitted and have not called back. */
size_t kv_outstanding(const RDMAD_KV_ANY *kv_handle);

/* For a caller's own loop: a descriptor that becomes readable when kv_progress has work, also when a time is over. Call
 * kv_arm before each sleep. 0: sleep; 1: there is work now, call kv_progress instead; -ENOTCONN: nothing will come any
 * more. */
int kv_fd(const RDMAD_KV_ANY *kv_handle);
int kv_arm(RDMAD_KV_ANY *kv_handle);

/*
 * Clusters: rdmad-cluster(7). A handle of cluster:ADDRESS,... asks the first of these servers that answers for the
 * table of all; cluster:/path reads that first. Each request goes to the server that has its key; a server that has it
 * no more brings the newer table, and the request goes on there. Calls about all keys ask each server, kv_info adds up,
 * and kv_watch tells KV_EVENT_BEGAN for each. Each server is connected to by itself, and again when that has ended; its
 * requests end as those of any handle, later ones with -ENOTCONN until it is back, and those for other servers go on.
 * Answers of several servers come in any order. All servers are reached by RDMA, or all by other transports, as the
 * first is. Behind a request that waits to be submitted again those for its slot wait, too, and keep their order. While
 * the table changes, one that was on its way before the answer came may still be carried out first. kv_outstanding,
 * kv_flush and the like are of all servers; kv_eager_max and kv_value_max are the least that one has. -EREMOTE: no
 * server has the key's slot, or two do not agree about it.
 */

/* The table's text as the server has it, given back with kv_release; NULL where its epoch is *epoch, that of the table
 * which the caller has already (0: none). *epoch becomes the server's. -EOPNOTSUPP: the server is of no cluster, or an
 * older one; -EPROTO: what it sent is no table. */
int kv_cluster_table(RDMAD_KV_ANY *kv_handle, uint64_t *epoch, char **table);

enum kv_cluster_flag {
	KV_CLUSTER_MISS = 1 /* what a server has that cannot be reached is not there: reads are answered -ENOENT */
};
/* How a handle of a cluster deals with servers that are not there: KV_CLUSTER_MISS, or 0, as at first: -ENOTCONN and
 * its like. Of no effect on a handle of one server. */
int kv_cluster_flags(RDMAD_KV_ANY *kv_handle, unsigned flags);

/* A status of a callback, an item or a call in words, never NULL. */
const char *kv_status_text(int status);
/* 1: this status is an answer of the server; 0: it tells why there is no answer. */
int kv_status_answered(int status);

/* "rdma", "tcp", "tls" (TCP, encrypted), "unix" or "shm": shared memory. */
const char *kv_transport(const RDMAD_KV_ANY *kv_handle);
/* The longest key plus value that the server takes in one message, and the longest value that it takes at all. */
uint64_t kv_eager_max(const RDMAD_KV_ANY *kv_handle);
uint64_t kv_value_max(const RDMAD_KV_ANY *kv_handle);

#ifdef __cplusplus
}
#endif

#endif
