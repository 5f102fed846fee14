/*
 * channel_far_listen.c: the end that is asked. A listener has a door for each transport that its address means. Who connects
 * gets an engine of his own at once, and is a guest until he has asked for the channel by its name and size; then rings are
 * made. There are few places for guests: the one who says nothing for longest gives way.
 */
#include "client/channel_far.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GUESTS 16
#define EVENTS GUESTS               /* of a door in a turn */
#define LATE_TURNS 32               /* of an accept whose time is over, while there is work */
#define GUEST_PATIENCE (5 * TIME_S) /* for what a guest asks, and for his taking a refusal */

struct door {
	const struct fabric_transport *transport;
	struct engine_fabric *fabric;
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct fabric_listener *listener[ADDRESS_SOCKETS];
	unsigned listeners;
};

struct guest {
	struct channel_far *far;
	uint64_t deadline;
};

struct far_listener {
	struct rdmad_channel_listener base;
	struct rdmad_channel_options options;
	struct engine_options engine;
	uint64_t size;
	char name[RDMAD_CHANNEL_NAME_MAX + 1];
	char device[80];
	char why[400]; /* transports were left out */
	int epoll;
	int more; /* an eventfd: an accept left work behind */
	bool left;
	unsigned doors, guests;
	struct door door[FABRIC_TRANSPORTS];
	struct guest guest[GUESTS]; /* oldest first */
};

int channel_far_watch(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};
	int error;

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0)
		return 0;
	error = errno;
	log_error("channel", "cannot watch who comes: %s", strerror(error));
	return -error;
}

/*
 * Guests
 */
static void guest_leaves(struct far_listener *l, unsigned i)
{
	l->guests--;
	memmove(&l->guest[i], &l->guest[i + 1], (l->guests - i) * sizeof(l->guest[0]));
}

static void guest_drop(struct far_listener *l, unsigned i)
{
	struct channel_far *far = l->guest[i].far;

	guest_leaves(l, i);
	channel_far_drop(far);
}

/* Consumes the request. */
static void guest_enters(struct far_listener *l, struct door *door, struct fabric_request *fabric_request,
			 const struct wire_request *asked)
{
	struct engine_options engine = l->engine;
	struct wire_request request = *asked;
	struct wire_accept grant = {0};
	struct channel_far *far = channel_far_new(l->size, &l->options);

	/* What he asks for without having said a name is not what memory is given for. */
	request.message_size = MIN(request.message_size, engine.message_size);
	engine.fabric = door->fabric;
	engine.message_size = request.message_size;
	if (!far || engine_create(door->transport, &engine, &far->engine) != 0 ||
	    channel_far_watch(l->epoll, engine_fd(far->engine)) != 0)
		goto refuse;
	channel_far_enter(far);
	if (conn_accept(engine_group(far->engine), fabric_request, &request, &grant, NULL, &channel_far_ops, far,
			time_now(), &far->conn) != 0)
		far->over = true; /* it is refused by now, and leaves with the next look */
	channel_far_leave(far);
	l->guest[l->guests++] = (struct guest){far, time_after(time_now(), GUEST_PATIENCE)};
	return;

refuse:
	conn_refuse(fabric_request, WIRE_REASON_RESOURCES, 0);
	if (far)
		channel_far_drop(far);
}

static void door_requested(struct far_listener *l, struct door *door, const struct fabric_event *event)
{
	struct wire_request request;
	enum wire_reason reason = wire_request_decode(&request, event->data, event->data_len);
	uint64_t detail = 0;

	if (reason == WIRE_REASON_NONE && request.service != WIRE_CHANNEL) {
		reason = WIRE_REASON_SERVICE;
		detail = request.service;
	}
	if (reason != WIRE_REASON_NONE) {
		conn_refuse(event->request, reason, detail);
		return;
	}
	if (l->guests == GUESTS)
		guest_drop(l, 0);
	guest_enters(l, door, event->request, &request);
}

