/* visit.c: what a stream's turn is: what waits leaves, bytes come, and its owner has them. */
#include "stream/internal.h"

#include <stdlib.h>

#define VISIT_BYTES (1 * MIB) /* that one visit reads */

bool stream_time_left(const struct stream *s)
{
	return s->group->attr.clock() - s->group->visit < s->group->attr.turn;
}

/* Whether its other end takes its answers, or there is room for more of them. */
static bool has_room(const struct stream *s)
{
	uint64_t budget = s->group->attr.budget, waiting = s->group->stats.waiting_bytes;

	return s->out.waiting <= STREAM_OUT_HIGH || (waiting < budget && s->out.waiting <= budget - waiting);
}

static bool may_read(const struct stream *s)
{
	return !s->closing && has_room(s) && s->until <= s->group->now;
}

static ssize_t receive_bytes(struct stream *s, void *to, size_t len)
{
	ssize_t n = s->transport->receive(s, to, len);

	s->group->stats.reads++;
	if (n > 0) {
		s->in.bytes += (uint64_t)n;
		s->group->stats.bytes_in += (uint64_t)n;
		s->active = s->group->now;
		if (list_linked(&s->quiet))
			list_del(&s->quiet);
	} else if (n == 0) {
		stream_close(s, 0, "the client has gone");
	} else if (n == -EAGAIN) {
		s->readable = false;
	} else {
		stream_broken(s, (int)n);
	}
	return MAX(n, 0);
}

/* Keep what was not used, which is in the scratch buffer or in the stream's own. */
static void keep_rest(struct stream *s, const char *at, size_t len)
{
	if (!len) {
		if (s->in.at)
			stream_buffer_give(s->group, s->in.at, s->in.room);
		s->in.at = NULL;
		s->in.len = s->in.room = 0;
		return;
	}
	if (!s->in.at) {
		s->in.at = stream_buffer_take(s->group);
		s->in.room = STREAM_READ;
	}
	if (!s->in.at) {
		stream_close(s, -ENOMEM, "no memory for a command that is not whole");
		return;
	}
	memmove(s->in.at, at, len);
	s->in.len = len;
}

/* Put bytes where the owner wants them. How many. */
static size_t take_in(struct stream *s, const char *at, size_t len)
{
	size_t n = MIN(len, s->in.left);

	if (s->in.to) {
		memcpy(s->in.to, at, n);
		s->in.to += n;
	}
	s->in.left -= n;
	return n;
}

/* Hand bytes over until the owner uses no more of them. */
static void deliver_bytes(struct stream *s, const char *at, size_t len)
{
	do {
		size_t n;

		if (!s->in.left) {
			ssize_t used;

			s->again = false;
			used = s->ops->bytes(s, at, len);
			if (used < 0) {
				stream_close(s, 0, "the client broke the protocol");
				break;
			}
			at += used;
			len -= (size_t)used;
			if (!s->in.left)
				break;
		}
		n = take_in(s, at, len);
		at += n;
		len -= n;
		if (s->in.left || s->closing)
			break;
		s->ops->received(s);
	} while (len);
	keep_rest(s, at, s->closing ? 0 : len);
}

/* Room behind what is kept. */
static bool grow_in(struct stream *s)
{
	size_t room = 2 * s->in.room;
	char *at;

	if (s->in.room - s->in.len >= STREAM_READ / 4)
		return true;
	at = realloc(s->in.at, room);
	if (!at) {
		stream_close(s, -ENOMEM, "no memory for a command of more than %zu bytes", s->in.len);
		return false;
	}
	s->group->stats.buffer_bytes += room - s->in.room;
	s->in.at = at;
	s->in.room = room;
	return true;
}

/* One read; how many bytes. */
static size_t read_some(struct stream *s)
{
	char drop[4096];
	size_t room, n;

	if (s->in.left) {
		room = s->in.to ? MIN(s->in.left, VISIT_BYTES) : MIN(s->in.left, sizeof(drop));
		n = (size_t)receive_bytes(s, s->in.to ? s->in.to : drop, room);
		if (s->in.to)
			s->in.to += n;
		s->in.left -= n;
		if (n && !s->in.left) {
			s->ops->received(s);
			if (s->in.len)
				deliver_bytes(s, s->in.at, s->in.len);
		}
	} else if (s->in.at) {
		if (!grow_in(s))
			return 0;
		room = s->in.room - s->in.len;
		n = (size_t)receive_bytes(s, s->in.at + s->in.len, room);
		s->in.len += n;
		if (n)
			deliver_bytes(s, s->in.at, s->in.len);
	} else {
		room = sizeof(s->group->scratch);
		n = (size_t)receive_bytes(s, s->group->scratch, room);
		if (n)
			deliver_bytes(s, s->group->scratch, n);
	}
	/* A stream that gave less has no more; its end is an event, if that has not come. */
	if (n < room && !s->ended)
		s->readable = false;
	return n;
}

void stream_visit(struct stream *s)
{
	struct stream_group *group = s->group;
	size_t bytes = 0;
	int rc = 0;

	group->visit = group->attr.clock();
	s->visited = true;
	if (stream_may_leave(s) && s->writable)
		rc = stream_flush(s);
	if (rc < 0)
		stream_broken(s, rc);
	if (s->again && may_read(s))
		deliver_bytes(s, s->in.at ? s->in.at : group->scratch, s->in.len);
	while (s->readable && !s->again && may_read(s) && bytes < VISIT_BYTES) {
		bytes += read_some(s);
		if (s->readable && !stream_time_left(s))
			break;
	}
	s->transport->visited(s);
	s->visited = false;
	if ((s->readable || s->again) && may_read(s))
		stream_make_ready(s);
}
