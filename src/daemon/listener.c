/* listener.c: listens, looks at requests, hands them to the worker with the fewest connections. */
#include "daemon/daemon.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define LISTENERS_BUDGET 64 /* requests before the loop looks at all else */
#define PLACES_KEPT 16u     /* connections, see listeners_places() ... */
#define PLACES_PART 32      /* ... and no more than this part of all */

/* Count one connection more of its source. */
enum wire_reason listeners_count(struct daemon *d, const struct fabric_source *of, uint64_t *detail,
				 struct quota_share **source)
{
	uint64_t most = config_max_per_source(d->config);
	unsigned met = quota_take(d->sources, fabric_source_key(of), most, source);

	*detail = met & QUOTA_SOURCE ? most : 0;
	return !met ? WIRE_REASON_NONE : met & QUOTA_SOURCE ? WIRE_REASON_SOURCE : WIRE_REASON_RESOURCES;
}

/* How many connections there may be before this source is refused. The last few are kept for users of this machine, and
 * of those the half for root and the daemon's own user, so that no client keeps out the operator. */
uint64_t listeners_places(const struct daemon *d, const struct fabric_source *of)
{
	uint64_t all = d->config->max_connections, kept = MIN(all / PLACES_PART, PLACES_KEPT);

	if (of->family != AF_UNIX)
		return all - kept;
	return of->id[0] == 0 || of->id[0] == geteuid() ? all : all - kept / 2;
}

/* What a request may not be told by the wire alone. */
enum wire_reason listeners_admit(struct daemon *d, unsigned service, uint64_t places, uint64_t *detail)
{
	if (d->draining)
		return WIRE_REASON_DRAINING;
	*detail = service;
	if (!(d->config->services & (1ull << service)))
		return WIRE_REASON_SERVICE;
	*detail = places;
	if (workers_load(d) >= places && !workers_oldest(d, time_now()))
		return WIRE_REASON_CONNECTIONS;
	return WIRE_REASON_NONE;
}

static uint64_t refusal_detail(enum wire_reason reason, const struct wire_request *request)
{
	switch (reason) {
	case WIRE_REASON_VERSION:
		return WIRE_VERSION;
	case WIRE_REASON_SERVICE:
		return request->service;
	case WIRE_REASON_MESSAGE_SIZE:
		return request->message_size < WIRE_MESSAGE_MIN ? WIRE_MESSAGE_MIN : WIRE_MESSAGE_MAX;
	case WIRE_REASON_CREDITS:
		return WIRE_CREDITS_MIN;
	default:
		return 0;
	}
}

/* A client that names a key which is not known goes on to its proof, at which it fails. */
static enum wire_reason listener_authorize(struct daemon *d, const struct wire_request *request,
					   const struct fabric_source *of, uint64_t *detail, struct auth_admission *out)
{
	*detail = request->service;
	if (!auth_admit(d->access, request->key_id, of->family == AF_UNIX, (uid_t)of->id[0], out))
		return WIRE_REASON_KEY;
	if (auth_may_use(out, request->service))
		return WIRE_REASON_NONE;
	return WIRE_REASON_RIGHTS;
}

/* The worker that is to have it. *instead: only in the place of a connection that gives way, which is a worker's
 * own. */
static struct worker *listener_choose(const struct daemon *d, const struct wire_request *request, uint64_t places,
				      bool *instead)
{
	const struct service *service = service_find(request->service);
	unsigned number = service->worker ? service->worker(request) : 0;
	bool full = workers_load(d) >= places;
	struct worker *oldest = full ? workers_oldest(d, time_now()) : NULL;

	*instead = oldest;
	if (number)
		return workers_of_number(d, number);
	return oldest ? oldest : workers_least(d);
}

