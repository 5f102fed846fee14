/* check.c: what a start would find of this machine, found without being in the way of a daemon that runs. */
#include "daemon/daemon.h"

#include <netinet/in.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

/* The first of what is wrong counts. */
static int first_fault(int rc, int status)
{
	return rc ? rc : status;
}

/* Bind to the address, and close it at once: 0 or -errno. A port that is in use is the running daemon's as a rule. */
static int try_address(const struct address_socket *at)
{
	const struct sockaddr *sa = (const struct sockaddr *)&at->sa;
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, rc = 0;
	char text[128];

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, sa, at->len) != 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	if (rc != -EADDRINUSE)
		return rc;
	log_info("rdmad", "tcp %s is in use now: no error if a running rdmad has it",
		 address_format_socket(sa, text, sizeof(text)));
	return 0;
}

/* Whether two sockets cannot both be bound. Ports that the system chooses never collide. */
static bool sockets_collide(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a, *b4 = (const struct sockaddr_in *)b;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a, *b6 = (const struct sockaddr_in6 *)b;

	/* the ports of both families are at one place */
	if (a->ss_family != b->ss_family || a4->sin_port != b4->sin_port || !a4->sin_port)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr || a4->sin_addr.s_addr == INADDR_ANY ||
		       b4->sin_addr.s_addr == INADDR_ANY;
	return (memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0 &&
		a6->sin6_scope_id == b6->sin6_scope_id) ||
	       IN6_IS_ADDR_UNSPECIFIED(&a6->sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&b6->sin6_addr);
}

/* Sockets of the addresses so far, which later ones would find in use. */
struct taken {
	struct {
		struct sockaddr_storage at;
		const char *setting;
	} socket[4 * SETTING_LIST_MAX * ADDRESS_SOCKETS];
	unsigned count;
	bool waits; /* an address is of a device that is not there */
};

/* 0 or an exit status. */
static int check_taken(struct taken *taken, const char *setting, const struct address_socket *at)
{
	const char *other;
	char text[128];

	for (unsigned i = 0; i < taken->count; i++) {
		if (!sockets_collide(&taken->socket[i].at, &at->sa))
			continue;
		other = taken->socket[i].setting;
		return log_fail(daemon_exit_status(-EADDRINUSE), "rdmad", "cannot listen on tcp %s: %s has it %s",
				address_format_socket((const struct sockaddr *)&at->sa, text, sizeof(text)), other,
				strcmp(other, setting) == 0 ? "twice" : "already");
	}
	if (taken->count < ARRAY_SIZE(taken->socket)) {
		taken->socket[taken->count].at = at->sa;
		taken->socket[taken->count++].setting = setting;
	}
	return 0;
}

/* Check an address for a transport that is not there. A device is waited for, by each address but the loopback's, which
 * none has. */
static int check_absent(const struct daemon *d, const struct fabric_transport *transport, const struct address *address,
			struct taken *taken)
{
	struct address_socket at[ADDRESS_SOCKETS];
	bool waits = false;
	int count;

	log_hush_begin();
	count = fabric_transport_resolve(transport, address, at);
	log_hush_end();
	for (int i = 0; i < count; i++)
		waits |= transport->device && !address_is_loopback((const struct sockaddr *)&at[i].sa);
	waits &= !d->config->require_rdma;
	taken->waits |= waits;
	if (!*address->scheme)
		return 0;
	if (!waits)
		return log_fail(EX_UNAVAILABLE, "rdmad", "cannot listen on %s %s: %s", transport->name, address->host,
				fabrics_reason(d, transport));
	log_warn("rdmad", "%s %s: %s, and nothing listens there until a device has this address (RD-5010)",
		 transport->name, address->host, fabrics_reason(d, transport));
	return 0;
}

/* Check an address for a transport. Which addresses a device has, only its start finds out. */
static int check_transport(struct daemon *d, const struct fabric_transport *transport, const struct address *address,
			   struct taken *taken)
{
	struct address_socket at[ADDRESS_SOCKETS];
	int count, bad = 0, rc = 0, twice = 0;
	char text[128];

