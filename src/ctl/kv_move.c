/* kv_move.c: all keys into a file, and back. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FLIGHT_MAX (16 * MIB) /* bytes of values under way, unless one alone has more */

static const char *prefix = "", *format_name = "json";

static int check_format(const char *text)
{
	if (record_format(text) >= 0)
		return 0;
	ctl_say("--format %s: not json or binary", text);
	return -EINVAL;
}

static const struct ctl_option export_options[] = {
	{"prefix", 'p', CTL_TEXT, &prefix, "TEXT", "only keys that begin with this"},
	{"format", 'F', CTL_CHECKED, &format_name, "FORMAT", "json (an object on each line) or binary; default json",
	 .check = check_format, .choices = "json binary"},
	{NULL},
};

/* `verb` says how the keys were treated, and names the member in JSON. */
static int print_summary(const void *kv, const char *verb, const struct ctl_progress *p, uint64_t failed)
{
	double seconds = (double)(time_now() - p->begin) / 1e9;
	char size[32];
	json_t *o;

	if (!ctl.json) {
		if (!ctl.quiet)
			ctl_say("%s: %llu keys %s, %s, %llu failed, %.3f s, transport %s", ctl.host,
				(unsigned long long)p->count, verb, units_human_size((double)p->bytes, size),
				(unsigned long long)failed, seconds, kv_transport(kv));
		return CTL_OK;
	}
	o = ctl_kv_describe(kv, NULL);
	json_object_set_new(o, verb, json_integer((json_int_t)p->count));
	json_object_set_new(o, "values_bytes", json_integer((json_int_t)p->bytes));
	json_object_set_new(o, "failed", json_integer((json_int_t)failed));
	json_object_set_new(o, "elapsed_seconds", json_real(seconds));
	json_object_set_new(o, "interrupted", json_boolean(ctl_interrupted()));
	return ctl_json_print(o);
}

/*
 * Export: a page of keys, then their values, some MiB at a time.
 */
struct exporting {
	void *kv;
	FILE *out;
	enum record_format format;
	struct kv_item *item; /* of a page; the keys are copies */
	struct kv_meta *meta;
	size_t count, room;
	size_t group; /* the first item of those that are asked for */
	uint64_t failed;
	int error; /* of writing */
	struct ctl_progress progress;
};

static int page_grow(struct exporting *e)
{
	size_t room = MAX(2 * e->room, 256u);
	struct kv_item *item = realloc(e->item, room * sizeof(*item));
	struct kv_meta *meta;

	if (!item)
		return -ENOMEM;
	e->item = item;
	meta = realloc(e->meta, room * sizeof(*meta));
	if (!meta)
		return -ENOMEM;
	e->meta = meta;
	e->room = room;
	return 0;
}

static int collect(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct exporting *e = arg;
	void *copy;

	if (e->count == e->room && page_grow(e) != 0)
		return -ENOMEM;
	copy = malloc(key_len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, key, key_len);
	e->item[e->count] = (struct kv_item){.key = copy, .key_len = key_len};
	e->meta[e->count++] = *meta;
	return 0;
}

static void page_clear(struct exporting *e)
{
	for (size_t i = 0; i < e->count; i++)
		free((void *)e->item[i].key);
	e->count = 0;
}

static void write_one(void *arg, size_t index, int status, const void *value, size_t value_len)
{
	struct exporting *e = arg;
	const struct kv_item *item = &e->item[e->group + index];
	struct record record = {.key = item->key,
				.key_len = item->key_len,
				.value = value,
				.value_len = value_len,
				.ttl_us = e->meta[e->group + index].ttl_us};

	if (status == -ENOENT || e->error)
		return; /* deleted since it was listed */
	if (status != 0) {
		e->failed++;
		ctl_say("kv export: %.*s: %s", (int)MIN(item->key_len, 100u), (const char *)item->key,
			ctl_kv_status_text(status));
		return;
	}
	e->error = record_write(e->out, e->format, &record);
	if (!e->error)
		ctl_progress_add(&e->progress, 1, value_len);
}

/* Items from `begin` on whose values have some MiB: the end of them. */
static size_t group_end(const struct exporting *e, size_t begin)
{
	uint64_t bytes = e->meta[begin].length;
	size_t end = begin + 1;

	while (end < e->count && bytes + e->meta[end].length <= FLIGHT_MAX)
		bytes += e->meta[end++].length;
	return end;
}

