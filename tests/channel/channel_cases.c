/* channel_cases.c: what holds over each transport: puts and gets of all kinds, at every edge of the ring, and streams. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/channel/channel_cases.h"
#include "tests/channel/channel_pair.h"
#include "tests/suite.h"

#define ENOUGH SECONDS(60)

static struct channel_pair pair;

static void up(size_t size)
{
	channel_pair_open(&pair, channel_cases_url, size, NULL);
}

static void down(void)
{
	channel_pair_close(&pair);
}

/* Capacities that are no power of two and no whole page are as good as others. */
static const size_t sizes[] = {64, 1000, 1024, 4096, 4097, 10000, 65536};

static void fill(uint8_t *bytes, size_t count, uint8_t from)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)(from + i);
}

static void check_bytes(const uint8_t *bytes, size_t count, uint8_t from)
{
	size_t i = 0;

	while (i < count && bytes[i] == (uint8_t)(from + i))
		i++;
	ck_assert_msg(i == count, "byte %zu of %zu", i, count);
}

/* `count` bytes have come. */
static void wait_available(struct rdmad_channel *channel, size_t count)
{
	const void *bytes;
	size_t available;

	WORKS(rdmad_channel_view(channel, count, ENOUGH, &bytes, &available));
	ck_assert_uint_ge(available, count);
}

START_TEST(test_put_get)
{
	uint8_t out[10], in[10] = {0};

	up(1024);
	fill(out, sizeof(out), 3);
	WORKS(rdmad_channel_put(pair.client, out, sizeof(out), ENOUGH));
	ck_assert_uint_eq(rdmad_channel_room(pair.client), 1014);
	WORKS(rdmad_channel_flush(pair.client, ENOUGH));
	WORKS(rdmad_channel_get(pair.server, in, sizeof(in), ENOUGH));
	check_bytes(in, sizeof(in), 3);
	fill(out, sizeof(out), 77); /* and back */
	WORKS(rdmad_channel_put(pair.server, out, sizeof(out), ENOUGH));
	WORKS(rdmad_channel_flush(pair.server, ENOUGH));
	WORKS(rdmad_channel_get(pair.client, in, sizeof(in), ENOUGH));
	check_bytes(in, sizeof(in), 77);
	down();
}
END_TEST

START_TEST(test_empty)
{
	uint8_t in[8];

	up(1024);
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, in, sizeof(in)), 0);
	ck_assert_int_eq(rdmad_channel_try_get_all(pair.server, in, sizeof(in)), -EAGAIN);
	ck_assert_int_eq(rdmad_channel_peek(pair.server, in, sizeof(in)), 0);
	ck_assert_int_eq(rdmad_channel_get(pair.server, in, sizeof(in), 0), -ETIMEDOUT);
	ck_assert_int_eq(rdmad_channel_get(pair.server, in, sizeof(in), 1000), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "waiting for the peer: 8 bytes"));
	ck_assert_uint_eq(rdmad_channel_available(pair.server), 0);
	WORKS(rdmad_channel_get(pair.server, NULL, 0, 0));
	WORKS(rdmad_channel_put(pair.server, NULL, 0, 0));
	WORKS(rdmad_channel_try_put(pair.server, NULL, 0));
	down();
}
END_TEST

