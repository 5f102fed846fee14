/* read.c: get, gets, gat, gats, mg and me. */
#include "service/memcached/memcached.h"

/* A value that was pinned leaves from where it is; its pin is the answer's, or given back. */
static void put_pinned(struct memcached_client *c, struct store_ref *ref)
{
	if (text_pins_add(&c->thread->pins, c->out->len, ref))
		return;
	store_unpin(c->thread->store, ref);
	c->out->failed = true;
}

/* One key of get: as store_get(). */
static bool get_long(struct memcached_client *c, const struct memc_command *command, const struct memc_word *key,
		     uint64_t *version)
{
	struct store_ref ref;

	if (!store_get(c->thread->store, key->at, key->len, memcached_now(c), &ref))
		return false;
	if (!memcached_is_value(ref.type)) {
		store_unpin(c->thread->store, &ref);
		return false;
	}
	*version = ref.version;
	memc_value(c->out, key, ref.flags, ref.len, command->with_cas ? &ref.version : NULL);
	put_pinned(c, &ref);
	memc_put(c->out, "\r\n", 2);
	return true;
}

/* A short one goes straight from the table into the answer. */
static bool get_one(struct memcached_client *c, const struct memc_command *command, const struct memc_word *key,
		    uint64_t *version)
{
	struct memc_out *out = c->out;
	char *to = memc_grow(out, MEMC_VALUE_HEAD + STORE_COPY_MAX + 2), *value;
	struct store_meta meta;

	if (!to)
		return false;
	value = to + MEMC_VALUE_HEAD;
	if (!store_read(c->thread->store, key->at, key->len, memcached_now(c), value, STORE_COPY_MAX, &meta))
		return false;
	if (unlikely(meta.len > STORE_COPY_MAX))
		return get_long(c, command, key, version);
	if (unlikely(!memcached_is_value(meta.type)))
		return false;
	*version = meta.version;
	to = memc_write_value(to, key, meta.flags, meta.len, command->with_cas ? &meta.version : NULL);
	memmove(to, value, meta.len);
	memcpy(to + meta.len, "\r\n", 2);
	out->len = (size_t)(to + meta.len + 2 - out->at);
	return true;
}

/* Its time to live is set before it is read, so that it is there still. */
static int touch_one(struct memcached_client *c, const struct memc_command *command, const struct memc_word *key)
{
	uint64_t expires = memcached_expires(c, command->exptime);

	if (expires <= memcached_now(c))
		return 0; /* it goes when it was read */
	return store_expire(c->thread->store, key->at, key->len, 0, expires, memcached_now(c));
}

static int get_key(struct memcached_client *c, const struct memc_command *command, const struct memc_word *key)
{
	struct store *store = c->thread->store;
	uint64_t version = 0;
	bool found;
	int rc = command->touches ? touch_one(c, command, key) : 0;

	if (rc < 0)
		return rc;
	found = get_one(c, command, key, &version);
	if (found && command->touches && memcached_expires(c, command->exptime) <= memcached_now(c)) {
		rc = store_delete(store, key->at, key->len, version, memcached_now(c));
		if (rc == -EAGAIN)
			return rc;
	}
	if (command->touches) {
		memcached_count(c, found ? MEMCACHED_TOUCH_HITS : MEMCACHED_TOUCH_MISSES);
		c->tells = found ? MAX(c->tells, store_removed(store, key->at, key->len)) : c->tells;
	}
	memcached_count(c, found ? MEMCACHED_GET_HITS : MEMCACHED_GET_MISSES);
	memcached_count(c, command->touches ? MEMCACHED_CMD_TOUCH : MEMCACHED_CMD_GET);
	memcached_tell(c, key, version);
	return 0;
}

/* Several keys are looked up at once in memory. */
static void look_ahead(struct memcached_client *c, const struct memc_command *command)
{
	struct memc_command ahead = {.rest = command->rest};
	struct store_key keys[STORE_AHEAD];
	struct memc_word key;
	unsigned n = 0;

	while (n < STORE_AHEAD && memc_next_key(&ahead, &key))
		keys[n++] = (struct store_key){key.at, key.len};
	if (n > 1)
		store_look_ahead(c->thread->store, keys, n);
}

int memcached_get(struct memcached_client *c, struct memc_command *command)
{
	struct memc_word key;
	unsigned n = 0;
	int rc = 0;

	for (; rc == 0; n++) {
		if (n % STORE_AHEAD == 0)
			look_ahead(c, command);
		if (!memc_next_key(command, &key))
			break;
		rc = get_key(c, command, &key);
	}
	if (rc == 0)
		memc_line(c->out, "END");
	return rc;
}

