/*
 * kv.h: what the files of the caller's half of the key/value service share: kv.c, the five calls and theirs for bytes and
 * large values; kv_more.c, versions, conditions, expiry, numbers, walks; kv_batch.c, many keys in one call.
 */
#ifndef RDMAD_CLIENT_KV_H
#define RDMAD_CLIENT_KV_H

#include <rdmad/kv.h>

#include "client/client.h"

#define SLOTS 1024 /* requests outstanding on one handle; a power of two */
#define SLOT_BITS 10
_Static_assert(1 << SLOT_BITS == SLOTS, "an id is a slot and its generation");

#define SIZES 1024 /* keys whose value's length is remembered */
#define TRIES 8    /* a value that grows faster than it can be fetched */

struct request {
	kv_callback done; /* NULL: the slot is free */
	void *arg;
	uint32_t id;
	uint32_t next; /* free slot behind this one, or finished one */
	bool large;    /* what is for large values is in use */
	bool more;     /* what is for kv_more.c is in use */
	bool copied;   /* value, below, is ours */
	uint8_t tries;
	int status; /* what its callback is still to be told, when the progress thread finished it */
	const void *value;
	size_t value_len;
	uint64_t key_hash;       /* of a GET with a landing buffer */
	struct landing *landing; /* of a GET, ours */
	void *into;              /* of a GET, the caller's */
	size_t into_size;
	struct reach reach; /* the caller's memory */
	enum wire_op op;    /* kv_more.c: what was asked, and what its answer told */
	kv_result_callback result;
	void *result_arg;
	struct kv_meta meta;
	int64_t number;
};

/* A GET to be sent again with a landing buffer of the right size, when there is room. */
struct again {
	struct again *next;
	uint32_t id;
	size_t key_len;
	char key[];
};

struct remembered {
	uint64_t hash, length;
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
	struct buffers *buffers;
	struct landing *lent; /* during a callback: who keeps the value takes it */
	struct again *again, **again_tail;
	struct deferred deferred;
	uint32_t finished, *finished_tail; /* slots that the progress thread left to the caller */
	bool sizes_used;
	struct remembered size[SIZES];
	struct request slot[SLOTS];
};

/* As engine_enter and engine_leave. What comes from the caller may be NULL. */
static inline void kv_enter(struct kv *kv)
{
	if (likely(kv))
		engine_enter(kv->engine);
}

static inline void kv_leave(struct kv *kv)
{
	if (likely(kv))
		engine_leave(kv->engine);
}

#pragma GCC visibility push(hidden) /* nothing of this leaves the library, so calls may be inlined */

/*
 * kv.c
 */

/* What of a request can be refused before it is sent. -EAGAIN: no slot is free. */
int request_check(const struct kv *kv, const void *key, size_t key_len, size_t value_len);

/* A free slot; request_check found that there is one. */
struct request *request_take(struct kv *kv);
struct request *request_take_large(struct kv *kv, kv_callback done, void *arg);

/* Submit a large SET, or with `put` a PUT. */
int request_set_large(struct kv *kv, const struct wire_put *put, const void *key, size_t key_len, const void *value,
		      size_t value_len, kv_callback done, void *arg, struct request **taken);

/* Submit a GET with a landing buffer of `size`; the slot is given back on failure. */
int request_get_large(struct kv *kv, struct request *r, const void *key, size_t key_len, uint64_t size);

/* The length that the key's value had last, 0: not known or small. */
uint64_t request_size(const struct kv *kv, const void *key, size_t key_len);

/* Answers: the value was too long for the message or the buffer; it landed; it is in the message; the end. */
int request_get_again(struct kv *kv, struct request *r, const struct wire_record *record, const char *body);
int request_get_landed(struct kv *kv, struct request *r, const struct wire_record *record, const char *body);
void request_get_inline(struct kv *kv, struct request *r, const char *body, size_t length);
void request_finish(struct kv *kv, struct request *r, int status, const void *value, size_t len);

/* A SET, GET, DELETE or EXISTS; *taken is its slot. */
int request_submit(struct kv *kv, enum wire_op op, const void *key, size_t key_len, const void *value, size_t value_len,
		   kv_callback done, void *arg, struct request **taken);

/* Nobody waits for the answer any more. */
void request_orphan(struct kv *kv, struct request *r);

/*
 * kv_blocking.c
 */

struct blocking {
	struct kv *kv;
	bool done;
	int status;
	bool want_value;
	char *value;
	size_t value_len;
};

/* The callback of a request that b, its argument, waits for. */
void blocking_done(void *arg, int status, const void *value, size_t value_len);

/* Wait for a request; rc is what submitting it returned. */
int blocking_wait(struct kv *kv, int rc, enum wire_op op, struct request *r, struct blocking *b);

/* Says the server's answers in words, where they have none yet. Returns status. */
int blocking_explained(int status, const char *what, size_t key_len, size_t value_len);

/*
 * kv_more.c
 */

/* The answer to a request with `more`. */
int request_more(struct kv *kv, struct request *r, const struct wire_record *record, const char *body);

#pragma GCC visibility pop

#endif
