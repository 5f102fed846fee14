/*
 * look.c: what only time can tell of an endpoint: a host that vanished, a frame that is not continued, an ERROR
 * that the peer does not take, a send that the kernel has no memory for.
 *
 * What has something under way is checked: bytes that a TCP peer has not acknowledged, or a frame of which a part has
 * come. The list is in the order of the last check, so a turn takes from its head the ones whose time has come, and no
 * more than SOFT_CHECKS: ten thousand idle connections cost nothing, and as many busy ones never a long turn. A peer
 * has to be found silent several times, not once after a long while: perhaps it was this side that was away.
 */
#include "fabric/soft/soft.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#define SOFT_CHECKS 64 /* in one turn */

void soft_check_begin(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;

	ep->check.tick = q->check.tick;
	ep->check.silent = ep->check.owed = 0;
	ep->check.heard = ep->heard;
	list_add_tail(&q->check.list, &ep->check.link);
	soft_timer_want(q, q->fabric->check_ms / SOFT_TICKS);
}

static bool soft_unacknowledged(const struct soft_endpoint *ep)
{
	int bytes = 0;

	return !ep->unix_socket && ioctl(ep->source.fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

/* Bytes are under way and nothing at all comes back, not even to repeated attempts. A peer
 * that lives but does not read acknowledges the probes of its closed window. */
bool soft_host_lost(const struct fabric_endpoint *endpoint, uint64_t ns)
{
	const struct soft_endpoint *ep = container_of(endpoint, const struct soft_endpoint, base);
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	if (!soft_unacknowledged(ep) || getsockopt(ep->source.fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	return info.tcpi_retransmits + info.tcpi_probes >= 2 && info.tcpi_last_ack_recv > ns / TIME_MS;
}

/* Has a frame begun, and not a byte come of it in several looks? How long the answer to a READ may take, its reader
 * knows. */
static bool soft_frame_stalled(struct soft_endpoint *ep)
{
	bool answer = ep->phase == SOFT_PHASE_PAYLOAD && ep->frame.op == SOFT_READ_DATA;

	if (!soft_frame_begun(ep) || answer || ep->heard != ep->check.heard)
		ep->check.silent = 0;
	else
		ep->check.silent++;
	ep->check.heard = ep->heard;
	return ep->check.silent > ep->queue->fabric->stall_checks;
}

/* True when it is to be looked at again. */
static bool soft_check(struct soft_endpoint *ep)
{
	bool under_way = soft_unacknowledged(ep);
	const struct soft_fabric *f = ep->queue->fabric;

	ep->check.owed = under_way ? ep->check.owed + 1 : 0;
	if (ep->state == SOFT_REFUSING && time_now() >= ep->deadline) {
		soft_fail(ep, &(struct soft_cause){0});
		return false;
	}
	if (soft_frame_stalled(ep)) {
		soft_fail_protocol(ep, "began a frame and does not continue it");
		return false;
	}
	/* The last acknowledgement may be long ago where nothing was sent. */
	if (under_way && ep->check.owed * f->check_ms >= f->lost_ms && ep->state >= SOFT_OPEN &&
	    soft_host_lost(&ep->base, f->lost_ms * TIME_MS)) {
		soft_fail_socket(ep, ETIMEDOUT);
		return false;
	}
	return under_way || soft_frame_begun(ep) || ep->state == SOFT_REFUSING;
}

/* True when more of them are due. */
static bool soft_check_some(struct soft_queue *q)
{
	for (unsigned i = 0; i < SOFT_CHECKS; i++) {
		struct soft_endpoint *ep = list_first(&q->check.list, struct soft_endpoint, check.link);

		if (list_empty(&q->check.list) || q->check.tick - ep->check.tick < q->fabric->check_ms * TIME_MS)
			return false;
		list_del(&ep->check.link);
		if (!soft_check(ep))
			continue;
		ep->check.tick = q->check.tick;
		list_add_tail(&q->check.list, &ep->check.link);
	}
	return true;
}

void soft_check_continue(struct soft_queue *q)
{
	q->check.more = soft_check_some(q);
}

/* The kernel had no memory for what they send, and no edge will tell when it has. */
static void soft_retry_sends(struct soft_queue *q)
{
	for (unsigned i = 0; i < SOFT_CHECKS && !list_empty(&q->later); i++) {
		struct soft_endpoint *ep = list_first(&q->later, struct soft_endpoint, later);

		list_del(&ep->later);
		if (ep->rings) {
			soft_rings_tell_again(ep);
			continue;
		}
		soft_unblock(ep);
		soft_ready(ep);
	}
}

uint32_t soft_check_tick(struct soft_queue *q, uint64_t now)
{
	q->check.tick = now;
	soft_retry_sends(q);
	soft_check_continue(q);
	if (!list_empty(&q->later))
		return SOFT_RETRY_MS;
	return list_empty(&q->check.list) ? 0 : MAX(q->fabric->check_ms / SOFT_TICKS, 1u);
}
