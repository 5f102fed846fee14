/*
 * segment.c: files for segments. One has its room on the disk from the beginning, and then lives on under one name
 * after the other: a file whose blocks are written already needs no metadata at an fdatasync, which makes that twice as
 * fast. Old records in it are told by the id in their checksums. The next file is made when half of a segment is left,
 * so that a disk that gets full shows in time.
 *
 * All is written past the page cache, which is not read: so there are no pages to find for it, no blocks to read first
 * because a part of them changes, and nothing that waits to be written back before a sync, neither of the log nor of
* other readers.
 */
#include "wal/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

#define TRY_EVERY MIB /* of the log, where the disk is full */

static const char *const suffix[] = {[FILE_LOG] = ".log",
				     [FILE_CHECKPOINT] = ".checkpoint",
				     [FILE_SPARE] = ".spare",
				     [FILE_NEW] = ".new",
				     [FILE_DAMAGED] = ".damaged"};

static enum file_kind file_kind(enum format_kind kind)
{
	return kind == FORMAT_LOG ? FILE_LOG : FILE_CHECKPOINT;
}

const char *segment_name(enum file_kind kind, uint64_t id, char buf[static NAME_SIZE])
{
	snprintf(buf, NAME_SIZE, "%016" PRIx64 "%s", id, suffix[kind]);
	return buf;
}

bool segment_name_parse(const char *name, enum file_kind *kind, uint64_t *id)
{
	char again[NAME_SIZE];

	if (sscanf(name, "%16" SCNx64, id) != 1)
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(suffix); i++) {
		*kind = (enum file_kind)i;
		if (strcmp(name, segment_name(*kind, *id, again)) == 0)
			return true;
	}
	return false;
}

static int name_open(struct wal *wal, const char *name, int flags)
{
	int fd = wal->files->open(wal->files->arg, wal->fd, name, O_RDWR | flags);

	return fd < 0 ? wal_failed(wal, name, flags & O_CREAT ? "making" : "opening", fd) : fd;
}

int segment_ids_reserve(struct wal *wal)
{
	struct manifest next;
	int rc;

	if (wal->next_id != wal->manifest.next)
		return 0;
	rc = manifest_copy(&wal->manifest, &next);
	return rc ? rc : manifest_commit(wal, &next);
}

/* Ids below the manifest's `next` that no segment had: one that a crash took back never comes again. */
static int id_take(struct wal *wal, uint64_t *id)
{
	int rc = segment_ids_reserve(wal);

	if (rc == 0)
		*id = wal->next_id++;
	return rc;
}

static int spare_add(struct wal *wal, uint64_t id)
{
	if (wal->spares == wal->spare_room) {
		unsigned room = wal->spare_room ? 2 * wal->spare_room : 8;
		uint64_t *spare = realloc(wal->spare, room * sizeof(*spare));

		if (!spare)
			return -ENOMEM;
		wal->spare = spare;
		wal->spare_room = room;
	}
	wal->spare[wal->spares++] = id;
	wal->full = false;
	return 0;
}

/*
 * New files.
 */

/* Make a file of its size, or nothing. */
static int file_make(struct wal *wal, const char *name, uint64_t size, int flags)
{
	int fd = name_open(wal, name, O_CREAT | O_TRUNC | flags), rc;

	if (fd < 0)
		return fd;
	rc = wal->files->allocate(wal->files->arg, fd, size);
	rc = rc ? wal_failed(wal, name, "allocating", rc) : wal_sync_file(wal, fd, name);
	if (rc == 0)
		return fd;
	wal->files->close(wal->files->arg, fd);
	return rc;
}

bool segment_give_way(struct wal *wal)
{
	char name[NAME_SIZE];

	if (!wal->spares)
		return false;
	segment_name(FILE_SPARE, wal->spare[--wal->spares], name);
	return wal->files->unlink(wal->files->arg, wal->fd, name) == 0;
}

