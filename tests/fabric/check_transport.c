/* check_transport.c: the table of transports, the addresses that mean them, and a provider that has nothing. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "fabric/provider.h"
#include "fabric/verbs/verbs.h"
#include "tests/suite.h"

START_TEST(test_row)
{
	const struct fabric_transport *t = &fabric_transports[_i];
	struct address address;
	char text[64];

	ck_assert_str_eq(fabric_transport_name((unsigned)_i), t->name);
	ck_assert_ptr_eq(fabric_transport_find(t->name), t);
	ck_assert(*t->name && *t->text && *fabric_transport_provider(t));
	ck_assert_uint_lt(strlen(t->name), sizeof(address.scheme));
	ck_assert(!(t->path && t->plain)); /* a path has no meaning without a scheme */
	snprintf(text, sizeof(text), "%s://%s", t->name, t->path ? "/some/path" : "127.0.0.1:9");
	if (t->inside) { /* no address means it */
		ck_assert(!t->plain && !t->path && !t->device);
		ck_assert_int_eq(fabric_address_parse(text, &address), -EINVAL);
		return;
	}
	ck_assert_int_eq(fabric_address_parse(text, &address), 0);
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		ck_assert(fabric_transport_serves(&fabric_transports[i], &address) == (i == (unsigned)_i));
	ck_assert_ptr_eq(fabric_transport_of(&address), t);
	/* The other form. */
	snprintf(text, sizeof(text), "%s://%s", t->name, t->path ? "name" : "/some/path");
	ck_assert_int_eq(fabric_address_parse(text, &address), -EINVAL);
}
END_TEST

/* What one host may choose freely is one source. */
START_TEST(test_sources)
{
	static const struct {
		const char *first, *second;
		bool same;
	} pairs[] = {
		{"127.0.0.1", "127.255.0.7", true},
		{"127.0.0.1", "::1", true},
		{"127.0.0.1", "::ffff:127.0.0.9", true},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"10.0.0.1", "127.0.0.1", false},
		{"2001:db8::1", "2001:db8::ffff:0:0:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1", "fe80::1", true},
		{"fe80::1", "fe80::2", false},
		{"fe80::1", "%fe80::1", false}, /* by another link */
		{"::1", "::2", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		struct fabric_source source[2];

		for (int j = 0; j < 2; j++) {
			const char *text = j ? pairs[i].second : pairs[i].first;
			struct sockaddr_in6 six = {.sin6_family = AF_INET6};
			struct sockaddr_in four = {.sin_family = AF_INET};
			bool is_six;

			six.sin6_scope_id = *text == '%' ? 2 : 1;
			text += *text == '%';
			is_six = inet_pton(AF_INET6, text, &six.sin6_addr) == 1;

			ck_assert(is_six || inet_pton(AF_INET, text, &four.sin_addr) == 1);
			fabric_source_of(is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four, &source[j]);
		}
		ck_assert_msg(fabric_source_same(&source[0], &source[1]) == pairs[i].same, "%s and %s", pairs[i].first,
			      pairs[i].second);
	}
}
END_TEST

START_TEST(test_table)
{
	unsigned processors = 0, devices = 0;

	ck_assert_ptr_null(fabric_transport_name(FABRIC_TRANSPORTS));
	ck_assert_ptr_null(fabric_transport_find("pigeon"));
	ck_assert_ptr_null(fabric_transport_find(""));
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		processors += fabric_transports[i].processor;
		devices += fabric_transports[i].device;
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(fabric_transports[i].name, fabric_transports[j].name);
	}
	/* rdmad is usable without a device, and offers what moves bytes by one. */
	ck_assert(processors && devices && processors < FABRIC_TRANSPORTS);
}
END_TEST

START_TEST(test_plain_addresses)
{
	struct address address;

	ck_assert_int_eq(fabric_address_parse("[::1]:80", &address), 0);
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		ck_assert(fabric_transport_serves(&fabric_transports[i], &address) == fabric_transports[i].plain);
}
END_TEST

