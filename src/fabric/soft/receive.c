/*
 * receive.c: bytes from the socket, frames to completions and memory.
 *
 * One call reads into the queue's staging buffer, or the first half of it, which holds many small frames; what is
 * left of a larger payload after that is read straight into its target, with the staging
 * buffer behind it for the frames that follow.
 */
#include "fabric/soft/soft.h"

#include <stdlib.h>

void soft_target(struct soft_endpoint *ep, struct soft_domain *d, const struct soft_seg *seg, unsigned segs,
		 unsigned right)
{
	ep->target.domain = d;
	ep->target.right = right;
	ep->target.segs = segs;
	ep->target.at = 0;
	ep->left = ep->frame.len;
	for (unsigned i = 0; i < segs; i++)
		ep->target.seg[i] = seg[i];
}

/* The rest of it. */
bool soft_target_check(struct soft_endpoint *ep)
{
	for (unsigned i = ep->target.at; i < ep->target.segs; i++) {
		const struct soft_seg *s = &ep->target.seg[i];

		if (s->key && s->len &&
		    !soft_region_check(ep, ep->target.domain, s->key, (uintptr_t)s->addr, s->len, ep->target.right))
			return false;
	}
	return true;
}

/* `n` bytes of the target are not to be written any more. */
static void soft_skip(struct soft_endpoint *ep, size_t n)
{
	while (n) {
		struct soft_seg *s = &ep->target.seg[ep->target.at];
		size_t k = MIN(n, s->len);

		s->addr += k;
		s->len -= k;
		n -= k;
		if (!s->len)
			ep->target.at++;
	}
}

/* `n` bytes of payload are in place. */
static void soft_advance(struct soft_endpoint *ep, size_t n)
{
	soft_skip(ep, n);
	ep->left -= n;
	if (!ep->left)
		ep->phase = SOFT_PHASE_FINISH;
}

void soft_target_lost(struct soft_endpoint *ep)
{
	if (ep->frame.op == SOFT_READ_DATA)
		soft_fail(ep, &(struct soft_cause){
				      .blame = true,
				      .index = ep->reads.ring[ep->reads.tail & ep->reads.mask],
				      .status = FABRIC_LOCAL_ERROR,
			      });
	else
		soft_refuse(ep, ep->rx_number, ep->frame.op == SOFT_SEND ? SOFT_REFUSED_LENGTH : SOFT_REFUSED_ACCESS);
}

static enum soft_step soft_begin_send(struct soft_endpoint *ep, const struct soft_frame *f)
{
	struct soft_domain *d = ep->recvs.ring ? ep->domain : ep->queue->domain;
	enum soft_step step;
	struct soft_seg seg;

	step = soft_recv_take(ep);
	if (step != SOFT_GO)
		return step;
	seg = (struct soft_seg){ep->recv.to.addr, f->len, ep->recv.to.key};
	soft_target(ep, d, &seg, 1, FABRIC_LOCAL_WRITE);
	if (likely(f->len <= ep->recv.to.len && (!f->len || soft_target_check(ep))))
		return SOFT_GO;
	soft_recv_complete(ep, FABRIC_LOCAL_ERROR);
	soft_refuse(ep, ep->rx_number, SOFT_REFUSED_LENGTH);
	return SOFT_END;
}

/* A read of a word while a small write comes in gives the old one or the new one: so the write is kept until all of it
 * is here, wherever the stream was cut. */
static bool soft_is_small(const struct soft_frame *f)
{
	return f->len && f->len <= SOFT_SMALL;
}

static void soft_copy_words(uint8_t *to, const uint8_t *from, size_t len)
{
	if ((uintptr_t)to % 8 == 0)
		for (; len >= 8; to += 8, from += 8, len -= 8)
			__atomic_store_n((uint64_t *)to, *(const uint64_t *)from, __ATOMIC_RELEASE);
	memcpy(to, from, len);
}

/* A small write is complete: to its place, if that is still registered. */
static enum soft_step soft_place_small(struct soft_endpoint *ep)
{
	const struct soft_frame *f = &ep->frame;

