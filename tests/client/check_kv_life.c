/*
 * check_kv_life.c: what becomes of a handle whose server ends, restarts or does not answer, and what rdmad_error() says of it.
 * Over RDMA where RDMAD_GUEST_ADDR says an address, else over TCP.
 */
#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/caller.h"
#include "tests/suite.h"

#define FOREVER (60 * 1000000ull) /* us; only ends what hangs */
#define LONG (100 * FOREVER)      /* longer than a test may take, also an eighth of it */

/*
 * A server that is told to end, as a worker of the daemon does it
 */
static _Atomic bool draining;
static _Atomic uint32_t message_asked, message_granted; /* of the last of them */

static void drain_one(void *arg, struct conn *conn)
{
	(void)arg;
	service_drain(conn);
}

static void look_at_one(void *arg, struct conn *conn)
{
	(void)arg;
	message_granted = conn_granted(conn)->message_size;
	message_asked = conn_request(conn)->message_size;
}

static int work(void)
{
	if (draining)
		conn_group_each(server.group, drain_one, NULL);
	conn_group_each(server.group, look_at_one, NULL);
	return 0;
}

static void start(size_t arena)
{
	struct server_options options = {
		.transport = getenv("RDMAD_GUEST_ADDR") ? "rdma" : "tcp",
		.services = {.arena = arena},
		.work = work,
	};

	server_start(&options);
}

static void set_up(void)
{
	start(4 * MIB);
}

static void tear_down(void)
{
	server_stop();
}

static void restart(void)
{
	server_die();
	draining = false;
	server_revive();
	server_resume();
}

/*
 * Calls
 */
struct call {
	unsigned called;
	int status;
};

static void done(void *arg, int status, const void *value, size_t len)
{
	struct call *call = arg;

	(void)value, (void)len;
	call->called++;
	call->status = status;
}

static void result(void *arg, const struct kv_result *outcome)
{
	done(arg, outcome->status, NULL, 0);
}

/* It fails so, and rdmad_error() has the words of this call alone: an earlier one left others. */
#define FAILS(call, error, text)                                                                                       \
	do {                                                                                                           \
		kv_set_bytes(kv, "", 0, NULL, 0);                                                                      \
		ASSERT_ERROR(call, error, text);                                                                       \
		ck_assert_msg(!strstr(rdmad_error(), "at least one byte") || error == -EINVAL, "%s", rdmad_error());   \
	} while (0)

#define WORKS(call, expected)                                                                                          \
	do {                                                                                                           \
		int works_;                                                                                            \
		kv_set_bytes(kv, "", 0, NULL, 0);                                                                      \
		works_ = (int)(call);                                                                                  \
		ck_assert_msg(works_ == (expected), "%d: %s", works_, rdmad_error());                                  \
		ck_assert_str_eq(rdmad_error(), "");                                                                   \
	} while (0)

static int no_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)arg, (void)key, (void)key_len, (void)meta;
	return 0;
}

static void no_item(void *arg, size_t index, int status, const void *value, size_t len)
{
	(void)arg, (void)index, (void)status, (void)value, (void)len;
}

