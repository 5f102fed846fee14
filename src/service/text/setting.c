/* setting.c: what the settings and passwords of such services have in common. */
#include "service/text/text.h"

int text_offered(const struct text_settings *s, bool kv, const char *name)
{
	if (!s->listen.count && !s->unix_socket && !s->rdma.count)
		return SERVICE_NOT_OFFERED;
	if (kv)
		return 0;
	return log_fail(
		-EINVAL, name,
		"%s has addresses for clients whose keys are those of kv: add \"kv\" to services, or take \"%s\" out",
		name, name);
}

bool text_check_rdma(const char *text, char *why, size_t size)
{
	struct address address;
	bool valid = setting_check_address(fabric_address_parse, text, &address, why, size);

	if (!valid || !address.path)
		return valid;
	snprintf(why, size, "\"%s\" is the path of a UNIX socket, by which no such client comes", text);
	return false;
}

static const struct fabric_transport *transport_of(const char *text)
{
	struct address address;

	return fabric_address_parse(text, &address) == 0 ? fabric_transport_of(&address) : NULL;
}

int text_check(const void *values, uint64_t services, const char *name)
{
	const struct text_settings *s = values;

	for (unsigned i = 1; i < s->rdma.count; i++)
		if (transport_of(s->rdma.item[i]) != transport_of(s->rdma.item[0]))
			return log_fail(-EINVAL, name,
					"%s.rdma has addresses of two transports, %s and %s: take one out", name,
					s->rdma.item[0], s->rdma.item[i]);
	return MIN(text_offered(s, services & 1ull << WIRE_KV, name), 0);
}

unsigned text_descriptors(const void *values)
{
	const struct text_settings *s = values;

	return ADDRESS_SOCKETS * s->listen.count + (s->unix_socket ? 1 : 0);
}

void text_door(const void *values, struct service_door *out)
{
	const struct text_settings *s = values;

	*out = (struct service_door){.listen = &s->listen,
				     .port = s->port,
				     .unix_socket = s->unix_socket,
				     .unix_mode = s->unix_mode,
				     .rdma = &s->rdma,
				     .rdma_window = s->rdma_window,
				     .rdma_memory = s->rdma_memory};
}

unsigned text_tcp_port(const struct text_settings *s)
{
	struct address address = {.port_given = false};

	if (!s->listen.count || address_parse(s->listen.item[0], &address) != 0)
		return 0;
	return address.port_given ? address.port : (unsigned)s->port;
}

bool text_takes_password(const struct text_settings *s, int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return s->clear || (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
			    (peer.ss_family == AF_UNIX || address_is_loopback((struct sockaddr *)&peer)));
}
