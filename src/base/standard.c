/* standard.c: the first three descriptors of a process. */
#include "base/base.h"

#include <fcntl.h>
#include <unistd.h>

void standard_descriptors_keep(void)
{
	for (int fd = 0; fd < 3; fd++)
		/* The lowest free number is this one, as those below are taken. Not for reading what is read, nor for writing. */
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			log_warn("rdmad", "cannot keep descriptor %d: %m", fd);
}
