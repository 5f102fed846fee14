/* queue.c: one thread's completion queues and shared receives. */
#include "fabric/verbs/verbs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define VERBS_NO_SHARED UINT32_MAX

int verbs_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

/*
 * Endpoints by queue pair number: open addressing, removal shifts back, no tombstones.
 */
static uint32_t verbs_hash(const struct verbs_cq *cq, uint32_t qp_num)
{
	return (qp_num * 0x9e3779b1u >> 8) & cq->bucket_mask;
}

struct verbs_endpoint *verbs_queue_find(const struct verbs_cq *cq, uint32_t qp_num)
{
	uint32_t i = verbs_hash(cq, qp_num);

	while (cq->bucket[i].endpoint && cq->bucket[i].qp_num != qp_num)
		i = (i + 1) & cq->bucket_mask;
	return cq->bucket[i].endpoint;
}

static void verbs_bucket_put(struct verbs_cq *cq, struct verbs_endpoint *ep, uint32_t qp_num)
{
	uint32_t i = verbs_hash(cq, qp_num);

	while (cq->bucket[i].endpoint)
		i = (i + 1) & cq->bucket_mask;
	cq->bucket[i] = (struct verbs_bucket){qp_num, ep};
}

static int verbs_bucket_grow(struct verbs_cq *cq)
{
	struct verbs_bucket *old = cq->bucket;
	uint32_t size = cq->bucket_mask + 1;
	struct verbs_bucket *bucket = calloc(2 * (size_t)size, sizeof(*bucket));

	if (!bucket)
		return -ENOMEM;
	cq->bucket = bucket;
	cq->bucket_mask = 2 * size - 1;
	for (uint32_t i = 0; i < size; i++)
		if (old[i].endpoint)
			verbs_bucket_put(cq, old[i].endpoint, old[i].qp_num);
	free(old);
	return 0;
}

void verbs_queue_remove(struct verbs_cq *cq, struct verbs_endpoint *ep)
{
	uint32_t mask = cq->bucket_mask, i = verbs_hash(cq, ep->qp->qp_num), next, home;

	while (cq->bucket[i].endpoint && cq->bucket[i].endpoint != ep)
		i = (i + 1) & mask;
	if (!cq->bucket[i].endpoint)
		return;
	for (next = (i + 1) & mask; cq->bucket[next].endpoint; next = (next + 1) & mask) {
		home = verbs_hash(cq, cq->bucket[next].qp_num);
		if (((next - home) & mask) < ((next - i) & mask))
			continue; /* it would come to lie before its home */
		cq->bucket[i] = cq->bucket[next];
		i = next;
	}
	cq->bucket[i].endpoint = NULL;
	cq->endpoints--;
	cq->shared_wanted -= ep->attr.shared;
	ep->attr.shared = 0;
}

/*
 * Completion queue room. An overrun kills every queue pair, so each endpoint reserves what it
 * can at most have outstanding, as soon as its device is known. Beyond what the caller
 * asked for a queue grows, as far as its device lets it.
 */
static bool verbs_cq_grow(struct verbs_cq *cq, uint32_t room)
{
	uint32_t depth = MIN(MAX(room, 2 * cq->depth), cq->device->max_cqe - cq->shared_depth);

	if (depth < room || ibv_resize_cq(cq->cq, (int)(depth + cq->shared_depth)))
		return false;
	log_info("verbs", "completion queue on %s grown from %u to %u", cq->device->name, cq->depth, depth);
	cq->depth = depth;
	return true;
}

int verbs_cq_reserve(struct verbs_cq *cq, uint32_t need)
{
	if (cq->reserved + need > cq->depth && !verbs_cq_grow(cq, cq->reserved + need)) {
		log_error("verbs",
			  "no room for %u more completions: %u of %u are promised on %s (%u of them "
			  "to closed connections)",
			  need, cq->reserved, cq->depth, cq->device->name, cq->dying);
		return -ENOSPC;
	}
	cq->reserved += need;
	return 0;
}

