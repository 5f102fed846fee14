/*
 * kv.h: what the files of the caller's half of the key/value service share.
 *
 *   kv_handle.c      open, close, options, what a handle tells, registered memory, the caller's own loop
 *   kv_slots.c       the table of requests: how one ends, and what a progress thread leaves to the caller
 *   kv_large.c       values that the server moves: landing buffers, the caller's memory, a get that asks again
 *   kv_operations.c  the table of operations, how a request is built and its answer read, and the calls about one key
 *   kv_calls.c       how such a call waits, and the calls about strings
 *   kv_walk.c        the calls about all keys
 *   kv_batch.c       many keys in one call
 *
 * A request is a slot in a table, found by the id that its answer brings back, and calls back exactly once. A slot is free
 * (done is NULL), or taken: sent, in the list `again` to be sent once more, or finished by the progress thread and in the
 * list `finished` until the caller's next turn.
 */
#ifndef RDMAD_CLIENT_KV_H
#define RDMAD_CLIENT_KV_H

#include <rdmad/kv.h>

#include "client/client.h"

#define KV_SLOTS 1024 /* requests outstanding on one handle; a power of two */
#define KV_SIZES 1024 /* keys whose value's length is remembered */

struct request {
	kv_callback done; /* NULL: the slot is free */
	void *arg;
	kv_result_callback result; /* NULL: the caller gave `done`; else what is done is to call this */
	uint32_t id;               /* the slot's number, and above it how often it was given back */
	uint32_t next;             /* free slot behind this one, or finished one */
	uint8_t op;                /* enum wire_op, as it was sent last: the answer has the same */
	bool large;                /* what is for large values is in use */
	bool copied;               /* value, below, is ours */
	uint8_t tries;
	int status;              /* what its callback is still to be told, when the progress thread finished it */
	struct landing *landing; /* of a get, ours */
	void *into;              /* of a get, the caller's */
	size_t into_size;
	const void *value;
	size_t value_len;
	uint64_t key_hash;  /* of a get with a landing buffer */
	struct reach reach; /* the caller's memory */
	void *result_arg;
	struct kv_meta meta; /* what the answer told, for result() */
	int64_t number;
};

/* A get to be sent again with a landing buffer of the right size, when there is room. */
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
	uint32_t free; /* first free slot, KV_SLOTS: none */
	uint64_t eager_max, value_max;
	const char *transport;
	struct buffers *buffers;
	struct landing *lent; /* during a callback, which takes it to keep the value */
	struct again *again, **again_tail;
	struct deferred deferred;
	uint32_t finished, *finished_tail; /* slots that the progress thread left to the caller */
	bool sizes_used;
	struct remembered size[KV_SIZES];
	struct request slot[KV_SLOTS];
};

