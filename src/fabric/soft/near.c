/*
 * near.c: endpoints that are read without asking epoll, which costs as much as the bytes of a small request.
 *
 * Where there are few that is all of them. Among many it is the few from which something came last: a client that is
 * busy beside ten thousand idle ones. They are near until they are quiet for a while, or until more than few have
 * something: then epoll is the cheaper way for all of them.
 *
 * The others wait for the next look at epoll, and that is never far: SOFT_SKIP polls that had nothing for their caller,
 * of a system call or two each, or SOFT_NEAR_TIME of polls that had little. It is at once where they had more, or while
 * many bytes move. No turn looks at more than few.
 *
 * While endpoints that are read so are busy, epoll is not even told of them: at each message the sender's call would
 * spend a twentieth of its time, or a tenth with an epoll of epolls, on waking no thread, and the next look at epoll a
 * read that finds nothing. They are alone, until they are not read so any more, or a thread may sleep, or they have to
 * wait for room or for a receive, when only epoll tells of their end.
 */
#include "fabric/soft/soft.h"

#include <sys/epoll.h>

int soft_near_watch(struct soft_endpoint *ep)
{
	if (likely(!list_linked(&ep->near.alone)))
		return 0;
	list_del(&ep->near.alone);
	ep->near.news = 0;
	return soft_watch(ep->queue, &ep->source, soft_endpoint_events(ep), true);
}

static void soft_near_watch_or_fail(struct soft_endpoint *ep)
{
	int rc = soft_near_watch(ep);

	if (rc != 0)
		soft_fail_socket(ep, -rc);
}

void soft_near_watch_all(struct soft_queue *q)
{
	while (unlikely(!list_empty(&q->near.alone)))
		soft_near_watch_or_fail(list_first(&q->near.alone, struct soft_endpoint, near.alone));
}

/* Count that the endpoint has brought something. */
static void soft_near_brought(struct soft_endpoint *ep)
{
	if (ep->rings || ++ep->near.news < SOFT_NEAR_ALONE || list_linked(&ep->near.alone) || ep->state != SOFT_OPEN ||
	    ep->out.blocked || ep->out.watched || ep->hung_up)
		return;
	soft_unwatch(ep->queue, &ep->source);
	list_add_tail(&ep->queue->near.alone, &ep->near.alone);
}

/* Read unless it is continued in this turn or the next. Returns whether it has brought something. */
static bool soft_near_read(struct soft_endpoint *ep)
{
	uint32_t heard = ep->heard;

	if (!list_linked(&ep->ready))
		soft_receive(ep);
	if (ep->heard != heard)
		soft_near_brought(ep);
	if (unlikely(soft_stands_still(ep)))
		soft_near_watch_or_fail(ep);
	return ep->heard != heard;
}

static void soft_near_few(struct soft_queue *q)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->endpoints)
		soft_near_read(container_of(pos, struct soft_endpoint, source.link));
}

static void soft_near_dismiss(struct soft_endpoint *ep)
{
	soft_near_leave(ep);
	soft_near_watch_or_fail(ep);
}

static void soft_near_many(struct soft_queue *q)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->near.list) {
		struct soft_endpoint *ep = container_of(pos, struct soft_endpoint, near.link);

		ep->near.quiet = soft_near_read(ep) ? 0 : ep->near.quiet + 1;
		if (ep->near.quiet == SOFT_NEAR_QUIET)
			soft_near_dismiss(ep);
	}
}

/* The caller has worked since on what the last poll gave it. */
static bool soft_near_skip(struct soft_queue *q)
{
	uint64_t now;

	if (q->blocked || q->moved)
		return false;
	if (!q->near.worked)
		return ++q->near.skipped < SOFT_SKIP;
	now = time_now();
	if (q->near.worked <= SOFT_NEAR_BYTES && now - q->near.asked < SOFT_NEAR_TIME)
		return true;
	q->near.asked = now;
	return false;
}

void soft_near_more(struct soft_queue *q)
{
	q->endpoint_count++;
	if (q->endpoint_count == SOFT_FEW + 1)
		soft_near_watch_all(q); /* which need not be near */
}

bool soft_near_progress(struct soft_queue *q)
{
	if (q->armed)
		return false;
	if (q->endpoint_count <= SOFT_FEW) {
		if (q->endpoint_count)
			soft_near_few(q);
		if (q->connecting || q->request_count)
			return false;
		return soft_rings_doze_any(q) ? soft_near_skip(q) : !q->blocked && ++q->near.skipped < SOFT_SKIP;
	}
	if (list_empty(&q->near.list))
		return false;
	soft_near_many(q);
	return soft_near_skip(q);
}

void soft_near_leave(struct soft_endpoint *ep)
{
	if (!list_linked(&ep->near.link))
		return;
	list_del(&ep->near.link);
	ep->queue->near.count--;
}

static void soft_near_crowd(struct soft_queue *q)
{
	q->near.crowd = SOFT_CROWD;
	while (!list_empty(&q->near.list))
		soft_near_dismiss(list_first(&q->near.list, struct soft_endpoint, near.link));
}

void soft_near_found(struct soft_queue *q, int found)
{
	if (found > SOFT_FEW)
		soft_near_crowd(q);
	else if (found > 0 && q->near.crowd)
		q->near.crowd--;
}

void soft_near_heard(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;

	if (q->endpoint_count <= SOFT_FEW || q->near.crowd || list_linked(&ep->near.link) || ep->source.fd < 0 ||
	    ep->rings)
		return;
	if (q->near.count < SOFT_FEW) {
		ep->near.quiet = 0;
		list_add_tail(&q->near.list, &ep->near.link);
		q->near.count++;
		return;
	}
	soft_near_crowd(q);
}
