/* check_rdma.c: modules, device files, ports, addresses, GIDs, rdma_cm, registration: D01 to D08, D10, D11, D13. */
#include "ctl/doctor/doctor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#define FRAME_HEADERS 60u /* of IP, UDP, InfiniBand: a frame of 1500 has a packet of 1024 */

#define SYS "/sys/class/infiniband/"

/* The first network interface that could have a Soft-RoCE device, "" if there is none. Returns buf. */
static const char *any_netdev(struct doctor *d, char *buf, size_t size)
{
	char *names = look_names(&d->look, "/sys/class/net");

	*buf = '\0';
	look_each(name, names)
	{
		if (strcmp(name, "lo") != 0) {
			snprintf(buf, size, "%s", name);
			break;
		}
	}
	free(names);
	return buf;
}

/* A part of the kernel that is built in has no place in /sys/module; what it makes is there. */
void check_modules(struct doctor *d)
{
	static const struct {
		const char *name, *made;
	} modules[] = {
		{"ib_core", "/sys/class/infiniband"},
		{"ib_uverbs", "/sys/class/infiniband_verbs"},
		{"rdma_cm", "/sys/class/misc/rdma_cm"},
		{"rdma_ucm", "/sys/class/misc/rdma_cm"},
	};
	char missing[128] = "", netdev[64];

	for (size_t i = 0; i < ARRAY_SIZE(modules); i++)
		if (!look_there(&d->look, "/sys/module/%s", modules[i].name) &&
		    !look_there(&d->look, "%s", modules[i].made))
			snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s%s",
				 *missing ? " " : "", modules[i].name);
	if (*missing)
		finding_add(d, 101, NAMES("MODULES", missing), "missing %s", missing);
	if (!d->ports)
		finding_add(d, 102, NAMES("IF", any_netdev(d, netdev, sizeof(netdev))),
			    "/sys/class/infiniband has none");
}

/* Try to open a device file; below a root it is only looked for. */
static void try_node(struct doctor *d, const char *path)
{
	const struct passwd *user = getpwuid(geteuid());
	int fd;

	if (!look_there(&d->look, "%s", path)) {
		finding_add(d, 201, NULL, "%s", path);
		return;
	}
	if (!d->live)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		close(fd);
	else if (errno == EACCES)
		finding_add(d, 202, NAMES("USER", user ? user->pw_name : "", "FILE", path), "%s, as user %u: %s", path,
			    (unsigned)geteuid(), strerror(errno));
	else
		finding_add(d, 203, NULL, "%s: %s", path, strerror(errno));
}