int verbs_queue_scratch(struct verbs_queue *q, uint32_t depth)
{
	struct ibv_send_wr *wr;
	struct ibv_sge(*sge)[FABRIC_MAX_SGE];

	if (depth <= q->wr_count)
		return 0;
	wr = calloc(depth, sizeof(*wr));
	sge = calloc(depth, sizeof(*sge));
	if (!wr || !sge) {
		free(wr);
		free(sge);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < depth; i++) {
		wr[i].sg_list = sge[i];
		wr[i].next = i + 1 < depth ? &wr[i + 1] : NULL;
	}
	free(q->wr);
	free(q->sge);
	q->wr = wr;
	q->sge = sge;
	q->wr_count = depth;
	return 0;
}

/*
 * Shared receives. A device does not give back what was posted to it, and no other device can take from there. With
 * several devices receives are parked until a device has endpoints. The device that lacks most gets the next one. As
 * many stay parked as endpoints may take whose device is not known yet.
 */
static int verbs_shared_grow(struct verbs_queue *q, uint32_t more)
{
	uint32_t depth = q->shared_depth + more;
	struct verbs_shared *shared = realloc(q->shared, MAX(depth, 1u) * sizeof(*shared));

	if (!shared)
		return -ENOMEM;
	q->shared = shared;
	for (uint32_t i = depth; i-- > q->shared_depth; q->shared_free = i)
		shared[i] = (struct verbs_shared){.next = q->shared_free};
	q->shared_depth = depth;
	return 0;
}

static uint32_t verbs_shared_pop(struct verbs_queue *q, uint32_t *list)
{
	uint32_t index = *list;

	*list = q->shared[index].next;
	return index;
}

static void verbs_shared_push(struct verbs_queue *q, uint32_t *list, uint32_t index)
{
	q->shared[index].next = *list;
	*list = index;
}

static void verbs_shared_park_one(struct verbs_queue *q, uint32_t index)
{
	verbs_shared_push(q, &q->shared_parked, index);
	q->parked++;
}

uint32_t verbs_shared_wanted(const struct fabric_queue *queue, uint32_t spare)
{
	const struct verbs_queue *q = container_of(queue, struct verbs_queue, base);
	uint32_t sum = q->unbound;

	for (unsigned i = 0; i < q->count; i++) {
		const struct verbs_cq *cq = &q->cq[i];
		uint32_t wanted = cq->shared_wanted && !cq->lost ? cq->shared_wanted + spare : 0;

		sum += MAX(MIN(wanted, cq->shared_depth), cq->shared_posted);
	}
	return MIN(sum, q->shared_depth);
}

/* As many of the parked ones as go by one call. False: not all were taken; the rest is parked again. */
static bool verbs_shared_give(struct verbs_cq *cq, unsigned most)
{
	struct ibv_recv_wr wr[VERBS_BATCH], *bad = NULL;
	struct verbs_queue *q = cq->queue;
	struct ibv_sge sge[VERBS_BATCH];
	unsigned count = 0, given;
	int rc;

	for (; count < most && q->parked; count++) {
		uint32_t index = verbs_shared_pop(q, &q->shared_parked);
		const struct fabric_sge *from = &q->shared[index].sge;

		q->parked--;
		sge[count].addr = (uintptr_t)from->addr;
		sge[count].length = (uint32_t)MIN(from->len, cq->device->max_message);
		sge[count].lkey = verbs_lkey(from->region, (unsigned)(cq - q->cq));
		wr[count] = (struct ibv_recv_wr){
			.wr_id = VERBS_WR_ID(VERBS_WR_SHARED, 0, index),
			.sg_list = &sge[count],
			.num_sge = sge[count].length ? 1 : 0,
		};
		if (count)
			wr[count - 1].next = &wr[count];
	}
	rc = ibv_post_srq_recv(cq->srq, wr, &bad);
	given = rc == 0 ? count : bad ? (unsigned)(bad - wr) : 0;
	for (unsigned i = 0; i < given; i++)
		q->shared[(uint32_t)wr[i].wr_id].at = cq;
	cq->shared_posted += given;
	while (count > given)
		verbs_shared_park_one(q, (uint32_t)wr[--count].wr_id);
	if (unlikely(rc != 0) && !cq->complained) {
		cq->complained = true;
		log_error("verbs", "shared receive on %s: %s", cq->device->name, strerror(rc));
	}
	return rc == 0;
}

