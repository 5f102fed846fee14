/*
 * internal.h: what the files of the room share.
 *
 * A log is a directory: segments of the log in order, the segments of at most one checkpoint, spare files for new
 * segments, and the MANIFEST, which says which of them count. A file that it does not name has nothing that was
 * promised.
 */
#ifndef RDMAD_WAL_INTERNAL_H
#define RDMAD_WAL_INTERNAL_H

#include "wal/format.h"
#include "wal/wal.h"

#include <pthread.h>

#define ROOM "log"
#define HEADER sizeof(struct format_header)
#define NAME_SIZE 32 /* of a file in the directory */

/*
 * manifest.c
 */
struct segment {
	uint64_t id;
	uint64_t end;    /* where its records end; 0: not known, as it is, or was, being written */
	uint64_t before; /* as in its header; known when that was read or written */
};

struct segments {
	struct segment *at;
	unsigned count, room;
};

struct manifest {
	uint8_t store[FORMAT_STORE];
	uint64_t next;  /* no segment had this id, nor a higher one */
	uint64_t since; /* all of the log up to here is in the checkpoint */
	struct segments checkpoint, log;
};

int segments_add(struct segments *list, const struct segment *segment);
int segments_copy(const struct segments *from, struct segments *to);
/* Whether the list has it. */
bool segments_have(const struct segments *list, uint64_t id);
void segments_drop_first(struct segments *list, unsigned n);
void segments_free(struct segments *list);

int manifest_copy(const struct manifest *from, struct manifest *to);
void manifest_free(struct manifest *manifest);
/* 0; -ENOENT: there is none; others are logged. */
int manifest_read(struct wal *wal, struct manifest *out);
/* `next` takes the place of the log's manifest when it is on disk, else it is freed. Logged. The lock is held. */
int manifest_commit(struct wal *wal, struct manifest *next);
/* Exposed to the fuzzer: -EBADMSG, -EPROTONOSUPPORT, -ENOMEM, and why. */
int manifest_parse(const char *text, size_t len, struct manifest *out, const char **why);

/* Where the block of `at` begins, and where one begins that is not in front of it. */
static inline uint64_t block_of(uint64_t at)
{
	return at / WAL_BLOCK * WAL_BLOCK;
}

static inline uint64_t block_end(uint64_t at)
{
	return block_of(at + WAL_BLOCK - 1);
}

/*
 * stream.c: groups of records into segments, of the log and of a checkpoint.
 */
struct wal_stream {
	struct wal *wal;
	enum format_kind kind;
	/* Begin a segment with room for so many bytes of records. */
	int (*turn)(struct wal_stream *stream, uint64_t length);
	int fd; /* of the segment at hand; -1: none */
	struct segment segment;
	unsigned alignment; /* of the memory that its file takes */
	uint64_t seed;
	uint64_t size;     /* bytes that it takes */
	uint64_t at;       /* where the next group goes */
	uint64_t filled;   /* up to here its blocks were written at some time */
	uint64_t spoiled;  /* up to here there is something of a group that failed; 0: nothing */
	uint64_t unsynced; /* bytes since the last sync */
	uint64_t bytes;    /* in all */
	unsigned char *staging;
	unsigned char last[WAL_BLOCK]; /* the block of `at`, up to there */
};

int wal_stream_create(struct wal_stream *stream, struct wal *wal, enum format_kind kind,
		      int (*turn)(struct wal_stream *stream, uint64_t length));
void wal_stream_destroy(struct wal_stream *stream);
/* One group. Of a COMMIT that begins it: `last`, the LSN before it. */
int wal_stream_write(struct wal_stream *stream, const struct wal_record *record, unsigned n, uint64_t last);
int wal_stream_sync(struct wal_stream *stream);
/* Begin a segment of the list in the stream; the one before is closed by the caller. The lock is held. */
int wal_stream_begin(struct wal_stream *stream, uint64_t length, uint64_t before);
void wal_stream_close(struct wal_stream *stream);

/*
 * write.c
 */
/* As of struct wal_stream; what was written before is on disk then. */
int log_turn(struct wal_stream *stream, uint64_t length);

/*
 * checkpoint.c
 */
/* The writing thread's, with the lock held. -ENOSPC: the log has what the checkpoint lacks. */
int log_give_way(struct wal *wal);

/*
 * wal.c
 */
struct wal {
	const struct wal_files *files;
	char *directory;
	uint64_t segment;
	bool recover_prefix, recovered;
	int fd; /* of the directory */

	pthread_mutex_t lock; /* writer and checkpoints: the manifest, ids and spares */
	struct manifest manifest;
	struct segments dropped; /* that only the manifest on disk names: given back with the next one */
	uint64_t next_id;
	uint64_t *spare; /* ids */
	unsigned spare_room;
	_Atomic unsigned spares, segments;

	uint64_t given;  /* goes into the headers of the log's segments */
	uint64_t lost;   /* bytes, behind damage at the start */
	uint64_t marked; /* LSN: something behind it, or the manifest, says that it was on disk */

	struct wal_stream log, checkpoint;
	uint64_t tried; /* to make a spare: bytes of the log then */

	/* The checkpoint thread's. */
	uint64_t checkpoint_since, checkpoint_from, checkpoint_records;
	uint64_t checkpoint_highest;     /* LSN of its records */
	struct segments checkpoint_list; /* that are whole */
	bool checkpoint_open, checkpoint_whole;

	_Atomic uint64_t written, durable, groups, bytes, checkpoint_bytes, checkpoints, log_from;
	_Atomic uint64_t sync_max, sync_last;
	_Atomic bool full;
	_Atomic bool last; /* and of the log's segment a quarter is left, or less */
	_Atomic int error;
	_Atomic uint64_t full_told; /* when it was logged that there is no room; 0: never */
};

