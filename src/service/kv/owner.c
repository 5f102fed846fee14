/*
 * owner.c: names of clients that may store so many bytes only, as the store's owners. A name keeps its number until the
 * process ends, as items have it. What the log brings back has no owner, until it is written again.
 */
#include "service/kv/kv.h"

#include <pthread.h>
#include <stdlib.h>

#define NAMES (STORE_OWNERS - 2) /* 0 is no owner, and the last one is for all further names together */
#define REST (STORE_OWNERS - 1)

struct kv_owners {
	pthread_mutex_t lock; /* for a look at the names: at a connect, or when rights have changed */
	_Atomic unsigned count;
	bool full;
	char name[NAMES][AUTH_NAME_MAX + 1];
};

struct kv_owners *kv_owners_create(void)
{
	struct kv_owners *owners = calloc(1, sizeof(*owners));

	if (owners)
		pthread_mutex_init(&owners->lock, NULL);
	return owners;
}

void kv_owners_destroy(struct kv_owners *owners)
{
	if (!owners)
		return;
	pthread_mutex_destroy(&owners->lock);
	free(owners);
}

/* The lock is held. */
static uint16_t number_of(struct kv_owners *owners, const char *name)
{
	unsigned count = atomic_load_explicit(&owners->count, memory_order_relaxed);

	for (unsigned i = 0; i < count; i++)
		if (strcmp(owners->name[i], name) == 0)
			return (uint16_t)(i + 1);
	if (count < NAMES) {
		snprintf(owners->name[count], sizeof(owners->name[count]), "%s", name);
		atomic_store_explicit(&owners->count, count + 1, memory_order_release);
		return (uint16_t)(count + 1);
	}
	if (!owners->full)
		log_warn("kv", "%u names had a limit of bytes stored: \"%s\" and all further ones have one together",
			 NAMES, name);
	owners->full = true;
	return REST;
}

uint16_t kv_owner_of(const struct kv_shared *shared, const struct auth_client *client)
{
	struct kv_owners *owners = shared->owners;
	uint16_t owner;

	if (likely(client->stored == AUTH_NO_LIMIT))
		return 0;
	pthread_mutex_lock(&owners->lock);
	owner = number_of(owners, client->name);
	pthread_mutex_unlock(&owners->lock);
	store_set_limit(shared->store, owner, client->stored);
	return owner;
}

void kv_owners_report(const struct kv_shared *shared, struct service_report *report)
{
	unsigned count = atomic_load_explicit(&shared->owners->count, memory_order_acquire);

	if (!count)
		return;
	report->begin(report, "stored_bytes");
	for (unsigned i = 0; i < count; i++)
		report->number(report, shared->owners->name[i], store_owner_bytes(shared->store, (uint16_t)(i + 1)));
	report->end(report);
}

int kv_answer_over_quota(struct conn *conn, struct kv_agent *agent, const struct wire_record *request)
{
	struct wire_over_quota over = {store_owner_bytes(agent->thread->store, agent->owner),
				       conn_client(conn)->stored};
	struct wire_record *reply = conn_reserve(conn, sizeof(over), NULL);

	if (!reply)
		return -EAGAIN;
	kv_agent_count(agent, KV_COUNT_OVER_QUOTA);
	memcpy(reply + 1, &over, sizeof(over));
	kv_answer(conn, agent, request, reply, WIRE_OVER_QUOTA, sizeof(over), kv_tells_all(agent, request));
	return 0;
}
