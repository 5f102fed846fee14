/* file.c: a table out of its file, and into one. */
#include "cluster/cluster.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cluster_load(const char *path, struct cluster_table *out)
{
	FILE *file = fopen(path, "re");
	size_t length = 0;
	char *text;
	int rc = 0;

	if (!file)
		return log_fail(-errno, "cluster", "%s: %m", path);
	text = malloc(CLUSTER_TEXT_MAX + 1);
	if (text)
		length = fread(text, 1, CLUSTER_TEXT_MAX + 1, file);
	if (!text)
		rc = log_fail(-ENOMEM, "cluster", "%s: no memory", path);
	else if (ferror(file))
		rc = log_fail(-EIO, "cluster", "%s: cannot be read", path);
	else
		rc = cluster_parse(path, text, length, out);
	fclose(file);
	free(text);
	return rc;
}

/* The names in a directory as they are now. */
static int sync_directory(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, rc = 0;

	if (!copy)
		rc = -ENOMEM;
	else if (fd < 0 || fsync(fd) != 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	free(copy);
	return rc;
}

static int write_file(const char *path, const char *text, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644), rc = 0;

	if (fd < 0)
		return -errno;
	errno = 0;
	if (write(fd, text, length) != (ssize_t)length || fsync(fd) != 0)
		rc = errno ? -errno : -ENOSPC;
	close(fd);
	return rc;
}

int cluster_save(const char *path, const struct cluster_table *table)
{
	size_t room = strlen(path) + sizeof(".new");
	char *text = malloc(CLUSTER_TEXT_MAX + 1), *beside = malloc(room);
	int rc = text && beside ? cluster_print(table, text) : -ENOMEM;

	if (rc > 0) {
		snprintf(beside, room, "%s.new", path);
		rc = write_file(beside, text, (size_t)rc);
		if (rc == 0)
			rc = rename(beside, path) == 0 ? sync_directory(path) : -errno;
		if (rc != 0)
			log_error("cluster", "%s: cannot be written: %s", path, strerror(-rc));
	}
	free(text);
	free(beside);
	return rc;
}
