/*
 * read.c: recovery, and a torn tail told from damage. A segment that was closed has to be whole up to its end, which
 * the manifest says, as it was on disk before the next one was begun. In the one that was being written the records end
 * with the first that is not valid; if a COMMIT behind it says that something was durable which is not there, that is
 * damage, else what a crash has torn.
 */
#include "wal/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#define PROGRESS (64 * MIB)
#define CUT 1 /* an answer: damage, and the records end before it, as the configuration wants */

struct reading {
	struct wal *wal;
	const struct wal_reader *reader;
	struct wal_found *found;
	struct input input;
	char *path;
	enum format_kind kind;
	uint64_t last;  /* LSN of the log */
	uint64_t since; /* records of the log up to here are not told */
	uint64_t group_end;
	/* In the segment at hand: what comes before `safe` was durable when a later group was written. `next_*`: what
	 * becomes so next. */
	uint64_t safe, next_safe, next_safe_lsn;
	bool ended;     /* the checkpoint */
	uint64_t given; /* the highest in a header */
	uint64_t lost;  /* bytes of records behind the damage, as far as is known */
	uint64_t done, told, total;
};

/* Wanted by the reader that the caller gave; a reader of our own between it and the file knows more. */
static bool record_wanted(const struct reading *r, const struct wal_record *record)
{
	return r->kind == FORMAT_CHECKPOINT || (record->lsn > r->since && record->lsn > r->last);
}

static int reading_place(void *arg, const struct wal_record *record, void **value)
{
	struct reading *r = arg;

	*value = NULL;
	return r->reader->place && record_wanted(r, record) ? r->reader->place(r->reader->arg, record, value) : 0;
}

static void reading_drop(void *arg, void *value)
{
	struct reading *r = arg;

	r->reader->drop(r->reader->arg, value);
}

/* Records before a checkpoint's damage are of no use: keys would be missing anywhere. */
static int segment_damaged(struct reading *r, uint64_t at, const char *why)
{
	if (r->kind == FORMAT_CHECKPOINT)
		log_error(ROOM,
			  "%s: damage at %" PRIu64
			  ": %s. A checkpoint is of use as a whole only: put back a copy of the "
			  "directory, or move it away to begin with an empty log",
			  r->path, at, why);
	else if (r->wal->recover_prefix)
		log_warn(ROOM,
			 "%s: damage at %" PRIu64
			 ": %s. As log.recover is \"prefix\", it goes on with what comes before "
			 "it, up to LSN %" PRIu64,
			 r->path, at, why, MAX(r->last, r->since));
	else
		log_error(ROOM,
			  "%s: damage at %" PRIu64 ": %s. What comes before it, up to LSN %" PRIu64
			  ", can be had with log.recover = \"prefix\"; what comes after it is lost then",
			  r->path, at, why, MAX(r->last, r->since));
	return r->kind == FORMAT_LOG && r->wal->recover_prefix ? CUT : -EBADMSG;
}

/*
 * Records. 1: taken; 0: no writer would have put it there.
 */

static int record_tell(struct reading *r, const struct wal_record *record, uint64_t bytes)
{
	int rc = r->reader->record(r->reader->arg, record);

	r->found->records++;
	r->found->bytes += bytes;
	return rc ? rc : 1;
}

static int take_item(struct reading *r, const struct found_record *f, uint64_t at)
{
	if (r->ended)
		return 0;
	if (f->header.type == FORMAT_CHECKPOINT_END) {
		r->ended = f->header.version == r->found->items;
		return r->ended;
	}
	if (!format_is_set(&f->header))
		return f->header.type == FORMAT_COMMIT || f->header.type >= FORMAT_TYPE_IGNORED;
	r->found->items++;
	r->found->last = MAX(r->found->last, f->record.lsn);
	return record_tell(r, &f->record, r->input.at - at);
}

