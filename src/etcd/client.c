/* client.c: requests to etcd, to one endpoint after the other. */
#include "etcd/etcd.h"

#include <event2/buffer.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/http.h>
#include <jansson.h>
#include <stdlib.h>

#define PORT 2379
#define HEADERS (16 * KIB)
#define FAULT 512
#define NO_USERS 412            /* the status of an answer to a password: etcd has no use for it */
#define TOKEN_TIME (2 * TIME_S) /* for a token, at least: etcd computes for a while on a password */

struct endpoint {
	struct address address;
	char text[sizeof(struct address) + 16];
	struct evhttp_connection *connection; /* NULL: not yet, or not any more */
};

struct etcd {
	struct etcd_attr attr;
	char *cluster, *user, *password;
	struct evdns_base *dns;
	struct endpoint *endpoint;
	unsigned at; /* the endpoint that is asked */
	char *token; /* NULL: none is known */
	char fault[FAULT];

	/* The request that is under way. */
	struct evhttp_request *request; /* evhttp's; NULL: there is none */
	struct event *deadline;
	char *body;
	etcd_done_fn *done; /* NULL: nothing is */
	bool sends;         /* in etcd_send(), which does not call it */
	bool failed;        /* there, and the fault is known */
	void *arg;
};

int etcd_check_endpoint(const char *text, struct address *out)
{
	if (strncmp(text, "http://", 7) != 0)
		return log_fail(-EINVAL, "etcd", "endpoint \"%.200s\": it is http://HOST:PORT%s", text,
				strncmp(text, "https://", 8) == 0
					? ", as TLS is not spoken here: have stunnel speak it, as in rdmad-cluster(7)"
					: "");
	if (strpbrk(text + 7, "/?#@ ") || address_parse(text + 7, out) != 0 || *out->scheme || out->path)
		return log_fail(-EINVAL, "etcd", "endpoint \"%.200s\": it is http://HOST:PORT", text);
	if (!out->port_given)
		out->port = PORT;
	return 0;
}

static void set_fault(struct etcd *etcd, const char *why)
{
	snprintf(etcd->fault, sizeof(etcd->fault), "%s: %s", etcd->endpoint[etcd->at].text, why);
}

/* The request ends without an answer, and the next one goes elsewhere. */
static void give_up(struct etcd *etcd, const char *why)
{
	static const struct timeval now;
	etcd_done_fn *done = etcd->done;

	if (!etcd->failed)
		set_fault(etcd, why);
	etcd->failed = etcd->sends;
	if (etcd->sends) {
		evtimer_add(etcd->deadline, &now);
		return;
	}
	event_del(etcd->deadline);
	etcd->done = NULL;
	etcd->request = NULL;
	etcd->at = (etcd->at + 1) % etcd->attr.count;
	done(etcd->arg, NULL);
}

static const char *take_body(struct evhttp_request *request, size_t *length)
{
	struct evbuffer *in = evhttp_request_get_input_buffer(request);

	*length = evbuffer_get_length(in);
	return *length ? (const char *)evbuffer_pullup(in, -1) : "";
}

