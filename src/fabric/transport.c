/* transport.c: the table of transports, and which of them an address means. */
#include "fabric/provider.h"

#define ROW(name_, provider_, ...) {.name = name_, .provider = &fabric_##provider_, __VA_ARGS__},

const struct fabric_transport fabric_transports[FABRIC_TRANSPORTS] = {FABRIC_TRANSPORT_ROWS(ROW)};

const char *fabric_transport_name(unsigned i)
{
	return i < FABRIC_TRANSPORTS ? fabric_transports[i].name : NULL;
}

const struct fabric_transport *fabric_transport_find(const char *name)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		if (strcmp(fabric_transports[i].name, name) == 0)
			return &fabric_transports[i];
	return NULL;
}

const char *fabric_transport_provider(const struct fabric_transport *transport)
{
	return transport->provider->name;
}

bool fabric_transport_serves(const struct fabric_transport *transport, const struct address *address)
{
	return *address->scheme ? strcmp(transport->name, address->scheme) == 0 : transport->plain;
}

const struct fabric_transport *fabric_transport_of(const struct address *address)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		if (fabric_transport_serves(&fabric_transports[i], address))
			return &fabric_transports[i];
	return NULL;
}

int fabric_transport_resolve(const struct fabric_transport *transport, const struct address *address,
			     struct address_socket out[static ADDRESS_SOCKETS])
{
	const struct fabric_provider *provider = transport->provider;
	int count = provider->resolve ? provider->resolve(address, out) : address_resolve(address, out);

	for (int i = 0; i < count; i++)
		out[i].memory = !*address->scheme || transport->path;
	return count;
}

/* "rdma://host[:port], tcp://host[:port] or unix:///path" */
static char *write_forms(char *buf, size_t size)
{
	size_t n = 0;

	for (unsigned i = 0; i < FABRIC_TRANSPORTS && n < size; i++) {
		const struct fabric_transport *t = &fabric_transports[i];
		const char *before = i == 0 ? "" : t->path ? " or " : ", ";

		if (t->inside)
			continue;
		n += (size_t)snprintf(buf + n, size - n, "%s%s://%s", before, t->name,
				      t->path ? "/path" : "host[:port]");
	}
	return buf;
}

int fabric_address_parse(const char *text, struct address *out)
{
	const struct fabric_transport *transport;
	struct address parsed;
	char all[256];
	int rc = address_parse(text, &parsed);

	if (rc != 0)
		return rc;
	transport = fabric_transport_find(parsed.scheme);
	if (transport && transport->inside)
		transport = NULL;
	if (!*parsed.scheme || (transport && transport->path == parsed.path)) {
		*out = parsed;
		return 0;
	}
	log_error("address", "\"%.200s\" is not an address: %s; write host[:port], %s", text,
		  transport ? "what follows the scheme has another form" : "there is no such scheme",
		  write_forms(all, sizeof(all)));
	return -EINVAL;
}
