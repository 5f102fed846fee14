/* keys.c: many keys at once, numbers, versions, expiry. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <stdlib.h>

static uint64_t ttl;
static const char *file;

static const struct ctl_option mset_options[] = {
	{"ttl", 'T', CTL_TIME, &ttl, "TIME", "the keys expire after this", .min = TIME_US},
	{NULL},
};

static const struct ctl_option incr_options[] = {
	{"ttl", 'T', CTL_TIME, &ttl, "TIME", "a key that is made by this expires after it", .min = TIME_US},
	{NULL},
};

static const struct ctl_option cas_options[] = {
	{"file", 'f', CTL_TEXT, &file, "FILE", "take the value from a file; - is stdin", .choices = "@file"},
	{"ttl", 'T', CTL_TIME, &ttl, "TIME", "the key expires after this", .min = TIME_US},
	{NULL},
};

/*
 * mget. Large values come behind small ones, so the output waits until all are here.
 */
struct got {
	char *value; /* NULL: no such key, or an error */
	size_t len;
};

static void keep_got(void *arg, size_t index, int status, const void *value, size_t len)
{
	struct got *got = (struct got *)arg + index;

	if (status != 0)
		return;
	got->value = malloc(len + 1);
	got->len = len;
	if (got->value)
		memcpy(got->value, value, len);
}

static void print_got(const char *key, const struct got *got, json_t *results)
{
	json_t *o;

	if (results) {
		o = json_object();
		ctl_json_set_bytes(o, "key", key, strlen(key));
		json_object_set_new(o, "found", json_boolean(got->value));
		if (got->value) {
			json_object_set_new(o, "value_bytes", json_integer((json_int_t)got->len));
			ctl_json_set_bytes(o, "value", got->value, got->len);
		}
		json_array_append_new(results, o);
	} else if (got->value) {
		ctl_put_key(key, strlen(key));
		putchar(' ');
		ctl_put_value(got->value, got->len);
		putchar('\n');
	}
}

/* Print all; an exit status. */
static int print_all_got(const void *kv, const struct kv_item *items, const struct got *got, size_t count)
{
	json_t *o, *results = ctl.json ? json_array() : NULL;
	int rc = CTL_OK;

	for (size_t i = 0; i < count; i++)
		print_got(items[i].key, &got[i], results);
	if (results) {
		o = ctl_kv_describe(kv, NULL);
		json_object_set_new(o, "results", results);
		ctl_json_print(o);
	}
	for (size_t i = 0; i < count; i++) {
		const char *key = items[i].key;

		if (items[i].status == -ENOENT)
			ctl_say("kv mget: no such key: %.200s", key);
		else if (items[i].status != 0 || !got[i].value)
			ctl_say("kv mget %.200s: %s", key,
				items[i].status ? ctl_kv_status_text(items[i].status) : strerror(ENOMEM));
		else
			continue;
		rc = items[i].status == -ENOENT && rc != CTL_FAILED ? CTL_NOT_FOUND : CTL_FAILED;
	}
	if (rc == CTL_OK)
		ctl_say_transport(ctl.host, kv_transport(kv));
	return rc;
}

static int command_mget(const struct ctl_arguments *arguments)
{
	size_t count = (size_t)arguments->count;
	struct kv_item *items = calloc(count, sizeof(*items));
	struct got *got = calloc(count, sizeof(*got));
	int rc = CTL_FAILED, error;
	void *kv;

	if (!items || !got)
		goto free_all;
	for (size_t i = 0; i < count; i++)
		items[i] = (struct kv_item){.key = arguments->text[i], .key_len = strlen(arguments->text[i])};
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		goto free_all;
	error = kv_mget(kv, items, count, keep_got, got);
	if (error && !ctl_kv_status_final(error))
		rc = ctl_fail(error, NULL, "kv mget");
	else
		rc = print_all_got(kv, items, got, count);
	kv_close(kv);
free_all:
	for (size_t i = 0; got && i < count; i++)
		free(got[i].value);
	free(got);
	free(items);
	return rc;
}

/*
 * mset
 */
static int print_mset(const void *kv, const struct kv_item *items, size_t count)
{
	size_t failed = 0;
	json_t *o;

	for (size_t i = 0; i < count; i++) {
		if (items[i].status == 0)
			continue;
		failed++;
		ctl_say("kv mset %.200s: %s", (const char *)items[i].key, ctl_kv_status_text(items[i].status));
	}
	if (ctl.json) {
		o = ctl_kv_describe(kv, NULL);
		json_object_set_new(o, "stored", json_integer((json_int_t)(count - failed)));
		json_object_set_new(o, "failed", json_integer((json_int_t)failed));
		ctl_json_print(o);
	} else if (!ctl.quiet) {
		ctl_say("%s: %zu stored, %zu failed, transport %s", ctl.host, count - failed, failed, kv_transport(kv));
	}
	return failed ? CTL_FAILED : CTL_OK;
}

