/*
 * fabric_rings.c: shared memory in the place of a UNIX socket's bytes. A client of its own puts into it what a real client sent
 * (fabric_siege.h), or what no client would; a server of its own passes memory that is to be used, or not.
 */
#include "tests/fabric/fabric_memory.h"
#include "tests/fabric/fabric_siege.h"
#include "tests/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/soft/frame.h"
#include "fabric/soft/rings.h"

struct raw_client {
	int fd;
	struct soft_rings_memory *memory;
};

/* The header of the next frame, and the descriptor that came with it, or -1. */
static struct soft_frame frame_from(struct siege *x, int fd, int *passed)
{
	uint8_t bytes[SOFT_HEADER], control[CMSG_SPACE(8 * sizeof(int))];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	uint64_t until = deadline();
	struct soft_frame f;
	ssize_t n;

	while ((n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
		check_that(time_now() < until, "no frame came");
		siege_serve(x);
	}
	ck_assert_int_eq(n, SOFT_HEADER);
	soft_frame_decode(bytes, &f);
	*passed = -1;
	if (m.msg_controllen)
		memcpy(passed, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(*passed));
	return f;
}

/* Accepted, and offered this memory. */
static int raw_client_accepted(struct siege *x, int *memory)
{
	int fd = raw_connect(&x->p.sa, x->p.len);
	struct soft_frame f;

	raw_send(fd, x->bytes, x->hello);
	f = frame_from(x, fd, memory);
	ck_assert_int_eq(f.op, SOFT_ACCEPT);
	ck_assert_uint_eq(f.arg, SOFT_ACCEPT_SHARE);
	ck_assert_int_ge(*memory, 0);
	return fd;
}

static void raw_client_open(struct siege *x, struct raw_client *c)
{
	const struct soft_frame ask = {.op = SOFT_SHARE};
	uint8_t bytes[SOFT_HEADER];
	struct soft_frame f;
	int memory, none;

	c->fd = raw_client_accepted(x, &memory);
	ck_assert_int_eq(fcntl(memory, F_GET_SEALS) & SEALS, SEALS);
	c->memory = mmap(NULL, sizeof(*c->memory), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	ck_assert_ptr_ne(c->memory, MAP_FAILED);
	close(memory);
	soft_frame_encode(bytes, &ask);
	raw_send(c->fd, bytes, sizeof(bytes));
	f = frame_from(x, c->fd, &none);
	ck_assert_int_eq(f.op, SOFT_SHARE);
	ck_assert_uint_eq(f.arg, 1);
	ck_assert_int_lt(none, 0);
}

static void raw_client_close(struct raw_client *c)
{
	munmap(c->memory, sizeof(*c->memory));
	close(c->fd);
}

/* As a client does it, but with as many bytes at once as are given. */
static void put(struct raw_client *c, const uint8_t *bytes, size_t len)
{
	struct soft_ring *ring = &c->memory->ring[0];
	uint64_t head = atomic_load(&ring->head);

	for (size_t i = 0; i < len; i++)
		c->memory->data[0][(head + i) % SOFT_RING_SIZE] = bytes[i];
	atomic_store(&ring->head, head + len);
	if (atomic_exchange(&ring->asleep, 0))
		send(c->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What a client puts is understood, whatever pieces it comes in. */
START_TEST(frames_by_rings)
{
	static const size_t pieces[] = {1, 7, 24, 4096};
	unsigned before;
	struct siege x;

	siege_open(&x);
	before = count_mappings();
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		struct raw_client c;
		size_t n;

		raw_client_open(&x, &c);
		buffer_fill(&x.region, 77);
		for (size_t at = x.hello; at < x.len; at += n) {
			n = MIN(pieces[i], x.len - at);
			put(&c, x.bytes + at, n);
			for (int j = 0; j < 3; j++)
				siege_serve(&x);
		}
		check_that(!siege_serve_raw(&x, c.fd, true), "pieces of %zu bytes were cut off", pieces[i]);
		check_that(!buffer_has(&x.region, 0, 256, 77), "nothing was written");
		check_that(atomic_load(&c.memory->ring[0].tail) == x.len - x.hello, "not all was taken");
		check_that(atomic_load(&c.memory->ring[1].head) > 0, "nothing was answered");
		raw_client_close(&c);
	}
	for (uint64_t until = deadline(); count_mappings() != before;) {
		check_that(time_now() < until, "%u mappings, were %u", count_mappings(), before);
		siege_serve(&x);
	}
	siege_close(&x);
}
END_TEST

/* It does not ask: the socket carries all. */
START_TEST(a_client_that_does_not_ask)
{
	struct siege x;
	int fd, memory;

	siege_open(&x);
	fd = raw_client_accepted(&x, &memory);
	close(memory);
	buffer_fill(&x.region, 77);
	raw_send(fd, x.bytes + x.hello, x.len - x.hello);
	check_that(!siege_serve_raw(&x, fd, true), "it was cut off");
	check_that(!buffer_has(&x.region, 0, 256, 77), "nothing was written");
	close(fd);
	siege_close(&x);
}
END_TEST

/* Memory that a server passes, of a kind that is not to be used, or that is. */
static int memory_of_kind(int kind)
{
	off_t size = sizeof(struct soft_rings_memory);
	char name[] = "/tmp/rdmad-test-XXXXXX";
	uint64_t zero = 0;
	int fd;

	switch (kind) {
	case 1:
		return memory_make(size, 0);
	case 2:
		return memory_make(size, F_SEAL_GROW);
	case 3:
		return memory_make(size - 4096, SEALS);
	case 4:
		return memory_make(size + 4096, SEALS);
	case 5:
		return memory_make(size, SEALS | F_SEAL_WRITE);
	case 6:
		fd = memory_make(size, SEALS);
		ck_assert_int_eq(pwrite(fd, &zero, sizeof(zero), 0), sizeof(zero));
		return fd;
	case 7:
		fd = mkstemp(name);
		ck_assert_int_eq(unlink(name), 0);
		ck_assert_int_eq(ftruncate(fd, size), 0);
		return fd;
	case 8:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	default:
		return memory_make(size, SEALS);
	}
}

/* What is no memory to share, or might vanish from under the client, is not touched, and nothing is left of it. */
START_TEST(other_memory_is_not_used)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 +
			(socklen_t)snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "rdmad-test-%d", (int)getpid());
	struct soft_frame accept = {.op = SOFT_ACCEPT,
				    .addr = SOFT_MAGIC,
				    .key = soft_greeting_key(SOFT_VERSION, 4, 4),
				    .arg = SOFT_ACCEPT_SHARE};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint8_t bytes[SOFT_HEADER], in[256];
	struct sockaddr_storage to = {0};
	struct fabric_pair p;

	memcpy(&to, &un, sizeof(un));
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&un, len), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	fabric_pair_open(&p, &fabric_pair_defaults);
	soft_frame_encode(bytes, &accept);
	for (int kind = 0; kind < 10; kind++) {
		unsigned fds = count_descriptors(), mappings = count_mappings();
		int fd = -1, pass[] = {memory_of_kind(kind), listener, listener};
		struct fabric_endpoint *c;

		ck_assert_int_eq(station_connect(&p.client, &to, len, &fabric_pair_defaults.client, NULL, 0, &c), 0);
		wait_until(&p, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
		wait_until(&p, recv(fd, in, sizeof(in), MSG_DONTWAIT) > 0);
		/* Only one is taken, and none where none comes. */
		if (kind < 9)
			memory_pass(fd, NULL, 0, bytes, sizeof(bytes), pass, kind ? 1 : ARRAY_SIZE(pass));
		else
			raw_send(fd, bytes, sizeof(bytes));
		close(pass[0]);
		if (kind) {
			event_expect(&p, &p.client, c, FABRIC_ESTABLISHED);
			ck_assert_str_eq(fabric_endpoint_transport(c)->name, "unix");
			check_that(count_mappings() == mappings, "memory of kind %d is mapped", kind);
		} else {
			wait_until(&p, recv(fd, in, sizeof(in), MSG_DONTWAIT) == SOFT_HEADER);
			ck_assert_int_eq(in[0], SOFT_SHARE);
		}
		check_that(count_descriptors() <= fds + 2, "memory of kind %d is held", kind);
		close(fd);
		station_destroy(&p.client, &c);
		wait_until(&p, count_descriptors() == fds && count_mappings() == mappings);
		p.client.event_count = 0;
	}
	close(listener);
	fabric_pair_close(&p);
}
END_TEST

/* An index that cannot be ends the connection, and no byte outside of a ring is touched. */
START_TEST(indices_that_cannot_be)
{
	static const uint64_t head[] = {SOFT_RING_SIZE + 1, SOFT_RING_SIZE * 2, UINT64_MAX, UINT64_MAX / 2, 1ull << 63};
	static const uint64_t tail[] = {1, 4096, SOFT_RING_SIZE, UINT64_MAX, 1ull << 63};
	struct raw_client c;
	struct siege x;

	siege_open(&x);
	for (size_t i = 0; i < ARRAY_SIZE(head); i++) {
		raw_client_open(&x, &c);
		atomic_store(&c.memory->ring[0].head, head[i]);
		raw_send(c.fd, (const uint8_t *)"", 1);
		check_that(siege_serve_raw(&x, c.fd, false), "%llu bytes are there", (unsigned long long)head[i]);
		raw_client_close(&c);
	}
	for (size_t i = 0; i < ARRAY_SIZE(tail); i++) {
		raw_client_open(&x, &c);
		/* Beyond what was put: the answers that are due do not go there. */
		atomic_store(&c.memory->ring[1].tail, tail[i] + SOFT_RING_SIZE);
		for (int j = 0; j < 1000 && !raw_ended(c.fd); j++) {
			put(&c, x.bytes + x.hello, x.len - x.hello);
			siege_serve(&x);
		}
		raw_client_close(&c);
	}
	/* Back again. */
	raw_client_open(&x, &c);
	put(&c, x.bytes + x.hello, x.len - x.hello);
	check_that(!siege_serve_raw(&x, c.fd, true), "it was cut off");
	atomic_store(&c.memory->ring[0].head, 0);
	raw_send(c.fd, (const uint8_t *)"", 1);
	check_that(siege_serve_raw(&x, c.fd, false), "an index went back");
	raw_client_close(&c);
	siege_close(&x);
}
END_TEST

/* A peer that changes all of it all the time harms itself only. */
START_TEST(memory_that_changes)
{
	unsigned seed = 7;
	struct siege x;

	siege_open(&x);
	for (int i = 0; i < 30; i++) {
		struct raw_client c;

		raw_client_open(&x, &c);
		for (int j = 0; j < 200 && !raw_ended(c.fd); j++) {
			struct soft_ring *ring = &c.memory->ring[random_next(&seed) % 2];
			uint8_t *data = c.memory->data[0] + random_next(&seed) % 4096;

			switch (random_next(&seed) % 6) {
			case 0:
				*data = (uint8_t)random_next(&seed);
				break;
			case 1:
				atomic_store(&ring->asleep, random_next(&seed) % 2);
				break;
			case 2:
				atomic_store(&ring->full, random_next(&seed) % 2);
				break;
			case 3:
				atomic_fetch_add(&ring->head, random_next(&seed) % 64);
				break;
			case 4:
				atomic_fetch_add(&ring->tail, random_next(&seed) % 2);
				break;
			case 5:
				put(&c, x.bytes + x.hello, x.len - x.hello);
				break;
			}
			send(c.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
			siege_serve(&x);
		}
		raw_client_close(&c);
	}
	siege_close(&x);
}
END_TEST

/* A consumer that is late clears the flag behind a producer that has set it again: the byte that follows has it set once more. */
START_TEST(room_that_is_told_too_early)
{
	struct raw_client c;
	struct soft_ring *back;
	struct siege x;

	siege_open(&x);
	raw_client_open(&x, &c);
	back = &c.memory->ring[1];
	for (int i = 0; atomic_load(&back->head) < SOFT_RING_SIZE; i++) {
		check_that(i < 100000, "the ring does not become full");
		put(&c, x.bytes + x.hello, x.len - x.hello);
		siege_serve(&x);
	}
	station_sleep(&x.p.server, 0);
	ck_assert_uint_eq(atomic_load(&back->full), 1);
	atomic_store(&back->full, 0);
	raw_send(c.fd, (const uint8_t *)"", 1);
	station_sleep(&x.p.server, 0);
	ck_assert_uint_eq(atomic_load(&back->full), 1);
	raw_client_close(&c);
	siege_close(&x);
}
END_TEST

/* Bytes of the socket mean nothing, and descriptors that come with them are nobody's. */
START_TEST(noise_on_the_socket)
{
	uint8_t noise[4096];
	struct raw_client c;
	struct siege x;

	memset(noise, SOFT_SEND, sizeof(noise));
	siege_open(&x);
	raw_client_open(&x, &c);
	for (int i = 0; i < 100; i++) {
		int pass = open("/dev/null", O_RDONLY | O_CLOEXEC);

		raw_send(c.fd, noise, sizeof(noise));
		memory_pass(c.fd, NULL, 0, noise, 1, &pass, 1);
		close(pass);
		siege_serve(&x);
	}
	put(&c, x.bytes + x.hello, x.len - x.hello);
	check_that(!siege_serve_raw(&x, c.fd, true), "it was cut off");
	check_that(atomic_load(&c.memory->ring[0].tail) == x.len - x.hello, "not all was taken");
	raw_client_close(&c);
	siege_close(&x);
}
END_TEST

/* A server that takes what was never offered. */
START_TEST(rings_that_nobody_offered)
{
	uint8_t bytes[SOFT_HEADER], hello[256];
	struct soft_frame f = {.op = SOFT_ACCEPT,
			       .addr = SOFT_MAGIC,
			       .key = soft_greeting_key(SOFT_VERSION, 4, 4),
			       .arg = SOFT_ACCEPT_RINGS};
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_storage to = {0};
	socklen_t len = sizeof(sa);
	int fd = -1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct fabric_endpoint *c;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sa, len), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&sa, &len), 0);
	memcpy(&to, &sa, sizeof(sa));
	ck_assert_int_eq(station_connect(&p.client, &to, len, &fabric_pair_defaults.client, NULL, 0, &c), 0);
	wait_until(&p, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
	wait_until(&p, recv(fd, hello, sizeof(hello), MSG_DONTWAIT) > 0);
	soft_frame_encode(bytes, &f);
	raw_send(fd, bytes, sizeof(bytes));
	ck_assert_int_eq(event_expect(&p, &p.client, c, FABRIC_UNREACHABLE).error, -EPROTO);
	close(fd);
	close(listener);
	fabric_pair_close(&p);
}
END_TEST

