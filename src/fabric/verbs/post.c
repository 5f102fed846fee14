/* post.c: work requests out, completions back to their owners. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>

#define VERBS_TOO_LARGE 1

static const enum ibv_wr_opcode verbs_opcode[] = {
	[FABRIC_SEND] = IBV_WR_SEND,
	[FABRIC_WRITE] = IBV_WR_RDMA_WRITE,
	[FABRIC_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[FABRIC_READ] = IBV_WR_RDMA_READ,
	[FABRIC_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[FABRIC_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

/*
 * Receives of an endpoint's own.
 */
/* Post up to a batch; the caller has checked the room. */
static int verbs_recv_batch(struct verbs_endpoint *ep, const struct fabric_recv *recv, unsigned count)
{
	struct ibv_recv_wr wr[VERBS_BATCH], *bad = NULL;
	struct ibv_sge sge[VERBS_BATCH];
	unsigned posted = count;
	int rc;

	for (unsigned i = 0; i < count; i++) {
		const struct fabric_sge *from = &recv[i].sge;
		uint32_t position = ep->recv_head + i;

		ep->recv_id[position & ep->recv_mask] = recv[i].id;
		sge[i].addr = (uintptr_t)from->addr;
		sge[i].length = (uint32_t)MIN(from->len, ep->max_message);
		sge[i].lkey = verbs_lkey(from->region, ep->device);
		wr[i] = (struct ibv_recv_wr){
			.wr_id = VERBS_WR_ID(VERBS_WR_RECV, ep->generation, position),
			.sg_list = &sge[i],
			.num_sge = from->len ? 1 : 0,
		};
		if (i)
			wr[i - 1].next = &wr[i];
	}
	rc = ibv_post_recv(ep->qp, wr, &bad);
	if (rc != 0) {
		posted = bad ? (unsigned)(bad - wr) : 0;
		log_error("verbs", "receive on %s: %s", ep->cq->device->name, strerror(rc));
	}
	ep->recv_head += posted;
	return -rc;
}

int verbs_post_recv(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
		    unsigned count)
{
	struct verbs_endpoint *ep;
	int rc = 0;

	if (!endpoint)
		return verbs_post_shared(container_of(queue, struct verbs_queue, base), recv, count);
	ep = container_of(endpoint, struct verbs_endpoint, base);
	if (ep->state >= VERBS_CLOSING)
		return -ENOTCONN;
	if (count > ep->recv_depth - (ep->recv_head - ep->recv_tail))
		return -EAGAIN;
	for (unsigned i = 0; i < count; i++)
		if (!recv[i].sge.region)
			return -EINVAL;
	if (ep->qp) {
		for (unsigned i = 0; !rc && i < count; i += VERBS_BATCH)
			rc = verbs_recv_batch(ep, recv + i, MIN(count - i, VERBS_BATCH));
		return rc;
	}
	for (unsigned i = 0; i < count; i++, ep->recv_head++) {
		ep->recv_id[ep->recv_head & ep->recv_mask] = recv[i].id;
		ep->early[ep->recv_head & ep->recv_mask] = recv[i].sge;
	}
	return 0;
}

/* What was posted before there was a queue pair. */
int verbs_post_early(struct verbs_endpoint *ep)
{
	uint32_t end = ep->recv_head;
	int rc = 0;

	for (ep->recv_head = ep->recv_tail; !rc && ep->recv_head != end;) {
		uint32_t slot = ep->recv_head & ep->recv_mask;
		struct fabric_recv recv = {ep->recv_id[slot], ep->early[slot]};

		rc = verbs_recv_batch(ep, &recv, 1);
	}
	free(ep->early);
	ep->early = NULL;
	return rc;
}

/*
 * Sends, writes and reads.
 */

/* A peer that was heard is connected, though rdma_cm may say so later. */
static bool verbs_may_send(const struct verbs_endpoint *ep)
{
	return ep->state == VERBS_LIVE || (ep->state == VERBS_ANSWERED && ep->heard);
}

static void verbs_fill(struct verbs_endpoint *ep, const struct fabric_wr *from, uint32_t position, uint8_t flags,
		       struct ibv_send_wr *wr)
{
	struct verbs_slot *slot = &ep->slot[position & ep->mask];

