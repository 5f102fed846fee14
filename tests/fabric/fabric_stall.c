/* fabric_stall.c: peers that take their time, and others that would have to wait for them. */
#include "tests/fabric/fabric_kernel.h"
#include "tests/fabric/fabric_siege.h"
#include "tests/suite.h"

#include <unistd.h>

#define PEERS (2 * SIEGE_RECEIVES)

/* A peer that has begun its first message, and sent half of it. */
static int half_message(struct siege *x)
{
	int fd = raw_connect(&x->p.sa, x->p.len);

	raw_send(fd, x->bytes, x->hello);
	check_that(!siege_serve_raw(x, fd, true), "the hello was cut off");
	raw_send(fd, x->bytes + x->hello, x->first - 8);
	for (int i = 0; i < 5; i++)
		siege_serve(x);
	return fd;
}

static struct fabric_completion take(struct siege *x)
{
	struct fabric_completion c = done_next(&x->p, &x->p.server, NULL);

	ck_assert_int_eq(c.status, FABRIC_OK);
	ck_assert_uint_eq(c.bytes, 16);
	check_that(memcmp(x->inbox.at + c.id * 64, x->bytes + x->hello + x->first - 16, 16) == 0,
		   "a message is not as it was sent");
	receive(&x->p.server, NULL, c.id, &x->inbox, c.id * 64, 64);
	return c;
}

/* More peers than there are receives send half a message each. The good one's are received all the same, and theirs too,
 * when they are complete. */
START_TEST(half_messages_keep_nobody_waiting)
{
	struct buffer mine;
	struct fabric_wr wr;
	struct siege x;
	int fd[PEERS];

	siege_open(&x);
	buffer_make(&mine, &x.p.client, 64, 0);
	memcpy(mine.at, x.bytes + x.hello + x.first - 16, 16);
	for (int i = 0; i < PEERS; i++)
		fd[i] = half_message(&x);
	for (uint64_t i = 0; i < 100; i++) {
		wr = wr_local(FABRIC_SEND, i, &mine, 0, 16);
		post(x.p.c, &wr);
		ck_assert_ptr_eq(take(&x).endpoint, x.p.s);
		done_expect(&x.p, &x.p.client, x.p.c, i, FABRIC_SEND, FABRIC_OK);
	}
	for (int i = 0; i < PEERS; i++) {
		raw_send(fd[i], x.bytes + x.hello + x.first - 8, 8);
		ck_assert_ptr_ne(take(&x).endpoint, x.p.s);
	}
	for (int i = 0; i < PEERS; i++)
		close(fd[i]);
	buffer_drop(&mine);
	siege_close(&x);
}
END_TEST

static const struct fabric_pair_options impatient = {
	.fabric = {.stall_ms = 400},
	.queue = {.shared_depth = 64},
	.client = {.recv_depth = 64, .reads_out = 4, .reads_in = 4},
	.server = {.reads_out = 4, .reads_in = 4},
};

/* A peer that stops in the middle of a frame is cut off, wherever that is, and its receive comes back. */
START_TEST(half_frames_are_cut_off)
{
	struct fabric_wr wr;
	struct siege x;
	int fd[3];

	siege_open_with(&x, &impatient);
	for (int i = 0; i < 3; i++) {
		/* in the header, in the message, in the write behind it */
		const size_t cut[] = {5, x.first - 8, x.first + 30};

		fd[i] = raw_connect(&x.p.sa, x.p.len);
		raw_send(fd[i], x.bytes, x.hello);
		check_that(!siege_serve_raw(&x, fd[i], true), "the hello was cut off");
		raw_send(fd[i], x.bytes + x.hello, cut[i]);
	}
	for (int i = 0; i < 3; i++) {
		check_that(siege_serve_raw(&x, fd[i], false), "it was not cut off");
		close(fd[i]);
	}
	for (uint64_t i = 0; i < SIEGE_RECEIVES; i++) {
		wr = wr_local(FABRIC_SEND, i, NULL, 0, 0);
		post(x.p.c, &wr);
		done_expect(&x.p, &x.p.client, x.p.c, i, FABRIC_SEND, FABRIC_OK);
	}
	for (uint64_t i = 0; i < SIEGE_RECEIVES; i++)
		receive(&x.p.server, NULL, i, &x.inbox, i * 64, 64);
	siege_close(&x);
}
END_TEST

