/* check_peer_message.c: messages between peers: lengths, order, room, classes, rates. With a URL: over that transport. */
#include <sys/mman.h>

#include "peer/messages/message.h"
#include "tests/peer/peer_pair.h"
#include "tests/suite.h"

static struct peer_pair pair;
static char *from, *to;
#define MOST (100u * 1024 * 1024)

static void up(void)
{
	peer_pair_up(&pair, 1, NULL);
	from = malloc(MOST);
	to = malloc(MOST);
	ck_assert(from && to);
}

static void down(void)
{
	peer_pair_down(&pair);
	free(from);
	free(to);
}

static const size_t lengths[] = {0, 1, 64, 4095, 4096, 4097, 64 * 1024, 1024 * 1024, MOST};

static void check_came(rdma_request *sent, rdma_request *received, size_t len, unsigned seed)
{
	ck_assert_int_eq(peer_pair_end(&pair, received), (int64_t)len);
	ck_assert_int_eq(peer_pair_end(&pair, sent), (int64_t)len);
	ck_assert_msg(peer_pair_is_filled(to, len, seed), "%zu bytes came otherwise", len);
}

START_TEST(messages_of_any_length_come_whole)
{
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		rdma_request *sent, *received;

		peer_pair_fill(from, lengths[i], i);
		memset(to, 0, lengths[i] + (lengths[i] < MOST));
		received = rdma_irecv(pair.client[0], 0, to, lengths[i]);
		sent = rdma_isend(pair.server, 0, from, lengths[i]);
		check_came(sent, received, lengths[i], i);
		if (lengths[i] < MOST)
			ck_assert_int_eq(to[lengths[i]], 0);
	}
}
END_TEST

START_TEST(messages_wait_for_their_receives)
{
	for (unsigned i = 0; i < ARRAY_SIZE(lengths) - 1; i++) {
		rdma_request *sent;

		peer_pair_fill(from, lengths[i], i);
		sent = rdma_isend(pair.client[0], 0, from, lengths[i]);
		ck_assert_ptr_nonnull(sent);
		while (rdma_probe(pair.server, 0, 0) < 0)
			peer_pair_turn(&pair);
		ck_assert_int_eq(rdma_probe(pair.server, 0, 0), (int64_t)lengths[i]);
		check_came(sent, rdma_irecv(pair.server, 0, to, MOST), lengths[i], i);
	}
	ck_assert_int_eq(rdma_probe(pair.server, 0, 0), -1);
	ck_assert_int_eq(rdma_get_errno(), EAGAIN);
}
END_TEST

/* Constants, and files that are mapped to be read: no device may write there. */
START_TEST(memory_that_may_only_be_read_is_sent)
{
	const size_t len = 1024 * 1024;
	char *fixed = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rdma_request *received;

	ck_assert_ptr_ne(fixed, MAP_FAILED);
	peer_pair_fill(fixed, len, 7);
	ck_assert_int_eq(mprotect(fixed, len, PROT_READ), 0);
	for (size_t skip = 0; skip <= 5; skip += 5) { /* the whole, and a part of its pages */
		memset(to, 0, len);
		received = rdma_irecv(pair.client[0], 0, to + skip, len - 2 * skip);
		ck_assert_int_eq(peer_pair_end(&pair, rdma_isend(pair.server, 0, fixed + skip, len - 2 * skip)),
				 (int64_t)(len - 2 * skip));
		ck_assert_int_eq(peer_pair_end(&pair, received), (int64_t)(len - 2 * skip));
		ck_assert_mem_eq(to + skip, fixed + skip, len - 2 * skip);
	}
	munmap(fixed, len);
}
END_TEST

#define MANY 3000

/* Lengths around the threshold. */
static size_t length_of(unsigned i)
{
	return i % 7 == 3 ? 4000 + i % 5000 : i % 150;
}

