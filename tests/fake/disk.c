/* disk.c: see disk.h. */
#include "disk.h"

#include <fcntl.h>
#include <stdlib.h>

#include "../require.h"

#define FILES 256
#define NAMES 256
#define DESCRIPTORS 64
#define SECTOR 512
#define DIRECTORY (-2)

struct write {
	uint64_t at, len;
	unsigned char *data;
};

/* `now` is what a process reads, `disk` what a crash leaves. */
struct inode {
	unsigned char *now, *disk;
	size_t now_len, disk_len, room;
	struct write *write; /* not synced */
	unsigned writes, write_room;
};

struct name {
	char text[40];
	int inode;
};

struct names {
	struct name at[NAMES];
	unsigned count;
};

struct change {
	enum { CREATE, RENAME, UNLINK } what;
	char from[40], to[40];
	int inode;
};

struct disk {
	struct wal_files files;
	uint64_t random;
	struct inode inode[FILES];
	unsigned inodes;
	struct names now, disk;
	struct change *change; /* of names, not synced */
	unsigned changes, change_room;
	int descriptor[DESCRIPTORS]; /* inode + 1, DIRECTORY, or 0 */
	bool direct[DESCRIPTORS];
	bool locked;
	unsigned calls, syncs, fail_at, fail_sync_at;
	int error, sync_error;
	bool after;
	uint64_t limit;
	bool read_only;
	unsigned alignment;
};

static uint64_t draw(struct disk *d)
{
	d->random ^= d->random << 13;
	d->random ^= d->random >> 7;
	d->random ^= d->random << 17;
	return d->random * 0x2545f4914f6cdd1dull >> 11;
}

static int failure(struct disk *d)
{
	d->calls++;
	if (!d->fail_at || d->calls < d->fail_at || (d->calls > d->fail_at && !d->after))
		return 0;
	return -d->error;
}

/*
 * Names.
 */

static struct name *name_find(struct names *names, const char *text)
{
	for (unsigned i = 0; i < names->count; i++)
		if (strcmp(names->at[i].text, text) == 0)
			return &names->at[i];
	return NULL;
}

static void name_remove(struct names *names, const char *text)
{
	struct name *n = name_find(names, text);

	if (n)
		*n = names->at[--names->count];
}

static void name_set(struct names *names, const char *text, int inode)
{
	struct name *n = name_find(names, text);

	if (!n) {
		REQUIRE(names->count < NAMES && strlen(text) < sizeof(n->text));
		n = &names->at[names->count++];
		strcpy(n->text, text);
	}
	n->inode = inode;
}

/* One that comes to names of which an earlier change is lost changes nothing. */
static void change_apply(struct names *names, const struct change *c)
{
	const struct name *from = name_find(names, c->from);

	switch (c->what) {
	case CREATE:
		name_set(names, c->to, c->inode);
		break;
	case RENAME:
		if (!from || from->inode != c->inode)
			return;
		name_remove(names, c->from);
		name_set(names, c->to, c->inode);
		break;
	case UNLINK:
		if (from && from->inode == c->inode)
			name_remove(names, c->from);
		break;
	}
}

static void change_add(struct disk *d, struct change c)
{
	if (d->changes == d->change_room) {
		d->change_room = d->change_room ? 2 * d->change_room : 16;
		d->change = realloc(d->change, d->change_room * sizeof(*d->change));
		REQUIRE(d->change);
	}
	d->change[d->changes++] = c;
	change_apply(&d->now, &c);
}

/* Inodes without a name are free. */
static int inode_new(struct disk *d)
{
	struct inode *inode;
	bool used[FILES] = {false};
	unsigned i = 0;

	for (unsigned n = 0; n < d->now.count; n++)
		used[d->now.at[n].inode] = true;
	for (unsigned n = 0; n < d->disk.count; n++)
		used[d->disk.at[n].inode] = true;
	for (unsigned n = 0; n < d->changes; n++)
		used[d->change[n].inode] = true;
	for (unsigned n = 0; n < DESCRIPTORS; n++)
		if (d->descriptor[n] > 0)
			used[d->descriptor[n] - 1] = true;
	while (i < FILES && used[i])
		i++;
	REQUIRE(i < FILES);
	d->inodes = MAX(d->inodes, i + 1);
	inode = &d->inode[i];
	for (unsigned n = 0; n < inode->writes; n++)
		free(inode->write[n].data);
	inode->writes = 0;
	inode->now_len = inode->disk_len = 0;
	return (int)i;
}

