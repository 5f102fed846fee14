/*
 * conn_listen.c: the end that is asked. It listens on each transport that its address means. A client that connects
 * gets an engine of its own at once, and is a pending connection until it has asked for the channel by its name and
 * size; then rings are made. There are few places for pending connections. A client that comes when there is none
 * waits, until a pending one has its channel, or has said nothing for a while and is dropped.
 */
#include "channel/conn.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PENDING_MAX 16
#define EVENTS PENDING_MAX           /* of a transport in a turn */
#define LATE_TURNS 32                /* of an accept whose time is over, while there is work */
#define PENDING_TIMEOUT (5 * TIME_S) /* for its request, and for taking a refusal */
#define PENDING_STAY (200 * TIME_MS) /* also where others wait for its place */
#define CROWD_INTERVAL 1             /* ms between two polls while they do */

struct far_listener {
	struct rdmad_channel_listener base;
	struct rdmad_channel_options options;
	struct engine_options engine;
	uint64_t size;
	char name[RDMAD_CHANNEL_NAME_MAX + 1];
	char device[80];
	int epoll;
	int more; /* an eventfd: an accept left work behind */
	bool left;
	struct doors doors;
	struct pending pending;
};

/*
 * Pending connections. What one asks for is answered in the turn in which it came, so none has asked and waits.
 */
static void client_drop(struct pending_entry *entry, enum pending_reason reason)
{
	(void)reason;
	channel_far_drop(container_of(entry, struct channel_far, pending));
}

static const struct pending_attr clients = {
	.limit = PENDING_MAX,
	.stay = PENDING_TIMEOUT,
	.grace = PENDING_STAY,
	.drop = client_drop,
};

/* Consumes the request. */
static void client_enter(struct far_listener *l, struct door *door, struct fabric_request *fabric_request,
			 const struct wire_request *asked)
{
	struct engine_options engine = l->engine;
	enum wire_reason reason;
	struct wire_accept grant = {0};
	struct conn_attr attr = {0};
	struct auth_key ticket;
	struct channel_far *far = NULL;

	/* A client without the key gets no engine, and one that has not said a name no memory. */
	reason = engine_key_from(l->engine.key, fabric_request, asked, &ticket, &attr.key);
	if (reason != WIRE_REASON_NONE)
		goto refuse;
	reason = WIRE_REASON_RESOURCES;
	far = channel_far_new(l->size, &l->options);
	grant.message_size = MIN(asked->message_size, engine.message_size);
	engine.fabric = door->fabric;
	engine.message_size = grant.message_size;
	if (!far || engine_create(door->transport, &engine, &far->engine) != 0 ||
	    door_watch("channel", l->epoll, engine_fd(far->engine)) != 0)
		goto refuse;
	channel_far_enter(far);
	if (conn_accept(engine_group(far->engine), fabric_request, asked, &grant, &attr, &channel_far_ops, far,
			time_now(), &far->conn) != 0)
		far->over = true; /* it is refused by now, and is dropped in the next turn */
	auth_wipe(&ticket, sizeof(ticket));
	channel_far_leave(far);
	pending_add(&l->pending, &far->pending, time_now());
	return;

refuse:
	auth_wipe(&ticket, sizeof(ticket));
	conn_refuse(fabric_request, reason, 0);
	if (far)
		channel_far_drop(far);
}

static int listener_accept(struct far_listener *l, struct door *door)
{
	struct fabric_request *asks;
	struct wire_request request;
	int n = door_poll(door);

	/* While there are places. For one more, so that pending connections have their turn before one is dropped. */
	for (; n < EVENTS && (n == 0 || l->pending.count < PENDING_MAX) && pending_has_place(&l->pending, time_now()) &&
	       door_next(door, WIRE_CHANNEL, &request, &asks);
	     n++)
		if (asks)
			client_enter(l, door, asks, &request);
	return n;
}

