/*
 * kv_load.c: what the log keeps goes back into the store. Records carry the numbers of their changes, and the store takes what
 * is newer than what it has, so they may come twice and from a checkpoint that was made while others wrote.
 */
#include "service/kv_log.h"

#include <time.h>

#define TELL_EVERY (10 * TIME_S)

struct loading {
	struct kv_log *log;
	const struct service_host *host;
	struct kv_clocks clocks;
	struct store_ref place; /* of the value that is being read */
	uint64_t told;
};

struct kv_clocks kv_clocks_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (struct kv_clocks){time_now(), (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000};
}

uint64_t kv_expires_to_log(const struct kv_clocks *clocks, uint64_t expires)
{
	uint64_t past;

	if (expires == TIME_NEVER)
		return WAL_NEVER;
	if (expires >= clocks->mono)
		return clocks->real + (expires - clocks->mono) / TIME_US;
	past = (clocks->mono - expires) / TIME_US;
	return clocks->real - MIN(past, clocks->real);
}

/* What has expired has so since the machine's start, or the store's clock would not know it. */
uint64_t kv_expires_from_log(const struct kv_clocks *clocks, uint64_t expires)
{
	uint64_t past;

	if (expires == WAL_NEVER)
		return TIME_NEVER;
	if (expires >= clocks->real)
		return time_after(clocks->mono, time_of_us(expires - clocks->real));
	past = time_of_us(clocks->real - expires);
	return past < clocks->mono ? clocks->mono - past : 1;
}

static struct store_put put_of(const struct loading *l, const struct wal_record *r)
{
	return (struct store_put){
		.condition = STORE_IF_OLDER, .version = r->lsn, .expires = kv_expires_from_log(&l->clocks, r->expires)};
}

/* The store says -EAGAIN while it makes room, and gets on with each call. */
#define STEPS(rc, call)                                                                                                \
	do {                                                                                                           \
		(rc) = (call);                                                                                         \
	} while ((rc) == -EAGAIN)

/* One that is not newer is no error. */
static int load_result(const struct wal_record *r, int rc)
{
	if (rc == 0 || rc == -ESTALE)
		return 0;
	if (rc == -ENOMEM || rc == -EFBIG)
		log_error("kv",
			  "the log has a value of %llu bytes that finds no room in the store: make kv.memory or "
			  "kv.value_max as large as they were, or allow kv.eviction",
			  (unsigned long long)r->value_len);
	else
		log_error("kv", "a record of the log does not fit the store: %s", strerror(-rc));
	return rc;
}

static int place(void *arg, const struct wal_record *r, void **value)
{
	struct loading *l = arg;
	struct store *store = l->log->store;
	struct store_meta meta;
	int rc;

	*value = NULL;
	if (store_stat(store, r->key, r->key_len, 0, &meta) && meta.version >= r->lsn)
		return 0;
	STEPS(rc, store_reserve(store, r->key, r->key_len, r->value_len, 0, &l->place));
	if (rc == 0)
		*value = l->place.addr;
	return load_result(r, rc);
}

static void drop(void *arg, void *value)
{
	struct loading *l = arg;

	must(l->place.addr == value);
	store_abandon(l->log->store, &l->place);
}

static int load_set(struct loading *l, const struct wal_record *r)
{
	struct store *store = l->log->store;
	struct store_put put = put_of(l, r);
	int rc;

	if (l->place.item && r->value == l->place.addr)
		return load_result(r, store_publish(store, &l->place, &put, 0, NULL));
	if (!r->value && r->value_len)
		return 0; /* place() did not want it */
	STEPS(rc, store_set(store, r->key, r->key_len, r->value, r->value_len, &put, 0, NULL));
	return load_result(r, rc);
}

static int record(void *arg, const struct wal_record *r)
{
	struct loading *l = arg;
	struct store *store = l->log->store;

	switch (r->type) {
	case WAL_SET:
		return load_set(l, r);
	case WAL_DELETE:
		store_load_delete(store, r->key, r->key_len, r->lsn);
		return 0;
	case WAL_EXPIRE:
		store_load_expire(store, r->key, r->key_len, r->version, kv_expires_from_log(&l->clocks, r->expires));
		return 0;
	case WAL_FLUSH:
		store_load_flush(store, r->lsn);
		return 0;
	}
	return -EBADMSG;
}

static void progress(void *arg, uint64_t done, uint64_t total)
{
	struct loading *l = arg;
	char a[32], b[32];

	if (l->host->busy)
		l->host->busy(l->host->arg);
	if (time_now() - l->told < TELL_EVERY)
		return;
	l->told = time_now();
	log_info("kv", "log: %s of %s read", units_human_size((double)done, a), units_human_size((double)total, b));
}

int kv_load(struct kv_log *log, const struct service_host *host, uint64_t *last)
{
	struct loading l = {.log = log, .host = host, .clocks = kv_clocks_now(), .told = time_now()};
	struct wal_reader reader = {.arg = &l, .place = place, .drop = drop, .record = record, .progress = progress};
	uint64_t began = time_now();
	struct wal_found found = {0};
	struct store_stats stats;
	char bytes[32], cut[64] = "", size[32];
	int rc = wal_recover(log->wal, &reader, &found);

	store_abandon(log->store, &l.place);
	if (rc != 0)
		return rc;
	*last = found.last;
	store_get_stats(log->store, &stats);
	if (found.cut)
		snprintf(cut, sizeof(cut), "; a torn end of %s was cut", units_human_size((double)found.cut, size));
	log_info("kv", "log: %llu records of %s read in %.1f s, %llu keys%s", (unsigned long long)found.records,
		 units_human_size((double)found.bytes, bytes), (double)(time_now() - began) / TIME_S,
		 (unsigned long long)stats.items, cut);
	return 0;
}