/* Less than nothing: it has more than its endpoints may take. */
static int64_t verbs_shared_lack(const struct verbs_cq *cq)
{
	return (int64_t)cq->shared_wanted - cq->shared_posted;
}

/* The device in use that lacks most, and has room. A single one is in use always. */
static struct verbs_cq *verbs_shared_neediest(struct verbs_queue *q)
{
	struct verbs_cq *best = NULL;

	for (unsigned i = 0; i < q->count; i++) {
		struct verbs_cq *cq = &q->cq[i];

		if (cq->lost || cq->shared_posted >= cq->shared_depth || (!cq->endpoints && q->count > 1))
			continue;
		if (!best || verbs_shared_lack(cq) > verbs_shared_lack(best))
			best = cq;
	}
	return best;
}

/* What a device does not take, for whatever reason, stays parked until the next time. */
void verbs_shared_deal(struct verbs_queue *q)
{
	uint32_t kept = q->count > 1 ? q->unbound : 0;
	struct verbs_cq *cq;

	while (q->parked > kept && (cq = verbs_shared_neediest(q))) {
		/* Of several devices each gets one in turn. */
		unsigned most = q->count > 1 ? 1 : MIN(cq->shared_depth - cq->shared_posted, (uint32_t)VERBS_BATCH);

		if (!verbs_shared_give(cq, most))
			break;
	}
}

int verbs_post_shared(struct verbs_queue *q, const struct fabric_recv *recv, unsigned count)
{
	if (count > q->shared_depth - q->shared_used)
		return -EAGAIN;
	for (unsigned i = 0; i < count; i++)
		if (!recv[i].sge.region)
			return -EINVAL;
	for (unsigned i = count; i-- > 0;) { /* the first is parked last, and goes out first */
		uint32_t index = verbs_shared_pop(q, &q->shared_free);

		q->shared[index].id = recv[i].id;
		q->shared[index].sge = recv[i].sge;
		verbs_shared_park_one(q, index);
	}
	q->shared_used += count;
	verbs_shared_deal(q);
	return 0;
}

/* A shared receive came back. One that a destroyed endpoint took goes out again, so that its
 * buffer is not lost to the caller. */
void verbs_shared_return(struct verbs_cq *cq, uint32_t index, enum verbs_shared_end end)
{
	struct verbs_queue *q = cq->queue;

	cq->shared_posted--;
	q->shared[index].at = NULL;
	if (end == VERBS_SHARED_ORPHAN) {
		verbs_shared_park_one(q, index);
		verbs_shared_deal(q);
		return;
	}
	verbs_shared_push(q, &q->shared_free, index);
	q->shared_used--;
}

int verbs_queue_insert(struct verbs_cq *cq, struct verbs_endpoint *ep)
{
	if (2 * (cq->endpoints + 1) > cq->bucket_mask && verbs_bucket_grow(cq))
		return -ENOMEM;
	verbs_bucket_put(cq, ep, ep->qp->qp_num);
	cq->endpoints++;
	cq->queue->unbound -= ep->attr.shared;
	cq->shared_wanted += ep->attr.shared;
	verbs_shared_deal(cq->queue);
	return 0;
}

/*
 * Creation.
 */
