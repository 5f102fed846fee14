/* socket.c: streams of TCP and UNIX sockets. */
#include "stream/internal.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>

static ssize_t socket_receive(struct stream *s, void *to, size_t len)
{
	ssize_t n;

	do
		n = s->plain ? recv(s->fd, to, len, MSG_DONTWAIT) : local_recv(s->fd, to, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static ssize_t socket_send(struct stream *s, const struct iovec *iov, unsigned count, uint64_t pinned)
{
	struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = count};
	ssize_t n;

	(void)pinned; /* the kernel copies */
	do
		n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void socket_release(struct stream *s, const struct stream_piece *piece)
{
	(void)s;
	piece->release(piece->owner, piece->item);
}

static void nothing_to_do(struct stream *s)
{
	(void)s;
}

static bool socket_settled(struct stream *s)
{
	(void)s; /* the kernel sends what it took */
	return true;
}

void stream_socket_events(struct stream *s, uint32_t events)
{
	s->ended |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
	s->readable |= s->ended || events & EPOLLIN;
	s->writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
	stream_make_ready(s);
}

static void name_of(int fd, int (*ask)(int, struct sockaddr *, socklen_t *), char *out, size_t size)
{
	struct sockaddr_storage sa = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof(sa);

	*out = '\0';
	if (ask(fd, (struct sockaddr *)&sa, &len) == 0)
		address_format_socket((const struct sockaddr *)&sa, out, size);
}

static int ask_peer(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getpeername(fd, sa, len);
}

/* A client of a UNIX socket has no address as a rule, but a process. */
static void name_process(int fd, char *out, size_t size)
{
	struct ucred peer;

	if (local_peer(fd, &peer) == 0)
		snprintf(out, size, "unix:pid %d uid %u", (int)peer.pid, (unsigned)peer.uid);
	else
		name_of(fd, ask_peer, out, size);
}

static int ask_local(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getsockname(fd, sa, len);
}

static const char *socket_name(const struct stream *s)
{
	return s->from.sin6_family == AF_UNSPEC ? "unix" : "tcp";
}

static void socket_info(const struct stream *s, struct stream_info *out)
{
	if (s->from.sin6_family != AF_UNSPEC)
		address_format_socket((const struct sockaddr *)&s->from, out->peer, sizeof(out->peer));
	else
		name_process(s->fd, out->peer, sizeof(out->peer));
	name_of(s->fd, ask_local, out->local, sizeof(out->local));
}

static void socket_end(struct stream *s)
{
	epoll_ctl(s->group->epoll, EPOLL_CTL_DEL, s->fd, NULL); /* which local_close() may keep open for a while */
	local_close(s->fd);
	s->group->sockets--;
}

static const struct stream_transport transport = {
	.receive = socket_receive,
	.send = socket_send,
	.release = socket_release,
	.visited = nothing_to_do,
	.settled = socket_settled,
	.look = nothing_to_do,
	.name = socket_name,
	.info = socket_info,
	.end = socket_end,
};

/* Options that only make it faster, or notice that the other end has gone. */
static void set_options(int fd, int family, uint64_t keepalive)
{
	int on = 1, seconds = (int)MAX(keepalive / TIME_S, 1u), probes = 3;

	if (family == AF_UNIX)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!keepalive)
		return;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

int stream_socket_open(struct stream *s, const struct stream_open *open)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};
	int family = AF_UNIX;
	socklen_t len = sizeof(family);

	getsockopt(open->fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
	if (epoll_ctl(s->group->epoll, EPOLL_CTL_ADD, open->fd, &event) != 0) {
		int rc = -errno;

		local_close(open->fd);
		return rc;
	}
	s->transport = &transport;
	s->writable = true;
	len = sizeof(s->from);
	if (family != AF_UNIX) {
		s->from.sin6_family = (sa_family_t)family; /* a client that has left has no address any more */
		getpeername(open->fd, (struct sockaddr *)&s->from, &len);
	}
	s->plain = family != AF_UNIX || local_refuse_passing(open->fd);
	set_options(open->fd, family, s->group->attr.keepalive);
	s->group->sockets++;
	return 0;
}
