/* write.c: commands that write one key. */
#include "service/memcached/memcached.h"

#define DIGITS 20 /* of 64 bits */

static bool lost_race(int rc)
{
	return rc == -ESTALE || rc == -EEXIST || rc == -ENOENT;
}

/* What the counters of mg and its relatives have no names for. */
static int answer_meta(struct memcached_client *c, const struct memc_command *command, const char *status,
		       uint64_t version)
{
	if (command->quiet && strcmp(status, "HD") == 0)
		return 0;
	memc_put_text(c->out, status);
	for (unsigned i = 0; i < command->flags; i++)
		if (memc_letter(&command->flag[i]) == 'c' && command->id == MEMC_META_SET)
			memc_flag_number(c->out, 'c', version);
		else
			memc_flag_echo(c->out, command, &command->flag[i]);
	memc_put(c->out, "\r\n", 2);
	return 0;
}

enum result { STORED, NOT_STORED, EXISTS, NOT_FOUND };

static int answer_store(struct memcached_client *c, const struct memc_command *command, enum result result,
			uint64_t version)
{
	static const char *const text[] = {"STORED", "NOT_STORED", "EXISTS", "NOT_FOUND"};
	static const char *const meta[] = {"HD", "NS", "EX", "NF"};

	memcached_count(c, MEMCACHED_CMD_SET);
	if (result == STORED)
		c->tells = MAX(c->tells, version);
	else
		memcached_tell_all(c);
	return command->meta ? answer_meta(c, command, meta[result], version) : memcached_say(c, command, text[result]);
}

static enum memc_id mode_of(const struct memc_command *command)
{
	return command->meta ? command->mode : command->id;
}

/*
 * set add replace cas, ms
 */

/* A value that may be stored though another one was stored in between is out of date itself. */
static bool may_be_stale(const struct memc_command *command)
{
	return command->stale && mode_of(command) == MEMC_CAS;
}

struct store_put memcached_put(const struct memcached_client *c, const struct memc_command *command)
{
	static const enum store_condition condition[] = {
		[MEMC_SET] = STORE_ALWAYS,    [MEMC_ADD] = STORE_IF_ABSENT,  [MEMC_REPLACE] = STORE_IF_PRESENT,
		[MEMC_APPEND] = STORE_ALWAYS, [MEMC_PREPEND] = STORE_ALWAYS, [MEMC_CAS] = STORE_IF_VERSION};

	return (struct store_put){.condition = condition[mode_of(command)],
				  .version = command->cas,
				  .expires = memcached_expires(c, command->exptime),
				  .type = may_be_stale(command) ? STORE_STALE : STORE_STRING,
				  .flags = command->client_flags,
				  .owner = c->owner};
}

/* Of ms with I: what is there now decides. False: it does not take the value. */
static bool settle_stale(struct memcached_client *c, const struct memc_command *command, struct store_put *put)
{
	struct store_meta meta;

	put->type = STORE_STRING;
	put->version = command->cas;
	put->keep_expiry = false;
	if (!store_stat(c->thread->store, command->key.at, command->key.len, memcached_now(c), &meta))
		return true;
	if (command->cas >= meta.version || !command->cas)
		return command->cas == meta.version;
	put->version = meta.version;
	put->type = STORE_STALE;
	put->keep_expiry = true;
	return true;
}

static int publish_value(struct memcached_client *c, const struct memc_command *command,
			 const struct memcached_data *data, const struct store_put *put, uint64_t *version)
{
	struct store *store = c->thread->store;
	const struct memc_word *key = &command->key;

	if (data->ref && data->ref->item)
		return store_publish(store, data->ref, put, memcached_now(c), version);
	return store_set(store, key->at, key->len, data->at, data->len, put, memcached_now(c), version);
}