	slot->id = from->id;
	slot->opcode = (uint8_t)from->opcode;
	slot->flags = flags;
	wr->wr_id = VERBS_WR_ID(VERBS_WR_SEND, ep->generation, position);
	wr->opcode = verbs_opcode[from->opcode];
	wr->imm_data = htonl(from->imm);
	wr->wr.rdma.remote_addr = from->remote_addr;
	wr->wr.rdma.rkey = from->rkey;
	if (unlikely(fabric_is_atomic(from->opcode))) {
		wr->wr.atomic.remote_addr = from->remote_addr;
		wr->wr.atomic.rkey = from->rkey;
		wr->wr.atomic.compare_add = from->operand;
		wr->wr.atomic.swap = from->swap;
	}
	/* Each half send queue one completion, asked for or not, so that slots come back. */
	if (flags & VERBS_SLOT_SIGNALED || ++ep->unsignaled >= ep->signal_every) {
		ep->unsignaled = 0;
		wr->send_flags = IBV_SEND_SIGNALED;
	} else {
		wr->send_flags = 0;
	}
}

/* Small ones may lie anywhere, others in their region: a device finds out only after it has sent
 * the part that does. */
static bool verbs_in_region(const struct fabric_sge *sge)
{
	const struct fabric_region *r = sge->region;
	size_t offset = r ? (size_t)((char *)sge->addr - (char *)r->addr) : 0;

	return r && offset <= r->len && sge->len <= r->len - offset;
}

/* The scatter list of a whole request. */
static int verbs_fill_data(const struct verbs_endpoint *ep, const struct fabric_wr *from, size_t total,
			   struct ibv_send_wr *wr)
{
	bool inlined = total <= ep->max_inline && !fabric_brings(from->opcode);
	int n = 0;

	for (unsigned i = 0; i < from->sge_count; i++) {
		const struct fabric_sge *sge = &from->sge[i];

		if (!sge->len)
			continue;
		if (unlikely(!inlined && !verbs_in_region(sge)))
			return -EINVAL;
		wr->sg_list[n].addr = (uintptr_t)sge->addr;
		wr->sg_list[n].length = (uint32_t)sge->len;
		wr->sg_list[n++].lkey = inlined ? 0 : verbs_lkey(sge->region, ep->device);
	}
	wr->num_sge = n;
	if (inlined && n)
		wr->send_flags |= IBV_SEND_INLINE;
	/* A read of nothing is a write of nothing: some devices stumble over the former. */
	if (!n && from->opcode == FABRIC_READ)
		wr->opcode = IBV_WR_RDMA_WRITE;
	return 0;
}

static size_t verbs_total(const struct fabric_wr *wr)
{
	size_t total = 0;

	for (unsigned i = 0; i < wr->sge_count; i++)
		total += wr->sge[i].len;
	return total;
}

/* `count` requests are in the queue's scratch; ring the bell once. */
static int verbs_post_scratch(struct verbs_endpoint *ep, uint32_t count)
{
	struct ibv_send_wr *wr = ep->queue->wr, *last = &wr[count - 1], *bad = NULL, *next;
	int rc;

	next = last->next;
	last->next = NULL;
	rc = ibv_post_send(ep->qp, wr, &bad);
	last->next = next;
	if (likely(!rc)) {
		ep->head += count;
		return 0;
	}
	/* There was room, so the device is at fault; what it took will be flushed. */
	log_error("verbs", "post on %s: %s", ep->cq->device->name, strerror(rc < 0 ? errno : rc));
	ep->head += bad ? (uint32_t)(bad - wr) : count;
	return -EIO;
}

/*
 * A fence is an empty write that asks for a completion. It is posted when the caller needs slots that only unsignaled
 * requests hold: without it nothing would bring them back. As one in so many is signaled, that is a chain longer than
 * half of the send queue.
 */
