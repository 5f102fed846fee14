/* endpoint.c: the life of a queue pair: made, connected by hand, flushed, destroyed. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>

static bool verbs_state_is_unsettled(enum verbs_state state)
{
	return state == VERBS_RESOLVING || state == VERBS_CONNECTING || state == VERBS_ANSWERED ||
	       state == VERBS_CLOSING;
}

static const char *verbs_state_name(enum verbs_state state)
{
	static const char *const name[] = {"resolving", "connecting", "taken", "answered", "live", "closing", "over"};

	return name[state];
}

void verbs_set_state(struct verbs_endpoint *ep, enum verbs_state state)
{
	must(state >= ep->state); /* no way back */
	log_debug("verbs", "endpoint %u from %s to %s", ep->generation, verbs_state_name(ep->state),
		  verbs_state_name(state));
	ep->queue->unsettled += verbs_state_is_unsettled(state);
	ep->queue->unsettled -= verbs_state_is_unsettled(ep->state);
	ep->state = state;
}

/* Completions that it may have outstanding, at most. */
static uint32_t verbs_endpoint_need(const struct verbs_endpoint *ep)
{
	return ep->hw_depth + ep->recv_depth;
}

static int verbs_endpoint_check(const struct verbs_queue *q, const struct verbs_domain *domain,
				const struct fabric_endpoint_attr *attr)
{
	struct fabric_limits limits;

	verbs_limits(&q->fabric->base, &limits);
	if (attr->send_depth > limits.max_send_depth || attr->recv_depth > limits.max_recv_depth) {
		log_error("verbs", "depths %u and %u are beyond the device's limits %u and %u", attr->send_depth,
			  attr->recv_depth, limits.max_send_depth, limits.max_recv_depth);
		return -EINVAL;
	}
	if (!attr->recv_depth && q->shared_depth && domain != q->domain) {
		log_error("verbs", "shared receives are of another protection domain");
		return -EINVAL;
	}
	return 0;
}

static uint32_t verbs_ring_size(uint32_t depth)
{
	uint32_t size = 1;

	while (size < depth)
		size *= 2;
	return size;
}

static int verbs_endpoint_alloc(struct verbs_endpoint *ep)
{
	uint32_t slots = verbs_ring_size(ep->hw_depth), recvs = verbs_ring_size(ep->recv_depth);

	ep->mask = slots - 1;
	ep->slot = calloc(slots, sizeof(*ep->slot));
	if (!ep->slot)
		return -ENOMEM;
	if (!ep->recv_depth)
		return 0;
	ep->recv_mask = recvs - 1;
	ep->recv_id = calloc(recvs, sizeof(*ep->recv_id));
	ep->early = calloc(recvs, sizeof(*ep->early));
	return ep->recv_id && ep->early ? 0 : -ENOMEM;
}

void verbs_endpoint_free(struct verbs_endpoint *ep)
{
	list_del(&ep->pending);
	list_del(&ep->closing);
	list_del(&ep->flushing);
	list_del(&ep->member);
	if (ep->attr.shared) {
		ep->queue->unbound -= ep->attr.shared;
		verbs_shared_deal(ep->queue); /* what was kept for it */
	}
	free(ep->slot);
	free(ep->recv_id);
	free(ep->early);
	free(ep->deferred);
	free(ep);
}

static void verbs_endpoint_init(struct verbs_endpoint *ep, struct verbs_queue *q, struct verbs_domain *domain,
				const struct fabric_endpoint_attr *attr)
{
	ep->base.ops = q->base.ops;
	ep->owner.kind = VERBS_ENDPOINT;
	ep->queue = q;
	ep->domain = domain;
	ep->attr = *attr;
	q->unbound += attr->shared;
	ep->context = attr->context;
	ep->generation = ++q->generation & VERBS_GENERATION_MASK;
	ep->depth = attr->send_depth;
	ep->recv_depth = attr->recv_depth;
	/* With three or fewer each request is signaled, and a fence never needed. */
	ep->hw_depth = ep->depth + (ep->depth > 3);
	ep->signal_every = MAX(ep->depth / 2, 1u);
	list_init(&ep->pending);
	list_init(&ep->closing);
	list_init(&ep->flushing);
	list_init(&ep->watched);
	list_init(&ep->windows);
	list_add_tail(&q->endpoints, &ep->member);
}

int verbs_endpoint_new(struct verbs_queue *q, struct verbs_domain *domain, const struct fabric_endpoint_attr *attr,
		       enum verbs_state state, struct verbs_endpoint **out)
{
	struct verbs_endpoint *ep;
	int rc = verbs_endpoint_check(q, domain, attr);

