/*
 * shm_socket.c: where both ends of shared memory find each other: a UNIX socket with the channel's name in a directory
 * of the user's own.
 */
#include "channel/shm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME_MAX 64 /* of a socket; a longer name is cut, and its hash added */

void channel_shm_directory(char buf[static SHM_DIRECTORY_MAX])
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char own[64];

	if (runtime && runtime[0] == '/')
		snprintf(buf, SHM_DIRECTORY_MAX, "%s/rdmad-channel", runtime);
	else
		snprintf(buf, SHM_DIRECTORY_MAX, "%s/channel", address_own_directory(own, sizeof(own)));
}

/* Others cannot change anything in the directory: 0 or -errno, logged. `mask`: what its mode must not have. */
static int directory_check(const char *path, unsigned mask)
{
	int rc = 0, fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0) {
		rc = -errno;
		log_error("channel", "cannot open %s, of the directory of channels: %m", path);
	}
	if (fd >= 0)
		close(fd);
	if (rc != 0 || (st.st_uid == geteuid() && (st.st_mode & mask) == 0))
		return rc;
	return log_fail(
		-EACCES, "channel",
		"%s, of the directory of channels, is of user %lu with mode %04o: it must be this user's, %lu, and "
		"nobody "
		"else may write there",
		path, (unsigned long)st.st_uid, (unsigned)st.st_mode & 07777u, (unsigned long)geteuid());
}

int channel_shm_directory_check(const char *path)
{
	char parent[SHM_DIRECTORY_MAX];
	int rc;

	snprintf(parent, sizeof(parent), "%s", path);
	*strrchr(parent, '/') = '\0';
	rc = directory_check(parent, 022);
	return rc != 0 ? rc : directory_check(path, 077);
}

/* -ENAMETOOLONG: logged. */
int channel_shm_path(const char *directory, const char *name, struct sockaddr_un *out)
{
	char file[FILE_NAME_MAX + 24];
	size_t len = strlen(name);
	int n;

	if (len <= FILE_NAME_MAX)
		snprintf(file, sizeof(file), "%s", name);
	else
		snprintf(file, sizeof(file), "%.*s~%016llx", FILE_NAME_MAX - 24, name,
			 (unsigned long long)hash_bytes(name, len));
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(out->sun_path, sizeof(out->sun_path), "%s/%s", directory, file);
	if (n < (int)sizeof(out->sun_path))
		return 0;
	return log_fail(-ENAMETOOLONG, "channel", "%s/%s is longer than the path of a socket may be, %zu bytes",
			directory, file, sizeof(out->sun_path) - 1);
}

void channel_shm_close_all(int fds[static WIRE_SHM_FDS])
{
	for (int i = 0; i < WIRE_SHM_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}
