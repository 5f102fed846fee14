/* walk.c: list keys, find the large ones, delete all. A walk may meet a key twice when others write. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <stdlib.h>
#include <unistd.h>

#define TOP_MAX 10000

static bool details, null, yes;
static uint64_t limit, top = 10;

static const struct ctl_option list_options[] = {
	{"long", 'l', CTL_FLAG, &details, NULL, "bytes, version and time left in front of each key"},
	{"null", '0', CTL_FLAG, &null, NULL, "end each with a 0 byte instead of a line feed"},
	{"limit", 'n', CTL_NUMBER, &limit, "N", "not more than N keys", .min = 1, .max = INT64_MAX},
	{NULL},
};

static const struct ctl_option bigkeys_options[] = {
	{"top", 'n', CTL_NUMBER, &top, "N", "how many; default 10", .min = 1, .max = TOP_MAX},
	{NULL},
};

static const struct ctl_option flush_options[] = {
	{"yes", 'y', CTL_FLAG, &yes, NULL, "do not ask"},
	{NULL},
};

#define STOP 1 /* of a callback: enough */

/* Walk over all keys with the prefix that was given. An exit status. */
static int walk_keys(void *kv, const struct ctl_arguments *arguments, kv_scan_callback each, void *arg)
{
	const char *prefix = arguments->count ? arguments->text[0] : "";
	int rc = kv_each(kv, prefix, strlen(prefix), each, arg);

	if (rc == -EINTR)
		return CTL_INTERRUPTED;
	if (ferror(stdout))
		return CTL_FAILED; /* ctl_output_end() says why */
	return rc < 0 ? ctl_fail(rc, NULL, "%s", ctl_command_name()) : CTL_OK;
}

/*
 * list. Keys are printed as they come, in JSON too: there may be more of them than memory.
 */
struct listing {
	uint64_t count;
	bool more; /* than --limit lets through */
};

static void print_entry_json(const struct listing *l, const void *key, size_t key_len, const struct kv_meta *meta)
{
	json_t *o = json_object();

	ctl_json_set_bytes(o, "key", key, key_len);
	json_object_set_new(o, "value_bytes", json_integer((json_int_t)meta->length));
	json_object_set_new(o, "version", json_integer((json_int_t)meta->version));
	json_object_set_new(o, "ttl_us", ctl_kv_ttl_json(meta->ttl_us));
	if (l->count)
		fputs(",\n", stdout);
	ctl_put_json(stdout, o);
	json_decref(o);
}

static int list_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct listing *l = arg;
	char ttl[32];

	if (ctl_interrupted())
		return -EINTR;
	if (limit && l->count == limit) {
		l->more = true;
		return STOP;
	}
	if (ctl.json) {
		print_entry_json(l, key, key_len, meta);
	} else {
		if (details)
			printf("%12llu %12llu %14s  ", (unsigned long long)meta->length,
			       (unsigned long long)meta->version, ctl_kv_ttl_text(meta->ttl_us, ttl));
		ctl_put_key(key, key_len);
		putchar(null ? '\0' : '\n');
		ctl_record_end();
	}
	if (ferror(stdout))
		return ctl_interrupted() ? -EINTR : -EIO;
	/* Only JSON tells whether there is one more, for which the rest of a large store may have to be walked. */
	return ++l->count == limit && !ctl.json ? STOP : 0;
}

/* Print the object up to its array, which print_entry_json() continues. */
static int begin_list_json(const void *kv)
{
	json_t *o = ctl_kv_describe(kv, NULL);
	char *text = json_dumps(o, JSON_COMPACT);

	json_decref(o);
	if (!text)
		return CTL_FAILED;
	printf("%.*s,\"keys\":[", (int)strlen(text) - 1, text);
	free(text);
	return CTL_OK;
}

/* Print what follows the array. */
static void end_list_json(const struct listing *l, int rc)
{
	json_t *o = json_pack("{s:I, s:b}", "count", (json_int_t)l->count, "complete", rc == CTL_OK && !l->more);
	char *text;

	if (rc != CTL_OK)
		json_object_set_new(o, "error", ctl_json_error(rc));
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	printf("],%s\n", text ? text + 1 : "}");
	free(text);
}

static int command_list(const struct ctl_arguments *arguments)
{
	struct listing l = {0};
	void *kv;
	int rc;

	ctl_catch_interrupt();
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		return rc;
	if (ctl.json)
		rc = begin_list_json(kv);
	if (rc == CTL_OK)
		rc = walk_keys(kv, arguments, list_key, &l);
	if (ctl.json)
		end_list_json(&l, rc);
	if (ctl_sums_up() && !ctl.json)
		ctl_say("%s: %llu key%s, transport %s", ctl.host, (unsigned long long)l.count, CTL_S(l.count),
			kv_transport(kv));
	kv_close(kv);
	return rc;
}

/*
 * bigkeys
 */
struct big {
	uint64_t length;
	size_t key_len;
	char *key;
};

struct bigs {
	struct big *big; /* the largest so far, in descending order; room for `top` */
	size_t count;
	struct ctl_progress progress;
};

