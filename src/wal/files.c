/* files.c: the kernel's table of file operations, whose page cache is asked not to keep what it has. */
#include "wal/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int errno_of(int rc)
{
	return rc < 0 ? -errno : rc;
}

/* A directory that was made is on disk when its parent is. */
static int parent_sync(const char *path)
{
	char copy[PATH_MAX];
	int fd, rc;

	if (strlen(path) >= sizeof(copy))
		return -ENAMETOOLONG;
	fd = open(dirname(strcpy(copy, path)), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = errno_of(fsync(fd));
	close(fd);
	return rc;
}

static int kernel_open(void *arg, int directory, const char *name, int flags)
{
	int fd, rc = 0;

	(void)arg;
	if (flags & O_DIRECTORY) {
		if (flags & O_CREAT)
			rc = mkdir(name, 0700) == 0 ? parent_sync(name) : -errno;
		return rc && rc != -EEXIST ? rc : errno_of(open(name, (flags & ~O_CREAT) | O_CLOEXEC));
	}
	directory = directory < 0 ? AT_FDCWD : directory;
	flags |= O_NONBLOCK; /* for a pipe in a file's place, which may have no writer */
	fd = openat(directory, name, flags | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EINVAL && flags & O_DIRECT) /* not every file system has it */
		fd = openat(directory, name, (flags & ~O_DIRECT) | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* From begin to end: the kernel reads ahead by itself, and better than when it is told what to read. */
	if ((flags & O_ACCMODE) == O_RDONLY)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return fd;
}

static int kernel_close(void *arg, int fd)
{
	(void)arg;
	/* The arena has what is in the log: the cache has better uses. */
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return errno_of(close(fd));
}

/* A descriptor that has it: this disk wants something else of it, or the rest of a part. */
static bool direct_ends(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && flags & O_DIRECT && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static ssize_t kernel_preadv(void *arg, int fd, const struct iovec *iov, int n, uint64_t at)
{
	ssize_t got;

	(void)arg;
	do
		got = preadv(fd, iov, n, (off_t)at);
	while (got < 0 && (errno == EINTR || (errno == EINVAL && direct_ends(fd))));
	return got < 0 ? -errno : got;
}

static ssize_t kernel_pwritev(void *arg, int fd, const struct iovec *iov, int n, uint64_t at)
{
	ssize_t put;

	(void)arg;
	do
		put = pwritev(fd, iov, n, (off_t)at);
	while (put < 0 && (errno == EINTR || (errno == EINVAL && direct_ends(fd))));
	return put < 0 ? -errno : put;
}

static int kernel_allocate(void *arg, int fd, uint64_t size)
{
	int rc;

	(void)arg;
	do
		rc = fallocate(fd, 0, 0, (off_t)size);
	while (rc && errno == EINTR);
	return errno_of(rc && errno == EOPNOTSUPP ? ftruncate(fd, (off_t)size) : rc);
}

static int64_t kernel_filled(void *arg, int fd)
{
	off_t hole = lseek(fd, 0, SEEK_HOLE);

	(void)arg;
	return hole < 0 ? -errno : hole;
}

/* 512 is also what the kernel says for a driver that says nothing. Where the disk's blocks are longer, such a driver
 * may take that and write something else: zram does. A kernel or a file system that tells nothing is not trusted with
 * more than blocks. */
static unsigned kernel_alignment(void *arg, int fd)
{
	unsigned alignment = 0;

	(void)arg;
#ifdef STATX_DIOALIGN
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 && st.stx_mask & STATX_DIOALIGN)
		alignment = st.stx_dio_mem_align < WAL_ALIGNMENT ? st.stx_dio_mem_align
								 : MAX(st.stx_dio_mem_align, st.stx_dio_offset_align);
#endif
	return alignment ? alignment : WAL_BLOCK;
}

static int kernel_sync(void *arg, int fd)
{
	struct stat st;

	(void)arg;
	if (fstat(fd, &st))
		return -errno;
	return errno_of(S_ISDIR(st.st_mode) ? fsync(fd) : fdatasync(fd));
}

static int kernel_rename(void *arg, int directory, const char *from, const char *to)
{
	(void)arg;
	return errno_of(renameat(directory, from, directory, to));
}

static int kernel_unlink(void *arg, int directory, const char *name)
{
	(void)arg;
	return errno_of(unlinkat(directory, name, 0));
}

static int64_t kernel_size(void *arg, int fd)
{
	struct stat st;

	(void)arg;
	return fstat(fd, &st) ? -errno : st.st_size;
}

static int kernel_linked(void *arg, int fd)
{
	struct stat st;

	(void)arg;
	return fstat(fd, &st) ? -errno : (int)st.st_nlink;
}

static int kernel_lock(void *arg, int fd)
{
	(void)arg;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return errno == EWOULDBLOCK ? -EBUSY : -errno;
}

static int kernel_list(void *arg, int directory, void (*each)(void *to, const char *name), void *to)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int rc = dir ? 0 : -errno;

	(void)arg;
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	for (errno = 0; (entry = readdir(dir)); errno = 0)
		each(to, entry->d_name);
	rc = -errno;
	closedir(dir);
	return rc;
}

struct room {
	int directory;
	int64_t bytes;
};

/* Files kept for people are no room. */
static void room_add(void *to, const char *name)
{
	struct room *room = to;
	enum file_kind kind;
	struct stat st;
	uint64_t id;

	if (segment_name_parse(name, &kind, &id) && kind == FILE_DAMAGED)
		return;
	if (fstatat(room->directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
		room->bytes += (int64_t)st.st_blocks * 512;
}

static int64_t kernel_room(void *arg, int directory)
{
	struct room room = {.directory = directory};
	struct statvfs fs;
	int rc = kernel_list(arg, directory, room_add, &room);

	if (rc == 0)
		rc = errno_of(fstatvfs(directory, &fs));
	if (rc == 0 && !fs.f_blocks) /* a file system in memory that has no end, or one that does not say */
		rc = -EOPNOTSUPP;
	return rc ? rc : room.bytes + (int64_t)(fs.f_bavail * fs.f_frsize);
}

const struct wal_files wal_files_kernel = {
	.open = kernel_open,
	.close = kernel_close,
	.preadv = kernel_preadv,
	.pwritev = kernel_pwritev,
	.allocate = kernel_allocate,
	.filled = kernel_filled,
	.alignment = kernel_alignment,
	.sync = kernel_sync,
	.rename = kernel_rename,
	.unlink = kernel_unlink,
	.size = kernel_size,
	.linked = kernel_linked,
	.lock = kernel_lock,
	.room = kernel_room,
	.list = kernel_list,
};
