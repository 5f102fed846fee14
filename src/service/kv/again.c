/*
 * again.c: gets that come again. The value of a get was too long for what the client had ready, and the client was told
 * its length; when it asks again, what it sent behind the get was carried out long ago. So the get keeps its place:
 * before a later write of the same connection changes the key, the value is pinned, and the get has that one. Without
 * such a write it costs a few words.
 *
 * What is pinned so has limits, half of kv_hold's for all and its share for one that keeps more than one value, and a
 * time, as a client may never come back. Beyond them the value goes, and the get is told WIRE_STALE: it never has what
 * was set behind it.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

#define AGAIN_MAX 1024          /* of a client, as many as its library has outstanding */
#define KEEP_TIME (10 * TIME_S) /* of a value: the library asks as soon as it is told */

enum again_state {
	AGAIN_UNCHANGED, /* by this connection: it may have the value that there is */
	AGAIN_KEPT,      /* it is to have `ref` */
	AGAIN_REMOVED,   /* there was none any more */
	AGAIN_LOST,      /* it could not be kept, or not for so long */
};

struct kv_again {
	struct list node; /* in agent->again, oldest first */
	enum again_state state;
	uint32_t id;
	uint64_t key_hash;
	uint64_t since; /* when it was kept */
	struct store_ref ref;
};

/* The pin is another's now, or was given back. */
static void again_unpinned(struct kv_agent *agent, struct kv_again *a, enum again_state state)
{
	struct kv_thread *thread = agent->thread;

	must(a->state == AGAIN_KEPT);
	atomic_fetch_sub_explicit(&kv_hold_of(agent)->kept, a->ref.len, memory_order_relaxed);
	agent->kept -= a->ref.len;
	a->state = state;
	if (--agent->keeps)
		return;
	list_del(&agent->keeping);
	if (!list_empty(&thread->keeping))
		return;
	thread->keeping_until = TIME_NEVER;
	service_part_leave(&thread->part);
}

static void again_lose(struct kv_agent *agent, struct kv_again *a)
{
	store_unpin(agent->thread->store, &a->ref);
	again_unpinned(agent, a, AGAIN_LOST);
}

static void again_forget(struct kv_agent *agent, struct kv_again *a)
{
	if (a->state == AGAIN_KEPT)
		again_lose(agent, a);
	list_del(&a->node);
	list_add_tail(&agent->thread->free_agains, &a->node);
	agent->agains--;
	if (list_empty(&agent->again))
		agent->beside &= ~(unsigned)KV_BESIDE_AGAIN;
}

static struct kv_again *again_find(const struct kv_agent *agent, uint32_t id)
{
	list_for_each (pos, &agent->again)
		if (container_of(pos, struct kv_again, node)->id == id)
			return container_of(pos, struct kv_again, node);
	return NULL;
}

void kv_again_expect(struct kv_agent *agent, const struct wire_record *request, const void *key, size_t key_len)
{
	struct kv_again *a;

	if (again_find(agent, request->id))
		return; /* it grew meanwhile */
	if (agent->agains == AGAIN_MAX)
		again_forget(agent, list_first(&agent->again, struct kv_again, node));
	if (list_empty(&agent->thread->free_agains)) { /* where ended ones are kept for the next */
		a = malloc(sizeof(*a));
	} else {
		a = list_first(&agent->thread->free_agains, struct kv_again, node);
		list_del(&a->node);
	}
	if (!a)
		return; /* it has what there is when it comes */
	*a = (struct kv_again){.id = request->id, .key_hash = store_hash(agent->thread->store, key, key_len)};
	list_init(&a->node);
	list_add_tail(&agent->again, &a->node);
	agent->agains++;
	agent->beside |= KV_BESIDE_AGAIN;
}

/* Whether a value may be kept; then it counts. */
static bool again_may_keep(struct kv_agent *agent, uint64_t bytes)
{
	struct kv_hold *hold = kv_hold_of(agent);
	uint64_t all;

	if (agent->keeps && agent->kept + bytes > hold->share)
		return false;
	all = atomic_fetch_add_explicit(&hold->kept, bytes, memory_order_relaxed);
	if (all && all + bytes > hold->limit / 2) {
		atomic_fetch_sub_explicit(&hold->kept, bytes, memory_order_relaxed);
		return false;
	}
	return true;
}

