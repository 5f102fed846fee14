/*
 * stream.c: groups of records, of the log and of a checkpoint. They are written in whole blocks: the last block of the
 * group before comes again with what is behind it. A group begins with a COMMIT and never crosses the end of a segment:
 * so one that finds no room on the disk was not written at all, and one that is longer than a segment has a segment of
 * its own length.
 *
 * Small records are copied into a staging buffer. A long value goes to the disk from where it is: its gap makes it lie
 * in the file as it does in memory, so that all of its whole blocks can; what is in front of the first of them and
 * behind the last is copied. So is all of it where the disk wants memory otherwise.
 */
#include "wal/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#define VALUE_SMALL (4 * KIB) /* with key and header it has room in an empty staging buffer */
#define VALUE_LONG                                                                                                     \
	(16 * KIB) /* most of it is not copied; so long that gaps are no more than a thirtieth of what is written */
#define PIECES 64  /* that are written at once */
#define STAGING (2 * MIB)
#define FILL (2 * MIB) /* behind a small group, where nothing was written yet */

int wal_stream_create(struct wal_stream *stream, struct wal *wal, enum format_kind kind,
		      int (*turn)(struct wal_stream *stream, uint64_t length))
{
	*stream = (struct wal_stream){.wal = wal, .kind = kind, .turn = turn, .fd = -1};
	stream->staging = aligned_alloc(WAL_BLOCK, STAGING);
	return stream->staging ? 0 : -ENOMEM;
}

void wal_stream_close(struct wal_stream *stream)
{
	if (stream->fd >= 0)
		stream->wal->files->close(stream->wal->files->arg, stream->fd);
	stream->fd = -1;
}

void wal_stream_destroy(struct wal_stream *stream)
{
	if (!stream->wal)
		return;
	wal_stream_close(stream);
	free(stream->staging);
	*stream = (struct wal_stream){.fd = -1};
}

int wal_stream_begin(struct wal_stream *stream, uint64_t length, uint64_t before)
{
	uint64_t size = MAX(stream->wal->segment, block_end(HEADER + length));
	const struct wal_files *files = stream->wal->files;
	struct segment segment;
	int fd = segment_begin(stream->wal, stream->kind, size, before, &segment);
	int64_t filled;

	if (fd < 0)
		return fd;
	stream->fd = fd;
	stream->segment = segment;
	stream->seed = format_seed(stream->wal->manifest.store, stream->segment.id);
	stream->size = size;
	stream->at = HEADER;
	/* A file that cannot be asked, or is written in large pieces, is not filled. */
	filled = stream->kind == FORMAT_LOG ? files->filled(files->arg, fd) : -1;
	stream->filled = filled < 0 ? UINT64_MAX : (uint64_t)filled;
	stream->alignment = files->alignment(files->arg, fd);
	stream->spoiled = 0;
	return 0;
}

/*
 * Staging: pieces of the staging buffer and of values, each of whole blocks but for the one at the end, which grows.
 */
struct stage {
	struct wal_stream *stream;
	struct iovec piece[PIECES];
	unsigned pieces;
	uint64_t at;   /* of the piece that grows, in the file ... */
	size_t begin;  /* ... and in the staging buffer */
	size_t used;   /* of the staging buffer */
	uint64_t from; /* where the first piece goes */
	uint64_t done; /* up to here the file has something of the group */
	int rc;        /* the first that failed */
};

static uint64_t stage_end(const struct stage *s)
{
	return s->at + s->used - s->begin;
}

/* End the piece: what comes next is another one. */
static void stage_close(struct stage *s, const unsigned char *data, size_t len)
{
	if (len)
		s->piece[s->pieces++] = (struct iovec){(void *)data, len};
	s->at += len;
}

/* Write whole blocks, up to `end` in the staging buffer. */
static void stage_write(struct stage *s, size_t end)
{
	struct wal_stream *stream = s->stream;
	uint64_t done = 0;

	stage_close(s, stream->staging + s->begin, end - s->begin);
	s->begin = end;
	if (s->rc == 0)
		s->rc = wal_write_all(stream->wal, stream->fd, s->piece, s->pieces, s->from, &done);
	if (done)
		s->done = s->from + done;
	s->from = s->at;
	s->pieces = 0;
}

/* Write all but what begins a block. */
static void stage_flush(struct stage *s)
{
	size_t whole = block_of(s->used);

	stage_write(s, whole);
	memmove(s->stream->staging, s->stream->staging + whole, s->used - whole);
	s->used -= whole;
	s->begin = 0;
}

