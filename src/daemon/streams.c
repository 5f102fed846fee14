/* streams.c: listens for clients whose connections are streams of bytes, and hands them to workers. */
#include "daemon/daemon.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define BUDGET 64 /* connections before the loop looks at all else */

void streams_refuse(const struct service *service, int fd, struct fabric_request *request, enum wire_reason reason)
{
	const char *text = service->refusal ? service->refusal(reason) : NULL;

	if (request) {
		fabric_reject(request, NULL, 0);
		return;
	}
	if (text && send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("rdmad", "a client that is refused was not told why: %m");
	local_close(fd);
}

/* The user of this machine, where the kernel can say, else the address. */
static void source_of(int fd, const struct sockaddr *sa, struct fabric_source *of)
{
	struct ucred user;
	uid_t uid;

	fabric_source_of(sa, of);
	if (sa->sa_family == AF_UNIX) {
		if (local_peer(fd, &user) == 0)
			*of = (struct fabric_source){.family = AF_UNIX, .id = {user.uid}};
	} else if (local_is_near(fd) && local_user(fd, &uid) == 0) {
		*of = (struct fabric_source){.family = AF_UNIX, .id = {uid}};
	}
}

/* A client that needs a key, or has no right to the service, may still say a password: until then it may do nothing. */
static void stream_authorize(struct daemon *d, const struct service *service, const struct fabric_source *of,
			     struct auth_admission *out)
{
	bool is_user = of->family == AF_UNIX;

	if (auth_admit(d->access, 0, is_user, (uid_t)of->id[0], out) && out->client->services & 1u << service->id)
		return;
	auth_admission_end(out);
	*out = (struct auth_admission){.client = &auth_nothing,
				       .table = auth_table_get(d->access),
				       .is_user = is_user,
				       .uid = (uid_t)of->id[0]};
}

static bool hand_over(struct daemon *d, const struct service *service, int fd, struct fabric_request *request,
		      uint64_t places, struct quota_share *source, const struct auth_admission *admission)
{
	struct worker *oldest = workers_load(d) >= places ? workers_oldest(d, time_now()) : NULL;
	struct worker_message *message = calloc(1, sizeof(*message));

	if (!message)
		return false;
	message->verb = WORKER_STREAM;
	message->connection.places = places;
	message->connection.instead = oldest;
	message->connection.service = service;
	message->connection.fd = fd;
	message->connection.fabric_request = request;
	message->connection.source = source;
	message->connection.admission = *admission;
	if (worker_send(oldest ? oldest : workers_least(d), message))
		return true;
	free(message);
	return false;
}

/* A client came: by the descriptor, or, where `request` is not NULL, by RDMA. */
static void client_came(struct daemon *d, const struct service *service, int fd, struct fabric_request *request,
			const struct fabric_source *of)
{
	struct quota_share *source = NULL;
	struct auth_admission admission = {0};
	enum wire_reason reason;
	uint64_t places = listeners_places(d, of), detail;

	reason = listeners_admit(d, service->id, places, &detail);
	if (reason == WIRE_REASON_NONE) {
		stream_authorize(d, service, of, &admission);
		reason = auth_enter(&admission) ? listeners_count(d, of, &detail, &source) : WIRE_REASON_SOURCE;
	}
	if (reason == WIRE_REASON_NONE && hand_over(d, service, fd, request, places, source, &admission))
		return;
	reason = reason == WIRE_REASON_NONE ? WIRE_REASON_RESOURCES : reason;
	auth_admission_end(&admission);
	quota_give(source);
	d->refused[reason]++;
	streams_refuse(service, fd, request, reason);
}

void streams_requested(struct daemon *d, const struct service *service, struct fabric_request *request)
{
	struct fabric_source of;

	fabric_request_source(request, &of);
	client_came(d, service, -1, request, &of);
}

/* Where descriptors are lacking, connections stay in the queue, and the loop would come here again and again: the
 * listener pauses until the next tick. */
static void listener_readable(void *arg)
{
	struct stream_listener *l = arg;

	for (int left = BUDGET; left > 0; left--) {
		struct sockaddr_storage sa;
		socklen_t len = sizeof(sa);
		struct fabric_source of;
		int rc, fd = accept4(l->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			source_of(fd, (const struct sockaddr *)&sa, &of);
			client_came(l->daemon, l->service, fd, NULL, &of);
			continue;
		}
		if (errno == ECONNABORTED || errno == EINTR)
			continue;
		rc = -errno;
		if (rc != -EAGAIN)
			log_error("rdmad", "cannot take a connection to %s %s: %s%s", l->transport, l->address,
				  strerror(-rc), listen_advice((const struct sockaddr *)&sa, rc));
		l->paused = rc != -EAGAIN;
		if (l->paused)
			loop_change_fd(l->watch, 0);
		return;
	}
}

int listen_tcp(const struct sockaddr *sa, socklen_t len, int *out)
{
	int on = 1, rc, fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	rc = bind(fd, sa, len) == 0 && listen(fd, SOMAXCONN) == 0 ? 0 : -errno;
	if (rc == 0)
		*out = fd;
	else
		close(fd);
	return rc;
}

static int listen_at(struct daemon *d, const struct service *service, const struct sockaddr *sa, socklen_t len,
		     mode_t mode)
{
	struct stream_listener *l = &d->stream[d->streams];
	struct sockaddr_storage bound;
	socklen_t bound_len = sizeof(bound);
	bool is_unix = sa->sa_family == AF_UNIX;
	int rc;

	if (d->streams == STREAM_LISTENERS)
		return -EMFILE;
	*l = (struct stream_listener){.fd = -1, .daemon = d, .service = service};
	rc = l->fd = inherited_take(d, sa);
	if (rc < 0 && is_unix)
		rc = l->fd = local_listen((const struct sockaddr_un *)sa, len, SOCK_STREAM, mode, &l->file);
	else if (rc < 0)
		rc = listen_tcp(sa, len, &l->fd);
	if (rc < 0)
		return rc;
	d->streams++;
	if (getsockname(l->fd, (struct sockaddr *)&bound, &bound_len) == 0 && !is_unix)
		l->port = ntohs(((const struct sockaddr_in *)&bound)->sin_port);
	if (is_unix)
		snprintf(l->address, sizeof(l->address), "%s", ((const struct sockaddr_un *)sa)->sun_path);
	else
		address_format_socket((const struct sockaddr *)&bound, l->address, sizeof(l->address));
	l->transport = is_unix ? "unix" : "tcp";
	l->exposed = listen_is_exposed(sa);
	l->watch = loop_add_fd(d->loop, l->fd, LOOP_READ, listener_readable, l);
	if (!l->watch)
		return -ENOMEM;
	log_info("rdmad", "listening on %s %s for %s", l->transport, l->address, wire_service_name(service->id));
	return 0;
}

static int cannot_listen(const char *what, const struct sockaddr *sa, int error)
{
	char text[128];

	return log_fail(daemon_exit_status(error), "rdmad", "cannot listen on %s for %s: %s%s (RD-5001)",
			address_format_socket(sa, text, sizeof(text)), what, strerror(-error),
			listen_advice(sa, error));
}

int listen_each(const char *text, uint64_t port, const char *what,
		int (*listen)(void *arg, const struct address_socket *at), void *arg)
{
	struct address_socket at[ADDRESS_SOCKETS];
	struct address address;
	int count, listening = 0, rc = 0;

	if (address_parse(text, &address) != 0)
		return EX_CONFIG;
	if (!address.port_given)
		address.port = (uint16_t)port;
	count = address_resolve(&address, at);
	if (count < 0)
		return EX_NOHOST;
	for (int i = 0; i < count; i++) {
		int error = listen(arg, &at[i]);

		if (error > 0)
			return error;
		listening += error == 0;
		if (error != 0 && (count == 1 || (error != -EADDRNOTAVAIL && error != -EAFNOSUPPORT)))
			return cannot_listen(what, (const struct sockaddr *)&at[i].sa, error);
		rc = error ? error : rc;
	}
	return listening ? 0 : cannot_listen(what, (const struct sockaddr *)&at[0].sa, rc);
}

/* Where a service is to listen. */
struct listen_for {
	struct daemon *daemon;
	const struct service *service;
};

static int listen_for(void *arg, const struct address_socket *at)
{
	const struct listen_for *to = arg;
	const struct sockaddr *sa = (const struct sockaddr *)&at->sa;
	char name[128];

	if (listen_is_exposed(sa) &&
	    !access_may_expose(to->daemon->config, to->daemon->access, address_format_socket(sa, name, sizeof(name))))
		return EX_CONFIG;
	return listen_at(to->daemon, to->service, sa, at->len, 0);
}

static int listen_path(struct daemon *d, const struct service *service, const struct service_door *door)
{
	struct sockaddr_un at;
	int rc = local_address(door->unix_socket, &at);

	if (rc == 0 && process_make_parent(door->unix_socket) != 0)
		return EX_CANTCREAT;
	if (rc == 0)
		rc = listen_at(d, service, (const struct sockaddr *)&at, sizeof(at), (mode_t)door->unix_mode);
	return rc == 0 ? 0 : cannot_listen(wire_service_name(service->id), (const struct sockaddr *)&at, rc);
}

int streams_listen_rdma(struct daemon *d, const struct service *service, const struct service_door *door,
			const char *text, bool check)
{
	struct address address;

	if (address_parse(text, &address) != 0)
		return EX_CONFIG;
	if (!address.port_given)
		address.port = (uint16_t)door->port;
	return listeners_open_rdma(d, service, &address, check);
}

const struct service *streams_door(const struct daemon *d, unsigned id, struct service_door *door)
{
	const struct service *service = service_find(id);

	if (!service || !service->door || !daemon_serves(d, id))
		return NULL;
	service->door(d->config->service[id], door);
	return service;
}

void streams_find_rdma(struct daemon *d)
{
	const struct daemon_fabric *fabric;
	struct service_door door;
	struct address address;

	d->rdma = (struct stream_rdma_attr){.handshake = d->config->handshake_timeout, .budget = &d->windows};
	for (unsigned id = 0; id < WIRE_SERVICES && !d->rdma.domain; id++) {
		if (!streams_door(d, id, &door) || !door.rdma->count ||
		    fabric_address_parse(door.rdma->item[0], &address) != 0)
			continue;
		fabric = fabrics_find(d, fabric_transport_of(&address));
		d->rdma.domain = fabric ? fabric->domain : NULL;
		d->rdma.window = (uint32_t)((door.rdma_window + 4095) & ~4095ull);
		d->windows.limit = door.rdma_memory;
	}
}

int streams_open(struct daemon *d)
{
	int rc = 0;

	for (unsigned id = 0; id < WIRE_SERVICES && rc == 0; id++) {
		struct service_door door;
		struct listen_for to = {d, streams_door(d, id, &door)};

		if (!to.service)
			continue;
		for (unsigned i = 0; i < door.listen->count && rc == 0; i++)
			rc = listen_each(door.listen->item[i], door.port, wire_service_name(id), listen_for, &to);
		if (rc == 0 && door.unix_socket)
			rc = listen_path(d, to.service, &door);
		for (unsigned i = 0; i < door.rdma->count && rc == 0; i++)
			rc = streams_listen_rdma(d, to.service, &door, door.rdma->item[i], false);
	}
	if (rc != 0)
		streams_close(d);
	return rc;
}

void streams_tick(struct daemon *d)
{
	for (unsigned i = 0; i < d->streams; i++) {
		if (d->stream[i].paused)
			loop_change_fd(d->stream[i].watch, LOOP_READ);
		d->stream[i].paused = false;
	}
}

void streams_close(struct daemon *d)
{
	while (d->streams > 0) {
		struct stream_listener *l = &d->stream[--d->streams];

		loop_remove(l->watch);
		local_file_remove(&l->file);
		if (l->fd >= 0)
			local_close(l->fd);
	}
}