static int take_change(struct reading *r, const struct found_record *f, uint64_t at)
{
	bool is_wanted = record_wanted(r, &f->record);

	if (f->header.type == FORMAT_COMMIT) {
		r->group_end = at + f->header.expires;
		if (f->header.version >= r->next_safe_lsn) {
			r->safe = r->next_safe;
			r->next_safe = at;
			r->next_safe_lsn = r->last;
		}
		return f->header.version <= r->last;
	}
	if (f->header.type >= FORMAT_TYPE_IGNORED)
		return 1;
	if (f->header.type == FORMAT_CHECKPOINT_END || f->header.lsn <= r->last)
		return 0;
	r->last = f->header.lsn;
	return is_wanted ? record_tell(r, &f->record, r->input.at - at) : 1;
}

static int record_take(struct reading *r, const struct found_record *f, uint64_t at)
{
	int rc;

	if (f->header.type >= FORMAT_TYPES && f->header.type < FORMAT_TYPE_IGNORED)
		return log_fail(-EPROTONOSUPPORT, ROOM,
				"%s: a record of type %u at %" PRIu64
				", which this rdmad does not know: use the one that has written it",
				r->path, f->header.type, at);
	rc = r->kind == FORMAT_LOG ? take_change(r, f, at) : take_item(r, f, at);
	if (rc == 0)
		r->input.at = at;
	return rc;
}

/* Up to the limit or the first that is not valid: input.at. */
static int records_read(struct reading *r)
{
	const struct wal_reader own = {.arg = r, .place = reading_place, .drop = reading_drop};
	struct found_record f;
	int rc;

	do {
		uint64_t at = r->input.at;

		rc = input_next(&r->input, &own, &f);
		if (rc == 1)
			rc = record_take(r, &f, at);
		r->done += r->input.at - at;
		if (r->done - r->told >= PROGRESS) {
			r->told = r->done;
			if (r->reader->progress)
				r->reader->progress(r->reader->arg, r->done, MAX(r->done, r->total));
		}
	} while (rc == 1);
	return rc;
}

/*
 * Segments.
 */

/*
 * What a process that died has handed to the kernel was read, and is not on disk yet; where a sync of that process
 * failed, a sync alone would not bring it there, as the kernel holds those pages for written. So what is not known to
 * be on disk is written again: in whole blocks, as the disk wants them; what they have in front of it, and behind its
 * end, is written as it was read.
 */
static int tail_write(struct reading *r, const struct segment *s)
{
	struct wal *wal = r->wal;
	struct input *input = &r->input;
	uint64_t end = block_end(s->end), done, piece;
	char name[NAME_SIZE];
	int fd = wal->files->open(wal->files->arg, wal->fd, segment_name(FILE_LOG, s->id, name), O_RDWR | O_DIRECT);
	int rc = 0;

	if (fd < 0)
		return wal_failed(wal, name, "opening", fd);
	for (input->at = block_of(r->safe); input->at < s->end && rc == 0; input->at += piece) {
		rc = input_fill(input, (size_t)MIN(INPUT_PIECE, s->end - input->at));
		piece = MIN(end, input->buffer_at + input->have) - input->at;
		if (rc == 0)
			rc = wal_write_all(wal, fd, &(struct iovec){(void *)input_here(input), (size_t)piece}, 1,
					   input->at, &done);
	}
	rc = rc ? wal_failed(wal, name, "writing the last records again", rc) : wal_sync_file(wal, fd, name);
	wal->files->close(wal->files->arg, fd);
	return rc;
}

/* The segment that was being written: its end is where its records end. */
static int open_end(struct reading *r, struct segment *s)
{
	struct input *input = &r->input;
	uint64_t durable, end;
	int rc = input_look_on(input, &durable, &end);

	input_settle(input);
	if (rc)
		return rc;
	end = MAX(MAX(end, r->group_end), input->at);
	if (durable > r->last) {
		r->lost = end - input->at;
		return segment_damaged(r, input->at,
				       "a record is not valid, and one behind it says that it was on disk");
	}
	if (end > input->at) {
		log_warn(ROOM,
			 "%s: the last changes are torn: %" PRIu64 " bytes from %" PRIu64
			 " on are cut, behind LSN %" PRIu64
			 ". That is what a crash does to changes that were not on disk yet; damage to the last ones "
			 "that were on disk "
			 "looks the same",
			 r->path, end - input->at, input->at, r->last);
		r->found->cut += end - input->at;
	}
	s->end = input->at;
	return tail_write(r, s);
}

