/* export.c: all keys into a file; import.c has the way back. */
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

int ctl_kv_moved(const void *kv, const char *verb, const struct ctl_progress *p, uint64_t failed, json_t *more)
{
	double seconds = (double)(time_now() - p->begin) / 1e9;
	char size[32];
	json_t *o;

	if (!ctl.json) {
		json_decref(more);
		if (ctl_sums_up())
			ctl_say("%s: %llu key%s %s, %s, %llu failed, %.3f s, transport %s", ctl.host,
				(unsigned long long)p->count, CTL_S(p->count), verb,
				units_human_size((double)p->bytes, size), (unsigned long long)failed, seconds,
				kv_transport(kv));
		return CTL_OK;
	}
	o = ctl_kv_describe(kv, NULL);
	json_object_set_new(o, verb, json_integer((json_int_t)p->count));
	json_object_set_new(o, "values_bytes", json_integer((json_int_t)p->bytes));
	json_object_set_new(o, "failed", json_integer((json_int_t)failed));
	json_object_set_new(o, "elapsed_seconds", json_real(seconds));
	json_object_set_new(o, "interrupted", json_boolean(ctl_interrupted()));
	if (more)
		json_object_update(o, more);
	json_decref(more);
	return ctl_json_print(o);
}

/*
 * Export: a page of keys, then their values, some MiB at a time.
 */
struct exporting {
	void *kv;
	FILE *out;
	bool beside; /* `out` is a part file, which replaces the file when all is in it */
	enum record_format format;
	struct listed *item; /* of a page */
	size_t count, room;
	uint64_t failed;
	int error; /* of writing */
	int ended; /* why no more requests are sent, and answers are ignored; 0: they are */
	struct ctl_progress progress;
};

struct listed {
	struct exporting *exporting;
	void *key;
	size_t key_len;
	struct kv_meta meta;
	bool replaced; /* since it was listed: its listed time to live is that of another value */
};

static int collect_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	struct exporting *e = arg;
	void *copy;

	if (e->count == e->room) {
		size_t room = MAX(2 * e->room, 256u);
		struct listed *item = realloc(e->item, room * sizeof(*item));

		if (!item)
			return -ENOMEM;
		e->item = item;
		e->room = room;
	}
	copy = malloc(key_len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, key, key_len);
	e->item[e->count++] = (struct listed){.exporting = e, .key = copy, .key_len = key_len, .meta = *meta};
	return 0;
}

static void write_key(struct exporting *e, const struct listed *item, const void *value, size_t value_len)
{
	struct record record = {.key = item->key,
				.key_len = item->key_len,
				.value = value,
				.value_len = value_len,
				.ttl_us = item->meta.ttl_us};

	e->error = record_write(e->out, e->format, &record);
	if (e->error)
		return;
	ctl_progress_add(&e->progress, value_len);
	if (e->out == stdout)
		ctl_record_end();
}

static void key_failed(struct exporting *e, const struct listed *item, int status)
{
	if (status == -ENOENT)
		return; /* deleted since it was listed */
	if (!ctl_kv_status_final(status)) {
		e->ended = status;
		return;
	}
	e->failed++;
	ctl_say("kv export: %.*s: %s", (int)MIN(item->key_len, 100u), (const char *)item->key,
		ctl_kv_status_text(status));
}

static void key_got(void *arg, const struct kv_result *result)
{
	struct listed *item = arg;
	struct exporting *e = item->exporting;

	if (e->error || e->ended)
		return;
	item->replaced = result->status == 0 && result->meta.version != item->meta.version;
	if (result->status != 0)
		key_failed(e, item, result->status);
	else if (!item->replaced)
		write_key(e, item, result->value, result->value_len);
}

/* Get a key that others write, until its value and what kv_stat() says of it are of one version. */
static void get_key_again(struct exporting *e, struct listed *item)
{
	uint64_t version = 0;
	void *value = NULL;
	size_t len = 0;
	int rc;

	do {
		kv_release(value);
		value = NULL;
		rc = kv_stat(e->kv, item->key, item->key_len, &item->meta);
		if (rc == 0)
			rc = kv_get_version(e->kv, item->key, item->key_len, &value, &len, &version);
	} while (rc == 0 && version != item->meta.version && !ctl_interrupted());
	if (rc != 0)
		key_failed(e, item, rc);
	else if (version == item->meta.version)
		write_key(e, item, value, len);
	kv_release(value);
}

/* Get the items from `begin` on, up to some MiB of values: the end of them. */
static size_t export_group(struct exporting *e, size_t begin)
{
	uint64_t bytes = e->item[begin].meta.length;
	size_t end = begin + 1;
	int rc = 0;

	while (end < e->count && bytes + e->item[end].meta.length <= FLIGHT_MAX)
		bytes += e->item[end++].meta.length;
	for (size_t i = begin; i < end && rc == 0;) {
		struct listed *item = &e->item[i];

		rc = kv_submit_get_version(e->kv, item->key, item->key_len, key_got, item);
		if (rc == 0)
			i++;
		else if (rc == -EAGAIN)
			rc = kv_outstanding(e->kv) ? kv_wait(e->kv) : MIN(kv_progress(e->kv, CTL_SLICE_US), 0);
	}
	if (rc == 0)
		rc = kv_wait(e->kv);
	if (rc != 0)
		e->ended = rc;
	for (size_t i = begin; i < end && !e->ended && !e->error && !ctl_interrupted(); i++)
		if (e->item[i].replaced)
			get_key_again(e, &e->item[i]);
	return end;
}