/* Which schemes there are comes from the table. */
START_TEST(test_unknown_scheme)
{
	struct address address;
	char scheme[32];

	log_set_handler(log_keep);
	ck_assert_int_eq(fabric_address_parse("pigeon://loft", &address), -EINVAL);
	ck_assert_ptr_nonnull(strstr(log_last(), "\"pigeon://loft\" is not an address: there is no such scheme"));
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		snprintf(scheme, sizeof(scheme), "%s://", fabric_transports[i].name);
		ck_assert_msg(!strstr(log_last(), scheme) == fabric_transports[i].inside, "%s, %s", log_last(), scheme);
	}
}
END_TEST

/*
 * A provider that has a name and nothing else.
 */
static struct fabric_provider empty;
static struct fabric fabric = {&empty};
static struct fabric_domain domain = {&empty, &fabric};
static struct fabric_queue queue = {.ops = &empty};
static struct fabric_listener listener = {&empty, &queue};
static struct fabric_request request = {&empty};
static struct fabric_endpoint endpoint = {&empty, &queue};
static char memory[64];
static struct fabric_region region = {&empty, memory, sizeof(memory), FABRIC_WINDOWS};
static struct fabric_window window = {&empty, 0};

static void set_up(void)
{
	fabric_provider_complete(&empty, &(struct fabric_provider){.name = "empty"});
}

START_TEST(test_nothing_is_made)
{
	const struct fabric_config config = {0};
	const struct fabric_queue_attr queue_attr = {0};
	const struct fabric_endpoint_attr attr = {0};
	const struct sockaddr sa = {.sa_family = AF_INET};
	struct fabric *f = NULL;
	struct fabric_domain *d = NULL;
	struct fabric_queue *q = NULL;
	struct fabric_listener *l = NULL;
	struct fabric_endpoint *e = NULL;
	struct fabric_region *r = NULL;
	struct fabric_window *w = NULL;

	ck_assert_int_eq(empty.open(&config, &f), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_domain_create(&fabric, &d), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_queue_create(&domain, &queue_attr, &q), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_listen(&queue, &sa, sizeof(sa), NULL, &l), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_connect(&queue, &domain, &sa, sizeof(sa), &attr, NULL, 0, &e), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_take(&queue, &domain, &request, &attr, &e), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_accept(&endpoint, NULL, 0), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_register(&domain, memory, sizeof(memory), 0, &r), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_window_open(&endpoint, &region, memory, 8, FABRIC_REMOTE_READ, &w), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_post_recv(&queue, NULL, &(struct fabric_recv){.id = 1}, 1), -EOPNOTSUPP);
	ck_assert_int_eq(fabric_post(&endpoint, &(struct fabric_wr){.opcode = FABRIC_SEND}), -EOPNOTSUPP);
	ck_assert(!f && !d && !q && !l && !e && !r && !w);
}
END_TEST

START_TEST(test_nothing_is_found)
{
	struct fabric_limits limits = {.max_send_depth = 1, .windows = true};
	struct fabric_completion completion;
	struct fabric_event event;
	int fds[FABRIC_MAX_FDS];
	struct fabric_source source = {.family = AF_INET};
	char text[32] = "";

	fabric_limits(&fabric, &limits);
	ck_assert(!limits.max_send_depth && !limits.windows);
	ck_assert_str_eq(fabric_devices(&fabric, text, sizeof(text)), "");
	ck_assert(fabric_hold_devices(&fabric));
	fabric_release_devices(&fabric);
	ck_assert(!fabric_has(&fabric, &fabric_transports[0]));
	ck_assert_uint_eq(fabric_listener_port(&listener), 0);
	ck_assert_str_ne(fabric_request_peer(&request, text, sizeof(text)), "");
	fabric_request_source(&request, &source);
	ck_assert_uint_eq(source.family, AF_UNSPEC);
	ck_assert_str_ne(fabric_endpoint_peer(&endpoint, text, sizeof(text)), "");
	ck_assert_str_ne(fabric_endpoint_transport(&endpoint)->name, "");
	ck_assert_uint_eq(fabric_region_rkey(&region, &endpoint), 0);
	ck_assert_int_eq(fabric_poll(&queue, &completion, 1), 0);
	ck_assert_int_eq(fabric_next_event(&queue, &event), 0);
	ck_assert(!fabric_moving(&queue));
	ck_assert_uint_eq(fabric_moved_bytes(&endpoint), FABRIC_MOVED_UNKNOWN);
	ck_assert_int_eq(fabric_arm(&queue), 0);
	ck_assert_int_eq(fabric_fds(&queue, fds), 0);
}
END_TEST

