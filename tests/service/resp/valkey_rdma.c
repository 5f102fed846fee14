/*
 * valkey_rdma.c: Valkey's protocol over RDMA for programs that have sockets only, and what no such program does. By the device where
 * RDMAD_GUEST_ADDR says its address, else by TCP's provider of the fabric.
 *
 *   valkey_rdma bridge SOCKET ADDRESS PORT          each connection to that UNIX socket goes on by RDMA
 *   valkey_rdma bench ADDRESS PORT COUNT DEPTH      GET of 64 bytes, so many in one write: the median time in us, and how many a second
 *   valkey_rdma break ADDRESS PORT NAME             breaks the protocol so; 0: it was cut off
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/stream/valkey.h"

#define RX (1u << 20)
#define PATIENCE (60 * TIME_S)

static struct sockaddr_in server;

static _Noreturn void fail(const char *text)
{
	fprintf(stderr, "valkey_rdma: %s\n", text);
	exit(1);
}

/* False: it was refused. */
static bool join(struct valkey *v, bool silent)
{
	uint64_t until = time_now() + PATIENCE;

	valkey_connect(v, getenv("RDMAD_GUEST_ADDR") ? "verbs" : "soft", (struct sockaddr *)&server, sizeof(server), RX,
		       NULL, 0);
	v->silent = silent;
	while (!v->registers && !v->over) {
		valkey_turn(v);
		if (time_now() > until)
			fail("no answer to the connect");
	}
	return !v->over;
}

/*
 * Bridge.
 */

/* Bytes on their way, which did not all fit. */
struct part {
	char bytes[65536];
	size_t at, len;
};

static size_t from_socket(struct part *p, int fd, struct valkey *v, bool *over)
{
	ssize_t n = 0;
	size_t gone;

	if (p->at == p->len) {
		n = recv(fd, p->bytes, sizeof(p->bytes), MSG_DONTWAIT);
		*over |= n == 0 || (n < 0 && errno != EAGAIN);
		p->at = 0;
		p->len = (size_t)MAX(n, 0);
	}
	gone = valkey_write(v, p->bytes + p->at, p->len - p->at);
	p->at += gone;
	return gone;
}

static size_t to_socket(struct part *p, int fd, struct valkey *v, bool *over)
{
	ssize_t n;

	if (p->at == p->len) {
		p->at = 0;
		p->len = valkey_read(v, p->bytes, sizeof(p->bytes));
	}
	if (p->at == p->len)
		return 0;
	n = send(fd, p->bytes + p->at, p->len - p->at, MSG_DONTWAIT | MSG_NOSIGNAL);
	*over |= n < 0 && errno != EAGAIN;
	p->at += (size_t)MAX(n, 0);
	return (size_t)MAX(n, 0);
}

struct bridge {
	struct valkey v;
	struct part in, out;
	int fd;
};

static void wait_for_any(struct bridge *b)
{
	struct pollfd fds[FABRIC_MAX_FDS + 1];
	int n, of[FABRIC_MAX_FDS];

	if (!valkey_arm(&b->v))
		return;
	n = fabric_fds(b->v.queue, of);
	for (int i = 0; i < n; i++)
		fds[i] = (struct pollfd){.fd = of[i], .events = POLLIN};
	fds[n] = (struct pollfd){.fd = b->fd};
	if (b->in.at == b->in.len)
		fds[n].events |= POLLIN;
	if (b->out.at < b->out.len)
		fds[n].events |= POLLOUT;
	poll(fds, (nfds_t)n + 1, -1);
}

static void *bridge_run(void *arg)
{
	struct bridge *b = arg;
	bool over = !join(&b->v, false);

	while (!over) {
		size_t n = from_socket(&b->in, b->fd, &b->v, &over);

		n += (size_t)valkey_turn(&b->v); /* which may have made room */
		n += to_socket(&b->out, b->fd, &b->v, &over);
		over |= b->v.over && !n && b->out.at == b->out.len && b->v.came == b->v.used;
		if (!n && !over)
			wait_for_any(b);
	}
	valkey_close(&b->v);
	close(b->fd);
	free(b);
	return NULL;
}

static _Noreturn void bridge(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 64) != 0)
		fail("cannot listen");
	for (;;) {
		struct bridge *b = calloc(1, sizeof(*b));
		pthread_t thread;

		b->fd = accept(listener, NULL, NULL);
		if (b->fd < 0 || pthread_create(&thread, NULL, bridge_run, b) != 0)
			fail("cannot serve a connection");
		pthread_detach(thread);
	}
}

/*
 * Bench.
 */

