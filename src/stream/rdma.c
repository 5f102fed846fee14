/* rdma.c: streams of Valkey's clients over RDMA: connections, messages, what comes, and when a client is cut off. */
#include "stream/rdma.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define BATCH 32             /* completions by one call */
#define TURN_COMPLETIONS 256 /* and in one turn */
#define TURN_EVENTS 32
#define KEEPALIVE (3 * TIME_S) /* without anything sent, until a client's host is asked */
#define MESSAGES 64u           /* that a client may send in any case ... */
#define MESSAGES_PER_SECOND 4u /* ... and more with the time ... */
#define MESSAGES_BYTES 1024u   /* ... and with so many bytes of answers each */

static char *receive_at(const struct stream *s, unsigned i)
{
	return rdma_stage(s) + RDMA_STAGE + i * sizeof(struct rdma_message);
}

static size_t buffer_size(const struct stream_group *group)
{
	return 2 * (size_t)group->attr.rdma.window + RDMA_STAGE + RDMA_RECEIVES * sizeof(struct rdma_message);
}

/*
 * Messages.
 */

static int send_message(struct stream *s, enum rdma_opcode opcode)
{
	struct rdma_message m = {.opcode = htons((uint16_t)opcode)};
	struct fabric_wr wr = {.opcode = FABRIC_SEND, .sge_count = 1, .sge = {{.addr = &m, .len = sizeof(m)}}};
	struct rdma_stream *r = s->rdma;
	const struct rdma_window *w = &r->in.window[r->in.fills];

	if (opcode == RDMA_GET_FEATURES)
		m.select = r->select;
	if (opcode == RDMA_REGISTER) {
		m.addr = htobe64((uintptr_t)w->at);
		m.len = htonl(rdma_window_size(s));
		m.key = htonl(fabric_window_rkey(w->handle));
	}
	return stream_rdma_post(s, &wr, 1, false);
}

static void say_owed(struct stream *s)
{
	static const enum rdma_opcode order[] = {RDMA_REGISTER, RDMA_GET_FEATURES, RDMA_KEEPALIVE};
	struct rdma_stream *r = s->rdma;

	for (unsigned i = 0; i < ARRAY_SIZE(order) && r->owed && r->state == RDMA_LIVE; i++) {
		int rc;

		if (!(r->owed & 1u << order[i]))
			continue;
		if (!rdma_has_slots(r, 1))
			return; /* until requests end */
		rc = send_message(s, order[i]);
		if (rc == -ENOTCONN)
			return; /* its end is on its way */
		if (rc != 0)
			stream_broken(s, rc);
		r->owed &= ~(1u << order[i]);
	}
}

/* Offer the client the window after the one that it filled, if all of that was used. */
static void window_offer(struct rdma_stream *r)
{
	unsigned next = r->in.fills ^ 1;

	if (r->in.open || r->state != RDMA_LIVE || r->in.window[next].came)
		return;
	r->in.fills = next;
	r->in.open = true;
	r->owed |= 1u << RDMA_REGISTER;
}

static void count_message(struct stream *s)
{
	uint64_t seconds = (s->group->now - s->opened) / TIME_S;

	/* Few are needed: as windows are filled. */
	if (++s->rdma->messages > MESSAGES + MESSAGES_PER_SECOND * seconds + s->out.left / MESSAGES_BYTES)
		stream_close(s, -EPROTO, "%llu messages without need", (unsigned long long)s->rdma->messages);
}

static void client_registered(struct stream *s, const struct rdma_message *m)
{
	struct rdma_stream *r = s->rdma;

	if (r->out.known && r->out.used < r->out.len) {
		stream_close(s, -EPROTO, "it registered again, with %u bytes left of its window",
			     r->out.len - r->out.used);
		return;
	}
	if (!m->len) {
		stream_close(s, -EPROTO, "it registered no memory");
		return;
	}
	r->out.addr = be64toh(m->addr);
	r->out.len = ntohl(m->len);
	r->out.key = ntohl(m->key);
	r->out.used = 0;
	r->out.known = true;
	s->writable = r->state == RDMA_LIVE;
}

