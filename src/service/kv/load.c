/*
 * load.c: what the log keeps goes back into the store. Records carry the numbers of their changes, and the store takes
 * what is newer than what it has, so they may come twice and from a checkpoint that was made while others wrote.
 *
 * In between there may be more than the store ever held: a checkpoint has what was there at its begin and also what
 * took its place until its end, and what has expired made room without a record, but may be prolonged by one that comes
 * later. So from the first value that finds no room on, only the numbers of values are kept; and those that are left at
 * the end are read again.
 */
#include "service/kv/log.h"

#include <stdlib.h>
#include <time.h>

#define TELL_EVERY (10 * TIME_S)

/* A value to be read again. */
struct late {
	struct late *next; /* in its slot */
	uint64_t lsn, expires, hash;
	uint32_t key_len;
	char key[];
};

struct loading {
	struct kv_log *log;
	const struct service_host *host;
	struct kv_clocks clocks;
	struct store_ref place; /* of the value that is being read */
	uint64_t told;
	bool full;          /* a value found no room */
	bool again;         /* the second time */
	struct late **late; /* slots of lists, as many as a power of two */
	size_t slots, lates;
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
static uint64_t kv_expires_from_log(const struct kv_clocks *clocks, uint64_t expires)
{
	uint64_t past;

	if (expires == WAL_NEVER)
		return TIME_NEVER;
	if (expires >= clocks->real)
		return time_after(clocks->mono, time_of_us(expires - clocks->real));
	past = time_of_us(clocks->real - expires);
	return past < clocks->mono ? clocks->mono - past : 1;
}

/*
 * Values that are read again
 */

static uint64_t key_hash(const struct wal_record *r)
{
	return hash_bytes(r->key, r->key_len);
}

/* The link to that of a key; NULL: there is none. */
static struct late **late_find(const struct loading *l, const struct wal_record *r, uint64_t hash)
{
	struct late **at = &l->late[hash & (l->slots - 1)];

