/*
 * source.c: what another server is sent of the keys of some slots: a walk over all keys, and each key again of which a
 * change is told. What is sent of a key is what it is when it is looked at, so the last thing that is sent of it is
 * what it is when no change is left.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

#define WALK 32       /* items of a step, pinned until they are sent */
#define EVENTS 65536u /* between two steps, at most: all that a watcher can be behind */
#define SENT 4096u

struct service_source {
	struct store *store;
	struct store_watcher watcher;
	uint8_t slots[KV_SLOT_BYTES];
	uint64_t flushes; /* that there were when it began */
	uint64_t cursor;
	bool walked;
	struct store_walked item[WALK];
	unsigned items, at;
	/* The last ones that were sent for a change: what was changed since then has another version or time. */
	struct {
		uint64_t hash, version, expires;
	} sent[SENT];
	struct store_event event;
};

static int source_open(void *shared, const uint8_t *slots, int fd, struct service_source **out)
{
	struct service_source *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->store = ((struct kv_shared *)shared)->store;
	memcpy(s->slots, slots, sizeof(s->slots));
	s->flushes = store_flushes(s->store);
	rc = store_watch_begin(s->store, &s->watcher, fd);
	if (rc != 0) {
		free(s);
		return rc;
	}
	*out = s;
	return 0;
}

static bool is_of(const struct service_source *s, const void *key, size_t key_len)
{
	return cluster_bit(s->slots, cluster_slot(key, key_len));
}

/* The item's, whose pin goes with it. */
static void item_fill(struct service_source *s, const void *key, size_t key_len, struct store_ref *ref,
		      struct service_item *out)
{
	uint64_t now = time_now();

	*out = (struct service_item){.key = key, .key_len = key_len};
	if (!ref->item)
		return;
	if (ref->expires <= now) {
		store_unpin(s->store, ref);
		return;
	}
	out->there = true;
	out->value = ref->addr;
	out->value_len = ref->len;
	out->ttl = ref->expires == TIME_NEVER ? 0 : (ref->expires - now - 1) / TIME_US + 1;
	out->flags = ref->flags;
	out->type = ref->type | (ref->stale ? STORE_STALE : 0);
	out->hold = ref->item;
}

/* Whether it was sent as it is now. */
static bool was_sent(struct service_source *s, const struct store_event *event, const struct store_ref *ref)
{
	uint64_t hash = store_hash(s->store, event->key, event->key_len), at = hash % SENT;

	if (s->sent[at].hash == hash && s->sent[at].version == ref->version && s->sent[at].expires == ref->expires)
		return true;
	s->sent[at].hash = hash;
	s->sent[at].version = ref->version;
	s->sent[at].expires = ref->expires;
	return false;
}

/* As source_next(). */
static int next_change(struct service_source *s, struct service_item *out)
{
	struct store_event *event = &s->event;
	struct store_ref ref;

	for (unsigned i = 0; i < EVENTS && store_watch_next(s->store, &s->watcher, event); i++) {
		if (event->type == STORE_EVENT_MISSED || event->type == STORE_EVENT_FLUSHED)
			return -ESTALE;
		if (!is_of(s, event->key, event->key_len))
			continue;
		if (!store_get(s->store, event->key, event->key_len, time_now(), &ref))
			ref = (struct store_ref){0};
		else if (was_sent(s, event, &ref)) {
			store_unpin(s->store, &ref);
			continue;
		}
		item_fill(s, event->key, event->key_len, &ref, out);
		return 1;
	}
	return 0;
}

/* A step's items all go before any change behind it is looked at, as they are older. */
static int source_next(struct service_source *s, struct service_item *out)
{
	int rc;

	for (;;) {
		while (s->at < s->items) {
			struct store_walked *w = &s->item[s->at++];

			if (!is_of(s, w->key, w->key_len)) {
				store_unpin(s->store, &w->ref);
				continue;
			}
			w->ref.expires = w->expires;
			item_fill(s, w->key, w->key_len, &w->ref, out);
			if (out->there)
				return 1; /* what expires now is a change, too */
		}
		if (store_flushes(s->store) != s->flushes)
			return -ESTALE;
		rc = next_change(s, out);
		if (rc != 0 || s->walked)
			return rc;
		s->items = store_walk(s->store, &s->cursor, time_now(), s->item, WALK);
		s->at = 0;
		s->walked = s->cursor == 0;
	}
}

static void source_release(struct service_source *s, struct service_item *item)
{
	struct store_ref ref = {.item = item->hold};

	store_unpin(s->store, &ref);
	item->hold = NULL;
}

static bool source_walked(const struct service_source *s)
{
	return s->walked && s->at == s->items;
}

static uint64_t source_version(const struct service_source *s)
{
	return store_highest(s->store);
}

static uint64_t source_mark(const struct service_source *s)
{
	return store_event_head(s->store);
}

static uint64_t source_behind(const struct service_source *s, uint64_t mark)
{
	return mark > s->watcher.next ? mark - s->watcher.next : 0;
}

static bool source_sleep(struct service_source *s)
{
	return store_watch_sleep(s->store, &s->watcher);
}

static void source_rise(struct service_source *s)
{
	store_watch_rise(s->store, &s->watcher);
}

static void source_close(struct service_source *s)
{
	if (!s)
		return;
	for (; s->at < s->items; s->at++)
		store_unpin(s->store, &s->item[s->at].ref);
	store_watch_end(s->store, &s->watcher);
	free(s);
}

const struct service_moves kv_source_moves = {
	.open = source_open,
	.next = source_next,
	.release = source_release,
	.walked = source_walked,
	.version = source_version,
	.mark = source_mark,
	.behind = source_behind,
	.sleep = source_sleep,
	.rise = source_rise,
	.close = source_close,
};
