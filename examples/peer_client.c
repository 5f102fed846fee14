/* peer_client.c: sends a message to peer_server and prints the answer. Usage: peer_client ADDRESS PORT */
#include "rdma_lib.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *message = "Hello RDMA!";
	char answer[256];
	int server_idx, length;

	if (argc < 3)
		return fprintf(stderr, "usage: peer_client ADDRESS PORT\n"), 2;

	/* Initialize client context */
	rdma_context *ctx = rdma_init(NULL, 0, 4096, false);
	if (!ctx) {
		fprintf(stderr, "Failed to initialize RDMA: %s\n", rdma_get_error());
		return 1;
	}

	/* Connect to server */
	server_idx = rdma_connect_peer(ctx, argv[1], atoi(argv[2]));
	if (server_idx < 0) {
		fprintf(stderr, "Failed to connect: %s\n", rdma_get_error());
		rdma_cleanup(ctx);
		return 1;
	}
	printf("connected by %s\n", rdma_transport(ctx, server_idx));

	/* Send data, and receive what comes back */
	if (rdma_send(ctx, server_idx, message, strlen(message) + 1) < 0) {
		fprintf(stderr, "Send failed: %s\n", rdma_get_error());
		rdma_cleanup(ctx);
		return 1;
	}
	length = rdma_recv(ctx, server_idx, answer, sizeof(answer) - 1);
	if (length < 0) {
		fprintf(stderr, "Receive failed: %s\n", rdma_get_error());
		rdma_cleanup(ctx);
		return 1;
	}
	answer[length] = '\0';
	printf("got \"%s\"\n", answer);

	/* Cleanup */
	rdma_cleanup(ctx);
	return 0;
}
