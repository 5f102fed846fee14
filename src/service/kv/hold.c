/*
 * hold.c: how much of the store's memory large values under way may hold: room that is reserved for bytes that are
 * coming, and values that are pinned while they are written to a client. A client that asks and then takes its time
 * would else hold all of it, at the price of a message. What is beyond the limits waits; a client that never gives back
 * is cut off by its connection's stall_timeout.
 *
 * No client waits for ever: a client that holds nothing may go ahead when as many transfers have ended as there were
 * when it began to wait, whatever others have begun since. One at a time does, and so does a value that is longer than
 * the limit, so the limit is exceeded by one value at most, and of two that are longer one waits for the other.
 */
#include "service/kv/kv.h"

#define RETRY TIME_MS /* transfers of other threads end without a word to this one */

void kv_hold_init(struct kv_hold *hold, uint64_t limit)
{
	hold->limit = limit;
	hold->share = limit / KV_HOLD_SHARES;
}

static uint64_t read_number(const _Atomic uint64_t *number)
{
	return atomic_load_explicit(number, memory_order_relaxed);
}

/* True when as many transfers have ended as there were when the agent began to wait. */
static bool waited_enough(const struct kv_agent *agent)
{
	return agent->beside & KV_BESIDE_WAIT && read_number(&kv_hold_of(agent)->ended) >= agent->waits_for;
}

bool kv_hold_would_wait(const struct kv_agent *agent, uint64_t bytes)
{
	const struct kv_hold *hold = kv_hold_of(agent);
	uint64_t all = read_number(&hold->bytes);

	if (agent->held && agent->held + bytes > hold->share)
		return true;
	return all && all + bytes > hold->limit &&
	       (agent->held || !waited_enough(agent) || atomic_load_explicit(&hold->beyond, memory_order_relaxed));
}

bool kv_hold_take(struct kv_agent *agent, uint64_t bytes)
{
	struct kv_hold *hold = kv_hold_of(agent);
	const struct kv_agent *none = NULL;
	uint64_t others;

	if (agent->held && agent->held + bytes > hold->share)
		return false;
	others = atomic_fetch_add_explicit(&hold->bytes, bytes, memory_order_relaxed);
	/* One goes beyond the limit: a transfer that has waited, or whose value is longer than that where no other
	 * holds anything. */
	if (others + bytes > hold->limit && (agent->held || (others && !waited_enough(agent)) ||
					     !atomic_compare_exchange_strong(&hold->beyond, &none, agent))) {
		atomic_fetch_sub_explicit(&hold->bytes, bytes, memory_order_relaxed);
		return false;
	}
	atomic_fetch_add_explicit(&hold->begun, 1, memory_order_relaxed);
	agent->held += bytes;
	return true;
}

static void hold_return(struct kv_agent *agent, uint64_t bytes)
{
	struct kv_hold *hold = kv_hold_of(agent);
	const struct kv_agent *me = agent;

	must(agent->held >= bytes);
	agent->held -= bytes;
	atomic_fetch_sub_explicit(&hold->bytes, bytes, memory_order_relaxed);
	if (!agent->held)
		atomic_compare_exchange_strong(&hold->beyond, &me, NULL);
}

void kv_hold_give(struct kv_agent *agent, uint64_t bytes)
{
	hold_return(agent, bytes);
	atomic_fetch_add_explicit(&kv_hold_of(agent)->ended, 1, memory_order_relaxed);
}

void kv_hold_cancel(struct kv_agent *agent, uint64_t bytes)
{
	hold_return(agent, bytes);
	atomic_fetch_sub_explicit(&kv_hold_of(agent)->begun, 1, memory_order_relaxed);
}

/* Again in a millisecond: no event says when it is time. */
void kv_hold_retry(struct conn *conn, struct kv_thread *thread)
{
	if (!thread->retry_at)
		service_part_join(&thread->part);
	thread->retry_at = kv_now(thread) + RETRY;
	conn_wait_writable(conn);
}

int kv_hold_wait(struct conn *conn, struct kv_agent *agent)
{
	if (!(agent->beside & KV_BESIDE_WAIT)) {
		agent->beside |= KV_BESIDE_WAIT;
		agent->waits_for = read_number(&kv_hold_of(agent)->begun);
		kv_agent_count(agent, KV_COUNT_WAITS);
	}
	kv_hold_retry(conn, agent->thread);
	return -EAGAIN;
}

/* Others hold some of a full store. The wait for that begins anew where the request has waited for its turn before. */
static bool may_come_back(struct kv_agent *agent)
{
	const struct kv_hold *hold = kv_hold_of(agent);
	bool again = agent->beside & KV_BESIDE_FULL;

	if (read_number(&hold->ended) >= read_number(&hold->begun) || (again && waited_enough(agent)))
		return false;
	if (!again)
		agent->beside = (agent->beside | KV_BESIDE_FULL) & ~(unsigned)KV_BESIDE_WAIT;
	return true;
}

bool kv_hold_room(struct conn *conn, struct kv_agent *agent, int rc)
{
	if (rc == -EAGAIN && store_changes_full(agent->thread->store)) {
		kv_gate_wait_ring(agent); /* steps make no room before the log has got on */
		kv_hold_retry(conn, agent->thread);
	} else if (rc == -EAGAIN) {
		conn_yield(conn);
	} else if (may_come_back(agent)) {
		store_refuse_later(agent->thread->store);
		kv_hold_wait(conn, agent);
	} else {
		return false;
	}
	return true;
}

void kv_hold_turn(struct kv_thread *thread)
{
	if (!thread->retry_at || kv_now(thread) < thread->retry_at)
		return;
	thread->retry_at = 0;
	service_part_leave(&thread->part);
}

uint64_t kv_hold_bytes(const struct kv_hold *hold)
{
	return read_number(&hold->bytes);
}
