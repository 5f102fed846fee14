/*
 * http.c: metrics and health by HTTP, in a thread of its own. For numbers it asks the main thread, which asks the
 * workers: one question at a time, however many clients wait for its answer, and none for longer than ANSWER_WAIT.
 * There are so many connections, each for so long; while all places are taken nobody is let in.
 */
#include "base/thread.h"
#include "daemon/metrics/metrics.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define CONNECTIONS 16
#define STAY (10 * TIME_S) /* of a connection, whatever it does */
#define GRACE TIME_S       /* of one that asks for nothing, when others want its place */
#define HEADERS (8 * KIB)
#define ANSWER_WAIT (3 * TIME_S)
#define TICK (250 * TIME_MS)    /* between looks at what is late */
#define MAIN_WAIT (10 * TIME_S) /* the main thread turns at least once a second */
#define LISTENERS (SETTING_LIST_MAX * ADDRESS_SOCKETS)

struct metrics_server {
	struct daemon *daemon;
	pthread_t thread;
	struct loop *loop;
	struct loop_watch *tick;
	struct evhttp *http;
	struct evconnlistener *listener[LISTENERS];
	char address[LISTENERS][64];
	unsigned listeners;
	bool paused;     /* the listeners are */
	struct list all; /* visitors */
	struct pending visitors;
	struct list waiting; /* for numbers */

	/* Between the threads. */
	_Atomic bool quit, asked;
	_Atomic enum metrics_state state;
	_Atomic uint64_t turned; /* the main thread, when */
	json_t *_Atomic answer;  /* for the thread to take */
	bool asking;             /* the main thread's: the workers have the question */
};

/* A connection. */
struct visitor {
	struct list node; /* in server->all, until the socket is closed */
	struct pending_entry entry;
	struct bufferevent *bev;
};

/* A request that waits. */
struct visit {
	struct list node;
	struct evhttp_request *request;
	uint64_t deadline;
	bool ready; /* it is for /readyz */
};

/*
 * Connections
 */
static void pause_listeners(struct metrics_server *server, bool pause)
{
	for (unsigned i = 0; i < server->listeners && pause != server->paused; i++) {
		if (pause)
			evconnlistener_disable(server->listener[i]);
		else
			evconnlistener_enable(server->listener[i]);
	}
	server->paused = pause;
}

/* Its end comes as that of any other: by the loop. */
static void drop_visitor(struct pending_entry *entry, enum pending_reason reason)
{
	struct visitor *visitor = container_of(entry, struct visitor, entry);

	log_debug("metrics", "cut a connection off: %s", reason == PENDING_LATE ? "it took too long" : "others wait");
	shutdown(bufferevent_getfd(visitor->bev), SHUT_RDWR);
}

/* evhttp has let go of the connection when nobody is told of its bytes any more. */
static bool is_gone(const struct visitor *visitor)
{
	bufferevent_data_cb read;
	bufferevent_event_cb event;

	bufferevent_getcb(visitor->bev, &read, NULL, &event, NULL);
	return !read && !event;
}

static void forget_gone(struct metrics_server *server)
{
	for (struct list *pos = server->all.next; pos != &server->all;) {
		struct visitor *visitor = container_of(pos, struct visitor, node);

		pos = pos->next;
		if (!is_gone(visitor))
			continue;
		pending_remove(&server->visitors, &visitor->entry);
		list_del(&visitor->node);
		bufferevent_decref(visitor->bev); /* closes the socket */
		free(visitor);
	}
}

/* evhttp does not count its connections, and tells of none before its first request; but it asks for what reads and
 * writes their bytes, of which the visitor has a reference. NULL: evhttp makes one that is not counted, for want of
 * memory. */
static struct bufferevent *visitor_came(struct event_base *base, void *arg)
{
	struct metrics_server *server = arg;
	struct visitor *visitor = calloc(1, sizeof(*visitor));

	if (!visitor)
		return NULL;
	visitor->bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	if (!visitor->bev) {
		free(visitor);
		return NULL;
	}
	bufferevent_incref(visitor->bev);
	forget_gone(server);
	list_add_tail(&server->all, &visitor->node);
	pending_add(&server->visitors, &visitor->entry, time_now());
	if (!pending_has_place(&server->visitors, time_now()))
		pause_listeners(server, true);
	return visitor->bev;
}

/*
 * Requests
 */
static void http_answer(struct evhttp_request *request, int status, const char *type, const char *text, size_t length)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	struct evbuffer *body = evbuffer_new();

	evhttp_add_header(headers, "Content-Type", type);
	evhttp_add_header(headers, "Connection", "close");
	if (body && evbuffer_add(body, text, length) == 0)
		evhttp_send_reply(request, status, NULL, body);
	else
		evhttp_send_error(request, 500, NULL);
	if (body)
		evbuffer_free(body);
}

