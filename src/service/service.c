/* service.c: the table of services, and what the process has of them. */
#include "service/internal.h"

#define SERVICE(id, row) [id] = &(row),
static const struct service *const services[WIRE_SERVICES] = {SERVICES(SERVICE)};
#undef SERVICE

const struct service *service_find(unsigned id)
{
	return id < WIRE_SERVICES ? services[id] : NULL;
}

unsigned service_worker_of_name(const struct wire_request *request)
{
	return MAX(request->count, 1u);
}

int service_shared_open(struct service_shared *shared, const struct service_host *host, uint64_t wanted,
			void *const settings[WIRE_SERVICES])
{
	struct service_host with = *host;
	int rc = 0;

	*shared = (struct service_shared){.open = 0};
	with.shared = shared;
	for (unsigned id = 0; id < WIRE_SERVICES && rc >= 0; id++) {
		if (!services[id] || (services[id]->open && !services[id]->always && !(wanted & 1ull << id)))
			continue;
		rc = services[id]->open ? services[id]->open(&with, settings[id], &shared->of[id]) : 0;
		if (rc == 0)
			shared->open |= 1ull << id;
	}
	if (rc < 0)
		service_shared_close(shared);
	return MIN(rc, 0);
}

void service_shared_close(struct service_shared *shared)
{
	for (unsigned id = WIRE_SERVICES; id-- > 0;)
		if (service_is_open(shared, id) && services[id]->close)
			services[id]->close(shared->of[id]);
	*shared = (struct service_shared){.open = 0};
}

uint64_t service_shared_tick(struct service_shared *shared, uint64_t now)
{
	uint64_t next = TIME_NEVER;

	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (service_is_open(shared, id) && services[id]->tick)
			next = MIN(next, services[id]->tick(shared->of[id], now));
	return next;
}

int service_shared_reload(struct service_shared *shared, const char **changed)
{
	int rc = 0;

	*changed = NULL;
	for (unsigned id = 0; id < WIRE_SERVICES && rc == 0 && !*changed; id++)
		if (service_is_open(shared, id) && services[id]->reload)
			rc = services[id]->reload(shared->of[id], changed);
	return rc;
}

int service_shared_command(struct service_shared *shared, const char *word)
{
	int rc = -ENOENT;

	for (unsigned id = 0; id < WIRE_SERVICES && rc == -ENOENT; id++)
		if (service_is_open(shared, id) && services[id]->command)
			rc = services[id]->command(shared->of[id], word);
	return rc;
}