static int descriptor_new(struct disk *d, int what)
{
	for (int i = 0; i < DESCRIPTORS; i++) {
		if (d->descriptor[i] == 0) {
			d->descriptor[i] = what;
			return i;
		}
	}
	REQUIRE(false);
	return -EMFILE;
}

static struct inode *inode_of(struct disk *d, int fd)
{
	REQUIRE(fd >= 0 && fd < DESCRIPTORS && d->descriptor[fd] > 0);
	return &d->inode[d->descriptor[fd] - 1];
}

/*
 * Bytes.
 */

static void inode_room(struct inode *inode, size_t len)
{
	size_t room = inode->room ? inode->room : 4096;

	while (room < len)
		room *= 2;
	if (room == inode->room)
		return;
	inode->now = realloc(inode->now, room);
	inode->disk = realloc(inode->disk, room);
	REQUIRE(inode->now && inode->disk);
	memset(inode->now + inode->room, 0, room - inode->room);
	memset(inode->disk + inode->room, 0, room - inode->room);
	inode->room = room;
}

static void put(unsigned char *to, size_t *to_len, const unsigned char *data, uint64_t at, uint64_t len)
{
	if (at > *to_len)
		memset(to + *to_len, 0, at - *to_len);
	memcpy(to + at, data, len);
	*to_len = MAX(*to_len, at + len);
}

static void inode_write(struct inode *inode, const unsigned char *data, uint64_t at, uint64_t len)
{
	struct write *w;

	inode_room(inode, at + len);
	put(inode->now, &inode->now_len, data, at, len);
	if (inode->writes == inode->write_room) {
		inode->write_room = inode->write_room ? 2 * inode->write_room : 16;
		inode->write = realloc(inode->write, inode->write_room * sizeof(*inode->write));
		REQUIRE(inode->write);
	}
	w = &inode->write[inode->writes++];
	*w = (struct write){.at = at, .len = len, .data = malloc(len)};
	REQUIRE(w->data);
	memcpy(w->data, data, len);
}

static void inode_forget(struct inode *inode)
{
	for (unsigned i = 0; i < inode->writes; i++)
		free(inode->write[i].data);
	inode->writes = 0;
}

static void inode_sync(struct inode *inode)
{
	for (unsigned i = 0; i < inode->writes; i++)
		put(inode->disk, &inode->disk_len, inode->write[i].data, inode->write[i].at, inode->write[i].len);
	inode_forget(inode);
}

struct sector {
	const struct write *write;
	uint64_t from, to; /* in it */
};

/* Each sector with a chance of `percent`, in any order. */
static void inode_tear(struct disk *d, struct inode *inode, unsigned percent)
{
	struct sector *sector = NULL;
	unsigned n = 0, room = 0;

	for (unsigned i = 0; i < inode->writes; i++) {
		const struct write *w = &inode->write[i];

		for (uint64_t from = 0, to; from < w->len; from = to) {
			to = MIN(w->len, (w->at + from) / SECTOR * SECTOR + SECTOR - w->at);
			if (draw(d) % 100 >= percent)
				continue;
			if (n == room) {
				room = room ? 2 * room : 64;
				sector = realloc(sector, room * sizeof(*sector));
				REQUIRE(sector);
			}
			sector[n++] = (struct sector){w, from, to};
		}
	}
	for (; n; n--) {
		unsigned i = (unsigned)(draw(d) % n);
		const struct sector s = sector[i];

		put(inode->disk, &inode->disk_len, s.write->data + s.from, s.write->at + s.from, s.to - s.from);
		sector[i] = sector[n - 1];
	}
	free(sector);
	inode_forget(inode);
}