static int export_all(struct exporting *e)
{
	uint64_t cursor = 0;
	int rc = record_begin(e->out, e->format);

	while (rc == 0) {
		rc = kv_scan(e->kv, &cursor, prefix, strlen(prefix), 0, collect_key, e);
		for (size_t begin = 0; rc >= 0 && begin < e->count;) {
			begin = export_group(e, begin);
			rc = e->ended ? e->ended : e->error ? e->error : ctl_interrupted() ? -EINTR : 0;
		}
		for (size_t i = 0; i < e->count; i++)
			free(e->item[i].key);
		e->count = 0;
		if (!cursor)
			break;
	}
	if (rc != 0)
		return rc;
	return e->error = record_end(e->out, e->format, e->progress.count);
}

static int conclude_export(struct exporting *e, const char *path, int error)
{
	char why[512];
	int rc;

	snprintf(why, sizeof(why), "%s", rdmad_error()); /* later calls of the library replace it */
	if ((e->out == stdout ? ctl_flush() : fflush(e->out)) != 0 && !error)
		error = e->error = -errno;
	if (e->beside && (error || e->failed))
		e->progress.count = e->progress.bytes = 0; /* the file is not put in its place */
	rc = ctl_kv_moved(e->kv, "exported", &e->progress, e->failed, NULL);
	if (error == -EINTR)
		return CTL_INTERRUPTED;
	if (ferror(stdout))
		return CTL_FAILED;      /* ctl_output_end() says why */
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
	return rc;
}

/* Write a file beside the one of that name, which keeps its bytes until the new ones are whole. */
struct beside {
	char *path; /* where the name leads; NULL: written at once, as a device is */
	char *part;
	bool there; /* a file of that name is */
};

/* Give the part owner, group and mode of the file that it replaces. Where the group cannot be kept, the new one gets no
 * more rights than other users. */
static void beside_chmod(int fd, const struct stat *old)
{
	mode_t mode = old->st_mode & 0777;

	if (fchown(fd, old->st_uid, old->st_gid) != 0 && fchown(fd, (uid_t)-1, old->st_gid) != 0)
		mode &= 0707 | (mode & 07) << 3;
	fchmod(fd, mode);
}

/* NULL: errno says why. */
static FILE *beside_open(const char *path, struct beside *b)
{
	struct stat st;
	mode_t mask;
	int fd;

	*b = (struct beside){.there = stat(path, &st) == 0};
	if (b->there && !S_ISREG(st.st_mode))
		return fopen(path, "we");
	b->path = realpath(path, NULL);
	if (!b->path)
		b->path = strdup(path);
	if (!b->path || asprintf(&b->part, "%s.XXXXXX", b->path) < 0) {
		b->part = NULL;
		return NULL;
	}
	mask = umask(0);
	fd = mkstemp(b->part);
	umask(mask);
	if (fd < 0)
		return NULL;
	if (b->there)
		beside_chmod(fd, &st);
	else
		fchmod(fd, 0666 & ~mask);
	return fdopen(fd, "w");
}

/* Close the part, and let it replace the file if `rc`, the exit status so far, is CTL_OK. It is on the disk before it
 * gets the name, so that a failure leaves one of both files. */
static int beside_close(struct beside *b, FILE *out, const char *path, int rc)
{
	bool replace = rc == CTL_OK && b->part;
	int error = replace && fsync(fileno(out)) != 0 ? errno : 0;

	if (fclose(out) != 0 && !error)
		error = errno;
	if (replace && !error && rename(b->part, b->path) != 0)
		error = errno;
	if (b->part && (rc != CTL_OK || error))
		unlink(b->part);
	if (error && (rc == CTL_OK || !b->part)) {
		ctl_say("kv export: cannot write %s: %s", path, strerror(error));
		rc = rc ? rc : CTL_FAILED;
	}
	if (rc != CTL_OK && b->part)
		ctl_say("kv export: %s %s", path, b->there ? "is as it was before" : "was not written");
	return rc;
}

static int command_export(const struct ctl_arguments *arguments)
{
	const char *path = arguments->count ? arguments->text[0] : "-";
	struct exporting e = {.out = stdout, .format = (enum record_format)record_format(format_name)};
	struct beside beside;
	int rc = CTL_FAILED;

	if (strcmp(path, "-") != 0) {
		e.out = beside_open(path, &beside);
		e.beside = beside.part != NULL;
		if (e.out)
			rc = beside_close(&beside, e.out, path, run_export(&e, path));
		else
			ctl_say("kv export: cannot write %s: %s", path, strerror(errno));
		free(beside.path);
		free(beside.part);
		return rc;
	}
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