/* The files of what the kernel has. */
void check_nodes(struct doctor *d)
{
	char *names = look_names(&d->look, "/sys/class/infiniband_verbs"), path[128];

	look_each(name, names)
	{
		if (strncmp(name, "uverbs", 6) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%.64s", name);
		try_node(d, path);
	}
	if (d->ports || look_there(&d->look, "/sys/class/misc/rdma_cm"))
		try_node(d, "/dev/infiniband/rdma_cm");
	free(names);
}

void check_provider(struct doctor *d)
{
	char *known = d->ports ? verbs_names() : NULL;

	for (unsigned i = 0; i < d->ports; i++) {
		bool found = false;

		look_each(name, known) found |= strcmp(name, d->port[i].device) == 0;
		if (!found && port_is_first(d, i))
			finding_add(d, 301, NULL, "%s", d->port[i].device);
	}
	free(known);
}

void check_state(struct doctor *d)
{
	for (unsigned i = 0; i < d->ports; i++) {
		const struct port *p = &d->port[i];
		char state[64], physical[64], number[16];
		unsigned fault;

		snprintf(number, sizeof(number), "%u", p->number);
		look_line(&d->look, state, sizeof(state), SYS "%s/ports/%u/state", p->device, p->number);
		look_line(&d->look, physical, sizeof(physical), SYS "%s/ports/%u/phys_state", p->device, p->number);
		if (strstr(state, "ACTIVE"))
			continue;
		if (p->ethernet)
			fault = 401;
		else
			fault = strstr(state, "INIT") || strstr(state, "ARMED") ? 402 : 403;
		finding_add(d, fault, NAMES("IF", p->netdev, "DEV", p->device, "PORT", number),
			    "%s port %u, state %s, physical state %s, interface %s", p->device, p->number, state,
			    physical, *p->netdev ? p->netdev : "unknown");
	}
}

/* "16.0 GT/s PCIe" is 16.0. */
static double link_value(struct look *look, const char *device, const char *name)
{
	char text[64];

	look_line(look, text, sizeof(text), SYS "%s/device/%s", device, name);
	return strtod(text, NULL);
}

static void check_slot(struct doctor *d, const struct port *p)
{
	double speed = link_value(&d->look, p->device, "current_link_speed"),
	       best = link_value(&d->look, p->device, "max_link_speed"),
	       width = link_value(&d->look, p->device, "current_link_width"),
	       widest = link_value(&d->look, p->device, "max_link_width");
	char *uevent = look_text(&d->look, SYS "%s/device/uevent", p->device);
	const char *at = uevent ? strstr(uevent, "PCI_SLOT_NAME=") : NULL;
	char address[32];

	snprintf(address, sizeof(address), "%.*s", at ? (int)strcspn(at + 14, "\n") : 0, at ? at + 14 : "");
	if ((speed > 0 && speed < best) || (width > 0 && width < widest))
		finding_add(d, 501, NAMES("ADDRESS", address), "%s: %.1f GT/s x%.0f, and could %.1f GT/s x%.0f",
			    p->device, speed, width, best, widest);
	free(uevent);
}

void check_rate(struct doctor *d)
{
	char rate[64];

	for (unsigned i = 0; i < d->ports; i++) {
		const struct port *p = &d->port[i];

		if (port_is_first(d, i))
			check_slot(d, p);
		look_line(&d->look, rate, sizeof(rate), SYS "%s/ports/%u/rate", p->device, p->number);
		if (!p->ethernet && strstr(rate, "(1X"))
			finding_add(d, 502, NAMES("DEV", p->device), "%s port %u: %s", p->device, p->number, rate);
	}
}

/* Whether an item of listen is for RDMA, and means this address. */
static bool listens_on(const struct doctor *d, const char *item, const struct local_address *address)
{
	struct address_socket at[ADDRESS_SOCKETS];
	struct address parsed;
	char text[INET6_ADDRSTRLEN];
	int n;

	if (address_parse(item, &parsed) != 0 || parsed.path ||
	    (*parsed.scheme && strcmp(parsed.scheme, scheme_rdma) != 0))
		return false;
	if (strcmp(parsed.host, "*") == 0 || strcmp(parsed.host, address->text) == 0 ||
	    strcmp(parsed.host, address->sa.ss_family == AF_INET ? "0.0.0.0" : "::") == 0)
		return true;
	n = d->live ? address_resolve(&parsed, at) : 0;
	for (int i = 0; i < n; i++) {
		const struct sockaddr *sa = (const struct sockaddr *)&at[i].sa;
		const void *in = sa->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)sa)->sin_addr
							  : &((const struct sockaddr_in6 *)sa)->sin6_addr;

		if (strcmp(inet_ntop(sa->sa_family, in, text, sizeof(text)), address->text) == 0)
			return true;
	}
	return false;
}

static bool is_link_local(const struct local_address *a)
{
	return a->sa.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)&a->sa)->sin6_addr);
}

static bool port_has_address(const struct doctor *d, const struct port *p)
{
	for (unsigned i = 0; i < d->addresses; i++)
		if (strcmp(d->address[i].netdev, p->netdev) == 0 && !is_link_local(&d->address[i]))
			return true;
	return false;
}

