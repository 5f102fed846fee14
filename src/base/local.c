/* local.c: UNIX sockets to which strangers connect. */
#include "base/base.h"

#include <stdio.h>
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
