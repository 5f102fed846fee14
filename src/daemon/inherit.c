/* inherit.c: sockets that listen before the daemon starts: the service manager made them, see sd_listen_fds(3). */
#include "daemon/daemon.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_FD 3

/* How many there are for this process, and for none that it may start. */
static uint64_t count_handed_down(void)
{
	const char *fds = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
	uint64_t count = 0, whose = 0;

	if (!fds || !pid || units_parse_number(pid, 1, INT32_MAX, &whose) != 0 || whose != (uint64_t)getpid() ||
	    units_parse_number(fds, 1, INT32_MAX - FIRST_FD, &count) != 0)
		count = 0;
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDNAMES");
	return count;
}

static int get_option(int fd, int option)
{
	socklen_t len = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

static bool is_listener(int fd)
{
	return get_option(fd, SO_TYPE) == SOCK_STREAM && get_option(fd, SO_ACCEPTCONN) == 1;
}

int inherited_open(struct daemon *d)
{
	uint64_t count = count_handed_down();

	for (int fd = FIRST_FD; (uint64_t)(fd - FIRST_FD) < count && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0; fd++) {
		if (is_listener(fd) && d->inherited.count < INHERITED_MAX &&
		    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0) {
			d->inherited.fd[d->inherited.count++] = fd;
			continue;
		}
		log_warn("rdmad",
			 "descriptor %d of the service manager is none of %d stream sockets that listen: in the "
			 "socket's unit there is ListenStream, and no Accept",
			 fd, INHERITED_MAX);
		close(fd);
	}
	return 0;
}

static bool is_at(int fd, const struct sockaddr *sa)
{
	struct sockaddr_storage own = {0};
	const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&own, *b = (const struct sockaddr_in6 *)sa;
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)&own, *b4 = (const struct sockaddr_in *)sa;
	const struct sockaddr_un *path = (const struct sockaddr_un *)&own;
	socklen_t len = sizeof(own) - 1; /* a path may come without its end */

	if (getsockname(fd, (struct sockaddr *)&own, &len) != 0 || own.ss_family != sa->sa_family)
		return false;
	switch (sa->sa_family) {
	case AF_INET:
		return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	case AF_INET6:
		return a->sin6_port == b->sin6_port && a->sin6_scope_id == b->sin6_scope_id &&
		       IN6_ARE_ADDR_EQUAL(&a->sin6_addr, &b->sin6_addr);
	case AF_UNIX:
		return *path->sun_path && strcmp(path->sun_path, ((const struct sockaddr_un *)sa)->sun_path) == 0;
	default:
		return false;
	}
}

int inherited_take(struct daemon *d, const struct sockaddr *sa)
{
	must(daemon_is_main(d));
	for (unsigned i = 0; i < d->inherited.count; i++) {
		int fd = d->inherited.fd[i];

		if (!is_at(fd, sa))
			continue;
		d->inherited.fd[i] = d->inherited.fd[--d->inherited.count];
		if (sa->sa_family == AF_UNIX)
			local_refuse_passing(fd);
		return fd;
	}
	return -1;
}

int inherited_settle(struct daemon *d)
{
	for (unsigned i = 0; i < d->inherited.count; i++) {
		struct sockaddr_storage own = {0};
		socklen_t len = sizeof(own) - 1;
		char text[128] = "?";

		if (getsockname(d->inherited.fd[i], (struct sockaddr *)&own, &len) == 0)
			address_format_socket((const struct sockaddr *)&own, text, sizeof(text));
		log_warn("rdmad",
			 "the service manager listens on %s, which no setting of rdmad.conf names: clients wait there "
			 "in vain; see SOCKETS OF THE SERVICE MANAGER in rdmad(8)",
			 text);
	}
	inherited_close(d);
	return 0;
}

void inherited_close(struct daemon *d)
{
	while (d->inherited.count > 0)
		close(d->inherited.fd[--d->inherited.count]);
}
