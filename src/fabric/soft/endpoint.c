/*
 * endpoint.c: an endpoint's life, and above all its end.
 *
 * One way down: soft_fail() gives up the socket, soft_flush() completes what is outstanding
 * (in several polls if the completions have no room) and posts the last event.
 */
#include "fabric/soft/soft.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static void soft_endpoint_free(struct soft_endpoint *ep)
{
	free(ep->sq.ring);
	free(ep->sq.copies);
	free(ep->reads.ring);
	free(ep->responses.ring);
	free(ep->recvs.ring);
	free(ep->leftover);
	free(ep->recv.aside);
	free(ep->pulls.ring);
	soft_rings_free(ep->rings);
	soft_rings_free(ep->offer);
	free(ep);
}

int soft_endpoint_create(struct soft_queue *q, struct soft_domain *d, const struct fabric_endpoint_attr *attr,
			 struct soft_endpoint **out)
{
	static _Atomic uint64_t serial;
	struct soft_endpoint *ep;

	if (attr->send_depth > SOFT_MAX_DEPTH || attr->recv_depth > SOFT_MAX_DEPTH)
		return -EINVAL;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	ep->base.ops = q->base.ops;
	ep->source = (struct soft_source){.kind = SOFT_ENDPOINT, .fd = -1};
	ep->share_fd = -1;
	ep->queue = q;
	ep->domain = d;
	ep->serial = ++serial;
	ep->context = attr->context;
	ep->sq.depth = attr->send_depth;
	ep->memory = attr->memory && !attr->undecided;
	ep->undecided = attr->undecided;
	ep->admitted = !attr->closed;
	ep->reads_wanted = ep->reads_out = MIN(attr->reads_out, SOFT_MAX_READS);
	ep->reads_in = MIN(attr->reads_in, SOFT_MAX_READS);
	ep->sq.mask = soft_ring_size(attr->send_depth) - 1;
	ep->reads.mask = soft_ring_size(ep->reads_out) - 1;
	ep->responses.mask = soft_ring_size(ep->reads_in) - 1;
	/* Not cleared: what is never used takes no memory. */
	ep->sq.ring = malloc(((size_t)ep->sq.mask + 1) * sizeof(*ep->sq.ring));
	ep->reads.ring = malloc(((size_t)ep->reads.mask + 1) * sizeof(*ep->reads.ring));
	ep->responses.ring = malloc(((size_t)ep->responses.mask + 1) * sizeof(*ep->responses.ring));
	if (!ep->sq.ring || !ep->reads.ring || !ep->responses.ring ||
	    soft_recvs_create(&ep->recvs, attr->recv_depth) != 0) {
		soft_endpoint_free(ep);
		return log_fail(-ENOMEM, "soft", "no memory for an endpoint of depth %u and %u", attr->send_depth,
				attr->recv_depth);
	}
	ep->shared = attr->shared;
	q->recvs.wanted += ep->shared;
	*out = ep;
	return 0;
}

/*
 * A host that vanished is noticed by keepalive when nothing is under way, and else by
 * soft_host_lost(). TCP_USER_TIMEOUT serves for the connect only: it also kills a
 * connection whose peer lives but reads nothing, which is what promise 3 allows.
 */
static void soft_tcp_options(int fd, uint32_t lost_ms)
{
	int on = 1, count = 3;
	int seconds = MAX(lost_ms / 1000 / 4, 1u);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof(lost_ms)); /* see above */
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

void soft_endpoint_adopt(struct soft_endpoint *ep, int fd, const struct soft_peer *peer)
{
	struct soft_queue *q = ep->queue;
	int size = MIB;

	ep->source.fd = fd;
	ep->peer = *peer;
	ep->unix_socket = peer->address.ss_family == AF_UNIX;
	list_add_tail(&q->endpoints, &ep->source.link);
	if (ep->unix_socket) {
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		return;
	}
	soft_tcp_options(fd, q->fabric->lost_ms);
}

/* TCP sockets are always watched for room; a UNIX socket would report it at each message
 * that the peer reads, so it is watched only when needed. */
uint32_t soft_endpoint_events(const struct soft_endpoint *ep)
{
	return EPOLLIN | EPOLLRDHUP | EPOLLET | (ep->unix_socket && !ep->out.watched ? 0 : EPOLLOUT);
}

void soft_set_state(struct soft_endpoint *ep, enum soft_state state)
{
	must(state >= ep->state);
	ep->state = state;
}

