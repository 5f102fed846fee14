/*
 * load.c: what the log keeps goes back into the store. Records carry the numbers of their changes, and the store takes
 * what is newer than what it has, so they may come twice and from a checkpoint that was made while others wrote.
 *
 * In between there may be more than the store ever held: a checkpoint has what was there at its begin and also what
 * took its place until its end, and what has expired made room without a record, but may be prolonged by one that comes
 * later. So from the first value that finds no room on, only the numbers of values are kept; and the keys that are left
 * at the end are read again.
 *
 * The records of a commit are held back until its last one is there, with their values in the store where no reader
 * sees them: a crash may have cut it short, and then nothing of it counts.
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

/* A record of a commit that is not whole yet. */
struct held {
	struct held *next;
	struct wal_record record; /* with the key, and the value, below */
	struct store_ref place;   /* of the value; no item: there is none, or no room */
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
	struct held *held, **held_end; /* in their order; where the next one goes */
	uint64_t held_lsn;             /* of the last one */
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

/* A time that is over is set after the machine's start, as the store's clock knows no earlier one. */
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
		return log_fail(-ENOMEM, "kv",
				"no memory to load what the log keeps: there are %zu keys to be read again", l->lates);
	}
	at = &l->late[hash & (l->slots - 1)];
	*late = (struct late){.next = *at, .lsn = r->lsn, .expires = r->expires, .hash = hash, .key_len = r->key_len};
	memcpy(late->key, r->key, r->key_len);
	*at = late;
	l->lates++;
	return 0;
}

/* Notes a value in place of an older one, here or in the store. */
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
		return log_fail(rc, "kv",
				"the log has a value of %llu bytes that finds no room in the store: make kv.memory or "
				"kv.value_max as large as they were, or allow kv.eviction",
				(unsigned long long)r->value_len);
	return log_fail(rc, "kv", "a record of the log does not fit the store: %s", strerror(-rc));
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

static int load_place(void *arg, const struct wal_record *r, void **value)
{
	struct loading *l = arg;
	struct store *store = l->log->store;
	struct store_put put = load_put(l, r, r->expires);
	struct late **at = l->again ? late_of(l, r) : NULL;
	struct store_meta meta;
	int rc;

	*value = NULL;
	if (l->again ? !at || (*at)->lsn != r->lsn : l->full)
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

static void load_drop(void *arg, void *value)
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
		return 0; /* load_place() did not want it */
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

static int record_apply(struct loading *l, const struct wal_record *r)
{
	struct store *store = l->log->store;
	struct late **at;
	int rc;

	switch (r->type) {
	case WAL_SET:
		if (l->full) /* since its place was given */
			store_abandon(store, &l->place);
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

/*
 * Commits
 */

static void held_init(struct loading *l)
{
	l->held = NULL;
	l->held_end = &l->held;
}

static void held_free(struct loading *l)
{
	struct held *held = l->held, *next;

	for (; held; held = next) {
		next = held->next;
		store_abandon(l->log->store, &held->place);
		free(held);
	}
	held_init(l);
}

/* The rest did not come. */
static void held_drop(struct loading *l)
{
	if (!l->held)
		return;
	log_info(
		"kv",
		"log: changes from %llu to %llu are a part of a commit, the rest of which was not on disk: they do not "
		"count",
		(unsigned long long)l->held->record.lsn, (unsigned long long)l->held_lsn);
	held_free(l);
}

/* A long value is there already, in its place. */
static int held_keep_value(struct loading *l, struct held *held, const void *value)
{
	struct wal_record *r = &held->record;
	int rc;

	if (l->place.item && value == l->place.addr) {
		held->place = l->place;
		l->place.item = NULL;
		return 0;
	}
	r->value = NULL;
	if (l->full || (r->value_len && !value))
		return 0;
	STEPS(rc, store_reserve(l->log->store, r->key, r->key_len, r->value_len, 0, &held->place));
	if (rc == -ENOMEM)
		l->full = true;
	if (rc != 0)
		return rc == -ENOMEM ? 0 : load_result(r, rc);
	if (r->value_len)
		memcpy(held->place.addr, value, (size_t)r->value_len);
	r->value = held->place.addr;
	return 0;
}

static int held_add(struct loading *l, const struct wal_record *r)
{
	struct held *held = malloc(sizeof(*held) + r->key_len);

	if (!held)
		return log_fail(-ENOMEM, "kv", "no memory to load what the log keeps: a commit up to %llu",
				(unsigned long long)r->lsn);
	*held = (struct held){.record = *r};
	if (r->key_len)
		memcpy(held->key, r->key, r->key_len);
	held->record.key = held->key;
	*l->held_end = held;
	l->held_end = &held->next;
	l->held_lsn = r->lsn;
	return r->type == WAL_SET ? held_keep_value(l, held, r->value) : 0;
}

/* Its last record is there. */
static int held_apply(struct loading *l)
{
	struct held *held;
	int rc = 0;

	while ((held = l->held) && rc == 0) {
		l->place = held->place;
		held->place.item = NULL;
		rc = record_apply(l, &held->record);
		l->held = held->next;
		free(held);
	}
	if (!l->held)
		held_init(l);
	return rc;
}

static int load_record(void *arg, const struct wal_record *r)
{
	struct loading *l = arg;
	struct store_ref place = l->place;
	int rc;

	if (l->again)
		return record_again(l, r);
	if (l->held && r->lsn != l->held_lsn + 1)
		held_drop(l);
	if (r->flags & WAL_MORE)
		return held_add(l, r);
	rc = held_apply(l);
	l->place = place;
	return rc ? rc : record_apply(l, r);
}

static bool load_again(void *arg)
{
	struct loading *l = arg;

	held_drop(l);
	lates_sift(l, 0, l->clocks.real);
	l->again = l->lates;
	if (l->again)
		log_info("kv",
			 "log: %zu values found no room beside others that are gone by its end: it is read again for "
			 "them",
			 l->lates);
	return l->again;
}

static void load_progress(void *arg, uint64_t done, uint64_t total)
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
	struct wal_reader reader = {.arg = &l,
				    .place = load_place,
				    .drop = load_drop,
				    .record = load_record,
				    .again = load_again,
				    .progress = load_progress};
	uint64_t began = time_now();
	struct wal_found found = {0};
	struct store_stats stats;
	char bytes[32], cut[64] = "", size[32];
	struct store_ahead *ahead = store_load_ahead(log->store);
	int rc;

	held_init(&l);
	rc = wal_recover(log->wal, &reader, &found);
	store_load_ahead_end(ahead);
	if (rc == 0)
		held_drop(&l);
	held_free(&l);
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