static int command_mset(const struct ctl_arguments *arguments)
{
	struct kv_put_options options = {.ttl_us = ttl / TIME_US};
	size_t count = (size_t)arguments->count / 2;
	struct kv_item *items;
	int rc, error;
	void *kv;

	if (arguments->count % 2)
		return ctl_usage_error("kv mset: %s has no value", arguments->text[arguments->count - 1]);
	items = calloc(count, sizeof(*items));
	rc = items ? ctl_kv_open(&kv) : CTL_FAILED;
	if (rc != 0)
		goto free_items;
	for (size_t i = 0; i < count; i++) {
		const char **pair = &arguments->text[2 * i];

		items[i] = (struct kv_item){
			.key = pair[0], .key_len = strlen(pair[0]), .value = pair[1], .value_len = strlen(pair[1])};
	}
	error = kv_mset(kv, items, count, &options);
	if (error && !ctl_kv_status_final(error))
		rc = ctl_fail(error, NULL, "kv mset");
	else
		rc = print_mset(kv, items, count);
	kv_close(kv);
free_items:
	free(items);
	return rc;
}

/*
 * incr, cas
 */
static int parse_signed(const char *text, int64_t *out)
{
	char *end;
	long long number;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno || end == text || *end || (*text != '-' && (*text < '0' || *text > '9')))
		return -EINVAL;
	*out = number;
	return 0;
}

static int command_incr(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0];
	int64_t delta = 1, number;
	uint64_t version;
	json_t *o;
	void *kv;
	int rc;

	if (arguments->count == 2 && parse_signed(arguments->text[1], &delta) != 0)
		return ctl_usage_error("kv incr: %s is not a whole number in 64 bits", arguments->text[1]);
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		return rc;
	rc = kv_count(kv, key, strlen(key), delta, ttl / TIME_US, &number, &version);
	if (rc != 0) {
		rc = ctl_kv_fail(rc, key);
	} else if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "number", json_integer(number));
		json_object_set_new(o, "version", json_integer((json_int_t)version));
		rc = ctl_json_print(o);
	} else {
		printf("%lld\n", (long long)number);
		ctl_say_transport(ctl.host, kv_transport(kv));
	}
	kv_close(kv);
	return rc;
}

static int print_cas(const void *kv, const char *key, int error, uint64_t version)
{
	int rc = CTL_OK;
	json_t *o;

	if (error == -ENOENT)
		return ctl_kv_missing(kv, key);
	if (error) /* first, as every other call of the library forgets why */
		rc = error == -ESTALE ? ctl_fail(error, "the key has another version", "kv cas %.200s", key)
				      : ctl_kv_fail(error, key);
	if (ctl.json && (error == 0 || error == -ESTALE || error == -EEXIST)) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "stored", json_boolean(error == 0));
		if (error == 0)
			json_object_set_new(o, "version", json_integer((json_int_t)version));
		ctl_json_print(o);
	}
	if (!error && !ctl.json) {
		printf("%llu\n", (unsigned long long)version);
		ctl_say_transport(ctl.host, kv_transport(kv));
	}
	return rc;
}

static int command_cas(const struct ctl_arguments *arguments)
{
	struct kv_put_options options = {.condition = KV_IF_VERSION, .ttl_us = ttl / TIME_US};
	const char *key = arguments->text[0], *value = NULL;
	uint64_t version = 0;
	char *owned;
	size_t len = 0;
	void *kv;
	int rc;

	if (units_parse_number(arguments->text[1], 0, UINT64_MAX, &options.version) != 0)
		return ctl_usage_error("kv cas: %s is not a version", arguments->text[1]);
	if (!options.version) /* none has it: there must be no such key */
		options.condition = KV_IF_ABSENT;
	rc = ctl_kv_take_value(arguments, 2, file, &value, &len, &owned);
	if (rc != 0)
		return rc;
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		goto free_value;
	rc = kv_put(kv, key, strlen(key), value, len, &options, &version);
	rc = print_cas(kv, key, rc, version);
	kv_close(kv);
free_value:
	free(owned);
	return rc;
}

/*
 * ttl, stat
 */
char *ctl_kv_ttl_text(uint64_t ttl_us, char buf[static 32])
{
	if (ttl_us)
		snprintf(buf, 32, "%.3f s", (double)ttl_us / 1e6);
	else
		strcpy(buf, "never");
	return buf;
}

json_t *ctl_kv_ttl_json(uint64_t ttl_us)
{
	return ttl_us ? json_integer((json_int_t)ttl_us) : json_null();
}

