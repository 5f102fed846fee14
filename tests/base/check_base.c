/* check_base.c: log, units, addresses, histogram, list and ring. */
#include <check.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/local.h"
#include "base/thread.h"
#include "tests/suite.h"

START_TEST(test_size_forms)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0},
		    {"4096", 4096},
		    {"4K", 4096},
		    {"4KiB", 4096},
		    {"1.5G", 1610612736},
		    {"3000000000", 3000000000},
		    {"2t", 2ull << 40},
		    {"9007199254740993", 9007199254740993ull}};
	static const char *const bad[] = {"", "K", "-1", "+1", " 1", "1 K", "1x", "1e3", "0x10", "1.2.3"};
	uint64_t out = 7;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_int_eq(units_parse_size(good[i].text, &out), 0);
		ck_assert_uint_eq(out, good[i].bytes);
	}
	out = 7;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(units_parse_size(bad[i], &out), -EINVAL);
	ck_assert_int_eq(units_parse_size("9999999T", &out), -ERANGE);
	ck_assert_uint_eq(out, 7);
}
END_TEST

START_TEST(test_time_forms)
{
	uint64_t out;
	char buf[32];

	ck_assert_int_eq(units_parse_time("20us", &out), 0);
	ck_assert_uint_eq(out, 20 * TIME_US);
	ck_assert_int_eq(units_parse_time("1.5s", &out), 0);
	ck_assert_uint_eq(out, 1500 * TIME_MS);
	ck_assert_int_eq(units_parse_time("0", &out), 0);
	ck_assert_int_eq(units_parse_time("20", &out), -EINVAL);
	ck_assert_str_eq(units_format_time(20 * TIME_US, buf), "20us");
	ck_assert_str_eq(units_format_time(0, buf), "0");
	ck_assert_str_eq(units_format_size(4096, buf), "4K");
	ck_assert_str_eq(units_format_size(1000, buf), "1000");
	ck_assert_str_eq(units_human_size(1565873, buf), "1.49 MiB");
}
END_TEST

START_TEST(test_number_range)
{
	uint64_t out;

	ck_assert_int_eq(units_parse_number("12", 1, 20, &out), 0);
	ck_assert_uint_eq(out, 12);
	ck_assert_int_eq(units_parse_number("21", 1, 20, &out), -ERANGE);
	ck_assert_int_eq(units_parse_number("-1", 0, 20, &out), -EINVAL);
	ck_assert_int_eq(units_parse_number("99999999999999999999", 0, UINT64_MAX, &out), -EINVAL);
}
END_TEST

