/*
 * recvs.c: receives, an endpoint's own and the shared ones.
 *
 * A message takes its receive when its header comes, so that the payload goes straight to its place. While the rest is
 * under way it only borrows a shared one: an endpoint that finds none left gets that of the message that has waited
 * longest, and what has come of it is put aside, in memory of its own, until it is complete. So peers that begin
 * messages and do not end them keep no other waiting.
 */
#include "fabric/soft/soft.h"

#include <stdlib.h>

int soft_recvs_create(struct soft_recvs *r, uint32_t depth)
{
	if (!depth)
		return 0;
	r->depth = depth;
	r->mask = soft_ring_size(depth) - 1;
	r->ring = calloc((size_t)r->mask + 1, sizeof(*r->ring));
	return r->ring ? 0 : -ENOMEM;
}

static bool soft_recvs_post(struct soft_recvs *r, const struct fabric_recv *recv, unsigned count,
			    const struct soft_domain *d)
{
	if (r->head - r->tail + r->held + count > r->depth)
		return false;
	for (unsigned i = 0; i < count; i++) {
		struct soft_recv *to = &r->ring[r->head++ & r->mask];

		to->id = recv[i].id;
		to->addr = recv[i].sge.addr;
		to->len = recv[i].sge.len;
		to->key = soft_region_key(d, recv[i].sge.region);
	}
	return true;
}

/* An endpoint that waited for a receive goes on with the next poll. */
static void soft_recv_feed(struct soft_endpoint *ep)
{
	if (!ep->recv.starved)
		return;
	ep->recv.starved = false;
	if (list_linked(&ep->recv.starving))
		list_del(&ep->recv.starving);
	soft_ready(ep);
}

void soft_recvs_feed(struct soft_queue *q)
{
	uint32_t most = q->recvs.shared.head - q->recvs.shared.tail;

	/* One that is borrowed can be had by one. */
	for (most = MAX(most, 1u); most && soft_recvs_wanted(q); most--)
		soft_recv_feed(list_first(&q->recvs.starved, struct soft_endpoint, recv.starving));
}

int soft_post_recv(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
		   unsigned count)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);

	if (endpoint) {
		struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);

		if (!ep->recvs.ring)
			return -EINVAL;
		if (ep->state >= SOFT_FLUSHING)
			return -ENOTCONN;
		if (!soft_recvs_post(&ep->recvs, recv, count, ep->domain))
			return -EAGAIN;
		soft_recv_feed(ep);
	} else {
		if (!q->recvs.shared.ring)
			return -EINVAL;
		if (!soft_recvs_post(&q->recvs.shared, recv, count, q->domain))
			return -EAGAIN;
	}
	soft_settle(q);
	return 0;
}

/* The receive that `ep` borrows goes back to the others. */
static void soft_recv_give_back(struct soft_endpoint *ep)
{
	struct soft_recvs *r = &ep->queue->recvs.shared;

	r->held--;
	r->ring[--r->tail & r->mask] = ep->recv.to;
	ep->recv.held = false;
	if (list_linked(&ep->recv.borrowing))
		list_del(&ep->recv.borrowing);
}

/* Put aside what has come of the message at hand: its receive is free then. */
static bool soft_recv_put_aside(struct soft_endpoint *ep)
{
	size_t had = ep->frame.len - ep->left;
	uint8_t *aside;

	if (had && !soft_region_check(ep, ep->queue->domain, ep->recv.to.key, (uintptr_t)ep->recv.to.addr, had,
				      FABRIC_LOCAL_WRITE))
		return false;
	aside = malloc(ep->frame.len);
	if (!aside)
		return false;
	memcpy(aside, ep->recv.to.addr, had);
	ep->recv.aside = aside;
	ep->target.segs = 1;
	ep->target.at = 0;
	ep->target.seg[0] = (struct soft_seg){aside + had, ep->left, 0};
	soft_recv_give_back(ep);
	return true;
}

static bool soft_recv_reclaim(struct soft_queue *q)
{
	while (!list_empty(&q->recvs.borrowing)) {
		struct soft_endpoint *ep = list_first(&q->recvs.borrowing, struct soft_endpoint, recv.borrowing);

		list_del(&ep->recv.borrowing);
		if (soft_recv_put_aside(ep))
			return true;
	}
	return false;
}

enum soft_step soft_recv_take(struct soft_endpoint *ep)
{
	struct soft_recvs *r = soft_recvs_of(ep);

	if (!soft_cq_room(ep->queue)) {
		soft_ready(ep);
		return SOFT_WAIT;
	}
	if (unlikely(r->head == r->tail) && (ep->recvs.ring || !soft_recv_reclaim(ep->queue))) {
		/* A peer that has gone does not wait for this one to complete. */
		if (ep->hung_up) {
			soft_fail_socket(ep, 0);
			return SOFT_END;
		}
		ep->recv.starved = true;
		if (!ep->recvs.ring)
			list_add_tail(&ep->queue->recvs.starved, &ep->recv.starving);
		return SOFT_WAIT;
	}
	ep->recv.to = r->ring[r->tail++ & r->mask];
	r->held++;
	ep->recv.held = true;
	return SOFT_GO;
}

void soft_recv_lend(struct soft_endpoint *ep)
{
	if (ep->recv.held && !ep->recvs.ring && !list_linked(&ep->recv.borrowing))
		list_add_tail(&ep->queue->recvs.borrowing, &ep->recv.borrowing);
}

void soft_recv_complete(struct soft_endpoint *ep, enum fabric_status status)
{
	struct fabric_completion c = {
		.id = ep->recv.to.id,
		.endpoint = &ep->base,
		.context = ep->context,
		.opcode = ep->frame.op == SOFT_SEND ? FABRIC_RECV : FABRIC_RECV_IMM,
		.status = status,
		.bytes = ep->frame.len,
		.imm = ep->frame.arg,
	};

	soft_cq_push(ep->queue, &c);
	ep->recv.held = false;
	soft_recvs_of(ep)->held--;
	if (unlikely(list_linked(&ep->recv.borrowing)))
		list_del(&ep->recv.borrowing);
}

void soft_recv_return(struct soft_endpoint *ep)
{
	if (ep->recv.held && !ep->recvs.ring)
		soft_recv_give_back(ep);
}
