/*
 * push.c: pushes that come. Their receiver learns of each by a message before it, and says where it goes. Until then
 * the stream stands still, and epoll is not asked to tell of it.
 */
#include "fabric/soft/soft.h"

#include <stdlib.h>

static struct soft_pull *soft_pull_at(const struct soft_endpoint *ep, uint32_t index)
{
	return &ep->pulls.ring[index % SOFT_PULLS];
}

static int soft_pull_drop(struct soft_endpoint *ep, unsigned count)
{
	struct soft_pull *last = soft_pull_at(ep, ep->pulls.head - 1);

	if (ep->pulls.head != ep->pulls.tail && last->drop)
		last->drop += count;
	else if (ep->pulls.head - ep->pulls.tail == SOFT_PULLS)
		return -EAGAIN;
	else
		soft_pull_at(ep, ep->pulls.head++)->drop = count;
	return 0;
}

int soft_pull(struct fabric_endpoint *endpoint, const struct fabric_recv *to, unsigned count)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);
	int rc = 0;

	if (ep->state != SOFT_OPEN)
		return -ENOTCONN;
	if (!ep->pulls.ring)
		ep->pulls.ring = malloc(SOFT_PULLS * sizeof(*ep->pulls.ring));
	if (!ep->pulls.ring)
		return -ENOMEM;
	if (!to)
		rc = soft_pull_drop(ep, count);
	else if (ep->pulls.head - ep->pulls.tail == SOFT_PULLS)
		rc = -EAGAIN;
	else
		*soft_pull_at(ep, ep->pulls.head++) = (struct soft_pull){
			.to = {to->id, to->sge.addr, to->sge.len, soft_region_key(ep->domain, to->sge.region)}};
	if (rc == 0 && ep->phase == SOFT_PHASE_BEGIN && ep->frame.op == SOFT_PUSH)
		soft_ready(ep); /* it waited for that */
	soft_settle(ep->queue);
	return rc;
}

/* All that is dropped by a queue goes to the same place. */
static enum soft_step soft_begin_drop(struct soft_endpoint *ep, const struct soft_frame *f)
{
	struct soft_queue *q = ep->queue;
	struct soft_seg seg;

	if (!q->dropped)
		q->dropped = malloc(FABRIC_PUSH_MAX);
	if (!q->dropped) {
		log_error("soft", "no memory for what a peer sent");
		soft_fail(ep, &(struct soft_cause){0});
		return SOFT_END;
	}
	seg = (struct soft_seg){q->dropped, f->len, 0};
	soft_target(ep, ep->domain, &seg, 1, 0);
	return SOFT_GO;
}

enum soft_step soft_begin_push(struct soft_endpoint *ep, const struct soft_frame *f)
{
	const struct soft_pull *pull;
	struct soft_seg seg;

	if (!f->len || f->len > FABRIC_PUSH_MAX) {
		soft_fail_protocol(ep, "a push of a length that there is not");
		return SOFT_END;
	}
	if (ep->pulls.head == ep->pulls.tail)
		return SOFT_WAIT;
	pull = soft_pull_at(ep, ep->pulls.tail);
	if (pull->drop)
		return soft_begin_drop(ep, f);
	if (f->len != pull->to.len) {
		soft_fail_protocol(ep, "a push of another length than was told");
		return SOFT_END;
	}
	seg = (struct soft_seg){pull->to.addr, f->len, pull->to.key};
	soft_target(ep, ep->domain, &seg, 1, FABRIC_LOCAL_WRITE);
	if (soft_target_check(ep))
		return SOFT_GO;
	soft_target_lost(ep);
	return SOFT_END;
}

static void soft_pull_complete(struct soft_endpoint *ep, uint64_t id, enum fabric_status status, size_t bytes)
{
	struct fabric_completion c = {
		.id = id,
		.endpoint = &ep->base,
		.context = ep->context,
		.opcode = FABRIC_PULL,
		.status = status,
		.bytes = (uint32_t)bytes,
	};

	soft_cq_push(ep->queue, &c);
}

enum soft_step soft_push_ends(struct soft_endpoint *ep)
{
	struct soft_pull *pull = soft_pull_at(ep, ep->pulls.tail);

	if (pull->drop) {
		ep->pulls.tail += --pull->drop == 0;
		return SOFT_GO;
	}
	if (!soft_cq_room(ep->queue)) {
		soft_ready(ep);
		return SOFT_WAIT;
	}
	soft_pull_complete(ep, pull->to.id, FABRIC_OK, pull->to.len);
	ep->pulls.tail++;
	return SOFT_GO;
}

bool soft_flush_pulls(struct soft_endpoint *ep)
{
	for (; ep->pulls.tail != ep->pulls.head; ep->pulls.tail++) {
		const struct soft_pull *pull = soft_pull_at(ep, ep->pulls.tail);

		if (pull->drop)
			continue;
		if (!soft_cq_room(ep->queue))
			return false;
		soft_pull_complete(ep, pull->to.id, FABRIC_FLUSHED, 0);
	}
	return true;
}