void soft_endpoint_opened(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;
	unsigned never = 0;

	if (!ep->unix_socket)
		setsockopt(ep->source.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof(never));
	soft_watch(q, &ep->source, soft_endpoint_events(ep), false);
	soft_set_state(ep, SOFT_OPEN);
	if (ep->share != SOFT_SHARE_ASKED)
		soft_announce(ep);
}

void soft_announce(struct soft_endpoint *ep)
{
	if (!ep->announced)
		soft_note_post(ep->queue, &ep->opened, FABRIC_ESTABLISHED, ep);
	ep->announced = true;
}

int soft_admit(struct fabric_endpoint *endpoint)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);

	if (ep->state != SOFT_OPEN)
		return -ENOTCONN;
	ep->admitted = true;
	return 0;
}

char *soft_peer_format(const struct soft_peer *peer, char *buf, size_t size)
{
	if (!peer->asked)
		return address_format_socket((const struct sockaddr *)&peer->address, buf, size);
	snprintf(buf, size, "unix:pid %d uid %u", (int)peer->pid, (unsigned)peer->uid);
	return buf;
}

void soft_peer_source(const struct soft_peer *peer, struct fabric_source *out)
{
	fabric_source_of((const struct sockaddr *)&peer->address, out);
	if (peer->local)
		*out = (struct fabric_source){.family = AF_UNIX, .id = {peer->uid}};
}

char *soft_endpoint_peer(const struct fabric_endpoint *endpoint, char *buf, size_t size)
{
	const struct soft_endpoint *ep = container_of(endpoint, const struct soft_endpoint, base);

	return soft_peer_format(&ep->peer, buf, size);
}

void soft_endpoint_source(const struct fabric_endpoint *endpoint, struct fabric_source *out)
{
	soft_peer_source(&container_of(endpoint, const struct soft_endpoint, base)->peer, out);
}

int soft_endpoint_local(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out)
{
	const struct soft_endpoint *ep = container_of(endpoint, const struct soft_endpoint, base);
	socklen_t len = sizeof(*out);

	return getsockname(ep->source.fd, (struct sockaddr *)out, &len) ? -errno : 0;
}

const struct fabric_transport *soft_endpoint_transport(const struct fabric_endpoint *endpoint)
{
	const struct soft_endpoint *ep = container_of(endpoint, const struct soft_endpoint, base);

	return fabric_transport_find(ep->rings ? "shm" : ep->unix_socket ? "unix" : ep->encrypted ? "tls" : "tcp");
}

/*
 * Lingering: a socket that is closed with bytes unread answers by a reset, and that
 * destroys what we sent last, be it an ERROR or a SEND that has completed. So its writing
 * end is shut, and it is read until the peer has closed too, or for SOFT_LINGER_TIME: what has
 * completed was taken by the peer, so it is for an ERROR and for courtesy only.
 */
static void soft_linger_end(struct soft_queue *q, struct soft_linger *l)
{
	list_del(&l->source.link);
	q->linger_count--;
	soft_bury_later(q, &l->source);
}

void soft_linger_run(struct soft_queue *q, struct soft_source *source, uint32_t events)
{
	struct soft_linger *l = container_of(source, struct soft_linger, source);
	ssize_t n;
	int turns = (int)(soft_budget(q) / SOFT_STAGE);

	do
		n = recv(source->fd, q->stage, sizeof(q->stage), MSG_DONTWAIT);
	while (n > 0 && --turns);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		soft_linger_end(q, l);
}

bool soft_linger_tick(struct soft_queue *q, uint64_t now)
{
	struct linger at_once = {.l_onoff = 1};
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->lingers) {
		struct soft_linger *l = container_of(pos, struct soft_linger, source.link);

		if (now < l->deadline)
			continue;
		soft_linger_run(q, &l->source, 0);
		if (l->source.fd < 0)
			continue;
		/* The peer does not read, so it does not see that we have closed: a reset it does see. At the end of
		 * the queue the rest is left to the kernel. */
		if (now != TIME_NEVER)
			setsockopt(l->source.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		soft_linger_end(q, l);
	}
	return !list_empty(&q->lingers);
}

/* False: the socket is still the caller's. */
static bool soft_linger_create(struct soft_queue *q, int fd)
{
	struct soft_linger *l = calloc(1, sizeof(*l));
	unsigned ms = SOFT_ORPHAN_TIME / TIME_MS;

	/* The kernel gives up after it also on a peer that acknowledges and reads nothing. */
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	shutdown(fd, SHUT_WR);
	if (!l)
		return false;
	l->source = (struct soft_source){.kind = SOFT_LINGER, .fd = fd};
	l->deadline = time_now() + SOFT_LINGER_TIME;
	/* The source may not be watched yet (taken and not accepted): then nothing can be lost. */
	if (soft_watch(q, &l->source, EPOLLIN | EPOLLRDHUP, false)) {
		free(l);
		return false;
	}
	if (q->linger_count >= SOFT_MAX_LINGERS)
		soft_linger_end(q, list_first(&q->lingers, struct soft_linger, source.link));
	list_add_tail(&q->lingers, &l->source.link);
	q->linger_count++;
	soft_timer_want(q, SOFT_TICK_MS);
	return true;
}