/* Each function, of a handle that fails it by `error`. */
static void walk(void *kv, int error, const char *text)
{
	struct kv_item item = {.key = "k", .key_len = 1, .value = "v", .value_len = 1};
	struct kv_meta meta;
	struct kv_info info;
	struct call call = {0};
	uint64_t cursor = 0, version;
	int64_t number;
	size_t len;
	void *value;
	char *string, buffer[8];

	FAILS(kv_set(kv, "k", "v"), error, text);
	FAILS(kv_get(kv, "k", &string), error, text);
	FAILS(kv_set_bytes(kv, "k", 1, "v", 1), error, text);
	FAILS(kv_get_bytes(kv, "k", 1, &value, &len), error, text);
	FAILS(kv_delete(kv, "k", 1), error, text);
	FAILS(kv_exists(kv, "k", 1), error, text);
	FAILS(kv_put(kv, "k", 1, "v", 1, NULL, &version), error, text);
	FAILS(kv_get_version(kv, "k", 1, &value, &len, &version), error, text);
	FAILS(kv_stat(kv, "k", 1, &meta), error, text);
	FAILS(kv_expire(kv, "k", 1, 1), error, text);
	FAILS(kv_delete_if(kv, "k", 1, 1), error, text);
	FAILS(kv_incr(kv, "k", 1, 1, &number, &version), error, text);
	FAILS(kv_scan(kv, &cursor, NULL, 0, 0, no_key, NULL), error, text);
	FAILS(kv_each(kv, NULL, 0, no_key, NULL), error, text);
	FAILS(kv_delete_all(kv, NULL), error, text);
	FAILS(kv_info(kv, &info), error, text);
	FAILS(kv_mset(kv, &item, 1, NULL), error, "");
	FAILS(kv_mget(kv, &item, 1, no_item, NULL), error, "");
	if (error == -ETIMEDOUT)
		return;
	FAILS(kv_submit_set(kv, "k", 1, "v", 1, done, &call), error, text);
	FAILS(kv_submit_get(kv, "k", 1, done, &call), error, text);
	FAILS(kv_submit_get_into(kv, "k", 1, buffer, sizeof(buffer), done, &call), error, text);
	FAILS(kv_submit_delete(kv, "k", 1, done, &call), error, text);
	FAILS(kv_submit_exists(kv, "k", 1, done, &call), error, text);
	FAILS(kv_submit_put(kv, "k", 1, "v", 1, NULL, result, &call), error, text);
	FAILS(kv_submit_get_version(kv, "k", 1, result, &call), error, text);
	FAILS(kv_submit_stat(kv, "k", 1, result, &call), error, text);
	FAILS(kv_submit_expire(kv, "k", 1, 1, result, &call), error, text);
	FAILS(kv_submit_delete_if(kv, "k", 1, 1, result, &call), error, text);
	FAILS(kv_submit_incr(kv, "k", 1, 1, result, &call), error, text);
	FAILS(kv_flush(kv), error, text);
	FAILS(kv_progress(kv, 0), error, text);
	FAILS(kv_progress(kv, UINT64_MAX), error, text);
	FAILS(kv_wait(kv), error, text);
	FAILS(kv_arm(kv), error, text);
	ck_assert_uint_eq(call.called, 0);
}

START_TEST(test_null)
{
	void *kv = NULL, *buffer;

	walk(NULL, -EINVAL, "handle is NULL");
	FAILS(kv_fd(NULL), -EINVAL, "handle");
	FAILS(kv_reopen(NULL), -EINVAL, "handle");
	FAILS(kv_keep_connected(NULL, 1), -EINVAL, "handle");
	FAILS(kv_request_timeout(NULL, 1), -EINVAL, "handle");
	FAILS(kv_cancel(NULL, NULL), -EINVAL, "handle");
	FAILS(kv_buffer_lend(NULL, 1, &buffer), -EINVAL, "handle");
	FAILS(kv_buffer_register(NULL, &buffer, 1), -EINVAL, "handle");
	FAILS(kv_buffer_unregister(NULL, &buffer), -EINVAL, "handle");
	ck_assert_uint_eq(kv_outstanding(NULL), 0);
	ck_assert_str_eq(kv_transport(NULL), "");
	ck_assert_uint_eq(kv_eager_max(NULL), 0);
	ck_assert_uint_eq(kv_value_max(NULL), 0);
}
END_TEST

