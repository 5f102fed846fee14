/*
 * lease.c: values that a client has found and wants to find again soon. Each is pinned, so that eviction passes it
 * over, until the client gives it back, its time is over, or the connection ends. A lease is of the value that there
 * was: a write or a delete of the key goes ahead, and what is read then is what there is.
 *
 * What is pinned so has limits: bytes of all, a quarter of them for one client that leases more than one value, and
 * LEASES_MAX of one client. A value beyond them is told, and not leased.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

#define LEASES_MAX 4096 /* of a client */
#define HASH_BUCKETS 256
#define GRAIN (10 * TIME_MS) /* between two looks at what ends */

struct lease {
	struct list node; /* in its bucket */
	uint64_t key_hash;
	uint64_t until;
	struct store_ref ref;
};

struct kv_leases {
	unsigned count;
	uint64_t bytes;
	struct list bucket[HASH_BUCKETS]; /* by the keys' hashes, which no two keys share but by a rare chance */
};

static struct kv_lease_limits *limits_of(const struct kv_agent *agent)
{
	return &((struct kv_shared *)agent->thread->part.shared)->leases;
}

void kv_lease_init(struct kv_lease_limits *limits, uint64_t memory, uint64_t time)
{
	limits->memory = memory;
	limits->time = time;
}

uint64_t kv_lease_bytes(const struct kv_lease_limits *limits)
{
	return atomic_load_explicit(&limits->bytes, memory_order_relaxed);
}

static struct list *bucket_of(struct kv_leases *leases, uint64_t key_hash)
{
	return &leases->bucket[key_hash % HASH_BUCKETS];
}

static struct lease *lease_find(const struct kv_agent *agent, uint64_t key_hash)
{
	if (!agent->leases)
		return NULL;
	list_for_each (pos, bucket_of(agent->leases, key_hash))
		if (container_of(pos, struct lease, node)->key_hash == key_hash)
			return container_of(pos, struct lease, node);
	return NULL;
}

/* An agent has its first lease, or gave the last one back. */
static bool has_some(struct kv_agent *agent)
{
	struct kv_thread *thread = agent->thread;

	if (!agent->leases)
		agent->leases = calloc(1, sizeof(*agent->leases));
	if (!agent->leases)
		return false;
	if (agent->leases->count)
		return true;
	for (unsigned i = 0; i < HASH_BUCKETS; i++)
		list_init(&agent->leases->bucket[i]);
	if (list_empty(&thread->leasing))
		service_part_join(&thread->part);
	list_add_tail(&thread->leasing, &agent->leasing);
	return true;
}

static void has_none(struct kv_agent *agent)
{
	struct kv_thread *thread = agent->thread;

	free(agent->leases);
	agent->leases = NULL;
	list_del(&agent->leasing);
	if (!list_empty(&thread->leasing))
		return;
	thread->leased_until = TIME_NEVER;
	service_part_leave(&thread->part);
}

static void lease_end(struct kv_agent *agent, struct lease *lease)
{
	atomic_fetch_sub_explicit(&limits_of(agent)->bytes, lease->ref.len, memory_order_relaxed);
	agent->leases->bytes -= lease->ref.len;
	store_unpin(agent->thread->store, &lease->ref);
	list_del(&lease->node);
	free(lease);
	if (--agent->leases->count == 0)
		has_none(agent);
}

/* Whether a value may be leased; then it counts. */
static bool lease_take(struct kv_agent *agent, uint64_t bytes)
{
	struct kv_lease_limits *limits = limits_of(agent);
	const struct kv_leases *leases = agent->leases;
	uint64_t others;

	if (leases && (leases->count == LEASES_MAX || leases->bytes + bytes > limits->memory / KV_HOLD_SHARES))
		return false;
	others = atomic_fetch_add_explicit(&limits->bytes, bytes, memory_order_relaxed);
	if (others + bytes <= limits->memory)
		return true;
	atomic_fetch_sub_explicit(&limits->bytes, bytes, memory_order_relaxed);
	return false;
}

