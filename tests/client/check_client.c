/*
 * check_client.c: librdmad against a server in the same process. The server has a thread of its own, or,
 * while that is stopped, is turned by the test: then nothing happens that the test did not ask for.
 */
#include <check.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdmad/ping.h>

#include "base/base.h"
#include "tests/client/caller.h"
#include "tests/suite.h"

/*
 * Calls that are counted, of the rooms and of this file; libraries' own are not.
 */
static _Atomic unsigned allocations, sends, receives, empty, waits;
static _Atomic size_t takes; /* bytes of the next send(), as of a socket that has room for no more; 0: all */

static size_t taken(size_t n)
{
	size_t most = atomic_exchange(&takes, 0);

	return most ? MIN(n, most) : n;
}

#define WRAP(type, name, args, pass, count)                                                                            \
	type __real_##name args;                                                                                       \
	type __wrap_##name args;                                                                                       \
	type __wrap_##name args                                                                                        \
	{                                                                                                              \
		type result_ = __real_##name pass;                                                                     \
		count;                                                                                                 \
		return result_;                                                                                        \
	}

#define RECEIVED (*(result_ > 0 ? &receives : &empty))++

WRAP(void *, malloc, (size_t n), (n), allocations++)
WRAP(void *, calloc, (size_t n, size_t m), (n, m), allocations++)
WRAP(void *, realloc, (void *p, size_t n), (p, n), allocations++)
WRAP(ssize_t, send, (int fd, const void *p, size_t n, int f), (fd, p, taken(n), f), sends++)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f), sends++)
WRAP(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), sends++)
WRAP(ssize_t, recv, (int fd, void *p, size_t n, int f), (fd, p, n, f), RECEIVED)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f), RECEIVED)
WRAP(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n), RECEIVED)
WRAP(int, epoll_wait, (int fd, struct epoll_event *e, int n, int t), (fd, e, n, t), waits++)

/* A resolver of the test's own: nobody is at the first address of "twofold". */
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
	int rc;

	if (strcmp(host, "twofold") != 0)
		return __real_getaddrinfo(host, port, hints, out);
	rc = __real_getaddrinfo("::1", port, hints, out);
	return rc ? rc : __real_getaddrinfo("127.0.0.1", port, hints, &(*out)->ai_next);
}

static void set_up(void)
{
	server_start(&(struct server_options){.no_large = true});
}

/*
 * The five calls
 */
START_TEST(test_five_calls)
{
	static const char *const by[] = {"tcp", "unix", "shm"};
	char *value = NULL;
	void *kv = NULL, *bytes;
	uint64_t version;
	size_t len;

	server_stop();
	server_start(&(struct server_options){.transport = by[_i], .no_large = true});
	ck_assert_int_eq(kv_open(server.address, &kv), 0);
	ck_assert_str_eq(kv_transport(kv), _i ? "shm" : "tcp");
	ck_assert_int_eq(kv_get(kv, "missing", &value), 0);
	ck_assert_str_eq(value, "");
	kv_release(value);
	ck_assert_int_eq(kv_set(kv, "key", "value"), 0);
	ck_assert_int_eq(kv_get(kv, "key", &value), 0);
	ck_assert_str_eq(value, "value");
	kv_release(value);
	ck_assert_int_eq(kv_set(kv, "key", ""), 0);
	ck_assert_int_eq(kv_get(kv, "key", &value), 0);
	ck_assert_str_eq(value, "");
	kv_release(value);
	value = (char *)kv; /* what is there before does not stay there */
	ck_assert_int_lt(kv_get(kv, "", &value), 0);
	ck_assert_ptr_null(value);
	bytes = kv;
	ck_assert_int_eq(kv_get_bytes(kv, "missing", 7, &bytes, &len), -ENOENT);
	ck_assert_ptr_null(bytes);
	bytes = kv;
	ck_assert_int_eq(kv_get_version(kv, "missing", 7, &bytes, &len, &version), -ENOENT);
	ck_assert_ptr_null(bytes);
	kv_release(NULL);
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_int_eq(kv_close(NULL), 0);
}
END_TEST

START_TEST(test_bytes)
{
	static const char bytes[] = "a\0b\xff";
	void *kv = open_kv(NULL, NULL), *value;
	size_t len;

	ck_assert_uint_eq(kv_eager_max(kv), 4095);
	ck_assert_uint_eq(kv_value_max(kv), WIRE_EAGER_MAX);
	ck_assert_int_eq(kv_set_bytes(kv, bytes, 4, bytes, 5), 0);
	ck_assert_int_eq(kv_get_bytes(kv, bytes, 4, &value, &len), 0);
	ck_assert_uint_eq(len, 5);
	ck_assert_mem_eq(value, bytes, 5);
	ck_assert_int_eq(((char *)value)[len], 0);
	kv_release(value);
	ck_assert_int_eq(kv_get_bytes(kv, bytes, 3, &value, &len), -ENOENT);
	ck_assert_int_eq(kv_exists(kv, bytes, 4), 1);
	ck_assert_int_eq(kv_exists(kv, bytes, 1), 0);
	ck_assert_int_eq(kv_delete(kv, bytes, 4), 1);
	ck_assert_int_eq(kv_delete(kv, bytes, 4), 0);
	ck_assert_int_eq(kv_set_bytes(kv, "e", 1, NULL, 0), 0);
	ck_assert_int_eq(kv_get_bytes(kv, "e", 1, &value, &len), 0);
	ck_assert_uint_eq(len, 0);
	kv_release(value);
	kv_close(kv);
}
END_TEST

