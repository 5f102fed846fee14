/* peer_pair.h: contexts of rdma_lib in one process that are each other's peers, turned by one thread. */
#ifndef RDMAD_TESTS_PEER_PAIR_H
#define RDMAD_TESTS_PEER_PAIR_H

#include "peer/peer.h"

#include <pthread.h>

#define PEER_PAIR_CLIENTS 4

/* A server and clients: the server knows client i as peer i, each client the server as peer 0. */
struct peer_pair {
	rdma_context *server, *client[PEER_PAIR_CLIENTS];
	unsigned clients;
};

/* By the URL, or host, that the test was given: "tcp://127.0.0.1" unless it was. */
void peer_pair_use(const char *url);

void peer_pair_up(struct peer_pair *pair, unsigned clients, const rdma_options *options);
void peer_pair_down(struct peer_pair *pair);

/* One turn of each that is there. */
void peer_pair_turn(struct peer_pair *pair);
/* Until it is complete. */
int64_t peer_pair_end(struct peer_pair *pair, rdma_request *request);
/* Break the connection between the server and client i, as a cable would. */
void peer_pair_break(struct peer_pair *pair, unsigned i);

/* Bytes that are another for each seed and place. */
void peer_pair_fill(void *data, size_t len, unsigned seed);
bool peer_pair_is_filled(const void *data, size_t len, unsigned seed);

#endif