START_TEST(test_address_forms)
{
	static const struct {
		const char *text, *scheme, *host;
		unsigned port;
		bool path, port_given;
	} good[] = {{"localhost", "", "localhost", 7471, false, false},
		    {"10.0.0.1:80", "", "10.0.0.1", 80, false, true},
		    {"rdma://h", "rdma", "h", 7471, false, false},
		    {"tcp://[::1]:5", "tcp", "::1", 5, false, true},
		    {"[::1]", "", "::1", 7471, false, false},
		    {"::1", "", "::1", 7471, false, false},
		    {"unix:///run/x.sock", "unix", "/run/x.sock", 0, true, false},
		    {"any://name", "any", "name", 7471, false, false}};
	static const char *const bad[] = {"",
					  ":1",
					  "h:",
					  "h:99999",
					  "://h",
					  "/x",
					  "tcp://",
					  "[::1",
					  "[::1]5",
					  "a[::1]",
					  "a]",
					  "a/b:1",
					  "sixteen-letters-://h"};
	struct address a;

	log_set_handler(log_keep);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_int_eq(address_parse(good[i].text, &a), 0);
		ck_assert_str_eq(a.scheme, good[i].scheme);
		ck_assert_str_eq(a.host, good[i].host);
		ck_assert_uint_eq(a.port, good[i].port);
		ck_assert_msg(a.path == good[i].path && a.port_given == good[i].port_given, "%s", good[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		log_clear_last();
		ck_assert_msg(address_parse(bad[i], &a) == -EINVAL, "%s", bad[i]);
		ck_assert_ptr_nonnull(strstr(log_last(), "is not an address"));
	}
}
END_TEST

/* A file that is no socket, one that answers, and one whose program is gone. */
START_TEST(test_address_stale)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr *sa = (struct sockaddr *)&un;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/check-base-%d", (int)getpid());
	ck_assert(!local_is_stale(un.sun_path));
	ck_assert_int_eq(bind(fd, sa, sizeof(un)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert(!local_is_stale(un.sun_path));
	close(fd);
	ck_assert(local_is_stale(un.sun_path));
	unlink(un.sun_path);
	snprintf(un.sun_path, sizeof(un.sun_path), "/dev/null");
	ck_assert(!local_is_stale(un.sun_path));
}
END_TEST

/* A resolver of the test's own: "several" has both kinds of address, some of them twice. */
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
	static const char *const several[] = {"::1", "127.0.0.1", "::1", "10.0.0.1", "127.0.0.1"};
	struct addrinfo **end = out;

	if (strcmp(host, "several") != 0)
		return __real_getaddrinfo(host, port, hints, out);
	for (size_t i = 0; i < ARRAY_SIZE(several); i++) {
		int rc = __real_getaddrinfo(several[i], port, hints, end);

		if (rc != 0)
			return rc;
		while (*end)
			end = &(*end)->ai_next;
	}
	return 0;
}

START_TEST(test_address_resolves)
{
	static const char *const several[] = {"[::1]:80", "127.0.0.1:80", "10.0.0.1:80"};
	struct address_socket found[ADDRESS_SOCKETS];
	struct address a;
	char buf[128];

	ck_assert_int_eq(address_parse("127.0.0.1:80", &a), 0);
	ck_assert_int_eq(address_resolve(&a, found), 1);
	ck_assert_str_eq(address_format_socket((struct sockaddr *)&found[0].sa, buf, sizeof(buf)), "127.0.0.1:80");
	ck_assert_int_eq(address_parse("unix:///tmp/x", &a), 0);
	ck_assert_int_eq(address_resolve(&a, found), 1);
	ck_assert_str_eq(((struct sockaddr_un *)&found[0].sa)->sun_path, "/tmp/x");
	ck_assert_int_eq(address_parse("several:80", &a), 0);
	ck_assert_int_eq(address_resolve(&a, found), ARRAY_SIZE(several));
	for (size_t i = 0; i < ARRAY_SIZE(several); i++)
		ck_assert_str_eq(address_format_socket((struct sockaddr *)&found[i].sa, buf, sizeof(buf)), several[i]);
}
END_TEST

/* Only what the user and the environment of the process leave open. */
START_TEST(test_address_runtime_path)
{
	static const char *const elsewhere[] = {NULL, "", "relative"};
	char buf[128], expected[128];

	ck_assert_str_eq(address_runtime_path("a.sock", "b.sock", "/run/x", buf, sizeof(buf)), "/run/x/a.sock");
	snprintf(expected, sizeof(expected), "%s", geteuid() == 0 ? "/run/rdmad/a.sock" : "/user/b.sock");
	setenv("XDG_RUNTIME_DIR", "/user", 1);
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++)
		ck_assert_str_eq(address_runtime_path("a.sock", "b.sock", elsewhere[i], buf, sizeof(buf)), expected);
	if (geteuid() != 0)
		snprintf(expected, sizeof(expected), "/tmp/rdmad-%u/a.sock", (unsigned)geteuid());
	unsetenv("XDG_RUNTIME_DIR");
	ck_assert_str_eq(address_runtime_path("a.sock", "b.sock", NULL, buf, sizeof(buf)), expected);
}
END_TEST

static void expect_directory(const char *base, const char *suffix)
{
	char buf[64], expected[64];

	snprintf(expected, sizeof(expected), "%s%s", base, suffix);
	ck_assert_str_eq(address_own_directory(buf, sizeof(buf)), expected);
}

