/*
 * batch.c: many keys in one call. As many requests are outstanding as the handle takes; where it takes no more, answers
 * are waited for.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

/* An item's status before its answer. */
#define PENDING 1 /* to be asked for */
#define ASKED 2

struct batch {
	const char *what; /* for an error */
	struct kv *kv;
	struct kv_item *items;
	struct kv_place *places;              /* of kv_mget_into, in place of items */
	const struct kv_put_options *options; /* of kv_mset; NULL: plain */
	kv_mget_callback each;                /* of kv_mget */
	bool exists, lease;                   /* of kv_mexists the first, of kv_mlease and kv_mrelease both */
	uint64_t lease_us;                    /* 0 releases */
	size_t leased;
	void *arg;
	size_t next, count, waiting;
	int error;      /* the first */
	uint64_t epoch; /* of a cluster's table, by which the nodes are those of the handles below */
	struct blocking b;
	struct handle {
		struct batch *batch;
		struct kv *node; /* of a cluster, where it goes; NULL: that was not asked yet */
	} * handles;             /* one for each item: what its callback is given */
};

static int *status_of(const struct batch *b, size_t i)
{
	return b->places ? &b->places[i].status : &b->items[i].status;
}

/* A missing key is an answer to a batch that reads. */
static bool is_answer(const struct batch *b, int status)
{
	return status == 0 || (status == -ENOENT && (b->each || b->places || b->exists));
}

static void item_end(struct batch *b, size_t index, int status, const void *value, size_t value_len)
{
	*status_of(b, index) = status;
	if (b->error == 0 && !is_answer(b, status))
		b->error = status;
	if (b->places && (status == 0 || status == -EMSGSIZE))
		b->places[index].value_len = value_len;
	if (b->each) {
		bool before = engine_callbacks_begin(b->kv->engine); /* it may not have come to a turn */

		b->each(b->arg, index, status, value, value_len);
		engine_callbacks_end(b->kv->engine, before);
	}
}

static void item_done(struct handle *handle, int status, const void *value, size_t value_len)
{
	struct batch *b = handle->batch;
	size_t index = (size_t)(handle - b->handles);

	b->waiting--;
	/* Asked for again where it was certainly not carried out, and there is to be another connection. */
	if (likely((status != -ESHUTDOWN && status != -ENOTCONN) || !b->kv->keep || b->kv->closed)) {
		item_end(b, index, status, value, value_len);
		return;
	}
	*status_of(b, index) = PENDING;
	b->next = MIN(b->next, index);
}

static void plain_done(void *arg, int status, const void *value, size_t value_len)
{
	item_done(arg, status, value, value_len);
}

static void put_done(void *arg, const struct kv_result *result)
{
	item_done(arg, result->status, NULL, 0);
}

static void lease_done(void *arg, const struct kv_result *result)
{
	struct handle *handle = arg;

	handle->batch->leased += result->status == 0 && result->number > 0;
	item_done(handle, result->status, NULL, 0);
}

static int item_submit(struct batch *b, size_t i)
{
	struct handle *handle = &b->handles[i];
	const struct kv_item *item;

	if (b->places) {
		const struct kv_place *place = &b->places[i];

		return kv_submit_get_into(b->kv, place->key, place->key_len, place->buffer, place->size, plain_done,
					  handle);
	}
	item = &b->items[i];
	if (b->lease)
		return kv_submit_lease(b->kv, item->key, item->key_len, b->lease_us, lease_done, handle);
	if (b->exists)
		return kv_submit_exists(b->kv, item->key, item->key_len, plain_done, handle);
	if (b->each)
		return kv_submit_get(b->kv, item->key, item->key_len, plain_done, handle);
	if (!item->value && item->value_len)
		return log_fail(-EINVAL, "kv", "the value of item %zu is NULL but has a length", i);
	if (b->options)
		return kv_submit_put(b->kv, item->key, item->key_len, item->value, item->value_len, b->options,
				     put_done, handle);
	return kv_submit_set(b->kv, item->key, item->key_len, item->value, item->value_len, plain_done, handle);
}

static int item_begin(struct batch *batch, size_t i)
{
	int rc;

	batch->waiting++;
	*status_of(batch, i) = ASKED;
	rc = item_submit(batch, i);
	if (rc == 0)
		return 0;
	batch->waiting--;
	*status_of(batch, i) = PENDING;
	return rc;
}

