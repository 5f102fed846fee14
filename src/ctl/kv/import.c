/* import.c: the keys of files that "kv export" wrote, many puts under way at a time. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLIGHT_MAX (16 * MIB) /* bytes of values under way, unless one alone has more */
#define TOLD_MAX 10           /* failures that are told, of perhaps millions */

static const char *reject_path;

static const struct ctl_option import_options[] = {
	{"reject", 'r', CTL_TEXT, &reject_path, "FILE", "write records that cannot be stored there, and go on",
	 .choices = "@file"},
	{NULL},
};

struct importing {
	void *kv;
	const char *name;
	uint64_t line;    /* or record, from 1 on */
	uint64_t records; /* of this archive so far; a file may have several */
	bool whole;       /* it ended with its mark */
	uint64_t failed, flight;
	FILE *reject; /* of --reject; NULL: without */
	uint64_t rejects;
	int error; /* what ended it */
	struct ctl_progress progress;
};

/* A put that was sent. */
struct put {
	struct importing *import;
	uint64_t line;
	struct record record; /* of a large value, which is fetched from here, or with --reject: its bytes are `copy` */
	uint64_t flight;      /* its part of import->flight */
	char copy[];
};

static void reject_record(struct importing *import, const struct record *record)
{
	if (!import->reject)
		return;
	record_write(import->reject, RECORD_JSON, record);
	import->rejects++;
}

static void record_failed(struct importing *import, uint64_t line, const char *why)
{
	ctl_progress_end(&import->progress);
	if (++import->failed <= TOLD_MAX)
		ctl_say("%s:%llu: %s", import->name, (unsigned long long)line, why);
	else if (import->failed == TOLD_MAX + 1)
		ctl_say("kv import: further failures are only counted");
}

static bool store_is_full(int error)
{
	return error == -ENOMEM || error == -ENOSPC;
}

/* Count a record that the server refused. A full store ends the import, unless --reject keeps the records. */
static void record_refused(struct importing *import, uint64_t line, const struct record *record, int error,
			   const char *why)
{
	record_failed(import, line, why);
	reject_record(import, record);
	if (store_is_full(error) && !reject_path && !import->error)
		import->error = error;
}

static void put_done(void *arg, const struct kv_result *result)
{
	struct put *put = arg;
	struct importing *import = put->import;

	import->flight -= put->flight;
	if (result->status == 0)
		ctl_progress_add(&import->progress, put->record.value_len);
	else if (ctl_kv_status_final(result->status))
		record_refused(import, put->line, &put->record, result->status, ctl_kv_status_text(result->status));
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
	bool copied = large || reject_path;
	struct put *put = malloc(sizeof(*put) + (copied ? record->key_len + record->value_len : 0));
	int rc;

	if (!put) {
		record_failed(import, import->line, "no memory for a value of that size");
		reject_record(import, record);
		return;
	}
	*put = (struct put){.import = import, .line = import->line, .record = *record};
	put->flight = large ? record->value_len : 0;
	if (copied) {
		put->record.key = memcpy(put->copy, record->key, record->key_len);
		put->record.value = memcpy(put->copy + record->key_len, record->value, record->value_len);
	}
	rc = import_submit(import, put, record, put->record.value);
	if (rc == 0) {
		import->flight += put->flight;
		return;
	}
	if (ctl_kv_cannot_go_on(rc))
		import->error = rc;
	else
		record_refused(import, import->line, record, rc, rdmad_error());
	free(put);
}

static bool import_goes_on(const struct importing *import)
{
	return !import->error && !ctl_interrupted();
}

static int import_lines(struct importing *import, struct script_reader *reader)
{
	const char *line, *wrong;
	struct record record;
	char why[128];
	size_t len;
	int rc = 0;

	while (import_goes_on(import) && !import->whole && (rc = script_read(reader, &line, &len)) > 0) {
		import->line++;
		if (!len)
			continue;
		wrong = record_parse(line, len, &record);
		if (!wrong && record.end) {
			import->whole = record.count == import->records;
			snprintf(why, sizeof(why),
				 "the archive says here that it has %llu records, and %llu were there",
				 (unsigned long long)record.count, (unsigned long long)import->records);
			if (!import->whole)
				record_failed(import, import->line, why);
			record_release(&record);
			return 0;
		}
		import->records++;
		if (wrong) {
			record_failed(import, import->line, wrong);
			if (import->reject) {
				fwrite(line, 1, len, import->reject);
				putc('\n', import->reject);
				import->rejects++;
			}
			continue;
		}
		import_record(import, &record);
		record_release(&record);
	}
	return rc;
}