/* The whole capacity can be used, to the byte, at each place of the ring. */
START_TEST(test_full)
{
	size_t size = sizes[_i];
	uint8_t *out = malloc(size + 1), *in = malloc(size);

	up(size);
	for (size_t round = 0; round < 70; round++) {
		fill(out, size, (uint8_t)round);
		WORKS(rdmad_channel_put(pair.client, out, size, ENOUGH));
		ck_assert_int_eq(rdmad_channel_try_put(pair.client, out, 1), -ENOSPC);
		WORKS(rdmad_channel_flush(pair.client, ENOUGH));
		wait_available(pair.server, size);
		ck_assert_uint_eq(rdmad_channel_available(pair.server), size);
		ck_assert_int_eq(rdmad_channel_put(pair.client, out, 1, 0), -ETIMEDOUT);
		WORKS(rdmad_channel_get(pair.server, in, size, ENOUGH));
		check_bytes(in, size, (uint8_t)round);
		WORKS(rdmad_channel_put(pair.client, out, 1 + round % 7,
					ENOUGH)); /* so that the next begins elsewhere */
		WORKS(rdmad_channel_flush(pair.client, ENOUGH));
		WORKS(rdmad_channel_get(pair.server, in, 1 + round % 7, ENOUGH));
	}
	ck_assert_int_eq(rdmad_channel_try_put(pair.client, out, size + 1), -ENOSPC);
	down();
	free(out);
	free(in);
}
END_TEST

START_TEST(test_tries)
{
	uint8_t out[100], in[100];

	up(1000);
	fill(out, sizeof(out), 0);
	WORKS(rdmad_channel_try_put(pair.client, out, 60));
	WORKS(rdmad_channel_flush(pair.client, ENOUGH));
	wait_available(pair.server, 60);
	ck_assert_int_eq(rdmad_channel_try_get_all(pair.server, in, 61), -EAGAIN); /* all or nothing */
	ck_assert_int_eq(rdmad_channel_peek(pair.server, in, 100), 60);
	check_bytes(in, 60, 0);
	WORKS(rdmad_channel_try_get_all(pair.server, in, 20));
	check_bytes(in, 20, 0);
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, in, 10), 10);
	check_bytes(in, 10, 20);
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, in, 100), 30); /* less: what there is */
	check_bytes(in, 30, 30);
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, in, 100), 0);
	ck_assert_int_eq(rdmad_channel_try_get_all(pair.server, in, 1001), -ENOSPC); /* never */
	down();
}
END_TEST

START_TEST(test_vectors)
{
	uint8_t out[90], in[90];
	const struct iovec from[] = {{out, 1}, {NULL, 0}, {out + 1, 50}, {out + 51, 39}};
	const struct iovec to[] = {{in, 40}, {in + 40, 0}, {in + 40, 50}};
	const struct iovec huge[] = {{out, SIZE_MAX}, {out, 2}};

	up(100);
	for (int round = 0; round < 30; round++) {
		fill(out, sizeof(out), (uint8_t)round);
		WORKS(rdmad_channel_putv(pair.client, from, 4, ENOUGH));
		WORKS(rdmad_channel_flush(pair.client, ENOUGH));
		WORKS(rdmad_channel_getv(pair.server, to, 3, ENOUGH));
		check_bytes(in, sizeof(in), (uint8_t)round);
	}
	ck_assert_int_eq(rdmad_channel_getv(pair.server, to, 3, 0), -ETIMEDOUT);
	ck_assert_int_eq(rdmad_channel_putv(pair.client, huge, 2, 0), -EINVAL);
	ck_assert_int_eq(rdmad_channel_putv(pair.client, from, -1, 0), -EINVAL);
	ck_assert_int_eq(rdmad_channel_getv(pair.client, to, IOV_MAX + 1, 0), -EINVAL);
	WORKS(rdmad_channel_putv(pair.client, NULL, 0, 0));
	down();
}
END_TEST

