/* check_peer_request.c: operations under way and their ends; calls to all peers. With a URL: over that transport. */
#include "tests/peer/peer_pair.h"
#include "tests/suite.h"

#include <unistd.h>

static struct peer_pair pair;
static char from[1 << 20], to[1 << 20];

static _Atomic unsigned granted = UINT32_MAX; /* requests, of the context that is asked next */

struct rdma_request *__real_request_new(rdma_context *ctx, struct peer *peer);
struct rdma_request *__wrap_request_new(rdma_context *ctx, struct peer *peer);
struct rdma_request *__wrap_request_new(rdma_context *ctx, struct peer *peer)
{
	if (granted == 0)
		return NULL;
	granted -= granted != UINT32_MAX;
	return __real_request_new(ctx, peer);
}

static void up(void)
{
	peer_pair_up(&pair, 1, NULL);
	peer_pair_fill(from, sizeof(from), 1);
}

static void up_impatient(void)
{
	up();
	pair.server->options.timeout_ms = pair.client[0]->options.timeout_ms = 50; /* not of connecting */
}

/* Each of them, in nanoseconds or added to a count, is more than 64 bits have. */
static void up_largest(void)
{
	const rdma_options options = {.max_peers = UINT32_MAX,
				      .max_wr = UINT32_MAX,
				      .cq_depth = UINT32_MAX,
				      .rate_limit_mib = UINT32_MAX,
				      .buf_size = SIZE_MAX,
				      .timeout_ms = UINT64_MAX / 1000000 + 1,
				      .connect_timeout_ms = UINT64_MAX / 1000000 + 1,
				      .heartbeat_ms = UINT64_MAX / 1000000 + 1,
				      .reconnect_ms = UINT64_MAX / 1000000 + 1,
				      .poll_us = UINT64_MAX / 1000 + 1};

	peer_pair_up(&pair, 1, &options);
	peer_pair_fill(from, sizeof(from), 1);
}

static void up_three(void)
{
	peer_pair_up(&pair, 3, NULL);
}

static void down(void)
{
	peer_pair_down(&pair);
}

static void turns(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		peer_pair_turn(&pair);
}

/* What cannot leave: the peer receives nothing. */
static rdma_request *blocked_send(void)
{
	rdma_request *request;

	for (unsigned i = 0; i < 1000; i++) {
		int64_t result;

		request = rdma_isend(pair.server, 0, from, 4096);
		ck_assert_ptr_nonnull(request);
		turns(5);
		if (!rdma_test(request, &result))
			return request;
	}
	ck_abort_msg("the peer takes all that is sent");
	return NULL;
}

/*
 * Ends
 */
START_TEST(a_request_that_waits_is_given_up)
{
	rdma_request *receive = rdma_irecv(pair.client[0], 0, to, 10), *send;

	ck_assert_int_eq(rdma_test(receive, NULL), 0);
	ck_assert_int_eq(rdma_cancel(receive), 0);
	send = blocked_send();
	ck_assert_int_eq(rdma_cancel(send), 0);
	/* What came for the receive that was given up is the next one's. */
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, sizeof(to)), 4096);
}
END_TEST

START_TEST(a_request_that_is_complete_or_offered_is_not_given_up)
{
	rdma_request *send = rdma_isend(pair.server, 0, from, 10), *offered = rdma_isend(pair.server, 0, from, 5000);

	ck_assert_int_eq(rdma_cancel(send), -1);
	ck_assert_int_eq(rdma_get_errno(), EBUSY);
	ck_assert_int_eq(rdma_cancel(offered), -1);
	ck_assert_int_eq(rdma_get_errno(), EBUSY);
	ck_assert_int_eq(rdma_wait(send, 0, NULL), 0);
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, sizeof(to)), 10);
	ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, sizeof(to))), 5000);
	ck_assert_int_eq(peer_pair_end(&pair, offered), 5000);
}
END_TEST

START_TEST(a_wait_ends_in_time_and_the_request_goes_on)
{
	rdma_request *receive = rdma_irecv(pair.client[0], 0, to, 10);
	int64_t result = 5;

	ck_assert_int_eq(rdma_wait(receive, 10, &result), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 7), 7);
	ck_assert_int_eq(rdma_wait(receive, UINT64_MAX, &result), 0);
	ck_assert_int_eq(result, 7);
}
END_TEST

