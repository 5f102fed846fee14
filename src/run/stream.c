/* stream.c: what goes to ranks, and what they write, by whole lines. */
#include "run/run.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SINK_ROOM (256u * 1024) /* no stream is read while more than this waits */
#define PIECE (64u * 1024)      /* of one read */

void buffer_add(struct buffer *buffer, const void *data, size_t length)
{
	if (buffer->used + length > buffer->room) {
		size_t size = MAX(2 * buffer->room, buffer->used + length);
		char *grown = realloc(buffer->data, size);

		if (!grown) {
			run_say_to(NULL); /* a sink needs memory, too */
			run_say("no memory for %zu bytes", size);
			exit(RUN_FAILED); /* the guard ends the ranks */
		}
		buffer->data = grown;
		buffer->room = size;
	}
	if (length)
		memcpy(buffer->data + buffer->used, data, length);
	buffer->used += length;
}

void buffer_drop(struct buffer *buffer, size_t length)
{
	buffer->used -= length;
	if (length)
		memmove(buffer->data, buffer->data + length, buffer->used);
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){0};
}

bool buffer_read(struct buffer *buffer, int fd)
{
	char piece[PIECE];
	ssize_t n = read(fd, piece, sizeof(piece));

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	buffer_add(buffer, piece, (size_t)n);
	return true;
}

/* Writes `most` bytes at most. False: they cannot be written, see errno. */
static bool buffer_write(struct buffer *buffer, int fd, size_t most)
{
	ssize_t n = write(fd, buffer->data, MIN(buffer->used, most));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	buffer_drop(buffer, (size_t)n);
	return true;
}

/*
 * Sinks
 */
bool sink_has_room(const struct sink *sink)
{
	return sink->text.used < SINK_ROOM;
}

/* A pipe that poll() calls writable takes so much without blocking. It is asked again, as the other sink may be the
 * same pipe. */
void sink_flush(struct sink *sink)
{
	struct pollfd out = {.fd = sink->fd, .events = POLLOUT};

	if (poll(&out, 1, 0) <= 0 || buffer_write(&sink->text, sink->fd, PIPE_BUF))
		return;
	sink->error = errno;
	sink->text.used = 0;
}

void sink_end(struct sink *sink)
{
	for (size_t before = 0; sink->text.used && sink->text.used != before;) {
		before = sink->text.used;
		sink_flush(sink);
	}
	buffer_free(&sink->text);
}

void sink_put(struct sink *sink, const void *data, size_t length)
{
	if (!sink->error)
		buffer_add(&sink->text, data, length);
}

/*
 * Streams
 */
static void emit_line(struct stream *stream, const char *line, size_t length)
{
	size_t greeting = strlen(WIRE_RUN_GREETING);

	/* Words of the remote shell before it may have had no line feed. */
	if (stream->awaits_agent && length >= greeting &&
	    memcmp(line + length - greeting, WIRE_RUN_GREETING, greeting) == 0) {
		stream->awaits_agent = false;
		length -= greeting;
		if (!length)
			return;
	}
	sink_put(stream->sink, stream->label, strlen(stream->label));
	sink_put(stream->sink, line, length);
	sink_put(stream->sink, "\n", 1);
}

/* Text without a line feed stays so with one rank. */
static void emit_piece(struct stream *stream, const char *text, size_t length)
{
	if (*stream->label || run_options.count > 1)
		emit_line(stream, text, length);
	else
		sink_put(stream->sink, text, length);
}

void stream_close(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	if (stream->text.used)
		emit_piece(stream, stream->text.data, stream->text.used);
	buffer_free(&stream->text);
	close(stream->fd);
	stream->fd = -1;
}

void stream_read(struct stream *stream)
{
	char *at, *end, *feed;

	if (!buffer_read(&stream->text, stream->fd)) {
		stream_close(stream);
		return;
	}
	if (!stream->text.used)
		return;
	at = stream->text.data;
	end = at + stream->text.used;
	while (at < end && (feed = memchr(at, '\n', (size_t)(end - at)))) { /* the lines that are whole */
		emit_line(stream, at, (size_t)(feed - at));
		at = feed + 1;
	}
	for (; end - at > (ptrdiff_t)RUN_LINE_MAX; at += RUN_LINE_MAX)
		emit_piece(stream, at, RUN_LINE_MAX);
	buffer_drop(&stream->text, (size_t)(at - stream->text.data));
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

/*
 * Feeds
 */
void feed_add(struct feed *feed, const void *data, size_t length)
{
	if (feed->fd >= 0)
		buffer_add(&feed->waiting, data, length);
}

void feed_flush(struct feed *feed)
{
	/* A rank that does not read any more does so by its own choice. */
	if (!buffer_write(&feed->waiting, feed->fd, SIZE_MAX) || (feed->over && !feed->waiting.used))
		feed_close(feed);
}

void feed_end(struct feed *feed)
{
	feed->over = true;
	if (!feed->waiting.used)
		feed_close(feed);
}

void feed_close(struct feed *feed)
{
	if (feed->fd >= 0)
		close(feed->fd);
	feed->fd = -1;
	buffer_free(&feed->waiting);
}
