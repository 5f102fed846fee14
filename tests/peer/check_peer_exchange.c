/* check_peer_exchange.c: rdma_sequential_alltoall(). With a URL: over that transport. */
#include "tests/peer/peer_pair.h"
#include "tests/suite.h"

#include <unistd.h>

static struct peer_pair pair;
static char from[1000], to[1000];

static void up(void)
{
	peer_pair_up(&pair, 3, NULL);
}

static void down(void)
{
	peer_pair_down(&pair);
}

/*
 * Until when the calling thread's calls wait
 */
static _Thread_local uint64_t first_until, last_until;

int __real_context_wait(rdma_context *ctx, bool (*finished)(const void *arg), const void *arg, uint64_t until);
int __wrap_context_wait(rdma_context *ctx, bool (*finished)(const void *arg), const void *arg, uint64_t until);
int __wrap_context_wait(rdma_context *ctx, bool (*finished)(const void *arg), const void *arg, uint64_t until)
{
	first_until = first_until ? first_until : until;
	last_until = until;
	return __real_context_wait(ctx, finished, arg, until);
}

/* A size for which there is no memory */
static size_t no_memory_for;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return size == no_memory_for ? NULL : __real_malloc(size);
}

struct caller {
	rdma_context *ctx;
	unsigned number, rounds, pause;
	size_t msg_size;
	const char *text; /* NULL: one of its number and the round */
	char *result;
	int rc, error;
	char why[512];
	pthread_t thread;
};

static void *exchange_run(void *arg)
{
	struct caller *c = arg;
	char *own = calloc(1, c->msg_size);

	for (unsigned i = 0; i < c->rounds && c->rc == 0; i++) {
		memset(own, 'a' + (char)c->number, c->msg_size - 1);
		if (c->text)
			snprintf(own, c->msg_size, "%s", c->text);
		else
			snprintf(own, c->msg_size, "%u of %u", c->number, i);
		if (c->msg_size > 1000)
			own[strlen(own)] = '-';
		usleep(c->pause * (i % 3));
		c->rc = rdma_sequential_alltoall(c->ctx, own, c->result, c->msg_size);
		c->error = rdma_get_errno();
		snprintf(c->why, sizeof(c->why), "%s", rdma_get_error());
	}
	free(own);
	return NULL;
}