static void verbs_post_fence(struct verbs_endpoint *ep)
{
	struct fabric_wr fence = {.opcode = FABRIC_WRITE, .signaled = true};

	if (ep->fence || ep->unsignaled == 0 || verbs_outstanding(ep) != ep->unsignaled ||
	    verbs_outstanding(ep) == ep->hw_depth)
		return;
	verbs_fill(ep, &fence, ep->head, VERBS_SLOT_FENCE | VERBS_SLOT_SIGNALED, ep->queue->wr);
	ep->queue->wr->num_sge = 0;
	ep->odd++;
	ep->fence = true;
	if (verbs_post_scratch(ep, 1))
		verbs_endpoint_close(ep);
}

/* iWARP: the peer writes what is read, by a key that it is told. */
static int verbs_check_sinks(const struct verbs_endpoint *ep, const struct fabric_wr *wr)
{
	if (likely(!ep->cq->device->iwarp))
		return 0;
	for (unsigned i = 0; i < wr->sge_count; i++)
		if (wr->sge[i].region && !(wr->sge[i].region->access & FABRIC_REMOTE_WRITE))
			return -EACCES;
	return 0;
}

/* Devices differ in where a word that is not aligned fails: rdma-core refuses it for some, the target for others. */
static int verbs_check_atomic(const struct verbs_endpoint *ep, const struct fabric_wr *wr, size_t total)
{
	const size_t word = sizeof(uint64_t);

	if (!ep->cq->device->atomics)
		return -EOPNOTSUPP;
	if (!ep->reads_out || total != word || wr->sge_count != 1 || !wr->sge[0].region || wr->remote_addr % word)
		return -EINVAL;
	return 0;
}

static int verbs_check(const struct verbs_endpoint *ep, const struct fabric_wr *wr, size_t total)
{
	if (wr->opcode == FABRIC_SEND)
		return total > ep->max_message ? -EMSGSIZE : 0;
	if (wr->opcode == FABRIC_WRITE_IMM)
		return ep->cq->device->iwarp ? -EOPNOTSUPP : 0;
	if (wr->opcode == FABRIC_READ && total)
		return ep->reads_out ? verbs_check_sinks(ep, wr) : -EINVAL;
	if (fabric_is_atomic(wr->opcode))
		return verbs_check_atomic(ep, wr, total);
	if (wr->opcode == FABRIC_PUSH)
		return -EOPNOTSUPP;
	return wr->opcode == FABRIC_WRITE || wr->opcode == FABRIC_READ ? 0 : -EINVAL;
}

/*
 * Requests larger than a message, and all that are posted behind them: a copy waits in a ring,
 * and completions make room for the next piece.
 */
static struct verbs_deferred *verbs_deferred_at(const struct verbs_endpoint *ep, uint32_t position)
{
	return &ep->deferred[position & ep->mask];
}

/* Small payloads are the caller's again at once, so they are copied. */
static void verbs_defer_one(struct verbs_endpoint *ep, const struct fabric_wr *wr)
{
	struct verbs_deferred *d = verbs_deferred_at(ep, ep->deferred_head);
	size_t total = verbs_total(wr), used = 0;

	d->wr = *wr;
	d->wr.next = NULL;
	if (total && total <= ep->max_inline && !fabric_brings(wr->opcode)) {
		for (unsigned i = 0; i < wr->sge_count; used += wr->sge[i++].len)
			memcpy(d->data + used, wr->sge[i].addr, wr->sge[i].len);
		d->wr.sge_count = 1;
		d->wr.sge[0] = (struct fabric_sge){d->data, total, NULL};
	}
	ep->deferred_head++;
	ep->used++;
}

/* The part of `wr` that begins at `done`, at most one message long. Returns its length. */
static size_t verbs_piece(const struct verbs_endpoint *ep, const struct fabric_wr *wr, size_t done,
			  struct fabric_wr *piece)
{
	size_t skip = done, length = 0;

	*piece = *wr;
	piece->sge_count = 0;
	piece->remote_addr += done;
	for (unsigned i = 0; i < wr->sge_count && length < ep->max_message; i++) {
		struct fabric_sge sge = wr->sge[i];

		if (skip >= sge.len) {
			skip -= sge.len;
			continue;
		}
		sge.addr = (char *)sge.addr + skip;
		sge.len = MIN(sge.len - skip, ep->max_message - length);
		skip = 0;
		length += sge.len;
		piece->sge[piece->sge_count++] = sge;
	}
	return length;
}