static void answer_line(struct evhttp_request *request, int status, const char *line)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "%s\n", line);

	http_answer(request, status, "text/plain; charset=utf-8", text, (size_t)n);
}

static bool wants_openmetrics(struct evhttp_request *request)
{
	const char *accept = evhttp_find_header(evhttp_request_get_input_headers(request), "Accept");

	return accept && strstr(accept, "application/openmetrics-text");
}

static void answer_metrics(struct evhttp_request *request, json_t *from)
{
	bool open = wants_openmetrics(request);
	size_t length;
	char *text = metrics_text(from, open, &length);

	if (text)
		http_answer(request, 200,
			    open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
				 : "text/plain; version=0.0.4; charset=utf-8",
			    text, length);
	else
		answer_line(request, 500, "no memory");
	free(text);
}

static void visit_end(struct visit *visit)
{
	list_del(&visit->node);
	free(visit);
}

/* evhttp frees the request of a connection that ends. */
static void visit_cut(struct evhttp_connection *connection, void *arg)
{
	(void)connection;
	visit_end(arg);
}

static void visit_answer(struct visit *visit, json_t *from)
{
	struct evhttp_request *request = visit->request;
	bool ready = visit->ready;

	evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
	visit_end(visit);
	if (!from)
		answer_line(request, 503, "a worker or the main thread has not answered in time");
	else if (ready)
		answer_line(request, 200, "ready");
	else
		answer_metrics(request, from);
}

/* Until the main thread has the numbers. */
static void wait_for_numbers(struct metrics_server *server, struct evhttp_request *request, bool ready)
{
	struct visit *visit = calloc(1, sizeof(*visit));

	if (!visit) {
		answer_line(request, 500, "no memory");
		return;
	}
	*visit = (struct visit){.request = request, .deadline = time_now() + ANSWER_WAIT, .ready = ready};
	list_add_tail(&server->waiting, &visit->node);
	evhttp_connection_set_closecb(evhttp_request_get_connection(request), visit_cut, visit);
	atomic_store(&server->asked, true);
	loop_wake(server->daemon->loop);
}

static void serve_metrics(struct evhttp_request *request, void *arg)
{
	struct metrics_server *server = arg;
	json_t *from;

	if (atomic_load(&server->state) != METRICS_LOADING) {
		wait_for_numbers(server, request, false);
		return;
	}
	from = metrics_gather_start(server->daemon);
	answer_metrics(request, from);
	json_decref(from);
}

static void serve_health(struct evhttp_request *request, void *arg)
{
	struct metrics_server *server = arg;
	bool loading = atomic_load(&server->state) == METRICS_LOADING;

	if (loading || time_now() < atomic_load(&server->turned) + MAIN_WAIT)
		answer_line(request, 200, loading ? "loading" : "alive");
	else
		answer_line(request, 503, "the main thread stands still");
}

static void serve_ready(struct evhttp_request *request, void *arg)
{
	struct metrics_server *server = arg;
	enum metrics_state state = atomic_load(&server->state);

	if (state == METRICS_READY)
		wait_for_numbers(server, request, true);
	else
		answer_line(request, 503,
			    state == METRICS_LOADING ? "loading: the start is under way"
						     : "draining: no new connections are taken");
}

static void serve_other(struct evhttp_request *request, void *arg)
{
	(void)arg;
	answer_line(request, 404, "there are /metrics, /healthz and /readyz");
}

/*
 * The thread
 */
static void server_tick(void *arg)
{
	struct metrics_server *server = arg;
	uint64_t now = time_now();

	forget_gone(server);
	pending_turn(&server->visitors, now);
	if (server->paused && pending_has_place(&server->visitors, now))
		pause_listeners(server, false);
	while (!list_empty(&server->waiting)) {
		struct visit *visit = list_first(&server->waiting, struct visit, node);

		if (now < visit->deadline)
			break;
		visit_answer(visit, NULL);
	}
	loop_set_timer(server->tick, TICK);
}

static void server_woken(void *arg)
{
	struct metrics_server *server = arg;
	json_t *from = atomic_exchange(&server->answer, NULL);

	while (from && !list_empty(&server->waiting))
		visit_answer(list_first(&server->waiting, struct visit, node), from);
	json_decref(from);
	if (atomic_load(&server->quit))
		loop_break(server->loop);
}

static void *server_run(void *arg)
{
	struct metrics_server *server = arg;

	loop_run(server->loop);
	return NULL;
}

/*
 * The main thread
 */
static void numbers_gathered(void *arg, struct status *status)
{
	struct metrics_server *server = ((struct daemon *)arg)->metrics;

	if (!server)
		return; /* at the end */
	server->asking = false;
	json_decref(atomic_exchange(&server->answer, metrics_gather(status)));
	loop_wake(server->loop);
}

