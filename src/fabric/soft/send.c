/*
 * send.c: work requests to frames, frames to the socket.
 *
 * soft_transmit() is the only writer of an open endpoint's stream, but for a short message that
 * nothing is before: soft_transmit_message(). It gathers frames, each
 * a header and memory that stays where it is (small payloads are copied behind their
 * header, which is cheaper than an iovec), and sends them by one call. Headers are made
 * anew when a frame is continued, so that nothing but `part` and `part_sent` is kept of it.
 */
#include "fabric/soft/soft.h"

#include <stdlib.h>
#include <sys/epoll.h>

/* Cursors over what one batch gathers; the endpoint's own move when the bytes are sent. */
struct soft_gather {
	uint32_t response, request, reads;
	bool control;
	bool rest; /* more of the response must wait for the next batch */
};

static void soft_batch_copy(struct soft_batch *b, const void *bytes, size_t n)
{
	uint8_t *to = b->copy + b->copied;
	struct iovec *last = b->iovs ? &b->iov[b->iovs - 1] : NULL;

	memcpy(to, bytes, n);
	if (last && (uint8_t *)last->iov_base + last->iov_len == to)
		last->iov_len += n;
	else
		b->iov[b->iovs++] = (struct iovec){to, n};
	b->copied += n;
	b->bytes += n;
}

/* Add a frame with `len` bytes of payload but for its first `skip` bytes. */
static void soft_batch_frame(struct soft_batch *b, enum soft_part part, const struct soft_frame *f,
			     const struct soft_seg *seg, unsigned segs, uint64_t len, uint64_t skip)
{
	uint8_t header[SOFT_HEADER];

	b->frame[b->frames].part = part;
	b->frame[b->frames++].left = SOFT_HEADER + len - skip;
	if (skip < SOFT_HEADER) {
		soft_frame_encode(header, f);
		soft_batch_copy(b, header + skip, SOFT_HEADER - skip);
	}
	skip -= MIN(skip, (uint64_t)SOFT_HEADER);
	for (unsigned i = 0; i < segs; i++) {
		uint64_t over = MIN(skip, seg[i].len);

		skip -= over;
		if (over == seg[i].len)
			continue;
		if (len <= SOFT_INLINE) {
			soft_batch_copy(b, seg[i].addr + over, seg[i].len - over);
		} else if (b->bytes < b->most) {
			size_t n = MIN(seg[i].len - over, b->most - b->bytes);

			b->iov[b->iovs++] = (struct iovec){seg[i].addr + over, n};
			b->bytes += n;
		}
	}
}

/* Is there a frame of our own to put before the others? It is encoded then. */
static bool soft_control_next(struct soft_endpoint *ep, const struct soft_gather *g)
{
	struct soft_frame f = {0};

	if (g->control)
		return false;
	if (ep->out.control_len)
		return true;
	if (ep->out.ack_due) {
		f.op = SOFT_ACK;
		f.arg = ep->rx_number;
		ep->out.ack_due = false;
	} else if (ep->share == SOFT_SHARE_DUE) {
		f.op = SOFT_SHARE;
		f.arg = ep->offer != NULL;
		ep->share = SOFT_SHARE_TOLD;
	} else if (ep->state == SOFT_REFUSING && !ep->refusal.sent && g->response == ep->responses.head) {
		f.op = SOFT_ERROR;
		f.arg = ep->refusal.number;
		f.key = ep->refusal.why;
		ep->refusal.sent = true;
	} else {
		return false;
	}
	soft_frame_encode(ep->out.control, &f);
	ep->out.control_len = SOFT_HEADER;
	return true;
}

static void soft_gather_control(struct soft_endpoint *ep, struct soft_gather *g)
{
	struct soft_batch *b = ep->queue->batch;
	uint64_t skip = ep->out.part == SOFT_PART_CONTROL ? ep->out.part_sent : 0;

	b->frame[b->frames].part = SOFT_PART_CONTROL;
	b->frame[b->frames++].left = ep->out.control_len - skip;
	soft_batch_copy(b, ep->out.control + skip, ep->out.control_len - skip);
	g->control = true;
}

