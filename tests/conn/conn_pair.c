/* conn_pair.c: two groups in one process, and a peer without manners. */
#include "tests/conn/conn_pair.h"

#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef PATIENCE
#define PATIENCE (200 * TIME_S)
#endif

uint64_t conn_pair_patience(void)
{
	return time_now() + PATIENCE;
}

static void side_open(struct fabric *fabric, struct side *side, const struct conn_group_attr *attr)
{
	ck_assert_int_eq(fabric_domain_create(fabric, &side->domain), 0);
	ck_assert_int_eq(conn_group_create(side->domain, attr, &side->group), 0);
}

static void side_close(struct side *side)
{
	conn_group_destroy(side->group);
	fabric_domain_destroy(side->domain);
}

static void listen_tcp(struct conn_pair_listener *l)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&l->address;

	*in = (struct sockaddr_in){.sin_family = AF_INET};
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	l->address_len = sizeof(*in);
	ck_assert_int_eq(fabric_listen(l->queue, (struct sockaddr *)in, sizeof(*in), NULL, &l->listener), 0);
	in->sin_port = htons(fabric_listener_port(l->listener));
}

static void listen_unix(struct conn_pair *pair)
{
	struct conn_pair_listener *l = &pair->listener;
	struct sockaddr_un *un = (struct sockaddr_un *)&l->address;

	snprintf(pair->dir, sizeof(pair->dir), "/tmp/check-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(pair->dir));
	*un = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(un->sun_path, sizeof(un->sun_path), "%s/socket", pair->dir);
	l->address_len = sizeof(*un);
	ck_assert_int_eq(fabric_listen(l->queue, (struct sockaddr *)un, sizeof(*un), NULL, &l->listener), 0);
}

bool conn_pair_memory;

void conn_pair_open(struct conn_pair *pair, bool unix_socket, const struct conn_group_attr *server,
		    const struct conn_group_attr *client)
{
	struct fabric_queue_attr attr = {.completions = 16};

	pair->now = 1000 * TIME_S;
	ck_assert_int_eq(fabric_open("soft", NULL, &pair->fabric), 0);
	side_open(pair->fabric, &pair->server, server);
	side_open(pair->fabric, &pair->client, client);
	ck_assert_int_eq(fabric_queue_create(pair->server.domain, &attr, &pair->listener.queue), 0);
	if (unix_socket)
		listen_unix(pair);
	else
		listen_tcp(&pair->listener);
}

void conn_pair_close(struct conn_pair *pair)
{
	side_close(&pair->client);
	if (pair->listener.listener) /* a test may have closed it */
		fabric_listener_close(pair->listener.listener);
	fabric_queue_destroy(pair->listener.queue);
	side_close(&pair->server);
	fabric_close(pair->fabric);
	if (pair->dir[0])
		rmdir(pair->dir);
}

int conn_pair_connect(struct conn_pair *pair, const struct wire_request *request, const struct conn_attr *attr,
		      const struct conn_ops *ops, void *context, struct conn **out)
{
	struct conn_attr a = attr ? *attr : (struct conn_attr){0};

	a.memory = conn_pair_memory || pair->listener.address.ss_family == AF_UNIX;
	return conn_connect(pair->client.group, (struct sockaddr *)&pair->listener.address, pair->listener.address_len,
			    request, &a, ops, context, pair->now, out);
}

static int listener_turn(struct conn_pair_listener *l)
{
	struct fabric_completion c;
	struct fabric_event event;
	struct wire_request wire;
	int n = 0;

	fabric_poll(l->queue, &c, 1);
	for (; fabric_next_event(l->queue, &event); n++) {
		ck_assert_int_eq(event.type, FABRIC_REQUEST);
		l->take(l->arg, event.request, &wire, wire_request_decode(&wire, event.data, event.data_len));
	}
	return n;
}

int conn_pair_turn(struct conn_pair *pair)
{
	int n = pair->work ? pair->work() : 0;

	n += listener_turn(&pair->listener);
	if (!pair->server_stops)
		n += conn_group_progress(pair->server.group, pair->now);
	if (!pair->client_stops)
		n += conn_group_progress(pair->client.group, pair->now);
	return n;
}

void conn_pair_rest(struct conn_pair *pair)
{
	unsigned quiet = 0;

	for (unsigned turns = 0; quiet < 100; turns++) {
		quiet = conn_pair_turn(pair) ? 0 : quiet + 1;
		ck_assert_msg(turns < 100000, "the two never come to rest");
	}
}

static void evil_feed(struct evil *evil, unsigned i)
{
	struct fabric_recv recv = {
		.id = i,
		.sge = {evil->memory[i], sizeof(evil->memory[i]), evil->region},
	};

	ck_assert_int_eq(fabric_post_recv(evil->queue, evil->endpoint, &recv, 1), 0);
}

struct evil *evil_new(struct conn_pair *pair)
{
	struct fabric_queue_attr attr = {.completions = 1024};
	struct evil *evil = calloc(1, (sizeof(*evil) + 63) & ~(size_t)63);

	ck_assert_ptr_nonnull(evil);
	ck_assert_int_eq(fabric_domain_create(pair->fabric, &evil->domain), 0);
	ck_assert_int_eq(fabric_queue_create(evil->domain, &attr, &evil->queue), 0);
	ck_assert_int_eq(fabric_register(evil->domain, evil->memory, sizeof(evil->memory) + sizeof(evil->out),
					 FABRIC_LOCAL_WRITE, &evil->region),
			 0);
	return evil;
}

void evil_free(struct evil *evil)
{
	if (evil->endpoint)
		fabric_endpoint_destroy(evil->endpoint);
	fabric_queue_destroy(evil->queue);
	fabric_deregister(evil->region);
	fabric_domain_destroy(evil->domain);
	free(evil);
}

static void evil_event(struct evil *evil, const struct fabric_event *event)
{
	switch (event->type) {
	case FABRIC_ESTABLISHED:
		evil->established = true;
		wire_accept_decode(&evil->accept, event->data, event->data_len);
		break;
	case FABRIC_REJECTED:
		evil->rejected = true;
		wire_reject_decode(&evil->reject, event->data, event->data_len);
		break;
	case FABRIC_DISCONNECTED:
		evil->disconnected = true;
		break;
	default:
		ck_abort_msg("event %d", event->type);
	}
}

void evil_turn(struct evil *evil)
{
	struct fabric_completion c[16];
	struct fabric_event event;
	int n = fabric_poll(evil->queue, c, 16);

	for (int i = 0; i < n; i++) {
		if (c[i].status != FABRIC_OK || c[i].opcode != FABRIC_RECV)
			continue;
		evil->received++;
		evil_feed(evil, (unsigned)c[i].id);
	}
	while (fabric_next_event(evil->queue, &event))
		evil_event(evil, &event);
}

void evil_connect(struct conn_pair *pair, struct evil *evil, const void *data, size_t len)
{
	struct fabric_endpoint_attr attr = {.send_depth = 256, .recv_depth = 64, .reads_out = 1, .reads_in = 16};
	uint64_t until = conn_pair_patience();

	ck_assert_int_eq(fabric_connect(evil->queue, evil->domain, (struct sockaddr *)&pair->listener.address,
					pair->listener.address_len, &attr, data, len, &evil->endpoint),
			 0);
	for (unsigned i = 0; i < 64; i++)
		evil_feed(evil, i);
	while (!evil->established && !evil->rejected && !evil->disconnected) {
		conn_pair_turn(pair);
		evil_turn(evil);
		ck_assert(time_now() < until);
	}
}

void evil_send(struct conn_pair *pair, struct evil *evil, const void *data, size_t len)
{
	struct fabric_wr wr = {
		.opcode = FABRIC_SEND,
		.sge_count = 1,
		.sge = {{evil->out, len, evil->region}},
	};
	uint64_t until = conn_pair_patience();
	int rc;

	memcpy(evil->out, data, len);
	wr.signaled = true;
	while ((rc = fabric_post(evil->endpoint, &wr)) == -EAGAIN) {
		conn_pair_turn(pair);
		evil_turn(evil);
		ck_assert(time_now() < until);
	}
	ck_assert(rc == 0 || rc == -ENOTCONN);
	/* The socket takes it before the next is copied over it. */
	for (unsigned i = 0; i < 4; i++) {
		evil_turn(evil);
		conn_pair_turn(pair);
	}
}