/* In place: one piece wherever the ring's end is. */
START_TEST(test_in_place)
{
	const void *seen;
	size_t available;
	void *room, *again;
	uint8_t in[70];

	up(100);
	for (int round = 0; round < 200; round++) {
		WORKS(rdmad_channel_reserve(pair.client, 70, ENOUGH, &room));
		WORKS(rdmad_channel_reserve(pair.client, 70, ENOUGH, &again));
		ck_assert_ptr_eq(room, again);
		fill(room, 70, (uint8_t)round);
		ck_assert_int_eq(rdmad_channel_commit(pair.client, 71), -EINVAL);
		WORKS(rdmad_channel_commit(pair.client, 67)); /* less than was reserved */
		ck_assert_int_eq(rdmad_channel_commit(pair.client, 1), -EINVAL);
		WORKS(rdmad_channel_flush(pair.client, ENOUGH));
		WORKS(rdmad_channel_view(pair.server, 67, ENOUGH, &seen, &available));
		ck_assert_uint_eq(available, 67);
		check_bytes(seen, 67, (uint8_t)round);
		ck_assert_int_eq(rdmad_channel_consume(pair.server, 68), -EINVAL);
		WORKS(rdmad_channel_consume(pair.server, 7));
		WORKS(rdmad_channel_get(pair.server, in, 60, ENOUGH));
		check_bytes(in, 60, (uint8_t)(round + 7));
	}
	ck_assert_int_eq(rdmad_channel_reserve(pair.client, 101, 0, &room), -ENOSPC);
	ck_assert_int_eq(rdmad_channel_view(pair.server, 101, 0, &seen, &available), -ENOSPC);
	ck_assert_int_eq(rdmad_channel_view(pair.server, 1, 0, &seen, &available), -ETIMEDOUT);
	WORKS(rdmad_channel_reserve(pair.client, 10, 0, &room));
	WORKS(rdmad_channel_put(pair.client, in, 1, 0)); /* takes the place that was reserved */
	ck_assert_int_eq(rdmad_channel_commit(pair.client, 1), -EINVAL);
	down();
}
END_TEST

/* A quarter that waits leaves by itself; so does what a get of the same end would wait behind. */
static void *put_five(void *arg)
{
	*(int *)arg = rdmad_channel_put(pair.client, "12345", 5, ENOUGH);
	return NULL;
}

START_TEST(test_flushes)
{
	struct rdmad_channel_info info;
	uint8_t out[400] = {0}, in[400];
	pthread_t thread;
	int rc;

	up(1000);
	WORKS(rdmad_channel_put(pair.client, out, 249, ENOUGH));
	rdmad_channel_info(pair.client, &info);
	ck_assert_uint_eq(info.flushes, 0);
	WORKS(rdmad_channel_flush(pair.client, ENOUGH));
	WORKS(rdmad_channel_flush(pair.client, ENOUGH)); /* nothing new: nothing is sent */
	rdmad_channel_info(pair.client, &info);
	ck_assert_uint_eq(info.flushes, 1);
	WORKS(rdmad_channel_put(pair.client, out, 250, ENOUGH));
	WORKS(rdmad_channel_get(pair.server, in, 400, ENOUGH));
	WORKS(rdmad_channel_get(pair.server, in, 99, ENOUGH));
	pthread_create(&thread, NULL, put_five, &rc); /* also what another thread put */
	pthread_join(thread, NULL);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(rdmad_channel_get(pair.client, in, 1, 1000), -ETIMEDOUT);
	WORKS(rdmad_channel_get(pair.server, in, 5, ENOUGH));
	rdmad_channel_info(pair.client, &info);
	ck_assert_uint_eq(info.bytes_put, 504);
	ck_assert_uint_eq(info.capacity, 1000);
	ck_assert_str_ne(info.transport, "");
	ck_assert_str_ne(info.peer, "");
	rdmad_channel_info(pair.server, &info);
	ck_assert_uint_eq(info.bytes_got, 504);
	down();
}
END_TEST

