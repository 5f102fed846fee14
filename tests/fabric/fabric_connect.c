/* fabric_connect.c: opening, listening, and each way in which a connect can end. */
#include "tests/fabric/fabric_pair.h"

#include "fabric/verbs/verbs.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

static const struct fabric_endpoint_attr *const attr = &fabric_pair_defaults.client;

/* Listen on the nth address of a station; *sa is where to connect to. */
static struct fabric_listener *listen_on(struct station *st, int nth, struct sockaddr_storage *sa, socklen_t *len)
{
	struct fabric_listener *listener;

	target_address(nth, sa, len);
	ck_assert_int_eq(fabric_listen(st->queue, (struct sockaddr *)sa, *len, st, &listener), 0);
	target_set_port(sa, fabric_listener_port(listener));
	return listener;
}

static void begin(struct fabric_pair *p)
{
	ck_assert_int_eq(station_connect(&p->client, &p->sa, p->len, attr, NULL, 0, &p->c), 0);
}

static struct fabric_request *request_of(struct fabric_pair *p)
{
	struct fabric_event e = event_expect(p, &p->server, NULL, FABRIC_REQUEST);

	ck_assert_ptr_nonnull(e.request);
	return e.request;
}

static void begin_and_take(struct fabric_pair *p)
{
	begin(p);
	ck_assert_int_eq(station_take(&p->server, request_of(p), attr, &p->s), 0);
}

/* The connect ended without a connection. */
static void expect_failure(struct fabric_pair *p)
{
	struct fabric_event e = event_next(p, &p->client, p->c);

	check_that(e.type == FABRIC_REJECTED || e.type == FABRIC_UNREACHABLE || e.type == FABRIC_DISCONNECTED,
		   "%s, expected a refusal", event_name(e.type));
}

START_TEST(open_tells_what_it_is)
{
	struct fabric_limits limits;
	struct fabric *fabric;
	char text[64];

	ck_assert_int_eq(fabric_open("pigeon", NULL, &fabric), -EINVAL);
	ck_assert_int_eq(fabric_open(target.provider, &(struct fabric_config){0}, &fabric), 0);
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		ck_assert_int_eq(fabric_has(fabric, &fabric_transports[i]),
				 strcmp(fabric_transport_provider(&fabric_transports[i]), target.provider) == 0);
	ck_assert_uint_gt(strlen(fabric_devices(fabric, text, sizeof(text))), 0);
	fabric_limits(fabric, &limits);
	ck_assert_uint_ge(limits.max_send_depth, 64);
	ck_assert_uint_ge(limits.max_recv_depth, 64);
	ck_assert(!limits.shared || limits.max_shared_depth >= 64);
	ck_assert_int_eq(limits.shared, target.shared);
	ck_assert_uint_ge(limits.max_completions, 4096);
	ck_assert_uint_ge(limits.max_reads, 1);
	fabric_close(fabric);
	fabric_close(NULL);
}
END_TEST

START_TEST(two_fabrics_at_once)
{
	struct fabric *one, *two;

	ck_assert_int_eq(fabric_open(target.provider, NULL, &one), 0);
	ck_assert_int_eq(fabric_open(target.provider, NULL, &two), 0);
	fabric_close(one);
	fabric_close(two);
}
END_TEST

START_TEST(status_texts_differ)
{
	for (int i = FABRIC_OK; i <= FABRIC_LINK_DOWN; i++)
		for (int j = FABRIC_OK; j < i; j++)
			ck_assert_str_ne(fabric_status_text((enum fabric_status)i),
					 fabric_status_text((enum fabric_status)j));
}
END_TEST

/* Request and accept data of each length, byte for byte; beyond their lengths padding is allowed.
 */
