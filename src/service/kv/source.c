/*
 * source.c: what another server is sent of the keys of some slots: a walk over all keys, and each key again of which a
 * change is told. What is sent of a key is what it is when it is looked at, so the last thing that is sent of it is
 * what it is when no change is left.
 *
 * Changes are taken from the store as they come, and their keys noted, each once, as the store keeps few. There are two
 * lists: while the keys of one are sent, those that change go to the other one.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

#define WALK 32       /* items of a step, pinned until they are sent */
#define EVENTS 65536u /* taken at a time, at most: all that a watcher can be behind */
#define SENT 4096u
#define NOTED_MAX (64 * MIB) /* bytes of a list of keys */
#define NOTED_FIRST 4096u

/* Keys, each once. */
struct noted {
	unsigned char *at; /* for each 2 bytes of length, and the key */
	size_t len, room, sent;
	uint32_t count;
	uint32_t *place; /* by the key's hash: where it is, + 1; 0: free */
	uint32_t places; /* a power of two */
};

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
	struct noted noted[2];
	unsigned filling; /* of the two */
	struct store_event event;
};

/*
 * Keys that changed
 */
static uint16_t noted_key(const struct noted *n, size_t at)
{
	uint16_t len;

	memcpy(&len, n->at + at, sizeof(len));
	return len;
}

/* Where the key is, or is to be. */
static uint32_t *noted_place(const struct service_source *s, const struct noted *n, const void *key, size_t len)
{
	uint32_t i = (uint32_t)store_hash(s->store, key, len) & (n->places - 1);

	for (; n->place[i]; i = (i + 1) & (n->places - 1)) {
		size_t at = n->place[i] - 1;

		if (noted_key(n, at) == len && memcmp(n->at + at + sizeof(uint16_t), key, len) == 0)
			break;
	}
	return &n->place[i];
}

static int noted_grow(const struct service_source *s, struct noted *n)
{
	uint32_t *former = n->place;
	uint32_t places = MAX(2 * n->places, NOTED_FIRST);

	n->place = calloc(places, sizeof(*n->place));
	if (!n->place) {
		n->place = former;
		return -ENOMEM;
	}
	n->places = places;
	for (size_t at = 0, len; at < n->len; at += sizeof(uint16_t) + len) {
		len = noted_key(n, at);
		*noted_place(s, n, n->at + at + sizeof(uint16_t), len) = (uint32_t)at + 1;
	}
	free(former);
	return 0;
}

/* 0; -ESTALE: there are too many; -ENOMEM. */
static int note_key(const struct service_source *s, struct noted *n, const void *key, size_t key_len)
{
	const uint16_t len = (uint16_t)key_len;
	unsigned char *more;
	uint32_t *place;

	if (2 * (n->count + 1) > n->places && noted_grow(s, n) != 0)
		return -ENOMEM;
	place = noted_place(s, n, key, len);
	if (*place)
		return 0;
	if (n->len + sizeof(len) + len > n->room) {
		if (n->room >= NOTED_MAX)
			return -ESTALE;
		more = realloc(n->at, MAX(2 * n->room, 64 * KIB));
		if (!more)
			return -ENOMEM;
		n->at = more;
		n->room = MAX(2 * n->room, 64 * KIB);
	}
	*place = (uint32_t)n->len + 1;
	memcpy(n->at + n->len, &len, sizeof(len));
	memcpy(n->at + n->len + sizeof(len), key, len);
	n->len += sizeof(len) + len;
	n->count++;
	return 0;
}

static void noted_clear(struct noted *n)
{
	n->len = n->sent = n->count = 0;
	if (n->places)
		memset(n->place, 0, n->places * sizeof(*n->place));
}

static int source_open(void *shared, const uint8_t *slots, struct service_source **out)
{
	struct service_source *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->store = ((struct kv_shared *)shared)->store;
	memcpy(s->slots, slots, sizeof(s->slots));
	s->flushes = store_flushes(s->store);
	rc = store_watch_begin(s->store, &s->watcher, -1); /* it never sleeps */
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
static bool was_sent(struct service_source *s, const void *key, size_t key_len, const struct store_ref *ref)
{
	uint64_t hash = store_hash(s->store, key, key_len), at = hash % SENT;

	if (s->sent[at].hash == hash && s->sent[at].version == ref->version && s->sent[at].expires == ref->expires)
		return true;
	s->sent[at].hash = hash;
	s->sent[at].version = ref->version;
	s->sent[at].expires = ref->expires;
	return false;
}

static int source_hear(struct service_source *s)
{
	struct store_event *event = &s->event;
	int rc = 0;

	if (store_flushes(s->store) != s->flushes)
		return -ESTALE;
	for (unsigned i = 0; rc == 0 && i < EVENTS && store_watch_next(s->store, &s->watcher, event); i++) {
		if (event->missed || event->type == STORE_EVENT_FLUSHED)
			rc = -ESTALE;
		else if (event->key_len && is_of(s, event->key, event->key_len))
			rc = note_key(s, &s->noted[s->filling], event->key, event->key_len);
	}
	return rc;
}

/* The next key that changed: 1, or 0: there is none. */
static int next_change(struct service_source *s, struct service_item *out)
{
	struct noted *n = &s->noted[!s->filling];
	struct store_ref ref;
	const void *key;
	size_t len;

	for (;;) {
		if (n->sent == n->len) {
			noted_clear(n);
			s->filling = !s->filling;
			n = &s->noted[!s->filling];
			if (!n->len)
				return 0;
		}
		len = noted_key(n, n->sent);
		key = n->at + n->sent + sizeof(uint16_t);
		n->sent += sizeof(uint16_t) + len;
		n->count--;
		if (!store_get(s->store, key, len, time_now(), &ref))
			ref = (struct store_ref){0};
		else if (was_sent(s, key, len, &ref)) {
			store_unpin(s->store, &ref);
			continue;
		}
		item_fill(s, key, len, &ref, out);
		return 1;
	}
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
		rc = source_hear(s);
		if (rc == 0)
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
	return (mark > s->watcher.next ? mark - s->watcher.next : 0) + s->noted[0].count + s->noted[1].count;
}

static void source_close(struct service_source *s)
{
	if (!s)
		return;
	for (; s->at < s->items; s->at++)
		store_unpin(s->store, &s->item[s->at].ref);
	store_watch_end(s->store, &s->watcher);
	for (unsigned i = 0; i < 2; i++) {
		free(s->noted[i].at);
		free(s->noted[i].place);
	}
	free(s);
}

const struct service_moves kv_source_moves = {
	.open = source_open,
	.next = source_next,
	.hear = source_hear,
	.release = source_release,
	.walked = source_walked,
	.version = source_version,
	.mark = source_mark,
	.behind = source_behind,
	.close = source_close,
};
