/*
 * fabric_share.c: how a TCP connection within one machine comes to go by shared memory: with clients and servers of their own,
 * which keep to it, or do not.
 */
#include "tests/fabric/fabric_memory.h"
#include "tests/fabric/fabric_siege.h"
#include "tests/suite.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "fabric/soft/frame.h"

#define NAME (0x0123456789abcdefull ^ (uint64_t)getpid() << 32) /* this test may run many times at once */
#define SECRET 0xfedcba9876543210ull
#define SHARES 128 /* that a queue gives */
#define ALL 100000u
#define MANY 1000u /* more than there is room for where they are kept */

static const char *transport_of(const struct fabric_endpoint *ep)
{
	return fabric_endpoint_transport(ep)->name;
}

static int rings_make(void)
{
	return memory_make(sizeof(struct soft_rings_memory), SEALS);
}

static struct soft_rings_memory *rings_map(int fd)
{
	struct soft_rings_memory *memory = mmap(NULL, sizeof(*memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

/* Only where both ends want it. */
START_TEST(both_have_to_want_it)
{
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	for (unsigned i = 0; i < 8; i++) {
		unsigned fds = count_descriptors();
		struct fabric_event e;

		target.memory = i & 1;
		ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, &p.options.client, NULL, 0, &p.c), 0);
		e = event_expect(&p, &p.server, NULL, FABRIC_REQUEST);
		target.memory = i & 2;
		ck_assert_int_eq(station_take(&p.server, e.request, &p.options.server, &p.s), 0);
		ck_assert_int_eq(fabric_accept(p.s, NULL, 0), 0);
		event_expect(&p, &p.client, p.c, FABRIC_ESTABLISHED);
		event_expect(&p, &p.server, p.s, FABRIC_ESTABLISHED);
		ck_assert_str_eq(transport_of(p.c), i % 4 == 3 ? "shm" : "tcp");
		ck_assert_str_eq(transport_of(p.s), i % 4 == 3 ? "shm" : "tcp");
		check_that(count_descriptors() <= fds + 2, "more than its sockets are left of a connection");
		fabric_pair_exercise(&p, p.c, p.s);
		station_destroy(&p.client, &p.c);
		station_destroy(&p.server, &p.s);
	}
	fabric_pair_close(&p);
}
END_TEST

/* No more than so many, each of which may come to have 1 MiB; the others go by TCP. One that ends makes room for another. */
START_TEST(many_and_one_more)
{
	struct fabric_endpoint *c[SHARES + 2], *s[SHARES + 2];
	int shared = 0, one = 0;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	/* All of them have heard that they may ask before the first one does. */
	for (int i = 0; i < SHARES + 2; i++)
		ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, &p.options.client, NULL, 0, &c[i]), 0);
	wait_until(&p, p.server.event_count == SHARES + 2);
	for (int i = 0; i < SHARES + 2; i++) {
		struct fabric_request *request = event_expect(&p, &p.server, NULL, FABRIC_REQUEST).request;

		ck_assert_int_eq(station_take(&p.server, request, &p.options.server, &s[i]), 0);
		ck_assert_int_eq(fabric_accept(s[i], NULL, 0), 0);
	}
	for (int i = 0; i < SHARES + 2; i++) {
		event_expect(&p, &p.client, c[i], FABRIC_ESTABLISHED);
		event_expect(&p, &p.server, s[i], FABRIC_ESTABLISHED);
		shared += strcmp(transport_of(s[i]), "shm") == 0;
	}
	ck_assert_int_eq(shared, SHARES);
	while (strcmp(transport_of(s[one]), "shm") != 0)
		one++;
	station_destroy(&p.server, &s[one]);
	wait_until(&p, p.client.event_count == 1);
	for (int i = 0; i < SHARES + 2; i++)
		if (c[i] == p.client.event[0].endpoint) {
			event_expect(&p, &p.client, c[i], FABRIC_DISCONNECTED);
			station_destroy(&p.client, &c[i]);
			break;
		}
	fabric_pair_connect(&p, &p.c, &p.s);
	ck_assert_str_eq(transport_of(p.c), "shm");
	ck_assert_str_eq(transport_of(p.s), "shm");
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_close(&p);
}
END_TEST