static void check_private_data(struct fabric_pair *p, size_t ask, size_t answer)
{
	uint8_t request[FABRIC_REQUEST_DATA], accept[FABRIC_ACCEPT_DATA];
	struct fabric_event e;

	for (size_t i = 0; i < sizeof(request); i++)
		request[i] = (uint8_t)(i * 3 + ask);
	for (size_t i = 0; i < sizeof(accept); i++)
		accept[i] = (uint8_t)(i * 5 + answer);
	ck_assert_int_eq(station_connect(&p->client, &p->sa, p->len, attr, request, ask, &p->c), 0);
	e = event_expect(p, &p->server, NULL, FABRIC_REQUEST);
	ck_assert_uint_ge(e.data_len, ask);
	ck_assert_mem_eq(e.data, request, ask);
	ck_assert_int_eq(station_take(&p->server, e.request, attr, &p->s), 0);
	ck_assert_int_eq(fabric_accept(p->s, accept, answer), 0);
	memset(accept, 0, sizeof(accept));
	e = event_expect(p, &p->client, p->c, FABRIC_ESTABLISHED);
	ck_assert_uint_ge(e.data_len, answer);
	for (size_t i = 0; i < answer; i++)
		ck_assert_uint_eq(e.data[i], (uint8_t)(i * 5 + answer));
	event_expect(p, &p->server, p->s, FABRIC_ESTABLISHED);
	station_destroy(&p->client, &p->c);
	station_destroy(&p->server, &p->s);
}

START_TEST(private_data_both_ways)
{
	static const size_t lengths[][2] = {{20, 100}, {0, 0}, {1, 1}, {56, 0}, {0, 196}, {56, 196}};
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
		check_private_data(&p, lengths[i][0], lengths[i][1]);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(private_data_too_long)
{
	uint8_t data[FABRIC_ACCEPT_DATA + 1] = {0};
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	ck_assert_int_eq(station_connect(&p.client, &p.sa, p.len, attr, data, FABRIC_REQUEST_DATA + 1, &p.c), -EINVAL);
	begin_and_take(&p);
	ck_assert_int_eq(fabric_accept(p.s, data, sizeof(data)), -EINVAL);
	ck_assert_int_eq(fabric_accept(p.s, data, sizeof(data) - 1), 0);
	event_expect(&p, &p.client, p.c, FABRIC_ESTABLISHED);
	event_expect(&p, &p.server, p.s, FABRIC_ESTABLISHED);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(names_of_the_peer)
{
	const struct fabric_transport *by = target.memory ? fabric_transport_find("shm") : target.transport;
	char text[128], little[4];
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin(&p);
	struct fabric_request *request = request_of(&p);

	ck_assert_ptr_eq(fabric_request_peer(request, text, sizeof(text)), text);
	ck_assert_uint_gt(strnlen(text, sizeof(text)), 0);
	ck_assert_uint_lt(strnlen(text, sizeof(text)), sizeof(text));
	ck_assert_int_eq(station_take(&p.server, request, attr, &p.s), 0);
	ck_assert_int_eq(fabric_accept(p.s, NULL, 0), 0);
	event_expect(&p, &p.client, p.c, FABRIC_ESTABLISHED);
	event_expect(&p, &p.server, p.s, FABRIC_ESTABLISHED);
	ck_assert_ptr_eq(fabric_endpoint_transport(p.c), by);
	ck_assert_ptr_eq(fabric_endpoint_transport(p.s), by);
	ck_assert_ptr_eq(fabric_endpoint_peer(p.c, text, sizeof(text)), text);
	ck_assert_uint_gt(strnlen(text, sizeof(text)), 0);
	if (p.sa.ss_family == AF_INET) {
		char port[16];

		snprintf(port, sizeof(port), ":%u", fabric_listener_port(p.listener));
		check_that(strstr(text, port) != NULL, "%s lacks %s", text, port);
	}
	fabric_endpoint_peer(p.s, little, sizeof(little));
	ck_assert_uint_lt(strnlen(little, sizeof(little)), sizeof(little));
	fabric_pair_close(&p);
}
END_TEST

START_TEST(rejected_with_reason)
{
	uint8_t reason[FABRIC_REJECT_DATA];
	struct fabric_event e;
	struct fabric_pair p;

	memset(reason, 0x42, sizeof(reason));
	fabric_pair_open(&p, &fabric_pair_defaults);
	begin(&p);
	fabric_reject(request_of(&p), reason, sizeof(reason));
	e = event_expect(&p, &p.client, p.c, FABRIC_REJECTED);
	ck_assert_int_lt(e.error, 0);
	ck_assert_uint_ge(e.data_len, sizeof(reason));
	ck_assert_mem_eq(e.data, reason, sizeof(reason));
	fabric_pair_pump_for(&p, 20);
	ck_assert_int_eq(p.client.event_count, 0);
	station_destroy(&p.client, &p.c);

	/* The listener goes on. */
	fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(rejected_without_reason)
{
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin(&p);
	fabric_reject(request_of(&p), NULL, 0);
	event_expect(&p, &p.client, p.c, FABRIC_REJECTED);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(refused_where_nobody_listens)
{
	struct fabric_event e;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	fabric_listener_close(p.listener);
	p.listener = NULL;
	begin(&p);
	e = event_expect(&p, &p.client, p.c, FABRIC_UNREACHABLE);
	/* A UNIX socket that was closed has no name left. */
	if (!(p.sa.ss_family == AF_UNIX && e.error == -ENOENT))
		ck_assert_int_eq(e.error, -ECONNREFUSED);
	fabric_pair_close(&p);
}
END_TEST

/* A socket that listens and never answers; for TCP with `full` one that drops each SYN. */
static int swallower(struct sockaddr_storage *sa, socklen_t *len, bool full)
{
	int fd, filler;

	target_address(1, sa, len);
	if (sa->ss_family == AF_UNIX)
		unlink(((struct sockaddr_un *)sa)->sun_path);
	fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)sa, *len), 0);
	ck_assert_int_eq(listen(fd, full ? 0 : 16), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)sa, len), 0);
	for (int i = 0; full && i < 3; i++) {
		filler = socket(sa->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		ck_assert(connect(filler, (struct sockaddr *)sa, *len) == 0 || errno == EINPROGRESS);
	}
	return fd;
}