static int store_stale(struct memcached_client *c, const struct memc_command *command,
		       const struct memcached_data *data, uint64_t *version)
{
	struct memcached_won *won = &c->thread->shared->won;
	uint64_t hash = store_hash(c->thread->store, command->key.at, command->key.len);
	struct store_put put = memcached_put(c, command);
	struct store_ref place = {.item = NULL};
	struct memcached_data copy = {data->at, data->len, &place};
	bool sent;
	int rc;

	if (!settle_stale(c, command, &put))
		return -EEXIST;
	/* A reservation is consumed, and so is made for each try. */
	rc = store_reserve_for(c->thread->store, command->key.at, command->key.len, data->len,
			       &(struct store_put){.type = STORE_STALE, .owner = c->owner}, memcached_now(c), &place);
	if (rc != 0)
		return rc;
	memcpy(place.addr, data->at, data->len);
	sent = put.type & STORE_STALE && memcached_won_sent(won, hash, put.version);
	rc = publish_value(c, command, &copy, &put, version);
	if (rc == 0 && sent)
		memcached_won_take(won, hash, *version);
	/* Another was faster: begin anew, if the version was not the client's own. */
	return rc == -ESTALE && put.version != command->cas ? -EAGAIN : rc;
}

int memcached_store(struct memcached_client *c, const struct memc_command *command, const struct memcached_data *data)
{
	const struct store_put put = memcached_put(c, command);
	uint64_t version = 0;
	int rc;

	if (unlikely(may_be_stale(command)))
		rc = store_stale(c, command, data, &version);
	else
		rc = publish_value(c, command, data, &put, &version);
	switch (rc) {
	case 0:
		if (mode_of(command) == MEMC_CAS)
			memcached_count(c, MEMCACHED_CAS_HITS);
		return answer_store(c, command, STORED, version);
	case -EEXIST:
	case -ESTALE:
		if (mode_of(command) != MEMC_CAS)
			return answer_store(c, command, NOT_STORED, 0);
		memcached_count(c, MEMCACHED_CAS_BADVAL);
		return answer_store(c, command, EXISTS, 0);
	case -ENOENT:
		if (mode_of(command) != MEMC_CAS)
			return answer_store(c, command, NOT_STORED, 0);
		memcached_count(c, MEMCACHED_CAS_MISSES);
		return answer_store(c, command, NOT_FOUND, 0);
	default:
		return rc;
	}
}

int memcached_not_stored(struct memcached_client *c, const struct memc_command *command, int error)
{
	bool deletes = command->meta || command->id == MEMC_SET;
	int rc;

	if (!deletes || (error != -ENOMEM && error != -EFBIG && error != -EDQUOT))
		return error;
	rc = store_delete(c->thread->store, command->key.at, command->key.len, 0, memcached_now(c));
	if (rc == 1)
		c->tells = MAX(c->tells, store_removed(c->thread->store, command->key.at, command->key.len));
	return error;
}

/*
 * append prepend, and ms with these modes
 */

/* 0; -ENOENT: nothing is there to append to; -EEXIST: another version. */
static int append_value(struct memcached_client *c, const struct memc_command *command,
			const struct memcached_data *data, uint64_t *version)
{
	struct store *store = c->thread->store;
	const struct memc_word *key = &command->key;
	struct store_put put = {.condition = STORE_IF_VERSION, .keep_expiry = true, .owner = c->owner};
	bool behind = mode_of(command) == MEMC_APPEND;
	struct store_ref old, fresh;
	uint64_t now = memcached_now(c);
	int rc;

	if (!store_get(store, key->at, key->len, now, &old))
		return -ENOENT;
	put.version = old.version;
	put.flags = old.flags;
	rc = !memcached_is_value(old.type)                                     ? -ENOENT
	     : command->has_cas && command->cas && command->cas != old.version ? -EEXIST
									       : 0;
	if (rc == 0)
		rc = store_reserve_for(store, key->at, key->len, old.len + data->len, &put, now, &fresh);
	if (rc == 0) {
		char *to = fresh.addr;

		memcpy(behind ? to : to + data->len, old.addr, old.len);
		if (data->len)
			memcpy(behind ? to + old.len : to, data->at, data->len);
		rc = store_publish(store, &fresh, &put, now, version);
		rc = lost_race(rc) ? -ESTALE : rc;
	}
	store_unpin(store, &old);
	return rc;
}

int memcached_append(struct memcached_client *c, const struct memc_command *command, const struct memcached_data *data)
{
	uint64_t version = 0;
	int rc = -ESTALE;

	for (unsigned i = 0; i < MEMCACHED_RUNS && rc == -ESTALE; i++)
		rc = append_value(c, command, data, &version);
	switch (rc) {
	case -ESTALE:
		return -EAGAIN;
	case 0:
		return answer_store(c, command, STORED, version);
	case -EEXIST:
		return answer_store(c, command, EXISTS, 0);
	case -EAGAIN:
		return rc;
	default: /* nothing is there, or there is no room for both */
		return answer_store(c, command, NOT_STORED, 0);
	}
}

