/* address.c: by which addresses others reach a context. */
#include "peer/connect.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#define ADDRESSES 4 /* of one context */

struct addresses {
	const struct peer_connections *connections;
	unsigned count;
	char *out;
	size_t size, length;
	bool full;
};

static void addresses_text(struct addresses *a, const char *text)
{
	int n = snprintf(a->out + a->length, a->size - a->length, "%s%s", a->length ? " " : "", text);

	if ((size_t)n >= a->size - a->length) {
		a->out[a->length] = '\0';
		a->full = true;
		return;
	}
	a->length += (size_t)n;
	a->count++;
}

/* With the scheme that this context listens by, and its port; each once. */
static void addresses_add(struct addresses *a, const struct sockaddr *sa)
{
	const struct address *at = &a->connections->at;
	char host[INET6_ADDRSTRLEN], url[128];
	bool v6 = sa->sa_family == AF_INET6;
	const void *bytes = v6 ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr
			       : (const void *)&((const struct sockaddr_in *)sa)->sin_addr;

	if (!inet_ntop(sa->sa_family, bytes, host, sizeof(host)))
		return;
	snprintf(url, sizeof(url), "%s%s%s%s%s:%u", at->scheme, *at->scheme ? "://" : "", v6 ? "[" : "", host,
		 v6 ? "]" : "", at->port);
	if (!strstr(a->out, url) && a->count < ADDRESSES)
		addresses_text(a, url);
}

/* Of an interface that others may reach. Of IPv6 those without a zone, and only where the context listens on all of it. */
static bool is_open(const struct ifaddrs *i, int family)
{
	if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP))
		return false;
	return family == AF_INET ||
	       !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

static void addresses_of_machine(struct addresses *a, int family)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) != 0)
		return;
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		if (is_open(i, family) && !address_is_loopback(i->ifa_addr))
			addresses_add(a, i->ifa_addr);
	for (struct ifaddrs *i = all; i && !a->count; i = i->ifa_next)
		if (is_open(i, family))
			addresses_add(a, i->ifa_addr);
	freeifaddrs(all);
}

/* The end here of the connection with `peer` comes first: it is known to lead here. */
static void addresses_of_all(struct addresses *a, const struct peer *peer, int family)
{
	struct sockaddr_storage local;

	if (peer && peer->conn && fabric_endpoint_local(conn_endpoint(peer->conn), &local) == 0 &&
	    local.ss_family == family && !address_is_loopback((struct sockaddr *)&local))
		addresses_add(a, (struct sockaddr *)&local);
	addresses_of_machine(a, family);
}

int peer_addresses(rdma_context *ctx, const struct peer *peer, char *out, size_t size)
{
	struct addresses a = {.connections = ctx->connections, .out = out, .size = size};
	const struct address *at = &ctx->connections->at;
	struct address_socket sockets[ADDRESS_SOCKETS];
	int n;

	must(ctx->listening && size);
	*out = '\0';
	if (at->path)
		addresses_text(&a, ctx->connections->url);
	n = at->path ? 0 : address_resolve(at, sockets);
	for (int i = 0; i < n; i++) {
		const struct sockaddr *sa = (const struct sockaddr *)&sockets[i].sa;

		if (address_is_unspecified(sa))
			addresses_of_all(&a, peer, sa->sa_family);
		else
			addresses_add(&a, sa);
	}
	if (a.full)
		return -ENOSPC;
	return a.count ? (int)a.length : -EADDRNOTAVAIL;
}
