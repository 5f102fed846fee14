/* check_etcd.c: what is sent to etcd, and what is made of its answers, of whatever they are. The server is the test's. */
#include "etcd/etcd.h"
#include "tests/suite.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <signal.h>

START_TEST(test_base64)
{
	static const struct {
		const char *bytes, *text;
	} known[] = {{"", ""},
		     {"f", "Zg=="},
		     {"fo", "Zm8="},
		     {"foo", "Zm9v"},
		     {"foob", "Zm9vYg=="},
		     {"fooba", "Zm9vYmE="},
		     {"foobar", "Zm9vYmFy"}};
	static const char *const none[] = {"Z", "Zg=", "Zg", "Z===", "====", "Zg==Zg==", "Zm9v Zm8", "=m9v", "Zm-v"};
	char text[16], bytes[16];

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		size_t length = strlen(known[i].bytes);

		etcd_base64_encode(known[i].bytes, length, text);
		ck_assert_str_eq(text, known[i].text);
		ck_assert_int_eq(etcd_base64_decode(text, bytes, length), (int)length);
		ck_assert_mem_eq(bytes, known[i].bytes, length);
		if (length)
			ck_assert_int_eq(etcd_base64_decode(text, bytes, length - 1), -EINVAL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		ck_assert_msg(etcd_base64_decode(none[i], bytes, sizeof(bytes)) == -EINVAL, "%s", none[i]);
}
END_TEST

START_TEST(test_encode)
{
	static const struct cluster_txn look,
		beat = {.compare = {{"a", 7}, {NULL, 9}}, .compares = 2, .node = "a", .value = "v", .length = 1};
	char *text = etcd_encode("kv", &look);

	/* /rdmad/kv/ to /rdmad/kv0 */
	ck_assert_str_eq(text, "{\"compare\":[],\"success\":[{\"request_range\":{\"key\":\"L3JkbWFkL2t2Lw==\","
			       "\"range_end\":\"L3JkbWFkL2t2MA==\",\"limit\":1026}}],\"failure\":[{\"request_range\":"
			       "{\"key\":\"L3JkbWFkL2t2Lw==\",\"range_end\":\"L3JkbWFkL2t2MA==\",\"limit\":1026}}]}");
	free(text);
	text = etcd_encode("kv", &beat);
	ck_assert_msg(strstr(text, "{\"compare\":[{\"key\":\"L3JkbWFkL2t2L21lbWJlci9h\",\"target\":\"MOD\",\"result\":"
				   "\"EQUAL\",\"mod_revision\":\"7\"},{\"key\":\"L3JkbWFkL2t2L3RhYmxl\",") == text,
		      "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "\"success\":[{\"request_put\":{\"key\":\"L3JkbWFkL2t2L21lbWJlci9h\","
					   "\"value\":\"dg==\"}},{\"request_range\""));
	free(text);
}
END_TEST

/*
 * Answers
 */
#define KV(key, revision, value) "{\"key\":\"" key "\",\"mod_revision\":\"" revision "\",\"value\":\"" value "\"}"
#define ANSWER(kvs)                                                                                                    \
	"{\"header\":{\"revision\":\"12\"},\"succeeded\":true,\"responses\":[{\"response_put\":{}},"                   \
	"{\"response_range\":{\"kvs\":[" kvs "],\"count\":\"3\"}}]}"
#define MEMBER_A "L3JkbWFkL2t2L21lbWJlci9h"
#define MEMBER_B "L3JkbWFkL2t2L21lbWJlci9i"
#define OTHER "L3JkbWFkL2t2L290aGVy"
#define TABLE "L3JkbWFkL2t2L3RhYmxl"
#define VALUE "cmRtYWQtbWVtYmVyIDEgYm9vdCB4IHBsYWNlIC0gY291bnQgMyBlcG9jaCAyIG91dA=="
#define GOOD                                                                                                           \
	ANSWER(KV(MEMBER_A, "5", VALUE) "," KV(MEMBER_B, "6", "Zm9v") "," KV(OTHER, "6", "Zm9v") "," KV(TABLE, "7",    \
													"Zm9v"))

static void check_good(const struct etcd_answer *answer)
{
	const struct cluster_view *view = &answer->view;

	ck_assert(answer->carried_out);
	ck_assert_uint_eq(view->revision, 12);
	ck_assert_uint_eq(view->members, 2);
	ck_assert_uint_eq(view->table_revision, 7);
	ck_assert_uint_eq(view->table_length, 3);
	ck_assert_str_eq(view->table, "foo");
	ck_assert_str_eq(view->member[0].node, "a");
	ck_assert_uint_eq(view->member[0].revision, 5);
	ck_assert_str_eq(view->member[0].boot, "x");
	ck_assert_uint_eq(view->member[0].count, 3);
	ck_assert(view->member[0].out);
	/* A value that is none: its node has said nothing. */
	ck_assert_str_eq(view->member[1].boot, "");
	ck_assert_uint_eq(view->member[1].revision, 6);
}

