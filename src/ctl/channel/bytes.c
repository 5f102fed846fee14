/* bytes.c: bytes into a channel, and out of it. */
#include "ctl/channel/bytes.h"
#include "ctl/ctl.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_MAX_BYTES (1u << 20) /* of pop --line */
#define JSON_MAX (64u << 20)      /* bytes that --json prints */

const char *ctl_channel_fault;

int ctl_channel_fail_own(int error, const char *words)
{
	ctl_channel_fault = words;
	return error;
}

int ctl_channel_go_on(uint64_t since)
{
	if (ctl_interrupted())
		return -EINTR;
	if (ctl.timeout == TIME_NEVER || time_now() - since < ctl.timeout)
		return 0;
	return ctl_channel_fail_own(-ETIMEDOUT, "nothing moved for as long as --timeout says");
}

/*
 * Standard output
 */

/* Write to a terminal as much as it is given at once, up to the end of a whole character. */
static ssize_t show_piece(const char *data, size_t len)
{
	size_t n = MIN(len, (size_t)PIPE_BUF), whole = n;

	while (whole && n < len && ((unsigned char)data[whole] & 0xc0) == 0x80)
		whole--;
	n = whole ? whole : n;
	ctl_put_value(data, n);
	return ctl_flush() == 0 ? (ssize_t)n : -errno;
}

/* Any error is -EIO, so that it is not taken for one of the channel. */
ssize_t ctl_channel_output(const void *data, size_t len)
{
	ssize_t n = ctl_at_terminal() ? show_piece(data, len) : ctl_output_some(data, len);

	return n < 0 ? ctl_channel_fail_own(-EIO, strerror((int)-n)) : n;
}

/* Write all to standard output, however slow its reader is: meanwhile the peer sees signs of life. The peer's end is
 * told of when all that came before was written. -EINTR: Ctrl-C. */
static int write_output(struct rdmad_channel *channel, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t n = 0;

		if (ctl_output_takes((int)(CTL_SLICE / TIME_MS)))
			n = ctl_channel_output(at, len);
		else
			rdmad_channel_progress(channel);
		if (n < 0)
			return (int)n;
		if (n == 0 && ctl_interrupted())
			return -EINTR;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/*
 * What goes
 */

/* -ETIMEDOUT of a slice is none: up to half of the capacity is put whole or not at all. -EINTR: Ctrl-C. */
int ctl_channel_put(struct rdmad_channel *channel, const void *data, size_t len)
{
	struct rdmad_channel_info info;
	const char *at = data;
	uint64_t since = time_now();

	rdmad_channel_info(channel, &info);
	while (len) {
		size_t n = MIN(len, (size_t)MIN(info.capacity / 2, (uint64_t)CTL_CHANNEL_PIECE));
		int rc = rdmad_channel_put(channel, at, n, CTL_SLICE_US);

		if (rc == 0) {
			at += n;
			len -= n;
			since = time_now();
		}
		if (rc == 0 || rc == -ETIMEDOUT)
			rc = ctl_channel_go_on(since);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int ctl_channel_flush(struct rdmad_channel *channel)
{
	uint64_t since = time_now();
	int rc, stop = 0;

	do
		rc = rdmad_channel_flush(channel, CTL_SLICE_US);
	while (rc == -ETIMEDOUT && (stop = ctl_channel_go_on(since)) == 0);
	return stop ? stop : rc;
}

/* Wait until the other end has got everything: there is room for as much as the ring has. */
int ctl_channel_await_got(struct rdmad_channel *channel)
{
	struct rdmad_channel_info info;
	uint64_t since = time_now();
	size_t had = 0, has;
	void *room;
	int rc, stop = 0;

	rdmad_channel_info(channel, &info);
	do {
		rc = rdmad_channel_reserve(channel, info.capacity, CTL_SLICE_US, &room);
		has = rdmad_channel_room(channel);
		if (has != had)
			since = time_now();
		had = has;
	} while (rc == -ETIMEDOUT && (stop = ctl_channel_go_on(since)) == 0);
	if (rc == -EPIPE && has == info.capacity)
		return 0; /* it closed then */
	return stop ? stop : rc;
}

/* Wait until there is something to read. Meanwhile the peer sees signs of life, and its end is seen. -EINTR: Ctrl-C. */
static int await_input(struct rdmad_channel *channel, int fd)
{
	struct pollfd in = {.fd = fd, .events = POLLIN};
	int rc = 0;

	while (rc == 0 && poll(&in, 1, (int)(CTL_SLICE / TIME_MS)) <= 0)
		rc = ctl_interrupted() ? -EINTR : rdmad_channel_progress(channel);
	return rc;
}

/* Send what was read at once: more may come much later. */
int ctl_channel_put_stream(struct rdmad_channel *channel, int fd)
{
	static char piece[CTL_CHANNEL_PIECE];
	int rc = 0;

	while (rc == 0) {
		ssize_t n;

		rc = await_input(channel, fd);
		n = rc == 0 ? read(fd, piece, sizeof(piece)) : 0;
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return ctl_channel_fail_own(-EIO, strerror(errno));
		if (rc != 0 || n == 0)
			break;
		if (n > 0)
			rc = ctl_channel_put(channel, piece, (size_t)n);
		if (rc == 0)
			rc = ctl_channel_flush(channel);
	}
	return rc;
}

/*
 * What comes
 */
static int sink_keep(struct ctl_sink *sink, const void *data, size_t len)
{
	uint64_t count = sink->count + len;

	if (count > JSON_MAX)
		return ctl_channel_fail_own(-EMSGSIZE, "more came than --json prints, 64M");
	if (count > sink->room) {
		size_t room = MAX(2 * count, (uint64_t)CTL_CHANNEL_PIECE);
		char *kept = realloc(sink->kept, room);

		if (!kept)
			return ctl_channel_fail_own(-ENOMEM, strerror(ENOMEM));
		sink->kept = kept;
		sink->room = room;
	}
	memcpy(sink->kept + sink->count, data, len);
	return 0;
}

/* Find how many of these bytes are asked for; with --line up to the line feed. *done: those are the last. */
static size_t sink_wanted(const struct ctl_sink *sink, const void *data, size_t len, bool *done)
{
	const char *end = sink->line ? memchr(data, '\n', len) : NULL;

	if (sink->most)
		len = (size_t)MIN((uint64_t)len, sink->most - sink->count);
	if (end && (size_t)(end - (const char *)data) < len)
		len = (size_t)(end - (const char *)data) + 1;
	else
		end = NULL;
	*done = end || (sink->most && sink->count + len == sink->most);
	return len;
}

int ctl_sink_fill(struct rdmad_channel *channel, struct ctl_sink *sink)
{
	const void *data;
	uint64_t since = time_now();
	size_t len;
	bool done = false;
	int rc = 0;

	while (rc == 0 && !done) {
		rc = rdmad_channel_view(channel, 1, CTL_SLICE_US, &data, &len);
		if (rc == -ETIMEDOUT || ctl_interrupted()) {
			rc = ctl_channel_go_on(since);
			continue;
		}
		if (rc != 0)
			break;
		len = sink_wanted(sink, data, len, &done);
		if (sink->line && sink->count + len > LINE_MAX_BYTES)
			return ctl_channel_fail_own(-EMSGSIZE, "no line feed came in 1M bytes");
		if (!sink->drop)
			rc = ctl.json ? sink_keep(sink, data, len) : write_output(channel, data, len);
		if (rc == 0) {
			sink->count += len;
			rc = rdmad_channel_consume(channel, len);
		}
		since = time_now();
	}
	return rc;
}
