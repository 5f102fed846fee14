/* memfd.c: memory that other processes map, too, and memory that grows. */
#include "base/base.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <stdlib.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

int memfd_sealed(const char *name, size_t size)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	struct rlimit limit;
	int rc, fd;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur) {
		errno = EFBIG;
		return -EFBIG;
	}
	fd = memfd_create(name, flags | MFD_NOEXEC_SEAL); /* it is not executed */
	if (fd < 0 && errno == EINVAL)                    /* Linux before 6.3 */
		fd = memfd_create(name, flags);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) == 0)
		return fd;
	rc = errno;
	close(fd);
	errno = rc;
	return -rc;
}

bool memfd_is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & SEALS) == SEALS;
}

#define LEAST 512

char *buffer_grow(char **at, size_t *room, size_t len, size_t bytes, size_t most)
{
	size_t more = *room ? *room : LEAST;
	char *to;

	if (bytes <= *room - len)
		return *at + len;
	if (len > most || bytes > most - len)
		return NULL;
	while (more - len < bytes)
		more = more > most / 2 ? most : 2 * more;
	more = MIN(more, most);
	to = realloc(*at, more);
	if (!to)
		return NULL;
	*at = to;
	*room = more;
	return to + len;
}