static int export_page(struct exporting *e)
{
	int rc = 0;

	for (size_t end; e->group < e->count; e->group = end) {
		end = group_end(e, e->group);
		rc = kv_mget(e->kv, e->item + e->group, end - e->group, write_one, e);
		if (rc != 0 && !ctl_kv_status_final(rc))
			return rc;
		if (e->error || ctl_interrupted())
			return e->error ? e->error : -EINTR;
	}
	return 0;
}

static int export_all(struct exporting *e)
{
	uint64_t cursor = 0;
	int rc = record_begin(e->out, e->format);

	while (rc == 0) {
		rc = kv_scan(e->kv, &cursor, prefix, strlen(prefix), 0, collect, e);
		e->group = 0;
		if (rc >= 0)
			rc = export_page(e);
		page_clear(e);
		if (!cursor)
			break;
	}
	if (rc != 0)
		return rc;
	e->error = record_end(e->out, e->format, e->progress.count);
	if (!e->error && fflush(e->out) != 0)
		e->error = -errno;
	return e->error;
}

static int conclude_export(const struct exporting *e, const char *path, int error)
{
	int rc = print_summary(e->kv, "exported", &e->progress, e->failed);

	if (error == -EINTR)
		return CTL_INTERRUPTED;
	if (error && error == e->error)
		return ctl_fail(error, strerror(-error), "kv export: cannot write %s", path);
	if (error)
		return ctl_fail(error, NULL, "kv export");
	return e->failed ? CTL_FAILED : rc;
}

static int run_export(struct exporting *e, const char *path)
{
	int rc;

	ctl_catch_interrupt();
	rc = ctl_kv_open(&e->kv);
	if (rc != 0)
		return rc;
	ctl_progress_begin(&e->progress, "keys");
	rc = export_all(e);
	ctl_progress_end(&e->progress);
	rc = conclude_export(e, path, rc);
	kv_close(e->kv);
	free(e->item);
	free(e->meta);
	return rc;
}

static int command_export(const struct ctl_arguments *arguments)
{
	const char *path = arguments->count ? arguments->text[0] : "-";
	struct exporting e = {.out = stdout, .format = (enum record_format)record_format(format_name)};
	bool to_stdout = strcmp(path, "-") == 0;
	int rc;

	if (to_stdout && ctl.json)
		return ctl_usage_error("kv export: --json needs a FILE for the keys");
	if (to_stdout && e.format == RECORD_BINARY && isatty(STDOUT_FILENO))
		return ctl_usage_error("kv export: the binary format is not for a terminal; give a FILE");
	if (!to_stdout)
		e.out = fopen(path, "we");
	if (!e.out) {
		ctl_say("kv export: cannot write %s: %s", path, strerror(errno));
		return CTL_FAILED;
	}
	rc = run_export(&e, path);
	if (!to_stdout && fclose(e.out) != 0 && rc == CTL_OK) {
		ctl_say("kv export: cannot write %s: %s", path, strerror(errno));
		rc = CTL_FAILED;
	}
	return rc;
}

/*
 * Import: many puts under way at a time.
 */
struct importing {
	void *kv;
	const char *name;
	uint64_t line; /* or record, from 1 on */
	uint64_t failed, flight;
	int error; /* what ended it */
	struct ctl_progress progress;
};

/* A put on its way. */
struct put {
	struct importing *import;
	uint64_t line;
	size_t len;
	uint64_t flight; /* its part of import->flight */
	char value[];    /* when it is large: it is fetched from here */
};

static void record_failed(struct importing *import, uint64_t line, const char *why)
{
	import->failed++;
	ctl_progress_end(&import->progress);
	ctl_say("%s:%llu: %s", import->name, (unsigned long long)line, why);
}

static void put_done(void *arg, const struct kv_result *result)
{
	struct put *put = arg;
	struct importing *import = put->import;

	import->flight -= put->flight;
	if (result->status == 0)
		ctl_progress_add(&import->progress, 1, put->len);
	else if (ctl_kv_status_final(result->status))
		record_failed(import, put->line, ctl_kv_status_text(result->status));
	else if (!import->error)
		import->error = result->status;
	free(put);
}

static int import_submit(struct importing *import, struct put *put, const struct record *record, const void *value)
{
	struct kv_put_options options = {.ttl_us = record->ttl_us};
	int rc = 0;

	while (rc == 0 && import->flight && import->flight + put->flight > FLIGHT_MAX)
		rc = ctl_kv_await(import->kv);
	while (rc == 0) {
		rc = kv_submit_put(import->kv, record->key, record->key_len, value, record->value_len, &options,
				   put_done, put);
		if (rc != -EAGAIN)
			break;
		rc = ctl_kv_await(import->kv);
	}
	return rc;
}