static void listener_hand_over(struct listener *l, struct fabric_request *fabric_request,
			       const struct wire_request *request, uint64_t places, struct quota_share *source,
			       const struct auth_admission *admission)
{
	struct daemon *d = l->daemon;
	bool instead;
	struct worker *worker = listener_choose(d, request, places, &instead);
	struct worker_message *message = calloc(1, sizeof(*message));

	if (message) {
		message->verb = WORKER_CONNECTION;
		message->connection.places = places;
		message->connection.instead = instead;
		message->connection.service = service_find(request->service);
		message->connection.group = l->fabric;
		message->connection.fabric_request = fabric_request;
		message->connection.request = *request;
		message->connection.source = source;
		message->connection.admission = *admission;
		if (worker_send(worker, message))
			return;
		free(message);
	}
	auth_admission_end((struct auth_admission[]){*admission});
	quota_give(source);
	d->refused[WIRE_REASON_RESOURCES]++;
	conn_refuse(fabric_request, WIRE_REASON_RESOURCES, 0);
}

static void listener_requested(struct listener *l, const struct fabric_event *event)
{
	struct wire_request request;
	enum wire_reason reason = wire_request_decode(&request, event->data, event->data_len);
	uint64_t detail = refusal_detail(reason, &request), places;
	struct quota_share *source = NULL;
	struct auth_admission admission = {0};
	struct fabric_source of;

	/* Valkey's clients send no private data; a device may fill it up, so its length says nothing. */
	if (l->stream && !wire_request_is_ours(event->data, event->data_len)) {
		streams_requested(l->daemon, l->stream, event->request);
		return;
	}
	if (reason == WIRE_REASON_NONE && !l->native) {
		reason = WIRE_REASON_SERVICE;
		detail = request.service;
	}
	fabric_request_source(event->request, &of);
	places = listeners_places(l->daemon, &of);
	if (reason == WIRE_REASON_NONE)
		reason = listeners_admit(l->daemon, request.service, places, &detail);
	if (reason == WIRE_REASON_NONE)
		reason = listener_authorize(l->daemon, &request, &of, &detail, &admission);
	if (reason == WIRE_REASON_NONE) {
		detail = admission.client->connections;
		reason = auth_has_place(admission.client) ? listeners_count(l->daemon, &of, &detail, &source)
							  : WIRE_REASON_SOURCE;
	}
	if (reason == WIRE_REASON_NONE) {
		listener_hand_over(l, event->request, &request, places, source, &admission);
		return;
	}
	auth_admission_end(&admission);
	l->daemon->refused[reason]++;
	conn_refuse(event->request, reason, detail);
}

static void listener_lost(struct listener *l, const char *why)
{
	log_error("rdmad", "%s %s: %s, and nothing listens there until it is back (RD-5008)", l->transport->name,
		  l->address, why);
	fabrics_add_missing(l->daemon, l->transport, l->address, why, true);
	fabric_listener_close(l->handle);
	l->handle = NULL;
}

/* At most so many events. */
static int listeners_turn(struct daemon_fabric *f, int most)
{
	struct fabric_completion completion;
	struct fabric_event event;
	int n = MAX(fabric_poll(f->queue, &completion, 1), 0);

	while (n < most && fabric_next_event(f->queue, &event)) {
		struct listener *l = event.context;

		n++;
		if (event.type == FABRIC_REQUEST)
			listener_requested(l, &event);
		if (event.type != FABRIC_REMOVED || !l)
			continue;
		listener_lost(l, event.error == -ENODEV ? "the device was removed" : "the address was removed");
	}
	return n;
}

/* Until nothing comes any more, then armed, and once again: only then may the loop sleep. Where more and more comes,
 * the loop has its turn with signals, timers and the control socket before this goes on. */
void listeners_progress(void *arg)
{
	struct daemon_fabric *f = arg;

	for (int left = LISTENERS_BUDGET, n; left > 0; left -= n) {
		n = listeners_turn(f, left);
		if (n > 0)
			continue;
		fabric_arm(f->queue);
		n = listeners_turn(f, left);
		if (n == 0)
			return;
	}
	loop_set_timer(f->more, 0);
}

