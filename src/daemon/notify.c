/* notify.c: the service manager's readiness protocol: datagrams to the socket that it names. */
#include "daemon/daemon.h"

#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

static int address_of(const char *path, struct sockaddr_un *sun, socklen_t *len)
{
	size_t n = strlen(path);

	*sun = (struct sockaddr_un){.sun_family = AF_UNIX};
	if ((path[0] != '/' && path[0] != '@') || n < 2 || n >= sizeof(sun->sun_path))
		return -EINVAL;
	memcpy(sun->sun_path, path, n);
	if (path[0] == '@')
		sun->sun_path[0] = '\0'; /* the abstract name space */
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	return 0;
}

void notify_send(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sun;
	socklen_t len;
	int fd;

	if (!path || !*path)
		return;
	if (address_of(path, &sun, &len) != 0) {
		log_warn("notify", "NOTIFY_SOCKET %s is not a socket's path", path);
		return;
	}
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&sun, len) < 0)
		log_warn("notify", "cannot tell the service manager %s: %m", state);
	if (fd >= 0)
		close(fd);
}