/*
 * incr decr, ma
 */

struct number {
	char text[STORE_COPY_MAX]; /* of what was read, its beginning */
	size_t len;                /* of the new number, which has taken its place */
	struct store_meta meta;    /* of what was read; its version is the new one in the end */
	bool created;
};

static size_t write_digits(char text[DIGITS], uint64_t number)
{
	char digits[DIGITS];
	size_t n = 0;

	do
		digits[n++] = (char)('0' + number % 10);
	while (number /= 10);
	for (size_t i = 0; i < n; i++)
		text[i] = digits[n - 1 - i];
	return n;
}

static bool number_read(struct memcached_client *c, const struct memc_word *key, struct number *number)
{
	struct store *store = c->thread->store;
	struct store_meta *meta = &number->meta;
	uint64_t now = memcached_now(c);
	struct store_ref ref;

	if (!store_read(store, key->at, key->len, now, number->text, sizeof(number->text), meta))
		return false;
	if (meta->len <= sizeof(number->text))
		return true;
	if (!store_get(store, key->at, key->len, now, &ref))
		return false;
	*meta = (struct store_meta){.len = ref.len,
				    .version = ref.version,
				    .expires = ref.expires,
				    .flags = ref.flags,
				    .type = ref.type,
				    .stale = ref.stale};
	memcpy(number->text, ref.addr, MIN(ref.len, sizeof(number->text)));
	store_unpin(store, &ref);
	return true;
}

/* 0; -ENOENT: it is not there; -EMEDIUMTYPE: but a value of another type; -EDOM: it is no number; -EEXIST: another
 * version. */
static int count_item(struct memcached_client *c, const struct memc_command *command, bool up, struct number *number)
{
	struct store *store = c->thread->store;
	const struct memc_word *key = &command->key;
	uint64_t now = memcached_now(c), value;
	struct store_meta *meta = &number->meta;
	struct memcached_won *won = &c->thread->shared->won;
	uint64_t hash = store_hash(store, key->at, key->len);
	struct store_ref fresh;
	struct store_put put;
	bool fits, sent;
	size_t pad;
	int rc;

	if (!number_read(c, key, number))
		return -ENOENT;
	if (!memcached_is_value(meta->type))
		return -EMEDIUMTYPE;
	if (!meta->len)
		return -EDOM;
	if (command->has_cas && command->cas && command->cas != meta->version)
		return -EEXIST;
	if (!memc_read_number(number->text, MIN(meta->len, sizeof(number->text)), &value))
		return -EDOM;
	value = up ? value + command->delta : value - MIN(command->delta, value);
	number->len = write_digits(number->text, value);
	/* A shorter number has blanks behind it, as it takes the place of the longer one. */
	pad = MAX(number->len, meta->len);
	fits = pad == meta->len;
	put = (struct store_put){.condition = STORE_IF_VERSION,
				 .version = meta->version,
				 .keep_expiry = true,
				 .type = meta->stale && fits ? STORE_STALE : STORE_STRING,
				 .flags = meta->flags,
				 .owner = c->owner};
	rc = store_reserve_for(store, key->at, key->len, pad, &put, now, &fresh);
	if (rc != 0)
		return rc;
	memcpy(fresh.addr, number->text, number->len);
	memset((char *)fresh.addr + number->len, ' ', pad - number->len);
	sent = fits && memcached_won_sent(won, hash, put.version);
	rc = store_publish(store, &fresh, &put, now, &meta->version);
	if (rc == 0) {
		if (sent)
			memcached_won_take(won, hash, meta->version);
		meta->len = pad;
		c->tells = MAX(c->tells, meta->version);
	}
	return lost_race(rc) ? -ESTALE : rc;
}

