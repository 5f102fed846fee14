/* keys.c: commands on keys of any type: deletion, times to live, other names. */
#include "service/resp/keys.h"

static int count_keys(struct resp_client *c, const struct resp_arg *argv, unsigned argc, bool delete)
{
	struct resp_value value;
	int64_t counted = 0;
	int rc;

	for (unsigned i = 1; i < argc; i++) {
		rc = delete ? resp_view_delete(c, &argv[i]) : resp_view_stat(c, &argv[i], &value);
		if (rc < 0)
			return rc;
		counted += rc;
	}
	resp_number(c->out, counted);
	return 0;
}

int resp_do_del(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return count_keys(c, argv, argc, true);
}

int resp_do_unlink(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return count_keys(c, argv, argc, true);
}

int resp_do_exists(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return count_keys(c, argv, argc, false);
}

int resp_do_touch(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return count_keys(c, argv, argc, false);
}

int resp_do_type(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	int rc = resp_view_stat(c, &argv[1], &value);

	if (rc < 0)
		return rc;
	resp_simple(c->out, !rc ? "none" : value.type == STORE_HASH ? "hash" : "string");
	return 0;
}

/*
 * Times to live.
 */
enum expire_flag { EXPIRE_NX = 1, EXPIRE_XX = 2, EXPIRE_GT = 4, EXPIRE_LT = 8 };

/* False: an option is none, or excludes another one, which was answered. */
static bool expire_flags(struct resp_client *c, const struct resp_arg *argv, unsigned argc, unsigned *flags)
{
	static const char *const words[] = {"nx", "xx", "gt", "lt"};

	*flags = 0;
	for (unsigned i = 0; i < argc; i++) {
		unsigned at = 0;

		while (at < ARRAY_SIZE(words) && !resp_is(&argv[i], words[at]))
			at++;
		if (at == ARRAY_SIZE(words)) {
			resp_error(c->out, "ERR Unsupported option %.*s", (int)MIN(argv[i].len, INT32_MAX), argv[i].at);
			return false;
		}
		*flags |= 1u << at;
	}
	if (*flags & EXPIRE_NX && *flags != EXPIRE_NX)
		resp_error(c->out, "ERR NX and XX, GT or LT options at the same time are not compatible");
	else if (*flags & EXPIRE_GT && *flags & EXPIRE_LT)
		resp_error(c->out, "ERR GT and LT options at the same time are not compatible");
	else
		return true;
	return false;
}

/* Whether a key that expires at `now_at` (INT64_MAX: never) may expire at `at`. */
static bool expire_may(unsigned flags, int64_t now_at, int64_t at)
{
	bool forever = now_at == INT64_MAX;

	return !(flags & EXPIRE_NX && !forever) && !(flags & EXPIRE_XX && forever) &&
	       !(flags & EXPIRE_GT && (forever || at <= now_at)) && !(flags & EXPIRE_LT && !forever && at >= now_at);
}

static int expire_key(struct resp_client *c, const struct resp_arg *argv, unsigned argc, int64_t unit, int64_t base)
{
	struct resp_value value;
	unsigned flags;
	int64_t at;
	int rc;

	if (!expire_flags(c, argv + 3, argc - 3, &flags))
		return 0;
	if (!resp_read_int64(argv[2].at, argv[2].len, &at))
		return resp_not_an_integer(c);
	if (__builtin_mul_overflow(at, unit, &at) || __builtin_add_overflow(at, base, &at)) {
		resp_invalid_expire(c);
		return 0;
	}
	rc = resp_view_stat(c, &argv[1], &value);
	if (rc < 0)
		return rc;
	if (rc && expire_may(flags, value.expires == TIME_NEVER ? INT64_MAX : text_unix_of(value.expires), at))
		rc = resp_view_expire(c, &argv[1], text_expires_at(resp_now(c), at));
	else
		rc = 0;
	if (rc < 0)
		return rc;
	resp_number(c->out, rc);
	return 0;
}

int resp_do_expire(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return expire_key(c, argv, argc, 1000, text_unix_ms());
}

int resp_do_pexpire(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return expire_key(c, argv, argc, 1, text_unix_ms());
}

int resp_do_expireat(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return expire_key(c, argv, argc, 1000, 0);
}

int resp_do_pexpireat(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return expire_key(c, argv, argc, 1, 0);
}

