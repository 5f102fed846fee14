/*
 * connect.c: listeners, requests, and the connecting side up to its CONNECT.
 */
#include "fabric/soft/soft.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SOFT_BACKLOG 4096
#define SOFT_ACCEPTS 16 /* of one listener in one turn */
#define SOFT_UNPACED "reno"

static bool soft_family_known(const struct sockaddr *sa, socklen_t len)
{
	switch (sa->sa_family) {
	case AF_INET:
		return len >= sizeof(struct sockaddr_in);
	case AF_INET6:
		return len >= sizeof(struct sockaddr_in6);
	case AF_UNIX:
		return len > offsetof(struct sockaddr_un, sun_path) && len <= sizeof(struct sockaddr_un);
	}
	return false;
}

/*
 * Nothing is to be paced on the loopback, and a congestion control that paces (bbr) sets a timer for each segment,
 * which costs more than to copy it. So the plainest one is chosen there. A socket that has begun to pace never leaves
 * it off, so the choice precedes the connection: a listener's is for all its peers, and those from elsewhere get the
 * system's back.
 */
static void soft_congestion(int fd, const char *name)
{
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name));
}

/* Accepted sockets have their listener's. */
static void soft_traffic_class(const struct soft_queue *q, int fd, int family)
{
	int tos = q->fabric->traffic_class;

	if (tos && family == AF_INET)
		setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	else if (tos && family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
}

static int soft_listen_inet(struct soft_listener *l, const struct sockaddr *sa, socklen_t len)
{
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, rc;
	struct sockaddr_storage ss = {0};
	socklen_t ss_len = sizeof(ss), name_len = sizeof(l->congestion) - 1;

	if (fd < 0)
		return -errno;
	soft_traffic_class(l->queue, fd, sa->sa_family);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, sa, len) != 0)
		goto close_socket;
	/* The ports of both families are at one place. */
	if (getsockname(fd, (struct sockaddr *)&ss, &ss_len) == 0)
		l->port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, l->congestion, &name_len) == 0)
		soft_congestion(fd, SOFT_UNPACED);
	if (listen(fd, SOFT_BACKLOG) == 0)
		return fd;

close_socket:
	rc = -errno;
	close(fd);
	return rc;
}

int soft_listen(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		struct fabric_listener **out)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);
	struct soft_listener *l;
	char name[160];
	int rc, fd;

	if (!soft_family_known(sa, len))
		return -EAFNOSUPPORT;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->base.ops = queue->ops;
	l->source.kind = SOFT_LISTENER;
	l->queue = q;
	l->context = context;
	if (sa->sa_family == AF_UNIX)
		fd = local_listen((const struct sockaddr_un *)sa, len, SOCK_STREAM, LOCAL_UMASK, &l->file);
	else
		fd = soft_listen_inet(l, sa, len);
	l->source.fd = fd;
	rc = fd == -EEXIST ? -EADDRINUSE : MIN(fd, 0);
	if (rc == 0)
		rc = soft_watch(q, &l->source, EPOLLIN, true);
	if (rc != 0) {
		log_error("soft", "cannot listen on %s: %s", address_format_socket(sa, name, sizeof(name)),
			  strerror(-rc));
		local_file_remove(&l->file);
		if (fd >= 0)
			close(fd);
		free(l);
		return rc;
	}
	list_add_tail(&q->listeners, &l->source.link);
	*out = &l->base;
	return 0;
}

uint16_t soft_listener_port(const struct fabric_listener *listener)
{
	return container_of(listener, const struct soft_listener, base)->port;
}

void soft_listener_close(struct fabric_listener *listener)
{
	struct soft_listener *l = container_of(listener, struct soft_listener, base);

	soft_requests_drop(l->queue, l);
	list_del(&l->source.link);
	local_file_remove(&l->file);
	soft_source_close(l->queue, &l->source);
	soft_settle(l->queue);
	free(l);
}

/* Out of the queue's hands, its socket and memory too. */
static void soft_request_drop(struct soft_queue *q, struct soft_request *r)
{
	list_del(&r->source.link);
	if (list_linked(&r->note.link))
		list_del(&r->note.link);
	pending_remove(&q->asking, &r->asking);
	q->request_count--;
	soft_bury_later(q, &r->source);
}

