/*
 * channel_far_listen.c: the end that is asked. A listener has a door for each transport that its address means. Who connects
 * gets an engine of his own at once, and is a guest until he has asked for the channel by its name and size; then rings are
 * made. There are few places for guests: who comes when there is none waits, until one has his channel, or has said nothing for a
 * while and gives way.
 */
#include "client/channel_far.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GUESTS 16
#define EVENTS GUESTS               /* of a door in a turn */
#define LATE_TURNS 32               /* of an accept whose time is over, while there is work */
#define GUEST_PATIENCE (5 * TIME_S) /* for what a guest asks, and for his taking a refusal */
#define GUEST_STAY (200 * TIME_MS)  /* that he has for it also where others wait at the door */
#define CROWD_LOOK 1                /* ms between two looks while they do */

struct guest {
	struct channel_far *far;
	uint64_t stays; /* until then he does not give way */
	uint64_t deadline;
};

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
	bool crowded; /* there may be some who wait for a place */
	unsigned guests;
	struct doors doors;
	struct guest guest[GUESTS]; /* oldest first */
};

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

/* There is a place for one more, or the one who has said nothing for longest makes one. */
static bool guest_makes_way(struct far_listener *l)
{
	uint64_t now = time_now();

	l->crowded = false;
	if (l->guests < GUESTS)
		return true;
	for (unsigned i = 0; i < l->guests; i++)
		if (l->guest[i].far->state != CHANNEL_FAR_ASKED && now >= l->guest[i].stays) {
			guest_drop(l, i);
			return true;
		}
	l->crowded = true;
	return false;
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
	    door_watch("channel", l->epoll, engine_fd(far->engine)) != 0)
		goto refuse;
	channel_far_enter(far);
	if (conn_accept(engine_group(far->engine), fabric_request, &request, &grant, NULL, &channel_far_ops, far,
			time_now(), &far->conn) != 0)
		far->over = true; /* it is refused by now, and leaves with the next look */
	channel_far_leave(far);
	l->guest[l->guests++] =
		(struct guest){far, time_after(time_now(), GUEST_STAY), time_after(time_now(), GUEST_PATIENCE)};
	return;

refuse:
	conn_refuse(fabric_request, WIRE_REASON_RESOURCES, 0);
	if (far)
		channel_far_drop(far);
}

static int door_turn(struct far_listener *l, struct door *door)
{
	struct fabric_request *asks;
	struct wire_request request;
	int n = door_poll(door);

	/* While there are places. For one more, so that those who are there have their turn before they have to give way. */
	for (; n < EVENTS && (n == 0 || l->guests < GUESTS) && guest_makes_way(l) &&
	       door_next(door, WIRE_CHANNEL, &request, &asks);
	     n++)
		if (asks)
			guest_enters(l, door, asks, &request);
	return n;
}

/* In words, and the connection stays until the guest has gone. */
static void guest_refuse(struct channel_far *far, enum wire_status status, const char *words)
{
	const struct wire_record head = {.op = WIRE_OP_CHANNEL_OPEN, .flags = WIRE_REPLY, .status = (uint16_t)status};

	log_info("channel", "%s refused: %s", far->peer, words);
	far->state = CHANNEL_FAR_REFUSED;
	if (conn_say(far->conn, &head, words, strlen(words), NULL, 0))
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
	conn_admit(far->conn);
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

/* Everybody who spoke or came, in this order: who spoke meanwhile has not to give way. The first who may be let in, or NULL. */
static struct channel_far *listener_turn(struct far_listener *l, bool arm, bool *work)
{
	*work = false;
	for (unsigned i = l->guests; i-- > 0;) {
		struct channel_far *far = l->guest[i].far;

		if (guest_turn(l, i, arm, work) == 0)
			continue;
		guest_leaves(l, i);
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, engine_fd(far->engine), NULL);
		return far;
	}
	for (unsigned i = 0; i < l->doors.count; i++) {
		if (arm)
			fabric_arm(l->doors.door[i].queue);
		if (door_turn(l, &l->doors.door[i]) > 0)
			*work = true;
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
	if (l->crowded && until > now) /* who waits at a door would end the sleep again and again */
		poll(NULL, 0, CROWD_LOOK);
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
			listener_leave_work(l, !idle || l->crowded);
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
	doors_close(&l->doors);
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
	int error;

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
	rc = doors_open(&l->doors, &attr, &address);
	if (rc != 0) {
		far_listener_close(&l->base);
		return rc;
	}
	listener_url(l, &address);
	*out = &l->base;
	return 0;
}
