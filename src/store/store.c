/*
 * store.c: the operations. Each hashes the key, takes its stripe's lock for one index step and gives
 * back what left the index after that. A SET copies its value into the extent before the lock; a
 * publication is one store of a 32-bit link.
 */
#include "store/internal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define TICK_BUDGET 1024   /* steps of the wheels in one store_tick, */
#define TICK_STRIPE 128    /* of one, under its lock */
#define TICK_LATEST TIME_S /* store_tick asks to be called again after this at the latest */
#define DIGITS_MAX 21      /* of a 64-bit integer, with sign and NUL */

/*
 * Items.
 */

static inline uint64_t key_hash(const struct store *store, const void *key, size_t key_len)
{
	return XXH3_64bits_withSeed(key, key_len, store->seed);
}

static inline uint32_t key_tag(const struct store *store, const void *key, size_t key_len)
{
	return (uint32_t)key_hash(store, key, key_len);
}

uint64_t store_hash(const struct store *store, const void *key, size_t key_len)
{
	return key_hash(store, key, key_len);
}

uint32_t store_tag(const struct store *store, const void *key, size_t key_len)
{
	return key_tag(store, key, key_len);
}

static const struct store_put put_always = {.condition = STORE_ALWAYS, .expires = TIME_NEVER};

static void item_free(struct store *store, struct store_item *item)
{
	arena_free(&store->arena, item, item_asked(item));
}

/* Frees what item_create() made, and was not published. */
static void item_discard(struct store *store, struct store_item *item)
{
	owner_discharge(store, item);
	item_free(store, item);
	change_return(store);
}

void store_item_release(struct store *store, struct store_item *item)
{
	must(!lock_rank_is_held(LOCK_STRIPE) && item_is_published(item));
	if (atomic_fetch_sub_explicit(&item->refs, 1, memory_order_acq_rel) == 1)
		item_free(store, item);
}

void store_dead_release(struct store *store, struct dead *dead)
{
	struct store_item *item = dead->first;
	uint32_t next;

	must(!lock_rank_is_held(LOCK_STRIPE));
	for (; item; item = next ? arena_item(&store->arena, next) : NULL) {
		next = item->queue_next;
		/* Out of the index no thread can pin it any more: a lone reference is this one. */
		if (likely(atomic_load_explicit(&item->refs, memory_order_acquire) == 1))
			item_free(store, item);
		else
			store_item_release(store, item);
	}
	dead->first = NULL;
	if (unlikely(dead->told))
		events_wake(store);
	dead->told = false;
}

void store_item_left(struct store *store, struct stripe *s, struct store_item *item, enum drop why, struct dead *dead)
{
	static const enum store_event_type event[] = {[DROP_DELETED] = STORE_EVENT_DELETED,
						      [DROP_EVICTED] = STORE_EVENT_EVICTED,
						      [DROP_EXPIRED] = STORE_EVENT_EXPIRED};
	uint64_t lsn;
	bool copy;

	must(stripe_is_mine(s));
	if (why != DROP_FLUSHED)
		event_tell(store, (struct event){event[why], item}, dead);
	item_leave(store, s, item);
	s->deletes += why == DROP_DELETED || why == DROP_FLUSHED;
	s->evictions += why == DROP_EVICTED;
	s->expired += why == DROP_EXPIRED;
	if (unlikely(store->changes.on) && why == DROP_EXPIRED)
		stripe_removed(s, item->version); /* which may not have been told of yet */
	if (unlikely(store->changes.on) && why <= DROP_EVICTED) {
		copy = change_is_copy(item, STORE_CHANGE_DELETE);
		lsn = change_put(store, item, STORE_CHANGE_DELETE, why == DROP_EVICTED ? STORE_CHANGE_EVICTED : 0);
		if (why == DROP_DELETED)
			stripe_removed(s, lsn);
		if (!copy)
			return; /* the change has the item, which is not touched any more */
	}
	dead_add(&store->arena, dead, item);
}

