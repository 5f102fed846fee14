/* facts.c: what this machine tells clients of itself that look for what is wrong: rdmactl doctor. Nothing secret. */
#include "daemon/daemon.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#define PORTS_MAX 16u
#define GENERAL_MAX 512u /* bytes of what is not of ports */

/* A line for each port: "port mlx5_0 1 state=active link=ethernet ...". Values have no blanks. */
void facts_look(struct daemon *d)
{
	char text[WIRE_FACTS_MAX - GENERAL_MAX], line[512];
	struct fabric_port port[PORTS_MAX];
	size_t used = 0;

	for (unsigned i = 0; i < d->fabrics; i++) {
		unsigned count = fabric_ports(d->fabric[i].fabric, port, PORTS_MAX);

		for (unsigned n = 0; n < count; n++) {
			struct fabric_port *p = &port[n];
			int len = snprintf(line, sizeof(line), "port %s %u state=%s", p->device, p->number,
					   !p->there   ? "away"
					   : p->active ? "active"
						       : "down");

			if (p->there)
				len += snprintf(line + len, sizeof(line) - (size_t)len,
						" link=%s roce_2=%d mtu=%u mtu_max=%u netdev=%s firmware=%s gids=",
						p->infiniband ? "infiniband" : "ethernet", p->roce_2, p->mtu,
						p->mtu_max, p->netdev, p->firmware);
			for (unsigned g = 0; g < p->gids; g++)
				len += snprintf(line + len, sizeof(line) - (size_t)len, "%s%s", g ? "," : "",
						p->gid[g]);
			line[len++] = '\n';
			if (used + (size_t)len > sizeof(text))
				break;
			memcpy(text + used, line, (size_t)len);
			used += (size_t)len;
		}
	}
	pthread_mutex_lock(&d->facts.lock);
	memcpy(d->facts.ports, text, used);
	d->facts.length = used;
	pthread_mutex_unlock(&d->facts.lock);
}

size_t facts_tell(void *arg, char out[static WIRE_FACTS_MAX])
{
	struct daemon *d = arg;
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
	struct timespec clock;
	size_t len;

	clock_gettime(CLOCK_REALTIME, &clock);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	len = (size_t)snprintf(out, GENERAL_MAX,
			       WIRE_FACTS_VERSION "version " PACKAGE_VERSION "\nclock_us %" PRIu64 "\n",
			       (uint64_t)clock.tv_sec * 1000000 + (uint64_t)clock.tv_nsec / 1000);
	/* Of root no limit holds. */
	if (geteuid() != 0 && limit.rlim_cur != RLIM_INFINITY)
		len += (size_t)snprintf(out + len, GENERAL_MAX - len, "memlock_bytes %" PRIu64 "\n",
					(uint64_t)limit.rlim_cur);
	len += (size_t)snprintf(out + len, GENERAL_MAX - len, "registered_bytes %" PRIu64 "\n",
				atomic_load(&d->facts.registered));
	pthread_mutex_lock(&d->facts.lock);
	memcpy(out + len, d->facts.ports, d->facts.length);
	len += d->facts.length;
	pthread_mutex_unlock(&d->facts.lock);
	return len;
}