static int verbs_epoll_add(struct verbs_queue *q, int fd, enum verbs_watched what, unsigned device)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = VERBS_WATCHED(what, device)};

	return epoll_ctl(q->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int verbs_cq_open(struct verbs_cq *cq)
{
	struct verbs_queue *q = cq->queue;
	struct ibv_context *ctx = cq->device->ctx;
	unsigned vectors = MAX(ctx->num_comp_vectors, 1);
	int rc;

	cq->channel = ibv_create_comp_channel(ctx);
	if (!cq->channel)
		return -errno;
	cq->cq = ibv_create_cq(ctx, (int)(cq->depth + cq->shared_depth), cq, cq->channel,
			       (int)(atomic_fetch_add(&q->fabric->vectors, 1) % vectors));
	if (!cq->cq)
		return -errno;
	rc = verbs_nonblock(cq->channel->fd);
	return rc ? rc : verbs_epoll_add(q, cq->channel->fd, VERBS_CHANNEL, (unsigned)(cq - q->cq));
}

static int verbs_srq_create(struct verbs_cq *cq, struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = {.srq_context = cq, .attr = {.max_wr = cq->shared_depth, .max_sge = 1}};
	char reason[VERBS_REASON];
	int error;

	cq->srq = ibv_create_srq(pd, &attr);
	if (cq->srq)
		return 0;
	error = errno;
	log_error("verbs", "shared receive queue of %u on %s: %s", cq->shared_depth, cq->device->name,
		  verbs_reason(error, reason));
	return -error;
}

/* From here on the device is not given back. False: it is gone. */
static bool verbs_cq_use(struct verbs_cq *cq)
{
	struct verbs_fabric *fabric = cq->queue->fabric;

	pthread_rwlock_rdlock(&fabric->lock);
	cq->used = !atomic_load(&cq->device->gone) && cq->queue->domain->pd[cq - cq->queue->cq];
	if (cq->used)
		atomic_fetch_add(&cq->device->users, 1);
	pthread_rwlock_unlock(&fabric->lock);
	return cq->used;
}

static void verbs_cq_unuse(struct verbs_cq *cq)
{
	if (cq->used)
		atomic_fetch_sub(&cq->device->users, 1);
	cq->used = false;
}

static int verbs_cq_begin(struct verbs_cq *cq)
{
	struct ibv_pd *pd = cq->queue->domain->pd[cq - cq->queue->cq];
	char reason[VERBS_REASON];
	int rc = verbs_cq_open(cq);

	if (rc == 0)
		rc = verbs_epoll_add(cq->queue, cq->device->ctx->async_fd, VERBS_ASYNC, (unsigned)(cq - cq->queue->cq));
	if (rc == 0)
		return cq->shared_depth ? verbs_srq_create(cq, pd) : 0;
	log_error("verbs", "completion queue of %u on %s: %s", cq->depth + cq->shared_depth, cq->device->name,
		  verbs_reason(-rc, reason));
	return rc;
}

/* rdma_cm has none before there is a device. */
static int verbs_events_open(struct verbs_queue *q)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	int rc = events ? verbs_nonblock(events->fd) : -errno;

	if (rc == 0)
		rc = verbs_epoll_add(q, events->fd, VERBS_CM, 0);
	if (rc == 0)
		q->events = events;
	else if (events)
		rdma_destroy_event_channel(events);
	return rc;
}

/* A place for the next device, of which the queue has nothing yet. */
static int verbs_cq_add(struct verbs_queue *q)
{
	struct verbs_cq *cq = &q->cq[q->count];
	struct verbs_device *device = &q->fabric->device[q->count];
	int rc = q->events ? 0 : verbs_events_open(q);

	if (rc != 0)
		return rc;
	cq->bucket = calloc(16, sizeof(*cq->bucket));
	rc = cq->bucket ? verbs_shared_grow(q, q->attr.shared_depth) : -ENOMEM;
	if (rc != 0) {
		free(cq->bucket);
		return rc;
	}
	cq->queue = q;
	cq->device = device;
	cq->bucket_mask = 15;
	cq->shared_depth = verbs_shared_depth(device, q->attr.shared_depth);
	cq->depth = MIN(q->attr.completions, device->max_cqe - cq->shared_depth);
	cq->removed = cq->lost = true;
	verbs_queue_counted(q);
	return 0;
}