/* What the server answers, and what is not even asked. */
START_TEST(test_answers)
{
	static char bytes[5 * MIB];
	void *kv = open_kv(NULL, NULL), *value;
	uint64_t version;
	int64_t number;
	size_t len;
	char *string;

	ck_assert_str_eq(rdmad_error(), "");
	WORKS(kv_set(kv, "word", "green"), 0);
	FAILS(kv_get_bytes(kv, "none", 4, &value, &len), -ENOENT, "no such key");
	WORKS(kv_delete(kv, "none", 4), 0);
	WORKS(kv_get(kv, "none", &string), 0);
	kv_release(string);
	FAILS(kv_put(kv, "word", 4, "v", 1, &(struct kv_put_options){.condition = KV_IF_ABSENT}, NULL), -EEXIST,
	      "exists");
	FAILS(kv_delete_if(kv, "word", 4, 1), -ESTALE, "another version");
	FAILS(kv_incr(kv, "word", 4, 1, &number, &version), -EDOM, "incr of \"word\": the value is not a whole number");
	WORKS(kv_incr(kv, "most", 4, INT64_MAX, &number, &version), 0);
	FAILS(kv_incr(kv, "most", 4, 1, &number, &version), -ERANGE, "64 bits");
	FAILS(kv_set_bytes(kv, bytes, 4096, NULL, 0), -ENAMETOOLONG, "4096");
	FAILS(kv_set_bytes(kv, "k", 1, bytes, SIZE_MAX), -EMSGSIZE, "at most");
	ck_assert_uint_eq(kv_value_max(kv), 4 * MIB); /* the memory, which is less than what the settings allow */
	FAILS(kv_set_bytes(kv, "k", 1, bytes, sizeof(bytes)), -EMSGSIZE, "5242880");
	WORKS(kv_set_bytes(kv, "k", 1, bytes, 3 * MIB), 0);
	FAILS(kv_set_bytes(kv, "l", 1, bytes, 3 * MIB), -ENOSPC, "needs room for both values at once); see kv.memory");
	FAILS(kv_buffer_unregister(kv, bytes), -ENOENT, "no memory was registered");
	FAILS(kv_open("tcp://127.0.0.1:1", &value), -ECONNREFUSED, "nothing listens");
	WORKS(kv_close(kv), 0);
}
END_TEST

START_TEST(test_full_handle)
{
	static struct call calls[4096];
	void *kv = open_kv(NULL, NULL);
	unsigned n = 0;
	int rc;

	server_pause();
	while ((rc = kv_submit_get(kv, "k", 1, done, &calls[n])) == 0)
		ck_assert_uint_lt(++n, ARRAY_SIZE(calls));
	ck_assert_int_eq(rc, -EAGAIN);
	FAILS(kv_submit_get(kv, "k", 1, done, &calls[n]), -EAGAIN, "kv_progress() first");
	ck_assert_ptr_nonnull(strstr(rdmad_error(), n == 1024 ? "1024 requests" : "credits"));
	server_resume();
	WORKS(kv_wait(kv), 0);
	kv_close(kv);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(calls[i].status, -ENOENT);
}
END_TEST

START_TEST(test_no_answer)
{
	void *kv = open_kv(&(struct rdmad_options){.timeout_us = 20000}, NULL);

	server_pause();
	walk(kv, -ETIMEDOUT, "20 ms");
	server_resume();
	kv_close(kv);
}
END_TEST

