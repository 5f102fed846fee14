/* fabric_window.c: windows, which one endpoint's peer may use, and domains, which keep endpoints apart. */
#include "tests/fabric/fabric_pair.h"

#include <stdlib.h>

#define BOTH (FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE)
#define PAGE 4096

/* Three pages that no key but a window's opens, of which windows show the middle one; and a second connection
 * of the same domains. */
struct scene {
	struct fabric_pair p;
	struct buffer mine, theirs;
	struct fabric_endpoint *c2, *s2;
	struct fabric_window *window;
};

/* False: the device has no windows. */
static bool scene_open(struct scene *x, unsigned access)
{
	int rc;

	*x = (struct scene){.window = NULL};
	fabric_pair_make(&x->p, &fabric_pair_defaults);
	fabric_pair_connect(&x->p, &x->c2, &x->s2);
	buffer_make(&x->mine, &x->p.client, PAGE, sink_rights());
	buffer_make(&x->theirs, &x->p.server, 3 * PAGE, FABRIC_WINDOWS);
	memset(x->mine.at, 0x11, x->mine.len);
	memset(x->theirs.at, 0xee, x->theirs.len);
	rc = fabric_window_open(x->p.s, x->theirs.region, x->theirs.at + PAGE, PAGE, access, &x->window);
	ck_assert_int_eq(rc, x->p.limits.windows ? 0 : -EOPNOTSUPP);
	return x->p.limits.windows;
}

static void scene_close(struct scene *x)
{
	fabric_window_close(x->window);
	ck_assert_int_eq(x->p.client.done_count + x->p.server.done_count, 0);
	buffer_drop(&x->mine);
	buffer_drop(&x->theirs);
	fabric_pair_close(&x->p);
}

/* A signaled request for [offset, offset + len) of their pages by `key`. */
static struct fabric_wr request(const struct scene *x, enum fabric_opcode opcode, uint32_t key, int64_t offset,
				size_t len)
{
	struct fabric_wr wr = wr_local(opcode, 1, &x->mine, 0, len);

	wr.rkey = key;
	wr.remote_addr = (uintptr_t)x->theirs.at + (uint64_t)offset;
	return wr;
}

static void expect_all(const struct buffer *b, uint8_t value)
{
	for (size_t i = 0; i < b->len; i++)
		check_that(b->at[i] == value, "byte %zu was touched", i);
}

/* The request on `c` fails, touches nothing, and ends that connection. */
static void expect_end(struct scene *x, struct fabric_endpoint *c, struct fabric_endpoint *s,
		       const struct fabric_wr *wr)
{
	struct fabric_pair *p = &x->p;

	post(c, wr);
	done_expect(p, &p->client, c, 1, wr->opcode, FABRIC_REMOTE_ACCESS);
	event_expect(p, &p->client, c, FABRIC_DISCONNECTED);
	event_expect(p, &p->server, s, FABRIC_DISCONNECTED);
	expect_all(&x->mine, 0x11);
	expect_all(&x->theirs, 0xee);
}

/* The same, and the other connection does not notice. */
static void expect_refused(struct scene *x, struct fabric_endpoint *c, struct fabric_endpoint *s,
			   const struct fabric_wr *wr)
{
	expect_end(x, c, s, wr);
	fabric_pair_exercise(&x->p, c == x->p.c ? x->c2 : x->p.c, c == x->p.c ? x->s2 : x->p.s);
}

START_TEST(within)
{
	struct scene x;
	struct fabric_wr wr;

	if (scene_open(&x, BOTH)) {
		wr = request(&x, FABRIC_WRITE, fabric_window_rkey(x.window), PAGE, PAGE);
		post(x.p.c, &wr);
		done_expect(&x.p, &x.p.client, x.p.c, 1, FABRIC_WRITE, FABRIC_OK);
		for (size_t i = 0; i < 3 * PAGE; i++)
			check_that(x.theirs.at[i] == (i / PAGE == 1 ? 0x11 : 0xee), "byte %zu", i);
		memset(x.theirs.at + 2 * PAGE - 100, 0x22, 100);
		wr = request(&x, FABRIC_READ, fabric_window_rkey(x.window), 2 * PAGE - 100, 100);
		post(x.p.c, &wr);
		done_expect(&x.p, &x.p.client, x.p.c, 1, FABRIC_READ, FABRIC_OK);
		ck_assert_mem_eq(x.mine.at, x.theirs.at + 2 * PAGE - 100, 100);
	}
	scene_close(&x);
}
END_TEST

