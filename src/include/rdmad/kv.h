/*
 * kv.h: the key/value store of rdmad. See rdmad_kv(3) and rdmad_kv_version(3).
 *
 * Keys are 1 to 4095 bytes. Key plus value below 4096 bytes travel in one message each way. Larger values never pass
 * through a message: the server reads them from and writes them to the caller's memory.
 *
 * A handle belongs to one thread at a time, and to one process: in the child of a fork it can only be closed.
 *
 * Calls and callbacks have statuses: 0 (or a count), or a negative errno value. The server answered:
 *   -ENOENT no such key                     -ENOSPC the store is full
 *   -EMSGSIZE value over the limit, or longer than the store or the buffer
 *   -EEXIST, -ESTALE the condition of a put or delete did not hold; -ESTALE also of a get, see kv_submit_get
 *   -EDOM not a number                      -ERANGE the number would leave 64 bits
 *   -EOPNOTSUPP it does not know the call   -EIO it failed to carry it out
 * There is no answer, and the request may have been carried out:
 *   -ECONNABORTED the connection ended      -ETIMEDOUT nothing came for too long
 *   -ECANCELED kv_cancel                    -EPROTO the server breaks the protocol, and the connection ended
 * It was not carried out:
 *   -EINVAL a NULL pointer or an empty key   -ENAMETOOLONG key over 4095 bytes
 *   -EAGAIN the handle takes no more now: kv_progress, then again
 *   -ENOTCONN the connection has ended: kv_reopen
 *   -ESHUTDOWN the server is to end, or takes no new connections: kv_reopen when it is back
 *   -EDEADLK a call that waits, from inside a callback
 *   -EPERM the handle is of the process that forked
 * -ENOMEM: this program has no memory.
 * rdmad_error() says it in words, of the thread's last call.
 */
#ifndef RDMAD_KV_H
#define RDMAD_KV_H

#include <rdmad/rdmad.h>

#include <stdbool.h>
#include <sys/uio.h>

/*
 * A handle. It may be kept in a `struct rdmad_kv *` or in a `void *`. C takes both, and warns of a handle of another service;
 * C++ converts the former only where any pointer is taken.
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
 * The five calls. servername is host[:port] (RDMA where both ends have it, else software),
 * rdma://host[:port], tcp://host[:port] or unix:///path. -ECONNREFUSED nothing listens there, -EOPNOTSUPP the server has no
 * kv, -EUSERS too many connections, -ESHUTDOWN it takes no more ...: librdmad(3) lists all errors of opening a handle.
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

/* kv_open with options (NULL: defaults). `share` (NULL: none) is another handle whose queues and
 * progress this one shares: both then belong to one thread, and kv_progress of either serves
 * both. Cheaper than separate handles for many connections in one thread. Close in any order. */
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
 * Asynchronous. Each accepted request calls back exactly once, from kv_progress, kv_arm, a blocking call or
 * kv_close, in the thread that calls these: a progress thread keeps for them what it found finished. Requests for one key
 * are carried out in order, and eager ones are answered in order; a large value's answer may come later. A get that has to
 * ask again, as it did not know the length, has the value of before the writes behind it, or -ESTALE: the server could not
 * keep that. Submitted requests leave in one message with the next kv_progress or kv_flush,
 * or without them a few milliseconds later where there is a progress thread.
 */

/* status: 0 or a negative errno as above. value: of a get, valid during the call; NULL otherwise. The
 * callback may submit, but not close the handle. NULL: nobody wants to know. */
typedef void (*kv_callback)(void *arg, int status, const void *value, size_t value_len);

/* Where the server keeps a log with the policy "always", the answer of a write may come after those of later requests for other keys;
 * that of one with KV_DURABLE may under "interval", too, also after those for the same key, which are carried out behind it.
 *
 * 0 accepted; -EAGAIN: as many are outstanding as the handle or the server takes, progress first. The key is copied before
 * the call returns, and so is a value that goes in the message; a larger one (see kv_eager_max) is fetched
 * from where it is, and must stay unchanged until the callback was called. */
