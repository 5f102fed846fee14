/* check_ctl_channel.c: rdmactl's bytes of a channel, where standard input and output are pipes that nobody reads or writes for a while. */
#include <check.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/channel/channel_pair.h"
#include "ctl/channel/bytes.h"
#include "tests/suite.h"

enum { RING = 256 * 1024, MANY = 200000 }; /* MANY: more than a pipe takes, and less than a ring */

static struct channel_pair pair;
static int in, out; /* the other ends of standard input and output */
static int output;  /* the test's own */
static char bytes[MANY], got[MANY];

static void pipe_as(int fd, int end, int *other)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ck_assert_int_eq(dup2(fds[end], fd), fd);
	close(fds[end]);
	*other = fds[1 - end];
}

static void set_up(void)
{
	char url[64];

	for (int i = 0; i < MANY; i++)
		bytes[i] = (char)(i % 251);
	snprintf(url, sizeof(url), "shm://check-ctl-%d", (int)getpid());
	channel_pair_open(&pair, url, RING, NULL);
	output = dup(STDOUT_FILENO);
	pipe_as(STDIN_FILENO, 0, &in);
	pipe_as(STDOUT_FILENO, 1, &out);
}

static void tear_down(void)
{
	dup2(output, STDOUT_FILENO);
	close(output);
	close(in);
	close(out);
	rdmad_channel_close(pair.client);
	rdmad_channel_listener_close(pair.listener);
}

static void *run_pipe(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)ctl_channel_pipe(pair.client, 0);
}

static void *run_pop(void *arg)
{
	struct ctl_sink sink = {.most = 0};

	(void)arg;
	return (void *)(intptr_t)ctl_sink_fill(pair.client, &sink);
}

static void assert_output(pthread_t thread)
{
	void *rc;

	for (size_t n = 0; n < MANY;) {
		ssize_t more = read(out, got + n, MANY - n);

		ck_assert_int_gt(more, 0);
		n += (size_t)more;
	}
	ck_assert_mem_eq(bytes, got, MANY);
	pthread_join(thread, &rc);
	ck_assert_int_eq((int)(intptr_t)rc, -EPIPE);
}

/* What came before the other end closed is written, whatever there is to be put that nobody gets any more. */
START_TEST(test_pipe_end_with_input)
{
	pthread_t thread;

	WORKS(rdmad_channel_put(pair.server, bytes, MANY, SECONDS(60)));
	WORKS(rdmad_channel_close(pair.server));
	ck_assert_int_eq(write(in, bytes, 1000), 1000);
	pthread_create(&thread, NULL, run_pipe, NULL);
	assert_output(thread);
}
END_TEST

/* The reader of standard output may be waiting for what it writes to standard input to be read. */
START_TEST(test_pipe_goes_both_ways)
{
	pthread_t thread;
	char byte;

	ck_assert_int_eq(write(STDOUT_FILENO, bytes, 1), 1); /* so that a piece that fills the pipe has no room in it */
	WORKS(rdmad_channel_put(pair.server, bytes + 1, MANY - 1, SECONDS(60)));
	WORKS(rdmad_channel_flush(pair.server, SECONDS(60)));
	pthread_create(&thread, NULL, run_pipe, NULL);
	WORKS(rdmad_channel_reserve(pair.server, RING - MANY + 2, SECONDS(60), &(void *){NULL})); /* it has begun */
	for (int i = 0; i < 10; i++) {
		usleep(20000);
		ck_assert_int_eq(write(in, "x", 1), 1);
		WORKS(rdmad_channel_get(pair.server, &byte, 1, SECONDS(60)));
		ck_assert_int_eq(byte, 'x');
	}
	WORKS(rdmad_channel_close(pair.server));
	assert_output(thread);
}
END_TEST

/* The other end waits for half of a small ring, in which there is a little already. */
START_TEST(test_pipe_of_small_ring)
{
	struct channel_pair small;
	char url[64];
	pthread_t thread;
	void *rc;

	snprintf(url, sizeof(url), "shm://check-ctl-small-%d", (int)getpid());
	channel_pair_open(&small, url, 64, NULL);
	rdmad_channel_close(pair.server);
	rdmad_channel_close(pair.client);
	pair.client = small.client;
	pthread_create(&thread, NULL, run_pipe, NULL);
	ck_assert_int_eq(write(in, bytes, 10), 10);
	while (rdmad_channel_available(small.server) < 10)
		usleep(1000);
	ck_assert_int_eq(write(in, bytes + 10, 64), 64);
	for (int i = 0; i < 64; i += 32)
		WORKS(rdmad_channel_get(small.server, got + i, 32, SECONDS(60)));
	ck_assert_mem_eq(bytes, got, 64);
	WORKS(rdmad_channel_close(small.server));
	pthread_join(thread, &rc);
	ck_assert_int_eq((int)(intptr_t)rc, -EPIPE);
	rdmad_channel_listener_close(small.listener);
}
END_TEST

/* While nobody reads what came, the channel is looked at: here what was put goes on its way. */
START_TEST(test_pop_shows_signs_of_life)
{
	pthread_t thread;
	char byte;

	WORKS(rdmad_channel_put(pair.server, bytes, MANY, SECONDS(60)));
	WORKS(rdmad_channel_flush(pair.server, SECONDS(60)));
	while (rdmad_channel_available(pair.client) < MANY)
		usleep(1000);
	WORKS(rdmad_channel_put(pair.client, "x", 1, 0));
	pthread_create(&thread, NULL, run_pop, NULL);
	WORKS(rdmad_channel_get(pair.server, &byte, 1, SECONDS(60)));
	WORKS(rdmad_channel_close(pair.server));
	assert_output(thread);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl_channel");
	TCase *tcase = suite_case(suite, "pipes", set_up, tear_down);

	tcase_add_test(tcase, test_pipe_end_with_input);
	tcase_add_test(tcase, test_pipe_goes_both_ways);
	tcase_add_test(tcase, test_pipe_of_small_ring);
	tcase_add_test(tcase, test_pop_shows_signs_of_life);
	return suite_run(suite);
}
