/*
 * walk.c: commands on all keys. Each has the store directly, in steps of some hundred keys, between which other
 * connections have their turn: what a command has by then hangs off its client (c->step), as it is called again from
 * its beginning. Within EXEC or a script it has no steps of its own, and goes to its end. A client is shown only keys
 * that it may read.
 */
#include "service/resp/keys.h"

#include <stdlib.h>

#define STEP 256              /* keys looked at in one call of the store: some ten microseconds under its locks */
#define STEP_CHARGE 32        /* as many short commands take as long as that */
#define FLUSH_CHARGE 128      /* and as a step of a delete-all */
#define SCAN_STEPS 64         /* of one SCAN, which may find no keys in them */
#define SCAN_MOST 8192        /* keys looked at for one SCAN, whatever its COUNT */
#define KEYS_MOST (256 * MIB) /* bytes of the answer to KEYS */
#define FLUSH_WITHIN (STORE_COMMIT_MAX / 2) /* keys that a transaction deletes */
#define RANDOM_TRIES 64                     /* keys drawn before one is found that the client may read */

#define ANY_TYPE (-1)
#define NO_TYPE (-2) /* that no key has */
#define ANY_SLOT (-1)

struct step {
	uint64_t cursor;
	bool done;
	struct resp_out found; /* the keys, as they will be answered */
	size_t count;
	size_t looked, most; /* keys that were looked at, and are to be */
	int type;            /* that keys are to have, an enum store_type; ANY_TYPE */
	int slot;            /* the same; ANY_SLOT */
	size_t found_most;   /* of a slot: keys that are answered, */
	bool counts;         /* or counted alone */
	size_t len;
	char page[64 * KIB]; /* lengths and keys as they come out of the store */
};
_Static_assert(sizeof(uint16_t) + STORE_KEY_MAX <= sizeof(((struct step *)0)->page), "any first key fits the page");

static void step_end(struct resp_client *c)
{
	struct step *step = c->step;

	free(step->found.at);
	free(step);
	c->step = NULL;
	c->step_end = NULL;
}

/* The step that is under way, or a new one; NULL: no memory. */
static struct step *step_of(struct resp_client *c)
{
	struct step *step = c->step;

	if (step)
		return step;
	step = malloc(sizeof(*step));
	if (!step)
		return NULL;
	memset(step, 0, offsetof(struct step, page));
	step->found.most = KEYS_MOST;
	step->most = SIZE_MAX;
	step->type = ANY_TYPE;
	step->slot = ANY_SLOT;
	c->step = step;
	c->step_end = step_end;
	return step;
}

bool resp_is_within(const struct resp_client *c)
{
	return resp_multi_open(c) || c->out != &c->thread->out;
}

/* Whether the command goes on now, or after the others. */
static bool may_go_on(const struct resp_client *c)
{
	return resp_is_within(c) || stream_time_left(c->stream);
}

/* An answer tells of all that there is. */
static void tells_all(struct resp_client *c)
{
	c->tells = MAX(c->tells, store_lsn(c->thread->store));
}

/* Whether a key is shown: one of a slot that was given away, and is not swept yet, or is on its way here, is not. */
static bool is_shown(const struct resp_client *c, const void *key, size_t len)
{
	const struct kv_view *view = c->thread->table;

	return likely(!view) || !kv_view_hides(view, key, len);
}

/* Under a stripe's lock: a key is copied, or it comes first the next time. */
static bool page_add(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	struct step *step = arg;
	uint16_t len = (uint16_t)key_len;

	if (step->looked == step->most || sizeof(len) + key_len > sizeof(step->page) - step->len)
		return false;
	step->looked++;
	if (step->type != ANY_TYPE && step->type != meta->type)
		return true;
	memcpy(step->page + step->len, &len, sizeof(len));
	memcpy(step->page + step->len + sizeof(len), key, key_len);
	step->len += sizeof(len) + key_len;
	return true;
}