void store_item_drop(struct store *store, struct stripe *s, struct slot slot, struct store_item *item, enum drop why,
		     struct dead *dead)
{
	index_remove(&s->index, slot);
	store_item_left(store, s, item, why, dead);
}

/* Find what has not expired; what has goes now. Under the stripe's lock. */
static struct store_item *item_find(struct store *store, struct stripe *s, uint32_t tag, const void *key,
				    size_t key_len, uint64_t now, struct slot *slot, struct dead *dead)
{
	struct store_item *item = index_find(&s->index, &store->arena, tag, key, key_len, slot);

	must(stripe_is_mine(s));
	if (likely(!item) || likely(item->expires > now))
		return item;
	store_item_drop(store, s, *slot, item, DROP_EXPIRED, dead);
	return NULL;
}

/* Whether what is written is to have room for them. */
static bool put_has_attributes(const struct store_put *put)
{
	return put->flags || put->type || put->owner || put->keep_attributes;
}

/* Room for it; with rc not 0 nothing was taken. */
static int item_alloc(struct store *store, uint32_t tag, size_t key_len, uint64_t value_len, uint64_t tail,
		      uint64_t part, uint64_t now, struct store_item **out)
{
	uint64_t size = item_size(key_len, value_len) + tail;
	struct room_want want;
	struct store_item *item;
	int rc;

	if (unlikely(!change_grant(store)))
		return -EAGAIN;
	item = arena_alloc(&store->arena, size, key_len + value_len);
	if (unlikely(!item)) {
		rc = -EFBIG;
		want = (struct room_want){tag, size, key_len + value_len, 0};
		if (part && part < value_len && store->eviction != STORE_EVICT_NONE)
			want.part = item_value_offset(key_len, value_len) + part + tail;
		if (arena_can_hold(&store->arena, size))
			rc = room_make(store, &want, now, &item);
		if (rc == -ENOMEM)
			atomic_fetch_add(&store->out_of_memory, 1);
		if (rc != 0) {
			change_return(store);
			return rc;
		}
	}
	*out = item;
	return 0;
}

static void item_set_attributes(struct store_item *item, struct item_attributes attributes)
{
	memcpy((char *)item + item_size(item->key_len, item->value_len), &attributes, sizeof(attributes));
}

/* `part`: so much of the value is enough to begin with; 0: all of it. */
static int item_create(struct store *store, uint32_t tag, const void *key, size_t key_len, uint64_t value_len,
		       const struct store_put *put, uint64_t part, uint64_t now, struct store_item **out)
{
	const bool attributes = put_has_attributes(put);
	const uint64_t tail = unlikely(attributes) ? sizeof(struct item_attributes) : 0;
	const struct store_item sizes = {
		.value_len = value_len, .key_len = key_len & STORE_KEY_MAX, .attributes = attributes};
	uint64_t size = item_size(key_len, value_len) + tail;
	struct store_item *item;
	int rc;

	if (unlikely(value_len > store->value_max))
		return -EFBIG;
	if (unlikely(put->owner)) {
		rc = owner_charge(store, put->owner, tag, key, key_len, size);
		if (rc != 0)
			return rc;
	}
	rc = item_alloc(store, tag, key_len, value_len, tail, part, now, &item);
	if (unlikely(rc != 0)) {
		if (put->owner)
			atomic_fetch_sub_explicit(&store->owner[put->owner].bytes, size, memory_order_relaxed);
		return rc;
	}
	atomic_store_explicit(&item->tag, tag, memory_order_relaxed);
	/* A clearing of a window reads the heat of any item, and then at whether it is published. */
	__atomic_store_n(&item->sizes, sizes.sizes, __ATOMIC_RELAXED);
	item->queue = QUEUE_NONE;
	item->wheel_prev = 0;
	memcpy(item->key, key, key_len);
	if (unlikely(attributes))
		item_set_attributes(
			item, (struct item_attributes){.flags = put->flags, .type = put->type, .owner = put->owner});
	*out = item;
	return 0;
}

