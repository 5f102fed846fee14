/* cm.c: connections. Every rdma_cm event is got, copied, acknowledged, then acted upon. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>

#define VERBS_BACKLOG 1024
#define VERBS_RESOLVE_MS 2000
#define VERBS_CM_ERRORS_MAX 16 /* errors of rdma_cm in a row, until it is given up */
#define VERBS_REJ_CONSUMER 28  /* reject reasons of the InfiniBand connection manager */
#define VERBS_REJ_NO_SERVICE 8

/* What is needed of an event after it was acknowledged. */
struct verbs_cm_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct verbs_owner *owner;
	uint8_t data_len;
	uint8_t data[FABRIC_ACCEPT_DATA];
};

static int verbs_copy_address(const struct sockaddr *sa, socklen_t len, struct sockaddr_storage *out)
{
	if ((sa->sa_family != AF_INET && sa->sa_family != AF_INET6) || len > sizeof(*out)) {
		log_error("verbs", "RDMA needs an IP address");
		return -EAFNOSUPPORT;
	}
	memcpy(out, sa, len);
	return 0;
}

/* Packets are told apart on the way by it: lossless RoCE mostly has a class of its own. */
static void verbs_set_traffic_class(const struct verbs_fabric *fabric, struct rdma_cm_id *id)
{
	uint8_t tos = fabric->traffic_class;

	if (tos && rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)))
		log_warn("verbs", "cannot set the traffic class %u: %m", tos);
}

/*
 * Passive side.
 */
static int verbs_listen_error(const struct sockaddr *sa, int error)
{
	char text[128];

	address_format_socket(sa, text, sizeof(text));
	if (error == ENODEV || error == EADDRNOTAVAIL) {
		log_error("verbs", "%s is not an address of an RDMA device", text);
		return -EADDRNOTAVAIL;
	}
	log_error("verbs", "listen on %s: %s", text, strerror(error));
	return -error;
}

static int verbs_listener_bind(struct verbs_listener *l)
{
	struct sockaddr *sa = (struct sockaddr *)&l->at;
	int only = 1;

	verbs_set_traffic_class(l->queue->fabric, l->id);
	/* "::" leaves IPv4 to a listener of its own, as with sockets. */
	if (sa->sa_family == AF_INET6 &&
	    rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)))
		log_warn("verbs", "cannot listen on IPv6 alone: %m");
	if (rdma_bind_addr(l->id, sa) || rdma_listen(l->id, VERBS_BACKLOG))
		return verbs_listen_error(sa, errno);
	/* Bound to one address, it is of one device; that must be one of ours. */
	if (l->id->verbs && verbs_find_device(l->queue->fabric, l->id) < 0)
		return verbs_listen_error(sa, EADDRNOTAVAIL);
	/* of either family at one place */
	((struct sockaddr_in *)&l->at)->sin_port = rdma_get_src_port(l->id);
	return 0;
}

static int verbs_listener_start(struct verbs_listener *l)
{
	int rc;

	if (rdma_create_id(l->queue->events, &l->id, &l->owner, RDMA_PS_TCP)) {
		rc = -errno;
		log_error("verbs", "listener: %s", strerror(errno));
		l->id = NULL;
		return rc;
	}
	rc = verbs_listener_bind(l);
	if (rc == 0)
		return 0;
	rdma_destroy_id(l->id);
	l->id = NULL;
	return rc;
}

void verbs_listeners_renew(struct verbs_queue *q)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->listeners) {
		struct verbs_listener *l = container_of(pos, struct verbs_listener, member);

		rdma_destroy_id(l->id);
		log_hush_begin();
		l->error = verbs_listener_start(l);
		log_hush_end();
		if (!l->error)
			continue;
		list_del(&l->member);
		list_add_tail(&q->gone, &l->member);
	}
}

int verbs_listen(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		 struct fabric_listener **out)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);
	struct verbs_listener *l;
	int rc;

	if (q->cm_lost || !q->events)
		return -ENODEV;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	*l = (struct verbs_listener){
		.base.ops = queue->ops, .owner.kind = VERBS_LISTENER, .queue = q, .context = context, .len = len};
	rc = verbs_copy_address(sa, len, &l->at);
	if (rc == 0)
		rc = verbs_listener_start(l);
	if (rc != 0) {
		free(l);
		return rc;
	}
	q->checks = MAX(q->checks, 1u);
	list_add_tail(&q->listeners, &l->member);
	*out = &l->base;
	return 0;
}

