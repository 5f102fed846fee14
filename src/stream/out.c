/* out.c: what is written to a stream, until it has left. */
#include "stream/internal.h"

#include <stdlib.h>
#include <sys/uio.h>

#define IOV 64
#define CHUNK (16 * KIB)

/* Bytes that could not leave at once. */
struct chunk {
	size_t room;
	char bytes[];
};

static void chunk_release(void *owner, void *item)
{
	struct stream_group *group = owner;
	struct chunk *chunk = item;

	group->stats.buffer_bytes -= chunk->room;
	free(chunk);
}

static struct stream_piece *piece_at(const struct stream *s, unsigned i)
{
	return &s->out.piece[(s->out.first + i) & (s->out.room - 1)];
}

/* Room for one piece more. */
static bool queue_grow(struct stream *s)
{
	unsigned room = s->out.room ? 2 * s->out.room : 8;
	struct stream_piece *piece;

	if (s->out.count < s->out.room)
		return true;
	piece = malloc(room * sizeof(*piece));
	if (!piece)
		return false;
	for (unsigned i = 0; i < s->out.count; i++)
		piece[i] = *piece_at(s, i);
	free(s->out.piece);
	s->out.piece = piece;
	s->out.first = 0;
	s->out.room = room;
	return true;
}

static void piece_release(const struct stream_piece *piece)
{
	if (piece->release)
		piece->release(piece->owner, piece->item);
}

/* Behind the bytes that wait already, where their chunk has room. */
static bool chunk_append(struct stream *s, const char *at, size_t len)
{
	struct stream_piece *last = s->out.count ? piece_at(s, s->out.count - 1) : NULL;
	struct chunk *chunk;
	size_t used;

	if (!last || last->release != chunk_release)
		return false;
	chunk = last->item;
	used = (size_t)(last->at + last->len - chunk->bytes);
	if (chunk->room - used < len)
		return false;
	memcpy(chunk->bytes + used, at, len);
	last->len += len;
	return true;
}

/* What has to wait: bytes are copied, pinned memory is kept. */
static bool queue_add(struct stream *s, struct stream_piece piece)
{
	struct chunk *chunk;
	size_t room = MAX(piece.len, CHUNK);

	if (!piece.release && chunk_append(s, piece.at, piece.len))
		return true;
	if (!queue_grow(s))
		return false;
	if (!piece.release) {
		chunk = malloc(sizeof(*chunk) + room);
		if (!chunk)
			return false;
		chunk->room = room;
		s->group->stats.buffer_bytes += room;
		memcpy(chunk->bytes, piece.at, piece.len);
		piece = (struct stream_piece){chunk->bytes, piece.len, chunk_release, s->group, chunk};
	}
	*piece_at(s, s->out.count++) = piece;
	return true;
}

/* So many bytes of what waits may leave. */
static uint64_t may_leave(const struct stream *s)
{
	return s->out.holds ? s->out.hold[0].at - s->out.left : s->out.waiting;
}

bool stream_may_leave(const struct stream *s)
{
	return s->out.waiting && may_leave(s) > 0;
}

/* What is to leave by one call. */
struct batch {
	struct iovec iov[IOV];
	unsigned count;
	size_t bytes;
	uint64_t pinned; /* bit i: iov[i] stays where it is */
};

/* Chunks are no pins: they are copied where pins are kept. */
static bool is_pin(const struct stream_piece *piece)
{
	return piece->release && piece->release != chunk_release;
}

/* The ranges stay as they are: they are many, and few of them are used. */
static void batch_begin(struct batch *batch)
{
	batch->count = 0;
	batch->bytes = 0;
	batch->pinned = 0;
}

static void batch_add(struct batch *batch, const struct stream_piece *piece, size_t most)
{
	size_t len = MIN(piece->len, most);

	batch->pinned |= (uint64_t)is_pin(piece) << batch->count;
	batch->iov[batch->count++] = (struct iovec){(void *)(uintptr_t)piece->at, len};
	batch->bytes += len;
}

static ssize_t send_some(struct stream *s, const struct batch *batch)
{
	ssize_t n = s->transport->send(s, batch->iov, batch->count, batch->pinned);

	s->group->stats.writes++;
	if (n >= 0) {
		s->group->stats.bytes_out += (uint64_t)n;
		s->out.left += (uint64_t)n;
		s->out.stuck = 0;
	}
	return n;
}

/* All of a piece was taken. */
static void piece_taken(struct stream *s, const struct stream_piece *piece)
{
	if (is_pin(piece))
		s->transport->release(s, piece);
	else
		piece_release(piece);
}

/* The other end takes no more for now. */
static void out_stuck(struct stream *s)
{
	s->writable = false;
	s->out.stuck = s->out.stuck ? s->out.stuck : s->group->now;
}