	if (rc != 0)
		return rc;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	verbs_endpoint_init(ep, q, domain, attr);
	rc = verbs_endpoint_alloc(ep);
	if (rc == 0)
		rc = verbs_queue_scratch(q, ep->hw_depth);
	if (rc != 0) {
		verbs_endpoint_free(ep);
		return rc;
	}
	ep->state = state;
	q->unsettled += verbs_state_is_unsettled(state);
	*out = ep;
	return 0;
}

/* Which device it is was not known before. */
static int verbs_device_check(const struct verbs_endpoint *ep, const struct verbs_device *device)
{
	if (ep->hw_depth > device->max_send || ep->recv_depth > device->max_wr) {
		log_error("verbs", "depths %u and %u are beyond what %s has, %u and %u", ep->hw_depth, ep->recv_depth,
			  device->name, device->max_send, device->max_wr);
		return -EINVAL;
	}
	if (!ep->recv_depth && ep->queue->shared_depth && !ep->cq->srq) {
		log_error("verbs", "%s has no shared receives", device->name);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int verbs_qp_create(struct verbs_endpoint *ep, const struct verbs_device *device)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = ep,
		.send_cq = ep->cq->cq,
		.recv_cq = ep->cq->cq,
		.srq = ep->recv_depth ? NULL : ep->cq->srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = ep->hw_depth,
			.max_recv_wr = ep->recv_depth ? ep->recv_depth : !ep->cq->srq,
			.max_send_sge = FABRIC_MAX_SGE,
			.max_recv_sge = 1,
			.max_inline_data = device->max_inline},
	};

	char reason[VERBS_REASON];
	int error;

	ep->qp = ibv_create_qp(ep->domain->pd[ep->device], &attr);
	if (ep->qp)
		return 0;
	error = errno;
	log_error("verbs", "queue pair of %u and %u on %s: %s", ep->hw_depth, ep->recv_depth, device->name,
		  verbs_reason(error, reason));
	return -error;
}

int verbs_cm_failed(void)
{
	return errno == EINVAL ? -ECONNRESET : -errno;
}

/* Let rdma_cm fill the attributes for a state. */
static int verbs_qp_attr(struct verbs_endpoint *ep, enum ibv_qp_state state, struct ibv_qp_attr *attr, int *mask)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	*mask = 0;
	return rdma_init_qp_attr(ep->id, attr, mask) ? verbs_cm_failed() : 0;
}

static int verbs_qp_modify(struct verbs_endpoint *ep, struct ibv_qp_attr *attr, int mask)
{
	int rc = ibv_modify_qp(ep->qp, attr, mask);

	if (rc != 0)
		log_error("verbs", "queue pair to state %d on %s: %s", attr->qp_state, ep->cq->device->name,
			  strerror(rc));
	return -rc;
}

/* The peer gets the rights that were granted here, not those it asked rdma_cm for. */
static unsigned verbs_qp_access(const struct verbs_endpoint *ep)
{
	unsigned reads = IBV_ACCESS_REMOTE_READ | (ep->cq->device->atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);

	return ep->admitted ? IBV_ACCESS_REMOTE_WRITE | (ep->attr.reads_in ? reads : 0) : 0;
}

static int verbs_qp_init(struct verbs_endpoint *ep)
{
	struct ibv_qp_attr attr;
	int mask, rc = verbs_qp_attr(ep, IBV_QPS_INIT, &attr, &mask);

	if (rc != 0)
		return rc;
	/* Drivers of iWARP refuse or ignore other rights later: cxgb4 and irdma take them before the connection
	 * only. */
	ep->admitted = !ep->attr.closed || ep->cq->device->iwarp;
	if (mask & IBV_QP_ACCESS_FLAGS)
		attr.qp_access_flags = verbs_qp_access(ep);
	return verbs_qp_modify(ep, &attr, mask);
}

int verbs_admit(struct fabric_endpoint *endpoint)
{
	struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr unused;
	int rc;

	if (ep->state != VERBS_LIVE)
		return -ENOTCONN;
	if (ep->admitted)
		return 0;
	ep->admitted = true;
	attr.qp_access_flags = verbs_qp_access(ep);
	rc = ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
	if (rc == 0)
		return 0;
	ep->admitted = false;
	/* An endpoint that is in error by now will get its end. */
	if (ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &unused) || attr.qp_state != IBV_QPS_RTS)
		return -ENOTCONN;
	log_error("verbs", "rights of a queue pair on %s: %s", ep->cq->device->name, strerror(rc));
	return -rc;
}