uint16_t verbs_listener_port(const struct fabric_listener *listener)
{
	const struct verbs_listener *l = container_of(listener, struct verbs_listener, base);

	return ntohs(((const struct sockaddr_in *)&l->at)->sin_port);
}

void verbs_listener_close(struct fabric_listener *listener)
{
	struct verbs_listener *l = container_of(listener, struct verbs_listener, base);

	if (l->id && rdma_destroy_id(l->id))
		log_error("verbs", "cannot destroy a listener: %m");
	list_del(&l->member);
	free(l);
}

static void verbs_refuse(struct rdma_cm_id *id, const void *data, size_t len)
{
	rdma_reject(id, data, (uint8_t)len);
	rdma_destroy_id(id); /* the reject does not free it */
}

void verbs_reject(struct fabric_request *request, const void *data, size_t data_len)
{
	struct verbs_request *r = container_of(request, struct verbs_request, base);

	verbs_refuse(r->id, data, data_len);
	free(r);
}

/* A new id has its listener's context: overwrite it before anything else can come for it. */
static int verbs_requested(struct verbs_queue *q, const struct verbs_cm_event *ev, struct fabric_event *out)
{
	struct verbs_listener *l = container_of(ev->owner, struct verbs_listener, owner);
	int device = verbs_find_device(q->fabric, ev->id);
	struct verbs_request *r = device < 0 ? NULL : calloc(1, sizeof(*r));

	if (!r) {
		ev->id->context = NULL;
		verbs_refuse(ev->id, NULL, 0);
		return 0;
	}
	r->base.ops = q->base.ops;
	r->owner.kind = VERBS_REQUEST;
	r->id = ev->id;
	r->fabric = q->fabric;
	r->device = (unsigned)device;
	r->id->context = &r->owner;
	out->type = FABRIC_REQUEST;
	out->request = &r->base;
	out->context = l->context;
	out->data_len = ev->data_len;
	memcpy(out->data, ev->data, ev->data_len);
	return 1;
}

static int verbs_take_request(struct verbs_queue *q, struct verbs_domain *domain, struct verbs_request *r,
			      const struct fabric_endpoint_attr *attr, struct verbs_endpoint **out)
{
	struct verbs_endpoint *ep;
	int rc = q->events ? verbs_endpoint_new(q, domain, attr, VERBS_TAKEN, &ep) : -EIO;

	if (rc != 0)
		goto refuse;
	/* Waits until the other thread has acknowledged all of this id's events. */
	if (r->id->channel != q->events && rdma_migrate_id(r->id, q->events)) {
		rc = -errno;
	} else if (atomic_load(&r->dead)) {
		rc = -ECONNABORTED;
	} else {
		ep->id = r->id;
		ep->id->context = &ep->owner;
		rc = verbs_endpoint_bind(ep, r->device);
	}
	if (rc && ep->id) {
		rdma_reject(ep->id, attr->refusal, (uint8_t)attr->refusal_len);
		verbs_endpoint_destroy(&ep->base);
		return rc;
	}
	if (rc != 0)
		goto free_endpoint;
	*out = ep;
	return 0;
free_endpoint:
	verbs_endpoint_free(ep);
refuse:
	verbs_refuse(r->id, attr->refusal, (uint8_t)attr->refusal_len);
	return rc;
}

int verbs_take(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
	       const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);
	struct verbs_request *r = container_of(request, struct verbs_request, base);
	struct verbs_endpoint *ep = NULL;
	int rc = verbs_take_request(q, container_of(domain, struct verbs_domain, base), r, attr, &ep);

	free(r);
	if (rc == 0)
		*out = &ep->base;
	return rc;
}

static void verbs_conn_param(const struct verbs_endpoint *ep, const void *data, size_t len,
			     struct rdma_conn_param *param)
{
	*param = (struct rdma_conn_param){
		.private_data = len ? data : NULL,
		.private_data_len = (uint8_t)len,
		.responder_resources = ep->reads_in,
		.initiator_depth = ep->reads_out,
		.flow_control = 1,
		.retry_count = VERBS_RETRY_COUNT,
		.rnr_retry_count = VERBS_RNR_FOREVER,
		.srq = !!ep->qp->srq,
		.qp_num = ep->qp->qp_num,
	};
}