/* The lock is held. Without room, what was taken of the disk is given back to it. */
static int spare_make(struct wal *wal)
{
	char name[NAME_SIZE], spare[NAME_SIZE];
	uint64_t id;
	int rc = id_take(wal, &id), fd;

	if (rc)
		goto out;
	segment_name(FILE_NEW, id, name);
	fd = rc = file_make(wal, name, wal->segment, 0);
	if (fd >= 0) {
		wal->files->close(wal->files->arg, fd);
		rc = wal->files->rename(wal->files->arg, wal->fd, name, segment_name(FILE_SPARE, id, spare));
		rc = rc ? wal_failed(wal, name, "renaming", rc) : spare_add(wal, id);
	}
	if (rc)
		wal->files->unlink(wal->files->arg, wal->fd, name);
out:
	wal->full = rc == -ENOSPC;
	return rc;
}

void segment_make_ahead(struct wal *wal)
{
	const struct wal_stream *log = &wal->log;

	if (wal->spares || log->at < log->size / 2 ||
	    (wal->full && log->bytes - wal->tried < MIN(TRY_EVERY, wal->segment / 4)))
		return;
	/* A checkpoint that ends has it for some syncs: that is nothing to wait for. */
	if (pthread_mutex_trylock(&wal->lock))
		return;
	if (!wal->spares)
		spare_make(wal);
	wal->tried = log->bytes;
	pthread_mutex_unlock(&wal->lock);
}

int wal_room(struct wal *wal)
{
	int rc;

	pthread_mutex_lock(&wal->lock);
	rc = wal->spares ? 0 : spare_make(wal);
	if (rc == -ENOSPC && log_give_way(wal) == 0)
		rc = wal->spares ? 0 : spare_make(wal);
	pthread_mutex_unlock(&wal->lock);
	return rc;
}

/*
 * Segments.
 */

static int spare_rename(struct wal *wal, const char *to)
{
	char from[NAME_SIZE];
	int rc;

	segment_name(FILE_SPARE, wal->spare[wal->spares - 1], from);
	rc = wal->files->rename(wal->files->arg, wal->fd, from, to);
	if (rc)
		return wal_failed(wal, from, "renaming", rc);
	wal->spares--;
	return name_open(wal, to, O_DIRECT);
}

/* A checkpoint leaves the log a spare, and needs none: it is written in large pieces, so metadata cost it little. Of a
 * file of its own length it shows what is to be in it, also when a crash leaves but a part of that. The log's takes the
 * room of spares, which it cannot be made of. */
static int file_open(struct wal *wal, enum format_kind kind, const char *name, uint64_t size)
{
	int rc;

	if (kind == FORMAT_CHECKPOINT)
		return wal->spares > 1 && size <= wal->segment ? spare_rename(wal, name)
							       : name_open(wal, name, O_CREAT | O_TRUNC | O_DIRECT);
	if (size != wal->segment) {
		while ((rc = file_make(wal, name, size, O_DIRECT)) == -ENOSPC && segment_give_way(wal))
			;
		return rc;
	}
	rc = wal->spares ? 0 : spare_make(wal);
	return rc ? rc : spare_rename(wal, name);
}

static int header_write(struct wal *wal, enum format_kind kind, const struct segment *s, uint64_t size, int fd)
{
	_Alignas(WAL_BLOCK) struct format_header header = {.kind = kind, .id = s->id, .before = s->before};
	uint64_t done;

	memcpy(header.store, wal->manifest.store, sizeof(header.store));
	if (kind == FORMAT_LOG) {
		header.size = size;
		header.given = wal->given;
	}
	format_header_seal(&header);
	return wal_write_all(wal, fd, &(struct iovec){&header, sizeof(header)}, 1, 0, &done);
}

int segment_begin(struct wal *wal, enum format_kind kind, uint64_t size, uint64_t before, struct segment *out)
{
	char name[NAME_SIZE];
	int fd, rc;

	*out = (struct segment){.before = before};
	rc = id_take(wal, &out->id);
	if (rc)
		return rc;
	segment_name(file_kind(kind), out->id, name);
	fd = file_open(wal, kind, name, size);
	if (fd < 0)
		goto err_file;
	rc = header_write(wal, kind, out, size, fd);
	if (rc) {
		wal_failed(wal, name, "writing the header", rc);
		goto err_header;
	}
	if (kind == FORMAT_LOG)
		rc = wal_sync_file(wal, fd, name);
	if (rc == 0)
		return fd;
err_header:
	wal->files->close(wal->files->arg, fd);
	fd = rc;
err_file:
	if (!wal_error(wal))
		segment_give_back(wal, file_kind(kind), out->id);
	return fd;
}