/* Post the next piece of the oldest deferred request. */
static int verbs_issue_piece(struct verbs_endpoint *ep)
{
	struct verbs_deferred *d = verbs_deferred_at(ep, ep->deferred_tail);
	size_t total = verbs_total(&d->wr);
	struct fabric_wr piece;
	size_t length = verbs_piece(ep, &d->wr, ep->deferred_done, &piece);
	bool last = ep->deferred_done + length == total;
	uint8_t flags = piece.signaled ? VERBS_SLOT_SIGNALED : 0;

	if (!last) {
		flags = VERBS_SLOT_PART;
		if (piece.opcode == FABRIC_WRITE_IMM)
			piece.opcode = FABRIC_WRITE;
	}
	verbs_fill(ep, &piece, ep->head, flags, ep->queue->wr);
	verbs_fill_data(ep, &piece, length, ep->queue->wr);
	ep->slot[ep->head & ep->mask].opcode = (uint8_t)d->wr.opcode;
	ep->odd += !last;
	ep->deferred_done += length;
	if (last) {
		ep->deferred_done = 0;
		ep->deferred_tail++;
	}
	return verbs_post_scratch(ep, 1);
}

static void verbs_issue_deferred(struct verbs_endpoint *ep)
{
	while (verbs_has_deferred(ep) && verbs_may_send(ep) && verbs_outstanding(ep) < ep->hw_depth)
		if (verbs_issue_piece(ep))
			verbs_endpoint_close(ep);
}

static int verbs_check_chain(const struct verbs_endpoint *ep, const struct fabric_wr *chain)
{
	uint32_t count = 0;

	for (const struct fabric_wr *wr = chain; wr; wr = wr->next, count++) {
		size_t total = verbs_total(wr);
		int rc = verbs_check(ep, wr, total);

		if (rc != 0)
			return rc;
		for (unsigned i = 0; i < wr->sge_count; i++)
			if ((total > ep->max_inline || fabric_brings(wr->opcode)) && wr->sge[i].len &&
			    !verbs_in_region(&wr->sge[i]))
				return -EINVAL;
	}
	return count > ep->depth - ep->used ? -EAGAIN : 0;
}

static int verbs_make_deferred(struct verbs_endpoint *ep)
{
	if (!ep->deferred)
		ep->deferred = calloc((size_t)ep->mask + 1, sizeof(*ep->deferred));
	return ep->deferred ? 0 : -ENOMEM;
}

static int verbs_post_deferred(struct verbs_endpoint *ep, const struct fabric_wr *chain)
{
	int rc = verbs_check_chain(ep, chain);

	if (rc == 0)
		rc = verbs_make_deferred(ep);
	if (rc == -EAGAIN && !verbs_has_deferred(ep))
		verbs_post_fence(ep);
	if (rc != 0)
		return rc;
	for (; chain; chain = chain->next)
		verbs_defer_one(ep, chain);
	verbs_issue_deferred(ep);
	return 0;
}

/* Lay the chain out in the queue's scratch. VERBS_TOO_LARGE: it has to be split. */
static int verbs_build(struct verbs_endpoint *ep, const struct fabric_wr *chain, uint32_t *count)
{
	uint32_t room = ep->depth - ep->used, n = 0;

	for (; chain; chain = chain->next, n++) {
		struct ibv_send_wr *wr = &ep->queue->wr[n];
		size_t total = verbs_total(chain);
		int rc = verbs_check(ep, chain, total);

		if (unlikely(rc))
			return rc;
		if (unlikely(total > ep->max_message))
			return VERBS_TOO_LARGE;
		if (unlikely(n == room))
			return -EAGAIN;
		verbs_fill(ep, chain, ep->head + n, chain->signaled ? VERBS_SLOT_SIGNALED : 0, wr);
		rc = verbs_fill_data(ep, chain, total, wr);
		if (unlikely(rc))
			return rc;
	}
	*count = n;
	return 0;
}