/* Refuses in words; the connection stays until the client has gone. */
static void client_refuse(struct channel_far *far, enum wire_status status, const char *words)
{
	const struct wire_record head = {.op = WIRE_OP_CHANNEL_OPEN, .flags = WIRE_REPLY, .status = (uint16_t)status};

	log_info("channel", "%s refused: %s", far->peer, words);
	far->state = CHANNEL_FAR_REFUSED;
	if (conn_say(far->conn, &head, words, strlen(words), NULL, 0))
		conn_flush(far->conn);
}

/* Inside. Whether what it asks for is what there is; else it was told. */
static bool client_fits(const struct far_listener *l, struct channel_far *far)
{
	char words[512];

	if (strcmp(far->name, l->name) != 0) {
		snprintf(words, sizeof(words), "nobody listens on a channel \"%s\" here", far->name);
		client_refuse(far, WIRE_NOT_FOUND, words);
		return false;
	}
	if (far->asked.capacity != l->size) {
		snprintf(words, sizeof(words), "the channel's rings have %llu bytes here, not %llu",
			 (unsigned long long)l->size, (unsigned long long)far->asked.capacity);
		client_refuse(far, WIRE_TOO_LARGE, words);
		return false;
	}
	if (far->asked.flags || far->asked.token || channel_far_take_ring(far, &far->asked) != 0) {
		client_refuse(far, WIRE_BAD_REQUEST, "this is a program, not an rdmad, or the ring offered is none");
		return false;
	}
	return true;
}

/* Inside. 0: it has its channel. */
static int client_answer(const struct far_listener *l, struct channel_far *far)
{
	static const struct wire_channel_open open;

	channel_far_name(far);
	if (!client_fits(l, far))
		return -EAGAIN;
	if (channel_far_map(far) != 0) {
		client_refuse(far, WIRE_NO_MEMORY, "the other end has no memory for its rings");
		return -EAGAIN;
	}
	conn_admit(far->conn);
	far->state = CHANNEL_FAR_OPEN;
	return channel_far_say_open(far, &open, "", WIRE_REPLY);
}

/* A turn for one. True: its channel is open; *work: there was some. */
static bool client_turn(struct far_listener *l, struct channel_far *far, bool arm, bool *work)
{
	bool open = false;

	channel_far_enter(far);
	if (arm ? engine_arm(far->engine) : engine_turn(far->engine))
		*work = true;
	if (far->conn && far->state == CHANNEL_FAR_ASKED) {
		open = client_answer(l, far) == 0;
		*work = true;
	}
	channel_far_leave(far);
	if (!open && !far->conn) {
		pending_remove(&l->pending, &far->pending);
		channel_far_drop(far);
	}
	return open;
}

/* Pending connections, then new ones: one that spoke meanwhile is not dropped. The first that has its channel, or
 * NULL. */
static struct channel_far *listener_turn(struct far_listener *l, bool arm, bool *work)
{
	struct list *pos, *tmp;

	*work = false;
	list_for_each_safe (pos, tmp, &l->pending.entries) {
		struct channel_far *far = container_of(pos, struct channel_far, pending.node);

		if (!client_turn(l, far, arm, work))
			continue;
		pending_remove(&l->pending, &far->pending);
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, engine_fd(far->engine), NULL);
		return far;
	}
	pending_turn(&l->pending, time_now());
	for (unsigned i = 0; i < l->doors.count; i++) {
		if (arm)
			fabric_arm(l->doors.door[i].queue);
		if (listener_accept(l, &l->doors.door[i]) > 0)
			*work = true;
	}
	return NULL;
}