/* Lease what is pinned. False: it is not, and the pin is still the caller's. */
static bool lease_begin(struct kv_agent *agent, uint64_t key_hash, const struct store_ref *ref, uint64_t until)
{
	struct lease *lease;

	if (!lease_take(agent, ref->len))
		return false;
	lease = malloc(sizeof(*lease));
	if (!lease || !has_some(agent)) {
		atomic_fetch_sub_explicit(&limits_of(agent)->bytes, ref->len, memory_order_relaxed);
		free(lease);
		return false;
	}
	*lease = (struct lease){.key_hash = key_hash, .until = until, .ref = *ref};
	list_init(&lease->node);
	list_add_tail(bucket_of(agent->leases, key_hash), &lease->node);
	agent->leases->count++;
	agent->leases->bytes += ref->len;
	agent->thread->leased_until = MIN(agent->thread->leased_until, until);
	return true;
}

/* A lease that there was goes on with the value that there is, which is pinned before the lease gives it up. */
int kv_serve_lease(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		   struct wire_record *reply)
{
	const char *key = body + sizeof(uint64_t);
	const uint32_t key_len = request->length - (uint32_t)sizeof(uint64_t);
	struct kv_thread *thread = agent->thread;
	uint64_t now = kv_now(thread), asked = kv_number(body), granted = 0, tells = 0;
	uint64_t hash = store_hash(thread->store, key, key_len);
	uint64_t time = asked > limits_of(agent)->time / TIME_US ? limits_of(agent)->time : asked * TIME_US;
	uint64_t until = time_after(now, time);
	struct lease *before = lease_find(agent, hash);
	struct store_ref ref;
	int found = asked ? store_get(thread->store, key, key_len, now, &ref) : 0, there = asked ? found : !!before;

	if (asked)
		tells = found ? ref.version : kv_tells_removed(agent, request, key, key_len);
	if (found && before && before->ref.item == ref.item) { /* its pin goes on */
		store_unpin(thread->store, &ref);
		before->until = until;
		thread->leased_until = MIN(thread->leased_until, until);
		granted = time / TIME_US;
	} else {
		if (before)
			lease_end(agent, before);
		if (found && lease_begin(agent, hash, &ref, until)) {
			granted = time / TIME_US;
		} else if (found) {
			kv_agent_count(agent, KV_COUNT_LEASES_REFUSED);
			store_unpin(thread->store, &ref);
		}
	}
	return kv_answer_result(conn, agent, request, reply, there ? 0 : -ENOENT, &granted, sizeof(granted), tells);
}

/* End the agent's leases whose time is over. When the next one's is. */
static uint64_t agent_turn(struct kv_agent *agent, uint64_t now)
{
	uint64_t next = TIME_NEVER;

	for (unsigned i = 0; i < HASH_BUCKETS && agent->leases; i++) {
		struct list *pos, *following;

		list_for_each_safe (pos, following, &agent->leases->bucket[i]) {
			struct lease *lease = container_of(pos, struct lease, node);
			bool last = agent->leases->count == 1;

			if (lease->until > now) {
				next = MIN(next, lease->until);
				continue;
			}
			kv_agent_count(agent, KV_COUNT_LEASES_EXPIRED);
			lease_end(agent, lease);
			if (last)
				return TIME_NEVER; /* the buckets are gone, too */
		}
	}
	return next;
}

void kv_lease_turn(struct kv_thread *thread)
{
	uint64_t now = kv_now(thread), until = TIME_NEVER;
	struct list *pos, *following;

	if (now < thread->leased_until)
		return;
	list_for_each_safe (pos, following, &thread->leasing) {
		uint64_t next = agent_turn(container_of(pos, struct kv_agent, leasing), now);

		until = MIN(until, next);
	}
	thread->leased_until = until == TIME_NEVER ? until : MAX(until, now + GRAIN);
}

void kv_lease_close(struct kv_agent *agent)
{
	for (unsigned i = 0; i < HASH_BUCKETS && agent->leases; i++)
		while (agent->leases && !list_empty(&agent->leases->bucket[i]))
			lease_end(agent, list_first(&agent->leases->bucket[i], struct lease, node));
}