START_TEST(the_first_of_several_is_found)
{
	rdma_request *requests[3] = {NULL, rdma_irecv(pair.client[0], 0, to, 10),
				     rdma_irecv(pair.client[0], 0, to + 10, 10)};
	int64_t result = 0;

	ck_assert_int_eq(rdma_wait_any(requests, 3, 10, &result), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 3), 3);
	ck_assert_int_eq(rdma_wait_any(requests, 3, UINT64_MAX, &result), 1);
	ck_assert_int_eq(result, 3);
	ck_assert_ptr_null(requests[1]);
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 4), 4);
	ck_assert_int_eq(rdma_wait_any(requests, 3, UINT64_MAX, &result), 2);
	ck_assert_int_eq(rdma_wait_any(requests, 3, 0, &result), -1);
	ck_assert_int_eq(rdma_get_errno(), EINVAL);
	ck_assert_int_eq(rdma_wait_any(NULL, 3, 0, &result), -1);
	ck_assert_int_eq(rdma_wait_any(requests, -1, 0, &result), -1);
}
END_TEST

START_TEST(all_of_several_are_awaited_and_the_first_failure_is_told)
{
	rdma_request *requests[4];
	int64_t results[4] = {0};

	for (unsigned i = 0; i < 4; i++)
		requests[i] = rdma_irecv(pair.client[0], 0, to, i == 1 ? 2 : 10);
	ck_assert_int_eq(rdma_wait_all(requests, 4, 10, results), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_ptr_nonnull(requests[i]);
		ck_assert_int_eq(rdma_send(pair.server, 0, from, 3 + i), 3 + i);
	}
	ck_assert_int_eq(rdma_wait_all(requests, 4, UINT64_MAX, results), -1);
	ck_assert_int_eq(rdma_get_errno(), EMSGSIZE);
	ck_assert_int_eq(results[0], 3);
	ck_assert_int_eq(results[1], -1);
	ck_assert_int_eq(results[2], 4);
	ck_assert_int_eq(results[3], 5);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_ptr_null(requests[i]);
	ck_assert_int_eq(rdma_wait_all(requests, 0, UINT64_MAX, results), 0);
	ck_assert_int_eq(rdma_wait_all(NULL, 0, 0, NULL), 0);
	ck_assert_int_eq(rdma_wait_all(requests, -1, 0, NULL), -1);
}
END_TEST

START_TEST(arguments_that_are_none_are_refused)
{
	struct {
		int64_t result;
		const char *words;
	} refused[] = {
		{rdma_send(NULL, 0, from, 1), "Invalid parameters"},
		{rdma_send(pair.server, 0, NULL, 1), "Invalid parameters"},
		{rdma_send(pair.server, -1, from, 1), "Invalid peer index"},
		{rdma_send(pair.server, 1, from, 1), "Invalid peer index"},
		{rdma_send(pair.server, 0, from, (size_t)INT32_MAX + 1), "Invalid parameters"},
		{rdma_recv(pair.server, 7, to, 1), "Invalid peer index"},
		{rdma_recv(pair.server, 0, NULL, 1), "Invalid parameters"},
		{rdma_probe(pair.server, -3, 0), "Invalid peer index"},
		{rdma_broadcast(NULL, from, 1), "Invalid parameters"},
		{rdma_rate_limit(pair.server, 9, 1), "Invalid peer index"},
		{rdma_isend(pair.server, 4, from, 1) ? 0 : -1, "Invalid peer index"},
		{rdma_irecv(NULL, 0, to, 1) ? 0 : -1, "Invalid parameters"},
		{rdma_test(NULL, NULL), "Invalid parameters"},
		{rdma_wait(NULL, 0, NULL), "Invalid parameters"},
		{rdma_cancel(NULL), "Invalid parameters"},
		{rdma_sequential_alltoall(pair.server, "x", NULL, 5), "Invalid parameters"},
		{rdma_sequential_alltoall(pair.server, "12345", to, 5), "Invalid parameters"},
		{rdma_register(pair.server, NULL, 5), "Invalid parameters"},
		{rdma_unregister(pair.server, from), "Invalid parameters"},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(refused); i++)
		ck_assert_msg(refused[i].result == -1, "refusal %u", i);
	ck_assert_int_eq(rdma_send(pair.server, 1, from, 1), -1);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Invalid peer index"));
	ck_assert_int_eq(rdma_send(pair.server, 0, NULL, 1), -1);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Invalid parameters"));
	ck_assert_int_eq(rdma_send(pair.server, 0, NULL, 0), 0);
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, NULL, 0), 0);
}
END_TEST