	if (!fabric_transport_serves(transport, address) || !config_allows(d->config, transport))
		return 0;
	if (!fabrics_find(d, transport))
		return check_absent(d, transport, address, taken);
	count = fabric_transport_resolve(transport, address, at);
	if (count < 0)
		return EX_NOHOST;
	for (int i = 0; i < count; i++) {
		const struct sockaddr *sa = (const struct sockaddr *)&at[i].sa;
		int error;

		if (listen_is_exposed(sa) &&
		    !access_may_expose(d->config, d->access, address_format_socket(sa, text, sizeof(text))))
			return EX_CONFIG;
		if (transport->device)
			continue;
		error = try_address(&at[i]);
		bad += error != 0;
		if (error == 0)
			twice = first_fault(twice, check_taken(taken, "listen", &at[i]));
		else
			rc = first_fault(rc, log_fail(daemon_exit_status(error), "rdmad",
						      "cannot listen on %s %s: %s%s (RD-5001)", transport->name,
						      address_format_socket(sa, text, sizeof(text)), strerror(-error),
						      listen_advice(sa, error)));
	}
	return bad && bad == count ? rc : twice; /* of a name one address is enough */
}

static void parent_of(const char *path, char parent[static 256])
{
	const char *slash = strrchr(path, '/');

	snprintf(parent, 256, "%.*s", (int)MAX(slash - path, 1), path);
}

/* Check that a UNIX socket can be made. One that is there is an old one, or the running daemon's. */
static int check_socket(const char *what, const char *path)
{
	char parent[256];
	struct stat st;

	if (process_check_parent(path) != 0)
		return EX_CANTCREAT;
	parent_of(path, parent);
	if (access(parent, W_OK | X_OK) != 0 && errno != ENOENT)
		return log_fail(EX_NOPERM, "rdmad", "%s: cannot make %s: %m", what, path);
	if (lstat(path, &st) != 0 || S_ISSOCK(st.st_mode))
		return 0;
	return log_fail(EX_CANTCREAT, "rdmad", "%s: %s is there, and no socket: remove it, or name another path", what,
			path);
}

static int check_address(struct daemon *d, const char *text, struct taken *taken)
{
	struct address address;
	int rc = 0;

	if (config_listen_address(d->config, text, &address) != 0)
		return EX_CONFIG;
	if (address.path)
		return check_socket("listen", address.host);
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		rc = first_fault(rc, check_transport(d, &fabric_transports[i], &address, taken));
	return rc;
}

/* A setting with addresses that are TCP's alone. */
struct plain {
	struct daemon *daemon;
	struct taken *taken;
	const char *setting;
	bool keys; /* other machines may come only with them */
};

static int check_plain(void *arg, const struct address_socket *at)
{
	const struct sockaddr *sa = (const struct sockaddr *)&at->sa;
	const struct plain *plain = arg;
	char text[128];
	int rc;

	if (plain->keys && listen_is_exposed(sa) &&
	    !access_may_expose(plain->daemon->config, plain->daemon->access,
			       address_format_socket(sa, text, sizeof(text))))
		return EX_CONFIG;
	rc = try_address(at);
	return rc ? rc : check_taken(plain->taken, plain->setting, at);
}

/* Check where the clients of a service come whose connections are streams. */
static int check_door(struct daemon *d, const struct service *service, const struct service_door *door,
		      struct taken *taken)
{
	const char *name = wire_service_name(service->id);
	struct plain plain = {d, taken, name, true};
	char what[64];
	int rc = 0;

	for (unsigned i = 0; i < door->listen->count; i++)
		rc = first_fault(rc, listen_each(door->listen->item[i], door->port, name, check_plain, &plain));
	snprintf(what, sizeof(what), "%s.unix_socket", name);
	if (door->unix_socket)
		rc = first_fault(rc, check_socket(what, door->unix_socket));
	for (unsigned i = 0; i < door->rdma->count; i++)
		rc = first_fault(rc, streams_listen_rdma(d, service, door, door->rdma->item[i], true));
	return rc;
}