/*
 * A client of our own.
 */
static void share_frame(uint8_t bytes[static SOFT_HEADER], uint64_t name, uint64_t secret)
{
	struct soft_frame f = {
		.op = SOFT_SHARE, .addr = name, .key = (uint32_t)secret, .arg = (uint32_t)(secret >> 32)};

	soft_frame_encode(bytes, &f);
}

/* The next frame of the server, without private data. */
static struct soft_frame frame_from(struct siege *x, int fd)
{
	uint8_t bytes[SOFT_HEADER];
	uint64_t until = deadline();
	struct soft_frame f;
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) < 0) {
		check_that(time_now() < until, "no frame came");
		siege_serve(x);
	}
	ck_assert_int_eq(n, SOFT_HEADER);
	soft_frame_decode(bytes, &f);
	return f;
}

/* Connected, and the server has said what it says. */
static int client_of_own(struct siege *x, bool offered)
{
	int fd = raw_connect(&x->p.sa, x->p.len);
	struct soft_frame f;

	raw_send(fd, x->bytes, x->hello);
	f = frame_from(x, fd);
	ck_assert_int_eq(f.op, SOFT_ACCEPT);
	ck_assert_uint_eq(f.arg, offered ? SOFT_ACCEPT_SHARE : 0);
	return fd;
}

static socklen_t name_of(uint64_t name, struct sockaddr_un *un)
{
	*un = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "rdmad-%016llx",
					    (unsigned long long)name));
}

/* A datagram socket that has this name. */
static int socket_of(uint64_t name)
{
	struct sockaddr_un un;
	socklen_t len = name_of(name, &un);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&un, len), 0);
	return fd;
}

/* Datagrams of people who do not know the secret, each with a descriptor: so many, or as many as there is room for. */
static void strangers(uint64_t name, unsigned count)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	struct sockaddr_un un;
	socklen_t len = name_of(name, &un);
	unsigned sent = 0;

	while (sent < count && memory_pass(fd, (struct sockaddr *)&un, len, "sesame!", sent % 2 ? 7 : 8, &zero, 1))
		sent++;
	check_that(count < ALL ? sent == count : errno == EAGAIN, "%u of them", sent);
	close(zero);
	close(fd);
}

START_TEST(a_client_asks)
{
	uint8_t ask[SOFT_HEADER], control[CMSG_SPACE(8 * sizeof(int))];
	struct soft_rings_memory *memory;
	uint64_t secret[2];
	struct iovec iov = {secret, sizeof(secret)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int fd, door = socket_of(NAME), passed;
	struct soft_frame f;
	struct siege x;

	siege_open(&x);
	fd = client_of_own(&x, true);
	share_frame(ask, NAME, SECRET);
	raw_send(fd, ask, sizeof(ask));
	f = frame_from(&x, fd);
	ck_assert_int_eq(f.op, SOFT_SHARE);
	ck_assert_uint_eq(f.arg, 1);
	ck_assert_int_eq(recvmsg(door, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC), sizeof(*secret));
	ck_assert(secret[0] == SECRET);
	memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(passed));
	ck_assert_int_eq(fcntl(passed, F_GET_SEALS) & SEALS, SEALS);
	memory = rings_map(passed);
	ck_assert_uint_eq(memory->magic, SOFT_RINGS_MAGIC);
	close(passed);
	buffer_fill(&x.region, 77);
	memcpy(memory->data[0], x.bytes + x.hello, x.len - x.hello);
	atomic_store(&memory->ring[0].head, x.len - x.hello);
	raw_send(fd, (const uint8_t *)"", 1);
	check_that(!siege_serve_raw(&x, fd, true), "it was cut off");
	check_that(!buffer_has(&x.region, 0, 256, 77), "nothing was written");
	ck_assert_uint_eq(atomic_load(&memory->ring[0].tail), x.len - x.hello);
	ck_assert_uint_gt(atomic_load(&memory->ring[1].head), 0);
	munmap(memory, sizeof(*memory));
	close(fd);
	siege_close(&x);
	close(door);
}
END_TEST