/* The device took only part of a chain. What it took will be flushed by it, the rest by us. */
static int verbs_post_failed(struct verbs_endpoint *ep, const struct fabric_wr *chain, uint32_t posted)
{
	int rc = posted ? verbs_make_deferred(ep) : -ENOTCONN;

	for (; posted; posted--)
		chain = chain->next;
	for (; !rc && chain; chain = chain->next)
		verbs_defer_one(ep, chain);
	verbs_endpoint_close(ep);
	return rc;
}

int verbs_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain)
{
	struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);
	uint32_t unsignaled = ep->unsignaled, head = ep->head, count = 0;
	int rc;

	if (unlikely(!verbs_may_send(ep)))
		return -ENOTCONN;
	/* Behind a split request, also while its parts hold more slots than it was counted for. */
	if (unlikely(verbs_has_deferred(ep) || ep->odd > ep->fence))
		return verbs_post_deferred(ep, chain);
	rc = verbs_build(ep, chain, &count);
	if (likely(!rc && count)) {
		rc = verbs_post_scratch(ep, count);
		ep->used += ep->head - head;
		return likely(!rc) ? 0 : verbs_post_failed(ep, chain, ep->head - head);
	}
	ep->unsignaled = unsignaled;
	if (rc == VERBS_TOO_LARGE)
		return verbs_post_deferred(ep, chain);
	if (rc == -EAGAIN)
		verbs_post_fence(ep);
	return rc;
}

/* Not behind a split request: that is rare, and a binding cannot be deferred like the others. */
int verbs_post_bind(struct verbs_endpoint *ep, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	static const struct fabric_wr none = {.opcode = FABRIC_WRITE};
	struct ibv_send_wr *wr = ep->queue->wr;
	int rc;

	if (!verbs_may_send(ep))
		return -ENOTCONN;
	if (verbs_has_deferred(ep) || ep->odd > ep->fence)
		return -EAGAIN;
	if (ep->used == ep->depth) {
		verbs_post_fence(ep);
		return -EAGAIN;
	}
	verbs_fill(ep, &none, ep->head, VERBS_SLOT_SILENT, wr);
	wr->opcode = IBV_WR_BIND_MW;
	wr->num_sge = 0;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
	rc = verbs_post_scratch(ep, 1);
	if (rc != 0)
		verbs_endpoint_close(ep);
	else
		ep->used++;
	return rc;
}

/*
 * Completions.
 */
static bool verbs_link_is_down(const struct verbs_endpoint *ep)
{
	struct ibv_port_attr attr;

	return ibv_query_port(ep->id->verbs, ep->id->port_num, &attr) == 0 && attr.state != IBV_PORT_ACTIVE;
}

static enum fabric_status verbs_status(const struct verbs_endpoint *ep, enum ibv_wc_status status,
				       enum fabric_opcode opcode)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return FABRIC_OK;
	case IBV_WC_WR_FLUSH_ERR:
		return FABRIC_FLUSHED;
	case IBV_WC_REM_INV_REQ_ERR: /* of what would reach memory: the peer serves none */
		if (opcode == FABRIC_SEND)
			return FABRIC_REMOTE_ERROR;
		/* fall through */
	case IBV_WC_REM_ACCESS_ERR: /* of a receive: some devices let it carry the peer's fault */
		return opcode == FABRIC_RECV ? FABRIC_FLUSHED : FABRIC_REMOTE_ACCESS;
	case IBV_WC_REM_OP_ERR:
		return FABRIC_REMOTE_ERROR;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return FABRIC_PEER_LOST;
	case IBV_WC_LOC_QP_OP_ERR: /* Soft-RoCE says so of a packet that it cannot send, and of memory, too */
	case IBV_WC_FATAL_ERR:
	case IBV_WC_GENERAL_ERR:
		return verbs_link_is_down(ep) ? FABRIC_LINK_DOWN : FABRIC_LOCAL_ERROR;
	default:
		return FABRIC_LOCAL_ERROR;
	}
}