int kv_submit_set(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  kv_callback done, void *arg);
int kv_submit_get(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);
int kv_submit_delete(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);
/* status 0 or -ENOENT. */
int kv_submit_exists(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);

/* The value goes to the caller's buffer (from 4 KiB on without a copy), which must stay until the callback was called: value is
 * `buffer` then. -EMSGSIZE: it is longer than `size`, value_len says how long. */
int kv_submit_get_into(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void *buffer, size_t size,
		       kv_callback done, void *arg);

/*
 * Versions, conditions and expiry. Each write of a key gives it a higher version, also over a delete; none is 0.
 * A time to live (ttl) is in microseconds from when the server carries the request out; 0: does not expire.
 *
 * Of each call there is a kv_submit_ variant, which is to its blocking one as kv_submit_get is to kv_get_bytes.
 */
enum kv_condition {
	KV_ALWAYS,
	KV_IF_ABSENT,  /* else -EEXIST */
	KV_IF_PRESENT, /* else -ENOENT */
	KV_IF_VERSION, /* the key has this version; else -ESTALE, or -ENOENT where it is missing */

	/* Added to any of these: the answer comes when the value is on the server's disk, whatever its log.policy. -EOPNOTSUPP: it
	 * keeps no log, and nothing was set. */
	KV_DURABLE = 64
};

#define KV_TTL_KEEP UINT64_MAX /* what is left of that of the value that is replaced */

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

/* What an answer brings, valid during the call. */
struct kv_result {
	int status;        /* 0 or a negative errno; the rest is set when it is 0 */
	const void *value; /* of a get or fetch */
	size_t value_len;  /* the same; with -EMSGSIZE: how long it would have been */
	struct kv_meta
		meta;   /* of a stat: all; of a fetch, append or set_range: length and version of the whole value; of
	                      * a get, put, incr or count: the version; else 0 */
	int64_t number; /* of an incr or count; of an mset: how many items failed */
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

/* The same; a number that is made by it expires after ttl_us (0: does not), that of another stays: so what is counted within a
 * time needs one call. */
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

/* Read a part (what NULL: all) to the caller's buffer, which must stay until the call, or the callback, was. *len: of the part;
 * *meta: of the whole value, length and version; both may be NULL. -ENOENT; -EMSGSIZE: the part is longer than `size`, *len
 * says how long, and nothing was done. If the connection ends, the key may have been deleted though the value did not come.
 * A callback's value is `buffer`; with buffer NULL and size 0, for parts of up to 4096 bytes, it is valid during the call. It is NULL
 * where the part is empty and size 0. */
int kv_fetch(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void *buffer,
	     size_t size, size_t *len, struct kv_meta *meta);
int kv_submit_fetch(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what, void *buffer,
		    size_t size, kv_result_callback done, void *arg);

/* kv_fetch of all; of `size` bytes from an offset on; and of all, to memory as of kv_get_bytes, with deletion, or another time
 * to live. */
int kv_get_into(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void *buffer, size_t size, size_t *value_len);
int kv_get_range(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t offset, void *buffer, size_t size,
		 size_t *len);
int kv_get_delete(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len);
int kv_get_touch(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, void **value,
		 size_t *value_len);

/* Set, and get what was there before: *old is NULL if there was nothing, else kv_release gives it back. Two round trips, more
 * while others write the key; -ESTALE: they never stop. */
int kv_get_set(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	       void **old, size_t *old_len);

/* Write behind the value's end, or at an offset of it; a missing key is an empty value, and what lies between the value's end
 * and the offset becomes zeros. The ttl stays. *length (may be NULL): of the whole value. A reader sees all of it or nothing.
 * One round trip where key and bytes are eager and the value becomes no longer than 1 MiB; else value and bytes go both ways,
 * as by kv_get_set. The submitted ones are of the former kind only: else -EMSGSIZE. */
int kv_append(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *bytes, size_t len,
	      uint64_t *length);
int kv_submit_append(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const void *bytes, size_t len,
		     kv_result_callback done, void *arg);
int kv_set_range(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t offset, const void *bytes,
		 size_t len, uint64_t *length);
int kv_submit_set_range(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t offset, const void *bytes,
			size_t len, kv_result_callback done, void *arg);

/* A value that lies in pieces, one behind the other: kv_put from them, kv_fetch to them, which is kv_get_into with `what` NULL. The
 * array and the memory of pieces must stay until the call, or the callback, was; a callback's value is NULL. Where the
 * value does not fit a message, pieces of more than 4096 bytes are read and written where they are. Shorter ones are copied, to go
 * together; so are all where this makes more than 16 ranges, or the server is older and takes one only. */
int kv_putv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
	    const struct kv_put_options *options, uint64_t *version);
