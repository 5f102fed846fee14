/*
 * kv.h: the key/value store of rdmad. See rdmad_kv(3) and rdmad_kv_version(3).
 *
 * Keys are 1 to 4095 bytes. Key plus value below 4096 bytes travel in one message each way. Larger values never pass
 * through a message: the server reads them from and writes them to the caller's memory.
 *
 * A handle belongs to one thread at a time. Errors are negative errno values:
 *   -EINVAL a NULL pointer or an empty key   -ENAMETOOLONG key over 4095 bytes
 *   -EMSGSIZE value over the limit          -ENOMEM the store is full
 *   -ENOENT no such key                     -ETIMEDOUT no answer in time
 *   -ENOTCONN the connection has ended
 *   -EEXIST, -ESTALE the condition of a put or delete did not hold
 *   -EDOM not a number                      -ERANGE the number would leave 64 bits
 *   -EDEADLK a call that waits, from inside a callback: nothing was done
 * rdmad_error() says it in words.
 */
#ifndef RDMAD_KV_H
#define RDMAD_KV_H

#include <rdmad/rdmad.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The five calls. servername is host[:port] (RDMA where both ends have it, else software),
 * rdma://host[:port], tcp://host[:port] or unix:///path. -ECONNREFUSED nothing listens there, -EOPNOTSUPP the server has no
 * kv, -EUSERS too many connections, -ESHUTDOWN it takes no more ...: librdmad(3) lists all errors of opening a handle.
 */
int kv_open(char *servername, void **kv_handle);
int kv_set(void *kv_handle, const char *key, const char *value);
/* A missing key is "" and success. *value is given back with kv_release. */
int kv_get(void *kv_handle, const char *key, char **value);
void kv_release(char *value);
/* Outstanding requests end with -ECONNABORTED. NULL is allowed. -EDEADLK from a callback: nothing
 * is closed. */
int kv_close(void *kv_handle);

/*
 * The same, for bytes. Blocking; callbacks of other outstanding requests run meanwhile.
 */

/* kv_open with options (NULL: defaults). `share` (NULL: none) is another handle whose queues and
 * progress this one shares: both then belong to one thread, and kv_progress of either serves
 * both. Cheaper than separate handles for many connections in one thread. Close in any order. */
int kv_open_options(const char *server, const struct rdmad_options *options, void *share, void **kv_handle);

int kv_set_bytes(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len);
/* *value has *value_len bytes and a 0 byte behind them; kv_release gives it back, in the thread of the handle or
 * after kv_close. -ENOENT: no such key. */
int kv_get_bytes(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len);
/* 1: was deleted, 0: no such key. */
int kv_delete(void *kv_handle, const void *key, size_t key_len);
/* 1 or 0. */
int kv_exists(void *kv_handle, const void *key, size_t key_len);

/*
 * Asynchronous. Each accepted request calls back exactly once, from kv_progress, kv_arm, a blocking call or
 * kv_close, in the thread that calls these: a progress thread keeps for them what it found finished. Requests for one key are carried out in order, and eager ones are answered in order; a large value's
 * answer may come later, and a get that has to ask again, as it did not know the length, may see a set that was
 * submitted behind it. Submitted requests leave in one message with the next kv_progress or kv_flush,
 * or without them a few milliseconds later where there is a progress thread.
 */

/* status: 0 or a negative errno as above. value: of a get, valid during the call; NULL otherwise. The
 * callback may submit, but not close the handle. NULL: nobody wants to know. */
typedef void (*kv_callback)(void *arg, int status, const void *value, size_t value_len);

/* 0 accepted; -EAGAIN: as many are outstanding as the handle takes, progress first. The key is copied before
 * the call returns, and so is a value that goes in the message; a larger one (see kv_eager_max) is fetched
 * from where it is, and must stay unchanged until the callback was called. */
int kv_submit_set(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  kv_callback done, void *arg);
int kv_submit_get(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);
int kv_submit_delete(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);
/* status 0 or -ENOENT. */
int kv_submit_exists(void *kv_handle, const void *key, size_t key_len, kv_callback done, void *arg);

/* The value goes to the caller's buffer (from 4 KiB on without a copy), which must stay until the callback was called: value is
 * `buffer` then. -EMSGSIZE: it is longer than `size`, value_len says how long. */
int kv_submit_get_into(void *kv_handle, const void *key, size_t key_len, void *buffer, size_t size, kv_callback done,
		       void *arg);

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
	KV_IF_VERSION  /* the key has this version; else -ESTALE, or -ENOENT where it is missing */
};

struct kv_put_options {
	enum kv_condition condition;
	uint64_t version; /* of KV_IF_VERSION */
	uint64_t ttl_us;
};

struct kv_meta {
	uint64_t length; /* of the value */
	uint64_t version;
	uint64_t ttl_us; /* what is left of it */
};

/* What an answer brings, valid during the call. */
struct kv_result {
	int status;          /* 0 or a negative errno; the rest is set when it is 0 */
	const void *value;   /* of a get */
	size_t value_len;    /* of a get */
	struct kv_meta meta; /* of a stat: all; of a get, put or incr: the version; else 0 */
	int64_t number;      /* of an incr */
};
typedef void (*kv_result_callback)(void *arg, const struct kv_result *result);

/* Set under a condition (options NULL: always, for ever). *version (may be NULL): of what was stored. */
int kv_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
	   const struct kv_put_options *options, uint64_t *version);
int kv_submit_put(void *kv_handle, const void *key, size_t key_len, const void *value, size_t value_len,
		  const struct kv_put_options *options, kv_result_callback done, void *arg);