/* Both directions at once, two threads at each end. */
static void run_streams(uint64_t total, size_t most)
{
	struct channel_stream streams[] = {
		{.channel = pair.client, .total = total, .most = most, .seed = 1},
		{.channel = pair.server, .total = total, .most = most, .seed = 22},
		{.channel = pair.server, .total = total, .most = most, .seed = 333},
		{.channel = pair.client, .total = total, .most = most, .seed = 4444},
	};
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, i % 2 ? channel_stream_get : channel_stream_put, &streams[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(streams[i].rc, 0);
}

static const struct {
	size_t size, most;
	uint64_t total;
} streams[] = {
	{1024, 10, 1 << 20},       {1000, 1000, 10 << 20},
	{4097, 300, 10 << 20},     {64, 200, 1 << 20}, /* pieces longer than the ring */
	{65536, 100000, 10 << 20},
};

START_TEST(test_streams)
{
	up(streams[_i].size);
	run_streams(suite_part(streams[_i].total), streams[_i].most);
	down();
}
END_TEST

/* A thousand messages of ten bytes, i mod 256, through 1024 bytes. */
static void *put_messages(void *arg)
{
	uint8_t message[10];
	int *rc = arg;

	for (int i = 0; i < 1000 && *rc == 0; i++) {
		memset(message, i % 256, sizeof(message));
		*rc = rdmad_channel_put(pair.client, message, sizeof(message), ENOUGH);
	}
	if (*rc == 0)
		*rc = rdmad_channel_flush(pair.client, ENOUGH);
	return NULL;
}

START_TEST(test_messages)
{
	uint8_t message[10], wanted[10];
	pthread_t thread;
	int rc = 0;

	up(1024);
	pthread_create(&thread, NULL, put_messages, &rc);
	for (int i = 0; i < 1000; i++) {
		WORKS(rdmad_channel_get(pair.server, message, sizeof(message), ENOUGH));
		memset(wanted, i % 256, sizeof(wanted));
		ck_assert_mem_eq(message, wanted, sizeof(message));
	}
	pthread_join(thread, NULL);
	ck_assert_int_eq(rc, 0);
	down();
}
END_TEST

/* Both ends go to sleep and are woken for each byte, without a poll of the index. */
static void *answer_bytes(void *arg)
{
	uint8_t byte;

	(void)arg;
	for (int i = 0; i < 2000; i++)
		if (rdmad_channel_get(pair.server, &byte, 1, ENOUGH) != 0 ||
		    rdmad_channel_put(pair.server, &byte, 1, ENOUGH) != 0)
			break;
	rdmad_channel_flush(pair.server, ENOUGH);
	return NULL;
}

START_TEST(test_asleep)
{
	const struct rdmad_channel_options options = {.common = {.no_poll = true}};
	struct rdmad_channel_info info;
	pthread_t thread;

	channel_pair_open(&pair, channel_cases_url, 64, &options);
	pthread_create(&thread, NULL, answer_bytes, NULL);
	for (int i = 0; i < 2000; i++) {
		uint8_t out = (uint8_t)i, in = 0;

		WORKS(rdmad_channel_put(pair.client, &out, 1, ENOUGH));
		WORKS(rdmad_channel_get(pair.client, &in, 1, ENOUGH));
		ck_assert_uint_eq(in, out);
	}
	pthread_join(thread, NULL);
	rdmad_channel_info(pair.client, &info);
	ck_assert_uint_gt(info.sleeps, 0);
	run_streams(1 << 20, 40);
	down();
}
END_TEST

/* Forward by descriptors alone: the program's own loop. */
static void wait_fd(struct rdmad_channel *channel)
{
	struct pollfd ready = {.fd = rdmad_channel_fd(channel), .events = POLLIN};

	for (;;) {
		int rc = rdmad_channel_arm(channel);

		ck_assert_int_ge(rc, 0);
		if (rc == 1)
			return;
		if (poll(&ready, 1, 60000) > 0)
			return;
		ck_abort_msg("nothing came");
	}
}

START_TEST(test_own_loop)
{
	uint64_t put = 0, got = 0, total = 100000;
	uint8_t bytes[40];
	pthread_t thread;
	struct channel_stream stream;

	up(100);
	stream = (struct channel_stream){.channel = pair.client, .total = total, .most = 30, .seed = 5};
	pthread_create(&thread, NULL, channel_stream_put, &stream);
	while (got < total) {
		ssize_t n = rdmad_channel_try_get(pair.server, bytes, sizeof(bytes));

		ck_assert_int_ge(n, 0);
		for (ssize_t i = 0; i < n; i++)
			ck_assert_uint_eq(bytes[i], channel_stream_byte(got++));
		if (n == 0)
			wait_fd(pair.server);
	}
	pthread_join(thread, NULL);
	ck_assert_int_eq(stream.rc, 0);
	stream = (struct channel_stream){.channel = pair.client, .total = total, .most = 30, .seed = 6};
	pthread_create(&thread, NULL, channel_stream_get, &stream);
	while (put < total) {
		uint8_t byte = channel_stream_byte(put);
		int rc = rdmad_channel_try_put(pair.server, &byte, 1);

		if (rc == -ENOSPC) {
			wait_fd(pair.server);
			continue;
		}
		ck_assert_int_eq(rc, 0);
		put++;
	}
	WORKS(rdmad_channel_flush(pair.server, ENOUGH));
	pthread_join(thread, NULL);
	ck_assert_int_eq(stream.rc, 0);
	down();
}
END_TEST

/* What was flushed can be got after a peaceful end; then each call says that it was closed. */
START_TEST(test_close)
{
	uint8_t bytes[300];
	size_t available;
	const void *seen;

	up(1000);
	fill(bytes, sizeof(bytes), 9);
	WORKS(rdmad_channel_put(pair.client, bytes, 300, ENOUGH)); /* close flushes */
	ck_assert_int_eq(rdmad_channel_close(pair.client), 0);
	pair.client = NULL;
	WORKS(rdmad_channel_get(pair.server, bytes, 100, ENOUGH));
	check_bytes(bytes, 100, 9);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 201, ENOUGH), -EPIPE);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "closed"));
	ck_assert_int_eq(rdmad_channel_view(pair.server, 150, ENOUGH, &seen, &available), 0);
	ck_assert_uint_eq(available, 200);
	ck_assert_int_eq(rdmad_channel_arm(pair.server), 1); /* first what is left */
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, bytes, 300), 200);
	check_bytes(bytes, 200, 109);
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, bytes, 1), -EPIPE);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 1, ENOUGH), -EPIPE);
	ck_assert_int_eq(rdmad_channel_try_get_all(pair.server, bytes, 1), -EPIPE);
	ck_assert_int_eq(rdmad_channel_put(pair.server, bytes, 1, ENOUGH), -EPIPE);
	ck_assert_int_eq(rdmad_channel_flush(pair.server, ENOUGH), -EPIPE);
	ck_assert_int_eq(rdmad_channel_progress(pair.server), -EPIPE);
	ck_assert_int_eq(rdmad_channel_arm(pair.server), -EPIPE);
	ck_assert_int_eq(rdmad_channel_close(pair.server), 0); /* nothing of its own was lost */
	pair.server = NULL;
	down();
}
END_TEST

