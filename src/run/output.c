/* output.c: what ranks write, by whole lines. */
#include "run/run.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SINK_ROOM (256u * 1024) /* no stream is read while more than this waits */
#define PIECE (64u * 1024)      /* of one read */

int run_append(char **data, size_t *used, size_t *room, const void *more, size_t length)
{
	if (*used + length > *room) {
		size_t size = MAX(2 * *room, *used + length);
		char *grown = realloc(*data, size);

		if (!grown) {
			run_say("no memory for %zu bytes", size);
			return -ENOMEM;
		}
		*data = grown;
		*room = size;
	}
	memcpy(*data + *used, more, length);
	*used += length;
	return 0;
}

bool sink_has_room(const struct sink *sink)
{
	return sink->used < SINK_ROOM;
}

/* A pipe that poll() calls writable takes so much without blocking. It is asked again, as the other sink may be the
 * same pipe. */
void sink_flush(struct sink *sink)
{
	struct pollfd out = {.fd = sink->fd, .events = POLLOUT};
	ssize_t n;

	if (poll(&out, 1, 0) <= 0)
		return;
	n = write(sink->fd, sink->data, MIN(sink->used, (size_t)PIPE_BUF));
	if (n < 0 && errno != EINTR && errno != EAGAIN) {
		sink->error = errno;
		sink->used = 0;
	} else if (n > 0) {
		sink->used -= (size_t)n;
		memmove(sink->data, sink->data + n, sink->used);
	}
}

void sink_end(struct sink *sink)
{
	for (size_t before = 0; sink->used && sink->used != before;) {
		before = sink->used;
		sink_flush(sink);
	}
	free(sink->data);
	sink->data = NULL;
}

void sink_put(struct sink *sink, const void *data, size_t length)
{
	if (!sink->error)
		run_append(&sink->data, &sink->used, &sink->room, data, length);
}

static void emit_line(struct stream *stream, const char *line, size_t length)
{
	size_t greeting = strlen(WIRE_RUN_GREETING);
	char label[16];
	int n;

	/* What the remote shell said before it may have had no line feed. */
	if (stream->awaits_agent && length >= greeting &&
	    memcmp(line + length - greeting, WIRE_RUN_GREETING, greeting) == 0) {
		stream->awaits_agent = false;
		length -= greeting;
		if (!length)
			return;
	}
	n = snprintf(label, sizeof(label),
		     "%*d: ", snprintf(NULL, 0, "%llu", (unsigned long long)(run_options.count - 1)), stream->rank);
	if (run_options.label)
		sink_put(stream->sink, label, (size_t)n);
	sink_put(stream->sink, line, length);
	sink_put(stream->sink, "\n", 1);
}

/* Text without a line feed stays so where nobody else writes. */
static void emit_piece(struct stream *stream, const char *text, size_t length)
{
	if (run_options.label || run_options.count > 1)
		emit_line(stream, text, length);
	else
		sink_put(stream->sink, text, length);
}

/* The lines that are whole; the remainder stays. */
static void emit_lines(struct stream *stream)
{
	char *at = stream->data, *end = at + stream->used, *feed;

	while (at < end && (feed = memchr(at, '\n', (size_t)(end - at)))) {
		emit_line(stream, at, (size_t)(feed - at));
		at = feed + 1;
	}
	for (; end - at > (ptrdiff_t)RUN_LINE_MAX; at += RUN_LINE_MAX)
		emit_piece(stream, at, RUN_LINE_MAX);
	stream->used = (size_t)(end - at);
	memmove(stream->data, at, stream->used);
}

void stream_close(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	if (stream->used)
		emit_piece(stream, stream->data, stream->used);
	stream->used = 0;
	close(stream->fd);
	stream->fd = -1;
	free(stream->data);
	stream->data = NULL;
	stream->room = 0;
}

void stream_read(struct stream *stream)
{
	char piece[PIECE];
	ssize_t n = read(stream->fd, piece, sizeof(piece));

	if (n > 0 && run_append(&stream->data, &stream->used, &stream->room, piece, (size_t)n) == 0)
		emit_lines(stream);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		stream_close(stream);
}

void stream_end(struct stream *stream)
{
	int left = 0;

	if (stream->fd >= 0)
		ioctl(stream->fd, FIONREAD, &left);
	for (; stream->fd >= 0 && left > 0; left -= (int)PIECE)
		stream_read(stream);
	stream_close(stream);
}
