/* peer_pair.c: see peer_pair.h. */
#include "peer/links/connect.h"
#include "tests/peer/peer_pair.h"
#include "tests/suite.h"

static const char *used = "tcp://127.0.0.1";

void peer_pair_use(const char *url)
{
	used = url;
}

struct connecting {
	rdma_context *ctx;
	int port, index;
	pthread_t thread;
	char why[512];
};

static void *connect_run(void *arg)
{
	struct connecting *c = arg;

	c->index = rdma_connect_peer(c->ctx, used, c->port);
	snprintf(c->why, sizeof(c->why), "%s", rdma_get_error());
	return NULL;
}

static rdma_context *connected(struct peer_pair *pair, const rdma_options *options)
{
	struct connecting c = {.ctx = rdma_init_options(NULL, 0, false, options), .port = rdma_port(pair->server)};
	int index;

	ck_assert_msg(c.ctx, "%s", rdma_get_error());
	ck_assert_int_eq(pthread_create(&c.thread, NULL, connect_run, &c), 0);
	index = rdma_accept_peer(pair->server);
	ck_assert_msg(index == (int)pair->clients, "%d: %s", index, rdma_get_error());
	pthread_join(c.thread, NULL);
	ck_assert_msg(c.index == 0, "%d: %s", c.index, c.why);
	return c.ctx;
}

void peer_pair_up(struct peer_pair *pair, unsigned clients, const rdma_options *options)
{
	const char *host = strstr(used, "://");
	rdma_options patient = options ? *options : (rdma_options){0};

	if (!patient.connect_timeout_ms)
		patient.connect_timeout_ms = 600000; /* on a busy machine */
	memset(pair, 0, sizeof(*pair));
	pair->server = rdma_init_options(host ? host + 3 : used, 0, true, &patient);
	ck_assert_msg(pair->server, "%s", rdma_get_error());
	for (; pair->clients < clients; pair->clients++)
		pair->client[pair->clients] = connected(pair, &patient);
}

/* Each end waits for the other's goodbye. */
static void *cleanup_run(void *arg)
{
	rdma_cleanup(arg);
	return NULL;
}

void peer_pair_down(struct peer_pair *pair)
{
	pthread_t thread[PEER_PAIR_CLIENTS];

	for (unsigned i = 0; i < pair->clients; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, cleanup_run, pair->client[i]), 0);
	rdma_cleanup(pair->server);
	for (unsigned i = 0; i < pair->clients; i++)
		pthread_join(thread[i], NULL);
}

void peer_pair_turn(struct peer_pair *pair)
{
	if (pair->server)
		ck_assert_int_ge(rdma_progress(pair->server), 0);
	for (unsigned i = 0; i < pair->clients; i++)
		if (pair->client[i])
			ck_assert_int_ge(rdma_progress(pair->client[i]), 0);
}

int64_t peer_pair_end(struct peer_pair *pair, rdma_request *request)
{
	int64_t result = 0;

	ck_assert_msg(request, "%s", rdma_get_error());
	while (!rdma_test(request, &result))
		peer_pair_turn(pair);
	return result;
}

void peer_pair_break(struct peer_pair *pair, unsigned i)
{
	struct peer *peer = peer_at(pair->server, (int)i);

	if (peer && peer->conn)
		fabric_disconnect(conn_endpoint(peer->conn));
}

static char byte_at(size_t at, unsigned seed)
{
	return (char)((at * 2654435761u >> 7) + seed * 31 + 1);
}

void peer_pair_fill(void *data, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		((char *)data)[i] = byte_at(i, seed);
}

bool peer_pair_is_filled(const void *data, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (((const char *)data)[i] != byte_at(i, seed))
			return false;
	return true;
}