/* So many bytes in one piece. */
static unsigned char *stage_take(struct stage *s, size_t len)
{
	unsigned char *at;

	if (len > STAGING - s->used)
		stage_flush(s);
	at = s->stream->staging + s->used;
	s->used += len;
	return at;
}

static void stage_copy(struct stage *s, const unsigned char *data, uint64_t len)
{
	for (uint64_t done = 0, piece; done < len && !s->rc; done += piece) {
		if (s->used == STAGING)
			stage_flush(s);
		piece = MIN(len - done, STAGING - s->used);
		memcpy(stage_take(s, (size_t)piece), data + done, (size_t)piece);
	}
}

static void stage_value(struct stage *s, const unsigned char *value, uint64_t len)
{
	uint64_t first = -stage_end(s) % WAL_BLOCK, blocks = 0;

	if (len >= VALUE_LONG && (uintptr_t)(value + first) % s->stream->alignment == 0) {
		blocks = block_of(len - first);
		stage_copy(s, value, first);
		/* Whole blocks, which stay where they are, to where a block begins. */
		if (s->pieces + 3 > PIECES) /* the one that grows, this one, the one behind it */
			stage_flush(s);
		stage_close(s, s->stream->staging + s->begin, s->used - s->begin);
		s->begin = s->used;
		stage_close(s, value + first, (size_t)blocks);
		value += first + blocks;
		len -= first + blocks;
	}
	stage_copy(s, value, len);
}

/* The record at `at`. */
static uint16_t gap_of(uint64_t at, const struct wal_record *r)
{
	uint64_t value_at = at + sizeof(struct format_record) + r->key_len;

	return r->value_len < VALUE_LONG ? 0 : (uint16_t)(((uintptr_t)r->value - value_at) % FORMAT_GAP);
}

/* All that is in front of the value. By whole words, which the checksum reads as soon as they are written: one that
 * comes in pieces has it wait for all that was written before, to memory that the disk has just read. */
static void head_put(unsigned char *at, const struct wal_record *r, uint16_t gap)
{
	bool expires = r->type == WAL_SET || r->type == WAL_EXPIRE || (int)r->type == FORMAT_COMMIT;
	bool item = r->type == WAL_SET && (r->item_flags || r->item_type);
	struct format_record *header = (void *)at;
	unsigned char *key = at + sizeof(*header);

	header->lsn = r->lsn;
	header->lengths = (r->value_len + (item ? gap : 0)) | (uint64_t)r->key_len << 48;
	header->expires = expires ? r->expires : 0;
	header->kind = (item ? FORMAT_ITEM : (uint64_t)r->type) | (uint64_t)r->flags << 8;
	header->version =
		r->type == WAL_SET ? gap | (uint64_t)r->item_type << 16 | (uint64_t)r->item_flags << 32 : r->version;
	if (r->key_len)
		memcpy(key, r->key, r->key_len);
	memset(key + r->key_len, 0, gap);
}

static void stage_small(struct stage *s, const struct wal_record *r)
{
	size_t head = sizeof(struct format_record) + r->key_len, len = head + (size_t)r->value_len;
	unsigned char *at = stage_take(s, len);
	uint64_t sum;

	head_put(at, r, 0);
	if (r->value_len)
		memcpy(at + head, r->value, (size_t)r->value_len);
	sum = format_sum(at + sizeof(sum), len - sizeof(sum), s->stream->seed);
	memcpy(at, &sum, sizeof(sum));
}

static void stage_large(struct stage *s, const struct wal_record *r)
{
	uint16_t gap = gap_of(stage_end(s), r);
	size_t head = sizeof(struct format_record) + r->key_len + gap;
	unsigned char *at = stage_take(s, head);
	struct format_summer summer;
	uint64_t sum;

	head_put(at, r, gap);
	format_sum_begin(&summer, s->stream->seed);
	format_sum_add(&summer, at + sizeof(sum), head - sizeof(sum));
	format_sum_add(&summer, r->value, (size_t)r->value_len);
	sum = format_sum_end(&summer);
	memcpy(at, &sum, sizeof(sum));
	stage_value(s, r->value, r->value_len);
}

static void stage_record(struct stage *s, const struct wal_record *r)
{
	size_t pad;

	must(r->key_len <= WAL_KEY_MAX && r->value_len <= FORMAT_VALUE_MAX - FORMAT_GAP);
	if (r->value_len > VALUE_SMALL)
		stage_large(s, r);
	else
		stage_small(s, r);
	pad = -stage_end(s) & 7;
	if (pad)
		memset(stage_take(s, pad), 0, pad);
}