START_TEST(thousands_of_messages_under_way_keep_their_order)
{
	static rdma_request *sent[2][MANY], *received[2][MANY];
	static char in[2][MANY][9000], out[MANY][9000];

	for (unsigned i = 0; i < MANY; i++)
		peer_pair_fill(out[i], length_of(i), i);
	for (unsigned i = 0; i < MANY; i++) {
		received[0][i] = rdma_irecv(pair.client[0], 0, in[0][i], sizeof(in[0][i]));
		if (i % 2)
			received[1][i] = rdma_irecv(pair.server, 0, in[1][i], sizeof(in[1][i]));
		sent[0][i] = rdma_isend(pair.server, 0, out[i], length_of(i));
		sent[1][i] = rdma_isend(pair.client[0], 0, out[i], length_of(i));
	}
	for (unsigned i = 0; i < MANY; i += 2)
		received[1][i] = rdma_irecv(pair.server, 0, in[1][i], sizeof(in[1][i]));
	for (unsigned i = 0; i < MANY; i++)
		for (unsigned way = 0; way < 2; way++) {
			ck_assert_int_eq(peer_pair_end(&pair, sent[way][i]), (int64_t)length_of(i));
			ck_assert_int_ge(peer_pair_end(&pair, received[way][i]), 0);
		}
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_msg(peer_pair_is_filled(in[0][i], length_of(i), i), "message %u", i);
	/* Receives are matched in the order in which they were posted: first the odd ones. */
	for (unsigned i = 0, n = 0; i < MANY; i++, n++) {
		unsigned at = n < MANY / 2 ? 2 * n + 1 : 2 * (n - MANY / 2);

		ck_assert_msg(peer_pair_is_filled(in[1][at], length_of(i), i), "message %u in receive %u", i, at);
	}
}
END_TEST

static void check_too_long(size_t len)
{
	rdma_request *sent, *small, *large;

	peer_pair_fill(from, len, 5);
	small = rdma_irecv(pair.client[0], 0, to, len - 1);
	sent = rdma_isend(pair.server, 0, from, len);
	ck_assert_int_eq(peer_pair_end(&pair, small), -1);
	ck_assert_int_eq(rdma_get_errno(), EMSGSIZE);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Message too long"));
	ck_assert_int_eq(rdma_probe(pair.client[0], 0, 0), (int64_t)len);
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, 10), -1);
	ck_assert_int_eq(rdma_get_errno(), EMSGSIZE);
	large = rdma_irecv(pair.client[0], 0, to, len);
	check_came(sent, large, len, 5);
}

START_TEST(a_message_that_is_too_long_stays)
{
	check_too_long(100);
	check_too_long(4096);
	check_too_long(1024 * 1024);
}
END_TEST

START_TEST(a_message_too_long_for_the_first_receive_goes_to_the_next)
{
	rdma_request *small = rdma_irecv(pair.client[0], 0, to, 50);
	rdma_request *large = rdma_irecv(pair.client[0], 0, to, 5000);
	rdma_request *sent;

	peer_pair_fill(from, 5000, 9);
	sent = rdma_isend(pair.server, 0, from, 5000);
	ck_assert_int_eq(peer_pair_end(&pair, small), -1);
	check_came(sent, large, 5000, 9);
}
END_TEST

/* How many short messages the other end takes without receiving. */
static unsigned send_until_full(rdma_context *ctx, rdma_request **blocked)
{
	unsigned n = 0;

	for (;; n++) {
		int64_t result;

		peer_pair_fill(from, 1000, n);
		*blocked = rdma_isend(ctx, 0, from, 1000);
		ck_assert_ptr_nonnull(*blocked);
		for (unsigned turn = 0; turn < 100 && *blocked; turn++) {
			peer_pair_turn(&pair);
			if (rdma_test(*blocked, &result))
				*blocked = NULL;
		}
		if (*blocked)
			return n;
	}
}