/* A dead handle says so from every call, and lives again when it is reopened. */
START_TEST(test_reopen)
{
	static char bytes[100000];
	void *kv = open_kv(NULL, NULL), *lent;
	struct call set = {0}, late = {0};
	size_t len;
	void *value;

	ck_assert_int_eq(kv_buffer_register(kv, bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(kv_buffer_lend(kv, 5000, &lent), 0);
	ck_assert_int_eq(kv_set_bytes(kv, "large", 5, bytes, sizeof(bytes)), 0);
	server_pause();
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, "v", 1, done, &set), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	ck_assert_int_eq(kv_submit_set(kv, "l", 1, "v", 1, done, &late), 0);
	server_die();
	kv_wait(kv);
	ck_assert_uint_eq(set.called + late.called, 2);
	ck_assert_int_eq(set.status, -ECONNABORTED);
	/* It was sent by the turn that found the end, or before. */
	ck_assert(late.status == -ECONNABORTED || late.status == -ENOTCONN);
	walk(kv, -ENOTCONN, "kv_reopen");
	FAILS(kv_reopen(kv), -ECONNREFUSED, "nothing listens");
	FAILS(kv_set(kv, "k", "v"), -ENOTCONN, "nothing listens");
	restart();
	WORKS(kv_reopen(kv), 0);
	ck_assert_int_eq(kv_set_bytes(kv, "large", 5, bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(kv_set_bytes(kv, "lent", 4, lent, 5000), 0);
	ck_assert_int_eq(kv_get_bytes(kv, "large", 5, &value, &len), 0);
	ck_assert_uint_eq(len, sizeof(bytes));
	kv_release(value);
	WORKS(kv_reopen(kv), 0); /* of one that lives */
	WORKS(kv_buffer_unregister(kv, bytes), 0);
	kv_release(lent);
	kv_close(kv);
}
END_TEST

/* A connection that is kept: nothing but requests that were sent fails. */
START_TEST(test_keep)
{
	void *kv = open_kv(NULL, NULL);
	struct call sent = {0}, again = {0};
	char *value;
	int rc;

	ck_assert_int_eq(kv_keep_connected(kv, FOREVER), 0);
	server_pause();
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, "v", 1, done, &sent), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	server_die();
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(sent.status, -ECONNABORTED);
	FAILS(kv_submit_set(kv, "k", 1, "w", 1, done, &again), -EAGAIN, "made again");
	ck_assert_int_eq(kv_progress(kv, 1000), 0);
	restart();
	while ((rc = kv_submit_set(kv, "k", 1, "w", 1, done, &again)) == -EAGAIN)
		ck_assert_int_ge(kv_progress(kv, FOREVER), 0);
	ck_assert_int_eq(rc, 0);
	WORKS(kv_wait(kv), 0);
	restart();
	do /* it waits, unless it was sent before the end was seen */
		rc = kv_get(kv, "k", &value);
	while (rc == -ECONNABORTED);
	ck_assert_msg(rc == 0, "%s", rdmad_error());
	ck_assert_str_eq(value, "w");
	kv_release(value);
	kv_close(kv);
}
END_TEST

START_TEST(test_keep_gives_up)
{
	void *kv = open_kv(NULL, NULL);

	ck_assert_int_eq(kv_keep_connected(kv, 50000), 0);
	server_die();
	while (kv_progress(kv, UINT64_MAX) != -ENOTCONN)
		;
	FAILS(kv_set(kv, "k", "v"), -ENOTCONN, "refused");
	kv_close(kv);
}
END_TEST

static void refuse(struct fabric_event *event)
{
	conn_refuse(event->request, WIRE_REASON_DRAINING, 0);
}

/* A caller that waits is told, when its time is over, why there is no connection, and that nothing was carried out. */
START_TEST(test_keep_waits_in_vain)
{
	void *kv = open_kv(&(struct rdmad_options){.timeout_us = 100000}, NULL);
	struct kv_item items[] = {{.key = "a", .key_len = 1, .value = "v", .value_len = 1},
				  {.key = "b", .key_len = 1, .value = "v", .value_len = 1}};
	void (*take)(struct fabric_event * event) = server.take;
	struct call call = {0};
	int rc;

	ck_assert_int_eq(kv_keep_connected(kv, FOREVER), 0);
	server_pause();
	server.take = refuse;
	restart();
	while (kv_submit_get(kv, "k", 1, done, &call) == 0) /* the end was not seen yet */
		ck_assert_int_ge(kv_progress(kv, FOREVER), 0);
	while (kv_set(kv, "k", "v") == -ENOTCONN) /* nobody was asked yet */
		;
	FAILS(kv_set(kv, "k", "v"), -ESHUTDOWN, "draining");
	FAILS(kv_mset(kv, items, 2, NULL), -ESHUTDOWN, "takes no more requests");
	ck_assert(items[0].status == -ESHUTDOWN && items[1].status == -ESHUTDOWN);
	server_die();
	while (kv_set(kv, "k", "v") == -ESHUTDOWN) /* asked again only after a pause */
		;
	FAILS(kv_set(kv, "k", "v"), -ENOTCONN, "is being made again");
	server.take = take;
	restart();
	while ((rc = kv_set(kv, "k", "v")) == -ENOTCONN || rc == -ETIMEDOUT) /* a busy machine answers late */
		;
	ck_assert_msg(rc == 0, "%s", rdmad_error());
	kv_close(kv);
}
END_TEST

/*
 * A server that says that it ends
 */
/* Counts also a connection that the server has made but not yet shown to work(). */
static unsigned connected(void)
{
	unsigned n;

	server_pause();
	n = conn_group_connections(server.group);
	server_resume();
	return n;
}

static void wait_for_leaving(void)
{
	for (uint64_t until = time_now() + 60 * TIME_S; connected();)
		ck_assert(time_now() < until && usleep(1000) == 0);
}

/* Where a processor moves the bytes, answers to many gets come in few messages; also by a connection that is made again. But a server
 * grants no buffers of a connection's own for that. */
START_TEST(test_long_messages)
{
	uint32_t expected = getenv("RDMAD_GUEST_ADDR") ? 8192 : 16384;
	void *kv = open_kv(NULL, NULL);
	struct conn_group_stats stats;

	for (int i = 0; i < 2; i++) {
		WORKS(kv_set(kv, "k", "v"), 0);
		server_pause();
		conn_group_get_stats(server.group, &stats);
		ck_assert_uint_eq(stats.own_buffer_bytes, 0);
		ck_assert_uint_eq(message_asked, expected);
		ck_assert_uint_eq(message_granted, 8192);
		message_asked = message_granted = 0;
		server_die();
		ck_assert_int_ne(kv_set(kv, "k", "v"), 0);
		restart();
		WORKS(kv_reopen(kv), 0);
	}
	kv_close(kv);
}
END_TEST

/* What is outstanding is answered, and nothing more is taken. */
START_TEST(test_leave)
{
	static char bytes[8][300000];
	void *kv = open_kv(NULL, NULL);
	struct call calls[32] = {0};
	char key[2] = "a";
	int rc;

	for (unsigned i = 0; i < 32; i++, key[0]++) {
		if (i < 8)
			rc = kv_submit_set(kv, key, 1, bytes[i], sizeof(bytes[i]), done, &calls[i]);
		else
			rc = kv_submit_set(kv, key, 1, "v", 1, done, &calls[i]);
		ck_assert_int_eq(rc, 0);
	}
	ck_assert_int_eq(kv_flush(kv), 0);
	draining = true;
	ck_assert_int_ge(kv_wait(kv), -ENOTCONN);
	for (unsigned i = 0; i < 32; i++)
		ck_assert_int_eq(calls[i].status, 0);
	while ((rc = kv_submit_set(kv, "k", 1, "v", 1, done, &calls[0])) == 0)
		ck_assert_int_ge(kv_progress(kv, 1000), -ENOTCONN);
	ck_assert(rc == -ESHUTDOWN || rc == -ENOTCONN);
	while (kv_progress(kv, UINT64_MAX) >= 0)
		;
	wait_for_leaving();
	for (unsigned i = 0; i < 32; i++)
		ck_assert_int_eq(calls[i].status, 0);
	FAILS(kv_set(kv, "k", "v"), -ENOTCONN, "is to end");
	restart();
	WORKS(kv_reopen(kv), 0);
	WORKS(kv_set(kv, "k", "v"), 0);
	kv_close(kv);
}
END_TEST

/* A caller that is elsewhere meanwhile learns that what it then asks for was not carried out; or is served by the next
 * server. */
START_TEST(test_leave_unheard)
{
	void *kv = open_kv(NULL, NULL), *kept = open_kv(NULL, NULL);

	ck_assert_int_eq(kv_keep_connected(kept, FOREVER), 0);
	draining = true;
	wait_for_leaving();
	restart();
	FAILS(kv_set(kv, "k", "v"), -ESHUTDOWN, "not carried it out");
	WORKS(kv_set(kept, "k", "v"), 0);
	kv_close(kv);
	kv_close(kept);
}
END_TEST

static void got_one(void *arg, size_t index, int status, const void *value, size_t len)
{
	struct call *calls = arg;

	ck_assert(status != 0 || (len == 1 && *(const char *)value == (char)('a' + (index | 1) % 26)));
	done(&calls[index], status, value, len);
}

/* So are the items of a call with many, in their order. */
START_TEST(test_leave_unheard_by_many)
{
	enum { COUNT = 2000 };
	static struct kv_item items[COUNT];
	static struct call calls[COUNT];
	static char keys[COUNT][8], into[COUNT];
	static struct kv_place places[COUNT];
	void *kv = open_kv(NULL, NULL);

	memset(calls, 0, sizeof(calls));
	for (unsigned i = 0; i < COUNT; i++) {
		size_t len = (size_t)snprintf(keys[i], sizeof(keys[i]), "k%u", i / 2 * 2);

		items[i] = (struct kv_item){.key = keys[i], .key_len = len, .value_len = 1};
		items[i].value = &"abcdefghijklmnopqrstuvwxyz"[i % 26];
		places[i] = (struct kv_place){.key = keys[i], .key_len = len, .buffer = &into[i], .size = 1};
	}
	ck_assert_int_eq(kv_keep_connected(kv, FOREVER), 0);
	draining = true;
	wait_for_leaving();
	restart();
	WORKS(kv_mset(kv, items, COUNT, NULL), 0);
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert_int_eq(items[i].status, 0);
	WORKS(kv_mget_into(kv, places, COUNT), 0);
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert_int_eq(into[i], 'a' + (i | 1) % 26); /* the later of the two with this key */
	draining = true;
	wait_for_leaving();
	restart();
	WORKS(kv_mget(kv, items, COUNT, got_one, calls), 0);
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert(calls[i].called == 1 && calls[i].status == 0);
	kv_close(kv);
}
END_TEST

/*
 * Requests that are given up
 */
START_TEST(test_cancel)
{
	void *kv = open_kv(NULL, NULL);
	struct call stays = {0}, goes = {0};
	static char into[8];
	int told = 0;

	ck_assert_int_eq(kv_set(kv, "k", "value"), 0);
	server_pause();
	ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &stays), 0);
	ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &goes), 0);
	ck_assert_int_eq(kv_submit_stat(kv, "k", 1, result, &goes), 0);
	WORKS(kv_cancel(kv, &goes), 2);
	WORKS(kv_cancel(kv, &goes), 0);
	ck_assert_uint_eq(goes.called, 2);
	ck_assert_int_eq(goes.status, -ECANCELED);
	ck_assert_uint_eq(kv_outstanding(kv), 1);
	server_resume();
	while (!stays.called)
		told += kv_progress(kv, 10000);
	WORKS(kv_wait(kv), 0);
	WORKS(kv_exists(kv, "k", 1), 1);
	ck_assert_int_eq(told + kv_progress(kv, 0), 1); /* cancelled ones are not told of again */
	ck_assert_int_eq(stays.status, 0);
	ck_assert_int_eq(kv_buffer_register(kv, into, sizeof(into)), 0);
	server_pause();
	ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, into, sizeof(into), done, &goes), 0);
	WORKS(kv_cancel(kv, &goes), 1);
	server_resume();
	WORKS(kv_set(kv, "k", "other"), 0);
	ck_assert_uint_eq(goes.called, 3);
	ck_assert_str_eq(into, ""); /* what came by message is not put there */
	WORKS(kv_buffer_unregister(kv, into), 0);
	kv_close(kv);
}
END_TEST

