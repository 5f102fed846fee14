/*
 * log.c: the log of the store. A thread takes the changes in the order of their numbers, hands them to the kernel and
 * has them put on disk: at once where answers wait for that, else now and then. What comes while it does is the next
 * group, so that the slower the disk is the more shares one sync. Workers never wait for it; they are woken when the
 * number that is on disk rises.
 *
 * A disk that is full is waited for: writes are refused meanwhile, and what was taken already is tried again. Any other
 * error is for ever, as the kernel may have dropped what it could not write, and a second sync would lie.
 */
#include "service/kv/log.h"
#include "base/thread.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PIECE 64              /* changes that are taken before their bytes are looked at */
#define GROUP_BYTES (4 * MIB) /* that are written before a sync */
#define REST (10 * TIME_MS)   /* changes are with the kernel after that, where no answer waits for them */
#define LONG_REST (100 * TIME_MS)
#define FULL_PAUSE (100 * TIME_MS)
#define POLL_MOST (100 * TIME_US)
#define LOOK_EVERY TIME_S

_Static_assert((int)WAL_SET == STORE_CHANGE_SET && (int)WAL_DELETE == STORE_CHANGE_DELETE &&
		       (int)WAL_EXPIRE == STORE_CHANGE_EXPIRE && (int)WAL_FLUSH == STORE_CHANGE_FLUSH &&
		       WAL_EVICTED == STORE_CHANGE_EVICTED && WAL_MORE == STORE_CHANGE_MORE,
	       "a change has one number in the store and in the log");

/*
 * What workers ask. Any thread.
 */

bool kv_log_keeps(const struct kv_log *log)
{
	return log && log->policy != KV_POLICY_NONE;
}

bool kv_log_gates(const struct kv_log *log)
{
	return log && log->policy == KV_POLICY_ALWAYS;
}

uint64_t kv_log_durable(const struct kv_log *log)
{
	return atomic_load(&log->durable);
}

bool kv_log_failed(const struct kv_log *log)
{
	return atomic_load(&log->failed);
}

uint64_t kv_log_taken(const struct kv_log *log)
{
	return atomic_load(&log->taken);
}

/* It sets `asleep` and looks once more, in this order; here it is the other way around. All of these, and those by
 * which workers sleep, are in the one order of sequentially consistent operations, so that one of both sees the
 * other. */
static void writer_wake(struct kv_log *log)
{
	uint64_t one = 1;

	if (atomic_load(&log->asleep) && atomic_exchange(&log->asleep, false) &&
	    write(log->event, &one, sizeof(one)) < 0)
		log_debug("kv", "log: cannot wake its thread: %m");
}

void kv_log_want(struct kv_log *log, uint64_t lsn)
{
	uint64_t was = atomic_load_explicit(&log->wanted, memory_order_relaxed);

	while (lsn > was && !atomic_compare_exchange_weak(&log->wanted, &was, lsn))
		;
	writer_wake(log);
}

/*
 * The workers' threads.
 */

void kv_log_join(struct kv_log *log, struct kv_thread *thread)
{
	pthread_mutex_lock(&log->lock);
	list_add_tail(&log->threads, &thread->node);
	atomic_store(&thread->refused, log->refused);
	pthread_mutex_unlock(&log->lock);
}

void kv_log_leave(struct kv_log *log, struct kv_thread *thread)
{
	pthread_mutex_lock(&log->lock);
	list_del(&thread->node);
	pthread_mutex_unlock(&log->lock);
}

enum wake { WAKE_FOR_DURABLE, WAKE_FOR_RING };