/* Spares are as many as are in use: the next checkpoint needs about as many as the last one. */
static bool spare_wanted(struct wal *wal, const char *name)
{
	unsigned most = wal->manifest.log.count + wal->manifest.checkpoint.count + 2;
	int fd = wal->files->open(wal->files->arg, wal->fd, name, O_RDONLY);
	bool wanted;

	if (fd < 0)
		return false;
	wanted = wal->spares < most && wal->files->size(wal->files->arg, fd) == (int64_t)wal->segment;
	wal->files->close(wal->files->arg, fd);
	return wanted;
}

static int damaged_open(struct wal *wal, uint64_t id, int flags)
{
	char name[NAME_SIZE];

	return wal->files->open(wal->files->arg, wal->fd, segment_name(FILE_DAMAGED, id, name), flags);
}

void segment_keep_damaged(struct wal *wal, uint64_t id)
{
	int fd = damaged_open(wal, id, O_RDWR | O_CREAT);

	if (fd < 0)
		log_warn(ROOM, "%s: a damaged file of the log will be used again: cannot keep it: %s", wal->directory,
			 strerror(-fd));
	else
		wal->files->close(wal->files->arg, fd);
}

void segment_give_back(struct wal *wal, enum file_kind kind, uint64_t id)
{
	char name[NAME_SIZE], spare[NAME_SIZE];
	int rc, damaged = kind == FILE_LOG ? damaged_open(wal, id, O_RDONLY) : -1;

	segment_name(kind, id, name);
	if (damaged >= 0) {
		wal->files->close(wal->files->arg, damaged);
		rc = wal->files->rename(wal->files->arg, wal->fd, name, segment_name(FILE_DAMAGED, id, spare));
	} else if (kind != FILE_NEW && spare_wanted(wal, name)) {
		rc = kind == FILE_SPARE
			     ? 0
			     : wal->files->rename(wal->files->arg, wal->fd, name, segment_name(FILE_SPARE, id, spare));
		if (rc == 0 && spare_add(wal, id) == 0)
			return;
	} else {
		rc = wal->files->unlink(wal->files->arg, wal->fd, name);
	}
	if (rc && rc != -ENOENT)
		log_warn(ROOM, "%s/%s is needed no more and stays: %s", wal->directory, name, strerror(-rc));
}

struct tidy {
	struct wal *wal;
	struct stray {
		enum file_kind kind;
		uint64_t id;
	} * at;
	unsigned count, room;
	int rc;
};

/* They are collected first, as a directory that changes is not listed reliably. */
static void tidy_collect(void *to, const char *name)
{
	struct tidy *t = to;
	struct stray s;

	if (!segment_name_parse(name, &s.kind, &s.id) || s.kind == FILE_DAMAGED ||
	    (s.kind == FILE_LOG && segments_have(&t->wal->manifest.log, s.id)) ||
	    (s.kind == FILE_CHECKPOINT && segments_have(&t->wal->manifest.checkpoint, s.id)))
		return;
	if (t->count == t->room) {
		unsigned room = t->room ? 2 * t->room : 16;
		struct stray *at = realloc(t->at, room * sizeof(*at));

		if (!at) {
			t->rc = -ENOMEM;
			return;
		}
		t->at = at;
		t->room = room;
	}
	t->at[t->count++] = s;
}

int segments_tidy(struct wal *wal)
{
	struct tidy t = {.wal = wal};
	int rc = wal->files->list(wal->files->arg, wal->fd, tidy_collect, &t);

	if (rc)
		wal_failed(wal, ".", "listing", rc);
	else
		rc = t.rc;
	for (unsigned i = 0; i < t.count && rc == 0; i++)
		segment_give_back(wal, t.at[i].kind, t.at[i].id);
	free(t.at);
	return rc;
}