START_TEST(test_nothing_is_done)
{
	fabric_reject(&request, NULL, 0);
	fabric_disconnect(&endpoint);
	fabric_endpoint_destroy(&endpoint);
	fabric_window_close(&window);
	fabric_deregister(&region);
	fabric_listener_close(&listener);
	fabric_queue_destroy(&queue);
	fabric_domain_destroy(&domain);
	fabric_close(&fabric);
}
END_TEST

/* What a provider has of its own stays. */
static int own_arm(struct fabric_queue *q)
{
	return q == &queue ? 7 : -EINVAL;
}

START_TEST(test_own_functions)
{
	fabric_provider_complete(&empty, &(struct fabric_provider){.name = "nearly empty", .arm = own_arm});
	ck_assert_int_eq(fabric_arm(&queue), 7);
	ck_assert(!fabric_moving(&queue));
}
END_TEST

static const struct {
	const char *text, *name;
	unsigned port;
	int rc;
} wanted[] = {
	{NULL, "", 0, 0},
	{"mlx5_0", "mlx5_0", 0, 0},
	{"mlx5_0:2", "mlx5_0", 2, 0},
	{"rxe0:255", "rxe0", 255, 0},
	{"a:b:1", "a:b", 1, 0},
	{"", NULL, 0, -EINVAL},
	{":1", NULL, 0, -EINVAL},
	{"mlx5_0:", NULL, 0, -EINVAL},
	{"mlx5_0:0", NULL, 0, -EINVAL},
	{"x:256", NULL, 0, -EINVAL},
	{"x:-1", NULL, 0, -EINVAL},
	{"x:1a", NULL, 0, -EINVAL},
	{"x: 1", NULL, 0, -EINVAL},
	{"x:99999999999999999999", NULL, 0, -EINVAL},
};

/* A device, and one of its ports. */
START_TEST(test_wanted_device)
{
	struct verbs_wanted out;

	ck_assert_int_eq(verbs_wanted_parse(wanted[_i].text, &out), wanted[_i].rc);
	if (wanted[_i].rc != 0)
		return;
	ck_assert_str_eq(out.name, wanted[_i].name);
	ck_assert_uint_eq(out.port, wanted[_i].port);
}
END_TEST

/* No fabric of a device that nobody has, or of a port that cannot be. */
START_TEST(test_no_such_device)
{
	struct fabric_config config = {.device = "none_such:x"};
	struct fabric *opened;

	ck_assert_int_eq(fabric_open("verbs", &config, &opened), -ENODEV);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("transport");
	TCase *tc = suite_case(suite, "table", NULL, NULL);

	tcase_add_loop_test(tc, test_row, 0, FABRIC_TRANSPORTS);
	tcase_add_test(tc, test_table);
	tcase_add_test(tc, test_sources);
	tcase_add_test(tc, test_plain_addresses);
	tcase_add_test(tc, test_unknown_scheme);
	tc = suite_case(suite, "devices", NULL, NULL);
	tcase_add_loop_test(tc, test_wanted_device, 0, ARRAY_SIZE(wanted));
	tcase_add_test(tc, test_no_such_device);
	tc = suite_case(suite, "provider", set_up, NULL);
	tcase_add_test(tc, test_nothing_is_made);
	tcase_add_test(tc, test_nothing_is_found);
	tcase_add_test(tc, test_nothing_is_done);
	tcase_add_test(tc, test_own_functions);
	return suite_run(suite);
}
