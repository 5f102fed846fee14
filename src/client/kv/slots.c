/*
 * slots.c: the table of requests, how one ends, and the lengths that values had last. What the progress thread finds
 * finished stays in its slot until the caller's next turn.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

int kv_slots_grow(struct kv *kv)
{
	struct request *block;

	must(kv->free == KV_SLOTS);
	if (kv->slots == KV_SLOTS)
		return -EAGAIN;
	block = aligned_alloc(CACHE_LINE, KV_BLOCK * sizeof(*block));
	if (!block)
		return -ENOMEM;
	memset(block, 0, KV_BLOCK * sizeof(*block));
	for (uint32_t i = 0; i < KV_BLOCK; i++) {
		block[i].id = kv->slots + i;
		block[i].next = i + 1 < KV_BLOCK ? kv->slots + i + 1 : KV_SLOTS;
	}
	kv->free = kv->slots;
	kv->block[kv->slots / KV_BLOCK] = block;
	kv->slots += KV_BLOCK;
	return 0;
}

/* `done` of a request that was given up. */
static void request_orphaned(void *arg, int status, const void *value, size_t value_len)
{
	request_unheard(arg, status, value, value_len);
}

/* Gives the slot another id: a late answer to the old one is not mistaken. */
void request_give(struct kv *kv, struct request *r)
{
	must(r->done && !r->large && kv->outstanding);
	if (unlikely(r->done == request_orphaned))
		kv->orphans--;
	r->done = NULL;
	r->into = NULL;
	r->since = 0;
	r->tries = 0;
	r->next = kv->free;
	kv->free = r->id % KV_SLOTS;
	r->id += KV_SLOTS;
	kv->outstanding--;
}

void request_unheard(void *arg, int status, const void *value, size_t value_len)
{
	(void)arg;
	(void)status;
	(void)value;
	(void)value_len;
}

void request_tell_result(void *arg, int status, const void *value, size_t value_len)
{
	const struct request *r = arg;
	struct kv_result result = {.status = status, .value_len = value_len};

	must(!r->done);
	if (status == 0) {
		result.value = value;
		result.meta = r->meta;
		result.number = r->number;
		result.flags = r->flags;
		result.type = r->type;
	}
	r->result(r->result_arg, &result);
}

/* The progress thread calls no callback: the slot stays taken, and keeps the outcome for the caller's next turn. */
static void request_finish_later(struct kv *kv, struct request *r, int status, const void *value, size_t len)
{
	/* A value that lies in the message goes when the turn goes on. */
	r->copied = value && value != r->into && !(r->landing && value == landing_data(r->landing));
	r->value = r->copied ? value_copy(value, len) : value;
	r->value_len = len;
	r->status = r->copied && !r->value ? -ENOMEM : status;
	r->next = KV_SLOTS;
	*kv->finished_tail = r->id % KV_SLOTS;
	kv->finished_tail = &r->next;
	r->id += KV_SLOTS; /* a second answer does not find it */
	engine_defer(kv->engine, &kv->deferred);
}

void kv_request_finish(struct kv *kv, struct request *r, int status, const void *value, size_t len)
{
	kv_callback done = r->done;
	void *arg = r->arg;

	must(engine_entered(kv->engine));
	must(done);
	if (unlikely(r->large) && r->push) { /* its memory is still sent from */
		r->push->answered = true;
		r->push->status = status;
		return;
	}
	if (unlikely(engine_defers(kv->engine))) {
		request_finish_later(kv, r, status, value, len);
		return;
	}
	kv->lent = NULL;
	if (unlikely(r->large)) {
		kv->lent = r->landing;
		buffers_unreach(kv->buffers, &r->reach);
		if (r->pieces)
			kv_pieces_give(kv, r);
		r->landing = NULL;
		r->large = false;
	}
	request_give(kv, r);
	if (unlikely(done == request_orphaned))
		engine_rouse(kv->engine); /* its caller was told before; there is room again */
	else
		++*kv->completed;
	done(arg, status, value, len);
	if (unlikely(kv->lent))
		landing_give(kv->lent);
	kv->lent = NULL;
	if (unlikely(kv->leaving) && !kv->outstanding)
		kv_go(kv);
}

void request_orphan(struct kv *kv, struct request *r)
{
	must(engine_entered(kv->engine));
	must(r->done && r->done != request_orphaned);
	r->done = request_orphaned;
	r->into = NULL;
	*(r->result ? &r->result_arg : &r->arg) = NULL;
	kv->orphans++;
	if (r->large) {
		buffers_unreach(kv->buffers, &r->reach);
		if (r->pieces)
			kv_pieces_unreach(kv, r->pieces);
	}
	if (unlikely(r->push && !r->landing)) { /* its value is still sent from the caller's memory */
		snprintf(kv->reason, sizeof(kv->reason), "a request was given up while its value was being sent");
		conn_close(kv->conn, -ECANCELED, "%s", kv->reason);
	}
}

void request_pass_on(struct kv *kv, struct request *r)
{
	must(r->done && r->done != request_orphaned);
	r->done = request_orphaned;
	kv->orphans++;
	kv_request_finish(kv, r, 0, NULL, 0);
}

bool request_is_orphan(const struct request *r)
{
	return r->done == request_orphaned;
}

static void requests_finish(struct kv *kv)
{
	kv->ended = false;
	for (uint32_t i = 0; i < kv->slots; i++)
		if (kv_slot(kv, i)->done)
			kv_request_finish(kv, kv_slot(kv, i), kv_end_status(kv, kv_slot(kv, i)), NULL, 0);
	engine_rouse(kv->engine); /* a waiting caller checks again */
}

void kv_slots_end(struct kv *kv)
{
	must(!kv->conn);
	if (engine_defers(kv->engine))
		engine_defer(kv->engine, &kv->deferred);
	else
		requests_finish(kv);
}

/* Delivers what the progress thread found finished, in that order, and the end of the connection, if it found that. */
static void kv_slots_deliver(struct deferred *deferred)
{
	struct kv *kv = container_of(deferred, struct kv, deferred);

	must(!engine_defers(kv->engine));
	while (kv->finished != KV_SLOTS) {
		struct request *r = kv_slot(kv, kv->finished);
		void *copy = r->copied ? (void *)r->value : NULL;

		kv->finished = r->next;
		if (kv->finished == KV_SLOTS)
			kv->finished_tail = &kv->finished;
		kv_request_finish(kv, r, r->status, r->value, r->value_len);
		value_release(copy);
	}
	kv_watch_deliver(kv);
	if (kv->ended || kv->closed)
		requests_finish(kv);
}

void kv_slots_init(struct kv *kv)
{
	kv->free = KV_SLOTS;
	kv->finished = KV_SLOTS;
	kv->finished_tail = &kv->finished;
	kv->deferred.deliver = kv_slots_deliver;
}

void kv_slots_free(struct kv *kv)
{
	for (uint32_t i = 0; i < kv->slots; i += KV_BLOCK)
		free(kv->block[i / KV_BLOCK]);
	free(kv->size);
}

void kv_size_remember(struct kv *kv, const void *key, size_t key_len, uint64_t length)
{
	uint64_t hash = hash_bytes(key, key_len);

	if (!kv->size)
		kv->size = calloc(KV_SIZES, sizeof(*kv->size));
	if (!kv->size)
		return; /* the next get of it asks twice */
	kv->size[hash % KV_SIZES] = (struct remembered){hash, length};
}
