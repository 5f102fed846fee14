/*
 * kv_batch.c: many keys in one call. As many requests are outstanding as the handle takes; where it takes no more, answers
 * are waited for.
 */
#include "client/kv.h"

#include <stdlib.h>

#define PENDING 1 /* an item's status before its answer */

struct batch {
	struct kv *kv;
	struct kv_item *items;
	const struct kv_put_options *options; /* of kv_mset; NULL: plain */
	kv_mget_callback each;                /* of kv_mget */
	void *arg;
	size_t next, count, waiting;
	int error; /* the first */
	struct blocking b;
	struct handle {
		struct batch *batch;
	} * handles; /* one for each item: what its callback is given */
};

static void item_done(struct handle *handle, int status, const void *value, size_t value_len)
{
	struct batch *b = handle->batch;
	size_t index = (size_t)(handle - b->handles);

	b->items[index].status = status;
	b->waiting--;
	if (status != 0 && b->error == 0 && !(b->each && status == -ENOENT))
		b->error = status;
	if (b->each)
		b->each(b->arg, index, status, value, value_len);
}

static void plain_done(void *arg, int status, const void *value, size_t value_len)
{
	item_done(arg, status, value, value_len);
}

static void put_done(void *arg, const struct kv_result *result)
{
	item_done(arg, result->status, NULL, 0);
}

static int item_submit(struct batch *b, size_t i)
{
	const struct kv_item *item = &b->items[i];
	struct handle *handle = &b->handles[i];

	if (b->each)
		return kv_submit_get(b->kv, item->key, item->key_len, plain_done, handle);
	if (!item->value && item->value_len) {
		log_error("kv", "the value of item %zu is NULL but has a length", i);
		return -EINVAL;
	}
	if (b->options)
		return kv_submit_put(b->kv, item->key, item->key_len, item->value, item->value_len, b->options,
				     put_done, handle);
	return kv_submit_set(b->kv, item->key, item->key_len, item->value, item->value_len, plain_done, handle);
}

/* As many as the handle takes, then until all are answered. */
static int batch_submit(struct blocking *b)
{
	struct batch *batch = container_of(b, struct batch, b);
	int rc;

	for (; batch->next < batch->count; batch->next++) {
		batch->waiting++;
		rc = item_submit(batch, batch->next);
		if (rc == -EAGAIN) {
			batch->waiting--;
			return rc;
		}
		if (rc != 0)
			item_done(&batch->handles[batch->next], rc, NULL, 0);
	}
	if (batch->waiting)
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

/* However many there are: only a time without any answer is too long. */
static int batch_await(void *handle, uint64_t until)
{
	const struct kv *kv = handle;

	(void)until;
	return kv_await(handle, time_after(time_now(), kv->options.timeout));
}

static bool is_of(const struct batch *b, const struct request *r)
{
	const struct handle *handle = r->result ? r->result_arg : r->arg;

	return r->done && handle >= b->handles && handle < b->handles + b->count;
}

/* Answers that come after this are nobody's, and the batch is gone then. */
static void batch_abandon(struct batch *b, int error)
{
	for (uint32_t i = 0; i < KV_SLOTS; i++)
		if (is_of(b, &b->kv->slot[i]))
			request_orphan(b->kv, &b->kv->slot[i]);
	for (size_t i = 0; i < b->count; i++) {
		if (b->items[i].status == PENDING) {
			b->waiting++; /* also those that were not submitted */
			item_done(&b->handles[i], error, NULL, 0);
		}
	}
	b->error = error;
	log_error("kv", "no answer to all of %zu requests after %llu ms", b->count,
		  (unsigned long long)(b->kv->options.timeout / TIME_MS));
}

static int batch_inside(struct batch *b)
{
	struct kv *kv = b->kv;
	int rc = engine_may_wait(kv->engine);

	if (rc != 0)
		return rc;
	b->handles = calloc(b->count + 1, sizeof(b->handles[0]));
	if (!b->handles)
		return -ENOMEM;
	for (size_t i = 0; i < b->count; i++) {
		b->handles[i].batch = b;
		b->items[i].status = PENDING;
	}
	b->b = (struct blocking){.handle = kv, .submit = batch_submit, .await = batch_await};
	rc = engine_block(kv->engine, &b->b, TIME_NEVER);
	if (rc != 0)
		batch_abandon(b, rc);
	free(b->handles);
	return kv_explain(b->error, b->each ? "mget" : "mset", 0, 0);
}

static int batch(struct batch *b)
{
	int rc;

	engine_enter(b->kv->engine);
	rc = batch_inside(b);
	engine_leave(b->kv->engine);
	return rc;
}

int kv_mset(void *kv_handle, struct kv_item *items, size_t count, const struct kv_put_options *options)
{
	struct batch b = {.kv = kv_handle, .items = items, .count = count, .options = options};

	if (!kv_handle || (!items && count)) {
		log_error("kv", "kv_mset needs a handle and items");
		return -EINVAL;
	}
	return batch(&b);
}

int kv_mget(void *kv_handle, struct kv_item *items, size_t count, kv_mget_callback each, void *arg)
{
	struct batch b = {.kv = kv_handle, .items = items, .count = count, .each = each, .arg = arg};

	if (!kv_handle || !each || (!items && count)) {
		log_error("kv", "kv_mget needs a handle, items and a callback");
		return -EINVAL;
	}
	return batch(&b);
}