/* The next piece of an answer; what of it is sent stays where it is. If the region has gone
 * a piece that was begun is filled up with zeros, since the ERROR can only follow it. */
static bool soft_gather_response(struct soft_endpoint *ep, struct soft_gather *g, uint64_t skip)
{
	static const uint8_t zeros[SOFT_PIECE];
	struct soft_response *r = &ep->responses.ring[g->response & ep->responses.mask];
	uint64_t len = MIN(r->len - r->sent, (uint64_t)SOFT_PIECE);
	struct soft_frame f = {.op = SOFT_READ_DATA, .len = len};
	struct soft_seg seg = {(uint8_t *)(uintptr_t)(r->addr + r->sent), len, r->key};

	if (r->len && !soft_region_check(ep, ep->domain, r->key, r->addr, r->len, FABRIC_REMOTE_READ)) {
		/* This response and the later ones are not to be answered. */
		ep->responses.head = g->response;
		soft_refuse(ep, r->number, SOFT_REFUSED_ACCESS);
		if (!skip)
			return false;
		seg.addr = (uint8_t *)zeros;
		r->len = r->sent + len;
		ep->responses.head++;
	}
	soft_batch_frame(ep->queue->batch, SOFT_PART_RESPONSE, &f, &seg, len > 0, len, skip);
	g->rest = r->sent + len < r->len;
	g->response += !g->rest;
	return true;
}

/* Are the request's local ranges what they should be? */
static bool soft_wr_local(struct soft_endpoint *ep, const struct soft_wr *wr)
{
	unsigned right = wr->opcode == FABRIC_READ ? FABRIC_LOCAL_WRITE : 0;
	bool copied = !right && wr->len <= SOFT_INLINE;

	for (unsigned i = 0; i < wr->segs; i++) {
		const struct soft_seg *s = &wr->seg[i];

		if (!s->len || (copied && !s->key))
			continue;
		if (!soft_region_check(ep, ep->domain, s->key, (uintptr_t)s->addr, s->len, right))
			return false;
	}
	return true;
}

static void soft_wr_frame(const struct soft_wr *wr, struct soft_frame *f)
{
	static const uint8_t op[] = {
		[FABRIC_SEND] = SOFT_SEND, [FABRIC_WRITE] = SOFT_WRITE, [FABRIC_WRITE_IMM] = SOFT_WRITE_IMM,
		[FABRIC_READ] = SOFT_READ, [FABRIC_PUSH] = SOFT_PUSH,
	};

	*f = (struct soft_frame){.op = op[wr->opcode], .len = wr->len};
	if (wr->opcode == FABRIC_PUSH || (wr->opcode != FABRIC_READ && wr->signaled))
		f->flags = SOFT_FLAG_ACK;
	if (wr->opcode == FABRIC_WRITE_IMM)
		f->arg = wr->imm;
	if (wr->opcode != FABRIC_SEND && wr->opcode != FABRIC_PUSH) {
		f->addr = wr->remote_addr;
		f->key = wr->rkey;
	}
}

/* False when it cannot go now: its local memory is bad. That is told when all before it
 * has completed. */
static bool soft_gather_request(struct soft_endpoint *ep, struct soft_gather *g, uint64_t skip)
{
	struct soft_wr *wr = &ep->sq.ring[g->request & ep->sq.mask];
	bool read = wr->opcode == FABRIC_READ;
	struct soft_frame f;

	if (unlikely(!soft_wr_local(ep, wr))) {
		if (skip || g->request == ep->sq.tail)
			soft_fail(ep, &(struct soft_cause){.linger = !skip,
							   .blame = true,
							   .index = g->request,
							   .status = FABRIC_LOCAL_ERROR});
		return false;
	}
	soft_wr_frame(wr, &f);
	soft_batch_frame(ep->queue->batch, SOFT_PART_REQUEST, &f, wr->seg, read ? 0 : wr->segs, read ? 0 : wr->len,
			 skip);
	g->request++;
	g->reads += read;
	return true;
}