/*
 * Time
 */
START_TEST(a_receive_ends_in_time)
{
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, 10), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 10), 10);
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, 10), 10);
}
END_TEST

START_TEST(a_send_ends_in_time_and_was_not_sent)
{
	unsigned sent = 0;

	while (rdma_send(pair.server, 0, &sent, sizeof(sent)) == sizeof(sent))
		sent++;
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	ck_assert_uint_ge(sent, 31); /* messages that a program takes that does not turn */
	for (unsigned i = 0, got; i < sent; i++) {
		ck_assert_int_eq(rdma_recv(pair.client[0], 0, &got, sizeof(got)), sizeof(got));
		ck_assert_uint_eq(got, i);
	}
	turns(20);
	ck_assert_int_eq(rdma_probe(pair.client[0], 0, 0), -1);
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 5), 5);
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, 10), 5);
}
END_TEST

static void *waiter(void *arg)
{
	int64_t result = -1;

	return rdma_wait(arg, UINT64_MAX, &result) == 0 && result == 5 ? NULL : arg;
}

/* The context's time is for calls that have none of their own. */
START_TEST(a_wait_for_ever_has_no_other_end)
{
	rdma_request *receive = rdma_irecv(pair.client[0], 0, to, 10);
	pthread_t thread;
	void *failed;

	ck_assert_int_eq(pthread_create(&thread, NULL, waiter, receive), 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(rdma_recv(pair.server, 0, to + 100, 10), -1); /* of as much time */
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 5), 5);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
}
END_TEST

/* A call that waits for the connection to come back would wait for ever: nobody turns the client meanwhile. */
START_TEST(the_largest_options_are_options)
{
	for (unsigned i = 0; i < 100; i++) {
		ck_assert_int_eq(peer_pair_end(&pair, rdma_isend(pair.server, 0, from, 4096)), 4096);
		if (i == 20)
			peer_pair_break(&pair, 0);
		ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, sizeof(to))), 4096);
	}
	ck_assert(peer_pair_is_filled(to, 4096, 1));
}
END_TEST

/* The peer's program does nothing, or turns. */
static void *turner(void *arg)
{
	while (!*(_Atomic bool *)arg) {
		rdma_progress(pair.client[0]);
		usleep(100);
	}
	return NULL;
}

static void check_withdrawn(void)
{
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, sizeof(to)), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	turns(20);
	peer_pair_fill(from, 100000, 77);
	ck_assert_ptr_nonnull(pair.client[0]);
	rdma_request *sent = rdma_isend(pair.server, 0, from, 100000);
	ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to, sizeof(to))), 100000);
	ck_assert(peer_pair_is_filled(to, 100000, 77));
	ck_assert_int_eq(peer_pair_end(&pair, sent), 100000);
}

START_TEST(a_long_message_whose_time_is_over_is_withdrawn)
{
	_Atomic bool stop = false;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, turner, (void *)&stop), 0);
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 100000), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	stop = true;
	pthread_join(thread, NULL);
	check_withdrawn();
}
END_TEST

START_TEST(a_long_message_is_withdrawn_from_who_is_away)
{
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 100000), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	check_withdrawn();
}
END_TEST

static void *slow_sender(void *arg)
{
	return (void *)(intptr_t)rdma_send(pair.server, 0, from, sizeof(from));
}

/* Both calls have their time, of which the receive's is over first, when a part has come. */
START_TEST(a_receive_whose_time_is_over_waits_for_nothing_when_its_message_is_withdrawn)
{
	pthread_t thread;
	void *sent;

	pair.server->options.timeout_ms = 300;
	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 1), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, slow_sender, NULL), 0);
	ck_assert_int_eq(rdma_probe(pair.client[0], 0, UINT64_MAX), sizeof(from));
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, sizeof(to)), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	pthread_join(thread, &sent);
	ck_assert_int_eq((intptr_t)sent, -1);
	ck_assert_int_eq(rdma_rate_limit(pair.server, 0, 0), 0);
	check_withdrawn();
}
END_TEST

