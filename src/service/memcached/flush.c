/* flush.c: flush_all, at once or later. */
#include "service/memcached/memcached.h"

#define CHARGE 8 /* a step of flush_all counts as so many requests */
#define STEPS 64 /* of one call of the clock */
#define TICK (TIME_MS * 10)

int memcached_flush(struct memcached_client *c, const struct memc_command *command)
{
	uint64_t deleted;
	int rc;

	if (command->exptime > 0) {
		uint64_t at = memcached_expires(c, command->exptime);

		if (at > memcached_now(c)) {
			memcached_count(c, MEMCACHED_CMD_FLUSH);
			atomic_store(&c->thread->shared->flush_at, at);
			return memcached_say(c, command, "OK");
		}
	}
	atomic_store(&c->thread->shared->flush_at, TIME_NEVER); /* that one is of before */
	c->held = store_flushes_held(c->thread->store);
	do {
		rc = store_flush_some(c->thread->store, &c->flush_cursor, &deleted);
		stream_charge(c->stream, CHARGE);
	} while (rc == 0 && c->flush_cursor && stream_time_left(c->stream));
	if (rc == -EAGAIN || (rc == 0 && c->flush_cursor))
		return -EAGAIN;
	c->flush_cursor = 0;
	if (rc != 0)
		return rc;
	memcached_count(c, MEMCACHED_CMD_FLUSH);
	c->tells = MAX(c->tells, store_lsn(c->thread->store));
	return memcached_say(c, command, "OK");
}

uint64_t memcached_tick(void *of, uint64_t now)
{
	struct memcached_shared *shared = of;
	uint64_t at = atomic_load(&shared->flush_at), deleted;
	int rc = 0;

	if (!shared->flushing && (at > now || !atomic_compare_exchange_strong(&shared->flush_at, &at, TIME_NEVER)))
		return now + TIME_S < at ? now + TIME_S : at;
	shared->flushing = true;
	for (unsigned i = 0; i < STEPS && rc == 0 && shared->flushing; i++) {
		rc = store_flush_some(shared->store, &shared->flush_cursor, &deleted);
		shared->flushing = rc != 0 || shared->flush_cursor;
	}
	return now + (shared->flushing ? TICK : TIME_S);
}