/* A key is answered, if it matches (NULL: all do) and the client may read it. */
static void key_found(struct resp_client *c, struct step *step, const struct resp_arg *key,
		      const struct resp_arg *pattern)
{
	const struct auth_client *client = stream_client(c->stream);

	if (pattern && !resp_match(pattern->at, pattern->len, key->at, key->len, false))
		return;
	if (!auth_has_all(client) && !auth_may(client, AUTH_READ, key->at, key->len))
		return;
	if (!is_shown(c, key->at, key->len) ||
	    (step->slot != ANY_SLOT &&
	     ((int)cluster_slot(key->at, key->len) != step->slot || step->count == step->found_most)))
		return;
	if (!step->counts)
		resp_bulk(&step->found, key->at, key->len);
	step->count++;
}

/* The next key of the page, behind *at; false: there is none. */
static bool page_next(const struct step *step, size_t *at, struct resp_arg *key)
{
	uint16_t len;

	if (*at == step->len)
		return false;
	memcpy(&len, step->page + *at, sizeof(len));
	*key = (struct resp_arg){step->page + *at + sizeof(len), len};
	*at += sizeof(len) + len;
	return true;
}

/* The next keys of the store go to the page. */
static void page_fill(struct resp_client *c, struct step *step)
{
	size_t before = step->looked;

	step->len = 0;
	store_scan(c->thread->store, &step->cursor, STEP, NULL, 0, resp_now(c), page_add, step);
	step->done = !step->cursor;
	if (step->looked == step->most)
		stream_charge(c->stream, (unsigned)((step->looked - before) * STEP_CHARGE / STEP) + 1);
	else
		stream_charge(c->stream, STEP_CHARGE);
}

/* The next keys; behind the last of the store the keys that are written and not in it yet. */
static void step_on(struct resp_client *c, struct step *step, const struct resp_arg *pattern)
{
	struct resp_value value;
	struct resp_arg key;
	unsigned changed = 0;
	bool there;

	page_fill(c, step);
	for (size_t at = 0; page_next(step, &at, &key);)
		if (!resp_view_changes(c, &key))
			key_found(c, step, &key, pattern);
	while (step->done && resp_view_next(c, &changed, &key, &there))
		if (there &&
		    (step->type == ANY_TYPE || (resp_view_stat(c, &key, &value) == 1 && value.type == step->type)))
			key_found(c, step, &key, pattern);
}

static const struct resp_arg *pattern_of(const struct resp_arg *arg)
{
	return arg->len == 1 && arg->at[0] == '*' ? NULL : arg;
}

int resp_do_keys(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct step *step = step_of(c);

	if (!step)
		return -ENOMEM;
	do {
		step_on(c, step, pattern_of(&argv[1]));
	} while (!step->done && !step->found.failed && may_go_on(c));
	if (!step->done && !step->found.failed)
		return -EAGAIN;
	if (step->found.failed) {
		resp_error(c->out, "ERR the keys take more than %llu bytes or all memory: use SCAN", KEYS_MOST);
	} else {
		resp_array(c->out, step->count);
		resp_raw(c->out, step->found.at, step->found.len);
		tells_all(c);
	}
	step_end(c);
	return 0;
}

bool resp_read_cursor(const struct resp_arg *arg, uint64_t *cursor)
{
	size_t sign = arg->len > 1 && (arg->at[0] == '-' || arg->at[0] == '+');

	*cursor = 0;
	for (size_t i = sign; i < arg->len; i++) {
		unsigned digit = (unsigned char)arg->at[i] - (unsigned)'0';

		if (digit > 9 || __builtin_mul_overflow(*cursor, 10, cursor) ||
		    __builtin_add_overflow(*cursor, digit, cursor))
			return false;
	}
	if (sign && arg->at[0] == '-')
		*cursor = -*cursor;
	return true;
}