static int header_fits(struct reading *r, struct segment *s, bool first)
{
	const struct format_header *h = &r->input.header;

	if (memcmp(h->store, r->wal->manifest.store, sizeof(h->store)) != 0 || h->id != s->id ||
	    h->kind != (uint32_t)r->kind)
		return segment_damaged(r, 0, "its header is that of another segment");
	s->before = h->before;
	if (r->kind == FORMAT_LOG)
		r->given = MAX(r->given, h->given);
	if (r->kind == FORMAT_LOG && first)
		r->last = MAX(r->last, h->before);
	if (r->kind == FORMAT_LOG && h->before > r->last)
		return segment_damaged(r, 0, "the segment before it has ended too early");
	return 0;
}

/* A mark alone is all that is missing: a change has its COMMIT in front of it, which says where its group ends. */
static bool mark_damaged(const struct reading *r, const struct segment *s)
{
	uint64_t at = r->input.at;

	if (r->kind != FORMAT_LOG || s->end - at != sizeof(struct format_record) || r->group_end > at)
		return false;
	log_warn(ROOM, "%s: damage at %" PRIu64 ", to a mark behind the last change: no change is missing", r->path,
		 at);
	return true;
}

static int opened_read(struct reading *r, struct segment *s, bool first)
{
	struct input *input = &r->input;
	int rc = header_fits(r, s, first);

	if (rc)
		return rc;
	if (s->end)
		input->limit = MIN(input->limit, s->end);
	r->group_end = 0;
	r->safe = r->next_safe = HEADER;
	r->next_safe_lsn = r->last;
	rc = records_read(r);
	if (rc)
		return rc;
	if (!s->end)
		return input->limit < input->header.size
			       ? segment_damaged(r, input->limit, "something has cut the file")
			       : open_end(r, s);
	if (input->at == s->end || mark_damaged(r, s))
		return 0;
	return segment_damaged(r, input->at, "a record is not valid that was on disk");
}

/* `end` and `before` of the segment are known then; an end of 0 behind CUT: nothing of it is kept. */
static int segment_read(struct reading *r, struct segment *s, bool first)
{
	struct wal *wal = r->wal;
	char name[NAME_SIZE];
	int rc;

	segment_name(r->kind == FORMAT_LOG ? FILE_LOG : FILE_CHECKPOINT, s->id, name);
	if (asprintf(&r->path, "%s/%s", wal->directory, name) < 0)
		return -ENOMEM;
	rc = input_open(&r->input, wal->fd, name, r->path);
	if (rc == 0) {
		rc = opened_read(r, s, first);
		if (rc == CUT) {
			r->lost += s->end ? s->end - r->input.at : 0;
			s->end = r->input.at > HEADER ? r->input.at : 0;
		}
		input_close(&r->input);
	} else if (rc == -EBADMSG || rc == -ENOENT) {
		rc = segment_damaged(r, 0, "it is no segment");
		r->lost += s->end ? s->end - HEADER : 0;
		s->end = 0;
	}
	free(r->path);
	return rc;
}

static int checkpoint_read(struct reading *r, struct manifest *m)
{
	int rc = 0;

	r->kind = FORMAT_CHECKPOINT;
	for (unsigned i = 0; i < m->checkpoint.count && rc == 0; i++)
		rc = segment_read(r, &m->checkpoint.at[i], i == 0);
	if (rc || r->ended || !m->checkpoint.count)
		return rc;
	return log_fail(-EBADMSG, ROOM,
			"%s: the checkpoint has %" PRIu64 " items and no end: put back a copy of the directory",
			r->wal->directory, r->found->items);
}

