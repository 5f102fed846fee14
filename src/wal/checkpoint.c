/*
 * checkpoint.c: segments of a checkpoint. They are nothing until the manifest names them, which it does when all of
 * them are on disk; with the same manifest the segments of the log that are in the checkpoint are named no more.
 */
#include "wal/internal.h"

#define DIRTY_MOST (8 * MIB) /* the log's sync does not wait behind more of a checkpoint's pages */

/* The one at hand is whole. */
static int checkpoint_close(struct wal_stream *stream)
{
	struct wal *wal = stream->wal;
	int rc = wal_stream_sync(stream);

	if (rc)
		return rc;
	stream->segment.end = stream->at;
	rc = segments_add(&wal->checkpoint_list, &stream->segment);
	if (rc == 0)
		wal_stream_close(stream);
	return rc;
}

static int checkpoint_turn(struct wal_stream *stream, uint64_t length)
{
	int rc = stream->fd >= 0 ? checkpoint_close(stream) : 0;

	if (rc)
		return rc;
	pthread_mutex_lock(&stream->wal->lock);
	rc = wal_stream_begin(stream, length, stream->wal->checkpoint_since);
	pthread_mutex_unlock(&stream->wal->lock);
	return rc;
}

int wal_checkpoint_begin(struct wal *wal, uint64_t since)
{
	int rc = wal_error(wal);

	must(wal->recovered && !wal->checkpoint_open);
	if (rc)
		return rc;
	rc = wal_stream_create(&wal->checkpoint, wal, FORMAT_CHECKPOINT, checkpoint_turn);
	if (rc)
		return rc;
	wal->checkpoint_from = wal->bytes;
	wal->checkpoint_since = MAX(since, wal->written);
	wal->checkpoint_records = wal->checkpoint_highest = 0;
	wal->checkpoint_whole = false;
	wal->checkpoint_open = true;
	return 0;
}

static int checkpoint_group(struct wal *wal, const struct wal_record *record, unsigned n)
{
	struct wal_stream *stream = &wal->checkpoint;
	int rc = wal_error(wal);

	must(wal->checkpoint_open);
	if (rc == 0)
		rc = wal_stream_write(stream, record, n, wal->checkpoint_since);
	if (rc == 0 && stream->unsynced >= DIRTY_MOST)
		rc = wal_stream_sync(stream);
	return rc;
}

int wal_checkpoint_write(struct wal *wal, const struct wal_record *record, unsigned n)
{
	uint64_t bytes = wal->checkpoint.bytes;
	int rc = checkpoint_group(wal, record, n);

	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++)
		wal->checkpoint_highest = MAX(wal->checkpoint_highest, record[i].lsn);
	wal->checkpoint_records += n;
	wal->checkpoint_bytes += wal->checkpoint.bytes - bytes;
	return 0;
}

static void segments_give_back(struct wal *wal, enum file_kind kind, const struct segments *list, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		segment_give_back(wal, kind, list->at[i].id);
}

/* The lock is held. */
static int checkpoint_commit(struct wal *wal)
{
	struct manifest old, next;
	unsigned covered = 0;
	int rc = manifest_copy(&wal->manifest, &old);

	if (rc)
		return rc;
	rc = manifest_copy(&wal->manifest, &next);
	if (rc)
		goto out;
	segments_free(&next.checkpoint);
	next.since = wal->checkpoint_since;
	/* The last segment of the log is written to; of the others some have nothing that is not in the checkpoint. */
	while (covered + 1 < next.log.count && next.log.at[covered + 1].before <= next.since)
		covered++;
	segments_drop_first(&next.log, covered);
	rc = segments_copy(&wal->checkpoint_list, &next.checkpoint);
	if (rc) {
		manifest_free(&next);
		goto out;
	}
	rc = manifest_commit(wal, &next);
	if (rc == 0) {
		segments_give_back(wal, FILE_CHECKPOINT, &old.checkpoint, old.checkpoint.count);
		segments_give_back(wal, FILE_LOG, &old.log, covered);
	}
out:
	manifest_free(&old);
	return rc;
}

/* All of the log is in the checkpoint: what comes takes its room. Numbers that a loss may have used are below that,
 * too. */
int log_give_way(struct wal *wal)
{
	struct segments old = wal->manifest.log;
	struct manifest next;
	int rc;

	if (!old.count || wal->manifest.since < MAX(wal->written, wal->given))
		return -ENOSPC;
	rc = manifest_copy(&wal->manifest, &next);
	if (rc)
		return rc;
	segments_free(&next.log);
	wal->manifest.log = (struct segments){0}; /* it is kept, as its files go when none is named */
	rc = manifest_commit(wal, &next);
	if (rc) {
		wal->manifest.log = old;
		return rc;
	}
	wal_stream_close(&wal->log);
	wal->log.unsynced = 0;
	wal->durable = wal->written;
	segments_give_back(wal, FILE_LOG, &old, old.count);
	segments_free(&old);
	return 0;
}

static void checkpoint_forget(struct wal *wal)
{
	segments_free(&wal->checkpoint_list);
	wal_stream_destroy(&wal->checkpoint);
	wal->checkpoint_open = false;
}

int wal_checkpoint_end(struct wal *wal, uint64_t seen)
{
	const struct wal_record end = {.type = (enum wal_type)FORMAT_CHECKPOINT_END,
				       .lsn = wal->checkpoint_since,
				       .version = wal->checkpoint_records};
	int rc = wal_error(wal);

	must(wal->checkpoint_open && seen >= wal->checkpoint_highest);
	if (rc == 0 && wal->durable < seen && wal->checkpoint_since < seen)
		return -EAGAIN;
	if (rc == 0 && !wal->checkpoint_whole) {
		rc = checkpoint_group(wal, &end, 1);
		if (rc == 0)
			rc = checkpoint_close(&wal->checkpoint);
		if (rc == 0) /* the files of its segments have their names before the manifest says so */
			rc = wal_sync_file(wal, wal->fd, ".");
		wal->checkpoint_whole = rc == 0;
	}
	if (rc)
		return rc;
	pthread_mutex_lock(&wal->lock);
	rc = checkpoint_commit(wal);
	pthread_mutex_unlock(&wal->lock);
	if (rc)
		return rc;
	wal->log_from = wal->checkpoint_from;
	wal->checkpoints++;
	checkpoint_forget(wal);
	return 0;
}

void wal_checkpoint_abandon(struct wal *wal)
{
	struct wal_stream *stream = &wal->checkpoint;

	if (!wal->checkpoint_open)
		return;
	if (stream->fd >= 0) {
		wal_stream_close(stream);
		/* Without memory for it the file stays until the next start. */
		(void)segments_add(&wal->checkpoint_list, &stream->segment);
	}
	/* A manifest that names them may be on disk, where a sync has failed behind it. */
	if (!wal_error(wal)) {
		pthread_mutex_lock(&wal->lock);
		segments_give_back(wal, FILE_CHECKPOINT, &wal->checkpoint_list, wal->checkpoint_list.count);
		pthread_mutex_unlock(&wal->lock);
	}
	checkpoint_forget(wal);
}