static const struct refusal {
	enum fabric_opcode opcode;
	unsigned access;
	int64_t offset;
	size_t len;
} refusals[] = {
	{FABRIC_WRITE, BOTH, PAGE + 3997, 100},
	{FABRIC_READ, BOTH, PAGE + 3997, 100},
	{FABRIC_WRITE, BOTH, PAGE - 1, 100},
	{FABRIC_READ, BOTH, PAGE - 1, 100},
	{FABRIC_WRITE, BOTH, 2 * PAGE, 8},
	{FABRIC_READ, BOTH, 0, 8},
	{FABRIC_WRITE, FABRIC_REMOTE_READ, PAGE, 100},
	{FABRIC_READ, FABRIC_REMOTE_WRITE, PAGE, 100},
};

START_TEST(outside)
{
	const struct refusal *r = &refusals[_i];
	struct scene x;

	if (scene_open(&x, r->access)) {
		struct fabric_wr wr = request(&x, r->opcode, fabric_window_rkey(x.window), r->offset, r->len);

		expect_refused(&x, x.p.c, x.p.s, &wr);
	}
	scene_close(&x);
}
END_TEST

/* Windows may be opened onto the region; its own key gives the peer nothing. */
START_TEST(own_key_of_the_region)
{
	struct scene x;

	if (scene_open(&x, BOTH)) {
		struct fabric_wr wr = request(&x, _i ? FABRIC_READ : FABRIC_WRITE,
					      fabric_region_rkey(x.theirs.region, x.p.s), PAGE, 8);

		expect_refused(&x, x.p.c, x.p.s, &wr);
	}
	scene_close(&x);
}
END_TEST

START_TEST(another_endpoint)
{
	struct scene x;

	if (scene_open(&x, BOTH)) {
		struct fabric_wr wr =
			request(&x, _i ? FABRIC_READ : FABRIC_WRITE, fabric_window_rkey(x.window), PAGE, 8);

		expect_refused(&x, x.c2, x.s2, &wr);
		post(x.p.c, &wr); /* whose it is */
		done_expect(&x.p, &x.p.client, x.p.c, 1, wr.opcode, FABRIC_OK);
	}
	scene_close(&x);
}
END_TEST

/* The key is void, though another window is still open onto the same memory. */
START_TEST(closed)
{
	struct fabric_window *other = NULL;
	struct scene x;

	if (scene_open(&x, BOTH)) {
		struct fabric_wr wr =
			request(&x, _i ? FABRIC_READ : FABRIC_WRITE, fabric_window_rkey(x.window), PAGE, 8);

		ck_assert_int_eq(fabric_window_open(x.p.s, x.theirs.region, x.theirs.at, 3 * PAGE, BOTH, &other), 0);
		ck_assert_uint_ne(fabric_window_rkey(other), fabric_window_rkey(x.window));
		fabric_window_close(x.window);
		x.window = NULL;
		expect_refused(&x, x.p.c, x.p.s, &wr);
		fabric_window_close(other);
	}
	scene_close(&x);
}
END_TEST