/*
 * mg
 */

/* What is known of an item while its flags are told. */
struct item {
	struct store_meta meta;
	uint64_t hash;
	bool hit;     /* before */
	bool created; /* by this command */
	bool won;     /* this client is to make it anew */
	uint64_t expires;
};

/* 1: there; 0: it is not; -errno. Not found and wanted, it is made. */
static int item_find(struct memcached_client *c, const struct memc_command *command, struct item *item)
{
	const struct memc_word *key = &command->key;
	struct store_put put = {.condition = STORE_IF_ABSENT, .owner = c->owner};
	struct store *store = c->thread->store;
	uint64_t now = memcached_now(c);
	int rc;

	*item = (struct item){.hash = store_hash(store, key->at, key->len)};
	for (unsigned i = 0; i < MEMCACHED_RUNS; i++) {
		rc = store_stat(store, key->at, key->len, now, &item->meta);
		item->hit = rc == 1 && item->meta.heat;
		item->expires = item->meta.expires;
		if (rc == 1)
			return memcached_is_value(item->meta.type);
		if (!command->vivify)
			return 0;
		put.expires = memcached_expires_made(c, command);
		rc = store_set(store, key->at, key->len, "", 0, &put, now, &item->meta.version);
		if (rc == -EEXIST)
			continue;
		item->created = true;
		item->expires = TIME_NEVER;
		c->tells = rc == 0 ? MAX(c->tells, item->meta.version) : c->tells;
		return rc == 0 ? 1 : rc;
	}
	return -EAGAIN;
}

static void tell_ttl(struct memcached_client *c, uint64_t expires)
{
	int64_t ttl = memcached_ttl(c, expires);

	if (ttl < 0)
		memc_put_text(c->out, " t-1");
	else
		memc_flag_number(c->out, 't', (uint64_t)ttl);
}

static void tell_item_flag(struct memcached_client *c, const struct memc_command *command, const struct memc_word *flag,
			   struct item *item)
{
	switch (memc_letter(flag)) {
	case 'T':
		item->expires = memcached_expires(c, command->exptime);
		break;
	case 'N':
		if (item->created) {
			item->expires = memcached_expires(c, command->vivify_exptime);
			item->won = true;
		}
		break;
	case 'R':
		item->won |= !item->created && item->expires != TIME_NEVER && command->recache_exptime != 0 &&
			     item->expires < memcached_expires(c, command->recache_exptime);
		break;
	case 's':
		memc_flag_number(c->out, 's', item->meta.len);
		break;
	case 't':
		tell_ttl(c, item->expires);
		break;
	case 'c':
		memc_flag_number(c->out, 'c', item->meta.version);
		break;
	case 'f':
		memc_flag_number(c->out, 'f', item->meta.flags);
		break;
	case 'l': /* when it was used last is not kept */
		memc_flag_number(c->out, 'l', 0);
		break;
	case 'h':
		memc_flag_number(c->out, 'h', item->hit);
		break;
	default:
		memc_flag_echo(c->out, command, flag);
		break;
	}
}

/* Which client makes it anew. */
static void tell_won(struct memcached_client *c, struct item *item)
{
	struct memcached_won *won = &c->thread->shared->won;
	bool sent = !item->created && memcached_won_sent(won, item->hash, item->meta.version);

	item->won |= item->meta.stale;
	if (!sent && item->won)
		sent = !memcached_won_take(won, item->hash, item->meta.version);
	if (sent)
		memc_flag(c->out, 'Z');
	if (item->meta.stale)
		memc_flag(c->out, 'X');
	if (item->won && !sent)
		memc_flag(c->out, 'W');
}

static int key_missed(struct memcached_client *c, const struct memc_command *command)
{
	memcached_count(c, MEMCACHED_GET_MISSES);
	memcached_count(c, command->has_exptime ? MEMCACHED_CMD_TOUCH : MEMCACHED_CMD_GET);
	if (command->has_exptime)
		memcached_count(c, MEMCACHED_TOUCH_MISSES);
	memcached_tell(c, &command->key, 0);
	if (command->quiet)
		return 0;
	memc_put_text(c->out, "EN");
	memc_flags_echo(c->out, command);
	memc_put(c->out, "\r\n", 2);
	return 0;
}