int verbs_queue_follow(struct verbs_queue *q)
{
	int rc = 0;

	while (q->count < atomic_load(&q->fabric->count) && (rc = verbs_cq_add(q)) == 0)
		q->widened = true;
	if (rc != 0 && !q->complained)
		log_error("verbs", "a queue of completions has no place for one device more: %s", strerror(-rc));
	q->complained = rc != 0;
	return rc;
}

static void verbs_check_destroyed(int rc, const char *what)
{
	if (rc != 0)
		log_error("verbs", "%s still in use: %s", what, strerror(rc));
}

static void verbs_cq_close(struct verbs_cq *cq)
{
	if (cq->srq)
		verbs_check_destroyed(ibv_destroy_srq(cq->srq), "shared receive queue");
	if (cq->unacked)
		ibv_ack_cq_events(cq->cq, cq->unacked);
	if (cq->cq)
		verbs_check_destroyed(ibv_destroy_cq(cq->cq), "completion queue");
	if (cq->channel)
		verbs_check_destroyed(ibv_destroy_comp_channel(cq->channel), "completion channel");
	cq->srq = NULL;
	cq->cq = NULL;
	cq->channel = NULL;
	cq->unacked = 0;
	cq->armed = false;
}

/* All receives of a shared receive queue that is no more, whether they were taken or not. */
static void verbs_shared_park(struct verbs_cq *cq)
{
	struct verbs_queue *q = cq->queue;

	for (uint32_t i = 0; i < q->shared_depth; i++)
		if (q->shared[i].at == cq) {
			q->shared[i].at = NULL;
			verbs_shared_park_one(q, i);
		}
	cq->shared_posted = 0;
}

int verbs_cq_rebuild(struct verbs_cq *cq)
{
	struct verbs_queue *q = cq->queue;
	int rc;

	must(!cq->endpoints && !cq->retired);
	verbs_cq_close(cq);
	verbs_shared_park(cq);
	atomic_store(&cq->failure, NULL);
	rc = verbs_cq_open(cq);
	if (rc == 0 && cq->shared_depth)
		rc = verbs_srq_create(cq, q->domain->pd[cq - q->cq]);
	if (rc == 0) {
		cq->lost = cq->complained = false;
		log_info("verbs", "completion queue on %s made anew", cq->device->name);
	} else if (!cq->complained) {
		cq->complained = true;
		log_error("verbs", "completion queue on %s cannot be made anew, connections are refused: %s",
			  cq->device->name, strerror(-rc));
	}
	return rc;
}

static void verbs_cq_release(struct verbs_cq *cq)
{
	verbs_cq_close(cq);
	verbs_shared_park(cq);
	verbs_cq_unuse(cq);
}

static void verbs_cq_return(struct verbs_cq *cq)
{
	const char *reason;
	int rc;

	atomic_store(&cq->failure, NULL);
	log_hush_begin();
	rc = verbs_cq_begin(cq);
	reason = log_hush_end();
	if (rc == 0) {
		cq->removed = cq->lost = cq->complained = false;
		cq->queue->returned = true;
		return;
	}
	if (!cq->complained)
		log_error("verbs", "device %s has come back, and is tried again: %s", cq->device->name, reason);
	cq->complained = true;
	epoll_ctl(cq->queue->epoll, EPOLL_CTL_DEL, cq->device->ctx->async_fd, NULL);
	verbs_cq_release(cq);
}

void verbs_cq_renew(struct verbs_cq *cq)
{
	if (cq->used && atomic_load(&cq->device->gone) && !cq->endpoints && !cq->retired)
		verbs_cq_release(cq);
	else if (!cq->used && verbs_cq_use(cq))
		verbs_cq_return(cq);
}