/* Those of many sets with one callback are ended together, by what that is given. */
START_TEST(test_cancel_many)
{
	void *kv = open_kv(NULL, NULL);
	struct kv_item items[] = {{.key = "a", .key_len = 1, .value = "v", .value_len = 1},
				  {.key = "b", .key_len = 1, .value = "v", .value_len = 1},
				  {.key = "c", .key_len = 1, .value = "v", .value_len = 1}};
	struct call stays = {0}, goes = {0};

	server_pause();
	ck_assert_int_eq(kv_submit_mset(kv, items, 3, NULL, result, &goes), 3);
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, "v", 1, done, &stays), 0);
	WORKS(kv_cancel(kv, &goes), 3);
	WORKS(kv_cancel(kv, &goes), 0);
	ck_assert_uint_eq(goes.called, 1);
	ck_assert_int_eq(goes.status, -ECANCELED);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(items[i].status, -ECANCELED);
	server_resume();
	WORKS(kv_wait(kv), 0);
	ck_assert(stays.called == 1 && stays.status == 0);
	ck_assert_uint_eq(goes.called, 1);
	kv_close(kv);
}
END_TEST

struct anew {
	void *kv;
	unsigned called;
};

static void ask_anew(void *arg, int status, const void *value, size_t value_len)
{
	struct anew *anew = arg;

	(void)value;
	(void)value_len;
	if (status == -ECANCELED && anew->called++ < 100)
		ck_assert_int_eq(kv_submit_get(anew->kv, "k", 1, ask_anew, anew), 0);
}