/* Send slots before `end` come back: a completion stands for all before it. */
static void verbs_release(struct verbs_endpoint *ep, uint32_t end)
{
	if (likely(!ep->odd)) {
		ep->used -= end - ep->tail;
		ep->tail = end;
		return;
	}
	for (; ep->tail != end; ep->tail++) {
		uint8_t flags = ep->slot[ep->tail & ep->mask].flags;

		if (flags & VERBS_SLOT_FENCE)
			ep->fence = false;
		if (flags & (VERBS_SLOT_FENCE | VERBS_SLOT_PART))
			ep->odd--;
		else
			ep->used--;
	}
}

/* Whether a failed slot is reported: of a split request the first failing part only. */
static bool verbs_failed_slot(struct verbs_endpoint *ep, uint8_t flags)
{
	bool silent = ep->swallow || (flags & (VERBS_SLOT_FENCE | VERBS_SLOT_SILENT));

	if (!(flags & VERBS_SLOT_FENCE))
		ep->swallow = flags & VERBS_SLOT_PART;
	return !silent;
}

static bool verbs_send_done(struct verbs_endpoint *ep, const struct ibv_wc *wc, struct fabric_completion *out)
{
	uint32_t position = (uint32_t)wc->wr_id;
	struct verbs_slot slot = ep->slot[position & ep->mask];

	if (unlikely(position - ep->tail >= verbs_outstanding(ep)))
		return false;
	out->id = slot.id;
	out->opcode = (enum fabric_opcode)slot.opcode;
	verbs_release(ep, position + 1);
	if (likely(wc->status == IBV_WC_SUCCESS)) {
		if (unlikely(verbs_has_deferred(ep)))
			verbs_issue_deferred(ep);
		return slot.flags == VERBS_SLOT_SIGNALED;
	}
	return verbs_failed_slot(ep, slot.flags);
}

static void verbs_received(const struct ibv_wc *wc, struct fabric_completion *out)
{
	out->opcode = FABRIC_RECV;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	out->bytes = wc->byte_len;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		out->opcode = FABRIC_RECV_IMM;
		out->imm = ntohl(wc->imm_data);
	}
}

static bool verbs_done(struct verbs_cq *cq, struct verbs_endpoint *ep, const struct ibv_wc *wc,
		       struct fabric_completion *out)
{
	uint32_t position = (uint32_t)wc->wr_id; /* of a shared receive: its index */

	switch (wc->wr_id >> 62) {
	case VERBS_WR_SEND:
		return verbs_send_done(ep, wc, out);
	case VERBS_WR_RECV:
		if (unlikely(position - ep->recv_tail >= ep->recv_head - ep->recv_tail))
			return false;
		ep->recv_tail = position + 1;
		out->id = ep->recv_id[position & ep->recv_mask];
		verbs_received(wc, out);
		return true;
	default:
		out->id = cq->queue->shared[position].id;
		verbs_received(wc, out);
		verbs_shared_return(cq, position, VERBS_SHARED_DONE);
		return true;
	}
}

/* Number of completions for the caller: none or one. */
static int verbs_complete(struct verbs_cq *cq, const struct ibv_wc *wc, struct fabric_completion *out)
{
	struct verbs_endpoint *ep = verbs_queue_find(cq, wc->qp_num);
	bool shared = wc->wr_id >> 62 == VERBS_WR_SHARED, deliver;

	/* When the endpoint is gone only shared receives are of interest. */
	if (unlikely(!ep || (!shared && (wc->wr_id >> 32 & VERBS_GENERATION_MASK) != ep->generation))) {
		if (shared)
			verbs_shared_return(cq, (uint32_t)wc->wr_id, VERBS_SHARED_ORPHAN);
		return 0;
	}
	*out = (struct fabric_completion){.endpoint = &ep->base, .context = ep->context};
	deliver = verbs_done(cq, ep, wc, out);
	out->status = verbs_status(ep, wc->status, out->opcode);
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		if (ep->state == VERBS_LIVE && wc->status != IBV_WC_WR_FLUSH_ERR)
			log_debug("verbs", "endpoint %u: %s, vendor error %u", ep->generation,
				  ibv_wc_status_str(wc->status), wc->vendor_err);
		verbs_endpoint_close(ep);
	}
	if (unlikely(ep->state == VERBS_CLOSING))
		verbs_endpoint_settle(ep);
	else if (unlikely(ep->state == VERBS_ANSWERED))
		ep->heard = true; /* nothing but a receive can complete here */
	return deliver;
}