/* Out of all lists but those of completions and events; the socket closed or lingering. */
static void soft_endpoint_release(struct soft_endpoint *ep, bool linger)
{
	struct list *const all[] = {&ep->ready,      &ep->recv.starving, &ep->recv.borrowing,
				    &ep->owing.link, &ep->check.link,    &ep->later};
	struct soft_queue *q = ep->queue;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (list_linked(all[i]))
			list_del(all[i]);
	if (ep->source.fd < 0)
		return;
	if (ep->state == SOFT_ASKING || ep->state == SOFT_OPEN || ep->state == SOFT_REFUSING)
		q->endpoint_count -= !ep->rings;
	else if (ep->state == SOFT_CONNECTING)
		q->connecting--;
	else if (ep->state == SOFT_TAKEN)
		soft_greet(ep->source.fd, SOFT_REJECT, soft_greeting_key(SOFT_VERSION, 0, 0), SOFT_REASON_CALLER, NULL,
			   0);
	soft_unblock(ep);
	soft_share_leave(ep);
	list_del(&ep->source.link);
	soft_near_leave(ep);
	soft_near_watch(ep);
	soft_rings_leave(ep);
	/* Bytes in a ring stay there when the socket is closed. */
	if (linger && !ep->rings && soft_linger_create(q, ep->source.fd))
		ep->source.fd = -1;
	else
		soft_source_close(q, &ep->source);
}

void soft_fail(struct soft_endpoint *ep, const struct soft_cause *cause)
{
	if (ep->state >= SOFT_FLUSHING)
		return;
	ep->closed.type = FABRIC_DISCONNECTED;
	if (cause->event && (ep->state <= SOFT_ASKING || cause->untold))
		ep->closed.type = cause->event;
	ep->error = cause->error;
	soft_endpoint_release(ep, cause->linger);
	soft_retire(ep);
	soft_set_state(ep, SOFT_FLUSHING);
	ep->blame.used = cause->blame;
	ep->blame.index = cause->index;
	ep->blame.status = cause->status;
	soft_flush(ep);
}

void soft_fail_socket(struct soft_endpoint *ep, int error)
{
	bool lost = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
	char name[160];

	if (error && error != ECONNRESET && error != EPIPE)
		log_warn("soft", "lost %s: %s", soft_endpoint_peer(&ep->base, name, sizeof(name)), strerror(error));
	soft_fail(ep, &(struct soft_cause){
			      .error = error ? -error : -ECONNRESET,
			      .event = FABRIC_UNREACHABLE,
			      .blame = lost && ep->sq.tail != ep->sq.head,
			      .index = ep->sq.tail,
			      .status = FABRIC_PEER_LOST,
		      });
}

void soft_fail_protocol(struct soft_endpoint *ep, const char *what)
{
	soft_complain(&ep->peer, what);
	soft_fail(ep, &(struct soft_cause){.error = -EPROTO, .event = FABRIC_UNREACHABLE});
}

void soft_refuse(struct soft_endpoint *ep, uint32_t number, enum soft_refusal why)
{
	if (ep->state != SOFT_OPEN && ep->state != SOFT_REFUSING)
		return;
	soft_set_state(ep, SOFT_REFUSING);
	ep->refusal.number = number;
	ep->refusal.why = why;
	ep->deadline = time_now() + SOFT_DEADLINE;
	ep->tx_wanted = true;
	soft_watched(ep);
	soft_ready(ep);
}

static void soft_recv_flushed(struct soft_endpoint *ep, uint64_t id)
{
	struct fabric_completion c = {
		.id = id,
		.endpoint = &ep->base,
		.context = ep->context,
		.opcode = FABRIC_RECV,
		.status = FABRIC_FLUSHED,
	};

	soft_cq_push(ep->queue, &c);
}

static void soft_flush_sends(struct soft_endpoint *ep)
{
	while (ep->sq.tail != ep->sq.head && soft_cq_room(ep->queue)) {
		const struct soft_wr *wr = &ep->sq.ring[ep->sq.tail & ep->sq.mask];
		bool blamed = ep->blame.used && ep->blame.index == ep->sq.tail;

		if (!wr->done || wr->signaled) /* a push that has completed does not complete again */
			soft_wr_complete(ep, wr, blamed ? ep->blame.status : FABRIC_FLUSHED);
		ep->sq.tail++;
	}
}

