/*
 * look.c: what only time can tell of an endpoint: a host that vanished, a frame that is not continued, an ERROR
 * that the peer does not take, a send that the kernel has no memory for.
 *
 * Looked at is what has something under way: bytes that a TCP peer has not acknowledged, or a frame of which a part has
 * come. The list is in the order of the last look, so a turn takes from its head those whose time has come, and no more
 * than SOFT_LOOKS: ten thousand idle connections cost nothing, and as many busy ones never a long turn. A peer has to
 * be found silent several times, not once after a long while: perhaps it was this side that was away.
 */
#include "fabric/soft/soft.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#define SOFT_LOOKS 64 /* in one turn */

void soft_look_begin(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;

	ep->looked = q->tick;
	ep->silent = ep->owed = 0;
	ep->heard_last = ep->heard;
	list_add_tail(&q->watched, &ep->watched);
	soft_timer_want(q, q->fabric->look_ms / SOFT_TICKS);
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

	if (!soft_frame_begun(ep) || answer || ep->heard != ep->heard_last)
		ep->silent = 0;
	else
		ep->silent++;
	ep->heard_last = ep->heard;
	return ep->silent > ep->queue->fabric->stall_looks;
}

/* True when it is to be looked at again. */
static bool soft_look(struct soft_endpoint *ep)
{
	bool under_way = soft_unacknowledged(ep);
	const struct soft_fabric *f = ep->queue->fabric;

	ep->owed = under_way ? ep->owed + 1 : 0;
	if (ep->state == SOFT_REFUSING && time_now() >= ep->deadline) {
		soft_fail(ep, &(struct soft_cause){0});
		return false;
	}
	if (soft_frame_stalled(ep)) {
		soft_fail_protocol(ep, "began a frame and does not continue it");
		return false;
	}
	/* The last acknowledgement may be long ago where nothing was sent. */
	if (under_way && ep->owed * f->look_ms >= f->lost_ms && ep->state >= SOFT_OPEN &&
	    soft_host_lost(&ep->base, f->lost_ms * TIME_MS)) {
		soft_fail_socket(ep, ETIMEDOUT);
		return false;
	}
	return under_way || soft_frame_begun(ep) || ep->state == SOFT_REFUSING;
}

/* True when more of them are due. */
static bool soft_look_some(struct soft_queue *q)
{
	for (unsigned i = 0; i < SOFT_LOOKS; i++) {
		struct soft_endpoint *ep = list_first(&q->watched, struct soft_endpoint, watched);

		if (list_empty(&q->watched) || q->tick - ep->looked < q->fabric->look_ms * TIME_MS)
			return false;
		list_del(&ep->watched);
		if (!soft_look(ep))
			continue;
		ep->looked = q->tick;
		list_add_tail(&q->watched, &ep->watched);
	}
	return true;
}

void soft_look_on(struct soft_queue *q)
{
	q->looking = soft_look_some(q);
}

/* The kernel had no memory for what they send, and no edge will tell when it has. */
static void soft_try_again(struct soft_queue *q)
{
	for (unsigned i = 0; i < SOFT_LOOKS && !list_empty(&q->later); i++) {
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

uint32_t soft_look_tick(struct soft_queue *q, uint64_t now)
{
	q->tick = now;
	soft_try_again(q);
	soft_look_on(q);
	if (!list_empty(&q->later))
		return SOFT_RETRY_MS;
	return list_empty(&q->watched) ? 0 : MAX(q->fabric->look_ms / SOFT_TICKS, 1u);
}
