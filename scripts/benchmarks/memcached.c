/*
 * memcached.c: a load for servers of memcached's protocol: bench-memcached PORT CONNECTIONS IN_FLIGHT BYTES get|set SECONDS.
 * One thread; each connection has so many requests on the way, of 10000 keys; what it prints is requests a second.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define KEYS 10000
#define MOST 1024

struct connection {
	int fd;
	unsigned waits;	   /* answers that are to come */
	size_t got;	   /* bytes of the first of them */
	char *out;	   /* requests that are not sent */
	size_t at, out_len;
};

static char *value, *in;
static size_t bytes, in_size, answer;
static int is_set;
static unsigned long long seed = 88172645463325252ull;

static void die(const char *what)
{
	fprintf(stderr, "bench-memcached: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned next_key(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % (bytes > 65536 ? 100 : KEYS));
}

static void ask(struct connection *c, int set, unsigned key)
{
	char *to = c->out + c->out_len;
	int n;

	if (set) {
		n = sprintf(to, "set key:%05u 0 0 %zu\r\n", key, bytes);
		memcpy(to + n, value, bytes);
		memcpy(to + n + bytes, "\r\n", 2);
		n += (int)bytes + 2;
	} else {
		n = sprintf(to, "get key:%05u\r\n", key);
	}
	c->out_len += (size_t)n;
	c->waits++;
}

static void push(struct connection *c)
{
	while (c->at < c->out_len) {
		ssize_t n = send(c->fd, c->out + c->at, c->out_len - c->at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			die("send");
		c->at += (size_t)n;
	}
	c->at = c->out_len = 0;
}

/* Each answer has the same length. */
static unsigned pull(struct connection *c, size_t length)
{
	ssize_t n = recv(c->fd, in, in_size, MSG_DONTWAIT);
	unsigned whole;

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		die("recv");
	c->got += (size_t)n;
	whole = (unsigned)(c->got / length);
	c->got %= length;
	if (whole > c->waits) {
		fprintf(stderr, "bench-memcached: more came than was asked for\n");
		exit(1);
	}
	c->waits -= whole;
	return whole;
}

int main(int argc, char **argv)
{
	static struct connection c[MOST];
	static struct pollfd p[MOST];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	unsigned count, depth, keys;
	unsigned long long done = 0;
	double begin, until;
	char text[64];
	int on = 1;

	if (argc != 7)
		return 2;
	to.sin_port = htons((unsigned short)atoi(argv[1]));
	count = (unsigned)atoi(argv[2]);
	depth = (unsigned)atoi(argv[3]);
	bytes = (size_t)atol(argv[4]);
	is_set = strcmp(argv[5], "set") == 0;
	keys = bytes > 65536 ? 100 : KEYS;
	in_size = 1 << 18;
	value = malloc(bytes + 1);
	in = malloc(in_size);
	if (!value || !in || !count || count > MOST || !depth)
		return 2;
	memset(value, 'v', bytes);
	answer = is_set ? strlen("STORED\r\n")
			: (size_t)sprintf(text, "VALUE key:00000 0 %zu\r\n", bytes) + bytes + strlen("\r\nEND\r\n");
	for (unsigned i = 0; i < count; i++) {
		c[i].fd = socket(AF_INET, SOCK_STREAM, 0);
		c[i].out = malloc((is_set ? bytes + 64 : 64) * depth + bytes + 64);
		if (!c[i].out || connect(c[i].fd, (struct sockaddr *)&to, sizeof(to)) != 0)
			die("connect");
		setsockopt(c[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		p[i] = (struct pollfd){.fd = c[i].fd};
	}
	for (unsigned i = 0; i < keys; i++) { /* they are there */
		ask(&c[0], 1, i);
		while (c[0].waits) {
			push(&c[0]);
			pull(&c[0], strlen("STORED\r\n"));
		}
	}
	begin = now();
	until = begin + atof(argv[6]);
	while (now() < until) {
		for (unsigned i = 0; i < count; i++) {
			if (!c[i].out_len)
				while (c[i].waits < depth)
					ask(&c[i], is_set, next_key());
			push(&c[i]);
			p[i].events = (short)(POLLIN | (c[i].out_len ? POLLOUT : 0));
		}
		if (poll(p, count, 1000) < 0)
			die("poll");
		for (unsigned i = 0; i < count; i++)
			if (p[i].revents & (POLLIN | POLLHUP | POLLERR))
				done += pull(&c[i], answer);
	}
	printf("%.0f\n", (double)done / (now() - begin));
	return 0;
}