/*
 * Two threads, each of which sleeps when nothing is there, sometimes at once and sometimes after a look or two. A wake-up that is lost
 * is a test that waits for ever. What goes back and forth is a number and now and then a large write, for which a ring has not enough room.
 */
#define EXCHANGES 20000

static struct fabric_completion sleep_for(struct station *st, unsigned *seed)
{
	struct fabric_completion c;

	for (unsigned looks = random_next(seed) % 8; !st->done_count && looks; looks--)
		station_pump(st);
	while (!st->done_count)
		check_that(station_sleep(st, SLEEP_MS), "nobody woke it");
	c = st->done[0];
	memmove(st->done, st->done + 1, (size_t)--st->done_count * sizeof(*st->done));
	ck_assert_int_eq(c.status, FABRIC_OK);
	return c;
}

struct sleeper {
	struct station *st;
	struct fabric_endpoint *ep, *peer;
	struct buffer small, large, *inbox, *target;
	unsigned seed;
	bool first;
};

static void sleeper_send(struct sleeper *s, uint64_t number)
{
	struct fabric_wr write = wr_remote(FABRIC_WRITE, 2, &s->large, 0, s->large.len, s->target, s->peer, 0);
	struct fabric_wr wr = wr_local(FABRIC_SEND, 1, &s->small, 0, 8);

	write.signaled = false;
	memcpy(s->small.at, &number, sizeof(number));
	if (number % 512 == 0)
		ck_assert_int_eq(fabric_post(s->ep, &write), 0);
	ck_assert_int_eq(fabric_post(s->ep, &wr), 0);
}

