/* fabric_siege.c: a server under attack by raw bytes; see fabric_siege.h. */
#include "tests/fabric/fabric_siege.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

int raw_connect(const struct sockaddr_storage *sa, socklen_t len)
{
	int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	ck_assert_int_ge(fd, 0);
	if (sa->ss_family != AF_UNIX)
		ck_assert_int_eq(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)sa, len), 0);
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

bool raw_ended(int fd)
{
	char waste[4096];
	ssize_t n;

	while ((n = recv(fd, waste, sizeof(waste), MSG_DONTWAIT)) > 0)
		;
	return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

void siege_serve(struct siege *x)
{
	struct fabric_pair *p = &x->p;
	struct station *st = &p->server;
	struct fabric_endpoint *endpoint;

	fabric_pair_pump(p);
	for (int i = 0; i < st->done_count; i++)
		if (st->done[i].id < SIEGE_RECEIVES)
			receive(st, NULL, st->done[i].id, &x->inbox, st->done[i].id * 64, 64);
	st->done_count = 0;
	for (int i = 0; i < st->event_count; i++) {
		struct fabric_event e = st->event[i];

		if (e.type == FABRIC_REQUEST) {
			if (station_take(st, e.request, &fabric_pair_shared.server, &endpoint) == 0 &&
			    fabric_accept(endpoint, NULL, 0) != 0)
				station_destroy(st, &endpoint);
		} else if (e.type == FABRIC_DISCONNECTED && e.endpoint != p->s) {
			station_destroy(st, &e.endpoint);
		}
	}
	st->event_count = 0;
}

void raw_send(int fd, const uint8_t *bytes, size_t len)
{
	while (len) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		bytes += n;
		len -= (size_t)n;
	}
}

bool siege_serve_raw(struct siege *x, int fd, bool may_live)
{
	uint64_t until = deadline();

	for (int quiet = 0;;) {
		uint64_t before = x->p.server.pulled;

		siege_serve(x);
		if (raw_ended(fd))
			return true;
		quiet = x->p.server.pulled == before ? quiet + 1 : 0;
		if (may_live && quiet > 200)
			return false;
		check_that(time_now() < until, "what is not a handshake was not cut off");
	}
}

static void record(struct siege *x, int from, int to, bool keep)
{
	uint8_t chunk[4096];
	ssize_t n;

	while ((n = recv(from, chunk, sizeof(chunk), MSG_DONTWAIT)) > 0) {
		if (keep) {
			ck_assert_uint_le(x->len + (size_t)n, sizeof(x->bytes));
			memcpy(x->bytes + x->len, chunk, (size_t)n);
			x->len += (size_t)n;
		}
		raw_send(to, chunk, (size_t)n);
	}
}

static void relay(struct siege *x, int client, int server, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		siege_serve(x);
		record(x, client, server, true);
		record(x, server, client, false);
	}
}

static void relay_until(struct siege *x, int client, int server, int done)
{
	uint64_t until = deadline();

	while (x->p.client.done_count < done) {
		check_that(time_now() < until, "waited in vain");
		relay(x, client, server, 1);
	}
}

