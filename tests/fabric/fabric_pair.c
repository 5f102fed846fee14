/* fabric_pair.c: see fabric_pair.h. */
#include "tests/fabric/fabric_pair.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/un.h>

#define GUARD_BYTE 0xa5

struct target target;

const struct fabric_pair_options fabric_pair_defaults = {
	.client = {.send_depth = 64, .recv_depth = 64, .reads_out = 4, .reads_in = 4},
	.server = {.send_depth = 64, .recv_depth = 64, .reads_out = 4, .reads_in = 4},
};

const struct fabric_pair_options fabric_pair_shared = {
	.queue = {.shared_depth = 64},
	.client = {.send_depth = 64, .recv_depth = 64, .reads_out = 4, .reads_in = 4},
	.server = {.send_depth = 64, .reads_out = 4, .reads_in = 4},
};

unsigned sink_rights(void)
{
	return FABRIC_LOCAL_WRITE | (target.open_sinks ? FABRIC_REMOTE_WRITE : 0);
}

uint64_t deadline(void)
{
	return time_now() + (uint64_t)target.slow * 60 * TIME_S;
}

bool target_has_port(void)
{
	return target.sa.ss_family == AF_INET || target.sa.ss_family == AF_INET6;
}

void target_set_port(struct sockaddr_storage *sa, uint16_t port)
{
	if (target_has_port()) /* IPv4 and IPv6 have it at the same place */
		((struct sockaddr_in *)sa)->sin_port = htons(port);
}

bool target_address(int nth, struct sockaddr_storage *sa, socklen_t *len)
{
	struct address_socket found[ADDRESS_SOCKETS];
	struct address address;
	char text[sizeof(target.text) + 8];

	snprintf(text, sizeof(text), nth && !target_has_port() ? "%s.%d" : "%s", target.text, nth);
	if (fabric_address_parse(text, &address) != 0 ||
	    fabric_transport_resolve(target.transport, &address, found) < 1)
		return false;
	*sa = found[0].sa;
	*len = found[0].len;
	target_set_port(sa, 0);
	return true;
}

/* Room for one more in an array that doubles. */
static void *grow(void *array, int count, int *room, size_t size)
{
	if (count < *room)
		return array;
	*room = *room ? *room * 2 : 64;
	array = realloc(array, (size_t)*room * size);
	check_that(array, "no memory");
	return array;
}

/*
 * Station: pull, check, log.
 */

static struct known *find_known(struct station *st, const struct fabric_endpoint *endpoint)
{
	for (int i = 0; i < st->known_count; i++)
		if (st->known[i].endpoint == endpoint)
			return &st->known[i];
	return NULL;
}

static void know(struct station *st, struct fabric_endpoint *endpoint)
{
	check_that(endpoint, "no endpoint");
	check_that(!find_known(st, endpoint), "the same endpoint twice");
	st->known = grow(st->known, st->known_count, &st->known_room, sizeof(*st->known));
	st->known[st->known_count++] = (struct known){.endpoint = endpoint};
}

static void log_done(struct station *st, const struct fabric_completion *c)
{
	struct known *k = find_known(st, c->endpoint);

	check_that(k, "completion %llu of no living endpoint", (unsigned long long)c->id);
	check_that(c->context == st, "completion %llu with a wrong context", (unsigned long long)c->id);
	check_that(!k->closed, "completion %llu (%s) after the disconnect", (unsigned long long)c->id,
		   fabric_status_text(c->status));
	st->done = grow(st->done, st->done_count, &st->done_room, sizeof(*st->done));
	st->done[st->done_count++] = *c;
	st->pulled++;
}

static void pull_done(struct station *st)
{
	struct fabric_completion batch[32];
	int n;

	do {
		n = fabric_poll(st->queue, batch, ARRAY_SIZE(batch));
		check_that(n >= 0 && n <= (int)ARRAY_SIZE(batch), "poll answers %d", n);
		for (int i = 0; i < n; i++)
			log_done(st, &batch[i]);
	} while (n);
}