void soft_requests_drop(struct soft_queue *q, const struct soft_listener *listener)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->requests) {
		struct soft_request *r = container_of(pos, struct soft_request, source.link);

		if (!listener || r->listener == listener)
			soft_request_drop(q, r);
	}
}

static void soft_request_overdue(struct pending_entry *entry, enum pending_reason reason)
{
	struct soft_request *r = container_of(entry, struct soft_request, asking);

	soft_complain(&r->peer, reason == PENDING_LATE ? "connected and did not ask in time"
						       : "too many peers connect without asking");
	soft_request_drop(r->queue, r);
}

/* Requests that wait to be pulled have places, too, so the limit is looked at where one comes. */
const struct pending_attr soft_requests_asking = {
	.limit = SOFT_MAX_REQUESTS,
	.stay = SOFT_DEADLINE,
	.drop = soft_request_overdue,
};

static void soft_request_create(struct soft_listener *l, int fd, const struct sockaddr_storage *peer)
{
	struct soft_queue *q = l->queue;
	struct soft_request *r = calloc(1, sizeof(*r));
	struct ucred cred;

	if (!r) {
		local_close(fd);
		return;
	}
	if (!address_is_loopback((const struct sockaddr *)peer))
		soft_congestion(fd, l->congestion);
	r->base.ops = l->base.ops;
	r->source = (struct soft_source){.kind = SOFT_REQUEST, .fd = fd};
	r->queue = q;
	r->listener = l;
	r->peer.address = *peer;
	if (peer->ss_family == AF_UNIX && local_peer(fd, &cred) == 0) {
		r->peer.asked = r->peer.local = true;
		r->peer.pid = cred.pid;
		r->peer.uid = cred.uid;
	}
	if (soft_watch(q, &r->source, EPOLLIN | EPOLLRDHUP, true)) {
		local_close(fd);
		free(r);
		return;
	}
	list_add_tail(&q->requests, &r->source.link);
	q->request_count++;
	pending_add(&q->asking, &r->asking, time_now());
	soft_timer_want(q, SOFT_TICK_MS);
	soft_request_run(q, &r->source, 0); /* mostly it is there already */
}

/* Pause until the timer fires. */
static void soft_listener_pause(struct soft_listener *l)
{
	l->paused = true;
	soft_watch(l->queue, &l->source, 0, false);
	soft_timer_want(l->queue, SOFT_TICK_MS);
}

/* No descriptors: give up the reserve to get the peer off the backlog, or else the
 * listener would be readable for ever. */
static void soft_accept_starved(struct soft_listener *l, int error)
{
	struct soft_queue *q = l->queue;
	int fd;

	log_error("soft", "cannot take a connection: %s", strerror(error));
	if (q->reserve_fd >= 0)
		close(q->reserve_fd);
	fd = accept4(l->source.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		local_close(fd);
	q->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || q->reserve_fd < 0)
		soft_listener_pause(l);
}

void soft_listener_run(struct soft_queue *q, struct soft_source *source, uint32_t events)
{
	struct soft_listener *l = container_of(source, struct soft_listener, source);

	if (l->file.path[0] && local_closing_full()) {
		soft_listener_pause(l);
		return;
	}
	for (int i = 0; i < SOFT_ACCEPTS; i++) {
		bool full = q->request_count >= SOFT_MAX_REQUESTS;
		struct sockaddr_storage peer = {0};
		socklen_t len = sizeof(peer);
		int fd;

		if (full && !q->asking.count)
			return;
		fd = accept4(source->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			if (full)
				pending_make_room(&q->asking, time_now());
			soft_request_create(l, fd, &peer);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			soft_accept_starved(l, errno);
			return;
		} else if (errno == EAGAIN) {
			return;
		}
		/* Any other error is that of one connection, which failed before it was taken: see accept(2). */
	}
}

static int soft_greet_passing(int fd, enum soft_op op, uint32_t key, uint32_t arg, const void *data, size_t data_len,
			      int pass)
{
	uint8_t buf[SOFT_HEADER + FABRIC_ACCEPT_DATA];
	struct soft_frame f = {.op = op, .len = data_len, .addr = SOFT_MAGIC, .key = key, .arg = arg};
	ssize_t n;

	soft_frame_encode(buf, &f);
	if (data_len)
		memcpy(buf + SOFT_HEADER, data, data_len);
	n = local_pass(fd, NULL, 0, buf, SOFT_HEADER + data_len, &pass, pass >= 0);
	if (n < 0)
		return -errno;
	return n == (ssize_t)(SOFT_HEADER + data_len) ? 0 : -EIO;
}