static int import_binary(struct importing *import, struct script_reader *reader)
{
	uint64_t value_max = reject_path ? UINT64_MAX : kv_value_max(import->kv); /* what is rejected is read, too */
	struct record record;
	int rc = script_skip(reader, RECORD_MAGIC_LEN);

	while (rc >= 0 && import_goes_on(import)) {
		rc = record_read(reader, import->records, value_max, &record);
		if (rc == 0) {
			import->whole = true;
			break;
		}
		import->line++;
		import->records++;
		if (rc == 1) {
			import_record(import, &record);
		} else if (rc == -EMSGSIZE) {
			record_failed(import, import->line, "the server does not take values of that size");
			rc = 0;
		} else if (rc == -EPROTO) {
			record_failed(import, import->line, "the file is cut off or broken from here on");
		}
	}
	return rc;
}

static void import_all(struct importing *import, int fd)
{
	struct script_reader reader = {.fd = fd};
	const char *data;
	size_t have;
	int rc = 0;

	while (rc >= 0 && import_goes_on(import)) { /* a file may have several archives */
		rc = script_peek(&reader, RECORD_MAGIC_LEN, &data, &have);
		if (rc != 0 || !have)
			break;
		import->records = 0;
		import->whole = false;
		rc = record_magic(data, have) ? import_binary(import, &reader) : import_lines(import, &reader);
	}
	if (rc < 0 && rc != -EINTR && rc != -EPROTO)
		record_failed(import, import->line + 1, strerror(-rc));
	while (kv_outstanding(import->kv) && (!import->error || store_is_full(import->error))) {
		rc = ctl_kv_await(import->kv);
		if (rc < 0)
			import->error = rc;
	}
	script_reader_destroy(&reader);
}

static int conclude_import(struct importing *import)
{
	bool cut = import_goes_on(import) && !import->whole; /* read to its end, without the mark of an archive's end */
	int rc = ctl_kv_moved(import->kv, "imported", &import->progress, import->failed,
			      json_pack("{s:b}", "truncated", cut));

	if (import->reject) {
		int written = import->rejects ? record_end(import->reject, RECORD_JSON, import->rejects) : 0;

		if (fclose(import->reject) != 0 || written != 0) {
			ctl_say("kv import: cannot write %s: %s", reject_path, strerror(errno));
			rc = CTL_FAILED;
		}
		import->reject = NULL; /* requests without an answer end later, and are not written */
		reject_path = NULL;
	}
	if (ctl_interrupted())
		return CTL_INTERRUPTED;
	if (store_is_full(import->error))
		return ctl_fail(import->error, "the store is full; --reject FILE goes on and keeps what finds no room",
				"kv import %s, record %llu", import->name, (unsigned long long)import->line);
	if (import->error)
		return ctl_fail(import->error,
				import->error == -ETIMEDOUT ? "no answer in time"
							    : "the connection ended before all answers",
				"kv import %s, record %llu", import->name, (unsigned long long)import->line);
	if (cut && !import->failed && !ctl.quiet)
		ctl_say("kv import: %s does not end with the mark of a whole archive; was it cut off?", import->name);
	return import->failed ? CTL_FAILED : rc;
}

static int command_import(const struct ctl_arguments *arguments)
{
	struct importing import = {.name = arguments->count ? arguments->text[0] : "-"};
	bool from_stdin = strcmp(import.name, "-") == 0;
	struct stat in, out;
	int fd = from_stdin ? STDIN_FILENO : open(import.name, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0) {
		ctl_say("kv import: cannot read %s: %s", import.name, strerror(errno));
		return CTL_FAILED;
	}
	if (reject_path && fstat(fd, &in) == 0 && stat(reject_path, &out) == 0 && S_ISREG(in.st_mode) &&
	    in.st_dev == out.st_dev && in.st_ino == out.st_ino) { /* rejects would overwrite records still to be read */
		rc = ctl_usage_error("kv import: --reject %s: that is the file that is read", reject_path);
		goto close_file;
	}
	ctl_catch_interrupt();
	rc = ctl_kv_open(&import.kv);
	if (rc != CTL_OK)
		goto close_file;
	if (reject_path && !(import.reject = fopen(reject_path, "we"))) {
		ctl_say("kv import: cannot write %s: %s", reject_path, strerror(errno));
		rc = CTL_FAILED;
	} else {
		ctl_progress_begin(&import.progress, "keys");
		import_all(&import, fd);
		ctl_progress_end(&import.progress);
		rc = conclude_import(&import);
	}
	kv_close(import.kv);
close_file:
	if (!from_stdin)
		close(fd);
	return rc;
}

const struct ctl_command ctl_kv_import_commands[] = {
	{"kv import", command_import, "[FILE|-]", "store the keys of an exported file", import_options, 0, 1},
	{NULL},
};