/* Nobody has that name, or no room for it: the socket carries all. */
START_TEST(a_client_cannot_be_told)
{
	uint8_t ask[SOFT_HEADER];
	int door = socket_of(NAME + 1);
	unsigned mappings;
	struct siege x;

	strangers(NAME + 1, ALL);
	siege_open(&x);
	mappings = count_mappings();
	for (unsigned i = 0; i < 2; i++) {
		int fd = client_of_own(&x, true);
		struct soft_frame f;

		share_frame(ask, NAME + i, SECRET);
		raw_send(fd, ask, sizeof(ask));
		f = frame_from(&x, fd);
		ck_assert_int_eq(f.op, SOFT_SHARE);
		ck_assert_uint_eq(f.arg, 0);
		ck_assert_uint_eq(count_mappings(), mappings);
		buffer_fill(&x.region, 77);
		raw_send(fd, x.bytes + x.hello, x.len - x.hello);
		check_that(!siege_serve_raw(&x, fd, true), "it was cut off");
		check_that(!buffer_has(&x.region, 0, 256, 77), "nothing was written");
		close(fd);
	}
	siege_close(&x);
	close(door);
}
END_TEST

/* What is not to be asked, or not so, ends the connection, and nothing is left of it. */
START_TEST(a_client_asks_wrongly)
{
	int door = socket_of(NAME);
	struct siege x;

	siege_open(&x);
	for (int i = 0; i < 6; i++) {
		unsigned mappings = count_mappings();
		uint8_t bytes[3 * SOFT_HEADER];
		size_t len = SOFT_HEADER;
		int fd;

		target.memory = i != 0;
		fd = client_of_own(&x, i != 0);
		target.memory = true;
		share_frame(bytes, NAME, SECRET);
		switch (i) {
		case 1: /* twice, when nobody can be told */
			share_frame(bytes, NAME + 1, SECRET);
			memcpy(bytes + len, bytes, SOFT_HEADER);
			len *= 2;
			break;
		case 2: /* with a payload */
			bytes[2] = 4;
			break;
		case 3: /* with a flag that there is not */
			bytes[1] = 2;
			break;
		case 4: /* and half a frame more */
			memcpy(bytes + len, x.bytes + x.hello, SOFT_HEADER / 2);
			len += SOFT_HEADER / 2;
			break;
		case 5: /* and goes at once */
			raw_send(fd, bytes, len);
			shutdown(fd, SHUT_RDWR);
			break;
		}
		raw_send(fd, bytes, len);
		check_that(siege_serve_raw(&x, fd, i == 5), "fault %d was not cut off", i);
		close(fd);
		for (uint64_t until = deadline(); count_mappings() != mappings;) {
			check_that(time_now() < until, "fault %d leaves memory", i);
			siege_serve(&x);
		}
		while (recv(door, bytes, 1, MSG_DONTWAIT) > 0)
			;
	}
	siege_close(&x);
	close(door);
}
END_TEST

/*
 * A server of our own.
 */
struct raw_server {
	struct fabric_pair p; /* the client, and a server that nobody uses */
	struct fabric_endpoint *c;
	int fd;
	uint64_t name, secret; /* that the client asked with */
};

static void server_says(struct raw_server *r, enum soft_op op, uint32_t arg)
{
	struct soft_frame f = {.op = (uint8_t)op, .arg = arg};
	uint8_t bytes[SOFT_HEADER];

	if (op == SOFT_ACCEPT) {
		f.addr = SOFT_MAGIC;
		f.key = soft_greeting_key(SOFT_VERSION, 4, 4);
	}
	if (op == SOFT_SEND)
		f.flags = SOFT_FLAG_ACK;
	soft_frame_encode(bytes, &f);
	raw_send(r->fd, bytes, sizeof(bytes));
}