int soft_greet(int fd, enum soft_op op, uint32_t key, uint32_t arg, const void *data, size_t data_len)
{
	return soft_greet_passing(fd, op, key, arg, data, data_len, -1);
}

/* NULL, or what is wrong with what came so far. */
static const char *soft_request_fault(struct soft_request *r)
{
	struct soft_frame f;

	if (r->have && r->buf[0] != SOFT_CONNECT)
		return "not a connect request";
	if (r->have < SOFT_HEADER)
		return NULL;
	soft_frame_decode(r->buf, &f);
	if (f.addr != SOFT_MAGIC || f.flags || f.arg)
		return "not a connect request";
	if ((f.key & 0xffff) != SOFT_VERSION) {
		soft_greet(r->source.fd, SOFT_REJECT, soft_greeting_key(SOFT_VERSION, 0, 0), SOFT_REASON_VERSION, NULL,
			   0);
		return "speaks another version of the soft transport";
	}
	if (f.len > FABRIC_REQUEST_DATA)
		return "private data too long";
	if (r->have > SOFT_HEADER + f.len)
		return "sent more than its connect request";
	if (r->have == SOFT_HEADER + f.len) {
		pending_remove(&r->queue->asking, &r->asking);
		r->reads_out = f.key >> 16;
		r->reads_in = f.key >> 24;
		r->data_len = f.len;
	}
	return NULL;
}

void soft_request_run(struct soft_queue *q, struct soft_source *source, uint32_t events)
{
	struct soft_request *r = container_of(source, struct soft_request, source);
	ssize_t n = local_recv(r->source.fd, r->buf + r->have, sizeof(r->buf) - r->have);
	const char *fault;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 && errno == EPERM) {
		/* Clients once passed the memory of their rings: a refusal that they understand. */
		soft_greet(r->source.fd, SOFT_REJECT, soft_greeting_key(SOFT_VERSION, 0, 0), SOFT_REASON_VERSION, NULL,
			   0);
		soft_complain(&r->peer, "passed a descriptor, which nobody takes here");
	}
	if (n <= 0) {
		soft_request_drop(q, r);
		return;
	}
	r->have += n;
	fault = soft_request_fault(r);
	if (fault) {
		soft_complain(&r->peer, fault);
		soft_request_drop(q, r);
	} else if (!pending_has(&r->asking)) {
		r->peer.local = r->peer.asked || local_user(source->fd, &r->peer.uid) == 0;
		/* Another thread may take the socket, so nothing here may know it any more. */
		epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
		soft_note_post(q, &r->note, FABRIC_REQUEST, r);
	}
}

bool soft_connect_tick(struct soft_queue *q, uint64_t now)
{
	struct list *pos, *tmp;

	while (pending_turn(&q->asking, now) == PENDING_TURN)
		;
	list_for_each_safe (pos, tmp, &q->listeners) {
		struct soft_listener *l = container_of(pos, struct soft_listener, source.link);

		if (l->paused)
			soft_watch(q, &l->source, EPOLLIN, false);
		l->paused = false;
	}
	return q->asking.count;
}

char *soft_request_peer(const struct fabric_request *request, char *buf, size_t size)
{
	const struct soft_request *r = container_of(request, const struct soft_request, base);

	return soft_peer_format(&r->peer, buf, size);
}

void soft_request_source(const struct fabric_request *request, struct fabric_source *out)
{
	soft_peer_source(&container_of(request, const struct soft_request, base)->peer, out);
}

static void soft_request_refuse(struct soft_request *r, enum soft_reason reason, const void *data, size_t data_len)
{
	soft_greet(r->source.fd, SOFT_REJECT, soft_greeting_key(SOFT_VERSION, 0, 0), reason, data, data_len);
	local_close(r->source.fd);
	free(r);
}

void soft_reject(struct fabric_request *request, const void *data, size_t data_len)
{
	soft_request_refuse(container_of(request, struct soft_request, base), SOFT_REASON_CALLER, data, data_len);
}

