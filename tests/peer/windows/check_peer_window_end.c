/* check_peer_window_end.c: windows of peers whose connection breaks, which die, do nothing, or break the rules. */
#include <signal.h>
#include <sys/wait.h>

#include "tests/peer/windows/peer_sides.h"

/*
 * Broken connections
 */
/* Again and again, at either end: all is there in the end, each notice once and in order, after its bytes. */
START_TEST(made_anew)
{
	enum { MANY = 60, SIZE = 300000 };
	static rdma_request *requests[MANY];
	uint8_t *data = malloc(MANY * SIZE), *back = calloc(MANY, SIZE), *memory;
	uint64_t notify;

	begin_with(2, 30000);
	window_begin(NULL, MANY * SIZE, ALL);
	memory = rdma_window_addr(window);
	fill(data, MANY * SIZE, 1);
	for (size_t i = 0; i < MANY; i++)
		requests[i] = of(1, rdma_iwrite(remote, i * SIZE, data + i * SIZE, SIZE - i * 1000, i));
	for (uint64_t i = 0; i < MANY; i++) {
		if (i % 12 == 3)
			break_connection(i % 24 == 3);
		expect_ok(of(0, rdma_notice(window, &notify, NULL, 600000)));
		ck_assert_uint_eq(notify, i);
		ck_assert(memcmp(memory + i * SIZE, data + i * SIZE, SIZE - i * 1000) == 0);
	}
	expect_ok(of(1, rdma_wait_all(requests, MANY, 600000, NULL)));
	for (size_t i = 0; i < MANY; i++)
		requests[i] = of(1, rdma_iread(remote, i * SIZE, back + i * SIZE, SIZE - i * 1000));
	break_connection(_i);
	expect_ok(of(1, rdma_wait_all(requests, MANY, 600000, NULL)));
	for (size_t i = 0; i < MANY; i++)
		ck_assert(memcmp(back + i * SIZE, data + i * SIZE, SIZE - i * 1000) == 0);
	window_end();
	free(data);
	free(back);
	end();
}
END_TEST

/* By the owner: each once, across connections. By a device: operations that failed may have been done, all others were,
 * once. */
START_TEST(atomics_made_anew)
{
	uint64_t before, doubtful = 0, *memory;

	begin_with(2, 30000);
	window_begin(NULL, 8, ALL);
	memory = rdma_window_addr(window);
	for (unsigned i = 0; i < 200; i++) {
		if (i % 20 == 7)
			break_connection(i % 40 == 7);
		if (of(1, rdma_fetch_add(remote, 0, 1, &before)) == 0)
			continue;
		ck_assert_msg(rdma_get_errno() == ECONNABORTED, "%s", rdma_get_error());
		ck_assert_ptr_nonnull(strstr(rdma_get_error(), "not known"));
		ck_assert_str_eq(rdma_remote_atomics(remote), "device");
		doubtful++;
	}
	ck_assert_uint_ge(memory[0], 200 - doubtful);
	ck_assert_uint_le(memory[0], 200);
	window_end();
	end();
}
END_TEST

/* Its peer has gone: what is under way fails with its name, and later calls, too. */
START_TEST(lost)
{
	static char data[8000000];
	rdma_request *requests[3];
	uint64_t notify;

	begin(2);
	window_begin(NULL, sizeof(data), ALL);
	for (unsigned i = 0; i < 3; i++)
		requests[i] = of(1, rdma_iwrite(remote, 0, data, sizeof(data), 1));
	break_connection(_i);
	for (unsigned i = 0; i < 3; i++)
		expect_error(of(1, rdma_wait(requests[i], 600000, NULL)), ECONNRESET, "Peer not connected");
	expect_error(of(1, rdma_read(remote, 0, data, 1)), ECONNRESET, "Peer not connected");
	expect_error(of(1, rdma_fetch_add(remote, 0, 1, NULL)), ECONNRESET, "Peer not connected");
	while (of(0, rdma_notice(window, &notify, NULL, 600000)) == 0)
		;
	ck_assert_int_eq(rdma_get_errno(), EPIPE);
	ck_assert_ptr_null(of(1, rdma_window_open(sides[1].ctx, sides[1].owner, 10)));
	window_end();
	end();
}
END_TEST

