/* conn_open.c: what both ends of a far channel need to begin, and the end that connects and asks. */
#include "channel/conn.h"

#include <poll.h>
#include <unistd.h>

#define KEEPALIVE (30 * TIME_S)
#define PAUSE_FIRST (10 * TIME_MS) /* before a listener that has dropped the client is asked again, then twice that */
#define PAUSE_MOST (500 * TIME_MS)

void channel_far_options(const struct rdmad_channel_options *options, struct engine_options *out)
{
	engine_options_from(&options->common, out);
	out->keepalive = KEEPALIVE;
	out->transfers = CHANNEL_FAR_WRITES;
	out->connections = 1;
	out->device = options->device;
	out->progress_thread = false;
}

int channel_far_map(struct channel_far *far)
{
	struct fabric_domain *domain = conn_group_domain(engine_group(far->engine));
	struct channel_mirror *in = &far->channel.in.mirror, *out = &far->channel.out.mirror;
	size_t size = channel_mirror_size(far->channel.capacity);
	int rc, fd = channel_memory_create(2 * size);

	if (fd < 0)
		return fd;
	rc = channel_mirror_map(fd, 0, size, in);
	if (rc == 0)
		rc = channel_mirror_map(fd, (off_t)size, size, out);
	close(fd);
	if (far->relayed)
		return rc; /* no thread writes to it */
	if (rc == 0)
		rc = fabric_register(domain, in->data, 2 * size, FABRIC_REMOTE_WRITE, &far->in);
	if (rc == 0)
		rc = fabric_register(domain, out->data, 2 * size, 0, &far->out);
	return rc;
}

int channel_far_say_open(struct channel_far *far, const struct wire_channel_open *ask, const char *name, unsigned flags)
{
	const struct wire_record head = {.op = WIRE_OP_CHANNEL_OPEN, .flags = (uint8_t)flags};
	struct wire_channel_open open = *ask;

	if (!far->conn)
		return -ECONNRESET;
	open.capacity = far->channel.capacity;
	if (far->in) {
		open.addr = (uintptr_t)far->channel.in.mirror.data;
		open.ring = far->channel.in.mirror.size;
		open.rkey = fabric_region_rkey(far->in, conn_endpoint(far->conn));
	}
	if (!conn_say(far->conn, &head, &open, sizeof(open), name, strlen(name)))
		return -ECONNRESET; /* the first record of a connection always has room */
	conn_flush(far->conn);
	return 0;
}

int channel_far_take_ring(struct channel_far *far, const struct wire_channel_open *open)
{
	if (open->capacity != far->channel.capacity)
		return -EPROTO;
	if (open->addr &&
	    (open->ring < open->capacity || open->ring > UINT64_MAX / 4 || open->addr > UINT64_MAX - 2 * open->ring))
		return -EPROTO;
	far->remote_addr = far->relayed ? 0 : open->addr;
	far->remote_ring = open->ring;
	far->remote_rkey = open->rkey;
	return 0;
}

void channel_far_name(struct channel_far *far)
{
	struct conn_info info;

	conn_get_info(far->conn, &info);
	far->by = conn_transport(far->conn);
	snprintf(far->peer, sizeof(far->peer), "%s", info.peer);
}

/* Inside. */
static int far_say_ask(struct channel_far *far, const struct channel_far_ask *ask, uint64_t timeout)
{
	struct wire_channel_open open = {.flags = ask->flags, .token = ask->token};
	int rc = channel_far_map(far);

	if (rc != 0)
		return rc;
	channel_far_name(far);
	far->state = CHANNEL_FAR_ASKING;
	rc = channel_far_say_open(far, &open, ask->name, 0);
	if (rc == 0)
		rc = engine_wait(far->engine, &far->over, timeout);
	return rc == 0 ? far->error : rc;
}

