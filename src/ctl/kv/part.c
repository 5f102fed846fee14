/* part.c: parts of values, and keys that are read and changed in one step. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <stdlib.h>

static bool stop;
static const char *file;

static const struct ctl_option value_options[] = {
	{"file", 'f', CTL_TEXT, &file, "FILE", "take the value from a file; - is stdin", .choices = "@file"},
	{NULL},
};

static const struct ctl_option mexists_options[] = {
	{"stop", 'x', CTL_FLAG, &stop, NULL, "ask for no more keys after the first that is missing"},
	{NULL},
};

/* Print what was read, and give it back. */
static int print_read(void *kv, const char *key, int error, void *value, size_t len)
{
	int rc;

	if (error == -ENOENT)
		return ctl_kv_missing(kv, key);
	if (error)
		return ctl_kv_fail(error, key);
	rc = ctl_kv_print_value(kv, key, value, len, 0);
	kv_release(value);
	return rc;
}

static int parse_bytes(const char *text, uint64_t *out)
{
	if (units_parse_size(text, out) == 0)
		return CTL_OK;
	return ctl_usage_error("%s: %s is not a number of bytes, such as 4096 or 64K", ctl_command_name(), text);
}

static int command_getrange(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0];
	uint64_t offset, want = UINT64_MAX;
	struct kv_meta meta;
	void *kv, *value = NULL;
	size_t len = 0;
	int rc = parse_bytes(arguments->text[1], &offset);

	if (rc == 0 && arguments->count == 3)
		rc = parse_bytes(arguments->text[2], &want);
	if (rc == 0)
		rc = ctl_kv_open(&kv);
	if (rc != 0)
		return rc;
	rc = kv_stat(kv, key, strlen(key), &meta);
	if (rc == 0)
		rc = kv_buffer_lend(kv, MAX(MIN(want, meta.length), 1u), &value);
	if (rc == 0) {
		rc = kv_get_range(kv, key, strlen(key), offset, value, MAX(MIN(want, meta.length), 1u), &len);
		if (rc != 0)
			kv_release(value);
	}
	rc = print_read(kv, key, rc, value, want ? len : 0);
	kv_close(kv);
	return rc;
}

/* `at`: where in the arguments the value is; offset NULL: at the end. */
static int write_part(const struct ctl_arguments *arguments, int at, const uint64_t *offset)
{
	const char *key = arguments->text[0], *value = NULL;
	uint64_t length = 0;
	char *owned;
	size_t len = 0;
	json_t *o;
	void *kv;
	int rc = ctl_kv_take_value(arguments, at, file, &value, &len, &owned);

	if (rc == 0)
		rc = ctl_kv_open(&kv);
	if (rc != 0)
		goto free_value;
	rc = offset ? kv_set_range(kv, key, strlen(key), *offset, value, len, &length)
		    : kv_append(kv, key, strlen(key), value, len, &length);
	if (rc != 0) {
		rc = ctl_kv_fail(rc, key);
	} else if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "value_bytes", json_integer((json_int_t)length));
		rc = ctl_json_print(o);
	} else {
		printf("%llu\n", (unsigned long long)length);
		ctl_say_transport(ctl.host, kv_transport(kv));
	}
	kv_close(kv);
free_value:
	free(owned);
	return rc;
}

static int command_append(const struct ctl_arguments *arguments)
{
	return write_part(arguments, 1, NULL);
}

static int command_setrange(const struct ctl_arguments *arguments)
{
	uint64_t offset;
	int rc = parse_bytes(arguments->text[1], &offset);

	return rc ? rc : write_part(arguments, 2, &offset);
}

static int command_getset(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0], *value = NULL;
	size_t len = 0, old_len;
	char *owned;
	void *kv, *old = NULL;
	int rc = ctl_kv_take_value(arguments, 1, file, &value, &len, &owned);

	if (rc == 0)
		rc = ctl_kv_open(&kv);
	if (rc != 0)
		goto free_value;
	rc = kv_get_set(kv, key, strlen(key), value, len, &old, &old_len);
	rc = print_read(kv, key, rc == 0 && !old ? -ENOENT : rc, old, old_len);
	kv_close(kv);