static int command_ttl(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0], *time = arguments->count == 2 ? arguments->text[1] : NULL;
	struct kv_meta meta;
	uint64_t ns = 0;
	char text[32];
	json_t *o;
	void *kv;
	int rc;

	if (time && strcmp(time, "never") != 0 && units_parse_time(time, &ns) == 0 && ns < TIME_US)
		return ctl_usage_error("kv ttl: %s: the least is 1us", time);
	if (time && strcmp(time, "never") != 0 && !ns)
		return ctl_usage_error("kv ttl: %s: not a time like 500ms, 1.5s or 1h, nor \"never\"", time);
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		return rc;
	if (time) {
		meta.ttl_us = ns / TIME_US;
		rc = kv_expire(kv, key, strlen(key), meta.ttl_us);
		rc = rc == 0 ? -ENOENT : MIN(rc, 0);
	} else {
		rc = kv_stat(kv, key, strlen(key), &meta);
	}
	if (rc != 0) {
		rc = rc == -ENOENT ? ctl_kv_missing(kv, key) : ctl_kv_fail(rc, key);
	} else if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "ttl_us", ctl_kv_ttl_json(meta.ttl_us));
		rc = ctl_json_print(o);
	} else {
		puts(ctl_kv_ttl_text(meta.ttl_us, text));
		ctl_say_transport(ctl.host, kv_transport(kv));
	}
	kv_close(kv);
	return rc;
}

static int stat_key(void *kv, const char *key)
{
	static const char *const name[] = {[KV_STRING] = "string", [KV_HASH] = "hash"};
	struct kv_meta meta;
	char text[32], type[16];
	json_t *o;
	int rc = kv_stat(kv, key, strlen(key), &meta);
	uint32_t flags = 0;

	if (rc == 0)
		rc = kv_type(kv, key, strlen(key), &flags);
	if (rc == -ENOENT)
		return ctl_kv_missing(kv, key);
	if (rc < 0)
		return ctl_kv_fail(rc, key);
	if ((size_t)rc < ARRAY_SIZE(name))
		snprintf(type, sizeof(type), "%s", name[rc]);
	else
		snprintf(type, sizeof(type), "type %d", rc);
	if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "value_bytes", json_integer((json_int_t)meta.length));
		json_object_set_new(o, "version", json_integer((json_int_t)meta.version));
		json_object_set_new(o, "ttl_us", ctl_kv_ttl_json(meta.ttl_us));
		json_object_set_new(o, "type", json_string(type));
		json_object_set_new(o, "flags", json_integer(flags));
		return ctl_json_print(o);
	}
	printf("bytes    %llu\nversion  %llu\nttl      %s\n", (unsigned long long)meta.length,
	       (unsigned long long)meta.version, ctl_kv_ttl_text(meta.ttl_us, text));
	printf("type     %s\nflags    %u\n", type, flags);
	ctl_say_transport(ctl.host, kv_transport(kv));
	return CTL_OK;
}

static int stat_store(void *kv)
{
	struct kv_info i;
	json_t *o, *more;
	int rc = kv_info(kv, &i);

	if (rc != 0)
		return ctl_fail(rc, NULL, "kv stat");
	more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "keys", (json_int_t)i.keys, "used_bytes",
			 (json_int_t)i.bytes_used, "total_bytes", (json_int_t)i.bytes_total, "hits", (json_int_t)i.hits,
			 "misses", (json_int_t)i.misses, "evictions", (json_int_t)i.evictions, "expired",
			 (json_int_t)i.expired, "key_max_bytes", (json_int_t)i.key_max, "eager_max_bytes",
			 (json_int_t)i.eager_max, "value_max_bytes", (json_int_t)i.value_max);
	if (ctl.json) {
		o = ctl_kv_describe(kv, NULL);
		json_object_update(o, more);
		rc = ctl_json_print(o);
	} else {
		ctl_render(stdout, more);
		ctl_say_transport(ctl.host, kv_transport(kv));
	}
	json_decref(more);
	return rc;
}

static int command_stat(const struct ctl_arguments *arguments)
{
	void *kv;
	int rc = ctl_kv_open(&kv);

	if (rc != 0)
		return rc;
	rc = arguments->count ? stat_key(kv, arguments->text[0]) : stat_store(kv);
	kv_close(kv);
	return rc;
}

const struct ctl_command ctl_kv_keys_commands[] = {
	{"kv mget", command_mget, "KEY...", "write the values of some keys", NULL, 1, -1},
	{"kv mset", command_mset, "KEY VALUE...", "store some values", mset_options, 2, -1},
	{"kv incr", command_incr, "KEY [N]", "add to a number", incr_options, 1, 2},
	{"kv cas", command_cas, "KEY VERSION [VALUE|-]", "store a value if the key has this version", cas_options, 2,
	 3},
	{"kv ttl", command_ttl, "KEY [TIME|never]", "when a key expires; change that", NULL, 1, 2},
	{"kv stat", command_stat, "[KEY]", "length, version and ttl of a key; the store's figures", NULL, 0, 1},
	{NULL},
};
