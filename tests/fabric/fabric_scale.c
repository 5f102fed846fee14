/* fabric_scale.c: many endpoints at once, many one after the other, and nothing left behind. */
#include "tests/fabric/fabric_pair.h"
#include "tests/suite.h"

#include <stdlib.h>

#define ENDPOINTS 300
#define MESSAGES 10
#define CYCLES ((int)suite_part(target.slow > 1 ? 300 : 3000))

/* Descriptors of the process, and for verbs the kernel's objects, as text to compare. */
static void count_resources(char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "fds %u", count_descriptors());
	FILE *rdma;
	int c;

	if (!target.verbs)
		return;
	rdma = popen("rdma resource show 2>&1", "r");
	ck_assert_ptr_nonnull(rdma);
	while ((c = fgetc(rdma)) != EOF && used + 2 < size)
		text[used++] = (char)c;
	text[used] = 0;
	ck_assert_int_eq(pclose(rdma), 0);
}

/* Wait until the resources are the same as before; some go a moment later. */
static void expect_resources(struct fabric_pair *p, const char *before)
{
	uint64_t until = deadline();
	char now[4096];

	do {
		fabric_pair_pump_for(p, 5);
		count_resources(now, sizeof(now));
	} while (strcmp(now, before) != 0 && time_now() < until);
	ck_assert_str_eq(now, before);
}

struct crowd {
	struct fabric_endpoint *c[ENDPOINTS], *s[ENDPOINTS];
	unsigned seen[ENDPOINTS];
	struct buffer from, to, inbox;
};

/* Take one message in, check it, and post its receive again. */
static void crowd_take(struct fabric_pair *p, struct crowd *x)
{
	struct fabric_completion c = done_next(p, &p->server, NULL);
	unsigned message[2];

	ck_assert_int_eq(c.status, FABRIC_OK);
	ck_assert_uint_eq(c.bytes, sizeof(message));
	memcpy(message, x->inbox.at + c.id * 64, sizeof(message));
	ck_assert_uint_lt(message[0], ENDPOINTS);
	ck_assert_ptr_eq(c.endpoint, x->s[message[0]]);
	ck_assert_uint_eq(message[1], x->seen[message[0]]++);
	/* The write that went before is here. */
	ck_assert_mem_eq(x->to.at + message[0] * 4096, message, sizeof(message));
	receive(&p->server, NULL, c.id, &x->inbox, c.id * 64, 64);
}

START_TEST(hundreds_of_endpoints)
{
	struct fabric_pair_options options = fabric_pair_shared;
	struct crowd *x = calloc(1, sizeof(*x));
	/* Fewer than messages where the sender waits; Soft-RoCE sends them again and again, and on a busy machine gives up. */
	unsigned receives = target.verbs ? ENDPOINTS : 32;
	char before[4096];
	struct fabric_pair p;

	options.queue.shared_depth = MAX(receives, 64u);
	options.client.send_depth = options.server.send_depth = 8;
	options.client.recv_depth = 4;
	fabric_pair_make(&p, &options);
	buffer_make(&x->from, &p.client, ENDPOINTS * 4096, 0);
	buffer_make(&x->to, &p.server, ENDPOINTS * 4096, FABRIC_REMOTE_WRITE);
	buffer_make(&x->inbox, &p.server, (size_t)receives * 64, FABRIC_LOCAL_WRITE);
	fabric_pair_exercise(&p, p.c, p.s);
	for (uint64_t i = 0; i < receives; i++)
		receive(&p.server, NULL, i, &x->inbox, i * 64, 64);
	count_resources(before, sizeof(before));
	for (int i = 0; i < ENDPOINTS; i++)
		fabric_pair_connect(&p, &x->c[i], &x->s[i]);
	for (unsigned n = 0; n < MESSAGES; n++) {
		for (unsigned i = 0; i < ENDPOINTS; i++) {
			struct fabric_wr send = wr_local(FABRIC_SEND, n, &x->from, i * 4096, 8);
			struct fabric_wr write =
				wr_remote(FABRIC_WRITE, n, &x->from, i * 4096, 4096, &x->to, x->s[i], i * 4096);

			memcpy(x->from.at + i * 4096, (unsigned[]){i, n}, 8);
			write.signaled = false;
			write.next = &send;
			post(x->c[i], &write);
		}
		for (unsigned i = 0; i < ENDPOINTS; i++)
			crowd_take(&p, x);
		for (unsigned i = 0; i < ENDPOINTS; i++)
			done_expect(&p, &p.client, x->c[i], n, FABRIC_SEND, FABRIC_OK);
	}
	for (int i = 0; i < ENDPOINTS; i++)
		fabric_disconnect(i % 2 ? x->c[i] : x->s[i]);
	for (int i = 0; i < ENDPOINTS; i++) {
		event_expect(&p, &p.client, x->c[i], FABRIC_DISCONNECTED);
		event_expect(&p, &p.server, x->s[i], FABRIC_DISCONNECTED);
		station_destroy(&p.client, &x->c[i]);
		station_destroy(&p.server, &x->s[i]);
	}
	expect_resources(&p, before);
	buffer_drop(&x->from);
	buffer_drop(&x->to);
	buffer_drop(&x->inbox);
	free(x);
	fabric_pair_close(&p);
}
END_TEST