static bool key_valid(size_t key_len)
{
	return key_len >= 1 && key_len <= STORE_KEY_MAX;
}

/*
 * Reading.
 */

/* A value longer than the room for it is not read: the caller comes again, and only then it counts. */
static inline __attribute__((always_inline)) struct store_item *item_read(struct store *store, struct stripe *s,
									  uint32_t tag, const void *key, size_t key_len,
									  uint64_t now, uint64_t room,
									  struct dead *dead)
{
	struct slot slot;
	struct store_item *item = item_find(store, s, tag, key, key_len, now, &slot, dead);

	if (!item) {
		s->misses++;
		return NULL;
	}
	if (unlikely(item->value_len > room))
		return item;
	s->hits++;
	evict_touch(item);
	return item;
}

int store_get(struct store *store, const void *key, size_t key_len, uint64_t now, struct store_ref *out)
{
	uint32_t tag = key_tag(store, key, key_len);
	struct stripe *s = stripe_lock(store, tag);
	struct dead dead = {0};
	struct store_item *item = item_read(store, s, tag, key, key_len, now, UINT64_MAX, &dead);

	memset(out, 0, sizeof(*out));
	if (item) {
		item_pin(s, item);
		ref_set(out, item, item->version);
		out->expires = item->expires;
	}
	stripe_unlock(store, s, &dead);
	return !!item;
}

static void ref_count_back(struct store *store, struct store_item *item)
{
	atomic_fetch_add_explicit(&store_stripe(store, item_tag(item))->unpinned, 1, memory_order_relaxed);
}

void store_unpin(struct store *store, struct store_ref *ref)
{
	if (!ref->item)
		return;
	must(item_is_published(ref->item));
	ref_count_back(store, ref->item);
	store_item_release(store, ref->item);
	ref->item = NULL;
}

/* Fetches items' headers with the key, and where a small value ends or a longer one begins: the processor fetches by
 * itself what is read on. */
static void bucket_prefetch_items(const struct bucket *b, const struct arena *a, uint32_t tag)
{
	const char *item;

	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		if (b->tag[i] != tag || !b->link[i])
			continue;
		item = (const char *)arena_item(a, b->link[i]);
		__builtin_prefetch(item);
		__builtin_prefetch(item + CACHE_LINE);
	}
}

/* The lock only keeps the table from being replaced meanwhile. */
void store_look_ahead(struct store *store, const struct store_key key[], unsigned count)
{
	uint32_t tag[STORE_AHEAD];
	struct stripe *s;

	must(count <= STORE_AHEAD);
	for (unsigned i = 0; i < count; i++) {
		must(key_valid(key[i].len));
		tag[i] = key_tag(store, key[i].key, key[i].len);
		s = stripe_lock(store, tag[i]);
		__builtin_prefetch(index_bucket(&s->index, tag[i]));
		lock_give(&s->lock, LOCK_STRIPE);
	}
	for (unsigned i = 0; i < count; i++) {
		s = stripe_lock(store, tag[i]);
		bucket_prefetch_items(index_bucket(&s->index, tag[i]), &store->arena, tag[i]);
		lock_give(&s->lock, LOCK_STRIPE);
	}
}

int store_read(struct store *store, const void *key, size_t key_len, uint64_t now, void *buf, size_t size,
	       struct store_meta *out)
{
	uint32_t tag = key_tag(store, key, key_len);
	struct stripe *s = stripe_lock(store, tag);
	struct dead dead = {0};
	struct store_item *item = item_read(store, s, tag, key, key_len, now, size, &dead);
	struct store_item *large = NULL;

	if (item) {
		meta_set(out, item);
		if (likely(item->value_len <= MIN(size, STORE_COPY_MAX))) {
			memcpy(buf, item_value(item), item->value_len);
		} else if (item->value_len <= size) {
			atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
			large = item;
		}
	}
	stripe_unlock(store, s, &dead);
	if (unlikely(large)) {
		memcpy(buf, item_value(large), large->value_len);
		store_item_release(store, large);
	}
	return !!item;
}

/*
 * Writing.
 */

