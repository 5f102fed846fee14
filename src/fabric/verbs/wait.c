/* wait.c: how a thread sleeps, what wakes it, and when one that does not sleep asks the kernel. */
#include "fabric/verbs/verbs.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define VERBS_ACK_BATCH 64     /* an acknowledgement takes a lock */
#define VERBS_CHECK_EVERY 1024 /* calls of next_event between two system calls, when busy */
#define VERBS_CHECK_SOONER 16  /* while a connection is being made or ended */
#define VERBS_CHECK_CLOCK 8    /* calls between two looks at the clock */

/* Take the events that woke us, exactly as many as there are. */
void verbs_take_cq_events(struct verbs_cq *cq)
{
	struct ibv_cq *from;
	void *context;

	while (ibv_get_cq_event(cq->channel, &from, &context) == 0) {
		cq->armed = false;
		if (++cq->unacked < VERBS_ACK_BATCH)
			continue;
		ibv_ack_cq_events(cq->cq, cq->unacked);
		cq->unacked = 0;
	}
}

bool verbs_moving(struct fabric_queue *queue)
{
	return false;
}

int verbs_arm(struct fabric_queue *queue)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);
	int rc = 0;

	for (unsigned i = 0; i < q->count; i++) {
		struct verbs_cq *cq = &q->cq[i];

		if (cq->armed)
			verbs_take_cq_events(cq);
		if (cq->armed || cq->lost)
			continue;
		rc = ibv_req_notify_cq(cq->cq, 0);
		if (rc != 0)
			verbs_cq_lose(cq,
				      strerror(rc)); /* what follows is found by the poll and the check after this */
		cq->armed = rc == 0;
	}
	q->checks = 2; /* once before sleeping, once after */
	return 0;
}

/* Perhaps the end of another connection of the queue. Of this one it is told when all has been flushed. */
bool verbs_hung_up(struct fabric_endpoint *endpoint)
{
	struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);
	struct verbs_queue *q = ep->queue;
	struct pollfd events = {.fd = q->events->fd, .events = POLLIN};

	if (ep->state <= VERBS_LIVE && poll(&events, 1, 0) <= 0)
		return false;
	q->checks = MAX(q->checks, 1u);
	return true;
}

int verbs_fds(const struct fabric_queue *queue, int fds[static FABRIC_MAX_FDS])
{
	fds[0] = container_of(queue, struct verbs_queue, base)->epoll;
	return 1;
}

/* Any thread. A pending deadline that this overwrites is set again by the thread that wakes. */
void verbs_queue_wake(struct verbs_queue *q, uint64_t ns)
{
	struct itimerspec at = {.it_value = {(time_t)(ns / TIME_S), (long)(ns % TIME_S)}};

	timerfd_settime(q->timer, 0, &at, NULL);
}

/*
 * Events.
 */

/* The next deadline; a retired endpoint past it waits only for the next empty poll, which this wakes for. The fabric's
 * first queue wakes its owner now and then to call fabric_renew(): a removal that waits for the users of the device is
 * told to connections alone. */
void verbs_wake_next(struct verbs_queue *q, uint64_t now)
{
	uint64_t when = q->lists ? now + VERBS_LOOK_NS : TIME_NEVER;

	for (unsigned i = 0; i < q->count; i++)
		if (q->cq[i].removed)
			when = now + VERBS_AWAY_NS;
	if (q->returned)
		when = MIN(when, now + VERBS_BACK_NS);
	q->returned = false;
	if (!list_empty(&q->closing))
		when = MIN(when, MAX(list_first(&q->closing, struct verbs_endpoint, closing)->deadline, now + 1));
	if (!list_empty(&q->retired))
		when = MIN(when, MAX(list_first(&q->retired, struct verbs_endpoint, member)->deadline, now + TIME_MS));
	if (when != TIME_NEVER)
		verbs_queue_wake(q, when - now);
}

/* Endpoints whose flushes do not come, and endpoints that another thread saw break. */
static void verbs_timer_expired(struct verbs_queue *q)
{
	struct list *pos, *tmp;
	uint64_t expirations, now = time_now();

	if (read(q->timer, &expirations, sizeof(expirations)) < 0)
		expirations = 0;
	list_for_each_safe (pos, tmp, &q->endpoints) {
		struct verbs_endpoint *ep = container_of(pos, struct verbs_endpoint, member);

		if (atomic_load_explicit(&ep->broken, memory_order_relaxed) && ep->state >= VERBS_ANSWERED)
			verbs_endpoint_close(ep);
		verbs_endpoint_settle(ep);
	}
	verbs_queue_list(q);
	verbs_queue_take_losses(q);
	if (atomic_exchange(&q->moved, false))
		verbs_listeners_renew(q);
	verbs_wake_next(q, now);
}

