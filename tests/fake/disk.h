/*
 * disk.h: a disk in memory for the log, as bad as one may be. What was not synced is kept apart: at a crash a random part of it, in
 * sectors of 512 bytes and in random order, reaches the disk, and a random part of the names that were made, changed and removed.
 * Calls can be made to fail, and everything is the same again for the same seed.
 */
#ifndef TESTS_FAKE_DISK_H
#define TESTS_FAKE_DISK_H

#include "wal/wal.h"

struct disk;

struct disk *disk_create(uint64_t seed);
void disk_destroy(struct disk *disk);

/* Its table for struct wal_config. */
const struct wal_files *disk_files(struct disk *disk);

/* The n-th call from now on, 1 the next one, fails with `error`, and with `after` all behind it. One that writes may have written a
 * part. A sync that fails has put a part on the disk and forgets the rest, as the kernel does. 0: none fails. */
void disk_fail(struct disk *disk, unsigned n, int error, bool after);
/* As that, of syncs alone. */
void disk_fail_sync(struct disk *disk, unsigned n, int error);
/* So many bytes in all files. UINT64_MAX: any. */
void disk_limit(struct disk *disk, uint64_t bytes);
uint64_t disk_used(const struct disk *disk);
/* What changes anything answers -EROFS. */
void disk_read_only(struct disk *disk, bool on);
unsigned disk_calls(const struct disk *disk);
unsigned disk_syncs(const struct disk *disk);

/* The process is gone: its descriptors are closed. */
void disk_kill(struct disk *disk);
/* The machine is gone. */
void disk_crash(struct disk *disk);

/* A file's bytes and length, which may be changed and be less for a while; NULL: there is none. */
unsigned char *disk_file(struct disk *disk, const char *name, size_t **len);
/* Each file's name. */
void disk_each(struct disk *disk, void (*each)(void *to, const char *name), void *to);
/* Open descriptors. */
unsigned disk_open_files(const struct disk *disk);

#endif
