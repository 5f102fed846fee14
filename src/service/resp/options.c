/*
 * options.c: on what condition a value is written or deleted, and how long it lives, as SET, GETEX, MSETEX and DELEX
 * are told; and the digest of a value, by which a condition may compare.
 */
#include "service/resp/keys.h"

#include <strings.h>
#include <xxhash.h>

#define DIGEST 16 /* hexadecimal digits */

static const struct row {
	const char *word;
	unsigned takers;
	enum resp_condition condition; /* of neither this nor the next: GET */
	enum resp_expiry expiry;
} rows[] = {
	{"nx", RESP_TAKER_SET | RESP_TAKER_MSETEX, .condition = RESP_NX},
	{"xx", RESP_TAKER_SET | RESP_TAKER_MSETEX, .condition = RESP_XX},
	{"ex", RESP_TAKER_SET | RESP_TAKER_GETEX | RESP_TAKER_MSETEX, .expiry = RESP_EX},
	{"px", RESP_TAKER_SET | RESP_TAKER_GETEX | RESP_TAKER_MSETEX, .expiry = RESP_PX},
	{"get", RESP_TAKER_SET},
	{"ifeq", RESP_TAKER_SET, .condition = RESP_IFEQ},
	{"ifne", RESP_TAKER_SET, .condition = RESP_IFNE},
	{"exat", RESP_TAKER_SET | RESP_TAKER_GETEX | RESP_TAKER_MSETEX, .expiry = RESP_EXAT},
	{"pxat", RESP_TAKER_SET | RESP_TAKER_GETEX | RESP_TAKER_MSETEX, .expiry = RESP_PXAT},
	{"ifdeq", RESP_TAKER_SET, .condition = RESP_IFDEQ},
	{"ifdne", RESP_TAKER_SET, .condition = RESP_IFDNE},
	{"persist", RESP_TAKER_GETEX, .expiry = RESP_PERSIST},
	{"keepttl", RESP_TAKER_SET | RESP_TAKER_MSETEX, .expiry = RESP_KEEPTTL},
};

static const struct row *row_find(const struct resp_arg *arg, enum resp_taker taker)
{
	for (const struct row *row = rows; row < rows + ARRAY_SIZE(rows); row++)
		if (row->takers & taker && resp_is(arg, row->word))
			return row;
	return NULL;
}

static bool has_time(enum resp_expiry expiry)
{
	return expiry >= RESP_EX && expiry <= RESP_PXAT;
}

bool resp_options_read(struct resp_options *options, enum resp_taker taker, const struct resp_arg *argv, unsigned argc)
{
	*options = (struct resp_options){0};
	for (unsigned i = 0; i < argc; i++) {
		const struct row *row = row_find(&argv[i], taker);

		if (!row || ((has_time(row->expiry) || row->condition > RESP_XX) && i + 1 == argc))
			return false;
		if (row->condition) {
			if (options->condition && options->condition != row->condition)
				return false;
			options->condition = row->condition;
			if (row->condition > RESP_XX)
				options->compare = &argv[++i];
		} else if (row->expiry) {
			if (options->expiry && options->expiry != row->expiry)
				return false;
			options->expiry = row->expiry;
			if (has_time(row->expiry))
				options->time = &argv[++i];
		} else {
			options->get = true;
		}
	}
	return true;
}

void resp_invalid_expire(struct resp_client *c)
{
	resp_error(c->out, "ERR invalid expire time in '%s' command", c->command->name);
}

bool resp_options_expires(struct resp_client *c, const struct resp_options *options, uint64_t *expires)
{
	bool seconds = options->expiry == RESP_EX || options->expiry == RESP_EXAT;
	bool from_now = options->expiry == RESP_EX || options->expiry == RESP_PX;
	int64_t at;

	*expires = TIME_NEVER;
	if (!has_time(options->expiry))
		return true;
	if (!resp_read_int64(options->time->at, options->time->len, &at)) {
		resp_not_an_integer(c);
		return false;
	}
	if (at <= 0 || __builtin_mul_overflow(at, seconds ? 1000 : 1, &at) ||
	    __builtin_add_overflow(at, from_now ? text_unix_ms() : 0, &at)) {
		resp_invalid_expire(c);
		return false;
	}
	*expires = text_expires_at(resp_now(c), at);
	return true;
}

static void digest_of(const struct resp_value *value, char out[DIGEST + 1])
{
	snprintf(out, DIGEST + 1, "%016llx", (unsigned long long)XXH3_64bits(value->at, value->len));
}

int resp_options_hold(struct resp_client *c, const struct resp_options *options, bool found,
		      const struct resp_value *value)
{
	const struct resp_arg *to = options->compare;
	char digest[DIGEST + 1];
	bool same;

	if (options->condition <= RESP_XX)
		return options->condition == RESP_ALWAYS || found == (options->condition == RESP_XX);
	if (!found)
		return options->condition == RESP_IFNE || options->condition == RESP_IFDNE;
	if (options->condition == RESP_IFEQ || options->condition == RESP_IFNE) {
		same = value->len == to->len && !memcmp(value->at, to->at, to->len);
		return same == (options->condition == RESP_IFEQ);
	}
	if (to->len != DIGEST) {
		resp_error(c->out, "ERR must be exactly %d hexadecimal characters", DIGEST);
		return -1;
	}
	digest_of(value, digest);
	same = !strncasecmp(digest, to->at, DIGEST);
	return same == (options->condition == RESP_IFDEQ);
}

int resp_do_digest(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	char digest[DIGEST + 1];
	int rc = resp_view_get(c, &argv[1], &value);

	if (rc < 0)
		return rc;
	if (!rc) {
		resp_null(c->out);
		return 0;
	}
	digest_of(&value, digest);
	resp_bulk(c->out, digest, DIGEST);
	return 0;
}

static int remove_key(struct resp_client *c, const struct resp_arg *key)
{
	int rc = resp_view_delete(c, key);

	if (rc < 0)
		return rc;
	resp_number(c->out, rc);
	return 0;
}

/* Nothing is looked at but the arguments' number where there is no such key. */
static int delete_if(struct resp_client *c, const struct resp_arg *key, const struct resp_options *options)
{
	struct resp_value value;
	int rc = resp_view_get(c, key, &value);

	if (rc < 0)
		return rc;
	if (rc && !options) {
		resp_error(c->out, "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
		return 0;
	}
	if (rc)
		rc = resp_options_hold(c, options, true, &value);
	if (rc > 0)
		return remove_key(c, key);
	if (!rc)
		resp_number(c->out, 0);
	return 0;
}

int resp_do_delifeq(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options = {.condition = RESP_IFEQ, .compare = &argv[2]};

	return delete_if(c, &argv[1], &options);
}

int resp_do_delex(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options;
	bool known;

	if (argc == 2)
		return remove_key(c, &argv[1]);
	if (argc != 4)
		return resp_bad_arity(c, c->command->name);
	known = resp_options_read(&options, RESP_TAKER_SET, argv + 2, 2) && options.condition > RESP_XX;
	return delete_if(c, &argv[1], known ? &options : NULL);
}
