/* memfd.c: memory that another process maps, too, when it is given the descriptor. */
#include "base/base.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
