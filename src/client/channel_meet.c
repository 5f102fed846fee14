/*
 * channel_meet.c: meet:// URLs: two programs that find each other by an rdmad. Who listens on a name says there by which addresses he
 * can be reached: shared memory of this machine, which has the machine's identity in its name, and a far listener on the address
 * by which that rdmad is reached. Who opens the name is told these and tries them. Where none leads to the other, the
 * listener is invited to come to the rdmad, which joins the two.
 */
#include "client/channel_meet.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define TOKENS 64    /* clients that wait to be fetched; more wait with the connection */
#define LOOK TIME_S  /* most between two looks at what the direct listeners' clients do */
#define FETCH TIME_S /* least for one, also where an accept() has less left */
#define LEAVE TIME_S /* most for the rdmad to say that a name is free */

struct meet_listener {
	struct rdmad_channel_listener base;
	struct rdmad_channel_options options;
	char device[80];
	struct channel_url url;
	uint64_t size;
	struct rdmad_channel_listener *direct[2]; /* the nearer first */
	unsigned directs;
	struct engine *engine;
	struct conn *conn; /* NULL: it has ended */
	bool over;         /* a last word was said, or it ended: nothing is to be waited for any more */
	bool listening;
	bool leaving; /* the name was given back */
	int error;
	char why[256];
	uint64_t token[TOKENS];
	unsigned first, tokens;
	int epoll;
	int more; /* an eventfd: an accept() had no time for all that has come */
};

static struct meet_listener *meet_of(const struct rdmad_channel_listener *listener)
{
	return container_of((struct rdmad_channel_listener *)(uintptr_t)listener, struct meet_listener, base);
}

static void meet_established(struct conn *conn)
{
	(void)conn;
}

static int take_answer(struct meet_listener *l, const struct wire_record *record, const void *body)
{
	char words[200];

	if (l->over)
		return -EPROTO;
	l->over = true;
	l->listening = record->status == WIRE_OK;
	if (l->listening)
		return 0;
	l->error = record->status == WIRE_EXISTS ? -EADDRINUSE : wire_status_errno(record->status);
	snprintf(words, sizeof(words), "%.*s", (int)MIN(record->length, 150u), (const char *)body);
	log_printable(words, l->why, sizeof(l->why));
	return 0;
}

static int take_invitation(struct meet_listener *l, const struct wire_record *record, const void *body)
{
	if (l->leaving)
		return 0;
	if (!l->listening || record->length != sizeof(l->token[0]))
		return -EPROTO;
	if (l->tokens == TOKENS)
		return -EAGAIN;
	memcpy(&l->token[(l->first + l->tokens++) % TOKENS], body, sizeof(l->token[0]));
	return 0;
}

static int take_leave(struct meet_listener *l)
{
	if (!l->leaving)
		return -EPROTO;
	l->over = true;
	return 0;
}

static int meet_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct meet_listener *l = conn_context(conn);

	if (record->op == WIRE_OP_CHANNEL_LISTEN && record->flags == WIRE_REPLY)
		return take_answer(l, record, body);
	if (record->op == WIRE_OP_CHANNEL_INVITE && !record->flags)
		return take_invitation(l, record, body);
	if (record->op == WIRE_OP_CHANNEL_LEAVE && record->flags == WIRE_REPLY)
		return take_leave(l);
	return -EPROTO;
}

static void meet_closed(struct conn *conn, int error, const char *reason)
{
	struct meet_listener *l = conn_context(conn);

	if (client_was_ended(error, reason))
		snprintf(l->why, sizeof(l->why), "the connection to the rdmad ended: %s", reason);
	l->conn = NULL;
	l->over = true;
	l->listening = false;
	l->error = error && error != -ETIMEDOUT ? error : -ECONNRESET;
}

static const struct conn_ops meet_ops = {
	.established = meet_established,
	.record = meet_record,
	.closed = meet_closed,
};