/* Of the ends that wait, one that puts and one that gets, each hears of the end. */
static void *wait_for_bytes(void *arg)
{
	uint8_t byte;

	*(int *)arg = rdmad_channel_get(pair.server, &byte, 1, RDMAD_CHANNEL_FOREVER);
	return NULL;
}

static void *wait_for_room(void *arg)
{
	uint8_t bytes[100] = {0};

	while (*(int *)arg == 0)
		*(int *)arg = rdmad_channel_put(pair.server, bytes, sizeof(bytes), RDMAD_CHANNEL_FOREVER);
	return NULL;
}

START_TEST(test_close_wakes)
{
	int get = 0, put = 0;
	pthread_t threads[2];

	up(1000);
	pthread_create(&threads[0], NULL, wait_for_bytes, &get);
	pthread_create(&threads[1], NULL, wait_for_room, &put);
	wait_available(pair.client, 1000);
	rdmad_channel_close(pair.client);
	pair.client = NULL;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	ck_assert_int_eq(get, -EPIPE);
	ck_assert_int_eq(put, -EPIPE);
	ck_assert_int_eq(rdmad_channel_close(pair.server), -EPIPE); /* what it put nobody will get */
	pair.server = NULL;
	down();
}
END_TEST

#ifdef RDMAD_CONTRACTS
/* Of two threads that get, one of which sleeps in its call by then, the other ends the program. */
START_TEST(test_two_get)
{
	struct rdmad_channel_info info = {.sleeps = 0};
	int get = 0;
	pthread_t thread;
	uint8_t byte;

	up(1000);
	pthread_create(&thread, NULL, wait_for_bytes, &get);
	while (info.sleeps == 0)
		rdmad_channel_info(pair.server, &info);
	rdmad_channel_get(pair.server, &byte, 1, 1000);
	ck_abort_msg("two threads got at once");
}
END_TEST
#endif

