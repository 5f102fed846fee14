/*
 * meet_listen.c: meet:// URLs: two programs that find each other by an rdmad. A listener on a name says there by which
 * addresses it can be reached: shared memory of this machine, which has the machine's identity in its name, and a far
 * listener on the address by which that rdmad is reached. The opener of the name is told these and tries them. Where
 * none leads to the other, the listener is invited to come to the rdmad, which joins the two.
 */
#include "channel/meet.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define TOKENS 64             /* clients that wait to be fetched; more wait with the connection */
#define CHECK_INTERVAL TIME_S /* most between two polls of what the direct listeners' clients do */
#define FETCH TIME_S          /* least for one, also where an accept() has less left */
#define LEAVE TIME_S          /* most for the rdmad to say that a name is free */

struct meet_listener {
	struct rdmad_channel_listener base;
	struct rdmad_channel_options options;
	struct engine_key *key; /* of its file, which is read once; NULL: none */
	char device[80];
	struct channel_url url;
	uint64_t size;
	struct rdmad_channel_listener *direct[2]; /* the nearer first */
	unsigned directs;
	struct engine *engine;
	struct conn *conn; /* NULL: it has ended */
	bool over;         /* a last word was said, or it ended: nothing is to be waited for any more */
	bool listening;
	bool leaving;                /* the name was given back */
	uint8_t secret[WIRE_SECRET]; /* of which rdmad makes tickets, if both have a key */
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

static int meet_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct meet_listener *l = conn_context(conn);
	char words[200];

	if (record->op == WIRE_OP_CHANNEL_LISTEN && record->flags == WIRE_REPLY && !l->over) {
		l->over = true;
		l->listening = record->status == WIRE_OK;
		if (l->listening)
			return 0;
		l->error = record->status == WIRE_EXISTS ? -EADDRINUSE : wire_status_errno(record->status);
		snprintf(words, sizeof(words), "%.*s", (int)MIN(record->length, 150u), (const char *)body);
		log_printable(words, l->why, sizeof(l->why));
		return 0;
	}
	if (record->op == WIRE_OP_CHANNEL_INVITE && !record->flags) {
		if (l->leaving)
			return 0;
		if (!l->listening || record->length != sizeof(l->token[0]))
			return -EPROTO;
		if (l->tokens == TOKENS)
			return -EAGAIN;
		memcpy(&l->token[(l->first + l->tokens++) % TOKENS], body, sizeof(l->token[0]));
		return 0;
	}
	if (record->op == WIRE_OP_CHANNEL_LEAVE && record->flags == WIRE_REPLY && l->leaving) {
		l->over = true;
		return 0;
	}
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
		/* A link-local address needs the interface, too, which each machine numbers by itself. */
		if (connect(fd, (struct sockaddr *)&at[i].sa, at[i].len) == 0 &&
		    getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
		    !(own.ss_family == AF_INET6 &&
		      IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)&own)->sin6_addr))) {
			if (own.ss_family == AF_INET)
				number = &((struct sockaddr_in *)&own)->sin_addr;
			if (inet_ntop(own.ss_family, number, text, sizeof(text)))
				snprintf(buf, size, own.ss_family == AF_INET ? "%s" : "[%s]", text);
		}
		close(fd);
	}
}

/* An address that cannot be listened on is left out. It is no error: the way through the rdmad is always there. */
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

/* Writes the direct listeners' URLs, without their names, behind the name. */
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

/* Clients that rdmad sends need not have this program's key. */
static bool meet_issues(struct meet_listener *l)
{
	if (!conn_seals(l->conn) || random_fill(l->secret, sizeof(l->secret)) != 0)
		return false;
	for (unsigned i = 0; i < l->directs; i++)
		if (channel_far_listener_issue(l->direct[i], l->secret) != 0)
			return false;
	return true;
}