static bool soft_request_ready(const struct soft_endpoint *ep, const struct soft_gather *g)
{
	if (ep->state != SOFT_OPEN || g->request == ep->sq.head)
		return false;
	return ep->sq.ring[g->request & ep->sq.mask].opcode != FABRIC_READ || g->reads - ep->reads.tail < ep->reads_out;
}

/* The frame that the socket took in part comes first. */
static bool soft_gather_part(struct soft_endpoint *ep, struct soft_gather *g)
{
	switch (ep->out.part) {
	case SOFT_PART_NONE:
		break;
	case SOFT_PART_CONTROL:
		soft_gather_control(ep, g);
		break;
	case SOFT_PART_RESPONSE:
		return soft_gather_response(ep, g, ep->out.part_sent);
	case SOFT_PART_REQUEST:
		return soft_gather_request(ep, g, ep->out.part_sent);
	}
	return true;
}

/* Answers and requests take turns, so that neither side's starve the other's. */
static void soft_gather(struct soft_endpoint *ep)
{
	struct soft_batch *b = ep->queue->batch;
	struct soft_gather g = {.response = ep->responses.tail, .request = ep->sq.sent, .reads = ep->reads.head};
	bool going = soft_gather_part(ep, &g);

	while (going && b->frames < SOFT_BATCH && b->bytes < b->most && !(g.control && ep->share == SOFT_SHARE_TOLD)) {
		bool request = soft_request_ready(ep, &g);

		if (soft_control_next(ep, &g)) {
			soft_gather_control(ep, &g);
		} else if (g.response != ep->responses.head && !g.rest && (ep->out.turn || !request)) {
			going = soft_gather_response(ep, &g, 0);
			ep->out.turn = false;
		} else if (request) {
			going = soft_gather_request(ep, &g, 0);
			ep->out.turn = true;
		} else {
			break;
		}
	}
}

static void soft_frame_sent(struct soft_endpoint *ep, enum soft_part part)
{
	struct soft_response *response;
	struct soft_wr *wr;

	switch (part) {
	case SOFT_PART_NONE:
		break;
	case SOFT_PART_CONTROL:
		ep->out.control_len = 0;
		break;
	case SOFT_PART_RESPONSE:
		response = &ep->responses.ring[ep->responses.tail & ep->responses.mask];
		response->sent += MIN(response->len - response->sent, (uint64_t)SOFT_PIECE);
		ep->responses.tail += response->sent == response->len;
		break;
	case SOFT_PART_REQUEST:
		wr = &ep->sq.ring[ep->sq.sent & ep->sq.mask];
		if (wr->opcode == FABRIC_READ)
			ep->reads.ring[ep->reads.head++ & ep->reads.mask] = ep->sq.sent;
		/* The memory of a push is the caller's again, so it completes now if it can; its place in the queue
		 * comes back with the ACK. */
		if (wr->opcode == FABRIC_PUSH && wr->signaled && soft_cq_room(ep->queue)) {
			soft_wr_complete(ep, wr, FABRIC_OK);
			wr->signaled = false;
			wr->done = true;
		}
		ep->sq.sent++;
		break;
	}
}