int soft_take(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
	      const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);
	struct soft_domain *d = container_of(domain, struct soft_domain, base);
	struct soft_request *r = container_of(request, struct soft_request, base);
	struct soft_endpoint *ep;
	int rc = soft_endpoint_create(q, d, attr, &ep);

	if (rc != 0) {
		soft_request_refuse(r, SOFT_REASON_RESOURCES, attr->refusal, attr->refusal_len);
		return rc;
	}
	soft_set_state(ep, SOFT_TAKEN);
	soft_endpoint_adopt(ep, r->source.fd, &r->peer);
	if (ep->reads_out && r->reads_in)
		ep->reads_out = MIN(ep->reads_out, r->reads_in);
	free(r);
	*out = &ep->base;
	return 0;
}

int soft_accept(struct fabric_endpoint *endpoint, const void *data, size_t data_len)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);
	struct soft_queue *q = ep->queue;
	uint32_t key = soft_greeting_key(SOFT_VERSION, ep->reads_wanted, ep->reads_in), arg;
	int rc, memory = -1;

	if (ep->state != SOFT_TAKEN)
		return -EINVAL;
	arg = soft_share_offer(ep, &memory) ? SOFT_ACCEPT_SHARE : 0;
	rc = soft_greet_passing(ep->source.fd, SOFT_ACCEPT, key, arg, data, data_len, memory);
	if (memory >= 0)
		close(memory);
	/* This user has too many descriptors under way, or the client takes none. */
	if (memory >= 0 && (rc == -ETOOMANYREFS || rc == -EPERM)) {
		soft_share_forget(ep);
		rc = soft_greet(ep->source.fd, SOFT_ACCEPT, key, 0, data, data_len);
	}
	if (rc == 0)
		rc = soft_watch(q, &ep->source, 0, true);
	if (rc != 0) {
		soft_fail(ep, &(struct soft_cause){.error = rc});
	} else {
		soft_near_more(q);
		soft_endpoint_opened(ep);
	}
	soft_settle(q);
	return 0;
}

static void soft_unreachable(struct soft_endpoint *ep, int error)
{
	soft_fail(ep, &(struct soft_cause){.error = error, .event = FABRIC_UNREACHABLE});
}

void soft_connect_run(struct soft_endpoint *ep)
{
	int error = 0, rc;
	socklen_t len = sizeof(error);

	if (getsockopt(ep->source.fd, SOL_SOCKET, SO_ERROR, &error, &len) || error) {
		soft_unreachable(ep, -error);
		return;
	}
	rc = soft_greet(ep->source.fd, SOFT_CONNECT, soft_greeting_key(SOFT_VERSION, ep->reads_wanted, ep->reads_in), 0,
			ep->data, ep->data_len);
	ep->data_len = 0;
	if (rc != 0) {
		soft_unreachable(ep, rc);
		return;
	}
	soft_set_state(ep, SOFT_ASKING);
	ep->queue->connecting--;
	soft_near_more(ep->queue);
	soft_watch(ep->queue, &ep->source, EPOLLIN | EPOLLRDHUP | EPOLLET, false);
}

int soft_connect(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa, socklen_t len,
		 const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		 struct fabric_endpoint **out)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);
	struct soft_domain *d = container_of(domain, struct soft_domain, base);
	struct soft_peer peer = {.asked = false};
	struct soft_endpoint *ep;
	int rc, fd;

	if (!soft_family_known(sa, len))
		return -EAFNOSUPPORT;
	memcpy(&peer.address, sa, len);
	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	soft_traffic_class(q, fd, sa->sa_family);
	if (address_is_loopback(sa))
		soft_congestion(fd, SOFT_UNPACED);
	rc = soft_endpoint_create(q, d, attr, &ep);
	if (rc != 0) {
		close(fd);
		return rc;
	}
	soft_endpoint_adopt(ep, fd, &peer);
	q->connecting++;
	ep->data_len = data_len;
	if (data_len)
		memcpy(ep->data, data, data_len);
	/* From that address, if it is of the family. */
	if (attr->from && attr->from->sa_family == sa->sa_family && sa->sa_family != AF_UNIX)
		rc = bind(fd, attr->from, len);
	if (rc == 0)
		rc = connect(fd, sa, len);
	if (rc != 0 && errno != EINPROGRESS)
		soft_unreachable(ep, -errno);
	else if (soft_watch(q, &ep->source, EPOLLOUT, true))
		soft_unreachable(ep, -errno);
	soft_settle(q);
	*out = &ep->base;
	return 0;
}
