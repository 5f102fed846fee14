/* check_stream.c: streams over socket pairs and TCP: bytes cut anywhere, back-pressure, what is held, how they end. */
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/local.h"
#include "stream/stream.h"
#include "tests/suite.h"

#define STALL (5 * TIME_S)
#define FIRST (60 * TIME_S)

/* One stream and the other end of its socket. */
static struct pair {
	struct stream_group *group;
	struct stream *stream; /* NULL: closed */
	int fd;                /* the client's */
	uint64_t now;

	ssize_t (*bytes)(struct pair *p, const char *at, size_t len);
	void (*received)(struct pair *p);
	unsigned calls;
	char *came; /* what bytes() used */
	size_t came_len, came_room;
	unsigned released;
	int error;
	char reason[128], peer[128]; /* when it was closed */
} pair;

static uint64_t clock_of_pair(void)
{
	return pair.now;
}

static ssize_t on_bytes(struct stream *stream, const char *at, size_t len)
{
	ck_assert_ptr_eq(stream_context(stream), &pair);
	pair.calls++;
	return pair.bytes(&pair, at, len);
}

static void on_received(struct stream *stream)
{
	(void)stream;
	pair.received(&pair);
}

static void on_closed(struct stream *stream, int error, const char *reason)
{
	struct stream_info info;

	ck_assert_ptr_eq(pair.stream, stream);
	stream_get_info(stream, &info);
	snprintf(pair.peer, sizeof(pair.peer), "%s", info.peer);
	pair.stream = NULL;
	pair.error = error;
	snprintf(pair.reason, sizeof(pair.reason), "%s", reason);
}

static const struct stream_ops ops = {.bytes = on_bytes, .received = on_received, .closed = on_closed};

static void keep(struct pair *p, const void *at, size_t len)
{
	if (p->came_len + len > p->came_room) {
		p->came_room = 2 * (p->came_len + len);
		p->came = realloc(p->came, p->came_room);
	}
	memcpy(p->came + p->came_len, at, len);
	p->came_len += len;
}

static ssize_t use_all(struct pair *p, const char *at, size_t len)
{
	keep(p, at, len);
	return (ssize_t)len;
}

static uint64_t budget;

static bool reset; /* the client of pair_open_tcp() has gone before its stream is opened */

static void pair_open_on(int server, int client)
{
	struct stream_attr attr = {
		.stall = STALL, .first = FIRST, .budget = budget, .turn = TIME_S, .clock = clock_of_pair};
	struct stream_open open = {.fd = server, .id = 7, .service = "test", .ops = &ops, .context = &pair};

	pair = (struct pair){.fd = client, .bytes = use_all, .now = TIME_S};
	ck_assert_int_eq(stream_group_create(&attr, &pair.group), 0);
	ck_assert_int_eq(stream_open(pair.group, &open, pair.now, &pair.stream), 0);
}

