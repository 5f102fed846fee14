/* notify.c: the service manager's readiness protocol and watchdog: datagrams to the socket that it names. */
#include "daemon/daemon.h"

#include <stdlib.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#define LOOK_INTERVAL (10 * TIME_S) /* where no service manager asks */

static int notify_address(const char *path, struct sockaddr_un *sun, socklen_t *len)
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
	if (notify_address(path, &sun, &len) != 0) {
		log_warn("notify", "NOTIFY_SOCKET %s is not a socket's path", path);
		return;
	}
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&sun, len) < 0)
		log_warn("notify", "cannot tell the service manager %s: %m", state);
	if (fd >= 0)
		close(fd);
}

/* Tell the service manager that the daemon lives, if each worker and this thread still turn. */
static void watchdog_tick(void *arg)
{
	struct daemon *d = arg;
	uint64_t now = time_now();

	if (workers_turned(d, d->watchdog.looked, now) && d->watchdog.asked)
		notify_send("WATCHDOG=1");
	d->watchdog.looked = now;
	loop_set_timer(d->watchdog.timer, d->watchdog.interval);
}

/* In ns; 0: nothing asks this process for it. */
static uint64_t watchdog_period(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t period;

	if (!usec || units_parse_number(usec, 1, UINT64_MAX / TIME_US, &period) != 0)
		return 0;
	if (pid && strtoull(pid, NULL, 10) != (unsigned long long)getpid())
		return 0;
	return period * TIME_US;
}

int notify_watchdog_start(struct daemon *d)
{
	uint64_t period = watchdog_period();

	d->watchdog.asked = period;
	d->watchdog.interval = period ? period / 4 : LOOK_INTERVAL;
	d->watchdog.timer = loop_add_timer(d->loop, watchdog_tick, d);
	if (!d->watchdog.timer)
		return EX_OSERR;
	watchdog_tick(d);
	return 0;
}

void notify_watchdog_stop(struct daemon *d)
{
	loop_remove(d->watchdog.timer);
	d->watchdog.timer = NULL;
}