static void stage_begin(struct stage *s, struct wal_stream *stream)
{
	s->stream = stream;
	s->at = s->from = block_of(stream->at);
	s->done = stream->at;
	s->used = (size_t)(stream->at - s->at);
	s->begin = s->pieces = 0;
	s->rc = 0;
	memcpy(stream->staging, stream->last, s->used);
}

/* The rest, and zeros to the end of its last block. */
static void stage_finish(struct stage *s)
{
	size_t end = (size_t)block_end(s->used);

	memset(s->stream->staging + s->used, 0, end - s->used);
	stage_write(s, end);
}

static uint64_t group_length(uint64_t begin, const struct wal_record *record, unsigned n)
{
	uint64_t at = begin + sizeof(struct format_record);

	for (unsigned i = 0; i < n; i++)
		at += format_length(record[i].key_len, gap_of(at, &record[i]), record[i].value_len);
	return at - begin;
}

/*
 * Writing.
 */

static const char *stream_name(const struct wal_stream *stream, char buf[static NAME_SIZE])
{
	return segment_name(stream->kind == FORMAT_LOG ? FILE_LOG : FILE_CHECKPOINT, stream->segment.id, buf);
}

/* Remove what a failed group has left: it must not be taken for records behind a shorter one in its place. */
static int stream_mend(struct wal_stream *stream)
{
	struct wal *wal = stream->wal;
	char name[NAME_SIZE];
	struct stage stage;
	int rc;

	if (stream->spoiled <= stream->at)
		return 0;
	stage_begin(&stage, stream);
	stage_finish(&stage);
	rc = stage.rc;
	if (rc == 0 && stream->spoiled > stage.done)
		rc = wal_write_zeros(wal, stream->fd, stage.done, block_end(stream->spoiled) - stage.done);
	stream_name(stream, name);
	rc = rc ? wal_failed(wal, name, "writing", rc) : wal_sync_file(wal, stream->fd, name);
	if (rc == 0)
		stream->spoiled = 0;
	return rc;
}

/* Blocks that were never written cost a sync that follows a write of metadata: so a small group has many of them
 * written with it. */
static int stream_fill(struct wal_stream *stream, uint64_t end, uint64_t length)
{
	uint64_t to = end;
	int rc = 0;

	if (end <= stream->filled)
		return 0;
	if (length < FILL / 2) {
		to = MIN(end + FILL, stream->size);
		rc = wal_write_zeros(stream->wal, stream->fd, end, to - end);
	}
	if (rc == 0)
		stream->filled = to;
	return rc;
}

static int group_write(struct wal_stream *stream, const struct wal_record *record, unsigned n,
		       const struct wal_record *commit)
{
	uint64_t length = commit->expires;
	struct stage stage;

	stage_begin(&stage, stream);
	stage_record(&stage, commit);
	for (unsigned i = 0; i < n && !stage.rc; i++)
		stage_record(&stage, &record[i]);
	must(stage.rc || stage_end(&stage) == stream->at + length);
	stage_finish(&stage);
	if (stage.rc == 0)
		stage.rc = stream_fill(stream, block_end(stream->at + length), length);
	if (stage.rc) {
		stream->spoiled = stage.done;
		return stage.rc;
	}
	stream->at += length;
	memcpy(stream->last, stream->staging + block_of(stage.used), stage.used % WAL_BLOCK);
	return 0;
}

int wal_stream_write(struct wal_stream *stream, const struct wal_record *record, unsigned n, uint64_t last)
{
	struct wal_record commit = {.type = (enum wal_type)FORMAT_COMMIT, .lsn = last, .version = stream->wal->durable};
	char name[NAME_SIZE];
	int rc = 0;

	must(n <= WAL_GROUP_MAX);
	if (stream->fd >= 0)
		rc = stream_mend(stream);
	/* Where it is in the segment decides how long a group is. */
	if (rc == 0 && (stream->fd < 0 || group_length(stream->at, record, n) > stream->size - stream->at))
		rc = stream->turn(stream, group_length(HEADER, record, n));
	if (rc)
		return rc;
	commit.expires = group_length(stream->at, record, n);
	rc = group_write(stream, record, n, &commit);
	if (rc)
		return wal_failed(stream->wal, stream_name(stream, name), "writing", rc);
	stream->unsynced += commit.expires;
	stream->bytes += commit.expires;
	return 0;
}

int wal_stream_sync(struct wal_stream *stream)
{
	char name[NAME_SIZE];
	int rc;

	if (!stream->unsynced)
		return 0;
	rc = wal_sync_file(stream->wal, stream->fd, stream_name(stream, name));
	if (rc == 0)
		stream->unsynced = 0;
	return rc;
}