	if (!soft_region_check(ep, ep->domain, f->key, f->addr, f->len, FABRIC_REMOTE_WRITE)) {
		soft_refuse(ep, ep->rx_number, SOFT_REFUSED_ACCESS);
		return SOFT_END;
	}
	soft_copy_words((uint8_t *)(uintptr_t)f->addr, ep->small, f->len);
	return SOFT_GO;
}

static enum soft_step soft_begin_write(struct soft_endpoint *ep, const struct soft_frame *f)
{
	struct soft_seg seg = {(uint8_t *)(uintptr_t)f->addr, f->len, f->key};

	/* Key 0 is not memory of ours here; soft_target_check() would take it so. */
	if (!ep->admitted ||
	    (f->len && (!f->key || !soft_region_check(ep, ep->domain, f->key, f->addr, f->len, FABRIC_REMOTE_WRITE)))) {
		soft_refuse(ep, ep->rx_number, SOFT_REFUSED_ACCESS);
		return SOFT_END;
	}
	if (soft_is_small(f))
		seg = (struct soft_seg){ep->small, f->len, 0};
	soft_target(ep, ep->domain, &seg, 1, FABRIC_REMOTE_WRITE);
	return SOFT_GO;
}

static enum soft_step soft_begin_read(struct soft_endpoint *ep, const struct soft_frame *f)
{
	uint32_t served = ep->responses.head - ep->responses.tail;

	if (!ep->admitted || !ep->reads_in ||
	    (f->len && !soft_region_check(ep, ep->domain, f->key, f->addr, f->len, FABRIC_REMOTE_READ))) {
		soft_refuse(ep, ep->rx_number, SOFT_REFUSED_ACCESS);
		return SOFT_END;
	}
	if (served >= ep->reads_in) {
		soft_fail_protocol(ep, "more reads than were granted");
		return SOFT_END;
	}
	ep->responses.ring[ep->responses.head++ & ep->responses.mask] =
		(struct soft_response){f->addr, f->len, 0, f->key, ep->rx_number++};
	ep->queue->served = true;
	ep->tx_wanted = true;
	ep->left = 0;
	return SOFT_GO;
}

static enum soft_step soft_begin_read_data(struct soft_endpoint *ep, const struct soft_frame *f)
{
	struct soft_wr *wr;

	if (ep->reads.tail == ep->reads.head) {
		soft_fail_protocol(ep, "read data that nobody asked for");
		return SOFT_END;
	}
	wr = &ep->sq.ring[ep->reads.ring[ep->reads.tail & ep->reads.mask] & ep->sq.mask];
	if (f->len > wr->len - wr->got || (!f->len && wr->len)) {
		soft_fail_protocol(ep, "read data of another length than asked for");
		return SOFT_END;
	}
	soft_target(ep, ep->domain, wr->seg, wr->segs, FABRIC_LOCAL_WRITE);
	soft_skip(ep, wr->got);
	if (soft_target_check(ep))
		return SOFT_GO;
	soft_target_lost(ep);
	return SOFT_END;
}

static enum soft_step soft_begin_ack(struct soft_endpoint *ep, const struct soft_frame *f)
{
	if (f->len || f->arg - ep->sq.acked > ep->sq.sent - ep->sq.acked) {
		soft_fail_protocol(ep, "acknowledged what was not sent");
		return SOFT_END;
	}
	ep->sq.acked = f->arg;
	ep->left = 0;
	return SOFT_GO;
}

static enum soft_step soft_begin_error(struct soft_endpoint *ep, const struct soft_frame *f)
{
	bool partly = ep->out.part == SOFT_PART_REQUEST;

	if (f->len || (int32_t)(ep->sq.sent + partly - f->arg) <= 0 ||
	    (f->key != SOFT_REFUSED_ACCESS && f->key != SOFT_REFUSED_LENGTH)) {
		soft_fail_protocol(ep, "refused what was not sent");
		return SOFT_END;
	}
	if ((int32_t)(f->arg - ep->sq.acked) > 0)
		ep->sq.acked = f->arg; /* those before it were done */
	soft_fail(ep, &(struct soft_cause){
			      .blame = true,
			      .index = f->arg,
			      .status = f->key == SOFT_REFUSED_ACCESS ? FABRIC_REMOTE_ACCESS : FABRIC_REMOTE_ERROR,
		      });
	return SOFT_END;
}