static void server_passes(const struct raw_server *r, uint64_t secret, int memory)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un un;
	socklen_t len = name_of(r->name, &un);

	if (memory >= 0) /* twice: no more than one is to be taken */
		memory_pass(fd, (struct sockaddr *)&un, len, &secret, sizeof(secret), (int[]){memory, memory}, 2);
	else
		ck_assert_int_eq(sendto(fd, &secret, sizeof(secret), 0, (struct sockaddr *)&un, len), sizeof(secret));
	if (memory >= 0)
		close(memory);
	close(fd);
}

/* The client has asked. */
static void server_open(struct raw_server *r)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_storage to = {0};
	socklen_t len = sizeof(sa);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint8_t bytes[256];
	struct soft_frame f;

	fabric_pair_open(&r->p, &fabric_pair_defaults);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sa, len), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&sa, &len), 0);
	memcpy(&to, &sa, sizeof(sa));
	ck_assert_int_eq(station_connect(&r->p.client, &to, len, &fabric_pair_defaults.client, NULL, 0, &r->c), 0);
	wait_until(&r->p, (r->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
	close(listener);
	wait_until(&r->p, recv(r->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0);
	server_says(r, SOFT_ACCEPT, SOFT_ACCEPT_SHARE);
	wait_until(&r->p, recv(r->fd, bytes, SOFT_HEADER, MSG_DONTWAIT) == SOFT_HEADER);
	soft_frame_decode(bytes, &f);
	ck_assert_int_eq(f.op, SOFT_SHARE);
	r->name = f.addr;
	r->secret = f.key | (uint64_t)f.arg << 32;
	check_that(!r->p.client.event_count, "the caller was told before there was an answer");
}

static void server_close(struct raw_server *r)
{
	close(r->fd);
	station_destroy(&r->p.client, &r->c);
	fabric_pair_close(&r->p);
}

/* Memory for both, of which the server has this. */
static struct soft_rings_memory *server_gives(const struct raw_server *r)
{
	int fd = rings_make();
	struct soft_rings_memory *memory = rings_map(fd);

	atomic_store(&memory->ring[0].asleep, 1);
	server_passes(r, r->secret, fd);
	return memory;
}

static void pump(struct raw_server *r)
{
	for (int i = 0; i < 100; i++)
		station_pump(&r->p.client);
}

static void say_nothing_yet(struct raw_server *r)
{
	uint8_t byte;

	pump(r);
	check_that(recv(r->fd, &byte, 1, MSG_DONTWAIT) < 0, "it speaks before it has its answer");
}

/* By shared memory, whatever strangers sent before, or by TCP. A message that comes before the answer is acknowledged after it. */
START_TEST(a_server_answers)
{
	for (unsigned i = 0; i < 2; i++) {
		unsigned fds = count_descriptors(), mappings = count_mappings();
		struct soft_rings_memory *memory = NULL;
		struct raw_server r;
		struct buffer mine;
		struct fabric_wr wr;
		uint8_t bytes[256];

		server_open(&r);
		buffer_make(&mine, &r.p.client, 64, FABRIC_LOCAL_WRITE);
		receive(&r.p.client, r.c, 5, &mine, 0, 64);
		server_says(&r, SOFT_SEND, 0);
		done_expect(&r.p, &r.p.client, r.c, 5, FABRIC_RECV, FABRIC_OK);
		say_nothing_yet(&r);
		strangers(r.name, MANY);
		if (i == 0)
			memory = server_gives(&r);
		server_says(&r, SOFT_SHARE, i == 0);
		event_expect(&r.p, &r.p.client, r.c, FABRIC_ESTABLISHED);
		ck_assert_str_eq(transport_of(r.c), i == 0 ? "shm" : "tcp");
		wr = wr_local(FABRIC_SEND, 1, &mine, 0, 16);
		post(r.c, &wr);
		pump(&r);
		/* The acknowledgement and the message, or a byte that wakes. */
		ck_assert_int_eq(recv(r.fd, bytes, sizeof(bytes), MSG_DONTWAIT), i == 0 ? 1 : 2 * SOFT_HEADER + 16);
		if (i == 0)
			ck_assert_uint_eq(atomic_load(&memory->ring[0].head), 2 * SOFT_HEADER + 16);
		buffer_drop(&mine);
		server_close(&r);
		if (i == 0)
			munmap(memory, sizeof(*memory));
		ck_assert_uint_eq(count_descriptors(), fds);
		ck_assert_uint_eq(count_mappings(), mappings);
	}
}
END_TEST

/* It waits for a receive, behind which the answer stands, and a byte that wakes: its caller hears of the connection, or would not post
 * any; and all comes in its order. */
START_TEST(an_answer_behind_a_message)
{
	struct soft_frame send = {.op = SOFT_SEND, .len = 4}, share = {.op = SOFT_SHARE, .arg = 1};
	struct soft_rings_memory *memory;
	uint8_t bytes[2 * SOFT_HEADER + 5] = {0};
	struct raw_server r;
	struct buffer mine;

	server_open(&r);
	buffer_make(&mine, &r.p.client, 64, FABRIC_LOCAL_WRITE);
	memory = server_gives(&r);
	soft_frame_encode(bytes, &send);
	memcpy(bytes + SOFT_HEADER, "one", 4);
	soft_frame_encode(bytes + SOFT_HEADER + 4, &share);
	memcpy(memory->data[1], bytes, SOFT_HEADER);
	memcpy(memory->data[1] + SOFT_HEADER, "two", 4);
	atomic_store(&memory->ring[1].head, SOFT_HEADER + 4);
	raw_send(r.fd, bytes, sizeof(bytes));
	event_expect(&r.p, &r.p.client, r.c, FABRIC_ESTABLISHED);
	say_nothing_yet(&r);
	receive(&r.p.client, r.c, 1, &mine, 0, 32);
	receive(&r.p.client, r.c, 2, &mine, 32, 32);
	done_expect(&r.p, &r.p.client, r.c, 1, FABRIC_RECV, FABRIC_OK);
	done_expect(&r.p, &r.p.client, r.c, 2, FABRIC_RECV, FABRIC_OK);
	ck_assert_str_eq((char *)mine.at, "one");
	ck_assert_str_eq((char *)mine.at + 32, "two");
	ck_assert_str_eq(transport_of(r.c), "shm");
	pump(&r);
	check_that(!r.p.client.event_count, "it was told twice, or has ended");
	buffer_drop(&mine);
	server_close(&r);
	munmap(memory, sizeof(*memory));
}
END_TEST

/* Many messages before the answer, so that epoll is not told of the socket any more: its end is seen all the same. */
START_TEST(an_end_after_many_messages)
{
	struct soft_rings_memory *memory;
	struct raw_server r;
	struct buffer mine;

	server_open(&r);
	buffer_make(&mine, &r.p.client, 64, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < 200; i++) {
		receive(&r.p.client, r.c, i, &mine, 0, 64);
		server_says(&r, SOFT_SEND, 0);
		done_expect(&r.p, &r.p.client, r.c, i, FABRIC_RECV, FABRIC_OK);
	}
	memory = server_gives(&r);
	server_says(&r, SOFT_SHARE, 1);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_ESTABLISHED);
	ck_assert_str_eq(transport_of(r.c), "shm");
	pump(&r);
	shutdown(r.fd, SHUT_RDWR);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_DISCONNECTED);
	buffer_drop(&mine);
	server_close(&r);
	munmap(memory, sizeof(*memory));
}
END_TEST