/* Wakes the threads that sleep for it. */
static void threads_wake(struct kv_log *log, enum wake why)
{
	uint64_t one = 1;

	pthread_mutex_lock(&log->lock);
	list_for_each (pos, &log->threads) {
		struct kv_thread *thread = container_of(pos, struct kv_thread, node);
		_Atomic bool *sleeps = why == WAKE_FOR_RING ? &thread->ring_sleeps : &thread->sleeps;

		if (atomic_load(sleeps) && atomic_exchange(sleeps, false) &&
		    write(thread->event, &one, sizeof(one)) < 0)
			log_debug("kv", "log: cannot wake a worker: %m");
	}
	pthread_mutex_unlock(&log->lock);
}

static void threads_refuse(struct kv_log *log, int error)
{
	pthread_mutex_lock(&log->lock);
	log->refused = error;
	list_for_each (pos, &log->threads)
		atomic_store(&container_of(pos, struct kv_thread, node)->refused, error);
	pthread_mutex_unlock(&log->lock);
}

/*
 * The writer.
 */

static bool log_stopping(const struct kv_log *log)
{
	return atomic_load_explicit(&log->stop, memory_order_acquire);
}

static struct wal_record record_of(const struct kv_clocks *clocks, const struct store_change *c)
{
	return (struct wal_record){
		.lsn = c->lsn,
		.expires = c->type == STORE_CHANGE_SET || c->type == STORE_CHANGE_EXPIRE
				   ? kv_expires_to_log(clocks, c->expires)
				   : WAL_NEVER,
		.version = c->type == STORE_CHANGE_EXPIRE ? c->version : 0,
		.type = (enum wal_type)c->type,
		.flags = c->flags,
		.key_len = (uint16_t)c->key_len,
		.key = c->key,
		.value = c->value,
		.value_len = c->value_len,
		.item_flags = c->item_flags,
		.item_type = c->item_type,
	};
}

/* Takes what there is, up to a group. */
static void group_take(struct kv_log *log)
{
	struct kv_clocks clocks = kv_clocks_now();
	struct kv_group *g = &log->group;
	unsigned end;

	g->bytes = 0;
	do {
		end = g->count + store_changes_take(log->store, &g->change[g->count], PIECE);
		for (; g->count < end; g->count++) {
			g->record[g->count] = record_of(&clocks, &g->change[g->count]);
			g->bytes += g->change[g->count].key_len + g->change[g->count].value_len;
		}
	} while (end && end % PIECE == 0 && end < KV_GROUP && g->bytes < GROUP_BYTES &&
		 g->change[end - 1].lsn != store_lsn(log->store)); /* else no change was made behind these */
}

static void group_release(struct kv_log *log)
{
	struct kv_group *g = &log->group;

	if (!g->count)
		return;
	store_changes_release(log->store, g->change, g->count);
	atomic_fetch_add(&log->taken, g->count);
	g->count = g->put = 0;
	threads_wake(log, WAKE_FOR_RING);
}

/* For ever. The reader goes on, or the process ends. */
static void writer_breaks(struct kv_log *log, int error)
{
	bool stop = log->on_error == KV_ERROR_STOP;

	log->broken = true;
	log_error(
		"kv",
		"log: cannot write: %s; changes from %llu on are not on disk. It is not tried again, as the kernel may "
		"have dropped them; see its messages (dmesg). log.on_error is \"%s\": %s",
		strerror(-error), (unsigned long long)(kv_log_durable(log) + 1), stop ? "stop" : "read-only",
		stop ? "the daemon ends" : "writes are refused from now on");
	threads_refuse(log, -EROFS);
	if (stop && log->fatal)
		log->fatal(log->fatal_arg, -EIO);
	if (!stop)
		atomic_store(&log->failed, true);
	threads_wake(log, WAKE_FOR_DURABLE);
}

static void checkpoint_ask(struct kv_log *log)
{
	pthread_mutex_lock(&log->lock);
	log->checkpoint_asked = true;
	pthread_cond_signal(&log->cond);
	pthread_mutex_unlock(&log->lock);
}