/* ACCEPT or REJECT */
static enum soft_step soft_begin_answer(struct soft_endpoint *ep, const struct soft_frame *f)
{
	size_t most = f->op == SOFT_ACCEPT ? FABRIC_ACCEPT_DATA : FABRIC_REJECT_DATA;
	struct soft_seg seg = {ep->data, f->len, 0};

	if (f->addr != SOFT_MAGIC || f->len > most || (f->op == SOFT_ACCEPT && (f->key & 0xffff) != SOFT_VERSION)) {
		soft_fail_protocol(ep, "answered the connect request by something else");
		return SOFT_END;
	}
	soft_target(ep, ep->domain, &seg, 1, 0);
	return SOFT_GO;
}

static void soft_owe(struct soft_endpoint *ep, struct list *list)
{
	if (list_linked(&ep->owing.link))
		list_del(&ep->owing.link);
	list_add_tail(list, &ep->owing.link);
	ep->owing.since = ep->queue->turn.number;
}

static void soft_request_served(struct soft_endpoint *ep)
{
	ep->rx_number++;
	if (!(ep->frame.flags & SOFT_FLAG_ACK))
		return;
	/* In a reply it is free, so it waits a little for one. A write has none. */
	if (ep->frame.op == SOFT_WRITE)
		soft_owe(ep, &ep->queue->owing.now);
	else if (!ep->out.ack_due)
		soft_owe(ep, &ep->queue->owing.list);
	ep->out.ack_due = true;
}

/* A message that was put aside is here: it needs a receive after all. */
static enum soft_step soft_finish_aside(struct soft_endpoint *ep)
{
	enum soft_step step = soft_begin_send(ep, &ep->frame);

	if (step == SOFT_WAIT)
		return step;
	if (step == SOFT_GO)
		memcpy(ep->recv.to.addr, ep->recv.aside, ep->frame.len);
	free(ep->recv.aside);
	ep->recv.aside = NULL;
	return step;
}

static enum soft_step soft_finish_send(struct soft_endpoint *ep)
{
	enum soft_step step = SOFT_GO;

	if (!soft_cq_room(ep->queue)) {
		soft_ready(ep);
		return SOFT_WAIT;
	}
	if (unlikely(ep->recv.aside))
		step = soft_finish_aside(ep);
	if (step != SOFT_GO)
		return step;
	soft_recv_complete(ep, FABRIC_OK);
	soft_request_served(ep);
	return SOFT_GO;
}

/* All of it is here, so it takes no receive before it needs one. */
static enum soft_step soft_finish_write_imm(struct soft_endpoint *ep)
{
	enum soft_step step = soft_recv_take(ep);

	if (step != SOFT_GO)
		return step;
	if (soft_is_small(&ep->frame) && soft_place_small(ep) != SOFT_GO)
		return SOFT_END;
	soft_recv_complete(ep, FABRIC_OK);
	soft_request_served(ep);
	return SOFT_GO;
}

static enum soft_step soft_finish_write(struct soft_endpoint *ep)
{
	if (soft_is_small(&ep->frame) && soft_place_small(ep) != SOFT_GO)
		return SOFT_END;
	ep->queue->served = true;
	soft_request_served(ep);
	return SOFT_GO;
}

static enum soft_step soft_finish_push(struct soft_endpoint *ep)
{
	enum soft_step step = soft_push_ends(ep);

	if (step == SOFT_GO)
		soft_request_served(ep);
	return step;
}

static enum soft_step soft_finish_read_data(struct soft_endpoint *ep)
{
	uint32_t index = ep->reads.ring[ep->reads.tail & ep->reads.mask];
	struct soft_wr *wr = &ep->sq.ring[index & ep->sq.mask];

	wr->got += ep->frame.len;
	ep->moved += ep->frame.len;
	if (wr->got < wr->len)
		return SOFT_GO;
	ep->reads.tail++;
	wr->done = true;
	if ((int32_t)(index + 1 - ep->sq.acked) > 0)
		ep->sq.acked = index + 1;
	soft_retire(ep);
	ep->tx_wanted |= ep->sq.sent != ep->sq.head;
	return SOFT_GO;
}

