/*
 * queue.c: requests and completions by the array. A request of kv_submit() is an ordinary one, whose callback puts what
 * the answer tells into a place of the handle's queue, until kv_done() hands it on.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

#define QUEUE_BLOCK 64   /* places that the queue grows by */
#define QUEUE_INLINE 128 /* a value of up to so many bytes is kept in its place */

_Static_assert(KV_SLOTS % QUEUE_BLOCK == 0, "the queue has a place for each request that a handle takes");

/* A request that is under way, or its completion. */
struct place {
	struct place *next;
	struct kv *kv;
	bool waiting; /* for its answer */
	struct kv_completion completion;
	void *value; /* the library's, given back with value_release; NULL: there is none, or it is below */
	char bytes[QUEUE_INLINE];
};

struct kv_queue {
	struct place *free;
	struct place *done, **done_tail;
	struct place *handed; /* by the last kv_done(): their values are still read */
	unsigned places;
	struct place *block[KV_SLOTS / QUEUE_BLOCK];
};

static struct kv_queue *queue_of(struct kv *kv)
{
	if (!kv->queue) {
		kv->queue = calloc(1, sizeof(*kv->queue));
		if (kv->queue)
			kv->queue->done_tail = &kv->queue->done;
	}
	return kv->queue;
}

/* -EAGAIN: all places are taken; -ENOMEM. */
static int queue_grow(struct kv_queue *q, struct kv *kv)
{
	struct place *block;

	if (q->places == KV_SLOTS)
		return -EAGAIN;
	block = calloc(QUEUE_BLOCK, sizeof(*block));
	if (!block)
		return -ENOMEM;
	q->block[q->places / QUEUE_BLOCK] = block;
	q->places += QUEUE_BLOCK;
	for (unsigned i = 0; i < QUEUE_BLOCK; i++) {
		block[i].kv = kv;
		block[i].next = q->free;
		q->free = &block[i];
	}
	return 0;
}

/* The values that the last kv_done() told are read no more. */
static void queue_recycle(struct kv_queue *q)
{
	while (q->handed) {
		struct place *place = q->handed;

		q->handed = place->next;
		value_release(place->value);
		place->value = NULL;
		place->next = q->free;
		q->free = place;
	}
}

bool kv_queue_filled(const struct kv *kv)
{
	return kv->queue && kv->queue->done;
}

void kv_queue_free(struct kv *kv)
{
	struct kv_queue *q = kv->queue;

	if (!q)
		return;
	queue_recycle(q);
	for (struct place *place = q->done; place; place = place->next)
		value_release(place->value);
	for (unsigned i = 0; i < q->places / QUEUE_BLOCK; i++)
		free(q->block[i]);
	free(q);
	kv->queue = NULL;
}

/* Keeps a value that goes when the callback returns. Its buffer stays the value's where the caller gave one. */
static void place_value(struct place *place, const struct kv_result *result)
{
	struct kv_completion *done = &place->completion;

	if (!result->value || done->value) {
		done->value = result->value;
	} else if (result->value_len < sizeof(place->bytes)) {
		memcpy(place->bytes, result->value, result->value_len);
		done->value = place->bytes;
	} else {
		done->value = place->value = kv_keep_value(place->kv, result->value, result->value_len);
		if (!place->value)
			done->status = -ENOMEM;
	}
}

static void place_done(void *arg, const struct kv_result *result)
{
	struct place *place = arg;
	struct kv_queue *q = place->kv->queue;
	struct kv_completion *done = &place->completion;

	done->status = result->status;
	done->length = result->value_len;
	done->meta = result->meta;
	done->number = result->number;
	done->flags = result->flags;
	done->type = result->type;
	place_value(place, result);
	place->waiting = false;
	place->next = NULL;
	*q->done_tail = place;
	q->done_tail = &place->next;
}

