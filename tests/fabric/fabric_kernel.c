/* fabric_kernel.c: see fabric_kernel.h. */
#include "tests/fabric/fabric_kernel.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct kernel kernel;

static bool fails(struct kernel_fault *fault)
{
	if (!fault->times)
		return false;
	fault->times--;
	errno = fault->error;
	return true;
}

static ssize_t counted(ssize_t n)
{
	if (n > 0)
		kernel.bytes += (uint64_t)n;
	return n;
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
	return fails(&kernel.send) ? -1 : counted(sendto(fd, bytes, len, flags, NULL, 0));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return fails(&kernel.send) ? -1 : counted(syscall(SYS_sendmsg, fd, message, flags));
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
	kernel.reads++;
	return counted(recvfrom(fd, bytes, len, flags, NULL, NULL));
}

ssize_t readv(int fd, const struct iovec *iov, int count)
{
	return counted(syscall(SYS_readv, fd, iov, count));
}

int accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
	return fails(&kernel.accept) ? -1 : (int)syscall(SYS_accept4, fd, sa, len, flags);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
	int n = epoll_pwait(fd, events, most, timeout, NULL);

	kernel.epolls++;
	kernel.told += n > 0 ? (unsigned)n : 0;
	return n;
}