static enum soft_step soft_finish_ack(struct soft_endpoint *ep)
{
	soft_retire(ep);
	ep->tx_wanted |= ep->sq.sent != ep->sq.head;
	return SOFT_GO;
}

static enum soft_step soft_finish_read(struct soft_endpoint *ep)
{
	return SOFT_GO;
}

static enum soft_step soft_finish_accept(struct soft_endpoint *ep)
{
	if (ep->frame.arg == SOFT_ACCEPT_RINGS) {
		soft_fail_protocol(ep, "took rings that were not offered");
		return SOFT_END;
	}
	if (ep->frame.arg == SOFT_ACCEPT_SHARE)
		soft_share_ask(ep);
	ep->data_len = ep->frame.len;
	if (ep->frame.key >> 24)
		ep->reads_out = MIN(ep->reads_out, (uint8_t)(ep->frame.key >> 24));
	else
		ep->reads_out = MIN(ep->reads_out, 1); /* one, to be told that it may not */
	soft_endpoint_opened(ep);
	return SOFT_GO;
}

static enum soft_step soft_finish_reject(struct soft_endpoint *ep)
{
	static const int error[] = {
		[SOFT_REASON_CALLER] = -ECONNREFUSED,
		[SOFT_REASON_VERSION] = -EPROTONOSUPPORT,
		[SOFT_REASON_RESOURCES] = -ENOMEM,
	};
	uint32_t reason = ep->frame.arg;

	ep->data_len = ep->frame.len;
	soft_fail(ep, &(struct soft_cause){
			      .event = FABRIC_REJECTED,
			      .error = reason < ARRAY_SIZE(error) ? error[reason] : -ECONNREFUSED,
		      });
	return SOFT_END;
}

static const struct {
	enum soft_step (*begin)(struct soft_endpoint *ep, const struct soft_frame *f);
	enum soft_step (*finish)(struct soft_endpoint *ep);
	enum soft_state state; /* the only one in which it may come */
} soft_ops[SOFT_OP_END] = {
	[SOFT_ACCEPT] = {soft_begin_answer, soft_finish_accept, SOFT_ASKING},
	[SOFT_REJECT] = {soft_begin_answer, soft_finish_reject, SOFT_ASKING},
	[SOFT_SEND] = {soft_begin_send, soft_finish_send, SOFT_OPEN},
	[SOFT_WRITE] = {soft_begin_write, soft_finish_write, SOFT_OPEN},
	[SOFT_WRITE_IMM] = {soft_begin_write, soft_finish_write_imm, SOFT_OPEN},
	[SOFT_READ] = {soft_begin_read, soft_finish_read, SOFT_OPEN},
	[SOFT_READ_DATA] = {soft_begin_read_data, soft_finish_read_data, SOFT_OPEN},
	[SOFT_ACK] = {soft_begin_ack, soft_finish_ack, SOFT_OPEN},
	[SOFT_ERROR] = {soft_begin_error, soft_finish_read, SOFT_OPEN},
	[SOFT_SHARE] = {soft_begin_share, soft_finish_share, SOFT_OPEN},
	[SOFT_PUSH] = {soft_begin_push, soft_finish_push, SOFT_OPEN},
};

static enum soft_step soft_frame_begin(struct soft_endpoint *ep)
{
	const struct soft_frame *f = &ep->frame;
	enum soft_step step;

	if (f->op >= SOFT_OP_END || !soft_ops[f->op].begin || soft_ops[f->op].state != ep->state ||
	    f->flags & ~SOFT_FLAG_ACK) {
		soft_fail_protocol(ep, "a frame that is not expected");
		return SOFT_END;
	}
	step = soft_ops[f->op].begin(ep, f);
	if (step != SOFT_GO)
		return step;
	ep->phase = ep->left ? SOFT_PHASE_PAYLOAD : SOFT_PHASE_FINISH;
	if (ep->left > SOFT_STAGE - SOFT_HEADER && f->op != SOFT_SEND)
		ep->row = 0;
	else if (ep->row < SOFT_ROW)
		ep->row++;
	return SOFT_GO;
}