START_TEST(who_receives_nothing_stops_only_who_sends_to_him)
{
	rdma_request *blocked, *other;
	unsigned n = send_until_full(pair.server, &blocked);

	ck_assert_uint_ge(n, 64);
	ck_assert_uint_le(n, 70);
	/* The other way is free, and so is this one for messages of the library: see check_peer_request. */
	other = rdma_isend(pair.client[0], 0, from, 1000);
	ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.server, 0, to, 1000)), 1000);
	ck_assert_int_eq(peer_pair_end(&pair, other), 1000);
	for (unsigned i = 0; i <= n; i++) {
		ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, 1000)), 1000);
		ck_assert_msg(peer_pair_is_filled(to, 1000, i), "message %u of %u", i, n);
	}
	ck_assert_int_eq(peer_pair_end(&pair, blocked), 1000);
}
END_TEST

START_TEST(empty_messages_have_their_limit_too)
{
	static rdma_request *sent[5000];
	unsigned pending = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++)
		sent[i] = rdma_isend(pair.server, 0, NULL, 0);
	for (unsigned turn = 0; turn < 100; turn++)
		peer_pair_turn(&pair);
	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++)
		pending += !sent[i]->complete;
	ck_assert_uint_eq(pending, 5000 - 1024);
	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++)
		ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, NULL, 0)), 0);
	ck_assert_int_eq(rdma_wait_all(sent, ARRAY_SIZE(sent), UINT64_MAX, NULL), 0);
}
END_TEST

START_TEST(more_is_granted_to_who_asks_for_more)
{
	rdma_options options = {.buf_size = 1024 * 1024};
	struct peer_pair wide;
	rdma_request *sent[700];
	unsigned complete = 0;

	peer_pair_up(&wide, 1, &options);
	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++)
		sent[i] = rdma_isend(wide.server, 0, from, 1000);
	while (complete < ARRAY_SIZE(sent)) {
		peer_pair_turn(&wide);
		for (complete = 0; complete < ARRAY_SIZE(sent) && sent[complete]->complete; complete++)
			;
	}
	ck_assert_int_eq(rdma_wait_all(sent, ARRAY_SIZE(sent), UINT64_MAX, NULL), 0);
	peer_pair_down(&wide);
}
END_TEST

/*
 * Classes
 */
static rdma_request *send_as(int message_class, const void *data, size_t len)
{
	rdma_request *request;

	ck_assert_int_eq(rdma_send_class(pair.server, message_class), 0);
	request = rdma_isend(pair.server, 0, data, len);
	ck_assert_ptr_nonnull(request);
	ck_assert_int_eq(rdma_send_class(pair.server, RDMA_NORMAL), 0);
	return request;
}

START_TEST(an_urgent_message_overtakes_the_pieces_of_a_long_one)
{
	size_t len = 64 * 1024 * 1024;
	char word[8];
	rdma_request *bulk_in, *urgent_in, *bulk, *urgent;

	peer_pair_fill(from, len, 0);
	bulk_in = rdma_irecv(pair.client[0], 0, to, len);
	bulk = send_as(RDMA_BULK, from, len);
	urgent_in = rdma_irecv(pair.client[0], 0, word, sizeof(word));
	for (unsigned i = 0; i < 3; i++)
		peer_pair_turn(&pair);
	urgent = send_as(RDMA_URGENT, "urgent", 7);
	ck_assert_int_eq(peer_pair_end(&pair, urgent_in), 7);
	ck_assert_str_eq(word, "urgent");
	ck_assert(!bulk_in->complete && !bulk->complete);
	ck_assert_int_eq(peer_pair_end(&pair, urgent), 7);
	check_came(bulk, bulk_in, len, 0);
}
END_TEST

