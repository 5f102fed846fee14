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
		if (n <= 0) {
			log_error("base", "no random bytes: getrandom: %s", n ? strerror(error) : "it gave none");
			return n ? -error : -EIO;
		}
		at += n;
		size -= (size_t)n;
	}
	return 0;
}