/* A user whom nobody else is, and whose name others take. */
START_TEST(test_address_own_directory)
{
	uid_t uid = 1000000 + (uid_t)getpid();
	char base[48], first[64];

	if (geteuid() != 0)
		return;
	snprintf(base, sizeof(base), "/tmp/rdmad-%u", (unsigned)uid);
	snprintf(first, sizeof(first), "%s.1", base);
	ck_assert_int_eq(seteuid(uid), 0);
	expect_directory(base, "");
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(mkdir(base, 0755), 0);
	ck_assert_int_eq(seteuid(uid), 0);
	expect_directory(base, ".1");
	ck_assert_int_eq(mkdir(first, 0700), 0);
	expect_directory(base, ".1");
	ck_assert_int_eq(chmod(first, 0770), 0);
	expect_directory(base, ".2");
	/* It stays where it is. */
	ck_assert_int_eq(chmod(first, 0700), 0);
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(rmdir(base), 0);
	ck_assert_int_eq(symlink(first, base), 0);
	ck_assert_int_eq(seteuid(uid), 0);
	expect_directory(base, ".1");
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(unlink(base), 0);
	ck_assert_int_eq(seteuid(uid), 0);
	expect_directory(base, ".1");
	ck_assert_int_eq(rmdir(first), 0);
	ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

START_TEST(test_address_loopback)
{
	static const struct {
		const char *text;
		bool loopback, unspecified;
	} cases[] = {{"127.0.0.1:80", true, false},
		     {"127.9.9.9:80", true, false},
		     {"[::1]:80", true, false},
		     {"[::ffff:127.0.0.1]:80", true, false},
		     {"128.0.0.1:80", false, false},
		     {"10.127.0.1:80", false, false},
		     {"[fe80::1]:80", false, false},
		     {"[::ffff:128.0.0.1]:80", false, false},
		     {"0.0.0.0:80", false, true},
		     {"[::]:80", false, true},
		     {"[::ffff:0.0.0.0]:80", false, true},
		     {"0.0.0.1:80", false, false},
		     {"[::2]:80", false, false},
		     {"unix:///tmp/x", false, false}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct address_socket found[ADDRESS_SOCKETS];
		struct address a;

		ck_assert_int_eq(address_parse(cases[i].text, &a), 0);
		ck_assert_int_eq(address_resolve(&a, found), 1);
		ck_assert_msg(address_is_loopback((struct sockaddr *)&found[0].sa) == cases[i].loopback, "%s",
			      cases[i].text);
		ck_assert_msg(address_is_unspecified((struct sockaddr *)&found[0].sa) == cases[i].unspecified, "%s",
			      cases[i].text);
	}
}
END_TEST

/* A bucket has its bound, and nothing is lost beyond the last. */
START_TEST(test_buckets_bounds)
{
	static const struct {
		uint64_t value;
		unsigned bucket;
	} cases[] = {{0, 0},
		     {1, 0},
		     {1000, 0},
		     {1001, 1},
		     {2000, 1},
		     {2001, 2},
		     {4000, 2},
		     {4001, 3},
		     {1000 << 20, 20},
		     {(1000 << 20) + 1, 21},
		     {UINT64_MAX / 4, 21}};
	struct buckets all = {{0}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buckets one = {{0}};

		buckets_add(&one, BUCKETS_REQUEST, cases[i].value, 3);
		ck_assert_uint_eq(one.count[cases[i].bucket], 3);
		ck_assert_uint_eq(one.sum, 3 * cases[i].value);
		buckets_merge(&all, &one);
	}
	ck_assert_uint_eq(all.count[0], 9);
	ck_assert_uint_eq(all.count[21], 6);
}
END_TEST

START_TEST(test_histogram_percentiles)
{
	struct histogram *h = malloc(sizeof(*h)), *other = malloc(sizeof(*other));

	histogram_init(h);
	histogram_init(other);
	ck_assert_uint_eq(histogram_percentile(h, 50), 0);
	for (uint64_t v = 1; v <= 100000; v++)
		histogram_add(v % 2 ? h : other, v);
	histogram_merge(h, other);
	ck_assert_uint_eq(h->count, 100000);
	for (int p = 1; p < 100; p++) {
		double got = (double)histogram_percentile(h, p), want = p * 1000.0;

		ck_assert_msg(got > want * 0.96 && got < want * 1.04, "p%d is %f", p, got);
	}
	ck_assert_uint_eq(histogram_percentile(h, 100), 100000);
	histogram_add(h, UINT64_MAX);
	ck_assert_uint_eq(h->max, UINT64_MAX);
	free(h);
	free(other);
}
END_TEST

START_TEST(test_list_order)
{
	struct item {
		int value;
		struct list node;
	} items[3];
	struct list head, *pos, *tmp;
	int expect = 0;

	list_init(&head);
	for (int i = 0; i < 3; i++) {
		items[i].value = i;
		list_add_tail(&head, &items[i].node);
	}
	list_for_each_safe (pos, tmp, &head) {
		ck_assert_int_eq(container_of(pos, struct item, node)->value, expect++);
		list_del(pos);
		ck_assert(!list_linked(pos));
	}
	ck_assert(list_empty(&head));
}
END_TEST

START_TEST(test_list_prepend)
{
	struct list to, from, node[4];

	list_init(&to);
	list_init(&from);
	list_prepend(&to, &from);
	ck_assert(list_empty(&to) && list_empty(&from));
	for (unsigned i = 0; i < 4; i++)
		list_add_tail(i < 2 ? &to : &from, &node[i]);
	list_prepend(&to, &from);
	ck_assert(list_empty(&from));
	for (unsigned i = 2; i < 6; i++) {
		ck_assert_ptr_eq(to.next, &node[i % 4]);
		list_del(to.next);
	}
	ck_assert(list_empty(&to));
}
END_TEST

#define RING_ITEMS 200000

static void *ring_producer(void *arg)
{
	for (uintptr_t i = 1; i <= RING_ITEMS;)
		if (ring_push(arg, (void *)i))
			i++;
		else
			sched_yield(); /* the other side may need this processor */
	return NULL;
}

START_TEST(test_ring_between_threads)
{
	static struct ring ring;
	pthread_t thread;

	ck_assert_ptr_null(ring_pop(&ring));
	pthread_create(&thread, NULL, ring_producer, &ring);
	for (uintptr_t expect = 1; expect <= RING_ITEMS;) {
		void *item = ring_pop(&ring);

		if (item)
			ck_assert_uint_eq((uintptr_t)item, expect++);
		else
			sched_yield();
	}
	pthread_join(thread, NULL);
	for (uintptr_t i = 0; i < RING_SIZE; i++)
		ck_assert(ring_push(&ring, &ring));
	ck_assert(!ring_push(&ring, &ring));
}
END_TEST

START_TEST(test_log_threshold)
{
	enum log_level level;

	log_set_handler(log_keep);
	log_clear_last();
	log_info("test", "not kept");
	ck_assert_str_eq(log_last(), "");
	errno = ENOENT;
	log_error("test", "kept: %m");
	ck_assert_str_eq(log_last(), "kept: No such file or directory");
	ck_assert_int_eq(log_level_parse("debug", &level), 0);
	ck_assert_int_eq(level, LOG_LEVEL_DEBUG);
	ck_assert_int_eq(log_level_parse("loud", &level), -EINVAL);
}
END_TEST

static void *log_in_thread(void *arg)
{
	for (int i = 0; i < 1000; i++)
		log_debug("test", "%d", i);
	return NULL;
}

/* As a reload does; the thread sanitizer watches. */
START_TEST(test_log_is_set_while_threads_log)
{
	pthread_t thread;

	log_set_handler(log_keep);
	ck_assert_int_eq(pthread_create(&thread, NULL, log_in_thread, NULL), 0);
	for (int i = 0; i < 1000; i++) {
		log_threshold = i % 2 ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG;
		log_set_handler(log_keep);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* Text of a peer stays within its line and does not speak to a terminal. */
START_TEST(test_log_is_one_printable_line)
{
	static const struct {
		const char *text, *line;
	} cases[] = {
		{"plain ~ text", "plain ~ text"},
		{"a\n2026-01-01 error rdmad: forged", "a\\x0a2026-01-01 error rdmad: forged"},
		{"\x1b[31m\t\r\x7f\x01", "\\x1b[31m\\x09\\x0d\\x7f\\x01"},
		{"Bl\xc3\xbcte \xe2\x82\xac \xf0\x9f\x98\x80", "Bl\xc3\xbcte \xe2\x82\xac \xf0\x9f\x98\x80"},
		{"\xff\xfe", "\\xff\\xfe"},
		{"\xc2\x9b"
		 "2J",
		 "\\xc2\\x9b"
		 "2J"},                                       /* a control sequence in eight bits */
		{"\xc0\x8a", "\\xc0\\x8a"},                   /* overlong */
		{"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* a surrogate */
		{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond Unicode */
		{"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},          /* ends a line */
		{"\xe2\x80\xae", "\\xe2\\x80\\xae"},          /* turns the direction */
		{"cut \xe2\x82", "cut \\xe2\\x82"},
	};
	char buf[64];

	log_set_handler(log_keep);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ck_assert_str_eq(log_printable(cases[i].text, buf, sizeof(buf)), cases[i].line);
		log_error("test", "%s", cases[i].text);
		ck_assert_str_eq(log_last(), cases[i].line);
	}
	ck_assert_str_eq(log_printable("ab\n", buf, 6), "ab");
	ck_assert_str_eq(log_printable("ab\n", buf, 7), "ab\\x0a");
}
END_TEST

START_TEST(test_log_json_takes_any_bytes)
{
	static const struct {
		const char *text, *json;
	} cases[] = {
		{"plain ~ text", "plain ~ text"},
		{"a \"b\" \\x0a", "a \\\"b\\\" \\\\x0a"},
		{"\n\t\x1f\x7f", "\\u000a\\u0009\\u001f\\u007f"},
		{"Bl\xc3\xbcte \xf0\x9f\x98\x80", "Bl\xc3\xbcte \xf0\x9f\x98\x80"},
		{"\xff!", "\\ufffd!"},
		{"cut \xe2\x82", "cut \\ufffd\\ufffd"},
		{"", ""},
	};
	char buf[64];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ck_assert_str_eq(log_json(cases[i].text, buf, sizeof(buf)), cases[i].json);
	/* No escape is cut, and no character. */
	ck_assert_str_eq(log_json("ab\"", buf, 4), "ab");
	ck_assert_str_eq(log_json("ab\"", buf, 5), "ab\\\"");
	ck_assert_str_eq(log_json("a\n", buf, 7), "a");
	ck_assert_str_eq(log_json("a\n", buf, 8), "a\\u000a");
	ck_assert_str_eq(log_json("a\xc3\xbc", buf, 3), "a");
}
END_TEST

static unsigned lines;
static char line[512];

static void count_line(enum log_level level, const char *room, const char *text)
{
	(void)level, (void)room;
	lines++;
	snprintf(line, sizeof(line), "%s", text);
}

static unsigned flood(enum log_level level)
{
	lines = 0;
	for (unsigned i = 0; i < 10 * LOG_BURST; i++)
		log_at(level, "test", "number %u", i);
	return lines;
}

/* A place in the code that is reached again and again does not fill the disk; the others are heard meanwhile. */
START_TEST(test_log_flood_is_held_back)
{
	char last[32];

	log_threshold = LOG_LEVEL_DEBUG;
	log_set_handler(count_line);
	ck_assert_uint_eq(flood(LOG_LEVEL_ERROR), 10 * LOG_BURST);
	log_throttle(true);
	ck_assert_uint_le(flood(LOG_LEVEL_ERROR), 2 * LOG_BURST + 4); /* a minute may end meanwhile */
	snprintf(last, sizeof(last), "number %u", 10 * LOG_BURST - 1);
	ck_assert_str_eq(log_last(), last);
	log_error("test", "another place");
	ck_assert_str_eq(line, "another place");
}
END_TEST

START_TEST(test_log_debug_is_not_held_back)
{
	log_threshold = LOG_LEVEL_DEBUG;
	log_set_handler(count_line);
	log_throttle(true);
	ck_assert_uint_eq(flood(LOG_LEVEL_DEBUG), 10 * LOG_BURST);
}
END_TEST

START_TEST(test_log_says_how_many_were_held_back)
{
	struct log_site site = {0};
	uint64_t now = 1000 * TIME_S;
	uint32_t missed;

	for (unsigned i = 1; i < LOG_BURST; i++)
		ck_assert_int_eq(log_site_judge(&site, now, &missed), LOG_PASS);
	ck_assert_int_eq(log_site_judge(&site, now, &missed), LOG_PASS_LAST);
	for (unsigned i = 0; i < 7; i++)
		ck_assert_int_eq(log_site_judge(&site, now + LOG_WINDOW - 1, &missed), LOG_HOLD);
	ck_assert_uint_eq(missed, 0);
	ck_assert_int_eq(log_site_judge(&site, now + LOG_WINDOW, &missed), LOG_PASS);
	ck_assert_uint_eq(missed, 7);
	ck_assert_int_eq(log_site_judge(&site, now + 3 * LOG_WINDOW, &missed), LOG_PASS);
	ck_assert_uint_eq(missed, 0);
}
END_TEST

START_TEST(test_must_stops_what_breaks_a_contract)
{
	int evaluated = 0;

	must(++evaluated);
#ifdef RDMAD_CONTRACTS
	ck_assert_int_eq(evaluated, 1);
	must(evaluated == 2); /* ends the process, as this test's row says */
#else
	ck_assert_int_eq(evaluated, 0);
	abort();
#endif
}
END_TEST

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[128];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	ck_assert_int_eq(fclose(out), 0);
}

/* Version 1: of the hierarchy that has the controller, from `a` up. */
static void check_quotas_of_controllers(const char *dir, const char *membership)
{
	static const char *const files[] = {"cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us", "cpu/a", "cpu"};
	char path[100];

	for (int i = 3; i >= 2; i--) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	put_file(dir, files[1], "100000\n");
	put_file(dir, files[0], "-1\n");
	put_file(dir, "cgroup", "5:cpuset:/a\n4:cpu,cpuacct:/a/b\n0::/\n");
	ck_assert_uint_eq(processors_of_groups(membership, dir), 3); /* as cpu.max of the root says */
	put_file(dir, files[0], "150000\n");
	ck_assert_uint_eq(processors_of_groups(membership, dir), 2);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		ck_assert_int_eq(remove(path), 0);
	}
}

/* The least of the groups from the process's own up to the root. */
/* Both versions are there at the same time on many machines, and either may have the limit. */
START_TEST(test_ram_of_groups)
{
	char dir[] = "/tmp/check_base.XXXXXX", path[64];
	struct control_groups two = {path, "", dir}, one = {path, "memory", dir};

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/cgroup", dir);
	put_file(dir, "cgroup", "5:cpu,memory:/a\n1:name=memory:/b\n0::/a\n");
	ck_assert_uint_eq(ram_of_groups(&two, &one), UINT64_MAX);
	put_file(dir, "memory.max", "max\n");
	put_file(dir, "a/memory.max", "3000000000\n");
	ck_assert_uint_eq(ram_of_groups(&two, &one), 3000000000u);
	put_file(dir, "memory.limit_in_bytes", "2000000000\n");
	put_file(dir, "a/memory.limit_in_bytes", "9223372036854771712\n");
	ck_assert_uint_eq(ram_of_groups(&two, &one), 2000000000u);
	put_file(dir, "cgroup", "5:cpu,memory_not:/a\n");
	ck_assert_uint_eq(ram_of_groups(&two, &one), UINT64_MAX);
	ck_assert_uint_gt(ram_usable(), 16 * MIB);
	for (const char *const *name =
		     (const char *const[]){"cgroup", "memory.max", "a/memory.max", "memory.limit_in_bytes",
					   "a/memory.limit_in_bytes", "a", NULL};
	     *name; name++) {
		snprintf(path, sizeof(path), "%s/%s", dir, *name);
		ck_assert_int_eq(remove(path), 0);
	}
	rmdir(dir);
}
END_TEST

START_TEST(test_processors_of_groups)
{
	static const struct {
		const char *root, *outer, *inner;
		unsigned processors;
	} cases[] = {
		{"max 100000\n", "max 100000\n", "max 100000\n", UINT32_MAX},
		{"max 100000\n", "max 100000\n", "200000 100000\n", 2},
		{"max 100000\n", "150000 100000\n", "400000 100000\n", 2}, /* one and a half */
		{"50000 100000\n", "max 100000\n", "max 100000\n", 1},
		{"max 100000\n", "", "nonsense\n", UINT32_MAX},
	};
	char dir[] = "/tmp/check_base.XXXXXX", path[64];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	for (const char *const *sub = (const char *const[]){"a", "a/b", NULL}; *sub; sub++) {
		snprintf(path, sizeof(path), "%s/%s", dir, *sub);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	put_file(dir, "cgroup", "12:cpu:/other\n0::/a/b\n");
	snprintf(path, sizeof(path), "%s/cgroup", dir);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put_file(dir, "cpu.max", cases[i].root);
		put_file(dir, "a/cpu.max", cases[i].outer);
		put_file(dir, "a/b/cpu.max", cases[i].inner);
		ck_assert_uint_eq(processors_of_groups(path, dir), cases[i].processors);
	}
	put_file(dir, "cpu.max", "300000 100000\n");
	put_file(dir, "cgroup", "0::/\n"); /* in a container */
	ck_assert_uint_eq(processors_of_groups(path, dir), 3);
	put_file(dir, "cgroup", "12:cpu:/a\n");
	ck_assert_uint_eq(processors_of_groups(path, dir), UINT32_MAX);
	check_quotas_of_controllers(dir, path);
	ck_assert_uint_eq(processors_of_groups("/nowhere", dir), UINT32_MAX);
	ck_assert_uint_ge(processors_usable(), 1);
	for (const char *const *name =
		     (const char *const[]){"cgroup", "cpu.max", "a/cpu.max", "a/b/cpu.max", "a/b", "a", NULL};
	     *name; name++) {
		snprintf(path, sizeof(path), "%s/%s", dir, *name);
		ck_assert_int_eq(remove(path), 0);
	}
	rmdir(dir);
}
END_TEST

static pthread_barrier_t looked_at;

static void *look_at_signals(void *blocked)
{
	pthread_sigmask(SIG_SETMASK, NULL, blocked);
	pthread_barrier_wait(&looked_at);
	return NULL;
}

/* What is no such memory is never taken for it, a file on a disk least of all. */
START_TEST(test_memfd)
{
	char name[] = "check_base.XXXXXX";
	int fd = memfd_sealed("check_base", 10000), file = mkstemp(name), ends[2];
	struct stat st;

	ck_assert_int_eq(unlink(name), 0);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 10000);
	ck_assert_int_ne(ftruncate(fd, 0), 0);
	ck_assert_int_ne(ftruncate(fd, 20000), 0);
	ck_assert(memfd_is_sealed(fd));
	ck_assert(!memfd_is_sealed(file) && !memfd_is_sealed(ends[0]) && !memfd_is_sealed(-1));
	close(fd);
	close(file);
	close(ends[0]);
	close(ends[1]);
	ck_assert_int_lt(memfd_sealed("check_base", SIZE_MAX), 0);
	ck_assert_int_ne(errno, 0);
}
END_TEST

/* The other end of a TCP connection, until its program closes it. */
START_TEST(test_local_user)
{
	struct sockaddr_storage ss = {.ss_family = (sa_family_t)(_i ? AF_INET6 : AF_INET)};
	int listener = socket(ss.ss_family, SOCK_STREAM, 0), fd, ends[2], status;
	uid_t uid, other = geteuid() == 0 ? 65534 : geteuid();
	socklen_t len = sizeof(ss);
	pid_t child;

	if (_i)
		((struct sockaddr_in6 *)&ss)->sin6_addr = in6addr_loopback;
	else
		((struct sockaddr_in *)&ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&ss, sizeof(ss)) != 0) {
		close(listener); /* no IPv6 here */
		return;
	}
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&ss, &len), 0);
	child = fork();
	if (child == 0) {
		fd = seteuid(other) == 0 ? socket(ss.ss_family, SOCK_STREAM, 0) : -1;
		if (connect(fd, (struct sockaddr *)&ss, len) != 0)
			_exit(1);
		_exit(read(fd, &status, 1) != 1 || close(fd) != 0 || pause());
	}
	fd = accept(listener, NULL, NULL);
	ck_assert(local_is_near(fd));
	ck_assert_int_eq(local_user(fd, &uid), 0);
	ck_assert_uint_eq(uid, other);
	ck_assert_int_eq(write(fd, "", 1), 1);
	ck_assert_int_eq(read(fd, &status, 1), 0);
	ck_assert_int_lt(local_user(fd, &uid), 0);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	close(fd);
	close(listener);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	ck_assert(!local_is_near(ends[0]) && local_user(ends[0], &uid) < 0);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* And its starter takes the ones that it took. */