static int door_turn(struct far_listener *l, struct door *door)
{
	struct fabric_completion completion;
	struct fabric_event event;
	int n = fabric_poll(door->queue, &completion, 1);

	/* While there are places; else one, so that those who are there have their turn before they have to give way. */
	for (; n < EVENTS && (n == 0 || l->guests < GUESTS) && fabric_next_event(door->queue, &event); n++)
		if (event.type == FABRIC_REQUEST)
			door_requested(l, door, &event);
	return n;
}

/* In words, and the connection stays until the guest has gone. */
static void guest_refuse(struct channel_far *far, enum wire_status status, const char *words)
{
	uint32_t length = (uint32_t)strlen(words);
	struct wire_record *record = conn_reserve(far->conn, length, NULL);

	log_info("channel", "%s refused: %s", far->peer, words);
	far->state = CHANNEL_FAR_REFUSED;
	if (!record)
		return;
	record->op = WIRE_OP_CHANNEL_OPEN;
	record->flags = WIRE_REPLY;
	record->status = (uint16_t)status;
	memcpy(record + 1, words, length);
	conn_commit(far->conn, record, length);
	conn_flush(far->conn);
}

/* Inside. Whether what it asks for is what there is; else it was told. */
static bool guest_fits(const struct far_listener *l, struct channel_far *far)
{
	char words[512];

	if (strcmp(far->name, l->name) != 0) {
		snprintf(words, sizeof(words), "nobody listens on a channel \"%s\" here", far->name);
		guest_refuse(far, WIRE_NOT_FOUND, words);
		return false;
	}
	if (far->asked.capacity != l->size) {
		snprintf(words, sizeof(words), "the channel's rings have %llu bytes here, not %llu",
			 (unsigned long long)l->size, (unsigned long long)far->asked.capacity);
		guest_refuse(far, WIRE_TOO_LARGE, words);
		return false;
	}
	if (far->asked.flags || far->asked.token || channel_far_take_ring(far, &far->asked) != 0) {
		guest_refuse(far, WIRE_BAD_REQUEST, "this is a program, not an rdmad, or the ring offered is none");
		return false;
	}
	return true;
}

/* Inside. 0: it has its channel. */
static int guest_answer(const struct far_listener *l, struct channel_far *far)
{
	static const struct wire_channel_open open;

	channel_far_name(far);
	if (!guest_fits(l, far))
		return -EAGAIN;
	if (channel_far_map(far) != 0) {
		guest_refuse(far, WIRE_NO_MEMORY, "the other end has no memory for its rings");
		return -EAGAIN;
	}
	far->state = CHANNEL_FAR_OPEN;
	return channel_far_say_open(far, &open, "", WIRE_REPLY);
}

/* A turn for one: 1: its channel is open; 0, *work: there was some. */
static int guest_turn(struct far_listener *l, unsigned i, bool arm, bool *work)
{
	struct guest *guest = &l->guest[i];
	struct channel_far *far = guest->far;
	int open = 0;

	channel_far_enter(far);
	if (arm ? engine_arm(far->engine) : engine_turn(far->engine))
		*work = true;
	if (far->conn && far->state == CHANNEL_FAR_ASKED) {
		open = guest_answer(l, far) == 0;
		*work = true;
	}
	channel_far_leave(far);
	if (!open && (!far->conn || time_now() >= guest->deadline))
		guest_drop(l, i);
	return open;
}

/* Everybody who came or spoke. The first who may be let in, or NULL. */
static struct channel_far *listener_turn(struct far_listener *l, bool arm, bool *work)
{
	*work = false;
	for (unsigned i = 0; i < l->doors; i++) {
		if (arm)
			fabric_arm(l->door[i].queue);
		if (door_turn(l, &l->door[i]) > 0)
			*work = true;
	}
	for (unsigned i = l->guests; i-- > 0;) {
		struct channel_far *far = l->guest[i].far;

		if (guest_turn(l, i, arm, work) == 0)
			continue;
		guest_leaves(l, i);
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, engine_fd(far->engine), NULL);
		return far;
	}
	return NULL;
}

