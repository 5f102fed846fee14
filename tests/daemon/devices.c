/*
 * devices.c: what check_devices.sh and check_renew.sh have programs for.
 *   devices serve PORT N         rdma_lib: accepts N peers by any device, one after another, and sends back what each sends
 *   devices ask ADDRESS PORT     rdma_lib: one of these peers
 *   devices talk ADDRESS PORT    rdma_lib: the same until it is killed, by another connection where one ended; tells
 *                                "served", and why not
 *   devices left ADDRESS PORT    rdma_lib: one of these peers, which stays without a peer until it is killed
 *   devices fork ADDRESS         librdmad: a handle by RDMA, and what the child of a fork can do
 *   devices keep SERVER          librdmad: a handle that is kept connected; tells by what it is served, and when it is not
 */
#include "rdma_lib.h"
#include <rdmad/kv.h>
#include <rdmad/rdmad.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG 300000

static char sent[LONG], got[LONG];

static void fill(void)
{
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (char)(i * 7 + i / 251);
}

static int failed(const char *what, const char *why)
{
	fprintf(stderr, "devices: %s: %s\n", what, why);
	return 1;
}

static int serve(int port, int clients)
{
	rdma_context *ctx = rdma_init("rdma://0.0.0.0", port, LONG, true);

	if (!ctx)
		return failed("rdma_init", rdma_get_error());
	for (int i = 0; i < clients; i++) {
		int peer = rdma_accept_peer(ctx), len;

		if (peer < 0)
			return failed("accept", rdma_get_error());
		do
			len = rdma_recv(ctx, peer, got, sizeof(got));
		while (len >= 0 && rdma_send(ctx, peer, got, (size_t)len) == len);
		printf("%s\n", rdma_get_error());
		fflush(stdout);
	}
	rdma_cleanup(ctx);
	return 0;
}

/* Short and long messages there and back. */
static int echo(rdma_context *ctx, int peer)
{
	static const size_t lengths[] = {1, 4000, LONG};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		int len = (int)lengths[i];

		if (rdma_send(ctx, peer, sent, lengths[i]) != len || rdma_recv(ctx, peer, got, sizeof(got)) != len)
			return -1;
		if (memcmp(sent, got, lengths[i]) != 0)
			exit(failed("echo", "other bytes came back"));
	}
	return 0;
}

static int ask(const char *address, int port)
{
	rdma_context *ctx = rdma_init(NULL, 0, LONG, false);
	int peer = ctx ? rdma_connect_peer(ctx, address, port) : -1;

	if (peer < 0)
		return failed("connect", rdma_get_error());
	if (echo(ctx, peer) != 0)
		return failed("echo", rdma_get_error());
	rdma_cleanup(ctx);
	return 0;
}

/* Nothing is under way. It sleeps on the context's descriptor. */
static int left(const char *address, int port)
{
	rdma_context *ctx = rdma_init(NULL, 0, LONG, false);
	int peer = ctx ? rdma_connect_peer(ctx, address, port) : -1;

	if (peer < 0 || echo(ctx, peer) != 0 || rdma_disconnect_peer(ctx, peer) != 0)
		return failed("a peer that leaves", rdma_get_error());
	printf("left\n");
	fflush(stdout);
	while (true) {
		struct pollfd sleeps = {.fd = rdma_fd(ctx), .events = POLLIN};

		poll(&sleeps, 1, rdma_progress_timeout(ctx));
		rdma_progress(ctx);
	}
}

static int talk(const char *address, int port)
{
	rdma_context *ctx = rdma_init(NULL, 0, LONG, false);

	if (!ctx)
		return failed("rdma_init", rdma_get_error());
	while (true) {
		int peer = rdma_connect_peer(ctx, address, port);

		for (bool first = true; peer >= 0 && echo(ctx, peer) == 0; first = false) {
			if (first)
				printf("served\n");
			fflush(stdout);
			usleep(10000);
		}
		printf("%s\n", rdma_get_error());
		fflush(stdout);
		usleep(100000);
	}
}

/* A value there and back, by a handle that is open. */
static int exchange(void *kv, size_t len)
{
	size_t size = len;
	char *value = NULL;
	int rc = kv_set_bytes(kv, "of a fork", 9, sent, len);

	if (rc == 0)
		rc = kv_get_bytes(kv, "of a fork", 9, (void **)&value, &size);
	if (rc != 0)
		return failed("exchange", rdmad_error());
	rc = size != len || memcmp(value, sent, len) != 0;
	kv_release(value);
	return rc ? failed("exchange", "another value came back") : 0;
}

static int open_at(const char *scheme, const char *address, void **kv)
{
	char url[128];

	snprintf(url, sizeof(url), "%s%s", scheme, address);
	return kv_open_options(url, NULL, NULL, kv);
}

/* The kernel lets a child of a fork do nothing with what its parent opened, so RDMA is no way for it. */
static int child(const char *address, void *of_parent)
{
	void *kv;

	if (kv_set(of_parent, "of a fork", "of the child") != -EPERM)
		return failed("child", "it could use its parent's handle");
	kv_close(of_parent);
	if (open_at("rdma://", address, &kv) == 0)
		return failed("child", "it has a handle by RDMA");
	if (!strstr(rdmad_error(), "fork"))
		return failed("child, by RDMA", rdmad_error());
	if (open_at("", address, &kv) != 0)
		return failed("child, by what is best", rdmad_error());
	if (strcmp(kv_transport(kv), "rdma") == 0)
		return failed("child", "it was not told that it has no RDMA");
	if (exchange(kv, 10) != 0 || exchange(kv, LONG) != 0)
		return 1;
	kv_close(kv);
	return 0;
}

static int fork_after(const char *address)
{
	void *kv;
	pid_t pid;
	int status;

	if (open_at("", address, &kv) != 0)
		return failed("open", rdmad_error());
	if (strcmp(kv_transport(kv), "rdma") != 0)
		return failed("open", "RDMA is not what is best");
	if (exchange(kv, 10) != 0)
		return 1;
	pid = fork();
	if (pid == 0)
		_exit(child(address, kv));
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return failed("child", "it failed");
	if (exchange(kv, 10) != 0 || exchange(kv, LONG) != 0)
		return 1;
	kv_close(kv);
	return 0;
}

/* Until it is killed. */
static int keep(const char *server)
{
	bool before = false;
	char *value;
	void *kv;

	if (kv_open((char *)server, &kv) != 0 || kv_keep_connected(kv, 3600 * 1000000ull) != 0 ||
	    kv_set(kv, "kept", "value") != 0)
		return failed("kv_open", rdmad_error());
	while (true) {
		bool served = kv_get(kv, "kept", &value) == 0;

		if (served)
			kv_release(value);
		if (served != before)
			printf("%s\n", served ? kv_transport(kv) : "not served");
		fflush(stdout);
		before = served;
		usleep(20000);
	}
}

int main(int argc, char **argv)
{
	fill();
	if (argc == 4 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]), atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "ask") == 0)
		return ask(argv[2], atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "talk") == 0)
		return talk(argv[2], atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "left") == 0)
		return left(argv[2], atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "fork") == 0)
		return fork_after(argv[2]);
	if (argc == 3 && strcmp(argv[1], "keep") == 0)
		return keep(argv[2]);
	fprintf(stderr, "usage: devices serve PORT N | ask ADDRESS PORT | talk ADDRESS PORT | left ADDRESS PORT | fork "
			"ADDRESS | keep SERVER\n");
	return 2;
}