/* A segment with records that are lost: up to which number they were given out, and how many bytes of records it
 * has. What is no segment has nothing to say. */
static int lost_read(struct reading *r, const struct segment *s)
{
	struct wal *wal = r->wal;
	const struct format_header *h = &r->input.header;
	uint64_t durable, end = s->end;
	char name[NAME_SIZE];

	segment_name(FILE_LOG, s->id, name);
	if (asprintf(&r->path, "%s/%s", wal->directory, name) < 0)
		return -ENOMEM;
	if (input_open(&r->input, wal->fd, name, r->path) == 0) {
		if (memcmp(h->store, wal->manifest.store, sizeof(h->store)) == 0 && h->id == s->id)
			r->given = MAX(r->given, h->given);
		r->input.at = HEADER - 8; /* it looks behind that */
		if (!end && input_look_on(&r->input, &durable, &end))
			end = 0;
		input_close(&r->input);
	}
	r->lost += end > HEADER ? end - HEADER : 0;
	free(r->path);
	return 0;
}

/* The segments from the n-th on, of which the first may have records that are kept: all their files stay for people. */
static int lost_tell(struct reading *r, const struct segments *log, unsigned n)
{
	struct wal *wal = r->wal;
	int rc = 0;

	for (unsigned i = n; i < log->count; i++) {
		segment_keep_damaged(wal, log->at[i].id);
		if (i > n && rc == 0)
			rc = lost_read(r, &log->at[i]);
	}
	log_warn(ROOM,
		 "%s: behind the damage %" PRIu64
		 " bytes of records are lost, as far as is known, in files of the log: %u. Each "
		 "is kept as ID.damaged once nothing of it is in use",
		 wal->directory, r->lost, log->count - n);
	r->found->lost = r->lost;
	return rc;
}

/* *kept: how many segments are read at most; then, those with something in them. */
static int log_read(struct reading *r, struct manifest *m, unsigned *kept)
{
	unsigned most = MIN(*kept, m->log.count);
	int rc = 0;

	r->kind = FORMAT_LOG;
	for (*kept = 0; *kept < most && rc == 0; ++*kept)
		rc = segment_read(r, &m->log.at[*kept], *kept == 0);
	if (rc != CUT)
		return rc;
	rc = lost_tell(r, &m->log, *kept - 1);
	if (!m->log.at[*kept - 1].end)
		--*kept;
	return rc;
}

static uint64_t bytes_of(const struct segments *list, uint64_t open)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < list->count; i++)
		bytes += list->at[i].end ? list->at[i].end : open;
	return bytes;
}

static int all_read(struct wal *wal, const struct wal_reader *reader, struct wal_found *found, unsigned *kept)
{
	struct manifest *m = &wal->manifest;
	struct reading r = {.wal = wal, .reader = reader, .found = found, .since = m->since};
	int rc;

	r.total = bytes_of(&m->checkpoint, 0) + bytes_of(&m->log, wal->segment);
	rc = input_create(&r.input, wal->files, wal->segment);
	if (rc == 0)
		rc = checkpoint_read(&r, m);
	if (rc == 0)
		rc = log_read(&r, m, kept);
	input_destroy(&r.input);
	if (r.last <= r.since) /* the checkpoint has more, where the disk had no room for the log */
		*kept = 0;
	found->last = MAX(found->last, MAX(r.last, r.since));
	found->given = r.given;
	if (rc)
		return rc;
	if (reader->progress)
		reader->progress(reader->arg, r.done, r.done);
	return 0;
}

/* Segments that have nothing are named no more: else each start would leave one. */
static int segments_sift(struct wal *wal, unsigned kept)
{
	struct segments *log = &wal->manifest.log;
	unsigned n = 0;

	for (unsigned i = 0; i < log->count; i++) {
		if (i < kept && log->at[i].end > HEADER) {
			log->at[n++] = log->at[i];
			continue;
		}
		if (segments_add(&wal->dropped, &log->at[i]))
			return -ENOMEM;
	}
	log->count = n;
	return 0;
}