/* The value of that version, which was seen: in `ref`, pinned, or in the thread's scratch memory. */
static int item_value(struct memcached_client *c, const struct memc_word *key, struct item *item, struct store_ref *ref)
{
	struct memcached_thread *thread = c->thread;
	struct store_meta meta;
	uint64_t now = memcached_now(c);

	if (item->meta.len > sizeof(thread->scratch)) {
		if (!store_get(thread->store, key->at, key->len, now, ref))
			return -ESTALE;
		return ref->version == item->meta.version ? 0 : -ESTALE;
	}
	if (!store_read(thread->store, key->at, key->len, now, thread->scratch, sizeof(thread->scratch), &meta))
		return -ESTALE;
	return meta.version == item->meta.version ? 0 : -ESTALE;
}

/* Its time to live is changed last, when nothing of the command can fail any more. */
static int item_touch(struct memcached_client *c, const struct memc_command *command, const struct item *item)
{
	const struct memc_word *key = &command->key;
	struct store *store = c->thread->store;
	uint64_t now = memcached_now(c);
	int rc;

	if (!command->has_exptime || item->created)
		return 0;
	if (item->expires > now)
		rc = store_expire(store, key->at, key->len, item->meta.version, item->expires, now);
	else
		rc = store_delete(store, key->at, key->len, item->meta.version, now);
	if (rc == 1)
		memcached_count(c, MEMCACHED_TOUCH_HITS);
	c->tells = MAX(c->tells, store_removed(store, key->at, key->len));
	return rc == 1 ? 0 : rc == 0 ? -ESTALE : rc;
}

static int meta_get(struct memcached_client *c, const struct memc_command *command)
{
	struct memcached_thread *thread = c->thread;
	struct store_ref ref = {.item = NULL};
	struct item item;
	int rc = item_find(c, command, &item);

	if (rc <= 0)
		return rc < 0 ? rc : key_missed(c, command);
	/* Without u also what is not told is read: that is a hit. */
	rc = (command->value || !command->no_bump) && !item.created ? item_value(c, &command->key, &item, &ref) : 0;
	if (rc == 0) {
		memc_put_text(c->out, command->value ? "VA " : "HD");
		if (command->value)
			memc_put_number(c->out, item.meta.len);
		for (unsigned i = 0; i < command->flags; i++)
			tell_item_flag(c, command, &command->flag[i], &item);
		rc = item_touch(c, command, &item);
	}
	if (rc != 0) {
		store_unpin(thread->store, &ref);
		return rc;
	}
	tell_won(c, &item);
	memc_put(c->out, "\r\n", 2);
	if (!command->value) {
		store_unpin(thread->store, &ref);
	} else {
		if (ref.item)
			put_pinned(c, &ref);
		else
			memc_put(c->out, thread->scratch, item.meta.len);
		memc_put(c->out, "\r\n", 2);
	}
	memcached_count(c, command->has_exptime ? MEMCACHED_CMD_TOUCH : MEMCACHED_CMD_GET);
	memcached_count(c, MEMCACHED_GET_HITS);
	memcached_tell(c, &command->key, item.meta.version);
	return 0;
}

int memcached_meta_get(struct memcached_client *c, const struct memc_command *command)
{
	size_t len = c->out->len;
	int rc = -ESTALE;

	for (unsigned i = 0; i < MEMCACHED_RUNS && rc == -ESTALE; i++) {
		c->out->len = len;
		rc = meta_get(c, command);
	}
	return rc == -ESTALE ? -EAGAIN : rc;
}

/* me: what is not known of an item has the value of one that is new. */
int memcached_meta_debug(struct memcached_client *c, const struct memc_command *command)
{
	const struct memc_word *key = &command->key;
	struct store_meta meta;
	char text[160], coded[MEMC_BASE64(MEMC_KEY_MAX)];

	memcached_count(c, MEMCACHED_CMD_META);
	if (!store_stat(c->thread->store, key->at, key->len, memcached_now(c), &meta) ||
	    !memcached_is_value(meta.type)) {
		memcached_tell(c, key, 0);
		return memcached_say(c, command, "EN");
	}
	memc_put_text(c->out, "ME ");
	if (command->binary)
		memc_put(c->out, coded, memc_base64_write(key->at, key->len, coded));
	else
		memc_put(c->out, key->at, key->len);
	snprintf(text, sizeof(text), " exp=%lld la=0 cas=%llu fetch=%s cls=1 size=%llu\r\n",
		 (long long)memcached_ttl(c, meta.expires), (unsigned long long)meta.version, meta.heat ? "yes" : "no",
		 (unsigned long long)(meta.len + key->len + 56));
	memc_put_text(c->out, text);
	memcached_tell(c, key, meta.version);
	return 0;
}
