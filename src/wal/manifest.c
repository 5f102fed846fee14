/*
 * manifest.c: the file that says which segments count. It is replaced as a whole: written under another name, synced,
 * renamed, and the directory synced. Only then is what it says true, and what it says no more may be thrown away.
 */
#include "wal/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

#define NAME "MANIFEST"
#define NAME_NEW "MANIFEST.new"
#define SIZE_MAX_BYTES (16 * MIB)
#define IDS 64 /* so many ids may be taken until the next manifest */

int segments_add(struct segments *list, const struct segment *segment)
{
	if (list->count == list->room) {
		unsigned room = list->room ? 2 * list->room : 16;
		struct segment *at = realloc(list->at, room * sizeof(*at));

		if (!at)
			return -ENOMEM;
		list->at = at;
		list->room = room;
	}
	list->at[list->count++] = *segment;
	return 0;
}

bool segments_have(const struct segments *list, uint64_t id)
{
	for (unsigned i = 0; i < list->count; i++)
		if (list->at[i].id == id)
			return true;
	return false;
}

void segments_drop_first(struct segments *list, unsigned n)
{
	must(n <= list->count);
	if (n)
		memmove(list->at, list->at + n, (list->count - n) * sizeof(*list->at));
	list->count -= n;
}

void segments_free(struct segments *list)
{
	free(list->at);
	*list = (struct segments){0};
}

void manifest_free(struct manifest *manifest)
{
	segments_free(&manifest->checkpoint);
	segments_free(&manifest->log);
}

int segments_copy(const struct segments *from, struct segments *to)
{
	int rc = 0;

	*to = (struct segments){0};
	for (unsigned i = 0; i < from->count && rc == 0; i++)
		rc = segments_add(to, &from->at[i]);
	return rc;
}

int manifest_copy(const struct manifest *from, struct manifest *to)
{
	int rc;

	*to = *from;
	to->log = (struct segments){0};
	rc = segments_copy(&from->checkpoint, &to->checkpoint);
	if (rc == 0)
		rc = segments_copy(&from->log, &to->log);
	if (rc)
		manifest_free(to);
	return rc;
}

/*
 * Reading.
 */

static bool store_parse(const char *hex, uint8_t store[static FORMAT_STORE])
{
	for (unsigned i = 0; i < FORMAT_STORE; i++)
		if (sscanf(hex + 2 * i, "%2" SCNx8, &store[i]) != 1)
			return false;
	return true;
}

/* Ids rise, and only the log's last segment may be without end. */
static int segment_parse(struct segments *list, uint64_t id, uint64_t end)
{
	const struct segment *last = list->count ? &list->at[list->count - 1] : NULL;

	if ((last && (last->id >= id || last->end == 0)) || (end && end < HEADER))
		return -EBADMSG;
	return segments_add(list, &(struct segment){.id = id, .end = end});
}

static int line_parse(const char *line, struct manifest *out)
{
	char hex[2 * FORMAT_STORE + 1];
	uint64_t id, end;

	if (sscanf(line, "store %32[0-9a-f]", hex) == 1)
		return strlen(hex) == 2 * FORMAT_STORE && store_parse(hex, out->store) ? 0 : -EBADMSG;
	if (sscanf(line, "next %" SCNu64, &out->next) == 1 || sscanf(line, "since %" SCNu64, &out->since) == 1)
		return 0;
	if (sscanf(line, "checkpoint %" SCNu64 " %" SCNu64, &id, &end) == 2)
		return end ? segment_parse(&out->checkpoint, id, end) : -EBADMSG;
	if (sscanf(line, "log %" SCNu64 " %" SCNu64, &id, &end) == 2)
		return segment_parse(&out->log, id, end);
	return -EBADMSG;
}

static int lines_parse(const char *text, size_t len, struct manifest *out)
{
	char line[128];
	int rc = 0;

	while (len && rc == 0) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;

		if (!end || n >= sizeof(line))
			return -EBADMSG;
		memcpy(line, text, n);
		line[n] = '\0';
		rc = line_parse(line, out);
		text += n + 1;
		len -= n + 1;
	}
	return rc;
}

/* The last line has the checksum of all before it. */
#define SUM_LEN (sizeof("checksum 0123456789abcdef\n") - 1)

int manifest_parse(const char *text, size_t len, struct manifest *out, const char **why)
{
	char first[32] = "", sum[SUM_LEN + 1];
	unsigned format;
	int n = 0, rc;

	*out = (struct manifest){0};
	memcpy(first, text, MIN(len, sizeof(first) - 1));
	*why = "it does not begin as one";
	if (sscanf(first, "rdmad-log %u%n", &format, &n) != 1 || first[n] != '\n' || !format)
		return -EBADMSG;
	*why = "a newer rdmad has written it";
	if (format > FORMAT_VERSION)
		return -EPROTONOSUPPORT;
	*why = "its checksum is wrong";
	n++;
	if (len < (size_t)n + SUM_LEN)
		return -EBADMSG;
	snprintf(sum, sizeof(sum), "checksum %016" PRIx64 "\n", format_sum(text, len - SUM_LEN, 0));
	if (memcmp(sum, text + len - SUM_LEN, SUM_LEN) != 0)
		return -EBADMSG;
	*why = "a line of it makes no sense";
	rc = lines_parse(text + n, len - (size_t)n - SUM_LEN, out);
	if (rc)
		manifest_free(out);
	return rc;
}