static int bigs_insert(struct bigs *b, const void *key, size_t key_len, uint64_t length)
{
	struct big new = {.length = length, .key_len = key_len, .key = malloc(key_len)};
	size_t at = b->count;

	if (!new.key)
		return -ENOMEM;
	memcpy(new.key, key, key_len);
	if (b->count == top)
		free(b->big[--at].key);
	else
		b->count++;
	for (; at && b->big[at - 1].length < length; at--)
		b->big[at] = b->big[at - 1];
	b->big[at] = new;
	return 0;
}

static int weigh_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct bigs *b = arg;

	if (ctl_interrupted())
		return -EINTR;
	ctl_progress_add(&b->progress, meta->length);
	if (b->count == top && meta->length <= b->big[top - 1].length)
		return 0;
	for (size_t i = 0; i < b->count; i++)
		if (b->big[i].key_len == key_len && memcmp(b->big[i].key, key, key_len) == 0)
			return 0; /* met before */
	return bigs_insert(b, key, key_len, meta->length);
}

static void print_bigs(const void *kv, const struct bigs *b)
{
	json_t *o, *results;

	if (!ctl.json) {
		for (size_t i = 0; i < b->count; i++) {
			printf("%12llu  ", (unsigned long long)b->big[i].length);
			ctl_put_key(b->big[i].key, b->big[i].key_len);
			putchar('\n');
			ctl_record_end();
		}
		if (ctl_sums_up())
			ctl_say("%s: of %llu key%s with %llu byte%s of values, transport %s", ctl.host,
				(unsigned long long)b->progress.count, CTL_S(b->progress.count),
				(unsigned long long)b->progress.bytes, CTL_S(b->progress.bytes), kv_transport(kv));
		return;
	}
	results = json_array();
	for (size_t i = 0; i < b->count; i++) {
		o = json_pack("{s:I}", "value_bytes", (json_int_t)b->big[i].length);
		ctl_json_set_bytes(o, "key", b->big[i].key, b->big[i].key_len);
		json_array_append_new(results, o);
	}
	o = ctl_kv_describe(kv, NULL);
	json_object_set_new(o, "keys", json_integer((json_int_t)b->progress.count));
	json_object_set_new(o, "values_bytes", json_integer((json_int_t)b->progress.bytes));
	json_object_set_new(o, "interrupted", json_boolean(ctl_interrupted()));
	json_object_set_new(o, "results", results);
	ctl_json_print(o);
}

static int command_bigkeys(const struct ctl_arguments *arguments)
{
	struct bigs b = {.big = calloc(top, sizeof(*b.big))};
	void *kv;
	int rc;

	if (!b.big)
		return CTL_FAILED;
	ctl_catch_interrupt();
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		goto free_bigs;
	ctl_progress_begin(&b.progress, "keys");
	rc = walk_keys(kv, arguments, weigh_key, &b);
	ctl_progress_end(&b.progress);
	print_bigs(kv, &b);
	kv_close(kv);
free_bigs:
	for (size_t i = 0; i < b.count; i++)
		free(b.big[i].key);
	free(b.big);
	return rc;
}

/*
 * flush
 */
static bool flush_confirmed(void *kv, const char *prefix)
{
	struct kv_info info;
	char keys[32] = "";

	if (prefix)
		return ctl_confirmed("delete all keys of %s that begin with \"%.200s\", whoever stored them?", ctl.host,
				     prefix);
	if (kv_info(kv, &info) == 0)
		snprintf(keys, sizeof(keys), "%llu ", (unsigned long long)info.keys);
	return ctl_confirmed("delete all %skeys of %s, whoever stored them?", keys, ctl.host);
}

static int command_flush(const struct ctl_arguments *arguments)
{
	const char *prefix = arguments->count ? arguments->text[0] : NULL;
	uint64_t deleted;
	json_t *o;
	void *kv;
	int rc;

	if (prefix && !*prefix)
		return ctl_usage_error("kv flush: the prefix is empty; to delete all keys: kv flush");
	if (!yes && !isatty(STDIN_FILENO))
		return ctl_usage_error("kv flush: there is no terminal to ask; to delete all keys: kv flush --yes");
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		return rc;
	if (!yes && !flush_confirmed(kv, prefix)) {
		ctl_say("kv flush: nothing was deleted");
		kv_close(kv);
		return CTL_FAILED;
	}
	rc = prefix ? kv_delete_prefix(kv, prefix, strlen(prefix), &deleted) : kv_delete_all(kv, &deleted);
	if (rc != 0) {
		rc = ctl_fail(rc, NULL, "kv flush");
	} else if (ctl.json) {
		o = ctl_kv_describe(kv, NULL);
		json_object_set_new(o, "deleted", json_integer((json_int_t)deleted));
		rc = ctl_json_print(o);
	} else if (!ctl.quiet) {
		ctl_say("%s: %llu key%s deleted, transport %s", ctl.host, (unsigned long long)deleted, CTL_S(deleted),
			kv_transport(kv));
	}
	kv_close(kv);
	return rc;
}

const struct ctl_command ctl_kv_walk_commands[] = {
	{"kv list", command_list, "[PREFIX]", "list the keys", list_options, 0, 1},
	{"kv bigkeys", command_bigkeys, "[PREFIX]", "find the largest values", bigkeys_options, 0, 1},
	{"kv flush", command_flush, "[PREFIX]", "delete all keys, or those that begin so", flush_options, 0, 1},
	{NULL},
};