/* Bytes that are reserved: of an extent that grows, as many as it has by now. */
static uint64_t reserved_bytes(struct store *store, const struct store_item *item)
{
	uint64_t bytes = item_bytes(item);

	return bytes > SMALL_MAX ? MIN(bytes, arena_extent(&store->arena, item)) : bytes;
}

static int reserve_item(struct store *store, const void *key, size_t key_len, uint64_t value_len,
			const struct store_put *put, uint64_t part, uint64_t now, struct store_ref *out)
{
	struct store_item *item;
	struct stripe *s;
	uint32_t tag;
	int rc;

	memset(out, 0, sizeof(*out));
	if (!key_valid(key_len))
		return -EINVAL;
	tag = key_tag(store, key, key_len);
	rc = item_create(store, tag, key, key_len, value_len, put, part, now, &item);
	if (rc != 0)
		return rc;
	s = stripe_lock(store, tag);
	s->pinned++;
	lock_give(&s->lock, LOCK_STRIPE);
	atomic_fetch_add_explicit(&store->reserved, reserved_bytes(store, item), memory_order_relaxed);
	ref_set(out, item, 0);
	return 0;
}

int store_reserve(struct store *store, const void *key, size_t key_len, uint64_t value_len, uint64_t now,
		  struct store_ref *out)
{
	return reserve_item(store, key, key_len, value_len, &put_always, 0, now, out);
}

int store_reserve_for(struct store *store, const void *key, size_t key_len, uint64_t value_len,
		      const struct store_put *put, uint64_t now, struct store_ref *out)
{
	return reserve_item(store, key, key_len, value_len, put, 0, now, out);
}

/* Bytes of the value that the extent has room for, beside the rest. */
static uint64_t ref_ready(struct store *store, const struct store_ref *ref)
{
	uint64_t offset = item_bytes(ref->item) - ref->len;

	return MIN(ref->len, arena_extent(&store->arena, ref->item) - offset);
}

int store_reserve_part(struct store *store, const void *key, size_t key_len, uint64_t value_len,
		       const struct store_put *put, uint64_t part, uint64_t now, struct store_ref *out, uint64_t *ready)
{
	int rc = reserve_item(store, key, key_len, value_len, put ? put : &put_always, MAX(part, STORE_PART_MIN), now,
			      out);

	if (rc != 0)
		return rc;
	*ready = item_bytes(out->item) > SMALL_MAX ? ref_ready(store, out) : value_len;
	if (*ready < value_len)
		out->item->queue = QUEUE_GROWS;
	return 0;
}

int store_reserve_more(struct store *store, struct store_ref *ref, uint64_t bytes, uint64_t *ready)
{
	struct store_item *item = ref->item;
	uint64_t offset = item_bytes(item) - ref->len, before = reserved_bytes(store, item);
	int rc;

	must(item_is_reserved(item) && item->queue == QUEUE_GROWS);
	rc = room_grow(store, item, offset + MIN(ref->len, bytes));
	atomic_fetch_add_explicit(&store->reserved, reserved_bytes(store, item) - before, memory_order_relaxed);
	*ready = ref_ready(store, ref);
	if (*ready == ref->len) {
		item->queue = QUEUE_NONE;
		room_grow_end(store, item, true);
	}
	return rc;
}

void store_reservation_ends(struct store *store, struct store_item *item)
{
	must(item_is_reserved(item));
	ref_count_back(store, item);
	atomic_fetch_sub_explicit(&store->reserved, reserved_bytes(store, item), memory_order_relaxed);
}

void store_abandon(struct store *store, struct store_ref *ref)
{
	if (!ref->item)
		return;
	store_reservation_ends(store, ref->item);
	if (ref->item->queue == QUEUE_GROWS)
		room_grow_end(store, ref->item, false);
	item_discard(store, ref->item);
	ref->item = NULL;
}