	while (*at &&
	       ((*at)->hash != hash || (*at)->key_len != r->key_len || memcmp((*at)->key, r->key, r->key_len) != 0))
		at = &(*at)->next;
	return *at ? at : NULL;
}

/* For most there are none at all. */
static struct late **late_of(const struct loading *l, const struct wal_record *r)
{
	return l->lates ? late_find(l, r, key_hash(r)) : NULL;
}

static void late_remove(struct loading *l, struct late **at)
{
	struct late *late = *at;

	*at = late->next;
	l->lates--;
	free(late);
}

static int lates_grow(struct loading *l)
{
	size_t slots = l->slots ? 2 * l->slots : 1024;
	struct late **to = calloc(slots, sizeof(struct late *));

	if (!to)
		return -ENOMEM;
	for (size_t i = 0; i < l->slots; i++) {
		struct late *late, *next;

		for (late = l->late[i]; late; late = next) {
			struct late **at = &to[late->hash & (slots - 1)];

			next = late->next;
			late->next = *at;
			*at = late;
		}
	}
	free(l->late);
	l->late = to;
	l->slots = slots;
	return 0;
}

static int late_add(struct loading *l, const struct wal_record *r, uint64_t hash)
{
	struct late **at, *late = malloc(sizeof(*late) + r->key_len);

	if (!late || (l->lates >= l->slots && lates_grow(l) != 0)) {
		free(late);
		log_error("kv", "no memory to load what the log keeps: there are %zu keys to be read again", l->lates);
		return -ENOMEM;
	}
	at = &l->late[hash & (l->slots - 1)];
	*late = (struct late){.next = *at, .lsn = r->lsn, .expires = r->expires, .hash = hash, .key_len = r->key_len};
	memcpy(late->key, r->key, r->key_len);
	*at = late;
	l->lates++;
	return 0;
}

/* In place of an older one, here or in the store. */
static int late_set(struct loading *l, const struct wal_record *r)
{
	uint64_t hash = key_hash(r);
	struct late **at = l->lates ? late_find(l, r, hash) : NULL;
	struct store_meta meta;

	if ((at && (*at)->lsn >= r->lsn) ||
	    (store_stat(l->log->store, r->key, r->key_len, 0, &meta) && meta.version >= r->lsn))
		return 0;
	store_load_delete(l->log->store, r->key, r->key_len, r->lsn);
	if (!at)
		return late_add(l, r, hash);
	(*at)->lsn = r->lsn;
	(*at)->expires = r->expires;
	return 0;
}

/* Those of an LSN below this one, or that expire up to this time. */
static void lates_sift(struct loading *l, uint64_t below, uint64_t until)
{
	for (size_t i = 0; i < l->slots; i++) {
		struct late **at = &l->late[i];

		while (*at) {
			if ((*at)->lsn < below || (*at)->expires <= until)
				late_remove(l, at);
			else
				at = &(*at)->next;
		}
	}
}

static bool again(void *arg)
{
	struct loading *l = arg;

	lates_sift(l, 0, l->clocks.real);
	l->again = l->lates;
	if (l->again)
		log_info("kv",
			 "log: %zu values found no room beside others that are gone by its end: it is read again for "
			 "them",
			 l->lates);
	return l->again;
}

/*
 * Records
 */

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

/* What a record is that comes the second time. */
static bool is_late(const struct loading *l, const struct wal_record *r)
{
	struct late **at = late_of(l, r);

	return at && (*at)->lsn == r->lsn;
}

static struct store_put load_put(const struct loading *l, const struct wal_record *r, uint64_t expires)
{
	return (struct store_put){
		.condition = STORE_IF_OLDER,
		.version = r->lsn,
		.expires = kv_expires_from_log(&l->clocks, expires),
		.type = r->item_type,
		.flags = r->item_flags,
	};
}

static int place(void *arg, const struct wal_record *r, void **value)
{
	struct loading *l = arg;
	struct store *store = l->log->store;
	struct store_put put = load_put(l, r, r->expires);
	struct store_meta meta;
	int rc;

	*value = NULL;
	if (l->again ? !is_late(l, r) : l->full)
		return 0;
	if (store_stat(store, r->key, r->key_len, 0, &meta) && meta.version >= r->lsn)
		return 0;
	STEPS(rc, store_reserve_for(store, r->key, r->key_len, r->value_len, &put, l->again ? l->clocks.mono : 0,
				    &l->place));
	if (rc == 0)
		*value = l->place.addr;
	if (rc == -ENOMEM && !l->again) {
		l->full = true;
		return 0;
	}
	return load_result(r, rc);
}

static void drop(void *arg, void *value)
{
	struct loading *l = arg;

	must(l->place.addr == value);
	store_abandon(l->log->store, &l->place);
}

static int load_set(struct loading *l, const struct wal_record *r, uint64_t expires, uint64_t now)
{
	struct store *store = l->log->store;
	struct store_put put = load_put(l, r, expires);
	int rc;

	if (l->place.item && r->value == l->place.addr)
		return store_publish(store, &l->place, &put, now, NULL);
	if (!r->value && r->value_len)
		return 0; /* place() did not want it */
	STEPS(rc, store_set(store, r->key, r->key_len, r->value, r->value_len, &put, now, NULL));
	return rc;
}

/* All others were carried out the first time. What has expired is not prolonged any more. */
static int record_again(struct loading *l, const struct wal_record *r)
{
	struct late **at = r->type == WAL_SET ? late_of(l, r) : NULL;
	int rc;

	if (!at || (*at)->lsn != r->lsn)
		return 0;
	rc = load_set(l, r, (*at)->expires, l->clocks.mono);
	late_remove(l, at);
	return load_result(r, rc);
}

static int record(void *arg, const struct wal_record *r)
{
	struct loading *l = arg;
	struct store *store = l->log->store;
	struct late **at;
	int rc;

	if (l->again)
		return record_again(l, r);
	switch (r->type) {
	case WAL_SET:
		rc = l->full ? 0 : load_set(l, r, r->expires, 0);
		if (rc == -ENOMEM)
			l->full = true;
		return l->full ? late_set(l, r) : load_result(r, rc);
	case WAL_DELETE:
		store_load_delete(store, r->key, r->key_len, r->lsn);
		at = late_of(l, r);
		if (at && (*at)->lsn < r->lsn)
			late_remove(l, at);
		return 0;
	case WAL_EXPIRE:
		store_load_expire(store, r->key, r->key_len, r->version, kv_expires_from_log(&l->clocks, r->expires));
		at = late_of(l, r);
		if (at && (*at)->lsn == r->version)
			(*at)->expires = r->expires;
		return 0;
	case WAL_FLUSH:
		store_load_flush(store, r->lsn);
		lates_sift(l, r->lsn, 0);
		return 0;
	}
	return -EBADMSG;
}

static void progress(void *arg, uint64_t done, uint64_t total)
{
	struct loading *l = arg;
	char a[32], b[32], text[96];

	snprintf(text, sizeof(text), "log: %s of %s read", units_human_size((double)done, a),
		 units_human_size((double)total, b));
	if (l->host->busy)
		l->host->busy(l->host->arg, text);
	if (time_now() - l->told < TELL_EVERY)
		return;
	l->told = time_now();
	log_info("kv", "%s", text);
}

int kv_load(struct kv_log *log, const struct service_host *host, uint64_t *last)
{
	struct loading l = {.log = log, .host = host, .clocks = kv_clocks_now(), .told = time_now()};
	struct wal_reader reader = {
		.arg = &l, .place = place, .drop = drop, .record = record, .again = again, .progress = progress};
	uint64_t began = time_now();
	struct wal_found found = {0};
	struct store_stats stats;
	char bytes[32], cut[64] = "", size[32];
	struct store_ahead *ahead = store_load_ahead(log->store);
	int rc = wal_recover(log->wal, &reader, &found);

	store_load_ahead_end(ahead);
	store_abandon(log->store, &l.place);
	lates_sift(&l, UINT64_MAX, 0);
	free(l.late);
	if (rc != 0)
		return rc;
	*last = found.given;
	store_get_stats(log->store, &stats);
	if (found.cut)
		snprintf(cut, sizeof(cut), "; a torn end of %s was cut", units_human_size((double)found.cut, size));
	log_info("kv", "log: %llu records of %s read in %.1f s, %llu keys%s", (unsigned long long)found.records,
		 units_human_size((double)found.bytes, bytes), (double)(time_now() - began) / TIME_S,
		 (unsigned long long)stats.items, cut);
	return 0;
}