/* Only the caller's timer ends it: nothing comes, and destroy does not wait for it, which would take minutes. */
START_TEST(swallowed_until_destroyed)
{
	struct sockaddr_storage sa;
	socklen_t len;
	struct fabric_pair p;

	if (!target.soft && (_i == 1 || !target.verbs))
		return;
	if (_i == 1 && !target_has_port())
		return;
	fabric_pair_open(&p, &fabric_pair_defaults);
	if (target.verbs) {
		sa = p.sa;
		len = p.len;
		((struct sockaddr_in *)&sa)->sin_addr.s_addr ^= htonl(0x4d);
	} else {
		swallower(&sa, &len, _i == 1);
	}
	ck_assert_int_eq(station_connect(&p.client, &sa, len, attr, NULL, 0, &p.c), 0);
	fabric_pair_pump_for(&p, 100);
	for (int i = 0; i < p.client.event_count; i++)
		ck_assert_int_eq(p.client.event[i].type, FABRIC_UNREACHABLE);
	station_destroy(&p.client, &p.c);
	fabric_pair_pump_for(&p, 20);
	fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_close(&p);
}
END_TEST

static void congestion_of(int fd, char name[static 17])
{
	socklen_t len = 16;

	memset(name, 0, 17);
	ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
}

/* How many of our sockets are connected at this port, all of them with this congestion control. */
static int connected_with(in_port_t port, const char *congestion)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		struct sockaddr_storage name[2] = {0};
		socklen_t len[2] = {sizeof(name[0]), sizeof(name[1])};
		char has[17];

		if (getsockname(fd, (struct sockaddr *)&name[0], &len[0]) != 0 ||
		    getpeername(fd, (struct sockaddr *)&name[1], &len[1]) != 0)
			continue;
		if (((struct sockaddr_in *)&name[0])->sin_port != port &&
		    ((struct sockaddr_in *)&name[1])->sin_port != port)
			continue;
		congestion_of(fd, has);
		ck_assert_str_eq(has, congestion);
		n++;
	}
	return n;
}