static int listeners_watch(struct daemon *d, struct daemon_fabric *f)
{
	int fds[FABRIC_MAX_FDS], n = fabric_fds(f->queue, fds);

	f->more = loop_add_timer(d->loop, listeners_progress, f);
	if (!f->more)
		return EX_OSERR;
	for (int i = 0; i < n; i++) {
		f->watch[f->watches] = loop_add_fd(d->loop, fds[i], LOOP_READ, listeners_progress, f);
		if (!f->watch[f->watches])
			return EX_OSERR;
		f->watches++;
	}
	return 0;
}

bool listen_is_exposed(const struct sockaddr *sa)
{
	return sa->sa_family != AF_UNIX && !address_is_loopback(sa);
}

/* Whether a failure is one, only the caller can say. */
static int listener_start(struct listener *l)
{
	struct sockaddr *sa = (struct sockaddr *)&l->at;
	int rc;

	log_hush_begin();
	rc = fabric_listen(l->daemon->fabric[l->fabric].queue, sa, l->len, l, &l->handle);
	log_hush_end();
	if (rc != 0 || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return rc;
	/* the ports of both families are at one place */
	((struct sockaddr_in *)sa)->sin_port = htons(fabric_listener_port(l->handle));
	address_format_socket(sa, l->address, sizeof(l->address));
	return 0;
}

/* For people: why nothing listens there. */
static char *device_reason(const struct fabric_transport *transport, int error, char *reason, size_t size)
{
	char has[128];

	fabrics_rdma_addresses(has, sizeof(has));
	if (error == -EADDRNOTAVAIL)
		snprintf(reason, size, "no %s device has this address%s%s", transport->text, *has ? "; they have " : "",
			 has);
	else
		snprintf(reason, size, "%s", strerror(-error));
	return reason;
}

static void listener_tell(struct listener *l)
{
	log_info("rdmad", "listening on %s %s%s%s%s", l->transport->name, l->address, l->native ? "" : " for ",
		 l->native ? "" : wire_service_name(l->stream->id), l->told ? " again" : "");
	/* Without keys the network is all that decides which clients may come. */
	if (!l->told && l->exposed && !auth_table_asks(l->daemon->access))
		log_warn("rdmad",
			 "nothing asks clients of %s %s for keys: each host that reaches it may do all that is served; "
			 "see SECURITY CONSIDERATIONS in rdmad(8)",
			 l->transport->name, l->address);
	l->told = true;
}

/* Until the first device has come that is missing, not each address. */
static void listener_waits(struct listener *l, int error)
{
	char reason[256];

	if (atomic_load(&l->daemon->fabric[l->fabric].devices))
		fabrics_add_missing(l->daemon, l->transport, l->address,
				    device_reason(l->transport, error, reason, sizeof(reason)), l->only || l->told);
}

void listeners_tick(struct daemon *d)
{
	fabrics_tick(d);
	for (unsigned i = 0; i < d->listeners; i++) {
		struct listener *l = &d->listener[i];
		char was[sizeof(l->address)]; /* perhaps without a port */
		int rc;

		if (l->handle || !atomic_load(&d->fabric[l->fabric].devices))
			continue;
		snprintf(was, sizeof(was), "%s", l->address);
		rc = listener_start(l);
		if (rc != 0) {
			listener_waits(l, rc);
			continue;
		}
		fabrics_drop_missing(d, l->transport, was);
		listener_tell(l);
		listeners_progress(&d->fabric[l->fabric]);
	}
}

/* `service`: for its clients of Valkey's protocol alone; NULL: for rdmad's own. An address of a device that is not
 * there is listened on when it is. */
static int listen_on(struct daemon *d, const struct fabric_transport *transport, const struct address *address,
		     struct sockaddr *sa, socklen_t len, const struct service *service)
{
	struct daemon_fabric *f = fabrics_find(d, transport);
	struct listener *l = &d->listener[d->listeners];
	char reason[256];
	int rc;

	if (d->listeners == ARRAY_SIZE(d->listener))
		return -EMFILE;
	*l = (struct listener){.daemon = d,
			       .fabric = (unsigned)(f - d->fabric),
			       .transport = transport,
			       .native = !service,
			       .stream = service,
			       .only = *address->scheme || service,
			       .exposed = listen_is_exposed(sa),
			       .len = len};
	memcpy(&l->at, sa, len);
	if (sa->sa_family == AF_UNIX)
		snprintf(l->address, sizeof(l->address), "%s", address->host);
	else
		address_format_socket(sa, l->address, sizeof(l->address));
	rc = listener_start(l);
	if (rc == 0) {
		memcpy(sa, &l->at, len); /* with its port */
		listener_tell(l);
	} else if (transport->device && (rc == -ENODEV || rc == -EADDRNOTAVAIL)) {
		listener_waits(l, rc);
	} else {
		return rc;
	}
	d->listeners++;
	if (rc != 0 && l->only)
		log_warn("rdmad", "%s %s: %s, and nothing listens there until one has (RD-5010)", transport->name,
			 l->address, device_reason(transport, -EADDRNOTAVAIL, reason, sizeof(reason)));
	return 0;
}

const char *listen_advice(const struct sockaddr *sa, int error)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

	switch (-error) {
	case EADDRINUSE:
		if (sa->sa_family == AF_UNIX)
			return "; another program has it, or it is a file of another kind: stop that one, remove the "
			       "file, or change listen or unix_socket; a second rdmad beside it starts with: "
			       "RUNTIME_DIRECTORY=DIRECTORY rdmad, and is asked with: rdmactl --control "
			       "DIRECTORY/control.sock";
		return "; another program has it, or listen has it twice: stop that one, or change listen, port or "
		       "unix_socket";
	case EADDRNOTAVAIL:
		return "; it is no address of this machine: change listen";
	case EINVAL:
		/* fe80::1 is another host on each interface. */
		if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) && !in6->sin6_scope_id)
			return "; it needs its interface, as in fe80::1%eth0: change listen";
		return "";
	case EACCES:
	case EPERM:
		if (sa->sa_family == AF_UNIX)
			return "; the daemon's user may not write there: change listen, unix_socket or XDG_RUNTIME_DIR";
		return "; the daemon's user may not: choose a port from 1024 on";
	case EMFILE:
		return "; no descriptors are left: raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)";
	case ENFILE:
		return "; the machine has no descriptors left: raise fs.file-max";
	default:
		return "";
	}
}