START_TEST(what_waits_is_received_by_class_and_then_by_order)
{
	static const struct {
		int message_class;
		char text;
	} sent[] = {{RDMA_BULK, '6'},   {RDMA_NORMAL, '3'}, {RDMA_URGENT, '1'}, {RDMA_BULK, '7'},
		    {RDMA_NORMAL, '4'}, {RDMA_URGENT, '2'}, {RDMA_NORMAL, '5'}};

	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++)
		ck_assert_int_eq(peer_pair_end(&pair, send_as(sent[i].message_class, &sent[i].text, 1)), 1);
	for (unsigned i = 0; i < 100; i++)
		peer_pair_turn(&pair);
	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++) {
		ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, 1), 1);
		ck_assert_int_eq(to[0], (char)('1' + i));
	}
	ck_assert_int_eq(rdma_send_class(pair.server, 3), -1);
	ck_assert_int_eq(rdma_send_class(pair.server, -1), -1);
}
END_TEST

START_TEST(an_urgent_message_leaves_before_those_that_wait)
{
	static rdma_request *waiting[400];
	rdma_request *urgent;
	unsigned complete = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(waiting); i++)
		waiting[i] = send_as(RDMA_BULK, from, 4096);
	urgent = send_as(RDMA_URGENT, "first", 6);
	for (unsigned i = 0; i < 16; i++) /* all that found room at once came before */
		ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, 4096)), 4096);
	while (memcmp(to, "first", 6) != 0) {
		complete++;
		ck_assert_int_gt(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, 4096)), 0);
		ck_assert_uint_lt(complete, 100);
	}
	ck_assert_int_eq(peer_pair_end(&pair, urgent), 6);
	for (unsigned i = 16 + complete; i <= ARRAY_SIZE(waiting); i++)
		ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, 4096)), 4096);
	ck_assert_int_eq(rdma_wait_all(waiting, ARRAY_SIZE(waiting), UINT64_MAX, NULL), 0);
}
END_TEST

/*
 * Rates
 */

/* Bytes that came by now of a long message. */
static size_t came_of(const char *data, size_t len)
{
	size_t at = 0;

	while (at < len && data[at])
		at += 4096;
	return at;
}

/* A quarter more than the rate, and what may leave at once. */
static uint64_t limit_bytes(uint64_t begin, unsigned mib)
{
	return (uint64_t)((double)(time_now() - begin) / TIME_S * 1.25 * mib * MIB) + 512 * KIB;
}

START_TEST(a_limited_peer_does_not_get_beyond_its_rate)
{
	size_t len = 24 * MIB;
	uint64_t begin;
	rdma_request *sent, *received;

	memset(from, 1, len);
	memset(to, 0, len);
	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 16), 0);
	begin = time_now();
	received = rdma_irecv(pair.client[0], 0, to, len);
	sent = rdma_isend(pair.server, 0, from, len);
	while (!received->complete) {
		size_t came = came_of(to, len);

		ck_assert_msg(came <= limit_bytes(begin, 16), "%zu bytes of %llu", came,
			      (unsigned long long)limit_bytes(begin, 16));
		peer_pair_turn(&pair);
	}
	ck_assert_msg(len <= limit_bytes(begin, 16), "it came too soon");
	ck_assert_int_eq(peer_pair_end(&pair, received), (int64_t)len);
	ck_assert_int_eq(peer_pair_end(&pair, sent), (int64_t)len);
}
END_TEST

START_TEST(short_messages_are_limited_and_urgent_ones_wait_least)
{
	static rdma_request *sent[2000];
	const unsigned limited = ARRAY_SIZE(sent) / 4; /* the others are let go, as they would take long */
	uint64_t begin = time_now(), bytes = 0;
	unsigned after = 0;
	bool came = false;

	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 1), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(sent); i++)
		sent[i] = send_as(RDMA_BULK, from, 2048);
	peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, 4096));
	ck_assert_ptr_nonnull(send_as(RDMA_URGENT, "now", 4));
	for (unsigned i = 1; i <= ARRAY_SIZE(sent); i++) {
		int64_t got = peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, 4096));

		bytes += (uint64_t)got;
		came |= got == 4;
		after += came;
		if (i < limited)
			ck_assert_uint_le(bytes, limit_bytes(begin, 1));
		else if (i == limited)
			ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 0), 0);
	}
	ck_assert_uint_gt(after, 1000); /* it did not wait for the others */
	ck_assert_int_eq(rdma_wait_all(sent, ARRAY_SIZE(sent), UINT64_MAX, NULL), 0);
}
END_TEST