START_TEST(arguments)
{
	struct fabric_window *none = NULL;
	struct fabric_domain *domain;
	struct fabric_region *foreign;
	struct buffer plain;
	struct scene x;

	if (scene_open(&x, BOTH)) {
		const struct {
			const struct fabric_region *region;
			uint8_t *at;
			size_t len;
			unsigned access;
			int rc;
		} calls[] = {
			{x.theirs.region, x.theirs.at, 0, BOTH, -EINVAL},
			{x.theirs.region, x.theirs.at, 3 * PAGE + 1, BOTH, -EINVAL},
			{x.theirs.region, x.theirs.at - 1, PAGE, BOTH, -EINVAL},
			{x.theirs.region, x.theirs.at + 3 * PAGE, 1, BOTH, -EINVAL},
			{x.theirs.region, x.theirs.at + 1, SIZE_MAX, BOTH, -EINVAL},
			{x.theirs.region, x.theirs.at, PAGE, 0, -EINVAL},
			{x.theirs.region, x.theirs.at, PAGE, FABRIC_LOCAL_WRITE, -EINVAL},
		};

		for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
			ck_assert_int_eq(fabric_window_open(x.p.s, calls[i].region, calls[i].at, calls[i].len,
							    calls[i].access, &none),
					 calls[i].rc);
		buffer_make(&plain, &x.p.server, PAGE, BOTH);
		ck_assert_int_eq(fabric_window_open(x.p.s, plain.region, plain.at, 8, BOTH, &none), -EINVAL);
		ck_assert_int_eq(fabric_domain_create(x.p.fabric, &domain), 0);
		ck_assert_int_eq(fabric_register(domain, plain.at, PAGE, FABRIC_WINDOWS, &foreign), 0);
		ck_assert_int_eq(fabric_window_open(x.p.s, foreign, plain.at, 8, BOTH, &none), -EINVAL);
		fabric_disconnect(x.p.s);
		ck_assert_int_eq(fabric_window_open(x.p.s, x.theirs.region, x.theirs.at, 8, BOTH, &none), -ENOTCONN);
		ck_assert_ptr_null(none);
		fabric_window_close(NULL);
		fabric_deregister(foreign);
		fabric_domain_destroy(domain);
		buffer_drop(&plain);
	}
	scene_close(&x);
}
END_TEST

static struct fabric_window *open_patiently(struct scene *x, size_t offset, size_t len)
{
	struct fabric_window *window;
	int rc;

	while ((rc = fabric_window_open(x->p.s, x->theirs.region, x->theirs.at + offset, len, BOTH, &window)) ==
	       -EAGAIN)
		fabric_pair_pump(&x->p);
	ck_assert_int_eq(rc, 0);
	return window;
}

/* Opened, told to the peer by a message, used at once by the peer, closed: more often than send_depth. */
START_TEST(told_by_a_message)
{
	struct buffer outbox;
	struct scene x;

	if (scene_open(&x, BOTH)) {
		struct fabric_pair *p = &x.p;

		buffer_make(&outbox, &p->server, 8, 0);
		for (uint64_t i = 0; i < 200; i++) {
			struct fabric_window *w = open_patiently(&x, i % 8 * 1000, 1000);
			struct fabric_wr tell = wr_local(FABRIC_SEND, i, &outbox, 0, 4), use;
			uint32_t key = fabric_window_rkey(w);

			memcpy(outbox.at, &key, sizeof(key));
			receive(&p->client, p->c, i, &x.mine, 0, 8);
			post(p->s, &tell);
			done_expect(p, &p->client, p->c, i, FABRIC_RECV, FABRIC_OK);
			memcpy(&key, x.mine.at, sizeof(key));
			use = request(&x, i % 2 ? FABRIC_READ : FABRIC_WRITE, key, (int64_t)(i % 8 * 1000), 1000);
			post(p->c, &use);
			done_expect(p, &p->client, p->c, 1, use.opcode, FABRIC_OK);
			done_expect(p, &p->server, p->s, i, FABRIC_SEND, FABRIC_OK);
			fabric_window_close(w);
		}
		buffer_drop(&outbox);
	}
	scene_close(&x);
}
END_TEST