static void *sleeper_run(void *arg)
{
	struct sleeper *s = arg;

	for (uint64_t i = 0; i < EXCHANGES; i++) {
		bool sent = !s->first, come = false;

		if (s->first)
			sleeper_send(s, i);
		while (!come || (s->first && !sent)) {
			struct fabric_completion c = sleep_for(s->st, &s->seed);

			sent |= c.opcode == FABRIC_SEND;
			come |= c.opcode == FABRIC_RECV;
		}
		check_that(memcmp(s->inbox->at, &i, sizeof(i)) == 0, "number %d is another one", (int)i);
		ck_assert_int_eq(try_receive(s->st, s->ep, i + 1, s->inbox, 0, 64), 0);
		if (!s->first)
			sleeper_send(s, i);
	}
	return NULL;
}

START_TEST(no_wake_up_is_lost)
{
	struct sleeper side[2] = {{.seed = 3, .first = true}, {.seed = 4}};
	struct buffer inbox[2], into[2];
	struct fabric_pair p;
	pthread_t thread;

	fabric_pair_make(&p, &fabric_pair_defaults);
	for (int i = 0; i < 2; i++) {
		side[i].st = i ? &p.server : &p.client;
		side[i].ep = i ? p.s : p.c;
		side[i].peer = i ? p.c : p.s;
		side[i].inbox = &inbox[i];
		side[i].target = &into[!i];
		buffer_make(&side[i].small, side[i].st, 64, 0);
		buffer_make(&side[i].large, side[i].st, 3 * MIB / 2, 0);
		buffer_make(&inbox[i], side[i].st, 64, FABRIC_LOCAL_WRITE);
		buffer_make(&into[i], side[i].st, 3 * MIB / 2, FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE);
		receive(side[i].st, side[i].ep, 0, &inbox[i], 0, 64);
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, sleeper_run, &side[1]), 0);
	sleeper_run(&side[0]);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (int i = 0; i < 2; i++) {
		buffer_drop(&side[i].small);
		buffer_drop(&side[i].large);
		buffer_drop(&inbox[i]);
		buffer_drop(&into[i]);
	}
	fabric_pair_close(&p);
}
END_TEST

Suite *rings_suite(void)
{
	Suite *s = suite_create("rings");
	TCase *t;

	if (!target.soft)
		return s;
	t = fabric_pair_tcase(s, "rings", 60);
	tcase_add_test(t, rings_that_nobody_offered);
	tcase_add_test(t, no_wake_up_is_lost);
	if (!target.memory || target.sa.ss_family != AF_UNIX)
		return s;
	tcase_add_test(t, frames_by_rings);
	tcase_add_test(t, a_client_that_does_not_ask);
	tcase_add_test(t, other_memory_is_not_used);
	tcase_add_test(t, indices_that_cannot_be);
	tcase_add_test(t, memory_that_changes);
	tcase_add_test(t, noise_on_the_socket);
	tcase_add_test(t, room_that_is_told_too_early);
	return s;
}