START_TEST(test_limits)
{
	static char key[5000], value[5000];
	void *kv = open_kv(NULL, NULL), *got;
	size_t len;

	memset(key, 'k', sizeof(key));
	ck_assert_int_eq(kv_set_bytes(kv, key, 4095, value, 0), 0);
	ck_assert_int_eq(kv_set_bytes(kv, key, 95, value, 4000), 0);
	ck_assert_int_eq(kv_get_bytes(kv, key, 95, &got, &len), 0);
	ck_assert_uint_eq(len, 4000);
	kv_release(got);
	/* This server has no registered arena: a value has to fit a message. */
	ASSERT_ERROR(kv_set_bytes(kv, key, 96, value, 4000), -EMSGSIZE, "registered memory");
	ASSERT_ERROR(kv_set_bytes(kv, key, 1, value, SIZE_MAX), -EMSGSIZE, "at most 4095");
	ASSERT_ERROR(kv_set_bytes(kv, key, 4096, value, 0), -ENAMETOOLONG, "4096");
	ASSERT_ERROR(kv_get_bytes(kv, key, 4096, &got, &len), -ENAMETOOLONG, "4096");
	ASSERT_ERROR(kv_delete(kv, key, SIZE_MAX), -ENAMETOOLONG, "at most 4095");
	kv_close(kv);
}
END_TEST

/* NULL pointers and empty keys are answered, never followed. */
START_TEST(test_misuse)
{
	void *kv = open_kv(NULL, NULL), *none = NULL, *value;
	char *text;
	size_t len;

	ASSERT_ERROR(kv_open(NULL, &none), -EINVAL, "server");
	ASSERT_ERROR(kv_open(server.address, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_set(NULL, "k", "v"), -EINVAL, "handle");
	ASSERT_ERROR(kv_set(kv, NULL, "v"), -EINVAL, "key");
	ASSERT_ERROR(kv_set(kv, "k", NULL), -EINVAL, "value");
	ASSERT_ERROR(kv_set(kv, "", "v"), -EINVAL, "key");
	ASSERT_ERROR(kv_get(kv, NULL, &text), -EINVAL, "key");
	ASSERT_ERROR(kv_get(kv, "k", NULL), -EINVAL, "place");
	ASSERT_ERROR(kv_get(NULL, "k", &text), -EINVAL, "handle");
	ASSERT_ERROR(kv_set_bytes(kv, "k", 1, NULL, 1), -EINVAL, "NULL");
	ASSERT_ERROR(kv_get_bytes(kv, "k", 1, NULL, &len), -EINVAL, "place");
	ASSERT_ERROR(kv_get_bytes(kv, "k", 1, &value, NULL), -EINVAL, "place");
	ASSERT_ERROR(kv_get_bytes(kv, "k", 0, &value, &len), -EINVAL, "key");
	ASSERT_ERROR(kv_delete(kv, NULL, 1), -EINVAL, "key");
	ASSERT_ERROR(kv_exists(NULL, "k", 1), -EINVAL, "handle");
	ck_assert_ptr_null(none);
	kv_close(kv);
}
END_TEST

/*
 * Connecting
 */
START_TEST(test_open_errors)
{
	static const struct {
		const char *address;
		bool require_rdma;
		int error;
		const char *says;
	} cases[] = {
		{"tcp://", false, -EINVAL, ""},
		{"http://somewhere", false, -EINVAL, "rdma://host[:port], tcp://host[:port] or unix:///path"},
		{"tcp://127.0.0.1:99999", false, -EINVAL, ""},
		{"tcp://127.0.0.1:7471", true, -EINVAL, "not RDMA, which is required"},
		{"unix:///nowhere/at/all", false, -ENOENT, "No such file or directory; nothing listens there"},
		{"tcp://127.0.0.1:1", false, -ECONNREFUSED, "nothing listens there"},
	};
	struct rdmad_options options = {.require_rdma = cases[_i].require_rdma};
	void *kv = NULL;

	ASSERT_ERROR(kv_open_options(cases[_i].address, &options, NULL, &kv), cases[_i].error, cases[_i].says);
	ck_assert_ptr_null(kv);
	ck_assert_str_ne(rdmad_error(), "");
}
END_TEST

START_TEST(test_open_refused)
{
	void *kv = NULL;

	server_pause();
	services_enable_kv(&server.services, false);
	server_resume();
	ASSERT_ERROR(kv_open(server.address, &kv), -EOPNOTSUPP, "kv is not enabled on the server");
}
END_TEST

/* What it has not read is why the peer's kernel is told that the connection was reset. */
static void *hang_up(void *listener)
{
	int fd = accept(*(int *)listener, NULL, NULL);
	char one;

	if (fd < 0 || recv(fd, &one, 1, 0) != 1)
		abort();
	close(fd);
	return NULL;
}

static void *answer_otherwise(void *listener)
{
	static const char words[] = "HTTP/1.1 400 Bad Request\r\nServer: another\r\nConnection: close\r\n\r\n";
	int fd = accept(*(int *)listener, NULL, NULL);
	char waste[256];

	if (fd < 0 || send(fd, words, sizeof(words) - 1, MSG_NOSIGNAL) < 0)
		abort();
	while (recv(fd, waste, sizeof(waste), 0) > 0)
		;
	close(fd);
	return NULL;
}

START_TEST(test_open_another_program)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	char address[64];
	pthread_t thread;
	void *kv = NULL;

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&in, sizeof(in)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&in, &(socklen_t){sizeof(in)}), 0);
	snprintf(address, sizeof(address), "tcp://127.0.0.1:%u", ntohs(in.sin_port));
	ck_assert_int_eq(pthread_create(&thread, NULL, answer_otherwise, &listener), 0);
	ASSERT_ERROR(kv_open(address, &kv), -EPROTO, "does not answer like rdmad");
	pthread_join(thread, NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, hang_up, &listener), 0);
	ASSERT_ERROR(kv_open(address, &kv), -ECONNRESET, "does not answer like rdmad");
	pthread_join(thread, NULL);
	close(listener);
}
END_TEST