/* Others need to know by which interface, which each has numbers of its own for. */
static bool is_link_local(const struct sockaddr_storage *sa)
{
	return sa->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

/* This machine's address on the way to the rdmad, as text; empty: there is none that is the same for others. */
static void own_address(const char *rdmad, char *buf, size_t size)
{
	struct address_socket at[ADDRESS_SOCKETS];
	struct address address;
	struct sockaddr_storage own;
	const void *number = &((struct sockaddr_in6 *)&own)->sin6_addr;
	char text[INET6_ADDRSTRLEN];
	int count, fd;

	buf[0] = 0;
	count = address_parse(rdmad, &address) == 0 ? address_resolve(&address, at) : 0;
	for (int i = 0; i < count && !buf[0]; i++) {
		socklen_t len = sizeof(own);

		fd = socket(at[i].sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		if (connect(fd, (struct sockaddr *)&at[i].sa, at[i].len) == 0 &&
		    getsockname(fd, (struct sockaddr *)&own, &len) == 0 && !is_link_local(&own)) {
			if (own.ss_family == AF_INET)
				number = &((struct sockaddr_in *)&own)->sin_addr;
			if (inet_ntop(own.ss_family, number, text, sizeof(text)))
				snprintf(buf, size, own.ss_family == AF_INET ? "%s" : "[%s]", text);
		}
		close(fd);
	}
}

/* What cannot be listened on is no address, and no error: there is always the way through the rdmad. */
static void add_direct(struct meet_listener *l, const char *url)
{
	struct rdmad_channel_listener **direct = &l->direct[l->directs];
	struct channel_url parsed;
	int rc;

	log_hush_begin();
	rc = channel_url_parse(url, &parsed);
	if (rc == 0)
		rc = (parsed.scheme == CHANNEL_SHM ? channel_shm_listen : channel_far_listen)(&parsed, l->size,
											      &l->options, direct);
	if (rc == 0 && door_watch("channel", l->epoll, (*direct)->ops->fd(*direct)) != 0)
		(*direct)->ops->close(*direct);
	else if (rc == 0)
		l->directs++;
	log_hush_end();
}

static void add_shm(struct meet_listener *l)
{
	char url[160], buf[CHANNEL_MACHINE_MAX];
	uint64_t random;

	if (!*channel_machine(buf) || getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		return;
	snprintf(url, sizeof(url), CHANNEL_SHM_SCHEME "%s.%llx", buf, (unsigned long long)random);
	add_direct(l, url);
}

static void add_far(struct meet_listener *l)
{
	char url[300], own[64];

	own_address(l->url.address, own, sizeof(own));
	if (!*own)
		return;
	snprintf(url, sizeof(url), "%s:0/%s", own, l->url.name);
	add_direct(l, url);
}

/* Behind the name: the direct listeners' URLs without theirs. */
static size_t put_addresses(const struct meet_listener *l, char *out, size_t size)
{
	size_t used = 0, len;

	for (unsigned i = 0; i < l->directs; i++) {
		const char *url = l->direct[i]->url, *end = strrchr(url, '/');

		len = strncmp(url, CHANNEL_SHM_SCHEME, strlen(CHANNEL_SHM_SCHEME)) == 0 ? strlen(url)
											: (size_t)(end - url);
		if (used + len + 1 > size)
			break;
		if (used)
			out[used++] = ' ';
		memcpy(out + used, url, len);
		used += len;
	}
	return used;
}

/* Inside. */
static int meet_say_listen(struct meet_listener *l, uint64_t timeout)
{
	size_t len = strlen(l->url.name);
	struct wire_channel_listen listen = {.capacity = l->size, .name_len = (uint32_t)len};
	char text[RDMAD_CHANNEL_NAME_MAX + WIRE_CHANNEL_ADDRESSES_MAX];
	const struct wire_record head = {.op = WIRE_OP_CHANNEL_LISTEN};
	int rc;

	memcpy(text, l->url.name, len);
	len += put_addresses(l, text + len, WIRE_CHANNEL_ADDRESSES_MAX);
	if (!l->conn || !conn_say(l->conn, &head, &listen, sizeof(listen), text, len))
		return -ECONNRESET; /* the first record of a connection always has room */
	rc = engine_wait(l->engine, &l->over, timeout);
	return rc == 0 ? l->error : rc;
}

static int meet_connect(struct meet_listener *l)
{
	struct wire_request request = {
		.service = WIRE_CHANNEL,
		.count = WIRE_CHANNEL_COUNT(l->url.name, strlen(l->url.name)),
	};
	struct engine_options engine;
	int rc;

	channel_far_options(&l->options, &engine);
	request.credits = (uint16_t)engine.credits;
	request.message_size = engine.message_size;
	rc = client_connect(l->url.address, &engine, NULL, &request, &meet_ops, l, &l->engine, &l->conn);
	if (rc != 0)
		return rc;
	rc = meet_say_listen(l, engine.connect_timeout);
	engine_leave(l->engine);
	if (rc != 0)
		log_error("channel", "cannot listen on %s: %s", l->base.url, l->why[0] ? l->why : strerror(-rc));
	return rc == 0 ? door_watch("channel", l->epoll, engine_fd(l->engine)) : rc;
}

/* Inside. The name is free then, and may be listened on at once. Where an rdmad does not say so in time, it frees the name when
 * it has seen the connection's end. */
static void meet_say_leave(struct meet_listener *l)
{
	const struct wire_record head = {.op = WIRE_OP_CHANNEL_LEAVE};

	if (!l->listening || !conn_say(l->conn, &head, NULL, 0, NULL, 0))
		return;
	l->leaving = true;
	l->over = false;
	engine_wait(l->engine, &l->over, LEAVE);
}

static void meet_listener_close(struct rdmad_channel_listener *listener)
{
	struct meet_listener *l = meet_of(listener);

	if (l->engine) {
		engine_enter(l->engine);
		meet_say_leave(l);
		l->over = !l->conn;
		client_disconnect(l->engine, l->conn, &l->over);
		engine_leave(l->engine);
		engine_release(l->engine);
	}
	while (l->directs > 0) {
		l->directs--;
		l->direct[l->directs]->ops->close(l->direct[l->directs]);
	}
	close(l->more);
	close(l->epoll);
	free(l);
}

/* The next who waits at the rdmad. -EAGAIN: nobody, or he has gone. */
static int meet_fetch(struct meet_listener *l, uint64_t until, struct rdmad_channel **out)
{
	struct channel_far_ask ask = {.address = l->url.address, .name = l->url.name, .size = l->size};
	struct rdmad_channel_options timed = l->options;
	struct engine_options engine;
	uint64_t now = time_now();

	if (!l->tokens)
		return -EAGAIN;
	ask.token = l->token[l->first];
	l->first = (l->first + 1) % TOKENS;
	l->tokens--;
	channel_far_options(&l->options, &engine);
	until = MIN(MAX(until, time_after(now, FETCH)), time_after(now, engine.connect_timeout));
	channel_give_time(&timed, until, 1);
	return channel_meet_ask(&ask, &timed, out) == 0 ? 0 : -EAGAIN;
}

/* One look at all from where a client may come. -EAGAIN: nobody; *work: but something was done. */
static int meet_look(struct meet_listener *l, bool arm, uint64_t until, bool *work, struct rdmad_channel **out)
{
	int rc, n;

	for (unsigned i = 0; i < l->directs; i++) {
		rc = l->direct[i]->ops->accept(l->direct[i], 0, out);
		if (rc != -ETIMEDOUT)
			return rc;
	}
	engine_enter(l->engine);
	n = arm ? engine_arm(l->engine) : engine_turn(l->engine);
	engine_leave(l->engine);
	*work = n != 0 || l->tokens;
	rc = meet_fetch(l, until, out);
	if (rc == 0 || l->listening)
		return rc;
	log_error("channel", "%s: %s", l->base.url, l->why);
	return l->error;
}

static void meet_sleep(const struct meet_listener *l, uint64_t until)
{
	struct epoll_event event;
	uint64_t now = time_now();

	until = MIN(MIN(until, conn_group_deadline(engine_group(l->engine))), now + LOOK);
	if (until > now)
		epoll_wait(l->epoll, &event, 1, (int)((until - now) / TIME_MS) + 1);
}

/* The descriptor is readable, or is so by what comes alone. */
static void meet_say_more(const struct meet_listener *l, bool more)
{
	if (more)
		eventfd_write(l->more, 1);
	else
		eventfd_read(l->more, &(eventfd_t){0});
}

static int meet_accept(struct rdmad_channel_listener *listener, uint64_t until, struct rdmad_channel **out)
{
	struct meet_listener *l = meet_of(listener);
	bool arm = false, work = false;
	int rc;

	meet_say_more(l, false);
	for (unsigned round = 0; (rc = meet_look(l, arm, until, &work, out)) == -EAGAIN; round++) {
		bool armed = arm && !work;

		if (round && (armed || work) && time_now() >= until) {
			meet_say_more(l, work);
			return -ETIMEDOUT;
		}
		arm = !work && !armed;
		if (armed)
			meet_sleep(l, until);
	}
	meet_say_more(l, rc == 0);
	return rc;
}

static int meet_listener_fd(const struct rdmad_channel_listener *listener)
{
	return meet_of(listener)->epoll;
}

static const struct channel_listener_ops meet_listener_ops = {
	.accept = meet_accept,
	.fd = meet_listener_fd,
	.close = meet_listener_close,
};

static int meet_open_descriptors(struct meet_listener *l)
{
	int rc;

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->more = l->epoll < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = l->more < 0 ? -errno : door_watch("channel", l->epoll, l->more);
	if (rc == 0)
		return 0;
	log_error("channel", "cannot listen on %s: %s", l->base.url, strerror(-rc));
	if (l->more >= 0)
		close(l->more);
	if (l->epoll >= 0)
		close(l->epoll);
	return rc;
}

int channel_meet_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
			struct rdmad_channel_listener **out)
{
	struct meet_listener *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->base.ops = &meet_listener_ops;
	snprintf(l->base.url, sizeof(l->base.url), "meet://%s/%s", url->address, url->name);
	l->url = *url;
	l->size = size;
	l->options = *options;
	if (options->device) {
		snprintf(l->device, sizeof(l->device), "%s", options->device);
		l->options.device = l->device;
	}
	rc = meet_open_descriptors(l);
	if (rc != 0) {
		free(l);
		return rc;
	}
	if (!options->common.require_rdma)
		add_shm(l);
	add_far(l);
	rc = meet_connect(l);
	if (rc == 0)
		*out = &l->base;
	else
		meet_listener_close(&l->base);
	return rc;
}