static void listener_sleep(struct far_listener *l, uint64_t until)
{
	struct epoll_event event;
	uint64_t now = time_now();

	until = MIN(until, pending_deadline(&l->pending));
	list_for_each (pos, &l->pending.entries) {
		const struct channel_far *far = container_of(pos, struct channel_far, pending.node);

		until = MIN(until, conn_group_deadline(engine_group(far->engine)));
	}
	if (l->pending.crowded && until > now) /* a client that waits would end the sleep again and again */
		poll(NULL, 0, CROWD_INTERVAL);
	else if (until > now)
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

/* Clients that come without a pause do not keep it beyond its time. */
static int far_accept(struct rdmad_channel_listener *listener, uint64_t until, struct rdmad_channel **out)
{
	struct far_listener *l = container_of(listener, struct far_listener, base);
	struct channel_far *far;
	bool work, armed = false;
	unsigned late = 0;

	listener_leave_work(l, false);
	while (!(far = listener_turn(l, armed, &work))) {
		bool idle = !work && armed; /* a sleeper on the descriptor is woken */

		if (time_now() >= until && (idle || ++late == LATE_TURNS)) {
			listener_leave_work(l, !idle || l->pending.crowded);
			return -ETIMEDOUT;
		}
		if (!work && armed)
			listener_sleep(l, until);
		armed = !work && !armed; /* armed, it polls once more */
	}
	*out = &far->channel;
	return 0;
}

static int far_listener_fd(const struct rdmad_channel_listener *listener)
{
	return container_of(listener, const struct far_listener, base)->epoll;
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

	pending_close(&l->pending);
	doors_close(&l->doors);
	engine_key_release(l->engine.key);
	close(l->more);
	close(l->epoll);
	free(l);
}

static const struct channel_listener_ops far_listener_ops = {
	.accept = far_accept,
	.fd = far_listener_fd,
	.close = far_listener_close,
};

int channel_far_listener_issue(struct rdmad_channel_listener *listener, const uint8_t secret[static WIRE_SECRET])
{
	struct far_listener *l = container_of(listener, struct far_listener, base);

	if (listener->ops != &far_listener_ops || !l->engine.key)
		return 0;
	return engine_key_issue(l->engine.key, WIRE_CHANNEL_COUNT(l->name, strlen(l->name)), secret);
}

static struct far_listener *listener_new(const struct channel_url *url, size_t size,
					 const struct rdmad_channel_options *options)
{
	struct far_listener *l = calloc(1, sizeof(*l));
	int error;

	if (!l)
		return NULL;
	l->base.ops = &far_listener_ops;
	pending_init(&l->pending, &clients);
	l->size = size;
	l->options = *options;
	if (options->device) {
		snprintf(l->device, sizeof(l->device), "%s", options->device);
		l->options.device = l->device;
	}
	channel_far_options(&l->options, &l->engine);
	l->engine.away = true;
	snprintf(l->name, sizeof(l->name), "%s", url->name);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->more = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->epoll >= 0 && l->more >= 0 && door_watch("channel", l->epoll, l->more) == 0)
		return l;
	error = errno;
	close(l->more);
	close(l->epoll);
	free(l);
	errno = error;
	return NULL;
}

int channel_far_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel_listener **out)
{
	struct doors_attr attr = {.room = "channel"};
	struct far_listener *l;
	struct address address;
	int rc = fabric_address_parse(url->address, &address);

	if (rc != 0)
		return rc;
	l = listener_new(url, size, options);
	if (!l) {
		rc = -errno;
		log_error("channel", "listening on %s failed: %s", url->address, strerror(-rc));
		return rc;
	}
	listener_url(l, &address);
	attr.url = l->base.url;
	attr.engine = &l->engine;
	attr.epoll = l->epoll;
	rc = engine_key_create(&l->engine.proof, &l->engine.key);
	l->options.common.key_file = l->options.common.server_user = NULL; /* the caller's */
	l->engine.proof = (struct engine_key_source){.file = NULL};
	if (rc == 0)
		rc = doors_open(&l->doors, &attr, &address);
	if (rc != 0) {
		far_listener_close(&l->base);
		return rc;
	}
	listener_url(l, &address);
	*out = &l->base;
	return 0;
}