/* Post one of each kind from c, whose bytes go through the relay: a message, and then the others. */
static void record_work(struct siege *x, struct fabric_endpoint *c, const struct buffer *mine, int client, int server)
{
	struct fabric_wr wr[5];
	unsigned n = 4;

	wr[0] = wr_local(FABRIC_SEND, 0, mine, 0, 16);
	wr[1] = wr_remote(FABRIC_WRITE, 1, mine, 0, 64, &x->region, x->p.s, 64);
	wr[2] = wr_remote(FABRIC_READ, 2, mine, 128, 64, &x->region, x->p.s, 0);
	wr[3] = wr_local(FABRIC_SEND, 3, mine, 0, 48);
	if (x->p.limits.write_imm) {
		wr[n] = wr_remote(FABRIC_WRITE_IMM, 4, mine, 0, 32, &x->region, x->p.s, 256);
		wr[n++].imm = 9;
	}
	x->hello = x->len;
	post(c, &wr[0]);
	relay_until(x, client, server, 1);
	x->first = x->len - x->hello;
	for (unsigned i = 1; i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	post(c, &wr[1]);
	relay_until(x, client, server, (int)n);
}

static void siege_record(struct siege *x)
{
	struct fabric_endpoint *c;
	struct sockaddr_storage sa;
	struct buffer mine;
	socklen_t len;
	int listener, client = -1, server;
	uint64_t until = deadline();
	bool memory = target.memory;

	target_address(3, &sa, &len);
	if (sa.ss_family == AF_UNIX)
		unlink(((struct sockaddr_un *)&sa)->sun_path);
	listener = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sa, len), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&sa, &len), 0);
	target.memory = false; /* the bytes are to come by the socket */
	ck_assert_int_eq(station_connect(&x->p.client, &sa, len, &fabric_pair_shared.client, "hello", 5, &c), 0);
	target.memory = memory;
	server = raw_connect(&x->p.sa, x->p.len);
	while (client < 0 || !x->p.client.event_count) {
		check_that(time_now() < until, "waited in vain");
		if (client < 0)
			client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		else
			relay(x, client, server, 1);
		fabric_pair_pump(&x->p);
	}
	event_expect(&x->p, &x->p.client, c, FABRIC_ESTABLISHED);
	relay(x, client, server, 20);
	buffer_make(&mine, &x->p.client, 4096, sink_rights());
	buffer_fill(&mine, 33);
	record_work(x, c, &mine, client, server);
	ck_assert_uint_gt(x->hello, 0);
	ck_assert_uint_gt(x->len, x->hello);
	station_destroy(&x->p.client, &c);
	close(client);
	close(server);
	close(listener);
	if (sa.ss_family == AF_UNIX)
		unlink(((struct sockaddr_un *)&sa)->sun_path);
	buffer_drop(&mine);
	for (int i = 0; i < 50; i++)
		siege_serve(x);
	x->p.client.done_count = x->p.client.event_count = 0;
}

void siege_open(struct siege *x)
{
	siege_open_with(x, &fabric_pair_shared);
}

void siege_open_with(struct siege *x, const struct fabric_pair_options *options)
{
	*x = (struct siege){0};
	fabric_pair_make(&x->p, options);
	buffer_make(&x->inbox, &x->p.server, SIEGE_RECEIVES * 64, FABRIC_LOCAL_WRITE);
	buffer_make(&x->region, &x->p.server, 4096, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	for (uint64_t i = 0; i < SIEGE_RECEIVES; i++)
		receive(&x->p.server, NULL, i, &x->inbox, i * 64, 64);
	siege_record(x);
	x->fds = count_descriptors();
}

void siege_close(struct siege *x)
{
	uint64_t until = deadline();
	struct fabric_wr wr = wr_local(FABRIC_SEND, 1, NULL, 0, 0);

	while (count_descriptors() != x->fds || x->p.server.known_count > 1) {
		check_that(time_now() < until, "%u descriptors, were %u; %d endpoints", count_descriptors(), x->fds,
			   x->p.server.known_count);
		siege_serve(x);
	}
	post(x->p.c, &wr);
	while (!x->p.server.done_count)
		fabric_pair_pump(&x->p);
	ck_assert_ptr_eq(x->p.server.done[0].endpoint, x->p.s);
	ck_assert_int_eq(x->p.server.done[0].status, FABRIC_OK);
	buffer_drop(&x->inbox);
	buffer_drop(&x->region);
	fabric_pair_close(&x->p);
}

bool siege_replay(struct siege *x, const uint8_t *bytes, size_t len, bool may_live)
{
	int fd = raw_connect(&x->p.sa, x->p.len);
	size_t first = MIN(len, x->hello);
	bool ended;

	raw_send(fd, bytes, first);
	ended = siege_serve_raw(x, fd, may_live || first < len);
	if (!ended && first < len) {
		raw_send(fd, bytes + first, len - first);
		ended = siege_serve_raw(x, fd, may_live);
	}
	close(fd);
	for (int i = 0; i < 3; i++)
		siege_serve(x);
	return ended;
}
