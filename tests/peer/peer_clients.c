/* peer_clients.c: a server of rdma_lib and its clients. */
#include "tests/peer/peer_clients.h"

#include <signal.h>

#include "tests/regions.h"

const char *target;
rdma_context *server;
static unsigned descriptors;

void expect_error(int error, const char *begin)
{
	ck_assert_msg(strncmp(rdma_get_error(), begin, strlen(begin)) == 0, "\"%s\" does not begin with \"%s\"",
		      rdma_get_error(), begin);
	ck_assert_msg(rdma_get_errno() == error, "errno %d (%s), not %d: %s", rdma_get_errno(),
		      strerror(rdma_get_errno()), error, rdma_get_error());
}

rdma_context *context(bool is_server, const rdma_options *options)
{
	rdma_options patient = options ? *options : (rdma_options){0};
	rdma_context *ctx;

	if (!patient.connect_timeout_ms)
		patient.connect_timeout_ms = PATIENCE_MS;
	if (!patient.heartbeat_ms)
		patient.heartbeat_ms = PATIENCE_MS;
	ctx = rdma_init_options(is_server ? target : NULL, 0, is_server, &patient);
	ck_assert_msg(ctx, "%s", rdma_get_error());
	return ctx;
}

void serve(const rdma_options *options)
{
	server = context(true, options);
}

void *client_connects(void *arg)
{
	struct client *c = arg;

	c->peer = rdma_connect_peer(c->ctx, target, c->port);
	c->error = rdma_get_errno();
	snprintf(c->why, sizeof(c->why), "%s", c->peer < 0 ? rdma_get_error() : "");
	return NULL;
}

void client_begin(struct client *c, const rdma_options *options)
{
	*c = (struct client){.ctx = context(false, options), .port = rdma_port(server)};
	ck_assert_int_eq(pthread_create(&c->thread, NULL, client_connects, c), 0);
}

void client_join(struct client *c)
{
	pthread_join(c->thread, NULL);
}

int client_accepted(struct client *c, const rdma_options *options)
{
	int index;

	client_begin(c, options);
	index = rdma_accept_peer(server);
	ck_assert_msg(index >= 0, "%s", rdma_get_error());
	client_join(c);
	ck_assert_msg(c->peer >= 0, "%s", c->why);
	return index;
}

void turn(rdma_context *ctx)
{
	int rc = rdma_progress(ctx);

	ck_assert_int_ge(rc, 0);
	if (rc == 0)
		usleep(100);
}

static void *client_cleans_up(void *arg)
{
	rdma_cleanup(((struct client *)arg)->ctx);
	return NULL;
}

void client_ends(struct client *c)
{
	ck_assert_int_eq(pthread_create(&c->thread, NULL, client_cleans_up, c), 0);
	while (pthread_tryjoin_np(c->thread, NULL) != 0)
		turn(server);
}

void say(rdma_context *ctx, int peer, const char *text)
{
	ck_assert_msg(rdma_send(ctx, peer, text, strlen(text) + 1) == (int)strlen(text) + 1, "%s", rdma_get_error());
}

void hear(rdma_context *ctx, int peer, const char *text)
{
	char got[300];

	ck_assert_msg(rdma_recv(ctx, peer, got, sizeof(got)) == (int)strlen(text) + 1, "%s", rdma_get_error());
	ck_assert_str_eq(got, text);
}

/* Devices have descriptors that stay, from their first use on. */
void set_up(void)
{
	struct client c;

	serve(NULL);
	client_accepted(&c, NULL);
	client_ends(&c);
	rdma_cleanup(server);
	server = NULL;
	descriptors = count_descriptors();
}

void tear_down(void)
{
	rdma_cleanup(server);
	server = NULL;
	ck_assert_int_eq(regions, 0);
	ck_assert_uint_eq(count_descriptors(), descriptors);
}

void tear_down_alone(void)
{
	rdma_cleanup(server);
	server = NULL;
	ck_assert_int_eq(regions, 0);
}

int run_over_each(int argc, char **argv, Suite *(*make)(const char *name))
{
	char directory[] = "/tmp/check_peer.XXXXXX", path[100];
	int failed;

	signal(SIGPIPE, SIG_IGN);
	target = argc > 1 ? argv[1] : "127.0.0.1";
	failed = suite_run(make(target));
	if (argc > 1)
		return failed;
	if (!mkdtemp(directory))
		return EXIT_FAILURE;
	snprintf(path, sizeof(path), "unix://%s/peer.sock", directory);
	target = path;
	failed |= suite_run(make(target));
	unlink(path + strlen("unix://"));
	rmdir(directory);
	return failed;
}