/* What a callback asks for is asked after the call. */
START_TEST(test_cancel_and_ask_anew)
{
	void *kv = open_kv(NULL, NULL);
	struct anew anew = {.kv = kv};

	server_pause();
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(kv_submit_get(kv, "k", 1, ask_anew, &anew), 0);
	WORKS(kv_cancel(kv, &anew), 5);
	ck_assert_uint_eq(anew.called, 5);
	WORKS(kv_cancel(kv, &anew), 5);
	server_resume();
	WORKS(kv_wait(kv), 0);
	ck_assert_uint_eq(anew.called, 10);
	kv_close(kv);
}
END_TEST

/* A program with a loop of its own is woken by the time. */
START_TEST(test_request_timeout)
{
	void *kv = open_kv(NULL, NULL);
	struct pollfd pfd = {.fd = kv_fd(kv), .events = POLLIN};
	struct call call = {0};
	int told = 0, n;
	char *value;

	ck_assert_int_eq(kv_request_timeout(kv, 100000), 0);
	server_pause();
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, "v", 1, done, &call), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	while (!call.called) {
		if (kv_arm(kv) == 0)
			ck_assert_int_eq(poll(&pfd, 1, 60000), 1);
		n = kv_progress(kv, 0);
		ck_assert_int_ge(n, 0);
		told += n;
	}
	ck_assert_int_le(told, 1); /* kv_arm() may have called back */
	ck_assert_int_eq(call.status, -ETIMEDOUT);
	ck_assert_uint_eq(kv_outstanding(kv), 0);
	server_resume();
	WORKS(kv_get(kv, "k", &value), 0);
	ck_assert_str_eq(value, "v"); /* it was carried out all the same */
	kv_release(value);
	ck_assert_uint_eq(call.called, 1);
	kv_close(kv);
}
END_TEST