/* An owner that does nothing: the call ends in time, and its memory is the caller's again. */
START_TEST(timed_out)
{
	static char data[4000000];
	const size_t length[] = {8, 4096, sizeof(data), sizeof(data), 0};
	struct rdma_context *ctx;
	int rc;

	if (strcmp(scheme, "rdma") == 0) /* a device does it without him */
		return;
	begin(2);
	window_begin(NULL, sizeof(data), ALL);
	expect_ok(of(1, rdma_write(remote, 0, data, 1, 5))); /* the key is here */
	halt();
	ctx = sides[1].ctx;
	ctx->options.timeout_ms = 100;
	if (_i == 4)
		rc = rdma_fetch_add(remote, 0, 1, NULL);
	else if (_i == 3)
		rc = rdma_read(remote, 0, data, length[_i]);
	else
		rc = rdma_write(remote, 0, data, length[_i], 5);
	expect_error(rc, ETIMEDOUT, "Timed out: ");
	ctx->options.timeout_ms = 600000;
	if (_i == 2 || _i == 3)
		expect_error(rdma_write(remote, 0, data, 1, 5), ECONNRESET, "memory is still in use");
	go_on();
	if (_i < 2 || _i == 4)
		expect_ok(of(1, rdma_write(remote, 0, data, 1, 5)));
	window_end();
	end();
}
END_TEST

/* A peer without the device's operations comes among others that have them: all go on at the owner, and no count is
 * lost. */