void verbs_queue_destroy(struct fabric_queue *queue)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);

	must(list_empty(&q->endpoints)); /* these first */
	verbs_retired_free(q, NULL, VERBS_RETIRED_ALL);
	verbs_unwatch_queue(q);
	for (unsigned i = 0; i < q->count; i++) {
		verbs_cq_close(&q->cq[i]);
		verbs_cq_unuse(&q->cq[i]);
		free(q->cq[i].bucket);
	}
	atomic_fetch_sub(&q->fabric->queues, 1);
	if (q->epoll >= 0)
		close(q->epoll);
	if (q->timer >= 0)
		close(q->timer);
	if (q->events)
		rdma_destroy_event_channel(q->events);
	free(q->shared);
	free(q->wr);
	free(q->sge);
	free(q);
}

/* Not by the libraries, which would end what is the parent's. The devices' own descriptors stay, as other queues are on
 * them; by that of the connections' events the kernel ends the connections with the parent. */
void verbs_queue_abandon(struct fabric_queue *queue)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);

	for (unsigned i = 0; i < q->count; i++)
		if (q->cq[i].channel)
			close(q->cq[i].channel->fd);
	close(q->epoll);
	close(q->timer);
	if (q->events)
		close(q->events->fd);
}

static int verbs_queue_check(const struct verbs_fabric *fabric, const struct fabric_queue_attr *attr)
{
	struct fabric_limits limits;

	verbs_limits(&fabric->base, &limits);
	if (attr->shared_depth <= limits.max_shared_depth)
		return 0;
	log_error("verbs", "%u shared receives are beyond the limit %u", attr->shared_depth, limits.max_shared_depth);
	return -EINVAL;
}

static struct verbs_queue *verbs_queue_new(struct verbs_domain *domain, const struct fabric_queue_attr *attr)
{
	struct verbs_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->base.ops = domain->base.ops;
	q->domain = domain;
	q->fabric = domain->fabric;
	q->attr = *attr;
	q->lists = atomic_fetch_add(&q->fabric->queues, 1) == 0;
	q->checks = 1;
	q->shared_free = q->shared_parked = VERBS_NO_SHARED;
	list_init(&q->pending);
	list_init(&q->closing);
	list_init(&q->flushing);
	list_init(&q->endpoints);
	list_init(&q->retired);
	list_init(&q->listeners);
	list_init(&q->gone);
	list_init(&q->watched);
	q->epoll = epoll_create1(EPOLL_CLOEXEC);
	q->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	return q;
}

/* What it has of the devices that are there. One that is gone comes later. */
static int verbs_queue_begin(struct verbs_queue *q)
{
	int rc = verbs_queue_follow(q);

	q->widened = false;
	for (unsigned i = 0; i < q->count && rc == 0; i++) {
		struct verbs_cq *cq = &q->cq[i];

		if (!verbs_cq_use(cq))
			continue;
		cq->removed = cq->lost = false;
		rc = verbs_cq_begin(cq);
	}
	return rc;
}

int verbs_queue_create(struct fabric_domain *base, const struct fabric_queue_attr *attr, struct fabric_queue **out)
{
	struct verbs_domain *domain = container_of(base, struct verbs_domain, base);
	struct verbs_fabric *fabric = domain->fabric;
	struct verbs_queue *q;
	int rc = verbs_queue_check(fabric, attr);

	if (rc != 0)
		return rc;
	q = verbs_queue_new(domain, attr);
	if (!q)
		return -ENOMEM;
	if (q->epoll < 0 || q->timer < 0 || verbs_epoll_add(q, q->timer, VERBS_TIMER, 0)) {
		rc = -errno;
		log_error("verbs", "descriptors of a queue: %s", strerror(errno));
		goto destroy_queue;
	}
	rc = verbs_queue_scratch(q, 64);
	if (rc == 0)
		rc = verbs_queue_begin(q);
	if (rc != 0)
		goto destroy_queue;
	verbs_watch_queue(q);
	verbs_wake_next(q, time_now());
	*out = &q->base;
	return 0;
destroy_queue:
	verbs_queue_destroy(&q->base);
	return rc;
}