/* The disk is full, or there is room again. */
static void writer_is_full(struct kv_log *log, bool full)
{
	struct wal_info info;
	char size[32];

	if (full == (log->refused == -ENOSPC))
		return;
	wal_get_info(log->wal, &info);
	if (full)
		log_error("kv",
			  "log: no room on the disk of log.directory: writes are refused until there is some for "
			  "another file of %s, which a checkpoint may make",
			  units_human_size((double)info.segment, size));
	else
		log_info("kv", "log: there is room on the disk again");
	threads_refuse(log, full ? -ENOSPC : 0);
	if (full)
		checkpoint_ask(log);
}

/* Asks for a checkpoint, which may make room, before there is none at all. */
static void look_at_room(struct kv_log *log)
{
	struct wal_info info;

	wal_get_info(log->wal, &info);
	writer_is_full(log, info.last);
	if (info.full && !log->near_full)
		checkpoint_ask(log);
	log->near_full = info.full;
}

/* Where the disk has no room for all of a group it may have some for a part. What is tried again and again is
 * little. */
static int group_put(struct kv_log *log)
{
	struct kv_group *g = &log->group;
	unsigned n = log->refused == -ENOSPC ? 1 : g->count - g->put;
	int rc;

	while ((rc = wal_write(log->wal, &g->record[g->put], n)) == -ENOSPC && n > 1)
		n = (n + 3) / 4;
	/* A commit of which the log has a part only is not written yet: what a reader sees of that must not be told
	 * before all of it is on disk. */
	for (; rc == 0 && n > 0; n--, g->put++)
		if (!(g->change[g->put].flags & STORE_CHANGE_MORE))
			log->written = g->change[g->put].lsn;
	return rc;
}

static int group_write(struct kv_log *log)
{
	struct kv_group *g = &log->group;
	int rc;

	do {
		rc = group_put(log);
	} while (rc == 0 && g->put < g->count);
	if (rc == -ENOSPC)
		writer_is_full(log, true);
	if (rc != 0)
		return rc;
	look_at_room(log);
	log->unsynced += g->bytes;
	group_release(log);
	return 0;
}

static int writer_sync(struct kv_log *log)
{
	uint64_t n = log->written - log->synced;
	int rc = wal_sync(log->wal);

	if (rc != 0)
		return rc;
	if (n > atomic_load_explicit(&log->largest, memory_order_relaxed))
		atomic_store_explicit(&log->largest, n, memory_order_relaxed);
	log->alone = n == 1 && log->policy == KV_POLICY_ALWAYS;
	log->synced = log->written;
	log->synced_at = time_now();
	log->unsynced = 0;
	atomic_store(&log->durable, log->synced);
	threads_wake(log, WAKE_FOR_DURABLE);
	return 0;
}

static bool is_wanted(const struct kv_log *log)
{
	return atomic_load(&log->wanted) > log->synced;
}

static bool sync_is_due(const struct kv_log *log)
{
	if (log->written == log->synced)
		return false;
	return log->policy == KV_POLICY_ALWAYS || is_wanted(log) || log_stopping(log) ||
	       time_now() - log->synced_at >= log->sync_every;
}

/* All that there is, up to GROUP_BYTES, and a sync where it is time for one. What comes while a group is written that
 * was not full is for the next turn. *more: there may be as much again. */
static int writer_turn(struct kv_log *log, bool *more)
{
	struct kv_group *g = &log->group;
	uint64_t bytes = 0;
	bool full;
	int rc = 0;

	do {
		if (!g->count) /* else the disk was full */
			group_take(log);
		full = g->count == KV_GROUP;
		bytes += g->bytes;
		if (g->count) {
			rc = group_write(log);
		} else if (log->refused == -ENOSPC) {
			/* No write is left: it goes on when a checkpoint or another process has made room. */
			rc = wal_room(log->wal);
			if (rc == 0)
				writer_is_full(log, false);
		}
	} while (rc == 0 && full && bytes < GROUP_BYTES);
	*more = full || bytes >= GROUP_BYTES;
	if ((rc == 0 || rc == -ENOSPC) && sync_is_due(log)) {
		int error = writer_sync(log); /* also of what was written before the disk was full */

		rc = error ? error : rc;
	}
	return rc;
}

