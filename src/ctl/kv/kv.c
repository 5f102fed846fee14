/* kv.c: one pair: get, set, del, exists. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static bool newline;
static const char *file;
static uint64_t ttl;
static bool keep_ttl, durable;

static const struct ctl_option get_options[] = {
	{"newline", 'n', CTL_FLAG, &newline, NULL, "add a line feed to the value"},
	{NULL},
};

static const struct ctl_option set_options[] = {
	{"file", 'f', CTL_TEXT, &file, "FILE", "take the value from a file; - is stdin", .choices = "@file"},
	{"ttl", 'T', CTL_TIME, &ttl, "TIME", "the key expires after this", .min = TIME_US},
	{"keep-ttl", 'K', CTL_FLAG, &keep_ttl, NULL, "the key expires when it did before"},
	{"durable", 'D', CTL_FLAG, &durable, NULL, "wait until it is on the server's disk"},
	{NULL},
};

int ctl_kv_open(void **kv)
{
	struct rdmad_options options;
	int rc;

	ctl_library_options(&options);
	rc = kv_open_options(ctl.host, &options, NULL, kv);
	return rc ? ctl_fail_open(rc, ctl.host) : CTL_OK;
}

bool ctl_kv_status_final(int status)
{
	return kv_status_answered(status);
}

bool ctl_kv_cannot_go_on(int error)
{
	return error == -ENOTCONN || error == -ESHUTDOWN || error == -ETIMEDOUT || error == -EINTR;
}

const char *ctl_kv_status_text(int status)
{
	return kv_status_answered(status) || !*rdmad_error() ? kv_status_text(status) : rdmad_error();
}

int ctl_kv_await(void *kv)
{
	uint64_t until = time_now() + ctl_answer_limit();
	int rc;

	while ((rc = kv_progress(kv, CTL_SLICE_US)) == 0) {
		if (ctl_interrupted())
			return -EINTR;
		if (time_now() >= until)
			return -ETIMEDOUT;
	}
	return MIN(rc, 0);
}

int ctl_kv_fail(int error, const char *key)
{
	return ctl_fail(error, NULL, "%s %.200s", ctl_command_name(), key);
}

json_t *ctl_kv_describe(const void *kv, const char *key)
{
	json_t *o = json_pack("{s:s}", "command", ctl_command_name());

	if (key)
		ctl_json_set_bytes(o, "key", key, strlen(key));
	json_object_set_new(o, "server", json_string(ctl.host));
	json_object_set_new(o, "transport", json_string(kv_transport(kv)));
	return o;
}

int ctl_kv_print_value(const void *kv, const char *key, const void *value, size_t len, uint64_t version)
{
	json_t *o;

	if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "found", json_true());
		if (version)
			json_object_set_new(o, "version", json_integer((json_int_t)version));
		json_object_set_new(o, "value_bytes", json_integer((json_int_t)len));
		ctl_json_set_bytes(o, "value", value, len);
		return ctl_json_print(o);
	}
	ctl_put_value(value, len);
	if (newline || ctl_line_is_open(value, len))
		putchar('\n');
	if (ctl_sums_up())
		ctl_say("%s: %zu byte%s, transport %s", ctl.host, len, CTL_S(len), kv_transport(kv));
	return CTL_OK;
}

static void say_missing(const void *kv, const char *key)
{
	ctl_say("%s: no such key: %.200s (transport %s)", ctl_command_name(), key, kv_transport(kv));
}

int ctl_kv_missing(const void *kv, const char *key)
{
	json_t *o;

	if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "found", json_false());
		ctl_json_print(o);
	}
	say_missing(kv, key);
	return CTL_NOT_FOUND;
}

static int command_get(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0];
	uint64_t version;
	void *kv, *value;
	size_t len;
	int rc = ctl_kv_open(&kv);

	if (rc != 0)
		return rc;
	rc = kv_get_version(kv, key, strlen(key), &value, &len, &version);
	if (rc == 0) {
		rc = ctl_kv_print_value(kv, key, value, len, version);
		kv_release(value);
	} else if (rc == -ENOENT) {
		rc = ctl_kv_missing(kv, key);
	} else {
		rc = ctl_kv_fail(rc, key);
	}
	kv_close(kv);
	return rc;
}

/* Read all of a descriptor. free() *out. */
static int read_to_end(int fd, char **out, size_t *len)
{
	size_t room = 0, n = 0;
	char *data = NULL, *bigger;
	ssize_t got;

	do {
		if (n == room) {
			room = MAX(2 * room, 65536u);
			bigger = realloc(data, room);
			if (!bigger) {
				free(data);
				return -ENOMEM;
			}
			data = bigger;
		}
		got = read(fd, data + n, room - n);
		if (got < 0) {
			free(data);
			return -errno;
		}
		n += (size_t)got;
	} while (got > 0);
	*out = data;
	*len = n;
	return 0;
}