START_TEST(test_thread_takes_no_signals)
{
	sigset_t blocked, before, after;
	pthread_t thread;
	char name[16];

	pthread_barrier_init(&looked_at, NULL, 2);
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	ck_assert_int_eq(thread_start(&thread, "fifteen letters", look_at_signals, &blocked), 0);
	ck_assert_int_eq(pthread_getname_np(thread, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "fifteen letters");
	pthread_barrier_wait(&looked_at);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	pthread_barrier_destroy(&looked_at);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int i = 1; i < SIGSYS; i++) {
		if (i != SIGKILL && i != SIGSTOP)
			ck_assert_int_eq(sigismember(&blocked, i), 1);
		ck_assert_int_eq(sigismember(&after, i), sigismember(&before, i));
	}
}
END_TEST

/*
 * Quota
 */
static struct quota *quota_of(uint32_t all, size_t key_size)
{
	struct quota *quota;

	ck_assert_int_eq(quota_create(all, key_size, &quota), 0);
	return quota;
}

static unsigned take(struct quota *quota, uint64_t source, uint64_t most, struct quota_share **out)
{
	return quota_take(quota, &source, most, out);
}

START_TEST(test_quota_limits)
{
	struct quota *quota = quota_of(4, sizeof(uint64_t));
	struct quota_share *share[5];

	ck_assert_uint_eq(take(quota, 1, 0, &share[0]), QUOTA_SOURCE);
	ck_assert_ptr_null(share[0]);
	ck_assert_uint_eq(take(quota, 1, 2, &share[0]), 0);
	ck_assert_uint_eq(take(quota, 1, 2, &share[1]), 0);
	ck_assert_uint_eq(take(quota, 1, 2, &share[2]), QUOTA_SOURCE);
	ck_assert_uint_eq(take(quota, 1, 3, &share[2]), 0); /* a limit may be another one at any time */
	ck_assert_uint_eq(take(quota, 2, 2, &share[3]), 0);
	ck_assert_uint_eq(take(quota, 2, 2, &share[4]), QUOTA_ALL);
	ck_assert_uint_eq(take(quota, 1, 2, &share[4]), QUOTA_ALL | QUOTA_SOURCE);
	ck_assert_ptr_null(share[4]);
	ck_assert_uint_eq(quota_taken(quota), 4);
	quota_give(share[0]);
	ck_assert_uint_eq(take(quota, 1, 2, &share[0]), QUOTA_SOURCE);
	ck_assert_uint_eq(take(quota, 2, 2, &share[0]), 0);
	for (unsigned i = 0; i < 4; i++)
		quota_give(share[i]);
	quota_give(NULL);
	ck_assert_uint_eq(quota_taken(quota), 0);
	quota_destroy(quota);
	quota_destroy(NULL);
}
END_TEST

