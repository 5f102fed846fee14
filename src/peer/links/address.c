/* address.c: by which addresses others reach a context. */
#include "peer/links/connect.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

struct addresses {
	const struct peer_connections *connections;
	unsigned count;
	char *out;
	size_t size, length;
	bool full;
};

static bool addresses_have(const struct addresses *a, const char *url)
{
	const char *at = a->out;

	while ((at = strstr(at, url)) && at > a->out && at[-1] != ' ')
		at++;
	return at;
}

/* Each once; those for which there is no room are left out. */
static void addresses_text(struct addresses *a, const char *text)
{
	int n;

	if (addresses_have(a, text))
		return;
	n = snprintf(a->out + a->length, a->size - a->length, "%s%s", a->length ? " " : "", text);
	if ((size_t)n >= a->size - a->length) {
		a->out[a->length] = '\0';
		a->full = true;
		return;
	}
	a->length += (size_t)n;
	a->count++;
}

/* With the scheme that this context listens by, and its port. */
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
	addresses_text(a, url);
}

/* The order in which others try them. Bridges are those of containers as a rule: others reach no program by their
 * addresses, or another machine that has the same. The loopback is told where there is nothing else. */
enum address_reach { REACH_NETWORK, REACH_BRIDGE, REACH_LOOPBACK };

static enum address_reach reach_of(const struct ifaddrs *i)
{
	char path[64 + IFNAMSIZ];

	snprintf(path, sizeof(path), "/sys/class/net/%s/bridge", i->ifa_name);
	if (address_is_loopback(i->ifa_addr))
		return REACH_LOOPBACK;
	return access(path, F_OK) == 0 ? REACH_BRIDGE : REACH_NETWORK;
}

/* An interface that others may reach; of IPv6 addresses without a zone. */
static bool is_open(const struct ifaddrs *i, bool v4, bool v6)
{
	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
		return false;
	if (i->ifa_addr->sa_family == AF_INET)
		return v4;
	return i->ifa_addr->sa_family == AF_INET6 && v6 &&
	       !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

static void addresses_of_machine(struct addresses *a, bool v4, bool v6)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) != 0)
		return;
	for (enum address_reach reach = REACH_NETWORK; reach < REACH_LOOPBACK || (reach == REACH_LOOPBACK && !a->count);
	     reach++)
		for (struct ifaddrs *i = all; i; i = i->ifa_next)
			if (is_open(i, v4, v6) && reach_of(i) == reach)
				addresses_add(a, i->ifa_addr);
	freeifaddrs(all);
}

int peer_addresses(rdma_context *ctx, const struct conn *via, char *out, size_t size)
{
	struct addresses a = {.connections = ctx->connections, .out = out, .size = size};
	const struct doors *doors = &ctx->connections->doors;
	struct sockaddr_storage local;
	bool v4 = false, v6 = false;

	must(ctx->listening && size);
	*out = '\0';
	if (ctx->connections->at.path)
		addresses_text(&a, ctx->connections->url);
	for (unsigned i = 0; i < doors->count && !ctx->connections->at.path; i++)
		for (unsigned k = 0; k < doors->door[i].listeners; k++) {
			const struct sockaddr *sa = (const struct sockaddr *)&doors->door[i].at[k].sa;
			bool all = address_is_unspecified(sa);

			if (!all)
				addresses_add(&a, sa);
			v4 |= all && sa->sa_family == AF_INET;
			v6 |= all && sa->sa_family != AF_INET;
		}
	/* The end here of the connection `via` comes first: it is known to lead here. */
	if (via && (v4 || v6) && fabric_endpoint_local(conn_endpoint(via), &local) == 0 &&
	    ((v4 && local.ss_family == AF_INET) || (v6 && local.ss_family == AF_INET6)) &&
	    !address_is_loopback((struct sockaddr *)&local))
		addresses_add(&a, (struct sockaddr *)&local);
	if (v4 || v6)
		addresses_of_machine(&a, v4, v6);
	if (a.count)
		return (int)a.length;
	return a.full ? -ENOSPC : -EADDRNOTAVAIL;
}