START_TEST(test_decode)
{
	static const char *const none[] = {
		"",
		"[]",
		"{}",
		"{\"header\":{\"revision\":\"12\"}}",
		"{\"header\":{\"revision\":12},\"responses\":[{\"response_range\":{}}]}",
		"{\"header\":{\"revision\":\"0\"},\"responses\":[{\"response_range\":{}}]}",
		"{\"header\":{\"revision\":\"-1\"},\"responses\":[{\"response_range\":{}}]}",
		"{\"header\":{\"revision\":\"9223372036854775808\"},\"responses\":[{\"response_range\":{}}]}",
		"{\"header\":{\"revision\":\"1\"},\"responses\":[{\"response_put\":{}}]}",
		"{\"header\":{\"revision\":\"1\"},\"responses\":[{\"response_range\":{\"more\":true}}]}",
		ANSWER(KV(MEMBER_B, "5", VALUE) "," KV(MEMBER_A, "6", VALUE)),
		ANSWER(KV(MEMBER_A, "5", VALUE) "," KV(MEMBER_A, "6", VALUE)),
		ANSWER(KV(MEMBER_A, "0", VALUE)),
		ANSWER(KV(MEMBER_A, "", VALUE)),
		ANSWER(KV(TABLE, "1", "Zm9v") "," KV(TABLE, "2", "Zm9v")),
		ANSWER(KV(TABLE, "1", "Zm9")),
	};
	struct etcd_answer answer;
	char *cut = malloc(sizeof(GOOD));

	ck_assert_int_eq(etcd_decode("kv", GOOD, strlen(GOOD), &answer), 0);
	check_good(&answer);
	etcd_answer_free(&answer);
	/* Another cluster's keys are not this one's. */
	ck_assert_int_eq(etcd_decode("k", GOOD, strlen(GOOD), &answer), 0);
	ck_assert(!answer.view.members && !answer.view.table);
	etcd_answer_free(&answer);
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		ck_assert_msg(etcd_decode("kv", none[i], strlen(none[i]), &answer) == -EPROTO, "%s", none[i]);
	for (size_t n = 0; n < strlen(GOOD); n++) {
		memcpy(cut, GOOD, n);
		ck_assert_int_eq(etcd_decode("kv", cut, n, &answer), -EPROTO);
	}
	free(cut);
}
END_TEST

START_TEST(test_endpoints)
{
	static const char *const none[] = {"",
					   "host",
					   "host:1",
					   "https://host:1",
					   "http://",
					   "http://host:0x",
					   "http://a b:1",
					   "http://host:1/x",
					   "http://u@h",
					   "http://tcp://host"};
	struct address address;

	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		ck_assert_msg(etcd_check_endpoint(none[i], &address) == -EINVAL, "%s", none[i]);
	ck_assert_int_eq(etcd_check_endpoint("http://host", &address), 0);
	ck_assert_uint_eq(address.port, 2379);
	ck_assert_int_eq(etcd_check_endpoint("http://[::1]:7", &address), 0);
	ck_assert_str_eq(address.host, "::1");
	ck_assert_uint_eq(address.port, 7);
}
END_TEST

/*
 * Servers
 */
enum manner { GIVES, FAILS, BABBLES, FLOODS, NEVER, WANTS_TOKEN, FAILS_ONCE, SLOW_TOKEN, NO_USERS };
#define SLOW (1300 * TIME_MS) /* more than a transaction gets there, and less than a token */

struct server {
	struct evhttp *http;
	enum manner manner;
	char url[64];
	unsigned requests, tokens;
};

static struct event_base *base;

static void reply_bytes(struct evhttp_request *request, int status, const char *body, size_t length)
{
	struct evbuffer *out = evbuffer_new();

	evbuffer_add(out, body, length);
	evhttp_send_reply(request, status, NULL, out);
	evbuffer_free(out);
}

static void reply(struct evhttp_request *request, int status, const char *body)
{
	reply_bytes(request, status, body, strlen(body));
}

static void reply_token(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	reply(arg, 200, "{\"token\":\"t.1\"}");
}