static void out_forget(struct stream *s, size_t n)
{
	s->out.waiting -= n;
	s->group->stats.waiting_bytes -= n;
	if (!s->out.waiting)
		s->out.answered = s->out.answers;
	while (s->out.count && n >= piece_at(s, 0)->len) {
		struct stream_piece piece = *piece_at(s, 0);

		n -= piece.len;
		s->out.first = (s->out.first + 1) & (s->out.room - 1);
		s->out.count--;
		piece_taken(s, &piece);
	}
	if (n) {
		piece_at(s, 0)->at += n;
		piece_at(s, 0)->len -= n;
	}
	if (!s->out.count) {
		free(s->out.piece);
		s->out.piece = NULL;
		s->out.first = s->out.room = 0;
	}
}

int stream_flush(struct stream *s)
{
	while (stream_may_leave(s) && s->writable) {
		uint64_t most = may_leave(s);
		struct batch batch;
		ssize_t n;

		batch_begin(&batch);
		for (unsigned i = 0; i < MIN(s->out.count, (unsigned)IOV) && batch.bytes < most; i++)
			batch_add(&batch, piece_at(s, i), most - batch.bytes);
		n = send_some(s, &batch);
		if (n < 0 && n != -EAGAIN)
			return (int)n;
		if (n > 0)
			out_forget(s, (size_t)n);
		if (n < (ssize_t)batch.bytes)
			out_stuck(s);
	}
	return 0;
}

/* At once, as far as it goes: how many bytes. */
static ssize_t write_now(struct stream *s, const struct stream_piece *pieces, unsigned count)
{
	struct batch batch;
	ssize_t n;

	if (s->out.waiting || s->out.holds || !s->writable || !s->visited)
		return 0;
	batch_begin(&batch);
	for (unsigned i = 0; i < MIN(count, (unsigned)IOV); i++)
		batch_add(&batch, &pieces[i], SIZE_MAX);
	n = send_some(s, &batch);
	if (n < 0 && n != -EAGAIN)
		return n;
	if (n < (ssize_t)batch.bytes)
		out_stuck(s);
	return MAX(n, 0);
}

void stream_write(struct stream *s, const struct stream_piece *pieces, unsigned count)
{
	ssize_t n = s->closing && s->error ? -ECONNRESET : write_now(s, pieces, count);
	bool lost = n < 0;

	if (lost)
		stream_broken(s, (int)n);
	for (unsigned i = 0; i < count; i++) {
		struct stream_piece piece = pieces[i];
		size_t gone = MIN(piece.len, (size_t)MAX(n, 0));

		s->out.written += piece.len;
		piece.at += gone;
		piece.len -= gone;
		n -= (ssize_t)gone;
		if (!lost && piece.len) {
			s->out.waiting += piece.len;
			s->group->stats.waiting_bytes += piece.len;
			if (queue_add(s, piece))
				continue;
			s->out.waiting -= piece.len;
			s->group->stats.waiting_bytes -= piece.len;
			lost = true;
			stream_close(s, -ENOMEM, "no memory for an answer of %zu bytes", piece.len);
		}
		if (gone)
			piece_taken(s, &piece);
		else
			piece_release(&piece);
	}
	if (s->out.waiting && !s->visited)
		stream_make_ready(s);
}

void stream_hold(struct stream *s, uint64_t mark)
{
	struct stream_hold *last = s->out.holds ? &s->out.hold[s->out.holds - 1] : NULL;

	if (mark <= s->out.released || (last && mark <= last->mark))
		return;
	if (last && (last->at == s->out.written || s->out.holds == STREAM_HOLDS))
		last->mark = mark;
	else
		s->out.hold[s->out.holds++] = (struct stream_hold){s->out.written, mark};
}

void stream_release_to(struct stream *s, uint64_t mark)
{
	unsigned n = 0;

	s->out.released = MAX(s->out.released, mark);
	while (n < s->out.holds && s->out.hold[n].mark <= s->out.released)
		n++;
	if (!n)
		return;
	s->out.holds -= n;
	memmove(s->out.hold, s->out.hold + n, s->out.holds * sizeof(s->out.hold[0]));
	stream_make_ready(s);
}

uint64_t stream_held(const struct stream *s)
{
	return s->out.holds ? s->out.hold[0].mark : UINT64_MAX;
}

void stream_drop_pieces(struct stream *s)
{
	for (unsigned i = 0; i < s->out.count; i++)
		piece_release(piece_at(s, i));
	s->group->stats.waiting_bytes -= s->out.waiting;
	free(s->out.piece);
	s->out.piece = NULL;
	s->out.count = s->out.room = s->out.first = 0;
	s->out.waiting = 0;
	s->out.holds = 0;
}