/*
 * The table.
 */

static int disk_open(void *arg, int directory, const char *name, int flags)
{
	struct disk *d = arg;
	int rc = failure(d), inode, fd;
	const struct name *n;

	if (rc)
		return rc;
	if (flags & O_DIRECTORY)
		return descriptor_new(d, DIRECTORY);
	REQUIRE(directory >= 0 && d->descriptor[directory] == DIRECTORY);
	n = name_find(&d->now, name);
	if (!n && !(flags & O_CREAT))
		return -ENOENT;
	if (!n && d->read_only)
		return -EROFS;
	if (n) {
		inode = n->inode;
	} else {
		struct change c = {.what = CREATE, .inode = inode_new(d)};

		inode = c.inode;
		REQUIRE(strlen(name) < sizeof(c.to));
		strcpy(c.to, name);
		change_add(d, c);
	}
	if ((flags & O_TRUNC) && !d->read_only) { /* at once, which is the worst that can happen */
		inode_forget(&d->inode[inode]);
		d->inode[inode].now_len = d->inode[inode].disk_len = 0;
	}
	fd = descriptor_new(d, inode + 1);
	d->direct[fd] = flags & O_DIRECT;
	return fd;
}

static int disk_close(void *arg, int fd)
{
	struct disk *d = arg;

	REQUIRE(fd >= 0 && fd < DESCRIPTORS && d->descriptor[fd]);
	if (d->descriptor[fd] == DIRECTORY)
		d->locked = false;
	d->descriptor[fd] = 0;
	return 0;
}

static ssize_t disk_preadv(void *arg, int fd, const struct iovec *iov, int n, uint64_t at)
{
	struct disk *d = arg;
	const struct inode *inode = inode_of(d, fd);
	int rc = failure(d);
	size_t got = 0;

	if (rc)
		return rc;
	for (int i = 0; i < n && d->direct[fd]; i++)
		REQUIRE(((uintptr_t)iov[i].iov_base | iov[i].iov_len | at) % WAL_BLOCK == 0);
	for (int i = 0; i < n; i++) {
		size_t len = at >= inode->now_len ? 0 : MIN(iov[i].iov_len, inode->now_len - at);

		if (len)
			memcpy(iov[i].iov_base, inode->now + at, len);
		got += len;
		at += len;
	}
	return (ssize_t)got;
}

uint64_t disk_used(const struct disk *d)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < d->now.count; i++)
		used += d->inode[d->now.at[i].inode].now_len;
	return used;
}

/* How many bytes of so many at `at` there is room for. */
static size_t room_for(const struct disk *d, const struct inode *inode, uint64_t at, size_t len)
{
	uint64_t used = disk_used(d), more = at + len > inode->now_len ? at + len - inode->now_len : 0;
	uint64_t room = d->limit > used ? d->limit - used : 0;

	return more <= room ? len : len - (size_t)MIN(len, more - room);
}

/* Less than all, if it is more than a block, and not nothing. */
static size_t part(struct disk *d, size_t len, size_t block)
{
	size_t blocks = len / block;

	return blocks > 1 ? (size_t)(draw(d) % (blocks - 1) + 1) * block : len;
}

static ssize_t disk_pwritev(void *arg, int fd, const struct iovec *iov, int n, uint64_t at)
{
	struct disk *d = arg;
	struct inode *inode = inode_of(d, fd);
	int rc = failure(d);
	unsigned char *data;
	size_t block = d->direct[fd] ? WAL_BLOCK : 1, len = 0, done = 0;

	if (d->read_only)
		return -EROFS;
	for (int i = 0; i < n; i++) {
		REQUIRE(block == 1 ||
			((iov[i].iov_len | at) % block == 0 && (uintptr_t)iov[i].iov_base % d->alignment == 0));
		len += iov[i].iov_len;
	}
	data = malloc(len ? len : 1);
	REQUIRE(data);
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len)
			memcpy(data + done, iov[i].iov_base, iov[i].iov_len);
		done += iov[i].iov_len;
	}
	done = room_for(d, inode, at, len) / block * block;
	if (rc == -ENOSPC && !d->after && len > block) { /* a part; the next call finds that there is no room */
		done = part(d, len, block);
		d->fail_at = d->calls + 1;
		rc = 0;
	} else if (rc) {
		done = (size_t)(draw(d) % (len + 1));
	} else if (done == 0) {
		rc = -ENOSPC;
	} else if (done == len && draw(d) % 8 == 0) {
		done = part(d, len, block); /* the kernel may always do less */
	}
	if (done && rc != -ENOSPC)
		inode_write(inode, data, at, done);
	free(data);
	return rc ? rc : (ssize_t)done;
}