static void log_event(struct station *st, const struct fabric_event *e)
{
	st->event = grow(st->event, st->event_count, &st->event_room, sizeof(*st->event));
	st->event[st->event_count++] = *e;
	st->pulled++;
	check_that(e->context == st, "%s with a wrong context", event_name(e->type));
	if (!e->endpoint) {
		check_that(e->type == FABRIC_REQUEST || e->type == FABRIC_REMOVED, "%s without endpoint",
			   event_name(e->type));
		return;
	}

	struct known *k = find_known(st, e->endpoint);

	check_that(k, "%s of no living endpoint", event_name(e->type));
	check_that(!k->closed || e->type == FABRIC_REMOVED, "%s after the disconnect", event_name(e->type));
	if (e->type != FABRIC_DISCONNECTED)
		return;
	/* The flushes precede it: one look, without waiting, finds what was not yet pulled. */
	pull_done(st);
	k->closed = true;
}

void station_pump(struct station *st)
{
	uint64_t before = st->pulled;
	struct fabric_event e;
	int n;

	pull_done(st);
	while (memset(&e, 0x5a, sizeof(e)), (n = fabric_next_event(st->queue, &e)) != 0) {
		check_that(n == 1, "next_event answers %d", n);
		log_event(st, &e);
	}
	/* Not at each empty look: on a busy machine a yield costs a time slice. */
	st->idle = st->pulled == before ? st->idle + 1 : 0;
	if (st->idle % 256 == 255)
		sched_yield();
}