int verbs_accept(struct fabric_endpoint *endpoint, const void *data, size_t data_len)
{
	struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);
	struct rdma_conn_param param;
	int rc;

	if (ep->state != VERBS_TAKEN)
		return -ENOTCONN;
	rc = verbs_endpoint_ready(ep);
	if (rc != 0)
		return rc;
	verbs_conn_param(ep, data, data_len, &param);
	if (rdma_accept(ep->id, &param))
		return verbs_cm_failed();
	verbs_set_state(ep, VERBS_ANSWERED);
	return 0;
}

/*
 * Active side.
 */

/* rdma_cm takes the unspecified address for any device at all, and may wait for it for ever. */
static bool verbs_is_unspecified(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_ANY;
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

int verbs_connect(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa, socklen_t len,
		  const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		  struct fabric_endpoint **out)
{
	struct verbs_queue *q = container_of(queue, struct verbs_queue, base);
	struct sockaddr_storage address;
	struct verbs_endpoint *ep;
	struct sockaddr *from;
	int rc = verbs_copy_address(sa, len, &address);

	if (!rc && verbs_is_unspecified(&address))
		rc = -EADDRNOTAVAIL;
	if (!rc && !q->events)
		rc = -ENODEV;
	if (rc == 0)
		rc = verbs_endpoint_new(q, container_of(domain, struct verbs_domain, base), attr, VERBS_RESOLVING, &ep);
	if (rc != 0)
		return rc;
	if (data_len)
		memcpy(ep->data, data, data_len);
	ep->data_len = (uint8_t)data_len;
	if (rdma_create_id(q->events, &ep->id, &ep->owner, RDMA_PS_TCP)) {
		rc = -errno;
		log_error("verbs", "connection id: %s", strerror(errno));
		goto free_endpoint;
	}
	verbs_set_traffic_class(q->fabric, ep->id);
	from = attr->from && attr->from->sa_family == sa->sa_family ? (struct sockaddr *)attr->from : NULL;
	if (rdma_resolve_addr(ep->id, from, (struct sockaddr *)&address, VERBS_RESOLVE_MS)) {
		rc = -errno; /* the caller falls back or says so */
		goto destroy_id;
	}
	*out = &ep->base;
	return 0;
destroy_id:
	rdma_destroy_id(ep->id);
free_endpoint:
	verbs_set_state(ep, VERBS_OVER);
	verbs_endpoint_free(ep);
	return rc;
}

static int verbs_route_resolved(struct verbs_endpoint *ep)
{
	struct rdma_conn_param param;

	ep->reads_in = ep->attr.reads_in;
	ep->reads_out = ep->attr.reads_out;
	verbs_conn_param(ep, ep->data, ep->data_len, &param);
	if (rdma_connect(ep->id, &param))
		return -errno;
	verbs_set_state(ep, VERBS_CONNECTING);
	return 0;
}

/*
 * Events.
 */
int verbs_report(struct verbs_endpoint *ep, enum fabric_event_type type, int error, struct fabric_event *out)
{
	out->type = type;
	out->error = error;
	out->endpoint = &ep->base;
	out->context = ep->context;
	return 1;
}

static int verbs_established(struct verbs_endpoint *ep, const struct verbs_cm_event *ev, struct fabric_event *out)
{
	verbs_set_state(ep, VERBS_LIVE);
	out->data_len = ev->data_len;
	memcpy(out->data, ev->data, ev->data_len);
	return verbs_report(ep, FABRIC_ESTABLISHED, 0, out);
}

/* A connect that failed: its last event, with its own receives to flush. */
static int verbs_failed(struct verbs_endpoint *ep, enum fabric_event_type type, int error, struct fabric_event *out)
{
	verbs_set_state(ep, VERBS_OVER);
	verbs_endpoint_flush(ep);
	return verbs_report(ep, type, error, out);
}

/* Kernel statuses are negative errno; -1 is librdmacm's, for an address of no device. */
static int verbs_unreachable(struct verbs_endpoint *ep, int status, struct fabric_event *out)
{
	int error = status < -1 ? status : -ENODEV;

	return verbs_failed(ep, FABRIC_UNREACHABLE, error, out);
}

static int verbs_rejected(struct verbs_endpoint *ep, const struct verbs_cm_event *ev, struct fabric_event *out)
{
	bool by_peer = ev->status == VERBS_REJ_CONSUMER || (ev->status < 0 && ev->data_len);

	if (!by_peer)
		return verbs_failed(ep, FABRIC_UNREACHABLE,
				    ev->status == VERBS_REJ_NO_SERVICE || ev->status < 0 ? -ECONNREFUSED : -ECONNRESET,
				    out);
	out->data_len = (uint8_t)MIN(ev->data_len, FABRIC_REJECT_DATA);
	memcpy(out->data, ev->data, out->data_len);
	return verbs_failed(ep, FABRIC_REJECTED, -ECONNREFUSED, out);
}

/* The answer came too late: this side has closed. */
static void verbs_answer_late(struct verbs_endpoint *ep, const struct verbs_cm_event *ev)
{
	if (ev->type == RDMA_CM_EVENT_CONNECT_RESPONSE)
		rdma_reject(ep->id, NULL, 0);
	else if (ev->type == RDMA_CM_EVENT_DISCONNECTED || ev->type == RDMA_CM_EVENT_ESTABLISHED)
		rdma_disconnect(ep->id);
}

/* While the connection is made by this side. */
static int verbs_connecting(struct verbs_endpoint *ep, const struct verbs_cm_event *ev, struct fabric_event *out)
{
	int rc = 0, device;

	switch (ev->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		device = verbs_find_device(ep->queue->fabric, ep->id);
		rc = device < 0 ? device : verbs_endpoint_bind(ep, (unsigned)device);
		if (rc == 0 && rdma_resolve_route(ep->id, VERBS_RESOLVE_MS))
			rc = -errno;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rc = verbs_route_resolved(ep);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		rc = verbs_endpoint_ready(ep);
		if (rc == 0 && rdma_establish(ep->id))
			rc = verbs_cm_failed();
		if (rc == 0)
			return verbs_established(ep, ev, out);
		rdma_reject(ep->id, NULL, 0);
		break;
	case RDMA_CM_EVENT_ESTABLISHED: /* iWARP says so at once */
		return verbs_established(ep, ev, out);
	case RDMA_CM_EVENT_REJECTED:
		return verbs_rejected(ep, ev, out);
	case RDMA_CM_EVENT_DISCONNECTED:
		rc = -ECONNRESET;
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return verbs_unreachable(ep, ev->status, out);
	default:
		break;
	}
	return rc ? verbs_unreachable(ep, rc, out) : 0;
}

/* Once taken or established only the end can come, in many forms. */
static int verbs_connected(struct verbs_endpoint *ep, const struct verbs_cm_event *ev, struct fabric_event *out)
{
	switch (ev->type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		return ep->state == VERBS_ANSWERED ? verbs_established(ep, ev, out) : 0;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		verbs_endpoint_close(ep);
		return 0;
	default:
		return 0;
	}
}

/* The endpoints of the device get their ends with its completion queue; one that has none yet gets it here. */
static int verbs_removed(struct verbs_endpoint *ep, struct fabric_event *out)
{
	if (ep->cq) {
		verbs_device_gone(ep->cq->device, "removed");
		verbs_queue_take_losses(ep->queue);
		return 0;
	}
	verbs_set_state(ep, VERBS_OVER);
	return verbs_report(ep, FABRIC_REMOVED, -ENODEV, out);
}

int verbs_listener_tell(struct verbs_listener *l, struct fabric_event *out)
{
	list_del(&l->member);
	if (l->told)
		return 0;
	l->told = true;
	out->type = FABRIC_REMOVED;
	out->error = l->error ? l->error : -ENODEV;
	out->context = l->context;
	return 1;
}

static int verbs_endpoint_event(struct verbs_endpoint *ep, const struct verbs_cm_event *ev, struct fabric_event *out)
{
	bool over = ep->state == VERBS_OVER && !list_linked(&ep->pending);

	if (ev->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		return over ? 0 : verbs_removed(ep, out);
	switch (ep->state) {
	case VERBS_RESOLVING:
	case VERBS_CONNECTING:
		return verbs_connecting(ep, ev, out);
	case VERBS_TAKEN:
	case VERBS_ANSWERED:
	case VERBS_LIVE:
		return verbs_connected(ep, ev, out);
	case VERBS_CLOSING:
	case VERBS_OVER:
		verbs_answer_late(ep, ev);
		return 0;
	}
	return 0;
}

static int verbs_handle(struct verbs_queue *q, const struct verbs_cm_event *ev, struct fabric_event *out)
{
	struct verbs_listener *l;
	int device;

	if (ev->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		return verbs_requested(q, ev, out);
	if (!ev->owner)
		return 0;
	switch (ev->owner->kind) {
	case VERBS_ENDPOINT:
		return verbs_endpoint_event(container_of(ev->owner, struct verbs_endpoint, owner), ev, out);
	case VERBS_LISTENER:
		if (ev->type != RDMA_CM_EVENT_DEVICE_REMOVAL)
			return 0;
		l = container_of(ev->owner, struct verbs_listener, owner);
		device = verbs_find_device(q->fabric, l->id);
		if (device >= 0) {
			verbs_device_gone(&q->fabric->device[device], "removed");
			verbs_queue_take_losses(q);
		}
		return verbs_listener_tell(l, out);
	case VERBS_REQUEST: /* done before the acknowledgement */
		return 0;
	}
	return 0;
}

/*
 * A request may be taken by another thread at this moment. That thread waits in
 * rdma_migrate_id until the event is acknowledged, so before that its context is still ours to
 * look at, and afterwards not.
 */
static void verbs_copy_event(const struct rdma_cm_event *from, struct verbs_cm_event *to)
{
	const struct rdma_conn_param *conn = &from->param.conn;

	to->type = from->event;
	to->status = from->status;
	to->id = from->id;
	to->owner = from->id->context;
	to->data_len = 0;
	if (to->owner && to->owner->kind == VERBS_REQUEST)
		atomic_store(&container_of(to->owner, struct verbs_request, owner)->dead, true);
	if (conn->private_data) {
		to->data_len = (uint8_t)MIN(conn->private_data_len, FABRIC_ACCEPT_DATA);
		memcpy(to->data, conn->private_data, to->data_len);
	}
}

int verbs_cm_next(struct verbs_queue *q, struct fabric_event *out)
{
	struct rdma_cm_event *event;
	struct verbs_cm_event copy;

	if (rdma_get_cm_event(q->events, &event)) {
		int error = errno;

		if (error == EAGAIN || error == EINTR)
			return -EAGAIN;
		/* An event that cannot be got stays where it is, and wakes again. */
		if (q->cm_errors++ == 0)
			log_error("verbs", "event of rdma_cm: %s", strerror(error));
		if (q->cm_errors == VERBS_CM_ERRORS_MAX)
			verbs_cm_lose(q, strerror(error));
		return -error;
	}
	q->cm_errors = 0;
	log_debug("verbs", "%s status %d", rdma_event_str(event->event), event->status);
	verbs_copy_event(event, &copy);
	rdma_ack_cm_event(event);
	return verbs_handle(q, &copy, out);
}

/*
 * Names, and the end asked for by the caller.
 */
static unsigned verbs_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

void verbs_request_limits(const struct fabric_request *request, struct fabric_limits *limits)
{
	const struct verbs_request *r = container_of(request, struct verbs_request, base);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct ibv_port_attr port;
	int mask = 0;

	verbs_device_limits(&r->fabric->device[r->device], limits);
	/* The connection request decides how long its packets are. Networks of two MTUs make them too long for this
	 * port. */
	if (rdma_init_qp_attr(r->id, &attr, &mask) || !(mask & IBV_QP_PATH_MTU) ||
	    ibv_query_port(r->id->verbs, r->id->port_num, &port))
		return;
	limits->peer_packet = verbs_mtu_bytes(attr.path_mtu);
	limits->packet = verbs_mtu_bytes(port.active_mtu);
}

char *verbs_request_peer(const struct fabric_request *request, char *buf, size_t size)
{
	const struct verbs_request *r = container_of(request, struct verbs_request, base);

	return address_format_socket(rdma_get_peer_addr(r->id), buf, size);
}

void verbs_request_source(const struct fabric_request *request, struct fabric_source *out)
{
	const struct verbs_request *r = container_of(request, struct verbs_request, base);

	fabric_source_of(rdma_get_peer_addr(r->id), out);
}

void verbs_endpoint_source(const struct fabric_endpoint *endpoint, struct fabric_source *out)
{
	const struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);

	fabric_source_of(rdma_get_peer_addr(ep->id), out);
}

int verbs_endpoint_local(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out)
{
	const struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);
	const struct sockaddr *sa = rdma_get_local_addr(ep->id);

	if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
		return -ENOTCONN;
	memcpy(out, sa, sa->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	return 0;
}

char *verbs_endpoint_peer(const struct fabric_endpoint *endpoint, char *buf, size_t size)
{
	const struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);

	return address_format_socket(rdma_get_peer_addr(ep->id), buf, size);
}

const struct fabric_transport *verbs_endpoint_transport(const struct fabric_endpoint *endpoint)
{
	return fabric_transport_find("rdma");
}

void verbs_disconnect(struct fabric_endpoint *endpoint)
{
	verbs_endpoint_close(container_of(endpoint, struct verbs_endpoint, base));
}
