/*
 * peer_clients.h: a server of rdma_lib and its clients, each a context in a thread of its own, for suites that are run over each
 * transport. They are linked with --wrap=fabric_register and --wrap=fabric_deregister: what is registered is counted.
 */
#ifndef RDMAD_TESTS_PEER_CLIENTS_H
#define RDMAD_TESTS_PEER_CLIENTS_H

#include <pthread.h>
#include <unistd.h>

#include "peer/links/connect.h"
#include "tests/suite.h"

#define PATIENCE_MS 600000 /* longer than a case may take: that limit ends a test that hangs */

extern const char *target; /* of the suite that runs */
extern rdma_context *server;

struct client {
	pthread_t thread;
	rdma_context *ctx;
	int port, peer, error;
	char why[600];
};

void expect_error(int error, const char *begin);

/* With more patience than users have, on a busy machine. */
rdma_context *context(bool is_server, const rdma_options *options);
void serve(const rdma_options *options);

void *client_connects(void *arg);
void client_begin(struct client *c, const rdma_options *options);
void client_join(struct client *c);
/* Connected and accepted; the index at the server. */
int client_accepted(struct client *c, const rdma_options *options);
/* The server answers meanwhile. */
void client_ends(struct client *c);

/* A turn, and a rest where there was nothing to do. */
void turn(rdma_context *ctx);
void say(rdma_context *ctx, int peer, const char *text);
void hear(rdma_context *ctx, int peer, const char *text);

/* Nothing that was opened or registered is left. */
void set_up(void);
void tear_down(void);
/* After tests with programs of their own, whose first use of a device is theirs. */
void tear_down_alone(void);

/* By 127.0.0.1 and by a UNIX socket, unless the program's argument is another address. The exit status. */
int run_over_each(int argc, char **argv, Suite *(*make)(const char *name));

#endif