/* In a child the handle can only be closed, and the parent's goes on. */
START_TEST(test_fork)
{
	void *kv = open_kv(NULL, NULL);
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0)
		_exit(kv_set(kv, "k", "child") == -EPERM && strstr(rdmad_error(), "forked") &&
				      kv_submit_get(kv, "k", 1, NULL, NULL) == -EPERM && kv_progress(kv, 0) == -EPERM &&
				      kv_close(kv) == 0 && !*rdmad_error()
			      ? 0
			      : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	WORKS(kv_set(kv, "k", "parent"), 0);
	kv_close(kv);
}
END_TEST

/*
 * A server that takes sets, gives the credits back, and answers none of them. Of other requests there is no such key.
 */
static int forget_sets(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct wire_record reply = {.id = record->id, .op = record->op, .flags = WIRE_REPLY, .status = WIRE_NOT_FOUND};

	(void)body;
	return record->op == WIRE_OP_SET || conn_say(conn, &reply, NULL, 0, NULL, 0) ? 0 : -EAGAIN;
}

static const struct conn_ops forgetful_ops = {
	.established = server_ignores_established,
	.record = forget_sets,
	.closed = server_ignores_closed,
};

static void take_forgetful(struct fabric_event *event)
{
	const struct wire_accept grant = {.eager_max = WIRE_EAGER_MAX, .value_max = GIB};
	struct wire_request wire;
	struct conn *conn;

	ck_assert_int_eq(wire_request_decode(&wire, event->data, event->data_len), 0);
	conn_accept(server.group, event->request, &wire, &grant, NULL, &forgetful_ops, NULL, time_now(), &conn);
}