/* A call failed: logged; but for -ENOSPC it is for ever. Returns rc. */
int wal_failed(struct wal *wal, const char *name, const char *what, int rc);
/* A failure here is for ever, and never -ENOSPC. */
int wal_sync_file(struct wal *wal, int fd, const char *name);
int wal_error(const struct wal *wal);
/* All of it or -errno; *done: what was written nevertheless. Changes iov. */
int wal_write_all(struct wal *wal, int fd, struct iovec *iov, unsigned n, uint64_t at, uint64_t *done);
int wal_write_zeros(struct wal *wal, int fd, uint64_t at, uint64_t len); /* whole blocks */

/*
 * segment.c: files for segments.
 */
enum file_kind { FILE_LOG, FILE_CHECKPOINT, FILE_SPARE, FILE_NEW, FILE_DAMAGED };

/* "000000000000002a.log" */
const char *segment_name(enum file_kind kind, uint64_t id, char buf[static NAME_SIZE]);
/* Whether it is the name of a segment's file. */
bool segment_name_parse(const char *name, enum file_kind *kind, uint64_t *id);
/* A new segment's file with its header, of `size` bytes at least; its fd, and its id and `before` in *out. The lock is
 * held. The directory is not synced, a log's file is. */
int segment_ids_reserve(struct wal *wal); /* so that the next one is begun without a manifest; with the lock held */
int segment_begin(struct wal *wal, enum format_kind kind, uint64_t size, uint64_t before, struct segment *out);
/* A file of the log gets another name then, and stays, as something in it is damaged: an empty one with that name says
 * so. */
void segment_keep_damaged(struct wal *wal, uint64_t id);
/* A file that nothing names any more becomes a spare, or goes. The lock is held. */
void segment_give_back(struct wal *wal, enum file_kind kind, uint64_t id);
/* A spare's room goes to what needs less. False: there was none. The lock is held. */
bool segment_give_way(struct wal *wal);
/* All files that the manifest does not name. */
int segments_tidy(struct wal *wal);
/* There is a spare for the next segment, or no room for one. Of the thread that writes. */
void segment_make_ahead(struct wal *wal);

/*
 * read_ahead.c: a file's next pieces are read while the one before them is looked through.
 */
#define AHEAD_MOST 3u

struct ahead_piece {
	int fd;
	struct iovec to;
	uint64_t at;
	ssize_t got;
};

struct ahead {
	const struct wal_files *files;
	pthread_t thread;
	bool running;         /* there is a thread ... */
	bool alone;           /* ... or it could not be started, and will not be tried again */
	pthread_mutex_t lock; /* the rest, but for `asked`, which only its owner changes */
	pthread_cond_t changed;
	bool stop;
	struct ahead_piece piece[AHEAD_MOST]; /* a ring */
	unsigned first, asked, read;          /* not taken; of them, pieces that were read */
};

void ahead_init(struct ahead *ahead, const struct wal_files *files);
/* Ends the thread; nothing may be asked for. */
void ahead_fini(struct ahead *ahead);
/* AHEAD_MOST at a time; no file operation is called before ahead_take() of each, or ahead_drop(). False: there is no
 * thread for it, and it is read when it is needed. */
bool ahead_ask(struct ahead *ahead, int fd, struct iovec to, uint64_t at);
/* Waits for what was asked for first. True: that is what begins at `at`. *got: how many bytes, fewer where the file
 * ends, or -errno. False: nothing is asked for any more. */
bool ahead_take(struct ahead *ahead, uint64_t at, ssize_t *got);
void ahead_drop(struct ahead *ahead);
/* Read from a file `least` bytes or more, fewer where it ends. How many, or -errno. */
ssize_t read_some(const struct wal_files *files, int fd, struct iovec iov, uint64_t at, size_t least);

/*
 * input.c: a segment's records in order.
 */
struct input {
	const struct wal_files *files;
	const char *path; /* for messages */
	int fd;
	uint64_t limit; /* where the file or the records end */
	uint64_t at;    /* of the record that comes next */
	uint64_t seed;
	struct format_header header;
	unsigned char *room[1 + AHEAD_MOST]; /* a piece, and in front of it what is left of the piece before */
	unsigned current; /* of them, the one that has the buffer; the next pieces come into those behind */
	unsigned char *buffer;
	uint64_t buffer_at; /* what is at its begin */
	size_t have;
	size_t piece; /* that is read at once */
	struct ahead ahead;
	unsigned char key[WAL_KEY_MAX + 1];
};

struct found_record {
	struct format_record header;
	struct wal_record record;
};

/* Makes an input of files that are mostly of this size. */
int input_create(struct input *input, const struct wal_files *files, uint64_t size);
void input_destroy(struct input *input);
/* One file after the other. Checks its header. -EBADMSG: logged. */
int input_open(struct input *input, int directory, const char *name, const char *path);
#define INPUT_PIECE FORMAT_WHOLE_MAX
/* The next `want` bytes, INPUT_PIECE or a record without a long value at most, are in the buffer; the file must have
 * them. */
int input_fill(struct input *input, size_t want);
/* Ends reading ahead, which input_next() and input_look_on() do: other file operations may be called. */
void input_settle(struct input *input);
/* Where they are. */
const unsigned char *input_here(const struct input *input);
void input_close(struct input *input);
/* 1: a record; 0: what is at input->at is none; or -errno. place and drop as of struct wal_reader; NULL: long values
 * are not wanted. */
int input_next(struct input *input, const struct wal_reader *reader, struct found_record *out);
/* Looks behind input->at for COMMITs: the highest LSN that one says was durable, and where the groups of all of them
 * end. */
int input_look_on(struct input *input, uint64_t *durable, uint64_t *end);

#endif
