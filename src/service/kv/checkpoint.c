/*
 * checkpoint.c: a checkpoint is all that there is, written beside the clients' writes: what changes meanwhile
 * stands in the log from its beginning on. So nothing is stopped and nothing copied, and a step pins a few values. It
 * becomes valid only when the log is on disk as far as the newest that the walk may have seen, as else what is found
 * would be no prefix of history.
 */
#include "service/kv/log.h"

#include <time.h>

#define STEP 64 /* items that are pinned before their bytes are looked at */
#define GROUP_BYTES (256 * KIB)
#define LOG_LEAST GIB      /* a log that is shorter is no reason for one */
#define LOOK_EVERY TIME_S  /* at how long the log is */
#define RETRY (5 * TIME_S) /* of one that failed, unless it is asked for; and four times what it took */
#define DURABLE_LOOK (2 * TIME_MS)
#define FULL_PATIENCE TIME_S
#define SLEEP_MOST (100 * TIME_MS)

static void sleep_for(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / TIME_S), (long)(ns % TIME_S)};

	nanosleep(&t, NULL);
}

static bool checkpoint_stopped(const struct kv_log *log)
{
	return atomic_load(&log->stop) && log->policy != KV_POLICY_NONE;
}

struct checkpoint {
	uint64_t began, bytes; /* of keys and values */
	uint64_t busy;         /* time that writing them took */
	uint64_t highest;      /* version */
};

/* Never faster than the budget, nor than half of what the disk does: the log has the other half. */
static void keep_to_budget(const struct kv_log *log, const struct checkpoint *c)
{
	uint64_t budget = log->checkpoint_budget, until;

	if (!budget || log->policy == KV_POLICY_NONE)
		return;
	until = c->began + MAX((uint64_t)((double)c->bytes / (double)budget * (double)TIME_S), 2 * c->busy);
	for (uint64_t now = time_now(); now < until && !checkpoint_stopped(log); now = time_now())
		sleep_for(MIN(until - now, SLEEP_MOST));
}

static struct wal_record record_of(const struct kv_clocks *clocks, const struct store_walked *w)
{
	return (struct wal_record){
		.lsn = w->ref.version,
		.expires = kv_expires_to_log(clocks, w->expires),
		.type = WAL_SET,
		.key = w->key,
		.key_len = (uint16_t)w->key_len,
		.value = w->ref.addr,
		.value_len = w->ref.len,
		.item_flags = w->ref.flags,
		.item_type = (uint8_t)(w->ref.type | (w->ref.stale ? STORE_STALE : 0)),
	};
}

/* Items for one group, which is no small one, as each is a write to the disk. *bytes: of their keys and values. */
static unsigned checkpoint_walk(struct kv_log *log, uint64_t *cursor, struct store_walked *walked, uint64_t *bytes)
{
	unsigned n = 0, got;

	*bytes = 0;
	do {
		got = store_walk(log->store, cursor, 0, &walked[n], STEP);
		for (unsigned end = n + got; n < end; n++)
			*bytes += walked[n].key_len + walked[n].ref.len;
	} while (*cursor && n + STEP <= KV_GROUP && *bytes < GROUP_BYTES);
	return n;
}

static int write_step(struct kv_log *log, uint64_t *cursor, struct checkpoint *c)
{
	struct kv_clocks clocks = kv_clocks_now();
	struct store_walked walked[KV_GROUP];
	struct wal_record record[KV_GROUP];
	uint64_t bytes, began;
	unsigned n = checkpoint_walk(log, cursor, walked, &bytes);
	int rc = 0;

	for (unsigned i = 0; i < n; i++) {
		record[i] = record_of(&clocks, &walked[i]);
		c->highest = MAX(c->highest, walked[i].ref.version);
	}
	began = time_now();
	if (n)
		rc = wal_checkpoint_write(log->wal, record, n);
	c->busy += time_now() - began;
	c->bytes += bytes;
	log->checkpoint_done = c->bytes;
	for (unsigned i = 0; i < n; i++)
		store_unpin(log->store, &walked[i].ref);
	return rc;
}

static int checkpoint_write_all(struct kv_log *log, struct checkpoint *c)
{
	uint64_t cursor = 0;
	int rc;

	c->began = time_now();
	do {
		rc = checkpoint_stopped(log) ? -ECANCELED : write_step(log, &cursor, c);
		keep_to_budget(log, c);
	} while (rc == 0 && cursor);
	return rc;
}