static void message_came(struct stream *s, const char *at, uint32_t bytes)
{
	struct rdma_message m;

	if (bytes != sizeof(m)) {
		stream_close(s, -EPROTO, "a message of %u bytes", bytes);
		return;
	}
	memcpy(&m, at, sizeof(m));
	count_message(s);
	switch (ntohs(m.opcode)) {
	case RDMA_GET_FEATURES:
		s->rdma->select = m.select;
		s->rdma->owed |= 1u << RDMA_GET_FEATURES;
		break;
	case RDMA_SET_FEATURES: /* there are none yet, and it has no answer */
	case RDMA_KEEPALIVE:
		break;
	case RDMA_REGISTER:
		client_registered(s, &m);
		break;
	default:
		stream_close(s, -EPROTO, "a message of the unknown kind %u", ntohs(m.opcode));
	}
}

static void bytes_came(struct stream *s, uint32_t bytes)
{
	struct rdma_stream *r = s->rdma;
	struct rdma_window *w = &r->in.window[r->in.fills];
	uint32_t left = r->in.open ? rdma_window_size(s) - w->came : 0;

	if (bytes > left) {
		stream_close(s, -EPROTO, "%u bytes, and its window has room for %u", bytes, left);
		return;
	}
	if (!bytes)
		count_message(s);
	w->came += bytes;
	r->in.open = bytes < left;
	window_offer(r);
	s->readable = true;
}

/*
 * Connections.
 */

static int post_receives(struct stream *s, unsigned first, unsigned count)
{
	struct fabric_recv recv[BATCH];
	int rc = 0;

	while (count && rc == 0) {
		unsigned n = MIN(count, (unsigned)BATCH);

		for (unsigned i = 0; i < n; i++) {
			unsigned at = (first + i) % RDMA_RECEIVES;

			recv[i] = (struct fabric_recv){
				.id = at,
				.sge = {receive_at(s, at), sizeof(struct rdma_message), s->rdma->buffer->region}};
		}
		rc = fabric_post_recv(s->group->rdma->queue, s->rdma->endpoint, recv, n);
		first += n;
		count -= n;
	}
	return rc;
}

/* The client may send now, and write into windows of its own. */
static void stream_established(struct stream *s)
{
	struct rdma_stream *r = s->rdma;
	int rc = 0;

	for (unsigned i = 0; i < 2 && rc == 0; i++) {
		struct rdma_window *w = &r->in.window[i];

		rc = fabric_window_open(r->endpoint, r->buffer->region, w->at, rdma_window_size(s), FABRIC_REMOTE_WRITE,
					&w->handle);
		r->out.posted += rc == 0;
	}
	if (rc != 0) {
		stream_broken(s, rc);
		return;
	}
	r->state = RDMA_LIVE;
	r->last = s->group->now;
	s->writable = r->out.known;
	window_offer(r);
}

static void on_event(const struct fabric_event *event)
{
	struct stream *s = event->context;

	if (!event->endpoint)
		return;
	if (event->type != FABRIC_ESTABLISHED) {
		s->rdma->state = RDMA_GONE;
		s->ended = s->readable = s->writable = true;
	} else if (s->rdma->state == RDMA_CONNECTING) {
		stream_established(s);
	}
	if (event->type == FABRIC_REMOVED)
		stream_broken(s, event->error);
	stream_make_ready(s);
}

static void on_failure(struct stream *s, enum fabric_status status)
{
	if (status == FABRIC_FLUSHED) /* the cause came before, or its end follows */
		return;
	if (status == FABRIC_REMOTE_ACCESS || status == FABRIC_LOCAL_ERROR || status == FABRIC_REMOTE_ERROR)
		stream_close(s, -EPROTO, "%s", fabric_status_text(status));
	else
		stream_close(s, -EHOSTUNREACH, "%s", fabric_status_text(status));
}

static void on_completion(const struct fabric_completion *c)
{
	struct stream *s = c->context;

	if (!c->endpoint)
		return;
	if (c->status != FABRIC_OK) {
		on_failure(s, c->status);
		return;
	}
	if (c->opcode != FABRIC_RECV && c->opcode != FABRIC_RECV_IMM) {
		stream_rdma_sent(s);
		return;
	}
	if (!s->error && c->opcode == FABRIC_RECV)
		message_came(s, receive_at(s, (unsigned)c->id), c->bytes);
	else if (!s->error)
		bytes_came(s, c->imm);
	s->rdma->in.taken++;
	stream_make_ready(s);
}