static void serve(struct evhttp_request *request, void *arg)
{
	struct server *server = arg;
	const char *token = evhttp_find_header(evhttp_request_get_input_headers(request), "Authorization");
	static const struct timeval slow = {SLOW / TIME_S, SLOW % TIME_S / TIME_US};
	char *flood;

	ck_assert_int_eq(evhttp_request_get_command(request), EVHTTP_REQ_POST);
	server->requests++;
	if (strcmp(evhttp_request_get_uri(request), "/v3/auth/authenticate") == 0) {
		server->tokens++;
		if (server->manner == SLOW_TOKEN)
			event_base_once(base, -1, EV_TIMEOUT, reply_token, request, &slow);
		else if (server->manner == NO_USERS)
			reply(request, 412, "{\"error\":\"etcdserver: authentication is not enabled\"}");
		else
			reply_token(-1, 0, request);
		return;
	}
	ck_assert_str_eq(evhttp_request_get_uri(request), "/v3/kv/txn");
	switch (server->manner) {
	case GIVES:
		reply(request, 200, GOOD);
		break;
	case FAILS:
		reply(request, 503, "{\"message\":\"etcdserver: no\\nleader\"}");
		break;
	case BABBLES:
		reply(request, 200, "{\"header\":");
		break;
	case FLOODS:
		flood = calloc(1, ETCD_ANSWER_MAX + 1);
		reply_bytes(request, 200, flood, ETCD_ANSWER_MAX + 1);
		free(flood);
		break;
	case NEVER:
		break;
	case NO_USERS:
		ck_assert_ptr_null(token);
		reply(request, 200, GOOD);
		break;
	case FAILS_ONCE:
	case SLOW_TOKEN:
		ck_assert(token && strcmp(token, "t.1") == 0);
		if (server->manner == FAILS_ONCE && server->requests == 2)
			reply(request, 503, "{\"error\":\"etcdserver: request timed out\"}");
		else
			reply(request, 200, GOOD);
		break;
	case WANTS_TOKEN:
		if (token && strcmp(token, "t.1") == 0 && server->tokens > 1)
			reply(request, 200, GOOD);
		else
			reply(request, 401, "{\"error\":\"etcdserver: invalid auth token\"}");
		break;
	}
}

static void start(struct server *server, enum manner manner)
{
	struct evhttp_bound_socket *bound;
	struct sockaddr_in at;
	socklen_t length = sizeof(at);

	*server = (struct server){.http = evhttp_new(base), .manner = manner};
	bound = evhttp_bind_socket_with_handle(server->http, "127.0.0.1", 0);
	ck_assert_int_eq(getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&at, &length), 0);
	snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%u", ntohs(at.sin_port));
	evhttp_set_gencb(server->http, serve, server);
}

struct result {
	bool ended, answered;
};

static void done(void *arg, struct etcd_answer *answer)
{
	struct result *result = arg;

	result->ended = true;
	result->answered = answer != NULL;
	if (answer)
		check_good(answer);
}

/* Whether it is answered. */
static bool ask(struct etcd *etcd)
{
	static const struct cluster_txn look;
	struct result result = {false};

	ck_assert_int_eq(etcd_send(etcd, &look, done, &result), 0);
	ck_assert(!result.ended);
	while (!result.ended)
		event_base_loop(base, EVLOOP_ONCE);
	return result.answered;
}

static struct etcd *open_at(const char *const *urls, unsigned count, uint64_t timeout, const char *user)
{
	struct etcd_attr attr = {.base = base,
				 .cluster = "kv",
				 .endpoints = urls,
				 .count = count,
				 .timeout = timeout,
				 .user = user,
				 .password = user ? "secret" : NULL};
	struct etcd *etcd;

	ck_assert_int_eq(etcd_open(&attr, &etcd), 0);
	return etcd;
}

/* Each endpoint in turn, until one answers, which is asked from then on. */
START_TEST(test_turns)
{
	static const char *const faults[] = {"status 503: etcdserver: no leader", "none that is understood",
					     "cannot be reached, or ended the connection"};
	static const enum manner manners[] = {FAILS, BABBLES, FLOODS};
	struct server server[4];
	const char *urls[5];
	struct etcd *etcd;

	base = event_base_new();
	for (unsigned i = 0; i < 4; i++) {
		start(&server[i], i < 3 ? manners[i] : GIVES);
		urls[i + 1] = server[i].url;
	}
	urls[0] = "http://127.0.0.1:1"; /* nobody listens */
	etcd = open_at(urls, 5, 60 * TIME_S, NULL);
	ck_assert(!ask(etcd));
	ck_assert_ptr_nonnull(strstr(etcd_fault(etcd), "http://127.0.0.1:1: it cannot be reached"));
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(!ask(etcd));
		ck_assert_msg(strstr(etcd_fault(etcd), faults[i]) != NULL, "%s", etcd_fault(etcd));
	}
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(ask(etcd));
		ck_assert_str_eq(etcd_fault(etcd), "");
		ck_assert_str_eq(etcd_endpoint(etcd), server[3].url);
	}
	ck_assert_uint_eq(server[3].requests, 3);
	etcd_close(etcd);
	for (unsigned i = 0; i < 4; i++)
		evhttp_free(server[i].http);
	event_base_free(base);
}
END_TEST

