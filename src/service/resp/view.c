/*
 * view.c: the step of a command: what it reads of the store, and what it is going to write. Nothing is locked
 * meanwhile. Each key that was read has the version that it had; each that is written has a reservation. In the end all
 * is checked and published at once by store_commit(), or nothing is, and the command runs again.
 *
 * A thread has one step at a time, so its memory is the thread's. Keys of a step are found by a small hash table, as
 * there may be thousands in one MSET.
 */
#include "service/resp/resp.h"

#include <stdlib.h>

#define COPY_MAX STORE_COPY_MAX /* longer values leave from where they are */
#define ROOM_KEPT 4096          /* entries that a thread keeps memory for */

enum change { KEPT, SET, DELETED, EXPIRES };

struct entry {
	const char *key;
	size_t key_len;
	uint64_t hash;
	bool read; /* `version` and `expires` are what was seen; 0: it was not there */
	uint64_t version, expires;
	uint32_t flags; /* what it was, of one that was read */
	uint8_t type;
	struct store_ref base; /* pinned, or item NULL */
	enum change change;
	uint64_t note;          /* of what is not KEPT */
	struct store_ref fresh; /* of SET */
	uint8_t fresh_type;
	uint32_t fresh_flags;
	struct store_ref last; /* the one before: a command may still read what it replaces */
	uint64_t will_expire;  /* of SET and EXPIRES */
	bool keep_expiry;      /* of SET */
};

struct resp_view {
	struct entry *entry;
	unsigned count, room;
	uint32_t *slot; /* places in entry, + 1; 0: empty */
	unsigned slots; /* a power of two, at least twice `room` */
	struct store_check *check;
	struct store_step *step;
	unsigned sets; /* reservations */
	struct keep *keep;
};

struct keep {
	struct keep *next;
	max_align_t at[];
};

int resp_view_new(struct resp_thread *thread)
{
	thread->view = calloc(1, sizeof(*thread->view));
	return thread->view ? 0 : -ENOMEM;
}

static void view_clear(struct resp_view *v)
{
	free(v->entry);
	free(v->slot);
	free(v->check);
	free(v->step);
	*v = (struct resp_view){.keep = v->keep};
}

void resp_view_free(struct resp_thread *thread)
{
	if (thread->view)
		view_clear(thread->view);
	free(thread->view);
}

static int view_grow(struct resp_view *v)
{
	unsigned room = v->room ? 2 * v->room : 16;
	struct entry *entry = realloc(v->entry, room * sizeof(*entry));
	struct store_check *check = entry ? realloc(v->check, room * sizeof(*check)) : NULL;
	struct store_step *step = check ? realloc(v->step, room * sizeof(*step)) : NULL;
	uint32_t *slot = step ? calloc(2 * room, sizeof(*slot)) : NULL;

	/* What grew stays, though its room is not told. */
	v->entry = entry ? entry : v->entry;
	v->check = check ? check : v->check;
	v->step = step ? step : v->step;
	if (!slot)
		return -ENOMEM;
	free(v->slot);
	v->slot = slot;
	v->slots = 2 * room;
	v->room = room;
	for (unsigned i = 0; i < v->count; i++) {
		uint32_t at = (uint32_t)v->entry[i].hash & (v->slots - 1);

		while (v->slot[at])
			at = (at + 1) & (v->slots - 1);
		v->slot[at] = i + 1;
	}
	return 0;
}

/* The key's entry in the step, a new one if it has none. */
static struct entry *view_entry(struct resp_client *c, const struct resp_arg *key, int *rc)
{
	struct resp_view *v = c->thread->view;
	uint64_t hash = store_hash(c->thread->store, key->at, key->len);
	uint32_t at;

	*rc = v->count == v->room ? view_grow(v) : 0;
	if (*rc != 0)
		return NULL;
	for (at = (uint32_t)hash & (v->slots - 1); v->slot[at]; at = (at + 1) & (v->slots - 1)) {
		struct entry *e = &v->entry[v->slot[at] - 1];

		if (e->hash == hash && e->key_len == key->len && memcmp(e->key, key->at, key->len) == 0)
			return e;
	}
	v->slot[at] = ++v->count;
	v->entry[v->count - 1] = (struct entry){.key = key->at, .key_len = key->len, .hash = hash};
	return &v->entry[v->count - 1];
}

void *resp_view_keep(struct resp_client *c, size_t size)
{
	struct keep *keep = malloc(sizeof(*keep) + size);

	if (!keep)
		return NULL;
	keep->next = c->thread->view->keep;
	c->thread->view->keep = keep;
	return keep->at;
}