/* By a name, of which the first address is not the server's. */
START_TEST(test_open_by_name)
{
	const char *port = strrchr(server.address, ':');
	char address[64];
	void *kv = NULL;

	ck_assert_ptr_nonnull(port);
	snprintf(address, sizeof(address), "tcp://twofold%s", port);
	ck_assert_int_eq(kv_open(address, &kv), 0);
	ck_assert_str_eq(rdmad_error(), "");
	kv_close(kv);
	ASSERT_ERROR(kv_open("tcp://twofold:1", &kv), -ECONNREFUSED, "(127.0.0.1:1)");
}
END_TEST

START_TEST(test_open_timeout)
{
	struct rdmad_options options = {.connect_timeout_us = 50000};
	void *kv = NULL;

	server_pause();
	ASSERT_ERROR(kv_open_options(server.address, &options, NULL, &kv), -ETIMEDOUT, "cannot connect");
	ck_assert_ptr_null(kv);
}
END_TEST

/*
 * Asynchronous
 */
struct call {
	unsigned called;
	int status;
	size_t len;
	char value[16];
};

static unsigned total;

static void done(void *arg, int status, const void *value, size_t len)
{
	struct call *call = arg;

	call->called++;
	call->status = status;
	call->len = len;
	if (value)
		memcpy(call->value, value, MIN(len, sizeof(call->value)));
	total++;
}

/* Submit gets until the handle takes no more. How many it took. */
static unsigned fill(void *kv, struct call *calls, unsigned most)
{
	unsigned n = 0;

	while (n < most) {
		int rc = kv_submit_get(kv, "key", 3, done, &calls[n]);

		if (rc == -EAGAIN)
			break;
		ck_assert_int_eq(rc, 0);
		n++;
	}
	return n;
}

static void assert_called_once(const struct call *calls, unsigned n, int status)
{
	for (unsigned i = 0; i < n; i++) {
		ck_assert_msg(calls[i].called == 1, "request %u called back %u times", i, calls[i].called);
		ck_assert_int_eq(calls[i].status, status);
	}
}

START_TEST(test_submit_until_full)
{
	static struct call calls[8192];
	void *kv = open_kv(NULL, NULL);
	unsigned n;

	ck_assert_int_eq(kv_set(kv, "key", "value"), 0);
	for (unsigned round = 0; round < 5; round++) {
		memset(calls, 0, sizeof(calls));
		n = fill(kv, calls, ARRAY_SIZE(calls));
		ck_assert_uint_gt(n, 100);
		ck_assert_uint_lt(n, ARRAY_SIZE(calls));
		ck_assert_uint_eq(kv_outstanding(kv), n);
		ck_assert_int_eq(kv_wait(kv), 0);
		ck_assert_uint_eq(kv_outstanding(kv), 0);
		assert_called_once(calls, n, 0);
		ck_assert_uint_eq(calls[n - 1].len, 5);
		ck_assert_mem_eq(calls[n - 1].value, "value", 5);
	}
	kv_close(kv);
}
END_TEST

/* Answers come in the order of the requests. */
static unsigned order;

static void in_order(void *arg, int status, const void *value, size_t len)
{
	ck_assert_uint_eq((uintptr_t)arg, order++);
	ck_assert(status == 0 || status == -ENOENT);
}