int verbs_endpoint_bind(struct verbs_endpoint *ep, unsigned device)
{
	struct verbs_device *d = &ep->queue->fabric->device[device];
	const struct verbs_port *port = verbs_find_port(d, ep->id->port_num);
	int rc = verbs_device_ready(ep->queue, device);

	if (rc == 0)
		rc = verbs_cq_reserve(&ep->queue->cq[device], verbs_endpoint_need(ep));
	if (rc != 0)
		return rc;
	ep->device = device;
	ep->cq = &ep->queue->cq[device];
	ep->max_inline = d->max_inline;
	ep->max_message = port->max_message;
	ep->infiniband = port->infiniband;
	ep->attr.reads_in = MIN(ep->attr.reads_in, d->max_reads);
	ep->attr.reads_out = MIN(ep->attr.reads_out, d->max_reads);
	rc = verbs_device_check(ep, d);
	if (rc == 0)
		rc = verbs_qp_create(ep, d);
	if (rc != 0)
		return rc;
	rc = verbs_queue_insert(ep->cq, ep);
	if (rc != 0) {
		ibv_destroy_qp(ep->qp);
		ep->qp = NULL;
		return rc;
	}
	verbs_watch(ep);
	rc = verbs_qp_init(ep);
	return rc ? rc : verbs_post_early(ep);
}

/* Reads: as many as both sides offer. iWARP's connection manager fills in nothing, and cuts them itself. */
static uint8_t verbs_granted(const struct verbs_endpoint *ep, uint8_t asked, uint8_t offered)
{
	return ep->cq->device->iwarp && !offered ? asked : MIN(asked, offered);
}

static int verbs_qp_receive(struct verbs_endpoint *ep)
{
	struct ibv_qp_attr attr;
	int mask, rc = verbs_qp_attr(ep, IBV_QPS_RTR, &attr, &mask);

	if (rc != 0)
		return rc;
	if (ep->infiniband)
		mask &= ~0xe00000; /* older kernels set RoCE's bits here too, which verbs refuses */
	if (mask & IBV_QP_MIN_RNR_TIMER)
		attr.min_rnr_timer = VERBS_MIN_RNR_TIMER;
	ep->ready = true;
	ep->reads_in = verbs_granted(ep, ep->attr.reads_in, attr.max_dest_rd_atomic);
	attr.max_dest_rd_atomic = ep->reads_in;
	return verbs_qp_modify(ep, &attr, mask);
}

int verbs_endpoint_ready(struct verbs_endpoint *ep)
{
	struct ibv_qp_attr attr;
	int mask, rc = verbs_qp_receive(ep);

	if (rc == 0)
		rc = verbs_qp_attr(ep, IBV_QPS_RTS, &attr, &mask);
	if (rc != 0)
		return rc;
	attr.timeout = ep->queue->fabric->ack_timeout;
	attr.retry_cnt = VERBS_RETRY_COUNT;
	attr.rnr_retry = VERBS_RNR_FOREVER;
	/* Where the peer serves none, one read may go out, so that it is refused and not stuck. */
	ep->reads_out = verbs_granted(ep, ep->attr.reads_out, MAX(attr.max_rd_atomic, !ep->cq->device->iwarp));
	attr.max_rd_atomic = ep->reads_out;
	return verbs_qp_modify(ep, &attr, mask);
}

void verbs_endpoint_flush(struct verbs_endpoint *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (ep->qp)
		ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
	if ((verbs_has_deferred(ep) || (!ep->qp && ep->recv_head != ep->recv_tail)) && !list_linked(&ep->flushing))
		list_add_tail(&ep->queue->flushing, &ep->flushing);
}

/* Let the peer know, as far as the connection has come. */
static void verbs_endpoint_part(struct verbs_endpoint *ep, enum verbs_state was)
{
	if (was == VERBS_TAKEN)
		rdma_reject(ep->id, NULL, 0);
	else if (was == VERBS_ANSWERED || was == VERBS_LIVE)
		rdma_disconnect(ep->id);
}

void verbs_endpoint_close(struct verbs_endpoint *ep)
{
	struct verbs_queue *q = ep->queue;
	enum verbs_state was = ep->state;

	if (was >= VERBS_CLOSING)
		return;
	verbs_set_state(ep, VERBS_CLOSING);
	verbs_endpoint_flush(ep);
	verbs_endpoint_part(ep, was);
	ep->deadline = time_now() + VERBS_CLOSING_NS;
	if (list_empty(&q->closing))
		verbs_queue_wake(q, VERBS_CLOSING_NS);
	list_add_tail(&q->closing, &ep->closing);
	verbs_endpoint_settle(ep);
}