static void import_record(struct importing *import, const struct record *record)
{
	bool large = record->key_len + record->value_len > kv_eager_max(import->kv);
	struct put *put = malloc(sizeof(*put) + (large ? record->value_len : 0));
	const void *value = record->value;
	int rc;

	if (!put) {
		record_failed(import, import->line, "no memory for a value of that size");
		return;
	}
	*put = (struct put){.import = import, .line = import->line, .len = record->value_len};
	if (large) {
		put->flight = put->len;
		value = memcpy(put->value, record->value, put->len);
	}
	rc = import_submit(import, put, record, value);
	if (rc == 0) {
		import->flight += put->flight;
		return;
	}
	if (rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -EINTR)
		import->error = rc;
	else
		record_failed(import, import->line, rdmad_error());
	free(put);
}

static bool going_on(const struct importing *import)
{
	return !import->error && !ctl_interrupted();
}

static int import_lines(struct importing *import, struct script_reader *reader)
{
	const char *line, *wrong;
	struct record record;
	size_t len;
	int rc = 0;

	while (going_on(import) && (rc = script_read(reader, &line, &len)) > 0) {
		import->line++;
		if (!len)
			continue;
		wrong = record_parse(line, len, &record);
		if (wrong) {
			record_failed(import, import->line, wrong);
			continue;
		}
		import_record(import, &record);
		record_release(&record);
	}
	return rc;
}

static int import_binary(struct importing *import, struct script_reader *reader)
{
	uint64_t value_max = kv_value_max(import->kv);
	struct record record;
	int rc = script_skip(reader, RECORD_MAGIC_LEN);

	while (rc >= 0 && going_on(import)) {
		rc = record_read(reader, import->line, value_max, &record);
		if (rc == 0)
			break;
		import->line++;
		if (rc == 1) {
			import_record(import, &record);
		} else if (rc == -EMSGSIZE) {
			record_failed(import, import->line, "the server does not take values of that size");
			rc = 0;
		} else if (rc == -EPROTO) {
			record_failed(import, import->line, "the file is cut off or broken from here on");
		}
	}
	return rc == -EPROTO ? 0 : rc;
}

static void import_all(struct importing *import, int fd)
{
	struct script_reader reader = {.fd = fd};
	const char *data;
	size_t have;
	int rc = script_peek(&reader, RECORD_MAGIC_LEN, &data, &have);

	if (rc == 0)
		rc = record_magic(data, have) ? import_binary(import, &reader) : import_lines(import, &reader);
	if (rc < 0 && rc != -EINTR)
		record_failed(import, import->line + 1, strerror(-rc));
	while (!import->error && kv_outstanding(import->kv))
		import->error = ctl_kv_await(import->kv);
	script_reader_destroy(&reader);
}

static int conclude_import(const struct importing *import)
{
	int rc = print_summary(import->kv, "imported", &import->progress, import->failed);

	if (ctl_interrupted())
		return CTL_INTERRUPTED;
	if (import->error)
		return ctl_fail(import->error,
				import->error == -ETIMEDOUT ? "no answer in time"
							    : "the connection ended before all answers",
				"kv import %s, record %llu", import->name, (unsigned long long)import->line);
	return import->failed ? CTL_FAILED : rc;
}

static int command_import(const struct ctl_arguments *arguments)
{
	struct importing import = {.name = arguments->count ? arguments->text[0] : "-"};
	bool from_stdin = strcmp(import.name, "-") == 0;
	int fd = from_stdin ? STDIN_FILENO : open(import.name, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0) {
		ctl_say("kv import: cannot read %s: %s", import.name, strerror(errno));
		return CTL_FAILED;
	}
	ctl_catch_interrupt();
	rc = ctl_kv_open(&import.kv);
	if (rc == 0) {
		ctl_progress_begin(&import.progress, "keys");
		import_all(&import, fd);
		ctl_progress_end(&import.progress);
		rc = conclude_import(&import);
		kv_close(import.kv);
	}
	if (!from_stdin)
		close(fd);
	return rc;
}

const struct ctl_command ctl_kv_move_commands[] = {
	{"kv export", command_export, "[FILE|-]", "write all keys to a file", export_options, 0, 1},
	{"kv import", command_import, "[FILE|-]", "store the keys of an exported file", NULL, 0, 1},
	{NULL},
};