/* Member 0 is the server. */
static void exchange(struct caller caller[4], size_t msg_size, unsigned rounds)
{
	for (unsigned i = 0; i < 4; i++) {
		caller[i] = (struct caller){.ctx = i ? pair.client[i - 1] : pair.server,
					    .number = i,
					    .rounds = rounds,
					    .pause = 500 * i,
					    .msg_size = msg_size,
					    .result = calloc(4, msg_size + 2)};
		ck_assert_int_eq(pthread_create(&caller[i].thread, NULL, exchange_run, &caller[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(caller[i].thread, NULL);
}

START_TEST(all_get_the_strings_of_all_in_any_timing)
{
	struct caller caller[4];

	exchange(caller, 20, 30);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_msg(caller[i].rc == 0, "%u: %s", i, caller[i].why);
		ck_assert_str_eq(caller[i].result, "0 of 29; 1 of 29; 2 of 29; 3 of 29;");
		free(caller[i].result);
	}
}
END_TEST

START_TEST(strings_are_of_any_length)
{
	struct caller caller[4];

	exchange(caller, 300000, 2);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_msg(caller[i].rc == 0, "%u: %s", i, caller[i].why);
		ck_assert_uint_eq(strlen(caller[i].result), 4 * 299999 + 3 * 2 + 1);
		ck_assert_str_eq(caller[i].result, caller[0].result);
	}
	for (unsigned i = 0; i < 4; i++)
		free(caller[i].result);
}
END_TEST

START_TEST(an_exchange_leaves_ordinary_messages_alone)
{
	struct caller caller[4];

	/* The server has more messages waiting for client 0 than there is room for: others go by. */
	for (unsigned i = 0; i < 2000; i++)
		ck_assert_ptr_nonnull(rdma_isend(pair.server, 0, from, 1000));
	ck_assert_int_eq(rdma_send(pair.client[1], 0, "ordinary", 9), 9);
	exchange(caller, 50, 1);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_msg(caller[i].rc == 0, "%u: %s", i, caller[i].why);
		free(caller[i].result);
	}
	ck_assert_int_eq(rdma_recv(pair.server, 1, to, 10), 9);
	ck_assert_int_eq(rdma_recv(pair.client[0], 0, to, 1000), 1000);
}
END_TEST

START_TEST(a_string_that_is_too_long_fails_the_exchange_for_all)
{
	static char results[4][1000];
	struct caller caller[4];

	for (unsigned i = 0; i < 4; i++) {
		caller[i] = (struct caller){.ctx = i ? pair.client[i - 1] : pair.server,
					    .number = i,
					    .rounds = 1,
					    .msg_size = i == 2 ? 5000 : 30,
					    .result = i == 2 ? calloc(4, 5002) : results[i]};
		ck_assert_int_eq(pthread_create(&caller[i].thread, NULL, exchange_run, &caller[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(caller[i].thread, NULL);
	free(caller[2].result);
	for (unsigned i = 0; i < 4; i++) {
		if (i != 2)
			ck_assert_msg(caller[i].rc == -1 && caller[i].error == EMSGSIZE, "%u: %d %s", i, caller[i].rc,
				      caller[i].why);
	}
	exchange(caller, 30, 1);
	for (unsigned i = 0; i < 4; i++) {
		free(caller[i].result);
		if (i != 2)
			ck_assert_msg(caller[i].rc == 0, "%u: %s", i, caller[i].why);
	}
}
END_TEST

/* A peer that calls with a smaller size than the others has less room: here a byte too little. */
START_TEST(a_result_that_does_not_fit_is_not_written)
{
	static char results[4][4 * (30 + 2)];
	struct caller caller[4];

	for (unsigned i = 0; i < 4; i++) {
		caller[i] = (struct caller){.ctx = i ? pair.client[i - 1] : pair.server,
					    .number = i,
					    .rounds = 1,
					    .msg_size = i == 1 ? 7 : 30,
					    .text = i == 0 ? "the server," : NULL,
					    .result = i == 1 ? calloc(4, 7 + 2) : results[i]};
		ck_assert_int_eq(pthread_create(&caller[i].thread, NULL, exchange_run, &caller[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(caller[i].thread, NULL);
	free(caller[1].result);
	ck_assert_uint_eq(strlen(results[0]) + 1, 4 * (7 + 2) + 1);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_msg(caller[i].rc == (i == 1 ? -1 : 0), "%u: %s", i, caller[i].why);
	ck_assert_int_eq(caller[1].error, EMSGSIZE);
}
END_TEST

START_TEST(a_size_beyond_memory_is_refused)
{
	ck_assert_int_eq(rdma_sequential_alltoall(pair.client[0], "c", to, SIZE_MAX - 7), -1);
	ck_assert_int_eq(rdma_get_errno(), EINVAL);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Invalid parameters: "));
}
END_TEST

START_TEST(no_memory_for_the_strings_fails_the_exchange_for_all)
{
	struct caller caller[4];

	for (int failed = 1; failed >= 0; failed--) {
		no_memory_for = failed ? sizeof(struct wire_peer_exchange) + 999 : 0;
		exchange(caller, 999, 1);
		for (unsigned i = 0; i < 4; i++) {
			ck_assert_msg(caller[i].rc == -failed && (!failed || caller[i].error == ENOMEM), "%u: %d %s", i,
				      caller[i].rc, caller[i].why);
			free(caller[i].result);
		}
	}
}
END_TEST

START_TEST(a_server_without_peers_has_its_own_string)
{
	rdma_context *alone = rdma_init_options("127.0.0.1", 0, true, NULL), *client = rdma_init(NULL, 0, 0, false);

	ck_assert_int_eq(rdma_sequential_alltoall(alone, "s", to, 10), 0);
	ck_assert_str_eq(to, "s;");
	ck_assert_int_eq(rdma_sequential_alltoall(client, "c", to, 10), -1);
	ck_assert_ptr_nonnull(strstr(rdma_get_error(), "Peer not connected"));
	rdma_cleanup(client);
	rdma_cleanup(alone);
}
END_TEST

/* The peers that are left hear of it. */
START_TEST(a_peer_that_is_lost_fails_the_exchange_for_all)
{
	static char results[4][200];
	struct caller caller[4];

	for (unsigned i = 0; i < 4; i++) {
		caller[i] = (struct caller){.ctx = i ? pair.client[i - 1] : pair.server,
					    .number = i,
					    .rounds = 1,
					    .msg_size = 30,
					    .result = results[i]};
		if (i != 3)
			ck_assert_int_eq(pthread_create(&caller[i].thread, NULL, exchange_run, &caller[i]), 0);
	}
	usleep(1000); /* mostly the others wait by now; either order is right */
	rdma_cleanup(pair.client[2]);
	pair.clients = 2;
	for (unsigned i = 0; i < 3; i++)
		pthread_join(caller[i].thread, NULL);
	/* The server had begun, or not: then it exchanged without that peer. */
	for (unsigned i = 1; i < 3; i++)
		ck_assert_msg(caller[i].rc == caller[0].rc &&
				      (caller[i].rc == 0 || strstr(caller[i].why, "Peer not connected")),
			      "%u: %d %s", i, caller[i].rc, caller[i].why);
}
END_TEST

/* The time is the call's, not each member's. */
START_TEST(members_that_do_not_call_share_one_time)
{
	char result[200];

	pair.server->options.timeout_ms = 20;
	first_until = 0;
	ck_assert_int_eq(rdma_sequential_alltoall(pair.server, "s", result, 30), -1);
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	ck_assert_uint_ne(first_until, TIME_NEVER);
	ck_assert_uint_eq(first_until, last_until);
	pair.server->options.timeout_ms = 0;
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("peer exchange");
	TCase *tc;

	if (argc > 1)
		peer_pair_use(argv[1]);
	tc = suite_case(suite, "all", up, down);
	tcase_add_test(tc, all_get_the_strings_of_all_in_any_timing);
	tcase_add_test(tc, strings_are_of_any_length);
	tcase_add_test(tc, an_exchange_leaves_ordinary_messages_alone);
	tcase_add_test(tc, a_string_that_is_too_long_fails_the_exchange_for_all);
	tcase_add_test(tc, a_result_that_does_not_fit_is_not_written);
	tcase_add_test(tc, a_size_beyond_memory_is_refused);
	tcase_add_test(tc, no_memory_for_the_strings_fails_the_exchange_for_all);
	tcase_add_test(tc, a_peer_that_is_lost_fails_the_exchange_for_all);
	tcase_add_test(tc, members_that_do_not_call_share_one_time);
	tcase_add_test(tc, a_server_without_peers_has_its_own_string);
	return suite_run(suite);
}