static int put_check(const struct store_put *put, const struct store_item *old)
{
	switch (put->condition) {
	case STORE_ALWAYS:
		return 0;
	case STORE_IF_ABSENT:
		return old ? -EEXIST : 0;
	case STORE_IF_PRESENT:
		return old ? 0 : -ENOENT;
	case STORE_IF_VERSION:
		if (!old)
			return -ENOENT;
		return old->version == put->version ? 0 : -ESTALE;
	case STORE_IF_OLDER:
		return !old || old->version < put->version ? 0 : -ESTALE;
	}
	return -EINVAL;
}

/* The index step of a write: under the stripe's lock, with a whole item. */
static int item_put(struct store *store, struct stripe *s, struct store_item *item, struct store_item *old,
		    struct slot slot, const struct store_put *put, struct dead *dead)
{
	uint32_t link = arena_link(&store->arena, item);
	int rc;

	must(stripe_is_mine(s) && item_is_reserved(item));
	if (old) {
		evict_replace(store, s, old, item);
		wheel_remove(store, s, old);
		slot.bucket->link[slot.at] = link;
		owner_discharge(store, old);
		dead_add(&store->arena, dead, old);
	} else {
		rc = index_insert(&s->index, item_tag(item), link);
		if (rc != 0)
			return rc;
		evict_add(store, s, item);
	}
	s->sets++;
	event_tell(store, (struct event){STORE_EVENT_SET, item, put->note, !old, item_is_timed(item, put->keep_expiry)},
		   dead);
	if (unlikely(store->changes.on)) {
		atomic_store_explicit(&item->refs, change_is_copy(item, STORE_CHANGE_SET) ? 1 : 2,
				      memory_order_release);
		change_put(store, item, STORE_CHANGE_SET, 0);
		return 0;
	}
	item->version = unlikely(put->condition == STORE_IF_OLDER) ? put->version : ++s->version;
	/* From here on it is the index that holds it; see refs_of in evict.c for the order. */
	atomic_store_explicit(&item->refs, 1, memory_order_release);
	return 0;
}

/* Consumes the item, which the index does not hold yet. */
static int item_publish(struct store *store, struct store_item *item, const struct store_put *put, uint64_t now,
			uint64_t *version)
{
	uint32_t tag = item_tag(item);
	struct stripe *s = stripe_lock(store, tag);
	struct item_attributes attributes;
	struct store_item *old;
	struct dead dead = {0};
	struct slot slot = {0};
	int rc;

	old = item_find(store, s, tag, item->key, item->key_len, now, &slot, &dead);
	rc = put_check(put, old);
	if (likely(rc == 0)) {
		item->expires = put->keep_expiry && old ? old->expires : put->expires;
		must(item->attributes || !put_has_attributes(put));
		if (unlikely(item->attributes)) {
			attributes = (struct item_attributes){.flags = put->flags, .type = put->type};
			if (put->keep_attributes && old)
				attributes = item_attributes(old);
			attributes.owner = item_attributes(item).owner; /* that it was made for */
			item_set_attributes(item, attributes);
		}
		rc = item_put(store, s, item, old, slot, put, &dead);
	}
	if (likely(rc == 0)) {
		wheel_add(store, s, item, now);
		if (version)
			*version = item->version;
	}
	stripe_unlock(store, s, &dead);
	if (unlikely(rc == -ENOMEM))
		atomic_fetch_add(&store->out_of_memory, 1);
	if (unlikely(rc != 0))
		item_discard(store, item);
	return rc;
}

int store_publish(struct store *store, struct store_ref *ref, const struct store_put *put, uint64_t now,
		  uint64_t *version)
{
	struct store_item *item = ref->item;

	must(item);
	ref->item = NULL;
	store_reservation_ends(store, item);
	return item_publish(store, item, put ? put : &put_always, now, version);
}

int store_set(struct store *store, const void *key, size_t key_len, const void *value, size_t value_len,
	      const struct store_put *put, uint64_t now, uint64_t *version)
{
	struct store_item *item;
	int rc;

	if (unlikely(!key_valid(key_len)))
		return -EINVAL;
	if (likely(!put))
		put = &put_always;
	rc = item_create(store, key_tag(store, key, key_len), key, key_len, value_len, put, 0, now, &item);
	if (unlikely(rc != 0))
		return rc;
	if (value_len)
		memcpy((char *)item + item_value_offset(key_len, value_len), value, value_len);
	return item_publish(store, item, put, now, version);
}

