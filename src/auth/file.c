/* file.c: reads the files of keys and clients: what others could have changed is refused. */
#include "auth/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Logged. */
static int check_owner_and_mode(int fd, const char *path, bool secret, size_t *size)
{
	mode_t wrong = secret ? 077 : 022;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return log_fail(-EIO, "auth", "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return log_fail(-EINVAL, "auth", "%s is no regular file", path);
	/* Root may look after the files of a daemon that runs as another user. */
	if (st.st_uid != 0 && st.st_uid != geteuid() && geteuid() != 0)
		return log_fail(-EPERM, "auth",
				"%s belongs to user %u, not to root or user %u, which reads it: chown it", path,
				(unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & wrong)
		return log_fail(-EPERM, "auth", "%s: others may %s it (mode %04o): chmod %s %s", path,
				secret ? "use" : "change", (unsigned)st.st_mode & 07777, secret ? "600" : "go-w", path);
	if (st.st_size > AUTH_FILE_MAX)
		return log_fail(-EFBIG, "auth", "%s has %llu bytes, more than %u", path, (unsigned long long)st.st_size,
				AUTH_FILE_MAX);
	*size = (size_t)st.st_size;
	return 0;
}

void auth_file_end(char *text, size_t length)
{
	auth_wipe(text, length);
	free(text);
}

int auth_file_read_open(int fd, const char *path, bool secret, char **text, size_t *length)
{
	size_t size, n = 0;
	ssize_t got = 1;
	int rc = check_owner_and_mode(fd, path, secret, &size);

	if (rc != 0)
		return rc;
	*text = malloc(size + 1);
	if (!*text)
		return log_fail(-ENOMEM, "auth", "%s: no memory for its %zu bytes", path, size);
	while (n < size && (got = pread(fd, *text + n, size - n, (off_t)n)) > 0)
		n += (size_t)got;
	if (got < 0) {
		rc = -errno;
		log_error("auth", "%s: %s", path, strerror(errno));
		auth_file_end(*text, n);
		return rc;
	}
	(*text)[n] = '\0';
	*length = n;
	return 0;
}

int auth_file_read(const char *path, bool secret, char **text, size_t *length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY), rc = -errno;

	if (fd < 0) {
		if (rc != -ENOENT)
			log_error("auth", "%s: %s%s", path,
				  rc == -ELOOP ? "it is a symbolic link: name the file itself" : strerror(-rc),
				  rc == -EACCES ? "; the user that reads it must own it, see rdmad-auth(7)" : "");
		return rc;
	}
	rc = auth_file_read_open(fd, path, secret, text, length);
	close(fd);
	return rc;
}

struct auth_lines auth_lines(const char *text, size_t length)
{
	return (struct auth_lines){.next = text, .end = text + length};
}

bool auth_lines_next(struct auth_lines *lines)
{
	while (lines->next < lines->end) {
		const char *at = lines->next;
		const char *end = memchr(at, '\n', (size_t)(lines->end - at));

		end = end ? end : lines->end;
		lines->next = end + 1;
		lines->number++;
		while (at < end && (*at == ' ' || *at == '\t'))
			at++;
		while (at < end && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
			end--;
		if (at == end || *at == '#')
			continue;
		lines->line = at;
		lines->length = (size_t)(end - at);
		return true;
	}
	return false;
}