static void soft_flush_recvs(struct soft_endpoint *ep)
{
	struct soft_recvs *r = &ep->recvs;

	if (ep->recv.held && soft_cq_room(ep->queue)) {
		soft_recv_flushed(ep, ep->recv.to.id);
		ep->recv.held = false;
		soft_recvs_of(ep)->held--;
	}
	while (r->tail != r->head && soft_cq_room(ep->queue))
		soft_recv_flushed(ep, r->ring[r->tail++ & r->mask].id);
}

void soft_flush(struct soft_endpoint *ep)
{
	soft_flush_sends(ep);
	soft_flush_recvs(ep);
	if (!soft_flush_pulls(ep) || ep->sq.tail != ep->sq.head || ep->recv.held || ep->recvs.tail != ep->recvs.head) {
		soft_ready(ep);
		return;
	}
	soft_set_state(ep, SOFT_DEAD);
	soft_note_post(ep->queue, &ep->closed, ep->closed.type, ep);
}

void soft_disconnect(struct fabric_endpoint *endpoint)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);

	soft_fail(ep, &(struct soft_cause){.linger = true});
	soft_settle(ep->queue);
}

/* Its completions are dropped, but not those of shared receives, whose memory would not come back. */
static void soft_completions_drop(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;

	for (uint32_t i = q->cq.tail; i != q->cq.head; i++) {
		struct fabric_completion *c = &q->cq.ring[i & q->cq.mask];
		bool recv = c->opcode == FABRIC_RECV || c->opcode == FABRIC_RECV_IMM;

		if (c->endpoint != &ep->base)
			continue;
		c->endpoint = NULL;
		c->context = recv && !ep->recvs.ring ? NULL : SOFT_DROPPED;
	}
}

void soft_endpoint_destroy(struct fabric_endpoint *endpoint)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);
	struct soft_queue *q = ep->queue;

	soft_endpoint_release(ep, true);
	soft_recv_return(ep);
	soft_completions_drop(ep);
	if (list_linked(&ep->opened.link))
		list_del(&ep->opened.link);
	if (list_linked(&ep->closed.link))
		list_del(&ep->closed.link);
	q->recvs.wanted -= ep->shared;
	soft_endpoint_free(ep);
	soft_settle(q);
}

bool soft_hung_up(struct fabric_endpoint *endpoint)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);
	struct pollfd socket = {.fd = ep->source.fd, .events = POLLRDHUP};

	if (ep->state >= SOFT_FLUSHING)
		return true;
	if (ep->state != SOFT_OPEN || poll(&socket, 1, 0) <= 0)
		return false;
	ep->hung_up = true;
	soft_ready(ep);
	return true;
}

bool soft_stands_still(const struct soft_endpoint *ep)
{
	return ep->recv.starved || (ep->phase == SOFT_PHASE_BEGIN && ep->frame.op == SOFT_PUSH);
}

/* A caller that has not taken the last completions yet may post what the peer waits for. */
static void soft_check_hung_up(struct soft_endpoint *ep)
{
	if (!soft_stands_still(ep) || !ep->hung_up || ep->state >= SOFT_FLUSHING)
		return;
	if (ep->queue->cq.head != ep->queue->cq.tail)
		soft_ready(ep);
	else
		soft_fail_socket(ep, 0);
}

void soft_endpoint_run(struct soft_queue *q, struct soft_source *source, uint32_t events)
{
	struct soft_endpoint *ep = container_of(source, struct soft_endpoint, source);
	uint32_t heard = ep->heard;

	if (ep->state == SOFT_CONNECTING) {
		soft_connect_run(ep);
		return;
	}
	if (ep->rings) {
		soft_rings_run(ep, events);
		soft_check_hung_up(ep);
		return;
	}
	if (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR))
		ep->hung_up = true;
	if (ep->out.blocked && (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))) {
		soft_unblock(ep);
		soft_transmit(ep);
	}
	soft_receive(ep);
	if (ep->heard != heard)
		soft_near_heard(ep);
	soft_check_hung_up(ep);
}

void soft_endpoint_continue(struct soft_endpoint *ep)
{
	if (ep->state == SOFT_FLUSHING) {
		soft_flush(ep);
		return;
	}
	soft_retire(ep);
	soft_transmit(ep);
	soft_receive(ep);
	soft_check_hung_up(ep);
}
