/* parts.c: commands on a part of a value, and on values that are numbers. */
#include "service/resp/keys.h"

/* A part of a value is written: the rest of what it is stays. */
static struct resp_put put_kept(const struct resp_value *old)
{
	return (struct resp_put){.expires = TIME_NEVER, .keep_expiry = true, .flags = old->flags};
}

/* The value of the length of both, of which the first `len` bytes are those of `old`, then zeros. NULL: *rc, 0 where it
 * was answered. */
static char *longer_value(struct resp_client *c, const struct resp_arg *key, const struct resp_value *old, uint64_t len,
			  int *rc)
{
	const struct resp_put put = put_kept(old);
	char *at;

	*rc = 0;
	if (!resp_may_write(c, key, len))
		return NULL;
	at = resp_view_begin(c, key, len, &put, rc);
	if (!at)
		return NULL;
	if (old->len)
		memcpy(at, old->at, old->len);
	return at;
}

int resp_do_append(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value old = {0};
	int rc = resp_view_get(c, &argv[1], &old);
	uint64_t len;
	char *at;

	if (rc < 0)
		return rc;
	if (!rc)
		old.len = 0;
	len = old.len + argv[2].len;
	at = longer_value(c, &argv[1], &old, len, &rc);
	if (!at)
		return rc;
	memcpy(at + old.len, argv[2].at, argv[2].len);
	resp_number(c->out, (int64_t)len);
	return 0;
}

int resp_do_setrange(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct resp_arg *bytes = &argv[3];
	struct resp_value old = {0};
	uint64_t len;
	int64_t from;
	char *at;
	int rc;

	if (!resp_read_int64(argv[2].at, argv[2].len, &from))
		return resp_not_an_integer(c);
	if (from < 0) {
		resp_error(c->out, "ERR offset is out of range");
		return 0;
	}
	rc = resp_view_get(c, &argv[1], &old);
	if (rc < 0)
		return rc;
	if (!rc)
		old.len = 0;
	if (!bytes->len) {
		resp_number(c->out, (int64_t)old.len);
		return 0;
	}
	len = MAX(old.len, (uint64_t)from + bytes->len); /* of a number below 2^63 and one of at most 2^29 */
	at = longer_value(c, &argv[1], &old, len, &rc);
	if (!at)
		return rc;
	if ((uint64_t)from > old.len)
		memset(at + old.len, 0, (uint64_t)from - old.len);
	memcpy(at + from, bytes->at, bytes->len);
	resp_number(c->out, (int64_t)len);
	return 0;
}

int resp_do_getrange(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	int64_t from, to, len;
	int rc;

	if (!resp_read_int64(argv[2].at, argv[2].len, &from) || !resp_read_int64(argv[3].at, argv[3].len, &to))
		return resp_not_an_integer(c);
	rc = resp_view_get(c, &argv[1], &value);
	if (rc < 0)
		return rc;
	len = rc ? (int64_t)value.len : 0;
	if (!len || (from < 0 && to < 0 && from > to)) {
		resp_bulk(c->out, "", 0);
		return 0;
	}
	/* Those from the end, of which the ones before the beginning are the first byte. */
	from = from < 0 ? MAX(from + len, 0) : from;
	to = to < 0 ? MAX(to + len, 0) : MIN(to, len - 1);
	if (from > to) {
		resp_bulk(c->out, "", 0);
		return 0;
	}
	value.at += from;
	value.len = (size_t)(to - from + 1);
	resp_reply_value(c, &value);
	return 0;
}

int resp_do_substr(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return resp_do_getrange(c, argv, argc);
}

static int add_to_value(struct resp_client *c, const struct resp_arg *key, int64_t delta)
{
	char text[RESP_INT64];
	struct resp_value old;
	struct resp_put put;
	int64_t number = 0;
	int rc = resp_view_get(c, key, &old);

	if (rc < 0)
		return rc;
	if (rc && !resp_read_int64(old.at, old.len, &number))
		return resp_not_an_integer(c);
	if (__builtin_add_overflow(number, delta, &number)) {
		resp_error(c->out, "ERR increment or decrement would overflow");
		return 0;
	}
	if (!resp_may_write(c, key, RESP_INT64))
		return 0;
	put = put_kept(&old);
	rc = resp_view_set(c, key, text, (size_t)resp_write_int64(text, number), &put);
	if (!rc)
		resp_number(c->out, number);
	return rc;
}

int resp_do_incr(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return add_to_value(c, &argv[1], 1);
}

int resp_do_decr(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return add_to_value(c, &argv[1], -1);
}

int resp_do_incrby(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	int64_t delta;

	if (!resp_read_int64(argv[2].at, argv[2].len, &delta))
		return resp_not_an_integer(c);
	return add_to_value(c, &argv[1], delta);
}

int resp_do_decrby(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	int64_t delta;

	if (!resp_read_int64(argv[2].at, argv[2].len, &delta))
		return resp_not_an_integer(c);
	if (delta == INT64_MIN) {
		resp_error(c->out, "ERR decrement would overflow");
		return 0;
	}
	return add_to_value(c, &argv[1], -delta);
}

int resp_add_float(struct resp_client *c, long double number, long double delta, char text[static RESP_LONG_DOUBLE])
{
	int len;

	number += delta;
	if (__builtin_isnan(number) || __builtin_isinf(number)) {
		resp_error(c->out, "ERR increment would produce NaN or Infinity");
		return 0;
	}
	len = resp_write_long_double(text, number);
	return len < 0 ? -EINVAL : len;
}

int resp_do_incrbyfloat(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	char text[RESP_LONG_DOUBLE];
	long double number = 0, delta;
	struct resp_value old;
	struct resp_put put;
	int rc = resp_view_get(c, &argv[1], &old), len;

	if (rc < 0)
		return rc;
	if ((rc && !resp_read_long_double(old.at, old.len, &number)) ||
	    !resp_read_long_double(argv[2].at, argv[2].len, &delta))
		return resp_not_a_float(c);
	len = resp_add_float(c, number, delta, text);
	if (len <= 0)
		return len;
	if (!resp_may_write(c, &argv[1], (uint64_t)len))
		return 0;
	put = put_kept(&old);
	rc = resp_view_set(c, &argv[1], text, (size_t)len, &put);
	if (!rc)
		resp_bulk(c->out, text, (size_t)len);
	return rc;
}