/* A size that was not synced is lost. */
static int disk_allocate(void *arg, int fd, uint64_t size)
{
	struct disk *d = arg;
	struct inode *inode = inode_of(d, fd);
	int rc = failure(d);

	if (rc || d->read_only)
		return rc ? rc : -EROFS;
	if (room_for(d, inode, 0, size) < size)
		return -ENOSPC;
	inode_write(inode, (const unsigned char *)"", size, 0);
	return 0;
}

/* It is for speed only: so, any. */
static int64_t disk_filled(void *arg, int fd)
{
	struct disk *d = arg;

	return (int64_t)(draw(d) % (inode_of(d, fd)->now_len + 1));
}

static unsigned disk_alignment(void *arg, int fd)
{
	struct disk *d = arg;

	(void)inode_of(d, fd);
	return d->alignment;
}

static int disk_sync(void *arg, int fd)
{
	struct disk *d = arg;
	int rc = failure(d);
	bool directory;

	REQUIRE(fd >= 0 && fd < DESCRIPTORS && d->descriptor[fd]);
	directory = d->descriptor[fd] == DIRECTORY;
	d->syncs++;
	if (!rc && d->fail_sync_at && d->syncs == d->fail_sync_at)
		rc = -d->sync_error;
	if (rc) {
		if (!directory)
			inode_tear(d, inode_of(d, fd), 50);
		return rc;
	}
	if (!directory) {
		inode_sync(inode_of(d, fd));
		return 0;
	}
	d->disk = d->now;
	d->changes = 0;
	return 0;
}

static int disk_rename(void *arg, int directory, const char *from, const char *to)
{
	struct disk *d = arg;
	int rc = failure(d);
	struct change c = {.what = RENAME};
	const struct name *n = name_find(&d->now, from);

	(void)directory;
	if (rc || !n || d->read_only)
		return rc ? rc : n ? -EROFS : -ENOENT;
	strcpy(c.from, from);
	strcpy(c.to, to);
	c.inode = n->inode;
	change_add(d, c);
	return 0;
}

static int disk_unlink(void *arg, int directory, const char *name)
{
	struct disk *d = arg;
	int rc = failure(d);
	struct change c = {.what = UNLINK};
	const struct name *n = name_find(&d->now, name);

	(void)directory;
	if (rc || !n || d->read_only)
		return rc ? rc : n ? -EROFS : -ENOENT;
	strcpy(c.from, name);
	c.inode = n->inode;
	change_add(d, c);
	return 0;
}

static int64_t disk_size(void *arg, int fd)
{
	struct disk *d = arg;
	int rc = failure(d);

	return rc ? rc : (int64_t)inode_of(d, fd)->now_len;
}

static int disk_linked(void *arg, int fd)
{
	struct disk *d = arg;
	int n = 0;

	for (unsigned i = 0; i < d->now.count; i++)
		n += d->now.at[i].inode + 1 == d->descriptor[fd];
	return n;
}

static int disk_lock(void *arg, int fd)
{
	struct disk *d = arg;
	int rc = failure(d);

	REQUIRE(d->descriptor[fd] == DIRECTORY);
	if (rc || d->locked)
		return rc ? rc : -EBUSY;
	d->locked = true;
	return 0;
}

static int64_t disk_room(void *arg, int directory)
{
	struct disk *d = arg;
	int rc = failure(d);

	(void)directory;
	return rc ? rc : (int64_t)MIN(d->limit, (uint64_t)INT64_MAX);
}