int kv_submit_putv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct iovec *pieces, size_t count,
		   const struct kv_put_options *options, kv_result_callback done, void *arg);
int kv_fetchv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what,
	      const struct iovec *pieces, size_t count, size_t *len, struct kv_meta *meta);
int kv_submit_fetchv(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, const struct kv_fetch *what,
		     const struct iovec *pieces, size_t count, kv_result_callback done, void *arg);

/* The next get of the key expects a value of this length, which saves it a round trip where that is large. */
int kv_expect_length(RDMAD_KV_ANY *kv_handle, const void *key, size_t key_len, uint64_t length);

/*
 * All keys. These wait; there is no submitted variant.
 */

/* One key of a walk; it may use the handle, also to wait or delete. Not 0: stop. */
typedef int (*kv_scan_callback)(void *arg, const void *key, size_t key_len, const struct kv_meta *meta);

/* One page of the keys that begin with the prefix (length 0: all), at most `limit` (0: as many as one
 * message takes). *cursor is 0 to begin, and 0 again at the end; a page may be empty before that. Returns how many keys the
 * page had, or what the callback returned when not 0: *cursor is unchanged then. A key that is there during the whole
 * walk comes at least once, mostly once; others may or may not come. */
int kv_scan(RDMAD_KV_ANY *kv_handle, uint64_t *cursor, const void *prefix, size_t prefix_len, unsigned limit,
	    kv_scan_callback each, void *arg);

/* All pages. 0, what the callback returned when not 0, or an error. */
int kv_each(RDMAD_KV_ANY *kv_handle, const void *prefix, size_t prefix_len, kv_scan_callback each, void *arg);

/* Delete all keys, of all clients. *deleted (may be NULL): how many. What is written meanwhile may stay. */
int kv_delete_all(RDMAD_KV_ANY *kv_handle, uint64_t *deleted);

/* Those that begin with the prefix, which is not empty. *deleted (may be NULL): how many, also of those before an error. */
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
 * Many keys in one call, as many outstanding as the handle takes. They wait until all are answered. 0, or the
 * first item's error; -ETIMEDOUT, -ENOTCONN: no answer for some. An item's error does not stop the others. Requests are bounded
 * by number, 1024, not by bytes: kv_mget holds so many large values at once; an item that finds no memory gets -ENOMEM.
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

/* Calls back once for each item, with its index, as soon as it is answered; value is valid during the call. A missing
 * key has status -ENOENT, and does not count as an error of kv_mget. The callback may submit, not wait. */
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

/* Which keys are there: status 0 or -ENOENT. Returns how many of the first ones are, without a gap, or an error. `stop`: keys far
 * behind the first missing one are not asked for, and have -ECANCELED. */
int64_t kv_mexists(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count, bool stop);

/* kv_mset that does not wait, and calls back once: result->status is the first error, result->number how many items failed;
 * each has its status by then. The items must stay until then. Returns how many of the items it took, the first ones, which is
 * as many as the handle takes; -EAGAIN: none. */
int64_t kv_submit_mset(RDMAD_KV_ANY *kv_handle, struct kv_item *items, size_t count,
		       const struct kv_put_options *options, kv_result_callback done, void *arg);

/*
 * Registered memory. Values from 4 KiB on are read from and written to the caller's memory by the
 * server's device, for which it must be registered: that takes microseconds to milliseconds. Memory that is not
 * is registered for each request.
 */

/* A registered buffer of at least `size` bytes; give it back with kv_release. */
int kv_buffer_lend(RDMAD_KV_ANY *kv_handle, size_t size, void **buffer);
/* Register the caller's own memory for repeated use. -EEXIST: part of it is already; -ENOMEM: rdmad_error() says
 * what the limits are. Unregister it before it is freed; -EBUSY: requests use it. */
