/* rdma_send.c: what leaves a stream by RDMA: small bytes are copied to the stage, values are read by the device. */
#include "stream/rdma.h"

#include <stdlib.h>

#define CHAIN 16u               /* requests by one post */
#define COPY 1024u              /* pinned bytes up to this are copied, too */
#define SIGNAL (RDMA_DEPTH / 4) /* requests until one tells of its end */
#define SETTLE TIME_S

/* What is posted together. */
struct chain {
	struct fabric_wr wr[CHAIN];
	unsigned count, most;
	uint32_t bytes;
	bool lends; /* pieces */
};

/* The requests stay as they are: chain_add() writes each that is used. */
static void chain_begin(struct chain *chain, unsigned most)
{
	chain->count = 0;
	chain->most = MIN(CHAIN, most);
	chain->bytes = 0;
	chain->lends = false;
}

/* Whether memory there goes on where the last ended. */
static bool chain_follows(const struct chain *chain, const void *at, const struct fabric_region *region)
{
	const struct fabric_wr *wr = chain->count ? &chain->wr[chain->count - 1] : NULL;
	const struct fabric_sge *last = wr ? &wr->sge[wr->sge_count - 1] : NULL;

	return last && last->region == region && (const char *)last->addr + last->len == at;
}

/* Whether one more range has its place. */
static bool has_place(const struct chain *chain)
{
	return chain->count < chain->most || (chain->count && chain->wr[chain->count - 1].sge_count < FABRIC_MAX_SGE);
}

static void chain_add(struct chain *chain, const struct rdma_stream *r, const void *at, uint32_t len,
		      const struct fabric_region *region)
{
	struct fabric_wr *wr = chain->count ? &chain->wr[chain->count - 1] : NULL;

	if (chain_follows(chain, at, region)) {
		wr->sge[wr->sge_count - 1].len += len;
	} else {
		if (!wr || wr->sge_count == FABRIC_MAX_SGE) {
			wr = &chain->wr[chain->count++];
			*wr = (struct fabric_wr){.opcode = FABRIC_WRITE,
						 .rkey = r->out.key,
						 .remote_addr = r->out.addr + r->out.used + chain->bytes};
		}
		wr->sge[wr->sge_count++] =
			(struct fabric_sge){.addr = (void *)(uintptr_t)at, .len = len, .region = region};
	}
	chain->bytes += len;
}

/* Copy to the stage, as far as it has room behind what was copied last. How many bytes. */
static uint32_t add_copy(struct stream *s, struct chain *chain, const char *at, uint32_t len)
{
	struct rdma_stream *r = s->rdma;
	uint32_t begin = r->out.staged % RDMA_STAGE, room = RDMA_STAGE - (r->out.staged - r->out.unstaged);
	char *to = rdma_stage(s) + begin;

	len = MIN(len, MIN(room, RDMA_STAGE - begin));
	if (!len || (!has_place(chain) && !chain_follows(chain, to, r->buffer->region)))
		return 0;
	memcpy(to, at, len);
	chain_add(chain, r, to, len, r->buffer->region);
	r->out.staged += len;
	return len;
}

static uint32_t add_pinned(struct stream *s, struct chain *chain, const char *at, uint32_t len)
{
	struct rdma_stream *r = s->rdma;

	if (!has_place(chain) && !chain_follows(chain, at, r->values))
		return 0;
	chain_add(chain, r, at, len, r->values);
	chain->lends = true;
	return len;
}

/* Where the next bytes of an iov are. */
struct place {
	const struct iovec *iov;
	unsigned i, count;
	size_t done; /* of iov[i] */
	uint64_t pinned;
};

static void chain_fill(struct stream *s, struct chain *chain, struct place *at)
{
	const struct rdma_stream *r = s->rdma;
	uint32_t room = r->out.len - r->out.used;

	while (at->i < at->count && chain->bytes < room) {
		const char *from = (const char *)at->iov[at->i].iov_base + at->done;
		uint32_t len = (uint32_t)MIN(at->iov[at->i].iov_len - at->done, (size_t)(room - chain->bytes));
		bool lend = r->values && at->pinned >> at->i & 1 && at->iov[at->i].iov_len > COPY;
		uint32_t n = lend ? add_pinned(s, chain, from, len) : add_copy(s, chain, from, len);

		if (!n && len)
			return;
		at->done += n;
		if (at->done == at->iov[at->i].iov_len) {
			at->i++;
			at->done = 0;
		}
	}
}

int stream_rdma_post(struct stream *s, struct fabric_wr *wr, unsigned count, bool signaled)
{
	struct rdma_stream *r = s->rdma;
	int rc;

	for (unsigned i = 0; i < count; i++)
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
	signaled |= r->out.posted + count - r->out.marked >= SIGNAL;
	wr[count - 1].signaled = signaled;
	rc = fabric_post(r->endpoint, wr);
	if (rc != 0)
		return rc;
	r->out.posted += count;
	r->last = s->group->now;
	if (signaled) {
		must(r->out.marks < RDMA_DEPTH);
		r->out.mark[(r->out.first + r->out.marks++) % RDMA_DEPTH] =
			(struct rdma_mark){r->out.posted, r->out.staged};
		r->out.marked = r->out.posted;
	}
	return 0;
}