START_TEST(test_order)
{
	void *kv = open_kv(NULL, NULL);

	for (uintptr_t i = 0; i < 5000; i++) {
		int rc;

		do {
			rc = i % 4 == 0   ? kv_submit_set(kv, "k", 1, &i, 4, in_order, (void *)i)
			     : i % 4 == 1 ? kv_submit_get(kv, "k", 1, in_order, (void *)i)
			     : i % 4 == 2 ? kv_submit_exists(kv, "k", 1, in_order, (void *)i)
					  : kv_submit_delete(kv, "k", 1, in_order, (void *)i);
		} while (rc == -EAGAIN && kv_progress(kv, UINT64_MAX) > 0);
		ck_assert_int_eq(rc, 0);
	}
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_eq(order, 5000);
	kv_close(kv);
}
END_TEST

START_TEST(test_close_with_outstanding)
{
	static struct call calls[64];
	void *kv = open_kv(NULL, NULL);

	server_pause();
	ck_assert_uint_eq(fill(kv, calls, 32), 32);
	ck_assert_int_eq(kv_flush(kv), 0);
	ck_assert_uint_eq(fill(kv, calls + 32, 32), 32); /* not even sent */
	server_resume();
	server_pause();
	kv_close(kv);
	/* Requests that were sent may have been answered before. */
	for (unsigned i = 0; i < 64; i++) {
		ck_assert_uint_eq(calls[i].called, 1);
		ck_assert(calls[i].status == -ECONNABORTED || (i < 32 && calls[i].status == -ENOENT));
	}
	ck_assert_int_eq(calls[63].status, -ECONNABORTED);
}
END_TEST

START_TEST(test_server_dies)
{
	static struct call calls[64];
	void *kv = open_kv(NULL, NULL);
	char *value;

	server_pause();
	ck_assert_uint_eq(fill(kv, calls, 64), 64);
	ck_assert_int_eq(kv_flush(kv), 0);
	server_die();
	ASSERT_ERROR(kv_wait(kv), -ENOTCONN, "has ended (disconnected by the peer)");
	assert_called_once(calls, 64, -ECONNABORTED);
	ck_assert_uint_eq(kv_outstanding(kv), 0);
	ASSERT_ERROR(kv_set(kv, "k", "v"), -ENOTCONN, "has ended");
	ASSERT_ERROR(kv_get(kv, "k", &value), -ENOTCONN, "kv_reopen");
	ASSERT_ERROR(kv_submit_get(kv, "k", 1, done, &calls[0]), -ENOTCONN, "has ended");
	ASSERT_ERROR(kv_flush(kv), -ENOTCONN, "kv_flush");
	ASSERT_ERROR(kv_progress(kv, UINT64_MAX), -ENOTCONN, "kv_progress");
	ASSERT_ERROR(kv_arm(kv), -ENOTCONN, "kv_arm");
	ck_assert_uint_eq(calls[0].called, 1);
	kv_close(kv);
}
END_TEST

/* A blocking call that waits when the server dies ends with it. */
static void *die_soon(void *arg)
{
	while (services_count(&server.services, "kv_gets") == 0)
		server_turn();
	server_die();
	return arg;
}

START_TEST(test_server_dies_while_waiting)
{
	static struct call first;
	void *kv = open_kv(NULL, NULL);
	pthread_t thread;
	int rc = 0;

	server_pause();
	ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &first), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, die_soon, NULL), 0);
	while (rc == 0)
		rc = kv_set(kv, "k", "v");
	ck_assert(rc == -ENOTCONN || rc == -ECONNABORTED);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(first.called, 1);
	kv_close(kv);
}
END_TEST

START_TEST(test_timeout)
{
	struct rdmad_options options = {.timeout_us = 1000000}; /* the first set is answered in it, on any machine */
	void *kv = open_kv(&options, NULL);
	char *value;

	ck_assert_int_eq(kv_set(kv, "key", "old"), 0);
	server_pause();
	ASSERT_ERROR(kv_get(kv, "key", &value), -ETIMEDOUT, "no answer to get of \"key\" after 1000 ms");
	ASSERT_ERROR(kv_set(kv, "key", "new"), -ETIMEDOUT, "no answer to set");
	ck_assert_int_eq(kv_wait(kv), 0); /* nobody waits for them any more */
	ck_assert_uint_eq(kv_outstanding(kv), 0);
	server_resume(); /* the late answers belong to nobody and disturb nobody */
	ck_assert_int_eq(kv_get(kv, "key", &value), 0);
	ck_assert_str_eq(value, "new");
	kv_release(value);
	kv_close(kv);
}
END_TEST