/* Nothing is written any more, but the store goes on. */
static void writer_drop_all(struct kv_log *log)
{
	do {
		group_release(log);
		group_take(log);
	} while (log->group.count);
}

/* Something has to be done before the time is over. */
static bool writer_has_work(const struct kv_log *log)
{
	if (log_stopping(log) || log->broken)
		return log_stopping(log);
	return is_wanted(log) || (log->policy == KV_POLICY_ALWAYS && store_lsn(log->store) > log->written);
}

static void writer_rest(struct kv_log *log, uint64_t ns)
{
	struct pollfd pfd = {.fd = log->event, .events = POLLIN};
	uint64_t count, until = log->alone ? time_now() + log->poll : 0;

	/* A client that is alone has its next change here sooner than a thread wakes. Where there are more, their
	 * changes make a larger group meanwhile, and they need the processors. */
	while (log->alone && !writer_has_work(log) && time_now() < until)
		sched_yield(); /* to the worker, or the client */
	log->alone = false;
	atomic_store(&log->asleep, true);
	if (!writer_has_work(log) || log->group.count)
		poll(&pfd, 1, (int)(ns / TIME_MS));
	atomic_store(&log->asleep, false);
	if (pfd.revents && read(log->event, &count, sizeof(count)) < 0)
		log_debug("kv", "log: woken for nothing");
}

/* Looks at the files now and then, also where nothing comes, and at the end. */
static int writer_look(struct kv_log *log, uint64_t now, bool last)
{
	bool removed = wal_is_removed(log->wal);

	log->looked_at = now;
	if (removed && !log->removed)
		log_error(
			"kv",
			"log: somebody has removed the files of log.directory: what is written from now on will not be "
			"found. `rdmactl kv export FILE` saves keys and values");
	log->removed = removed;
	if (log->written != log->synced || (now - log->synced_at < LOOK_EVERY && !last))
		return 0;
	return wal_mark(log->wal);
}

static void *writer_run(void *arg)
{
	struct kv_log *log = arg;
	uint64_t now = time_now();
	bool more = false;
	int rc;

	log->synced_at = log->looked_at = now;
	while (true) {
		bool last = log_stopping(log); /* before it looks for the last time */

		rc = log->broken ? 0 : writer_turn(log, &more);
		now = time_now();
		if (rc == 0 && !log->broken && (last || now - log->looked_at >= LOOK_EVERY))
			rc = writer_look(log, now, last);
		if (rc != 0 && rc != -ENOSPC)
			writer_breaks(log, rc);
		if (log->broken)
			writer_drop_all(log);
		if (last && (log->broken || rc == -ENOSPC || store_lsn(log->store) == log->synced))
			break;
		if (last)
			continue;
		if (rc == -ENOSPC)
			writer_rest(log, FULL_PAUSE);
		else if (log->broken || !more)
			writer_rest(log, log->policy == KV_POLICY_ALWAYS ? LONG_REST : REST);
	}
	log->lags = store_lsn(log->store) != log->synced;
	writer_drop_all(log);
	return NULL;
}

/*
 * Life. Main thread.
 */

bool kv_log_wanted(const struct kv_settings *s)
{
	return s->directory && (s->policy != KV_POLICY_NONE || s->save_at_exit);
}

static int start_thread(pthread_t *thread, const char *name, void *(*run)(void *arg), struct kv_log *log)
{
	int rc = thread_start(thread, name, run, log);

	return rc == 0 ? 0 : log_fail(rc, "kv", "cannot start a thread for the log: %s", strerror(-rc));
}

