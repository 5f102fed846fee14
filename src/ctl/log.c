/* log.c: the log of the key/value store: how far it is, a checkpoint; and its files, which no process has open. */
#include "ctl/ctl.h"
#include "wal/wal.h"

#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>

/*
 * The log of the running daemon
 */

static int command_status(const struct ctl_arguments *arguments)
{
	json_t *status, *log;
	int rc = ctl_control_ask("status", &status);

	(void)arguments;
	if (rc != CTL_OK)
		return rc;
	log = json_incref(json_object_get(status, "log"));
	json_decref(status);
	if (!log)
		return ctl_fail(-EREMOTEIO,
				"the daemon keeps no log: see log.directory and log.policy in its rdmad.conf", "%s",
				ctl_command_name());
	return ctl_print(log);
}

static int command_checkpoint(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc = ctl_control_ask("checkpoint", &answer);

	(void)arguments;
	if (rc != CTL_OK)
		return rc;
	if (ctl.json)
		return ctl_json_print(answer);
	if (!ctl.quiet)
		ctl_say("%s: %s; rdmactl log status says how far it is", ctl_command_name(),
			json_is_true(json_object_get(answer, "begun")) ? "begun" : "one is under way");
	json_decref(answer);
	return CTL_OK;
}

/*
 * A file of the log
 */

struct file {
	uint64_t records, bytes; /* of keys and values */
	uint64_t first, last;    /* LSN */
};

static void file_add(struct file *file, const struct wal_record *r)
{
	file->records++;
	file->bytes += r->key_len + r->value_len;
	if (!file->first)
		file->first = r->lsn;
	file->last = r->lsn;
}

static int count_record(void *arg, uint64_t at, const struct wal_record *r, const char *type)
{
	(void)at;
	(void)type;
	file_add(arg, r);
	return ctl_interrupted() ? -EINTR : 0;
}

static json_t *record_json(uint64_t at, const struct wal_record *r, const char *type)
{
	json_t *o = json_pack("{s:I, s:I, s:s}", "at", (json_int_t)at, "lsn", (json_int_t)r->lsn, "type", type);

	if (!o)
		return NULL;
	if (r->key_len)
		ctl_json_set_bytes(o, "key", r->key, r->key_len);
	if (r->type == WAL_SET)
		json_object_set_new(o, "value_bytes", json_integer((json_int_t)r->value_len));
	if (r->item_type)
		json_object_set_new(o, "item_type", json_integer(r->item_type));
	if (r->item_flags)
		json_object_set_new(o, "item_flags", json_integer(r->item_flags));
	if (r->version)
		json_object_set_new(o, "version", json_integer((json_int_t)r->version));
	if (r->expires != WAL_NEVER && (r->type == WAL_SET || r->type == WAL_EXPIRE))
		json_object_set_new(o, "expires_us", json_integer((json_int_t)r->expires));
	if (r->type == WAL_DELETE && r->flags & WAL_EVICTED)
		json_object_set_new(o, "evicted", json_true());
	if (r->flags & WAL_MORE)
		json_object_set_new(o, "more", json_true());
	return o;
}

static int dump_record(void *arg, uint64_t at, const struct wal_record *r, const char *type)
{
	file_add(arg, r);
	if (ctl.json)
		return ctl_json_print(record_json(at, r, type)) == CTL_OK ? 0 : -EIO;
	printf("%" PRIu64 " %" PRIu64 " %s%s%s", at, r->lsn, type,
	       r->type == WAL_DELETE && r->flags & WAL_EVICTED ? " (evicted)" : "",
	       r->flags & WAL_MORE ? " (more)" : "");
	if (r->type == WAL_SET)
		printf(" %" PRIu64 " bytes", r->value_len);
	if (r->key_len) {
		putchar(' ');
		ctl_put_key(r->key, r->key_len);
	}
	putchar('\n');
	ctl_record_end();
	return ctl_interrupted() ? -EINTR : 0;
}

/* Read a file, and say what ended the reading, with *at. An exit status. */
static int read_file(const char *path,
		     int (*each)(void *arg, uint64_t at, const struct wal_record *r, const char *type),
		     struct file *file, uint64_t *at)
{
	char why[64];
	int rc;