/* A slow one is not: a byte at a time, and together they take longer than one may. */
START_TEST(slow_frames_are_served)
{
	struct siege x;
	int fd;

	siege_open_with(&x, &impatient);
	fd = raw_connect(&x.p.sa, x.p.len);
	raw_send(fd, x.bytes, x.hello);
	check_that(!siege_serve_raw(&x, fd, true), "the hello was cut off");
	for (size_t i = 0; i < x.first; i++) {
		raw_send(fd, x.bytes + x.hello + i, 1);
		usleep(20000);
		for (int j = 0; j < 3; j++)
			fabric_pair_pump(&x.p);
	}
	ck_assert_ptr_ne(take(&x).endpoint, x.p.s);
	close(fd);
	siege_close(&x);
}
END_TEST

/* The kernel has no memory to send, and no edge tells when it has: tried again, also by one that sleeps. */
START_TEST(no_memory_to_send)
{
	static const int errors[] = {ENOBUFS, ENOMEM};
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, 0);
	buffer_make(&theirs, &p.server, 4096, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < ARRAY_SIZE(errors); i++) {
		receive(&p.server, p.s, i, &theirs, 0, 4096);
		station_sleep(&p.server, 0); /* or nobody would need to be woken */
		kernel.send.error = errors[i];
		kernel.send.times = 3;
		wr = wr_local(FABRIC_SEND, i, &mine, 0, 4096);
		post(p.c, &wr);
		for (uint64_t until = deadline(); kernel.send.times;) {
			check_that(time_now() < until, "it was not tried again");
			station_sleep(&p.client, 1000);
		}
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
		done_expect(&p, &p.client, p.c, i, FABRIC_SEND, FABRIC_OK);
	}
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* A connection that fails before it is taken is nobody else's matter. */
START_TEST(accept_fails_for_one)
{
	static const int errors[] = {ECONNABORTED, ENETDOWN,     EPROTO,     ENOPROTOOPT, EHOSTDOWN,
				     ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH, EPERM};
	struct fabric_endpoint *c, *s;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		kernel.accept.error = errors[i];
		kernel.accept.times = 1;
		fabric_pair_connect(&p, &c, &s);
		ck_assert_int_eq(kernel.accept.times, 0);
		station_destroy(&p.client, &c);
		station_destroy(&p.server, &s);
	}
	fabric_pair_close(&p);
}
END_TEST

/* As many half-open connections as there may be, and nobody new: none has to go. */
START_TEST(no_room_is_made_for_nobody)
{
	enum { MOST = 256 };
	struct siege x;
	int fd[MOST];

	siege_open(&x);
	for (int i = 0; i < MOST; i++) {
		fd[i] = raw_connect(&x.p.sa, x.p.len);
		siege_serve(&x);
	}
	kernel.accept.error = EAGAIN;
	kernel.accept.times = 2;
	close(raw_connect(&x.p.sa, x.p.len));
	for (uint64_t until = deadline(); kernel.accept.times;) {
		check_that(time_now() < until, "waited in vain");
		siege_serve(&x);
	}
	ck_assert(!raw_ended(fd[0]));
	for (int i = 0; i < MOST; i++)
		close(fd[i]);
	siege_close(&x);
}
END_TEST

Suite *stall_suite(void)
{
	Suite *s = suite_create("stall");
	TCase *t;

	if (!target.soft) /* no bytes of ours on its wire */
		return s;
	t = fabric_pair_tcase(s, "stall", 60);
	tcase_add_test(t, half_messages_keep_nobody_waiting);
	tcase_add_test(t, half_frames_are_cut_off);
	tcase_add_test(t, slow_frames_are_served);
	tcase_add_test(t, no_memory_to_send);
	tcase_add_test(t, accept_fails_for_one);
	tcase_add_test(t, no_room_is_made_for_nobody);
	return s;
}