/* What it cannot take it refuses, also before the answer. */
START_TEST(a_refusal_before_the_answer)
{
	struct soft_frame f = {.op = SOFT_SEND, .len = 40};
	uint8_t bytes[SOFT_HEADER + 40] = {0};
	struct raw_server r;
	struct buffer mine;

	server_open(&r);
	buffer_make(&mine, &r.p.client, 64, FABRIC_LOCAL_WRITE);
	receive(&r.p.client, r.c, 1, &mine, 0, 16);
	soft_frame_encode(bytes, &f);
	raw_send(r.fd, bytes, sizeof(bytes));
	wait_until(&r.p, recv(r.fd, bytes, SOFT_HEADER, MSG_DONTWAIT) == SOFT_HEADER);
	soft_frame_decode(bytes, &f);
	ck_assert_int_eq(f.op, SOFT_ERROR);
	ck_assert_uint_eq(f.key, SOFT_REFUSED_LENGTH);
	done_expect(&r.p, &r.p.client, r.c, 1, 0, FABRIC_LOCAL_ERROR);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_ESTABLISHED);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_DISCONNECTED);
	buffer_drop(&mine);
	server_close(&r);
}
END_TEST

START_TEST(a_server_answers_wrongly)
{
	static const struct {
		const char *what;
		int error;
	} faults[] = {
		{"nothing was passed", -EPROTO},
		{"passed with another secret", -EPROTO},
		{"many strangers, and nobody else", -EPROTO},
		{"another kind of memory", -ENOMEM},
		{"no memory", -EPROTO},
		{"no descriptor is left to take it", -EMFILE},
	};
	struct rlimit limit, none;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){3, limit.rlim_max};
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		unsigned fds = count_descriptors(), mappings = count_mappings();
		struct raw_server r;
		struct fabric_event e;

		server_open(&r);
		if (i == 1) {
			server_passes(&r, r.secret ^ 1, rings_make());
			server_passes(&r, r.secret ^ 1ull << 63, rings_make());
		}
		if (i == 2)
			strangers(r.name, MANY);
		if (i == 3)
			server_passes(&r, r.secret, memory_make(sizeof(struct soft_rings_memory) - 4096, SEALS));
		if (i == 4)
			server_passes(&r, r.secret, -1);
		if (i == 5) {
			server_passes(&r, r.secret, rings_make());
			ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
		}
		server_says(&r, SOFT_SHARE, 1);
		e = event_expect(&r.p, &r.p.client, r.c, FABRIC_UNREACHABLE);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		check_that(e.error == faults[i].error, "%s: %d", faults[i].what, e.error);
		server_close(&r);
		check_that(count_descriptors() == fds && count_mappings() == mappings, "%s: something is left",
			   faults[i].what);
	}
}
END_TEST