	ctl_catch_interrupt();
	*file = (struct file){0};
	rc = wal_read_file(path, each, file, at);
	if (rc == 0)
		return CTL_OK;
	if (rc == -EINTR)
		return CTL_INTERRUPTED;
	if (rc != -EBADMSG) { /* a file that is not there is no key */
		ctl_fail(rc, strerror(-rc), "%s %s", ctl_command_name(), path);
		return CTL_FAILED;
	}
	snprintf(why, sizeof(why), "damaged at byte %" PRIu64, *at);
	return ctl_fail(-EBADMSG, why, "%s %s", ctl_command_name(), path);
}

/* Check a file: *told says what it has, NULL where nothing was read. Its records end at `end`, unless that is 0. */
static int verify_file(const char *path, uint64_t end, json_t **told)
{
	struct file file;
	uint64_t at = 0;
	int rc = read_file(path, count_record, &file, &at);

	*told = NULL;
	if (rc != CTL_OK && !file.records)
		return rc;
	if (rc == CTL_OK && end && at != end) {
		ctl_say("%s %s: its records end at byte %" PRIu64 ", and MANIFEST says %" PRIu64, ctl_command_name(),
			path, at, end);
		rc = CTL_FAILED;
	}
	*told = json_pack("{s:s, s:I, s:I, s:I, s:I}", "file", path, "records", (json_int_t)file.records,
			  "content_bytes", (json_int_t)file.bytes, "first_lsn", (json_int_t)file.first, "last_lsn",
			  (json_int_t)file.last);
	return rc;
}

struct directory {
	const char *path;
	json_t *files;
	int status; /* the first that was bad */
};

static int verify_each(void *arg, const char *name, uint64_t end)
{
	struct directory *d = arg;
	json_t *told;
	char *path;
	int rc;

	if (asprintf(&path, "%s/%s", d->path, name) < 0)
		return -ENOMEM;
	rc = verify_file(path, end, &told);
	if (told)
		json_array_append_new(d->files, told);
	d->status = d->status ? d->status : rc;
	free(path);
	return rc == CTL_INTERRUPTED ? -EINTR : 0;
}

/* Check all files that the log of a directory has. */
static int verify_directory(const char *path)
{
	struct directory d = {.path = path, .files = json_array()};
	int rc = wal_read_directory(path, verify_each, &d);

	if (rc != 0 && rc != -EINTR) {
		json_decref(d.files);
		ctl_fail(rc,
			 rc == -ENOENT ? "no MANIFEST, so it is no log"
			 : *log_last() ? log_last()
				       : strerror(-rc),
			 "%s %s", ctl_command_name(), path);
		return CTL_FAILED;
	}
	rc = ctl_print(json_pack("{s:s, s:o}", "directory", path, "files", d.files));
	return rc == CTL_OK ? d.status : rc;
}

static int command_verify(const struct ctl_arguments *arguments)
{
	const char *path = arguments->text[0], *name = strrchr(path, '/');
	char manifest_of[PATH_MAX];
	struct stat st;
	json_t *told;
	int rc;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return verify_directory(path);
	if (strcmp(name ? name + 1 : path, "MANIFEST") == 0 && strlen(path) < sizeof(manifest_of))
		return verify_directory(dirname(strcpy(manifest_of, path))); /* it names what is there */
	rc = verify_file(path, 0, &told);
	if (!told)
		return rc;
	return ctl_print(told) == CTL_OK ? rc : CTL_FAILED;
}

static int command_dump(const struct ctl_arguments *arguments)
{
	struct file file;
	uint64_t at = 0;

	return read_file(arguments->text[0], dump_record, &file, &at);
}

const struct ctl_command ctl_log_commands[] = {
	{"log status", command_status, "", "how far the log of the store is", .local = true},
	{"log checkpoint", command_checkpoint, "", "have the log made short now", .local = true},
	{"log verify", command_verify, "FILE", "check a file of the log, or all of a directory", NULL, 1, 1,
	 .local = true},
	{"log dump", command_dump, "FILE", "write what a file of the log has", NULL, 1, 1, .local = true},
	{NULL},
};