/* An address may serve others and have no device behind it: told, not an error, unless only this transport was asked
 * for there. */
static int listen_without_device(struct daemon *d, const struct fabric_transport *transport, const struct sockaddr *sa,
				 int error, bool only)
{
	char reason[256], text[128];

	device_reason(transport, error, reason, sizeof(reason));
	address_format_socket(sa, text, sizeof(text));
	if (!only) {
		fabrics_add_missing(d, transport, text, reason, false);
		return 0;
	}
	return log_fail(EX_UNAVAILABLE, "rdmad", "cannot listen on %s %s: %s", transport->name, text, reason);
}

static int listen_by(struct daemon *d, const struct fabric_transport *transport, const struct address *address,
		     struct address_socket *at, int count)
{
	struct sockaddr *sa = (struct sockaddr *)&at->sa;
	/* rdma_cm listens on the loopback without complaint, and then no client can connect. No device has it ever. */
	bool futile = !transport->loopback && address_is_loopback(sa), only = *address->scheme;
	char text[128];
	int rc;

	address_format_socket(sa, text, sizeof(text));
	if (listen_is_exposed(sa) && !access_may_expose(d->config, d->access, text))
		return EX_CONFIG;
	rc = futile ? -EADDRNOTAVAIL : listen_on(d, transport, address, sa, at->len, NULL);
	if (rc == 0 || (futile && !only && !atomic_load(&fabrics_find(d, transport)->devices)))
		return 0;
	if (transport->device && (rc == -EADDRNOTAVAIL || !only))
		return listen_without_device(d, transport, sa, rc, only && count == 1);
	if (count == 1 || (rc != -EADDRNOTAVAIL && rc != -EAFNOSUPPORT))
		return log_fail(daemon_exit_status(rc), "rdmad", "cannot listen on %s %s: %s%s (RD-5001)",
				transport->name, address->path ? address->host : text, strerror(-rc),
				listen_advice(sa, rc));
	/* The machine does not have one of the addresses of a name, perhaps a whole kind of them: the others serve. */
	log_at(address_is_unspecified(sa) ? LOG_LEVEL_INFO : LOG_LEVEL_WARN, "rdmad", "not listening on %s %s: %s",
	       transport->name, text, strerror(-rc));
	return 0;
}