static void again_keep(struct kv_agent *agent, struct kv_again *a, const void *key, size_t key_len)
{
	struct kv_thread *thread = agent->thread;

	if (store_get(thread->store, key, key_len, kv_now(thread), &a->ref) == 0) {
		a->state = AGAIN_REMOVED;
		return;
	}
	if (!again_may_keep(agent, a->ref.len)) {
		store_unpin(thread->store, &a->ref);
		a->state = AGAIN_LOST;
		return;
	}
	a->state = AGAIN_KEPT;
	a->since = kv_now(thread);
	thread->keeping_until = MIN(thread->keeping_until, a->since + KEEP_TIME);
	agent->kept += a->ref.len;
	if (agent->keeps++)
		return;
	if (list_empty(&thread->keeping))
		service_part_join(&thread->part);
	list_add_tail(&thread->keeping, &agent->keeping);
}

void kv_again_before_write(struct kv_agent *agent, const void *key, size_t key_len)
{
	uint64_t hash = store_hash(agent->thread->store, key, key_len);

	list_for_each (pos, &agent->again) {
		struct kv_again *a = container_of(pos, struct kv_again, node);

		if (a->key_hash == hash && a->state == AGAIN_UNCHANGED)
			again_keep(agent, a, key, key_len);
	}
}

struct kv_again *kv_again_find(const struct kv_agent *agent, const struct wire_record *request)
{
	return request->flags & WIRE_AGAIN ? again_find(agent, request->id) : NULL;
}

int kv_again_get(struct kv_agent *agent, struct kv_again *a, const void *key, size_t key_len, struct store_ref *ref)
{
	if (!a || a->state == AGAIN_UNCHANGED)
		return store_get(agent->thread->store, key, key_len, kv_now(agent->thread), ref) ? 0 : -ENOENT;
	if (a->state != AGAIN_KEPT)
		return a->state == AGAIN_LOST ? -ESTALE : -ENOENT;
	*ref = a->ref;
	return 0;
}

void kv_again_put_back(struct kv_agent *agent, const struct kv_again *a, struct store_ref *ref)
{
	if (!a || a->state != AGAIN_KEPT)
		store_unpin(agent->thread->store, ref);
}

void kv_again_end(struct kv_agent *agent, struct kv_again *a, bool taken)
{
	if (!a)
		return;
	if (taken && a->state == AGAIN_KEPT)
		again_unpinned(agent, a, AGAIN_LOST);
	again_forget(agent, a);
}

void kv_again_given_up(struct kv_agent *agent, uint32_t id)
{
	kv_again_end(agent, again_find(agent, id), false);
}

/* Its values whose time is over. When the next one's is. */
static uint64_t again_agent_turn(struct kv_agent *agent, uint64_t now)
{
	uint64_t next = TIME_NEVER;

	list_for_each (pos, &agent->again) {
		struct kv_again *a = container_of(pos, struct kv_again, node);

		if (a->state == AGAIN_KEPT && now - a->since >= KEEP_TIME)
			again_lose(agent, a);
		else if (a->state == AGAIN_KEPT)
			next = MIN(next, a->since + KEEP_TIME);
	}
	return next;
}

void kv_again_turn(struct kv_thread *thread)
{
	uint64_t now = kv_now(thread);
	uint64_t until = TIME_NEVER;
	struct list *pos, *next;

	if (now < thread->keeping_until)
		return;
	list_for_each_safe (pos, next, &thread->keeping) {
		uint64_t of_agent = again_agent_turn(container_of(pos, struct kv_agent, keeping), now);

		until = MIN(until, of_agent);
	}
	thread->keeping_until = until;
}

void kv_again_close(struct kv_agent *agent)
{
	while (!list_empty(&agent->again))
		again_forget(agent, list_first(&agent->again, struct kv_again, node));
}

void kv_again_clear(struct kv_thread *thread)
{
	while (!list_empty(&thread->free_agains)) {
		struct kv_again *a = list_first(&thread->free_agains, struct kv_again, node);

		list_del(&a->node);
		free(a);
	}
}