/* A source that is known by nobody has no limit but that of all. */
START_TEST(test_quota_unknown_sources)
{
	struct quota *quota = quota_of(3, sizeof(uint64_t));
	struct quota_share *share[3], *none;

	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(quota_take(quota, NULL, 1, &share[i]), 0);
	ck_assert_uint_eq(quota_take(quota, NULL, 1, &none), QUOTA_ALL);
	ck_assert_uint_eq(quota_sources(quota), 0);
	for (unsigned i = 0; i < 3; i++)
		quota_give(share[i]);
	quota_destroy(quota);
}
END_TEST

/* Keys of each length differ by each of their bytes. */
START_TEST(test_quota_keys)
{
	for (size_t size = 1; size <= QUOTA_KEY_MAX; size++) {
		struct quota *quota = quota_of(QUOTA_KEY_MAX + 2, size);
		struct quota_share *share[QUOTA_KEY_MAX + 1], *none;
		char key[QUOTA_KEY_MAX] = {0};

		ck_assert_uint_eq(quota_take(quota, key, 1, &share[size]), 0);
		for (size_t i = 0; i < size; i++) {
			key[i] = 1;
			ck_assert_uint_eq(quota_take(quota, key, 1, &share[i]), 0);
			ck_assert_uint_eq(quota_take(quota, key, 1, &none), QUOTA_SOURCE);
			key[i] = 0;
		}
		for (size_t i = 0; i <= size; i++)
			quota_give(share[i]);
		quota_destroy(quota);
	}
}
END_TEST