int ctl_kv_take_value(const struct ctl_arguments *arguments, int at, const char *path, const char **value, size_t *len,
		      char **owned)
{
	int fd, rc;

	*owned = NULL;
	if ((arguments->count == at + 1) == (path != NULL))
		return ctl_usage_error("%s: give one value: VALUE, - or --file FILE", ctl_command_name());
	if (!path && strcmp(arguments->text[at], "-") != 0) {
		*value = arguments->text[at];
		*len = strlen(*value);
		return CTL_OK;
	}
	if (!path)
		path = "-";
	fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	rc = fd < 0 ? -errno : read_to_end(fd, owned, len);
	if (fd > STDIN_FILENO)
		close(fd);
	if (rc != 0) {
		ctl_say("%s: cannot read %s: %s", ctl_command_name(), path, strerror(-rc));
		return CTL_FAILED;
	}
	*value = *owned;
	return CTL_OK;
}

static int command_set(const struct ctl_arguments *arguments)
{
	const char *key = arguments->text[0], *value = NULL;
	struct kv_put_options options = {.condition = durable ? KV_DURABLE : KV_ALWAYS,
					 .ttl_us = keep_ttl ? KV_TTL_KEEP : ttl / TIME_US};
	char *owned;
	size_t len = 0;
	json_t *o;
	void *kv;
	int rc = ctl_kv_take_value(arguments, 1, file, &value, &len, &owned);

	if (rc == 0 && keep_ttl && ttl)
		rc = ctl_usage_error("kv set: --ttl and --keep-ttl exclude each other");
	if (rc != 0)
		goto free_value;
	rc = ctl_kv_open(&kv);
	if (rc != 0)
		goto free_value;
	rc = kv_put(kv, key, strlen(key), value, len, &options, NULL);
	if (rc != 0) {
		rc = ctl_kv_fail(rc, key);
	} else if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, "value_bytes", json_integer((json_int_t)len));
		rc = ctl_json_print(o);
	} else if (!ctl.quiet) {
		ctl_say("%s: %zu byte%s stored, transport %s", ctl.host, len, CTL_S(len), kv_transport(kv));
	}
	kv_close(kv);
free_value:
	free(owned);
	return rc;
}

/* Carry out del or exists, whose call answers 1, 0 or an error, and print the answer, `yes` or `no` in words. */
static int command_yes_or_no(const char *key, int (*call)(struct rdmad_kv *kv, const void *key, size_t key_len),
			     const char *member, const char *yes, const char *no)
{
	json_t *o;
	void *kv;
	int rc = ctl_kv_open(&kv), answer;

	if (rc != 0)
		return rc;
	answer = call(kv, key, strlen(key));
	if (answer < 0) {
		rc = ctl_kv_fail(answer, key);
	} else if (ctl.json) {
		o = ctl_kv_describe(kv, key);
		json_object_set_new(o, member, json_boolean(answer));
		rc = ctl_json_print(o);
		if (!answer)
			say_missing(kv, key);
	} else {
		puts(answer ? yes : no);
		ctl_say_transport(ctl.host, kv_transport(kv));
	}
	kv_close(kv);
	return answer == 0 && rc == CTL_OK ? CTL_NOT_FOUND : rc;
}

static int command_del(const struct ctl_arguments *arguments)
{
	return command_yes_or_no(arguments->text[0], kv_delete, "deleted", "deleted", "no such key");
}

static int command_exists(const struct ctl_arguments *arguments)
{
	return command_yes_or_no(arguments->text[0], kv_exists, "exists", "yes", "no");
}

const struct ctl_command ctl_kv_commands[] = {
	{"kv get", command_get, "KEY", "write a key's value to stdout", get_options, 1, 1},
	{"kv set", command_set, "KEY [VALUE|-]", "store a value", set_options, 1, 2},
	{"kv del", command_del, "KEY", "delete a key", NULL, 1, 1},
	{"kv exists", command_exists, "KEY", "say whether there is such a key", NULL, 1, 1},
	{NULL},
};