int stream_rdma_poll(struct stream_group *group)
{
	struct fabric_completion completion[BATCH];
	struct fabric_event event;
	int sum = 0, n;

	if (!group->rdma || !group->rdma->streams)
		return 0;
	do {
		n = fabric_poll(group->rdma->queue, completion, BATCH);
		for (int i = 0; i < n; i++)
			on_completion(&completion[i]);
		sum += MAX(n, 0);
	} while (n == BATCH && sum < TURN_COMPLETIONS);
	for (n = 0; n < TURN_EVENTS && fabric_next_event(group->rdma->queue, &event); n++)
		on_event(&event);
	return sum + n;
}

/*
 * The row.
 */

static ssize_t rdma_receive(struct stream *s, void *to, size_t len)
{
	struct rdma_stream *r = s->rdma;
	char *at = to;

	while (len) {
		struct rdma_window *w = &r->in.window[r->in.reads];
		uint32_t n = (uint32_t)MIN(len, (size_t)(w->came - w->used));

		if (!n)
			break;
		memcpy(at, w->at + w->used, n);
		at += n;
		len -= n;
		w->used += n;
		if (w->used < rdma_window_size(s))
			continue;
		w->came = w->used = 0;
		r->in.reads ^= 1;
		window_offer(r);
	}
	if (at > (char *)to)
		return at - (char *)to;
	return r->state == RDMA_GONE ? 0 : -EAGAIN;
}

static void rdma_visited(struct stream *s)
{
	struct rdma_stream *r = s->rdma;
	unsigned count = r->in.taken;
	int rc = count && !s->error ? post_receives(s, r->in.first, count) : 0;

	r->in.first = (r->in.first + count) % RDMA_RECEIVES;
	r->in.taken = 0;
	if (rc != 0 && rc != -ENOTCONN)
		stream_broken(s, rc);
	if (r->owed && !s->error)
		say_owed(s);
}

static void rdma_look(struct stream *s)
{
	uint64_t now = s->group->now, patience = s->group->attr.rdma.handshake;
	struct rdma_stream *r = s->rdma;

	if (patience && now - s->opened > patience && r->state == RDMA_CONNECTING)
		stream_close(s, -ETIMEDOUT, "its connection was not established");
	else if (patience && now - s->opened > patience && !r->out.known)
		stream_close(s, -EPROTO, "it registered no memory for its answers");
	else if (s->group->attr.keepalive && r->state == RDMA_LIVE && now - r->last >= KEEPALIVE)
		r->owed |= 1u << RDMA_KEEPALIVE;
	if (r->owed)
		stream_make_ready(s);
}

static const char *rdma_name(const struct stream *s)
{
	return fabric_endpoint_transport(s->rdma->endpoint)->name;
}

static void rdma_info(const struct stream *s, struct stream_info *out)
{
	const struct fabric_endpoint *endpoint = s->rdma->endpoint;
	struct sockaddr_storage local;

	fabric_endpoint_peer(endpoint, out->peer, sizeof(out->peer));
	if (fabric_endpoint_local(endpoint, &local) == 0)
		address_format_socket((const struct sockaddr *)&local, out->local, sizeof(out->local));
}

/* What is left of a stream, in any state of its making. */
static void stream_dismantle(struct stream *s)
{
	struct rdma_stream *r = s->rdma;

	if (r->endpoint)
		fabric_endpoint_destroy(r->endpoint);
	for (unsigned i = 0; i < 2; i++)
		fabric_window_close(r->in.window[i].handle);
	stream_rdma_drop_lent(s);
	if (r->pool) {
		memory_pool_destroy(r->pool);
		memory_budget_give(s->group->attr.rdma.budget, buffer_size(s->group));
	}
	free(r);
}

static void rdma_end(struct stream *s)
{
	stream_dismantle(s);
	s->group->rdma->streams--;
}

static const struct stream_transport transport = {
	.receive = rdma_receive,
	.send = stream_rdma_send,
	.release = stream_rdma_release,
	.visited = rdma_visited,
	.settled = stream_rdma_settled,
	.look = rdma_look,
	.name = rdma_name,
	.info = rdma_info,
	.end = rdma_end,
};

/*
 * Made.
 */