static int tell_expiry(struct resp_client *c, const struct resp_arg *key, int64_t base, bool seconds)
{
	struct resp_value value;
	int rc = resp_view_stat(c, key, &value);
	int64_t ms;

	if (rc < 0)
		return rc;
	if (!rc || value.expires == TIME_NEVER) {
		resp_number(c->out, rc ? -1 : -2);
		return 0;
	}
	ms = MAX(text_unix_of(value.expires) - base, 0);
	resp_number(c->out, seconds ? (ms + 500) / 1000 : ms);
	return 0;
}

int resp_do_ttl(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_expiry(c, &argv[1], text_unix_ms(), true);
}

int resp_do_pttl(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_expiry(c, &argv[1], text_unix_ms(), false);
}

int resp_do_expiretime(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_expiry(c, &argv[1], 0, true);
}

int resp_do_pexpiretime(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_expiry(c, &argv[1], 0, false);
}

int resp_do_persist(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	int rc = resp_view_stat(c, &argv[1], &value);

	if (rc > 0 && value.expires == TIME_NEVER)
		rc = 0;
	if (rc > 0)
		rc = resp_view_expire(c, &argv[1], TIME_NEVER);
	if (rc < 0)
		return rc;
	resp_number(c->out, rc);
	return 0;
}

/*
 * Other names.
 */
static bool same_key(const struct resp_arg *one, const struct resp_arg *other)
{
	return one->len == other->len && !memcmp(one->at, other->at, one->len);
}

/* The value and its time to live under the key `to`, too. 1: it has them. 0: it was answered. */
static int copy_to(struct resp_client *c, const struct resp_arg *to, const struct resp_value *value)
{
	struct resp_put how = {.expires = value->expires, .type = value->type, .flags = value->flags};
	int rc;

	if (!resp_may_write(c, to, value->len))
		return 0;
	rc = resp_view_set(c, to, value->at, value->len, &how);
	return rc ? rc : 1;
}

static int rename_to(struct resp_client *c, const struct resp_arg *from, const struct resp_arg *to, bool if_absent)
{
	struct resp_value value, other;
	int rc = resp_view_get_any(c, from, &value);

	if (rc < 0)
		return rc;
	if (!rc) {
		resp_error(c->out, "ERR no such key");
		return 0;
	}
	rc = if_absent ? resp_view_stat(c, to, &other) : 0;
	if (rc < 0)
		return rc;
	if (!rc && !same_key(from, to)) {
		rc = copy_to(c, to, &value);
		if (rc <= 0)
			return rc;
		rc = resp_view_delete(c, from);
		if (rc < 0)
			return rc;
		rc = 0;
	}
	if (if_absent)
		resp_number(c->out, !rc);
	else
		resp_ok(c);
	return 0;
}

int resp_do_rename(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return rename_to(c, &argv[1], &argv[2], false);
}

int resp_do_renamenx(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return rename_to(c, &argv[1], &argv[2], true);
}

bool resp_database_fits(struct resp_client *c, const struct resp_arg *arg)
{
	int64_t database;

	if (!resp_read_int64(arg->at, arg->len, &database))
		resp_not_an_integer(c);
	else if (database < INT32_MIN || database > INT32_MAX)
		resp_error(c->out, "ERR value is out of range, value must between %d and %d", INT32_MIN, INT32_MAX);
	else if (database)
		resp_error(c->out, "ERR DB index is out of range");
	else
		return true;
	return false;
}

int resp_do_copy(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value, other;
	bool replace = false;
	int rc;

	for (unsigned i = 3; i < argc; i++) {
		if (resp_is(&argv[i], "replace"))
			replace = true;
		else if (!resp_is(&argv[i], "db") || i + 1 == argc)
			return resp_syntax_error(c);
		else if (!resp_database_fits(c, &argv[++i]))
			return 0;
	}
	if (same_key(&argv[1], &argv[2])) {
		resp_error(c->out, "ERR source and destination objects are the same");
		return 0;
	}
	rc = resp_view_get_any(c, &argv[1], &value);
	if (rc > 0 && !replace) {
		rc = resp_view_stat(c, &argv[2], &other);
		rc = rc < 0 ? rc : !rc;
	}
	if (rc > 0) {
		rc = copy_to(c, &argv[2], &value);
		if (!rc)
			return 0;
	}
	if (rc < 0)
		return rc;
	resp_number(c->out, rc);
	return 0;
}
