/*
 * keys.h: the commands on strings and keys, and what their files share.
 *
 *   strings.c     whole values: GET, SET and their relatives
 *   parts.c       a part of a value, and values that are numbers
 *   options.c     conditions and times to live, as several commands take them; the digest of a value
 *   hash.c        hashes
 *   keys.c        keys of any type: deletion, times to live, other names
 *   object.c      what a key takes, and how it is kept
 *   walk.c        all keys
 */
#ifndef RDMAD_SERVICE_RESP_KEYS_H
#define RDMAD_SERVICE_RESP_KEYS_H

#include "service/resp/resp.h"

/* Whether a value of so many bytes may be written to this key; else it was answered. Asked before the first write of a
 * command, so that one with several keys writes all or none. */
bool resp_may_write(struct resp_client *c, const struct resp_arg *key, uint64_t len);

/* Whether Redis would keep a hash like this one as a listpack. */
bool resp_hash_is_small(const struct resp_value *value);
/* As Redis's strtoul(): nothing is 0, and a number with a minus is taken from 2^64. */
bool resp_read_cursor(const struct resp_arg *arg, uint64_t *cursor);

/* What SCAN and HSCAN are asked for. */
struct resp_scan {
	const struct resp_arg *pattern; /* NULL: all */
	int64_t most;                   /* from 1 on */
};

/* Options behind the cursor; out has the defaults before. `type`: NULL where there is no such option. False: it was
 * answered. */
bool resp_read_scan(struct resp_client *c, const struct resp_arg *argv, unsigned argc, struct resp_scan *out,
		    const struct resp_arg **type);
/* The sum as text, and its length. 0: there is none, which was answered; -EINVAL. */
int resp_add_float(struct resp_client *c, long double number, long double delta, char text[static RESP_LONG_DOUBLE]);

/*
 * options.c
 */
enum resp_condition { RESP_ALWAYS, RESP_NX, RESP_XX, RESP_IFEQ, RESP_IFNE, RESP_IFDEQ, RESP_IFDNE };
enum resp_expiry { RESP_FOREVER, RESP_EX, RESP_PX, RESP_EXAT, RESP_PXAT, RESP_KEEPTTL, RESP_PERSIST };

struct resp_options {
	enum resp_condition condition;
	enum resp_expiry expiry;
	const struct resp_arg *compare; /* of the four last conditions */
	const struct resp_arg *time;    /* of EX, PX, EXAT and PXAT */
	bool get;
};

/* Commands with options. */
enum resp_taker { RESP_TAKER_SET = 1u << 0, RESP_TAKER_GETEX = 1u << 1, RESP_TAKER_MSETEX = 1u << 2 };

/* All of these arguments are options of that command, none of which excludes another. One that is there twice counts
 * with its last argument. */
bool resp_options_read(struct resp_options *options, enum resp_taker taker, const struct resp_arg *argv, unsigned argc);
/* When what is written expires; at resp_now() or before: at once. False: the time is none, and it was answered. */
bool resp_options_expires(struct resp_client *c, const struct resp_options *options, uint64_t *expires);
/* Whether the condition holds for what was found: 1, 0, or -1: it makes no sense, which was answered. NX and XX do not
 * look at the value. */
int resp_options_hold(struct resp_client *c, const struct resp_options *options, bool found,
		      const struct resp_value *value);
void resp_invalid_expire(struct resp_client *c);

#endif