static bool is_key(const struct resp_arg *key)
{
	return key->len >= 1 && key->len <= STORE_KEY_MAX;
}

/* What the reply tells of, where replies wait for the log. */
static void tell_entry(struct resp_client *c, const struct entry *e)
{
	if (c->thread->kv->committed == UINT64_MAX)
		return;
	c->tells = MAX(c->tells, e->version);
	if (!e->version || e->expires != TIME_NEVER)
		c->tells = MAX(c->tells, store_removed(c->thread->store, e->key, e->key_len));
}

/* See what is there, unless that is known. `pin`: with its value. */
static int entry_read(struct resp_client *c, struct entry *e, bool pin)
{
	uint64_t now = resp_now(c), version = 0, expires = 0;
	struct store_meta meta = {.type = STORE_STRING};

	if (e->read && (!pin || !e->version || e->base.item))
		return 0;
	if (pin && store_get(c->thread->store, e->key, e->key_len, now, &e->base)) {
		version = e->base.version;
		expires = e->base.expires;
		meta.type = e->base.type;
		meta.flags = e->base.flags;
	} else if (!pin && store_stat(c->thread->store, e->key, e->key_len, now, &meta)) {
		version = meta.version;
		expires = meta.expires;
	}
	if (e->read && version != e->version)
		return -ESTALE;
	e->read = true;
	e->version = version;
	e->expires = expires;
	e->type = meta.type;
	e->flags = meta.flags;
	tell_entry(c, e);
	return 0;
}

static int value_of(struct resp_client *c, const struct resp_arg *key, bool pin, struct resp_value *out)
{
	struct entry *e;
	int rc;

	*out = (struct resp_value){.at = NULL};
	if (!is_key(key))
		return 0;
	e = view_entry(c, key, &rc);
	if (!e || e->change == DELETED)
		return rc;
	if (e->change == SET) {
		*out = (struct resp_value){.at = e->fresh.addr,
					   .len = e->fresh.len,
					   .expires = e->will_expire,
					   .type = e->fresh_type,
					   .flags = e->fresh_flags};
		if (e->keep_expiry) {
			rc = entry_read(c, e, false);
			out->expires = e->version ? e->expires : e->will_expire;
		}
		return rc < 0 ? rc : 1;
	}
	rc = entry_read(c, e, pin);
	if (rc != 0 || !e->version)
		return rc;
	*out = (struct resp_value){
		.len = e->base.len, .version = e->version, .type = e->type, .flags = e->flags, .entry = e};
	out->at = pin ? e->base.addr : NULL;
	out->expires = e->change == EXPIRES ? e->will_expire : e->expires;
	return 1;
}

int resp_view_get_any(struct resp_client *c, const struct resp_arg *key, struct resp_value *out)
{
	return value_of(c, key, true, out);
}

int resp_view_get(struct resp_client *c, const struct resp_arg *key, struct resp_value *out)
{
	int rc = value_of(c, key, true, out);

	return rc == 1 && out->type != STORE_STRING ? -EMEDIUMTYPE : rc;
}

int resp_view_stat(struct resp_client *c, const struct resp_arg *key, struct resp_value *out)
{
	struct store_meta meta;
	int rc = value_of(c, key, false, out);

	/* The length is not known of what was not read with its value. */
	if (rc == 1 && out->entry && !((struct entry *)out->entry)->base.item) {
		if (!store_stat(c->thread->store, key->at, key->len, resp_now(c), &meta) ||
		    meta.version != out->version)
			return -ESTALE;
		out->len = meta.len;
	}
	return rc;
}

/* Room for a value, here as many steps of it as there is time for; of a script, which would begin anew, all. */
static int reserve_value(struct resp_client *c, const struct resp_arg *key, size_t len, const struct resp_put *how,
			 struct store_ref *out)
{
	const struct store_put put = {.owner = c->owner, .type = how->type, .flags = how->flags};
	int rc;

	do
		rc = store_reserve_for(c->thread->store, key->at, key->len, len, &put, resp_now(c), out);
	while (rc == -EAGAIN && (c->out != &c->thread->out || stream_time_left(c->stream)) &&
	       !store_changes_full(c->thread->store));
	return rc;
}

/* What the step was going to write is not wanted, but stays while this command may read it. */
static void entry_drop(struct resp_client *c, struct entry *e)
{
	if (e->change != SET)
		return;
	c->thread->view->sets -= e->last.item != NULL;
	store_abandon(c->thread->store, &e->last);
	e->last = e->fresh;
	e->fresh.item = NULL;
}