START_TEST(from_the_device_to_the_owner)
{
	struct adder adders[2];
	pthread_t threads[2];
	uint64_t *memory;

	if (strcmp(scheme, "rdma") != 0)
		return;
	begin(2);
	window_begin(NULL, 24, ALL);
	memory = rdma_window_addr(window);
	ck_assert_str_eq(rdma_remote_atomics(remote), "device");
	adders[0] = (struct adder){.side = 1, .remote = remote};
	ck_assert_int_eq(pthread_create(&threads[0], NULL, adder_run, &adders[0]), 0);
	side_add(2, "tcp");
	adders[1] = (struct adder){.side = 2, .remote = share_with(2, window)};
	ck_assert_str_eq(rdma_remote_atomics(adders[1].remote), "peer");
	ck_assert_int_eq(pthread_create(&threads[1], NULL, adder_run, &adders[1]), 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	ck_assert_uint_eq(memory[1], 2 * ADDS);
	ck_assert_uint_eq(memory[2], 2 * ADDS);
	ck_assert_str_eq(rdma_remote_atomics(remote), "peer");
	window_end();
	end();
}
END_TEST

/*
 * Other processes, which are killed
 */
static int pipe_fd[2];

static void wait_for_death(pid_t child)
{
	int status;

	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
}

/* A user that writes without end. */
static void child_user(int port)
{
	rdma_context *ctx = rdma_init(NULL, 0, 0, false);
	static char data[500000];
	rdma_remote *r;
	char url[128];
	int owner;

	snprintf(url, sizeof(url), "%s://%s", scheme, host);
	owner = rdma_connect_peer(ctx, url, port);
	r = rdma_window_open(ctx, owner, 600000);
	for (uint64_t i = 0;; i++)
		if (!r || rdma_write(r, i % 1000, data, sizeof(data), i) != 0 || rdma_fetch_add(r, 0, 1, NULL) != 0)
			_exit(1);
}

START_TEST(user_killed)
{
	rdma_context *ctx = NULL;
	uint64_t notify;
	pid_t child;
	int port, peer;

	ck_assert_int_eq(pipe(pipe_fd), 0);
	child = fork();
	if (child == 0) {
		ck_assert_int_eq(read(pipe_fd[0], &port, sizeof(port)), sizeof(port));
		child_user(port);
	}
	ctx = rdma_init(host, 0, 0, true);
	ck_assert_msg(ctx, "%s", rdma_get_error());
	port = rdma_port(ctx);
	ck_assert_int_eq(write(pipe_fd[1], &port, sizeof(port)), sizeof(port));
	peer = rdma_accept_peer(ctx);
	window = rdma_window_create(ctx, NULL, 600000, ALL);
	expect_ok(rdma_window_share(window, peer));
	for (unsigned i = 0; i < 5; i++)
		expect_ok(rdma_notice(window, &notify, NULL, 600000));
	wait_for_death(child);
	while (rdma_notice(window, &notify, NULL, 600000) == 0)
		;
	ck_assert_msg(rdma_get_errno() == EPIPE, "%s", rdma_get_error());
	ck_assert(list_empty(&window->shares));
	rdma_window_close(window);
	rdma_cleanup(ctx);
}
END_TEST

static void child_owner(void)
{
	rdma_context *ctx = rdma_init(host, 0, 0, true);
	rdma_window *w = ctx ? rdma_window_create(ctx, NULL, 600000, ALL) : NULL;
	int port = ctx ? rdma_port(ctx) : 0;

	if (!w || write(pipe_fd[1], &port, sizeof(port)) != sizeof(port))
		_exit(1);
	if (rdma_window_share(w, rdma_accept_peer(ctx)) != 0)
		_exit(1);
	for (;;)
		rdma_notice(w, NULL, NULL, 1000);
}

START_TEST(owner_killed)
{
	static char data[500000];
	rdma_context *ctx;
	rdma_request *requests[10] = {NULL};
	char url[128];
	pid_t child;
	int port, owner, rc;

	ck_assert_int_eq(pipe(pipe_fd), 0);
	child = fork();
	if (child == 0)
		child_owner();
	ck_assert_int_eq(read(pipe_fd[0], &port, sizeof(port)), sizeof(port));
	ctx = rdma_init(NULL, 0, 0, false);
	snprintf(url, sizeof(url), "%s://%s", scheme, host);
	owner = rdma_connect_peer(ctx, url, port);
	ck_assert_msg(owner >= 0, "%s", rdma_get_error());
	remote = rdma_window_open(ctx, owner, 600000);
	ck_assert_msg(remote, "%s", rdma_get_error());
	expect_ok(rdma_write(remote, 0, data, sizeof(data), RDMA_NO_NOTICE));
	for (unsigned i = 0; i < 10; i++)
		requests[i] = rdma_iread(remote, 0, data, sizeof(data));
	wait_for_death(child);
	rc = rdma_wait_all(requests, 10, 120000, NULL);
	ck_assert(rc == 0 || rdma_get_errno() == ECONNRESET);
	while (rdma_write(remote, 0, data, sizeof(data), 1) == 0)
		;
	ck_assert_msg(strstr(rdma_get_error(), "Peer not connected: "), "%s", rdma_get_error());
	rdma_remote_close(remote);
	rdma_cleanup(ctx);
}
END_TEST

/*
 * Peers that break the rules
 */
static void hostile(unsigned side, enum wire_control_kind kind, const void *body, size_t length)
{
	rdma_context *ctx = sides[side].ctx;

	pthread_mutex_lock(&sides[side].lock);
	rdma_enter(ctx);
	ck_assert_int_eq(control_send(ctx->peer[0], kind, body, length), 0);
	message_flush(ctx->peer[0]);
	rdma_leave(ctx);
	pthread_mutex_unlock(&sides[side].lock);
}

static bool connected(unsigned side)
{
	return of(side, rdma_peers(sides[side].ctx)) > 0;
}

static const struct wire_window_share bad_shares[] = {
	{.id = 1000, .addr = UINT64_MAX - 5, .size = 100, .rights = 1},
	{.id = 1000, .addr = 4096, .size = UINT64_MAX, .rights = 1},
	{.id = 1000, .addr = 4096, .size = 1, .rights = 0},
	{.id = 1000, .addr = 4096, .size = 1, .rights = 8},
	{.id = 1000, .addr = 4097, .size = 8, .rights = 4},
};

START_TEST(bad_share)
{
	begin(2);
	hostile(0, WIRE_CONTROL_WINDOW_SHARE, &bad_shares[_i], sizeof(bad_shares[_i]));
	while (connected(1))
		;
	ck_assert_ptr_null(of(1, rdma_window_open(sides[1].ctx, sides[1].owner, 10)));
	end();
}
END_TEST

/* Of lengths and of things that there are not. */
static const struct {
	enum wire_control_kind kind;
	size_t length;
} bad_messages[] = {
	{WIRE_CONTROL_WINDOW_SHARE, 31},  {WIRE_CONTROL_WINDOW_ASK, 0},       {WIRE_CONTROL_WINDOW_KEY, 25},
	{WIRE_CONTROL_WINDOW_CLOSE, 9},   {WIRE_CONTROL_WINDOW_CLOSED, 7},    {WIRE_CONTROL_WINDOW_ATOMIC, 40},
	{WIRE_CONTROL_WINDOW_ANSWER, 24}, {WIRE_CONTROL_WINDOW_NOTICE, 8},    {WIRE_CONTROL_WINDOW_NOTICED, 17},
	{WIRE_CONTROL_WINDOW_SWITCH, 0},  {WIRE_CONTROL_WINDOW_SWITCHED, 16}, {WIRE_CONTROL_WINDOW_ATOMIC, 48},
};

START_TEST(bad_message)
{
	static const char zeros[64];

	begin(2);
	hostile(_i % 2, bad_messages[_i / 2].kind, zeros, bad_messages[_i / 2].length);
	while (connected(!(_i % 2)))
		;
	end();
}
END_TEST

/* Of shares that are no more: they may have been said before their end was heard. */
START_TEST(late_messages)
{
	const struct wire_window_id which = {.id = 12345};
	const struct wire_window_notice notice = {.id = 12345, .value = 1};
	const struct wire_window_atomic atomic = {.id = 12345, .operation = WIRE_WINDOW_FETCH_ADD, .number = 7};
	char data[8] = "";

	begin(2);
	window_begin(NULL, 100, ALL);
	hostile(1, WIRE_CONTROL_WINDOW_CLOSED, &which, sizeof(which));
	hostile(1, WIRE_CONTROL_WINDOW_SWITCHED, &which, sizeof(which));
	hostile(0, WIRE_CONTROL_WINDOW_CLOSE, &which, sizeof(which));
	hostile(0, WIRE_CONTROL_WINDOW_SWITCH, &which, sizeof(which));
	hostile(1, WIRE_CONTROL_WINDOW_NOTICE, &notice, sizeof(notice));
	hostile(0, WIRE_CONTROL_WINDOW_NOTICED, &notice, sizeof(notice));
	expect_ok(of(1, rdma_write(remote, 0, data, 8, RDMA_NO_NOTICE)));
	hostile(1, WIRE_CONTROL_WINDOW_ATOMIC, &atomic,
		sizeof(atomic)); /* its answer is one to nothing that was asked */
	while (connected(1))
		;
	window_end();
	end();
}
END_TEST

/* Keys of nothing: the owner's fabric refuses, this operation fails, and so does the connection. */
START_TEST(bad_key)
{
	const struct wire_window_share share = {
		.id = 777, .addr = 1 << 20, .size = 1 << 20, .rights = WIRE_WINDOW_READ | WIRE_WINDOW_WRITE};
	const struct wire_window_key key = {.id = 777, .rkey = 0x12345678};
	static char data[100000];

	begin(2);
	hostile(0, WIRE_CONTROL_WINDOW_SHARE, &share, sizeof(share));
	remote = open_by(1);
	hostile(0, WIRE_CONTROL_WINDOW_KEY, &key, sizeof(key));
	if (_i)
		expect_error(of(1, rdma_read(remote, 0, data, sizeof(data))), rdma_get_errno(), "");
	else
		expect_error(of(1, rdma_write(remote, 0, data, sizeof(data), 1)), rdma_get_errno(), "");
	ck_assert_msg(rdma_get_errno() == EACCES || rdma_get_errno() == EPIPE, "%s", rdma_get_error());
	pthread_mutex_lock(&sides[1].lock);
	rdma_remote_close(remote);
	pthread_mutex_unlock(&sides[1].lock);
	end();
}
END_TEST

/* More notices than are kept, more shares than may be. */
START_TEST(too_many)
{
	struct wire_window_share share = {.id = 100000, .addr = 4096, .size = 8, .rights = WIRE_WINDOW_READ};
	struct wire_window_notice notice = {.value = 1};

	begin(2);
	window_begin(NULL, 100, ALL);
	notice.id = remote->id;
	for (unsigned i = 0; i <= (_i ? WIRE_WINDOW_SHARES : WIRE_WINDOW_NOTICES) && connected(0); i++, share.id++)
		if (_i)
			hostile(0, WIRE_CONTROL_WINDOW_SHARE, &share, sizeof(share));
		else
			hostile(1, WIRE_CONTROL_WINDOW_NOTICE, &notice, sizeof(notice));
	while (connected(!!_i))
		;
	window_end();
	end();
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, int times)
{
	tcase_add_loop_test(suite_case(suite, name, NULL, NULL), test, 0, times);
}

static Suite *suite_of_ends(void)
{
	Suite *suite = suite_create("peer_window_end");

	add(suite, "anew", made_anew, 2);
	add(suite, "atomics anew", atomics_made_anew, 1);
	add(suite, "lost", lost, 2);
	add(suite, "timed out", timed_out, 5);
	add(suite, "switch", from_the_device_to_the_owner, 1);
	add(suite, "user killed", user_killed, 1);
	add(suite, "owner killed", owner_killed, 1);
	add(suite, "share", bad_share, ARRAY_SIZE(bad_shares));
	add(suite, "message", bad_message, 2 * ARRAY_SIZE(bad_messages));
	add(suite, "late", late_messages, 1);
	add(suite, "key", bad_key, 2);
	add(suite, "too many", too_many, 2);
	return suite;
}

int main(int argc, char **argv)
{
	sides_arguments(argc, argv);
	return suite_run(suite_of_ends());
}
