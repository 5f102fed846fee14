/*
 * output.c: standard output. What a command prints goes through stdio to output_write(), which writes all of it,
 * whatever signals come, until a write fails or an interrupted command has waited long enough for the reader. From then
 * on nothing is written. So what came out is the beginning of what was printed, without a hole, and ctl_output_end()
 * says where that is not all.
 */
#include "ctl/ctl.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define INTERRUPTED_TIMEOUT (TIME_S / 2) /* an interrupted command waits so long for its reader */

static struct {
	size_t whole;   /* of what stdio holds, so many bytes end at the end of a record */
	bool part;      /* what came out ends within a record */
	int error;      /* errno: why nothing more is written; 0: it is */
	uint64_t until; /* time_now(): the end of that timeout; 0: not interrupted yet */
} output;

bool ctl_output_takes(int ms)
{
	struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

	return poll(&out, 1, ms) > 0;
}

/* An empty pipe takes as much as it holds. One that takes anything has room for PIPE_BUF bytes, but perhaps for no
 * more. */
ssize_t ctl_output_some(const void *data, size_t len)
{
	int holds = fcntl(STDOUT_FILENO, F_GETPIPE_SZ), there;
	size_t room = PIPE_BUF;
	struct stat st;
	ssize_t n;

	if (holds > PIPE_BUF && ioctl(STDOUT_FILENO, FIONREAD, &there) == 0 && there == 0)
		room = (size_t)holds;
	else if (holds < 0 && fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode))
		room = SSIZE_MAX;
	n = write(STDOUT_FILENO, data, MIN(len, room));
	if (n < 0 && errno != EINTR && errno != EAGAIN)
		return -errno;
	return MAX(n, 0);
}

/* How long to wait for the reader now, in ms. */
static int output_wait(void)
{
	uint64_t now = time_now();

	if (!ctl_interrupted())
		return (int)(CTL_SLICE / TIME_MS);
	if (!output.until)
		output.until = now + INTERRUPTED_TIMEOUT;
	return now < output.until ? (int)MIN((output.until - now) / TIME_MS + 1, CTL_SLICE / TIME_MS) : 0;
}

/* False: not all of it was written. */
static bool output_put(const char *data, size_t len)
{
	while (len && !output.error) {
		int ms = output_wait();
		ssize_t n = 0;

		if (ctl_output_takes(ms))
			n = ctl_output_some(data, len);
		else if (ms == 0)
			output.error = EINTR;
		if (n < 0)
			output.error = (int)-n;
		if (n <= 0)
			continue;
		output.part = true;
		output.until = 0;
		data += n;
		len -= (size_t)n;
	}
	return !output.error;
}

static ssize_t output_write(void *cookie, const char *data, size_t len)
{
	size_t whole = MIN(output.whole, len);

	(void)cookie;
	output.whole = 0;
	if (whole && output_put(data, whole))
		output.part = false;
	if (output_put(data + whole, len - whole))
		return (ssize_t)len;
	errno = output.error;
	return 0; /* as fopencookie(3) wants an error */
}

void ctl_output_begin(void)
{
	static const cookie_io_functions_t functions = {.write = output_write};
	static char buffer[64 * KIB];
	FILE *out = fopencookie(NULL, "w", functions);

	if (!out)
		return; /* stdio's own way remains */
	setvbuf(out, buffer, ctl_at_terminal() ? _IOLBF : _IOFBF, sizeof(buffer));
	stdout = out;
}

/* A pipe takes up to PIPE_BUF bytes whole or not at all: what is there is written where another record like this one
 * had no room. */
void ctl_record_end(void)
{
	size_t pending = __fpending(stdout), last = pending - MIN(output.whole, pending);

	if (pending <= PIPE_BUF)
		output.whole = pending;
	if (pending + last > PIPE_BUF)
		fflush(stdout);
	output.whole = __fpending(stdout);
	if (!output.whole && !output.error)
		output.part = false;
}

int ctl_flush(void)
{
	int rc;

	output.whole = __fpending(stdout);
	rc = fflush(stdout);
	if (rc == 0 && !output.error)
		output.part = false;
	return rc;
}

int ctl_output_end(int rc)
{
	if (ctl_flush() == 0 && !ferror(stdout))
		return rc;
	if (output.error == EINTR) {
		ctl_say("interrupted: stdout lacks the end, and ends %s a record",
			output.part ? "within" : "at the end of");
		return rc ? rc : CTL_INTERRUPTED;
	}
	ctl_say("cannot write to stdout%s%s", output.error ? ": " : "", output.error ? strerror(output.error) : "");
	return rc ? rc : CTL_FAILED;
}