static uint8_t traffic_class_of(struct fabric_endpoint *endpoint)
{
	struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr qp;

	ck_assert_int_eq(ibv_query_qp(ep->qp, &qp, IBV_QP_AV, &init), 0);
	ck_assert(qp.ah_attr.is_global);
	return qp.ah_attr.grh.traffic_class;
}

/* Of a device: of sockets see check_peer. */
START_TEST(both_ends_send_in_the_traffic_class)
{
	struct fabric_pair_options options = fabric_pair_defaults;
	struct fabric_pair p;

	if (!target.verbs)
		return;
	options.fabric.traffic_class = (uint8_t)_i;
	fabric_pair_make(&p, &options);
	ck_assert_uint_eq(traffic_class_of(p.c), (unsigned)_i);
	ck_assert_uint_eq(traffic_class_of(p.s), (unsigned)_i);
	fabric_pair_close(&p);
}
END_TEST

/* An IPv4 address of this machine that is not the loopback's. */
static bool own_address(struct in_addr *out)
{
	struct ifaddrs *all;
	bool found = false;

	ck_assert_int_eq(getifaddrs(&all), 0);
	for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
		found = i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_UP &&
			!address_is_loopback(i->ifa_addr);
		if (found)
			*out = ((struct sockaddr_in *)i->ifa_addr)->sin_addr;
	}
	freeifaddrs(all);
	return found;
}