/* Whether the item's node, of a cluster, had no room in this round. One that comes behind another for the same key must
 * not go before that. */
static bool node_is_full(const struct batch *b, size_t i)
{
	struct handle *handle = &b->handles[i];

	if (!b->kv->nodes)
		return false;
	if (!handle->node)
		handle->node = b->places ? kv_route_to(b->kv, b->places[i].key, b->places[i].key_len)
					 : kv_route_to(b->kv, b->items[i].key, b->items[i].key_len);
	return handle->node && handle->node->round == b->kv->nodes->round;
}

/* An item has to wait for room. Whether those behind it may have some: at other nodes. */
static bool others_have_room(struct batch *b)
{
	struct kv_nodes *nodes = b->kv->nodes;

	if (!nodes || !nodes->spoke)
		return false;
	nodes->spoke->round = nodes->round;
	return true;
}

#define AHEAD 4096 /* items of a cluster that are looked at behind the first one that waits for its node */

/* Nodes of a former table may not be there any more. */
static void forget_nodes(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++)
		b->handles[i].node = NULL;
	b->epoch = b->kv->nodes->epoch;
}

/* Submits as many as the handle takes, then waits until all are answered. */
static int batch_submit(struct blocking *b)
{
	struct batch *batch = container_of(b, struct batch, b);
	size_t first = SIZE_MAX; /* that waits for room */
	int rc;

	if (batch->kv->nodes)
		batch->kv->nodes->round++;
	if (batch->kv->nodes && batch->epoch != batch->kv->nodes->epoch)
		forget_nodes(batch);
	for (; batch->next < batch->count && batch->next - MIN(first, batch->next) < AHEAD; batch->next++) {
		if (unlikely(*status_of(batch, batch->next) != PENDING))
			continue; /* of those behind one that is asked for again */
		rc = first != SIZE_MAX && node_is_full(batch, batch->next) ? -EAGAIN : item_begin(batch, batch->next);
		if (rc == -EAGAIN) {
			first = MIN(first, batch->next);
			if (!others_have_room(batch))
				break;
		} else if (rc != 0) {
			item_end(batch, batch->next, rc, NULL, 0);
		}
	}
	batch->next = MIN(batch->next, first);
	if (first != SIZE_MAX || batch->waiting)
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

static bool is_of_batch(const struct batch *b, const void *arg)
{
	const struct handle *handle = arg;

	return handle >= b->handles && handle < b->handles + b->count;
}

static bool ask_is_of_batch(const struct ask *ask, const void *batch)
{
	return is_of_batch(batch, ask->arg);
}

/* Answers that come after this are dropped, and the batch is gone then. */
static void batch_abandon(struct batch *b, int error)
{
	struct kv *part;

	for (unsigned n = 0; (part = kv_part(b->kv, n)); n++)
		for (uint32_t i = 0; i < part->slots; i++) {
			struct request *r = kv_slot(part, i);

			if (r->done && !request_is_orphan(r) && is_of_batch(b, r->result ? r->result_arg : r->arg))
				request_orphan(part, r);
		}
	if (b->kv->nodes)
		kv_route_drop(b->kv, ask_is_of_batch, b, false);
	for (size_t i = 0; i < b->count; i++)
		if (*status_of(b, i) > 0) /* also requests that were not submitted */
			item_end(b, i, error, NULL, 0);
	b->error = error;
}

/* Says how many items failed, and why the first did. */
static int batch_explain(const struct batch *b)
{
	size_t failed = 0;

	for (size_t i = 0; i < b->count; i++)
		failed += !is_answer(b, *status_of(b, i));
	if (b->error)
		log_error("kv", "%s at %s: %zu of %zu items failed, the first because: %s", b->what, b->kv->server,
			  failed, b->count,
			  b->error == -EREMOTE && b->kv->nodes && *b->kv->nodes->fault ? b->kv->nodes->fault
										       : kv_status_text(b->error));
	else
		log_clear_last();
	return b->error;
}

static int batch_inside(struct batch *b)
{
	struct kv *kv = b->kv;
	int rc = engine_may_wait(kv->engine);

	if (rc != 0)
		return rc;
	if (kv->nodes)
		engine_turn(kv->engine); /* where no server can be asked nothing else would connect them */
	kv_timeout_begin(kv);
	b->handles = calloc(b->count + 1, sizeof(b->handles[0]));
	if (!b->handles)
		return log_fail(-ENOMEM, "kv", "no memory for %zu items", b->count);
	for (size_t i = 0; i < b->count; i++) {
		b->handles[i].batch = b;
		*status_of(b, i) = PENDING;
	}
	b->b = (struct blocking){.handle = kv, .submit = batch_submit, .await = kv_await};
	rc = engine_block(kv->engine, &b->b, TIME_NEVER);
	if (rc != 0)
		batch_abandon(b, rc);
	free(b->handles);
	return batch_explain(b);
}

static int batch_run(struct batch *b)
{
	int rc;

	kv_enter(b->kv);
	rc = batch_inside(b);
	kv_leave(b->kv);
	return rc;
}

int kv_mset(void *kv_handle, struct kv_item *items, size_t count, const struct kv_put_options *options)
{
	struct batch b = {.what = "mset", .kv = kv_handle, .items = items, .count = count, .options = options};
	int rc = kv_begin_given(kv_handle, items || !count, "kv_mset needs items");

	return rc != 0 ? rc : batch_run(&b);
}

int kv_mget(void *kv_handle, struct kv_item *items, size_t count, kv_mget_callback each, void *arg)
{
	struct batch b = {.what = "mget", .kv = kv_handle, .items = items, .count = count, .each = each, .arg = arg};
	int rc = kv_begin_given(kv_handle, each && (items || !count), "kv_mget needs items and a callback");

	return rc != 0 ? rc : batch_run(&b);
}

int kv_mget_into(void *kv_handle, struct kv_place *places, size_t count)
{
	struct batch b = {.what = "mget", .kv = kv_handle, .places = places, .count = count};
	int rc = kv_begin_given(kv_handle, places || !count, "kv_mget_into needs places");

	return rc != 0 ? rc : count ? batch_run(&b) : 0;
}

/* From `first` on, all before which are there. */
static size_t first_missing(const struct kv_item *items, size_t first, size_t count)
{
	while (first < count && items[first].status == 0)
		first++;
	return first;
}

#define EXISTS_STEP 256 /* keys that are asked for before the first missing one ends it */

int64_t kv_mexists(void *kv_handle, struct kv_item *items, size_t count, bool stop)
{
	size_t first = 0, at = 0;
	int rc = kv_begin_given(kv_handle, items || !count, "kv_mexists needs items");

	if (rc != 0)
		return rc;
	while (at < count && rc == 0 && !(stop && first < at)) {
		struct batch b = {.what = "mexists", .kv = kv_handle, .items = items + at, .exists = true};

		b.count = stop ? MIN(count - at, (size_t)EXISTS_STEP) : count - at;
		rc = batch_run(&b);
		at += b.count;
		first = first_missing(items, first, at);
	}
	for (; at < count; at++)
		items[at].status = -ECANCELED;
	return rc != 0 ? rc : (int64_t)first;
}

int64_t kv_mlease(void *kv_handle, struct kv_item *items, size_t count, uint64_t lease_us, size_t *leased)
{
	struct batch b = {.what = "mlease", .kv = kv_handle, .items = items, .count = count, .exists = true};
	int rc = kv_begin_given(kv_handle, (items || !count) && lease_us, "kv_mlease needs items and a time");

	b.lease = true;
	b.lease_us = lease_us;
	if (rc == 0 && count)
		rc = batch_run(&b);
	if (leased)
		*leased = b.leased;
	return rc != 0 ? rc : (int64_t)first_missing(items, 0, count);
}

int kv_mrelease(void *kv_handle, struct kv_item *items, size_t count)
{
	struct batch b = {.what = "mrelease", .kv = kv_handle, .items = items, .count = count, .exists = true};
	int rc = kv_begin_given(kv_handle, items || !count, "kv_mrelease needs items");

	b.lease = true;
	return rc == 0 && count ? batch_run(&b) : rc;
}

/*
 * Many with one callback for all
 */
struct many {
	struct kv_item *items;
	struct kv_place *places;              /* of kv_submit_mget_into, in place of items */
	const struct kv_put_options *options; /* of kv_submit_mset */
	bool exists;                          /* of kv_submit_mexists */
	size_t left, count;
	struct kv_result result;
	kv_result_callback done;
	void *arg;
	struct one {
		struct many *many;
	} one[];
};

static void one_done(void *arg, const struct kv_result *result)
{
	struct one *one = arg;
	struct many *many = one->many;
	size_t i = (size_t)(one - many->one);
	int status = result->status;

	if (many->places)
		many->places[i].status = status;
	else
		many->items[i].status = status;
	if (many->places && (status == 0 || status == -EMSGSIZE))
		many->places[i].value_len = result->value_len;
	if (status != 0 && !(status == -ENOENT && (many->places || many->exists))) {
		many->result.number++;
		if (many->result.status == 0)
			many->result.status = status;
	}
	if (--many->left)
		return;
	if (many->exists)
		many->result.number = (int64_t)first_missing(many->items, 0, many->count);
	many->done(many->arg, &many->result);
	free(many);
}

const void *kv_caller_arg(kv_result_callback result, const void *arg)
{
	return result == one_done ? ((const struct one *)arg)->many->arg : arg;
}

static int one_submit(struct kv *kv, struct many *many, size_t i)
{
	const struct kv_item *item = many->items ? &many->items[i] : NULL;
	const struct kv_place *place = many->places ? &many->places[i] : NULL;
	struct ask ask = {.op = WIRE_OP_EXISTS};

	if (place && !(place->buffer && place->size))
		return log_fail(-EINVAL, "kv", "item %zu has no buffer", i);
	if (place) {
		ask = (struct ask){.op = WIRE_OP_GET_INTO, .into = place->buffer, .into_size = place->size};
		ask.key = place->key;
		ask.key_len = place->key_len;
	} else if (many->exists) {
		ask.key = item->key;
		ask.key_len = item->key_len;
	} else {
		return kv_submit_put(kv, item->key, item->key_len, item->value, item->value_len, many->options,
				     one_done, &many->one[i]);
	}
	return kv_submit_result(kv, kv_begin(kv), &ask, one_done, &many->one[i]);
}

/* Submits as many as the handle takes, with `call` in place of what the caller gave. */
static int64_t many_submit(struct kv *kv, const struct many *call, size_t count)
{
	struct many *many = malloc(sizeof(*many) + count * sizeof(many->one[0]));
	int rc = 0;

	if (!many)
		return log_fail(-ENOMEM, "kv", "no memory for %zu items", count);
	*many = *call;
	while (rc == 0 && many->count < count) {
		many->one[many->count].many = many;
		rc = one_submit(kv, many, many->count);
		if (rc != 0 && kv->nodes && kv_route_gone(rc)) { /* which is this item's fault alone */
			const struct ask ask = {.result = one_done, .arg = &many->one[many->count]};

			rc = kv_route_tell_outside(kv, &ask, rc);
		}
		many->count += rc == 0;
	}
	many->left = many->count;
	if (many->count)
		return (int64_t)many->count;
	free(many);
	return rc;
}

int64_t kv_submit_mset(void *kv_handle, struct kv_item *items, size_t count, const struct kv_put_options *options,
		       kv_result_callback done, void *arg)
{
	int rc = kv_begin_given(kv_handle, items && count && done, "kv_submit_mset needs items and a callback");

	return rc != 0 ? rc
		       : many_submit(kv_handle,
				     &(struct many){.items = items, .options = options, .done = done, .arg = arg},
				     count);
}

int64_t kv_submit_mget_into(void *kv_handle, struct kv_place *places, size_t count, kv_result_callback done, void *arg)
{
	int rc = kv_begin_given(kv_handle, places && count && done, "kv_submit_mget_into needs places and a callback");

	return rc != 0 ? rc : many_submit(kv_handle, &(struct many){.places = places, .done = done, .arg = arg}, count);
}

int64_t kv_submit_mexists(void *kv_handle, struct kv_item *items, size_t count, kv_result_callback done, void *arg)
{
	int rc = kv_begin_given(kv_handle, items && count && done, "kv_submit_mexists needs items and a callback");

	return rc != 0 ? rc
		       : many_submit(kv_handle,
				     &(struct many){.items = items, .exists = true, .done = done, .arg = arg}, count);
}
