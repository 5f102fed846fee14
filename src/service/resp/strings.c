/* strings.c: commands that read or write whole values. */
#include "service/resp/keys.h"

bool resp_may_write(struct resp_client *c, const struct resp_arg *key, uint64_t len)
{
	if (key->len > STORE_KEY_MAX)
		resp_error(c->out, "ERR key is too long: %zu bytes, %d at most", key->len, STORE_KEY_MAX);
	else if (!key->len)
		resp_error(c->out, "ERR key is empty: it has 1 byte at least");
	else if (len > RESP_BULK_MAX)
		resp_error(c->out, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
	else if (len > c->thread->shared->kv->value_max)
		resp_reply_errno(c, -EFBIG);
	else
		return true;
	return false;
}

static int get_string(struct resp_client *c, const struct resp_arg *key)
{
	struct resp_value value;
	int rc = resp_view_get(c, key, &value);

	if (rc < 0)
		return rc;
	if (rc)
		resp_reply_value(c, &value);
	else
		resp_null(c->out);
	return 0;
}

int resp_do_get(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return get_string(c, &argv[1]);
}

int resp_do_strlen(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	int rc = resp_view_stat(c, &argv[1], &value);

	if (rc < 0)
		return rc;
	if (rc && value.type != STORE_STRING)
		return -EMEDIUMTYPE;
	resp_number(c->out, rc ? (int64_t)value.len : 0);
	return 0;
}

int resp_do_mget(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	int rc = 0;

	resp_array(c->out, argc - 1);
	for (unsigned i = 1; i < argc && !rc; i++) {
		rc = get_string(c, &argv[i]);
		if (rc != -EMEDIUMTYPE)
			continue;
		resp_null(c->out);
		rc = 0;
	}
	return rc;
}

/* One that expires at once is deleted: a later command does not find it, and it takes no memory until then. */
static int put_string(struct resp_client *c, const struct resp_arg *key, const struct resp_arg *value,
		      const struct resp_put *how)
{
	int rc;

	if (how->expires > resp_now(c))
		return resp_view_set(c, key, value->at, value->len, how);
	rc = resp_view_delete(c, key);
	return MIN(rc, 0);
}

/* What SET and its relatives have in common: 1, and nothing was answered yet, or 0: the condition does not hold, which
 * was not answered either; *answered: it was, or the old value. */
static int set_by_options(struct resp_client *c, const struct resp_arg *key, const struct resp_arg *value,
			  const struct resp_options *options, bool *answered)
{
	struct resp_put how = {.keep_expiry = options->expiry == RESP_KEEPTTL};
	struct resp_value old = {0};
	int rc = 0, holds;

	*answered = true;
	if (!resp_options_expires(c, options, &how.expires))
		return 0;
	if (options->get || options->condition > RESP_XX)
		rc = resp_view_get(c, key, &old);
	else if (options->condition)
		rc = resp_view_stat(c, key, &old);
	if (rc < 0)
		return rc;
	holds = resp_options_hold(c, options, rc, &old);
	if (holds < 0 || (holds && !resp_may_write(c, key, value->len)))
		return 0;
	*answered = options->get;
	if (options->get && rc)
		resp_reply_value(c, &old);
	else if (options->get)
		resp_null(c->out);
	if (!holds)
		return 0;
	rc = put_string(c, key, value, &how);
	return rc ? rc : 1;
}

static int set_or_null(struct resp_client *c, const struct resp_arg *key, const struct resp_arg *value,
		       const struct resp_options *options)
{
	bool answered;
	int rc = set_by_options(c, key, value, options, &answered);

	if (rc < 0)
		return rc;
	if (!answered && rc)
		resp_ok(c);
	else if (!answered)
		resp_null(c->out);
	return 0;
}

int resp_do_set(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options;

	if (!resp_options_read(&options, RESP_TAKER_SET, argv + 3, argc - 3))
		return resp_syntax_error(c);
	return set_or_null(c, &argv[1], &argv[2], &options);
}

int resp_do_setnx(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options = {.condition = RESP_NX};
	bool answered;
	int rc = set_by_options(c, &argv[1], &argv[2], &options, &answered);

	if (rc < 0)
		return rc;
	if (!answered)
		resp_number(c->out, rc);
	return 0;
}

int resp_do_setex(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options = {.expiry = RESP_EX, .time = &argv[2]};

	return set_or_null(c, &argv[1], &argv[3], &options);
}

int resp_do_psetex(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options = {.expiry = RESP_PX, .time = &argv[2]};

	return set_or_null(c, &argv[1], &argv[3], &options);
}

int resp_do_getset(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options = {.get = true};

	return set_or_null(c, &argv[1], &argv[2], &options);
}

int resp_do_getdel(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	int rc = get_string(c, &argv[1]);

	if (!rc)
		rc = resp_view_delete(c, &argv[1]);
	return MIN(rc, 0);
}

int resp_do_getex(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options;
	struct resp_value value;
	uint64_t expires;
	int rc;

	if (!resp_options_read(&options, RESP_TAKER_GETEX, argv + 2, argc - 2))
		return resp_syntax_error(c);
	rc = resp_view_get(c, &argv[1], &value);
	if (rc < 0)
		return rc;
	if (!rc) {
		resp_null(c->out);
		return 0;
	}
	if (!resp_options_expires(c, &options, &expires))
		return 0;
	resp_reply_value(c, &value);
	if (options.expiry && expires != value.expires)
		rc = resp_view_expire(c, &argv[1], expires);
	return MIN(rc, 0);
}

/* Pairs of a key and a value, all of which are written, or none. 1: they were. 0: the condition does not hold;
 * *answered: or a pair cannot be written. */
static int set_pairs(struct resp_client *c, const struct resp_arg *pairs, unsigned count,
		     const struct resp_options *options, bool *answered)
{
	struct resp_put how = {.keep_expiry = options->expiry == RESP_KEEPTTL};
	struct resp_value value;
	int rc = 0;

	*answered = true;
	if (!resp_options_expires(c, options, &how.expires))
		return 0;
	for (unsigned i = 0; i < count && options->condition; i++) {
		rc = resp_view_stat(c, &pairs[2 * i], &value);
		if (rc < 0)
			return rc;
		if (!resp_options_hold(c, options, rc, &value)) {
			*answered = false;
			return 0;
		}
	}
	for (unsigned i = 0; i < count; i++)
		if (!resp_may_write(c, &pairs[2 * i], pairs[2 * i + 1].len))
			return 0;
	*answered = false;
	for (unsigned i = 0; i < count; i++) {
		rc = put_string(c, &pairs[2 * i], &pairs[2 * i + 1], &how);
		if (rc)
			return rc;
	}
	return 1;
}

int resp_do_mset(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options = {0};
	bool answered;
	int rc;

	if (argc % 2 == 0)
		return resp_bad_arity(c, c->command->name);
	rc = set_pairs(c, argv + 1, argc / 2, &options, &answered);
	if (rc < 0)
		return rc;
	if (!answered)
		resp_ok(c);
	return 0;
}

static int set_pairs_if(struct resp_client *c, const struct resp_arg *pairs, unsigned count,
			const struct resp_options *options)
{
	bool answered;
	int rc = set_pairs(c, pairs, count, options, &answered);

	if (rc < 0)
		return rc;
	if (!answered)
		resp_number(c->out, rc);
	return 0;
}

int resp_do_msetnx(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options = {.condition = RESP_NX};

	if (argc % 2 == 0)
		return resp_bad_arity(c, c->command->name);
	return set_pairs_if(c, argv + 1, argc / 2, &options);
}

int resp_do_msetex(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_options options;
	int64_t count;

	if (!resp_read_int64(argv[1].at, argv[1].len, &count) || count <= 0 || count > INT32_MAX) {
		resp_error(c->out, "ERR invalid numkeys value");
		return 0;
	}
	if (count > (argc - 2) / 2) {
		resp_error(c->out, "ERR wrong number of key-value pairs");
		return 0;
	}
	if (!resp_options_read(&options, RESP_TAKER_MSETEX, argv + 2 + 2 * count, argc - 2 - 2 * (unsigned)count))
		return resp_syntax_error(c);
	return set_pairs_if(c, argv + 2, (unsigned)count, &options);
}