static void ask(struct valkey *v, const char *bytes, size_t len, size_t answer)
{
	static char heard[65536];
	size_t at = 0, got = 0;

	while (at < len || got < answer) {
		at += valkey_write(v, bytes + at, len - at);
		valkey_turn(v);
		got += valkey_read(v, heard, MIN(answer - got, sizeof(heard)));
		if (v->over)
			fail("the connection was ended");
	}
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int bench(unsigned count, unsigned depth)
{
	static const char get[] = "*2\r\n$3\r\nGET\r\n$16\r\nbench:0000000001\r\n";
	char set[256], *all = malloc(depth * sizeof(get));
	uint64_t *took = calloc(count, sizeof(*took)), sum = 0;
	size_t len = sizeof(get) - 1;
	struct valkey v;

	if (!join(&v, false))
		fail("the connection was refused");
	snprintf(set, sizeof(set), "*3\r\n$3\r\nSET\r\n$16\r\nbench:0000000001\r\n$64\r\n%064d\r\n", 1);
	ask(&v, set, strlen(set), 5);
	for (unsigned i = 0; i < depth; i++)
		memcpy(all + i * len, get, len);
	for (unsigned i = 0; i < count / 10; i++)
		ask(&v, all, depth * len, depth * (5 + 64 + 2));
	for (unsigned i = 0; i < count; i++) {
		uint64_t begin = time_now();

		ask(&v, all, depth * len, depth * (5 + 64 + 2));
		took[i] = time_now() - begin;
		sum += took[i];
	}
	qsort(took, count, sizeof(*took), by_number);
	printf("%.1f %.0f\n", (double)took[count / 2] / 1000, (double)count * depth * 1e9 / (double)sum);
	valkey_close(&v);
	free(took);
	free(all);
	return 0;
}

/*
 * Break.
 */

static void write_past(struct valkey *v)
{
	valkey_write_at(v, v->addr + v->window - 8, v->key, 16, 16);
}

/* Keys of other clients are easy to guess. */
static void write_by_guess(struct valkey *v)
{
	for (uint32_t i = 1; i < 8; i++)
		valkey_write_at(v, v->addr, v->key - i * 256, 16, 0);
}

static void say_too_much(struct valkey *v)
{
	valkey_write_at(v, v->addr, v->key, 16, v->window + 1);
}

static void register_early(struct valkey *v)
{
	valkey_register(v);
}

static void send_unknown(struct valkey *v)
{
	valkey_message(v, 77, 0, 0);
}

static void send_short(struct valkey *v)
{
	valkey_send(v, "short", 5);
}

static void flood(struct valkey *v)
{
	for (unsigned i = 0; i < 1000 && !v->over; i++) {
		valkey_message(v, VALKEY_GET_FEATURES, i, 0);
		valkey_turn(v);
	}
}

static void ask_without_place(struct valkey *v)
{
	static const char ping[] = "PING\r\n";

	valkey_write(v, ping, sizeof(ping) - 1);
}

static void name_wrong_place(struct valkey *v)
{
	valkey_register_as(v, 4096, RX, fabric_region_rkey(v->region, v->endpoint));
	ask_without_place(v);
}

static const struct {
	const char *name;
	void (*act)(struct valkey *v);
	bool silent;
} acts[] = {
	{"write_past", write_past, false},
	{"write_by_guess", write_by_guess, false},
	{"say_too_much", say_too_much, false},
	{"register_early", register_early, false},
	{"send_unknown", send_unknown, false},
	{"send_short", send_short, false},
	{"flood", flood, false},
	{"never_register", ask_without_place, true},
	{"wrong_place", name_wrong_place, true},
};

static int break_by(const char *name)
{
	uint64_t until = time_now() + PATIENCE;
	struct valkey v;

	for (unsigned i = 0; i < ARRAY_SIZE(acts); i++) {
		if (strcmp(acts[i].name, name) != 0)
			continue;
		if (!join(&v, acts[i].silent))
			fail("the connection was refused");
		acts[i].act(&v);
		while (!v.over) {
			valkey_turn(&v);
			if (time_now() > until)
				fail("was not cut off");
		}
		valkey_close(&v);
		return 0;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(acts); i++)
		puts(acts[i].name);
	return 2;
}

static void set_server(const char *address, const char *port)
{
	server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	if (!inet_aton(address, &server.sin_addr))
		fail("no address");
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "bridge") == 0) {
		set_server(argv[3], argv[4]);
		bridge(argv[2]);
	}
	if (argc >= 4)
		set_server(argv[2], argv[3]);
	if (argc == 6 && strcmp(argv[1], "bench") == 0)
		return bench((unsigned)atoi(argv[4]), (unsigned)atoi(argv[5]));
	if (argc == 5 && strcmp(argv[1], "break") == 0)
		return break_by(argv[4]);
	fail("what is it to do?");
}