/*
 * Peers that are lost
 */
static void check_lost(rdma_request *request, const char *name)
{
	int64_t result = 0;
	int rc;

	while ((rc = rdma_test(request, &result)) == 0)
		rdma_progress(pair.server);
	ck_assert_int_eq(rc, 1);
	ck_assert_int_eq(result, -1);
	ck_assert_int_eq(rdma_get_errno(), ECONNRESET);
	ck_assert_msg(strstr(rdma_get_error(), "Peer not connected") && strstr(rdma_get_error(), name), "%s",
		      rdma_get_error());
}

START_TEST(requests_of_a_peer_that_is_lost_end_with_its_name)
{
	rdma_request *receive = rdma_irecv(pair.server, 0, to, 10);
	rdma_request *offered = rdma_isend(pair.server, 0, from, 100000);
	rdma_request *blocked = blocked_send();
	char name[128];

	snprintf(name, sizeof(name), "%s", pair.server->peer[0]->name);
	ck_assert_int_eq(rdma_send(pair.client[0], 0, "last", 5), 5);
	ck_assert_int_eq(peer_pair_end(&pair, receive), 5);
	receive = rdma_irecv(pair.server, 0, to, 10);
	peer_pair_break(&pair, 0);
	check_lost(blocked, name);
	check_lost(offered, name);
	check_lost(receive, name);
	ck_assert_int_eq(rdma_send(pair.server, 0, from, 1), -1);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Peer not connected"));
	ck_assert_ptr_null(rdma_irecv(pair.server, 0, to, 1));
}
END_TEST

START_TEST(what_came_before_a_peer_went_can_be_received)
{
	ck_assert_int_eq(rdma_send(pair.client[0], 0, "one", 4), 4);
	ck_assert_int_eq(rdma_send(pair.client[0], 0, "two", 4), 4);
	while (rdma_probe(pair.server, 0, 0) < 0)
		;
	turns(10);
	peer_pair_break(&pair, 0);
	while (rdma_peers(pair.server))
		rdma_progress(pair.server);
	ck_assert_int_eq(rdma_recv(pair.server, 0, to, 10), 4);
	ck_assert_int_eq(rdma_probe(pair.server, 0, UINT64_MAX), 4);
	ck_assert_int_eq(rdma_recv(pair.server, 0, to, 10), 4);
	ck_assert_str_eq(to, "two");
	ck_assert_int_eq(rdma_recv(pair.server, 0, to, 10), -1);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Peer not connected"));
}
END_TEST

START_TEST(requests_outlive_a_disconnect_and_are_void_after_cleanup)
{
	rdma_request *receive = rdma_irecv(pair.server, 0, to, 10), *forgotten = rdma_irecv(pair.server, 0, to, 10);

	ck_assert_ptr_nonnull(forgotten);
	ck_assert_int_eq(rdma_disconnect_peer(pair.server, 0), 0);
	ck_assert_int_eq(peer_pair_end(&pair, receive), -1);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Peer not connected"));
}
END_TEST

/* Their memory is not touched behind it, which a sanitizer sees. */
START_TEST(a_context_ends_with_all_under_way)
{
	char *memory = malloc(1 << 20);

	for (unsigned i = 0; i < 300; i++) {
		ck_assert_ptr_nonnull(rdma_isend(pair.server, 0, memory, i % 3 ? 4096 : 1 << 20));
		ck_assert_ptr_nonnull(rdma_irecv(pair.client[0], 0, memory, i % 3 ? 10 : 1 << 20));
	}
	turns(3);
	rdma_cleanup(pair.client[0]);
	rdma_cleanup(pair.server);
	memset(&pair, 0, sizeof(pair));
	free(memory);
}
END_TEST

/*
 * To all
 */
struct broadcasting {
	unsigned len;
	int rc;
	pthread_t thread;
};

static void *broadcast_run(void *arg)
{
	struct broadcasting *b = arg;

	b->rc = rdma_broadcast(pair.server, from, b->len);
	return NULL;
}

