/* write.c: the log's writer. */
#include "wal/internal.h"

/* The segment at hand is on disk, also what the manifest says of its end, before anything is written to the next
 * one. */
static int log_begin(struct wal_stream *stream, uint64_t length)
{
	struct wal *wal = stream->wal;
	struct wal_stream old = *stream;
	struct manifest next;
	int rc = wal_stream_begin(stream, length, wal->written);

	if (rc == -ENOSPC && log_give_way(wal) == 0) {
		old = *stream;
		rc = wal_stream_begin(stream, length, wal->written);
	}
	if (rc)
		return rc;
	/* The file has its name before the manifest says so. */
	rc = wal_sync_file(wal, wal->fd, ".");
	if (rc == 0)
		rc = manifest_copy(&wal->manifest, &next);
	if (rc)
		goto err_begin;
	if (next.log.count && !next.log.at[next.log.count - 1].end)
		next.log.at[next.log.count - 1].end = old.at;
	rc = segments_add(&next.log, &stream->segment);
	if (rc) {
		manifest_free(&next);
		goto err_begin;
	}
	rc = manifest_commit(wal, &next);
	if (rc)
		goto err_begin;
	wal_stream_close(&old);
	return 0;
err_begin:
	wal_stream_close(stream);
	if (!wal_error(wal))
		segment_give_back(wal, FILE_LOG, stream->segment.id);
	*stream = old;
	return rc;
}

int log_turn(struct wal_stream *stream, uint64_t length)
{
	int rc = wal_sync(stream->wal);

	if (rc)
		return rc;
	pthread_mutex_lock(&stream->wal->lock);
	rc = log_begin(stream, length);
	pthread_mutex_unlock(&stream->wal->lock);
	return rc;
}

/* A checkpoint may have what there is no room for, as where one that nothing changed under was made of a change that
 * waits: then that is on disk, and the log goes on behind it. */
static int write_give_way(struct wal *wal, uint64_t last)
{
	int rc = -ENOSPC;

	pthread_mutex_lock(&wal->lock);
	if (last <= wal->manifest.since)
		rc = wal->manifest.log.count ? log_give_way(wal) : 0;
	if (rc == 0)
		wal->written = wal->durable = last;
	pthread_mutex_unlock(&wal->lock);
	return rc;
}

int wal_write(struct wal *wal, const struct wal_record *record, unsigned n)
{
	struct wal_stream *log = &wal->log;
	uint64_t written = wal->written;
	int rc = wal_error(wal);

	must(wal->recovered);
	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++) {
		must(record[i].lsn > (i ? record[i - 1].lsn : written));
		must(record[i].type >= WAL_SET && record[i].type <= WAL_FLUSH);
	}
	rc = wal_stream_write(log, record, n, written);
	if (rc)
		return rc == -ENOSPC ? write_give_way(wal, record[n - 1].lsn) : rc;
	wal->written = record[n - 1].lsn;
	wal->bytes = log->bytes;
	wal->last = log->at > log->size / 4 * 3;
	segment_make_ahead(wal);
	return 0;
}

/* Where the segment has no room for it, the next one will say as much. */
int wal_mark(struct wal *wal)
{
	struct wal_stream *log = &wal->log;
	int rc = wal_sync(wal);

	if (rc || wal->marked == wal->written || log->fd < 0 || log->size - log->at < sizeof(struct format_record))
		return rc;
	rc = wal_stream_write(log, NULL, 0, wal->written);
	if (rc == 0)
		rc = wal_stream_sync(log);
	if (rc == 0)
		wal->marked = wal->written;
	return rc == -ENOSPC ? 0 : rc;
}

bool wal_is_removed(const struct wal *wal)
{
	return wal->log.fd >= 0 && wal->files->linked(wal->files->arg, wal->log.fd) == 0;
}

int wal_sync(struct wal *wal)
{
	uint64_t begin, took;
	int rc = wal_error(wal);

	if (rc || !wal->log.unsynced)
		return rc;
	begin = time_now();
	rc = wal_stream_sync(&wal->log);
	if (rc)
		return rc;
	took = time_now() - begin;
	wal->sync_last = took;
	wal->sync_max = MAX(wal->sync_max, took);
	wal->groups++;
	wal->durable = wal->written;
	return 0;
}
