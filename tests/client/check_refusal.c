/*
 * check_refusal.c: what a server's refusal becomes for a caller of the library: an errno and a text of its own, and no
 * request by another transport where that would bring the same answer. The provider of the first transport is the
 * software's here, so that it needs no device: each attempt arrives at the one listener, which counts.
 */
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>

#include "fabric/provider.h"
#include "rdmad/gpu.h"
#include "rdmad/kv.h"
#include "rdmad/ping.h"
#include "tests/suite.h"
#include "wire/wire.h"

/* In place of fabric/verbs/verbs.c: opens the software's, and leaves all else to it from the first domain on. */
static const struct fabric_provider *soft;

static int open_soft(const struct fabric_config *config, struct fabric **out)
{
	int rc = fabric_open("soft", config, out);

	if (rc == 0)
		soft = (*out)->ops;
	return rc;
}

static int create_soft(struct fabric *fabric, struct fabric_domain **out)
{
	fabric->ops = soft;
	return soft->domain_create(fabric, out);
}

const struct fabric_provider fabric_verbs = {.name = "verbs", .open = open_soft, .domain_create = create_soft};

static const struct refusal {
	unsigned reason;
	uint64_t detail;
	int error;
	bool again; /* by the next transport */
	const char *says;
} refusals[] = {
	{WIRE_REASON_BAD_REQUEST, 0, -EPROTO, false, "did not understand"},
	{WIRE_REASON_VERSION, 9, -EPROTONOSUPPORT, false, "protocol version 9, this program 1"},
	{WIRE_REASON_SERVICE, WIRE_KV, -EOPNOTSUPP, false, "the service kv is not enabled"},
	{WIRE_REASON_CONNECTIONS, 100, -EUSERS, false, "all the connections it allows, 100"},
	{WIRE_REASON_MESSAGE_SIZE, 4608, -EMSGSIZE, false, "limit, 4608 bytes"},
	{WIRE_REASON_CREDITS, 2, -EINVAL, false, "outside of 2 to 1024"},
	{WIRE_REASON_KEY, 0, -EACCES, false, "asks for a key"},
	{WIRE_REASON_DRAINING, 0, -ESHUTDOWN, false, "takes no more connections: it is draining or shutting down"},
	{WIRE_REASON_RESOURCES, 0, -ENOBUFS, true, "out of memory, descriptors or device resources"},
	{WIRE_REASON_SESSIONS, 8, -EAGAIN, false, "all the gpu sessions it allows, 8"},
	{WIRE_REASON_SOURCE, 50, -EDQUOT, false, "all the connections it allows from one address or user, 50"},
	{WIRE_REASON_PACKET, 1024ull << 32 | 4096, -ENETUNREACH, true,
	 "packets of 1024 bytes at most, and this machine's sends 4096"},
	{WIRE_REASON_VALUES, 4095, -EFBIG, true, "values of 4095 bytes at most"},
	{WIRE_REASON_RIGHTS, WIRE_GPU, -EPERM, false, "no right to the service gpu"},
	{WIRE_REASON_ENCRYPT, 0, -ENOPROTOOPT, true, "encrypted connections only"},
	{WIRE_REASONS, 0, -ECONNREFUSED, true, "unknown to this program"},
};
_Static_assert(ARRAY_SIZE(refusals) == WIRE_REASONS, "a row for each reason, and one that is unknown");

static struct {
	struct fabric *fabric;
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct fabric_listener *listener;
	const struct refusal *refusal; /* NULL: not in rdmad's words */
	const struct refusal *last;    /* of a request without another transport to try; NULL: the same */
	unsigned requests, choices;
	pthread_t thread;
	_Atomic bool quit;
	char address[64];
} server;

static void refuse(const struct fabric_event *event)
{
	struct wire_reject reject = {.version = WIRE_VERSION};
	struct fabric_request *request = event->request;
	struct wire_request asked;
	uint8_t data[WIRE_REJECT_SIZE];

	server.requests++;
	if (wire_request_decode(&asked, event->data, event->data_len) == WIRE_REASON_NONE)
		server.choices += !!(asked.flags & WIRE_CHOICE);
	if (server.last && !(asked.flags & WIRE_CHOICE))
		server.refusal = server.last;
	if (!server.refusal) {
		fabric_reject(request, "go away", 7);
		return;
	}
	if (server.refusal->reason == WIRE_REASON_VERSION)
		reject.version = (uint16_t)server.refusal->detail;
	reject.reason = (uint16_t)server.refusal->reason;
	reject.detail = server.refusal->detail;
	wire_reject_encode(&reject, data);
	fabric_reject(request, data, sizeof(data));
}

static void *serve(void *arg)
{
	struct fabric_completion completion;
	struct fabric_event event;

	while (!server.quit) {
		fabric_poll(server.queue, &completion, 1);
		while (fabric_next_event(server.queue, &event))
			refuse(&event);
		sched_yield();
	}
	return arg;
}