static void check_broadcast(unsigned len)
{
	struct broadcasting b = {.len = len};
	rdma_request *in[3];

	ck_assert_int_eq(pthread_create(&b.thread, NULL, broadcast_run, &b), 0);
	for (unsigned i = 0; i < 3; i++) {
		int64_t result = 0;

		in[i] = rdma_irecv(pair.client[i], 0, to + i * 200000, 200000);
		ck_assert_int_eq(rdma_wait(in[i], UINT64_MAX, &result), 0);
		ck_assert_int_eq(result, len);
		ck_assert_int_eq(memcmp(to + i * 200000, from, len), 0);
	}
	pthread_join(b.thread, NULL);
	ck_assert_int_eq(b.rc, 3);
}

START_TEST(a_broadcast_reaches_all_that_are_there)
{
	check_broadcast(0);
	check_broadcast(1000);
	check_broadcast(100000);
	peer_pair_break(&pair, 1);
	while (rdma_peers(pair.server) == 3)
		turns(1);
	ck_assert_int_eq(rdma_broadcast(pair.server, from, 5), 2);
}
END_TEST

START_TEST(a_broadcast_to_nobody_fails)
{
	rdma_context *alone = rdma_init_options("127.0.0.1", 0, true, NULL);

	ck_assert_int_eq(rdma_broadcast(alone, from, 5), -1);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Peer not connected"));
	rdma_cleanup(alone);
}
END_TEST

START_TEST(a_broadcast_names_those_for_whom_there_is_no_memory)
{
	char words[100];

	for (unsigned i = 0; i < 3; i++) {
		granted = i;
		ck_assert_int_eq(rdma_broadcast(pair.server, from, 5), i ? (int)i : -1);
		granted = UINT32_MAX;
		ck_assert_int_eq(rdma_get_errno(), ENOMEM);
		snprintf(words, sizeof(words), "Not sent to %u of 3: ", 3 - i);
		ck_assert_msg(strstr(rdma_get_error(), words), "%s", rdma_get_error());
		ck_assert_msg(strstr(rdma_get_error(), pair.server->peer[2]->name), "%s", rdma_get_error());
	}
}
END_TEST

/*
 * Threads
 */
struct caller {
	rdma_context *ctx;
	int rc;
	pthread_t thread;
};

static void up_threads(void)
{
	rdma_options options = {.progress_thread = true};

	peer_pair_up(&pair, 2, &options);
	peer_pair_fill(from, sizeof(from), 1);
}

/* One of two contexts in threads of their own: what it sends comes back. */
static void *thread_run(void *arg)
{
	struct caller *c = arg;
	char *back = malloc(200000);

	for (unsigned i = 0; i < 200; i++) {
		int len = i % 10 == 9 ? 200000 : (int)(i * 20);
		rdma_request *receive = rdma_irecv(c->ctx, 0, back, 200000);
		int64_t result = -1;

		c->rc |= rdma_send(c->ctx, 0, from, (size_t)len) != len;
		c->rc |= rdma_wait(receive, UINT64_MAX, &result) != 0 || result != len ||
			 memcmp(back, from, (size_t)len) != 0;
	}
	free(back);
	return NULL;
}

static void echo_all(unsigned count)
{
	char *data = malloc(200000);
	unsigned echoes = 0;

	while (echoes < count)
		for (int i = 0; i < 2; i++) {
			int len;

			if (rdma_probe(pair.server, i, 0) < 0)
				continue;
			len = rdma_recv(pair.server, i, data, 200000);
			ck_assert_int_ge(len, 0);
			ck_assert_int_eq(rdma_send(pair.server, i, data, (size_t)len), len);
			echoes++;
		}
	free(data);
}

START_TEST(contexts_in_threads_with_threads_are_independent)
{
	struct caller caller[2] = {{.ctx = pair.client[0]}, {.ctx = pair.client[1]}};

	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&caller[i].thread, NULL, thread_run, &caller[i]), 0);
	echo_all(400);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(caller[i].thread, NULL);
		ck_assert_int_eq(caller[i].rc, 0);
	}
}
END_TEST

