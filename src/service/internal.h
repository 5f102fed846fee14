/* internal.h: the rows. A line here is a service of this build. */
#ifndef RDMAD_SERVICE_INTERNAL_H
#define RDMAD_SERVICE_INTERNAL_H

#include "service/service.h"

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

#endif