/* The last of a chain says how many bytes all of it brought. What fits into the request itself is free at once. */
static int post_chain(struct stream *s, struct chain *chain, uint32_t staged)
{
	struct rdma_stream *r = s->rdma;
	struct fabric_wr *last = &chain->wr[chain->count - 1];
	bool inside = chain->count == 1 && chain->bytes <= r->inline_size;
	int rc;

	last->opcode = FABRIC_WRITE_IMM;
	last->imm = chain->bytes;
	if (inside)
		r->out.staged = staged;
	rc = stream_rdma_post(s, chain->wr, chain->count, !inside);
	if (rc != 0)
		return rc;
	r->out.used += chain->bytes;
	if (chain->lends)
		r->out.lent = r->out.posted;
	return 0;
}

/* Room for so many pieces more that are lent. */
static bool reserve_lent(struct rdma_stream *r, unsigned count)
{
	unsigned room = r->out.room ? r->out.room : 64;
	struct rdma_lent *piece;

	while (room < r->out.pieces + count)
		room *= 2;
	if (room == r->out.room)
		return true;
	piece = malloc(room * sizeof(*piece));
	if (!piece)
		return false;
	for (unsigned i = 0; i < r->out.pieces; i++)
		piece[i] = r->out.piece[(r->out.first_piece + i) & (r->out.room - 1)];
	free(r->out.piece);
	r->out.piece = piece;
	r->out.first_piece = 0;
	r->out.room = room;
	return true;
}

ssize_t stream_rdma_send(struct stream *s, const struct iovec *iov, unsigned count, uint64_t pinned)
{
	struct rdma_stream *r = s->rdma;
	struct place at = {.iov = iov, .count = count, .pinned = pinned};
	ssize_t sum = 0;

	if (r->state != RDMA_LIVE)
		return r->state == RDMA_GONE ? -ECONNRESET : -EAGAIN;
	if (pinned && !reserve_lent(r, count))
		return -ENOMEM;
	while (at.i < at.count && rdma_has_slots(r, RDMA_SPARE + 1)) {
		uint32_t staged = r->out.staged, under_way = r->out.posted - r->out.done;
		struct chain chain;
		int rc;

		chain_begin(&chain, RDMA_DEPTH - RDMA_SPARE - under_way);
		chain_fill(s, &chain, &at);
		if (!chain.bytes)
			break;
		rc = post_chain(s, &chain, staged);
		if (rc != 0)
			return sum ? sum : rc;
		sum += chain.bytes;
	}
	return sum ? sum : -EAGAIN;
}

static bool is_done(const struct rdma_stream *r, uint32_t posted)
{
	return (int32_t)(r->out.done - posted) >= 0;
}

void stream_rdma_release(struct stream *s, const struct stream_piece *piece)
{
	struct rdma_stream *r = s->rdma;

	if (is_done(r, r->out.lent)) {
		piece->release(piece->owner, piece->item);
		return;
	}
	must(r->out.pieces < r->out.room); /* reserve_lent() */
	r->out.piece[(r->out.first_piece + r->out.pieces++) & (r->out.room - 1)] =
		(struct rdma_lent){*piece, r->out.lent};
}

static void release_oldest(struct rdma_stream *r)
{
	struct rdma_lent lent = r->out.piece[r->out.first_piece];

	r->out.first_piece = (r->out.first_piece + 1) & (r->out.room - 1);
	r->out.pieces--;
	lent.piece.release(lent.piece.owner, lent.piece.item);
}

void stream_rdma_sent(struct stream *s)
{
	struct rdma_stream *r = s->rdma;
	struct rdma_mark mark = r->out.mark[r->out.first];

	must(r->out.marks > 0);
	r->out.first = (r->out.first + 1) % RDMA_DEPTH;
	r->out.marks--;
	r->out.done = mark.posted;
	r->out.unstaged = mark.staged;
	if (is_done(r, r->out.lent))
		r->out.lent = r->out.done; /* so that it stays near */
	while (r->out.pieces && is_done(r, r->out.piece[r->out.first_piece].posted))
		release_oldest(r);
	s->writable |= r->out.used < r->out.len;
	if (s->out.waiting || s->closing || r->owed)
		stream_make_ready(s);
}

/* Requests that do not tell of their end are followed by a request that writes nothing, and tells of it. A client that
 * is dead does not keep its stream from ending. */
bool stream_rdma_settled(struct stream *s)
{
	struct fabric_wr nothing = {.opcode = FABRIC_WRITE};
	struct rdma_stream *r = s->rdma;

	if (r->state != RDMA_LIVE || r->out.posted == r->out.done)
		return true;
	if (r->out.marked != r->out.posted && rdma_has_slots(r, 1) && stream_rdma_post(s, &nothing, 1, true) != 0)
		return true;
	if (!r->settle_by) {
		r->settle_by = s->group->now + SETTLE;
		stream_wait_until(s, r->settle_by);
	}
	return s->group->now >= r->settle_by;
}

void stream_rdma_drop_lent(struct stream *s)
{
	while (s->rdma->out.pieces)
		release_oldest(s->rdma);
	free(s->rdma->out.piece);
}