int station_readable(const struct station *st, int timeout_ms)
{
	struct pollfd pfd[FABRIC_MAX_FDS] = {0};
	int fds[FABRIC_MAX_FDS];
	int n = fabric_fds(st->queue, fds);

	for (int i = 0; i < n; i++)
		pfd[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	return poll(pfd, (nfds_t)n, timeout_ms);
}

bool station_sleep(struct station *st, int timeout_ms)
{
	uint64_t before = st->pulled;
	uint64_t until = time_now() + (uint64_t)timeout_ms * TIME_MS;

	while (st->pulled == before) {
		check_that(fabric_arm(st->queue) == 0, "arm fails");
		station_pump(st);
		if (st->pulled != before)
			break;
		uint64_t now = time_now();
		if (now >= until || station_readable(st, (int)((until - now) / TIME_MS) + 1) == 0)
			return false;
		station_pump(st);
	}
	return true;
}

void station_open(struct station *st, struct fabric *fabric, const struct fabric_queue_attr *attr)
{
	*st = (struct station){0};
	ck_assert_int_eq(fabric_domain_create(fabric, &st->domain), 0);
	ck_assert_int_eq(fabric_queue_create(st->domain, attr, &st->queue), 0);
}

void station_close(struct station *st)
{
	while (st->known_count) {
		struct fabric_endpoint *endpoint = st->known[0].endpoint;

		station_destroy(st, &endpoint);
	}
	fabric_queue_destroy(st->queue);
	fabric_domain_destroy(st->domain);
	free(st->done);
	free(st->event);
	free(st->known);
}

int station_connect(struct station *st, const struct sockaddr_storage *sa, socklen_t len,
		    const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		    struct fabric_endpoint **out)
{
	struct fabric_endpoint_attr a = *attr;
	int err;

	a.context = st;
	a.memory = target.memory;
	err = fabric_connect(st->queue, st->domain, (const struct sockaddr *)sa, len, &a, data, data_len, out);
	if (!err)
		know(st, *out);
	return err;
}

int station_take(struct station *st, struct fabric_request *request, const struct fabric_endpoint_attr *attr,
		 struct fabric_endpoint **out)
{
	struct fabric_endpoint_attr a = *attr;
	int err;

	a.context = st;
	a.memory = target.memory;
	err = fabric_take(st->queue, st->domain, request, &a, out);
	if (!err)
		know(st, *out);
	return err;
}

void station_destroy(struct station *st, struct fabric_endpoint **endpoint)
{
	struct known *k = find_known(st, *endpoint);

	if (!*endpoint)
		return;
	ck_assert_ptr_nonnull(k);
	*k = st->known[--st->known_count];
	fabric_endpoint_destroy(*endpoint);
	*endpoint = NULL;
}

/*
 * Pair.
 */

void fabric_pair_open(struct fabric_pair *p, const struct fabric_pair_options *options)
{
	*p = (struct fabric_pair){.options = *options};
	ck_assert_int_eq(fabric_open(target.provider, &options->fabric, &p->fabric), 0);
	fabric_limits(p->fabric, &p->limits);
	station_open(&p->client, p->fabric, &p->options.queue);
	station_open(&p->server, p->fabric, &p->options.queue);
	target_address(0, &p->sa, &p->len);
	ck_assert_int_eq(fabric_listen(p->server.queue, (struct sockaddr *)&p->sa, p->len, &p->server, &p->listener),
			 0);
	target_set_port(&p->sa, fabric_listener_port(p->listener));
}

void fabric_pair_connect(struct fabric_pair *p, struct fabric_endpoint **c, struct fabric_endpoint **s)
{
	struct fabric_event e;

	ck_assert_int_eq(station_connect(&p->client, &p->sa, p->len, &p->options.client, NULL, 0, c), 0);
	e = event_expect(p, &p->server, NULL, FABRIC_REQUEST);
	ck_assert_int_eq(station_take(&p->server, e.request, &p->options.server, s), 0);
	ck_assert_int_eq(fabric_accept(*s, NULL, 0), 0);
	event_expect(p, &p->client, *c, FABRIC_ESTABLISHED);
	event_expect(p, &p->server, *s, FABRIC_ESTABLISHED);
}

void fabric_pair_make(struct fabric_pair *p, const struct fabric_pair_options *options)
{
	fabric_pair_open(p, options);
	fabric_pair_connect(p, &p->c, &p->s);
}

void fabric_pair_close(struct fabric_pair *p)
{
	if (p->listener)
		fabric_listener_close(p->listener);
	station_close(&p->client);
	station_close(&p->server);
	fabric_close(p->fabric);
}

void fabric_pair_pump(struct fabric_pair *p)
{
	station_pump(&p->client);
	station_pump(&p->server);
}

void fabric_pair_settle(struct fabric_pair *p, struct station *st)
{
	uint64_t until = deadline();
	uint64_t before;

	do {
		check_that(time_now() < until, "the descriptors are never quiet");
		fabric_pair_pump(p);
		before = st->pulled;
		ck_assert_int_eq(fabric_arm(st->queue), 0);
		station_pump(st);
	} while (st->pulled != before || station_readable(st, 5) != 0);
}

void fabric_pair_pump_for(struct fabric_pair *p, unsigned ms)
{
	uint64_t until = time_now() + (uint64_t)target.slow * ms * TIME_MS;

	while (time_now() < until)
		fabric_pair_pump(p);
}

struct fabric_completion done_next_at(int line, struct fabric_pair *p, struct station *st,
				      const struct fabric_endpoint *endpoint)
{
	uint64_t until = deadline();

	for (int seen = 0;; fabric_pair_pump(p)) {
		for (; seen < st->done_count; seen++) {
			struct fabric_completion c = st->done[seen];

			if (endpoint && c.endpoint != endpoint)
				continue;
			memmove(&st->done[seen], &st->done[seen + 1], (size_t)(--st->done_count - seen) * sizeof(c));
			return c;
		}
		check_that(time_now() < until, "line %d: waited in vain for a completion", line);
	}
}

struct fabric_completion done_expect_at(int line, struct fabric_pair *p, struct station *st,
					const struct fabric_endpoint *endpoint, uint64_t id, enum fabric_opcode opcode,
					enum fabric_status status)
{
	struct fabric_completion c = done_next_at(line, p, st, endpoint);

	check_that(c.id == id && c.status == status, "line %d: completion %llu (%s), expected %llu (%s)", line,
		   (unsigned long long)c.id, fabric_status_text(c.status), (unsigned long long)id,
		   fabric_status_text(status));
	check_that(c.status != FABRIC_OK || c.opcode == opcode, "line %d: completion %llu of opcode %d, expected %d",
		   line, (unsigned long long)id, (int)c.opcode, (int)opcode);
	return c;
}

struct fabric_event event_next_at(int line, struct fabric_pair *p, struct station *st,
				  const struct fabric_endpoint *endpoint)
{
	uint64_t until = deadline();

	for (;; fabric_pair_pump(p)) {
		for (int i = 0; i < st->event_count; i++) {
			struct fabric_event e = st->event[i];

			if (e.endpoint != endpoint)
				continue;
			memmove(&st->event[i], &st->event[i + 1], (size_t)(--st->event_count - i) * sizeof(e));
			return e;
		}
		check_that(time_now() < until, "line %d: waited in vain for an event", line);
	}
}

struct fabric_event event_expect_at(int line, struct fabric_pair *p, struct station *st,
				    const struct fabric_endpoint *endpoint, enum fabric_event_type type)
{
	struct fabric_event e = event_next_at(line, p, st, endpoint);

	check_that(e.type == type, "line %d: %s (%d), expected %s", line, event_name(e.type), e.error,
		   event_name(type));
	return e;
}

const char *event_name(enum fabric_event_type type)
{
	switch (type) {
	case FABRIC_REQUEST:
		return "request";
	case FABRIC_ESTABLISHED:
		return "established";
	case FABRIC_REJECTED:
		return "rejected";
	case FABRIC_UNREACHABLE:
		return "unreachable";
	case FABRIC_DISCONNECTED:
		return "disconnected";
	case FABRIC_REMOVED:
		return "removed";
	case FABRIC_WIDENED:
		return "widened";
	}
	return "an event that does not exist";
}

/*
 * Memory and work requests.
 */

static size_t buffer_mapped(const struct buffer *b)
{
	return (b->len + 2 * BUFFER_GUARD + 4095) & ~(size_t)4095;
}

void buffer_make(struct buffer *b, struct station *st, size_t len, unsigned access)
{
	uint8_t *map;

	b->len = len;
	map = mmap(NULL, buffer_mapped(b), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	b->at = map + BUFFER_GUARD;
	memset(map, GUARD_BYTE, BUFFER_GUARD);
	memset(b->at + len, GUARD_BYTE, BUFFER_GUARD);
	ck_assert_int_eq(fabric_register(st->domain, b->at, len, access, &b->region), 0);
}

void buffer_deregister(struct buffer *b)
{
	fabric_deregister(b->region);
	b->region = NULL;
}

void buffer_check_guards(const struct buffer *b)
{
	for (size_t i = 0; i < BUFFER_GUARD; i++) {
		check_that((b->at - BUFFER_GUARD)[i] == GUARD_BYTE, "touched before the buffer");
		check_that(b->at[b->len + i] == GUARD_BYTE, "touched %zu behind the buffer", i);
	}
}

void buffer_drop(struct buffer *b)
{
	buffer_check_guards(b);
	buffer_deregister(b);
	munmap(b->at - BUFFER_GUARD, buffer_mapped(b));
}

static uint8_t pattern(size_t i, uint8_t seed)
{
	return (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16) * 17 + seed);
}

void buffer_fill(struct buffer *b, uint8_t seed)
{
	for (size_t i = 0; i < b->len; i++)
		b->at[i] = pattern(i, seed);
}

bool buffer_has(const struct buffer *b, size_t offset, size_t len, uint8_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (b->at[offset + i] != pattern(i, seed))
			return false;
	return true;
}

struct fabric_wr wr_local(enum fabric_opcode opcode, uint64_t id, const struct buffer *b, size_t offset, size_t len)
{
	struct fabric_wr wr = {.id = id, .opcode = opcode, .signaled = true};

	if (b) {
		wr.sge_count = 1;
		wr.sge[0] = (struct fabric_sge){b->at + offset, len, b->region};
	}
	return wr;
}

struct fabric_wr wr_remote(enum fabric_opcode opcode, uint64_t id, const struct buffer *b, size_t offset, size_t len,
			   const struct buffer *to, const struct fabric_endpoint *theirs, size_t to_offset)
{
	struct fabric_wr wr = wr_local(opcode, id, b, offset, len);

	wr.rkey = fabric_region_rkey(to->region, theirs);
	wr.remote_addr = (uint64_t)(uintptr_t)to->at + to_offset;
	return wr;
}

void post_at(int line, struct fabric_endpoint *endpoint, const struct fabric_wr *wr)
{
	int err = fabric_post(endpoint, wr);

	check_that(err == 0, "line %d: post answers %d", line, err);
}

void post_patiently(struct fabric_pair *p, struct fabric_endpoint *endpoint, const struct fabric_wr *wr)
{
	uint64_t until = deadline();
	int err;

	while ((err = fabric_post(endpoint, wr)) == -EAGAIN) {
		check_that(time_now() < until, "no slot came back for %llu", (unsigned long long)wr->id);
		fabric_pair_pump(p);
	}
	ck_assert_int_eq(err, 0);
}

int try_receive(struct station *st, struct fabric_endpoint *endpoint, uint64_t id, const struct buffer *b,
		size_t offset, size_t len)
{
	struct fabric_recv r = {.id = id, .sge = {b->at + offset, len, b->region}};

	return fabric_post_recv(st->queue, endpoint, &r, 1);
}

void receive_at(int line, struct station *st, struct fabric_endpoint *endpoint, uint64_t id, const struct buffer *b,
		size_t offset, size_t len)
{
	int err = try_receive(st, endpoint, id, b, offset, len);

	check_that(err == 0, "line %d: posting a receive answers %d", line, err);
}

void fabric_pair_wake(struct fabric_pair *p, struct fabric_endpoint *c, struct fabric_endpoint *s, struct buffer *mine,
		      struct buffer *theirs, uint64_t id)
{
	struct fabric_wr wr = wr_local(FABRIC_SEND, id, mine, 0, 60);

	receive(&p->server, s, id, theirs, 0, 60);
	fabric_pair_settle(p, &p->server);
	post(c, &wr);
	for (int tries = 0; tries < 1000 && station_readable(&p->server, 0) == 0; tries++) {
		station_pump(&p->client);
		station_readable(&p->server, target.slow);
	}
	check_that(station_readable(&p->server, 0) > 0, "message %d woke nobody", (int)id);
	done_expect(p, &p->server, s, id, FABRIC_RECV, FABRIC_OK);
	done_expect(p, &p->client, c, id, FABRIC_SEND, FABRIC_OK);
}

void fabric_pair_exercise(struct fabric_pair *p, struct fabric_endpoint *c, struct fabric_endpoint *s)
{
	const bool shared = p->options.server.recv_depth == 0;
	struct buffer mine, theirs;
	struct fabric_wr wr;

	buffer_make(&mine, &p->client, 8192, sink_rights());
	buffer_make(&theirs, &p->server, 8192, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	buffer_fill(&mine, 3);
	receive(&p->server, shared ? NULL : s, 901, &theirs, 0, 4096);
	wr = wr_local(FABRIC_SEND, 902, &mine, 0, 100);
	post_patiently(p, c, &wr);
	ck_assert_uint_eq(done_expect(p, &p->server, s, 901, FABRIC_RECV, FABRIC_OK).bytes, 100);
	ck_assert(buffer_has(&theirs, 0, 100, 3));
	done_expect(p, &p->client, c, 902, FABRIC_SEND, FABRIC_OK);
	wr = wr_remote(FABRIC_WRITE, 903, &mine, 0, 4096, &theirs, s, 4096);
	post_patiently(p, c, &wr);
	done_expect(p, &p->client, c, 903, FABRIC_WRITE, FABRIC_OK);
	wr = wr_remote(FABRIC_READ, 904, &mine, 4096, 4096, &theirs, s, 4096);
	post_patiently(p, c, &wr);
	done_expect(p, &p->client, c, 904, FABRIC_READ, FABRIC_OK);
	ck_assert(buffer_has(&mine, 4096, 4096, 3));
	buffer_drop(&mine);
	buffer_drop(&theirs);
}

unsigned random_next(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

TCase *fabric_pair_tcase(Suite *suite, const char *name, int seconds)
{
	TCase *t = tcase_create(name);

	tcase_set_timeout(t, 6.0 * seconds * target.slow); /* on a busy machine */
	suite_add_tcase(suite, t);
	return t;
}
