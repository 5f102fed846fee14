/* kv_move.c: all keys into a file; kv_import.c has the way back. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <stdlib.h>
#include <sys/stat.h>
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

int ctl_kv_moved(const void *kv, const char *verb, const struct ctl_progress *p, uint64_t failed)
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
	char why[512];
	int rc;

	snprintf(why, sizeof(why), "%s", rdmad_error()); /* what follows asks the library more */
	rc = ctl_kv_moved(e->kv, "exported", &e->progress, e->failed);
	if (error == -EINTR)
		return CTL_INTERRUPTED;
	if (error && error == e->error) /* of the file: what is to be done about the store is no help */
		return ctl_fail(-EIO, strerror(-error), "kv export: cannot write %s", path);
	if (error)
		return ctl_fail(error, *why ? why : NULL, "kv export");
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

/* A file that is there keeps its bytes until the new ones are whole: they are written beside it. */
struct beside {
	char *path; /* where the name leads; NULL: written at once, as a device is */
	char *part;
};

static void beside_free(struct beside *b)
{
	free(b->path);
	free(b->part);
}

static FILE *open_part(struct beside *b)
{
	mode_t mask = umask(0);
	int fd = mkstemp(b->part);

	umask(mask);
	if (fd >= 0)
		fchmod(fd, 0666 & ~mask);
	return fd < 0 ? NULL : fdopen(fd, "w");
}

/* NULL: errno says why. */
static FILE *beside_open(const char *path, struct beside *b)
{
	struct stat st;

	*b = (struct beside){0};
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return fopen(path, "we");
	b->path = realpath(path, NULL);
	if (!b->path)
		b->path = strdup(path);
	if (!b->path || asprintf(&b->part, "%s.XXXXXX", b->path) < 0) {
		b->part = NULL;
		return NULL;
	}
	return open_part(b);
}

/* `rc` is the exit status so far. */
static int beside_close(struct beside *b, FILE *out, const char *path, int rc)
{
	bool good = fclose(out) == 0;

	if (rc != CTL_OK && b->part) {
		unlink(b->part);
		ctl_say("kv export: %s is as it was before", path);
	} else if (!good || (b->part && rename(b->part, b->path) != 0)) {
		ctl_say("kv export: cannot write %s: %s", path, strerror(errno));
		if (b->part)
			unlink(b->part);
		rc = rc ? rc : CTL_FAILED;
	}
	return rc;
}

static int export_to(struct exporting *e, const char *path)
{
	struct beside beside;
	int rc = CTL_FAILED;

	e->out = beside_open(path, &beside);
	if (e->out)
		rc = beside_close(&beside, e->out, path, run_export(e, path));
	else
		ctl_say("kv export: cannot write %s: %s", path, strerror(errno));
	beside_free(&beside);
	return rc;
}

static int command_export(const struct ctl_arguments *arguments)
{
	const char *path = arguments->count ? arguments->text[0] : "-";
	struct exporting e = {.out = stdout, .format = (enum record_format)record_format(format_name)};

	if (strcmp(path, "-") != 0)
		return export_to(&e, path);
	if (ctl.json)
		return ctl_usage_error("kv export: --json needs a FILE for the keys");
	if (e.format == RECORD_BINARY && isatty(STDOUT_FILENO))
		return ctl_usage_error("kv export: the binary format is not for a terminal; give a FILE");
	return run_export(&e, path);
}

const struct ctl_command ctl_kv_move_commands[] = {
	{"kv export", command_export, "[FILE|-]", "write all keys to a file", export_options, 0, 1},
	{NULL},
};