bool resp_read_scan(struct resp_client *c, const struct resp_arg *argv, unsigned argc, struct resp_scan *out,
		    const struct resp_arg **type)
{
	for (unsigned i = 0; i < argc; i += 2) {
		if (i + 1 < argc && resp_is(&argv[i], "match")) {
			out->pattern = pattern_of(&argv[i + 1]);
		} else if (i + 1 < argc && type && resp_is(&argv[i], "type")) {
			*type = &argv[i + 1];
		} else if (i + 1 == argc || !resp_is(&argv[i], "count")) {
			resp_syntax_error(c);
			return false;
		} else if (!resp_read_int64(argv[i + 1].at, argv[i + 1].len, &out->most)) {
			resp_not_an_integer(c);
			return false;
		} else if (out->most < 1) {
			resp_syntax_error(c);
			return false;
		}
	}
	return true;
}

static int type_of(const struct resp_arg *name)
{
	if (!name)
		return ANY_TYPE;
	return resp_is(name, "string") ? STORE_STRING : resp_is(name, "hash") ? STORE_HASH : NO_TYPE;
}

int resp_do_scan(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_scan scan = {.most = 10};
	const struct resp_arg *type = NULL;
	uint64_t cursor;
	struct step *step;

	if (!resp_read_cursor(&argv[1], &cursor)) {
		resp_error(c->out, "ERR invalid cursor");
		return 0;
	}
	if (!resp_read_scan(c, argv + 2, argc - 2, &scan, &type))
		return 0;
	step = step_of(c);
	if (!step)
		return -ENOMEM;
	step->cursor = cursor;
	step->type = type_of(type);
	step->most = (size_t)MIN(scan.most, SCAN_MOST);
	for (unsigned i = 0; i < SCAN_STEPS && !step->done && step->looked < step->most; i++)
		step_on(c, step, scan.pattern);
	if (!step->found.failed) {
		char text[RESP_INT64];

		resp_array(c->out, 2);
		resp_bulk(c->out, text, (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)step->cursor));
		resp_array(c->out, step->count);
		resp_raw(c->out, step->found.at, step->found.len);
		tells_all(c);
	}
	cursor = step->found.failed;
	step_end(c);
	return cursor ? -ENOMEM : 0;
}

/* The keys of a slot, counted, or as many of them as are asked for. */
int resp_keys_in_slot(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	int64_t slot, most = INT64_MAX;
	struct step *step;

	if (!resp_read_int64(argv[2].at, argv[2].len, &slot) ||
	    (argc == 4 && !resp_read_int64(argv[3].at, argv[3].len, &most)))
		return resp_not_an_integer(c);
	if (slot < 0 || slot >= CLUSTER_SLOTS || most < 0) {
		resp_error(c->out, "ERR Invalid slot or number of keys");
		return 0;
	}
	step = step_of(c);
	if (!step)
		return -ENOMEM;
	step->slot = (int)slot;
	step->found_most = (size_t)most;
	step->counts = argc == 3;
	while (!step->done && !step->found.failed && step->count < step->found_most) {
		step_on(c, step, NULL);
		if (!step->done && !resp_is_within(c) && !stream_time_left(c->stream))
			return -EAGAIN;
	}
	if (step->found.failed) {
		resp_error(c->out, "ERR the keys take more than %llu bytes or all memory", KEYS_MOST);
	} else if (step->counts) {
		resp_number(c->out, (int64_t)step->count);
		tells_all(c);
	} else {
		resp_array(c->out, step->count);
		resp_raw(c->out, step->found.at, step->found.len);
		tells_all(c);
	}
	step_end(c);
	return 0;
}

/* The first of the keys that are written and not in the store yet. */
static void tell_written(struct resp_client *c)
{
	struct resp_arg key;
	unsigned changed = 0;
	bool there = false;

	while (!there && resp_view_next(c, &changed, &key, &there))
		;
	if (there)
		resp_bulk(c->out, key.at, key.len);
	else
		resp_null(c->out);
}