/* All connect before the first is answered. */
START_TEST(connects_at_once)
{
	enum { N = 50 };
	struct fabric_endpoint *c[N], *s[N];
	struct fabric_event e;
	struct fabric_pair p;
	int accepted = 0;

	fabric_pair_open(&p, &fabric_pair_defaults);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, &p.options.client, &i, sizeof(i), &c[i]), 0);
	wait_until(&p, p.server.event_count == N);
	for (int i = 0; i < N; i++) {
		int who;

		e = event_expect(&p, &p.server, NULL, FABRIC_REQUEST);
		memcpy(&who, e.data, sizeof(who));
		ck_assert(who >= 0 && who < N);
		if (who % 5 == 0) {
			fabric_reject(e.request, &who, sizeof(who));
			continue;
		}
		ck_assert_int_eq(station_take(&p.server, e.request, &p.options.server, &s[who]), 0);
		ck_assert_int_eq(fabric_accept(s[who], &who, sizeof(who)), 0);
	}
	for (int i = 0; i < N; i++) {
		e = event_expect(&p, &p.client, c[i], i % 5 ? FABRIC_ESTABLISHED : FABRIC_REJECTED);
		ck_assert_mem_eq(e.data, &i, sizeof(i));
		accepted += i % 5 != 0;
	}
	ck_assert_int_eq(p.server.known_count, accepted);
	fabric_pair_exercise(&p, c[1], s[1]);
	fabric_pair_exercise(&p, c[N - 1], s[N - 1]);
	fabric_pair_close(&p);
}
END_TEST

static void one_cycle(struct fabric_pair *p, int i)
{
	struct fabric_wr wr = wr_local(FABRIC_SEND, 1, NULL, 0, 0);

	fabric_pair_connect(p, &p->c, &p->s);
	if (i % 3 == 0)
		post(p->c, &wr);
	if (i % 4 < 3) {
		fabric_disconnect(i % 2 ? p->c : p->s);
		event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
		event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
	}
	station_destroy(&p->client, &p->c);
	station_destroy(&p->server, &p->s);
	p->client.done_count = p->server.done_count = 0;
	p->client.event_count = p->server.event_count = 0;
}

START_TEST(thousands_of_cycles)
{
	char before[4096];
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	for (int i = 0; i < 4; i++)
		one_cycle(&p, i);
	fabric_pair_pump_for(&p, 20);
	count_resources(before, sizeof(before));
	for (int i = 0; i < CYCLES; i++)
		one_cycle(&p, i);
	expect_resources(&p, before);
	fabric_pair_close(&p);
}
END_TEST

/* Refusals of each kind leave nothing behind either. */
START_TEST(refusals_leave_nothing)
{
	char before[4096];
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	fabric_pair_exercise(&p, p.c, p.s);
	count_resources(before, sizeof(before));
	for (int i = 0; i < 60; i++) {
		struct fabric_endpoint *c, *s = NULL;
		struct fabric_request *request;

		ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, &p.options.client, NULL, 0, &c), 0);
		request = event_expect(&p, &p.server, NULL, FABRIC_REQUEST).request;
		if (i % 3 == 0)
			fabric_reject(request, NULL, 0);
		else
			ck_assert_int_eq(station_take(&p.server, request, &p.options.server, &s), 0);
		if (i % 3 == 1)
			station_destroy(&p.server, &s);
		if (i % 3 != 2)
			event_next(&p, &p.client, c);
		station_destroy(&p.client, &c);
		if (s)
			station_destroy(&p.server, &s);
		p.server.event_count = 0;
	}
	expect_resources(&p, before);
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_close(&p);
}
END_TEST

/* Opened and closed again and again, with an endpoint each time. */
START_TEST(whole_fabrics_leave_nothing)
{
	char before[4096], after[4096];
	struct fabric_pair p;

	for (int i = 0; i < 10; i++) {
		if (i == 1)
			count_resources(before, sizeof(before));
		fabric_pair_make(&p, &fabric_pair_shared);
		fabric_pair_exercise(&p, p.c, p.s);
		fabric_pair_close(&p);
	}
	uint64_t until = deadline();

	do
		count_resources(after, sizeof(after));
	while (strcmp(after, before) != 0 && time_now() < until);
	ck_assert_str_eq(after, before);
}
END_TEST

Suite *scale_suite(void)
{
	Suite *s = suite_create("scale");
	TCase *t = fabric_pair_tcase(s, "scale", 60);

	if (target.shared)
		tcase_add_test(t, hundreds_of_endpoints);
	tcase_add_test(t, connects_at_once);
	tcase_add_test(t, thousands_of_cycles);
	tcase_add_test(t, refusals_leave_nothing);
	if (target.shared)
		tcase_add_test(t, whole_fabrics_leave_nothing);
	return s;
}