/* Complete the header from up to `n` bytes; how many were used. */
static size_t soft_parse_header(struct soft_endpoint *ep, const uint8_t *bytes, size_t n)
{
	if (likely(!ep->header_have && n >= SOFT_HEADER)) {
		soft_frame_decode(bytes, &ep->frame);
		ep->phase = SOFT_PHASE_BEGIN;
		return SOFT_HEADER;
	}
	n = MIN(n, (size_t)SOFT_HEADER - ep->header_have);
	memcpy(ep->header + ep->header_have, bytes, n);
	ep->header_have += n;
	if (ep->header_have == SOFT_HEADER) {
		soft_frame_decode(ep->header, &ep->frame);
		ep->header_have = 0;
		ep->phase = SOFT_PHASE_BEGIN;
	}
	return n;
}

static size_t soft_parse_payload(struct soft_endpoint *ep, const uint8_t *bytes, size_t n)
{
	size_t used = 0;

	n = MIN(n, ep->left);
	while (used < n) {
		struct soft_seg *s = &ep->target.seg[ep->target.at];
		size_t k = MIN(n - used, s->len);

		if (k)
			memcpy(s->addr, bytes + used, k);
		else
			ep->target.at++;
		if (k)
			soft_advance(ep, k);
		used += k;
	}
	return used;
}

size_t soft_parse(struct soft_endpoint *ep, const uint8_t *bytes, size_t n, enum soft_step *step)
{
	size_t used = 0;

	*step = SOFT_GO;
	while (*step == SOFT_GO) {
		switch (ep->phase) {
		case SOFT_PHASE_HEADER:
			if (used == n)
				return used;
			used += soft_parse_header(ep, bytes + used, n - used);
			break;
		case SOFT_PHASE_BEGIN:
			*step = soft_frame_begin(ep);
			break;
		case SOFT_PHASE_PAYLOAD:
			if (used == n)
				return used;
			used += soft_parse_payload(ep, bytes + used, n - used);
			break;
		case SOFT_PHASE_FINISH:
			*step = soft_ops[ep->frame.op].finish(ep);
			if (*step == SOFT_GO)
				ep->phase = SOFT_PHASE_HEADER;
			break;
		}
	}
	return used;
}

/* Keep what could not be worked off. The staging buffer belongs to all endpoints. */
static enum soft_step soft_leftover_keep(struct soft_endpoint *ep, const uint8_t *bytes, size_t n)
{
	if (!n)
		return SOFT_WAIT;
	if (!ep->leftover)
		ep->leftover = malloc(SOFT_STAGE_MOST);
	if (!ep->leftover) {
		log_error("soft", "no memory to keep what a peer sent");
		soft_fail(ep, &(struct soft_cause){0});
		return SOFT_END;
	}
	memcpy(ep->leftover, bytes, n);
	ep->leftover_at = 0;
	ep->leftover_len = n;
	return SOFT_WAIT;
}

static enum soft_step soft_parse_stage(struct soft_endpoint *ep, size_t n)
{
	enum soft_step step;
	size_t used = soft_parse(ep, ep->queue->stage, n, &step);

	return step == SOFT_WAIT ? soft_leftover_keep(ep, ep->queue->stage + used, n - used) : step;
}

static size_t soft_stage_size(const struct soft_endpoint *ep)
{
	if (unlikely(ep->undecided)) /* up to the end of ACCEPT and no further */
		return ep->phase == SOFT_PHASE_PAYLOAD ? 0 : SOFT_HEADER - ep->header_have;
	return likely(ep->row == SOFT_ROW) ? SOFT_STAGE_MOST : SOFT_STAGE;
}

/* The target and then, if it is all of the payload, the staging buffer. */
static int soft_scatter(struct soft_endpoint *ep, size_t budget, struct iovec *iov, size_t *direct)
{
	size_t most = MIN(budget, ep->left);
	int n = 0;

	*direct = 0;
	for (unsigned i = ep->target.at; i < ep->target.segs && *direct < most; i++) {
		size_t len = MIN(ep->target.seg[i].len, most - *direct);

		if (len)
			iov[n++] = (struct iovec){ep->target.seg[i].addr, len};
		*direct += len;
	}
	if (*direct == ep->left)
		iov[n++] = (struct iovec){ep->queue->stage, soft_stage_size(ep)};
	return n;
}