static void pair_open(void)
{
	int fd[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
	pair_open_on(fd[0], fd[1]);
}

static void pair_open_tcp(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server;
	socklen_t len = sizeof(at);

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	ck_assert_int_eq(connect(client, (struct sockaddr *)&at, sizeof(at)), 0);
	server = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	ck_assert_int_ge(server, 0);
	close(listener);
	if (reset) {
		struct linger now = {.l_onoff = 1};

		ck_assert_int_eq(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
		close(client);
		client = -1;
	}
	pair_open_on(server, client);
}

static void pair_close(void)
{
	struct stream_stats stats;

	stream_group_get_stats(pair.group, &stats);
	if (!pair.stream) {
		ck_assert_uint_eq(stats.streams, 0);
		ck_assert_uint_eq(stats.waiting_bytes, 0);
		ck_assert_uint_eq(stats.buffer_bytes, 0);
	}
	stream_group_destroy(pair.group);
	ck_assert_ptr_null(pair.stream);
	close(pair.fd);
	free(pair.came);
}

/* Turns until nothing is to do. */
static void turn(void)
{
	do
		pair.now += TIME_US;
	while (stream_group_progress(pair.group, pair.now) > 0 || !stream_group_quiet(pair.group));
}

static void say(const void *bytes, size_t len)
{
	ck_assert_int_eq(send(pair.fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void release_piece(void *owner, void *item)
{
	ck_assert_ptr_eq(owner, &pair);
	ck_assert_ptr_nonnull(item);
	pair.released++;
}

/* What the client gets, until there is no more for now. */
static size_t hear(char *to, size_t most)
{
	size_t len = 0;
	ssize_t n;

	while (len < most && (n = recv(pair.fd, to + len, most - len, MSG_DONTWAIT)) > 0)
		len += (size_t)n;
	return len;
}

static void write_text(const char *text)
{
	struct stream_piece piece = {text, strlen(text), NULL, NULL, NULL};

	stream_write(pair.stream, &piece, 1);
}

/* Uses of what is there a part that depends on the content, and comes again for the rest. */
static ssize_t use_some(struct pair *p, const char *at, size_t len)
{
	size_t n = MIN(len, (size_t)(unsigned char)at[0] % 7 + 1);

	keep(p, at, n);
	if (n < len)
		stream_again(p->stream, 0);
	return (ssize_t)n;
}

START_TEST(test_bytes_come_in_order_however_they_are_cut)
{
	unsigned char sent[20000];
	size_t at = 0;

	pair_open();
	pair.bytes = use_some;
	srandom(_i + 1);
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (unsigned char)random();
	while (at < sizeof(sent)) {
		size_t n = (size_t)random() % 3000 + 1;

		n = MIN(n, sizeof(sent) - at);
		say(sent + at, n);
		at += n;
		if (random() % 3)
			turn();
	}
	turn();
	ck_assert_uint_eq(pair.came_len, sizeof(sent));
	ck_assert_mem_eq(pair.came, sent, sizeof(sent));
	pair_close();
}
END_TEST

/* Waits for a line. */
static ssize_t use_lines(struct pair *p, const char *at, size_t len)
{
	const char *end = memchr(at, '\n', len);

	return end ? use_all(p, at, (size_t)(end - at) + 1) : 0;
}

START_TEST(test_what_is_not_used_comes_with_what_follows)
{
	static char line[300000];
	size_t at = 0;

	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	pair_open();
	pair.bytes = use_lines;
	while (at < sizeof(line)) { /* more than a read, so its buffer grows */
		ssize_t n = send(pair.fd, line + at, MIN(sizeof(line) - at, 50000u), MSG_NOSIGNAL | MSG_DONTWAIT);

		at += n > 0 ? (size_t)n : 0;
		turn();
		ck_assert_uint_eq(pair.came_len, at < sizeof(line) ? 0 : sizeof(line));
	}
	ck_assert_mem_eq(pair.came, line, sizeof(line));
	pair_close();
}
END_TEST

static char place[10000];
static size_t wanted;
static unsigned receipts;

static ssize_t use_head_then_receive(struct pair *p, const char *at, size_t len)
{
	if (len < 4 || wanted)
		return use_all(p, at, len);
	wanted = sizeof(place);
	keep(p, at, 4);
	stream_receive(p->stream, receipts ? NULL : place, wanted);
	return 4;
}

static void count_receipt(struct pair *p)
{
	(void)p;
	receipts++;
}

START_TEST(test_bytes_go_to_their_place_wherever_they_are_cut)
{
	char sent[4 + sizeof(place) + 5];
	size_t cut = (size_t)_i;

	pair_open();
	wanted = 0;
	receipts = 0;
	pair.bytes = use_head_then_receive;
	pair.received = count_receipt;
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (char)(i * 7);
	say(sent, 4);
	if (cut % 2)
		turn();
	say(sent + 4, cut * 100);
	turn();
	ck_assert_uint_eq(receipts, cut * 100 >= sizeof(place));
	say(sent + 4 + cut * 100, sizeof(sent) - 4 - cut * 100);
	turn();
	ck_assert_uint_eq(receipts, 1);
	ck_assert_mem_eq(place, sent + 4, sizeof(place));
	ck_assert_uint_eq(pair.came_len, 9); /* the head and what is behind */
	ck_assert_mem_eq(pair.came + 4, sent + 4 + sizeof(place), 5);
	pair_close();
}
END_TEST

START_TEST(test_bytes_that_nobody_wants_are_dropped)
{
	char sent[4 + sizeof(place) + 5] = {0};

	pair_open();
	wanted = 0;
	receipts = 1; /* so they have no place */
	memset(place, 'p', sizeof(place));
	pair.bytes = use_head_then_receive;
	pair.received = count_receipt;
	for (size_t at = 0; at < sizeof(sent); at += 97) {
		say(sent + at, MIN(sizeof(sent) - at, 97u));
		turn();
	}
	ck_assert_uint_eq(receipts, 2);
	ck_assert_uint_eq(pair.came_len, 9);
	ck_assert_int_eq(place[0], 'p');
	pair_close();
}
END_TEST

#define ANSWER (256 * KIB)

/* Answers each byte with much. */
static ssize_t answer_much(struct pair *p, const char *at, size_t len)
{
	static char big[ANSWER];
	struct stream_piece piece[2] = {{"<", 1, NULL, NULL, NULL}, {big, ANSWER, release_piece, p, big}};

	(void)at;
	memset(big, 'b', sizeof(big));
	stream_write(p->stream, piece, 2);
	p->came_len++;
	if (len > 1)
		stream_again(p->stream, 0);
	return 1;
}

START_TEST(test_a_client_that_reads_nothing_is_not_read)
{
	static char heard[100 * (ANSWER + 1)];
	struct stream_stats stats;
	char ask[100] = {0};
	size_t len = 0;

	pair_open();
	pair.bytes = answer_much;
	say(ask, sizeof(ask));
	turn();
	stream_group_get_stats(pair.group, &stats);
	ck_assert_uint_gt(stats.waiting_bytes, STREAM_OUT_HIGH);
	ck_assert_uint_le(stats.waiting_bytes, STREAM_OUT_HIGH + ANSWER + 1);
	ck_assert_uint_lt(pair.came_len, 20);
	while (len < sizeof(heard)) {
		size_t n = hear(heard + len, sizeof(heard) - len);

		ck_assert(n > 0 || stream_group_progress(pair.group, pair.now += TIME_US) > 0);
		len += n;
	}
	ck_assert_uint_eq(pair.came_len, 100);
	for (size_t i = 0; i < 100; i++) {
		ck_assert_int_eq(heard[i * (ANSWER + 1)], '<');
		ck_assert_int_eq(heard[i * (ANSWER + 1) + ANSWER], 'b');
	}
	turn();
	ck_assert_uint_eq(pair.released, 100);
	pair_close();
}
END_TEST

START_TEST(test_a_client_that_writes_before_it_reads_has_half_of_the_budget)
{
	struct stream_stats stats;
	char ask[200] = {0};

	budget = 16 * STREAM_OUT_HIGH;
	pair_open();
	budget = 0;
	pair.bytes = answer_much;
	say(ask, sizeof(ask));
	turn();
	stream_group_get_stats(pair.group, &stats);
	ck_assert_uint_gt(stats.waiting_bytes, 8 * STREAM_OUT_HIGH);
	ck_assert_uint_le(stats.waiting_bytes, 8 * STREAM_OUT_HIGH + ANSWER + 1);
	pair_close();
}
END_TEST

START_TEST(test_a_client_that_takes_nothing_is_closed_and_its_pieces_released)
{
	char ask[100] = {0};
	unsigned written;

	pair_open();
	pair.bytes = answer_much;
	say(ask, sizeof(ask));
	turn();
	written = (unsigned)pair.came_len;
	pair.now += STALL / 2;
	turn();
	ck_assert_ptr_nonnull(pair.stream);
	ck_assert_uint_le(stream_group_deadline(pair.group), pair.now + TIME_S);
	pair.now += STALL;
	turn();
	ck_assert_ptr_null(pair.stream);
	ck_assert_int_eq(pair.error, -ETIMEDOUT);
	ck_assert_uint_eq(pair.released, written);
	pair_close();
}
END_TEST

START_TEST(test_what_is_held_leaves_in_order_when_its_mark_is_released)
{
	char heard[64];

	pair_open_tcp();
	write_text("a");
	stream_hold(pair.stream, 5);
	write_text("b");
	stream_hold(pair.stream, 4); /* is held by 5 already */
	write_text("c");
	stream_hold(pair.stream, 9);
	write_text("d");
	turn();
	ck_assert_uint_eq(hear(heard, sizeof(heard)), 1);
	ck_assert_int_eq(heard[0], 'a');
	ck_assert_uint_eq(stream_held(pair.stream), 5);
	stream_release_to(pair.stream, 4);
	turn();
	ck_assert_uint_eq(hear(heard, sizeof(heard)), 0);
	stream_release_to(pair.stream, 8);
	turn();
	ck_assert_uint_eq(hear(heard, sizeof(heard)), 2);
	ck_assert_mem_eq(heard, "bc", 2);
	stream_close(pair.stream, 0, "over");
	turn();
	ck_assert_ptr_nonnull(pair.stream); /* in peace: what is held is to leave first */
	stream_release_to(pair.stream, 9);
	turn();
	ck_assert_uint_eq(hear(heard, sizeof(heard)), 1);
	ck_assert_ptr_null(pair.stream);
	pair_close();
}
END_TEST

START_TEST(test_more_marks_than_places_hold_all_the_same)
{
	char heard[512];
	size_t n = 0;

	pair_open();
	for (uint64_t mark = 1; mark <= 200; mark++) {
		stream_hold(pair.stream, mark);
		write_text("x");
	}
	for (uint64_t mark = 1; mark <= 200; mark++) {
		stream_release_to(pair.stream, mark);
		turn();
		n += hear(heard, sizeof(heard));
		ck_assert_uint_le(n, mark); /* nothing before its mark */
	}
	ck_assert_uint_eq(n, 200);
	ck_assert_uint_eq(stream_held(pair.stream), UINT64_MAX);
	pair_close();
}
END_TEST

static ssize_t echo(struct pair *p, const char *at, size_t len)
{
	struct stream_piece piece = {at, len, NULL, NULL, NULL};

	stream_write(p->stream, &piece, 1);
	return (ssize_t)len;
}

START_TEST(test_a_client_that_says_its_last_is_answered)
{
	char heard[16];

	if (_i)
		pair_open_tcp();
	else
		pair_open();
	pair.bytes = echo;
	say("last", 4);
	shutdown(pair.fd, SHUT_WR);
	turn();
	ck_assert_ptr_null(pair.stream);
	ck_assert_int_eq(pair.error, 0);
	ck_assert_uint_eq(hear(heard, sizeof(heard)), 4);
	pair_close();
}
END_TEST

static ssize_t refuse(struct pair *p, const char *at, size_t len)
{
	(void)at, (void)len;
	keep(p, "", 1);
	write_text("-ERR\r\n");
	return -EPROTO;
}

START_TEST(test_a_broken_protocol_ends_behind_its_error)
{
	char heard[16];

	pair_open();
	pair.bytes = refuse;
	say("??", 2);
	turn();
	ck_assert_ptr_null(pair.stream);
	ck_assert_uint_eq(pair.calls, 1);
	ck_assert_uint_eq(hear(heard, sizeof(heard)), 6);
	ck_assert_int_eq(recv(pair.fd, heard, 1, 0), 0);
	pair_close();
}
END_TEST

START_TEST(test_a_client_that_is_killed_leaves_nothing)
{
	struct linger now = {1, 0};

	pair_open_tcp();
	pair.bytes = use_lines;
	say("half a line", 11);
	turn();
	setsockopt(pair.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(pair.fd);
	pair.fd = -1;
	turn();
	ck_assert_ptr_null(pair.stream);
	ck_assert_int_eq(pair.error, -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(pair.peer, "127.0.0.1:"));
	pair_close();
}
END_TEST

/* The kernel knows its address no more. It is no client of a UNIX socket. */
START_TEST(test_a_client_that_left_before_its_stream_came_by_tcp)
{
	struct stream_stats stats;

	reset = true;
	pair_open_tcp();
	reset = false;
	stream_group_get_stats(pair.group, &stats);
	ck_assert_str_eq(stats.kind[0].transport, "tcp");
	ck_assert_uint_eq(stats.kind[0].streams, 1);
	turn();
	ck_assert_ptr_null(pair.stream);
	ck_assert_ptr_null(strstr(pair.peer, "unix"));
	stream_group_get_stats(pair.group, &stats);
	ck_assert_uint_eq(stats.kind[0].streams, 0);
	pair_close();
}
END_TEST

START_TEST(test_a_descriptor_that_is_passed_ends_the_stream)
{
	int own = dup(0);

	pair_open();
	ck_assert_int_ge(own, 0);
	/* A kernel that has SO_PASSRIGHTS refuses it to the sender. */
	if (local_pass(pair.fd, NULL, 0, "x", 1, &own, 1) == 1) {
		turn();
		ck_assert_ptr_null(pair.stream);
		ck_assert_int_eq(pair.error, -EPERM);
	}
	close(own);
	pair_close();
}
END_TEST

START_TEST(test_a_silent_stream_gives_way_and_another_does_not)
{
	pair_open();
	ck_assert_uint_eq(stream_group_oldest(pair.group), TIME_S);
	ck_assert(!stream_group_make_room(pair.group, TIME_S + FIRST - 1));
	say("x", 1);
	turn();
	ck_assert_uint_eq(stream_group_oldest(pair.group), TIME_NEVER);
	ck_assert(!stream_group_make_room(pair.group, 10 * FIRST));
	pair_close();
	pair_open();
	ck_assert(stream_group_make_room(pair.group, TIME_S + FIRST));
	ck_assert_ptr_null(pair.stream);
	pair_close();
}
END_TEST

static uint64_t again_at;

static ssize_t come_later(struct pair *p, const char *at, size_t len)
{
	if (p->now < again_at) {
		stream_again(p->stream, again_at);
		return 0;
	}
	return use_all(p, at, len);
}

START_TEST(test_again_comes_at_its_time_and_before_anything_else)
{
	pair_open();
	again_at = 2 * TIME_S;
	pair.bytes = come_later;
	say("ab", 2);
	turn();
	ck_assert_uint_eq(pair.calls, 1);
	say("cd", 2);
	turn();
	ck_assert_uint_eq(pair.calls, 1);
	ck_assert_uint_eq(stream_group_deadline(pair.group), again_at);
	pair.now = again_at;
	turn();
	ck_assert_uint_eq(pair.came_len, 4);
	ck_assert_mem_eq(pair.came, "abcd", 4);
	pair_close();
}
END_TEST

static ssize_t use_none(struct pair *p, const char *at, size_t len)
{
	(void)p, (void)at, (void)len;
	return 0;
}

START_TEST(test_a_part_of_a_request_holds_no_shutdown)
{
	pair_open();
	pair.bytes = use_none;
	say("ab", 2);
	turn();
	ck_assert_uint_eq(pair.calls, 1);
	stream_drain(pair.stream);
	turn();
	ck_assert_ptr_null(pair.stream);
	ck_assert_int_eq(pair.error, 0);
	pair_close();
}
END_TEST

START_TEST(test_a_request_that_waits_for_its_turn_holds_a_shutdown)
{
	pair_open();
	again_at = 2 * TIME_S;
	pair.bytes = come_later;
	say("ab", 2);
	turn();
	stream_drain(pair.stream);
	turn();
	ck_assert_ptr_nonnull(pair.stream);
	pair.now = again_at;
	turn();
	ck_assert_uint_eq(pair.came_len, 2);
	stream_drain(pair.stream);
	turn();
	ck_assert_ptr_null(pair.stream);
	pair_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stream");
	TCase *tc = suite_case(suite, "bytes", NULL, NULL);

	tcase_add_loop_test(tc, test_bytes_come_in_order_however_they_are_cut, 0, 5);
	tcase_add_test(tc, test_what_is_not_used_comes_with_what_follows);
	tcase_add_loop_test(tc, test_bytes_go_to_their_place_wherever_they_are_cut, 0, 101);
	tcase_add_test(tc, test_bytes_that_nobody_wants_are_dropped);
	tcase_add_test(tc, test_again_comes_at_its_time_and_before_anything_else);
	tc = suite_case(suite, "answers", NULL, NULL);
	tcase_add_test(tc, test_a_client_that_reads_nothing_is_not_read);
	tcase_add_test(tc, test_a_client_that_writes_before_it_reads_has_half_of_the_budget);
	tcase_add_test(tc, test_a_client_that_takes_nothing_is_closed_and_its_pieces_released);
	tcase_add_test(tc, test_what_is_held_leaves_in_order_when_its_mark_is_released);
	tcase_add_test(tc, test_more_marks_than_places_hold_all_the_same);
	tc = suite_case(suite, "end", NULL, NULL);
	tcase_add_loop_test(tc, test_a_client_that_says_its_last_is_answered, 0, 2);
	tcase_add_test(tc, test_a_broken_protocol_ends_behind_its_error);
	tcase_add_test(tc, test_a_client_that_is_killed_leaves_nothing);
	tcase_add_test(tc, test_a_client_that_left_before_its_stream_came_by_tcp);
	tcase_add_test(tc, test_a_descriptor_that_is_passed_ends_the_stream);
	tcase_add_test(tc, test_a_silent_stream_gives_way_and_another_does_not);
	tcase_add_test(tc, test_a_part_of_a_request_holds_no_shutdown);
	tcase_add_test(tc, test_a_request_that_waits_for_its_turn_holds_a_shutdown);
	return suite_run(suite);
}