static void stop_thread(struct kv_log *log, pthread_t thread)
{
	pthread_mutex_lock(&log->lock);
	atomic_store(&log->stop, true);
	pthread_cond_signal(&log->cond);
	pthread_mutex_unlock(&log->lock);
	writer_wake(log);
	pthread_join(thread, NULL);
}

/* Begins with what was loaded. */
static int log_begin(struct kv_log *log, uint64_t first)
{
	struct store_stats stats;
	int rc = 0;

	log->written = log->synced = first;
	atomic_store(&log->durable, first);
	if (log->policy == KV_POLICY_NONE) {
		store_load_end(log->store, first);
		return 0;
	}
	/* A deletion of what was evicted is told nowhere, so the log must not have it any more. */
	store_get_stats(log->store, &stats);
	if (stats.evictions)
		rc = kv_checkpoint_make(log);
	if (rc != 0)
		return rc;
	store_changes_begin(log->store, first);
	look_at_room(log); /* it may be full from the start */
	rc = start_thread(&log->writer, "log", writer_run, log);
	if (rc != 0)
		return rc;
	rc = start_thread(&log->checkpointer, "checkpoint", kv_checkpoint_run, log);
	if (rc != 0)
		stop_thread(log, log->writer);
	log->threads_run = rc == 0;
	return rc;
}

static int open_and_load(struct kv_log *log, const struct kv_settings *s, const struct service_host *host)
{
	struct wal_config config = {
		.directory = s->directory,
		.segment = s->segment,
		.given_least = store_epoch(), /* by a store without a log */
		.recover_prefix = s->recover == KV_RECOVER_PREFIX,
		.files = s->files,
	};
	uint64_t last = 0;
	int rc = wal_open(&config, &log->wal);

	if (rc != 0)
		return rc;
	rc = kv_load(log, host, &last);
	if (rc == 0)
		rc = log_begin(log, last);
	/* What was saved is used up: after a crash nothing is better than what was once there. */
	if (rc == 0 && log->policy == KV_POLICY_NONE)
		rc = kv_checkpoint_forget(log);
	if (rc != 0)
		wal_close(log->wal);
	return rc;
}

int kv_log_open(const struct kv_settings *s, struct store *store, const struct service_host *host, struct kv_log **out)
{
	struct kv_log *log = calloc(1, sizeof(*log));
	int rc;

	if (!log)
		return -ENOMEM;
	log->store = store;
	log->policy = (enum kv_policy)s->policy;
	log->on_error = (enum kv_on_error)s->on_error;
	log->sync_every = s->sync_every;
	log->checkpoint_budget = s->checkpoint_budget;
	log->fatal = host->fatal;
	log->fatal_arg = host->arg;
	log->poll = MIN(host->poll, POLL_MOST);
	pthread_mutex_init(&log->lock, NULL);
	pthread_cond_init(&log->cond, NULL);
	list_init(&log->threads);
	log->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = log->event < 0 ? -errno : open_and_load(log, s, host);
	if (rc == 0) {
		*out = log;
		return 0;
	}
	if (log->event >= 0)
		close(log->event);
	free(log);
	return rc;
}

/* All that there is: with the policy "none", or where the disk had no room for the last changes. Under "always" nothing
 * of what is lost was answered. */
static void log_save(struct kv_log *log)
{
	atomic_store(&log->stop, false);
	log->checkpoint_budget = 0;
	if (!log->broken && kv_checkpoint_make(log) == 0)
		return;
	if (kv_log_keeps(log))
		log_error("kv", "log: changes from %llu on are not on disk, and lost%s",
			  (unsigned long long)(kv_log_durable(log) + 1),
			  kv_log_gates(log) ? "; none of them was answered" : ", though they were answered");
	else
		log_error("kv", "log.save_at_exit: keys and values are not saved, and lost");
	if (!kv_log_gates(log) && log->fatal)
		log->fatal(log->fatal_arg, -EIO);
}