/* Nobody calls the receiver's library, nor the sender's. */
START_TEST(a_thread_moves_a_long_message_while_the_program_is_away)
{
	rdma_request *received = rdma_irecv(pair.client[0], 0, to, sizeof(to));
	rdma_request *sent = rdma_isend(pair.server, 0, from, sizeof(from));
	bool complete = false;
	int64_t result;

	while (!complete) {
		usleep(1000);
		rdma_enter(pair.client[0]);
		complete = received->complete;
		rdma_leave(pair.client[0]);
	}
	ck_assert_int_eq(rdma_wait(received, UINT64_MAX, &result), 0);
	ck_assert_int_eq(memcmp(from, to, sizeof(to)), 0);
	ck_assert_int_eq(rdma_wait(sent, UINT64_MAX, &result), 0);
}
END_TEST

START_TEST(memory_that_is_registered_is_used_as_it_is)
{
	rdma_request *sent;

	ck_assert_int_eq(rdma_register(pair.server, from, sizeof(from)), 0);
	ck_assert_int_eq(rdma_register(pair.client[0], to, sizeof(to)), 0);
	ck_assert_int_eq(rdma_register(pair.client[0], to + 100, 10), -1);
	ck_assert_int_eq(rdma_get_errno(), EEXIST);
	sent = rdma_isend(pair.server, 0, from + 5, 500000);
	ck_assert_int_eq(rdma_unregister(pair.server, from), -1);
	ck_assert_int_eq(rdma_get_errno(), EBUSY);
	ck_assert_int_eq(peer_pair_end(&pair, rdma_irecv(pair.client[0], 0, to + 9, 600000)), 500000);
	ck_assert_int_eq(memcmp(from + 5, to + 9, 500000), 0);
	ck_assert_int_eq(peer_pair_end(&pair, sent), 500000);
	ck_assert_int_eq(rdma_unregister(pair.server, from), 0);
	ck_assert_int_eq(rdma_unregister(pair.server, from), -1);
	ck_assert_int_eq(rdma_get_errno(), ENOENT);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("peer request");
	TCase *tc;

	if (argc > 1)
		peer_pair_use(argv[1]);
	tc = suite_case(suite, "ends", up, down);
	tcase_add_test(tc, a_request_that_waits_is_given_up);
	tcase_add_test(tc, a_request_that_is_complete_or_offered_is_not_given_up);
	tcase_add_test(tc, a_wait_ends_in_time_and_the_request_goes_on);
	tcase_add_test(tc, the_first_of_several_is_found);
	tcase_add_test(tc, all_of_several_are_awaited_and_the_first_failure_is_told);
	tcase_add_test(tc, arguments_that_are_none_are_refused);
	tcase_add_test(tc, memory_that_is_registered_is_used_as_it_is);
	tc = suite_case(suite, "time", up_impatient, down);
	tcase_add_test(tc, a_receive_ends_in_time);
	tcase_add_test(tc, a_wait_for_ever_has_no_other_end);
	tcase_add_test(tc, a_send_ends_in_time_and_was_not_sent);
	tcase_add_test(tc, a_long_message_whose_time_is_over_is_withdrawn);
	tcase_add_test(tc, a_long_message_is_withdrawn_from_who_is_away);
	tcase_add_test(tc, a_receive_whose_time_is_over_waits_for_nothing_when_its_message_is_withdrawn);
	tc = suite_case(suite, "largest", up_largest, down);
	tcase_add_test(tc, the_largest_options_are_options);
	tc = suite_case(suite, "lost", up, down);
	tcase_add_test(tc, requests_of_a_peer_that_is_lost_end_with_its_name);
	tcase_add_test(tc, what_came_before_a_peer_went_can_be_received);
	tcase_add_test(tc, requests_outlive_a_disconnect_and_are_void_after_cleanup);
	tcase_add_test(tc, a_context_ends_with_all_under_way);
	tc = suite_case(suite, "all", up_three, down);
	tcase_add_test(tc, a_broadcast_reaches_all_that_are_there);
	tcase_add_test(tc, a_broadcast_to_nobody_fails);
	tcase_add_test(tc, a_broadcast_names_those_for_whom_there_is_no_memory);
	tc = suite_case(suite, "threads", up_threads, down);
	tcase_add_test(tc, contexts_in_threads_with_threads_are_independent);
	tcase_add_test(tc, a_thread_moves_a_long_message_while_the_program_is_away);
	return suite_run(suite);
}