/* What the gateway says of an error. */
static void give_up_status(struct etcd *etcd, struct evhttp_request *request)
{
	size_t length;
	const char *body = take_body(request, &length);
	json_t *json = json_loadb(body, MIN(length, 64 * KIB), 0, NULL);
	const char *message = json_string_value(json_object_get(json, "message"));
	char why[FAULT];

	if (!message)
		message = json_string_value(json_object_get(json, "error"));
	snprintf(why, sizeof(why), "status %d: %.120s", evhttp_request_get_response_code(request),
		 message ? message : "no reason");
	for (char *c = why; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	json_decref(json);
	if (evhttp_request_get_response_code(request) < 500) { /* it may be that it has expired */
		free(etcd->token);
		etcd->token = NULL;
	}
	give_up(etcd, why);
}

static void finish_request(struct etcd *etcd, struct evhttp_request *request)
{
	etcd_done_fn *done = etcd->done;
	struct etcd_answer answer;
	size_t length;
	const char *body = take_body(request, &length);

	if (!body || etcd_decode(etcd->cluster, body, length, &answer) != 0) {
		give_up(etcd, "its answer is none that is understood");
		return;
	}
	event_del(etcd->deadline);
	etcd->fault[0] = '\0';
	etcd->done = NULL;
	done(etcd->arg, &answer);
	etcd_answer_free(&answer);
}

static void request_answered(struct evhttp_request *request, void *arg);
static void password_answered(struct evhttp_request *request, void *arg);

static int connect_endpoint(struct etcd *etcd, struct endpoint *endpoint)
{
	if (endpoint->connection)
		return 0;
	endpoint->connection =
		evhttp_connection_base_new(etcd->attr.base, etcd->dns, endpoint->address.host, endpoint->address.port);
	if (!endpoint->connection)
		return -ENOMEM;
	evhttp_connection_set_max_headers_size(endpoint->connection, HEADERS);
	evhttp_connection_set_max_body_size(endpoint->connection, ETCD_ANSWER_MAX);
	return 0;
}

static int post_request(struct etcd *etcd, const char *path, const char *body,
			void (*done)(struct evhttp_request *request, void *arg))
{
	struct endpoint *endpoint = &etcd->endpoint[etcd->at];
	struct evhttp_request *request = evhttp_request_new(done, etcd);
	struct evkeyvalq *headers;

	if (!request || connect_endpoint(etcd, endpoint) != 0) {
		if (request)
			evhttp_request_free(request);
		return -ENOMEM;
	}
	headers = evhttp_request_get_output_headers(request);
	evhttp_add_header(headers, "Host", endpoint->text + 7);
	evhttp_add_header(headers, "Content-Type", "application/json");
	if (etcd->token)
		evhttp_add_header(headers, "Authorization", etcd->token);
	evbuffer_add(evhttp_request_get_output_buffer(request), body, strlen(body));
	etcd->request = request;
	if (evhttp_make_request(endpoint->connection, request, EVHTTP_REQ_POST, path) == 0)
		return 0;
	etcd->request = NULL; /* it was freed */
	return -ENOMEM;
}

static void set_deadline(struct etcd *etcd, uint64_t time)
{
	struct timeval limit = {(time_t)(time / TIME_S), (suseconds_t)(time % TIME_S / TIME_US)};

	evtimer_add(etcd->deadline, &limit);
}

static int send_password(struct etcd *etcd)
{
	json_t *json = json_pack("{s:s, s:s}", "name", etcd->user, "password", etcd->password);
	char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
	int rc;

	set_deadline(etcd, MAX(etcd->attr.timeout, TOKEN_TIME));
	rc = body ? post_request(etcd, "/v3/auth/authenticate", body, password_answered) : -ENOMEM;
	json_decref(json);
	free(body);
	return rc;
}

static int send_transaction(struct etcd *etcd)
{
	set_deadline(etcd, etcd->attr.timeout);
	return post_request(etcd, "/v3/kv/txn", etcd->body, request_answered);
}

/* Whether it is the request that is waited for, and has ended with status 200 or `other`. */
static bool is_ours(struct etcd *etcd, struct evhttp_request *request, int other)
{
	int status = request ? evhttp_request_get_response_code(request) : 0;

	if (!etcd->done || (request && request != etcd->request))
		return false;
	etcd->request = NULL;
	if (!status) {
		give_up(etcd, "it cannot be reached, or ended the connection");
		return false;
	}
	if (status != 200 && status != other) {
		give_up_status(etcd, request);
		return false;
	}
	return true;
}

static void password_answered(struct evhttp_request *request, void *arg)
{
	struct etcd *etcd = arg;
	const char *body, *token;
	size_t length;
	json_t *json;

	if (!is_ours(etcd, request, NO_USERS))
		return;
	if (evhttp_request_get_response_code(request) == NO_USERS) {
		if (send_transaction(etcd) != 0)
			give_up(etcd, "no memory");
		return;
	}
	body = take_body(request, &length);
	json = body ? json_loadb(body, length, 0, NULL) : NULL;
	token = json_string_value(json_object_get(json, "token"));
	if (token && strlen(token) < HEADERS / 4 && !strpbrk(token, "\r\n"))
		etcd->token = strdup(token);
	json_decref(json);
	if (!etcd->token)
		give_up(etcd, "it gave no token");
	else if (send_transaction(etcd) != 0)
		give_up(etcd, "no memory");
}

static void request_answered(struct evhttp_request *request, void *arg)
{
	struct etcd *etcd = arg;

	if (is_ours(etcd, request, 200))
		finish_request(etcd, request);
}

static void too_late(evutil_socket_t fd, short what, void *arg)
{
	struct etcd *etcd = arg;

	(void)fd;
	(void)what;
	if (etcd->request)
		evhttp_cancel_request(etcd->request);
	etcd->request = NULL;
	if (etcd->done)
		give_up(etcd, "it did not answer in time");
}

int etcd_send(struct etcd *etcd, const struct cluster_txn *txn, etcd_done_fn *done, void *arg)
{
	must(!etcd->done);
	free(etcd->body);
	etcd->body = etcd_encode(etcd->cluster, txn);
	if (!etcd->body)
		return log_fail(-ENOMEM, "etcd", "no memory for a request");
	etcd->done = done;
	etcd->arg = arg;
	etcd->sends = true;
	if ((etcd->user && !etcd->token ? send_password(etcd) : send_transaction(etcd)) != 0)
		give_up(etcd, "no memory");
	etcd->sends = false;
	return 0;
}

const char *etcd_fault(const struct etcd *etcd)
{
	return etcd->fault;
}

const char *etcd_endpoint(const struct etcd *etcd)
{
	return etcd->endpoint[etcd->at].text;
}

static char *copy_text(const char *text)
{
	return text ? strdup(text) : NULL;
}

int etcd_open(const struct etcd_attr *attr, struct etcd **out)
{
	struct etcd *etcd = calloc(1, sizeof(*etcd));
	int rc = 0;

	if (!etcd)
		return -ENOMEM;
	etcd->attr = *attr;
	etcd->cluster = copy_text(attr->cluster);
	etcd->user = copy_text(attr->user);
	etcd->password = copy_text(attr->password);
	etcd->endpoint = calloc(attr->count, sizeof(*etcd->endpoint));
	etcd->deadline = evtimer_new(attr->base, too_late, etcd);
	etcd->dns = evdns_base_new(attr->base, EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	if (!etcd->endpoint || !etcd->deadline || !etcd->cluster || !etcd->dns)
		rc = log_fail(-ENOMEM, "etcd", "no memory");
	for (unsigned i = 0; i < attr->count && rc == 0; i++) {
		struct endpoint *endpoint = &etcd->endpoint[i];

		rc = etcd_check_endpoint(attr->endpoints[i], &endpoint->address);
		snprintf(endpoint->text, sizeof(endpoint->text),
			 strchr(endpoint->address.host, ':') ? "http://[%s]:%u" : "http://%s:%u",
			 endpoint->address.host, endpoint->address.port);
	}
	if (rc != 0) {
		etcd_close(etcd);
		return rc;
	}
	*out = etcd;
	return 0;
}

void etcd_close(struct etcd *etcd)
{
	if (!etcd)
		return;
	etcd->done = NULL;
	for (unsigned i = 0; etcd->endpoint && i < etcd->attr.count; i++)
		if (etcd->endpoint[i].connection)
			evhttp_connection_free(etcd->endpoint[i].connection);
	if (etcd->dns)
		evdns_base_free(etcd->dns, 0);
	if (etcd->deadline)
		event_free(etcd->deadline);
	if (etcd->password)
		explicit_bzero(etcd->password, strlen(etcd->password));
	free(etcd->endpoint);
	free(etcd->cluster);
	free(etcd->user);
	free(etcd->password);
	free(etcd->token);
	free(etcd->body);
	free(etcd);
}

/*
 * Requests that are waited for
 */
struct ask {
	struct etcd_answer answer;
	bool answered, ended;
};

static void ask_done(void *arg, struct etcd_answer *answer)
{
	struct ask *ask = arg;

	ask->ended = true;
	ask->answered = answer != NULL;
	if (!answer)
		return;
	ask->answer = *answer;
	*answer = (struct etcd_answer){0};
}

static int ask_each(struct etcd *etcd, const struct cluster_txn *txn, struct ask *ask)
{
	int rc = 0;

	for (unsigned i = 0; i < etcd->attr.count && rc == 0 && !ask->answered; i++) {
		ask->ended = false;
		rc = etcd_send(etcd, txn, ask_done, ask);
		while (rc == 0 && !ask->ended)
			event_base_loop(etcd->attr.base, EVLOOP_ONCE);
		if (rc == 0 && !ask->answered)
			log_warn("etcd", "%s", etcd->fault);
	}
	return rc;
}

int etcd_ask(const struct etcd_attr *attr, const struct cluster_txn *txn, struct etcd_answer *out)
{
	struct etcd_attr own = *attr;
	struct ask ask = {.answered = false};
	struct etcd *etcd;
	int rc;

	own.base = event_base_new();
	if (!own.base)
		return log_fail(-ENOMEM, "etcd", "no memory");
	rc = etcd_open(&own, &etcd);
	if (rc == 0) {
		rc = ask_each(etcd, txn, &ask);
		etcd_close(etcd);
	}
	event_base_free(own.base);
	if (rc == 0 && !ask.answered)
		rc = log_fail(-EIO, "etcd", "no endpoint of %u has answered: does etcd run there, with a majority?",
			      attr->count);
	*out = ask.answer;
	return rc;
}