int kv_buffer_register(RDMAD_KV_ANY *kv_handle, void *addr, size_t len);
int kv_buffer_unregister(RDMAD_KV_ANY *kv_handle, void *addr);

/*
 * When the connection ends. Each request without an answer calls back: -ECONNABORTED, it may have been carried out, or -ENOTCONN
 * or -ESHUTDOWN, it was not. The handle then answers every call by -ENOTCONN until kv_reopen.
 *
 * A server that takes no new connections or is to end says so first: what is outstanding is answered as ever, and nothing
 * more is taken: submissions return -ESHUTDOWN, or -EAGAIN where the connection is kept. So a restart fails nothing.
 */

/* Connect again, to the server of kv_open. What the handle has stays: registered and lent memory, remembered lengths, its
 * share. What is outstanding ends as by kv_close. Errors as kv_open: the handle may be reopened later. */
int kv_reopen(RDMAD_KV_ANY *kv_handle);

/* Have that done by kv_progress and the calls that wait, for up to for_us microseconds after each end of the connection (0, as at
 * first: not at all; UINT64_MAX: for ever), after pauses of 10 ms to 1 s, at the address that was reached. Meanwhile submissions
 * return -EAGAIN, and calls that wait go on waiting, also for what was not carried out. */
int kv_keep_connected(RDMAD_KV_ANY *kv_handle, uint64_t for_us);

/* Requests that are submitted from now on end with -ETIMEDOUT when for so long no answer came to the handle and no byte of a
 * large value moved (0, as at first: they wait as long as the connection lives). Calls that wait have `timeout_us` of
 * the options, by the same rule. */
int kv_request_timeout(RDMAD_KV_ANY *kv_handle, uint64_t timeout_us);

/* End all outstanding requests that were submitted with this `arg`, by -ECANCELED; their callbacks are called before it returns,
 * and what these submit is not among them. How many. They may still be carried out. Memory that was registered for one of them only is out of the server's reach then:
 * if the server comes for it, the connection ends. Memory that stays registered may still be read or written. */
int kv_cancel(RDMAD_KV_ANY *kv_handle, const void *arg);

/* Send what was submitted. */
int kv_flush(RDMAD_KV_ANY *kv_handle);

/* Send and receive, call back; wait up to timeout_us (0: do not wait, UINT64_MAX: for ever) until at least one
 * request completed. Returns how many completed (of all handles that share); 0 after the timeout, or before it when there
 * is room again after an -EAGAIN (not of UINT64_MAX); -ENOTCONN. */
int kv_progress(RDMAD_KV_ANY *kv_handle, uint64_t timeout_us);

/* Until nothing is outstanding on this handle; -ETIMEDOUT when nothing got on for `timeout_us` of its options. */
int kv_wait(RDMAD_KV_ANY *kv_handle);

/* Requests that were submitted and have not called back. */
size_t kv_outstanding(const RDMAD_KV_ANY *kv_handle);

/* For a caller's own loop: a descriptor that becomes readable when kv_progress has work, also by the time. Call kv_arm before
 * each sleep: 0: sleep; 1: there is work now, call kv_progress instead; -ENOTCONN: nothing will come any more. */
int kv_fd(const RDMAD_KV_ANY *kv_handle);
int kv_arm(RDMAD_KV_ANY *kv_handle);

/* A status of a callback, an item or a call in words, never NULL. */
const char *kv_status_text(int status);
/* 1: the server answered so; 0: the status tells why there is no answer, as do rdmad_error() and the errors above. */
int kv_status_answered(int status);

/* "rdma", "tcp", "unix" or "shm": shared memory. */
const char *kv_transport(const RDMAD_KV_ANY *kv_handle);
/* Longest key plus value that the server takes by one message, and longest value at all. */
uint64_t kv_eager_max(const RDMAD_KV_ANY *kv_handle);
uint64_t kv_value_max(const RDMAD_KV_ANY *kv_handle);

#ifdef __cplusplus
}
#endif

#endif