void kv_log_close(struct kv_log *log)
{
	if (!log)
		return;
	must(list_empty(&log->threads));
	if (log->threads_run) {
		stop_thread(log, log->writer);
		stop_thread(log, log->checkpointer);
	}
	if (log->policy == KV_POLICY_NONE || log->lags)
		log_save(log);
	wal_close(log->wal);
	pthread_cond_destroy(&log->cond);
	pthread_mutex_destroy(&log->lock);
	close(log->event);
	free(log);
}

int kv_log_checkpoint(struct kv_log *log)
{
	int rc;

	if (!kv_log_keeps(log))
		return -EOPNOTSUPP;
	pthread_mutex_lock(&log->lock);
	rc = log->checkpointing || log->checkpoint_asked ? -EALREADY : 0;
	if (rc == 0)
		log->checkpoint_asked = true;
	pthread_cond_signal(&log->cond);
	pthread_mutex_unlock(&log->lock);
	return rc;
}

#define NUMBER(name, member)                                                                                           \
	{                                                                                                              \
		name, offsetof(struct wal_info, member)                                                                \
	}
static const struct {
	const char *name;
	size_t offset;
} numbers[] = {
	NUMBER("groups", groups),
	NUMBER("written_bytes", bytes),
	NUMBER("log_bytes", log_bytes),
	NUMBER("segments", segments),
	NUMBER("spare_segments", spare),
	NUMBER("segment_bytes", segment),
	NUMBER("lost_bytes", lost),
	NUMBER("checkpoints", checkpoints),
	NUMBER("checkpoint_bytes", checkpoint_bytes),
	NUMBER("last_sync_ns", sync_last_ns),
	NUMBER("longest_sync_ns", sync_max_ns),
};

/* *held: answers that wait. */
static const char *state_of(struct kv_log *log, uint64_t *held)
{
	struct wal_info info;
	int refused;

	*held = 0;
	wal_get_info(log->wal, &info);
	pthread_mutex_lock(&log->lock);
	refused = log->refused;
	list_for_each (pos, &log->threads)
		*held += atomic_load_explicit(&container_of(pos, struct kv_thread, node)->held, memory_order_relaxed);
	pthread_mutex_unlock(&log->lock);
	if (refused != 0)
		return refused == -ENOSPC ? "disk full" : "failed";
	return log->removed ? "removed" : info.lost ? "prefix" : "good";
}

void kv_log_report(struct kv_log *log, struct service_report *report)
{
	static const char *const policies[] = {"none", "interval", "always"};
	uint64_t lsn = store_lsn(log->store), durable = kv_log_durable(log), held, began = log->checkpoint_began;
	struct store_stats stats;
	struct wal_info info;

	wal_get_info(log->wal, &info);
	report->begin(report, "log");
	report->text(report, "policy", policies[log->policy]);
	report->text(report, "state", state_of(log, &held));
	report->number(report, "lsn", lsn);
	report->number(report, "durable_lsn", durable);
	report->number(report, "committed_lsn", log->policy == KV_POLICY_ALWAYS ? durable : lsn);
	report->number(report, "lag", lsn - MIN(durable, lsn));
	report->number(report, "held_answers", held);
	report->number(report, "changes", atomic_load_explicit(&log->taken, memory_order_relaxed));
	report->number(report, "largest_group", atomic_load_explicit(&log->largest, memory_order_relaxed));
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		report->number(report, numbers[i].name, *(uint64_t *)((char *)&info + numbers[i].offset));
	store_get_stats(log->store, &stats);
	report->number(report, "checkpoint_under_way_ns", began ? time_now() - began : 0);
	report->number(report, "checkpoint_done_bytes", began ? log->checkpoint_done : 0);
	report->number(report, "checkpoint_whole_bytes", began ? stats.bytes_asked : 0);
	report->end(report);
}

const struct wal *kv_log_wal(const struct kv_log *log)
{
	return log->wal;
}