START_TEST(test_progress_timeout)
{
	void *kv = open_kv(NULL, NULL);
	struct call call = {0};

	server_pause();
	ck_assert_int_eq(kv_progress(kv, 0), 0);
	ck_assert_int_eq(kv_progress(kv, 1000), 0);
	ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &call), 0);
	ck_assert_int_eq(kv_progress(kv, 1000), 0);
	ck_assert_uint_eq(call.called, 0);
	server_resume();
	ck_assert_int_eq(kv_progress(kv, UINT64_MAX), 1);
	ck_assert_uint_eq(call.called, 1);
	kv_close(kv);
}
END_TEST

/*
 * Inside of a callback
 */
struct inside {
	void *kv;
	int set, get, wait, progress, open, close, submit;
	unsigned called;
	struct call later;
};

static void call_from_inside(void *arg, int status, const void *value, size_t len)
{
	struct inside *in = arg;
	void *other = NULL;
	char *text;

	in->called++;
	in->set = kv_set(in->kv, "inside", "v");
	in->get = kv_get(in->kv, "inside", &text);
	in->progress = kv_progress(in->kv, 0);
	in->open = kv_open_options(server.address, NULL, in->kv, &other);
	in->close = kv_close(in->kv);
	in->submit = kv_submit_get(in->kv, "inside", 6, done, &in->later);
	in->wait = kv_wait(in->kv);
}

START_TEST(test_blocking_call_in_callback)
{
	struct inside in = {.kv = open_kv(NULL, NULL)};

	ck_assert_int_eq(kv_submit_get(in.kv, "k", 1, call_from_inside, &in), 0);
	ck_assert_int_eq(kv_wait(in.kv), 0);
	ck_assert_uint_eq(in.called, 1);
	ck_assert_int_eq(in.set, -EDEADLK);
	ck_assert_int_eq(in.get, -EDEADLK);
	ck_assert_int_eq(in.wait, -EDEADLK);
	ck_assert_int_eq(in.progress, -EDEADLK);
	ck_assert_int_eq(in.open, -EDEADLK);
	ck_assert_int_eq(in.close, -EDEADLK);
	ck_assert_int_eq(in.submit, 0);
	ck_assert_uint_eq(in.later.called, 1);
	ck_assert_int_eq(in.later.status, -ENOENT); /* what was refused was not done */
	kv_close(in.kv);
}
END_TEST

/*
 * Shared handles
 */
START_TEST(test_share)
{
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, a), *c = open_kv(NULL, b);
	static struct call calls[3];

	ck_assert_int_eq(kv_fd(a), kv_fd(b));
	ck_assert_int_eq(kv_submit_set(a, "k", 1, "v", 1, done, &calls[0]), 0);
	ck_assert_int_eq(kv_submit_get(b, "none", 4, done, &calls[1]), 0);
	ck_assert_int_eq(kv_submit_exists(c, "none", 4, done, &calls[2]), 0);
	while (total < 3) /* the progress of one is that of all */
		ck_assert_int_ge(kv_progress(a, UINT64_MAX), 1);
	assert_called_once(calls, 1, 0);
	assert_called_once(calls + 1, 2, -ENOENT);
	kv_close(_i == 0 ? a : _i == 1 ? b : c);
	if (_i != 0)
		ck_assert_int_eq(kv_set(a, "k", "a"), 0);
	if (_i != 1)
		ck_assert_int_eq(kv_set(b, "k", "b"), 0);
	if (_i != 2)
		ck_assert_int_eq(kv_set(c, "k", "c"), 0);
	if (_i != 0)
		kv_close(a);
	if (_i != 1)
		kv_close(b);
	if (_i != 2)
		kv_close(c);
}
END_TEST

/* A refused open leaves the handle that it would have shared as it was. */
START_TEST(test_share_failure)
{
	const struct rdmad_options encrypted = {.require_encryption = true};
	void *a = open_kv(NULL, NULL), *b = NULL;

	ASSERT_ERROR(kv_open_options("tcp://127.0.0.1:1", NULL, a, &b), -ECONNREFUSED, "listens");
	ASSERT_ERROR(kv_open_options("tcp://127.0.0.1:1", &encrypted, a, &b), -EPROTOTYPE, "does not require it");
	ck_assert_int_eq(kv_set(a, "k", "v"), 0);
	ASSERT_ERROR(kv_open_options("rdma://127.0.0.1", NULL, a, &b), -EPROTOTYPE, "share");
	ck_assert_int_eq(kv_set(a, "k", "v"), 0);
	kv_close(a);
}
END_TEST

/*
 * In another's loop
 */
START_TEST(test_own_loop)
{
	void *kv = open_kv(NULL, NULL);
	static struct call calls[1000];

	for (unsigned i = 0; i < ARRAY_SIZE(calls); i++) {
		struct pollfd pfd = {.fd = kv_fd(kv), .events = POLLIN};

		ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &calls[i]), 0);
		ck_assert_int_eq(kv_flush(kv), 0);
		while (!calls[i].called) {
			if (kv_arm(kv) == 0)
				ck_assert_int_eq(poll(&pfd, 1, 60000), 1);
			ck_assert_int_ge(kv_progress(kv, 0), 0);
		}
	}
	assert_called_once(calls, ARRAY_SIZE(calls), -ENOENT);
	kv_close(kv);
}
END_TEST