static void listener_sleep(struct far_listener *l, uint64_t until)
{
	struct epoll_event event;
	uint64_t now = time_now();

	for (unsigned i = 0; i < l->guests; i++) {
		until = MIN(until, l->guest[i].deadline);
		until = MIN(until, conn_group_deadline(engine_group(l->guest[i].far->engine)));
	}
	if (until > now)
		epoll_wait(l->epoll, &event, 1, until - now > TIME_S ? 1000 : (int)((until - now) / TIME_MS) + 1);
}

/* The descriptor is readable until the next accept. */
static void listener_leave_work(struct far_listener *l, bool left)
{
	eventfd_t count;

	if (left)
		eventfd_write(l->more, 1);
	else if (l->left)
		eventfd_read(l->more, &count);
	l->left = left;
}

/* Those who come without a pause do not keep it beyond its time. */
static int far_accept(struct rdmad_channel_listener *listener, uint64_t until, struct rdmad_channel **out)
{
	struct far_listener *l = container_of(listener, struct far_listener, base);
	struct channel_far *far;
	bool work, armed = false;
	unsigned late = 0;

	listener_leave_work(l, false);
	while (!(far = listener_turn(l, armed, &work))) {
		bool idle = !work && armed; /* who sleeps on the descriptor is woken */

		if (time_now() >= until && (idle || ++late == LATE_TURNS)) {
			listener_leave_work(l, !idle);
			return -ETIMEDOUT;
		}
		if (!work && armed)
			listener_sleep(l, until);
		armed = !work && !armed; /* armed, it looks once more */
	}
	*out = &far->channel;
	return 0;
}

static int far_listener_fd(const struct rdmad_channel_listener *listener)
{
	return container_of(listener, const struct far_listener, base)->epoll;
}

/*
 * Doors
 */
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

static int door_watch(struct far_listener *l, struct door *door)
{
	int fds[FABRIC_MAX_FDS], n = fabric_fds(door->queue, fds), rc = 0;

	for (int i = 0; i < n && rc == 0; i++)
		rc = channel_far_watch(l->epoll, fds[i]);
	return rc;
}

static int door_make(struct far_listener *l, struct door *door, const struct fabric_transport *transport)
{
	static const struct fabric_queue_attr attr = {.completions = 16};
	int rc;

	*door = (struct door){.transport = transport};
	rc = engine_fabric_open(transport, &l->engine, &door->fabric);
	if (rc == 0)
		rc = fabric_domain_create(door->fabric->fabric, &door->domain);
	if (rc == 0)
		rc = fabric_queue_create(door->domain, &attr, &door->queue);
	if (rc == 0)
		rc = door_watch(l, door);
	return rc;
}

/* Each address of the name, with one port; those that this machine does not have are left out. */
static int door_listen(struct door *door, struct address *address)
{
	struct address_socket at[ADDRESS_SOCKETS];
	int rc = fabric_transport_resolve(door->transport, address, at), count = rc;

	for (int i = 0; i < count; i++) {
		struct sockaddr_in *sa =
			(struct sockaddr_in *)&at[i].sa; /* the ports of both families are at one place */
		struct fabric_listener **listener = &door->listener[door->listeners];

		rc = -EADDRNOTAVAIL;
		/* rdma_cm listens on the loopback without complaint, and then nobody can connect. */
		if (!door->transport->loopback && address_is_loopback((struct sockaddr *)sa))
			continue;
		if (!address->path)
			sa->sin_port = htons(address->port);
		rc = fabric_listen(door->queue, (struct sockaddr *)sa, at[i].len, NULL, listener);
		if (rc == 0 && !address->path)
			address->port = fabric_listener_port(*listener);
		door->listeners += rc == 0;
		if (rc != 0 && rc != -EADDRNOTAVAIL && rc != -EAFNOSUPPORT)
			return rc;
	}
	return door->listeners ? 0 : rc;
}