/* It waits for the newest that the walk may have seen. On a full disk that may never come, and the next checkpoint,
 * which needs nothing of the log as no change comes any more, makes room for it. */
static int checkpoint_end(struct kv_log *log, uint64_t highest)
{
	struct wal_record record = {.type = WAL_EXPIRE, .expires = WAL_NEVER, .key = "", .key_len = 1};
	uint64_t seen, began = time_now();
	int rc = 0;

	if (!kv_log_keeps(log)) { /* a record that changes nothing says how far the numbers went */
		record.lsn = log->written = highest = MAX(highest, log->written) + 1;
		rc = wal_write(log->wal, &record, 1);
		if (rc == 0)
			rc = wal_sync(log->wal);
	}
	seen = MAX(highest, store_lsn(log->store));
	while (rc == 0 && (rc = wal_checkpoint_end(log->wal, seen)) == -EAGAIN) {
		if (checkpoint_stopped(log) || kv_log_failed(log))
			return -ECANCELED;
		if (log->refused == -ENOSPC && time_now() - began >= FULL_PATIENCE)
			return -ENOSPC;
		kv_log_want(log, seen);
		sleep_for(DURABLE_LOOK);
		rc = 0;
	}
	return rc;
}

/* Makes one with all that there is, or with nothing. */
static int checkpoint_make(struct kv_log *log, bool all, struct checkpoint *c)
{
	int rc = wal_checkpoint_begin(log->wal, store_walk_begin(log->store));

	if (rc != 0)
		return rc;
	if (all)
		rc = checkpoint_write_all(log, c);
	if (rc == 0)
		rc = checkpoint_end(log, c->highest);
	if (rc != 0)
		wal_checkpoint_abandon(log->wal);
	return rc;
}

int kv_checkpoint_make(struct kv_log *log)
{
	struct checkpoint c = {0};
	uint64_t began = time_now();
	char size[32];
	int rc;

	log->checkpoint_done = 0;
	log->checkpoint_began = began;
	rc = checkpoint_make(log, true, &c);
	log->checkpoint_began = 0;
	if (rc == 0)
		log_info("kv", "log: a checkpoint of %s in %.1f s", units_human_size((double)c.bytes, size),
			 (double)(time_now() - began) / TIME_S);
	else if (rc != -ECANCELED && rc != log->checkpoint_error) /* one that is tried again says so once */
		log_error("kv", "log: no checkpoint: %s%s", strerror(-rc),
			  kv_log_keeps(log) ? "; the log stays as long as it is" : "");
	log->checkpoint_error = rc;
	return rc;
}

int kv_checkpoint_forget(struct kv_log *log)
{
	struct checkpoint c = {0};

	return checkpoint_make(log, false, &c);
}

/* The log is so long that it is worth one. One that found no room is tried again: what it needs may have become less,
 * and no other asks while the disk is full. */
static bool checkpoint_is_wanted(const struct kv_log *log, int last, uint64_t next)
{
	struct store_stats stats;
	struct wal_info info;

	if (log->checkpoint_asked)
		return true;
	if (last != 0 && time_now() < next)
		return false;
	if (last == -ENOSPC)
		return true;
	wal_get_info(log->wal, &info);
	if (info.log_bytes <= LOG_LEAST)
		return false;
	store_get_stats(log->store, &stats);
	return info.log_bytes > stats.bytes_asked;
}

void *kv_checkpoint_run(void *arg)
{
	struct kv_log *log = arg;
	uint64_t began, next = 0;
	int rc = 0;

	pthread_mutex_lock(&log->lock);
	while (!atomic_load(&log->stop)) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += (time_t)(LOOK_EVERY / TIME_S);
		pthread_cond_timedwait(&log->cond, &log->lock, &until);
		if (atomic_load(&log->stop) || !checkpoint_is_wanted(log, rc, next))
			continue;
		log->checkpointing = true;
		log->checkpoint_asked = false; /* a request meanwhile wants what this one does not make room for */
		pthread_mutex_unlock(&log->lock);
		began = time_now();
		rc = kv_checkpoint_make(log);
		next = time_now() + MAX(RETRY, 4 * (time_now() - began));
		pthread_mutex_lock(&log->lock);
		log->checkpointing = false;
	}
	pthread_mutex_unlock(&log->lock);
	return NULL;
}