/* kv_get_bytes that also tells the version, to put with KV_IF_VERSION. */
int kv_get_version(void *kv_handle, const void *key, size_t key_len, void **value, size_t *value_len,
		   uint64_t *version);
int kv_submit_get_version(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg);

/* Length, version and time left, without the value. -ENOENT. */
int kv_stat(void *kv_handle, const void *key, size_t key_len, struct kv_meta *meta);
int kv_submit_stat(void *kv_handle, const void *key, size_t key_len, kv_result_callback done, void *arg);

/* Change the time to live, not the version. 1: done, 0: no such key (submitted: 0, -ENOENT). */
int kv_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us);
int kv_submit_expire(void *kv_handle, const void *key, size_t key_len, uint64_t ttl_us, kv_result_callback done,
		     void *arg);

/* 1: was deleted, 0: no such key (submitted: 0, -ENOENT), -ESTALE: it has another version. version 0: -EINVAL. */
int kv_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version);
int kv_submit_delete_if(void *kv_handle, const void *key, size_t key_len, uint64_t version, kv_result_callback done,
			void *arg);

/* Add `delta` to a value that is a decimal number (missing: 0), as one step; the ttl stays. *number: the sum;
 * *version; both may be NULL. -EDOM: the value is not a whole number in 64 bits; -ERANGE: the sum is not: nothing
 * was changed. */
int kv_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, int64_t *number, uint64_t *version);
int kv_submit_incr(void *kv_handle, const void *key, size_t key_len, int64_t delta, kv_result_callback done, void *arg);

/*
 * All keys. These wait; there is no submitted variant.
 */

/* One key of a walk; it may use the handle, also to wait or delete. Not 0: stop. */
typedef int (*kv_scan_callback)(void *arg, const void *key, size_t key_len, const struct kv_meta *meta);

/* One page of the keys that begin with the prefix (length 0: all), at most `limit` (0: as many as one
 * message takes). *cursor is 0 to begin, and 0 again at the end; a page may be empty before that. Returns how many keys the
 * page had, or what the callback returned when not 0: *cursor is unchanged then. A key that is there during the whole
 * walk comes at least once, mostly once; others may or may not come. */
int kv_scan(void *kv_handle, uint64_t *cursor, const void *prefix, size_t prefix_len, unsigned limit,
	    kv_scan_callback each, void *arg);

/* All pages. 0, what the callback returned when not 0, or an error. */
int kv_each(void *kv_handle, const void *prefix, size_t prefix_len, kv_scan_callback each, void *arg);

/* Delete all keys, of all clients. *deleted (may be NULL): how many. What is written meanwhile may stay. */
int kv_delete_all(void *kv_handle, uint64_t *deleted);

/* The server's limits and what it holds. */
struct kv_info {
	uint64_t key_max, eager_max, value_max; /* bytes */
	uint64_t keys;
	uint64_t bytes_used, bytes_total;          /* of its memory for keys and values */
	uint64_t hits, misses, evictions, expired; /* since it started */
};
int kv_info(void *kv_handle, struct kv_info *info);

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
int kv_mset(void *kv_handle, struct kv_item *items, size_t count, const struct kv_put_options *options);

/* Calls back once for each item, with its index, as soon as it is answered; value is valid during the call. A missing
 * key has status -ENOENT, and does not count as an error of kv_mget. The callback may submit, not wait. */
typedef void (*kv_mget_callback)(void *arg, size_t index, int status, const void *value, size_t value_len);
int kv_mget(void *kv_handle, struct kv_item *items, size_t count, kv_mget_callback each, void *arg);

/*
 * Registered memory. Values from 4 KiB on are read from and written to the caller's memory by the
 * server's device, for which it must be registered: that takes microseconds to milliseconds. Memory that is not
 * is registered for each request.
 */

/* A registered buffer of at least `size` bytes; give it back with kv_release. */
int kv_buffer_lend(void *kv_handle, size_t size, void **buffer);
/* Register the caller's own memory for repeated use. -EEXIST: part of it is already; -ENOMEM: rdmad_error() says
 * what the limits are. Unregister it before it is freed; -EBUSY: requests use it. */
int kv_buffer_register(void *kv_handle, void *addr, size_t len);
int kv_buffer_unregister(void *kv_handle, void *addr);

/* Send what was submitted. */
int kv_flush(void *kv_handle);

/* Send and receive, call back; wait up to timeout_us (0: do not wait, UINT64_MAX: for ever) until at least one
 * request completed. Returns how many completed (of all handles that share), 0 after the timeout, -ENOTCONN. */
int kv_progress(void *kv_handle, uint64_t timeout_us);

/* Until nothing is outstanding on this handle, or `timeout_us` of its options passed. */
int kv_wait(void *kv_handle);

/* Requests that were submitted and have not called back. */
size_t kv_outstanding(const void *kv_handle);

/* For a caller's own loop: a descriptor that becomes readable when kv_progress has work. Call kv_arm before
 * each sleep: 0: sleep; 1: there is work now, call kv_progress instead. */
int kv_fd(const void *kv_handle);
int kv_arm(void *kv_handle);

/* A status of a callback, an item or a call in words, never NULL. */
const char *kv_status_text(int status);
/* 1: the server answered so; 0: the status tells why there is no answer, as do rdmad_error() and the errors above. */
int kv_status_answered(int status);

/* "rdma", "tcp" or "unix". */
const char *kv_transport(const void *kv_handle);
/* Longest key plus value that the server takes by one message, and longest value at all. */
uint64_t kv_eager_max(const void *kv_handle);
uint64_t kv_value_max(const void *kv_handle);

#ifdef __cplusplus
}
#endif

#endif