static void listener_left_out(struct far_listener *l, const struct fabric_transport *transport, const char *logged,
			      int rc)
{
	size_t at = strlen(l->why);

	snprintf(l->why + at, sizeof(l->why) - at, "; %s: %s", transport->text, *logged ? logged : strerror(-rc));
}

/* What is no transport of this machine is left out, where the address leaves the choice. */
static int listener_add_door(struct far_listener *l, const struct fabric_transport *transport, struct address *address)
{
	struct door *door = &l->door[l->doors];
	bool must_be = *address->scheme != '\0';
	const char *logged;
	int rc;

	if (!must_be)
		log_hush_begin();
	rc = door_make(l, door, transport);
	if (rc == 0)
		rc = door_listen(door, address);
	logged = must_be ? "" : log_hush_end();
	if (rc == 0) {
		l->doors++;
		return 0;
	}
	listener_left_out(l, transport, logged, rc);
	door_close(door);
	if (must_be || rc == -EADDRINUSE) {
		log_error("channel", "cannot listen on %s by %s: %s", l->base.url, transport->text, strerror(-rc));
		return rc;
	}
	return 0;
}

/* The last choice first: where the system chooses TCP's port, RDMA takes the same. */
static int listener_open(struct far_listener *l, struct address *address)
{
	int rc = 0;

	for (unsigned i = FABRIC_TRANSPORTS; i-- > 0 && rc == 0;) {
		const struct fabric_transport *t = &fabric_transports[i];

		if (fabric_transport_serves(t, address) && !(l->engine.require_rdma && t->processor))
			rc = listener_add_door(l, t, address);
	}
	if (rc != 0 || l->doors)
		return rc;
	log_error("channel", "%s: this machine has no transport to listen there%s", l->base.url, l->why);
	return -EADDRNOTAVAIL;
}

static void listener_url(struct far_listener *l, const struct address *address)
{
	const char *scheme = address->scheme, *separator = *scheme ? "://" : "";
	bool v6 = strchr(address->host, ':');

	if (address->path)
		snprintf(l->base.url, sizeof(l->base.url), "%s%s%s", scheme, separator, address->host);
	else
		snprintf(l->base.url, sizeof(l->base.url), "%s%s%s%s%s:%u/%s", scheme, separator, v6 ? "[" : "",
			 address->host, v6 ? "]" : "", address->port, l->name);
}

static void far_listener_close(struct rdmad_channel_listener *listener)
{
	struct far_listener *l = container_of(listener, struct far_listener, base);

	while (l->guests)
		guest_drop(l, 0);
	while (l->doors > 0)
		door_close(&l->door[--l->doors]);
	close(l->more);
	close(l->epoll);
	free(l);
}

static const struct channel_listener_ops far_listener_ops = {
	.accept = far_accept,
	.fd = far_listener_fd,
	.close = far_listener_close,
};

static struct far_listener *listener_new(const struct channel_url *url, size_t size,
					 const struct rdmad_channel_options *options)
{
	struct far_listener *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->base.ops = &far_listener_ops;
	l->size = size;
	l->options = *options;
	if (options->device) {
		snprintf(l->device, sizeof(l->device), "%s", options->device);
		l->options.device = l->device;
	}
	channel_far_options(&l->options, &l->engine);
	snprintf(l->name, sizeof(l->name), "%s", url->name);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->more = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->epoll >= 0 && l->more >= 0 && channel_far_watch(l->epoll, l->more) == 0)
		return l;
	close(l->more);
	close(l->epoll);
	free(l);
	return NULL;
}

int channel_far_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel_listener **out)
{
	struct far_listener *l;
	struct address address;
	int rc = fabric_address_parse(url->address, &address);

	if (rc != 0)
		return rc;
	l = listener_new(url, size, options);
	if (!l) {
		log_error("channel", "no memory or descriptors to listen on %s", url->address);
		return -ENOMEM;
	}
	listener_url(l, &address);
	rc = listener_open(l, &address);
	if (rc != 0) {
		far_listener_close(&l->base);
		return rc;
	}
	listener_url(l, &address);
	*out = &l->base;
	return 0;
}