/* The first number of ma with N. */
static int count_first(struct memcached_client *c, const struct memc_command *command, struct number *number)
{
	const struct memc_word *key = &command->key;
	struct store_put put = {.condition = STORE_IF_ABSENT, .owner = c->owner};
	int rc;

	number->len = write_digits(number->text, command->start);
	put.expires = memcached_expires_made(c, command);
	number->meta = (struct store_meta){.len = number->len, .expires = TIME_NEVER};
	number->created = true;
	rc = store_set(c->thread->store, key->at, key->len, number->text, number->len, &put, memcached_now(c),
		       &number->meta.version);
	if (rc == 0)
		c->tells = MAX(c->tells, number->meta.version);
	return lost_race(rc) ? -ESTALE : rc;
}

static void count_stats(struct memcached_client *c, bool up, int rc)
{
	if (rc == 0)
		memcached_count(c, up ? MEMCACHED_INCR_HITS : MEMCACHED_DECR_HITS);
	else if (rc == -ENOENT)
		memcached_count(c, up ? MEMCACHED_INCR_MISSES : MEMCACHED_DECR_MISSES);
}

static int count_error(struct memcached_client *c, const struct memc_command *command, int rc)
{
	if (rc == -EDOM)
		return memcached_fault(c, command, "CLIENT_ERROR cannot increment or decrement non-numeric value");
	return rc == -ESTALE ? -EAGAIN : rc;
}

int memcached_count_by(struct memcached_client *c, const struct memc_command *command)
{
	bool up = command->id == MEMC_INCR;
	struct number number;
	int rc = -ESTALE;

	for (unsigned i = 0; i < MEMCACHED_RUNS && rc == -ESTALE; i++)
		rc = count_item(c, command, up, &number);
	rc = rc == -EMEDIUMTYPE ? -ENOENT : rc;
	count_stats(c, up, rc);
	if (rc == -ENOENT) {
		memcached_tell(c, &command->key, 0);
		return memcached_say(c, command, "NOT_FOUND");
	}
	if (rc != 0)
		return count_error(c, command, rc);
	if (!command->quiet) {
		memc_put(c->out, number.text, number.len);
		memc_put(c->out, "\r\n", 2);
	}
	return 0;
}

/* T and N count from where they stand among the flags. */
static int tell_number(struct memcached_client *c, const struct memc_command *command, const struct number *number)
{
	uint64_t expires = number->meta.expires;
	int rc;

	memc_put_text(c->out, command->value ? "VA " : "HD");
	if (command->value)
		memc_put_number(c->out, number->len);
	for (unsigned i = 0; i < command->flags; i++)
		switch (memc_letter(&command->flag[i])) {
		case 'c':
			memc_flag_number(c->out, 'c', number->meta.version);
			break;
		case 't':
			if (expires == TIME_NEVER)
				memc_put_text(c->out, " t-1");
			else
				memc_flag_number(c->out, 't', (uint64_t)memcached_ttl(c, expires));
			break;
		case 'T':
			expires = memcached_expires(c, command->exptime);
			break;
		case 'N':
			expires = number->created ? memcached_expires(c, command->vivify_exptime) : expires;
			break;
		default:
			memc_flag_echo(c->out, command, &command->flag[i]);
			break;
		}
	memc_put(c->out, "\r\n", 2);
	if (command->value) {
		memc_put(c->out, number->text, number->len);
		memc_put(c->out, "\r\n", 2);
	}
	/* It is another's now, if it is not of that version any more. */
	rc = command->has_exptime && !number->created
		     ? store_expire(c->thread->store, command->key.at, command->key.len, number->meta.version, expires,
				    memcached_now(c))
		     : 0;
	if (rc == 1)
		c->tells = MAX(c->tells, store_removed(c->thread->store, command->key.at, command->key.len));
	return 0;
}

int memcached_meta_count(struct memcached_client *c, const struct memc_command *command)
{
	bool up = command->mode == MEMC_INCR;
	struct number number = {.len = 0};
	int rc = -ESTALE;

	for (unsigned i = 0; i < MEMCACHED_RUNS && rc == -ESTALE; i++) {
		number.created = false;
		rc = count_item(c, command, up, &number);
		if (rc == -ENOENT && command->vivify)
			rc = count_first(c, command, &number);
	}
	rc = rc == -EMEDIUMTYPE ? -ENOENT : rc;
	count_stats(c, up, rc);
	if (rc == -ENOENT || rc == -EEXIST) {
		memcached_tell_all(c);
		return answer_meta(c, command, rc == -ENOENT ? "NF" : "EX", 0);
	}
	if (rc != 0)
		return count_error(c, command, rc);
	if (command->quiet && !number.created) {
		size_t len = c->out->len;

		rc = tell_number(c, command, &number);
		c->out->len = len;
		return rc;
	}
	return tell_number(c, command, &number);
}