/* One address that RDMA has and that rdmad listens on is enough. */
static void check_listened(struct doctor *d)
{
	char listen[1024], items[1024], *next = items, *item;
	const struct local_address *candidate = NULL;

	if (!d->wants_rdma || !config_value(d, "listen", listen, sizeof(listen)))
		return;
	snprintf(items, sizeof(items), "%s", listen);
	while ((item = strsep(&next, ", "))) {
		for (unsigned i = 0; i < d->addresses && *item; i++) {
			if (!address_is_rdma(d, &d->address[i]) || is_link_local(&d->address[i]))
				continue;
			candidate = candidate ? candidate : &d->address[i];
			if (listens_on(d, item, &d->address[i]))
				return;
		}
	}
	if (candidate)
		finding_add(d, 601, NAMES("FILE", config_file(d), "UNIT", d->unit, "ADDRESS", candidate->text),
			    "listen has %s; RDMA has %s by %s", listen, candidate->text, candidate->netdev);
}

/* Where a listener of the daemon is to be again: the address itself, or of all addresses the first that RDMA has. NULL:
 * it is not there. */
static const struct local_address *find_waited(const struct doctor *d, const char *host)
{
	bool all = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;

	for (unsigned i = 0; i < d->addresses; i++)
		if (all ? address_is_rdma(d, &d->address[i]) : strcmp(host, d->address[i].text) == 0)
			return &d->address[i];
	return NULL;
}

/* An address on which the daemon is to listen by RDMA, and does not; "" is all of RDMA. */
static void check_missing(struct doctor *d, const char *text, const char *reason)
{
	const struct local_address *at;
	struct address address;
	char netdev[64];

	if (!*text) { /* without a device this is no more than RD-0102 */
		if (d->ports)
			finding_add(d, 605, NAMES("UNIT", d->unit), "the daemon goes without RDMA: %s", reason);
		return;
	}
	if (address_parse(text, &address) != 0)
		return;
	at = find_waited(d, address.host);
	if (at && address_is_rdma(d, at)) {
		finding_add(d, 605, NAMES("UNIT", d->unit), "%s, of %s: %s", text, at->netdev, reason);
	} else if (at || !d->ports) {
		if (at)
			snprintf(netdev, sizeof(netdev), "%s", at->netdev);
		else
			any_netdev(d, netdev, sizeof(netdev));
		finding_add(d, 604, NAMES("IF", netdev), "%s, of %s: %s", text, at ? netdev : "no interface", reason);
	} else {
		finding_add(d, 603, NAMES("ADDRESS", address.host, "IF", d->port[0].netdev), "%s: %s", text, reason);
	}
}

/* What a running daemon waits for. An address that others transports serve as well may be without a device for good. */
static void check_waiting(struct doctor *d)
{
	const char *transport, *address, *reason;
	size_t i;
	json_t *missing;
	int waits;

	json_array_foreach(json_object_get(d->status, "missing"), i, missing)
	{
		if (json_unpack(missing, "{s:s, s:s, s:s, s:b}", "transport", &transport, "address", &address, "reason",
				&reason, "waits", &waits) == 0 &&
		    strcmp(transport, scheme_rdma) == 0 && (waits || !*address))
			check_missing(d, address, reason);
	}
}

void check_listen(struct doctor *d)
{
	for (unsigned i = 0; i < d->ports; i++)
		if (*d->port[i].netdev && !port_has_address(d, &d->port[i]))
			finding_add(d, 602, NAMES("IF", d->port[i].netdev), "%s of %s port %u", d->port[i].netdev,
				    d->port[i].device, d->port[i].number);
	check_listened(d);
	check_waiting(d);
}