static int verbs_pop_pending(struct verbs_queue *q, struct fabric_event *out)
{
	struct verbs_endpoint *ep;

	if (unlikely(!list_empty(&q->gone))) {
		q->checks = MAX(q->checks, 1u); /* there may be more */
		return verbs_listener_tell(list_first(&q->gone, struct verbs_listener, member), out);
	}
	if (list_empty(&q->pending))
		return 0;
	ep = list_first(&q->pending, struct verbs_endpoint, pending);
	list_del(&ep->pending);
	return verbs_report(ep, ep->event, ep->error, out);
}

static int verbs_cm_drain(struct verbs_queue *q, struct fabric_event *out)
{
	int rc;

	do
		rc = verbs_cm_next(q, out);
	while (rc == 0);
	if (rc < 0)
		return verbs_pop_pending(q, out);
	q->checks = MAX(q->checks, 1u); /* there may be more */
	return rc;
}

/* A descriptor of a device that was taken away is in error for ever. */
static void verbs_check_device(struct verbs_queue *q, const struct epoll_event *event, enum verbs_watched what)
{
	const struct verbs_cq *cq = &q->cq[event->data.u64 / VERBS_WATCHED_KINDS];
	struct verbs_device *device = cq->device;

	if (cq->removed) /* by what came before in the same turn: it may be closed by now */
		return;
	if (what == VERBS_ASYNC)
		verbs_async_drain(device);
	if (event->events & (EPOLLERR | EPOLLHUP))
		verbs_device_gone(device, "its descriptors are closed");
	verbs_queue_take_losses(q);
}

static int verbs_check_descriptors(struct verbs_queue *q, struct fabric_event *out)
{
	struct epoll_event event[2 + 2 * VERBS_MAX_DEVICES];
	int n = epoll_wait(q->epoll, event, ARRAY_SIZE(event), 0);
	bool cm = false;

	for (int i = 0; i < n; i++) {
		enum verbs_watched what = event[i].data.u64 % VERBS_WATCHED_KINDS;

		if (what == VERBS_TIMER)
			verbs_timer_expired(q);
		else if (what == VERBS_CM)
			cm = true;
		else if (what == VERBS_ASYNC || event[i].events & ~(unsigned)EPOLLIN)
			verbs_check_device(q, &event[i], what);
	}
	if (unlikely(q->widened)) {
		q->widened = false;
		q->checks = MAX(q->checks, 1u); /* there may be more */
		out->type = FABRIC_WIDENED;
		return 1;
	}
	return cm ? verbs_cm_drain(q, out) : verbs_pop_pending(q, out);
}

/*
 * Asking the kernel costs a system call, so a thread that polls does it now and then: after so
 * many calls, or when the coarse clock (which costs little) has moved. Around a sleep, see
 * verbs_arm(), each call asks.
 */
static bool verbs_check_is_due(struct verbs_queue *q)
{
	uint64_t tick;
	bool due;

	if (q->checks) {
		q->checks--;
		return true;
	}
	due = ++q->skipped >= (q->unsettled ? VERBS_CHECK_SOONER : VERBS_CHECK_EVERY);
	if (!due && q->skipped % VERBS_CHECK_CLOCK)
		return false;
	tick = time_coarse();
	if (!due && tick == q->tick)
		return false;
	q->skipped = 0;
	q->tick = tick;
	return true;
}

/* Not in line: what it needs registers for, a thread that polls would save at each turn. */
static __attribute__((noinline)) int verbs_take_event(struct verbs_queue *q, struct fabric_event *out)
{
	*out = (struct fabric_event){.endpoint = NULL};
	if (!list_empty(&q->pending))
		return verbs_pop_pending(q, out);
	return verbs_check_descriptors(q, out);
}

int verbs_next_event(struct fabric_queue *queue, struct fabric_event *out)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);

	if (likely(list_empty(&q->pending) && !verbs_check_is_due(q)))
		return 0;
	return verbs_take_event(q, out);
}
