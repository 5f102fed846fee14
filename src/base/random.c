/* random.c: bytes that cannot be guessed. */
#include "base/base.h"

#include <sys/random.h>

int random_fill(void *out, size_t size)
{
	char *at = out;

	while (size) {
		ssize_t n = getrandom(at, size, 0);
		int error = errno;

		if (n < 0 && error == EINTR)
			continue;
		if (n <= 0)
			return log_fail(n ? -error : -EIO, "base", "no random bytes: getrandom: %s",
					n ? strerror(error) : "it gave none");
		at += n;
		size -= (size_t)n;
	}
	return 0;
}
