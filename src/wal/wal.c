/* wal.c: a log's life, its errors and figures. */
#include "wal/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/random.h>

#define SEGMENTS_LEAST 8
#define FULL_EVERY (60 * TIME_S) /* that a disk without room is told of */

int wal_error(const struct wal *wal)
{
	return wal->error;
}

int wal_failed(struct wal *wal, const char *name, const char *what, int rc)
{
	uint64_t told = wal->full_told, now = time_now();
	int none = 0;

	if (rc == -ENOSPC) {
		if ((!told || now - told >= FULL_EVERY) && atomic_compare_exchange_strong(&wal->full_told, &told, now))
			log_warn(ROOM, "%s/%s: %s failed: no space is left on the disk: make room there (`df %s`)",
				 wal->directory, name, what, wal->directory);
		return rc;
	}
	log_error(ROOM, "%s/%s: %s failed: %s; %s", wal->directory, name, what, strerror(-rc),
		  rc == -EACCES || rc == -EPERM || rc == -EROFS
			  ? "this user must be able to write there (`ls -l` says who may), and the disk not be mounted "
			    "read-only"
			  : "nothing more is written, as it is not known what is on disk (`dmesg` may say more)");
	atomic_compare_exchange_strong(&wal->error, &none, rc);
	return rc;
}

int wal_sync_file(struct wal *wal, int fd, const char *name)
{
	int rc = wal->files->sync(wal->files->arg, fd);

	return rc ? wal_failed(wal, name, "syncing", rc == -ENOSPC ? -EIO : rc) : 0;
}

int wal_write_all(struct wal *wal, int fd, struct iovec *iov, unsigned n, uint64_t at, uint64_t *done)
{
	*done = 0;
	while (n) {
		ssize_t put = wal->files->pwritev(wal->files->arg, fd, iov, (int)MIN(n, IOV_MAX), at + *done);

		if (put <= 0)
			return put ? (int)put : -EIO;
		*done += (uint64_t)put;
		while (n && (size_t)put >= iov->iov_len) {
			put -= (ssize_t)iov->iov_len;
			iov++;
			n--;
		}
		if (n) {
			iov->iov_base = (char *)iov->iov_base + put;
			iov->iov_len -= (size_t)put;
		}
	}
	return 0;
}

int wal_write_zeros(struct wal *wal, int fd, uint64_t at, uint64_t len)
{
	static _Alignas(WAL_BLOCK) const unsigned char zeros[64 * KIB];
	struct iovec iov[16];
	uint64_t done = 0, put;
	int rc = 0;

	must(at % WAL_BLOCK == 0 && len % WAL_BLOCK == 0);
	while (done < len && rc == 0) {
		unsigned n = 0;

		for (uint64_t left = len - done; left && n < ARRAY_SIZE(iov); left -= iov[n++].iov_len)
			iov[n] = (struct iovec){(void *)zeros, (size_t)MIN(left, sizeof(zeros))};
		rc = wal_write_all(wal, fd, iov, n, at + done, &put);
		done += put;
	}
	return rc;
}

/*
 * Life.
 */

static int manifest_begin(struct wal *wal)
{
	struct manifest first = {0};

	if (getrandom(first.store, sizeof(first.store), 0) != (ssize_t)sizeof(first.store))
		return wal_failed(wal, "MANIFEST", "drawing an id", -errno);
	wal->next_id = 1;
	return manifest_commit(wal, &first);
}

static void segment_seen(void *to, const char *name)
{
	enum file_kind kind;
	uint64_t id;

	*(bool *)to |= segment_name_parse(name, &kind, &id) && (kind == FILE_LOG || kind == FILE_CHECKPOINT);
}

/* No segment is made before there is a manifest. */
static int manifest_missing(struct wal *wal)
{
	bool seen = false;
	int rc = wal->files->list(wal->files->arg, wal->fd, segment_seen, &seen);

	if (rc)
		return wal_failed(wal, ".", "listing", rc);
	if (!seen)
		return manifest_begin(wal);
	log_error(ROOM,
		  "%s has segments and no MANIFEST, which says which of them count: put it back, or move the directory "
		  "away to begin "
		  "with an empty log",
		  wal->directory);
	return -EBADMSG;
}