/* Check what listens beside `listen`. */
static int check_others(struct daemon *d, struct taken *taken)
{
	const struct setting_list *metrics = &d->config->metrics_listen;
	struct plain plain = {d, taken, "metrics.listen", false};
	int rc = 0;

	for (unsigned i = 0; i < metrics->count; i++)
		rc = first_fault(rc, listen_each(metrics->item[i], METRICS_PORT, "metrics", check_plain, &plain));
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		struct service_door door;
		const struct service *service = streams_door(d, id, &door);

		if (service)
			rc = first_fault(rc, check_door(d, service, &door, taken));
	}
	return rc;
}

/* Check that a file can be written, or made in its directory. */
static int check_writable(const char *what, const char *path)
{
	char parent[256];
	struct stat st;

	parent_of(path, parent);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (access(path, W_OK) == 0 || (errno == ENOENT && access(parent, W_OK | X_OK) == 0))
		return 0;
	return log_fail(EX_CANTCREAT, "rdmad", "%s: cannot write %s: %m", what, path);
}

static bool listens_on_path(const struct config *c)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		if (fabric_transports[i].path && config_allows(c, &fabric_transports[i]))
			return true;
	return false;
}

/* Check that anything listens, as far as can be told without a device. */
static int check_any(struct daemon *d, const struct taken *taken)
{
	struct address address;
	bool any = listens_on_path(d->config) || taken->waits;

	for (unsigned i = 0; i < d->config->listen.count; i++)
		for (unsigned k = 0; k < FABRIC_TRANSPORTS; k++)
			any |= config_listen_address(d->config, d->config->listen.item[i], &address) == 0 &&
			       fabric_transport_serves(&fabric_transports[k], &address) &&
			       config_allows(d->config, &fabric_transports[k]) &&
			       fabrics_find(d, &fabric_transports[k]);
	return any ? 0 : listeners_none();
}

static int check_files(const struct config *c)
{
	int rc = check_socket("control.socket", c->control_socket), bad = 0;

	if (listens_on_path(c))
		rc = first_fault(rc, check_socket("unix_socket", c->unix_socket));
	if (strncmp(c->log_target, "file:", 5) == 0)
		bad += check_writable("log.target", c->log_target + 5) != 0;
	if (c->pid_file)
		bad += check_writable("pid_file", c->pid_file) != 0;
	return rc || !bad ? rc : EX_CANTCREAT;
}

static int check_services(const struct daemon *d)
{
	int rc = 0;

	if (!d->config->services)
		log_warn("rdmad", "services is empty: no client is served");
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		if (service && service->check && daemon_serves(d, id))
			rc = first_fault(
				rc, daemon_exit_status(service->check(d->config->service[id], d->config->services)));
	}
	return rc;
}

int check_machine(struct daemon *d)
{
	struct taken taken = {.count = 0};
	int rc = fabrics_try(d);

	for (unsigned i = 0; i < FABRIC_TRANSPORTS && d->config->device; i++) /* no error: the daemon starts without */
		if (fabric_transports[i].device && config_allows(d->config, &fabric_transports[i]) &&
		    !fabrics_find(d, &fabric_transports[i]))
			log_warn("rdmad", "device is \"%s\", and there is no %s: %s", d->config->device,
				 fabric_transports[i].name, fabrics_reason(d, &fabric_transports[i]));
	for (unsigned i = 0; i < d->config->listen.count; i++)
		rc = first_fault(rc, check_address(d, d->config->listen.item[i], &taken));
	rc = first_fault(rc, check_others(d, &taken));
	rc = first_fault(rc, check_any(d, &taken));
	rc = first_fault(rc, check_files(d->config));
	rc = first_fault(rc, check_services(d));
	fabrics_close(d);
	return rc;
}