/* More than send_depth at once, with nothing else posted that would bring completions. */
START_TEST(many)
{
	struct fabric_window *windows[150];
	struct scene x;

	if (scene_open(&x, BOTH)) {
		for (size_t i = 0; i < ARRAY_SIZE(windows); i++) {
			windows[i] = open_patiently(&x, i * 8, 8);
			for (size_t j = 0; j < i; j++)
				ck_assert_uint_ne(fabric_window_rkey(windows[i]), fabric_window_rkey(windows[j]));
		}
		for (size_t i = 0; i < ARRAY_SIZE(windows); i++) {
			struct fabric_wr wr =
				request(&x, FABRIC_WRITE, fabric_window_rkey(windows[i]), (int64_t)i * 8, 8);

			post(x.p.c, &wr);
			done_expect(&x.p, &x.p.client, x.p.c, 1, FABRIC_WRITE, FABRIC_OK);
		}
		fabric_pair_exercise(&x.p, x.p.c, x.p.s);
		for (size_t i = 0; i < ARRAY_SIZE(windows); i++)
			fabric_window_close(windows[i * 7 % ARRAY_SIZE(windows)]);
	}
	scene_close(&x);
}
END_TEST

/* No completion tells of one that was opened last, and the endpoint may go first. */
START_TEST(endpoint_goes_first)
{
	struct scene x;

	if (scene_open(&x, BOTH)) {
		struct fabric_pair *p = &x.p;
		struct fabric_wr wr = request(&x, FABRIC_WRITE, fabric_window_rkey(x.window), PAGE, 8);

		if (_i) {
			fabric_disconnect(p->s);
			event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
			ck_assert_int_eq(p->server.done_count, 0);
		}
		station_destroy(&p->server, &p->s);
		event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
		station_destroy(&p->client, &p->c);
		fabric_pair_connect(p, &p->c, &p->s); /* another, maybe in the same place */
		expect_refused(&x, p->c, p->s, &wr);
	}
	scene_close(&x);
}
END_TEST

/*
 * Domains: two endpoints of one queue, the second in a domain of its own, and a region in each.
 */
static void reconnect_in(struct scene *x, struct fabric_domain *domain)
{
	struct fabric_pair *p = &x->p;
	struct fabric_domain *queues = p->server.domain;

	station_destroy(&p->server, &x->s2);
	event_expect(p, &p->client, x->c2, FABRIC_DISCONNECTED);
	station_destroy(&p->client, &x->c2);
	p->server.domain = domain;
	fabric_pair_connect(p, &x->c2, &x->s2);
	p->server.domain = queues;
}

START_TEST(domains_apart)
{
	enum fabric_opcode opcode = _i % 2 ? FABRIC_READ : FABRIC_WRITE;
	struct fabric_region *regions[2];
	struct fabric_domain *own;
	struct fabric_wr wr;
	struct scene x;
	struct fabric_pair *p = &x.p;

	scene_open(&x, BOTH);
	ck_assert_int_eq(fabric_domain_create(p->fabric, &own), 0);
	reconnect_in(&x, own);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fabric_register(i ? own : p->server.domain, x.theirs.at, 3 * PAGE, BOTH, &regions[i]),
				 0);
	wr = request(&x, opcode, fabric_region_rkey(regions[_i / 2], p->s), PAGE, 8);
	if (_i / 2)
		expect_end(&x, p->c, p->s, &wr);
	else
		expect_end(&x, x.c2, x.s2, &wr);
	post(_i / 2 ? x.c2 : p->c, &wr);
	done_expect(p, &p->client, NULL, 1, opcode, FABRIC_OK);
	station_destroy(&p->server, &x.s2);
	fabric_deregister(regions[0]);
	fabric_deregister(regions[1]);
	fabric_domain_destroy(own);
	scene_close(&x);
}
END_TEST

Suite *window_suite(void)
{
	Suite *s = suite_create("window");
	TCase *t = fabric_pair_tcase(s, "window", 40);

	tcase_add_test(t, within);
	tcase_add_loop_test(t, outside, 0, ARRAY_SIZE(refusals));
	tcase_add_loop_test(t, own_key_of_the_region, 0, 2);
	tcase_add_loop_test(t, another_endpoint, 0, 2);
	tcase_add_loop_test(t, closed, 0, 2);
	tcase_add_test(t, arguments);
	tcase_add_test(t, told_by_a_message);
	tcase_add_test(t, many);
	tcase_add_loop_test(t, endpoint_goes_first, 0, 2);
	t = fabric_pair_tcase(s, "domain", 40);
	tcase_add_loop_test(t, domains_apart, 0, 4);
	return s;
}