START_TEST(nothing_is_paced_on_the_loopback)
{
	struct fabric_pair p;

	if (!target.soft || !target_has_port())
		return;
	fabric_pair_make(&p, &fabric_pair_defaults);
	ck_assert_int_eq(connected_with(((struct sockaddr_in *)&p.sa)->sin_port, "reno"), 2);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(the_system_chooses_for_peers_elsewhere)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct fabric_listener *any;
	char congestion[17];
	struct fabric_pair p;
	int fd;

	if (!target.soft || target.sa.ss_family != AF_INET)
		return;
	fabric_pair_open(&p, &fabric_pair_defaults);
	ck_assert_int_eq(fabric_listen(p.server.queue, (struct sockaddr *)&in, sizeof(in), &p.server, &any), 0);
	in.sin_port = htons(fabric_listener_port(any));
	if (own_address(&in.sin_addr)) {
		memcpy(&p.sa, &in, sizeof(in));
		fabric_pair_connect(&p, &p.c, &p.s);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		congestion_of(fd, congestion);
		close(fd);
		ck_assert_int_eq(connected_with(in.sin_port, congestion), 2);
	}
	fabric_listener_close(any);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(listener_addresses)
{
	struct fabric_listener *second;
	struct sockaddr_in foreign = {.sin_family = AF_INET};
	struct sockaddr nonsense = {.sa_family = AF_APPLETALK};
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	ck_assert((fabric_listener_port(p.listener) != 0) == target_has_port());
	ck_assert_int_eq(fabric_listen(p.server.queue, (struct sockaddr *)&p.sa, p.len, NULL, &second), -EADDRINUSE);
	foreign.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, for documentation */
	ck_assert_int_eq(fabric_listen(p.server.queue, (struct sockaddr *)&foreign, sizeof(foreign), NULL, &second),
			 -EADDRNOTAVAIL);
	ck_assert_int_eq(fabric_listen(p.server.queue, &nonsense, sizeof(nonsense), NULL, &second), -EAFNOSUPPORT);
	fabric_listener_close(NULL);
	/* None of these harmed the first. */
	fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_close(&p);
}
END_TEST

/* A port or path is free again when its listener is closed, with connections still on it. */
START_TEST(listen_again)
{
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	for (int i = 0; i < 3; i++) {
		fabric_listener_close(p.listener);
		p.listener = NULL;
		ck_assert_int_eq(fabric_listen(p.server.queue, (struct sockaddr *)&p.sa, p.len, &p.server, &p.listener),
				 0);
	}
	fabric_pair_exercise(&p, p.c, p.s);
	station_destroy(&p.client, &p.c);
	station_destroy(&p.server, &p.s);
	fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(stale_unix_socket_is_replaced)
{
	struct fabric_listener *listener;
	struct sockaddr_storage sa;
	socklen_t len;
	struct fabric_pair p;
	int fd;

	if (!target.soft || target.sa.ss_family != AF_UNIX)
		return;
	fabric_pair_open(&p, &fabric_pair_defaults);
	fd = swallower(&sa, &len, false);
	ck_assert_int_eq(fabric_listen(p.server.queue, (struct sockaddr *)&sa, len, NULL, &listener), -EADDRINUSE);
	close(fd);
	ck_assert_int_eq(fabric_listen(p.server.queue, (struct sockaddr *)&sa, len, NULL, &listener), 0);
	fabric_listener_close(listener);

	/* What is not a socket is nobody's to remove. */
	fd = open(((struct sockaddr_un *)&sa)->sun_path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_lt(fabric_listen(p.server.queue, (struct sockaddr *)&sa, len, NULL, &listener), 0);
	ck_assert_int_eq(access(((struct sockaddr_un *)&sa)->sun_path, F_OK), 0);
	unlink(((struct sockaddr_un *)&sa)->sun_path);
	close(fd);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(two_listeners_on_one_queue)
{
	struct fabric_listener *second;
	struct fabric_endpoint *c2, *s2;
	struct sockaddr_storage sa;
	socklen_t len;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	second = listen_on(&p.server, 1, &sa, &len);
	p.sa = sa;
	p.len = len;
	fabric_pair_connect(&p, &c2, &s2);
	fabric_pair_exercise(&p, c2, s2);
	fabric_listener_close(second);
	fabric_pair_exercise(&p, c2, s2);
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_close(&p);
}
END_TEST

/* The request waits for the listener (_i 0), or was seen by its queue but not pulled (1). */
START_TEST(closing_the_listener_drops_requests)
{
	struct pollfd pfd[FABRIC_MAX_FDS];
	int fds[FABRIC_MAX_FDS], n;
	struct fabric_completion none;
	struct fabric_event e;
	struct fabric_pair p;
	uint64_t until = deadline();

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin(&p);
	n = fabric_fds(p.server.queue, fds);
	for (int i = 0; i < n; i++)
		pfd[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	while (poll(pfd, (nfds_t)n, 1) == 0) {
		check_that(time_now() < until, "waited in vain");
		station_pump(&p.client);
	}
	for (int i = 0; _i == 1 && i < 100; i++) {
		station_pump(&p.client);
		ck_assert_int_eq(fabric_poll(p.server.queue, &none, 1), 0);
	}
	fabric_listener_close(p.listener);
	p.listener = NULL;
	expect_failure(&p);
	/* A request that can no longer be answered is not handed out. */
	ck_assert_int_eq(p.server.event_count, 0);
	ck_assert_int_eq(fabric_next_event(p.server.queue, &e), 0);
	fabric_pair_close(&p);
}
END_TEST

/* A request that was pulled is the caller's, and outlives the listener. */
START_TEST(request_outlives_the_listener)
{
	struct fabric_request *request;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin(&p);
	request = request_of(&p);
	fabric_listener_close(p.listener);
	p.listener = NULL;
	if (_i == 0) {
		fabric_reject(request, "no", 2);
		expect_failure(&p);
	} else {
		ck_assert_int_eq(station_take(&p.server, request, attr, &p.s), 0);
		ck_assert_int_eq(fabric_accept(p.s, NULL, 0), 0);
		event_expect(&p, &p.client, p.c, FABRIC_ESTABLISHED);
		event_expect(&p, &p.server, p.s, FABRIC_ESTABLISHED);
		fabric_pair_exercise(&p, p.c, p.s);
	}
	fabric_pair_close(&p);
}
END_TEST

START_TEST(disconnect_before_accept)
{
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin_and_take(&p);
	fabric_disconnect(p.s);
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	expect_failure(&p);
	ck_assert_int_lt(fabric_accept(p.s, NULL, 0), 0);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(destroy_before_accept)
{
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin_and_take(&p);
	station_destroy(&p.server, &p.s);
	expect_failure(&p);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(client_disconnects_while_connecting)
{
	struct fabric_event e;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin(&p);
	fabric_disconnect(p.c);
	e = event_next(&p, &p.client, p.c);
	check_that(e.type == FABRIC_DISCONNECTED || e.type == FABRIC_UNREACHABLE, "%s", event_name(e.type));
	fabric_pair_pump_for(&p, 20);
	ck_assert_int_eq(p.client.event_count, 0);
	fabric_pair_close(&p);
}
END_TEST

/* The client is gone when the server answers: whatever it is told, it is told an end. */
START_TEST(client_gone_before_the_answer)
{
	struct fabric_event e;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	begin(&p);
	struct fabric_request *request = request_of(&p);

	station_destroy(&p.client, &p.c);
	fabric_pair_pump_for(&p, 10);
	if (_i == 0) {
		fabric_reject(request, NULL, 0);
	} else if (station_take(&p.server, request, attr, &p.s) == 0 && fabric_accept(p.s, NULL, 0) == 0) {
		e = event_next(&p, &p.server, p.s);
		if (e.type == FABRIC_ESTABLISHED)
			e = event_next(&p, &p.server, p.s);
		ck_assert_int_eq(e.type, FABRIC_DISCONNECTED);
	}
	if (p.s)
		station_destroy(&p.server, &p.s);
	fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_close(&p);
}
END_TEST

/* A server's first message may arrive before the client could know that it is connected. */
START_TEST(receives_posted_while_connecting)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, sink_rights());
	buffer_make(&theirs, &p.server, 4096, FABRIC_LOCAL_WRITE);
	buffer_fill(&theirs, 9);
	begin(&p);
	receive(&p.client, p.c, 1, &mine, 0, 100);
	receive(&p.client, p.c, 2, &mine, 100, 100);
	ck_assert_int_eq(station_take(&p.server, request_of(&p), attr, &p.s), 0);
	receive(&p.server, p.s, 3, &theirs, 1000, 100);
	ck_assert_int_eq(fabric_accept(p.s, NULL, 0), 0);
	event_expect(&p, &p.server, p.s, FABRIC_ESTABLISHED);
	wr = wr_local(FABRIC_SEND, 4, &theirs, 0, 100);
	post(p.s, &wr);
	post(p.s, &wr);
	done_expect(&p, &p.client, p.c, 1, FABRIC_RECV, FABRIC_OK);
	done_expect(&p, &p.client, p.c, 2, FABRIC_RECV, FABRIC_OK);
	ck_assert(buffer_has(&mine, 0, 100, 9));
	event_expect(&p, &p.client, p.c, FABRIC_ESTABLISHED);
	wr = wr_local(FABRIC_SEND, 5, &mine, 0, 100);
	post(p.c, &wr);
	done_expect(&p, &p.server, p.s, 4, FABRIC_SEND, FABRIC_OK);
	done_expect(&p, &p.server, p.s, 4, FABRIC_SEND, FABRIC_OK);
	done_expect(&p, &p.server, p.s, 3, FABRIC_RECV, FABRIC_OK);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* Destroy in each state; the other side learns, nothing else comes, the listener goes on. */
enum state { CONNECTING, REQUESTED, TAKEN, ACCEPTED, ESTABLISHED, DISCONNECTING, DISCONNECTED, STATES };

static void go_to(struct fabric_pair *p, enum state state)
{
	begin(p);
	if (state < REQUESTED)
		return;
	struct fabric_request *request = request_of(p);

	if (state < TAKEN) {
		fabric_reject(request, NULL, 0);
		return;
	}
	ck_assert_int_eq(station_take(&p->server, request, attr, &p->s), 0);
	if (state < ACCEPTED)
		return;
	ck_assert_int_eq(fabric_accept(p->s, NULL, 0), 0);
	if (state < ESTABLISHED)
		return;
	event_expect(p, &p->client, p->c, FABRIC_ESTABLISHED);
	event_expect(p, &p->server, p->s, FABRIC_ESTABLISHED);
	if (state < DISCONNECTING)
		return;
	fabric_disconnect(p->c);
	if (state < DISCONNECTED)
		return;
	event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
	event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
}

START_TEST(destroy_in_each_state)
{
	enum state state = (enum state)(_i / 2);
	bool client_first = _i % 2;
	struct fabric_pair p;

	fabric_pair_open(&p, &fabric_pair_defaults);
	go_to(&p, state);
	if (client_first)
		station_destroy(&p.client, &p.c);
	if (p.s)
		station_destroy(&p.server, &p.s);
	fabric_pair_pump_for(&p, 10);
	if (!client_first)
		station_destroy(&p.client, &p.c);
	fabric_pair_pump_for(&p, 10);
	/* What is left is at most the request of a connect that was given up. */
	for (int i = 0; i < p.server.event_count; i++)
		if (p.server.event[i].type == FABRIC_REQUEST)
			fabric_reject(p.server.event[i].request, NULL, 0);
	p.server.event_count = p.client.event_count = 0;
	fabric_pair_connect(&p, &p.c, &p.s);
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_close(&p);
}
END_TEST

Suite *connect_suite(void)
{
	Suite *s = suite_create("connect");
	TCase *t = fabric_pair_tcase(s, "open", 20);

	tcase_add_test(t, open_tells_what_it_is);
	tcase_add_test(t, two_fabrics_at_once);
	tcase_add_test(t, status_texts_differ);
	t = fabric_pair_tcase(s, "listen", 20);
	tcase_add_test(t, listener_addresses);
	tcase_add_test(t, listen_again);
	tcase_add_test(t, stale_unix_socket_is_replaced);
	tcase_add_test(t, two_listeners_on_one_queue);
	tcase_add_loop_test(t, closing_the_listener_drops_requests, 0, 2);
	tcase_add_loop_test(t, request_outlives_the_listener, 0, 2);
	t = fabric_pair_tcase(s, "connect", 20);
	tcase_add_test(t, private_data_both_ways);
	tcase_add_test(t, private_data_too_long);
	tcase_add_test(t, names_of_the_peer);
	tcase_add_test(t, rejected_with_reason);
	tcase_add_test(t, rejected_without_reason);
	tcase_add_test(t, refused_where_nobody_listens);
	tcase_add_loop_test(t, swallowed_until_destroyed, 0, 2);
	tcase_add_test(t, disconnect_before_accept);
	tcase_add_test(t, destroy_before_accept);
	tcase_add_test(t, client_disconnects_while_connecting);
	tcase_add_loop_test(t, client_gone_before_the_answer, 0, 2);
	tcase_add_test(t, receives_posted_while_connecting);
	tcase_add_test(t, nothing_is_paced_on_the_loopback);
	tcase_add_test(t, the_system_chooses_for_peers_elsewhere);
	for (int class = 0; class < 256; class += 0xb8)
		tcase_add_loop_test(t, both_ends_send_in_the_traffic_class, class, class + 1);
	tcase_add_loop_test(t, destroy_in_each_state, 0, STATES * 2);
	return s;
}