static int listen_transport(struct daemon *d, const struct fabric_transport *transport, const struct address *address,
			    struct address_socket *at, int count)
{
	int rc = 0;

	if (!config_allows(d->config, transport))
		return 0;
	if (!fabrics_find(d, transport)) {
		if (!*address->scheme)
			return 0;
		return log_fail(EX_UNAVAILABLE, "rdmad", "cannot listen on %s %s: %s", transport->name, address->host,
				fabrics_reason(d, transport));
	}
	for (int i = 0; i < count && rc == 0; i++) {
		rc = listen_by(d, transport, address, &at[i], count);
		/* Where the system chooses the port, all have the same; those of both families are at one place. */
		for (int k = 0; k < count && at[i].sa.ss_family != AF_UNIX; k++)
			((struct sockaddr_in *)&at[k].sa)->sin_port = ((struct sockaddr_in *)&at[i].sa)->sin_port;
	}
	return rc;
}

/* Every address of a name. The last choice first: where the system chooses TCP's port, RDMA takes the same. */
static int listen_address(struct daemon *d, const struct address *address)
{
	struct address_socket at[ADDRESS_SOCKETS];
	int rc = 0, count = 0;

	for (unsigned i = FABRIC_TRANSPORTS; i-- > 0 && rc == 0;) {
		const struct fabric_transport *t = &fabric_transports[i];

		if (!fabric_transport_serves(t, address))
			continue;
		if (!count)
			count = fabric_transport_resolve(t, address, at);
		if (count < 0)
			return EX_NOHOST;
		rc = listen_transport(d, t, address, at, count);
	}
	return rc;
}

static int listen_path(struct daemon *d, const struct address *address)
{
	mode_t mode = (mode_t)d->config->unix_mode, before;
	int rc = process_make_parent(address->host);

	if (rc != 0)
		return EX_CANTCREAT;
	before = umask(0777 & ~mode); /* it listens as soon as it is there */
	rc = listen_address(d, address);
	umask(before);
	/* Where the directory has a default ACL, no umask counts. */
	if (rc != 0 || chmod(address->host, mode) == 0)
		return rc;
	return log_fail(EX_CANTCREAT, "rdmad", "cannot change the mode of %s: %m", address->host);
}

/* What the configuration names apart from `listen`. */
static int listen_socket(struct daemon *d)
{
	struct address address = {.path = true};

	snprintf(address.host, sizeof(address.host), "%s", d->config->unix_socket);
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		const struct fabric_transport *t = &fabric_transports[i];

		if (t->path && config_allows(d->config, t)) {
			snprintf(address.scheme, sizeof(address.scheme), "%s", t->name);
			return listen_path(d, &address);
		}
	}
	return 0;
}

/* One that listens there for rdmad's own clients serves both. */
static struct listener *listener_at(struct daemon *d, const struct fabric_transport *transport, const char *address)
{
	for (unsigned i = 0; i < d->listeners; i++)
		if (d->listener[i].transport == transport && strcmp(d->listener[i].address, address) == 0)
			return &d->listener[i];
	return NULL;
}

