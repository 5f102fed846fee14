/* notify.c: the service manager's readiness protocol and watchdog: datagrams to the socket that it names. */
#include "daemon/daemon.h"

#include <stdlib.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

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

static void worker_lives(struct worker_message *m)
{
	struct daemon *d = m->arg;

	d->watchdog.unanswered--;
	free(m);
}

/* False: not every worker could be asked. */
static bool ask_workers(struct daemon *d)
{
	for (unsigned i = 0; i < d->workers; i++) {
		struct worker_message *m = calloc(1, sizeof(*m));

		if (!m)
			return false;
		m->verb = WORKER_ALIVE;
		m->done = worker_lives;
		m->arg = d;
		if (!worker_send(d->worker[i], m)) {
			free(m);
			return false;
		}
		d->watchdog.unanswered++;
	}
	return true;
}

/* Tell the service manager that the daemon lives, if each worker and this thread still turn. */
static void watchdog_tick(void *arg)
{
	struct daemon *d = arg;

	if (d->watchdog.unanswered == 0 && ask_workers(d))
		notify_send("WATCHDOG=1");
	loop_set_timer(d->watchdog.timer, d->watchdog.interval);
}

int notify_watchdog_start(struct daemon *d)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t period;

	if (!usec || units_parse_number(usec, 1, UINT64_MAX / TIME_US, &period) != 0)
		return 0;
	if (pid && strtoull(pid, NULL, 10) != (unsigned long long)getpid())
		return 0;
	d->watchdog.interval = period * TIME_US / 4;
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