/*
 * Prices
 */
#define BATCH 64

/* A batch and its answers, with nobody else at work. No ck_assert inside: it allocates. */
static void run_batch(void *kv, struct call *calls, unsigned round)
{
	static const char value[64] = "sixty-four bytes";
	unsigned before = total;
	int rc = 0;

	for (unsigned i = 0; i < BATCH; i++) {
		char key[16] = {0};

		memcpy(key, &i, sizeof(i));
		if ((round + i) % 2)
			rc |= kv_submit_set(kv, key, 16, value, 64, done, &calls[i]);
		else
			rc |= kv_submit_get(kv, key, 16, done, &calls[i]);
	}
	rc |= kv_flush(kv);
	while (!rc && total < before + BATCH) {
		server_turn();
		kv_progress(kv, 0);
	}
	if (rc != 0)
		abort();
}

START_TEST(test_no_allocation)
{
	static struct call calls[BATCH];
	void *kv = open_kv(NULL, NULL);
	unsigned before;

	server_pause();
	for (unsigned i = 0; i < 10; i++)
		run_batch(kv, calls, i);
	before = allocations;
	for (unsigned i = 0; i < 10000 / BATCH + 1; i++)
		run_batch(kv, calls, i);
	ck_assert_uint_eq(allocations - before, 0);
	free(malloc(1));
	ck_assert_uint_eq(allocations - before, 1); /* they are counted */
	server_resume();
	kv_close(kv);
}
END_TEST

/* How much of it is in one message: 64 sets of 16 + 64 bytes are 6 KiB. */
START_TEST(test_system_calls)
{
	static struct call calls[BATCH];
	void *kv = open_kv(NULL, NULL);

	server_pause();
	for (unsigned i = 0; i < 10; i++)
		run_batch(kv, calls, i);
	for (unsigned i = 0; i < 100; i++) {
		sends = receives = 0;
		run_batch(kv, calls, i);
		/* Requests out and in, answers out and in; a return of credits now and then. */
		ck_assert_uint_le(sends, 2 + (i % 8 == 0));
		ck_assert_uint_le(receives, 4);
	}
	server_resume();
	kv_close(kv);
}
END_TEST

/* A request that a socket takes in part, cut at each byte, is followed by the rest. */
START_TEST(test_cut_requests)
{
	void *kv = open_kv(NULL, NULL), *back;
	char value[40];
	size_t len;

	for (unsigned i = 1; i < 100; i++) {
		memset(value, (int)i, sizeof(value));
		takes = i;
		ck_assert_int_eq(kv_set_bytes(kv, "k", 1, value, sizeof(value)), 0);
		ck_assert_uint_eq(takes, 0);
		ck_assert_int_eq(kv_get_bytes(kv, "k", 1, &back, &len), 0);
		ck_assert_uint_eq(len, sizeof(value));
		ck_assert_mem_eq(back, value, len);
		kv_release(back);
	}
	kv_close(kv);
}
END_TEST

/*
 * Ping
 */
START_TEST(test_ping)
{
	static const uint32_t sizes[] = {0, 1, 64, 4095, 65536, RDMAD_PING_SIZE_MAX};
	struct rdmad_ping_options options = {.size = sizes[_i], .count = 50, .depth = 4, .verify = true};
	struct rdmad_ping *ping;
	uint64_t rtt;

	ck_assert_int_eq(rdmad_ping_open(server.address, &options, &ping), 0);
	ck_assert_str_eq(rdmad_ping_transport(ping), "tcp");
	ck_assert_int_eq(rdmad_ping_receive(ping, &rtt), -EINVAL);
	for (unsigned sent = 0, got = 0; got < 50;) {
		while (sent < 50 && rdmad_ping_send(ping) == 0)
			sent++;
		ck_assert_uint_le(sent - got, 4);
		ck_assert_int_eq(rdmad_ping_receive(ping, &rtt), 0);
		ck_assert_uint_gt(rtt, 0);
		got++;
	}
	rdmad_ping_close(ping);
	rdmad_ping_close(NULL);
}
END_TEST

static struct {
	const char *text;
	size_t len;
	bool bad;
} told[] = {
	{.text = "facts 1\n"},
	{.text = "facts 1\nversion 7\nport rxe0 1 state=active mtu=1024\n"},
	{.text = "facts 2\nversion 7\n", .bad = true},
	{.text = "", .bad = true},
	{.text = "facts 1\nversion 7", .bad = true},
	{.text = "facts 1\nversion \33[2J\n", .bad = true},
	{.text = "facts 1\nversion\0007\n", .len = 18, .bad = true},
	{.text = "facts 1\n", .len = WIRE_FACTS_MAX, .bad = true}, /* zeros behind */
};
static atomic_uint telling;