static void set_up(void)
{
	const struct fabric_queue_attr attr = {.completions = 16};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(fabric_open("soft", NULL, &server.fabric), 0);
	ck_assert_int_eq(fabric_domain_create(server.fabric, &server.domain), 0);
	ck_assert_int_eq(fabric_queue_create(server.domain, &attr, &server.queue), 0);
	ck_assert_int_eq(fabric_listen(server.queue, (struct sockaddr *)&in, sizeof(in), NULL, &server.listener), 0);
	snprintf(server.address, sizeof(server.address), "127.0.0.1:%u", fabric_listener_port(server.listener));
	server.requests = server.choices = 0;
	server.last = NULL;
	server.quit = false;
}

static void start(const struct refusal *refusal)
{
	server.refusal = refusal;
	ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void stop(void)
{
	server.quit = true;
	pthread_join(server.thread, NULL);
}

static void tear_down(void)
{
	fabric_listener_close(server.listener);
	fabric_queue_destroy(server.queue);
	fabric_domain_destroy(server.domain);
	fabric_close(server.fabric);
}

/* Every way into the library ends in the same place. */
static int open_kv(const char *address)
{
	void *kv = NULL;

	return kv_open((char *)address, &kv);
}

static int open_ping(const char *address)
{
	struct rdmad_ping *ping = NULL;

	return rdmad_ping_open(address, &(struct rdmad_ping_options){.depth = 1}, &ping);
}

static int open_gpu(const char *address)
{
	struct rdmad_gpu *gpu = NULL;

	return rdmad_gpu_open(address, &(struct rdmad_gpu_options){.mode = RDMAD_GPU_RPC}, &gpu);
}

static int (*const opens[])(const char *address) = {open_kv, open_ping, open_gpu};

START_TEST(test_refused)
{
	const struct refusal *r = &refusals[_i];
	unsigned each = r->again ? 2 : 1;

	start(r);
	for (unsigned i = 0; i < ARRAY_SIZE(opens); i++) {
		ck_assert_int_eq(opens[i](server.address), r->error);
		ck_assert_msg(strstr(rdmad_error(), r->says), "%s", rdmad_error());
		ck_assert_msg(strstr(rdmad_error(), each == 1 ? "by RDMA: refused: " : "by TCP: refused: "), "%s",
			      rdmad_error());
		ck_assert_ptr_null(strstr(rdmad_error(), "nothing listens"));
	}
	stop();
	ck_assert_uint_eq(server.requests, each * ARRAY_SIZE(opens));
	ck_assert_uint_eq(server.choices, ARRAY_SIZE(opens)); /* with TCP, there is none left */
}
END_TEST

/* A program that is not rdmad says nothing of what listens at the other transport. */
START_TEST(test_refused_by_a_stranger)
{
	start(NULL);
	ck_assert_int_eq(open_kv(server.address), -ECONNREFUSED);
	ck_assert_msg(strstr(rdmad_error(), "by a program that is not rdmad"), "%s", rdmad_error());
	ck_assert_ptr_null(strstr(rdmad_error(), "nothing listens"));
	stop();
	ck_assert_uint_eq(server.requests, 2);
}
END_TEST

/* One that the address names is the only one. */
START_TEST(test_scheme_is_final)
{
	char address[80];

	start(&refusals[WIRE_REASON_RESOURCES - 1]);
	snprintf(address, sizeof(address), "rdma://%s", server.address);
	ck_assert_int_eq(open_kv(address), -ENOBUFS);
	snprintf(address, sizeof(address), "tcp://%s", server.address);
	ck_assert_int_eq(open_kv(address), -ENOBUFS);
	stop();
	ck_assert_uint_eq(server.requests, 2);
	ck_assert_uint_eq(server.choices, 0);
}
END_TEST

/* Where the transport for long values is not there, one for short ones is better than none. */
START_TEST(test_short_values_after_all)
{
	server.last = &refusals[WIRE_REASON_RESOURCES - 1];
	start(&refusals[WIRE_REASON_VALUES - 1]);
	ck_assert_int_eq(open_kv(server.address), -ENOBUFS);
	ck_assert_msg(strstr(rdmad_error(), "by RDMA: refused: "), "%s", rdmad_error());
	stop();
	ck_assert_uint_eq(server.requests, 3);
	ck_assert_uint_eq(server.choices, 1);
}
END_TEST

START_TEST(test_reasons)
{
	ck_assert_int_eq(wire_reason_errno(WIRE_REASON_NONE), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(refusals); i++) {
		ck_assert_int_eq(wire_reason_errno(refusals[i].reason), refusals[i].error);
		ck_assert(wire_reason_final(refusals[i].reason) == !refusals[i].again);
		ck_assert_str_ne(wire_reason_name(refusals[i].reason), "");
		for (unsigned j = 0; j < i; j++)
			ck_assert_int_ne(refusals[i].error, refusals[j].error);
	}
	ck_assert_int_eq(wire_reason_errno(UINT32_MAX), -ECONNREFUSED);
	ck_assert_str_eq(wire_reason_name(UINT32_MAX), "unknown");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("refusal");
	TCase *tc = suite_case(suite, "open", set_up, tear_down);

	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(refusals));
	tcase_add_test(tc, test_refused_by_a_stranger);
	tcase_add_test(tc, test_scheme_is_final);
	tcase_add_test(tc, test_short_values_after_all);
	tcase_add_test(tc, test_reasons);
	return suite_run(suite);
}