/* Digits with an optional minus, nothing else. */
static int integer_parse(const unsigned char *text, uint64_t len, int64_t *out)
{
	bool negative = len && text[0] == '-';
	int64_t value = 0;

	if (len == (negative ? 1 : 0) || len >= DIGITS_MAX)
		return -EINVAL;
	for (uint64_t i = negative; i < len; i++) {
		int digit = text[i] - '0';

		if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_sub_overflow(value, digit, &value)) /* downwards: -2^63 exists */
			return -EINVAL;
	}
	if (!negative && value == INT64_MIN)
		return -EINVAL;
	*out = negative ? value : -value;
	return 0;
}

/* The number now and what the write will be conditional on. */
static int integer_read(struct store *store, uint32_t tag, const void *key, size_t key_len, uint64_t now,
			const struct store_put *with, int64_t *value, struct store_put *put)
{
	struct stripe *s = stripe_lock(store, tag);
	struct dead dead = {0};
	struct slot slot;
	struct store_item *item = item_find(store, s, tag, key, key_len, now, &slot, &dead);
	int rc = 0;

	*value = 0;
	*put = (struct store_put){
		.condition = STORE_IF_ABSENT, .expires = with->expires, .keep_expiry = true, .owner = with->owner};
	if (item) {
		put->condition = STORE_IF_VERSION;
		put->version = item->version;
		put->keep_attributes = item->attributes;
		rc = (item_attributes(item).type & ~STORE_STALE) == STORE_STRING
			     ? integer_parse(item_value(item), item->value_len, value)
			     : -EMEDIUMTYPE;
	}
	stripe_unlock(store, s, &dead);
	return rc;
}

int store_count(struct store *store, const void *key, size_t key_len, int64_t delta, const struct store_put *with,
		uint64_t now, int64_t *value, uint64_t *version)
{
	struct store_item *item;
	struct store_put put;
	char text[DIGITS_MAX + 3];
	int64_t result;
	uint32_t tag;
	int rc, len;

	if (!key_valid(key_len))
		return -EINVAL;
	tag = key_tag(store, key, key_len);
	do { /* the extent is made without the lock, so another thread may have been faster */
		rc = integer_read(store, tag, key, key_len, now, with, &result, &put);
		if (rc != 0)
			return rc;
		if (__builtin_add_overflow(result, delta, &result))
			return -ERANGE;
		len = snprintf(text, sizeof(text), "%lld", (long long)result);
		rc = item_create(store, tag, key, key_len, (uint64_t)len, &put, 0, now, &item);
		if (rc != 0)
			return rc;
		memcpy(item_value(item), text, (size_t)len);
		rc = item_publish(store, item, &put, now, version);
	} while (rc == -EEXIST || rc == -ENOENT || rc == -ESTALE);
	if (rc == 0 && value)
		*value = result;
	return rc;
}

/* One key whose item is changed in its place: a step under the stripe's lock, which is a change if it is told to be
 * one. */
struct touch {
	struct stripe *s;
	struct store_item *item;
	struct slot slot;
	struct dead dead;
};

/* 1, with the item; 0: no such key; -ESTALE: another version. In each case touch_end() follows. -EAGAIN: nothing was
 * begun. */
static int touch_begin(struct store *store, const void *key, size_t key_len, uint64_t if_version, uint64_t now,
		       struct touch *t)
{
	uint32_t tag = key_tag(store, key, key_len);

	if (unlikely(!change_grant(store)))
		return -EAGAIN;
	*t = (struct touch){.s = stripe_lock(store, tag)};
	t->item = item_find(store, t->s, tag, key, key_len, now, &t->slot, &t->dead);
	if (t->item && if_version && t->item->version != if_version)
		return -ESTALE;
	return !!t->item;
}