static int writer_begin(struct wal *wal, unsigned kept)
{
	int rc = wal_stream_create(&wal->log, wal, FORMAT_LOG, log_turn), sifted;
	struct manifest next;

	if (rc)
		return rc;
	pthread_mutex_lock(&wal->lock);
	rc = segment_ids_reserve(wal); /* by a manifest that still names the segments to be sifted out */
	sifted = segments_sift(wal, kept);
	pthread_mutex_unlock(&wal->lock);
	/* The new segment's header says what theirs do: they go when it is named, unless it needs their room. */
	if (rc == 0 && sifted == 0)
		rc = log_turn(&wal->log, 0);
	if (rc != -ENOSPC || sifted)
		return sifted ? sifted : rc;
	if (!wal->dropped.count)
		return log_turn(&wal->log, 0);
	/* The files of the segments that have nothing may be the first ones that are used again. */
	pthread_mutex_lock(&wal->lock);
	rc = manifest_copy(&wal->manifest, &next);
	if (rc == 0)
		rc = manifest_commit(wal, &next);
	pthread_mutex_unlock(&wal->lock);
	return rc ? rc : log_turn(&wal->log, 0);
}

int wal_recover(struct wal *wal, const struct wal_reader *reader, struct wal_found *found)
{
	unsigned kept = UINT_MAX; /* what the first time gives up, the second one does not find */
	int rc;

	must(!wal->recovered);
	*found = (struct wal_found){0};
	rc = all_read(wal, reader, found, &kept);
	if (rc == 0 && reader->again && reader->again(reader->arg))
		rc = all_read(wal, reader, &(struct wal_found){0}, &kept);
	if (rc)
		return rc;
	wal->written = wal->durable = wal->marked = found->last;
	wal->given = found->given = MAX(MAX(found->last, found->given) + WAL_GAP, wal->given);
	wal->segments = wal->manifest.log.count;
	wal->lost = found->lost;
	wal->log_from = -bytes_of(&wal->manifest.log, 0);
	rc = writer_begin(wal, kept);
	if (rc == -ENOSPC) { /* the first write that finds room begins the segment */
		wal->full = wal->last = true;
		rc = 0;
	}
	wal->recovered = rc == 0;
	return rc;
}

/*
 * For people.
 */

typedef int file_each(void *arg, uint64_t at, const struct wal_record *record, const char *type);

static int file_records(struct input *input, file_each *each, void *arg, uint64_t *last)
{
	struct found_record f;
	char type[16];
	int rc;

	for (;;) {
		uint64_t at = input->at;

		rc = input_next(input, NULL, &f);
		if (rc != 1)
			return rc;
		if (input->header.kind == FORMAT_LOG)
			*last = MAX(*last, f.header.lsn);
		rc = each(arg, at, &f.record, format_type_name(f.header.type, type));
		if (rc)
			return rc;
	}
}

int wal_read_file(const char *path, file_each *each, void *arg, uint64_t *at)
{
	struct input input;
	uint64_t last, durable, end;
	int rc = input_create(&input, &wal_files_kernel, UINT64_MAX);

	*at = 0;
	if (rc == 0)
		rc = input_open(&input, -1, path, path);
	if (rc)
		goto out;
	last = input.header.before;
	rc = file_records(&input, each, arg, &last);
	*at = input.at;
	if (rc == 0)
		rc = input_look_on(&input, &durable, &end);
	/* A segment of a checkpoint counts only when it is whole, so whatever is behind its end is damage. */
	if (rc == 0 &&
	    ((input.header.kind == FORMAT_LOG ? durable > last : end > 0) || input.limit < input.header.size))
		rc = -EBADMSG;
	input_close(&input);
out:
	input_destroy(&input);
	return rc;
}
