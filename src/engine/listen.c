/* listen.c: listening on all transports that an address means. */
#include "engine/engine.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#define AGAIN (100 * TIME_MS) /* between two tries to listen, while a device is away */

int door_watch(const char *room, int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};
	int error;

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0)
		return 0;
	error = errno;
	log_error(room, "cannot watch who comes: %s", strerror(error));
	return -error;
}

/* The device of a listener was removed: it listens again when it can. */
static void door_lost(struct door *door, struct fabric_listener **listener)
{
	unsigned number = (unsigned)(listener - door->listener);

	((struct sockaddr_in *)&door->at[number].sa)->sin_port = htons(fabric_listener_port(*listener));
	fabric_listener_close(*listener);
	*listener = NULL;
}

static void door_listen_again(struct door *door, uint64_t now)
{
	if (now < door->again)
		return;
	door->again = now + AGAIN;
	log_hush_begin();
	for (unsigned i = 0; i < door->listeners; i++)
		if (!door->listener[i])
			fabric_listen(door->queue, (struct sockaddr *)&door->at[i].sa, door->at[i].len,
				      &door->listener[i], &door->listener[i]);
	log_hush_end();
}

int door_poll(struct door *door)
{
	struct fabric_completion completion;
	uint64_t now = time_now();

	engine_fabric_renew(door->fabric, now);
	for (unsigned i = 0; i < door->listeners; i++)
		if (unlikely(!door->listener[i])) {
			door_listen_again(door, now);
			break;
		}
	return fabric_poll(door->queue, &completion, 1);
}

int door_next(struct door *door, enum wire_service service, struct wire_request *request, struct fabric_request **out)
{
	struct fabric_event event;
	enum wire_reason reason;
	uint64_t detail = 0;

	*out = NULL;
	if (!fabric_next_event(door->queue, &event))
		return 0;
	if (event.type == FABRIC_REMOVED && event.context)
		door_lost(door, event.context);
	if (event.type != FABRIC_REQUEST)
		return 1;
	reason = wire_request_decode(request, event.data, event.data_len);
	if (reason == WIRE_REASON_NONE && request->service != service) {
		reason = WIRE_REASON_SERVICE;
		detail = request->service;
	}
	if (reason == WIRE_REASON_NONE)
		*out = event.request;
	else
		conn_refuse(event.request, reason, detail);
	return 1;
}

static void door_close(struct door *door)
{
	while (door->listeners > 0)
		fabric_listener_close(door->listener[--door->listeners]);
	if (door->queue)
		fabric_queue_destroy(door->queue);
	if (door->domain)
		fabric_domain_destroy(door->domain);
	engine_fabric_release(door->fabric);
}

static int door_make(const struct doors_attr *attr, struct door *door, const struct fabric_transport *transport)
{
	static const struct fabric_queue_attr queue = {.completions = 16};
	int fds[FABRIC_MAX_FDS], n, rc;

	*door = (struct door){.transport = transport};
	rc = attr->fabric ? attr->fabric(attr->arg, transport, &door->fabric)
			  : engine_fabric_open(transport, attr->engine, &door->fabric);
	if (rc == 0)
		rc = fabric_domain_create(door->fabric->fabric, &door->domain);
	if (rc == 0)
		rc = fabric_queue_create(door->domain, &queue, &door->queue);
	n = rc == 0 ? fabric_fds(door->queue, fds) : 0;
	for (int i = 0; i < n && rc == 0; i++)
		rc = door_watch(attr->room, attr->epoll, fds[i]);
	return rc;
}

/* Each address of the name, with one port; addresses of other machines are left out, and those where others
 * have the port that the system chose for the first. */
static int door_listen(struct door *door, struct address *address)
{
	struct address_socket at[ADDRESS_SOCKETS];
	bool chosen = !address->port;
	int rc = fabric_transport_resolve(door->transport, address, at), count = rc;

	for (int i = 0; i < count; i++) {
		struct sockaddr_in *sa =
			(struct sockaddr_in *)&at[i].sa; /* the ports of both families are at one place */
		struct fabric_listener **listener = &door->listener[door->listeners];

		rc = -EADDRNOTAVAIL;
		/* rdma_cm listens on the loopback without complaint, and then no client can connect. */
		if (!door->transport->loopback && address_is_loopback((struct sockaddr *)sa))
			continue;
		if (!address->path)
			sa->sin_port = htons(address->port);
		rc = fabric_listen(door->queue, (struct sockaddr *)sa, at[i].len, listener, listener);
		if (rc == 0 && !address->path)
			address->port = fabric_listener_port(*listener);
		door->at[door->listeners] = at[i];
		door->listeners += rc == 0;
		if (rc != 0 && rc != -EADDRNOTAVAIL && rc != -EAFNOSUPPORT &&
		    !(rc == -EADDRINUSE && chosen && door->listeners))
			return rc;
	}
	return door->listeners ? 0 : rc;
}

/* A transport that this machine lacks is left out, where the address leaves the choice. */
static int doors_add(struct doors *doors, const struct doors_attr *attr, const struct fabric_transport *transport,
		     struct address *address)
{
	struct door *door = &doors->door[doors->count];
	bool must_be = *address->scheme != '\0';
	size_t at = strlen(doors->why);
	const char *logged;
	int rc;

	log_hush_begin();
	rc = door_make(attr, door, transport);
	if (rc == 0)
		rc = door_listen(door, address);
	logged = log_hush_end();
	if (rc == 0) {
		doors->count++;
		return 0;
	}
	snprintf(doors->why + at, sizeof(doors->why) - at, "; %s: %s", transport->text,
		 *logged ? logged : strerror(-rc));
	door_close(door);
	if (must_be || rc == -EADDRINUSE) {
		/* For an address of sockets the log says no more than this does. */
		log_error(attr->room, "cannot listen on %s by %s: %s", attr->url, transport->text,
			  *logged && !transport->processor ? logged : strerror(-rc));
		return rc;
	}
	return 0;
}

/* The last choice first: where the system chooses TCP's port, RDMA takes the same. */
int doors_open(struct doors *doors, const struct doors_attr *attr, struct address *address)
{
	int rc = 0;

	*doors = (struct doors){.count = 0};
	for (unsigned i = FABRIC_TRANSPORTS; i-- > 0 && rc == 0;) {
		const struct fabric_transport *t = &fabric_transports[i];

		if (fabric_transport_serves(t, address) && !(attr->engine->require_rdma && t->processor))
			rc = doors_add(doors, attr, t, address);
	}
	if (rc != 0)
		doors_close(doors);
	if (rc != 0 || doors->count)
		return rc;
	return log_fail(-EADDRNOTAVAIL, attr->room, "%s: this machine has no transport to listen there%s", attr->url,
			doors->why);
}

void doors_close(struct doors *doors)
{
	while (doors->count > 0)
		door_close(&doors->door[--doors->count]);
}