static int disk_list(void *arg, int directory, void (*each)(void *to, const char *name), void *to)
{
	struct disk *d = arg;
	int rc = failure(d);

	(void)directory;
	if (rc == 0)
		disk_each(d, each, to);
	return rc;
}

/*
 * For tests.
 */

static const struct wal_files files = {
	.open = disk_open,
	.close = disk_close,
	.preadv = disk_preadv,
	.pwritev = disk_pwritev,
	.allocate = disk_allocate,
	.filled = disk_filled,
	.alignment = disk_alignment,
	.sync = disk_sync,
	.rename = disk_rename,
	.unlink = disk_unlink,
	.size = disk_size,
	.linked = disk_linked,
	.lock = disk_lock,
	.room = disk_room,
	.list = disk_list,
};

struct disk *disk_create(uint64_t seed)
{
	struct disk *d = calloc(1, sizeof(*d));

	REQUIRE(d);
	d->files = files;
	d->files.arg = d;
	d->random = seed * 0x9e3779b97f4a7c15ull + 1;
	d->limit = UINT64_MAX;
	d->alignment = seed % 2 ? WAL_ALIGNMENT : WAL_BLOCK;
	return d;
}

void disk_destroy(struct disk *d)
{
	for (unsigned i = 0; i < FILES; i++) {
		inode_forget(&d->inode[i]);
		free(d->inode[i].write);
		free(d->inode[i].now);
		free(d->inode[i].disk);
	}
	free(d->change);
	free(d);
}

const struct wal_files *disk_files(struct disk *d)
{
	return &d->files;
}

void disk_fail(struct disk *d, unsigned n, int error, bool after)
{
	d->fail_at = n ? d->calls + n : 0;
	d->error = error;
	d->after = after;
}

void disk_fail_sync(struct disk *d, unsigned n, int error)
{
	d->fail_sync_at = n ? d->syncs + n : 0;
	d->sync_error = error;
}

void disk_limit(struct disk *d, uint64_t bytes)
{
	d->limit = bytes;
}

void disk_read_only(struct disk *d, bool on)
{
	d->read_only = on;
}

unsigned disk_calls(const struct disk *d)
{
	return d->calls;
}

unsigned disk_syncs(const struct disk *d)
{
	return d->syncs;
}

void disk_kill(struct disk *d)
{
	memset(d->descriptor, 0, sizeof(d->descriptor));
	d->locked = false;
	d->fail_at = d->fail_sync_at = 0;
}

void disk_crash(struct disk *d)
{
	static const unsigned chance[] = {0, 10, 50, 90, 100}, chance_of_names[] = {0, 50, 50, 90, 100};
	unsigned percent = chance[draw(d) % ARRAY_SIZE(chance)],
		 of_names = chance_of_names[draw(d) % ARRAY_SIZE(chance_of_names)];

	disk_kill(d);
	for (unsigned i = 0; i < d->inodes; i++) {
		struct inode *inode = &d->inode[i];

		inode_tear(d, inode, percent);
		if (inode->disk_len)
			memcpy(inode->now, inode->disk, inode->disk_len);
		inode->now_len = inode->disk_len;
	}
	for (unsigned i = 0; i < d->changes; i++)
		if (draw(d) % 100 < of_names)
			change_apply(&d->disk, &d->change[i]);
	d->changes = 0;
	d->now = d->disk;
}

unsigned char *disk_file(struct disk *d, const char *name, size_t **len)
{
	const struct name *n = name_find(&d->now, name);

	if (!n)
		return NULL;
	*len = &d->inode[n->inode].now_len;
	return d->inode[n->inode].now;
}

void disk_each(struct disk *d, void (*each)(void *to, const char *name), void *to)
{
	struct names names = d->now; /* as they may change meanwhile */

	for (unsigned i = 0; i < names.count; i++)
		each(to, names.at[i].text);
}

unsigned disk_open_files(const struct disk *d)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DESCRIPTORS; i++)
		n += d->descriptor[i] != 0;
	return n;
}