/* Inside. */
static int meet_say_listen(struct meet_listener *l, uint64_t timeout)
{
	size_t len = strlen(l->url.name);
	struct wire_channel_listen listen = {.capacity = l->size, .name_len = (uint32_t)len};
	char text[RDMAD_CHANNEL_NAME_MAX + WIRE_CHANNEL_ADDRESSES_MAX + WIRE_SEALED];
	const struct wire_record head = {.op = WIRE_OP_CHANNEL_LISTEN};
	int rc;

	memcpy(text, l->url.name, len);
	len += put_addresses(l, text + len, WIRE_CHANNEL_ADDRESSES_MAX);
	if (l->conn && meet_issues(l)) {
		listen.flags |= WIRE_CHANNEL_ISSUES;
		conn_seal(l->conn, l->secret, sizeof(l->secret), text + len);
		len += WIRE_SEALED;
	}
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
	engine.key = l->key;
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

static void meet_listener_close(struct rdmad_channel_listener *listener)
{
	const struct wire_record leave = {.op = WIRE_OP_CHANNEL_LEAVE};
	struct meet_listener *l = meet_of(listener);

	if (l->engine) {
		engine_enter(l->engine);
		/* The name is free after the answer, and may be listened on at once. Where an rdmad does not answer in
		 * time, it frees the name when it has seen the connection's end. */
		if (l->listening && conn_say(l->conn, &leave, NULL, 0, NULL, 0)) {
			l->leaving = true;
			l->over = false;
			engine_wait(l->engine, &l->over, LEAVE);
		}
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
	auth_wipe(l->secret, sizeof(l->secret));
	engine_key_release(l->key);
	free(l);
}

/* The next client that waits at the rdmad. -EAGAIN: there is no other, or it has gone. */
static int meet_fetch(struct meet_listener *l, uint64_t until, struct rdmad_channel **out)
{
	struct channel_far_ask ask = {.address = l->url.address, .name = l->url.name, .size = l->size, .key = l->key};
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

/* Polls all from where a client may come. -EAGAIN: no client; *work: but something was done. */
static int meet_poll(struct meet_listener *l, bool arm, uint64_t until, bool *work, struct rdmad_channel **out)
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
	struct epoll_event event;
	uint64_t now, sleep;
	int rc;

	meet_say_more(l, false);
	for (unsigned round = 0; (rc = meet_poll(l, arm, until, &work, out)) == -EAGAIN; round++) {
		bool armed = arm && !work;

		if (round && (armed || work) && time_now() >= until) {
			meet_say_more(l, work);
			return -ETIMEDOUT;
		}
		arm = !work && !armed;
		if (!armed)
			continue;
		now = time_now();
		sleep = MIN(MIN(until, conn_group_deadline(engine_group(l->engine))), now + CHECK_INTERVAL);
		if (sleep > now)
			epoll_wait(l->epoll, &event, 1, (int)((sleep - now) / TIME_MS) + 1);
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
	char machine[CHANNEL_MACHINE_MAX], own[64], direct[300];
	struct engine_options engine;
	uint64_t random;
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
	if (!options->common.require_rdma && *channel_machine(machine) &&
	    getrandom(&random, sizeof(random), GRND_NONBLOCK) == sizeof(random)) {
		snprintf(direct, sizeof(direct), CHANNEL_SHM_SCHEME "%s.%llx", machine, (unsigned long long)random);
		add_direct(l, direct);
	}
	own_address(l->url.address, own, sizeof(own));
	if (*own) {
		snprintf(direct, sizeof(direct), "%s:0/%s", own, l->url.name);
		add_direct(l, direct);
	}
	engine_options_from(&options->common, &engine);
	rc = engine_key_create(&engine.proof, &l->key);
	l->options.common.key_file = l->options.common.server_user = NULL; /* the caller's */
	if (rc == 0)
		rc = meet_connect(l);
	if (rc == 0)
		*out = &l->base;
	else
		meet_listener_close(&l->base);
	return rc;
}