static int listen_rdma(struct daemon *d, const struct fabric_transport *transport, const struct service *service,
		       const struct address *address, struct address_socket *at, bool check)
{
	struct sockaddr *sa = (struct sockaddr *)&at->sa;
	struct listener *l;
	char text[128];
	int rc;

	l = listener_at(d, transport, address_format_socket(sa, text, sizeof(text)));
	if (l && !l->stream) {
		l->stream = service;
		log_info("rdmad", "%s on %s %s for %s, too", l->handle ? "listening" : "to listen", transport->name,
			 text, wire_service_name(service->id));
		return 0;
	}
	if (listen_is_exposed(sa) && !access_may_expose(d->config, d->access, text))
		return EX_CONFIG;
	if (!transport->loopback && address_is_loopback(sa))
		rc = -EADDRNOTAVAIL;
	else
		rc = check ? 0 : listen_on(d, transport, address, sa, at->len, service);
	if (rc == -EADDRNOTAVAIL && transport->device)
		return listen_without_device(d, transport, sa, rc, true);
	if (rc != 0)
		return log_fail(daemon_exit_status(rc), "rdmad", "cannot listen on %s %s for %s: %s%s (RD-5001)",
				transport->name, text, wire_service_name(service->id), strerror(-rc),
				listen_advice(sa, rc));
	return 0;
}

int listeners_open_rdma(struct daemon *d, const struct service *service, const struct address *address, bool check)
{
	const struct fabric_transport *transport = fabric_transport_of(address);
	struct address_socket at[ADDRESS_SOCKETS];
	int count, rc = 0;
	/* One that is looked at alone is not opened without its device. */
	bool waits = check && transport->device && !d->config->require_rdma;

	if (!config_allows(d->config, transport) || (!fabrics_find(d, transport) && !waits))
		return log_fail(EX_UNAVAILABLE, "rdmad", "cannot listen on %s %s for %s: %s", transport->name,
				address->host, wire_service_name(service->id), fabrics_reason(d, transport));
	count = fabric_transport_resolve(transport, address, at);
	if (count < 0)
		return EX_NOHOST;
	for (int i = 0; i < count && rc == 0; i++)
		rc = listen_rdma(d, transport, service, address, &at[i], check);
	return rc;
}

unsigned listeners_port(const struct daemon *d)
{
	unsigned port = 0;

	for (unsigned i = 0; i < d->listeners && !port; i++)
		port = d->listener[i].handle ? fabric_listener_port(d->listener[i].handle) : 0;
	return port;
}

const char *listeners_exposed(const struct daemon *d)
{
	for (unsigned i = 0; i < d->listeners; i++)
		if (d->listener[i].exposed)
			return d->listener[i].address;
	return NULL;
}

int listeners_none(void)
{
	return log_fail(EX_UNAVAILABLE, "rdmad",
			"there is nothing to listen on: see listen, transports and unix_socket");
}

static int check_outcome(struct daemon *d)
{
	bool rdma = false;

	for (unsigned i = 0; i < d->listeners; i++)
		rdma |= d->listener[i].handle && !d->listener[i].transport->processor;
	if (d->config->require_rdma && !rdma)
		return log_fail(EX_UNAVAILABLE, "rdmad",
				"RDMA is required, and no address to listen on has it (RD-5003)");
	return d->listeners ? 0 : listeners_none();
}

int listeners_open(struct daemon *d)
{
	struct address address;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < d->config->listen.count; i++) {
		if (config_listen_address(d->config, d->config->listen.item[i], &address) != 0)
			rc = EX_CONFIG;
		else
			rc = address.path ? listen_path(d, &address) : listen_address(d, &address);
	}
	if (rc == 0)
		rc = listen_socket(d);
	if (rc == 0)
		rc = check_outcome(d);
	for (unsigned i = 0; rc == 0 && i < d->fabrics; i++) {
		rc = listeners_watch(d, &d->fabric[i]);
		if (rc == 0)
			listeners_progress(&d->fabric[i]);
	}
	if (rc != 0)
		listeners_close(d);
	return rc;
}

void listeners_close(struct daemon *d)
{
	for (unsigned i = 0; i < d->fabrics; i++) {
		while (d->fabric[i].watches > 0)
			loop_remove(d->fabric[i].watch[--d->fabric[i].watches]);
		loop_remove(d->fabric[i].more);
		d->fabric[i].more = NULL;
	}
	while (d->listeners > 0)
		fabric_listener_close(d->listener[--d->listeners].handle);
}