/* A call longer than the ring that runs out of time has no place to go on from. */
START_TEST(test_lost_place)
{
	uint8_t bytes[3000] = {0};

	up(1000);
	ck_assert_int_eq(rdmad_channel_put(pair.client, bytes, 3000, 1000), -ETIMEDOUT);
	ck_assert_int_eq(rdmad_channel_put(pair.client, bytes, 1, ENOUGH), -EIO);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "lost its place"));
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 3000, 1000), -ETIMEDOUT);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 1, ENOUGH), -EIO);
	down();
}
END_TEST

/* One that the peer's end cuts short says by bytes_got what it has; the rest is still there. */
START_TEST(test_long_get_ends)
{
	struct rdmad_channel_info info;
	uint8_t bytes[3000];

	up(1000);
	fill(bytes, sizeof(bytes), 9);
	WORKS(rdmad_channel_put(pair.client, bytes, 900, ENOUGH));
	ck_assert_int_eq(rdmad_channel_close(pair.client), 0);
	pair.client = NULL;
	memset(bytes, 0, sizeof(bytes));
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 3000, ENOUGH), -EPIPE);
	rdmad_channel_info(pair.server, &info);
	ck_assert_uint_le(info.bytes_got, 900);
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, bytes + info.bytes_got, 3000) > 0, info.bytes_got < 900);
	check_bytes(bytes, 900, 9);
	ck_assert_int_eq(rdmad_channel_try_get(pair.server, bytes, 1), -EPIPE);
	down();
}
END_TEST

/* Nor has a thread that gets at the same end anything to wait for any more: it is woken. */
static void *wait_at_client(void *arg)
{
	uint8_t byte;

	*(int *)arg = rdmad_channel_get(pair.client, &byte, 1, RDMAD_CHANNEL_FOREVER);
	return NULL;
}

START_TEST(test_lost_place_wakes)
{
	struct rdmad_channel_info info = {.sleeps = 0};
	uint8_t bytes[3000] = {0};
	pthread_t thread;
	int get = 0;

	up(1000);
	pthread_create(&thread, NULL, wait_at_client, &get);
	while (info.sleeps == 0)
		rdmad_channel_info(pair.client, &info);
	ck_assert_int_eq(rdmad_channel_put(pair.client, bytes, 3000, 1000), -ETIMEDOUT);
	pthread_join(thread, NULL);
	ck_assert_int_eq(get, -EIO);
	ck_assert_int_eq(rdmad_channel_arm(pair.client), -EIO); /* there will be nothing to sleep for */
	down();
}
END_TEST

/* Each client has rings of its own, which the next one leaves alone; a listener may end before them. */
START_TEST(test_clients)
{
	struct channel_pair others[5];
	uint8_t byte;

	up(1000);
	for (uint8_t i = 0; i < 5; i++) {
		others[i] = pair;
		channel_pair_join(&others[i]);
		WORKS(rdmad_channel_put(others[i].client, &i, 1, ENOUGH));
		WORKS(rdmad_channel_flush(others[i].client, ENOUGH));
	}
	rdmad_channel_listener_close(pair.listener);
	pair.listener = NULL;
	for (uint8_t i = 0; i < 5; i++) {
		WORKS(rdmad_channel_get(others[i].server, &byte, 1, ENOUGH));
		ck_assert_uint_eq(byte, i);
		rdmad_channel_close(others[i].client);
		rdmad_channel_close(others[i].server);
	}
	ck_assert_uint_eq(rdmad_channel_available(pair.server), 0);
	down();
}
END_TEST