/* One request as the caller wants it. Its body is head, key, value. */
struct ask {
	enum wire_op op;
	uint32_t limit; /* of a scan: most keys */
	const void *head;
	size_t head_len;
	const void *key; /* NULL: of no key, or of all that begin with the value */
	size_t key_len;
	const void *value;
	size_t value_len;
	void *into; /* of a GET_INTO */
	size_t into_size;
	kv_callback done;          /* NULL: nobody wants to know */
	kv_result_callback result; /* in place of `done`, for all that the answer tells */
	void *arg;
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
 * kv_slots.c. All of it inside the engine.
 */
void kv_slots_init(struct kv *kv);

/* `done` of a request without any. */
void request_unheard(void *arg, int status, const void *value, size_t value_len);

/* `done` of a request with `result`; its argument is the request, whose slot nobody has taken yet. */
void request_tell_result(void *arg, int status, const void *value, size_t value_len);

/* A free slot, of which there is one, for a request that is about to be sent. */
static inline struct request *request_take(struct kv *kv, const struct ask *ask)
{
	struct request *r = &kv->slot[kv->free];

	must(engine_entered(kv->engine));
	must(kv->free != KV_SLOTS && !r->done);
	kv->free = r->next;
	kv->outstanding++;
	r->op = (uint8_t)ask->op;
	r->result = ask->result;
	if (ask->result) {
		r->done = request_tell_result;
		r->arg = r;
		r->result_arg = ask->arg;
		r->meta = (struct kv_meta){0};
		r->number = 0;
	} else {
		r->done = ask->done ? ask->done : request_unheard;
		r->arg = ask->arg;
	}
	return r;
}

/* Back to the free ones, and nobody is told. */
void request_give(struct kv *kv, struct request *r);

/* The end: the slot is free and its callback called, now or, where the progress thread found the end, by the caller's
 * next turn. */
void request_finish(struct kv *kv, struct request *r, int status, const void *value, size_t len);

/* The caller gave up waiting: the answer, should it come, is nobody's, and the caller's memory is left alone. */
void request_orphan(struct kv *kv, struct request *r);

/* The connection has ended, and all that is outstanding with it. */
void kv_slots_end(struct kv *kv);

/* The length that the key's value had last, 0: not known or small. */
static inline uint64_t kv_size_recall(const struct kv *kv, const void *key, size_t key_len)
{
	uint64_t hash;

	if (likely(!kv->sizes_used))
		return 0;
	hash = hash_bytes(key, key_len);
	return kv->size[hash % KV_SIZES].hash == hash ? kv->size[hash % KV_SIZES].length : 0;
}

void kv_size_remember(struct kv *kv, const void *key, size_t key_len, uint64_t length);

/* The guess of a get was good enough, the next may be better: another client may have set the key. */
static inline void kv_size_correct(struct kv *kv, const struct request *r, uint64_t length)
{
	struct remembered *size = &kv->size[r->key_hash % KV_SIZES];

	if (unlikely(r->landing) && size->hash == r->key_hash)
		size->length = length;
}

/*
 * kv_large.c. All of it inside the engine. 0, -EAGAIN: no room now, nothing is taken; -ENOTCONN; -ENOMEM.
 */

/* Submit a SET or PUT whose value, of `size`, the server reads from the caller's memory. */
int request_set_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken);

/* Submit a GET that has a landing buffer of `size`. */
int request_get_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken);

/* Submit a GET_INTO: to the caller's own memory. */
int request_get_into(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken);

/* Answers to a get: the value was too long for the message or the buffer, and the key to ask again with came back; or it was
 * written to the buffer before this answer. -EPROTO: it cannot be so. */
int request_get_again(struct kv *kv, struct request *r, const struct wire_record *record, const char *body);
int request_get_landed(struct kv *kv, struct request *r, const char *body, size_t length);

/* There is room again: send what request_get_again left. */
void kv_large_writable(struct kv *kv);
void kv_large_end(struct kv *kv); /* it will never be sent */

/*
 * kv_operations.c
 */

/* Submit one request; *taken is its slot. Inside. -EAGAIN: no slot is free or no room, progress first; else what
 * kv_submit_set and its like return. */
int request_submit(struct kv *kv, const struct ask *ask, struct request **taken);

/* conn_ops.record */
int kv_answered(struct conn *conn, const struct wire_record *record, const void *body);

/*
 * kv_calls.c
 */

/* A request that is waited for. */
struct kv_call {
	struct blocking b;
	struct kv *kv;
	const struct ask *ask;
	struct request *request;
	bool want_value, want_result;
	char *value; /* given back with value_release */
	size_t value_len;
	struct kv_result result; /* without the value */
};

/* Submit, send, wait. -EDEADLK from inside a callback. */
int kv_call(struct kv *kv, struct ask *ask, struct kv_call *call);

/* The same about a key, which must not be NULL. */
int kv_call_key(struct kv *kv, struct ask *ask, struct kv_call *call);

/* The same for which a missing key is an answer: 1 there is one, 0. */
int kv_call_found(struct kv *kv, struct ask *ask);

/* Says the server's answers in words, where they have none yet. Returns status. */
int kv_explain(int status, const char *what, size_t key_len, size_t value_len);

/*
 * kv_handle.c
 */

/* Of struct blocking: send, and turn until a request of the engine's was completed. */
int kv_await(void *kv, uint64_t until);

#pragma GCC visibility pop

#endif