/* What a client of this kind needs of the device. */
static int check_device(const struct fabric_request *request, struct rdma_stream *r)
{
	struct fabric_limits limits;

	fabric_request_limits(request, &limits);
	r->inline_size = limits.inline_size;
	if (limits.write_imm && limits.windows && limits.inline_size >= sizeof(struct rdma_message))
		return 0;
	log_error("stream", "a client of Valkey's protocol is refused: the device has no %s",
		  !limits.write_imm ? "writes with immediate"
		  : !limits.windows ? "memory windows, without which clients could reach each other's memory"
				    : "room for a message within a request");
	return -EOPNOTSUPP;
}

/* Fresh memory is zeros: a client that says that bytes came, and writes none, does not get those of another client. */
static int take_buffer(struct stream *s)
{
	struct stream_group *group = s->group;
	struct memory_pool_attr attr = {.name = "RDMA client's",
					.buffer_size = (uint32_t)buffer_size(group),
					.chunk = 1,
					.max = 1,
					.access = FABRIC_LOCAL_WRITE | FABRIC_WINDOWS};
	struct rdma_stream *r = s->rdma;
	int rc;

	if (!memory_budget_take(group->attr.rdma.budget, attr.buffer_size)) {
		log_warn("stream",
			 "all of rdma_memory is in use: no room for a client of Valkey's, which takes %u bytes",
			 attr.buffer_size);
		return -ENOBUFS;
	}
	rc = memory_pool_create(group->attr.rdma.domain, &attr, &r->pool);
	if (rc != 0) {
		memory_budget_give(group->attr.rdma.budget, attr.buffer_size);
		return rc;
	}
	r->buffer = memory_pool_get(r->pool);
	r->in.window[0].at = r->buffer->addr;
	r->in.window[1].at = r->in.window[0].at + group->attr.rdma.window;
	return 0;
}

int stream_rdma_open(struct stream *s, const struct stream_open *open)
{
	struct fabric_endpoint_attr attr = {.send_depth = RDMA_DEPTH, .recv_depth = RDMA_RECEIVES, .context = s};
	struct fabric_request *request = open->request;
	struct rdma_stream *r = calloc(1, sizeof(*r));
	int rc = -ENOMEM;

	s->rdma = r;
	if (!r)
		goto reject;
	*r = (struct rdma_stream){.values = open->values, .in.fills = 1};
	rc = check_device(request, r);
	if (rc == 0)
		rc = take_buffer(s);
	if (rc != 0)
		goto dismantle;
	rc = fabric_take(s->group->rdma->queue, s->group->attr.rdma.domain, request, &attr, &r->endpoint);
	request = NULL;
	if (rc == 0)
		rc = post_receives(s, 0, RDMA_RECEIVES);
	if (rc == 0)
		rc = fabric_accept(r->endpoint, NULL, 0);
	if (rc != 0)
		goto dismantle;
	s->transport = &transport;
	s->group->rdma->streams++;
	return 0;

dismantle:
	stream_dismantle(s);
reject:
	if (request)
		fabric_reject(request, NULL, 0);
	return rc;
}

int stream_rdma_create(struct stream_group *group)
{
	struct fabric_queue_attr attr = {.completions = 0};
	struct epoll_event event = {.events = EPOLLIN};
	int fds[FABRIC_MAX_FDS], n, rc;

	if (!group->attr.rdma.domain)
		return 0;
	group->rdma = calloc(1, sizeof(*group->rdma));
	if (!group->rdma)
		return -ENOMEM;
	rc = fabric_queue_create(group->attr.rdma.domain, &attr, &group->rdma->queue);
	if (rc != 0) {
		free(group->rdma);
		group->rdma = NULL;
		return rc;
	}
	n = fabric_fds(group->rdma->queue, fds);
	for (int i = 0; i < n && rc == 0; i++)
		rc = epoll_ctl(group->epoll, EPOLL_CTL_ADD, fds[i], &event) == 0 ? 0 : -errno;
	return rc;
}

bool stream_rdma_arm(struct stream_group *group)
{
	return !group->rdma || !group->rdma->streams || fabric_arm(group->rdma->queue) == 0;
}

bool stream_rdma_any(const struct stream_group *group)
{
	return group->rdma && group->rdma->streams;
}

void stream_rdma_destroy(struct stream_group *group)
{
	if (!group->rdma)
		return;
	fabric_queue_destroy(group->rdma->queue);
	free(group->rdma);
}