/* It was a connection, which ended. */
START_TEST(a_server_goes)
{
	struct raw_server r;

	server_open(&r);
	shutdown(r.fd, SHUT_RDWR);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_ESTABLISHED);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_DISCONNECTED);
	server_close(&r);
	/* Or says what is no answer. */
	server_open(&r);
	server_says(&r, SOFT_SHARE, 2);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_ESTABLISHED);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_DISCONNECTED);
	server_close(&r);
	/* And if its own caller gives it up. */
	server_open(&r);
	fabric_disconnect(r.c);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_ESTABLISHED);
	event_expect(&r.p, &r.p.client, r.c, FABRIC_DISCONNECTED);
	server_close(&r);
	server_open(&r);
	station_destroy(&r.p.client, &r.c);
	server_close(&r);
}
END_TEST

Suite *share_suite(void)
{
	Suite *s = suite_create("share");
	TCase *t;

	if (!target.soft || !target.memory || !target_has_port())
		return s;
	t = fabric_pair_tcase(s, "share", 60);
	tcase_add_test(t, both_have_to_want_it);
	tcase_add_test(t, many_and_one_more);
	tcase_add_test(t, a_client_asks);
	tcase_add_test(t, a_client_cannot_be_told);
	tcase_add_test(t, a_client_asks_wrongly);
	tcase_add_test(t, a_server_answers);
	tcase_add_test(t, an_answer_behind_a_message);
	tcase_add_test(t, an_end_after_many_messages);
	tcase_add_test(t, a_refusal_before_the_answer);
	tcase_add_test(t, a_server_answers_wrongly);
	tcase_add_test(t, a_server_goes);
	return s;
}