/* The completion queue was found empty, or cannot be polled. */
static void verbs_cq_empty(struct verbs_cq *cq, int got)
{
	if (got < 0) {
		verbs_cq_lose(cq, "it cannot be polled");
		return;
	}
	cq->reserved -= cq->dying; /* none of theirs is left */
	cq->dying = 0;
	if (cq->retired)
		verbs_retired_free(cq->queue, cq, VERBS_RETIRED_DRAINED);
}

static int verbs_poll_cq(struct verbs_cq *cq, struct fabric_completion *out, int max)
{
	struct ibv_wc wc[VERBS_BATCH];
	int n = 0, taken = 0, want, got;

	if (unlikely(cq->lost))
		return 0;
	do {
		want = MIN(max - n, VERBS_BATCH);
		got = ibv_poll_cq(cq->cq, want, wc);
		taken += got;
		for (int i = 0; i < got; i++)
			n += verbs_complete(cq, &wc[i], out + n);
	} while (got == want && n < max);
	if (got < want && unlikely(got < 0 || (cq->dying | cq->retired)))
		verbs_cq_empty(cq, got);
	if (taken > 0 && unlikely(cq->armed))
		verbs_take_cq_events(cq);
	return n;
}

/* What the device had and will never complete. */
static bool verbs_flush_lost(struct verbs_endpoint *ep, struct fabric_completion *out)
{
	while (ep->cq && ep->cq->lost && verbs_outstanding(ep)) {
		struct verbs_slot slot = ep->slot[ep->tail & ep->mask];

		verbs_release(ep, ep->tail + 1);
		out->opcode = (enum fabric_opcode)slot.opcode;
		out->id = slot.id;
		if (verbs_failed_slot(ep, slot.flags))
			return true;
	}
	return false;
}

/*
 * Flushes of what the device never had: receives from before the queue pair, then the deferred
 * requests, these after the device's own flushes.
 */
static bool verbs_flush_one(struct verbs_endpoint *ep, struct fabric_completion *out)
{
	*out = (struct fabric_completion){.endpoint = &ep->base, .context = ep->context, .status = FABRIC_FLUSHED};
	if (verbs_flush_lost(ep, out))
		return true;
	if ((!ep->qp || ep->cq->lost) && ep->recv_head != ep->recv_tail) {
		out->opcode = FABRIC_RECV;
		out->id = ep->recv_id[ep->recv_tail++ & ep->recv_mask];
		return true;
	}
	while (verbs_has_deferred(ep) && !verbs_outstanding(ep)) {
		struct verbs_deferred *d = verbs_deferred_at(ep, ep->deferred_tail++);
		bool silent = ep->swallow; /* begun, and a part of it was reported */

		ep->used--;
		ep->swallow = false;
		out->opcode = d->wr.opcode;
		out->id = d->wr.id;
		if (!silent)
			return true;
	}
	return false;
}

static int verbs_flush(struct verbs_queue *q, struct fabric_completion *out, int max)
{
	struct list *pos, *tmp;
	int n = 0;

	list_for_each_safe (pos, tmp, &q->flushing) {
		struct verbs_endpoint *ep = container_of(pos, struct verbs_endpoint, flushing);

		while (n < max && verbs_flush_one(ep, out + n))
			n++;
		if (n < max && !verbs_has_deferred(ep))
			list_del(&ep->flushing);
		verbs_endpoint_settle(ep);
	}
	return n;
}

int verbs_poll(struct fabric_queue *queue, struct fabric_completion *out, int max)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);
	int n = 0;

	if (likely(q->count == 1)) {
		n = verbs_poll_cq(q->cq, out, max);
	} else {
		q->first++;
		for (unsigned i = 0; i < q->count && n < max; i++)
			n += verbs_poll_cq(&q->cq[(q->first + i) % q->count], out + n, max - n);
	}
	if (unlikely(!list_empty(&q->flushing)) && n < max)
		n += verbs_flush(q, out + n, max - n);
	return n;
}