static int directory_open(struct wal *wal)
{
	const struct wal_files *files = wal->files;
	int rc = files->open(files->arg, -1, wal->directory, O_RDONLY | O_DIRECTORY | O_CREAT);

	if (rc < 0) {
		log_error(
			ROOM,
			"%s: opening the directory failed: %s; its parent must be there, and this user may write to it",
			wal->directory, strerror(-rc));
		return rc;
	}
	wal->fd = rc;
	rc = files->lock(files->arg, wal->fd);
	if (rc)
		log_error(
			ROOM, "%s: %s", wal->directory,
			rc == -EBUSY
				? "another process writes to it: one log is for one rdmad (`fuser DIRECTORY` names it)"
				: strerror(-rc));
	return rc;
}

/* A disk with room for few segments of the length that is wanted has more of a shorter one: one is written, the next is
 * made ahead, and a checkpoint frees only those before them. */
static void segment_fit(struct wal *wal)
{
	int64_t room = wal->files->room(wal->files->arg, wal->fd);
	uint64_t wanted = wal->segment;
	char has[32], is[32], was[32];

	while (room >= 0 && wal->segment > (uint64_t)room / SEGMENTS_LEAST && wal->segment / 2 >= WAL_SEGMENT_MIN)
		wal->segment = wal->segment / 2 / HEADER * HEADER;
	if (wal->segment != wanted)
		log_warn(ROOM,
			 "%s: the disk has room for %s of log: its files get %s each, instead of %s (log.segment)",
			 wal->directory, units_human_size((double)room, has),
			 units_human_size((double)wal->segment, is), units_human_size((double)wanted, was));
}

static int wal_begin(struct wal *wal)
{
	int rc = directory_open(wal);

	if (rc)
		return rc;
	segment_fit(wal);
	rc = manifest_read(wal, &wal->manifest);
	if (rc == -ENOENT)
		rc = manifest_missing(wal);
	if (rc)
		return rc;
	wal->next_id = wal->manifest.next;
	return segments_tidy(wal);
}

int wal_open(const struct wal_config *config, struct wal **out)
{
	struct wal *wal;
	int rc;

	must(config->segment >= WAL_SEGMENT_MIN);
	wal = calloc(1, sizeof(*wal));
	if (!wal)
		return -ENOMEM;
	pthread_mutex_init(&wal->lock, NULL);
	wal->files = config->files ? config->files : &wal_files_kernel;
	wal->segment = config->segment / HEADER * HEADER;
	wal->recover_prefix = config->recover_prefix;
	wal->given = config->given_least;
	wal->fd = wal->log.fd = wal->checkpoint.fd = -1;
	wal->directory = strdup(config->directory);
	rc = wal->directory ? wal_begin(wal) : -ENOMEM;
	if (rc) {
		wal_close(wal);
		return rc;
	}
	*out = wal;
	return 0;
}

void wal_close(struct wal *wal)
{
	if (!wal)
		return;
	wal_checkpoint_abandon(wal);
	wal_stream_destroy(&wal->log);
	if (wal->fd >= 0)
		wal->files->close(wal->files->arg, wal->fd);
	manifest_free(&wal->manifest);
	segments_free(&wal->dropped);
	pthread_mutex_destroy(&wal->lock);
	free(wal->spare);
	free(wal->directory);
	free(wal);
}

void wal_get_info(const struct wal *wal, struct wal_info *out)
{
	*out = (struct wal_info){
		.written = wal->written,
		.durable = wal->durable,
		.groups = wal->groups,
		.bytes = wal->bytes,
		.checkpoint_bytes = wal->checkpoint_bytes,
		.checkpoints = wal->checkpoints,
		.log_bytes = wal->bytes - wal->log_from,
		.segments = wal->segments,
		.spare = wal->spares,
		.segment = wal->segment,
		.lost = wal->lost,
		.sync_max_ns = wal->sync_max,
		.sync_last_ns = wal->sync_last,
		.full = wal->full,
		.last = wal->full && wal->last,
		.error = wal->error,
	};
}