/* An urgent message pays the debt, and leaves more than it takes. */
START_TEST(what_waits_for_its_rate_goes_on_though_another_went_first)
{
	struct peer_message *m = pair.server->peer[0]->message;
	rdma_request *waits;

	/* Behind the confirmation that each connection begins with, which would have it go on, too. */
	ck_assert_int_eq(rdma_send(pair.client[0], 0, from, 1), 1);
	ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.server, 0, to, 1)), 1);
	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 1), 0);
	m->tokens = -30 * (int64_t)MIB;
	waits = send_as(RDMA_BULK, from, 2048);
	ck_assert(!waits->complete);
	m->tokens_time -= 100 * TIME_S; /* as if they had gone by */
	ck_assert_ptr_nonnull(send_as(RDMA_URGENT, "now", 4));
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_gt(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, 4096)), 0);
	ck_assert_int_eq(peer_pair_end(&pair, waits), 2048);
}
END_TEST

START_TEST(a_limit_of_one_peer_is_not_that_of_others)
{
	struct peer_pair three;
	size_t len = 32 * MIB;
	rdma_request *slow_in, *slow, *fast;

	peer_pair_up(&three, 2, NULL);
	ck_assert_int_eq(rdma_rate_limit(three.server, 0, 1), 0); /* half a minute, were it not lifted */
	slow_in = rdma_irecv(three.client[0], 0, to, len);
	slow = rdma_isend(three.server, 0, from, len);
	fast = rdma_isend(three.server, 1, from, len);
	ck_assert_int_eq(peer_pair_end(&three, rdma_irecv(three.client[1], 0, to + len, len)), (int64_t)len);
	ck_assert_int_eq(peer_pair_end(&three, fast), (int64_t)len);
	ck_assert(!slow->complete);
	ck_assert_int_eq(rdma_rate_limit(three.server, 0, 0), 0); /* from here on it is as fast */
	ck_assert_int_eq(peer_pair_end(&three, slow_in), (int64_t)len);
	ck_assert_int_eq(peer_pair_end(&three, slow), (int64_t)len);
	peer_pair_down(&three);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("peer message");
	TCase *tc;

	if (argc > 1)
		peer_pair_use(argv[1]);
	tc = suite_case(suite, "lengths", up, down);
	tcase_add_test(tc, messages_of_any_length_come_whole);
	tcase_add_test(tc, messages_wait_for_their_receives);
	tcase_add_test(tc, memory_that_may_only_be_read_is_sent);
	tcase_add_test(tc, thousands_of_messages_under_way_keep_their_order);
	tcase_add_test(tc, a_message_that_is_too_long_stays);
	tcase_add_test(tc, a_message_too_long_for_the_first_receive_goes_to_the_next);
	tc = suite_case(suite, "room", up, down);
	tcase_add_test(tc, who_receives_nothing_stops_only_who_sends_to_him);
	tcase_add_test(tc, empty_messages_have_their_limit_too);
	tcase_add_test(tc, more_is_granted_to_who_asks_for_more);
	tc = suite_case(suite, "classes", up, down);
	tcase_add_test(tc, an_urgent_message_overtakes_the_pieces_of_a_long_one);
	tcase_add_test(tc, what_waits_is_received_by_class_and_then_by_order);
	tcase_add_test(tc, an_urgent_message_leaves_before_those_that_wait);
	tc = suite_case(suite, "rates", up, down);
	tcase_add_test(tc, a_limited_peer_does_not_get_beyond_its_rate);
	tcase_add_test(tc, short_messages_are_limited_and_urgent_ones_wait_least);
	tcase_add_test(tc, what_waits_for_its_rate_goes_on_though_another_went_first);
	tcase_add_test(tc, a_limit_of_one_peer_is_not_that_of_others);
	return suite_run(suite);
}