/* Sources come and go for ever: sources that have nothing leave, and sources that have something stay. */
START_TEST(test_quota_sources_have_a_bound)
{
	struct quota *quota = quota_of(100, sizeof(uint64_t));
	struct quota_share *kept[50], *share;

	for (uint64_t i = 0; i < ARRAY_SIZE(kept); i++)
		ck_assert_uint_eq(take(quota, i, 1, &kept[i]), 0);
	for (uint64_t i = 1000; i < 10000; i++) {
		ck_assert_uint_eq(take(quota, i, 1, &share), 0);
		quota_give(share);
		ck_assert_uint_le(quota_sources(quota), 200);
		ck_assert_uint_eq(take(quota, i % ARRAY_SIZE(kept), 1, &share), QUOTA_SOURCE);
	}
	for (uint64_t i = 0; i < ARRAY_SIZE(kept); i++)
		quota_give(kept[i]);
	ck_assert_uint_eq(quota_taken(quota), 0);
	quota_destroy(quota);
}
END_TEST

#define QUOTA_ROUNDS 20000u

static struct quota_share *_Atomic handed[4]; /* by the thread that takes */

static void *give_what_is_handed(void *arg)
{
	for (unsigned n = 0; n < QUOTA_ROUNDS;) {
		struct quota_share *share = atomic_exchange((struct quota_share * _Atomic *)arg, NULL);

		if (!share)
			sched_yield();
		quota_give(share);
		n += share != NULL;
	}
	return NULL;
}