/*
 * delete touch, md
 */

int memcached_delete(struct memcached_client *c, const struct memc_command *command)
{
	int rc = store_delete(c->thread->store, command->key.at, command->key.len, 0, memcached_now(c));

	if (rc < 0)
		return rc;
	memcached_count(c, rc ? MEMCACHED_DELETE_HITS : MEMCACHED_DELETE_MISSES);
	memcached_tell(c, &command->key, 0);
	return memcached_say(c, command, rc ? "DELETED" : "NOT_FOUND");
}

/* The value is out of date from now on: the same under a new version. 1; 0: it is not there; -errno. */
static int make_stale(struct memcached_client *c, const struct memc_command *command)
{
	struct store *store = c->thread->store;
	const struct memc_word *key = &command->key;
	struct store_put put = {.condition = STORE_IF_VERSION, .type = STORE_STALE, .owner = c->owner};
	struct store_ref old, fresh;
	uint64_t now = memcached_now(c), version;
	int rc;

	if (!store_get(store, key->at, key->len, now, &old))
		return 0;
	put.version = old.version;
	put.flags = old.flags;
	put.keep_expiry = !command->has_exptime;
	put.expires = memcached_expires(c, command->exptime);
	rc = !memcached_is_value(old.type) ? -ENOENT : command->has_cas && command->cas != old.version ? -EEXIST : 0;
	if (rc == 0)
		rc = store_reserve_for(store, key->at, key->len, old.len, &put, now, &fresh);
	if (rc == 0) {
		memcpy(fresh.addr, old.addr, old.len);
		rc = store_publish(store, &fresh, &put, now, &version);
		rc = lost_race(rc) ? -ESTALE : rc == 0 ? 1 : rc;
	}
	if (rc == 1)
		c->tells = MAX(c->tells, version);
	store_unpin(store, &old);
	return rc == -ENOENT ? 0 : rc;
}

/* C with 0 is no version of anything. */
static int delete_version(struct memcached_client *c, const struct memc_command *command)
{
	struct store *store = c->thread->store;
	const struct memc_word *key = &command->key;
	struct store_meta meta;
	int rc;

	if (command->has_cas && !command->cas)
		return store_stat(store, key->at, key->len, memcached_now(c), &meta) ? -EEXIST : 0;
	rc = store_delete(store, key->at, key->len, command->has_cas ? command->cas : 0, memcached_now(c));
	return rc == -ESTALE ? -EEXIST : rc;
}

int memcached_meta_delete(struct memcached_client *c, const struct memc_command *command)
{
	int rc = -ESTALE;

	for (unsigned i = 0; i < MEMCACHED_RUNS && rc == -ESTALE; i++)
		rc = command->stale ? make_stale(c, command) : delete_version(c, command);
	if (rc < 0 && rc != -EEXIST)
		return rc == -ESTALE ? -EAGAIN : rc;
	if (rc != 1)
		memcached_count(c, MEMCACHED_DELETE_MISSES);
	else if (!command->stale)
		memcached_count(c, MEMCACHED_DELETE_HITS);
	if (!command->stale || rc != 1)
		memcached_tell_all(c);
	return answer_meta(c, command, rc == 1 ? "HD" : rc == 0 ? "NF" : "EX", 0);
}

int memcached_touch(struct memcached_client *c, const struct memc_command *command)
{
	struct store *store = c->thread->store;
	const struct memc_word *key = &command->key;
	uint64_t now = memcached_now(c), expires = memcached_expires(c, command->exptime);
	int rc = expires > now ? store_expire(store, key->at, key->len, 0, expires, now)
			       : store_delete(store, key->at, key->len, 0, now);

	if (rc < 0)
		return rc;
	memcached_count(c, MEMCACHED_CMD_TOUCH);
	memcached_count(c, rc ? MEMCACHED_TOUCH_HITS : MEMCACHED_TOUCH_MISSES);
	memcached_tell(c, key, 0);
	return memcached_say(c, command, rc ? "TOUCHED" : "NOT_FOUND");
}