void metrics_turn(struct daemon *d)
{
	struct metrics_server *server = d->metrics;

	must(daemon_is_main(d));
	if (!server)
		return;
	atomic_store(&server->turned, time_now());
	if (server->asking || !atomic_exchange(&server->asked, false))
		return;
	server->asking = true;
	if (status_gather(d, false, 0, numbers_gathered, d) != 0)
		server->asking = false; /* no memory: the requests that wait are told in time */
}

void metrics_tell(struct daemon *d, enum metrics_state state)
{
	must(daemon_is_main(d));
	if (!d->metrics)
		return;
	atomic_store(&d->metrics->turned, time_now());
	atomic_store(&d->metrics->state, state);
}

const char *metrics_address(const struct daemon *d, unsigned i)
{
	return d->metrics && i < d->metrics->listeners ? d->metrics->address[i] : NULL;
}

static int listen_at(void *arg, const struct address_socket *at)
{
	struct metrics_server *server = arg;
	const struct sockaddr *sa = (const struct sockaddr *)&at->sa;
	struct evhttp_bound_socket *bound;
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	char *address = server->address[server->listeners];
	int fd, rc = listen_tcp(sa, at->len, &fd);

	if (rc != 0)
		return rc;
	if (getsockname(fd, (struct sockaddr *)&name, &length) == 0)
		address_format_socket((const struct sockaddr *)&name, address, sizeof(server->address[0]));
	bound = evhttp_accept_socket_with_handle(server->http, fd);
	if (!bound) {
		close(fd);
		return -ENOMEM;
	}
	server->listener[server->listeners++] = evhttp_bound_socket_get_listener(bound);
	log_info("metrics", "listening on %s%s", address,
		 listen_is_exposed(sa) ? ": every host that reaches it reads them" : "");
	return 0;
}

static const struct {
	const char *path;
	void (*serve)(struct evhttp_request *request, void *arg);
} paths[] = {{"/metrics", serve_metrics}, {"/healthz", serve_health}, {"/readyz", serve_ready}};

static int server_make(struct metrics_server *server)
{
	const struct setting_list *listen = &server->daemon->config->metrics_listen;
	int rc = 0;

	if (loop_create(&server->loop) != 0)
		return EX_OSERR;
	loop_on_wake(server->loop, server_woken, server);
	server->tick = loop_add_timer(server->loop, server_tick, server);
	server->http = evhttp_new(loop_base(server->loop));
	if (!server->tick || !server->http)
		return log_fail(EX_OSERR, "metrics", "no memory");
	loop_set_timer(server->tick, TICK);
	evhttp_set_bevcb(server->http, visitor_came, server);
	evhttp_set_allowed_methods(server->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
	evhttp_set_max_headers_size(server->http, HEADERS);
	evhttp_set_max_body_size(server->http, HEADERS);
	evhttp_set_timeout(server->http, (int)(STAY / TIME_S));
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		evhttp_set_cb(server->http, paths[i].path, paths[i].serve, server);
	evhttp_set_gencb(server->http, serve_other, server);
	for (unsigned i = 0; i < listen->count && rc == 0; i++)
		rc = listen_each(listen->item[i], METRICS_PORT, "metrics", listen_at, server);
	return rc;
}

static void server_free(struct metrics_server *server)
{
	if (server->http)
		evhttp_free(server->http); /* with its connections */
	forget_gone(server);
	loop_remove(server->tick);
	loop_destroy(server->loop);
	json_decref(atomic_load(&server->answer));
	free(server);
}

int metrics_open(struct daemon *d)
{
	static const struct pending_attr attr = {
		.limit = CONNECTIONS, .stay = STAY, .grace = GRACE, .drop = drop_visitor};
	struct metrics_server *server;
	int rc;

	must(daemon_is_main(d));
	if (!d->config->metrics_listen.count)
		return 0;
	server = calloc(1, sizeof(*server));
	if (!server)
		return EX_OSERR;
	server->daemon = d;
	pending_init(&server->visitors, &attr);
	list_init(&server->all);
	list_init(&server->waiting);
	rc = server_make(server);
	if (rc == 0 && thread_start(&server->thread, "metrics", server_run, server) != 0)
		rc = log_fail(EX_OSERR, "metrics", "cannot start a thread");
	if (rc == 0)
		d->metrics = server;
	else
		server_free(server);
	return rc;
}

void metrics_close(struct daemon *d)
{
	struct metrics_server *server = d->metrics;

	must(daemon_is_main(d));
	if (!server)
		return;
	d->metrics = NULL;
	atomic_store(&server->quit, true);
	loop_wake(server->loop);
	pthread_join(server->thread, NULL);
	server_free(server);
}