static void entry_set(struct resp_client *c, struct entry *e, const struct store_ref *fresh, const struct resp_put *put)
{
	bool was = e->change == KEPT || e->change == SET;

	entry_drop(c, e);
	if (put->keep_expiry && e->change == EXPIRES) {
		/* What the step says of it already. */
	} else if (!(put->keep_expiry && e->change == SET)) {
		e->keep_expiry = put->keep_expiry && was;
		e->will_expire = put->expires;
	}
	c->thread->view->sets++;
	e->change = SET;
	e->note = resp_note(c->id, c->command->id);
	e->fresh = *fresh;
	e->fresh_type = put->type;
	e->fresh_flags = put->flags;
}

char *resp_view_begin(struct resp_client *c, const struct resp_arg *key, size_t len, const struct resp_put *put,
		      int *rc)
{
	struct store_ref fresh;
	struct entry *e;

	*rc = is_key(key) ? 0 : -EINVAL;
	e = *rc == 0 ? view_entry(c, key, rc) : NULL;
	if (e && c->thread->view->sets == RESP_STEP_MOST)
		*rc = -E2BIG;
	else if (e)
		*rc = reserve_value(c, key, len, put, &fresh);
	if (*rc != 0)
		return NULL;
	entry_set(c, e, &fresh, put);
	return fresh.addr;
}

int resp_view_set(struct resp_client *c, const struct resp_arg *key, const void *value, size_t len,
		  const struct resp_put *put)
{
	struct entry *e;
	char *to;
	int rc;

	/* A long value is in its place already. */
	if (c->large.ref.item && value == c->large.ref.addr && len == c->large.len) {
		e = view_entry(c, key, &rc);
		if (!e)
			return rc;
		entry_set(c, e, &c->large.ref, put);
		c->large.ref.item = NULL;
		return 0;
	}
	to = resp_view_begin(c, key, len, put, &rc);
	if (to && len)
		memcpy(to, value, len);
	return rc;
}

int resp_view_delete(struct resp_client *c, const struct resp_arg *key)
{
	struct resp_value value;
	int rc = value_of(c, key, false, &value);
	struct entry *e;

	if (rc != 1)
		return rc;
	e = view_entry(c, key, &rc);
	entry_drop(c, e);
	e->change = DELETED;
	e->note = resp_note(c->id, c->command->id);
	return 1;
}

int resp_view_expire(struct resp_client *c, const struct resp_arg *key, uint64_t expires)
{
	struct resp_value value;
	int rc = value_of(c, key, false, &value);
	struct entry *e;

	if (rc != 1)
		return rc;
	if (expires <= resp_now(c))
		return resp_view_delete(c, key);
	e = view_entry(c, key, &rc);
	if (e->change != SET) {
		e->change = EXPIRES;
		e->note = resp_note(c->id, c->command->id);
	}
	e->will_expire = expires;
	e->keep_expiry = false;
	return 1;
}

/* What the step does to the key so far. */
static enum change view_change(const struct resp_client *c, const struct resp_arg *key)
{
	const struct resp_view *v = c->thread->view;
	uint64_t hash;

	if (!v->count)
		return KEPT;
	hash = store_hash(c->thread->store, key->at, key->len);
	for (uint32_t at = (uint32_t)hash & (v->slots - 1); v->slot[at]; at = (at + 1) & (v->slots - 1)) {
		const struct entry *e = &v->entry[v->slot[at] - 1];

		if (e->hash == hash && e->key_len == key->len && memcmp(e->key, key->at, key->len) == 0)
			return e->change;
	}
	return KEPT;
}

bool resp_view_changes(const struct resp_client *c, const struct resp_arg *key)
{
	enum change change = view_change(c, key);

	return change == SET || change == DELETED;
}

bool resp_view_tells(const struct resp_client *c, const struct resp_arg *key)
{
	return view_change(c, key) != KEPT;
}

bool resp_view_next(const struct resp_client *c, unsigned *at, struct resp_arg *key, bool *there)
{
	const struct resp_view *v = c->thread->view;

	for (; *at < v->count; ++*at) {
		const struct entry *e = &v->entry[*at];

		if (e->change != SET && e->change != DELETED)
			continue;
		*key = (struct resp_arg){e->key, e->key_len};
		*there = e->change == SET;
		++*at;
		return true;
	}
	return false;
}

int resp_view_expect(struct resp_client *c, const struct resp_arg *key, uint64_t version, uint64_t expires)
{
	struct entry *e;
	int rc = 0;

	if (!is_key(key))
		return 0;
	e = view_entry(c, key, &rc);
	if (e)
		rc = entry_read(c, e, false);
	if (rc != 0)
		return rc;
	return e->version == version && (!version || e->expires == expires) ? 0 : -ESTALE;
}

