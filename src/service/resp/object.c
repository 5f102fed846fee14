/* object.c: how a key is kept, and what it takes: OBJECT, MEMORY. The words are Redis's. */
#include "service/resp/keys.h"

#define EMBEDDED 44      /* bytes up to which Redis has a text in one piece with its header */
#define KEY_OVERHEAD 72u /* bytes beside key and value: store.h says what an item and its place in the index take */

static const char no_frequency[] =
	"ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching "
	"between policies at runtime LRU and LFU data will take some time to adjust.";

/* 1: there is such a key. 0: it was answered that there is none. */
static int look_up(struct resp_client *c, const struct resp_arg *key, struct resp_value *value)
{
	int rc = resp_view_stat(c, key, value);

	if (!rc)
		resp_null(c->out);
	return rc;
}

static int tell_number(struct resp_client *c, const struct resp_arg *key, int64_t number)
{
	struct resp_value value;
	int rc = look_up(c, key, &value);

	if (rc > 0)
		resp_number(c->out, number);
	return MIN(rc, 0);
}

int resp_do_object_encoding(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	int64_t number;
	int rc = look_up(c, &argv[2], &value);

	if (rc > 0 && (value.len < RESP_INT64 || value.type == STORE_HASH))
		rc = resp_view_get_any(c, &argv[2], &value);
	if (rc <= 0)
		return rc;
	if (value.type == STORE_HASH)
		resp_bulk_text(c->out, resp_hash_is_small(&value) ? "listpack" : "hashtable");
	else if (value.len < RESP_INT64 && resp_read_int64(value.at, value.len, &number))
		resp_bulk_text(c->out, "int");
	else
		resp_bulk_text(c->out, value.len <= EMBEDDED ? "embstr" : "raw");
	return 0;
}

/* The store does not keep when a key was used last. */
int resp_do_object_idletime(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_number(c, &argv[2], 0);
}

int resp_do_object_freq(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	int rc = look_up(c, &argv[2], &value);

	if (rc > 0)
		resp_error(c->out, "%s", no_frequency);
	return MIN(rc, 0);
}

int resp_do_object_refcount(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_number(c, &argv[2], 1);
}

int resp_do_object_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"ENCODING <key>",
		"    Return the kind of internal representation used in order to store the value",
		"    associated with a <key>.",
		"FREQ <key>",
		"    Return the access frequency index of the <key>. The returned integer is",
		"    proportional to the logarithm of the recent access frequency of the key.",
		"IDLETIME <key>",
		"    Return the idle time of the <key>, that is the approximated number of",
		"    seconds elapsed since the last access to the key.",
		"REFCOUNT <key>",
		"    Return the number of references of the value associated with the specified",
		"    <key>.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}

int resp_do_memory_usage(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value value;
	int64_t samples;
	int rc;

	for (unsigned i = 3; i < argc; i += 2) {
		if (!resp_is(&argv[i], "samples") || i + 1 == argc)
			return resp_syntax_error(c);
		if (!resp_read_int64(argv[i + 1].at, argv[i + 1].len, &samples))
			return resp_not_an_integer(c);
		if (samples < 0)
			return resp_syntax_error(c);
	}
	rc = look_up(c, &argv[2], &value);
	if (rc > 0)
		resp_number(c->out, (int64_t)(argv[2].len + value.len + KEY_OVERHEAD));
	return MIN(rc, 0);
}

int resp_do_memory_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"DOCTOR",
		"    Return memory problems reports.",
		"STATS",
		"    Return information about the memory usage of the server.",
		"USAGE <key> [SAMPLES <count>]",
		"    Return memory in bytes used by <key> and its value. Nested values are",
		"    sampled up to <count> times (default: 5, 0 means sample all).",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}
