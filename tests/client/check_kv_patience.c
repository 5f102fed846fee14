/*
 * check_kv_patience.c: a caller that waits for a value waits as long as its bytes move, however long that takes. The
 * server has no time of its own: it turns once whenever the client looks whether something moved.
 */
#include "base/base.h"
#include "tests/client/caller.h"
#include "tests/suite.h"
#include "tests/service/value.h"

#define LENGTH (12 * MIB)  /* many turns of the server */
#define TIMEOUT 100000     /* us, of which each look takes an eighth */
#define NOT_YET 1000000000 /* us */
#define SHORT (256 * KIB)  /* a value that has a quarter of a second more */
#define KEPT (128 * KIB)   /* by a socket */

static _Atomic bool looking; /* the server turns by the client's looks */
static _Atomic bool untold;  /* nobody can tell what moved */
static uint8_t *value, *space;

uint64_t __real_fabric_moved_bytes(const struct fabric_endpoint *endpoint);
uint64_t __wrap_fabric_moved_bytes(const struct fabric_endpoint *endpoint);
uint64_t __wrap_fabric_moved_bytes(const struct fabric_endpoint *endpoint)
{
	if (untold)
		return FABRIC_MOVED_UNKNOWN;
	if (looking) {
		looking = false; /* what the server looks at */
		server_turn();
		looking = true;
	}
	return __real_fabric_moved_bytes(endpoint);
}

/* What the kernel keeps of a value has moved, for who sent it: of sockets that is little here. */
int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
	int fd = __real_socket(domain, type, protocol), bytes = KEPT;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)); /* also of the ones that it accepts */
	return fd;
}

static void set_up(void)
{
	value = malloc(LENGTH + 1);
	space = malloc(LENGTH + 1);
	ck_assert(value && space);
	value_fill(value, LENGTH, 1);
}

static void tear_down(void)
{
	server_stop();
	free(value);
	free(space);
}

struct call {
	bool called;
	int status;
};

static void done(void *arg, int status, const void *data, size_t len)
{
	(void)data, (void)len;
	*(struct call *)arg = (struct call){true, status};
}

static int set(void *kv)
{
	return kv_set_bytes(kv, "k", 1, value, LENGTH);
}

static int submitted_set(void *kv)
{
	struct call call = {0};
	int rc = kv_submit_set(kv, "k", 1, value, LENGTH, done, &call);

	while (rc >= 0 && !call.called)
		rc = kv_progress(kv, NOT_YET);
	return rc < 0 ? rc : call.status;
}

static int get(void *kv)
{
	size_t len;
	int rc = kv_get_into(kv, "k", 1, space, LENGTH, &len);

	ck_assert(rc != 0 || (len == LENGTH && value_holds(space, LENGTH, 1)));
	return rc;
}

static const struct {
	const char *transport;
	int (*call)(void *kv);
	uint64_t timeout, request_timeout;
} slow[] = {
	{"tcp", set, TIMEOUT, 0},  {"tcp", get, TIMEOUT, 0},  {"tcp", submitted_set, NOT_YET, TIMEOUT},
	{"unix", set, TIMEOUT, 0}, {"unix", get, TIMEOUT, 0}, {"unix", submitted_set, NOT_YET, TIMEOUT},
};

START_TEST(test_slow)
{
	struct rdmad_options options = {.timeout_us = slow[_i].timeout};
	uint64_t begin;
	void *kv;
	int rc;

	server_start(&(struct server_options){.transport = slow[_i].transport, .services.arena = 4 * LENGTH});
	ck_assert_int_eq(store_set(server.services.store, "k", 1, value, LENGTH, NULL, time_now(), NULL), 0);
	kv = open_kv(&options, NULL);
	ck_assert_int_eq(kv_request_timeout(kv, slow[_i].request_timeout), 0);
	server_pause();
	looking = true;
	begin = time_now();
	rc = slow[_i].call(kv);
	looking = false;
	ck_assert_msg(rc == 0, "%d: %s", rc, rdmad_error());
	ck_assert_uint_ge(time_now() - begin, 2 * TIMEOUT * TIME_US); /* or nobody needed patience */
	server_resume();
	kv_close(kv);
}
END_TEST

/* A value that does not get on is late; where nobody can tell, it has the time that its bytes may need. */
START_TEST(test_stands_still)
{
	struct rdmad_options options = {.timeout_us = TIMEOUT};
	uint64_t begin;
	void *kv;

	server_start(&(struct server_options){.transport = "tcp"});
	kv = open_kv(&options, NULL);
	server_pause();
	untold = _i;
	begin = time_now();
	ASSERT_ERROR(kv_set_bytes(kv, "k", 1, value, SHORT), -ETIMEDOUT, "100 ms");
	if (untold)
		ck_assert_uint_ge(time_now() - begin, TIMEOUT * TIME_US + SHORT * (TIME_S / MIB));
	server_resume();
	kv_close(kv);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv_patience");
	TCase *tc = suite_case(suite, "values", set_up, tear_down);

	tcase_add_loop_test(tc, test_slow, 0, ARRAY_SIZE(slow));
	tcase_add_loop_test(tc, test_stands_still, 0, 2);
	return suite_run(suite);
}