static void set_up_forgetful(void)
{
	server_start(&(struct server_options){
		.transport = getenv("RDMAD_GUEST_ADDR") ? "rdma" : "tcp",
		.take = take_forgetful,
	});
}

static int get(void *kv)
{
	size_t len;
	void *value;

	return kv_get_bytes(kv, "k", 1, &value, &len);
}

static int submitted_get(void *kv)
{
	struct call call = {0};
	int rc;

	while ((rc = kv_submit_get(kv, "k", 1, done, &call)) == -EAGAIN)
		ck_assert_int_eq(kv_progress(kv, LONG), 0);
	ck_assert_int_eq(rc, 0);
	while (!call.called)
		ck_assert_int_ge(kv_progress(kv, LONG), 0);
	return call.status;
}

/* A caller that waits for room has it when it comes, though nothing else does, and its time is not over. */
START_TEST(test_room)
{
	static int (*const calls[])(void *) = {get, submitted_get};
	static const char bytes[3000];
	void *kv = open_kv(&(struct rdmad_options){.timeout_us = LONG}, NULL);
	struct call sets = {0};
	int rc;

	server_pause();
	while ((rc = kv_submit_set(kv, "k", 1, bytes, sizeof(bytes), done, &sets)) == 0)
		continue;
	ck_assert_int_eq(rc, -EAGAIN);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "credits"));
	server_resume();
	ck_assert_int_eq(calls[_i](kv), -ENOENT);
	ck_assert_uint_eq(sets.called, 0);
	kv_close(kv);
}
END_TEST

/* A child that lives on does not keep the connection of a parent that died. */
START_TEST(test_fork_outlived)
{
	int ends[2], status;
	pid_t parent, child;

	ck_assert_int_eq(pipe(ends), 0);
	parent = fork();
	if (parent == 0) {
		void *kv = open_kv(NULL, NULL);
		unsigned before = count_descriptors();

		child = fork();
		if (child == 0) {
			child = kv_close(kv) == 0 && count_descriptors() < before ? getpid() : -1;
			if (write(ends[1], &child, sizeof(child)) != sizeof(child))
				abort();
			pause();
		}
		pause();
	}
	ck_assert_int_eq(read(ends[0], &child, sizeof(child)), sizeof(child));
	ck_assert_int_gt(child, 0);
	ck_assert_uint_eq(connected(), 1);
	kill(parent, SIGKILL);
	ck_assert_int_eq(waitpid(parent, &status, 0), parent);
	wait_for_leaving();
	kill(child, SIGKILL);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv_life");
	TCase *tc = suite_case(suite, "kv_life", set_up, tear_down);

	tcase_add_test(tc, test_null);
	tcase_add_test(tc, test_answers);
	tcase_add_test(tc, test_full_handle);
	tcase_add_test(tc, test_no_answer);
	tcase_add_test(tc, test_reopen);
	tcase_add_test(tc, test_long_messages);
	tcase_add_test(tc, test_keep);
	tcase_add_test(tc, test_keep_gives_up);
	tcase_add_test(tc, test_keep_waits_in_vain);
	tcase_add_test(tc, test_leave);
	tcase_add_test(tc, test_leave_unheard);
	tcase_add_test(tc, test_leave_unheard_by_many);
	tcase_add_test(tc, test_cancel);
	tcase_add_test(tc, test_cancel_many);
	tcase_add_test(tc, test_cancel_and_ask_anew);
	tcase_add_test(tc, test_request_timeout);
	tcase_add_test(tc, test_fork);
	tcase_add_test(tc, test_fork_outlived);
	tc = suite_case(suite, "room", set_up_forgetful, tear_down);
	tcase_add_loop_test(tc, test_room, 0, 2);
	return suite_run(suite);
}