static size_t tell(void *arg, char out[static WIRE_FACTS_MAX])
{
	size_t len = told[telling].len ? told[telling].len : strlen(told[telling].text);

	(void)arg;
	memset(out, 0, WIRE_FACTS_MAX);
	memcpy(out, told[telling].text, MIN(len, strlen(told[telling].text)));
	return len;
}

/* What a server tells of itself comes whole, between pings, or is no answer, and the connection ends. */
START_TEST(test_ping_facts)
{
	struct rdmad_ping_options options = {.size = 8, .depth = 2};
	char text[RDMAD_PING_FACTS_MAX + 1];
	struct rdmad_ping *ping;
	uint64_t rtt;

	server_stop();
	server_start(&(struct server_options){.no_large = true, .services.facts = tell});
	telling = (unsigned)_i;
	ck_assert_int_eq(rdmad_ping_open(server.address, &options, &ping), 0);
	ck_assert_int_eq(rdmad_ping_facts(ping, NULL, 0), -EINVAL);
	ck_assert_int_eq(rdmad_ping_send(ping), 0);
	if (told[_i].bad) {
		ck_assert_int_eq(rdmad_ping_facts(ping, text, sizeof(text)), -EPROTO);
		ck_assert_int_lt(rdmad_ping_send(ping), 0);
	} else {
		ck_assert_int_eq(rdmad_ping_facts(ping, text, strlen(told[_i].text)), -EMSGSIZE);
		ck_assert_int_eq(rdmad_ping_facts(ping, text, strlen(told[_i].text) + 1), 0);
		ck_assert_str_eq(text, told[_i].text);
		ck_assert_int_eq(rdmad_ping_receive(ping, &rtt), 0);
	}
	rdmad_ping_close(ping);
}
END_TEST

/* It is not asked, which would end the connection. */
START_TEST(test_ping_facts_earlier)
{
	struct rdmad_ping_options options = {.size = 8};
	char text[RDMAD_PING_FACTS_MAX + 1];
	struct rdmad_ping *ping;
	uint64_t rtt;

	ck_assert_int_eq(rdmad_ping_open(server.address, &options, &ping), 0);
	ASSERT_ERROR(rdmad_ping_facts(ping, text, sizeof(text)), -EOPNOTSUPP, "earlier version");
	ck_assert_int_eq(rdmad_ping_send(ping), 0);
	ck_assert_int_eq(rdmad_ping_receive(ping, &rtt), 0);
	rdmad_ping_close(ping);
}
END_TEST

START_TEST(test_ping_beyond_count)
{
	struct rdmad_ping_options options = {.size = 8, .count = 1};
	struct rdmad_ping *ping;
	uint64_t rtt;

	ck_assert_int_eq(rdmad_ping_open(server.address, &options, &ping), 0);
	ck_assert_int_eq(rdmad_ping_send(ping), 0);
	ck_assert_int_eq(rdmad_ping_receive(ping, &rtt), 0);
	ck_assert_int_eq(rdmad_ping_send(ping), 0);
	ck_assert_int_lt(rdmad_ping_receive(ping, &rtt), 0);
	ck_assert_int_lt(rdmad_ping_send(ping), 0);
	rdmad_ping_close(ping);
}
END_TEST

START_TEST(test_ping_timeout)
{
	struct rdmad_ping_options options = {.size = 8, .common.timeout_us = 20000};
	struct rdmad_ping *ping;
	uint64_t rtt;

	ck_assert_int_eq(rdmad_ping_open(server.address, &options, &ping), 0);
	server_pause();
	ck_assert_int_eq(rdmad_ping_send(ping), 0);
	ck_assert_int_eq(rdmad_ping_send(ping), -EAGAIN);
	ASSERT_ERROR(rdmad_ping_receive(ping, &rtt), -ETIMEDOUT, "no pong after 20 ms");
	server_resume();
	while (rdmad_ping_receive(ping, &rtt) == -ETIMEDOUT)
		;
	rdmad_ping_close(ping);
	options.size = RDMAD_PING_SIZE_MAX + 1;
	ASSERT_ERROR(rdmad_ping_open(server.address, &options, &ping), -EINVAL, "at most");
	ASSERT_ERROR(rdmad_ping_open(NULL, &options, &ping), -EINVAL, "");
	ck_assert_str_ne(rdmad_version(), "");
}
END_TEST

/* What rdmad_error() says of ping: of the last call alone, whatever an earlier one left. */
#define FAILS(call, error, text)                                                                                       \
	do {                                                                                                           \
		log_error("test", "stale words");                                                                      \
		ASSERT_ERROR(call, error, text);                                                                       \
		ck_assert_msg(!strstr(rdmad_error(), "stale words"), "%s", rdmad_error());                             \
		ck_assert_str_ne(rdmad_error(), "");                                                                   \
	} while (0)

#define SUCCEEDS(call)                                                                                                 \
	do {                                                                                                           \
		log_error("test", "stale words");                                                                      \
		ck_assert_int_eq(call, 0);                                                                             \
		ck_assert_str_eq(rdmad_error(), "");                                                                   \
	} while (0)