void verbs_endpoint_settle(struct verbs_endpoint *ep)
{
	if (ep->state != VERBS_CLOSING)
		return;
	if ((verbs_outstanding(ep) || ep->recv_head != ep->recv_tail || verbs_has_deferred(ep)) &&
	    time_now() < ep->deadline)
		return;
	list_del(&ep->closing);
	verbs_set_state(ep, VERBS_OVER);
	ep->event = ep->error ? FABRIC_REMOVED : FABRIC_DISCONNECTED;
	list_add_tail(&ep->queue->pending, &ep->pending);
}

void verbs_endpoint_lose(struct verbs_endpoint *ep, int error)
{
	if (ep->state == VERBS_OVER)
		return;
	ep->error = error;
	if (!list_linked(&ep->flushing))
		list_add_tail(&ep->queue->flushing, &ep->flushing);
	if (ep->state == VERBS_CLOSING)
		verbs_endpoint_settle(ep);
	else
		verbs_endpoint_close(ep);
	verbs_queue_wake(ep->queue, 1); /* flushes are made by the next poll */
}

static void verbs_endpoint_release(struct verbs_endpoint *ep)
{
	uint32_t need = verbs_endpoint_need(ep);
	int rc;

	if (ep->qp) {
		verbs_unwatch(ep);
		rc = ibv_destroy_qp(ep->qp); /* waits for threads that look at an event of it */
		if (rc != 0 && !ep->cq->removed)
			log_error("verbs", "cannot destroy a queue pair on %s: %s", ep->cq->device->name, strerror(rc));
	}
	/* What a lost queue had promised is free at once: no poll will see it empty. */
	if (ep->qp && ep->cq && !ep->cq->lost)
		ep->cq->dying += need;
	else if (ep->cq)
		ep->cq->reserved -= need;
	if (rdma_destroy_id(ep->id))
		log_error("verbs", "cannot destroy a connection id: %m");
	verbs_endpoint_free(ep);
}

/*
 * Some devices take a queue pair's completions out of the queue when it is destroyed, and with them shared receives
 * that no poll has seen yet. So one that may have some is put into error, kept until the device says that it takes no
 * more, or for a while where devices do not say so, and then until the completion queue was found empty. For its owner
 * it is gone. One with unfinished sends is destroyed at once: only that makes sure that their memory is not touched any
 * more.
 */
static bool verbs_owes_receives(const struct verbs_endpoint *ep)
{
	return ep->qp && ep->qp->srq && ep->ready && !verbs_outstanding(ep) && !ep->cq->lost;
}

static void verbs_endpoint_retire(struct verbs_endpoint *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct verbs_queue *q = ep->queue;

	ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
	ep->id->context = NULL; /* events of it have no owner */
	ep->deadline = time_now() + VERBS_RETIRED_NS;
	list_del(&ep->pending);
	list_del(&ep->closing);
	list_del(&ep->flushing);
	list_del(&ep->member);
	if (list_empty(&q->retired))
		verbs_queue_wake(q, VERBS_RETIRED_NS);
	list_add_tail(&q->retired, &ep->member);
	ep->cq->retired++;
}

void verbs_retired_free(struct verbs_queue *q, const struct verbs_cq *cq, enum verbs_retired which)
{
	uint64_t now = time_now();
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->retired) {
		struct verbs_endpoint *ep = container_of(pos, struct verbs_endpoint, member);

		if (cq && ep->cq != cq)
			continue;
		if (which == VERBS_RETIRED_DRAINED && !ep->drained) {
			ep->drained = atomic_load(&ep->spent) || now >= ep->deadline;
			continue;
		}
		ep->cq->retired--;
		verbs_endpoint_release(ep);
	}
}

void verbs_endpoint_destroy(struct fabric_endpoint *endpoint)
{
	struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);

	verbs_endpoint_part(ep, ep->state);
	verbs_set_state(ep, VERBS_OVER);
	if (ep->qp) {
		verbs_windows_void(ep); /* while there is a queue pair: rxe's windows hold on to theirs */
		verbs_queue_remove(ep->cq, ep);
	}
	if (verbs_owes_receives(ep))
		verbs_endpoint_retire(ep);
	else
		verbs_endpoint_release(ep);
}
