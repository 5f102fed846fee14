/* async.c: what devices report of themselves, and what is lost with them. */
#include "fabric/verbs/verbs.h"

#include <sys/epoll.h>

/* librdmacm has one context per device for the whole process, so the thread that reads its
 * asynchronous events may read another one's. */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list watched = {&watched, &watched};
static struct list queues = {&queues, &queues};

void verbs_list_add(struct list *list, struct list *member)
{
	pthread_mutex_lock(&watch_lock);
	list_add_tail(list, member);
	pthread_mutex_unlock(&watch_lock);
}

void verbs_list_remove(struct list *member)
{
	pthread_mutex_lock(&watch_lock);
	if (list_linked(member))
		list_del(member);
	pthread_mutex_unlock(&watch_lock);
}

void verbs_watch(struct verbs_endpoint *ep)
{
	verbs_list_add(&watched, &ep->watched);
}

void verbs_unwatch(struct verbs_endpoint *ep)
{
	verbs_list_remove(&ep->watched);
}

void verbs_watch_queue(struct verbs_queue *q)
{
	verbs_list_add(&queues, &q->watched);
}

void verbs_unwatch_queue(struct verbs_queue *q)
{
	verbs_list_remove(&q->watched);
}

void verbs_queue_counted(struct verbs_queue *q)
{
	pthread_mutex_lock(&watch_lock);
	q->count++;
	pthread_mutex_unlock(&watch_lock);
}

/* Tell the owner of a queue pair, in whatever thread it lives: the device gave it up, or it takes no receive any
 * more. */
static void verbs_report_qp(const struct ibv_async_event *event)
{
	struct list *pos, *tmp;

	pthread_mutex_lock(&watch_lock);
	list_for_each_safe (pos, tmp, &watched) {
		struct verbs_endpoint *ep = container_of(pos, struct verbs_endpoint, watched);

		if (ep->qp != event->element.qp)
			continue;
		atomic_store(event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED ? &ep->spent : &ep->broken, true);
		verbs_queue_wake(ep->queue, 1);
		break;
	}
	pthread_mutex_unlock(&watch_lock);
}

/* The queue is there until the event is acknowledged. One of a moment has no owner. */
static void verbs_report_cq(struct verbs_cq *cq, enum ibv_event_type type)
{
	if (!cq)
		return;
	atomic_store(&cq->failure, ibv_event_type_str(type));
	verbs_queue_wake(cq->queue, 1);
}

void verbs_wake_queues(const struct verbs_fabric *fabric)
{
	pthread_mutex_lock(&watch_lock);
	list_for_each (pos, &queues) {
		struct verbs_queue *q = container_of(pos, struct verbs_queue, watched);

		if (q->fabric == fabric)
			verbs_queue_wake(q, 1);
	}
	pthread_mutex_unlock(&watch_lock);
}

void verbs_device_gone(const struct verbs_device *device, const char *why)
{
	struct ibv_context *ctx = device->ctx;
	struct list *pos, *tmp;
	bool first = false;

	pthread_mutex_lock(&watch_lock);
	list_for_each_safe (pos, tmp, &queues) {
		struct verbs_queue *q = container_of(pos, struct verbs_queue, watched);

		for (unsigned i = 0; i < q->count; i++) {
			if (!ctx || q->cq[i].device->ctx != ctx)
				continue;
			first |= !atomic_exchange(&q->cq[i].device->gone, true);
			verbs_queue_wake(q, 1);
		}
	}
	pthread_mutex_unlock(&watch_lock);
	if (first)
		log_error("verbs", "device %s is lost (%s): its connections end", device->name, why);
}

/* Any thread. */
static void verbs_report_move(const struct verbs_device *device)
{
	struct ibv_context *ctx = device->ctx;

	pthread_mutex_lock(&watch_lock);
	list_for_each (pos, &queues) {
		struct verbs_queue *q = container_of(pos, struct verbs_queue, watched);

		for (unsigned i = 0; i < q->count; i++)
			if (q->cq[i].device->ctx == ctx) {
				atomic_store(&q->moved, true);
				verbs_queue_wake(q, 1);
			}
	}
	pthread_mutex_unlock(&watch_lock);
}

