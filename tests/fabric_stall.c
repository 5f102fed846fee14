/* fabric_stall.c: peers that take their time, and those that would have to wait for them. */
#include "fabric_siege.h"
#include "suite.h"

#include <sys/socket.h>
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

Suite *stall_suite(void)
{
	Suite *s = suite_create("stall");
	TCase *t;

	if (!target.soft) /* no bytes of ours on its wire */
		return s;
	t = fabric_pair_tcase(s, "stall", 60);
	tcase_add_test(t, half_messages_keep_nobody_waiting);
	return s;
}
