/* keys.c: tables of keys, out of files and into them. */
#include "auth/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct auth_keys {
	size_t count;
	struct auth_key key[]; /* by number */
};

static int compare_ids(const void *a, const void *b)
{
	const struct auth_key *one = a, *other = b;

	return (one->id > other->id) - (one->id < other->id);
}

static unsigned line_of(const char *text, size_t length, uint16_t id)
{
	struct auth_lines lines = auth_lines(text, length);
	struct auth_key key;
	unsigned last = 0;

	while (auth_lines_next(&lines))
		if (!auth_key_parse(lines.line, lines.length, &key) && key.id == id)
			last = lines.number;
	auth_wipe(&key, sizeof(key));
	return last;
}

/* 0, or -EINVAL, logged with the line. */
static int fill_table(const char *path, const char *text, size_t length, struct auth_keys *keys)
{
	struct auth_lines lines = auth_lines(text, length);
	const char *why;

	while (auth_lines_next(&lines)) {
		why = auth_key_parse(lines.line, lines.length, &keys->key[keys->count]);
		if (why)
			return log_fail(-EINVAL, "auth", "%s:%u: %s", path, lines.number, why);
		keys->count++;
	}
	qsort(keys->key, keys->count, sizeof(keys->key[0]), compare_ids);
	for (size_t i = 1; i < keys->count; i++)
		if (keys->key[i].id == keys->key[i - 1].id)
			return log_fail(-EINVAL, "auth", "%s:%u: number %u stands in another line, too", path,
					line_of(text, length, keys->key[i].id), keys->key[i].id);
	return 0;
}

int auth_keys_parse(const char *path, const char *text, size_t length, bool empty, struct auth_keys **out)
{
	struct auth_lines lines = auth_lines(text, length);
	struct auth_keys *keys;
	size_t most = 0;
	int rc = -ENOMEM;

	while (auth_lines_next(&lines))
		most++;
	/* sodium_malloc() returns memory that ends with a page, so the size decides on the alignment. */
	keys = sodium_malloc((sizeof(*keys) + most * sizeof(keys->key[0]) + 15) & ~(size_t)15);
	if (keys) {
		keys->count = 0;
		rc = fill_table(path, text, length, keys);
	} else {
		log_error("auth", "%s: no memory for %zu keys that may be locked", path, most);
	}
	if (rc == 0 && !most && !empty) {
		log_error("auth", "%s has no key: rdmactl key new NAME --into %s", path, path);
		rc = -EINVAL;
	}
	if (rc != 0)
		sodium_free(keys);
	else
		*out = keys;
	return rc;
}

int auth_keys_load(const char *path, struct auth_keys **out)
{
	size_t length;
	char *text;
	int rc = auth_file_read(path, true, &text, &length);

	if (rc != 0)
		return rc;
	rc = auth_keys_parse(path, text, length, false, out);
	auth_file_end(text, length);
	return rc;
}

void auth_keys_free(struct auth_keys *keys)
{
	if (keys)
		sodium_free(keys);
}

const struct auth_key *auth_keys_find(const struct auth_keys *keys, uint16_t id)
{
	const struct auth_key wanted = {.id = id};

	return bsearch(&wanted, keys->key, keys->count, sizeof(keys->key[0]), compare_ids);
}

size_t auth_keys_count(const struct auth_keys *keys)
{
	return keys->count;
}

const struct auth_key *auth_keys_at(const struct auth_keys *keys, size_t index)
{
	return &keys->key[index];
}

int auth_key_load(const char *path, struct auth_key *out)
{
	struct auth_lines lines;
	const char *why = "it has no key: rdmactl key new NAME";
	size_t length;
	char *text;
	int rc = auth_file_read(path, true, &text, &length);

	if (rc != 0)
		return rc;
	lines = auth_lines(text, length);
	if (auth_lines_next(&lines))
		why = auth_key_parse(lines.line, lines.length, out);
	auth_file_end(text, length);
	if (!why)
		return 0;
	return log_fail(-EINVAL, "auth", "%s:%u: %s", path, MAX(lines.number, 1u), why);
}

/* One that no key of the file has: behind the last, so that a number is seldom another key's again. */
static unsigned free_id(const struct auth_keys *keys)
{
	unsigned id = 1;

	if (!keys->count || keys->key[keys->count - 1].id < AUTH_ID_MAX)
		return keys->count ? keys->key[keys->count - 1].id + 1u : 1;
	for (size_t i = 0; i < keys->count && keys->key[i].id == id; i++)
		id++;
	return id; /* AUTH_ID_MAX + 1 where all are taken */
}

/* The file is locked. */
static int append_locked(int fd, const char *path, const char *name, struct auth_key *out)
{
	struct stat opened, named;
	struct auth_keys *keys = NULL;
	char line[AUTH_LINE_MAX + 2] = "\n", *text;
	const char *from = line + 1;
	size_t length;
	int rc;

	/* An editor may have put another in its place before it was locked. */
	if (fstat(fd, &opened) != 0 || lstat(path, &named) != 0 || opened.st_ino != named.st_ino)
		return log_fail(-EAGAIN, "auth", "%s was replaced meanwhile: try again", path);
	rc = auth_file_read_open(fd, path, true, &text, &length);
	if (rc != 0)
		return rc;
	if (length && text[length - 1] != '\n')
		from = line; /* which ends the last line first */
	rc = auth_keys_parse(path, text, length, true, &keys);
	auth_file_end(text, length);
	if (rc == 0)
		rc = auth_key_new(free_id(keys), name, out);
	auth_keys_free(keys);
	if (rc != 0)
		return rc;
	auth_key_format(out, line + 1);
	strcat(line, "\n");
	if (write(fd, from, strlen(from)) != (ssize_t)strlen(from) || fsync(fd) != 0) {
		rc = errno ? -errno : -EIO;
		log_error("auth", "%s: %s", path, strerror(-rc));
		if (ftruncate(fd, (off_t)length) != 0)
			log_error("auth", "%s may have half a line at its end: %s", path, strerror(errno));
	}
	auth_wipe(line, sizeof(line));
	return rc;
}

int auth_keys_append(const char *path, const char *name, struct auth_key *out)
{
	int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600), rc;

	if (fd < 0 || flock(fd, LOCK_EX) != 0) {
		rc = -errno;
		log_error("auth", "%s: %s", path,
			  rc == -ELOOP ? "it is a symbolic link: name the file itself" : strerror(-rc));
	} else {
		errno = 0;
		rc = append_locked(fd, path, name, out);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}