/* The socket took `n` bytes: which frames are out? */
static void soft_batch_account(struct soft_endpoint *ep, size_t n)
{
	struct soft_batch *b = ep->queue->batch;

	for (unsigned i = 0; i < b->frames; i++) {
		if (n < b->frame[i].left) {
			if (n) {
				ep->out.part_sent = ep->out.part == SOFT_PART_NONE ? n : ep->out.part_sent + n;
				ep->out.part = b->frame[i].part;
				/* Bytes of something longer than a message? */
				if (ep->out.part == SOFT_PART_RESPONSE ||
				    (ep->out.part == SOFT_PART_REQUEST &&
				     ep->sq.ring[ep->sq.sent & ep->sq.mask].opcode != FABRIC_SEND))
					ep->moved += n;
			}
			return;
		}
		n -= b->frame[i].left;
		ep->out.part = SOFT_PART_NONE;
		soft_frame_sent(ep, b->frame[i].part);
	}
}

/* Epoll tells when there is room. */
static void soft_endpoint_block(struct soft_endpoint *ep)
{
	int rc;

	if (ep->rings) {
		soft_rings_block(ep);
		return;
	}
	rc = soft_near_watch(ep);
	ep->out.blocked = true;
	ep->queue->blocked++;
	if (ep->unix_socket && !ep->out.watched) {
		ep->out.watched = true;
		soft_watch(ep->queue, &ep->source, soft_endpoint_events(ep), false);
	}
	if (rc != 0)
		soft_fail_socket(ep, -rc);
}