START_TEST(test_leaks)
{
	unsigned before;

	up(5000); /* what a process opens once, it has then */
	down();
	before = count_descriptors();
	for (int i = 0; i < 5; i++) {
		up(5000);
		down();
	}
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

/* What a client hears that asks for what is not there. */
static _Atomic int rc_of_open;
/*
 * What rdmad_error() says: of the last call alone, whatever an earlier one left. `text` NULL: nothing.
 */
#define FAILS(call, error, text)                                                                                       \
	do {                                                                                                           \
		const char *text_ = text;                                                                              \
		int fails_;                                                                                            \
		rdmad_channel_open("stale words", 64, NULL, &(struct rdmad_channel *){NULL});                          \
		fails_ = (int)(call);                                                                                  \
		ck_assert_msg(fails_ == (error), "%d: %s", fails_, rdmad_error());                                     \
		ck_assert_msg(!strstr(rdmad_error(), "stale words"), "%s", rdmad_error());                             \
		ck_assert_msg(text_ ? strstr(rdmad_error(), text_) != NULL : !*rdmad_error(), "%s", rdmad_error());    \
	} while (0)

START_TEST(test_errors)
{
	static uint8_t bytes[2000];
	struct iovec piece = {bytes, SIZE_MAX};
	struct iovec pieces[2] = {piece, piece};
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	const void *seen;
	size_t available;
	void *place;

	FAILS(rdmad_channel_listen("nonsense", 1000, NULL, &listener), -EINVAL, "nonsense");
	FAILS(rdmad_channel_open("nonsense", 1000, NULL, &channel), -EINVAL, "nonsense");
	up(1000);
	FAILS(rdmad_channel_listen(pair.url, 1000, NULL, &listener), -EADDRINUSE, "");
	ck_assert_str_ne(rdmad_error(), "");
	FAILS(rdmad_channel_accept(pair.listener, 1000, &channel), -ETIMEDOUT, "");
	FAILS(rdmad_channel_get(pair.client, bytes, 8, 1000), -ETIMEDOUT, "waiting for the peer: 8 bytes");
	FAILS(rdmad_channel_view(pair.client, 8, 1000, &seen, &available), -ETIMEDOUT, "waiting for the peer: 8");
	FAILS(rdmad_channel_get(pair.client, bytes, 8, 0), -ETIMEDOUT, NULL);
	FAILS(rdmad_channel_try_get_all(pair.client, bytes, 8), -EAGAIN, NULL);
	FAILS(rdmad_channel_try_get_all(pair.client, bytes, 1001), -ENOSPC, "1001 bytes, beyond");
	FAILS(rdmad_channel_view(pair.client, 1001, 0, &seen, &available), -ENOSPC, "1001 bytes, beyond");
	FAILS(rdmad_channel_consume(pair.client, 1), -EINVAL, "1 bytes to consume");
	FAILS(rdmad_channel_getv(pair.client, &piece, -1, 0), -EINVAL, "-1 pieces");
	FAILS(rdmad_channel_getv(pair.client, pieces, 2, 0), -EINVAL, "2 pieces");
	FAILS(rdmad_channel_putv(pair.client, pieces, 2, 0), -EINVAL, "2 pieces");
	FAILS(rdmad_channel_reserve(pair.client, 1001, 0, &place), -ENOSPC, "1001 bytes, beyond");
	FAILS(rdmad_channel_commit(pair.client, 1), -EINVAL, "a commit of 1 bytes");
	FAILS(rdmad_channel_try_put(pair.client, bytes, 1001), -ENOSPC, "1001 bytes, beyond");
	WORKS(rdmad_channel_put(pair.client, bytes, 1000, ENOUGH));
	FAILS(rdmad_channel_try_put(pair.client, bytes, 1), -ENOSPC, NULL);
	FAILS(rdmad_channel_put(pair.client, bytes, 1, 0), -ETIMEDOUT, NULL);
	FAILS(rdmad_channel_put(pair.client, bytes, 1, 1000), -ETIMEDOUT, "waiting for room: 1 bytes");
	FAILS(rdmad_channel_reserve(pair.client, 1, 1000, &place), -ETIMEDOUT, "waiting for room: 1 bytes");
	rdmad_channel_close(pair.server);
	pair.server = NULL;
	ck_assert_int_lt(rdmad_channel_get(pair.client, bytes, 8, ENOUGH), 0);
	for (int i = 0; i < 6; i++) {
		int rc = rdmad_channel_progress(pair.client), got = 0;

		switch (i) {
		case 0:
			FAILS(got = rdmad_channel_get(pair.client, bytes, 8, ENOUGH), rc, "");
			break;
		case 1:
			FAILS(got = rdmad_channel_put(pair.client, bytes, 8, ENOUGH), rc, "");
			break;
		case 2:
			FAILS(got = rdmad_channel_try_put(pair.client, bytes, 8), rc, "");
			break;
		case 3:
			FAILS(got = rdmad_channel_try_get_all(pair.client, bytes, 8), rc, "");
			break;
		case 4:
			FAILS(got = rdmad_channel_arm(pair.client), rc, "");
			break;
		case 5:
			FAILS(got = rdmad_channel_flush(pair.client, 1000), rc, "");
			break;
		}
		ck_assert_int_lt(got, 0);
		ck_assert_str_ne(rdmad_error(), "");
	}
	down();
}
END_TEST

static char words[300];

static void *open_smaller(void *arg)
{
	struct rdmad_channel *channel;

	rc_of_open = rdmad_channel_open(arg, 999, NULL, &channel);
	snprintf(words, sizeof(words), "%s", rdmad_error());
	return NULL;
}

START_TEST(test_another_size)
{
	struct rdmad_channel *channel;
	pthread_t thread;

	up(1000);
	pthread_create(&thread, NULL, open_smaller, (void *)(uintptr_t)pair.url);
	while (rc_of_open == 0) /* a refused client is not told of */
		ck_assert_int_eq(rdmad_channel_accept(pair.listener, 10000, &channel), -ETIMEDOUT);
	pthread_join(thread, NULL);
	ck_assert_int_eq(rc_of_open, -EMSGSIZE);
	ck_assert_msg(strstr(words, "have 1000 bytes"), "%s", words);
	down();
}
END_TEST

void channel_cases_errors(Suite *suite)
{
	tcase_add_test(suite_case(suite, "errors", NULL, NULL), test_errors);
}

void channel_cases(Suite *suite)
{
	TCase *tc = suite_case(suite, "bytes", NULL, NULL);

	tcase_add_test(tc, test_put_get);
	tcase_add_test(tc, test_empty);
	tcase_add_loop_test(tc, test_full, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_test(tc, test_tries);
	tcase_add_test(tc, test_vectors);
	tcase_add_test(tc, test_in_place);
	tcase_add_test(tc, test_flushes);
	tc = suite_case(suite, "streams", NULL, NULL);
	tcase_add_test(tc, test_messages);
	tcase_add_loop_test(tc, test_streams, 0, sizeof(streams) / sizeof(streams[0]));
	tcase_add_test(tc, test_asleep);
	tcase_add_test(tc, test_own_loop);
	tc = suite_case(suite, "ends", NULL, NULL);
	tcase_add_test(tc, test_close);
	tcase_add_test(tc, test_close_wakes);
#ifdef RDMAD_CONTRACTS
	tcase_add_test_raise_signal(tc, test_two_get, SIGABRT);
#endif
	tcase_add_test(tc, test_lost_place);
	tcase_add_test(tc, test_lost_place_wakes);
	tcase_add_test(tc, test_long_get_ends);
	tcase_add_test(tc, test_clients);
	tcase_add_test(tc, test_leaks);
	tcase_add_test(tc, test_another_size);
	channel_cases_errors(suite);
}