static int text_read(struct wal *wal, int fd, char **text, size_t *len)
{
	int64_t size = wal->files->size(wal->files->arg, fd);
	ssize_t got;

	if (size < 0)
		return wal_failed(wal, NAME, "reading", (int)size);
	if ((uint64_t)size > SIZE_MAX_BYTES)
		return -EBADMSG;
	*text = malloc((size_t)size + 1);
	if (!*text)
		return -ENOMEM;
	got = wal->files->preadv(wal->files->arg, fd, &(struct iovec){*text, (size_t)size}, 1, 0);
	if (got < 0)
		return wal_failed(wal, NAME, "reading", (int)got);
	*len = (size_t)got;
	return 0;
}

int manifest_read(struct wal *wal, struct manifest *out)
{
	int fd = wal->files->open(wal->files->arg, wal->fd, NAME, O_RDONLY), rc;
	const char *why = "it is too long";
	char *text = NULL;
	size_t len = 0;

	if (fd == -ENOENT)
		return fd;
	if (fd < 0)
		return wal_failed(wal, NAME, "opening", fd);
	rc = text_read(wal, fd, &text, &len);
	if (rc == 0)
		rc = manifest_parse(text, len, out, &why);
	if (rc == -EPROTONOSUPPORT)
		log_error(ROOM,
			  "%s/" NAME " is refused: %s. It is as it was: use that one, or move the directory away to "
			  "begin with an empty log",
			  wal->directory, why);
	if (rc == -EBADMSG)
		log_error(ROOM,
			  "%s/" NAME " is refused: %s. It names the files that count, so nothing is read without it: "
			  "put back a copy "
			  "of the directory, or move it away to begin with an empty log",
			  wal->directory, why);
	free(text);
	wal->files->close(wal->files->arg, fd);
	return rc;
}

static int each_tell(const struct segments *list, enum file_kind kind,
		     int (*each)(void *arg, const char *name, uint64_t end), void *arg)
{
	char name[NAME_SIZE];
	int rc = 0;

	for (unsigned i = 0; i < list->count && rc == 0; i++)
		rc = each(arg, segment_name(kind, list->at[i].id, name), list->at[i].end);
	return rc;
}

int wal_read_directory(const char *path, int (*each)(void *arg, const char *name, uint64_t end), void *arg)
{
	struct wal wal = {.files = &wal_files_kernel, .directory = (char *)path};
	struct manifest m = {0};
	int rc;

	wal.fd = wal.files->open(NULL, -1, path, O_RDONLY | O_DIRECTORY);
	if (wal.fd < 0)
		return wal.fd;
	rc = manifest_read(&wal, &m);
	if (rc == 0)
		rc = each_tell(&m.checkpoint, FILE_CHECKPOINT, each, arg);
	if (rc == 0)
		rc = each_tell(&m.log, FILE_LOG, each, arg);
	manifest_free(&m);
	wal.files->close(NULL, wal.fd);
	return rc;
}

/*
 * Writing.
 */

static int text_of(const struct manifest *m, char **text, size_t *len)
{
	FILE *out = open_memstream(text, len);
	bool bad;

	if (!out)
		return -ENOMEM;
	fprintf(out, "rdmad-log %u\nstore ", FORMAT_VERSION);
	for (unsigned i = 0; i < FORMAT_STORE; i++)
		fprintf(out, "%02x", m->store[i]);
	fprintf(out, "\nnext %" PRIu64 "\nsince %" PRIu64 "\n", m->next, m->since);
	for (unsigned i = 0; i < m->checkpoint.count; i++)
		fprintf(out, "checkpoint %" PRIu64 " %" PRIu64 "\n", m->checkpoint.at[i].id, m->checkpoint.at[i].end);
	for (unsigned i = 0; i < m->log.count; i++)
		fprintf(out, "log %" PRIu64 " %" PRIu64 "\n", m->log.at[i].id, m->log.at[i].end);
	bad = fflush(out) != 0;
	if (!bad)
		fprintf(out, "checksum %016" PRIx64 "\n", format_sum(*text, *len, 0));
	return fclose(out) == 0 && !bad ? 0 : -ENOMEM;
}

static int manifest_write(struct wal *wal, const struct manifest *m)
{
	char *text = NULL;
	uint64_t done;
	size_t len;
	int fd, rc = text_of(m, &text, &len);

	if (rc)
		goto out;
	fd = rc = wal->files->open(wal->files->arg, wal->fd, NAME_NEW, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0) {
		rc = wal_failed(wal, NAME_NEW, "making", fd);
		goto out;
	}
	rc = wal_write_all(wal, fd, &(struct iovec){text, len}, 1, 0, &done);
	rc = rc ? wal_failed(wal, NAME_NEW, "writing", rc) : wal_sync_file(wal, fd, NAME_NEW);
	wal->files->close(wal->files->arg, fd);
out:
	free(text);
	if (rc)
		return rc;
	rc = wal->files->rename(wal->files->arg, wal->fd, NAME_NEW, NAME);
	if (rc)
		return wal_failed(wal, NAME_NEW, "renaming", rc);
	return wal_sync_file(wal, wal->fd, ".");
}

int manifest_commit(struct wal *wal, struct manifest *next)
{
	int rc;

	next->next = wal->next_id + IDS;
	rc = manifest_write(wal, next);
	if (rc == -ENOSPC && segment_give_way(wal))
		rc = manifest_write(wal, next);
	if (rc) {
		manifest_free(next);
		return rc;
	}
	manifest_free(&wal->manifest);
	wal->manifest = *next;
	wal->segments = next->log.count;
	for (unsigned i = 0; i < wal->dropped.count; i++)
		segment_give_back(wal, FILE_LOG, wal->dropped.at[i].id);
	segments_free(&wal->dropped);
	return 0;
}
