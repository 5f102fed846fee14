/* peer_server.c: accepts some clients, receives a message of each, and answers. Usage: peer_server ADDRESS PORT CLIENTS; port 0: a free one. */
#include "rdma_lib.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One client's message, and its answer. */
static int serve(rdma_context *ctx, int client)
{
	char message[256], answer[300];
	int length = rdma_recv(ctx, client, message, sizeof(message) - 1);

	if (length < 0)
		return -1;
	message[length] = '\0';
	printf("client %d, by %s: \"%s\"\n", client, rdma_transport(ctx, client), message);
	snprintf(answer, sizeof(answer), "%s to you, client %d", message, client);
	return rdma_send(ctx, client, answer, strlen(answer));
}

int main(int argc, char **argv)
{
	rdma_context *ctx;
	int clients, failed = 0;

	if (argc < 4)
		return fprintf(stderr, "usage: peer_server ADDRESS PORT CLIENTS\n"), 2;
	clients = atoi(argv[3]);
	ctx = rdma_init(argv[1], atoi(argv[2]), 4096, true);
	if (!ctx)
		return fprintf(stderr, "%s\n", rdma_get_error()), 1;
	printf("listening on port %d\n", rdma_port(ctx));
	fflush(stdout);
	for (int i = 0; i < clients && !failed; i++) {
		int client = rdma_accept_peer(ctx);

		failed = client < 0 || serve(ctx, client) < 0;
		if (!failed)
			rdma_disconnect_peer(ctx, client); /* it may have gone already */
	}
	if (failed)
		fprintf(stderr, "%s\n", rdma_get_error());
	rdma_cleanup(ctx);
	return failed;
}