/* The rest of a payload. Bytes read (*wanted: asked for), or as recv(). */
static ssize_t soft_read_direct(struct soft_endpoint *ep, size_t budget, size_t *wanted, enum soft_step *step)
{
	struct iovec iov[FABRIC_MAX_SGE + 1];
	size_t direct;
	int iovs = soft_scatter(ep, budget, iov, &direct);
	ssize_t n = readv(ep->source.fd, iov, iovs);

	*step = SOFT_GO;
	*wanted = direct + (direct == ep->left ? soft_stage_size(ep) : 0);
	if (n <= 0)
		return n;
	ep->queue->moved = true;
	if (ep->frame.op != SOFT_SEND)
		ep->moved += (uint64_t)n;
	soft_advance(ep, MIN((size_t)n, direct));
	if (ep->phase == SOFT_PHASE_FINISH)
		*step = soft_parse_stage(ep, n - direct);
	return n;
}

/* One call, and the frames that it brought. False when there is no more to do now. */
static bool soft_receive_once(struct soft_endpoint *ep, size_t *budget)
{
	size_t wanted;
	enum soft_step step;
	ssize_t n;

	if (ep->rings)
		return soft_rings_receive(ep, budget);
	if (ep->phase == SOFT_PHASE_PAYLOAD) {
		if (!soft_target_check(ep)) {
			soft_target_lost(ep);
			return false;
		}
		n = soft_read_direct(ep, *budget, &wanted, &step);
	} else {
		wanted = soft_stage_size(ep);
		if (unlikely(ep->state == SOFT_ASKING) && ep->unix_socket)
			n = soft_share_read(ep, ep->queue->stage, wanted);
		else
			n = recv(ep->source.fd, ep->queue->stage, wanted, MSG_DONTWAIT);
		step = n > 0 ? soft_parse_stage(ep, n) : SOFT_GO;
	}
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			soft_fail_socket(ep, n ? errno : 0);
		return false;
	}
	ep->heard++;
	*budget -= MIN(*budget, (size_t)n);
	/* A short read has emptied the socket, but the edge that told of the end came before it. */
	return step == SOFT_GO && ((size_t)n == wanted || ep->hung_up);
}

static bool soft_reads(const struct soft_endpoint *ep)
{
	return (ep->state == SOFT_OPEN && likely(!ep->undecided)) || ep->state == SOFT_ASKING;
}

void soft_receive(struct soft_endpoint *ep)
{
	size_t most = soft_budget(ep->queue), budget = most;
	bool more = true;

	must(soft_section_inside(ep->queue));
	if (ep->recv.starved || !soft_reads(ep))
		return;
	if (ep->phase == SOFT_PHASE_BEGIN || ep->phase == SOFT_PHASE_FINISH || ep->leftover_len) {
		/* Bytes that waited go before new ones. */
		uint32_t left = ep->leftover_len - ep->leftover_at;
		enum soft_step step;

		ep->leftover_at += soft_parse(ep, left ? ep->leftover + ep->leftover_at : ep->leftover, left, &step);
		if (step != SOFT_WAIT) /* behind an end comes nothing, or what only wakes */
			ep->leftover_at = ep->leftover_len = 0;
		more = step == SOFT_GO;
	}
	while (more && budget && soft_reads(ep))
		more = soft_receive_once(ep, &budget);
	soft_spend(ep->queue, most - budget);
	if (more && ep->source.fd >= 0)
		soft_ready(ep); /* the edge is spent, the bytes are not */
	if (soft_frame_begun(ep) && ep->source.fd >= 0) {
		soft_recv_lend(ep);
		soft_watched(ep);
	}
	if (unlikely(ep->share == SOFT_SHARE_ASKED) && soft_stands_still(ep))
		soft_announce(ep); /* it waits for its caller, which waits for that */
	if (ep->tx_wanted)
		soft_transmit(ep);
}
