/*
 * log: the change log on disk and its checkpoints: segments of records, a manifest that names them, the writer's groups
 * and the reader. It knows files only: no store, no network, no loop of its own, and of threads only one that reads
 * ahead while wal_recover() or wal_read_file() runs. rdmad-log(7) has the format to the byte.
 *
 * What is promised: after wal_sync() returned 0, all that was written before it is found by the next wal_recover(),
 * whatever happens to the process or the machine, if the disk keeps what it says it has. What was written and not
 * synced is found up to some record, or not at all: what is found is always a prefix of what was written. A torn tail
 * is cut; damage to what was synced is told from it and refused (-EBADMSG), unless the configuration says to go on with
 * the prefix.
 *
 * An fsync that failed is never tried again: the kernel marks the pages clean, and a second one would lie. After such
 * an error every call that writes answers it again.
 *
 * Threads: one writes (wal_write, wal_sync), one makes checkpoints (wal_checkpoint_*); they may be two, at the same
 * time. wal_get_info() from any. All else before they begin or after they end.
 */
#ifndef RDMAD_WAL_H
#define RDMAD_WAL_H

#include "base/base.h"

#include <sys/uio.h>

#define WAL_KEY_MAX 4095
#define WAL_NEVER UINT64_MAX
#define WAL_BLOCK 4096
#define WAL_ALIGNMENT 512 /* of memory that most disks take past the page cache */
#define WAL_SEGMENT_MIN (64 * KIB)
#define WAL_GAP (1ull << 32) /* numbers that a loss may have used */
#define WAL_GROUP_MAX 1024   /* records of one wal_write() */

/* Types above 127 are passed over by a reader that does not know them; what is unknown below is refused. */
enum wal_type { WAL_SET = 1, WAL_DELETE, WAL_EXPIRE, WAL_FLUSH };
#define WAL_EVICTED 1 /* flag of a DELETE: no client asked for it */
/* Flag: the record with the next LSN belongs to the same commit, all of which counts, or nothing. wal_recover() tells
 * records of a commit that has no end as well: its reader drops what is followed by another LSN, or by nothing. */
#define WAL_MORE 2

struct wal_record {
	uint64_t lsn;     /* rises from record to record; of a checkpoint's: the version of the item */
	uint64_t expires; /* CLOCK_REALTIME in microseconds; WAL_NEVER. Of SET and EXPIRE */
	uint64_t version; /* of EXPIRE: what it applies to; else 0 */
	enum wal_type type;
	uint8_t flags;
	uint16_t key_len; /* 0 of FLUSH alone */
	const void *key;
	const void *value; /* of SET */
	uint64_t value_len;
	uint32_t item_flags; /* of SET: attributes of the item, of no meaning here */
	uint8_t item_type;
};

/*
 * The seam: what is asked of the kernel, in terms of its calls: a result or -errno. Of a log that is
 * recovered they come from two threads, one after the other. Tests put a disk here that loses, tears and fails.
 */
struct wal_files {
	void *arg;
	/* directory < 0: the name is a path; with O_DIRECTORY and O_CREAT, of a directory that is made where there is
	 * none. With O_DIRECT all that is read or written is in whole blocks of WAL_BLOCK bytes, and alignment() is
	 * that of memory. */
	int (*open)(void *arg, int directory, const char *name, int flags);
	int (*close)(void *arg, int fd);
	ssize_t (*preadv)(void *arg, int fd, const struct iovec *iov, int n, uint64_t at);
	ssize_t (*pwritev)(void *arg, int fd, const struct iovec *iov, int n, uint64_t at);
	/* Gives the file this size, and room on the disk for that; what was not written reads as zeros. */
	int (*allocate)(void *arg, int fd, uint64_t size);
	/* Bytes from its begin that were written at some time: a sync after they are written again has no metadata to
	 * write. */
	int64_t (*filled)(void *arg, int fd);
	/* The alignment of memory for O_DIRECT. A write that is refused nevertheless is done without. */
	unsigned (*alignment)(void *arg, int fd);
	int (*sync)(void *arg, int fd); /* fdatasync of a file, fsync of a directory */
	int (*rename)(void *arg, int directory, const char *from, const char *to);
	int (*unlink)(void *arg, int directory, const char *name);
	int64_t (*size)(void *arg, int fd);
	int (*linked)(void *arg, int fd); /* how many names it has */
	int (*lock)(void *arg, int fd);   /* one process: -EBUSY */
	/* Bytes that the files in the directory have, but for damaged ones, and can have more; negative: that is not
	 * known. */
	int64_t (*room)(void *arg, int directory);
	/* Each name in the directory. */
	int (*list)(void *arg, int directory, void (*each)(void *to, const char *name), void *to);
};
extern const struct wal_files wal_files_kernel;

struct wal_config {
	const char *directory; /* made with mode 0700 where there is none; its parent must be there */
	/* Bytes of a segment's file, WAL_SEGMENT_MIN at least. A longer record has one of its own length; where the
	 * disk has room for few, they are shorter, which is logged. */
	uint64_t segment;
	uint64_t given_least;          /* numbers up to this one may have been given out by others */
	bool recover_prefix;           /* damage: go on with what comes before it */
	const struct wal_files *files; /* NULL: the kernel's */
};

struct wal;

/* Opens or makes the directory, locks it and reads the manifest. -EBUSY: another process has it; -EBADMSG: the manifest
 * is damaged; -EPROTONOSUPPORT: a newer format. Logged, with the file's name and what to do. */