void resp_reply_value(struct resp_client *c, const struct resp_value *value)
{
	struct resp_thread *thread = c->thread;
	struct entry *e = value->entry;

	if (value->len > COPY_MAX && e && e->base.item && c->out == &thread->out) {
		struct store_ref part = e->base;

		part.addr = (void *)value->at;
		part.len = value->len;
		resp_bulk_begin(c->out, value->len);
		if (text_pins_add(&thread->pins, c->out->len, &part))
			e->base.item = NULL; /* the reply has the pin */
		else
			c->out->failed = true;
		resp_bulk_end(c->out);
		return;
	}
	resp_bulk(c->out, value->at, value->len);
}

/* One key, of which nothing else has to be known. */
static int commit_one(struct resp_client *c, struct entry *e, uint64_t now, uint64_t *lsn)
{
	struct store_put put = {.expires = e->will_expire,
				.keep_expiry = e->keep_expiry,
				.owner = c->owner,
				.type = e->fresh_type,
				.flags = e->fresh_flags,
				.note = e->note};
	int rc;

	if (e->read)
		put.condition = e->version ? STORE_IF_VERSION : STORE_IF_ABSENT;
	put.version = e->version;
	rc = store_publish(c->thread->store, &e->fresh, &put, now, lsn);
	e->fresh.item = NULL;
	return rc == -EEXIST || rc == -ENOENT ? -ESTALE : rc;
}

int resp_view_commit(struct resp_client *c)
{
	struct resp_view *v = c->thread->view;
	unsigned checks = 0, steps = 0, reads = 0;
	uint64_t now = resp_now(c), lsn = 0;
	int rc;

	for (unsigned i = 0; i < v->count; i++) {
		reads += v->entry[i].read;
		steps += v->entry[i].change != KEPT;
	}
	if (!steps && reads < 2)
		return 0;
	/* A failed condition would take a long value away that is needed when the command runs again. */
	if (v->count == 1 && v->entry[0].change == SET && !(v->entry[0].read && c->large.len)) {
		rc = commit_one(c, &v->entry[0], now, &lsn);
		c->tells = MAX(c->tells, lsn);
		return rc;
	}
	steps = 0;
	for (unsigned i = 0; i < v->count; i++) {
		const struct entry *e = &v->entry[i];

		if (e->read)
			v->check[checks++] = (struct store_check){
				.key = e->key, .key_len = e->key_len, .version = e->version, .expires = e->expires};
		if (e->change == SET)
			v->step[steps++] = (struct store_step){.kind = STORE_STEP_PUT,
							       .ref = e->fresh,
							       .expires = e->will_expire,
							       .keep_expiry = e->keep_expiry,
							       .note = e->note};
		else if (e->change != KEPT)
			v->step[steps++] = (struct store_step){.kind = e->change == DELETED ? STORE_STEP_DELETE
											    : STORE_STEP_EXPIRE,
							       .key = e->key,
							       .key_len = e->key_len,
							       .expires = e->will_expire,
							       .note = e->note};
	}
	rc = store_commit(c->thread->store, v->check, checks, v->step, steps, now, &lsn);
	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < v->count; i++)
		v->entry[i].fresh.item = NULL;
	c->tells = MAX(c->tells, lsn);
	return 0;
}

void resp_view_end(struct resp_client *c)
{
	struct resp_view *v = c->thread->view;

	for (unsigned i = 0; i < v->count; i++) {
		struct entry *e = &v->entry[i];

		store_unpin(c->thread->store, &e->base);
		store_abandon(c->thread->store, &e->last);
		if (e->change != SET || !e->fresh.item)
			continue;
		/* A long value that was received is there when the command comes again. */
		if (c->large.len && e->fresh.addr == c->large.at)
			c->large.ref = e->fresh;
		else
			store_abandon(c->thread->store, &e->fresh);
	}
	if (v->count * 4 > v->slots)
		memset(v->slot, 0, v->slots * sizeof(*v->slot));
	else
		for (unsigned i = 0; i < v->count; i++) {
			uint32_t at = (uint32_t)v->entry[i].hash & (v->slots - 1);

			for (; v->slot[at]; at = (at + 1) & (v->slots - 1))
				v->slot[at] = 0;
		}
	v->count = v->sets = 0;
	if (v->room > ROOM_KEPT)
		view_clear(v);
	while (v->keep) {
		struct keep *keep = v->keep;

		v->keep = keep->next;
		free(keep);
	}
}