int resp_do_randomkey(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct auth_client *client = stream_client(c->stream);
	char drawn[STORE_KEY_MAX];
	struct resp_arg key = {.at = drawn};
	uint64_t random;
	int rc;

	tells_all(c);
	for (unsigned i = 0; i < RANDOM_TRIES; i++) {
		rc = random_fill(&random, sizeof(random));
		if (rc)
			return rc;
		key.len = store_random(c->thread->store, random, resp_now(c), drawn);
		if (!key.len)
			break;
		if (resp_view_changes(c, &key) || !is_shown(c, key.at, key.len))
			continue;
		if (auth_has_all(client) || auth_may(client, AUTH_READ, key.at, key.len)) {
			resp_bulk(c->out, key.at, key.len);
			return 0;
		}
	}
	tell_written(c);
	return 0;
}

int resp_do_dbsize(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct store_stats stats;
	struct store_meta meta;
	struct resp_arg key;
	unsigned changed = 0;
	int64_t keys;
	bool there;

	store_get_stats(c->thread->store, &stats);
	keys = (int64_t)stats.items;
	while (resp_view_next(c, &changed, &key, &there))
		keys += there - store_stat(c->thread->store, key.at, key.len, resp_now(c), &meta);
	resp_number(c->out, MAX(keys, 0));
	tells_all(c);
	return 0;
}

/* A delete-all as a part of the changes of a transaction: each key by itself. */
static int flush_within(struct resp_client *c)
{
	struct store_stats stats;
	struct resp_arg key;
	uint64_t cursor = 0;
	unsigned changed = 0;
	bool there;
	int rc = 0;

	store_get_stats(c->thread->store, &stats);
	if (stats.items > FLUSH_WITHIN) {
		resp_error(c->out,
			   "ERR %llu keys are too many to be deleted in a transaction, %u at most: FLUSHALL by itself "
			   "has no limit",
			   (unsigned long long)stats.items, FLUSH_WITHIN);
		return 0;
	}
	do {
		struct step *page = resp_view_keep(c, sizeof(*page)); /* the changes have its keys */

		if (!page)
			return -ENOMEM;
		memset(page, 0, offsetof(struct step, page));
		page->cursor = cursor;
		page->most = SIZE_MAX;
		page->type = ANY_TYPE;
		page_fill(c, page);
		cursor = page->cursor;
		for (size_t at = 0; rc >= 0 && page_next(page, &at, &key);)
			rc = is_shown(c, key.at, key.len) ? resp_view_delete(c, &key) : 0;
	} while (rc >= 0 && cursor);
	while (rc >= 0 && resp_view_next(c, &changed, &key, &there))
		rc = there ? resp_view_delete(c, &key) : 0;
	if (rc >= 0)
		resp_ok(c);
	return MIN(rc, 0);
}

static int flush_keys(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct step *step;
	uint64_t deleted;
	int rc;

	if (argc > 2 || (argc == 2 && !resp_is(&argv[1], "sync") && !resp_is(&argv[1], "async")))
		return resp_syntax_error(c);
	c->held = resp_is_within(c) ? c->thread->table && c->thread->table->sealed_until
				    : store_flushes_held(c->thread->store);
	if (resp_is_within(c) && c->held)
		return -EAGAIN; /* as the store says it of a whole one */
	if (resp_is_within(c))
		return flush_within(c);
	step = step_of(c);
	if (!step)
		return -ENOMEM;
	do {
		rc = store_flush_some(c->thread->store, &step->cursor, &deleted);
		stream_charge(c->stream, FLUSH_CHARGE);
	} while (!rc && step->cursor && stream_time_left(c->stream));
	if (rc == -EAGAIN || (!rc && step->cursor))
		return -EAGAIN;
	if (!rc) {
		resp_ok(c);
		tells_all(c);
	}
	step_end(c);
	return rc;
}

int resp_do_flushdb(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return flush_keys(c, argv, argc);
}

int resp_do_flushall(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return flush_keys(c, argv, argc);
}