static int place_submit(struct kv *kv, const struct kv_request *r, struct place *place)
{
	const struct kv_put_options put = {r->condition, r->version, r->ttl_us};
	const struct kv_fetch fetch = {r->offset, r->length ? r->length : UINT64_MAX, r->then, r->ttl_us};
	struct ask ask = {.op = WIRE_OP_DELETE, .key = r->key, .key_len = r->key_len};

	switch (r->op) {
	case KV_OP_GET:
		if (r->pieces)
			return kv_submit_fetchv(kv, r->key, r->key_len, &fetch, r->value, r->pieces, place_done, place);
		if (!r->offset && !r->length && !r->then) {
			ask.op = r->value_len ? WIRE_OP_GET_INTO : WIRE_OP_GET;
			ask.into = r->value;
			ask.into_size = r->value_len;
			return kv_submit_result(kv, kv_begin(kv), &ask, place_done, place);
		}
		return kv_submit_fetch(kv, r->key, r->key_len, &fetch, r->value, r->value_len, place_done, place);
	case KV_OP_SET:
		if (r->pieces)
			return kv_submit_putv(kv, r->key, r->key_len, r->value, r->pieces, &put, place_done, place);
		return kv_submit_put(kv, r->key, r->key_len, r->value, r->value_len, &put, place_done, place);
	case KV_OP_DELETE:
		if (!r->version)
			return kv_submit_result(kv, kv_begin(kv), &ask, place_done, place);
		return kv_submit_delete_if(kv, r->key, r->key_len, r->version, place_done, place);
	case KV_OP_STAT:
		return kv_submit_stat(kv, r->key, r->key_len, place_done, place);
	case KV_OP_EXPIRE:
		return kv_submit_expire(kv, r->key, r->key_len, r->ttl_us, place_done, place);
	case KV_OP_COUNT:
		return kv_submit_count(kv, r->key, r->key_len, r->delta, r->ttl_us, place_done, place);
	case KV_OP_APPEND:
		return kv_submit_append(kv, r->key, r->key_len, r->value, r->value_len, place_done, place);
	case KV_OP_SET_RANGE:
		return kv_submit_set_range(kv, r->key, r->key_len, r->offset, r->value, r->value_len, place_done,
					   place);
	case KV_OP_LEASE:
		return kv_submit_lease(kv, r->key, r->key_len, r->ttl_us, place_done, place);
	}
	return -EINVAL;
}

/* One request, with a place for its completion. */
static int queue_submit(struct kv *kv, struct kv_queue *q, const struct kv_request *r)
{
	struct place *place;
	int rc = 0;

	if ((unsigned)r->op > KV_OP_LEASE || !r->key ||
	    (r->op == KV_OP_GET && (!r->value != !(r->value_len || r->pieces))))
		return log_fail(
			-EINVAL, "kv",
			"a request of kv_submit needs an operation, a key, and with a buffer its length: operation %d",
			(int)r->op);
	if (!q->free)
		rc = queue_grow(q, kv);
	if (rc != 0)
		return rc;
	place = q->free;
	q->free = place->next;
	place->completion =
		(struct kv_completion){.tag = r->tag, .value = r->op == KV_OP_GET && !r->pieces ? r->value : NULL};
	place->waiting = true;
	rc = place_submit(kv, r, place);
	if (rc != 0 && kv->nodes && kv_route_gone(rc)) /* which is this request's fault alone */
		rc = kv_route_tell_outside(kv, &(struct ask){.result = place_done, .arg = place}, rc);
	if (rc != 0) {
		place->waiting = false;
		place->next = q->free;
		q->free = place;
	}
	return rc;
}

int64_t kv_submit(void *kv_handle, const struct kv_request *requests, size_t count)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, requests || !count, "kv_submit needs requests");
	size_t n = 0;

	if (rc == 0 && !queue_of(kv))
		rc = kv_end(kv, -ENOMEM, "kv_submit");
	while (rc == 0 && n < count) {
		rc = queue_submit(kv, kv->queue, &requests[n]);
		n += rc == 0;
	}
	return n ? (int64_t)n : rc;
}

/* Hands on up to `count` completions. */
static size_t queue_take(struct kv_queue *q, struct kv_completion *out, size_t count)
{
	size_t n = 0;

	while (n < count && q->done) {
		struct place *place = q->done;

		q->done = place->next;
		if (!q->done)
			q->done_tail = &q->done;
		out[n++] = place->completion;
		place->next = q->handed;
		q->handed = place;
	}
	return n;
}

int64_t kv_done(void *kv_handle, struct kv_completion *out, size_t count, uint64_t timeout_us)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, out && count, "kv_done needs room for completions");
	uint64_t until = time_after(time_now(), time_of_us(timeout_us)), now = 0;
	size_t n;

	if (rc == 0 && !queue_of(kv))
		rc = kv_end(kv, -ENOMEM, "kv_done");
	if (rc != 0)
		return rc;
	queue_recycle(kv->queue);
	/* Callbacks of other requests end no wait for completions. */
	do {
		uint64_t left = until > now && !kv->queue->done ? timeout_us : 0;

		if (left && now)
			left = until == TIME_NEVER ? UINT64_MAX : (until - now) / 1000 + 1;
		rc = kv_progress(kv, left);
		now = time_now();
	} while (rc >= 0 && !kv->queue->done && now < until);
	n = queue_take(kv->queue, out, count);
	return n ? (int64_t)n : MIN(rc, 0);
}

int kv_cancel_tag(void *kv_handle, uint64_t tag)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin(kv), n = 0;
	const struct kv_queue *q = rc == 0 ? kv->queue : NULL;

	for (unsigned i = 0; q && i < q->places; i++) {
		struct place *place = &q->block[i / QUEUE_BLOCK][i % QUEUE_BLOCK];

		if (place->waiting && place->completion.tag == tag)
			n += kv_cancel(kv, place);
	}
	return rc != 0 ? rc : n;
}
