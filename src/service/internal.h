/* internal.h: the rows. A line here is a service of this build. */
#ifndef RDMAD_SERVICE_INTERNAL_H
#define RDMAD_SERVICE_INTERNAL_H

#include "service/service.h"
#include "store/store.h"

#define SERVICES(SERVICE)                                                                                              \
	SERVICE(WIRE_PING, service_ping)                                                                               \
	SERVICE(WIRE_KV, service_kv)                                                                                   \
	SERVICE(WIRE_GPU, service_gpu)                                                                                 \
	SERVICE(WIRE_CHANNEL, service_channel)                                                                         \
	SERVICE(WIRE_PEER, service_peer)                                                                               \
	SERVICE(WIRE_RESP, service_resp)                                                                               \
	SERVICE(WIRE_MEMCACHED, service_memcached)

#define SERVICE(id, row) extern const struct service row;
SERVICES(SERVICE)
#undef SERVICE

/* Warns of a connection, with its peer and transport. */
static inline void service_warn(const char *room, const struct conn *conn, const char *why)
{
	struct conn_info info;

	conn_get_info(conn, &info);
	log_warn(room, "%s (%s): %s", info.peer, info.transport, why);
}

/*
 * watch.c: changed keys. Zeros at first. Its thread.
 */
struct service_watch {
	struct store *store;
	struct store_watcher watcher;
	unsigned count; /* of events in this turn, which ends by time */
	uint64_t end;
	bool on;
};

/* Begins, or ends, to hear of changes; the part is active meanwhile. `fd`: an eventfd by which the thread is woken. 0,
 * or -ENOMEM: it did not begin. */
int service_watch_set(struct service_watch *watch, struct service_part *part, struct store *store, int fd, bool wanted);
/* False: there is none now, or the turn took long enough: the next call begins another. */
bool service_watch_next(struct service_watch *watch, struct store_event *out);
/* For the part's hooks of these names. */
bool service_watch_arm(struct service_watch *watch);
void service_watch_disarm(struct service_watch *watch);

#endif