/* *asked: the error is that of the question, and is not logged yet. */
static int far_connect(struct channel_far *far, const struct channel_far_ask *ask, const struct engine_options *engine,
		       bool *asked)
{
	struct wire_request request = {
		.service = WIRE_CHANNEL,
		.count = WIRE_CHANNEL_COUNT(ask->name, strlen(ask->name)),
		.size = ask->ticket ? ask->ticket->serial : 0,
		.credits = (uint16_t)engine->credits,
		.message_size = engine->message_size,
	};
	uint64_t began = time_now(), spent;
	int rc = client_connect(ask->address, engine, NULL, &request, &channel_far_ops, far, &far->engine, &far->conn);

	*asked = rc == 0;
	if (rc != 0)
		return rc;
	if (ask->connected)
		*ask->connected = true;
	engine_leave(far->engine);
	channel_far_enter(far);
	spent = time_now() - began;
	rc = far_say_ask(far, ask, engine->connect_timeout - MIN(spent, engine->connect_timeout));
	channel_far_leave(far);
	return rc;
}

/* One attempt. *again: the connection ended before the question was answered, or asked, and before `latest`. A listener
 * that many ask at once does that to the pending connection that has said nothing for longest. */
static int far_try(const struct channel_far_ask *ask, const struct rdmad_channel_options *options,
		   const struct engine_options *engine, uint64_t latest, bool *again, struct rdmad_channel **out)
{
	struct channel_far *far = channel_far_new(ask->size, options);
	char words[512];
	bool asked;
	int rc;

	*again = false;
	if (!far)
		return -ENOMEM;
	far->moved = ask->moved;
	far->moved_size = ask->moved_size;
	far->issued = ask->issued;
	far->relayed = !engine->away;
	rc = far_connect(far, ask, engine, &asked);
	if (rc == 0) {
		far->moved = NULL;
		far->issued = NULL;
		*out = &far->channel;
		return 0;
	}
	*again = rc == -ECONNRESET && (!asked || far->state == CHANNEL_FAR_ASKING) && engine->away &&
		 time_now() < latest;
	if (asked && rc == -ETIMEDOUT)
		log_error("channel", "%s/%s: nobody accepted in time; does its server call rdmad_channel_accept()?",
			  ask->address, ask->name);
	else if (asked && rc != -EREMOTE &&
		 !*again) /* in the words of the end that refused, or of the connection's end */
		log_error("channel", "cannot open %s%s%s: %s", ask->address, *ask->name ? "/" : "", ask->name,
			  log_printable(far->why[0] ? far->why : strerror(-rc), words, sizeof(words)));
	channel_far_drop(far);
	return rc;
}

int channel_far_ask(const struct channel_far_ask *ask, const struct rdmad_channel_options *options,
		    struct rdmad_channel **out)
{
	struct pauses pauses = {PAUSE_FIRST, PAUSE_MOST};
	uint64_t now = time_now(), until;
	struct engine_options engine;
	bool again;
	int rc;

	channel_far_options(options, &engine);
	engine.away = !ask->moved && !ask->token && !(ask->flags & WIRE_CHANNEL_RELAY); /* an rdmad never is */
	if (ask->message_size)
		engine.message_size = ask->message_size;
	until = time_after(now, engine.connect_timeout);
	engine.key = ask->key;
	if (ask->ticket && engine_key_of_ticket(ask->ticket->secret, &engine.key) != 0)
		return -ENOMEM;
	while ((rc = far_try(ask, options, &engine, until - 2 * pauses.next, &again, out)) != 0 && again) {
		poll(NULL, 0, (int)(pauses_take(&pauses) / TIME_MS));
		now = time_now();
		engine.connect_timeout = until - MIN(now, until - TIME_MS);
	}
	if (ask->ticket)
		engine_key_release(engine.key);
	return rc;
}

int channel_far_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		     struct rdmad_channel **out)
{
	struct channel_far_ask ask = {.address = url->address, .name = url->name, .size = size};

	return channel_far_ask(&ask, options, out);
}