int wal_open(const struct wal_config *config, struct wal **out);
/* Closes without a sync: wal_sync() first. */
void wal_close(struct wal *wal);

/* The receiver of what is found. Records of a checkpoint come first, then those of the log by their LSNs; a key's may
 * come twice. */
struct wal_reader {
	void *arg;
	/* A SET whose value is longer than 64 KiB: where its value is to be, so that it is not copied again. NULL in
	 * *value: it is not wanted. Then record() with that value, NULL too, or, where its checksum is wrong and it is
	 * not NULL, drop(). 0 or -errno, which ends all. */
	int (*place)(void *arg, const struct wal_record *record, void **value);
	void (*drop)(void *arg, void *value);
	int (*record)(void *arg, const struct wal_record *record); /* key and value are the reader's until it returns */
	bool (*again)(void *arg); /* behind the last one: whether all are to be told once more. NULL: never */
	void (*progress)(void *arg, uint64_t done, uint64_t total); /* bytes; once in some 64 MiB. NULL: not wanted */
};

struct wal_found {
	uint64_t last; /* highest LSN that was found, also as a checkpoint's or a COMMIT's; 0: none */
	/* Changes are to have numbers above this one, which is far above the last, and above those of changes that were
	 * lost, also where nothing else is left of them: it is on disk before wal_recover() returns, but where the disk
	 * has no room for a segment. */
	uint64_t given;
	uint64_t records, bytes;
	uint64_t items; /* of the records, those of a checkpoint, which came first */
	uint64_t cut;   /* bytes of a torn tail that were cut, as far as is known */
	uint64_t lost;  /* bytes of records behind damage */
};

/* Once, before anything is written. -EBADMSG: damage, logged with file and offset; or what the reader answered.
 * Afterwards the log is ready to be written, in a new segment; where the disk is full `last` of wal_get_info() says so,
 * and the first wal_write() that finds room begins that. */
int wal_recover(struct wal *wal, const struct wal_reader *reader, struct wal_found *found);

/* Hand records to the kernel, in the order of their LSNs, each higher than all before. Values are not copied; nothing
 * of `record` is needed any more when it returns. -ENOSPC: the disk is full; -ENOMEM: no memory for what is copied:
 * nothing was written and it may be tried again. Any other error is for ever. What has no room and is in the checkpoint
 * is on disk, and answers 0. */
int wal_write(struct wal *wal, const struct wal_record *record, unsigned n);
/* All that was written is on disk. Where nothing was written since, nothing is done. Errors are for ever. */
int wal_sync(struct wal *wal);
/* As wal_sync(), and so that the log itself says so behind its last record: then damage to that is told from a torn
 * tail. For when nothing more comes for a while, as else the next group says it; once is enough. */
int wal_mark(struct wal *wal);
/* The file that is written to was removed: nothing of it will be found. */
bool wal_is_removed(const struct wal *wal);
/* Whether the disk has room for another whole segment, which is made unless there is one: 0, -ENOSPC; others are for
 * ever. */
int wal_room(struct wal *wal);

/* A checkpoint is all items that there are; it may be fuzzy, as what changes meanwhile is in the log. begin() before
 * the first item is looked at, with the LSN of a change that the first look finds made, as all before it; when end()
 * returned 0, segments of the log whose records all came before that are given back for new ones, and wal_recover()
 * tells none of these records.
 *
 * What the walk saw may be younger than what the log has on disk, and what it did not see was perhaps deleted by a
 * change that is not there yet: so `seen` is the highest LSN that any change had when the last item had been looked at.
 * -EAGAIN: the log does not have all up to there on disk yet; nothing is lost, call again when it has. Where that is
 * `since`, nothing has changed meanwhile: then it needs nothing of the log, also where that lacks the last changes for
 * want of room. -ENOSPC: as of wal_write(), call again or abandon it. */
int wal_checkpoint_begin(struct wal *wal, uint64_t since);
int wal_checkpoint_write(struct wal *wal, const struct wal_record *record, unsigned n);
int wal_checkpoint_end(struct wal *wal, uint64_t seen);
void wal_checkpoint_abandon(struct wal *wal); /* its files go */

struct wal_info {
	uint64_t written, durable; /* LSNs */
	uint64_t groups;           /* syncs that had something to do */
	uint64_t bytes;            /* written to the log, with headers */
	uint64_t checkpoint_bytes, checkpoints;
	uint64_t log_bytes;       /* since the last checkpoint began */
	uint64_t segments, spare; /* files of the log; those kept for new ones */
	uint64_t segment;         /* bytes of one */
	uint64_t sync_max_ns, sync_last_ns;
	uint64_t lost; /* as wal_recover() has told */
	/* no room for the segment after this one: time to refuse changes and to make room, before wal_write() says
	 * -ENOSPC */
	bool full;
	bool last; /* and of this one a quarter is left at most: it is for changes that were taken */
	int error; /* the first that is for ever */
};
void wal_get_info(const struct wal *wal, struct wal_info *out);

/* For people: reads the MANIFEST of a directory, and tells each file that it names and where its records end, 0: not
 * known; each() answers 0 or -errno, which ends all. 0; -ENOENT: there is none; others are logged. Reads one segment's
* file, which no process writes, and tells each record. 0; -EBADMSG: damage at *at; torn tails are no damage. */
int wal_read_directory(const char *path, int (*each)(void *arg, const char *name, uint64_t end), void *arg);
int wal_read_file(const char *path,
		  int (*each)(void *arg, uint64_t at, const struct wal_record *record, const char *type), void *arg,
		  uint64_t *at);

#endif
