/* error.c: what a thread's last failed call says. */
#include "peer/links/connect.h"

#include <stdarg.h>

static _Thread_local struct error_kept last;

int rdma_fail(int error, const char *format, ...)
{
	va_list args;

	last.error = -error;
	va_start(args, format);
	vsnprintf(last.text, sizeof(last.text), format, args);
	va_end(args);
	return -1;
}

int rdma_fail_logged(int error, const char *words)
{
	const char *logged = rdmad_error();

	return rdma_fail(error, "%s: %s", words, *logged ? logged : strerror(-error));
}

const char *rdma_get_error(void)
{
	return last.text;
}

int rdma_get_errno(void)
{
	return last.error;
}

void error_keep(struct error_kept *out)
{
	*out = last;
}

void error_restore(const struct error_kept *kept)
{
	last = *kept;
}