static ssize_t soft_socket_send(struct soft_endpoint *ep)
{
	struct soft_batch *b = ep->queue->batch;
	struct msghdr m = {.msg_iov = b->iov, .msg_iovlen = b->iovs};
	ssize_t n;

	do
		n = b->iovs == 1
			    ? send(ep->source.fd, b->iov[0].iov_base, b->iov[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
			    : sendmsg(ep->source.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EAGAIN)
		return 0;
	if (errno == ENOBUFS || errno == ENOMEM) {
		if (!list_linked(&ep->later))
			list_add_tail(&ep->queue->later, &ep->later);
		soft_timer_want(ep->queue, SOFT_RETRY_MS);
		return 0;
	}
	if ((errno == EPIPE || errno == ECONNRESET) && ep->state == SOFT_OPEN) {
		/* The peer has gone, and what it said before is still to be read; the end of that fails the
		 * endpoint. */
		ep->hung_up = true;
		soft_ready(ep);
		return 0;
	}
	soft_fail_socket(ep, errno);
	return -1;
}

/* One gathering and one call. False when there is no more to do now. */
static bool soft_transmit_batch(struct soft_endpoint *ep, size_t *budget)
{
	struct soft_batch *b = ep->queue->batch;
	ssize_t n;

	b->iovs = b->frames = 0;
	b->bytes = b->copied = 0;
	b->most = *budget;
	soft_gather(ep);
	if (ep->state >= SOFT_FLUSHING || !b->frames)
		return false;
	n = ep->rings ? soft_rings_send(ep, b->iov, b->iovs) : soft_socket_send(ep);
	if (n < 0)
		return false;
	ep->queue->moved |= n > SOFT_STAGE;
	if (!ep->unix_socket && !ep->rings)
		soft_watched(ep);
	soft_batch_account(ep, n);
	soft_retire(ep);
	*budget -= MIN(*budget, (size_t)n);
	if ((size_t)n < b->bytes) {
		soft_endpoint_block(ep);
		return false;
	}
	if (ep->refusal.sent && !ep->out.control_len) {
		soft_fail(ep, &(struct soft_cause){.linger = true});
		return false;
	}
	if (ep->share == SOFT_SHARE_TOLD && !ep->out.control_len)
		soft_share_told(ep);
	return ep->state < SOFT_FLUSHING;
}

static bool soft_transmit_idle(const struct soft_endpoint *ep)
{
	return ep->sq.sent == ep->sq.head && ep->responses.tail == ep->responses.head && !ep->out.control_len &&
	       !ep->out.ack_due && ep->state == SOFT_OPEN && ep->share != SOFT_SHARE_DUE;
}

void soft_transmit(struct soft_endpoint *ep)
{
	size_t most = soft_budget(ep->queue), budget = most;

	must(soft_section_inside(ep->queue));
	if ((ep->state != SOFT_OPEN && ep->state != SOFT_REFUSING) || ep->out.blocked ||
	    (ep->share == SOFT_SHARE_ASKED && ep->state == SOFT_OPEN))
		return;
	ep->tx_wanted = false;
	while (!soft_transmit_idle(ep)) {
		if (!budget) {
			soft_ready(ep);
			break;
		}
		if (!soft_transmit_batch(ep, &budget))
			break;
	}
	soft_spend(ep->queue, most - budget);
	if (ep->out.watched && !ep->out.blocked && ep->source.fd >= 0) {
		ep->out.watched = false;
		soft_watch(ep->queue, &ep->source, soft_endpoint_events(ep), false);
	}
}

/* A short message with nothing before it or behind it: of it nothing need be gathered. False, too, when the socket did
 * not take all of it: soft_transmit() goes on. */
static bool soft_transmit_message(struct soft_endpoint *ep)
{
	const struct soft_wr *wr = &ep->sq.ring[ep->sq.sent & ep->sq.mask];
	uint8_t *bytes = ep->queue->batch->copy;
	struct soft_frame f;
	ssize_t n;

	if (ep->sq.head - ep->sq.sent != 1 || wr->opcode != FABRIC_SEND || wr->segs != 1 || !wr->len ||
	    wr->len > SOFT_INLINE || ep->out.part != SOFT_PART_NONE || ep->responses.tail != ep->responses.head ||
	    ep->out.control_len || ep->out.ack_due || ep->out.blocked || ep->out.watched ||
	    ep->share > SOFT_SHARE_OFFERED || !soft_wr_local(ep, wr))
		return false;
	if (ep->rings)
		bytes = soft_rings_reserve(ep, SOFT_HEADER + wr->len);
	if (!bytes)
		return false;
	soft_wr_frame(wr, &f);
	soft_frame_encode(bytes, &f);
	memcpy(bytes + SOFT_HEADER, wr->seg[0].addr, wr->len);
	if (ep->rings) {
		ep->sq.sent++;
		soft_spend(ep->queue, SOFT_HEADER + wr->len);
		soft_rings_commit(ep, SOFT_HEADER + wr->len);
		return true;
	}
	n = send(ep->source.fd, bytes, SOFT_HEADER + wr->len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n <= 0)
		return false;
	if (!ep->unix_socket)
		soft_watched(ep);
	soft_spend(ep->queue, n);
	if ((size_t)n == SOFT_HEADER + wr->len) {
		ep->sq.sent++;
		return true;
	}
	ep->out.part = SOFT_PART_REQUEST;
	ep->out.part_sent = n;
	return false;
}

static bool soft_wr_done(const struct soft_endpoint *ep, uint32_t index)
{
	const struct soft_wr *wr = &ep->sq.ring[index & ep->sq.mask];

	if (wr->opcode == FABRIC_READ)
		return wr->done;
	return (int32_t)(ep->sq.acked - index) > 0;
}

void soft_wr_complete(struct soft_endpoint *ep, const struct soft_wr *wr, enum fabric_status status)
{
	struct fabric_completion c = {
		.id = wr->id,
		.endpoint = &ep->base,
		.context = ep->context,
		.opcode = wr->opcode,
		.status = status,
	};

	soft_cq_push(ep->queue, &c);
}

void soft_retire(struct soft_endpoint *ep)
{
	while (ep->sq.tail != ep->sq.sent && soft_wr_done(ep, ep->sq.tail)) {
		struct soft_wr *wr = &ep->sq.ring[ep->sq.tail & ep->sq.mask];

		if (wr->signaled) {
			if (!soft_cq_room(ep->queue)) {
				soft_ready(ep);
				return;
			}
			soft_wr_complete(ep, wr, FABRIC_OK);
		}
		ep->sq.tail++;
	}
}

/* How many requests the chain has, or -EINVAL, -EOPNOTSUPP. */
static int soft_chain_check(const struct soft_endpoint *ep, const struct fabric_wr *chain)
{
	int count = 0;

	for (const struct fabric_wr *wr = chain; wr; wr = wr->next, count++) {
		if (fabric_is_atomic(wr->opcode))
			return -EOPNOTSUPP;
		if ((wr->opcode > FABRIC_READ && wr->opcode != FABRIC_PUSH) || wr->sge_count > FABRIC_MAX_SGE ||
		    (wr->opcode == FABRIC_READ && !ep->reads_out))
			return -EINVAL;
	}
	return count;
}

static void soft_wr_copy(struct soft_endpoint *ep, struct soft_wr *to, const struct fabric_wr *wr)
{
	to->id = wr->id;
	to->remote_addr = wr->remote_addr;
	to->imm = wr->imm;
	to->rkey = wr->rkey;
	to->opcode = wr->opcode;
	to->signaled = wr->signaled;
	to->segs = wr->sge_count;
	to->done = false;
	to->len = to->got = 0;
	for (unsigned i = 0; i < wr->sge_count; i++) {
		to->seg[i].addr = wr->sge[i].addr;
		to->seg[i].len = wr->sge[i].len;
		to->seg[i].key = wr->sge[i].region ? soft_region_key(ep->domain, wr->sge[i].region) : 0;
		to->len += wr->sge[i].len;
	}
}

/* Keep small requests that stay queued, so that the caller may reuse their memory. */
static void soft_sq_keep_small(struct soft_endpoint *ep)
{
	if ((int32_t)(ep->sq.kept - ep->sq.sent) < 0)
		ep->sq.kept = ep->sq.sent;
	for (; ep->sq.kept != ep->sq.head; ep->sq.kept++) {
		struct soft_wr *wr = &ep->sq.ring[ep->sq.kept & ep->sq.mask];
		uint8_t *to;

		if (wr->opcode == FABRIC_READ || !wr->len || wr->len > SOFT_INLINE || !soft_wr_local(ep, wr))
			continue;
		if (!ep->sq.copies) /* a socket is full for the first time */
			ep->sq.copies = malloc(((size_t)ep->sq.mask + 1) * SOFT_INLINE);
		if (!ep->sq.copies) {
			log_error("soft", "no memory to keep what a peer does not take");
			soft_fail(ep, &(struct soft_cause){0});
			return;
		}
		to = ep->sq.copies + (size_t)(ep->sq.kept & ep->sq.mask) * SOFT_INLINE;
		for (unsigned i = 0; i < wr->segs; i++) {
			memcpy(to, wr->seg[i].addr, wr->seg[i].len);
			wr->seg[i].addr = to;
			wr->seg[i].key = 0;
			to += wr->seg[i].len;
		}
	}
}

int soft_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);
	struct soft_queue *q = ep->queue;
	int count = soft_chain_check(ep, chain);
	bool more = false;

	if (count < 0)
		return count;
	if (ep->state != SOFT_OPEN)
		return -ENOTCONN;
	if (ep->sq.head - ep->sq.tail + (uint32_t)count > ep->sq.depth)
		return -EAGAIN;
	for (const struct fabric_wr *wr = chain; wr; wr = wr->next) {
		soft_wr_copy(ep, &ep->sq.ring[ep->sq.head++ & ep->sq.mask], wr);
		more = wr->more;
	}
	soft_section_enter(q);
	if (more)
		soft_ready(ep);
	else if (!soft_transmit_message(ep))
		soft_transmit(ep);
	if (unlikely(ep->sq.sent != ep->sq.head) && ep->state < SOFT_FLUSHING)
		soft_sq_keep_small(ep);
	soft_section_leave(q);
	soft_settle(q);
	return 0;
}