START_TEST(test_ping_errors)
{
	struct rdmad_ping_options options = {.size = 8, .count = 1, .common.timeout_us = 20000};
	struct rdmad_ping *ping;
	uint64_t rtt;
	int rc;

	FAILS(rdmad_ping_open(NULL, &options, &ping), -EINVAL, "needs a server");
	FAILS(rdmad_ping_open(server.address, NULL, &ping), -EINVAL, "options");
	FAILS(rdmad_ping_open(server.address, &options, NULL), -EINVAL, "a place");
	FAILS(rdmad_ping_open("tcp://127.0.0.1:1", &options, &ping), -ECONNREFUSED, "nothing listens");
	FAILS(rdmad_ping_send(NULL), -EINVAL, "handle");
	FAILS(rdmad_ping_receive(NULL, &rtt), -EINVAL, "handle");
	ck_assert_str_eq(rdmad_ping_transport(NULL), "");
	SUCCEEDS(rdmad_ping_open(server.address, &options, &ping));
	FAILS(rdmad_ping_receive(ping, NULL), -EINVAL, "a place");
	FAILS(rdmad_ping_receive(ping, &rtt), -EINVAL, "send one first");
	server_pause();
	SUCCEEDS(rdmad_ping_send(ping));
	FAILS(rdmad_ping_send(ping), -EAGAIN, "1 pings are out");
	FAILS(rdmad_ping_receive(ping, &rtt), -ETIMEDOUT, "20 ms");
	server_resume();
	while ((rc = rdmad_ping_receive(ping, &rtt)) == -ETIMEDOUT)
		;
	ck_assert_int_eq(rc, 0);
	SUCCEEDS(rdmad_ping_send(ping)); /* beyond the count: the agent is gone */
	while ((rc = rdmad_ping_receive(ping, &rtt)) == -ETIMEDOUT)
		;
	ck_assert_int_lt(rc, 0);
	FAILS(rdmad_ping_receive(ping, &rtt), rc, "the connection has ended");
	FAILS(rdmad_ping_send(ping), rc, "the connection has ended");
	rdmad_ping_close(ping);
}
END_TEST

START_TEST(test_ping_fork)
{
	struct rdmad_ping_options options = {.size = 8};
	struct rdmad_ping *ping;
	uint64_t rtt;
	int status;
	pid_t pid;

	SUCCEEDS(rdmad_ping_open(server.address, &options, &ping));
	pid = fork();
	if (pid == 0) {
		FAILS(rdmad_ping_send(ping), -EPERM, "forked");
		FAILS(rdmad_ping_receive(ping, &rtt), -EPERM, "forked");
		rdmad_ping_close(ping);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	SUCCEEDS(rdmad_ping_send(ping));
	SUCCEEDS(rdmad_ping_receive(ping, &rtt));
	rdmad_ping_close(ping);
}
END_TEST

static Suite *suite_of_client(void)
{
	Suite *suite = suite_create("client");
	TCase *tc = suite_case(suite, "blocking", set_up, server_stop);

	tcase_add_loop_test(tc, test_five_calls, 0, 3);
	tcase_add_test(tc, test_bytes);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_misuse);
	tcase_add_loop_test(tc, test_open_errors, 0, 6);
	tcase_add_test(tc, test_open_refused);
	tcase_add_test(tc, test_open_another_program);
	tcase_add_test(tc, test_open_by_name);
	tcase_add_test(tc, test_open_timeout);
	tc = suite_case(suite, "submit", set_up, server_stop);
	tcase_add_test(tc, test_submit_until_full);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_close_with_outstanding);
	tcase_add_test(tc, test_server_dies);
	tcase_add_test(tc, test_server_dies_while_waiting);
	tcase_add_test(tc, test_timeout);
	tcase_add_test(tc, test_progress_timeout);
	tcase_add_test(tc, test_blocking_call_in_callback);
	tcase_add_loop_test(tc, test_share, 0, 3);
	tcase_add_test(tc, test_share_failure);
	tcase_add_test(tc, test_own_loop);
	tc = suite_case(suite, "prices", set_up, server_stop);
	tcase_add_test(tc, test_no_allocation);
	tcase_add_test(tc, test_system_calls);
	tcase_add_test(tc, test_cut_requests);
	tc = suite_case(suite, "ping", set_up, server_stop);
	tcase_add_loop_test(tc, test_ping, 0, 6);
	tcase_add_loop_test(tc, test_ping_facts, 0, ARRAY_SIZE(told));
	tcase_add_test(tc, test_ping_facts_earlier);
	tcase_add_test(tc, test_ping_beyond_count);
	tcase_add_test(tc, test_ping_timeout);
	tcase_add_test(tc, test_ping_errors);
	tcase_add_test(tc, test_ping_fork);
	return suite;
}

int main(void)
{
	return suite_run(suite_of_client());
}