/* Others give back while one takes, of more sources than fit. */
START_TEST(test_quota_between_threads)
{
	struct quota *quota = quota_of(ARRAY_SIZE(handed), sizeof(uint64_t));
	pthread_t thread[ARRAY_SIZE(handed)];
	uint64_t source = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, give_what_is_handed, (void *)&handed[i]), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(thread) * QUOTA_ROUNDS; i++) {
		struct quota_share *_Atomic *to = &handed[i % ARRAY_SIZE(handed)];
		struct quota_share *share;

		while (atomic_load(to) || take(quota, ++source % 13, 2, &share) != 0)
			sched_yield();
		atomic_store(to, share);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(quota_taken(quota), 0);
	quota_destroy(quota);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("base");
	TCase *tc = suite_case(suite, "base", NULL, NULL);

	tcase_add_test(tc, test_size_forms);
	tcase_add_test(tc, test_time_forms);
	tcase_add_test(tc, test_number_range);
	tcase_add_test(tc, test_address_forms);
	tcase_add_test(tc, test_address_stale);
	tcase_add_test(tc, test_address_resolves);
	tcase_add_test(tc, test_address_loopback);
	tcase_add_test(tc, test_address_runtime_path);
	tcase_add_test(tc, test_address_own_directory);
	tcase_add_test(tc, test_buckets_bounds);
	tcase_add_test(tc, test_histogram_percentiles);
	tcase_add_test(tc, test_list_order);
	tcase_add_test(tc, test_list_prepend);
	tcase_add_test(tc, test_ring_between_threads);
	tcase_add_test(tc, test_log_threshold);
	tcase_add_test(tc, test_log_is_set_while_threads_log);
	tcase_add_test(tc, test_log_is_one_printable_line);
	tcase_add_test(tc, test_log_json_takes_any_bytes);
	tcase_add_test(tc, test_log_flood_is_held_back);
	tcase_add_test(tc, test_log_debug_is_not_held_back);
	tcase_add_test(tc, test_log_says_how_many_were_held_back);
	tcase_add_test(tc, test_thread_takes_no_signals);
	tcase_add_test(tc, test_quota_limits);
	tcase_add_test(tc, test_quota_unknown_sources);
	tcase_add_test(tc, test_quota_keys);
	tcase_add_test(tc, test_quota_sources_have_a_bound);
	tcase_add_test(tc, test_quota_between_threads);
	tcase_add_test(tc, test_ram_of_groups);
	tcase_add_test(tc, test_processors_of_groups);
	tcase_add_test(tc, test_memfd);
	tcase_add_loop_test(tc, test_local_user, 0, 2);
	tcase_add_test_raise_signal(tc, test_must_stops_what_breaks_a_contract, SIGABRT);
	return suite_run(suite);
}