static void verbs_async_handle(struct verbs_device *device, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		verbs_report_qp(event);
		break;
	case IBV_EVENT_CQ_ERR:
		verbs_report_cq(event->element.cq->cq_context, event->event_type);
		break;
	case IBV_EVENT_SRQ_ERR:
		verbs_report_cq(event->element.srq->srq_context, event->event_type);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		verbs_device_gone(device, ibv_event_type_str(event->event_type));
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		log_info("verbs", "device %s port %d: %s", device->name, event->element.port_num,
			 ibv_event_type_str(event->event_type));
		if (event->event_type == IBV_EVENT_PORT_ACTIVE)
			verbs_report_move(device);
		break;
	case IBV_EVENT_GID_CHANGE:
		verbs_report_move(device);
		break;
	default:
		break;
	}
}

void verbs_async_drain(struct verbs_device *device)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(device->ctx, &event) == 0) {
		verbs_async_handle(device, &event);
		ibv_ack_async_event(&event);
	}
	if (errno != EAGAIN && errno != EINTR)
		verbs_device_gone(device, strerror(errno));
}

void verbs_cq_lose(struct verbs_cq *cq, const char *why)
{
	struct verbs_queue *q = cq->queue;
	bool gone = atomic_load(&cq->device->gone);
	struct list *pos, *tmp;

	if (cq->lost)
		return;
	cq->lost = true;
	if (!gone)
		log_error("verbs", "completion queue on %s is lost (%s): its connections end", cq->device->name, why);
	epoll_ctl(q->epoll, EPOLL_CTL_DEL, cq->channel->fd, NULL);
	verbs_retired_free(q, cq, VERBS_RETIRED_ALL);
	cq->reserved -= cq->dying;
	cq->dying = 0;
	list_for_each_safe (pos, tmp, &q->endpoints) {
		struct verbs_endpoint *ep = container_of(pos, struct verbs_endpoint, member);

		if (ep->cq == cq)
			verbs_endpoint_lose(ep, gone ? -ENODEV : -EIO);
	}
}

/* A listener on all addresses ends with the last device. */
static void verbs_listeners_lose(struct verbs_queue *q)
{
	struct list *pos, *tmp;
	bool any = false;

	for (unsigned i = 0; i < q->count; i++)
		any |= !q->cq[i].removed;
	list_for_each_safe (pos, tmp, &q->listeners) {
		struct verbs_listener *l = container_of(pos, struct verbs_listener, member);
		int device = verbs_find_device(q->fabric, l->id);

		if (!q->cm_lost && (device < 0 ? any : !q->cq[device].removed))
			continue;
		list_del(&l->member);
		list_add_tail(&q->gone, &l->member);
	}
}

void verbs_queue_take_losses(struct verbs_queue *q)
{
	verbs_queue_follow(q);
	for (unsigned i = 0; i < q->count; i++) {
		struct verbs_cq *cq = &q->cq[i];
		const char *failure = atomic_load(&cq->failure);

		if (atomic_load(&cq->device->gone) && !cq->removed) {
			cq->removed = true;
			verbs_cq_lose(cq, "its device is lost");
			epoll_ctl(q->epoll, EPOLL_CTL_DEL, cq->device->ctx->async_fd, NULL);
			verbs_listeners_lose(q);
		} else if (failure) {
			verbs_cq_lose(cq, failure);
		}
		if (cq->removed)
			verbs_cq_renew(cq);
	}
}

void verbs_cm_lose(struct verbs_queue *q, const char *why)
{
	log_error("verbs", "rdma_cm is lost (%s): RDMA connections end, and need a restart", why);
	q->cm_lost = true;
	epoll_ctl(q->epoll, EPOLL_CTL_DEL, q->events->fd, NULL);
	verbs_listeners_lose(q);
	for (unsigned i = 0; i < q->count; i++)
		verbs_cq_lose(&q->cq[i], why);
}

int verbs_device_ready(struct verbs_queue *q, unsigned device)
{
	struct verbs_cq *cq = &q->cq[device];

	if (unlikely(device >= q->count))
		return -EIO;
	if (likely(!cq->lost))
		return 0;
	if (cq->removed || cq->queue->cm_lost)
		return -ENODEV;
	return cq->endpoints || cq->retired ? -EIO : verbs_cq_rebuild(cq);
}

int verbs_ready(struct fabric_queue *queue, const struct fabric_request *request)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);

	return verbs_device_ready(q, container_of(request, struct verbs_request, base)->device);
}
