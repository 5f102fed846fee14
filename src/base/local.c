/* local.c: see base.h. */
#include "base/base.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define WAITING 1024 /* sockets that are to be closed; no more than LOCAL_CLOSING and what was accepted before */

/* Sockets with something unread, which is closed with them. */
static struct {
	pthread_mutex_t lock;
	bool running;
	unsigned count;
	int fd[WAITING];
} closing = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool local_refuse_passing(int fd)
{
	int off = 0;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;
}

ssize_t local_recv(int fd, void *bytes, size_t size)
{
	struct iovec iov = {bytes, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	int on = 1;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)); /* else a byte out of band is dropped unseen */
	n = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT);
	if (n <= 0)
		return n;
	if (m.msg_flags & MSG_CTRUNC) {
		errno = EPERM;
		return -1;
	}
	/* No more than was looked at: what has come meanwhile may have one. */
	return recv(fd, bytes, (size_t)n, MSG_DONTWAIT);
}

/* The oldest, which stays in its place until it is closed. */
static int closing_next(void)
{
	int fd;

	pthread_mutex_lock(&closing.lock);
	closing.running = closing.count;
	fd = closing.running ? closing.fd[0] : -1;
	pthread_mutex_unlock(&closing.lock);
	return fd;
}

static void closing_done(void)
{
	pthread_mutex_lock(&closing.lock);
	closing.count--;
	memmove(closing.fd, closing.fd + 1, closing.count * sizeof(*closing.fd));
	pthread_mutex_unlock(&closing.lock);
}

static void *closing_run(void *arg)
{
	for (int fd; (fd = closing_next()) >= 0; closing_done())
		close(fd);
	return arg;
}

/* False: it is the caller's to close. */
static bool closing_add(int fd)
{
	bool added;

	pthread_mutex_lock(&closing.lock);
	added = closing.count < WAITING;
	if (added)
		closing.fd[closing.count++] = fd;
	if (added && !closing.running) {
		pthread_t thread;

		closing.running = thread_start(&thread, "rdmad-close", closing_run, NULL) == 0;
		if (closing.running)
			pthread_detach(thread);
	}
	pthread_mutex_unlock(&closing.lock);
	return added;
}

bool local_closing_full(void)
{
	bool full;

	pthread_mutex_lock(&closing.lock);
	full = closing.count >= LOCAL_CLOSING;
	pthread_mutex_unlock(&closing.lock);
	return full;
}

void local_close(int fd)
{
	int domain = 0, unread = 0;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX) {
		shutdown(fd, SHUT_RDWR); /* nothing comes any more, and the sender hears so */
		if ((ioctl(fd, FIONREAD, &unread) != 0 || unread) && closing_add(fd))
			return;
	}
	close(fd);
}

/* The two ends of a TCP socket, its own first. */
struct ends {
	struct sockaddr_storage own, other;
};

static struct in6_addr number_of(const struct sockaddr_storage *sa)
{
	struct in6_addr number = {0};

	if (sa->ss_family == AF_INET)
		memcpy(&number, &((const struct sockaddr_in *)sa)->sin_addr, sizeof(struct in_addr));
	else
		number = ((const struct sockaddr_in6 *)sa)->sin6_addr;
	return number;
}

static bool ends_near(int fd, struct ends *ends)
{
	socklen_t own_len = sizeof(ends->own), other_len = sizeof(ends->other);
	struct in6_addr own, other;

	*ends = (struct ends){0};
	if (getsockname(fd, (struct sockaddr *)&ends->own, &own_len) != 0 ||
	    getpeername(fd, (struct sockaddr *)&ends->other, &other_len) != 0 || ends->own.ss_family == AF_UNIX)
		return false;
	own = number_of(&ends->own);
	other = number_of(&ends->other);
	return address_is_loopback((const struct sockaddr *)&ends->other) || IN6_ARE_ADDR_EQUAL(&own, &other);
}

bool local_is_near(int fd)
{
	struct ends ends;

	return ends_near(fd, &ends);
}

struct user_question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

/* The socket that is the other end. The ports of both families are at one place. */
static void user_ask(const struct ends *ends, struct user_question *out)
{
	struct in6_addr own = number_of(&ends->own), other = number_of(&ends->other);
	struct inet_diag_sockid *id = &out->body.id;

	*out = (struct user_question){
		.head = {.nlmsg_len = sizeof(*out), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = (uint8_t)ends->other.ss_family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = 1u << TCP_ESTABLISHED},
	};
	id->idiag_sport = ((const struct sockaddr_in *)&ends->other)->sin_port;
	id->idiag_dport = ((const struct sockaddr_in *)&ends->own)->sin_port;
	memcpy(id->idiag_src, &other, sizeof(other));
	memcpy(id->idiag_dst, &own, sizeof(own));
	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

int local_user(int fd, uid_t *uid)
{
	struct user_question question;
	struct {
		struct nlmsghdr head;
		struct inet_diag_msg body;
		uint8_t more[1024];
	} answer;
	struct ends ends;
	ssize_t n = -1;
	int diag;

	if (!ends_near(fd, &ends))
		return -ENOENT;
	diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
	if (diag < 0)
		return -errno;
	user_ask(&ends, &question);
	if (send(diag, &question, sizeof(question), 0) == (ssize_t)sizeof(question))
		n = recv(diag, &answer, sizeof(answer), 0);
	close(diag);
	if (n < (ssize_t)offsetof(typeof(answer), more) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return -ENOENT;
	/* One that its program has closed is nobody's, and would look as root's. */
	if (answer.body.idiag_state != TCP_ESTABLISHED || !answer.body.idiag_inode)
		return -ENOENT;
	*uid = answer.body.idiag_uid;
	return 0;
}