/* 1: it was changed, and told so. Returns rc. */
static int touch_end(struct store *store, struct touch *t, int rc)
{
	stripe_unlock(store, t->s, &t->dead);
	if (rc != 1)
		change_return(store);
	return rc;
}

int store_delete(struct store *store, const void *key, size_t key_len, uint64_t if_version, uint64_t now)
{
	struct touch t;
	int rc = touch_begin(store, key, key_len, if_version, now, &t);

	if (unlikely(rc == -EAGAIN))
		return rc;
	if (rc == 1)
		store_item_drop(store, t.s, t.slot, t.item, DROP_DELETED, &t.dead);
	return touch_end(store, &t, rc);
}

int store_stat(struct store *store, const void *key, size_t key_len, uint64_t now, struct store_meta *out)
{
	uint32_t tag = key_tag(store, key, key_len);
	struct stripe *s = stripe_lock(store, tag);
	struct dead dead = {0};
	struct slot slot;
	struct store_item *item = item_find(store, s, tag, key, key_len, now, &slot, &dead);

	if (item)
		meta_set(out, item);
	stripe_unlock(store, s, &dead);
	return !!item;
}

int store_expire(struct store *store, const void *key, size_t key_len, uint64_t if_version, uint64_t expires,
		 uint64_t now)
{
	struct touch t;
	int rc = touch_begin(store, key, key_len, if_version, now, &t);

	if (unlikely(rc == -EAGAIN))
		return rc;
	if (rc == 1) {
		wheel_remove(store, t.s, t.item);
		t.item->expires = expires;
		wheel_add(store, t.s, t.item, now);
		event_tell(store, (struct event){STORE_EVENT_EXPIRY, t.item, .timed = expires != TIME_NEVER}, &t.dead);
		if (unlikely(store->changes.on)) {
			if (!change_is_copy(t.item, STORE_CHANGE_EXPIRE))
				atomic_fetch_add_explicit(&t.item->refs, 1, memory_order_relaxed);
			stripe_removed(t.s, change_put(store, t.item, STORE_CHANGE_EXPIRE, 0));
		}
	}
	return touch_end(store, &t, rc);
}

/*
 * Time.
 */

static uint64_t stripe_tick(struct store *store, struct stripe *s, uint64_t now, unsigned *budget)
{
	struct dead dead = {0};
	uint64_t due = atomic_load_explicit(&s->due, memory_order_relaxed);
	unsigned most = MIN(*budget, TICK_STRIPE), some = most;

	if (due > now)
		return due;
	lock_take(&s->lock, LOCK_STRIPE);
	due = wheel_advance(store, s, now, &some, &dead);
	atomic_store_explicit(&s->due, due, memory_order_relaxed);
	stripe_unlock(store, s, &dead);
	*budget -= most - some;
	return due;
}

uint64_t store_tick(struct store *store, uint64_t now)
{
	unsigned budget = TICK_BUDGET;
	uint32_t hand = atomic_load_explicit(&store->tick_hand, memory_order_relaxed);
	uint64_t next = TIME_NEVER, due;

	/* What others add from here on lowers it again. */
	atomic_store_explicit(&store->due, TIME_NEVER, memory_order_relaxed);
	for (unsigned n = 0; n < store->stripes; n++, hand++) {
		due = stripe_tick(store, &store->stripe[hand % store->stripes], now, &budget);
		next = MIN(next, due);
		if (!budget)
			break;
	}
	if (!budget)
		next = now;
	room_tick(store, now);
	evict_tick(store, now);
	atomic_store_explicit(&store->tick_hand, hand % store->stripes, memory_order_relaxed);
	due_lower(&store->due, next);
	return MIN(next, now + TICK_LATEST);
}

uint64_t store_give_back(struct store *store, uint64_t now)
{
	return pages_return(&store->arena.pages, store->arena.base, now);
}

void store_refuse_later(struct store *store)
{
	atomic_fetch_sub(&store->out_of_memory, 1);
}