free_value:
	free(owned);
	return rc;
}

static int command_getdel(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0];
	void *kv, *value = NULL;
	size_t len = 0;
	int rc = ctl_kv_open(&kv);

	if (rc != 0)
		return rc;
	rc = kv_get_delete(kv, key, strlen(key), &value, &len);
	rc = print_read(kv, key, rc, value, len);
	kv_close(kv);
	return rc;
}

static int command_touch(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0], *time = arguments->text[1];
	void *kv, *value = NULL;
	uint64_t ns = 0;
	size_t len = 0;
	int rc;

	if (strcmp(time, "never") != 0 && (units_parse_time(time, &ns) != 0 || ns < TIME_US))
		return ctl_usage_error("kv touch: %s: not a time like 500ms, 1.5s or 1h, nor \"never\"", time);
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		return rc;
	rc = kv_get_touch(kv, key, strlen(key), ns / TIME_US, &value, &len);
	rc = print_read(kv, key, rc, value, len);
	kv_close(kv);
	return rc;
}

static int print_mexists(const void *kv, const struct kv_item *items, size_t count, uint64_t first)
{
	json_t *o, *keys = json_array();
	size_t asked = 0, there = 0;
	bool all;

	for (size_t i = 0; i < count && items[i].status != -ECANCELED; i++, asked++) {
		there += items[i].status == 0;
		if (!ctl.json) {
			ctl_put_key(items[i].key, items[i].key_len);
			puts(items[i].status == 0 ? " yes" : " no");
		}
		o = json_object();
		ctl_json_set_bytes(o, "key", items[i].key, items[i].key_len);
		json_object_set_new(o, "exists", json_boolean(items[i].status == 0));
		json_array_append_new(keys, o);
	}
	all = there == count && asked == count;
	if (ctl.json) {
		o = ctl_kv_describe(kv, NULL);
		json_object_set_new(o, "first_that_exist", json_integer((json_int_t)first));
		json_object_set(o, "results", keys);
		ctl_json_print(o);
	}
	if (ctl.json ? !all : ctl_sums_up())
		ctl_say("%s: the first %llu of %zu exist, transport %s", ctl.host, (unsigned long long)first, count,
			kv_transport(kv));
	json_decref(keys);
	return all ? CTL_OK : CTL_NOT_FOUND;
}

static int command_mexists(const struct ctl_arguments *arguments)
{
	size_t count = (size_t)arguments->count;
	struct kv_item *items = calloc(count, sizeof(*items));
	int64_t first;
	void *kv;
	int rc = items ? ctl_kv_open(&kv) : CTL_FAILED;

	if (rc != 0)
		goto free_items;
	for (size_t i = 0; i < count; i++)
		items[i] = (struct kv_item){.key = arguments->text[i], .key_len = strlen(arguments->text[i])};
	first = kv_mexists(kv, items, count, stop);
	rc = first < 0 ? ctl_fail((int)first, NULL, "kv mexists") : print_mexists(kv, items, count, (uint64_t)first);
	kv_close(kv);
free_items:
	free(items);
	return rc;
}

const struct ctl_command ctl_kv_part_commands[] = {
	{"kv append", command_append, "KEY [VALUE|-]", "write behind the end of a value; print its length",
	 value_options, 1, 2},
	{"kv getrange", command_getrange, "KEY OFFSET [BYTES]", "write a part of a value to stdout", NULL, 2, 3},
	{"kv setrange", command_setrange, "KEY OFFSET [VALUE|-]", "write into a value; print its length", value_options,
	 2, 3},
	{"kv getset", command_getset, "KEY [VALUE|-]", "store a value, and write the one before to stdout",
	 value_options, 1, 2},
	{"kv getdel", command_getdel, "KEY", "delete a key, and write its value to stdout", NULL, 1, 1},
	{"kv touch", command_touch, "KEY TIME|never", "change when a key expires, and write its value to stdout", NULL,
	 2, 2},
	{"kv mexists", command_mexists, "KEY...", "say which keys there are", mexists_options, 1, -1},
	{NULL},
};