/* Tables may have holes: an entry that is not in use cannot be read, or is zeros. */
void check_gids(struct doctor *d)
{
	for (unsigned i = 0; i < d->ports; i++) {
		const struct port *p = &d->port[i];
		char gid[64], type[32], number[16];
		unsigned all = 0, two = 0, far = 0;
		char *names = p->ethernet ? look_names(&d->look, SYS "%s/ports/%u/gids", p->device, p->number) : NULL;

		look_each(name, names)
		{
			look_line(&d->look, gid, sizeof(gid), SYS "%s/ports/%u/gids/%s", p->device, p->number, name);
			if (strspn(gid, "0:") == strlen(gid))
				continue;
			all++;
			look_line(&d->look, type, sizeof(type), SYS "%s/ports/%u/gid_attrs/types/%s", p->device,
				  p->number, name);
			if (strcmp(type, "RoCE v2") != 0)
				continue;
			two++;
			far += strncmp(gid, "fe80:", 5) != 0;
		}
		snprintf(number, sizeof(number), "%u", p->number);
		if (names && !two)
			finding_add(d, 701, NAMES("DEV", p->device, "PORT", number, "IF", p->netdev),
				    "%s port %u: entries %u, of RoCE v2 none", p->device, p->number, all);
		else if (names && !far)
			finding_add(d, 702, NAMES("IF", p->netdev),
				    "%s port %u: entries of RoCE v2 %u, all fe80::", p->device, p->number, two);
		free(names);
	}
}

void check_self(struct doctor *d)
{
	for (unsigned i = 0; i < d->addresses; i++) {
		const struct local_address *a = &d->address[i];
		const struct sockaddr *sa = (const struct sockaddr *)&a->sa;
		enum cm_stage stage;
		struct cm_way way;
		int error;

		if (!address_is_rdma(d, a) || is_link_local(a))
			continue;
		stage = verbs_resolve(sa, sa, 2000, &error, &way);
		if (error)
			finding_add(d, 801, NAMES("ADDRESS", a->text), "%s of %s: %s fails: %s", a->text, a->netdev,
				    cm_stage_name((enum cm_stage)(stage + 1)), strerror(-error));
	}
}

void check_namespace(struct doctor *d)
{
	char shared[16];

	look_line(&d->look, shared, sizeof(shared), "/sys/module/ib_core/parameters/netns_mode");
	if (*shared == 'N' && !d->ports)
		finding_add(d, 1001, NULL, "rdma system: exclusive, and no device is seen here");
}

unsigned port_mtu(struct doctor *d, const struct port *port)
{
	unsigned bytes = 4096;
	uint64_t mtu;

	if (d->live)
		return verbs_mtu(port->device, port->number);
	if (!port->ethernet || !look_number(&d->look, &mtu, "/sys/class/net/%s/mtu", port->netdev))
		return 0;
	while (bytes > 256 && bytes + FRAME_HEADERS > mtu)
		bytes /= 2;
	return bytes;
}

void check_mtu(struct doctor *d)
{
	for (unsigned i = 0; i < d->ports; i++) {
		const struct port *p = &d->port[i];
		unsigned active = d->live ? verbs_mtu(p->device, p->number) : 0;
		uint64_t mtu;

		if (!p->ethernet || !look_number(&d->look, &mtu, "/sys/class/net/%s/mtu", p->netdev))
			continue;
		if (active && active > mtu)
			finding_add(d, 1102, NAMES("IF", p->netdev), "%s port %u sends %u bytes, %s takes %llu",
				    p->device, p->number, active, p->netdev, (unsigned long long)mtu);
		else if (mtu < 4200)
			finding_add(d, 1101, NAMES("IF", p->netdev), "%s of %s port %u has an MTU of %llu", p->netdev,
				    p->device, p->number, (unsigned long long)mtu);
	}
}

void check_register(struct doctor *d)
{
	static const size_t sizes[] = {1 * MIB, 64 * MIB};

	for (unsigned i = 0; i < d->ports; i++) {
		const char *step = "";
		int rc = 0;

		if (!port_is_first(d, i))
			continue;
		/* As much as a store has only where one of this user's is to be. */
		for (size_t k = 0; k < (daemon_is_ours(d) ? ARRAY_SIZE(sizes) : 1) && rc == 0; k++) {
			rc = verbs_register(d->port[i].device, sizes[k], &step);
			if (rc != 0)
				finding_add(d, 1301, NULL, "%s, %zu MiB: %s: %s", d->port[i].device,
					    (size_t)(sizes[k] / MIB), step, strerror(-rc));
		}
	}
}