/* One that does not answer is left in time; and nothing comes of it later. */
START_TEST(test_late)
{
	struct server server[2];
	const char *urls[2];
	struct etcd *etcd;

	base = event_base_new();
	start(&server[0], NEVER);
	start(&server[1], GIVES);
	urls[0] = server[0].url;
	urls[1] = server[1].url;
	etcd = open_at(urls, 2, 200 * TIME_MS, NULL);
	ck_assert(!ask(etcd));
	ck_assert_ptr_nonnull(strstr(etcd_fault(etcd), "did not answer in time"));
	while (!ask(etcd))
		; /* the time is short for a machine that is busy */
	etcd_close(etcd);
	evhttp_free(server[0].http);
	evhttp_free(server[1].http);
	event_base_free(base);
}
END_TEST

/* A token is asked for first, and again when the server does not take it any more. */
START_TEST(test_token)
{
	struct server server;
	const char *urls[1];
	struct etcd *etcd;

	base = event_base_new();
	start(&server, WANTS_TOKEN);
	urls[0] = server.url;
	etcd = open_at(urls, 1, 60 * TIME_S, "rdmad");
	ck_assert(!ask(etcd));
	ck_assert_ptr_nonnull(strstr(etcd_fault(etcd), "invalid auth token"));
	ck_assert(ask(etcd));
	ck_assert(ask(etcd));
	ck_assert_uint_eq(server.tokens, 2);
	ck_assert_uint_eq(server.requests, 5);
	etcd_close(etcd);
	evhttp_free(server.http);
	event_base_free(base);
}
END_TEST

/* It is kept when a server fails otherwise; and the time for it is longer than that for a transaction. */
START_TEST(test_token_kept)
{
	static const enum manner manners[] = {FAILS_ONCE, SLOW_TOKEN};

	for (unsigned i = 0; i < ARRAY_SIZE(manners); i++) {
		bool slow = manners[i] == SLOW_TOKEN;
		struct server server;
		const char *urls[1];
		struct etcd *etcd;

		base = event_base_new();
		start(&server, manners[i]);
		urls[0] = server.url;
		etcd = open_at(urls, 1, slow ? TIME_S : 60 * TIME_S, "rdmad");
		ck_assert_int_eq(ask(etcd), slow);
		ck_assert(ask(etcd));
		ck_assert_uint_eq(server.tokens, 1);
		ck_assert_uint_eq(server.requests, 3);
		etcd_close(etcd);
		evhttp_free(server.http);
		event_base_free(base);
	}
}
END_TEST

/* Where etcd has no users yet, it goes without; and with one when it has. */
START_TEST(test_token_later)
{
	struct server server;
	const char *urls[1];
	struct etcd *etcd;

	base = event_base_new();
	start(&server, NO_USERS);
	urls[0] = server.url;
	etcd = open_at(urls, 1, 60 * TIME_S, "rdmad");
	ck_assert(ask(etcd));
	ck_assert(ask(etcd));
	server.manner = WANTS_TOKEN;
	ck_assert(ask(etcd));
	ck_assert(ask(etcd));
	ck_assert_uint_eq(server.tokens, 3);
	ck_assert_uint_eq(server.requests, 7);
	etcd_close(etcd);
	evhttp_free(server.http);
	event_base_free(base);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("etcd");
	TCase *c = suite_case(suite, "etcd", NULL, NULL);

	signal(SIGPIPE, SIG_IGN);
	log_set_handler(log_keep);
	tcase_add_test(c, test_base64);
	tcase_add_test(c, test_encode);
	tcase_add_test(c, test_decode);
	tcase_add_test(c, test_endpoints);
	tcase_add_test(c, test_turns);
	tcase_add_test(c, test_late);
	tcase_add_test(c, test_token);
	tcase_add_test(c, test_token_kept);
	tcase_add_test(c, test_token_later);
	return suite_run(suite);
}
